//! Which nodes of the user's model the launches of kernels compute, and who computes the others.
use super::Frame;
use crate::Launch;
use numrsc_ir::{Func, Op, Origin, Origins, Value, kernel::FuncId};
use std::collections::{HashMap, HashSet};

#[derive(Default)]
pub(super) struct Provenance {
    launches: Vec<Launch>,
    /// The launches that write a stored value of a frame.
    writers: HashMap<(usize, Value), Vec<usize>>,
    /// Of the node that kernels are launched for now: the values that they write, the launches whose results they read,
    /// and whether they read anything else.
    writes: Vec<(usize, Value)>,
    reads: Vec<usize>,
    reads_outside: bool,
    frames: usize,
    /// All nodes that something is left of, as far as it needs data, and all others.
    computed: Vec<Origin>,
    folded: Vec<Origin>,
}

impl Provenance {
    /// Another function is lowered; gives its number.
    pub(super) fn begin(&mut self, func: &Func) -> usize {
        self.folded.extend(func.folded().iter().cloned());
        let without_data = func.without_data();
        for (v, node) in func.values() {
            let is_there = without_data[v.0 as usize] || matches!(node.op, Op::Param { .. });
            let place = if is_there { &mut self.folded } else { &mut self.computed };
            place.extend(func.origins(v).iter().cloned());
        }
        self.frames += 1;
        self.frames
    }

    /// The launches that follow are for this node.
    pub(super) fn stand_at(&mut self, frame: &Frame<'_>, v: Value) {
        let writes = frame.fusion.siblings(v).into_iter().chain([v]);
        self.writes = writes.map(|w| (frame.number, w)).collect();
        (self.reads, self.reads_outside) = (vec![], false);
        for read in &frame.fusion.reads[v.0 as usize] {
            match self.writers.get(&(frame.number, *read)) {
                Some(launches) => self.reads.extend(launches),
                None => self.reads_outside = true,
            }
        }
    }

    pub(super) fn launch(&mut self, kernel: FuncId, origins: &Origins) {
        for write in &self.writes {
            self.writers.entry(*write).or_default().push(self.launches.len());
        }
        let (reads, reads_outside) = (self.reads.clone(), self.reads_outside);
        self.launches.push(Launch { kernel, origins: origins.clone(), reads, reads_outside });
    }

    /// The launches, what the entry computes by itself, and what is folded.
    pub(super) fn finish(self) -> (Vec<Launch>, Origins, Origins) {
        let mut named: HashSet<_> = self.launches.iter().flat_map(|l| &l.origins).map(|o| o.node.clone()).collect();
        let mut others = |all: Vec<Origin>| -> Origins {
            let others: Origins = all.into_iter().filter(|o| !named.contains(&o.node)).collect();
            named.extend(others.iter().map(|o| o.node.clone()));
            others
        };
        let (computed, folded) = (others(self.computed), others(self.folded));
        (self.launches, computed, folded)
    }
}
