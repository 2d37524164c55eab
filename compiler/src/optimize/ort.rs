//! Operators of com.microsoft, which ONNX Runtime has for what follows each other in models.
use super::{
    compose::{gelu_of, gelu_tanh_of, with_number},
    graph::{Work, float, input, int, ints, is, new_node, set_float, set_floats, set_int, set_text},
};
use crate::onnx::proto::NodeProto;
use numrsc_ir::DType;

const MS: &str = "com.microsoft";

/// An activation by name and numbers, as the fused operators take it.
fn activation(w: &Work<'_>, node: &NodeProto) -> Option<(&'static str, Vec<f32>)> {
    let or = |name: &str, default: f32| float(node, name).unwrap_or(default);
    let bound = |i: usize, open: f32| input(node, i).map_or(Some(open), |n| w.number(n).map(|x| x as f32));
    Some(match node.op_type.as_str() {
        "Relu" => ("Relu", vec![]),
        "Sigmoid" => ("Sigmoid", vec![]),
        "Tanh" => ("Tanh", vec![]),
        "LeakyRelu" => ("LeakyRelu", vec![or("alpha", 0.01)]),
        "HardSigmoid" => ("HardSigmoid", vec![or("alpha", 0.2), or("beta", 0.5)]),
        "Clip" if w.opset() >= 11 => ("Clip", vec![bound(1, f32::MIN)?, bound(2, f32::MAX)?]),
        _ => return None,
    })
}

/// `activation(conv(x))`
pub(super) fn fused_conv(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let (name, numbers) = activation(w, node)?;
    let x = input(node, 0)?;
    let conv_at = w.maker(x)?;
    let conv = w.node(conv_at)?;
    let plain = is(conv, &["Conv"])
        || conv.domain == MS && conv.op_type == "FusedConv" && conv.attribute.iter().all(|a| a.name != "activation");
    w.only_user(x)?;
    if !plain || w.dtype(x)? != DType::F32 {
        return None;
    }
    let mut fused = conv.clone();
    fused.domain = MS.into();
    fused.op_type = "FusedConv".into();
    fused.output = node.output.clone();
    set_text(&mut fused, "activation", name);
    if !numbers.is_empty() {
        set_floats(&mut fused, "activation_params", numbers);
    }
    w.set(conv_at, None);
    w.set(at, Some(fused));
    Some(())
}

/// `conv(x) + z`
pub(super) fn conv_sum(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let output = node.output[0].clone();
    let (conv_at, z) = (0..2).find_map(|i| {
        let (x, z) = (input(node, i)?, input(node, 1 - i)?);
        let (at, _) = w.made_by(x, "Conv")?;
        w.only_user(x)?;
        let fits = w.dtype(x)? == DType::F32 && w.same_shape(x, z) && w.rank(x)? == 4 && !w.is_constant(z);
        fits.then(|| (at, z.to_owned()))
    })?;
    let mut fused = w.node(conv_at)?.clone();
    fused.domain = MS.into();
    fused.op_type = "FusedConv".into();
    fused.input.resize(3, String::new());
    fused.input.push(z);
    fused.output = vec![output];
    w.set(conv_at, None);
    w.set(at, Some(fused));
    Some(())
}

/// `activation(gemm(a, b, c))`
pub(super) fn fused_gemm(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let (name, numbers) =
        activation(w, node).filter(|(name, _)| matches!(*name, "Relu" | "Sigmoid" | "Tanh" | "LeakyRelu"))?;
    let x = input(node, 0)?;
    let (gemm_at, gemm) = w.made_by(x, "Gemm")?;
    w.only_user(x)?;
    if w.dtype(x)? != DType::F32 {
        return None;
    }
    let mut fused = gemm.clone();
    fused.domain = MS.into();
    fused.op_type = "FusedGemm".into();
    fused.output = node.output.clone();
    set_text(&mut fused, "activation", name);
    if let Some(&alpha) = numbers.first() {
        set_float(&mut fused, "activation_alpha", alpha);
    }
    w.set(gemm_at, None);
    w.set(at, Some(fused));
    Some(())
}

/// `x * sigmoid(alpha * x)`
pub(super) fn quick_gelu(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let (x, alpha) = (0..2).find_map(|i| {
        let (x, gate) = (input(node, i)?, input(node, 1 - i)?);
        let (_, sigmoid) = w.made_by(gate, "Sigmoid")?;
        w.only_user(gate)?;
        let arg = input(sigmoid, 0)?;
        if arg == x {
            return Some((x, 1.0));
        }
        let (inner, alpha) = with_number(w, w.made_by(arg, "Mul")?.1)?;
        (inner == x).then_some((x, alpha))
    })?;
    if !matches!(w.dtype(x)?, DType::F32) {
        return None;
    }
    let mut fused = new_node(MS, "QuickGelu", &[x], &node.output[0]);
    set_float(&mut fused, "alpha", alpha as f32);
    w.set(at, Some(fused));
    Some(())
}

/// A bias for each column that is added to something: what, and the bias.
fn biased<'w>(w: &'w Work<'_>, name: &str) -> Option<(&'w str, &'w str)> {
    let (_, add) = w.made_by(name, "Add")?;
    let (a, b) = (input(add, 0)?, input(add, 1)?);
    let (x, bias) = if w.is_constant(b) { (a, b) } else { (b, a) };
    let fits = w.is_constant(bias) && w.rank(bias)? == 1 && w.same_shape(x, name) && !w.is_constant(x);
    (fits && w.shape(bias)?[0].equals(w.shape(x)?.last()?) == Some(true)).then_some((x, bias))
}

/// Gelu by `erf`, with the bias in front of it if there is one.
pub(super) fn gelu(w: &mut Work<'_>, at: usize) -> Option<()> {
    let x = match w.node(at)?.op_type.as_str() {
        "Gelu" if super::graph::text(w.node(at)?, "approximate").is_none_or(|a| a == "none") => {
            input(w.node(at)?, 0)?.to_owned()
        }
        "Mul" => gelu_of(w, at)?,
        _ => return None,
    };
    if w.dtype(&x)? != DType::F32 {
        return None;
    }
    let output = w.node(at)?.output[0].clone();
    // Nobody but the parts of this gelu uses the sum.
    let own = |name: &str| {
        !w.is_output(name) && w.users(name).iter().all(|&u| u == at || w.node(u).is_some_and(|n| leads_to(w, n, at, 6)))
    };
    let node = match biased(w, &x).filter(|_| own(&x)) {
        Some((x, bias)) => new_node(MS, "BiasGelu", &[x, bias], &output),
        None if w.node(at)?.op_type == "Gelu" => return None,
        None => new_node(MS, "Gelu", &[&x], &output),
    };
    w.set(at, Some(node));
    Some(())
}

/// Do all ways from a node lead to another one, in a few steps?
fn leads_to(w: &Work<'_>, node: &NodeProto, to: usize, steps: usize) -> bool {
    steps > 0
        && node.output.iter().all(|o| {
            !w.is_output(o)
                && w.users(o).iter().all(|&u| u == to || w.node(u).is_some_and(|n| leads_to(w, n, to, steps - 1)))
        })
}

/// Gelu by `tanh`, with the bias in front of it if there is one.
pub(super) fn fast_gelu(w: &mut Work<'_>, at: usize) -> Option<()> {
    let x = gelu_tanh_of(w, at).filter(|x| w.dtype(x) == Some(DType::F32))?;
    let output = w.node(at)?.output[0].clone();
    let own =
        !w.is_output(&x) && w.users(&x).iter().all(|&u| u == at || w.node(u).is_some_and(|n| leads_to(w, n, at, 8)));
    let node = match biased(w, &x).filter(|_| own) {
        Some((x, bias)) => new_node(MS, "FastGelu", &[x, bias], &output),
        None => new_node(MS, "FastGelu", &[&x], &output),
    };
    w.set(at, Some(node));
    Some(())
}

/// `layer_normalization(x + skip)`
pub(super) fn skip_norm(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let sum = input(node, 0)?;
    let (add_at, add) = w.made_by(sum, "Add")?;
    let (a, b) = (input(add, 0)?, input(add, 1)?);
    let rank = w.rank(sum)? as i64;
    let last = int(node, "axis").is_none_or(|axis| axis == -1 || axis == rank - 1);
    let fits = w.same_shape(a, sum) && w.same_shape(b, sum) && rank == 3 && last && w.dtype(sum)? == DType::F32;
    if !fits || node.output.len() > 1 || node.input.len() < 3 || w.is_constant(a) || w.is_constant(b) {
        return None;
    }
    let others = w.users(sum).len() > 1 || w.is_output(sum);
    // A bias that one of them gets.
    let own = |name: &str| w.only_user(name).is_some();
    let (x, skip, bias) = if let Some((x, bias)) = biased(w, a).filter(|_| own(a)) {
        (x, b, Some(bias))
    } else if let Some((x, bias)) = biased(w, b).filter(|_| own(b)) {
        (x, a, Some(bias))
    } else {
        (a, b, None)
    };
    let mut inputs = vec![x, skip, input(node, 1)?, input(node, 2)?];
    inputs.extend(bias);
    let mut fused = new_node(MS, "SkipLayerNormalization", &inputs, &node.output[0]);
    set_float(&mut fused, "epsilon", float(node, "epsilon").unwrap_or(1e-5));
    if others {
        fused.output.extend([String::new(), String::new(), sum.to_owned()]);
    }
    w.set(add_at, None);
    w.set(at, Some(fused));
    Some(())
}

/// `transpose` of the last two axes in front of a product, and numbers that it is multiplied with.
pub(super) fn fused_matmul(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let (a, b) = (input(node, 0)?, input(node, 1)?);
    if !matches!(w.dtype(&node.output[0])?, DType::F32) || w.rank(a)? < 2 || w.rank(b)? < 2 {
        return None;
    }
    let fused = (0..2).find_map(|i| {
        let name = input(node, i)?;
        let at = w.maker(name)?;
        let made = w.node(at)?;
        let mut fused = as_fused(node);
        if is(made, &["Transpose"]) && swaps_last(ints(made, "perm")?) && !w.is_constant(name) {
            fused.input[i] = input(made, 0)?.to_owned();
            let flag = ["transA", "transB"][i];
            set_int(&mut fused, flag, 1 - int(node, flag).unwrap_or(0));
            return Some(fused);
        }
        if is(made, &["Mul", "Div"]) && w.only_user(name).is_some() {
            let (x, n) = with_number(w, made)?;
            if !w.same_shape(x, name) {
                return None;
            }
            fused.input[i] = x.to_owned();
            scale(&mut fused, if made.op_type == "Mul" { n } else { 1.0 / n });
            return Some(fused);
        }
        None
    })?;
    w.set(at, Some(fused));
    Some(())
}

/// `matmul(a, b) * n`
pub(super) fn matmul_scale(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let (x, n) = with_number(w, node)?;
    let product_at = w.maker(x)?;
    let product = w.node(product_at)?;
    let is_product = is(product, &["MatMul"]) || product.domain == MS && product.op_type == "FusedMatMul";
    w.only_user(x)?;
    let fits = w.dtype(x)? == DType::F32 && w.same_shape(x, &node.output[0]);
    let ranks = product.input.iter().take(2).map(|i| w.rank(i)).collect::<Option<Vec<_>>>()?;
    if !is_product || !fits || ranks.iter().any(|&r| r < 2) {
        return None;
    }
    let mut fused = as_fused(product);
    fused.output = node.output.clone();
    scale(&mut fused, if node.op_type == "Mul" { n } else { 1.0 / n });
    w.set(product_at, None);
    w.set(at, Some(fused));
    Some(())
}

fn as_fused(node: &NodeProto) -> NodeProto {
    NodeProto { domain: MS.into(), op_type: "FusedMatMul".into(), ..node.clone() }
}

fn scale(node: &mut NodeProto, by: f64) {
    let alpha = f64::from(float(node, "alpha").unwrap_or(1.0)) * by;
    set_float(node, "alpha", alpha as f32);
}

fn swaps_last(perm: &[i64]) -> bool {
    let n = perm.len() as i64;
    n >= 2
        && perm.iter().enumerate().all(|(i, &p)| {
            p == match n - i as i64 {
                1 => n - 2,
                2 => n - 1,
                _ => i as i64,
            }
        })
}

/// A product of integers with scales: `cast(matmul_integer(a, b)) * (scale_a * scale_b)`, the quantisation of `a` and a bias included where they can be.
pub(super) fn quantised_matmul(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let (cast, product, scales) = (0..2).find_map(|i| {
        let (_, cast) = w.made_by(input(node, i)?, "Cast")?;
        let (_, product) = w.made_by(input(cast, 0)?, "MatMulInteger")?;
        Some((input(node, i)?, product, input(node, 1 - i)?))
    })?;
    w.only_user(cast)?;
    w.only_user(&product.output[0])?;
    let (_, both) = w.made_by(scales, "Mul")?;
    let (a, b) = (input(product, 0)?, input(product, 1)?);
    let quantise_at = w.maker(a)?;
    let quantise = w.node(quantise_at).filter(|n| is(n, &["DynamicQuantizeLinear"]) && n.output.len() == 3)?;
    let scale_b = match (&both.input[0], &both.input[1]) {
        (a, b) | (b, a) if *a == quantise.output[1] => b,
        _ if both.input[1] == quantise.output[1] => &both.input[0],
        _ => return None,
    };
    if w.dtype(&node.output[0])? != DType::F32 || input(product, 2) != Some(&quantise.output[2]) || w.rank(scale_b)? > 1
    {
        return None;
    }
    let zero_b = input(product, 3).unwrap_or("");
    let alone = quantise.output[..2].iter().all(|o| w.only_user(o).is_some())
        && w.users(&quantise.output[2]).iter().all(|&u| w.node(u).is_some_and(|n| n.output == product.output));
    let (output, x) = (&node.output[0], input(quantise, 0)?);
    let fused = match alone {
        true => new_node(MS, "DynamicQuantizeMatMul", &[x, b, scale_b, zero_b], output),
        false => {
            let inputs = [a, b, &quantise.output[1], scale_b, &quantise.output[2], zero_b];
            new_node(MS, "MatMulIntegerToFloat", &inputs, output)
        }
    };
    w.set(at, Some(fused));
    Some(())
}

/// A bias behind such a product.
pub(super) fn quantised_bias(w: &mut Work<'_>, at: usize) -> Option<()> {
    let output = w.node(at)?.output[0].clone();
    let (x, bias) = biased(w, &output)?;
    let product_at = w.maker(x)?;
    let product = w.node(product_at)?;
    w.only_user(x)?;
    let place = match product.op_type.as_str() {
        "DynamicQuantizeMatMul" => 4,
        "MatMulIntegerToFloat" => 6,
        _ => return None,
    };
    if product.domain != MS || product.input.len() > place {
        return None;
    }
    let mut fused = product.clone();
    fused.input.resize(place, String::new());
    fused.input.push(bias.to_owned());
    fused.output = vec![output];
    w.set(product_at, None);
    w.set(at, Some(fused));
    Some(())
}
