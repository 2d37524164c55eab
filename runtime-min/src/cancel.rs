//! Ending runs from another thread. Compiled loops look at a number in the context of their run; it exists only during the run, so who ends runs has to know where.
#![allow(unsafe_code)]
use crate::context::RunContext;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU32, Ordering},
};

/// Ends the runs of a context: the one under way, if there is one, and all that follow until [`Canceller::reset`]. They give
/// [`Error::Cancelled`](crate::Error::Cancelled). Loops look for it once a round, and so does every launch of several threads; what lies between is done first.
#[derive(Clone, Debug, Default)]
pub struct Canceller {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    cancelled: bool,
    running: Option<Flag>,
}

/// The flag within the context of a run.
#[derive(Debug)]
struct Flag(*const AtomicU32);

// SAFETY: it is looked at only under the lock, and is taken away under the lock before the run is over.
unsafe impl Send for Flag {}

impl Canceller {
    pub fn cancel(&self) {
        let mut state = self.lock();
        state.cancelled = true;
        if let Some(Flag(flag)) = state.running {
            // SAFETY: the run is not over while it is stated here.
            unsafe { (*flag).store(1, Ordering::Relaxed) };
        }
    }

    /// Let runs begin again.
    pub fn reset(&self) {
        self.lock().cancelled = false;
    }

    pub fn is_cancelled(&self) -> bool {
        self.lock().cancelled
    }

    /// State that a run is about to begin, unless it must not: then nothing is given.
    pub(crate) fn begin(&self, context: *const RunContext) -> Option<Running<'_>> {
        let mut state = self.lock();
        if state.cancelled {
            return None;
        }
        // SAFETY: the context is there, and only its address is taken.
        state.running = Some(Flag(unsafe { &raw const (*context).cancel }));
        Some(Running { canceller: self })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run under way.
pub(crate) struct Running<'c> {
    canceller: &'c Canceller,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.canceller.lock().running = None;
    }
}
