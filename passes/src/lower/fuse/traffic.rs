//! What running a fused function costs besides arithmetic.
use super::{Fusion, is_view};
use numrsc_ir::{Func, Op, Value};
use std::collections::BTreeMap;

/// Launches and bytes moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Traffic {
    pub kernels: u64,
    /// Bytes read and written, for typical sizes.
    pub moved: u64,
}

impl Fusion {
    /// The kernels of a function and the bytes they move. What is `free` is computed when compiling.
    pub(crate) fn traffic(&self, func: &Func, free: &dyn Fn(Value) -> bool) -> Traffic {
        let bytes = |v: Value| func.ty(v).as_tensor().map_or(0, crate::egraph::cost::bytes);
        let mut traffic = Traffic::default();
        // What of each stored tensor a node wants: through a slice or gather, no more than that gives.
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
                traffic.kernels += u64::from(!self.led.contains_key(&v));
                traffic.moved +=
                    bytes(v) + of.iter().filter(|(x, _)| !self.share_kernel(v, **x)).map(|x| x.1).sum::<u64>();
            }
            if self.is_packed(func, v) && !free(node.args[1]) {
                traffic.kernels += 1;
                traffic.moved += 2 * bytes(node.args[1]);
            }
            wants.push(of);
        }
        traffic
    }

    fn share_kernel(&self, v: Value, x: Value) -> bool {
        self.leader(v) == self.leader(x)
    }

    /// Does a contraction pack its second operand, because its columns do not lie one after the other?
    fn is_packed(&self, func: &Func, v: Value) -> bool {
        let node = func.node(v);
        let Op::Contract { b_batch, b_sum, .. } = &node.op else { return false };
        let mut operand = node.args[1];
        let mut last = func.ty(operand).as_tensor().map_or(0, |t| t.rank() as i64) - 1;
        if b_batch.contains(&last) || b_sum.contains(&last) {
            return true;
        }
        while !self.stored[operand.0 as usize] && is_view(&func.node(operand).op) {
            if let Op::Transpose { perm } = &func.node(operand).op
                && perm.last() != Some(&last)
            {
                return true;
            }
            operand = func.node(operand).args[0];
            last = func.ty(operand).as_tensor().map_or(0, |t| t.rank() as i64) - 1;
        }
        false
    }
}
