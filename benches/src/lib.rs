//! Benchmarks of numrsc. Each is a program that measures whole processes, so that memory and start-up count.
pub mod driver;
pub mod graphs;
pub mod ort;
pub mod protocol;
pub mod raw;
pub mod table;

use std::{fs, process::ExitCode};

/// How a program ends that could not do its work: with a message.
pub fn exit_code(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// How much this process had to fetch from disk, in kilobytes: 0 if all files were in memory.
pub fn disk_read_kb() -> Option<u64> {
    let counters = fs::read_to_string("/proc/self/io").ok()?;
    let bytes: u64 = counters.lines().find_map(|l| l.strip_prefix("read_bytes:"))?.trim().parse().ok()?;
    Some(bytes / 1000)
}

/// A field of this process's status in kilobytes, such as `VmHWM`, the peak of resident memory.
pub fn status_kb(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
