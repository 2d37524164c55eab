//! Sizes as numbers: those that are not known are taken to be typical.
use numrsc_ir::{Dim, TensorType};

/// The assumed size of an unknown dimension.
pub const TYPICAL: i64 = 16;

/// Sizes are capped here, so that costs do not overflow.
pub const MANY: u64 = 1 << 40;

/// A dimension as a number.
pub fn size(d: &Dim) -> u64 {
    d.eval(&|_| Some(TYPICAL)).map_or(TYPICAL as u64, |n| n.clamp(0, MANY as i64) as u64)
}

pub fn product<'d>(dims: impl Iterator<Item = &'d Dim>) -> u64 {
    dims.map(size).fold(1, u64::saturating_mul).min(MANY)
}

pub fn elements_of(t: &TensorType) -> u64 {
    product(t.shape.iter())
}

pub fn bytes(t: &TensorType) -> u64 {
    elements_of(t).saturating_mul(t.dtype.size().max(1) as u64)
}

/// The quotient of nonnegative numbers, rounded up.
pub fn ceil_div(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}
