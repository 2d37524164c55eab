//! `numrsc bench`: size, load time and run time of one model, or of several compared.
mod subject;
mod times;

use super::{BuildArgs, CodeBackend, Failure, Given, ImportArgs, Outcome, TimeArgs, parse_seconds, terminal, values};
use std::{collections::BTreeSet, num::NonZeroUsize, path::PathBuf, time::Duration};
use subject::{Subject, build, compare, compare_json};
use times::Times;

/// Measure models and artifacts: size, time to compile, load and run, memory
///
/// Several models run in turns, so that other load on the machine affects all of them alike, and are compared with the first. Inputs that are not given are made from a fixed
/// seed: floats in 0..1, integers 0 or 1. Dimensions that --dim does not fix are 1 for batches (by their name, or because they are the first axis wherever they are used),
/// and 64 otherwise.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// ONNX or NumRs files, or artifacts of `numrsc compile`
    #[arg(required = true)]
    models: Vec<PathBuf>,
    /// The value of an input: a .npy file, an array of an .npz file as FILE.npz:KEY, a .pb file as in ONNX test data, or `zeros` or `random`
    #[arg(long = "input", value_name = "NAME=FILE", value_parser = values::parse_input)]
    inputs: Vec<(String, PathBuf)>,
    /// Threads that run the models [default: as many as the process may use]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// How long to run each model, at least 10 times
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = parse_seconds)]
    duration: Duration,
    /// How often to run each model, in place of how long
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    runs: Option<NonZeroUsize>,
    /// How long to run each model before measuring, at least once
    #[arg(long, value_name = "SECONDS", default_value = "0.2", value_parser = parse_seconds)]
    warm_up: Duration,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// What generates code for a model
    #[arg(long, value_enum, default_value_t)]
    backend: CodeBackend,
    #[command(flatten)]
    time: TimeArgs,
    #[command(flatten)]
    import: ImportArgs,
    #[command(flatten)]
    build: BuildArgs,
}

/// Long enough for the caches to hold the data of one model, short enough for changes of the clock rate to affect all models alike.
const TURN: Duration = Duration::from_millis(20);
const FEWEST_RUNS: usize = 10;

pub(crate) fn run(args: &Args, given: &Given, quiet: bool) -> Result<Outcome, Failure> {
    let notes = !quiet && !args.json;
    given.fit_artifacts(&args.models)?;
    let mut prepared = vec![];
    for file in &args.models {
        prepared.push(build(file, args, notes)?);
    }
    let known: BTreeSet<&str> = prepared.iter().flat_map(|(_, ports)| ports.iter().map(|p| &p.name[..])).collect();
    let inputs_of = |ports: &[values::Port]| -> Vec<(String, PathBuf)> {
        // A name that no model has is an error of the first.
        let wanted = |name: &str| ports.iter().any(|p| p.name == name) || !known.contains(name);
        args.inputs.iter().filter(|(name, _)| wanted(name)).cloned().collect()
    };

    // The peak of running, not of compiling: Linux can reset it.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let mut subjects = vec![];
    for (file, (built, ports)) in args.models.iter().zip(&prepared) {
        subjects.push(Subject::new(file, args, &inputs_of(ports), ports, built)?);
    }
    for subject in &mut subjects {
        subject.warm_up(args)?;
    }
    // Before the measured times take up memory.
    let peak = if subjects.len() == 1 { peak_memory() } else { None };
    loop {
        let mut all_done = true;
        for subject in &mut subjects {
            let (runs, time) = subject.done();
            let missing = match args.runs {
                Some(wanted) => wanted.get() - runs,
                None if runs >= FEWEST_RUNS && time >= args.duration => 0,
                None => usize::MAX,
            };
            if missing > 0 {
                subject.turn(missing, TURN)?;
                all_done = false;
            }
        }
        if all_done {
            break;
        }
    }
    let measured: Vec<_> = subjects.into_iter().map(|subject| subject.measured(peak)).collect();
    match (&measured[..], args.json) {
        ([one], true) => terminal::print_json(&one.json()),
        ([one], false) => one.people(),
        (all, true) => terminal::print_json(&compare_json(all)),
        (all, false) => compare(all),
    }
    Ok(Outcome::Success)
}

/// The most memory that the process had since it was asked to count.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|n| n * 1024)
}
