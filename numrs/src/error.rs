//! What can go wrong. Functions give `anyhow::Result`, as those of NumRs do; this is what is in it.

/// The errors of this crate, to which those of [`anyhow`] can be downcast.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation does not take these operands.
    #[error("{op}: {message}")]
    Operation {
        /// The operator of ONNX.
        op: &'static str,
        /// What is wrong.
        message: String,
    },
    /// A layer is in training mode, and training is out of scope.
    #[error("{layer} is in training mode, and training is out of scope: call `eval()` before `forward()`")]
    Training {
        /// The type of the layer.
        layer: &'static str,
    },
    /// An input of a model is missing, or is given and not there.
    #[error("{0}")]
    Input(String),
    /// A model cannot be read, written, compiled or run; the message names the file and the node.
    #[error(transparent)]
    Model(#[from] numrsc::Error),
}
