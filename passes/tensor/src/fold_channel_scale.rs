//! Folds constant scales per channel, as batch norms have, into the weights of the convolution before them: one
//! multiplication less per element of the result.
//!
//! Weights are rounded once more, results once less. `--tolerance` decides about that as about other ways to compute a
//! convolution.
use crate::{aside::put_aside, rebuild::rebuild};
use numrsc_facts::{Context, Result};
use numrsc_ir::{
    DType, Dim, Func, Node, Op, Scalar, ScalarFn, Tensor, Value,
    scalar::{Call, Step},
};

/// The stated error of a sum, relative to the largest sum of magnitudes `∑|x||w|`: every weight is rounded.
pub const ERROR: f64 = 1.0 / (1 << 24) as f64;

/// The function with such scales folded into weights, if the tolerance admits it.
pub fn fold_channel_scale(func: &Func, cx: &Context) -> Result<Func> {
    if cx.options.tolerance < ERROR {
        return Ok(func.clone());
    }
    rebuild(func, "fold-channel-scale", &|new, node, op, mut args| {
        let Some(scaled) = (0..node.args.len()).find_map(|place| scaled(new.func, node, place)) else {
            return new.push(op, &args);
        };
        let conv = new.func.node(node.args[scaled.place]);
        let weights = new.push(Op::Const { value: scaled.weights }, &[])?;
        args[scaled.place] = new.push(conv.op.clone(), &[new.placed(conv.args[0]), weights])?;
        let f = without_unused(&scaled.f, &mut args);
        new.push(Op::Map { f }, &args)
    })
}

/// A map over a convolution, split into a scale per channel and the rest.
struct Scaled {
    /// Which operand is the convolution.
    place: usize,
    weights: Tensor,
    f: Scalar,
}

fn scaled(func: &Func, node: &Node, place: usize) -> Option<Scaled> {
    let (Op::Map { f }, x) = (&node.op, node.args[place]) else { return None };
    let conv = func.node(x);
    let (Op::Conv { in_block: 1, out_block: 1, .. }, Op::Const { value: weights }) =
        (&conv.op, &func.node(*conv.args.get(1)?).op)
    else {
        return None;
    };
    let (product, factor, sum) = product_with(f, place)?;
    let scales = per_channel(func, *node.args.get(factor)?)?;
    let scaled = scaled_weights(weights, scales)?;
    let uses = func.nodes().iter().flat_map(|n| &n.args).filter(|a| **a == x).count();
    let is_wanted_elsewhere = uses > 1 || func.results().contains(&x);
    (!is_wanted_elsewhere).then(|| Scaled { place, weights: scaled, f: with_step(f, product, sum) })
}

/// The step that multiplies an operand by another one, which operand that is, and the step of the first, if that is all that is done with it.
#[allow(clippy::wildcard_enum_match_arm, reason = "recognises a product; any other step is none")]
fn product_with(f: &Scalar, place: usize) -> Option<(usize, usize, usize)> {
    let steps = f.steps();
    let sum = steps.iter().position(|s| *s == Step::Arg(place as u32))?;
    let calls = steps.iter().enumerate().filter_map(|(i, s)| match s {
        Step::Call(call) if call.args.contains(&(sum as u32)) => Some((i, call)),
        _ => None,
    });
    let [(product, Call { f: ScalarFn::Mul, args, .. })] = calls.collect::<Vec<_>>()[..] else { return None };
    let other = *args.iter().find(|a| **a != sum as u32)?;
    match steps[other as usize] {
        Step::Arg(factor) => Some((product, factor as usize, sum)),
        _ => None,
    }
}

/// The constant that is repeated along all axes but that of the channels.
fn per_channel(func: &Func, v: Value) -> Option<&Tensor> {
    let (Op::Broadcast { axes, .. }, [k]) = (&func.node(v).op, &func.node(v).args[..]) else { return None };
    let Op::Const { value } = &func.node(*k).op else { return None };
    let channels = axes.iter().position(|&a| a == 1)?;
    let all_along_channels = value.shape()[channels] == value.len();
    let channels_of_result = func.ty(v).as_tensor().ok()?.shape.get(1)?;
    (all_along_channels && *channels_of_result == Dim::from(value.len())).then_some(value)
}

/// Weights times a scale per output, if all of them are finite numbers.
fn scaled_weights(weights: &Tensor, scales: &Tensor) -> Option<Tensor> {
    if weights.dtype() != DType::F32 || scales.dtype() != DType::F32 || weights.shape().first() != Some(&scales.len()) {
        return None;
    }
    let (weights_of_output, scales) = (weights.len() / scales.len().max(1), scales.to_f64s());
    let product = |(i, w): (usize, f64)| (w * scales[i / weights_of_output]) as f32;
    let scaled: Vec<f32> = weights.to_f64s().into_iter().enumerate().map(product).collect();
    scaled.iter().all(|w| w.is_finite()).then(|| put_aside(Tensor::from_f32(weights.shape(), &scaled), &[]))
}

/// The expression with one step in the place of another.
#[allow(clippy::wildcard_enum_match_arm, reason = "changes some steps of an expression; any other is copied")]
fn with_step(f: &Scalar, old: usize, by: usize) -> Scalar {
    let renamed = |&a: &u32| if a as usize == old { by as u32 } else { a };
    let step = |s: &Step| match s {
        Step::Call(call) => Step::Call(Call { args: call.args.iter().map(renamed).collect(), ..call.clone() }),
        other => other.clone(),
    };
    let steps: Vec<Step> = f.steps().iter().map(step).collect();
    let last = steps.len() - 1;
    Scalar::new(&steps, if last == old { by } else { last })
}

/// The expression of those operands only that it uses.
#[allow(clippy::wildcard_enum_match_arm, reason = "changes some steps of an expression; any other is copied")]
fn without_unused(f: &Scalar, args: &mut Vec<Value>) -> Scalar {
    let is_used = |n: usize| f.steps().contains(&Step::Arg(n as u32));
    let step = |s: &Step| match s {
        Step::Arg(n) => Step::Arg((0..*n as usize).filter(|&n| is_used(n)).count() as u32),
        other => other.clone(),
    };
    let steps: Vec<Step> = f.steps().iter().map(step).collect();
    let mut number = 0..;
    args.retain(|_| number.next().is_some_and(is_used));
    Scalar::new(&steps, steps.len() - 1)
}
