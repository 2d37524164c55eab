//! Thread placement. Linux may put a woken thread on the processor of the thread that woke it and then leave both there
//! for many milliseconds, however idle other processors are: to it, threads that spin look as busy as threads that
//! work.
#![allow(unsafe_code)]

/// The processors that a thread may use, one bit each.
#[derive(Clone, Copy)]
pub(crate) struct Processors([u64; 16]);

/// The processor of the calling thread, if known.
pub(crate) fn current() -> Option<u32> {
    system::current()
}

impl Processors {
    /// Those of the calling thread.
    pub(crate) fn allowed() -> Option<Processors> {
        let mut mask = [0; 16];
        system::allowed(&mut mask).then_some(Processors(mask))
    }

    /// All but one, unless that is the only one.
    fn without(self, processor: u32) -> Option<Processors> {
        let mut mask = self.0;
        *mask.get_mut(processor as usize / 64)? &= !(1 << (processor % 64));
        (mask != [0; 16]).then_some(Processors(mask))
    }

    /// Restricts the calling thread to all of these but one, unless that is the only one.
    pub(crate) fn avoid(self, processor: u32) {
        if let Some(others) = self.without(processor) {
            system::allow(&others.0);
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use core::ffi::c_int;

    // From the C library that `std` uses. Thread 0 is the calling one.
    unsafe extern "C" {
        safe fn sched_getcpu() -> c_int;
        fn sched_getaffinity(thread: c_int, bytes: usize, mask: *mut u64) -> c_int;
        fn sched_setaffinity(thread: c_int, bytes: usize, mask: *const u64) -> c_int;
    }

    pub(super) fn current() -> Option<u32> {
        u32::try_from(sched_getcpu()).ok()
    }

    pub(super) fn allowed(mask: &mut [u64; 16]) -> bool {
        // SAFETY: it writes no more than it is told that there is.
        unsafe { sched_getaffinity(0, size_of_val(mask), mask.as_mut_ptr()) == 0 }
    }

    pub(super) fn allow(mask: &[u64; 16]) {
        // SAFETY: it reads no more than it is told that there is. If the system refuses, threads are where it puts them.
        unsafe { sched_setaffinity(0, size_of_val(mask), mask.as_ptr()) };
    }
}

/// On other systems, threads stay where the system puts them.
#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn current() -> Option<u32> {
        None
    }

    pub(super) fn allowed(_: &mut [u64; 16]) -> bool {
        false
    }

    pub(super) fn allow(_: &[u64; 16]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_processor_is_not_avoided() {
        let mut mask = [0; 16];
        (mask[0], mask[2]) = (1 << 3, 1);
        let two = Processors(mask);
        let one = two.without(3).expect("there is another one");
        assert_eq!((one.0[0], one.0[2]), (0, 1));
        assert!(one.without(128).is_none());
        assert!(two.without(1024).is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn threads_leave_the_processor_that_they_avoid() {
        std::thread::spawn(|| {
            let allowed = Processors::allowed().expect("Linux says so");
            let here = current().expect("Linux says so");
            allowed.avoid(here);
            assert!(allowed.without(here).is_none() || current() != Some(here));
        })
        .join()
        .expect("it does not panic");
    }
}
