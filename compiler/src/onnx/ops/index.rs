//! Operators of the theme "index".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) INDEX in "", |g, cx|
}
