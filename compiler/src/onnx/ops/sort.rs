//! Operators that need the order of elements.
use crate::onnx::import::{Fail, table::Outputs};
use numrsc_ir::{
    DType, Dim, ReduceFn, Result, ScatterFn,
    build::{LoopOut, X},
};

/// The `k` largest or smallest elements along an axis in order, and their indices; of equal ones the first come first.
pub(super) fn top_k<'g>(x: X<'g>, k: X<'g>, axis: i64, largest: bool) -> Result<[X<'g>; 2]> {
    let axis = x.axis(axis)?;
    let k = k.reshape(&[Dim::ONE])?.to_sizes()?.remove(0);
    let indices = x.argsort(axis, largest)?.slice_axis(axis, &Dim::ZERO, &k, 1)?;
    Ok([x.gather_elements(indices, axis)?, indices])
}

/// The distinct slices along an axis (distinct elements, if there is none): what they are, where each occurs first,
/// which of them every slice is, and how often each occurs.
pub(super) fn unique(x: X<'_>, axis: Option<i64>, sorted: bool) -> Result<Outputs<'_>, Fail> {
    let g = x.graph();
    let (x, axis, order) = match axis {
        Some(axis) => {
            let axis = x.axis(axis)?;
            (x, axis, sorted_slices(x, axis)?)
        }
        None => (x.flatten()?, 0, x.flatten()?.argsort(0, false)?),
    };
    let starts = group_starts(x.gather(order, axis, 0)?, axis)?;
    let heads = starts.compress()?;
    // The sort is stable, so that the head of a group is its first occurrence.
    let mut first = order.gather(heads, 0, 0)?;
    let group = starts.cast(DType::I64)?.scan(ReduceFn::Sum, 0, false, false)?.map(|i| i - 1.0)?;
    let (zeros, ones) = (g.full(DType::I64, 0.0, &order.shape())?, g.full(DType::I64, 1.0, &order.shape())?);
    let mut inverse = zeros.scatter(ScatterFn::Set, order, group)?;
    let mut counts = g.full(DType::I64, 0.0, &first.shape())?.scatter(ScatterFn::Add, group, ones)?;
    if !sorted {
        let by_occurrence = first.argsort(0, false)?;
        first = first.gather(by_occurrence, 0, 0)?;
        counts = counts.gather(by_occurrence, 0, 0)?;
        inverse = by_occurrence.argsort(0, false)?.gather(inverse, 0, 0)?;
    }
    Ok([x.gather(first, axis, 0)?, first, inverse, counts].map(Some).into())
}

/// For slices along an axis where equal ones are neighbours: is each different from the one before it?
fn group_starts(x: X<'_>, axis: usize) -> Result<X<'_>> {
    let (g, n) = (x.graph(), x.shape()[axis].clone());
    let place = g.range(DType::I64, &n)?;
    let before = x.gather(place.map(|i| (i - 1.0).max(0.0))?, axis, 0)?;
    let differs = g.map([x, before], |[a, b]| {
        let same = a.eq(b);
        if a.dtype().is_float() { same.or(a.is_nan().and(b.is_nan())).not() } else { same.not() }
    })?;
    let others: Vec<usize> = (0..x.rank()).filter(|&a| a != axis).collect();
    g.map([differs.reduce(ReduceFn::Max, &others, false)?, place], |[d, i]| d.or(i.eq(0.0)))
}

/// Indices that bring the slices along an axis into lexicographic order: one stable sort per element of a slice, from
/// the least to the most significant.
fn sorted_slices(x: X<'_>, axis: usize) -> Result<X<'_>, Fail> {
    let g = x.graph();
    let rows = x.move_axis(axis, 0)?;
    let n = rows.shape()[0].clone();
    let width = Dim::product(&rows.shape()[1..]);
    let rows = rows.reshape(&[n.clone(), width.clone()])?;
    let always = g.scalar(DType::Bool, 1.0)?;
    let width = g.size(&width)?;
    let (orders, _) = g.loop_::<Fail>(width, always, &[g.range(DType::I64, &n)?], &[rows, width], &|body| {
        let (order, rows, width) = (body.states[0], body.captures[0], body.captures[1]);
        let column = body.graph.map([width, body.round], |[w, i]| w - 1.0 - i)?;
        let keys = rows.gather(column, 1, 0)?.gather(order, 0, 0)?;
        let order = order.gather(keys.argsort(0, false)?, 0, 0)?;
        Ok(LoopOut { cond: body.cond, states: vec![order], rows: vec![] })
    })?;
    Ok(orders[0])
}
