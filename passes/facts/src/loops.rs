//! What loops do with their states.
use numrsc_ir::{Func, Op, Type, Value};

/// Does a body never end its loop?
#[allow(clippy::wildcard_enum_match_arm, reason = "recognises some ops; any other is left as it is")]
pub fn goes_on(body: &Func) -> bool {
    match &body.node(body.results()[0]).op {
        Op::Param { index, .. } => *index == 1,
        Op::Const { value } => value.to_i64s() == Some(vec![1]),
        _ => false,
    }
}

/// Which sizes of a state are the same before and after a round.
pub fn fixed_sizes(body: &Func, number: usize) -> Vec<bool> {
    match (body.ty(body.params()[2 + number]), body.ty(body.results()[1 + number])) {
        (Type::Tensor(x), Type::Tensor(y)) => x.shape.iter().zip(&y.shape).map(|(x, y)| x == y).collect(),
        _ => vec![],
    }
}

/// Does a loop leave what a state begins with as it is? The next values go elsewhere, and nothing wants the one after
/// no round.
pub fn only_reads_first(func: &Func, v: Value, number: usize) -> bool {
    let Op::Loop { body, .. } = &func.node(v).op else { unreachable!("a loop") };
    matches!(func.ty(func.node(v).args[2 + number]), Type::Tensor(_))
        && !fixed_sizes(body, number).contains(&false)
        && !is_taken(func, v, number)
}

/// Does anything want this result of a node?
pub fn is_taken(func: &Func, v: Value, result: usize) -> bool {
    func.nodes().iter().any(|n| n.args == [v] && matches!(n.op, Op::Get { index } if index as usize == result))
}
