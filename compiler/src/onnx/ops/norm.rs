//! Normalisations: values shifted and scaled by statistics over some of their axes.
use super::reduce::{once, wide};
use crate::onnx::import::table::{Types, onnx_ops};
use numrsc_ir::{
    DType, Dim, ReduceFn, Result,
    build::{Window, X},
    refuse,
};

onnx_ops! { pub(super) NORM in "", |g, cx|
    "BatchNormalization"         1 (x: Float, scale: Float, b: Float, mean: Float, var: Float)
        { epsilon: f64 = 1e-5, momentum: f64 = 0.9, is_test: bool = false, spatial: bool = true,
          consumed_inputs: Option<Vec<i64>> }
        => batch_norm([x, scale, b, mean, var], epsilon, spatial, (!is_test).then_some(momentum));
    "BatchNormalization"         6 (x: Float, scale: Float, b: Float, mean: Float, var: Float)
        { epsilon: f64 = 1e-5, momentum: f64 = 0.9, is_test: bool = false, spatial: bool = true }
        => batch_norm([x, scale, b, mean, var], epsilon, spatial, (!is_test).then_some(momentum));
    "BatchNormalization"         7 (x: Float, scale: Float, b: Float, mean: Float, var: Float)
        { epsilon: f64 = 1e-5, momentum: f64 = 0.9, spatial: bool = true }
        => batch_norm([x, scale, b, mean, var], epsilon, spatial, (cx.outputs() > 1).then_some(momentum));
    "BatchNormalization"         9 (x: Float, scale: Float, b: Float, mean: Float, var: Float)
        { epsilon: f64 = 1e-5, momentum: f64 = 0.9 }
        where scale[channels(x)], b[channels(x)], mean[channels(x)], var[channels(x)]
        => batch_norm([x, scale, b, mean, var], epsilon, true, (cx.outputs() > 1).then_some(momentum));
    "BatchNormalization"        14 (x: Float, scale: Float, b: Float, mean: Float, var: Float)
        { epsilon: f64 = 1e-5, momentum: f64 = 0.9, training_mode: bool = false }
        where scale[channels(x)], b[channels(x)], mean[channels(x)], var[channels(x)]
        => batch_norm([x, scale, b, mean, var], epsilon, true, training_mode.then_some(momentum));
    "InstanceNormalization"      1 (x: Float, scale: Float, b: Float)
        { epsilon: f64 = 1e-5, consumed_inputs: Option<Vec<i64>> }
        where scale[channels(x)], b[channels(x)]
        => instance_norm(x, scale, b, epsilon);
    "InstanceNormalization"      6 (x: Float, scale: Float, b: Float) { epsilon: f64 = 1e-5 }
        where scale[channels(x)], b[channels(x)]
        => instance_norm(x, scale, b, epsilon);
    "GroupNormalization"        18 (x: Float, scale: Float, b: Float) { epsilon: f64 = 1e-5, num_groups: i64 }
        where scale[Dim::from(num_groups)], b[Dim::from(num_groups)]
        => group_norm(x, scale, b, epsilon, num_groups, DType::F32, false);
    "GroupNormalization"        21 (x: Float, scale: Float, b: Float)
        { epsilon: f64 = 1e-5, num_groups: i64, stash_type: DType = DType::F32 }
        where scale[channels(x)], b[channels(x)]
        => group_norm(x, scale, b, epsilon, num_groups, stash_type, true);
    "LayerNormalization"        17 (x: Float, scale: Float; b: Float)
        { axis: i64 = -1, epsilon: f64 = 1e-5, stash_type: DType = DType::F32 }
        => layer_norm(x, scale, b, axis, epsilon, stash_type);
    "RMSNormalization"          23 (x: Float, scale: Float)
        { axis: i64 = -1, epsilon: f64 = 1e-5, stash_type: DType = DType::F32 }
        => rms_norm(x, scale, axis, epsilon, stash_type);
    "LpNormalization"            1 (x: Float)                         { axis: i64 = -1, p: i64 = 2 }
        => lp_norm(x, axis, p);
    "LRN"                        1 (x: Float)
        { alpha: f64 = 1e-4, beta: f64 = 0.75, bias: f64 = 1.0, size: i64 }
        => local_response(x, alpha, beta, bias, size);
    "MeanVarianceNormalization"  9 (x: Float)                         { axes: Vec<i64> = vec![0, 2, 3] }
        => mean_variance(x, &axes);
}

/// Mean and variance over axes, which stay with size 1: `Σ x / n` and `Σ (x - mean)² / n`.
fn moments<'g>(x: X<'g>, axes: &[usize]) -> Result<[X<'g>; 2]> {
    let mean = x.mean(axes, true)?;
    Ok([mean, x.graph().map([x, mean], |[x, m]| (x - m).square())?.mean(axes, true)?])
}

/// Mean and `1 / sqrt(variance + epsilon)` over axes, which stay with size 1.
fn mean_and_scale<'g>(x: X<'g>, axes: &[usize], epsilon: f64) -> Result<[X<'g>; 2]> {
    let [mean, var] = moments(x, axes)?;
    Ok([mean, var.map(|v| 1.0 / (v + epsilon).sqrt())?])
}

/// How many channels (axis 1) there are. A tensor with one axis has one.
fn channels(x: X<'_>) -> Dim {
    x.shape().get(1).cloned().unwrap_or(Dim::ONE)
}

/// A vector with one element for each channel (axis 1) of a tensor of this shape, such that it broadcasts to it. A
/// tensor with one axis has one channel.
fn per_channel<'g>(v: X<'g>, shape: &[Dim]) -> Result<X<'g>> {
    let mut to = vec![Dim::ONE; shape.len().saturating_sub(1).max(1)];
    if let Some(channels) = shape.get(1) {
        to[0] = channels.clone();
    }
    v.reshape(&to)
}

/// The type to compute statistics in: `stash`, unless that would lose digits of what is there.
fn stashed(stash: DType, of: DType) -> Result<DType> {
    match stash {
        _ if !Types::Float.holds(stash) => {
            refuse!("stash_type {stash} is not a float; supported are {}", Types::Float.list())
        }
        _ if of == DType::F64 => Ok(of),
        _ => Ok(wide(stash)),
    }
}

/// `(x - mean) / sqrt(var + epsilon) * scale + b`. In training (`momentum`), the statistics are those of `x`, and the
/// results are the output, the running statistics and the ones of `x`.
fn batch_norm<'g>(
    [x, scale, b, mean, var]: [X<'g>; 5],
    epsilon: f64,
    spatial: bool,
    momentum: Option<f64>,
) -> Result<Vec<X<'g>>> {
    let (g, shape, dtype) = (x.graph(), x.shape(), x.dtype());
    if shape.is_empty() {
        refuse!("a scalar has no batch to normalise");
    }
    let to = if [x, scale, b, mean, var].iter().any(|v| v.dtype() == DType::F64) { DType::F64 } else { DType::F32 };
    // Statistics of each channel, or (not spatial) of each place in a sample.
    let aligned = |v: X<'g>| {
        let v = v.cast(to)?;
        if spatial || shape.len() == 1 { per_channel(v, &shape) } else { v.reshape(&shape[1..]) }
    };
    let [scale, b, old_mean, old_var] = [aligned(scale)?, aligned(b)?, aligned(mean)?, aligned(var)?];
    let x = x.cast(to)?;
    let factor = |var: X<'g>| g.map([scale, var], |[s, v]| s / (v + epsilon).sqrt());
    let Some(momentum) = momentum else {
        // Given statistics are one factor and one summand per channel, which is rounded once.
        let factor = factor(old_var)?;
        let summand = g.map([b, old_mean, factor], |[b, m, f]| {
            let [b, m, f] = [b, m, f].map(|v| v.cast(DType::F64));
            (b - m * f).cast(to)
        })?;
        return Ok(vec![g.map([x, factor, summand], |[x, f, s]| (x * f + s).cast(dtype))?]);
    };
    let apply =
        |mean: X<'g>, var: X<'g>| g.map([x, mean, factor(var)?, b], |[x, m, f, b]| ((x - m) * f + b).cast(dtype));
    let axes: Vec<usize> = (0..shape.len()).filter(|&a| if spatial { a != 1 } else { a == 0 }).collect();
    let [new_mean, new_var] = moments(x, &axes)?;
    let mut outputs = vec![apply(new_mean, new_var)?];
    for (old, new, like) in [(old_mean, new_mean, mean), (old_var, new_var, var)] {
        let new = new.reshape(&old.shape())?;
        let running = g.map([old, new], |[o, n]| o * momentum + n * (1.0 - momentum))?;
        outputs.push(running.reshape(&like.shape())?.cast(like.dtype())?);
    }
    for (new, like) in [(new_mean, mean), (new_var, var)] {
        outputs.push(new.reshape(&like.shape())?.cast(like.dtype())?);
    }
    Ok(outputs)
}

/// Statistics of each sample and channel.
fn instance_norm<'g>(x: X<'g>, scale: X<'g>, b: X<'g>, epsilon: f64) -> Result<X<'g>> {
    let (g, shape, dtype) = (x.graph(), x.shape(), x.dtype());
    if shape.len() < 2 {
        refuse!("{} has no channels", x.ty());
    }
    let x = x.cast(wide(dtype))?;
    let [scale, b] = [per_channel(scale.cast(x.dtype())?, &shape)?, per_channel(b.cast(x.dtype())?, &shape)?];
    let axes: Vec<usize> = (2..shape.len()).collect();
    let [mean, inv] = mean_and_scale(x, &axes, epsilon)?;
    g.map([x, mean, inv, scale, b], |[x, m, i, s, b]| ((x - m) * i * s + b).cast(dtype))
}

/// Statistics of each sample and group of channels; scale and bias of each group, or of each channel.
fn group_norm<'g>(
    x: X<'g>,
    scale: X<'g>,
    b: X<'g>,
    epsilon: f64,
    groups: i64,
    stash: DType,
    by_channel: bool,
) -> Result<X<'g>> {
    let (g, shape, dtype) = (x.graph(), x.shape(), x.dtype());
    let count = Dim::from(groups);
    if shape.len() < 2 || groups < 1 || shape[1].as_const().is_some_and(|c| c % groups != 0) {
        refuse!("the channels of {} do not divide into {groups} groups", x.ty());
    }
    let each = &shape[1].floor_div(&count) * &Dim::product(&shape[2..]);
    let grouped = [shape[0].clone(), count, each];
    let x = x.reshape(&grouped)?.cast(stashed(stash, dtype)?)?;
    let [mean, inv] = mean_and_scale(x, &[2], epsilon)?;
    let normal = g.map([x, mean, inv], |[x, m, i]| ((x - m) * i).cast(dtype))?;
    let shape_of_params = if by_channel { &shape[..] } else { &grouped[..] };
    let [scale, b] = [per_channel(scale, shape_of_params)?, per_channel(b, shape_of_params)?];
    g.map([normal.reshape(shape_of_params)?, scale, b], |[x, s, b]| x * s + b)?.reshape(&shape)
}

/// Statistics over the axes from `axis` on. Gives the output, the mean and `1 / sqrt(variance + epsilon)`.
fn layer_norm<'g>(
    x: X<'g>,
    scale: X<'g>,
    b: Option<X<'g>>,
    axis: i64,
    epsilon: f64,
    stash: DType,
) -> Result<[X<'g>; 3]> {
    let (g, shape, dtype) = (x.graph(), x.shape(), x.dtype());
    let axes: Vec<usize> = (x.axis(axis)?..shape.len()).collect();
    let x = x.cast(stashed(stash, dtype)?)?;
    let [mean, inv] = mean_and_scale(x, &axes, epsilon)?;
    let scale = scale.broadcast_to(&shape)?;
    let y = match b {
        Some(b) => {
            g.map([x, mean, inv, scale, b.broadcast_to(&shape)?], |[x, m, i, s, b]| ((x - m) * i).cast(dtype) * s + b)?
        }
        None => g.map([x, mean, inv, scale], |[x, m, i, s]| ((x - m) * i).cast(dtype) * s)?,
    };
    Ok([y, mean.cast(stash)?, inv.cast(stash)?])
}

/// `x / sqrt(Σ x² / n + epsilon) * scale` over the axes from `axis` on; the result has the type of the scale.
fn rms_norm<'g>(x: X<'g>, scale: X<'g>, axis: i64, epsilon: f64, stash: DType) -> Result<X<'g>> {
    let (g, shape, dtype, to) = (x.graph(), x.shape(), x.dtype(), scale.dtype());
    let axes: Vec<usize> = (x.axis(axis)?..shape.len()).collect();
    let x = x.cast(stashed(stash, dtype)?)?;
    let inv = x.map(|x| x.square())?.mean(&axes, true)?.map(|v| 1.0 / (v + epsilon).sqrt())?;
    g.map([x, inv, scale.broadcast_to(&shape)?], |[x, i, s]| (x * i).cast(dtype).cast(to) * s)
}

/// `x / (Σ |x|^p)^(1/p)`, and 0 where that norm is 0.
fn lp_norm<'g>(x: X<'g>, axis: i64, p: i64) -> Result<X<'g>> {
    let (g, dtype, axis) = (x.graph(), x.dtype(), x.axis(axis)?);
    let x = x.cast(wide(dtype))?;
    let norm = match p {
        1 => x.map(|x| x.abs())?.sum(&[axis], true)?,
        2 => x.map(|x| x.square())?.sum(&[axis], true)?.map(|x| x.sqrt())?,
        _ => refuse!("p is {p}, supported are 1 and 2"),
    };
    g.map([x, norm], |[x, n]| n.eq(0.0).select(n, x / n).cast(dtype))
}

/// `x / (bias + alpha / size * Σ x²) ^ beta`, summed over `size` neighbouring channels.
fn local_response<'g>(x: X<'g>, alpha: f64, beta: f64, bias: f64, size: i64) -> Result<X<'g>> {
    let (g, dtype, rank) = (x.graph(), x.dtype(), x.rank());
    if size < 1 || rank < 2 {
        refuse!("size {size} does not fit the channels of {}", x.ty());
    }
    let x = x.cast(wide(dtype))?;
    let one = Window { stride: 1, dilation: 1, low: Dim::ZERO, high: Dim::ZERO };
    let channels = Window { low: Dim::from((size - 1) / 2), high: Dim::from(size / 2), ..one.clone() };
    let (mut sizes, mut windows) = (vec![1; rank - 1], vec![one; rank - 1]);
    (sizes[0], windows[0]) = (size, channels);
    let sum = x.map(|x| x.square())?.window(ReduceFn::Sum, &sizes, &windows)?.reshape(&x.shape())?;
    let factor = alpha / size as f64;
    g.map([x, sum], |[x, s]| (x / (s * factor + bias).pow(beta)).cast(dtype))
}

/// `(x - mean) / (sqrt(variance) + 1e-9)`
fn mean_variance<'g>(x: X<'g>, axes: &[i64]) -> Result<X<'g>> {
    let (g, dtype, axes) = (x.graph(), x.dtype(), once(x.axes(axes)?));
    let x = x.cast(wide(dtype))?;
    let [mean, var] = moments(x, &axes)?;
    g.map([x, mean, var], |[x, m, v]| ((x - m) / (v.sqrt() + 1e-9)).cast(dtype))
}
