//! What a launch sees of memory, and who touches it.
use super::{
    fault::What,
    global::Allocation,
    shadow::{Conflict, Shadow, Touch, Who},
};
use crate::ptx::Space;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Where shared memory lies in generic addresses.
pub const SHARED_WINDOW: u64 = 0x7e00_0000_0000;

/// Bytes of global memory that are watched together.
const PAGE: u64 = 4096;
/// Pages are spread over so many locks.
const SHARDS: u64 = 64;

/// What is known of a page: who touched it, and which of its sectors were.
pub(super) struct Page {
    shadow: Shadow,
    sectors: u128,
}

pub(super) type Shard = HashMap<u64, Page>;

/// Global memory during a launch.
pub(super) struct Watched {
    allocations: Vec<Arc<Allocation>>,
    shards: Vec<Mutex<Shard>>,
}

/// The shard that was used last stays locked: neighbouring lanes touch the same page.
pub(super) type Lock<'w> = Option<(u64, MutexGuard<'w, Shard>)>;

impl Watched {
    pub(super) fn new(allocations: Vec<Arc<Allocation>>) -> Watched {
        Watched { allocations, shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    pub(super) fn find(&self, address: u64, bytes: u64) -> Result<&Allocation, What> {
        let at = self.allocations.partition_point(|a| a.base <= address);
        match at.checked_sub(1).map(|i| &self.allocations[i]) {
            Some(allocation) if allocation.holds(address, bytes) => Ok(allocation),
            _ => Err(What::OutOfBounds { space: Space::Global, address, bytes }),
        }
    }

    /// Bytes that do not cross a page are touched.
    pub(super) fn touch<'w>(
        &'w self,
        lock: &mut Lock<'w>,
        address: u64,
        bytes: u64,
        who: Who,
        touch: Touch,
    ) -> Option<Conflict> {
        let page = address / PAGE;
        let shard = page % SHARDS;
        if lock.as_ref().is_none_or(|(held, _)| *held != shard) {
            // One lock at a time: no two threads wait for each other.
            *lock = None;
            let guard = self.shards[shard as usize].lock().unwrap_or_else(PoisonError::into_inner);
            *lock = Some((shard, guard));
        }
        let (_, pages) = lock.as_mut().expect("locked above");
        let page = pages.entry(page).or_insert_with(|| Page { shadow: Shadow::new(PAGE as usize), sectors: 0 });
        page.sectors |= 1 << (address % PAGE / 32);
        page.shadow.touch((address % PAGE) as usize, bytes as usize, who, touch)
    }

    pub(super) fn distinct_sectors(&self) -> u64 {
        let of = |shard: &Mutex<Shard>| {
            let pages = shard.lock().unwrap_or_else(PoisonError::into_inner);
            pages.values().map(|p| u64::from(p.sectors.count_ones())).sum::<u64>()
        };
        self.shards.iter().map(of).sum()
    }
}

/// Shared memory of a block.
pub(super) struct Shared {
    bytes: Vec<u8>,
    defined: Vec<bool>,
    shadow: Shadow,
}

impl Shared {
    pub(super) fn new(bytes: u64) -> Shared {
        let bytes = bytes as usize;
        Shared { bytes: vec![0; bytes], defined: vec![false; bytes], shadow: Shadow::new(bytes) }
    }

    pub(super) fn check(&self, address: u64, bytes: u64) -> Result<(), What> {
        let end = address.checked_add(bytes).filter(|&end| end <= self.bytes.len() as u64);
        end.map(|_| ()).ok_or(What::OutOfBounds { space: Space::Shared, address, bytes })
    }

    pub(super) fn load(&self, address: u64, bytes: u64) -> (u64, bool) {
        let range = address as usize..(address + bytes) as usize;
        let value = self.bytes[range.clone()].iter().rev().fold(0, |x, &byte| x << 8 | u64::from(byte));
        (value, self.defined[range].iter().all(|d| *d))
    }

    pub(super) fn store(&mut self, address: u64, bytes: u64, value: u64) {
        let range = address as usize..(address + bytes) as usize;
        self.bytes[range.clone()].copy_from_slice(&value.to_le_bytes()[..bytes as usize]);
        self.defined[range].fill(true);
    }

    pub(super) fn touch(&mut self, address: u64, bytes: u64, who: Who, touch: Touch) -> Option<Conflict> {
        self.shadow.touch(address as usize, bytes as usize, who, touch)
    }
}
