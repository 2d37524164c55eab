//! Every instruction of kernel IR gives what Rust computes, on every machine this one can be.

mod support;

use numrsc_ir::kernel::build::Builder;
use numrsc_ir::kernel::{Binary, Compare, Convert, Elem, Inst, Kind, Ty, Unary, V};
use support::{Check, Loaded, backends, f32_bits, f32_of, interesting, mask, signed};

const INTS: [Elem; 4] = [Elem::I8, Elem::I16, Elem::I32, Elem::I64];

fn check(
    what: impl Into<String>,
    operands: &[Elem],
    result: Elem,
    build: impl Fn(&mut Builder, &[V]) -> V,
    expect: impl Fn(&[u64]) -> u64,
) {
    Check { what: what.into(), operands, result, build: &build, expect: &expect }.run();
}

/// An operation on `f32` and on `f64`, given in `f64` and in `f32`.
fn check_floats(
    what: &str,
    count: usize,
    build: impl Fn(&mut Builder, &[V]) -> V,
    single: impl Fn(&[f32]) -> f32,
    double: impl Fn(&[f64]) -> f64,
) {
    check(format!("{what} f32"), &vec![Elem::F32; count], Elem::F32, &build, |x| {
        f32_bits(single(&x.iter().map(|x| f32_of(*x)).collect::<Vec<_>>()))
    });
    check(format!("{what} f64"), &vec![Elem::F64; count], Elem::F64, &build, |x| {
        double(&x.iter().map(|x| f64::from_bits(*x)).collect::<Vec<_>>()).to_bits()
    });
}

#[test]
fn unary_of_integers() {
    for e in INTS {
        check(format!("neg {e:?}"), &[e], e, |b, v| b.unary(Unary::Neg, v[0]), |x| x[0].wrapping_neg() & mask(e));
        check(format!("not {e:?}"), &[e], e, |b, v| b.unary(Unary::Not, v[0]), |x| !x[0] & mask(e));
    }
}

#[test]
fn unary_of_floats() {
    let unary = |op| move |b: &mut Builder, v: &[V]| b.unary(op, v[0]);
    check_floats("neg", 1, unary(Unary::Neg), |x| -x[0], |x| -x[0]);
    check_floats("abs", 1, unary(Unary::Abs), |x| x[0].abs(), |x| x[0].abs());
    check_floats("sqrt", 1, unary(Unary::Sqrt), |x| x[0].sqrt(), |x| x[0].sqrt());
}

#[test]
fn rounding() {
    let unary = |op| move |b: &mut Builder, v: &[V]| b.unary(op, v[0]);
    check_floats("floor", 1, unary(Unary::Floor), |x| x[0].floor(), |x| x[0].floor());
    check_floats("ceil", 1, unary(Unary::Ceil), |x| x[0].ceil(), |x| x[0].ceil());
    check_floats("trunc", 1, unary(Unary::Trunc), |x| x[0].trunc(), |x| x[0].trunc());
    check_floats("round", 1, unary(Unary::Round), |x| x[0].round_ties_even(), |x| x[0].round_ties_even());
}

#[test]
fn binary_of_floats() {
    let binary = |op| move |b: &mut Builder, v: &[V]| b.binary(op, v[0], v[1]);
    check_floats("add", 2, binary(Binary::Add), |x| x[0] + x[1], |x| x[0] + x[1]);
    check_floats("sub", 2, binary(Binary::Sub), |x| x[0] - x[1], |x| x[0] - x[1]);
    check_floats("mul", 2, binary(Binary::Mul), |x| x[0] * x[1], |x| x[0] * x[1]);
    check_floats("div", 2, binary(Binary::FDiv), |x| x[0] / x[1], |x| x[0] / x[1]);
    let min = |x: &[f64]| if x[0] < x[1] { x[0] } else { x[1] };
    let max = |x: &[f64]| if x[0] > x[1] { x[0] } else { x[1] };
    check_floats("min", 2, binary(Binary::FMin), |x| if x[0] < x[1] { x[0] } else { x[1] }, min);
    check_floats("max", 2, binary(Binary::FMax), |x| if x[0] > x[1] { x[0] } else { x[1] }, max);
}

#[test]
fn muladd_rounds_as_the_machine_says() {
    for elem in [Elem::F32, Elem::F64] {
        // Products whose rounding shows in the sum.
        let xs: Vec<f64> = vec![1.0, 1.000_000_1, -0.999_999_9, 3.3, 1.0e-3, 16_777_217.0, -7.7];
        let bits = |x: f64| if elem == Elem::F32 { f32_bits(x as f32) } else { x.to_bits() };
        for backend in backends() {
            let mut b = Builder::new(Kind::Kernel, &[Ty::PTR; 2]);
            let p = b.params().to_vec();
            b.for_(p[0], p[1], 1, |b, i| {
                let (three, one, two) = (b.i64(3), b.i64(1), b.i64(2));
                let first = b.mul(i, three);
                let (second, third) = (b.add(first, one), b.add(first, two));
                let [x, y, z] = [first, second, third].map(|at| b.load(Ty::scalar(elem), p[3], at));
                let result = b.muladd(x, y, z);
                b.store(p[4], i, result);
            });
            let loaded = Loaded::new(&backend, vec![b.finish("muladd", vec![])]);
            for (x, y, z) in xs.iter().flat_map(|x| xs.iter().map(move |y| (x, y, -x * y))) {
                let words = [bits(*x), bits(*y), bits(z)];
                let bytes: Vec<u8> =
                    words.iter().flat_map(|w| w.to_le_bytes()[..elem.size() as usize].to_vec()).collect();
                let mut out = 0u64;
                let args = [bytes.as_ptr() as u64, (&raw mut out) as u64];
                assert_eq!(loaded.kernel(0, &args, 0, 1, 0), 0);
                let fused = numrsc_codegen::Backend::target(&backend).machine().fused;
                let want = if elem == Elem::F32 {
                    let [x, y, z] = words.map(f32_of);
                    f32_bits(if fused { x.mul_add(y, z) } else { x * y + z })
                } else {
                    let [x, y, z] = words.map(f64::from_bits);
                    if fused { x.mul_add(y, z) } else { x * y + z }.to_bits()
                };
                assert_eq!(out, want, "{x} * {y} + {z}, fused: {fused}");
            }
        }
    }
}

#[test]
fn binary_of_integers() {
    for e in INTS {
        let run = |op: Binary, f: fn(u64, u64, i64, i64) -> u64| {
            let build = move |b: &mut Builder, v: &[V]| b.binary(op, v[0], v[1]);
            check(format!("{op:?} {e:?}"), &[e, e], e, build, |x| {
                f(x[0], x[1], signed(e, x[0]), signed(e, x[1])) & mask(e)
            });
        };
        run(Binary::Add, |a, b, _, _| a.wrapping_add(b));
        run(Binary::Sub, |a, b, _, _| a.wrapping_sub(b));
        run(Binary::Mul, |a, b, _, _| a.wrapping_mul(b));
        run(Binary::SMin, |_, _, a, b| a.min(b) as u64);
        run(Binary::SMax, |_, _, a, b| a.max(b) as u64);
        run(Binary::UMin, |a, b, _, _| a.min(b));
        run(Binary::UMax, |a, b, _, _| a.max(b));
        run(Binary::And, |a, b, _, _| a & b);
        run(Binary::Or, |a, b, _, _| a | b);
        run(Binary::Xor, |a, b, _, _| a ^ b);
        let integer_muladd = |b: &mut Builder, v: &[V]| b.muladd(v[0], v[1], v[1]);
        check(format!("muladd {e:?}"), &[e, e], e, integer_muladd, |x| {
            x[0].wrapping_mul(x[1]).wrapping_add(x[1]) & mask(e)
        });
    }
}

#[test]
fn division_of_integers() {
    for e in INTS {
        let unsigned = |f: fn(u64, u64) -> u64| move |x: &[u64]| f(x[0], x[1].max(1));
        check(format!("udiv {e:?}"), &[e, e], e, |b, v| b.udiv(v[0], v[1]), unsigned(|a, b| a / b));
        check(format!("urem {e:?}"), &[e, e], e, |b, v| b.urem(v[0], v[1]), unsigned(|a, b| a % b));
        let by = move |x: u64| if x == 0 { 1 } else { signed(e, x) };
        check(
            format!("sdiv {e:?}"),
            &[e, e],
            e,
            |b, v| b.sdivrem(v[0], v[1]).0,
            |x| signed(e, x[0]).wrapping_div(by(x[1])) as u64 & mask(e),
        );
        check(
            format!("srem {e:?}"),
            &[e, e],
            e,
            |b, v| b.sdivrem(v[0], v[1]).1,
            |x| signed(e, x[0]).wrapping_rem(by(x[1])) as u64 & mask(e),
        );
    }
}

#[test]
fn shifts() {
    for e in INTS {
        let run = |op: Binary, f: fn(Elem, u64, u64) -> u64| {
            let build = move |b: &mut Builder, v: &[V]| {
                let limit = b.int(b.ty(v[1]), i64::from(e.bits()) - 1);
                let amount = b.and(v[1], limit);
                b.binary(op, v[0], amount)
            };
            let amount = u64::from(e.bits()) - 1;
            check(format!("{op:?} {e:?}"), &[e, e], e, build, |x| f(e, x[0], x[1] & amount) & mask(e));
        };
        run(Binary::Shl, |_, a, n| a << n);
        run(Binary::LShr, |_, a, n| a >> n);
        run(Binary::AShr, |e, a, n| (signed(e, a) >> n) as u64);
    }
}

#[test]
fn comparisons_and_select() {
    let build = |op| {
        move |b: &mut Builder, v: &[V]| {
            let holds = b.compare(op, v[0], v[1]);
            b.convert(Convert::ZExt, holds, Elem::I8)
        }
    };
    for e in INTS {
        let run = |op, f: fn(u64, u64, i64, i64) -> bool| {
            check(format!("{op:?} {e:?}"), &[e, e], Elem::I8, build(op), |x| {
                u64::from(f(x[0], x[1], signed(e, x[0]), signed(e, x[1])))
            });
        };
        run(Compare::Eq, |a, b, _, _| a == b);
        run(Compare::Ne, |a, b, _, _| a != b);
        run(Compare::Lt, |_, _, a, b| a < b);
        run(Compare::Le, |_, _, a, b| a <= b);
        run(Compare::ULt, |a, b, _, _| a < b);
        run(Compare::ULe, |a, b, _, _| a <= b);
    }
    let run = |op, f: fn(f64, f64) -> bool| {
        check(format!("{op:?} f64"), &[Elem::F64; 2], Elem::I8, build(op), |x| {
            u64::from(f(f64::from_bits(x[0]), f64::from_bits(x[1])))
        });
        check(format!("{op:?} f32"), &[Elem::F32; 2], Elem::I8, build(op), |x| {
            u64::from(f(f64::from(f32_of(x[0])), f64::from(f32_of(x[1]))))
        });
    };
    run(Compare::Eq, |a, b| a == b);
    run(Compare::Ne, |a, b| a != b);
    run(Compare::Lt, |a, b| a < b);
    run(Compare::Le, |a, b| a <= b);
    check(
        "select",
        &[Elem::I32, Elem::F32, Elem::F32],
        Elem::F32,
        |b, v| {
            let zero = b.int(b.ty(v[0]), 0);
            let positive = b.compare(Compare::Lt, zero, v[0]);
            b.select(positive, v[1], v[2])
        },
        |x| if signed(Elem::I32, x[0]) > 0 { x[1] } else { x[2] },
    );
}

#[test]
fn conversions_of_integers() {
    let convert = |op, to| move |b: &mut Builder, v: &[V]| b.convert(op, v[0], to);
    for from in INTS {
        for to in INTS {
            if to.bits() < from.bits() {
                check(format!("narrow {from:?} {to:?}"), &[from], to, convert(Convert::Narrow, to), |x| {
                    x[0] & mask(to)
                });
            } else if to.bits() > from.bits() {
                check(format!("sext {from:?} {to:?}"), &[from], to, convert(Convert::SExt, to), |x| {
                    signed(from, x[0]) as u64 & mask(to)
                });
                check(format!("zext {from:?} {to:?}"), &[from], to, convert(Convert::ZExt, to), |x| x[0]);
            }
        }
        let bit = |op| {
            move |b: &mut Builder, v: &[V]| {
                let zero = b.int(b.ty(v[0]), 0);
                let set = b.compare(Compare::Ne, v[0], zero);
                b.convert(op, set, from)
            }
        };
        check(
            format!("sext i1 {from:?}"),
            &[from],
            from,
            bit(Convert::SExt),
            |x| if x[0] == 0 { 0 } else { mask(from) },
        );
        check(format!("zext i1 {from:?}"), &[from], from, bit(Convert::ZExt), |x| u64::from(x[0] != 0));
    }
}

#[test]
fn conversions_of_floats() {
    let convert = |op, to| move |b: &mut Builder, v: &[V]| b.convert(op, v[0], to);
    check("f32 to f64", &[Elem::F32], Elem::F64, convert(Convert::Float, Elem::F64), |x| {
        f64::from(f32_of(x[0])).to_bits()
    });
    check("f64 to f32", &[Elem::F64], Elem::F32, convert(Convert::Float, Elem::F32), |x| {
        f32_bits(f64::from_bits(x[0]) as f32)
    });
    check("bits f32", &[Elem::F32], Elem::I32, convert(Convert::Bits, Elem::I32), |x| x[0]);
    check("bits f64", &[Elem::I64], Elem::F64, convert(Convert::Bits, Elem::F64), |x| x[0]);
    for e in INTS {
        check(format!("stof {e:?} f32"), &[e], Elem::F32, convert(Convert::SToF, Elem::F32), |x| {
            f32_bits(signed(e, x[0]) as f32)
        });
        check(format!("stof {e:?} f64"), &[e], Elem::F64, convert(Convert::SToF, Elem::F64), |x| {
            (signed(e, x[0]) as f64).to_bits()
        });
        check(format!("utof {e:?} f32"), &[e], Elem::F32, convert(Convert::UToF, Elem::F32), |x| f32_bits(x[0] as f32));
        check(format!("utof {e:?} f64"), &[e], Elem::F64, convert(Convert::UToF, Elem::F64), |x| {
            (x[0] as f64).to_bits()
        });
        let saturate = move |x: f64| match e {
            Elem::I8 => x as i8 as u64,
            Elem::I16 => x as i16 as u64,
            Elem::I32 => x as i32 as u64,
            _ => x as i64 as u64,
        };
        let saturate_unsigned = move |x: f64| match e {
            Elem::I8 => u64::from(x as u8),
            Elem::I16 => u64::from(x as u16),
            Elem::I32 => u64::from(x as u32),
            _ => x as u64,
        };
        for from in [Elem::F32, Elem::F64] {
            let value = move |x: u64| if from == Elem::F32 { f64::from(f32_of(x)) } else { f64::from_bits(x) };
            check(format!("ftos {from:?} {e:?}"), &[from], e, convert(Convert::FToS, e), |x| {
                saturate(value(x[0])) & mask(e)
            });
            check(format!("ftou {from:?} {e:?}"), &[from], e, convert(Convert::FToU, e), |x| {
                saturate_unsigned(value(x[0]))
            });
        }
    }
}

#[test]
fn constants_have_their_bits() {
    for e in [Elem::I8, Elem::I16, Elem::I32, Elem::I64, Elem::F32, Elem::F64] {
        for bits in interesting(e) {
            check(
                format!("const {e:?}"),
                &[Elem::I8],
                e,
                |b, v| b.bits(Ty::vector(e, b.ty(v[0]).lanes), bits),
                |_| bits,
            );
        }
    }
}

#[test]
fn pointers_are_numbers_of_64_bits() {
    check(
        "pointer",
        &[Elem::I64],
        Elem::I64,
        |b, v| {
            let lanes = b.ty(v[0]).lanes;
            let pointers: Vec<V> = (0..lanes)
                .map(|i| {
                    let address = b.extract(v[0], i);
                    let pointer = b.convert(Convert::Pointer, address, Elem::Ptr);
                    let one = b.i64(1);
                    let next = b.offset(pointer, one);
                    b.convert(Convert::Pointer, next, Elem::I64)
                })
                .collect();
            b.vector(&pointers)
        },
        |x| x[0].wrapping_add(1),
    );
}

/// A kernel from one vector of eight to whatever it stores.
fn on_eight(input: &[u64; 8], elem: Elem, count: usize, build: impl Fn(&mut Builder, V, V)) -> Vec<Vec<u64>> {
    let size = elem.size() as usize;
    let bytes: Vec<u8> = input.iter().flat_map(|x| x.to_le_bytes()[..size].to_vec()).collect();
    let read = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..size].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    let one = |backend| {
        let mut b = Builder::new(Kind::Kernel, &[Ty::PTR; 2]);
        let p = b.params().to_vec();
        let zero = b.i64(0);
        let v = b.load(Ty::vector(elem, 8), p[3], zero);
        build(&mut b, v, p[4]);
        let loaded = Loaded::new(backend, vec![b.finish("eight", vec![])]);
        let mut out = vec![0u8; count * size];
        assert_eq!(loaded.kernel(0, &[bytes.as_ptr() as u64, out.as_mut_ptr() as u64], 0, 1, 0), 0);
        out.chunks(size).map(read).collect()
    };
    backends().iter().map(|b| one(b)).collect()
}

#[test]
fn lanes_move() {
    let input = [10, 11, 12, 13, 14, 15, 16, 17];
    for elem in [Elem::I32, Elem::I64, Elem::I8] {
        let results = on_eight(&input, elem, 8 + 8 + 4 + 1 + 8 + 1 + 4, |b, v, out| {
            let zero = b.i64(0);
            let vector = Ty::vector(elem, 8);
            let third = b.extract(v, 3);
            let splat = b.splat(third, 8);
            b.store(out, zero, splat);
            let inserted = b.pure(vector, Inst::Insert(v, third, 6));
            let at = b.i64(8);
            b.store(out, at, inserted);
            let mixed = b.shuffle(v, inserted, vec![7, 0, 14, 9]);
            let at = b.i64(16);
            b.store(out, at, mixed);
            let one = b.shuffle(v, v, vec![5]);
            let at = b.i64(20);
            b.store(out, at, one);
            let iota = b.iota(vector);
            let at = b.i64(21);
            b.store(out, at, iota);
            let single = b.iota(Ty::scalar(elem));
            let at = b.i64(29);
            b.store(out, at, single);
            let scalars = b.shuffle(third, one, vec![0, 1, 1, 0]);
            let at = b.i64(30);
            b.store(out, at, scalars);
        });
        for got in results {
            assert_eq!(got[..8], [13; 8]);
            assert_eq!(got[8..16], [10, 11, 12, 13, 14, 15, 13, 17]);
            assert_eq!(got[16..21], [17, 10, 13, 11, 15]);
            assert_eq!(got[21..30], [0, 1, 2, 3, 4, 5, 6, 7, 0]);
            assert_eq!(got[30..], [13, 15, 15, 13]);
        }
    }
}

#[test]
fn reduction_halves() {
    let values = [1.0e8f32, 1.0, -1.0e8, 3.5, 0.25, -7.0, 2.0e7, 1.0e-3];
    let results = on_eight(&values.map(f32_bits), Elem::F32, 3, |b, v, out| {
        for (i, op) in [Binary::Add, Binary::FMin, Binary::FMax].into_iter().enumerate() {
            let (at, r) = (b.i64(i as i64), b.reduce(op, v));
            b.store(out, at, r);
        }
    });
    let [a, b, c, d, e, f, g, h] = values;
    let sum = ((a + e) + (c + g)) + ((b + f) + (d + h));
    for got in results {
        assert_eq!(got, [sum, -1.0e8, 1.0e8].map(f32_bits));
    }
    let results = on_eight(&[9, 8, 7, 200, 5, 4, 3, 2], Elem::I8, 4, |b, v, out| {
        for (i, op) in [Binary::Add, Binary::UMax, Binary::SMin, Binary::Xor].into_iter().enumerate() {
            let (at, r) = (b.i64(i as i64), b.reduce(op, v));
            b.store(out, at, r);
        }
    });
    for got in results {
        assert_eq!(got, [238, 200, 200, 9 ^ 8 ^ 7 ^ 200 ^ 5 ^ 4 ^ 3 ^ 2]);
    }
}

#[test]
fn masks_leave_lanes_out() {
    for elem in [Elem::I8, Elem::I16, Elem::I32, Elem::I64] {
        let results = on_eight(&[1, 2, 3, 4, 5, 6, 7, 8], elem, 17, |b, v, out| {
            let (zero, four, eight, sixteen) = (b.i64(0), b.i64(4), b.i64(8), b.i64(16));
            let (limit, ty) = (b.int(b.ty(v), 4), b.ty(v));
            let small = b.compare(Compare::Lt, v, limit);
            b.store_masked(out, zero, v, small);
            // What the last lanes would read lies behind the array.
            let masked = b.pure(ty, Inst::Load { ptr: out, index: zero, mask: Some(small) });
            b.store(out, eight, masked);
            let (first, last) = (b.extract(small, 0), b.extract(small, 7));
            let one = Ty::scalar(elem);
            let read = b.pure(one, Inst::Load { ptr: out, index: eight, mask: Some(first) });
            let unread = b.pure(one, Inst::Load { ptr: out, index: eight, mask: Some(last) });
            let shifted = b.add(read, unread);
            b.store_masked(out, sixteen, shifted, first);
            b.store_masked(out, four, shifted, last);
        });
        for got in results {
            assert_eq!(got, [1, 2, 3, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0, 1], "{elem:?}");
        }
    }
}
