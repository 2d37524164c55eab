//! Elementwise arithmetic and functions of one element.
use crate::onnx::import::table::onnx_ops;
use numrsc_ir::{Result, build::X, expr::S};

onnx_ops! { pub(super) MATH in "", |g, cx|
    "Abs"      1 (x: Num)           {}                     => x.map(|x| x.abs());
    "Add"      7 (a: Num, b: Num)   {}                     => g.map([a, b], |[a, b]| a + b);
    "Relu"     1 (x: Num)           {}                     => x.map(|x| x.relu());
    "LeakyRelu" 1 (x: Float)        { alpha: f64 = 0.01 }  => x.map(|x| x.lt(0.0).select(x * alpha, x));
    "Sum"      8 (..xs: Float)      {}                     => g.map_all(&xs, |xs| fold(xs, |a, b| a + b));
}

fn fold<'e>(xs: &[S<'e>], f: impl Fn(S<'e>, S<'e>) -> S<'e>) -> S<'e> {
    xs[1..].iter().fold(xs[0], |a, b| f(a, *b))
}

#[allow(dead_code)]
fn keep<'g>(x: X<'g>) -> Result<X<'g>> {
    Ok(x)
}
