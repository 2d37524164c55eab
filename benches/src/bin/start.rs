//! Time from process start to first output, peak memory, load time, run time and size, next to ONNX Runtime.
//!
//! `cargo run --release -p numrsc-benches --bin start [NAME…]`. Both sides are programs of their own that read the same inputs, and
//! they take turns, so that whatever else the machine does hits both. Ratios are ours ÷ theirs: below 1 is better for us.
use clap::Parser;
use numrsc::conformance::Settings;
use numrsc_benches::{
    driver::{self, Result},
    exit_code,
    rounds::{Contest, Contestant, Expected, Side, Timing, one_line},
    table::{Format, Table, median, short},
};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Start-up, memory and run time of models, next to ONNX Runtime.
#[derive(Parser)]
struct Args {
    /// Only models whose name contains one of these.
    names: Vec<String>,
    /// Threads on each side.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    #[command(flatten)]
    timing: Timing,
    /// Another ONNX Runtime than that of the corpus.
    #[arg(long)]
    library: Option<PathBuf>,
    /// Print a line of JSON per model instead of a table.
    #[arg(long)]
    json: bool,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[arg(long, hide = true, num_args = 2)]
    prepare: Option<Vec<PathBuf>>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code(match &args.prepare {
        Some(paths) => driver::prepare_child(paths),
        None => compare_all(&args),
    })
}

struct Setup<'a> {
    args: &'a Args,
    library: PathBuf,
    ours: PathBuf,
    theirs: PathBuf,
}

fn numbers(side: &Side) -> [f64; 5] {
    [side.first_output_ms, side.peak_mb, side.load_ms, side.run_ms, side.size_mb]
}

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
                let remark = same.as_ref().err().map(|e| one_line(e));
                if args.json {
                    println!("{}", json!({"model": name, "ours": ours, "theirs": theirs, "remark": remark}));
                }
                let pairs: Vec<(f64, f64)> = numbers(&ours).into_iter().zip(numbers(&theirs)).collect();
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
        table.print(args.format);
        args.format.print_note(&summary(&ratios, models, &wrong));
    }
    Ok(())
}

/// Medians and worst cases over all models.
fn summary(ratios: &[(String, [f64; 5])], models: usize, wrong: &[String]) -> String {
    let count = ratios.len();
    let mut text =
        format!("\n{count} of {models} models compile, run and agree with ONNX Runtime. Ratios ours ÷ theirs:");
    for (i, what) in WHAT.iter().enumerate() {
        let all: Vec<f64> = ratios.iter().map(|(_, r)| r[i]).collect();
        let below = all.iter().filter(|r| **r < 1.0).count();
        let worst = ratios.iter().max_by(|a, b| a.1[i].total_cmp(&b.1[i]));
        let worst = worst.map_or(String::new(), |(name, r)| format!("{} ({name})", short(r[i])));
        text += &format!("\n- {what}: median {}, below 1 for {below} of {count}, worst {worst}", short(median(all)));
    }
    if !wrong.is_empty() {
        text += &format!("\n- left out: {}", wrong.join(", "));
    }
    text
}

/// Measures both sides of a model, and compares their outputs.
fn compare_model(folder: &Path, setup: &Setup<'_>) -> Result<(Side, Side, Result<()>)> {
    let timing = &setup.args.timing;
    let prepared = driver::prepared(folder, timing.limit())?;
    let model = folder.join("model.onnx");
    let contestant = |name, program: &Path, library: Option<&PathBuf>, model: &Path| Contestant {
        name,
        program: program.to_path_buf(),
        library: library.cloned(),
        model: model.to_path_buf(),
        bytes: driver::file_size(model) + library.map_or(0, |l| driver::file_size(l)),
        compile_ms: None,
        alone: None,
    };
    let sides = [
        contestant("ours", &setup.ours, None, &prepared.artifact),
        contestant("theirs", &setup.theirs, Some(&setup.library), &model),
    ];
    let contest = Contest { inputs: prepared.inputs, threads: setup.args.threads, timing };
    let [ours, theirs] = [0, 1].map(|i| {
        let name = sides[i].name;
        contest.outputs(&sides[i], &prepared.folder.join(name)).map_err(|e| format!("{name}: {e}"))
    });
    let (ours, theirs) = (ours?, theirs?);
    let plain = driver::numbered(&prepared.folder, "expected");
    let expected = Expected { measured: &theirs, plain: &plain, settings: &Settings::of(folder)? };
    let same = expected.check(&ours, false);
    let measured: Vec<Side> = contest
        .rounds(&sides)?
        .into_iter()
        .zip(&sides)
        .map(|(side, c)| side.map_err(|e| format!("{}: {e}", c.name)))
        .collect::<Result<_>>()?;
    let [ours, theirs] = measured.try_into().map_err(|_| "there are two sides")?;
    Ok((ours, theirs, same))
}
