//! Direct convolution in blocked layout: register tiles of a few pixels by a few vectors of output channels, over all
//! channels and taps. A unit is a block of rows of an image and some of the output channels; the part of the operand
//! that it reads stays in the cache. Pixels of a block are numbered consecutively, so that tiles need not end with a
//! row.
use crate::{
    arg::Arg,
    blocked::{
        Output,
        halo::Halo,
        products::{PixelTile, Products, most_pixels, tiles},
    },
    element::ElementEmitter,
    entry::Frame,
    gemm::{branch, once_per_block},
    pointwise::Kernel,
};
use numrsc_facts::sizes::ceil_div;
use numrsc_ir::{
    Dim, Value,
    kernel::{Binary, Compare, Kind, Ty, V, build::Builder},
};
use numrsc_schedule::{
    conv::{
        BlockedConv, Panels,
        direct::{TYPICAL_ROW, part},
    },
    epilogue::Epilogue,
    index::{linear, unravel},
    state::LowerState,
};
use std::collections::HashMap;

/// Pixels of a block from which the cost of reading weights does not matter.
const MIN_PIXELS: i64 = 60;
/// Units that balance several threads.
const UNITS: i64 = 16;
/// Taps along a row that are written out where there is one channel per block.
const WRITTEN_OUT: i64 = 16;

pub(super) struct Direct<'c> {
    conv: &'c BlockedConv,
    /// Spatial sizes of operand and result; one axis where pixels do not depend on rows.
    input: Vec<Dim>,
    output: Vec<Dim>,
    /// The halo copy of the windows' elements, if there is one.
    halo: Option<Halo>,
    /// Rows of a block at most, and number of blocks.
    rows: i64,
    blocks: Dim,
    /// Parts of the output channels.
    chunks: i64,
    /// Blocks of input channels per part; between parts, sums are in memory.
    part: i64,
    registers: i64,
}

/// Where a unit is: the names of its image and group, its first row, and its operand.
struct Unit<'o> {
    image: Dim,
    group: Dim,
    first_row: Dim,
    source: V,
    /// The position of `source` in the operand, unless it is a copy.
    start: Option<Dim>,
    output: &'o Output,
    weights: V,
    /// Memory for sums, if there are several parts or rows of the result are assembled.
    sums: Option<V>,
}

/// Some vectors of outputs that are summed up together: the first, and how many.
struct Panel {
    first: Dim,
    vectors: i64,
}

/// Where a pixel is read: an address, its position behind the unit's first element, and how many elements to go from
/// there.
struct Pixel {
    pointer: V,
    offset: Dim,
    behind: i64,
}

impl<'c> Direct<'c> {
    pub(super) fn new(conv: &'c BlockedConv, block_bytes: i64, state: &mut LowerState) -> Direct<'c> {
        let flat = !conv.padded && conv.taps() == 1 && conv.strides.iter().all(|&s| s == 1);
        // A negative `high` crops: then rows of the operand are longer than those of the result.
        // Rows of several phases are put together from whole rows.
        let flat = flat && conv.input == conv.output && (conv.phases.is_one() || !conv.plain);
        let merge = |d: &[Dim]| if flat { vec![Dim::product(d)] } else { d.to_vec() };
        let (input, output) = (merge(&conv.input), merge(&conv.output));
        let row_pixels = Dim::product(&output[1..]).as_const().unwrap_or(TYPICAL_ROW).max(1);
        let stride: i64 = if flat { 1 } else { conv.strides.iter().product() };
        let row_bytes = conv.in_blocks * conv.channels * conv.numbers.operand_bytes() * row_pixels * stride;
        let fitting = block_bytes / row_bytes.max(1);
        let enough = MIN_PIXELS.div_euclid(row_pixels) + 1;
        let mut rows = fitting.max(enough);
        if let Some(all) = output[0].as_const().filter(|&n| n > 0) {
            // An even number of blocks: two threads then have half of the rows each, in every convolution, and what
            // they read they wrote themselves.
            let least = if all * row_pixels < 2 * MIN_PIXELS { 1 } else { 2 };
            let blocks = ceil_div(all, rows).max(least);
            rows = ceil_div(all, if blocks > 1 { blocks + blocks % 2 } else { 1 });
        }
        let blocks = state.size(&output[0].ceil_div(&Dim::Const(rows)));
        let chunks = conv.chunks(&blocks, UNITS, conv.panels()[0].count);
        let halo = conv.padded.then(|| Halo::new(conv, rows));
        let part = part(conv);
        let registers = i64::from(state.context.machine.registers);
        Direct { conv, input, output, halo, rows, blocks, chunks, part, registers }
    }

    /// Bytes that every worker needs.
    pub(super) fn scratch(&self) -> Option<Dim> {
        let kinds = if self.conv.plain { 2 } else { 1 };
        let bytes = &self.copy_bytes() + &(&self.sum_bytes() * &Dim::Const(kinds));
        (bytes != Dim::ZERO).then_some(bytes)
    }

    /// Parts of the depth.
    fn parts(&self) -> i64 {
        self.conv.in_blocks / self.part
    }

    /// Are sums stored before their epilogue?
    fn keeps_sums(&self) -> bool {
        self.parts() > 1 || self.conv.plain
    }

    /// Slices of channels of a part.
    fn part_slices(&self) -> i64 {
        (self.part * self.conv.channels / self.conv.slice).min(self.conv.slices)
    }

    fn copy_bytes(&self) -> Dim {
        self.halo.as_ref().map_or(Dim::ZERO, Halo::bytes)
    }

    /// Bytes of the sums of a block of pixels and a panel.
    fn sum_bytes(&self) -> Dim {
        if !self.keeps_sums() {
            return Dim::ZERO;
        }
        let widest = self.conv.panels().iter().map(|p| p.vectors).max().unwrap_or(1);
        let pixels = &Dim::product(&self.output[1..]) * &Dim::Const(self.rows);
        &(&pixels * &Dim::Const(widest * self.conv.lanes * 4)).ceil_div(&Dim::Const(64)) * &Dim::Const(64)
    }

    pub(super) fn kernel(&self, state: &mut LowerState, frame: &Frame<'_>, epilogue: &Epilogue, weights: V) -> Kernel {
        let mut builder = Builder::new(Kind::Kernel, &[]);
        let [begin, end, worker] = [builder.params()[0], builder.params()[1], builder.params()[2]];
        let mut em = ElementEmitter::for_kernel(&mut builder, state, &frame.scope);
        let pointer = em.parameter(Ty::PTR, Arg::Output);
        let output = Output::new(&mut em, epilogue, pointer, self.conv);
        let weights = em.parameter(Ty::PTR, Arg::Entry(weights));
        let own = self.scratch().map(|bytes| {
            let scratch = em.parameter(Ty::PTR, Arg::Scratch);
            let stride = em.uniform(&bytes);
            let offset = em.b.mul(worker, stride);
            em.b.offset(scratch, offset)
        });
        let sums = own.filter(|_| self.keeps_sums()).map(|own| {
            let offset = em.uniform(&self.copy_bytes());
            em.b.offset(own, offset)
        });
        let conv = self.conv;
        let sizes = [conv.images.clone(), Dim::Const(conv.groups), self.blocks.clone(), Dim::Const(self.chunks)];
        let extent = Dim::product(&sizes);
        let number = em.variable(&extent);
        em.range(&number.clone(), begin, end, &[], |em, _| {
            let index = unravel(&Dim::sym(number.clone()), &sizes, &em.extents);
            let [image, group, block, chunk] = [0, 1, 2, 3].map(|i| em.named(&index[i]));
            let row_at = |block: &Dim| (block * &self.output[0]).floor_div(&self.blocks);
            let first_row = em.named(&row_at(&block));
            let end_row = em.named(&row_at(&(&block + &Dim::ONE)));
            let rows = em.named(&(&end_row - &first_row));
            let plane = self.source_plane(&image, &group);
            let (source, start) = match (&self.halo, own) {
                (Some(halo), Some(own)) => {
                    once_per_block(em, (begin, &number), &chunk, &mut |em| {
                        halo.fill(em, conv, own, &plane, &first_row, &rows);
                    });
                    (own, None)
                }
                _ => {
                    let row = &Dim::product(&self.input[1..]) * &Dim::Const(self.stride(0) * conv.channels);
                    let first = &plane + &(&first_row * &row);
                    let pointer = em.pointer_of(conv.x);
                    (em.element(pointer, &first, conv.numbers.operand_bytes()), Some(first))
                }
            };
            let unit = Unit { image, group, first_row, source, start, output: &output, weights, sums };
            let count = em.uniform(&(&rows * &Dim::product(&self.output[1..])));
            for panels in conv.panels() {
                self.panels(em, &unit, &panels, &chunk, count);
            }
            vec![]
        });
        let pixels = &Dim::product(&self.output[1..]) * &Dim::Const(self.rows);
        let work = &pixels * &Dim::Const(1 + conv.depth() * conv.out_vectors / self.chunks);
        let args = em.into_arguments();
        Kernel { function: builder.finish("conv_blocks", vec![]), args, extent, work, in_place: output.in_place }
    }

    fn stride(&self, axis: usize) -> i64 {
        self.conv.strides.get(axis).copied().unwrap_or(1)
    }

    /// The position of the first element of a group of an image.
    fn source_plane(&self, image: &Dim, group: &Dim) -> Dim {
        let conv = self.conv;
        let group_elements = &Dim::product(&conv.input) * &Dim::Const(conv.in_blocks * conv.channels);
        &(&(image * &Dim::Const(conv.groups)) + group) * &group_elements
    }

    /// All panels that belong to a part of the output channels.
    fn panels(&self, em: &mut ElementEmitter<'_>, unit: &Unit<'_>, panels: &Panels, chunk: &Dim, count: V) {
        let bound = |part: &Dim| (part * &Dim::Const(panels.count)).floor_div(&Dim::Const(self.chunks));
        let (low, high) = (em.uniform(&bound(chunk)), em.uniform(&bound(&(chunk + &Dim::ONE))));
        let open = em.b.open_for(&[]);
        let (vectors, first) = (em.b.i64(panels.vectors), em.b.i64(panels.first));
        let start = em.b.mul(open.var, vectors);
        let vector = em.b.add(start, first);
        let panel = Panel { first: em.name_of(vector), vectors: panels.vectors };
        let most = most_pixels(self.registers, panels.vectors);
        let all = |em: &mut ElementEmitter<'_>, part: &Dim| {
            tiles(em, count, self.block_pixels(), most, &mut |em, tile| {
                self.tile(em, unit, tile, &panel, part);
            });
        };
        match unit.sums {
            None => all(em, &Dim::ZERO),
            Some(sums) => self.by_parts(em, unit, sums, &panel, count, &all),
        }
        em.b.close_for(open, low, high, 1, vec![]);
    }

    /// All parts of the depth, one after the other for all pixels of a block. Rows of the result are put together when
    /// their sums are there.
    fn by_parts(
        &self,
        em: &mut ElementEmitter<'_>,
        unit: &Unit<'_>,
        sums: V,
        panel: &Panel,
        count: V,
        all: &dyn Fn(&mut ElementEmitter<'_>, &Dim),
    ) {
        let parts = Dim::Const(self.parts());
        let part = em.variable(&parts);
        em.carry(&[(part.clone(), parts)], &[], &mut |em, _| {
            all(em, &Dim::sym(part.clone()));
            vec![]
        });
        if !self.conv.plain {
            return;
        }
        let (open, none) = (em.b.open_for(&[]), em.b.i64(0));
        let pixel = em.name_of(open.var);
        let finished = self.sums_of(em, sums, &pixel, panel.vectors);
        let bytes = em.uniform(&self.sum_bytes());
        let rows = em.b.offset(sums, bytes);
        let count_name = em.name_of(count);
        self.to_rows(em, rows, &pixel, &count_name, &finished);
        em.b.close_for(open, none, count, 1, vec![]);
        self.store_rows(em, unit, rows, panel, &count_name);
    }

    /// Outputs of a panel that belong to a row each: all of its lanes, or with several phases all outputs.
    fn panel_rows(&self, vectors: i64) -> i64 {
        if self.conv.phases.is_one() { vectors * self.conv.lanes } else { self.conv.outputs }
    }

    /// Put the sums of a pixel where the rows of their outputs have them: phases lie side by side.
    fn to_rows(&self, em: &mut ElementEmitter<'_>, rows: V, pixel: &Dim, count: &Dim, sums: &[V]) {
        let (conv, phases) = (self.conv, &self.conv.phases);
        let per_output = self.panel_rows(sums.len() as i64);
        let row_pixels = count * &Dim::Const(phases.count());
        let step = unravel(pixel, &conv.output, &HashMap::new());
        // What is missing of the last vector, if that is the first as well.
        let all = if sums.len() as i64 == conv.out_vectors { phases.count() * conv.outputs } else { i64::MAX };
        for n in 0..all.min(sums.len() as i64 * conv.lanes) {
            let (phase, output) = (n / per_output, n % per_output);
            let at = if phases.is_one() {
                pixel.clone()
            } else {
                linear(&phases.pixel(&step, &phases.place(&Dim::Const(phase))), &phases.sizes)
            };
            let at = em.uniform(&(&(&row_pixels * &Dim::Const(output)) + &at));
            let x = em.b.extract(sums[(n / conv.lanes) as usize], (n % conv.lanes) as u32);
            em.b.store(rows, at, x);
        }
    }

    /// Runs the epilogue on the rows of a panel's outputs.
    fn store_rows(&self, em: &mut ElementEmitter<'_>, unit: &Unit<'_>, rows: V, panel: &Panel, count: &Dim) {
        let (conv, phases) = (self.conv, Dim::Const(self.conv.phases.count()));
        let first_output = &panel.first * &Dim::Const(conv.lanes);
        let (all, here) = (em.b.i64(self.panel_rows(panel.vectors)), &Dim::Const(conv.outputs) - &first_output);
        let here = em.uniform(&here);
        let here = em.b.binary(Binary::SMin, here, all);
        let first = &(&unit.first_row * &Dim::product(&self.output[1..])) * &phases;
        let length = count * &phases;
        let range = (em.uniform(&first), em.uniform(&(&first + &length)));
        let zero = em.b.i64(0);
        let open = em.b.open_for(&[]);
        let output = em.name_of(open.var);
        let channel = &(&(&unit.group * &Dim::Const(conv.outputs)) + &first_output) + &output;
        let position = em.uniform(&(&output * &length));
        unit.output.put_row(em, [&unit.image, &channel], range, rows, position);
        em.b.close_for(open, zero, here, 1, vec![]);
    }

    /// The address of the sum of a pixel and a vector of a panel.
    fn sum_at(&self, pixel: &Dim, vectors: i64, vector: i64) -> Dim {
        &(&(pixel * &Dim::Const(vectors)) + &Dim::Const(vector)) * &Dim::Const(self.conv.lanes)
    }

    /// The sums of a pixel that are in memory.
    fn sums_of(&self, em: &mut ElementEmitter<'_>, memory: V, pixel: &Dim, vectors: i64) -> Vec<V> {
        let ty = Ty::vector(self.conv.numbers.sum(), self.conv.lanes as u32);
        let load = |j| {
            let at = em.uniform(&self.sum_at(pixel, vectors, j));
            em.b.load(ty, memory, at)
        };
        (0..vectors).map(load).collect()
    }

    /// The numbers of pixels that blocks have, where they are known.
    fn block_pixels(&self) -> Option<[i64; 2]> {
        let (all, blocks) = (self.output[0].as_const()?, self.blocks.as_const()?.max(1));
        let row = Dim::product(&self.output[1..]).as_const()?;
        Some([all / blocks * row, ceil_div(all, blocks) * row])
    }

    /// The sizes of what is read: of the halo copy, or of the operand.
    fn source_sizes(&self) -> Vec<Dim> {
        self.halo.as_ref().map_or_else(|| self.input.clone(), |h| h.sizes.clone())
    }

    /// Elements between neighbours along each axis.
    fn pitches(&self) -> Vec<Dim> {
        let sizes = self.source_sizes();
        (0..sizes.len()).map(|d| &Dim::product(&sizes[d + 1..]) * &Dim::Const(self.conv.channels)).collect()
    }

    /// The address of a pixel of a block, apart from channels and taps.
    fn pixel(&self, em: &mut ElementEmitter<'_>, unit: &Unit<'_>, first: &Dim, number: i64) -> Pixel {
        let bytes = self.conv.numbers.operand_bytes();
        if self.output.len() == 1 {
            let step = self.conv.channels * self.stride(0);
            let offset = first * &Dim::Const(step);
            return Pixel { pointer: em.element(unit.source, &offset, bytes), offset, behind: number * step };
        }
        let mut sizes = self.output.clone();
        sizes[0] = Dim::Const(self.rows);
        let at = unravel(&(first + &Dim::Const(number)), &sizes, &em.extents);
        let each = at.iter().zip(self.pitches()).enumerate();
        let offset = each.fold(Dim::ZERO, |sum, (d, (i, pitch))| &sum + &(&(i * &Dim::Const(self.stride(d))) * &pitch));
        Pixel { pointer: em.element(unit.source, &offset, bytes), offset, behind: 0 }
    }

    /// Load an element that a pixel sees: that many elements behind its first, and some more.
    fn load(&self, em: &mut ElementEmitter<'_>, unit: &Unit<'_>, pixel: &Pixel, (at, behind): (V, V)) -> V {
        let first = em.b.i64(pixel.behind);
        let behind = em.b.add(first, behind);
        let numbers = self.conv.numbers;
        let pointer = em.elements_behind(pixel.pointer, at, numbers.operand_bytes());
        let ty = Ty::vector(numbers.operand(), numbers.at_once() as u32);
        let Some(start) = &unit.start else { return em.b.load(ty, pointer, behind) };
        if em.state.context.options.sanitize {
            let before = em.uniform(&(start + &pixel.offset));
            let position = em.b.add(before, at);
            let position = em.b.add(position, behind);
            let buffer = em.buffer_of(self.conv.x);
            let length = em.length(buffer);
            em.check_bounds(&length, position, ty.lanes, true);
        }
        em.b.load_fixed(ty, pointer, behind)
    }

    /// The products of a tile in a part of the depth.
    fn tile(&self, em: &mut ElementEmitter<'_>, unit: &Unit<'_>, tile: &PixelTile, panel: &Panel, part: &Dim) {
        let (conv, first, vectors) = (self.conv, &tile.first, panel.vectors);
        let places: Vec<Pixel> = (0..tile.pixels).map(|i| self.pixel(em, unit, first, i)).collect();
        let vector = &(&unit.group * &Dim::Const(conv.out_vectors)) + &panel.first;
        let before = &vector * &Dim::Const(conv.depth() * conv.lanes);
        let weights = em.element(unit.weights, &before, conv.numbers.weight_bytes());
        let products = self.products(em, weights, vectors, part);
        let mut load = |em: &mut ElementEmitter<'_>, i: i64, at: (V, V)| self.load(em, unit, &places[i as usize], at);
        let sums = products.sums(em, tile, &mut load);
        let Some(memory) = unit.sums else { return self.store(em, unit, first, panel, &sums) };
        // Each part has a sum of its own: rounding errors grow with the length of a sum.
        let ty = Ty::vector(conv.numbers.sum(), conv.lanes as u32);
        let at = |em: &mut ElementEmitter<'_>, n: usize| {
            let (i, j) = (n as i64 / vectors, n as i64 % vectors);
            em.uniform(&self.sum_at(&(first + &Dim::Const(i)), vectors, j))
        };
        let keep = |em: &mut ElementEmitter<'_>, sums: &[V]| {
            for (n, sum) in sums.iter().enumerate() {
                let at = at(em, n);
                em.b.store(memory, at, *sum);
            }
        };
        let (part, zero, last) = (em.uniform(part), em.b.i64(0), em.b.i64(self.parts() - 1));
        let is_first = em.b.compare(Compare::Eq, part, zero);
        let is_last = em.b.compare(Compare::Eq, part, last);
        let finishes = if conv.plain { em.b.bits(Ty::I1, 0) } else { is_last };
        branch(em, is_first, &mut |em, is_first| {
            if is_first {
                return keep(em, &sums);
            }
            let sums: Vec<V> = sums
                .iter()
                .enumerate()
                .map(|(n, sum)| {
                    let at = at(em, n);
                    let before = em.b.load(ty, memory, at);
                    em.b.add(before, *sum)
                })
                .collect();
            branch(em, finishes, &mut |em, finishes| match finishes {
                true => self.store(em, unit, first, panel, &sums),
                false => keep(em, &sums),
            });
        });
    }

    /// Products over the slices of channels of a part, and taps.
    fn products(&self, em: &mut ElementEmitter<'_>, weights: V, vectors: i64, part: &Dim) -> Products {
        let conv = self.conv;
        let (sizes, pitches) = (self.source_sizes(), self.pitches());
        let mut loops = Vec::new();
        let mut variable = |em: &mut ElementEmitter<'_>, count: Dim| {
            if count == Dim::ONE {
                return Dim::ZERO;
            }
            let s = em.variable(&count);
            loops.push((s.clone(), count));
            Dim::sym(s)
        };
        let last = conv.window.len() - 1;
        let by_tap = conv.channels == 1 && conv.window[last] <= WRITTEN_OUT;
        // Outside of the loops over taps: further inside, LLVM keeps an address in memory for every element.
        let per_block = Dim::Const(conv.channels / conv.slice);
        let [block, inside] = if conv.slices * conv.slice == conv.in_blocks * conv.channels {
            let block = variable(em, Dim::Const(self.part));
            [&(part * &Dim::Const(self.part)) + &block, variable(em, per_block.clone())]
        } else {
            let each = Dim::Const(self.part_slices());
            let before = part * &each;
            let slice = &before + &variable(em, (&Dim::Const(conv.slices) - &before).lesser(&each));
            let block = slice.floor_div(&per_block);
            let inside = &slice - &(&block * &per_block);
            [block, inside]
        };
        let first = &inside * &Dim::Const(conv.slice);
        let mut x_at = &(&block * &(&Dim::product(&sizes) * &Dim::Const(conv.channels))) + &first;
        let mut w_at = &(&block * &per_block) + &inside;
        for (d, &n) in conv.window.iter().enumerate() {
            let tap = if by_tap && d == last { Dim::ZERO } else { variable(em, Dim::Const(n)) };
            w_at = &(&w_at * &Dim::Const(n)) + &tap;
            if n > 1 {
                x_at = &x_at + &(&(&tap * &Dim::Const(conv.dilations[d])) * &pitches[d]);
            }
        }
        let w_at = &w_at * &Dim::Const(conv.slice * vectors * conv.lanes);
        let (steps, x_step) = match by_tap {
            true if conv.window[last] > 1 => (conv.window[last], &pitches[last] * &Dim::Const(conv.dilations[last])),
            true => (1, Dim::ZERO),
            false => (conv.slice / conv.numbers.at_once(), Dim::Const(conv.numbers.at_once())),
        };
        let round = self.part_slices() * conv.slice * conv.taps() * vectors * conv.lanes;
        Products { loops, x_at, w_at, steps, x_step, weights, vectors, lanes: conv.lanes, numbers: conv.numbers, round }
    }

    /// The epilogue of a tile. A long one is a loop over the pixels, which reads their sums from memory.
    fn store(&self, em: &mut ElementEmitter<'_>, unit: &Unit<'_>, first: &Dim, panel: &Panel, sums: &[V]) {
        let vectors = panel.vectors as usize;
        if sums.len() == vectors || unit.output.unrolls(sums.len()) {
            let pixels = (0..).zip(sums.chunks(vectors));
            return pixels.for_each(|(i, sums)| self.store_pixel(em, unit, &(first + &Dim::Const(i)), panel, sums));
        }
        let ty = Ty::vector(self.conv.numbers.sum(), self.conv.lanes as u32);
        let memory = em.b.buffer(ty.elem, sums.len() as u32 * ty.lanes);
        let pixels = em.b.i64((sums.len() / vectors) as i64);
        for (i, sums) in (0..).zip(sums.chunks(vectors)) {
            for (j, &sum) in (0..).zip(sums) {
                let at = em.uniform(&self.sum_at(&Dim::Const(i), panel.vectors, j));
                em.b.store(memory, at, sum);
            }
        }
        let (open, none) = (em.b.open_for(&[]), em.b.i64(0));
        let pixel = em.name_of(open.var);
        let sums = self.sums_of(em, memory, &pixel, panel.vectors);
        self.store_pixel(em, unit, &(first + &pixel), panel, &sums);
        em.b.close_for(open, none, pixels, 1, vec![]);
    }

    /// The epilogue of a pixel.
    fn store_pixel(&self, em: &mut ElementEmitter<'_>, unit: &Unit<'_>, pixel: &Dim, panel: &Panel, sums: &[V]) {
        let (conv, phases) = (self.conv, &self.conv.phases);
        let before = &unit.first_row * &Dim::product(&self.output[1..]);
        let step = unravel(&(&before + pixel), &conv.output, &HashMap::new());
        for (j, &sum) in (0..).zip(sums) {
            // Vectors are numbered phase by phase.
            let each = Dim::Const(conv.out_vectors / phases.count());
            let sizes = [Dim::Const(phases.count()), each.clone()];
            let number = unravel(&(&panel.first + &Dim::Const(j)), &sizes, &HashMap::new());
            let index = phases.pixel(&step, &phases.place(&number[0]));
            let inside = if phases.exact { em.b.bits(Ty::I1, 1) } else { self.inside(em, &index) };
            let channel = &(&unit.group * &each) + &number[1];
            let index = [&[unit.image.clone(), channel], &index[..]].concat();
            branch(em, inside, &mut |em, inside| {
                if inside {
                    unit.output.put(em, index.clone(), sum);
                }
            });
        }
    }

    /// Is there such a pixel of the result?
    fn inside(&self, em: &mut ElementEmitter<'_>, index: &[Dim]) -> V {
        let yes = em.b.bits(Ty::I1, 1);
        index.iter().zip(&self.conv.phases.sizes).fold(yes, |all, (i, size)| {
            let (i, size) = (em.uniform(i), em.uniform(size));
            let fits = em.b.compare(Compare::ULt, i, size);
            em.b.and(all, fits)
        })
    }
}

impl ElementEmitter<'_> {
    /// A name for the value of an expression.
    pub(super) fn named(&mut self, d: &Dim) -> Dim {
        if d.as_const().is_some() || d.as_sym().is_some() {
            return d.clone();
        }
        let v = self.uniform(d);
        self.name_of(v)
    }

    /// A name for a number that is not negative.
    pub(super) fn name_of(&mut self, v: V) -> Dim {
        let name = self.fresh(false);
        self.symbols.insert(name.clone(), v);
        Dim::sym(name)
    }

    /// The address of the element of a buffer at a position, where elements have so many bytes.
    pub(super) fn element(&mut self, pointer: V, position: &Dim, bytes: i64) -> V {
        let bytes = self.uniform(&(position * &Dim::Const(bytes)));
        self.b.offset(pointer, bytes)
    }

    /// The address that many elements behind another.
    pub(super) fn elements_behind(&mut self, pointer: V, count: V, bytes: i64) -> V {
        let size = self.b.i64(bytes);
        let bytes = self.b.mul(count, size);
        self.b.offset(pointer, bytes)
    }

    /// The address of the elements of a node that are in memory in their order.
    pub(super) fn pointer_of(&mut self, v: Value) -> V {
        let buffer = self.buffer_of(v);
        self.pointer(buffer)
    }

    /// The larger of a number and `low`, but at most `high`.
    pub(super) fn clamp(&mut self, x: V, low: V, high: V) -> V {
        let x = self.b.binary(Binary::SMax, x, low);
        self.b.binary(Binary::SMin, x, high)
    }
}
