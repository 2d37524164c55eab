//! What is written: artifacts, objects and libraries, executables, modules of WebAssembly, C headers and Rust bindings.
//!
//! One file per kind of output, on top of `files` (files appear complete or not at all) and `toolchain` (the linker).
pub mod artifact;
pub(crate) mod c_header;
pub(crate) mod executable;
pub mod files;
pub(crate) mod names;
pub mod object;
pub(crate) mod rust;
pub mod toolchain;
pub mod wasm;
