//! Kernels that compute every element of their result by itself.
use super::{
    cx::{Cx, Home},
    fuse::Scope,
    index::mentions,
    nest::Reads,
    shared::{Arg, Shared},
};
use crate::scalar;
use numrsc_ir::{
    Dim, Value,
    dim::{Atom, Sym},
    kernel::{Function, Kind, Ty, V, build::Builder},
};
use std::collections::HashMap;

/// A kernel before it is launched.
pub(crate) struct Kernel {
    pub function: Function,
    pub args: Vec<Arg>,
    pub extent: Dim,
    /// A rough count of instructions per unit of the extent.
    pub work: Dim,
    /// Operands whose memory the result may take over: each element is read only where it is written.
    pub in_place: Vec<Value>,
}

/// Elements per unit of the extent where a kernel is one long loop.
const BLOCK: i64 = 1024;

/// What a pointwise kernel computes: for every index of `domain`, the element of `source` at `from(index)` goes to `to(index)` of a buffer with
/// `length` elements.
pub(crate) struct Pointwise<'p> {
    pub name: String,
    pub domain: Vec<Dim>,
    pub source: Value,
    pub from: &'p dyn Fn(&[Dim]) -> Vec<Dim>,
    pub to: &'p dyn Fn(&[Dim]) -> Dim,
    pub length: Dim,
}

impl Pointwise<'_> {
    pub(crate) fn kernel(&self, shared: &mut Shared, scope: &Scope<'_>) -> Kernel {
        let mut builder = Builder::new(Kind::Kernel, &[]);
        let range = [builder.params()[0], builder.params()[1]];
        let home = Home::Kernel { args: vec![], pointers: HashMap::new() };
        let mut cx = Cx::new(&mut builder, shared, scope, home);
        let output = cx.parameter(Ty::PTR, Arg::Output);
        let dtype = cx.dtype(self.source);

        // Reductions inside are done once per round of the outer loops that they depend on.
        let probe: Vec<Dim> = self.domain.iter().map(|d| Dim::sym(cx.variable(d))).collect();
        let mut reads = Reads::default();
        cx.reads(self.source, &(self.from)(&probe), &mut reads);
        let depth_of = |index: &Vec<Dim>| {
            (0..probe.len()).rev().find(|&a| index.iter().any(|d| probe[a].as_sym().is_some_and(|s| mentions(d, s))))
        };
        let cuts: Vec<usize> = reads
            .reductions
            .iter()
            .map(|(index, ..)| depth_of(index).map_or(0, |a| a + 1))
            .filter(|&c| c < probe.len())
            .collect();

        let nest = cx.nest(&self.domain, &cuts, &mut |cx, index| {
            let mut reads = Reads::default();
            cx.reads(self.source, &(self.from)(index), &mut reads);
            reads.positions.push((self.to)(index));
            reads.positions
        });
        let from = (self.from)(&nest.index);
        let to = (self.to)(&nest.index);
        let mut reads = Reads::default();
        cx.reads(self.source, &from, &mut reads);
        let in_place = read_where_written(&cx, &reads, &to, dtype);
        let lanes = self.lanes(&cx, &reads, &nest.loops);

        // Loops up to the first cut are split between threads; without cuts all but the innermost.
        let first_cut = cuts.iter().min().copied();
        let axes_before = |cut: usize| {
            (0..cut).filter(|&a| self.domain[a] != Dim::ONE).map(|a| nest.index[a].clone()).collect::<Vec<_>>()
        };
        let shared_loops = match first_cut {
            Some(cut) => {
                let outer = axes_before(cut);
                nest.loops.iter().take_while(|(s, _)| outer.iter().any(|d| mentions(d, s))).count()
            }
            // Whole reductions are work enough for a unit.
            None if lanes == 1 && !reads.reductions.is_empty() => nest.loops.len(),
            None => nest.loops.len().saturating_sub(1),
        };
        let (outer, inner) = nest.loops.split_at(shared_loops);
        let mut element = |cx: &mut Cx<'_>, _: &[V]| {
            let x = cx.value(self.source, &from);
            cx.store(dtype, output, &to, &self.length, x);
            vec![]
        };
        let items = Dim::product(inner.iter().map(|(_, n)| n));
        let extent;
        if let ([], [(var, n)]) = (outer, inner)
            && first_cut.is_none()
        {
            // One loop: split by blocks.
            let block = cx.b.i64(BLOCK);
            let (low, end) = (cx.b.mul(range[0], block), cx.b.mul(range[1], block));
            let n_value = cx.uniform(n);
            let high = cx.b.binary(numrsc_ir::kernel::Binary::SMin, end, n_value);
            cx.by_vectors(var, (low, high), lanes, &[], &mut |_, _| vec![], &mut element);
            extent = n.ceil_div(&Dim::Const(BLOCK));
        } else {
            extent = Dim::product(outer.iter().map(|(_, n)| n));
            let row = cx.variable(&extent);
            let sizes: Vec<Dim> = outer.iter().map(|(_, n)| n.clone()).collect();
            let extents = HashMap::new();
            let indices = super::index::unravel(&Dim::sym(row.clone()), &sizes, &extents);
            cx.range(&row, range[0], range[1], &[], |cx, _| {
                for ((var, _), index) in outer.iter().zip(&indices) {
                    let v = cx.uniform(index);
                    cx.symbols.insert(var.clone(), v);
                }
                match inner.split_last() {
                    None => element(cx, &[]),
                    Some((last, middle)) => cx.carry(middle, &[], &mut |cx, _| {
                        let (low, high) = (cx.b.i64(0), cx.uniform(&last.1));
                        cx.by_vectors(&last.0, (low, high), lanes, &[], &mut |_, _| vec![], &mut element)
                    }),
                }
            });
        }
        let per_item = Dim::Const(1 + reads.work / i64::from(lanes));
        let reduced = if reads.reductions.is_empty() { Dim::ONE } else { Dim::Const(64) };
        let flat = outer.is_empty() && first_cut.is_none() && inner.len() == 1;
        let work = &(&(if flat { Dim::Const(BLOCK) } else { items }) * &per_item) * &reduced;
        let Home::Kernel { args, .. } = cx.home else { unreachable!("a kernel") };
        let function = builder.finish(self.name.clone(), vec![]);
        Kernel { function, args, extent, work, in_place }
    }

    /// How many lanes the innermost loop has.
    fn lanes(&self, cx: &Cx<'_>, reads: &Reads, loops: &[(Sym, Dim)]) -> u32 {
        let Some((var, extent)) = loops.last() else { return 1 };
        if reads.scalars_only {
            return 1;
        }
        // A reduction whose result differs from lane to lane either runs its own lanes or ours, whichever reads consecutive elements.
        let steps = |positions: &[Dim], s: &Sym| positions.iter().filter(|p| step(p, s) == Some(1)).count();
        let lanes = cx.shared.machine.lanes(reads.widest.max(scalar::memory(cx.dtype(self.source)).size() as u32));
        // One that does not fill a vector cannot have its own.
        let is_short = |s: &Sym| cx.extents[s].as_const().is_some_and(|n| n < i64::from(lanes));
        for (index, last, positions) in &reads.reductions {
            if index.iter().any(|d| mentions(d, var))
                && last.as_ref().is_some_and(|s| !is_short(s) && steps(positions, s) >= steps(positions, var))
            {
                return 1;
            }
        }
        match extent.as_const() {
            Some(n) if n < i64::from(lanes) => {
                let fit = u32::try_from(n.max(1)).unwrap_or(1);
                1 << fit.ilog2()
            }
            _ => lanes,
        }
    }
}

/// How far a position moves per step of a variable, if that is a number.
pub(crate) fn step(position: &Dim, var: &Sym) -> Option<i64> {
    if !mentions(position, var) {
        return Some(0);
    }
    let mut found = None;
    for t in position.terms() {
        match &t.factors[..] {
            [Atom::Sym(s)] if s == var => found = Some(t.coef),
            factors if factors.iter().any(|f| mentions(&Dim::from_atom(f.clone()), var)) => return None,
            _ => {}
        }
    }
    found
}

/// The operands that are read only where the result is written.
pub(crate) fn read_where_written(cx: &Cx<'_>, reads: &Reads, to: &Dim, dtype: numrsc_ir::DType) -> Vec<Value> {
    let size = scalar::memory(dtype).size();
    let mut candidates: Vec<Value> = reads.buffers.iter().map(|(v, _)| *v).collect();
    candidates.sort_unstable();
    candidates.dedup();
    candidates.retain(|&v| {
        scalar::memory(cx.dtype(v)).size() == size
            && reads.buffers.iter().filter(|(b, _)| *b == v).all(|(_, p)| p == to)
    });
    if reads.reductions.is_empty() { candidates } else { vec![] }
}
