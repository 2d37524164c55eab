//! Properties of a processor that passes and backends use.

/// The smallest block of channels, in bytes, where vectors are longer.
const LEAST_BLOCK_BYTES: u32 = 32;

/// A processor as data. Backends make one from their target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Bytes of a vector register; 0 where there are none.
    pub vector_bytes: u32,
    /// Vector registers.
    pub registers: u32,
    /// Does `muladd` round once?
    pub fused: bool,
    /// Does it convert between `f32` and IEEE 16-bit floats?
    pub halves: bool,
    /// Are masked loads and stores as fast as full ones?
    pub masks: bool,
    /// Dot product of two (dot2): does one instruction multiply vectors of 16-bit integers and add neighbouring
    /// products?
    pub dot2: bool,
    /// Dot product of four (dot4): does one instruction multiply a vector of unsigned by one of signed 8-bit integers,
    /// and add every four neighbouring products to a sum?
    pub dot4: bool,
}

impl Machine {
    /// Every x86-64.
    pub const SSE2: Machine =
        Machine { vector_bytes: 16, registers: 16, fused: false, halves: false, masks: false, dot2: true, dot4: false };
    /// With fused products and conversions of 16-bit floats (x86-64-v3).
    pub const AVX2: Machine = Machine { vector_bytes: 32, fused: true, halves: true, ..Machine::SSE2 };
    pub const AVX2_VNNI: Machine = Machine { dot4: true, ..Machine::AVX2 };
    /// With the extensions that x86-64-v4 has.
    pub const AVX512: Machine = Machine { vector_bytes: 64, registers: 32, masks: true, ..Machine::AVX2 };
    pub const AVX512_VNNI: Machine = Machine { dot4: true, ..Machine::AVX512 };
    /// Every AArch64.
    pub const NEON: Machine = Machine { vector_bytes: 16, registers: 32, masks: false, dot2: false, ..Machine::AVX2 };
    /// Without vectors.
    pub const SCALAR: Machine = Machine { vector_bytes: 0, fused: false, halves: false, dot2: false, ..Machine::SSE2 };
    /// Those that have a name.
    pub const NAMED: [(&'static str, Machine); 7] = [
        ("scalar", Machine::SCALAR),
        ("sse2", Machine::SSE2),
        ("avx2", Machine::AVX2),
        ("avx2-vnni", Machine::AVX2_VNNI),
        ("avx512", Machine::AVX512),
        ("avx512-vnni", Machine::AVX512_VNNI),
        ("neon", Machine::NEON),
    ];

    /// The machine of this name.
    pub fn named(name: &str) -> Option<Machine> {
        Machine::NAMED.into_iter().find(|(n, _)| *n == name).map(|(_, machine)| machine)
    }

    /// Lanes of a vector whose widest element has this many bytes.
    pub fn lanes(self, bytes: u32) -> u32 {
        (self.vector_bytes / bytes).max(1)
    }

    /// Possible blocks of `f32` channels, largest first. Half a vector is better than no blocks, unless it is too
    /// short.
    pub fn blocks(self) -> impl Iterator<Item = i64> {
        let least = self.vector_bytes.min(LEAST_BLOCK_BYTES);
        let sizes = [self.vector_bytes, self.vector_bytes / 2].into_iter().filter(move |bytes| *bytes >= least);
        sizes.map(|bytes| i64::from(bytes / 4)).filter(|channels| *channels > 1)
    }

    /// The size of the blocks that so many channels divide into.
    pub fn block(self, channels: i64) -> Option<i64> {
        self.blocks().find(|block| channels > 0 && channels % block == 0)
    }
}
