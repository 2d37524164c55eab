//! `pow` and the remainder of floats.
use crate::{
    code::{Code, X},
    double::{self, LN2_HIGH, LN2_LOW},
    pair::{product, sum},
};
use numrsc_ir::kernel::{Binary, Convert, Elem, V, build::Builder};

/// (2 atanh(s) - 2 s - 2/3 s³) / s⁵ as a polynomial in s² for s <= 0.172, minimax error 2^-58.
const ATANH_TAIL: [f64; 8] = [
    0.4,
    0.28571428571429386,
    0.2222222222164466,
    0.1818181833782983,
    0.15384594711592686,
    0.13334817910646674,
    0.11705892197340027,
    0.11726689285553205,
];
/// 2/3 and what its rounding loses.
const TWO_THIRDS: f64 = 0.6666666666666666;
const TWO_THIRDS_LOW: f64 = 3.700743415417188e-17;

/// x^y in `f64`; if it will be rounded to `f32`, a logarithm of 53 bits is enough.
pub(super) fn pow<'c>(x: X<'c>, y: X<'c>, result: Elem) -> X<'c> {
    let a = x.abs();
    // Beyond this |y log a| exceeds any exponent unless a is 1, and then y does not matter.
    let limit = 2f64.powi(65);
    let exponent = y.at_most(limit).at_least(-limit);
    let power = if result == Elem::F32 {
        double::exp(exponent * double::log(a))
    } else {
        let (high, low) = log_pair(a);
        let (product_high, product_low) = product(exponent, high);
        double::exp_pair(product_high, product_low + exponent * low)
    };
    let zero = x.float(Elem::F64, 0.0);
    let infinity = x.float(Elem::F64, f64::INFINITY);
    let power = a.eq(0.0).pick(y.lt(0.0).pick(infinity, zero), power);
    let power = a.eq(f64::INFINITY).pick(y.lt(0.0).pick(zero, infinity), power);
    // Negative numbers have powers with whole exponents only; odd ones keep the sign. (Infinity counts as even.)
    let whole = y.trunc().eq(y);
    let half = y * 0.5;
    let odd = whole & half.trunc().ne(half);
    let sign = odd.pick(x.sign_bit(), 0);
    let signed = (power.bits() | sign).as_float();
    let undefined = x.lt(0.0) & x.gt(f64::NEG_INFINITY) & !whole;
    let regular = signed.nan_where(undefined | x.is_nan() | y.is_nan());
    (x.eq(1.0) | y.eq(0.0)).pick(x.float(Elem::F64, 1.0), regular)
}

/// log(x) of a positive finite number with a relative error below 2^-62, in two parts: k ln 2 + 2 s + 2/3 s³ +
/// s⁵ ATANH_TAIL(s²), the first three with their rounding errors.
fn log_pair(x: X<'_>) -> (X<'_>, X<'_>) {
    let (f, k) = double::mantissa_exponent(x);
    // s = f / (2 + f): the quotient, and the remainder divided again.
    let (divisor, divisor_low) = sum(f.float(Elem::F64, 2.0), f);
    let s = f / divisor;
    let (back, back_low) = product(s, divisor);
    let s_low = (((f - back) - back_low) - s * divisor_low) / divisor;
    let (z, z_low) = product(s, s);
    let z_low = z_low + s * s_low * 2.0;
    let (cube, cube_low) = product(z, s);
    let cube_low = cube_low + (z * s_low + z_low * s);
    let third = f.float(Elem::F64, TWO_THIRDS);
    let (term, term_low) = product(cube, third);
    let term_low = term_low + (cube * TWO_THIRDS_LOW + cube_low * TWO_THIRDS);
    let tail = cube * z * z.polynomial(&ATANH_TAIL);
    let (high, low) = sum(k * LN2_HIGH, s * 2.0);
    let (high, lower) = sum(high, term);
    let rest = ((low + lower) + (term_low + tail)) + (s_low * 2.0 + k * LN2_LOW);
    sum(high, rest)
}

/// The remainder of the division toward zero, exactly (C's `fmod`), of `f32` or `f64`.
pub(super) fn remainder<'c>(x: X<'c>, y: X<'c>) -> X<'c> {
    let elem = x.ty().elem;
    // As f64 an f32 is normal and its significand has 24 bits: the lower 29 are dropped and 40 more fit into a word.
    let (drop, room) = if elem == Elem::F32 { (29, 40) } else { (0, 11) };
    let (wide_x, wide_y) = (x.to_f64(), y.to_f64());
    let (m, e) = significand(wide_x.abs(), drop);
    let (n, d) = significand(wide_y.abs(), drop);
    let modulo = |x: X<'c>| x.with(|b| b.binary(Binary::URem, x.v, n.v));
    // m 2^(e-d) modulo n, as many places at a time as there is room for.
    let first = modulo(m);
    let left = (e - d).smax(0);
    let r = first.with(|b| {
        let outs = b.while_(
            &[first.v, left.v],
            |b, carried| {
                let code = Code::new(b);
                code.x(carried[1]).gt(0).any().v
            },
            |b, carried| remainder_step(b, carried, n.v, room),
        );
        outs[0]
    });
    let r = double::scale(r.convert(Convert::SToF, Elem::F64), d + drop);
    let r = if elem == Elem::F32 { r.to_f32() } else { r };
    let r = x.abs().lt(y.abs()).pick(x.abs(), r).with_sign_of(x);
    r.nan_where(y.eq(0.0) | x.abs().eq(f64::INFINITY) | x.is_nan() | y.is_nan())
}

fn remainder_step(b: &mut Builder, carried: &[V], n: V, room: i64) -> Vec<V> {
    let code = Code::new(b);
    let (r, left) = (code.x(carried[0]), code.x(carried[1]));
    let places = left.smin(room);
    let shifted = r.shl(places);
    vec![shifted.with(|b| b.binary(Binary::URem, shifted.v, n)).v, (left - places).v]
}

/// a = m 2^e for an integer m of 53 bits without the lower `drop`.
fn significand(a: X<'_>, drop: i64) -> (X<'_>, X<'_>) {
    let subnormal = a.lt(f64::MIN_POSITIVE);
    let bits = subnormal.pick(a * 2f64.powi(54), a).bits();
    let m = (bits & ((1 << 52) - 1)) | (1 << 52);
    let e = bits.lshr(52) - subnormal.pick(bits.int(Elem::I64, 1075 + 54), 1075);
    (m.lshr(drop), e)
}

/// The remainder with the sign of the divisor (Python's `%`).
pub(super) fn modulo<'c>(x: X<'c>, y: X<'c>) -> X<'c> {
    let r = remainder(x, y);
    let zero = x.float(x.ty().elem, 0.0).with_sign_of(y);
    let differs = (r.bits() ^ y.bits()).lt(0);
    r.eq(0.0).pick(zero, differs.pick(r + y, r))
}
