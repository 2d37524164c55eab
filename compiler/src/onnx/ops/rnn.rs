//! Operators of the theme "rnn".
use crate::onnx::import::table::onnx_ops;

onnx_ops! { pub(super) RNN in "", |g, cx|
}
