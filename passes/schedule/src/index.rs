//! Indices and addresses as symbolic expressions: loop variables are symbols of the same [`Dim`] normal form as sizes,
//! so that what views do to indices (splitting, merging, permuting) cancels in the address instead of being computed.
use crate::state::LowerState;
use numrsc_ir::{
    Dim, Op,
    dim::{Atom, Range, Sym},
};
use std::collections::HashMap;

/// Row-major strides, in elements.
pub fn strides(shape: &[Dim]) -> Vec<Dim> {
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
pub fn linear(index: &[Dim], shape: &[Dim]) -> Dim {
    index.iter().zip(strides(shape)).fold(Dim::ZERO, |sum, (i, s)| &sum + &(i * &s))
}

/// The index of the element at a position in row-major order; `extents` bound the loop variables.
pub fn unravel(position: &Dim, shape: &[Dim], extents: &HashMap<Sym, Dim>) -> Vec<Dim> {
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

/// The index of an element after a reshape from `from` to `to`. Names of sizes hide which of their products are the
/// same; axes that are split or merged among themselves do not take part in the divisions of others.
pub fn reshaped(index: &[Dim], from: &[Dim], to: &[Dim], extents: &HashMap<Sym, Dim>, state: &LowerState) -> Vec<Dim> {
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

/// Proves `0 <= x < limit` for all values of the loop variables; handles only expressions that grow with every
/// variable.
pub fn is_below(x: &Dim, limit: &Dim, extents: &HashMap<Sym, Dim>) -> bool {
    if !grows(x) {
        return false;
    }
    let largest = x.subst(&|s| extents.get(s).map(|n| n - &Dim::ONE));
    largest.at_most(&(limit - &Dim::ONE)) == Some(true)
}

/// Does the expression grow with every variable, from no less than 0?
#[allow(clippy::wildcard_enum_match_arm, reason = "asks for one kind of atom")]
fn grows(x: &Dim) -> bool {
    let factor = |f: &Atom| match f {
        Atom::Sym(s) => Range::of_sym(s).low >= 0,
        Atom::FloorDiv(x, y) => grows(x) && y.as_const().is_some_and(|y| y > 0),
        _ => false,
    };
    x.terms().iter().all(|t| t.coef >= 0 && t.factors.iter().all(factor))
}

/// A number that a variable is divided by, in a quotient by itself.
#[allow(clippy::wildcard_enum_match_arm, reason = "asks for one kind of atom")]
pub fn divisor(x: &Dim, var: &Sym) -> Option<i64> {
    x.terms().iter().flat_map(|t| &t.factors).find_map(|f| match f {
        Atom::FloorDiv(x, y) if x.as_sym() == Some(var) => y.as_const(),
        _ => None,
    })
}

/// Does the expression hold a variable of a loop inside anything but a sum of products?
#[allow(clippy::wildcard_enum_match_arm, reason = "all other atoms have operands")]
pub fn is_tangled(x: &Dim, extents: &HashMap<Sym, Dim>) -> bool {
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

pub fn mentions(x: &Dim, sym: &Sym) -> bool {
    let mut found = false;
    x.for_each_sym(&mut |s| found |= s == sym);
    found
}

/// `(c, d)` if `x` is `c * sym + d` and `sym` is in neither.
pub fn linear_in(x: &Dim, sym: &Sym) -> Option<(Dim, Dim)> {
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

/// Where a view reads its operand of shape `of`.
#[allow(clippy::wildcard_enum_match_arm, reason = "an op is no view unless it is listed")]
pub fn view_index(
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

/// How far a position moves per step of a variable, if that is a number.
pub fn step(position: &Dim, var: &Sym) -> Option<i64> {
    if !mentions(position, var) {
        return Some(0);
    }
    let mut found = None;
    for t in position.terms() {
        match &t.factors[..] {
            [Atom::Sym(s)] if s == var => found = Some(t.coef),
            factors if factors.iter().any(|f| mentions(&Dim::from_atom(f.clone()), var)) => return None,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use numrsc_facts::Context;
    use numrsc_ir::Machine;

    #[test]
    fn sizes_with_names_that_are_merged_leave_no_division_in_addresses() {
        let mut state = LowerState::new(&Context::new(Machine::SSE2));
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
