//! One model or artifact that is measured: compiled if it has to be, loaded, and run in turns with the others.
use super::{Args, Times};
use crate::cli::{
    Failure, bytes, compile, run::load_artifact, seconds, table, terminal, terminal::say, thread_count, values,
    values::Inputs,
};
use numrsc::{native, output::artifact::read_artifact};
use numrsc_runtime::{Context, Model};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const SEED: u64 = 1;

/// A model that is ready to be measured.
pub(super) struct Subject<'a> {
    file: &'a Path,
    artifact_bytes: u64,
    /// From the file of a model to that of its artifact.
    compile_time: Option<Duration>,
    load_time: Duration,
    /// Names and types of the inputs.
    shapes: Vec<(String, String)>,
    inputs: Inputs,
    model: Model,
    context: Context,
    times: Vec<Duration>,
}

impl<'a> Subject<'a> {
    /// `given` are the inputs on the command line that this model has.
    pub(super) fn new(
        file: &'a Path,
        args: &Args,
        given: &[(String, PathBuf)],
        ports: &[values::Port],
        built: &Built,
    ) -> Result<Subject<'a>, Failure> {
        let path = built.file.as_ref().map_or(file, tempfile::NamedTempFile::path);
        let artifact_bytes = std::fs::metadata(path).map_or(0, |m| m.len());
        let inputs = values::gather(ports, given, &args.import.dims, Some(SEED), "give --input NAME=FILE")?;
        let start = Instant::now();
        let model = load_artifact(path)?;
        let context = Context::with_threads(&model, thread_count(args.threads)).map_err(|e| e.to_string())?;
        Ok(Subject {
            file,
            artifact_bytes,
            compile_time: built.time,
            load_time: start.elapsed(),
            shapes: ports.iter().map(|port| port.name.clone()).zip(inputs.types()).collect(),
            inputs,
            model,
            context,
            times: vec![],
        })
    }

    /// The first run, which allocates memory and starts threads, and as many more as fit into the time.
    pub(super) fn warm_up(&mut self, args: &Args) -> Result<(), Failure> {
        let canceller = self.context.canceller();
        let Subject { model, context, inputs, .. } = self;
        let begin = Instant::now();
        let ran = native::with_inputs(&inputs.values, |tensors| {
            // Later runs do the same.
            let first_ends = args.time.begin(move || canceller.cancel());
            model.run_in_order(context, tensors)?;
            drop(first_ends);
            while begin.elapsed() < args.warm_up {
                model.run_in_order(context, tensors)?;
            }
            Ok(())
        })?;
        ran.map_err(|e| self.did_not_run(args, &e))
    }

    /// Run for a while: at least once, at most so often and about so long.
    pub(super) fn turn(&mut self, most: usize, time: Duration) -> Result<(), Failure> {
        let Subject { model, context, inputs, times, .. } = self;
        let begin = Instant::now();
        let ran = native::with_inputs(&inputs.values, |tensors| -> Result<(), numrsc_runtime::Error> {
            for _ in 0..most {
                let start = Instant::now();
                model.run_in_order(context, tensors)?;
                times.push(start.elapsed());
                if begin.elapsed() >= time {
                    break;
                }
            }
            Ok(())
        })?;
        Ok(ran.map_err(|e| e.to_string())?)
    }

    /// How often it ran, and for how long.
    pub(super) fn done(&self) -> (usize, Duration) {
        (self.times.len(), self.times.iter().sum())
    }

    /// Default sizes and inputs may not suit the model.
    fn did_not_run(&self, args: &Args, e: &numrsc_runtime::Error) -> Failure {
        let hint = match &self.inputs.sizes_text()[..] {
            "" if args.inputs.is_empty() => "\nhint: give real inputs with --input NAME=FILE".to_owned(),
            "" => String::new(),
            sizes => format!("\nhint: it ran with {sizes}; --dim NAME=SIZE or --input NAME=FILE give others"),
        };
        Failure::Other(format!("{}: {}{hint}", self.file.display(), terminal::line(&e.to_string())))
    }

    pub(super) fn measured(self, peak: Option<u64>) -> Measured<'a> {
        let (threads, memory) = (self.context.threads(), self.context.memory_bytes());
        let Subject { file, artifact_bytes, compile_time, load_time, shapes, inputs, times, .. } = self;
        let times = Times::new(times);
        Measured { file, artifact_bytes, compile_time, load_time, shapes, inputs, threads, memory, peak, times }
    }
}

/// What a model was compiled to, if it had to be.
pub(super) struct Built {
    /// Lives as long as the model that is mapped from it.
    file: Option<tempfile::NamedTempFile>,
    time: Option<Duration>,
}

/// Compile a model, or take an artifact as it is; and what its inputs are.
pub(super) fn build(file: &Path, args: &Args, notes: bool) -> Result<(Built, Vec<values::Port>), Failure> {
    if let Some(content) = read_artifact(file)? {
        let broken = |e| Failure::Other(format!("{}: {e}", file.display()));
        let artifact = numrsc_runtime::Artifact::parse(&content).map_err(broken)?;
        args.import.fit(&artifact.manifest)?;
        return Ok((Built { file: None, time: None }, values::inputs_of_artifact(&artifact.manifest)?));
    }
    let start = Instant::now();
    let (source, func, _) = compile::load(file, &args.import.options(), !notes)?;
    let options = args.build.options(args.backend.generator(), None, !notes);
    let artifact = compile::build(&func, file, &options, !notes)?;
    let written = tempfile::NamedTempFile::new().map_err(|e| format!("temporary files: {e}"))?;
    artifact.write(written.path())?;
    let built = Built { file: Some(written), time: Some(start.elapsed()) };
    Ok((built, values::inputs_of_model(&source, &func)))
}

/// All that there is to say of a model.
pub(super) struct Measured<'a> {
    file: &'a Path,
    artifact_bytes: u64,
    compile_time: Option<Duration>,
    load_time: Duration,
    shapes: Vec<(String, String)>,
    inputs: Inputs,
    threads: usize,
    memory: usize,
    /// Of the process, which tells something of the model if there is one only.
    peak: Option<u64>,
    times: Times,
}

impl Measured<'_> {
    /// How many times as fast as another one this is.
    fn ratio(&self, other: &Measured<'_>) -> f64 {
        other.times.percentile(0.5).as_secs_f64() / self.times.percentile(0.5).as_secs_f64()
    }

    pub(super) fn people(&self) {
        let t = &self.times;
        say!("{}", self.file.display());
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
        row("runs", t.count().to_string());
        let part = |p: f64| seconds(t.percentile(p));
        let (best, most) = (seconds(t.best()), seconds(t.worst()));
        row("run", format!("best {best}, p50 {}, p90 {}, p99 {}, max {most}", part(0.5), part(0.9), part(0.99)));
        row("mean", format!("{} ± {}", seconds(t.mean()), seconds(t.deviation())));
        row("throughput", format!("{:.1} runs/s", t.throughput()));
        row("memory", format!("{} for a run, besides inputs and weights", bytes(self.memory)));
        row("peak memory", self.peak.map_or_else(|| "not known on this system".into(), |n| bytes(n as usize)));
        table::print(&rows, "  ");
    }

    pub(super) fn json(&self) -> Value {
        let t = &self.times;
        json!({
            "model": self.file.display().to_string(),
            "artifact_bytes": self.artifact_bytes,
            "compile_seconds": self.compile_time.map(|t| t.as_secs_f64()),
            "load_seconds": self.load_time.as_secs_f64(),
            "dims": self.inputs.sizes,
            "inputs": self.shapes.iter().map(|(name, ty)| json!({ "name": name, "type": ty })).collect::<Vec<_>>(),
            "threads": self.threads,
            "runs": t.count(),
            "best_seconds": t.best().as_secs_f64(),
            "p50_seconds": t.percentile(0.5).as_secs_f64(),
            "p90_seconds": t.percentile(0.9).as_secs_f64(),
            "p99_seconds": t.percentile(0.99).as_secs_f64(),
            "max_seconds": t.worst().as_secs_f64(),
            "mean_seconds": t.mean().as_secs_f64(),
            "deviation_seconds": t.deviation().as_secs_f64(),
            "runs_per_second": t.throughput(),
            "context_bytes": self.memory,
            "peak_memory_bytes": self.peak,
        })
    }
}

/// Several models, one line each, compared with the first.
pub(super) fn compare(all: &[Measured<'_>]) {
    let head = ["model", "size", "p50", "mean", "deviation", "max", "runs", "speed"];
    let row = |m: &Measured<'_>| {
        let times = [m.times.percentile(0.5), m.times.mean(), m.times.deviation(), m.times.worst()].map(seconds);
        let mut row = vec![m.file.display().to_string(), bytes(m.artifact_bytes as usize)];
        row.extend(times);
        row.extend([m.times.count().to_string(), format!("{:.2}", m.ratio(&all[0]))]);
        row
    };
    let rows: Vec<Vec<String>> = [head.map(str::to_owned).to_vec()].into_iter().chain(all.iter().map(row)).collect();
    table::print(&rows, "");
    let inputs: Vec<String> = all[0].shapes.iter().map(|(name, ty)| format!("{name} {ty}")).collect();
    let threads = super::super::plural(all[0].threads, "thread", "threads");
    say!("in turns, on {threads}; speed: how many times as fast as {}", all[0].file.display());
    if !inputs.is_empty() {
        say!("inputs of the first: {}", inputs.join(", "));
    }
}

/// As [`compare`], for programs.
pub(super) fn compare_json(all: &[Measured<'_>]) -> Value {
    let model = |m: &Measured<'_>| {
        let mut shown = m.json();
        shown["ratio"] = json!(m.ratio(&all[0]));
        shown
    };
    json!({ "models": all.iter().map(model).collect::<Vec<_>>() })
}
