//! Passes from tensor IR to tensor IR, beside the rules of the e-graph.

// A new op may not get a default that nobody thought of: matches list all ops, or say why not.
#![deny(clippy::wildcard_enum_match_arm)]

mod aside;
mod fold;
pub mod fold_channel_scale;
pub mod fourier;
pub mod half_to_f32;
mod layout;
mod literals;
mod provenance;
mod quantised;
mod rebuild;
mod unroll;

pub use aside::put_aside;
pub use fold::fold;
pub use fold_channel_scale::fold_channel_scale;
pub use fourier::fourier;
pub use half_to_f32::half_to_f32;
pub use layout::{layout, without_odd_blocks};
pub use literals::literals;
pub use quantised::{dequantised_products, narrow};
pub use unroll::unroll;
