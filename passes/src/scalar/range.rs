//! Bounds of the floats in an expression, as far as it states them: an index is clamped before it becomes an integer, which is then simple.
use super::{code::X, number, wrap_small};
use numrsc_ir::{
    DType, Scalar, ScalarFn,
    dtype::Class,
    kernel::{Convert, Elem},
    scalar::Step,
};

/// What a step lies between, unless it is NaN.
pub(crate) type Range = (f64, f64);

const ANY: Range = (f64::NEG_INFINITY, f64::INFINITY);

/// The bounds of all steps.
pub(crate) fn ranges(scalar: &Scalar, types: &[DType]) -> Vec<Range> {
    let mut known: Vec<Range> = Vec::with_capacity(types.len());
    for (step, ty) in scalar.steps().iter().zip(types) {
        let range = match step {
            Step::Lit(lit) if ty.is_float() && !lit.as_f64().is_nan() => (lit.as_f64(), lit.as_f64()),
            Step::Call(c) if ty.is_float() => {
                let of = |n: usize| known[c.args[n] as usize];
                match c.f {
                    ScalarFn::Min => (of(0).0.min(of(1).0), of(0).1.min(of(1).1)),
                    ScalarFn::Max => (of(0).0.max(of(1).0), of(0).1.max(of(1).1)),
                    ScalarFn::Floor | ScalarFn::Ceil | ScalarFn::Trunc | ScalarFn::Round => {
                        (of(0).0.floor(), of(0).1.ceil())
                    }
                    ScalarFn::Add => rounded(*ty, (of(0).0 + of(1).0, of(0).1 + of(1).1)),
                    ScalarFn::Sub => rounded(*ty, (of(0).0 - of(1).1, of(0).1 - of(1).0)),
                    _ => ANY,
                }
            }
            _ => ANY,
        };
        known.push(range);
    }
    known
}

/// Bounds of what is rounded to a type: rounding keeps the order.
fn rounded(ty: DType, (low, high): Range) -> Range {
    if low.is_nan() || high.is_nan() { ANY } else { (ty.round(low), ty.round(high)) }
}

/// What the integers lie between that floats become; NaN becomes 0.
pub(crate) fn truncated((low, high): Range) -> Option<(i64, i64)> {
    fits_i32((low, high)).then(|| ((low.trunc() as i64).min(0), (high.trunc() as i64).max(0)))
}

fn fits_i32((low, high): Range) -> bool {
    f64::from(i32::MIN) <= low && high <= f64::from(i32::MAX)
}

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
