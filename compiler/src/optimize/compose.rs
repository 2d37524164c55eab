//! Composites that exporters write in parts, as one operator where the operator set has it.
use super::graph::{Work, input, int, ints, new_node, set_float, set_int};
use crate::onnx::proto::NodeProto;
use numrsc_ir::DType;

/// How near a constant has to be to the number that it stands for: exporters write single precision, some a few digits.
fn near(x: f64, to: f64) -> bool {
    (x - to).abs() <= 1e-4 * to.abs()
}

/// A value and a number that are multiplied, added and so on, in either order.
pub(super) fn with_number<'w>(w: &'w Work<'_>, node: &'w NodeProto) -> Option<(&'w str, f64)> {
    let (a, b) = (input(node, 0)?, input(node, 1)?);
    match (w.number(a), w.number(b)) {
        (None, Some(n)) => Some((a, n)),
        (Some(n), None) if node.op_type != "Div" && node.op_type != "Sub" && node.op_type != "Pow" => Some((b, n)),
        _ => None,
    }
}

/// The operands of a product of products that nobody else uses: values, numbers multiplied, and the nodes in it.
fn factors(w: &Work<'_>, at: usize) -> Option<(Vec<String>, f64)> {
    let (mut values, mut number) = (vec![], 1.0);
    let mut work: Vec<String> = w.node(at)?.input.clone();
    while let Some(name) = work.pop() {
        let whole = w.number(&name);
        if let Some(n) = whole {
            number *= n;
        } else if let Some((_, n)) = w.made_by(&name, "Mul").filter(|_| w.only_user(&name).is_some()) {
            work.extend(n.input.iter().cloned());
        } else if let Some((_, n)) = w.made_by(&name, "Div").filter(|_| w.only_user(&name).is_some())
            && let Some((x, n)) = with_number(w, n)
        {
            number /= n;
            work.push(x.to_owned());
        } else {
            values.push(name);
        }
        if values.len() > 2 {
            return None;
        }
    }
    values.sort();
    Some((values, number))
}

/// `x` and what `f(x)` is multiplied with it, in `x * (1 + f) * 0.5`.
fn gated<'w>(w: &'w Work<'_>, at: usize, f: &str) -> Option<(String, &'w NodeProto)> {
    let (values, half) = factors(w, at)?;
    let [a, b] = &values[..] else { return None };
    if !near(half, 0.5) {
        return None;
    }
    [(a, b), (b, a)].into_iter().find_map(|(x, gate)| {
        let (_, add) = w.made_by(gate, "Add")?;
        let (inner, one) = with_number(w, add)?;
        w.only_user(gate)?;
        let (_, node) = w.made_by(inner, f)?;
        (near(one, 1.0) && w.only_user(inner).is_some()).then(|| (x.clone(), node))
    })
}

/// The operand of `0.5 x (1 + erf(x / sqrt(2)))`.
pub(super) fn gelu_of(w: &Work<'_>, at: usize) -> Option<String> {
    let (x, erf) = gated(w, at, "Erf")?;
    let arg = input(erf, 0)?;
    let (_, scaled) = w.made_by_any(arg, &["Mul", "Div"])?;
    let (inner, n) = with_number(w, scaled)?;
    let scale = if scaled.op_type == "Mul" { n } else { 1.0 / n };
    (inner == x && near(scale, std::f64::consts::FRAC_1_SQRT_2)).then_some(x)
}

/// The operand of `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
pub(super) fn gelu_tanh_of(w: &Work<'_>, at: usize) -> Option<String> {
    let (x, tanh) = gated(w, at, "Tanh")?;
    let (_, scaled) = w.made_by(input(tanh, 0)?, "Mul")?;
    let (sum, n) = with_number(w, scaled)?;
    let (_, add) = w.made_by(sum, "Add")?;
    let cube = add.input.iter().find(|i| **i != x)?;
    let (cubed, coefficient) = with_number(w, w.made_by(cube, "Mul")?.1)?;
    let is_cube = match w.made_by_any(cubed, &["Pow", "Mul"])? {
        (_, p) if p.op_type == "Pow" => with_number(w, p) == Some((x.as_str(), 3.0)),
        (_, m) => {
            let square = |s: &str| {
                w.made_by_any(s, &["Mul", "Pow"]).is_some_and(|(_, n)| match n.op_type.as_str() {
                    "Mul" => n.input.iter().all(|i| *i == x),
                    _ => with_number(w, n) == Some((x.as_str(), 2.0)),
                })
            };
            m.input.contains(&x) && m.input.iter().any(|i| square(i))
        }
    };
    let scale = (2.0 / std::f64::consts::PI).sqrt();
    (add.input.contains(&x) && is_cube && near(n, scale) && near(coefficient, 0.044_715)).then_some(x)
}

fn replace(w: &mut Work<'_>, at: usize, node: NodeProto) -> Option<()> {
    w.set(at, Some(node));
    Some(())
}

/// `Gelu`, from opset 20 on.
pub(super) fn gelu(w: &mut Work<'_>, at: usize) -> Option<()> {
    let (x, how) = match gelu_of(w, at) {
        Some(x) => (x, "none"),
        None => (gelu_tanh_of(w, at)?, "tanh"),
    };
    if w.opset() < 20 {
        return None;
    }
    let mut node = new_node("", "Gelu", &[&x], &w.node(at)?.output[0]);
    super::graph::set_text(&mut node, "approximate", how);
    replace(w, at, node)
}

/// The operand of a mean along the last axis that keeps it.
fn mean_of<'w>(w: &'w Work<'_>, name: &str) -> Option<&'w str> {
    let (_, node) = w.made_by(name, "ReduceMean")?;
    let axes = match input(node, 1) {
        Some(axes) => w.ints(axes)?,
        None => ints(node, "axes")?.to_vec(),
    };
    let x = input(node, 0)?;
    let last = axes == [-1] || axes == [w.rank(x)? as i64 - 1];
    (last && int(node, "keepdims").is_none_or(|k| k == 1)).then_some(x)
}

/// `x` of `x^2`.
fn square_of<'w>(w: &'w Work<'_>, name: &str) -> Option<&'w str> {
    let (_, node) = w.made_by_any(name, &["Mul", "Pow"])?;
    let x = input(node, 0)?;
    let squared = if node.op_type == "Mul" { node.input[1] == x } else { w.number(input(node, 1)?)? == 2.0 };
    squared.then_some(x)
}

/// `x / sqrt(mean(x^2) + epsilon)`: the operand and epsilon.
fn normalised<'w>(w: &'w Work<'_>, name: &str) -> Option<(&'w str, f64)> {
    let (_, node) = w.made_by_any(name, &["Div", "Mul"])?;
    w.only_user(name)?;
    let root = |name: &str| {
        let (_, sqrt) = w.made_by(name, "Sqrt")?;
        let (mean, epsilon) = with_number(w, w.made_by(input(sqrt, 0)?, "Add")?.1)?;
        Some((square_of(w, mean_of(w, mean)?)?, epsilon))
    };
    let (a, b) = (input(node, 0)?, input(node, 1)?);
    let found = |x: &'w str, divisor: &str| root(divisor).filter(|(squared, _)| *squared == x).map(|(_, e)| (x, e));
    if node.op_type == "Div" {
        return found(a, b);
    }
    let inverse = |x: &'w str, name: &str| {
        let (_, node) = w.made_by_any(name, &["Reciprocal", "Div"])?;
        match node.op_type.as_str() {
            "Div" if w.number(input(node, 0)?)? == 1.0 => found(x, input(node, 1)?),
            "Reciprocal" => found(x, input(node, 0)?),
            _ => None,
        }
    };
    inverse(a, b).or_else(|| inverse(b, a))
}

/// Is it a constant with a number for each entry along the last axis of `x`?
fn is_per_column(w: &Work<'_>, name: &str, x: &str) -> Option<bool> {
    let (shape, of) = (w.shape(name)?, w.shape(x)?);
    Some(w.is_constant(name) && shape.len() == 1 && shape[0].equals(of.last()?) == Some(true))
}

/// What is multiplied with a constant for each column.
fn scaled<'w>(w: &'w Work<'_>, node: &'w NodeProto) -> Option<(&'w str, &'w str)> {
    let (a, b) = (input(node, 0)?, input(node, 1)?);
    if w.is_constant(b) { Some((a, b)) } else { w.is_constant(a).then_some((b, a)) }
}

/// `LayerNormalization`, from opset 17 on, along the last axis.
pub(super) fn layer_norm(w: &mut Work<'_>, at: usize) -> Option<()> {
    let (product, bias) = scaled(w, w.node(at)?)?;
    let (_, mul) = w.made_by(product, "Mul")?;
    w.only_user(product)?;
    let (norm, scale) = scaled(w, mul)?;
    let (centred, epsilon) = normalised(w, norm)?;
    let (_, sub) = w.made_by(centred, "Sub")?;
    let (x, mean) = (input(sub, 0)?, input(sub, 1)?);
    let fits = mean_of(w, mean)? == x && is_per_column(w, scale, x)? && is_per_column(w, bias, x)?;
    if !fits || w.opset() < 17 || !is_float(w, x)? {
        return None;
    }
    let mut node = new_node("", "LayerNormalization", &[x, scale, bias], &w.node(at)?.output[0]);
    set_int(&mut node, "axis", -1);
    set_float(&mut node, "epsilon", epsilon as f32);
    replace(w, at, node)
}

/// `RMSNormalization`, from opset 23 on, along the last axis.
pub(super) fn rms_norm(w: &mut Work<'_>, at: usize) -> Option<()> {
    let (norm, scale) = scaled(w, w.node(at)?)?;
    let (x, epsilon) = normalised(w, norm)?;
    if w.opset() < 23 || !is_per_column(w, scale, x)? || !is_float(w, x)? {
        return None;
    }
    let mut node = new_node("", "RMSNormalization", &[x, scale], &w.node(at)?.output[0]);
    set_int(&mut node, "axis", -1);
    set_float(&mut node, "epsilon", epsilon as f32);
    replace(w, at, node)
}

fn is_float(w: &Work<'_>, x: &str) -> Option<bool> {
    Some(matches!(w.dtype(x)?, DType::F32 | DType::F16 | DType::F64))
}
