//! A block: its warps run until they meet at a barrier, in the order that the launch asks for.
//!
//! Lanes of a warp that take different ways are fragments with places of their own. The one that is furthest behind runs first, and
//! fragments that come to the same place become one again. What needs all lanes (barriers, shuffles) waits for the others.
use super::{
    collective,
    count::Counts,
    fault::{Fault, What},
    launch::{Launch, Random},
    memory::Shared,
    registers::{LANES, Registers},
};
use crate::decode::{Kind, Op, Special};

/// More findings of one block are not told apart.
const MAX_FINDINGS: usize = 20;

/// Lanes that are at the same place.
#[derive(Clone, Copy, Debug)]
struct Fragment {
    at: usize,
    mask: u32,
    /// It waits for other lanes to come to the same place.
    waits: bool,
}

pub(super) struct Warp {
    pub registers: Registers,
    fragments: Vec<Fragment>,
    /// How many barriers of the warp there were since the last one of the block.
    pub epoch: u16,
    at_barrier: bool,
}

impl Warp {
    fn live(&self) -> u32 {
        self.fragments.iter().fold(0, |all, f| all | f.mask)
    }
}

/// Where a thread was when something ended its block.
type Stop = (usize, usize, What);

pub(super) struct Block<'l> {
    pub launch: &'l Launch<'l>,
    pub number: u32,
    pub warps: Vec<Warp>,
    pub shared: Shared,
    pub epoch: u16,
    pub counts: Counts,
    pub findings: Vec<Fault>,
    /// The place of the instruction that is being done, for findings.
    at: usize,
    left: u64,
    random: Option<Random>,
}

impl<'l> Block<'l> {
    pub(super) fn new(launch: &'l Launch<'l>, number: u32) -> Block<'l> {
        let threads: u32 = launch.threads.iter().product();
        let warps = (0..threads.div_ceil(LANES as u32)).map(|w| warp(launch, number, w)).collect();
        Block {
            launch,
            number,
            warps,
            shared: Shared::new(launch.program.shared_bytes + launch.dynamic_shared),
            epoch: 0,
            counts: Counts::default(),
            findings: vec![],
            at: 0,
            left: launch.limit,
            random: launch.order.random(number),
        }
    }

    /// Run all warps to their end. What stops the launch comes last in the findings.
    pub(super) fn run(&mut self) -> Result<(), Fault> {
        loop {
            for w in self.order() {
                if let Err((at, lane, what)) = self.run_warp(w) {
                    return Err(self.fault(at, w * LANES + lane, what));
                }
            }
            let left: Vec<&Warp> = self.warps.iter().filter(|w| !w.fragments.is_empty()).collect();
            if left.is_empty() {
                return Ok(());
            }
            // Whoever is left has come to the barrier: warps run until then.
            debug_assert!(left.iter().all(|w| w.at_barrier));
            self.counts.barriers += 1;
            self.epoch += 1;
            for warp in &mut self.warps {
                warp.at_barrier = false;
                warp.epoch = 0;
            }
        }
    }

    /// The warps that are not done, in the order in which they run.
    fn order(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.warps.len()).filter(|&w| !self.warps[w].fragments.is_empty()).collect();
        if self.launch.order.is_backward() {
            order.reverse();
        }
        if let Some(random) = &mut self.random {
            random.shuffle(&mut order);
        }
        order
    }

    /// Run a warp until it is done or all of it has come to a barrier.
    fn run_warp(&mut self, w: usize) -> Result<(), Stop> {
        while !self.warps[w].fragments.is_empty() && !self.warps[w].at_barrier {
            let Some(f) = self.next_fragment(w) else {
                let waiting = self.warps[w].fragments[0];
                let lane = waiting.mask.trailing_zeros() as usize;
                let what = match self.launch.program.ops[waiting.at].kind {
                    Kind::Barrier => What::DivergentBarrier,
                    _ => What::MissingLanes { named: self.warps[w].live(), here: waiting.mask },
                };
                return Err((waiting.at, lane, what));
            };
            self.step(w, f)?;
        }
        Ok(())
    }

    /// The fragment that goes on: the one furthest behind, or any.
    fn next_fragment(&mut self, w: usize) -> Option<usize> {
        let fragments = &self.warps[w].fragments;
        if let [only] = &fragments[..] {
            return (!only.waits).then_some(0);
        }
        let ready: Vec<usize> = (0..fragments.len()).filter(|&f| !fragments[f].waits).collect();
        match &mut self.random {
            Some(random) if !ready.is_empty() => Some(ready[random.below(ready.len())]),
            _ => ready.into_iter().min_by_key(|&f| fragments[f].at),
        }
    }

    /// Do the next instruction of a fragment.
    fn step(&mut self, w: usize, f: usize) -> Result<(), Stop> {
        let program = self.launch.program;
        let Fragment { at, mask, .. } = self.warps[w].fragments[f];
        let Some(op) = program.ops.get(at) else {
            self.exit(w, f, mask);
            return Ok(());
        };
        self.at = at;
        let here = match op.guard {
            Some((p, negated)) => {
                let bits = self.warps[w].registers.predicates[p];
                mask & if negated { !bits } else { bits }
            }
            None => mask,
        };
        self.count(op, here)?;
        let stop = |(lane, what)| (at, lane, what);
        match &op.kind {
            Kind::Branch(to) => {
                self.branch(w, f, *to, here);
                return Ok(());
            }
            Kind::Exit => {
                self.exit(w, f, here);
                return Ok(());
            }
            _ if here == 0 => {}
            Kind::Lanes(lanes) => lanes(&mut self.warps[w].registers, here),
            Kind::Access(access) => self.access(w, access, here).map_err(stop)?,
            Kind::Trap => return Err((at, here.trailing_zeros() as usize, What::Trap)),
            Kind::Barrier => {
                let live = self.warps[w].live();
                if here != mask {
                    return Err((at, here.trailing_zeros() as usize, What::DivergentBarrier));
                }
                if here != live {
                    self.wait(w, f);
                    return Ok(());
                }
                self.warps[w].at_barrier = true;
            }
            Kind::WarpBarrier(_) | Kind::Shuffle(_) | Kind::Vote(_) | Kind::Reduce(_) => {
                if self.waits_for_lanes(w, op, here) {
                    self.wait(w, f);
                    return Ok(());
                }
                self.collective(w, op, here).map_err(stop)?;
            }
            Kind::ActiveMask(d) => {
                let all = [here; LANES];
                super::registers::write(&mut self.warps[w].registers, *d, here, &all);
            }
            Kind::Nothing => {}
        }
        self.warps[w].fragments[f].at = at + 1;
        self.merge(w);
        Ok(())
    }

    /// Are lanes named that are still on their way?
    fn waits_for_lanes(&self, w: usize, op: &Op, here: u32) -> bool {
        let members = match &op.kind {
            Kind::WarpBarrier(members) => *members,
            Kind::Shuffle(s) => s.members,
            Kind::Vote(v) => v.members,
            Kind::Reduce(r) => r.members,
            _ => return false,
        };
        let warp = &self.warps[w];
        let named = warp.registers.words[members][here.trailing_zeros() as usize];
        let others = named & warp.live() & !here;
        // A predicate that keeps lanes away will not bring them here later.
        let apart = warp.fragments.iter().filter(|f| f.mask & here == 0).fold(0, |all, f| all | f.mask);
        others & apart != 0
    }

    fn collective(&mut self, w: usize, op: &Op, here: u32) -> Result<(), (usize, What)> {
        let warp = &mut self.warps[w];
        match &op.kind {
            Kind::Shuffle(s) => collective::shuffle(&mut warp.registers, s, here),
            Kind::Vote(v) => collective::vote(&mut warp.registers, v, here),
            Kind::Reduce(r) => collective::reduce(&mut warp.registers, r, here),
            Kind::WarpBarrier(members) => {
                collective::members(&warp.registers, *members, here)?;
                // It orders all lanes of the warp only if all of them take part.
                warp.epoch += u16::from(here == warp.live());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn count(&mut self, op: &Op, here: u32) -> Result<(), Stop> {
        *self.counts.instructions.entry(op.class).or_default() += 1;
        self.counts.lane_instructions += u64::from(here.count_ones());
        self.left = self.left.checked_sub(1).ok_or((self.at, 0, What::Endless))?;
        Ok(())
    }

    fn branch(&mut self, w: usize, f: usize, to: usize, taken: u32) {
        let fragments = &mut self.warps[w].fragments;
        let left = fragments[f].mask & !taken;
        match (taken, left) {
            (0, _) => fragments[f].at += 1,
            (_, 0) => fragments[f].at = to,
            _ => {
                self.counts.divergent_branches += 1;
                fragments[f].mask = left;
                fragments[f].at += 1;
                fragments.push(Fragment { at: to, mask: taken, waits: false });
            }
        }
        self.merge(w);
    }

    fn exit(&mut self, w: usize, f: usize, gone: u32) {
        let fragments = &mut self.warps[w].fragments;
        fragments[f].mask &= !gone;
        fragments[f].at += 1;
        if fragments[f].mask == 0 {
            fragments.swap_remove(f);
        }
        // Who waits need not wait for those any more.
        fragments.iter_mut().for_each(|f| f.waits = false);
        self.merge(w);
    }

    fn wait(&mut self, w: usize, f: usize) {
        self.warps[w].fragments[f].waits = true;
    }

    /// Fragments at the same place become one, which looks again whether it has to wait.
    fn merge(&mut self, w: usize) {
        let fragments = &mut self.warps[w].fragments;
        let mut i = 0;
        while i < fragments.len() {
            while let Some(j) = (i + 1..fragments.len()).find(|&j| fragments[j].at == fragments[i].at) {
                fragments[i].mask |= fragments[j].mask;
                fragments[i].waits = false;
                fragments.swap_remove(j);
            }
            i += 1;
        }
    }

    fn fault(&self, at: usize, thread: usize, what: What) -> Fault {
        let program = self.launch.program;
        let line = program.ops.get(at).map_or(program.line, |op| op.line);
        Fault {
            kernel: program.name.clone(),
            line,
            block: self.launch.block_index(self.number),
            thread: thread as u32,
            what,
        }
    }

    /// Keep a finding; one per line and kind is enough.
    pub(super) fn note(&mut self, warp: usize, lane: usize, what: What) -> Result<(), What> {
        let fault = self.fault(self.at, warp * LANES + lane, what);
        let kind = std::mem::discriminant(&fault.what);
        let is_known = |f: &Fault| f.line == fault.line && std::mem::discriminant(&f.what) == kind;
        if self.findings.len() < MAX_FINDINGS && !self.findings.iter().any(is_known) {
            self.findings.push(fault);
        }
        Ok(())
    }
}

/// A warp at its beginning: constants and special registers are filled in.
fn warp(launch: &Launch<'_>, block: u32, number: u32) -> Warp {
    let program = launch.program;
    let mut registers = Registers::new(program.words, program.doubles, program.predicates);
    for &(at, bits) in &program.word_constants {
        registers.words[at] = [bits; LANES];
    }
    for &(at, bits) in &program.double_constants {
        registers.doubles[at] = [bits; LANES];
    }
    for &at in &program.true_predicates {
        registers.predicates[at] = u32::MAX;
    }
    for (at, name) in &program.addresses {
        registers.doubles[*at] = [launch.addresses[name]; LANES];
    }
    let [x, y, _] = launch.threads;
    let threads: u32 = launch.threads.iter().product();
    let index = launch.block_index(block);
    for &(special, at) in &program.specials {
        registers.words[at] = std::array::from_fn(|lane| {
            let lane = lane as u32;
            let thread = number * LANES as u32 + lane;
            let upto = u32::MAX >> (31 - lane);
            match special {
                Special::Thread(0) => thread % x,
                Special::Thread(1) => thread / x % y,
                Special::Thread(_) => thread / x / y,
                Special::Threads(axis) => launch.threads[axis],
                Special::Block(axis) => index[axis],
                Special::Blocks(axis) => launch.grid[axis],
                Special::Lane => lane,
                Special::Warp => number,
                Special::Before => upto & !(1 << lane),
                Special::UpTo => upto,
                Special::From => !upto | 1 << lane,
                Special::Behind => !upto,
                Special::DynamicShared => program.shared_bytes.next_multiple_of(16) as u32,
            }
        });
    }
    let left = threads - number * LANES as u32;
    let mask = if left >= LANES as u32 { u32::MAX } else { (1 << left) - 1 };
    Warp { registers, fragments: vec![Fragment { at: 0, mask, waits: false }], epoch: 0, at_barrier: false }
}
