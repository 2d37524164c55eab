//! Operators of the theme "conv".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) CONV in "", |g, cx|
}
