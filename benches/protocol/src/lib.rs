//! What the programs that run a model (`ours_run`, `ort_run` …) share: arguments, timing, output format.
//!
//! A line `first` once the first outputs are there, for whoever started the process; at the end a line of JSON.
pub mod raw;

use raw::RawTensor;
use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

/// What to run, and how.
#[derive(Debug)]
pub struct Job {
    pub model: PathBuf,
    pub inputs: Vec<PathBuf>,
    pub threads: usize,
    /// Further runs after the first: this many, or as many as fit into the time.
    pub runs: usize,
    pub seconds: f64,
    /// A folder for the outputs of the first run.
    pub outputs: Option<PathBuf>,
    /// The shared library of the peer, or the folder with its programs.
    pub library: PathBuf,
}

impl Job {
    /// From `MODEL --input FILE… --threads N --runs N --seconds S --outputs FOLDER --library FILE`.
    pub fn from_args() -> Result<Job, String> {
        let mut job = Job {
            model: PathBuf::new(),
            inputs: vec![],
            threads: 1,
            runs: 0,
            seconds: 1.0,
            outputs: None,
            library: PathBuf::new(),
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            if !arg.starts_with("--") {
                job.model = arg.into();
                continue;
            }
            let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
            let bad = || format!("{arg} {value}: not a number");
            match &arg[..] {
                "--input" => job.inputs.push(value.into()),
                "--threads" => job.threads = value.parse().map_err(|_| bad())?,
                "--runs" => job.runs = value.parse().map_err(|_| bad())?,
                "--seconds" => job.seconds = value.parse().map_err(|_| bad())?,
                "--outputs" => job.outputs = Some(value.into()),
                "--library" => job.library = value.into(),
                _ => return Err(format!("unknown option {arg}")),
            }
        }
        Ok(job)
    }

    pub fn read_inputs(&self) -> Result<Vec<RawTensor>, String> {
        self.inputs.iter().map(|path| RawTensor::read(path)).collect()
    }
}

/// An output: its element type as an ONNX number, its shape, its elements.
pub type Output<'a> = (i32, Vec<usize>, &'a [u8]);

/// A loaded model with its inputs.
pub trait Subject {
    fn run(&mut self) -> Result<(), String>;
    /// The outputs of the last run.
    fn outputs(&mut self) -> Result<Vec<Output<'_>>, String>;
}

/// Runs a loaded model and prints the report. `loaded` holds the times of the parts of loading.
pub fn measure(
    start: Instant,
    job: &Job,
    loaded: &[(&str, Duration)],
    subject: &mut impl Subject,
) -> Result<(), String> {
    let begin = Instant::now();
    subject.run()?;
    let (first_run, first_output) = (begin.elapsed(), start.elapsed());
    say_first()?;
    let first_peak_kb = status_kb("VmHWM").unwrap_or(0);
    let disk_read_kb = disk_read_kb().unwrap_or(0);
    if let Some(folder) = &job.outputs {
        for (i, (onnx_type, shape, bytes)) in subject.outputs()?.into_iter().enumerate() {
            raw::write(&folder.join(format!("output_{i}.raw")), onnx_type, &shape, bytes)?;
        }
    }
    let mut runs = vec![];
    let begin = Instant::now();
    while runs.len() < job.runs && (runs.is_empty() || begin.elapsed().as_secs_f64() < job.seconds) {
        let start = Instant::now();
        subject.run()?;
        runs.push(start.elapsed());
    }
    let times = [loaded, &[("first_run", first_run), ("first_output", first_output)]].concat();
    let peak_kb = status_kb("VmHWM").unwrap_or(0);
    let sizes = [("first_peak_kb", first_peak_kb), ("peak_kb", peak_kb), ("disk_read_kb", disk_read_kb)];
    say_report(&times, &sizes, &runs)
}

/// The line that reports the first outputs.
pub fn say_first() -> Result<(), String> {
    say("first")
}

/// The JSON line at the end.
pub fn say_report(times: &[(&str, Duration)], sizes: &[(&str, u64)], runs: &[Duration]) -> Result<(), String> {
    let microseconds = |d: &Duration| format!("{:.1}", d.as_secs_f64() * 1e6);
    let mut fields: Vec<String> =
        times.iter().map(|(name, time)| format!("\"{name}_us\":{}", microseconds(time))).collect();
    fields.extend(sizes.iter().map(|(name, size)| format!("\"{name}\":{size}")));
    let runs: Vec<String> = runs.iter().map(microseconds).collect();
    fields.push(format!("\"runs_us\":[{}]", runs.join(",")));
    say(&format!("{{{}}}", fields.join(",")))
}

fn say(line: &str) -> Result<(), String> {
    writeln!(io::stdout(), "{line}").and_then(|()| io::stdout().flush()).map_err(|e| e.to_string())
}

/// The exit code of a program, with a message if it failed.
pub fn exit_code(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// Kilobytes that this process read from disk: 0 if all files were in memory.
pub fn disk_read_kb() -> Option<u64> {
    let counters = fs::read_to_string("/proc/self/io").ok()?;
    let bytes: u64 = counters.lines().find_map(|l| l.strip_prefix("read_bytes:"))?.trim().parse().ok()?;
    Some(bytes / 1000)
}

/// A field of this process's status in kilobytes, such as `VmHWM`, the peak of resident memory.
pub fn status_kb(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
