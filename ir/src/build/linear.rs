//! Contractions, convolutions and windows.
use super::{X, broadcast_shapes};
use crate::{Dim, Op, ReduceFn, Result, refuse};

/// Where a window moves over one axis.
#[derive(Clone, Debug)]
pub struct Window {
    pub stride: i64,
    pub dilation: i64,
    pub low: Dim,
    pub high: Dim,
}

impl<'g> X<'g> {
    /// The `contract` op: pairs of batch axes and of axes to sum over.
    pub fn contract(self, o: X<'g>, batch: &[(usize, usize)], sum: &[(usize, usize)]) -> Result<X<'g>> {
        let list =
            |pairs: &[(usize, usize)], f: fn(&(usize, usize)) -> usize| pairs.iter().map(|p| f(p) as i64).collect();
        let op = Op::Contract {
            a_batch: list(batch, |p| p.0),
            b_batch: list(batch, |p| p.1),
            a_sum: list(sum, |p| p.0),
            b_sum: list(sum, |p| p.1),
        };
        self.g.push(op, &[self, o])
    }

    /// NumPy's `matmul`: the last two axes multiply, the others broadcast; a vector gets a temporary axis.
    pub fn matmul(self, o: X<'g>) -> Result<X<'g>> {
        let (a_rank, b_rank) = (self.tensor()?.rank(), o.tensor()?.rank());
        if a_rank == 0 || b_rank == 0 {
            refuse!("cannot multiply {} and {} as matrices", self.ty(), o.ty());
        }
        if a_rank == 1 || b_rank <= 2 {
            // Nothing to broadcast: x[.., k] * y[k, n], or v[k] * y[.., k, n] whose result keeps y's order.
            return self.contract(o, &[], &[(a_rank - 1, b_rank.max(2) - 2)]);
        }
        let (a_shape, b_shape) = (self.shape(), o.shape());
        let lead = broadcast_shapes(&a_shape[..a_rank - 2], &b_shape[..b_rank - 2])?;
        let full = |x: X<'g>, s: &[Dim]| x.broadcast_to(&[&lead[..], &s[s.len() - 2..]].concat());
        let n = lead.len();
        let batch: Vec<_> = (0..n).map(|i| (i, i)).collect();
        full(self, &a_shape)?.contract(full(o, &b_shape)?, &batch, &[(n + 1, n)])
    }

    /// The `conv` op over (batch, channels, space..).
    pub fn conv(self, w: X<'g>, windows: &[Window], spread: &[i64], groups: i64) -> Result<X<'g>> {
        let op = Op::Conv {
            strides: windows.iter().map(|w| w.stride).collect(),
            dilations: windows.iter().map(|w| w.dilation).collect(),
            spread: spread.to_vec(),
            low: windows.iter().map(|w| w.low.clone()).collect(),
            high: windows.iter().map(|w| w.high.clone()).collect(),
            groups,
            in_block: 1,
            out_block: 1,
        };
        self.g.push(op, &[self, w])
    }

    /// The `window` op over the last axes.
    pub fn window(self, f: ReduceFn, size: &[i64], windows: &[Window]) -> Result<X<'g>> {
        let op = Op::Window {
            f,
            size: size.to_vec(),
            strides: windows.iter().map(|w| w.stride).collect(),
            dilations: windows.iter().map(|w| w.dilation).collect(),
            low: windows.iter().map(|w| w.low.clone()).collect(),
            high: windows.iter().map(|w| w.high.clone()).collect(),
        };
        self.g.push(op, &[self])
    }
}
