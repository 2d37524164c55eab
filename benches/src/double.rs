//! A function with every float as `f64`: the reference for accuracy.
use crate::driver::Result;
use numrsc_ir::{
    DType, Func, Op, Scalar, Tensor, Type, Value,
    scalar::{Lit, Step},
};

fn wide(dtype: DType) -> DType {
    if dtype.is_float() { DType::F64 } else { dtype }
}

/// The tensor with floats converted to `f64`, which is exact.
pub fn widened(t: &Tensor) -> Tensor {
    match t.dtype().is_float() {
        true => Tensor::from_elems(DType::F64, t.shape().to_vec(), &t.elems()),
        false => t.clone(),
    }
}

fn wide_type(ty: &Type) -> Type {
    match ty {
        Type::Tensor(t) => Type::tensor(wide(t.dtype), t.shape.clone()),
        Type::Tuple(all) => Type::Tuple(all.iter().map(wide_type).collect()),
        Type::Seq(_) => ty.clone(),
    }
}

fn wide_scalar(f: &Scalar) -> Scalar {
    let steps: Vec<Step> = f
        .steps()
        .iter()
        .map(|step| match step {
            Step::Lit(x) if x.dtype.is_float() => Step::Lit(Lit::float(DType::F64, x.as_f64())),
            Step::Call(call) => {
                let mut call = call.clone();
                call.to = call.to.map(wide);
                Step::Call(call)
            }
            step => step.clone(),
        })
        .collect();
    Scalar::new(&steps, steps.len() - 1)
}

/// The same function over `f64`.
pub fn in_f64(func: &Func) -> Result<Func> {
    let mut out = func.named_alike();
    let mut places: Vec<Value> = vec![];
    let types = |types: &[Type]| types.iter().map(wide_type).collect();
    for (_, node) in func.values() {
        let op = match &node.op {
            Op::Param { index, ty } => Op::Param { index: *index, ty: wide_type(ty) },
            Op::Const { value } => Op::Const { value: widened(value) },
            Op::Iota { dtype, shape, axis } => Op::Iota { dtype: wide(*dtype), shape: shape.clone(), axis: *axis },
            Op::Map { f } => Op::Map { f: wide_scalar(f) },
            Op::If { then, or, types: t } => {
                Op::If { then: in_f64(then)?.into(), or: in_f64(or)?.into(), types: types(t) }
            }
            Op::Loop { states, body, types: t } => {
                Op::Loop { states: *states, body: in_f64(body)?.into(), types: types(t) }
            }
            op => op.clone(),
        };
        let args: Vec<Value> = node.args.iter().map(|a| places[a.0 as usize]).collect();
        places.push(out.push(op, &args).map_err(|e| e.to_string())?);
    }
    out.set_results(func.results().iter().map(|r| places[r.0 as usize]).collect());
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_float_is_wide() {
        let text = "func(%0: f32[2], %1: f16[2], %2: i64[2]) {\n\
            %3 = map %0, %1 {f=add(a0, mul(cast(a1, f32), 0.1:f32))} : f32[2]\n\
            %4 = map %2 {f=cast(a0, f32)} : f32[2]\n\
            return %3, %4\n}";
        let wide = in_f64(&numrsc_ir::parse(text).unwrap()).unwrap();
        let text = wide.to_string();
        // The literal has the value of the narrow type, not a closer one.
        assert!(text.contains(&f64::from(0.1_f32).to_string()), "{text}");
        assert!(!text.contains("f32") && !text.contains("f16") && text.contains("i64[2]"), "{text}");
    }
}
