//! Narrow operands: products widen them as they load them.
use crate::product::packs;
use numrsc_ir::{DType, Func, Node, Op, Scalar, ScalarFn, Value, scalar::Step};

/// Longer expressions are computed once, not at every load.
const MAX_STEPS: usize = 6;

/// Is a node a simple function of one narrower tensor, wanted only as the second operand of products?
#[allow(clippy::wildcard_enum_match_arm, reason = "any user may pack what it reads")]
pub fn is_widened_weight(func: &Func, v: Value) -> bool {
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
            // Blocks of channels need constants.
            Op::Conv { .. } => wide.dtype.is_int() && n.args[0] != v,
            _ => packs(func, n, v),
        })
}

/// A widened weight as its narrow constant and the function of its elements.
pub fn widened_weight(func: &Func, v: Value) -> Option<(Value, &Scalar)> {
    let (Op::Map { f }, [x]) = (&func.node(v).op, &func.node(v).args[..]) else { return None };
    let constant = matches!(&func.node(*x).op, Op::Const { value } if value.len() > 1);
    (constant && is_widened_weight(func, v)).then_some((*x, f))
}

/// The narrow operands of an integer product that widens both as it loads them: at most 16 bits.
pub fn narrow_operands(func: &Func, node: &Node) -> Option<[Value; 2]> {
    let is_product = matches!(node.op, Op::Contract { .. } | Op::Conv { groups: 1, .. });
    let narrow = |v: Value| {
        let (Op::Map { f }, [x]) = (&func.node(v).op, &func.node(v).args[..]) else { return None };
        let dtype = func.ty(*x).as_tensor().ok()?.dtype;
        let widens = *f == Scalar::convert(ScalarFn::Cast, DType::I32);
        (widens && matches!(dtype, DType::I8 | DType::U8 | DType::I16)).then_some(*x)
    };
    if is_product { Some([narrow(node.args[0])?, narrow(node.args[1])?]) } else { None }
}

/// The operands of a product as they are in memory: narrow ones, if it widens both.
pub fn product_operands(func: &Func, node: &Node) -> [Value; 2] {
    narrow_operands(func, node).unwrap_or([node.args[0], node.args[1]])
}
