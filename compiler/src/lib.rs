//! Ahead-of-time compiler for ONNX models.
//!
//! A [`Session`] is a model that is loaded, compiled in memory and ready to run, from as many threads as there are:
//!
//! ```
//! use numrsc::{Session, TensorRef};
//! fn main() -> numrsc::Result<()> {
//!     let session = Session::load("examples/scores.onnx")?; // y = relu(x) * [1, 10, 100] for x: f32[1, 3]
//!     let scores = |n: f32| session.run(&[("x", TensorRef::new(&[n, -n, n], &[1, 3]))])?.to_vec::<f32>("y");
//!     std::thread::scope(|scope| {
//!         let threads = [1.0, 2.0, 3.0, 4.0].map(|n| scope.spawn(move || scores(n)));
//!         threads.into_iter().for_each(|thread| println!("{:?}", thread.join().unwrap())); // Ok([1.0, 0.0, 100.0]) …
//!     });
//! #   assert_eq!(scores(4.0)?, [4.0, 0.0, 400.0]);
//!     Ok(())
//! }
//! ```
//!
//! How a model is compiled and run is chosen by [`Session::builder`]; single runs have limits by [`Session::run_with`]. What goes wrong is an [`Error`], which names the
//! node, the input or the file:
//!
//! ```
//! # use numrsc::{Generator, Session};
//! # fn main() -> numrsc::Result<()> {
//! let session = Session::builder()
//!     .open("x", 0, "batch")          // exported with a batch of 1, which need not stay so
//!     .backend(Generator::Cranelift)  // compiles at once
//!     .threads(1)                     // for each run
//!     .load("examples/scores.onnx")?;
//! assert_eq!(session.inputs().next().unwrap().type_text, "f32[batch, 3]");
//!
//! let error = Session::builder().dim("bath", 1).open("x", 0, "batch").load("examples/scores.onnx").unwrap_err();
//! assert!(error.to_string().contains("no input has a dimension `bath`"), "{error}");
//! assert!(error.to_string().contains("is `batch` meant?"), "{error}");
//! # Ok(())
//! # }
//! ```
//!
//! Models can also be compiled ahead of time: by `numrsc compile` to artifacts, which a [`Session`] loads at once (and so does the crate `numrsc-runtime`, which is all that a
//! program needs then), or by [`Build`] in a build script to a part of the program.
#![warn(missing_docs)]

pub mod error;
pub mod session;

// What the command and the tests of this repository share. It is no part of the interface, and changes without notice.
#[doc(hidden)]
pub mod compile;
#[doc(hidden)]
pub mod conformance;
#[doc(hidden)]
pub mod deadline;
#[doc(hidden)]
pub mod native;
#[doc(hidden)]
pub mod near;
#[doc(hidden)]
pub mod npy;
#[doc(hidden)]
pub mod onnx;
pub mod optimize;
#[doc(hidden)]
pub mod output;
#[doc(hidden)]
pub mod sizes;
#[doc(hidden)]
pub mod space;
#[doc(hidden)]
pub mod tune;

pub use compile::{Generator, Options};
pub use error::{Error, NodePlace, Place, Problem, Result};
pub use numrsc_passes::{Level, PassOptions};
pub use numrsc_runtime::{DType, Element, TensorRef, TensorView};
pub use onnx::external::MissingData;
pub use output::rust::Build;
#[doc(hidden)]
pub use output::{c_header::header as c_header, executable::Program};
pub use session::{Builder, Cancel, Outputs, RunOptions, Session};
