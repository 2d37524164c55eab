//! Control flow and sequences.
use super::{Data, Env, Program, movement, scalar_i64, unify};
use crate::{DType, Elems, Func, Tensor, Type};

fn truth(x: &Data) -> Result<bool, String> {
    let t = x.as_tensor()?;
    match (t.dtype(), &t.bytes()[..]) {
        (DType::Bool, [b]) => Ok(*b != 0),
        _ => Err(format!("expected a bool scalar, got {}", unify::describe(x))),
    }
}

/// Symbols that a nested function learns stay inside.
pub(super) fn if_(cond: &Data, captures: &[&Data], then: &Func, or: &Func, env: &Env) -> Result<Data, String> {
    let (name, branch) = if truth(cond)? { ("then", then) } else { ("or", or) };
    let args: Vec<Data> = captures.iter().map(|c| (*c).clone()).collect();
    let results = Program::new(branch).run(&args, &mut env.clone());
    results.map(Data::Tuple).map_err(|e| format!("in `{name}`: {e}"))
}

pub(super) fn loop_(
    trips: &Data,
    cond: &Data,
    values: &[&Data],
    states: i64,
    body: &Func,
    types: &[Type],
    env: &mut Env,
) -> Result<Data, String> {
    let (trips, mut go) = (scalar_i64(trips)?, truth(cond)?);
    let count = usize::try_from(states).ok().filter(|&n| n <= values.len() && n <= types.len());
    let count = count.ok_or_else(|| format!("there are no {states} states"))?;
    let (states, captures) = values.split_at(count);
    let mut states: Vec<Data> = states.iter().map(|s| (*s).clone()).collect();
    let mut rows: Vec<Vec<Tensor>> = vec![vec![]; types.len() - count];
    let program = Program::new(body);
    let mut round = 0;
    while go && round < trips {
        env.go_on()?;
        let cond = Tensor::from_elems(DType::Bool, vec![], &Elems::Int(vec![1]));
        let mut args = vec![Tensor::from_i64(&[], &[round]).into(), cond.into()];
        args.append(&mut states);
        args.extend(captures.iter().map(|c| (*c).clone()));
        let results = program.run(&args, &mut env.clone()).map_err(|e| format!("in round {round}: {e}"))?;
        drop(args);
        if results.len() != 1 + types.len() {
            return Err(format!("the body gives {} results, not {}", results.len(), 1 + types.len()));
        }
        let mut results = results.into_iter();
        go = results.next().map_or(Ok(false), |c| truth(&c))?;
        states.extend(results.by_ref().take(count));
        for (rows, row) in rows.iter_mut().zip(results) {
            rows.push(row.as_tensor()?.clone());
        }
        round += 1;
    }
    for (ty, state) in types.iter().zip(&states) {
        unify(ty, state, env)?;
    }
    for (ty, rows) in types[count..].iter().zip(rows) {
        states.push(stack(ty, &rows, env)?.into());
    }
    Ok(Data::Tuple(states))
}

/// All rows as one tensor. Where there is none, its other dimensions are those of the stated type; symbols in them that
/// nothing has defined become 0.
fn stack(ty: &Type, rows: &[Tensor], env: &mut Env) -> Result<Tensor, String> {
    let Some(first) = rows.first() else { return no_rows(ty, env) };
    if let Some(other) = rows.iter().find(|r| r.shape() != first.shape()) {
        return Err(format!("the rows of a loop have different shapes: {:?} and {:?}", first.shape(), other.shape()));
    }
    let as_row = |r: &Tensor| r.reshaped([&[1], r.shape()].concat());
    let parts = rows.iter().map(as_row).collect::<Result<Vec<_>, _>>()?;
    let shape = [&[rows.len()], first.shape()].concat();
    movement::concat(&parts.iter().collect::<Vec<_>>(), 0, shape)
}

fn no_rows(ty: &Type, env: &mut Env) -> Result<Tensor, String> {
    let t = ty.as_tensor().map_err(|e| e.to_string())?;
    let (_, dims) = t.shape.split_first().ok_or("the rows of a loop are stacked")?;
    let mut shape = vec![0];
    for d in dims {
        d.for_each_sym(&mut |s| {
            env.entry(s.clone()).or_insert(0);
        });
        let size = super::dim_value(d, env)?;
        shape.push(usize::try_from(size).map_err(|_| format!("{ty}: the size {d} is {size}"))?);
    }
    if t.dtype == DType::Str {
        return Tensor::from_strings(shape, vec![]);
    }
    Tensor::new(t.dtype, shape, bytes::Bytes::new())
}

pub(super) fn get(tuple: &Data, index: i64) -> Result<Data, String> {
    match tuple {
        Data::Tuple(xs) => usize::try_from(index).ok().and_then(|i| xs.get(i)).cloned(),
        Data::Tensor(_) | Data::Seq(_) => None,
    }
    .ok_or_else(|| format!("{} has no element {index}", unify::describe(tuple)))
}

/// A position below `end` in a sequence of `len`, counted from the end if negative.
fn position(index: &Data, len: usize, end: usize) -> Result<usize, String> {
    let i = scalar_i64(index)?;
    let at = if i < 0 { i128::from(i) + len as i128 } else { i128::from(i) };
    let at = usize::try_from(at).ok().filter(|&at| at < end);
    at.ok_or_else(|| format!("index {i} is outside a sequence of length {len}"))
}

pub(super) fn seq_at(seq: &Data, index: &Data) -> Result<Data, String> {
    let seq = seq.as_seq()?;
    Ok(seq[position(index, seq.len(), seq.len())?].clone())
}

pub(super) fn seq_insert(seq: &Data, index: &Data, x: &Data) -> Result<Data, String> {
    let mut seq = seq.as_seq()?.to_vec();
    seq.insert(position(index, seq.len(), seq.len() + 1)?, x.clone());
    Ok(Data::Seq(seq))
}

pub(super) fn seq_erase(seq: &Data, index: &Data) -> Result<Data, String> {
    let mut seq = seq.as_seq()?.to_vec();
    seq.remove(position(index, seq.len(), seq.len())?);
    Ok(Data::Seq(seq))
}
