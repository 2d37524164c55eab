//! Operators of the theme "image".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) IMAGE in "", |g, cx|
}
