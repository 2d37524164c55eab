//! Contractions as products of matrices: the free axes of one operand are rows, those of the other columns, the paired axes the depth.
use super::{
    cx::{Cx, Home, View},
    entry::{Entry, Frame},
    epilogue::Epilogue,
    gemm::{Gemm, Place, tile},
    index::linear,
    pointwise::{Kernel, Pointwise, step},
    shared::Arg,
};
use crate::{Result, scalar, weights::widened_weight};
use numrsc_ir::{
    DType, Data, Dim, Env, Op, Scalar, Tensor, Value, eval_op,
    kernel::{Kind, Ty, V, build::Builder},
};
use std::collections::HashMap;

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

    // Columns have to be consecutive in memory: a constant is packed now, another operand when it runs.
    let widened = widened_weight(frame.scope.func, right.0);
    let stored = widened.map_or(right.0, |(constant, _)| constant);
    let packed = match &frame.scope.func.node(stored).op {
        Op::Const { value } => {
            let order: Vec<i64> =
                [&right.1.batch[..], &right.1.sum, &right.1.free].concat().iter().map(|&a| a as i64).collect();
            Some(Packed::Constant(entry.place_weights(&transposed(value, &order))))
        }
        _ if consecutive(entry, frame, right.0, &right.1) => None,
        _ => {
            let shape = entry.shape_of(frame, right.0);
            let order = [&right.1.batch[..], &right.1.sum, &right.1.free].concat();
            let sizes: Vec<Dim> = order.iter().map(|&a| shape[a].clone()).collect();
            let size = scalar::memory(frame.scope.dtype(right.0)).size();
            let (pointer, memory) = entry.temporary(frame, &(&Dim::product(&sizes) * &Dim::Const(size)))?;
            let kernel = Pointwise {
                name: "pack".into(),
                domain: sizes.clone(),
                source: right.0,
                from: &|index| {
                    let mut at = vec![Dim::ZERO; index.len()];
                    order.iter().zip(index).for_each(|(&a, i)| at[a] = i.clone());
                    at
                },
                to: &|index| linear(index, &sizes),
                length: Dim::product(&sizes),
            }
            .kernel(&mut entry.shared, &frame.scope);
            entry.launch(frame, kernel, pointer, None)?;
            Some(Packed::Memory(pointer, memory))
        }
    };
    let pointer = match &packed {
        Some(Packed::Constant(p) | Packed::Memory(p, _)) => Some(*p),
        None => None,
    };
    let widen = widened.map(|(constant, f)| (frame.scope.dtype(constant), f.clone()));
    let kernel = kernel(entry, frame, epilogue, &left, &right, (pointer, widen), swap);
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

fn kernel(
    entry: &mut Entry,
    frame: &Frame<'_>,
    epilogue: &Epilogue,
    (left, left_axes): &(Value, Axes),
    (right, right_axes): &(Value, Axes),
    (packed, widen): (Option<V>, Option<(DType, Scalar)>),
    swap: bool,
) -> Kernel {
    let mut builder = Builder::new(Kind::Kernel, &[]);
    let range = [builder.params()[0], builder.params()[1]];
    let home = Home::Kernel { args: vec![], pointers: HashMap::new() };
    let mut cx = Cx::new(&mut builder, &mut entry.shared, &frame.scope, home);
    let output = cx.parameter(Ty::PTR, Arg::Output);
    let packed = packed.map(|p| cx.parameter(Ty::PTR, Arg::Entry(p)));
    let (left_shape, right_shape) = (cx.shape(*left), cx.shape(*right));
    let dtype = cx.dtype(epilogue.product);

    let batch_sizes = Axes::sizes(&left_axes.batch, &left_shape);
    let row_sizes = Axes::sizes(&left_axes.free, &left_shape);
    let column_sizes = Axes::sizes(&right_axes.free, &right_shape);
    let depth_sizes = Axes::sizes(&left_axes.sum, &left_shape);
    let packed_sizes = [&batch_sizes[..], &depth_sizes, &column_sizes].concat();
    let right_position = |cx: &mut Cx<'_>, batch: &[Dim], columns: &[Dim], depth: &[Dim]| match packed {
        Some(_) => linear(&[batch, depth, columns].concat(), &packed_sizes),
        None => cx.resolve(*right, &right_axes.index(batch, columns, depth)).1,
    };
    let left_position = |cx: &mut Cx<'_>, batch: &[Dim], rows: &[Dim], depth: &[Dim]| {
        cx.resolve(*left, &left_axes.index(batch, rows, depth)).1
    };
    let out_index = |batch: &[Dim], rows: &[Dim], columns: &[Dim]| {
        let (first, second) = if swap { (columns, rows) } else { (rows, columns) };
        [batch, first, second].concat()
    };
    let some =
        |cx: &mut Cx<'_>, sizes: &[Dim]| -> Vec<Dim> { sizes.iter().map(|d| Dim::sym(cx.variable(d))).collect() };
    let (batch0, rows0, columns0, depth0) = (
        some(&mut cx, &batch_sizes),
        some(&mut cx, &row_sizes),
        some(&mut cx, &column_sizes),
        some(&mut cx, &depth_sizes),
    );
    let batch = cx.nest(&batch_sizes, &[], &mut |cx, i| {
        let mut positions = epilogue.positions(cx, &out_index(i, &rows0, &columns0));
        positions.push(left_position(cx, i, &rows0, &depth0));
        positions.push(right_position(cx, i, &columns0, &depth0));
        positions
    });
    let rows = cx.nest(&row_sizes, &[], &mut |cx, i| {
        let mut positions = epilogue.positions(cx, &out_index(&batch0, i, &columns0));
        positions.push(left_position(cx, &batch0, i, &depth0));
        positions
    });
    let columns = cx.nest(&column_sizes, &[], &mut |cx, i| {
        let mut positions = epilogue.positions(cx, &out_index(&batch0, &rows0, i));
        positions.push(right_position(cx, &batch0, i, &depth0));
        positions
    });
    let depth = cx.nest(&depth_sizes, &[], &mut |cx, i| {
        vec![left_position(cx, &batch0, &rows0, i), right_position(cx, &batch0, &columns0, i)]
    });
    let mut last = |loops: &[(numrsc_ir::dim::Sym, Dim)]| {
        loops.last().cloned().unwrap_or_else(|| {
            let s = cx.variable(&Dim::ONE);
            (s, Dim::ONE)
        })
    };
    let ((row, row_count), (column, column_count)) = (last(&rows.loops), last(&columns.loops));
    let outer: Vec<_> = [
        &batch.loops[..],
        &columns.loops[..columns.loops.len().saturating_sub(1)],
        &rows.loops[..rows.loops.len().saturating_sub(1)],
    ]
    .concat();
    let a_position = left_position(&mut cx, &batch.index, &rows.index, &depth.index);
    let b_position = right_position(&mut cx, &batch.index, &columns.index, &depth.index);
    let out = out_index(&batch.index, &rows.index, &columns.index);
    let in_place = epilogue.in_place(&mut cx, &out);
    let left_buffer = cx.resolve(*left, &left_axes.index(&batch.index, &rows.index, &depth.index)).0;
    let (a_pointer, a_length) = (cx.pointer(left_buffer), cx.length(left_buffer));
    let (b_pointer, b_length) = match packed {
        Some(p) => (p, Dim::product(&packed_sizes)),
        None => {
            let buffer = cx.resolve(*right, &right_axes.index(&batch.index, &columns.index, &depth.index)).0;
            (cx.pointer(buffer), cx.length(buffer))
        }
    };
    let lanes = cx.shared.machine.lanes(scalar::number(dtype).size().max(scalar::memory(dtype).size()) as u32);
    let gemm = Gemm {
        a: Place::fixed(a_pointer, dtype, a_position, a_length),
        b: Place {
            widen: widen.as_ref().map(|(_, f)| f.clone()),
            ..Place::fixed(b_pointer, widen.map_or(dtype, |(d, _)| d), b_position, b_length)
        },
        out: epilogue.sink(&mut cx, output, &out),
        row,
        rows: row_count,
        column,
        columns: column_count,
        depth: depth.loops,
        tile: tile(&cx),
        lanes,
    };
    let extent = gemm.units(&outer);
    let unit = cx.variable(&extent);
    cx.range(&unit.clone(), range[0], range[1], &[], |cx, _| {
        gemm.unit(cx, &outer, &unit);
        vec![]
    });
    let work = &Dim::product(&depth_sizes) * &Dim::Const(i64::from(gemm.tile.0 * gemm.tile.1) * 2);
    let Home::Kernel { args, .. } = cx.home else { unreachable!("a kernel") };
    Kernel { function: builder.finish("contract", vec![]), args, extent, work, in_place }
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
