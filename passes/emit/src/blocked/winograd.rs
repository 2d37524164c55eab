//! Winograd's F(2x2, 3x3), 16 products per channel for 4 outputs instead of 36, and F(4x4, 3x3), 36 for 16 instead of
//! 144. Tiles of outputs are processed in blocks: their elements are transformed into memory of the worker, multiplied
//! by the transformed weights (one matrix per position in a transformed tile), and transformed back.
use crate::{
    arg::Arg,
    blocked::{
        Output,
        packing::Filters,
        products::{Products, most_pixels, tiles},
    },
    element::ElementEmitter,
    entry::Frame,
    gemm::once_per_block,
    pointwise::Kernel,
    weights::Stored,
};
use numrsc_facts::sizes::ceil_div;
use numrsc_ir::{
    Dim, Tensor,
    kernel::{Compare, Elem, Kind, Ty, V, build::Builder},
};
use numrsc_schedule::{
    conv::{
        BlockedConv,
        numbers::{MAX_STEPS, Numbers},
        transform::Transform,
    },
    epilogue::Epilogue,
    index::unravel,
    state::LowerState,
};
use std::collections::HashMap;

/// Units that keep several threads busy.
const UNITS: i64 = 8;
/// Products that are summed up one by one.
const SUMMED: i64 = 128;

pub(super) struct Winograd<'c> {
    conv: &'c BlockedConv,
    transform: Transform,
    /// Tiles along each axis, and in all.
    grid: [Dim; 2],
    count: Dim,
    /// Tiles of a block at most, and number of blocks.
    most: i64,
    blocks: Dim,
    /// Parts of the output channels.
    chunks: i64,
    registers: i64,
}

/// A block of tiles: its image and first tile, and the memory of the worker.
struct Unit<'o> {
    image: Dim,
    /// Its tiles: the first, and how many.
    first: Dim,
    count: V,
    /// What the tiles see, transformed; and products.
    seen: V,
    sums: V,
    weights: V,
    output: &'o Output,
}

impl<'c> Winograd<'c> {
    pub(super) fn new(
        conv: &'c BlockedConv,
        transform: Transform,
        mut most: i64,
        state: &mut LowerState,
    ) -> Winograd<'c> {
        let grid = [0, 1].map(|d| state.size(&conv.output[d].ceil_div(&Dim::Const(transform.outputs()))));
        let count = Dim::product(&grid);
        if let Some(n) = count.as_const() {
            // Blocks of equal size.
            let blocks = (n + most - 1) / most;
            most = (n + blocks - 1) / blocks;
        }
        let blocks = state.size(&count.ceil_div(&Dim::Const(most)));
        // What is left of the pairs belongs to no part.
        let most_chunks = if conv.out_vectors % 2 == 0 { conv.out_vectors / 2 } else { 1 };
        let chunks = conv.chunks(&blocks, UNITS, most_chunks);
        let registers = i64::from(state.context.machine.registers);
        Winograd { conv, transform, grid, count, most, blocks, chunks, registers }
    }

    pub(super) fn packed_weights(&self, w: &Tensor) -> Stored {
        let BlockedConv { in_blocks, lanes, out_vectors, .. } = *self.conv;
        let (transform, inputs, pairs) = (self.transform, in_blocks * lanes, self.pairs());
        Filters { transform, inputs, lanes, out_vectors, pairs }.of(w)
    }

    /// Pairs of vectors of outputs.
    fn pairs(&self) -> i64 {
        self.conv.panels().iter().filter(|p| p.vectors == 2).map(|p| p.count).sum()
    }

    /// Vectors of outputs that are left of the pairs.
    fn odd(&self) -> i64 {
        self.conv.out_vectors - 2 * self.pairs()
    }

    /// Vectors of outputs of a part at most.
    fn part(&self) -> i64 {
        (self.pairs() + self.chunks - 1) / self.chunks * 2 + self.odd()
    }

    /// Elements of the two kinds of memory of a worker.
    fn sizes(&self) -> [i64; 2] {
        [self.conv.in_blocks, self.part()].map(|n| self.transform.places() * n * self.most * self.conv.lanes)
    }

    /// Bytes that every worker needs.
    pub(super) fn scratch(&self) -> Dim {
        Dim::Const(self.sizes().iter().sum::<i64>() * 4)
    }

    pub(super) fn kernel(&self, state: &mut LowerState, frame: &Frame<'_>, epilogue: &Epilogue, weights: V) -> Kernel {
        let mut builder = Builder::new(Kind::Kernel, &[]);
        let [begin, end, worker] = [builder.params()[0], builder.params()[1], builder.params()[2]];
        let mut em = ElementEmitter::for_kernel(&mut builder, state, &frame.scope);
        let pointer = em.parameter(Ty::PTR, Arg::Output);
        let output = Output::new(&mut em, epilogue, pointer, self.conv);
        let weights = em.parameter(Ty::PTR, Arg::Entry(weights));
        let scratch = em.parameter(Ty::PTR, Arg::Scratch);
        let stride = em.uniform(&self.scratch());
        let own = em.b.mul(worker, stride);
        let seen = em.b.offset(scratch, own);
        let sums = em.element(seen, &Dim::Const(self.sizes()[0]), 4);
        let conv = self.conv;
        let sizes = [conv.images.clone(), self.blocks.clone(), Dim::Const(self.chunks)];
        let extent = Dim::product(&sizes);
        let number = em.variable(&extent);
        em.range(&number.clone(), begin, end, &[], |em, _| {
            let index = unravel(&Dim::sym(number.clone()), &sizes, &em.extents);
            let [image, block, chunk] = [0, 1, 2].map(|i| em.named(&index[i]));
            let tile_at = |block: &Dim| (block * &self.count).floor_div(&self.blocks);
            let first = em.named(&tile_at(&block));
            let last = em.named(&tile_at(&(&block + &Dim::ONE)));
            let count = em.uniform(&(&last - &first));
            let unit = Unit { image, first, count, seen, sums, weights, output: &output };
            let pair_at = |chunk: &Dim| (chunk * &Dim::Const(self.pairs())).floor_div(&Dim::Const(self.chunks));
            let pairs = [pair_at(&chunk), pair_at(&(&chunk + &Dim::ONE))].map(|d| em.named(&d));
            once_per_block(em, (begin, &number), &chunk, &mut |em| self.transform_inputs(em, &unit));
            self.multiply(em, &unit, &pairs);
            self.transform_outputs(em, &unit, &pairs);
            vec![]
        });
        let work = Dim::Const(self.transform.places() * self.most * conv.in_blocks * conv.lanes * self.part());
        let args = em.into_arguments();
        let name = format!("conv_winograd_{0}x{0}", self.transform.outputs());
        Kernel { function: builder.finish(&name, vec![]), args, extent, work, in_place: output.in_place }
    }

    /// Loops over the tiles of a block: the tile's number in the block and its first output.
    fn for_tiles(
        &self,
        em: &mut ElementEmitter<'_>,
        unit: &Unit<'_>,
        body: &mut dyn FnMut(&mut ElementEmitter<'_>, &Dim, [Dim; 2]),
    ) {
        let zero = em.b.i64(0);
        let open = em.b.open_for(&[]);
        let tile = em.name_of(open.var);
        let place = unravel(&(&unit.first + &tile), &self.grid, &HashMap::new());
        let corner = [0, 1].map(|d| em.named(&(&place[d] * &Dim::Const(self.transform.outputs()))));
        body(em, &tile, corner);
        em.b.close_for(open, zero, unit.count, 1, vec![]);
    }

    fn vector(&self) -> Ty {
        Ty::vector(Elem::F32, self.conv.lanes as u32)
    }

    /// The position of a vector in memory of the worker: by place, vector of channels (of `vectors`) and tile.
    fn held(&self, place: i64, vector: &Dim, vectors: i64, tile: &Dim) -> Dim {
        let row = &Dim::Const(place * vectors) + vector;
        &(&(&row * &Dim::Const(self.most)) + tile) * &Dim::Const(self.conv.lanes)
    }

    fn transform_inputs(&self, em: &mut ElementEmitter<'_>, unit: &Unit<'_>) {
        let conv = self.conv;
        self.for_tiles(em, unit, &mut |em, tile, corner| {
            let start = [0, 1].map(|d| &corner[d] - &conv.low[d]);
            let mut inside = em.b.bits(Ty::I1, 1);
            for (start, size) in start.iter().zip(&conv.input) {
                let (first, zero) = (em.uniform(start), em.b.i64(0));
                let (end, size) = (em.uniform(&(start + &Dim::Const(self.transform.inputs()))), em.uniform(size));
                let (low, high) = (em.b.compare(Compare::Le, zero, first), em.b.compare(Compare::Le, end, size));
                let fits = em.b.and(low, high);
                inside = em.b.and(inside, fits);
            }
            em.b.open_branch();
            self.transform_input(em, unit, tile, &start, false);
            let then = em.b.close_branch(vec![]);
            em.b.open_branch();
            self.transform_input(em, unit, tile, &start, true);
            let or = em.b.close_branch(vec![]);
            em.b.close_if(inside, then, or);
        });
    }

    /// `Bᵀ d B` of what a tile sees, for all channels; `cut` if a part of it lies outside.
    fn transform_input(&self, em: &mut ElementEmitter<'_>, unit: &Unit<'_>, tile: &Dim, start: &[Dim; 2], cut: bool) {
        let conv = self.conv;
        let operand = em.pointer_of(conv.x);
        let buffer = em.buffer_of(conv.x);
        let elements = em.length(buffer);
        let block = em.variable(&Dim::Const(conv.in_blocks));
        em.carry(&[(block.clone(), Dim::Const(conv.in_blocks))], &[], &mut |em, _| {
            let block = Dim::sym(block.clone());
            let plane = &(&unit.image * &Dim::Const(conv.in_blocks)) + &block;
            let size = self.transform.inputs();
            let element = |em: &mut ElementEmitter<'_>, row: i64, column: i64| {
                let at = [&start[0] + &Dim::Const(row), &start[1] + &Dim::Const(column)];
                let position = &(&(&plane * &conv.input[0]) + &at[0]) * &conv.input[1];
                let position = &(&position + &at[1]) * &Dim::Const(conv.lanes);
                self.input(em, operand, &elements, &position, cut.then_some(&at))
            };
            let half: Vec<Vec<V>> = (0..size)
                .map(|column| {
                    let seen: Vec<V> = (0..size).map(|row| element(em, row, column)).collect();
                    self.transform.input(&seen, &mut |terms| combine(em, terms))
                })
                .collect();
            for row in 0..size {
                let line: Vec<V> = half.iter().map(|column| column[row as usize]).collect();
                let line = self.transform.input(&line, &mut |terms| combine(em, terms));
                for (column, x) in (0..size).zip(line) {
                    let at = self.held(row * size + column, &block, conv.in_blocks, tile);
                    let at = em.uniform(&at);
                    em.b.store(unit.seen, at, x);
                }
            }
            vec![]
        });
    }

    /// A vector of the operand, or zeros if its index may lie outside and does.
    fn input(
        &self,
        em: &mut ElementEmitter<'_>,
        operand: V,
        elements: &Dim,
        position: &Dim,
        at: Option<&[Dim; 2]>,
    ) -> V {
        let position = em.uniform(position);
        let load = |em: &mut ElementEmitter<'_>| {
            em.check_bounds(elements, position, self.conv.lanes as u32, true);
            em.b.load_fixed(self.vector(), operand, position)
        };
        let Some(at) = at else { return load(em) };
        let mut inside = em.b.bits(Ty::I1, 1);
        for (at, size) in at.iter().zip(&self.conv.input) {
            let (at, size) = (em.uniform(at), em.uniform(size));
            let fits = em.b.compare(Compare::ULt, at, size);
            inside = em.b.and(inside, fits);
        }
        let zero = em.b.float(self.vector(), 0.0);
        em.b.open_branch();
        let x = load(em);
        let then = em.b.close_branch(vec![x]);
        em.b.open_branch();
        let or = em.b.close_branch(vec![zero]);
        em.b.close_if(inside, then, or)[0]
    }

    /// For every place of a transformed tile, the product of all tiles and some panels.
    fn multiply(&self, em: &mut ElementEmitter<'_>, unit: &Unit<'_>, pairs: &[Dim; 2]) {
        let (low, high) = (em.uniform(&pairs[0]), em.uniform(&pairs[1]));
        let places = Dim::Const(self.transform.places());
        let place = em.variable(&places);
        em.carry(&[(place.clone(), places)], &[], &mut |em, _| {
            let place = Dim::sym(place.clone());
            let open = em.b.open_for(&[]);
            let first = &em.name_of(open.var) * &Dim::Const(2);
            self.panel(em, unit, &place, &first, &(&first - &(&pairs[0] * &Dim::Const(2))), 2);
            em.b.close_for(open, low, high, 1, vec![]);
            if self.odd() > 0 {
                let first = Dim::Const(2 * self.pairs());
                self.panel(em, unit, &place, &first, &first, self.odd());
            }
            vec![]
        });
    }

    /// The product of all tiles and a panel, from vector `first` on; its sums are from vector `first_sum` of the part
    /// on.
    fn panel(
        &self,
        em: &mut ElementEmitter<'_>,
        unit: &Unit<'_>,
        place: &Dim,
        first: &Dim,
        first_sum: &Dim,
        vectors: i64,
    ) {
        let conv = self.conv;
        let lanes = conv.lanes;
        let start = &(place * &Dim::Const(conv.out_vectors)) + first;
        let weights = em.element(unit.weights, &(&start * &Dim::Const(conv.in_blocks * lanes * lanes)), 4);
        let row =
            |vector: &Dim, vectors: i64| &(&(place * &Dim::Const(vectors)) + vector) * &Dim::Const(self.most * lanes);
        let seen = em.element(unit.seen, &row(&Dim::ZERO, conv.in_blocks), 4);
        let sums = em.element(unit.sums, &row(first_sum, self.part()), 4);
        let each = summed_blocks(conv);
        let most = most_pixels(self.registers, vectors);
        tiles(em, unit.count, self.block_tiles(), most, &mut |em, tile| {
            let first = &tile.first;
            let pointer = em.element(seen, &(first * &Dim::Const(lanes)), 4);
            let add_part = |em: &mut ElementEmitter<'_>, part: &Dim, is_first: bool| {
                let (steps, block) = (lanes.min(MAX_STEPS), em.variable(&Dim::Const(each)));
                let number = &(part * &Dim::Const(each)) + &Dim::sym(block.clone());
                let (mut loops, mut channel) = (vec![(block, Dim::Const(each))], Dim::ZERO);
                if steps < lanes {
                    let parts = Dim::Const(lanes / steps);
                    let part = em.variable(&parts);
                    channel = &Dim::sym(part.clone()) * &Dim::Const(steps);
                    loops.push((part, parts));
                }
                let products = Products {
                    numbers: Numbers::Float,
                    x_at: &(&number * &Dim::Const(self.most * lanes)) + &channel,
                    w_at: &(&(&number * &Dim::Const(lanes)) + &channel) * &Dim::Const(vectors * lanes),
                    loops,
                    steps,
                    x_step: Dim::ONE,
                    weights,
                    vectors,
                    lanes,
                    round: conv.in_blocks * lanes * vectors * lanes,
                };
                let results = products.sums(em, tile, &mut |em, i, (at, behind)| {
                    let first = em.b.i64(i * lanes);
                    let behind = em.b.add(first, behind);
                    let pointer = em.elements_behind(pointer, at, 4);
                    em.b.load(Ty::F32, pointer, behind)
                });
                for (n, mut sum) in results.into_iter().enumerate() {
                    let (i, j) = (n as i64 / vectors, n as i64 % vectors);
                    let at = &(&(first + &Dim::Const(i)) * &Dim::Const(lanes)) + &Dim::Const(j * self.most * lanes);
                    let at = em.uniform(&at);
                    if !is_first {
                        let before = em.b.load(self.vector(), sums, at);
                        sum = em.b.add(before, sum);
                    }
                    em.b.store(sums, at, sum);
                }
            };
            add_part(em, &Dim::ZERO, true);
            let parts = Dim::Const(conv.in_blocks / each);
            if parts != Dim::ONE {
                let part = em.variable(&parts);
                let (one, end) = (em.b.i64(1), em.uniform(&parts));
                em.range(&part.clone(), one, end, &[], |em, _| {
                    add_part(em, &Dim::sym(part.clone()), false);
                    vec![]
                });
            }
        });
    }

    /// The numbers of tiles that blocks have, where they are known.
    fn block_tiles(&self) -> Option<[i64; 2]> {
        let (all, blocks) = (self.count.as_const()?, self.blocks.as_const()?.max(1));
        Some([all / blocks, ceil_div(all, blocks)])
    }

    fn transform_outputs(&self, em: &mut ElementEmitter<'_>, unit: &Unit<'_>, pairs: &[Dim; 2]) {
        self.for_tiles(em, unit, &mut |em, tile, corner| {
            let zero = em.b.i64(0);
            let vectors = em.uniform(&(&(&(&pairs[1] - &pairs[0]) * &Dim::Const(2)) + &Dim::Const(self.odd())));
            let open = em.b.open_for(&[]);
            let vector = em.name_of(open.var);
            let size = self.transform.inputs();
            let sum = |em: &mut ElementEmitter<'_>, row: i64, column: i64| {
                let at = self.held(row * size + column, &vector, self.part(), tile);
                let at = em.uniform(&at);
                em.b.load(self.vector(), unit.sums, at)
            };
            let half: Vec<Vec<V>> = (0..size)
                .map(|column| {
                    let sums: Vec<V> = (0..size).map(|row| sum(em, row, column)).collect();
                    self.transform.output(&sums, &mut |terms| combine(em, terms))
                })
                .collect();
            let channel = &(&pairs[0] * &Dim::Const(2)) + &vector;
            for row in 0..self.transform.outputs() {
                let line: Vec<V> = half.iter().map(|column| column[row as usize]).collect();
                let line = self.transform.output(&line, &mut |terms| combine(em, terms));
                for (column, x) in (0..).zip(line) {
                    let at = [&corner[0] + &Dim::Const(row), &corner[1] + &Dim::Const(column)];
                    let index = vec![unit.image.clone(), channel.clone(), at[0].clone(), at[1].clone()];
                    let put = |em: &mut ElementEmitter<'_>| unit.output.put(em, index.clone(), x);
                    match self.may_be_outside(em, &at, [row, column]) {
                        None => put(em),
                        Some(inside) => {
                            em.b.open_branch();
                            put(em);
                            let then = em.b.close_branch(vec![]);
                            em.b.open_branch();
                            let or = em.b.close_branch(vec![]);
                            em.b.close_if(inside, then, or);
                        }
                    }
                }
            }
            em.b.close_for(open, zero, vectors, 1, vec![]);
        });
    }

    /// Whether there is an output at an index, where that is a question: the last tile of an axis may have fewer
    /// outputs.
    fn may_be_outside(&self, em: &mut ElementEmitter<'_>, at: &[Dim; 2], number: [i64; 2]) -> Option<V> {
        let mut all = None;
        for d in 0..2 {
            // Those that the last tile has, of all that a tile can have.
            let (size, outputs) = (self.conv.output[d].as_const(), self.transform.outputs());
            if number[d] == 0 || size.is_some_and(|n| number[d] <= (n - 1).rem_euclid(outputs)) {
                continue;
            }
            let (at, size) = (em.uniform(&at[d]), em.uniform(&self.conv.output[d]));
            let fits = em.b.compare(Compare::Lt, at, size);
            all = Some(all.map_or(fits, |before| em.b.and(before, fits)));
        }
        all
    }
}

/// Blocks of channels that are summed up by themselves, as errors of rounding grow with the length of a sum.
fn summed_blocks(conv: &BlockedConv) -> i64 {
    let most = (SUMMED / conv.lanes).clamp(1, conv.in_blocks);
    (1..=most).rev().find(|n| conv.in_blocks % n == 0).unwrap_or(1)
}

/// A sum of vectors with a factor each, which starts with one that needs none.
fn combine(em: &mut ElementEmitter<'_>, terms: &[(f64, V)]) -> V {
    let start = terms.iter().position(|(factor, _)| *factor == 1.0).unwrap_or(0);
    let (factor, x) = terms[start];
    let scale = |em: &mut ElementEmitter<'_>, factor: f64, x: V| em.b.float(em.b.ty(x), factor);
    let first = if factor == 1.0 {
        x
    } else {
        let factor = scale(em, factor, x);
        em.b.mul(x, factor)
    };
    let others = terms.iter().enumerate().filter(|(n, _)| *n != start);
    others.fold(first, |sum, (_, &(factor, x))| match factor {
        1.0 => em.b.add(sum, x),
        -1.0 => em.b.sub(sum, x),
        _ => {
            let factor = scale(em, factor, x);
            em.b.muladd(x, factor, sum)
        }
    })
}
