//! Whole functions compiled by LLVM: control flow, memory, calls, launches and failures.

mod support;

use numrsc_codegen::Backend;
use numrsc_ir::kernel::build::Builder;
use numrsc_ir::kernel::{
    Axis, Binary, Block, Compare, Convert, Elem, FuncId, Function, Host, Inst, Kind, Stmt, Ty, V, context,
};
use std::sync::Mutex;
use support::{Loaded, backends, native};

/// A kernel with the given pointers to `i64`, whose body gets begin, end, worker and the parameters.
fn kernel(pointers: usize, body: impl FnOnce(&mut Builder, &[V])) -> Function {
    let mut b = Builder::new(Kind::Kernel, &vec![Ty::PTR; pointers]);
    let params = b.params().to_vec();
    body(&mut b, &params);
    b.finish("kernel", vec![])
}

/// Run a kernel that writes to its only parameter.
fn run(f: &Function, count: usize, begin: i64, end: i64) -> (i32, Vec<i64>) {
    let all: Vec<(i32, Vec<i64>)> = backends()
        .iter()
        .map(|backend| {
            let mut out = vec![-1i64; count];
            let loaded = Loaded::new(backend, vec![f.clone()]);
            (loaded.kernel(0, &[out.as_mut_ptr() as u64], begin, end, 7), out)
        })
        .collect();
    assert!(all.windows(2).all(|w| w[0] == w[1]), "{all:?}");
    all[0].clone()
}

#[test]
fn loops_carry_values() {
    // Fibonacci numbers and the sum of the indices, from `begin` to `end` in steps of 3.
    let f = kernel(1, |b, p| {
        let (zero, one, two) = (b.i64(0), b.i64(1), b.i64(2));
        let outs = b.for_carried(p[0], p[1], 3, &[zero, one, zero], |b, i, c| {
            let (next, sum) = (b.add(c[0], c[1]), b.add(c[2], i));
            vec![c[1], next, sum]
        });
        b.store(p[3], zero, outs[0]);
        b.store(p[3], one, outs[2]);
        b.store(p[3], two, p[2]);
    });
    assert_eq!(run(&f, 3, 0, 30), (0, vec![55, 135, 7]));
    assert_eq!(run(&f, 3, 1, 5), (0, vec![1, 5, 7]));
    assert_eq!(run(&f, 3, 5, 5), (0, vec![0, 0, 7]));
    assert_eq!(run(&f, 3, 9, -5), (0, vec![0, 0, 7]));
}

#[test]
fn prefetching_has_no_effect_anywhere() {
    let f = kernel(1, |b, p| {
        b.for_(p[0], p[1], 1, |b, i| {
            let shift = b.i64(40);
            let far = b.binary(Binary::Shl, i, shift);
            b.prefetch(p[3], far);
            b.store(p[3], i, far);
        });
    });
    assert_eq!(run(&f, 4, 1, 3), (0, vec![-1, 1 << 40, 2 << 40, -1]));
}

#[test]
fn constant_bounds_and_nested_loops() {
    let f = kernel(1, |b, p| {
        let [zero, one, three, four] = [0, 1, 3, 4].map(|x| b.i64(x));
        let outs = b.for_carried(zero, three, 1, &[zero], |b, i, c| {
            b.for_carried(i, four, 1, c, |b, j, c| {
                let product = b.mul(i, j);
                let more = b.add(product, one);
                vec![b.add(c[0], more)]
            })
        });
        b.store(p[3], zero, outs[0]);
        let none = b.for_carried(three, three, 1, &[four], |b, i, c| vec![b.add(c[0], i)]);
        b.store(p[3], one, none[0]);
    });
    let sum: i64 = (0..3).flat_map(|i| (i..4).map(move |j| i * j + 1)).sum();
    assert_eq!(run(&f, 2, 0, 1), (0, vec![sum, 4]));
}

#[test]
fn unrolled_loops_are_written_out() {
    let mut f = kernel(1, |b, p| {
        let [low, high, two] = [2, 11, 2].map(|x| b.i64(x));
        let outs = b.for_carried(low, high, 3, &[two], |b, i, c| {
            let inner = b.for_carried(low, i, 1, c, |b, j, c| vec![b.add(c[0], j)]);
            b.store(p[3], i, inner[0]);
            let doubled = b.add(inner[0], inner[0]);
            vec![doubled]
        });
        b.store(p[3], two, outs[0]);
    });
    let serial = run(&f, 12, 0, 1);
    let Some(Stmt::For { axis, .. }) = f.body.stmts.iter_mut().find(|s| matches!(s, Stmt::For { .. })) else {
        panic!("a loop")
    };
    *axis = Axis::Unrolled;
    assert_eq!(run(&f, 12, 0, 1), serial);
    let text = native().llvm_ir(&numrsc_ir::kernel::Module { functions: vec![f] }).expect("it is supported");
    assert_eq!(text.matches("phi i64").count(), 2 * 2, "only the inner loops are left:\n{text}");
}

#[test]
fn while_and_if() {
    // The lengths of Collatz sequences.
    let f = kernel(1, |b, p| {
        b.for_(p[0], p[1], 1, |b, i| {
            let (zero, one, two, three) = (b.i64(0), b.i64(1), b.i64(2), b.i64(3));
            let outs = b.while_(
                &[i, zero],
                |b, c| b.compare(Compare::Lt, one, c[0]),
                |b, c| {
                    let odd = b.and(c[0], one);
                    let is_odd = b.compare(Compare::Eq, odd, one);
                    let next = b.if_(
                        is_odd,
                        |b| {
                            let tripled = b.mul(c[0], three);
                            vec![b.add(tripled, one)]
                        },
                        |b| vec![b.binary(Binary::UDiv, c[0], two)],
                    );
                    vec![next[0], b.add(c[1], one)]
                },
            );
            b.store(p[3], i, outs[1]);
        });
    });
    let collatz = |mut x: i64| {
        let mut n = 0;
        while x > 1 {
            x = if x % 2 == 1 { 3 * x + 1 } else { x / 2 };
            n += 1;
        }
        n
    };
    assert_eq!(run(&f, 30, 0, 30), (0, (0..30).map(collatz).collect()));
}

#[test]
fn branches_with_an_empty_side() {
    let f = kernel(1, |b, p| {
        b.for_(p[0], p[1], 1, |b, i| {
            let (ten, one) = (b.i64(10), b.i64(1));
            let small = b.compare(Compare::Lt, i, ten);
            // One side stores, the other yields what is there already; then neither has anything to do.
            let a = b.if_(
                small,
                |b| {
                    let double = b.add(i, i);
                    b.store(p[3], i, double);
                    vec![b.load(Ty::I64, p[3], i)]
                },
                |_| vec![ten],
            );
            let c = b.if_(small, |_| vec![one], |_| vec![ten]);
            let sum = b.add(a[0], c[0]);
            b.store(p[3], i, sum);
        });
    });
    let want = (0..20).map(|i| if i < 10 { 2 * i + 1 } else { 20 }).collect();
    assert_eq!(run(&f, 20, 0, 20), (0, want));
}

#[test]
fn failures_end_the_run() {
    let f = kernel(1, |b, p| {
        b.for_(p[0], p[1], 1, |b, i| {
            let (five, eight) = (b.i64(5), b.i64(8));
            let fine = b.compare(Compare::Lt, i, five);
            b.check(fine, 42);
            b.store(p[3], i, eight);
        });
    });
    assert_eq!(run(&f, 6, 0, 5), (0, vec![8, 8, 8, 8, 8, -1]));
    assert_eq!(run(&f, 6, 3, 100), (42, vec![-1, -1, -1, 8, 8, -1]));
    // A loop whose body always fails, one side of a branch, and both sides.
    let always = kernel(1, |b, p| {
        b.for_(p[0], p[1], 1, |b, _| b.fail(3));
        let (zero, one) = (b.i64(0), b.i64(1));
        let negative = b.compare(Compare::Lt, p[0], zero);
        let value = b.if_(
            negative,
            |_| vec![p[0]],
            |b| {
                b.store(p[3], zero, one);
                vec![one]
            },
        );
        b.store(p[3], one, value[0]);
        b.if_(
            negative,
            |b| {
                b.fail(4);
                vec![]
            },
            |b| {
                b.fail(5);
                vec![]
            },
        );
    });
    assert_eq!(run(&always, 2, 0, 1), (3, vec![-1, -1]));
    assert_eq!(run(&always, 2, -3, -3), (4, vec![-1, -3]));
    assert_eq!(run(&always, 2, 0, 0), (5, vec![1, 1]));
}

#[test]
fn a_while_whose_condition_fails() {
    let f = kernel(1, |b, p| {
        let zero = b.i64(0);
        b.store(p[3], zero, zero);
        b.while_(
            &[zero],
            |b, c| {
                let below = b.compare(Compare::Lt, c[0], p[1]);
                b.check(below, 9);
                below
            },
            |b, c| {
                let one = b.i64(1);
                let next = b.add(c[0], one);
                b.store(p[3], zero, next);
                vec![next]
            },
        );
    });
    assert_eq!(run(&f, 1, 0, 4), (9, vec![4]));
}

#[test]
fn buffers_belong_to_the_call() {
    let f = kernel(1, |b, p| {
        let buffer = b.buffer(Elem::I32, 100);
        let (zero, hundred) = (b.i64(0), b.i64(100));
        b.for_(zero, hundred, 1, |b, i| {
            let narrow = b.convert(Convert::Narrow, i, Elem::I32);
            b.store(buffer, i, narrow);
        });
        let sum = b.for_carried(zero, hundred, 4, &[zero], |b, i, c| {
            let four = b.load(Ty::vector(Elem::I32, 4), buffer, i);
            let wide = b.convert(Convert::SExt, four, Elem::I64);
            let sum = b.reduce(Binary::Add, wide);
            vec![b.add(c[0], sum)]
        });
        b.store(p[3], zero, sum[0]);
        let address = b.convert(Convert::Pointer, buffer, Elem::I64);
        let (mask, one) = (b.i64(63), b.i64(1));
        let misaligned = b.and(address, mask);
        b.store(p[3], one, misaligned);
    });
    assert_eq!(run(&f, 2, 0, 1), (0, vec![4950, 0]));
}

#[test]
fn pointers_in_memory() {
    let f = kernel(1, |b, p| {
        let (zero, one, two, bytes) = (b.i64(0), b.i64(1), b.i64(2), b.i64(16));
        let third = b.offset(p[3], bytes);
        b.store(p[3], one, third);
        let again = b.load(Ty::PTR, p[3], one);
        let value = b.i64(77);
        b.store(again, zero, value);
        let back = b.load(Ty::I64, p[3], two);
        b.store(p[3], one, back);
    });
    assert_eq!(run(&f, 3, 0, 1), (0, vec![-1, 77, 77]));
}

#[test]
fn constants_lie_behind_the_code() {
    let f = kernel(1, |b, p| {
        let iota = b.iota(Ty::vector(Elem::I64, 4));
        let seven = b.int(Ty::vector(Elem::I64, 4), 7);
        let product = b.mul(iota, seven);
        let half = b.float(Ty::vector(Elem::F64, 4), 2.5);
        let float = b.convert(Convert::SToF, product, Elem::F64);
        let scaled = b.mul(float, half);
        let whole = b.convert(Convert::FToS, scaled, Elem::I64);
        b.store(p[3], p[0], whole);
    });
    assert_eq!(run(&f, 4, 0, 1), (0, vec![0, 17, 35, 52]));
}

/// `helper(a, b) = a * b + 1` of vectors, and one that calls it for each half of a scalar and a pointer.
fn helpers() -> (Function, Function) {
    let vector = Ty::vector(Elem::F32, 8);
    let mut b = Builder::new(Kind::Helper, &[vector, vector]);
    let p = b.params().to_vec();
    let product = b.mul(p[0], p[1]);
    let one = b.float(vector, 1.0);
    let sum = b.add(product, one);
    let first = b.finish("twist", vec![sum]);
    let mut b = Builder::new(Kind::Helper, &[Ty::PTR, Ty::I64, Ty::F32]);
    let p = b.params().to_vec();
    let v = b.load(vector, p[0], p[1]);
    let s = b.splat(p[2], 8);
    let twisted = b.call(FuncId(0), vec![v, s], vector);
    let twice = b.call(FuncId(0), vec![twisted, s], vector);
    let total = b.reduce(Binary::Add, twice);
    (first, b.finish("outer", vec![total]))
}

fn caller_of_helpers() -> Function {
    let mut b = Builder::new(Kind::Kernel, &[Ty::PTR, Ty::PTR, Ty::F32, Ty::I1]);
    let p = b.params().to_vec();
    b.for_(p[0], p[1], 1, |b, i| {
        let eight = b.i64(8);
        let at = b.mul(i, eight);
        let total = b.call(FuncId(1), vec![p[3], at, p[5]], Ty::F32);
        let zero = b.float(Ty::F32, 0.0);
        let shown = b.select(p[6], total, zero);
        b.store(p[4], i, shown);
    });
    b.finish("caller", vec![])
}

#[test]
fn helpers_are_called() {
    let input: Vec<f32> = (0..16).map(|i| i as f32).collect();
    for backend in backends() {
        let (first, second) = helpers();
        let loaded = Loaded::new(&backend, vec![first, second, caller_of_helpers()]);
        for (flag, want) in [(1, [8.0 * 3.0 + 4.0 * 28.0, 8.0 * 3.0 + 4.0 * 92.0]), (0, [0.0, 0.0])] {
            let mut out = [-1.0f32; 2];
            let scale = u64::from(2.0f32.to_bits());
            let args = [input.as_ptr() as u64, out.as_mut_ptr() as u64, scale, flag];
            assert_eq!(loaded.kernel(2, &args, 0, 2, 0), 0);
            assert_eq!(out, want, "on {}", backend.target().cpu);
        }
    }
}

/// What the runtime was asked to run in parallel: extent and grain.
static PARALLEL: Mutex<Vec<(i64, i64)>> = Mutex::new(vec![]);
/// The tests of launches share it.
static ALONE: Mutex<()> = Mutex::new(());

type KernelFn = extern "C" fn(*const u64, i64, i64, i64) -> i32;

extern "C" fn parallel(_ctx: *mut u64, kernel: KernelFn, args: *const u64, extent: i64, grain: i64) -> i32 {
    PARALLEL.lock().unwrap().push((extent, grain));
    let mut begin = 0;
    while begin < extent {
        let end = (begin + grain).min(extent);
        let code = kernel(args, begin, end, begin / grain % 2);
        if code != 0 {
            return code;
        }
        begin = end;
    }
    0
}

#[allow(unsafe_code)]
extern "C" fn alloc(ctx: *mut u64, bytes: i64) -> *mut u64 {
    // SAFETY: the context of these tests has a slot for weights, used here for what was asked for.
    unsafe { *ctx = bytes as u64 };
    Box::leak(vec![5u64; bytes as usize / 8].into_boxed_slice()).as_mut_ptr()
}

extern "C" fn free(_ctx: *mut u64, _block: *mut u64) -> *mut u64 {
    std::ptr::null_mut()
}

fn run_context(threads: u64, output: *mut i64) -> Vec<u64> {
    let mut ctx = vec![0u64; context::SLOTS as usize];
    ctx[context::THREADS as usize] = threads;
    ctx[context::OUTPUTS as usize] = output as u64;
    ctx[context::FN_PARALLEL as usize] = parallel as *const () as u64;
    ctx[context::FN_ALLOC as usize] = alloc as *const () as u64;
    ctx[context::FN_FREE as usize] = free as *const () as u64;
    ctx
}

/// `out[i] += scale * i + narrow`, failing with a code at an index.
fn launched() -> Function {
    let i8 = Ty::scalar(Elem::I8);
    let mut b = Builder::new(Kind::Kernel, &[Ty::PTR, Ty::F64, i8, Ty::I64, Ty::F32]);
    let p = b.params().to_vec();
    b.for_(p[0], p[1], 1, |b, i| {
        let fine = b.compare(Compare::Ne, i, p[6]);
        b.check(fine, 13);
        let float = b.convert(Convert::SToF, i, Elem::F64);
        let scaled = b.mul(float, p[4]);
        let single = b.convert(Convert::Float, p[7], Elem::F64);
        let scaled = b.mul(scaled, single);
        let whole = b.convert(Convert::FToS, scaled, Elem::I64);
        let narrow = b.convert(Convert::SExt, p[5], Elem::I64);
        let sum = b.add(whole, narrow);
        let old = b.load(Ty::I64, p[3], i);
        let sum = b.add(sum, old);
        b.store(p[3], i, sum);
    });
    b.finish("launched", vec![])
}

/// Launches the kernel over the given extents, each with a grain of 4; the second fails at an index.
fn entry(extents: &[i64], fail_at: i64) -> Function {
    let mut b = Builder::new(Kind::Entry, &[Ty::PTR]);
    let ctx = b.params()[0];
    let slot = b.i64(context::OUTPUTS);
    let out = b.load(Ty::PTR, ctx, slot);
    for (i, extent) in extents.iter().enumerate() {
        let scale = b.float(Ty::F64, 3.0);
        let narrow = b.int(Ty::scalar(Elem::I8), -2);
        let at = b.i64(if i == 1 { fail_at } else { -1 });
        let half = b.float(Ty::F32, 0.5);
        let (extent, grain) = (b.i64(*extent), b.i64(4));
        b.launch(FuncId(0), vec![out, scale, narrow, at, half], extent, grain);
    }
    b.finish("entry", vec![])
}

fn run_entry(extents: &[i64], fail_at: i64, threads: u64) -> (i32, Vec<i64>, Vec<(i64, i64)>) {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut last = None;
    for backend in backends() {
        PARALLEL.lock().unwrap().clear();
        let mut out = vec![0i64; 10];
        let mut ctx = run_context(threads, out.as_mut_ptr());
        let loaded = Loaded::new(&backend, vec![launched(), entry(extents, fail_at)]);
        let got = (loaded.entry(&mut ctx), out, std::mem::take(&mut *PARALLEL.lock().unwrap()));
        assert!(last.is_none() || last.as_ref() == Some(&got), "{got:?}");
        last = Some(got);
    }
    last.expect("there is a backend")
}

#[test]
fn launches_run_kernels() {
    let part = |extent: i64| (0..10).map(move |i| if i < extent { i * 3 / 2 - 2 } else { 0 });
    let want: Vec<i64> = part(10).zip(part(3)).map(|(a, b)| a + b).collect();
    // One thread: never split. Two: only what is longer than the grain.
    assert_eq!(run_entry(&[10, 3, 0, -4], -1, 1), (0, want.clone(), vec![]));
    assert_eq!(run_entry(&[10, 3, 0, -4], -1, 2), (0, want, vec![(10, 4)]));
    assert_eq!(run_entry(&[4], -1, 2).2, []);
    assert_eq!(run_entry(&[5], -1, 2).2, [(5, 4)]);
}

#[test]
fn a_failing_launch_ends_the_entry() {
    for threads in [1, 2] {
        let (code, out, _) = run_entry(&[2, 10, 10], 6, threads);
        assert_eq!(code, 13);
        assert_eq!(out[9], 0, "the third launch did not run");
        assert_ne!(out[5], 0, "the second did until it failed");
    }
}

#[test]
fn the_run_context_has_functions() {
    for backend in backends() {
        let mut b = Builder::new(Kind::Entry, &[Ty::PTR]);
        let ctx = b.params()[0];
        let (bytes, zero, one, slot) = (b.i64(64), b.i64(0), b.i64(1), b.i64(context::OUTPUTS));
        let out = b.load(Ty::PTR, ctx, slot);
        let block = b.host(Host::Alloc, vec![ctx, bytes]);
        let value = b.load(Ty::I64, block, one);
        b.store(out, zero, value);
        let freed = b.host(Host::Free, vec![ctx, block]);
        let address = b.convert(Convert::Pointer, freed, Elem::I64);
        b.store(out, one, address);
        let loaded = Loaded::new(&backend, vec![b.finish("entry", vec![])]);
        let mut out = [-1i64; 2];
        let mut ctx = run_context(1, out.as_mut_ptr());
        assert_eq!(loaded.entry(&mut ctx), 0);
        assert_eq!((out, ctx[0]), ([5, 0], 64));
    }
}

#[test]
fn what_needs_a_gpu_is_refused() {
    let simple = || kernel(1, |b, p| b.for_(p[0], p[1], 1, |b, i| b.store(p[3], i, i)));
    let refused = |f: Function| {
        let module = numrsc_ir::kernel::Module { functions: vec![f] };
        native().compile(&module, FuncId(0)).expect_err("it needs a GPU").to_string()
    };
    for wanted in [Axis::Block, Axis::Thread] {
        let mut f = simple();
        if let Some(Stmt::For { axis, .. }) = f.body.stmts.last_mut() {
            *axis = wanted;
        }
        assert!(refused(f).contains("needs a GPU"));
    }
    let mut f = simple();
    f.body.stmts.push(Stmt::Barrier);
    assert!(refused(f).contains("needs a GPU"));
    let mut f = simple();
    let out = V(f.types.len() as u32);
    f.types.push(Ty::PTR);
    f.body.stmts.push(Stmt::Let { out, inst: Inst::Buffer { elem: Elem::F32, count: 4, shared: true } });
    assert!(refused(f).contains("needs a GPU"));
}

#[test]
fn misplaced_statements_are_errors() {
    let refused = |f: Function| {
        let module = numrsc_ir::kernel::Module { functions: vec![f] };
        native().compile(&module, FuncId(0)).expect_err("it makes no sense").to_string()
    };
    let mut b = Builder::new(Kind::Helper, &[Ty::I64]);
    b.fail(1);
    let result = b.params()[0];
    assert!(refused(b.finish("f", vec![result])).contains("cannot fail"));
    let launching = kernel(0, |b, p| b.launch(FuncId(0), vec![], p[0], p[1]));
    assert!(refused(launching).contains("only the entry"));
    // An operand that is defined elsewhere: not a crash.
    let mut broken = kernel(1, |b, p| b.store(p[3], p[0], p[1]));
    broken.types.push(Ty::I64);
    let undefined = V(broken.types.len() as u32 - 1);
    broken.body =
        Block { stmts: vec![Stmt::Store { ptr: V(3), index: undefined, value: V(0), mask: None }], results: vec![] };
    assert!(refused(broken).contains("not valid"));
}
