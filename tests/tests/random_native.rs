//! Random functions in native code, judged by the evaluator: every node on its own (`local`), and as they are, with everything
//! fused that can be (`fused`). Half of them see NaN, infinities, subnormal numbers and negative zeros; each runs at several sizes.
//! The kernel IR is also interpreted, which tells faults of lowering from faults of code generators.
//!
//! `NUMRSC_RANDOM_COUNT` is how many functions to make, `NUMRSC_RANDOM_FIRST` the first seed.
use numrsc::compile::{Generator, Options};
use numrsc_ir::{Data, Func, Machine, Tensor, Type, Value, eval::eval};
use numrsc_passes::{Context, TOLERANCE, lower};
use numrsc_tests::{
    generate::{self, Config},
    judge::{self, Count, Judge},
    native::{self, GENERATORS, Run, options},
    perturbed::Perturbation,
};
use std::{
    fmt::Write,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Inputs of different sizes for each function.
const SIZES: u64 = 3;
/// More than this is not worth reading at once.
const REPORTED: usize = 12;

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |n| n.parse().unwrap_or_else(|_| panic!("{name} is a number")))
    };
    let first = number("NUMRSC_RANDOM_FIRST", 0);
    first..first + number("NUMRSC_RANDOM_COUNT", 300)
}

fn is_special(seed: u64) -> bool {
    seed % 2 == 1
}

fn function(seed: u64) -> Func {
    generate::func(seed, Config { special: is_special(seed), steps: 4 + seed as usize % 30, ..Config::default() })
}

fn inputs(f: &Func, seed: u64) -> impl Iterator<Item = (u64, Vec<Data>)> {
    (0..SIZES).map(move |i| {
        let seed = seed * SIZES + i;
        (seed, generate::inputs(f, seed, is_special(seed / SIZES)).into_iter().map(Data::Tensor).collect())
    })
}

/// Something that compiles a function, so that it can be run many times.
type Prepare<'t> = dyn Fn(&Func) -> Result<Box<Run<'static>>, String> + 't;

/// With all roundings that the types ask for.
fn compiled(generator: Generator) -> impl Fn(&Func) -> Result<Box<Run<'static>>, String> {
    compiled_with(options(generator).with(|o| o.tolerance = 0.0))
}

fn compiled_with(options: Options) -> impl Fn(&Func) -> Result<Box<Run<'static>>, String> {
    move |f| native::compiled(f, &options)
}

/// One function at all sizes; panics are failures like others.
fn test(f: &Func, seed: u64, prepare: &Prepare<'_>, judge: Judge) -> Result<Count, String> {
    let work = || {
        let run = prepare(f)?;
        let mut count = Count::default();
        for (seed, inputs) in inputs(f, seed) {
            count.add(judge(f, &inputs, run(&inputs), seed).map_err(|e| format!("inputs of seed {seed}: {e}"))?);
        }
        Ok(count)
    };
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!("panicked: {}", text.unwrap_or_default()))
    })
}

/// Test many functions and report the smallest that fail.
fn test_all(change: impl Fn(Func) -> Func, prepare: &Prepare<'_>, judge: Judge) {
    let (mut count, mut failures) = (Count::default(), vec![]);
    for seed in seeds() {
        let f = change(function(seed));
        match test(&f, seed, prepare, judge) {
            Ok(more) => count.add(more),
            Err(e) => failures.push(smallest(&f, seed, e, prepare, judge)),
        }
    }
    println!("{} compared, {} skipped", count.compared, count.skipped);
    failures.sort_by_key(|(f, ..)| f.nodes().len());
    let mut report = format!("{} of {} functions fail\n", failures.len(), seeds().count());
    for (f, seed, e) in failures.iter().take(REPORTED) {
        let _ = writeln!(report, "seed {seed}: {e}\n{f}");
    }
    assert!(failures.is_empty(), "{report}");
    assert!(count.compared > 9 * count.skipped, "too little was compared: {count:?}");
}

/// The smallest part of a function that fails: what the first failing node needs.
fn smallest(f: &Func, seed: u64, error: String, prepare: &Prepare<'_>, judge: Judge) -> (Func, u64, String) {
    let part = |results: Vec<Value>| {
        let mut part = f.clone();
        part.set_results(results);
        part.result_names = vec![];
        part.without_dead_nodes()
    };
    let is_sequence = |v: &Value| matches!(f.ty(*v), Type::Seq(_));
    let sequences = f.results().iter().any(is_sequence);
    let may_result = |v: &Value| matches!(f.ty(*v), Type::Tensor(_)) || (sequences && is_sequence(v));
    for (v, _) in f.values().filter(|(v, _)| may_result(v)) {
        // With its operands as results, a node is not fused with them.
        for results in [vec![v], f.node(v).args.iter().copied().filter(may_result).chain([v]).collect()] {
            let part = part(results);
            if let Err(e) = test(&part, seed, prepare, judge) {
                return smaller_inside(&part, seed, prepare, judge).unwrap_or((part, seed, e));
            }
        }
    }
    (f.clone(), seed, error)
}

/// The smallest part of a nested function that fails by itself.
fn smaller_inside(f: &Func, seed: u64, prepare: &Prepare<'_>, judge: Judge) -> Option<(Func, u64, String)> {
    f.nodes().iter().flat_map(|n| n.op.bodies()).find_map(|body| {
        let known = |p: &Value| {
            let mut known = matches!(body.ty(*p), Type::Tensor(_));
            body.ty(*p).for_each_sym(&mut |s| known &= generate::SIZES.contains(&&**s));
            known
        };
        if !body.params().iter().all(known) || numrsc_ir::verify(body).is_err() {
            return None;
        }
        let e = test(body, seed, prepare, judge).err()?;
        Some(smallest(body, seed, e, prepare, judge))
    })
}

#[test]
fn local_llvm() {
    test_all(|f| judge::with_all_results(&f, true), &compiled(Generator::Llvm), judge::local);
}

#[test]
fn local_cranelift() {
    test_all(|f| judge::with_all_results(&f, true), &compiled(Generator::Cranelift), judge::local);
}

#[test]
fn fused_llvm() {
    test_all(|f| f, &compiled(Generator::Llvm), judge::fused);
}

#[test]
fn fused_cranelift() {
    test_all(|f| f, &compiled(Generator::Cranelift), judge::fused);
}

/// As they are compiled by default. Floats of 16 bits are kept wide then, as `widen` says.
#[test]
fn widened_llvm() {
    test_all(|f| f, &compiled_with(options(Generator::Llvm)), judge_widened);
}

#[test]
fn widened_cranelift() {
    test_all(|f| f, &compiled_with(options(Generator::Cranelift)), judge_widened);
}

fn judge_widened(f: &Func, inputs: &[Data], got: Result<Vec<Data>, String>, seed: u64) -> Result<Count, String> {
    let widened = numrsc_passes::half_to_f32(f, &Context::new(Machine::AVX2)).map_err(|e| e.to_string())?;
    judge::fused(&widened, inputs, got, seed)
}

/// Functions as `widen` makes them are valid. No bit changes where nothing may be kept wide, nor where there are no floats of 16 bits.
#[test]
fn widened_functions_are_the_same() {
    let is_half = |text: &str| text.contains("f16");
    let mut halves = 0;
    for seed in seeds() {
        let f = function(seed).without_dead_nodes();
        let [kept, rounded] = [TOLERANCE, 0.0].map(|t| {
            let cx = Context::new(Machine::AVX2).with(|o| o.tolerance = t);
            numrsc_passes::half_to_f32(&f, &cx).unwrap()
        });
        for (inputs_seed, inputs) in inputs(&f, seed) {
            let bits = |f: &Func| format!("{:?}", eval(f, &inputs));
            assert_eq!(bits(&rounded), bits(&f), "{inputs_seed}\n{f}\n{rounded}");
            assert!(is_half(&f.to_string()) || bits(&kept) == bits(&f), "{inputs_seed}\n{f}\n{kept}");
        }
        let types = |g: &Func| g.results().iter().map(|r| g.ty(*r).clone()).collect::<Vec<_>>();
        numrsc_ir::verify(&kept).unwrap_or_else(|e| panic!("{seed}: {e}\n{f}\n{kept}"));
        assert_eq!(types(&kept), types(&f), "{seed}");
        halves += usize::from(kept != rounded);
    }
    assert!(halves > 0, "no function had floats of 16 bits");
}

#[test]
fn local_interpreted() {
    test_all(|f| judge::with_all_results(&f, false), &interpreted, judge::local);
}

fn interpreted(f: &Func) -> Result<Box<Run<'static>>, String> {
    let machine = Machine { vector_bytes: 16, masks: true, ..Machine::AVX2 };
    let lowered = lower(f, &Context::new(machine)).map_err(|e| e.to_string())?;
    let f = f.clone();
    Ok(Box::new(move |inputs| native::interpreted(&f, &lowered)?(inputs)))
}

/// Rows behind a rectifier, by columns of so many bytes that what meets zeros is left out; one of the rows was scattered before. That is too much for the judge, but
/// all sums are exact.
#[test]
fn zeros_are_left_out() {
    let text = "func(%0: f32[1, 4, 16, 16], %1: f32[n, 1024]) {
        %2 = map %0 {f=max(a0, 0.0:f32)} : f32[1, 4, 16, 16]
        %3 = transpose %2 {perm=[0, 1, 3, 2]} : f32[1, 4, 16, 16]
        %4 = reshape %3 {shape=[1, 1024]} : f32[1, 1024]
        %5 = map %1 {f=min(max(a0, 0.0:f32), 6.0:f32)} : f32[n, 1024]
        %6 = iota {dtype=i64, shape=[1024, 64], axis=0} : i64[1024, 64]
        %7 = iota {dtype=i64, shape=[1024, 64], axis=1} : i64[1024, 64]
        %8 = map %6, %7 {f=cast(sub(rem(add(mul(a0, 31:i64), a1), 17:i64), 8:i64), f32)} : f32[1024, 64]
        %9 = contract %4, %8 {a_batch=[], b_batch=[], a_sum=[1], b_sum=[0]} : f32[1, 64]
        %10 = contract %5, %8 {a_batch=[], b_batch=[], a_sum=[1], b_sum=[0]} : f32[n, 64]
        return %9, %10
    }";
    let f = numrsc_ir::parse(text).unwrap();
    let tensor = |shape: &[usize], seed: usize| {
        let elements: Vec<f32> = (0..shape.iter().product()).map(|i| ((i * 7 + seed) % 17) as f32 - 8.0).collect();
        Data::Tensor(Tensor::from_f32(shape, &elements))
    };
    for generator in GENERATORS {
        let run = compiled(generator)(&f).unwrap();
        for rows in [1, 2, 3, 9] {
            let inputs = [tensor(&[1, 4, 16, 16], rows), tensor(&[rows, 1024], 1)];
            assert_eq!(run(&inputs).unwrap(), eval(&f, &inputs).unwrap(), "{generator:?}, {rows} rows");
        }
    }
}

/// The judge itself: without errors on purpose it is the evaluator, and a wrong result is noticed.
#[test]
fn the_judge_is_the_evaluator() {
    let mut noticed = 0;
    for seed in 0..200 {
        let f = function(seed).without_dead_nodes();
        for (seed, inputs) in inputs(&f, seed) {
            let Ok(expected) = eval(&f, &inputs) else { continue };
            let again = Perturbation::None
                .run(&f, &inputs, &mut Default::default())
                .unwrap_or_else(|e| panic!("{seed}: {e}\n{f}"));
            let bytes = |d: &[Data]| format!("{d:?}");
            assert_eq!(bytes(&expected), bytes(&again), "{seed}\n{f}");
            judge::fused(&f, &inputs, Ok(expected.clone()), seed).unwrap_or_else(|e| panic!("{seed}: {e}\n{f}"));

            // Whatever wrong thing is done to the first number of a result.
            let wrong: Vec<Data> = expected.iter().map(spoil).collect();
            if bytes(&wrong) != bytes(&expected) {
                noticed += i32::from(judge::fused(&f, &inputs, Ok(wrong), seed).is_err());
                noticed -= i32::from(judge::fused(&f, &inputs, Err("failed".into()), seed).is_ok());
            }
        }
    }
    assert!(noticed > 400, "only {noticed} wrong results are noticed");
}

/// The value with the first number multiplied by 1.01 or, of an integer, increased by 1.
fn spoil(data: &Data) -> Data {
    use numrsc_ir::Elems;
    let Data::Tensor(t) = data else { return data.clone() };
    let mut elems = t.elems();
    match &mut elems {
        Elems::Float(v) => v.iter_mut().take(1).for_each(|x| *x = *x * 1.01 + 0.01),
        Elems::Int(v) => v.iter_mut().take(1).for_each(|x| *x = t.dtype().wrap(*x + 1)),
        Elems::Str(_) => {}
    }
    Tensor::from_elems(t.dtype(), t.shape().to_vec(), &elems).into()
}
