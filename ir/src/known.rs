//! What is known at compile time of small integer tensors: constants and dimension expressions, element by element.
//!
//! Exporters compute shapes with ordinary operators (Shape, Gather, Concat, Mul …). Following those values
//! symbolically keeps the named dimensions of a model from its inputs to its outputs.
use crate::{
    DType, Dim, Elems, Func, Op, ReduceFn, Tensor, Value,
    eval::{Data, Env, eval_op},
    scalar::{Call, ScalarFn, Step},
};

/// Larger tensors are not followed.
const MAX_ELEMS: usize = 256;

/// The elements in row-major order; `None` where nothing is known.
pub type Known = Vec<Option<Dim>>;

/// What a constant says.
pub fn of_tensor(t: &Tensor) -> Option<Known> {
    if t.len() > MAX_ELEMS {
        return None;
    }
    match t.elems() {
        Elems::Int(v) => Some(v.iter().map(|&x| i64::try_from(x).ok().map(Dim::Const)).collect()),
        Elems::Float(v) => {
            Some(v.iter().map(|&x| (x.fract() == 0.0 && x.abs() < 9e15).then_some(Dim::Const(x as i64))).collect())
        }
        Elems::Str(_) => None,
    }
}

/// What is known of the result of `op`, given what is known of its operands.
pub fn of_op(func: &Func, v: Value, known: &dyn Fn(Value) -> Option<Known>) -> Option<Known> {
    let node = func.node(v);
    let ty = node.ty.as_tensor().ok()?;
    let len = crate::tensor::count(&ty.static_shape()?).filter(|&n| n <= MAX_ELEMS)?;
    // Operands of static shape; what nothing is known of is unknown element by element.
    let all = || {
        let operand = |a: &Value| {
            let len = || crate::tensor::count(&func.ty(*a).as_tensor().ok()?.static_shape()?);
            known(*a).or_else(|| Some(vec![None; len().filter(|&n| n <= MAX_ELEMS)?]))
        };
        node.args.iter().map(operand).collect::<Option<Vec<Known>>>()
    };
    match &node.op {
        Op::Const { value } => of_tensor(value),
        Op::Size { dim } => Some(vec![Some(dim.clone())]),
        Op::Bind { dim, .. } => Some(vec![Some(Dim::sym(dim.clone()))]),
        Op::Iota { .. } => match eval_op(&node.op, &[], &mut Env::default()).ok()? {
            Data::Tensor(t) => of_tensor(&t),
            _ => None,
        },
        Op::Map { f } => {
            let args: Vec<Known> = node.args.iter().map(|a| known(*a).unwrap_or_else(|| vec![None; len])).collect();
            let dtypes: Vec<DType> =
                node.args.iter().filter_map(|a| func.ty(*a).as_tensor().ok()).map(|t| t.dtype).collect();
            let types = f.types(&dtypes).ok()?;
            Some((0..len).map(|i| element(f.steps(), &types, &args, i)).collect())
        }
        Op::Reduce { f, axes } => reduce(func, node, *f, axes, &all()?[0]),
        Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Broadcast { .. }
        | Op::Slice { .. }
        | Op::Concat { .. }
        | Op::Pad { .. } => rearranged(func, node, &all()?, &[]),
        // Only the moved tensors are symbolic; indices must be constant.
        Op::Gather { .. } => rearranged(func, node, &all()?, &[1]),
        Op::Scatter { f: crate::ScatterFn::Set } => rearranged(func, node, &all()?, &[1]),
        _ => None,
    }
}

/// Run an op that only moves elements on their positions, to see where each element of the result comes from.
fn rearranged(func: &Func, node: &crate::Node, operands: &[Known], constant: &[usize]) -> Option<Known> {
    let mut pool: Known = Vec::new();
    let mut data = Vec::new();
    for (i, (arg, known)) in node.args.iter().zip(operands).enumerate() {
        let shape = func.ty(*arg).as_tensor().ok()?.static_shape()?;
        let values: Vec<i64> = if constant.contains(&i) {
            known.iter().map(|d| d.as_ref()?.as_const()).collect::<Option<_>>()?
        } else {
            let first = pool.len() as i64;
            pool.extend(known.iter().cloned());
            (first..pool.len() as i64).collect()
        };
        data.push(Data::Tensor(Tensor::from_i64(&shape, &values)));
    }
    let data: Vec<&Data> = data.iter().collect();
    match eval_op(&node.op, &data, &mut Env::default()).ok()? {
        Data::Tensor(t) => t.to_i64s()?.into_iter().map(|i| pool.get(i as usize).cloned()).collect(),
        _ => None,
    }
}

/// Combine the elements that agree in the axes that stay.
fn reduce(func: &Func, node: &crate::Node, f: ReduceFn, axes: &[i64], x: &Known) -> Option<Known> {
    let shape = func.ty(node.args[0]).as_tensor().ok()?.static_shape()?;
    let dtype = node.ty.as_tensor().ok()?.dtype;
    let combine = match f {
        ReduceFn::Sum => |a: &Dim, b: &Dim| a + b,
        ReduceFn::Prod => |a: &Dim, b: &Dim| a * b,
        ReduceFn::Max => |a: &Dim, b: &Dim| a.greater(b),
        ReduceFn::Min => |a: &Dim, b: &Dim| a.lesser(b),
    };
    let neutral = match f {
        ReduceFn::Sum => Some(Dim::ZERO),
        ReduceFn::Prod => Some(Dim::ONE),
        ReduceFn::Max | ReduceFn::Min => None,
    };
    let stays = |i: &usize| !axes.contains(&(*i as i64));
    let len: usize = (0..shape.len()).filter(stays).map(|i| shape[i]).product();
    let mut groups: Vec<Vec<&Option<Dim>>> = vec![vec![]; len];
    for (at, d) in x.iter().enumerate() {
        let (mut rest, mut place, mut stride) = (at, 0, 1);
        for i in (0..shape.len()).rev() {
            if stays(&i) {
                place += rest % shape[i] * stride;
                stride *= shape[i];
            }
            rest /= shape[i];
        }
        groups[place].push(d);
    }
    let total = |group: Vec<&Option<Dim>>| match &group[..] {
        [] => neutral.clone(),
        [first, rest @ ..] => {
            let sum = rest.iter().try_fold((*first).clone()?, |a, b| Some(combine(&a, b.as_ref()?)))?;
            exact(sum, dtype)
        }
    };
    Some(groups.into_iter().map(total).collect())
}

/// A value as its element type holds it. Expressions in sizes count as small enough for 32 bits and more.
fn exact(d: Dim, dtype: DType) -> Option<Dim> {
    let float = dtype.is_float();
    match d.as_const() {
        None => (dtype.bits() >= 32).then_some(d),
        Some(c) if dtype == DType::F64 => (c.abs_diff(0) <= 1 << 53).then_some(d),
        Some(c) if dtype == DType::F32 => (c.abs_diff(0) <= 1 << 24).then_some(d),
        Some(c) if float => (c.abs_diff(0) <= 2).then_some(d),
        Some(c) => i64::try_from(dtype.wrap(i128::from(c))).ok().map(Dim::Const),
    }
}

/// One element of a map. Conversions between integers and floats count as exact: sizes are far below their limits.
fn element(steps: &[Step], types: &[DType], args: &[Known], i: usize) -> Option<Dim> {
    let mut values: Vec<Option<Dim>> = Vec::with_capacity(steps.len());
    for (step, dtype) in steps.iter().zip(types) {
        let value = match step {
            Step::Arg(n) => args.get(*n as usize).and_then(|k| k.get(i).cloned().flatten()),
            Step::Lit(l) if l.dtype.is_float() => {
                let x = l.as_f64();
                (x.fract() == 0.0 && x.abs() < 9e15).then_some(Dim::Const(x as i64))
            }
            Step::Lit(l) => i64::try_from(l.as_int()).ok().map(Dim::Const),
            Step::Call(c) => call(c, &values, types, *dtype).and_then(|d| exact(d, *dtype)),
        };
        values.push(value);
    }
    values.pop().flatten()
}

fn call(c: &Call, values: &[Option<Dim>], types: &[DType], dtype: DType) -> Option<Dim> {
    let arg = |n: usize| values[c.args[n] as usize].clone();
    let truth = |b: Option<bool>| b.map(|b| Dim::Const(i64::from(b)));
    if c.f == ScalarFn::Select {
        return match arg(0).and_then(|d| d.as_const()) {
            Some(0) => arg(2),
            Some(_) => arg(1),
            None => arg(1).filter(|a| Some(a) == arg(2).as_ref()),
        };
    }
    let a = arg(0)?;
    let b = if c.f.arity() > 1 { arg(1)? } else { Dim::ZERO };
    let of = types[c.args[0] as usize];
    // Division by 0 has no meaning in a model, so that a divisor that may be 0 is one that is not.
    let sizes = || Dim::ZERO.at_most(&a) == Some(true) && Dim::ZERO.at_most(&b) == Some(true) && b != Dim::ZERO;
    match c.f {
        ScalarFn::Add => Some(&a + &b),
        ScalarFn::Sub => Some(&a - &b),
        ScalarFn::Mul => Some(&a * &b),
        ScalarFn::Neg => Some(-&a),
        ScalarFn::Abs if Dim::ZERO.at_most(&a) == Some(true) => Some(a),
        ScalarFn::Min => Some(a.lesser(&b)),
        ScalarFn::Max => Some(a.greater(&b)),
        ScalarFn::Div if of.is_float() => a.exact_div(&b),
        ScalarFn::Div => a.exact_div(&b).or_else(|| sizes().then(|| a.floor_div(&b))),
        ScalarFn::Mod | ScalarFn::Rem if !of.is_float() && sizes() => Some(a.modulo(&b)),
        ScalarFn::Floor | ScalarFn::Ceil | ScalarFn::Trunc | ScalarFn::Round => Some(a),
        ScalarFn::Eq => truth(a.equals(&b)),
        ScalarFn::Le => truth(a.at_most(&b)),
        ScalarFn::Lt => truth(b.at_most(&a).map(|le| !le)),
        ScalarFn::Not if of == DType::Bool => a.as_const().map(|c| Dim::Const(1 - c)),
        ScalarFn::And if of == DType::Bool => Some(&a * &b),
        ScalarFn::Or if of == DType::Bool => Some(a.greater(&b)),
        ScalarFn::Cast | ScalarFn::CastSat if dtype == DType::Bool => truth(a.equals(&Dim::ZERO).map(|z| !z)),
        ScalarFn::Cast => Some(a),
        ScalarFn::CastSat if a.as_const().is_none() => Some(a),
        _ => None,
    }
}
