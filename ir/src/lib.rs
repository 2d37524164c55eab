//! Tensor IR, types, symbolic dims, textual form, verifier and reference evaluator of numrsc.
pub mod attr;
pub mod dim;
pub mod dtype;
pub mod error;
pub mod func;
mod infer;
pub mod op;
pub mod parse;
pub mod print;
pub mod scalar;
pub mod tensor;
pub mod types;
pub mod verify;
pub mod view;

pub use dim::Dim;
pub use dtype::DType;
pub use error::{Error, Result};
pub use func::{Func, Node, Value};
pub use op::{Op, OpInfo, ReduceFn, ScatterFn};
pub use parse::parse;
pub use scalar::{Lit, Scalar, ScalarFn};
pub use tensor::{Elems, Tensor};
pub use types::{Elem, TensorType, Type};
pub use verify::verify;
