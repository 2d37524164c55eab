//! Writing scalar expressions as arithmetic: `x * x.sigmoid()` inside [`crate::build::Graph::map`].
use crate::{
    DType,
    scalar::{Call, Lit, Scalar, ScalarFn, Step},
};
use std::{cell::RefCell, ops};

/// The steps of an expression under construction. The first type error sticks and is reported at the end.
#[derive(Debug, Default)]
pub struct Arena {
    steps: RefCell<Vec<(Step, DType)>>,
    error: RefCell<Option<String>>,
}

/// A scalar under construction.
#[derive(Clone, Copy, Debug)]
pub struct S<'e> {
    arena: &'e Arena,
    step: u32,
}

impl Arena {
    pub(crate) fn arg(&self, n: u32, dtype: DType) -> S<'_> {
        self.step(Step::Arg(n), dtype)
    }

    pub(crate) fn lit(&self, lit: Lit) -> S<'_> {
        self.step(Step::Lit(lit), lit.dtype)
    }

    pub(crate) fn finish(&self, root: S<'_>) -> Result<Scalar, String> {
        if let Some(e) = self.error.borrow_mut().take() {
            return Err(e);
        }
        let steps: Vec<Step> = self.steps.borrow().iter().map(|(s, _)| s.clone()).collect();
        Ok(Scalar::new(&steps, root.step as usize))
    }

    fn step(&self, step: Step, dtype: DType) -> S<'_> {
        let mut steps = self.steps.borrow_mut();
        steps.push((step, dtype));
        S { arena: self, step: steps.len() as u32 - 1 }
    }

    fn call(&self, f: ScalarFn, args: &[S<'_>], to: Option<DType>) -> S<'_> {
        let call = Call { f, args: args.iter().map(|a| a.step).collect(), to };
        let of: Vec<DType> = args.iter().map(|a| a.dtype()).collect();
        let dtype = call.result(&of).unwrap_or_else(|e| {
            self.error.borrow_mut().get_or_insert(e);
            of[0]
        });
        self.step(Step::Call(call), dtype)
    }
}

macro_rules! methods {
    ($($unary:ident $uf:ident),*; $($binary:ident $bf:ident),*) => {
        $( pub fn $unary(self) -> S<'e> { self.arena.call(ScalarFn::$uf, &[self], None) } )*
        $( pub fn $binary(self, o: impl Operand<'e>) -> S<'e> { self.arena.call(ScalarFn::$bf, &[self, o.like(self)], None) } )*
    };
}

#[allow(clippy::should_implement_trait)]
impl<'e> S<'e> {
    methods! {
        neg Neg, abs Abs, sign Sign, floor Floor, ceil Ceil, trunc Trunc, round Round, sqrt Sqrt, exp Exp, expm1 Expm1,
        log Log, log1p Log1p, sin Sin, cos Cos, tan Tan, asin Asin, acos Acos, atan Atan, sinh Sinh, cosh Cosh,
        tanh Tanh, asinh Asinh, acosh Acosh, atanh Atanh, erf Erf, not Not, is_nan IsNan, is_inf IsInf;
        add Add, sub Sub, mul Mul, div Div, modulo Mod, rem Rem, pow Pow, min Min, max Max, atan2 Atan2,
        and And, or Or, xor Xor, shl Shl, shr Shr, eq Eq, lt Lt, le Le
    }

    pub fn dtype(self) -> DType {
        self.arena.steps.borrow()[self.step as usize].1
    }

    /// A constant of this scalar's type.
    pub fn lit(self, x: f64) -> S<'e> {
        self.arena.lit(Lit::number(self.dtype(), x))
    }

    /// An integer constant of this scalar's type, exact beyond 2^53.
    pub fn int(self, x: i128) -> S<'e> {
        self.arena.lit(Lit::int(self.dtype(), x))
    }

    pub fn ne(self, o: impl Operand<'e>) -> S<'e> {
        self.eq(o).not()
    }

    pub fn gt(self, o: impl Operand<'e>) -> S<'e> {
        o.like(self).lt(self)
    }

    pub fn ge(self, o: impl Operand<'e>) -> S<'e> {
        o.like(self).le(self)
    }

    /// `self ? a : b`
    pub fn select(self, a: S<'e>, b: impl Operand<'e>) -> S<'e> {
        self.arena.call(ScalarFn::Select, &[self, a, b.like(a)], None)
    }

    /// `self * a + c`, rounded once; all are `f32`.
    pub fn fma(self, a: impl Operand<'e>, c: impl Operand<'e>) -> S<'e> {
        self.arena.call(ScalarFn::Fma, &[self, a.like(self), c.like(self)], None)
    }

    pub fn cast(self, to: DType) -> S<'e> {
        if to == self.dtype() { self } else { self.arena.call(ScalarFn::Cast, &[self], Some(to)) }
    }

    /// Like `cast`, where the model asks for the rounding.
    pub fn cast_round(self, to: DType) -> S<'e> {
        if to == self.dtype() { self } else { self.arena.call(ScalarFn::CastRound, &[self], Some(to)) }
    }

    /// Like `cast`, with what is out of range becoming the nearest finite value.
    pub fn cast_sat(self, to: DType) -> S<'e> {
        if to == self.dtype() { self } else { self.arena.call(ScalarFn::CastSat, &[self], Some(to)) }
    }

    pub fn bitcast(self, to: DType) -> S<'e> {
        if to == self.dtype() { self } else { self.arena.call(ScalarFn::Bitcast, &[self], Some(to)) }
    }

    pub fn square(self) -> S<'e> {
        self * self
    }

    /// `1 / (1 + exp(-x))`
    pub fn sigmoid(self) -> S<'e> {
        1.0 / (self.neg().exp() + 1.0)
    }

    pub fn relu(self) -> S<'e> {
        self.max(0.0)
    }

    pub fn clamp(self, low: impl Operand<'e>, high: impl Operand<'e>) -> S<'e> {
        self.max(low).min(high)
    }

    /// `log(1 + exp(x))` without overflow.
    pub fn softplus(self) -> S<'e> {
        self.abs().neg().exp().log1p() + self.max(0.0)
    }
}

/// The right side of a binary function: another scalar, or a number that takes the left side's type.
pub trait Operand<'e> {
    fn like(self, s: S<'e>) -> S<'e>;
}

impl<'e> Operand<'e> for S<'e> {
    fn like(self, _: S<'e>) -> S<'e> {
        self
    }
}

impl<'e> Operand<'e> for f64 {
    fn like(self, s: S<'e>) -> S<'e> {
        s.lit(self)
    }
}

macro_rules! operators {
    ($($op:ident $method:ident),*) => { $(
        impl<'e, O: Operand<'e>> ops::$op<O> for S<'e> {
            type Output = S<'e>;
            fn $method(self, o: O) -> S<'e> { S::$method(self, o) }
        }
        impl<'e> ops::$op<S<'e>> for f64 {
            type Output = S<'e>;
            fn $method(self, s: S<'e>) -> S<'e> { S::$method(s.lit(self), s) }
        }
    )* };
}
operators! { Add add, Sub sub, Mul mul, Div div, Rem rem }

impl<'e> ops::Neg for S<'e> {
    type Output = S<'e>;
    fn neg(self) -> S<'e> {
        S::neg(self)
    }
}
