//! Keeps 16-bit floats as `f32` between the parameters and the results of a function: every result is rounded once, at
//! the end, not after every operation.
//!
//! This changes results by rounding, towards what they would be without any, and `--tolerance` decides about it.
//! Without it, only products are done in `f32` and rounded at once, which no bit depends on: that is how they are
//! computed anyway, but convolutions can have blocks of channels this way.
//!
//! Types of 16 bits are kept where they are more than the type of an operation's result: where the model itself
//! converts ([`ScalarFn::CastRound`]), where the largest finite number or the bits matter, and in sequences. What is
//! only moved, or the largest of several, stays as narrow as it was, such as parameters and weights.
use crate::rebuild::Rebuild;
use numrsc_facts::{Context, Result};
use numrsc_ir::{
    DType, Func, Lit, Node, Op, ReduceFn, Scalar, ScalarFn, ScatterFn, Type, Value,
    scalar::{Call, Step},
};
use std::sync::Arc;

/// The stated error of an operation that rounds its result to `f32`.
pub const ERROR: f64 = 1.0 / (1 << 24) as f64;

/// The function with 16-bit floats kept as `f32`, or only products in `f32`, depending on the tolerance.
pub fn half_to_f32(func: &Func, cx: &Context) -> Result<Func> {
    let widen = Widen { keeps: cx.options.tolerance >= ERROR };
    widen.function(func, &|_| false, false)
}

struct Widen {
    /// Are results of all operations kept as `f32`?
    keeps: bool,
}

fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

fn has_narrow(ty: &Type) -> bool {
    matches!(ty, Type::Tensor(t) if is_narrow(t.dtype))
}

#[allow(clippy::wildcard_enum_match_arm, reason = "only tensors have a type of elements")]
fn with_dtype(ty: &Type, dtype: DType) -> Type {
    match ty {
        Type::Tensor(t) => Type::tensor(dtype, t.shape.clone()),
        _ => ty.clone(),
    }
}

/// Can the operands of an op stay narrow, as it only moves or selects elements? Those that it repeats are converted
/// before: there are fewer then.
fn moves(op: &Op) -> bool {
    match op {
        Op::Reduce { f, .. } | Op::Scan { f, .. } | Op::Window { f, .. } => matches!(f, ReduceFn::Max | ReduceFn::Min),
        Op::Scatter { f } => !matches!(f, ScatterFn::Add | ScatterFn::Mul),
        Op::Contract { .. } | Op::Conv { .. } | Op::Broadcast { .. } => false,
        Op::Param { .. }
        | Op::Const { .. }
        | Op::Iota { .. }
        | Op::Size { .. }
        | Op::Bind { .. }
        | Op::Map { .. }
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Slice { .. }
        | Op::Pad { .. }
        | Op::Concat { .. }
        | Op::Gather { .. }
        | Op::Arg { .. }
        | Op::ArgSort { .. }
        | Op::Compress { .. }
        | Op::If { .. }
        | Op::Loop { .. }
        | Op::Get { .. }
        | Op::SeqMake { .. }
        | Op::SeqLen {}
        | Op::SeqAt { .. }
        | Op::SeqInsert { .. }
        | Op::SeqErase {} => true,
    }
}

impl Widen {
    /// A function with some parameters wide; all results are, or none.
    #[allow(clippy::wildcard_enum_match_arm, reason = "only parameters are not ops of their own")]
    fn function(&self, func: &Func, wide_param: &dyn Fn(usize) -> bool, wide_results: bool) -> Result<Func> {
        let mut new = Rebuild::of(func, "widen", |new, node, args| match &node.op {
            Op::Param { index, ty } if wide_param(*index as usize) => {
                new.push(Op::Param { index: *index, ty: with_dtype(ty, DType::F32) }, &[])
            }
            _ => self.node(new, node, args),
        })?;
        let mut results = Vec::with_capacity(func.results().len());
        for &r in func.results() {
            let v = new.placed(r);
            results.push(if wide_results { wide(&mut new, v)? } else { as_before(&mut new, r, v)? });
        }
        Ok(new.with_results(results))
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "`moves` says of every other op what its operands have to be")]
    fn node(&self, new: &mut Rebuild<'_>, node: &Node, mut args: Vec<Value>) -> Result<Value> {
        match &node.op {
            Op::Map { f } => self.map(new, node, f, args),
            Op::If { then, or, types } => {
                let types = self.types(types);
                let [then, or] = [then, or].map(|f| self.nested(new, f, &node.args[1..], &args[1..]));
                new.push(Op::If { then: then?, or: or?, types }, &args)
            }
            Op::Loop { states, body, types } => {
                let (states, types) = (*states, self.types(types));
                if self.keeps {
                    for state in &mut args[2..2 + states as usize] {
                        *state = wide(new, *state)?;
                    }
                }
                let body = self.nested(new, body, &node.args, &args)?;
                new.push(Op::Loop { states, body, types }, &args)
            }
            Op::SeqMake { .. } | Op::SeqInsert { .. } => {
                for (&before, arg) in node.args.iter().zip(&mut args) {
                    *arg = as_before(new, before, *arg)?;
                }
                new.push(node.op.clone(), &args)
            }
            Op::Iota { dtype, shape, axis } if self.keeps && is_narrow(*dtype) => {
                new.push(Op::Iota { dtype: DType::F32, shape: shape.clone(), axis: *axis }, &[])
            }
            op => {
                let is_product = matches!(op, Op::Contract { .. } | Op::Conv { .. });
                let computes = is_product || (self.keeps && !moves(op));
                // Operands are of one type: all wide, if one is.
                if computes || node.args.iter().zip(&args).any(|(&before, &arg)| is_widened(new, before, arg)) {
                    for arg in &mut args {
                        *arg = wide(new, *arg)?;
                    }
                }
                let result = new.push(op.clone(), &args)?;
                match &node.ty {
                    Type::Tensor(t) if !self.keeps => converted(new, result, t.dtype),
                    _ => Ok(result),
                }
            }
        }
    }

    /// What a nested function says of its results.
    fn types(&self, types: &[Type]) -> Vec<Type> {
        let wide = |t: &Type| if self.keeps && has_narrow(t) { with_dtype(t, DType::F32) } else { t.clone() };
        types.iter().map(wide).collect()
    }

    /// A nested function, of operands as they were before and as they are.
    fn nested(&self, new: &Rebuild<'_>, body: &Func, before: &[Value], args: &[Value]) -> Result<Arc<Func>> {
        let wide_param = |i: usize| is_widened(new, before[i], args[i]);
        Ok(self.function(body, &wide_param, self.keeps)?.into())
    }

    fn map(&self, new: &mut Rebuild<'_>, node: &Node, f: &Scalar, mut args: Vec<Value>) -> Result<Value> {
        let dtype = |&v: &Value| Ok(new.func.ty(v).as_tensor()?.dtype);
        let of: Vec<DType> =
            node.args.iter().map(dtype).collect::<numrsc_ir::Result<_>>().map_err(|e| new.invalid(&e))?;
        if self.keeps {
            for arg in &mut args {
                *arg = wide(new, *arg)?;
            }
        }
        let f = self.scalar(f, &of).map_err(|e| new.invalid(&e.into()))?;
        match f.steps() {
            [Step::Arg(n)] => Ok(args[*n as usize]),
            _ => new.push(Op::Map { f }, &args),
        }
    }

    /// The function of wide elements, where those before were of these types. What is rounded last is not made wide again.
    #[allow(clippy::wildcard_enum_match_arm, reason = "another conversion stays what it is")]
    fn scalar(&self, f: &Scalar, of: &[DType]) -> std::result::Result<Scalar, String> {
        let types = f.types(of)?;
        let is_narrow = |dtype: DType| self.keeps && is_narrow(dtype);
        let wide = |dtype: DType| if is_narrow(dtype) { DType::F32 } else { dtype };
        let mut code = Code::default();
        let mut places: Vec<Computed> = vec![];
        for (i, (step, &ty)) in f.steps().iter().zip(&types).enumerate() {
            places.push(match step {
                Step::Lit(x) if is_narrow(ty) => code.add(Step::Lit(Lit::float(DType::F32, x.as_f64())), DType::F32),
                Step::Call(Call { f, args, to: Some(to) }) => {
                    let (x, was) = (places[args[0] as usize], types[args[0] as usize]);
                    let y = match f {
                        ScalarFn::Cast => code.cast(x, wide(*to)),
                        ScalarFn::CastRound => code.cast(x, *to),
                        ScalarFn::Bitcast => {
                            let x = code.cast(x, was);
                            code.convert(*f, x, *to)
                        }
                        _ => code.convert(*f, x, *to),
                    };
                    if i + 1 == types.len() { y } else { code.cast(y, wide(*to)) }
                }
                Step::Call(call) => {
                    let args = call.args.iter().map(|&a| places[a as usize].step).collect();
                    code.add(Step::Call(Call { args, ..call.clone() }), wide(ty))
                }
                Step::Arg(_) | Step::Lit(_) => code.add(step.clone(), wide(ty)),
            });
        }
        Ok(Scalar::new(&code.steps, places.last().map_or(0, |p| p.step as usize)))
    }
}

/// A function of elements in the course of being made.
#[derive(Default)]
struct Code {
    steps: Vec<Step>,
}

/// The result of a step.
#[derive(Clone, Copy)]
struct Computed {
    step: u32,
    dtype: DType,
}

impl Code {
    fn add(&mut self, step: Step, dtype: DType) -> Computed {
        self.steps.push(step);
        Computed { step: self.steps.len() as u32 - 1, dtype }
    }

    fn convert(&mut self, f: ScalarFn, x: Computed, to: DType) -> Computed {
        self.add(Step::Call(Call { f, args: vec![x.step], to: Some(to) }), to)
    }

    fn cast(&mut self, x: Computed, to: DType) -> Computed {
        if x.dtype == to { x } else { self.convert(ScalarFn::Cast, x, to) }
    }
}

/// Was a value narrow that is not any more?
fn is_widened(new: &Rebuild<'_>, before: Value, v: Value) -> bool {
    has_narrow(new.func.ty(before)) && !has_narrow(new.out.ty(v))
}

/// The value with elements of 32 bits, if they have 16.
fn wide(new: &mut Rebuild<'_>, v: Value) -> Result<Value> {
    if has_narrow(new.out.ty(v)) { converted(new, v, DType::F32) } else { Ok(v) }
}

/// The value with elements of the type that they had before.
#[allow(clippy::wildcard_enum_match_arm, reason = "only tensors have a type of elements")]
fn as_before(new: &mut Rebuild<'_>, before: Value, v: Value) -> Result<Value> {
    match new.func.ty(before) {
        Type::Tensor(t) => converted(new, v, t.dtype),
        _ => Ok(v),
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "only tensors have a type of elements")]
fn converted(new: &mut Rebuild<'_>, v: Value, to: DType) -> Result<Value> {
    match new.out.ty(v) {
        Type::Tensor(t) if t.dtype != to => new.push(Op::Map { f: Scalar::convert(ScalarFn::Cast, to) }, &[v]),
        _ => Ok(v),
    }
}
