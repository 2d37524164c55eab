//! What the emulated device says of itself.
use super::config::Config;

/// Nobody is to take it for a GPU.
pub(super) const NAME: &str = "emulator, not a GPU";

/// Shared memory of a block, unless a kernel asks for more.
pub(super) const SHARED_BYTES: u32 = 48 << 10;
/// The most that a kernel may ask for.
pub(super) const SHARED_BYTES_ASKED: u32 = 64 << 10;
/// The most threads of a block, also along each axis.
pub(super) const THREADS: u32 = 1024;
pub(super) const THREADS_ALONG: [u32; 3] = [1024, 1024, 64];
/// The most blocks along each axis.
pub(super) const BLOCKS_ALONG: [u32; 3] = [0x7fff_ffff, 65535, 65535];

/// A `CUdevice_attribute` by its number.
pub(super) fn attribute(config: &Config, number: i32) -> Option<i32> {
    let [tx, ty, tz] = THREADS_ALONG.map(u32::cast_signed);
    let [bx, by, bz] = BLOCKS_ALONG.map(u32::cast_signed);
    Some(match number {
        1 => THREADS.cast_signed(),
        2 => tx,
        3 => ty,
        4 => tz,
        5 => bx,
        6 => by,
        7 => bz,
        8 => SHARED_BYTES.cast_signed(),
        9 => 65536,        // constant memory
        10 => 32,          // lanes of a warp
        12 => 65536,       // registers of a block
        13 => 1_500_000,   // kHz
        14 => 512,         // alignment of textures
        15 | 31 | 37 => 1, // copies while kernels run, several kernels at once, addresses of the host
        16 => 16,          // multiprocessors
        17 => 0,           // no limit of time
        18 => 0,           // not integrated
        19 => 1,           // can map memory of the host
        20 => 0,           // for anybody
        32 => 0,           // no correction of errors
        33 | 34 | 50 => 0, // PCI
        36 => 5_000_000,   // kHz of memory
        38 => 4 << 20,     // bytes of L2
        39 => 1024,        // threads of a multiprocessor
        40 => 2,           // copy engines
        41 => 1,           // one space of addresses
        75 => (config.capability / 10).cast_signed(),
        76 => (config.capability % 10).cast_signed(),
        78 => 1, // priorities of streams
        81 => SHARED_BYTES_ASKED.cast_signed(),
        82 => 65536, // registers of a multiprocessor
        83 => 0,     // no managed memory
        97 => SHARED_BYTES_ASKED.cast_signed(),
        115 => 0, // no pools of memory
        _ => return None,
    })
}
