//! Process start to first output, peak memory, load time, run time and size, next to ONNX Runtime.
//!
//! `cargo run --release -p numrsc-benches --bin start [NAME…]`. Both sides are programs of their own that read the same inputs, and
//! they take turns, so that whatever else the machine does hits both. Ratios are ours ÷ theirs: below 1 is better for us.
use clap::Parser;
use numrsc::{compile::Options, conformance::Settings};
use numrsc_benches::{
    driver::{self, Outcome, Result},
    exit_code,
    table::{Table, median, short},
};
use serde_json::{Value, json};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

/// Start-up, memory and run time of models, next to ONNX Runtime.
#[derive(Parser)]
struct Args {
    /// Only models whose name contains one of these.
    names: Vec<String>,
    /// Threads on each side.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// How often each side runs; medians are reported. One more round warms up and compares the outputs.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Runs after the first in each round, as far as --seconds allows.
    #[arg(long, default_value_t = 20)]
    runs: usize,
    /// Time for the runs after the first in each round.
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,
    /// Seconds after which compiling or running a model is given up.
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// Another ONNX Runtime than that of the corpus.
    #[arg(long)]
    library: Option<PathBuf>,
    /// Print a line of JSON per model instead of a table.
    #[arg(long)]
    json: bool,
    /// Print the table as Markdown.
    #[arg(long)]
    markdown: bool,
    #[arg(long, hide = true, num_args = 2)]
    prepare: Option<Vec<PathBuf>>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code(match &args.prepare {
        Some(paths) => driver::with_large_stack(|| driver::prepare(&paths[0], &paths[1], &Options::default()))
            .flatten()
            .map(|report| println!("{report}")),
        None => compare_all(&args),
    })
}

struct Setup<'a> {
    args: &'a Args,
    library: PathBuf,
    ours: PathBuf,
    theirs: PathBuf,
}

/// What one side took: medians over the rounds.
#[derive(Debug)]
struct Side {
    first_output_ms: f64,
    load_ms: f64,
    peak_mb: f64,
    run_ms: f64,
    size_mb: f64,
}

impl Side {
    fn json(&self) -> Value {
        json!({
            "first_output_ms": self.first_output_ms,
            "load_ms": self.load_ms,
            "peak_mb": self.peak_mb,
            "run_ms": self.run_ms,
            "size_mb": self.size_mb,
        })
    }

    fn numbers(&self) -> [f64; 5] {
        [self.first_output_ms, self.peak_mb, self.load_ms, self.run_ms, self.size_mb]
    }
}

/// What a round may read from disk.
const MAX_DISK_READ_KB: u64 = 64;
const WHAT: [&str; 5] = ["first output", "peak memory", "load", "run", "size"];

fn compare_all(args: &Args) -> Result<()> {
    let library = args.library.clone().map_or_else(driver::ort_library, Ok)?;
    let [ours, theirs] = &driver::build_programs(&["ours_run", "ort_run"])?[..] else { unreachable!("two programs") };
    let setup = Setup { args, library, ours: ours.clone(), theirs: theirs.clone() };
    let mut table = Table::new(&[
        "model",
        "first output: ours ms",
        "theirs ms",
        "ratio",
        "peak: ours MB",
        "theirs MB",
        "ratio",
        "load: ours ms",
        "theirs ms",
        "ratio",
        "run: ours ms",
        "theirs ms",
        "ratio",
        "artifact MB",
        "model and library MB",
        "ratio",
        "remark",
    ]);
    let mut ratios: Vec<(String, [f64; 5])> = vec![];
    let (mut models, mut wrong) = (0, vec![]);
    for folder in driver::corpus_models()? {
        let name = driver::name_of(&folder);
        if !args.names.is_empty() && !args.names.iter().any(|n| name.contains(&n[..])) {
            continue;
        }
        models += 1;
        eprint!("{name}                              \r");
        match compare_model(&folder, &setup) {
            Ok((ours, theirs, same)) => {
                let remark = same.as_ref().err().map(|e| format!("outputs differ: {}", one_line(e)));
                if args.json {
                    println!(
                        "{}",
                        json!({"model": name, "ours": ours.json(), "theirs": theirs.json(), "remark": remark})
                    );
                }
                let pairs: Vec<(f64, f64)> = ours.numbers().into_iter().zip(theirs.numbers()).collect();
                let mut cells = vec![name.clone()];
                pairs.iter().for_each(|(a, b)| cells.extend([short(*a), short(*b), short(a / b)]));
                cells.push(remark.clone().unwrap_or_default());
                table.row(cells);
                match remark {
                    None => ratios.push((name, std::array::from_fn(|i| pairs[i].0 / pairs[i].1))),
                    Some(_) => wrong.push(name),
                }
            }
            Err(message) => {
                if args.json {
                    println!("{}", json!({"model": name, "remark": message}));
                }
                let mut cells = vec![name.clone()];
                cells.resize(16, String::new());
                cells.push(one_line(&message));
                table.row(cells);
                wrong.push(name);
            }
        }
    }
    if !args.json {
        table.print(args.markdown);
        summary(&ratios, models, &wrong);
    }
    Ok(())
}

/// How it looks on the whole, and where it is worst.
fn summary(ratios: &[(String, [f64; 5])], models: usize, wrong: &[String]) {
    println!();
    println!("{} of {models} models compile, run and agree with ONNX Runtime. Ratios ours ÷ theirs:", ratios.len());
    for (i, what) in WHAT.iter().enumerate() {
        let all: Vec<f64> = ratios.iter().map(|(_, r)| r[i]).collect();
        let below = all.iter().filter(|r| **r < 1.0).count();
        let worst = ratios.iter().max_by(|a, b| a.1[i].total_cmp(&b.1[i]));
        let worst = worst.map_or(String::new(), |(name, r)| format!("{} ({name})", short(r[i])));
        println!("- {what}: median {}, below 1 for {below} of {}, worst {worst}", short(median(all)), ratios.len());
    }
    if !wrong.is_empty() {
        println!("- left out: {}", wrong.join(", "));
    }
}

/// The first line that says something; of a panic, where and what.
fn one_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    let first = lines.next().unwrap_or("");
    let line = match first.split_once("panicked at ") {
        Some((before, place)) => {
            let before = before.split("thread ").next().unwrap_or("");
            format!("{before}panic at {place} {}", lines.next().unwrap_or(""))
        }
        None => first.to_owned(),
    };
    let line = line.replace('|', "\\|");
    if line.chars().count() > 160 { line.chars().take(159).chain(['…']).collect() } else { line }
}

/// Both sides of a model, and whether their outputs agree.
fn compare_model(folder: &Path, setup: &Setup<'_>) -> Result<(Side, Side, Result<()>)> {
    let work = driver::work_folder(&format!("start/{}", driver::name_of(folder)))?;
    let (model, artifact) = (folder.join("model.onnx"), work.join("model.nrsc"));
    let limit = Duration::from_secs(setup.args.limit);
    let this = env::current_exe().map_err(|e| e.to_string())?;
    if !is_newer(&artifact, &[&this, &model]) {
        let mut prepare = Command::new(&this);
        prepare.arg("--prepare").arg(folder).arg(&work);
        driver::run_compiler(&mut prepare, limit).map_err(|e| format!("does not compile yet: {e}"))?;
    }
    let inputs = driver::numbered(&work, "input");
    let run = |program: &Path, model: &Path, outputs: Option<&Path>| -> Result<Outcome> {
        let mut command = Command::new(program);
        command.arg(model).arg("--library").arg(&setup.library);
        inputs.iter().for_each(|path| {
            command.arg("--input").arg(path);
        });
        command.args(["--threads", &setup.args.threads.to_string(), "--runs", &setup.args.runs.to_string()]);
        command.args(["--seconds", &setup.args.seconds.to_string()]);
        if let Some(folder) = outputs {
            command.arg("--outputs").arg(folder);
        }
        driver::run_child(&mut command, limit)
    };
    let sides = [(&setup.ours, &artifact, "ours"), (&setup.theirs, &model, "theirs")];
    for (program, model, side) in sides {
        let outputs = work.join(side);
        let _ = fs::remove_dir_all(&outputs);
        fs::create_dir_all(&outputs).map_err(|e| e.to_string())?;
        run(program, model, Some(&outputs)).map_err(|e| format!("{side}: {e}"))?;
    }
    let settings = Settings::of(folder)?;
    let [ours, theirs] = ["ours", "theirs"].map(|side| driver::numbered(&work.join(side), "output"));
    // The expected outputs are those of ONNX Runtime without graph optimisation: of quantised models its own optimisations may give
    // others.
    let same = driver::compare(&ours, &theirs, &settings)
        .or_else(|e| driver::compare(&ours, &driver::numbered(&work, "expected"), &settings).map_err(|_| e));

    // A machine that is short of memory drops files; what then comes from disk would be measured instead of the programs. Such
    // rounds count for neither side.
    let mut outcomes = [vec![], vec![]];
    for round in 0..3 * setup.args.rounds {
        if outcomes[0].len() == setup.args.rounds {
            break;
        }
        for file in [&setup.ours, &setup.theirs, &setup.library, &artifact, &model].into_iter().chain(&inputs) {
            driver::read_all(file)?;
        }
        let mut pair = [None, None];
        // Take turns in who is first as well.
        for i in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let (program, model, side) = sides[i];
            pair[i] = Some(run(program, model, None).map_err(|e| format!("{side}: {e}"))?);
        }
        let clean = |o: &Outcome| o.report["disk_read_kb"].as_u64().unwrap_or(0) <= MAX_DISK_READ_KB;
        if let [Some(ours), Some(theirs)] = pair
            && clean(&ours)
            && clean(&theirs)
        {
            outcomes[0].push(ours);
            outcomes[1].push(theirs);
        }
    }
    if outcomes[0].is_empty() {
        return Err("the files do not stay in memory".into());
    }
    let library = driver::file_size(&setup.library);
    let sizes = [driver::file_size(&artifact), driver::file_size(&model) + library];
    let [ours, theirs] = [0, 1].map(|i| side(&outcomes[i], sizes[i]));
    Ok((ours, theirs, same))
}

fn is_newer(file: &Path, than: &[&Path]) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).ok();
    time(file).is_some_and(|t| than.iter().all(|path| time(path).is_some_and(|other| other < t)))
}

fn side(outcomes: &[Outcome], bytes: u64) -> Side {
    let field = |name: &str| median(outcomes.iter().filter_map(|o| o.report[name].as_f64()));
    let runs = outcomes.iter().flat_map(|o| o.report["runs_us"].as_array().into_iter().flatten());
    Side {
        first_output_ms: median(outcomes.iter().map(|o| o.first_line.as_secs_f64() * 1e3)),
        load_ms: field("load_us") / 1e3,
        peak_mb: field("peak_kb") / 1e3,
        run_ms: median(runs.filter_map(Value::as_f64)) / 1e3,
        size_mb: bytes as f64 / 1e6,
    }
}
