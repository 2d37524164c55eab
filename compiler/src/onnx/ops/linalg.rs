//! Operators of the theme "linalg".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) LINALG in "", |g, cx|
}
