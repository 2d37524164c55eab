//! Fourier transforms, window functions and mel filters.
use super::reduce::{around, size};
use crate::onnx::import::table::{Types, onnx_ops};
use numrsc_ir::{
    DType, Dim, Result,
    build::{Graph, TwoSteps, Wave, X},
    expr::S,
    refuse,
};
use std::f64::consts::{LN_10, TAU};

onnx_ops! { pub(super) SIGNAL in "", |g, cx|
    "DFT"            17 (x: Float; dft_length: Index)
        { axis: i64 = 1, inverse: bool = false, onesided: bool = false }
        => dft(x, dft_length, Some(g.ints(&[axis])?), inverse, onesided);
    "DFT"            20 (x: Float; dft_length: Index, axis: Index) { inverse: bool = false, onesided: bool = false }
        => dft(x, dft_length, axis, inverse, onesided);
    "STFT"           17 (x: Float, frame_step: Index; window: Float, frame_length: Index) { onesided: bool = true }
        => stft(x, frame_step, window, frame_length, onesided);
    "HannWindow"     17 (size: Index) { output_datatype: DType = DType::F32, periodic: bool = true }
        => window(size, output_datatype, periodic, |turn| 0.5 - turn.cos() * 0.5);
    "HammingWindow"  17 (size: Index) { output_datatype: DType = DType::F32, periodic: bool = true }
        => window(size, output_datatype, periodic, |turn| HAMMING - turn.cos() * (1.0 - HAMMING));
    "BlackmanWindow" 17 (size: Index) { output_datatype: DType = DType::F32, periodic: bool = true }
        => window(size, output_datatype, periodic, |turn| 0.42 - turn.cos() * 0.5 + (turn * 2.0).cos() * 0.08);
    "MelWeightMatrix" 17 (num_mel_bins: Index, dft_length: Index, sample_rate: Index, lower: Float, upper: Float)
        { output_datatype: DType = DType::F32 }
        => mel_weights(g, [num_mel_bins, dft_length, sample_rate], [lower, upper], output_datatype);
}

const HAMMING: f64 = 25.0 / 46.0;

/// The transform along an axis, the last signal axis by default. The last axis holds real and imaginary parts.
fn dft<'g>(x: X<'g>, length: Option<X<'g>>, axis: Option<X<'g>>, inverse: bool, onesided: bool) -> Result<X<'g>> {
    let (g, shape) = (x.graph(), x.shape());
    let Some((parts, signal)) = shape.split_last().filter(|(_, s)| !s.is_empty()) else {
        refuse!("{} is not a signal with an axis for real and imaginary parts", x.ty());
    };
    let rank = shape.len();
    let axis = axis.map_or_else(|| g.ints(&[-2]), Ok)?;
    let known = match axis.as_ints().as_deref() {
        Some([a]) => match x.axis(*a)? {
            a if a + 1 == rank => refuse!("axis {a} of {} holds real and imaginary parts", x.ty()),
            a => Some(a),
        },
        _ => None,
    };
    let axis = axis.reshape(&[])?.wrap_indices(&Dim::from(rank))?;
    let [outer, n, inner] = match known {
        Some(a) => [Dim::product(&signal[..a]), signal[a].clone(), Dim::product(&signal[a + 1..])],
        None => around(g.full(DType::Bool, 0.0, signal)?, axis)?,
    };
    let length = match length {
        Some(l) => size(l)?,
        None if inverse && onesided => &(&n - &Dim::ONE) * &Dim::from(2usize),
        None => n.clone(),
    };
    let y = transform(x.reshape(&[outer, n, inner, parts.clone()])?, &length, inverse, onesided)?;
    let (bins, parts) = (y.dim(1)?, y.dim(3)?);
    let mut to = shape.clone();
    match known {
        Some(a) => to[a] = bins,
        None => {
            let places = g.range(DType::I64, &Dim::from(rank))?;
            let sizes = g.map([g.dims(&shape)?, places, axis, g.size(&bins)?], |[d, i, a, n]| i.eq(a).select(n, d))?;
            to = sizes.to_sizes()?;
        }
    }
    to[rank - 1] = parts;
    y.reshape(&to)
}

/// `y[k] = Σ x[n] * exp(∓2πi * k * n / N)` along axis 1 of `x[outer, n, inner, parts]`; the inverse has the plus sign
/// and is divided by `N`. One-sided spectra hold the first `N / 2 + 1` bins of a real signal's.
fn transform<'g>(x: X<'g>, length: &Dim, inverse: bool, onesided: bool) -> Result<X<'g>> {
    let (g, shape, dtype) = (x.graph(), x.shape(), x.dtype());
    let [_, n, _, parts] = &shape[..] else { refuse!("{} is not a batch of signals", x.ty()) };
    let two = Dim::from(2usize);
    let half = &length.floor_div(&two) + &Dim::ONE;
    let (taken, bins) = match (inverse, onesided) {
        (true, true) => (&half, length),
        (false, true) => (length, &half),
        (_, false) => (length, length),
    };
    // A real signal has no imaginary parts; where it is not known whether there are any, add what is missing.
    let in_parts = match parts.as_const() {
        None | Some(2) => two.clone(),
        Some(1) => Dim::ONE,
        Some(_) => refuse!("the last axis of the signal has size {parts}, not 1 or 2"),
    };
    let out_parts = if inverse && onesided { Dim::ONE } else { two };
    let waves = if inverse && onesided { None } else { waves(length, &in_parts, bins, inverse) };
    let steps = waves.as_ref().and_then(|waves| TwoSteps::new(length.as_const()? as usize, waves));
    // In f64 unless sums are short: a plain sum of N terms loses more digits than the fast transforms that others compare with.
    let wide = if steps.is_some() && dtype != DType::F64 { DType::F32 } else { DType::F64 };
    let high = [Dim::ZERO, taken - n, Dim::ZERO, &in_parts - parts];
    let low = [const { Dim::ZERO }; 4];
    let mut x = x.cast(wide)?.pad(&low, &high, g.scalar(wide, 0.0)?)?;
    if let Some(steps) = steps {
        return x.in_two_steps(&steps)?.transpose(&[0, 2, 1, 3])?.cast(dtype);
    }
    if inverse && onesided {
        // The bins that are left out mirror those that are there, except the first and (of an even length) the last.
        let k = g.iota(DType::I64, &[taken.clone(), Dim::ONE, Dim::ONE], 0)?;
        x = g.map([x, k, g.size(length)?], |[x, k, n]| k.eq(0.0).or((k * 2.0).eq(n)).select(x, x * 2.0))?;
    }
    let at = products(g, &[taken.clone(), bins.clone()])?;
    let scale = if inverse { length } else { &Dim::ONE };
    let turns = rotations(at, length, [in_parts, out_parts], inverse, scale)?;
    x.contract(turns, &[], &[(1, 0), (3, 2)])?.transpose(&[0, 2, 1, 3])?.cast(dtype)
}

/// Longer ones are not looked at: their tables are too large in any case.
const LONGEST: usize = 1 << 16;

/// What each bin of a transform of known length multiplies its signal with.
fn waves(length: &Dim, parts: &Dim, bins: &Dim, inverse: bool) -> Option<Vec<Wave>> {
    let known = |d: &Dim| d.as_const().and_then(|n| usize::try_from(n).ok()).filter(|n| *n <= LONGEST);
    let [length, parts, bins] = [length, parts, bins].map(known);
    let (sign, scale) = if inverse { (-1.0, 1.0 / length? as f64) } else { (1.0, 1.0) };
    // (x + iy) * exp(∓it) = x * cos t ± y * sin t + i * (y * cos t ∓ x * sin t)
    let real = [[scale, 0.0], [0.0, sign * scale]];
    let imaginary = [[0.0, -sign * scale], [scale, 0.0]];
    let sums = [&real[..parts?], &imaginary[..parts?]].map(<[_]>::to_vec).to_vec();
    Some((0..bins?).map(|frequency| Wave { frequency, sums: sums.clone() }).collect())
}

/// `exp(∓2πi * m / N) / scale` for every `m`, as the matrix that multiplies (real, imaginary), on two new axes. It is that of `m` modulo N, which keeps it
/// exact.
fn rotations<'g>(m: X<'g>, n: &Dim, [from, to]: [Dim; 2], inverse: bool, scale: &Dim) -> Result<X<'g>> {
    let (g, sign, table) = (m.graph(), if inverse { -1.0 } else { 1.0 }, [n.clone(), from, to]);
    let [i, from, to] = [0, 1, 2].map(|axis| g.iota(DType::I64, &table, axis));
    let table = g.map([i?, from?, to?, g.size(n)?, g.size(scale)?], |[i, from, to, n, scale]| {
        let angle = i.cast(DType::F64) * TAU / n.cast(DType::F64);
        let sin = angle.sin() * sign;
        from.eq(to).select(angle.cos(), from.lt(to).select(-sin, sin)) / scale.cast(DType::F64)
    })?;
    table.gather(g.map([m, g.size(n)?], |[m, n]| m.modulo(n))?, 0, 0)
}

/// `i * k` for every `i` and `k` below these.
fn products<'g>(g: &'g Graph, sizes: &[Dim; 2]) -> Result<X<'g>> {
    g.map([g.iota(DType::I64, sizes, 0)?, g.iota(DType::I64, sizes, 1)?], |[i, k]| i * k)
}

/// Transforms of frames of the signal `x[batch, n, parts]`, each multiplied by the window.
fn stft<'g>(
    x: X<'g>,
    step: X<'g>,
    window: Option<X<'g>>,
    frame_length: Option<X<'g>>,
    onesided: bool,
) -> Result<X<'g>> {
    // A real signal may lack the last axis (ONNX Runtime takes it so, and exporters rely on it).
    let x = if x.rank() == 2 { x.unsqueeze(&[2])? } else { x };
    let (g, shape) = (x.graph(), x.shape());
    let [batch, n, parts] = &shape[..] else { refuse!("the signal has two or three axes, not {}", x.ty()) };
    let length = match (frame_length, window) {
        (Some(l), _) => size(l)?,
        (None, Some(w)) => w.dim(0)?,
        (None, None) => n.clone(),
    };
    let step = size(step)?;
    let count = &(n - &length).floor_div(&step) + &Dim::ONE;
    let grid = [count.clone(), length.clone()];
    let (frame, i) = (g.iota(DType::I64, &grid, 0)?, g.iota(DType::I64, &grid, 1)?);
    let at = g.map([frame, i, g.size(&step)?], |[f, i, s]| f * s + i)?;
    let mut frames = x.gather(at, 1, 0)?;
    if let Some(w) = window {
        frames = g.map([frames, w.reshape(&[length.clone(), Dim::ONE])?], |[x, w]| x * w)?;
    }
    let frames = frames.reshape(&[batch * &count, length.clone(), Dim::ONE, parts.clone()])?;
    let y = transform(frames, &length, false, onesided)?;
    y.reshape(&[batch.clone(), count, y.dim(1)?, y.dim(3)?])
}

fn number_type(dtype: DType) -> Result<()> {
    if !Types::Num.holds(dtype) {
        refuse!("output_datatype {dtype} is not a number; supported are {}", Types::Num.list());
    }
    Ok(())
}

/// `f(2π * i / n)` for `i < size`, where `n` is the size, or one less for a window that ends where it begins.
fn window(n: X<'_>, dtype: DType, periodic: bool, f: impl for<'e> FnOnce(S<'e>) -> S<'e>) -> Result<X<'_>> {
    number_type(dtype)?;
    let (g, count) = (n.graph(), size(n)?);
    let last = if periodic { count.clone() } else { &count - &Dim::ONE };
    g.map([g.range(DType::I64, &count)?, g.size(&last)?], |[i, n]| {
        f(i.cast(DType::F64) * TAU / n.cast(DType::F64)).cast(dtype)
    })
}

/// Triangular filters over the bins of a one-sided spectrum, evenly spaced on the scale `2595 * log10(1 + f / 700)`.
fn mel_weights<'g>(
    g: &'g Graph,
    [bands, length, rate]: [X<'g>; 3],
    [lower, upper]: [X<'g>; 2],
    dtype: DType,
) -> Result<X<'g>> {
    number_type(dtype)?;
    let (bands, length) = (size(bands)?, size(length)?);
    let bins = &length.floor_div(&Dim::from(2usize)) + &Dim::ONE;
    let edges = &bands + &Dim::from(2usize);
    let [lower, upper, rate] = [lower.reshape(&[])?, upper.reshape(&[])?, rate.reshape(&[])?];
    let inputs = [g.range(DType::I64, &edges)?, lower, upper, g.size(&edges)?, g.size(&length)?, rate];
    // The bin in which each edge of a triangle lies.
    let edge = g.map(inputs, |[i, low, high, count, length, rate]| {
        let [low, high] = [low, high].map(|hertz| (hertz.cast(DType::F64) / 700.0).log1p() * (2595.0 / LN_10));
        let step = (high - low) / count.cast(DType::F64);
        let hertz = ((i.cast(DType::F64) * step + low) * (LN_10 / 2595.0)).expm1() * 700.0;
        ((length + 1.0).cast(DType::F64) * hertz / rate.cast(DType::F64)).floor().cast(DType::I64)
    })?;
    let part = |start: usize| edge.slice_axis(0, &Dim::from(start), &bands, 1);
    let bin = g.iota(DType::I64, &[bins, bands.clone()], 0)?;
    g.map([bin, part(0)?, part(1)?, part(2)?], |[j, left, peak, right]| {
        let [rise, width, fall, slope] =
            [j - left, peak - left, right - j, right - peak].map(|steps| steps.cast(DType::F64));
        let rising = width.eq(0.0).select(rise.lit(1.0), rise / width);
        let outside = j.lt(left).or(j.gt(peak)).select(rise.lit(0.0), rising);
        j.ge(peak).and(j.lt(right)).select(fall / slope, outside).cast(dtype)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use numrsc_ir::{Tensor, eval::eval};

    /// What a transform in two steps gives is the plain sum, up to rounding.
    #[test]
    fn two_steps_are_one_transform() {
        for (n, parts, inverse, onesided) in [
            (64, 1, false, true),
            (45, 1, false, true),
            (45, 1, false, false),
            (36, 2, true, false),
            (50, 1, true, false),
        ] {
            let signal: Vec<f32> = (0..n * parts).map(|i| ((i * i * 7 + 3 * i) % 31) as f32 / 31.0 - 0.4).collect();
            let g = Graph::new();
            let x = g.constant(Tensor::from_f32(&[1, n, 1, parts], &signal)).unwrap();
            let length = Dim::from(n);
            let bins = if onesided { n / 2 + 1 } else { n };
            let waves = waves(&length, &Dim::from(parts), &Dim::from(bins), inverse).unwrap();
            assert!(TwoSteps::new(n, &waves).is_some(), "{n}");
            let y = transform(x, &length, inverse, onesided).unwrap().value();
            let y = eval(&g.finish(&[y]), &[]).unwrap()[0].as_tensor().unwrap().to_f64s();
            assert_eq!(y.len(), 2 * bins);
            for k in 0..bins {
                let mut sum = [0.0; 2];
                for i in 0..n {
                    let turn = TAU * ((i * k) % n) as f64 / n as f64;
                    let (sin, cos) = if inverse { turn.sin_cos() } else { (-turn).sin_cos() };
                    let real = f64::from(signal[i * parts]);
                    let imaginary = if parts == 2 { f64::from(signal[i * parts + 1]) } else { 0.0 };
                    sum = [sum[0] + real * cos - imaginary * sin, sum[1] + real * sin + imaginary * cos];
                }
                let scale = if inverse { n as f64 } else { 1.0 };
                for part in 0..2 {
                    let (is, should) = (y[2 * k + part], sum[part] / scale);
                    assert!((is - should).abs() < 1e-5, "{n} {k} {part}: {is}, not {should}");
                }
            }
        }
    }
}
