//! Operators of the theme "text".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) TEXT in "", |g, cx|
}
