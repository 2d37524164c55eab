//! Runs an artifact with nothing but the runtime and reports times; see `numrsc_benches::protocol`.
use numrsc_benches::{
    exit_code, input,
    protocol::{Job, Output, Subject, measure},
};
use numrsc_runtime::{Context, Model, TensorRef};
use std::{process::ExitCode, time::Instant};

fn main() -> ExitCode {
    exit_code(run(Instant::now()))
}

fn run(start: Instant) -> Result<(), String> {
    let job = Job::from_args()?;
    let inputs = job.read_inputs()?;
    let begin = Instant::now();
    let model = Model::load(&job.model).map_err(|e| e.to_string())?;
    let context = Context::with_threads(&model, job.threads).map_err(|e| e.to_string())?;
    let loaded = begin.elapsed();
    let inputs = inputs.iter().map(input).collect::<Result<_, _>>()?;
    measure(start, &job, &[("load", loaded)], &mut Artifact { model, context, inputs })
}

struct Artifact<'a> {
    model: Model,
    context: Context,
    inputs: Vec<TensorRef<'a>>,
}

impl Subject for Artifact<'_> {
    fn run(&mut self) -> Result<(), String> {
        self.model.run_in_order(&mut self.context, &self.inputs).map_err(|e| e.to_string())
    }

    fn outputs(&mut self) -> Result<Vec<Output<'_>>, String> {
        let output = |i| {
            let view = self.context.output(i)?;
            Ok((view.dtype().onnx(), view.shape().to_vec(), view.bytes()?))
        };
        (0..self.context.output_count()).map(|i| output(i).map_err(|e: numrsc_runtime::Error| e.to_string())).collect()
    }
}
