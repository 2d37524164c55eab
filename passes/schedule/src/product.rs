//! Contractions as products of matrices: which operand is which, and which of them a kernel packs.
use numrsc_ir::{Dim, Func, Node, Op, Value};

/// Does a contraction pack its operand `v`, a constant that nothing else reads unpacked?
pub fn packs(func: &Func, node: &Node, v: Value) -> bool {
    matches!(node.op, Op::Contract { .. })
        && node.args[0] != node.args[1]
        && node.args[usize::from(!swaps(func, node))] == v
}

/// Is the first operand of a contraction the one whose own axes are columns?
pub fn swaps(func: &Func, node: &Node) -> bool {
    let Op::Contract { a_batch, b_batch, a_sum, b_sum } = &node.op else { return false };
    let own = |v: Value, batch: &[i64], sum: &[i64]| {
        let shape = func.ty(v).as_tensor().map_or(&[][..], |t| &t.shape);
        Dim::product(&Axes::sizes(&Axes::new(shape.len(), batch, sum).free, shape))
    };
    own(node.args[1], b_batch, b_sum) == Dim::ONE && own(node.args[0], a_batch, a_sum) != Dim::ONE
}

/// The axes of an operand: shared with the other operand, its own, and summed over.
#[derive(Clone, Debug)]
pub struct Axes {
    pub batch: Vec<usize>,
    pub free: Vec<usize>,
    pub sum: Vec<usize>,
}

impl Axes {
    pub fn new(rank: usize, batch: &[i64], sum: &[i64]) -> Axes {
        let list = |v: &[i64]| v.iter().map(|&a| a as usize).collect::<Vec<_>>();
        let (batch, sum) = (list(batch), list(sum));
        let free = (0..rank).filter(|a| !batch.contains(a) && !sum.contains(a)).collect();
        Axes { batch, free, sum }
    }

    /// An index from its parts.
    pub fn index(&self, batch: &[Dim], free: &[Dim], sum: &[Dim]) -> Vec<Dim> {
        let mut index = vec![Dim::ZERO; self.batch.len() + self.free.len() + self.sum.len()];
        for (axes, part) in [(&self.batch, batch), (&self.free, free), (&self.sum, sum)] {
            axes.iter().zip(part).for_each(|(&a, d)| index[a] = d.clone());
        }
        index
    }

    pub fn batches(&self) -> usize {
        self.batch.len()
    }

    pub fn sizes(axes: &[usize], shape: &[Dim]) -> Vec<Dim> {
        axes.iter().map(|&a| shape[a].clone()).collect()
    }
}
