//! Emission: from a function of the tensor IR to kernels and an entry function of the kernel IR.
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
    Func,
    kernel::{Block, Module, Stmt},
};
use numrsc_schedule::tuning::Candidates;

pub use entry::{MemoryPlan, THREADS};
pub use weights::{Piece, Sink, Stored, Weights};

/// A module whose last function is the entry, with what it needs.
#[derive(Debug)]
pub struct Lowered {
    pub module: Module,
    pub weights: Weights,
    /// What the code `n + 1` of a failed run means.
    pub messages: Vec<String>,
    pub memory: MemoryPlan,
    /// Bytes that kernels read and write in one run, loops counted once, for typical sizes.
    pub moved: u64,
    /// What there was to choose; empty without [`numrsc_facts::PassOptions::tuning`].
    pub choices: Vec<Candidates>,
}

impl Lowered {
    /// Launches of kernels; one in a loop counts once.
    pub fn launches(&self) -> usize {
        self.module.functions.iter().map(|f| launches(&f.body)).sum()
    }
}

fn launches(block: &Block) -> usize {
    let of = |stmt: &Stmt| match stmt {
        Stmt::Launch { .. } => 1,
        Stmt::For { body, .. } => launches(body),
        Stmt::While { cond: a, body: b, .. } | Stmt::If { then: a, or: b, .. } => launches(a) + launches(b),
        Stmt::Let { .. } | Stmt::Store { .. } | Stmt::Prefetch { .. } | Stmt::Fail { .. } | Stmt::Barrier => 0,
    };
    block.stmts.iter().map(of).sum()
}

/// Kernels and the entry function of a verified function whose convolutions have blocks only where there are kernels for
/// them.
pub fn emit(func: &Func, cx: &Context) -> Result<Lowered> {
    entry::lower(func, cx)
}
