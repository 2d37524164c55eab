//! How far results are from the true ones, in units of the last place of the true result, over all exponents.
use crate::{
    call,
    tests::machine::{Code, function},
};
use numrsc_ir::{
    DType, ScalarFn,
    kernel::{Elem, Ty},
};

const LANES: usize = 256;

/// The largest error that is accepted, in `f32` and in `f64`. Of `f64`, the references have errors of their own, `erf`
/// most of all.
const LIMITS: &[(ScalarFn, f64, f64)] = &[
    (ScalarFn::Exp, 1.1, 1.0),
    (ScalarFn::Expm1, 0.51, 2.0),
    (ScalarFn::Log, 1.1, 1.0),
    (ScalarFn::Log1p, 0.51, 2.0),
    (ScalarFn::Sin, 1.7, 1.0),
    (ScalarFn::Cos, 1.7, 1.0),
    (ScalarFn::Tan, 0.51, 2.0),
    (ScalarFn::Asin, 0.51, 2.0),
    (ScalarFn::Acos, 0.51, 2.0),
    (ScalarFn::Atan, 0.51, 2.0),
    (ScalarFn::Sinh, 0.51, 2.0),
    (ScalarFn::Cosh, 0.51, 2.0),
    (ScalarFn::Tanh, 2.8, 3.0),
    (ScalarFn::Asinh, 0.51, 3.0),
    (ScalarFn::Acosh, 0.51, 3.0),
    (ScalarFn::Atanh, 0.51, 2.0),
    (ScalarFn::Erf, 2.8, 8.0),
    (ScalarFn::Pow, 0.51, 1.0),
    (ScalarFn::Atan2, 0.51, 2.0),
];

/// One function over vectors of a type.
pub(crate) fn compiled(f: ScalarFn, dtype: DType, lanes: usize) -> Code {
    let elem = if dtype == DType::F64 { Elem::F64 } else { Elem::F32 };
    let params = vec![Ty::vector(elem, lanes as u32); f.arity()];
    function(&params, |b, args| call(b, f, &vec![dtype; f.arity()], dtype, args))
}

/// A fixed sequence of random bits (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From `low` to `high`.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.bits() >> 11) as f64 / 2f64.powi(53)
    }
}

const SPECIAL: &[f64] = &[
    0.0,
    1.0,
    0.5,
    2.0,
    3.0,
    10.0,
    1e-3,
    std::f64::consts::PI,
    std::f64::consts::FRAC_PI_2,
    std::f64::consts::FRAC_PI_4,
    std::f64::consts::LN_2,
    f32::MIN_POSITIVE as f64,
    f32::MAX as f64,
    1.401298464324817e-45,
    f64::MIN_POSITIVE,
    f64::MAX,
    5e-324,
    f64::INFINITY,
    f64::NAN,
    16367173.0 * 4722366482869645213696.0,
];

/// Every exponent with `each` random mantissas and both signs, what lies around 0, and the special values.
pub(crate) fn points(dtype: DType, each: usize) -> Vec<f64> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut out = vec![];
    let (exponents, mantissa) = if dtype == DType::F64 { (2047u64, 52) } else { (255, 23) };
    let value =
        |bits: u64| if dtype == DType::F64 { f64::from_bits(bits) } else { f64::from(f32::from_bits(bits as u32)) };
    for exponent in 0..exponents {
        for i in 0..each {
            // The ends of a binade, too.
            let m = match i {
                0 => 0,
                1 => (1 << mantissa) - 1,
                _ => random.bits() & ((1 << mantissa) - 1),
            };
            let x = value((exponent << mantissa) | m);
            out.extend([x, -x]);
        }
    }
    for range in [1.0, 4.0, 30.0, 120.0, 750.0, 5000.0] {
        out.extend((0..each * 40).map(|_| dtype.round(random.between(-range, range))));
    }
    // Around 1, where log vanishes and asin ends.
    out.extend((0..each * 40).map(|_| dtype.round(1.0 + random.between(-1.0, 1.0) * random.between(0.0, 1.0).powi(8))));
    for &x in SPECIAL {
        out.extend([dtype.round(x), dtype.round(-x)]);
    }
    out
}

/// Bits of a number of the type.
pub(crate) fn to_bits(dtype: DType, x: f64) -> u64 {
    if dtype == DType::F64 { x.to_bits() } else { u64::from((x as f32).to_bits()) }
}

pub(crate) fn from_bits(dtype: DType, bits: u64) -> f64 {
    if dtype == DType::F64 { f64::from_bits(bits) } else { f64::from(f32::from_bits(bits as u32)) }
}

/// The distance in units of the last place of `want`; infinite where exactly one is NaN, or the sign of 0 differs.
pub(crate) fn ulps(dtype: DType, got: f64, want: f64) -> f64 {
    let rounded = dtype.round(want);
    if got == rounded || (got.is_nan() && want.is_nan()) {
        let same_sign = got.is_nan() || got.is_sign_negative() == want.is_sign_negative();
        // An error below half a unit is told from one of exactly 0 by the reference's own digits.
        let inside = if got.is_finite() { (got - want).abs() / unit(dtype, want) } else { 0.0 };
        return if same_sign { inside } else { f64::INFINITY };
    }
    if got.is_nan() || want.is_nan() {
        return f64::INFINITY;
    }
    // At the end of the range, infinity counts as the next number.
    let clip =
        |x: f64| if x.is_infinite() { (dtype.max_finite() + unit(dtype, dtype.max_finite())).copysign(x) } else { x };
    let (got, want) = if dtype == DType::F64 { (got, want) } else { (clip(got), clip(want)) };
    (got - want).abs() / unit(dtype, want)
}

fn unit(dtype: DType, x: f64) -> f64 {
    let (mantissa, least) = if dtype == DType::F64 { (52, -1022) } else { (23, -126) };
    let exponent = ((x.abs().to_bits() >> 52) as i32 - 1023).clamp(least, 1023) - mantissa;
    // 2^exponent, which may be a subnormal.
    f64::from_bits(if exponent < -1022 { 1 << (exponent + 1074) } else { ((exponent + 1023) as u64) << 52 })
}

fn results(code: &Code, fused: bool, dtype: DType, args: &[Vec<f64>]) -> Vec<f64> {
    let columns: Vec<Vec<u64>> = args.iter().map(|a| a.iter().map(|&x| to_bits(dtype, x)).collect()).collect();
    code.run(fused, &columns).into_iter().map(|bits| from_bits(dtype, bits)).collect()
}

/// What the function is, in `f64`.
fn reference(f: ScalarFn, x: f64, y: f64) -> f64 {
    match f {
        // The library's formulas cancel near 1 and overflow.
        ScalarFn::Acosh if (1.0..2.0).contains(&x) => {
            let t = x - 1.0;
            (t + (2.0 * t + t * t).sqrt()).ln_1p()
        }
        ScalarFn::Acosh | ScalarFn::Asinh if x.abs() > 1e200 && (x > 0.0 || f == ScalarFn::Asinh) => {
            (x.abs().ln() + std::f64::consts::LN_2).copysign(x)
        }
        ScalarFn::Atanh => x.abs().atanh().copysign(x),
        _ => f.float()(x, y),
    }
}

fn operands(f: ScalarFn, dtype: DType, each: usize) -> Vec<Vec<f64>> {
    let xs = points(dtype, each);
    if f.arity() == 1 {
        return vec![xs];
    }
    // Every special pair, then pairs whose power or angle is neither 0 nor infinite, then any pairs.
    let special: Vec<f64> = SPECIAL.iter().flat_map(|&x| [dtype.round(x), dtype.round(-x)]).collect();
    let mut pairs: Vec<(f64, f64)> = special.iter().flat_map(|&x| special.iter().map(move |&y| (x, y))).collect();
    let mut random = Random(77);
    for &x in &xs {
        let y = match f {
            ScalarFn::Pow => random.between(-750.0, 750.0) / x.abs().ln().abs().max(1e-12),
            _ => x * random.between(-3.0, 3.0),
        };
        pairs.push((x, dtype.round(y)));
        pairs.push((x.abs(), dtype.round(y.round())));
        pairs.push((dtype.round(random.between(-9.0, 9.0).round()), dtype.round(random.between(-99.0, 99.0).round())));
        pairs.push((x, xs[random.bits() as usize % xs.len()]));
    }
    let (a, b) = pairs.into_iter().unzip();
    vec![a, b]
}

/// The largest error and where.
fn worst(f: ScalarFn, dtype: DType, fused: bool, lanes: usize, args: &[Vec<f64>]) -> (f64, f64, f64, f64) {
    let code = compiled(f, dtype, lanes);
    let got = results(&code, fused, dtype, args);
    let mut worst = (-1.0, 0.0, 0.0, 0.0);
    for (i, &got) in got.iter().enumerate() {
        let (x, y) = (args[0][i], args.get(1).map_or(0.0, |a| a[i]));
        let error = ulps(dtype, got, reference(f, x, y));
        if error > worst.0 {
            worst = (error, x, y, got);
        }
    }
    worst
}

fn check(dtype: DType, each: usize) {
    let mut failures = vec![];
    for &(f, limit32, limit64) in LIMITS {
        let limit = if dtype == DType::F64 { limit64 } else { limit32 };
        let args = operands(f, dtype, each);
        assert!(args[0].len() >= 100_000, "{} points", args[0].len());
        for fused in [false, true] {
            let (error, x, y, got) = worst(f, dtype, fused, LANES, &args);
            println!("{:6} {dtype} fused {fused:5} {error:.3} ulp at {x:?} {y:?}", f.name());
            if error > limit {
                let want = reference(f, x, y);
                failures.push(format!(
                    "{} {dtype} fused {fused}: {error:.3} ulp at {x:?} {y:?}: {got:?}, not {want:?}",
                    f.name()
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn f32_functions_are_accurate() {
    check(DType::F32, 200);
}

#[test]
fn f64_functions_are_accurate() {
    check(DType::F64, 24);
}

#[test]
fn every_transcendental_function_has_a_limit() {
    let exact = [
        ScalarFn::Neg,
        ScalarFn::Abs,
        ScalarFn::Sign,
        ScalarFn::Floor,
        ScalarFn::Ceil,
        ScalarFn::Trunc,
        ScalarFn::Round,
        ScalarFn::Sqrt,
        ScalarFn::IsNan,
        ScalarFn::IsInf,
        ScalarFn::Add,
        ScalarFn::Sub,
        ScalarFn::Mul,
        ScalarFn::Div,
        ScalarFn::Mod,
        ScalarFn::Rem,
        ScalarFn::Min,
        ScalarFn::Max,
        ScalarFn::Eq,
        ScalarFn::Lt,
        ScalarFn::Le,
    ];
    for &f in ScalarFn::ALL {
        let takes_floats = !matches!(
            f.sig(),
            numrsc_ir::scalar::Sig::Bits
                | numrsc_ir::scalar::Sig::Single
                | numrsc_ir::scalar::Sig::Select
                | numrsc_ir::scalar::Sig::Convert
        );
        let listed = LIMITS.iter().any(|l| l.0 == f);
        assert_eq!(takes_floats && !exact.contains(&f), listed, "{}", f.name());
    }
}

/// True values of the hardest points, to 20 digits: near a multiple of π/2, and `erf`, whose reference is less
/// accurate.
#[test]
fn hard_points_are_right() {
    // 6381956970095103 * 2^797 is as close to a multiple of π/2 as an f64 gets.
    let close = 5.319372648326541e255;
    for (f, x, want) in [
        (ScalarFn::Cos, close, -4.687165924254628e-19),
        (ScalarFn::Tan, close, -2.133485385753704e18),
        (ScalarFn::Sin, close, 1.0),
        (ScalarFn::Erf, -2.4302086761160675, -0.9994114439528269),
        (ScalarFn::Erf, 1.0, 0.8427007929497149),
        (ScalarFn::Erf, 0.5, 0.5204998778130465),
    ] {
        let code = compiled(f, DType::F64, 1);
        for fused in [false, true] {
            let got = results(&code, fused, DType::F64, &[vec![x]])[0];
            assert!(ulps(DType::F64, got, want) <= 1.0, "{}({x}) = {got:?}, not {want:?}", f.name());
        }
    }
}

/// The builder moves what it can out of blocks, and must not find the reduction of large angles movable.
#[test]
fn large_angles_cost_nothing_where_there_are_none() {
    for f in [ScalarFn::Sin, ScalarFn::Cos] {
        let (always, rarely) = compiled(f, DType::F32, 8).sizes();
        assert!(always < 50 && rarely > 80, "{}: {always} and {rarely} instructions", f.name());
    }
}

/// One in 257 of all `f32`, of the functions that are computed in `f32`.
#[test]
#[ignore = "takes minutes"]
fn f32_functions_are_accurate_everywhere() {
    let all: Vec<f64> = (0..=u32::MAX).step_by(257).map(|bits| f64::from(f32::from_bits(bits))).collect();
    for f in [ScalarFn::Exp, ScalarFn::Log, ScalarFn::Tanh, ScalarFn::Erf, ScalarFn::Sin, ScalarFn::Cos] {
        let limit = LIMITS.iter().find(|l| l.0 == f).expect("listed").1;
        for fused in [false, true] {
            let (error, x, _, got) = worst(f, DType::F32, fused, LANES, std::slice::from_ref(&all));
            println!("{:6} fused {fused:5} {error:.3} ulp at {x:?}", f.name());
            assert!(error <= limit, "{} fused {fused}: {error:.3} ulp at {x:?}: {got:?}", f.name());
        }
    }
}
