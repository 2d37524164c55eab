//! Element types: one table row each, with exact conversion of every float format to and from `f64`.
use half::{bf16, f16};
use std::{fmt, str::FromStr};

/// What kind of numbers a [`DType`] holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Float,
    Signed,
    Unsigned,
    Bool,
    Str,
}

macro_rules! dtypes {
    ($( $(#[$doc:meta])* $var:ident $name:literal $class:ident $bits:literal $onnx:literal ; )*) => {
        /// Element type of a tensor. Types narrower than a byte are stored one element per byte.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum DType { $( $(#[$doc])* $var ),* }
        impl DType {
            /// Every element type, in declaration order.
            pub const ALL: &'static [DType] = &[$(DType::$var),*];
            /// The name used in the textual form.
            pub fn name(self) -> &'static str { match self { $(DType::$var => $name),* } }
            pub fn class(self) -> Class { match self { $(DType::$var => Class::$class),* } }
            /// Width of the number itself; storage is [`DType::size`] bytes.
            pub fn bits(self) -> u32 { match self { $(DType::$var => $bits),* } }
            /// The number of this type in ONNX's `TensorProto.DataType`.
            pub fn onnx(self) -> i32 { match self { $(DType::$var => $onnx),* } }
            pub fn from_onnx(code: i32) -> Option<DType> { match code { $($onnx => Some(DType::$var),)* _ => None } }
        }
    };
}

#[rustfmt::skip]
dtypes! {
    F64        "f64"        Float    64 11;
    F32        "f32"        Float    32 1;
    F16        "f16"        Float    16 10;
    BF16       "bf16"       Float    16 16;
    /// Finite and NaN only, range ±448.
    F8E4M3     "f8e4m3"     Float    8  17;
    /// No negative zero, no infinity, range ±240.
    F8E4M3FNUZ "f8e4m3fnuz" Float    8  18;
    F8E5M2     "f8e5m2"     Float    8  19;
    F8E5M2FNUZ "f8e5m2fnuz" Float    8  20;
    /// A power of two: exponent only, no sign, no zero.
    F8E8M0     "f8e8m0"     Float    8  24;
    /// Neither infinity nor NaN, range ±6.
    F4E2M1     "f4e2m1"     Float    4  23;
    I64        "i64"        Signed   64 7;
    I32        "i32"        Signed   32 6;
    I16        "i16"        Signed   16 5;
    I8         "i8"         Signed   8  3;
    I4         "i4"         Signed   4  22;
    I2         "i2"         Signed   2  26;
    U64        "u64"        Unsigned 64 13;
    U32        "u32"        Unsigned 32 12;
    U16        "u16"        Unsigned 16 4;
    U8         "u8"         Unsigned 8  2;
    U4         "u4"         Unsigned 4  21;
    U2         "u2"         Unsigned 2  25;
    Bool       "bool"       Bool     1  9;
    Str        "str"        Str      0  8;
}

impl DType {
    /// Bytes one element takes in memory (0 for strings, which are not plain data).
    pub fn size(self) -> usize {
        (self.bits() as usize).div_ceil(8)
    }

    pub fn is_float(self) -> bool {
        self.class() == Class::Float
    }

    /// Integers, without `bool`.
    pub fn is_int(self) -> bool {
        matches!(self.class(), Class::Signed | Class::Unsigned)
    }

    pub fn is_signed(self) -> bool {
        matches!(self.class(), Class::Signed | Class::Float)
    }

    /// Smallest and largest value of an integer type (or `bool`).
    pub fn int_range(self) -> (i128, i128) {
        match self.class() {
            Class::Signed => (-(1i128 << (self.bits() - 1)), (1i128 << (self.bits() - 1)) - 1),
            Class::Unsigned | Class::Bool => (0, (1i128 << self.bits()) - 1),
            Class::Float | Class::Str => panic!("{self} is not an integer type"),
        }
    }

    /// The value of `x` modulo 2^bits, as this integer type reads it.
    pub fn wrap(self, x: i128) -> i128 {
        let bits = self.bits();
        let low = x & ((1i128 << bits) - 1);
        if self.class() == Class::Signed && low >> (bits - 1) != 0 { low - (1i128 << bits) } else { low }
    }

    /// The nearest value of this float type (ties to even). Where the format has no infinity, overflow gives NaN.
    pub fn round(self, x: f64) -> f64 {
        match self {
            DType::F64 => x,
            DType::F32 => f64::from(x as f32),
            _ => self.float_from_bits(self.float_to_bits(x, false)),
        }
    }

    /// Largest finite value of a float type.
    pub fn max_finite(self) -> f64 {
        match self {
            DType::F64 => f64::MAX,
            DType::F32 => f64::from(f32::MAX),
            DType::F16 => f16::MAX.to_f64(),
            DType::BF16 => bf16::MAX.to_f64(),
            DType::F8E8M0 => 2f64.powi(127),
            _ => mini(self).max,
        }
    }

    /// Encode `x` (ties to even). `saturate` turns overflow and infinity into the largest finite value, for the
    /// formats of 8 bits and fewer.
    pub fn float_to_bits(self, x: f64, saturate: bool) -> u64 {
        match self {
            DType::F64 => x.to_bits(),
            DType::F32 => u64::from((x as f32).to_bits()),
            DType::F16 => u64::from(f16::from_f32(round_to_odd(x)).to_bits()),
            DType::BF16 => u64::from(bf16::from_f32(round_to_odd(x)).to_bits()),
            DType::F8E8M0 => e8m0_to_bits(x, saturate),
            _ => mini(self).encode(x, saturate),
        }
    }

    pub fn float_from_bits(self, bits: u64) -> f64 {
        match self {
            DType::F64 => f64::from_bits(bits),
            DType::F32 => f64::from(f32::from_bits(bits as u32)),
            DType::F16 => f16::from_bits(bits as u16).to_f64(),
            DType::BF16 => bf16::from_bits(bits as u16).to_f64(),
            DType::F8E8M0 if bits == 0xff => f64::NAN,
            DType::F8E8M0 => 2f64.powi(bits as i32 - 127),
            _ => mini(self).decode(bits),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = String;
    fn from_str(s: &str) -> Result<DType, String> {
        DType::ALL.iter().copied().find(|d| d.name() == s).ok_or_else(|| format!("unknown element type `{s}`"))
    }
}

/// An `f32` from which rounding to a half-width format gives the same as rounding `x` would: an inexact result ends in a
/// one bit, so it is never a tie. (`half` drops the low bits of an `f64`, or rounds twice.)
fn round_to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    if x.is_nan() || nearest.is_infinite() || f64::from(nearest) == x {
        return nearest;
    }
    let toward_zero = nearest.to_bits() - u32::from(f64::from(nearest).abs() > x.abs());
    f32::from_bits(toward_zero | 1)
}

/// A float format of at most 8 bits with a sign, `exp` exponent bits and `man` mantissa bits.
struct Mini {
    exp: u32,
    man: u32,
    bias: i32,
    max: f64,
    special: Special,
}

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

fn mini(d: DType) -> Mini {
    match d {
        DType::F8E4M3 => Mini { exp: 4, man: 3, bias: 7, max: 448.0, special: Special::NanOnly },
        DType::F8E4M3FNUZ => Mini { exp: 4, man: 3, bias: 8, max: 240.0, special: Special::NegZeroNan },
        DType::F8E5M2 => Mini { exp: 5, man: 2, bias: 15, max: 57344.0, special: Special::Ieee },
        DType::F8E5M2FNUZ => Mini { exp: 5, man: 2, bias: 16, max: 57344.0, special: Special::NegZeroNan },
        DType::F4E2M1 => Mini { exp: 2, man: 1, bias: 1, max: 6.0, special: Special::None },
        _ => unreachable!("{d} has its own conversion"),
    }
}

impl Mini {
    fn sign_bit(&self) -> u64 {
        1 << (self.exp + self.man)
    }

    fn nan(&self, sign: u64) -> u64 {
        match self.special {
            Special::Ieee => sign | (((1 << self.exp) - 1) << self.man) | (1 << (self.man - 1)),
            Special::NanOnly => sign | (self.sign_bit() - 1),
            // Where there is no NaN, it becomes negative zero.
            Special::NegZeroNan | Special::None => self.sign_bit(),
        }
    }

    fn encode(&self, x: f64, saturate: bool) -> u64 {
        let sign = if x.is_sign_negative() { self.sign_bit() } else { 0 };
        if x.is_nan() {
            return self.nan(sign);
        }
        // The spacing of the format around x is a power of two, so scaling is exact and rounding happens once.
        let a = x.abs();
        let min_exp = 1 - self.bias;
        let exp = if a == 0.0 { min_exp } else { (((a.to_bits() >> 52) as i32) - 1023).max(min_exp) };
        let scale = 2f64.powi(self.man as i32 - exp);
        let rounded = (a * scale).round_ties_even() / scale;
        if a.is_infinite() || rounded > self.max {
            return match self.special {
                _ if saturate => sign | self.encode(self.max, false),
                Special::Ieee => sign | (((1 << self.exp) - 1) << self.man),
                Special::None => sign | self.encode(self.max, false),
                Special::NanOnly | Special::NegZeroNan => self.nan(sign),
            };
        }
        let exp = if rounded == 0.0 { min_exp } else { (((rounded.to_bits() >> 52) as i32) - 1023).max(min_exp) };
        let units = (rounded * 2f64.powi(self.man as i32 - exp)) as u64;
        let one = 1u64 << self.man;
        let magnitude = if units < one { units } else { (((exp + self.bias) as u64) << self.man) | (units - one) };
        if magnitude == 0 && matches!(self.special, Special::NegZeroNan) { 0 } else { sign | magnitude }
    }

    fn decode(&self, bits: u64) -> f64 {
        let sign = if bits & self.sign_bit() != 0 { -1.0 } else { 1.0 };
        let magnitude = bits & (self.sign_bit() - 1);
        let exp = (magnitude >> self.man) as i32;
        let man = (magnitude & ((1 << self.man) - 1)) as f64;
        match self.special {
            Special::Ieee if exp == (1 << self.exp) - 1 => {
                return if man == 0.0 { sign * f64::INFINITY } else { f64::NAN };
            }
            Special::NanOnly if magnitude == self.sign_bit() - 1 => return f64::NAN,
            Special::NegZeroNan if bits == self.sign_bit() => return f64::NAN,
            _ => {}
        }
        let units = 2f64.powi(-(self.man as i32));
        if exp == 0 {
            sign * man * units * 2f64.powi(1 - self.bias)
        } else {
            sign * (1.0 + man * units) * 2f64.powi(exp - self.bias)
        }
    }
}

/// The nearest power of two, ties upward (the OCP microscaling default); negative numbers have no encoding.
fn e8m0_to_bits(x: f64, saturate: bool) -> u64 {
    if x.is_nan() || x < 0.0 || (x.is_infinite() && !saturate) {
        return 0xff;
    }
    if x.is_infinite() {
        return 0xfe;
    }
    let exp = if x == 0.0 { -127 } else { ((x.to_bits() >> 52) as i32 - 1023).max(-127) };
    let up = x > 0.0 && x * 2f64.powi(-exp) >= 1.5;
    match exp + i32::from(up) + 127 {
        code if code > 0xfe => {
            if saturate {
                0xfe
            } else {
                0xff
            }
        }
        code => code as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_small_float_decodes_and_encodes_to_itself() {
        for d in DType::ALL.iter().copied().filter(|d| d.is_float() && d.bits() <= 16) {
            for bits in 0..1u64 << d.bits() {
                let x = d.float_from_bits(bits);
                if x.is_nan() {
                    assert!(d.float_from_bits(d.float_to_bits(x, false)).is_nan(), "{d} {bits:#x}");
                } else {
                    assert_eq!(d.float_to_bits(x, false), bits, "{d} {bits:#x} = {x}");
                }
            }
        }
    }

    #[test]
    fn halfway_goes_to_even_and_overflow_is_defined() {
        assert_eq!(DType::F8E4M3.round(17.0), 16.0);
        assert_eq!(DType::F8E4M3.round(19.0), 20.0);
        assert_eq!(DType::F8E4M3.round(464.0), 448.0);
        assert!(DType::F8E4M3.round(465.0).is_nan());
        assert_eq!(DType::F8E5M2.round(1e9), f64::INFINITY);
        assert_eq!(DType::F8E5M2.float_from_bits(DType::F8E5M2.float_to_bits(-1e9, true)), -57344.0);
        assert_eq!(DType::F4E2M1.round(5.0), 4.0);
        assert_eq!(DType::F4E2M1.round(-100.0), -6.0);
        assert_eq!(DType::F8E4M3FNUZ.float_to_bits(-0.0, false), 0);
        // Just above and just below a tie, beyond the precision of f32.
        for (d, tie, unit) in
            [(DType::F16, 2f64.powi(-11), 2f64.powi(-10)), (DType::BF16, 2f64.powi(-8), 2f64.powi(-7))]
        {
            assert_eq!(d.round(1.0 + tie), 1.0);
            assert_eq!(d.round(1.0 + tie + 2f64.powi(-50)), 1.0 + unit);
            assert_eq!(d.round(1.0 + 3.0 * tie - 2f64.powi(-50)), 1.0 + unit);
            assert_eq!(d.round(-1.0 - tie - 2f64.powi(-50)), -1.0 - unit);
        }
        assert_eq!(DType::F16.round(2f64.powi(-25)), 0.0);
        assert_eq!(DType::F16.round(2f64.powi(-25) * (1.0 + 2f64.powi(-40))), 2f64.powi(-24));
        assert_eq!(DType::F16.round(1e300), f64::INFINITY);
        assert_eq!(DType::F16.round(-1e-300), 0.0);
    }

    #[test]
    fn the_largest_value_is_one_and_twice_it_is_none() {
        for d in DType::ALL.iter().copied().filter(|d| d.is_float()) {
            let max = d.max_finite();
            assert_eq!(d.round(max), max, "{d}");
            assert!(d.round(max * 2.0) == max || !d.round(max * 2.0).is_finite(), "{d}");
        }
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(DType::I8.wrap(200), -56);
        assert_eq!(DType::U4.wrap(-1), 15);
        assert_eq!(DType::I2.wrap(2), -2);
        assert_eq!(DType::U64.wrap(-1), i128::from(u64::MAX));
    }
}
