//! The run context: what the runtime and compiled code share, as slots of 8 bytes on every target.
//!
//! This is the runtime's own copy of the layout that `numrsc_ir::kernel::context` gives to the compiler; a test compares them.
use core::sync::atomic::AtomicU32;

/// What the entry function receives. Addresses are 64-bit numbers, also where pointers are shorter.
///
/// The runtime fills it anew for each run. Compiled code reads it and calls its functions from the thread that runs the
/// entry only, never from within kernels.
#[derive(Debug)]
#[repr(C)]
pub struct RunContext {
    pub weights: u64,
    pub arena: u64,
    pub arena_bytes: u64,
    /// Arrays of [`TensorSlots`].
    pub inputs: u64,
    pub outputs: u64,
    pub threads: u64,
    /// [`MemoryFn`]: grows the arena to that size. Its contents are lost if it has to grow.
    pub fn_arena: u64,
    /// [`MemoryFn`]: allocates a block that lives until it is freed or the next run starts.
    pub fn_alloc: u64,
    /// [`FreeFn`]
    pub fn_free: u64,
    /// [`ParallelFn`]
    pub fn_parallel: u64,
    pub(crate) state: u64,
    /// 1 while kernels run in parallel.
    pub(crate) busy: AtomicU32,
    /// Nonzero if the run is to end. Compiled loops poll it together with `busy`, as one slot that is 0 otherwise.
    pub(crate) cancel: AtomicU32,
}

/// An input or output.
///
/// Of an input, `room` is 0. Of an output, `data` and `room` (in bytes) are a buffer that compiled code must use if it is
/// large enough, and otherwise replaces; without a buffer both are 0. The runtime owns the `sizes`, the code fills in those of outputs.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct TensorSlots {
    pub data: u64,
    pub sizes: u64,
    pub room: u64,
    /// Private to the runtime: 1 for an output with a buffer of the caller.
    pub(crate) given: u64,
}

/// An element of a sequence. The data of a sequence is its length (`i64`) followed by these.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ElementSlots {
    pub data: u64,
    /// -1 for a sequence.
    pub rank: i64,
    pub sizes: [i64; MAX_SEQUENCE_RANK],
}

pub const MAX_SEQUENCE_RANK: usize = 8;

/// Runs the model; returns 0, or 1 more than the index of the failure's message.
pub type EntryFn = unsafe extern "C" fn(context: *mut RunContext) -> i32;
/// Computes `begin..end` of the kernel's range; `args` are its own parameters.
pub type KernelFn = unsafe extern "C" fn(args: *const u64, begin: i64, end: i64, worker: i64) -> i32;
/// Returns memory aligned to [`crate::artifact::DATA_ALIGN`], or null.
pub type MemoryFn = unsafe extern "C" fn(context: *mut RunContext, bytes: i64) -> *mut u8;
/// Frees a block; returns null.
pub type FreeFn = unsafe extern "C" fn(context: *mut RunContext, block: *mut u8) -> *mut u8;
/// Runs a kernel over `0..extent` in parts of at least `grain`; returns 0 or the code of the first part that failed.
pub type ParallelFn =
    unsafe extern "C" fn(context: *mut RunContext, kernel: KernelFn, args: *const u64, extent: i64, grain: i64) -> i32;

pub(crate) fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

pub(crate) fn pointer<T>(address: u64) -> *mut T {
    core::ptr::with_exposed_provenance_mut(address as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::{offset_of, size_of};

    #[test]
    fn slots_have_8_bytes() {
        assert_eq!(size_of::<RunContext>(), 12 * 8);
        assert_eq!(offset_of!(RunContext, fn_parallel), 9 * 8);
        assert_eq!(offset_of!(RunContext, state), 10 * 8);
        assert_eq!(offset_of!(RunContext, busy), 11 * 8);
        assert_eq!(offset_of!(RunContext, cancel), 11 * 8 + 4);
        assert_eq!(size_of::<TensorSlots>(), 4 * 8);
        assert_eq!(size_of::<ElementSlots>(), 10 * 8);
    }
}
