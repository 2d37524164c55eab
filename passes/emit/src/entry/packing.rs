//! The layout of the arena: packed for typical sizes, and stacked in the same order for all others.
use std::collections::BTreeMap;

/// When a buffer is in use, from its first time to its last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lifetime {
    pub start: usize,
    pub end: usize,
}

/// The lowest places of buffers with these sizes such that no two in use at the same time overlap, and the end of the
/// last. The largest is placed first, each in the lowest gap that it fits.
pub(super) fn pack(buffers: &[(i64, Lifetime)]) -> (Vec<i64>, i64) {
    let mut by_size: Vec<usize> = (0..buffers.len()).collect();
    by_size.sort_by_key(|&i| (-buffers[i].0, buffers[i].1.start, i));
    let mut offsets = vec![0; buffers.len()];
    let mut placed = Placed::new(buffers);
    for i in by_size {
        let (size, lifetime) = buffers[i];
        let mut taken: Vec<(i64, i64)> =
            placed.during(lifetime).into_iter().map(|j| (offsets[j], offsets[j] + buffers[j].0)).collect();
        taken.sort_unstable();
        let mut at = 0;
        for (low, high) in taken {
            if at + size <= low {
                break;
            }
            at = at.max(high);
        }
        offsets[i] = at;
        placed.add(i, lifetime);
    }
    let end = offsets.iter().zip(buffers).map(|(o, b)| o + b.0).max().unwrap_or(0);
    (offsets, end)
}

/// The buffers that have a place, by time: a tree whose nodes are spans of time, halved from level to level. A buffer
/// is kept at the fewest spans that make up its lifetime, so that those in use during another are found without looking
/// at all of them.
struct Placed {
    /// All times at which something begins or ends, in order.
    times: Vec<usize>,
    /// Buffers in use during a whole span, and buffers in use at some time within one: from the root, the children of
    /// `n` are `2n` and `2n + 1`.
    whole: Vec<Vec<usize>>,
    within: Vec<Vec<usize>>,
    spans: usize,
}

impl Placed {
    fn new(buffers: &[(i64, Lifetime)]) -> Placed {
        let mut times: Vec<usize> = buffers.iter().flat_map(|(_, l)| [l.start, l.end]).collect();
        times.sort_unstable();
        times.dedup();
        let spans = times.len().max(1).next_power_of_two();
        Placed { times, whole: vec![vec![]; 2 * spans], within: vec![vec![]; 2 * spans], spans }
    }

    /// The first and the last of the finest spans.
    fn leaves(&self, l: Lifetime) -> (usize, usize) {
        (self.times.partition_point(|&t| t < l.start), self.times.partition_point(|&t| t <= l.end) - 1)
    }

    fn add(&mut self, buffer: usize, lifetime: Lifetime) {
        let (first, last) = self.leaves(lifetime);
        for node in cover(self.spans, first, last) {
            self.whole[node].push(buffer);
            let mut above = node / 2;
            while above > 0 && self.within[above].last() != Some(&buffer) {
                self.within[above].push(buffer);
                above /= 2;
            }
        }
    }

    /// The buffers in use at some time of a lifetime, each once.
    fn during(&self, lifetime: Lifetime) -> Vec<usize> {
        let (first, last) = self.leaves(lifetime);
        let mut found = Vec::new();
        for node in cover(self.spans, first, last) {
            found.extend(&self.whole[node]);
            found.extend(&self.within[node]);
            let mut above = node / 2;
            while above > 0 {
                found.extend(&self.whole[above]);
                above /= 2;
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The fewest spans that make up the finest ones from `first` to `last`.
fn cover(spans: usize, first: usize, last: usize) -> Vec<usize> {
    let (mut low, mut high) = (first + spans, last + spans + 1);
    let mut nodes = Vec::new();
    while low < high {
        if low % 2 == 1 {
            nodes.push(low);
            low += 1;
        }
        if high % 2 == 1 {
            high -= 1;
            nodes.push(high);
        }
        (low, high) = (low / 2, high / 2);
    }
    nodes
}

/// Buffers one after the other, each lying on those before it that are in use at the same time: for each buffer the
/// ones that it lies on, which leaves out what lies below one of these.
pub(super) fn supports(lifetimes: &[Lifetime]) -> Vec<Vec<usize>> {
    // The topmost buffer from each time on.
    let mut top: BTreeMap<usize, Option<usize>> = BTreeMap::from([(0, None)]);
    let mut all = Vec::with_capacity(lifetimes.len());
    for (i, l) in lifetimes.iter().enumerate() {
        let at = |top: &BTreeMap<usize, Option<usize>>, time| top.range(..=time).next_back().and_then(|(_, b)| *b);
        let (before, after) = (at(&top, l.start), at(&top, l.end));
        let covered: Vec<usize> = top.range(l.start..=l.end).map(|(time, _)| *time).collect();
        let mut below: Vec<usize> =
            covered.iter().filter_map(|time| top.remove(time).flatten()).chain(before).collect();
        below.sort_unstable();
        below.dedup();
        top.insert(l.start, Some(i));
        if let Some(next) = l.end.checked_add(1) {
            top.entry(next).or_insert(after);
        }
        all.push(below);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lifetimes and sizes from a simple generator.
    fn buffers(count: usize, seed: u64) -> Vec<(i64, Lifetime)> {
        let mut state = seed;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let one = |i: usize| {
            let start = i + below(4) as usize;
            let length = if below(8) == 0 { below(count as u64) } else { below(6) };
            (64 * below(9) as i64, Lifetime { start, end: start + length as usize })
        };
        (0..count).map(one).collect()
    }

    fn together(a: Lifetime, b: Lifetime) -> bool {
        a.start <= b.end && b.start <= a.end
    }

    #[test]
    fn no_two_in_use_at_the_same_time_overlap() {
        for seed in 0..50 {
            let buffers = buffers(60, seed);
            let (offsets, end) = pack(&buffers);
            for (i, (size, lifetime)) in buffers.iter().enumerate() {
                assert!(offsets[i] + size <= end);
                for (j, (other, others)) in buffers.iter().enumerate().take(i) {
                    let apart = offsets[i] + size <= offsets[j] || offsets[j] + other <= offsets[i];
                    assert!(apart || !together(*lifetime, *others), "seed {seed}: {i} and {j}");
                }
            }
        }
    }

    #[test]
    fn supports_give_the_same_heights_as_all_below() {
        for seed in 0..50 {
            let buffers = buffers(60, seed);
            let lifetimes: Vec<Lifetime> = buffers.iter().map(|b| b.1).collect();
            let (mut ends, mut all_ends) = (Vec::new(), Vec::new());
            for (i, below) in supports(&lifetimes).iter().enumerate() {
                let offset = below.iter().map(|&j| ends[j]).max().unwrap_or(0);
                ends.push(offset + buffers[i].0);
                let all = (0..i).filter(|&j| together(lifetimes[i], lifetimes[j]));
                let offset = all.map(|j| all_ends[j]).max().unwrap_or(0);
                all_ends.push(offset + buffers[i].0);
            }
            assert_eq!(ends, all_ends, "seed {seed}");
        }
    }

    #[test]
    fn supports_are_few() {
        let lifetimes: Vec<Lifetime> = buffers(5000, 7).iter().map(|b| b.1).collect();
        let count: usize = supports(&lifetimes).iter().map(Vec::len).sum();
        assert!(count <= 3 * lifetimes.len(), "{count}");
    }
}
