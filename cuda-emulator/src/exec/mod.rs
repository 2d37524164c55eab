//! Running decoded kernels: warps of 32 lanes, blocks of warps, and grids of blocks on all cores.
mod access;
mod block;
mod collective;
mod count;
mod fault;
mod global;
mod launch;
pub mod memory;
pub mod registers;
mod shadow;

pub use count::Counts;
pub use fault::{Fault, What};
pub use global::{Allocation, Global};
pub use launch::{Launch, Order, Report};
