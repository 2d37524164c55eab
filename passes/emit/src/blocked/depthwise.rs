//! Convolutions of every channel by itself: a vector of channels at a time, a few pixels of a row together, so that each element is loaded once per row
//! of the window and the weights stay in registers. Windows that are cut off by the borders leave out what lies outside, where possible when compiling.
use crate::{arg::Arg, blocked::Output, element::ElementEmitter, entry::Frame, pointwise::Kernel};
use numrsc_ir::{
    Dim,
    kernel::{Elem, Kind, Ty, V, build::Builder},
};
use numrsc_schedule::{conv::BlockedConv, epilogue::Epilogue, index::unravel, state::LowerState};
use std::collections::BTreeSet;

/// Pixels of a tile where the weights do not fit the registers anyway.
const PIXELS: i64 = 8;
/// Parts of the rows, at most and of how many rows: threads take parts of the rows, as in other convolutions, rather
/// than of the channels.
const PARTS: i64 = 4;
const PART_ROWS: i64 = 7;
/// Units that keep several threads busy.
const UNITS: i64 = 8;

pub(super) struct Depthwise<'c> {
    conv: &'c BlockedConv,
    input: [Dim; 2],
    output: [Dim; 2],
    window: [i64; 2],
    strides: [i64; 2],
    dilations: [i64; 2],
    low: [Dim; 2],
    registers: i64,
}

struct Unit<'o> {
    image: Dim,
    block: Dim,
    /// The position of the block in the operand.
    plane: Dim,
    operand: V,
    elements: Dim,
    weights: V,
    output: &'o Output,
}

/// A row of outputs; `whole` if its windows are not cut off above or below.
#[derive(Clone, Copy)]
struct Row<'d> {
    number: &'d Dim,
    whole: bool,
}

/// Some pixels of a row, one after the other.
struct PixelRun {
    first: Dim,
    pixels: i64,
    taps: Taps,
}

/// Which taps of a tile's windows are there, along the row.
#[derive(Clone, Copy, PartialEq)]
enum Taps {
    All,
    /// Those inside, for a tile at this pixel.
    Known(i64),
    /// Decided at run time, for one pixel.
    Found,
}

impl<'c> Depthwise<'c> {
    pub(super) fn new(conv: &'c BlockedConv, registers: u32) -> Depthwise<'c> {
        // A row alone is an image of one row.
        fn two<T: Clone>(list: &[T], other: T) -> [T; 2] {
            if let [a, b] = list { [a.clone(), b.clone()] } else { [other, list[0].clone()] }
        }
        Depthwise {
            conv,
            input: two(&conv.input, Dim::ONE),
            output: two(&conv.output, Dim::ONE),
            window: two(&conv.window, 1),
            strides: two(&conv.strides, 1),
            dilations: two(&conv.dilations, 1),
            low: two(&conv.low, Dim::ZERO),
            registers: i64::from(registers),
        }
    }

    fn taps(&self) -> i64 {
        self.window[0] * self.window[1]
    }

    /// Are all weights in registers, and all taps unrolled?
    fn is_small(&self) -> bool {
        self.taps() + 5 <= self.registers
    }

    /// Accumulators take the registers that weights leave. There is none for an element then, but it costs less to read
    /// a weight or two from memory.
    fn pixels(&self) -> i64 {
        if self.is_small() { (self.registers - self.taps()).min(PIXELS) } else { PIXELS }
    }

    pub(super) fn kernel(&self, state: &mut LowerState, frame: &Frame<'_>, epilogue: &Epilogue, weights: V) -> Kernel {
        let mut builder = Builder::new(Kind::Kernel, &[]);
        let [begin, end] = [builder.params()[0], builder.params()[1]];
        let mut em = ElementEmitter::for_kernel(&mut builder, state, &frame.scope);
        let pointer = em.parameter(Ty::PTR, Arg::Output);
        let output = Output::new(&mut em, epilogue, pointer, self.conv);
        let weights = em.parameter(Ty::PTR, Arg::Entry(weights));
        let conv = self.conv;
        let rows = self.output[0].as_const().map_or(PARTS, |n| n / PART_ROWS);
        let parts = Dim::Const(if conv.groups >= UNITS { rows.clamp(1, PARTS) } else { PARTS });
        let sizes = [conv.images.clone(), parts.clone(), Dim::Const(conv.groups)];
        let extent = Dim::product(&sizes);
        let number = em.variable(&extent);
        em.range(&number.clone(), begin, end, &[], |em, _| {
            let index = unravel(&Dim::sym(number.clone()), &sizes, &em.extents);
            let [image, part, block] = [0, 1, 2].map(|i| em.named(&index[i]));
            let plane = &(&(&image * &Dim::Const(conv.groups)) + &block)
                * &(&Dim::product(&self.input) * &Dim::Const(conv.lanes));
            let operand = em.pointer_of(conv.x);
            let buffer = em.buffer_of(conv.x);
            let elements = em.length(buffer);
            let unit = Unit { image, block, plane, operand, elements, weights, output: &output };
            let row_at = |part: &Dim| (part * &self.output[0]).floor_div(&parts);
            let (first, last) = (em.uniform(&row_at(&part)), em.uniform(&row_at(&(&part + &Dim::ONE))));
            let (from, to) = self.whole(em, 0);
            let (from, to) = (em.clamp(from, first, last), em.clamp(to, first, last));
            for (low, high, whole) in [(first, from, false), (from, to, true), (to, last, false)] {
                let row = em.variable(&self.output[0]);
                em.range(&row.clone(), low, high, &[], |em, _| {
                    self.row(em, &unit, Row { number: &Dim::sym(row.clone()), whole });
                    vec![]
                });
            }
            vec![]
        });
        let work = &Dim::product(&self.output).floor_div(&parts) * &Dim::Const(self.taps());
        let args = em.into_arguments();
        Kernel { function: builder.finish("conv_depthwise", vec![]), args, extent, work, in_place: output.in_place }
    }

    /// The range of outputs along an axis whose windows lie inside the operand.
    fn whole(&self, em: &mut ElementEmitter<'_>, axis: usize) -> (V, V) {
        let (from, to) = self.whole_range(axis);
        let (zero, count) = (em.b.i64(0), em.uniform(&self.output[axis]));
        let (from, to) = (em.uniform(&from), em.uniform(&to));
        let from = em.clamp(from, zero, count);
        (from, em.clamp(to, from, count))
    }

    fn whole_range(&self, axis: usize) -> (Dim, Dim) {
        let stride = Dim::Const(self.strides[axis]);
        let reach = Dim::Const((self.window[axis] - 1) * self.dilations[axis]);
        let last = &(&(&self.input[axis] - &Dim::ONE) + &self.low[axis]) - &reach;
        (self.low[axis].ceil_div(&stride), &last.floor_div(&stride) + &Dim::ONE)
    }

    /// All outputs of a row.
    fn row(&self, em: &mut ElementEmitter<'_>, unit: &Unit<'_>, row: Row<'_>) {
        if let Some(tiles) = self.known_tiles() {
            return self.known_row(em, unit, row, &tiles);
        }
        let (from, to) = self.whole(em, 1);
        let (zero, count, size) = (em.b.i64(0), em.uniform(&self.output[1]), em.b.i64(self.pixels()));
        let inner = em.b.sub(to, from);
        let left = em.b.urem(inner, size);
        let middle = em.b.sub(to, left);
        let parts = [
            (zero, from, 1, Taps::Found),
            (from, middle, self.pixels(), Taps::All),
            (middle, to, 1, Taps::All),
            (to, count, 1, Taps::Found),
        ];
        for (low, high, pixels, taps) in parts {
            let open = em.b.open_for(&[]);
            let first = em.name_of(open.var);
            self.tile(em, unit, row, &PixelRun { first, pixels, taps });
            em.b.close_for(open, low, high, pixels, vec![]);
        }
    }

    /// First pixel and size of tiles of almost equal size, if all of a row is known and only the first and the last are
    /// cut off.
    fn known_tiles(&self) -> Option<Vec<(i64, i64)>> {
        let count = self.output[1].as_const().filter(|&n| n > 0)?;
        self.low[1].as_const()?;
        let (from, to) = self.whole_range(1);
        let (from, to) = (from.as_const()?.clamp(0, count), to.as_const()?.clamp(0, count));
        let tiles = (count + self.pixels() - 1) / self.pixels();
        let starts: Vec<i64> = (0..=tiles).map(|t| t * count / tiles).collect();
        let list: Vec<(i64, i64)> = starts.windows(2).map(|w| (w[0], w[1] - w[0])).collect();
        let inner_whole = list.len() <= 2 || (from <= list[1].0 && list[list.len() - 1].0 <= to);
        inner_whole.then_some(list)
    }

    /// The first and the last tile on their own, loops over equal ones between them.
    fn known_row(&self, em: &mut ElementEmitter<'_>, unit: &Unit<'_>, row: Row<'_>, tiles: &[(i64, i64)]) {
        let known =
            |(first, pixels): (i64, i64)| PixelRun { first: Dim::Const(first), pixels, taps: Taps::Known(first) };
        self.tile(em, unit, row, &known(tiles[0]));
        let mut at = 1;
        while at + 1 < tiles.len() {
            let (start, size) = tiles[at];
            let run = tiles[at..tiles.len() - 1].iter().take_while(|t| t.1 == size).count();
            let (low, high) = (em.b.i64(start), em.b.i64(start + size * run as i64));
            let open = em.b.open_for(&[]);
            let tile = PixelRun { first: em.name_of(open.var), pixels: size, taps: Taps::All };
            self.tile(em, unit, row, &tile);
            em.b.close_for(open, low, high, size, vec![]);
            at += run;
        }
        if tiles.len() > 1 {
            self.tile(em, unit, row, &known(tiles[tiles.len() - 1]));
        }
    }

    fn tile(&self, em: &mut ElementEmitter<'_>, unit: &Unit<'_>, row: Row<'_>, tile: &PixelRun) {
        let ty = Ty::vector(Elem::F32, self.conv.lanes as u32);
        let zero = em.b.float(ty, 0.0);
        let mut sums = vec![zero; tile.pixels as usize];
        let top = &(row.number * &Dim::Const(self.strides[0])) - &self.low[0];
        if row.whole && self.is_small() {
            for tap in 0..self.window[0] {
                sums = self.tap_row(em, unit, (&top, &Dim::Const(tap)), tile, sums);
            }
        } else {
            let (low, high) = em.taps(&top, &self.input[0], self.window[0], self.dilations[0]);
            let tap = em.variable(&Dim::Const(self.window[0]));
            sums = em.range(&tap.clone(), low, high, &sums, |em, inside| {
                self.tap_row(em, unit, (&top, &Dim::sym(tap.clone())), tile, inside.to_vec())
            });
        }
        let at = |i: i64| -> Vec<Dim> {
            let space = [row.number.clone(), &tile.first + &Dim::Const(i)];
            let space = if self.conv.output.len() == 1 { &space[1..] } else { &space[..] };
            [&[unit.image.clone(), unit.block.clone()], space].concat()
        };
        sums.iter().enumerate().for_each(|(i, s)| unit.output.put(em, at(i as i64), *s));
    }

    /// Adds the contribution of one row of the window to all pixels of a tile.
    fn tap_row(
        &self,
        em: &mut ElementEmitter<'_>,
        unit: &Unit<'_>,
        (top, tap): (&Dim, &Dim),
        tile: &PixelRun,
        mut sums: Vec<V>,
    ) -> Vec<V> {
        let line = &(top + &(tap * &Dim::Const(self.dilations[0]))) * &self.input[1];
        let left = &(&tile.first * &Dim::Const(self.strides[1])) - &self.low[1];
        if tile.taps == Taps::Found {
            let (low, high) = em.taps(&left, &self.input[1], self.window[1], self.dilations[1]);
            let column = em.variable(&Dim::Const(self.window[1]));
            return em.range(&column.clone(), low, high, &sums, |em, inside| {
                let column = Dim::sym(column.clone());
                let x = self.element(em, unit, &line, &(&left + &(&column * &Dim::Const(self.dilations[1]))));
                let w = self.weight(em, unit, tap, &column);
                vec![em.b.muladd(x, w, inside[0])]
            });
        }
        let offset = |pixel: i64, column: i64| pixel * self.strides[1] + column * self.dilations[1];
        let pairs: Vec<(i64, i64)> =
            (0..sums.len() as i64).flat_map(|i| (0..self.window[1]).map(move |c| (i, c))).collect();
        let columns: BTreeSet<i64> = pairs.iter().map(|&(i, c)| offset(i, c)).collect();
        for at in columns {
            if let Taps::Known(first) = tile.taps {
                let column = &Dim::Const(first * self.strides[1] + at) - &self.low[1];
                let inside = Dim::ZERO.at_most(&column) == Some(true)
                    && column.at_most(&(&self.input[1] - &Dim::ONE)) == Some(true);
                if !inside {
                    continue;
                }
            }
            let x = self.element(em, unit, &line, &(&left + &Dim::Const(at)));
            for &(i, c) in pairs.iter().filter(|&&(i, c)| offset(i, c) == at) {
                let w = self.weight(em, unit, tap, &Dim::Const(c));
                sums[i as usize] = em.b.muladd(x, w, sums[i as usize]);
            }
        }
        sums
    }

    /// A vector of the operand.
    fn element(&self, em: &mut ElementEmitter<'_>, unit: &Unit<'_>, line: &Dim, column: &Dim) -> V {
        let lanes = self.conv.lanes;
        let at = em.uniform(&(&unit.plane + &(&(line + column) * &Dim::Const(lanes))));
        em.check_bounds(&unit.elements, at, lanes as u32, true);
        em.b.load_fixed(Ty::vector(Elem::F32, lanes as u32), unit.operand, at)
    }

    fn weight(&self, em: &mut ElementEmitter<'_>, unit: &Unit<'_>, tap: &Dim, column: &Dim) -> V {
        let lanes = self.conv.lanes;
        let number = &(&(&unit.block * &Dim::Const(self.taps())) + &(tap * &Dim::Const(self.window[1]))) + column;
        let at = em.uniform(&(&number * &Dim::Const(lanes)));
        em.b.load_fixed(Ty::vector(Elem::F32, lanes as u32), unit.weights, at)
    }
}
