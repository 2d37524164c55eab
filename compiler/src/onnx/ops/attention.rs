//! Attention: scaled dot products with masks and caches, modified by nested graphs, and as a linear recurrence; rotary
//! position embeddings.
use crate::onnx::import::{
    Ctx, Fail,
    table::{Subgraph, onnx_ops},
};
use numrsc_ir::{
    DType, Dim, Result,
    build::{Graph, LoopBody, LoopOut, X},
    refuse,
};

onnx_ops! { pub(super) ATTENTION in "", |g, cx|
    "Attention" 23 (Q: Float, K: Float, V: Float; attn_mask: Any, past_key: Float, past_value: Float)
        { is_causal: bool = false, kv_num_heads: Option<i64>, q_num_heads: Option<i64>, qk_matmul_output_mode: i64 = 0,
          scale: Option<f64>, softcap: f64 = 0.0, softmax_precision: Option<DType> }
        => Attention { Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen: None, is_causal, kv_num_heads,
                       q_num_heads, qk_matmul_output_mode, scale, softcap, softmax_precision, left_window_size: -1,
                       right_window_size: -1 }.build();
    "Attention" 24 (Q: Float, K: Float, V: Float; attn_mask: Any, past_key: Float, past_value: Float,
                    nonpad_kv_seqlen: Index)
        { is_causal: bool = false, kv_num_heads: Option<i64>, q_num_heads: Option<i64>, qk_matmul_output_mode: i64 = 0,
          scale: Option<f64>, softcap: f64 = 0.0, softmax_precision: Option<DType> }
        => Attention { Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen, is_causal, kv_num_heads, q_num_heads,
                       qk_matmul_output_mode, scale, softcap, softmax_precision, left_window_size: -1,
                       right_window_size: -1 }.build();
    "Attention" 25 (Q: Float, K: Float, V: Float; attn_mask: Any, past_key: Float, past_value: Float,
                    nonpad_kv_seqlen: Index)
        { is_causal: bool = false, kv_num_heads: Option<i64>, left_window_size: i64 = -1, q_num_heads: Option<i64>,
          qk_matmul_output_mode: i64 = 0, right_window_size: i64 = -1, scale: Option<f64>, softcap: f64 = 0.0,
          softmax_precision: Option<DType> }
        => Attention { Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen, is_causal, kv_num_heads, q_num_heads,
                       qk_matmul_output_mode, scale, softcap, softmax_precision, left_window_size,
                       right_window_size }.build();
    "LinearAttention" 27 (query: Float, key: Float, value: Float; past_state: Float, decay: Float, beta: Float)
        { chunk_size: i64 = 64, kv_num_heads: i64, q_num_heads: i64, scale: f64 = 0.0,
          update_rule: String = "gated_delta".into() }
        => linear_attention(LinearInputs { query, key, value, past_state, decay, beta }, (q_num_heads, kv_num_heads),
                            scale, &update_rule);
    "RotaryEmbedding" 23 (X: Float, cos_cache: Float, sin_cache: Float; position_ids: Index)
        { interleaved: bool = false, num_heads: Option<i64>, rotary_embedding_dim: i64 = 0 }
        => rotary_embedding(X, [cos_cache, sin_cache], position_ids,
                            Rotary { interleaved, num_heads, dim: rotary_embedding_dim });
}

onnx_ops! { pub(super) FLEX in "ai.onnx.preview", |g, cx|
    "FlexAttention" 1 (Q: Float, K: Float, V: Float)
        { prob_mod: Option<Subgraph>, scale: Option<f64>, score_mod: Option<Subgraph>, softmax_precision: Option<DType> }
        => flex_attention(cx, [Q, K, V], scale, softmax_precision, [score_mod.is_some(), prob_mod.is_some()]);
}

/// A node of the operator `Attention`, with its names for everything.
#[allow(non_snake_case)]
struct Attention<'g> {
    Q: X<'g>,
    K: X<'g>,
    V: X<'g>,
    attn_mask: Option<X<'g>>,
    past_key: Option<X<'g>>,
    past_value: Option<X<'g>>,
    nonpad_kv_seqlen: Option<X<'g>>,
    is_causal: bool,
    kv_num_heads: Option<i64>,
    q_num_heads: Option<i64>,
    qk_matmul_output_mode: i64,
    scale: Option<f64>,
    softcap: f64,
    softmax_precision: Option<DType>,
    left_window_size: i64,
    right_window_size: i64,
}

impl<'g> Attention<'g> {
    /// `softmax(softcap(q sqrt(s) (k sqrt(s))^T) + bias) v`, everything in the type of the query except the softmax.
    fn build(&self) -> Result<Vec<X<'g>>> {
        let g = self.Q.graph();
        if self.left_window_size < -1 || self.right_window_size < -1 {
            refuse!("window sizes are -1 or more");
        }
        let q = by_heads(self.Q, self.q_num_heads)?;
        let [k, v] = [by_heads(self.K, self.kv_num_heads)?, by_heads(self.V, self.kv_num_heads)?];
        let (k, v, past) = match (self.past_key, self.past_value) {
            (Some(pk), Some(pv)) if self.nonpad_kv_seqlen.is_none() => {
                (g.concat(&[pk, k], 2)?, g.concat(&[pv, v], 2)?, pk.dim(2)?)
            }
            (None, None) => (k, v, Dim::ZERO),
            (Some(_), Some(_)) => refuse!("`nonpad_kv_seqlen` cannot be combined with `past_key` and `past_value`"),
            _ => refuse!("`past_key` and `past_value` must be given together"),
        };
        let dtype = q.dtype();
        let raw = scaled_products(q, k, self.scale)?;
        let cap = self.softcap;
        let capped = if cap > 0.0 { raw.map(|x| (x / cap).tanh() * cap)? } else { raw };
        let bias = self.bias(&q.dim(0)?, &past, [&q.dim(2)?, &k.dim(2)?], dtype)?;
        let biased = match bias {
            Some(b) => g.map([capped, b.broadcast_to(&raw.shape())?], |[x, b]| x + b)?,
            None => capped,
        };
        let logits = biased.cast(self.softmax_precision.unwrap_or(dtype))?;
        let probs = match bias {
            Some(b) => masked_softmax(logits, b)?,
            None => logits.softmax(&[3])?,
        }
        .cast(dtype)?;
        let y = grouped(probs, v.cast(dtype)?, 2)?;
        let y = if self.Q.rank() == 3 { merge_heads(y)? } else { y };
        let shown = match self.qk_matmul_output_mode {
            0 => raw,
            1 => capped,
            2 => biased,
            3 => probs,
            mode => refuse!("`qk_matmul_output_mode` {mode} is none of 0, 1, 2, 3"),
        };
        Ok(vec![y, k, v, shown])
    }

    /// What is added to the scores: the mask, and minus infinity where a query must not see a key. Query `i` has the
    /// position `i + offset` among the keys, where `offset` counts the keys before the first query.
    fn bias(&self, batch: &Dim, past: &Dim, [queries, keys]: [&Dim; 2], dtype: DType) -> Result<Option<X<'g>>> {
        let g = self.Q.graph();
        let mut allowed: Vec<X<'g>> = Vec::new();
        let mask = self.attn_mask.map(|m| padded_mask(m, keys, dtype)).transpose()?;
        let mask = match mask {
            Some(m) if m.dtype() == DType::Bool => {
                allowed.push(m);
                None
            }
            other => other,
        };
        let filled = match self.nonpad_kv_seqlen {
            Some(n) => Some(n.indices()?.reshape(&[batch.clone(), Dim::ONE, Dim::ONE, Dim::ONE])?),
            None => None,
        };
        let offset = match filled {
            Some(n) => g.map([n, g.size(queries)?], |[n, q]| n - q)?,
            None => g.size(past)?,
        };
        let query = g.iota(DType::I64, &[queries.clone(), Dim::ONE], 0)?;
        let (at, key) = (g.map([query, offset], |[i, o]| i + o)?, g.range(DType::I64, keys)?);
        // A causal mask is a window that ends at the query.
        let ahead = if self.is_causal { 0 } else { self.right_window_size };
        if ahead >= 0 {
            allowed.push(g.map([at, key], |[p, j]| (j - p).le(p.int(ahead.into())))?);
        }
        let behind = self.left_window_size;
        if behind >= 0 {
            allowed.push(g.map([at, key], |[p, j]| (p - j).le(p.int(behind.into())))?);
        }
        if let Some(n) = filled {
            allowed.push(g.map([key, n], |[j, n]| j.lt(n))?);
        }
        if allowed.is_empty() {
            return Ok(mask);
        }
        let allowed = g.map_all(&allowed, |all| all[1..].iter().fold(all[0], |a, b| a.and(*b)))?;
        Ok(Some(match mask {
            Some(m) => g.map([allowed, m], |[a, m]| a.select(m, f64::NEG_INFINITY))?,
            None => allowed.map(|a| a.select(a.cast(dtype).lit(0.0), f64::NEG_INFINITY))?,
        }))
    }
}

/// A mask as bools or as numbers to add, with the keys that it does not mention masked.
fn padded_mask<'g>(mask: X<'g>, keys: &Dim, dtype: DType) -> Result<X<'g>> {
    let g = mask.graph();
    let rank = mask.rank();
    if !(1..=4).contains(&rank) || mask.dtype() == DType::Str {
        refuse!("`attn_mask` is {}, which does not fit the scores", mask.ty());
    }
    let mask = if mask.dtype() == DType::Bool { mask } else { mask.cast(dtype)? };
    let missing = (keys - &mask.dim(-1)?).greater(&Dim::ZERO);
    let (low, mut high, mut shape) = (vec![Dim::ZERO; rank], vec![Dim::ZERO; rank], mask.shape());
    high[rank - 1] = missing;
    shape[rank - 1] = keys.clone();
    let outside = if mask.dtype() == DType::Bool { 0.0 } else { f64::NEG_INFINITY };
    mask.pad(&low, &high, g.scalar(mask.dtype(), outside)?)?.reshape(&shape)
}

/// Softmax over the last axis in which a row without any allowed key is 0 instead of NaN.
fn masked_softmax<'g>(x: X<'g>, bias: X<'g>) -> Result<X<'g>> {
    let g = x.graph();
    let exps = g.map([x, x.max(&[3], true)?], |[x, m]| (x - m.eq(f64::NEG_INFINITY).select(m.lit(0.0), m)).exp())?;
    let best = bias.max(&[bias.rank() - 1], true)?;
    g.map([exps, exps.sum(&[3], true)?, best], |[e, s, b]| {
        let p = e / s.eq(0.0).select(s.lit(1.0), s);
        b.eq(f64::NEG_INFINITY).select(p.lit(0.0), p)
    })
}

/// A tensor of rank 4 with the heads in axis 1, made from `[batch, time, heads * size]` if it has rank 3.
fn by_heads<'g>(x: X<'g>, heads: Option<i64>) -> Result<X<'g>> {
    match (x.rank(), heads) {
        (3, Some(n)) => split_heads(x, n)?.transpose(&[0, 2, 1, 3]),
        (3, None) => refuse!("inputs of rank 3 need the number of heads"),
        (4, Some(n)) if x.dim(1)?.equals(&Dim::Const(n)) == Some(false) => {
            refuse!("{} does not have {n} heads", x.ty())
        }
        (4, _) => Ok(x),
        _ => refuse!("query, key and value have rank 3 or 4, not {}", x.ty()),
    }
}

/// `[batch, time, heads * size]` as `[batch, time, heads, size]`.
pub(super) fn split_heads(x: X<'_>, heads: i64) -> Result<X<'_>> {
    let [batch, time, all] = &x.shape()[..] else { refuse!("expected a tensor of rank 3, got {}", x.ty()) };
    let n = Dim::Const(heads);
    if heads <= 0 || all.modulo(&n).equals(&Dim::ZERO) == Some(false) {
        refuse!("{} cannot be split into {heads} heads", x.ty());
    }
    x.reshape(&[batch.clone(), time.clone(), n.clone(), all.floor_div(&n)])
}

/// `[batch, heads, time, size]` as `[batch, time, heads * size]`.
pub(super) fn merge_heads(x: X<'_>) -> Result<X<'_>> {
    let x = x.transpose(&[0, 2, 1, 3])?;
    let s = x.shape();
    x.reshape(&[s[0].clone(), s[1].clone(), &s[2] * &s[3]])
}

/// `(q sqrt(s)) (k sqrt(s))^T` of every head, where `s` is `1 / sqrt(size)` if it is not given.
fn scaled_products<'g>(q: X<'g>, k: X<'g>, scale: Option<f64>) -> Result<X<'g>> {
    let g = q.graph();
    let dtype = q.dtype();
    let scale = match scale {
        Some(s) => g.scalar(DType::F64, s)?,
        None => g.size(&q.dim(3)?)?.cast(DType::F64)?.map(|n| 1.0 / n.sqrt())?,
    };
    let root = scale.map(|s| s.sqrt().cast(dtype))?;
    let scaled = |x: X<'g>| g.map([x, root], |[x, s]| x * s);
    grouped(scaled(q)?, scaled(k.cast(dtype)?)?, 3)
}

/// `a[b, h, i, s] * b[b, h / group, ..]` summed over `s`, which is axis `axis` of `b`: neighbouring heads of `a` share
/// one of `b`.
fn grouped<'g>(a: X<'g>, b: X<'g>, axis: usize) -> Result<X<'g>> {
    let (s, heads) = (a.shape(), b.dim(1)?);
    if s[1].equals(&heads) == Some(true) {
        return a.contract(b, &[(0, 0), (1, 1)], &[(3, axis)]);
    }
    if heads == Dim::ZERO || s[1].modulo(&heads).equals(&Dim::ZERO) == Some(false) {
        refuse!("{} query heads cannot share {heads} heads", s[1]);
    }
    let split = a.reshape(&[s[0].clone(), heads.clone(), s[1].floor_div(&heads), s[2].clone(), s[3].clone()])?;
    let y = split.contract(b, &[(0, 0), (1, 1)], &[(4, axis)])?;
    y.reshape(&[s[0].clone(), s[1].clone(), s[2].clone(), y.dim(4)?])
}

/// `prob_mod(softmax(score_mod(q k^T scale))) v`, from the scores on in the precision of the softmax.
fn flex_attention<'g>(
    cx: &Ctx<'_, 'g>,
    [q, k, v]: [X<'g>; 3],
    scale: Option<f64>,
    precision: Option<DType>,
    [score_mod, prob_mod]: [bool; 2],
) -> Result<X<'g>, Fail> {
    if [q, k, v].iter().any(|x| x.rank() != 4) {
        refuse!("query, key and value must have rank 4");
    }
    let precision = precision.unwrap_or(if q.dtype() == DType::F64 { DType::F64 } else { DType::F32 });
    if !(precision.is_float() && precision.bits() >= 16) {
        refuse!("a softmax in {precision} is not supported");
    }
    let scores = scaled_products(q, k, scale)?.cast(precision)?;
    let scores = if score_mod { modified(cx, "score_mod", scores)? } else { scores };
    let probs = scores.softmax(&[3])?;
    let probs = if prob_mod { modified(cx, "prob_mod", probs)? } else { probs };
    Ok(grouped(probs, v.cast(precision)?, 2)?.cast(q.dtype())?)
}

/// What a nested graph of one input and one output of the same type makes of `x`.
fn modified<'g>(cx: &Ctx<'_, 'g>, name: &str, x: X<'g>) -> Result<X<'g>, Fail> {
    let graph = cx.subgraph(name)?;
    let (names, captured) = cx.captures(&[graph])?;
    let results = cx.run(name, graph, cx.graph(), &[x], &names, &captured)?;
    let [y] = results[..] else { refuse!("`{name}` must give one result, not {}", results.len()) };
    if y.dtype() != x.dtype() || y.rank() != 4 {
        refuse!("`{name}` must give a tensor like its input, {}, not {}", x.ty(), y.ty());
    }
    Ok(y.reshape(&x.shape())?)
}

/// How a rotary embedding is applied; `dim` 0 rotates the whole head.
#[derive(Clone, Copy)]
pub(super) struct Rotary {
    pub interleaved: bool,
    pub num_heads: Option<i64>,
    pub dim: i64,
}

/// Rotate pairs of elements of each head by the angle of their position; `caches` are the cosines and sines, rows of
/// which are picked by `positions`.
pub(super) fn rotary_embedding<'g>(
    x: X<'g>,
    caches: [X<'g>; 2],
    positions: Option<X<'g>>,
    how: Rotary,
) -> Result<X<'g>> {
    let g = x.graph();
    // The axis of the heads, along which the angles repeat.
    let (split, heads_axis) = match (x.rank(), how.num_heads) {
        (3, Some(n)) => (split_heads(x, n)?, 2),
        (3, None) => refuse!("an input of rank 3 needs `num_heads`"),
        (4, _) => (x, 1),
        _ => refuse!("the input has rank 3 or 4, not {}", x.ty()),
    };
    let size = split.dim(3)?;
    let rotated = if how.dim == 0 { size.clone() } else { Dim::Const(how.dim) };
    let odd = rotated.modulo(&Dim::Const(2)).equals(&Dim::ZERO) == Some(false);
    if how.dim < 0 || odd || rotated.at_most(&size) == Some(false) {
        refuse!("cannot rotate {rotated} of {size} elements");
    }
    let half = rotated.floor_div(&Dim::Const(2));
    let [mut cos, mut sin] = caches;
    if let Some(p) = positions {
        if cos.rank() != 2 || sin.rank() != 2 || p.rank() != 2 {
            refuse!("with positions, the caches and positions have rank 2");
        }
        // No position counts from the end.
        let p = p.indices()?;
        (cos, sin) = (cos.gather(p, 0, 0)?, sin.gather(p, 0, 0)?);
    }
    if [cos, sin].iter().any(|c| c.rank() != 3 || c.shape()[2].equals(&half) == Some(false)) {
        refuse!("the caches {} and {} do not fit {half} pairs", cos.ty(), sin.ty());
    }
    let mut pairs = split.shape();
    pairs[3] = half.clone();
    let angle = |c: X<'g>| c.unsqueeze(&[heads_axis])?.broadcast_to(&pairs);
    let (cos, sin) = (angle(cos)?, angle(sin)?);
    let two = Dim::Const(2);
    let (a, b) = if how.interleaved {
        (split.slice_axis(3, &Dim::ZERO, &half, 2)?, split.slice_axis(3, &Dim::ONE, &half, 2)?)
    } else {
        (split.slice_axis(3, &Dim::ZERO, &half, 1)?, split.slice_axis(3, &half, &half, 1)?)
    };
    let real = g.map([cos, a, sin, b], |[c, a, s, b]| c * a - s * b)?;
    let imaginary = g.map([sin, a, cos, b], |[s, a, c, b]| s * a + c * b)?;
    let turned = if how.interleaved {
        let mut shape = pairs.clone();
        shape[3] = &half * &two;
        g.concat(&[real.unsqueeze(&[4])?, imaginary.unsqueeze(&[4])?], 4)?.reshape(&shape)?
    } else {
        g.concat(&[real, imaginary], 3)?
    };
    let rest = split.slice_axis(3, &rotated, &(&size - &rotated), 1)?;
    let y = if rest.dim(3)? == Dim::ZERO { turned } else { g.concat(&[turned, rest], 3)? };
    y.reshape(&x.shape())
}

#[derive(Clone, Copy)]
struct LinearInputs<'g> {
    query: X<'g>,
    key: X<'g>,
    value: X<'g>,
    past_state: Option<X<'g>>,
    decay: Option<X<'g>>,
    beta: Option<X<'g>>,
}

/// A state of one matrix per head that each step decays, corrects and extends by `k v^T`, and that the queries read:
/// `S = exp(g) S; v = beta (v - S^T k) if delta; S = S + k v^T; o = scale q^T S`, in f32.
fn linear_attention<'g>(
    x: LinearInputs<'g>,
    (q_heads, kv_heads): (i64, i64),
    scale: f64,
    rule: &str,
) -> Result<[X<'g>; 2]> {
    let g: &'g Graph = x.query.graph();
    let (gated, delta) = match rule {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        _ => refuse!("`update_rule` is \"{rule}\""),
    };
    if x.decay.is_some() != gated || x.beta.is_some() != delta {
        refuse!("the inputs `decay` and `beta` do not fit the update rule \"{rule}\"");
    }
    if kv_heads <= 0 || q_heads <= 0 || q_heads % kv_heads != 0 {
        refuse!("`q_num_heads` {q_heads} must be a multiple of `kv_num_heads` {kv_heads}");
    }
    let out = x.query.dtype();
    // [time, batch, heads, size]
    let steps = |x: X<'g>, heads: i64| split_heads(x, heads)?.transpose(&[1, 0, 2, 3])?.cast(DType::F32);
    let (q, k, v) = (steps(x.query, q_heads)?, steps(x.key, kv_heads)?, steps(x.value, kv_heads)?);
    let (shape, keys, values) = (k.shape(), k.dim(3)?, v.dim(3)?);
    let [time, batch, heads, group] =
        [shape[0].clone(), shape[1].clone(), Dim::Const(kv_heads), Dim::Const(q_heads / kv_heads)];
    let q = q.reshape(&[time.clone(), batch.clone(), heads.clone(), group, keys.clone()])?;
    let mut captures = vec![q, k, v];
    // One factor per head or one per row of its state: a last axis of size 1 repeats.
    if let Some(d) = x.decay {
        captures.push(steps(d, kv_heads)?.broadcast_to(&shape)?.map(|d| d.exp())?.unsqueeze(&[4])?);
    }
    if let Some(b) = x.beta {
        if b.rank() != 3 {
            refuse!("`beta` must have rank 3, not {}", b.ty());
        }
        let b = b.cast(DType::F32)?.transpose(&[1, 0, 2])?;
        captures.push(b.broadcast_to(&[time.clone(), batch.clone(), heads.clone()])?.unsqueeze(&[3])?);
    }
    let matrix = [batch.clone(), heads, keys, values.clone()];
    let (start, state_type) = match x.past_state {
        Some(s) if s.rank() == 4 => (s.cast(DType::F32)?.reshape(&matrix)?, s.dtype()),
        Some(s) => refuse!("`past_state` must have rank 4, not {}", s.ty()),
        None => (g.full(DType::F32, 0.0, &matrix)?, out),
    };
    let factor = match scale {
        0.0 => g.size(&matrix[2])?.cast(DType::F64)?.map(|n| (1.0 / n.sqrt()).cast(DType::F32))?,
        s => g.scalar(DType::F32, s)?,
    };
    let go = g.scalar(DType::Bool, 1.0)?;
    let (states, rows) = g.loop_(g.size(&time)?, go, &[start], &captures, &|b| linear_step(&b, gated, delta))?;
    let read = g.map([rows[0], factor], |[o, s]| o * s)?.transpose(&[1, 0, 2, 3, 4])?;
    let y = read.reshape(&[batch, time, &Dim::Const(q_heads) * &values])?;
    Ok([y.cast(out)?, states[0].cast(state_type)?])
}

fn linear_step<'b>(b: &LoopBody<'b>, gated: bool, delta: bool) -> Result<LoopOut<'b>> {
    let g = b.graph;
    let now: Vec<X<'_>> = b.captures.iter().map(|x| x.gather(b.round, 0, 0)).collect::<Result<_>>()?;
    let (q, k, mut v) = (now[0], now[1], now[2]);
    let mut s = b.states[0];
    if gated {
        s = g.map([s, now[3]], |[s, d]| s * d)?;
    }
    if delta {
        let found = s.contract(k, &[(0, 0), (1, 1)], &[(2, 2)])?;
        v = g.map([now[3 + usize::from(gated)], v, found], |[b, v, f]| b * (v - f))?;
    }
    let s = g.map([s, k.unsqueeze(&[3])?, v.unsqueeze(&[2])?], |[s, k, v]| s + k * v)?;
    let row = q.contract(s, &[(0, 0), (1, 1)], &[(3, 2)])?;
    Ok(LoopOut { cond: b.cond, states: vec![s], rows: vec![row] })
}
