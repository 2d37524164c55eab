//! What `ours_run` and `ort_run` have in common: arguments, when the clock is read, what is printed.
//!
//! A line `first` once the first outputs are there, for whoever started the process; at the end a line of JSON.
use crate::{disk_read_kb, raw, raw::RawTensor, status_kb};
use std::{
    io::{self, Write},
    path::PathBuf,
    time::{Duration, Instant},
};

/// What to run.
#[derive(Debug)]
pub struct Job {
    pub model: PathBuf,
    pub inputs: Vec<PathBuf>,
    pub threads: usize,
    /// Further runs after the first: as many as this, or as fit into the time.
    pub runs: usize,
    pub seconds: f64,
    /// A folder for the outputs of the first run.
    pub outputs: Option<PathBuf>,
    /// Of ONNX Runtime.
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

/// An output: its element type as ONNX numbers it, its shape, its elements.
pub type Output<'a> = (i32, Vec<usize>, &'a [u8]);

/// A loaded model with its inputs.
pub trait Subject {
    fn run(&mut self) -> Result<(), String>;
    /// Those of the last run.
    fn outputs(&self) -> Result<Vec<Output<'_>>, String>;
}

/// Run a loaded model and print the report. `loaded` says how long the parts of loading took.
pub fn measure(
    start: Instant,
    job: &Job,
    loaded: &[(&str, Duration)],
    subject: &mut impl Subject,
) -> Result<(), String> {
    let begin = Instant::now();
    subject.run()?;
    let (first_run, first_output) = (begin.elapsed(), start.elapsed());
    let say = |line: &str| writeln!(io::stdout(), "{line}").and_then(|()| io::stdout().flush());
    say("first").map_err(|e| e.to_string())?;
    let first_peak = status_kb("VmHWM").unwrap_or(0);
    let disk_read = disk_read_kb().unwrap_or(0);
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
    let microseconds = |d: Duration| format!("{:.1}", d.as_secs_f64() * 1e6);
    let mut fields: Vec<String> =
        loaded.iter().map(|(name, time)| format!("\"{name}_us\":{}", microseconds(*time))).collect();
    fields.push(format!("\"first_run_us\":{}", microseconds(first_run)));
    fields.push(format!("\"first_output_us\":{}", microseconds(first_output)));
    fields.push(format!("\"first_peak_kb\":{first_peak}"));
    fields.push(format!("\"peak_kb\":{}", status_kb("VmHWM").unwrap_or(0)));
    fields.push(format!("\"disk_read_kb\":{disk_read}"));
    let runs: Vec<String> = runs.into_iter().map(microseconds).collect();
    fields.push(format!("\"runs_us\":[{}]", runs.join(",")));
    say(&format!("{{{}}}", fields.join(","))).map_err(|e| e.to_string())
}
