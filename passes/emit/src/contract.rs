//! Contractions as matrix products: the free axes of one operand are rows, those of the other columns, the paired axes
//! the depth (K).
use crate::{
    arg::Arg,
    element::{ElementEmitter, Local, View},
    entry::{Entry, Frame},
    epilogue::{Finish, Sink},
    gemm::Gemm,
    nest::Nest,
    nonzero::is_rectified,
    panels::PanelOrder,
    pointwise::{self, Kernel, Pointwise},
    tile::{MemoryOperand, Tile},
};
use numrsc_facts::{Result, constants::is_finite};
use numrsc_ir::{
    DType, Dim, Func, Op, Scalar, ScalarFn, Tensor, TensorType, Value,
    dim::Sym,
    kernel::{Compare, Kind, Ty, V, build::Builder},
};
use numrsc_scalar as scalar;
use numrsc_schedule::{
    epilogue::Epilogue,
    index::{linear, step, unravel},
    operands::{narrow_operands, widened_weight},
    product::{Axes, swaps},
};
use std::collections::HashMap;

/// Products with at most this many rows read an unpacked second operand, if its layout allows.
const FEW_ROWS: i64 = 8;
/// A second operand of at most this many bytes stays in the first-level cache, however few rows use it.
const NEAR_BYTES: i64 = 16 << 10;

pub(crate) fn emit(entry: &mut Entry, frame: &mut Frame<'_>, epilogue: &Epilogue) -> Result<()> {
    let product = Product::new(frame.scope.func, epilogue);
    let right = product.right(entry, frame)?;
    let kernel = product.kernel(entry, frame, &right);
    let output = entry.take_over_or_allocate(frame, epilogue.root, &kernel.in_place)?;
    entry.launch(frame, kernel, output, None)?;
    right.give_back(entry);
    Ok(())
}

/// How the second operand is read.
pub(super) struct Right {
    packed: Option<Packed>,
    /// The type in memory, if products widen the elements as they load them.
    widen: Option<(DType, Scalar)>,
}

impl Right {
    /// The packed operand as a parameter of a kernel.
    pub(super) fn parameter(&self, em: &mut ElementEmitter<'_>) -> Option<V> {
        let (Packed::Constant(pointer) | Packed::Memory(pointer, _)) = self.packed.as_ref()?;
        Some(em.parameter(Ty::PTR, Arg::Entry(*pointer)))
    }

    pub(super) fn is_packed(&self) -> bool {
        self.packed.is_some()
    }

    pub(super) fn give_back(self, entry: &mut Entry) {
        if let Some(Packed::Memory(pointer, memory)) = self.packed {
            entry.give_back(pointer, memory);
        }
    }
}

enum Packed {
    Constant(V),
    Memory(V, super::entry::Memory),
}

/// Are elements contiguous along the operand's last free axis?
fn consecutive(entry: &mut Entry, frame: &Frame<'_>, v: Value, axes: &Axes) -> bool {
    let mut builder = Builder::new(Kind::Kernel, &[]);
    let mut em = ElementEmitter::for_kernel(&mut builder, &mut entry.state, &frame.scope);
    let shape = em.shape(v);
    let index: Vec<Dim> =
        shape.iter().map(|d| if *d == Dim::ONE { Dim::ZERO } else { Dim::sym(em.variable(d)) }).collect();
    let (_, position) = em.resolve(v, &index);
    let last = axes.free.iter().rev().find(|&&a| shape[a] != Dim::ONE);
    if numrsc_schedule::index::is_tangled(&position, &em.extents) {
        return false;
    }
    last.and_then(|&a| index[a].as_sym().cloned()).is_some_and(|s| step(&position, &s) == Some(1))
}

/// A contraction with its operands as rows and columns.
pub(super) struct Product<'p> {
    pub epilogue: &'p Epilogue,
    pub left: (Value, Axes),
    right: (Value, Axes),
    swap: bool,
    /// Are both operands narrow integers that are widened as they are loaded?
    narrow: bool,
}

/// The sizes of a contraction by the role of their axes.
pub(super) struct Sizes {
    pub batch: Vec<Dim>,
    pub rows: Vec<Dim>,
    pub columns: Vec<Dim>,
    pub depth: Vec<Dim>,
}

/// The batch and row indices of a product as functions of loop variables, along one of which tiles go.
pub(super) struct RowNest<'r> {
    pub batch: &'r [Dim],
    pub index: &'r [Dim],
    pub row: Sym,
    pub count: Dim,
    /// An upper limit on the rows of a block, besides that of the product.
    pub most: Option<i64>,
}

/// The packed order of the second operand. For every batch and round of the outer loops over columns: panels of the
/// columns of the last loop; in each, for every step along the depth (or group of steps), the columns of a tile. The
/// steps of a group are adjacent for each column, padded with zeros. Columns beyond the end, in the last panel, are
/// undefined.
struct Panels {
    batch: Dim,
    outer: Dim,
    last: Dim,
    count: Dim,
    /// Rounded up to a multiple of the steps that are adjacent.
    depth: Dim,
    width: i64,
    steps: i64,
}

impl Panels {
    fn length(&self) -> Dim {
        Dim::product([&self.batch, &self.outer, &self.count, &self.depth, &Dim::Const(self.width)])
    }

    /// The position of an element, the first one of its group.
    fn position(&self, batch: &Dim, outer: &Dim, panel: &Dim, depth: &Dim, within: &Dim) -> Dim {
        let sizes = [&self.batch, &self.outer, &self.count, &self.depth].map(Dim::clone);
        let sizes = [&sizes[..], &[Dim::Const(self.width)]].concat();
        linear(&[batch, outer, panel, depth, &(within * &Dim::Const(self.steps))].map(Dim::clone), &sizes)
    }

    /// The same for a constant, all of whose sizes are known.
    fn order(&self) -> PanelOrder {
        let size = |d: &Dim| d.as_usize().expect("the sizes of a constant are known");
        PanelOrder {
            outer: size(&self.outer),
            last: size(&self.last),
            count: size(&self.count),
            depth: size(&self.depth),
            width: self.width as usize,
            steps: self.steps as usize,
        }
    }
}

impl<'p> Product<'p> {
    pub(super) fn new(func: &Func, epilogue: &'p Epilogue) -> Product<'p> {
        let node = func.node(epilogue.product);
        let Op::Contract { a_batch, b_batch, a_sum, b_sum } = &node.op else { unreachable!("a contraction") };
        let rank = |v: Value| func.ty(v).as_tensor().map_or(0, TensorType::rank);
        let narrow = narrow_operands(func, node);
        let [a, b] = narrow.unwrap_or([node.args[0], node.args[1]]);
        let a = (a, Axes::new(rank(a), a_batch, a_sum));
        let b = (b, Axes::new(rank(b), b_batch, b_sum));
        // Columns run along vectors, so the operand with contiguous free axes provides them.
        let swap = swaps(func, node);
        let (left, right) = if swap { (b, a) } else { (a, b) };
        Product { epilogue, left, right, swap, narrow: narrow.is_some() }
    }

    /// Prepare the second operand.
    #[allow(clippy::wildcard_enum_match_arm, reason = "constants are packed before the run, all else in it")]
    pub(super) fn right(&self, entry: &mut Entry, frame: &mut Frame<'_>) -> Result<Right> {
        let widened = widened_weight(frame.scope.func, self.right.0);
        let narrow = self.widening().map(|f| (frame.scope.dtype(self.right.0), f));
        let widen = widened.map(|(constant, f)| (frame.scope.dtype(constant), f.clone())).or(narrow);
        let stored = widened.map_or(self.right.0, |(constant, _)| constant);
        let packed = match &frame.scope.func.node(stored).op {
            Op::Const { value } => Some(Packed::Constant(self.pack_constant(entry, frame, value))),
            _ if self.has_few_rows(frame) && consecutive(entry, frame, self.right.0, &self.right.1) => None,
            _ => Some(self.pack(entry, frame)?),
        };
        Ok(Right { packed, widen })
    }

    /// The conversion of narrow operands.
    fn widening(&self) -> Option<Scalar> {
        self.narrow.then(|| Scalar::convert(ScalarFn::Cast, DType::I32))
    }

    /// The number of steps along the depth per instruction (2 or 4 with dot products). Both operands must have them
    /// adjacent.
    fn steps(&self, em: &mut ElementEmitter<'_>, sizes: &Sizes) -> i64 {
        let is_constant = matches!(em.scope.func.node(self.right.0).op, Op::Const { .. });
        let steps = match (em.dtype(self.left.0), em.dtype(self.right.0)) {
            (DType::U8, DType::I8) if em.state.context.machine.dot4 => 4,
            (DType::I8 | DType::I16, DType::I8 | DType::I16) if em.state.context.machine.dot2 => 2,
            _ => 1,
        };
        if !self.narrow || !is_constant || steps == 1 {
            return 1;
        }
        let [batch, rows, ..] = sizes.any_index(em);
        let depth = em.nest(&sizes.depth, &[], &mut |em, i| vec![self.left_position(em, &batch, &rows, i)]);
        let position = self.left_position(em, &batch, &rows, &depth.index);
        if matches!(&depth.loops[..], [(var, _)] if step(&position, var) == Some(1)) { steps } else { 1 }
    }

    fn sizes(&self, shape: impl Fn(Value) -> Vec<Dim>) -> Sizes {
        let (left, right) = (shape(self.left.0), shape(self.right.0));
        // The entry has checked that paired sizes are equal; those of constants are known.
        let paired = |x: &[usize], y: &[usize]| {
            let numbers = |(x, y): (Dim, Dim)| if y.as_const().is_some() { y } else { x };
            Axes::sizes(x, &left).into_iter().zip(Axes::sizes(y, &right)).map(numbers).collect()
        };
        Sizes {
            batch: paired(&self.left.1.batch, &self.right.1.batch),
            rows: Axes::sizes(&self.left.1.free, &left),
            columns: Axes::sizes(&self.right.1.free, &right),
            depth: paired(&self.left.1.sum, &self.right.1.sum),
        }
    }

    /// Is the second operand a finite constant, so that multiplying by zero gives zero?
    fn right_is_finite(&self, em: &ElementEmitter<'_>) -> bool {
        let right = &em.scope.func.node(self.right.0).op;
        matches!(right, Op::Const { value } if value.dtype() == DType::F32 && is_finite(value))
    }

    /// Whether packing the second operand does not pay.
    fn has_few_rows(&self, frame: &Frame<'_>) -> bool {
        let rows = Axes::sizes(&self.left.1.free, frame.scope.shape(self.left.0));
        Dim::product(&rows).as_const().is_some_and(|n| n <= FEW_ROWS)
    }

    pub(super) fn out_index(&self, batch: &[Dim], rows: &[Dim], columns: &[Dim]) -> Vec<Dim> {
        let (first, second) = if self.swap { (columns, rows) } else { (rows, columns) };
        [batch, first, second].concat()
    }

    fn left_position(&self, em: &mut ElementEmitter<'_>, batch: &[Dim], rows: &[Dim], depth: &[Dim]) -> Dim {
        em.resolve(self.left.0, &self.left.1.index(batch, rows, depth)).1
    }

    pub(super) fn right_position(
        &self,
        em: &mut ElementEmitter<'_>,
        batch: &[Dim],
        columns: &[Dim],
        depth: &[Dim],
    ) -> Dim {
        em.resolve(self.right.0, &self.right.1.index(batch, columns, depth)).1
    }

    /// The loops over columns.
    fn column_loops(&self, em: &mut ElementEmitter<'_>, sizes: &Sizes, is_packed: bool) -> Nest {
        let (batch, rows, depth) = (some(em, &sizes.batch), some(em, &sizes.rows), some(em, &sizes.depth));
        em.nest(&sizes.columns, &[], &mut |em, i| {
            let mut positions = self.epilogue.positions(em, &self.out_index(&batch, &rows, i));
            if !is_packed {
                positions.push(self.right_position(em, &batch, i, &depth));
            }
            positions
        })
    }

    fn panels(&self, em: &mut ElementEmitter<'_>, sizes: &Sizes, columns: &Nest) -> Panels {
        let (last, outer) = match columns.loops.split_last() {
            Some(((_, last), outer)) => (last.clone(), Dim::product(outer.iter().map(|(_, n)| n))),
            None => (Dim::ONE, Dim::ONE),
        };
        let width = Tile::new(em.state.context.machine, em.dtype(self.epilogue.product), &last).width();
        let count = em.state.size(&last.ceil_div(&Dim::Const(width)));
        let steps = self.steps(em, sizes);
        let depth = &Dim::product(&sizes.depth).ceil_div(&Dim::Const(steps)) * &Dim::Const(steps);
        Panels { batch: Dim::product(&sizes.batch), outer, last, count, depth, width, steps }
    }

    /// The packed order, decided before the kernel exists.
    fn planned(&self, entry: &mut Entry, frame: &Frame<'_>) -> (Sizes, Panels) {
        let mut builder = Builder::new(Kind::Kernel, &[]);
        let mut em = ElementEmitter::for_kernel(&mut builder, &mut entry.state, &frame.scope);
        let sizes = self.sizes_in(&mut em);
        let columns = self.column_loops(&mut em, &sizes, true);
        let panels = self.panels(&mut em, &sizes, &columns);
        (sizes, panels)
    }

    pub(super) fn sizes_in(&self, em: &mut ElementEmitter<'_>) -> Sizes {
        let (left, right) = (em.shape(self.left.0), em.shape(self.right.0));
        self.sizes(|v| if v == self.left.0 { left.clone() } else { right.clone() })
    }

    fn pack_constant(&self, entry: &mut Entry, frame: &Frame<'_>, value: &Tensor) -> V {
        let (_, panels) = self.planned(entry, frame);
        let axes = &self.right.1;
        entry.place_weights(&panels.order().of(value, [&axes.batch, &axes.sum, &axes.free]))
    }

    /// Pack the second operand when the model runs.
    fn pack(&self, entry: &mut Entry, frame: &mut Frame<'_>) -> Result<Packed> {
        let (sizes, panels) = self.planned(entry, frame);
        let bytes = Dim::Const(scalar::memory(frame.scope.dtype(self.right.0)).size());
        let (pointer, memory) = entry.temporary(frame, &(&panels.length() * &bytes))?;
        let width = Dim::Const(panels.width);
        let whole = entry.state.size(&panels.last.floor_div(&width));
        let rest = entry.state.size(&(&panels.last - &(&whole * &width)));
        // Full panels, then the remaining columns.
        let mut parts = Vec::new();
        for (first, count, columns) in [(Dim::ZERO, whole.clone(), width.clone()), (whole, Dim::ONE, rest)] {
            if count == Dim::ZERO || columns == Dim::ZERO {
                continue;
            }
            let batches = sizes.batch.len();
            let split = move |index: &[Dim]| {
                let (batch, rest) = index.split_at(batches);
                let (depth, within) = (&rest[2..rest.len() - 1], &rest[rest.len() - 1]);
                (batch.to_vec(), rest[0].clone(), &rest[1] + &first, depth.to_vec(), within.clone())
            };
            let (sizes, panels, width, to_panel) = (&sizes, &panels, &width, split.clone());
            parts.push(Pointwise {
                domain: [&sizes.batch[..], &[panels.outer.clone(), count], &sizes.depth, &[columns]].concat(),
                writes: vec![(self.right.0, Arg::Output)],
                heads: vec![],
                from: Box::new(move |index| {
                    let (batch, outer, panel, depth, within) = split(index);
                    let column = &(&(&outer * &panels.last) + &(&panel * width)) + &within;
                    let columns = unravel(&column, &sizes.columns, &HashMap::new());
                    self.right.1.index(&batch, &columns, &depth)
                }),
                to: Box::new(move |index| {
                    let (batch, outer, panel, depth, within) = to_panel(index);
                    let (batch, depth) = (linear(&batch, &sizes.batch), linear(&depth, &sizes.depth));
                    panels.position(&batch, &outer, &panel, &depth, &within)
                }),
                length: panels.length(),
            });
        }
        let kernel = pointwise::kernel("pack", &parts, &mut entry.state, &frame.scope);
        entry.launch(frame, kernel, pointer, None)?;
        Ok(Packed::Memory(pointer, memory))
    }

    /// The addresses by which the operands are read at an index.
    pub(super) fn positions(
        &self,
        em: &mut ElementEmitter<'_>,
        right: &Right,
        [batch, rows, columns, depth]: [&[Dim]; 4],
    ) -> Vec<Dim> {
        let mut positions = vec![self.left_position(em, batch, rows, depth)];
        if !right.is_packed() {
            positions.push(self.right_position(em, batch, columns, depth));
        }
        positions
    }

    fn kernel(&self, entry: &mut Entry, frame: &Frame<'_>, right: &Right) -> Kernel {
        let epilogue = self.epilogue;
        let mut builder = Builder::new(Kind::Kernel, &[]);
        let range = [builder.params()[0], builder.params()[1]];
        let mut em = ElementEmitter::for_kernel(&mut builder, &mut entry.state, &frame.scope);
        let output = em.parameter(Ty::PTR, Arg::Output);
        let sizes = self.sizes_in(&mut em);
        let [batch0, rows0, columns0, depth0] = sizes.any_index(&mut em);
        let batch = em.nest(&sizes.batch, &[], &mut |em, i| {
            let mut positions = epilogue.positions(em, &self.out_index(i, &rows0, &columns0));
            positions.extend(self.positions(em, right, [i, &rows0, &columns0, &depth0]));
            positions
        });
        let rows = em.nest(&sizes.rows, &[], &mut |em, i| {
            let mut positions = epilogue.positions(em, &self.out_index(&batch0, i, &columns0));
            positions.push(self.left_position(em, &batch0, i, &depth0));
            positions
        });
        let mut row_loops = rows.loops.clone();
        let height = i64::from(Tile::new(em.state.context.machine, em.dtype(epilogue.product), &Dim::ONE).rows);
        let most = NEAR_BYTES / scalar::memory(em.dtype(self.right.0)).size();
        let stays_near = Dim::product(sizes.columns.iter().chain(&sizes.depth)).as_const().is_some_and(|n| n <= most);
        let neighbours = stays_near.then(|| last_of(&row_loops, 2 * height)).flatten();
        let (row, count) = match neighbours.or_else(|| longest(&row_loops)) {
            Some(at) => row_loops.remove(at),
            None => (em.variable(&Dim::ONE), Dim::ONE),
        };
        let at = RowNest { batch: &batch.index, index: &rows.index, row, count, most: None };
        let (gemm, column_loops, columns) =
            self.gemm(&mut em, &sizes, &at, right, &mut |em, out| epilogue.sink(em, output, out));
        let in_place = epilogue.in_place(&mut em, &self.out_index(&batch.index, &rows.index, &columns));
        let outer: Vec<_> = [&batch.loops[..], &column_loops, &row_loops].concat();
        let extent = gemm.units(&outer);
        let unit = em.variable(&extent);
        let round = em.state.round.filter(|_| gemm.may_have_few_rows()).map(|v| em.parameter(Ty::I64, Arg::Entry(v)));
        em.range(&unit.clone(), range[0], range[1], &[], |em, _| {
            if let Some(round) = round {
                let at = there_and_back(em, round, range, &unit);
                em.symbols.insert(unit.clone(), at);
            }
            gemm.unit(em, &outer, &unit);
            vec![]
        });
        let work = gemm.work();
        let args = em.into_arguments();
        Kernel { function: builder.finish("contract", vec![]), args, extent, work, in_place }
    }

    /// The product for one index over the loops around it, and the index of its columns. `sink` stores the elements.
    pub(super) fn gemm(
        &self,
        em: &mut ElementEmitter<'_>,
        sizes: &Sizes,
        rows: &RowNest<'_>,
        right: &Right,
        sink: &mut dyn FnMut(&mut ElementEmitter<'_>, &[Dim]) -> Sink,
    ) -> (Gemm, Vec<(Sym, Dim)>, Vec<Dim>) {
        let packed = right.parameter(em);
        let dtype = em.dtype(self.epilogue.product);
        let [batch0, rows0, columns0, _] = sizes.any_index(em);
        let columns = self.column_loops(em, sizes, packed.is_some());
        let depth = em.nest(&sizes.depth, &[], &mut |em, i| self.positions(em, right, [&batch0, &rows0, &columns0, i]));
        let panels = self.panels(em, sizes, &columns);
        let mut column_loops = columns.loops.clone();
        let (column, count) = column_loops.pop().unwrap_or_else(|| (em.variable(&Dim::ONE), Dim::ONE));
        let (a_buffer, a_position) = em.resolve(self.left.0, &self.left.1.index(rows.batch, rows.index, &depth.index));
        let (panel, within) = (em.fresh(false), em.fresh(false));
        let b = match packed {
            Some(pointer) => {
                let round: Vec<Dim> = column_loops.iter().map(|(s, _)| Dim::sym(s.clone())).collect();
                let extents: Vec<Dim> = column_loops.iter().map(|(_, n)| n.clone()).collect();
                let (batch, outer) = (linear(rows.batch, &sizes.batch), linear(&round, &extents));
                let depth = linear(&depth.index, &sizes.depth);
                let (panel, within) = (Dim::sym(panel.clone()), Dim::sym(within.clone()));
                let position = panels.position(&batch, &outer, &panel, &depth, &within);
                let (stored, widen) = right.widen.clone().map_or((dtype, None), |(d, f)| (d, Some(f)));
                let grouped = panels.steps > 1;
                MemoryOperand {
                    widen,
                    padded: true,
                    grouped,
                    ..MemoryOperand::fixed(pointer, stored, position, panels.length())
                }
            }
            None => {
                let at = self.right.1.index(rows.batch, &columns.index, &depth.index);
                let (buffer, position) = em.resolve(self.right.0, &at);
                let here = &(&Dim::sym(panel.clone()) * &Dim::Const(panels.width)) + &Dim::sym(within.clone());
                let place = em.place(buffer, position.subst(&|s| (*s == column).then(|| here.clone())));
                MemoryOperand { widen: self.widening(), ..place }
            }
        };
        let gemm = Gemm {
            a: MemoryOperand { widen: self.widening(), ..em.place(a_buffer, a_position) },
            b,
            out: sink(em, &self.out_index(rows.batch, rows.index, &columns.index)),
            row: rows.row.clone(),
            rows: rows.count.clone(),
            most_rows: rows.most,
            tile: Tile::new(em.state.context.machine, dtype, &count),
            column,
            panel,
            within,
            columns: count,
            depth: depth.loops,
            at_once: panels.steps,
            rectified: is_rectified(em.scope.func, self.left.0) && self.right_is_finite(em),
        };
        (gemm, column_loops, columns.index)
    }
}

impl Sizes {
    /// Variables for any index of the batch, the rows, the columns and the depth.
    pub(super) fn any_index(&self, em: &mut ElementEmitter<'_>) -> [Vec<Dim>; 4] {
        [&self.batch, &self.rows, &self.columns, &self.depth].map(|sizes| some(em, sizes))
    }
}

/// Reverses the order of units in every other round of a loop: weights of products with few rows may be larger than a
/// cache, and the end that the previous round read last is still in it.
fn there_and_back(em: &mut ElementEmitter<'_>, round: V, [begin, end]: [V; 2], unit: &Sym) -> V {
    let (one, there) = (em.b.i64(1), em.symbol(unit));
    let (both, odd) = (em.b.add(begin, end), em.b.and(round, one));
    let last = em.b.sub(both, one);
    let back = em.b.sub(last, there);
    let is_odd = em.b.compare(Compare::Eq, odd, one);
    em.b.select(is_odd, back, there)
}

/// The last loop of that many rounds: its rows are adjacent in memory.
fn last_of(loops: &[(Sym, Dim)], rounds: i64) -> Option<usize> {
    loops.iter().rposition(|(_, n)| n.as_const().is_some_and(|n| n >= rounds))
}

/// The loop with the most rounds, since rows that share columns should be many. Known sizes count more than open ones
/// (the number of images is often 1); of equal loops the last is taken.
fn longest(loops: &[(Sym, Dim)]) -> Option<usize> {
    const TYPICAL: i64 = 64;
    let rounds = |i: usize, size: i64| loops[i].1.eval(&|_| Some(size)).unwrap_or(size);
    (0..loops.len()).max_by_key(|&i| (rounds(i, 1), rounds(i, TYPICAL), i))
}

/// Variables for any index of these sizes.
fn some(em: &mut ElementEmitter<'_>, sizes: &[Dim]) -> Vec<Dim> {
    sizes.iter().map(|d| Dim::sym(em.variable(d))).collect()
}

impl ElementEmitter<'_> {
    /// The buffer and the position that a view reads.
    pub(crate) fn resolve(&mut self, v: Value, index: &[Dim]) -> (Value, Dim) {
        let (mut v, mut index) = (v, index.to_vec());
        loop {
            if self.is_stored(v) {
                let shape = self.shape(v);
                return (v, self.position(v, &index, &shape));
            }
            let node = self.scope.func.node(v);
            match self.view(&node.op, &node.args, &index) {
                Some((x, View::Index(at))) => (v, index) = (x, at),
                Some((x, View::Position(p))) => return (x, p),
                None => unreachable!("a view of a buffer was asked for"),
            }
        }
    }

    /// The buffer whose elements a node yields in order.
    pub(crate) fn buffer_of(&mut self, mut v: Value) -> Value {
        while !self.scope.has_buffer(v) {
            v = self.scope.func.node(v).args[0];
        }
        v
    }

    /// The elements of a stored node, by their position in it.
    pub(crate) fn place(&mut self, v: Value, position: Dim) -> MemoryOperand {
        let dtype = self.dtype(v);
        match self.locals.get(&v).cloned() {
            Some(Local { pointer, start, length, .. }) => {
                MemoryOperand { changes: true, ..MemoryOperand::fixed(pointer, dtype, &position - &start, length) }
            }
            None => {
                let (pointer, length) = (self.pointer(v), self.length(v));
                MemoryOperand::fixed(pointer, dtype, position, length)
            }
        }
    }

    /// Elements of a buffer.
    pub(crate) fn length(&mut self, v: Value) -> Dim {
        Dim::product(&self.shape(v))
    }
}
