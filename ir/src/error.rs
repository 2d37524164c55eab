//! The errors of this crate.
use crate::{Dim, Value};

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// An operation does not accept its operands or attributes.
    #[error("{0}")]
    Type(String),
    /// What an operation gives depends on a size that has to be a number for it: the rank of a result, how many results there are.
    #[error("{message}: `{size}` must be known at compile time")]
    Open { message: String, size: Dim },
    /// The textual form is malformed.
    #[error("line {line}, column {column}: {message}")]
    Parse { line: usize, column: usize, message: String },
    /// Evaluation met data for which an operation is not defined.
    #[error("evaluating {value} ({op}): {message}")]
    Eval { value: Value, op: &'static str, message: String },
    /// A function breaks the rules of the IR; all violations, one per line.
    #[error("invalid function:\n{}", .0.join("\n"))]
    Invalid(Vec<String>),
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<String> for Error {
    fn from(message: String) -> Error {
        Error::Type(message)
    }
}

impl From<&str> for Error {
    fn from(message: &str) -> Error {
        Error::Type(message.into())
    }
}

/// Return a type error with a formatted message.
#[macro_export]
macro_rules! refuse {
    ($($arg:tt)*) => { return Err($crate::Error::Type(format!($($arg)*)).into()) };
}
