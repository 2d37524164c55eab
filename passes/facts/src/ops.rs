//! Kinds of ops that several passes treat alike.
use numrsc_ir::Op;

/// Ops that only move elements: index arithmetic.
pub fn is_view(op: &Op) -> bool {
    matches!(op, Op::Reshape { .. } | Op::Transpose { .. } | Op::Broadcast { .. } | Op::Slice { .. })
}

/// Ops whose kernels can compute what becomes of their result.
#[allow(clippy::wildcard_enum_match_arm, reason = "an op is no product unless it has a kernel with an epilogue")]
pub fn is_product(op: &Op) -> bool {
    match op {
        Op::Contract { .. } | Op::Conv { .. } => true,
        Op::Window { size, .. } => !size.is_empty(),
        _ => false,
    }
}

/// Ops that happen at their place in the entry function although they have no buffer.
pub fn is_statement(op: &Op) -> bool {
    matches!(op, Op::Bind { .. })
}
