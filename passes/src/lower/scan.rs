//! Running sums: along the axis in order, with the accumulator in a register; the other axes in parallel.
use super::{
    cx::{Cx, Home},
    fuse::Scope,
    index::{linear, unravel},
    pointwise::Kernel,
    reduce::Sum,
    shared::{Arg, Shared},
};
use numrsc_ir::{
    Dim, Op, Value,
    kernel::{Kind, Ty, build::Builder},
};
use std::collections::HashMap;

pub(crate) fn kernel(shared: &mut Shared, scope: &Scope<'_>, v: Value) -> Kernel {
    let node = scope.func.node(v);
    let Op::Scan { f, axis, exclusive, reverse } = &node.op else { unreachable!("a scan") };
    let (x, axis) = (node.args[0], *axis as usize);
    let mut builder = Builder::new(Kind::Kernel, &[]);
    let range = [builder.params()[0], builder.params()[1]];
    let home = Home::Kernel { args: vec![], pointers: HashMap::new() };
    let mut cx = Cx::new(&mut builder, shared, scope, home);
    let output = cx.parameter(Ty::PTR, Arg::Output);
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let mut others = shape.clone();
    let n = others.remove(axis);
    let extent = Dim::product(&others);
    let sum = Sum { f: *f, dtype };
    let line = cx.variable(&extent);
    cx.range(&line.clone(), range[0], range[1], &[], |cx, _| {
        let mut index = unravel(&Dim::sym(line.clone()), &others, &cx.extents);
        let step = cx.variable(&n);
        let at = Dim::sym(step.clone());
        index.insert(axis, if *reverse { &(&n - &Dim::ONE) - &at } else { at });
        let start = sum.neutral(cx, 1);
        let (low, high) = (cx.b.i64(0), cx.uniform(&n));
        cx.range(&step, low, high, &[start], |cx, inside| {
            let item = cx.value(x, &index);
            let item = sum.widen(cx, item);
            let next = sum.combine(cx, inside[0], item);
            let result = sum.narrow(cx, if *exclusive { inside[0] } else { next });
            let length = Dim::product(&shape);
            cx.store(dtype, output, &linear(&index, &shape), &length, result);
            vec![next]
        });
        vec![]
    });
    let Home::Kernel { args, .. } = cx.home else { unreachable!("a kernel") };
    let work = &n * &Dim::Const(8);
    Kernel { function: builder.finish("scan", vec![]), args, extent, work, in_place: vec![] }
}
