//! Operators of the theme "sequence".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) SEQUENCE in "", |g, cx|
}
