//! Operators of ONNX Runtime that optimised models contain, as its CPU kernels compute them.
use super::{
    activation::hard_swish,
    attention::{Rotary, merge_heads, rotary_embedding, split_heads},
    conv::{Placement, conv},
};
use crate::onnx::import::{
    operand::Operand,
    table::{Outputs, onnx_ops},
};
use numrsc_ir::{DType, Dim, Result, build::X, expr::S, refuse};

onnx_ops! { pub(super) MICROSOFT in "com.microsoft", |g, cx|
    "BiasGelu"  1 (A: Float, B: Float)    {}                     where B[A.dim(-1)?] => gelu(A, Some(B));
    "FastGelu"  1 (X: Float; bias: Float) {}                     where bias[X.dim(-1)?] => fast_gelu(X, bias);
    "Gelu"      1 (X: Float)              {}                     => gelu(X, None);
    "QuickGelu" 1 (X: Float)              { alpha: f64 = 1.702 } => in_wide(X, None, |x| x * (x * alpha).sigmoid());
    "FusedConv" 1 (X: Float, W: Float; B: Float, Z: Float)
        { activation: Option<String>, activation_params: Vec<f64> = vec![], auto_pad: String = "NOTSET".into(),
          dilations: Vec<i64> = vec![], group: i64 = 1, kernel_shape: Vec<i64> = vec![], pads: Vec<i64> = vec![],
          strides: Vec<i64> = vec![] }
        where B[W.dim(0)?]
        => activated(conv(X, W, B, &kernel_shape, group, &Placement::new(&auto_pad, &strides, &dilations, &pads))?, Z,
                     activation.as_deref(), &activation_params);
    "FusedMatMul" 1 (A: Float, B: Float)
        { alpha: f64 = 1.0, transA: bool = false, transB: bool = false, transBatchA: bool = false,
          transBatchB: bool = false }
        => fused_matmul([A, B], alpha, [transA, transB], [transBatchA, transBatchB]);
    "MatMulNBits" 1 (A: Float, B: Int, scales: Float; zero_points: Num, g_idx: Int, bias: Float)
        { K: i64, N: i64, accuracy_level: i64 = 0, bits: i64 = 4, block_size: i64, weight_prepacked: i64 = 0 }
        where bias[Dim::from(N)]
        => matmul_nbits([A, B, scales], [zero_points, g_idx, bias],
                        Blocks { k: K, n: N, bits, size: block_size, prepacked: weight_prepacked });
    "LayerNormalization" 1 (X: Float, Scale: Float; B: Float)
        { axis: i64 = -1, epsilon: f64 = 1e-5, stash_type: i64 = 1 }
        => layer_norm(X, Scale, B, axis, epsilon, stash_type);
    "SimplifiedLayerNormalization" 1 (X: Float, scale: Float)
        { axis: i64 = -1, epsilon: f64 = 1e-5, stash_type: i64 = 1 }
        => rms_norm(X, scale, axis, epsilon, stash_type);
    "SkipLayerNormalization" 1 (input: Float, skip: Float, gamma: Float; beta: Float, bias: Float)
        { epsilon: f64 = 1e-12 }
        where gamma[input.dim(-1)?], beta[input.dim(-1)?], bias[input.dim(-1)?]
        => skip_norm([input, skip, gamma], beta, bias, epsilon, true);
    "SkipSimplifiedLayerNormalization" 1 (input: Float, skip: Float, gamma: Float; bias: Float)
        { epsilon: f64 = 1e-12 }
        where gamma[input.dim(-1)?], bias[input.dim(-1)?]
        => skip_norm([input, skip, gamma], None, bias, epsilon, false);
    "EmbedLayerNormalization" 1 (input_ids: Index; segment_ids: Index, word_embedding: Float, position_embedding: Float,
                                 segment_embedding: Float, gamma: Float, beta: Float, mask: Index, position_ids: Index)
        { epsilon: f64 = 1e-12, mask_index_type: i64 = 0 }
        => embed_norm([Some(input_ids), segment_ids, position_ids],
                      [word_embedding, segment_embedding, position_embedding], [gamma, beta], mask, epsilon);
    "Attention" 1 (input: Float, weights: Float; bias: Float, mask_index: Index, past: Float, attention_bias: Float)
        { do_rotary: bool = false, mask_filter_value: f64 = -10000.0, num_heads: i64,
          past_present_share_buffer: bool = false, qkv_hidden_sizes: Vec<i64> = vec![], scale: f64 = 0.0,
          unidirectional: bool = false }
        where bias[weights.dim(1)?]
        => if do_rotary || (past_present_share_buffer && past.is_some()) {
            refuse!("`do_rotary` and `past_present_share_buffer` are supported as 0 only")
        } else {
            projected_attention([input, weights], [bias, past], &qkv_hidden_sizes,
                Heads { count: num_heads, scale, causal: unidirectional, mask: mask_index, filter: mask_filter_value,
                        bias: attention_bias }) };
    "MultiHeadAttention" 1 (query: Float, key: Float, value: Float; bias: Float, key_padding_mask: Index,
                            attention_bias: Float, past_key: Float, past_value: Float)
        { mask_filter_value: f64 = -10000.0, num_heads: i64, scale: f64 = 0.0, unidirectional: bool = false }
        => multi_head_attention([query, key, value], [bias, past_key, past_value],
               Heads { count: num_heads, scale, causal: unidirectional, mask: key_padding_mask,
                       filter: mask_filter_value, bias: attention_bias });
    "RotaryEmbedding" 1 (input: Float, position_ids: Index, cos_cache: Float, sin_cache: Float)
        { interleaved: bool = false, is_packed_batching: bool = false, num_heads: i64 = 0,
          rotary_embedding_dim: i64 = 0, scale: f64 = 1.0 }
        => if is_packed_batching || scale != 1.0 { refuse!("packed batches and scales are not supported") } else {
            rotary(input, position_ids, [cos_cache, sin_cache], interleaved, num_heads, rotary_embedding_dim) };
}

// Graph optimisers put these into the default domain.
onnx_ops! { pub(super) MICROSOFT_DEFAULT in "", |g, cx|
    "LayerNormalization" 1 (X: Float, Scale: Float; B: Float)
        { axis: i64 = -1, epsilon: f64 = 1e-5, stash_type: i64 = 1 }
        => layer_norm(X, Scale, B, axis, epsilon, stash_type);
    "SimplifiedLayerNormalization" 1 (X: Float, scale: Float)
        { axis: i64 = -1, epsilon: f64 = 1e-5, stash_type: i64 = 1 }
        => rms_norm(X, scale, axis, epsilon, stash_type);
}

/// The type to compute in for values of a type.
fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// A function of `x + bias`, computed in f32 at least.
fn in_wide<'g>(x: X<'g>, bias: Option<X<'g>>, f: impl for<'e> FnOnce(S<'e>) -> S<'e>) -> Result<X<'g>> {
    let (to, via) = (x.dtype(), wide(x.dtype()));
    match bias {
        Some(b) => x.graph().map([x, b], |[x, b]| f(x.cast(via) + b.cast(via)).cast(to)),
        None => x.map(|x| f(x.cast(via)).cast(to)),
    }
}

/// `x / 2 (1 + erf(x / sqrt(2)))`
fn gelu<'g>(x: X<'g>, bias: Option<X<'g>>) -> Result<X<'g>> {
    in_wide(x, bias, |x| x * 0.5 * ((x * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0))
}

/// `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`
fn fast_gelu<'g>(x: X<'g>, bias: Option<X<'g>>) -> Result<X<'g>> {
    let (a, b) = (0.797_884_560_802_865_4, 0.035_677_408_136_300_125);
    in_wide(x, bias, |x| x * 0.5 * ((x * (x * x * b + a)).tanh() + 1.0))
}

/// A function of `x + z`; without a name it is the identity.
fn activated<'g>(x: X<'g>, z: Option<X<'g>>, name: Option<&str>, parameters: &[f64]) -> Result<X<'g>> {
    let x = z.map_or(Ok(x), |z| x.graph().map([x, z.broadcast_to(&x.shape())?], |[x, z]| x + z))?;
    match (name, parameters) {
        (None, _) => Ok(x),
        (Some("Relu"), _) => x.map(|x| x.relu()),
        (Some("Tanh"), _) => x.map(|x| x.tanh()),
        (Some("Sigmoid"), _) => x.map(|x| x.sigmoid()),
        (Some("HardSwish"), _) => x.map(hard_swish),
        (Some("LeakyRelu"), &[a]) => x.map(|x| x.lt(0.0).select(x * a, x)),
        (Some("Clip"), &[low, high]) => x.map(|x| x.clamp(low, high)),
        (Some("HardSigmoid"), &[a, b]) => x.map(|x| (x * a + b).clamp(0.0, 1.0)),
        (Some(name), _) => refuse!("the activation \"{name}\" with {} parameters is not supported", parameters.len()),
    }
}

/// `alpha a b` with the batch axes of a factor between its last two, and with these swapped.
fn fused_matmul<'g>([a, b]: [X<'g>; 2], alpha: f64, swap: [bool; 2], batch: [bool; 2]) -> Result<X<'g>> {
    if batch.contains(&true) && (a.rank() < 3 || a.rank() != b.rank()) {
        refuse!("with `transBatchA` or `transBatchB` both inputs have the same rank of 3 or more");
    }
    let factor = |x: X<'g>, swap: bool, batch: bool| {
        let rank = x.rank();
        let x = if batch { x.move_axis(0, rank - 2)? } else { x };
        if swap && rank >= 2 { x.move_axis(rank - 1, rank - 2) } else { Ok(x) }
    };
    let y = factor(a, swap[0], batch[0])?.matmul(factor(b, swap[1], batch[1])?)?;
    if alpha == 1.0 { Ok(y) } else { y.map(|y| y * alpha) }
}

/// Weights of `n` rows of `k` numbers, in blocks of `size` numbers of `bits` bits.
#[derive(Clone, Copy)]
struct Blocks {
    k: i64,
    n: i64,
    bits: i64,
    size: i64,
    prepacked: i64,
}

/// `a w^T + bias` with `w = (q - zero) scale` in blocks.
fn matmul_nbits<'g>(
    [a, b, scales]: [X<'g>; 3],
    [zeros, order, bias]: [Option<X<'g>>; 3],
    how: Blocks,
) -> Result<X<'g>> {
    let g = a.graph();
    if order.is_some() || how.prepacked != 0 {
        refuse!("weights in another order or in the layout of a device are not supported");
    }
    if ![2, 4, 8].contains(&how.bits) || how.size < 16 || how.size > 1 << 30 || how.k <= 0 || how.n <= 0 {
        refuse!("{} bits in blocks of {} for {} x {} weights", how.bits, how.size, how.n, how.k);
    }
    if b.dtype() != DType::U8 {
        refuse!("the packed weights are u8, not {}", b.dtype());
    }
    let (n, k, size) = (Dim::Const(how.n), Dim::Const(how.k), Dim::Const(how.size));
    let blocks = k.ceil_div(&size);
    let [rows, of_block] = [n.clone(), blocks.clone()];
    let q = unpacked(b, how.bits)?.reshape(&[rows.clone(), of_block.clone(), size.clone()])?;
    let per_block = [rows.clone(), of_block.clone(), Dim::ONE];
    let scale = scales.reshape(&per_block)?;
    let zero = match zeros {
        Some(z) if z.dtype().is_float() => z.cast(scale.dtype())?.reshape(&per_block)?,
        Some(z) if z.dtype() == DType::U8 => {
            let per_row = (&blocks * &Dim::Const(how.bits)).ceil_div(&Dim::Const(8));
            let z = unpacked(z.reshape(&[rows.clone(), per_row])?, how.bits)?;
            z.slice_axis(1, &Dim::ZERO, &blocks, 1)?.cast(scale.dtype())?.reshape(&per_block)?
        }
        Some(z) => refuse!("zero points of type {} are not supported", z.dtype()),
        None => g.scalar(scale.dtype(), (1i64 << (how.bits - 1)) as f64)?,
    };
    let dtype = scale.dtype();
    let w = g.map([q, zero, scale], |[q, z, s]| (q.cast(dtype) - z) * s)?;
    let w = w.reshape(&[rows, &of_block * &size])?.slice_axis(1, &Dim::ZERO, &k, 1)?.cast(a.dtype())?;
    if a.rank() == 0 {
        refuse!("the input must not be a scalar");
    }
    let y = a.contract(w, &[], &[(a.rank() - 1, 1)])?;
    bias.map_or(Ok(y), |b| g.map([y, b], |[y, b]| y + b))
}

/// The numbers of `bits` bits in bytes, the lowest first, along the last axis.
fn unpacked(x: X<'_>, bits: i64) -> Result<X<'_>> {
    let (rank, mut shape) = (x.rank(), x.shape());
    let Some(last) = shape.last_mut() else { refuse!("packed numbers cannot be a scalar") };
    *last = &*last * &Dim::Const(8 / bits);
    let place = x.graph().range(DType::U8, &Dim::Const(8 / bits))?;
    let mask = ((1i64 << bits) - 1) as f64;
    let split = x.graph().map([x.unsqueeze(&[rank])?, place], |[x, i]| x.shr(i * bits as f64).and(x.lit(mask)))?;
    split.reshape(&shape)
}

/// The axes from `axis` on, and the type to compute their statistics in.
fn normalised(x: X<'_>, axis: i64, stash_type: i64) -> Result<Vec<usize>> {
    if stash_type != 1 {
        refuse!("`stash_type` {stash_type} is not supported");
    }
    Ok((x.axis(axis)?..x.rank()).collect())
}

/// `(x - mean) / sqrt(variance + epsilon) scale + bias` over the last axes, with the mean and the inverse deviation.
fn layer_norm<'g>(
    x: X<'g>,
    scale: X<'g>,
    bias: Option<X<'g>>,
    axis: i64,
    epsilon: f64,
    stash_type: i64,
) -> Result<[X<'g>; 3]> {
    let axes = normalised(x, axis, stash_type)?;
    let g = x.graph();
    let (to, x) = (scale.dtype(), x.cast(wide(x.dtype()))?);
    let mean = x.mean(&axes, true)?;
    let centred = g.map([x, mean], |[x, m]| x - m)?;
    let inverse = centred.map(|x| x * x)?.mean(&axes, true)?.map(|v| 1.0 / (v + epsilon).sqrt())?;
    let (scale, bias) = (scale.onto(&x.shape())?, bias.onto(&x.shape())?);
    let y = g.map([centred, inverse, scale], |[x, i, s]| x * i * s.cast(x.dtype()))?;
    let y = bias.map_or(Ok(y), |b| g.map([y, b], |[y, b]| y + b.cast(y.dtype())))?;
    Ok([y.cast(to)?, mean, inverse])
}

/// `x / sqrt(mean(x^2) + epsilon) scale` over the last axes, with the inverse root.
fn rms_norm<'g>(x: X<'g>, scale: X<'g>, axis: i64, epsilon: f64, stash_type: i64) -> Result<[X<'g>; 2]> {
    let axes = normalised(x, axis, stash_type)?;
    let g = x.graph();
    let (to, x) = (scale.dtype(), x.cast(wide(x.dtype()))?);
    let inverse = x.map(|x| x * x)?.mean(&axes, true)?.map(|v| 1.0 / (v + epsilon).sqrt())?;
    let scale = scale.onto(&x.shape())?;
    let y = g.map([x, inverse, scale], |[x, i, s]| (x * i * s.cast(x.dtype())).cast(to))?;
    Ok([y, inverse])
}

/// A norm over the last axis of `x + skip + bias`, with the statistics and the sum.
fn skip_norm<'g>(
    [x, skip, gamma]: [X<'g>; 3],
    beta: Option<X<'g>>,
    bias: Option<X<'g>>,
    epsilon: f64,
    centred: bool,
) -> Result<Outputs<'g>> {
    let g = x.graph();
    let via = wide(x.dtype());
    let sum = g.map([x, skip.broadcast_to(&x.shape())?], |[x, s]| x.cast(via) + s.cast(via))?;
    let sum = bias.map_or(Ok(sum), |b| g.map([sum, b], |[x, b]| x + b.cast(via)))?;
    let (y, mean, inverse) = if centred {
        let [y, mean, inverse] = layer_norm(sum, gamma, beta, -1, epsilon, 1)?;
        (y, Some(mean), inverse)
    } else {
        let [y, inverse] = rms_norm(sum, gamma, -1, epsilon, 1)?;
        (y, None, inverse)
    };
    Ok(vec![Some(y), mean, Some(inverse), Some(sum.cast(x.dtype())?)])
}

/// Layer norm of the sum of the embeddings of words, positions and segments, with the number of ones in each mask and
/// the sum.
fn embed_norm<'g>(
    [words, segments, positions]: [Option<X<'g>>; 3],
    [of_words, of_segments, of_positions]: [Option<X<'g>>; 3],
    [gamma, beta]: [Option<X<'g>>; 2],
    mask: Option<X<'g>>,
    epsilon: f64,
) -> Result<[X<'g>; 3]> {
    let (Some(words), Some(of_words), Some(of_positions), Some(gamma), Some(beta)) =
        (words, of_words, of_positions, gamma, beta)
    else {
        refuse!("the ids, the embeddings of words and positions, `gamma` and `beta` are needed");
    };
    let g = words.graph();
    let [batch, time] = &words.shape()[..] else { refuse!("the ids must have rank 2, not {}", words.ty()) };
    let hidden = [of_words.dim(1)?];
    let (gamma, beta) = (gamma.shaped("gamma", &hidden)?, beta.shaped("beta", &hidden)?);
    // No index counts from the end.
    let look_up = |table: X<'g>, ids: X<'g>| table.gather(ids.indices()?, 0, 0);
    let found = look_up(of_words, words)?;
    let places = match positions {
        Some(p) => p,
        None => g.iota(DType::I64, &[Dim::ONE, time.clone()], 1)?,
    };
    let place = look_up(of_positions, places)?.broadcast_to(&found.shape())?;
    let sum = g.map([found, place], |[w, p]| w + p)?;
    let sum = match (of_segments, segments) {
        (None, None) => sum,
        (None, Some(_)) => refuse!("`segment_ids` need `segment_embedding`"),
        (Some(e), ids) => {
            let ids = ids.map_or_else(|| g.full(DType::I64, 0.0, &[batch.clone(), time.clone()]), Ok)?;
            g.map([sum, look_up(e, ids)?], |[s, e]| s + e)?
        }
    };
    let counted = match mask {
        Some(m) => m.map(|m| m.eq(1.0).cast(DType::I32))?.sum(&[1], false)?,
        None => g.full(DType::I32, 0.0, std::slice::from_ref(batch))?,
    };
    let [y, ..] = layer_norm(sum, gamma, Some(beta), -1, epsilon, 1)?;
    Ok([y, counted, sum])
}

/// What attention does besides its projections.
#[derive(Clone, Copy)]
struct Heads<'g> {
    count: i64,
    /// 0 for `1 / sqrt(size)`.
    scale: f64,
    causal: bool,
    /// Lengths `[batch]`, ends and starts `[2 batch]`, or 0 for masked keys: `[batch, keys]`, `[batch, queries, keys]`.
    mask: Option<X<'g>>,
    /// What is added to the score of a masked key.
    filter: f64,
    bias: Option<X<'g>>,
}

impl<'g> Heads<'g> {
    /// `softmax(q k^T scale + mask + bias) v` of `[batch, heads, time, size]`, merged.
    fn attend(&self, q: X<'g>, k: X<'g>, v: X<'g>, past: &Dim) -> Result<X<'g>> {
        let g = q.graph();
        let dtype = q.dtype();
        let scale = match self.scale {
            0.0 => g.size(&q.dim(3)?)?.cast(DType::F64)?.map(|n| (1.0 / n.sqrt()).cast(dtype))?,
            s => g.scalar(dtype, s)?,
        };
        let products = q.contract(k, &[(0, 0), (1, 1)], &[(3, 3)])?;
        let mut scores = g.map([products, scale], |[x, s]| x * s)?;
        let shape = scores.shape();
        let keys = g.range(DType::I64, &shape[3])?;
        let mut mask = self.mask.map(|m| self.penalty(m, keys, &shape, dtype)).transpose()?;
        if self.causal {
            let first = g.iota(DType::I64, &[shape[2].clone(), Dim::ONE], 0)?;
            let none = mask.map_or_else(|| g.scalar(dtype, 0.0), Ok)?;
            let lowest = match dtype {
                DType::F16 => -65504.0,
                DType::F64 => f64::MIN,
                _ => f64::from(f32::MIN),
            };
            let past = g.size(past)?;
            mask = Some(g.map([first, past, keys, none], |[i, p, j, m]| j.le(i + p).select(m, lowest))?);
        }
        for added in [mask, self.bias].into_iter().flatten() {
            scores = g.map([scores, added.broadcast_to(&shape)?], |[x, b]| x + b)?;
        }
        merge_heads(scores.softmax(&[3])?.contract(v, &[(0, 0), (1, 1)], &[(3, 2)])?)
    }

    /// The mask as what to add to the scores.
    fn penalty(&self, mask: X<'g>, keys: X<'g>, scores: &[Dim], dtype: DType) -> Result<X<'g>> {
        let g = mask.graph();
        let batch = &scores[0];
        let column = [batch.clone(), Dim::ONE, Dim::ONE, Dim::ONE];
        let m = mask.indices()?;
        let seen = match &m.shape()[..] {
            [n] if n.equals(batch) == Some(true) => g.map([keys, m.reshape(&column)?], |[j, end]| j.lt(end))?,
            [n] if n.equals(&(batch + batch)) == Some(true) => {
                let ends = m.slice_axis(0, &Dim::ZERO, batch, 1)?.reshape(&column)?;
                let starts = m.slice_axis(0, batch, batch, 1)?.reshape(&column)?;
                g.map([keys, ends, starts], |[j, end, start]| j.lt(end).and(j.ge(start)))?
            }
            [_, _] => m.map(|m| m.gt(0.0))?.unsqueeze(&[1, 2])?,
            [_, _, _] => m.map(|m| m.gt(0.0))?.unsqueeze(&[1])?,
            _ => refuse!("a mask {} for {batch} sequences is not supported", mask.ty()),
        };
        seen.map(|s| s.select(s.cast(dtype).lit(0.0), self.filter))
    }

    /// `[batch, time, heads * size]` with the heads in axis 1; what has rank 4 has them there already.
    fn split(&self, x: X<'g>) -> Result<X<'g>> {
        if x.rank() == 4 { Ok(x) } else { split_heads(x, self.count)?.transpose(&[0, 2, 1, 3]) }
    }
}

/// Self-attention of an input that is projected to queries, keys and values first, with the keys and values after
/// those of the past.
fn projected_attention<'g>(
    [x, w]: [X<'g>; 2],
    [bias, past]: [Option<X<'g>>; 2],
    sizes: &[i64],
    heads: Heads<'g>,
) -> Result<Outputs<'g>> {
    let g = x.graph();
    if x.rank() != 3 || w.rank() != 2 {
        refuse!("the input and weights must have rank 3 and 2, not {} and {}", x.ty(), w.ty());
    }
    let all = x.contract(w, &[], &[(2, 0)])?;
    let all = bias.map_or(Ok(all), |b| g.map([all, b], |[x, b]| x + b))?;
    let parts: Vec<Dim> = match sizes {
        [] => vec![all.dim(2)?.floor_div(&Dim::Const(3)); 3],
        [_, _, _] if sizes.iter().all(|&n| n > 0) => sizes.iter().map(|&n| Dim::Const(n)).collect(),
        _ => refuse!("`qkv_hidden_sizes` is {sizes:?}"),
    };
    if let Some(false) = (&(&parts[0] + &parts[1]) + &parts[2]).equals(&all.dim(2)?) {
        refuse!("the weights {} do not hold queries, keys and values of sizes {parts:?}", w.ty());
    }
    let parts = all.split(2, &parts)?;
    let (q, k, v) = (heads.split(parts[0])?, heads.split(parts[1])?, heads.split(parts[2])?);
    let (k, v, before) = match past {
        Some(p) if p.rank() == 5 => {
            let [pk, pv] = [p.at(0, &Dim::ZERO)?, p.at(0, &Dim::ONE)?];
            (g.concat(&[pk, k], 2)?, g.concat(&[pv, v], 2)?, pk.dim(2)?)
        }
        Some(p) => refuse!("`past` must have rank 5, not {}", p.ty()),
        None => (k, v, Dim::ZERO),
    };
    let y = heads.attend(q, k, v, &before)?;
    // Keys and values of different sizes cannot be one tensor.
    let same = k.dim(3)?.equals(&v.dim(3)?) == Some(true);
    let present = if same { Some(g.concat(&[k.unsqueeze(&[0])?, v.unsqueeze(&[0])?], 0)?) } else { None };
    Ok(vec![Some(y), present])
}

/// Attention of queries to keys and values that are projected already, up to a bias.
fn multi_head_attention<'g>(
    [q, k, v]: [X<'g>; 3],
    [bias, past_key, past_value]: [Option<X<'g>>; 3],
    heads: Heads<'g>,
) -> Result<[X<'g>; 3]> {
    let g = q.graph();
    if q.rank() != 3 || k.rank() != v.rank() || !(3..=4).contains(&k.rank()) {
        refuse!("packed inputs are not supported: {}, {}, {}", q.ty(), k.ty(), v.ty());
    }
    let (mut q, mut k, mut v) = (q, k, v);
    if let Some(b) = bias {
        let size = q.dim(2)?;
        let rest = &(&b.dim(0)? - &size) - &size;
        let parts = b.split(0, &[size.clone(), size, rest])?;
        let add = |x: X<'g>, b: X<'g>| {
            let b = b.shaped("bias", &[x.dim(2)?])?;
            g.map([x, b.broadcast_to(&x.shape())?], |[x, b]| x + b)
        };
        q = add(q, parts[0])?;
        // Keys and values by heads come with their bias.
        if k.rank() == 3 {
            (k, v) = (add(k, parts[1])?, add(v, parts[2])?);
        }
    }
    let (q, k, v) = (heads.split(q)?, heads.split(k)?, heads.split(v)?);
    let (k, v, before) = match (past_key, past_value) {
        (Some(pk), Some(pv)) => (g.concat(&[pk, k], 2)?, g.concat(&[pv, v], 2)?, pk.dim(2)?),
        (None, None) => (k, v, Dim::ZERO),
        _ => refuse!("`past_key` and `past_value` must be given together"),
    };
    Ok([heads.attend(q, k, v, &before)?, k, v])
}

/// Rotary embedding of positions `[batch, time]`, or of a first position.
fn rotary<'g>(
    x: X<'g>,
    positions: X<'g>,
    [cos, sin]: [X<'g>; 2],
    interleaved: bool,
    heads: i64,
    dim: i64,
) -> Result<X<'g>> {
    let g = x.graph();
    if !(3..=4).contains(&x.rank()) || cos.rank() != 2 {
        refuse!("the input has rank 3 or 4 and the caches have rank 2, not {} and {}", x.ty(), cos.ty());
    }
    let (batch, time) = (x.dim(0)?, if x.rank() == 3 { x.dim(1)? } else { x.dim(2)? });
    // The number of heads follows from the size of a head, which the caches tell if all of it is rotated.
    let by_cache = || {
        let size = cos.dim(1).ok()?.as_const()?.checked_mul(2).filter(|n| *n > 0)?;
        Some(x.dim(2).ok()?.as_const()? / size)
    };
    let num_heads = match (x.rank(), heads) {
        (3, 0) => by_cache(),
        (3, n) => Some(n),
        _ => None,
    };
    let ids = match positions.rank() {
        2 => positions,
        _ => {
            let first = positions.indices()?.reshape(&[])?;
            g.map([g.iota(DType::I64, &[batch, time], 1)?, first], |[t, p]| t + p)?
        }
    };
    rotary_embedding(x, [cos, sin], Some(ids), Rotary { interleaved, num_heads, dim })
}
