//! Sorting: indices along an axis by a stable merge sort from the bottom up, line by line.
use crate::{arg::Arg, element::ElementEmitter, pointwise::Kernel, reduce::less};
use numrsc_ir::{
    DType, Dim, Op, ScalarFn, Value,
    dtype::Class,
    kernel::{Binary, Compare, Kind, Ty, V, build::Builder},
};
use numrsc_scalar as scalar;
use numrsc_schedule::{
    fuse::Scope,
    index::{linear, unravel},
    state::LowerState,
};

pub(crate) fn kernel(state: &mut LowerState, scope: &Scope<'_>, v: Value) -> Kernel {
    let node = scope.func.node(v);
    let Op::ArgSort { axis, descending } = &node.op else { unreachable!("a sort") };
    let (x, axis) = (node.args[0], *axis as usize);
    let mut builder = Builder::new(Kind::Kernel, &[]);
    let [begin, end, worker] = [builder.params()[0], builder.params()[1], builder.params()[2]];
    let mut em = ElementEmitter::for_kernel(&mut builder, state, scope);
    let output = em.parameter(Ty::PTR, Arg::Output);
    let scratch = em.parameter(Ty::PTR, Arg::Scratch);
    let shape = em.shape(x);
    let mut others = shape.clone();
    let n = others.remove(axis);
    let extent = Dim::product(&others);

    // Two arrays of indices per worker: runs of sorted indices are merged from one into the other.
    let bytes = &n * &Dim::Const(16);
    let bytes = &bytes.ceil_div(&Dim::Const(64)) * &Dim::Const(64);
    let bytes = em.uniform(&bytes);
    let own = em.b.mul(worker, bytes);
    let first = em.b.offset(scratch, own);
    let half = em.uniform(&(&n * &Dim::Const(8)));
    let second = em.b.offset(first, half);
    let count = em.uniform(&n);
    let line = em.variable(&extent);
    em.range(&line.clone(), begin, end, &[], |em, _| {
        let index = unravel(&Dim::sym(line.clone()), &others, &em.extents);
        let (zero, one) = (em.b.i64(0), em.b.i64(1));
        em.b.for_(zero, count, 1, |b, i| b.store(first, i, i));
        let open = em.b.open_while(&[one, first, second], |b, carried| b.compare(Compare::Lt, carried[0], count));
        let &[width, from, to] = &open.inside[..] else { unreachable!("three values") };
        let double = em.b.add(width, width);
        let runs = em.b.open_while(&[zero], |b, carried| b.compare(Compare::Lt, carried[0], count));
        let low = runs.inside[0];
        let (middle, high) = (em.b.add(low, width), em.b.add(low, double));
        let (middle, high) = (em.b.binary(Binary::SMin, middle, count), em.b.binary(Binary::SMin, high, count));
        merge(em, &Run { x, axis, index: &index, descending: *descending, from, to, low, middle, high, count });
        em.b.close_while(runs, vec![high]);
        let sorted = em.b.close_while(open, vec![double, to, from])[1];
        let place = em.variable(&n);
        em.range(&place.clone(), zero, count, &[], |em, _| {
            let i = em.symbol(&place);
            let item = em.b.load(Ty::I64, sorted, i);
            let mut at = index.clone();
            at.insert(axis, Dim::sym(place.clone()));
            let (position, length) = (linear(&at, &shape), Dim::product(&shape));
            em.store(DType::I64, output, &position, &length, item);
            vec![]
        });
        vec![]
    });
    let args = em.into_arguments();
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

fn merge(em: &mut ElementEmitter<'_>, run: &Run<'_>) {
    let open = em.b.open_for(&[run.low, run.middle]);
    let (place, left, right) = (open.var, open.inside[0], open.inside[1]);
    let one = em.b.i64(1);
    let last = em.b.sub(run.count, one);
    // A run that is used up is still read, at a place that exists.
    let mut item = |v: V| {
        let inside = em.b.binary(Binary::SMin, v, last);
        let index = em.b.load(Ty::I64, run.from, inside);
        let name = em.fresh(false);
        em.symbols.insert(name.clone(), index);
        let mut at = run.index.to_vec();
        at.insert(run.axis, Dim::sym(name));
        (index, em.value(run.x, &at))
    };
    let (left_index, left_key) = item(left);
    let (right_index, right_key) = item(right);
    let dtype = em.dtype(run.x);
    // Equal elements keep their order: the right one goes first only if it is strictly before.
    let right_before = match run.descending {
        false => before(em, dtype, right_key, left_key),
        true => before(em, dtype, left_key, right_key),
    };
    let left_done = em.b.compare(Compare::Le, run.middle, left);
    let right_there = em.b.compare(Compare::Lt, right, run.high);
    let right_wins = em.b.or(left_done, right_before);
    let take_right = em.b.and(right_there, right_wins);
    let chosen = em.b.select(take_right, right_index, left_index);
    em.b.store(run.to, place, chosen);
    let (left_next, right_next) = (em.b.add(left, one), em.b.add(right, one));
    let left_next = em.b.select(take_right, left, left_next);
    let right_next = em.b.select(take_right, right_next, right);
    em.b.close_for(open, run.low, run.high, 1, vec![left_next, right_next]);
}

/// Is `a` strictly less than `b`, where NaN is the largest?
fn before(em: &mut ElementEmitter<'_>, dtype: DType, a: V, b: V) -> V {
    match dtype.class() {
        Class::Str => scalar::call(em.b, ScalarFn::Lt, &[DType::Str, DType::Str], DType::Bool, &[a, b]),
        Class::Unsigned | Class::Bool | Class::Signed => less(em, dtype, false, a, b),
        Class::Float => {
            let less = less(em, dtype, false, a, b);
            let (a_number, b_nan) = (em.b.compare(Compare::Eq, a, a), em.b.compare(Compare::Ne, b, b));
            let beside_nan = em.b.and(a_number, b_nan);
            em.b.or(less, beside_nan)
        }
    }
}
