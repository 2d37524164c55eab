//! An emulated CUDA driver: it runs PTX on processors, and is stricter than hardware.
//!
//! Kernels run as they are written, in warps of 32 lanes. Whatever hardware leaves open is an error here: accesses of which nothing says
//! in which order they happen, reads of what was never written, barriers and shuffles that not all lanes reach, addresses outside of
//! what was allocated. Nothing here tells anything of times on a GPU; what can be told is counted.
pub mod decode;
pub mod exec;
pub mod ptx;

pub mod driver;
