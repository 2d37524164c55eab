//! Compile times by phase: the largest models of the corpus, and generated graphs of growing size, whose time per node should stay
//! the same.
//!
//! `cargo run --release -p numrsc-benches --bin compile [NAME…]`. Each compilation is a process of its own: first with an empty cache
//! of kernels, then with the cache that it left.
use clap::Parser;
use numrsc::{
    compile::{Generator, Options},
    conformance::Settings,
};
use numrsc_benches::{
    driver::{self, Result, total_ms as total},
    exit_code,
    graphs::{self, Shape},
    table::{Format, Table, short},
};
use prost::Message;
use serde_json::{Value, json};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

/// Compile times by phase, of models and of generated graphs.
#[derive(Parser)]
struct Args {
    /// Only what has one of these in its name: models of the corpus (without names, the five largest), `chain`, `ladder`, each with
    /// fixed sizes and as `chain_symbolic`, `ladder_symbolic`.
    names: Vec<String>,
    /// Sizes of the generated graphs.
    #[arg(long, value_delimiter = ',', default_value = "1000,3000,10000")]
    nodes: Vec<usize>,
    /// Only `llvm` or only `cranelift`.
    #[arg(long)]
    generator: Option<String>,
    /// Threads that compile; 0 for as many as there are cores.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// How often; the fastest counts. What takes more than 20 seconds runs once.
    #[arg(long, default_value_t = 3)]
    times: usize,
    /// Seconds after which a compilation is given up.
    #[arg(long, default_value_t = 900)]
    limit: u64,
    /// Print a line of JSON per compilation instead of a table.
    #[arg(long)]
    json: bool,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Compile a file once and print JSON: model, cache, artifact.
    #[arg(long, hide = true, num_args = 3)]
    measure: Option<Vec<PathBuf>>,
}

/// The columns of the tables, and the phases of each.
const PHASES: [(&str, &[&str]); 7] = [
    ("load", &["load"]),
    ("import", &["import"]),
    ("simplify", &["prune", "unroll", "literals", "dequantised-products", "fold", "fold-again"]),
    ("optimise", &["optimise"]),
    ("lower", &["layout", "lower"]),
    ("generate", &["generate"]),
    ("write", &["write"]),
];
const GENERATORS: [(&str, Generator); 2] = [("llvm", Generator::Llvm), ("cranelift", Generator::Cranelift)];

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code(match &args.measure {
        Some(paths) => driver::with_large_stack(|| measure(&args, paths)).flatten(),
        None => report(&args),
    })
}

fn measure(args: &Args, paths: &[PathBuf]) -> Result<()> {
    let generator = GENERATORS.iter().find(|(name, _)| Some(*name) == args.generator.as_deref());
    let options = Options {
        generator: generator.ok_or("no such generator")?.1,
        cache: Some(paths[1].clone()),
        ..Options::default()
    }
    .with(|o| o.jobs = args.jobs);
    let import = paths[0].parent().map_or_else(|| Ok(Settings::default()), Settings::of)?.import();
    driver::compile_file(&paths[0], &import, &options, &paths[2]).map(|report| println!("{report}"))
}

fn report(args: &Args) -> Result<()> {
    let wanted = |name: &str| args.names.is_empty() || args.names.iter().any(|n| name.contains(&n[..]));
    let folder = driver::work_folder("compile")?;
    let phases = PHASES.map(|(name, _)| name);
    let totals = ["total ms", "total with warm cache ms", "peak MB"];
    let mut table =
        Table::new(&[&["model", "nodes", "generator", "kernels (distinct)"], &phases[..], &totals].concat());
    let mut growth = Table::new(&[&["graph", "nodes", "generator"], &phases[..]].concat());
    let mut subjects: Vec<(String, PathBuf, bool)> = vec![];
    let only_generated =
        !args.names.is_empty() && args.names.iter().all(|n| Shape::ALL.iter().any(|s| n.starts_with(s.name())));
    if !only_generated {
        let mut models = driver::corpus_models()?;
        models.retain(|path| wanted(&driver::name_of(path)));
        models.reverse();
        if args.names.is_empty() {
            models.truncate(5);
        }
        subjects.extend(models.into_iter().map(|path| (driver::name_of(&path), path.join("model.onnx"), false)));
    }
    for (shape, symbolic) in Shape::ALL.into_iter().flat_map(|s| [(s, false), (s, true)]) {
        let name = format!("{}{}", shape.name(), if symbolic { "_symbolic" } else { "" });
        for &nodes in args.nodes.iter().filter(|_| wanted(&name)) {
            let path = folder.join(format!("{name}_{nodes}.onnx"));
            fs::write(&path, graphs::model(shape, symbolic, nodes).encode_to_vec()).map_err(|e| e.to_string())?;
            subjects.push((name.clone(), path, true));
        }
    }
    for (name, model, generated) in &subjects {
        for (generator, _) in GENERATORS {
            if args.generator.as_deref().is_some_and(|g| g != generator) {
                continue;
            }
            eprint!("{name} {generator}                    \r");
            let both = twice(args, model, generator, &folder);
            if args.json {
                let (cold, warm) = both.as_ref().map_or((Value::Null, Value::Null), Clone::clone);
                let error = both.as_ref().err();
                println!(
                    "{}",
                    json!({"model": name, "generator": generator, "cold": cold, "warm": warm, "error": error})
                );
            }
            match both {
                Ok((cold, warm)) => {
                    let nodes = cold["onnx_nodes"].as_f64().unwrap_or(f64::NAN);
                    let kernels = format!("{} ({})", cold["kernels"], cold["distinct_kernels"]);
                    let mut cells = vec![name.clone(), cold["onnx_nodes"].to_string(), generator.to_owned(), kernels];
                    cells.extend(PHASES.iter().map(|(_, phases)| short(time(&cold, phases))));
                    cells.extend([short(total(&cold)), short(total(&warm))]);
                    cells.push(short(cold["peak_kb"].as_f64().unwrap_or(f64::NAN) / 1e3));
                    table.row(cells);
                    if *generated {
                        let mut cells = vec![name.clone(), cold["onnx_nodes"].to_string(), generator.to_owned()];
                        cells.extend(PHASES.iter().map(|(_, phases)| short(time(&cold, phases) * 1e3 / nodes)));
                        growth.row(cells);
                    }
                }
                Err(message) => {
                    let line = message.lines().next().unwrap_or("").replace('|', "\\|");
                    table.row([name.clone(), String::new(), generator.to_owned(), line]);
                }
            }
        }
    }
    if !args.json {
        table.print(args.format);
        args.format
            .print_note("\nMicroseconds per node (constant if compile time is linear in the number of nodes):\n");
        growth.print(args.format);
    }
    Ok(())
}

fn time(report: &Value, phases: &[&str]) -> f64 {
    phases.iter().filter_map(|phase| report["phases_ms"][phase].as_f64()).sum()
}

/// With an empty cache, then with what it left there. Of several times the fastest: other work on the machine only adds.
fn twice(args: &Args, model: &Path, generator: &str, folder: &Path) -> Result<(Value, Value)> {
    let mut best: Option<(Value, Value)> = None;
    for _ in 0..args.times.max(1) {
        let cache = tempfile::tempdir_in(folder).map_err(|e| e.to_string())?;
        let (cold, warm) = (once(args, model, generator, cache.path())?, once(args, model, generator, cache.path())?);
        let long = total(&cold) > 20e3;
        best = Some(match best {
            Some((best_cold, best_warm)) => (faster(best_cold, cold), faster(best_warm, warm)),
            None => (cold, warm),
        });
        if long {
            break;
        }
    }
    best.ok_or_else(|| "never compiled".into())
}

fn faster(a: Value, b: Value) -> Value {
    if total(&b) < total(&a) { b } else { a }
}

fn once(args: &Args, model: &Path, generator: &str, cache: &Path) -> Result<Value> {
    let this = env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(&this);
    command.args(["--generator", generator, "--jobs", &args.jobs.to_string(), "--measure"]);
    command.args([model, cache, &cache.join("model.nrsc")]);
    driver::run_compiler(&mut command, Duration::from_secs(args.limit)).map(|outcome| outcome.report)
}
