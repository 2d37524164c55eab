//! Ops that combine, order or count elements along axes.
use super::{decode, movement};
use crate::{
    DType, Elems, Tensor,
    op::{ReduceFn, ScatterFn},
    tensor::count,
};
use std::cmp::Ordering;

/// Numbers that can be combined: `f64`, or integers modulo 2^128, which wrap correctly to every narrower type.
pub(super) trait Number: Copy {
    fn function(f: ReduceFn) -> fn(Self, Self) -> Self;
    /// What changes nothing. For types without infinities, the extremes of their range.
    fn neutral(f: ReduceFn, dtype: DType) -> Self;
    /// NaN is the largest.
    fn order(self, o: Self) -> Ordering;
    fn is_nan(self) -> bool;
}

impl Number for f64 {
    fn function(f: ReduceFn) -> fn(f64, f64) -> f64 {
        match f {
            ReduceFn::Sum => |a, b| a + b,
            ReduceFn::Prod => |a, b| a * b,
            ReduceFn::Max => |a, b| if b > a || b.is_nan() { b } else { a },
            ReduceFn::Min => |a, b| if b < a || b.is_nan() { b } else { a },
        }
    }
    fn neutral(f: ReduceFn, dtype: DType) -> f64 {
        let first_number = |list: [f64; 3]| list.into_iter().find(|&x| !dtype.round(x).is_nan()).unwrap_or(0.0);
        match f {
            ReduceFn::Sum => 0.0,
            ReduceFn::Prod => 1.0,
            ReduceFn::Max => first_number([f64::NEG_INFINITY, -dtype.max_finite(), 0.0]),
            ReduceFn::Min => first_number([f64::INFINITY, dtype.max_finite(), 0.0]),
        }
    }
    fn order(self, o: f64) -> Ordering {
        self.partial_cmp(&o).unwrap_or_else(|| f64::is_nan(self).cmp(&f64::is_nan(o)))
    }
    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }
}

impl Number for i128 {
    fn function(f: ReduceFn) -> fn(i128, i128) -> i128 {
        match f {
            ReduceFn::Sum => i128::wrapping_add,
            ReduceFn::Prod => i128::wrapping_mul,
            ReduceFn::Max => Ord::max,
            ReduceFn::Min => Ord::min,
        }
    }
    fn neutral(f: ReduceFn, dtype: DType) -> i128 {
        match f {
            ReduceFn::Sum => 0,
            ReduceFn::Prod => 1,
            ReduceFn::Max => dtype.int_range().0,
            ReduceFn::Min => dtype.int_range().1,
        }
    }
    fn order(self, o: i128) -> Ordering {
        self.cmp(&o)
    }
    fn is_nan(self) -> bool {
        false
    }
}

/// Run a generic function over the numbers of a tensor and encode what it gives.
macro_rules! on_numbers {
    ($x:expr, |$v:ident| $body:expr) => {
        match decode($x)? {
            Elems::Float($v) => Elems::Float($body),
            Elems::Int($v) => Elems::Int($body),
            Elems::Str(_) => return Err("strings cannot be combined".into()),
        }
    };
}
pub(super) use on_numbers;

pub(super) fn reduce(x: &Tensor, f: ReduceFn, axes: &[i64], out: Vec<usize>) -> Result<Tensor, String> {
    fn run<T: Number>(v: &[T], x: &Tensor, f: ReduceFn, axes: &[i64], total: usize) -> Vec<T> {
        let (combine, neutral) = (T::function(f), T::neutral(f, x.dtype()));
        let mut out = vec![neutral; total];
        // How far the result moves per step along each axis of the operand.
        let mut steps = vec![0; x.rank()];
        let mut stride = 1usize;
        for i in (0..x.rank()).rev().filter(|&i| !axes.contains(&(i as i64))) {
            steps[i] = stride;
            stride = stride.wrapping_mul(x.shape()[i]);
        }
        let (row, last) = (x.shape().last().copied().unwrap_or(1), steps.last().copied().unwrap_or(0));
        let mut index = vec![0; x.rank().saturating_sub(1)];
        let mut at = 0;
        for line in v.chunks_exact(row.max(1)) {
            if last == 0 {
                out[at] = line.iter().fold(out[at], |sum, &x| combine(sum, x));
            } else {
                out[at..at + row].iter_mut().zip(line).for_each(|(sum, &x)| *sum = combine(*sum, x));
            }
            for i in (0..index.len()).rev() {
                index[i] += 1;
                at += steps[i];
                if index[i] < x.shape()[i] {
                    break;
                }
                at -= steps[i] * index[i];
                index[i] = 0;
            }
        }
        out
    }
    let total = super::check_size(&out, 16)?;
    let sums = on_numbers!(x, |v| run(&v, x, f, axes, total));
    Ok(Tensor::from_elems(x.dtype(), out, &sums))
}

/// The lines of a tensor along an axis: the positions in the flat elements, one line at a time.
fn lines(shape: &[usize], axis: usize) -> impl Iterator<Item = impl DoubleEndedIterator<Item = usize> + Clone> {
    let empty = shape.contains(&0);
    let product = |s: &[usize]| if empty { 0 } else { count(s).unwrap_or(0) };
    let (outer, n, inner) = (product(&shape[..axis]), shape[axis], product(&shape[axis + 1..]));
    (0..outer).flat_map(move |o| (0..inner).map(move |i| (0..n).map(move |k| (o * n + k) * inner + i)))
}

pub(super) fn scan(x: &Tensor, f: ReduceFn, axis: usize, exclusive: bool, reverse: bool) -> Result<Tensor, String> {
    fn run<T: Number>(v: &[T], x: &Tensor, f: ReduceFn, axis: usize, exclusive: bool, reverse: bool) -> Vec<T> {
        let (combine, neutral) = (T::function(f), T::neutral(f, x.dtype()));
        let mut out = v.to_vec();
        for line in lines(x.shape(), axis) {
            let mut sum = neutral;
            let mut visit = |i: usize| {
                let next = combine(sum, v[i]);
                out[i] = if exclusive { sum } else { next };
                sum = next;
            };
            if reverse { line.rev().for_each(&mut visit) } else { line.for_each(&mut visit) }
        }
        out
    }
    let sums = on_numbers!(x, |v| run(&v, x, f, axis, exclusive, reverse));
    Ok(Tensor::from_elems(x.dtype(), x.shape().to_vec(), &sums))
}

pub(super) fn arg(x: &Tensor, f: ReduceFn, axis: usize, last: bool, out: Vec<usize>) -> Result<Tensor, String> {
    fn run<T: Number>(v: &[T], x: &Tensor, f: ReduceFn, axis: usize, last: bool) -> Vec<i128> {
        let inner = count(&x.shape()[axis + 1..]).unwrap_or(0);
        let better = |a: T, b: T| match (a.is_nan(), b.is_nan()) {
            (true, true) => last,
            (nan, other) if nan || other => nan,
            _ => match a.order(b) {
                Ordering::Equal => last,
                Ordering::Greater => f == ReduceFn::Max,
                Ordering::Less => f == ReduceFn::Min,
            },
        };
        let choose = |best: usize, i: usize| if better(v[i], v[best]) { i } else { best };
        let place = |i: usize| (i / inner % x.shape()[axis]) as i128;
        lines(x.shape(), axis).filter_map(|line| line.reduce(choose).map(place)).collect()
    }
    if x.shape()[axis] == 0 && !out.contains(&0) {
        return Err(format!("axis {axis} of {:?} has no elements to choose from", x.shape()));
    }
    let found = match decode(x)? {
        Elems::Float(v) => run(&v, x, f, axis, last),
        Elems::Int(v) => run(&v, x, f, axis, last),
        Elems::Str(_) => return Err("strings have no extremes".into()),
    };
    Ok(Tensor::from_elems(DType::I64, out, &Elems::Int(found)))
}

pub(super) fn argsort(x: &Tensor, axis: usize, descending: bool) -> Result<Tensor, String> {
    fn run<T>(v: &[T], shape: &[usize], axis: usize, order: impl Fn(&T, &T) -> Ordering) -> Vec<i128> {
        let mut out = vec![0; v.len()];
        for line in lines(shape, axis) {
            let places: Vec<usize> = line.collect();
            let mut sorted: Vec<usize> = (0..places.len()).collect();
            sorted.sort_by(|&a, &b| order(&v[places[a]], &v[places[b]]));
            places.iter().zip(sorted).for_each(|(&place, i)| out[place] = i as i128);
        }
        out
    }
    // Reversing the comparison, not the result, keeps equal elements in their order.
    let turn = |o: Ordering| if descending { o.reverse() } else { o };
    let sorted = match decode(x)? {
        Elems::Float(v) => run(&v, x.shape(), axis, |a, b| turn(a.order(*b))),
        Elems::Int(v) => run(&v, x.shape(), axis, |a, b| turn(a.cmp(b))),
        Elems::Str(v) => run(&v, x.shape(), axis, |a, b| turn(a.cmp(b))),
    };
    Ok(Tensor::from_elems(DType::I64, x.shape().to_vec(), &Elems::Int(sorted)))
}

pub(super) fn compress(mask: &Tensor) -> Result<Tensor, String> {
    if mask.dtype() != DType::Bool || mask.rank() != 1 {
        return Err(format!("compress takes a bool vector, got {}{:?}", mask.dtype(), mask.shape()));
    }
    super::check_size(mask.shape(), 16)?;
    let set: Vec<i64> = (0i64..).zip(mask.bytes()).filter(|(_, b)| **b != 0).map(|(i, _)| i).collect();
    Ok(Tensor::from_i64(&[set.len()], &set))
}

pub(super) fn scatter(x: &Tensor, indices: &Tensor, updates: &Tensor, f: ScatterFn) -> Result<Tensor, String> {
    fn run<T: Number>(mut v: Vec<T>, rows: &[usize], updates: &[T], f: ReduceFn) -> Vec<T> {
        let combine = T::function(f);
        let width = updates.len() / rows.len().max(1);
        for (i, row) in rows.iter().enumerate() {
            let new = &updates[i * width..][..width];
            v[row * width..][..width].iter_mut().zip(new).for_each(|(old, &new)| *old = combine(*old, new));
        }
        v
    }
    // Without elements, no index is followed, whatever it says.
    if updates.is_empty() {
        return Ok(x.clone());
    }
    let rows = movement::positions(indices, x.shape()[0])?;
    // On bools, adding is "or" and multiplying is "and".
    let f = match f {
        ScatterFn::Set => return movement::set_rows(x, &rows, updates),
        ScatterFn::Add if x.dtype() != DType::Bool => ReduceFn::Sum,
        ScatterFn::Mul if x.dtype() != DType::Bool => ReduceFn::Prod,
        ScatterFn::Add | ScatterFn::Max => ReduceFn::Max,
        ScatterFn::Mul | ScatterFn::Min => ReduceFn::Min,
    };
    let combined = match (decode(x)?, decode(updates)?) {
        (Elems::Float(v), Elems::Float(new)) => Elems::Float(run(v, &rows, &new, f)),
        (Elems::Int(v), Elems::Int(new)) => Elems::Int(run(v, &rows, &new, f)),
        _ => return Err("strings cannot be combined".into()),
    };
    Ok(Tensor::from_elems(x.dtype(), x.shape().to_vec(), &combined))
}
