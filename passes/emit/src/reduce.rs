//! Values computed from many elements: reductions, arg-extrema, windows.
use crate::{
    element::{ComputedLanes, ElementEmitter},
    nest::{Lanes, Reads},
};
use numrsc_ir::{
    DType, Dim, ReduceFn, Value,
    dim::Sym,
    dtype::Class,
    kernel::{Binary, Compare, Convert, Elem, Ty, Unary, V},
};
use numrsc_scalar as scalar;
use numrsc_schedule::index::mentions;

impl ElementEmitter<'_> {
    /// The element of a reduction at an index. If that index is the same in all lanes, lanes run along the last reduced
    /// axis.
    pub(crate) fn reduced(&mut self, v: Value, f: ReduceFn, axes: &[i64], index: &[Dim]) -> V {
        let x = self.scope.func.node(v).args[0];
        if !self.in_kernel() || index.iter().any(|d| self.varying.keys().any(|s| mentions(d, s))) {
            return self.reduce_here(x, f, axes, index, 1);
        }
        if let Some(lane) = self.lane.clone().filter(|lane| index.iter().any(|d| mentions(d, &lane.sym))) {
            // Every lane separately, outside of loops in which it does not change.
            let known = [Some(lane.base), lane.mask].into_iter().flatten().map(|v| self.b.level(v)).max();
            let level = self.level_of(index).max(known.unwrap_or(0));
            let inner = self.b.step_out(level);
            let result = self.reduce_here(x, f, axes, index, 1);
            self.b.step_in(inner);
            return result;
        }
        // The vector loop and its remainder must give the same result.
        let lanes = self.lanes;
        let computing = if self.computing == ComputedLanes::All { ComputedLanes::Uniform } else { self.computing };
        let key = (v, index.to_vec(), computing, 1);
        if let Some(&known) = self.computed.get(&key)
            && self.b.is_visible(known)
        {
            return self.b.splat(known, lanes);
        }
        let level = self.level_of(index);
        let inner = self.b.step_out(level);
        let result = self.in_all_lanes(|em| {
            let mut reads = Reads::default();
            let shape = em.shape(x);
            let at: Vec<Dim> = full_index(axes, index, &shape, &mut |size| Dim::sym(em.variable(size)));
            em.reads(x, &at, &mut reads);
            let lanes = if reads.scalars_only { 1 } else { em.state.context.machine.lanes(reads.widest) };
            em.reduce_here(x, f, axes, index, lanes)
        });
        self.b.step_in(inner);
        self.computed.insert(key, result);
        self.b.splat(result, lanes)
    }

    /// The loops of a reduction, the innermost by vectors of `vector` lanes.
    fn reduce_here(&mut self, x: Value, f: ReduceFn, axes: &[i64], index: &[Dim], vector: u32) -> V {
        let dtype = self.dtype(x);
        let shape = self.shape(x);
        let mut sorted: Vec<usize> = axes.iter().map(|&a| a as usize).collect();
        sorted.sort_unstable();
        let gone: Vec<Dim> = sorted.iter().map(|&a| shape[a].clone()).collect();
        let place = |inner: &[Dim]| {
            let mut inner = inner.iter();
            full_index(axes, index, &shape, &mut |_| inner.next().expect("one per axis").clone())
        };
        let nest = self.nest(&gone, &[], &mut |em, inner| {
            let mut reads = Reads::default();
            em.reads(x, &place(inner), &mut reads);
            reads.positions
        });
        let at = place(&nest.index);
        let sum = Sum { f, dtype };
        let start = sum.neutral(self, self.lanes);
        let result = match nest.loops.split_last() {
            None => {
                let item = self.value(x, &at);
                let item = sum.widen(self, item);
                sum.combine(self, start, item)
            }
            Some((last, outer)) if vector > 1 => {
                // A vector of partial results; the scalars left over at the end of each row are added to lane 0's
                // chain.
                let wide = sum.neutral(self, vector);
                let mut reads = Reads::default();
                self.reads(x, &at, &mut reads);
                let lanes = self.lanes_along(&last.0, vector, &reads);
                let accumulated = self.carry(outer, &[wide, start], &mut |em, inside| {
                    let (low, high) = (em.b.i64(0), em.uniform(&last.1));
                    let (wide, single) = (inside[0], inside[1]);
                    let mut after = wide;
                    let tail = em.by_vectors(
                        &last.0,
                        (low, high),
                        lanes,
                        &[wide],
                        &mut |_, carried| {
                            after = carried[0];
                            vec![single]
                        },
                        &mut |em, inside| {
                            let item = em.value(x, &at);
                            let item = sum.widen(em, item);
                            let after = sum.combine(em, inside[0], item);
                            vec![em.mask().map_or(after, |mask| em.b.select(mask, after, inside[0]))]
                        },
                    );
                    vec![after, tail[0]]
                });
                let folded = sum.fold(self, accumulated[0]);
                sum.combine(self, folded, accumulated[1])
            }
            Some(_) => self.carry(&nest.loops, &[start], &mut |em, inside| {
                let item = em.value(x, &at);
                let item = sum.widen(em, item);
                vec![sum.combine(em, inside[0], item)]
            })[0],
        };
        sum.narrow(self, result)
    }

    /// The index of the first (or last) extreme element along an axis. A NaN wins.
    pub(crate) fn chosen(&mut self, x: Value, f: ReduceFn, axis: usize, last: bool, index: &[Dim]) -> V {
        let dtype = self.dtype(x);
        let shape = self.shape(x);
        let var = self.variable(&shape[axis]);
        let mut at = index.to_vec();
        at.insert(axis, Dim::sym(var.clone()));
        if let Some(lanes) = self.own_lanes(x, &at) {
            return self.chosen_by_vectors(x, f, axis, last, index, lanes);
        }
        let first: Vec<Dim> =
            at.iter().enumerate().map(|(a, d)| if a == axis { Dim::ZERO } else { d.clone() }).collect();
        let best = self.value(x, &first);
        let zero = self.b.i64(0);
        let (low, high) = (self.b.i64(1), self.uniform(&shape[axis]));
        let found = self.range(&var, low, high, &[best, zero], |em, inside| {
            let item = em.value(x, &at);
            let better = better(em, dtype, f, last, item, inside[0]);
            let place = em.symbol(&var);
            vec![em.b.select(better, item, inside[0]), em.b.select(better, place, inside[1])]
        });
        found[1]
    }

    /// The lanes of a loop over elements of a node, if no outer loop uses them and it fills them.
    fn own_lanes(&mut self, x: Value, at: &[Dim]) -> Option<u32> {
        if self.lanes > 1 || self.lane.is_some() || !self.in_kernel() {
            return None;
        }
        let mut reads = Reads::default();
        self.reads(x, at, &mut reads);
        let lanes = self.state.context.machine.lanes(reads.widest);
        (lanes > 1 && !reads.scalars_only).then_some(lanes)
    }

    /// As [`ElementEmitter::chosen`]: first the extreme element, then where it is.
    fn chosen_by_vectors(&mut self, x: Value, f: ReduceFn, axis: usize, last: bool, index: &[Dim], lanes: u32) -> V {
        let (dtype, size) = (self.dtype(x), self.shape(x)[axis].clone());
        let extreme = self.reduce_here(x, f, &[axis as i64], index, lanes);
        let var = self.variable(&size);
        let mut at = index.to_vec();
        at.insert(axis, Dim::sym(var.clone()));
        let is_extreme = |em: &mut ElementEmitter<'_>| {
            let item = em.value(x, &at);
            let wanted = em.b.splat(extreme, em.lanes);
            let same = em.b.compare(Compare::Eq, item, wanted);
            if !dtype.is_float() {
                return same;
            }
            // If there is a NaN, it is the extreme element, and equal to nothing.
            let nan = em.b.compare(Compare::Ne, item, item);
            em.b.or(same, nan)
        };
        let (low, high) = (self.b.i64(0), self.uniform(&size));
        if !last {
            let step = self.b.i64(i64::from(lanes));
            let left = self.b.urem(high, step);
            let middle = self.b.sub(high, left);
            let near = self.search(&var, (low, middle), lanes, &is_extreme);
            return self.search(&var, (near, high), 1, &is_extreme);
        }
        let places = |lanes: u32| Ty::vector(Elem::I64, lanes);
        let none = self.b.int(places(lanes), -1);
        let found = self.by_vectors(
            &var,
            (low, high),
            Lanes { most: lanes, masked: false },
            &[none],
            &mut |em, carried| vec![em.b.reduce(Binary::SMax, carried[0])],
            &mut |em, inside| {
                let same = is_extreme(em);
                let (place, none) = (em.index_value(&Dim::sym(var.clone())), em.b.int(places(em.lanes), -1));
                let place = em.b.select(same, place, none);
                vec![em.b.binary(Binary::SMax, inside[0], place)]
            },
        );
        found[0]
    }

    /// The first of `low`, `low + lanes` .. below `high` from which on a condition holds in one of so many lanes, or
    /// where these end.
    fn search(
        &mut self,
        var: &Sym,
        (low, high): (V, V),
        lanes: u32,
        holds: &dyn Fn(&mut ElementEmitter<'_>) -> V,
    ) -> V {
        let no = self.b.bits(Ty::I1, 0);
        let open = self.b.open_while(&[low, no], |b, inside| {
            let below = b.compare(Compare::Lt, inside[0], high);
            let not_yet = b.unary(Unary::Not, inside[1]);
            b.and(below, not_yet)
        });
        let at = open.inside[0];
        let found = self.at_lanes(var, at, lanes, holds);
        let found = if lanes > 1 { self.b.reduce(Binary::Or, found) } else { found };
        let step = self.b.i64(i64::from(lanes));
        let next = self.b.add(at, step);
        let next = self.b.select(found, at, next);
        self.b.close_while(open, vec![next, found])[0]
    }

    /// The taps `t` of a window for which `0 <= start + t * dilation < size`.
    pub(crate) fn taps(&mut self, start: &Dim, size: &Dim, count: i64, dilation: i64) -> (V, V) {
        let (dilation, zero) = (Dim::Const(dilation), self.b.i64(0));
        let begin = (-start).ceil_div(&dilation);
        let end = (size - start).ceil_div(&dilation);
        let (begin, end) = (self.uniform(&begin), self.uniform(&end));
        let count = self.b.i64(count);
        (self.b.binary(Binary::SMax, begin, zero), self.b.binary(Binary::SMin, end, count))
    }
}

/// An index into the operand: the kept index, with `gone` in place of the axes that go.
fn full_index(axes: &[i64], kept: &[Dim], shape: &[Dim], gone: &mut dyn FnMut(&Dim) -> Dim) -> Vec<Dim> {
    let mut kept = kept.iter();
    let axis = |(a, size): (usize, &Dim)| {
        if axes.contains(&(a as i64)) { gone(size) } else { kept.next().expect("the other axes").clone() }
    };
    shape.iter().enumerate().map(axis).collect()
}

/// Is `a` to be preferred to `b`, which comes before it?
fn better(em: &mut ElementEmitter<'_>, dtype: DType, f: ReduceFn, last: bool, a: V, b: V) -> V {
    let (large, small) = if f == ReduceFn::Max { (a, b) } else { (b, a) };
    let wins = less(em, dtype, last, small, large);
    if !dtype.is_float() {
        return wins;
    }
    let (a_nan, b_nan) = (em.b.compare(Compare::Ne, a, a), em.b.compare(Compare::Ne, b, b));
    let yes = em.b.bits(Ty::I1, 1);
    let against_nan = if last { a_nan } else { em.b.bits(Ty::I1, 0) };
    let otherwise = em.b.select(a_nan, yes, wins);
    em.b.select(b_nan, against_nan, otherwise)
}

/// `a < b`, or `a <= b`; false if either is NaN.
pub(crate) fn less(em: &mut ElementEmitter<'_>, dtype: DType, or_equal: bool, a: V, b: V) -> V {
    let op = match (dtype.class(), or_equal) {
        (Class::Bool, _) => {
            let no = em.b.unary(Unary::Not, a);
            return if or_equal { em.b.or(no, b) } else { em.b.and(no, b) };
        }
        (Class::Unsigned, true) => Compare::ULe,
        (Class::Unsigned, false) => Compare::ULt,
        (_, true) => Compare::Le,
        (_, false) => Compare::Lt,
    };
    em.b.compare(op, a, b)
}

/// The combining function. Sums and products of floats are kept in `f64` and rounded once.
#[derive(Clone, Copy)]
pub(crate) struct Sum {
    pub f: ReduceFn,
    pub dtype: DType,
}

impl Sum {
    fn wide(self) -> bool {
        self.dtype.is_float() && matches!(self.f, ReduceFn::Sum | ReduceFn::Prod)
    }

    pub(crate) fn elem(self) -> Elem {
        if self.wide() { Elem::F64 } else { scalar::number(self.dtype) }
    }

    pub(crate) fn widen(self, em: &mut ElementEmitter<'_>, x: V) -> V {
        if self.wide() { em.b.convert(Convert::Float, x, Elem::F64) } else { x }
    }

    pub(crate) fn narrow(self, em: &mut ElementEmitter<'_>, x: V) -> V {
        if self.wide() { scalar::round_float(em.b, x, self.dtype) } else { x }
    }

    /// The identity element. For formats without infinities, the ends of their range.
    pub(crate) fn neutral(self, em: &mut ElementEmitter<'_>, lanes: u32) -> V {
        let ty = Ty::vector(self.elem(), lanes);
        if self.dtype.is_float() {
            let d = self.dtype;
            let first_number =
                |list: [f64; 3]| list.into_iter().find(|&x| !d.round(x).is_nan()).map_or(0.0, |x| d.round(x));
            let x = match self.f {
                ReduceFn::Sum => 0.0,
                ReduceFn::Prod => 1.0,
                ReduceFn::Max => first_number([f64::NEG_INFINITY, -d.max_finite(), 0.0]),
                ReduceFn::Min => first_number([f64::INFINITY, d.max_finite(), 0.0]),
            };
            return em.b.float(ty, x);
        }
        let (low, high) = self.dtype.int_range();
        let x = match self.f {
            ReduceFn::Sum => 0,
            ReduceFn::Prod => 1,
            ReduceFn::Max => low,
            ReduceFn::Min => high,
        };
        em.b.int(ty, x as i64)
    }

    pub(crate) fn combine(self, em: &mut ElementEmitter<'_>, a: V, b: V) -> V {
        let unsigned = matches!(self.dtype.class(), Class::Unsigned);
        let op = match (self.f, self.dtype.class()) {
            (ReduceFn::Sum, _) => Binary::Add,
            (ReduceFn::Prod, _) => Binary::Mul,
            (ReduceFn::Max, Class::Bool) => Binary::Or,
            (ReduceFn::Min, Class::Bool) => Binary::And,
            (ReduceFn::Max, Class::Float) => return self.extreme(em, b, a, a, b),
            (ReduceFn::Min, Class::Float) => return self.extreme(em, a, b, a, b),
            (ReduceFn::Max, _) if unsigned => Binary::UMax,
            (ReduceFn::Min, _) if unsigned => Binary::UMin,
            (ReduceFn::Max, _) => Binary::SMax,
            (ReduceFn::Min, _) => Binary::SMin,
        };
        let r = em.b.binary(op, a, b);
        wrap(em, self.dtype, r)
    }

    /// `b` if it is more extreme (`large > small`) or NaN, else `a`.
    fn extreme(self, em: &mut ElementEmitter<'_>, large: V, small: V, a: V, b: V) -> V {
        let more = em.b.compare(Compare::Lt, small, large);
        let nan = em.b.compare(Compare::Ne, b, b);
        let take = em.b.or(more, nan);
        em.b.select(take, b, a)
    }

    /// All lanes of a vector, by halves.
    fn fold(self, em: &mut ElementEmitter<'_>, mut x: V) -> V {
        let mut lanes = em.b.ty(x).lanes;
        while lanes > 1 {
            lanes /= 2;
            if lanes == 1 {
                let (a, b) = (em.b.extract(x, 0), em.b.extract(x, 1));
                return self.combine(em, a, b);
            }
            let low = em.b.shuffle(x, x, (0..lanes).collect());
            let high = em.b.shuffle(x, x, (lanes..2 * lanes).collect());
            x = self.combine(em, low, high);
        }
        x
    }
}

/// Wraps integers narrower than their storage.
pub(crate) fn wrap(em: &mut ElementEmitter<'_>, dtype: DType, x: V) -> V {
    if dtype.is_int() && dtype.bits() < 8 { scalar::decode(em.b, dtype, x) } else { x }
}
