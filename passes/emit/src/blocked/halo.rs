//! The halo copy: the elements that the windows of a block of rows read, with zeros around them, so that no window is
//! clipped. It belongs to a worker and fits its cache; it costs a few loads and stores per element where the
//! convolution does hundreds of multiplications.
use super::products::zeros;
use crate::element::ElementEmitter;
use numrsc_ir::{
    Dim,
    kernel::{Compare, Ty, V},
};
use numrsc_schedule::conv::BlockedConv;

pub(super) struct Halo {
    /// Spatial sizes of the copy.
    pub sizes: Vec<Dim>,
    blocks: i64,
    channels: i64,
    /// Of an element.
    bytes: i64,
}

/// The source of a line of the copy: the position of the operand's line, whether it exists, and where the line starts
/// in the copy.
struct Line {
    source: Dim,
    inside: Option<V>,
    target: Dim,
}

impl Halo {
    /// For blocks of that many rows at most.
    pub(super) fn new(conv: &BlockedConv, rows: i64) -> Halo {
        let size = |d: usize, outputs: &Dim| {
            &(&(outputs - &Dim::ONE) * &Dim::Const(conv.strides[d])) + &Dim::Const(conv.reach(d) + 1)
        };
        let sizes =
            conv.output.iter().enumerate().map(|(d, n)| if d == 0 { size(0, &Dim::Const(rows)) } else { size(d, n) });
        Halo {
            sizes: sizes.collect(),
            blocks: conv.in_blocks,
            channels: conv.channels,
            bytes: conv.numbers.operand_bytes(),
        }
    }

    pub(super) fn bytes(&self) -> Dim {
        let bytes = &Dim::product(&self.sizes) * &Dim::Const(self.blocks * self.channels * self.bytes);
        &bytes.ceil_div(&Dim::Const(64)) * &Dim::Const(64)
    }

    /// Copies the elements that `rows` rows of outputs from `first_row` on read. The operand's group begins at `plane`.
    pub(super) fn fill(
        &self,
        em: &mut ElementEmitter<'_>,
        conv: &BlockedConv,
        copy: V,
        plane: &Dim,
        first_row: &Dim,
        rows: &Dim,
    ) {
        let needed = &(&(rows - &Dim::ONE) * &Dim::Const(conv.strides[0])) + &Dim::Const(conv.reach(0) + 1);
        let needed = em.named(&needed);
        // The operand's index of the first element of the copy along each axis.
        let start: Vec<Dim> = (0..self.sizes.len())
            .map(|d| if d == 0 { &(first_row * &Dim::Const(conv.strides[0])) - &conv.low[0] } else { -&conv.low[d] })
            .collect();
        let last = self.sizes.len() - 1;
        let extent = |d: usize| if d == 0 { needed.clone() } else { self.sizes[d].clone() };
        let block = em.variable(&Dim::Const(self.blocks));
        let mut loops = vec![(block.clone(), Dim::Const(self.blocks))];
        loops.extend((0..last).map(|d| (em.variable(&extent(d)), extent(d))));
        let axes: Vec<Dim> = loops[1..].iter().map(|(s, _)| Dim::sym(s.clone())).collect();
        let block = Dim::sym(block);
        em.carry(&loops, &[], &mut |em, _| {
            let mut line = Line { source: block.clone(), inside: None, target: block.clone() };
            for (d, i) in axes.iter().enumerate() {
                let at = em.uniform(&(i + &start[d]));
                let size = em.uniform(&conv.input[d]);
                let fits = em.b.compare(Compare::ULt, at, size);
                line.inside = Some(line.inside.map_or(fits, |before| em.b.and(before, fits)));
                line.source = &(&line.source * &conv.input[d]) + &(i + &start[d]);
                line.target = &(&line.target * &self.sizes[d]) + i;
            }
            let channels = Dim::Const(self.channels);
            line.source = plane + &(&(&(&line.source * &conv.input[last]) + &start[last]) * &channels);
            line.target = &(&line.target * &self.sizes[last]) * &channels;
            self.line(em, conv, copy, &line, &start[last], &extent(last));
            vec![]
        });
    }

    /// Zeros, elements, zeros.
    fn line(&self, em: &mut ElementEmitter<'_>, conv: &BlockedConv, copy: V, line: &Line, start: &Dim, length: &Dim) {
        let channels = Dim::Const(self.channels);
        let zero = em.b.i64(0);
        let all = em.uniform(&(length * &channels));
        let low = em.uniform(&(&-start * &channels));
        let high = em.uniform(&(&(&conv.input[conv.input.len() - 1] - start) * &channels));
        let mut low = em.clamp(low, zero, all);
        let mut high = em.clamp(high, low, all);
        if let Some(inside) = line.inside {
            (low, high) = (em.b.select(inside, low, all), em.b.select(inside, high, all));
        }
        let target = em.element(copy, &line.target, self.bytes);
        let source = em.uniform(&line.source);
        let operand = em.pointer_of(conv.x);
        let buffer = em.buffer_of(conv.x);
        let elements = em.length(buffer);
        let lanes = if conv.channels == 1 { conv.lanes } else { conv.lanes.min(conv.channels) } as u32;
        for (from, to, copies) in [(zero, low, false), (low, high, true), (high, all, false)] {
            self.run(em, from, to, lanes, &mut |em, at, lanes| {
                let elem = conv.numbers.operand();
                let x = if copies {
                    let index = em.b.add(source, at);
                    em.check_bounds(&elements, index, lanes, true);
                    em.b.load_fixed(Ty::vector(elem, lanes), operand, index)
                } else {
                    zeros(conv.numbers, em, elem, i64::from(lanes))
                };
                em.b.store(target, at, x);
            });
        }
    }

    /// Call `body` for all of a range, by vectors and then one by one.
    fn run(
        &self,
        em: &mut ElementEmitter<'_>,
        from: V,
        to: V,
        lanes: u32,
        body: &mut dyn FnMut(&mut ElementEmitter<'_>, V, u32),
    ) {
        let mut middle = to;
        if self.channels % i64::from(lanes) != 0 {
            let (count, step) = (em.b.sub(to, from), em.b.i64(i64::from(lanes)));
            let left = em.b.urem(count, step);
            middle = em.b.sub(to, left);
        }
        for (low, high, lanes) in [(from, middle, lanes), (middle, to, 1)] {
            if low == high {
                continue;
            }
            let open = em.b.open_for(&[]);
            body(em, open.var, lanes);
            em.b.close_for(open, low, high, i64::from(lanes), vec![]);
        }
    }
}
