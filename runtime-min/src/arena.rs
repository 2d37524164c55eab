//! The arena of a context. Every run writes it from one end to the other, so a large arena lies in huge pages where an
//! operating system provides them: the first run takes far fewer page faults, and all runs have fewer TLB misses.
#![allow(unsafe_code)]
use crate::artifact::DATA_ALIGN;
use alloc::alloc::{Layout, alloc, dealloc};
use core::ptr::null_mut;

/// Bytes that are aligned to [`DATA_ALIGN`]; null if there were none left.
#[derive(Debug)]
pub(crate) struct Arena {
    start: *mut u8,
    bytes: usize,
    #[cfg(feature = "std")]
    pages: Option<memmap2::MmapMut>,
}

impl Arena {
    pub(crate) const NONE: Arena = Arena::of(null_mut(), 0);

    pub(crate) fn new(bytes: usize) -> Arena {
        #[cfg(feature = "std")]
        if let Some(arena) = Arena::of_huge_pages(bytes) {
            return arena;
        }
        match Layout::from_size_align(bytes, DATA_ALIGN) {
            // SAFETY: the layout is not empty.
            Ok(layout) if bytes > 0 => Arena::of(unsafe { alloc(layout) }, bytes),
            _ => Arena::NONE,
        }
    }

    const fn of(start: *mut u8, bytes: usize) -> Arena {
        Arena {
            start,
            bytes: if start.is_null() { 0 } else { bytes },
            #[cfg(feature = "std")]
            pages: None,
        }
    }

    /// Getting a huge page takes as long as fifty ordinary ones, so the rest at the end also gets one, unless most of
    /// it would be wasted.
    #[cfg(feature = "std")]
    fn of_huge_pages(bytes: usize) -> Option<Arena> {
        const HUGE: usize = 2 << 20;
        let whole = match bytes % HUGE {
            rest if rest < HUGE / 4 => bytes,
            _ => bytes.checked_next_multiple_of(HUGE)?,
        };
        if whole < HUGE || !cfg!(target_os = "linux") {
            return None;
        }
        let mut pages = memmap2::MmapMut::map_anon(whole.checked_add(HUGE)?).ok()?;
        let skipped = pages.as_ptr().align_offset(HUGE).min(HUGE);
        // Without huge pages, ordinary ones are used.
        #[cfg(target_os = "linux")]
        let _ = pages.advise_range(memmap2::Advice::HugePage, skipped, whole / HUGE * HUGE);
        let start = pages.as_mut_ptr().wrapping_add(skipped);
        let mut arena = Arena::of(start, bytes);
        arena.pages = Some(pages);
        Some(arena)
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        #[cfg(feature = "std")]
        if self.pages.is_some() {
            return;
        }
        if let (false, Ok(layout)) = (self.start.is_null(), Layout::from_size_align(self.bytes, DATA_ALIGN)) {
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(self.start, layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_can_be_written() {
        for bytes in [1, 100, 600 << 10, (2 << 20) - 1, 2 << 20, (4 << 20) + 1, (5 << 20) + 1] {
            let arena = Arena::new(bytes);
            assert!(!arena.start().is_null() && arena.start().addr().is_multiple_of(DATA_ALIGN));
            assert_eq!(arena.bytes(), bytes);
            // SAFETY: it has that many bytes.
            unsafe { arena.start().write_bytes(1, bytes) };
        }
        assert!(Arena::new(usize::MAX).start().is_null());
        assert_eq!(Arena::NONE.bytes(), 0);
    }
}
