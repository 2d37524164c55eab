//! Native code generation of numrsc.
//!
//! [`llvm`] emits the best code for every target; [`cranelift`] compiles fastest, for the machine it runs on.
//! Everything that names a target lives in this crate.

mod cache;
mod code;
mod compile;
mod cpu;
pub mod cranelift;
mod error;
mod link;
pub mod llvm;
mod target;

pub use code::{Backend, Code, Link, LinkKind};
pub use compile::{CodegenOptions, Compiled, FunctionStats, compile};
pub use error::{Error, Result};
pub use link::{Image, link};
pub use target::{CpuInfo, Target, TargetInfo, targets};
