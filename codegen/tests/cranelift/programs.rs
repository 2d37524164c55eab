//! Control flow, failing, calls and launches.
use super::{backends, load};
use numrsc_codegen::Backend;
use numrsc_ir::kernel::build::Builder;
use numrsc_ir::kernel::{
    Axis, Binary, Block, Compare, Convert, Elem, FuncId, Function, Host, Inst, Kind, Module, Stmt, Ty, V, context,
};
use std::sync::atomic::{AtomicI64, Ordering};

/// Run a kernel that writes `i64`s to its only parameter, on both backends.
fn check(expected: &[i64], code: i32, build: &dyn Fn(&mut Builder, V)) {
    for backend in backends() {
        let mut b = Builder::new(Kind::Kernel, &[Ty::PTR]);
        let out = b.params()[3];
        build(&mut b, out);
        let loaded = load(&backend, vec![b.finish("program", vec![])]);
        let mut got = vec![0i64; expected.len()];
        assert_eq!(loaded.kernel(0, &[got.as_mut_ptr() as u64], 0, 10), code);
        assert_eq!(got, expected);
    }
}

fn put(b: &mut Builder, out: V, at: i64, x: V) {
    let at = b.i64(at);
    b.store(out, at, x);
}

#[test]
fn loops_carry_values() {
    // Over 0, 3, 6, 9; nothing for an empty range; one round for a step past the end.
    check(&[18, 49, 5, 100], 0, &|b, out| {
        let (begin, end, one, zero) = (b.params()[0], b.params()[1], b.i64(1), b.i64(0));
        let r = b.for_carried(begin, end, 3, &[zero, one], |b, i, v| {
            let (sum, two) = (b.add(v[0], i), b.i64(2));
            vec![sum, b.muladd(v[1], two, i)]
        });
        put(b, out, 0, r[0]);
        put(b, out, 1, r[1]);
        let five = b.i64(5);
        let r = b.for_carried(end, begin, 1, &[five], |b, i, v| vec![b.add(v[0], i)]);
        put(b, out, 2, r[0]);
        let r = b.for_carried(begin, end, 100, &[zero], |b, _, v| {
            let hundred = b.i64(100);
            vec![b.add(v[0], hundred)]
        });
        put(b, out, 3, r[0]);
    });
}

#[test]
fn vectors_and_masks_are_carried() {
    for lanes in [2, 4, 3, 16] {
        let (ty, wide) = (Ty::vector(Elem::F32, lanes), i64::from(lanes));
        check(&[45 * wide + 10 * wide * (wide - 1) / 2, wide / 2], 0, &|b, out| {
            let (begin, end) = (b.params()[0], b.params()[1]);
            let (zero, iota) = (b.float(ty, 0.0), b.iota(ty));
            let none = b.compare(Compare::Lt, iota, zero);
            let r = b.for_carried(begin, end, 1, &[zero, none], |b, i, v| {
                let i = b.convert(Convert::SToF, i, Elem::F32);
                let i = b.splat(i, lanes);
                let (x, limit) = (b.add(i, iota), b.float(ty, 8.5));
                let (sum, large) = (b.add(v[0], x), b.compare(Compare::Lt, limit, i));
                let odd = b.int(ty.with(Elem::I32), 1);
                let bits = b.iota(ty.with(Elem::I32));
                let bits = b.and(bits, odd);
                let odd = b.compare(Compare::Eq, bits, odd);
                let large = b.and(large, odd);
                vec![sum, b.or(v[1], large)]
            });
            let sum = b.reduce(Binary::Add, r[0]);
            let sum = b.convert(Convert::FToS, sum, Elem::I64);
            put(b, out, 0, sum);
            let ones = b.convert(Convert::ZExt, r[1], Elem::I64);
            let count = b.reduce(Binary::Add, ones);
            put(b, out, 1, count);
        });
    }
}

/// Steps of the Collatz sequence, with a branch in a `while` in a `for`.
#[test]
fn branches_in_loops_in_loops() {
    check(&[0, 1, 7, 2, 5, 8, 16, 3, 19], 0, &|b, out| {
        let (one, ten, zero) = (b.i64(1), b.i64(10), b.i64(0));
        b.for_(one, ten, 1, |b, n| {
            let r = b.while_(
                &[n, zero],
                |b, v| {
                    let one = b.i64(1);
                    b.compare(Compare::Ne, v[0], one)
                },
                |b, v| {
                    let (one, two, three) = (b.i64(1), b.i64(2), b.i64(3));
                    let bit = b.and(v[0], one);
                    let odd = b.compare(Compare::Eq, bit, one);
                    let x = v[0];
                    let next = b.if_(
                        odd,
                        |b| {
                            let x = b.mul(x, three);
                            vec![b.add(x, one)]
                        },
                        |b| vec![b.udiv(x, two)],
                    );
                    vec![next[0], b.add(v[1], one)]
                },
            );
            let at = b.sub(n, one);
            b.store(out, at, r[1]);
        });
    });
}

#[test]
fn loops_can_be_written_out() {
    fn unroll(block: &mut Block) {
        for stmt in &mut block.stmts {
            if let Stmt::For { axis, body, .. } = stmt {
                *axis = Axis::Unrolled;
                unroll(body);
            }
        }
    }
    for backend in backends() {
        let mut b = Builder::new(Kind::Kernel, &[Ty::PTR]);
        let (out, zero, four, two) = (b.params()[3], b.i64(0), b.i64(4), b.i64(2));
        b.for_(zero, four, 2, |b, i| {
            let sum = b.for_carried(zero, two, 1, &[i], |b, j, v| {
                let ten = b.i64(10);
                let place = b.add(i, j);
                let x = b.mul(place, ten);
                b.store(out, place, x);
                vec![b.add(v[0], x)]
            });
            let after = b.add(i, four);
            b.store(out, after, sum[0]);
        });
        let mut function = b.finish("unrolled", vec![]);
        unroll(&mut function.body);
        let loaded = load(&backend, vec![function]);
        let mut got = [0i64; 8];
        assert_eq!(loaded.kernel(0, &[got.as_mut_ptr() as u64], 0, 1), 0);
        assert_eq!(got, [0, 10, 20, 30, 10, 0, 52, 0]);
    }
}

#[test]
fn failing_ends_at_once() {
    check(&[1, 0], 42, &|b, out| {
        let one = b.i64(1);
        put(b, out, 0, one);
        let (begin, end) = (b.params()[0], b.params()[1]);
        b.for_(begin, end, 1, |b, i| {
            let five = b.i64(5);
            let small = b.compare(Compare::Lt, i, five);
            b.check(small, 42);
        });
        put(b, out, 1, one);
    });
    // Both branches fail, inside a loop; what follows is never reached.
    check(&[0], 7, &|b, out| {
        let (begin, end) = (b.params()[0], b.params()[1]);
        b.for_(begin, end, 1, |b, i| {
            let five = b.i64(5);
            let small = b.compare(Compare::Lt, i, five);
            b.if_(
                small,
                |b| {
                    b.fail(7);
                    vec![]
                },
                |b| {
                    b.fail(8);
                    vec![]
                },
            );
            put(b, out, 0, five);
        });
    });
    // One branch fails and the other gives the value.
    check(&[3], 0, &|b, out| {
        let (begin, end) = (b.params()[0], b.params()[1]);
        let cond = b.compare(Compare::Lt, begin, end);
        let three = b.i64(3);
        let r = b.if_(
            cond,
            |_| vec![three],
            |b| {
                b.fail(9);
                vec![three]
            },
        );
        put(b, out, 0, r[0]);
    });
}

#[test]
fn kernels_take_scalars_of_every_type() {
    for backend in backends() {
        let elems = [Elem::I1, Elem::I8, Elem::I16, Elem::I32, Elem::I64, Elem::F32, Elem::F64];
        let mut params = vec![Ty::PTR];
        params.extend(elems.map(Ty::scalar));
        let mut b = Builder::new(Kind::Kernel, &params);
        let out = b.params()[3];
        for (i, elem) in elems.into_iter().enumerate() {
            let v = b.params()[4 + i];
            let v = match elem {
                Elem::F32 | Elem::F64 => b.convert(Convert::FToS, v, Elem::I64),
                _ => b.convert(Convert::SExt, v, Elem::I64),
            };
            put(&mut b, out, i as i64, v);
        }
        let loaded = load(&backend, vec![b.finish("scalars", vec![])]);
        let mut got = [0i64; 7];
        let args = [got.as_mut_ptr() as u64, 1, 0xfe, 0xfffd, 0xffff_fffc, 5, 0x40c0_0000, 7f64.to_bits()];
        assert_eq!(loaded.kernel(0, &args, 0, 1), 0);
        assert_eq!(got, [-1, -2, -3, -4, 5, 6, 7]);
    }
}

/// `helper(a, b, .., scale) = (a + b + ..) * scale` for vectors of this type.
fn sum_helper(ty: Ty, count: usize) -> Function {
    let mut params = vec![ty; count];
    params.push(Ty::scalar(ty.elem));
    let mut b = Builder::new(Kind::Helper, &params);
    let params = b.params().to_vec();
    let sum = params[1..count].iter().fold(params[0], |sum, &p| b.add(sum, p));
    let scale = b.splat(params[count], ty.lanes);
    let result = b.mul(sum, scale);
    b.finish("sum", vec![result])
}

#[test]
fn helpers_take_and_give_vectors() {
    for backend in backends() {
        for elem in [Elem::F32, Elem::I64, Elem::I16] {
            for lanes in [1, 2, 3, 4, 8, 16, 32] {
                let ty = Ty::vector(elem, lanes);
                let mut b = Builder::new(Kind::Kernel, &[Ty::PTR]);
                let (out, zero) = (b.params()[3], b.i64(0));
                let one = b.load(ty, out, zero);
                let scalar = b.extract(one, lanes - 1);
                let first = b.call(FuncId(1), vec![one, one, one, one, scalar], ty);
                let second = b.call(FuncId(1), vec![one, first, one, first, scalar], ty);
                b.store(out, zero, second);
                let loaded = load(&backend, vec![b.finish("calls", vec![]), sum_helper(ty, 4)]);
                // In every lane 2: the first gives 16, the second 72.
                let (two, expected): (Vec<u8>, Vec<u8>) = match elem {
                    Elem::F32 => (2f32.to_le_bytes().to_vec(), 72f32.to_le_bytes().to_vec()),
                    _ => {
                        let bytes = |x: i64| x.to_le_bytes()[..elem.size() as usize].to_vec();
                        (bytes(2), bytes(72))
                    }
                };
                let mut memory = two.repeat(lanes as usize);
                assert_eq!(loaded.kernel(0, &[memory.as_mut_ptr() as u64], 0, 1), 0);
                assert_eq!(memory, expected.repeat(lanes as usize), "{ty}");
            }
        }
    }
}

#[test]
fn helpers_take_and_give_conditions() {
    for backend in backends() {
        for lanes in [1, 4] {
            let ty = Ty::vector(Elem::I1, lanes);
            let mut b = Builder::new(Kind::Helper, &[ty, ty]);
            let (x, y) = (b.params()[0], b.params()[1]);
            let r = b.binary(Binary::Xor, x, y);
            let helper = b.finish("xor", vec![r]);

            let mut b = Builder::new(Kind::Kernel, &[Ty::PTR]);
            let (out, zero) = (b.params()[3], b.i64(0));
            let v = b.load(ty.with(Elem::I64), out, zero);
            let (five, eight) = (b.int(ty.with(Elem::I64), 5), b.int(ty.with(Elem::I64), 8));
            let (x, y) = (b.compare(Compare::Lt, v, five), b.compare(Compare::Lt, v, eight));
            let r = b.call(FuncId(1), vec![x, y], ty);
            let r = b.convert(Convert::ZExt, r, Elem::I64);
            b.store(out, zero, r);
            let loaded = load(&backend, vec![b.finish("calls", vec![]), helper]);
            let mut memory = [5i64, 4, 7, 8];
            assert_eq!(loaded.kernel(0, &[memory.as_mut_ptr() as u64], 0, 1), 0);
            assert_eq!(memory[..lanes as usize], [1, 0, 1, 0][..lanes as usize]);
        }
    }
}

// Launches.

static PARALLEL_CALLS: AtomicI64 = AtomicI64::new(0);

/// Splits a range into parts of the grain, from the last to the first.
unsafe extern "C" fn parallel(
    ctx: *mut u64,
    kernel: super::KernelFn,
    args: *const u64,
    extent: i64,
    grain: i64,
) -> i32 {
    PARALLEL_CALLS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: called with the context of the test.
    assert_eq!(unsafe { *ctx.add(context::THREADS as usize) }, 4);
    let mut end = extent;
    while end > 0 {
        let begin = (end - grain).max(0);
        // SAFETY: called with a kernel and its arguments.
        let code = unsafe { kernel(args, begin, end, end % 4) };
        if code != 0 {
            return code;
        }
        end = begin;
    }
    0
}

unsafe extern "C" fn alloc(_: *mut u64, bytes: i64) -> *mut u8 {
    Box::leak(vec![0xeeu8; bytes as usize].into_boxed_slice()).as_mut_ptr()
}

unsafe extern "C" fn free(ctx: *mut u64, _: *mut u8) -> *mut u8 {
    // SAFETY: called with the context of the test.
    unsafe { *ctx.add(context::WEIGHTS as usize) += 1 };
    std::ptr::null_mut()
}

fn run_context(threads: u64, arena: &mut [i64]) -> Vec<u64> {
    let mut ctx = vec![0; context::SLOTS as usize];
    ctx[context::ARENA as usize] = arena.as_mut_ptr() as u64;
    ctx[context::THREADS as usize] = threads;
    ctx[context::FN_ALLOC as usize] = alloc as *const () as u64;
    ctx[context::FN_FREE as usize] = free as *const () as u64;
    ctx[context::FN_PARALLEL as usize] = parallel as *const () as u64;
    ctx
}

/// `kernel(out, add, scale, limit)`: adds `i * scale + add` to `out[i]`, fails with 5 at the limit.
fn adding_kernel() -> Function {
    let mut b = Builder::new(Kind::Kernel, &[Ty::PTR, Ty::I64, Ty::F32, Ty::F64]);
    let [begin, end, _, out, add, scale, limit] = b.params()[..] else { unreachable!("seven parameters") };
    b.for_(begin, end, 1, |b, i| {
        let x = b.convert(Convert::SToF, i, Elem::F32);
        let x = b.mul(x, scale);
        let wide = b.convert(Convert::Float, x, Elem::F64);
        let fine = b.compare(Compare::Lt, wide, limit);
        b.check(fine, 5);
        let x = b.convert(Convert::FToS, x, Elem::I64);
        let (x, old) = (b.add(x, add), b.load(Ty::I64, out, i));
        let x = b.add(x, old);
        b.store(out, i, x);
    });
    b.finish("adding", vec![])
}

/// Launches the kernel with extents that are constant (10, 3, 0) and read from memory (`arena[16..18]`).
fn launching_entry(limit: f64) -> Function {
    let mut b = Builder::new(Kind::Entry, &[Ty::PTR]);
    let ctx = b.params()[0];
    let slot = b.i64(context::ARENA);
    let arena = b.load_fixed(Ty::PTR, ctx, slot);
    let (scale, limit) = (b.float(Ty::F32, 2.0), b.float(Ty::F64, limit));
    let launch = |b: &mut Builder, from: i64, add: i64, extent: V, grain: V| {
        let bytes = b.i64(from * 8);
        let (out, add) = (b.offset(arena, bytes), b.i64(add));
        b.launch(FuncId(1), vec![out, add, scale, limit], extent, grain);
    };
    let (ten, three, four, zero) = (b.i64(10), b.i64(3), b.i64(4), b.i64(0));
    launch(&mut b, 0, 100, ten, four);
    launch(&mut b, 0, 1000, three, four);
    launch(&mut b, 0, 7, zero, four);
    let at = b.i64(16);
    let none = b.load(Ty::I64, arena, at);
    let at = b.i64(17);
    let some = b.load(Ty::I64, arena, at);
    launch(&mut b, 1, 7, none, four);
    launch(&mut b, 1, 10_000, some, four);
    launch(&mut b, 1, 100_000, three, some);
    b.finish("entry", vec![])
}

#[test]
fn launches_run_alone_or_in_parts() {
    let mut expected = [0i64; 18];
    (0..10).for_each(|i| expected[i] += 2 * i as i64 + 100);
    (0..3).for_each(|i| expected[i] += 2 * i as i64 + 1000);
    (0..6).for_each(|i| expected[i + 1] += 2 * i as i64 + 10_000);
    (0..3).for_each(|i| expected[i + 1] += 2 * i as i64 + 100_000);
    expected[16] = -1;
    expected[17] = 6;
    for backend in backends() {
        let loaded = load(&backend, vec![launching_entry(1e9), adding_kernel()]);
        for (threads, calls) in [(1, 0), (4, 2)] {
            let mut arena = [0i64; 18];
            arena[16..].copy_from_slice(&[-1, 6]);
            let before = PARALLEL_CALLS.load(Ordering::SeqCst);
            assert_eq!(loaded.entry(0, &mut run_context(threads, &mut arena)), 0);
            assert_eq!(arena, expected, "{threads} threads");
            assert_eq!(PARALLEL_CALLS.load(Ordering::SeqCst) - before, calls);
        }
        // The first kernel fails at 9 with one thread, and in parts at once in the last of them.
        let loaded = load(&backend, vec![launching_entry(18.0), adding_kernel()]);
        for (threads, done) in [(1, 9), (4, 3)] {
            let mut arena = [0i64; 18];
            let before = PARALLEL_CALLS.load(Ordering::SeqCst);
            assert_eq!(loaded.entry(0, &mut run_context(threads, &mut arena)), 5);
            assert_eq!(arena.iter().filter(|&&x| x != 0).count(), done, "{threads} threads");
            assert!(arena.iter().all(|&x| x < 1000), "nothing runs after the failure");
            assert_eq!(PARALLEL_CALLS.load(Ordering::SeqCst) - before, i64::from(threads == 4));
        }
    }
}

#[test]
fn functions_of_the_host_are_called() {
    for backend in backends() {
        let mut b = Builder::new(Kind::Entry, &[Ty::PTR]);
        let ctx = b.params()[0];
        let (bytes, two, slot) = (b.i64(32), b.i64(2), b.i64(context::ARENA));
        let memory = b.host(Host::Alloc, vec![ctx, bytes]);
        let x = b.load(Ty::I64, memory, two);
        let arena = b.load(Ty::PTR, ctx, slot);
        put(&mut b, arena, 0, x);
        let null = b.host(Host::Free, vec![ctx, memory]);
        let null = b.convert(Convert::Pointer, null, Elem::I64);
        put(&mut b, arena, 1, null);
        let loaded = load(&backend, vec![b.finish("hosted", vec![])]);
        let mut arena = [1i64; 2];
        let mut ctx = run_context(1, &mut arena);
        assert_eq!(loaded.entry(0, &mut ctx), 0);
        assert_eq!(arena, [0xeeee_eeee_eeee_eeeeu64 as i64, 0]);
        assert_eq!(ctx[context::WEIGHTS as usize], 1);
    }
}

#[test]
fn what_needs_a_gpu_is_refused() {
    let mut b = Builder::new(Kind::Kernel, &[Ty::PTR]);
    let p = b.pure(Ty::PTR, Inst::Buffer { elem: Elem::F32, count: 4, shared: true });
    let (zero, x) = (b.i64(0), b.float(Ty::F32, 1.0));
    b.store(p, zero, x);
    let shared = b.finish("shared", vec![]);

    let mut b = Builder::new(Kind::Kernel, &[Ty::PTR]);
    let (begin, end, out) = (b.params()[0], b.params()[1], b.params()[3]);
    b.for_(begin, end, 1, |b, i| b.store(out, i, i));
    let mut threads = b.finish("threads", vec![]);
    for stmt in &mut threads.body.stmts {
        if let Stmt::For { axis, .. } = stmt {
            *axis = Axis::Thread;
        }
    }
    let mut barrier = Builder::new(Kind::Kernel, &[]).finish("barrier", vec![]);
    barrier.body.stmts.push(Stmt::Barrier);

    let module = Module { functions: vec![shared, threads, barrier] };
    for (id, name) in [(0, "shared"), (1, "threads"), (2, "barrier")] {
        let error = backends()[0].compile(&module, FuncId(id)).unwrap_err().to_string();
        assert!(error.contains("needs a GPU") && error.contains(name), "{error}");
    }
    let error = backends()[0].compile(&module, FuncId(3)).unwrap_err().to_string();
    assert!(error.contains("no function 3"), "{error}");
}

#[test]
fn the_same_function_gives_the_same_code() {
    let module = Module { functions: vec![launching_entry(2.0), adding_kernel()] };
    for (a, b) in backends().into_iter().zip(backends()) {
        for id in [FuncId(0), FuncId(1)] {
            assert_eq!(a.compile(&module, id).expect("compiles"), b.compile(&module, id).expect("compiles"));
        }
    }
}

#[test]
fn features_are_those_of_this_cpu() {
    let [native, portable] = backends();
    assert_eq!(portable.required_features(), Vec::<String>::new());
    assert_eq!(native.target().triple, portable.target().triple);
    #[cfg(target_arch = "x86_64")]
    {
        let has = |name: &str| native.required_features().iter().any(|f| f == name);
        assert_eq!(has("sse4.1"), std::is_x86_feature_detected!("sse4.1"));
        assert_eq!(has("fma"), std::is_x86_feature_detected!("fma"));
        assert_eq!(has("bmi2"), std::is_x86_feature_detected!("bmi2"));
        assert_eq!(native.machine().fused, has("fma"));
        assert!(!portable.machine().fused);
    }
}
