//! The rules of the kernel IR. Whoever takes a verified module may rely on all of them: backends and the interpreter do.
//!
//! Beyond what the types say: lanes are powers of two, `i1` knows only logic and equality, and what crosses a launch fits
//! a slot of 8 bytes.
use super::{
    Axis, Binary, Block, Compare, Convert, Elem, FuncId, Function, Host, Inst, Kind, Module, Stmt, Ty, Unary, V,
    print::symbol, words::Words,
};
use crate::{Error, Result};
use petgraph::{algo::toposort, graph::DiGraph};
use std::collections::HashSet;

/// Blocks nest no deeper than this.
pub const MAX_DEPTH: usize = 256;
/// No vector has more lanes.
pub const MAX_LANES: u32 = 256;
/// How many violations are told at most.
const MAX_TOLD: usize = 50;

/// Check that a module follows the rules; the error lists the violations, each with the function and the value.
pub fn verify(module: &Module) -> Result<()> {
    let mut told = Vec::new();
    let mut names = HashSet::new();
    for f in &module.functions {
        if f.name.is_empty() || !names.insert(&f.name) {
            let problem = if f.name.is_empty() { "has no name" } else { "has the name of another function" };
            told.push(format!("{}: {problem}", symbol(&f.name)));
        }
        Verifier { module, f, states: vec![State::Undefined; f.types.len()], visible: vec![], told: &mut told }.run();
    }
    recursion(module, &mut told);
    told.truncate(MAX_TOLD);
    if told.is_empty() { Ok(()) } else { Err(Error::Invalid(told)) }
}

fn recursion(module: &Module, told: &mut Vec<String>) {
    let mut graph = DiGraph::<(), ()>::new();
    let nodes: Vec<_> = module.functions.iter().map(|_| graph.add_node(())).collect();
    for (f, &node) in module.functions.iter().zip(&nodes) {
        calls(&f.body, 0, &mut |id| {
            if let Some(&callee) = nodes.get(id.0 as usize) {
                graph.update_edge(node, callee, ());
            }
        });
    }
    if let Err(cycle) = toposort(&graph, None) {
        told.push(format!("{}: calls itself", symbol(&module.functions[cycle.node_id().index()].name)));
    }
}

/// Call `f` for every helper called in a block.
fn calls(block: &Block, depth: usize, f: &mut dyn FnMut(FuncId)) {
    for stmt in block.stmts.iter().filter(|_| depth < MAX_DEPTH) {
        match stmt {
            Stmt::Let { inst: Inst::Call(id, _), .. } => f(*id),
            Stmt::For { body, .. } => calls(body, depth + 1, f),
            Stmt::While { cond: a, body: b, .. } | Stmt::If { then: a, or: b, .. } => {
                calls(a, depth + 1, f);
                calls(b, depth + 1, f);
            }
            _ => {}
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Undefined,
    /// With the bits, if it is a constant.
    Visible(Option<u64>),
    /// Its block has ended.
    Hidden,
}

struct Verifier<'m> {
    module: &'m Module,
    f: &'m Function,
    states: Vec<State>,
    /// What is visible, in the order of definition.
    visible: Vec<V>,
    told: &'m mut Vec<String>,
}

/// What is wrong with a statement.
type Check<T = ()> = Result<T, String>;

macro_rules! wrong {
    ($($arg:tt)*) => { return Err(format!($($arg)*)) };
}

impl Verifier<'_> {
    fn run(mut self) {
        let f = self.f;
        for (i, ty) in f.types.iter().enumerate() {
            let check = well_formed(*ty);
            self.tell(&V(i as u32), check);
        }
        for v in &f.params {
            let check = self.define(*v);
            self.tell(v, check);
        }
        let check = self.signature();
        self.tell(&"parameters", check);
        self.block(&f.body, 0);
        let check = match (f.kind, f.body.results.len()) {
            (Kind::Helper, 1) | (Kind::Entry | Kind::Kernel, 0) => Ok(()),
            (Kind::Helper, n) => Err(format!("a helper yields one value, this one {n}")),
            _ => Err("only a helper yields a value".into()),
        };
        self.tell(&"yield", check);
    }

    fn tell(&mut self, what: &dyn std::fmt::Display, check: Check) {
        if let Err(message) = check
            && self.told.len() < MAX_TOLD
        {
            self.told.push(format!("{} {what}: {message}", symbol(&self.f.name)));
        }
    }

    fn signature(&self) -> Check {
        let types: Vec<Ty> = self.f.params.iter().map(|v| self.ty(*v)).collect::<Check<_>>()?;
        match self.f.kind {
            Kind::Entry if types != [Ty::PTR] => wrong!("an entry takes one ptr"),
            Kind::Kernel if !types.starts_with(&[Ty::I64; 3]) => {
                wrong!("a kernel takes begin, end and worker, each i64, before its own parameters")
            }
            Kind::Kernel => match types[3..].iter().find(|t| t.lanes != 1 || t.elem == Elem::I1) {
                Some(ty) => wrong!("a kernel cannot take {ty}, which does not have a slot's form"),
                None => Ok(()),
            },
            Kind::Entry | Kind::Helper => Ok(()),
        }
    }

    fn ty(&self, v: V) -> Check<Ty> {
        self.f.types.get(v.0 as usize).copied().ok_or_else(|| format!("{v} has no type"))
    }

    fn define_as(&mut self, v: V, state: State) -> Check {
        self.ty(v)?;
        if self.states[v.0 as usize] != State::Undefined {
            wrong!("{v} is defined twice");
        }
        self.states[v.0 as usize] = state;
        self.visible.push(v);
        Ok(())
    }

    fn define(&mut self, v: V) -> Check {
        self.define_as(v, State::Visible(None))
    }

    fn define_all(&mut self, what: &dyn std::fmt::Display, values: impl IntoIterator<Item = V>) {
        for v in values {
            let check = self.define(v);
            self.tell(what, check);
        }
    }

    /// The type of a value that is visible here.
    fn used(&self, v: V) -> Check<Ty> {
        let ty = self.ty(v)?;
        match self.states[v.0 as usize] {
            State::Visible(_) => Ok(ty),
            State::Undefined => wrong!("{v} is not defined before"),
            State::Hidden => wrong!("{v} is defined in a block that has ended"),
        }
    }

    fn expect(&self, v: V, want: Ty) -> Check {
        let ty = self.used(v)?;
        if ty == want { Ok(()) } else { Err(format!("{v} is {ty}, expected {want}")) }
    }

    fn expect_all(&self, what: &str, values: &[V], types: &[Ty]) -> Check {
        if values.len() != types.len() {
            wrong!("{} {what}, expected {}", values.len(), types.len());
        }
        values.iter().zip(types).try_for_each(|(v, ty)| self.expect(*v, *ty))
    }

    /// What a block defines is visible only in it; its results are checked while they are.
    fn scope(&mut self, run: impl FnOnce(&mut Self)) {
        let outside = self.visible.len();
        run(self);
        for v in self.visible.drain(outside..) {
            self.states[v.0 as usize] = State::Hidden;
        }
    }

    fn block(&mut self, block: &Block, depth: usize) {
        if depth == MAX_DEPTH {
            return self.tell(&"block", Err("nested too deeply".into()));
        }
        for stmt in &block.stmts {
            match stmt {
                Stmt::Let { out, inst } => {
                    let check = self.inst(*out, inst);
                    let constant = if let Inst::Const(bits) = inst { Some(*bits) } else { None };
                    let check = check.and(self.define_as(*out, State::Visible(constant)));
                    self.tell(&format_args!("{out} ({})", inst.word()), check);
                }
                Stmt::For { .. } | Stmt::While { .. } | Stmt::If { .. } => self.nested(stmt, depth),
                Stmt::Store { ptr, index, value, mask } => {
                    let check = self.access(*ptr, *index, *mask, *value);
                    self.tell(&format_args!("store {ptr}[{index}], {value}"), check);
                }
                Stmt::Prefetch { ptr, bytes } => {
                    let check = self.expect(*ptr, Ty::PTR).and(self.expect(*bytes, Ty::I64));
                    self.tell(&format_args!("prefetch {ptr}, {bytes}"), check);
                }
                Stmt::Fail { code } => {
                    let check = self.fail(*code);
                    self.tell(&format_args!("fail {code}"), check);
                }
                Stmt::Launch { kernel, args, extent, grain, .. } => {
                    let check = self.launch(*kernel, args, *extent, *grain);
                    self.tell(&format_args!("launch #{}", kernel.0), check);
                }
                Stmt::Barrier if self.f.kind == Kind::Kernel => {}
                Stmt::Barrier => self.tell(&"barrier", Err("only kernels have barriers".into())),
            }
        }
        for &v in &block.results {
            let check = self.used(v).map(drop);
            self.tell(&"yield", check);
        }
    }

    fn nested(&mut self, stmt: &Stmt, depth: usize) {
        match stmt {
            Stmt::For { axis, var, low, high, step, carried, body, outs } => {
                let what = format!("for {var}");
                let check = self.bounds(*axis, *var, *low, *high, *step, carried.len());
                self.tell(&what, check);
                let types = self.carried(&what, carried);
                self.scope(|s| {
                    s.define_all(&what, [*var]);
                    s.define_all(&what, carried.iter().map(|c| c.0));
                    s.block(body, depth + 1);
                    s.results(&what, body, types.as_deref());
                });
                self.outs(&what, outs, types.as_deref());
            }
            Stmt::While { carried, cond, body, outs } => {
                let what = match carried.first() {
                    Some((first, _)) => format!("while carrying {first}"),
                    None => "while".to_string(),
                };
                let types = self.carried(&what, carried);
                self.scope(|s| {
                    s.define_all(&what, carried.iter().map(|c| c.0));
                    s.scope(|s| {
                        s.block(cond, depth + 1);
                        s.results(&what, cond, Some(&[Ty::I1]));
                    });
                    s.scope(|s| {
                        s.block(body, depth + 1);
                        s.results(&what, body, types.as_deref());
                    });
                });
                self.outs(&what, outs, types.as_deref());
            }
            Stmt::If { cond, then, or, outs } => {
                let what = format!("if {cond}");
                let check = self.expect(*cond, Ty::I1);
                self.tell(&what, check);
                let types = outs.iter().map(|v| self.ty(*v)).collect::<Check<Vec<Ty>>>().ok();
                for block in [then, or] {
                    self.scope(|s| {
                        s.block(block, depth + 1);
                        s.results(&what, block, types.as_deref());
                    });
                }
                self.outs(&what, outs, types.as_deref());
            }
            _ => {}
        }
    }

    fn bounds(&self, axis: Axis, var: V, low: V, high: V, step: i64, carried: usize) -> Check {
        if self.ty(var)? != Ty::I64 {
            wrong!("the variable is {}, expected i64", self.ty(var)?);
        }
        for bound in [low, high] {
            self.expect(bound, Ty::I64)?;
            if axis == Axis::Unrolled && self.states[bound.0 as usize] == State::Visible(None) {
                wrong!("the bound {bound} of an unrolled loop is not a constant");
            }
        }
        if step <= 0 {
            wrong!("the step {step} is not positive");
        }
        if matches!(axis, Axis::Block | Axis::Thread) && carried > 0 {
            wrong!("rounds that run at the same time carry nothing");
        }
        if matches!(axis, Axis::Block | Axis::Thread) && self.f.kind != Kind::Kernel {
            wrong!("only kernels have the axis `{}`", axis.word());
        }
        Ok(())
    }

    /// The types of carried values, if they have any.
    fn carried(&mut self, what: &str, carried: &[(V, V)]) -> Option<Vec<Ty>> {
        let types = carried.iter().map(|c| self.ty(c.0)).collect::<Check<Vec<Ty>>>();
        let first: Vec<V> = carried.iter().map(|c| c.1).collect();
        let check = types.clone().and_then(|types| self.expect_all("carried values", &first, &types));
        self.tell(&what, check);
        types.ok()
    }

    fn results(&mut self, what: &str, block: &Block, types: Option<&[Ty]>) {
        if let Some(types) = types {
            let check = self.expect_all("values yielded", &block.results, types);
            self.tell(&what, check);
        }
    }

    fn outs(&mut self, what: &str, outs: &[V], types: Option<&[Ty]>) {
        self.define_all(&what, outs.iter().copied());
        if let Some(types) = types {
            let check = self.expect_all("results", outs, types);
            self.tell(&what, check);
        }
    }

    fn fail(&self, code: u32) -> Check {
        if self.f.kind == Kind::Helper {
            wrong!("a helper cannot fail");
        }
        if code == 0 || i32::try_from(code).is_err() {
            wrong!("a code is a positive i32");
        }
        Ok(())
    }

    fn launch(&self, kernel: FuncId, args: &[V], extent: V, grain: V) -> Check {
        if self.f.kind != Kind::Entry {
            wrong!("only an entry launches kernels");
        }
        self.expect(extent, Ty::I64)?;
        self.expect(grain, Ty::I64)?;
        let callee = self.callee(kernel, Kind::Kernel)?;
        let types: Vec<Ty> =
            callee.params.iter().skip(3).filter_map(|v| callee.types.get(v.0 as usize)).copied().collect();
        self.expect_all("arguments", args, &types)
    }

    fn callee(&self, id: FuncId, kind: Kind) -> Check<&Function> {
        match self.module.functions.get(id.0 as usize) {
            Some(f) if f.kind == kind => Ok(f),
            Some(f) => wrong!("{} is a {}, expected a {}", symbol(&f.name), f.kind.word(), kind.word()),
            None => wrong!("there is no function #{}", id.0),
        }
    }

    /// Memory at `ptr[index]` holds what is or will be `value`.
    fn access(&self, ptr: V, index: V, mask: Option<V>, value: V) -> Check {
        self.used(value)?;
        self.access_as(ptr, index, mask, self.ty(value)?)
    }

    fn access_as(&self, ptr: V, index: V, mask: Option<V>, ty: Ty) -> Check {
        self.expect(ptr, Ty::PTR)?;
        self.expect(index, Ty::I64)?;
        if ty.elem == Elem::I1 {
            wrong!("i1 is never in memory");
        }
        mask.map_or(Ok(()), |m| self.expect(m, ty.with(Elem::I1)))
    }

    fn inst(&self, out: V, inst: &Inst) -> Check {
        let ty = self.ty(out)?;
        let gives = |want: Ty| if ty == want { Ok(()) } else { Err(format!("is {ty}, the instruction gives {want}")) };
        match inst {
            Inst::Const(bits) => match ty.elem.bits() {
                width if width < 64 && bits >> width != 0 => wrong!("the bits {bits:#x} are more than {ty} has"),
                _ => Ok(()),
            },
            Inst::Unary(op, a) => {
                accepts(self.used(*a)?, unary_operands(*op))?;
                gives(self.ty(*a)?)
            }
            Inst::Binary(op, a, b) => {
                accepts(self.used(*a)?, binary_operands(*op))?;
                self.expect(*b, self.ty(*a)?)?;
                gives(self.ty(*a)?)
            }
            Inst::MulAdd(a, b, c) => {
                accepts(ty, Operands::Floats)?;
                [a, b, c].into_iter().try_for_each(|v| self.expect(*v, ty))
            }
            Inst::Dot4(a, b, c) => {
                let narrow = Ty::vector(Elem::I8, ty.lanes.saturating_mul(4));
                [a, b].into_iter().try_for_each(|v| self.expect(*v, narrow))?;
                self.expect(*c, ty)?;
                gives(ty.with(Elem::I32))
            }
            Inst::Compare(op, a, b) => {
                let from = self.used(*a)?;
                match op {
                    Compare::Eq | Compare::Ne => {}
                    Compare::Lt | Compare::Le => accepts(from, Operands::Numbers)?,
                    Compare::ULt | Compare::ULe => accepts(from, Operands::Ints)?,
                }
                self.expect(*b, from)?;
                gives(from.with(Elem::I1))
            }
            Inst::Select(cond, a, b) => {
                self.expect(*cond, ty.with(Elem::I1))?;
                self.expect(*a, ty)?;
                self.expect(*b, ty)
            }
            Inst::Convert(op, a) => convert(*op, self.used(*a)?, ty),
            Inst::Splat(a) => {
                vector(ty)?;
                self.expect(*a, Ty::scalar(ty.elem))
            }
            Inst::Extract(a, lane) => {
                in_range(*lane, vector(self.used(*a)?)?)?;
                gives(Ty::scalar(self.ty(*a)?.elem))
            }
            Inst::Insert(a, b, lane) => {
                in_range(*lane, vector(ty)?)?;
                self.expect(*a, ty)?;
                self.expect(*b, Ty::scalar(ty.elem))
            }
            Inst::Shuffle(a, b, lanes) => {
                let from = self.used(*a)?;
                let count = vector(from)?;
                self.expect(*b, from)?;
                lanes.iter().try_for_each(|&lane| in_range(lane, count.saturating_mul(2)))?;
                vector(ty)?;
                gives(Ty::vector(from.elem, lanes.len() as u32))
            }
            Inst::Reduce(op, a) => {
                let from = self.used(*a)?;
                vector(from)?;
                accepts(from, binary_operands(*op))?;
                if !is_reduction(*op) {
                    wrong!("`{}` does not combine lanes in any order", op.word());
                }
                gives(Ty::scalar(from.elem))
            }
            Inst::Iota => accepts(ty, Operands::Numbers),
            Inst::Load { ptr, index, mask } => self.access_as(*ptr, *index, *mask, ty),
            Inst::Offset(ptr, bytes) => {
                self.expect(*ptr, Ty::PTR)?;
                self.expect(*bytes, Ty::I64)?;
                gives(Ty::PTR)
            }
            Inst::Buffer { elem, count, shared } => {
                if *elem == Elem::I1 {
                    wrong!("i1 is never in memory");
                }
                if *count == 0 {
                    wrong!("the buffer is empty");
                }
                if *shared && self.f.kind != Kind::Kernel {
                    wrong!("only kernels have threads to share a buffer");
                }
                gives(Ty::PTR)
            }
            Inst::Call(helper, args) => {
                let callee = self.callee(*helper, Kind::Helper)?;
                let of = |values: &[V]| -> Vec<Ty> {
                    values.iter().filter_map(|v| callee.types.get(v.0 as usize)).copied().collect()
                };
                self.expect_all("arguments", args, &of(&callee.params))?;
                of(&callee.body.results).first().map_or(Ok(()), |result| gives(*result))
            }
            Inst::Host(host, args) => {
                let types = match host {
                    Host::Arena | Host::Alloc => [Ty::PTR, Ty::I64],
                    Host::Free => [Ty::PTR, Ty::PTR],
                };
                self.expect_all("arguments", args, &types)?;
                gives(Ty::PTR)
            }
        }
    }
}

fn well_formed(ty: Ty) -> Check {
    if !ty.lanes.is_power_of_two() || ty.lanes > MAX_LANES {
        wrong!("{} lanes are not a power of two up to {MAX_LANES}", ty.lanes);
    }
    if ty.elem == Elem::Ptr && ty.lanes != 1 {
        wrong!("there are no vectors of pointers");
    }
    Ok(())
}

/// The lanes of a vector.
fn vector(ty: Ty) -> Check<u32> {
    if ty.lanes > 1 { Ok(ty.lanes) } else { Err(format!("{ty} is not a vector")) }
}

fn in_range(lane: u32, lanes: u32) -> Check {
    if lane < lanes { Ok(()) } else { Err(format!("there is no lane {lane}")) }
}

/// What an instruction works on; `i1` is a truth value and only `Bits` has it.
#[derive(Clone, Copy)]
enum Operands {
    Bits,
    Ints,
    Floats,
    Numbers,
}

fn accepts(ty: Ty, operands: Operands) -> Check {
    let number = ty.elem != Elem::I1;
    let (fits, what) = match operands {
        Operands::Bits => (ty.elem.is_int(), "integers and i1"),
        Operands::Ints => (ty.elem.is_int() && number, "integers"),
        Operands::Floats => (ty.elem.is_float(), "floats"),
        Operands::Numbers => ((ty.elem.is_int() || ty.elem.is_float()) && number, "integers and floats"),
    };
    if fits { Ok(()) } else { Err(format!("takes {what}, got {ty}")) }
}

fn unary_operands(op: Unary) -> Operands {
    match op {
        Unary::Neg => Operands::Numbers,
        Unary::Not => Operands::Bits,
        Unary::Abs | Unary::Sqrt | Unary::Floor | Unary::Ceil | Unary::Trunc | Unary::Round => Operands::Floats,
    }
}

fn binary_operands(op: Binary) -> Operands {
    match op {
        Binary::Add | Binary::Sub | Binary::Mul => Operands::Numbers,
        Binary::FDiv | Binary::FMin | Binary::FMax => Operands::Floats,
        Binary::And | Binary::Or | Binary::Xor => Operands::Bits,
        Binary::SDiv | Binary::UDiv | Binary::SRem | Binary::URem => Operands::Ints,
        Binary::SMin | Binary::SMax | Binary::UMin | Binary::UMax => Operands::Ints,
        Binary::Shl | Binary::LShr | Binary::AShr => Operands::Ints,
    }
}

fn is_reduction(op: Binary) -> bool {
    !matches!(
        op,
        Binary::Sub
            | Binary::FDiv
            | Binary::SDiv
            | Binary::UDiv
            | Binary::SRem
            | Binary::URem
            | Binary::Shl
            | Binary::LShr
            | Binary::AShr
    )
}

fn convert(op: Convert, from: Ty, to: Ty) -> Check {
    let (a, b) = (from.elem, to.elem);
    let fits = match op {
        Convert::Narrow => a.is_int() && b.is_int() && b.bits() < a.bits(),
        Convert::SExt | Convert::ZExt => a.is_int() && b.is_int() && b.bits() > a.bits(),
        Convert::Half => matches!((a, b), (Elem::F32, Elem::I16) | (Elem::I16, Elem::F32)),
        Convert::Float => a.is_float() && b.is_float() && a != b,
        Convert::SToF | Convert::UToF => a.is_int() && b.is_float(),
        Convert::FToS | Convert::FToU => a.is_float() && b.is_int() && b != Elem::I1,
        Convert::Bits => a.bits() == b.bits() && a != Elem::Ptr && b != Elem::Ptr,
        Convert::Pointer => matches!((a, b), (Elem::I64, Elem::Ptr) | (Elem::Ptr, Elem::I64)),
    };
    if fits && from.lanes == to.lanes { Ok(()) } else { Err(format!("does not convert {from} to {to}")) }
}
