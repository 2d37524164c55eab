//! What passes know of functions, of machines and of what is asked for: each fact is computed in one place, and given to
//! all who ask.

// A new op may not get a default that nobody thought of: matches list all ops, or say why not.
#![deny(clippy::wildcard_enum_match_arm)]

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
