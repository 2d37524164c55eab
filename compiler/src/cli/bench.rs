//! `numrsc bench`: size, load time and run time.
use super::{
    BuildArgs, CodeBackend, Failure, Given, ImportArgs, Outcome, TimeArgs, bytes, compile,
    run::load_artifact,
    seconds, table,
    terminal::{self, say},
    thread_count,
    values::{self, Inputs},
};
use numrsc::{native, output::artifact::read_artifact};
use numrsc_runtime::Context;
use std::{
    num::NonZeroUsize,
    path::PathBuf,
    time::{Duration, Instant},
};

/// Measure a model or an artifact: size, time to compile, load and run, memory
///
/// Inputs that are not given are made from a fixed seed: floats in 0..1, integers 0 or 1. Dimensions that --dim does not fix are
/// 1 for batches (by their name, or because they are the first axis wherever they are used), and 64 otherwise.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An ONNX or NumRs file, or an artifact of `numrsc compile`
    model: PathBuf,
    /// The value of an input: a .npy file, a .pb file as in ONNX test data, or `zeros` or `random`
    #[arg(long = "input", value_name = "NAME=FILE", value_parser = values::parse_input)]
    inputs: Vec<(String, PathBuf)>,
    /// Threads that run the model [default: as many as the process may use]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Number of runs [default: as many as fit into two seconds, at least 10 and at most 1000]
    #[arg(long, value_name = "N")]
    runs: Option<NonZeroUsize>,
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

const SEED: u64 = 1;
const LONG_ENOUGH: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &Args, given: &Given, quiet: bool) -> Result<Outcome, Failure> {
    let notes = !quiet && !args.json;
    let mut compile_time = None;
    // Lives as long as the model that is mapped from it.
    let mut compiled = None;
    let (file, ports) = if let Some(content) = read_artifact(&args.model)? {
        given.fit_artifact(&args.model)?;
        let broken = |e| Failure::Other(format!("{}: {e}", args.model.display()));
        let artifact = numrsc_runtime::Artifact::parse(&content).map_err(broken)?;
        args.import.fit(&artifact.manifest)?;
        (args.model.clone(), values::inputs_of_artifact(&artifact.manifest)?)
    } else {
        let start = Instant::now();
        let (source, func, _) = compile::load(&args.model, &args.import.options(), !notes)?;
        let options = args.build.options(args.backend.generator(), None, !notes);
        let artifact = compile::build(&func, &args.model, &options, !notes)?;
        let file = tempfile::NamedTempFile::new().map_err(|e| format!("temporary files: {e}"))?;
        artifact.write(file.path())?;
        compile_time = Some(start.elapsed());
        let path = file.path().to_owned();
        compiled = Some(file);
        (path, values::inputs_of_model(&source, &func))
    };
    let artifact_bytes = std::fs::metadata(&file).map_or(0, |m| m.len());

    let inputs = values::gather(&ports, &args.inputs, &args.import.dims, Some(SEED), "give --input NAME=FILE")?;

    // The peak of running, not of compiling: Linux can reset it.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let start = Instant::now();
    let model = load_artifact(&file)?;
    let failed = |e: numrsc_runtime::Error| Failure::Other(e.to_string());
    let mut context = Context::with_threads(&model, thread_count(args.threads)).map_err(failed)?;
    let load_time = start.elapsed();
    drop(compiled);
    let canceller = context.canceller();
    // Later runs do the same.
    let first_ends = args.time.begin(move || canceller.cancel());
    let times = native::with_inputs(&inputs.values, |tensors| -> Result<Vec<Duration>, Failure> {
        // The first run allocates memory and starts threads.
        model.run_in_order(&mut context, tensors).map_err(|e| did_not_run(args, &inputs, &e))?;
        drop(first_ends);
        let (mut times, begin) = (Vec::new(), Instant::now());
        loop {
            let start = Instant::now();
            model.run_in_order(&mut context, tensors).map_err(failed)?;
            times.push(start.elapsed());
            let enough = match args.runs {
                Some(runs) => times.len() >= runs.get(),
                None => times.len() >= 1000 || (times.len() >= 10 && begin.elapsed() > LONG_ENOUGH),
            };
            if enough {
                return Ok(times);
            }
        }
    })??;
    let measured = Measured {
        args,
        artifact_bytes,
        compile_time,
        load_time,
        threads: context.threads(),
        shapes: ports.iter().map(|port| port.name.clone()).zip(inputs.types()).collect(),
        inputs,
        times: Times::new(times),
        memory: context.memory_bytes(),
        peak: peak_memory(),
    };
    if args.json {
        terminal::print_json(&measured.json());
    } else {
        measured.people();
    }
    Ok(Outcome::Success)
}

/// Default sizes and inputs may not suit the model.
fn did_not_run(args: &Args, inputs: &Inputs, e: &numrsc_runtime::Error) -> Failure {
    let hint = match &inputs.sizes_text()[..] {
        "" if args.inputs.is_empty() => "\nhint: give real inputs with --input NAME=FILE".to_owned(),
        "" => String::new(),
        sizes => format!("\nhint: it ran with {sizes}; --dim NAME=SIZE or --input NAME=FILE give others"),
    };
    Failure::Other(format!("{}: {}{hint}", args.model.display(), terminal::line(&e.to_string())))
}

struct Measured<'a> {
    args: &'a Args,
    artifact_bytes: u64,
    /// From the file of a model to that of its artifact.
    compile_time: Option<Duration>,
    load_time: Duration,
    threads: usize,
    /// Names and types of the inputs.
    shapes: Vec<(String, String)>,
    inputs: Inputs,
    times: Times,
    memory: usize,
    peak: Option<u64>,
}

impl Measured<'_> {
    fn people(&self) {
        let t = &self.times;
        say!("{}", self.args.model.display());
        let mut rows = vec![vec!["artifact".to_owned(), bytes(self.artifact_bytes as usize)]];
        let mut row = |name: &str, text: String| rows.push(vec![name.to_owned(), text]);
        if let Some(time) = self.compile_time {
            row("compile", seconds(time));
        }
        row("load", seconds(self.load_time));
        let shapes: Vec<String> = self.shapes.iter().map(|(name, ty)| format!("{name} {ty}")).collect();
        row("inputs", if shapes.is_empty() { "none".to_owned() } else { shapes.join(", ") });
        if !self.inputs.sizes.is_empty() {
            row("dims", self.inputs.sizes_text());
        }
        row("threads", self.threads.to_string());
        row("runs", t.sorted.len().to_string());
        let part = |p: f64| seconds(t.percentile(p));
        row("run", format!("best {}, p50 {}, p90 {}, p99 {}", seconds(t.best()), part(0.5), part(0.9), part(0.99)));
        row("throughput", format!("{:.1} runs/s", t.throughput()));
        row("memory", format!("{} for a run, besides inputs and weights", bytes(self.memory)));
        row("peak memory", self.peak.map_or_else(|| "not known on this system".into(), |n| bytes(n as usize)));
        table::print(&rows, "  ");
    }

    fn json(&self) -> serde_json::Value {
        let t = &self.times;
        serde_json::json!({
            "model": self.args.model.display().to_string(),
            "artifact_bytes": self.artifact_bytes,
            "compile_seconds": self.compile_time.map(|t| t.as_secs_f64()),
            "load_seconds": self.load_time.as_secs_f64(),
            "dims": self.inputs.sizes,
            "inputs": self.shapes.iter().map(|(name, ty)| serde_json::json!({ "name": name, "type": ty })).collect::<Vec<_>>(),
            "threads": self.threads,
            "runs": t.sorted.len(),
            "best_seconds": t.best().as_secs_f64(),
            "p50_seconds": t.percentile(0.5).as_secs_f64(),
            "p90_seconds": t.percentile(0.9).as_secs_f64(),
            "p99_seconds": t.percentile(0.99).as_secs_f64(),
            "runs_per_second": t.throughput(),
            "context_bytes": self.memory,
            "peak_memory_bytes": self.peak,
        })
    }
}

/// At least one time.
struct Times {
    sorted: Vec<Duration>,
}

impl Times {
    fn new(mut times: Vec<Duration>) -> Times {
        times.sort_unstable();
        Times { sorted: times }
    }

    fn best(&self) -> Duration {
        self.percentile(0.0)
    }

    /// The percentile: the smallest time that this share of runs did not exceed.
    fn percentile(&self, part: f64) -> Duration {
        let rank = (part * self.sorted.len() as f64).ceil() as usize;
        self.sorted.get(rank.max(1) - 1).copied().unwrap_or_default()
    }

    fn throughput(&self) -> f64 {
        self.sorted.len() as f64 / self.sorted.iter().sum::<Duration>().as_secs_f64()
    }
}

/// The most memory that the process had since it was asked to count.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|n| n * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let times = Times::new((1..=100).rev().map(Duration::from_millis).collect());
        let ms = |part| times.percentile(part).as_millis();
        assert_eq!((ms(0.0), ms(0.5), ms(0.9), ms(0.99), ms(1.0)), (1, 50, 90, 99, 100));
        let one = Times::new(vec![Duration::from_millis(7)]);
        assert_eq!((one.best(), one.percentile(0.99)), (Duration::from_millis(7), Duration::from_millis(7)));
    }
}
