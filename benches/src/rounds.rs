//! Runs engines alternately on a model, each run in a separate process that speaks the protocol of [`crate::protocol`].
use crate::{
    driver::{self, Outcome, Result},
    table::median,
};
use numrsc::conformance::Settings;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// How often and how long everything runs.
#[derive(clap::Args, Debug)]
pub struct Timing {
    /// How often each engine runs; medians are reported. One more round warms up and compares the outputs.
    #[arg(long, default_value_t = 7)]
    pub rounds: usize,
    /// Runs after the first in each round, as far as --seconds allows.
    #[arg(long, default_value_t = 20)]
    pub runs: usize,
    /// Time for the runs after the first in each round.
    #[arg(long, default_value_t = 0.3)]
    pub seconds: f64,
    /// Seconds after which compiling or running a model is given up.
    #[arg(long, default_value_t = 600)]
    pub limit: u64,
}

impl Timing {
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.limit)
    }
}

/// An engine and what it runs.
#[derive(Clone, Debug)]
pub struct Contestant {
    pub name: &'static str,
    pub program: PathBuf,
    /// The shared library, or the folder of programs, that `program` uses.
    pub library: Option<PathBuf>,
    pub model: PathBuf,
    /// The bytes that a machine needs to run the model.
    pub bytes: u64,
    /// For engines that compile before they run.
    pub compile_ms: Option<f64>,
    /// The model as an executable that ends when it has written its outputs, and its arguments.
    pub alone: Option<(PathBuf, Vec<String>)>,
}

/// Measurements of an engine: medians over the rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Side {
    pub first_output_ms: f64,
    #[serde(deserialize_with = "or_nan")]
    pub load_ms: f64,
    pub peak_mb: f64,
    #[serde(deserialize_with = "or_nan")]
    pub run_ms: f64,
    pub size_mb: f64,
    pub compile_ms: Option<f64>,
    /// From start to end of the model as an executable.
    #[serde(default)]
    pub alone_ms: Option<f64>,
}

/// JSON has no NaN: it is written as null.
pub fn or_nan<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    Option::deserialize(from).map(|number| number.unwrap_or(f64::NAN))
}

/// What a round may read from disk and still count.
const MAX_DISK_READ_KB: u64 = 64;

/// A model's inputs and how it is run.
#[derive(Debug)]
pub struct Contest<'a> {
    pub inputs: Vec<PathBuf>,
    pub threads: usize,
    pub timing: &'a Timing,
}

impl Contest<'_> {
    fn run(&self, contestant: &Contestant, outputs: Option<&Path>) -> Result<Outcome> {
        let mut command = Command::new(&contestant.program);
        command.arg(&contestant.model);
        self.inputs.iter().for_each(|path| {
            command.arg("--input").arg(path);
        });
        command.args(["--threads", &self.threads.to_string(), "--runs", &self.timing.runs.to_string()]);
        command.args(["--seconds", &self.timing.seconds.to_string()]);
        if let Some(library) = &contestant.library {
            command.arg("--library").arg(library);
        }
        if let Some(folder) = outputs {
            command.arg("--outputs").arg(folder);
        }
        driver::run_child(&mut command, self.timing.limit())
    }

    /// Runs once as a warm-up, and returns the files of the outputs, which are put into `folder`.
    pub fn outputs(&self, contestant: &Contestant, folder: &Path) -> Result<Vec<PathBuf>> {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        self.run(contestant, Some(folder))?;
        Ok(driver::numbered(folder, "output"))
    }

    /// Runs contestants alternately and measures each. One that fails drops out.
    ///
    /// A machine that is short of memory drops files; what then comes from disk would be measured instead of the programs. Such rounds count for nobody.
    pub fn rounds(&self, contestants: &[Contestant]) -> Result<Vec<Result<Side>>> {
        let mut outcomes: Vec<Result<Vec<Outcome>>> = contestants.iter().map(|_| Ok(vec![])).collect();
        let mut alone: Vec<Vec<f64>> = vec![vec![]; contestants.len()];
        let mut counted = 0;
        for round in 0..3 * self.timing.rounds {
            if counted == self.timing.rounds {
                break;
            }
            let libraries = contestants.iter().filter_map(|c| c.library.as_ref()).filter(|l| l.is_file());
            let alones = contestants.iter().filter_map(|c| c.alone.as_ref().map(|(program, _)| program));
            let files = contestants.iter().flat_map(|c| [&c.program, &c.model]).chain(alones);
            libraries.chain(files).chain(&self.inputs).try_for_each(|file| driver::read_all(file))?;
            let mut reports = vec![];
            // The first one changes from round to round.
            for i in (0..contestants.len()).map(|i| (i + round) % contestants.len()) {
                if outcomes[i].is_ok() {
                    match self.run(&contestants[i], None) {
                        Ok(outcome) => reports.push((i, outcome)),
                        Err(message) => outcomes[i] = Err(message),
                    }
                }
                if let Some((program, arguments)) = &contestants[i].alone {
                    let time = driver::time_child(program, arguments, self.timing.limit())?;
                    alone[i].push(time.as_secs_f64() * 1e3);
                }
            }
            let clean = |o: &Outcome| o.report["disk_read_kb"].as_u64().unwrap_or(0) <= MAX_DISK_READ_KB;
            if reports.iter().all(|(_, outcome)| clean(outcome)) {
                counted += 1;
                for (i, outcome) in reports {
                    if let Ok(all) = &mut outcomes[i] {
                        all.push(outcome);
                    }
                }
            }
        }
        if counted == 0 {
            return Err("the files do not stay in memory".into());
        }
        let sides = outcomes.into_iter().zip(contestants).zip(alone);
        Ok(sides.map(|((all, c), alone)| all.map(|all| side(&all, &alone, c))).collect())
    }
}

fn side(outcomes: &[Outcome], alone: &[f64], contestant: &Contestant) -> Side {
    let field = |name: &str| median(outcomes.iter().filter_map(|o| o.report[name].as_f64()));
    let runs = outcomes.iter().flat_map(|o| o.report["runs_us"].as_array().into_iter().flatten());
    Side {
        first_output_ms: median(outcomes.iter().map(|o| o.first_line.as_secs_f64() * 1e3)),
        load_ms: field("load_us") / 1e3,
        peak_mb: field("peak_kb") / 1e3,
        run_ms: median(runs.filter_map(Value::as_f64)) / 1e3,
        size_mb: contestant.bytes as f64 / 1e6,
        compile_ms: contestant.compile_ms,
        alone_ms: (!alone.is_empty()).then(|| median(alone.iter().copied())),
    }
}

/// The expected outputs.
#[derive(Debug)]
pub struct Expected<'a> {
    /// Outputs of ONNX Runtime as measured, and without graph optimisation, which may change those of quantised models.
    pub measured: &'a [PathBuf],
    pub plain: &'a [PathBuf],
    pub settings: &'a Settings,
}

impl Expected<'_> {
    pub fn check(&self, got: &[PathBuf], any_integers: bool) -> Result<()> {
        let is = |want| driver::compare(got, want, self.settings, any_integers);
        is(self.measured).or_else(|e| is(self.plain).map_err(|_| e)).map_err(|e| format!("outputs differ: {e}"))
    }
}

/// The first informative line; of a panic, location and message. Paths are reduced to names, as folders are those of
/// this machine.
pub fn one_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    let first = lines.next().unwrap_or("");
    let line = match first.split_once("panicked at ") {
        Some((before, place)) => {
            let before = before.split("thread ").next().unwrap_or("");
            format!("{before}panic at {place} {}", lines.next().unwrap_or(""))
        }
        None => first.to_owned(),
    };
    let name_of = |word: &str| match (word.find('/'), word.rfind('/')) {
        (Some(first), Some(last)) if first < last => format!("{}{}", &word[..first], &word[last + 1..]),
        _ => word.to_owned(),
    };
    let line = line.split(' ').map(name_of).collect::<Vec<_>>().join(" ").replace('|', "\\|");
    if line.chars().count() > 160 { line.chars().take(159).chain(['…']).collect() } else { line }
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn remarks_name_no_folders() {
        assert_eq!(one_line("\n  /a/b/model.mlir:3:5: error: no | here\nmore"), "model.mlir:3:5: error: no \\| here");
        assert_eq!(one_line("thread 'main' panicked at /x/y/op.rs:1:2:\nboom"), "panic at op.rs:1:2: boom");
        assert_eq!(one_line("ours / theirs"), "ours / theirs");
    }
}
