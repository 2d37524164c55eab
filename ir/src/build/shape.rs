//! Moving elements, reducing, and other tensor ops as methods.
use super::{Graph, X};
use crate::{DType, Dim, Op, ReduceFn, Result, refuse};

impl Graph {
    pub fn concat<'g>(&'g self, xs: &[X<'g>], axis: usize) -> Result<X<'g>> {
        self.push(Op::Concat { axis: axis as i64 }, xs)
    }
}

impl<'g> X<'g> {
    pub fn reshape(self, shape: &[Dim]) -> Result<X<'g>> {
        // A reshape of a reshape is one reshape.
        let inner = match &self.g.node(self.v) {
            n if matches!(n.op, Op::Reshape { .. }) => Some(n.args[0]),
            _ => None,
        };
        let from = inner.map_or(self, |v| X { v, ..self });
        let x = self.g.push(Op::Reshape { shape: shape.to_vec() }, &[from])?;
        if inner.is_some() {
            let mut func = self.g.func.borrow_mut();
            let first = func.origins(self.v).moved_by("import");
            func.add_origins(x.v, &first);
        }
        Ok(x)
    }

    /// All elements in one axis.
    pub fn flatten(self) -> Result<X<'g>> {
        self.reshape(&[self.len()])
    }

    /// The axes before `axis` in one, and the others in another.
    pub fn flatten_to_2d(self, axis: usize) -> Result<X<'g>> {
        let shape = self.shape();
        self.reshape(&[Dim::product(&shape[..axis]), Dim::product(&shape[axis..])])
    }

    pub fn transpose(self, perm: &[usize]) -> Result<X<'g>> {
        self.g.push(Op::Transpose { perm: perm.iter().map(|&p| p as i64).collect() }, &[self])
    }

    /// Move one axis to another place, keeping the order of the rest.
    pub fn move_axis(self, from: usize, to: usize) -> Result<X<'g>> {
        let mut perm: Vec<usize> = (0..self.rank()).filter(|&a| a != from).collect();
        perm.insert(to, from);
        self.transpose(&perm)
    }

    /// New axes of size 1 at these places of the result.
    pub fn unsqueeze(self, axes: &[usize]) -> Result<X<'g>> {
        let rank = self.rank() + axes.len();
        let mut old = self.shape().into_iter();
        let mut shape = Vec::with_capacity(rank);
        for i in 0..rank {
            if axes.contains(&i) {
                shape.push(Dim::ONE);
            } else {
                match old.next() {
                    Some(d) => shape.push(d),
                    None => refuse!("axes {axes:?} do not fit rank {rank}"),
                }
            }
        }
        if old.next().is_some() {
            refuse!("axes {axes:?} repeat or leave rank {rank}");
        }
        self.reshape(&shape)
    }

    /// Without these axes, which have size 1.
    pub fn squeeze(self, axes: &[usize]) -> Result<X<'g>> {
        let shape = self.shape();
        if let Some(a) = axes.iter().find(|&&a| a >= shape.len() || shape[a].equals(&Dim::ONE) == Some(false)) {
            refuse!("axis {a} of {} does not have size 1", self.ty());
        }
        let keep: Vec<Dim> = (0..shape.len()).filter(|i| !axes.contains(i)).map(|i| shape[i].clone()).collect();
        self.reshape(&keep)
    }

    /// Broadcast to a shape (NumPy's rule: trailing axes align).
    pub fn broadcast_to(self, shape: &[Dim]) -> Result<X<'g>> {
        let rank = self.rank();
        if rank > shape.len() {
            refuse!("{} does not broadcast to {shape:?}", self.ty());
        }
        let axes: Vec<usize> = (shape.len() - rank..shape.len()).collect();
        self.broadcast_in(shape, &axes)
    }

    /// Broadcast with axis `i` becoming axis `axes[i]`.
    pub fn broadcast_in(self, shape: &[Dim], axes: &[usize]) -> Result<X<'g>> {
        let axes = axes.iter().map(|&a| a as i64).collect();
        self.g.push(Op::Broadcast { shape: shape.to_vec(), axes }, &[self])
    }

    /// Elements `start, start + step …` of one axis, `size` of them.
    pub fn slice_axis(self, axis: usize, start: &Dim, size: &Dim, step: i64) -> Result<X<'g>> {
        let mut starts = vec![Dim::ZERO; self.rank()];
        let (mut sizes, mut steps) = (self.shape(), vec![1; self.rank()]);
        if axis >= self.rank() {
            refuse!("axis {axis} does not exist in {}", self.ty());
        }
        (starts[axis], sizes[axis], steps[axis]) = (start.clone(), size.clone(), step);
        self.g.push(Op::Slice { starts, sizes, steps }, &[self])
    }

    /// Element `index` of an axis, which is dropped.
    pub fn at(self, axis: usize, index: &Dim) -> Result<X<'g>> {
        self.slice_axis(axis, index, &Dim::ONE, 1)?.squeeze(&[axis])
    }

    /// Cut an axis into parts of the given sizes.
    pub fn split(self, axis: usize, sizes: &[Dim]) -> Result<Vec<X<'g>>> {
        let mut start = Dim::ZERO;
        let mut parts = Vec::new();
        for s in sizes {
            parts.push(self.slice_axis(axis, &start, s, 1)?);
            start = &start + s;
        }
        Ok(parts)
    }

    /// The elements of an axis in reverse order.
    pub fn reverse(self, axis: usize) -> Result<X<'g>> {
        let n = self.dim(axis as i64)?;
        self.slice_axis(axis, &(&n - &Dim::ONE), &n, -1)
    }

    /// `low` and `high` new elements around every axis, all equal to a scalar; negative numbers crop.
    pub fn pad(self, low: &[Dim], high: &[Dim], value: X<'g>) -> Result<X<'g>> {
        self.g.push(Op::Pad { low: low.to_vec(), high: high.to_vec() }, &[self, value])
    }

    /// Combine the elements along axes.
    pub fn reduce(self, f: ReduceFn, axes: &[usize], keep: bool) -> Result<X<'g>> {
        let op = Op::Reduce { f, axes: axes.iter().map(|&a| a as i64).collect() };
        let y = self.g.push(op, &[self])?;
        if !keep {
            return Ok(y);
        }
        let shape: Vec<Dim> =
            self.shape().into_iter().enumerate().map(|(i, d)| if axes.contains(&i) { Dim::ONE } else { d }).collect();
        y.reshape(&shape)
    }

    pub fn sum(self, axes: &[usize], keep: bool) -> Result<X<'g>> {
        self.reduce(ReduceFn::Sum, axes, keep)
    }

    pub fn max(self, axes: &[usize], keep: bool) -> Result<X<'g>> {
        self.reduce(ReduceFn::Max, axes, keep)
    }

    pub fn min(self, axes: &[usize], keep: bool) -> Result<X<'g>> {
        self.reduce(ReduceFn::Min, axes, keep)
    }

    /// Sum over axes divided by their number of elements, in this value's type.
    pub fn mean(self, axes: &[usize], keep: bool) -> Result<X<'g>> {
        let shape = self.shape();
        let count = self.g.size(&Dim::product(axes.iter().filter_map(|&a| shape.get(a))))?.cast(self.dtype())?;
        self.g.map([self.sum(axes, keep)?, count], |[s, n]| s / n)
    }

    /// Combine each element with those before it (after it if `reverse`; without itself if `exclusive`).
    pub fn scan(self, f: ReduceFn, axis: usize, exclusive: bool, reverse: bool) -> Result<X<'g>> {
        self.g.push(Op::Scan { f, axis: axis as i64, exclusive, reverse }, &[self])
    }

    /// Index of the first (or last) extreme along an axis, which is dropped.
    pub fn arg(self, f: ReduceFn, axis: usize, last: bool) -> Result<X<'g>> {
        self.g.push(Op::Arg { f, axis: axis as i64, last }, &[self])
    }

    /// Indices that sort an axis.
    pub fn argsort(self, axis: usize, descending: bool) -> Result<X<'g>> {
        self.g.push(Op::ArgSort { axis: axis as i64, descending }, &[self])
    }

    /// Indices of the true elements of a bool vector.
    pub fn compress(self) -> Result<X<'g>> {
        if let Some(mask) = self.as_ints() {
            let found: Vec<i64> = (0..mask.len() as i64).filter(|&i| mask[i as usize] != 0).collect();
            return self.g.ints(&found);
        }
        let count = self.g.fresh(false);
        self.g.push(Op::Compress { count }, &[self])
    }

    /// The shape as an i64 vector.
    pub fn shape_of(self) -> Result<X<'g>> {
        self.g.dims(&self.tensor()?.shape)
    }

    /// `exp(x) / sum(exp(x))` along axes, shifted by the maximum so that nothing overflows.
    pub fn softmax(self, axes: &[usize]) -> Result<X<'g>> {
        let shifted = self.g.map([self, self.max(axes, true)?], |[x, m]| (x - m).exp())?;
        self.g.map([shifted, shifted.sum(axes, true)?], |[e, s]| e / s)
    }

    /// A vector or scalar of any integer type as i64, for use as indices.
    pub fn indices(self) -> Result<X<'g>> {
        if !self.tensor()?.dtype.is_int() {
            refuse!("indices must be integers, got {}", self.ty());
        }
        self.cast(DType::I64)
    }
}
