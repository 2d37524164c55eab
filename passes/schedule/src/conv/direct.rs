//! What direct convolutions cost.
use super::BlockedConv;
use numrsc_facts::sizes::ceil_div;

/// Bytes of the operand that a unit reads: about half of a second-level cache.
pub const BLOCK_BYTES: i64 = 1 << 17;

/// Bytes of the weights of a panel that stay in a first-level cache. Larger panels are used part by part, each for all
/// pixels of a block.
pub const PANEL_BYTES: i64 = 24 << 10;

/// The same for 1x1 windows, which read each element once: nothing else has to stay in the cache.
pub const PANEL_BYTES_OF_ONE_TAP: i64 = 48 << 10;

/// The assumed length of a row that only the run knows.
pub const TYPICAL_ROW: i64 = 64;

/// The cost of a convolution, in vector multiply-adds per image.
pub fn cost(conv: &BlockedConv) -> i64 {
    let pixels: i64 = conv.output.iter().map(|d| d.as_const().unwrap_or(TYPICAL_ROW)).product();
    let depth = conv.depth();
    let blocks = ceil_div(pixels * conv.in_blocks * conv.channels * 4, BLOCK_BYTES).max(1);
    depth * conv.out_vectors * (pixels + conv.reading(blocks))
}

/// The blocks of input channels per part of a panel's weights: all, or an equal part that fits the cache.
pub fn part(conv: &BlockedConv) -> i64 {
    let bytes = conv.channels * conv.taps() * conv.panels()[0].vectors * conv.lanes * conv.numbers.weight_bytes();
    let panel = if conv.taps() == 1 { PANEL_BYTES_OF_ONE_TAP } else { PANEL_BYTES };
    let fitting = (panel / bytes).max(1);
    let divides = |n: &i64| conv.in_blocks % n == 0;
    match (1..=conv.in_blocks.min(fitting)).rev().find(divides) {
        // Very small parts cost more than they save.
        Some(n) if n * 2 >= fitting.min(conv.in_blocks) => n,
        _ => conv.in_blocks,
    }
}
