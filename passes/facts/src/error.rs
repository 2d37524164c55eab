//! What can go wrong in passes.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A function that is valid but beyond what lowering can do.
    #[error("cannot be lowered: {0}")]
    Unsupported(String),
    /// A pass gave an invalid function: a bug of numrsc.
    #[error("the pass `{pass}` made something invalid: {message}")]
    Invalid { pass: &'static str, message: String },
}

pub type Result<T> = std::result::Result<T, Error>;
