//! Windows that slide over the last axes: convolution and window reduction.
use super::{
    check_size,
    combine::{Number, on_numbers},
    decode,
    linear::{Pair, Product, empty, multiply, pair},
    movement,
};
use crate::{Elems, Tensor, op::ReduceFn, tensor::count};
use std::ops::Range;

/// No element of the operand: padding.
const NONE: usize = usize::MAX;

/// How windows lie over the spatial axes: for each axis, element `t` of window `o` is element
/// `(o * stride + t * dilation - low) / spread` of the operand, if that is a whole number and inside.
struct Windows<'w> {
    input: &'w [usize],
    kernel: &'w [usize],
    output: &'w [usize],
    /// Strides, dilations, spreads and low pads.
    params: [&'w Vec<i64>; 4],
}

impl Windows<'_> {
    /// The elements of a window along axis `d` that lie inside the operand for some window; the others are padding.
    fn useful_taps(&self, d: usize) -> Option<Range<usize>> {
        let [stride, dilation, spread, low] = self.params.map(|p| i128::from(p[d]));
        let first = low - (self.output[d] as i128 - 1) * stride;
        let last = low + (self.input[d] as i128 - 1) * spread;
        let first = 0.max(-(-first).div_euclid(dilation));
        let end = (last.div_euclid(dilation) + 1).min(self.kernel[d] as i128);
        (first < end && self.input[d] > 0).then_some(first as usize..end as usize)
    }

    /// Call `f` for every element of a window that is not always padding, in row-major order: with its number, and the
    /// place in the operand's plane that it has in each of the windows in `range`.
    fn for_each_tap(&self, range: &Range<usize>, mut f: impl FnMut(usize, &[usize])) {
        let [strides, dilations, spread, low] = self.params;
        let taps: Option<Vec<Range<usize>>> = (0..self.kernel.len()).map(|d| self.useful_taps(d)).collect();
        let Some(taps) = taps else { return };
        let mut places = vec![0; range.len()];
        let mut tap: Vec<usize> = taps.iter().map(|t| t.start).collect();
        loop {
            places.fill(0);
            // From the innermost axis: `period` windows share an index along it.
            let (mut period, mut stride) = (1, 1usize);
            for d in (0..tap.len()).rev() {
                let line: Vec<usize> = (0..self.output[d] as i128)
                    .map(|o| {
                        let at = o * i128::from(strides[d]) + tap[d] as i128 * i128::from(dilations[d]);
                        let at = at - i128::from(low[d]);
                        let s = i128::from(spread[d]);
                        let inside = at >= 0 && at % s == 0 && at / s < self.input[d] as i128;
                        if inside { (at / s) as usize * stride } else { NONE }
                    })
                    .collect();
                for (place, window) in places.iter_mut().zip(range.clone()) {
                    let add = line[window / period % self.output[d]];
                    *place = if *place == NONE || add == NONE { NONE } else { *place + add };
                }
                period *= self.output[d];
                stride = stride.wrapping_mul(self.input[d]);
            }
            let number =
                tap.iter().zip(self.kernel).fold(0usize, |n, (t, size)| n.wrapping_mul(*size).wrapping_add(*t));
            f(number, &places);
            let Some(d) = (0..tap.len()).rev().find(|&d| tap[d] + 1 < taps[d].end) else { return };
            tap[d] += 1;
            (d + 1..tap.len()).for_each(|d| tap[d] = taps[d].start);
        }
    }
}

fn sizes(shape: &[usize]) -> usize {
    count(shape).unwrap_or(0)
}

/// Convolution as products of matrices: the weights of a group by the elements that its windows see.
pub(super) fn conv(
    x: &Tensor,
    w: &Tensor,
    params: [&Vec<i64>; 4],
    groups: usize,
    [in_block, out_block]: [usize; 2],
    out: Vec<usize>,
) -> Result<Tensor, String> {
    fn run<T: Product>(x: &[T], w: &[T], windows: &Windows<'_>, [images, c, m, groups]: [usize; 4]) -> Vec<T> {
        // Elements of the matrix of what windows see that are held at a time.
        const HELD: usize = 1 << 21;
        let (plane, all) = (sizes(windows.input), sizes(windows.output));
        let (c, m, taps) = (c / groups, m / groups, sizes(windows.kernel));
        let depth = c * taps;
        let mut y = vec![T::ZERO; images * groups * m * all];
        if depth == 0 {
            return y;
        }
        let step = (HELD / depth).clamp(1, 4096);
        for at in (0..all).step_by(step) {
            let range = at..all.min(at + step);
            let n = range.len();
            let mut places = vec![NONE; taps * n];
            windows.for_each_tap(&range, |tap, p| places[tap * n..][..n].copy_from_slice(p));
            let mut seen = vec![T::ZERO; depth * n];
            for part in 0..images * groups {
                for (i, row) in seen.chunks_exact_mut(n).enumerate() {
                    let channel = part * c + i / taps;
                    let places = &places[i % taps * n..][..n];
                    for (cell, &place) in row.iter_mut().zip(places) {
                        *cell = if place == NONE { T::ZERO } else { x[channel * plane + place] };
                    }
                }
                let weights = &w[part % groups * m * depth..][..m * depth];
                multiply(weights, &seen, &mut y[part * m * all + at..], [m, depth, n], all);
            }
        }
        y
    }
    if check_size(&out, 16)? == 0 {
        return Ok(Tensor::from_elems(x.dtype(), out, &empty(x)));
    }
    if in_block > 1 {
        return conv(&without_blocks(x)?, w, params, groups, [1, out_block], out);
    }
    if out_block > 1 {
        let last = out.len() - 1;
        let plain = [&[out[0], out[1] * out_block], &out[2..last]].concat();
        return with_blocks(&conv(x, w, params, groups, [1, 1], plain)?, out_block, out);
    }
    let windows = Windows { input: &x.shape()[2..], kernel: &w.shape()[2..], output: &out[2..], params };
    let counts = [x.shape()[0], x.shape()[1], w.shape()[0], groups];
    let y = match pair(x, w)? {
        Pair::Float(x, w) => Product::encode(run(&x, &w, &windows, counts)),
        Pair::Int(x, w) => Product::encode(run(&x, &w, &windows, counts)),
    };
    Ok(Tensor::from_elems(x.dtype(), out, &y))
}

/// (batch, blocks, space.., block) as (batch, channels, space..).
fn without_blocks(x: &Tensor) -> Result<Tensor, String> {
    let (shape, last) = (x.shape(), x.rank() - 1);
    let perm: Vec<i64> = [0, 1, last as i64].into_iter().chain(2..last as i64).collect();
    let apart = [&[shape[0], shape[1], shape[last]], &shape[2..last]].concat();
    let channels = [&[shape[0], shape[1] * shape[last]], &shape[2..last]].concat();
    movement::transpose(x, &perm, apart)?.reshaped(channels)
}

/// (batch, channels, space..) as (batch, blocks, space.., block), which is `out`.
fn with_blocks(x: &Tensor, block: usize, out: Vec<usize>) -> Result<Tensor, String> {
    let shape = x.shape();
    let apart = [&[shape[0], shape[1] / block, block], &shape[2..]].concat();
    let perm: Vec<i64> = [0, 1].into_iter().chain(3..=shape.len() as i64).chain([2]).collect();
    movement::transpose(&x.reshaped(apart)?, &perm, out)
}

pub(super) fn window(
    x: &Tensor,
    f: ReduceFn,
    size: &[i64],
    params: [&Vec<i64>; 4],
    out: Vec<usize>,
) -> Result<Tensor, String> {
    fn run<T: Number>(v: &[T], windows: &Windows<'_>, f: ReduceFn, neutral: T, total: usize) -> Vec<T> {
        let (plane, all) = (sizes(windows.input), sizes(windows.output));
        let combine = T::function(f);
        let mut y = vec![neutral; total];
        windows.for_each_tap(&(0..all), |_, places| {
            for (i, y) in y.chunks_exact_mut(all).enumerate() {
                for (sum, &place) in y.iter_mut().zip(places) {
                    if place != NONE {
                        *sum = combine(*sum, v[i * plane + place]);
                    }
                }
            }
        });
        y
    }
    let total = check_size(&out, 16)?;
    if total == 0 {
        return Ok(Tensor::from_elems(x.dtype(), out, &empty(x)));
    }
    let lead = x.rank() - size.len();
    let kernel: Vec<usize> = size.iter().map(|&n| n as usize).collect();
    let windows = Windows { input: &x.shape()[lead..], kernel: &kernel, output: &out[lead..], params };
    let y = on_numbers!(x, |v| run(&v, &windows, f, Number::neutral(f, x.dtype()), total));
    Ok(Tensor::from_elems(x.dtype(), out, &y))
}
