//! The part of lowering that chooses: what is computed where, how products are read, which kernel does a convolution.

// A new op may not get a default that nobody thought of: matches list all ops, or say why not.
#![deny(clippy::wildcard_enum_match_arm)]

pub mod attention;
pub mod conv;
pub mod epilogue;
pub mod fuse;
pub mod index;
pub mod messages;
pub mod operands;
pub mod product;
pub mod state;
pub mod tuning;

use fuse::Traffic;
use numrsc_facts::Context;
use numrsc_ir::{Func, Op};

/// The kernels and bytes moved of a part of a function, of whose parameters some are constant.
#[allow(clippy::wildcard_enum_match_arm, reason = "what is computed of constants is constant")]
pub fn traffic(func: &Func, constant: &[bool], cx: &Context) -> Traffic {
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
