//! `numrsc run`: run a model or an artifact on inputs from files.
use super::{
    Backend, BuildArgs, Failure, ImportArgs, Outcome, compile, table, thread_count,
    values::{self, Fill, Port},
};
use numrsc::{
    compile::read_artifact,
    conformance::{Executor, Reference},
    native, npy,
};
use numrsc_ir::{Data, Elems};
use numrsc_runtime::Model;
use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

/// Run a model or an artifact, and show or save its outputs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An ONNX or NumRs file, or an artifact of `numrsc compile`
    model: PathBuf,
    /// The value of an input: a .npy file, or a .pb file as in ONNX test data
    #[arg(long = "input", value_name = "NAME=FILE", value_parser = values::parse_input)]
    inputs: Vec<(String, PathBuf)>,
    /// Fill the inputs that are not given with random numbers (floats in 0..1, integers 0 or 1) from this seed
    #[arg(long, value_name = "SEED")]
    random: Option<u64>,
    /// Write one .npy file for each output here
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Threads that run the model [default: as many as the process may use]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// What executes a model; an artifact is compiled already [default: llvm]
    #[arg(long, value_enum)]
    backend: Option<Backend>,
    #[command(flatten)]
    import: ImportArgs,
    #[command(flatten)]
    build: BuildArgs,
}

pub(crate) fn run(args: &Args, quiet: bool) -> Result<Outcome, Failure> {
    let outputs = if read_artifact(&args.model)?.is_some() { run_artifact(args)? } else { run_model(args, quiet)? };
    if let Some(dir) = &args.output_dir {
        std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    let mut rows = Vec::new();
    for (name, data) in &outputs {
        rows.extend(summary(name, data));
        if let Some(dir) = &args.output_dir {
            save(dir, name, data)?;
        }
    }
    if !quiet {
        table::print(&rows, "");
    }
    Ok(Outcome::Success)
}

fn run_artifact(args: &Args) -> Result<Vec<(String, Data)>, Failure> {
    if args.backend.is_some() {
        let file = args.model.display();
        return Err(Failure::Usage(format!("{file} is an artifact: it is compiled already, --backend has no meaning")));
    }
    let model = load_artifact(&args.model)?;
    args.import.fit(&model.manifest())?;
    let inputs = inputs(args, &values::inputs_of_artifact(&model.manifest())?)?;
    run_loaded(args, &model, &inputs)
}

fn run_model(args: &Args, quiet: bool) -> Result<Vec<(String, Data)>, Failure> {
    let (source, func) = super::load(&args.model, &args.import.options(), quiet)?;
    let inputs = inputs(args, &values::inputs_of_model(&source, &func))?;
    let Some(generator) = args.backend.unwrap_or(Backend::Llvm).generator() else {
        let outputs = Reference.run(&func, &inputs)?;
        return Ok(func.result_names.into_iter().zip(outputs).collect());
    };
    let artifact = compile::build(&func, &args.model, &args.build.options(generator, None, quiet), quiet)?;
    let file = tempfile::NamedTempFile::new().map_err(|e| format!("temporary files: {e}"))?;
    artifact.write(file.path())?;
    drop((artifact, func, source));
    let model = load_artifact(file.path())?;
    run_loaded(args, &model, &inputs)
}

fn run_loaded(args: &Args, model: &Model, inputs: &[Data]) -> Result<Vec<(String, Data)>, Failure> {
    let outputs = native::run(model, inputs, thread_count(args.threads))?;
    Ok(model.manifest().outputs().map(|port| port.name.to_owned()).zip(outputs).collect())
}

/// Load what is known to begin like an artifact.
pub(crate) fn load_artifact(path: &Path) -> Result<Model, Failure> {
    Model::load(path).map_err(|e| Failure::Other(format!("{}: {e}", path.display())))
}

fn inputs(args: &Args, ports: &[Port]) -> Result<Vec<Data>, Failure> {
    let size = |name: &str| args.import.dims.iter().find(|(dim, _)| dim == name).map(|(_, size)| *size);
    let fill = args.random.map(|seed| Fill { seed, size: &size });
    values::gather(ports, &args.inputs, fill, "give --input NAME=FILE or --random SEED")
}

fn summary(name: &str, data: &Data) -> Vec<Vec<String>> {
    match data {
        Data::Tensor(t) => {
            let dims: Vec<String> = t.shape().iter().map(ToString::to_string).collect();
            let first: Vec<String> = match t.elems() {
                Elems::Float(v) => v.iter().take(6).map(|x| format!("{x:.6}")).collect(),
                Elems::Int(v) => v.iter().take(6).map(ToString::to_string).collect(),
                Elems::Str(v) => v.iter().take(6).map(|s| format!("{s:?}")).collect(),
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

/// One file per tensor; characters that file names cannot hold become `_`.
fn save(dir: &Path, name: &str, data: &Data) -> Result<(), Failure> {
    let safe: String = name.chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect();
    match data {
        Data::Tensor(t) => Ok(npy::write(&dir.join(format!("{safe}.npy")), t)?),
        Data::Seq(items) | Data::Tuple(items) => {
            items.iter().enumerate().try_for_each(|(i, d)| save(dir, &format!("{name}.{i}"), d))
        }
    }
}
