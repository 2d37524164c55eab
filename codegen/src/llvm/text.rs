//! Kernel IR as LLVM's textual IR: functions, control flow and launches; single instructions are in `inst`.
//!
//! Text rather than LLVM's builder: it is what one wants to look at, needs no unsafe code, and is parsed in a fraction
//! of the time that LLVM needs for the rest.
use crate::{Error, Result, Target};
use numrsc_ir::kernel::{Axis, Block, Elem, FuncId, Function, Kind, Module, Stmt, Ty, V, context};
use std::collections::BTreeSet;
use std::fmt::Write;

/// What other objects see of the functions of a module.
#[derive(Clone, Copy)]
pub(super) enum Names<'a> {
    /// All of them, for who links them here.
    Hidden,
    /// None of them.
    Internal,
    /// This one, by this name.
    Entry(FuncId, &'a str),
}

/// One module of LLVM with the given functions; those they call and that are not among them are declared.
pub(super) fn module_text(
    module: &Module,
    functions: &[FuncId],
    names: Names<'_>,
    target: &Target,
    triple: &str,
) -> Result<String> {
    let facts = Facts {
        names,
        fused: target.machine().fused,
        rounds: target.rounds_floats(),
        masks: target.has("avx512vl"),
        dot4: target.machine().dot4,
        small_pointers: target.pointer_bits() == 32,
        device: target.is_device(),
    };
    let mut needs = Needs::default();
    let mut text = format!("target triple = \"{triple}\"\n");
    for &id in functions {
        let function = find(module, id)?;
        text.push('\n');
        text.push_str(&Emitter::new(module, function, &facts, &mut needs).function(id)?);
    }
    if needs.launch {
        text.push('\n');
        text.push_str(&if facts.device { launch_alone() } else { launch_helper() });
    }
    text.push('\n');
    for id in needs.callees.iter().filter(|id| !functions.contains(id)) {
        let callee = find(module, *id)?;
        let (result, params) = signature(callee)?;
        let params: Vec<String> = params.into_iter().map(|p| p.0).collect();
        writeln!(text, "declare hidden {result} @{}({}) #0", symbol(module, *id), params.join(", ")).expect("a string");
    }
    for declaration in &needs.intrinsics {
        writeln!(text, "{declaration}").expect("a string");
    }
    let size = if facts.device { "minsize optsize " } else { "" };
    writeln!(text, "\nattributes #0 = {{ nounwind {size}\"no-builtins\" }}").expect("a string");
    Ok(text)
}

/// The name of a function for LLVM: its position, which [`position`] finds again, and for the reader its name.
pub(super) fn symbol(module: &Module, id: FuncId) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let name: String = module.functions[id.0 as usize].name.chars().map(plain).collect();
    format!("f{}.{name}", id.0)
}

/// The function that a symbol stands for.
pub(super) fn position(symbol: &str) -> Option<FuncId> {
    let (number, _) = symbol.strip_prefix('f')?.split_once('.')?;
    number.parse().ok().map(FuncId)
}

/// What of the target changes the text.
pub(super) struct Facts<'a> {
    names: Names<'a>,
    pub(super) fused: bool,
    pub(super) rounds: bool,
    /// Instructions of x86 with masks.
    pub(super) masks: bool,
    /// Products of four integers of 8 bits, on x86.
    pub(super) dot4: bool,
    /// Pointers have 4 bytes and take 8 in memory.
    pub(super) small_pointers: bool,
    /// One thread, and code should be small.
    device: bool,
}

/// What the functions of a module refer to.
#[derive(Default)]
pub(super) struct Needs {
    pub(super) intrinsics: BTreeSet<String>,
    callees: BTreeSet<FuncId>,
    launch: bool,
}

fn find(module: &Module, id: FuncId) -> Result<&Function> {
    let missing = || Error::Link(format!("the module has no function {}", id.0));
    module.functions.get(id.0 as usize).ok_or_else(missing)
}

/// The result and the parameters (type and name) of a function as LLVM sees it.
fn signature(f: &Function) -> Result<(String, Vec<(String, String)>)> {
    let named = |v: &V| (ll(f.ty(*v)), format!("%v{}", v.0));
    Ok(match f.kind {
        Kind::Entry => ("i32".to_owned(), f.params.iter().map(named).collect()),
        Kind::Kernel => {
            let mut params = vec![("ptr".to_owned(), "%args".to_owned())];
            params.extend(f.params.iter().take(3).map(named));
            ("i32".to_owned(), params)
        }
        Kind::Helper => {
            let [result] = f.body.results[..] else {
                let message = "a helper yields one value".to_owned();
                return Err(Error::Unsupported { function: f.name.clone(), message });
            };
            (ll(f.ty(result)), f.params.iter().map(named).collect())
        }
    })
}

/// Runs a kernel over its extent where there is one thread. Where it is called, LLVM sees which kernel that is.
fn launch_alone() -> String {
    "define internal i32 @launch(ptr %ctx, ptr %kernel, ptr %args, i64 %extent, i64 %grain) alwaysinline #0 {
entry:
  %some = icmp sgt i64 %extent, 0
  br i1 %some, label %run, label %nothing
nothing:
  ret i32 0
run:
  %code = call i32 %kernel(ptr %args, i64 0, i64 %extent, i64 0)
  ret i32 %code
}
"
    .to_owned()
}

/// Runs a kernel over its extent, split by the runtime if that is worth it. One per module and not inlined: an entry has thousands
/// of launches.
fn launch_helper() -> String {
    format!(
        "define internal i32 @launch(ptr %ctx, ptr %kernel, ptr %args, i64 %extent, i64 %grain) noinline #0 {{
entry:
  %some = icmp sgt i64 %extent, 0
  br i1 %some, label %choose, label %nothing
nothing:
  ret i32 0
choose:
  %threads.at = getelementptr i64, ptr %ctx, i64 {}
  %threads = load i64, ptr %threads.at, align 8
  %team = icmp sgt i64 %threads, 1
  %large = icmp sgt i64 %extent, %grain
  %split = and i1 %team, %large
  br i1 %split, label %many, label %one
many:
  %parallel.at = getelementptr i64, ptr %ctx, i64 {}
  %parallel = load ptr, ptr %parallel.at, align 8
  %many.code = call i32 %parallel(ptr %ctx, ptr %kernel, ptr %args, i64 %extent, i64 %grain)
  ret i32 %many.code
one:
  %one.code = call i32 %kernel(ptr %args, i64 0, i64 %extent, i64 0)
  ret i32 %one.code
}}
",
        context::THREADS,
        context::FN_PARALLEL
    )
}

/// The type of a value.
pub(super) fn ll(ty: Ty) -> String {
    let elem = match ty.elem {
        Elem::I1 => "i1",
        Elem::I8 => "i8",
        Elem::I16 => "i16",
        Elem::I32 => "i32",
        Elem::I64 => "i64",
        Elem::F32 => "float",
        Elem::F64 => "double",
        Elem::Ptr => "ptr",
    };
    if ty.lanes == 1 { elem.to_owned() } else { format!("<{} x {elem}>", ty.lanes) }
}

/// Writes one function.
pub(super) struct Emitter<'a> {
    pub(super) module: &'a Module,
    pub(super) function: &'a Function,
    pub(super) facts: &'a Facts<'a>,
    pub(super) needs: &'a mut Needs,
    /// What is written so far, without the entry block's allocations.
    out: String,
    allocations: String,
    /// How each value is written as an operand: a register or a constant.
    names: Vec<String>,
    /// The block that is being written.
    label: String,
    /// Numbers temporaries and blocks.
    counter: u32,
    /// Set apart the names of the copies of an unrolled body.
    suffix: String,
    /// Arguments of the launch that has most.
    launch_slots: usize,
}

impl<'a> Emitter<'a> {
    fn new(module: &'a Module, function: &'a Function, facts: &'a Facts<'a>, needs: &'a mut Needs) -> Emitter<'a> {
        Emitter {
            module,
            function,
            facts,
            needs,
            out: String::new(),
            allocations: String::new(),
            names: vec![String::new(); function.types.len()],
            label: "entry".to_owned(),
            counter: 0,
            suffix: String::new(),
            launch_slots: 0,
        }
    }

    fn function(mut self, id: FuncId) -> Result<String> {
        let f = self.function;
        let (result, params) = signature(f)?;
        for &v in &f.params {
            self.define(v);
        }
        if f.kind == Kind::Kernel {
            for (slot, &v) in f.params.iter().skip(3).enumerate() {
                self.parameter_of_slot(slot, v)?;
            }
        }
        let params: Vec<String> = params.into_iter().map(|(ty, name)| format!("{ty} {name}")).collect();
        if self.block(&f.body)? {
            let value = if f.kind == Kind::Helper { self.name(f.body.results[0]) } else { "0".to_owned() };
            self.line(&format!("ret {result} {value}"));
        }
        if self.launch_slots > 0 {
            let slots = self.launch_slots;
            writeln!(self.allocations, "  %slots = alloca [{slots} x i64], align 16").expect("a string");
        }
        let (seen, name) = match self.facts.names {
            Names::Hidden => ("hidden ", symbol(self.module, id)),
            Names::Entry(entry, name) if entry == id => ("", name.to_owned()),
            Names::Internal | Names::Entry(..) => ("internal ", symbol(self.module, id)),
        };
        let params = params.join(", ");
        let (allocations, body) = (&self.allocations, &self.out);
        Ok(format!("define {seen}{result} @{name}({params}) #0 {{\nentry:\n{allocations}{body}}}\n"))
    }

    fn parameter_of_slot(&mut self, slot: usize, v: V) -> Result<()> {
        let ty = self.ty(v);
        if ty.lanes != 1 {
            return Err(self.unsupported("a kernel's parameter is a vector"));
        }
        let at = self.temp(&format!("getelementptr i64, ptr %args, i64 {slot}"));
        if ty.elem == Elem::I1 {
            let byte = self.temp(&format!("load i8, ptr {at}, align 8"));
            self.set(v, &format!("trunc i8 {byte} to i1"));
        } else {
            self.set(v, &format!("load {}, ptr {at}, align 8", ll(ty)));
        }
        Ok(())
    }

    pub(super) fn ty(&self, v: V) -> Ty {
        self.function.ty(v)
    }

    /// The operand without its type.
    pub(super) fn name(&self, v: V) -> String {
        self.names[v.0 as usize].clone()
    }

    /// The operand with its type.
    pub(super) fn typed(&self, v: V) -> String {
        format!("{} {}", ll(self.ty(v)), self.names[v.0 as usize])
    }

    /// Choose the register of a value.
    fn define(&mut self, v: V) -> String {
        let name = format!("%v{}{}", v.0, self.suffix);
        self.names[v.0 as usize].clone_from(&name);
        name
    }

    /// Let a value be written as this operand from now on.
    pub(super) fn alias(&mut self, v: V, operand: String) {
        self.names[v.0 as usize] = operand;
    }

    pub(super) fn line(&mut self, text: &str) {
        self.out.push_str("  ");
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// Compute a value.
    pub(super) fn set(&mut self, v: V, right: &str) {
        let name = self.define(v);
        self.line(&format!("{name} = {right}"));
    }

    /// Compute something that is no value of the kernel IR.
    pub(super) fn temp(&mut self, right: &str) -> String {
        let name = format!("%t{}", self.fresh());
        self.line(&format!("{name} = {right}"));
        name
    }

    pub(super) fn allocate(&mut self, bytes: u64, v: V) {
        let name = self.define(v);
        let align = if self.facts.device { 8 } else { 64 };
        writeln!(self.allocations, "  {name} = alloca [{bytes} x i8], align {align}").expect("a string");
    }

    pub(super) fn calls(&mut self, id: FuncId) -> String {
        self.needs.callees.insert(id);
        symbol(self.module, id)
    }

    pub(super) fn fresh(&mut self) -> u32 {
        self.counter += 1;
        self.counter
    }

    /// Begin a block.
    pub(super) fn begin(&mut self, label: &str) {
        self.out.push_str(label);
        self.out.push_str(":\n");
        label.clone_into(&mut self.label);
    }

    pub(super) fn current_label(&self) -> String {
        self.label.clone()
    }

    pub(super) fn unsupported(&self, message: impl Into<String>) -> Error {
        Error::Unsupported { function: self.function.name.clone(), message: message.into() }
    }

    /// Write a block's statements; does control reach its end?
    fn block(&mut self, block: &Block) -> Result<bool> {
        for stmt in &block.stmts {
            if !self.stmt(stmt)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<bool> {
        match stmt {
            Stmt::Let { out, inst } => self.inst(*out, inst).map(|()| true),
            Stmt::Store { ptr, index, value, mask } => {
                self.store(*ptr, *index, *value, *mask);
                Ok(true)
            }
            Stmt::Prefetch { ptr, bytes } => {
                self.prefetch(*ptr, *bytes);
                Ok(true)
            }
            Stmt::For { axis, var, low, high, step, carried, body, outs } => {
                let round = Round { var: *var, low: *low, high: *high, step: *step, carried, body, outs };
                match axis {
                    Axis::Serial => self.serial(&round),
                    Axis::Unrolled => self.unrolled(&round),
                    Axis::Block | Axis::Thread => Err(self.unsupported("its loop over blocks or threads needs a GPU")),
                }
            }
            Stmt::While { carried, cond, body, outs } => self.while_loop(carried, cond, body, outs),
            Stmt::If { cond, then, or, outs } => self.branch(*cond, then, or, outs),
            Stmt::Fail { code } => {
                if self.function.kind == Kind::Helper {
                    return Err(self.unsupported("a helper cannot fail"));
                }
                self.line(&format!("ret i32 {}", *code as i32));
                Ok(false)
            }
            Stmt::Launch { kernel, args, extent, grain, .. } => {
                self.launch(*kernel, args, *extent, *grain)?;
                Ok(true)
            }
            Stmt::Barrier => Err(self.unsupported("its barrier needs a GPU")),
        }
    }

    /// Write a body into a text of its own, so that what precedes it can be written afterwards.
    fn aside(&mut self, write: impl FnOnce(&mut Self) -> Result<bool>) -> Result<(String, bool)> {
        let before = std::mem::take(&mut self.out);
        let reached = write(self);
        let text = std::mem::replace(&mut self.out, before);
        Ok((text, reached?))
    }

    /// A loop that tests at its end, behind a test whether to enter it at all.
    fn serial(&mut self, round: &Round) -> Result<bool> {
        let n = self.fresh();
        let (enter, exit, before) = (format!("loop{n}"), format!("done{n}"), self.current_label());
        let index = ll(self.ty(round.var));
        let (low, high) = (self.name(round.low), self.name(round.high));
        let first: Vec<String> = round.carried.iter().map(|c| self.name(c.1)).collect();
        // Constants are written as such, so that bounds that are known show themselves.
        let certain = match (low.parse::<i64>(), high.parse::<i64>()) {
            (Ok(low), Ok(high)) if low >= high => {
                round.outs.iter().zip(first).for_each(|(out, value)| self.alias(*out, value));
                return Ok(true);
            }
            (Ok(_), Ok(_)) => true,
            _ => false,
        };
        if certain {
            self.line(&format!("br label %{enter}"));
        } else {
            let some = self.temp(&format!("icmp slt {index} {low}, {high}"));
            self.line(&format!("br i1 {some}, label %{enter}, label %{exit}"));
        }
        self.begin(&enter);
        let (var, inside) =
            (self.define(round.var), round.carried.iter().map(|c| self.define(c.0)).collect::<Vec<_>>());
        let mut next = String::new();
        let (body, reached) = self.aside(|e| {
            if !e.block(round.body)? {
                return Ok(false);
            }
            next = e.temp(&format!("add {index} {var}, {}", round.step));
            let more = e.temp(&format!("icmp slt {index} {next}, {high}"));
            e.line(&format!("br i1 {more}, label %{enter}, label %{exit}"));
            Ok(true)
        })?;
        let last = self.current_label();
        let results: Vec<String> = round.body.results.iter().map(|v| self.name(*v)).collect();
        let back = |value: &str| if reached { format!(", [ {value}, %{last} ]") } else { String::new() };
        self.line(&format!("{var} = phi {index} [ {low}, %{before} ]{}", back(&next)));
        for (i, (c, name)) in round.carried.iter().zip(&inside).enumerate() {
            let ty = ll(self.ty(c.0));
            let again = if reached { back(&results[i]) } else { String::new() };
            self.line(&format!("{name} = phi {ty} [ {}, %{before} ]{again}", first[i]));
        }
        self.out.push_str(&body);
        if certain && !reached {
            return Ok(false);
        }
        self.begin(&exit);
        for (i, out) in round.outs.iter().enumerate() {
            if certain {
                self.alias(*out, results[i].clone());
            } else {
                let again = if reached { back(&results[i]) } else { String::new() };
                let ty = ll(self.ty(*out));
                self.set(*out, &format!("phi {ty} [ {}, %{before} ]{again}", first[i]));
            }
        }
        Ok(true)
    }

    fn unrolled(&mut self, round: &Round) -> Result<bool> {
        let bounds = (self.name(round.low).parse::<i64>(), self.name(round.high).parse::<i64>());
        let (Ok(low), Ok(high)) = bounds else {
            return Err(self.unsupported("the bounds of an unrolled loop are not constant"));
        };
        let mut values: Vec<String> = round.carried.iter().map(|c| self.name(c.1)).collect();
        let outer = self.suffix.clone();
        let mut i = low;
        while i < high {
            self.suffix = format!("{outer}.{}", self.fresh());
            self.alias(round.var, i.to_string());
            for (c, value) in round.carried.iter().zip(values) {
                self.alias(c.0, value);
            }
            if !self.block(round.body)? {
                self.suffix = outer;
                return Ok(false);
            }
            values = round.body.results.iter().map(|v| self.name(*v)).collect();
            i += round.step;
        }
        self.suffix = outer;
        round.outs.iter().zip(values).for_each(|(out, value)| self.alias(*out, value));
        Ok(true)
    }

    fn while_loop(&mut self, carried: &[(V, V)], cond: &Block, body: &Block, outs: &[V]) -> Result<bool> {
        let n = self.fresh();
        let (head, inner, exit) = (format!("while{n}"), format!("do{n}"), format!("done{n}"));
        let before = self.current_label();
        let first: Vec<String> = carried.iter().map(|c| self.name(c.1)).collect();
        self.line(&format!("br label %{head}"));
        self.begin(&head);
        let inside: Vec<String> = carried.iter().map(|c| self.define(c.0)).collect();
        let mut condition_reached = false;
        let (text, reached) = self.aside(|e| {
            if !e.block(cond)? {
                return Ok(false);
            }
            condition_reached = true;
            let go = e.name(cond.results[0]);
            e.line(&format!("br i1 {go}, label %{inner}, label %{exit}"));
            e.begin(&inner);
            let reached = e.block(body)?;
            if reached {
                e.line(&format!("br label %{head}"));
            }
            Ok(reached)
        })?;
        let last = self.current_label();
        for (i, (c, name)) in carried.iter().zip(&inside).enumerate() {
            let again = if reached { format!(", [ {}, %{last} ]", self.name(body.results[i])) } else { String::new() };
            let ty = ll(self.ty(c.0));
            self.line(&format!("{name} = phi {ty} [ {}, %{before} ]{again}", first[i]));
        }
        self.out.push_str(&text);
        if condition_reached {
            self.begin(&exit);
            outs.iter().zip(inside).for_each(|(out, value)| self.alias(*out, value));
        }
        Ok(condition_reached)
    }

    fn branch(&mut self, cond: V, then: &Block, or: &Block, outs: &[V]) -> Result<bool> {
        let n = self.fresh();
        let join = format!("join{n}");
        let labels = [(format!("then{n}"), then), (format!("else{n}"), or)];
        let before = self.current_label();
        let target = |i: usize| if labels[i].1.stmts.is_empty() { &join } else { &labels[i].0 };
        // A branch to the same block twice would need two equal entries in its phis.
        let both_empty = then.stmts.is_empty() && or.stmts.is_empty();
        if both_empty {
            for (i, out) in outs.iter().enumerate() {
                let (a, b) = (self.typed(then.results[i]), self.typed(or.results[i]));
                let cond = self.name(cond);
                self.set(*out, &format!("select i1 {cond}, {a}, {b}"));
            }
            return Ok(true);
        }
        self.line(&format!("br i1 {}, label %{}, label %{}", self.name(cond), target(0), target(1)));
        let mut arriving: Vec<(String, Vec<String>)> = vec![];
        for (label, block) in &labels {
            let from = if block.stmts.is_empty() {
                before.clone()
            } else {
                self.begin(label);
                if !self.block(block)? {
                    continue;
                }
                self.line(&format!("br label %{join}"));
                self.current_label()
            };
            arriving.push((from, block.results.iter().map(|v| self.name(*v)).collect()));
        }
        if arriving.is_empty() {
            return Ok(false);
        }
        self.begin(&join);
        for (i, out) in outs.iter().enumerate() {
            let values: Vec<String> = arriving.iter().map(|(from, vs)| format!("[ {}, %{from} ]", vs[i])).collect();
            let ty = ll(self.ty(*out));
            self.set(*out, &format!("phi {ty} {}", values.join(", ")));
        }
        Ok(true)
    }

    fn launch(&mut self, kernel: FuncId, args: &[V], extent: V, grain: V) -> Result<()> {
        let Some(ctx) = self.function.params.first().filter(|_| self.function.kind == Kind::Entry) else {
            return Err(self.unsupported("only the entry launches kernels"));
        };
        let ctx = self.name(*ctx);
        for (slot, &v) in args.iter().enumerate() {
            let wide = self.as_slot(v)?;
            let at = self.temp(&format!("getelementptr i64, ptr %slots, i64 {slot}"));
            self.line(&format!("store i64 {wide}, ptr {at}, align 8"));
        }
        self.launch_slots = self.launch_slots.max(args.len().max(1));
        self.needs.launch = true;
        let callee = self.calls(kernel);
        let (extent, grain) = (self.name(extent), self.name(grain));
        let code =
            self.temp(&format!("call i32 @launch(ptr {ctx}, ptr @{callee}, ptr %slots, i64 {extent}, i64 {grain})"));
        let failed = self.temp(&format!("icmp ne i32 {code}, 0"));
        let n = self.fresh();
        self.line(&format!("br i1 {failed}, label %failed{n}, label %launched{n}"));
        self.begin(&format!("failed{n}"));
        self.line(&format!("ret i32 {code}"));
        self.begin(&format!("launched{n}"));
        Ok(())
    }

    /// A scalar as the 64 bits of an argument.
    fn as_slot(&mut self, v: V) -> Result<String> {
        let (ty, operand) = (self.ty(v), self.typed(v));
        if ty.lanes != 1 {
            return Err(self.unsupported("an argument of a launch is a vector"));
        }
        Ok(match ty.elem {
            Elem::I64 => self.name(v),
            Elem::Ptr => self.temp(&format!("ptrtoint {operand} to i64")),
            Elem::F64 => self.temp(&format!("bitcast {operand} to i64")),
            Elem::F32 => {
                let bits = self.temp(&format!("bitcast {operand} to i32"));
                self.temp(&format!("zext i32 {bits} to i64"))
            }
            Elem::I1 | Elem::I8 | Elem::I16 | Elem::I32 => self.temp(&format!("zext {operand} to i64")),
        })
    }
}

/// The parts of a `for`.
struct Round<'a> {
    var: V,
    low: V,
    high: V,
    step: i64,
    carried: &'a [(V, V)],
    body: &'a Block,
    outs: &'a [V],
}
