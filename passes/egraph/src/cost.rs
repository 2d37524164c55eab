//! The cost of a term on a target, in picoseconds, from shapes alone.
//!
//! Time is work over achievable speed, and at least bytes over bandwidth, plus the launch of a kernel. Scalar functions
//! are assumed to fuse into their neighbours: they cost arithmetic, not memory. Constants cost nothing. Unknown sizes
//! are typical ones.
use crate::term::{Fact, Known, attribute_count, function};
use numrsc_facts::{
    costs::instructions,
    sizes::{MANY, bytes, elements_of, product, size},
};
use numrsc_ir::{Dim, Machine, attr::Attr, op::OpKind};
use numrsc_schedule::fuse::Traffic;

/// Launching a kernel.
const LAUNCH: u64 = 250_000;
/// A term that does nothing at run time; nonzero, so that the shorter of two equal terms wins.
const NOTHING: u64 = 10;
/// Picoseconds per byte in main memory, and in the caches.
const FAR: u64 = 48;
const NEAR: u64 = 14;
/// The size up to which data stays in the cache.
const CACHE: u64 = 1 << 20;

/// Costs of terms for a machine.
#[derive(Clone, Copy, Debug)]
pub struct CostModel {
    /// Multiplications and additions per nanosecond, times 1000.
    speed: u64,
    /// Four-byte elements per vector instruction.
    lanes: u64,
    /// Channels of the smallest blocks.
    block: u64,
}

impl CostModel {
    pub fn new(machine: Machine) -> CostModel {
        let lanes = u64::from(machine.lanes(4));
        // Two units, about 3.2 per nanosecond; a product that is not fused takes two instructions.
        let block = machine.blocks().last().map_or(1, |n| n as u64);
        CostModel { speed: lanes * if machine.fused { 6400 } else { 3200 }, lanes, block }
    }

    /// The cost of a term by its name and by the facts about its children and itself.
    pub fn of(&self, name: Option<&'static str>, kids: &[&Fact], own: &Fact) -> u64 {
        let Fact::Tensor(known) = own else { return 0 };
        if known.constant {
            return NOTHING;
        }
        match name {
            None => self.call(kids, known),
            Some(name) => self.op(name, kids, known),
        }
    }

    fn call(&self, kids: &[&Fact], own: &Known) -> u64 {
        let Some((f, _)) = function(kids) else { return NOTHING };
        let width = own.ty.as_tensor().map_or(4, |t| t.dtype.size() as u64);
        NOTHING + count(own) * instructions(f) * 160 * width.max(4) / (4 * self.lanes)
    }

    fn op(&self, name: &str, kids: &[&Fact], own: &Known) -> u64 {
        let operands = &kids[..kids.len() - attribute_count(name)];
        let bytes_in: u64 = operands.iter().filter_map(|k| k.tensor()).map(bytes).sum();
        let (elements, bytes_out) = (count(own), own.ty.as_tensor().map_or(0, bytes));
        let input = operands.first().and_then(|k| k.tensor());
        let Some(kind) = OpKind::named(name) else { unreachable!("no op is called `{name}`") };
        match kind {
            OpKind::Reshape | OpKind::Broadcast | OpKind::Slice | OpKind::Size | OpKind::Iota => 2 * NOTHING,
            // Elements that lie apart are read one by one.
            OpKind::Transpose => 2 * NOTHING + elements * 60,
            OpKind::Reduce | OpKind::Arg => LAUNCH / 2 + input.map_or(0, |x| elements_of(x) * 160 / self.lanes),
            OpKind::Contract => LAUNCH + self.contract(kids, own, bytes_in + bytes_out),
            OpKind::Conv => LAUNCH + self.conv(kids, own, bytes_in + bytes_out),
            OpKind::Window => {
                let taps = kids.get(2).and_then(|k| Vec::<i64>::from_leaf(k.leaf()?)).unwrap_or_default();
                let reads = taps.iter().fold(elements, |n, &size| n.saturating_mul(size.max(1) as u64)).min(MANY);
                LAUNCH + reads * 300 / self.lanes
            }
            OpKind::ArgSort => LAUNCH + elements * 20_000,
            OpKind::Scan => LAUNCH + elements * 1_000,
            // Copies.
            OpKind::Pad
            | OpKind::Concat
            | OpKind::Gather
            | OpKind::Scatter
            | OpKind::Compress
            | OpKind::Param
            | OpKind::Const
            | OpKind::Bind
            | OpKind::Map
            | OpKind::If
            | OpKind::Loop
            | OpKind::Get
            | OpKind::SeqMake
            | OpKind::SeqLen
            | OpKind::SeqAt
            | OpKind::SeqInsert
            | OpKind::SeqErase => LAUNCH + memory(bytes_out) + memory(bytes_in.min(2 * bytes_out)),
        }
    }

    fn products(&self, multiplications: u64, wide: bool, moved: u64) -> u64 {
        let speed = if wide { self.speed * 4 / 5 } else { self.speed / (self.lanes / 2).max(1) };
        (multiplications.saturating_mul(1_000_000) / speed.max(1)).max(memory(moved))
    }

    fn contract(&self, kids: &[&Fact], own: &Known, moved: u64) -> u64 {
        let (Some(a), Some(b)) = (kids[0].tensor(), kids[1].tensor()) else { return 0 };
        let (Some(sum), Some(batch)) = (ints(kids[4]), ints(kids[3])) else { return 0 };
        let depth = product(sum.iter().map(|&s| &a.shape[s as usize]));
        // Columns run along vectors: a product with few free elements on both sides wastes lanes.
        let shared = product(batch.iter().map(|&s| &b.shape[s as usize]));
        let others = depth.saturating_mul(shared).max(1);
        let (columns, rows) = (elements_of(b) / others, elements_of(a) / others);
        // Columns that are not contiguous are packed first, which costs a transpose. With one column, rows take their
        // place.
        let (right, operand, right_sum, right_batch) = match columns {
            1 if rows > 1 => (kids[0], a, Some(sum.clone()), ints(kids[2])),
            _ => (kids[1], b, ints(kids[5]), Some(batch)),
        };
        let last = operand.rank() as i64 - 1;
        let ends = |axes: Option<Vec<i64>>| axes.is_some_and(|s| s.contains(&last));
        let apart = sum.is_empty() || ends(right_sum) || ends(right_batch);
        let packing = if apart && !right.constant() { LAUNCH / 4 + elements_of(operand) * 60 } else { 0 };
        packing + self.products(count(own).saturating_mul(depth), columns.max(rows) >= self.lanes, moved)
    }

    fn conv(&self, kids: &[&Fact], own: &Known, moved: u64) -> u64 {
        let Some(w) = kids[1].tensor() else { return 0 };
        let depth = product(w.shape.iter().skip(1));
        // Outputs that divide into vectors get blocks of them.
        let blocks = size(&w.shape[0]).is_multiple_of(self.block) && w.shape[1] != Dim::ONE;
        self.products(count(own).saturating_mul(depth), depth >= 16 || blocks, moved)
    }
}

/// The cost of kernels besides arithmetic: launches and bytes moved.
pub(crate) fn overhead(traffic: Traffic) -> u64 {
    traffic.kernels * LAUNCH / 2 + memory(traffic.moved)
}

fn ints(f: &Fact) -> Option<Vec<i64>> {
    Attr::from_leaf(f.leaf()?)
}

fn count(k: &Known) -> u64 {
    k.ty.as_tensor().map_or(0, elements_of)
}

fn memory(bytes: u64) -> u64 {
    bytes.saturating_mul(if bytes > CACHE { FAR } else { NEAR })
}
