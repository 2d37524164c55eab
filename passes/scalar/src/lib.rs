//! Scalar expressions of the tensor IR as kernel IR, for every function, element type and number of lanes.
//!
//! An element has two forms: how it lies in memory, and the number that is computed with, which is always exactly a value
//! of its type. Every step is rounded to its type as the evaluator does; functions such as `exp` are our own polynomials.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "no match is over ops: functions and types without code of their own share that of others or are refused by name"
)]

mod circular;
mod code;
mod constant;
mod convert;
mod double;
mod format;
mod integer;
mod pair;
mod power;
mod range;
mod single;
#[cfg(test)]
mod tests;
mod text;

use code::{Code, X};
use numrsc_facts::float_ranges;
use numrsc_ir::{
    DType, Lit, Scalar, ScalarFn,
    dtype::Class,
    kernel::{Convert, Elem, Ty, V, build::Builder},
    scalar::{Sig, Step},
};

/// How an element lies in memory. A string is the address of its length (an `i64`) followed by its bytes.
pub fn memory(dtype: DType) -> Elem {
    match (dtype.class(), dtype.bits()) {
        (Class::Str, _) => Elem::I64,
        (Class::Float, 64) => Elem::F64,
        (Class::Float, 32) => Elem::F32,
        (_, 64) => Elem::I64,
        (_, 32) => Elem::I32,
        (_, 16) => Elem::I16,
        _ => Elem::I8,
    }
}

/// How a value is held while computing. Integers of 4 and 2 bits are bytes with the same value.
pub fn number(dtype: DType) -> Elem {
    match dtype.class() {
        Class::Bool => Elem::I1,
        Class::Float if dtype != DType::F64 => Elem::F32,
        _ => memory(dtype),
    }
}

/// From memory form to number form.
pub fn decode(b: &mut Builder, dtype: DType, raw: V) -> V {
    let code = Code::new(b);
    decode_x(dtype, code.x(raw)).v
}

/// From number form to memory form.
pub fn encode(b: &mut Builder, dtype: DType, number: V) -> V {
    let code = Code::new(b);
    encode_x(dtype, code.x(number)).v
}

/// A constant in number form.
pub fn literal(b: &mut Builder, lit: &Lit, lanes: u32) -> V {
    let ty = Ty::vector(number(lit.dtype), lanes);
    match lit.dtype {
        DType::F64 | DType::F32 => b.bits(ty, lit.bits()),
        d if d.is_float() => b.float(ty, lit.as_f64()),
        _ => b.int(ty, lit.as_int() as i64),
    }
}

/// The nearest value of a float type, from an `f32` or `f64`: one rounding, ties and overflow as [`DType::round`].
pub fn round_float(b: &mut Builder, from: V, dtype: DType) -> V {
    let code = Code::new(b);
    round_x(dtype, code.x(from)).v
}

/// A whole expression. Arguments and result are in number form, with the same lanes.
///
/// # Panics
/// If the expression does not accept the types.
pub fn expression(b: &mut Builder, scalar: &Scalar, arg_dtypes: &[DType], args: &[V]) -> V {
    let types = scalar.types(arg_dtypes).expect("the expression accepts its operands");
    let lanes = args.first().map_or(1, |&a| b.ty(a).lanes);
    let ranges = float_ranges::ranges(scalar, &types);
    let mut values: Vec<V> = Vec::with_capacity(types.len());
    for (step, &to) in scalar.steps().iter().zip(&types) {
        let value = match step {
            Step::Arg(n) => args[*n as usize],
            Step::Lit(lit) => literal(b, lit, lanes),
            Step::Call(c) => {
                let of: Vec<DType> = c.args.iter().map(|&a| types[a as usize]).collect();
                let operands: Vec<V> = c.args.iter().map(|&a| values[a as usize]).collect();
                bounded_to_int(b, c.f, of[0], to, operands[0], ranges[c.args[0] as usize])
                    .or_else(|| constant::call(b, scalar, values.len(), to, &operands))
                    .unwrap_or_else(|| call(b, c.f, &of, to, &operands))
            }
        };
        values.push(value);
    }
    *values.last().expect("an expression has steps")
}

/// The integer that a float within bounds becomes, if that is simple.
fn bounded_to_int(b: &mut Builder, f: ScalarFn, of: DType, to: DType, x: V, range: float_ranges::Range) -> Option<V> {
    let code = Code::new(b);
    range::to_int(f, of, to, code.x(x), range).map(|x| x.v)
}

/// One function of operands in number form; `to` is the type of the result.
pub fn call(b: &mut Builder, f: ScalarFn, of: &[DType], to: DType, args: &[V]) -> V {
    if f.sig() == Sig::Select {
        return b.select(args[0], args[1], args[2]);
    }
    if of[0] == DType::Str {
        let lanes: Vec<V> = (0..b.ty(args[0]).lanes)
            .map(|i| {
                let (x, y) = (b.extract(args[0], i), b.extract(args[1], i));
                text::compare(b, f, x, y)
            })
            .collect();
        return b.vector(&lanes);
    }
    let code = Code::new(b);
    let args: Vec<X<'_>> = args.iter().map(|&v| code.x(v)).collect();
    let result = match (f.sig(), of[0].class()) {
        (Sig::Convert, _) => convert::convert(f, of[0], to, args[0]),
        (_, Class::Bool) => integer::call_bool(f, &args),
        (_, Class::Signed | Class::Unsigned) => integer::call(f, of[0], &args),
        _ => float_call(f, of[0], &args),
    };
    result.v
}

fn float_call<'c>(f: ScalarFn, d: DType, args: &[X<'c>]) -> X<'c> {
    if let (ScalarFn::Fma, [a, b, c]) = (f, args) {
        return single::fma(*a, *b, *c);
    }
    let x = args[0];
    let y = args.get(1).copied().unwrap_or(x);
    // Of values of the type these are values of the type, except that some formats of 8 bits lack a sign or zero.
    let closed = d.bits() > 8;
    let exact = match f {
        ScalarFn::IsNan => return x.is_nan(),
        ScalarFn::IsInf => return x.abs().eq(f64::INFINITY),
        ScalarFn::Eq => return x.eq(y),
        ScalarFn::Lt => return x.lt(y),
        ScalarFn::Le => return x.le(y),
        ScalarFn::Neg => -x,
        ScalarFn::Abs => x.abs(),
        ScalarFn::Sign => {
            let one = x.float(x.ty().elem, 1.0).with_sign_of(x);
            x.abs().gt(0.0).pick(one, x)
        }
        ScalarFn::Floor => x.floor(),
        ScalarFn::Ceil => x.ceil(),
        ScalarFn::Trunc => x.trunc(),
        ScalarFn::Round => x.round(),
        // The smaller and larger of two numbers are the second if either is NaN.
        ScalarFn::Min => x.is_nan().pick(x, y.at_most(x)),
        ScalarFn::Max => x.is_nan().pick(x, y.at_least(x)),
        _ => return round_x(d, math(f, x, y)),
    };
    if closed { exact } else { round_x(d, exact) }
}

/// Functions whose result is rounded: in `f32` exact enough that rounding once more to a narrower type is right.
/// Frequent ones have `f32` code of their own, all others are computed in `f64` and rounded once.
fn math<'c>(f: ScalarFn, x: X<'c>, y: X<'c>) -> X<'c> {
    let origin = x.ty().elem;
    match f {
        ScalarFn::Add => return x + y,
        ScalarFn::Sub => return x - y,
        ScalarFn::Mul => return x * y,
        ScalarFn::Div => return x / y,
        ScalarFn::Sqrt => return x.sqrt(),
        ScalarFn::Rem => return power::remainder(x, y),
        ScalarFn::Mod => return power::modulo(x, y),
        _ if origin == Elem::F64 => {}
        ScalarFn::Exp => return single::exp(x),
        ScalarFn::Log => return single::log(x),
        ScalarFn::Tanh => return single::tanh(x),
        ScalarFn::Erf => return single::erf(x),
        ScalarFn::Sin => return single::sin(x),
        ScalarFn::Cos => return single::cos(x),
        _ => {}
    }
    let (x, y) = (x.to_f64(), y.to_f64());
    match f {
        ScalarFn::Exp => double::exp(x),
        ScalarFn::Expm1 => double::expm1(x),
        ScalarFn::Log => double::log(x),
        ScalarFn::Log1p => double::log1p(x),
        ScalarFn::Sin => circular::sin(x),
        ScalarFn::Cos => circular::cos(x),
        ScalarFn::Tan => circular::tan(x, origin),
        ScalarFn::Asin => circular::asin(x),
        ScalarFn::Acos => circular::acos(x),
        ScalarFn::Atan => circular::atan(x),
        ScalarFn::Sinh => double::sinh(x),
        ScalarFn::Cosh => double::cosh(x),
        ScalarFn::Tanh => double::tanh(x),
        ScalarFn::Asinh => double::asinh(x),
        ScalarFn::Acosh => double::acosh(x),
        ScalarFn::Atanh => double::atanh(x),
        ScalarFn::Erf => double::erf(x),
        ScalarFn::Pow => power::pow(x, y, origin),
        ScalarFn::Atan2 => circular::atan2(x, y),
        _ => unreachable!("`{}` does not take floats", f.name()),
    }
}

fn decode_x(dtype: DType, raw: X<'_>) -> X<'_> {
    match dtype {
        DType::F64 | DType::F32 | DType::Str => raw,
        DType::Bool => raw.ne(0),
        d if d.is_float() => format::from_bits(d, raw),
        d => wrap_small(d, raw),
    }
}

fn encode_x(dtype: DType, number: X<'_>) -> X<'_> {
    match dtype {
        DType::F64 | DType::F32 | DType::Str => number,
        DType::Bool => number.convert(Convert::ZExt, Elem::I8),
        DType::F16 if number.has_halves() => number.convert(Convert::Half, Elem::I16),
        d if d.is_float() => format::to_bits(d, number).convert(Convert::Narrow, memory(d)),
        _ => number,
    }
}

fn round_x(dtype: DType, x: X<'_>) -> X<'_> {
    match dtype {
        DType::F64 => x.to_f64(),
        DType::F32 => x.to_f32(),
        _ => format::round(dtype, x, false),
    }
}

/// An integer that was computed in its byte, as a value of its type.
fn wrap_small(dtype: DType, x: X<'_>) -> X<'_> {
    if dtype.bits() < 8 { integer::wrap_to(dtype.bits(), dtype.is_signed(), x) } else { x }
}
