//! Pools: windows and whole images reduced to one value.
use super::{
    conv::{Placement, offset, per_axis, places, spatial},
    detection::max_roi_pool,
};
use crate::onnx::import::{
    operand::Operand,
    table::{Outputs, onnx_ops},
};
use numrsc_ir::{
    DType, Dim, ReduceFn, Result, ScatterFn,
    build::{Window, X},
    refuse,
};

onnx_ops! { pub(super) POOL in "", |g, cx|
    "AveragePool" 1 (x: Float)
        { auto_pad: String = "NOTSET".into(), kernel_shape: Vec<i64>, strides: Vec<i64> = vec![],
          dilations: Vec<i64> = vec![], pads: Vec<i64> = vec![], ceil_mode: bool = false,
          count_include_pad: bool = false }
        => average_pool(x, &kernel_shape, count_include_pad,
                        &Placement { ceil: ceil_mode, ..Placement::new(&auto_pad, &strides, &dilations, &pads) });
    "MaxPool" 1 (x: Num)
        { auto_pad: String = "NOTSET".into(), kernel_shape: Vec<i64>, strides: Vec<i64> = vec![],
          dilations: Vec<i64> = vec![], pads: Vec<i64> = vec![], ceil_mode: bool = false, storage_order: bool = false }
        => max_pool(x, &kernel_shape, cx.wants(1).then_some(storage_order),
                    &Placement { ceil: ceil_mode, ..Placement::new(&auto_pad, &strides, &dilations, &pads) });
    "LpPool" 1 (x: Float)
        { auto_pad: String = "NOTSET".into(), kernel_shape: Vec<i64>, strides: Vec<i64> = vec![],
          pads: Vec<i64> = vec![], p: f64 = 2.0 }
        => lp_pool(x, &kernel_shape, p, &Placement::new(&auto_pad, &strides, &[], &pads));
    "LpPool" 2 (x: Float)
        { auto_pad: String = "NOTSET".into(), kernel_shape: Vec<i64>, strides: Vec<i64> = vec![],
          dilations: Vec<i64> = vec![], pads: Vec<i64> = vec![], ceil_mode: bool = false, p: i64 = 2 }
        => lp_pool(x, &kernel_shape, p as f64,
                   &Placement { ceil: ceil_mode, ..Placement::new(&auto_pad, &strides, &dilations, &pads) });
    "GlobalAveragePool" 1 (x: Float) {}               => wide(x)?.mean(&spatial_axes(x)?, true)?.cast(x.dtype());
    "GlobalMaxPool"     1 (x: Float) {}               => x.max(&spatial_axes(x)?, true);
    "GlobalLpPool"      1 (x: Float) { p: f64 = 2.0 } => lp_norm(x, p, |x| x.sum(&spatial_axes(x)?, true));
    "GlobalLpPool"      2 (x: Float) { p: i64 = 2 }   => lp_norm(x, p as f64, |x| x.sum(&spatial_axes(x)?, true));
    "MaxUnpool" 9 (x: Float, indices: Index; output_shape: Index)
        { kernel_shape: Vec<i64>, strides: Vec<i64> = vec![], pads: Vec<i64> = vec![] }
        => max_unpool(x, indices, output_shape, &kernel_shape, &strides, &pads);
    "MaxRoiPool" 1 (x: Float, rois: Float)
        { pooled_shape: Vec<i64>, spatial_scale: f64 = 1.0 }
        => max_roi_pool(x, rois, &pooled_shape, spatial_scale);
}

/// Floats of less than 32 bits as `f32`, so that sums do not lose digits.
pub(super) fn wide(x: X<'_>) -> Result<X<'_>> {
    if x.dtype().is_float() && x.dtype().bits() < 32 { x.cast(DType::F32) } else { Ok(x) }
}

fn spatial_axes(x: X<'_>) -> Result<Vec<usize>> {
    Ok((2..2 + spatial(x)?.len()).collect())
}

pub(super) fn windows(x: X<'_>, kernel: &[i64], placement: &Placement<'_>) -> Result<Vec<Window>> {
    if let Some(bad) = kernel.iter().find(|&&k| k < 1) {
        refuse!("kernel sizes must be positive, got {bad}");
    }
    let sizes: Vec<Dim> = kernel.iter().map(|&k| Dim::Const(k)).collect();
    placement.windows(&spatial(x)?, &sizes)
}

fn average_pool<'g>(x: X<'g>, kernel: &[i64], include_padding: bool, placement: &Placement<'_>) -> Result<X<'g>> {
    let g = x.graph();
    let windows = windows(x, kernel, placement)?;
    // What counts besides the elements: all padding, but not what rounding up to a whole window adds.
    let explicit = Placement { ceil: false, ..*placement };
    let padding = if include_padding { Some(self::windows(x, kernel, &explicit)?) } else { None };
    let sum = wide(x)?.window(ReduceFn::Sum, kernel, &windows)?;
    let (shape, space) = (sum.shape(), spatial(x)?);
    let mut count = g.scalar(sum.dtype(), 1.0)?;
    for (i, w) in windows.iter().enumerate() {
        let (size, low, high) = match &padding {
            Some(p) => (&(&space[i] + &p[i].low) + &p[i].high, &w.low - &p[i].low, &w.high - &p[i].high),
            None => (space[i].clone(), w.low.clone(), w.high.clone()),
        };
        let along = if low == Dim::ZERO && high == Dim::ZERO {
            g.scalar(sum.dtype(), kernel[i] as f64)?
        } else {
            let ones = g.full(sum.dtype(), 1.0, &[size])?;
            let along = ones.window(ReduceFn::Sum, &kernel[i..=i], &[Window { low, high, ..w.clone() }])?;
            let mut line = vec![Dim::ONE; space.len()];
            line[i] = shape[2 + i].clone();
            along.reshape(&line)?
        };
        count = g.map([count, along], |[a, b]| a * b)?;
    }
    g.map([sum, count], |[s, n]| s / n)?.cast(x.dtype())
}

/// `(sum |x|^p)^(1/p)`, where `sum` adds up what belongs together.
fn lp_norm<'g>(x: X<'g>, p: f64, sum: impl Fn(X<'g>) -> Result<X<'g>>) -> Result<X<'g>> {
    if p <= 0.0 {
        refuse!("the norm's `p` must be positive, got {p}");
    }
    let powers = wide(x)?.map(|x| match p {
        1.0 => x.abs(),
        2.0 => x * x,
        _ => x.abs().pow(p),
    })?;
    sum(powers)?
        .map(|s| match p {
            1.0 => s,
            2.0 => s.sqrt(),
            _ => s.pow(1.0 / p),
        })?
        .cast(x.dtype())
}

fn lp_pool<'g>(x: X<'g>, kernel: &[i64], p: f64, placement: &Placement<'_>) -> Result<X<'g>> {
    let windows = windows(x, kernel, placement)?;
    lp_norm(x, p, |x| x.window(ReduceFn::Sum, kernel, &windows))
}

/// Indices are asked for by the order in which they count: `Some(true)` is column-major.
fn max_pool<'g>(x: X<'g>, kernel: &[i64], indices: Option<bool>, placement: &Placement<'_>) -> Result<Outputs<'g>> {
    let windows = windows(x, kernel, placement)?;
    let max = x.window(ReduceFn::Max, kernel, &windows)?;
    let indices = indices.map(|column_major| max_indices(x, max, kernel, &windows, column_major)).transpose()?;
    Ok(vec![Some(max), indices])
}

/// Where in the flattened `x` the first element of each window is that equals the window's maximum.
///
/// The windows are unfolded into an axis of their own, as the linear places of their elements within an image.
fn max_indices<'g>(x: X<'g>, max: X<'g>, kernel: &[i64], windows: &[Window], column_major: bool) -> Result<X<'g>> {
    let g = x.graph();
    let (shape, out) = (x.shape(), max.shape());
    let (space, kernel): (_, Vec<Dim>) = (&shape[2..], kernel.iter().map(|&k| Dim::Const(k)).collect());
    let (mut along, inside) = places(g, space, &out[2..], &kernel, windows)?;
    let at = g.map([offset(g, &along, space)?, inside], |[at, ok]| ok.select(at, 0.0))?;
    let answer = if column_major {
        along.reverse();
        offset(g, &along, &space.iter().rev().cloned().collect::<Vec<_>>())?
    } else {
        at
    };
    let (images, count, taps) = (&shape[0] * &shape[1], Dim::product(&out[2..]), Dim::product(&kernel));
    let seen = x.reshape(&[images.clone(), Dim::product(space)])?.gather(at.flatten()?, 1, 0)?;
    let seen = seen.reshape(&[images.clone(), count.clone(), taps.clone()])?;
    let max = max.reshape(&[images.clone(), count.clone(), Dim::ONE])?;
    let inside = inside.reshape(&[count.clone(), taps.clone()])?;
    let floats = x.dtype().is_float();
    let hit = g.map([seen, max, inside], |[x, m, ok]| {
        let equal = if floats { x.eq(m).or(x.is_nan()) } else { x.eq(m) };
        equal.and(ok).cast(DType::I32)
    })?;
    let first = hit.arg(ReduceFn::Max, 2, false)?;
    let tap = g.map([first, g.range(DType::I64, &count)?, g.size(&taps)?], |[t, o, n]| o * n + t)?;
    let within = answer.flatten()?.gather(tap, 0, 0)?;
    let image = g.iota(DType::I64, &[images, count], 0)?;
    g.map([within, image, g.size(&Dim::product(space))?], |[w, i, n]| i * n + w)?.reshape(&out)
}

/// Put elements where `indices` say in zeros of the size that pooling came from, which is `output_shape` if the
/// smallest that it can be is not meant.
fn max_unpool<'g>(
    x: X<'g>,
    indices: X<'g>,
    output_shape: Option<X<'g>>,
    kernel: &[i64],
    strides: &[i64],
    pads: &[i64],
) -> Result<X<'g>> {
    let (g, mut shape, n) = (x.graph(), x.shape(), spatial(x)?.len());
    if kernel.len() != n || indices.rank() != shape.len() {
        refuse!("a kernel of {} axes and indices {} do not fit {}", kernel.len(), indices.ty(), x.ty());
    }
    let (strides, pads) = (per_axis("strides", strides, n, 1)?, per_axis("pads", pads, 2 * n, 0)?);
    for i in 0..n {
        let span = &(&(&shape[2 + i] - &Dim::ONE) * &Dim::Const(strides[i])) + &Dim::Const(kernel[i]);
        shape[2 + i] = &(&span - &Dim::Const(pads[i])) - &Dim::Const(pads[n + i]);
    }
    let stated = output_shape.map(X::to_sizes).transpose()?;
    if let Some(to) = &stated {
        let small = || to.iter().zip(&shape).any(|(t, s)| s.at_most(t) == Some(false));
        if to.len() != shape.len() || small() {
            let sizes: Vec<String> = shape.iter().map(ToString::to_string).collect();
            refuse!("`output_shape` {to:?} is not at least [{}]", sizes.join(", "));
        }
        shape[2..].clone_from_slice(&to[2..]);
    }
    let empty = g.full(x.dtype(), 0.0, &[Dim::product(&shape)])?;
    let y = empty.scatter(ScatterFn::Set, indices.indices()?.flatten()?, x.flatten()?)?.reshape(&shape)?;
    stated.map_or(Ok(y), |to| y.shaped("output_shape", &to))
}
