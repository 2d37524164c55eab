//! Passes of numrsc: from the imported tensor IR to kernels, an entry function and a memory plan.
//!
//! Passes are pure functions from one IR to the next and know targets only as data.
mod aside;
mod context;
pub mod egraph;
mod error;
mod fold;
mod fourier;
mod integers;
mod layout;
mod literals;
pub mod lower;
mod machine;
mod narrow;
pub mod pipeline;
mod quads;
mod rebuild;
pub mod scalar;
mod scales;
mod unroll;
mod weights;
mod widen;

pub use aside::put_aside;
pub use context::{Context, Options};
pub use egraph::{Level, optimise};
pub use error::{Error, Result};
pub use fold::fold;
pub use fourier::fourier;
pub use integers::integers;
pub use layout::layout;
pub use literals::literals;
pub use machine::Machine;
pub use narrow::narrow;
pub use pipeline::PIPELINE;
pub use scales::scales;
pub use unroll::unroll;
pub use widen::widen;
