//! Passes of numrsc: from the imported tensor IR to kernels, an entry function and a memory plan.
//!
//! Passes are pure functions from one IR to the next and know targets only as data.
mod aside;
mod context;
mod dequantised_products;
mod dot4;
pub mod egraph;
mod error;
mod fold;
mod fold_channel_scale;
mod fourier;
mod half_to_f32;
mod layout;
mod literals;
pub mod lower;
mod narrow;
pub mod pipeline;
mod rebuild;
pub mod scalar;
mod unroll;
mod weights;

pub use aside::put_aside;
pub use context::{Context, PassOptions};
pub use dequantised_products::dequantised_products;
pub use egraph::{Level, optimise};
pub use error::{Error, Result};
pub use fold::fold;
pub use fourier::fourier;
pub use layout::layout;
pub use literals::literals;

pub use fold_channel_scale::fold_channel_scale;
pub use half_to_f32::half_to_f32;
pub use narrow::narrow;
pub use pipeline::PIPELINE;
pub use unroll::unroll;
