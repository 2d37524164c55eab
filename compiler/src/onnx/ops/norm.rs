//! Operators of the theme "norm".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) NORM in "", |g, cx|
}
