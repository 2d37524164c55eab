//! Bounds of the floats in an expression, as far as it states them: an index is clamped before it becomes an integer,
//! which is then simple.
use crate::{code::X, number, wrap_small};
use numrsc_facts::float_ranges::{Range, fits_i32};
use numrsc_ir::{
    DType, ScalarFn,
    dtype::Class,
    kernel::{Convert, Elem},
};

/// A float within bounds as an integer, if these are such that it is an `i32` first. NaN gives 0.
pub(super) fn to_int<'c>(f: ScalarFn, of: DType, to: DType, x: X<'c>, range: Range) -> Option<X<'c>> {
    let is_int = matches!(to.class(), Class::Signed | Class::Unsigned);
    if f != ScalarFn::Cast || !of.is_float() || !is_int || !fits_i32(range) {
        return None;
    }
    let (y, target) = (x.convert(Convert::FToS, Elem::I32), number(to));
    let y = match target.bits() {
        32 => y,
        bits => y.convert(if bits < 32 { Convert::Narrow } else { Convert::SExt }, target),
    };
    Some(wrap_small(to, y))
}
