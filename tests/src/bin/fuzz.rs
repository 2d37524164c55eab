//! `cargo run --release -p numrsc-tests --bin fuzz -- text --seconds 600 --seed 1`: fuzz one target; inputs that do what
//! they must not are kept under `target/fuzz/<target>`. `-- text --replay FILE` runs one input. `tests/coverage/run text` is the same with
//! coverage as its guide; with `--keep FOLDER` what takes new branches is left there, at most `--bytes` of it.
use numrsc_tests::{
    alloc::{Counting, peak_of},
    fuzz::{Limits, TARGETS, distil, run},
};
use std::{path::Path, process::ExitCode, time::Duration};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    let number = |name: &str, default: u64| option(name).and_then(|v| v.parse().ok()).unwrap_or(default);
    let Some(target) = args.first().and_then(|name| TARGETS.iter().find(|t| t.name == name)) else {
        let names: Vec<_> = TARGETS.iter().map(|t| t.name).collect();
        eprintln!(
            "usage: fuzz {} [--seconds N] [--seed N] [--keep FOLDER] [--bytes N] [--replay FILE]",
            names.join("|")
        );
        return ExitCode::from(2);
    };
    if let Some(path) = option("--replay") {
        let input = match std::fs::read(path) {
            Ok(input) => input,
            Err(e) => {
                eprintln!("{path}: {e}");
                return ExitCode::from(2);
            }
        };
        let (outcome, peak) = peak_of(|| (target.run)(&input));
        println!("{outcome}\n{peak} bytes at most for {} bytes of input", input.len());
        return ExitCode::SUCCESS;
    }
    let directory = Path::new(&std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".into()))
        .join("fuzz")
        .join(target.name);
    let limits = Limits {
        iterations: u64::MAX,
        time: Duration::from_secs(number("--seconds", 60)),
        input_time: Duration::from_secs(2),
        directory: Some(directory.clone()),
    };
    let report = run(target, number("--seed", 1), &limits);
    let (inputs, outcomes, branches) = (report.iterations, report.outcomes, report.branches);
    println!("{}: {inputs} inputs, {outcomes} different outcomes, {branches} branches", target.name);
    if let Some(folder) = option("--keep") {
        let kept = distil(target, report.kept, number("--bytes", 30_000) as usize);
        std::fs::create_dir_all(folder).expect("a folder for inputs");
        for (i, input) in kept.iter().enumerate() {
            std::fs::write(Path::new(folder).join(format!("{i:03}")), input).expect("inputs can be written");
        }
        println!("{} inputs are kept", kept.len());
    }
    for (i, finding) in report.findings.iter().enumerate() {
        println!("{}/finding-{i}: {}", directory.display(), finding.what);
    }
    if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
