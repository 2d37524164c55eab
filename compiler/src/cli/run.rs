//! `numrsc run`: run a model or an artifact on inputs from files.
use super::{
    Backend, BuildArgs, Failure, Given, ImportArgs, Outcome, TimeArgs, compile, outputs, table,
    terminal::{self, tell},
    thread_count,
    values::{self, Port},
};
use numrsc::{compile::Generator, native, npy, output::artifact::read_artifact};
use numrsc_ir::{Data, Elems, Tensor, eval_until};
use numrsc_runtime::{Context, Model, artifact::Labels};
use serde_json::json;
use std::{
    collections::BTreeSet,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Run a model or an artifact, and show or save its outputs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An ONNX or NumRs file, or an artifact of `numrsc compile`
    model: PathBuf,
    /// The value of an input: a .npy file, an array of an .npz file as FILE.npz:KEY, a .pb file as in ONNX test data, or `zeros` or `random`
    #[arg(long = "input", value_name = "NAME=FILE", value_parser = values::parse_input)]
    inputs: Vec<(String, PathBuf)>,
    /// Fill the inputs that are not given with random numbers (floats in 0..1, integers 0 or 1) from this seed
    #[arg(long, value_name = "SEED")]
    random: Option<u64>,
    /// Compare the weights of an artifact with their checksum first, which reads all of them
    #[arg(long)]
    verify: bool,
    /// Print the outputs as JSON, with all elements; what is not finite is text
    #[arg(long)]
    json: bool,
    /// Write one .npy file for each output here
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Threads that run the model [default: as many as the process may use]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// What executes a model; an artifact is compiled already [default: llvm; cranelift where there is no numrsc-llvm]
    #[arg(long, value_enum)]
    backend: Option<Backend>,
    #[command(flatten)]
    time: TimeArgs,
    #[command(flatten)]
    import: ImportArgs,
    #[command(flatten)]
    build: BuildArgs,
}

pub(crate) fn run(args: &Args, given: &Given, quiet: bool) -> Result<Outcome, Failure> {
    // Before running, which may take long.
    if let Some(dir) = &args.output_dir {
        std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        outputs::writable(&[("an output", &dir.join("output.npy"))])?;
    }
    let quiet = quiet || args.json;
    let outputs = if read_artifact(&args.model)?.is_some() {
        given.fit_artifact(&args.model)?;
        run_artifact(args, quiet)?
    } else {
        if args.verify {
            let file = args.model.display();
            return Err(Failure::Usage(format!(
                "{file} is a model: only artifacts have a checksum, --verify has no meaning"
            )));
        }
        if args.backend == Some(Backend::Reference) {
            given.fit_reference(&[])?;
        }
        run_model(args, quiet)?
    };
    if let Some(dir) = &args.output_dir {
        save(dir, &args.model, &outputs, quiet)?;
    }
    if args.json {
        let outputs: Vec<_> = outputs.iter().map(Output::json).collect();
        terminal::print_json(&json!({ "outputs": outputs }));
    } else if !quiet {
        let rows: Vec<Vec<String>> = outputs.iter().flat_map(Output::summary).collect();
        table::print(&rows, "");
    }
    Ok(Outcome::Success)
}

struct Output {
    name: String,
    data: Data,
    /// The meaning of the entries along the last axis.
    labels: Option<Vec<serde_json::Value>>,
}

impl Output {
    fn summary(&self) -> Vec<Vec<String>> {
        match (&self.data, &self.labels) {
            (Data::Tensor(t), Some(labels)) => vec![maps(&self.name, t, labels)],
            _ => summary(&self.name, &self.data),
        }
    }

    fn json(&self) -> serde_json::Value {
        let mut shown = json!({ "name": self.name, "value": value(&self.data) });
        if let Some(labels) = &self.labels {
            shown["labels"] = json!(labels);
        }
        shown
    }
}

fn run_artifact(args: &Args, quiet: bool) -> Result<Vec<Output>, Failure> {
    let model = match args.verify {
        true => Model::load_verified(&args.model).map_err(|e| not_loaded(&args.model, &e))?,
        false => load_artifact(&args.model)?,
    };
    args.import.fit(&model.manifest())?;
    let inputs = inputs(args, &values::inputs_of_artifact(&model.manifest())?, quiet)?;
    run_loaded(args, &model, &inputs)
}

fn run_model(args: &Args, quiet: bool) -> Result<Vec<Output>, Failure> {
    let (source, func) = super::load(&args.model, &args.import.options(), quiet)?;
    let inputs = inputs(args, &values::inputs_of_model(&source, &func), quiet)?;
    let Some(generator) = args.backend.map_or(Some(Generator::Auto), Backend::generator) else {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let _deadline = args.time.begin(move || flag.store(true, Ordering::Relaxed));
        let outputs = eval_until(&func, &inputs, &stop).map_err(|e| e.to_string())?;
        let labels = |i: usize| func.result_labels.get(&i).map(shown);
        let named = func.result_names.iter().zip(outputs).enumerate();
        return Ok(named.map(|(i, (name, data))| Output { name: name.clone(), data, labels: labels(i) }).collect());
    };
    let artifact = compile::build(&func, &args.model, &args.build.options(generator, None, quiet), quiet)?;
    let model = native::load_artifact(&artifact)?;
    drop((artifact, func, source));
    run_loaded(args, &model, &inputs)
}

fn run_loaded(args: &Args, model: &Model, inputs: &[Data]) -> Result<Vec<Output>, Failure> {
    let manifest = model.manifest();
    let mut context = Context::with_threads(model, thread_count(args.threads)).map_err(|e| e.to_string())?;
    let canceller = context.canceller();
    let deadline = args.time.begin(move || canceller.cancel());
    let outputs = native::run_in(model, &mut context, inputs).map_err(|e| terminal::line(&e))?;
    drop(deadline);
    let labels = |i: usize| {
        manifest.labels(i).map(|labels| match labels {
            Labels::Integers(numbers) => numbers.map(Into::into).collect(),
            Labels::Texts(texts) => texts.map(Into::into).collect(),
        })
    };
    let named = manifest.outputs().zip(outputs).enumerate();
    Ok(named.map(|(i, (port, data))| Output { name: port.name.to_owned(), data, labels: labels(i) }).collect())
}

/// Loads a file that starts like an artifact.
pub(crate) fn load_artifact(path: &Path) -> Result<Model, Failure> {
    Model::load(path).map_err(|e| not_loaded(path, &e))
}

fn not_loaded(path: &Path, e: &numrsc_runtime::Error) -> Failure {
    Failure::Other(format!("{}: {e}", path.display()))
}

/// All outputs, for programs.
fn value(data: &Data) -> serde_json::Value {
    let float = |x: &f64| if x.is_finite() { json!(x) } else { json!(x.to_string()) };
    let int = |x: &i128| i64::try_from(*x).map_or_else(|_| json!(u64::try_from(*x).ok()), |x| json!(x));
    match data {
        Data::Tensor(t) => {
            let elements: Vec<serde_json::Value> = match t.elems() {
                Elems::Float(v) => v.iter().map(float).collect(),
                Elems::Int(v) => v.iter().map(int).collect(),
                Elems::Str(v) => v.iter().map(|s| json!(s)).collect(),
            };
            json!({ "type": t.dtype().to_string(), "shape": t.shape(), "elements": elements })
        }
        Data::Seq(items) | Data::Tuple(items) => items.iter().map(value).collect(),
    }
}

fn inputs(args: &Args, ports: &[Port], quiet: bool) -> Result<Vec<Data>, Failure> {
    let hint = "give --input NAME=FILE or --random SEED";
    let inputs = values::gather(ports, &args.inputs, &args.import.dims, args.random, hint)?;
    let made = args.random.is_some() || args.inputs.iter().any(|(_, file)| values::Made::of(file).is_some());
    if made && !inputs.sizes.is_empty() && !quiet {
        tell!("note: inputs that are made have {}; --dim NAME=SIZE gives others", inputs.sizes_text());
    }
    Ok(inputs.values)
}

fn shown(labels: &Tensor) -> Vec<serde_json::Value> {
    match labels.strings() {
        Some(texts) => texts.iter().map(|t| json!(t)).collect(),
        None => labels.to_i64s().unwrap_or_default().into_iter().map(Into::into).collect(),
    }
}

/// The first rows of a table, as a list of maps.
fn maps(name: &str, t: &Tensor, labels: &[serde_json::Value]) -> Vec<String> {
    const ROWS: usize = 3;
    let numbers = t.to_f64s();
    let more = |more: bool| if more { ", …" } else { "" };
    let map = |row: &[f64]| {
        let entries: Vec<String> = labels.iter().zip(row).take(6).map(|(l, x)| format!("{l}: {x:.6}")).collect();
        format!("{{{}{}}}", entries.join(", "), more(row.len() > entries.len()))
    };
    let rows: Vec<String> = numbers.chunks(labels.len().max(1)).take(ROWS).map(map).collect();
    let count = numbers.len() / labels.len().max(1);
    vec![name.into(), format!("list of {count} maps"), format!("[{}{}]", rows.join(", "), more(count > ROWS))]
}

fn summary(name: &str, data: &Data) -> Vec<Vec<String>> {
    match data {
        Data::Tensor(t) => {
            let dims: Vec<String> = t.shape().iter().map(ToString::to_string).collect();
            let first: Vec<String> = match first(t, 6) {
                Elems::Float(v) => v.iter().map(|x| format!("{x:.6}")).collect(),
                Elems::Int(v) => v.iter().map(ToString::to_string).collect(),
                Elems::Str(v) => v.iter().map(|s| format!("{s:?}")).collect(),
            };
            let more = if t.len() > first.len() { ", …" } else { "" };
            vec![vec![
                name.into(),
                format!("{}[{}]", t.dtype(), dims.join(", ")),
                format!("{}{more}", first.join(", ")),
            ]]
        }
        Data::Seq(items) | Data::Tuple(items) => {
            let mut rows = vec![vec![name.into(), format!("sequence of {}", items.len())]];
            rows.extend(items.iter().enumerate().flat_map(|(i, d)| summary(&format!("{name}[{i}]"), d)));
            rows
        }
    }
}

/// The first elements of a tensor. Converting all of them would take several times its memory.
fn first(t: &Tensor, most: usize) -> Elems {
    let n = t.len().min(most);
    match t.strings() {
        Some(texts) => Elems::Str(texts[..n].to_vec()),
        None => {
            let bytes = t.bytes().slice(..n * t.dtype().size());
            Tensor::new(t.dtype(), vec![n], bytes).map_or(Elems::Int(vec![]), |part| part.elems())
        }
    }
}

/// One file per tensor.
fn save(dir: &Path, model: &Path, outputs: &[Output], quiet: bool) -> Result<(), Failure> {
    let mut all = vec![];
    outputs.iter().for_each(|o| tensors(o.name.clone(), &o.data, &mut all));
    let names: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
    for ((name, tensor), stem) in all.iter().zip(file_stems(&names)) {
        let file = dir.join(format!("{stem}.npy"));
        outputs::distinct(&[("the model", model)], &[("an output", &file)])?;
        npy::write(&file, tensor)?;
        if stem != *name && !quiet {
            tell!("note: output `{}` is in {}", terminal::line(name), file.display());
        }
    }
    Ok(())
}

/// All tensors of an output, with their names.
fn tensors<'d>(name: String, data: &'d Data, all: &mut Vec<(String, &'d Tensor)>) {
    match data {
        Data::Tensor(t) => all.push((name, t)),
        Data::Seq(items) | Data::Tuple(items) => {
            items.iter().enumerate().for_each(|(i, item)| tensors(format!("{name}.{i}"), item, all));
        }
    }
}

/// File names, all distinct even if case is ignored. Unsuitable characters become `_`; a name that is taken gets a
/// number, and names that need no change go first.
fn file_stems(names: &[String]) -> Vec<String> {
    const LONGEST: usize = 60;
    let safe = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let plain = |name: &String| name.chars().take(LONGEST).map(safe).collect::<String>();
    let mut stems: Vec<String> = names.iter().map(plain).collect();
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|i| stems[*i] != names[*i]);
    let mut taken = BTreeSet::new();
    for i in order {
        let numbered = (2..).map(|n| format!("{}-{n}", stems[i]));
        let free = std::iter::once(stems[i].clone()).chain(numbered).find(|stem| !taken.contains(&stem.to_lowercase()));
        stems[i] = free.unwrap_or_default();
        taken.insert(stems[i].to_lowercase());
    }
    stems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_output_has_a_file_of_its_own() {
        let stems = |names: &[&str]| file_stems(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(stems(&["a/b", "a_b", "A_B", "y"]), ["a_b-3", "a_b", "A_B-2", "y"]);
        assert_eq!(stems(&["a_b-2", "a/b", "a:b", "a_b"]), ["a_b-2", "a_b-3", "a_b-4", "a_b"]);
        assert_eq!(stems(&["../../x", "größe"]), [".._.._x", "größe"]);
        let long = ["x".repeat(300), "x".repeat(400)];
        let stems = file_stems(&long);
        assert!(stems[0] != stems[1] && stems.iter().all(|stem| stem.len() < 255), "{stems:?}");
    }
}
