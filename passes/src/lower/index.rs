//! Indices and addresses as symbolic expressions: loop variables are symbols of the same [`Dim`] normal form as sizes, so that what
//! views do to indices (splitting, merging, permuting) cancels in the address instead of being computed.
use super::{element::ElementEmitter, state::LowerState};
use numrsc_ir::{
    Dim, Op,
    dim::{Atom, Range, Sym},
    kernel::{Binary, Compare, V},
};
use std::collections::HashMap;

/// An index for all lanes of a vector.
pub(crate) enum Index {
    /// The same in every lane.
    Uniform(V),
    /// `base + lane * step`
    Steps(V, i64),
    Lanes(Vec<V>),
}

/// Row-major strides, in elements.
pub(crate) fn strides(shape: &[Dim]) -> Vec<Dim> {
    let mut stride = Dim::ONE;
    let mut out: Vec<Dim> = shape
        .iter()
        .rev()
        .map(|d| {
            let s = stride.clone();
            stride = &stride * d;
            s
        })
        .collect();
    out.reverse();
    out
}

/// The position of an element in row-major order.
pub(crate) fn linear(index: &[Dim], shape: &[Dim]) -> Dim {
    index.iter().zip(strides(shape)).fold(Dim::ZERO, |sum, (i, s)| &sum + &(i * &s))
}

/// The index of the element at a position in row-major order; `extents` bound the loop variables.
pub(crate) fn unravel(position: &Dim, shape: &[Dim], extents: &HashMap<Sym, Dim>) -> Vec<Dim> {
    let mut rest = position.clone();
    let mut index = vec![Dim::ZERO; shape.len()];
    for (axis, size) in shape.iter().enumerate().rev() {
        if shape[..axis].iter().all(|d| *d == Dim::ONE) {
            // Nothing lies outside, so what is left is the index.
            index[axis] = rest;
            return index;
        }
        let (quotient, remainder) = divide(&rest, size, extents);
        index[axis] = remainder;
        rest = quotient;
    }
    index
}

/// The index of an element after a reshape from `from` to `to`. Names of sizes hide which of their products are the same; axes that are split or merged among
/// themselves do not take part in the divisions of others.
pub(crate) fn reshaped(
    index: &[Dim],
    from: &[Dim],
    to: &[Dim],
    extents: &HashMap<Sym, Dim>,
    state: &LowerState,
) -> Vec<Dim> {
    let mut at = Vec::with_capacity(to.len());
    let (mut done, mut made) = (0, 0);
    while let Some((i, j)) = state.same_product(&from[done..], &to[made..]) {
        at.extend(unravel(&linear(&index[done..done + i], &from[done..done + i]), &to[made..made + j], extents));
        (done, made) = (done + i, made + j);
    }
    at.extend(unravel(&linear(&index[done..], &from[done..]), &to[made..], extents));
    at
}

/// Quotient and remainder of an index by a size.
fn divide(x: &Dim, by: &Dim, extents: &HashMap<Sym, Dim>) -> (Dim, Dim) {
    if *by == Dim::ONE {
        return (x.clone(), Dim::ZERO);
    }
    let (mut whole, mut rest) = (Dim::ZERO, Dim::ZERO);
    if let [divisor] = &by.terms()[..] {
        for t in x.terms() {
            match t.exact_div(divisor) {
                Some(q) => whole = &whole + &Dim::from_terms(vec![q]),
                None => rest = &rest + &Dim::from_terms(vec![t]),
            }
        }
    } else {
        rest = x.clone();
    }
    if is_below(&rest, by, extents) {
        return (whole, rest);
    }
    let quotient = &whole + &rest.floor_div(by);
    let remainder = x - &(&quotient * by);
    (quotient, remainder)
}

/// Is `0 <= x < limit` for all values of the loop variables? Only what grows with every variable is tried.
pub(crate) fn is_below(x: &Dim, limit: &Dim, extents: &HashMap<Sym, Dim>) -> bool {
    if !grows(x) {
        return false;
    }
    let largest = x.subst(&|s| extents.get(s).map(|n| n - &Dim::ONE));
    largest.at_most(&(limit - &Dim::ONE)) == Some(true)
}

/// Does the expression grow with every variable, from no less than 0?
fn grows(x: &Dim) -> bool {
    let factor = |f: &Atom| match f {
        Atom::Sym(s) => Range::of_sym(s).low >= 0,
        Atom::FloorDiv(x, y) => grows(x) && y.as_const().is_some_and(|y| y > 0),
        _ => false,
    };
    x.terms().iter().all(|t| t.coef >= 0 && t.factors.iter().all(factor))
}

/// A number that a variable is divided by, in a quotient by itself.
pub(crate) fn divisor(x: &Dim, var: &Sym) -> Option<i64> {
    x.terms().iter().flat_map(|t| &t.factors).find_map(|f| match f {
        Atom::FloorDiv(x, y) if x.as_sym() == Some(var) => y.as_const(),
        _ => None,
    })
}

/// Does the expression hold a variable of a loop inside anything but a sum of products?
pub(crate) fn is_tangled(x: &Dim, extents: &HashMap<Sym, Dim>) -> bool {
    x.terms().iter().flat_map(|t| &t.factors).any(|f| match f {
        Atom::Sym(_) => false,
        Atom::TooLarge => true,
        other => {
            let mut found = false;
            Dim::from_atom(other.clone()).for_each_sym(&mut |s| found |= extents.contains_key(s));
            found
        }
    })
}

pub(crate) fn mentions(x: &Dim, sym: &Sym) -> bool {
    let mut found = false;
    x.for_each_sym(&mut |s| found |= s == sym);
    found
}

/// `(c, d)` if `x` is `c * sym + d` and `sym` is in neither.
fn linear_in(x: &Dim, sym: &Sym) -> Option<(Dim, Dim)> {
    let (mut coef, mut rest) = (Vec::new(), Vec::new());
    for mut t in x.terms() {
        match t.factors.iter().position(|f| matches!(f, Atom::Sym(s) if s == sym)) {
            Some(at) => {
                t.factors.remove(at);
                coef.push(t);
            }
            None => rest.push(t),
        }
    }
    let (coef, rest) = (Dim::from_terms(coef), Dim::from_terms(rest));
    (!mentions(&coef, sym) && !mentions(&rest, sym)).then_some((coef, rest))
}

impl ElementEmitter<'_> {
    /// The value of an expression that is the same in every lane.
    pub(crate) fn uniform(&mut self, x: &Dim) -> V {
        if let Some(c) = x.as_const() {
            return self.b.i64(c);
        }
        // Sums of what is known outermost come first, so that only the last addition is left in the inner loop.
        let mut parts: Vec<(usize, V)> = Vec::new();
        for t in x.terms() {
            let mut factors: Vec<V> = t.factors.iter().map(|f| self.atom(f)).collect();
            factors.sort_by_key(|&v| (self.b.level(v), v));
            let coef = self.b.i64(t.coef);
            let product = factors.into_iter().fold(coef, |p, v| self.b.mul(p, v));
            parts.push((self.b.level(product), product));
        }
        parts.sort();
        let (_, first) = parts[0];
        parts[1..].iter().fold(first, |sum, &(_, v)| self.b.add(sum, v))
    }

    fn atom(&mut self, a: &Atom) -> V {
        match a {
            Atom::Sym(s) => self.symbol(s),
            Atom::FloorDiv(x, y) => {
                let positive = |d: &Dim| d.range(&Range::of_sym).low >= 0;
                let unsigned = positive(x) && positive(y);
                let (x, y) = (self.uniform(x), self.uniform(y));
                if unsigned { self.b.udiv(x, y) } else { floor_div(self.b, x, y) }
            }
            Atom::Min(x, y) => self.combine(Binary::SMin, x, y),
            Atom::Max(x, y) => self.combine(Binary::SMax, x, y),
            Atom::Mul(x, y) => self.combine(Binary::Mul, x, y),
            Atom::Add(x, y) => self.combine(Binary::Add, x, y),
            Atom::Broadcast(x, y) => {
                let (x, y, one) = (self.uniform(x), self.uniform(y), self.b.i64(1));
                let is_one = self.b.compare(Compare::Eq, x, one);
                self.b.select(is_one, y, x)
            }
            Atom::TooLarge => {
                self.state.refuse("an index is too large an expression");
                self.b.i64(0)
            }
        }
    }

    fn combine(&mut self, op: Binary, x: &Dim, y: &Dim) -> V {
        let (x, y) = (self.uniform(x), self.uniform(y));
        self.b.binary(op, x, y)
    }

    /// The value of an index in all lanes.
    pub(crate) fn index(&mut self, x: &Dim) -> Index {
        let Some(lane) = self.lane.clone() else { return Index::Uniform(self.uniform(x)) };
        let varies = mentions(x, &lane.sym) || self.varying.keys().any(|s| mentions(x, s));
        if !varies {
            return Index::Uniform(self.uniform(x));
        }
        if let Some((Dim::Const(step), rest)) = linear_in(x, &lane.sym)
            && !self.varying.keys().any(|s| mentions(&rest, s))
        {
            let first = &rest + &(&Dim::sym(lane.sym.clone()) * &Dim::Const(step));
            return Index::Steps(self.uniform(&first), step);
        }
        Index::Lanes((0..self.lanes).map(|l| self.in_lane(l, |em| em.uniform(x))).collect())
    }

    /// Do something for one lane alone: the loop variable is that lane's.
    pub(crate) fn in_lane<R>(&mut self, number: u32, f: impl FnOnce(&mut Self) -> R) -> R {
        let lane = self.lane.take().expect("there are lanes");
        let (lanes, before) = (self.lanes, self.lane_number);
        let mut replaced: Vec<(Sym, Option<V>)> = Vec::new();
        let step = self.b.i64(i64::from(number));
        let at = self.b.add(lane.base, step);
        replaced.push((lane.sym.clone(), self.symbols.insert(lane.sym.clone(), at)));
        // Indices that were loaded for fewer lanes belong to loops that are closed.
        let varying: Vec<(Sym, V)> =
            self.varying.iter().filter_map(|(s, vs)| Some((s.clone(), *vs.get(number as usize)?))).collect();
        for (s, v) in varying {
            let old = self.symbols.insert(s.clone(), v);
            replaced.push((s, old));
        }
        self.lanes = 1;
        self.lane_number = number + 1;
        let r = f(self);
        for (s, old) in replaced {
            match old {
                Some(v) => self.symbols.insert(s, v),
                None => self.symbols.remove(&s),
            };
        }
        (self.lane, self.lanes, self.lane_number) = (Some(lane), lanes, before);
        r
    }

    /// Do something that is the same in all lanes, once.
    pub(crate) fn in_all_lanes<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        if self.lane.is_none() {
            // One lane alone, or none: what is known of it stays apart from what is known of the others.
            return f(self);
        }
        let (lane, lanes) = (self.lane.take(), self.lanes);
        let before = self.lane_number;
        self.lanes = 1;
        self.lane_number = u32::MAX;
        let r = f(self);
        (self.lane, self.lanes, self.lane_number) = (lane, lanes, before);
        r
    }
}

/// Division that rounds down; something if the divisor is 0.
pub(crate) fn floor_div(b: &mut numrsc_ir::kernel::build::Builder, x: V, y: V) -> V {
    let (q, r) = b.sdivrem(x, y);
    let (zero, one) = (b.i64(0), b.i64(1));
    let inexact = b.compare(Compare::Ne, r, zero);
    let signs = b.binary(Binary::Xor, r, y);
    let differ = b.compare(Compare::Lt, signs, zero);
    let down = b.and(inexact, differ);
    let lower = b.sub(q, one);
    b.select(down, lower, q)
}

/// Where a view reads its operand of shape `of`.
pub(crate) fn view_index(
    op: &Op,
    of: &[Dim],
    index: &[Dim],
    extents: &HashMap<Sym, Dim>,
    state: &mut LowerState,
) -> Option<Vec<Dim>> {
    Some(match op {
        Op::Transpose { perm } => {
            let mut at = vec![Dim::ZERO; index.len()];
            perm.iter().zip(index).for_each(|(&p, i)| at[p as usize] = i.clone());
            at
        }
        Op::Broadcast { shape, axes } => {
            let to: Vec<Dim> = shape.iter().map(|d| state.size(d)).collect();
            of.iter().zip(axes).map(|(n, &a)| broadcast_index(n, &to[a as usize], &index[a as usize])).collect()
        }
        Op::Slice { starts, steps, .. } => {
            let each = starts.iter().zip(steps).zip(index);
            each.map(|((s, &step), i)| &state.attribute(s) + &(i * &Dim::Const(step))).collect()
        }
        Op::Reshape { shape } => {
            let to: Vec<Dim> = shape.iter().map(|d| state.size(d)).collect();
            reshaped(index, &to, of, extents, state)
        }
        _ => return None,
    })
}

/// The index in an operand's axis of size `of` that broadcasts to size `to`.
fn broadcast_index(of: &Dim, to: &Dim, index: &Dim) -> Dim {
    match of.as_const() {
        Some(1) => Dim::ZERO,
        _ if of == to => index.clone(),
        // Not 1 by any value of the symbols: then it must be the same size.
        _ if of.equals(&Dim::ONE) == Some(false) => index.clone(),
        // 0 for size 1, else the index itself. The plain minimum: no proof may replace it by one of the two.
        _ => Dim::from_atom(Atom::Min(index.clone(), of - &Dim::ONE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, lower::tests::MACHINE};

    #[test]
    fn sizes_with_names_that_are_merged_leave_no_division_in_addresses() {
        let mut state = LowerState::new(&Context::new(MACHINE));
        let half = |s: &str| &Dim::sym(s).floor_div(&Dim::Const(2)) + &Dim::ONE;
        let (height, width) = (half("h"), half("w"));
        let mut shape = |sizes: &[&Dim]| -> Vec<Dim> { sizes.iter().map(|d| state.size(d)).collect() };
        let (channels, pixels) = (Dim::Const(120), &height * &width);
        let (flat, whole) = (shape(&[&channels, &pixels]), shape(&[&channels, &height, &width]));
        let (c, p) = (Dim::sym("c"), Dim::sym("p"));
        let at = reshaped(&[c.clone(), p.clone()], &flat, &whole, &HashMap::new(), &state);
        assert_eq!(linear(&at, &whole), &(&(&c * &whole[1]) * &whole[2]) + &p);
    }
}
