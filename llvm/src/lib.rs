//! `numrsc-llvm`: LLVM behind one call, in a process of its own.
//!
//! All that the compiler asks of LLVM is what an object of a text in LLVM's IR is, and a few things about machines ([`protocol::Request`]). A program answers that,
//! and it alone has LLVM in its memory: numrsc needs none to be built or started, and where LLVM ends its process, on what it cannot select or out of memory, that
//! is an error of one kernel. A library that is loaded into the compiler would do without the pipe, which takes microseconds, but not without that.
//!
//! The program does not link LLVM but opens the library when it starts, so it is built by any toolchain. It needs nothing but `std`: the build script of this crate
//! makes one with a single call of rustc ([`BUILT`]), so that whoever builds the compiler has it, be it for tests, by `cargo run` or as a part of a build script.
//! What is installed is the same program, as a binary of the package `numrsc`.
mod place;
pub mod program;
pub mod protocol;

pub use place::running_program;

/// The program that was built along with this crate, unless that failed. It lies in cargo's target folder, and may be gone.
pub const BUILT: Option<&str> = option_env!("NUMRSC_LLVM_BUILT");
