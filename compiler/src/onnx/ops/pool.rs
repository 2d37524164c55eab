//! Operators of the theme "pool".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) POOL in "", |g, cx|
}
