//! Operators of the theme "shape".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) SHAPE in "", |g, cx|
}
