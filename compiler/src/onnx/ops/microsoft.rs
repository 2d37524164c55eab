//! Operators of the theme "microsoft".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) MICROSOFT in "com.microsoft", |g, cx|
}
