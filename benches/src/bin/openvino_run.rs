//! Runs a model with OpenVINO through its C interface and reports times; see `numrsc_benches::protocol`.
//!
//! The model is given as it is, with the sizes that it leaves open. What is set: the number of threads, the hint that latency counts, and 32-bit
//! floats (by default it would use bfloat16 where the processor has it, which no other engine here does).
use numrsc_benches::{
    exit_code,
    openvino::Request,
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
    let request = Request::new(&job.library, &job.model, job.threads, &inputs)?;
    let loaded = begin.elapsed();
    measure(start, &job, &[("load", loaded)], &mut Loaded(request))
}

struct Loaded<'a>(Request<'a>);

impl Subject for Loaded<'_> {
    fn run(&mut self) -> Result<(), String> {
        self.0.run()
    }

    fn outputs(&mut self) -> Result<Vec<Output<'_>>, String> {
        self.0.outputs()
    }
}
