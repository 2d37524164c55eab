//! Functions of attributes and types that rules use on their right side and in conditions. One that cannot tell gives `None`, and the rule does not fire.
#![allow(clippy::wildcard_enum_match_arm, reason = "no match is over ops, but over what is known of terms")]
use crate::{
    rule::dims,
    term::{Fact, Known},
};
use numrsc_ir::{DType, Dim, Leaf, Lit, TensorType, attr::Attr};

/// Elements of a table of which there may be another one.
const MAX_TABLE: i64 = 1 << 20;

type Function = fn(&[Fact]) -> Option<Fact>;

/// All functions by name.
#[rustfmt::skip]
pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    // Permutations and lists of axes.
    ("compose",      |a| ints(at_all(&list(&a[0])?, &list(&a[1])?)?)),                    // i -> p[q[i]]
    ("inverse",      |a| ints(inverse(&list(&a[0])?)?)),
    ("identity",     |a| truth(list(&a[0])?.iter().enumerate().all(|(i, &p)| i as i64 == p))),
    ("permuted",     |a| leaf(Leaf::List(list(&a[1])?.iter().map(|&p| items(&a[0])?.get(p as usize).cloned()).collect::<Option<_>>()?))),
    ("places",       |a| ints(list(&a[1])?.iter().map(|x| position(&list(&a[0])?, *x)).collect::<Option<_>>()?)), // where each element of the second is in the first
    ("sorted",       |a| { let mut l = list(&a[0])?; l.sort_unstable(); ints(l) }),
    ("ascending",    |a| truth(list(&a[0])?.is_sorted_by(|a, b| a < b))),
    ("kept",         |a| ints(kept_order(&list(&a[0])?, &list(&a[1])?)?)),                 // the permutation of the axes that a reduction keeps
    ("union",        |a| { let mut l = [list(&a[0])?, reduced_axes(&list(&a[0])?, &list(&a[1])?)].concat(); l.sort_unstable(); ints(l) }),
    ("equal",        |a| truth(a[0].leaf()? == a[1].leaf()?)),
    ("at",           |a| leaf(items(&a[0])?.get(usize::try_from(a[1].leaf()?.as_int()?).ok()?)?.clone())),
    ("without",      |a| { let gone = list(&a[1])?; leaf(Leaf::List(items(&a[0])?.iter().enumerate().filter(|(i, _)| !gone.contains(&(*i as i64))).map(|(_, x)| x.clone()).collect())) }),
    ("ones_at",      |a| truth(list(&a[1])?.iter().all(|&i| tensor(&a[0]).is_some_and(|t| t.shape.get(i as usize) == Some(&Dim::ONE))))),
    // Shapes.
    ("shape",        |a| shape_leaf(&tensor(&a[0])?.shape)),
    ("same_type",    |a| truth(tensor(&a[0])? == tensor(&a[1])?)),
    ("same_count",   |a| truth(Dim::product(&tensor(&a[0])?.shape) == Dim::product(&dims(a[1].leaf()?)?))),
    ("moves_ones",   |a| truth(moves_only_ones(tensor(&a[0])?, &list(&a[1])?))),
    ("unit_axes",    |a| unit_axes(&tensor(&a[0])?.shape, &dims(a[1].leaf()?)?, &list(&a[2])?).and_then(ints)),
    ("not_empty",    |a| truth(tensor(&a[0])?.shape.iter().all(|d| Dim::ONE.at_most(d) == Some(true)))),
    ("larger",       |a| truth(Dim::product(&tensor(&a[0])?.shape) != Dim::product(&dims(a[1].leaf()?)?))),
    ("full_axes",    |a| truth(full_axes(&tensor(&a[0])?.shape, &dims(a[1].leaf()?)?, &list(&a[2])?))),
    ("repeated",     |a| repeated(&tensor(&a[0])?.shape, &dims(a[1].leaf()?)?, &list(&a[2])?, &list(&a[3])?)),
    // Tables and their rows.
    ("few",          |a| truth(Dim::product(&tensor(&a[0])?.shape).as_const()? <= MAX_TABLE)),
    ("no_wider",     |a| truth(!dtype(&a[0])?.is_int() || dtype(&a[0])?.bits() <= dtype(&a[1])?.bits())), // integers
    ("rows",         |a| Some(Fact::Lit(Lit::number(DType::I64, tensor(&a[0])?.shape.first()?.as_const()? as f64)))),
    ("first_row",    |a| shape_leaf(&[&[Dim::ONE], tensor(&a[0])?.shape.get(1..)?].concat())),
    ("squeezed",     |a| shape_leaf(&tensor(&a[0])?.shape.iter().filter(|d| **d != Dim::ONE).cloned().collect::<Vec<_>>())),
    ("row_axes",     |a| row_axes(tensor(&a[0])?, &list(&a[1])?, tensor(&a[2])?).and_then(ints)),
    ("table_axes",   |a| table_axes(&list(&a[0])?, tensor(&a[1])?).and_then(ints)),
    ("counts_along", |a| counts_along(&a[0], &dims(a[1].leaf()?)?, &list(&a[2])?)),
    ("repeats_last", |a| { let last = dims(a[1].leaf()?)?.len() as i64 - 1; truth(list(&a[2])?.iter().zip(&tensor(&a[0])?.shape).all(|(&axis, d)| axis != last || *d == Dim::ONE)) }),
    // Slices and pads.
    ("starts",       |a| slice_starts(a)),
    ("product",      |a| ints(list(&a[0])?.iter().zip(list(&a[1])?).map(|(x, y)| x.checked_mul(y)).collect::<Option<_>>()?)),
    ("plus",         |a| shape_leaf(&dims(a[0].leaf()?)?.iter().zip(dims(a[1].leaf()?)?).map(|(x, y)| x + &y).collect::<Vec<_>>())),
    ("all_zero",     |a| truth(dims(a[0].leaf()?)?.iter().all(|d| *d == Dim::ZERO))),
    ("all_one",      |a| truth(list(&a[0])?.iter().all(|&d| d == 1))),
    ("space_only",   |a| truth(dims(a[0].leaf()?)?.iter().take(2).all(|d| *d == Dim::ZERO))),
    ("space",        |a| shape_leaf(dims(a[0].leaf()?)?.get(2..)?)),
    ("not_negative", |a| truth(dims(a[0].leaf()?)?.iter().all(|d| Dim::ZERO.at_most(d) == Some(true)))),
    ("tail",         |a| tail(a)),
    ("head_zero",    |a| head_zero(a)),
    ("picked",       |a| picked(&dims(a[0].leaf()?)?, &list(&a[1])?)),
    ("scattered",    |a| scattered(a)),
    ("untouched",    |a| untouched(a)),
    // Contractions and convolutions.
    ("free_order",   |a| ints(free_order(&list(&a[0])?, &list(&a[1])?, &list(&a[2])?)?)),
    ("keeps_free",   |a| truth(free_order(&list(&a[0])?, &list(&a[1])?, &list(&a[2])?)?.is_sorted())),
    ("swap_order",   |a| ints(swap_order(tensor(&a[0])?, tensor(&a[1])?, &list(&a[2])?, &list(&a[3])?))),
    ("joined",       |a| leaf(Leaf::List([items(&a[0])?.clone(), items(&a[1])?.clone()].concat()))),
    ("vector",       |a| truth(matches!(list(&a[1])?[..], [s] if tensor(&a[0])?.shape.get(s as usize) == Some(&Dim::product(&tensor(&a[0])?.shape))))), // all elements lie along one axis
    ("last_axis",    |a| truth(list(&a[0])? == [items(&a[1])?.len() as i64 - 1])),
    ("rank_is",      |a| truth(tensor(&a[0])?.rank() as i64 == a[1].leaf()?.as_int()?)),
    ("is_pointwise", |a| truth(tensor(&a[0])?.shape.iter().skip(2).all(|d| *d == Dim::ONE))),
    ("matrix",       |a| shape_leaf(tensor(&a[0])?.shape.get(..2)?)),
    ("channels_last",|a| { let r = tensor(&a[0])?.rank() as i64; ints([vec![0, r - 1], (1..r - 1).collect()].concat()) }),
    // What operands are.
    ("constant",     |a| truth(matches!(&a[0], Fact::Tensor(Known { constant: true, .. }) | Fact::Lit(_)))),
    ("varies",       |a| truth(matches!(&a[0], Fact::Tensor(Known { constant: false, .. })))),
    ("plain",        |a| truth(!matches!(&a[0], Fact::Tensor(_)))),
    ("number",       |a| truth(matches!(&a[0], Fact::Lit(_)))),
    ("float",        |a| truth(dtype(&a[0])?.is_float())),
    ("integer",      |a| truth(dtype(&a[0])?.is_int())),
    ("has_type",     |a| truth(Leaf::DType(dtype(&a[0])?) == *a[1].leaf()?)),
    ("widens",       |a| truth(widens(dtype(&a[0])?, DType::from_leaf(a[1].leaf()?)?))),
    ("zero",         |a| truth(number(&a[0])?.bits() == 0)),
    ("lowest",       |a| truth(number(&a[0])?.as_f64() == f64::NEG_INFINITY)),
    ("power_of_two", |a| { let l = lit(&a[0])?; truth(l.is_power_of_two() && reciprocal(l).is_some()) }),
    ("reciprocal",   |a| Some(Fact::Lit(reciprocal(lit(&a[0])?)?))),
    ("finite",       |a| truth(a[0].finite())),
];

fn leaf(l: Leaf) -> Option<Fact> {
    Some(Fact::Leaf(l))
}

fn truth(b: bool) -> Option<Fact> {
    leaf(Leaf::Bool(b))
}

fn ints(l: Vec<i64>) -> Option<Fact> {
    leaf(Leaf::List(l.into_iter().map(Leaf::int).collect()))
}

fn shape_leaf(dims: &[Dim]) -> Option<Fact> {
    leaf(Leaf::List(dims.iter().cloned().map(Leaf::Dim).collect()))
}

fn items(f: &Fact) -> Option<&Vec<Leaf>> {
    match f {
        Fact::Leaf(Leaf::List(l)) => Some(l),
        _ => None,
    }
}

fn list(f: &Fact) -> Option<Vec<i64>> {
    Attr::from_leaf(f.leaf()?)
}

fn tensor(f: &Fact) -> Option<&TensorType> {
    f.tensor()
}

fn dtype(f: &Fact) -> Option<DType> {
    match f {
        Fact::Lit(l) => Some(l.dtype),
        other => other.tensor().map(|t| t.dtype),
    }
}

fn lit(f: &Fact) -> Option<Lit> {
    match f {
        Fact::Lit(l) => Some(*l),
        _ => None,
    }
}

/// The number that all elements are.
fn number(f: &Fact) -> Option<Lit> {
    match f {
        Fact::Lit(l) => Some(*l),
        Fact::Tensor(k) => k.number,
        Fact::Leaf(_) => None,
    }
}

fn position(l: &[i64], x: i64) -> Option<i64> {
    l.iter().position(|&y| y == x).map(|i| i as i64)
}

fn at_all(of: &[i64], at: &[i64]) -> Option<Vec<i64>> {
    at.iter().map(|&i| of.get(usize::try_from(i).ok()?).copied()).collect()
}

fn inverse(p: &[i64]) -> Option<Vec<i64>> {
    (0..p.len() as i64).map(|i| position(p, i)).collect()
}

/// A transposition by `perm` before reducing `axes` (of its result) orders the kept axes like this, counted among the
/// kept axes of its operand.
fn kept_order(perm: &[i64], axes: &[i64]) -> Option<Vec<i64>> {
    let gone = at_all(perm, axes)?;
    let kept: Vec<i64> = perm.iter().copied().filter(|p| !gone.contains(p)).collect();
    Some(kept.iter().map(|k| kept.iter().filter(|o| *o < k).count() as i64).collect())
}

/// Axes counted after `gone` were dropped, counted before.
fn reduced_axes(gone: &[i64], axes: &[i64]) -> Vec<i64> {
    let kept: Vec<i64> = (0..64).filter(|a| !gone.contains(a)).collect();
    axes.iter().filter_map(|&a| kept.get(a as usize).copied()).collect()
}

/// Does a transposition only move axes of size 1?
fn moves_only_ones(x: &TensorType, perm: &[i64]) -> bool {
    let large: Vec<i64> =
        perm.iter().copied().filter(|&p| x.shape.get(p as usize).is_some_and(|d| *d != Dim::ONE)).collect();
    large.is_sorted()
}

/// For a reshape from `from` to `to` that only adds and drops axes of size 1, and is then broadcast along `axes`: the
/// axes that `from` is broadcast along.
fn unit_axes(from: &[Dim], to: &[Dim], axes: &[i64]) -> Option<Vec<i64>> {
    // An axis of size 1 may go anywhere that is still free between its neighbours.
    let mut next = 0i64;
    let mut rest = to.iter().zip(axes).filter(|(d, _)| **d != Dim::ONE);
    let mut out = Vec::new();
    for d in from {
        if *d == Dim::ONE {
            return None;
        }
        let (other, axis) = rest.next()?;
        if other != d || *axis < next {
            return None;
        }
        out.push(*axis);
        next = axis + 1;
    }
    rest.next().is_none().then_some(out)
}

/// Do all axes along which a broadcast places its operand keep their size?
fn full_axes(x: &[Dim], to: &[Dim], axes: &[i64]) -> bool {
    x.iter().zip(axes).all(|(d, &a)| to.get(a as usize) == Some(d))
}

/// For a broadcast of `x` to `to` along `axes`: are all of `reduced` axes that only repeat, and at least once?
fn repeated(x: &[Dim], to: &[Dim], axes: &[i64], reduced: &[i64]) -> Option<Fact> {
    truth(reduced.iter().all(|r| {
        let repeats = axes.iter().zip(x).all(|(a, d)| a != r || *d == Dim::ONE && to[*r as usize] == Dim::ONE);
        repeats && to.get(*r as usize).is_some_and(|d| Dim::ONE.at_most(d) == Some(true))
    }))
}

/// Axes of what is looked up by `indices` along the first axis of a table, counted in the table; only those of rows.
fn table_axes(axes: &[i64], indices: &TensorType) -> Option<Vec<i64>> {
    let rows_from = indices.rank() as i64;
    axes.iter().map(|a| (*a >= rows_from).then_some(a - rows_from + 1)).collect()
}

/// The axes of a table along which `c` lies, if it is the same for every row; axes of size 1 are left out.
fn row_axes(c: &TensorType, axes: &[i64], indices: &TensorType) -> Option<Vec<i64>> {
    let long: Vec<i64> = axes.iter().zip(&c.shape).filter(|(_, d)| **d != Dim::ONE).map(|(a, _)| *a).collect();
    table_axes(&long, indices)
}

/// Does a broadcast of `n` count 0, 1, 2, … along its whole last axis?
fn counts_along(n: &Fact, to: &[Dim], axes: &[i64]) -> Option<Fact> {
    let Fact::Tensor(known) = n else { return None };
    let whole = tensor(n)?.shape.last()? == to.last()?;
    truth(known.counts && whole && *axes.last()? == to.len() as i64 - 1)
}

/// `starts(s1, k1, s2)`: the starts of a slice of a slice.
fn slice_starts(a: &[Fact]) -> Option<Fact> {
    let (first, steps, second) = (dims(a[0].leaf()?)?, list(&a[1])?, dims(a[2].leaf()?)?);
    let all: Vec<Dim> = first.iter().zip(&steps).zip(&second).map(|((s, &k), t)| s + &(t * &Dim::Const(k))).collect();
    shape_leaf(&all)
}

/// `tail(list, other)`: the last elements of a list, as many as the other has.
fn tail(a: &[Fact]) -> Option<Fact> {
    let (all, n) = (items(&a[0])?, items(&a[1])?.len());
    leaf(Leaf::List(all[all.len().checked_sub(n)?..].to_vec()))
}

/// `head_zero(list, other)`: are all but as many last elements of a list as the other has 0?
fn head_zero(a: &[Fact]) -> Option<Fact> {
    let (all, n) = (dims(a[0].leaf()?)?, items(&a[1])?.len());
    truth(all[..all.len().checked_sub(n)?].iter().all(|d| *d == Dim::ZERO))
}

/// The elements of a list at the given places.
fn picked(of: &[Dim], at: &[i64]) -> Option<Fact> {
    shape_leaf(&at.iter().map(|&i| of.get(i as usize).cloned()).collect::<Option<Vec<_>>>()?)
}

/// `scattered(list, axes, values)`: the list with the values at the given places.
fn scattered(a: &[Fact]) -> Option<Fact> {
    let (mut all, axes, values) = (items(&a[0])?.clone(), list(&a[1])?, items(&a[2])?);
    for (&at, v) in axes.iter().zip(values) {
        *all.get_mut(at as usize)? = v.clone();
    }
    leaf(Leaf::List(all))
}

/// `untouched(starts, sizes, steps, x, axes)`: does a slice leave the given axes of `x` as they are?
fn untouched(a: &[Fact]) -> Option<Fact> {
    let (starts, sizes, steps) = (dims(a[0].leaf()?)?, dims(a[1].leaf()?)?, list(&a[2])?);
    let x = tensor(&a[3])?;
    truth(list(&a[4])?.iter().all(|&i| {
        let i = i as usize;
        starts[i] == Dim::ZERO && steps[i] == 1 && sizes[i] == x.shape[i]
    }))
}

/// The order of an operand's own axes after a transposition: `perm` of its axes, `batch` and `sum` counted after it.
fn free_order(perm: &[i64], batch: &[i64], sum: &[i64]) -> Option<Vec<i64>> {
    let free: Vec<i64> = (0..perm.len() as i64).filter(|a| !batch.contains(a) && !sum.contains(a)).collect();
    at_all(perm, &free)
}

/// The permutation that puts the own axes of the second operand before those of the first in a contraction's result.
fn swap_order(a: &TensorType, b: &TensorType, a_batch: &[i64], a_sum: &[i64]) -> Vec<i64> {
    let (batch, sum) = (a_batch.len() as i64, a_sum.len() as i64);
    let (own_a, own_b) = (a.rank() as i64 - batch - sum, b.rank() as i64 - batch - sum);
    (0..batch).chain(batch + own_a..batch + own_a + own_b).chain(batch..batch + own_a).collect()
}

/// Can every value of a type be represented in another?
fn widens(from: DType, to: DType) -> bool {
    match (from, to) {
        _ if from == to => true,
        (DType::F16 | DType::BF16, DType::F32 | DType::F64) | (DType::F32, DType::F64) => true,
        _ if from.is_int() && to.is_int() => {
            let ((l, h), (l2, h2)) = (from.int_range(), to.int_range());
            l2 <= l && h <= h2
        }
        _ if from.is_int() && matches!(to, DType::F32 | DType::F64) => {
            let exact: i128 = 1 << if to == DType::F32 { 24 } else { 53 };
            let (low, high) = from.int_range();
            -exact <= low && high <= exact
        }
        _ => false,
    }
}

/// 1 / x, if that is a normal number.
fn reciprocal(l: Lit) -> Option<Lit> {
    if !matches!(l.dtype, DType::F32 | DType::F64) {
        return None;
    }
    let inverse = Lit::float(l.dtype, 1.0 / l.as_f64());
    (inverse.as_f64() as f32).is_normal().then_some(inverse)
}
