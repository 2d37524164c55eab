//! Activation functions of neural networks, all elementwise. Narrow floats compute in f32 and round once.
use super::math::{curve, single, wide};
use crate::onnx::import::table::onnx_ops;
use numrsc_ir::{DType, Dim, Result, build::X, expr::S, refuse};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

const SELU_ALPHA: f64 = 1.673_263_192_176_818_8;
const SELU_GAMMA: f64 = 1.050_701_022_148_132_3;

onnx_ops! { pub(super) ACTIVATION in "", |g, cx|
    "Relu"             1 (x: Num)             {}                    => x.map(|x| x.relu());
    "LeakyRelu"        1 (x: Float)           { alpha: f64 = 0.01 } => curve(x, |x| x.lt(0.0).select(x * alpha, x));
    "ThresholdedRelu" 10 (x: Float)           { alpha: f64 = 1.0 }  => x.map(|x| x.gt(alpha).select(x, 0.0));
    "PRelu"            1 (x: Num, slope: Num) {}                    => prelu(x, by_channel(x, slope)?);
    "PRelu"            7 (x: Num, slope: Num) {}                    => prelu(x, slope.broadcast_to(&x.shape())?);
    "Elu"              1 (x: Float)           { alpha: f64 = 1.0 }
        => curve(x, |x| x.lt(0.0).select(x.expm1() * alpha, x));
    "Celu"            12 (x: Float)           { alpha: f64 = 1.0 }
        => curve(x, |x| x.max(0.0) + ((x / alpha).expm1() * alpha).min(0.0));
    "Selu"             1 (x: Float)           { alpha: f64 = 1.6732, gamma: f64 = 1.0507 }
        => selu(x, alpha, gamma);
    "Selu"             6 (x: Float)           { alpha: f64 = SELU_ALPHA, gamma: f64 = SELU_GAMMA }
        => selu(x, alpha, gamma);
    "Sigmoid"          1 (x: Float)           {}                    => curve(x, |x| x.sigmoid());
    "HardSigmoid"      1 (x: Float)           { alpha: f64 = 0.2, beta: f64 = 0.5 }
        => curve(x, |x| (x * alpha + beta).clamp(0.0, 1.0));
    "HardSwish"       14 (x: Float)           {}
        => curve(x, hard_swish);
    "Softplus"         1 (x: Float)           {}                    => curve(x, |x| x.softplus());
    "Softsign"         1 (x: Float)           {}                    => curve(x, |x| x / (x.abs() + 1.0));
    "Mish"            18 (x: Float)           {}                    => curve(x, |x| x * x.softplus().tanh());
    "Gelu"            20 (x: Float)           { approximate: String = "none".into() } => gelu(x, &approximate);
    "Swish"           24 (x: Float)           { alpha: f64 = 1.0 }  => curve(x, |x| x * (x * alpha).sigmoid());
    "SwiGLU"          28 (a: Float, b: Float) { alpha: f64 = 1.0 }  => swiglu(a, b, alpha);
    "Shrink"           9 (x: Num)             { bias: f64 = 0.0, lambd: f64 = 0.5 } => shrink(x, bias, lambd);
}

/// `x * HardSigmoid(x)`, whose factor is 1/6 as a number of the type, not a division.
pub(super) fn hard_swish(x: S<'_>) -> S<'_> {
    x * (x * (1.0 / 6.0) + 0.5).clamp(0.0, 1.0)
}

/// `x < 0 ? slope * x : x`
fn prelu<'g>(x: X<'g>, slope: X<'g>) -> Result<X<'g>> {
    x.graph().map([x, slope], |[x, slope]| x.lt(0.0).select(x * slope, x))
}

/// One number for all, or one per channel (axis 1), ready to broadcast.
fn by_channel<'g>(x: X<'g>, slope: X<'g>) -> Result<X<'g>> {
    if slope.len() == Dim::ONE || x.rank() < 2 {
        return single(slope);
    }
    slope.reshape(&[vec![slope.len()], vec![Dim::ONE; x.rank() - 2]].concat())
}

/// `gamma * (x > 0 ? x : alpha * (exp(x) - 1))`
fn selu(x: X<'_>, alpha: f64, gamma: f64) -> Result<X<'_>> {
    curve(x, |x| x.le(0.0).select(x.expm1() * alpha, x) * gamma)
}

/// `x * Φ(x)`, or its approximation `x/2 * (1 + tanh(sqrt(2/π) * (x + 0.044715 x³)))`.
fn gelu<'g>(x: X<'g>, approximate: &str) -> Result<X<'g>> {
    match approximate {
        "none" => curve(x, |x| x * 0.5 * ((x * FRAC_1_SQRT_2).erf() + 1.0)),
        "tanh" => curve(x, |x| x * 0.5 * (((x + x.square() * x * 0.044_715) * FRAC_2_PI.sqrt()).tanh() + 1.0)),
        other => refuse!("attribute `approximate` is `{other}`; supported are `none` and `tanh`"),
    }
}

/// `a * sigmoid(alpha * a) * b`, for operands of one shape.
fn swiglu<'g>(a: X<'g>, b: X<'g>, alpha: f64) -> Result<X<'g>> {
    let (m, n) = (a.shape(), b.shape());
    if m.len() != n.len() || m.iter().zip(&n).any(|(m, n)| m.equals(n) == Some(false)) {
        refuse!("{} and {} differ in shape", a.ty(), b.ty());
    }
    a.graph().map([a, b], |[a, b]| {
        let gate = wide(a);
        (gate * (gate * alpha).sigmoid() * wide(b)).cast(a.dtype())
    })
}

/// `x < -lambd ? x + bias : x > lambd ? x - bias : 0`; integers compute in f64 and truncate.
fn shrink(x: X<'_>, bias: f64, lambd: f64) -> Result<X<'_>> {
    x.map(|x| {
        let v = if x.dtype().is_int() { x.cast(DType::F64) } else { wide(x) };
        v.lt(-lambd).select(v + bias, v.gt(lambd).select(v - bias, 0.0)).cast(x.dtype())
    })
}
