//! Loads, stores and atomic updates of a warp: bounds, alignment, races and counts, lane by lane.
use super::{
    block::Block,
    count::bank_passes,
    fault::What,
    memory::{Lock, SHARED_WINDOW},
    registers::{LANES, Registers},
    shadow::{Touch, Who},
};
use crate::{
    decode::{Access, Action, AtomicOp, Base, Held},
    ptx::Space,
};

/// The largest address that lies in the window of shared memory.
const SHARED_END: u64 = SHARED_WINDOW + (1 << 32);

impl Block<'_> {
    /// An access by the lanes of a mask of a warp.
    pub(super) fn access(&mut self, warp: usize, access: &Access, mask: u32) -> Result<(), (usize, What)> {
        if access.space == Space::Param {
            return self.read_params(warp, access, mask).map_err(|what| (0, what));
        }
        let addresses = addresses(&self.warps[warp].registers, access);
        let lanes: Vec<usize> = (0..LANES).filter(|lane| mask >> lane & 1 == 1).collect();
        let total = access.bytes * access.slots.len() as u64;
        let Some(&first) = lanes.first() else { return Ok(()) };
        let in_window = (SHARED_WINDOW..SHARED_END).contains(&addresses[first]);
        let is_shared = access.space == Space::Shared || access.space == Space::Generic && in_window;
        let from = if access.space == Space::Generic && is_shared { SHARED_WINDOW } else { 0 };
        let used: Vec<u64> = lanes.iter().map(|&lane| addresses[lane].wrapping_sub(from)).collect();
        self.count_access(access, &used, total, is_shared);
        let launch = self.launch;
        let mut lock = None;
        for (&lane, &address) in lanes.iter().zip(&used) {
            let space = if is_shared { Space::Shared } else { access.space };
            if !address.is_multiple_of(total) {
                return Err((lane, What::Misaligned { space, address, bytes: total }));
            }
            let done = if is_shared {
                self.access_shared(warp, lane, access, address, total)
            } else {
                self.access_global(warp, lane, access, address, total, &launch.memory, &mut lock)
            };
            done.map_err(|what| (lane, what))?;
        }
        Ok(())
    }

    fn count_access(&mut self, access: &Access, addresses: &[u64], total: u64, is_shared: bool) {
        if is_shared {
            self.counts.shared_requests += 1;
            self.counts.shared_passes += bank_passes(addresses, total);
        } else if access.space != Space::Const {
            let mut distinct = addresses.to_vec();
            distinct.sort_unstable();
            distinct.dedup();
            self.counts.requests += 1;
            self.counts.used_bytes += distinct.len() as u64 * total;
            distinct.iter_mut().for_each(|a| *a /= 32);
            distinct.dedup();
            self.counts.sectors += distinct.len() as u64;
        }
    }

    fn read_params(&mut self, warp: usize, access: &Access, mask: u32) -> Result<(), What> {
        let Base::Fixed(base) = access.base else { unreachable!("decoded so") };
        let total = access.bytes * access.slots.len() as u64;
        let address = base.wrapping_add_signed(access.offset);
        let out = What::OutOfBounds { space: Space::Param, address, bytes: total };
        let params = self.launch.params;
        let range = address.checked_add(total).filter(|&end| end <= params.len() as u64).ok_or(out)?;
        if !matches!(access.action, Action::Load) {
            return Err(What::Constant { address });
        }
        let elements = params[address as usize..range as usize].chunks_exact(access.bytes as usize);
        let registers = &mut self.warps[warp].registers;
        for (slot, element) in access.slots.iter().zip(elements) {
            let value = element.iter().rev().fold(0, |x, &byte| x << 8 | u64::from(byte));
            for lane in (0..LANES).filter(|lane| mask >> lane & 1 == 1) {
                put(registers, *slot, lane, value, access);
            }
        }
        Ok(())
    }

    fn who(&self, warp: usize, lane: usize) -> Who {
        let time = (self.epoch, self.warps[warp].epoch);
        Who { block: self.number + 1, thread: (warp * LANES + lane) as u16, time }
    }

    fn access_shared(
        &mut self,
        warp: usize,
        lane: usize,
        access: &Access,
        address: u64,
        total: u64,
    ) -> Result<(), What> {
        self.shared.check(address, total)?;
        let who = self.who(warp, lane);
        for (i, slot) in access.slots.iter().enumerate() {
            let (at, bytes) = (address + i as u64 * access.bytes, access.bytes);
            let (old, defined) = self.shared.load(at, bytes);
            let registers = &mut self.warps[warp].registers;
            let (touch, write) = effect(registers, access, *slot, lane, old, bytes);
            let conflict = self.shared.touch(at, bytes, who, touch);
            if let Some(value) = write {
                self.shared.store(at, bytes, value);
            }
            if let Some(conflict) = conflict {
                self.note(warp, lane, What::Race { space: Space::Shared, address: at, conflict })?;
            }
            if !defined && reads(access) {
                self.note(warp, lane, What::Uninitialised { space: Space::Shared, address: at })?;
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the lock lives as long as the access of the warp")]
    fn access_global<'w>(
        &mut self,
        warp: usize,
        lane: usize,
        access: &Access,
        address: u64,
        total: u64,
        memory: &'w super::memory::Watched,
        lock: &mut Lock<'w>,
    ) -> Result<(), What> {
        let allocation = memory.find(address, total)?;
        if allocation.constant && !matches!(access.action, Action::Load) {
            return Err(What::Constant { address });
        }
        let who = self.who(warp, lane);
        for (i, slot) in access.slots.iter().enumerate() {
            let (at, bytes) = (address + i as u64 * access.bytes, access.bytes);
            // Whoever holds the lock of a page is alone there: updates are atomic by that.
            let probe = match access.action {
                Action::Load if access.cached => Touch::ReadCached,
                Action::Load => Touch::Read,
                Action::Store => Touch::Write,
                Action::Atomic { .. } => Touch::Atomic,
            };
            let mut conflict = None;
            if probe != Touch::Write && !allocation.constant {
                conflict = memory.touch(lock, at, bytes, who, probe);
            }
            let (old, defined) = allocation.load(at, bytes);
            let all_defined = u32::from(defined).count_ones() == bytes as u32;
            let registers = &mut self.warps[warp].registers;
            let (touch, write) = effect(registers, access, *slot, lane, old, bytes);
            if probe == Touch::Write {
                let touch = if all_defined { touch } else { Touch::Write };
                conflict = memory.touch(lock, at, bytes, who, touch);
            }
            if let Some(value) = write {
                allocation.store(at, bytes, value);
            }
            if let Some(conflict) = conflict {
                self.note(warp, lane, What::Race { space: Space::Global, address: at, conflict })?;
            }
            if !all_defined && reads(access) {
                self.note(warp, lane, What::Uninitialised { space: Space::Global, address: at })?;
            }
        }
        Ok(())
    }
}

/// Does what lies in memory matter?
fn reads(access: &Access) -> bool {
    match access.action {
        Action::Load => true,
        Action::Store => false,
        Action::Atomic { op, .. } => op != AtomicOp::Exchange,
    }
}

/// What an access of one element does: loads go to the register at once; the new value of memory is given, if there is one.
fn effect(r: &mut Registers, access: &Access, slot: Held, lane: usize, old: u64, bytes: u64) -> (Touch, Option<u64>) {
    match access.action {
        Action::Load => {
            put(r, slot, lane, old, access);
            (if access.cached { Touch::ReadCached } else { Touch::Read }, None)
        }
        Action::Store => {
            let value = get(r, slot, lane) & (u64::MAX >> (64 - 8 * bytes));
            (if value == old { Touch::WriteSame } else { Touch::Write }, Some(value))
        }
        Action::Atomic { op, result, compared } => {
            let compared = compared.map_or(0, |slot| get(r, slot, lane));
            let new = op.apply(old, get(r, slot, lane), compared, bytes);
            if let Some(result) = result {
                put(r, result, lane, old, access);
            }
            (Touch::Atomic, Some(new))
        }
    }
}

fn get(r: &Registers, slot: Held, lane: usize) -> u64 {
    match slot {
        Held::Word(at, _) => r.words[at][lane].into(),
        Held::Double(at) => r.doubles[at][lane],
    }
}

/// An element that was loaded, extended to the width of its register.
fn put(r: &mut Registers, slot: Held, lane: usize, value: u64, access: &Access) {
    let unused = 64 - 8 * access.bytes;
    let value = if access.signed { ((value << unused).cast_signed() >> unused).cast_unsigned() } else { value };
    match slot {
        Held::Word(at, width) => r.words[at][lane] = (value & (u64::MAX >> (64 - width))) as u32,
        Held::Double(at) => r.doubles[at][lane] = value,
    }
}

fn addresses(r: &Registers, access: &Access) -> [u64; LANES] {
    let offset = access.offset;
    match access.base {
        // Addresses of 32 bits wrap as such.
        Base::Word(at) => r.words[at].map(|x| u64::from(x.wrapping_add(offset as u32))),
        Base::Double(at) => r.doubles[at].map(|x| x.wrapping_add_signed(offset)),
        Base::Fixed(at) => [at.wrapping_add_signed(offset); LANES],
    }
}
