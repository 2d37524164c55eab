//! Chooses the blocked layout: convolutions, and the nodes between them, get their channels in blocks of one vector (or
//! half of one, if they do not divide otherwise). This is an ordinary shape: `[n, c, space..]` becomes `[n, c / b,
//! space.., b]`, and the conversions at the seams are a reshape and a transpose.
//!
//! Which nodes are blocked is a question of cost: the time that convolutions save against the bytes that are converted.
//! The search starts with all nodes that could be blocked and drops those that only cost, node by node, then component
//! by component.
mod rewrite;
mod round;

use numrsc_facts::{Context, Result};
use numrsc_ir::{Dim, Func, Machine, Op, Type, Value};
use numrsc_schedule::conv;
use rewrite::Rewrite;

/// The assumed value of sizes that only the run knows.
const TYPICAL_SIZE: i64 = 64;
/// In hundredths of a nanosecond: what converting an element costs, and what blocks win per product.
const CONVERT: i64 = 80;
const PRODUCT_WON: i64 = 2;
const DEPTHWISE_PRODUCT_WON: i64 = 10;
/// The largest number of rounds over the nodes.
const ROUNDS: usize = 8;

/// The function with blocks of channels where they pay.
pub fn layout(func: &Func, cx: &Context) -> Result<Func> {
    let machine = cx.machine;
    let func = round::rounded(func, machine)?;
    let mut choice = BlockPlan::new(&func, machine);
    choice.improve();
    choice.drop_regions_that_cost();
    Rewrite::new(&func, machine, &choice.blocked).run(&|f| layout(f, cx))
}

/// The function without the blocked convolutions for which there are no kernels.
pub fn without_odd_blocks(func: &Func, machine: Machine) -> Result<Func> {
    let odd = |f: &Func| f.nodes().iter().any(|n| is_blocked(&n.op) && !conv::suits(f, n, machine));
    let nested = func.nodes().iter().any(|n| !n.op.bodies().is_empty());
    if !odd(func) && !nested {
        return Ok(func.clone());
    }
    let none = vec![false; func.nodes().len()];
    let mut rewrite = Rewrite::new(func, machine, &none);
    rewrite.odd = func.nodes().iter().map(|n| is_blocked(&n.op) && !conv::suits(func, n, machine)).collect();
    rewrite.run(&|f| without_odd_blocks(f, machine))
}

fn is_blocked(op: &Op) -> bool {
    matches!(op, Op::Conv { in_block, out_block, .. } if *in_block > 1 || *out_block > 1)
}

/// Can so many channels be in blocks, if need be after being rounded up?
pub(crate) fn has_blocks(channels: i64, machine: Machine) -> bool {
    machine.block(channels).is_some() || round::more(channels, machine).is_some()
}

/// The sizes of a tensor with channels that divide into blocks, and the size of these.
fn blockable(ty: &Type, machine: Machine) -> Option<(&[Dim], i64)> {
    let t = ty.as_tensor().ok()?;
    let block = machine.block(t.shape.get(1)?.as_const()?)?;
    Some((&t.shape, block))
}

/// Has a tensor the same elements in the same order with and without blocks?
fn is_same_in_blocks(shape: &[Dim]) -> bool {
    shape[2..].iter().all(|d| *d == Dim::ONE)
}

fn size_of(d: &Dim) -> i64 {
    d.eval(&|_| Some(TYPICAL_SIZE)).unwrap_or(TYPICAL_SIZE).max(1)
}

fn elements(shape: &[Dim]) -> i64 {
    shape.iter().map(size_of).fold(1, i64::saturating_mul)
}

/// Which nodes are computed in blocks.
struct BlockPlan<'f> {
    func: &'f Func,
    machine: Machine,
    users: Vec<Vec<Value>>,
    /// The cost that a convolution saves when blocked; none for other nodes.
    won: Vec<i64>,
    blocked: Vec<bool>,
    /// Convolutions that take blocks without giving any.
    takes: Vec<bool>,
}

impl<'f> BlockPlan<'f> {
    #[allow(clippy::wildcard_enum_match_arm, reason = "`carries` lists the other ops")]
    fn new(func: &'f Func, machine: Machine) -> BlockPlan<'f> {
        let n = func.nodes().len();
        let mut users = vec![Vec::new(); n];
        for (v, node) in func.values() {
            node.args.iter().for_each(|a| users[a.0 as usize].push(v));
        }
        let mut choice =
            BlockPlan { func, machine, users, won: vec![0; n], blocked: vec![false; n], takes: vec![false; n] };
        for (v, node) in func.values() {
            let at = v.0 as usize;
            match &node.op {
                Op::Conv { .. } => {
                    if let Some(won) = choice.won_by(v) {
                        (choice.won[at], choice.blocked[at]) = (won, true);
                    }
                    choice.takes[at] = rewrite::takes_only(func, v, machine).is_some();
                }
                _ => choice.blocked[at] = rewrite::carries(func, v, machine),
            }
        }
        choice
    }

    /// The cost that a convolution saves when blocked, if it can be.
    fn won_by(&self, v: Value) -> Option<i64> {
        let node = self.func.node(v);
        let (out, _) = blockable(&node.ty, self.machine)?;
        rewrite::in_blocks(self.func, v, self.machine)?;
        let Type::Tensor(w) = self.func.ty(node.args[1]) else { return None };
        let products = elements(out).saturating_mul(elements(&w.shape[1..]));
        let alone = w.shape[1] == Dim::ONE;
        Some(products.saturating_mul(if alone { DEPTHWISE_PRODUCT_WON } else { PRODUCT_WON }))
    }

    /// Does a user want the blocks of an operand? Constants and what is repeated cost nothing in either form, and a convolution without blocks may
    /// take either.
    #[allow(clippy::wildcard_enum_match_arm, reason = "`takes_blocks` lists the other ops")]
    fn wants_blocks(&self, user: Value, operand: Value) -> bool {
        if self.takes[user.0 as usize] && !self.blocked[user.0 as usize] {
            return self.blocked[operand.0 as usize];
        }
        self.blocked[user.0 as usize]
            && match &self.func.node(user).op {
                Op::Conv { .. } => {
                    self.func.node(user).args[0] == operand && blockable(self.func.ty(operand), self.machine).is_some()
                }
                op => rewrite::takes_blocks(op, self.func.node(user).args.iter().position(|a| *a == operand)),
            }
    }

    /// The cost of converting a node's result.
    fn cost(&self, v: Value) -> i64 {
        let node = self.func.node(v);
        let Some((shape, _)) = blockable(&node.ty, self.machine) else { return 0 };
        if matches!(node.op, Op::Const { .. } | Op::Broadcast { .. }) || is_same_in_blocks(shape) {
            return 0;
        }
        let here = self.blocked[v.0 as usize];
        let is_result = here && self.func.results().contains(&v);
        let differs = |u: &Value| self.wants_blocks(*u, v) != here;
        if is_result || self.users[v.0 as usize].iter().any(differs) {
            elements(shape).saturating_mul(CONVERT)
        } else {
            0
        }
    }

    /// The cost of the seams around a node.
    fn cost_around(&self, v: Value) -> i64 {
        let mut args = self.func.node(v).args.clone();
        args.sort_unstable();
        args.dedup();
        let lost = if self.blocked[v.0 as usize] { 0 } else { self.won[v.0 as usize] };
        args.iter().map(|&a| self.cost(a)).sum::<i64>() + self.cost(v) + lost
    }

    /// Drops nodes that cost less without blocks, from the end and from the beginning.
    fn improve(&mut self) {
        let all: Vec<usize> = (0..self.blocked.len()).filter(|&i| self.blocked[i]).collect();
        for _ in 0..ROUNDS {
            let mut changed = false;
            for &at in all.iter().rev().chain(&all) {
                let v = Value(at as u32);
                let before = self.cost_around(v);
                self.blocked[at] = !self.blocked[at];
                if self.cost_around(v) < before {
                    changed = true;
                } else {
                    self.blocked[at] = !self.blocked[at];
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// Drops connected components that cost more than they save.
    fn drop_regions_that_cost(&mut self) {
        let mut region: Vec<Option<usize>> = vec![None; self.blocked.len()];
        for start in 0..self.blocked.len() {
            if !self.blocked[start] || region[start].is_some() {
                continue;
            }
            let (mut members, mut work) = (Vec::new(), vec![start]);
            region[start] = Some(start);
            while let Some(at) = work.pop() {
                members.push(at);
                let args = self.func.node(Value(at as u32)).args.iter();
                for next in args.chain(&self.users[at]).map(|v| v.0 as usize) {
                    if self.blocked[next] && region[next].is_none() {
                        region[next] = Some(start);
                        work.push(next);
                    }
                }
            }
            let won: i64 = members.iter().map(|&m| self.won[m]).sum();
            let mut around: Vec<Value> = members.iter().map(|&m| Value(m as u32)).collect();
            around.extend(members.iter().flat_map(|&m| self.func.node(Value(m as u32)).args.clone()));
            around.sort_unstable();
            around.dedup();
            let cost: i64 = around.iter().map(|&v| self.cost(v)).sum();
            if won <= cost {
                members.iter().for_each(|&m| self.blocked[m] = false);
            }
        }
    }
}
