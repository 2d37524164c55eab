//! What `numrs::ops::model::infer` takes beyond the run of the compiled model: both in turns, on the tutorial's network and the exports of NumRs.
//!
//! `cargo run --release -p numrsc-benches --bin infer [MODEL…]`
use clap::Parser;
use numrs::{
    Array,
    ops::model::{infer, load_onnx},
};
use numrsc::{Generator, Session};
use numrsc_benches::{
    driver::{self, Result},
    exit_code,
    table::{Format, Table, median, short},
};
use numrsc_runtime::{Context, TensorRef};
use std::{collections::HashMap, path::PathBuf, process::ExitCode, time::Instant};

/// Time of `infer` beyond the run.
#[derive(Parser)]
struct Args {
    /// Models with one input; by default the exports of NumRs in tests/data.
    models: Vec<PathBuf>,
    /// How often each is run.
    #[arg(long, default_value_t = 20_000)]
    times: usize,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn main() -> ExitCode {
    exit_code(report(&Args::parse()))
}

fn report(args: &Args) -> Result<()> {
    let samples = || -> Result<Vec<PathBuf>> {
        let folder = numrsc_tests::corpus::root().join("tests/data/numrs");
        let entries = std::fs::read_dir(folder).map_err(|e| e.to_string())?;
        let mut models: Vec<PathBuf> = entries.flatten().map(|e| e.path().join("model.onnx.json")).collect();
        models.retain(|file| file.exists());
        models.sort();
        Ok(models)
    };
    let models = if args.models.is_empty() { samples()? } else { args.models.clone() };
    let mut table = Table::new(&["model", "first call ms", "infer µs (median)", "run µs (median)", "beyond µs"]);
    for file in &models {
        let model = load_onnx(file).map_err(|e| e.to_string())?;
        let input = &model.graph.inputs[0];
        let shape: Vec<usize> = input.shape.iter().map(|n| usize::try_from(*n).unwrap_or(1)).collect();
        let x = Array::<f32>::ones(shape);
        let inputs = || HashMap::from([(input.name.clone(), x.clone())]);
        let start = Instant::now();
        infer(&model, inputs()).map_err(|e| e.to_string())?;
        let first = start.elapsed();

        let session = Session::builder().backend(Generator::Cranelift).load(file).map_err(|e| e.to_string())?;
        let failed = |e: numrsc_runtime::Error| e.to_string();
        let mut context = Context::new(session.model()).map_err(failed)?;
        let (mut whole, mut run) = (vec![], vec![]);
        for _ in 0..args.times {
            let given = inputs();
            let start = Instant::now();
            let results = infer(&model, given).map_err(|e| e.to_string())?;
            whole.push(start.elapsed().as_secs_f64() * 1e6);
            drop(results);
            let start = Instant::now();
            let tensor = TensorRef::new(&x.data, &x.shape);
            session.model().run_in_order(&mut context, &[tensor]).map_err(failed)?;
            run.push(start.elapsed().as_secs_f64() * 1e6);
        }
        let (whole, run) = (median(whole), median(run));
        let name = file.parent().map_or_else(|| driver::name_of(file), driver::name_of);
        table.row([name, short(first.as_secs_f64() * 1e3), short(whole), short(run), short(whole - run)]);
    }
    table.print(args.format);
    Ok(())
}
