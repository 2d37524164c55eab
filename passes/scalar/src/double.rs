//! Exponentials, logarithms, their relatives and `erf` in `f64` arithmetic: for `f64` itself, and rounded once for the
//! less frequent functions of `f32`.
//!
//! The polynomials are minimax fits (Remez) of the stated function; errors are relative to the whole result, without
//! rounding.
use crate::{code::X, single::log_special};
use numrsc_ir::kernel::Elem;
use std::f64::consts::{LN_2, LOG2_E};

/// Adding 1.5 * 2^52 to a small `f64` leaves the nearest integer in the last bits.
pub(super) const ROUND: f64 = 6_755_399_441_055_744.0;
pub(super) const ROUND_BITS: i64 = 0x4338_0000_0000_0000;

/// ln 2 in two parts; products of the first with up to 11 bits are exact.
pub(super) const LN2_HIGH: f64 = 0.6931471805598903;
pub(super) const LN2_LOW: f64 = 5.497923018708371e-14;

/// (e^r - 1 - r) / r² for |r| <= 0.353, error 2^-63.
const EXP: [f64; 11] = [
    0.5,
    0.1666666666666668,
    0.04166666666666671,
    0.008333333333318932,
    0.001388888888886204,
    0.00019841269894258902,
    2.48015873707158e-5,
    2.7557235267632717e-6,
    2.7557234028524516e-7,
    2.5112320162045036e-8,
    2.092709666751027e-9,
];

/// (2 atanh(s) - 2 s) / s³ as a polynomial in s² for s <= 0.172, error 2^-58.
const ATANH: [f64; 8] = [
    0.6666666666666666,
    0.400000000000009,
    0.2857142857079088,
    0.22222222394481655,
    0.18181795354765554,
    0.15386254752140285,
    0.1326838084857783,
    0.13090631973202976,
];

/// erf(x)/x - 1 as a polynomial in x² for x <= 1, error 2^-62.
const ERF: [f64; 13] = [
    0.12837916709551256,
    -0.3761263890318375,
    0.11283791670954882,
    -0.02686617064507736,
    0.005223977624823153,
    -0.0008548326981106242,
    0.00012055331120754248,
    -1.4925595466262048e-5,
    1.6461003376288504e-6,
    -1.6350340180567313e-7,
    1.4659939232624163e-8,
    -1.1373404067814567e-9,
    5.957986180417568e-11,
];

/// e^x² (1 - erf(x)) as a polynomial in (x - 2.25) / (x + 2.25) for 1 <= x <= 6, error of erf(x) 2^-63.
const ERFCX: [f64; 14] = [
    0.23108725873039185,
    -0.3981892626393719,
    0.2496614424274373,
    -0.10505063893597737,
    0.021688775768142102,
    0.003393243025307694,
    -0.002767950218216474,
    -0.00018635111785163252,
    0.0003814299753798254,
    4.560268314158284e-5,
    -5.818202503662575e-5,
    -1.6911193272099454e-5,
    6.635288730949652e-6,
    3.849221519637222e-6,
];
const ERFCX_CENTRE: f64 = 2.25;

/// Below this, x, expm1(x) and log1p(x) are the same `f64`.
const TINY: f64 = 5e-17;

pub(super) fn exp(x: X<'_>) -> X<'_> {
    exp_times(x, 0)
}

/// e^x * 2^shift, without overflow where the product has none.
fn exp_times(x: X<'_>, shift: i64) -> X<'_> {
    let (less_one, k) = exp_parts(x.at_most(712.0).at_least(-746.0));
    scale(less_one + 1.0, k + shift)
}

/// x = k ln 2 + r: e^r - 1 and k.
fn exp_parts(x: X<'_>) -> (X<'_>, X<'_>) {
    let shifted = x.mul_add(LOG2_E, ROUND);
    let kf = shifted - ROUND;
    let r = (x - kf * LN2_HIGH) - kf * LN2_LOW;
    ((r * r).mul_add(r.polynomial(&EXP), r), shifted.bits() - ROUND_BITS)
}

/// x * 2^k in two factors, neither of which overflows, so that only the last multiplication rounds a subnormal result.
pub(super) fn scale<'c>(x: X<'c>, k: X<'c>) -> X<'c> {
    // The half of k + 2048 is not negative, which saves an arithmetic shift.
    let half = (k + 2048).lshr(1) - 1024;
    x * power_of_two(half) * power_of_two(k - half)
}

fn power_of_two(k: X<'_>) -> X<'_> {
    (k + 1023).shl(52).as_float()
}

/// e^(high + low) where low is small beside high.
pub(super) fn exp_pair<'c>(high: X<'c>, low: X<'c>) -> X<'c> {
    // Where high leaves the range it alone decides.
    let low = high.abs().lt(800.0).pick(low, 0.0);
    let (less_one, k) = exp_parts(high.at_most(712.0).at_least(-746.0));
    let power = less_one + 1.0;
    scale(power.mul_add(low, less_one) + 1.0, k)
}

pub(super) fn expm1(x: X<'_>) -> X<'_> {
    let (less_one, k) = exp_parts(x.at_most(712.0).at_least(-40.0));
    // 2^k (e^r - 1) + (2^k - 1), where the last is exact; beyond 2^56 the 1 does not count.
    let power = power_of_two(k.smin(56));
    let moderate = power * less_one + (power - 1.0);
    let large = scale(less_one + 1.0, k);
    let result = k.gt(56).pick(large, moderate);
    x.abs().lt(TINY).pick(x, result)
}

pub(super) fn log(x: X<'_>) -> X<'_> {
    let (f, k) = mantissa_exponent(x);
    log_special(x, log_of_parts(f, k, x.float(Elem::F64, 0.0)))
}

/// x = (1 + f) 2^k with 1 + f from √½ to √2, for positive finite numbers.
pub(super) fn mantissa_exponent(x: X<'_>) -> (X<'_>, X<'_>) {
    const SQRT_HALF: i64 = 0x3fe6_a09e_667f_3bcd;
    const ONE: i64 = 0x3ff0_0000_0000_0000;
    const MANTISSA: i64 = (1 << 52) - 1;
    /// The bits of 2^52, in whose last bits an integer can be placed.
    const HOLDER: i64 = 0x4330_0000_0000_0000;
    let holder = 2f64.powi(52);
    let subnormal = x.lt(f64::MIN_POSITIVE);
    let normal = subnormal.pick(x * 2f64.powi(54), x);
    let bits = normal.bits() + (ONE - SQRT_HALF);
    let bias = subnormal.pick(x.float(Elem::F64, holder + 1077.0), holder + 1023.0);
    let k = (bits.lshr(52) | HOLDER).as_float() - bias;
    (((bits & MANTISSA) + SQRT_HALF).as_float() - 1.0, k)
}

/// k ln 2 + log(1 + f) + c. With s = f / (2 + f), log(1 + f) = 2 atanh(s) = f - f²/2 + s (f²/2 + s² ATANH(s²)), whose
/// leading term is exact.
fn log_of_parts<'c>(f: X<'c>, k: X<'c>, c: X<'c>) -> X<'c> {
    let s = f / (f + 2.0);
    let z = s * s;
    let half_square = f * f * 0.5;
    let tail = s * (half_square + z * z.polynomial(&ATANH)) + (k * LN2_LOW + c);
    k * LN2_HIGH - ((half_square - tail) - f)
}

pub(super) fn log1p(x: X<'_>) -> X<'_> {
    let u = x + 1.0;
    let (f, k) = mantissa_exponent(u);
    // What the sum has lost, relative to it; where it is not scaled, x itself is f.
    let lost = x.gt(1.0).pick(-(u - x) + 1.0, x - (u - 1.0)) / u;
    let unscaled = k.eq(0.0);
    let f = unscaled.pick(x, f);
    let c = unscaled.pick(x.float(Elem::F64, 0.0), lost);
    let result = log_special(u, log_of_parts(f, k, c));
    x.abs().lt(TINY).pick(x, result)
}

pub(super) fn sinh(x: X<'_>) -> X<'_> {
    let a = x.abs();
    let t = expm1(a.at_most(40.0));
    let moderate = (t + t / (t + 1.0)) * 0.5;
    a.gt(22.0).pick(exp_times(a, -1), moderate).with_sign_of(x)
}

pub(super) fn cosh(x: X<'_>) -> X<'_> {
    let half = exp_times(x.abs(), -1);
    half + half.float(Elem::F64, 0.25) / half
}

pub(super) fn tanh(x: X<'_>) -> X<'_> {
    let a = x.abs();
    let t = expm1(a.at_most(22.0) * 2.0);
    let small = t / (t + 2.0);
    let large = -(t.float(Elem::F64, 2.0) / (t + 2.0)) + 1.0;
    a.lt(0.55).pick(small, large).with_sign_of(x)
}

pub(super) fn asinh(x: X<'_>) -> X<'_> {
    let a = x.abs();
    let square = a * a;
    // log(a + √(a² + 1)); from 2^60 on that is log(2 a), and 1 + a is a.
    let moderate = a + square / ((square + 1.0).sqrt() + 1.0);
    inverse_hyperbolic(a, moderate).with_sign_of(x)
}

pub(super) fn acosh(x: X<'_>) -> X<'_> {
    let t = x - 1.0;
    inverse_hyperbolic(x, t + (t * t + t * 2.0).sqrt()).nan_where(x.lt(1.0))
}

/// log1p(moderate), or log(2 a) where a is large.
fn inverse_hyperbolic<'c>(a: X<'c>, moderate: X<'c>) -> X<'c> {
    let large = a.gt(2f64.powi(60));
    let log = log1p(large.pick(a, moderate));
    large.pick(log + LN_2, log)
}

pub(super) fn atanh(x: X<'_>) -> X<'_> {
    let a = x.abs();
    (log1p(a * 2.0 / (-a + 1.0)) * 0.5).with_sign_of(x)
}

pub(super) fn erf(x: X<'_>) -> X<'_> {
    let a = x.abs();
    let z = a * a;
    let small = a.mul_add(z.polynomial(&ERF), a);
    let limited = a.at_most(6.0);
    let v = (limited - ERFCX_CENTRE) / (limited + ERFCX_CENTRE);
    let large = -(exp(-(limited * limited)) * v.polynomial(&ERFCX)) + 1.0;
    a.lt(1.0).pick(small, large).with_sign_of(x)
}
