//! Calls with a constant operand that fewer or faster instructions do, with the same bits.
use crate::code::{Code, X};
use numrsc_ir::{
    DType, Scalar, ScalarFn,
    kernel::{V, build::Builder},
    scalar::{Call, Step},
};

/// Divisors of more significant bits have quotients that are near to a point between two numbers.
const DIVISOR_BITS: u32 = 20;
/// What is left of a number beside a multiple of its divisor, if the quotient is so near: at most this.
const NEAR: i64 = 1 << (f32::MANTISSA_DIGITS - DIVISOR_BITS);
/// What is at least 2^-40 is not tiny, and neither is a divisor up to 2^20.
const TINY: f64 = 1.0 / (1u64 << 40) as f64;
const LARGE_DIVISOR: f64 = (1u64 << 20) as f64;

/// Step `at` of an expression, if there is a better way; its operands are in number form.
pub(super) fn call(b: &mut Builder, scalar: &Scalar, at: usize, to: DType, operands: &[V]) -> Option<V> {
    let steps = scalar.steps();
    let Step::Call(c) = &steps[at] else { return None };
    let fused = b.fused;
    let code = Code::new(b);
    let literal = |number: usize| literal(steps, c.args[number]);
    let result = match c.f {
        // A limit is no NaN, so one comparison is enough.
        ScalarFn::Min | ScalarFn::Max if to.is_float() && to.bits() > 8 => {
            let limit = [1, 0].into_iter().find(|&number| literal(number).is_some_and(|x| !x.is_nan()))?;
            let (x, limit) = (code.x(operands[1 - limit]), code.x(operands[limit]));
            if c.f == ScalarFn::Min { x.at_most(limit) } else { x.at_least(limit) }
        }
        ScalarFn::Div if to == DType::F32 && fused => {
            let divisor = literal(1).filter(|d| is_usual(*d) && rounds_well(*d))?;
            if !is_never_tiny(steps, c.args[0]) && !is_only_added(steps, at) {
                return None;
            }
            quotient(code.x(operands[0]), divisor)
        }
        _ => return None,
    };
    Some(result.v)
}

fn literal(steps: &[Step], at: u32) -> Option<f64> {
    match &steps[at as usize] {
        Step::Lit(lit) if lit.dtype.is_float() => Some(lit.as_f64()),
        _ => None,
    }
}

/// x / d with the bits of a division, for quotients that are not tiny, and whatever is not finite.
///
/// The reciprocal is the sum of two numbers of the same sign, so what is rounded is off by less than 2^-21 of the last
/// place. But x / d is no nearer to a point between two numbers than 2^-21 of it, if d has 20 bits: such a point has
/// one bit more than x. Of other divisors, [`rounds_well`] knows.
fn quotient(x: X<'_>, divisor: f64) -> X<'_> {
    let (high, low) = reciprocal(divisor);
    x.mul_add(f64::from(high), x * f64::from(low))
}

fn reciprocal(divisor: f64) -> (f32, f32) {
    let exact = 1.0 / divisor;
    let mut high = exact as f32;
    if f64::from(high).abs() > exact.abs() {
        high = f32::from_bits(high.to_bits() - 1);
    }
    (high, (exact - f64::from(high)) as f32)
}

/// Is a divisor no power of 2, and of a usual size?
fn is_usual(divisor: f64) -> bool {
    (1.0 / LARGE_DIVISOR..=LARGE_DIVISOR).contains(&divisor.abs()) && odd_part(divisor) > 1
}

/// What is left of the significant bits without the last zeros.
fn odd_part(x: f64) -> i64 {
    let bits = (x.to_bits() & ((1 << 52) - 1)) | 1 << 52;
    (bits >> bits.trailing_zeros()) as i64
}

/// Is every product with the reciprocal rounded like the quotient? Those are tried that are nearest to a point between
/// two numbers: the x of 24 bits for which x * 2^s is (2q + 1) * d + n with a small n.
fn rounds_well(divisor: f64) -> bool {
    let (odd, (high, low)) = (odd_part(divisor), reciprocal(divisor));
    let bits = i64::BITS - odd.leading_zeros();
    if bits <= DIVISOR_BITS {
        return true;
    }
    let is_right = |x: i64| {
        let x = x as f32;
        x.mul_add(high, x * low) == x / divisor as f32
    };
    let (half, least) = ((odd + 1) / 2, 1 << (f32::MANTISSA_DIGITS - 1));
    let halved = |shift: u32| (0..shift).fold(1, |product, _| product * half % odd);
    [bits, bits + 1].into_iter().all(|shift| {
        (-NEAR..=NEAR).all(|n| {
            let first = (n * halved(shift) - least).rem_euclid(odd) + least;
            (first..2 * least).step_by(odd as usize).all(is_right)
        })
    })
}

/// Is a step zero, infinite or NaN if it is not at least about 2^-65?
fn is_never_tiny(steps: &[Step], at: u32) -> bool {
    match &steps[at as usize] {
        Step::Arg(_) => false,
        Step::Lit(_) => literal(steps, at).is_some_and(|x| x == 0.0 || is_not_tiny(x)),
        Step::Call(Call { f, args, .. }) => match f {
            // What is left if all but the last bits cancel.
            ScalarFn::Add | ScalarFn::Sub => args.iter().any(|&a| literal(steps, a).is_some_and(is_not_tiny)),
            ScalarFn::Min | ScalarFn::Max | ScalarFn::Neg | ScalarFn::Abs => {
                args.iter().all(|&a| is_never_tiny(steps, a))
            }
            _ => false,
        },
    }
}

/// Is a step used for nothing but to be added to numbers beside which it does not matter what a tiny one is? Functions
/// may lie between that keep what is tiny tiny.
fn is_only_added(steps: &[Step], at: usize) -> bool {
    let vanishes = |(user, step): (usize, &Step)| match step {
        Step::Call(Call { f, args, .. }) if args.iter().any(|&a| a as usize == at) => match f {
            ScalarFn::Add | ScalarFn::Sub => args.iter().any(|&a| literal(steps, a).is_some_and(is_not_tiny)),
            ScalarFn::Erf | ScalarFn::Tanh | ScalarFn::Neg => is_only_added(steps, user),
            _ => false,
        },
        _ => true,
    };
    at + 1 < steps.len() && steps.iter().enumerate().all(vanishes)
}

fn is_not_tiny(x: f64) -> bool {
    x.abs() >= TINY
}
