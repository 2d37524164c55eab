//! Loops of a few rounds, known when compiling, become what they do: rules and fusion then see across rounds.
use crate::provenance;
use numrsc_facts::{Context, Error, Result, loops::goes_on};
use numrsc_ir::{DType, Dim, Func, Node, Op, Origins, Tensor, Value};
use std::collections::HashMap;

/// The largest number of rounds that is unrolled.
const MAX_ROUNDS: i64 = 8;
/// The largest number of nodes that unrolling may make.
const MAX_NODES: usize = 400;

/// The function without short loops.
pub fn unroll(func: &Func, _: &Context) -> Result<Func> {
    unrolled(func)
}

fn unrolled(func: &Func) -> Result<Func> {
    let mut out = func.named_alike();
    let mut placed: HashMap<Value, Value> = HashMap::new();
    // The results of loops that are gone.
    let mut taken: HashMap<Value, Vec<Value>> = HashMap::new();
    for (v, node) in func.values() {
        out.set_source(func.origins(v).clone());
        if let (Op::Get { index }, Some(results)) = (&node.op, node.args.first().and_then(|a| taken.get(a))) {
            placed.insert(v, results[*index as usize]);
            continue;
        }
        let args: Vec<Value> = node.args.iter().map(|a| placed[a]).collect();
        let op = node.op.map_bodies(unrolled)?;
        if let Op::Loop { states, body, .. } = &op
            && let Some(rounds) = rounds(func, node, body)
        {
            taken.insert(v, rounds_of(&mut out, body, *states as usize, rounds, &args)?);
            continue;
        }
        placed.insert(v, out.push(op, &args).map_err(|e| invalid(&e))?);
    }
    out.set_results(func.results().iter().map(|r| placed[r]).collect());
    provenance::carry(func, "unroll", &mut out, &|v| placed.get(&v).copied());
    Ok(out.without_dead_nodes())
}

/// How often a loop runs, if that is known and little, and every round has the types that the loop states.
#[allow(clippy::wildcard_enum_match_arm, reason = "recognises some ops; any other is left as it is")]
fn rounds(func: &Func, node: &Node, body: &Func) -> Option<i64> {
    let Op::Loop { states, types, .. } = &node.op else { return None };
    let constant = |v: Value| match &func.node(v).op {
        Op::Const { value } => value.to_i64s().filter(|v| v.len() == 1).map(|v| v[0]),
        _ => None,
    };
    let (trips, cond) = (constant(node.args[0])?, constant(node.args[1])?);
    let small = (1..=MAX_ROUNDS).contains(&trips) && trips as usize * body.nodes().len() <= MAX_NODES;
    // What a body calls a size would be another one in every round.
    let names = body.nodes().iter().skip(body.params().len()).any(|n| !Func::defined_syms(n).is_empty());
    let states = *states as usize;
    let stated = |i: usize| types.get(i);
    let same = (0..states).all(|i| {
        let (before, after) = (func.ty(node.args[2 + i]), body.ty(body.results()[1 + i]));
        before == after && stated(i) == Some(after) && body.ty(body.params()[2 + i]) == after
    });
    let rows = body.results()[1 + states..].iter().enumerate().all(|(i, r)| {
        let (Ok(row), Some(Ok(all))) = (body.ty(*r).as_tensor(), stated(states + i).map(|t| t.as_tensor())) else {
            return false;
        };
        all.dtype == row.dtype && all.shape.first() == Some(&Dim::Const(trips)) && all.shape[1..] == row.shape[..]
    });
    (cond == 1 && goes_on(body) && small && !names && same && rows).then_some(trips)
}

fn rounds_of(out: &mut Func, body: &Func, states: usize, rounds: i64, args: &[Value]) -> Result<Vec<Value>> {
    let mut state: Vec<Value> = args[2..2 + states].to_vec();
    let captures = &args[2 + states..];
    let mut rows: Vec<Vec<Value>> = vec![vec![]; body.results().len() - 1 - states];
    for round in 0..rounds {
        let number = Op::Const { value: Tensor::from_i64(&[], &[round]) };
        let number = out.push(number, &[]).map_err(|e| invalid(&e))?;
        let goes_on = Op::Const { value: Tensor::scalar(DType::Bool, 1.0) };
        let goes_on = out.push(goes_on, &[]).map_err(|e| invalid(&e))?;
        let inputs = [&[number, goes_on], &state[..], captures].concat();
        // What the body does comes from the nodes inside of it, not from the loop.
        let outer = out.source().clone();
        out.set_source(Origins::NONE);
        let results = out.inline(body, &inputs).map_err(|e| invalid(&e))?;
        out.set_source(outer);
        state = results[1..=states].to_vec();
        for (all, row) in rows.iter_mut().zip(&results[1 + states..]) {
            let mut shape = out.ty(*row).as_tensor().map_err(|e| invalid(&e))?.shape.clone();
            shape.insert(0, Dim::ONE);
            all.push(out.push(Op::Reshape { shape }, &[*row]).map_err(|e| invalid(&e))?);
        }
    }
    for all in rows {
        state.push(out.push(Op::Concat { axis: 0 }, &all).map_err(|e| invalid(&e))?);
    }
    Ok(state)
}

fn invalid(e: &numrsc_ir::Error) -> Error {
    Error::Invalid { pass: "unroll", message: e.to_string() }
}
