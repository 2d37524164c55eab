//! Bounds of the floats in an expression, as far as it states them.
use numrsc_ir::{DType, Scalar, ScalarFn, scalar::Step};

/// What a step lies between, unless it is NaN.
pub type Range = (f64, f64);

pub const ANY: Range = (f64::NEG_INFINITY, f64::INFINITY);

/// The bounds of all steps.
#[allow(clippy::wildcard_enum_match_arm, reason = "nothing is known of the results of other functions")]
pub fn ranges(scalar: &Scalar, types: &[DType]) -> Vec<Range> {
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
pub fn rounded(ty: DType, (low, high): Range) -> Range {
    if low.is_nan() || high.is_nan() { ANY } else { (ty.round(low), ty.round(high)) }
}

/// What the integers lie between that floats become; NaN becomes 0.
pub fn truncated((low, high): Range) -> Option<(i64, i64)> {
    fits_i32((low, high)).then(|| ((low.trunc() as i64).min(0), (high.trunc() as i64).max(0)))
}

pub fn fits_i32((low, high): Range) -> bool {
    f64::from(i32::MIN) <= low && high <= f64::from(i32::MAX)
}
