//! Nodes that leave a tensor as it is, or only say how it is seen.
use super::graph::{Work, extra_outputs, input, int, ints, is, new_node, set_int, set_ints};
use crate::onnx::proto::NodeProto;
use numrsc_ir::{DType, Dim};

/// Let a node's users take its operand.
fn forward(w: &mut Work<'_>, at: usize, operand: &str) -> Option<()> {
    let output = w.node(at)?.output[0].clone();
    if !w.can_replace(&output, operand) {
        return None;
    }
    w.set(at, None);
    w.replace(&output, operand);
    Some(())
}

/// Nodes that give what they get.
pub(super) fn identity(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let x = input(node, 0)?.to_owned();
    let output = node.output.first()?;
    let same = match node.op_type.as_str() {
        "Identity" => true,
        "Dropout" => w.opset() >= 7 && input(node, 2).is_none_or(|t| w.number(t) == Some(0.0)),
        "Cast" => w.dtype(&x)?.onnx() == i32::try_from(int(node, "to")?).ok()?,
        "CastLike" => w.dtype(&x)? == w.dtype(input(node, 1)?)?,
        "Expand" | "Flatten" | "Reshape" | "Squeeze" | "Tile" | "Unsqueeze" => w.same_type(&x, output),
        "Slice" => {
            let steps = input(node, 4).map_or(Some(vec![]), |s| w.ints(s))?;
            steps.iter().all(|&s| s == 1) && w.same_type(&x, output)
        }
        "Pad" => {
            let pads = match input(node, 1) {
                Some(pads) => w.ints(pads)?,
                None => ints(node, "pads")?.to_vec(),
            };
            pads.iter().all(|&p| p == 0)
        }
        "Transpose" => ints(node, "perm")?.iter().enumerate().all(|(i, &p)| i as i64 == p),
        "Concat" | "Max" | "Mean" | "Min" | "Sum" => node.input.len() == 1,
        "Where" => w.same_type(input(node, 1)?, output) && w.constant(&x)?.to_f64s().iter().all(|&c| c != 0.0),
        _ => return None,
    };
    if !same || extra_outputs(node, 1) && node.output[1..].iter().any(|o| !w.users(o).is_empty() || w.is_output(o)) {
        return None;
    }
    let kept = if is(node, &["Where"]) { input(node, 1)?.to_owned() } else { x };
    forward(w, at, &kept)
}

/// Arithmetic with a neutral element: `x * 1`, `x / 1`, `x - 0`, and of integers `x + 0`.
pub(super) fn neutral(w: &mut Work<'_>, at: usize) -> Option<()> {
    neutral_by(w, at, false)
}

/// `x + 0` of floats, where -0 becomes 0.
pub(super) fn zero(w: &mut Work<'_>, at: usize) -> Option<()> {
    neutral_by(w, at, true)
}

fn neutral_by(w: &mut Work<'_>, at: usize, signs: bool) -> Option<()> {
    let node = w.node(at)?;
    let (a, b) = (input(node, 0)?, input(node, 1)?);
    let output = &node.output[0];
    let whole = w.dtype(output)?.is_int();
    let is_all = |name: &str, value: f64| {
        w.stored(name).is_some_and(|t| t.dims.iter().product::<i64>() <= 1 << 20)
            && w.constant(name).is_some_and(|t| {
                t.strings().is_none() && t.to_f64s().iter().all(|&x| x == value && x.is_sign_positive())
            })
    };
    let kept = match node.op_type.as_str() {
        "Mul" if is_all(b, 1.0) => a,
        "Mul" if is_all(a, 1.0) => b,
        "Div" | "Pow" if is_all(b, 1.0) => a,
        "Sub" if is_all(b, 0.0) => a,
        "Add" if (whole || signs) && is_all(b, 0.0) => a,
        "Add" if (whole || signs) && is_all(a, 0.0) => b,
        _ => return None,
    };
    let kept = kept.to_owned();
    if w.is_constant(&kept) || !w.same_type(&kept, output) {
        return None;
    }
    forward(w, at, &kept)
}

/// `cast(cast(x))` where the first loses nothing.
pub(super) fn casts(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let (_, first) = w.made_by(input(node, 0)?, "Cast")?;
    let x = input(first, 0)?.to_owned();
    let (from, middle) = (w.dtype(&x)?, DType::from_onnx(i32::try_from(int(first, "to")?).ok()?)?);
    let (f, m) = (from.bits(), middle.bits());
    let lossless = match (from, middle) {
        (DType::Bool, _) => middle.is_int() || matches!(middle, DType::F16 | DType::F32 | DType::F64),
        (DType::F16, DType::F32 | DType::F64) | (DType::F32, DType::F64) => true,
        _ if from.is_int() && middle.is_int() => m > f && (middle.is_signed() || !from.is_signed()) || from == middle,
        (_, DType::F64) => from.is_int() && f <= 32,
        (_, DType::F32) => from.is_int() && f <= 16,
        _ => false,
    };
    if !lossless {
        return None;
    }
    w.change(at, |n| n.input[0] = x);
    Some(())
}

/// `transpose(transpose(x))`
pub(super) fn transposes(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let (_, first) = w.made_by(input(node, 0)?, "Transpose")?;
    let (inner, outer) = (ints(first, "perm")?, ints(node, "perm")?);
    let perm: Vec<i64> = outer.iter().map(|&p| inner.get(usize::try_from(p).ok()?).copied()).collect::<Option<_>>()?;
    let x = input(first, 0)?.to_owned();
    w.change(at, |n| {
        n.input[0] = x;
        set_ints(n, "perm", perm);
    });
    Some(())
}

const VIEWS: &[&str] = &["Flatten", "Reshape", "Squeeze", "Unsqueeze"];

/// Of several views in a row, the last one.
pub(super) fn views(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let middle = input(node, 0)?;
    let (_, first) = w.made_by_any(middle, VIEWS)?;
    w.only_user(middle)?;
    let x = input(first, 0)?.to_owned();
    as_reshape(w, at, &x)
}

/// A node as a reshape of `x` to sizes that are numbers.
fn as_reshape(w: &mut Work<'_>, at: usize, x: &str) -> Option<()> {
    let node = w.node(at)?;
    let output = node.output[0].clone();
    let sizes = sizes(&w.shape(x)?, &w.shape(&output)?)?;
    if w.opset() < 5 {
        return None;
    }
    let name = node.name.clone();
    let shape = w.store_ints(&format!("{output}_shape"), &sizes)?;
    w.set(at, Some(NodeProto { name, ..new_node("", "Reshape", &[x, &shape], &output) }));
    Some(())
}

/// What `Reshape` has to be told: sizes, 0 for those that stay, -1 for one that follows from the others.
fn sizes(from: &[Dim], to: &[Dim]) -> Option<Vec<i64>> {
    let mut inferred = false;
    let size = |(i, d): (usize, &Dim)| match d.as_const() {
        Some(n) if n > 0 => Some(n),
        _ if from.get(i).is_some_and(|f| f.equals(d) == Some(true)) => Some(0),
        Some(_) => None,
        None => (!std::mem::replace(&mut inferred, true)).then_some(-1),
    };
    to.iter().enumerate().map(size).collect()
}

/// A reshape whose sizes are computed but follow from those of its operand.
pub(super) fn reshape(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let (x, shape) = (input(node, 0)?.to_owned(), input(node, 1)?);
    if w.is_constant(shape) {
        return None;
    }
    as_reshape(w, at, &x)
}

/// The same of `Expand`: 1 for sizes that stay.
pub(super) fn expand(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    if w.is_constant(input(node, 1)?) {
        return None;
    }
    let (from, to) = (w.shape(input(node, 0)?)?, w.shape(&node.output[0])?);
    let added = to.len().checked_sub(from.len())?;
    let size = |(i, d): (usize, &Dim)| match i.checked_sub(added).map(|i| &from[i]) {
        Some(f) if f.equals(d) == Some(true) => Some(1),
        _ => d.as_const(),
    };
    let sizes: Vec<i64> = to.iter().enumerate().map(size).collect::<Option<_>>()?;
    let name = w.store_ints(&format!("{}_shape", node.output[0]), &sizes)?;
    w.change(at, |n| n.input[1] = name);
    Some(())
}

/// `concat(concat(a, b), c)` along the same axis.
pub(super) fn concats(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let rank = w.rank(&node.output[0])? as i64;
    let axis = |n: &NodeProto| int(n, "axis").map(|a| if a < 0 { a + rank } else { a });
    let here = axis(node)?;
    let i = node
        .input
        .iter()
        .position(|x| w.made_by(x, "Concat").is_some_and(|(_, n)| axis(n) == Some(here)) && w.only_user(x).is_some())?;
    let inner = w.made_by(&node.input[i], "Concat")?.1.input.clone();
    w.change(at, |n| drop(n.input.splice(i..=i, inner)));
    Some(())
}

/// The axis and range of a slice of one axis without steps, whose size is a number.
fn range(w: &Work<'_>, node: &NodeProto) -> Option<(i64, i64, i64)> {
    let one = |i: usize| match input(node, i) {
        Some(name) => w.ints(name).filter(|v| v.len() == 1).map(|v| Some(v[0])),
        None => Some(None),
    };
    let (start, end, axis, step) = (one(1)??, one(2)??, one(3)?.unwrap_or(0), one(4)?.unwrap_or(1));
    let shape = w.shape(input(node, 0)?)?;
    let axis = if axis < 0 { axis + shape.len() as i64 } else { axis };
    let size = shape.get(usize::try_from(axis).ok()?)?.as_const()?;
    let place = |at: i64| if at < 0 { at.saturating_add(size).max(0) } else { at.min(size) };
    (step == 1).then(|| (axis, place(start), place(end)))
}

/// Slices that are all parts of a tensor along an axis.
pub(super) fn slices(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let (axis, ..) = range(w, node)?;
    let x = input(node, 0)?.to_owned();
    let size = w.shape(&x)?[axis as usize].as_const()?;
    let part = |&u: &usize| {
        let node = w.node(u).filter(|n| is(n, &["Slice"]) && n.input[0] == x)?;
        let (along, start, end) = range(w, node)?;
        (along == axis).then(|| (start, end, u, node.output[0].clone()))
    };
    let mut parts: Vec<(i64, i64, usize, String)> = w.users(&x).iter().filter_map(part).collect();
    parts.sort();
    let whole = parts.len() > 1 && parts[0].0 == 0 && parts.last()?.1 == size;
    if !whole || parts.windows(2).any(|p| p[0].1 != p[1].0) || w.opset() < 13 {
        return None;
    }
    let sizes: Vec<i64> = parts.iter().map(|p| p.1 - p.0).collect();
    let sizes = w.store_ints(&format!("{x}_sizes"), &sizes)?;
    let mut split = new_node("", "Split", &[&x, &sizes], &parts[0].3);
    set_int(&mut split, "axis", axis);
    split.output = parts.iter().map(|p| p.3.clone()).collect();
    parts.iter().for_each(|p| w.set(p.2, None));
    w.set(at, Some(split));
    Some(())
}

/// `not(not(x))`
pub(super) fn nots(w: &mut Work<'_>, at: usize) -> Option<()> {
    let x = w.made_by(input(w.node(at)?, 0)?, "Not")?.1.input[0].clone();
    forward(w, at, &x)
}

/// `relu(relu(x))`, and `relu` in front of a clip from 0 on.
pub(super) fn relus(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let (_, relu) = w.made_by(input(node, 0)?, "Relu")?;
    let x = relu.input[0].clone();
    let from_zero = is(node, &["Relu"]) || input(node, 1).and_then(|m| w.number(m)).is_some_and(|m| m == 0.0);
    if !from_zero {
        return None;
    }
    w.change(at, |n| n.input[0] = x);
    Some(())
}
