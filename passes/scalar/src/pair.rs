//! Sums and products of `f64` without rounding: a result and what was rounded off. Nothing here relies on a fused
//! `muladd`.
use crate::code::X;

/// a + b exactly, in two parts, whichever is larger.
pub(super) fn sum<'c>(a: X<'c>, b: X<'c>) -> (X<'c>, X<'c>) {
    let s = a + b;
    let of_b = s - a;
    let of_a = s - of_b;
    (s, (a - of_a) + (b - of_b))
}

/// a b exactly, in two parts, for magnitudes below 2^480 whose product is not near the subnormals.
pub(super) fn product<'c>(a: X<'c>, b: X<'c>) -> (X<'c>, X<'c>) {
    let p = a * b;
    let ((a1, a0), (b1, b0)) = (halves(a), halves(b));
    (p, ((a1 * b1 - p) + a1 * b0 + a0 * b1) + a0 * b0)
}

/// Two parts of at most 26 bits, whose products are exact.
fn halves(x: X<'_>) -> (X<'_>, X<'_>) {
    let scaled = x * 134_217_729.0;
    let high = scaled - (scaled - x);
    (high, x - high)
}

/// a + b with the last bit set if anything was rounded off: rounded again to fewer digits, it is as if it had been rounded once.
pub(super) fn odd_sum<'c>(a: X<'c>, b: X<'c>) -> X<'c> {
    let (s, rest) = sum(a, b);
    let bits = s.bits();
    // NaN, as the rest is next to an infinity, is no rest.
    let is_cut = rest.abs().gt(0.0) & (bits & 1).eq(0);
    let outwards = (s.sign_bit() ^ rest.sign_bit()).eq(0);
    let next = outwards.pick(bits + 1, bits + -1);
    is_cut.pick(next, bits).as_float()
}
