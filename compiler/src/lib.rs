//! Ahead-of-time compiler for ONNX models: library and command.
mod c_header;
pub mod compile;
pub mod conformance;
pub mod deadline;
mod embed;
pub mod emit;
pub mod error;
mod executable;
pub mod native;
pub mod near;
pub mod npy;
pub mod onnx;
pub mod output;
pub mod sizes;
pub mod space;
mod toolchain;
pub mod tune;
pub mod web;

pub use c_header::header as c_header;
pub use embed::Build;
pub use error::{Error, NodePlace, Place, Problem, Result};
pub use executable::Program;
