//! What moves lanes around, and memory.
use super::{backends, load};
use numrsc_ir::kernel::build::Builder;
use numrsc_ir::kernel::{Binary, Compare, Convert, Elem, Inst, Kind, Ty, V};

const LANES: [u32; 8] = [2, 3, 4, 6, 8, 16, 32, 64];
const ELEMS: [Elem; 6] = [Elem::I8, Elem::I16, Elem::I32, Elem::I64, Elem::F32, Elem::F64];

/// A kernel of two pointers, run on 128 elements of 1, 2, 3 .. and an output of 128 elements.
fn run(elem: Elem, build: &dyn Fn(&mut Builder, V, V)) -> Vec<Vec<i64>> {
    let mut results = vec![];
    for backend in backends() {
        let mut b = Builder::new(Kind::Kernel, &[Ty::PTR, Ty::PTR]);
        let (from, to) = (b.params()[3], b.params()[4]);
        build(&mut b, from, to);
        let code = load(&backend, vec![b.finish("vectors", vec![])]);
        let size = elem.size() as usize;
        let bytes = |x: i64| match elem {
            Elem::F32 => (x as f32).to_le_bytes().to_vec(),
            Elem::F64 => (x as f64).to_le_bytes().to_vec(),
            _ => x.to_le_bytes()[..size].to_vec(),
        };
        let input: Vec<u8> = (1..=128).flat_map(bytes).collect();
        let mut output = vec![0u8; 128 * size];
        assert_eq!(code.kernel(0, &[input.as_ptr() as u64, output.as_mut_ptr() as u64], 0, 1), 0);
        let number = |c: &[u8]| {
            let mut x = [0; 8];
            x[..size].copy_from_slice(c);
            match elem {
                Elem::F32 => f32::from_bits(u64::from_le_bytes(x) as u32) as i64,
                Elem::F64 => f64::from_le_bytes(x) as i64,
                _ => i64::from_le_bytes(x) << (64 - 8 * size) >> (64 - 8 * size),
            }
        };
        results.push(output.chunks(size).map(number).collect());
    }
    results
}

fn check(what: &str, elem: Elem, expected: &[i64], build: &dyn Fn(&mut Builder, V, V)) {
    for got in run(elem, build) {
        assert_eq!(got[..expected.len()], *expected, "{what} {elem:?}");
        assert!(got[expected.len()..].iter().all(|&x| x == 0), "{what} {elem:?} writes too much: {got:?}");
    }
}

/// Only the low bits of a sum are left in bytes.
fn wrapped(elem: Elem, x: i64) -> i64 {
    if elem == Elem::I8 { i64::from(x as i8) } else { x }
}

#[test]
fn loads_and_stores_of_every_width() {
    for elem in ELEMS {
        for lanes in LANES {
            let expected: Vec<i64> = (3..3 + i64::from(lanes)).chain([0]).collect();
            check("copy", elem, &expected[..lanes as usize], &|b, from, to| {
                let (two, zero) = (b.i64(2), b.i64(0));
                let v = b.load(Ty::vector(elem, lanes), from, two);
                b.store(to, zero, v);
            });
        }
    }
}

#[test]
fn splat_extract_insert_and_iota() {
    for elem in ELEMS {
        for lanes in LANES {
            let ty = Ty::vector(elem, lanes);
            check("splat", elem, &vec![5; lanes as usize], &|b, from, to| {
                let (four, zero) = (b.i64(4), b.i64(0));
                let x = b.load(Ty::scalar(elem), from, four);
                let v = b.splat(x, lanes);
                b.store(to, zero, v);
            });
            let reversed: Vec<i64> = (1..=i64::from(lanes)).rev().collect();
            check("extract and insert", elem, &reversed, &|b, from, to| {
                let zero = b.i64(0);
                let v = b.load(ty, from, zero);
                let all: Vec<V> = (0..lanes).rev().map(|i| b.extract(v, i)).collect();
                let v = b.vector(&all);
                b.store(to, zero, v);
            });
            let counted: Vec<i64> = (0..i64::from(lanes)).collect();
            check("iota", elem, &counted, &|b, _, to| {
                let zero = b.i64(0);
                let v = b.iota(ty);
                b.store(to, zero, v);
            });
        }
    }
}

#[test]
fn shuffles() {
    for elem in ELEMS {
        for lanes in LANES {
            let patterns: [(&str, &dyn Fn(u32) -> u32); 5] = [
                ("interleave", &|i| i / 2 + i % 2 * lanes),
                ("reverse", &|i| 2 * lanes - 1 - i),
                ("even", &|i| i * 2),
                ("rotate", &|i| (i + 1) % lanes),
                ("scatter", &|i| (i * 7 + 3) % (2 * lanes)),
            ];
            for (name, pattern) in patterns {
                let positions: Vec<u32> = (0..lanes).map(pattern).collect();
                let expected: Vec<i64> = positions.iter().map(|&p| i64::from(p) + 1).collect();
                check(name, elem, &expected.iter().map(|&x| wrapped(elem, x)).collect::<Vec<_>>(), &|b, from, to| {
                    let (zero, n) = (b.i64(0), b.i64(i64::from(lanes)));
                    let (x, y) =
                        (b.load(Ty::vector(elem, lanes), from, zero), b.load(Ty::vector(elem, lanes), from, n));
                    let v = b.shuffle(x, y, positions.clone());
                    b.store(to, zero, v);
                });
            }
            // To fewer lanes and to more.
            check("half", elem, &[2], &|b, from, to| {
                let zero = b.i64(0);
                let x = b.load(Ty::vector(elem, lanes), from, zero);
                let v = b.shuffle(x, x, vec![1]);
                b.store(to, zero, v);
            });
        }
        check("longer", elem, &[1, 2, 5, 6, 1, 2, 5, 6, 4, 4, 4, 4, 8, 8, 8, 8], &|b, from, to| {
            let (zero, four) = (b.i64(0), b.i64(4));
            let (x, y) = (b.load(Ty::vector(elem, 4), from, zero), b.load(Ty::vector(elem, 4), from, four));
            let v = b.shuffle(x, y, vec![0, 1, 4, 5, 0, 1, 4, 5, 3, 3, 3, 3, 7, 7, 7, 7]);
            b.store(to, zero, v);
        });
    }
}

#[test]
fn reductions() {
    for elem in ELEMS {
        for lanes in LANES {
            let n = i64::from(lanes);
            let most = if elem.is_float() { Binary::FMax } else { Binary::SMax };
            for (op, expected) in [(Binary::Add, wrapped(elem, n * (n + 1) / 2)), (most, n)] {
                check("reduce", elem, &[expected], &|b, from, to| {
                    let zero = b.i64(0);
                    let v = b.load(Ty::vector(elem, lanes), from, zero);
                    let x = b.reduce(op, v);
                    b.store(to, zero, x);
                });
            }
        }
    }
}

/// The order is part of the meaning: halves, not neighbours.
#[test]
fn sums_are_of_halves() {
    let x: Vec<f32> = (0..64).map(|i| 1.0 + 10f32.powi(i % 7) / 3.0).collect();
    for backend in backends() {
        for lanes in [2, 4, 8, 16, 64] {
            let mut b = Builder::new(Kind::Kernel, &[Ty::PTR, Ty::PTR]);
            let (from, to, zero) = (b.params()[3], b.params()[4], b.i64(0));
            let v = b.load(Ty::vector(Elem::F32, lanes), from, zero);
            let sum = b.reduce(Binary::Add, v);
            b.store(to, zero, sum);
            let code = load(&backend, vec![b.finish("sum", vec![])]);
            let mut got = 0f32;
            assert_eq!(code.kernel(0, &[x.as_ptr() as u64, (&raw mut got) as u64], 0, 1), 0);
            let mut halves = x[..lanes as usize].to_vec();
            while halves.len() > 1 {
                let upper = halves.split_off(halves.len() / 2);
                halves.iter_mut().zip(upper).for_each(|(a, b)| *a += b);
            }
            assert_eq!(got.to_bits(), halves[0].to_bits(), "{lanes} lanes");
        }
    }
}

#[test]
fn masked_reductions_and_splats_of_conditions() {
    for lanes in LANES {
        for (op, expected) in [(Binary::Or, 1), (Binary::And, 0)] {
            check("any or all", Elem::F32, &[expected], &|b, from, to| {
                let zero = b.i64(0);
                let v = b.load(Ty::vector(Elem::F32, lanes), from, zero);
                let one = b.float(Ty::vector(Elem::F32, lanes), 1.0);
                let mask = b.compare(Compare::Eq, v, one);
                let any = b.reduce(op, mask);
                let any = b.convert(Convert::UToF, any, Elem::F32);
                b.store(to, zero, any);
            });
        }
        let expected: Vec<i64> = (1..=i64::from(lanes)).map(|i| -i).collect();
        check("one condition for all", Elem::F32, &expected, &|b, from, to| {
            let zero = b.i64(0);
            let v = b.load(Ty::vector(Elem::F32, lanes), from, zero);
            let (first, second) = (b.extract(v, 0), b.extract(v, 1));
            let less = b.compare(Compare::Lt, first, second);
            let less = b.splat(less, lanes);
            let minus = b.unary(numrsc_ir::kernel::Unary::Neg, v);
            let v = b.select(less, minus, v);
            b.store(to, zero, v);
        });
    }
}

fn below(b: &mut Builder, lanes: u32, n: i64) -> V {
    let ty = Ty::vector(Elem::I32, lanes);
    let (iota, n) = (b.iota(ty), b.int(ty, n));
    b.compare(Compare::Lt, iota, n)
}

#[test]
fn masked_loads_and_stores_leave_other_memory_alone() {
    for elem in ELEMS {
        for lanes in LANES {
            for n in [0, 1, i64::from(lanes) - 1, i64::from(lanes)] {
                let expected: Vec<i64> = (1..=i64::from(lanes)).map(|i| if i <= n { i } else { 0 }).collect();
                check("masked load", elem, &expected, &|b, from, to| {
                    let zero = b.i64(0);
                    let mask = below(b, lanes, n);
                    let ty = Ty::vector(elem, lanes);
                    let v = b.pure(ty, Inst::Load { ptr: from, index: zero, mask: Some(mask) });
                    b.store(to, zero, v);
                });
                check("masked store", elem, &expected, &|b, from, to| {
                    let zero = b.i64(0);
                    let mask = below(b, lanes, n);
                    let v = b.load(Ty::vector(elem, lanes), from, zero);
                    b.store_masked(to, zero, v, mask);
                });
            }
            // Memory that is not there is not touched.
            check("masked away", elem, &vec![0; lanes as usize], &|b, _, to| {
                let (zero, null) = (b.i64(0), b.bits(Ty::PTR, 0));
                let mask = below(b, lanes, 0);
                let v = b.pure(Ty::vector(elem, lanes), Inst::Load { ptr: null, index: zero, mask: Some(mask) });
                b.store_masked(null, zero, v, mask);
                b.store(to, zero, v);
            });
        }
    }
}

#[test]
fn constants_in_addresses_cancel() {
    check("far away", Elem::I64, &[3], &|b, from, to| {
        let far = b.i64(1 << 40);
        let back = b.i64(2 - (1 << 37));
        let (there, zero) = (b.offset(from, far), b.i64(0));
        let v = b.load(Ty::I64, there, back);
        b.store(to, zero, v);
    });
    // More than an instruction holds.
    check("large", Elem::I64, &[4], &|b, from, to| {
        let begin = b.params()[0];
        let (away, zero) = (b.i64(-(1 << 40)), b.i64(0));
        let there = b.offset(from, away);
        let forth = b.i64((1 << 37) + 3);
        let index = b.add(begin, forth);
        let v = b.load(Ty::I64, there, index);
        let minus = b.i64(-1);
        let index = b.sub(zero, minus);
        let index = b.sub(index, index);
        b.store(to, index, v);
    });
}

#[test]
fn buffers_are_aligned_and_separate() {
    check("buffers", Elem::I64, &[0, 0, 7, 9, 7, 9], &|b, _, to| {
        let (small, large) = (b.buffer(Elem::I8, 3), b.buffer(Elem::I64, 40_000));
        let align = b.i64(63);
        for (i, buffer) in [small, large].into_iter().enumerate() {
            let address = b.convert(Convert::Pointer, buffer, Elem::I64);
            let rest = b.and(address, align);
            let i = b.i64(i as i64);
            b.store(to, i, rest);
        }
        let last = b.i64(39_999);
        let (seven, nine) = (b.i64(7), b.i64(9));
        b.store(large, last, nine);
        let zero = b.i64(0);
        b.store(large, zero, seven);
        let byte = b.bits(Ty::scalar(Elem::I8), 7);
        let two = b.i64(2);
        b.store(small, two, byte);
        let byte = b.load(Ty::scalar(Elem::I8), small, two);
        let byte = b.convert(Convert::ZExt, byte, Elem::I64);
        b.store(to, two, byte);
        for (i, from) in [(3, last), (4, zero), (5, last)] {
            let (i, x) = (b.i64(i), b.load(Ty::I64, large, from));
            b.store(to, i, x);
        }
    });
}
