//! Operations on arrays, [export](export::export_to_onnx) and [inference](model::infer).
pub mod export;
pub mod model;

use crate::{
    Array,
    autograd::{
        Attribute::{self, Int, Ints},
        compute,
    },
};
use anyhow::Result;

fn plain(op: &'static str, attributes: &[(&'static str, Attribute)], operands: &[&Array]) -> Result<Array> {
    Ok(compute(op, attributes, operands, None)?)
}

macro_rules! functions {
    ($( $name:ident($($operand:ident),+) $op:literal $what:literal; )*) => { $(
        #[doc = $what]
        pub fn $name($($operand: &Array),+) -> Result<Array> {
            plain($op, &[], &[$($operand),+])
        }
    )* };
}

functions! {
    add(a, b) "Add" "`a + b`, element by element; axes of size 1 are repeated.";
    sub(a, b) "Sub" "`a - b`, element by element; axes of size 1 are repeated.";
    mul(a, b) "Mul" "`a * b`, element by element; axes of size 1 are repeated.";
    div(a, b) "Div" "`a / b`, element by element; axes of size 1 are repeated.";
    pow(a, b) "Pow" "`a` to the power of `b`, element by element; axes of size 1 are repeated.";
    matmul(a, b) "MatMul" "The product of matrices, or of batches of them.";
    abs(a) "Abs" "The absolute value of each element.";
    neg(a) "Neg" "The negative of each element.";
    exp(a) "Exp" "The exponential of each element.";
    log(a) "Log" "The natural logarithm of each element.";
    sqrt(a) "Sqrt" "The square root of each element.";
    sin(a) "Sin" "The sine of each element.";
    cos(a) "Cos" "The cosine of each element.";
    tan(a) "Tan" "The tangent of each element.";
    relu(a) "Relu" "The larger of each element and 0.";
    sigmoid(a) "Sigmoid" "`1 / (1 + exp(-x))` of each element.";
    tanh(a) "Tanh" "The hyperbolic tangent of each element.";
    softplus(a) "Softplus" "`ln(1 + exp(x))` of each element.";
}

/// The same elements in another shape; one size may be -1, for what is left.
pub fn reshape(a: &Array, shape: &[isize]) -> Result<Array> {
    let sizes: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
    // A size of 0 is meant as such.
    Ok(compute("Reshape", &[("allowzero", Int(1))], &[a], Some(&sizes))?)
}

/// The axes in that order; by default in the opposite one.
pub fn transpose(a: &Array, axes: Option<Vec<usize>>) -> Result<Array> {
    let axes = axes.unwrap_or_else(|| (0..a.ndim()).rev().collect());
    plain("Transpose", &[("perm", Ints(axes.iter().map(|axis| *axis as i64).collect()))], &[a])
}

/// Probabilities along an axis; by default the last.
pub fn softmax(a: &Array, axis: impl Into<Option<usize>>) -> Result<Array> {
    plain("Softmax", &[("axis", Int(axis.into().map_or(-1, |axis| axis as i64)))], &[a])
}

/// The sum along an axis, or of all elements.
pub fn sum(a: &Array, axis: Option<usize>) -> Result<Array> {
    reduce("ReduceSum", a, axis)
}

/// The mean along an axis, or of all elements.
pub fn mean(a: &Array, axis: Option<usize>) -> Result<Array> {
    reduce("ReduceMean", a, axis)
}

/// The largest element along an axis, or of all.
pub fn max(a: &Array, axis: Option<usize>) -> Result<Array> {
    reduce("ReduceMax", a, axis)
}

/// The smallest element along an axis, or of all.
pub fn min(a: &Array, axis: Option<usize>) -> Result<Array> {
    reduce("ReduceMin", a, axis)
}

fn reduce(op: &'static str, a: &Array, axis: Option<usize>) -> Result<Array> {
    let axes: Vec<i64> = axis.map_or_else(|| (0..a.ndim() as i64).collect(), |axis| vec![axis as i64]);
    Ok(compute(op, &[("keepdims", Int(0))], &[a], Some(&axes))?)
}
