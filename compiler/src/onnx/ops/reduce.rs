//! Reductions and running sums, over axes that are constants or only known at run time.
use crate::onnx::import::table::onnx_ops;
use numrsc_ir::{
    DType, Dim, ReduceFn, Result, ScatterFn,
    build::{Graph, X},
    expr::S,
    refuse,
};
use std::collections::BTreeSet;

onnx_ops! { pub(super) REDUCE in "", |g, cx|
    "ReduceL1"         1 (x: Num)              { axes: Vec<i64> = vec![], keepdims: bool = true }
        => listed(x, &axes, keepdims, false)?.l1();
    "ReduceL1"        18 (x: Num; axes: Index) { keepdims: bool = true, noop_with_empty_axes: bool = false }
        => over(x, axes, keepdims, noop_with_empty_axes)?.l1();
    "ReduceL2"         1 (x: Num)              { axes: Vec<i64> = vec![], keepdims: bool = true }
        => listed(x, &axes, keepdims, false)?.l2();
    "ReduceL2"        18 (x: Num; axes: Index) { keepdims: bool = true, noop_with_empty_axes: bool = false }
        => over(x, axes, keepdims, noop_with_empty_axes)?.l2();
    "ReduceLogSum"     1 (x: Num)              { axes: Vec<i64> = vec![], keepdims: bool = true }
        => listed(x, &axes, keepdims, false)?.log_sum();
    "ReduceLogSum"    18 (x: Num; axes: Index) { keepdims: bool = true, noop_with_empty_axes: bool = false }
        => over(x, axes, keepdims, noop_with_empty_axes)?.log_sum();
    "ReduceLogSumExp"  1 (x: Num)              { axes: Vec<i64> = vec![], keepdims: bool = true }
        => listed(x, &axes, keepdims, false)?.log_sum_exp();
    "ReduceLogSumExp" 18 (x: Num; axes: Index) { keepdims: bool = true, noop_with_empty_axes: bool = false }
        => over(x, axes, keepdims, noop_with_empty_axes)?.log_sum_exp();
    "ReduceMax"        1 (x: Num)              { axes: Vec<i64> = vec![], keepdims: bool = true }
        => listed(x, &axes, keepdims, false)?.plain(ReduceFn::Max);
    "ReduceMax"       18 (x: Any; axes: Index) { keepdims: bool = true, noop_with_empty_axes: bool = false }
        => over(x, axes, keepdims, noop_with_empty_axes)?.plain(ReduceFn::Max);
    "ReduceMean"       1 (x: Num)              { axes: Vec<i64> = vec![], keepdims: bool = true }
        => listed(x, &axes, keepdims, false)?.mean();
    "ReduceMean"      18 (x: Num; axes: Index) { keepdims: bool = true, noop_with_empty_axes: bool = false }
        => over(x, axes, keepdims, noop_with_empty_axes)?.mean();
    "ReduceMin"        1 (x: Num)              { axes: Vec<i64> = vec![], keepdims: bool = true }
        => listed(x, &axes, keepdims, false)?.plain(ReduceFn::Min);
    "ReduceMin"       18 (x: Any; axes: Index) { keepdims: bool = true, noop_with_empty_axes: bool = false }
        => over(x, axes, keepdims, noop_with_empty_axes)?.plain(ReduceFn::Min);
    "ReduceProd"       1 (x: Num)              { axes: Vec<i64> = vec![], keepdims: bool = true }
        => listed(x, &axes, keepdims, false)?.plain(ReduceFn::Prod);
    "ReduceProd"      18 (x: Num; axes: Index) { keepdims: bool = true, noop_with_empty_axes: bool = false }
        => over(x, axes, keepdims, noop_with_empty_axes)?.plain(ReduceFn::Prod);
    "ReduceSum"        1 (x: Num)              { axes: Vec<i64> = vec![], keepdims: bool = true }
        => listed(x, &axes, keepdims, false)?.plain(ReduceFn::Sum);
    "ReduceSum"       13 (x: Num; axes: Index) { keepdims: bool = true, noop_with_empty_axes: bool = false }
        => over(x, axes, keepdims, noop_with_empty_axes)?.plain(ReduceFn::Sum);
    "ReduceSumSquare"  1 (x: Num)              { axes: Vec<i64> = vec![], keepdims: bool = true }
        => listed(x, &axes, keepdims, false)?.sum_square();
    "ReduceSumSquare" 18 (x: Num; axes: Index) { keepdims: bool = true, noop_with_empty_axes: bool = false }
        => over(x, axes, keepdims, noop_with_empty_axes)?.sum_square();
    "CumSum"          11 (x: Num, axis: Index) { exclusive: bool = false, reverse: bool = false }
        => running(x, axis, ReduceFn::Sum, exclusive, reverse);
    "CumProd"         26 (x: Num, axis: Index) { exclusive: bool = false, reverse: bool = false }
        => running(x, axis, ReduceFn::Prod, exclusive, reverse);
}

/// The type to compute in so that 16-bit floats neither overflow nor lose digits on the way.
pub(super) fn wide(dtype: DType) -> DType {
    if dtype.is_float() && dtype.bits() < 32 { DType::F32 } else { dtype }
}

/// A reduction of `x` over some of its axes.
struct Reduction<'g> {
    x: X<'g>,
    axes: Axes<'g>,
    keep: bool,
}

enum Axes<'g> {
    Known(Vec<usize>),
    /// A bool for each axis of `x`, and how many are true if that is known.
    Mask(X<'g>, Option<usize>),
}

/// Constant axes. None mean all, or really none if `noop`.
fn listed<'g>(x: X<'g>, axes: &[i64], keep: bool, noop: bool) -> Result<Reduction<'g>> {
    let axes = if axes.is_empty() && !noop { (0..x.rank()).collect() } else { once(x.axes(axes)?) };
    Ok(Reduction { x, axes: Axes::Known(axes), keep })
}

/// Axes that may be named more than once, in the order in which they are first named.
pub(super) fn once(mut axes: Vec<usize>) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    axes.retain(|a| seen.insert(*a));
    axes
}

/// Axes that are an input.
fn over<'g>(x: X<'g>, axes: Option<X<'g>>, keep: bool, noop: bool) -> Result<Reduction<'g>> {
    let Some(axes) = axes else { return listed(x, &[], keep, noop) };
    let (g, axes, rank) = (x.graph(), axes.flatten()?, Dim::from(x.rank()));
    let len = axes.len();
    match axes.as_ints() {
        Some(list) => return listed(x, &list, keep, noop),
        None if len == Dim::ZERO => return listed(x, &[], keep, noop),
        None => {}
    }
    // A scatter, so that an axis that does not exist is an error at run time.
    let fill = |value: f64, n: &Dim| g.full(DType::Bool, value, std::slice::from_ref(n));
    let mut mask = fill(0.0, &rank)?.scatter(ScatterFn::Set, axes.wrap_indices(&rank)?, fill(1.0, &len)?)?;
    if !noop && len.equals(&Dim::ZERO) != Some(false) {
        mask = g.map([mask, g.size(&len)?], |[m, n]| m.or(n.eq(0.0)))?;
    }
    if len.as_usize().is_some_and(|n| n > x.rank()) {
        refuse!("{len} axes to reduce, {} has only {rank}", x.ty());
    }
    Ok(Reduction { x, axes: Axes::Mask(mask, len.as_usize()), keep })
}

impl<'g> Reduction<'g> {
    /// `f` over the elements as they are.
    fn plain(&self, f: ReduceFn) -> Result<X<'g>> {
        self.fold(f, self.x, self.keep)
    }

    /// `Σ |x|`
    fn l1(&self) -> Result<X<'g>> {
        self.fold(ReduceFn::Sum, self.x.map(|x| x.abs())?, self.keep)
    }

    /// `Σ x²`
    fn sum_square(&self) -> Result<X<'g>> {
        self.squares()?.cast(self.x.dtype())
    }

    /// `sqrt(Σ x²)`
    fn l2(&self) -> Result<X<'g>> {
        self.as_float(self.squares()?, |x| x.sqrt())
    }

    /// `log(Σ x)`
    fn log_sum(&self) -> Result<X<'g>> {
        let sum = self.fold(ReduceFn::Sum, self.x.cast(wide(self.x.dtype()))?, self.keep)?;
        self.as_float(sum, |x| x.log())
    }

    /// `log(Σ exp(x)) = m + log(Σ exp(x - m))` with `m = max(x)`, which keeps the exponentials from overflowing. Where
    /// the maximum is infinite (also that of no elements), `m = 0` gives the right infinity.
    fn log_sum_exp(&self) -> Result<X<'g>> {
        let g = self.x.graph();
        let of = if self.x.dtype().is_float() { wide(self.x.dtype()) } else { DType::F64 };
        let x = self.x.cast(of)?;
        let max = self.fold(ReduceFn::Max, x, true)?.map(|m| m.is_inf().select(m.lit(0.0), m))?;
        let exps = g.map([x, max.broadcast_to(&x.shape())?], |[x, m]| (x - m).exp())?;
        let sum = self.fold(ReduceFn::Sum, exps, self.keep)?;
        let max = max.reshape(&sum.shape())?;
        g.map([sum, max], |[s, m]| s.log() + m)?.cast(self.x.dtype())
    }

    /// `Σ x / n`
    fn mean(&self) -> Result<X<'g>> {
        let g = self.x.graph();
        let x = self.x.cast(wide(self.x.dtype()))?;
        let shape = x.shape();
        let count = match &self.axes {
            Axes::Known(axes) => g.size(&Dim::product(axes.iter().map(|&a| &shape[a])))?,
            Axes::Mask(mask, _) => {
                g.map([*mask, g.dims(&shape)?], |[m, d]| m.select(d, 1.0))?.reduce(ReduceFn::Prod, &[0], false)?
            }
        };
        let sum = self.fold(ReduceFn::Sum, x, self.keep)?;
        g.map([sum, count.cast(x.dtype())?], |[s, n]| s / n)?.cast(self.x.dtype())
    }

    fn squares(&self) -> Result<X<'g>> {
        self.fold(ReduceFn::Sum, self.x.cast(wide(self.x.dtype()))?.map(|x| x.square())?, self.keep)
    }

    /// A float function of what may be integers, in the type of the operand.
    fn as_float(&self, x: X<'g>, f: impl for<'e> FnOnce(S<'e>) -> S<'e>) -> Result<X<'g>> {
        let x = if x.dtype().is_float() { x } else { x.cast(DType::F64)? };
        x.map(f)?.cast(self.x.dtype())
    }

    /// Combine the elements of `x`, a tensor of the operand's shape.
    fn fold(&self, f: ReduceFn, x: X<'g>, keep: bool) -> Result<X<'g>> {
        match &self.axes {
            Axes::Known(axes) => x.reduce(f, axes, keep),
            Axes::Mask(mask, count) => fold_masked(x, *mask, *count, f, keep),
        }
    }
}

/// Reduce over the axes that a mask names at run time: every element is combined into the element of the result that
/// its coordinates along the other axes name.
fn fold_masked<'g>(x: X<'g>, mask: X<'g>, count: Option<usize>, f: ReduceFn, keep: bool) -> Result<X<'g>> {
    let (g, shape) = (x.graph(), x.shape());
    let kept = g.map([mask, g.dims(&shape)?], |[m, d]| m.select(d.lit(1.0), d))?.to_sizes()?;
    let mut at = g.scalar(DType::I64, 0.0)?;
    for i in 0..shape.len() {
        let stride = g.size(&Dim::product(&kept[i + 1..]))?;
        let dropped = mask.at(0, &Dim::from(i))?;
        let index = g.iota(DType::I64, &shape, i)?;
        at = g.map([at, index, stride, dropped], |[at, i, s, d]| d.select(at, at + i * s))?;
    }
    let at = at.broadcast_to(&shape)?.flatten()?;
    let combine = match f {
        ReduceFn::Sum => ScatterFn::Add,
        ReduceFn::Prod => ScatterFn::Mul,
        ReduceFn::Max => ScatterFn::Max,
        ReduceFn::Min => ScatterFn::Min,
    };
    let start = neutral(g, f, x.dtype())?.broadcast_to(&[Dim::product(&kept)])?;
    let flat = start.scatter(combine, at, x.flatten()?)?;
    if keep {
        return flat.reshape(&kept);
    }
    let Some(count) = count else {
        refuse!("the number of axes must be known at compile time to reduce without keepdims");
    };
    // The other axes in their order: sorted by the mask, those that are not in it come first.
    let order = mask.argsort(0, false)?.slice_axis(0, &Dim::ZERO, &Dim::from(shape.len() - count), 1)?;
    flat.reshape(&g.dims(&shape)?.gather(order, 0, 0)?.to_sizes()?)
}

/// What changes nothing when combined: the reduction of no elements.
fn neutral(g: &Graph, f: ReduceFn, dtype: DType) -> Result<X<'_>> {
    g.full(dtype, 0.0, &[Dim::ZERO])?.reduce(f, &[0], false)
}

/// Each element combined with those before it along an axis.
fn running<'g>(x: X<'g>, axis: X<'g>, f: ReduceFn, exclusive: bool, reverse: bool) -> Result<X<'g>> {
    if let Some([axis]) = axis.as_ints().as_deref() {
        return x.scan(f, x.axis(*axis)?, exclusive, reverse);
    }
    let axis = axis.wrap_indices(&Dim::from(x.rank()))?;
    x.reshape(&around(x, axis)?)?.scan(f, 1, exclusive, reverse)?.reshape(&x.shape())
}

/// `[size of the axes before, size, size of the axes after]` an axis, counted from 0, that is only known at run time.
pub(super) fn around<'g>(x: X<'g>, axis: X<'g>) -> Result<[Dim; 3]> {
    let (g, dims, rank) = (x.graph(), x.shape_of()?, Dim::from(x.rank()));
    let axis = axis.reshape(&[])?;
    let places = g.range(DType::I64, &rank)?;
    let product = |x: X<'g>| size(x.reduce(ReduceFn::Prod, &[0], false)?);
    Ok([
        product(g.map([dims, places, axis], |[d, i, a]| i.lt(a).select(d, 1.0))?)?,
        // A gather, so that an axis that does not exist is an error at run time.
        size(dims.gather(axis, 0, 0)?)?,
        product(g.map([dims, places, axis], |[d, i, a]| i.gt(a).select(d, 1.0))?)?,
    ])
}

/// The one element of an integer tensor as a size.
pub(super) fn size(x: X<'_>) -> Result<Dim> {
    match x.reshape(&[])?.to_sizes()?.pop() {
        Some(d) => Ok(d),
        None => refuse!("expected a number, got {}", x.ty()),
    }
}
