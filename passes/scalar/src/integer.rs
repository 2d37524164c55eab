//! Functions of integers and bools. Small integers (4 and 2 bits) are held in bytes as their own value, extended by
//! sign or zeros, and wrapped after what may leave their range.
use crate::{
    code::{Code, X},
    wrap_small,
};
use numrsc_ir::{
    DType, ScalarFn,
    kernel::{Elem, V, build::Builder},
};

/// A function of integers of one type; comparisons give `i1`.
pub(super) fn call<'c>(f: ScalarFn, d: DType, args: &[X<'c>]) -> X<'c> {
    let x = args[0];
    let y = args.get(1).copied().unwrap_or(x);
    let signed = d.is_signed();
    let result = match f {
        ScalarFn::Neg => -x,
        ScalarFn::Abs if signed => x.lt(0).pick(-x, x),
        ScalarFn::Abs => x,
        ScalarFn::Sign if signed => x.smax(-1).smin(1),
        ScalarFn::Sign => x.umin(1),
        ScalarFn::Not => !x,
        ScalarFn::Add => x + y,
        ScalarFn::Sub => x - y,
        ScalarFn::Mul => x * y,
        ScalarFn::Div => {
            let q = divide(x, y, signed).0;
            y.eq(0).pick(q.int(q.ty().elem, 0), q)
        }
        ScalarFn::Rem | ScalarFn::Mod => {
            let mut r = divide(x, y, signed).1;
            if signed && f == ScalarFn::Mod {
                // The sign of the divisor: where the signs differ, the next multiple of it is on the other side of 0.
                let differs = r.ne(0) & (r ^ y).lt(0);
                r = differs.pick(r + y, r);
            }
            y.eq(0).pick(r.int(r.ty().elem, 0), r)
        }
        ScalarFn::Pow => power(x, y, signed),
        ScalarFn::Min if signed => x.smin(y),
        ScalarFn::Min => x.umin(y),
        ScalarFn::Max if signed => x.smax(y),
        ScalarFn::Max => x.umax(y),
        ScalarFn::And => x & y,
        ScalarFn::Or => x | y,
        ScalarFn::Xor => x ^ y,
        ScalarFn::Shl => {
            // A negative amount is a large unsigned one.
            let bits = i64::from(d.bits());
            let shifted = x.shl(y & (i64::from(x.ty().elem.bits()) - 1));
            y.ult(bits).pick(shifted, 0)
        }
        ScalarFn::Shr => {
            let last = i64::from(d.bits()) - 1;
            if signed {
                // By the width or more only the sign is left, as after one place less. A negative amount is none.
                x.ashr(y.smax(0).smin(last))
            } else {
                y.ule(last).pick(x.lshr(y.umin(last)), 0)
            }
        }
        ScalarFn::Eq => return x.eq(y),
        ScalarFn::Lt => return if signed { x.lt(y) } else { x.ult(y) },
        ScalarFn::Le => return if signed { x.le(y) } else { x.ule(y) },
        _ => unreachable!("`{}` does not take integers", f.name()),
    };
    wrap_small(d, result)
}

/// A function of bools.
pub(super) fn call_bool<'c>(f: ScalarFn, args: &[X<'c>]) -> X<'c> {
    let x = args[0];
    let y = args.get(1).copied().unwrap_or(x);
    match f {
        ScalarFn::Not => !x,
        ScalarFn::And => x & y,
        ScalarFn::Or => x | y,
        ScalarFn::Xor => x ^ y,
        // Any shift by 1 leaves nothing.
        ScalarFn::Shl | ScalarFn::Shr => x & !y,
        ScalarFn::Eq => !(x ^ y),
        ScalarFn::Lt => !x & y,
        ScalarFn::Le => !x | y,
        _ => unreachable!("`{}` does not take bools", f.name()),
    }
}

/// Quotient toward zero and remainder; something where `y` is 0.
fn divide<'c>(x: X<'c>, y: X<'c>, signed: bool) -> (X<'c>, X<'c>) {
    let quotient = |b: &mut Builder| if signed { b.sdivrem(x.v, y.v).0 } else { b.udiv(x.v, y.v) };
    let remainder = |b: &mut Builder| if signed { b.sdivrem(x.v, y.v).1 } else { b.urem(x.v, y.v) };
    (x.with(quotient), x.with(remainder))
}

/// By squaring, all lanes until the largest exponent is used up. Low bits of products depend on low bits only, so small
/// integers need no wrapping in between.
fn power<'c>(x: X<'c>, y: X<'c>, signed: bool) -> X<'c> {
    let one = x.int(x.ty().elem, 1);
    let left = if signed { y.smax(0) } else { y };
    let result = x.with(|b| {
        let outs = b.while_(
            &[one.v, x.v, left.v],
            |b, carried| {
                let code = Code::new(b);
                code.x(carried[2]).ne(0).any().v
            },
            power_step,
        );
        outs[0]
    });
    if !signed {
        return result;
    }
    // 1 and -1 have inverses; all others round to 0.
    let odd = (y & 1).ne(0);
    let minus_one = x.eq(-1).pick(odd.pick(x, 1), 0);
    y.lt(0).pick(x.eq(1).pick(one, minus_one), result)
}

fn power_step(b: &mut Builder, carried: &[V]) -> Vec<V> {
    let code = Code::new(b);
    let (result, base, left) = (code.x(carried[0]), code.x(carried[1]), code.x(carried[2]));
    let taken = (left & 1).ne(0).pick(result * base, result);
    vec![taken.v, (base * base).v, left.lshr(1).v]
}

/// Sign- or zero-extend the low bits of a byte.
pub(super) fn wrap_to(bits: u32, signed: bool, x: X<'_>) -> X<'_> {
    debug_assert_eq!(x.ty().elem, Elem::I8, "small integers are held in bytes");
    if !signed {
        return x & ((1 << bits) - 1);
    }
    let places = i64::from(8 - bits);
    x.shl(places).ashr(places)
}
