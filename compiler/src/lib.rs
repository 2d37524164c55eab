//! Ahead-of-time compiler for ONNX models: library and command.
pub mod compile;
pub mod conformance;
pub mod deadline;
pub mod error;
pub mod native;
pub mod near;
pub mod npy;
pub mod onnx;
pub mod output;
pub mod sizes;
pub mod space;
pub mod tune;

pub use error::{Error, NodePlace, Place, Problem, Result};
pub use output::{c_header::header as c_header, executable::Program, rust::Build};
