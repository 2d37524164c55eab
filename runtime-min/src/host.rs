//! The functions of the runtime that compiled code may call during a run.
#![allow(unsafe_code)]
use crate::{
    context::{KernelFn, RunContext, address, pointer},
    memory::Memory,
};
use core::{ptr::null_mut, sync::atomic::Ordering};

/// The part of a context that compiled code reaches through these functions.
pub(crate) struct State<M> {
    pub(crate) memory: M,
    pub(crate) threads: usize,
    /// Bytes of an allocation that failed, if one did.
    pub(crate) refused: Option<u64>,
    #[cfg(feature = "std")]
    pool: Option<crate::pool::Pool>,
}

impl<M> State<M> {
    pub(crate) fn new(memory: M, threads: usize) -> State<M> {
        State {
            memory,
            threads,
            refused: None,
            #[cfg(feature = "std")]
            pool: None,
        }
    }
}

/// Returned if a kernel launches a kernel. Codes of compiled code are positive.
pub(crate) const NESTED: i32 = -1;

/// Returned if the run is to end.
#[cfg(feature = "std")]
const CANCELLED: i32 = -2;

/// # Safety
/// `context` is the context of a run of a `ContextIn<M>`; as for all functions here.
pub(crate) unsafe extern "C" fn arena<M: Memory>(context: *mut RunContext, bytes: i64) -> *mut u8 {
    // SAFETY: as the caller says.
    unsafe {
        let arena = take::<M>(context, bytes, M::grow_arena);
        if !arena.is_null() {
            let state = pointer::<State<M>>((*context).state);
            (*context).arena = address(arena);
            (*context).arena_bytes = (*state).memory.arena().1 as u64;
        }
        arena
    }
}

pub(crate) unsafe extern "C" fn alloc<M: Memory>(context: *mut RunContext, bytes: i64) -> *mut u8 {
    // SAFETY: as the caller says.
    unsafe { take::<M>(context, bytes, M::alloc) }
}

pub(crate) unsafe extern "C" fn free<M: Memory>(context: *mut RunContext, block: *mut u8) -> *mut u8 {
    // SAFETY: as the caller says; the block came from `alloc` and was not given back yet.
    unsafe {
        if (*context).busy.load(Ordering::Relaxed) == 0 {
            let state = pointer::<State<M>>((*context).state);
            (*state).memory.free(block);
        }
    }
    null_mut()
}

pub(crate) unsafe extern "C" fn parallel<M: Memory>(
    context: *mut RunContext,
    kernel: KernelFn,
    args: *const u64,
    extent: i64,
    grain: i64,
) -> i32 {
    if extent <= 0 {
        return 0;
    }
    // SAFETY: as the caller says. Kernels cannot get at `state`, because the functions here refuse while it is busy.
    unsafe {
        let busy = &(*context).busy;
        if busy.load(Ordering::Relaxed) != 0 {
            return NESTED;
        }
        #[cfg(feature = "std")]
        if (*context).cancel.load(Ordering::Relaxed) != 0 {
            return CANCELLED;
        }
        busy.store(1, Ordering::Relaxed);
        let state = pointer::<State<M>>((*context).state);
        let code = launch(&mut *state, kernel, args, extent, grain.max(1));
        busy.store(0, Ordering::Relaxed);
        code
    }
}

unsafe fn launch<M>(state: &mut State<M>, kernel: KernelFn, args: *const u64, extent: i64, grain: i64) -> i32 {
    #[cfg(feature = "std")]
    if state.threads > 1 && extent > grain {
        let threads = state.threads;
        let pool = state.pool.get_or_insert_with(|| crate::pool::Pool::new(threads));
        // SAFETY: as the caller says.
        return unsafe { pool.run(kernel, args, extent, grain) };
    }
    #[cfg(not(feature = "std"))]
    let _ = (state, grain);
    // SAFETY: as the caller says.
    unsafe { kernel(args, 0, extent, 0) }
}

unsafe fn take<M: Memory>(
    context: *mut RunContext,
    bytes: i64,
    from: impl FnOnce(&mut M, usize) -> *mut u8,
) -> *mut u8 {
    // SAFETY: as the caller says. Other threads exist only while it is busy.
    unsafe {
        if (*context).busy.load(Ordering::Relaxed) != 0 {
            return null_mut();
        }
        let state = &mut *pointer::<State<M>>((*context).state);
        let block = usize::try_from(bytes).map_or(null_mut(), |bytes| from(&mut state.memory, bytes));
        if block.is_null() {
            state.refused = Some(bytes.cast_unsigned());
        }
        block
    }
}
