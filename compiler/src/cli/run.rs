//! `numrsc run`: run a model on inputs from files.
use super::{Backend, Failure, ImportArgs, Outcome, table};
use numrsc::{conformance, npy, onnx};
use numrsc_ir::{DType, Data, Elems, Func, Tensor, Type};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Run a model and show or save its outputs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An ONNX or NumRs file
    model: PathBuf,
    /// The value of an input: a .npy file, or a .pb file as in ONNX test data
    #[arg(long = "input", value_name = "NAME=FILE", value_parser = parse_input)]
    inputs: Vec<(String, PathBuf)>,
    /// Fill the inputs that are not given with random numbers (in 0..1; small integers) from this seed
    #[arg(long, value_name = "SEED")]
    random: Option<u64>,
    /// Write one .npy file for each output here
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
    #[command(flatten)]
    import: ImportArgs,
}

fn parse_input(text: &str) -> Result<(String, PathBuf), String> {
    // Names may hold `=`, paths rarely do.
    let (name, file) = text.rsplit_once('=').ok_or("expected NAME=FILE")?;
    Ok((name.into(), file.into()))
}

pub(crate) fn run(args: &Args, quiet: bool) -> Result<Outcome, Failure> {
    let (model, func) = super::load(&args.model, &args.import.options(), quiet)?;
    let inputs = inputs(args, &model, &func)?;
    let executor = args.backend.executor();
    let outputs = executor.run(&func, &inputs)?;
    if let Some(dir) = &args.output_dir {
        std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    let mut rows = Vec::new();
    for (name, data) in func.result_names.iter().zip(&outputs) {
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

fn inputs(args: &Args, model: &onnx::Model, func: &Func) -> Result<Vec<Data>, Failure> {
    let given: BTreeMap<&str, &PathBuf> = args.inputs.iter().map(|(n, f)| (n.as_str(), f)).collect();
    if let Some(name) = given.keys().find(|n| !func.param_names.iter().any(|p| p == *n)) {
        let known = func.param_names.join("`, `");
        return Err(Failure::Other(format!("the model has no input `{name}`; its inputs are `{known}`")));
    }
    let mut missing = Vec::new();
    let mut values = Vec::new();
    for (i, (name, param)) in func.param_names.iter().zip(func.params()).enumerate() {
        let ty = func.ty(param);
        match (given.get(name.as_str()), args.random) {
            (Some(file), _) => values.push(load(file, model, name, ty)?),
            (None, Some(seed)) => values.push(random(name, ty, seed.wrapping_add(i as u64))?),
            (None, None) => missing.push(format!("{name}: {ty}")),
        }
    }
    if missing.is_empty() {
        return Ok(values);
    }
    let list = missing.join("\n  ");
    Err(Failure::Other(format!("inputs are missing (give --input NAME=FILE or --random SEED):\n  {list}")))
}

fn load(file: &Path, model: &onnx::Model, name: &str, ty: &Type) -> Result<Data, Failure> {
    if file.extension().is_some_and(|e| e == "npy") {
        let dtype = ty.as_tensor().map_err(|e| format!("input `{name}`: {e}"))?.dtype;
        return Ok(Data::Tensor(npy::read(file, dtype)?));
    }
    let declared = model.graph().input.iter().find(|i| i.name == name).and_then(|i| i.r#type.clone());
    Ok(conformance::load_data(file, &declared.unwrap_or_default())?)
}

/// Seeded numbers for an input. Symbolic sizes have to be fixed by `--dim`.
fn random(name: &str, ty: &Type, seed: u64) -> Result<Data, Failure> {
    let t = ty.as_tensor().map_err(|e| format!("input `{name}`: {e}"))?;
    let Some(shape) = t.static_shape() else {
        return Err(Failure::Other(format!("input `{name}` is {ty}: fix its sizes with --dim NAME=SIZE")));
    };
    let n = numrsc_ir::tensor::count(&shape).ok_or_else(|| format!("input `{name}` is too large"))?;
    let bits = (0..n as u64).map(|i| splitmix64(seed.wrapping_mul(0x1000_0000_01b3).wrapping_add(i)));
    let elems = match t.dtype {
        DType::Str => Elems::Str(vec![String::new(); n]),
        DType::Bool => Elems::Int(bits.map(|b| i128::from(b >> 63)).collect()),
        d if d.is_float() => Elems::Float(bits.map(|b| (b >> 11) as f64 / (1u64 << 53) as f64).collect()),
        d => Elems::Int(bits.map(|b| i128::from(b % 8).min(d.int_range().1)).collect()),
    };
    Ok(Data::Tensor(Tensor::from_elems(t.dtype, shape, &elems)))
}

fn splitmix64(x: u64) -> u64 {
    let z = x.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
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
