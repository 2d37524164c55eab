//! Float formats narrower than `f32`: between their bits, held as small integers, and the same values as `f32`; and
//! rounding of any float to their values.
use crate::code::X;
use numrsc_ir::{
    DType,
    kernel::{Convert, Elem},
};

/// A format with a sign, `exponent` bits of exponent, `mantissa` bits of mantissa and subnormals.
struct Format {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    special: Special,
}

/// What takes the place of infinity and NaN.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Special {
    /// IEEE: the top exponent is infinity and NaN.
    Ieee,
    /// Only the all-ones pattern is NaN, no infinity.
    NanOnly,
    /// Negative zero's pattern is NaN, no infinity.
    NegZeroNan,
    /// Every pattern is a number.
    None,
}

const F32_MANTISSA: u32 = 23;
const F32_BIAS: i32 = 127;
const F32_MAGNITUDE: i64 = 0x7fff_ffff;
const F32_INFINITY: i64 = 0x7f80_0000;
/// The one bit of the fraction that is 2^-1, which makes a NaN quiet.
const F32_QUIET: i64 = 0x0040_0000;

/// The value with the given bits (an `i16` or `i8`), as `f32`.
pub(super) fn from_bits(dtype: DType, raw: X<'_>) -> X<'_> {
    if dtype == DType::F16 && raw.has_halves() {
        return raw.convert(Convert::Half, Elem::F32);
    }
    let wide = raw.convert(Convert::ZExt, Elem::I32);
    match dtype {
        DType::BF16 => return wide.shl(16).as_float(),
        DType::F8E8M0 => {
            // Code 0 is 2^-127, a subnormal f32; code 255 would be infinity.
            let normal = wide.shl(23);
            let bits = wide.eq(0).pick(wide.int(Elem::I32, F32_QUIET), normal);
            return wide.eq(0xff).pick(wide.int(Elem::I32, F32_INFINITY | F32_QUIET), bits).as_float();
        }
        _ => {}
    }
    let f = Format::of(dtype);
    let magnitude = wide & (f.sign() - 1);
    let rebias = i64::from(F32_BIAS - f.bias) << F32_MANTISSA;
    let normal = magnitude.shl(f.shift()) + rebias;
    let units = magnitude.convert(Convert::SToF, Elem::F32);
    let subnormal = (units * 2f64.powi(f.least_exponent() - f.mantissa as i32)).bits();
    let mut bits = magnitude.lt(1 << f.mantissa).pick(subnormal, normal);
    match f.special {
        // The top exponent becomes that of f32: the mantissa stays, 0 for infinity.
        Special::Ieee => {
            let top = ((1 << f.exponent) - 1) << f.mantissa;
            bits = magnitude.ge(top).pick(magnitude.shl(f.shift()) | F32_INFINITY, bits);
        }
        Special::NanOnly => {
            bits = magnitude.eq(f.sign() - 1).pick(bits.int(Elem::I32, F32_INFINITY | F32_QUIET), bits);
        }
        Special::NegZeroNan | Special::None => {}
    }
    let sign = (wide & f.sign()).shl(i64::from(31 - f.exponent - f.mantissa));
    let signed = bits | sign;
    if f.special == Special::NegZeroNan {
        let nan = signed.int(Elem::I32, F32_INFINITY | F32_QUIET);
        return (wide & ((f.sign() << 1) - 1)).eq(f.sign()).pick(nan, signed).as_float();
    }
    signed.as_float()
}

/// The bits of an `f32` that is a value of the format, as `i32`.
pub(super) fn to_bits(dtype: DType, x: X<'_>) -> X<'_> {
    let bits = x.bits();
    match dtype {
        DType::BF16 => {
            // A NaN may have its payload in the lower half only.
            return x.is_nan().pick(bits.int(Elem::I32, 0x7fc0), bits.lshr(16));
        }
        DType::F8E8M0 => return (bits & F32_MAGNITUDE).lshr(23),
        _ => {}
    }
    let f = Format::of(dtype);
    let magnitude = bits & F32_MAGNITUDE;
    let rebias = i64::from(F32_BIAS - f.bias) << F32_MANTISSA;
    let normal = (magnitude - rebias).lshr(f.shift());
    // Adding the power of two whose last bit is the format's least number leaves the count of those in the last bits.
    let magic = f.subnormal_magic();
    let subnormal = (magnitude.as_float() + magic).bits() - i64::from((magic as f32).to_bits());
    let mut out = magnitude.lt(i64::from(F32_BIAS + f.least_exponent()) << F32_MANTISSA).pick(subnormal, normal);
    if f.special == Special::Ieee {
        let infinity = ((1i64 << f.exponent) - 1) << f.mantissa;
        out = magnitude.eq(F32_INFINITY).pick(out.int(Elem::I32, infinity), out);
    }
    let sign = bits.lshr(i64::from(31 - f.exponent - f.mantissa)) & f.sign();
    let signed = out | sign;
    match f.nan() {
        Some(nan) => x.is_nan().pick(out.int(Elem::I32, nan), signed),
        None => signed,
    }
}

/// The nearest value of the format, as `f32`. From `f64` it first becomes an `f32` from which rounding again gives the
/// same as rounding once. With `saturate`, what is too large becomes the largest finite value.
pub(super) fn round(dtype: DType, x: X<'_>, saturate: bool) -> X<'_> {
    let x = if x.ty().elem == Elem::F64 { round_to_odd(x) } else { x };
    if dtype == DType::F16 && !saturate && x.has_halves() {
        return x.convert(Convert::Half, Elem::I16).convert(Convert::Half, Elem::F32);
    }
    let bits = x.bits();
    let magnitude = bits & F32_MAGNITUDE;
    if dtype == DType::F8E8M0 {
        // Ties go upward: 1.5 times a power of two has the first mantissa bit set. Below 2^-126 the codes are 0 and,
        // from 1.5 * 2^-127, 1.
        let low = magnitude.ge(0x60_0000).convert(Convert::ZExt, Elem::I32);
        let code = magnitude.lt(1 << F32_MANTISSA).pick(low, (magnitude + F32_QUIET).lshr(23));
        let code = if saturate { code.smin(0xfe) } else { code };
        let code = (x.lt(0.0) | x.is_nan()).pick(code.int(Elem::I32, 0xff), code);
        return from_bits(dtype, code.convert(Convert::Narrow, Elem::I8));
    }
    let f = Format::of(dtype);
    let shift = f.shift();
    // To nearest even: add just under half of the last place kept, plus that place's own bit, and cut.
    let odd = magnitude.lshr(shift) & 1;
    let normal = (magnitude + odd + ((1 << (shift - 1)) - 1)) & !((1i64 << shift) - 1);
    let mut out = normal;
    if dtype != DType::BF16 {
        let magic = f.subnormal_magic();
        let subnormal = ((magnitude.as_float() + magic) - magic).bits();
        out = magnitude.lt(i64::from(F32_BIAS + f.least_exponent()) << F32_MANTISSA).pick(subnormal, normal);
    }
    let largest = i64::from((dtype.max_finite() as f32).to_bits());
    let over = match f.special {
        _ if saturate => largest,
        Special::Ieee => F32_INFINITY,
        Special::None => largest,
        Special::NanOnly | Special::NegZeroNan => F32_INFINITY | F32_QUIET,
    };
    // Positive floats are ordered like their bits.
    out = out.gt(largest).pick(out.int(Elem::I32, over), out);
    let signed = out | (bits & !F32_MAGNITUDE);
    let result = match f.special {
        Special::NegZeroNan => out.eq(0).pick(out, signed),
        _ => signed,
    };
    // Where there is no NaN, it becomes negative zero.
    let nan = if f.special == Special::None { -0.0 } else { f64::NAN };
    x.is_nan().pick(x.float(Elem::F32, nan), result.as_float())
}

/// An `f32` from which rounding to a narrower format gives the same as rounding the `f64` would: toward zero, but an
/// inexact result ends in a one bit, so it is never a tie.
fn round_to_odd(x: X<'_>) -> X<'_> {
    let nearest = x.to_f32();
    let back = nearest.to_f64();
    let away = back.abs().gt(x.abs()).convert(Convert::ZExt, Elem::I32);
    let odd = ((nearest.bits() - away) | 1).as_float();
    // NaN differs from itself and overflow has no neighbour: both stay.
    let inexact = back.ne(x) & back.abs().lt(f64::INFINITY);
    inexact.pick(odd, nearest)
}

impl Format {
    fn of(dtype: DType) -> Format {
        let (exponent, mantissa, bias, special) = match dtype {
            DType::F16 => (5, 10, 15, Special::Ieee),
            DType::BF16 => (8, 7, 127, Special::Ieee),
            DType::F8E4M3 => (4, 3, 7, Special::NanOnly),
            DType::F8E4M3FNUZ => (4, 3, 8, Special::NegZeroNan),
            DType::F8E5M2 => (5, 2, 15, Special::Ieee),
            DType::F8E5M2FNUZ => (5, 2, 16, Special::NegZeroNan),
            DType::F4E2M1 => (2, 1, 1, Special::None),
            _ => unreachable!("{dtype} is not a small float with a sign"),
        };
        Format { exponent, mantissa, bias, special }
    }

    fn sign(&self) -> i64 {
        1 << (self.exponent + self.mantissa)
    }

    /// Mantissa bits that `f32` has and the format has not.
    fn shift(&self) -> i64 {
        i64::from(F32_MANTISSA - self.mantissa)
    }

    /// The exponent of the least normal number.
    fn least_exponent(&self) -> i32 {
        1 - self.bias
    }

    /// The `f32` whose last place is the least subnormal of the format.
    fn subnormal_magic(&self) -> f64 {
        2f64.powi(self.least_exponent() - self.mantissa as i32 + F32_MANTISSA as i32)
    }

    fn nan(&self) -> Option<i64> {
        match self.special {
            Special::Ieee => Some((((1 << self.exponent) - 1) << self.mantissa) | (1 << (self.mantissa - 1))),
            Special::NanOnly => Some(self.sign() - 1),
            Special::NegZeroNan => Some(self.sign()),
            Special::None => None,
        }
    }
}
