//! Time and memory that importing takes on top of reading the file: one process per model.
//!
//! `cargo run --release -p numrsc-benches --bin import [MODEL.onnx …]`; without arguments, the ten largest models of
//! the corpus, which is fetched if need be.
use clap::Parser;
use numrsc::onnx::{self, import};
use numrsc_benches::{
    driver::{self, Result},
    exit_code, status_kb,
    table::{Format, Table, short},
};
use std::{
    env, fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

/// Import times and memory.
#[derive(Parser)]
struct Args {
    /// Models to import [default: the ten largest of the corpus]
    models: Vec<PathBuf>,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Import a model and print the numbers of its row.
    #[arg(long, hide = true)]
    measure: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code(match &args.measure {
        Some(model) => measure(model),
        None => report(&args),
    })
}

fn report(args: &Args) -> Result<()> {
    let models = if args.models.is_empty() { largest()? } else { args.models.clone() };
    let head = ["model", "file MB", "nodes", "read ms", "import ms", "anonymous MB", "peak MB"];
    let mut table = Table::new(&head);
    for model in models {
        let this = env::current_exe().map_err(|e| e.to_string())?;
        let out = Command::new(this).arg("--measure").arg(&model).output().map_err(|e| e.to_string())?;
        if !out.status.success() {
            return Err(format!("{}: {}", model.display(), String::from_utf8_lossy(&out.stderr)));
        }
        let numbers = String::from_utf8_lossy(&out.stdout);
        let name = model.parent().map_or_else(|| driver::name_of(&model), driver::name_of);
        table.row(std::iter::once(name).chain(numbers.split_whitespace().map(str::to_owned)));
    }
    table.print(args.format);
    Ok(())
}

/// The models of the ten largest files.
fn largest() -> Result<Vec<PathBuf>> {
    let mut models: Vec<PathBuf> =
        driver::corpus_models()?.into_iter().map(|folder| folder.join("model.onnx")).collect();
    models.sort_by_key(|path| std::cmp::Reverse(driver::file_size(path)));
    models.truncate(10);
    Ok(models)
}

/// Reads the file once through a small buffer, so that it is in memory for both times, then imports it.
fn measure(model: &Path) -> Result<()> {
    let start = Instant::now();
    let mut file = fs::File::open(model).map_err(|e| e.to_string())?;
    let (mut buffer, mut size) = (vec![0u8; 1 << 20], 0);
    while let Ok(n @ 1..) = file.read(&mut buffer) {
        size += n;
    }
    let read = start.elapsed();
    let start = Instant::now();
    let loaded = onnx::load(model).map_err(|e| e.to_string())?;
    let func = import::import(&loaded, &import::Options::default()).map_err(|e| e.to_string())?;
    let import = start.elapsed();
    let mb = |kb: Option<u64>| kb.map_or(f64::NAN, |kb| kb as f64 / 1e3);
    println!(
        "{} {} {} {} {} {}",
        short(size as f64 / 1e6),
        func.nodes().len(),
        short(read.as_secs_f64() * 1e3),
        short(import.as_secs_f64() * 1e3),
        short(mb(status_kb("RssAnon"))),
        short(mb(status_kb("VmHWM"))),
    );
    Ok(())
}
