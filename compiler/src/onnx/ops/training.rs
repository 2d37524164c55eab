//! Operators of the theme "training".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) TRAINING in "ai.onnx.preview.training", |g, cx|
}
