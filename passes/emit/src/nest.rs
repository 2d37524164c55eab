//! Loop nests: which axes are merged into one loop, and the loops themselves.
use crate::element::{ElementEmitter, Lane, Site, View};
use numrsc_ir::{
    DType, Dim, Op, Value,
    dim::Sym,
    kernel::{Compare, Elem, Ty, V},
};
use numrsc_scalar as scalar;
use numrsc_schedule::{
    fuse::MAX_LOOKUPS,
    index::{divisor, is_tangled, linear, mentions, step, unravel},
};
use std::collections::HashSet;

/// Loops over all indices of a shape.
pub(crate) struct Nest {
    /// Variable and extent, outermost first.
    pub loops: Vec<(Sym, Dim)>,
    /// The index along each axis.
    pub index: Vec<Dim>,
}

/// The number of lanes of a loop, and whether the remainder is one masked vector as well.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    pub most: u32,
    pub masked: bool,
}

/// The memory accesses of computing an element.
#[derive(Default)]
pub(crate) struct Reads {
    /// Positions in buffers, and indices that are used as values.
    pub positions: Vec<Dim>,
    /// Buffers read, with the position.
    pub buffers: Vec<(Value, Dim)>,
    /// Reductions: the index of their result, the variable of the last reduced axis, and the positions they read.
    pub reductions: Vec<(Vec<Dim>, Option<Sym>, Vec<Dim>)>,
    /// Bytes of the widest number.
    pub widest: u32,
    /// Can everything be vectorised?
    pub scalars_only: bool,
    /// A rough count of instructions per element.
    pub work: i64,
    /// Gathers.
    pub lookups: usize,
    /// The variable that lanes run along, if that is decided, and loaded indices that depend on it: others do not
    /// affect the vector width.
    lane: Vec<Sym>,
    seen: HashSet<(Value, Vec<Dim>)>,
}

impl ElementEmitter<'_> {
    /// Loops for a shape. Neighbouring axes are merged where no address gets harder to compute; `reads` gives the
    /// addresses for an index, and nothing is merged across the axes in `cuts`.
    pub(crate) fn nest(
        &mut self,
        shape: &[Dim],
        cuts: &[usize],
        reads: &mut dyn FnMut(&mut Self, &[Dim]) -> Vec<Dim>,
    ) -> Nest {
        let axes: Vec<usize> = (0..shape.len()).filter(|&a| shape[a] != Dim::ONE).collect();
        let mut groups: Vec<Vec<usize>> = axes.iter().map(|&a| vec![a]).collect();
        let mut at = groups.len();
        while at > 1 {
            at -= 1;
            // Does a cut lie between the two groups?
            let (before, after) = (*groups[at - 1].last().expect("not empty"), groups[at][0]);
            if cuts.iter().any(|&c| before < c && c <= after) {
                continue;
            }
            let mut merged = groups.clone();
            let inner = merged.remove(at);
            merged[at - 1].extend(inner);
            let nest = self.nest_of(shape, &merged);
            let positions = reads(self, &nest.index);
            if positions.iter().all(|p| !is_tangled(p, &self.extents)) {
                groups = merged;
            }
        }
        self.nest_of(shape, &groups)
    }

    /// The same loops, but the last one split in two where all addresses become sums of products: vectors do not cross
    /// the seams of an axis that was merged. Only parts of at least that many rounds pay.
    pub(crate) fn split_last(
        &mut self,
        nest: Nest,
        least: u32,
        reads: &mut dyn FnMut(&mut Self, &[Dim]) -> Vec<Dim>,
    ) -> Nest {
        let Some((var, Dim::Const(extent))) = nest.loops.last() else { return nest };
        let part = reads(self, &nest.index).iter().filter_map(|p| divisor(p, var)).min();
        let Some(part) = part.filter(|&n| n >= i64::from(least) && extent % n == 0) else { return nest };
        let sizes = [Dim::Const(extent / part), Dim::Const(part)];
        let [outer, inner] = sizes.each_ref().map(|n| self.variable(n));
        let whole = linear(&[&outer, &inner].map(|s| Dim::sym(s.clone())), &sizes);
        let index: Vec<Dim> = nest.index.iter().map(|d| d.subst(&|s| (s == var).then(|| whole.clone()))).collect();
        if reads(self, &index).iter().any(|p| is_tangled(p, &self.extents)) {
            return nest;
        }
        let before = &nest.loops[..nest.loops.len() - 1];
        let loops = before.iter().cloned().chain([outer, inner].into_iter().zip(sizes)).collect();
        Nest { loops, index }
    }

    fn nest_of(&mut self, shape: &[Dim], groups: &[Vec<usize>]) -> Nest {
        let mut nest = Nest { loops: vec![], index: vec![Dim::ZERO; shape.len()] };
        for group in groups {
            let sizes: Vec<Dim> = group.iter().map(|&a| shape[a].clone()).collect();
            let extent = Dim::product(&sizes);
            let var = self.variable(&extent);
            let indices = unravel(&Dim::sym(var.clone()), &sizes, &self.extents);
            group.iter().zip(indices).for_each(|(&a, i)| nest.index[a] = i);
            nest.loops.push((var, extent));
        }
        nest
    }

    /// What computing the element of a node at an index reads.
    pub(crate) fn reads(&mut self, v: Value, index: &[Dim], out: &mut Reads) {
        if !out.seen.insert((v, index.to_vec())) {
            return;
        }
        let dtype = self.dtype(v);
        let varies = out.varies(index);
        if varies {
            out.note(dtype);
        }
        if self.is_stored(v) {
            let shape = self.shape(v);
            let position = self.position(v, index, &shape);
            out.read(v, position);
            return;
        }
        let node = self.scope.func.node(v);
        let args = &node.args;
        match &node.op {
            Op::Const { .. } | Op::Size { .. } | Op::Bind { .. } => {}
            Op::Iota { axis, .. } => out.positions.push(index[*axis as usize].clone()),
            Op::Map { f } => {
                let dtypes: Vec<DType> = args.iter().map(|&a| self.dtype(a)).collect();
                let types = f.types(&dtypes).expect("verified");
                types.iter().filter(|_| varies).for_each(|&d| out.note(d));
                out.work += numrsc_facts::costs::work_of(f);
                args.iter().for_each(|&a| self.reads(a, index, out));
            }
            Op::Gather { axis, batch } => {
                let (axis, batch) = (*axis as usize, *batch as usize);
                let count = self.scope.shape(args[1]).len() - batch;
                let inner = [&index[..batch], &index[axis..axis + count]].concat();
                out.work += 4;
                out.lookups += 1;
                self.reads(args[1], &inner, out);
                let loaded = self.fresh(false);
                if !out.lane.is_empty() && out.varies(&inner) {
                    out.lane.push(loaded.clone());
                }
                let at = [&index[..axis], &[Dim::sym(loaded)], &index[axis + count..]].concat();
                self.reads(args[0], &at, out);
            }
            Op::Reduce { axes, .. } => {
                let (at, variables) = self.reduced_index(args[0], axes, index);
                let before = out.positions.len();
                self.reads(args[0], &at, out);
                let positions = out.positions[before..].to_vec();
                out.reductions.push((index.to_vec(), variables.last().cloned(), positions));
            }
            // The product of an epilogue is in registers; a window over no axes is one element.
            Op::Contract { .. } | Op::Conv { .. } => {}
            Op::Window { size, .. } if !size.is_empty() => {}
            Op::Window { .. } => self.reads(args[0], index, out),
            Op::Arg { .. } => {
                out.positions.extend(index.iter().cloned());
                out.scalars_only = true;
                out.work += 32;
            }
            op @ (Op::Reshape { .. } | Op::Transpose { .. } | Op::Broadcast { .. } | Op::Slice { .. }) => {
                match self.view(op, args, index) {
                    Some((x, View::Index(at))) => self.reads(x, &at, out),
                    Some((x, View::Position(p))) => out.read(x, p),
                    None => unreachable!("`{op}` is a view"),
                }
            }
            Op::Param { .. }
            | Op::Pad { .. }
            | Op::Concat { .. }
            | Op::Scatter { .. }
            | Op::Scan { .. }
            | Op::ArgSort { .. }
            | Op::Compress { .. }
            | Op::If { .. }
            | Op::Loop { .. }
            | Op::Get { .. }
            | Op::SeqMake { .. }
            | Op::SeqLen {}
            | Op::SeqAt { .. }
            | Op::SeqInsert { .. }
            | Op::SeqErase {} => unreachable!("`{}` has a buffer", node.op),
        }
    }

    /// An index into the operand of a reduction, with new variables for the reduced axes.
    fn reduced_index(&mut self, x: Value, axes: &[i64], index: &[Dim]) -> (Vec<Dim>, Vec<Sym>) {
        let shape = self.shape(x);
        let mut kept = index.iter();
        let mut variables = Vec::new();
        let at = shape
            .iter()
            .enumerate()
            .map(|(a, size)| {
                if axes.contains(&(a as i64)) {
                    let var = self.variable(size);
                    variables.push(var.clone());
                    Dim::sym(var)
                } else {
                    kept.next().expect("the other axes").clone()
                }
            })
            .collect();
        (at, variables)
    }

    /// Loops around a body that carries values.
    pub(crate) fn carry(
        &mut self,
        loops: &[(Sym, Dim)],
        init: &[V],
        body: &mut dyn FnMut(&mut Self, &[V]) -> Vec<V>,
    ) -> Vec<V> {
        let Some(((var, extent), rest)) = loops.split_first() else { return body(self, init) };
        let (low, high) = (self.b.i64(0), self.uniform(extent));
        self.range(var, low, high, init, |em, inside| em.carry(rest, inside, body))
    }

    /// One loop from `low` to `high` that carries values.
    pub(crate) fn range(
        &mut self,
        var: &Sym,
        low: V,
        high: V,
        init: &[V],
        body: impl FnOnce(&mut Self, &[V]) -> Vec<V>,
    ) -> Vec<V> {
        let open = self.b.open_for(init);
        let before = self.symbols.insert(var.clone(), open.var);
        let next = body(self, &open.inside);
        match before {
            Some(v) => self.symbols.insert(var.clone(), v),
            None => self.symbols.remove(var),
        };
        self.b.close_for(open, low, high, 1, next)
    }

    /// A loop from `low` to `high` by vectors of that many lanes, then by one shorter vector, or element by element,
    /// for the remainder. Values are carried as vectors; `narrow` makes scalars of them at the end, or for the
    /// remainder.
    pub(crate) fn by_vectors(
        &mut self,
        var: &Sym,
        (low, high): (V, V),
        Lanes { most: lanes, masked }: Lanes,
        wide: &[V],
        narrow: &mut dyn FnMut(&mut Self, &[V]) -> Vec<V>,
        body: &mut dyn FnMut(&mut Self, &[V]) -> Vec<V>,
    ) -> Vec<V> {
        let mut middle = low;
        let mut carried = wide.to_vec();
        if lanes > 1 {
            let count = self.b.sub(high, low);
            let step = self.b.i64(i64::from(lanes));
            // A chunk may be empty, but never negative.
            let left = self.b.urem(count, step);
            middle = self.b.sub(high, left);
            let open = self.b.open_for(&carried);
            let next = self.at_lanes(var, open.var, lanes, |em| body(em, &open.inside));
            carried = self.b.close_for(open, low, middle, i64::from(lanes), next);
        }
        let no_rest = self.b.as_const(middle).is_some() && self.b.as_const(middle) == self.b.as_const(high);
        if masked && !no_rest {
            let open = self.b.open_for(&carried);
            let mask = self.lanes_below(open.var, high, lanes);
            let next = self.at_some_lanes(var, open.var, lanes, Some(mask), |em| body(em, &open.inside));
            carried = self.b.close_for(open, middle, high, i64::from(lanes), next);
        }
        let narrowed = narrow(self, &carried);
        if no_rest || masked {
            return narrowed;
        }
        self.range(var, middle, high, &narrowed, |em, inside| body(em, inside))
    }

    /// Is this a kernel, where loops may be hoisted?
    pub(crate) fn in_kernel(&self) -> bool {
        matches!(self.site, Site::Kernel { .. })
    }
}

impl ElementEmitter<'_> {
    /// Emits code for several values of a variable, from `first` on.
    pub(crate) fn at_lanes<R>(&mut self, var: &Sym, first: V, lanes: u32, f: impl FnOnce(&mut Self) -> R) -> R {
        self.at_some_lanes(var, first, lanes, None, f)
    }

    /// Emits code for several values of a variable, from `first` on, under a mask.
    pub(crate) fn at_some_lanes<R>(
        &mut self,
        var: &Sym,
        first: V,
        lanes: u32,
        mask: Option<V>,
        f: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let before = self.symbols.insert(var.clone(), first);
        let lane = (lanes > 1).then(|| Lane { sym: var.clone(), base: first, mask });
        let outer = (std::mem::replace(&mut self.lane, lane), std::mem::replace(&mut self.lanes, lanes));
        let result = f(self);
        (self.lane, self.lanes) = outer;
        restore(self, var, before);
        result
    }
}

impl ElementEmitter<'_> {
    /// The lanes whose number, counted from `first`, is below a limit.
    pub(crate) fn lanes_below(&mut self, first: V, limit: V, lanes: u32) -> V {
        let left = self.b.sub(limit, first);
        let (left, iota) = (self.b.splat(left, lanes), self.b.iota(Ty::vector(Elem::I64, lanes)));
        self.b.compare(Compare::Lt, iota, left)
    }

    /// The lanes along a variable, for these memory accesses.
    pub(crate) fn lanes_along(&self, var: &Sym, most: u32, reads: &Reads) -> Lanes {
        let masked =
            self.state.context.machine.masks && !self.state.context.options.sanitize && most > 1 && reads.in_order(var);
        Lanes { most, masked }
    }
}

/// The lanes of a loop of that many rounds: never more than the rounds fill.
pub(crate) fn fitting_lanes(extent: &Dim, most: u32) -> u32 {
    let rounds = extent.as_const().and_then(|n| u32::try_from(n.max(1)).ok());
    rounds.map_or(most, |n| most.min(1 << n.ilog2()))
}

fn restore(em: &mut ElementEmitter<'_>, var: &Sym, before: Option<V>) {
    match before {
        Some(v) => em.symbols.insert(var.clone(), v),
        None => em.symbols.remove(var),
    };
}

impl Reads {
    /// For lanes along a variable.
    pub(crate) fn along(lane: Option<&Sym>) -> Reads {
        Reads { lane: lane.into_iter().cloned().collect(), ..Reads::default() }
    }

    /// Do all lanes read the same element, so that it is loaded once for all of them?
    pub(crate) fn share_lookups(&self) -> bool {
        self.lookups >= MAX_LOOKUPS && self.lane.len() == 1
    }

    /// Are all accesses that vary along a variable contiguous? Then vectors may be partial.
    pub(crate) fn in_order(&self, var: &Sym) -> bool {
        self.lookups == 0 && self.positions.iter().all(|p| matches!(step(p, var), Some(0 | 1)))
    }

    /// May an element at an index differ from lane to lane?
    fn varies(&self, index: &[Dim]) -> bool {
        self.lane.is_empty() || index.iter().any(|d| self.lane.iter().any(|s| mentions(d, s)))
    }

    fn note(&mut self, dtype: DType) {
        let bytes = scalar::memory(dtype).size().max(scalar::number(dtype).size());
        self.widest = self.widest.max(bytes as u32);
        self.scalars_only |= dtype == DType::Str;
    }

    fn read(&mut self, v: Value, position: Dim) {
        self.work += 1;
        self.positions.push(position.clone());
        self.buffers.push((v, position));
    }
}
