//! Operators of the theme "random".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) RANDOM in "", |g, cx|
}
