//! Convolutions, and how the attributes of convolutions and pools place windows over the spatial axes.
use super::{
    pool::wide,
    sampling::{Outside, sample, taps},
};
use crate::onnx::import::table::onnx_ops;
use numrsc_ir::{
    DType, Dim, Result, ScatterFn,
    build::{Graph, Window, X},
    refuse,
};

onnx_ops! { pub(super) CONV in "", |g, cx|
    "Conv" 1 (x: Float, w: Float; b: Float)
        { auto_pad: String = "NOTSET".into(), kernel_shape: Vec<i64> = vec![], strides: Vec<i64> = vec![],
          dilations: Vec<i64> = vec![], pads: Vec<i64> = vec![], group: i64 = 1 }
        where b[w.dim(0)?]
        => conv(x, w, b, &kernel_shape, group, &Placement::new(&auto_pad, &strides, &dilations, &pads));
    "ConvTranspose" 1 (x: Float, w: Float; b: Float)
        { auto_pad: String = "NOTSET".into(), kernel_shape: Vec<i64> = vec![], strides: Vec<i64> = vec![],
          dilations: Vec<i64> = vec![], pads: Vec<i64> = vec![], group: i64 = 1,
          output_padding: Vec<i64> = vec![], output_shape: Vec<i64> = vec![] }
        where b[&w.dim(1)? * &Dim::Const(group)]
        => add_bias(conv_transpose(x, w, &kernel_shape, group, &output_padding, &output_shape,
                                   &Placement::new(&auto_pad, &strides, &dilations, &pads))?, b);
    "DeformConv" 19 (x: Float, w: Float, offset: Float; b: Float, mask: Float)
        { kernel_shape: Vec<i64> = vec![], strides: Vec<i64> = vec![], dilations: Vec<i64> = vec![],
          pads: Vec<i64> = vec![], group: i64 = 1, offset_group: i64 = 1 }
        where b[w.dim(0)?]
        => deform_conv([x, w, offset], b, mask, &kernel_shape, [group, offset_group],
                       &Placement::new("NOTSET", &strides, &dilations, &pads));
    "Col2Im" 18 (x: Num, image_shape: Index, block_shape: Index)
        { strides: Vec<i64> = vec![], dilations: Vec<i64> = vec![], pads: Vec<i64> = vec![] }
        => col2im(x, image_shape, block_shape, &Placement::new("NOTSET", &strides, &dilations, &pads));
    "CausalConvWithState" 27 (x: Float, w: Float; b: Float, past_state: Float)
        { activation: String = "none".into() }
        where b[x.dim(1)?]
        => causal_conv(x, w, b, past_state, &activation);
}

/// The attributes that place windows; empty lists stand for their defaults.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placement<'a> {
    pub auto_pad: &'a str,
    pub strides: &'a [i64],
    pub dilations: &'a [i64],
    pub pads: &'a [i64],
    /// Is a last window that is only partly inside one more window?
    pub ceil: bool,
}

/// What exporters leave empty is not set.
fn auto_pad(stated: &str) -> &str {
    if stated.is_empty() { "NOTSET" } else { stated }
}

impl<'a> Placement<'a> {
    pub(super) fn new(auto_pad: &'a str, strides: &'a [i64], dilations: &'a [i64], pads: &'a [i64]) -> Placement<'a> {
        Placement { auto_pad: self::auto_pad(auto_pad), strides, dilations, pads, ceil: false }
    }

    /// Convolutions take explicit pads or automatic ones, not both. (Pools ignore what `auto_pad` makes void.)
    fn either_pads(self) -> Result<Placement<'a>> {
        if self.auto_pad != "NOTSET" && self.pads.iter().any(|&p| p != 0) {
            refuse!("`pads` {:?} cannot be combined with `auto_pad` {}", self.pads, self.auto_pad);
        }
        Ok(self)
    }

    /// Windows of size `kernel` over axes of size `input`.
    ///
    /// Where the number of windows is prescribed (`SAME_*`, `ceil`), `high` is what gives exactly that number. It may
    /// be negative, which only drops elements that no window sees.
    pub(super) fn windows(&self, input: &[Dim], kernel: &[Dim]) -> Result<Vec<Window>> {
        let n = input.len();
        if kernel.len() != n {
            refuse!("a kernel of {} axes does not fit {n} spatial axes", kernel.len());
        }
        let (strides, dilations) =
            (per_axis("strides", self.strides, n, 1)?, per_axis("dilations", self.dilations, n, 1)?);
        let pads = per_axis("pads", self.pads, 2 * n, 0)?;
        if let Some(bad) = strides.iter().chain(&dilations).find(|&&s| s < 1) {
            refuse!("strides and dilations must be positive, got {bad}");
        }
        (0..n)
            .map(|i| {
                let (stride, dilation) = (strides[i], dilations[i]);
                let step = Dim::Const(stride);
                let reach = reach(&kernel[i], dilation);
                // What is missing at the end for `count` windows.
                let missing = |count: &Dim, low: &Dim| &(&(&(&(count - &Dim::ONE) * &step) + &reach) - &input[i]) - low;
                let (low, high) = match self.auto_pad {
                    "NOTSET" | "VALID" => {
                        let [low, high] = match self.auto_pad {
                            "VALID" => [Dim::ZERO, Dim::ZERO],
                            _ => [pads[i], pads[n + i]].map(Dim::Const),
                        };
                        if self.ceil {
                            let padded = &input[i] + &low;
                            let all = &(&(&padded + &high) - &reach).ceil_div(&step) + &Dim::ONE;
                            // A window must not start in the padding at the end.
                            let count = all.lesser(&padded.ceil_div(&step));
                            (low.clone(), missing(&count, &low))
                        } else {
                            (low, high)
                        }
                    }
                    "SAME_UPPER" | "SAME_LOWER" => {
                        let count = input[i].ceil_div(&step);
                        let total = missing(&count, &Dim::ZERO);
                        let low = halves(self.auto_pad, &total);
                        (low.clone(), &total - &low)
                    }
                    other => refuse!("`auto_pad` {other:?} is not NOTSET, VALID, SAME_UPPER or SAME_LOWER"),
                };
                Ok(Window { stride, dilation, low, high })
            })
            .collect()
    }
}

/// The part of a total padding that comes first: the smaller half for `SAME_UPPER`, else the larger one.
fn halves(auto_pad: &str, total: &Dim) -> Dim {
    let two = Dim::Const(2);
    let half = if auto_pad == "SAME_UPPER" { total.floor_div(&two) } else { total.ceil_div(&two) };
    half.greater(&Dim::ZERO)
}

/// How many elements a window spans: `(kernel - 1) * dilation + 1`.
fn reach(kernel: &Dim, dilation: i64) -> Dim {
    &(&(kernel - &Dim::ONE) * &Dim::Const(dilation)) + &Dim::ONE
}

/// A list attribute with one entry for each of `n` places, all `default` if it is absent.
pub(super) fn per_axis(name: &str, values: &[i64], n: usize, default: i64) -> Result<Vec<i64>> {
    match values.len() {
        0 => Ok(vec![default; n]),
        len if len == n => Ok(values.to_vec()),
        len => refuse!("`{name}` has {len} entries, {n} are needed"),
    }
}

/// The sizes of the axes after batch and channels.
pub(super) fn spatial(x: X<'_>) -> Result<Vec<Dim>> {
    match x.shape().get(2..) {
        Some(space) => Ok(space.to_vec()),
        None => refuse!("{} has no batch and channel axes", x.ty()),
    }
}

/// Weights of shape (out, in, space..) whose spatial sizes are what `kernel_shape`, if given, says.
pub(super) fn with_kernel_shape<'g>(w: X<'g>, kernel_shape: &[i64]) -> Result<X<'g>> {
    let (shape, space) = (w.shape(), spatial(w)?);
    if kernel_shape.is_empty() {
        return Ok(w);
    }
    let stated: Vec<Dim> = kernel_shape.iter().map(|&k| Dim::Const(k)).collect();
    if stated.len() != space.len() || stated.iter().zip(&space).any(|(a, b)| a.equals(b) == Some(false)) {
        refuse!("`kernel_shape` {kernel_shape:?} does not fit the weights {}", w.ty());
    }
    w.reshape(&[&shape[..2], &stated].concat())
}

/// Add a vector along the channel axis.
pub(super) fn add_bias<'g>(y: X<'g>, bias: Option<X<'g>>) -> Result<X<'g>> {
    let Some(bias) = bias else { return Ok(y) };
    let bias = bias.broadcast_in(&y.shape(), &[1])?;
    y.graph().map([y, bias], |[y, b]| y + b)
}

pub(super) fn conv<'g>(
    x: X<'g>,
    w: X<'g>,
    bias: Option<X<'g>>,
    kernel_shape: &[i64],
    groups: i64,
    placement: &Placement<'_>,
) -> Result<X<'g>> {
    let (space, w) = (spatial(x)?, with_kernel_shape(w, kernel_shape)?);
    let windows = placement.either_pads()?.windows(&space, &spatial(w)?)?;
    add_bias(x.conv(w, &windows, &vec![1; space.len()], groups)?, bias)
}

/// The transposed convolution: `x` with its elements spread by the strides, convolved with the weights turned around.
fn conv_transpose<'g>(
    x: X<'g>,
    w: X<'g>,
    kernel_shape: &[i64],
    groups: i64,
    output_padding: &[i64],
    output_shape: &[i64],
    placement: &Placement<'_>,
) -> Result<X<'g>> {
    let (space, w) = (spatial(x)?, with_kernel_shape(w, kernel_shape)?);
    let (kernel, n) = (spatial(w)?, space.len());
    // Checks the attributes, and gives strides, dilations and explicit pads one by one.
    let attributes = Placement { auto_pad: "NOTSET", ..placement.either_pads()? }.windows(&space, &kernel)?;
    let more = per_axis("output_padding", output_padding, n, 0)?;
    let sizes = per_axis("output_shape", output_shape, n, -1)?;
    let same = match placement.auto_pad {
        "NOTSET" | "VALID" => false,
        "SAME_UPPER" | "SAME_LOWER" => true,
        other => refuse!("`auto_pad` {other:?} is not NOTSET, VALID, SAME_UPPER or SAME_LOWER"),
    };
    let (mut windows, mut spread) = (Vec::new(), Vec::new());
    for (i, a) in attributes.iter().enumerate() {
        let stride = Dim::Const(a.stride);
        let reach = reach(&kernel[i], a.dilation);
        // The elements with zeros in between, and everything that windows over them reach.
        let spread_size = &(&(&space[i] - &Dim::ONE) * &stride) + &Dim::ONE;
        let full = &(&(&spread_size + &reach) - &Dim::ONE) + &Dim::Const(more[i]);
        let wanted = if output_shape.is_empty() {
            same.then(|| &space[i] * &stride)
        } else if sizes[i] < 0 {
            refuse!("`output_shape` {output_shape:?} has a negative size");
        } else {
            Some(Dim::Const(sizes[i]))
        };
        let (cut, count) = match wanted {
            Some(count) => (halves(placement.auto_pad, &(&full - &count)), count),
            None => (a.low.clone(), &(&full - &a.low) - &a.high),
        };
        let low = &(&reach - &Dim::ONE) - &cut;
        let high = &(&(&count - &spread_size) - &low) + &(&reach - &Dim::ONE);
        windows.push(Window { stride: 1, dilation: a.dilation, low, high });
        spread.push(a.stride);
    }
    x.conv(turned(w, groups)?, &windows, &spread, groups)
}

/// Weights (in, out / groups, space..) as (out, in / groups, space..) with the spatial axes reversed.
fn turned(w: X<'_>, groups: i64) -> Result<X<'_>> {
    let shape = w.shape();
    if groups < 1 || shape[0].as_const().is_some_and(|c| c % groups != 0) {
        refuse!("{} input channels do not divide into {groups} groups", shape[0]);
    }
    let group = Dim::Const(groups);
    let (inner, outer) = (shape[0].floor_div(&group), shape[1].clone());
    let mut perm: Vec<usize> = (0..=shape.len()).collect();
    perm.swap(1, 2);
    let split = w.reshape(&[&[group.clone(), inner.clone(), outer.clone()], &shape[2..]].concat())?;
    let joined = split.transpose(&perm)?.reshape(&[&[&group * &outer, inner], &shape[2..]].concat())?;
    (2..shape.len()).try_fold(joined, X::reverse)
}

/// Where windows look: the places along each axis, as tensors of shape (windows.., kernel..), and whether they are all
/// inside of the input.
pub(super) fn places<'g>(
    g: &'g Graph,
    input: &[Dim],
    counts: &[Dim],
    kernel: &[Dim],
    windows: &[Window],
) -> Result<(Vec<X<'g>>, X<'g>)> {
    let shape = [counts, kernel].concat();
    let mut inside = g.full(DType::Bool, 1.0, &shape)?;
    let mut along = Vec::new();
    for (i, w) in windows.iter().enumerate() {
        let (o, t) = (g.iota(DType::I64, &shape, i)?, g.iota(DType::I64, &shape, counts.len() + i)?);
        let (stride, dilation) = (w.stride as f64, w.dilation as f64);
        let place = g.map([o, t, g.size(&w.low)?], |[o, t, low]| o * stride + t * dilation - low)?;
        inside = g.map([inside, place, g.size(&input[i])?], |[ok, p, n]| ok.and(p.ge(0.0)).and(p.lt(n)))?;
        along.push(place);
    }
    Ok((along, inside))
}

/// Row-major offset of places along axes of the given sizes.
pub(super) fn offset<'g>(g: &'g Graph, along: &[X<'g>], sizes: &[Dim]) -> Result<X<'g>> {
    along
        .iter()
        .zip(sizes)
        .try_fold(g.scalar(DType::I64, 0.0)?, |at, (place, n)| g.map([at, *place, g.size(n)?], |[at, p, n]| at * n + p))
}

/// Add up columns (batch, channels * block, windows) where their elements lie in images.
fn col2im<'g>(x: X<'g>, image: X<'g>, block: X<'g>, placement: &Placement<'_>) -> Result<X<'g>> {
    let g = x.graph();
    let (image, block, shape) = (image.to_sizes()?, block.to_sizes()?, x.shape());
    if shape.len() != 3 || image.is_empty() {
        refuse!("columns must be (batch, channels * block, windows) of images with axes, got {}", x.ty());
    }
    let windows = placement.windows(&image, &block)?;
    let mut counts = Vec::new();
    for (i, w) in windows.iter().enumerate() {
        let room = &(&(&image[i] + &w.low) + &w.high) - &reach(&block[i], w.dilation);
        counts.push(&room.floor_div(&Dim::Const(w.stride)) + &Dim::ONE);
    }
    let (taps, count, size) = (Dim::product(&block), Dim::product(&counts), Dim::product(&image));
    let channels = shape[1].floor_div(&taps);
    let images = &shape[0] * &channels;
    let (along, inside) = places(g, &image, &counts, &block, &windows)?;
    // What is outside goes to one more row, which is dropped.
    let at = g.map([offset(g, &along, &image)?, inside, g.size(&size)?], |[at, ok, n]| ok.select(at, n))?;
    let rows = x.reshape(&[images.clone(), taps.clone(), count.clone()])?.transpose(&[2, 1, 0])?;
    let rows = rows.reshape(&[&count * &taps, images.clone()])?;
    let sums = g.full(x.dtype(), 0.0, &[&size + &Dim::ONE, images])?.scatter(ScatterFn::Add, at.flatten()?, rows)?;
    let sums = sums.slice_axis(0, &Dim::ZERO, &size, 1)?.transpose(&[1, 0])?;
    sums.reshape(&[&[shape[0].clone(), channels], &image[..]].concat())
}

/// A convolution whose windows look at moved places: the values there are interpolated, and 0 outside.
fn deform_conv<'g>(
    [x, w, offset]: [X<'g>; 3],
    bias: Option<X<'g>>,
    mask: Option<X<'g>>,
    kernel_shape: &[i64],
    [groups, offset_groups]: [i64; 2],
    placement: &Placement<'_>,
) -> Result<X<'g>> {
    let (g, dtype) = (x.graph(), x.dtype());
    let (shape, space, w) = (x.shape(), spatial(x)?, with_kernel_shape(w, kernel_shape)?);
    let (kernel, rank, w_shape) = (spatial(w)?, space.len(), w.shape());
    let windows = placement.windows(&space, &kernel)?;
    let Some(out) = offset.shape().get(2..).filter(|o| o.len() == rank && rank > 0).map(<[Dim]>::to_vec) else {
        refuse!("offsets {} do not fit {}", offset.ty(), x.ty());
    };
    if groups < 1 || offset_groups < 1 {
        refuse!("groups must be positive, got {groups} and {offset_groups}");
    }
    for (i, win) in windows.iter().enumerate() {
        let room = &(&(&space[i] + &win.low) + &win.high) - &reach(&kernel[i], win.dilation);
        let count = &room.floor_div(&Dim::Const(win.stride)) + &Dim::ONE;
        if count.equals(&out[i]) == Some(false) {
            refuse!("offsets {} are for {} windows along spatial axis {i}, not {count}", offset.ty(), out[i]);
        }
    }
    let (batch, fields, group) = (shape[0].clone(), Dim::Const(offset_groups), Dim::Const(groups));
    let (taps_count, count) = (Dim::product(&kernel), Dim::product(&out));
    let points = &taps_count * &count;
    let moves = [batch.clone(), fields.clone(), taps_count.clone(), Dim::from(rank), count.clone()];
    let moves = wide(offset)?.reshape(&moves)?;
    let (along, _) = places(g, &space, &out, &kernel, &windows)?;
    let mut all = Vec::new();
    for (i, place) in along.into_iter().enumerate() {
        let place = place.reshape(&[count.clone(), taps_count.clone()])?.transpose(&[1, 0])?.cast(moves.dtype())?;
        let at = g.map([moves.at(3, &Dim::from(i))?, place], |[m, p]| m + p)?;
        all.push(taps(
            at.reshape(&[batch.clone(), fields.clone(), points.clone()])?,
            &space[i],
            "linear",
            Outside::Zeros,
        )?);
    }
    let parts = [batch.clone(), fields.clone(), shape[1].floor_div(&fields)];
    let mut seen = sample(wide(x)?.reshape(&[&parts, &space[..]].concat())?, 2, &all)?;
    if let Some(mask) = mask {
        let mask = wide(mask)?.reshape(&[batch.clone(), fields, Dim::ONE, points])?;
        seen = g.map([seen, mask], |[v, m]| v * m)?;
    }
    // (batch, group, channels, taps, windows) by (group, out channels, channels, taps).
    let inner = w_shape[1].clone();
    let seen = seen.reshape(&[batch.clone(), group.clone(), inner.clone(), taps_count.clone(), count])?;
    let weights = wide(w)?.reshape(&[group.clone(), w_shape[0].floor_div(&group), inner, taps_count])?;
    let y = weights.contract(seen, &[(0, 1)], &[(2, 2), (3, 3)])?;
    let y = y.reshape(&[&[w_shape[0].clone(), batch], &out[..]].concat())?.move_axis(0, 1)?;
    add_bias(y, bias.map(wide).transpose()?)?.cast(dtype)
}

/// A depthwise convolution over the past and the present only, and what of it the next call needs.
fn causal_conv<'g>(
    x: X<'g>,
    w: X<'g>,
    bias: Option<X<'g>>,
    past: Option<X<'g>>,
    activation: &str,
) -> Result<[X<'g>; 2]> {
    let g = x.graph();
    let (shape, w_shape) = (x.shape(), w.shape());
    if shape.len() != 3 || w_shape.len() != 3 {
        refuse!("input {} and weights {} must be (batch, channels, length) and (channels, 1, k)", x.ty(), w.ty());
    }
    if !matches!(activation, "none" | "silu" | "swish") {
        refuse!("`activation` {activation:?} is not none, silu or swish");
    }
    let kept = &w_shape[2] - &Dim::ONE;
    let past_shape = [shape[0].clone(), shape[1].clone(), kept.clone()];
    let past = match past {
        Some(past) => past.reshape(&past_shape)?,
        None => g.full(x.dtype(), 0.0, &past_shape)?,
    };
    let padded = g.concat(&[past, x], 2)?;
    let y = match shape[1].as_const().or(w_shape[0].as_const()) {
        Some(channels) => {
            let window = Window { stride: 1, dilation: 1, low: Dim::ZERO, high: Dim::ZERO };
            let w = w.reshape(&[Dim::Const(channels), Dim::ONE, w_shape[2].clone()])?;
            padded.conv(w, &[window], &[1], channels)?
        }
        None => {
            // The number of groups is not known: one product per channel, over windows of their own axis.
            let places = [shape[2].clone(), w_shape[2].clone()];
            let at = g.map([g.iota(DType::I64, &places, 0)?, g.iota(DType::I64, &places, 1)?], |[o, t]| o + t)?;
            let w = w.reshape(&[shape[1].clone(), w_shape[2].clone()])?;
            w.contract(padded.gather(at, 2, 0)?, &[(0, 1)], &[(1, 3)])?.transpose(&[1, 0, 2])?
        }
    };
    let y = add_bias(y, bias)?;
    let y = if activation == "none" { y } else { wide(y)?.map(|y| y * y.sigmoid())?.cast(x.dtype())? };
    Ok([y, padded.slice_axis(2, &shape[2], &kept, 1)?])
}
