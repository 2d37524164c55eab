//! Products of floats narrower than `f32` become products in `f32`, rounded once at the end: that is how they are computed anyway, but this way operands are
//! converted once instead of at every load, and convolutions can have blocks of channels.
use crate::{Error, Result};
use numrsc_ir::{DType, Data, Env, Func, Node, Op, Scalar, ScalarFn, Value, eval_op};

/// The function with products in `f32` or wider.
pub fn widen(func: &Func) -> Result<Func> {
    let mut out = Func::new();
    out.param_names.clone_from(&func.param_names);
    out.result_names.clone_from(&func.result_names);
    let mut placed: Vec<Value> = Vec::with_capacity(func.nodes().len());
    for (_, node) in func.values() {
        let mut args: Vec<Value> = node.args.iter().map(|a| placed[a.0 as usize]).collect();
        let op = match &node.op {
            Op::If { then, or, types } => {
                Op::If { then: widen(then)?.into(), or: widen(or)?.into(), types: types.clone() }
            }
            Op::Loop { states, body, types } => {
                Op::Loop { states: *states, body: widen(body)?.into(), types: types.clone() }
            }
            op => op.clone(),
        };
        let narrow = narrow_product(node);
        if narrow.is_some() {
            // Blocks of channels need constants. Those of contractions may stay narrow, which folding decides.
            let keep = matches!(op, Op::Conv { .. });
            args = args.iter().map(|&x| converted(&mut out, x, DType::F32, keep)).collect::<Result<_>>()?;
        }
        let result = push(&mut out, op, &args)?;
        placed.push(narrow.map_or(Ok(result), |dtype| converted(&mut out, result, dtype, false))?);
    }
    out.set_results(func.results().iter().map(|r| placed[r.0 as usize]).collect());
    Ok(out.without_dead_nodes())
}

/// The element type of a product that is to be widened.
fn narrow_product(node: &Node) -> Option<DType> {
    let is_product = matches!(node.op, Op::Conv { .. } | Op::Contract { .. });
    let dtype = node.ty.as_tensor().ok()?.dtype;
    (is_product && dtype.is_float() && dtype.size() < DType::F32.size()).then_some(dtype)
}

fn converted(out: &mut Func, x: Value, to: DType, fold_constants: bool) -> Result<Value> {
    let cast = Op::Map { f: Scalar::convert(ScalarFn::Cast, to) };
    if fold_constants
        && let Op::Const { value } = &out.node(x).op
        && let Ok(Data::Tensor(value)) = eval_op(&cast, &[&Data::Tensor(value.clone())], &mut Env::new())
    {
        return push(out, Op::Const { value }, &[]);
    }
    push(out, cast, &[x])
}

fn push(out: &mut Func, op: Op, args: &[Value]) -> Result<Value> {
    out.push(op, args).map_err(|e| Error::Invalid { pass: "widen", message: e.to_string() })
}
