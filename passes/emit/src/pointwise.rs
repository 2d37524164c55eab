//! Kernels that compute every element of their result by itself.
use crate::{
    arg::Arg,
    element::ElementEmitter,
    nest::{Lanes, Reads, fitting_lanes},
};
use numrsc_ir::{
    Dim, Value,
    dim::Sym,
    kernel::{Binary, Block, Compare, Elem, Function, Kind, Ty, V, build::Builder},
};
use numrsc_scalar as scalar;
use numrsc_schedule::{
    fuse::Scope,
    index::{linear, mentions, step},
    state::LowerState,
};
use std::collections::HashMap;

/// A kernel before it is launched.
pub(crate) struct Kernel {
    pub function: Function,
    pub args: Vec<Arg>,
    pub extent: Dim,
    /// A rough count of instructions per unit of the extent.
    pub work: Dim,
    /// Operands whose memory the result may reuse: each element is read only where it is written.
    pub in_place: Vec<Value>,
}

/// Elements per unit of the extent where a kernel is one long loop.
const BLOCK: i64 = 1024;

/// What follows from an index.
pub(crate) type IndexFn<'p, T> = Box<dyn Fn(&[Dim]) -> T + 'p>;

/// A part of a pointwise kernel: for every index of `domain`, elements of nodes at `from(index)` are written to
/// `to(index)` of a buffer each, all with `length` elements.
pub(crate) struct Pointwise<'p> {
    pub domain: Vec<Dim>,
    /// The nodes, and the parameters that are their buffers.
    pub writes: Vec<(Value, Arg)>,
    /// Nodes with only the first axes of `domain` (values per row): computed before the loops over the others.
    pub heads: Vec<(Value, Arg)>,
    pub from: IndexFn<'p, Vec<Dim>>,
    pub to: IndexFn<'p, Dim>,
    pub length: Dim,
}

/// The loops of a part, and what is known of them.
struct Loops {
    /// Those that are split between threads, and those inside.
    outer: Vec<(Sym, Dim)>,
    inner: Vec<(Sym, Dim)>,
    /// Is the only loop split into blocks of rounds?
    flat: bool,
    lanes: Lanes,
    from: Vec<Dim>,
    to: Dim,
    extent: Dim,
    work: Dim,
    in_place: Vec<Value>,
}

impl Pointwise<'_> {
    /// All elements of nodes of one shape, in order.
    pub(crate) fn whole(shape: Vec<Dim>, writes: Vec<(Value, Arg)>) -> Pointwise<'static> {
        let (domain, length) = (shape.clone(), Dim::product(&shape));
        let to = Box::new(move |index: &[Dim]| linear(index, &shape));
        Pointwise { domain, writes, heads: vec![], from: Box::new(<[Dim]>::to_vec), to, length }
    }

    /// The index of the heads, where the domain has this one, and how many of its axes that are.
    fn head_index(&self, em: &mut ElementEmitter<'_>, index: &[Dim]) -> Option<(Vec<Dim>, usize)> {
        let shape = em.shape(self.heads.first()?.0);
        let axes = shape.iter().rposition(|d| *d != Dim::ONE).map_or(0, |last| last + 1);
        let at = shape.iter().zip(index).enumerate();
        Some((at.map(|(a, (_, i))| if a < axes { i.clone() } else { Dim::ZERO }).collect(), axes))
    }

    pub(crate) fn kernel(&self, name: &str, state: &mut LowerState, scope: &Scope<'_>) -> Kernel {
        kernel(name, std::slice::from_ref(self), state, scope)
    }

    fn loops(&self, em: &mut ElementEmitter<'_>) -> Loops {
        let reads_at = |em: &mut ElementEmitter<'_>, index: &[Dim], lane: Option<&Sym>| {
            let mut reads = Reads::along(lane);
            let from = (self.from)(index);
            self.writes.iter().for_each(|(source, _)| em.reads(*source, &from, &mut reads));
            if let Some((at, _)) = self.head_index(em, &from) {
                self.heads.iter().for_each(|(source, _)| em.reads(*source, &at, &mut reads));
            }
            reads
        };
        // Reductions inside are done once per round of the outer loops that they depend on.
        let probe: Vec<Dim> = self.domain.iter().map(|d| Dim::sym(em.variable(d))).collect();
        let depth_of = |index: &Vec<Dim>| {
            (0..probe.len()).rev().find(|&a| index.iter().any(|d| probe[a].as_sym().is_some_and(|s| mentions(d, s))))
        };
        let head_axes = self.head_index(em, &probe).map(|(_, axes)| axes);
        let cuts: Vec<usize> = reads_at(em, &probe, None)
            .reductions
            .iter()
            .map(|(index, ..)| depth_of(index).map_or(0, |a| a + 1))
            .filter(|&c| c < probe.len())
            .chain(head_axes)
            .collect();

        let positions = &mut |em: &mut ElementEmitter<'_>, index: &[Dim]| {
            let mut positions = reads_at(em, index, None).positions;
            positions.push((self.to)(index));
            positions
        };
        let nest = em.nest(&self.domain, &cuts, positions);
        let vector = em.state.context.machine.lanes(Elem::F32.size() as u32);
        let mut nest = em.split_last(nest, vector, positions);
        let reads = reads_at(em, &nest.index, nest.loops.last().map(|(var, _)| var));
        let to = (self.to)(&nest.index);
        let lanes = self.lanes(em, &reads, &nest.loops, &to);

        // Loops up to the first cut are split between threads; without cuts all but the innermost. Heads belong to
        // whole rounds of them.
        let first_cut = head_axes.or(cuts.iter().min().copied());
        let axes_before = |cut: usize| {
            (0..cut).filter(|&a| self.domain[a] != Dim::ONE).map(|a| nest.index[a].clone()).collect::<Vec<_>>()
        };
        let shared_loops = match first_cut {
            Some(cut) => {
                let outer = axes_before(cut);
                nest.loops.iter().take_while(|(s, _)| outer.iter().any(|d| mentions(d, s))).count()
            }
            // A whole reduction is enough work for a unit.
            None if lanes.most == 1 && !reads.reductions.is_empty() => nest.loops.len(),
            None => nest.loops.len().saturating_sub(1),
        };
        let inner = nest.loops.split_off(shared_loops);
        let outer = nest.loops;
        let flat = outer.is_empty() && inner.len() == 1 && first_cut.is_none();
        let (extent, items) = if flat {
            (inner[0].1.ceil_div(&Dim::Const(BLOCK)), Dim::Const(BLOCK))
        } else {
            (Dim::product(outer.iter().map(|(_, n)| n)), Dim::product(inner.iter().map(|(_, n)| n)))
        };
        let per_item = Dim::Const(1 + reads.work / i64::from(lanes.most));
        let reduced = if reads.reductions.is_empty() { Dim::ONE } else { Dim::Const(64) };
        let work = &(&items * &per_item) * &reduced;
        let (from, in_place) = ((self.from)(&nest.index), read_where_written(&reads, &to));
        Loops { outer, inner, flat, lanes, from, to, extent, work, in_place }
    }

    /// Code for units of a range.
    fn emit(&self, em: &mut ElementEmitter<'_>, loops: &Loops, range: [V; 2], outputs: &[V]) {
        let Loops { outer, inner, lanes, .. } = loops;
        let mut element = |em: &mut ElementEmitter<'_>, _: &[V]| {
            // Everything is read before anything is written: a result may share the memory of an operand.
            let values: Vec<V> = self.writes.iter().map(|(source, _)| em.value(*source, &loops.from)).collect();
            for ((&(source, _), &output), x) in self.writes.iter().zip(outputs).zip(values) {
                em.store(em.dtype(source), output, &loops.to, &self.length, x);
            }
            vec![]
        };
        if loops.flat {
            let (var, n) = &inner[0];
            let block = em.b.i64(BLOCK);
            let (low, end) = (em.b.mul(range[0], block), em.b.mul(range[1], block));
            let n = em.uniform(n);
            let high = em.b.binary(Binary::SMin, end, n);
            em.by_vectors(var, (low, high), *lanes, &[], &mut |_, _| vec![], &mut element);
            return;
        }
        let row = em.variable(&loops.extent);
        let sizes: Vec<Dim> = outer.iter().map(|(_, n)| n.clone()).collect();
        let indices = numrsc_schedule::index::unravel(&Dim::sym(row.clone()), &sizes, &HashMap::new());
        em.range(&row, range[0], range[1], &[], |em, _| {
            for ((var, _), index) in outer.iter().zip(&indices) {
                let v = em.uniform(index);
                em.symbols.insert(var.clone(), v);
            }
            if let Some((at, _)) = self.head_index(em, &loops.from) {
                for (&(source, _), &output) in self.heads.iter().zip(&outputs[self.writes.len()..]) {
                    let shape = em.shape(source);
                    let x = em.value(source, &at);
                    em.store(em.dtype(source), output, &linear(&at, &shape), &Dim::product(&shape), x);
                }
            }
            match inner.split_last() {
                None => element(em, &[]),
                Some((last, middle)) => em.carry(middle, &[], &mut |em, _| {
                    let (low, high) = (em.b.i64(0), em.uniform(&last.1));
                    em.by_vectors(&last.0, (low, high), *lanes, &[], &mut |_, _| vec![], &mut element)
                }),
            }
        });
    }

    /// How many lanes the innermost loop has.
    fn lanes(&self, em: &ElementEmitter<'_>, reads: &Reads, loops: &[(Sym, Dim)], to: &Dim) -> Lanes {
        let one = Lanes { most: 1, masked: false };
        let Some((var, extent)) = loops.last() else { return one };
        if reads.scalars_only {
            return one;
        }
        // A reduction whose result differs between lanes vectorises either its own loop or ours, whichever reads
        // contiguous elements.
        let steps = |positions: &[Dim], s: &Sym| positions.iter().filter(|p| step(p, s) == Some(1)).count();
        let stored = self.writes.iter().map(|(source, _)| scalar::memory(em.dtype(*source)).size() as u32).max();
        let lanes = em.state.context.machine.lanes(reads.widest.max(stored.unwrap_or(1)));
        // One that does not fill a vector cannot have its own.
        let is_short = |s: &Sym| em.extents[s].as_const().is_some_and(|n| n < i64::from(lanes));
        for (index, last, positions) in reads.reductions.iter().filter(|_| !reads.share_lookups()) {
            if index.iter().any(|d| mentions(d, var))
                && last.as_ref().is_some_and(|s| !is_short(s) && steps(positions, s) >= steps(positions, var))
            {
                return one;
            }
        }
        let lanes = em.lanes_along(var, lanes, reads);
        let masked = lanes.masked && step(to, var) == Some(1);
        let most = match extent.as_const().and_then(|n| u32::try_from(n.max(1)).ok()) {
            Some(n) if n < lanes.most && masked => n.next_power_of_two(),
            _ => fitting_lanes(extent, lanes.most),
        };
        Lanes { most, masked: masked && most > 1 }
    }
}

/// One kernel for all parts, one after the other.
pub(crate) fn kernel(name: &str, parts: &[Pointwise<'_>], state: &mut LowerState, scope: &Scope<'_>) -> Kernel {
    let mut builder = Builder::new(Kind::Kernel, &[]);
    let (begin, end) = (builder.params()[0], builder.params()[1]);
    let mut em = ElementEmitter::for_kernel(&mut builder, state, scope);
    let mut buffers: Vec<(Arg, V)> = vec![];
    let (mut extent, mut work, mut in_place) = (Dim::ZERO, Dim::ONE, vec![]);
    for part in parts {
        let loops = part.loops(&mut em);
        let mut outputs = Vec::with_capacity(part.writes.len() + part.heads.len());
        for (_, arg) in part.writes.iter().chain(&part.heads) {
            let known = buffers.iter().find(|(a, _)| a == arg).map(|b| b.1);
            outputs.push(known.unwrap_or_else(|| {
                let pointer = em.parameter(Ty::PTR, arg.clone());
                buffers.push((arg.clone(), pointer));
                pointer
            }));
        }
        if parts.len() == 1 {
            part.emit(&mut em, &loops, [begin, end], &outputs);
            in_place.clone_from(&loops.in_place);
        } else {
            // The intersection of the range with this part.
            let (before, count) = (em.uniform(&extent), em.uniform(&loops.extent));
            let (zero, low, high) = (em.b.i64(0), em.b.sub(begin, before), em.b.sub(end, before));
            let (low, high) = (em.b.binary(Binary::SMax, low, zero), em.b.binary(Binary::SMin, high, count));
            let any = em.b.compare(Compare::Lt, low, high);
            em.b.open_branch();
            part.emit(&mut em, &loops, [low, high], &outputs);
            let then = em.b.close_branch(vec![]);
            em.b.close_if(any, then, Block::default());
        }
        extent = &extent + &loops.extent;
        work = work.greater(&loops.work);
    }
    let args = em.into_arguments();
    Kernel { function: builder.finish(name, vec![]), args, extent, work, in_place }
}

/// The operands that are read only where the result is written.
pub(crate) fn read_where_written(reads: &Reads, to: &Dim) -> Vec<Value> {
    let mut candidates: Vec<Value> = reads.buffers.iter().map(|(v, _)| *v).collect();
    candidates.sort_unstable();
    candidates.dedup();
    candidates.retain(|&v| reads.buffers.iter().filter(|(b, _)| *b == v).all(|(_, p)| p == to));
    if reads.reductions.is_empty() { candidates } else { vec![] }
}
