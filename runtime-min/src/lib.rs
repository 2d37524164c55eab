//! The thin runtime that loads and runs what numrsc compiled.
//!
//! It owns the artifact layout and depends on no other crate of the workspace.
#![cfg_attr(not(any(feature = "std", test)), no_std)]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod artifact;
mod dtype;
mod error;

pub use artifact::{Architecture, Artifact, Manifest};
pub use dtype::{DType, Element};
pub use error::{Error, Result, Text};
