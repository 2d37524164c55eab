//! Every instruction that works lane by lane, on every element and number of lanes, against what Rust computes.
use super::{backends, load};
use numrsc_codegen::Backend;
use numrsc_codegen::cranelift::Cranelift;
use numrsc_ir::kernel::build::Builder;
use numrsc_ir::kernel::{Binary, Compare, Convert, Elem, Kind, Ty, Unary, V};

// Lanes as bits.

const N: usize = 192;
const LANES: [u32; 9] = [1, 2, 3, 4, 6, 8, 16, 32, 64];
const INTS: [Elem; 4] = [Elem::I8, Elem::I16, Elem::I32, Elem::I64];
const FLOATS: [Elem; 2] = [Elem::F32, Elem::F64];

fn mask(elem: Elem) -> u64 {
    if elem.bits() == 64 { u64::MAX } else { (1 << elem.bits()) - 1 }
}

fn signed(elem: Elem, x: u64) -> i64 {
    let shift = 64 - elem.bits();
    (x as i64) << shift >> shift
}

fn float(elem: Elem, x: u64) -> f64 {
    if elem == Elem::F32 { f64::from(f32::from_bits(x as u32)) } else { f64::from_bits(x) }
}

fn float_bits(elem: Elem, x: f64) -> u64 {
    if elem == Elem::F32 { u64::from((x as f32).to_bits()) } else { x.to_bits() }
}

/// Numbers at the edges of the type and pseudo-random ones, differently for each seed.
fn numbers(elem: Elem, seed: u64) -> Vec<u64> {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        -1.5,
        2.5,
        -2.5,
        0.3,
        -0.7,
        126.7,
        127.0,
        127.5,
        128.0,
        129.0,
        -128.0,
        -128.9,
        -129.0,
        254.9,
        255.0,
        256.0,
        300.0,
        32767.0,
        32768.0,
        -32768.0,
        -32769.0,
        65535.0,
        65536.0,
        8_388_607.5,
        8_388_609.0,
        2_147_483_647.0,
        2_147_483_648.0,
        -2_147_483_648.0,
        -2_147_483_904.0,
        4_294_967_040.0,
        4_294_967_296.0,
        9.223_372e18,
        -9.223_372e18,
        9.3e18,
        -9.3e18,
        1.844_674_3e19,
        1.9e19,
        1e30,
        -1e30,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        1e-40,
        3.4e38,
        -3.4e38,
        4_503_599_627_370_497.5,
        -1e-3,
    ];
    let ints = [
        0,
        1,
        2,
        3,
        7,
        127,
        128,
        129,
        255,
        256,
        32767,
        32768,
        65535,
        1 << 31,
        (1 << 31) - 1,
        u64::MAX,
        u64::MAX - 1,
        1 << 63,
        (1 << 63) - 1,
        0x5555_5555_5555_5555,
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed + 1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    (0..N)
        .map(|i| {
            let r = next();
            match elem {
                Elem::F32 | Elem::F64 if i % 3 != 0 => float_bits(elem, special[(r >> 20) as usize % special.len()]),
                Elem::F32 | Elem::F64 => float_bits(elem, (r as i64 >> (r % 60)) as f64 / 1024.0),
                _ if i % 3 != 0 => ints[(r >> 20) as usize % ints.len()] & mask(elem),
                _ => r >> (r % 7 * 8) & mask(elem),
            }
        })
        .collect()
}

fn to_memory(elem: Elem, lanes: &[u64]) -> Vec<u8> {
    lanes.iter().flat_map(|x| x.to_le_bytes().into_iter().take(elem.size() as usize)).collect()
}

fn from_memory(elem: Elem, bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks(elem.size() as usize)
        .map(|c| {
            let mut x = [0; 8];
            x[..c.len()].copy_from_slice(c);
            u64::from_le_bytes(x)
        })
        .collect()
}

/// What lies in memory for lanes of this type: `i1` as bytes.
fn stored(elem: Elem) -> Elem {
    if elem == Elem::I1 { Elem::I8 } else { elem }
}

fn load_lanes(b: &mut Builder, ty: Ty, ptr: V, index: V) -> V {
    let v = b.load(ty.with(stored(ty.elem)), ptr, index);
    if ty.elem != Elem::I1 {
        return v;
    }
    let zero = b.int(ty.with(Elem::I8), 0);
    b.compare(Compare::Ne, v, zero)
}

fn store_lanes(b: &mut Builder, ptr: V, index: V, v: V) {
    let v = if b.ty(v).elem == Elem::I1 { b.convert(Convert::ZExt, v, Elem::I8) } else { v };
    b.store(ptr, index, v);
}

/// Run an instruction on every lane of the inputs, `lanes` at a time.
fn run_lanes(
    backend: &Cranelift,
    lanes: u32,
    inputs: &[(Elem, &[u64])],
    out: Elem,
    build: &dyn Fn(&mut Builder, &[V]) -> V,
) -> Vec<u64> {
    let mut b = Builder::new(Kind::Kernel, &vec![Ty::PTR; inputs.len() + 1]);
    let [begin, end, _, ref pointers @ ..] = b.params().to_vec()[..] else { unreachable!("a kernel") };
    b.for_(begin, end, i64::from(lanes), |b, i| {
        let operands: Vec<V> =
            inputs.iter().zip(pointers).map(|((elem, _), &p)| load_lanes(b, Ty::vector(*elem, lanes), p, i)).collect();
        let result = build(b, &operands);
        assert_eq!(b.ty(result), Ty::vector(out, lanes), "the test builds what it says");
        store_lanes(b, pointers[inputs.len()], i, result);
    });
    let code = load(backend, vec![b.finish("lanes", vec![])]);
    let memory: Vec<Vec<u8>> = inputs.iter().map(|(elem, x)| to_memory(*elem, x)).collect();
    let mut result = vec![0u8; N * stored(out).size() as usize];
    let mut args: Vec<u64> = memory.iter().map(|m| m.as_ptr() as u64).collect();
    args.push(result.as_mut_ptr() as u64);
    assert_eq!(code.kernel(0, &args, 0, N as i64), 0);
    from_memory(stored(out), &result)
}

fn same(elem: Elem, a: u64, b: u64) -> bool {
    a == b || elem.is_float() && float(elem, a).is_nan() && float(elem, b).is_nan()
}

/// Compare with what Rust computes for each lane, on both backends and every number of lanes.
fn check(
    what: &str,
    inputs: &[(Elem, &[u64])],
    out: Elem,
    build: &dyn Fn(&mut Builder, &[V]) -> V,
    expected: &dyn Fn(&Cranelift, &[u64]) -> u64,
) {
    for backend in backends() {
        for lanes in LANES {
            let got = run_lanes(&backend, lanes, inputs, out, build);
            for i in 0..N {
                let operands: Vec<u64> = inputs.iter().map(|(_, x)| x[i]).collect();
                let want = expected(&backend, &operands) & mask(stored(out));
                assert!(
                    same(out, got[i], want),
                    "{what} x{lanes} of {operands:x?}: {:x} instead of {want:x} ({:?})",
                    got[i],
                    backend.target()
                );
            }
        }
    }
}

// Arithmetic.

fn unary(op: Unary, elem: Elem, x: u64) -> u64 {
    let f = |g: fn(f64) -> f64| float_bits(elem, g(float(elem, x)));
    match op {
        Unary::Neg if elem.is_float() => x ^ (1 << (elem.bits() - 1)),
        Unary::Neg => x.wrapping_neg() & mask(elem),
        Unary::Not => !x & mask(elem),
        Unary::Abs => x & (mask(elem) >> 1),
        // Correctly rounded in f32 as well: f64 has more than twice the bits.
        Unary::Sqrt => f(f64::sqrt),
        Unary::Floor => f(f64::floor),
        Unary::Ceil => f(f64::ceil),
        Unary::Trunc => f(f64::trunc),
        Unary::Round => f(f64::round_ties_even),
    }
}

fn binary(op: Binary, elem: Elem, x: u64, y: u64) -> u64 {
    let (a, b) = (signed(elem, x), signed(elem, y));
    let (f, g) = (float(elem, x), float(elem, y));
    let result = match op {
        // Correctly rounded in f32 as well, see above.
        Binary::Add if elem.is_float() => float_bits(elem, f + g),
        Binary::Sub if elem.is_float() => float_bits(elem, f - g),
        Binary::Mul if elem.is_float() => float_bits(elem, f * g),
        Binary::FDiv => float_bits(elem, f / g),
        Binary::FMin => {
            if f < g {
                x
            } else {
                y
            }
        }
        Binary::FMax => {
            if f > g {
                x
            } else {
                y
            }
        }
        Binary::Add => x.wrapping_add(y),
        Binary::Sub => x.wrapping_sub(y),
        Binary::Mul => x.wrapping_mul(y),
        Binary::SDiv => (a / b) as u64,
        Binary::UDiv => x / y,
        Binary::SRem => (a % b) as u64,
        Binary::URem => x % y,
        Binary::SMin => a.min(b) as u64,
        Binary::SMax => a.max(b) as u64,
        Binary::UMin => x.min(y),
        Binary::UMax => x.max(y),
        Binary::And => x & y,
        Binary::Or => x | y,
        Binary::Xor => x ^ y,
        Binary::Shl => x << y,
        Binary::LShr => x >> y,
        Binary::AShr => (a >> y) as u64,
    };
    result & mask(elem)
}

fn compare(op: Compare, elem: Elem, x: u64, y: u64) -> bool {
    if elem.is_float() {
        let (x, y) = (float(elem, x), float(elem, y));
        return match op {
            Compare::Eq => x == y,
            Compare::Ne => x != y,
            Compare::Lt | Compare::ULt => x < y,
            Compare::Le | Compare::ULe => x <= y,
        };
    }
    let (a, b) = (signed(elem, x), signed(elem, y));
    match op {
        Compare::Eq => x == y,
        Compare::Ne => x != y,
        Compare::Lt => a < b,
        Compare::Le => a <= b,
        Compare::ULt => x < y,
        Compare::ULe => x <= y,
    }
}

#[test]
fn unary_operations() {
    for elem in INTS {
        for op in [Unary::Neg, Unary::Not] {
            let x = numbers(elem, 1);
            check(&format!("{op:?} {elem:?}"), &[(elem, &x)], elem, &|b, v| b.unary(op, v[0]), &|_, x| {
                unary(op, elem, x[0])
            });
        }
    }
    let all = [Unary::Neg, Unary::Abs, Unary::Sqrt, Unary::Floor, Unary::Ceil, Unary::Trunc, Unary::Round];
    for elem in FLOATS {
        for op in all {
            let x = numbers(elem, 2);
            check(&format!("{op:?} {elem:?}"), &[(elem, &x)], elem, &|b, v| b.unary(op, v[0]), &|_, x| {
                unary(op, elem, x[0])
            });
        }
    }
}

/// Second operands that the operation is defined for.
fn second(op: Binary, elem: Elem) -> Vec<u64> {
    let safe = |y: u64| match op {
        Binary::Shl | Binary::LShr | Binary::AShr => y % u64::from(elem.bits()),
        Binary::SDiv | Binary::SRem if signed(elem, y) == 0 || signed(elem, y) == -1 => 3,
        Binary::UDiv | Binary::URem if y == 0 => 5,
        _ => y,
    };
    numbers(elem, 4).into_iter().map(safe).collect()
}

#[test]
fn binary_operations() {
    use Binary::*;
    for elem in INTS {
        for op in [Add, Sub, Mul, SDiv, UDiv, SRem, URem, SMin, SMax, UMin, UMax, And, Or, Xor, Shl, LShr, AShr] {
            let (x, y) = (numbers(elem, 3), second(op, elem));
            check(
                &format!("{op:?} {elem:?}"),
                &[(elem, &x), (elem, &y)],
                elem,
                &|b, v| b.binary(op, v[0], v[1]),
                &|_, x| binary(op, elem, x[0], x[1]),
            );
        }
    }
    for elem in FLOATS {
        for op in [Add, Sub, Mul, FDiv, FMin, FMax] {
            let (x, y) = (numbers(elem, 3), numbers(elem, 4));
            check(
                &format!("{op:?} {elem:?}"),
                &[(elem, &x), (elem, &y)],
                elem,
                &|b, v| b.binary(op, v[0], v[1]),
                &|_, x| binary(op, elem, x[0], x[1]),
            );
        }
    }
}

#[test]
fn operations_of_one_bit() {
    use Binary::*;
    let (x, y): (Vec<u64>, Vec<u64>) = (0..N as u64).map(|i| (i / 2 % 2, i % 2)).unzip();
    for op in [Add, Sub, Mul, SMin, SMax, UMin, UMax, And, Or, Xor] {
        check(
            &format!("{op:?} i1"),
            &[(Elem::I1, &x), (Elem::I1, &y)],
            Elem::I1,
            &|b, v| b.binary(op, v[0], v[1]),
            &|_, x| binary(op, Elem::I1, x[0], x[1]),
        );
    }
    for op in [Compare::Eq, Compare::Ne, Compare::Lt, Compare::Le, Compare::ULt, Compare::ULe] {
        check(
            &format!("{op:?} i1"),
            &[(Elem::I1, &x), (Elem::I1, &y)],
            Elem::I1,
            &|b, v| b.compare(op, v[0], v[1]),
            &|_, x| u64::from(compare(op, Elem::I1, x[0], x[1])),
        );
    }
    check("not i1", &[(Elem::I1, &x)], Elem::I1, &|b, v| b.unary(Unary::Not, v[0]), &|_, x| 1 - x[0]);
    check(
        "select i1",
        &[(Elem::I1, &x), (Elem::I1, &y)],
        Elem::I1,
        &|b, v| {
            let not = b.unary(Unary::Not, v[1]);
            b.select(v[0], v[1], not)
        },
        &|_, x| if x[0] == 1 { x[1] } else { 1 - x[1] },
    );
}

#[test]
fn shifts_by_one_amount() {
    for elem in INTS {
        for op in [Binary::Shl, Binary::LShr, Binary::AShr] {
            for amount in [0, 1, u64::from(elem.bits()) / 2, u64::from(elem.bits()) - 1] {
                let x = numbers(elem, 5);
                check(
                    &format!("{op:?} {elem:?} by {amount}"),
                    &[(elem, &x)],
                    elem,
                    &|b, v| {
                        let amount = b.int(b.ty(v[0]), amount as i64);
                        b.binary(op, v[0], amount)
                    },
                    &|_, x| binary(op, elem, x[0], amount),
                );
            }
            // An amount that is only known at run time.
            let (x, y) = (numbers(elem, 5), vec![3; N]);
            check(
                &format!("{op:?} {elem:?} by splat"),
                &[(elem, &x), (elem, &y)],
                elem,
                &|b, v| {
                    let lanes = b.ty(v[1]).lanes;
                    let amount = b.extract(v[1], lanes - 1);
                    let amount = b.splat(amount, lanes);
                    b.binary(op, v[0], amount)
                },
                &|_, x| binary(op, elem, x[0], x[1]),
            );
        }
    }
}

#[test]
fn division_by_constants() {
    let x = numbers(Elem::I64, 6);
    for divisor in [1u64, 2, 3, 5, 7, 10, 12, 64, 100, 641, 1 << 32, (1 << 32) + 1, 1 << 63, (1 << 63) + 1, u64::MAX] {
        for op in [Binary::UDiv, Binary::URem] {
            check(
                &format!("{op:?} by {divisor}"),
                &[(Elem::I64, &x)],
                Elem::I64,
                &|b, v| {
                    let divisor = b.bits(b.ty(v[0]), divisor);
                    b.binary(op, v[0], divisor)
                },
                &|_, x| binary(op, Elem::I64, x[0], divisor),
            );
        }
    }
}

#[test]
fn muladd_rounds_as_the_machine_says() {
    let (x, y, z) = (numbers(Elem::F32, 7), numbers(Elem::F32, 8), numbers(Elem::F32, 9));
    let inputs: [(Elem, &[u64]); 3] = [(Elem::F32, &x), (Elem::F32, &y), (Elem::F32, &z)];
    check("muladd f32", &inputs, Elem::F32, &|b, v| b.muladd(v[0], v[1], v[2]), &|backend, x| {
        let [a, b, c] = [x[0], x[1], x[2]].map(|x| f32::from_bits(x as u32));
        let r = if backend.machine().fused { a.mul_add(b, c) } else { a * b + c };
        u64::from(r.to_bits())
    });
    let (x, y, z) = (numbers(Elem::F64, 7), numbers(Elem::F64, 8), numbers(Elem::F64, 9));
    let inputs: [(Elem, &[u64]); 3] = [(Elem::F64, &x), (Elem::F64, &y), (Elem::F64, &z)];
    check("muladd f64", &inputs, Elem::F64, &|b, v| b.muladd(v[0], v[1], v[2]), &|backend, x| {
        let [a, b, c] = [x[0], x[1], x[2]].map(f64::from_bits);
        let r = if backend.machine().fused { a.mul_add(b, c) } else { a * b + c };
        r.to_bits()
    });
    for elem in INTS {
        let (x, y, z) = (numbers(elem, 7), numbers(elem, 8), numbers(elem, 9));
        check(
            "muladd of integers",
            &[(elem, &x), (elem, &y), (elem, &z)],
            elem,
            &|b, v| b.muladd(v[0], v[1], v[2]),
            &|_, x| x[0].wrapping_mul(x[1]).wrapping_add(x[2]) & mask(elem),
        );
    }
}

// Comparisons and masks.

#[test]
fn comparisons() {
    for elem in INTS.into_iter().chain(FLOATS) {
        for op in [Compare::Eq, Compare::Ne, Compare::Lt, Compare::Le, Compare::ULt, Compare::ULe] {
            if elem.is_float() && matches!(op, Compare::ULt | Compare::ULe) {
                continue;
            }
            let (x, y) = (numbers(elem, 10), numbers(elem, 11));
            check(
                &format!("{op:?} {elem:?}"),
                &[(elem, &x), (elem, &y)],
                Elem::I1,
                &|b, v| b.compare(op, v[0], v[1]),
                &|_, x| u64::from(compare(op, elem, x[0], x[1])),
            );
        }
    }
}

#[test]
fn masks_of_one_width_select_another() {
    for from in INTS.into_iter().chain(FLOATS) {
        for to in INTS.into_iter().chain(FLOATS) {
            let (c, d, x, y) = (numbers(from, 12), numbers(from, 13), numbers(to, 14), numbers(to, 15));
            let inputs: [(Elem, &[u64]); 4] = [(from, &c), (from, &d), (to, &x), (to, &y)];
            check(
                &format!("select {to:?} by {from:?}"),
                &inputs,
                to,
                &|b, v| {
                    let cond = b.compare(Compare::Lt, v[0], v[1]);
                    b.select(cond, v[2], v[3])
                },
                &|_, x| if compare(Compare::Lt, from, x[0], x[1]) { x[2] } else { x[3] },
            );
            check(
                &format!("masks of {to:?} and {from:?}"),
                &inputs,
                Elem::I1,
                &|b, v| {
                    let first = b.compare(Compare::Le, v[0], v[1]);
                    let second = b.compare(Compare::Ne, v[2], v[3]);
                    b.binary(Binary::Xor, first, second)
                },
                &|_, x| u64::from(compare(Compare::Le, from, x[0], x[1]) != compare(Compare::Ne, to, x[2], x[3])),
            );
        }
    }
}

// Conversions.

fn converted(op: Convert, from: Elem, to: Elem, x: u64) -> u64 {
    match op {
        Convert::Narrow | Convert::ZExt | Convert::Bits | Convert::Pointer => x & mask(to),
        Convert::SExt => signed(from, x) as u64 & mask(to),
        Convert::Float => float_bits(to, float(from, x)),
        Convert::SToF if to == Elem::F32 => u64::from((signed(from, x) as f32).to_bits()),
        Convert::SToF => (signed(from, x) as f64).to_bits(),
        Convert::UToF if to == Elem::F32 => u64::from((x as f32).to_bits()),
        Convert::UToF => (x as f64).to_bits(),
        Convert::FToS => {
            let limit = 1i128 << (to.bits() - 1);
            (float(from, x) as i128).clamp(-limit, limit - 1) as u64 & mask(to)
        }
        Convert::Half => unreachable!("not for this machine"),
        Convert::FToU => (float(from, x) as i128).clamp(0, i128::from(mask(to))) as u64,
    }
}

#[test]
fn conversions() {
    let ints = [Elem::I1, Elem::I8, Elem::I16, Elem::I32, Elem::I64];
    let mut cases = vec![
        (Convert::Float, Elem::F32, Elem::F64),
        (Convert::Float, Elem::F64, Elem::F32),
        (Convert::Bits, Elem::F32, Elem::I32),
        (Convert::Bits, Elem::I32, Elem::F32),
        (Convert::Bits, Elem::F64, Elem::I64),
        (Convert::Bits, Elem::I64, Elem::F64),
    ];
    for (i, &narrow) in ints.iter().enumerate() {
        for &wide in &ints[i + 1..] {
            cases.extend([
                (Convert::Narrow, wide, narrow),
                (Convert::SExt, narrow, wide),
                (Convert::ZExt, narrow, wide),
            ]);
        }
        for float in FLOATS {
            cases.extend([(Convert::SToF, narrow, float), (Convert::UToF, narrow, float)]);
            if narrow != Elem::I1 {
                cases.extend([(Convert::FToS, float, narrow), (Convert::FToU, float, narrow)]);
            }
        }
    }
    for (op, from, to) in cases {
        let x = numbers(from, 16);
        check(&format!("{op:?} {from:?} to {to:?}"), &[(from, &x)], to, &|b, v| b.convert(op, v[0], to), &|_, x| {
            converted(op, from, to, x[0])
        });
    }
}
