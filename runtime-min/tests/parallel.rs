//! Kernels over ranges: every item once, failures the same every time, whatever the threads do.
#![allow(unsafe_code, reason = "tests stand in for compiled code")]
mod common;
use common::*;
use numrsc_runtime::{Context, DType, Error, TensorRef, context::RunContext};
use std::{
    slice,
    sync::atomic::{AtomicI64, AtomicU64, Ordering::*},
    time::Duration,
};

/// `out[i] += i` for its part, fails with 100 + i at each item i that is a multiple of `args[1]`, and counts in `args[2]` calls,
/// in `args[3]` worker numbers that are out of range.
extern "C" fn count(args: *const u64, begin: i64, end: i64, worker: i64) -> i32 {
    let args = unsafe { slice::from_raw_parts(args, 5) };
    let out = args[0] as *const AtomicI64;
    let (calls, wrong) = unsafe { (&*(args[2] as *const AtomicU64), &*(args[3] as *const AtomicU64)) };
    calls.fetch_add(1, Relaxed);
    if begin >= end || worker < 0 || worker >= args[4] as i64 {
        wrong.fetch_add(1, Relaxed);
    }
    for item in begin..end {
        if args[1] != 0 && item % args[1] as i64 == args[1] as i64 - 1 {
            return 100 + item as i32;
        }
        unsafe { (*out.add(item as usize)).fetch_add(item, Relaxed) };
    }
    0
}

/// The input says extent, grain, where to fail, and how often to do all this.
unsafe extern "C" fn entry(context: *mut RunContext) -> i32 {
    let run = Run(context);
    let input = unsafe { slice::from_raw_parts(run.input(0).data as *const i64, 4) };
    let (extent, grain, fail, rounds) = (input[0], input[1], input[2], input[3]);
    let out = run.room(0, extent.max(0) * 8);
    unsafe { out.write_bytes(0, extent.max(0) as usize * 8) };
    sizes(*run.output(0), 1)[0] = extent.max(0);
    let (calls, wrong) = (AtomicU64::new(0), AtomicU64::new(0));
    let threads = unsafe { (*context).threads };
    let args = [out as u64, fail as u64, &raw const calls as u64, &raw const wrong as u64, threads];
    for _ in 0..rounds {
        let code = run.parallel(count, &args, extent, grain);
        if code != 0 {
            return code;
        }
    }
    let parts = if extent <= 0 { 0 } else { ((extent - 1) / grain.max(1) + 1).min(threads as i64 * 8) };
    if wrong.into_inner() > 0 || calls.into_inner() > (parts * rounds) as u64 {
        return 1;
    }
    0
}

fn model() -> numrsc_runtime::Model {
    let mut manifest = manifest();
    manifest.inputs = vec![tensor("what", DType::I64, &[4])];
    manifest.outputs = vec![tensor("y", DType::I64, &[-1])];
    common::model(&manifest, entry)
}

fn run(context: &mut Context, what: [i64; 4]) -> Result<(), u32> {
    let model = context.model().clone();
    match model.run_in_order(context, &[TensorRef::new(&what, &[4])]) {
        Ok(()) => {
            let y = context.output(0).unwrap().as_slice::<i64>().unwrap();
            assert!(y.iter().enumerate().all(|(at, &y)| y == at as i64 * what[3]), "{what:?}: {y:?}");
            Ok(())
        }
        Err(Error::Failed { code, .. }) => Err(code),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_item_once() {
    let model = model();
    for threads in [1, 2, 3, 7] {
        let mut context = Context::with_threads(&model, threads).unwrap();
        assert_eq!(context.threads(), threads);
        for extent in [-1, 0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 1000] {
            for grain in [-5, 0, 1, 2, 10, 64, 999, 1000, i64::MAX] {
                run(&mut context, [extent, grain, 0, 2]).unwrap_or_else(|code| panic!("{extent} {grain}: {code}"));
            }
        }
    }
}

#[test]
fn the_lowest_part_that_fails_is_told() {
    let model = model();
    for threads in [1, 2, 4] {
        let mut context = Context::with_threads(&model, threads).unwrap();
        for _ in 0..200 {
            for fail in [1, 2, 50, 333, 1000] {
                assert_eq!(run(&mut context, [1000, 1, fail, 1]), Err(100 + fail as u32 - 1));
            }
        }
        run(&mut context, [1000, 1, 1001, 5]).unwrap();
    }
}

#[test]
fn many_tiny_calls_in_many_contexts() {
    let model = model();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let model = &model;
            scope.spawn(move || {
                let mut context = Context::with_threads(model, 2 + thread % 3).unwrap();
                for round in 0..200 {
                    run(&mut context, [1 + (round * 7) % 40, 1, 0, 50]).unwrap();
                    if round % 50 == 0 {
                        // Long enough for the workers to fall asleep.
                        std::thread::sleep(Duration::from_millis(2));
                    }
                }
            });
        }
    });
}

#[test]
fn contexts_end_while_workers_sleep_spin_or_never_started() {
    let model = model();
    for round in 0..300 {
        let mut context = Context::with_threads(&model, 3).unwrap();
        if round % 3 != 0 {
            run(&mut context, [100, 1, 0, 3]).unwrap();
        }
        if round % 30 == 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn slow_parts_on_other_threads_are_waited_for() {
    extern "C" fn slow(args: *const u64, begin: i64, end: i64, worker: i64) -> i32 {
        let out = unsafe { &*(args.read() as *const AtomicI64) };
        // The caller is slow enough for others to come, and they are slower.
        std::thread::sleep(Duration::from_millis(if worker == 0 { 1 } else { 4 }));
        out.fetch_add(end - begin, Relaxed);
        0
    }
    unsafe extern "C" fn entry(context: *mut RunContext) -> i32 {
        for _ in 0..20 {
            let done = AtomicI64::new(0);
            let code = Run(context).parallel(slow, &[&raw const done as u64], 64, 1);
            if code != 0 || done.into_inner() != 64 {
                return 1;
            }
        }
        0
    }
    let model = common::model(&manifest(), entry);
    model.run(&mut Context::with_threads(&model, 4).unwrap(), &[]).unwrap();
}

#[test]
fn kernels_cannot_launch_or_allocate() {
    extern "C" fn nested(args: *const u64, _: i64, _: i64, _: i64) -> i32 {
        let run = Run(unsafe { args.read() } as *mut RunContext);
        if !run.alloc(1).is_null() || !run.arena(1).is_null() {
            return 1;
        }
        run.parallel(nested, &[0], 1, 1)
    }
    unsafe extern "C" fn entry(context: *mut RunContext) -> i32 {
        Run(context).parallel(nested, &[context as u64], 10, 1)
    }
    let model = common::model(&manifest(), entry);
    for threads in [1, 3] {
        let error = model.run(&mut Context::with_threads(&model, threads).unwrap(), &[]).unwrap_err();
        assert!(matches!(error, Error::Internal { .. }), "{error}");
    }
}

#[test]
fn models_for_one_thread_get_one() {
    let mut manifest = manifest();
    manifest.single_threaded = true;
    unsafe extern "C" fn entry(context: *mut RunContext) -> i32 {
        unsafe { i32::from((*context).threads != 1) }
    }
    let model = common::model(&manifest, entry);
    let mut context = Context::with_threads(&model, 8).unwrap();
    assert_eq!(context.threads(), 1);
    model.run(&mut context, &[]).unwrap();
    assert_eq!(Context::with_threads(&model, 0).unwrap().threads(), 1);
}

#[test]
fn runs_end_when_somebody_wants_that() {
    /// Loops until it is told to end, as compiled code does.
    unsafe extern "C" fn entry(context: *mut RunContext) -> i32 {
        let slot = context.cast::<u64>().wrapping_add(11);
        while unsafe { slot.read_volatile() } == 0 {
            std::thread::yield_now();
        }
        1
    }
    let model = common::model(&manifest(), entry);
    let mut context = Context::with_threads(&model, 1).unwrap();
    let canceller = context.canceller();
    std::thread::scope(|scope| {
        let other = canceller.clone();
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            other.cancel();
        });
        assert!(matches!(model.run(&mut context, &[]), Err(Error::Cancelled)));
    });
    assert!(canceller.is_cancelled());
    assert!(matches!(model.run(&mut context, &[]), Err(Error::Cancelled)), "until it is reset");

    // Launches look for it as well.
    extern "C" fn nothing(_: *const u64, _: i64, _: i64, _: i64) -> i32 {
        0
    }
    unsafe extern "C" fn launches(context: *mut RunContext) -> i32 {
        while Run(context).parallel(nothing, &[0], 10, 1) == 0 {}
        1
    }
    let model = common::model(&manifest(), launches);
    let mut context = Context::with_threads(&model, 2).unwrap();
    let canceller = context.canceller();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            canceller.cancel();
        });
        assert!(matches!(model.run(&mut context, &[]), Err(Error::Cancelled)));
    });
}
