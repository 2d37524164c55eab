//! Operators of ONNX Runtime on quantised tensors: integers with a scale and a zero point.
use super::{
    conv::Placement,
    math::single,
    qlinear::{self, Quantised, Quantiser, same_type},
    quant::along,
    rnn::{Cell, How, Layer, Weights, quantised},
};
use crate::onnx::import::{operand::Operand, table::onnx_ops};
use numrsc_ir::{DType, Result, build::X, expr::S, refuse};

onnx_ops! { pub(super) MICROSOFT_QUANT in "com.microsoft", |g, cx|
    "DequantizeLinear" 1 (x: Int, x_scale: Float; x_zero_point: Int)
        { axis: Option<i64> }
        => dequantize_linear(x, x_scale, x_zero_point, axis);
    "QuantizeLinear" 1 (x: Float, y_scale: Float; y_zero_point: Int)
        { axis: Option<i64> }
        => quantize_linear(x, y_scale, y_zero_point, axis);
    "DynamicQuantizeMatMul" 1 (A: Float, B: Int, b_scale: Float; b_zero_point: Int, bias: Float)
        {}
        where bias[B.dim(-1)?]
        => dynamic_matmul(A, B, b_scale, b_zero_point, bias);
    "MatMulIntegerToFloat" 1 (A: Int, B: Int, a_scale: Float, b_scale: Float; a_zero_point: Int, b_zero_point: Int,
                              bias: Float)
        {}
        where bias[B.dim(-1)?]
        => integer_matmul([A, B], [a_scale, b_scale], [a_zero_point, b_zero_point], bias);
    "QGemm" 1 (A: Int, a_scale: Float, a_zero_point: Int, B: Int, b_scale: Float, b_zero_point: Int;
               C: Int, y_scale: Float, y_zero_point: Int)
        { alpha: f64 = 1.0, transA: bool = false, transB: bool = false }
        => qgemm([A, B], [a_scale, b_scale], [a_zero_point, b_zero_point], C, [y_scale, y_zero_point], alpha,
                 [transA, transB]);
    "QLinearAdd" 1 (A: Int, A_scale: Float; A_zero_point: Int, B: Int, B_scale: Float, B_zero_point: Int,
                    C_scale: Float, C_zero_point: Int)
        {}
        => binary(Quantised::new(A, A_scale, A_zero_point)?, [B, B_scale, B_zero_point], [C_scale, C_zero_point], qlinear::add);
    "QLinearMul" 1 (A: Int, A_scale: Float; A_zero_point: Int, B: Int, B_scale: Float, B_zero_point: Int,
                    C_scale: Float, C_zero_point: Int)
        {}
        => binary(Quantised::new(A, A_scale, A_zero_point)?, [B, B_scale, B_zero_point], [C_scale, C_zero_point],
                  qlinear::multiply);
    "QLinearAveragePool" 1 (X: Int, x_scale: Float; x_zero_point: Int, y_scale: Float, y_zero_point: Int)
        { auto_pad: String = "NOTSET".into(), ceil_mode: bool = false, channels_last: bool = false,
          count_include_pad: bool = false, kernel_shape: Vec<i64>, pads: Vec<i64> = vec![], strides: Vec<i64> = vec![] }
        => {
            let place = Placement { ceil: ceil_mode, ..Placement::new(&auto_pad, &strides, &[], &pads) };
            average_pool(Quantised::new(X, x_scale, x_zero_point)?, [y_scale, y_zero_point], channels_last,
                         |x, to| qlinear::average_pool(x, &kernel_shape, count_include_pad, &place, to))
        };
    "QLinearConcat" 1 (Y_scale: Float, Y_zero_point: Int, ..inputs: Any)
        { axis: i64 }
        => concat(Y_scale, Y_zero_point, &inputs, axis);
    "QLinearGlobalAveragePool" 1 (X: Int, x_scale: Float, x_zero_point: Int, y_scale: Float, y_zero_point: Int)
        { channels_last: bool = false }
        => global_average(Quantised::new(X, x_scale, Some(x_zero_point))?, [y_scale, y_zero_point], channels_last);
    "QLinearLeakyRelu" 1 (X: Int, X_scale: Float; X_zero_point: Int, Y_scale: Float, Y_zero_point: Int)
        { alpha: f64 = 0.01 }
        => unary(Quantised::new(X, X_scale, X_zero_point)?, [Y_scale, Y_zero_point], |x| x.lt(0.0).select(x * alpha, x));
    "QLinearSigmoid" 1 (X: Int, X_scale: Float; X_zero_point: Int, Y_scale: Float, Y_zero_point: Int)
        {}
        => unary(Quantised::new(X, X_scale, X_zero_point)?, [Y_scale, Y_zero_point], |x| x.sigmoid());
    "DynamicQuantizeLSTM" 1 (X: Float, W: Int, R: Int; B: Float, sequence_lens: Index, initial_h: Float,
                             initial_c: Float, P: Float, W_scale: Float, W_zero_point: Int, R_scale: Float,
                             R_zero_point: Int)
        { activation_alpha: Vec<f64> = vec![], activation_beta: Vec<f64> = vec![], activations: Option<Vec<String>>,
          clip: Option<f64>, direction: String = "forward".into(), hidden_size: Option<i64>,
          input_forget: bool = false }
        => lstm([X, W, R], [B, sequence_lens, initial_h, initial_c, P], [W_scale, W_zero_point, R_scale, R_zero_point],
                input_forget, &How { activation_alpha, activation_beta, activations, clip, direction, hidden_size,
                layout: false });
}

/// `(x - zero) scale`, in the type of the scale.
fn dequantized<'g>(x: X<'g>, scale: X<'g>, zero: Option<X<'g>>) -> Result<X<'g>> {
    let g = x.graph();
    let to = scale.dtype();
    match zero {
        Some(z) => g.map([x, z, scale], |[x, z, s]| (x.cast(DType::I32) - z.cast(DType::I32)).cast(to) * s),
        None => g.map([x, scale], |[x, s]| x.cast(to) * s),
    }
}

/// `round(x / scale) + zero`, bounded by the type of the zero point, or by `otherwise` without one.
fn quantized<'g>(x: X<'g>, scale: X<'g>, zero: Option<X<'g>>, otherwise: DType) -> Result<X<'g>> {
    let g = x.graph();
    let to = zero.map_or(otherwise, X::dtype);
    let zero = zero.map_or_else(|| g.scalar(to, 0.0), Ok)?;
    g.map([x, scale, zero], |[x, s, z]| ((x / s).cast(DType::F32).round() + z.cast(DType::F32)).cast_sat(to))
}

/// A parameter of the whole tensor or of each index of an axis, in a shape that broadcasts to the tensor's.
fn parameter<'g>(v: X<'g>, x: X<'g>, axis: Option<i64>) -> Result<X<'g>> {
    axis.map_or_else(|| single(v), |axis| along(v, x.axis(axis)?, &x.shape()))
}

fn dequantize_linear<'g>(x: X<'g>, scale: X<'g>, zero: Option<X<'g>>, axis: Option<i64>) -> Result<X<'g>> {
    dequantized(x, parameter(scale, x, axis)?, zero.map(|z| parameter(z, x, axis)).transpose()?)
}

fn quantize_linear<'g>(x: X<'g>, scale: X<'g>, zero: Option<X<'g>>, axis: Option<i64>) -> Result<X<'g>> {
    quantized(x, parameter(scale, x, axis)?, zero.map(|z| parameter(z, x, axis)).transpose()?, DType::U8)
}

/// Integers of at most 16 bits without their zero point, in i32.
fn centred<'g>(x: X<'g>, zero: Option<X<'g>>) -> Result<X<'g>> {
    match zero {
        Some(z) => x.graph().map([x, z.onto(&x.shape())?], |[x, z]| x.cast(DType::I32) - z.cast(DType::I32)),
        None => x.cast(DType::I32),
    }
}

/// `(a - zero) (b - zero) scale + bias`; the parameters of `b` may differ by column.
fn integer_matmul<'g>(
    [a, b]: [X<'g>; 2],
    [a_scale, b_scale]: [X<'g>; 2],
    [a_zero, b_zero]: [Option<X<'g>>; 2],
    bias: Option<X<'g>>,
) -> Result<X<'g>> {
    let g = a.graph();
    let product = centred(a, a_zero.map(single).transpose()?)?.matmul(centred(b, b_zero)?)?;
    let scale = g.map([single(a_scale)?, b_scale], |[a, b]| a * b)?.onto(&product.shape())?;
    let y = g.map([product, scale], |[y, s]| y.cast(s.dtype()) * s)?;
    bias.map_or(Ok(y), |b| g.map([y, b], |[y, b]| y + b))
}

/// A product with `a` quantised to u8 on the fly.
fn dynamic_matmul<'g>(a: X<'g>, b: X<'g>, scale: X<'g>, zero: Option<X<'g>>, bias: Option<X<'g>>) -> Result<X<'g>> {
    let (q, q_zero, step) = quantised(a, 0)?;
    integer_matmul([q, b], [step, scale], [Some(q_zero), zero], bias)
}

/// `alpha ((a - zero) (b - zero) + c) scale`, quantised if there is a scale for the result.
fn qgemm<'g>(
    [a, b]: [X<'g>; 2],
    [a_scale, b_scale]: [X<'g>; 2],
    [a_zero, b_zero]: [X<'g>; 2],
    c: Option<X<'g>>,
    [y_scale, y_zero]: [Option<X<'g>>; 2],
    alpha: f64,
    [swap_a, swap_b]: [bool; 2],
) -> Result<X<'g>> {
    let g = a.graph();
    if a.rank() != 2 || b.rank() != 2 {
        refuse!("the inputs must have rank 2, not {} and {}", a.ty(), b.ty());
    }
    let factor = |x: X<'g>, swap: bool| if swap { x.transpose(&[1, 0]) } else { Ok(x) };
    let (a, b) = (centred(factor(a, swap_a)?, Some(single(a_zero)?))?, centred(factor(b, swap_b)?, Some(b_zero))?);
    let sum = a.matmul(b)?;
    let sum = c.map_or(Ok(sum), |c| g.map([sum, c.broadcast_to(&sum.shape())?], |[s, c]| s + c.cast(DType::I32)))?;
    let scale = g.map([single(a_scale)?, b_scale], |[a, b]| a * alpha * b)?.onto(&sum.shape())?;
    let y = |scale: X<'g>| g.map([sum, scale], |[y, s]| y.cast(DType::F32) * s);
    match (y_scale, y_zero) {
        (Some(s), Some(z)) => {
            let ratio = g.map([scale, single(s)?], |[s, y]| s / y)?;
            quantized(y(ratio)?, g.scalar(DType::F32, 1.0)?, Some(single(z)?), DType::U8)
        }
        (None, None) => y(scale),
        _ => refuse!("`y_scale` and `y_zero_point` must be given together"),
    }
}

/// A function of two quantised tensors.
fn binary<'g>(
    a: Quantised<'g>,
    [b, b_scale, b_zero]: [Option<X<'g>>; 3],
    [scale, zero]: [Option<X<'g>>; 2],
    f: fn(Quantised<'g>, Quantised<'g>, Quantiser<'g>) -> Result<X<'g>>,
) -> Result<X<'g>> {
    let (Some(b), Some(b_scale), Some(scale)) = (b, b_scale, scale) else {
        refuse!("`B`, `B_scale` and `C_scale` are needed");
    };
    same_type(a.x.dtype(), zero)?;
    f(a, Quantised::new(b, b_scale, b_zero)?, Quantiser::new(scale, zero, a.x.dtype())?)
}

/// A function of a quantised tensor on the numbers it stands for.
fn unary<'g>(
    x: Quantised<'g>,
    [scale, zero]: [Option<X<'g>>; 2],
    f: impl for<'e> FnOnce(S<'e>) -> S<'e>,
) -> Result<X<'g>> {
    let Some(scale) = scale else { refuse!("`Y_scale` is needed") };
    same_type(x.x.dtype(), zero)?;
    qlinear::rounded(x.real()?.map(f)?, Quantiser::new(scale, zero, x.x.dtype())?)
}

/// The mean over windows of space, where channels may be the last axis.
fn average_pool<'g>(
    x: Quantised<'g>,
    [scale, zero]: [Option<X<'g>>; 2],
    channels_last: bool,
    pool: impl FnOnce(Quantised<'g>, Quantiser<'g>) -> Result<X<'g>>,
) -> Result<X<'g>> {
    let Some(scale) = scale else { refuse!("`y_scale` is needed") };
    let (dtype, rank) = (x.x.dtype(), x.x.rank());
    if rank < 3 {
        refuse!("the input must have rank 3 or more, not {}", x.x.ty());
    }
    same_type(dtype, zero)?;
    let to = Quantiser::new(scale, zero, dtype)?;
    if !channels_last {
        return pool(x, to);
    }
    pool(x.with(x.x.move_axis(rank - 1, 1)?), to)?.move_axis(1, rank - 1)
}

/// The mean over space of each channel.
fn global_average<'g>(q: Quantised<'g>, [scale, zero]: [X<'g>; 2], channels_last: bool) -> Result<X<'g>> {
    let rank = q.x.rank();
    if rank < 3 {
        refuse!("the input must have rank 3 or more, not {}", q.x.ty());
    }
    same_type(q.x.dtype(), Some(zero))?;
    let axes: Vec<usize> = if channels_last { (1..rank - 1).collect() } else { (2..rank).collect() };
    qlinear::mean(q, &axes, Quantiser::new(scale, Some(zero), q.x.dtype())?)
}

/// Tensors, each with its own parameters, joined under common ones.
fn concat<'g>(scale: X<'g>, zero: X<'g>, inputs: &[X<'g>], axis: i64) -> Result<X<'g>> {
    if inputs.is_empty() || !inputs.len().is_multiple_of(3) {
        refuse!("inputs come as tensor, scale and zero point; there are {}", inputs.len());
    }
    let to = Quantiser::new(scale, Some(zero), DType::U8)?;
    let part = |p: &[X<'g>]| {
        if !p[0].dtype().is_int() || !p[1].dtype().is_float() {
            refuse!("expected integers and a scale, got {} and {}", p[0].ty(), p[1].ty());
        }
        same_type(zero.dtype(), Some(p[0]))?;
        qlinear::rounded(Quantised::new(p[0], p[1], Some(p[2]))?.real()?, to)
    };
    let parts = inputs.chunks(3).map(part).collect::<Result<Vec<_>>>()?;
    scale.graph().concat(&parts, parts[0].axis(axis)?)
}

/// An LSTM whose weights `[directions, in, 4 * hidden]` are integers of 8 bits.
fn lstm<'g>(
    [x, w, r]: [X<'g>; 3],
    [b, lens, h, c, p]: [Option<X<'g>>; 5],
    [w_scale, w_zero, r_scale, r_zero]: [Option<X<'g>>; 4],
    input_forget: bool,
    how: &How,
) -> Result<Vec<X<'g>>> {
    let weights = |w: X<'g>, scale: Option<X<'g>>, zero: Option<X<'g>>| -> Result<Weights<'g>> {
        let (Some(scale), Some(zero)) = (scale, zero) else { refuse!("the weights need scales and zero points") };
        // One number per direction, or one per direction and column.
        let columns = |x: X<'g>| match x.rank() {
            1 => x.unsqueeze(&[1]),
            2 => Ok(x),
            _ => refuse!("scales and zero points have rank 1 or 2, not {}", x.ty()),
        };
        if w.rank() != 3 {
            refuse!("the weights must have rank 3, not {}", w.ty());
        }
        let centred = centred(w, Some(columns(zero)?.unsqueeze(&[1])?))?.transpose(&[0, 2, 1])?;
        Ok(Weights::Quantised { w: centred, scale: columns(scale)? })
    };
    let (w, r) = (weights(w, w_scale, w_zero)?, weights(r, r_scale, r_zero)?);
    Layer { cell: Cell::Lstm { input_forget }, x, w, r, b, lens, h, c, p }.build(how)
}
