//! Convolutions in blocked layout: every load of a register tile is a whole vector of outputs or one element of a
//! pixel, and weights are packed in the order in which they are read. The pass `layout` chooses these convolutions.
mod depthwise;
mod direct;
mod halo;
mod packing;
mod products;
mod winograd;

use crate::{
    element::{ElementEmitter, Lane},
    entry::{Entry, Frame},
    epilogue::{Finish, Sink},
};
use depthwise::Depthwise;
use direct::Direct;
use numrsc_facts::Result;
use numrsc_ir::{
    Dim, Value,
    dim::Sym,
    kernel::{Elem, Ty, V},
};
use numrsc_schedule::{
    conv::{BlockedConv, choose::Schedule, weights},
    epilogue::Epilogue,
    index::unravel,
};
use winograd::Winograd;

/// Instructions of a tile's epilogue up to which it is unrolled over the pixels of the tile. Beyond, a single pixel
/// keeps the processor busy, and the code would be there again for every shape of tile and panel.
const MAX_UNROLLED: i64 = 128;

pub(crate) fn emit(entry: &mut Entry, frame: &mut Frame<'_>, epilogue: &Epilogue) -> Result<()> {
    let conv = BlockedConv::new(&mut entry.state, &frame.scope, epilogue.product);
    let (kernel, scratch) = match Schedule::choose(&mut entry.state, &frame.scope, &conv, epilogue.product) {
        Schedule::Winograd { transform, tiles } => {
            let winograd = Winograd::new(&conv, transform, tiles, &mut entry.state);
            let packed = entry.place_weights(&winograd.packed_weights(weights(&frame.scope, conv.w)));
            (winograd.kernel(&mut entry.state, frame, epilogue, packed), Some(winograd.scratch()))
        }
        Schedule::Depthwise => {
            let packed = entry.place_weights(&packing::packed_weights(&conv, weights(&frame.scope, conv.w)));
            let depthwise = Depthwise::new(&conv, entry.state.context.machine.registers);
            (depthwise.kernel(&mut entry.state, frame, epilogue, packed), None)
        }
        Schedule::Direct { bytes } => {
            let packed = entry.place_weights(&packing::packed_weights(&conv, weights(&frame.scope, conv.w)));
            let direct = Direct::new(&conv, bytes, &mut entry.state);
            (direct.kernel(&mut entry.state, frame, epilogue, packed), direct.scratch())
        }
    };
    let output = entry.take_over_or_allocate(frame, epilogue.root, &kernel.in_place)?;
    let Some(bytes) = scratch else { return entry.launch(frame, kernel, output, None) };
    let (pointer, memory) = entry.scratch(frame, &bytes)?;
    entry.launch(frame, kernel, output, Some(pointer))?;
    entry.give_back(pointer, memory);
    Ok(())
}

/// Stores vectors of channels of the result, or rows of a plain result, through the epilogue of the convolution.
struct Output {
    sink: Sink,
    /// The names that axes of the result have there; without blocks: image, channel and pixel.
    axes: Vec<Sym>,
    pixels: Dim,
    lanes: i64,
    sum: Elem,
    /// The operands whose memory the result may reuse.
    in_place: Vec<Value>,
}

impl Output {
    fn new(em: &mut ElementEmitter<'_>, epilogue: &Epilogue, pointer: V, conv: &BlockedConv) -> Output {
        let shape = em.shape(epilogue.product);
        let pixels = Dim::product(&conv.phases.sizes);
        let sizes = if conv.plain { [&shape[..2], std::slice::from_ref(&pixels)].concat() } else { shape.clone() };
        let axes: Vec<Sym> = sizes.iter().map(|n| em.variable(n)).collect();
        let mut any: Vec<Dim> = axes.iter().cloned().map(Dim::sym).collect();
        if conv.plain {
            let pixel = any.remove(2);
            any.extend(unravel(&pixel, &shape[2..], &em.extents));
        }
        let (sink, in_place) = (epilogue.sink(em, pointer, &any), epilogue.in_place(em, &any));
        Output { sink, axes, pixels, lanes: conv.lanes, sum: conv.numbers.sum(), in_place }
    }

    /// Finish and store the pixels `first..end` of a channel without blocks; they are in memory from `position` on.
    fn put_row(&self, em: &mut ElementEmitter<'_>, channel: [&Dim; 2], (first, end): (V, V), memory: V, position: V) {
        let names = |s: &Sym| self.axes[..2].iter().position(|a| a == s).map(|a| channel[a].clone());
        let ty = Ty::vector(self.sum, self.lanes as u32);
        self.sink.put_row(em, (&self.axes[2], &names, &self.pixels), (first, end), (memory, position, ty));
    }

    /// Is the epilogue short enough to be unrolled for so many vectors?
    fn unrolls(&self, vectors: usize) -> bool {
        let times = if self.sink.scalars_only { self.lanes } else { 1 };
        self.sink.work() * times * vectors as i64 <= MAX_UNROLLED
    }

    /// Finish and store a vector at its index (without the place in the vector).
    fn put(&self, em: &mut ElementEmitter<'_>, mut index: Vec<Dim>, x: V) {
        let zero = em.b.i64(0);
        let lane = em.variable(&Dim::Const(self.lanes));
        em.symbols.insert(lane.clone(), zero);
        index.push(Dim::sym(lane.clone()));
        let names = |s: &Sym| self.axes.iter().position(|a| a == s).map(|a| index[a].clone());
        let outer = (em.lane.replace(Lane { sym: lane, base: zero, mask: None }), em.lanes);
        em.lanes = self.lanes as u32;
        if self.sink.scalars_only {
            (0..em.lanes).for_each(|l| em.in_lane(l, |em| self.sink.put(em, &names, x)));
        } else {
            self.sink.put(em, &names, x);
        }
        (em.lane, em.lanes) = outer;
    }
}
