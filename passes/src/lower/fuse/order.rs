//! Views that get a buffer although they could be read through: in the order that a product wants, its operand is read faster.
use super::{Fuser, Need, is_product, is_view};
use crate::lower::{
    contract::swaps,
    epilogue::Order,
    index::{is_tangled, linear},
};
use numrsc_ir::{Dim, Op, Value, dim::Sym};

/// Rows that are worth a tile of a product.
const MIN_ROWS: i64 = 4;
/// Elements of a row that are worth a copy.
const MIN_DEPTH: i64 = 512;

/// How a view finds what it reads: variables for its index, and the tensor and the position in it.
struct Way {
    domain: Vec<Dim>,
    from: Value,
    position: Dim,
}

impl Fuser<'_> {
    /// Is a view stored in the order that a product reads it in?
    pub(super) fn is_stored_in_order(&mut self, v: Value) -> bool {
        self.reorders_product(v) || self.scatters_rows(v) || self.tangles_depth(v)
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

    /// Does a view put the rows of a product where no tile of several rows can go along them?
    fn scatters_rows(&mut self, v: Value) -> bool {
        let Some((rows, _)) = self.left_of_product(v) else { return false };
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

    /// Are the elements of a long row of a product so scattered that it takes divisions to find each of them? What was an image in blocks of channels before it
    /// became a row is. The view that scatters them is stored, with axes of its own for loops, and not the row.
    fn tangles_depth(&mut self, v: Value) -> bool {
        let reshapes = |v: Value| matches!(self.func.node(v).op, Op::Reshape { .. });
        let mut row = v;
        while let [(user, _)] = self.uses[row.0 as usize][..]
            && reshapes(user)
        {
            row = user;
        }
        let Some((_, sum)) = self.left_of_product(row) else { return false };
        let [depth] = sum[..] else { return false };
        if reshapes(v) || self.shape(row)[depth].as_const().is_none_or(|n| n < MIN_DEPTH) {
            return false;
        }
        let Way { from, position, .. } = self.way(row);
        is_tangled(&position, &self.extents) && !is_product(&self.func.node(from).op)
    }

    /// The axes of the rows and of the depth of a product that reads a view as its first operand, as far as they are longer than 1.
    fn left_of_product(&mut self, v: Value) -> Option<(Vec<usize>, Vec<usize>)> {
        let shape = self.shape(v);
        let axes = |wanted: &dyn Fn(&i64) -> bool| {
            let long = (0..shape.len()).filter(|&a| shape[a] != Dim::ONE);
            long.filter(|&a| wanted(&(a as i64))).collect()
        };
        self.uses[v.0 as usize].iter().find_map(|&(user, operand)| {
            let node = self.func.node(user);
            let Op::Contract { a_batch, a_sum, .. } = &node.op else { return None };
            let rows = axes(&|a| !a_batch.contains(a) && !a_sum.contains(a));
            (operand == 0 && !swaps(self.func, node)).then(|| (rows, axes(&|a| a_sum.contains(a))))
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
