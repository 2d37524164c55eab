//! The pipeline: from the imported tensor IR to kernels, an entry function and a memory plan.
//!
//! Passes are pure functions from one IR to the next and know targets only as data. They are crates of their own, which
//! use each other in one direction: `facts ← {scalar, schedule} ← {tensor, egraph, emit} ← pipeline`.

// A new op may not get a default that nobody thought of: matches list all ops, or say why not.
#![deny(clippy::wildcard_enum_match_arm)]

pub mod pipeline;

pub use numrsc_egraph as egraph;
pub use numrsc_egraph::optimise;
pub use numrsc_emit as emit;
pub use numrsc_facts::{Context, Error, Level, PassOptions, Result, TOLERANCE, Tuning};
pub use numrsc_schedule::tuning::Candidates;
pub use numrsc_tensor::{
    dequantised_products, fold, fold_channel_scale, fourier, half_to_f32, layout, literals, narrow, put_aside, unroll,
};
pub use pipeline::{PIPELINE, lower};
