//! Regions of images: pooling over boxes, and choosing among overlapping boxes.
use super::pool::wide;
use numrsc_ir::{
    DType, Dim, Error, ReduceFn, Result, Tensor,
    build::{LoopOut, X},
    refuse,
};

/// The elements of all images of a batch as (channels, batch * height * width), so that one index names a pixel.
fn pixels(x: X<'_>) -> Result<X<'_>> {
    let shape = x.shape();
    let [batch, channels, height, width] = &shape[..] else {
        refuse!("regions need images of shape (batch, channels, height, width), got {}", x.ty());
    };
    x.transpose(&[1, 0, 2, 3])?.reshape(&[channels.clone(), &(batch * height) * width])
}

/// Columns of boxes (count, columns), each a vector of floats.
fn columns<'g>(boxes: X<'g>, count: usize) -> Result<Vec<X<'g>>> {
    if boxes.rank() != 2 || boxes.shape()[1].equals(&Dim::from(count)) == Some(false) {
        refuse!("regions must have {count} columns, got {}", boxes.ty());
    }
    (0..count).map(|i| wide(boxes.at(1, &Dim::from(i))?)).collect()
}

/// A tensor whose axes become the given axes of a tensor of the given rank, to broadcast.
fn placed<'g>(v: X<'g>, axes: &[usize], rank: usize) -> Result<X<'g>> {
    let mut shape = vec![Dim::ONE; rank];
    for (&a, d) in axes.iter().zip(v.shape()) {
        shape[a] = d;
    }
    v.reshape(&shape)
}

/// The samples of regions along one axis.
struct Samples<'g> {
    /// Indices and weights of the two elements around each sample: (regions, bins, samples, 2).
    index: X<'g>,
    weight: X<'g>,
    /// Does the region have the sample? (regions, samples)
    used: X<'g>,
    /// Number of samples of each bin of a region, as a float.
    count: X<'g>,
}

/// `bins` bins between `start` and `end` on an axis of size `n`, with `ratio` samples each or, if that is 0, one per
/// element.
fn samples<'g>([start, end]: [X<'g>; 2], n: &Dim, bins: i64, ratio: i64, half_pixel: bool) -> Result<Samples<'g>> {
    let g = start.graph();
    let dtype = start.dtype();
    let bin = g.map([start, end], |[s, e]| {
        let length = if half_pixel { e - s } else { (e - s).max(1.0) };
        length / bins as f64
    })?;
    let (count, most) = if ratio > 0 {
        (bin.map(|b| b.lit(ratio as f64))?, Dim::Const(ratio))
    } else {
        let count = bin.map(|b| b.ceil().max(0.0))?;
        let most = count.max(&[0], false)?.map(|m| m.max(0.0).cast(DType::I64))?;
        (count, most.to_sizes()?.swap_remove(0))
    };
    let regions = start.dim(0)?;
    let shape = [regions.clone(), Dim::Const(bins), most.clone(), Dim::Const(2)];
    let (p, i, t) = (g.iota(dtype, &shape, 1)?, g.iota(dtype, &shape, 2)?, g.iota(dtype, &shape, 3)?);
    let each = |v: X<'g>| v.reshape(&[regions.clone(), Dim::ONE, Dim::ONE, Dim::ONE]);
    let at = g.map([each(start)?, each(bin)?, each(count)?, p, i], |[s, b, c, p, i]| {
        s + p * b + (i + 0.5) * b / c.max(1.0)
    })?;
    let n = g.size(n)?.cast(dtype)?;
    let index =
        g.map([at, t, n], |[at, t, n]| (at.max(0.0).min(n).floor() + t).min(n - 1.0).max(0.0).cast(DType::I64))?;
    let weight = g.map([at, t, n], |[at, t, n]| {
        let at_end = at.max(0.0).floor().ge(n - 1.0);
        let part = at_end.select(at.lit(0.0), at.max(0.0) - at.max(0.0).floor());
        let weight = t.eq(0.0).select(1.0 - part, part);
        at.lt(-1.0).or(at.gt(n)).select(at.lit(0.0), weight)
    })?;
    let slot = g.iota(dtype, &[regions.clone(), most], 1)?;
    let used = g.map([slot, count.reshape(&[regions, Dim::ONE])?], |[i, c]| i.lt(c))?;
    Ok(Samples { index, weight, used, count })
}

pub(super) fn roi_align<'g>(
    [x, rois, batch]: [X<'g>; 3],
    mode: &str,
    [height, width]: [i64; 2],
    ratio: i64,
    scale: f64,
    transformation: &str,
) -> Result<X<'g>> {
    let g = x.graph();
    let half_pixel = match transformation {
        "half_pixel" => true,
        "output_half_pixel" => false,
        other => refuse!("`coordinate_transformation_mode` {other:?} is not half_pixel or output_half_pixel"),
    };
    if !matches!(mode, "avg" | "max") {
        refuse!("`mode` {mode:?} is not avg or max");
    }
    if height < 1 || width < 1 || ratio < 0 {
        refuse!("the output of {height} × {width} bins with sampling ratio {ratio} makes no sense");
    }
    if batch.rank() != 1 {
        refuse!("batch indices {} are not a vector", batch.ty());
    }
    let offset = if half_pixel { 0.5 } else { 0.0 };
    let ends: Vec<X<'g>> =
        columns(rois, 4)?.into_iter().map(|c| c.map(|c| c * scale - offset)).collect::<Result<_>>()?;
    let (pixels, shape) = (wide(pixels(x)?)?, x.shape());
    let ys = samples([ends[1], ends[3]], &shape[2], height, ratio, half_pixel)?;
    let xs = samples([ends[0], ends[2]], &shape[3], width, ratio, half_pixel)?;
    // Axes: region, bin y, bin x, sample y, sample x, element y, element x.
    let of_y = |v: X<'g>| placed(v, &[0, 1, 3, 5], 7);
    let of_x = |v: X<'g>| placed(v, &[0, 2, 4, 6], 7);
    let image = placed(batch.indices()?, &[0], 7)?;
    let (h, w) = (g.size(&shape[2])?, g.size(&shape[3])?);
    let at = g.map([image, of_y(ys.index)?, of_x(xs.index)?, h, w], |[b, y, x, h, w]| (b * h + y) * w + x)?;
    let weight = g.map([of_y(ys.weight)?, of_x(xs.weight)?], |[y, x]| y * x)?;
    let used = [placed(ys.used, &[0, 3], 7)?, placed(xs.used, &[0, 4], 7)?];
    let max = mode == "max";
    let parts =
        g.map([pixels.gather(at, 1, 0)?, weight.cast(pixels.dtype())?, used[0], used[1]], |[v, w, used_y, used_x]| {
            let part = w.eq(0.0).select(v.lit(0.0), v * w);
            used_y.and(used_x).select(part, v.lit(if max { f64::NEG_INFINITY } else { 0.0 }))
        })?;
    let counts = g.map([ys.count, xs.count], |[y, x]| y * x)?.cast(pixels.dtype())?;
    let counts = placed(counts, &[0], 3)?;
    let y = if max {
        g.map([parts.max(&[4, 5, 6, 7], false)?, counts], |[m, n]| n.gt(0.0).select(m, m.lit(0.0)))?
    } else {
        g.map([parts.sum(&[4, 5, 6, 7], false)?, counts], |[s, n]| s / n.max(1.0))?
    };
    y.transpose(&[1, 0, 2, 3])?.cast(x.dtype())
}

/// The elements of the bins of regions along one axis: their indices, and which of them exist, as (regions, bins,
/// elements).
fn whole_bins<'g>([start, end]: [X<'g>; 2], n: &Dim, bins: i64) -> Result<[X<'g>; 2]> {
    let g = start.graph();
    let (dtype, regions) = (start.dtype(), start.dim(0)?);
    let shape = [regions.clone(), Dim::Const(bins)];
    let each = |v: X<'g>| v.reshape(&[regions.clone(), Dim::ONE]);
    let (start, end, n) = (each(start)?, each(end)?, g.size(n)?.cast(dtype)?);
    let p = g.iota(dtype, &shape, 1)?;
    let bin = g.map([start, end], |[s, e]| (e - s + 1.0).max(1.0) / bins as f64)?;
    let first = g.map([p, bin, start, n], |[p, b, s, n]| ((p * b).floor() + s).max(0.0).min(n))?;
    let last = g.map([p, bin, start, n], |[p, b, s, n]| (((p + 1.0) * b).ceil() + s).max(0.0).min(n))?;
    let most = g.map([first, last], |[a, b]| b - a)?.max(&[0, 1], false)?;
    let most = most.map(|m| m.max(0.0).cast(DType::I64))?.to_sizes()?.swap_remove(0);
    let slots = g.range(dtype, &most)?;
    let (first, last) = (first.unsqueeze(&[2])?, last.unsqueeze(&[2])?);
    let index = g.map([first, slots, n], |[a, i, n]| (a + i).min(n - 1.0).max(0.0).cast(DType::I64))?;
    let used = g.map([first, last, slots], |[a, b, i]| (a + i).lt(b))?;
    Ok([index, used])
}

pub(super) fn max_roi_pool<'g>(x: X<'g>, rois: X<'g>, pooled: &[i64], scale: f64) -> Result<X<'g>> {
    let g = x.graph();
    let &[height, width] = pooled else { refuse!("`pooled_shape` {pooled:?} is not a height and a width") };
    if height < 1 || width < 1 {
        refuse!("`pooled_shape` {pooled:?} must be positive");
    }
    let (pixels, shape) = (pixels(x)?, x.shape());
    let parts = columns(rois, 5)?;
    // Halves round away from zero.
    let ends: Vec<X<'g>> = parts[1..]
        .iter()
        .map(|c| {
            c.map(|c| {
                let c = c * scale;
                c.sign() * (c.abs() + 0.5).floor()
            })
        })
        .collect::<Result<_>>()?;
    let [y_index, y_used] = whole_bins([ends[1], ends[3]], &shape[2], height)?;
    let [x_index, x_used] = whole_bins([ends[0], ends[2]], &shape[3], width)?;
    // Axes: region, bin y, bin x, element y, element x.
    let of_y = |v: X<'g>| placed(v, &[0, 1, 3], 5);
    let of_x = |v: X<'g>| placed(v, &[0, 2, 4], 5);
    let image = placed(parts[0].cast(DType::I64)?, &[0], 5)?;
    let (h, w) = (g.size(&shape[2])?, g.size(&shape[3])?);
    let at = g.map([image, of_y(y_index)?, of_x(x_index)?, h, w], |[b, y, x, h, w]| (b * h + y) * w + x)?;
    let used = g.map([of_y(y_used)?, of_x(x_used)?], |[y, x]| y.and(x))?;
    let seen = g.map([pixels.gather(at, 1, 0)?, used], |[v, ok]| ok.select(v, v.lit(f64::NEG_INFINITY)))?;
    let any = used.max(&[3, 4], false)?;
    let y = g.map([seen.max(&[4, 5], false)?, any], |[m, any]| any.select(m, m.lit(0.0)))?;
    y.transpose(&[1, 0, 2, 3])
}

/// Greedy choice of boxes: in each round every (batch, class) takes its best box that is left, and drops those that
/// overlap it too much. Boxes are ranked by score once; `alive` marks the ranks that are left.
pub(super) fn non_max_suppression<'g>(
    boxes: X<'g>,
    scores: X<'g>,
    limit: Option<X<'g>>,
    iou_threshold: Option<X<'g>>,
    score_threshold: Option<X<'g>>,
    centres: bool,
) -> Result<X<'g>> {
    let g = boxes.graph();
    let shape = scores.shape();
    let [batches, classes, count] = &shape[..] else {
        refuse!("scores {} are not (batch, classes, boxes)", scores.ty());
    };
    if iou_threshold.and_then(X::as_number).is_some_and(|t| !(0.0..=1.0).contains(&t)) {
        refuse!("`iou_threshold` is a part of an area, between 0 and 1");
    }
    // Without a limit nothing is chosen.
    let Some(limit) = limit else { return g.constant(Tensor::from_i64(&[0, 3], &[])) };
    let one = |v: Option<X<'g>>, dtype: DType| v.map(|v| v.cast(dtype)?.reshape(&[])).transpose();
    let boxes = boxes.cast(DType::F32)?;
    let scores = scores.cast(DType::F32)?;
    let threshold = one(iou_threshold, DType::F32)?.map_or_else(|| g.scalar(DType::F32, 0.0), Ok)?;

    let order = scores.argsort(2, true)?;
    let alive = match one(score_threshold, DType::F32)? {
        Some(t) => g.map([scores.gather(order, 2, 2)?, t], |[s, t]| s.gt(t))?,
        None => g.full(DType::Bool, 1.0, &shape)?,
    };
    // The edges of every box, ranked: low and high of one axis, then of the other.
    let ranks = order.reshape(&[batches.clone(), classes * count])?;
    let mut edges = Vec::new();
    for (a, b) in [(0, 2), (1, 3)] {
        let (p, q) = (boxes.at(2, &Dim::Const(a))?, boxes.at(2, &Dim::Const(b))?);
        let low = g.map([p, q], |[p, q]| if centres { p - q / 2.0 } else { p.min(q) })?;
        let high = g.map([p, q], |[p, q]| if centres { p + q / 2.0 } else { p.max(q) })?;
        for edge in [low, high] {
            edges.push(edge.gather(ranks, 1, 1)?.reshape(&shape)?);
        }
    }
    let limit = limit.cast(DType::I64)?.reshape(&[])?;
    let rounds = g.map([limit, g.size(count)?], |[limit, n]| limit.max(0.0).min(n))?;
    edges.push(threshold);
    let any = alive.max(&[0, 1, 2], false)?;
    let (_, rows) = g.loop_::<Error>(rounds, any, &[alive], &edges, &|body| {
        let (g, alive) = (body.graph, body.states[0]);
        let best = alive.arg(ReduceFn::Max, 2, false)?;
        let taken = alive.gather(best, 2, 2)?;
        let (edges, threshold) = body.captures.split_at(4);
        // Ranks of 32 bits are as wide as edges.
        let place = best.cast(DType::I32)?.unsqueeze(&[2])?;
        let mut all = vec![alive, g.iota(DType::I32, &alive.shape(), 2)?, place, threshold[0]];
        all.extend(edges);
        for e in edges {
            all.push(e.gather(best, 2, 2)?.unsqueeze(&[2])?);
        }
        let left = g.map_all(&all, |s| {
            let &[alive, rank, best, threshold, y0, y1, x0, x1, v0, v1, u0, u1] = s else { return s[0] };
            let (height, width) = (y1.min(v1) - y0.max(v0), x1.min(u1) - x0.max(u0));
            let common = height * width;
            let (own, other) = ((y1 - y0) * (x1 - x0), (v1 - v0) * (u1 - u0));
            let union = own + other - common;
            let overlap = height.gt(0.0).and(width.gt(0.0)).and(common.gt(0.0));
            let sound = own.gt(0.0).and(other.gt(0.0)).and(union.gt(0.0));
            let dropped = overlap.and(sound).and((common / union).gt(threshold));
            alive.and(dropped.not()).and(rank.ne(best))
        })?;
        Ok(LoopOut { cond: left.max(&[0, 1, 2], false)?, states: vec![left], rows: vec![best, taken] })
    })?;
    let &[best, taken] = &rows[..] else { refuse!("the loop gives its two rows") };
    // (rounds, batch, class) in the order of the result: by batch, then class, then round.
    let (best, taken) = (best.transpose(&[1, 2, 0])?, taken.transpose(&[1, 2, 0])?);
    let found = taken.flatten()?.compress()?;
    let chosen = order.gather(best, 2, 2)?.flatten()?.gather(found, 0, 0)?;
    let (rounds, classes) = (g.size(&best.dim(2)?)?, g.size(classes)?);
    let class = g.map([found, rounds, classes], |[k, r, c]| k / r % c)?;
    let batch = g.map([found, rounds, classes], |[k, r, c]| k / (r * c))?;
    let column = |v: X<'g>| v.unsqueeze(&[1]);
    g.concat(&[column(batch)?, column(class)?, column(chosen)?], 1)
}
