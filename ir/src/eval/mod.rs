//! The reference evaluator: what every op means, computed plainly. Integers are exact, floats and sums are `f64`, and
//! every result is rounded once to its element type. It judges all tests and folds constants.
mod combine;
mod control;
mod elementwise;
mod linear;
mod movement;
mod unify;
mod window;

use crate::{DType, Dim, Elems, Error, Func, Op, Result, Tensor, Type, Value, dim::Sym, tensor};
use std::{
    cell::RefCell,
    collections::HashMap,
    ops,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

pub use unify::unify;

/// What a value is at run time.
#[derive(Clone, PartialEq, Debug)]
pub enum Data {
    Tensor(Tensor),
    Seq(Vec<Data>),
    Tuple(Vec<Data>),
}

/// The values of the symbols, and what may end the evaluation early.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Env {
    values: HashMap<Sym, i64>,
    stop: Stop,
}

/// A flag that another thread may set; most evaluations have none.
#[derive(Clone, Debug, Default)]
struct Stop(Option<Arc<AtomicBool>>);

/// It says nothing about values.
impl PartialEq for Stop {
    fn eq(&self, _: &Stop) -> bool {
        true
    }
}

impl Eq for Stop {}

impl Env {
    pub fn new() -> Env {
        Env::default()
    }

    fn go_on(&self) -> Result<(), String> {
        match &self.stop.0 {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(STOPPED.into()),
            _ => Ok(()),
        }
    }
}

impl ops::Deref for Env {
    type Target = HashMap<Sym, i64>;
    fn deref(&self) -> &HashMap<Sym, i64> {
        &self.values
    }
}

impl ops::DerefMut for Env {
    fn deref_mut(&mut self) -> &mut HashMap<Sym, i64> {
        &mut self.values
    }
}

/// The message of an evaluation that was ended from outside.
const STOPPED: &str = "the run was stopped";

/// Larger results are refused instead of exhausting the memory.
const MAX_BYTES: usize = 1 << 33;

impl Data {
    pub fn as_tensor(&self) -> Result<&Tensor, String> {
        match self {
            Data::Tensor(t) => Ok(t),
            Data::Seq(_) | Data::Tuple(_) => Err(format!("expected a tensor, got {}", unify::describe(self))),
        }
    }

    pub fn as_seq(&self) -> Result<&[Data], String> {
        match self {
            Data::Seq(s) => Ok(s),
            Data::Tensor(_) | Data::Tuple(_) => Err(format!("expected a sequence, got {}", unify::describe(self))),
        }
    }
}

impl From<Tensor> for Data {
    fn from(t: Tensor) -> Data {
        Data::Tensor(t)
    }
}

/// Run a function on arguments, one per parameter.
pub fn eval(func: &Func, args: &[Data]) -> Result<Vec<Data>> {
    Program::new(func).run(args, &mut Env::new())
}

/// As [`eval`], until somebody sets the flag: that is noticed between two nodes.
pub fn eval_until(func: &Func, args: &[Data], stop: &Arc<AtomicBool>) -> Result<Vec<Data>> {
    let mut env = Env { stop: Stop(Some(Arc::clone(stop))), ..Env::default() };
    Program::new(func).run(args, &mut env)
}

/// Run one op. Dimensions in its attributes get their values from `env`, which gains the symbols the op defines.
pub fn eval_op(op: &Op, args: &[&Data], env: &mut Env) -> Result<Data, String> {
    let data = match (op, args) {
        (Op::Param { .. }, _) => return Err("a parameter has no value of its own".into()),
        (Op::Const { value }, []) => return Ok(value.clone().into()),
        (Op::Size { dim }, []) => return Ok(Tensor::from_i64(&[], &[dim_value(dim, env)?]).into()),
        (Op::Bind { dim }, [x]) => {
            bind(dim, scalar_i64(x)?, env)?;
            return Ok((*x).clone());
        }
        (Op::Compress { count }, [mask]) => {
            let found = combine::compress(mask.as_tensor()?)?;
            bind(count, found.len() as i64, env)?;
            return Ok(found.into());
        }
        (Op::If { then, or, .. }, [cond, captures @ ..]) => control::if_(cond, captures, then, or, env)?,
        (Op::Loop { states, body, types }, [trips, cond, values @ ..]) => {
            control::loop_(trips, cond, values, *states, body, types, env)?
        }
        (Op::Get { index }, [tuple]) => control::get(tuple, *index)?,
        (Op::SeqMake { .. }, xs) => Data::Seq(xs.iter().map(|x| (*x).clone()).collect()),
        (Op::SeqLen {}, [seq]) => Tensor::from_i64(&[], &[seq.as_seq()?.len() as i64]).into(),
        (Op::SeqAt { .. }, [seq, index]) => control::seq_at(seq, index)?,
        (Op::SeqInsert { .. }, [seq, index, x]) => control::seq_insert(seq, index, x)?,
        (Op::SeqErase { .. }, [seq, index]) => control::seq_erase(seq, index)?,
        _ => return tensor_op(op, args, env).map(Data::Tensor),
    };
    match op {
        Op::If { types, .. } | Op::Loop { types, .. } => unify(&Type::Tuple(types.clone()), &data, env)?,
        Op::SeqAt { ty, .. } => unify(ty, &data, env)?,
        _ => {}
    }
    Ok(data)
}

/// Ops from tensors to a tensor. With numbers for all dimensions, the type rule is a complete check of the operands
/// and gives the shape of the result.
fn tensor_op(op: &Op, args: &[&Data], env: &Env) -> Result<Tensor, String> {
    let failed = RefCell::new(None);
    let op = op.map_dims(&|d| match dim_value(d, env) {
        Ok(n) => Dim::Const(n),
        Err(e) => {
            failed.borrow_mut().get_or_insert(e);
            Dim::ZERO
        }
    });
    if let Some(e) = failed.into_inner() {
        return Err(e);
    }
    let xs = args.iter().map(|x| x.as_tensor()).collect::<Result<Vec<_>, _>>()?;
    let types = xs.iter().map(|x| type_of(x)).collect::<Result<Vec<_>, _>>()?;
    let ty = op.infer(&types.iter().collect::<Vec<_>>()).map_err(|e| e.to_string())?;
    let ty = ty.as_tensor().map_err(|e| e.to_string())?;
    let out = ty.static_shape().ok_or_else(|| format!("{ty} has a dimension beyond i64"))?;
    check_size(&out, ty.dtype.size().max(1))?;
    tensor::room_for(bytes_for(&op, &xs, ty.dtype, &out))?;
    match (&op, &xs[..]) {
        (Op::Iota { axis, .. }, []) => movement::iota(ty.dtype, out, *axis as usize),
        (Op::Map { f }, xs) => elementwise::map(f, xs, out),
        (Op::Reshape { .. }, [x]) => x.reshaped(out),
        (Op::Transpose { perm }, [x]) => movement::transpose(x, perm, out),
        (Op::Broadcast { axes, .. }, [x]) => movement::broadcast(x, axes, out),
        (Op::Slice { starts, steps, .. }, [x]) => movement::slice(x, &numbers(starts), steps, out),
        (Op::Pad { low, high }, [x, value]) => movement::pad(x, value, &numbers(low), &numbers(high), out),
        (Op::Concat { axis }, xs) => movement::concat(xs, *axis as usize, out),
        (Op::Gather { axis, batch }, [x, idx]) => movement::gather(x, idx, *axis as usize, *batch as usize, out),
        (Op::Scatter { f }, [x, indices, updates]) => combine::scatter(x, indices, updates, *f),
        (Op::Reduce { f, axes }, [x]) => combine::reduce(x, *f, axes, out),
        (Op::Scan { f, axis, exclusive, reverse }, [x]) => combine::scan(x, *f, *axis as usize, *exclusive, *reverse),
        (Op::Arg { f, axis, last }, [x]) => combine::arg(x, *f, *axis as usize, *last, out),
        (Op::ArgSort { axis, descending }, [x]) => combine::argsort(x, *axis as usize, *descending),
        (Op::Contract { a_batch, b_batch, a_sum, b_sum }, [a, b]) => {
            linear::contract(a, b, [a_batch, a_sum], [b_batch, b_sum], out)
        }
        (Op::Conv { strides, dilations, spread, low, groups, in_block, out_block, .. }, [x, w]) => {
            let params = [strides, dilations, spread, &numbers(low)];
            window::conv(x, w, params, *groups as usize, [*in_block, *out_block].map(|b| b as usize), out)
        }
        (Op::Window { f, size, strides, dilations, low, .. }, [x]) => {
            window::window(x, *f, size, [strides, dilations, &vec![1; size.len()], &numbers(low)], out)
        }
        (
            Op::Param { .. }
            | Op::Const { .. }
            | Op::Iota { .. }
            | Op::Size { .. }
            | Op::Bind { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Broadcast { .. }
            | Op::Slice { .. }
            | Op::Pad { .. }
            | Op::Gather { .. }
            | Op::Scatter { .. }
            | Op::Reduce { .. }
            | Op::Scan { .. }
            | Op::Arg { .. }
            | Op::ArgSort { .. }
            | Op::Compress { .. }
            | Op::Contract { .. }
            | Op::Conv { .. }
            | Op::Window { .. }
            | Op::If { .. }
            | Op::Loop { .. }
            | Op::Get { .. }
            | Op::SeqMake { .. }
            | Op::SeqLen {}
            | Op::SeqAt { .. }
            | Op::SeqInsert { .. }
            | Op::SeqErase {},
            _,
        ) => Err(format!("`{op}` does not take {} operands", xs.len())),
    }
}

/// What an op takes of memory until its result is there: the result, and where it computes, all operands and the result as wide numbers.
fn bytes_for(op: &Op, xs: &[&Tensor], dtype: DType, out: &[usize]) -> usize {
    let total = |shape: &[usize], each: usize| tensor::count(shape).unwrap_or(usize::MAX).saturating_mul(each);
    let stored = |d: DType| if d == DType::Str { size_of::<String>() } else { d.size() };
    let wide = |d: DType| if d.is_float() { 8 } else { 16 };
    let result = total(out, stored(dtype));
    match op {
        Op::Reshape { .. } => 0,
        Op::Map { .. } | Op::Iota { .. } | Op::Broadcast { .. } | Op::Transpose { .. } => result,
        Op::Slice { .. } | Op::Pad { .. } | Op::Concat { .. } => result,
        Op::Gather { .. } => result.saturating_add(total(xs[1].shape(), 24)),
        _ => {
            let pairs = if matches!(op, Op::Contract { .. } | Op::Conv { .. }) { 8 } else { 0 };
            let operands = xs.iter().map(|x| total(x.shape(), wide(x.dtype()) + pairs + stored(x.dtype())));
            operands.fold(result.saturating_add(total(out, wide(dtype) + pairs)), usize::saturating_add)
        }
    }
}

fn numbers(dims: &[Dim]) -> Vec<i64> {
    dims.iter().map(|d| d.as_const().expect("every dimension is a number here")).collect()
}

fn type_of(t: &Tensor) -> Result<Type, String> {
    let dims = t.shape().iter().map(|&n| i64::try_from(n).map(Dim::Const));
    let dims =
        dims.collect::<Result<Vec<_>, _>>().map_err(|_| format!("a dimension of {:?} is too large", t.shape()))?;
    Ok(Type::tensor(t.dtype(), dims))
}

/// The number of elements, if that many of `bytes` each may be allocated.
fn check_size(shape: &[usize], bytes: usize) -> Result<usize, String> {
    let fits = |n: &usize| n.checked_mul(bytes).is_some_and(|total| total <= MAX_BYTES);
    tensor::count(shape).filter(fits).ok_or_else(|| format!("a result of shape {shape:?} is too large"))
}

/// Decode for arithmetic, refusing what would not fit in memory.
fn decode(x: &Tensor) -> Result<Elems, String> {
    check_size(x.shape(), if x.dtype().is_float() { 8 } else { 16 })?;
    Ok(x.elems())
}

fn dim_value(d: &Dim, env: &Env) -> Result<i64, String> {
    d.eval(&|s| env.get(s).copied()).ok_or_else(|| {
        let mut missing = None;
        d.for_each_sym(&mut |s| {
            if !env.contains_key(s) {
                missing.get_or_insert(s);
            }
        });
        match missing {
            Some(s) => format!("`{d}` has no value: nothing has defined `{s}`"),
            None => format!("`{d}` has no value: it divides by zero or overflows"),
        }
    })
}

fn bind(sym: &Sym, value: i64, env: &mut Env) -> Result<(), String> {
    if value < 0 && !sym.starts_with('$') {
        return Err(format!("`{sym}` is a size, {value} is not"));
    }
    match env.insert(sym.clone(), value) {
        Some(old) if old != value => Err(format!("`{sym}` is {old} already, not {value}")),
        _ => Ok(()),
    }
}

fn scalar_i64(x: &Data) -> Result<i64, String> {
    let t = x.as_tensor()?;
    match t.to_i64s().as_deref() {
        Some([n]) if t.dtype() == DType::I64 => Ok(*n),
        _ => Err(format!("expected an i64 scalar, got {}", unify::describe(x))),
    }
}

/// A function with the node after which each value is not needed any more.
struct Program<'f> {
    func: &'f Func,
    last_use: Vec<usize>,
}

impl<'f> Program<'f> {
    fn new(func: &'f Func) -> Program<'f> {
        let mut last_use: Vec<usize> = (0..func.nodes().len()).collect();
        for (v, node) in func.values() {
            node.args.iter().for_each(|a| last_use[a.0 as usize] = v.0 as usize);
        }
        func.results().iter().for_each(|r| last_use[r.0 as usize] = usize::MAX);
        Program { func, last_use }
    }

    fn run(&self, args: &[Data], env: &mut Env) -> Result<Vec<Data>> {
        let params = self.func.params();
        if params.len() != args.len() {
            return Err(Error::Type(format!("the function takes {} arguments, got {}", params.len(), args.len())));
        }
        // A size may be named by one parameter and used in an expression by an earlier one.
        for (p, arg) in params.iter().zip(args) {
            unify::bind_plain(self.func.ty(*p), arg, env);
        }
        let mut values: Vec<Option<Data>> = vec![None; self.func.nodes().len()];
        for (v, node) in self.func.values() {
            let at = v.0 as usize;
            let fail = |message| Error::Eval { value: v, op: node.op.name(), message };
            let data = match &node.op {
                Op::Param { index, ty } => {
                    let arg = usize::try_from(*index).ok().and_then(|i| args.get(i));
                    let arg = arg.ok_or_else(|| fail(format!("there is no argument {index}")))?;
                    unify(ty, arg, env).map_err(|e| fail(self.param_error(at, &e)))?;
                    arg.clone()
                }
                op => {
                    env.go_on().map_err(fail)?;
                    let operands: Vec<&Data> = node.args.iter().filter_map(|a| values[a.0 as usize].as_ref()).collect();
                    let data = eval_op(op, &operands, env).map_err(fail)?;
                    unify(&node.ty, &data, env).map_err(fail)?;
                    data
                }
            };
            values[at] = Some(data);
            for used in node.args.iter().chain([&v]) {
                if self.last_use[used.0 as usize] <= at {
                    values[used.0 as usize] = None;
                }
            }
        }
        let value = |r: &Value| values[r.0 as usize].clone().expect("results are kept");
        Ok(self.func.results().iter().map(value).collect())
    }

    fn param_error(&self, at: usize, message: &str) -> String {
        let name = self.func.param_names.get(at).map_or(String::new(), |n| format!(" `{n}`"));
        format!("parameter {at}{name}: {message}")
    }
}
