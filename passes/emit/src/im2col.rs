//! Convolutions as matrix products by im2col: the windows of a block of pixels are copied to memory of the worker that
//! stays in its cache. A convolution that sees one element per channel (1x1) needs no copy.
use crate::{
    arg::Arg,
    element::ElementEmitter,
    entry::{Entry, Frame},
    epilogue::Finish,
    gemm::{Gemm, once_per_block},
    pointwise::Kernel,
    tile::{MemoryOperand, Tile},
};
use numrsc_facts::{Result, sizes::ceil_div};
use numrsc_ir::{
    DType, Dim, Op, Scalar, ScalarFn, Value,
    dim::Sym,
    kernel::{Binary, Compare, Elem, Kind, Ty, V, build::Builder},
};
use numrsc_scalar as scalar;
use numrsc_schedule::{
    epilogue::Epilogue,
    index::unravel,
    operands::{narrow_operands, widened_weight},
    state::LowerState,
};
use std::collections::HashMap;

/// Elements of the im2col matrix of a block.
const PACKED: i64 = 1 << 16;
/// The same where memory is scarce.
const PACKED_ON_DEVICE: i64 = 1 << 11;
/// Output channels of a unit at most, so that threads can share a block of pixels.
const ROWS: i64 = 144;

pub(crate) fn emit(entry: &mut Entry, frame: &mut Frame<'_>, epilogue: &Epilogue) -> Result<()> {
    let conv = Im2col::new(&mut entry.state, frame, epilogue.product);
    if conv.sees_one_element() {
        let kernel = conv.direct(&mut entry.state, frame, epilogue);
        let output = entry.take_over_or_allocate(frame, epilogue.root, &kernel.in_place)?;
        return entry.launch(frame, kernel, output, None);
    }
    let (kernel, scratch) = conv.packing(&mut entry.state, frame, epilogue);
    let output = entry.take_over_or_allocate(frame, epilogue.root, &kernel.in_place)?;
    let (pointer, memory) = entry.scratch(frame, &scratch)?;
    entry.launch(frame, kernel, output, Some(pointer))?;
    entry.give_back(pointer, memory);
    Ok(())
}

/// Sizes and attributes of a convolution.
struct Im2col {
    x: Value,
    w: Value,
    dtype: DType,
    /// Of the operands in memory: integers may be narrower than their products.
    operand: DType,
    widen: Option<Scalar>,
    dot2: bool,
    images: Dim,
    channels: Dim,
    /// Input and output channels of a group.
    group_channels: Dim,
    group_outputs: Dim,
    groups: i64,
    input: Vec<Dim>,
    window: Vec<Dim>,
    output: Vec<Dim>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    spread: Vec<i64>,
    low: Vec<Dim>,
    high: Vec<Dim>,
}

/// The elements that a tap of the window reads for the pixels `from .. to` along the last axis.
struct Line {
    axis: usize,
    tap: Dim,
    /// Where the line starts in the operand, if it is `inside` of it.
    position: Dim,
    inside: V,
    /// Pixel `i` comes to `packed[shift + i]`.
    shift: V,
    from: V,
    to: V,
}

impl Im2col {
    fn new(state: &mut LowerState, frame: &Frame<'_>, v: Value) -> Im2col {
        let node = frame.scope.func.node(v);
        let Op::Conv { strides, dilations, spread, low, high, groups, .. } = &node.op else {
            unreachable!("a convolution")
        };
        let machine = state.context.machine;
        let narrow = narrow_operands(frame.scope.func, node);
        let [x, w] = narrow.unwrap_or([node.args[0], node.args[1]]);
        let mut shape = |v: Value| frame.scope.shape(v).iter().map(|d| state.size(d)).collect::<Vec<Dim>>();
        let (x_shape, w_shape, out_shape) = (shape(x), shape(w), shape(v));
        let outputs =
            w_shape[0].exact_div(&Dim::Const(*groups)).unwrap_or_else(|| w_shape[0].floor_div(&Dim::Const(*groups)));
        Im2col {
            x,
            w,
            dtype: frame.scope.dtype(v),
            operand: frame.scope.dtype(x),
            widen: narrow.map(|_| Scalar::convert(ScalarFn::Cast, DType::I32)),
            dot2: narrow.is_some() && machine.dot2 && [x, w].iter().all(|v| frame.scope.dtype(*v) != DType::U8),
            images: x_shape[0].clone(),
            channels: &w_shape[1] * &Dim::Const(*groups),
            group_channels: w_shape[1].clone(),
            group_outputs: state.size(&outputs),
            groups: *groups,
            input: x_shape[2..].to_vec(),
            window: w_shape[2..].to_vec(),
            output: out_shape[2..].to_vec(),
            strides: strides.clone(),
            dilations: dilations.clone(),
            spread: spread.clone(),
            low: low.iter().map(|d| state.attribute(d)).collect(),
            high: high.iter().map(|d| state.attribute(d)).collect(),
        }
    }

    /// Steps along the depth per instruction.
    fn at_once(&self) -> i64 {
        if self.dot2 { 2 } else { 1 }
    }

    fn sees_one_element(&self) -> bool {
        let ones = |v: &[i64]| v.iter().all(|&s| s == 1);
        let zero = |v: &[Dim]| v.iter().all(|d| *d == Dim::ZERO);
        self.window.iter().all(|d| *d == Dim::ONE)
            && ones(&self.strides)
            && ones(&self.spread)
            && zero(&self.low)
            && zero(&self.high)
    }

    fn pixels(&self) -> Dim {
        Dim::product(&self.output)
    }

    fn depth(&self) -> Dim {
        &self.group_channels * &Dim::product(&self.window)
    }

    /// The kernel of a 1x1 convolution: an image is a matrix already, with a row per channel and a column per pixel.
    fn direct(&self, state: &mut LowerState, frame: &Frame<'_>, epilogue: &Epilogue) -> Kernel {
        let mut builder = Builder::new(Kind::Kernel, &[]);
        let range = [builder.params()[0], builder.params()[1]];
        let mut em = ElementEmitter::for_kernel(&mut builder, state, &frame.scope);
        let output = em.parameter(Ty::PTR, Arg::Output);
        let (image, group) = (em.variable(&self.images), em.variable(&Dim::Const(self.groups)));
        let (row, column, depth) =
            (em.variable(&self.group_outputs), em.variable(&self.pixels()), em.variable(&self.group_channels));
        let sym = |s: &Sym| Dim::sym(s.clone());
        let channel = &(&sym(&group) * &self.group_channels) + &sym(&depth);
        let tile = Tile::new(em.state.context.machine, self.dtype, &self.pixels());
        let (panel, within) = (em.fresh(false), em.fresh(false));
        let pixel = &(&sym(&panel) * &Dim::Const(tile.width())) + &sym(&within);
        let b_position = &(&(&(&sym(&image) * &self.channels) + &channel) * &self.pixels()) + &pixel;
        let at = self.result((&image, &group), &row, &sym(&column), &em);
        let in_place = epilogue.in_place(&mut em, &at);
        let gemm = Gemm {
            a: self.weights(&mut em, &group, &row, &depth),
            b: self.place(&mut em, self.x, b_position),
            out: epilogue.sink(&mut em, output, &at),
            row,
            rows: self.group_outputs.clone(),
            most_rows: None,
            column,
            panel,
            within,
            columns: self.pixels(),
            depth: vec![(depth, self.group_channels.clone())],
            tile,
            at_once: self.at_once(),
            rectified: false,
        };
        let outer = vec![(image, self.images.clone()), (group, Dim::Const(self.groups))];
        let extent = gemm.units(&outer);
        let unit = em.variable(&extent);
        em.range(&unit.clone(), range[0], range[1], &[], |em, _| {
            gemm.unit(em, &outer, &unit);
            vec![]
        });
        let work = gemm.work();
        let args = em.into_arguments();
        Kernel { function: builder.finish("conv_1x1", vec![]), args, extent, work, in_place }
    }

    fn lanes(&self, em: &ElementEmitter<'_>) -> u32 {
        em.state.context.machine.lanes(scalar::number(self.dtype).size().max(scalar::memory(self.dtype).size()) as u32)
    }

    /// A view of a buffer at a position in it.
    fn place(&self, em: &mut ElementEmitter<'_>, v: Value, position: Dim) -> MemoryOperand {
        // Views of weights and images were given a buffer: their elements are in order.
        let widened = widened_weight(em.scope.func, v);
        let buffer = em.buffer_of(widened.map_or(v, |(constant, _)| constant));
        let widen = widened.map(|(_, f)| f.clone()).or_else(|| self.widen.clone());
        let (pointer, length, dtype) = (em.pointer(buffer), em.length(buffer), em.dtype(buffer));
        MemoryOperand { widen, ..MemoryOperand::fixed(pointer, dtype, position, length) }
    }

    fn weights(&self, em: &mut ElementEmitter<'_>, group: &Sym, row: &Sym, depth: &Sym) -> MemoryOperand {
        let channel = &(&Dim::sym(group.clone()) * &self.group_outputs) + &Dim::sym(row.clone());
        self.place(em, self.w, &(&channel * &self.depth()) + &Dim::sym(depth.clone()))
    }

    /// The index of the result.
    fn result(&self, (image, group): (&Sym, &Sym), row: &Sym, pixel: &Dim, em: &ElementEmitter<'_>) -> Vec<Dim> {
        let channel = &(&Dim::sym(group.clone()) * &self.group_outputs) + &Dim::sym(row.clone());
        let mut at = vec![Dim::sym(image.clone()), channel];
        at.extend(unravel(pixel, &self.output, &em.extents));
        at
    }

    /// Pack, then multiply; also the bytes that every worker needs.
    fn packing(&self, state: &mut LowerState, frame: &Frame<'_>, epilogue: &Epilogue) -> (Kernel, Dim) {
        let mut builder = Builder::new(Kind::Kernel, &[]);
        let [begin, end, worker] = [builder.params()[0], builder.params()[1], builder.params()[2]];
        let mut em = ElementEmitter::for_kernel(&mut builder, state, &frame.scope);
        let output = em.parameter(Ty::PTR, Arg::Output);
        let scratch = em.parameter(Ty::PTR, Arg::Scratch);
        let tile = Tile::new(em.state.context.machine, self.dtype, &self.pixels());
        let (lanes, width) = (tile.lanes, tile.width());
        let device = em.state.context.device;
        let packed_elements = if device { PACKED_ON_DEVICE } else { PACKED };
        let fitting = self.depth().as_const().map_or(width, |d| packed_elements / d.max(1));
        let block = (fitting / width).clamp(1, 8) * width;
        // Rows have an odd number of panels: with a power-of-two pitch, the rows of a panel would share a few sets of
        // the cache.
        let pitch = if device { block } else { ((block / width) | 1) * width };

        let elements = &(&self.depth() * &Dim::Const(pitch)) + &Dim::Const(i64::from(lanes));
        let bytes = &elements * &Dim::Const(scalar::memory(self.operand).size());
        let aligned = &bytes.ceil_div(&Dim::Const(64)) * &Dim::Const(64);
        let stride = em.uniform(&aligned);
        let own = em.b.mul(worker, stride);
        let packed = em.b.offset(scratch, own);

        let pixels = em.state.size(&self.pixels());
        let blocks = pixels.ceil_div(&Dim::Const(block));
        let blocks = em.state.size(&blocks);
        // An even number of units, for the sake of two threads.
        let pairs = |n: i64| ceil_div(n, 2 * ceil_div(n, 2 * ROWS));
        let most_rows = self.group_outputs.as_const().filter(|&n| n > ROWS).map_or(ROWS, pairs);
        let row_blocks = em.state.size(&self.group_outputs.ceil_div(&Dim::Const(most_rows)));
        let sizes = [self.images.clone(), Dim::Const(self.groups), blocks, row_blocks];
        let extent = Dim::product(&sizes);
        let unit = em.variable(&extent);
        let mut in_place = vec![];
        em.range(&unit.clone(), begin, end, &[], |em, _| {
            let index = unravel(&Dim::sym(unit.clone()), &sizes, &em.extents);
            let mut named = |d: &Dim| {
                let (v, name) = (em.uniform(d), em.fresh(false));
                em.symbols.insert(name.clone(), v);
                name
            };
            let (image, group) = (named(&index[0]), named(&index[1]));
            let first = named(&(&index[2] * &Dim::Const(block)));
            let (start, all, most) = (em.symbol(&first), em.uniform(&pixels), em.b.i64(block));
            let left = em.b.sub(all, start);
            let here = em.b.binary(Binary::SMin, left, most);
            let count = em.fresh(false);
            em.symbols.insert(count.clone(), here);
            once_per_block(em, (begin, &unit), &index[3], &mut |em| {
                self.pack(em, packed, pitch, (&image, &group), start, here);
            });

            let (row, column, depth) = (em.fresh(false), em.fresh(false), em.variable(&self.depth()));
            let (panel, within) = (em.fresh(false), em.fresh(false));
            let sym = |s: &Sym| Dim::sym(s.clone());
            let at = self.result((&image, &group), &row, &(&sym(&first) + &sym(&column)), em);
            in_place = epilogue.in_place(em, &at);
            let mut out = epilogue.sink(em, output, &at);
            out.scalars_only |= out.lanes(&self.pixels(), lanes) < lanes;
            let gemm = Gemm {
                a: self.weights(em, &group, &row, &depth),
                b: MemoryOperand {
                    pointer: packed,
                    dtype: self.operand,
                    position: &(&(&sym(&depth) * &Dim::Const(pitch)) + &(&sym(&panel) * &Dim::Const(width)))
                        + &sym(&within),
                    length: &self.depth() * &Dim::Const(pitch),
                    changes: true,
                    padded: true,
                    grouped: false,
                    widen: self.widen.clone(),
                },
                out,
                row,
                rows: self.group_outputs.clone(),
                most_rows: Some(most_rows),
                column,
                panel,
                within,
                columns: sym(&count),
                depth: vec![(depth, self.depth())],
                tile,
                at_once: self.at_once(),
                rectified: false,
            };
            let panels = em.uniform(&sym(&count).ceil_div(&Dim::Const(width)));
            gemm.block_by_panels(em, &index[3], panels);
            vec![]
        });
        let rows = self.group_outputs.as_const().map_or(most_rows, |n| n.min(most_rows));
        let work = &self.depth() * &Dim::Const(rows * (block / i64::from(lanes)));
        let args = em.into_arguments();
        (Kernel { function: builder.finish("conv", vec![]), args, extent, work, in_place }, bytes)
    }

    /// Fill `packed[depth][pixel]`, rows of `pitch` elements, for the pixels `start .. start + count` of an image and
    /// group.
    fn pack(
        &self,
        em: &mut ElementEmitter<'_>,
        packed: V,
        pitch: i64,
        (image, group): (&Sym, &Sym),
        start: V,
        count: V,
    ) {
        let space = self.output.len();
        let last = space.checked_sub(1);
        let line = last.map_or(Dim::ONE, |l| self.output[l].clone());
        let line_size = em.uniform(&line);
        let one = em.b.i64(1);
        let stop = em.b.add(start, count);
        let final_pixel = em.b.sub(stop, one);
        let (first_line, last_line) = (em.b.udiv(start, line_size), em.b.udiv(final_pixel, line_size));
        let end_line = em.b.add(last_line, one);

        // Channels and the taps of the window, in the order of the weights.
        let channel = em.variable(&self.group_channels);
        let taps: Vec<Sym> = self.window.iter().map(|n| em.variable(n)).collect();
        let mut loops = vec![(channel.clone(), self.group_channels.clone())];
        loops.extend(taps.iter().cloned().zip(self.window.iter().cloned()));
        let sym = |s: &Sym| Dim::sym(s.clone());
        let tap_index: Vec<Dim> = std::iter::once(&channel).chain(&taps).map(sym).collect();
        let tap_sizes: Vec<Dim> = std::iter::once(&self.group_channels).chain(&self.window).cloned().collect();
        let place = &numrsc_schedule::index::linear(&tap_index, &tap_sizes) * &Dim::Const(pitch);
        let plane = &(&(&sym(image) * &self.channels) + &(&sym(group) * &self.group_channels)) + &sym(&channel);
        let source = self.place(em, self.x, Dim::ZERO);
        em.carry(&loops, &[], &mut |em, _| {
            let target = em.uniform(&place);
            let number = em.fresh(false);
            em.range(&number.clone(), first_line, end_line, &[], |em, _| {
                // The pixels of this line: from..to along the last axis.
                let line_number = em.symbol(&number);
                let line_start = em.b.mul(line_number, line_size);
                let zero = em.b.i64(0);
                let (from, to) = (em.b.sub(start, line_start), em.b.sub(stop, line_start));
                let (from, to) = (em.b.binary(Binary::SMax, from, zero), em.b.binary(Binary::SMin, to, line_size));
                // packed[target + pixel - start] for pixel = line_start + i
                let shift = em.b.sub(line_start, start);
                let shift = em.b.add(target, shift);
                let outer = unravel(&sym(&number), &self.output[..last.unwrap_or(0)], &HashMap::new());
                let mut inside = em.b.bits(Ty::I1, 1);
                let mut position = plane.clone();
                for (d, o) in outer.iter().enumerate() {
                    let (at, fits) = self.seen(em, d, o, &sym(&taps[d]));
                    inside = em.b.and(inside, fits);
                    let name = em.fresh(true);
                    em.symbols.insert(name.clone(), at);
                    position = &(&position * &self.input[d]) + &Dim::sym(name);
                }
                let Some(last) = last else {
                    // No axes to slide over: one pixel, one tap.
                    let index = em.uniform(&position);
                    self.copy_run(em, &source, packed, (shift, index, 1), (from, from, to, to));
                    return vec![];
                };
                position = &position * &self.input[last];
                let tap = sym(&taps[last]);
                let line = Line { axis: last, tap, position, inside, shift, from, to };
                if self.spread[last] == 1 {
                    self.pack_line(em, &source, packed, &line);
                } else {
                    self.pack_sparse(em, &source, packed, &line);
                }
                vec![]
            });
            vec![]
        });
    }

    /// The position along an axis that a tap of the window of output `o` reads, and whether it is inside.
    fn seen(&self, em: &mut ElementEmitter<'_>, d: usize, o: &Dim, tap: &Dim) -> (V, V) {
        let at = &(&(o * &Dim::Const(self.strides[d])) - &self.low[d]) + &(tap * &Dim::Const(self.dilations[d]));
        let at = em.uniform(&at);
        let size = em.uniform(&self.input[d]);
        if self.spread[d] == 1 {
            return (at, em.b.compare(Compare::ULt, at, size));
        }
        let (spread, zero) = (em.b.i64(self.spread[d]), em.b.i64(0));
        let (quotient, remainder) = em.b.sdivrem(at, spread);
        let on_element = em.b.compare(Compare::Eq, remainder, zero);
        let below = em.b.compare(Compare::ULt, quotient, size);
        (quotient, em.b.and(on_element, below))
    }

    /// A line with elements `stride` apart: zeros, elements, zeros.
    fn pack_line(&self, em: &mut ElementEmitter<'_>, source: &MemoryOperand, packed: V, line: &Line) {
        let (d, from, to) = (line.axis, line.from, line.to);
        let (stride, tap) = (Dim::Const(self.strides[d]), &line.tap * &Dim::Const(self.dilations[d]));
        let before = &self.low[d] - &tap;
        let (low, high) = (before.ceil_div(&stride), (&self.input[d] + &before).ceil_div(&stride));
        let (low, high) = (em.uniform(&low), em.uniform(&high));
        let low = em.b.binary(Binary::SMax, low, from);
        let low = em.b.binary(Binary::SMin, low, to);
        let high = em.b.binary(Binary::SMax, high, low);
        let high = em.b.binary(Binary::SMin, high, to);
        let low = em.b.select(line.inside, low, to);
        let high = em.b.select(line.inside, high, to);
        let base = em.uniform(&(&(&line.position - &self.low[d]) + &tap));
        self.copy_run(em, source, packed, (line.shift, base, self.strides[d]), (from, low, high, to));
    }

    /// `packed[shift + i]` for `i` in `from..to`: `source[base + i * stride]` for those in `low..high`, and 0 for the
    /// others. Lines are filled in order, so vectors may go beyond their end: what is there comes later, or is never
    /// used.
    fn copy_run(
        &self,
        em: &mut ElementEmitter<'_>,
        source: &MemoryOperand,
        packed: V,
        (shift, base, stride): (V, V, i64),
        (from, low, high, to): (V, V, V, V),
    ) {
        let elem = scalar::memory(self.operand);
        let all = self.lanes(em);
        let zero = em.b.bits(Ty::scalar(elem), 0);
        let zeros = em.b.splat(zero, all);
        let fill = |em: &mut ElementEmitter<'_>, from: V, to: V| {
            let open = em.b.open_for(&[]);
            let at = em.b.add(shift, open.var);
            em.b.store(packed, at, zeros);
            em.b.close_for(open, from, to, i64::from(all), vec![]);
        };
        // Several elements at once, of which those before `high` exist.
        let copy = |em: &mut ElementEmitter<'_>, lanes: u32, ends: bool, from: V, to: V| {
            let open = em.b.open_for(&[]);
            let factor = em.b.i64(stride);
            let scaled = em.b.mul(open.var, factor);
            let (index, at) = (em.b.add(base, scaled), em.b.add(shift, open.var));
            let ty = Ty::vector(elem, lanes);
            let x = if ends {
                let left = em.b.sub(high, open.var);
                let (left, iota) = (em.b.splat(left, lanes), em.b.iota(Ty::vector(Elem::I64, lanes)));
                let there = em.b.compare(Compare::Lt, iota, left);
                em.b.load_fixed_masked(ty, source.pointer, index, there)
            } else {
                em.check_bounds(&source.length, index, lanes, true);
                em.b.load_fixed(ty, source.pointer, index)
            };
            em.b.store(packed, at, x);
            em.b.close_for(open, from, to, i64::from(lanes), vec![]);
        };
        fill(em, from, low);
        let mut middle = low;
        let lanes = if stride == 1 { all } else { 1 };
        if lanes > 1 {
            let count = em.b.sub(high, low);
            let step = em.b.i64(i64::from(lanes));
            let left = em.b.urem(count, step);
            middle = em.b.sub(high, left);
            copy(em, lanes, false, low, middle);
        }
        // A few elements are loaded at once where that is one instruction.
        let by_mask = lanes > 1 && em.state.context.machine.vector_bytes > 16 && !em.state.context.options.sanitize;
        copy(em, if by_mask { lanes } else { 1 }, by_mask, middle, high);
        fill(em, high, to);
    }

    /// A line with zeros between the elements.
    fn pack_sparse(&self, em: &mut ElementEmitter<'_>, source: &MemoryOperand, packed: V, line: &Line) {
        let elem = scalar::memory(self.operand);
        let zero = em.b.bits(Ty::scalar(elem), 0);
        let base = em.uniform(&line.position);
        let var = em.fresh(false);
        em.range(&var.clone(), line.from, line.to, &[], |em, _| {
            let (at, fits) = self.seen(em, line.axis, &Dim::sym(var.clone()), &line.tap);
            let fits = em.b.and(fits, line.inside);
            em.b.open_branch();
            let index = em.b.add(base, at);
            em.check_bounds(&source.length, index, 1, true);
            let x = em.b.load_fixed(Ty::scalar(elem), source.pointer, index);
            let then = em.b.close_branch(vec![x]);
            em.b.open_branch();
            let or = em.b.close_branch(vec![zero]);
            let x = em.b.close_if(fits, then, or)[0];
            let i = em.symbol(&var);
            let target = em.b.add(line.shift, i);
            em.b.store(packed, target, x);
            vec![]
        });
    }
}
