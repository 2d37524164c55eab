//! Everything that has one right answer, compared with the evaluator of the tensor IR: conversions between all types,
//! functions of integers and bools, arithmetic of every float format, strings, and random expressions.
use crate::{
    decode, encode, expression, memory, number, round_float,
    tests::{accuracy::Random, machine::function},
};
use numrsc_ir::{
    DType, Env, Lit, Op, Scalar, ScalarFn, Tensor,
    dtype::Class,
    eval_op,
    kernel::{Binary, Elem, FuncId, Inst, Ty},
    scalar::{Call, Sig, Step},
};

const LANES: usize = 256;

fn plain_types() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|&d| d != DType::Str)
}

/// Elements in memory form: every pattern of a small type, and the edges of every format and random bits of a large
/// one.
fn patterns(dtype: DType) -> Vec<u64> {
    let bits = dtype.bits();
    if bits <= 8 {
        // A byte of a 4-bit type may hold anything above those bits.
        return (0..256).collect();
    }
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    let mut random = Random(u64::from(bits) * 1_000_003);
    let mut out: Vec<u64> = vec![0, 1, 2, 3, mask, mask - 1, mask >> 1, (mask >> 1) + 1];
    if bits == 16 {
        out.extend((0..65536).step_by(13));
        return out;
    }
    for place in 0..bits {
        for near in [-2i64, -1, 0, 1, 2] {
            let x = (1u64 << place).wrapping_add(near as u64);
            out.extend([x & mask, x.wrapping_neg() & mask]);
        }
        out.extend((0..8).map(|_| random.bits() & mask >> place));
    }
    if dtype.is_float() {
        let encode = |x: f64| dtype.float_to_bits(x, false);
        for small in plain_types().filter(|d| d.is_float() && d.bits() <= 16) {
            // The ends of the format, the limits of rounding, and what lies next to them.
            let largest = largest(small);
            let mut edges = vec![largest, largest * (1.0 + 2f64.powi(-20)), largest * 2.0];
            for _ in 0..200 {
                let a = small.float_from_bits(random.bits() & ((1 << small.bits()) - 1));
                let b =
                    small.float_from_bits(small.float_to_bits(a, false).wrapping_add(1) & ((1 << small.bits()) - 1));
                edges.extend([a, (a + b) / 2.0]);
            }
            for x in edges {
                let x = encode(x);
                out.extend([x, x.wrapping_add(1) & mask, x.wrapping_sub(1) & mask]);
            }
        }
        for power in [
            -150, -149, -140, -133, -130, -127, -126, -25, -24, -14, 0, 7, 8, 15, 16, 31, 32, 52, 53, 62, 63, 64, 65,
            100, 126, 127,
        ] {
            let x = 2f64.powi(power);
            for y in [x, x - 1.0, x + 1.0, x - 0.5, x + 0.5, x * 1.5, x * 1.25] {
                out.extend([encode(y), encode(-y)]);
            }
        }
        for x in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0, dtype.max_finite(), -dtype.max_finite()] {
            out.push(encode(x));
        }
        out.extend((0..2000).map(|_| encode(f64::from(random.bits() as i32) / 2f64.powi((random.bits() % 40) as i32))));
    }
    out
}

/// The largest finite value.
fn largest(dtype: DType) -> f64 {
    if dtype == DType::F8E8M0 { 2f64.powi(127) } else { dtype.max_finite() }
}

fn tensor(dtype: DType, patterns: &[u64]) -> Tensor {
    let bytes: Vec<u8> = patterns.iter().flat_map(|p| p.to_le_bytes()[..dtype.size()].to_vec()).collect();
    Tensor::new(dtype, vec![patterns.len()], bytes.into()).expect("as many bytes as elements need")
}

fn elements(t: &Tensor) -> Vec<u64> {
    t.bytes().chunks_exact(t.dtype().size()).map(|b| b.iter().rev().fold(0, |x, &b| (x << 8) | u64::from(b))).collect()
}

/// The expression over elements in memory form, by the evaluator and as kernel code.
fn both(scalar: &Scalar, dtypes: &[DType], args: &[Vec<u64>]) -> (DType, Vec<u64>, Vec<u64>) {
    let tensors: Vec<_> = dtypes.iter().zip(args).map(|(&d, a)| tensor(d, a).into()).collect();
    let want = eval_op(&Op::Map { f: scalar.clone() }, &tensors.iter().collect::<Vec<_>>(), &mut Env::new())
        .expect("the evaluator accepts the expression");
    let want = want.as_tensor().expect("a tensor").clone();
    let to = want.dtype();
    let params: Vec<Ty> = dtypes.iter().map(|&d| Ty::vector(memory(d), LANES as u32)).collect();
    let code = function(&params, |b, raw| {
        let numbers: Vec<_> = dtypes.iter().zip(raw).map(|(&d, &r)| decode(b, d, r)).collect();
        assert!(dtypes.iter().zip(&numbers).all(|(&d, &n)| b.ty(n).elem == number(d)));
        let result = expression(b, scalar, dtypes, &numbers);
        assert_eq!(b.ty(result), Ty::vector(number(to), LANES as u32));
        encode(b, to, result)
    });
    let got = code.run(false, args);
    (to, got, elements(&want))
}

fn compare(what: &str, scalar: &Scalar, dtypes: &[DType], args: &[Vec<u64>], same: impl Fn(DType, u64, u64) -> bool) {
    let (to, got, want) = both(scalar, dtypes, args);
    assert_eq!(got.len(), want.len());
    for (i, (&g, &w)) in got.iter().zip(&want).enumerate() {
        if !same(to, g, w) {
            let of: Vec<String> = args.iter().map(|a| format!("{:#x}", a[i])).collect();
            panic!("{what} {dtypes:?} -> {to} of {}: {g:#x}, not {w:#x}", of.join(", "));
        }
    }
}

/// Equal bits, or both NaN.
fn same(dtype: DType, a: u64, b: u64) -> bool {
    if dtype.is_float() {
        let (x, y) = (dtype.float_from_bits(a), dtype.float_from_bits(b));
        return a == b || (x.is_nan() && y.is_nan());
    }
    // Small integers: the bits that count.
    dtype.wrap(i128::from(a)) == dtype.wrap(i128::from(b))
}

fn same_or_zero(dtype: DType, a: u64, b: u64) -> bool {
    same(dtype, a, b) || (dtype.is_float() && dtype.float_from_bits(a) == dtype.float_from_bits(b))
}

#[test]
fn small_floats_decode_encode_and_round() {
    for d in plain_types().filter(|d| d.is_float() && d.bits() <= 16) {
        let all: Vec<u64> = (0..1u64 << d.bits()).collect();
        let ty = Ty::vector(memory(d), LANES as u32);
        let decoded = function(&[ty], |b, p| decode(b, d, p[0])).run(false, std::slice::from_ref(&all));
        let f32s = Ty::vector(Elem::F32, LANES as u32);
        let encoded = function(&[f32s], |b, p| encode(b, d, p[0])).run(false, std::slice::from_ref(&decoded));
        let mut sorted = vec![];
        for ((&bits, &number), &back) in all.iter().zip(decoded.iter()).zip(encoded.iter()) {
            let (x, want) = (f64::from(f32::from_bits(number as u32)), d.float_from_bits(bits));
            assert!(x.to_bits() == want.to_bits() || (x.is_nan() && want.is_nan()), "{d} {bits:#x}: {x}, not {want}");
            assert!(same(d, back, bits), "{d} {bits:#x} encoded as {back:#x}");
            sorted.extend(want.is_finite().then_some(want));
        }
        sorted.sort_by(f64::total_cmp);
        // Every value, every midpoint, and the nearest numbers of the source on both sides of each.
        let mut points =
            vec![f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e300, -1e300, 1e-300, -1e-300, 5e-324, -0.0, 0.0];
        let beyond = largest(d) * 2.0 - sorted[sorted.len() - 2];
        sorted.push(beyond);
        sorted.insert(0, -beyond);
        points.extend(sorted.windows(2).flat_map(|w| [w[0], (w[0] + w[1]) / 2.0]));
        for source in [DType::F32, DType::F64] {
            let near = |x: f64| {
                let x = source.round(x);
                let bits = source.float_to_bits(x, false);
                let mask = if source == DType::F32 { u64::from(u32::MAX) } else { u64::MAX };
                [
                    x,
                    source.float_from_bits(bits.wrapping_add(1) & mask),
                    source.float_from_bits(bits.wrapping_sub(1) & mask),
                ]
            };
            let xs: Vec<f64> = points.iter().flat_map(|&x| near(x)).collect();
            let lanes: Vec<u64> = xs.iter().map(|&x| source.float_to_bits(x, false)).collect();
            let ty = Ty::vector(number(source), LANES as u32);
            let rounded = function(&[ty], |b, p| round_float(b, p[0], d)).run(false, &[lanes]);
            for (&x, &r) in xs.iter().zip(rounded.iter()) {
                let (got, want) = (f64::from(f32::from_bits(r as u32)), d.round(x));
                assert!(
                    got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
                    "{source} {x:?} as {d}: {got:?}, not {want:?}"
                );
            }
        }
    }
}

#[test]
fn conversions_between_all_types_are_those_of_the_evaluator() {
    for of in plain_types() {
        let args = [patterns(of)];
        // A number in the form that is computed with has lost the payload of its NaN.
        let is_nan = |p: &u64| of.is_float() && of.float_from_bits(*p).is_nan();
        let numbers = [args[0].iter().copied().filter(|p| !is_nan(p)).collect()];
        for to in plain_types() {
            for f in [ScalarFn::Cast, ScalarFn::CastSat] {
                compare(f.name(), &Scalar::convert(f, to), &[of], &args, same);
            }
            if of.bits() == to.bits() {
                compare("bitcast", &Scalar::convert(ScalarFn::Bitcast, to), &[of], &numbers, same);
            }
        }
    }
}

/// Pairs of patterns: all with all for a small type, else each with a few others.
fn pairs(dtype: DType) -> Vec<Vec<u64>> {
    let all = patterns(dtype);
    if dtype.bits() <= 8 {
        let firsts = all.iter().flat_map(|&x| all.iter().map(move |_| x)).collect();
        let seconds = all.iter().flat_map(|_| all.iter().copied()).collect();
        return vec![firsts, seconds];
    }
    let mut random = Random(31);
    let (mut firsts, mut seconds) = (vec![], vec![]);
    for &x in &all {
        for other in [
            x,
            all[random.bits() as usize % all.len()],
            all[random.bits() as usize % 8],
            random.bits() % 70,
            random.bits(),
        ] {
            let mask = if dtype.bits() == 64 { u64::MAX } else { (1 << dtype.bits()) - 1 };
            firsts.push(x);
            seconds.push(other & mask);
        }
    }
    vec![firsts, seconds]
}

fn is_exact(f: ScalarFn) -> bool {
    use ScalarFn::*;
    matches!(
        f,
        Neg | Abs
            | Sign
            | Floor
            | Ceil
            | Trunc
            | Round
            | Sqrt
            | IsNan
            | IsInf
            | Add
            | Sub
            | Mul
            | Div
            | Mod
            | Rem
            | Eq
            | Lt
            | Le
    )
}

fn accepts(f: ScalarFn, d: DType) -> bool {
    match f.sig() {
        Sig::Float | Sig::FloatTest => d.is_float(),
        Sig::Number => d.is_float() || d.is_int(),
        Sig::Bits => d.is_int() || d == DType::Bool,
        Sig::Compare => true,
        Sig::Select | Sig::Single | Sig::Convert => false,
    }
}

#[test]
fn exact_functions_of_every_type_are_those_of_the_evaluator() {
    for d in plain_types() {
        let (ones, twos) = (patterns(d), pairs(d));
        for &f in ScalarFn::ALL {
            if !accepts(f, d) || (d.is_float() && !is_exact(f) && !matches!(f, ScalarFn::Min | ScalarFn::Max)) {
                continue;
            }
            let args = if f.arity() == 1 { std::slice::from_ref(&ones) } else { &twos[..] };
            // Which of two zeros is the smaller is open.
            let rule = if matches!(f, ScalarFn::Min | ScalarFn::Max) { same_or_zero } else { same };
            compare(f.name(), &Scalar::call(f), &vec![d; f.arity()], args, rule);
        }
    }
}

/// Of values of a small format, a transcendental result may only differ by rounding a number that is almost a tie.
#[test]
fn transcendental_functions_of_small_floats_are_rounded_once_or_nearly_so() {
    for d in plain_types().filter(|d| d.is_float() && d.bits() <= 16) {
        let (ones, twos) = (patterns(d), pairs(d));
        for &f in ScalarFn::ALL.iter().filter(|&&f| accepts(f, d) && !is_exact(f)) {
            let args = if f.arity() == 1 { std::slice::from_ref(&ones) } else { &twos[..] };
            let (to, got, want) = both(&Scalar::call(f), &vec![d; f.arity()], args);
            for (i, (&g, &w)) in got.iter().zip(&want).enumerate() {
                if same_or_zero(to, g, w) {
                    continue;
                }
                let number = |a: &Vec<u64>| d.float_from_bits(a[i]);
                let exact = f.float()(number(&args[0]), args.get(1).map_or(0.0, number));
                let around = [exact * (1.0 - 3e-7), exact * (1.0 + 3e-7)].map(|x| d.float_to_bits(x, false));
                assert!(around.contains(&g), "{} {d} {:#x}: {g:#x}, not {w:#x}", f.name(), args[0][i]);
            }
        }
    }
}

#[test]
fn select_takes_every_type() {
    for d in plain_types() {
        let values = patterns(d);
        let others: Vec<u64> = values.iter().rev().copied().collect();
        let conditions: Vec<u64> = (0..values.len() as u64).map(|i| i % 2).collect();
        compare("select", &Scalar::call(ScalarFn::Select), &[DType::Bool, d, d], &[conditions, values, others], same);
    }
}

/// On a machine without the instruction, where exact results lie next to the middle of two numbers.
#[test]
fn fused_products_are_rounded_once() {
    let mut triples: Vec<[u64; 3]> = vec![];
    for exponent in [0u32, 1, 30, 60, 97, 126, 127, 128, 150, 200, 254, 255] {
        for mantissa in [0u32, 1, 2, 0x1000, 0x1001, 0x7f_ffff, 0x55_5555] {
            let x = exponent << 23 | mantissa;
            for y in [0x3f80_0000u32, 0x3f80_0001, 0x3f80_1000, 0xbf80_0800, 0x0000_0001, 0x7f7f_ffff, 0x3380_0000] {
                for z in
                    [0u32, 0x8000_0000, 0x3f80_0000, 0xb380_0000, 0x3380_0001, 0x0000_0001, 0x7f80_0000, 0xff7f_ffff]
                {
                    triples.push([x, y, z].map(u64::from));
                }
                triples.push([x, y, x ^ 0x8000_0000].map(u64::from));
            }
        }
    }
    let columns: Vec<Vec<u64>> = (0..3).map(|i| triples.iter().map(|t| t[i]).collect()).collect();
    compare("fma", &Scalar::call(ScalarFn::Fma), &[DType::F32; 3], &columns, same);
}

#[test]
fn strings_compare_like_text() {
    let words = ["", "a", "b", "ab", "abc", "abd", "ä", "z", "\u{10ffff}", "ab\0", "b\u{7f}", "b\u{80}"];
    for lanes in [1, 2] {
        let ty = Ty::vector(number(DType::Str), lanes);
        for f in [ScalarFn::Eq, ScalarFn::Lt, ScalarFn::Le] {
            let code = function(&[ty, ty], |b, args| expression(b, &Scalar::call(f), &[DType::Str; 2], args));
            let mut machine = code.machine(true);
            let addresses: Vec<u64> = words
                .iter()
                .map(|w| {
                    let bytes = [&(w.len() as u64).to_le_bytes()[..], w.as_bytes()].concat();
                    machine.alloc_fixed(&bytes).expect("there is memory").0
                })
                .collect();
            for (i, x) in words.iter().enumerate() {
                for (j, y) in words.iter().enumerate() {
                    // The second lane is compared the other way round.
                    let (left, right) = ([addresses[i], addresses[j]], [addresses[j], addresses[i]]);
                    let args = [&left[..lanes as usize], &right[..lanes as usize]];
                    let got = machine.run_helper(FuncId(0), &args).expect("no traps");
                    let want = |x: &str, y: &str| match f {
                        ScalarFn::Eq => x == y,
                        ScalarFn::Lt => x < y,
                        _ => x <= y,
                    };
                    for (lane, &g) in got.iter().enumerate() {
                        let (x, y) = if lane == 0 { (x, y) } else { (y, x) };
                        assert_eq!(g != 0, want(x, y), "{} {x:?} {y:?}", f.name());
                    }
                }
            }
        }
    }
}

/// Expressions of exact functions, conversions and literals over operands of random types.
#[test]
fn random_expressions_are_those_of_the_evaluator() {
    let types: Vec<DType> = plain_types().collect();
    let mut random = Random(0xdead_beef);
    for _ in 0..600 {
        let dtypes: Vec<DType> = (0..3).map(|_| types[random.bits() as usize % types.len()]).collect();
        let mut steps: Vec<Step> = (0..3).map(Step::Arg).collect();
        let mut known = dtypes.clone();
        for _ in 0..12 {
            let pick = |r: &mut Random| r.bits() as usize % known.len();
            let (step, ty) = match random.bits() % 4 {
                0 => {
                    let d = types[random.bits() as usize % types.len()];
                    let lit = Lit::number(d, (random.bits() % 19) as f64 / 2.0 - 4.0);
                    (Step::Lit(lit), d)
                }
                1 => {
                    let (a, d) = (pick(&mut random), types[random.bits() as usize % types.len()]);
                    let f = if random.bits().is_multiple_of(2) { ScalarFn::Cast } else { ScalarFn::CastSat };
                    (Step::Call(Call { f, args: vec![a as u32], to: Some(d) }), d)
                }
                _ => {
                    let a = pick(&mut random);
                    let d = known[a];
                    let f = ScalarFn::ALL[random.bits() as usize % ScalarFn::ALL.len()];
                    // Minimum and maximum of two zeros are left out: either sign is right.
                    let fits = accepts(f, d) && (!d.is_float() || is_exact(f));
                    let Some(b) =
                        (0..known.len()).rev().find(|&b| known[b] == d && (b != a || random.bits().is_multiple_of(2)))
                    else {
                        continue;
                    };
                    if !fits {
                        continue;
                    }
                    let args = if f.arity() == 1 { vec![a as u32] } else { vec![a as u32, b as u32] };
                    let compares = matches!(f.sig(), Sig::Compare | Sig::FloatTest);
                    (Step::Call(Call { f, args, to: None }), if compares { DType::Bool } else { d })
                }
            };
            steps.push(step);
            known.push(ty);
        }
        let scalar = Scalar::new(&steps, steps.len() - 1);
        let args: Vec<Vec<u64>> = dtypes
            .iter()
            .map(|&d| {
                let all = patterns(d);
                (0..LANES).map(|_| all[random.bits() as usize % all.len()]).collect()
            })
            .collect();
        compare(&scalar.to_string(), &scalar, &dtypes, &args, same);
    }
}

/// Where numbers are divided by a constant and tiny quotients do not count, and limits are constants.
#[test]
fn calls_with_constants_have_the_same_bits() {
    let lit = |x: f64| Step::Lit(Lit::float(DType::F32, x));
    let call = |f: ScalarFn, args: [u32; 2]| Step::Call(Call { f, args: args.to_vec(), to: None });
    let mut random = Random(77);
    let mut column = patterns(DType::F32);
    column.extend((0..20_000).map(|_| random.bits() & 0xffff_ffff));
    column.extend((0..20_000).map(|_| u64::from((((random.bits() % 20_000) as f32) / 1000.0 - 10.0).to_bits())));
    let root = f64::from(std::f32::consts::SQRT_2);
    for divisor in [3.0, 6.0, -6.0, 10.0, 255.0, 0.75, 1000.0, 65535.0, 32769.0 / 1024.0, root, -root, 5.656_854_2] {
        let added = [Step::Arg(0), lit(divisor), call(ScalarFn::Div, [0, 1]), lit(0.5), call(ScalarFn::Add, [2, 3])];
        let limited = [
            Step::Arg(0),
            lit(3.0),
            call(ScalarFn::Add, [0, 1]),
            lit(0.0),
            call(ScalarFn::Max, [2, 3]),
            lit(6.0),
            call(ScalarFn::Min, [4, 5]),
            lit(divisor),
            call(ScalarFn::Div, [6, 7]),
        ];
        for steps in [&added[..], &limited] {
            let scalar = Scalar::new(steps, steps.len() - 1);
            let code = function(&[Ty::vector(Elem::F32, LANES as u32)], |b, args| {
                b.fused = true;
                expression(b, &scalar, &[DType::F32], args)
            });
            let divides = code.has(|i| matches!(i, Inst::Binary(Binary::FDiv, ..)));
            assert!(!divides, "{scalar}");
            for (x, got) in column.iter().zip(code.run(true, &[column.clone()])) {
                let (x, got, d) = (f32::from_bits(*x as u32), f32::from_bits(got as u32), divisor as f32);
                let clamped = (x + 3.0).clamp(0.0, 6.0);
                let want = if steps.len() == added.len() { x / d + 0.5 } else { clamped / d };
                assert!(got == want || got.is_nan() && want.is_nan(), "{scalar} of {x:e}: {got:e}, not {want:e}");
            }
        }
    }
}

#[test]
fn elements_have_the_width_of_their_type() {
    for d in plain_types() {
        assert_eq!(memory(d).size() as usize, d.size(), "{d}");
        assert_eq!(number(d) == Elem::I1, d.class() == Class::Bool);
    }
    assert_eq!((memory(DType::Str), number(DType::Str)), (Elem::I64, Elem::I64));
}
