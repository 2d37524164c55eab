//! 16-bit floats as elements of tensors. They are for storage and conversion; arithmetic converts to `f32`, which
//! represents all their values.
use core::{cmp::Ordering, fmt};

macro_rules! halves {
    ($( $(#[$doc:meta])* $name:ident: $decode:ident $encode:ident; )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Default)]
        #[repr(transparent)]
        pub struct $name(u16);

        impl $name {
            /// The nearest value, ties to even. Overflow becomes infinity.
            pub fn from_f32(value: f32) -> Self {
                Self($encode(value))
            }

            pub fn to_f32(self) -> f32 {
                $decode(self.0)
            }

            pub const fn from_bits(bits: u16) -> Self {
                Self(bits)
            }

            pub const fn to_bits(self) -> u16 {
                self.0
            }
        }

        impl From<$name> for f32 {
            fn from(value: $name) -> f32 {
                value.to_f32()
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f32(), f)
            }
        }
    )* };
}

halves! {
    /// IEEE's half precision: 5 bits of exponent, 10 of fraction.
    F16: decode_f16 encode_f16;
    /// The upper half of an `f32`: 8 bits of exponent, 7 of fraction.
    BF16: decode_bf16 encode_bf16;
}

const SIGN: u16 = 0x8000;

fn decode_f16(bits: u16) -> f32 {
    const INFINITY: u16 = 0x7c00;
    let magnitude = bits & !SIGN;
    let fraction_in_place = u32::from(magnitude) << 13;
    let value = if magnitude >= INFINITY {
        f32::from_bits(0x7f80_0000 | fraction_in_place)
    } else {
        // The exponents' biases differ by 112. Multiplying is exact, and right for subnormal numbers too.
        f32::from_bits(fraction_in_place) * f32::from_bits((127 + 112) << 23)
    };
    if bits & SIGN == 0 { value } else { -value }
}

fn encode_f16(value: f32) -> u16 {
    /// Halfway between the largest finite value and what would be next.
    const TOO_LARGE: f32 = 65520.0;
    const LEAST_NORMAL: f32 = 6.103_515_6e-5;
    let sign = (value.to_bits() >> 16) as u16 & SIGN;
    let magnitude = value.abs();
    let bits = magnitude.to_bits();
    sign | match magnitude {
        _ if magnitude.is_nan() => 0x7e00 | (bits >> 13) as u16 & 0x1ff,
        TOO_LARGE.. => 0x7c00,
        // The last bit of 0.5 in `f32` is worth as much as that of a subnormal number here: adding rounds.
        ..LEAST_NORMAL => ((magnitude + 0.5).to_bits() - 0.5f32.to_bits()) as u16,
        _ => (round_off(bits, 13) - (112 << 10)) as u16,
    }
}

fn decode_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

fn encode_bf16(value: f32) -> u16 {
    const QUIET: u16 = 0x40;
    let bits = value.to_bits();
    if value.is_nan() { (bits >> 16) as u16 | QUIET } else { round_off(bits, 16) as u16 }
}

/// Without the last bits, rounded to even.
fn round_off(bits: u32, count: u32) -> u32 {
    let is_odd = bits >> count & 1;
    (bits + (1 << (count - 1)) - 1 + is_odd) >> count
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every value, and what lies between neighbours.
    fn check(infinity: u16, decode: fn(u16) -> f32, encode: fn(f32) -> u16, defined: fn(u16) -> f64) {
        for bits in 0..=infinity {
            let value = decode(bits);
            assert_eq!(f64::from(value), if bits == infinity { f64::INFINITY } else { defined(bits) });
            assert_eq!((encode(value), encode(-value)), (bits, bits | SIGN));
            assert_eq!(decode(bits | SIGN).to_bits(), (-value).to_bits());
        }
        for low in 0..infinity {
            // The largest values round up as if there were one more exponent.
            let middle = (f64::from(decode(low)) + defined(low + 1)) / 2.0;
            let middle = middle as f32;
            assert_eq!(encode(middle), low + (low & 1), "{middle}");
            assert_eq!(encode(middle.next_down()), low);
            assert_eq!(encode(middle.next_up()), low + 1);
        }
        for bits in infinity + 1..SIGN {
            assert!(decode(bits).is_nan() && decode(encode(decode(bits))).is_nan());
        }
        assert_eq!((encode(f32::MAX), encode(f32::NEG_INFINITY)), (infinity, infinity | SIGN));
        assert!(decode(encode(f32::from_bits(0x7f80_0001))).is_nan(), "no NaN becomes infinite");
    }

    fn ieee(bits: u16, fraction_bits: u32, bias: i32) -> f64 {
        let fraction = f64::from(bits & ((1 << fraction_bits) - 1)) / f64::from(1u32 << fraction_bits);
        match i32::from(bits >> fraction_bits) {
            0 => fraction * 2f64.powi(1 - bias),
            exponent => (1.0 + fraction) * 2f64.powi(exponent - bias),
        }
    }

    #[test]
    fn f16_is_ieee_half_precision() {
        check(0x7c00, decode_f16, encode_f16, |bits| ieee(bits, 10, 15));
    }

    #[test]
    fn bf16_is_the_upper_half() {
        check(0x7f80, decode_bf16, encode_bf16, |bits| ieee(bits, 7, 127));
    }

    #[test]
    fn they_compare_as_numbers() {
        assert_eq!(F16::from_f32(-0.0), F16::default());
        assert_ne!(BF16::from_f32(f32::NAN), BF16::from_f32(f32::NAN));
        assert!(F16::from_f32(-2.0) < F16::from_f32(0.5));
        assert_eq!(
            (F16::from_f32(0.1).to_string(), BF16::from_f32(3.0).to_string()),
            ("0.099975586".into(), "3".into())
        );
    }
}
