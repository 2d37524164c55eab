//! Runs a model with tract and reports times; see `numrsc_bench_protocol`.
//!
//! tract optimises for given sizes: it gets those of the inputs, which the other engines learn when they run.
use numrsc_bench_protocol::{Job, Output, Subject, exit_code, measure, raw::RawTensor};
use std::{process::ExitCode, sync::Arc, time::Instant};
use tract_linalg::multithread::{Executor, set_default_executor};
use tract_onnx::{pb::tensor_proto::DataType, prelude::*};

fn main() -> ExitCode {
    exit_code(run(Instant::now()))
}

fn run(start: Instant) -> Result<(), String> {
    let job = Job::from_args()?;
    let inputs = job.read_inputs()?;
    let begin = Instant::now();
    if job.threads > 1 {
        set_default_executor(Executor::multithread(job.threads));
    }
    let mut loaded = Loaded::new(&job, &inputs).map_err(text)?;
    let time = begin.elapsed();
    measure(start, &job, &[("load", time)], &mut loaded)
}

/// With all causes, of which the last is the most specific.
fn text(error: TractError) -> String {
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    causes.into_iter().rev().collect::<Vec<_>>().join(" in: ").replace('\n', " ")
}

struct Loaded {
    plan: Arc<TypedRunnableModel>,
    inputs: TVec<TValue>,
    outputs: Vec<(i32, TValue)>,
}

impl Loaded {
    fn new(job: &Job, inputs: &[RawTensor]) -> TractResult<Loaded> {
        let mut model = tract_onnx::onnx().model_for_path(&job.model)?;
        let mut values = tvec![];
        for (i, raw) in inputs.iter().enumerate() {
            let dtype = DatumType::try_from(DataType::try_from(raw.onnx_type)?)?;
            model.set_input_fact(i, dtype.fact(&raw.shape[..]).into())?;
            // SAFETY: the bytes are elements of this type.
            values.push(unsafe { Tensor::from_raw_dt(dtype, &raw.shape, raw.bytes())? }.into_tvalue());
        }
        let plan = model.into_optimized()?.into_runnable()?;
        Ok(Loaded { plan, inputs: values, outputs: vec![] })
    }
}

impl Subject for Loaded {
    fn run(&mut self) -> Result<(), String> {
        let outputs = self.plan.run(self.inputs.clone()).map_err(text)?;
        self.outputs = outputs.into_iter().map(|value| (0, value)).collect();
        Ok(())
    }

    fn outputs(&mut self) -> Result<Vec<Output<'_>>, String> {
        for (onnx_type, value) in &mut self.outputs {
            // tract's type for sizes.
            if value.datum_type() == DatumType::TDim {
                *value = value.cast_to::<i64>().map_err(text)?.into_owned().into_tvalue();
            }
            let same = |t: &i32| {
                let dtype = DataType::try_from(*t).ok().and_then(|t| DatumType::try_from(t).ok());
                dtype == Some(value.datum_type().unquantized())
            };
            *onnx_type = (1..20).find(same).ok_or_else(|| format!("an output is {:?}", value.datum_type()))?;
        }
        self.outputs
            .iter()
            .map(|(onnx_type, value)| {
                let view = value.as_plain_ram().ok_or("an output is not in memory")?;
                Ok((*onnx_type, value.shape().to_vec(), view.as_bytes()))
            })
            .collect()
    }
}
