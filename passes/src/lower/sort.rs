//! Sorting: indices along an axis by a stable merge sort from the bottom up, line by line.
use super::{
    cx::{Cx, Home},
    fuse::Scope,
    index::{linear, unravel},
    pointwise::Kernel,
    reduce::less,
    shared::{Arg, Shared},
};
use crate::scalar;
use numrsc_ir::{
    DType, Dim, Op, ScalarFn, Value,
    dtype::Class,
    kernel::{Binary, Compare, Kind, Ty, V, build::Builder},
};
use std::collections::HashMap;

pub(crate) fn kernel(shared: &mut Shared, scope: &Scope<'_>, v: Value) -> Kernel {
    let node = scope.func.node(v);
    let Op::ArgSort { axis, descending } = &node.op else { unreachable!("a sort") };
    let (x, axis) = (node.args[0], *axis as usize);
    let mut builder = Builder::new(Kind::Kernel, &[]);
    let [begin, end, worker] = [builder.params()[0], builder.params()[1], builder.params()[2]];
    let home = Home::Kernel { args: vec![], pointers: HashMap::new() };
    let mut cx = Cx::new(&mut builder, shared, scope, home);
    let output = cx.parameter(Ty::PTR, Arg::Output);
    let scratch = cx.parameter(Ty::PTR, Arg::Scratch);
    let shape = cx.shape(x);
    let mut others = shape.clone();
    let n = others.remove(axis);
    let extent = Dim::product(&others);

    // Two arrays of indices per worker: runs of sorted indices are merged from one into the other.
    let bytes = &n * &Dim::Const(16);
    let bytes = &bytes.ceil_div(&Dim::Const(64)) * &Dim::Const(64);
    let bytes = cx.uniform(&bytes);
    let own = cx.b.mul(worker, bytes);
    let first = cx.b.offset(scratch, own);
    let half = cx.uniform(&(&n * &Dim::Const(8)));
    let second = cx.b.offset(first, half);
    let count = cx.uniform(&n);
    let line = cx.variable(&extent);
    cx.range(&line.clone(), begin, end, &[], |cx, _| {
        let index = unravel(&Dim::sym(line.clone()), &others, &cx.extents);
        let (zero, one) = (cx.b.i64(0), cx.b.i64(1));
        cx.b.for_(zero, count, 1, |b, i| b.store(first, i, i));
        let open = cx.b.open_while(&[one, first, second], |b, carried| b.compare(Compare::Lt, carried[0], count));
        let &[width, from, to] = &open.inside[..] else { unreachable!("three values") };
        let double = cx.b.add(width, width);
        let runs = cx.b.open_while(&[zero], |b, carried| b.compare(Compare::Lt, carried[0], count));
        let low = runs.inside[0];
        let (middle, high) = (cx.b.add(low, width), cx.b.add(low, double));
        let (middle, high) = (cx.b.binary(Binary::SMin, middle, count), cx.b.binary(Binary::SMin, high, count));
        merge(cx, &Run { x, axis, index: &index, descending: *descending, from, to, low, middle, high, count });
        cx.b.close_while(runs, vec![high]);
        let sorted = cx.b.close_while(open, vec![double, to, from])[1];
        let place = cx.variable(&n);
        cx.range(&place.clone(), zero, count, &[], |cx, _| {
            let i = cx.symbol(&place);
            let item = cx.b.load(Ty::I64, sorted, i);
            let mut at = index.clone();
            at.insert(axis, Dim::sym(place.clone()));
            let (position, length) = (linear(&at, &shape), Dim::product(&shape));
            cx.store(DType::I64, output, &position, &length, item);
            vec![]
        });
        vec![]
    });
    let Home::Kernel { args, .. } = cx.home else { unreachable!("a kernel") };
    let work = &n * &Dim::Const(64);
    Kernel { function: builder.finish("argsort", vec![]), args, extent, work, in_place: vec![] }
}

/// Two neighbouring sorted runs `low..middle` and `middle..high` of a line.
struct Run<'r> {
    x: Value,
    axis: usize,
    index: &'r [Dim],
    descending: bool,
    from: V,
    to: V,
    low: V,
    middle: V,
    high: V,
    count: V,
}

fn merge(cx: &mut Cx<'_>, run: &Run<'_>) {
    let open = cx.b.open_for(&[run.low, run.middle]);
    let (place, left, right) = (open.var, open.inside[0], open.inside[1]);
    let one = cx.b.i64(1);
    let last = cx.b.sub(run.count, one);
    // A run that is used up is still read, at a place that exists.
    let mut item = |v: V| {
        let inside = cx.b.binary(Binary::SMin, v, last);
        let index = cx.b.load(Ty::I64, run.from, inside);
        let name = cx.fresh(false);
        cx.symbols.insert(name.clone(), index);
        let mut at = run.index.to_vec();
        at.insert(run.axis, Dim::sym(name));
        (index, cx.value(run.x, &at))
    };
    let (left_index, left_key) = item(left);
    let (right_index, right_key) = item(right);
    let dtype = cx.dtype(run.x);
    // Equal elements keep their order: the right one goes first only if it is strictly before.
    let right_before = match run.descending {
        false => before(cx, dtype, right_key, left_key),
        true => before(cx, dtype, left_key, right_key),
    };
    let left_done = cx.b.compare(Compare::Le, run.middle, left);
    let right_there = cx.b.compare(Compare::Lt, right, run.high);
    let right_wins = cx.b.or(left_done, right_before);
    let take_right = cx.b.and(right_there, right_wins);
    let chosen = cx.b.select(take_right, right_index, left_index);
    cx.b.store(run.to, place, chosen);
    let (left_next, right_next) = (cx.b.add(left, one), cx.b.add(right, one));
    let left_next = cx.b.select(take_right, left, left_next);
    let right_next = cx.b.select(take_right, right_next, right);
    cx.b.close_for(open, run.low, run.high, 1, vec![left_next, right_next]);
}

/// Is `a` strictly less than `b`, where NaN is the largest?
fn before(cx: &mut Cx<'_>, dtype: DType, a: V, b: V) -> V {
    match dtype.class() {
        Class::Str => scalar::call(cx.b, ScalarFn::Lt, &[DType::Str, DType::Str], DType::Bool, &[a, b]),
        Class::Unsigned | Class::Bool | Class::Signed => less(cx, dtype, false, a, b),
        Class::Float => {
            let less = less(cx, dtype, false, a, b);
            let (a_number, b_nan) = (cx.b.compare(Compare::Eq, a, a), cx.b.compare(Compare::Ne, b, b));
            let beside_nan = cx.b.and(a_number, b_nan);
            cx.b.or(less, beside_nan)
        }
    }
}
