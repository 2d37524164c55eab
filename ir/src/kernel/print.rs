//! The textual form, written: one statement per line, nested blocks indented. [`super::parse()`] reads it back exactly.
use super::{Axis, Block, Elem, FuncId, Function, Inst, Module, Stmt, Ty, V, words::Words};
use crate::print::quoted;
use std::{
    collections::HashSet,
    fmt::{self, Display, Formatter},
};

impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (i, function) in self.functions.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            Printer { function, module: Some(self) }.function(f)?;
        }
        Ok(())
    }
}

/// Without its module, the functions that it refers to are numbers: `call #3(%1)`.
impl Display for Function {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Printer { function: self, module: None }.function(f)
    }
}

struct Printer<'m> {
    function: &'m Function,
    module: Option<&'m Module>,
}

impl Printer<'_> {
    fn function(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let function = self.function;
        write!(f, "{} {}({})", function.kind.word(), symbol(&function.name), self.typed(&function.params))?;
        let unused = self.undefined_values();
        if !unused.is_empty() {
            write!(f, " unused ({})", self.typed(&unused))?;
        }
        writeln!(f, " {{")?;
        self.block(&function.body, 1, f)?;
        writeln!(f, "}}")
    }

    /// The values that have a type and no definition, so that numbers and types read back the same.
    fn undefined_values(&self) -> Vec<V> {
        let mut defined: HashSet<V> = self.function.params.iter().copied().collect();
        definitions(&self.function.body, &mut |v| {
            defined.insert(v);
        });
        (0..self.function.types.len() as u32).map(V).filter(|v| !defined.contains(v)).collect()
    }

    fn block(&self, block: &Block, depth: usize, f: &mut Formatter<'_>) -> fmt::Result {
        for stmt in &block.stmts {
            margin(depth, f)?;
            self.stmt(stmt, depth, f)?;
            writeln!(f)?;
        }
        if !block.results.is_empty() {
            margin(depth, f)?;
            writeln!(f, "yield {}", list(&block.results))?;
        }
        Ok(())
    }

    /// `{`, the block on lines of its own, `}`.
    fn braced(&self, block: &Block, depth: usize, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{{")?;
        self.block(block, depth + 1, f)?;
        margin(depth, f)?;
        write!(f, "}}")
    }

    fn stmt(&self, stmt: &Stmt, depth: usize, f: &mut Formatter<'_>) -> fmt::Result {
        match stmt {
            Stmt::Let { out, inst } => {
                write!(f, "{} = {}", self.typed(&[*out]), inst.word())?;
                self.inst(*out, inst, f)
            }
            Stmt::Store { ptr, index, value, mask } => {
                write!(f, "store {ptr}[{index}], {value}")?;
                masked(*mask, f)
            }
            Stmt::For { axis, var, low, high, step, carried, body, outs } => {
                self.outs(outs, f)?;
                write!(f, "for ")?;
                if *axis != Axis::Serial {
                    write!(f, "{} ", axis.word())?;
                }
                write!(f, "{var} = {low} to {high} step {step} ")?;
                self.carried(carried, f)?;
                self.braced(body, depth, f)
            }
            Stmt::While { carried, cond, body, outs } => {
                self.outs(outs, f)?;
                write!(f, "while ")?;
                self.carried(carried, f)?;
                self.braced(cond, depth, f)?;
                write!(f, " do ")?;
                self.braced(body, depth, f)
            }
            Stmt::If { cond, then, or, outs } => {
                self.outs(outs, f)?;
                write!(f, "if {cond} ")?;
                self.braced(then, depth, f)?;
                if *or == Block::default() {
                    return Ok(());
                }
                write!(f, " else ")?;
                self.braced(or, depth, f)
            }
            Stmt::Fail { code } => write!(f, "fail {code}"),
            Stmt::Launch { kernel, args, extent, grain, origins } => {
                write!(f, "launch {}({}) extent {extent} grain {grain}", self.callee(*kernel), list(args))?;
                origins.print("from", f)
            }
            Stmt::Prefetch { ptr, bytes } => write!(f, "prefetch {ptr}, {bytes}"),
            Stmt::Barrier => write!(f, "barrier"),
        }
    }

    /// What follows the word of an instruction.
    fn inst(&self, out: V, inst: &Inst, f: &mut Formatter<'_>) -> fmt::Result {
        match inst {
            Inst::Const(bits) => write!(f, " {}", constant(self.function.types.get(out.0 as usize), *bits)),
            Inst::Unary(_, a) | Inst::Convert(_, a) | Inst::Splat(a) => write!(f, " {a}"),
            Inst::Binary(_, a, b) | Inst::Compare(_, a, b) | Inst::Offset(a, b) => write!(f, " {a}, {b}"),
            Inst::MulAdd(a, b, c) | Inst::Dot4(a, b, c) | Inst::Select(a, b, c) => write!(f, " {a}, {b}, {c}"),
            Inst::Extract(a, lane) => write!(f, " {a}, {lane}"),
            Inst::Insert(a, b, lane) => write!(f, " {a}, {b}, {lane}"),
            Inst::Shuffle(a, b, lanes) => {
                let lanes: Vec<String> = lanes.iter().map(u32::to_string).collect();
                write!(f, " {a}, {b}, [{}]", lanes.join(", "))
            }
            Inst::Reduce(op, a) => write!(f, " {} {a}", op.word()),
            Inst::Iota => Ok(()),
            Inst::Load { ptr, index, mask } => {
                write!(f, " {ptr}[{index}]")?;
                masked(*mask, f)
            }
            Inst::Buffer { elem, count, .. } => write!(f, " {}[{count}]", elem.word()),
            Inst::Call(helper, args) => write!(f, " {}({})", self.callee(*helper), list(args)),
            Inst::Host(host, args) => write!(f, " {}({})", host.word(), list(args)),
        }
    }

    fn outs(&self, outs: &[V], f: &mut Formatter<'_>) -> fmt::Result {
        if outs.is_empty() { Ok(()) } else { write!(f, "{} = ", self.typed(outs)) }
    }

    fn carried(&self, carried: &[(V, V)], f: &mut Formatter<'_>) -> fmt::Result {
        if carried.is_empty() {
            return Ok(());
        }
        let pairs: Vec<String> =
            carried.iter().map(|(inside, first)| format!("{} = {first}", self.typed(&[*inside]))).collect();
        write!(f, "carry ({}) ", pairs.join(", "))
    }

    /// `%1: i64, %2: f32x8`; a value beyond the list of types, which the verifier refuses, is of type `?`.
    fn typed(&self, values: &[V]) -> String {
        let one = |v: &V| match self.function.types.get(v.0 as usize) {
            Some(ty) => format!("{v}: {ty}"),
            None => format!("{v}: ?"),
        };
        values.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    fn callee(&self, id: FuncId) -> String {
        match self.module.and_then(|m| m.functions.get(id.0 as usize)) {
            Some(function) => symbol(&function.name),
            None => format!("#{}", id.0),
        }
    }
}

/// Call `f` for every value that the statements of a block and of the blocks inside define.
pub(super) fn definitions(block: &Block, f: &mut dyn FnMut(V)) {
    for stmt in &block.stmts {
        match stmt {
            Stmt::Let { out, .. } => f(*out),
            Stmt::For { var, carried, body, outs, .. } => {
                f(*var);
                carried.iter().for_each(|c| f(c.0));
                definitions(body, f);
                outs.iter().for_each(|v| f(*v));
            }
            Stmt::While { carried, cond, body, outs } => {
                carried.iter().for_each(|c| f(c.0));
                definitions(cond, f);
                definitions(body, f);
                outs.iter().for_each(|v| f(*v));
            }
            Stmt::If { then, or, outs, .. } => {
                definitions(then, f);
                definitions(or, f);
                outs.iter().for_each(|v| f(*v));
            }
            Stmt::Store { .. } | Stmt::Fail { .. } | Stmt::Launch { .. } | Stmt::Prefetch { .. } | Stmt::Barrier => {}
        }
    }
}

/// `@name`, quoted unless it is a plain word.
pub(super) fn symbol(name: &str) -> String {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain { format!("@{name}") } else { format!("@{}", quoted(name)) }
}

fn list(values: &[V]) -> String {
    values.iter().map(V::to_string).collect::<Vec<_>>().join(", ")
}

fn margin(depth: usize, f: &mut Formatter<'_>) -> fmt::Result {
    write!(f, "{:1$}", "", depth * 2)
}

fn masked(mask: Option<V>, f: &mut Formatter<'_>) -> fmt::Result {
    mask.map_or(Ok(()), |m| write!(f, " mask {m}"))
}

/// A number where it reads back to the same bits, else the bits: `-1`, `0.5`, `nan#7fc00000`, `#ff`.
fn constant(ty: Option<&Ty>, bits: u64) -> String {
    let Some(elem) = ty.map(|ty| ty.elem).filter(|e| e.bits() == 64 || bits >> e.bits() == 0) else {
        return format!("#{bits:x}");
    };
    match elem {
        Elem::I1 => (bits == 1).to_string(),
        Elem::I8 => (bits as i8).to_string(),
        Elem::I16 => (bits as i16).to_string(),
        Elem::I32 => (bits as i32).to_string(),
        Elem::I64 => (bits as i64).to_string(),
        Elem::F32 => float(f32::from_bits(bits as u32), f32::is_nan, bits),
        Elem::F64 => float(f64::from_bits(bits), f64::is_nan, bits),
        Elem::Ptr => format!("#{bits:x}"),
    }
}

/// The shortest number that reads back the same; a NaN's payload is kept.
fn float<T: fmt::Debug + Copy>(x: T, is_nan: fn(T) -> bool, bits: u64) -> String {
    let text = format!("{x:?}");
    if is_nan(x) { format!("nan#{bits:x}") } else { text.strip_suffix(".0").map_or(text.clone(), str::to_string) }
}
