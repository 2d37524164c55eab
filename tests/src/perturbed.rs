//! The evaluator with deliberate rounding errors: every float result that native code may round differently is
//! perturbed by as much as its admissible error. The spread of the final results bounds how far native results may be
//! from the evaluator's.
//!
//! Functions such as `exp` may be wrong by two units in the last place of the type they are computed in, sums by one per term
//! relative to the sum of the absolute terms. Everything else is exact and does not move.
use crate::rng::Rng;
use numrsc_ir::{
    DType, Data, Elems, Func, Op, ReduceFn, Scalar, ScalarFn, ScatterFn, Tensor, Type,
    eval::{Env, eval_op, unify},
    scalar::{Call, Step},
};

/// The direction of the perturbation.
#[derive(Clone, Debug)]
pub enum Perturbation {
    /// None: the evaluator itself.
    None,
    Up,
    Down,
    Random(Rng),
}

/// The evaluator itself, the two extremes, and a few in between.
pub fn perturbations(seed: u64) -> Vec<Perturbation> {
    let random = (0..3).map(|i| Perturbation::Random(Rng::new(seed.wrapping_mul(3) + i)));
    [Perturbation::None, Perturbation::Up, Perturbation::Down].into_iter().chain(random).collect()
}

/// One unit in the last place relative to a number, and the smallest distance of two numbers, in the type that a type
/// is computed in.
fn unit(dtype: DType) -> (f64, f64) {
    if dtype == DType::F64 { (2f64.powi(-52), f64::from_bits(1)) } else { (2f64.powi(-23), 2f64.powi(-149)) }
}

/// As [`unit`], for what is rounded to the type itself after every step.
fn own_unit(dtype: DType) -> (f64, f64) {
    let power = |k: i32| 2f64.powi(-k);
    let differs = |k: &i32| dtype.round(1.0 + power(*k)) == 1.0;
    let digits = (0..60).find(differs).unwrap_or(60) - 1;
    let least = (0..1080).find(|k| dtype.round(power(*k)) == 0.0).unwrap_or(1080) - 1;
    (power(digits), power(least))
}

fn largest(dtype: DType) -> f64 {
    if dtype == DType::F64 { f64::MAX } else { f64::from(f32::MAX) }
}

fn smallest_normal(dtype: DType) -> f64 {
    if dtype == DType::F64 { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) }
}

/// Is the result exactly determined by the operands?
pub fn is_exact(op: &Op, args: &[DType]) -> bool {
    match op {
        Op::Map { f } => f.types(args).is_ok_and(|types| {
            f.steps().iter().zip(&types).all(|(step, ty)| match step {
                Step::Call(c) => !(ty.is_float() && is_approximate(c.f)) && c.f != ScalarFn::Bitcast,
                Step::Arg(_) | Step::Lit(_) => true,
            })
        }),
        Op::If { .. } | Op::Loop { .. } | Op::Get { .. } => false,
        op => !(is_sum(op) && args.first().is_some_and(|d| d.is_float())),
    }
}

/// Functions that are approximated by polynomials.
pub fn is_approximate(f: ScalarFn) -> bool {
    use ScalarFn::*;
    matches!(
        f,
        Exp | Expm1
            | Log
            | Log1p
            | Sin
            | Cos
            | Tan
            | Asin
            | Acos
            | Atan
            | Sinh
            | Cosh
            | Tanh
            | Asinh
            | Acosh
            | Atanh
            | Erf
            | Pow
            | Atan2
    )
}

/// Ops that add or multiply elements.
fn is_sum(op: &Op) -> bool {
    match op {
        Op::Reduce { f, .. } | Op::Scan { f, .. } | Op::Window { f, .. } => matches!(f, ReduceFn::Sum | ReduceFn::Prod),
        Op::Scatter { f } => matches!(f, ScatterFn::Add | ScatterFn::Mul),
        Op::Contract { .. } | Op::Conv { .. } => true,
        _ => false,
    }
}

/// The op with a sum in place of a product; nothing if it is none.
fn product_as_sum(op: &Op) -> Option<Op> {
    let mut op = op.clone();
    match &mut op {
        Op::Reduce { f, .. } | Op::Scan { f, .. } | Op::Window { f, .. } if *f == ReduceFn::Prod => *f = ReduceFn::Sum,
        Op::Scatter { f } if *f == ScatterFn::Mul => *f = ScatterFn::Add,
        _ => return None,
    }
    Some(op)
}

impl Perturbation {
    /// From -1 to 1.
    fn amount(&mut self) -> f64 {
        match self {
            Perturbation::None => 0.0,
            Perturbation::Up => 1.0,
            Perturbation::Down => -1.0,
            Perturbation::Random(rng) => rng.between(-64, 64) as f64 / 64.0,
        }
    }

    /// Differs between samples, for results that are not determined.
    fn is_odd(&self) -> bool {
        matches!(self, Perturbation::Down)
    }

    /// Runs a function as the evaluator would.
    pub fn run(&mut self, func: &Func, args: &[Data], env: &mut Env) -> Result<Vec<Data>, String> {
        // A size may be named by one parameter and used in an expression by an earlier one.
        for (p, arg) in func.params().into_iter().zip(args) {
            let _ = unify(func.ty(p), arg, env);
        }
        let mut values: Vec<Data> = Vec::with_capacity(func.nodes().len());
        for (_, node) in func.values() {
            let data = match &node.op {
                Op::Param { index, .. } => args.get(*index as usize).cloned().ok_or("an argument is missing")?,
                op => {
                    let operands: Vec<&Data> = node.args.iter().map(|a| &values[a.0 as usize]).collect();
                    self.op(op, &operands, env)?
                }
            };
            unify(&node.ty, &data, env)?;
            values.push(data);
        }
        Ok(func.results().iter().map(|r| values[r.0 as usize].clone()).collect())
    }

    /// Run one op.
    pub fn op(&mut self, op: &Op, args: &[&Data], env: &mut Env) -> Result<Data, String> {
        match (op, args) {
            (Op::Map { f }, xs) => {
                eval_op(op, args, env)?;
                let xs = xs.iter().map(|x| x.as_tensor()).collect::<Result<Vec<_>, _>>()?;
                self.map(f, &xs).map(Data::Tensor)
            }
            (Op::If { then, or, types }, [cond, captures @ ..]) => {
                let branch = if truth(cond)? { then } else { or };
                let captures: Vec<Data> = captures.iter().map(|c| (*c).clone()).collect();
                let data = Data::Tuple(self.run(branch, &captures, &mut env.clone())?);
                unify(&Type::Tuple(types.clone()), &data, env)?;
                Ok(data)
            }
            (Op::Loop { states, body, types }, [trips, cond, values @ ..]) => {
                let trips =
                    trips.as_tensor()?.to_i64s().and_then(|n| n.first().copied()).ok_or("no number of rounds")?;
                if trips <= 0 || !truth(cond)? {
                    return eval_op(op, args, env);
                }
                let data = self.rounds(trips, values, *states as usize, body, env)?;
                unify(&Type::Tuple(types.clone()), &data, env)?;
                Ok(data)
            }
            (op, [Data::Tensor(x), ..]) if is_sum(op) && x.dtype().is_float() => self.sum(op, args, x.dtype(), env),
            _ => eval_op(op, args, env),
        }
    }

    fn rounds(&mut self, trips: i64, values: &[&Data], count: usize, body: &Func, env: &Env) -> Result<Data, String> {
        let mut states: Vec<Data> = values[..count].iter().map(|s| (*s).clone()).collect();
        let mut rows: Vec<Vec<Tensor>> = vec![];
        for round in 0..trips {
            let go = Tensor::from_elems(DType::Bool, vec![], &Elems::Int(vec![1]));
            let mut args = vec![Tensor::from_i64(&[], &[round]).into(), go.into()];
            args.append(&mut states);
            args.extend(values[count..].iter().map(|c| (*c).clone()));
            let mut results = self.run(body, &args, &mut env.clone())?;
            let new_rows = results.split_off(1 + count);
            rows.push(new_rows.iter().map(|r| r.as_tensor().cloned()).collect::<Result<_, _>>()?);
            states = results.split_off(1);
            if !truth(&results[0])? {
                break;
            }
        }
        for i in 0..rows[0].len() {
            let column: Vec<&Tensor> = rows.iter().map(|r| &r[i]).collect();
            states.push(stack(&column)?.into());
        }
        Ok(Data::Tuple(states))
    }

    fn map(&mut self, f: &Scalar, xs: &[&Tensor]) -> Result<Tensor, String> {
        let dtypes: Vec<DType> = xs.iter().map(|x| x.dtype()).collect();
        let types = f.types(&dtypes)?;
        let (shape, count) = (xs[0].shape().to_vec(), xs[0].len());
        let mut steps: Vec<Tensor> = vec![];
        for (step, &ty) in f.steps().iter().zip(&types) {
            let value = match step {
                Step::Arg(a) => xs[*a as usize].clone(),
                Step::Lit(l) if ty.is_float() => {
                    Tensor::from_elems(ty, shape.clone(), &Elems::Float(vec![l.as_f64(); count]))
                }
                Step::Lit(l) => Tensor::from_elems(ty, shape.clone(), &Elems::Int(vec![l.as_int(); count])),
                Step::Call(c) => {
                    let args: Vec<&Tensor> = c.args.iter().map(|&a| &steps[a as usize]).collect();
                    self.call(c, &args, ty)?
                }
            };
            steps.push(value);
        }
        steps.pop().ok_or_else(|| "an empty expression".into())
    }

    fn call(&mut self, c: &Call, args: &[&Tensor], to: DType) -> Result<Tensor, String> {
        if to.is_float() && is_approximate(c.f) {
            let (f, (unit, least)) = (c.f.float(), unit(to));
            let x = args[0].to_f64s();
            let y = args.get(1).map_or_else(|| vec![0.0; x.len()], |y| y.to_f64s());
            let moved = x.iter().zip(&y).map(|(&x, &y)| {
                let (exact, amount) = (f(x, y), 2.0 * self.amount());
                to.round(moved(exact, amount * (exact.abs() * unit + least)))
            });
            return Ok(Tensor::from_elems(to, args[0].shape().to_vec(), &Elems::Float(moved.collect())));
        }
        let mut steps: Vec<Step> = (0..args.len() as u32).map(Step::Arg).collect();
        steps.push(Step::Call(Call { args: (0..args.len() as u32).collect(), ..c.clone() }));
        let op = Op::Map { f: Scalar::new(&steps, args.len()) };
        let operands: Vec<Data> = args.iter().map(|&x| x.clone().into()).collect();
        let result = eval_op(&op, &operands.iter().collect::<Vec<_>>(), &mut Env::new())?;
        let result = result.as_tensor()?.clone();
        if c.f == ScalarFn::Bitcast && args[0].dtype().is_float() && self.is_odd() {
            return Ok(other_where_nan(&result, args[0]));
        }
        Ok(result)
    }

    fn sum(&mut self, op: &Op, args: &[&Data], dtype: DType, env: &mut Env) -> Result<Data, String> {
        let mut run = |op: &Op, change: &dyn Fn(f64) -> f64| -> Result<Vec<f64>, String> {
            let change = |x: &&Data| -> Result<Data, String> {
                let x = x.as_tensor()?;
                if !x.dtype().is_float() {
                    return Ok(x.clone().into());
                }
                let elems = Elems::Float(x.to_f64s().into_iter().map(change).collect());
                Ok(Tensor::from_elems(DType::F64, x.shape().to_vec(), &elems).into())
            };
            let args = args.iter().map(change).collect::<Result<Vec<_>, _>>()?;
            eval_op(op, &args.iter().collect::<Vec<_>>(), env)?.as_tensor().map(Tensor::to_f64s)
        };
        let exact = run(op, &|x| x)?;
        let as_sum = product_as_sum(op);
        let terms = run(as_sum.as_ref().unwrap_or(op), &|_| 1.0)?;
        let magnitude = run(op, &f64::abs)?;
        let (over, under) = if as_sum.is_some() {
            let factor = |x: f64| if x == 0.0 { 1.0 } else { x.abs() };
            (run(op, &|x| factor(x).max(1.0))?, run(op, &|x| factor(x).min(1.0))?)
        } else {
            (magnitude.clone(), vec![1.0; exact.len()])
        };
        // Padding may count as zeros or not at all, which differs where weights are not finite.
        let is_open = exact.iter().any(|x| x.is_nan()) && matches!(op, Op::Conv { .. }) && weights_are_special(args);
        if is_open && !matches!(self, Perturbation::None) {
            return Err("padding and weights that are not finite".into());
        }
        // Rows are combined in place, so that every update is rounded.
        let (unit, least) = if matches!(op, Op::Scatter { .. }) { own_unit(dtype) } else { unit(dtype) };
        let moved = (0..exact.len()).map(|i| {
            // Where parts may leave the range of the type, the order decides.
            let in_range = over[i] < largest(dtype) / 4.0 && under[i] > smallest_normal(dtype) * 4.0;
            if !in_range && over[i].is_finite() && self.is_odd() {
                return f64::NAN;
            }
            let bound = (terms[i] + 1.0) * (magnitude[i] * unit + least) / 2.0;
            moved(exact[i], self.amount() * bound)
        });
        let elems = Elems::Float(moved.map(|x| dtype.round(x)).collect());
        let shape = eval_op(op, args, env)?.as_tensor()?.shape().to_vec();
        Ok(Tensor::from_elems(dtype, shape, &elems).into())
    }
}

fn weights_are_special(args: &[&Data]) -> bool {
    args.last().is_some_and(|w| w.as_tensor().is_ok_and(|w| w.to_f64s().iter().any(|x| !x.is_finite())))
}

fn moved(x: f64, by: f64) -> f64 {
    if x.is_finite() && by != 0.0 { x + by } else { x }
}

/// Other bits where the float they came from is a NaN: its payload is not determined.
fn other_where_nan(bits: &Tensor, floats: &Tensor) -> Tensor {
    let nan: Vec<bool> = floats.to_f64s().into_iter().map(f64::is_nan).collect();
    let elems = match bits.elems() {
        Elems::Int(v) => {
            Elems::Int(v.iter().zip(nan).map(|(&x, nan)| if nan { bits.dtype().wrap(x ^ 1) } else { x }).collect())
        }
        Elems::Float(v) => {
            Elems::Float(v.iter().zip(nan).map(|(&x, nan)| if nan && !x.is_nan() { f64::NAN } else { x }).collect())
        }
        other @ Elems::Str(_) => other,
    };
    Tensor::from_elems(bits.dtype(), bits.shape().to_vec(), &elems)
}

fn truth(x: &Data) -> Result<bool, String> {
    x.as_tensor()?.bytes().first().map(|b| *b != 0).ok_or_else(|| "no bool".into())
}

fn stack(rows: &[&Tensor]) -> Result<Tensor, String> {
    if rows.iter().any(|r| r.shape() != rows[0].shape()) {
        return Err("rows of different shapes".into());
    }
    let shape = [&[rows.len()], rows[0].shape()].concat();
    let bytes: Vec<u8> = rows.iter().flat_map(|r| r.bytes().iter().copied()).collect();
    Tensor::new(rows[0].dtype(), shape, bytes.into())
}
