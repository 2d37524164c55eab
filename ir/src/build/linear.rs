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
        let (a, b) = self.paired(o, &[batch, sum].concat())?;
        let list =
            |pairs: &[(usize, usize)], f: fn(&(usize, usize)) -> usize| pairs.iter().map(|p| f(p) as i64).collect();
        let op = Op::Contract {
            a_batch: list(batch, |p| p.0),
            b_batch: list(batch, |p| p.1),
            a_sum: list(sum, |p| p.0),
            b_sum: list(sum, |p| p.1),
        };
        a.g.push(op, &[a, b])
    }

    /// Both operands with equal sizes along pairs of axes, as far as the size is a number in one of them: the numbers are what weights are packed by.
    fn paired(self, o: X<'g>, pairs: &[(usize, usize)]) -> Result<(X<'g>, X<'g>)> {
        let (mut a, mut b) = (self.shape(), o.shape());
        for &(i, j) in pairs {
            let (Some(x), Some(y)) = (a.get_mut(i), b.get_mut(j)) else { continue };
            match (x.as_const(), y.as_const()) {
                (Some(_), None) => *y = x.clone(),
                (None, Some(_)) => *x = y.clone(),
                _ => {}
            }
        }
        Ok((self.with_sizes(&a)?, o.with_sizes(&b)?))
    }

    /// The same tensor, whose sizes have to be these. Symbols that this makes numbers of are remembered.
    pub fn with_sizes(self, sizes: &[Dim]) -> Result<X<'g>> {
        for (d, n) in self.shape().iter().zip(sizes) {
            if let (Some(sym), Some(n)) = (d.as_sym(), n.as_const()) {
                self.g.demanded.borrow_mut().entry(sym.clone()).or_insert(n);
            }
        }
        self.reshape(sizes)
    }

    /// A vector that has to have `n` elements.
    pub fn of_length(self, n: usize) -> Result<X<'g>> {
        let n = Dim::from(n);
        match &self.shape()[..] {
            [len] if len.equals(&n) != Some(false) => self.with_sizes(&[n]),
            _ => refuse!("{} should have {n} elements", self.ty()),
        }
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
        let (x, w) = self.with_channels(w, groups)?;
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
        x.g.push(op, &[x, w])
    }

    /// Operand and weights of a convolution with numbers for their channels, if one of them has a number.
    fn with_channels(self, w: X<'g>, groups: i64) -> Result<(X<'g>, X<'g>)> {
        let (mut x_shape, mut w_shape) = (self.shape(), w.shape());
        let (Some(x_channels), Some(w_channels)) = (x_shape.get_mut(1), w_shape.get_mut(1)) else {
            return Ok((self, w));
        };
        match (x_channels.as_const(), w_channels.as_const()) {
            (Some(c), None) if groups > 0 && c % groups == 0 => *w_channels = Dim::Const(c / groups),
            (None, Some(_)) => *x_channels = &*w_channels * &Dim::Const(groups),
            _ => {}
        }
        Ok((self.with_sizes(&x_shape)?, w.with_sizes(&w_shape)?))
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
