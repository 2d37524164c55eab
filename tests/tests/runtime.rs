//! Compiled models in the runtime: memory does not grow, damaged artifacts are refused, wrong inputs and indices are clear errors after
//! which everything still works, and both sides agree on what they share.
use numrsc::{
    compile::{Generator, compile},
    native,
};
use numrsc_ir::{Data, Tensor, kernel, parse};
use numrsc_runtime::{
    Context, Model, TensorRef,
    context::{ElementSlots, MAX_SEQUENCE_RANK, RunContext, TensorSlots},
};
use numrsc_tests::native::{GENERATORS, options};
use std::{
    mem::{offset_of, size_of},
    path::PathBuf,
};

/// Dynamic, with weights, an arena and several kernels.
const SMALL: &str = r#"
func(%0 "x": f32[n, 4], %1 "rows": i64[m]) {
  %2 = const {value=f32[4, 3](0.5, -1.0, 2.0, 0.25, 1.0, 1.0, -0.5, 0.75, 0.0, 3.0, 0.125, -2.0)} : f32[4, 3]
  %3 = contract %0, %2 {a_batch=[], b_batch=[], a_sum=[1], b_sum=[0]} : f32[n, 3]
  %4 = map %3 {f=tanh(a0)} : f32[n, 3]
  %5 = reduce %4 {f=sum, axes=[0]} : f32[3]
  %6 = gather %4, %1 {axis=0, batch=0} : f32[m, 3]
  return %5, %6
} "#;

fn artifact(text: &str, generator: Generator) -> Vec<u8> {
    let func = parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut bytes = Vec::new();
    compile(&func, "test", &options(generator), None).unwrap().write_to(&mut bytes).unwrap();
    bytes
}

fn load(text: &str, generator: Generator) -> Model {
    native::load(&parse(text).unwrap_or_else(|e| panic!("{e}\n{text}")), &options(generator)).unwrap()
}

const X: [f32; 8] = [1.0, 2.0, 3.0, 4.0, -1.0, 0.5, 0.25, 8.0];

/// Pages that this process holds.
fn resident_pages() -> i64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn a_million_runs_do_not_grow_memory() {
    for generator in GENERATORS {
        let model = load(SMALL, generator);
        let mut context = Context::with_threads(&model, 1).unwrap();
        let mut run = |count: usize| {
            for i in 0..count {
                // Sizes change from run to run.
                let (n, m) = (1 + i % 2, i % 3);
                let (x_shape, rows_shape) = ([n, 4], [m]);
                let x = TensorRef::new(&X[..4 * n], &x_shape);
                let rows = TensorRef::new(&[0i64, 0, 0][..m], &rows_shape);
                model.run_in_order(&mut context, &[x, rows]).unwrap();
                assert_eq!(context.output(1).unwrap().shape(), [m, 3]);
            }
        };
        run(1000);
        let before = resident_pages();
        run(1_000_000);
        // Other tests of this process run at the same time, so that some growth is theirs.
        let grown = resident_pages() - before;
        assert!(grown < 4096, "{generator:?}: {grown} pages more");
    }
}

#[test]
fn damaged_artifacts_are_refused() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("model.nrsc");
    let put = |bytes: &[u8]| -> PathBuf {
        std::fs::write(&path, bytes).unwrap();
        path.clone()
    };
    let mut bytes = artifact(SMALL, Generator::Llvm);
    let model = Model::load_verified(put(&bytes)).unwrap();
    let weights = bytes.len() - model.manifest().weights_bytes() as usize;
    assert!(weights < bytes.len(), "there are weights");
    for at in 0..bytes.len() {
        bytes[at] ^= 1 << (at % 8);
        let path = put(&bytes);
        assert!(Model::load_verified(&path).is_err(), "byte {at}");
        match Model::load(&path) {
            Ok(model) => {
                assert!(at >= weights, "byte {at}");
                let mut context = Context::with_threads(&model, 1).unwrap();
                let inputs = [TensorRef::new(&X, &[2, 4]), TensorRef::new(&[1i64], &[1])];
                model.run_in_order(&mut context, &inputs).unwrap();
            }
            Err(e) => assert!(at < weights && !e.to_string().is_empty(), "byte {at}: {e}"),
        }
        bytes[at] ^= 1 << (at % 8);
    }
    for length in 0..bytes.len() {
        let path = put(&bytes[..length]);
        assert!(Model::load(&path).is_err() && Model::load_verified(&path).is_err(), "{length} bytes");
    }
    Model::load_verified(put(&bytes)).unwrap();
}

#[test]
fn wrong_inputs_are_clear_errors() {
    for generator in GENERATORS {
        let model = load(SMALL, generator);
        let mut context = Context::with_threads(&model, 2).unwrap();
        let (x, rows) = (TensorRef::new(&X, &[2, 4]), TensorRef::new(&[1i64, 0], &[2]));
        let cases: [(&str, Vec<(&str, TensorRef<'_>)>); 8] = [
            ("input `rows` is missing", vec![("x", x)]),
            ("no input `y`", vec![("x", x), ("y", rows)]),
            ("given twice", vec![("x", x), ("x", x)]),
            ("`x` has elements of type", vec![("x", rows), ("rows", rows)]),
            ("`x` has 2 axes, but 1 was given", vec![("x", TensorRef::new(&X, &[8])), ("rows", rows)]),
            ("axis 1 of `x` has size 4, but 2 was given", vec![("x", TensorRef::new(&X, &[4, 2])), ("rows", rows)]),
            ("the shape given for `x`", vec![("x", TensorRef::new(&X, &[3, 4])), ("rows", rows)]),
            ("index", vec![("x", x), ("rows", TensorRef::new(&[2i64], &[1]))]),
        ];
        for (expected, inputs) in cases {
            let error = model.run(&mut context, &inputs).unwrap_err().to_string();
            assert!(error.contains(expected), "{error:?} is not about {expected:?}");
            assert!(context.output(0).is_err(), "a failed run has no outputs");
            // The context is as good as new.
            model.run(&mut context, &[("rows", rows), ("x", x)]).unwrap();
            let first: &[f32] = context.output_by_name("output0").unwrap().as_slice().unwrap();
            assert!(first.iter().all(|x| x.is_finite()));
        }
    }
}

/// Sizes of two inputs that have to agree.
#[test]
fn sizes_that_differ_between_inputs_are_clear_errors() {
    let text = r#"func(%0 "a": f32[n, m], %1 "b": f32[m]) {
  %2 = broadcast %1 {shape=[n, m], axes=[1]} : f32[n, m]
  %3 = map %0, %2 {f=add(a0, a1)} : f32[n, m]
  return %3
}"#;
    for generator in GENERATORS {
        let model = load(text, generator);
        let mut context = Context::with_threads(&model, 1).unwrap();
        let a = TensorRef::new(&X, &[2, 4]);
        let error = model.run_in_order(&mut context, &[a, TensorRef::new(&X[..3], &[3])]).unwrap_err().to_string();
        assert!(error.contains("input `b`") && error.contains('m'), "{error}");
        model.run_in_order(&mut context, &[a, TensorRef::new(&X[..4], &[4])]).unwrap();
        assert_eq!(context.output(0).unwrap().as_slice::<f32>().unwrap()[4], 0.0);
    }
}

/// What the error says, and a function of an index.
const INDEXED: [(&str, &str); 7] = [
    (
        "an index lies outside",
        "func(%0 \"x\": f32[n], %1 \"i\": i64[]) {
  %2 = gather %0, %1 {axis=0, batch=0} : f32[]
  return %2
}",
    ),
    (
        "an index lies outside",
        "func(%0 \"x\": f32[n], %1 \"i\": i64[]) {
  %2 = gather %0, %1 {axis=0, batch=0} : f32[]
  %3 = map %2 {f=exp(a0)} : f32[]
  %4 = broadcast %3 {shape=[n], axes=[]} : f32[n]
  %5 = map %4, %0 {f=add(a0, a1)} : f32[n]
  return %5
}",
    ),
    (
        "an index lies outside",
        "func(%0 \"x\": f32[n], %1 \"i\": i64[]) {
  %2 = broadcast %1 {shape=[1], axes=[]} : i64[1]
  %3 = const {value=f32[1](7.0)} : f32[1]
  %4 = scatter %0, %2, %3 {f=set} : f32[n]
  return %4
}",
    ),
    (
        "an index lies outside",
        "func(%0 \"x\": f32[n], %1 \"i\": i64[]) {
  %2 = broadcast %1 {shape=[1], axes=[]} : i64[1]
  %3 = const {value=f32[1](7.0)} : f32[1]
  %4 = scatter %0, %2, %3 {f=add} : f32[n]
  return %4
}",
    ),
    (
        "a slice leaves its axis",
        "func(%0 \"x\": f32[n], %1 \"i\": i64[]) {
  %2 = bind %1 {dim=$i} : i64[]
  %3 = slice %0 {starts=[$i], sizes=[1], steps=[1]} : f32[1]
  return %3
}",
    ),
    (
        "`seq_at`",
        "func(%0 \"x\": f32[n], %1 \"i\": i64[]) {
  %2 = seq_make %0, %0, %0 {elem=f32[n]} : seq<f32[n]>
  %3 = seq_at %2, %1 {ty=f32[n]} : f32[n]
  return %3
}",
    ),
    (
        "an index lies outside",
        "func(%0 \"x\": f32[n], %1 \"i\": i64[]) {
  %2 = const {value=bool[](1)} : bool[]
  %3 = if %2, %0, %1 {then=func(%0: f32[n], %1: i64[]) {
    %2 = gather %0, %1 {axis=0, batch=0} : f32[]
    return %2
  }, or=func(%0: f32[n], %1: i64[]) {
    %2 = reduce %0 {f=sum, axes=[0]} : f32[]
    return %2
  }, types=[f32[]]} : (f32[])
  %4 = get %3 {index=0} : f32[]
  return %4
}",
    ),
];

#[test]
fn indices_out_of_range_are_errors_of_the_run() {
    for generator in GENERATORS {
        for (what, text) in INDEXED {
            let func = parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let model = native::load(&func, &options(generator)).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let mut context = Context::with_threads(&model, 2).unwrap();
            for index in [0, 3, -1, 2, i64::MIN, 1, i64::MAX, -4, 0, 1 << 32, 2] {
                let inputs = [Tensor::from_f32(&[3], &[1.0, 2.0, 3.0]).into(), Tensor::from_i64(&[], &[index]).into()];
                let expected = numrsc_ir::eval::eval(&func, &inputs);
                let got = native::run_in(&model, &mut context, &inputs);
                match (expected, got) {
                    (Ok(expected), Ok(got)) => {
                        let numbers = |d: &Data| d.as_tensor().unwrap().to_f64s();
                        for (x, y) in numbers(&got[0]).iter().zip(numbers(&expected[0])) {
                            assert!((x - y).abs() < 1e-5 * y.abs(), "{index}: {x}, not {y}\n{text}");
                        }
                    }
                    (Err(_), Err(e)) => {
                        assert!(e.contains(what), "{index}: the message is {e:?}\n{text}");
                    }
                    (Ok(_), Err(e)) => panic!("{generator:?}, {index}: {e}\n{text}"),
                    (Err(e), Ok(got)) => panic!("{generator:?}, {index} gives {got:?}, should be {e}\n{text}"),
                }
            }
        }
    }
}

#[test]
fn subnormal_numbers_are_kept_only_on_demand_and_by_all_threads() {
    let text = "func(%0 \"x\": f32[n]) {\n  %1 = map %0 {f=mul(a0, 0.5:f32)} : f32[n]\n  return %1\n}\n";
    let x = vec![f32::MIN_POSITIVE; 1 << 20];
    for generator in GENERATORS {
        let model = load(text, generator);
        for threads in [1, 2] {
            let mut context = Context::with_threads(&model, threads).unwrap();
            for (keep, expected) in [(false, 0.0), (true, f32::MIN_POSITIVE / 2.0), (false, 0.0)] {
                context.keep_subnormals(keep);
                model.run_in_order(&mut context, &[TensorRef::new(&x, &[x.len()])]).unwrap();
                let y: &[f32] = context.output(0).unwrap().as_slice().unwrap();
                assert!(y.iter().all(|&y| y == expected), "{generator:?}, {threads} threads, keep: {keep}");
                // The mode of the caller is what it was.
                assert!(std::hint::black_box(f32::MIN_POSITIVE) / 2.0 > 0.0);
            }
        }
    }
}

/// Reshapes and transposes in turn, such that no two of them cancel; their sizes are numbers, or multiples of `n`.
fn chain_of_views(length: usize, n: &str, user: &str) -> String {
    let times = |k: usize| if n.is_empty() { format!("{k}") } else { format!("{k}*{n}") };
    let all = times(210);
    let mut text = format!("func(%0 \"x\": f32[{all}]) {{\n");
    let mut at = 0;
    for i in 0..length {
        let rows = [6, 10, 14, 15, 21, 35, 5, 42][i % 8];
        let (a, b) = (rows.to_string(), times(210 / rows));
        text += &format!("  %{} = reshape %{at} {{shape=[{a}, {b}]}} : f32[{a}, {b}]\n", at + 1);
        text += &format!("  %{} = transpose %{} {{perm=[1, 0]}} : f32[{b}, {a}]\n", at + 2, at + 1);
        text += &format!("  %{} = reshape %{} {{shape=[{all}]}} : f32[{all}]\n", at + 3, at + 2);
        at += 3;
    }
    text += &user.replace("%x", &format!("%{at}")).replace("%y", &format!("%{}", at + 1)).replace("ALL", &all);
    text + "}\n"
}

#[test]
fn chains_of_views_of_any_length_can_be_compiled() {
    let users = [
        "  %y = map %x {f=neg(a0)} : f32[ALL]\n  return %y\n",
        "  %y = reduce %x {f=sum, axes=[0]} : f32[]\n  return %y\n",
        "  %y = contract %x, %x {a_batch=[], b_batch=[], a_sum=[0], b_sum=[0]} : f32[]\n  return %y\n",
        "  return %x\n",
    ];
    let x: Vec<f32> = (0..420).map(|i| (i * 37 % 101) as f32).collect();
    for (n, count) in [("", 210), ("n", 420)] {
        for user in users {
            let text = chain_of_views(40, n, user);
            let func = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let inputs = [Data::Tensor(Tensor::from_f32(&[count], &x[..count]))];
            let expected = numrsc_ir::eval::eval(&func, &inputs).unwrap();
            for generator in GENERATORS {
                let got = native::run(&load(&text, generator), &inputs, 1).unwrap();
                assert_eq!(got, expected, "{generator:?} {n} {user}");
            }
        }
    }
}

#[test]
fn compiler_and_runtime_agree_on_what_they_share() {
    use kernel::context as c;
    let slots = |bytes: usize| bytes as i64 / 8;
    assert_eq!(slots(offset_of!(RunContext, weights)), c::WEIGHTS);
    assert_eq!(slots(offset_of!(RunContext, arena)), c::ARENA);
    assert_eq!(slots(offset_of!(RunContext, arena_bytes)), c::ARENA_BYTES);
    assert_eq!(slots(offset_of!(RunContext, inputs)), c::INPUTS);
    assert_eq!(slots(offset_of!(RunContext, outputs)), c::OUTPUTS);
    assert_eq!(slots(offset_of!(RunContext, threads)), c::THREADS);
    assert_eq!(slots(offset_of!(RunContext, fn_arena)), c::FN_ARENA);
    assert_eq!(slots(offset_of!(RunContext, fn_alloc)), c::FN_ALLOC);
    assert_eq!(slots(offset_of!(RunContext, fn_free)), c::FN_FREE);
    assert_eq!(slots(offset_of!(RunContext, fn_parallel)), c::FN_PARALLEL);
    assert_eq!(slots(size_of::<RunContext>()), c::SLOTS);
    assert_eq!(slots(offset_of!(TensorSlots, data)), c::TENSOR_DATA);
    assert_eq!(slots(offset_of!(TensorSlots, sizes)), c::TENSOR_SIZES);
    assert_eq!(slots(offset_of!(TensorSlots, room)), c::TENSOR_ROOM);
    assert_eq!(slots(size_of::<TensorSlots>()), c::TENSOR_SLOTS);
    assert_eq!(slots(size_of::<ElementSlots>()), c::ELEMENT_SLOTS);
    assert_eq!(MAX_SEQUENCE_RANK, c::MAX_SEQ_RANK);
    for dtype in numrsc_ir::DType::ALL {
        let runtime = numrsc_runtime::DType::from_onnx(dtype.onnx()).expect("the runtime knows all types");
        if *dtype != numrsc_ir::DType::Str {
            assert_eq!(runtime.size(), dtype.size(), "{dtype}");
        }
    }
}
