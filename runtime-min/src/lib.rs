//! The thin runtime that loads and runs what numrsc compiled.
//!
//! It owns the artifact layout and depends on no other crate of the workspace. Loading is map, check, jump. A [`Model`] is shared
//! between threads; each thread runs it with a [`Context`] of its own. There is no global state.
//!
//! ```no_run
//! # fn main() -> numrsc_runtime::Result<()> {
//! use numrsc_runtime::{Context, Model, TensorRef};
//! let model = Model::load("model.nrsc")?;
//! let mut context = Context::new(&model)?;
//! model.run(&mut context, &[("x", TensorRef::new(&[1.0f32, 2.0, 3.0], &[1, 3]))])?;
//! let y: &[f32] = context.output_by_name("y")?.as_slice()?;
//! # Ok(())
//! # }
//! ```
//!
//! Without features this needs neither `std` nor an allocator: [`Model::from_parts`] and [`FixedContext`].
#![cfg_attr(not(any(feature = "std", test)), no_std)]

#[cfg(feature = "alloc")]
extern crate alloc;

#[cfg(feature = "alloc")]
mod arena;
pub mod artifact;
mod bind;
#[cfg(feature = "std")]
mod cancel;
#[cfg(feature = "std")]
pub mod capi;
pub mod context;
#[cfg(feature = "std")]
mod cpu;
mod dtype;
mod error;
mod finish;
mod float_mode;
mod half;
mod host;
mod memory;
mod model;
#[cfg(feature = "alloc")]
pub mod npy;
#[cfg(feature = "std")]
mod pool;
#[cfg(feature = "std")]
mod processors;
#[cfg(numrsc_program)]
mod program;
mod run;
#[cfg(feature = "write")]
mod sources;
mod tensor;
mod view;
mod visible;

pub use artifact::{Architecture, Artifact, Manifest};
#[cfg(feature = "std")]
pub use cancel::Canceller;
pub use dtype::{DType, Element};
pub use error::{Error, Result, Text};
pub use half::{BF16, F16};
#[cfg(feature = "alloc")]
pub use memory::Heap;
pub use memory::{Fixed, Memory};
pub use model::Model;
#[cfg(feature = "alloc")]
pub use run::Context;
pub use run::{ContextIn, FixedContext};
#[cfg(feature = "write")]
pub use sources::SOURCES;
pub use tensor::{TensorMut, TensorRef};
pub use view::{Array, TensorView};
pub use visible::Visible;
