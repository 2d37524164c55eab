//! A million runs take no more memory than the first few. Alone in its program: it counts what the allocator gives.
#![allow(unsafe_code, reason = "an allocator, and a test that stands in for compiled code")]
mod common;
use common::*;
use numrsc_runtime::{Context, DType, Error, TensorRef, context::RunContext};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    slice,
};

struct Counting;

thread_local! {
    /// By the thread that runs the model; the one of the test harness has business of its own.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocates blocks of several sizes, frees some of them, and leaves the rest; fails if its input is negative.
unsafe extern "C" fn entry(context: *mut RunContext) -> i32 {
    let run = Run(context);
    let n = unsafe { *(run.input(1).data as *const i64) };
    let blocks: [*mut u8; 5] = std::array::from_fn(|at| run.alloc(n.abs() * 100 * (at as i64 + 1)));
    run.free(blocks[1]);
    run.free(blocks[4]);
    run.arena(n.abs() * 64);
    if n < 0 {
        return 1;
    }
    let y = run.room(0, n * 8).cast::<i64>();
    for at in 0..n as usize {
        unsafe { y.add(at).write(n) };
    }
    sizes(*run.output(0), 1)[0] = n;
    run.output(1).data = run.input(2).data;
    extern "C" fn kernel(args: *const u64, begin: i64, end: i64, _: i64) -> i32 {
        let y = unsafe { slice::from_raw_parts_mut((*args as *mut i64).add(begin as usize), (end - begin) as usize) };
        y.iter_mut().for_each(|y| *y += 1);
        0
    }
    run.parallel(kernel, &[y as u64], n, 1)
}

#[test]
fn a_million_runs_allocate_nothing() {
    let mut manifest = manifest();
    manifest.inputs =
        vec![tensor("text", DType::Str, &[-1]), tensor("n", DType::I64, &[]), sequence("list", DType::F32, 1, None)];
    manifest.outputs = vec![tensor("y", DType::I64, &[-1]), sequence("same", DType::F32, 1, None)];
    let model = model(&manifest, entry);
    for (threads, runs) in [(1, 1_000_000), (2, 20_000)] {
        let mut context = Context::with_threads(&model, threads).unwrap();
        let mut run = |n: i64| {
            let (n, floats) = ([n], [1.0f32, 2.0]);
            let list = [TensorRef::new(&floats, &[2]), TensorRef::new(&floats, &[1, 2])];
            let text = TensorRef::texts(&["some", "text"], &[2]);
            let inputs = [("text", text), ("n", TensorRef::new(&n, &[])), ("list", TensorRef::sequence(&list))];
            match model.run(&mut context, &inputs) {
                Ok(()) => {
                    let y = context.output(0).unwrap().as_slice::<i64>().unwrap();
                    assert!(y.len() == n[0] as usize && y.iter().all(|&y| y == n[0] + 1));
                }
                Err(error) => assert!(n[0] < 0 && matches!(error, Error::Failed { code: 1, .. })),
            }
            context.memory_bytes()
        };
        let sizes = [7, 1, 20, 3];
        for n in sizes {
            run(n);
        }
        let bytes = run(sizes[0]);
        let before = ALLOCATIONS.get();
        for at in 0..runs {
            assert_eq!(run(sizes[at % sizes.len()]), bytes);
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "{threads} threads");
        // A failing run allocates for its message only.
        for at in 0..1000 {
            assert_eq!(run(-sizes[at % sizes.len()]), bytes);
        }
    }
}
