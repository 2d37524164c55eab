//! Scalar functions and the expressions `map` applies to every element.
//!
//! Semantics: every function computes in its own element type. Float results are the exact result rounded once
//! (transcendental ones to within a few ulp), integers wrap modulo 2^bits. Integer division truncates and gives 0 for
//! a zero divisor; shifts by the width or more give 0 (or the sign). `min` and `max` return NaN if either side is NaN.
use crate::{DType, dtype::Class};
use std::fmt;

/// How the types of a function's operands and its result hang together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sig {
    /// Floats, result like the operands.
    Float,
    /// Floats or integers, result like the operands.
    Number,
    /// Integers or bools, result like the operands.
    Bits,
    /// Any two of one type, result bool.
    Compare,
    /// A float, result bool.
    FloatTest,
    /// `f32` only, result like the operands.
    Single,
    /// A bool and two of any one type.
    Select,
    /// Any number or bool to the stated type.
    Convert,
}

macro_rules! scalar_fns {
    ($( $var:ident $name:literal $arity:literal $sig:ident, $float:expr, $int:expr; )*) => {
        /// A function of scalars. Conversions carry their target in [`Call::to`].
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum ScalarFn { $($var),* }
        impl ScalarFn {
            pub const ALL: &'static [ScalarFn] = &[$(ScalarFn::$var),*];
            pub fn name(self) -> &'static str { match self { $(ScalarFn::$var => $name),* } }
            pub fn arity(self) -> usize { match self { $(ScalarFn::$var => $arity),* } }
            pub fn sig(self) -> Sig { match self { $(ScalarFn::$var => Sig::$sig),* } }
            /// On floats in `f64`, before rounding to the element type (comparisons give 0 or 1).
            pub fn float(self) -> fn(f64, f64) -> f64 { match self { $(ScalarFn::$var => $float),* } }
            /// On integers of the given type, before wrapping.
            pub fn int(self) -> fn(i128, i128, DType) -> i128 { match self { $(ScalarFn::$var => $int),* } }
        }
    };
}

const NO_FLOAT: fn(f64, f64) -> f64 = |_, _| f64::NAN;
const NO_INT: fn(i128, i128, DType) -> i128 = |_, _, _| 0;

#[rustfmt::skip]
scalar_fns! {
    // name           operands, types, on f64, on integers
    Neg     "neg"     1 Number,    |x, _| -x,                   |x, _, _| -x;
    Abs     "abs"     1 Number,    |x, _| x.abs(),              |x, _, _| x.abs();
    Sign    "sign"    1 Number,    |x, _| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { x }, |x, _, _| x.signum();
    Floor   "floor"   1 Float,     |x, _| x.floor(),            NO_INT;
    Ceil    "ceil"    1 Float,     |x, _| x.ceil(),             NO_INT;
    Trunc   "trunc"   1 Float,     |x, _| x.trunc(),            NO_INT;
    Round   "round"   1 Float,     |x, _| x.round_ties_even(),  NO_INT;
    Sqrt    "sqrt"    1 Float,     |x, _| x.sqrt(),             NO_INT;
    Exp     "exp"     1 Float,     |x, _| x.exp(),              NO_INT;
    Expm1   "expm1"   1 Float,     |x, _| x.exp_m1(),           NO_INT;
    Log     "log"     1 Float,     |x, _| x.ln(),               NO_INT;
    Log1p   "log1p"   1 Float,     |x, _| x.ln_1p(),            NO_INT;
    Sin     "sin"     1 Float,     |x, _| x.sin(),              NO_INT;
    Cos     "cos"     1 Float,     |x, _| x.cos(),              NO_INT;
    Tan     "tan"     1 Float,     |x, _| x.tan(),              NO_INT;
    Asin    "asin"    1 Float,     |x, _| x.asin(),             NO_INT;
    Acos    "acos"    1 Float,     |x, _| x.acos(),             NO_INT;
    Atan    "atan"    1 Float,     |x, _| x.atan(),             NO_INT;
    Sinh    "sinh"    1 Float,     |x, _| x.sinh(),             NO_INT;
    Cosh    "cosh"    1 Float,     |x, _| x.cosh(),             NO_INT;
    Tanh    "tanh"    1 Float,     |x, _| x.tanh(),             NO_INT;
    Asinh   "asinh"   1 Float,     |x, _| asinh(x),             NO_INT;
    Acosh   "acosh"   1 Float,     |x, _| acosh(x),             NO_INT;
    Atanh   "atanh"   1 Float,     |x, _| x.atanh(),            NO_INT;
    Erf     "erf"     1 Float,     |x, _| erf(x),               NO_INT;
    Not     "not"     1 Bits,      NO_FLOAT,                    |x, _, d| if d == DType::Bool { 1 - x } else { !x };
    IsNan   "isnan"   1 FloatTest, |x, _| f64::from(x.is_nan()), NO_INT;
    IsInf   "isinf"   1 FloatTest, |x, _| f64::from(x.is_infinite()), NO_INT;
    Add     "add"     2 Number,    |x, y| x + y,                |x, y, _| x + y;
    Sub     "sub"     2 Number,    |x, y| x - y,                |x, y, _| x - y;
    Mul     "mul"     2 Number,    |x, y| x * y,                |x, y, _| x.wrapping_mul(y);
    Div     "div"     2 Number,    |x, y| x / y,                |x, y, _| if y == 0 { 0 } else { x / y };
    // The sign of the divisor (Python's %) and the sign of the dividend (C's %).
    Mod     "mod"     2 Number,    float_mod,                   |x, y, _| if y == 0 { 0 } else { (x % y + y) % y };
    Rem     "rem"     2 Number,    |x, y| x % y,                |x, y, _| if y == 0 { 0 } else { x % y };
    Pow     "pow"     2 Number,    |x, y| x.powf(y),            int_pow;
    Min     "min"     2 Number,    |x, y| if x.is_nan() || y.is_nan() { f64::NAN } else { x.min(y) }, |x, y, _| x.min(y);
    Max     "max"     2 Number,    |x, y| if x.is_nan() || y.is_nan() { f64::NAN } else { x.max(y) }, |x, y, _| x.max(y);
    Atan2   "atan2"   2 Float,     |x, y| x.atan2(y),           NO_INT;
    And     "and"     2 Bits,      NO_FLOAT,                    |x, y, _| x & y;
    Or      "or"      2 Bits,      NO_FLOAT,                    |x, y, _| x | y;
    Xor     "xor"     2 Bits,      NO_FLOAT,                    |x, y, _| x ^ y;
    Shl     "shl"     2 Bits,      NO_FLOAT,                    |x, y, d| if y < 0 || y >= i128::from(d.bits()) { 0 } else { x << y };
    Shr     "shr"     2 Bits,      NO_FLOAT,                    |x, y, d| x >> y.clamp(0, i128::from(d.bits()));
    Eq      "eq"      2 Compare,   |x, y| f64::from(x == y),    |x, y, _| i128::from(x == y);
    Lt      "lt"      2 Compare,   |x, y| f64::from(x < y),     |x, y, _| i128::from(x < y);
    Le      "le"      2 Compare,   |x, y| f64::from(x <= y),    |x, y, _| i128::from(x <= y);
    // a0 * a1 + a2, rounded once.
    Fma     "fma"     3 Single,    NO_FLOAT,                    NO_INT;
    Select  "select"  3 Select,    NO_FLOAT,                    NO_INT;
    // To an integer: truncates toward zero and wraps, NaN gives 0. To a float: rounds to nearest even. To bool: x != 0.
    Cast    "cast"    1 Convert,   NO_FLOAT,                    NO_INT;
    // Like cast, where the model itself asks for the rounding: no pass may keep more digits than the type has.
    CastRound "castround" 1 Convert, NO_FLOAT,                  NO_INT;
    // Like cast, but what is out of range becomes the nearest finite value.
    CastSat "castsat" 1 Convert,   NO_FLOAT,                    NO_INT;
    // The same bits read as another type of the same width.
    Bitcast "bitcast" 1 Convert,   NO_FLOAT,                    NO_INT;
}

/// Beyond this, squares overflow and `sqrt(x² ± 1)` is `x`: both functions are `ln(2x)`.
const HUGE: f64 = 1e150;

fn asinh(x: f64) -> f64 {
    if x.is_finite() && x.abs() > HUGE { (x.abs().ln() + std::f64::consts::LN_2).copysign(x) } else { x.asinh() }
}

fn acosh(x: f64) -> f64 {
    if x.is_finite() && x > HUGE { x.ln() + std::f64::consts::LN_2 } else { x.acosh() }
}

fn float_mod(x: f64, y: f64) -> f64 {
    let r = x % y;
    if r != 0.0 && (r < 0.0) != (y < 0.0) { r + y } else { r.copysign(if r == 0.0 { y } else { r }) }
}

fn int_pow(x: i128, y: i128, d: DType) -> i128 {
    if y < 0 {
        return match x {
            1 => 1,
            -1 => {
                if y % 2 == 0 {
                    1
                } else {
                    -1
                }
            }
            _ => 0,
        };
    }
    let (mut base, mut exp, mut result) = (x, y, 1i128);
    while exp > 0 {
        if exp & 1 == 1 {
            result = d.wrap(result.wrapping_mul(base));
        }
        base = d.wrap(base.wrapping_mul(base));
        exp >>= 1;
    }
    result
}

/// The error function to full `f64` accuracy: Taylor series near 0, continued fraction for the tail.
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    if x.is_nan() || a == 0.0 {
        return x;
    }
    let two_over_sqrt_pi = 2.0 / std::f64::consts::PI.sqrt();
    if a < 2.5 {
        // erf(x) = 2/sqrt(pi) * exp(-x²) * Σ 2^n x^(2n+1) / (1·3·5…(2n+1)): all terms positive, no cancellation
        let (mut term, mut sum, mut n) = (a, a, 1.0);
        while term > sum * 1e-17 {
            term *= 2.0 * a * a / (2.0 * n + 1.0);
            sum += term;
            n += 1.0;
        }
        return (two_over_sqrt_pi * (-a * a).exp() * sum).copysign(x);
    }
    if a > 6.0 {
        return 1f64.copysign(x);
    }
    // erfc(x) = exp(-x²)/sqrt(pi) / (x + (1/2)/(x + 1/(x + (3/2)/(x + …))))
    let fraction = (1..=60).rev().fold(a, |f, k| a + f64::from(k) / 2.0 / f);
    (1.0 - (-a * a).exp() / std::f64::consts::PI.sqrt() / fraction).copysign(x)
}

/// A constant of a stated type, held by its bits so that it compares exactly.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lit {
    pub dtype: DType,
    bits: u64,
}

impl Lit {
    pub fn float(dtype: DType, x: f64) -> Lit {
        Lit { dtype, bits: dtype.float_to_bits(x, false) }
    }

    pub fn int(dtype: DType, x: i128) -> Lit {
        Lit { dtype, bits: dtype.wrap(x) as u64 }
    }

    /// Is it a float that is ± a power of two? Dividing by it is as exact as multiplying.
    pub fn is_power_of_two(self) -> bool {
        let x = self.as_f64();
        self.dtype.is_float() && x.is_normal() && x.to_bits().trailing_zeros() >= 52
    }

    /// The constant that a tensor of this type stores as `bits`; `None` if it is none of the type's.
    pub fn from_bits(dtype: DType, bits: u64) -> Option<Lit> {
        match dtype.class() {
            Class::Float => (dtype.bits() == 64 || bits < 1 << dtype.bits()).then_some(Lit { dtype, bits }),
            Class::Bool => (bits < 2).then_some(Lit { dtype, bits }),
            Class::Signed | Class::Unsigned => Some(Lit::int(dtype, i128::from(bits))),
            Class::Str => None,
        }
    }

    /// A NaN by its bits; `None` if they are not a NaN's.
    pub fn nan(dtype: DType, bits: u64) -> Option<Lit> {
        dtype.float_from_bits(bits).is_nan().then_some(Lit { dtype, bits })
    }

    /// `x` converted to `dtype`.
    pub fn number(dtype: DType, x: f64) -> Lit {
        match dtype.class() {
            Class::Float => Lit::float(dtype, x),
            Class::Bool => Lit::int(dtype, i128::from(x != 0.0)),
            Class::Signed | Class::Unsigned | Class::Str => Lit::int(dtype, x as i128),
        }
    }

    pub fn as_f64(self) -> f64 {
        if self.dtype.is_float() { self.dtype.float_from_bits(self.bits) } else { self.as_int() as f64 }
    }

    pub fn as_int(self) -> i128 {
        self.dtype.wrap(i128::from(self.bits))
    }

    pub fn bits(self) -> u64 {
        self.bits
    }

    /// The number without its type, read back exactly by whoever knows the type.
    pub fn number_text(self) -> String {
        let x = self.as_f64();
        match self.dtype {
            d if !d.is_float() => self.as_int().to_string(),
            // A NaN's payload is kept as bits; everything else is the shortest number that reads back the same.
            _ if x.is_nan() => format!("nan#{:x}", self.bits),
            DType::F32 => format!("{:?}", x as f32),
            _ => format!("{x:?}"),
        }
    }
}

impl fmt::Display for Lit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let d = self.dtype;
        if d == DType::Bool {
            return write!(f, "{}", self.bits != 0);
        }
        write!(f, "{}:{d}", self.number_text())
    }
}

impl fmt::Debug for Lit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// One step of an expression; operands are earlier steps.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Step {
    /// The element of operand `n` of the `map`.
    Arg(u32),
    Lit(Lit),
    Call(Call),
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Call {
    pub f: ScalarFn,
    pub args: Vec<u32>,
    /// The target type of a conversion.
    pub to: Option<DType>,
}

/// An expression in canonical form: steps in the order a left-to-right evaluation of the last one first needs them,
/// each step once. Equal expressions are `==`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Scalar {
    steps: Vec<Step>,
}

impl Scalar {
    /// Canonicalise `steps`, of which `root` is the result.
    ///
    /// # Panics
    /// If an operand does not precede its user.
    pub fn new(steps: &[Step], root: usize) -> Scalar {
        let mut out: Vec<Step> = Vec::new();
        let mut seen = std::collections::HashMap::new();
        let mut place: Vec<Option<u32>> = vec![None; steps.len()];
        let mut stack = vec![root];
        while let Some(&i) = stack.last() {
            if place[i].is_some() {
                stack.pop();
                continue;
            }
            let step = match &steps[i] {
                Step::Call(c) => {
                    assert!(c.args.iter().all(|&a| (a as usize) < i), "operands precede users");
                    if let Some(&a) = c.args.iter().find(|&&a| place[a as usize].is_none()) {
                        stack.push(a as usize);
                        continue;
                    }
                    let args = c.args.iter().map(|&a| place[a as usize].expect("visited")).collect();
                    Step::Call(Call { args, ..c.clone() })
                }
                leaf => leaf.clone(),
            };
            let at = *seen.entry(step.clone()).or_insert_with(|| {
                out.push(step);
                out.len() as u32 - 1
            });
            place[i] = Some(at);
            stack.pop();
        }
        Scalar { steps: out }
    }

    /// One function over the operands in order.
    pub fn call(f: ScalarFn) -> Scalar {
        let mut steps: Vec<Step> = (0..f.arity() as u32).map(Step::Arg).collect();
        steps.push(Step::Call(Call { f, args: (0..f.arity() as u32).collect(), to: None }));
        Scalar::new(&steps, steps.len() - 1)
    }

    pub fn convert(f: ScalarFn, to: DType) -> Scalar {
        Scalar::new(&[Step::Arg(0), Step::Call(Call { f, args: vec![0], to: Some(to) })], 1)
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The type of every step, given the types of the operands.
    pub fn types(&self, args: &[DType]) -> Result<Vec<DType>, String> {
        let mut types: Vec<DType> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let ty = match step {
                Step::Arg(n) => *args.get(*n as usize).ok_or_else(|| format!("a{n} is not an operand"))?,
                Step::Lit(l) => l.dtype,
                Step::Call(c) => {
                    let of: Vec<DType> = c.args.iter().map(|&a| types[a as usize]).collect();
                    c.result(&of)?
                }
            };
            types.push(ty);
        }
        Ok(types)
    }
}

impl Call {
    pub(crate) fn result(&self, of: &[DType]) -> Result<DType, String> {
        let f = self.f;
        let refuse = || {
            let of: Vec<_> = of.iter().map(|d| d.name()).collect();
            Err(format!("`{}` does not accept ({})", f.name(), of.join(", ")))
        };
        if of.len() != f.arity() || self.to.is_some() != (f.sig() == Sig::Convert) {
            return refuse();
        }
        let same = of.iter().all(|d| *d == of[0]);
        let ok = match f.sig() {
            Sig::Float | Sig::FloatTest => same && of[0].is_float(),
            Sig::Single => same && of[0] == DType::F32,
            Sig::Number => same && (of[0].is_float() || of[0].is_int()),
            Sig::Bits => same && (of[0].is_int() || of[0] == DType::Bool),
            Sig::Compare => same,
            Sig::Select => of[0] == DType::Bool && of[1] == of[2],
            Sig::Convert => of[0] != DType::Str && self.to != Some(DType::Str),
        };
        if !ok {
            return refuse();
        }
        Ok(match f.sig() {
            Sig::Float | Sig::Number | Sig::Bits | Sig::Single => of[0],
            Sig::Compare | Sig::FloatTest => DType::Bool,
            Sig::Select => of[1],
            Sig::Convert => {
                let to = self.to.expect("checked above");
                if f == ScalarFn::Bitcast && to.bits() != of[0].bits() {
                    return refuse();
                }
                to
            }
        })
    }
}

impl fmt::Display for Scalar {
    /// Nested calls; what is used more than once gets a name first: `t0 = exp(a0); mul(t0, t0)`. So does what nests
    /// deeply, which keeps long chains readable and the text's length linear.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut uses = vec![0; self.steps.len()];
        for s in &self.steps {
            if let Step::Call(c) = s {
                c.args.iter().for_each(|&a| uses[a as usize] += 1);
            }
        }
        const MAX_NESTED: usize = 16;
        let mut text: Vec<String> = Vec::new();
        let mut depth: Vec<usize> = Vec::new();
        let mut named = 0;
        for (i, s) in self.steps.iter().enumerate() {
            let mut t = match s {
                Step::Arg(n) => format!("a{n}"),
                Step::Lit(l) => l.to_string(),
                Step::Call(c) => {
                    let mut args: Vec<&str> = c.args.iter().map(|&a| text[a as usize].as_str()).collect();
                    args.extend(c.to.map(DType::name));
                    format!("{}({})", c.f.name(), args.join(", "))
                }
            };
            let mut nested = match s {
                Step::Call(c) => 1 + c.args.iter().map(|&a| depth[a as usize]).max().unwrap_or(0),
                Step::Arg(_) | Step::Lit(_) => 0,
            };
            let last = i + 1 == self.steps.len();
            if nested > 0 && (uses[i] > 1 || nested == MAX_NESTED) && !last {
                nested = 0;
                write!(f, "t{named} = {t}; ")?;
                t = format!("t{named}");
                named += 1;
            }
            text.push(t);
            depth.push(nested);
        }
        f.write_str(text.last().map_or("", |t| t))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_is_accurate() {
        for (x, want) in [
            (0.1, 0.112_462_916_018_284_89),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (3.0, 0.999_977_909_503_001_4),
            (4.5, 0.999_999_999_803_383_9),
        ] {
            assert!((erf(x) - want).abs() < 4e-16, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert!(erf(f64::NAN).is_nan());
        assert_eq!(erf(f64::INFINITY), 1.0);
    }

    #[test]
    fn inverse_hyperbolic_functions_do_not_overflow() {
        assert!((ScalarFn::Asinh.float()(-f64::MAX, 0.0) + 710.475_860_073_943_9).abs() < 1e-9);
        assert!((ScalarFn::Acosh.float()(f64::MAX, 0.0) - 710.475_860_073_943_9).abs() < 1e-9);
        assert_eq!(ScalarFn::Asinh.float()(f64::NEG_INFINITY, 0.0), f64::NEG_INFINITY);
    }

    #[test]
    fn expressions_are_canonical() {
        let steps = [
            Step::Arg(1),
            Step::Arg(0),
            Step::Call(Call { f: ScalarFn::Exp, args: vec![1], to: None }),
            Step::Call(Call { f: ScalarFn::Exp, args: vec![1], to: None }),
            Step::Call(Call { f: ScalarFn::Mul, args: vec![2, 3], to: None }),
        ];
        let s = Scalar::new(&steps, 4);
        assert_eq!(s.to_string(), "t0 = exp(a0); mul(t0, t0)");
        assert_eq!(s.types(&[DType::F32]), Ok(vec![DType::F32; 3]));
        assert!(s.types(&[DType::I64]).is_err());
    }
}
