//! Running sums: along the axis in order, with the accumulator in a register; the other axes in parallel.
use crate::{arg::Arg, element::ElementEmitter, pointwise::Kernel, reduce::Sum};
use numrsc_ir::{
    Dim, Op, Value,
    kernel::{Kind, Ty, build::Builder},
};
use numrsc_schedule::{
    fuse::Scope,
    index::{linear, unravel},
    state::LowerState,
};

pub(crate) fn kernel(state: &mut LowerState, scope: &Scope<'_>, v: Value) -> Kernel {
    let node = scope.func.node(v);
    let Op::Scan { f, axis, exclusive, reverse } = &node.op else { unreachable!("a scan") };
    let (x, axis) = (node.args[0], *axis as usize);
    let mut builder = Builder::new(Kind::Kernel, &[]);
    let range = [builder.params()[0], builder.params()[1]];
    let mut em = ElementEmitter::for_kernel(&mut builder, state, scope);
    let output = em.parameter(Ty::PTR, Arg::Output);
    let (shape, dtype) = (em.shape(x), em.dtype(x));
    let mut others = shape.clone();
    let n = others.remove(axis);
    let extent = Dim::product(&others);
    let sum = Sum { f: *f, dtype };
    let line = em.variable(&extent);
    em.range(&line.clone(), range[0], range[1], &[], |em, _| {
        let mut index = unravel(&Dim::sym(line.clone()), &others, &em.extents);
        let step = em.variable(&n);
        let at = Dim::sym(step.clone());
        index.insert(axis, if *reverse { &(&n - &Dim::ONE) - &at } else { at });
        let start = sum.neutral(em, 1);
        let (low, high) = (em.b.i64(0), em.uniform(&n));
        em.range(&step, low, high, &[start], |em, inside| {
            let item = em.value(x, &index);
            let item = sum.widen(em, item);
            let next = sum.combine(em, inside[0], item);
            let result = sum.narrow(em, if *exclusive { inside[0] } else { next });
            let length = Dim::product(&shape);
            em.store(dtype, output, &linear(&index, &shape), &length, result);
            vec![next]
        });
        vec![]
    });
    let args = em.into_arguments();
    let work = &n * &Dim::Const(8);
    Kernel { function: builder.finish("scan", vec![]), args, extent, work, in_place: vec![] }
}
