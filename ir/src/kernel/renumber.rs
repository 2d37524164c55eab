//! Numbering values in the order of their definitions: instructions that were dropped or moved leave gaps and disorder,
//! and text is easier to read without.
use super::{Block, Function, Inst, Stmt, Ty, V, print::definitions};

/// Number values in the order of definition and forget those without one that nobody uses.
pub(super) fn renumber(f: &mut Function) {
    let mut numbers = Numbers { old: std::mem::take(&mut f.types), new: vec![], types: vec![] };
    numbers.new = vec![None; numbers.old.len()];
    f.params.iter_mut().for_each(|v| numbers.number(v));
    definitions(&f.body, &mut |mut v| numbers.number(&mut v));
    values(&mut f.body, &mut |v| numbers.number(v));
    f.types = numbers.types;
}

struct Numbers {
    old: Vec<Ty>,
    new: Vec<Option<V>>,
    types: Vec<Ty>,
}

impl Numbers {
    fn number(&mut self, v: &mut V) {
        // What has no type is left for the verifier to tell.
        if let Some(new) = self.new.get_mut(v.0 as usize) {
            let ty = self.old[v.0 as usize];
            *v = *new.get_or_insert_with(|| {
                self.types.push(ty);
                V(self.types.len() as u32 - 1)
            });
        }
    }
}

/// Call `f` for every mention of a value in a block.
fn values(block: &mut Block, f: &mut dyn FnMut(&mut V)) {
    for stmt in &mut block.stmts {
        match stmt {
            Stmt::Let { out, inst } => {
                f(out);
                operands(inst, f);
            }
            Stmt::Store { ptr, index, value, mask } => [ptr, index, value].into_iter().chain(mask).for_each(&mut *f),
            Stmt::For { var, low, high, carried, body, outs, .. } => {
                [var, low, high].into_iter().chain(outs).for_each(&mut *f);
                carried.iter_mut().flat_map(|c| [&mut c.0, &mut c.1]).for_each(&mut *f);
                values(body, f);
            }
            Stmt::While { carried, cond, body, outs } => {
                carried.iter_mut().flat_map(|c| [&mut c.0, &mut c.1]).chain(outs).for_each(&mut *f);
                values(cond, f);
                values(body, f);
            }
            Stmt::If { cond, then, or, outs } => {
                [cond].into_iter().chain(outs).for_each(&mut *f);
                values(then, f);
                values(or, f);
            }
            Stmt::Launch { args, extent, grain, .. } => args.iter_mut().chain([extent, grain]).for_each(&mut *f),
            Stmt::Prefetch { ptr, bytes } => [ptr, bytes].into_iter().for_each(&mut *f),
            Stmt::Fail { .. } | Stmt::Barrier => {}
        }
    }
    block.results.iter_mut().for_each(f);
}

pub(super) fn operands(inst: &mut Inst, f: &mut dyn FnMut(&mut V)) {
    match inst {
        Inst::Const(_) | Inst::Iota | Inst::Buffer { .. } => {}
        Inst::Unary(_, a) | Inst::Convert(_, a) | Inst::Splat(a) | Inst::Extract(a, _) | Inst::Reduce(_, a) => f(a),
        Inst::Binary(_, a, b)
        | Inst::Compare(_, a, b)
        | Inst::Insert(a, b, _)
        | Inst::Shuffle(a, b, _)
        | Inst::Offset(a, b) => [a, b].into_iter().for_each(f),
        Inst::MulAdd(a, b, c) | Inst::Dot4(a, b, c) | Inst::Select(a, b, c) => [a, b, c].into_iter().for_each(f),
        Inst::Load { ptr, index, mask } => [ptr, index].into_iter().chain(mask).for_each(f),
        Inst::Call(_, args) | Inst::Host(_, args) => args.iter_mut().for_each(f),
    }
}
