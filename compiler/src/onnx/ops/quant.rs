//! Operators of the theme "quant".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) QUANT in "", |g, cx|
}
