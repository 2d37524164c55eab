//! Softmax, its relatives, and the losses made from it.
use super::reduce::wide;
use crate::onnx::import::table::onnx_ops;
use numrsc_ir::{DType, Dim, ReduceFn, Result, build::X, refuse};

onnx_ops! { pub(super) SOFTMAX in "", |g, cx|
    "Softmax"                    1 (x: Float) { axis: i64 = 1 }  => coerced(x, axis, softmax);
    "Softmax"                   13 (x: Float) { axis: i64 = -1 } => softmax(x, x.axis(axis)?);
    "LogSoftmax"                 1 (x: Float) { axis: i64 = 1 }  => coerced(x, axis, log_softmax);
    "LogSoftmax"                13 (x: Float) { axis: i64 = -1 } => log_softmax(x, x.axis(axis)?);
    "Hardmax"                    1 (x: Float) { axis: i64 = 1 }  => coerced(x, axis, hardmax);
    "Hardmax"                   13 (x: Float) { axis: i64 = -1 } => hardmax(x, x.axis(axis)?);
    "NegativeLogLikelihoodLoss" 12 (x: Float, target: Index; weight: Float)
        { reduction: String = "mean".into(), ignore_index: Option<i64> }
        => likelihood_loss(x, target, weight, &reduction, ignore_index);
    "SoftmaxCrossEntropyLoss"   12 (x: Float, target: Index; weight: Float)
        { reduction: String = "mean".into(), ignore_index: Option<i64> }
        => cross_entropy(x, target, weight, &reduction, ignore_index);
}

/// Before opset 13: the axes from `axis` on count as one.
fn coerced<'g>(x: X<'g>, axis: i64, f: fn(X<'g>, usize) -> Result<X<'g>>) -> Result<X<'g>> {
    let axis = if axis == x.rank() as i64 { x.rank() } else { x.axis(axis)? };
    f(x.flatten_to_2d(axis)?, 1)?.reshape(&x.shape())
}

/// `exp(x - m) / Σ exp(x - m)` with `m = max(x)`. The steps on 16-bit floats round as in ONNX's reference, with one
/// exception: a sum beyond the range of `f16` does not become infinite.
fn softmax<'g>(x: X<'g>, axis: usize) -> Result<X<'g>> {
    let (g, dtype, to) = (x.graph(), x.dtype(), wide(x.dtype()));
    if dtype == to {
        return x.softmax(&[axis]);
    }
    let exps = g.map([x, x.max(&[axis], true)?], |[x, m]| (x - m).exp().cast(to))?;
    g.map([exps, exps.sum(&[axis], true)?], |[e, s]| {
        let rounded = s.cast(dtype).cast(to);
        (e / rounded.is_inf().select(s, rounded)).cast(dtype)
    })
}

/// `x - m - log(Σ exp(x - m))` with `m = max(x)`
fn log_softmax<'g>(x: X<'g>, axis: usize) -> Result<X<'g>> {
    let (g, dtype) = (x.graph(), x.dtype());
    let x = x.cast(wide(dtype))?;
    let max = x.max(&[axis], true)?;
    let sum = g.map([x, max], |[x, m]| (x - m).exp())?.sum(&[axis], true)?;
    g.map([x, max, sum], |[x, m, s]| (x - m - s.log()).cast(dtype))
}

/// 1 at the first largest element along the axis, 0 elsewhere.
fn hardmax<'g>(x: X<'g>, axis: usize) -> Result<X<'g>> {
    if x.dim(axis as i64)? == Dim::ZERO {
        return Ok(x);
    }
    let (g, dtype) = (x.graph(), x.dtype());
    let best = x.arg(ReduceFn::Max, axis, false)?.unsqueeze(&[axis])?;
    g.map([g.iota(DType::I64, &x.shape(), axis)?, best], |[i, best]| i.eq(best).cast(dtype))
}

/// The loss of `softmax(x)`, and `log(softmax(x))`.
fn cross_entropy<'g>(
    x: X<'g>,
    target: X<'g>,
    weight: Option<X<'g>>,
    reduction: &str,
    ignored: Option<i64>,
) -> Result<[X<'g>; 2]> {
    let log_prob = log_softmax(x, x.axis(1)?)?;
    Ok([likelihood_loss(log_prob, target, weight, reduction, ignored)?, log_prob])
}

/// `-w[t] * x[n, t, d..]` at every place `n, d..` with target class `t`, summed or averaged (by weight).
fn likelihood_loss<'g>(
    x: X<'g>,
    target: X<'g>,
    weight: Option<X<'g>>,
    reduction: &str,
    ignored: Option<i64>,
) -> Result<X<'g>> {
    let (g, dtype, classes) = (x.graph(), x.dtype(), x.dim(1)?);
    let mut places = x.shape();
    places.remove(1);
    let differs = |(a, b): (&Dim, &Dim)| a.equals(b) == Some(false);
    if target.rank() != places.len() || places.iter().zip(&target.shape()).any(differs) {
        refuse!("the target of {} has shape {places:?}, not {}", x.ty(), target.ty());
    }
    let target = target.indices()?.reshape(&places)?;
    let x = x.cast(wide(dtype))?;
    // What is ignored may lie outside the classes: it reads class 0 and then counts with weight 0.
    let (used, class) = match ignored {
        Some(i) => (
            Some(target.map(|t| t.ne(t.int(i128::from(i))))?),
            target.map(|t| t.eq(t.int(i128::from(i))).select(t.lit(0.0), t))?,
        ),
        None => (None, target),
    };
    let picked = x.gather_elements(class.unsqueeze(&[1])?, 1)?.reshape(&places)?;
    let weights = match weight {
        Some(w) => Some(w.cast(x.dtype())?.reshape(&[classes])?.take(class, 0)?),
        None => None,
    };
    let weights = match (weights, used) {
        (Some(w), Some(u)) => Some(g.map([w, u], |[w, u]| u.select(w, 0.0))?),
        (None, Some(u)) => Some(u.cast(x.dtype())?),
        (w, None) => w,
    };
    // The select keeps an infinity at an ignored place out of the sum.
    let loss = match weights {
        Some(w) => g.map([picked, w], |[p, w]| w.eq(0.0).select(w, -(p * w)))?,
        None => picked.map(|p| -p)?,
    };
    let all: Vec<usize> = (0..places.len()).collect();
    let reduced = match (reduction, weights) {
        ("none", _) => loss,
        ("sum", _) => loss.sum(&all, false)?,
        ("mean", None) => loss.mean(&all, false)?,
        ("mean", Some(w)) => g.map([loss.sum(&all, false)?, w.sum(&all, false)?], |[l, w]| l / w)?,
        _ => refuse!("reduction `{reduction}` is not none, sum or mean"),
    };
    reduced.cast(dtype)
}
