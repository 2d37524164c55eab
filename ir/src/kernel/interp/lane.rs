//! The arithmetic of one lane. Bits above the width of the element are 0, before and after.
use crate::{
    DType,
    kernel::{Binary, Compare, Convert, Elem, Unary},
};
use std::ops::{Add, Div, Mul, Sub};

pub(super) fn unary(op: Unary, elem: Elem, x: u64) -> u64 {
    match (op, elem) {
        (Unary::Neg, e) if e.is_int() => x.wrapping_neg() & mask(e),
        (Unary::Not, e) => !x & mask(e),
        (_, Elem::F32) => {
            let x = single(x);
            bits32(match op {
                Unary::Neg | Unary::Not => -x,
                Unary::Abs => x.abs(),
                Unary::Sqrt => x.sqrt(),
                Unary::Floor => x.floor(),
                Unary::Ceil => x.ceil(),
                Unary::Trunc => x.trunc(),
                Unary::Round => x.round_ties_even(),
            })
        }
        _ => {
            let x = f64::from_bits(x);
            f64::to_bits(match op {
                Unary::Neg | Unary::Not => -x,
                Unary::Abs => x.abs(),
                Unary::Sqrt => x.sqrt(),
                Unary::Floor => x.floor(),
                Unary::Ceil => x.ceil(),
                Unary::Trunc => x.trunc(),
                Unary::Round => x.round_ties_even(),
            })
        }
    }
}

/// An error where the IR leaves the result open.
pub(super) fn binary(op: Binary, elem: Elem, x: u64, y: u64) -> Result<u64, String> {
    match elem {
        Elem::F32 => floating(op, single(x), single(y)).map(bits32),
        Elem::F64 => floating(op, f64::from_bits(x), f64::from_bits(y)).map(f64::to_bits),
        _ => integer(op, elem, x, y).map(|bits| bits & mask(elem)),
    }
}

fn floating<T>(op: Binary, x: T, y: T) -> Result<T, String>
where
    T: Add<Output = T> + Sub<Output = T> + Mul<Output = T> + Div<Output = T> + PartialOrd,
{
    Ok(match op {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::FDiv => x / y,
        Binary::FMin if x < y => x,
        Binary::FMax if x > y => x,
        Binary::FMin | Binary::FMax => y,
        _ => return Err(format!("{op:?} of floats")),
    })
}

fn integer(op: Binary, elem: Elem, x: u64, y: u64) -> Result<u64, String> {
    let (sx, sy) = (signed(elem, x), signed(elem, y));
    match op {
        Binary::SDiv | Binary::UDiv | Binary::SRem | Binary::URem if y == 0 => return Err("division by zero".into()),
        Binary::SDiv | Binary::SRem if sy == -1 && sx == i64::MIN >> (64 - elem.bits()) => {
            return Err("division of the least number by -1".into());
        }
        Binary::Shl | Binary::LShr | Binary::AShr if y >= u64::from(elem.bits()) => {
            return Err(format!("shift by {y}, but the width is {}", elem.bits()));
        }
        _ => {}
    }
    Ok(match op {
        Binary::Add => x.wrapping_add(y),
        Binary::Sub => x.wrapping_sub(y),
        Binary::Mul => x.wrapping_mul(y),
        Binary::SDiv => (sx / sy) as u64,
        Binary::UDiv => x / y,
        Binary::SRem => (sx % sy) as u64,
        Binary::URem => x % y,
        Binary::SMin => sx.min(sy) as u64,
        Binary::SMax => sx.max(sy) as u64,
        Binary::UMin => x.min(y),
        Binary::UMax => x.max(y),
        Binary::And => x & y,
        Binary::Or => x | y,
        Binary::Xor => x ^ y,
        Binary::Shl => x << y,
        Binary::LShr => x >> y,
        Binary::AShr => (sx >> y) as u64,
        Binary::FDiv | Binary::FMin | Binary::FMax => return Err(format!("{op:?} of integers")),
    })
}

pub(super) fn muladd(elem: Elem, x: u64, y: u64, z: u64) -> u64 {
    match elem {
        Elem::F32 => bits32(single(x).mul_add(single(y), single(z))),
        _ => f64::from_bits(x).mul_add(f64::from_bits(y), f64::from_bits(z)).to_bits(),
    }
}

pub(super) fn compare(op: Compare, elem: Elem, x: u64, y: u64) -> bool {
    if elem.is_float() {
        let (x, y) = (float(elem, x), float(elem, y));
        return match op {
            Compare::Eq => x == y,
            Compare::Ne => x != y,
            Compare::Lt | Compare::ULt => x < y,
            Compare::Le | Compare::ULe => x <= y,
        };
    }
    match op {
        Compare::Eq => x == y,
        Compare::Ne => x != y,
        Compare::Lt => signed(elem, x) < signed(elem, y),
        Compare::Le => signed(elem, x) <= signed(elem, y),
        Compare::ULt => x < y,
        Compare::ULe => x <= y,
    }
}

pub(super) fn convert(op: Convert, from: Elem, to: Elem, x: u64) -> u64 {
    match op {
        Convert::Narrow => x & mask(to),
        Convert::SExt => signed(from, x) as u64 & mask(to),
        Convert::ZExt | Convert::Bits | Convert::Pointer => x,
        Convert::Float if to == Elem::F32 => bits32(float(from, x) as f32),
        Convert::Float => float(from, x).to_bits(),
        Convert::Half if to == Elem::F32 => bits32(DType::F16.float_from_bits(x) as f32),
        Convert::Half => DType::F16.float_to_bits(float(from, x), false),
        Convert::SToF if to == Elem::F32 => bits32(signed(from, x) as f32),
        Convert::SToF => (signed(from, x) as f64).to_bits(),
        Convert::UToF if to == Elem::F32 => bits32(x as f32),
        Convert::UToF => (x as f64).to_bits(),
        Convert::FToS => {
            let x = float(from, x);
            (match to {
                Elem::I8 => i64::from(x as i8),
                Elem::I16 => i64::from(x as i16),
                Elem::I32 => i64::from(x as i32),
                _ => x as i64,
            }) as u64
                & mask(to)
        }
        Convert::FToU => {
            let x = float(from, x);
            match to {
                Elem::I8 => u64::from(x as u8),
                Elem::I16 => u64::from(x as u16),
                Elem::I32 => u64::from(x as u32),
                _ => x as u64,
            }
        }
    }
}

/// The bits of a small number.
pub(super) fn number(elem: Elem, x: u32) -> u64 {
    match elem {
        Elem::F32 => bits32(x as f32),
        Elem::F64 => f64::from(x).to_bits(),
        _ => u64::from(x) & mask(elem),
    }
}

fn mask(elem: Elem) -> u64 {
    u64::MAX >> (64 - elem.bits())
}

fn signed(elem: Elem, x: u64) -> i64 {
    let unused = 64 - elem.bits();
    (x << unused) as i64 >> unused
}

fn single(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

fn bits32(x: f32) -> u64 {
    u64::from(x.to_bits())
}

/// The number, which every float type widens to exactly.
fn float(elem: Elem, x: u64) -> f64 {
    if elem == Elem::F32 { f64::from(single(x)) } else { f64::from_bits(x) }
}
