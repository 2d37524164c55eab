//! Sizes that only run time tells: the ONNX suite with every size of every input made a symbol. Results are those of known sizes, or the
//! model is refused and the message names the size that has to be known. And where the evaluator refuses inputs, native code does.
//!
//! What takes long waits for `cargo test -p numrsc-tests --test open_sizes -- --include-ignored`.
use numrsc::{
    compile::Generator,
    conformance::{self, Executor, FolderOptions, OpenSizes, Reference, Settings},
    native,
    onnx::{self, import, proto::*},
};
use numrsc_ir::{DType, Data, Elems, Func, Tensor, eval::eval};
use numrsc_tests::{corpus, native as generators};
use prost::Message;
use std::path::PathBuf;

fn suite() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    conformance::find_folders(&corpus::fetch("suite").join("onnx-suite"), &mut folders);
    assert_eq!(folders.len(), 2036, "the suite is complete");
    folders
}

fn list(name: &str) -> std::collections::BTreeMap<String, String> {
    let path = corpus::root().join("tests/conformance").join(name);
    conformance::parse_expected_failures(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Run tests with open sizes; those of the list of refusals must be refused.
fn run(folders: &[PathBuf], executor: &(dyn Executor + Sync), how: OpenSizes) {
    let (expected, refusals) = (list("expected-failures.txt"), list("open-sizes.txt"));
    let known: Vec<&str> = folders.iter().map(|f| conformance::name(f)).collect();
    for name in refusals.keys() {
        assert!(known.contains(&name.as_str()), "`{name}` is listed but not in the suite");
    }
    assert!(refusals.len() * 20 <= folders.len(), "{} of {} tests are refused", refusals.len(), folders.len());
    let options = FolderOptions { open_sizes: Some(how), ..FolderOptions::default() };
    let results = conformance::run_all(folders, None, |dir| match refusals.get(conformance::name(dir)) {
        Some(reason) => conformance::expect_refusal(dir, conformance::named_size(reason), options),
        None => conformance::run_folder(dir, executor, options),
    });
    let score = conformance::score(folders, results, &expected);
    println!("{} passed, {} failed, {} skipped", score.passed, score.failures.len(), score.skipped);
    assert!(score.failures.is_empty(), "{}", score.failures.join("\n"));
}

/// As [`native::Native`], and native code has to take the same inputs of other sizes as the evaluator, with the same results.
struct Resized(native::Native);

impl Executor for Resized {
    fn run(&self, func: &Func, inputs: &[Data]) -> Result<Vec<Data>, String> {
        let model = native::load(func, &self.0.options)?;
        let outputs = native::run(&model, inputs, self.0.threads)?;
        for changed in other_sizes(inputs) {
            let place = |e: &str| format!("{}: {e}", shapes(&changed));
            match (eval(func, &changed), native::run(&model, &changed, self.0.threads)) {
                (Ok(expected), Ok(got)) => {
                    for (got, expected) in got.iter().zip(&expected) {
                        conformance::compare(got, expected, &Settings::default(), false).map_err(|e| place(&e))?;
                    }
                }
                (Ok(_), Err(e)) => return Err(place(&format!("the evaluator takes it, but: {e}"))),
                (Err(e), Ok(_)) => return Err(place(&format!("native code takes it, but: {e}"))),
                (Err(_), Err(_)) => {}
            }
        }
        Ok(outputs)
    }
}

/// The inputs with one size changed: one more and one less, none, and a single one.
fn other_sizes(inputs: &[Data]) -> Vec<Vec<Data>> {
    /// Larger inputs take the evaluator too long.
    const MOST: usize = 4096;
    let mut all = Vec::new();
    if inputs.iter().any(|x| x.as_tensor().is_ok_and(|t| t.len() > MOST)) {
        return all;
    }
    for (i, x) in inputs.iter().enumerate() {
        let Ok(x) = x.as_tensor() else { continue };
        for axis in 0..x.rank() {
            let n = x.shape()[axis];
            let mut sizes = vec![n + 1, n.saturating_sub(1), 0, 1];
            sizes.sort_unstable();
            sizes.dedup();
            for size in sizes.into_iter().filter(|&s| s != n) {
                let mut changed = inputs.to_vec();
                changed[i] = resized(x, axis, size).into();
                all.push(changed);
            }
        }
    }
    all
}

/// The same elements over and over in another shape.
fn resized(x: &Tensor, axis: usize, size: usize) -> Tensor {
    let mut shape = x.shape().to_vec();
    shape[axis] = size;
    let len = shape.iter().product::<usize>();
    if let Some(strings) = x.strings() {
        let filler = String::new();
        let all = strings.iter().chain(std::iter::once(&filler)).cycle().take(len).cloned().collect();
        return Tensor::from_strings(shape, all).expect("as many strings as the shape says");
    }
    let zeros = vec![0; x.dtype().size().max(1)];
    let from = if x.is_empty() { &zeros[..] } else { x.bytes() };
    let bytes: Vec<u8> = from.iter().copied().cycle().take(len * x.dtype().size()).collect();
    Tensor::new(x.dtype(), shape, bytes.into()).expect("as many bytes as the shape says")
}

fn shapes(inputs: &[Data]) -> String {
    let shape = |d: &Data| d.as_tensor().map_or("a sequence".into(), |t| format!("{:?}", t.shape()));
    inputs.iter().map(shape).collect::<Vec<_>>().join(" ")
}

const F32: i32 = 1;

/// A model of one operator, whose first input is `x` with these dimensions and whose others are constants.
fn model(op: &str, attributes: Vec<AttributeProto>, dims: &[&str], weights: &[&[i64]], outputs: usize) -> Func {
    let dim = |d: &&str| DimensionValue::Param((*d).into());
    let shape = TensorShapeProto { dim: dims.iter().map(|d| Dimension::from(dim(d))).collect() };
    let ty = TypeProto::from(TypeValue::Tensor(TensorType { elem_type: F32, shape: Some(shape) }));
    let name = |i: usize| format!("w{i}");
    let weight = |(i, dims): (usize, &&[i64])| {
        let float_data = (1..=dims.iter().product::<i64>()).map(|k| k as f32 / 8.0).collect();
        TensorProto { name: name(i), data_type: F32, dims: dims.to_vec(), float_data, ..Default::default() }
    };
    let results: Vec<String> = (0..outputs).map(|i| format!("y{i}")).collect();
    let node = NodeProto {
        op_type: op.into(),
        input: std::iter::once("x".to_owned()).chain((0..weights.len()).map(name)).collect(),
        output: results.clone(),
        attribute: attributes,
        ..Default::default()
    };
    let graph = GraphProto {
        node: vec![node],
        input: vec![ValueInfoProto::new("x", Some(ty))],
        initializer: weights.iter().enumerate().map(weight).collect(),
        output: results.into_iter().map(|name| ValueInfoProto::new(name, None)).collect(),
        ..Default::default()
    };
    let opset = OperatorSetIdProto { domain: String::new(), version: 18 };
    let model = ModelProto { ir_version: Some(8), opset_import: vec![opset], graph: Some(graph), ..Default::default() };
    let model = onnx::load_bytes(model.encode_to_vec().into(), None).expect("a well-formed model");
    import::import(&model, &import::Options::default()).expect("a model that can be imported")
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: Some(AttributeType::Int as i32), i: Some(i), ..Default::default() }
}

fn ints(name: &str, v: &[i64]) -> AttributeProto {
    let v = v.to_vec();
    AttributeProto { name: name.into(), r#type: Some(AttributeType::Ints as i32), ints: v, ..Default::default() }
}

fn text(name: &str, s: &str) -> AttributeProto {
    let s = Some(s.as_bytes().to_vec().into());
    AttributeProto { name: name.into(), r#type: Some(AttributeType::String as i32), s, ..Default::default() }
}

/// Both generators take the shapes of `x` that the evaluator takes, with its results; `taken` says which.
fn agree(func: &Func, shapes: &[&[usize]], taken: &[bool]) {
    let inputs: Vec<Vec<Data>> = shapes
        .iter()
        .map(|shape| {
            let numbers: Vec<f64> = (0..shape.iter().product::<usize>()).map(|i| -1.5 - i as f64 / 4.0).collect();
            vec![Tensor::from_elems(DType::F32, shape.to_vec(), &Elems::Float(numbers)).into()]
        })
        .collect();
    for generator in generators::GENERATORS {
        for executor in [generators::executor(generator), generators::sanitized(generator)] {
            let model = native::load(func, &executor.options).unwrap();
            for (x, taken) in inputs.iter().zip(taken) {
                let (expected, got) = (eval(func, x), native::run(&model, x, executor.threads));
                assert_eq!(expected.is_ok(), *taken, "{}: {expected:?}", self::shapes(x));
                assert_eq!(got.is_ok(), *taken, "{generator:?} {}: {got:?}", self::shapes(x));
                for (got, expected) in got.iter().flatten().zip(expected.iter().flatten()) {
                    conformance::compare(got, expected, &Settings::default(), false).unwrap();
                }
            }
        }
    }
}

#[test]
fn weights_tell_the_sizes_that_inputs_leave_open() {
    let cases: [(Func, [&[usize]; 3]); 4] = [
        (model("MatMul", vec![], &["n", "k"], &[&[3, 5]], 1), [&[2, 3], &[1, 3], &[2, 4]]),
        (model("Gemm", vec![int("transA", 1)], &["k", "n"], &[&[3, 5]], 1), [&[3, 2], &[3, 1], &[4, 2]]),
        (model("Conv", vec![], &["n", "c", "l"], &[&[4, 3, 2]], 1), [&[2, 3, 5], &[1, 3, 2], &[1, 4, 5]]),
        (
            model("Conv", vec![int("group", 2)], &["n", "c", "l"], &[&[32, 8, 1]], 1),
            [&[2, 16, 5], &[1, 16, 1], &[1, 8, 5]],
        ),
    ];
    for (func, shapes) in &cases {
        agree(func, shapes, &[true, true, false]);
    }
    let input = |func: &Func| func.ty(func.params()[0]).to_string();
    assert_eq!(
        cases.each_ref().map(|(func, _)| input(func)),
        ["f32[n, 3]", "f32[3, n]", "f32[n, 3, l]", "f32[n, 16, l]"]
    );
}

#[test]
fn parts_of_an_open_axis_stay_inside() {
    let func = model("Split", vec![int("num_outputs", 4)], &["n"], &[], 4);
    agree(&func, &[&[3], &[8], &[7], &[5], &[1], &[0]], &[true; 6]);
}

#[test]
fn windows_of_an_open_axis_see_what_they_should() {
    for (kernel, stride) in [(3, 2), (2, 3), (2, 1), (5, 4)] {
        for auto_pad in ["SAME_UPPER", "SAME_LOWER"] {
            let attributes =
                vec![ints("kernel_shape", &[kernel]), ints("strides", &[stride]), text("auto_pad", auto_pad)];
            let func = model("MaxPool", attributes, &["n", "c", "l"], &[], 1);
            agree(&func, &[&[1, 2, 7], &[2, 1, 6], &[1, 1, 5], &[1, 1, 1]], &[true; 4]);
        }
    }
}

#[test]
fn what_does_not_broadcast_is_refused_at_run_time() {
    for slope in [&[3][..], &[1, 3]] {
        let func = model("PRelu", vec![], &["n", "c"], &[slope], 1);
        agree(&func, &[&[2, 3], &[1, 3], &[2, 6], &[2, 1]], &[true, true, false, false]);
    }
    let func = model("PRelu", vec![], &["n", "c", "l"], &[&[3, 1]], 1);
    agree(&func, &[&[2, 3, 4], &[2, 6, 4], &[3, 2, 1]], &[true, false, false]);
}

#[test]
fn llvm_with_every_size_open() {
    run(&suite(), &generators::executor(Generator::Llvm), OpenSizes::Each);
}

#[test]
#[ignore = "takes long; CI has it on LLVM"]
fn every_backend() {
    for how in [OpenSizes::Each, OpenSizes::Alike] {
        run(&suite(), &Reference, how);
        for generator in generators::GENERATORS {
            run(&suite(), &generators::executor(generator), how);
            run(&suite(), &generators::sanitized(generator), how);
        }
    }
}

#[test]
#[ignore = "takes long"]
fn other_sizes_are_taken_and_refused_alike() {
    run(&suite(), &Resized(generators::executor(Generator::Llvm)), OpenSizes::Each);
}
