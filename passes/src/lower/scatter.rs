//! Rows combined into rows named by indices, and the indices of set elements: both in order.
use super::{
    cx::{Cx, Home},
    fuse::Scope,
    index::unravel,
    pointwise::Kernel,
    reduce::Sum,
    shared::{Arg, Shared},
};
use crate::scalar;
use numrsc_ir::{
    DType, Dim, Op, ReduceFn, ScatterFn, Value,
    kernel::{Binary, Convert, Elem, Kind, Ty, V, build::Builder},
};
use std::collections::HashMap;

/// Columns per unit of the extent: every thread does all rows of its columns, so the order of updates is kept.
const COLUMNS: i64 = 64;

/// The updates of a scatter, into a buffer that holds the operand.
pub(crate) fn kernel(shared: &mut Shared, scope: &Scope<'_>, v: Value) -> Kernel {
    let node = scope.func.node(v);
    let Op::Scatter { f } = &node.op else { unreachable!("a scatter") };
    let (indices, updates) = (node.args[1], node.args[2]);
    let mut builder = Builder::new(Kind::Kernel, &[]);
    let range = [builder.params()[0], builder.params()[1]];
    let home = Home::Kernel { args: vec![], pointers: HashMap::new() };
    let mut cx = Cx::new(&mut builder, shared, scope, home);
    let output = cx.parameter(Ty::PTR, Arg::Output);
    let (shape, update_shape, dtype) = (cx.shape(v), cx.shape(updates), cx.dtype(v));
    let width = Dim::product(&shape[1..]);
    let (length, rows) = (Dim::product(&shape), update_shape[0].clone());
    let sum = combination(*f, dtype);
    let block = cx.b.i64(COLUMNS);
    let (first, end, all) = (cx.b.mul(range[0], block), cx.b.mul(range[1], block), cx.uniform(&width));
    let last = cx.b.binary(Binary::SMin, end, all);
    let row = cx.variable(&rows);
    let (low, high) = (cx.b.i64(0), cx.uniform(&rows));
    cx.range(&row.clone(), low, high, &[], |cx, _| {
        let target = cx.fresh(false);
        let index = cx.load_index(indices, &[Dim::sym(row.clone())], &shape[0]);
        cx.symbols.insert(target.clone(), index);
        let column = cx.variable(&width);
        cx.range(&column.clone(), first, last, &[], |cx, _| {
            let inner = unravel(&Dim::sym(column.clone()), &update_shape[1..], &cx.extents);
            let at = [&[Dim::sym(row.clone())], &inner[..]].concat();
            let new = cx.value(updates, &at);
            let place = &(&Dim::sym(target.clone()) * &width) + &Dim::sym(column.clone());
            let result = match sum {
                None => new,
                Some(sum) => {
                    let old = load(cx, dtype, output, &place);
                    let (old, new) = (sum.widen(cx, old), sum.widen(cx, new));
                    let both = sum.combine(cx, old, new);
                    sum.narrow(cx, both)
                }
            };
            cx.store(dtype, output, &place, &length, result);
            vec![]
        });
        vec![]
    });
    let Home::Kernel { args, .. } = cx.home else { unreachable!("a kernel") };
    let (extent, work) = (width.ceil_div(&Dim::Const(COLUMNS)), &rows * &Dim::Const(COLUMNS * 4));
    Kernel { function: builder.finish("scatter", vec![]), args, extent, work, in_place: vec![] }
}

/// On bools, adding is "or" and multiplying is "and".
fn combination(f: ScatterFn, dtype: DType) -> Option<Sum> {
    let f = match f {
        ScatterFn::Set => return None,
        ScatterFn::Add if dtype != DType::Bool => ReduceFn::Sum,
        ScatterFn::Mul if dtype != DType::Bool => ReduceFn::Prod,
        ScatterFn::Add | ScatterFn::Max => ReduceFn::Max,
        ScatterFn::Mul | ScatterFn::Min => ReduceFn::Min,
    };
    Some(Sum { f, dtype })
}

/// Read memory that the kernel itself writes.
fn load(cx: &mut Cx<'_>, dtype: DType, pointer: V, place: &Dim) -> V {
    let index = cx.uniform(place);
    let raw = cx.b.load(Ty::scalar(scalar::memory(dtype)), pointer, index);
    scalar::decode(cx.b, dtype, raw)
}

/// The indices of the set elements of a mask; their number goes to `found`.
pub(crate) fn compress(shared: &mut Shared, scope: &Scope<'_>, mask: Value, found: V) -> Kernel {
    let mut builder = Builder::new(Kind::Kernel, &[]);
    let home = Home::Kernel { args: vec![], pointers: HashMap::new() };
    let mut cx = Cx::new(&mut builder, shared, scope, home);
    let output = cx.parameter(Ty::PTR, Arg::Output);
    let count_pointer = cx.parameter(Ty::PTR, Arg::Entry(found));
    let n = cx.shape(mask)[0].clone();
    let var = cx.variable(&n);
    let (low, high) = (cx.b.i64(0), cx.uniform(&n));
    let count = cx.range(&var.clone(), low, high, &[low], |cx, inside| {
        let set = cx.value(mask, &[Dim::sym(var.clone())]);
        let place = cx.symbol(&var);
        cx.b.open_branch();
        cx.b.store(output, inside[0], place);
        let then = cx.b.close_branch(vec![]);
        cx.b.open_branch();
        let or = cx.b.close_branch(vec![]);
        cx.b.close_if(set, then, or);
        let one = cx.b.convert(Convert::ZExt, set, Elem::I64);
        vec![cx.b.add(inside[0], one)]
    });
    cx.b.store(count_pointer, low, count[0]);
    let Home::Kernel { args, .. } = cx.home else { unreachable!("a kernel") };
    Kernel { function: builder.finish("compress", vec![]), args, extent: Dim::ONE, work: Dim::ONE, in_place: vec![] }
}
