//! What programs for [NumRs](https://crates.io/crates/numrs) use of its ONNX interface: arrays, tensors that record what is computed, layers, export to ONNX, and
//! inference, which compiles the model for this machine. Programs compile unchanged with this crate in the place of NumRs:
//!
//! ```toml
//! [dependencies]
//! numrs = { package = "numrsc-numrs", version = "0.1" }
//! ```
//!
//! A model is traced by running it once, exported, and loaded again:
//!
//! ```
//! use numrs::autograd::{Tensor, nn::{Linear, Module, ReLU, Sequential}};
//! use numrs::ops::{export::export_to_onnx, model::{infer, load_onnx}};
//! use numrs::Array;
//! use std::collections::HashMap;
//!
//! fn main() -> anyhow::Result<()> {
//! #   let folder = tempfile::tempdir()?;
//! #   std::env::set_current_dir(&folder)?;
//!     let model = Sequential::new(vec![Box::new(Linear::new(10, 32)?), Box::new(ReLU), Box::new(Linear::new(32, 1)?)]);
//!     let output = model.forward(&Tensor::new(Array::zeros(vec![1, 10]), false))?;
//!     export_to_onnx(&output, "mlp.onnx.json")?; // or mlp.onnx
//!
//!     let model = load_onnx("mlp.onnx.json")?;
//!     let input = &model.graph.inputs[0].name;
//!     // Traced with a batch of one, run with a batch of five.
//!     let inputs = HashMap::from([(input.clone(), Array::new(vec![5, 10], vec![0.5; 50]))]);
//!     let results = infer(&model, inputs)?;
//!     assert_eq!(results[&model.graph.outputs[0]].shape, [5, 1]);
//!     Ok(())
//! }
//! ```
//!
//! The files are ONNX, or the JSON that NumRs writes (by the name, `.onnx.json`): those of NumRs load here, and those written here load there, in ONNX Runtime, and with `numrsc`.
//!
//! # What there is not
//!
//! Training is out of scope: there is neither `backward` nor an optimiser, and layers that differ in training have to be told [`eval`](nn::Module::eval). What weights are is a matter of
//! [`parameters`](nn::Module::parameters), whose `data` can be replaced. No code of NumRs is part of this crate.
#![warn(missing_docs)]

pub mod array;
pub mod autograd;
mod error;
pub mod nn;
pub mod ops;

pub use array::Array;
pub use autograd::Tensor;
pub use error::Error;
pub use nn::{
    AvgPool1d, AvgPool2d, BatchNorm1d, BatchNorm2d, Conv1d, Conv2d, Dropout, Flatten, Linear, MaxPool1d, MaxPool2d,
    Module, ReLU, Sequential, Sigmoid, Softmax, Tanh,
};
