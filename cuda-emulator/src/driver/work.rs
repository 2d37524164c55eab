//! What streams have to do, in their order.
use super::{
    device::{BLOCKS_ALONG, SHARED_BYTES, SHARED_BYTES_ASKED, THREADS, THREADS_ALONG},
    error::Code,
    module::Function,
};
use crate::exec::{Counts, Fault, Report, What};
use std::{collections::VecDeque, fmt::Write as _, sync::Arc};

/// Memory of the host.
#[derive(Debug)]
pub(super) enum Host {
    /// What was copied when the call was made, as the driver does with memory that may be swapped out.
    Copied(Vec<u8>),
    /// Page-locked memory, which is read or written when the work is done.
    Locked { address: usize, bytes: usize },
}

#[derive(Debug)]
pub(super) enum Work {
    ToDevice {
        to: u64,
        from: Host,
    },
    /// Into page-locked memory.
    ToHost {
        to: usize,
        from: u64,
        bytes: usize,
    },
    Copy {
        to: u64,
        from: u64,
        bytes: u64,
    },
    Fill {
        to: u64,
        value: u8,
        bytes: u64,
    },
    Launch(Box<Kernel>),
    /// An event, and which of its records this is.
    Record {
        event: u64,
        number: u64,
    },
    Wait {
        event: u64,
        number: u64,
    },
}

/// A kernel that is to run.
#[derive(Debug)]
pub(super) struct Kernel {
    pub function: Arc<Function>,
    pub grid: [u32; 3],
    pub threads: [u32; 3],
    pub shared: u32,
    pub params: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Stream {
    pub queue: VecDeque<Work>,
}

#[derive(Debug, Default)]
pub(super) struct Event {
    /// How often it was recorded, and how many of these records were reached.
    pub recorded: u64,
    pub reached: u64,
    pub stream: u64,
}

impl Kernel {
    /// What the driver refuses before anything runs. `asked` is the shared memory that the function may have.
    pub(super) fn check(&self, asked: u32) -> Result<(), Code> {
        let program = &self.function.program;
        let count: u64 = self.threads.iter().map(|&n| u64::from(n)).product();
        let fits = |of: [u32; 3], most: [u32; 3]| of.iter().zip(most).all(|(n, most)| (1..=most).contains(n));
        if !fits(self.grid, BLOCKS_ALONG) || !fits(self.threads, THREADS_ALONG) || count > THREADS.into() {
            return Err(Code::INVALID_VALUE);
        }
        // Blocks are counted by 32 bits here.
        if self.grid.iter().map(|&n| u128::from(n)).product::<u128>() > u128::from(u32::MAX) {
            return Err(Code::NOT_SUPPORTED);
        }
        let most = program.max_threads.map(|n| n.iter().map(|&n| u64::from(n)).product::<u64>());
        if most.is_some_and(|most| count > most) || program.required_threads.is_some_and(|n| n != self.threads) {
            return Err(Code::INVALID_VALUE);
        }
        let limit = if asked > 0 { asked.max(SHARED_BYTES) } else { SHARED_BYTES }.min(SHARED_BYTES_ASKED);
        if program.shared_bytes + u64::from(self.shared) > limit.into() {
            return Err(Code::INVALID_VALUE);
        }
        if self.shared > 0 && !self.function.has_dynamic_shared {
            return Err(Code::INVALID_VALUE);
        }
        Ok(())
    }
}

/// The error that a launch ends with; findings that hardware would not notice are errors here.
pub(super) fn code(report: &Report) -> Option<Code> {
    let of = |fault: &Fault| match fault.what {
        What::OutOfBounds { .. } | What::Constant { .. } => Code::ILLEGAL_ADDRESS,
        What::Misaligned { .. } => Code::MISALIGNED_ADDRESS,
        What::Endless => Code::LAUNCH_TIMEOUT,
        _ => Code::LAUNCH_FAILED,
    };
    report.fault.as_ref().map(of).or_else(|| report.findings.first().map(of))
}

/// A line of JSON about a launch.
pub(super) fn line(kernel: &Kernel, report: &Report) -> String {
    let Counts { lane_instructions, requests, sectors, used_bytes, distinct_sectors, .. } = &report.counts;
    let mut line = String::new();
    let classes: Vec<String> =
        report.counts.instructions.iter().map(|(class, n)| format!("\"{class:?}\":{n}").to_lowercase()).collect();
    let _ = write!(
        line,
        "{{\"device\":\"{}\",\"kernel\":\"{}\",\"grid\":{:?},\"threads\":{:?},\"instructions\":{{{}}},\
         \"lane_instructions\":{lane_instructions},\"requests\":{requests},\"sectors\":{sectors},\
         \"used_bytes\":{used_bytes},\"distinct_sectors\":{distinct_sectors},\"shared_requests\":{},\
         \"shared_passes\":{},\"divergent_branches\":{},\"barriers\":{},\"findings\":{}}}",
        super::device::NAME,
        kernel.function.program.name,
        kernel.grid,
        kernel.threads,
        classes.join(","),
        report.counts.shared_requests,
        report.counts.shared_passes,
        report.counts.divergent_branches,
        report.counts.barriers,
        report.findings.len() + usize::from(report.fault.is_some()),
    );
    line
}
