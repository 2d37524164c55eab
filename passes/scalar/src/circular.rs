//! Trigonometric functions and their inverses in `f64` arithmetic.
//!
//! The polynomials are minimax fits (Remez) of the stated function; errors are relative to the whole result, without
//! rounding.
use crate::{
    code::X,
    double::{ROUND, ROUND_BITS},
    pair::{product, sum},
};
use numrsc_ir::kernel::{Convert, Elem};
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, FRAC_PI_4, PI};

/// What is lost when π and its parts are rounded to `f64`.
const PI_LOW: f64 = 1.2246467991473532e-16;
const PI_2_LOW: f64 = PI_LOW / 2.0;
const PI_4_LOW: f64 = PI_LOW / 4.0;

/// π/2 in parts of at most 33 bits, whose products with up to 20 bits are exact, and the rest.
const PI_2_PARTS: [f64; 3] = [1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21];
const PI_2_REST: f64 = 8.4784276603689e-32;

/// From here on the multiple of π/2 has more than 20 bits.
const LARGE_ANGLE: f64 = 1_048_576.0;

/// (sin(r)/r - 1) / r² and (cos(r) - 1 + r²/2) / r⁴ as polynomials in r² for r <= 0.8, errors 2^-68 and 2^-62.
const SIN: [f64; 7] = [
    -0.16666666666666666,
    0.008333333333333326,
    -0.0001984126984125775,
    2.7557319215020883e-6,
    -2.505210502588062e-8,
    1.6058371615482508e-10,
    -7.5785817595915e-13,
];
const COS: [f64; 6] = [
    0.041666666666666664,
    -0.0013888888888885392,
    2.4801587296227304e-5,
    -2.755731616732682e-7,
    2.087594977552113e-9,
    -1.1370326745228664e-11,
];

/// (atan(t)/t - 1) / t² as a polynomial in t² for t <= tan(π/8), error 2^-63.
const ATAN: [f64; 12] = [
    -0.3333333333333333,
    0.1999999999999924,
    -0.14285714285554701,
    0.11111111097126092,
    -0.0909090842749371,
    0.07692288448371262,
    -0.06666302376593874,
    0.05877694950559615,
    -0.052223768874453624,
    0.04518464332145029,
    -0.03379705661117022,
    0.015501176474250054,
];
const TAN_PI_8: f64 = 0.41421356237309503;

/// (asin(x)/x - 1) / x² as a polynomial in x² for x <= ½, error 2^-59.
const ASIN: [f64; 13] = [
    0.16666666666666674,
    0.0749999999999308,
    0.04464285715523744,
    0.03038194355666955,
    0.0223721929948848,
    0.01735197796083856,
    0.013976729227278994,
    0.011430320481803992,
    0.010614201679817173,
    0.004300804114698237,
    0.02033124563046627,
    -0.019139074236177164,
    0.03151417004942606,
];

/// The first bits of 2/π after the point, behind a word of zeros.
const TWO_OVER_PI: [u64; 20] = [
    0,
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
    0x5603_3046_fc7b_6bab,
];

/// An angle as a multiple of π/2 and a remainder in two parts.
struct Reduced<'c> {
    quarters: X<'c>,
    high: X<'c>,
    low: X<'c>,
}

pub(super) fn sin(x: X<'_>) -> X<'_> {
    let a = x.abs();
    let (sin, _) = sin_cos(&reduce(a));
    sin.flip_sign(x.sign_bit()).rarely(a.ge(LARGE_ANGLE), &[x], |args| sin_large(args[0], Elem::F64))
}

pub(super) fn cos(x: X<'_>) -> X<'_> {
    let a = x.abs();
    let (_, cos) = sin_cos(&reduce(a));
    cos.rarely(a.ge(LARGE_ANGLE), &[x], |args| cos_large(args[0], Elem::F64))
}

/// `origin` tells how large the argument can be: it was an `f32` or is any `f64`.
pub(super) fn tan<'c>(x: X<'c>, origin: Elem) -> X<'c> {
    let a = x.abs();
    let (sin, cos) = sin_cos(&reduce(a));
    (sin / cos).flip_sign(x.sign_bit()).rarely(a.ge(LARGE_ANGLE), &[x], |args| {
        let (sin, cos) = sin_cos(&reduce_large(args[0].abs(), origin));
        (sin / cos).flip_sign(args[0].sign_bit())
    })
}

/// sin(x) for |x| of at least 2^18.
pub(super) fn sin_large<'c>(x: X<'c>, origin: Elem) -> X<'c> {
    let (sin, _) = sin_cos(&reduce_large(x.abs(), origin));
    sin.flip_sign(x.sign_bit())
}

pub(super) fn cos_large<'c>(x: X<'c>, origin: Elem) -> X<'c> {
    sin_cos(&reduce_large(x.abs(), origin)).1
}

fn sin_cos<'c>(angle: &Reduced<'c>) -> (X<'c>, X<'c>) {
    let Reduced { quarters, high: r, low } = *angle;
    let z = r * r;
    let half = z * 0.5;
    // sin(r + low) = sin(r) + low cos(r), and cos(r + low) = cos(r) - low sin(r).
    let sin = r + (r * z * z.polynomial(&SIN) + low * (-half + 1.0));
    let most = -half + 1.0;
    let cos = most + (((-most + 1.0) - half) + (z * z * z.polynomial(&COS) - r * low));
    let odd = (quarters & 1).ne(0);
    let sin_sign = (quarters & 2).shl(62);
    let cos_sign = ((quarters + 1) & 2).shl(62);
    (odd.pick(cos, sin).flip_sign(sin_sign), odd.pick(sin, cos).flip_sign(cos_sign))
}

/// For 0 <= a < [`LARGE_ANGLE`]: the parts of the multiple are subtracted one by one, keeping what each subtraction
/// rounds off.
fn reduce(a: X<'_>) -> Reduced<'_> {
    let shifted = a.mul_add(FRAC_2_PI, ROUND);
    let k = shifted - ROUND;
    let first = a - k * PI_2_PARTS[0];
    let (high, low) = sum(first, -(k * PI_2_PARTS[1]));
    let (high, lower) = sum(high, -(k * PI_2_PARTS[2]));
    let low = (low + lower) - k * PI_2_REST;
    let (high, low) = sum(high, low);
    Reduced { quarters: shifted.bits() - ROUND_BITS, high, low }
}

/// For a of at least 2^18: a = m 2^e with an integer m of 53 bits. Bits of 2/π whose product with m 2^e is a multiple
/// of 4 do not matter; the 192 bits after those, times m, give the quarters and the fraction with more than 120 bits.
fn reduce_large<'c>(a: X<'c>, origin: Elem) -> Reduced<'c> {
    const MANTISSA: i64 = (1 << 52) - 1;
    let bits = a.bits();
    let m = (bits & MANTISSA) | (1 << 52);
    // The position of the first bit that matters, counted with the word of zeros. Infinity and NaN are replaced below.
    let largest = if origin == Elem::F32 { 1023 + 127 } else { 2046 };
    let exponent = bits.lshr(52).smin(largest);
    let start = exponent - (1075 - 62);
    let word = start.lshr(6);
    let place = start & 63;
    let last_word = (largest - (1075 - 62)) as usize >> 6;
    let table = |ahead: usize| {
        (0..last_word).rev().fold(bits.int(Elem::I64, TWO_OVER_PI[last_word + ahead] as i64), |rest, i| {
            word.eq(i as i64).pick(rest.int(Elem::I64, TWO_OVER_PI[i + ahead] as i64), rest)
        })
    };
    let words: Vec<X<'_>> = (0..4).map(table).collect();
    // Two shifts, because one by 64 has no meaning.
    let window = |i: usize| words[i].shl(place) | words[i + 1].lshr(1).lshr(-place + 63);
    let (w0, w1, w2) = (window(0), window(1), window(2));
    let middle = m * w1;
    let carried = middle + multiply_high(m, w2);
    let carry = carried.ult(middle).convert(Convert::ZExt, Elem::I64);
    let top = m * w0 + multiply_high(m, w1) + carry;
    // The first two bits are the quarters, the rest a fraction: with its first bit as a sign it is at most a half.
    let quarters = (top + (1 << 61)).lshr(62);
    let f0 = top.shl(2) | carried.lshr(62);
    let f1 = carried.shl(2);
    let part = |x: X<'c>, exponent: i32| x.convert(Convert::SToF, Elem::F64) * 2f64.powi(exponent);
    let (high, low) = sum(part(f0.ashr(32), -32), part(f0 & 0xffff_ffff, -64));
    let (high, low) = sum(high, low + part(f1.lshr(11), -117));
    let (angle, rest) = product(high, high.float(Elem::F64, FRAC_PI_2));
    let low = rest + (high * PI_2_LOW + low * FRAC_PI_2);
    Reduced { quarters, high: angle.nan_where(a.ge(f64::INFINITY)), low }
}

/// The upper 64 bits of the product of two unsigned integers.
fn multiply_high<'c>(a: X<'c>, b: X<'c>) -> X<'c> {
    const LOW: i64 = 0xffff_ffff;
    let (a0, a1, b0, b1) = (a & LOW, a.lshr(32), b & LOW, b.lshr(32));
    let cross = a1 * b0 + (a0 * b0).lshr(32);
    let other = a0 * b1 + (cross & LOW);
    a1 * b1 + cross.lshr(32) + other.lshr(32)
}

/// x + x³ ASIN(x²), given x and x².
fn asin_core<'c>(x: X<'c>, z: X<'c>) -> X<'c> {
    x + x * (z * z.polynomial(&ASIN))
}

/// asin(x) = π/2 - 2 asin(√((1 - x) / 2)) brings arguments above ½ below it: whether, and the arcus sine there.
fn asin_parts(a: X<'_>) -> (X<'_>, X<'_>) {
    let large = a.gt(0.5);
    let z = large.pick((-a + 1.0) * 0.5, a * a);
    (large, asin_core(large.pick(z.sqrt(), a), z))
}

pub(super) fn asin(x: X<'_>) -> X<'_> {
    let a = x.abs();
    let (large, p) = asin_parts(a);
    let from_above = -((p * 2.0) - PI_2_LOW) + FRAC_PI_2;
    large.pick(from_above, p).with_sign_of(x)
}

pub(super) fn acos(x: X<'_>) -> X<'_> {
    let (large, p) = asin_parts(x.abs());
    let negative = x.lt(0.0);
    let doubled = p * 2.0;
    let near_one = negative.pick(-(doubled - PI_LOW) + PI, doubled);
    let middle = -(negative.pick(-p, p) - PI_2_LOW) + FRAC_PI_2;
    large.pick(near_one, middle)
}

/// For 0 <= t <= 1: above tan(π/8) it is π/4 + atan((t - 1) / (t + 1)).
fn atan_unit(t: X<'_>) -> X<'_> {
    let large = t.gt(TAN_PI_8);
    let w = large.pick((t - 1.0) / (t + 1.0), t);
    let z = w * w;
    let p = w * (z * z.polynomial(&ATAN));
    large.pick(((p + PI_4_LOW) + w) + FRAC_PI_4, p + w)
}

pub(super) fn atan(x: X<'_>) -> X<'_> {
    let a = x.abs();
    let large = a.gt(1.0);
    let r = atan_unit(large.pick(a.float(Elem::F64, 1.0) / a, a));
    large.pick((-r + PI_2_LOW) + FRAC_PI_2, r).with_sign_of(x)
}

/// The angle of the point (x, y).
pub(super) fn atan2<'c>(y: X<'c>, x: X<'c>) -> X<'c> {
    let (ay, ax) = (y.abs(), x.abs());
    let steep = ay.gt(ax);
    let (short, long) = (steep.pick(ax, ay), steep.pick(ay, ax));
    // Two zeros have the quotient 0 and two infinities 1.
    let quotient = ay.eq(ax).pick(short.eq(0.0).pick(short, 1.0), short / long);
    let r = atan_unit(quotient);
    let r = steep.pick((-r + PI_2_LOW) + FRAC_PI_2, r);
    let r = x.bits().lt(0).pick((-r + PI_LOW) + PI, r);
    r.with_sign_of(y).nan_where(x.is_nan() | y.is_nan())
}
