//! Trace a network that forecasts a series, export it, and load it again: `cargo run -p numrsc-numrs --example forecast`.
//!
//! `numrsc compile forecast_cnn.onnx --emit exe` makes a static program of it then.
use anyhow::{Context, Result};
use numrs::Array;
use numrs::autograd::nn::{BatchNorm1d, Conv1d, Dropout, Flatten, Sequential};
use numrs::autograd::{Linear, Module, ReLU, Tensor};
use numrs::ops::export::export_to_onnx;
use numrs::ops::model::{infer, load_onnx};
use std::collections::HashMap;

/// How many values of the past a forecast is made from.
const LENGTH: usize = 128;

/// `[batch, LENGTH]` to `[batch, 1]`.
#[derive(Clone)]
struct ForecastCNN {
    convolution: Conv1d,
    norm: BatchNorm1d,
    dropout: Dropout,
    head: Sequential,
}

impl ForecastCNN {
    fn new() -> Result<ForecastCNN> {
        const FILTERS: usize = 16;
        const KERNEL: usize = 3;
        Ok(ForecastCNN {
            convolution: Conv1d::new(1, FILTERS, KERNEL, 1, 0)?,
            norm: BatchNorm1d::new(FILTERS)?,
            dropout: Dropout::new(0.1),
            head: Sequential::new(vec![
                Box::new(Flatten::new(1, 2)),
                Box::new(Linear::new(FILTERS * (LENGTH - KERNEL + 1), 64)?),
                Box::new(ReLU),
                Box::new(Linear::new(64, 1)?),
            ]),
        })
    }
}

impl Module for ForecastCNN {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let channels = input.reshape(vec![input.shape()[0], 1, LENGTH])?;
        let features = self.norm.forward(&self.convolution.forward(&channels)?)?;
        self.head.forward(&self.dropout.forward(&features.relu()?)?)
    }

    fn eval(&mut self) {
        self.norm.eval();
        self.dropout.eval();
    }

    fn box_clone(&self) -> Box<dyn Module> {
        Box::new(self.clone())
    }
}

pub(crate) fn main() -> Result<()> {
    let mut model = ForecastCNN::new()?;
    model.eval();
    let output = model.forward(&Tensor::new(Array::zeros(vec![1, LENGTH]), false))?;
    export_to_onnx(&output, "forecast_cnn.onnx")?;

    let model = load_onnx("forecast_cnn.onnx")?;
    println!("{} operations", model.graph.nodes.len());
    let wave = |i: usize| (i as f32 * 0.1).sin();
    let windows = Array::new(vec![32, LENGTH], (0..32 * LENGTH).map(|i| wave(i % LENGTH + i / LENGTH)).collect());
    let results = infer(&model, HashMap::from([(model.graph.inputs[0].name.clone(), windows)]))?;
    let forecasts = results.get(&model.graph.outputs[0]).context("there is one output")?;
    println!("{} forecasts, the first is {}", forecasts.shape[0], forecasts.data[0]);
    Ok(())
}
