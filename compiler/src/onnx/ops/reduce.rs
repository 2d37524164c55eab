//! Operators of the theme "reduce".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) REDUCE in "", |g, cx|
}
