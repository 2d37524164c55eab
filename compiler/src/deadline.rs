//! An action after a time, unless it is called off.
use std::{
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

/// Dropping it calls it off.
#[derive(Debug)]
pub struct Deadline {
    _alive: Sender<()>,
}

impl Deadline {
    /// Runs an action after a time, on a thread of its own.
    pub fn after(time: Duration, then: impl FnOnce() + Send + 'static) -> Deadline {
        let (alive, over) = channel();
        thread::spawn(move || {
            if over.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                then();
            }
        });
        Deadline { _alive: alive }
    }
}
