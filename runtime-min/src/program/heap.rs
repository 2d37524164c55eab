//! Memory from Linux. Small blocks are cut from larger ones and kept in lists by size when they come back. Large ones share regions of huge pages.
#![allow(unsafe_code)]
use super::linux::{self, HUGE_PAGE};
use core::{
    alloc::{GlobalAlloc, Layout},
    cell::UnsafeCell,
    ptr::null_mut,
};

/// Sizes are powers of two, from 16 bytes on, and blocks are aligned to their size: to any element of a tensor, whatever the layout says.
const SMALLEST: usize = 16;
const CLASSES: usize = 12;
/// Blocks of more bytes than the largest class are whole numbers of [`GRAIN`].
const LARGEST: usize = SMALLEST << (CLASSES - 1);
/// What is cut into small blocks.
const CHUNK: usize = 4 * LARGEST;
/// What large blocks are aligned to: more than anyone asks for.
const GRAIN: usize = 4096;
/// Of large blocks, the first so many bytes are ordinary pages. A huge page takes as long to get as fifty of them, so it is not for programs that need as little as that.
const ORDINARY: usize = 256 << 10;

pub(super) struct Heap(UnsafeCell<State>);

struct State {
    /// Small blocks to be used again, by class.
    idle: [*mut Idle; CLASSES],
    /// What is left of the last chunk.
    rest: *mut u8,
    rest_bytes: usize,
    /// Large blocks to be used again, and what is left of regions.
    spare: *mut Spare,
    ordinary_bytes: usize,
}

struct Idle {
    next: *mut Idle,
}

struct Spare {
    next: *mut Spare,
    bytes: usize,
}

// SAFETY: the program has one thread.
unsafe impl Sync for Heap {}

impl Heap {
    pub(super) const fn new() -> Heap {
        Heap(UnsafeCell::new(State {
            idle: [null_mut(); CLASSES],
            rest: null_mut(),
            rest_bytes: 0,
            spare: null_mut(),
            ordinary_bytes: 0,
        }))
    }
}

// SAFETY: blocks do not overlap: a part of a chunk or region is given away once, or again after it came back.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: there is one thread, and no reference leaves this function.
        let state = unsafe { &mut *self.0.get() };
        let Some(class) = class_of(layout) else {
            return layout.size().checked_next_multiple_of(GRAIN).map_or(null_mut(), |bytes| state.take(bytes));
        };
        let idle = state.idle[class];
        if !idle.is_null() {
            // SAFETY: idle blocks hold this since `dealloc`.
            state.idle[class] = unsafe { (*idle).next };
            return idle.cast();
        }
        let bytes = SMALLEST << class;
        let mut skipped = state.rest.align_offset(bytes);
        if skipped.saturating_add(bytes) > state.rest_bytes {
            let chunk = linux::map(CHUNK);
            if chunk.is_null() {
                return chunk;
            }
            (state.rest, state.rest_bytes, skipped) = (chunk, CHUNK, chunk.align_offset(bytes));
        }
        let block = state.rest.wrapping_add(skipped);
        state.rest = block.wrapping_add(bytes);
        state.rest_bytes -= skipped + bytes;
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: there is one thread; the block is large enough, aligned and nobody else's.
        unsafe {
            let state = &mut *self.0.get();
            match class_of(layout) {
                None => state.keep(block, layout.size().next_multiple_of(GRAIN)),
                Some(class) => {
                    let idle = block.cast::<Idle>();
                    idle.write(Idle { next: state.idle[class] });
                    state.idle[class] = idle;
                }
            }
        }
    }
}

impl State {
    /// A large block: the end of the first spare one that is large enough, or of a new one.
    fn take(&mut self, bytes: usize) -> *mut u8 {
        let mut link = &raw mut self.spare;
        // SAFETY: spare blocks are nobody else's and begin with this since `keep`.
        unsafe {
            while !(*link).is_null() && (**link).bytes < bytes {
                link = &raw mut (**link).next;
            }
            let spare = *link;
            if !spare.is_null() {
                (*spare).bytes -= bytes;
                let left = (*spare).bytes;
                if left == 0 {
                    *link = (*spare).next;
                }
                return spare.cast::<u8>().wrapping_add(left);
            }
        }
        if bytes <= ORDINARY.saturating_sub(self.ordinary_bytes) {
            self.ordinary_bytes += bytes;
            return linux::map(bytes);
        }
        let Some(whole) = bytes.checked_next_multiple_of(HUGE_PAGE) else { return null_mut() };
        let region = linux::map_huge(whole);
        if !region.is_null() && whole > bytes {
            // SAFETY: the region is new.
            unsafe { self.keep(region, whole - bytes) };
        }
        if region.is_null() { region } else { region.wrapping_add(whole - bytes) }
    }

    /// # Safety
    /// A large block that nobody uses.
    unsafe fn keep(&mut self, block: *mut u8, bytes: usize) {
        let spare = block.cast::<Spare>();
        // SAFETY: as the caller says.
        unsafe { spare.write(Spare { next: self.spare, bytes }) };
        self.spare = spare;
    }
}

/// The class of a block, `None` if it is a large one.
fn class_of(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(SMALLEST).checked_next_power_of_two()?;
    (bytes <= LARGEST).then(|| (bytes / SMALLEST).ilog2() as usize)
}
