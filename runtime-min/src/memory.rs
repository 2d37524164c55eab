//! The memory of a context: from the allocator, with everything kept for the next run, or in a buffer of the caller.
#![allow(unsafe_code)]
use crate::artifact::DATA_ALIGN;
use core::{marker::PhantomData, mem::MaybeUninit, ptr::null_mut};

/// Memory of one context. All pointers are aligned to [`DATA_ALIGN`]; null means that none is left.
///
/// Sealed: contexts rely on blocks being valid until they are freed or recycled.
pub trait Memory: sealed::Sealed {
    /// Zeroed slots that live as long as this.
    fn table(&mut self, slots: usize) -> *mut u64;
    /// Keeps what was allocated so far when the rest is recycled.
    fn seal(&mut self);
    fn arena(&self) -> (*mut u8, usize);
    /// The arena, of at least that many bytes.
    fn grow_arena(&mut self, bytes: usize) -> *mut u8;
    fn alloc(&mut self, bytes: usize) -> *mut u8;
    /// # Safety
    /// The block came from `alloc` and was neither freed nor recycled since; null is allowed.
    unsafe fn free(&mut self, block: *mut u8);
    /// Takes back all blocks.
    fn recycle(&mut self);
}

mod sealed {
    pub trait Sealed {}
    #[cfg(feature = "alloc")]
    impl Sealed for super::Heap {}
    impl Sealed for super::Fixed<'_> {}
}

/// A buffer of the caller, used from start to end; blocks are freed only when the next run starts.
#[derive(Debug)]
pub struct Fixed<'m> {
    base: *mut u8,
    length: usize,
    used: usize,
    sealed: usize,
    arena: (*mut u8, usize),
    sealed_arena: (*mut u8, usize),
    buffer: PhantomData<&'m mut [u8]>,
}

// SAFETY: the buffer is borrowed exclusively.
unsafe impl Send for Fixed<'_> {}

impl<'m> Fixed<'m> {
    pub fn new(buffer: &'m mut [MaybeUninit<u8>]) -> Fixed<'m> {
        let base = buffer.as_mut_ptr().cast::<u8>();
        let skipped = base.align_offset(DATA_ALIGN).min(buffer.len());
        Fixed {
            base: base.wrapping_add(skipped),
            length: buffer.len() - skipped,
            used: 0,
            sealed: 0,
            arena: (null_mut(), 0),
            sealed_arena: (null_mut(), 0),
            buffer: PhantomData,
        }
    }
}

impl Memory for Fixed<'_> {
    fn table(&mut self, slots: usize) -> *mut u64 {
        let Some(bytes) = slots.checked_mul(8) else { return null_mut() };
        let table = self.alloc(bytes);
        if !table.is_null() {
            // SAFETY: `alloc` gave that many bytes.
            unsafe { table.write_bytes(0, bytes) };
        }
        table.cast()
    }

    fn seal(&mut self) {
        self.sealed = self.used;
        self.sealed_arena = self.arena;
    }

    fn arena(&self) -> (*mut u8, usize) {
        self.arena
    }

    fn grow_arena(&mut self, bytes: usize) -> *mut u8 {
        if self.arena.0.is_null() || self.arena.1 < bytes {
            let arena = self.alloc(bytes);
            if arena.is_null() {
                return arena;
            }
            self.arena = (arena, bytes);
        }
        self.arena.0
    }

    fn alloc(&mut self, bytes: usize) -> *mut u8 {
        let start = self.used;
        let end = bytes.max(1).checked_next_multiple_of(DATA_ALIGN).and_then(|bytes| start.checked_add(bytes));
        match end {
            Some(end) if end <= self.length => {
                self.used = end;
                self.base.wrapping_add(start)
            }
            _ => null_mut(),
        }
    }

    unsafe fn free(&mut self, _: *mut u8) {}

    fn recycle(&mut self) {
        self.used = self.sealed;
        self.arena = self.sealed_arena;
    }
}

#[cfg(feature = "alloc")]
pub use heap::Heap;

#[cfg(feature = "alloc")]
mod heap {
    use super::{DATA_ALIGN, Memory, null_mut};
    use crate::arena::Arena;
    use alloc::alloc::{Layout, alloc, alloc_zeroed, dealloc};
    use core::ptr::addr_of_mut;

    /// Memory from the allocator. Freed blocks are kept in lists by size, so that a run like the one before allocates
    /// nothing.
    #[derive(Debug)]
    pub struct Heap {
        table: (*mut u8, usize),
        arena: Arena,
        live: *mut Header,
        /// Free blocks by size class.
        idle: [*mut Header; CLASSES],
        /// Bytes of all blocks, live and free.
        block_bytes: usize,
    }

    // SAFETY: the heap owns what its pointers lead to.
    unsafe impl Send for Heap {}

    /// Lies in the [`DATA_ALIGN`] bytes before each block.
    struct Header {
        class: usize,
        next: *mut Header,
        /// Bytes of live blocks.
        previous: *mut Header,
    }

    const _: () = assert!(size_of::<Header>() <= DATA_ALIGN);

    /// Four size classes per octave, from [`DATA_ALIGN`] bytes up to the whole address space.
    const CLASSES: usize = 4 * (usize::BITS as usize - 6);

    impl Heap {
        pub(crate) const fn new() -> Heap {
            Heap {
                table: (null_mut(), 0),
                arena: Arena::NONE,
                live: null_mut(),
                idle: [null_mut(); CLASSES],
                block_bytes: 0,
            }
        }

        /// Returns free blocks to the allocator.
        pub(crate) fn trim(&mut self) {
            for class in 0..CLASSES {
                while !self.idle[class].is_null() {
                    let header = self.idle[class];
                    // SAFETY: idle blocks are ours, and this one is taken out of its list before it goes.
                    unsafe {
                        self.idle[class] = (*header).next;
                        let layout = layout(capacity(class));
                        dealloc(header.cast(), layout);
                        self.block_bytes -= layout.size();
                    }
                }
            }
        }

        /// Bytes held from the allocator.
        pub(crate) fn held_bytes(&self) -> usize {
            self.block_bytes + self.arena.bytes() + self.table.1
        }
    }

    impl Memory for Heap {
        fn table(&mut self, slots: usize) -> *mut u64 {
            debug_assert!(self.table.0.is_null(), "a context has one table");
            let Some(bytes) = slots.max(1).checked_mul(8) else { return null_mut() };
            let Ok(layout) = Layout::from_size_align(bytes, DATA_ALIGN) else { return null_mut() };
            // SAFETY: the layout is not empty.
            let table = unsafe { alloc_zeroed(layout) };
            if !table.is_null() {
                self.table = (table, bytes);
            }
            table.cast()
        }

        fn seal(&mut self) {}

        fn arena(&self) -> (*mut u8, usize) {
            (self.arena.start(), self.arena.bytes())
        }

        fn grow_arena(&mut self, bytes: usize) -> *mut u8 {
            if self.arena.bytes() < bytes.max(1) {
                self.arena = Arena::NONE;
                self.arena = Arena::new(bytes.max(1));
                if self.arena.start().is_null() {
                    self.trim();
                    self.arena = Arena::new(bytes.max(1));
                }
            }
            self.arena.start()
        }

        fn alloc(&mut self, bytes: usize) -> *mut u8 {
            // The largest class must still have a layout.
            if bytes > isize::MAX as usize / 2 {
                return null_mut();
            }
            let class = class_of(bytes.max(1).div_ceil(DATA_ALIGN));
            let layout = layout(capacity(class));
            let mut header = self.idle[class];
            if header.is_null() {
                // SAFETY: the layout is not empty.
                header = unsafe { alloc(layout) }.cast();
                if header.is_null() {
                    self.trim();
                    // SAFETY: as above.
                    header = unsafe { alloc(layout) }.cast();
                }
                if header.is_null() {
                    return null_mut();
                }
                self.block_bytes += layout.size();
            } else {
                // SAFETY: idle blocks are ours and initialised.
                self.idle[class] = unsafe { (*header).next };
            }
            // SAFETY: the block is ours alone and has room for a header; live blocks are ours and initialised.
            unsafe {
                header.write(Header { class, next: self.live, previous: null_mut() });
                if !self.live.is_null() {
                    (*self.live).previous = header;
                }
            }
            self.live = header;
            header.cast::<u8>().wrapping_add(DATA_ALIGN)
        }

        unsafe fn free(&mut self, block: *mut u8) {
            if block.is_null() {
                return;
            }
            let header = block.wrapping_sub(DATA_ALIGN).cast::<Header>();
            // SAFETY: the caller says that the block is live, and so are its neighbours in the list.
            unsafe {
                let Header { class, next, previous } = header.read();
                let link = if previous.is_null() { &raw mut self.live } else { addr_of_mut!((*previous).next) };
                link.write(next);
                if !next.is_null() {
                    (*next).previous = previous;
                }
                (*header).next = self.idle[class];
                self.idle[class] = header;
            }
        }

        fn recycle(&mut self) {
            while !self.live.is_null() {
                let block = self.live.cast::<u8>().wrapping_add(DATA_ALIGN);
                // SAFETY: the head of the list of live blocks is live.
                unsafe { self.free(block) };
            }
        }
    }

    impl Drop for Heap {
        fn drop(&mut self) {
            self.recycle();
            self.trim();
            let (table, bytes) = self.table;
            if let (false, Ok(layout)) = (table.is_null(), Layout::from_size_align(bytes, DATA_ALIGN)) {
                // SAFETY: it was allocated with this layout.
                unsafe { dealloc(table, layout) };
            }
        }
    }

    /// The class of that many units of [`DATA_ALIGN`], at least 1.
    fn class_of(units: usize) -> usize {
        let last = units - 1;
        if last < 4 {
            return last;
        }
        let shift = last.ilog2() as usize - 2;
        shift * 4 + (last >> shift)
    }

    /// The units of a class: the largest number for which `class_of` returns it.
    fn capacity(class: usize) -> usize {
        if class < 4 {
            return class + 1;
        }
        let shift = class / 4 - 1;
        (class % 4 + 5) << shift
    }

    /// The layout of a block of that many units with its header. Fits because `alloc` limits the number of bytes.
    fn layout(units: usize) -> Layout {
        Layout::from_size_align((units + 1) * DATA_ALIGN, DATA_ALIGN).expect("no block is that large")
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn classes_hold_what_they_are_for() {
            let mut last = 0;
            for units in (1..5000).chain((13..52).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1])) {
                let class = class_of(units);
                assert!(class >= last && class < CLASSES, "{units}");
                last = class;
                assert!(capacity(class) >= units, "{units}");
                assert!(capacity(class) - units <= units / 4 + 1, "{units}: waste");
                assert_eq!(class_of(capacity(class)), class, "{units}");
            }
            assert!(class_of(isize::MAX as usize / 2 / DATA_ALIGN + 1) < CLASSES);
        }

        #[test]
        fn blocks_come_back() {
            let mut heap = Heap::new();
            let sizes = [0, 1, 64, 65, 1000, 5000, 1 << 20, 64];
            let first: Vec<_> = sizes.iter().map(|&bytes| heap.alloc(bytes)).collect();
            for (at, (&block, &bytes)) in first.iter().zip(&sizes).enumerate() {
                assert!(!block.is_null() && block.addr().is_multiple_of(DATA_ALIGN));
                // SAFETY: `alloc` gave that many bytes.
                unsafe { block.write_bytes(at as u8, bytes) };
            }
            for (at, (&block, &bytes)) in first.iter().zip(&sizes).enumerate() {
                // SAFETY: written above.
                let content = unsafe { core::slice::from_raw_parts(block, bytes) };
                assert!(content.iter().all(|&byte| byte == at as u8), "blocks overlap");
            }
            // One from the middle, one from either end, the rest by recycling.
            // SAFETY: all are live.
            unsafe {
                heap.free(first[3]);
                heap.free(first[0]);
                heap.free(first[7]);
                heap.free(null_mut());
            }
            heap.recycle();
            let kept = heap.held_bytes();
            assert!(kept >= sizes.iter().sum());
            let mut again: Vec<_> = sizes.iter().map(|&bytes| heap.alloc(bytes)).collect();
            let mut first = first;
            first.sort_unstable();
            again.sort_unstable();
            assert_eq!(first, again, "the same blocks, in any order");
            assert_eq!(heap.held_bytes(), kept);
            heap.recycle();
            heap.trim();
            assert_eq!(heap.held_bytes(), 0);
        }

        #[test]
        fn what_cannot_be_is_null() {
            let mut heap = Heap::new();
            assert!(heap.alloc(usize::MAX).is_null());
            assert!(heap.alloc(isize::MAX as usize / 2).is_null());
            assert!(heap.grow_arena(usize::MAX).is_null());
            assert!(heap.grow_arena(isize::MAX as usize - 100).is_null());
            assert!(!heap.grow_arena(100).is_null());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_up_and_starts_again() {
        let mut buffer = [MaybeUninit::new(0xaa); 1024];
        let mut fixed = Fixed::new(&mut buffer);
        let table = fixed.table(9);
        // SAFETY: `table` gave 9 slots.
        assert_eq!(unsafe { core::slice::from_raw_parts(table, 9) }, [0; 9]);
        let arena = fixed.grow_arena(100);
        fixed.seal();
        let block = fixed.alloc(1);
        assert_eq!(block as usize, arena as usize + 128);
        assert_eq!(fixed.grow_arena(100), arena);
        assert_ne!(fixed.grow_arena(200), arena);
        assert!(fixed.alloc(1024).is_null());
        assert!(fixed.alloc(usize::MAX).is_null());
        fixed.recycle();
        assert_eq!(fixed.arena(), (arena, 100));
        assert_eq!(fixed.alloc(64), block);
        assert!(Fixed::new(&mut []).alloc(0).is_null());
    }
}
