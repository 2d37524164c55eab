//! Arithmetic with constants becomes part of weights, which rounds in another order.
use super::graph::{Work, attribute, extra_outputs, float, input, int, ints, new_node, set_ints};
use crate::onnx::proto::NodeProto;
use numrsc_ir::{DType, Tensor};

/// Constants of a convolution, and of what is done to its channels.
struct Conv {
    at: usize,
    weights: Tensor,
    bias: Option<Tensor>,
    channels: usize,
    /// Elements of the weights that belong to one output channel in one run.
    transposed: bool,
}

impl Conv {
    /// The convolution that makes a value, if nobody else uses it and its weights are constants of f32.
    fn of(w: &Work<'_>, name: &str) -> Option<Conv> {
        let (at, node) = w.made_by_any(name, &["Conv", "ConvTranspose"])?;
        w.only_user(name)?;
        let weights = w.constant(input(node, 1)?).filter(|t| t.dtype() == DType::F32 && t.rank() >= 3)?;
        let transposed = node.op_type == "ConvTranspose";
        if transposed && int(node, "group").is_some_and(|g| g != 1) {
            return None;
        }
        let bias = match input(node, 2) {
            Some(b) => Some(w.constant(b)?),
            None => None,
        };
        let channels = weights.shape()[usize::from(transposed)];
        Some(Conv { at, weights, bias, channels, transposed })
    }

    /// Let the convolution do `x * scale + shift` for each channel as well, and make `output`.
    fn absorb(self, w: &mut Work<'_>, scale: Option<&[f64]>, shift: &[f64], output: &str) -> Option<()> {
        let bias = self.bias.as_ref().map_or(vec![0.0; self.channels], Tensor::to_f64s);
        let scale_of = |c: usize| scale.map_or(1.0, |s| s[c]);
        let bias: Vec<f32> = (0..self.channels).map(|c| (bias[c] * scale_of(c) + shift[c]) as f32).collect();
        let weights = scale.map(|_| {
            let inner: usize = self.weights.shape()[1 + usize::from(self.transposed)..].iter().product();
            let scaled = self.weights.to_f64s().into_iter().enumerate();
            let scaled: Vec<f32> = scaled.map(|(i, x)| (x * scale_of(i / inner % self.channels)) as f32).collect();
            Tensor::from_f32(self.weights.shape(), &scaled)
        });
        let node = w.node(self.at)?.clone();
        let mut inputs = node.input.clone();
        inputs.resize(3, String::new());
        if let Some(weights) = weights {
            inputs[1] = w.store(&format!("{}_scaled", inputs[1]), &weights)?;
        }
        let base = if inputs[2].is_empty() { format!("{}_bias", inputs[1]) } else { format!("{}_shifted", inputs[2]) };
        inputs[2] = w.store(&base, &Tensor::from_f32(&[self.channels], &bias))?;
        w.set(self.at, Some(NodeProto { input: inputs, output: vec![output.to_owned()], ..node }));
        Some(())
    }
}

/// Numbers for each channel, from a constant that broadcasts along all other axes of `rank`.
fn per_channel(w: &Work<'_>, name: &str, channels: usize, rank: usize) -> Option<Vec<f64>> {
    let t = w.constant(name).filter(|t| t.dtype() == DType::F32)?;
    let shape = [vec![1; rank.checked_sub(t.rank())?], t.shape().to_vec()].concat();
    let mut of_channels = vec![1; rank];
    of_channels[1] = channels;
    match t.to_f64s() {
        v if v.len() == 1 => Some(vec![v[0]; channels]),
        v if shape == of_channels => Some(v),
        _ => None,
    }
}

/// `batch_normalization(conv(x))`
pub(super) fn conv_norm(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let trains = int(node, "training_mode").is_some_and(|t| t != 0) || w.opset() < 7 || int(node, "spatial") == Some(0);
    if trains || extra_outputs(node, 1) {
        return None;
    }
    let conv = Conv::of(w, input(node, 0)?)?;
    let numbers = |i: usize| w.constant(input(node, i)?).filter(|t| t.len() == conv.channels).map(|t| t.to_f64s());
    let (scale, shift, mean, var) = (numbers(1)?, numbers(2)?, numbers(3)?, numbers(4)?);
    let epsilon = f64::from(float(node, "epsilon").unwrap_or(1e-5));
    let scale: Vec<f64> = scale.iter().zip(&var).map(|(s, v)| s / (v + epsilon).sqrt()).collect();
    let shift: Vec<f64> = (0..scale.len()).map(|c| shift[c] - mean[c] * scale[c]).collect();
    let output = node.output[0].clone();
    w.set(at, None);
    conv.absorb(w, Some(&scale), &shift, &output)
}

/// `conv(x) * c`, `conv(x) + c` and `conv(x) - c` with a number for each channel.
pub(super) fn conv_arithmetic(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let (a, b) = (input(node, 0)?, input(node, 1)?);
    let (x, c) = if w.is_constant(b) { (a, b) } else { (b, a) };
    let subtracts = node.op_type == "Sub";
    if subtracts && x != a {
        return None;
    }
    let conv = Conv::of(w, x)?;
    let rank = conv.weights.rank();
    let numbers = per_channel(w, c, conv.channels, rank).filter(|_| w.same_shape(x, &node.output[0]))?;
    let (multiplies, output) = (node.op_type == "Mul", node.output[0].clone());
    let sign = if subtracts { -1.0 } else { 1.0 };
    w.set(at, None);
    match multiplies {
        true => conv.absorb(w, Some(&numbers), &vec![0.0; numbers.len()], &output),
        false => conv.absorb(w, None, &numbers.iter().map(|n| n * sign).collect::<Vec<_>>(), &output),
    }
}

/// Zeros around the input of a convolution are its padding.
pub(super) fn conv_pad(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let (pad_at, pad) = w.made_by(input(node, 0)?, "Pad")?;
    w.only_user(input(node, 0)?)?;
    let constant = super::graph::text(pad, "mode").is_none_or(|m| m == "constant");
    let zero = match input(pad, 2) {
        Some(value) => w.number(value)? == 0.0,
        None => float(pad, "value").is_none_or(|v| v == 0.0),
    };
    let plain = super::graph::text(node, "auto_pad").is_none_or(|p| p == "NOTSET");
    if !constant || !zero || !plain || input(pad, 3).is_some() {
        return None;
    }
    let pads = match input(pad, 1) {
        Some(pads) => w.ints(pads)?,
        None => ints(pad, "pads")?.to_vec(),
    };
    let rank = pads.len() / 2;
    if rank < 3 || pads.iter().any(|&p| p < 0) || [0, 1, rank, rank + 1].iter().any(|&i| pads[i] != 0) {
        return None;
    }
    let own = ints(node, "pads").map_or(vec![0; 2 * (rank - 2)], <[i64]>::to_vec);
    let sum = pads[2..rank].iter().chain(&pads[rank + 2..]).zip(own).map(|(a, b)| a + b).collect();
    let x = input(pad, 0)?.to_owned();
    w.set(pad_at, None);
    w.change(at, |n| {
        n.input[0] = x;
        set_ints(n, "pads", sum);
    });
    Some(())
}

/// `a * b + c` of matrices
pub(super) fn gemm(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let output = node.output[0].clone();
    let (product_at, product, c) = (0..2).find_map(|i| {
        let (x, c) = (input(node, i)?, input(node, 1 - i)?);
        let (at, product) = w.made_by(x, "MatMul")?;
        w.only_user(x)?;
        (w.same_shape(x, &output) && w.rank(c)? <= 2).then_some((at, product, c))
    })?;
    let (a, b) = (input(product, 0)?, input(product, 1)?);
    let float = matches!(w.dtype(a)?, DType::F32 | DType::F64 | DType::F16);
    if !float || w.rank(a)? != 2 || w.rank(b)? != 2 || w.opset() < 7 {
        return None;
    }
    let inputs = [a.to_owned(), b.to_owned(), c.to_owned()];
    let gemm = NodeProto {
        name: product.name.clone(),
        ..new_node("", "Gemm", &inputs.each_ref().map(String::as_str), &output)
    };
    w.set(product_at, None);
    w.set(at, Some(gemm));
    Some(())
}

/// `gemm(a, b) + c` where the product has nothing added yet.
pub(super) fn gemm_bias(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let output = node.output[0].clone();
    let (product_at, product, c) = (0..2).find_map(|i| {
        let (x, c) = (input(node, i)?, input(node, 1 - i)?);
        let (at, product) = w.made_by(x, "Gemm")?;
        w.only_user(x)?;
        let free = input(product, 2).is_none() && float(product, "beta").is_none_or(|b| b == 1.0);
        (free && w.same_shape(x, &output) && w.rank(c)? <= 2).then_some((at, product, c))
    })?;
    let mut gemm = product.clone();
    gemm.input.truncate(2);
    gemm.input.push(c.to_owned());
    gemm.output = vec![output];
    w.set(product_at, None);
    w.set(at, Some(gemm));
    Some(())
}

/// `gemm(transpose(a), b)`: an attribute says so.
pub(super) fn gemm_transpose(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let (i, x) = (0..2).find_map(|i| {
        let (_, t) = w.made_by(input(node, i)?, "Transpose")?;
        (w.rank(input(t, 0)?)? == 2).then_some((i, input(t, 0)?.to_owned()))
    })?;
    let name = ["transA", "transB"][i];
    let turned = int(node, name).unwrap_or(0);
    w.change(at, |n| {
        n.input[i] = x;
        super::graph::set_int(n, name, 1 - turned);
    });
    Some(())
}

/// `1 / x * y`
pub(super) fn quotient(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let (inverse, x, y) = (0..2).find_map(|i| {
        let name = input(node, i)?;
        let (at, n) = w.made_by_any(name, &["Div", "Reciprocal"])?;
        let x = if n.op_type == "Div" {
            w.number(input(n, 0)?).filter(|&one| one == 1.0)?;
            input(n, 1)?
        } else {
            input(n, 0)?
        };
        w.only_user(name)?;
        Some((at, x.to_owned(), input(node, 1 - i)?.to_owned()))
    })?;
    let output = node.output[0].clone();
    w.set(inverse, None);
    w.set(at, Some(new_node("", "Div", &[&y, &x], &output)));
    Some(())
}

/// `gemm(x)` normalised for each column.
pub(super) fn gemm_norm(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    if int(node, "training_mode").is_some_and(|t| t != 0) || w.opset() < 9 || extra_outputs(node, 1) {
        return None;
    }
    let (gemm_at, gemm) = w.made_by(input(node, 0)?, "Gemm")?;
    w.only_user(input(node, 0)?)?;
    let plain = ["alpha", "beta"].iter().all(|a| float(gemm, a).is_none_or(|x| x == 1.0))
        && attribute(gemm, "transA").is_none_or(|a| a.i != Some(1));
    let weights = w.constant(input(gemm, 1)?).filter(|t| t.dtype() == DType::F32 && plain)?;
    let turned = int(gemm, "transB").unwrap_or(0) != 0;
    let columns = weights.shape()[usize::from(!turned)];
    let bias = match input(gemm, 2) {
        Some(b) => w.constant(b).filter(|b| b.len() == columns)?.to_f64s(),
        None => vec![0.0; columns],
    };
    let numbers = |i: usize| w.constant(input(node, i)?).filter(|t| t.len() == columns).map(|t| t.to_f64s());
    let (scale, shift, mean, var) = (numbers(1)?, numbers(2)?, numbers(3)?, numbers(4)?);
    let epsilon = f64::from(float(node, "epsilon").unwrap_or(1e-5));
    let scale: Vec<f64> = scale.iter().zip(&var).map(|(s, v)| s / (v + epsilon).sqrt()).collect();
    let shifted: Vec<f32> = (0..columns).map(|c| ((bias[c] - mean[c]) * scale[c] + shift[c]) as f32).collect();
    let column = |i: usize| if turned { i / weights.shape()[1] } else { i % columns };
    let scaled: Vec<f32> = weights.to_f64s().iter().enumerate().map(|(i, x)| (x * scale[column(i)]) as f32).collect();
    let (mut new, output) = (gemm.clone(), node.output[0].clone());
    new.input.resize(3, String::new());
    new.input[1] = w.store(&format!("{}_scaled", new.input[1]), &Tensor::from_f32(weights.shape(), &scaled))?;
    new.input[2] = w.store(&format!("{}_shifted", new.input[1]), &Tensor::from_f32(&[columns], &shifted))?;
    new.output = vec![output];
    w.set(gemm_at, None);
    w.set(at, Some(new));
    Some(())
}
