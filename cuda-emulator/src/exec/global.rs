//! Global memory: allocations with gaps between them, of which every byte knows whether it was ever written.
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, Ordering::Relaxed},
    },
};

/// Where device addresses begin: nothing of the host lies there.
const FIRST: u64 = 0x7f00_0000_0000;
/// What the driver aligns allocations to.
const ALIGN: u64 = 256;
/// Bytes between two allocations: an access just outside of one hits none.
const GAP: u64 = 4096;

/// A piece of device memory.
#[derive(Debug)]
pub struct Allocation {
    pub base: u64,
    pub bytes: u64,
    /// Kernels may not write it.
    pub constant: bool,
    words: Box<[AtomicU32]>,
    /// A bit for each byte of a word that was written.
    defined: Box<[AtomicU8]>,
}

impl Allocation {
    fn new(base: u64, bytes: u64, constant: bool) -> Allocation {
        let words = bytes.div_ceil(4) as usize;
        Allocation {
            base,
            bytes,
            constant,
            words: (0..words).map(|_| AtomicU32::new(0)).collect(),
            defined: (0..words).map(|_| AtomicU8::new(0)).collect(),
        }
    }

    /// Is this range inside?
    pub fn holds(&self, address: u64, bytes: u64) -> bool {
        address >= self.base && bytes <= self.bytes && address - self.base <= self.bytes - bytes
    }

    /// Read up to 8 bytes that do not cross a multiple of their number, as little endian; the bits tell which bytes were ever written.
    pub fn load(&self, address: u64, bytes: u64) -> (u64, u8) {
        let at = (address - self.base) as usize;
        if bytes == 8 {
            let (low, high) = (at / 4, at / 4 + 1);
            let value = u64::from(self.words[low].load(Relaxed)) | u64::from(self.words[high].load(Relaxed)) << 32;
            let defined = self.defined[low].load(Relaxed) & 15 | self.defined[high].load(Relaxed) << 4;
            return (value, defined);
        }
        let shift = at % 4;
        let word = self.words[at / 4].load(Relaxed) >> (8 * shift);
        let mask = if bytes == 4 { u32::MAX } else { (1 << (8 * bytes)) - 1 };
        (u64::from(word & mask), self.defined[at / 4].load(Relaxed) >> shift & ((1 << bytes) - 1))
    }

    /// Write up to 8 bytes that do not cross a multiple of their number.
    pub fn store(&self, address: u64, bytes: u64, value: u64) {
        let at = (address - self.base) as usize;
        match bytes {
            8 => {
                self.store(address, 4, value & 0xffff_ffff);
                self.store(address + 4, 4, value >> 32);
            }
            4 => {
                self.words[at / 4].store(value as u32, Relaxed);
                self.defined[at / 4].store(15, Relaxed);
            }
            _ => {
                let shift = at % 4;
                let mask = ((1u32 << (8 * bytes)) - 1) << (8 * shift);
                let new = (value as u32) << (8 * shift) & mask;
                // Others may write the rest of the word meanwhile.
                let update = |old: u32| Some(old & !mask | new);
                self.words[at / 4].fetch_update(Relaxed, Relaxed, update).expect("always updated");
                self.defined[at / 4].fetch_or(((1u8 << bytes) - 1) << shift, Relaxed);
            }
        }
    }

    /// Copy from the host.
    pub fn write(&self, address: u64, from: &[u8]) {
        for (i, &byte) in from.iter().enumerate() {
            let at = address + i as u64;
            if at.is_multiple_of(4)
                && let Some(word) = from.get(i..i + 4)
            {
                self.store(at, 4, u64::from(u32::from_le_bytes(word.try_into().expect("four bytes"))));
            } else if !is_inside_word(from.len(), address, i) {
                self.store(at, 1, u64::from(byte));
            }
        }
    }

    /// Copy to the host. Gives the first byte that was never written, if there is one.
    pub fn read(&self, address: u64, to: &mut [u8]) -> Option<u64> {
        let mut undefined = None;
        for (i, byte) in to.iter_mut().enumerate() {
            let at = address + i as u64;
            let (value, defined) = self.load(at, 1);
            *byte = value as u8;
            if defined == 0 {
                undefined = undefined.or(Some(at));
            }
        }
        undefined
    }

    /// Copy the bytes of another allocation, with what is known of them.
    pub fn copy(&self, address: u64, from: &Allocation, source: u64, bytes: u64) {
        // Both directions are right for ranges that do not overlap; others are read before they are written.
        let all: Vec<(u64, u8)> = (0..bytes).map(|i| from.load(source + i, 1)).collect();
        for (i, (value, defined)) in (0..).zip(all) {
            if defined != 0 {
                self.store(address + i, 1, value);
            }
        }
    }

    /// The word at an aligned address, for atomic updates.
    pub fn word(&self, address: u64) -> &AtomicU32 {
        &self.words[((address - self.base) / 4) as usize]
    }
}

/// Is byte `i` written together with the word that it lies in?
fn is_inside_word(len: usize, address: u64, i: usize) -> bool {
    let into = (address + i as u64) % 4;
    into as usize <= i && i - into as usize + 4 <= len && into != 0
}

/// All allocations of a device.
#[derive(Debug, Default)]
pub struct Global {
    allocations: BTreeMap<u64, Arc<Allocation>>,
    next: u64,
    pub used: u64,
}

impl Global {
    /// New memory, nothing of which is defined.
    pub fn allocate(&mut self, bytes: u64, constant: bool) -> Arc<Allocation> {
        let base = FIRST + self.next;
        self.next += bytes.next_multiple_of(ALIGN) + GAP;
        self.used += bytes.next_multiple_of(ALIGN);
        let allocation = Arc::new(Allocation::new(base, bytes, constant));
        self.allocations.insert(base, Arc::clone(&allocation));
        allocation
    }

    /// Give memory back; false if nothing begins there.
    pub fn free(&mut self, base: u64) -> bool {
        let freed = self.allocations.remove(&base);
        self.used -= freed.as_ref().map_or(0, |a| a.bytes.next_multiple_of(ALIGN));
        freed.is_some()
    }

    /// The allocation that holds a range.
    pub fn find(&self, address: u64, bytes: u64) -> Option<&Arc<Allocation>> {
        let (_, allocation) = self.allocations.range(..=address).next_back()?;
        allocation.holds(address, bytes).then_some(allocation)
    }

    /// What a launch sees, by address.
    pub fn snapshot(&self) -> Vec<Arc<Allocation>> {
        self.allocations.values().cloned().collect()
    }
}
