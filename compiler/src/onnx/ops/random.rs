//! Random numbers. The number at a place is a hash of the place and the seed, so results do not depend on the order
//! or the number of threads that compute them, and repeat from run to run.
use super::math::{single, wide};
use crate::onnx::import::{
    Ctx,
    table::{Outputs, onnx_ops},
};
use numrsc_ir::{
    DType, Dim, ReduceFn, Result,
    build::{Graph, X},
    expr::S,
    refuse,
};
use std::f64::consts::TAU;

onnx_ops! { pub(super) RANDOM in "", |g, cx|
    "RandomNormal"       1 ()
        { shape: Vec<i64>, dtype: DType = DType::F32, seed: Option<f64>, mean: f64 = 0.0, scale: f64 = 1.0 }
        => normal(g, seed_of(cx, seed), dtype, &sizes(&shape)?, mean, scale);
    "RandomNormalLike"   1 (x: Any)   { dtype: Option<DType>, seed: Option<f64>, mean: f64 = 0.0, scale: f64 = 1.0 }
        => normal(g, seed_of(cx, seed), dtype.unwrap_or(x.dtype()), &x.shape(), mean, scale);
    "RandomUniform"      1 ()
        { shape: Vec<i64>, dtype: DType = DType::F32, seed: Option<f64>, low: f64 = 0.0, high: f64 = 1.0 }
        => uniform(g, seed_of(cx, seed), dtype, &sizes(&shape)?, low, high);
    "RandomUniformLike"  1 (x: Any)   { dtype: Option<DType>, seed: Option<f64>, low: f64 = 0.0, high: f64 = 1.0 }
        => uniform(g, seed_of(cx, seed), dtype.unwrap_or(x.dtype()), &x.shape(), low, high);
    "Bernoulli"         15 (x: Float) { dtype: Option<DType>, seed: Option<f64> }
        => bernoulli(x, seed_of(cx, seed), dtype.unwrap_or(x.dtype()));
    "Multinomial"        7 (x: Float) { dtype: DType = DType::I32, sample_size: i64 = 1, seed: Option<f64> }
        => multinomial(x, seed_of(cx, seed), dtype, sample_size);

    // Training was a matter of an attribute first, then not possible, and is an input now. The mask was a number first.
    "Dropout"            1 (x: Float) { is_test: bool = false, ratio: f64 = 0.5 }
        => old_dropout(x, cx.seed(), is_test, ratio);
    "Dropout"            7 (x: Float) { ratio: f64 = 0.5 }                        => kept(x, x.dtype());
    "Dropout"           10 (x: Float) { ratio: f64 = 0.5 }                        => kept(x, DType::Bool);
    "Dropout"           12 (x: AnyFloat; ratio: AnyFloat, training_mode: Bool) { seed: Option<i64> }
        => dropout(x, seed.map_or(cx.seed(), |s| s as u64), ratio, training_mode);
}

fn seed_of(cx: &Ctx<'_, '_>, seed: Option<f64>) -> u64 {
    seed.map_or(cx.seed(), f64::to_bits)
}

fn sizes(shape: &[i64]) -> Result<Vec<Dim>> {
    match shape.iter().find(|&&n| n < 0) {
        Some(n) => refuse!("attribute `shape` has the negative size {n}"),
        None => Ok(shape.iter().map(|&n| Dim::Const(n)).collect()),
    }
}

/// SplitMix64: the finaliser of a counter that starts anywhere and advances by the golden ratio. Seeds go through it
/// first, so that close seeds give unrelated numbers.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const MIX: [(u32, u64); 2] = [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)];
const LAST: u32 = 31;

fn mixed(seed: u64) -> u64 {
    let z = MIX.iter().fold(seed.wrapping_add(STEP), |z, &(shift, factor)| (z ^ (z >> shift)).wrapping_mul(factor));
    z ^ (z >> LAST)
}

fn scramble(z: S<'_>, shift: u32) -> S<'_> {
    z.xor(z.shr(f64::from(shift)))
}

/// 64 random bits for every element of a shape.
fn bits<'g>(g: &'g Graph, seed: u64, shape: &[Dim]) -> Result<X<'g>> {
    let count = Dim::product(shape);
    let start = i128::from(mixed(seed));
    let hashed = g.range(DType::U64, &count)?.map(|i| {
        let z = i * i.int(i128::from(STEP)) + i.int(start);
        let z = scramble(z, MIX[0].0) * z.int(i128::from(MIX[0].1));
        let z = scramble(z, MIX[1].0) * z.int(i128::from(MIX[1].1));
        scramble(z, LAST)
    })?;
    hashed.reshape(shape)
}

/// The float type in which numbers of type `d` are drawn.
fn working(d: DType) -> Result<DType> {
    if !d.is_float() || d.bits() < 16 {
        refuse!("random numbers of type {d} are not supported; floats of 16 bits or more are");
    }
    Ok(if d == DType::F64 { DType::F64 } else { DType::F32 })
}

/// As many of the highest bits as the type holds, as a number in [0, 1).
fn fraction(bits: S<'_>, within: DType) -> S<'_> {
    let digits = if within == DType::F64 { 53 } else { 24 };
    bits.shr(f64::from(64 - digits)).cast(within) * 2f64.powi(-digits)
}

fn uniform<'g>(g: &'g Graph, seed: u64, dtype: DType, shape: &[Dim], low: f64, high: f64) -> Result<X<'g>> {
    let within = working(dtype)?;
    bits(g, seed, shape)?.map(|z| (fraction(z, within) * (high - low) + low).cast(dtype))
}

/// Box-Muller: `sqrt(-2 log(u)) * cos(2π v)`, with `u` in (0, 1] from the upper half of the bits, `v` from the lower.
fn normal<'g>(g: &'g Graph, seed: u64, dtype: DType, shape: &[Dim], mean: f64, scale: f64) -> Result<X<'g>> {
    let within = working(dtype)?;
    let unit = 2f64.powi(-32);
    bits(g, seed, shape)?.map(|z| {
        let u = (z.shr(32.0) + 1.0).cast(within) * unit;
        let v = z.and(z.int(0xffff_ffff)).cast(within) * unit;
        ((u.log() * -2.0).sqrt() * (v * TAU).cos() * scale + mean).cast(dtype)
    })
}

/// 1 with the probability that the element states.
fn bernoulli(x: X<'_>, seed: u64, dtype: DType) -> Result<X<'_>> {
    if dtype == DType::Str {
        refuse!("attribute `dtype` is a string, which is not a number");
    }
    let (g, within) = (x.graph(), working(x.dtype())?);
    g.map([bits(g, seed, &x.shape())?, x], |[z, p]| fraction(z, within).lt(p.cast(within)).cast(dtype))
}

/// Draw class numbers by the unnormalised log-probabilities in each row: the number of classes whose cumulative
/// probability does not exceed a uniform number.
fn multinomial(x: X<'_>, seed: u64, dtype: DType, samples: i64) -> Result<X<'_>> {
    let (g, within) = (x.graph(), working(x.dtype())?);
    let [rows, classes] = &x.shape()[..] else { refuse!("{} is not a matrix of rows and classes", x.ty()) };
    if !matches!(dtype, DType::I32 | DType::I64) || samples < 0 {
        refuse!("Multinomial draws {samples} numbers of type {dtype}; supported are i32 and i64");
    }
    let samples = Dim::Const(samples);
    let x = x.cast(within)?;
    let weights = g.map([x, x.max(&[1], true)?], |[x, most]| (x - most).exp())?;
    let bounds = weights.scan(ReduceFn::Sum, 1, false, false)?.unsqueeze(&[1])?;
    let total = weights.sum(&[1], true)?;
    let drawn = g.map([bits(g, seed, &[rows.clone(), samples])?, total], |[z, total]| fraction(z, within) * total)?;
    let below = g.map([bounds, drawn.unsqueeze(&[2])?], |[bound, u]| bound.le(u).cast(DType::I64))?;
    let last = g.size(&(classes - &Dim::ONE))?;
    g.map([below.sum(&[2], false)?, last], |[class, last]| class.min(last).cast(dtype))
}

/// Nothing dropped, with the mask that says so.
fn kept(x: X<'_>, mask: DType) -> Result<[X<'_>; 2]> {
    Ok([x, x.graph().full(mask, 1.0, &x.shape())?])
}

fn old_dropout(x: X<'_>, seed: u64, is_test: bool, ratio: f64) -> Result<Outputs<'_>> {
    let mask_type = x.dtype();
    if is_test {
        return Ok(kept(x, mask_type)?.map(Some).to_vec());
    }
    let ratio = x.graph().scalar(DType::F32, ratio)?;
    let [y, mask] = dropped(x, seed, ratio, None)?;
    Ok(vec![Some(y), Some(mask.cast(mask_type)?)])
}

fn dropout<'g>(x: X<'g>, seed: u64, ratio: Option<X<'g>>, training: Option<X<'g>>) -> Result<[X<'g>; 2]> {
    let Some(training) = training.filter(|t| t.as_number() != Some(0.0)) else { return kept(x, DType::Bool) };
    let ratio = match ratio {
        Some(r) => single(r)?,
        None => x.graph().scalar(DType::F32, 0.5)?,
    };
    dropped(x, seed, ratio, Some(single(training)?))
}

/// Zero with probability `ratio`, and everything else larger by `1 / (1 - ratio)`, if `training` holds.
fn dropped<'g>(x: X<'g>, seed: u64, ratio: X<'g>, training: Option<X<'g>>) -> Result<[X<'g>; 2]> {
    let g = x.graph();
    let training = match training {
        Some(t) => t,
        None => g.scalar(DType::Bool, 1.0)?,
    };
    let mask = g.map([bits(g, seed, &x.shape())?, ratio, training], |[z, ratio, training]| {
        fraction(z, DType::F32).ge(ratio.cast(DType::F32)).or(training.not())
    })?;
    let y = g.map([x, mask, ratio, training], |[x, mask, ratio, training]| {
        let v = wide(x);
        let scaled = v / (1.0 - ratio.cast(v.dtype()));
        training.select(mask.select(scaled, 0.0), v).cast(x.dtype())
    })?;
    Ok([y, mask])
}

#[cfg(test)]
mod tests {
    use super::*;
    use numrsc_ir::{Tensor, eval::eval};

    /// The numbers of a tensor that depends on nothing.
    fn numbers(build: impl for<'g> Fn(&'g Graph) -> Result<X<'g>>) -> Vec<f64> {
        let g = Graph::new();
        let x = build(&g).unwrap().value();
        eval(&g.finish(&[x]), &[]).unwrap()[0].as_tensor().unwrap().to_f64s()
    }

    fn mean(v: &[f64]) -> f64 {
        v.iter().sum::<f64>() / v.len() as f64
    }

    #[test]
    fn numbers_follow_their_distribution() {
        let shape = [Dim::Const(64), Dim::Const(64)];
        for seed in [0, 1, 0x4020_0000_0000_0000] {
            for dtype in [DType::F32, DType::F64, DType::F16] {
                let u = numbers(|g| uniform(g, seed, dtype, &shape, -1.0, 3.0));
                assert!((mean(&u) - 1.0).abs() < 0.1 && u.iter().all(|x| (-1.0..=3.0).contains(x)));
                let n = numbers(|g| normal(g, seed, dtype, &shape, 2.0, 0.5));
                let squares: Vec<f64> = n.iter().map(|x| (x - 2.0) * (x - 2.0)).collect();
                assert!((mean(&n) - 2.0).abs() < 0.05 && (mean(&squares) - 0.25).abs() < 0.02);
                // Neighbours have nothing to do with each other.
                let pairs: Vec<f64> = n.windows(2).map(|w| (w[0] - 2.0) * (w[1] - 2.0)).collect();
                assert!(mean(&pairs).abs() < 0.02);
            }
        }
        let by = |seed| numbers(|g| uniform(g, seed, DType::F32, &shape, 0.0, 1.0));
        assert_eq!(by(7), by(7));
        assert!(by(7).iter().zip(by(8)).filter(|(a, b)| **a == *b).count() < 4);
    }

    #[test]
    fn draws_follow_their_probabilities() {
        let drawn = numbers(|g| bernoulli(g.full(DType::F32, 0.3, &[Dim::Const(4096)])?, 5, DType::U8));
        assert!((mean(&drawn) - 0.3).abs() < 0.03);
        // Probabilities 1/7, 4/7, 0, 2/7.
        let logs = Tensor::from_f32(&[1, 4], &[0.0, 4f32.ln(), f32::NEG_INFINITY, 2f32.ln()]);
        let drawn = numbers(|g| multinomial(g.constant(logs.clone())?, 5, DType::I64, 1000));
        let share = |class: f64| drawn.iter().filter(|x| **x == class).count() as f64 / 1000.0;
        for (class, p) in [(0.0, 1.0 / 7.0), (1.0, 4.0 / 7.0), (2.0, 0.0), (3.0, 2.0 / 7.0)] {
            assert!((share(class) - p).abs() < 0.05, "class {class}: {}", share(class));
        }
    }

    #[test]
    fn dropout_keeps_the_mean() {
        let output = |i: usize| {
            numbers(|g| {
                let x = g.full(DType::F32, 2.0, &[Dim::Const(4096)])?;
                Ok(dropped(x, 3, g.scalar(DType::F32, 0.75)?, None)?[i])
            })
        };
        assert!((mean(&output(0)) - 2.0).abs() < 0.2);
        assert!((mean(&output(1)) - 0.25).abs() < 0.03);
    }
}
