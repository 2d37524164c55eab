//! Runs a model with rten and reports times; see `numrsc_bench_protocol`.
//!
//! Weights are packed when the model is loaded, which rten has as an option for speed. It has no integers of 64 bits and no booleans: they are 32-bit
//! integers, at inputs and outputs too.
use numrsc_bench_protocol::{Job, Output, Subject, exit_code, measure, raw::RawTensor};
use rten::{Model, ModelOptions, NodeId, RunOptions, ThreadPool, Value};
use rten_tensor::{Tensor, prelude::*};
use std::{process::ExitCode, sync::Arc, time::Instant};

const FLOAT: i32 = 1;
const UINT8: i32 = 2;
const INT8: i32 = 3;
const INT32: i32 = 6;
const INT64: i32 = 7;
const BOOL: i32 = 9;

fn main() -> ExitCode {
    exit_code(run(Instant::now()))
}

fn run(start: Instant) -> Result<(), String> {
    let job = Job::from_args()?;
    let inputs = job.read_inputs()?;
    let begin = Instant::now();
    let pool = ThreadPool::with_num_threads(job.threads);
    let model = ModelOptions::with_all_ops().prepack_weights(true).load_file(&job.model).map_err(|e| e.to_string())?;
    let time = begin.elapsed();
    let values = inputs.iter().map(value).collect::<Result<Vec<_>, _>>()?;
    let inputs = model.input_ids().iter().copied().zip(values).collect();
    let options = RunOptions::default().with_thread_pool(Some(Arc::new(pool)));
    measure(start, &job, &[("load", time)], &mut Loaded { model, inputs, options, outputs: vec![], elements: vec![] })
}

/// An input in rten's types.
fn value(raw: &RawTensor) -> Result<Value, String> {
    fn words<const N: usize, T>(bytes: &[u8], word: fn([u8; N]) -> T) -> Vec<T> {
        bytes.as_chunks::<N>().0.iter().map(|bytes| word(*bytes)).collect()
    }
    fn shaped<T>(raw: &RawTensor, data: Vec<T>) -> Result<Value, String>
    where
        Value: From<Tensor<T>>,
    {
        Value::from_shape(&raw.shape, data).map_err(|e| e.to_string())
    }
    let bytes = raw.bytes();
    match raw.onnx_type {
        FLOAT => shaped(raw, words(bytes, f32::from_le_bytes)),
        INT32 => shaped(raw, words(bytes, i32::from_le_bytes)),
        INT64 => shaped(raw, words(bytes, |word| i64::from_le_bytes(word) as i32)),
        BOOL => shaped(raw, bytes.iter().map(|&b| i32::from(b)).collect()),
        INT8 => shaped(raw, words(bytes, i8::from_le_bytes)),
        UINT8 => shaped(raw, bytes.to_vec()),
        other => Err(format!("no inputs with elements of ONNX's type {other}")),
    }
}

struct Loaded {
    model: Model,
    inputs: Vec<(NodeId, Value)>,
    options: RunOptions,
    outputs: Vec<Value>,
    /// Names of the outputs, in order.
    elements: Vec<Vec<u8>>,
}

impl Subject for Loaded {
    fn run(&mut self) -> Result<(), String> {
        let inputs = self.inputs.iter().map(|(id, value)| (*id, value.into())).collect();
        self.outputs =
            self.model.run(inputs, self.model.output_ids(), Some(self.options.clone())).map_err(|e| e.to_string())?;
        Ok(())
    }

    fn outputs(&mut self) -> Result<Vec<Output<'_>>, String> {
        fn plain<const N: usize, T: Copy>(tensor: &Tensor<T>, bytes: fn(T) -> [u8; N]) -> (Vec<usize>, Vec<u8>) {
            (tensor.shape().to_vec(), tensor.iter().flat_map(|&x| bytes(x)).collect())
        }
        self.elements.clear();
        let mut heads = vec![];
        for value in &self.outputs {
            let (onnx_type, (shape, elements)) = match value {
                Value::FloatTensor(t) => (FLOAT, plain(t, f32::to_le_bytes)),
                Value::Int32Tensor(t) => (INT32, plain(t, i32::to_le_bytes)),
                Value::Int8Tensor(t) => (INT8, plain(t, i8::to_le_bytes)),
                Value::UInt8Tensor(t) => (UINT8, plain(t, u8::to_le_bytes)),
                _ => return Err("an output is no tensor".into()),
            };
            heads.push((onnx_type, shape));
            self.elements.push(elements);
        }
        Ok(heads
            .into_iter()
            .zip(&self.elements)
            .map(|((onnx_type, shape), bytes)| (onnx_type, shape, &bytes[..]))
            .collect())
    }
}
