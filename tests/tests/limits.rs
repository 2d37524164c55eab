//! Sizes beyond all bounds: every whole number that a model of the ONNX suite states, be it in an attribute or in a small input that is made a constant, takes values that
//! no size can have, one after the other. Each such model is refused by all executors or run by them, within a bound of memory and time.
use numrsc::{
    compile::Generator,
    conformance::{self, Executor, ReferenceWithin},
    native::Native,
    onnx::{self, import, proto::*},
};
use numrsc_ir::{Data, Elems, Tensor};
use numrsc_tests::{corpus, native};
use prost::Message;
use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Too large, too small, or in between in one of the types that sizes pass through.
const EXTREMES: [i64; 10] =
    [0, -1, 1 << 32, (1 << 32) + 2, 1 << 40, 1 << 47, 1 << 62, i64::MAX, i64::MIN + 1, i64::MIN];
/// The same for numbers of 32 bits.
const EXTREMES_OF_32: [i64; 4] = [0, -1, i32::MAX as i64, i32::MIN as i64];
/// Inputs up to this many numbers are made constants.
const SMALL: usize = 8;
/// The names of the test folders that a child process goes through, and how many of their cases it skips.
const FOLDERS: &str = "NUMRSC_LIMITS_FOLDERS";
const SKIP: &str = "NUMRSC_LIMITS_SKIP";
/// KiB of addresses that a child may use.
const ADDRESSES: u64 = 3 << 20;
/// Longer than anything that ends takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Loops are stopped after this.
const ENDED: Duration = Duration::from_secs(1);

/// One folder for each operator in each set of attributes that a test gives it.
fn folders() -> Vec<PathBuf> {
    let mut all = Vec::new();
    conformance::find_folders(&corpus::fetch("suite").join("onnx-suite"), &mut all);
    let mut seen = BTreeSet::new();
    all.retain(|dir| {
        let Ok(model) = onnx::load(&dir.join("model.onnx")) else { return false };
        let graph = model.graph();
        let [node] = &graph.node[..] else { return false };
        let attributes: Vec<&str> = node.attribute.iter().map(|a| a.name.as_str()).collect();
        let types: Vec<i32> = graph.input.iter().map(whole_numbers).collect();
        seen.insert((node.op_type.clone(), format!("{attributes:?} {types:?}")))
    });
    all
}

/// The element type of a tensor of whole numbers that sizes are given in, else 0.
fn whole_numbers(input: &ValueInfoProto) -> i32 {
    match input.r#type.as_ref().and_then(|t| t.value.as_ref()) {
        Some(TypeValue::Tensor(t)) if [6, 7].contains(&t.elem_type) => t.elem_type,
        _ => 0,
    }
}

/// A model with one number replaced, and the inputs that are left to it.
struct Case {
    what: String,
    model: ModelProto,
    inputs: Vec<Data>,
}

fn cases(dir: &Path) -> Vec<Case> {
    let model = onnx::load(&dir.join("model.onnx")).expect("a model of the suite");
    let Ok(inputs) = conformance::load_inputs(&dir.join("test_data_set_0"), &model) else { return vec![] };
    let proto = model.proto();
    let mut cases = Vec::new();
    let mut with = |what: String, change: &dyn Fn(&mut GraphProto), inputs: Vec<Data>| {
        let mut model = proto.clone();
        let graph = model.graph.as_mut().expect("a graph");
        // What the outputs are declared as would be refused instead.
        graph.output.iter_mut().for_each(|o| o.r#type = None);
        change(graph);
        cases.push(Case { what, model, inputs });
    };
    let node = &proto.graph.as_ref().expect("a graph").node[0];
    for (i, a) in node.attribute.iter().enumerate() {
        for value in EXTREMES {
            if a.i.is_some() {
                let change = move |g: &mut GraphProto| g.node[0].attribute[i].i = Some(value);
                with(format!("{} = {value}", a.name), &change, inputs.clone());
            }
            for at in 0..a.ints.len().min(3) {
                let change = move |g: &mut GraphProto| g.node[0].attribute[i].ints[at] = value;
                with(format!("{}[{at}] = {value}", a.name), &change, inputs.clone());
            }
            if !a.ints.is_empty() {
                let change = move |g: &mut GraphProto| g.node[0].attribute[i].ints.fill(value);
                with(format!("{} = all {value}", a.name), &change, inputs.clone());
            }
        }
    }
    let declared = &proto.graph.as_ref().expect("a graph").input;
    for (i, data) in inputs.iter().enumerate() {
        let (Data::Tensor(t), elem_type @ 6..) = (data, whole_numbers(&declared[i])) else { continue };
        let Some(numbers) = t.to_i64s().filter(|v| (1..=SMALL).contains(&v.len())) else { continue };
        let name = declared[i].name.clone();
        let rest: Vec<Data> = inputs.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, d)| d.clone()).collect();
        for &value in if elem_type == 7 { &EXTREMES[..] } else { &EXTREMES_OF_32 } {
            for at in (0..numbers.len().min(3)).map(Some).chain([None]) {
                let mut numbers = numbers.clone();
                match at {
                    Some(at) => numbers[at] = value,
                    None => numbers.fill(value),
                }
                let stored = TensorProto {
                    name: name.clone(),
                    data_type: 7,
                    dims: t.shape().iter().map(|&n| n as i64).collect(),
                    int64_data: numbers.clone(),
                    ..Default::default()
                };
                let stored = if elem_type == 7 {
                    stored
                } else {
                    let int32_data = numbers.iter().map(|&n| n as i32).collect();
                    TensorProto { data_type: 6, int64_data: vec![], int32_data, ..stored }
                };
                let change = |g: &mut GraphProto| {
                    g.input.remove(i);
                    g.initializer.push(stored.clone());
                };
                with(format!("constant {name} = {numbers:?}"), &change, rest.clone());
                // The same number known only at run time.
                if at.is_none_or(|at| at == 0) {
                    let mut given = inputs.clone();
                    let elems = Elems::Int(numbers.iter().map(|&n| i128::from(n)).collect());
                    given[i] = Data::Tensor(Tensor::from_elems(t.dtype(), t.shape().to_vec(), &elems));
                    with(format!("input {name} = {numbers:?}"), &|_| {}, given);
                }
            }
        }
    }
    cases
}

/// What became of a case; an error is a finding.
fn judge(case: &Case) -> Result<(), String> {
    let Ok(model) = onnx::load_bytes(case.model.encode_to_vec().into(), None) else { return Ok(()) };
    let Ok(func) = import::import(&model, &import::Options::default()) else { return Ok(()) };
    let expected = ReferenceWithin(ENDED).run(&func, &case.inputs);
    for executor in executors() {
        let got = executor.run(&func, &case.inputs);
        match (&expected, &got) {
            (_, Err(e)) if e.contains("bug in the compiled model") => return Err(e.clone()),
            // Where there is no room for what is asked for, the one needs more than the other.
            (_, Err(e)) | (Err(e), _) if refused_for_size(e) => {}
            (Ok(_), Ok(_)) | (Err(_), Err(_)) => {}
            (Ok(_), Err(e)) => return Err(format!("only native code refuses: {e}")),
            (Err(e), Ok(_)) => return Err(format!("only the evaluator refuses: {e}")),
        }
    }
    Ok(())
}

fn refused_for_size(e: &str) -> bool {
    ["memory", "too large", "larger than", "beyond 64 bits", "stopped"].iter().any(|what| e.contains(what))
}

/// Of how many cases one is run; all of them with `NUMRSC_LIMITS=all`, on all executors.
fn share() -> usize {
    // Numbers take ten values in turn, so this meets all of them.
    if std::env::var("NUMRSC_LIMITS").as_deref() == Ok("all") { 1 } else { 3 }
}

fn executors() -> Vec<Native> {
    let quick = |generator| Native {
        options: native::options(generator).with(|o| o.level = numrsc_passes::Level::O1),
        threads: 1,
        timeout: Some(ENDED),
    };
    let within = |native| Native { timeout: Some(ENDED), ..native };
    match std::env::var("NUMRSC_LIMITS").as_deref() {
        Ok("all") => {
            vec![
                quick(Generator::Cranelift),
                within(native::executor(Generator::Llvm)),
                within(native::sanitized(Generator::Llvm)),
            ]
        }
        _ => vec![quick(Generator::Cranelift)],
    }
}

/// When the case that runs began, in milliseconds since the start; 0 if none does.
static BEGAN: AtomicU64 = AtomicU64::new(0);

/// What a child process does: a line before each case and one after each that went wrong.
#[test]
#[ignore = "started by the test below"]
fn child() {
    let list = std::env::var(FOLDERS).expect("the folders");
    let skip = std::env::var(SKIP).ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let start = Instant::now();
    let now = move || start.elapsed().as_millis() as u64 + 1;
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let began = BEGAN.load(Ordering::Relaxed);
            if began > 0 && now() - began > PATIENCE.as_millis() as u64 {
                println!("found it does not end");
                std::process::abort();
            }
        }
    });
    let all = list.split(',').flat_map(|dir| {
        let dir = PathBuf::from(dir);
        let name = conformance::name(&dir).to_owned();
        cases(&dir).into_iter().map(move |c| (name.clone(), c))
    });
    // What runs tests has begun a line.
    println!();
    for (name, case) in all.step_by(share()).skip(skip) {
        println!("case {name}: {}", case.what);
        std::io::stdout().flush().expect("a pipe");
        BEGAN.store(now(), Ordering::Relaxed);
        let result = std::panic::catch_unwind(|| judge(&case)).unwrap_or_else(|_| Err("panicked".into()));
        BEGAN.store(0, Ordering::Relaxed);
        if let Err(e) = result {
            println!("found {}", e.replace('\n', " "));
        }
    }
    println!("end");
}

/// Go through folders in child processes, one after the other if they die. Gives what was found, and how many cases there were.
fn survey(folders: &[PathBuf]) -> (Vec<String>, usize) {
    let list: Vec<&str> = folders.iter().map(|f| f.to_str().expect("a path in UTF-8")).collect();
    let (mut found, mut done) = (vec![], 0);
    loop {
        let mut child = Command::new("sh")
            .args(["-c", &format!("ulimit -v {ADDRESSES}; ulimit -c 0; exec \"$0\" \"$@\"")])
            .arg(std::env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", "child", "--nocapture", "--test-threads=1"])
            .env(FOLDERS, list.join(","))
            .env(SKIP, done.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it can be started");
        let (mut case, mut ended) = (String::new(), false);
        let mut reported = false;
        for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
            let line = line.expect("text");
            if let Some(name) = line.strip_prefix("case ") {
                (case, done, reported) = (name.to_owned(), done + 1, false);
            } else if let Some(what) = line.strip_prefix("found ") {
                found.push(format!("{case}: {what}"));
                reported = true;
            }
            ended |= line == "end";
        }
        let status = child.wait().expect("it was started");
        if ended {
            return (found, done);
        }
        if !reported {
            found.push(format!("{case}: {status}"));
        }
        if case.is_empty() {
            return (found, done);
        }
    }
}

#[test]
fn numbers_beyond_all_sizes_are_refused_or_harmless() {
    let mut all = folders();
    if let Ok(part) = std::env::var("NUMRSC_LIMITS_FILTER") {
        all.retain(|f| conformance::name(f).contains(&part));
    }
    let groups: Vec<&[PathBuf]> = all.chunks(16).collect();
    let (next, results) = (Mutex::new(groups.iter()), Mutex::new((vec![], 0)));
    let work = || {
        loop {
            let Some(group) = next.lock().expect("no panics").next() else { return };
            let (found, done) = survey(group);
            let mut results = results.lock().expect("no panics");
            results.0.extend(found);
            results.1 += done;
        }
    };
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
    let (mut found, done) = results.into_inner().expect("no panics");
    found.sort();
    println!("{done} cases of {} operators, {} findings", all.len(), found.len());
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(done > 2000 || std::env::var("NUMRSC_LIMITS_FILTER").is_ok(), "only {done} cases");
}

/// What a node of a test takes.
#[derive(Clone, Copy)]
enum In {
    /// An input of the model.
    X(&'static [i64]),
    /// An input of the model of which a size is known only when it runs.
    Open(&'static [&'static str]),
    Ints(&'static [i64]),
    Scalar(i64),
    Float(f32),
    None,
}
use In::{Float, Ints, Open, Scalar, X};

#[derive(Clone, Copy)]
enum Attr {
    I(i64),
    Is(&'static [i64]),
    S(&'static str),
}
use Attr::{I, Is, S};

fn attribute((name, value): &(&str, Attr)) -> AttributeProto {
    let mut a = AttributeProto { name: (*name).into(), ..Default::default() };
    let kind = match value {
        I(i) => {
            a.i = Some(*i);
            AttributeType::Int
        }
        Is(v) => {
            a.ints = v.to_vec();
            AttributeType::Ints
        }
        S(s) => {
            a.s = Some(s.as_bytes().to_vec().into());
            AttributeType::String
        }
    };
    a.r#type = Some(kind as i32);
    a
}

fn input(name: &str, dims: Vec<DimensionValue>) -> ValueInfoProto {
    let dim = dims.into_iter().map(Dimension::from).collect();
    let tensor = TensorType { elem_type: 1, shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto::new(name, Some(TypeProto::from(TypeValue::Tensor(tensor))))
}

fn output(name: &str) -> ValueInfoProto {
    ValueInfoProto::new(name, None)
}

/// A model of one node called `the node`.
fn single(op: &str, inputs: &[In], attrs: &[(&str, Attr)]) -> ModelProto {
    let mut graph = GraphProto { output: vec![output("y")], ..Default::default() };
    let mut names = vec![];
    for (i, given) in inputs.iter().enumerate() {
        let name = format!("x{i}");
        let ints = |dims: Vec<i64>, v: &[i64]| TensorProto {
            name: name.clone(),
            data_type: 7,
            dims,
            int64_data: v.to_vec(),
            ..Default::default()
        };
        match given {
            X(dims) => graph.input.push(input(&name, dims.iter().map(|&n| DimensionValue::Value(n)).collect())),
            Open(dims) => {
                let dim =
                    |d: &&str| d.parse().map_or_else(|_| DimensionValue::Param((*d).into()), DimensionValue::Value);
                graph.input.push(input(&name, dims.iter().map(dim).collect()));
            }
            Ints(v) => graph.initializer.push(ints(vec![v.len() as i64], v)),
            Scalar(i) => graph.initializer.push(ints(vec![], &[*i])),
            Float(f) => {
                let float =
                    TensorProto { name: name.clone(), data_type: 1, float_data: vec![*f], ..Default::default() };
                graph.initializer.push(float);
            }
            In::None => {}
        }
        names.push(if matches!(given, In::None) { String::new() } else { name });
    }
    graph.node.push(NodeProto {
        op_type: op.into(),
        name: "the node".into(),
        input: names,
        output: vec!["y".into()],
        attribute: attrs.iter().map(attribute).collect(),
        ..Default::default()
    });
    model(graph)
}

fn model(graph: GraphProto) -> ModelProto {
    let opset = OperatorSetIdProto { domain: String::new(), version: 22 };
    ModelProto { ir_version: Some(10), opset_import: vec![opset], graph: Some(graph), ..Default::default() }
}

fn imported(model: &ModelProto) -> Result<numrsc_ir::Func, String> {
    let model = onnx::load_bytes(model.encode_to_vec().into(), None).map_err(|e| e.to_string())?;
    import::import(&model, &import::Options::default()).map_err(|e| e.to_string())
}

const HUGE: i64 = 1 << 32;

/// An operator, its inputs and its attributes.
type Row = (&'static str, &'static [In], &'static [(&'static str, Attr)]);

/// Operators that take sizes, with sizes whose product is none, and what the message names.
#[rustfmt::skip]
const TOO_LARGE: &[Row] = &[
    ("CenterCropPad", &[X(&[2, 2]), Ints(&[HUGE, HUGE])], &[]),
    ("CenterCropPad", &[X(&[2, 2]), Ints(&[i64::MAX, 1])], &[]),
    ("Expand", &[X(&[1, 1]), Ints(&[HUGE, HUGE])], &[]),
    ("Expand", &[X(&[1]), Ints(&[1 << 46])], &[]),
    ("ConstantOfShape", &[Ints(&[HUGE, HUGE])], &[]),
    ("ConstantOfShape", &[Ints(&[i64::MAX, i64::MAX, i64::MAX])], &[]),
    ("Range", &[Scalar(0), Scalar(i64::MAX), Scalar(1)], &[]),
    ("Range", &[Scalar(i64::MIN), Scalar(i64::MAX), Scalar(1)], &[]),
    ("Tile", &[X(&[2, 2]), Ints(&[HUGE, HUGE])], &[]),
    ("Tile", &[X(&[3]), Ints(&[i64::MAX])], &[]),
    ("Pad", &[X(&[2]), Ints(&[i64::MAX, 0])], &[]),
    ("Pad", &[X(&[2]), Ints(&[i64::MAX, -i64::MAX])], &[]),
    ("Pad", &[X(&[2]), Ints(&[0, HUGE << 16])], &[("mode", S("edge"))]),
    ("OneHot", &[X(&[2]), Scalar(i64::MAX), Ints(&[0, 1])], &[]),
    ("AffineGrid", &[X(&[1, 2, 3]), Ints(&[1, 1, HUGE, HUGE])], &[]),
    ("DFT", &[X(&[1, 4, 1]), Scalar(1 << 46)], &[("axis", I(1))]),
    ("HannWindow", &[Scalar(1 << 46)], &[]),
    ("HammingWindow", &[Scalar(i64::MAX)], &[]),
    ("BlackmanWindow", &[Scalar(i64::MAX)], &[]),
    ("MelWeightMatrix", &[Scalar(HUGE), Scalar(HUGE << 8), Scalar(8000), Float(0.0), Float(4000.0)], &[]),
    ("RandomNormal", &[], &[("shape", Is(&[HUGE, HUGE]))]),
    ("RandomUniform", &[], &[("shape", Is(&[i64::MAX]))]),
    ("Reshape", &[X(&[4]), Ints(&[HUGE, HUGE])], &[]),
    ("Resize", &[X(&[1, 1, 2, 2]), In::None, In::None, Ints(&[1, 1, HUGE, HUGE])], &[]),
    ("AveragePool", &[X(&[1, 1, 4])], &[("kernel_shape", Is(&[2])), ("pads", Is(&[1 << 46, 1 << 46]))]),
    ("MaxPool", &[X(&[1, 1, 4])], &[("kernel_shape", Is(&[i64::MAX])), ("pads", Is(&[i64::MAX, i64::MAX]))]),
    ("Conv", &[X(&[1, 1, 4]), X(&[1, 1, 2])], &[("pads", Is(&[1 << 46, 1 << 46]))]),
    ("Conv", &[X(&[1, 1, 4]), X(&[1, 1, 2])], &[("dilations", Is(&[i64::MAX]))]),
    ("ConvTranspose", &[X(&[1, 1, 4]), X(&[1, 1, 2])], &[("strides", Is(&[i64::MAX]))]),
    ("TopK", &[X(&[4]), Ints(&[i64::MAX])], &[]),
    ("DepthToSpace", &[X(&[1, 4, 2, 2])], &[("blocksize", I(HUGE))]),
    ("DepthToSpace", &[X(&[1, 4, 2, 2])], &[("blocksize", I(i64::MIN))]),
    ("SpaceToDepth", &[X(&[1, 4, 2, 2])], &[("blocksize", I(i64::MAX))]),
    ("Unsqueeze", &[X(&[4]), Ints(&[i64::MIN])], &[]),
    ("Squeeze", &[X(&[4]), Ints(&[i64::MAX])], &[]),
    ("CumSum", &[X(&[4]), Scalar(i64::MIN)], &[]),
    ("Split", &[X(&[4])], &[("num_outputs", I(i64::MAX))]),
    ("Flatten", &[X(&[4])], &[("axis", I(i64::MIN))]),
    ("Col2Im", &[X(&[1, 4, 4]), Ints(&[HUGE, HUGE]), Ints(&[2, 2])], &[]),
    ("Concat", &[X(&[4])], &[("axis", I(i64::MIN))]),
    ("Gather", &[X(&[4]), Ints(&[0])], &[("axis", I(i64::MAX))]),
    ("Transpose", &[X(&[4])], &[("perm", Is(&[i64::MIN]))]),
    ("LpPool", &[X(&[1, 1, 4])], &[("kernel_shape", Is(&[i64::MIN]))]),
];

#[test]
fn sizes_that_no_tensor_has_are_refused_by_name() {
    let mut wrong = vec![];
    for (op, inputs, attrs) in TOO_LARGE {
        match imported(&single(op, inputs, attrs)) {
            Ok(func) => wrong.push(format!("{op} is imported as\n{func}")),
            Err(e) if e.contains(op) && e.contains("the node") && e.chars().any(|c| c.is_ascii_digit()) => {}
            Err(e) => wrong.push(format!("{op}: {e}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn floats(shape: &[usize]) -> Data {
    let count = shape.iter().product();
    Data::Tensor(Tensor::from_f32(shape, &vec![1.0; count]))
}

/// What all executors make of a model.
fn outcomes(func: &numrsc_ir::Func, inputs: &[Data]) -> Vec<Result<Vec<Data>, String>> {
    let timeout = Some(PATIENCE);
    let mut all = vec![ReferenceWithin(PATIENCE).run(func, inputs)];
    all.extend(native::GENERATORS.map(|g| Native { timeout, threads: 1, ..native::executor(g) }.run(func, inputs)));
    all
}

#[test]
fn huge_steps_are_steps_like_others() {
    for step in [i64::MAX, i64::MIN, 1 << 50, -(1 << 50)] {
        let (start, end) = if step > 0 { (1, i64::MAX) } else { (2, i64::MIN) };
        let inputs = |x| [x, Ints(&[0]), Ints(&[0]), Ints(&[0]), Ints(&[0])];
        for (x, shape) in [(X(&[4]), [4]), (Open(&["n"]), [4])] {
            let mut model = single("Slice", &inputs(x), &[]);
            let graph = model.graph.as_mut().expect("a graph");
            for (tensor, value) in graph.initializer.iter_mut().zip([start, end, 0, step]) {
                tensor.int64_data = vec![value];
            }
            let func = imported(&model).expect("a valid model");
            for got in outcomes(&func, &[floats(&shape)]) {
                let got = got.expect("a result");
                assert_eq!(got[0].as_tensor().expect("a tensor").shape(), [1], "{step} {shape:?}");
            }
        }
    }
}

#[test]
fn sizes_of_the_run_that_are_too_large_are_named() {
    // The product of the sizes of two inputs is in no input.
    let mut graph = single("Add", &[Open(&["n", "1", "k"]), Open(&["m", "k"])], &[]).graph.expect("a graph");
    graph.node = vec![named("Tile", &["x0", "repeats"], &["t"], &[]), named("Tile", &["t", "repeats"], &["y"], &[])];
    graph.initializer = vec![TensorProto {
        name: "repeats".into(),
        data_type: 7,
        dims: vec![3],
        int64_data: vec![1 << 12; 3],
        ..Default::default()
    }];
    let func = imported(&model(graph)).expect("a model of open sizes");
    for got in outcomes(&func, &[floats(&[2, 1, 2]), floats(&[2, 2])]) {
        let e = got.expect_err("no memory is that large");
        assert!(e.contains("too large") || e.contains("larger than"), "{e}");
    }
}

fn named(op: &str, inputs: &[&str], outputs: &[&str], attrs: &[(&str, Attr)]) -> NodeProto {
    NodeProto {
        op_type: op.into(),
        name: format!("the {op}"),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: outputs.iter().map(ToString::to_string).collect(),
        attribute: attrs.iter().map(attribute).collect(),
        ..Default::default()
    }
}

/// A loop of `trips` rounds whose body halves its state, and whose condition is what it was.
fn endless(trips: Option<i64>, condition: bool) -> ModelProto {
    let scalar = |name: &str, data_type| {
        let tensor = TensorType { elem_type: data_type, shape: Some(TensorShapeProto { dim: vec![] }) };
        ValueInfoProto::new(name, Some(TypeProto::from(TypeValue::Tensor(tensor))))
    };
    let body = GraphProto {
        name: "body".into(),
        node: vec![
            named("Mul", &["state", "half"], &["next"], &[]),
            named("Less", &["next", "two"], &["small"], &[]),
            named("Identity", &["go"], &["same"], &[]),
        ],
        input: vec![scalar("round", 7), scalar("go", 9), input("state", vec![])],
        output: vec![output(if condition { "small" } else { "same" }), output("next")],
        ..Default::default()
    };
    let float =
        |name: &str, x| TensorProto { name: name.into(), data_type: 1, float_data: vec![x], ..Default::default() };
    let mut node = named("Loop", &[if trips.is_some() { "trips" } else { "" }, "true", "x"], &["y"], &[]);
    node.attribute.push(AttributeProto {
        name: "body".into(),
        r#type: Some(AttributeType::Graph as i32),
        g: Some(Box::new(body)),
        ..Default::default()
    });
    let truth = TensorProto { name: "true".into(), data_type: 9, int32_data: vec![1], ..Default::default() };
    let count =
        TensorProto { name: "trips".into(), data_type: 7, int64_data: vec![trips.unwrap_or(1)], ..Default::default() };
    model(GraphProto {
        node: vec![node],
        initializer: vec![float("half", 0.5), float("two", 2.0), truth, count],
        input: vec![input("x", vec![])],
        output: vec![output("y")],
        ..Default::default()
    })
}

#[test]
fn loops_without_end_are_refused_or_can_be_stopped() {
    for trips in [None, Some(i64::MAX), Some(1 << 41)] {
        let e = imported(&endless(trips, false)).expect_err("it never ends");
        assert!(e.contains("Loop") && e.contains("does not end"), "{e}");
    }
    let func = imported(&endless(Some(i64::MAX), true)).expect("a loop with a condition");
    for got in outcomes(&func, &[floats(&[])]) {
        let e = got.expect_err("it does not end");
        assert!(e.contains("the run was stopped"), "{e}");
    }
    let func = imported(&endless(Some(3), true)).expect("a loop that ends");
    for got in outcomes(&func, &[floats(&[])]) {
        assert_eq!(got.expect("a result")[0].as_tensor().expect("a tensor").to_f64s(), [0.125]);
    }
}
