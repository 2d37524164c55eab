//! What direct convolutions cost.
use super::BlockedConv;
use numrsc_facts::sizes::ceil_div;

/// Bytes of the operand that a unit reads: about half of a second-level cache.
pub const BLOCK_BYTES: i64 = 1 << 17;

/// Bytes of the weights of a panel that stay in a first-level cache. More of them are used part by part, for all pixels of a block each.
pub const PANEL_BYTES: i64 = 24 << 10;

/// The same where a pixel sees one element per channel and reads it once: nothing else has to stay there.
pub const PANEL_BYTES_OF_ONE_TAP: i64 = 48 << 10;

/// What is assumed of the length of a row that only the run knows.
pub const TYPICAL_ROW: i64 = 64;

/// What a convolution costs, in products of a vector per image.
pub fn cost(conv: &BlockedConv) -> i64 {
    let pixels: i64 = conv.output.iter().map(|d| d.as_const().unwrap_or(TYPICAL_ROW)).product();
    let depth = conv.depth();
    let blocks = ceil_div(pixels * conv.in_blocks * conv.channels * 4, BLOCK_BYTES).max(1);
    depth * conv.out_vectors * (pixels + conv.reading(blocks))
}

/// How many blocks of input channels the weights of a panel are used for at a time: all, or an equal part that fits the cache.
pub fn part(conv: &BlockedConv) -> i64 {
    let bytes = conv.channels * conv.taps() * conv.panels()[0].vectors * conv.lanes * conv.numbers.weight_bytes();
    let panel = if conv.taps() == 1 { PANEL_BYTES_OF_ONE_TAP } else { PANEL_BYTES };
    let fitting = (panel / bytes).max(1);
    let divides = |n: &i64| conv.in_blocks % n == 0;
    match (1..=conv.in_blocks.min(fitting)).rev().find(divides) {
        // Parts that are much too small cost more than they save.
        Some(n) if n * 2 >= fitting.min(conv.in_blocks) => n,
        _ => conv.in_blocks,
    }
}
