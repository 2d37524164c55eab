//! What lowering has to know of the machine that will run the code.

/// A processor as data. Backends make one from their target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Bytes of a vector register; 0 where there are none.
    pub vector_bytes: u32,
    /// Vector registers.
    pub registers: u32,
    /// Does `muladd` round once?
    pub fused: bool,
    /// Does it convert between `f32` and IEEE numbers of 16 bits?
    pub halves: bool,
}

impl Machine {
    /// Lanes of a vector whose widest element has this many bytes.
    pub fn lanes(self, bytes: u32) -> u32 {
        (self.vector_bytes / bytes).max(1)
    }
}
