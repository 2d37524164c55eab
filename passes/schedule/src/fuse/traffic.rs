//! The cost of a fused function besides arithmetic: launches and bytes moved.
use crate::{fuse::Fusion, product::swaps};
use numrsc_facts::ops::is_view;
use numrsc_ir::{Func, Op, Value};
use std::collections::BTreeMap;

/// Launches and bytes moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    pub kernels: u64,
    /// Bytes read and written, for typical sizes.
    pub moved: u64,
}

impl Fusion {
    /// The launches of a function and the bytes they move. Nodes that are `free` are computed when compiling.
    pub fn traffic(&self, func: &Func, free: &dyn Fn(Value) -> bool) -> Traffic {
        let bytes = |v: Value| func.ty(v).as_tensor().map_or(0, numrsc_facts::sizes::bytes);
        let mut traffic = Traffic::default();
        // The part of each stored tensor that a node reads: through a slice or gather, only the selected elements.
        let mut wants: Vec<BTreeMap<Value, u64>> = Vec::with_capacity(func.nodes().len());
        for (v, node) in func.values() {
            let mut of: BTreeMap<Value, u64> = BTreeMap::new();
            for a in &node.args {
                let each = if self.stored[a.0 as usize] {
                    BTreeMap::from([(*a, bytes(*a))])
                } else {
                    wants[a.0 as usize].clone()
                };
                each.into_iter().for_each(|(x, n)| {
                    let most = of.entry(x).or_insert(0);
                    *most = n.max(*most);
                });
            }
            if matches!(node.op, Op::Slice { .. } | Op::Gather { .. }) {
                of.values_mut().for_each(|n| *n = bytes(v).min(*n));
            }
            let computed = !matches!(node.op, Op::Param { .. } | Op::Const { .. }) && node.op.bodies().is_empty();
            if self.stored[v.0 as usize] && computed && !free(v) {
                traffic.kernels += u64::from(!self.leaders.contains_key(&v));
                traffic.moved +=
                    bytes(v) + of.iter().filter(|(x, _)| !self.share_kernel(v, **x)).map(|x| x.1).sum::<u64>();
            }
            if let Some(operand) = self.packed(func, v)
                && !free(operand)
            {
                traffic.kernels += 1;
                traffic.moved += 2 * bytes(operand);
            }
            wants.push(of);
        }
        traffic
    }

    fn share_kernel(&self, v: Value, x: Value) -> bool {
        self.leader(v) == self.leader(x)
    }

    /// The operand that a contraction packs, because its columns do not lie one after the other.
    fn packed(&self, func: &Func, v: Value) -> Option<Value> {
        let node = func.node(v);
        let Op::Contract { a_batch, b_batch, a_sum, b_sum } = &node.op else { return None };
        let (right, batch, sum) =
            if swaps(func, node) { (node.args[0], a_batch, a_sum) } else { (node.args[1], b_batch, b_sum) };
        let mut operand = right;
        let mut last = func.ty(operand).as_tensor().map_or(0, |t| t.rank() as i64) - 1;
        if batch.contains(&last) || sum.contains(&last) {
            return Some(right);
        }
        while !self.stored[operand.0 as usize] && is_view(&func.node(operand).op) {
            if let Op::Transpose { perm } = &func.node(operand).op
                && perm.last() != Some(&last)
            {
                return Some(right);
            }
            operand = func.node(operand).args[0];
            last = func.ty(operand).as_tensor().map_or(0, |t| t.rank() as i64) - 1;
        }
        None
    }
}
