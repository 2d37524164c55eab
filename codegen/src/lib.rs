//! Native code generation of numrsc.
//!
//! [`llvm`] emits the best code for every target; [`cranelift`] compiles fastest, for the machine it runs on.
//! Everything that names a target lives in this crate.

mod code;
pub mod cranelift;
mod error;
pub mod llvm;
mod target;

pub use code::{Backend, Code, Link, LinkKind};
pub use error::{Error, Result};
pub use target::Target;
