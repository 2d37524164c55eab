//! Ends runs from another thread. Compiled loops poll a flag in the context of their run; it exists only during the
//! run, so the canceller keeps track of where it is.
#![allow(unsafe_code)]
use crate::context::RunContext;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU32, Ordering},
};

/// Ends the runs of a context: the current one, if there is one, and all that follow until [`Canceller::reset`]. They
/// return [`Error::Cancelled`](crate::Error::Cancelled). Loops poll once per round, as does every launch on several
/// threads; a kernel runs to its end.
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

    /// Allows runs again.
    pub fn reset(&self) {
        self.lock().cancelled = false;
    }

    pub fn is_cancelled(&self) -> bool {
        self.lock().cancelled
    }

    /// Registers a run that is about to begin; `None` if it must not.
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

/// A run in progress.
pub(crate) struct Running<'c> {
    canceller: &'c Canceller,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.canceller.lock().running = None;
    }
}
