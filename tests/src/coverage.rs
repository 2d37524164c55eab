//! Which branches of instrumented code have run. `tests/coverage/rustc` instruments with a pass that LLVM has anyway: for every
//! branch there is a byte that counts how often it was taken, and a call of the function below tells where these bytes are. In other builds there
//! are none, and nothing is ever new.
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

static START: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// What instrumented code calls before `main`.
#[allow(unsafe_code)]
// SAFETY: no other function has this name.
#[unsafe(no_mangle)]
pub extern "C" fn __sanitizer_cov_8bit_counters_init(start: *const u8, stop: *const u8) {
    START.store(start as usize, Ordering::Relaxed);
    COUNT.store(stop as usize - start as usize, Ordering::Relaxed);
}

fn counters() -> &'static [AtomicU8] {
    match START.load(Ordering::Relaxed) {
        0 => &[],
        start => {
            // SAFETY: these bytes are there for as long as the program runs, and are only counted up otherwise.
            #[allow(unsafe_code)]
            unsafe {
                std::slice::from_raw_parts(start as *const AtomicU8, COUNT.load(Ordering::Relaxed))
            }
        }
    }
}

/// What has been seen so far: of each branch, how often it was taken in one go, roughly.
#[derive(Debug)]
pub struct Coverage {
    seen: Vec<u8>,
}

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage { seen: vec![0; counters().len()] }
    }
}

impl Coverage {
    /// Is the code instrumented?
    pub fn is_on(&self) -> bool {
        !self.seen.is_empty()
    }

    /// Starts an input.
    pub fn clear(&self) {
        counters().iter().for_each(|c| c.store(0, Ordering::Relaxed));
    }

    /// Has the input done something new?
    pub fn learn(&mut self) -> bool {
        let mut is_new = false;
        for (counter, seen) in counters().iter().zip(&mut self.seen) {
            let count = counter.load(Ordering::Relaxed);
            if count > 0 {
                // Counts in classes (1, 2, up to 4, 8, 32 or more): loops differ in the order of magnitude.
                let bit = match count {
                    1 => 1,
                    2 => 2,
                    3 | 4 => 4,
                    5..=8 => 8,
                    9..=32 => 16,
                    _ => 32,
                };
                is_new |= *seen & bit == 0;
                *seen |= bit;
            }
        }
        is_new
    }

    /// How many branches were taken.
    pub fn branches(&self) -> usize {
        self.seen.iter().filter(|s| **s > 0).count()
    }
}
