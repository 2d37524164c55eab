//! Runs all benchmarks and writes their results into `docs/benchmarks.md`, between the comments that mark them.
//!
//! `cargo run --release -p numrsc-benches --bin report [start|start-2|compile|load|size|import …]`; without arguments, all of them.
use std::{
    env, fs,
    process::{Command, ExitCode, Stdio},
};

/// Block in the document, program, arguments.
const BLOCKS: [(&str, &str, &[&str]); 6] = [
    ("start", "start", &["--markdown"]),
    ("start-2", "start", &["--markdown", "--threads", "2"]),
    ("load", "load", &["--markdown"]),
    ("size", "size", &["--markdown"]),
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
        if let Err(message) = run(program, args).and_then(|text| replace(block, args.contains(&"--markdown"), &text)) {
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

fn replace(block: &str, is_markdown: bool, text: &str) -> Result<(), String> {
    let path = numrsc_tests::corpus::root().join("docs/benchmarks.md");
    let document = fs::read_to_string(&path).map_err(|e| e.to_string())?;
    let (begin, end) = (format!("<!-- begin: {block} -->\n"), format!("<!-- end: {block} -->"));
    let missing = || format!("{} has no block `{block}`", path.display());
    let (before, rest) = document.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    // What fetching the corpus says is no result.
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("models: ")).collect();
    let body = if is_markdown { lines.join("\n") } else { format!("```text\n{}\n```", lines.join("\n")) };
    let text = format!("{before}{begin}Measured on {}, {}.\n\n{body}\n{end}{after}", date()?, machine());
    fs::write(&path, text).map_err(|e| e.to_string())
}

fn date() -> Result<String, String> {
    let out = Command::new("date").arg("+%Y-%m-%d").output().map_err(|e| e.to_string())?;
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// The processor, how many threads it runs, and how busy it was.
fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(':'));
    let threads = std::thread::available_parallelism().map_or(0, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().nth(2).unwrap_or("unknown");
    let name = name.map_or("an unknown processor", |(_, name)| name.trim());
    format!("{name} with {threads} threads, load average of the last 15 minutes {load}")
}
