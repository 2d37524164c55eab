//! Windows of axes: slicing, padding and cropping, with bounds that are constant, symbolic, or known at run time only.
use numrsc_ir::{DType, Dim, Error, Op, Result, ScatterFn, Tensor, build::X, refuse};

/// Bounds this far out mean "to the end".
const FAR: i64 = i32::MAX as i64;

/// Number of elements of a tensor whose structure must be known, such as a list of axes.
pub(super) fn static_len(x: X<'_>) -> Result<usize> {
    match x.len().as_usize() {
        Some(n) => Ok(n),
        None => Err(Error::Open { message: format!("the number of elements of {}", x.ty()), size: x.len() }),
    }
}

/// The elements of an integer tensor as i64 scalars.
pub(super) fn elements(x: X<'_>) -> Result<Vec<X<'_>>> {
    (0..static_len(x)?).map(|i| element(x, i)).collect()
}

/// Element `i` of a tensor of numbers as an i64 scalar.
pub(super) fn element(x: X<'_>, i: usize) -> Result<X<'_>> {
    x.cast(DType::I64)?.flatten()?.at(0, &Dim::from(i))
}

/// The value of a scalar, as far as it is known.
pub(super) fn known(x: X<'_>) -> Option<Dim> {
    x.known()?.first()?.clone()
}

/// The scalar 0 (or false, or the empty string) of a tensor's type.
pub(super) fn zero(x: X<'_>) -> Result<X<'_>> {
    match x.dtype() {
        DType::Str => x.graph().constant(Tensor::from_strings(vec![], vec![String::new()])?),
        dtype => x.graph().scalar(dtype, 0.0),
    }
}

/// One scalar for every axis of `x`: what `values` holds for those named by `axes` (the first ones if it is absent),
/// the default for the others.
pub(super) fn per_axis<'g>(x: X<'g>, values: X<'g>, axes: Option<X<'g>>, default: i64) -> Result<Vec<X<'g>>> {
    let (g, rank, count) = (x.graph(), x.rank(), values.len());
    let differs = |a: X<'_>| a.len().equals(&count) == Some(false);
    if count.at_most(&Dim::from(rank)) == Some(false) || axes.is_some_and(differs) {
        refuse!("{count} values for {} and axes {}", x.ty(), axes.map_or("0..".into(), |a| a.ty().to_string()));
    }
    let (mut fixed, mut values) = (None, values);
    match axes.map(|a| a.cast(DType::I64)).transpose()? {
        None => fixed = count.as_usize().map(|n| (0..n).collect()),
        Some(a) => {
            if let Some(a) = a.as_ints() {
                values = values.flatten()?.of_length(a.len())?;
                fixed = Some(x.axes(&a)?);
            }
        }
    }
    if let Some(fixed) = fixed {
        if fixed.iter().enumerate().any(|(i, a)| fixed[..i].contains(a)) {
            refuse!("axes {fixed:?} repeat");
        }
        let value = |axis| fixed.iter().position(|a| *a == axis).map(|i| element(values, i));
        return (0..rank).map(|a| value(a).unwrap_or_else(|| g.size(&Dim::Const(default)))).collect();
    }
    let axes = match axes {
        Some(axes) => axes.cast(DType::I64)?.flatten()?.wrap_indices(&Dim::from(rank))?,
        None => g.range(DType::I64, &count)?,
    };
    let defaults = g.ints(&vec![default; rank])?;
    elements(defaults.scatter(ScatterFn::Set, axes, values.cast(DType::I64)?.flatten()?)?)
}

/// `x[start : end : step]` in some of the axes.
pub(super) fn slice<'g>(
    x: X<'g>,
    starts: X<'g>,
    ends: X<'g>,
    axes: Option<X<'g>>,
    steps: Option<X<'g>>,
) -> Result<X<'g>> {
    let g = x.graph();
    let steps = steps.map_or_else(|| g.full(DType::I64, 1.0, &[starts.len()]), Ok)?;
    let (starts, ends) = (per_axis(x, starts, axes, 0)?, per_axis(x, ends, axes, i64::MAX)?);
    let steps = per_axis(x, steps, axes, 1)?;
    let rank = x.rank();
    let (mut firsts, mut sizes, mut fixed) = (vec![Dim::ZERO; rank], x.shape(), vec![1; rank]);
    let mut picked = x;
    for i in 0..rank {
        let n = x.shape()[i].clone();
        let step = known(steps[i]).and_then(|s| s.as_const());
        if step == Some(0) {
            refuse!("a step is 0");
        }
        let bounds = step.and_then(|s| symbolic_bounds(&known(starts[i])?, &known(ends[i])?, s, &n));
        let (first, size) = match bounds {
            Some(found) => found,
            None => run_time_bounds(starts[i], ends[i], steps[i], &n)?,
        };
        if let Some(step) = step {
            (firsts[i], sizes[i], fixed[i]) = (first, size, step);
            continue;
        }
        let at =
            g.map([g.range(DType::I64, &size)?, g.size(&first)?, steps[i]], |[i, first, step]| first + i * step)?;
        picked = picked.gather(at, i, 0)?;
        sizes[i] = size;
    }
    g.push(Op::Slice { starts: firsts, sizes, steps: fixed }, &[picked])
}

/// First element and number of elements, if the signs of the bounds are certain.
fn symbolic_bounds(start: &Dim, end: &Dim, step: i64, n: &Dim) -> Option<(Dim, Dim)> {
    // A bound as an index from the start of the axis, which may lie outside.
    let from_start = |bound: &Dim| match bound {
        _ if Dim::ZERO.at_most(bound) == Some(true) => Some(bound.clone()),
        _ if bound.at_most(&Dim::Const(-1)) == Some(true) => Some(n + bound),
        // The whole axis, counted from its end; an empty one begins at 0 as well.
        _ if -bound == *n => Some(Dim::ZERO),
        _ => None,
    };
    let far = |bound: &Dim| bound.as_const().filter(|b| b.abs_diff(0) >= FAR as u64).map(i64::signum);
    let last = n - &Dim::ONE;
    if step > 0 {
        let first = match far(start) {
            Some(1) => n.clone(),
            Some(_) => Dim::ZERO,
            None => from_start(start)?,
        };
        let end = match far(end) {
            Some(1) => n.clone(),
            Some(_) => Dim::ZERO,
            None => from_start(end)?.lesser(n),
        };
        if first == Dim::ZERO && end == *n {
            return Some((first, n.ceil_div(&Dim::Const(step))));
        }
        // end - max(first, 0); first may lie behind the end.
        let span = (&end - &first).lesser(&end).greater(&Dim::ZERO);
        return Some((first.greater(&Dim::ZERO), span.ceil_div(&Dim::Const(step))));
    }
    let first = match far(start) {
        Some(1) => last,
        Some(_) => Dim::ZERO.lesser(&last),
        None if *start == Dim::Const(-1) => last,
        None => from_start(start)?.greater(&Dim::ZERO).lesser(&last),
    };
    let end = match far(end) {
        Some(1) => n - &Dim::ONE,
        Some(_) => Dim::Const(-1),
        None => from_start(end)?.greater(&Dim::Const(-1)),
    };
    let span = (&first - &end).greater(&Dim::ZERO);
    Some((first, span.ceil_div(&Dim::Const(step.checked_neg()?))))
}

/// First element and number of elements, computed at run time and bound to symbols.
fn run_time_bounds<'g>(start: X<'g>, end: X<'g>, step: X<'g>, n: &Dim) -> Result<(Dim, Dim)> {
    let g = start.graph();
    let n = g.size(n)?;
    let first = g.map([start, step, n], |[start, step, n]| {
        let from = start.lt(0.0).select(start + n, start).max(0.0);
        from.min(step.lt(0.0).select(n - 1.0, n))
    })?;
    let size = g.map([first, end, step, n], |[first, end, step, n]| {
        let (to, back) = (end.lt(0.0).select(end + n, end), step.lt(0.0));
        let span = back.select(first - to.max(-1.0), to.min(n) - first);
        span.gt(0.0).select((span - 1.0) / step.abs() + 1.0, 0.0)
    })?;
    Ok((first.to_dim()?, size.to_sizes()?.remove(0)))
}

/// `pads` holds what goes before each of the axes, then what goes after; negative numbers crop.
pub(super) fn pad<'g>(x: X<'g>, pads: X<'g>, value: Option<X<'g>>, axes: Option<X<'g>>, mode: &str) -> Result<X<'g>> {
    let pads = pads.flatten()?;
    let (pads, half) = match (pads.len().as_usize(), axes) {
        (Some(n), Some(_)) if n % 2 == 0 => (pads, Dim::from(n / 2)),
        (Some(n), Some(_)) => refuse!("{n} pads for {}", x.ty()),
        (_, None) => (pads.of_length(2 * x.rank())?, Dim::from(x.rank())),
        (None, Some(axes)) => (pads.with_sizes(&[&axes.len() * &Dim::Const(2)])?, axes.len()),
    };
    let side = |start: &Dim| -> Result<Vec<Dim>> {
        per_axis(x, pads.slice_axis(0, start, &half, 1)?, axes, 0)?.into_iter().map(X::to_dim).collect()
    };
    let (low, high) = (side(&Dim::ZERO)?, side(&half)?);
    if mode == "constant" {
        let value = value.map_or_else(|| zero(x), |v| v.reshape(&[]))?;
        return x.pad(&low, &high, value);
    }
    let mut y = x;
    for i in 0..x.rank() {
        if low[i] != Dim::ZERO || high[i] != Dim::ZERO {
            y = y.gather(padded_indices(x, i, &low[i], &high[i], mode)?, i, 0)?;
        }
    }
    Ok(y)
}

/// Which element of an axis each element of the padded axis repeats. What negative pads crop does not count.
fn padded_indices<'g>(x: X<'g>, axis: usize, low: &Dim, high: &Dim, mode: &str) -> Result<X<'g>> {
    let (g, n) = (x.graph(), &x.shape()[axis]);
    let crop = |pad: &Dim| (-pad).greater(&Dim::ZERO);
    let (first, kept) = (crop(low), &(n - &crop(low)) - &crop(high));
    let place = g.range(DType::I64, &(&(n + low) + high))?;
    let args = [place, g.size(&low.greater(&Dim::ZERO))?, g.size(&kept)?, g.size(&first)?];
    match mode {
        "edge" => g.map(args, |[i, low, n, first]| (i - low).max(0.0).min(n - 1.0) + first),
        "wrap" => g.map(args, |[i, low, n, first]| (i - low).modulo(n) + first),
        "reflect" => g.map(args, |[i, low, n, first]| {
            // Back and forth without repeating the ends: a period of 2 (n - 1).
            let period = ((n - 1.0) * 2.0).max(1.0);
            let at = (i - low).modulo(period);
            at.lt(n).select(at, period - at) + first
        }),
        _ => refuse!("mode `{mode}` is not known"),
    }
}

/// Crop or pad around the middle: `trunc((target - n) / 2)` elements before the axis, the rest after it.
pub(super) fn center_crop_pad<'g>(x: X<'g>, shape: X<'g>, axes: Option<Vec<i64>>) -> Result<X<'g>> {
    let axes = match axes {
        Some(axes) => x.axes(&axes)?,
        None => (0..x.rank()).collect(),
    };
    let targets = shape.of_length(axes.len())?.to_sizes()?;
    let (mut low, mut high) = (vec![Dim::ZERO; x.rank()], vec![Dim::ZERO; x.rank()]);
    for (&axis, target) in axes.iter().zip(&targets) {
        let more = target - &x.shape()[axis];
        let half = |d: &Dim| d.greater(&Dim::ZERO).floor_div(&Dim::Const(2));
        low[axis] = &half(&more) - &half(&-&more);
        high[axis] = &more - &low[axis];
    }
    x.pad(&low, &high, zero(x)?)
}
