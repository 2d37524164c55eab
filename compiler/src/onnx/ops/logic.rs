//! Comparisons, boolean and bitwise functions, and selection.
use super::math::old;
use crate::onnx::import::table::onnx_ops;
use numrsc_ir::{Result, build::X, refuse};

onnx_ops! { pub(super) LOGIC in "", |g, cx|
    // Before opset 7, only the second operand broadcasts, and only where attributes say so.
    "Equal"   1 (a: Any, b: Any)   { axis: Option<i64>, broadcast: bool = false }
        => old(a, b, axis, broadcast, |[a, b]| a.eq(b));
    "Greater" 1 (a: Num, b: Num)   { axis: Option<i64>, broadcast: bool = false }
        => old(a, b, axis, broadcast, |[a, b]| a.gt(b));
    "Less"    1 (a: Num, b: Num)   { axis: Option<i64>, broadcast: bool = false }
        => old(a, b, axis, broadcast, |[a, b]| a.lt(b));
    "And"     1 (a: Bool, b: Bool) { axis: Option<i64>, broadcast: bool = false }
        => old(a, b, axis, broadcast, |[a, b]| a.and(b));
    "Or"      1 (a: Bool, b: Bool) { axis: Option<i64>, broadcast: bool = false }
        => old(a, b, axis, broadcast, |[a, b]| a.or(b));
    "Xor"     1 (a: Bool, b: Bool) { axis: Option<i64>, broadcast: bool = false }
        => old(a, b, axis, broadcast, |[a, b]| a.xor(b));

    "Equal"           7 (a: Any, b: Any)          {} => g.map([a, b], |[a, b]| a.eq(b));
    "Greater"         7 (a: Num, b: Num)          {} => g.map([a, b], |[a, b]| a.gt(b));
    "Less"            7 (a: Num, b: Num)          {} => g.map([a, b], |[a, b]| a.lt(b));
    "GreaterOrEqual" 12 (a: Num, b: Num)          {} => g.map([a, b], |[a, b]| a.ge(b));
    "LessOrEqual"    12 (a: Num, b: Num)          {} => g.map([a, b], |[a, b]| a.le(b));
    "And"             7 (a: Bool, b: Bool)        {} => g.map([a, b], |[a, b]| a.and(b));
    "Or"              7 (a: Bool, b: Bool)        {} => g.map([a, b], |[a, b]| a.or(b));
    "Xor"             7 (a: Bool, b: Bool)        {} => g.map([a, b], |[a, b]| a.xor(b));
    "Not"             1 (x: Bool)                 {} => x.map(|x| x.not());
    "Where"           9 (c: Bool, x: Any, y: Any) {} => g.map([c, x, y], |[c, x, y]| c.select(x, y));
    "IsNaN"           9 (x: AnyFloat)             {} => x.map(|x| x.is_nan());
    "IsInf"          10 (x: AnyFloat) { detect_negative: bool = true, detect_positive: bool = true }
        => is_inf(x, detect_negative, detect_positive);

    "BitwiseAnd"     18 (a: Int, b: Int)          {} => g.map([a, b], |[a, b]| a.and(b));
    "BitwiseOr"      18 (a: Int, b: Int)          {} => g.map([a, b], |[a, b]| a.or(b));
    "BitwiseXor"     18 (a: Int, b: Int)          {} => g.map([a, b], |[a, b]| a.xor(b));
    "BitwiseNot"     18 (x: Int)                  {} => x.map(|x| x.not());
    "BitShift"       11 (x: Int, y: Int)          { direction: String } => shift(x, y, &direction);
}

/// Is an element an infinity of one of the wanted signs?
fn is_inf(x: X<'_>, negative: bool, positive: bool) -> Result<X<'_>> {
    x.map(|x| {
        let inf = x.is_inf();
        match (negative, positive) {
            (true, true) => inf,
            (true, false) => inf.and(x.lt(0.0)),
            (false, true) => inf.and(x.gt(0.0)),
            (false, false) => inf.xor(inf),
        }
    })
}

/// Shift by a number of bits. A negative number shifts everything out, as one beyond the width does: what is left is 0,
/// or the sign where a signed number is shifted to the right.
fn shift<'g>(x: X<'g>, y: X<'g>, direction: &str) -> Result<X<'g>> {
    let g = x.graph();
    match direction {
        "LEFT" => g.map([x, y], |[x, y]| x.shl(y)),
        "RIGHT" if y.dtype().is_signed() => g.map([x, y], |[x, y]| {
            let out = y.int(i128::from(y.dtype().bits() - 1));
            x.shr(y.lt(0.0).select(out, y))
        }),
        "RIGHT" => g.map([x, y], |[x, y]| x.shr(y)),
        other => refuse!("attribute `direction` is `{other}`; supported are `LEFT` and `RIGHT`"),
    }
}
