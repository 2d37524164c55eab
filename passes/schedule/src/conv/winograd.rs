//! When Winograd's algorithm suits, and what it costs.
use super::{BlockedConv, numbers::Numbers, transform::Transform};
use numrsc_ir::Dim;

/// Input and output channels from which on the transforms are paid for.
pub const MIN_CHANNELS: [i64; 2] = [32, 16];

/// Bytes of transformed elements per block; the smallest and the largest number of tiles of a block, per position along
/// an axis.
pub const BLOCK_BYTES: i64 = 800 << 10;

pub const TILES: (i64, i64) = (6, 49);

/// The cost of transforming a vector of a tile, in vector multiply-adds.
pub const TRANSFORMING: i64 = 8;

/// What is assumed of a size that only the run knows.
pub const TYPICAL_SIZE: i64 = 64;

/// Is Winograd admissible and cheaper for a convolution?
pub fn suits(conv: &BlockedConv) -> bool {
    let all = |list: &[i64], x: i64| list.iter().all(|&n| n == x);
    let few = |d: &Dim| d.as_const().is_some_and(|n| n < 4);
    conv.window == [3, 3]
        && all(&conv.strides, 1)
        && all(&conv.dilations, 1)
        && conv.channels == conv.lanes
        && conv.groups == 1
        && !conv.depthwise
        && conv.numbers == Numbers::Float
        && !conv.plain
        && conv.phases.is_one()
        && conv.in_blocks * conv.lanes >= MIN_CHANNELS[0]
        && conv.out_vectors * conv.lanes >= MIN_CHANNELS[1]
        && !conv.output.iter().any(few)
}

/// The cost of a convolution, in vector multiply-adds per image.
pub fn cost(conv: &BlockedConv, transform: Transform) -> i64 {
    let tiles = tile_count(conv, transform);
    let blocks = block_count(conv, transform, most_tiles(conv, transform));
    let products = conv.in_blocks * conv.lanes * conv.out_vectors * (tiles + conv.reading(blocks));
    transform.places() * (products + TRANSFORMING * tiles * (conv.in_blocks + conv.out_vectors))
}

/// Tiles of an image, if necessary of a typical one.
pub fn tile_count(conv: &BlockedConv, transform: Transform) -> i64 {
    let along = |d: &Dim| (d.as_const().unwrap_or(TYPICAL_SIZE) + transform.outputs() - 1) / transform.outputs();
    conv.output.iter().map(along).product()
}

/// Blocks of an image if they have so many tiles at most.
pub fn block_count(conv: &BlockedConv, transform: Transform, tiles: i64) -> i64 {
    (tile_count(conv, transform) + tiles - 1) / tiles
}

/// Tiles of a block at most.
pub fn most_tiles(conv: &BlockedConv, transform: Transform) -> i64 {
    let channels = (conv.in_blocks + conv.out_vectors) * conv.lanes;
    (BLOCK_BYTES / (transform.places() * 4 * channels)).clamp(TILES.0 * transform.inputs(), TILES.1)
}
