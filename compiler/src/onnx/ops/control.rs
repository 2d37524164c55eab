//! Operators of the theme "control".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) CONTROL in "", |g, cx|
}
