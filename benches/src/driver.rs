//! What benchmarks that start other processes share: paths, compiling in a separate process, and timing a child.
use crate::{flops, raw};
use numrsc::{
    Program,
    compile::{Codegen, Options, compile},
    conformance::{self, Settings},
    npy,
    onnx::{self, import},
    output::artifact::Artifact,
};
use numrsc_ir::{DType, Data, Func, Tensor};
use serde_json::{Value, json};
use std::{
    env, fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

pub type Result<T> = std::result::Result<T, String>;

/// Files that [`prepare`] writes.
const ARTIFACT: &str = "model.nrsc";
const REPORT: &str = "report.json";
const PROGRAM: &str = "program";

/// A folder in cargo's target directory; created if missing.
pub fn work_folder(name: &str) -> Result<PathBuf> {
    let this = env::current_exe().map_err(|e| e.to_string())?;
    let target = this.parent().and_then(Path::parent).ok_or("this program lies in no target directory")?;
    let folder = target.join("benches").join(name);
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(folder)
}

/// Builds programs of this package that run as children: `cargo run` builds only the one it runs.
pub fn build_programs(names: &[&str]) -> Result<Vec<PathBuf>> {
    let this = env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    command.args(["build", "--quiet", "-p", "numrsc-benches"]).current_dir(numrsc_tests::corpus::root());
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    names.iter().for_each(|name| {
        command.args(["--bin", name]);
    });
    let status = command.status().map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err("the programs that run the models cannot be built".into());
    }
    Ok(names.iter().map(|name| this.with_file_name(name)).collect())
}

/// The folders of the corpus, smallest model first. Fetched if need be.
pub fn corpus_models() -> Result<Vec<PathBuf>> {
    let folder = numrsc_tests::corpus::fetch("models").join("models");
    let mut models: Vec<PathBuf> = fs::read_dir(&folder)
        .map_err(|e| format!("{}: {e}", folder.display()))?
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.join("model.onnx").exists())
        .collect();
    models.sort_by_key(|p| (file_size(&p.join("model.onnx")), p.clone()));
    Ok(models)
}

/// The shared library in the wheel of the corpus.
pub fn ort_library() -> Result<PathBuf> {
    let corpus = numrsc_tests::corpus::folder();
    in_package(&corpus.join("venv"), "onnxruntime/capi", "libonnxruntime.so")
        .ok_or_else(|| format!("{}: there is no ONNX Runtime; name one with --library", corpus.display()))
}

/// The file in a folder of a Python package whose name starts like this.
pub fn in_package(venv: &Path, folder: &str, start: &str) -> Option<PathBuf> {
    let inside = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().filter_map(|e| e.ok().map(|e| e.path()));
    inside(venv.join("lib"))
        .flat_map(|python| inside(python.join("site-packages").join(folder)))
        .find(|path| name_of(path).starts_with(start))
}

pub fn file_size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |m| m.len())
}

/// Reads a file, so that it is in memory.
pub fn read_all(path: &Path) -> Result<()> {
    let read = || -> std::io::Result<()> {
        let (mut file, mut buffer) = (fs::File::open(path)?, vec![0; 1 << 20]);
        while file.read(&mut buffer)? > 0 {}
        Ok(())
    };
    read().map_err(|e| format!("{}: {e}", path.display()))
}

pub fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What a child printed, and when.
#[derive(Debug)]
pub struct Outcome {
    /// From before the process was created to its first line.
    pub first_line: Duration,
    /// The last line.
    pub report: Value,
}

/// Runs a program that needs no LLVM and whose last line is JSON. It is killed at the time limit.
pub fn run_child(command: &mut Command, limit: Duration) -> Result<Outcome> {
    // Cargo sets this for the compiler; the loader of a child would search every library there.
    run_compiler(command.env_remove("LD_LIBRARY_PATH"), limit)
}

/// As [`run_child`], for programs that compile.
pub fn run_compiler(command: &mut Command, limit: Duration) -> Result<Outcome> {
    let lines = run_silent(command, limit)?;
    let (first_line, _) = lines.first().ok_or("no report")?;
    let report = lines.last().map_or("", |(_, line)| line);
    let report = serde_json::from_str(report).map_err(|e| format!("no report: {e}"))?;
    Ok(Outcome { first_line: *first_line, report })
}

/// From before the process was created to its end.
pub fn time_child(program: &Path, arguments: &[String], limit: Duration) -> Result<Duration> {
    let start = Instant::now();
    run_silent(Command::new(program).args(arguments).env_remove("LD_LIBRARY_PATH"), limit)?;
    Ok(start.elapsed())
}

/// Runs a program and returns its lines with their times; stderr is passed on. It is killed at the time limit.
pub fn run_silent(command: &mut Command, limit: Duration) -> Result<Vec<(Duration, String)>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let mut child = command.spawn().map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    let (sender, receiver) = mpsc::channel();
    let out = child.stdout.take().ok_or("no output")?;
    let reader = thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(std::result::Result::ok) {
            let _ = sender.send((start.elapsed(), line));
        }
    });
    let mut errors = child.stderr.take().ok_or("no errors")?;
    let errors = thread::spawn(move || {
        let mut text = vec![];
        let _ = errors.read_to_end(&mut text);
        String::from_utf8_lossy(&text).trim().to_owned()
    });
    let mut lines = vec![];
    let stopped = loop {
        match receiver.recv_timeout(limit.saturating_sub(start.elapsed())) {
            Ok(line) => lines.push(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => break false,
            Err(mpsc::RecvTimeoutError::Timeout) => break true,
        }
    };
    if stopped {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    let _ = reader.join();
    let errors = errors.join().unwrap_or_default();
    match status.success() {
        _ if stopped => Err(format!("took longer than {} s", limit.as_secs())),
        false if errors.is_empty() => Err(status.to_string()),
        false => Err(errors),
        true => Ok(lines),
    }
}

/// Runs work that may recurse deeply, as nested graphs do.
pub fn with_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| {
        let handle = thread::Builder::new().stack_size(256 << 20).spawn_scoped(scope, work);
        handle.map_err(|e| e.to_string())?.join().map_err(|_| "panicked".into())
    })
}

/// Loads, imports, compiles and writes a model, and times each phase.
pub fn compile_file(model: &Path, import: &import::Options, options: &Options, to: &Path) -> Result<Value> {
    compiled_file(model, import, options, to).map(|(_, report)| report)
}

fn compiled_file(model: &Path, import: &import::Options, options: &Options, to: &Path) -> Result<(Artifact, Value)> {
    let mut phases: Vec<(&str, Duration)> = vec![];
    let start = Instant::now();
    let loaded = onnx::load(model).map_err(|e| e.to_string())?;
    phases.push(("load", start.elapsed()));
    let start = Instant::now();
    let func = import::import(&loaded, import).map_err(|e| e.to_string())?;
    phases.push(("import", start.elapsed()));
    let artifact = compile(&func, "bench", options, None).map_err(|e| e.to_string())?;
    phases.extend(&artifact.phases);
    let start = Instant::now();
    artifact.write(to).map_err(|e| e.to_string())?;
    phases.push(("write", start.elapsed()));
    let phases: serde_json::Map<String, Value> =
        phases.into_iter().map(|(name, time)| (name.into(), json!(time.as_secs_f64() * 1e3))).collect();
    let stats = &artifact.compiled.stats;
    let report = json!({
        "phases_ms": phases,
        "onnx_nodes": loaded.graph().node.len(),
        "nodes": func.nodes().len(),
        "kernels": stats.len(),
        "distinct_kernels": stats.iter().filter(|s| s.same_as.is_none()).count(),
        "code_bytes": artifact.compiled.image.bytes.len(),
        "artifact_bytes": file_size(to),
        "peak_kb": crate::status_kb("VmHWM"),
    });
    Ok((artifact, report))
}

/// Compiles a folder of the corpus and converts its inputs and expected outputs to plain files: `model.nrsc`,
/// `input_I.raw`, `expected_I.raw`, the model as a program with its inputs, and a report.
pub fn prepare(folder: &Path, to: &Path, options: &Options) -> Result<Value> {
    let settings = Settings::of(folder)?;
    let file = folder.join("model.onnx");
    let model = onnx::load(&file).map_err(|e| e.to_string())?;
    let graph = model.graph();
    let stored = |name: &str| graph.initializer.iter().any(|t| t.name == name);
    let fed: Vec<_> = graph.input.iter().filter(|i| !stored(&i.name)).collect();
    let set = folder.join("test_data_set_0");
    let mut inputs = vec![];
    for (values, from, kind) in [(fed, "input", "input"), (graph.output.iter().collect(), "output", "expected")] {
        for (i, value) in values.into_iter().enumerate() {
            let ty = value.r#type.clone().unwrap_or_default();
            let Data::Tensor(tensor) = conformance::load_data(&set.join(format!("{from}_{i}.pb")), &ty)? else {
                return Err(format!("{from} {i} is no tensor"));
            };
            if tensor.dtype() == DType::Str {
                return Err(format!("{from} {i} is text"));
            }
            let path = to.join(format!("{kind}_{i}.raw"));
            raw::write(&path, tensor.dtype().onnx(), tensor.shape(), tensor.bytes())?;
            if kind == "input" {
                inputs.push(tensor);
            }
        }
    }
    let func = import::import(&model, &settings.import()).map_err(|e| e.to_string())?;
    drop(model);
    let (artifact, mut report) = compiled_file(&file, &settings.import(), options, &to.join(ARTIFACT))?;
    let shapes: Vec<Vec<usize>> = inputs.iter().map(|tensor| tensor.shape().to_vec()).collect();
    report["gflop"] = json!(flops::gflop(&func, &shapes));
    report["program"] = json!(write_program(&func, &inputs, &artifact, options, to)?);
    fs::write(to.join(REPORT), report.to_string()).map_err(|e| e.to_string())?;
    Ok(report)
}

/// Writes the model as an executable, and returns the arguments to run it once.
fn write_program(
    func: &Func,
    inputs: &[Tensor],
    artifact: &Artifact,
    options: &Options,
    to: &Path,
) -> Result<Vec<String>> {
    let codegen = Codegen::new(options).map_err(|e| e.to_string())?;
    let program = Program::build(codegen.backend.target(), Some(&work_folder("cache")?)).map_err(|e| e.to_string())?;
    program.write(artifact, &to.join(PROGRAM)).map_err(|e| e.to_string())?;
    let mut arguments = vec![];
    for (i, (name, tensor)) in func.param_names.iter().zip(inputs).enumerate() {
        let path = to.join(format!("input_{i}.npy"));
        npy::write(&path, tensor)?;
        arguments.extend(["--input".into(), format!("{name}={}", path.display())]);
    }
    for (i, name) in func.result_names.iter().enumerate() {
        let path = to.join(format!("output_{i}.npy"));
        arguments.extend(["--output".into(), format!("{name}={}", path.display())]);
    }
    Ok(arguments)
}

/// The hidden option `--prepare FOLDER TO` of benchmarks that use [`prepared`].
pub fn prepare_child(paths: &[PathBuf]) -> Result<()> {
    let report = with_large_stack(|| prepare(&paths[0], &paths[1], &Options::default())).flatten()?;
    println!("{report}");
    Ok(())
}

/// A folder of the corpus that was prepared.
#[derive(Debug)]
pub struct Prepared {
    pub folder: PathBuf,
    pub artifact: PathBuf,
    pub inputs: Vec<PathBuf>,
    /// The report of [`prepare`].
    pub report: Value,
}

/// Calls [`prepare`] for a folder of the corpus in a separate process, unless that is done.
pub fn prepared(model: &Path, limit: Duration) -> Result<Prepared> {
    let folder = work_folder(&format!("models/{}", name_of(model)))?;
    let (artifact, report) = (folder.join(ARTIFACT), folder.join(REPORT));
    let this = env::current_exe().map_err(|e| e.to_string())?;
    if !is_newer(&report, &[&this, &model.join("model.onnx")]) {
        let mut prepare = Command::new(&this);
        prepare.arg("--prepare").args([model, &folder]);
        run_compiler(&mut prepare, limit).map_err(|e| format!("does not compile yet: {e}"))?;
    }
    let report = fs::read_to_string(&report).map_err(|e| e.to_string())?;
    let report = serde_json::from_str(&report).map_err(|e| e.to_string())?;
    Ok(Prepared { artifact, inputs: numbered(&folder, "input"), report, folder })
}

impl Prepared {
    /// The program that [`prepare`] made of the model, and its arguments.
    pub fn program(&self) -> (PathBuf, Vec<String>) {
        let arguments = self.report["program"].as_array().into_iter().flatten();
        (self.folder.join(PROGRAM), arguments.filter_map(|a| a.as_str().map(str::to_owned)).collect())
    }
}

/// The total time of all phases of a [`compile_file`].
pub fn total_ms(report: &Value) -> f64 {
    report["phases_ms"].as_object().into_iter().flatten().filter_map(|(_, time)| time.as_f64()).sum()
}

/// Was a file written after these?
pub fn is_newer(file: &Path, than: &[&Path]) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).ok();
    time(file).is_some_and(|t| than.iter().all(|path| time(path).is_some_and(|other| other < t)))
}

/// The files `kind_0.raw`, `kind_1.raw` … of a folder.
pub fn numbered(folder: &Path, kind: &str) -> Vec<PathBuf> {
    (0..).map(|i| folder.join(format!("{kind}_{i}.raw"))).take_while(|p| p.exists()).collect()
}

/// Are the outputs in `got` those in `want`, within the tolerance of the model? Peers may have integers of another width (`any_integers`).
pub fn compare(got: &[PathBuf], want: &[PathBuf], settings: &Settings, any_integers: bool) -> Result<()> {
    if got.len() != want.len() {
        return Err(format!("{} outputs, expected {}", got.len(), want.len()));
    }
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let settings = Settings { atol: settings.atols.get(i).copied().unwrap_or(settings.atol), ..settings.clone() };
        let (mut got, want) = (tensor(got)?, tensor(want)?);
        if any_integers && !got.dtype().is_float() && !want.dtype().is_float() {
            got = Tensor::from_elems(want.dtype(), got.shape().to_vec(), &got.elems());
        }
        conformance::compare(&Data::Tensor(got), &Data::Tensor(want), &settings, false)
            .map_err(|e| format!("output {i}: {e}"))?;
    }
    Ok(())
}

fn tensor(path: &Path) -> Result<Tensor> {
    let raw = raw::RawTensor::read(path)?;
    let dtype = DType::from_onnx(raw.onnx_type).ok_or("an unknown element type")?;
    Tensor::new(dtype, raw.shape.clone(), raw.bytes().to_vec().into())
}
