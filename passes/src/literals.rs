//! Operands of maps whose elements are all the same constant become literals of the expression: no memory, no loads, and narrow weights with a zero point stay a
//! function of one operand.
use crate::{Error, Result};
use numrsc_ir::{DType, Func, Lit, Op, Scalar, Tensor, Value, scalar::Step};
use std::collections::HashMap;

pub fn literals(func: &Func) -> Result<Func> {
    let mut out = func.named_alike();
    let mut placed: HashMap<Value, Value> = HashMap::new();
    let mut same: HashMap<Value, Lit> = HashMap::new();
    for (v, node) in func.values() {
        let known = match &node.op {
            Op::Const { value } => one_number(value),
            Op::Broadcast { .. } | Op::Reshape { .. } | Op::Transpose { .. } | Op::Slice { .. } => {
                same.get(&node.args[0]).copied()
            }
            _ => None,
        };
        same.extend(known.map(|lit| (v, lit)));
        let mut args = node.args.clone();
        let op = match &node.op {
            Op::Map { f } if args.iter().any(|a| !same.contains_key(a)) => {
                let f = substituted(f, &args, &same);
                args.retain(|a| !same.contains_key(a));
                Op::Map { f }
            }
            // A part of what repeats one number repeats it as well: equal ones are one node then.
            Op::Slice { sizes, .. } if same.contains_key(&v) => match &func.node(args[0]).op {
                Op::Broadcast { axes, .. } if axes.is_empty() => {
                    args.clone_from(&func.node(args[0]).args);
                    Op::Broadcast { shape: sizes.clone(), axes: vec![] }
                }
                _ => node.op.clone(),
            },
            other => other.map_bodies(literals)?,
        };
        let args: Vec<Value> = args.iter().map(|a| placed[a]).collect();
        let at = out.push(op, &args).map_err(|e| Error::Invalid { pass: "literals", message: e.to_string() })?;
        placed.insert(v, at);
    }
    out.set_results(func.results().iter().map(|r| placed[r]).collect());
    Ok(out.without_dead_nodes())
}

/// The one number that all elements are.
pub(crate) fn one_number(value: &Tensor) -> Option<Lit> {
    if value.dtype() == DType::Str || value.is_empty() {
        return None;
    }
    let size = value.dtype().size();
    let first = &value.bytes()[..size];
    if value.bytes().chunks_exact(size).any(|x| x != first) {
        return None;
    }
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(first);
    let bits = u64::from_le_bytes(bytes);
    let bits = match value.dtype() {
        DType::Bool => u64::from(bits != 0),
        d if d.bits() == 64 => bits,
        d => bits & ((1 << d.bits()) - 1),
    };
    Lit::from_bits(value.dtype(), bits)
}

/// The expression with literals for the operands that are one number, and the others renumbered.
fn substituted(f: &Scalar, args: &[Value], same: &HashMap<Value, Lit>) -> Scalar {
    let steps: Vec<Step> = f
        .steps()
        .iter()
        .map(|s| match s {
            Step::Arg(n) => match same.get(&args[*n as usize]) {
                Some(lit) => Step::Lit(*lit),
                None => {
                    let before = args[..*n as usize].iter().filter(|a| !same.contains_key(a)).count();
                    Step::Arg(before as u32)
                }
            },
            other => other.clone(),
        })
        .collect();
    Scalar::new(&steps, steps.len() - 1)
}
