//! The checks of sanitized code notice a kernel that leaves its buffers: kernels with a planted bug, run by the
//! interpreter.
use crate::{arg::Arg, pointwise::Pointwise};
use numrsc_facts::Context;
use numrsc_ir::{
    Dim, Machine, Value,
    kernel::{
        FuncId, Kind, Module, Ty, V,
        build::Builder,
        context,
        interp::run::{Failure, Filled, Output, run},
    },
    parse,
};
use numrsc_schedule::{
    fuse::{Buffer, Scope},
    state::LowerState,
};
use std::collections::HashMap;

pub(super) const MACHINE: Machine = Machine::SSE2;

const SIZE: i64 = 13;

/// Negate a tensor, reading and writing that many elements too far; the messages of failures with it.
#[allow(clippy::wildcard_enum_match_arm, reason = "the kernel of the test has no other arguments")]
fn negate(
    read: i64,
    write: i64,
    sanitize: bool,
) -> (Result<Vec<Filled>, Failure>, Vec<numrsc_schedule::messages::Message>) {
    let func = parse("func(%0 \"x\": f32[n]) {\n  %1 = map %0 {f=neg(a0)} : f32[n]\n  return %1\n}\n").unwrap();
    let mut state = LowerState::new(&Context::new(MACHINE).with(|o| o.sanitize = sanitize));
    let scope = Scope { func: &func, buffers: HashMap::from([(Value(0), Buffer { pointer: V(0) })]) };
    let kernel = Pointwise {
        domain: vec![Dim::sym("n")],
        writes: vec![(Value(1), Arg::Output)],
        heads: vec![],
        from: Box::new(move |index| vec![&index[0] + &Dim::Const(read)]),
        to: Box::new(move |index| &index[0] + &Dim::Const(write)),
        length: Dim::sym("n"),
    }
    .kernel("negate", &mut state, &scope);

    let mut b = Builder::new(Kind::Entry, &[Ty::PTR]);
    let ctx = b.params()[0];
    let slot = |b: &mut Builder, ty: Ty, of: V, at: i64| {
        let at = b.i64(at);
        b.load(ty, of, at)
    };
    let (inputs, outputs) = (slot(&mut b, Ty::PTR, ctx, context::INPUTS), slot(&mut b, Ty::PTR, ctx, context::OUTPUTS));
    let input = slot(&mut b, Ty::PTR, inputs, context::TENSOR_DATA);
    let output = slot(&mut b, Ty::PTR, outputs, context::TENSOR_DATA);
    let sizes = slot(&mut b, Ty::PTR, outputs, context::TENSOR_SIZES);
    let (zero, one, size) = (b.i64(0), b.i64(1), b.i64(SIZE));
    b.store(sizes, zero, size);
    let args = kernel.args.iter().map(|arg| match arg {
        Arg::Pointer(_) => input,
        Arg::Output => output,
        Arg::Size(_) => size,
        other => panic!("{other:?}"),
    });
    b.launch(FuncId(0), args.collect(), one, one);
    let module = Module { functions: vec![kernel.function, b.finish("entry", vec![])] };

    let x: Vec<u8> = (0..SIZE).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let room = x.len();
    (run(&module, &[], &[(&x, &[SIZE])], &[Output { rank: 1, element: 4, room }], 1), state.messages)
}

#[test]
fn a_correct_kernel_passes_the_checks() {
    let expected: Vec<u8> = (0..SIZE).flat_map(|i| (-(i as f32)).to_le_bytes()).collect();
    for sanitize in [false, true] {
        assert_eq!(negate(0, 0, sanitize).0.unwrap()[0].bytes, expected);
    }
}

#[test]
fn planted_accesses_out_of_range_are_reported() {
    for (read, write) in [(1, 0), (-1, 0), (0, 1), (0, -1), (1000, 0), (0, i64::MIN / 8)] {
        let (result, messages) = negate(read, write, true);
        let Err(Failure::Code(code)) = result else { panic!("{read} {write}: {result:?}") };
        let message = messages[code as usize - 1].text(true);
        assert!(message.contains("outside of a buffer"), "{read} {write}: {message}");
        // Without checks nobody but the interpreter would have noticed.
        let (result, messages) = negate(read, write, false);
        assert!(matches!(result, Err(Failure::Trap(_))) && messages.is_empty(), "{read} {write}: {result:?}");
    }
}
