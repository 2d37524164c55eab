//! What a launch did, in numbers.
use crate::decode::Class;
use std::collections::BTreeMap;

/// Counts of a launch; sums over its blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions of warps, by class.
    pub instructions: BTreeMap<Class, u64>,
    /// The same for single lanes.
    pub lane_instructions: u64,
    /// Branches that lanes of a warp took differently.
    pub divergent_branches: u64,
    /// Accesses of warps to global memory, the sectors of 32 bytes that they fetch, and the bytes of them that are used.
    pub requests: u64,
    pub sectors: u64,
    pub used_bytes: u64,
    /// Sectors that the launch touches at all.
    pub distinct_sectors: u64,
    /// Accesses of warps to shared memory, and the passes that they take because lanes share banks.
    pub shared_requests: u64,
    pub shared_passes: u64,
    pub barriers: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Counts) {
        for (class, n) in &other.instructions {
            *self.instructions.entry(*class).or_default() += n;
        }
        self.lane_instructions += other.lane_instructions;
        self.divergent_branches += other.divergent_branches;
        self.requests += other.requests;
        self.sectors += other.sectors;
        self.used_bytes += other.used_bytes;
        self.distinct_sectors += other.distinct_sectors;
        self.shared_requests += other.shared_requests;
        self.shared_passes += other.shared_passes;
        self.barriers += other.barriers;
    }

    /// Used bytes over fetched ones.
    pub fn efficiency(&self) -> f64 {
        if self.sectors == 0 { 1.0 } else { self.used_bytes as f64 / (32 * self.sectors) as f64 }
    }
}

/// The passes that an access to shared memory takes: of the 32 banks of 4 bytes, each gives one word at a time. Wide accesses
/// are done for a half or a quarter of the warp at a time.
pub(super) fn bank_passes(addresses: &[u64], bytes: u64) -> u64 {
    let per_pass = match bytes {
        16 => 8,
        8 => 16,
        _ => 32,
    };
    let of_part = |part: &[u64]| {
        let mut banks: [Vec<u64>; 32] = std::array::from_fn(|_| vec![]);
        for address in part {
            for word in address / 4..(address + bytes).div_ceil(4) {
                let bank = &mut banks[(word % 32) as usize];
                if !bank.contains(&word) {
                    bank.push(word);
                }
            }
        }
        banks.iter().map(Vec::len).max().unwrap_or(0) as u64
    };
    addresses.chunks(per_pass).map(of_part).sum()
}

#[cfg(test)]
mod tests {
    use super::bank_passes;

    #[test]
    fn banks_are_words_apart() {
        let lanes = |step: u64| (0..32).map(|lane| lane * step).collect::<Vec<u64>>();
        assert_eq!(bank_passes(&lanes(4), 4), 1);
        assert_eq!(bank_passes(&lanes(8), 4), 2);
        assert_eq!(bank_passes(&lanes(128), 4), 32);
        assert_eq!(bank_passes(&lanes(132), 4), 1);
        assert_eq!(bank_passes(&lanes(0), 4), 1);
        assert_eq!(bank_passes(&lanes(16), 16), 4);
    }
}
