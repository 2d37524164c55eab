//! Ending runs of a session: from another thread, or when their time is over.
use numrsc_runtime::Canceller;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Ends runs from another thread: those under way that were given it, and all that are given it later.
///
/// Compiled loops look for it once a round, and so does every launch of several threads; what lies between is done first.
#[derive(Clone, Default)]
pub struct Cancel {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    cancelled: bool,
    /// The runs under way, each by its number.
    running: Vec<(u64, Canceller)>,
    started: u64,
}

impl Cancel {
    /// One that ends nothing yet.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// End the runs.
    pub fn cancel(&self) {
        let mut state = self.lock();
        state.cancelled = true;
        state.running.iter().for_each(|(_, run)| run.cancel());
    }

    /// Whether [`Cancel::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.lock().cancelled
    }

    /// State that a run is about to begin, unless it must not.
    pub(super) fn begin(&self, run: &Canceller) -> Option<Running<'_>> {
        let mut state = self.lock();
        if state.cancelled {
            return None;
        }
        state.started += 1;
        let number = state.started;
        state.running.push((number, run.clone()));
        Some(Running { cancel: self, number })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}

/// A run that can be ended. Once this is dropped, nothing ends the run's context any more.
pub(super) struct Running<'c> {
    cancel: &'c Cancel,
    number: u64,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.cancel.lock().running.retain(|(number, _)| *number != self.number);
    }
}

/// What a single run may take, see [`Session::run_with`](super::Session::run_with).
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    pub(super) time_limit: Option<Duration>,
    pub(super) cancel: Option<Cancel>,
}

impl RunOptions {
    /// No limits.
    pub fn new() -> RunOptions {
        RunOptions::default()
    }

    /// Stop the run when it has taken that long: [`Error::TimedOut`](crate::Error::TimedOut).
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> RunOptions {
        self.time_limit = Some(limit);
        self
    }

    /// Let this end the run: [`Error::Cancelled`](crate::Error::Cancelled).
    #[must_use]
    pub fn cancel(mut self, cancel: &Cancel) -> RunOptions {
        self.cancel = Some(cancel.clone());
        self
    }
}
