//! Compares numrsc with other engines on every model of the corpus.
//!
//! `cargo run --release -p numrsc-benches --bin compare [NAME…]`. Installs the peers below the target directory, runs all
//! engines alternately, each run in a process of its own, and writes tables and a chart. Ratios are theirs ÷ ours: above 1
//! is better for us. A peer whose outputs differ from those of ONNX Runtime gets a remark instead of a number.
use clap::Parser;
use numrsc::conformance::Settings;
use numrsc_benches::{
    chart, document,
    driver::{self, Prepared, Result},
    exit_code, flops,
    peers::{self, Installed, Peer},
    results::{self, Row},
    rounds::{Contest, Contestant, Expected, Side, Timing},
    table::Format,
};
use serde_json::Value;
use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Compares numrsc with other engines.
#[derive(Parser)]
struct Args {
    /// Only models whose name contains one of these.
    names: Vec<String>,
    /// Threads of each engine.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// The engines to compare with.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ort,openvino,tract,rten,iree")]
    peers: Vec<Peer>,
    #[command(flatten)]
    timing: Timing,
    /// Write a line of JSON per model and number of threads to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Measure nothing: print the results that --json wrote.
    #[arg(long, conflicts_with_all = ["json", "names"])]
    from: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Draw the ratios into this SVG file.
    #[arg(long)]
    chart: Option<PathBuf>,
    /// Publish: data in benches/results, summaries and chart in docs.
    #[arg(long)]
    docs: bool,
    #[arg(long, hide = true, num_args = 2)]
    prepare: Option<Vec<PathBuf>>,
}

/// The name of the data file and of the block in the documentation.
const BENCHMARK: &str = "compare";
/// How long the processor's peak is measured.
const PEAK_SECONDS: f64 = 2.0;

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code(match &args.prepare {
        Some(paths) => driver::prepare_child(paths),
        None => report(&args),
    })
}

fn report(args: &Args) -> Result<()> {
    let rows = match &args.from {
        Some(path) => read(path)?,
        None => measure_all(args)?,
    };
    if rows.is_empty() {
        return Err("there is no such model".into());
    }
    let charts = args.chart.iter().cloned().chain(args.docs.then(|| document::page("compare.svg")));
    for path in charts {
        fs::write(&path, chart::svg(&rows)).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    if args.docs {
        let measured = &rows[0].measured;
        document::write_data(BENCHMARK, measured, &results::tables(&rows, Format::Tsv))?;
        let page = document::page("benchmarks.md");
        document::write_headlines(&page, BENCHMARK, measured, &results::summaries(&rows))?;
    }
    args.format.print_note(&format!("Measured on {}.\n", rows[0].measured));
    print!("{}", results::tables(&rows, args.format));
    Ok(())
}

fn read(path: &Path) -> Result<Vec<Row>> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let row = |(i, line)| serde_json::from_str(line).map_err(|e| format!("{}, line {}: {e}", path.display(), i + 1));
    text.lines().enumerate().map(row).collect()
}

/// The programs that take part.
struct Engines {
    ours: PathBuf,
    peers: Vec<Installed>,
}

fn measure_all(args: &Args) -> Result<Vec<Row>> {
    if args.threads.contains(&0) {
        return Err("--threads: at least 1".into());
    }
    let peers = args.peers.iter().map(|&peer| peers::install(peer)).collect::<Result<_>>()?;
    let engines = Engines { ours: peers::own("ours_run")?, peers };
    let peaks: Vec<(usize, f64)> = args.threads.iter().map(|&t| (t, flops::best_peak(t, PEAK_SECONDS))).collect();
    let create = |path: &PathBuf| File::create(path).map_err(|e| format!("{}: {e}", path.display()));
    let mut json = args.json.as_ref().map(create).transpose()?;
    let mut rows = vec![];
    for model in driver::corpus_models()? {
        let name = driver::name_of(&model);
        if !args.names.is_empty() && !args.names.iter().any(|n| name.contains(&n[..])) {
            continue;
        }
        eprint!("{name}                              \r");
        for row in measure(&model, &engines, &peaks, &args.timing)? {
            if let Some(file) = &mut json {
                let line = serde_json::to_string(&row).map_err(|e| e.to_string())?;
                writeln!(file, "{line}").map_err(|e| e.to_string())?;
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Measures a model at each number of threads.
fn measure(folder: &Path, engines: &Engines, peaks: &[(usize, f64)], timing: &Timing) -> Result<Vec<Row>> {
    let prepared = driver::prepared(folder, timing.limit());
    let info = fs::read_to_string(folder.join("info.json")).unwrap_or_default();
    let info: Value = serde_json::from_str(&info).unwrap_or_default();
    let row = |&(threads, peak_gflops): &(usize, f64)| -> Result<Row> {
        let mut row = Row {
            measured: document::circumstances()?,
            model: driver::name_of(folder),
            threads,
            quantised: info["quantised"] == true,
            gflop: f64::NAN,
            peak_gflops,
            ours: Err(String::new()),
            peers: vec![],
        };
        let turns = prepared.as_ref().map_err(Clone::clone).and_then(|prepared| {
            row.gflop = prepared.report["gflop"].as_f64().unwrap_or(f64::NAN);
            let contest = Contest { inputs: prepared.inputs.clone(), threads, timing };
            take_turns(folder, prepared, engines, &contest)
        });
        match turns {
            Ok((ours, theirs)) => {
                row.ours = ours;
                row.peers = engines.peers.iter().map(|installed| installed.peer).zip(theirs).collect();
            }
            Err(message) => row.ours = Err(message),
        }
        Ok(row)
    };
    peaks.iter().map(row).collect()
}

/// Measures our program and all peers whose outputs are right.
fn take_turns(
    folder: &Path,
    prepared: &Prepared,
    engines: &Engines,
    contest: &Contest<'_>,
) -> Result<(Result<Side>, Vec<Result<Side>>)> {
    let model = folder.join("model.onnx");
    let ours = peers::ourselves(&engines.ours, prepared);
    let theirs = engines.peers.iter().map(|installed| installed.contestant(&model, prepared));
    let all: Vec<Result<Contestant>> = std::iter::once(Ok(ours)).chain(theirs).collect();
    let outputs: Vec<Result<Vec<PathBuf>>> = all
        .iter()
        .map(|c| c.as_ref().map_err(Clone::clone).and_then(|c| contest.outputs(c, &prepared.folder.join(c.name))))
        .collect();
    let plain = driver::numbered(&prepared.folder, "expected");
    let ort = engines.peers.iter().position(|installed| installed.peer == Peer::Ort);
    let measured = ort.and_then(|i| outputs[1 + i].as_ref().ok()).unwrap_or(&plain);
    let expected = Expected { measured, plain: &plain, settings: &Settings::of(folder)? };
    let checked: Vec<Result<&Contestant>> = all
        .iter()
        .zip(&outputs)
        .enumerate()
        .map(|(i, (contestant, got))| {
            expected.check(got.as_ref().map_err(Clone::clone)?, i > 0)?;
            contestant.as_ref().map_err(Clone::clone)
        })
        .collect();
    let right: Vec<Contestant> = checked.iter().filter_map(|c| c.as_ref().ok()).map(|c| (*c).clone()).collect();
    let mut measured = contest.rounds(&right)?.into_iter();
    let side = |c: Result<&Contestant>| c.and_then(|_| measured.next().ok_or("was not measured")?);
    let mut sides = checked.into_iter().map(side);
    Ok((sides.next().ok_or("nobody takes part")?, sides.collect()))
}
