//! Stores views that could be read through, where a product reads its operand faster in the stored order.
use crate::{
    epilogue::Order,
    fuse::{Fuser, Need},
    index::linear,
    product::swaps,
};
use numrsc_facts::ops::{is_product, is_view};
use numrsc_ir::{Dim, Op, Value, dim::Sym};

/// The number of rows from which a tile pays.
const MIN_ROWS: i64 = 4;

/// How a view finds what it reads: variables for its index, and the tensor and the position in it.
struct Way {
    domain: Vec<Dim>,
    from: Value,
    position: Dim,
}

impl Fuser<'_> {
    /// Is a view stored in the order that a product reads it in?
    pub(super) fn is_stored_in_order(&mut self, v: Value) -> bool {
        self.reorders_product(v) || self.scatters_rows(v)
    }

    /// Is a node a product with its axes in another order, wanted by a product?
    fn reorders_product(&mut self, v: Value) -> bool {
        let x = self.func.node(v).args[0];
        if !matches!(self.func.node(v).op, Op::Transpose { .. })
            || self.needs[v.0 as usize] != Need::View
            || !is_product(&self.func.node(x).op)
            || self.uses[x.0 as usize].len() != 1
        {
            return false;
        }
        let (shape, of) = (self.shape(v), self.shape(x));
        let domain = self.domain(v, &shape);
        let index = self.operand_index(v, 0, &domain);
        Order::of(&index, &of, &domain, &shape).is_some() && !self.func.results().contains(&x)
    }

    /// Does a view order the rows of a product so that tiles of several rows are impossible?
    fn scatters_rows(&mut self, v: Value) -> bool {
        let Some(rows) = self.rows_of_product(v) else { return false };
        let shape = self.shape(v);
        let [.., before, last] = rows[..] else { return false };
        if shape[last].as_const().is_some_and(|n| n >= MIN_ROWS) {
            return false;
        }
        let Way { domain, from, position } = self.way(v);
        let step = |axis: usize| {
            let next = |s: &Sym| (Some(s) == domain[axis].as_sym()).then(|| &domain[axis] + &Dim::ONE);
            &position.subst(&next) - &position
        };
        let apart = step(before) != &step(last) * &shape[last];
        // The kernel of a product has its own ways, and rows that lie side by side are long.
        apart && step(last) != Dim::ONE && !is_product(&self.func.node(from).op)
    }

    /// The axes of the rows of a product that reads a view as its first operand, as far as they are longer than 1.
    fn rows_of_product(&mut self, v: Value) -> Option<Vec<usize>> {
        let shape = self.shape(v);
        self.uses[v.0 as usize].iter().find_map(|&(user, operand)| {
            let node = self.func.node(user);
            let Op::Contract { a_batch, a_sum, .. } = &node.op else { return None };
            let is_row = |a: &usize| !a_batch.contains(&(*a as i64)) && !a_sum.contains(&(*a as i64));
            let rows = (0..shape.len()).filter(|&a| shape[a] != Dim::ONE).filter(is_row).collect();
            (operand == 0 && !swaps(self.func, node)).then_some(rows)
        })
    }

    fn way(&mut self, v: Value) -> Way {
        let shape = self.shape(v);
        let domain = self.variables(&shape);
        let (mut index, mut from) = (domain.clone(), v);
        while is_view(&self.func.node(from).op) {
            index = self.operand_index(from, 0, &index);
            from = self.func.node(from).args[0];
        }
        let position = linear(&index, &self.shape(from));
        Way { domain, from, position }
    }
}
