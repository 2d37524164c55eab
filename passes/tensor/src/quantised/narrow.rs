//! Narrows the operands of 32-bit integer products that provably fit 16 bits, for machines with dot products of two
//! (dot2), or 8 bits, with dot products of four (dot4). Nothing is rounded or wraps: the bits are the same.
use crate::{quantised::dot4::Dot4, rebuild::rebuild};
use numrsc_facts::{Context, Result, ranges::fits};
use numrsc_ir::{DType, Data, Env, Func, Node, Op, Scalar, ScalarFn, Tensor, Type, Value, eval_op};
use numrsc_schedule::product::packs;

/// The function with the operands of such products narrowed, and widened again in front of the products.
pub fn narrow(func: &Func, cx: &Context) -> Result<Func> {
    let machine = cx.machine;
    if !machine.dot2 {
        return Ok(func.clone());
    }
    rebuild(func, "narrow", &|new, node, op, mut args| {
        if let Some(dot4) = machine.dot4.then(|| Dot4::of(new.func, node, machine)).flatten() {
            return dot4.product(new, op, node);
        }
        for (arg, operand) in args.iter_mut().zip(narrowed(new.func, node).into_iter().flatten()) {
            let x = match operand {
                Operand::Constant(value) => new.push(Op::Const { value }, &[])?,
                Operand::Computed => new.push(cast(DType::I16), &[*arg])?,
            };
            *arg = new.push(cast(DType::I32), &[x])?;
        }
        new.push(op, &args)
    })
}

enum Operand {
    Constant(Tensor),
    Computed,
}

/// How the operands of a product are narrowed, if all can be, and the one that should be packed is a constant.
#[allow(clippy::wildcard_enum_match_arm, reason = "recognises some ops; any other is left as it is")]
fn narrowed(func: &Func, node: &Node) -> Option<Vec<Operand>> {
    let weights = match node.op {
        Op::Contract { .. } => *node.args.iter().find(|a| packs(func, node, **a))?,
        Op::Conv { groups: 1, .. } => node.args[1],
        _ => return None,
    };
    if !matches!(&node.ty, Type::Tensor(t) if t.dtype == DType::I32) {
        return None;
    }
    // Panels are loaded as vectors and widened; single elements are broadcast in their narrow type.
    let types = if packs(func, node, weights) { &[DType::I8, DType::I16][..] } else { &[DType::I16] };
    let operand = |&v: &Value| match constant(func, v) {
        Some(value) if v == weights => narrow_constant(&value, types).map(Operand::Constant),
        _ if v == weights => None,
        _ => fits(func, v, DType::I16).then_some(Operand::Computed),
    };
    node.args.iter().map(operand).collect()
}

/// The elements of a constant, or of a function of one.
#[allow(clippy::wildcard_enum_match_arm, reason = "recognises some ops; any other is left as it is")]
pub(crate) fn constant(func: &Func, v: Value) -> Option<Tensor> {
    let node = func.node(v);
    let of = |v: Value| match &func.node(v).op {
        Op::Const { value } => Some(value.clone()),
        _ => None,
    };
    match (&node.op, &node.args[..]) {
        // Nothing but another type.
        (op @ Op::Map { .. }, [x]) if *op == cast(DType::I32) && dtype_is_narrow(func, *x) => of(*x),
        (Op::Map { .. }, [x]) => evaluated(&node.op, of(*x)?),
        _ => of(v),
    }
}

fn dtype_is_narrow(func: &Func, v: Value) -> bool {
    func.ty(v).as_tensor().is_ok_and(|t| matches!(t.dtype, DType::I8 | DType::U8 | DType::I16))
}

fn evaluated(op: &Op, x: Tensor) -> Option<Tensor> {
    match eval_op(op, &[&Data::Tensor(x)], &mut Env::new()) {
        Ok(Data::Tensor(t)) => Some(t),
        _ => None,
    }
}

pub(crate) fn narrow_constant(value: &Tensor, types: &[DType]) -> Option<Tensor> {
    if types.first() == Some(&value.dtype()) && !value.is_empty() {
        return Some(value.clone());
    }
    let all = value.to_i64s()?;
    let (low, high) = (i128::from(*all.iter().min()?), i128::from(*all.iter().max()?));
    let to = types.iter().find(|t| t.int_range().0 <= low && high <= t.int_range().1)?;
    evaluated(&cast(*to), value.clone())
}

pub(crate) fn cast(to: DType) -> Op {
    Op::Map { f: Scalar::convert(ScalarFn::Cast, to) }
}
