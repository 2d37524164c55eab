//! How far outputs are from what the model computes without rounding, next to ONNX Runtime.
//!
//! `cargo run --release -p numrsc-benches --bin accuracy [NAME…]`. The judge is the same function with every `f32` an `f64`, run by the reference
//! evaluator. Errors are the largest and the root of the mean square over all float outputs, each relative to the largest element of its output. Models
//! that compute in other types (quantised ones, halves) round in ways of their own, and are left out.
use clap::Parser;
use numrsc::{compile::Options, conformance::Settings, onnx};
use numrsc_benches::{
    driver::{self, Result},
    raw::RawTensor,
    table::{Table, short},
};
use numrsc_ir::{
    DType, Data, Func, Op, Scalar, Tensor, Type, Value, eval,
    scalar::{Lit, Step},
};
use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

/// Errors of models against an evaluation in `f64`, next to ONNX Runtime's.
#[derive(Parser)]
struct Args {
    /// Only models whose name contains one of these.
    names: Vec<String>,
    /// Another ONNX Runtime than that of the corpus.
    #[arg(long)]
    library: Option<PathBuf>,
    #[arg(long)]
    markdown: bool,
}

const LIMIT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let args = Args::parse();
    match driver::with_large_stack(|| all(&args)).flatten() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn all(args: &Args) -> Result<()> {
    let library = args.library.clone().map_or_else(driver::ort_library, Ok)?;
    let programs = driver::build_programs(&["ours_run", "ort_run"])?;
    let mut table = Table::new(&["model", "largest error: ours", "theirs", "ratio", "mean: ours", "theirs", "ratio"]);
    for folder in driver::corpus_models()? {
        let name = driver::name_of(&folder);
        if !args.names.is_empty() && !args.names.iter().any(|n| name.contains(&n[..])) {
            continue;
        }
        let cells = match errors(&folder, &library, &programs) {
            Ok(Some([ours, theirs])) => (0..2).flat_map(|i| [ours[i], theirs[i], ours[i] / theirs[i]]).collect(),
            Ok(None) => continue,
            Err(message) => {
                eprintln!("{name}: {}", message.lines().next().unwrap_or(""));
                continue;
            }
        };
        let cells: Vec<f64> = cells;
        let text = |(i, x): (usize, &f64)| if i % 3 == 2 { short(*x) } else { format!("{x:.2e}") };
        let cells: Vec<String> = std::iter::once(name).chain(cells.iter().enumerate().map(text)).collect();
        eprintln!("{}", cells.join("  "));
        table.row(cells);
    }
    table.print(args.markdown);
    Ok(())
}

/// The largest and the mean error of ours and theirs; none for models that do not compute in `f32`.
fn errors(folder: &Path, library: &Path, programs: &[PathBuf]) -> Result<Option<[[f64; 2]; 2]>> {
    let model = onnx::load(&folder.join("model.onnx")).map_err(|e| e.to_string())?;
    let func = onnx::import::import(&model, &Settings::of(folder)?.import()).map_err(|e| e.to_string())?;
    if func.nodes().iter().any(|n| n.ty.as_tensor().is_ok_and(|t| is_narrow(t.dtype))) {
        return Ok(None);
    }
    let work = driver::work_folder(&format!("accuracy/{}", driver::name_of(folder)))?;
    driver::prepare(folder, &work, &Options::default())?;
    let inputs = driver::numbered(&work, "input");
    let given = inputs.iter().map(|path| read(path).map(|t| Data::Tensor(widened(&t)))).collect::<Result<Vec<_>>>()?;
    let exact = eval(&in_f64(&func)?, &given).map_err(|e| e.to_string())?;
    let sides = [(&programs[0], work.join("model.nrsc")), (&programs[1], folder.join("model.onnx"))];
    let mut found = [[0.0; 2]; 2];
    for ((program, model), found) in sides.iter().zip(&mut found) {
        let mut command = Command::new(program);
        command.arg(model).arg("--library").arg(library).arg("--outputs").arg(&work);
        inputs.iter().for_each(|path| {
            command.arg("--input").arg(path);
        });
        driver::run_child(&mut command, LIMIT)?;
        let (mut squares, mut count) = (0.0, 0.0);
        for (i, exact) in exact.iter().enumerate() {
            let (Data::Tensor(exact), got) = (exact, read(&work.join(format!("output_{i}.raw")))?) else { continue };
            if exact.dtype() != DType::F64 {
                continue;
            }
            let (exact, got) = (exact.to_f64s(), got.to_f64s());
            let scale = exact.iter().filter(|x| x.is_finite()).fold(f64::MIN_POSITIVE, |m, x| m.max(x.abs()));
            let each = exact.iter().zip(&got).filter(|(a, b)| a.is_finite() && b.is_finite());
            for error in each.map(|(a, b)| (a - b).abs() / scale) {
                found[0] = error.max(found[0]);
                squares += error * error;
                count += 1.0;
            }
        }
        found[1] = (squares / f64::max(count, 1.0)).sqrt();
    }
    Ok(Some(found))
}

/// Types that values are rounded to more coarsely than to `f32`, or exactly.
fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::I8 | DType::U8)
}

fn read(path: &Path) -> Result<Tensor> {
    let raw = RawTensor::read(path)?;
    let dtype = DType::from_onnx(raw.onnx_type).ok_or("an unknown element type")?;
    Tensor::new(dtype, raw.shape.clone(), raw.bytes().to_vec().into())
}

fn wide(dtype: DType) -> DType {
    if dtype == DType::F32 { DType::F64 } else { dtype }
}

fn widened(t: &Tensor) -> Tensor {
    match t.dtype() {
        DType::F32 => Tensor::from_elems(DType::F64, t.shape().to_vec(), &t.elems()),
        _ => t.clone(),
    }
}

fn wide_type(ty: &Type) -> Type {
    match ty {
        Type::Tensor(t) => Type::tensor(wide(t.dtype), t.shape.clone()),
        Type::Tuple(all) => Type::Tuple(all.iter().map(wide_type).collect()),
        Type::Seq(_) => ty.clone(),
    }
}

fn wide_scalar(f: &Scalar) -> Scalar {
    let steps: Vec<Step> = f
        .steps()
        .iter()
        .map(|step| match step {
            Step::Lit(x) if x.dtype == DType::F32 => Step::Lit(Lit::float(DType::F64, x.as_f64())),
            Step::Call(call) => {
                let mut call = call.clone();
                call.to = call.to.map(wide);
                Step::Call(call)
            }
            step => step.clone(),
        })
        .collect();
    Scalar::new(&steps, steps.len() - 1)
}

/// The same function over `f64`.
fn in_f64(func: &Func) -> Result<Func> {
    let mut out = Func::new();
    out.param_names.clone_from(&func.param_names);
    out.result_names.clone_from(&func.result_names);
    let mut places: Vec<Value> = vec![];
    let types = |types: &[Type]| types.iter().map(wide_type).collect();
    for (_, node) in func.values() {
        let op = match &node.op {
            Op::Param { index, ty } => Op::Param { index: *index, ty: wide_type(ty) },
            Op::Const { value } => Op::Const { value: widened(value) },
            Op::Iota { dtype, shape, axis } => Op::Iota { dtype: wide(*dtype), shape: shape.clone(), axis: *axis },
            Op::Map { f } => Op::Map { f: wide_scalar(f) },
            Op::If { then, or, types: t } => {
                Op::If { then: in_f64(then)?.into(), or: in_f64(or)?.into(), types: types(t) }
            }
            Op::Loop { states, body, types: t } => {
                Op::Loop { states: *states, body: in_f64(body)?.into(), types: types(t) }
            }
            op => op.clone(),
        };
        let args: Vec<Value> = node.args.iter().map(|a| places[a.0 as usize]).collect();
        places.push(out.push(op, &args).map_err(|e| e.to_string())?);
    }
    out.set_results(func.results().iter().map(|r| places[r.0 as usize]).collect());
    Ok(out)
}
