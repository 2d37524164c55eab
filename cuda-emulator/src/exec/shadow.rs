//! Who touched which memory, and when: accesses of which nothing says in which order they happen are races.
//!
//! Threads of a block are ordered by barriers, those of a warp also by `bar.warp.sync`, those of different blocks by nothing. Time is
//! counted in these two kinds of barriers.
use std::collections::HashMap;

/// A thread at a point of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    /// The number of the block, from 1 on.
    pub block: u32,
    pub thread: u16,
    /// Barriers of the block, then of the warp.
    pub time: (u16, u16),
}

/// How memory is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    Read,
    /// A load that may be served by a cache that does not see writes of the launch.
    ReadCached,
    Write,
    /// A write of what is there already, by somebody else.
    WriteSame,
    Atomic,
}

/// What is wrong with an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Conflict {
    ReadAfterWrite,
    WriteAfterRead,
    WriteAfterWrite,
    /// `ld.global.nc` of memory that the launch writes.
    CachedAndWritten,
}

/// Some accesses: those of one thread, of several of a warp, of a block, or of several blocks, at the latest time.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    block: u32,
    thread: u16,
    time: (u16, u16),
}

const SEVERAL_BLOCKS: u32 = u32::MAX;
/// Marks of several threads of a warp (its number is added), and of several warps.
const SEVERAL_THREADS: u16 = 0x4000;
const SEVERAL_WARPS: u16 = 0xffff;

impl Past {
    fn warp(self) -> Option<u16> {
        match self.thread {
            SEVERAL_WARPS => None,
            t if t >= SEVERAL_THREADS => Some(t - SEVERAL_THREADS),
            t => Some(t / 32),
        }
    }

    /// Did all of it happen before what this thread does now?
    fn is_before(self, who: Who) -> bool {
        if self.block == 0 {
            return true;
        }
        self.block == who.block
            && (self.thread == who.thread
                || self.time.0 < who.time.0
                || (self.warp() == Some(who.thread / 32) && self.time.1 < who.time.1))
    }

    fn add(&mut self, who: Who) {
        let Who { block, thread, time } = who;
        if self.is_before(who) {
            *self = Past { block, thread, time };
            return;
        }
        if self.block != block {
            self.block = SEVERAL_BLOCKS;
        }
        if self.thread != thread {
            self.thread = if self.warp() == Some(thread / 32) { SEVERAL_THREADS + thread / 32 } else { SEVERAL_WARPS };
        }
        self.time = self.time.max(time);
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    writes: Past,
    reads: Past,
    /// The writes were atomic updates.
    atomic: bool,
    cached: bool,
}

impl Cell {
    fn touch(&mut self, who: Who, touch: Touch) -> Option<Conflict> {
        let reads_race = !self.reads.is_before(who);
        let writes_race = !self.writes.is_before(who);
        let conflict = match touch {
            Touch::Read | Touch::ReadCached if writes_race => Some(Conflict::ReadAfterWrite),
            Touch::ReadCached if self.writes.block != 0 => Some(Conflict::CachedAndWritten),
            Touch::Read | Touch::ReadCached => None,
            _ if self.cached => Some(Conflict::CachedAndWritten),
            _ if reads_race => Some(Conflict::WriteAfterRead),
            Touch::Write if writes_race => Some(Conflict::WriteAfterWrite),
            Touch::WriteSame if writes_race && self.atomic => Some(Conflict::WriteAfterWrite),
            Touch::Atomic if writes_race && !self.atomic => Some(Conflict::WriteAfterWrite),
            Touch::Write | Touch::WriteSame | Touch::Atomic => None,
        };
        match touch {
            Touch::Read => self.reads.add(who),
            Touch::ReadCached => {
                self.reads.add(who);
                self.cached = true;
            }
            Touch::Write | Touch::WriteSame | Touch::Atomic => {
                self.writes.add(who);
                self.atomic = touch == Touch::Atomic;
            }
        }
        conflict
    }
}

/// What is known of some memory, by word, and by byte where only parts of words are touched.
#[derive(Debug)]
pub(super) struct Shadow {
    words: Vec<Cell>,
    bytes: HashMap<usize, [Cell; 4]>,
}

impl Shadow {
    /// Of so many bytes.
    pub(super) fn new(bytes: usize) -> Shadow {
        Shadow { words: vec![Cell::default(); bytes.div_ceil(4)], bytes: HashMap::new() }
    }

    /// A thread touches some bytes from a place on, which are aligned to their number.
    pub(super) fn touch(&mut self, at: usize, bytes: usize, who: Who, touch: Touch) -> Option<Conflict> {
        let word = at / 4;
        if bytes >= 4 {
            let mut conflict = None;
            for word in word..word + bytes / 4 {
                if self.bytes.is_empty() || !self.bytes.contains_key(&word) {
                    conflict = conflict.or(self.words[word].touch(who, touch));
                } else if let Some(cells) = self.bytes.get_mut(&word) {
                    cells.iter_mut().for_each(|cell| conflict = conflict.or(cell.touch(who, touch)));
                }
            }
            return conflict;
        }
        let cells = self.bytes.entry(word).or_insert([self.words[word]; 4]);
        let touched = &mut cells[at % 4..at % 4 + bytes];
        touched.iter_mut().fold(None, |conflict, cell| conflict.or(cell.touch(who, touch)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(block: u32, thread: u16, time: (u16, u16)) -> Who {
        Who { block, thread, time }
    }

    #[test]
    fn barriers_order_threads_of_a_block_and_nothing_orders_blocks() {
        let mut shadow = Shadow::new(64);
        assert_eq!(shadow.touch(0, 4, who(1, 0, (0, 0)), Touch::Write), None);
        assert_eq!(shadow.touch(0, 4, who(1, 0, (0, 0)), Touch::Read), None);
        assert_eq!(shadow.touch(0, 4, who(1, 40, (1, 0)), Touch::Read), None);
        assert_eq!(shadow.touch(0, 4, who(1, 41, (1, 0)), Touch::Read), None);
        assert_eq!(shadow.touch(0, 4, who(1, 40, (1, 0)), Touch::Write), Some(Conflict::WriteAfterRead));
        assert_eq!(shadow.touch(4, 4, who(1, 0, (0, 0)), Touch::Write), None);
        assert_eq!(shadow.touch(4, 4, who(2, 0, (9, 0)), Touch::Read), Some(Conflict::ReadAfterWrite));
    }

    #[test]
    fn barriers_of_a_warp_order_that_warp_only() {
        let mut shadow = Shadow::new(64);
        shadow.touch(0, 4, who(1, 0, (0, 0)), Touch::Write);
        assert_eq!(shadow.touch(0, 4, who(1, 31, (0, 1)), Touch::Read), None);
        assert_eq!(shadow.touch(0, 4, who(1, 32, (0, 1)), Touch::Read), Some(Conflict::ReadAfterWrite));
    }

    #[test]
    fn bytes_of_a_word_are_apart() {
        let mut shadow = Shadow::new(64);
        for thread in 0..4 {
            assert_eq!(shadow.touch(thread, 1, who(1, thread as u16, (0, 0)), Touch::Write), None);
        }
        assert_eq!(shadow.touch(2, 2, who(1, 2, (0, 0)), Touch::Read), Some(Conflict::ReadAfterWrite));
        assert_eq!(shadow.touch(0, 4, who(1, 9, (1, 0)), Touch::Read), None);
    }

    #[test]
    fn atomics_go_with_each_other_and_with_nothing_else() {
        let mut shadow = Shadow::new(64);
        assert_eq!(shadow.touch(0, 4, who(1, 0, (0, 0)), Touch::Atomic), None);
        assert_eq!(shadow.touch(0, 4, who(2, 0, (0, 0)), Touch::Atomic), None);
        assert_eq!(shadow.touch(0, 4, who(2, 0, (5, 0)), Touch::Read), Some(Conflict::ReadAfterWrite));
        assert_eq!(shadow.touch(4, 4, who(1, 0, (0, 0)), Touch::Write), None);
        assert_eq!(shadow.touch(4, 4, who(1, 1, (0, 0)), Touch::Atomic), Some(Conflict::WriteAfterWrite));
    }

    #[test]
    fn equal_writes_are_harmless_and_cached_reads_exclude_writes() {
        let mut shadow = Shadow::new(64);
        shadow.touch(0, 4, who(1, 0, (0, 0)), Touch::Write);
        assert_eq!(shadow.touch(0, 4, who(2, 0, (0, 0)), Touch::WriteSame), None);
        shadow.touch(8, 4, who(1, 0, (0, 0)), Touch::ReadCached);
        assert_eq!(shadow.touch(8, 4, who(1, 0, (1, 0)), Touch::Write), Some(Conflict::CachedAndWritten));
    }
}
