//! What functions of elements cost: the one place with numbers of instructions.
use numrsc_ir::{
    Scalar, ScalarFn,
    scalar::{Call, Sig, Step},
};

/// A rough count of instructions for a scalar expression.
#[allow(clippy::wildcard_enum_match_arm, reason = "a rough count: what is not listed is one instruction")]
pub fn work_of(f: &Scalar) -> i64 {
    // Division by a power of two is a multiplication.
    let halves = |c: &Call| matches!(&f.steps()[c.args[1] as usize], Step::Lit(l) if l.is_power_of_two());
    let cost = |s: &Step| match s {
        Step::Arg(_) | Step::Lit(_) => 0,
        Step::Call(c) => match c.f {
            ScalarFn::Div if halves(c) => 1,
            ScalarFn::Div | ScalarFn::Sqrt => 6,
            ScalarFn::Mod | ScalarFn::Rem => 20,
            f if f.sig() == numrsc_ir::scalar::Sig::Float
                && !matches!(f, ScalarFn::Floor | ScalarFn::Ceil | ScalarFn::Trunc | ScalarFn::Round) =>
            {
                16
            }
            ScalarFn::Pow => 30,
            _ => 1,
        },
    };
    f.steps().iter().map(cost).sum()
}

#[allow(clippy::wildcard_enum_match_arm, reason = "a rough cost: what is not listed is simple arithmetic")]
pub fn instructions(f: ScalarFn) -> u64 {
    match f {
        ScalarFn::Div | ScalarFn::Sqrt => 6,
        ScalarFn::Mod | ScalarFn::Rem | ScalarFn::Pow => 30,
        ScalarFn::Floor | ScalarFn::Ceil | ScalarFn::Trunc | ScalarFn::Round | ScalarFn::Neg | ScalarFn::Abs => 1,
        f if f.sig() == Sig::Float => 16,
        _ => 2,
    }
}
