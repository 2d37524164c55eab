//! Arithmetic and functions of one element.
use crate::onnx::import::{operand::Operand, table::onnx_ops};
use numrsc_ir::{DType, Dim, Result, build::X, expr::S, refuse};

/// The smallest f32.
const LOWEST: f64 = f32::MIN as f64;

onnx_ops! { pub(super) MATH in "", |g, cx|
    // Of two elements. Before opset 7, only the second operand broadcasts, and only where attributes say so.
    "Add"        1 (a: Num, b: Num) { axis: Option<i64>, broadcast: bool = false }
        => old(a, b, axis, broadcast, |[a, b]| a + b);
    "Sub"        1 (a: Num, b: Num) { axis: Option<i64>, broadcast: bool = false }
        => old(a, b, axis, broadcast, |[a, b]| a - b);
    "Mul"        1 (a: Num, b: Num) { axis: Option<i64>, broadcast: bool = false }
        => old(a, b, axis, broadcast, |[a, b]| a * b);
    "Div"        1 (a: Num, b: Num) { axis: Option<i64>, broadcast: bool = false }
        => old(a, b, axis, broadcast, |[a, b]| a / b);
    "Pow"        1 (a: Num, b: Num) { axis: Option<i64>, broadcast: bool = false }
        => pow(a, aligned(a, b, axis, broadcast)?);
    "Add"        7 (a: Num, b: Num) {}                     => g.map([a, b], |[a, b]| a + b);
    "Sub"        7 (a: Num, b: Num) {}                     => g.map([a, b], |[a, b]| a - b);
    "Mul"        7 (a: Num, b: Num) {}                     => g.map([a, b], |[a, b]| a * b);
    "Div"        7 (a: Num, b: Num) {}                     => g.map([a, b], |[a, b]| a / b);
    "Pow"        7 (a: Num, b: Num) {}                     => pow(a, b);
    "Mod"       10 (a: Num, b: Num) { fmod: bool = false }
        => g.map([a, b], |[a, b]| if fmod { a.rem(b) } else { a.modulo(b) });

    // Of any number of elements.
    "Max"        1 (first: Num, ..rest: Num)     {} => join(first, &rest, |a, b| a.max(b));
    "Min"        1 (first: Num, ..rest: Num)     {} => join(first, &rest, |a, b| a.min(b));
    "Sum"        1 (first: Float, ..rest: Float) {} => total(first, &rest, 1.0);
    "Mean"       1 (first: Float, ..rest: Float) {} => total(first, &rest, 1.0 + rest.len() as f64);

    // Of one element.
    "Abs"        1 (x: Num)   {} => x.map(|x| x.abs());
    "Neg"        1 (x: Num)   {} => x.map(|x| -x);
    "Sign"       9 (x: Num)   {} => x.map(|x| x.sign());
    "Reciprocal" 1 (x: Float) {} => x.map(|x| 1.0 / x);
    "Ceil"       1 (x: Float) {} => x.map(|x| x.ceil());
    "Floor"      1 (x: Float) {} => x.map(|x| x.floor());
    "Round"     11 (x: Float) {} => x.map(|x| x.round());
    "Sqrt"       1 (x: Float) {} => x.map(|x| x.sqrt());
    "Exp"        1 (x: Float) {} => x.map(|x| x.exp());
    "Log"        1 (x: Float) {} => x.map(|x| x.log());
    "Erf"        9 (x: Num)   {} => curve(x, |x| x.erf());
    "Sin"        7 (x: Float) {} => x.map(|x| x.sin());
    "Cos"        7 (x: Float) {} => x.map(|x| x.cos());
    "Tan"        7 (x: Float) {} => x.map(|x| x.tan());
    "Asin"       7 (x: Float) {} => x.map(|x| x.asin());
    "Acos"       7 (x: Float) {} => x.map(|x| x.acos());
    "Atan"       7 (x: Float) {} => x.map(|x| x.atan());
    "Sinh"       9 (x: Float) {} => x.map(|x| x.sinh());
    "Cosh"       9 (x: Float) {} => x.map(|x| x.cosh());
    "Tanh"       1 (x: Float) {} => x.map(|x| x.tanh());
    "Asinh"      9 (x: Float) {} => x.map(|x| x.asinh());
    "Acosh"      9 (x: Float) {} => x.map(|x| x.acosh());
    "Atanh"      9 (x: Float) {} => x.map(|x| x.atanh());
    "Clip"       1 (x: Float) { min: f64 = f64::NEG_INFINITY, max: f64 = f64::INFINITY }
        => x.map(|x| x.clamp(min, max));
    "Clip"       6 (x: Float) { min: f64 = LOWEST, max: f64 = -LOWEST }
        => x.map(|x| x.clamp(min, max));
    "Clip"      11 (x: Num; min: Num, max: Num) {}                                       => clip(x, min, max);
}

/// A scalar in a float type of at least 32 bits: functions of several steps would lose digits in a narrower one.
pub(super) fn wide(x: S<'_>) -> S<'_> {
    if x.dtype().is_float() && x.dtype().bits() >= 32 { x } else { x.cast(DType::F32) }
}

/// Apply a function of several steps with one rounding to the type of `x`.
pub(super) fn curve<'g>(x: X<'g>, f: impl for<'e> FnOnce(S<'e>) -> S<'e>) -> Result<X<'g>> {
    x.map(|x| f(wide(x)).cast(x.dtype()))
}

/// A tensor that can only be of one element as a scalar, so that its axes do not add to those of others.
pub(super) fn single(x: X<'_>) -> Result<X<'_>> {
    if x.len().equals(&Dim::ONE) == Some(false) {
        refuse!("{} is not one number", x.ty());
    }
    x.reshape(&[])
}

/// The second operand of the arithmetic of opsets 1 to 6, for NumPy's rule: with `broadcast`, its axes align with
/// those of `a` from `axis` on, or with the last ones.
pub(super) fn aligned<'g>(a: X<'g>, b: X<'g>, axis: Option<i64>, broadcast: bool) -> Result<X<'g>> {
    let (to, shape) = (a.shape(), b.shape());
    if !broadcast {
        if to.len() != shape.len() || to.iter().zip(&shape).any(|(m, n)| m.equals(n) == Some(false)) {
            refuse!("{} and {} differ in shape, and attribute `broadcast` is not set", a.ty(), b.ty());
        }
        return b.shaped("b", &to);
    }
    if shape.iter().all(|d| *d == Dim::ONE) {
        return single(b);
    }
    let first = match axis {
        Some(axis) => a.axis(axis)?,
        None => to.len().saturating_sub(shape.len()),
    };
    if first + shape.len() > to.len() {
        refuse!("the axes of {} from axis {first} on do not fit {}", b.ty(), a.ty());
    }
    b.reshape(&[shape.clone(), vec![Dim::ONE; to.len() - first - shape.len()]].concat())
}

/// [`aligned`] operands mapped.
pub(super) fn old<'g>(
    a: X<'g>,
    b: X<'g>,
    axis: Option<i64>,
    broadcast: bool,
    f: impl for<'e> FnOnce([S<'e>; 2]) -> S<'e>,
) -> Result<X<'g>> {
    a.graph().map([a, aligned(a, b, axis, broadcast)?], f)
}

/// `f(f(x0, x1), x2) …`
fn join<'g>(first: X<'g>, rest: &[X<'g>], f: impl for<'e> Fn(S<'e>, S<'e>) -> S<'e>) -> Result<X<'g>> {
    first.graph().map_all(&[&[first], rest].concat(), |xs| xs[1..].iter().fold(xs[0], |a, b| f(a, *b)))
}

/// `(x0 + x1 + …) / divisor`; narrow floats round once at the end.
fn total<'g>(first: X<'g>, rest: &[X<'g>], divisor: f64) -> Result<X<'g>> {
    first.graph().map_all(&[&[first], rest].concat(), |xs| {
        let sum = xs[1..].iter().fold(wide(xs[0]), |a, b| a + wide(*b));
        if divisor == 1.0 { sum } else { sum / divisor }.cast(xs[0].dtype())
    })
}

/// `x^y` in the type of `x`. The exponent may be of another type: two integers give an exact power, an integer with a
/// float exponent computes in floats and truncates.
fn pow<'g>(x: X<'g>, y: X<'g>) -> Result<X<'g>> {
    let (base, exponent) = (x.dtype(), y.dtype());
    // A constant that is the same number in the type of the base needs no wider one.
    let exact = y.as_const().is_some_and(|t| {
        // Beyond 2^53 the f64 might not be the number either.
        base.is_float() && t.to_f64s().iter().all(|&v| base.round(v) == v && v.abs() < 9e15)
    });
    let within = match (base.is_float(), exponent.is_float()) {
        _ if base == exponent || exact => base,
        (false, false) => DType::I64,
        (true, _) if exponent.bits() <= 16 && base != DType::F64 => DType::F32,
        _ => DType::F64,
    };
    x.graph().map([x, y], |[x, y]| x.cast(within).pow(y.cast(within)).cast(base))
}

/// `min(max(x, low), high)`: where the bounds cross, the upper one wins.
fn clip<'g>(x: X<'g>, low: Option<X<'g>>, high: Option<X<'g>>) -> Result<X<'g>> {
    let g = x.graph();
    let x = match low {
        Some(low) => g.map([x, single(low)?], |[x, low]| x.max(low))?,
        None => x,
    };
    match high {
        Some(high) => g.map([x, single(high)?], |[x, high]| x.min(high)),
        None => Ok(x),
    }
}
