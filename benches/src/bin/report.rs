//! Runs all benchmarks and writes their results into `docs/benchmarks.md`, between the comments that mark them.
//!
//! `cargo run --release -p numrsc-benches --bin report [accuracy|gemm|conv|load|size|embed|devices|compile|import …]`; without arguments, all of them.
use numrsc_benches::document;
use std::{
    env,
    process::{Command, ExitCode, Stdio},
};

/// Block in the document, program, arguments.
const BLOCKS: [(&str, &str, &[&str]); 9] = [
    ("accuracy", "accuracy", &["--markdown"]),
    ("gemm", "gemm", &["--markdown"]),
    ("conv", "conv", &["--markdown"]),
    ("load", "load", &["--markdown"]),
    ("size", "size", &["--markdown"]),
    ("embed", "embed", &["--markdown"]),
    ("devices", "devices", &["--markdown"]),
    ("compile", "compile", &["--markdown"]),
    ("import", "import", &[]),
];

fn main() -> ExitCode {
    let wanted: Vec<String> = env::args().skip(1).collect();
    if let Some(unknown) = wanted.iter().find(|w| BLOCKS.iter().all(|(block, ..)| block != w)) {
        eprintln!("no such benchmark: {unknown}");
        return ExitCode::FAILURE;
    }
    let mut failed = false;
    for (block, program, args) in
        BLOCKS.iter().filter(|(block, ..)| wanted.is_empty() || wanted.iter().any(|w| w == block))
    {
        eprintln!("{block}");
        if let Err(message) = run(program, args).and_then(|text| write(block, args.contains(&"--markdown"), &text)) {
            eprintln!("{block}: {message}");
            failed = true;
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// What a benchmark prints.
fn run(program: &str, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    command.args(["run", "--quiet", "--release", "-p", "numrsc-benches", "--bin", program, "--"]).args(args);
    command.current_dir(numrsc_tests::corpus::root()).stdin(Stdio::null()).stderr(Stdio::inherit());
    let out = command.output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    if out.status.success() { Ok(text) } else { Err(out.status.to_string()) }
}

fn write(block: &str, is_markdown: bool, text: &str) -> Result<(), String> {
    // What fetching the corpus says is no result.
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("models: ")).collect();
    let body = if is_markdown { lines.join("\n") } else { format!("```text\n{}\n```", lines.join("\n")) };
    document::replace(block, &format!("Measured on {}.\n\n{body}\n", document::circumstances()?))
}
