//! Load times of small and large artifacts: files are mapped, so the size should not matter.
//!
//! `cargo run --release -p numrsc-benches --bin load [ARTIFACT…]`; without arguments, artifacts of 1, 10 and 100 MB are compiled.
use clap::Parser;
use numrsc::{
    compile::{Generator, Options},
    onnx::import,
};
use numrsc_benches::{
    driver::{self, Result},
    exit_code, graphs,
    table::{Format, Table, median, short},
};
use numrsc_runtime::{Context, Model};
use prost::Message;
use std::{fs, path::PathBuf, process::ExitCode, time::Instant};

/// Load time of artifacts that were read before.
#[derive(Parser)]
struct Args {
    artifacts: Vec<PathBuf>,
    /// How often each is loaded.
    #[arg(long, default_value_t = 1000)]
    times: usize,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn main() -> ExitCode {
    exit_code(report(&Args::parse()))
}

fn report(args: &Args) -> Result<()> {
    let artifacts = if args.artifacts.is_empty() {
        [1, 10, 100].into_iter().map(generated).collect::<Result<Vec<PathBuf>>>()?
    } else {
        args.artifacts.clone()
    };
    let mut table = Table::new(&[
        "artifact",
        "MB",
        "load µs (median)",
        "best",
        "99th percentile",
        "with a context µs (median)",
        "with weights verified ms",
    ]);
    for path in &artifacts {
        // Reads all of it, so that the file is in memory for what follows.
        Model::load_verified(path).map_err(|e| e.to_string())?;
        let start = Instant::now();
        Model::load_verified(path).map_err(|e| e.to_string())?;
        let verified = start.elapsed();
        let mut loads = times(args.times, || Model::load(path).map(drop))?;
        let contexts = times(args.times, || Model::load(path).and_then(|m| Context::with_threads(&m, 1)).map(drop))?;
        loads.sort_by(f64::total_cmp);
        table.row([
            driver::name_of(path),
            short(driver::file_size(path) as f64 / 1e6),
            short(median(loads.iter().copied())),
            short(loads[0]),
            short(loads[loads.len() * 99 / 100]),
            short(median(contexts)),
            short(verified.as_secs_f64() * 1e3),
        ]);
    }
    table.print(args.format);
    Ok(())
}

/// Microseconds of each call.
fn times(count: usize, work: impl Fn() -> numrsc_runtime::Result<()>) -> Result<Vec<f64>> {
    let once = |_| {
        let start = Instant::now();
        work().map_err(|e| e.to_string())?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    };
    (0..count.max(1)).map(once).collect()
}

/// An artifact with this many megabytes of weights.
fn generated(megabytes: usize) -> Result<PathBuf> {
    let folder = driver::work_folder("load")?;
    let (model, artifact) = (folder.join("model.onnx"), folder.join(format!("heavy_{megabytes}.nrsc")));
    fs::write(&model, graphs::heavy(megabytes * 1_000_000).encode_to_vec()).map_err(|e| e.to_string())?;
    let options = Options { generator: Generator::Cranelift, ..Options::default() };
    driver::compile_file(&model, &import::Options::default(), &options, &artifact)?;
    Ok(artifact)
}
