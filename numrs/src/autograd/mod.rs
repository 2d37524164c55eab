//! Tensors that record what is computed, from which [`export_to_onnx`](crate::ops::export::export_to_onnx) makes a model.
pub(crate) mod record;
mod tensor;

pub use crate::nn::{
    self, AvgPool1d, AvgPool2d, BatchNorm1d, BatchNorm2d, Conv1d, Conv2d, Dropout, Flatten, Linear, MaxPool1d,
    MaxPool2d, Module, ReLU, Sequential, Sigmoid, Softmax, Tanh,
};
pub use tensor::Tensor;

pub(crate) use record::{Attribute, Node, Source, compute};
