//! The thread pool of a context. Threads share the parts of a range and sleep while there is nothing to do.
//!
//! Every thread begins with a share of its own: from kernel to kernel it is then likely to find what it needs in its own caches, as most kernels go over
//! their data in the same order. Who is done with that takes parts of others.
//!
//! A job is open or closed. Workers join an open job by counting themselves in, and out when no part is left. The caller works along,
//! closes the job when no part is left and waits until nobody is in: who wakes up too late finds it closed and delays nobody.
//! Only then is the next job written, so nobody ever sees two.
#![allow(unsafe_code)]
use crate::{
    context::KernelFn,
    float_mode::FloatMode,
    processors::{self, Processors},
};
use std::{
    cell::UnsafeCell,
    hint::spin_loop,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::*},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

pub(crate) struct Pool {
    shared: Arc<Shared>,
    /// Worker 0 is the calling thread, so these are 1, 2 ..
    workers: Vec<JoinHandle<()>>,
    threads: i64,
}

/// How long to spin before going to sleep: longer than most single-threaded work between two kernels of a run.
const PATIENCE: Duration = Duration::from_micros(100);
/// After this long, spinning threads yield to others.
const HURRY: Duration = Duration::from_micros(5);
/// Waking costs the caller about 10 µs and each woken thread twice that, so the rest of a job must take one thread at
/// least this long.
const WORTH_WAKING: Duration = Duration::from_micros(40);
/// Parts per thread: enough to balance parts of different cost.
const PARTS_PER_THREAD: i64 = 8;

struct Shared {
    /// [`OPEN`], [`WAITING`], [`END`] and how many workers are in the job.
    state: AtomicU64,
    job: UnsafeCell<Job>,
    /// The next part of each thread's share.
    next: Vec<Apart<AtomicI64>>,
    /// `part << 32 | code` of the first part that failed, or `u64::MAX`.
    failure: AtomicU64,
    asleep: Vec<AtomicBool>,
    /// The processor of the caller, which workers leave to it; `u32::MAX` if there is none to be left.
    callers: AtomicU32,
    /// Where the caller waits until nobody is in.
    lock: Mutex<()>,
    left: Condvar,
}

/// In cache lines of its own, away from prefetched neighbours.
#[repr(align(128))]
struct Apart<T>(T);

const OPEN: u64 = 1 << 63;
const WAITING: u64 = 1 << 62;
const END: u64 = 1 << 61;
const COUNT: u64 = END - 1;

#[derive(Clone, Copy)]
struct Job {
    kernel: KernelFn,
    args: *const u64,
    extent: i64,
    parts: i64,
    /// The number of threads with a share.
    threads: i64,
    /// The caller's floating-point mode: results must not depend on which thread computes a part.
    mode: FloatMode,
}

impl Job {
    /// The first part of a thread's share, which is the end of the one before.
    fn share(&self, thread: i64) -> i64 {
        self.parts * thread / self.threads
    }

    /// The first element of a part, which is the end of the one before.
    fn begin(&self, part: i64) -> i64 {
        (i128::from(self.extent) * i128::from(part) / i128::from(self.parts)) as i64
    }
}

// SAFETY: `job` is written only while it is closed and nobody is in; what `args` leads to is shared with kernels on purpose.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Pool {
    /// If the system gives fewer threads, the pool has fewer.
    pub(crate) fn new(threads: usize) -> Pool {
        unsafe extern "C" fn nothing(_: *const u64, _: i64, _: i64, _: i64) -> i32 {
            0
        }
        let mode = FloatMode::current();
        let none = Job { kernel: nothing, args: std::ptr::null(), extent: 0, parts: 1, threads: 1, mode };
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(none),
            next: (0..threads).map(|_| Apart(AtomicI64::new(0))).collect(),
            failure: AtomicU64::new(u64::MAX),
            asleep: (1..threads).map(|_| AtomicBool::new(false)).collect(),
            callers: AtomicU32::new(u32::MAX),
            lock: Mutex::new(()),
            left: Condvar::new(),
        });
        shared.note_caller();
        let mut workers = Vec::new();
        for worker in 1..threads {
            let shared = Arc::clone(&shared);
            let started = thread::Builder::new().name(format!("numrsc-{worker}")).spawn(move || shared.work(worker));
            match started {
                Ok(handle) => workers.push(handle),
                Err(_) => break,
            }
        }
        Pool { threads: workers.len() as i64 + 1, shared, workers }
    }

    /// Runs a kernel over `0..extent` in parts of at least `grain`. Returns 0, or the code of the lowest part that
    /// failed.
    ///
    /// # Safety
    /// The kernel may run with these arguments on any part of the range, on several threads.
    pub(crate) unsafe fn run(&mut self, kernel: KernelFn, args: *const u64, extent: i64, grain: i64) -> i32 {
        let parts = (extent / grain).clamp(1, self.threads * PARTS_PER_THREAD);
        let helpers = self.workers.len().min(usize::try_from(parts - 1).unwrap_or(usize::MAX));
        if helpers == 0 {
            // SAFETY: as the caller says.
            return unsafe { kernel(args, 0, extent, 0) };
        }
        let shared = &*self.shared;
        let job = Job { kernel, args, extent, parts, threads: helpers as i64 + 1, mode: FloatMode::current() };
        // SAFETY: the last job was closed and left by all, and `self` is borrowed exclusively.
        unsafe { *shared.job.get() = job };
        (0..).zip(&shared.next).for_each(|(thread, next)| next.0.store(job.share(thread), Relaxed));
        shared.failure.store(u64::MAX, Relaxed);
        shared.note_caller();
        shared.state.store(OPEN, SeqCst);
        // Either this sees that a worker sleeps, or the worker sees that the job is open: both are in one order.
        if shared.asleep[..helpers].iter().any(|asleep| asleep.load(SeqCst)) {
            // One part is timed first, unless there are so few that this would take too long.
            let few = grain == 1 && parts < self.threads * PARTS_PER_THREAD / 2;
            let start = Instant::now();
            // SAFETY: as the caller says.
            if few
                || unsafe { shared.take_parts(job, 0, 1) }
                    && start.elapsed() * u32::try_from(parts - 1).unwrap_or(u32::MAX) > WORTH_WAKING
            {
                self.wake(helpers);
            }
        }
        // SAFETY: as the caller says.
        while unsafe { shared.take_parts(job, 0, parts) } {}
        shared.state.fetch_and(!OPEN, SeqCst);
        shared.wait_until_left();
        match shared.failure.load(Relaxed) {
            u64::MAX => 0,
            failure => (failure as u32).cast_signed(),
        }
    }

    /// Wakes those of the first workers that sleep.
    fn wake(&self, helpers: usize) {
        for (asleep, worker) in self.shared.asleep.iter().zip(&self.workers).take(helpers) {
            if asleep.load(SeqCst) && asleep.swap(false, SeqCst) {
                worker.thread().unpark();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state.store(END, SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker cannot panic; if one did, nothing could be done about it here.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn work(&self, worker: usize) {
        let (asleep, allowed) = (&self.asleep[worker - 1], Processors::allowed());
        loop {
            if !patiently(|| self.state.load(Relaxed) & (OPEN | END) != 0, || self.step_aside(allowed)) {
                asleep.store(true, SeqCst);
                while self.state.load(SeqCst) & (OPEN | END) == 0 && asleep.load(SeqCst) {
                    thread::park();
                }
                asleep.store(false, SeqCst);
            }
            self.step_aside(allowed);
            let state = self.state.load(SeqCst);
            if state & END != 0 {
                return;
            }
            if state & OPEN != 0 && self.state.compare_exchange(state, state + 1, SeqCst, SeqCst).is_ok() {
                // SAFETY: whoever is in an open job may read it. `Pool::run` answers for the kernel.
                unsafe {
                    let job = *self.job.get();
                    job.mode.within(|| while self.take_parts(job, worker as i64, job.parts) {});
                }
                // No part is left for others.
                self.state.fetch_and(!OPEN, SeqCst);
                self.leave();
            }
        }
    }

    fn note_caller(&self) {
        self.callers.store(processors::current().unwrap_or(u32::MAX), Relaxed);
    }

    /// A worker moves away from the caller's processor.
    fn step_aside(&self, allowed: Option<Processors>) {
        let callers = self.callers.load(Relaxed);
        if let Some(allowed) = allowed.filter(|_| processors::current() == Some(callers)) {
            allowed.avoid(callers);
        }
    }

    /// Does at most this many parts, while there are any: half of what is left of a share each time, so that only the
    /// last pieces are small.
    ///
    /// # Safety
    /// As for `Pool::run`.
    unsafe fn take_parts(&self, job: Job, worker: i64, most: i64) -> bool {
        for owner in (0..job.threads).map(|turn| (worker + turn) % job.threads) {
            let (next, end) = (&self.next[owner as usize].0, job.share(owner + 1));
            let mut first = next.load(Relaxed);
            while first < end {
                let behind = first + ((end - first) / 2).clamp(1, most);
                match next.compare_exchange_weak(first, behind, Relaxed, Relaxed) {
                    Ok(_) => {
                        // SAFETY: as the caller says.
                        unsafe { self.run_parts(job, first, behind, worker) };
                        return true;
                    }
                    Err(now) => first = now,
                }
            }
        }
        false
    }

    /// # Safety
    /// As for `Pool::run`.
    unsafe fn run_parts(&self, job: Job, first: i64, behind: i64, worker: i64) {
        // Parts before one that failed are still done, so that the lowest failure is found.
        if first.cast_unsigned() > self.failure.load(Relaxed) >> 32 {
            return;
        }
        // SAFETY: as the caller says.
        let code = unsafe { (job.kernel)(job.args, job.begin(first), job.begin(behind), worker) };
        if code != 0 {
            self.failure.fetch_min((first.cast_unsigned()) << 32 | u64::from(code.cast_unsigned()), Relaxed);
        }
    }

    fn leave(&self) {
        // The caller sees all writes of this thread once it sees the count go down.
        let before = self.state.fetch_sub(1, SeqCst);
        if before == WAITING | 1 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.left.notify_one();
        }
    }

    fn wait_until_left(&self) {
        let nobody_in = || self.state.load(SeqCst) & COUNT == 0;
        if patiently(nobody_in, || {}) {
            return;
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.state.fetch_or(WAITING, SeqCst);
        while !nobody_in() {
            guard = self.left.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.state.fetch_and(!WAITING, SeqCst);
    }
}

/// Spins for a short while until a condition holds, yielding later on.
fn patiently(condition: impl Fn() -> bool, meanwhile: impl Fn()) -> bool {
    let mut start = None;
    loop {
        for _ in 0..32 {
            if condition() {
                return true;
            }
            spin_loop();
        }
        match start.get_or_insert_with(Instant::now).elapsed() {
            waited if waited > PATIENCE => return false,
            waited if waited > HURRY => {
                meanwhile();
                thread::yield_now();
            }
            _ => {}
        }
    }
}
