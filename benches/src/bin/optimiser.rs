//! Kernels and bytes moved of each model of the corpus, without and with the optimiser, against the nodes that ONNX
//! Runtime's extended optimisation leaves.
//!
//! `cargo run --release -p numrsc-benches --bin optimiser [NAME…]`. Open sizes count as 16, loop bodies once.
use clap::Parser;
use numrsc::{
    compile::{self, Codegen, Options, Phases},
    conformance::Settings,
    onnx::{self, import},
};
use numrsc_benches::{
    driver::{self, Result},
    exit_code,
    table::{Format, Table},
};
use numrsc_passes::Level;
use std::{collections::BTreeMap, path::Path, process::Command, process::ExitCode, time::Duration};

/// Kernels and bytes before and after optimising, against ONNX Runtime's nodes.
#[derive(Parser)]
struct Args {
    /// Models of the corpus [default: all]
    names: Vec<String>,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn main() -> ExitCode {
    exit_code(run(&Args::parse()))
}

/// What lowering makes of a model at a level.
struct Lowered {
    kernels: usize,
    moved: u64,
    optimising: Duration,
}

fn run(args: &Args) -> Result<()> {
    let models = driver::corpus_models()?;
    let corpus = models.first().and_then(|m| m.parent()).ok_or("there are no models")?.to_owned();
    let nodes = ort_nodes(&corpus)?;
    let mut table = Table::new(&[
        "model",
        "nodes",
        "ONNX Runtime",
        "kernels -O1",
        "kernels -O2",
        "MB moved -O1",
        "MB moved -O2",
        "optimising, ms",
    ]);
    let mut worse = Vec::new();
    for (name, [before, after]) in nodes.iter().filter(|(n, _)| args.names.is_empty() || args.names.contains(n)) {
        let folder = corpus.join(name);
        let at = |level| driver::with_large_stack(|| lowered(&folder, level))?;
        let (plain, best) = (at(Level::O1)?, at(Level::O2)?);
        if best.kernels > *after {
            worse.push(name.as_str());
        }
        let megabytes = |bytes: u64| format!("{:.2}", bytes as f64 / 1e6);
        table.row([
            name.clone(),
            before.to_string(),
            after.to_string(),
            plain.kernels.to_string(),
            best.kernels.to_string(),
            megabytes(plain.moved),
            megabytes(best.moved),
            format!("{:.0}", best.optimising.as_secs_f64() * 1e3),
        ]);
        eprintln!("{name}: {} kernels, ONNX Runtime {after} nodes", best.kernels);
    }
    table.print(args.format);
    let worse = if worse.is_empty() { "none".into() } else { worse.join(", ") };
    args.format.print_note(&format!("\n- models with more kernels than ONNX Runtime leaves nodes: {worse}"));
    Ok(())
}

fn lowered(folder: &Path, level: Level) -> Result<Lowered> {
    let failed = |e: String| format!("{}: {e}", folder.display());
    let model = onnx::load(&folder.join("model.onnx")).map_err(|e| failed(e.to_string()))?;
    let settings = Settings::of(folder)?;
    let func = import::import(&model, &settings.import()).map_err(|e| failed(e.to_string()))?;
    let options = Options::default().with(|o| o.level = level);
    let codegen = Codegen::new(&options).map_err(|e| failed(e.to_string()))?;
    let mut phases = Phases::new();
    let lowered = compile::lower(&func, &codegen, &options, &mut phases).map_err(|e| failed(e.to_string()))?;
    let optimising = phases.iter().filter(|(name, _)| *name == "optimise").map(|(_, t)| *t).sum();
    Ok(Lowered { kernels: lowered.launches.len(), moved: lowered.moved, optimising })
}

/// The nodes of each model, and those that ONNX Runtime's extended optimisation leaves.
fn ort_nodes(models: &Path) -> Result<BTreeMap<String, [usize; 2]>> {
    let python = models.parent().unwrap_or(models).join("venv/bin/python");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("ort_nodes.py");
    let output = Command::new(python).arg(script).arg(models).output().map_err(|e| format!("Python: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())
}
