//! Sequences and optionals. Where the structure of a sequence is known it is resolved while importing; where it is
//! not, core ops and loops work on it at run time. An optional is a sequence of at most one element.
use crate::onnx::import::{Fail, table::onnx_ops};
use numrsc_ir::{
    DType, Dim, Elem, ReduceFn, Result, Type,
    build::{Graph, LoopOut, X},
};

onnx_ops! { pub(super) SEQUENCE in "", |g, cx|
    "SequenceConstruct"  11 (..xs: Any)                     {}                            => g.seq(&xs, None);
    "SequenceEmpty"      11 ()                              { dtype: DType = DType::F32 } => empty_sequence(g, dtype);
    "SequenceAt"         11 (seq: Value, at: Index)         {}                            => seq.seq_at(at);
    "SequenceInsert"     11 (seq: Value, x: Any; at: Index) {}                            => seq.seq_insert(at, x);
    "SequenceErase"      11 (seq: Value; at: Index)         {}                            => seq.seq_erase(at);
    "SequenceLength"     11 (seq: Value)                    {}                            => seq.seq_len();
    "SplitToSequence"    11 (x: Any; split: Index)          { axis: i64 = 0, keepdims: bool = true }
        => split_to_sequence(x, split, axis, keepdims);
    "ConcatFromSequence" 11 (seq: Value)                    { axis: i64, new_axis: bool = false }
        => concat_from_sequence(seq, axis, new_axis);
    "Optional"           15 (; x: Value)                    { r#type: Option<Elem> }      => optional(g, x, r#type);
    "OptionalHasElement" 15 (x: Value)                      {}                            => has_some(g, x.as_optional());
    "OptionalHasElement" 18 (; x: Value)                    {}                            => has_any(g, x);
    "OptionalGetElement" 15 (x: Value)                      {}                            => element(x.as_optional());
    "OptionalGetElement" 18 (x: Value)                      {}                            => element(x);
}

/// More parts than this are made by a loop.
const MAX_STATIC_PARTS: i64 = 64;

/// Nothing is known of the shape of elements that are not there.
fn empty_sequence(g: &Graph, dtype: DType) -> Result<X<'_>> {
    g.seq(&[], Some(Elem::Tensor { dtype, shape: None }))
}

fn optional<'g>(g: &'g Graph, x: Option<X<'g>>, elem: Option<Elem>) -> Result<X<'g>, Fail> {
    let all: Vec<X<'g>> = x.into_iter().collect();
    if all.is_empty() && elem.is_none() {
        return Err("an optional without an element needs the attribute `type`".into());
    }
    Ok(g.seq(&all, elem)?.as_optional())
}

/// An input that is left out has no element.
fn has_any<'g>(g: &'g Graph, x: Option<X<'g>>) -> Result<X<'g>> {
    x.map_or_else(|| g.scalar(DType::Bool, 0.0), |x| has_some(g, x))
}

/// A tensor or a sequence that is no optional is always there.
fn has_some<'g>(g: &'g Graph, x: X<'g>) -> Result<X<'g>> {
    match x.ty() {
        Type::Seq(_) if x.is_optional() => x.seq_len()?.map(|n| n.gt(0.0)),
        _ => g.scalar(DType::Bool, 1.0),
    }
}

fn element(x: X<'_>) -> Result<X<'_>> {
    match x.ty() {
        Type::Seq(_) if x.is_optional() => x.seq_at(x.graph().scalar(DType::I64, 0.0)?),
        _ => Ok(x),
    }
}

/// Parts of the given sizes; of one given size, where the last may be smaller; or of size 1, then possibly without
/// the axis.
fn split_to_sequence<'g>(x: X<'g>, split: Option<X<'g>>, axis: i64, keep: bool) -> Result<X<'g>> {
    let g = x.graph();
    let axis = x.axis(axis)?;
    let n = x.dim(axis as i64)?;
    let Some(split) = split else {
        let part = move |x: X<'g>, i: i64| {
            let y = x.slice_axis(axis, &Dim::Const(i), &Dim::ONE, 1)?;
            if keep { Ok(y) } else { y.squeeze(&[axis]) }
        };
        if let Some(count) = n.as_const().filter(|c| (1..=MAX_STATIC_PARTS).contains(c)) {
            return g.seq(&(0..count).map(|i| part(x, i)).collect::<Result<Vec<_>>>()?, None);
        }
        return collect(g, g.size(&n)?, &[x], &|i, xs| {
            let y = xs[0].gather(i, axis, 0)?;
            if keep { y.unsqueeze(&[axis]) } else { Ok(y) }
        });
    };
    match split.rank() {
        0 => {
            let size = split.to_dim()?;
            if size.as_const().is_some_and(|s| s < 1) {
                return Err(format!("cannot split into parts of size {size}").into());
            }
            let count = n.ceil_div(&size);
            if let Some(c) = count.as_const().filter(|c| (1..=MAX_STATIC_PARTS).contains(c)) {
                let mut sizes = vec![size.clone(); c as usize - 1];
                sizes.push(&n - &(&size * &Dim::Const(c - 1)));
                return g.seq(&x.split(axis, &sizes)?, None);
            }
            collect(g, g.size(&count)?, &[x], &|i, xs| {
                let start = &i.to_dim()? * &size;
                xs[0].slice_axis(axis, &start, &(&n - &start).lesser(&size), 1)
            })
        }
        1 => {
            if split.dim(0)?.as_const().is_some_and(|c| (1..=MAX_STATIC_PARTS).contains(&c)) {
                let sizes = split.to_sizes()?;
                let total = sizes.iter().fold(Dim::ZERO, |a, b| &a + b);
                if total.equals(&n) == Some(false) {
                    return Err(format!("the parts add up to {total}, the axis has {n}").into());
                }
                return g.seq(&x.split(axis, &sizes)?, None);
            }
            let sizes = split.indices()?;
            let ends = sizes.scan(ReduceFn::Sum, 0, false, false)?;
            collect(g, g.size(&split.dim(0)?)?, &[x, sizes, ends], &|i, xs| {
                let size = xs[1].gather(i, 0, 0)?.to_sizes()?.remove(0);
                let end = xs[2].gather(i, 0, 0)?.to_dim()?;
                xs[0].slice_axis(axis, &(&end - &size), &size, 1)
            })
        }
        _ => Err(format!("`split` must be a scalar or a vector, got {}", split.ty()).into()),
    }
}

/// The sequence of what `element` gives for `0, 1, … count - 1`.
fn collect<'g>(
    g: &'g Graph,
    count: X<'g>,
    captures: &[X<'g>],
    element: &dyn for<'b> Fn(X<'b>, &[X<'b>]) -> Result<X<'b>>,
) -> Result<X<'g>> {
    let empty = empty_sequence(g, captures[0].dtype())?;
    let (last, _) = g.loop_(count, g.scalar(DType::Bool, 1.0)?, &[empty], captures, &|b| {
        let next = b.states[0].seq_insert(None, element(b.round, &b.captures)?)?;
        Ok::<_, numrsc_ir::Error>(LoopOut { cond: b.cond, states: vec![next], rows: vec![] })
    })?;
    Ok(last[0])
}

/// Join along an axis, or along a new one.
fn concat_from_sequence<'g>(seq: X<'g>, axis: i64, new_axis: bool) -> Result<X<'g>> {
    let g = seq.graph();
    let place = |rank: usize| -> Result<usize> {
        let all = (rank + usize::from(new_axis)) as i64;
        match axis {
            a if a >= -all && a < all => Ok(a.rem_euclid(all) as usize),
            a => Err(format!("axis {a} does not exist among {all}").into()),
        }
    };
    if let Some(items) = seq.as_seq().filter(|items| !items.is_empty()) {
        let axis = place(items[0].tensor()?.rank())?;
        let part = |x: &X<'g>| if new_axis { x.unsqueeze(&[axis]) } else { Ok(*x) };
        return g.concat(&items.iter().map(part).collect::<Result<Vec<_>>>()?, axis);
    }
    let ty = seq.ty();
    let Elem::Tensor { shape: Some(shape), .. } = ty.as_seq()? else {
        return Err(format!("the rank of the elements of {ty} is not known").into());
    };
    let axis = place(shape.len())?;
    let go = g.scalar(DType::Bool, 1.0)?;
    if new_axis || shape[axis].is_some() {
        // All elements have the same shape: stack them.
        let (_, rows) = g.loop_(seq.seq_len()?, go, &[], &[seq], &|b| {
            let row = b.captures[0].seq_at(b.round)?;
            Ok::<_, numrsc_ir::Error>(LoopOut { cond: b.cond, states: vec![], rows: vec![row] })
        })?;
        let stacked = rows[0].move_axis(0, axis)?;
        if new_axis {
            return Ok(stacked);
        }
        let mut shape = stacked.shape();
        let count = shape.remove(axis);
        shape[axis] = &shape[axis] * &count;
        return stacked.reshape(&shape);
    }
    let first = seq.seq_at(g.scalar(DType::I64, 0.0)?)?;
    let rest = seq.seq_len()?.map(|n| n - 1.0)?;
    let (last, _) = g.loop_(rest, go, &[first], &[seq], &|b| {
        let next = b.captures[0].seq_at(b.round.map(|i| i + 1.0)?)?;
        let all = b.graph.concat(&[b.states[0], next], axis)?;
        Ok::<_, numrsc_ir::Error>(LoopOut { cond: b.cond, states: vec![all], rows: vec![] })
    })?;
    Ok(last[0])
}
