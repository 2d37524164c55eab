//! Rows combined into rows named by indices, and the indices of set elements: both in order.
use crate::{arg::Arg, element::ElementEmitter, pointwise::Kernel, reduce::Sum};
use numrsc_ir::{
    DType, Dim, Op, ReduceFn, ScatterFn, Value,
    kernel::{Binary, Convert, Elem, Kind, Ty, V, build::Builder},
};
use numrsc_scalar as scalar;
use numrsc_schedule::{fuse::Scope, index::unravel, state::LowerState};

/// Columns per unit of the extent: every thread does all rows of its columns, so the order of updates is kept.
const COLUMNS: i64 = 64;

/// The updates of a scatter, into a buffer that holds the operand.
pub(crate) fn kernel(state: &mut LowerState, scope: &Scope<'_>, v: Value) -> Kernel {
    let node = scope.func.node(v);
    let Op::Scatter { f } = &node.op else { unreachable!("a scatter") };
    let (indices, updates) = (node.args[1], node.args[2]);
    let mut builder = Builder::new(Kind::Kernel, &[]);
    let range = [builder.params()[0], builder.params()[1]];
    let mut em = ElementEmitter::for_kernel(&mut builder, state, scope);
    let output = em.parameter(Ty::PTR, Arg::Output);
    let (shape, update_shape, dtype) = (em.shape(v), em.shape(updates), em.dtype(v));
    let width = Dim::product(&shape[1..]);
    let (length, rows) = (Dim::product(&shape), update_shape[0].clone());
    let sum = combination(*f, dtype);
    let block = em.b.i64(COLUMNS);
    let (first, end, all) = (em.b.mul(range[0], block), em.b.mul(range[1], block), em.uniform(&width));
    let last = em.b.binary(Binary::SMin, end, all);
    let row = em.variable(&rows);
    let (low, high) = (em.b.i64(0), em.uniform(&rows));
    em.range(&row.clone(), low, high, &[], |em, _| {
        let target = em.fresh(false);
        let index = em.load_index(indices, &[Dim::sym(row.clone())], &shape[0]);
        em.symbols.insert(target.clone(), index);
        let column = em.variable(&width);
        em.range(&column.clone(), first, last, &[], |em, _| {
            let inner = unravel(&Dim::sym(column.clone()), &update_shape[1..], &em.extents);
            let at = [&[Dim::sym(row.clone())], &inner[..]].concat();
            let new = em.value(updates, &at);
            let place = &(&Dim::sym(target.clone()) * &width) + &Dim::sym(column.clone());
            let result = match sum {
                None => new,
                Some(sum) => {
                    let old = load(em, dtype, output, &place);
                    let (old, new) = (sum.widen(em, old), sum.widen(em, new));
                    let both = sum.combine(em, old, new);
                    sum.narrow(em, both)
                }
            };
            em.store(dtype, output, &place, &length, result);
            vec![]
        });
        vec![]
    });
    let args = em.into_arguments();
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
fn load(em: &mut ElementEmitter<'_>, dtype: DType, pointer: V, place: &Dim) -> V {
    let index = em.uniform(place);
    let raw = em.b.load(Ty::scalar(scalar::memory(dtype)), pointer, index);
    scalar::decode(em.b, dtype, raw)
}

/// The indices of the set elements of a mask; their number goes to `found`.
pub(crate) fn compress(state: &mut LowerState, scope: &Scope<'_>, mask: Value, found: V) -> Kernel {
    let mut builder = Builder::new(Kind::Kernel, &[]);
    let mut em = ElementEmitter::for_kernel(&mut builder, state, scope);
    let output = em.parameter(Ty::PTR, Arg::Output);
    let count_pointer = em.parameter(Ty::PTR, Arg::Entry(found));
    let n = em.shape(mask)[0].clone();
    let var = em.variable(&n);
    let (low, high) = (em.b.i64(0), em.uniform(&n));
    let count = em.range(&var.clone(), low, high, &[low], |em, inside| {
        let set = em.value(mask, &[Dim::sym(var.clone())]);
        let place = em.symbol(&var);
        em.b.open_branch();
        em.b.store(output, inside[0], place);
        let then = em.b.close_branch(vec![]);
        em.b.open_branch();
        let or = em.b.close_branch(vec![]);
        em.b.close_if(set, then, or);
        let one = em.b.convert(Convert::ZExt, set, Elem::I64);
        vec![em.b.add(inside[0], one)]
    });
    em.b.store(count_pointer, low, count[0]);
    let args = em.into_arguments();
    Kernel { function: builder.finish("compress", vec![]), args, extent: Dim::ONE, work: Dim::ONE, in_place: vec![] }
}
