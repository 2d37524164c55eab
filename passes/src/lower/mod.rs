//! Lowering: from a function of the tensor IR to kernels and an entry function of the kernel IR.
mod attention;
pub(crate) mod blocked;
mod bounds;
mod contract;
mod conv;
mod element;
mod entry;
mod epilogue;
mod fuse;
mod gemm;
mod index;
mod nest;
mod nonzero;
mod panels;
mod pointwise;
mod reduce;
mod scan;
mod scatter;
mod sort;
mod state;
#[cfg(test)]
mod tests;
mod tile;
mod tuning;
mod weights;
mod window;

use crate::{Context, Result, layout};
use numrsc_ir::{
    DType, Func, Lit, Op, Scalar, ScalarFn, Tensor,
    kernel::{Block, Module, Stmt},
    scalar::{Call, Step},
};

pub(crate) use bounds::{fits, limits};
pub(crate) use contract::packs;
pub use entry::{MemoryPlan, THREADS};
pub(crate) use fuse::{Traffic, is_view};
pub use tuning::{Candidates, Tuning};
pub use weights::{Piece, Sink, Stored, Weights};

/// The name of what lowering does to attention: one kernel, in which no scores are written to memory.
pub(crate) const ATTENTION: &str = "attention";

/// The tolerance unless another one is asked for: what a convolution may be off by where it could be exact, relative to the largest sum of magnitudes
/// `∑|x||w|` of an element of its result. It admits Winograd's F(2x2, 3x3), but not F(4x4, 3x3).
pub const TOLERANCE: f64 = 1e-6;

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
    /// What there was to choose; empty without [`crate::PassOptions::tuning`].
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

/// Lower a verified function.
pub fn lower(func: &Func, cx: &Context) -> Result<Lowered> {
    let func = layout::without_odd_blocks(&func.without_dead_nodes(), cx.machine)?;
    entry::lower(&func, cx)
}

/// The kernels and bytes moved of a part of a function, of whose parameters some are constant.
pub(crate) fn traffic(func: &Func, constant: &[bool], cx: &Context) -> Traffic {
    let mut free: Vec<bool> = Vec::with_capacity(func.nodes().len());
    for node in func.nodes() {
        free.push(match &node.op {
            Op::Param { index, .. } => constant.get(*index as usize).copied().unwrap_or(false),
            _ => node.args.iter().all(|a| free[a.0 as usize]),
        });
    }
    let fusion = fuse::fuse(func, func.results(), &mut state::LowerState::new(cx));
    fusion.traffic(func, &|v| free[v.0 as usize])
}

/// A constant of one element, which needs no memory.
fn scalar_literal(value: &Tensor) -> Option<Lit> {
    if value.len() != 1 || value.dtype() == DType::Str {
        return None;
    }
    let mut bytes = [0; 8];
    bytes[..value.bytes().len()].copy_from_slice(value.bytes());
    let bits = u64::from_le_bytes(bytes);
    let bits = if value.dtype() == DType::Bool { u64::from(bits != 0) } else { bits };
    let mask = if value.dtype().bits() == 64 { u64::MAX } else { (1 << value.dtype().bits()) - 1 };
    Lit::from_bits(value.dtype(), bits & mask)
}

/// A rough count of instructions for a scalar expression.
fn work_of(f: &Scalar) -> i64 {
    // A quotient by a power of two is a product.
    let halves = |c: &Call| matches!(&f.steps()[c.args[1] as usize], Step::Lit(l) if l.is_power_of_two());
    let cost = |s: &Step| match s {
        Step::Arg(_) | Step::Lit(_) => 0,
        Step::Call(c) => match c.f {
            ScalarFn::Div if halves(c) => 1,
            ScalarFn::Div | ScalarFn::Sqrt => 6,
            ScalarFn::Mod | ScalarFn::Rem => 20,
            f if f.sig() == numrsc_ir::scalar::Sig::Float
                && !matches!(f, ScalarFn::Floor | ScalarFn::Ceil | ScalarFn::Trunc | ScalarFn::Round) =>
            {
                16
            }
            ScalarFn::Pow => 30,
            _ => 1,
        },
    };
    f.steps().iter().map(cost).sum()
}
