//! Errors of passes.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A valid function that lowering does not support.
    #[error("cannot be lowered: {0}")]
    Unsupported(String),
    /// A pass produced an invalid function: a bug of numrsc.
    #[error("the pass `{pass}` made something invalid: {message}")]
    Invalid { pass: &'static str, message: String },
}

pub type Result<T> = std::result::Result<T, Error>;
