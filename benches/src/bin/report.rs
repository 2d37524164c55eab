//! Runs benchmarks, writes their data into `benches/results` and their headlines into the pages of `docs`.
//!
//! `cargo run --release -p numrsc-benches --bin report [accuracy|gemm|conv|…]`; without arguments, all of them.
use numrsc_benches::document;
use std::{
    env,
    process::{Command, ExitCode, Stdio},
};

/// Benchmark programs; those that print headlines have a block in a page.
const BENCHMARKS: [(&str, Option<&str>); 10] = [
    ("accuracy", Some("benchmarks.md")),
    ("gemm", None),
    ("conv", None),
    ("load", None),
    ("size", None),
    ("embed", None),
    ("devices", None),
    ("compile", None),
    ("import", None),
    ("optimiser", Some("optimiser.md")),
];

fn main() -> ExitCode {
    let wanted: Vec<String> = env::args().skip(1).collect();
    if let Some(unknown) = wanted.iter().find(|w| BENCHMARKS.iter().all(|(name, _)| name != w)) {
        eprintln!("no such benchmark: {unknown}");
        return ExitCode::FAILURE;
    }
    let mut failed = false;
    for (name, page) in BENCHMARKS.into_iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| w == name))
    {
        eprintln!("{name}");
        if let Err(message) = run(name).and_then(|text| publish(name, page, &text)) {
            eprintln!("{name}: {message}");
            failed = true;
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// What a benchmark prints as tab-separated values.
fn run(program: &str) -> Result<String, String> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    command.args(["run", "--quiet", "--release", "-p", "numrsc-benches", "--bin", program, "--", "--format", "tsv"]);
    command.current_dir(numrsc_tests::corpus::root()).stdin(Stdio::null()).stderr(Stdio::inherit());
    let out = command.output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    if out.status.success() { Ok(text) } else { Err(out.status.to_string()) }
}

/// Writes the data file, and its comments that are list items into the page as headlines.
fn publish(name: &str, page: Option<&str>, text: &str) -> Result<(), String> {
    // `models: …` is progress of fetching the corpus.
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("models: ")).collect();
    let measured = document::circumstances()?;
    document::write_data(name, &measured, &(lines.join("\n") + "\n"))?;
    let Some(page) = page else { return Ok(()) };
    let items = lines.iter().filter_map(|line| line.strip_prefix("# ")).filter(|line| line.starts_with("- "));
    document::write_headlines(&document::page(page), name, &measured, &items.collect::<Vec<_>>().join("\n"))
}
