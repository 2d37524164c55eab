//! Runs a model with ONNX Runtime through its C interface and reports times; see `numrsc_benches::protocol`.
//!
//! Everything is as ONNX Runtime has it by default, the level of graph optimisation (all) included, but the number of threads.
use numrsc_benches::{
    exit_code,
    ort::{Library, Session},
    protocol::{Job, Output, Subject, measure},
};
use std::{process::ExitCode, time::Instant};

fn main() -> ExitCode {
    exit_code(run(Instant::now()))
}

fn run(start: Instant) -> Result<(), String> {
    let job = Job::from_args()?;
    let inputs = job.read_inputs()?;
    let begin = Instant::now();
    let library = Library::open(&job.library)?;
    let opened = begin.elapsed();
    let session = Session::new(&library, &job.model, job.threads, &inputs)?;
    let loaded = begin.elapsed();
    measure(start, &job, &[("library", opened), ("load", loaded)], &mut Loaded(session))
}

struct Loaded<'a>(Session<'a>);

impl Subject for Loaded<'_> {
    fn run(&mut self) -> Result<(), String> {
        self.0.run()
    }

    fn outputs(&mut self) -> Result<Vec<Output<'_>>, String> {
        self.0.outputs()
    }
}
