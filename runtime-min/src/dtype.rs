//! Element types of the runtime, with ONNX number, name and size, and the corresponding Rust types.
use crate::{BF16, F16};
use core::fmt;

macro_rules! dtypes {
    ($( $variant:ident $name:literal $size:literal $onnx:literal ; )*) => {
        /// Element type of a tensor; the discriminant is its number in ONNX's `TensorProto.DataType`.
        /// Types narrower than a byte take one byte per element.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(i32)]
        pub enum DType { $( $variant = $onnx ),* }

        impl DType {
            pub const ALL: &'static [DType] = &[$(DType::$variant),*];

            pub fn name(self) -> &'static str {
                match self { $( DType::$variant => $name ),* }
            }

            /// Bytes per element in memory; for a string, those of its address.
            pub fn size(self) -> usize {
                match self { $( DType::$variant => $size ),* }
            }

            pub fn from_onnx(number: i32) -> Option<DType> {
                match number { $( $onnx => Some(DType::$variant), )* _ => None }
            }
        }
    };
}

#[rustfmt::skip]
dtypes! {
    F32        "f32"        4 1;
    U8         "u8"         1 2;
    I8         "i8"         1 3;
    U16        "u16"        2 4;
    I16        "i16"        2 5;
    I32        "i32"        4 6;
    I64        "i64"        8 7;
    Str        "str"        8 8;
    Bool       "bool"       1 9;
    F16        "f16"        2 10;
    F64        "f64"        8 11;
    U32        "u32"        4 12;
    U64        "u64"        8 13;
    BF16       "bf16"       2 16;
    F8E4M3     "f8e4m3"     1 17;
    F8E4M3FNUZ "f8e4m3fnuz" 1 18;
    F8E5M2     "f8e5m2"     1 19;
    F8E5M2FNUZ "f8e5m2fnuz" 1 20;
    U4         "u4"         1 21;
    I4         "i4"         1 22;
    F4E2M1     "f4e2m1"     1 23;
    F8E8M0     "f8e8m0"     1 24;
    U2         "u2"         1 25;
    I2         "i2"         1 26;
}

impl DType {
    /// The number of this type in ONNX's `TensorProto.DataType`.
    pub fn onnx(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Rust types that are elements of tensors as they are.
///
/// Sealed: the runtime reads memory as these types.
pub trait Element: Copy + sealed::Sealed + 'static {
    const DTYPE: DType;
}

macro_rules! elements {
    ($( $rust:ty = $variant:ident ),*) => { $(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$variant;
        }
    )* };
}

elements!(
    F16 = F16,
    BF16 = BF16,
    f32 = F32,
    f64 = F64,
    i8 = I8,
    i16 = I16,
    i32 = I32,
    i64 = I64,
    u8 = U8,
    u16 = U16,
    u32 = U32,
    u64 = U64,
    bool = Bool
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back() {
        for &dtype in DType::ALL {
            assert_eq!(DType::from_onnx(dtype.onnx()), Some(dtype), "{dtype}");
        }
        for complex_or_nothing in [0, 14, 15, 27, -1, i32::MAX] {
            assert_eq!(DType::from_onnx(complex_or_nothing), None);
        }
    }

    #[test]
    fn elements_have_the_size_of_their_type() {
        macro_rules! check {
            ($($rust:ty),*) => { $( assert_eq!(size_of::<$rust>(), <$rust>::DTYPE.size(), "{}", <$rust>::DTYPE); )* };
        }
        check!(F16, BF16, f32, f64, bool, i8, i16, i32, i64, u8, u16, u32, u64);
    }
}
