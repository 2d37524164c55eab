//! Running out of memory is a failure like any other: a message and exit code 3 rather than an abort.
//!
//! Whoever asks for much asks in a way that may fail, and says what for. All else ends here: Rust and LLVM call `abort` when an allocation fails, and this looks
//! whether that is why.
#![allow(unsafe_code)]
use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, Ordering},
};

/// As [`crate::cli`] has it for what cannot be read or written.
const EXIT_CODE: i32 = 3;

/// The system's allocator, which remembers that it failed.
pub(crate) struct Watched;

static FAILED: AtomicBool = AtomicBool::new(false);

fn noted(block: *mut u8) -> *mut u8 {
    if block.is_null() {
        FAILED.store(true, Ordering::Relaxed);
    }
    block
}

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        noted(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        noted(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        noted(unsafe { System.realloc(block, layout, size) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
}

/// From now on, an abort for lack of memory is an exit.
#[cfg(target_os = "linux")]
pub(crate) fn watch() {
    let handler = aborted as extern "C" fn(libc::c_int);
    // SAFETY: the handler calls nothing that must not be called by one.
    unsafe { libc::signal(libc::SIGABRT, handler as libc::sighandler_t) };
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn watch() {}

#[cfg(target_os = "linux")]
extern "C" fn aborted(_: libc::c_int) {
    if !FAILED.load(Ordering::Relaxed) && has_memory() {
        // For another reason: `abort` goes on when a handler returns.
        return;
    }
    const MESSAGE: &[u8] = b"error: out of memory: nothing was written (give it more, or a smaller model)\n";
    // SAFETY: both are among what handlers may call, and the message is as long as that.
    unsafe {
        libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len());
        libc::_exit(EXIT_CODE);
    }
}

/// Is there as much as LLVM asks for at a time? Its allocations are not those of Rust.
#[cfg(target_os = "linux")]
fn has_memory() -> bool {
    const BYTES: usize = 16 << 20;
    // SAFETY: a mapping of its own, which nobody else knows, and which goes at once.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let block = libc::mmap(std::ptr::null_mut(), BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        block != libc::MAP_FAILED && libc::munmap(block, BYTES) == 0
    }
}
