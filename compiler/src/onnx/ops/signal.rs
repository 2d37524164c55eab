//! Operators of the theme "signal".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) SIGNAL in "", |g, cx|
}
