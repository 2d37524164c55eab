//! Facts about functions, machines and options: each is computed in one place and given to all who ask.
pub mod constants;
pub mod context;
pub mod costs;
pub mod error;
pub mod float_ranges;
pub mod loops;
pub mod ops;
pub mod ranges;
pub mod sizes;

pub use context::{ATTENTION, Context, Level, PassOptions, TOLERANCE, Tuning};
pub use error::{Error, Result};
