//! Emission: from a function of the tensor IR to kernels and an entry function of the kernel IR.

// A new op may not get a default that nobody thought of: matches list all ops, or say why not.
#![deny(clippy::wildcard_enum_match_arm)]

mod arg;
mod attention;
mod blocked;
mod contract;
mod element;
mod entry;
mod epilogue;
mod gemm;
mod im2col;
mod index;
mod nest;
mod nonzero;
mod panels;
mod pointwise;
mod reduce;
mod scan;
mod scatter;
mod sort;
#[cfg(test)]
mod tests;
mod tile;
mod weights;
mod window;

use numrsc_facts::{Context, Result};
use numrsc_ir::{
    Func, Origins,
    kernel::{FuncId, Module},
};
use numrsc_schedule::{messages::Message, tuning::Candidates};

pub use entry::{MemoryPlan, THREADS};
pub use weights::{Piece, Sink, Stored, Weights};

/// A module whose last function is the entry, with what it needs.
#[derive(Debug)]
pub struct Lowered {
    pub module: Module,
    pub weights: Weights,
    /// What the code `n + 1` of a failed run means.
    pub messages: Vec<Message>,
    /// Launches of kernels in the order of the entry; one in a loop counts once.
    pub launches: Vec<Launch>,
    /// The nodes of the user's model that the entry itself computes: control flow, sizes that depend on data, sequences.
    pub by_entry: Origins,
    /// Those that nothing is left of: what they give was known when compiling, needs nothing but sizes, was there already,
    /// or nobody needs it.
    pub folded: Origins,
    pub memory: MemoryPlan,
    /// Bytes that kernels read and write in one run, loops counted once, for typical sizes.
    pub moved: u64,
    /// The choices of schedules; empty without [`numrsc_facts::PassOptions::tuning`].
    pub choices: Vec<Candidates>,
}

/// A place where the entry runs a kernel.
#[derive(Clone, Debug)]
pub struct Launch {
    pub kernel: FuncId,
    /// The nodes of the user's model that it computes, or a part of them.
    pub origins: Origins,
    /// The launches before it that wrote what it reads.
    pub reads: Vec<usize>,
    /// Does it read what no launch of the same function wrote: inputs, weights, results of control flow?
    pub reads_outside: bool,
}

/// Kernels and the entry function of a verified function whose convolutions have blocks only where there are kernels
/// for them.
pub fn emit(func: &Func, cx: &Context) -> Result<Lowered> {
    entry::lower(func, cx)
}
