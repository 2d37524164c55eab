//! A launch: all blocks of a grid, on all cores.
use super::{block::Block, count::Counts, fault::Fault, global::Allocation, memory::Watched};
use crate::decode::Program;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

/// Warp instructions that a block may take.
const LIMIT: u64 = 1 << 32;

/// In which order warps, fragments of warps and blocks run. What a kernel computes does not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Forward,
    Backward,
    Shuffled(u64),
}

impl Order {
    pub(super) fn is_backward(self) -> bool {
        self == Order::Backward
    }

    pub(super) fn random(self, block: u32) -> Option<Random> {
        match self {
            Order::Shuffled(seed) => Some(Random(seed ^ u64::from(block).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)),
            _ => None,
        }
    }

    /// The block that runs as the `i`th of so many.
    fn block(self, i: u32, blocks: u32) -> u32 {
        match self {
            Order::Forward => i,
            Order::Backward => blocks - 1 - i,
            Order::Shuffled(seed) => {
                // An odd multiplier that shares no factor with the number of blocks gives every block once.
                let step = (0..).map(|k| (seed >> 3) % 1024 * 2 + 3 + 2 * k).find(|s| gcd(*s, blocks.into()) == 1);
                let step = step.expect("some odd number shares no factor");
                ((u64::from(i) * step + seed) % u64::from(blocks)) as u32
            }
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Numbers for an order: xorshift.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// What is launched, and how.
pub struct Launch<'l> {
    pub(super) program: &'l Program,
    pub(super) grid: [u32; 3],
    pub(super) threads: [u32; 3],
    pub(super) params: &'l [u8],
    pub(super) dynamic_shared: u64,
    /// Where variables of the module lie.
    pub(super) addresses: &'l HashMap<String, u64>,
    pub(super) memory: Watched,
    pub(super) order: Order,
    pub(super) limit: u64,
}

impl std::fmt::Debug for Launch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launch").field("program", self.program).field("grid", &self.grid).finish_non_exhaustive()
    }
}

/// What came of a launch.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub counts: Counts,
    /// Races and reads of what was never written; of each kind and line one.
    pub findings: Vec<Fault>,
    /// What ended the launch.
    pub fault: Option<Fault>,
}

impl<'l> Launch<'l> {
    /// A launch of a program with a block of parameters, over what there is of memory.
    pub fn new(
        program: &'l Program,
        [grid, threads]: [[u32; 3]; 2],
        params: &'l [u8],
        addresses: &'l HashMap<String, u64>,
        memory: Vec<Arc<Allocation>>,
    ) -> Launch<'l> {
        Launch {
            program,
            grid,
            threads,
            params,
            dynamic_shared: 0,
            addresses,
            memory: Watched::new(memory),
            order: Order::Forward,
            limit: LIMIT,
        }
    }

    /// With so many bytes of shared memory besides what the program declares.
    #[must_use]
    pub fn dynamic_shared(mut self, bytes: u64) -> Self {
        // They begin where any type may lie.
        let padding = self.program.shared_bytes.next_multiple_of(16) - self.program.shared_bytes;
        self.dynamic_shared = if bytes == 0 { 0 } else { bytes + padding };
        self
    }

    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// With at most so many instructions of warps per block.
    #[must_use]
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = limit;
        self
    }

    pub(super) fn block_index(&self, number: u32) -> [u32; 3] {
        let [x, y, _] = self.grid;
        [number % x, number / x % y, number / x / y]
    }

    /// Run all blocks.
    pub fn run(&self) -> Report {
        let blocks: u32 = self.grid.iter().product();
        let (next, stop) = (AtomicU32::new(0), AtomicBool::new(false));
        let total = Mutex::new((Counts::default(), Vec::<(u32, Vec<Fault>, Option<Fault>)>::new()));
        let work = || {
            let (mut counts, mut found) = (Counts::default(), vec![]);
            while !stop.load(Relaxed) {
                let i = next.fetch_add(1, Relaxed);
                if i >= blocks {
                    break;
                }
                let number = self.order.block(i, blocks);
                let mut block = Block::new(self, number);
                let fault = block.run().err();
                counts.add(&block.counts);
                stop.fetch_or(fault.is_some(), Relaxed);
                if fault.is_some() || !block.findings.is_empty() {
                    found.push((number, block.findings, fault));
                }
            }
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            total.0.add(&counts);
            total.1.append(&mut found);
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(blocks as usize);
        std::thread::scope(|scope| {
            for _ in 1..workers {
                scope.spawn(work);
            }
            work();
        });
        let (mut counts, mut found) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
        counts.distinct_sectors = self.memory.distinct_sectors();
        // In the order of blocks, whoever ran them.
        found.sort_by_key(|f| f.0);
        let mut report = Report { counts, ..Report::default() };
        for (_, findings, fault) in found {
            for finding in findings {
                let kind = std::mem::discriminant(&finding.what);
                let is_known = |f: &Fault| f.line == finding.line && std::mem::discriminant(&f.what) == kind;
                if !report.findings.iter().any(is_known) {
                    report.findings.push(finding);
                }
            }
            report.fault = report.fault.or(fault);
        }
        report
    }
}
