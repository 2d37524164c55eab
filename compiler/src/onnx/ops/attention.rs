//! Operators of the theme "attention".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) ATTENTION in "", |g, cx|
}
