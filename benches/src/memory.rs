//! Memory use as the operating system reports it.
#![allow(unsafe_code)]

/// The peak of resident memory of the processes that this one waited for, and those that they waited for: the largest of them.
pub fn children_peak_kb() -> u64 {
    // SAFETY: the structure is plain numbers, which the call fills in.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage.ru_maxrss as u64
    }
}
