//! Contractions as products of matrices: the free axes of one operand are rows, those of the other columns, the paired axes the depth.
use super::{
    cx::{Cx, Home, View},
    entry::{Entry, Frame},
    epilogue::Epilogue,
    gemm::Gemm,
    index::{linear, unravel},
    nest::Nest,
    pointwise::{self, Kernel, Pointwise, step},
    shared::Arg,
    tile::{Place, Tile},
};
use crate::{Result, scalar, weights::widened_weight};
use numrsc_ir::{
    DType, Data, Dim, Env, Op, Scalar, Tensor, Value,
    dim::Sym,
    eval_op,
    kernel::{Kind, Ty, V, build::Builder},
};
use std::collections::HashMap;

/// Products with so many rows read their second operand where it is, if they can.
const FEW_ROWS: i64 = 8;

/// The axes of an operand: shared with the other operand, its own, and summed over.
#[derive(Clone)]
struct Axes {
    batch: Vec<usize>,
    free: Vec<usize>,
    sum: Vec<usize>,
}

impl Axes {
    fn new(rank: usize, batch: &[i64], sum: &[i64]) -> Axes {
        let list = |v: &[i64]| v.iter().map(|&a| a as usize).collect::<Vec<_>>();
        let (batch, sum) = (list(batch), list(sum));
        let free = (0..rank).filter(|a| !batch.contains(a) && !sum.contains(a)).collect();
        Axes { batch, free, sum }
    }

    /// An index from its parts.
    fn index(&self, batch: &[Dim], free: &[Dim], sum: &[Dim]) -> Vec<Dim> {
        let mut index = vec![Dim::ZERO; self.batch.len() + self.free.len() + self.sum.len()];
        for (axes, part) in [(&self.batch, batch), (&self.free, free), (&self.sum, sum)] {
            axes.iter().zip(part).for_each(|(&a, d)| index[a] = d.clone());
        }
        index
    }

    fn sizes(axes: &[usize], shape: &[Dim]) -> Vec<Dim> {
        axes.iter().map(|&a| shape[a].clone()).collect()
    }
}

pub(crate) fn emit(entry: &mut Entry, frame: &mut Frame<'_>, epilogue: &Epilogue) -> Result<()> {
    let node = frame.scope.func.node(epilogue.product);
    let Op::Contract { a_batch, b_batch, a_sum, b_sum } = &node.op else { unreachable!("a contraction") };
    let (a, b) = (node.args[0], node.args[1]);
    let a_axes = Axes::new(frame.scope.shape(a).len(), a_batch, a_sum);
    let b_axes = Axes::new(frame.scope.shape(b).len(), b_batch, b_sum);
    // Columns run along vectors: the operand with something to run along provides them.
    let swap = swaps(frame.scope.func, node, [a_batch, a_sum], [b_batch, b_sum]);
    let (left, right) = if swap { ((b, b_axes), (a, a_axes)) } else { ((a, a_axes), (b, b_axes)) };

    let product = Product { epilogue, left: &left, right: &right, swap };
    let widened = widened_weight(frame.scope.func, right.0);
    let stored = widened.map_or(right.0, |(constant, _)| constant);
    let packed = match &frame.scope.func.node(stored).op {
        Op::Const { value } => Some(Packed::Constant(product.pack_constant(entry, frame, value))),
        _ if product.has_few_rows(frame) && consecutive(entry, frame, right.0, &right.1) => None,
        _ => Some(product.pack(entry, frame)?),
    };
    let pointer = match &packed {
        Some(Packed::Constant(p) | Packed::Memory(p, _)) => Some(*p),
        None => None,
    };
    let widen = widened.map(|(constant, f)| (frame.scope.dtype(constant), f.clone()));
    let kernel = product.kernel(entry, frame, pointer, widen);
    let output = entry.take_over_or_allocate(frame, epilogue.root, &kernel.in_place)?;
    entry.launch(frame, kernel, output, None)?;
    if let Some(Packed::Memory(pointer, memory)) = packed {
        entry.give_back(pointer, memory);
    }
    Ok(())
}

enum Packed {
    Constant(V),
    Memory(V, super::entry::Memory),
}

/// Is an operand read in consecutive order along its last own axis?
fn consecutive(entry: &mut Entry, frame: &Frame<'_>, v: Value, axes: &Axes) -> bool {
    let mut builder = Builder::new(Kind::Kernel, &[]);
    let home = Home::Kernel { args: vec![], pointers: HashMap::new() };
    let mut cx = Cx::new(&mut builder, &mut entry.shared, &frame.scope, home);
    let shape = cx.shape(v);
    let index: Vec<Dim> =
        shape.iter().map(|d| if *d == Dim::ONE { Dim::ZERO } else { Dim::sym(cx.variable(d)) }).collect();
    let (_, position) = cx.resolve(v, &index);
    let last = axes.free.iter().rev().find(|&&a| shape[a] != Dim::ONE);
    if super::index::is_tangled(&position, &cx.extents) {
        return false;
    }
    last.and_then(|&a| index[a].as_sym().cloned()).is_some_and(|s| step(&position, &s) == Some(1))
}

/// A contraction with its operands as rows and columns.
struct Product<'p> {
    epilogue: &'p Epilogue,
    left: &'p (Value, Axes),
    right: &'p (Value, Axes),
    swap: bool,
}

/// The sizes of a contraction by the parts that axes play.
struct Sizes {
    batch: Vec<Dim>,
    rows: Vec<Dim>,
    columns: Vec<Dim>,
    depth: Vec<Dim>,
}

/// The order in which the second operand is packed: for every batch and round of the outer loops over columns, panels of the columns of the last loop,
/// and in each, as many columns as a tile has for every step of the depth. Columns that there are not, in the last panel, may be anything.
struct Panels {
    batch: Dim,
    outer: Dim,
    last: Dim,
    count: Dim,
    depth: Dim,
    width: i64,
}

impl Panels {
    fn length(&self) -> Dim {
        Dim::product([&self.batch, &self.outer, &self.count, &self.depth, &Dim::Const(self.width)])
    }

    fn position(&self, batch: &Dim, outer: &Dim, panel: &Dim, depth: &Dim, within: &Dim) -> Dim {
        let sizes = [&self.batch, &self.outer, &self.count, &self.depth].map(Dim::clone);
        let sizes = [&sizes[..], &[Dim::Const(self.width)]].concat();
        linear(&[batch, outer, panel, depth, within].map(Dim::clone), &sizes)
    }

    /// A constant in this order, from the order of batches, depth and columns.
    fn of(&self, value: &Tensor) -> Tensor {
        let size = |d: &Dim| d.as_usize().expect("the sizes of a constant are known");
        let (batch, outer, last) = (size(&self.batch), size(&self.outer), size(&self.last));
        let (count, depth, width) = (size(&self.count), size(&self.depth), self.width as usize);
        let bytes = value.bytes().len().checked_div(value.len()).unwrap_or(1);
        let from = value.bytes();
        let mut to = vec![0u8; batch * outer * count * depth * width * bytes];
        let lines = to.chunks_exact_mut((width * bytes).max(1));
        for (n, line) in lines.enumerate() {
            let (k, panel) = (n % depth, n / depth % count);
            let (co, b) = (n / (depth * count) % outer, n / (depth * count * outer));
            let here = width.min(last - panel * width);
            let start = (((b * depth + k) * outer + co) * last + panel * width) * bytes;
            line[..here * bytes].copy_from_slice(&from[start..start + here * bytes]);
        }
        let shape = vec![batch, outer, count, depth, width];
        Tensor::new(value.dtype(), shape, to.into()).expect("as many bytes as said")
    }
}

impl Product<'_> {
    fn sizes(&self, shape: impl Fn(Value) -> Vec<Dim>) -> Sizes {
        let (left, right) = (shape(self.left.0), shape(self.right.0));
        Sizes {
            batch: Axes::sizes(&self.left.1.batch, &left),
            rows: Axes::sizes(&self.left.1.free, &left),
            columns: Axes::sizes(&self.right.1.free, &right),
            depth: Axes::sizes(&self.left.1.sum, &left),
        }
    }

    /// Does it not pay to pack the second operand?
    fn has_few_rows(&self, frame: &Frame<'_>) -> bool {
        let rows = Axes::sizes(&self.left.1.free, frame.scope.shape(self.left.0));
        Dim::product(&rows).as_const().is_some_and(|n| n <= FEW_ROWS)
    }

    fn out_index(&self, batch: &[Dim], rows: &[Dim], columns: &[Dim]) -> Vec<Dim> {
        let (first, second) = if self.swap { (columns, rows) } else { (rows, columns) };
        [batch, first, second].concat()
    }

    fn left_position(&self, cx: &mut Cx<'_>, batch: &[Dim], rows: &[Dim], depth: &[Dim]) -> Dim {
        cx.resolve(self.left.0, &self.left.1.index(batch, rows, depth)).1
    }

    fn right_position(&self, cx: &mut Cx<'_>, batch: &[Dim], columns: &[Dim], depth: &[Dim]) -> Dim {
        cx.resolve(self.right.0, &self.right.1.index(batch, columns, depth)).1
    }

    /// The loops over columns.
    fn column_loops(&self, cx: &mut Cx<'_>, sizes: &Sizes, is_packed: bool) -> Nest {
        let (batch, rows, depth) = (some(cx, &sizes.batch), some(cx, &sizes.rows), some(cx, &sizes.depth));
        cx.nest(&sizes.columns, &[], &mut |cx, i| {
            let mut positions = self.epilogue.positions(cx, &self.out_index(&batch, &rows, i));
            if !is_packed {
                positions.push(self.right_position(cx, &batch, i, &depth));
            }
            positions
        })
    }

    fn panels(&self, cx: &mut Cx<'_>, sizes: &Sizes, columns: &Nest) -> Panels {
        let (last, outer) = match columns.loops.split_last() {
            Some(((_, last), outer)) => (last.clone(), Dim::product(outer.iter().map(|(_, n)| n))),
            None => (Dim::ONE, Dim::ONE),
        };
        let width = Tile::new(cx.shared.machine, cx.dtype(self.epilogue.product), &last).width();
        let count = cx.shared.size(&last.ceil_div(&Dim::Const(width)));
        Panels { batch: Dim::product(&sizes.batch), outer, last, count, depth: Dim::product(&sizes.depth), width }
    }

    /// The order of the packed operand, before there is a kernel.
    fn planned(&self, entry: &mut Entry, frame: &Frame<'_>) -> (Sizes, Panels) {
        let mut builder = Builder::new(Kind::Kernel, &[]);
        let home = Home::Kernel { args: vec![], pointers: HashMap::new() };
        let mut cx = Cx::new(&mut builder, &mut entry.shared, &frame.scope, home);
        let sizes = self.sizes_in(&mut cx);
        let columns = self.column_loops(&mut cx, &sizes, true);
        let panels = self.panels(&mut cx, &sizes, &columns);
        (sizes, panels)
    }

    fn sizes_in(&self, cx: &mut Cx<'_>) -> Sizes {
        let (left, right) = (cx.shape(self.left.0), cx.shape(self.right.0));
        self.sizes(|v| if v == self.left.0 { left.clone() } else { right.clone() })
    }

    fn pack_constant(&self, entry: &mut Entry, frame: &Frame<'_>, value: &Tensor) -> V {
        let (_, panels) = self.planned(entry, frame);
        let axes = &self.right.1;
        let order: Vec<i64> = [&axes.batch[..], &axes.sum, &axes.free].concat().iter().map(|&a| a as i64).collect();
        entry.place_weights(&panels.of(&transposed(value, &order)))
    }

    /// Pack the second operand when the model runs.
    fn pack(&self, entry: &mut Entry, frame: &mut Frame<'_>) -> Result<Packed> {
        let (sizes, panels) = self.planned(entry, frame);
        let bytes = Dim::Const(scalar::memory(frame.scope.dtype(self.right.0)).size());
        let (pointer, memory) = entry.temporary(frame, &(&panels.length() * &bytes))?;
        let width = Dim::Const(panels.width);
        let whole = entry.shared.size(&panels.last.floor_div(&width));
        let rest = entry.shared.size(&(&panels.last - &(&whole * &width)));
        // Whole panels, then what is left of the columns.
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
        let kernel = pointwise::kernel("pack", &parts, &mut entry.shared, &frame.scope);
        entry.launch(frame, kernel, pointer, None)?;
        Ok(Packed::Memory(pointer, memory))
    }

    fn kernel(
        &self,
        entry: &mut Entry,
        frame: &Frame<'_>,
        packed: Option<V>,
        widen: Option<(DType, Scalar)>,
    ) -> Kernel {
        let epilogue = self.epilogue;
        let mut builder = Builder::new(Kind::Kernel, &[]);
        let range = [builder.params()[0], builder.params()[1]];
        let home = Home::Kernel { args: vec![], pointers: HashMap::new() };
        let mut cx = Cx::new(&mut builder, &mut entry.shared, &frame.scope, home);
        let output = cx.parameter(Ty::PTR, Arg::Output);
        let packed = packed.map(|p| cx.parameter(Ty::PTR, Arg::Entry(p)));
        let dtype = cx.dtype(epilogue.product);
        let sizes = self.sizes_in(&mut cx);
        let (batch0, rows0) = (some(&mut cx, &sizes.batch), some(&mut cx, &sizes.rows));
        let (columns0, depth0) = (some(&mut cx, &sizes.columns), some(&mut cx, &sizes.depth));
        let is_packed = packed.is_some();
        let batch = cx.nest(&sizes.batch, &[], &mut |cx, i| {
            let mut positions = epilogue.positions(cx, &self.out_index(i, &rows0, &columns0));
            positions.push(self.left_position(cx, i, &rows0, &depth0));
            if !is_packed {
                positions.push(self.right_position(cx, i, &columns0, &depth0));
            }
            positions
        });
        let rows = cx.nest(&sizes.rows, &[], &mut |cx, i| {
            let mut positions = epilogue.positions(cx, &self.out_index(&batch0, i, &columns0));
            positions.push(self.left_position(cx, &batch0, i, &depth0));
            positions
        });
        let columns = self.column_loops(&mut cx, &sizes, is_packed);
        let depth = cx.nest(&sizes.depth, &[], &mut |cx, i| {
            let mut positions = vec![self.left_position(cx, &batch0, &rows0, i)];
            if !is_packed {
                positions.push(self.right_position(cx, &batch0, &columns0, i));
            }
            positions
        });
        let panels = self.panels(&mut cx, &sizes, &columns);
        let mut row_loops = rows.loops.clone();
        let mut one = || (cx.variable(&Dim::ONE), Dim::ONE);
        let (row, row_count) = longest(&row_loops).map_or_else(&mut one, |at| row_loops.remove(at));
        let (column, column_count) = columns.loops.last().cloned().unwrap_or_else(one);
        let column_loops = &columns.loops[..columns.loops.len().saturating_sub(1)];
        let outer: Vec<_> = [&batch.loops[..], column_loops, &row_loops].concat();
        let out = self.out_index(&batch.index, &rows.index, &columns.index);
        let in_place = epilogue.in_place(&mut cx, &out);
        let (a_buffer, a_position) =
            cx.resolve(self.left.0, &self.left.1.index(&batch.index, &rows.index, &depth.index));
        let (a_pointer, a_length) = (cx.pointer(a_buffer), cx.length(a_buffer));
        let (panel, within) = (cx.fresh(false), cx.fresh(false));
        let (b_pointer, b_length, b_position) = match packed {
            Some(pointer) => {
                let round: Vec<Dim> = column_loops.iter().map(|(s, _)| Dim::sym(s.clone())).collect();
                let extents: Vec<Dim> = column_loops.iter().map(|(_, n)| n.clone()).collect();
                let (batch, outer) = (linear(&batch.index, &sizes.batch), linear(&round, &extents));
                let depth = linear(&depth.index, &sizes.depth);
                let (panel, within) = (Dim::sym(panel.clone()), Dim::sym(within.clone()));
                (pointer, panels.length(), panels.position(&batch, &outer, &panel, &depth, &within))
            }
            None => {
                let at = self.right.1.index(&batch.index, &columns.index, &depth.index);
                let (buffer, position) = cx.resolve(self.right.0, &at);
                let here = &(&Dim::sym(panel.clone()) * &Dim::Const(panels.width)) + &Dim::sym(within.clone());
                let position = position.subst(&|s| (*s == column).then(|| here.clone()));
                (cx.pointer(buffer), cx.length(buffer), position)
            }
        };
        let gemm = Gemm {
            a: Place::fixed(a_pointer, dtype, a_position, a_length),
            b: Place {
                widen: widen.as_ref().map(|(_, f)| f.clone()),
                padded: is_packed,
                ..Place::fixed(b_pointer, widen.map_or(dtype, |(d, _)| d), b_position, b_length)
            },
            out: epilogue.sink(&mut cx, output, &out),
            row,
            rows: row_count,
            tile: Tile::new(cx.shared.machine, dtype, &column_count),
            column,
            panel,
            within,
            columns: column_count,
            depth: depth.loops,
        };
        let extent = gemm.units(&outer);
        let unit = cx.variable(&extent);
        cx.range(&unit.clone(), range[0], range[1], &[], |cx, _| {
            gemm.unit(cx, &outer, &unit);
            vec![]
        });
        let work = gemm.work();
        let Home::Kernel { args, .. } = cx.home else { unreachable!("a kernel") };
        Kernel { function: builder.finish("contract", vec![]), args, extent, work, in_place }
    }
}

/// The loop with the most rounds, as far as they are known: rows that share columns should be many. Of equal ones the last.
fn longest(loops: &[(Sym, Dim)]) -> Option<usize> {
    const TYPICAL: i64 = 64;
    (0..loops.len()).max_by_key(|&i| (loops[i].1.eval(&|_| Some(TYPICAL)).unwrap_or(TYPICAL), i))
}

/// Variables for any index of these sizes.
fn some(cx: &mut Cx<'_>, sizes: &[Dim]) -> Vec<Dim> {
    sizes.iter().map(|d| Dim::sym(cx.variable(d))).collect()
}

impl Cx<'_> {
    /// Where a view of a buffer reads: the buffer and the position.
    pub(crate) fn resolve(&mut self, v: Value, index: &[Dim]) -> (Value, Dim) {
        let (mut v, mut index) = (v, index.to_vec());
        loop {
            if self.scope.has_buffer(v) {
                let shape = self.shape(v);
                return (v, linear(&index, &shape));
            }
            let node = self.scope.func.node(v);
            match self.view(&node.op, &node.args, &index) {
                Some((x, View::Index(at))) => (v, index) = (x, at),
                Some((x, View::Position(p))) => return (x, p),
                None => unreachable!("a view of a buffer was asked for"),
            }
        }
    }

    /// The buffer whose elements a node gives in their order.
    pub(crate) fn buffer_of(&mut self, mut v: Value) -> Value {
        while !self.scope.has_buffer(v) {
            v = self.scope.func.node(v).args[0];
        }
        v
    }

    /// Elements of a buffer.
    pub(crate) fn length(&mut self, v: Value) -> Dim {
        Dim::product(&self.shape(v))
    }
}

/// A constant with its axes in another order.
pub(crate) fn transposed(value: &Tensor, perm: &[i64]) -> Tensor {
    if perm.iter().enumerate().all(|(i, &p)| i as i64 == p) {
        return value.clone();
    }
    let op = Op::Transpose { perm: perm.to_vec() };
    match eval_op(&op, &[&Data::Tensor(value.clone())], &mut Env::new()) {
        Ok(Data::Tensor(t)) => t,
        other => unreachable!("a transpose of a constant: {other:?}"),
    }
}

/// Does a contraction keep its operand `v`, a constant, in an order of its own, and read it nowhere else?
pub(crate) fn packs(func: &numrsc_ir::Func, node: &numrsc_ir::Node, v: Value) -> bool {
    let Op::Contract { a_batch, b_batch, a_sum, b_sum } = &node.op else { return false };
    node.args[0] != node.args[1] && node.args[usize::from(!swaps(func, node, [a_batch, a_sum], [b_batch, b_sum]))] == v
}

/// Is the first operand the one whose own axes are columns?
fn swaps(func: &numrsc_ir::Func, node: &numrsc_ir::Node, a: [&Vec<i64>; 2], b: [&Vec<i64>; 2]) -> bool {
    let own = |v: Value, [batch, sum]: [&Vec<i64>; 2]| {
        let shape = func.ty(v).as_tensor().map_or(&[][..], |t| &t.shape);
        Dim::product(&Axes::sizes(&Axes::new(shape.len(), batch, sum).free, shape))
    };
    own(node.args[1], b) == Dim::ONE && own(node.args[0], a) != Dim::ONE
}
