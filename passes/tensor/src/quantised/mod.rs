//! Products of quantised tensors: on the integers themselves, and in the width that machines multiply fastest.
mod dequantised_products;
mod dot4;
mod narrow;

pub use dequantised_products::dequantised_products;
pub use narrow::narrow;
