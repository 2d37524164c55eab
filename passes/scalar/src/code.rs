//! Kernel instructions written as arithmetic: [`X`] is a value together with the builder that it belongs to, so that
//! formulas read like formulas. Constants take the type of the other operand.
use numrsc_ir::kernel::{Binary, Compare, Convert, Elem, Inst, Ty, Unary, V, build::Builder};
use std::{
    cell::RefCell,
    ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub},
};

/// A builder that many values point to.
pub(super) struct Code<'c>(RefCell<&'c mut Builder>);

/// A value under construction.
#[derive(Clone, Copy)]
pub(super) struct X<'c> {
    code: &'c Code<'c>,
    pub(super) v: V,
}

/// What the right side of an operator may be: a value, or a constant in every lane.
pub(super) trait Operand<'c> {
    fn like(self, other: X<'c>) -> X<'c>;
}

impl<'c> Code<'c> {
    pub(super) fn new(b: &'c mut Builder) -> Code<'c> {
        Code(RefCell::new(b))
    }

    pub(super) fn x(&'c self, v: V) -> X<'c> {
        X { code: self, v }
    }
}

impl<'c> X<'c> {
    pub(super) fn ty(self) -> Ty {
        self.code.0.borrow().ty(self.v)
    }

    /// Does the machine convert from and to numbers of 16 bits?
    pub(super) fn has_halves(self) -> bool {
        self.code.0.borrow().halves
    }

    /// Does `mul_add` round once?
    pub(super) fn is_fused(self) -> bool {
        self.code.0.borrow().fused
    }

    pub(super) fn lanes(self) -> u32 {
        self.ty().lanes
    }

    /// Build one value with the builder itself.
    pub(super) fn with(self, f: impl FnOnce(&mut Builder) -> V) -> X<'c> {
        let v = f(&mut self.code.0.borrow_mut());
        X { v, ..self }
    }

    /// A number in every lane of a float type with these lanes.
    pub(super) fn float(self, elem: Elem, x: f64) -> X<'c> {
        let ty = self.ty().with(elem);
        self.with(|b| b.float(ty, x))
    }

    /// A number in every lane of an integer type with these lanes.
    pub(super) fn int(self, elem: Elem, x: i64) -> X<'c> {
        let ty = self.ty().with(elem);
        self.with(|b| b.int(ty, x))
    }

    fn binary(self, op: Binary, other: impl Operand<'c>) -> X<'c> {
        let other = other.like(self);
        self.with(|b| b.binary(op, self.v, other.v))
    }

    fn unary(self, op: Unary) -> X<'c> {
        self.with(|b| b.unary(op, self.v))
    }

    fn compare(self, op: Compare, other: impl Operand<'c>) -> X<'c> {
        let other = other.like(self);
        self.with(|b| b.compare(op, self.v, other.v))
    }

    pub(super) fn convert(self, op: Convert, to: Elem) -> X<'c> {
        self.with(|b| b.convert(op, self.v, to))
    }

    /// The same bits as an integer.
    pub(super) fn bits(self) -> X<'c> {
        let int = self.ty().elem.as_int();
        self.convert(Convert::Bits, int)
    }

    /// An integer's bits as a float of its width.
    pub(super) fn as_float(self) -> X<'c> {
        let float = if self.ty().elem == Elem::I64 { Elem::F64 } else { Elem::F32 };
        self.convert(Convert::Bits, float)
    }

    pub(super) fn to_f64(self) -> X<'c> {
        self.convert(Convert::Float, Elem::F64)
    }

    pub(super) fn to_f32(self) -> X<'c> {
        self.convert(Convert::Float, Elem::F32)
    }

    /// `self * a + c`, rounded once or twice.
    pub(super) fn mul_add(self, a: impl Operand<'c>, c: impl Operand<'c>) -> X<'c> {
        let (a, c) = (a.like(self), c.like(self));
        self.with(|b| b.muladd(self.v, a.v, c.v))
    }

    /// The polynomial with these coefficients, the constant one first.
    pub(super) fn polynomial(self, coefficients: &[f64]) -> X<'c> {
        let (last, rest) = coefficients.split_last().expect("a polynomial has coefficients");
        rest.iter().rev().fold(last.like(self), |sum, &c| sum.mul_add(self, c))
    }

    pub(super) fn abs(self) -> X<'c> {
        self.unary(Unary::Abs)
    }

    pub(super) fn sqrt(self) -> X<'c> {
        self.unary(Unary::Sqrt)
    }

    pub(super) fn floor(self) -> X<'c> {
        self.unary(Unary::Floor)
    }

    pub(super) fn ceil(self) -> X<'c> {
        self.unary(Unary::Ceil)
    }

    pub(super) fn trunc(self) -> X<'c> {
        self.unary(Unary::Trunc)
    }

    pub(super) fn round(self) -> X<'c> {
        self.unary(Unary::Round)
    }

    /// The smaller float, or `self` if it is NaN.
    pub(super) fn at_most(self, limit: impl Operand<'c>) -> X<'c> {
        limit.like(self).binary(Binary::FMin, self)
    }

    /// The larger float, or `self` if it is NaN.
    pub(super) fn at_least(self, limit: impl Operand<'c>) -> X<'c> {
        limit.like(self).binary(Binary::FMax, self)
    }

    pub(super) fn smin(self, other: impl Operand<'c>) -> X<'c> {
        self.binary(Binary::SMin, other)
    }

    pub(super) fn smax(self, other: impl Operand<'c>) -> X<'c> {
        self.binary(Binary::SMax, other)
    }

    pub(super) fn umin(self, other: impl Operand<'c>) -> X<'c> {
        self.binary(Binary::UMin, other)
    }

    pub(super) fn umax(self, other: impl Operand<'c>) -> X<'c> {
        self.binary(Binary::UMax, other)
    }

    /// Shifts; the amount is below the width.
    pub(super) fn shl(self, by: impl Operand<'c>) -> X<'c> {
        self.binary(Binary::Shl, by)
    }

    pub(super) fn lshr(self, by: impl Operand<'c>) -> X<'c> {
        self.binary(Binary::LShr, by)
    }

    pub(super) fn ashr(self, by: impl Operand<'c>) -> X<'c> {
        self.binary(Binary::AShr, by)
    }

    pub(super) fn eq(self, other: impl Operand<'c>) -> X<'c> {
        self.compare(Compare::Eq, other)
    }

    pub(super) fn ne(self, other: impl Operand<'c>) -> X<'c> {
        self.compare(Compare::Ne, other)
    }

    pub(super) fn lt(self, other: impl Operand<'c>) -> X<'c> {
        self.compare(Compare::Lt, other)
    }

    pub(super) fn le(self, other: impl Operand<'c>) -> X<'c> {
        self.compare(Compare::Le, other)
    }

    pub(super) fn gt(self, other: impl Operand<'c>) -> X<'c> {
        other.like(self).compare(Compare::Lt, self)
    }

    pub(super) fn ge(self, other: impl Operand<'c>) -> X<'c> {
        other.like(self).compare(Compare::Le, self)
    }

    pub(super) fn ult(self, other: impl Operand<'c>) -> X<'c> {
        self.compare(Compare::ULt, other)
    }

    pub(super) fn ule(self, other: impl Operand<'c>) -> X<'c> {
        self.compare(Compare::ULe, other)
    }

    pub(super) fn is_nan(self) -> X<'c> {
        self.ne(self)
    }

    /// Where this `i1` holds `a`, else `b`.
    pub(super) fn pick(self, a: X<'c>, b: impl Operand<'c>) -> X<'c> {
        let other = b.like(a);
        self.with(|b| b.select(self.v, a.v, other.v))
    }

    /// This number, or NaN where the condition holds.
    pub(super) fn nan_where(self, condition: X<'c>) -> X<'c> {
        condition.pick(f64::NAN.like(self), self)
    }

    /// The bits of the float's sign, all others 0.
    pub(super) fn sign_bit(self) -> X<'c> {
        let bits = self.bits();
        bits & sign_mask(bits.ty().elem)
    }

    /// The float with the bits of a sign flipped in.
    pub(super) fn flip_sign(self, sign: X<'c>) -> X<'c> {
        (self.bits() ^ sign).as_float()
    }

    /// This magnitude (not negative) with the sign of another float.
    pub(super) fn with_sign_of(self, other: X<'c>) -> X<'c> {
        (self.bits() | other.sign_bit()).as_float()
    }

    /// One `i1`: whether any lane of this `i1` is set.
    pub(super) fn any(self) -> X<'c> {
        if self.lanes() == 1 {
            return self;
        }
        let wide = self.convert(Convert::ZExt, Elem::I32);
        wide.with(|b| b.reduce(Binary::Or, wide.v)).ne(0)
    }

    /// `slow(args)` in the lanes where `rare` holds and `self` elsewhere. `slow` runs only if there is such a lane: as
    /// a loop of at most one round, whose carried arguments keep the builder from moving the work out.
    pub(super) fn rarely(self, rare: X<'c>, args: &[X<'c>], slow: impl for<'d> FnOnce(&[X<'d>]) -> X<'d>) -> X<'c> {
        let mut init = vec![rare.any().v, self.v];
        init.extend(args.iter().map(|a| a.v));
        self.with(|b| {
            let never = b.bits(Ty::I1, 0);
            let outs = b.while_(
                &init,
                |_, carried| carried[0],
                |b, carried| {
                    let code = Code::new(b);
                    let args: Vec<X<'_>> = carried[2..].iter().map(|&v| code.x(v)).collect();
                    let result = code.x(rare.v).pick(slow(&args), code.x(carried[1]));
                    let mut next = vec![never, result.v];
                    next.extend(&carried[2..]);
                    next
                },
            );
            outs[1]
        })
    }
}

/// The sign bit of a float or integer of this width.
pub(super) fn sign_mask(elem: Elem) -> i64 {
    if elem.bits() == 64 { i64::MIN } else { 1 << (elem.bits() - 1) }
}

impl<'c> Operand<'c> for X<'c> {
    fn like(self, _: X<'c>) -> X<'c> {
        self
    }
}

impl<'c> Operand<'c> for f64 {
    fn like(self, other: X<'c>) -> X<'c> {
        other.float(other.ty().elem, self)
    }
}

impl<'c> Operand<'c> for i64 {
    fn like(self, other: X<'c>) -> X<'c> {
        other.int(other.ty().elem, self)
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)*) => {
        $(impl<'c, R: Operand<'c>> $trait<R> for X<'c> {
            type Output = X<'c>;
            fn $method(self, other: R) -> X<'c> {
                self.binary(Binary::$op, other)
            }
        })*
    };
}

operators! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div FDiv;
    BitAnd bitand And;
    BitOr bitor Or;
    BitXor bitxor Xor;
}

impl<'c> Neg for X<'c> {
    type Output = X<'c>;
    fn neg(self) -> X<'c> {
        self.unary(Unary::Neg)
    }
}

impl<'c> Not for X<'c> {
    type Output = X<'c>;
    fn not(self) -> X<'c> {
        self.with(|b| b.pure(b.ty(self.v), Inst::Unary(Unary::Not, self.v)))
    }
}
