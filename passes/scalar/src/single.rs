//! The functions that inner loops of models are full of, in `f32` arithmetic: `exp`, `log`, `tanh`, `erf`, `sin`,
//! `cos`.
//!
//! The polynomials are minimax fits (Remez) of the stated function; errors are relative to the whole result, without rounding.
use crate::{circular, code::X, pair};
use numrsc_ir::kernel::{Convert, Elem};
use std::f64::consts::{FRAC_2_PI, LOG2_E};

/// Adding 1.5 * 2^23 to a small `f32` leaves the nearest integer in the last bits.
const ROUND: f64 = 12_582_912.0;
const ROUND_BITS: i64 = 0x4b40_0000;
/// What the exponent of an `f32` is more than its power of 2.
const BIAS: i64 = 127;

/// ln 2 in two parts; products of the first with up to 9 bits are exact.
const LN2_HIGH: f64 = 0.693145751953125;
const LN2_LOW: f64 = 1.4286068203094173e-6;

/// (e^r - 1 - r) / r² for |r| <= 0.353, error 2^-28.
const EXP: [f64; 5] = [0.4999999265, 0.1666650871, 0.04166852339, 0.008370136112, 0.00138119099];

/// (log(1 + f) - f + f²/2) / f³ for √½ <= 1 + f <= √2, error 2^-30.
const LOG: [f64; 9] = [
    0.3333332349,
    -0.2499999276,
    0.200015376,
    -0.1666855771,
    0.1422984858,
    -0.1240104339,
    0.1181642149,
    -0.1167922209,
    0.06900232913,
];

/// (2^r - 1) / r for |r| <= 0.5, error 2^-26.
const EXP2: [f64; 6] = [0.6931471825, 0.240226498, 0.05550366388, 0.00961824877, 0.001338786892, 0.0001539837639];

/// log2(1 - erf(x)) / x for 0 <= x <= 4, error of erf(x) 2^-27.
const ERF: [f64; 9] = [
    -1.627907038,
    -0.918447406,
    -0.1482799584,
    0.02764592727,
    0.0001999212157,
    -0.002367712021,
    0.0008893429355,
    -0.0001621618323,
    1.240162892e-5,
];

/// (sin(r)/r - 1) / r² and (cos(r) - 1 + r²/2) / r⁴ as polynomials in r² for r <= 0.83, errors 2^-36 and 2^-31.
const SIN: [f64; 4] = [-0.1666666664, 0.008333329105, -0.0001983914278, 2.715963261e-6];
const COS: [f64; 3] = [0.04166665912, -0.001388773842, 2.446330894e-5];

/// π/2 in two parts for `f64`; products of the first with up to 20 bits are exact.
const PI_2_HIGH: f64 = 1.5707963267341256;
const PI_2_LOW: f64 = 6.077100506506192e-11;

/// Up to here the nearest multiple of π/2 is found in `f32`; it may be off by 2^-6 multiples.
const LARGE_ANGLE: f64 = 262_144.0;

/// `a b + c`, rounded once. Products of two `f32` are exact in `f64`.
pub(super) fn fma<'c>(a: X<'c>, b: X<'c>, c: X<'c>) -> X<'c> {
    if a.is_fused() {
        return a.mul_add(b, c);
    }
    pair::odd_sum(a.to_f64() * b.to_f64(), c.to_f64()).to_f32()
}

pub(super) fn exp(x: X<'_>) -> X<'_> {
    // Beyond these the result is infinity or 0.
    let (less_1, k) = exp_parts(x.at_most(89.0).at_least(-104.0), 2 * BIAS);
    // In two factors, neither of which overflows, so that only the last multiplication rounds a subnormal result. Both
    // halves have a bias.
    let half = k.lshr(1);
    (less_1 + 1.0) * half.shl(23).as_float() * (k - half).shl(23).as_float()
}

/// x = k ln 2 + r: e^r - 1, and k + bias in the last bits, which are all that is left where they become an exponent.
fn exp_parts(x: X<'_>, bias: i64) -> (X<'_>, X<'_>) {
    let round = ROUND + bias as f64;
    let shifted = x.mul_add(LOG2_E, round);
    let kf = shifted - round;
    let r = kf.mul_add(-LN2_LOW, kf.mul_add(-LN2_HIGH, x));
    ((r * r).mul_add(r.polynomial(&EXP), r), shifted.bits())
}

pub(super) fn log(x: X<'_>) -> X<'_> {
    // 1 + f from √½ to √2 times 2^k; subnormals are scaled first.
    const SQRT_HALF: i64 = 0x3f35_04f3;
    const ONE: i64 = 0x3f80_0000;
    let subnormal = x.lt(f64::from(f32::MIN_POSITIVE));
    let normal = subnormal.pick(x * 33_554_432.0, x);
    let bits = normal.bits() + (ONE - SQRT_HALF);
    let exponent = bits.lshr(23) - subnormal.pick(bits.int(Elem::I32, 127 + 25), 127);
    let k = exponent.convert(Convert::SToF, Elem::F32);
    let f = ((bits & 0x7f_ffff) + SQRT_HALF).as_float() - 1.0;
    let z = f * f;
    let tail = f * z * f.polynomial(&LOG) + k * LN2_LOW;
    let result = k.mul_add(LN2_HIGH, (tail - z * 0.5) + f);
    log_special(x, result)
}

/// What log gives outside the positive finite numbers.
pub(super) fn log_special<'c>(x: X<'c>, result: X<'c>) -> X<'c> {
    let zero_or_less = x.eq(0.0).pick(x.float(x.ty().elem, f64::NEG_INFINITY), f64::NAN);
    let regular = x.gt(0.0) & x.lt(f64::INFINITY);
    regular.pick(result, x.le(0.0).pick(zero_or_less, x))
}

/// With e = e^2a - 1, e / (e + 2), which is 1 from 9.1 on. Small numbers need nothing else, as the 1 is never added.
pub(super) fn tanh(x: X<'_>) -> X<'_> {
    let (less_1, k) = exp_parts(x.abs().at_most(10.0) * 2.0, BIAS);
    let scale = k.shl(23).as_float();
    let e = less_1.mul_add(scale, scale - 1.0);
    (e / (e + 2.0)).with_sign_of(x)
}

/// 1 - 2^t, in the same way, which is 1 from 3.9 on. What t is rounded by matters less, so its power of 2 is taken
/// directly.
pub(super) fn erf(x: X<'_>) -> X<'_> {
    let a = x.abs().at_most(4.0);
    let t = a * a.polynomial(&ERF);
    let round = ROUND + BIAS as f64;
    let shifted = t + round;
    let r = t - (shifted - round);
    let scale = shifted.bits().shl(23).as_float();
    (-(r * r.polynomial(&EXP2))).mul_add(scale, -scale + 1.0).with_sign_of(x)
}

pub(super) fn sin(x: X<'_>) -> X<'_> {
    let a = x.abs();
    let result = quarter_wave(a, 0).flip_sign(x.sign_bit());
    result.rarely(a.ge(LARGE_ANGLE), &[x], |args| circular::sin_large(args[0].to_f64(), Elem::F32).to_f32())
}

pub(super) fn cos(x: X<'_>) -> X<'_> {
    let a = x.abs();
    let result = quarter_wave(a, 1);
    result.rarely(a.ge(LARGE_ANGLE), &[x], |args| circular::cos_large(args[0].to_f64(), Elem::F32).to_f32())
}

/// sin(a + quarters * π/2) for 0 <= a < [`LARGE_ANGLE`].
fn quarter_wave(a: X<'_>, quarters: i64) -> X<'_> {
    let shifted = a.mul_add(FRAC_2_PI, ROUND);
    let k = shifted.bits() - ROUND_BITS + quarters;
    let kf = (shifted - ROUND).to_f64();
    // Near a multiple of π/2 most of the bits cancel; f64 has them.
    let r = ((a.to_f64() - kf * PI_2_HIGH) - kf * PI_2_LOW).to_f32();
    let z = r * r;
    let sin = (r * z).mul_add(z.polynomial(&SIN), r);
    let cos = (z * z).mul_add(z.polynomial(&COS), (z * -0.5) + 1.0);
    let value = (k & 1).ne(0).pick(cos, sin);
    value.flip_sign((k & 2).shl(30))
}
