//! Products of floats narrower than `f32` become products in `f32`, rounded once at the end: that is how they are computed anyway, but this way operands are
//! converted once instead of at every load, and convolutions can have blocks of channels.
use crate::{
    Result,
    rebuild::{Rebuild, rebuild},
};
use numrsc_ir::{DType, Data, Env, Func, Node, Op, Scalar, ScalarFn, Value, eval_op};

/// The function with products in `f32` or wider.
pub fn widen(func: &Func) -> Result<Func> {
    rebuild(func, "widen", &|new, node, op, mut args| {
        let Some(dtype) = narrow_product(node) else { return new.push(op, &args) };
        // Blocks of channels need constants. Those of contractions may stay narrow, which folding decides.
        let fold_constants = matches!(op, Op::Conv { .. });
        for x in &mut args {
            *x = converted(new, *x, DType::F32, fold_constants)?;
        }
        let wide = new.push(op, &args)?;
        converted(new, wide, dtype, false)
    })
}

/// The element type of a product that is to be widened.
fn narrow_product(node: &Node) -> Option<DType> {
    let is_product = matches!(node.op, Op::Conv { .. } | Op::Contract { .. });
    let dtype = node.ty.as_tensor().ok()?.dtype;
    (is_product && dtype.is_float() && dtype.size() < DType::F32.size()).then_some(dtype)
}

fn converted(new: &mut Rebuild<'_>, x: Value, to: DType, fold_constants: bool) -> Result<Value> {
    let cast = Op::Map { f: Scalar::convert(ScalarFn::Cast, to) };
    if fold_constants
        && let Op::Const { value } = &new.out.node(x).op
        && let Ok(Data::Tensor(value)) = eval_op(&cast, &[&Data::Tensor(value.clone())], &mut Env::new())
    {
        return new.push(Op::Const { value }, &[]);
    }
    new.push(cast, &[x])
}
