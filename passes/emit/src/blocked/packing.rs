//! Packs the weights of convolutions in the order in which their kernels read them.
use crate::weights::{Sink, Stored};
use numrsc_ir::{DType, Tensor, kernel::Elem};
use numrsc_schedule::conv::{BlockedConv, Panels, numbers::Numbers, transform::Transform};
use std::ops::ControlFlow;

/// Weights in the order of use: group, panel, slice of channels, tap, channel of the slice, output of the panel;
/// channels that are multiplied at once are side by side. Outputs are numbered phase by phase; what is missing of the
/// last vector, and taps that a phase does not have, are zeros.
pub(super) fn packed_weights(conv: &BlockedConv, w: &Tensor) -> Stored {
    if conv.depthwise {
        let (groups, lanes, taps) = (conv.groups as usize, conv.lanes as usize, conv.taps() as usize);
        let w = w.clone();
        return Stored::made(w.dtype(), vec![groups, taps, lanes], move |to| by_tap(&w, [groups, lanes, taps], to));
    }
    let dtype = match conv.numbers {
        Numbers::Dot2(Elem::I8) => DType::I8,
        Numbers::Dot2(_) => DType::I16,
        Numbers::Dot4 | Numbers::Float => w.dtype(),
    };
    let taps = w.shape()[2..].iter().product::<usize>() as i64;
    let order = Order {
        groups: conv.groups,
        panels: conv.panels(),
        lanes: conv.lanes,
        slice: conv.slice,
        slices: conv.slices,
        at_once: conv.numbers.at_once(),
        outputs: conv.outputs,
        per_output: conv.in_blocks * conv.channels * taps,
        taps,
        source: conv.phases.taps(),
        window: conv.taps(),
    };
    let (w, length) = (w.clone(), order.length() as usize);
    Stored::made(dtype, vec![length], move |to| order.write(&w, dtype, to))
}

/// Vectors of channels, of which each has its taps together, with the channels of every tap together.
fn by_tap(w: &Tensor, [groups, lanes, taps]: [usize; 3], to: &mut Sink<'_>) -> ControlFlow<()> {
    let size = w.dtype().size();
    let mut group = Vec::with_capacity(lanes * taps * size);
    for channels in w.bytes().chunks_exact((lanes * taps * size).max(1)).take(groups) {
        group.clear();
        for tap in 0..taps {
            (0..lanes).for_each(|lane| group.extend_from_slice(&channels[(lane * taps + tap) * size..][..size]));
        }
        to(&group)?;
    }
    ControlFlow::Continue(())
}

/// The properties of a convolution that decide how its weights are packed.
struct Order {
    groups: i64,
    panels: Vec<Panels>,
    lanes: i64,
    slice: i64,
    slices: i64,
    at_once: i64,
    outputs: i64,
    per_output: i64,
    taps: i64,
    /// By phase and tap of the common window: the tap of the convolution.
    source: Vec<Vec<Option<i64>>>,
    window: i64,
}

impl Order {
    /// Elements in all.
    fn length(&self) -> i64 {
        let vectors: i64 = self.panels.iter().map(|p| p.count * p.vectors).sum();
        let channels = (self.slice + self.at_once - 1) / self.at_once * self.at_once;
        self.groups * vectors * self.lanes * self.slices * self.window * channels
    }

    fn write(&self, w: &Tensor, dtype: DType, to: &mut Sink<'_>) -> ControlFlow<()> {
        let (from, size) = (w.dtype().size(), dtype.size());
        // Numbers of 8 bits without a sign become wider, those that fit fewer bits narrower.
        let taken = from.min(size);
        let mut part = Vec::new();
        for (group, panels) in (0..self.groups).flat_map(|g| self.panels.iter().map(move |p| (g, p))) {
            for panel in 0..panels.count {
                let first = (panels.first + panel * panels.vectors) * self.lanes;
                part.clear();
                for (slice, tap) in (0..self.slices).flat_map(|s| (0..self.window).map(move |t| (s, t))) {
                    let channels = (slice * self.slice..(slice + 1) * self.slice).step_by(self.at_once as usize);
                    let outputs = first..first + panels.vectors * self.lanes;
                    let each = channels.flat_map(|c| outputs.clone().map(move |n| (c, n)));
                    for (channel, n) in each.flat_map(|(c, n)| (c..c + self.at_once).map(move |c| (c, n))) {
                        let (phase, output) = (n / self.outputs, group * self.outputs + n % self.outputs);
                        let end = part.len() + size;
                        if let Some(tap) = self.source.get(phase as usize).and_then(|taps| taps[tap as usize]) {
                            let at = (output * self.per_output + channel * self.taps + tap) as usize * from;
                            part.extend_from_slice(&w.bytes()[at..at + taken]);
                        }
                        part.resize(end, 0);
                    }
                }
                to(&part)?;
            }
        }
        ControlFlow::Continue(())
    }
}

/// Weights `G g Gᵀ` by place, panel, channel and output of the panel.
pub(super) struct Filters {
    pub transform: Transform,
    pub inputs: i64,
    pub lanes: i64,
    /// Vectors of outputs, and the pairs among them.
    pub out_vectors: i64,
    pub pairs: i64,
}

impl Filters {
    pub(super) fn of(self, w: &Tensor) -> Stored {
        let w = w.clone();
        Stored::made(DType::F32, vec![self.length()], move |to| to(&self.transformed(&w)))
    }

    fn length(&self) -> usize {
        (self.transform.places() * self.inputs * self.out_vectors * self.lanes) as usize
    }

    fn transformed(&self, w: &Tensor) -> Vec<u8> {
        let (filter, size, places) = (self.transform.filter(), self.transform.inputs(), self.transform.places());
        let (w, _) = w.bytes().as_chunks::<4>();
        let mut out = vec![[0; 4]; self.length()];
        for (o, i) in (0..self.out_vectors * self.lanes).flat_map(|o| (0..self.inputs).map(move |i| (o, i))) {
            let g = &w[((o * self.inputs + i) * 9) as usize..][..9];
            let g: [f64; 9] = std::array::from_fn(|t| f64::from(f32::from_le_bytes(g[t])));
            let panel = self.panel_of(o / self.lanes);
            for place in 0..places {
                let (row, column) = (&filter[(place / size) as usize], &filter[(place % size) as usize]);
                let x: f64 = (0..9).map(|t| row[t / 3] * g[t] * column[t % 3]).sum();
                let start = (place * self.out_vectors + panel.first) * self.lanes * self.inputs;
                let at = start + i * panel.vectors * self.lanes + o - panel.first * self.lanes;
                out[at as usize] = (x as f32).to_le_bytes();
            }
        }
        out.into_flattened()
    }

    /// The panel that a vector of outputs belongs to.
    fn panel_of(&self, vector: i64) -> Panels {
        if vector < 2 * self.pairs {
            Panels { first: vector / 2 * 2, vectors: 2, count: 1 }
        } else {
            Panels { first: 2 * self.pairs, vectors: self.out_vectors - 2 * self.pairs, count: 1 }
        }
    }
}
