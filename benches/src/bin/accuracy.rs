//! How far outputs are from what the model computes without rounding, next to ONNX Runtime.
//!
//! `cargo run --release -p numrsc-benches --bin accuracy [NAME…]`. The judge is the same function with every float an `f64`, compiled without anything that rounds more
//! than a plain sum does. Where that is quick, the reference evaluator judges the judge. Errors are the largest and the root of the mean square over all float outputs,
//! each relative to the largest element of its output. One input says little about a largest error, so there are several: that of the corpus, and others
//! that differ from it by up to a quarter, element by element; the table has geometric means over them. Quantised models round in ways of their own, and are left out.
use clap::Parser;
use numrsc::{
    compile::Options,
    conformance::{self, Settings},
    native, onnx,
};
use numrsc_benches::{
    double::{in_f64, widened},
    driver::{self, Result},
    exit_code, flops,
    ort::{Library, Session},
    raw::{self, RawTensor},
    results::geometric_mean,
    table::{Format, Table, short},
};
use numrsc_ir::{DType, Data, Tensor, eval};
use numrsc_tests::rng::Rng;
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Errors of models against an evaluation in `f64`, next to ONNX Runtime's.
#[derive(Parser)]
struct Args {
    /// Only models whose name contains one of these.
    names: Vec<String>,
    /// How many inputs each model gets.
    #[arg(long, default_value_t = 5)]
    inputs: usize,
    /// Another ONNX Runtime than that of the corpus.
    #[arg(long)]
    library: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Results do not depend on it.
const THREADS: usize = 2;
/// By how much inputs differ from that of the corpus at most. Errors of models that are nearly steps are those of the few elements next to a step, which have to be others.
const PERTURBATION: f64 = 0.25;
/// The evaluator confirms the reference of models of at most this many 10⁹ operations.
const QUICK: f64 = 0.03;
/// How far the reference may be from the evaluator.
const EXACT: f64 = 1e-11;
/// The error of rounding the largest element of a result. Smaller errors are chance, and count as this.
const LEAST: f64 = 1.0 / (1 << 24) as f64;

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code(driver::with_large_stack(|| all(&args)).flatten())
}

fn all(args: &Args) -> Result<()> {
    let library = Library::open(&args.library.clone().map_or_else(driver::ort_library, Ok)?)?;
    let mut table = Table::new(&["model", "largest error: ours", "theirs", "ratio", "mean: ours", "theirs", "ratio"]);
    let (mut ratios, mut judged) = ([vec![], vec![]], 0);
    for folder in driver::corpus_models()? {
        let name = driver::name_of(&folder);
        if (!args.names.is_empty() && !args.names.iter().any(|n| name.contains(&n[..]))) || is_quantised(&folder) {
            continue;
        }
        let model = Subject::load(&folder)?;
        let of = |i| model.errors(&library, i).map_err(|e| format!("{name}, input {i}: {e}"));
        let errors = (0..args.inputs).map(of).collect::<Result<Vec<_>>>()?;
        judged += usize::from(model.is_quick);
        let mean = |side: usize, kind: usize| geometric_mean(errors.iter().map(|e| e[side][kind].max(LEAST)));
        let mut cells = vec![name];
        for (kind, ratios) in ratios.iter_mut().enumerate() {
            let [ours, theirs] = [0, 1].map(|side| mean(side, kind));
            ratios.push(ours / theirs);
            cells.extend([format!("{ours:.2e}"), format!("{theirs:.2e}"), short(ours / theirs)]);
        }
        eprintln!("{}", cells.join("  "));
        table.row(cells);
    }
    table.print(args.format);
    for (kind, ratios) in ["largest", "mean"].iter().zip(&ratios) {
        let above = ratios.iter().filter(|r| **r > 2.0).count();
        let (mean, worst) = (geometric_mean(ratios.iter().copied()), ratios.iter().copied().fold(0.0, f64::max));
        args.format.print_note(&format!(
            "- {kind} error: {} times that of ONNX Runtime in the geometric mean, at most {}; above 2 on {above} of {}",
            short(mean),
            short(worst),
            ratios.len()
        ));
    }
    args.format.print_note(&format!("- the evaluator confirmed the f64 reference of {judged} models"));
    Ok(())
}

fn is_quantised(folder: &Path) -> bool {
    let info = fs::read_to_string(folder.join("info.json")).ok();
    info.and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok()).is_some_and(|i| i["quantised"] == true)
}

/// A model, compiled as it is measured and as the reference.
struct Subject {
    file: PathBuf,
    work: PathBuf,
    wide: numrsc_ir::Func,
    ours: numrsc_runtime::Model,
    judge: numrsc_runtime::Model,
    /// Is the reference confirmed by the evaluator?
    is_quick: bool,
    inputs: Vec<Tensor>,
}

impl Subject {
    fn load(folder: &Path) -> Result<Subject> {
        let file = folder.join("model.onnx");
        let model = onnx::load(&file).map_err(|e| e.to_string())?;
        let func = onnx::import::import(&model, &Settings::of(folder)?.import()).map_err(|e| e.to_string())?;
        let wide = in_f64(&func)?;
        let exact = Options::default().with(|o| o.tolerance = 0.0);
        let inputs = tensors(conformance::load_inputs(&folder.join("test_data_set_0"), &model)?)?;
        let shapes: Vec<Vec<usize>> = inputs.iter().map(|t| t.shape().to_vec()).collect();
        Ok(Subject {
            file,
            work: driver::work_folder("accuracy")?,
            ours: native::load(&func, &Options::default())?,
            judge: native::load(&wide, &exact)?,
            is_quick: flops::gflop(&func, &shapes) <= QUICK,
            wide,
            inputs,
        })
    }

    /// The largest and the mean error, ours and theirs.
    fn errors(&self, library: &Library, number: usize) -> Result<[[f64; 2]; 2]> {
        let inputs: Vec<Tensor> = self.inputs.iter().enumerate().map(|(i, t)| perturbed(t, number, i)).collect();
        let given: Vec<Data> = inputs.iter().map(|t| Data::Tensor(widened(t))).collect();
        let exact = tensors(native::run(&self.judge, &given, THREADS)?)?;
        if number == 0 && self.is_quick {
            let evaluated = tensors(eval(&self.wide, &given).map_err(|e| e.to_string())?)?;
            let [off, _] = distance(&exact, &evaluated)?;
            if off > EXACT {
                return Err(format!("the judge is off by {off:e}"));
            }
        }
        let given: Vec<Data> = inputs.iter().cloned().map(Data::Tensor).collect();
        let ours = tensors(native::run(&self.ours, &given, THREADS)?)?;
        Ok([distance(&exact, &ours)?, distance(&exact, &self.theirs(library, &inputs)?)?])
    }

    fn theirs(&self, library: &Library, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let raw = |(i, t): (usize, &Tensor)| {
            let path = self.work.join(format!("input_{i}.raw"));
            raw::write(&path, t.dtype().onnx(), t.shape(), t.bytes())?;
            RawTensor::read(&path)
        };
        let inputs = inputs.iter().enumerate().map(raw).collect::<Result<Vec<_>>>()?;
        let mut session = Session::new(library, &self.file, THREADS, &inputs)?;
        session.run()?;
        let tensor = |(onnx_type, shape, bytes): (i32, Vec<usize>, &[u8])| {
            let dtype = DType::from_onnx(onnx_type).ok_or("an unknown element type")?;
            Tensor::new(dtype, shape, bytes.to_vec().into())
        };
        session.outputs()?.into_iter().map(tensor).collect()
    }
}

fn tensors(all: Vec<Data>) -> Result<Vec<Tensor>> {
    let tensor = |data| match data {
        Data::Tensor(t) => Ok(t),
        _ => Err("an output is no tensor".into()),
    };
    all.into_iter().map(tensor).collect()
}

/// An input that differs a little from that of the corpus, which is number 0.
fn perturbed(t: &Tensor, number: usize, index: usize) -> Tensor {
    // Integers count or name something.
    let is_measure = t.dtype() == DType::F32 && t.to_f64s().iter().any(|x| x.fract() != 0.0);
    if number == 0 || !is_measure {
        return t.clone();
    }
    let mut rng = Rng::new((number * 1000 + index) as u64);
    let mut perturbation = |x: f64| x * (1.0 + PERTURBATION * (rng.draw() as f64 / u64::MAX as f64 * 2.0 - 1.0));
    let all: Vec<f32> = t.to_f64s().into_iter().map(|x| perturbation(x) as f32).collect();
    Tensor::from_f32(t.shape(), &all)
}

/// The largest difference and the root of the mean square, relative to the largest element of each output. What is not finite has to be the same.
fn distance(exact: &[Tensor], got: &[Tensor]) -> Result<[f64; 2]> {
    let (mut largest, mut squares, mut count): (f64, f64, usize) = (0.0, 0.0, 0);
    for (exact, got) in exact.iter().zip(got).filter(|(exact, _)| exact.dtype() == DType::F64) {
        if exact.shape() != got.shape() {
            return Err(format!("outputs of sizes {:?} and {:?}", exact.shape(), got.shape()));
        }
        let (exact, got) = (exact.to_f64s(), got.to_f64s());
        let scale = exact.iter().filter(|x| x.is_finite()).fold(f64::MIN_POSITIVE, |m, x| m.max(x.abs()));
        for (a, b) in exact.iter().zip(&got) {
            let error = match (a.is_finite() && b.is_finite(), a.is_nan() == b.is_nan()) {
                (true, _) => (a - b).abs() / scale,
                // Beyond the range of `f32`, infinity is the nearest value.
                (false, true) => continue,
                (false, false) => return Err(format!("{b} instead of {a}")),
            };
            largest = largest.max(error);
            squares += error * error;
            count += 1;
        }
    }
    Ok([largest, (squares / count.max(1) as f64).sqrt()])
}
