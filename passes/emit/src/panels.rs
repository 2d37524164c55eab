//! Constants as second operands of products: written panel by panel, from wherever their elements are in the model.
use crate::weights::{Sink, Stored};
use numrsc_ir::Tensor;
use std::ops::{ControlFlow, Range};

/// Bytes that are packed at a time.
const PART: usize = 2 << 20;

/// The order in which a constant is packed; see [`super::contract`]. Sizes count elements.
pub(super) struct PanelOrder {
    pub outer: usize,
    pub last: usize,
    /// Panels of a round of the outer loops.
    pub count: usize,
    /// A multiple of the steps that are side by side, and how much of it there is.
    pub depth: usize,
    pub width: usize,
    pub steps: usize,
}

impl PanelOrder {
    /// A constant in this order, whose axes are batches, then the depth, then columns.
    pub(super) fn of(self, value: &Tensor, [batch, sum, free]: [&[usize]; 3]) -> Stored {
        let batches = positions(value.shape(), batch).len();
        let shape = vec![batches, self.outer, self.count, self.depth, self.width];
        let (value, axes) = (value.clone(), [batch, sum, free].map(<[usize]>::to_vec));
        Stored::made(value.dtype(), shape, move |to| {
            let [batch, depth, columns] = axes.each_ref().map(|axes| positions(value.shape(), axes));
            let places = Places { depth: &depth, columns: &columns };
            match value.dtype().size() {
                1 => self.write(value.bytes().as_chunks::<1>().0, &batch, &places, to),
                2 => self.write(value.bytes().as_chunks::<2>().0, &batch, &places, to),
                4 => self.write(value.bytes().as_chunks::<4>().0, &batch, &places, to),
                _ => self.write(value.bytes().as_chunks::<8>().0, &batch, &places, to),
            }
        })
    }

    fn write<const N: usize>(
        &self,
        from: &[[u8; N]],
        batch: &[usize],
        places: &Places<'_>,
        to: &mut Sink<'_>,
    ) -> ControlFlow<()> {
        let panel = self.depth * self.width;
        let at_once = (PART / (panel * N).max(1)).clamp(1, self.count.max(1));
        // Padding stays zero.
        let mut part = vec![[0; N]; at_once * panel];
        for (start, outer) in batch.iter().flat_map(|b| (0..self.outer).map(move |outer| (*b, outer))) {
            for first in (0..self.count).step_by(at_once) {
                let panels = first..self.count.min(first + at_once);
                let part = &mut part[..panels.len() * panel];
                if panels.end == self.count {
                    part.fill([0; N]);
                }
                self.fill(part, from, start, places, outer, panels);
                to(part.as_flattened())?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Packs some panels.
    fn fill<const N: usize>(
        &self,
        part: &mut [[u8; N]],
        from: &[[u8; N]],
        start: usize,
        places: &Places<'_>,
        outer: usize,
        panels: Range<usize>,
    ) {
        /// Packs this many elements of a column in a row, while those of neighbouring columns are in the cache.
        const NEAR: usize = 16;
        let columns = &places.columns[outer * self.last..(outer + 1) * self.last];
        let panel = self.depth * self.width;
        let of_panel = |number: usize| number * self.width..self.last.min((number + 1) * self.width);
        let all = panels.start * self.width..self.last.min(panels.end * self.width);
        let in_order = self.steps == 1 && columns[all].windows(2).all(|pair| pair[1] == pair[0] + 1);
        if in_order {
            // Row by row: neighbouring panels read contiguous memory.
            for (k, depth) in places.depth.iter().enumerate() {
                for (n, number) in panels.clone().enumerate() {
                    let columns = &columns[of_panel(number)];
                    let Some(first) = columns.first() else { continue };
                    let first = start + depth + first;
                    let line = n * panel + k * self.width;
                    part[line..line + columns.len()].copy_from_slice(&from[first..first + columns.len()]);
                }
            }
            return;
        }
        for (n, number) in panels.enumerate() {
            let part = &mut part[n * panel..(n + 1) * panel];
            for (near, depth) in places.depth.chunks(NEAR).enumerate() {
                for (c, column) in columns[of_panel(number)].iter().enumerate() {
                    for (k, depth) in (near * NEAR..).zip(depth) {
                        let line = k / self.steps * (self.steps * self.width);
                        part[line + c * self.steps + k % self.steps] = from[start + depth + column];
                    }
                }
            }
        }
    }
}

/// Where the elements of a batch are, counted from its first one: the sum of one number of each.
struct Places<'p> {
    depth: &'p [usize],
    columns: &'p [usize],
}

/// How far the elements along some axes are from the first one, in the order of these axes.
fn positions(shape: &[usize], axes: &[usize]) -> Vec<usize> {
    let mut all = vec![0];
    for &axis in axes {
        let stride: usize = shape[axis + 1..].iter().product();
        all = all.iter().flat_map(|at| (0..shape[axis]).map(move |i| at + i * stride)).collect();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use numrsc_ir::DType;

    /// Element by element, as the order is described.
    #[test]
    fn panels_hold_every_element_at_its_place() {
        let shapes: [(&[usize], [&[usize]; 3]); 4] = [
            (&[5, 7], [&[], &[0], &[1]]),
            (&[7, 5], [&[], &[1], &[0]]),
            (&[3, 5, 2, 4], [&[0], &[1], &[2, 3]]),
            (&[2, 3, 40], [&[1], &[2], &[0]]),
        ];
        for (shape, [batch, sum, free]) in shapes {
            let length: usize = shape.iter().product();
            let all: Vec<u8> = (1..=length).map(|i| (i % 255) as u8 + 1).collect();
            let value = Tensor::new(DType::U8, shape.to_vec(), all.clone().into()).unwrap();
            let size = |axes: &[usize]| axes.iter().map(|&a| shape[a]).product::<usize>();
            for (width, steps, outer) in [(4, 1, 1), (3, 2, 1), (2, 4, 1), (16, 1, 1), (2, 1, free.len())] {
                let outer = if outer == 2 { shape[free[0]] } else { 1 };
                let last = size(free) / outer;
                let count = last.div_ceil(width);
                let depth = size(sum).next_multiple_of(steps);
                let order = PanelOrder { outer, last, count, depth, width, steps };
                let packed = order.of(&value, [batch, sum, free]);
                let bytes = packed.to_vec();
                assert_eq!(bytes.len() as u64, packed.length());
                let mut expected = vec![0; bytes.len()];
                let stride = |axis: usize| shape[axis + 1..].iter().product::<usize>();
                let at = |axes: &[usize], mut n: usize| {
                    let mut at = 0;
                    for &axis in axes.iter().rev() {
                        at += n % shape[axis] * stride(axis);
                        n /= shape[axis];
                    }
                    at
                };
                for b in 0..size(batch) {
                    for k in 0..size(sum) {
                        for n in 0..size(free) {
                            let (o, c) = (n / last, n % last);
                            let panel = ((b * outer + o) * count + c / width) * depth * width;
                            let place = panel + k / steps * steps * width + c % width * steps + k % steps;
                            expected[place] = all[at(batch, b) + at(sum, k) + at(free, n)];
                        }
                    }
                }
                assert_eq!(bytes, expected, "{shape:?} by {width} columns and {steps} steps");
            }
        }
    }
}
