//! Memory from Linux. Large blocks are mappings of their own. Small ones are cut from larger ones and kept in lists by size when they come back.
#![allow(unsafe_code)]
use super::linux;
use core::{
    alloc::{GlobalAlloc, Layout},
    cell::UnsafeCell,
    ptr::null_mut,
};

/// Sizes are powers of two, from 16 bytes on, and blocks are aligned to their size: to any element of a tensor, whatever the layout says.
const SMALLEST: usize = 16;
const CLASSES: usize = 12;
/// Blocks of more bytes than the largest class are mapped.
const LARGEST: usize = SMALLEST << (CLASSES - 1);
/// What is cut into small blocks.
const CHUNK: usize = 4 * LARGEST;

pub(super) struct Heap(UnsafeCell<State>);

struct State {
    idle: [*mut Idle; CLASSES],
    /// What is left of the last chunk.
    rest: *mut u8,
    rest_bytes: usize,
}

struct Idle {
    next: *mut Idle,
}

// SAFETY: the program has one thread.
unsafe impl Sync for Heap {}

impl Heap {
    pub(super) const fn new() -> Heap {
        Heap(UnsafeCell::new(State { idle: [null_mut(); CLASSES], rest: null_mut(), rest_bytes: 0 }))
    }
}

// SAFETY: blocks do not overlap: a mapping is used for one block, and a part of a chunk is given away once, or again after it came back.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = class_of(layout) else { return linux::map(layout.size()) };
        // SAFETY: there is one thread, and no reference leaves this function.
        let state = unsafe { &mut *self.0.get() };
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
        match class_of(layout) {
            // SAFETY: `alloc` mapped that many bytes, and the caller is done with them.
            None => unsafe { linux::unmap(block, layout.size()) },
            // SAFETY: there is one thread; the block is large enough, aligned and nobody else's.
            Some(class) => unsafe {
                let idle = block.cast::<Idle>();
                let state = &mut *self.0.get();
                idle.write(Idle { next: state.idle[class] });
                state.idle[class] = idle;
            },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller says.
        let block = unsafe { self.alloc(layout) };
        // Mappings are zero already.
        if !block.is_null() && class_of(layout).is_some() {
            // SAFETY: `alloc` gave that many bytes.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }
}

/// The class of a block, `None` if it is mapped: pages are aligned to more than anyone asks for.
fn class_of(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(SMALLEST).checked_next_power_of_two()?;
    (bytes <= LARGEST).then(|| (bytes / SMALLEST).ilog2() as usize)
}
