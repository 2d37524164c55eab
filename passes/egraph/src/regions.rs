//! Cuts a function into regions that are small enough to search.
//!
//! Nodes that an e-graph cannot hold (control flow, sequences, what names sizes) come between levels: whatever depends
//! on one is on a higher level. A level is cut where its blocks repeat, so that equal blocks become equal regions,
//! which are optimised once.
use crate::encode::{invalid, is_encodable};
use numrsc_facts::Result;
use numrsc_ir::{Func, Node, Op, Type, Value, dim::Sym};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    ops::Range,
};

/// Nodes of a region, unless a repeated block is smaller.
const MAX_NODES: usize = 160;
/// Blocks that repeat have at least and at most this many nodes.
const PERIODS: std::ops::RangeInclusive<usize> = 6..=800;

/// A part of a function, in an order in which parts can be rebuilt one after the other.
#[derive(Debug)]
pub(super) enum Piece {
    /// A node that is not optimised.
    Node(Value),
    Region(Box<Region>),
}

/// Nodes that are optimised together.
#[derive(Debug)]
pub(super) struct Region {
    /// The nodes as a function of their inputs, with a result per output.
    pub func: Func,
    /// The nodes of the whole function that it has, and what they are here.
    pub nodes: Vec<(Value, Value)>,
    pub inputs: Vec<Value>,
    pub outputs: Vec<Value>,
}

/// Cut a function.
pub(super) fn cut(func: &Func) -> Result<Vec<Piece>> {
    let levels = levels(func);
    let mut users: BTreeMap<Value, Vec<Value>> = BTreeMap::new();
    for (v, node) in func.values() {
        node.args.iter().for_each(|a| users.entry(*a).or_default().push(v));
    }
    let mut pieces = Vec::new();
    let top = levels.iter().max().copied().unwrap_or(0);
    let mut by_level: Vec<Vec<Value>> = vec![vec![]; top + 1];
    func.values().for_each(|(v, _)| by_level[levels[v.0 as usize]].push(v));
    for nodes in by_level {
        // Nodes that are not terms of this level come first: they depend on lower levels only.
        let (inside, outside): (Vec<Value>, Vec<Value>) = nodes.iter().partition(|v| is_encodable(func, **v));
        pieces.extend(outside.into_iter().map(Piece::Node));
        let cutter = Cutter { sequence: signatures(func, &inside), crossing: crossing(func, &inside, &users) };
        for range in cutter.cut() {
            pieces.push(Piece::Region(Box::new(region(func, &inside[range], &users)?)));
        }
    }
    Ok(pieces)
}

/// How many nodes that no e-graph holds are below each node, one after the other.
fn levels(func: &Func) -> Vec<usize> {
    let definitions = func.sym_definitions();
    let mut levels: Vec<usize> = Vec::with_capacity(func.nodes().len());
    for (v, node) in func.values() {
        let mut level = node.args.iter().map(|a| levels[a.0 as usize]).max().unwrap_or(0);
        for s in symbols(node) {
            if let Some(d) = definitions.get(&s).filter(|d| **d < v) {
                level = level.max(levels[d.0 as usize]);
            }
        }
        let source = matches!(node.op, Op::Param { .. } | Op::Const { .. });
        levels.push(if source || is_encodable(func, v) { level } else { level + 1 });
    }
    sink_constants(func, &mut levels);
    levels
}

/// Nodes computed from constants alone belong to the region of their first user, where they are known to be constant.
fn sink_constants(func: &Func, levels: &mut [usize]) {
    let mut made: Vec<bool> = Vec::with_capacity(levels.len());
    for (v, node) in func.values() {
        let constant = |a: &Value| made[a.0 as usize] || matches!(func.node(*a).op, Op::Const { .. });
        made.push(!node.args.is_empty() && is_encodable(func, v) && node.args.iter().all(constant));
    }
    let mut first_use = vec![usize::MAX; levels.len()];
    for at in (0..levels.len()).rev() {
        if made[at] && first_use[at] != usize::MAX {
            levels[at] = first_use[at];
        }
        let v = Value(at as u32);
        // Nodes that no e-graph holds come before the terms of their level.
        let level = if is_encodable(func, v) { levels[at] } else { levels[at].saturating_sub(1) };
        for a in &func.node(v).args {
            first_use[a.0 as usize] = level.min(first_use[a.0 as usize]);
        }
    }
}

/// The symbols that a node mentions.
fn symbols(node: &Node) -> BTreeSet<Sym> {
    let found = std::cell::RefCell::new(BTreeSet::new());
    let visit = |d: &numrsc_ir::Dim| {
        d.for_each_sym(&mut |s| {
            found.borrow_mut().insert(s.clone());
        });
        d.clone()
    };
    let _ = (node.op.map_dims(&visit), node.ty.map_dims(&visit));
    found.into_inner()
}

/// The key by which two nodes look the same, apart from their operands.
fn signatures(func: &Func, nodes: &[Value]) -> Vec<u64> {
    let of = |v: &Value| {
        let node = func.node(*v);
        let types: Vec<&Type> = node.args.iter().map(|a| func.ty(*a)).collect();
        let mut hasher = DefaultHasher::new();
        (&node.op, types).hash(&mut hasher);
        hasher.finish()
    };
    nodes.iter().map(of).collect()
}

/// The number of values that cross each place: where it is small, a cut hides little.
fn crossing(func: &Func, nodes: &[Value], users: &BTreeMap<Value, Vec<Value>>) -> Vec<usize> {
    let place: BTreeMap<Value, usize> = nodes.iter().enumerate().map(|(i, v)| (*v, i)).collect();
    // +1 behind the node that makes a value, -1 behind its last user.
    let mut change = vec![0isize; nodes.len() + 2];
    for (i, v) in nodes.iter().enumerate() {
        let last = users.get(v).into_iter().flatten().filter_map(|u| place.get(u)).max();
        let last = if func.results().contains(v) { Some(&(nodes.len() - 1)) } else { last };
        if let Some(&last) = last {
            change[i + 1] += 1;
            change[last + 1] -= 1;
        }
    }
    let mut sum = 0;
    change[..=nodes.len()]
        .iter()
        .map(|c| {
            sum += c;
            sum as usize
        })
        .collect()
}

/// Cuts a sequence of nodes into ranges.
struct Cutter {
    /// What each node looks like.
    sequence: Vec<u64>,
    /// How many values cross a cut before each node.
    crossing: Vec<usize>,
}

impl Cutter {
    fn cut(&self) -> Vec<Range<usize>> {
        let mut out = Vec::new();
        self.split(0..self.sequence.len(), &mut out);
        out
    }

    /// Cut a range at its repetitions, where these are narrowest.
    fn split(&self, range: Range<usize>, out: &mut Vec<Range<usize>>) {
        let Some((start, end, period)) = repetition(&self.sequence[range.clone()]) else {
            return self.chop(range, out);
        };
        let (start, end) = (range.start + start, range.start + end);
        let first = (start..start + period).min_by_key(|at| self.crossing[*at]).unwrap_or(start);
        self.split(range.start..first, out);
        let mut at = first;
        while at + period <= end {
            self.chop(at..at + period, out);
            at += period;
        }
        self.split(at..range.end, out);
    }

    /// Cut a range into parts of about equal size, at the narrowest places near.
    fn chop(&self, range: Range<usize>, out: &mut Vec<Range<usize>>) {
        let parts = range.len().div_ceil(MAX_NODES);
        let mut start = range.start;
        for i in 1..=parts {
            let even = range.start + range.len() * i / parts;
            let slack = range.len() / (4 * parts);
            let near = even.saturating_sub(slack).max(start + 1)..=(even + slack).min(range.end);
            let end = if i == parts { range.end } else { near.min_by_key(|at| self.crossing[*at]).unwrap_or(even) };
            if end > start {
                out.push(start..end);
                start = end;
            }
        }
    }
}

/// The longest stretch that repeats itself at least once, and its period.
fn repetition(part: &[u64]) -> Option<(usize, usize, usize)> {
    let mut best: Option<(usize, usize, usize)> = None;
    for period in PERIODS.filter(|p| 2 * p <= part.len()) {
        let mut start = 0;
        for at in 0..=part.len() - period {
            if at < part.len() - period && part[at] == part[at + period] {
                continue;
            }
            let same = at - start;
            // A whole number of periods; the shortest period of equal stretches.
            let length = if same >= period { (same + period) / period * period } else { 0 };
            if length > best.map_or(0, |(s, e, _)| e - s) {
                best = Some((start, start + length, period));
            }
            start = at + 1;
        }
    }
    best
}

/// The nodes as a function of what they use from outside.
fn region(func: &Func, nodes: &[Value], users: &BTreeMap<Value, Vec<Value>>) -> Result<Region> {
    let inside: BTreeSet<Value> = nodes.iter().copied().collect();
    let mut inputs: Vec<Value> = Vec::new();
    for v in nodes {
        for a in &func.node(*v).args {
            if !inside.contains(a) && !inputs.contains(a) {
                inputs.push(*a);
            }
        }
    }
    let mut part = Func::new();
    let mut place: HashMap<Value, Value> = HashMap::new();
    for i in &inputs {
        place.insert(*i, part.param(func.ty(*i).clone()).map_err(|e| invalid(&e))?);
    }
    for v in nodes {
        let node = func.node(*v);
        let args: Vec<Value> = node.args.iter().map(|a| place[a]).collect();
        place.insert(*v, part.push(node.op.clone(), &args).map_err(|e| invalid(&e))?);
    }
    let used_outside = |v: &&Value| users.get(v).is_some_and(|u| u.iter().any(|u| !inside.contains(u)));
    let outputs: Vec<Value> = nodes.iter().filter(|v| used_outside(v) || func.results().contains(v)).copied().collect();
    part.set_results(outputs.iter().map(|o| place[o]).collect());
    let nodes = nodes.iter().map(|v| (*v, place[v])).collect();
    Ok(Region { func: part, nodes, inputs, outputs })
}
