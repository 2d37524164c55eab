//! The driver: devices, contexts, memory, modules, streams and events behind CUDA's own functions.
//!
//! Work is done as late as the driver may do it, when something waits for it, so that memory of the host that is freed or written too
//! early shows. Faults of kernels are errors of whatever waits for them first, and of every call after that.
pub mod abi;
mod config;
mod device;
mod error;
mod module;
mod state;
mod work;

pub use error::Code;
