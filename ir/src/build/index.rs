//! Gathers and scatters in all their forms, brought to the one of each that the IR has.
use super::X;
use crate::{DType, Dim, Error, Op, Result, ScatterFn, refuse};

impl<'g> X<'g> {
    /// Indices that may count from the end of an axis of size `n`, as indices from its start.
    pub fn wrap_indices(self, n: &Dim) -> Result<X<'g>> {
        let idx = self.indices()?;
        self.g.map([idx, self.g.size(n)?], |[i, n]| i.lt(0.0).select(i + n, i))
    }

    /// `x[.., idx, ..]` along an axis; indices may count from the end.
    pub fn take(self, idx: X<'g>, axis: usize) -> Result<X<'g>> {
        let n = self.dim(axis as i64)?;
        self.gather(idx.wrap_indices(&n)?, axis, 0)
    }

    /// The `gather` op: the first `batch` axes are shared, indices count from 0.
    pub fn gather(self, idx: X<'g>, axis: usize, batch: usize) -> Result<X<'g>> {
        self.g.push(Op::Gather { axis: axis as i64, batch: batch as i64 }, &[self, idx])
    }

    /// The `scatter` op: rows of `updates` into rows of this tensor.
    pub fn scatter(self, f: ScatterFn, idx: X<'g>, updates: X<'g>) -> Result<X<'g>> {
        self.g.push(Op::Scatter { f }, &[self, idx, updates])
    }

    /// `x[i, idx[i, j], k]` style: indices have this tensor's rank, and each names the element along `axis` at its own
    /// place in the other axes (NumPy's `take_along_axis`, where other axes of `idx` may also be shorter).
    pub fn gather_elements(self, idx: X<'g>, axis: usize) -> Result<X<'g>> {
        let at = self.element_offsets(idx, axis)?;
        self.flatten()?.gather(at.flatten()?, 0, 0)?.reshape(&idx.shape())
    }

    /// The inverse of [`X::gather_elements`]: put updates where it would have read.
    pub fn scatter_elements(self, f: ScatterFn, idx: X<'g>, updates: X<'g>, axis: usize) -> Result<X<'g>> {
        if idx.rank() != updates.rank() {
            refuse!("indices {} and updates {} differ in shape", idx.ty(), updates.ty());
        }
        let at = self.element_offsets(idx, axis)?;
        self.flatten()?.scatter(f, at.flatten()?, updates.flatten()?)?.reshape(&self.shape())
    }

    /// Row-major offsets into this tensor of the elements that `idx` names along `axis`.
    fn element_offsets(self, idx: X<'g>, axis: usize) -> Result<X<'g>> {
        let (shape, to) = (self.shape(), idx.shape());
        if shape.len() != to.len() {
            refuse!("indices {} must have the rank of {}", idx.ty(), self.ty());
        }
        let mut offset = self.g.scalar(DType::I64, 0.0)?;
        for i in 0..shape.len() {
            let stride = self.g.size(&Dim::product(&shape[i + 1..]))?;
            let along = if i == axis {
                idx.wrap_indices(&shape[i])?.checked_index(&shape[i])?
            } else {
                self.g.iota(DType::I64, &to, i)?
            };
            offset = self.g.map([offset, along, stride], |[o, i, s]| o + i * s)?;
        }
        offset.broadcast_to(&to)
    }

    /// `x[b.., idx[b.., i.., :], r..]`: the last axis of `idx` holds coordinates into the axes after the `batch`
    /// shared ones.
    pub fn gather_nd(self, idx: X<'g>, batch: usize) -> Result<X<'g>> {
        let (shape, to) = (self.shape(), idx.shape());
        let depth = self.coordinate_depth(idx, batch)?;
        let at = self.coordinate_offsets(idx, batch)?;
        let flat = [&shape[..batch], &[Dim::product(&shape[batch..batch + depth])], &shape[batch + depth..]].concat();
        let rest = &shape[batch + depth..];
        let out = [&to[..to.len() - 1], rest].concat();
        self.reshape(&flat)?.gather(at, batch, batch)?.reshape(&out)
    }

    /// Put updates where [`X::gather_nd`] would have read (without batch axes).
    pub fn scatter_nd(self, f: ScatterFn, idx: X<'g>, updates: X<'g>) -> Result<X<'g>> {
        let shape = self.shape();
        let idx = idx.with_depth(self.rank(), updates.rank())?;
        let depth = self.coordinate_depth(idx, 0)?;
        let at = self.coordinate_offsets(idx, 0)?.flatten()?;
        let rest = &shape[depth..];
        let rows = [&[Dim::product(&shape[..depth])], rest].concat();
        let updates = updates.reshape(&[&[at.len()], rest].concat())?;
        self.reshape(&rows)?.scatter(f, at, updates)?.reshape(&shape)
    }

    /// Indices whose last axis has a known size: a tensor of rank `r` is updated by slices that lack as many axes as there are coordinates.
    fn with_depth(self, r: usize, updates: usize) -> Result<X<'g>> {
        let mut shape = self.shape();
        let depth = (r + shape.len()).checked_sub(updates + 1);
        match (shape.last_mut(), depth) {
            (Some(last), Some(depth)) if last.as_const().is_none() => *last = Dim::from(depth),
            _ => return Ok(self),
        }
        self.with_sizes(&shape)
    }

    fn coordinate_depth(self, idx: X<'g>, batch: usize) -> Result<usize> {
        let depth = match idx.shape().pop() {
            None => refuse!("the indices {} have no axis of coordinates", idx.ty()),
            Some(last) => match last.as_usize() {
                Some(depth) => depth,
                None => {
                    return Err(Error::Open {
                        message: format!("the last axis of the indices {}", idx.ty()),
                        size: last,
                    });
                }
            },
        };
        if batch + depth > self.rank() || batch >= idx.rank() {
            refuse!(
                "indices {} name {depth} axes after {batch} shared ones, {} has {}",
                idx.ty(),
                self.ty(),
                self.rank()
            );
        }
        Ok(depth)
    }

    /// Row-major offsets within the axes that the coordinates in the last axis of `idx` name.
    fn coordinate_offsets(self, idx: X<'g>, batch: usize) -> Result<X<'g>> {
        let (shape, to) = (self.shape(), idx.shape());
        let depth = self.coordinate_depth(idx, batch)?;
        let mut offset = self.g.full(DType::I64, 0.0, &to[..to.len() - 1])?;
        for k in 0..depth {
            let n = &shape[batch + k];
            let stride = self.g.size(&Dim::product(&shape[batch + k + 1..batch + depth]))?;
            let at = idx.indices()?.at(to.len() - 1, &Dim::from(k))?.wrap_indices(n)?.checked_index(n)?;
            offset = self.g.map([offset, at, stride], |[o, i, s]| o + i * s)?;
        }
        Ok(offset)
    }

    /// An index outside its axis becomes one that is outside every tensor, so that a linear offset made from it
    /// cannot land on another element by accident.
    fn checked_index(self, n: &Dim) -> Result<X<'g>> {
        const OUTSIDE: i128 = -(1 << 40);
        self.g.map([self, self.g.size(n)?], |[i, n]| i.ge(0.0).and(i.lt(n)).select(i, i.int(OUTSIDE)))
    }
}
