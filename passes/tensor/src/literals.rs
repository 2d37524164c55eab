//! Operands of maps whose elements are all equal become literals of the expression: no memory, no loads, and a narrow
//! weight with a zero point remains a function of one operand.
use crate::rebuild::Rebuild;
use numrsc_facts::{Context, Result, constants::one_number};
use numrsc_ir::{Func, Lit, Op, Scalar, Value, scalar::Step};
use std::collections::HashMap;

pub fn literals(func: &Func, _: &Context) -> Result<Func> {
    with_literals(func)
}

#[allow(clippy::wildcard_enum_match_arm, reason = "recognises some ops; any other is left as it is")]
fn with_literals(func: &Func) -> Result<Func> {
    let same = same_numbers(func);
    let new = Rebuild::of(func, "literals", |new, node, mut args| {
        let is_same = |i: usize| same.contains_key(&node.args[i]);
        let op = match &node.op {
            Op::Map { f } if (0..args.len()).any(|i| !is_same(i)) => {
                let f = substituted(f, &node.args, &same);
                args = (0..args.len()).filter(|&i| !is_same(i)).map(|i| args[i]).collect();
                Op::Map { f }
            }
            // A part of what repeats one number repeats it as well: equal ones are one node then.
            Op::Slice { sizes, .. } if is_same(0) => {
                let whole = func.node(node.args[0]);
                match &whole.op {
                    Op::Broadcast { axes, .. } if axes.is_empty() => {
                        args = vec![new.placed(whole.args[0])];
                        Op::Broadcast { shape: sizes.clone(), axes: vec![] }
                    }
                    _ => node.op.clone(),
                }
            }
            other => other.map_bodies(with_literals)?,
        };
        new.push(op, &args)
    })?;
    let results = func.results().iter().map(|&r| new.placed(r)).collect();
    Ok(new.with_results(results))
}

/// The nodes whose elements are all the same constant.
#[allow(clippy::wildcard_enum_match_arm, reason = "recognises some ops; any other is left as it is")]
fn same_numbers(func: &Func) -> HashMap<Value, Lit> {
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
    }
    same
}

/// The expression with literals for the operands that are one number, and the others renumbered.
#[allow(clippy::wildcard_enum_match_arm, reason = "changes some steps of an expression; any other is copied")]
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
