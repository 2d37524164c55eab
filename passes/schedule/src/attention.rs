//! Fuses two products with functions of rows between them, such as attention: `softmax(q k + mask) v`. One kernel
//! computes a block of rows at a time and keeps its scores in memory of the worker, and so in its cache. What is
//! computed, and in which order, is exactly what three kernels would compute: every bit is the same.
//!
//! Nothing here is specific to softmax: any function that depends on the scores of one row only may lie between the
//! products.
use crate::{
    epilogue::{Epilogue, Order},
    fuse::Fuser,
    index::{linear, mentions},
    operands::narrow_operands,
    product::swaps,
};
use numrsc_facts::ops::is_view;
use numrsc_ir::{Dim, Func, Op, Value, dim::Sym};
use std::collections::{BTreeMap, BTreeSet};

/// The search gives up beyond this many nodes.
const MAX_MEMBERS: usize = 48;

/// A node that is kept in memory for a block of rows, and its index.
#[derive(Clone, Debug)]
pub struct Stage {
    pub value: Value,
    pub index: Vec<Dim>,
}

/// The first product, and what becomes of its result on the way to the second. All indices are over the variables of
/// one: that of the second product's operand.
#[derive(Clone, Debug)]
pub struct Attention {
    pub variables: Vec<Dim>,
    /// The first product.
    pub scores: Stage,
    /// The nodes that are stored in place of the scores, one after the other: the first is the epilogue of the first
    /// product, and the second product reads the last.
    pub stages: Vec<Stage>,
    /// Everything that is computed on the way, the first product included.
    pub members: BTreeSet<Value>,
}

impl Attention {
    /// The attention that a product is the end of.
    pub(super) fn find(fuser: &mut Fuser<'_>, product: Value) -> Option<Attention> {
        let func = fuser.func;
        let node = func.node(product);
        let Op::Contract { a_batch, a_sum, .. } = &node.op else { return None };
        let top = *node.args.first()?;
        let shape = fuser.shape(top);
        let last = shape.len().checked_sub(1)?;
        // Rows are contiguous, and the second product sums over them.
        let rows_together = a_sum[..] == [last as i64] && a_batch.iter().all(|b| (*b as usize) < a_batch.len());
        let widens = |v: Value| narrow_operands(func, func.node(v)).is_some();
        // Weights have many columns, which threads share only if the product is a kernel of its own: here units are
        // blocks of rows, and there may be only one.
        let weights = matches!(func.node(*node.args.get(1)?).op, Op::Const { .. });
        if !rows_together || weights || swaps(func, node) || widens(product) || columns(func, product)? > 1 {
            return None;
        }
        let (scores, members) = between(fuser, product, top)?;
        if swaps(func, func.node(scores)) || widens(scores) || columns(func, scores)? != 1 {
            return None;
        }
        let variables = fuser.variables(&shape);
        let wanted = wanted(fuser, top, &variables, &members)?;
        let shapes: BTreeMap<Value, Vec<Dim>> = members.iter().map(|v| (*v, fuser.shape(*v))).collect();
        // The index of a node whose elements are in the order of the scores and of which one row is wanted, at any
        // place in it.
        let column = variables[last].as_sym()?.clone();
        let position = linear(&variables, &shape);
        let row_index = |v: &Value| -> Option<Vec<Dim>> {
            let mut found: Option<Vec<Dim>> = None;
            for index in &wanted[v] {
                let place = index.last()?.as_sym()?.clone();
                if shapes[v].last() != Some(&shape[last]) {
                    return None;
                }
                let here = |d: &Dim| d.subst(&|s| (*s == place).then(|| Dim::sym(column.clone())));
                let index: Vec<Dim> = index.iter().map(here).collect();
                let others = &index[..index.len() - 1];
                let fits = linear(&index, &shapes[v]) == position && !others.iter().any(|d| mentions(d, &column));
                if !fits || found.as_ref().is_some_and(|f| *f != index) {
                    return None;
                }
                found = Some(index);
            }
            found
        };
        let scores = Stage { value: scores, index: row_index(&scores)? };
        let below = below(func, &members);
        let needed: Vec<Stage> = members
            .iter()
            .filter(|v| **v == scores.value || matches!(func.node(**v).op, Op::Map { .. }))
            .filter(|v| **v == top || !reaches(func, &members, top, scores.value, **v))
            .filter_map(|v| Some(Stage { value: *v, index: row_index(v)? }))
            .collect();
        // A node that all of the result depends on is stored if a reduction needs it, or if it is the last.
        let reduces = |low: Value, high: Value| {
            let is_reduction = |r: &&Value| matches!(func.node(**r).op, Op::Reduce { .. });
            below[&high].iter().filter(is_reduction).any(|r| below[r].contains(&low))
        };
        let mut stages: Vec<Stage> = Vec::new();
        for (i, stage) in needed.iter().enumerate() {
            if needed.get(i + 1).is_none_or(|next| reduces(stage.value, next.value)) {
                stages.push(stage.clone());
            }
        }
        let mut end = top;
        while is_view(&func.node(end).op) {
            end = func.node(end).args[0];
        }
        let complete = needed.first()?.value == scores.value && stages.len() > 1 && stages.last()?.value == end;
        complete.then_some(Attention { variables, scores, stages, members })
    }

    /// An index for the index at which the second product reads its operand.
    pub fn at(&self, index: &[Dim], operand: &[Dim]) -> Vec<Dim> {
        let name = |s: &Sym| Some(operand[self.variables.iter().position(|v| v.as_sym() == Some(s))?].clone());
        index.iter().map(|d| d.subst(&name)).collect()
    }

    pub fn end_of_scores(&self, func: &Func) -> Epilogue {
        let (product, root) = (self.scores.value, self.stages[0].value);
        let shape = |v: Value| func.ty(v).as_tensor().map_or(&[][..], |t| &t.shape);
        let order = if shape(product) == shape(root) {
            Order::Axes((0..shape(product).len()).map(Some).collect())
        } else {
            Order::Memory
        };
        Epilogue { product, root, order }
    }
}

/// The number of column axes of a contraction's second operand.
fn columns(func: &Func, product: Value) -> Option<usize> {
    let node = func.node(product);
    let Op::Contract { b_batch, b_sum, .. } = &node.op else { return None };
    Some(func.ty(node.args[1]).as_tensor().ok()?.rank() - b_batch.len() - b_sum.len())
}

/// The product that `top` is a function of, and all nodes between them, if nothing else uses any of these.
fn between(fuser: &Fuser<'_>, product: Value, top: Value) -> Option<(Value, BTreeSet<Value>)> {
    let func = fuser.func;
    let (mut seen, mut left, mut products) = (BTreeSet::from([top]), vec![top], Vec::new());
    while let Some(v) = left.pop() {
        let op = &func.node(v).op;
        if matches!(op, Op::Contract { .. }) {
            products.push(v);
        } else if matches!(op, Op::Map { .. } | Op::Reduce { .. }) || is_view(op) {
            left.extend(func.node(v).args.iter().filter(|a| seen.insert(**a)));
        }
        if seen.len() > MAX_MEMBERS {
            return None;
        }
    }
    products.sort_unstable();
    products.into_iter().rev().find_map(|scores| {
        let mut members = BTreeSet::from([scores]);
        for &v in seen.range(scores..) {
            if func.node(v).args.iter().any(|a| members.contains(a)) {
                members.insert(v);
            }
        }
        let alone = members.iter().all(|v| {
            let uses = &fuser.uses[v.0 as usize];
            let inside = |user: &Value| if *v == top { *user == product } else { members.contains(user) };
            !func.results().contains(v) && uses.iter().all(|(user, _)| inside(user))
        });
        let once = fuser.uses[top.0 as usize].len() == 1;
        (members.contains(&top) && alone && once).then_some((scores, members))
    })
}

/// The indices at which each member is wanted.
fn wanted(
    fuser: &mut Fuser<'_>,
    top: Value,
    variables: &[Dim],
    members: &BTreeSet<Value>,
) -> Option<BTreeMap<Value, Vec<Vec<Dim>>>> {
    let mut wanted = BTreeMap::from([(top, vec![variables.to_vec()])]);
    for &v in members.iter().rev().filter(|v| **v != top) {
        let mut of: Vec<Vec<Dim>> = Vec::new();
        for (user, operand) in fuser.uses[v.0 as usize].clone() {
            for index in &wanted[&user] {
                let index = fuser.operand_index(user, operand, index);
                if !of.contains(&index) {
                    of.push(index);
                }
            }
        }
        if of.len() > MAX_MEMBERS {
            return None;
        }
        wanted.insert(v, of);
    }
    Some(wanted)
}

/// The members that each one depends on, itself included.
fn below(func: &Func, members: &BTreeSet<Value>) -> BTreeMap<Value, BTreeSet<Value>> {
    let mut below: BTreeMap<Value, BTreeSet<Value>> = BTreeMap::new();
    for &v in members {
        let mut of = BTreeSet::from([v]);
        for a in &func.node(v).args {
            of.extend(below.get(a).into_iter().flatten());
        }
        below.insert(v, of);
    }
    below
}

/// Does `from` depend on `to` by a path that avoids `without`?
fn reaches(func: &Func, members: &BTreeSet<Value>, from: Value, to: Value, without: Value) -> bool {
    let (mut seen, mut left) = (BTreeSet::from([from]), vec![from]);
    while let Some(v) = left.pop() {
        if v == without {
            continue;
        }
        if v == to {
            return true;
        }
        left.extend(func.node(v).args.iter().filter(|a| members.contains(a) && seen.insert(**a)));
    }
    false
}
