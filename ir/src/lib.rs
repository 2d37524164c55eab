//! Tensor IR, types, symbolic dims, textual form, verifier and reference evaluator of numrsc.
pub mod dtype;
pub mod tensor;

pub use dtype::DType;
pub use tensor::{Elems, Tensor};
