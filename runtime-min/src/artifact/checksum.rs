//! A fast 64-bit checksum against accidental damage: four lanes of `h = (h ^ word) * odd; h ^= h >> 32`.
//!
//! Every step is a bijection of the state, so a change within one word always changes the result. It is not
//! cryptographic: an artifact is a program, and whoever can forge one can run code anyway.

/// The checksum of some bytes.
pub fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = Checksum::new();
    sum.update(bytes);
    sum.finish()
}

const LANES: usize = 4;
const BLOCK: usize = LANES * 8;
const MULTIPLIERS: [u64; LANES] =
    [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f];

/// The same for bytes that arrive in parts; the division into parts does not matter.
#[derive(Debug, Clone)]
pub struct Checksum {
    lanes: [u64; LANES],
    /// The bytes after the last whole block.
    rest: [u8; BLOCK],
    rest_len: usize,
    length: u64,
}

impl Checksum {
    pub fn new() -> Checksum {
        Checksum { lanes: MULTIPLIERS, rest: [0; BLOCK], rest_len: 0, length: 0 }
    }

    pub fn update(&mut self, mut bytes: &[u8]) {
        self.length = self.length.wrapping_add(bytes.len() as u64);
        if self.rest_len > 0 {
            let taken = bytes.len().min(BLOCK - self.rest_len);
            self.rest[self.rest_len..self.rest_len + taken].copy_from_slice(&bytes[..taken]);
            self.rest_len += taken;
            bytes = &bytes[taken..];
            if self.rest_len < BLOCK {
                return;
            }
            absorb(&mut self.lanes, &self.rest);
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        let mut lanes = self.lanes;
        for block in blocks {
            absorb(&mut lanes, block);
        }
        self.lanes = lanes;
        self.rest[..rest.len()].copy_from_slice(rest);
        self.rest_len = rest.len();
    }

    /// Equals `update` with that many zeros.
    pub fn zeros(&mut self, mut count: u64) {
        const ZEROS: [u8; 4096] = [0; 4096];
        while count > 0 {
            let part = count.min(ZEROS.len() as u64);
            self.update(&ZEROS[..part as usize]);
            count -= part;
        }
    }

    pub fn finish(mut self) -> u64 {
        if self.rest_len > 0 {
            self.rest[self.rest_len..].fill(0);
            absorb(&mut self.lanes, &self.rest);
        }
        let mut sum = self.length;
        for (lane, multiplier) in self.lanes.iter().zip(MULTIPLIERS) {
            sum = mix(sum.rotate_left(19) ^ lane, multiplier);
        }
        mix(sum, MULTIPLIERS[0])
    }
}

impl Default for Checksum {
    fn default() -> Checksum {
        Checksum::new()
    }
}

#[inline(always)]
fn absorb(lanes: &mut [u64; LANES], block: &[u8; BLOCK]) {
    let (words, _) = block.as_chunks::<8>();
    for ((lane, word), multiplier) in lanes.iter_mut().zip(words).zip(MULTIPLIERS) {
        *lane = mix(*lane ^ u64::from_le_bytes(*word), multiplier);
    }
}

#[inline(always)]
fn mix(state: u64, multiplier: u64) -> u64 {
    let product = state.wrapping_mul(multiplier);
    product ^ (product >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn sample(len: usize) -> Vec<u8> {
        (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 37) as u8).collect()
    }

    #[test]
    fn every_flipped_bit_changes_the_sum() {
        for len in [1, 7, 8, 31, 32, 33, 100, 257] {
            let mut bytes = sample(len);
            let mut seen = BTreeSet::from([checksum(&bytes)]);
            for bit in 0..len * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(seen.insert(checksum(&bytes)), "bit {bit} of {len} bytes");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn length_order_and_zeros_count() {
        let mut seen = BTreeSet::new();
        for len in 0..300 {
            assert!(seen.insert(checksum(&vec![0; len])), "{len} zeros");
        }
        let mut bytes = sample(96);
        let sum = checksum(&bytes);
        // Words of one lane, and of different lanes.
        for (a, b) in [(0, 32), (0, 8), (8, 40)] {
            for i in 0..8 {
                bytes.swap(a + i, b + i);
            }
            assert_ne!(checksum(&bytes), sum, "words at {a} and {b} exchanged");
            for i in 0..8 {
                bytes.swap(a + i, b + i);
            }
        }
    }

    #[test]
    fn parts_do_not_matter() {
        let bytes = sample(200);
        let whole = checksum(&bytes);
        for a in 0..bytes.len() {
            for b in [a, (a + 1).min(200), (a + 31).min(200), 200] {
                let mut sum = Checksum::new();
                sum.update(&bytes[..a]);
                sum.update(&bytes[a..b]);
                sum.update(&bytes[b..]);
                assert_eq!(sum.finish(), whole, "cut at {a} and {b}");
            }
        }
        let mut zeros = Checksum::new();
        zeros.zeros(10_001);
        assert_eq!(zeros.finish(), checksum(&[0; 10_001]));
    }

    #[test]
    fn the_sum_is_the_same_on_every_machine() {
        assert_eq!(checksum(b""), 0x3e10_030f_bb05_4ce8);
        assert_eq!(checksum(b"numrsc"), 0xff5a_be08_263f_8d39);
    }
}
