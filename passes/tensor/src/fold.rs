//! Constants are computed when compiling: a node whose operands are all constants becomes one, unless that would cost more memory than it saves work.
use crate::{aside::put_aside, provenance};
use numrsc_facts::{Context, Error, Result};
use numrsc_ir::{Data, Env, Func, Op, Tensor, Type, Value, eval_op};
use numrsc_schedule::operands::is_widened_weight;
use std::{collections::HashMap, sync::Arc};

/// How much larger than its operands a folded constant may be.
const GROWTH: usize = 8;
/// Constants up to this size are always folded.
const SMALL: usize = 1 << 16;
/// Views that repeat elements are known up to this many bytes: they are not kept, only what is made of them.
const REPEATED: usize = 1 << 26;
/// No larger constant is folded.
const LARGEST: usize = 1 << 32;
/// Nor one that takes more steps than this (some seconds).
const MOST_STEPS: usize = 1 << 32;

/// The function with constant nodes computed.
pub fn fold(func: &Func, _: &Context) -> Result<Func> {
    folded(func)
}

fn folded(func: &Func) -> Result<Func> {
    let mut folder = Folder { func, out: func.named_alike(), known: HashMap::new(), placed: HashMap::new() };
    for (v, node) in func.values() {
        match folder.constant(v) {
            Some(value) => drop(folder.known.insert(v, value)),
            None => {
                folder.place_node(v, &node.op)?;
            }
        }
    }
    let results = func.results().iter().map(|&r| folder.place(r)).collect::<Result<Vec<Value>>>()?;
    folder.out.set_results(results);
    let Folder { mut out, placed, .. } = folder;
    provenance::carry(func, "fold", &mut out, &|v| placed.get(&v).copied());
    Ok(out.without_dead_nodes())
}

struct Folder<'f> {
    func: &'f Func,
    out: Func,
    /// Values of nodes that are constant.
    known: HashMap<Value, Tensor>,
    /// Nodes of the new function.
    placed: HashMap<Value, Value>,
}

impl Folder<'_> {
    /// The value of a node if it is constant and worth keeping.
    fn constant(&self, v: Value) -> Option<Tensor> {
        let node = self.func.node(v);
        let Type::Tensor(ty) = &node.ty else { return None };
        match &node.op {
            Op::Const { value } => return Some(value.clone()),
            // These name sizes, which others may ask for.
            Op::Param { .. } | Op::Bind { .. } | Op::Compress { .. } | Op::SeqAt { .. } | Op::SeqLen {} => return None,
            Op::If { .. } | Op::Loop { .. } | Op::Get { .. } => return None,
            Op::Iota { .. }
            | Op::Size { .. }
            | Op::Map { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Broadcast { .. }
            | Op::Slice { .. }
            | Op::Pad { .. }
            | Op::Concat { .. }
            | Op::Gather { .. }
            | Op::Scatter { .. }
            | Op::Reduce { .. }
            | Op::Scan { .. }
            | Op::Arg { .. }
            | Op::ArgSort { .. }
            | Op::Contract { .. }
            | Op::Conv { .. }
            | Op::Window { .. }
            | Op::SeqMake { .. }
            | Op::SeqInsert { .. }
            | Op::SeqErase {} => {}
        }
        let args: Vec<&Tensor> = node.args.iter().map(|a| self.known.get(a)).collect::<Option<_>>()?;
        let elements = ty.static_shape().and_then(|s| numrsc_ir::tensor::count(&s))?;
        let bytes = elements * ty.dtype.size().max(8);
        let from: usize = args.iter().map(|t| t.bytes().len()).sum();
        let views_that_repeat = matches!(node.op, Op::Broadcast { .. } | Op::Iota { .. });
        let most = if views_that_repeat { REPEATED } else { SMALL.max(from.saturating_mul(GROWTH)) };
        if bytes > most.min(LARGEST) || steps(&node.op, &args, elements) > MOST_STEPS {
            return None;
        }
        if bytes > SMALL && ty.dtype.size() > 1 && is_widened_weight(self.func, v) {
            return None;
        }
        let made_of: Vec<_> = args.iter().map(|t| t.bytes()).collect();
        let args: Vec<Data> = args.iter().map(|&t| Data::Tensor(t.clone())).collect();
        // An evaluation that fails now will fail at run time, with its message; lack of memory may not occur then.
        match eval_op(&node.op, &args.iter().collect::<Vec<_>>(), &mut Env::new()) {
            Ok(Data::Tensor(t)) => Some(put_aside(t, &made_of)),
            _ => None,
        }
    }

    /// The node in the new function.
    fn place(&mut self, v: Value) -> Result<Value> {
        if let Some(&at) = self.placed.get(&v) {
            return Ok(at);
        }
        let node = self.func.node(v);
        // Views that repeat elements are cheaper than their elements.
        if matches!(node.op, Op::Broadcast { .. } | Op::Iota { .. }) {
            return self.place_node(v, &node.op);
        }
        let op = match self.known.get(&v) {
            Some(value) => Op::Const { value: value.clone() },
            None => node.op.clone(),
        };
        let at = self.out.push(op, &[]).map_err(|e| invalid(&e))?;
        self.placed.insert(v, at);
        Ok(at)
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "ops without functions in them are placed as they are")]
    fn place_node(&mut self, v: Value, op: &Op) -> Result<Value> {
        let mut args = self.func.node(v).args.clone();
        // Nested functions hold the constants that they captured, and are folded as well. `first` is the first capture.
        let op = match op {
            Op::If { then, or, types } => {
                let (kept, [then, or]) = self.sink(&args, 1, 0, [then, or])?;
                args = kept;
                Op::If { then: folded(&then)?.into(), or: folded(&or)?.into(), types: types.clone() }
            }
            Op::Loop { states, body, types } => {
                let (kept, [body]) = self.sink(&args, 2 + *states as usize, 2 + *states as usize, [body])?;
                args = kept;
                Op::Loop { states: *states, body: folded(&body)?.into(), types: types.clone() }
            }
            other => other.clone(),
        };
        let args = args.iter().map(|&a| self.place(a)).collect::<Result<Vec<Value>>>()?;
        self.out.set_source(self.func.origins(v).clone());
        let at = self.out.push(op, &args).map_err(|e| invalid(&e))?;
        self.placed.insert(v, at);
        Ok(at)
    }
}

impl Folder<'_> {
    /// Constants among the captures move into the functions that capture them: there they can be packed and folded. The
    /// captures are the operands from `first` on, and the parameters from `first_param` on. Gives the operands that are
    /// left.
    fn sink<const N: usize>(
        &self,
        args: &[Value],
        first: usize,
        first_param: usize,
        bodies: [&Arc<Func>; N],
    ) -> Result<(Vec<Value>, [Func; N])> {
        let mut constants: HashMap<usize, Tensor> = HashMap::new();
        for (i, a) in args[first..].iter().enumerate() {
            let param = first_param + i;
            // A parameter whose type names sizes may be the one that defines them.
            let plain = |f: &Func| f.ty(f.params()[param]) == self.func.ty(*a);
            if let Some(value) = self.known.get(a)
                && bodies.iter().all(|f| plain(f))
                && self.func.ty(*a).as_tensor().is_ok_and(|t| t.static_shape().is_some())
            {
                constants.insert(param, value.clone());
            }
        }
        let kept =
            args.iter().enumerate().filter(|(i, _)| *i < first || !constants.contains_key(&(i - first + first_param)));
        let kept = kept.map(|(_, a)| *a).collect();
        let mut sunk = Vec::with_capacity(N);
        for f in bodies {
            sunk.push(with_constants(f, &constants)?);
        }
        Ok((kept, sunk.try_into().unwrap_or_else(|_| unreachable!("one for each"))))
    }
}

/// The function with some parameters replaced by constants.
fn with_constants(func: &Func, constants: &HashMap<usize, Tensor>) -> Result<Func> {
    let mut out = Func::new();
    let mut placed: HashMap<Value, Value> = HashMap::new();
    let params = func.params();
    for (i, &p) in params.iter().enumerate().filter(|(i, _)| !constants.contains_key(i)) {
        placed.insert(p, out.param(func.ty(p).clone()).map_err(|e| invalid(&e))?);
        out.param_names.extend(func.param_names.get(i).cloned());
    }
    for (v, node) in func.values() {
        let op = match constants.get(&(v.0 as usize)).filter(|_| (v.0 as usize) < params.len()) {
            Some(value) => Op::Const { value: value.clone() },
            None if placed.contains_key(&v) => continue,
            None => node.op.clone(),
        };
        let args: Vec<Value> = node.args.iter().map(|a| placed[a]).collect();
        let at = out.push(op, &args).map_err(|e| invalid(&e))?;
        out.add_origins(at, func.origins(v));
        placed.insert(v, at);
    }
    out.add_folded(func.folded());
    out.set_results(func.results().iter().map(|r| placed[r]).collect());
    out.result_names.clone_from(&func.result_names);
    out.result_labels.clone_from(&func.result_labels);
    Ok(out)
}

/// How many elements are looked at.
fn steps(op: &Op, args: &[&Tensor], elements: usize) -> usize {
    let each: usize = match op {
        Op::Contract { a_sum, .. } => a_sum.iter().map(|&a| args[0].shape()[a as usize]).product(),
        Op::Conv { .. } => args[1].shape()[1..].iter().product(),
        Op::Window { size, .. } => size.iter().fold(1, |n, &s| n.saturating_mul(s as usize)),
        Op::Param { .. }
        | Op::Const { .. }
        | Op::Iota { .. }
        | Op::Size { .. }
        | Op::Bind { .. }
        | Op::Map { .. }
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Broadcast { .. }
        | Op::Slice { .. }
        | Op::Pad { .. }
        | Op::Concat { .. }
        | Op::Gather { .. }
        | Op::Scatter { .. }
        | Op::Reduce { .. }
        | Op::Scan { .. }
        | Op::Arg { .. }
        | Op::ArgSort { .. }
        | Op::Compress { .. }
        | Op::If { .. }
        | Op::Loop { .. }
        | Op::Get { .. }
        | Op::SeqMake { .. }
        | Op::SeqLen {}
        | Op::SeqAt { .. }
        | Op::SeqInsert { .. }
        | Op::SeqErase {} => 1,
    };
    elements.saturating_mul(each)
}

fn invalid(e: &numrsc_ir::Error) -> Error {
    Error::Invalid { pass: "fold", message: e.to_string() }
}
