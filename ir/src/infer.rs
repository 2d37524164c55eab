//! Type rules of the core ops. A rule refuses what is provably wrong; what only run time can tell is checked there.
use crate::{
    DType, Dim, Func, Result, Scalar, Tensor, Type,
    dim::{Range, Sym},
    op::{ReduceFn, ScatterFn},
    refuse,
    types::{Elem, TensorType, join},
};
use std::sync::Arc;

pub(crate) fn param(_: &i64, ty: &Type) -> Result<Type> {
    checked(ty.clone())
}

pub(crate) fn constant(value: &Tensor) -> Result<Type> {
    let dims =
        value.shape().iter().map(|&d| i64::try_from(d).map(Dim::Const)).collect::<std::result::Result<Vec<_>, _>>();
    Ok(Type::tensor(value.dtype(), dims.map_err(|_| "a dimension of the constant is beyond i64")?))
}

pub(crate) fn iota(dtype: &DType, shape: &[Dim], axis: &i64) -> Result<Type> {
    if !dtype.is_int() && !dtype.is_float() {
        refuse!("iota of {dtype}");
    }
    in_axes(*axis, shape.len())?;
    checked(Type::tensor(*dtype, shape))
}

pub(crate) fn size(dim: &Dim) -> Result<Type> {
    if dim.is_too_large() {
        refuse!("the dimension expression is too large");
    }
    Ok(Type::scalar(DType::I64))
}

pub(crate) fn bind(x: &Type, _: &Sym) -> Result<Type> {
    if *x != Type::scalar(DType::I64) {
        refuse!("bind takes an i64 scalar, got {x}");
    }
    Ok(x.clone())
}

pub(crate) fn map(xs: &[&Type], f: &Scalar) -> Result<Type> {
    let xs = tensors(xs)?;
    let Some(first) = xs.first() else { refuse!("map needs an operand") };
    if let Some(other) = xs.iter().find(|x| x.shape != first.shape) {
        refuse!("map over different shapes: {first} and {other}");
    }
    let dtypes: Vec<DType> = xs.iter().map(|x| x.dtype).collect();
    let types = f.types(&dtypes)?;
    limited(Type::tensor(*types.last().ok_or("empty expression")?, first.shape.clone()))
}

pub(crate) fn reshape(x: &Type, shape: &[Dim]) -> Result<Type> {
    let x = x.as_tensor()?;
    let (from, to) = (Dim::product(&x.shape), Dim::product(shape));
    if from.equals(&to) == Some(false) {
        refuse!("cannot reshape {x} ({from} elements) to [{}] ({to} elements)", join(shape, ", "));
    }
    checked(Type::tensor(x.dtype, shape))
}

pub(crate) fn transpose(x: &Type, perm: &[i64]) -> Result<Type> {
    let x = x.as_tensor()?;
    let mut sorted = perm.to_vec();
    sorted.sort_unstable();
    if sorted.iter().copied().ne(0..x.rank() as i64) {
        refuse!("perm {perm:?} is not a permutation of the {} axes of {x}", x.rank());
    }
    Ok(Type::tensor(x.dtype, perm.iter().map(|&p| x.shape[p as usize].clone()).collect::<Vec<_>>()))
}

pub(crate) fn broadcast(x: &Type, shape: &[Dim], axes: &[i64]) -> Result<Type> {
    let x = x.as_tensor()?;
    if axes.len() != x.rank() || !axes.is_sorted_by(|a, b| a < b) {
        refuse!("broadcast axes {axes:?} must be one increasing number per axis of {x}");
    }
    for (&axis, d) in axes.iter().zip(&x.shape) {
        let to = &shape[in_axes(axis, shape.len())?];
        if d.equals(&Dim::ONE) == Some(false) && d.equals(to) == Some(false) {
            refuse!("cannot broadcast {x} to [{}]", join(shape, ", "));
        }
    }
    checked(Type::tensor(x.dtype, shape))
}

pub(crate) fn slice(x: &Type, starts: &[Dim], sizes: &[Dim], steps: &[i64]) -> Result<Type> {
    let x = x.as_tensor()?;
    if [starts.len(), sizes.len(), steps.len()] != [x.rank(); 3] {
        refuse!("slice of {x} needs {} starts, sizes and steps", x.rank());
    }
    within_reach("start", starts)?;
    steps_within_reach("step", steps)?;
    for (i, d) in x.shape.iter().enumerate() {
        if steps[i] == 0 {
            refuse!("slice with step 0");
        }
        if sizes[i].equals(&Dim::ZERO) != Some(false) {
            continue;
        }
        let last = &starts[i] + &(&(&sizes[i] - &Dim::ONE) * &Dim::Const(steps[i]));
        for at in [&starts[i], &last] {
            if Dim::ZERO.at_most(at) == Some(false) || d.at_most(at) == Some(true) {
                refuse!("slice of {x} leaves axis {i}: element {at} of {d}");
            }
        }
    }
    checked(Type::tensor(x.dtype, sizes))
}

pub(crate) fn pad(x: &Type, value: &Type, low: &[Dim], high: &[Dim]) -> Result<Type> {
    let x = x.as_tensor()?;
    if *value != Type::scalar(x.dtype) {
        refuse!("pad value for {x} must be a scalar {}, got {value}", x.dtype);
    }
    if [low.len(), high.len()] != [x.rank(); 2] {
        refuse!("pad of {x} needs {} amounts on each side", x.rank());
    }
    within_reach("pad", low.iter().chain(high))?;
    let padded: Vec<Dim> = x.shape.iter().zip(low.iter().zip(high)).map(|(d, (l, h))| &(d + l) + h).collect();
    checked(Type::tensor(x.dtype, padded))
}

pub(crate) fn concat(xs: &[&Type], axis: &i64) -> Result<Type> {
    let xs = tensors(xs)?;
    let Some((first, rest)) = xs.split_first() else { refuse!("concat needs an operand") };
    let axis = in_axes(*axis, first.rank())?;
    let mut shape = first.shape.clone();
    for x in rest {
        let fits = x.dtype == first.dtype && x.rank() == first.rank();
        if !fits || (0..x.rank()).any(|i| i != axis && x.shape[i].equals(&first.shape[i]) == Some(false)) {
            refuse!("cannot concatenate {first} and {x} along axis {axis}");
        }
        shape[axis] = &shape[axis] + &x.shape[axis];
        // Where only one of two equal sizes is known as a number, keep the number.
        for i in (0..x.rank()).filter(|&i| i != axis) {
            if x.shape[i].as_const().is_some() {
                shape[i] = x.shape[i].clone();
            }
        }
    }
    checked(Type::tensor(first.dtype, shape))
}

pub(crate) fn gather(x: &Type, indices: &Type, axis: &i64, batch: &i64) -> Result<Type> {
    let (x, indices) = (x.as_tensor()?, indices.as_tensor()?);
    let axis = in_axes(*axis, x.rank())?;
    let batch = usize::try_from(*batch).map_err(|_| "negative batch")?;
    if indices.dtype != DType::I64 {
        refuse!("gather indices must be i64, got {indices}");
    }
    if batch > axis || batch > indices.rank() {
        refuse!("gather along axis {axis} cannot share {batch} axes of {x} and {indices}");
    }
    if (0..batch).any(|i| x.shape[i].equals(&indices.shape[i]) == Some(false)) {
        refuse!("gather: the shared axes of {x} and {indices} differ");
    }
    let shape = [&x.shape[..axis], &indices.shape[batch..], &x.shape[axis + 1..]].concat();
    limited(Type::tensor(x.dtype, shape))
}

pub(crate) fn scatter(x: &Type, indices: &Type, updates: &Type, f: &ScatterFn) -> Result<Type> {
    let (x, indices, updates) = (x.as_tensor()?, indices.as_tensor()?, updates.as_tensor()?);
    if indices.dtype != DType::I64 || indices.rank() != 1 || x.rank() == 0 || x.rank() != updates.rank() {
        refuse!("scatter takes a tensor, an i64 vector and updates of the same rank, got {x}, {indices}, {updates}");
    }
    let fits = x.dtype == updates.dtype
        && indices.shape[0].equals(&updates.shape[0]) != Some(false)
        && (1..x.rank()).all(|i| x.shape[i].equals(&updates.shape[i]) != Some(false));
    if !fits {
        refuse!("scatter: updates {updates} at {indices} do not fit {x}");
    }
    if *f != ScatterFn::Set && !x.dtype.is_float() && !x.dtype.is_int() && x.dtype != DType::Bool {
        refuse!("scatter cannot combine {}", x.dtype);
    }
    Ok(Type::Tensor(x.clone()))
}

pub(crate) fn reduce(x: &Type, f: &ReduceFn, axes: &[i64]) -> Result<Type> {
    let x = x.as_tensor()?;
    reducible(x.dtype, *f)?;
    let drop = distinct_axes(axes, x.rank())?;
    Ok(Type::tensor(x.dtype, others(&x.shape, &drop)))
}

pub(crate) fn scan(x: &Type, f: &ReduceFn, axis: &i64, _: &bool, _: &bool) -> Result<Type> {
    let x = x.as_tensor()?;
    reducible(x.dtype, *f)?;
    in_axes(*axis, x.rank())?;
    Ok(Type::Tensor(x.clone()))
}

pub(crate) fn arg(x: &Type, f: &ReduceFn, axis: &i64, _: &bool) -> Result<Type> {
    let x = x.as_tensor()?;
    if !matches!(f, ReduceFn::Max | ReduceFn::Min) || x.dtype == DType::Str {
        refuse!("arg finds the max or min of numbers");
    }
    let mut shape = x.shape.clone();
    shape.remove(in_axes(*axis, x.rank())?);
    limited(Type::tensor(DType::I64, shape))
}

pub(crate) fn argsort(x: &Type, axis: &i64, _: &bool) -> Result<Type> {
    let x = x.as_tensor()?;
    in_axes(*axis, x.rank())?;
    limited(Type::tensor(DType::I64, x.shape.clone()))
}

pub(crate) fn compress(mask: &Type, count: &Sym) -> Result<Type> {
    let m = mask.as_tensor()?;
    if m.dtype != DType::Bool || m.rank() != 1 || count.starts_with('$') {
        refuse!("compress takes a bool vector and names a size, got {mask} and {count}");
    }
    Ok(Type::tensor(DType::I64, [Dim::sym(count.clone())]))
}

pub(crate) fn contract(
    a: &Type,
    b: &Type,
    a_batch: &[i64],
    b_batch: &[i64],
    a_sum: &[i64],
    b_sum: &[i64],
) -> Result<Type> {
    let (a, b) = (a.as_tensor()?, b.as_tensor()?);
    if a.dtype != b.dtype || !(a.dtype.is_float() || a.dtype.is_int()) {
        refuse!("cannot contract {a} with {b}");
    }
    let a_used = distinct_axes(&[a_batch, a_sum].concat(), a.rank())?;
    let b_used = distinct_axes(&[b_batch, b_sum].concat(), b.rank())?;
    if a_batch.len() != b_batch.len() || a_sum.len() != b_sum.len() {
        refuse!("contract pairs axes one to one");
    }
    for (&i, &j) in a_used.iter().zip(&b_used) {
        if a.shape[i].equals(&b.shape[j]) == Some(false) {
            refuse!("contract: axis {i} of {a} does not fit axis {j} of {b}");
        }
    }
    let batch: Vec<Dim> = a_batch.iter().map(|&i| a.shape[i as usize].clone()).collect();
    limited(Type::tensor(a.dtype, [batch, others(&a.shape, &a_used), others(&b.shape, &b_used)].concat()))
}

#[expect(clippy::too_many_arguments, reason = "the operands and attributes that the op declares")]
pub(crate) fn conv(
    x: &Type,
    w: &Type,
    strides: &[i64],
    dilations: &[i64],
    spread: &[i64],
    low: &[Dim],
    high: &[Dim],
    groups: &i64,
    in_block: &i64,
    out_block: &i64,
) -> Result<Type> {
    let (x, w) = (x.as_tensor()?, w.as_tensor()?);
    if *groups < 1 || *in_block < 1 || *out_block < 1 {
        refuse!("conv groups and blocks are positive");
    }
    let blocked = usize::from(*in_block > 1);
    let kind = x.dtype.is_float() || x.dtype.is_int();
    if x.dtype != w.dtype || !kind || w.rank() < 2 || x.rank() != w.rank() + blocked {
        refuse!("cannot convolve {x} with {w}");
    }
    let space = w.rank() - 2;
    if [strides.len(), dilations.len(), spread.len(), low.len(), high.len()] != [space; 5] {
        refuse!("conv of {x} needs one stride, dilation, spread and pads per spatial axis");
    }
    if [strides, dilations, spread].iter().any(|v| v.iter().any(|&s| s < 1)) {
        refuse!("conv strides, dilations and spreads are positive");
    }
    within_reach("pad", low.iter().chain(high))?;
    steps_within_reach("stride", strides)?;
    steps_within_reach("dilation", dilations)?;
    steps_within_reach("spread", spread)?;
    steps_within_reach("number of groups or channels per block", &[*groups, *in_block, *out_block])?;
    if blocked == 1 && x.shape[x.rank() - 1] != Dim::Const(*in_block) {
        refuse!("conv: the last axis of {x} is no block of {in_block} channels");
    }
    let channels = &x.shape[1] * &Dim::Const(*in_block);
    let needed = &w.shape[1] * &Dim::Const(*groups);
    if channels.equals(&needed) == Some(false) {
        refuse!("conv: {x} has {channels} channels, {w} in {groups} groups needs {needed}");
    }
    if w.shape[0].as_const().is_some_and(|c| c % groups != 0) {
        refuse!("conv: {} output channels do not divide into {groups} groups", w.shape[0]);
    }
    let outputs = match w.shape[0].as_const() {
        _ if *out_block == 1 => w.shape[0].clone(),
        Some(c) if c % out_block == 0 => Dim::Const(c / out_block),
        _ => refuse!("conv: {} output channels do not divide into blocks of {out_block}", w.shape[0]),
    };
    let mut shape = vec![x.shape[0].clone(), outputs];
    for i in 0..space {
        // n elements with s - 1 zeros between them are (n - 1) * s + 1 long (nothing if n is 0).
        let n = &x.shape[2 + i];
        let spread_size =
            if spread[i] == 1 { n.clone() } else { &(&(n - &Dim::ONE) * &Dim::Const(spread[i])) + &Dim::ONE };
        shape.push(window_count(&spread_size, &w.shape[2 + i], strides[i], dilations[i], &low[i], &high[i]));
    }
    if *out_block > 1 {
        shape.push(Dim::Const(*out_block));
    }
    checked(Type::tensor(x.dtype, shape))
}

pub(crate) fn window(
    x: &Type,
    f: &ReduceFn,
    size: &[i64],
    strides: &[i64],
    dilations: &[i64],
    low: &[Dim],
    high: &[Dim],
) -> Result<Type> {
    let x = x.as_tensor()?;
    reducible(x.dtype, *f)?;
    let n = size.len();
    if n > x.rank() || [strides.len(), dilations.len(), low.len(), high.len()] != [n; 4] {
        refuse!("window over {n} axes of {x} needs as many strides, dilations and pads");
    }
    if [size, strides, dilations].iter().any(|v| v.iter().any(|&s| s < 1)) {
        refuse!("window sizes, strides and dilations are positive");
    }
    within_reach("pad", low.iter().chain(high))?;
    let taps = size.iter().try_fold(1, |n: i64, &s| n.checked_mul(s));
    if taps.is_none_or(|n| n > MAX_BYTES) {
        refuse!("a window of size {size:?} has more than 2^47 elements");
    }
    steps_within_reach("stride", strides)?;
    steps_within_reach("dilation", dilations)?;
    let lead = x.rank() - n;
    let mut shape = x.shape[..lead].to_vec();
    for i in 0..n {
        shape.push(window_count(&x.shape[lead + i], &Dim::Const(size[i]), strides[i], dilations[i], &low[i], &high[i]));
    }
    checked(Type::tensor(x.dtype, shape))
}

/// `floor((n + low + high - ((k - 1) * dilation + 1)) / stride) + 1`
fn window_count(n: &Dim, k: &Dim, stride: i64, dilation: i64, low: &Dim, high: &Dim) -> Dim {
    let reach = &(k - &Dim::ONE) * &Dim::Const(dilation);
    let room = &(&(&(n + low) + high) - &reach) - &Dim::ONE;
    &room.floor_div(&Dim::Const(stride)) + &Dim::ONE
}

pub(crate) fn if_(cond: &Type, captures: &[&Type], then: &Arc<Func>, or: &Arc<Func>, types: &[Type]) -> Result<Type> {
    if *cond != Type::scalar(DType::Bool) {
        refuse!("the condition of `if` is a bool scalar, got {cond}");
    }
    for branch in [then, or] {
        accepts(branch, captures)?;
        gives(branch, 0, types)?;
        if branch.results().len() != types.len() {
            refuse!("a branch gives {} results, not {}", branch.results().len(), types.len());
        }
    }
    checked(Type::Tuple(types.to_vec()))
}

pub(crate) fn loop_(
    trips: &Type,
    cond: &Type,
    values: &[&Type],
    states: &i64,
    body: &Arc<Func>,
    types: &[Type],
) -> Result<Type> {
    let (count, keep) = (Type::scalar(DType::I64), Type::scalar(DType::Bool));
    if *trips != count || *cond != keep {
        refuse!("`loop` starts with an i64 and a bool scalar, got {trips} and {cond}");
    }
    let states = usize::try_from(*states).map_err(|_| "negative number of states")?;
    if states > values.len() || states > types.len() {
        refuse!("`loop` has {} values, not {states} states", values.len());
    }
    accepts(body, &[&[&count, &keep], values].concat())?;
    gives(body, 0, &[keep])?;
    gives(body, 1, &types[..states])?;
    for (i, t) in types[states..].iter().enumerate() {
        let t = t.as_tensor()?;
        if t.rank() == 0 {
            refuse!("the rows of a loop are stacked, so {t} cannot be their type");
        }
        gives(body, 1 + states + i, &[Type::tensor(t.dtype, t.shape[1..].to_vec())])?;
    }
    if body.results().len() != 1 + types.len() {
        refuse!("the loop body gives {} results, not {}", body.results().len(), 1 + types.len());
    }
    checked(Type::Tuple(types.to_vec()))
}

/// Can the parameters of `f` hold values of these types, up to dimensions that differ?
fn accepts(f: &Func, args: &[&Type]) -> Result<()> {
    let params = f.params();
    if params.len() != args.len() {
        refuse!("the nested function takes {} values, got {}", params.len(), args.len());
    }
    for (param, arg) in params.iter().zip(args) {
        if !may_hold(f.ty(*param), arg) {
            refuse!("a nested parameter of type {} cannot hold {arg}", f.ty(*param));
        }
    }
    Ok(())
}

/// Do the results of `f` from number `first` on fit these types, up to dimensions that differ?
fn gives(f: &Func, first: usize, types: &[Type]) -> Result<()> {
    let Some(results) = f.results().get(first..first + types.len()) else {
        refuse!("the nested function has too few results");
    };
    for (r, ty) in results.iter().zip(types) {
        if !may_hold(ty, f.ty(*r)) {
            refuse!("a nested result of type {} does not fit {ty}", f.ty(*r));
        }
    }
    Ok(())
}

/// Same kind, element type and rank, and no dimension provably different.
pub(crate) fn may_hold(to: &Type, from: &Type) -> bool {
    match (to, from) {
        (Type::Tensor(a), Type::Tensor(b)) => {
            a.dtype == b.dtype
                && a.rank() == b.rank()
                && a.shape.iter().zip(&b.shape).all(|(x, y)| {
                    // Two symbols may stand for the same number, two numbers may not.
                    x.as_const().is_none() || y.as_const().is_none() || x == y
                })
        }
        (Type::Seq(a), Type::Seq(b)) => a.join(b).is_ok(),
        (Type::Tuple(a), Type::Tuple(b)) => a.len() == b.len() && a.iter().zip(b).all(|(x, y)| may_hold(x, y)),
        _ => false,
    }
}

pub(crate) fn get(tuple: &Type, index: &i64) -> Result<Type> {
    match tuple {
        Type::Tuple(ts) => match usize::try_from(*index).ok().and_then(|i| ts.get(i)) {
            Some(t) => Ok(t.clone()),
            None => refuse!("{tuple} has no element {index}"),
        },
        _ => refuse!("`get` takes a tuple, got {tuple}"),
    }
}

pub(crate) fn seq_make(xs: &[&Type], elem: &Elem) -> Result<Type> {
    for x in xs {
        fits(elem, x)?;
    }
    checked(Type::Seq(Box::new(elem.clone())))
}

pub(crate) fn seq_len(seq: &Type) -> Result<Type> {
    seq.as_seq()?;
    Ok(Type::scalar(DType::I64))
}

pub(crate) fn seq_at(seq: &Type, index: &Type, ty: &Type) -> Result<Type> {
    is_index(index)?;
    let (elem, want) = (seq.as_seq()?, Elem::of(ty)?);
    if elem.join(&want).is_err() {
        refuse!("elements of {seq} are not {ty}");
    }
    checked(ty.clone())
}

pub(crate) fn seq_insert(seq: &Type, index: &Type, x: &Type, elem: &Elem) -> Result<Type> {
    is_index(index)?;
    fits(elem, x)?;
    // What is there may be known less well (an empty sequence fits every type); run time checks it.
    if elem.join(seq.as_seq()?).is_err() {
        refuse!("a sequence of {elem} cannot hold {seq}");
    }
    Ok(Type::Seq(Box::new(elem.clone())))
}

pub(crate) fn seq_erase(seq: &Type, index: &Type) -> Result<Type> {
    is_index(index)?;
    seq.as_seq()?;
    Ok(seq.clone())
}

fn is_index(index: &Type) -> Result<()> {
    if *index != Type::scalar(DType::I64) {
        refuse!("an index is an i64 scalar, got {index}");
    }
    Ok(())
}

fn fits(elem: &Elem, x: &Type) -> Result<()> {
    if !elem.admits(&Elem::of(x)?) {
        refuse!("a sequence of {elem} cannot hold {x}");
    }
    Ok(())
}

fn tensors<'t>(xs: &[&'t Type]) -> Result<Vec<&'t TensorType>> {
    xs.iter().map(|x| x.as_tensor()).collect()
}

fn in_axes(axis: i64, rank: usize) -> Result<usize> {
    match usize::try_from(axis) {
        Ok(a) if a < rank => Ok(a),
        _ => refuse!("axis {axis} does not exist in rank {rank}"),
    }
}

fn distinct_axes(axes: &[i64], rank: usize) -> Result<Vec<usize>> {
    let list = axes.iter().map(|&a| in_axes(a, rank)).collect::<Result<Vec<_>>>()?;
    let mut seen = vec![false; rank];
    if list.iter().any(|&a| std::mem::replace(&mut seen[a], true)) {
        refuse!("axes {axes:?} repeat");
    }
    Ok(list)
}

/// The dimensions that are not among `axes`.
fn others(shape: &[Dim], axes: &[usize]) -> Vec<Dim> {
    let mut keep = vec![true; shape.len()];
    axes.iter().for_each(|&a| keep[a] = false);
    shape.iter().zip(keep).filter(|(_, keep)| *keep).map(|(d, _)| d.clone()).collect()
}

fn reducible(dtype: DType, f: ReduceFn) -> Result<()> {
    let bools = dtype == DType::Bool && matches!(f, ReduceFn::Max | ReduceFn::Min);
    if !(dtype.is_float() || dtype.is_int() || bools) {
        refuse!("cannot combine {dtype} by {f:?}");
    }
    Ok(())
}

/// A tensor holds no more than this: what processors of today address. Element counts, offsets and sums of a few of them are then far from the limits of
/// 64 bits, wherever they are computed.
pub(crate) const MAX_BYTES: i64 = 1 << 47;

/// No dimension may be provably negative, or an expression beyond the limits, and no tensor larger than [`MAX_BYTES`].
fn checked(ty: Type) -> Result<Type> {
    let mut bad = None;
    let mut too_large = false;
    ty.for_each_dim(&mut |d| {
        too_large |= d.is_too_large();
        if d.as_const().is_some_and(|c| c < 0) || d.at_most(&Dim::Const(-1)) == Some(true) {
            bad = Some(d.clone());
        }
    });
    if too_large {
        refuse!("a dimension expression is too large");
    }
    match bad {
        Some(d) => refuse!("{ty} has the negative dimension {d}"),
        None => limited(ty),
    }
}

/// No tensor may be provably larger than [`MAX_BYTES`]. Axes of size 0 do not count: others of an empty tensor are not without bounds either.
fn limited(ty: Type) -> Result<Type> {
    if fits_in_memory(&ty) { Ok(ty) } else { refuse!("{ty} is larger than 2^47 bytes") }
}

fn fits_in_memory(ty: &Type) -> bool {
    fn fits<'d>(dtype: DType, dims: impl Iterator<Item = &'d Dim>) -> bool {
        let least = |d: &Dim| match d {
            Dim::Const(c) => *c,
            d @ Dim::Sum(_) => d.range(&Range::of_sym).low,
        };
        let element = if dtype == DType::Str { 8 } else { dtype.size() as i64 };
        dims.map(least)
            .try_fold(element, |bytes, n| bytes.checked_mul(n.max(1)))
            .is_some_and(|bytes| bytes <= MAX_BYTES)
    }
    fn element_fits(elem: &Elem) -> bool {
        match elem {
            Elem::Tensor { dtype, shape } => fits(*dtype, shape.iter().flatten().flatten()),
            Elem::Seq(inner) => element_fits(inner),
        }
    }
    match ty {
        Type::Tensor(t) => fits(t.dtype, t.shape.iter()),
        Type::Seq(elem) => element_fits(elem),
        Type::Tuple(types) => types.iter().all(fits_in_memory),
    }
}

/// Numbers that say where elements are, such as starts and pads, are no larger than sizes can be, so that places computed from them do not wrap around.
fn within_reach<'d>(what: &str, dims: impl IntoIterator<Item = &'d Dim>) -> Result<()> {
    for d in dims {
        let range = d.range(&Range::of_sym);
        if d.is_too_large() || range.low > MAX_BYTES || range.high < -MAX_BYTES {
            refuse!("the {what} {d} is beyond 2^47");
        }
    }
    Ok(())
}

/// The same for what steps from element to element.
fn steps_within_reach(what: &str, steps: &[i64]) -> Result<()> {
    match steps.iter().find(|s| s.unsigned_abs() > MAX_BYTES.unsigned_abs()) {
        Some(s) => refuse!("the {what} {s} is beyond 2^47"),
        None => Ok(()),
    }
}
