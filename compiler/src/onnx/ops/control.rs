//! Branches and loops over nested graphs. A nested graph becomes a nested function; the outer values it uses are
//! captured.
use crate::onnx::{
    import::{
        Ctx, Fail, Outputs,
        table::{Subgraph, onnx_ops},
    },
    proto::GraphProto,
};
use numrsc_ir::{
    DType, Dim, Elem, Tensor, Type,
    build::{Graph, LoopOut, X},
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
};

/// A loop that always runs more often than this has not been thought of as one that ends: at a nanosecond a round, it would take 18 minutes.
const MOST_ROUNDS: i64 = 1 << 40;

onnx_ops! { pub(super) CONTROL in "", |g, cx|
    "If" 1 (cond: Bool) { then_branch: Subgraph, else_branch: Subgraph } => if_(cx, cond);
    "Loop" 1 (; trips: Int, cond: Bool, ..init: Value) { body: Subgraph } => loop_(cx, trips, cond, &init);
    "Scan" 8 (; sequence_lens: Int, ..xs: Any) {
        body: Subgraph, num_scan_inputs: i64, directions: Vec<i64> = vec![],
    } => scan_batched(cx, sequence_lens, &xs, num_scan_inputs, directions);
    "Scan" 9 (..xs: Any) {
        body: Subgraph, num_scan_inputs: i64,
        scan_input_axes: Vec<i64> = vec![], scan_input_directions: Vec<i64> = vec![],
        scan_output_axes: Vec<i64> = vec![], scan_output_directions: Vec<i64> = vec![],
    } => scan(cx, &xs, num_scan_inputs, (scan_input_axes, scan_input_directions),
              (scan_output_axes, scan_output_directions));
    "SequenceMap" 17 (..xs: Value) { body: Subgraph } => sequence_map(cx, &xs);
}

fn if_<'g>(cx: &Ctx<'_, 'g>, cond: X<'g>) -> Result<Vec<X<'g>>, Fail> {
    let (then, or) = (cx.subgraph("then_branch")?, cx.subgraph("else_branch")?);
    let (names, captures) = cx.captures(&[then, or])?;
    cx.graph().if_(cond, &captures, &|g, xs| cx.run("then_branch", then, g, &[], &names, xs), &|g, xs| {
        cx.run("else_branch", or, g, &[], &names, xs)
    })
}

/// `body(round, cond, states..) -> (cond, states.., rows..)`. Without the input `cond` only the trip count ends the
/// loop, and what the body says is ignored.
fn loop_<'g>(cx: &Ctx<'_, 'g>, trips: Option<X<'g>>, cond: Option<X<'g>>, init: &[X<'g>]) -> Result<Vec<X<'g>>, Fail> {
    let (g, body) = (cx.graph(), cx.subgraph("body")?);
    let count = init.len();
    if body.output.len() <= count {
        return Err(format!("`body` gives {} outputs, {count} states need more", body.output.len()).into());
    }
    let (names, captures) = cx.captures(&[body])?;
    let limit = trips.map_or_else(|| g.constant(Tensor::from_i64(&[], &[i64::MAX])), Ok)?;
    let rounds = limit.as_ints().and_then(|n| n.first().copied());
    let start = cond.map_or_else(|| g.scalar(DType::Bool, 1.0), Ok)?;
    let starts = is_true(start);
    let endless = Cell::new(false);
    // States that start as an optional and go on as what it holds.
    let held = RefCell::new(BTreeSet::new());
    let (mut last, rows) = g.loop_(limit, start, init, &captures, &|b| {
        let mut inputs = vec![as_declared(cx, body, 0, b.round)?, as_declared(cx, body, 1, b.cond)?];
        inputs.extend(&b.states);
        let mut out = cx.run("body", body, b.graph, &inputs, &names, &b.captures)?;
        let rows = out.split_off(1 + count);
        let mut states = out.split_off(1);
        for (i, x) in states.iter_mut().enumerate() {
            if b.states[i].is_optional() && !x.is_optional() {
                held.borrow_mut().insert(i);
                *x = b.graph.seq(&[*x], None)?.as_optional();
            }
        }
        let cond = if cond.is_some() { out[0] } else { b.graph.scalar(DType::Bool, 1.0)? };
        endless.set(starts && (cond.value() == b.cond.value() || is_true(cond)));
        Ok::<_, Fail>(LoopOut { cond, states, rows })
    })?;
    if let Some(rounds) = rounds.filter(|&n| endless.get() && n > MOST_ROUNDS) {
        return Err(format!("the loop runs {rounds} times, as its condition is always true: that does not end").into());
    }
    for i in held.into_inner() {
        last[i] = last[i].seq_at(g.scalar(DType::I64, 0.0)?)?;
    }
    Ok([last, rows].concat())
}

fn is_true(x: X<'_>) -> bool {
    x.as_ints().as_deref() == Some(&[1])
}

/// A scalar, with the one axis that some exporters declare for it.
fn as_declared<'b>(cx: &Ctx<'_, '_>, body: &GraphProto, input: usize, x: X<'b>) -> Result<X<'b>, Fail> {
    match cx.declared(body, input) {
        Some(Type::Tensor(t)) if t.rank() == 1 => Ok(x.reshape(&[Dim::ONE])?),
        _ => Ok(x),
    }
}

/// What a scan iterates over: a tensor, the axis, and whether from its end.
struct ScanInput<'g> {
    x: X<'g>,
    axis: usize,
    reverse: bool,
}

/// Element number `i` of `len` along the axis.
fn element<'b>(x: X<'b>, axis: usize, reverse: bool, i: X<'b>, len: X<'b>) -> Result<X<'b>, Fail> {
    let at = if reverse { x.graph().map([i, len], |[i, n]| n - i - 1.0)? } else { i };
    Ok(x.gather(at, axis, 0)?)
}

/// A nested graph as a function of its inputs and of what it captures.
type Body<'f> = &'f dyn for<'b> Fn(&'b Graph, &[X<'b>], &[X<'b>]) -> Result<Vec<X<'b>>, Fail>;

/// `body(states.., elements..) -> (states.., rows..)` over `len` elements, all starting from the given states.
fn scan_loop<'g>(
    g: &'g Graph,
    len: X<'g>,
    states: &[X<'g>],
    inputs: &[ScanInput<'g>],
    captures: &[X<'g>],
    body: Body<'_>,
) -> Result<(Vec<X<'g>>, Vec<X<'g>>), Fail> {
    let scanned: Vec<X<'g>> = inputs.iter().map(|s| s.x).collect();
    let all = [&[len], &scanned[..], captures].concat();
    g.loop_(len, g.scalar(DType::Bool, 1.0)?, states, &all, &|b| {
        let (len, rest) = (b.captures[0], &b.captures[1..]);
        let (scanned, captures) = rest.split_at(inputs.len());
        let mut args = b.states.clone();
        for (x, s) in scanned.iter().zip(inputs) {
            args.push(element(*x, s.axis, s.reverse, b.round, len)?);
        }
        let mut out = body(b.graph, &args, captures)?;
        if out.len() < b.states.len() {
            return Err(format!("`body` gives {} outputs for {} states", out.len(), b.states.len()).into());
        }
        let rows = out.split_off(b.states.len());
        Ok(LoopOut { cond: b.cond, states: out, rows })
    })
}

/// Split the inputs of a scan into states and what is iterated over.
fn split_inputs<'x, 'g>(xs: &'x [X<'g>], scanned: i64) -> Result<(&'x [X<'g>], &'x [X<'g>]), Fail> {
    match usize::try_from(scanned) {
        Ok(n) if 0 < n && n <= xs.len() => Ok(xs.split_at(xs.len() - n)),
        _ => Err(format!("`num_scan_inputs` is {scanned} for {} inputs", xs.len()).into()),
    }
}

/// One entry per input or output: all zero if the attribute is absent.
fn one_each(values: Vec<i64>, count: usize, name: &str) -> Result<Vec<i64>, Fail> {
    match values.len() {
        0 => Ok(vec![0; count]),
        n if n == count => Ok(values),
        n => Err(format!("`{name}` has {n} entries, not {count}").into()),
    }
}

/// Directions: 0 for forward, 1 for reverse.
fn reversed(values: Vec<i64>, count: usize, name: &str) -> Result<Vec<bool>, Fail> {
    let values = one_each(values, count, name)?;
    match values.iter().find(|v| !matches!(v, 0 | 1)) {
        Some(v) => Err(format!("`{name}` holds {v}, not 0 or 1").into()),
        None => Ok(values.iter().map(|&v| v == 1).collect()),
    }
}

/// From opset 9 on: any axis of an input is scanned, and the rows of an output go along any axis.
fn scan<'g>(
    cx: &Ctx<'_, 'g>,
    xs: &[X<'g>],
    scanned: i64,
    (in_axes, in_directions): (Vec<i64>, Vec<i64>),
    (out_axes, out_directions): (Vec<i64>, Vec<i64>),
) -> Result<Vec<X<'g>>, Fail> {
    let (g, body) = (cx.graph(), cx.subgraph("body")?);
    let (states, scanned) = split_inputs(xs, scanned)?;
    let axes = one_each(in_axes, scanned.len(), "scan_input_axes")?;
    let reverse = reversed(in_directions, scanned.len(), "scan_input_directions")?;
    let mut inputs = Vec::new();
    for (i, x) in scanned.iter().enumerate() {
        inputs.push(ScanInput { x: *x, axis: x.axis(axes[i])?, reverse: reverse[i] });
    }
    let len = common_len(g, &inputs)?;
    let (names, captures) = cx.captures(&[body])?;
    let (last, rows) =
        scan_loop(g, len, states, &inputs, &captures, &|g, args, xs| cx.run("body", body, g, args, &names, xs))?;
    let axes = one_each(out_axes, rows.len(), "scan_output_axes")?;
    let reverse = reversed(out_directions, rows.len(), "scan_output_directions")?;
    let mut out = last;
    for (i, x) in rows.into_iter().enumerate() {
        let x = if reverse[i] { x.reverse(0)? } else { x };
        out.push(x.move_axis(0, x.axis(axes[i])?)?);
    }
    Ok(out)
}

/// The length along the scanned axes, which must agree.
fn common_len<'g>(g: &'g Graph, inputs: &[ScanInput<'g>]) -> Result<X<'g>, Fail> {
    let sizes = inputs.iter().map(|s| s.x.dim(s.axis as i64)).collect::<Result<Vec<Dim>, _>>()?;
    let first = &sizes[0];
    if let Some(other) = sizes.iter().find(|d| d.equals(first) == Some(false)) {
        return Err(format!("the scanned axes have sizes {first} and {other}").into());
    }
    Ok(g.size(first)?)
}

/// Opset 8: axis 0 of everything is the batch, axis 1 is scanned, up to `sequence_lens` of each sample; the rows after
/// that are zero.
fn scan_batched<'g>(
    cx: &Ctx<'_, 'g>,
    lens: Option<X<'g>>,
    xs: &[X<'g>],
    scanned: i64,
    directions: Vec<i64>,
) -> Result<Vec<X<'g>>, Fail> {
    let (g, body) = (cx.graph(), cx.subgraph("body")?);
    let (states, scanned) = split_inputs(xs, scanned)?;
    let reverse = reversed(directions, scanned.len(), "directions")?;
    let (batch, longest) = (scanned[0].dim(0)?, scanned[0].dim(1)?);
    let same_length = lens.is_none();
    let lens = match lens {
        Some(lens) => lens.indices()?,
        None => g.size(&longest)?.broadcast_to(std::slice::from_ref(&batch))?,
    };
    let (names, captures) = cx.captures(&[body])?;
    let (n_states, n_scanned) = (states.len(), scanned.len());
    let all = [&[lens], xs, &captures[..]].concat();
    let (_, rows) = g.loop_(g.size(&batch)?, g.scalar(DType::Bool, 1.0)?, &[], &all, &|b| {
        let mut samples = Vec::new();
        for x in &b.captures[..=n_states + n_scanned] {
            samples.push(x.gather(b.round, 0, 0)?);
        }
        let (len, rest) = (samples[0], &samples[1..]);
        let (states, scanned) = rest.split_at(n_states);
        let inputs: Vec<ScanInput<'_>> =
            scanned.iter().zip(&reverse).map(|(x, r)| ScanInput { x: *x, axis: 0, reverse: *r }).collect();
        let captures = &b.captures[1 + n_states + n_scanned..];
        let (mut out, rows) = scan_loop(b.graph, len, states, &inputs, captures, &|g, args, xs| {
            cx.run("body", body, g, args, &names, xs)
        })?;
        for row in rows {
            out.push(if same_length { row } else { padded(row, &longest)? });
        }
        Ok::<_, Fail>(LoopOut { cond: b.cond, states: vec![], rows: out })
    })?;
    Ok(rows)
}

/// With zeros up to `size` along axis 0.
fn padded<'b>(x: X<'b>, size: &Dim) -> Result<X<'b>, Fail> {
    let dtype = x.dtype();
    let zero = match dtype {
        DType::Str => x.graph().constant(Tensor::from_strings(vec![], vec![String::new()])?)?,
        _ => x.graph().scalar(dtype, 0.0)?,
    };
    let mut high = vec![Dim::ZERO; x.rank()];
    high[0] = size - &x.dim(0)?;
    Ok(x.pad(&vec![Dim::ZERO; x.rank()], &high, zero)?)
}

/// The graph applied to element after element of the sequences among its inputs.
fn sequence_map<'g>(cx: &Ctx<'_, 'g>, xs: &[X<'g>]) -> Result<Outputs<'g>, Fail> {
    let (g, body) = (cx.graph(), cx.subgraph("body")?);
    let Some(first) = xs.first() else { return Err("input `input_sequence` is missing".into()) };
    first.ty().as_seq()?;
    let (names, captures) = cx.captures(&[body])?;
    let is_seq = |x: &X<'_>| matches!(x.ty(), Type::Seq(_));
    let known: Option<Vec<Option<Vec<X<'g>>>>> =
        xs.iter().map(|x| if is_seq(x) { x.as_seq().map(Some) } else { Some(None) }).collect();
    if let Some(known) = known
        && let Some(len) = known[0].as_ref().map(Vec::len)
        && len > 0
    {
        if known.iter().flatten().any(|items| items.len() != len) {
            return Err("the sequences have different lengths".into());
        }
        let mut results: Vec<Vec<X<'g>>> = vec![vec![]; body.output.len()];
        for i in 0..len {
            let args: Vec<X<'g>> = known.iter().zip(xs).map(|(k, x)| k.as_ref().map_or(*x, |k| k[i])).collect();
            let out = cx.run("body", body, g, &args, &names, &captures)?;
            results.iter_mut().zip(out).for_each(|(r, x)| r.push(x));
        }
        return results.iter().map(|r| Ok(Some(g.seq(r, None)?))).collect();
    }
    // Element types of the results, from a body that is thrown away.
    let probe = Graph::new();
    let index = probe.param(Type::scalar(DType::I64))?;
    let params = xs.iter().map(|x| probe.param(x.ty())).collect::<Result<Vec<_>, _>>()?;
    let outer = captures.iter().map(|x| probe.param(x.ty())).collect::<Result<Vec<_>, _>>()?;
    let mut empty = Vec::new();
    for x in apply_at(cx, body, &probe, index, &params, &names, &outer)? {
        empty.push(g.seq(&[], Some(Elem::Tensor { dtype: x.tensor()?.dtype, shape: None }))?);
    }
    let all = [xs, &captures[..]].concat();
    let (results, _) = g.loop_(first.seq_len()?, g.scalar(DType::Bool, 1.0)?, &empty, &all, &|b| {
        let (xs, captures) = b.captures.split_at(xs.len());
        let out = apply_at(cx, body, b.graph, b.round, xs, &names, captures)?;
        let states = b.states.iter().zip(out).map(|(seq, x)| seq.seq_insert(None, x)).collect::<Result<_, _>>()?;
        Ok::<_, Fail>(LoopOut { cond: b.cond, states, rows: vec![] })
    })?;
    Ok(results.into_iter().map(Some).collect())
}

/// The graph applied to element `i` of the sequences among `xs`.
fn apply_at<'a, 'b>(
    cx: &Ctx<'a, '_>,
    body: &'a GraphProto,
    g: &'b Graph,
    i: X<'b>,
    xs: &[X<'b>],
    names: &[&'a str],
    captures: &[X<'b>],
) -> Result<Vec<X<'b>>, Fail> {
    let mut args = Vec::new();
    for x in xs {
        args.push(if matches!(x.ty(), Type::Seq(_)) { x.seq_at(i)? } else { *x });
    }
    cx.run("body", body, g, &args, names, captures)
}
