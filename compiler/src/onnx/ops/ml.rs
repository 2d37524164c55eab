//! Operators of the theme "ml".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) ML in "ai.onnx.ml", |g, cx|
}
