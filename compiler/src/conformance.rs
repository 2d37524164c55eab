//! Running standard ONNX test folders: `model.onnx` and `test_data_set_*/{input,output}_*.pb`.
mod open;

use crate::{
    Error,
    deadline::Deadline,
    onnx::{
        self, Model, Value, import,
        proto::{TypeProto, ValueInfoProto},
    },
    sizes,
};
use numrsc_ir::{DType, Elems, Func, Tensor, eval::Data};
use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

pub use open::{OpenSizes, expect_refusal, named_size};

/// What `data.json` in a test folder says: how far results may be from the expected ones
/// (`|a - b| <= atol + rtol * |b|`), and how the model has to be imported.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    pub rtol: f64,
    pub atol: f64,
    /// Absolute tolerances by output, where one for all is too coarse.
    pub atols: Vec<f64>,
    pub dims: BTreeMap<String, i64>,
    pub distinct_dims: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { rtol: 1e-3, atol: 1e-7, atols: vec![], dims: BTreeMap::new(), distinct_dims: false }
    }
}

impl Settings {
    /// Those of a test folder; the defaults if it does not say.
    pub fn of(dir: &Path) -> Result<Settings, String> {
        match std::fs::read_to_string(dir.join("data.json")) {
            Ok(text) => serde_json::from_str(&text).map_err(|e| format!("data.json: {e}")),
            Err(_) => Ok(Settings::default()),
        }
    }

    pub fn import(&self) -> import::Options {
        import::Options { dims: self.dims.clone(), distinct_dims: self.distinct_dims, ..Default::default() }
    }
}

/// What runs a model on its inputs.
pub trait Executor {
    fn run(&self, func: &Func, inputs: &[Data]) -> Result<Vec<Data>, String>;
}

/// The reference evaluator.
#[derive(Debug)]
pub struct Reference;

impl Executor for Reference {
    fn run(&self, func: &Func, inputs: &[Data]) -> Result<Vec<Data>, String> {
        numrsc_ir::eval::eval(func, inputs).map_err(|e| e.to_string())
    }
}

/// The reference evaluator, stopped where it takes longer than this.
#[derive(Debug)]
pub struct ReferenceWithin(pub Duration);

impl Executor for ReferenceWithin {
    fn run(&self, func: &Func, inputs: &[Data]) -> Result<Vec<Data>, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let _deadline = Deadline::after(self.0, move || flag.store(true, Ordering::Relaxed));
        numrsc_ir::eval::eval_until(func, inputs, &stop).map_err(|e| e.to_string())
    }
}

/// What to do with a test folder.
#[derive(Clone, Copy, Debug, Default)]
pub struct FolderOptions {
    /// Forget the declared shapes of graph outputs before importing.
    pub ignore_declared_shapes: bool,
    /// Make the sizes of inputs symbols.
    pub open_sizes: Option<OpenSizes>,
}

/// Run all data sets of a test folder. The error says what went wrong first.
pub fn run_folder(dir: &Path, executor: &dyn Executor, options: FolderOptions) -> Result<(), String> {
    run_folder_and(dir, None, executor, options)
}

/// As [`run_folder`], and then the data sets that another folder has for the same model.
pub fn run_folder_and(
    dir: &Path,
    more: Option<&Path>,
    executor: &dyn Executor,
    options: FolderOptions,
) -> Result<(), String> {
    let (model, settings) = load(dir, options)?;
    let func = import::import(&model, &settings.import()).map_err(|e| short(&e))?;
    let mut sets = data_sets(dir)?;
    if let Some(more) = more {
        sets.extend(data_sets(more)?);
    }
    for set in sets {
        run_set(&set, &model, &func, executor, &settings)
            .map_err(|e| format!("{}: {e}", set.file_name().unwrap_or_default().to_string_lossy()))?;
    }
    Ok(())
}

/// The model of a test folder as the options want it, and what the folder says about it.
fn load(dir: &Path, options: FolderOptions) -> Result<(Model, Settings), String> {
    let mut model = onnx::load(&dir.join("model.onnx")).map_err(|e| short(&e))?;
    let mut settings = Settings::of(dir)?;
    if options.ignore_declared_shapes {
        forget_output_shapes(&mut model);
    }
    if let Some(how) = options.open_sizes {
        settings = open::open(&mut model, settings, how);
    }
    Ok((model, settings))
}

fn run_set(set: &Path, model: &Model, func: &Func, executor: &dyn Executor, settings: &Settings) -> Result<(), String> {
    let graph = model.graph();
    let inputs = load_inputs(set, model)?;
    let given = |name: &str| match inputs.get(fed(model).position(|i| i.name == name)?)? {
        Data::Tensor(t) => t.to_f64s().first().copied(),
        _ => None,
    };
    let random = is_random(model, &given);
    let got = executor.run(func, &inputs).map_err(|e| {
        let types = func.params().into_iter().map(|p| func.ty(p));
        let all = func.param_names.iter().zip(types).zip(&inputs).map(|((name, ty), data)| (&name[..], ty, data));
        sizes::disagreement(all).unwrap_or(e)
    })?;
    if got.len() != graph.output.len() {
        return Err(format!("{} outputs, expected {}", got.len(), graph.output.len()));
    }
    for (i, (output, got)) in graph.output.iter().zip(&got).enumerate() {
        let ty = output.r#type.clone().unwrap_or_default();
        let file = set.join(format!("output_{i}.pb"));
        let want = match func.result_labels.get(&i) {
            Some(labels) => onnx::load_value(&file, &ty).map_err(|e| e.to_string())?.rows(labels)?.into(),
            None => load_data(&file, &ty)?,
        };
        let settings = Settings { atol: settings.atols.get(i).copied().unwrap_or(settings.atol), ..settings.clone() };
        compare(got, &want, &settings, random).map_err(|e| format!("output {i} `{}`: {e}", output.name))?;
    }
    Ok(())
}

/// The inputs of a model that are not stored in it.
fn fed(model: &Model) -> impl Iterator<Item = &ValueInfoProto> {
    let graph = model.graph();
    let stored: HashSet<&str> = graph.initializer.iter().map(|t| t.name.as_str()).collect();
    graph.input.iter().filter(move |i| !stored.contains(i.name.as_str()))
}

/// The inputs that a data set has for a model.
pub fn load_inputs(set: &Path, model: &Model) -> Result<Vec<Data>, String> {
    let load = |(i, input): (usize, &ValueInfoProto)| {
        load_data(&set.join(format!("input_{i}.pb")), &input.r#type.clone().unwrap_or_default())
    };
    fed(model).enumerate().map(load).collect()
}

/// A value of a test file as the evaluator takes it. An optional is a sequence of at most one.
pub fn load_data(path: &Path, ty: &TypeProto) -> Result<Data, String> {
    onnx::load_value(path, ty).map_err(|e| e.to_string()).and_then(data)
}

fn data(v: Value) -> Result<Data, String> {
    Ok(match v {
        Value::Tensor(t) => Data::Tensor(t),
        Value::Sequence(v) => Data::Seq(v.into_iter().map(data).collect::<Result<_, _>>()?),
        Value::Optional(v) => Data::Seq(v.into_iter().map(|v| data(*v)).collect::<Result<_, _>>()?),
        Value::Map { .. } => return Err("maps are not supported".into()),
    })
}

/// Is `got` what was expected: same kind, element type, shape, and elements within tolerance (NaN equals NaN)?
/// The elements of random results are not compared.
pub fn compare(got: &Data, want: &Data, settings: &Settings, random: bool) -> Result<(), String> {
    match (got, want) {
        (Data::Tensor(a), Data::Tensor(b)) => compare_tensors(a, b, settings, random),
        (Data::Seq(a), Data::Seq(b)) if a.len() == b.len() => {
            a.iter().zip(b).try_for_each(|(a, b)| compare(a, b, settings, random))
        }
        (Data::Seq(a), Data::Seq(b)) => Err(format!("{} elements, expected {}", a.len(), b.len())),
        _ => Err("another kind of value".into()),
    }
}

fn compare_tensors(a: &Tensor, b: &Tensor, t: &Settings, random: bool) -> Result<(), String> {
    if (a.dtype(), a.shape()) != (b.dtype(), b.shape()) {
        return Err(format!("{}{:?}, expected {}{:?}", a.dtype(), a.shape(), b.dtype(), b.shape()));
    }
    if random {
        return Ok(());
    }
    let wrong = match (a.elems(), b.elems()) {
        (Elems::Float(x), Elems::Float(y)) => {
            // ONNX's own test runner grants bf16 two units in the last place: NumPy rounds after every addition.
            let rtol = if a.dtype() == DType::BF16 { t.rtol.max(2f64.powi(-6)) } else { t.rtol };
            let close =
                |x: f64, y: f64| x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= t.atol + rtol * y.abs();
            summary(x.iter().zip(&y).map(|(&x, &y)| (close(x, y), x, y)))
        }
        (Elems::Int(x), Elems::Int(y)) => {
            // Integers follow the same rule: quantised results may differ by a step where the tolerance says so.
            let close = |x: i128, y: i128| {
                x == y || (a.dtype() != DType::Bool && (x - y).abs() as f64 <= t.atol + t.rtol * y.abs() as f64)
            };
            summary(x.iter().zip(&y).map(|(&x, &y)| (close(x, y), x, y)))
        }
        (x, y) => summary(std::iter::once((x == y, "strings", "others"))),
    };
    wrong.map_or(Ok(()), Err)
}

fn summary<T: std::fmt::Debug>(pairs: impl Iterator<Item = (bool, T, T)>) -> Option<String> {
    let (mut all, mut bad, mut first) = (0, 0, None);
    for (i, (ok, x, y)) in pairs.enumerate() {
        all += 1;
        if !ok {
            bad += 1;
            first.get_or_insert((i, x, y));
        }
    }
    first.map(|(i, x, y)| format!("{bad} of {all} elements differ, first at {i}: {x:?}, expected {y:?}"))
}

/// All test folders in or below a folder, sorted.
pub fn find_folders(dir: &Path, out: &mut Vec<PathBuf>) {
    if dir.join("model.onnx").exists() {
        out.push(dir.to_path_buf());
        return;
    }
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    let mut inside: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).filter(|p| p.is_dir()).collect();
    inside.sort();
    inside.iter().for_each(|p| find_folders(p, out));
}

/// Test names with the reason why they fail: `name  reason`, one per line; `#` starts a comment.
pub fn parse_expected_failures(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut list = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let (name, reason) = line.split_once(char::is_whitespace).ok_or_else(|| format!("`{line}` has no reason"))?;
        if list.insert(name.to_string(), reason.trim().to_string()).is_some() {
            return Err(format!("`{name}` is listed twice"));
        }
    }
    Ok(list)
}

fn forget_output_shapes(model: &mut Model) {
    use onnx::proto::TypeValue;
    for output in &mut model.graph_mut().output {
        if let Some(TypeValue::Tensor(t)) = output.r#type.as_mut().and_then(|t| t.value.as_mut()) {
            t.shape = None;
        }
    }
}

/// Does the model draw random numbers, so that only shape and type of its results are determined? `given` is the first
/// number of an input.
fn is_random(model: &Model, given: &dyn Fn(&str) -> Option<f64>) -> bool {
    const RANDOM: [&str; 6] =
        ["RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"];
    // Dropout draws in training mode only, which tests give as an input, and only if there is something to drop.
    let drops = |inputs: &[String]| match inputs {
        [_, ratio, training] => given(training) == Some(1.0) && given(ratio) != Some(0.0),
        _ => false,
    };
    let nodes = model.graph().node.iter().chain(model.proto().functions.iter().flat_map(|f| &f.node));
    nodes.into_iter().any(|n| RANDOM.contains(&n.op_type.as_str()) || (n.op_type == "Dropout" && drops(&n.input)))
}

fn data_sets(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let mut sets: Vec<PathBuf> = std::fs::read_dir(dir)
        .map_err(|e| format!("{}: {e}", dir.display()))?
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("test_data_set_")))
        .collect();
    sets.sort();
    Ok(sets)
}

/// An error without the path of the file, which the caller prints anyway.
fn short(e: &Error) -> String {
    match e {
        Error::Model { problems, .. } => {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            lines.join("; ")
        }
        other => other.to_string(),
    }
}

/// The name of a test: its folder's.
pub fn name(folder: &Path) -> &str {
    folder.file_name().and_then(|n| n.to_str()).unwrap_or("")
}

/// How many tests went as they should.
#[derive(Debug, Default)]
pub struct Score {
    pub passed: usize,
    /// Tests that fail as expected.
    pub skipped: usize,
    /// A line for each test that should have passed, or should have failed.
    pub failures: Vec<String>,
}

/// Compare results with what is expected. A test that passes against expectation is a failure, so lists only shrink.
pub fn score(folders: &[PathBuf], results: Vec<Result<(), String>>, expected: &BTreeMap<String, String>) -> Score {
    let mut score = Score::default();
    for (folder, result) in folders.iter().zip(results) {
        let name = name(folder);
        match (result, expected.get(name)) {
            (Ok(()), None) => score.passed += 1,
            (Err(e), Some(_)) if e != PANICKED => score.skipped += 1,
            (Ok(()), Some(reason)) => {
                score
                    .failures
                    .push(format!("{name}: passes, but is listed as failing ({reason}): take it off the list"));
            }
            (Err(e), _) => score.failures.push(format!("{name}: {e}")),
        }
    }
    score
}

const PANICKED: &str = "panicked";

/// Run tests on several threads; results in the order of the folders.
pub fn run_all(
    folders: &[PathBuf],
    jobs: Option<usize>,
    test: impl Fn(&Path) -> Result<(), String> + Sync,
) -> Vec<Result<(), String>> {
    let jobs = jobs.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1).max(1);
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Result<(), String>>> =
        folders.iter().map(|_| Mutex::new(Err("did not run".into()))).collect();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            // Nested graphs recurse, and debug builds have large frames.
            let work = || {
                while let Some((i, folder)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, folders.get(i)?)))
                {
                    // A panic is a bug of ours: it fails its test and no other.
                    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(folder)));
                    let result = result.unwrap_or_else(|_| Err(PANICKED.into()));
                    *results[i].lock().expect("no thread panics while holding it") = result;
                }
            };
            std::thread::Builder::new().stack_size(64 << 20).spawn_scoped(scope, work).expect("threads can be started");
        }
    });
    results.into_iter().map(|r| r.into_inner().expect("no thread panics while holding it")).collect()
}
