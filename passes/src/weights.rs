//! Constants that are kept narrow: products widen them as they load them.
use crate::lower::packs;
use numrsc_ir::{Func, Op, Scalar, Value, scalar::Step};

/// Longer expressions are computed once, not at every load.
const MAX_STEPS: usize = 6;

/// Is a node a simple function of one narrower tensor, wanted only as the second operand of products?
pub(crate) fn is_widened_weight(func: &Func, v: Value) -> bool {
    let node = func.node(v);
    let (Op::Map { f }, [x]) = (&node.op, &node.args[..]) else { return false };
    let (Ok(narrow), Ok(wide)) = (func.ty(*x).as_tensor(), node.ty.as_tensor()) else { return false };
    let calls = f.steps().iter().filter(|s| matches!(s, Step::Call(_))).count();
    let users = || func.nodes().iter().filter(|n| n.args.contains(&v));
    narrow.dtype.size() < wide.dtype.size()
        && calls <= MAX_STEPS
        && !func.results().contains(&v)
        && users().next().is_some()
        && users().all(|n| match n.op {
            Op::Conv { .. } => n.args[0] != v,
            _ => packs(func, n, v),
        })
}

/// The narrow constant and the function of its elements that a node is, if it is a widened weight.
pub(crate) fn widened_weight(func: &Func, v: Value) -> Option<(Value, &Scalar)> {
    let (Op::Map { f }, [x]) = (&func.node(v).op, &func.node(v).args[..]) else { return None };
    let constant = matches!(&func.node(*x).op, Op::Const { value } if value.len() > 1);
    (constant && is_widened_weight(func, v)).then_some((*x, f))
}
