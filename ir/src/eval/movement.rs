//! Ops that move elements without looking at them: bytes of one width, or strings.
use super::check_size;
use crate::{DType, Elems, Tensor, tensor::count};

/// Elements as they lie in memory.
trait Cell: Clone {
    fn of(t: &Tensor) -> &[Self];
    fn tensor(dtype: DType, shape: Vec<usize>, cells: Vec<Self>) -> Result<Tensor, String>;
}

impl<const N: usize> Cell for [u8; N] {
    fn of(t: &Tensor) -> &[[u8; N]] {
        t.bytes().as_chunks().0
    }
    fn tensor(dtype: DType, shape: Vec<usize>, cells: Vec<[u8; N]>) -> Result<Tensor, String> {
        Tensor::new(dtype, shape, cells.into_flattened().into())
    }
}

impl Cell for String {
    fn of(t: &Tensor) -> &[String] {
        t.strings().unwrap_or_default()
    }
    fn tensor(_: DType, shape: Vec<usize>, cells: Vec<String>) -> Result<Tensor, String> {
        Tensor::from_strings(shape, cells)
    }
}

/// Call a function over [`Cell`]s for the width of an element type.
macro_rules! by_width {
    ($dtype:expr, $f:ident($($arg:expr),*)) => {
        match $dtype.size() {
            0 => $f::<String>($($arg),*),
            1 => $f::<[u8; 1]>($($arg),*),
            2 => $f::<[u8; 2]>($($arg),*),
            4 => $f::<[u8; 4]>($($arg),*),
            _ => $f::<[u8; 8]>($($arg),*),
        }
    };
}

/// Where the elements of a box lie in a flat slice.
#[derive(Clone)]
struct Walk {
    offset: isize,
    strides: Vec<isize>,
}

/// Row-major distances between neighbours along each axis.
pub(super) fn strides(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1isize; shape.len()];
    for i in (1..shape.len()).rev() {
        // May only overflow where the tensor is empty and nothing is ever addressed.
        strides[i - 1] = strides[i].wrapping_mul(shape[i] as isize);
    }
    strides
}

/// Copy a box of elements from one slice to another.
fn copy<T: Clone>(src: &[T], from: &Walk, dst: &mut [T], to: &Walk, shape: &[usize]) {
    if shape.contains(&0) {
        return;
    }
    // Axes from the innermost, merged where one continues the other on both sides.
    let mut axes: Vec<(usize, isize, isize)> = vec![];
    for i in (0..shape.len()).rev().filter(|&i| shape[i] != 1) {
        let (n, s, d) = (shape[i], from.strides[i], to.strides[i]);
        match axes.last_mut() {
            Some((m, t, e)) if s == *t * *m as isize && d == *e * *m as isize => *m *= n,
            _ => axes.push((n, s, d)),
        }
    }
    let (run, outer) = axes.split_first().unwrap_or((&(1, 1, 1), &[]));
    let mut index = vec![0usize; outer.len()];
    let (mut s, mut d) = (from.offset, to.offset);
    loop {
        let &(n, step, dst_step) = run;
        if (step, dst_step) == (1, 1) {
            dst[d as usize..][..n].clone_from_slice(&src[s as usize..][..n]);
        } else {
            for i in 0..n as isize {
                dst[(d + i * dst_step) as usize].clone_from(&src[(s + i * step) as usize]);
            }
        }
        // The next row of the box.
        let mut axis = 0;
        loop {
            let Some(&(n, step, dst_step)) = outer.get(axis) else { return };
            index[axis] += 1;
            (s, d) = (s + step, d + dst_step);
            if index[axis] < n {
                break;
            }
            index[axis] = 0;
            (s, d) = (s - step * n as isize, d - dst_step * n as isize);
            axis += 1;
        }
    }
}

/// A new tensor of `shape` whose elements lie in `x` as stated.
fn view(x: &Tensor, from: &Walk, shape: Vec<usize>) -> Result<Tensor, String> {
    fn of<T: Cell>(x: &Tensor, from: &Walk, shape: Vec<usize>) -> Result<Tensor, String> {
        let n = check_size(&shape, size_of::<T>())?;
        let src = T::of(x);
        let mut out = Vec::new();
        if n > 0 {
            out = vec![src[0].clone(); n];
            copy(src, from, &mut out, &Walk { offset: 0, strides: strides(&shape) }, &shape);
        }
        T::tensor(x.dtype(), shape, out)
    }
    by_width!(x.dtype(), of(x, from, shape))
}

pub(super) fn iota(dtype: DType, out: Vec<usize>, axis: usize) -> Result<Tensor, String> {
    if out.contains(&0) {
        return Tensor::new(dtype, out, bytes::Bytes::new());
    }
    let n = check_size(&out[axis..=axis], 16)?;
    let line = if dtype.is_float() {
        Elems::Float((0..n).map(|i| i as f64).collect())
    } else {
        Elems::Int((0..n as i128).collect())
    };
    broadcast(&Tensor::from_elems(dtype, vec![n], &line), &[axis as i64], out)
}

pub(super) fn transpose(x: &Tensor, perm: &[i64], out: Vec<usize>) -> Result<Tensor, String> {
    let s = strides(x.shape());
    view(x, &Walk { offset: 0, strides: perm.iter().map(|&p| s[p as usize]).collect() }, out)
}

pub(super) fn broadcast(x: &Tensor, axes: &[i64], out: Vec<usize>) -> Result<Tensor, String> {
    let mut repeat = vec![0; out.len()];
    for ((&axis, n), s) in axes.iter().zip(x.shape()).zip(strides(x.shape())) {
        repeat[axis as usize] = if *n == 1 { 0 } else { s };
    }
    view(x, &Walk { offset: 0, strides: repeat }, out)
}

/// The type rule has checked that every element lies inside, unless there is none.
pub(super) fn slice(x: &Tensor, starts: &[i64], steps: &[i64], out: Vec<usize>) -> Result<Tensor, String> {
    if out.contains(&0) {
        return view(x, &Walk { offset: 0, strides: vec![0; out.len()] }, out);
    }
    let s = strides(x.shape());
    let offset = s.iter().zip(starts).map(|(s, &start)| s * start as isize).sum();
    // The step along an axis with one element is never taken and may be anything.
    let step = |i: usize| if out[i] == 1 { 0 } else { s[i] * steps[i] as isize };
    view(x, &Walk { offset, strides: (0..out.len()).map(step).collect() }, out)
}

pub(super) fn pad(x: &Tensor, value: &Tensor, low: &[i64], high: &[i64], out: Vec<usize>) -> Result<Tensor, String> {
    fn of<T: Cell>(x: &Tensor, value: &Tensor, low: &[i64], high: &[i64], out: Vec<usize>) -> Result<Tensor, String> {
        let n = check_size(&out, size_of::<T>())?;
        let mut cells = vec![T::of(value)[0].clone(); n];
        let (s, d) = (strides(x.shape()), strides(&out));
        let (mut from, mut to) = (Walk { offset: 0, strides: s.clone() }, Walk { offset: 0, strides: d.clone() });
        let mut kept = vec![0; out.len()];
        for (i, &size) in x.shape().iter().enumerate() {
            // What of the operand's axis is left after cropping.
            let first = 0.max(-i128::from(low[i]));
            let end = (size as i128).min(size as i128 + i128::from(high[i]));
            kept[i] = (end - first).max(0) as usize;
            if kept[i] == 0 || n == 0 {
                return T::tensor(x.dtype(), out, cells);
            }
            from.offset += s[i] * first as isize;
            to.offset += d[i] * (first + i128::from(low[i])) as isize;
        }
        copy(T::of(x), &from, &mut cells, &to, &kept);
        T::tensor(x.dtype(), out, cells)
    }
    by_width!(x.dtype(), of(x, value, low, high, out))
}

pub(super) fn concat(xs: &[&Tensor], axis: usize, out: Vec<usize>) -> Result<Tensor, String> {
    fn of<T: Cell>(xs: &[&Tensor], axis: usize, out: Vec<usize>) -> Result<Tensor, String> {
        let n = check_size(&out, size_of::<T>())?;
        let mut cells = match xs.iter().find_map(|x| T::of(x).first()) {
            Some(first) if n > 0 => vec![first.clone(); n],
            _ => return T::tensor(xs[0].dtype(), out, vec![]),
        };
        let d = strides(&out);
        let mut offset = 0;
        for x in xs {
            let from = Walk { offset: 0, strides: strides(x.shape()) };
            copy(T::of(x), &from, &mut cells, &Walk { offset, strides: d.clone() }, x.shape());
            offset += d[axis] * x.shape()[axis] as isize;
        }
        T::tensor(xs[0].dtype(), out, cells)
    }
    by_width!(xs[0].dtype(), of(xs, axis, out))
}

pub(super) fn gather(x: &Tensor, idx: &Tensor, axis: usize, batch: usize, out: Vec<usize>) -> Result<Tensor, String> {
    fn of<T: Cell>(
        x: &Tensor,
        indices: &[usize],
        [batches, outer, size, row]: [usize; 4],
        out: Vec<usize>,
    ) -> Result<Tensor, String> {
        let src = T::of(x);
        let mut cells = Vec::with_capacity(check_size(&out, size_of::<T>())?);
        let per_batch = indices.len() / batches;
        for (b, indices) in indices.chunks_exact(per_batch).enumerate() {
            for o in 0..outer {
                for i in indices {
                    let at = ((b * outer + o) * size + i) * row;
                    cells.extend_from_slice(&src[at..at + row]);
                }
            }
        }
        T::tensor(x.dtype(), out, cells)
    }
    // Without elements, no index is followed, whatever it says.
    if out.contains(&0) {
        return view(x, &Walk { offset: 0, strides: vec![0; out.len()] }, out);
    }
    let size = x.shape()[axis];
    let indices = positions(idx, size)?;
    let product = |s: &[usize]| count(s).expect("part of a tensor that is not empty");
    let (batches, outer) = (product(&x.shape()[..batch]), product(&x.shape()[batch..axis]));
    let sizes = [batches, outer, size, product(&x.shape()[axis + 1..])];
    by_width!(x.dtype(), of(x, &indices, sizes, out))
}

/// Indices of elements of an axis of `size`.
pub(super) fn positions(indices: &Tensor, size: usize) -> Result<Vec<usize>, String> {
    let all = indices.to_i64s().ok_or("indices must be integers")?;
    let inside = |&i: &i64| usize::try_from(i).ok().filter(|&i| i < size);
    all.iter().map(|i| inside(i).ok_or_else(|| format!("index {i} is outside an axis of size {size}"))).collect()
}

/// The rows of `updates` in place of those of `x` that `rows` names, in order.
pub(super) fn set_rows(x: &Tensor, rows: &[usize], updates: &Tensor) -> Result<Tensor, String> {
    fn of<T: Cell>(x: &Tensor, rows: &[usize], updates: &Tensor) -> Result<Tensor, String> {
        let (mut cells, new) = (T::of(x).to_vec(), T::of(updates));
        let width = new.len() / rows.len().max(1);
        for (i, row) in rows.iter().enumerate() {
            cells[row * width..][..width].clone_from_slice(&new[i * width..][..width]);
        }
        T::tensor(x.dtype(), x.shape().to_vec(), cells)
    }
    by_width!(x.dtype(), of(x, rows, updates))
}
