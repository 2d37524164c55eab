//! Value ranges of integer tensors, from types, constants and clamps: indices that are proven to fit are not checked,
//! and factors that fit narrower types are narrowed.
use crate::{float_ranges, ops::is_view};
use numrsc_ir::{DType, Func, Op, Scalar, ScalarFn, Value, scalar::Step};

/// The smallest and the largest possible value.
pub type Bounds = (i64, i64);

/// The analysis visits at most this many nodes.
const MAX_DEPTH: usize = 8;
/// Larger constants are not scanned.
const MAX_ELEMENTS: usize = 1 << 16;

/// Are all elements valid indices into an axis of this size?
pub fn fits_axis(func: &Func, indices: Value, size: i64) -> bool {
    bounds(func, indices, MAX_DEPTH).is_some_and(|(low, high)| low >= 0 && high < size)
}

/// Do all elements of a tensor fit an integer type?
pub fn fits(func: &Func, v: Value, dtype: DType) -> bool {
    bounds(func, v, MAX_DEPTH).is_some_and(|b| contains(dtype, b))
}

/// The range of a scalar function of elements of these tensors.
pub fn limits(func: &Func, f: &Scalar, args: &[Value]) -> Option<Bounds> {
    bounds_of_map(func, f, args, MAX_DEPTH)
}

fn contains(dtype: DType, (low, high): Bounds) -> bool {
    let range = dtype.int_range();
    range.0 <= i128::from(low) && i128::from(high) <= range.1
}

/// The range of a type.
fn of_type(dtype: DType) -> Option<Bounds> {
    let (low, high) = dtype.is_int().then(|| dtype.int_range())?;
    i64::try_from(low).ok().zip(i64::try_from(high).ok())
}

fn dtype_of(func: &Func, v: Value) -> Option<DType> {
    func.ty(v).as_tensor().ok().map(|t| t.dtype)
}

#[allow(clippy::wildcard_enum_match_arm, reason = "nothing is known of the results of other ops")]
fn bounds(func: &Func, v: Value, depth: usize) -> Option<Bounds> {
    let node = func.node(v);
    let any = dtype_of(func, v).and_then(of_type);
    let Some(depth) = depth.checked_sub(1) else { return any };
    let found = match &node.op {
        Op::Const { value } if value.len() <= MAX_ELEMENTS => {
            let all = value.to_i64s()?;
            Some((*all.iter().min()?, *all.iter().max()?))
        }
        Op::Map { f } => bounds_of_map(func, f, &node.args, depth),
        // An element of the operand, whichever it is.
        Op::Gather { .. } => bounds(func, node.args[0], depth),
        op if is_view(op) => bounds(func, node.args[0], depth),
        _ => None,
    };
    found.or(any)
}

#[allow(clippy::wildcard_enum_match_arm, reason = "nothing is known of the results of other functions")]
fn bounds_of_map(func: &Func, f: &Scalar, args: &[Value], depth: usize) -> Option<Bounds> {
    let dtypes: Vec<DType> = args.iter().map(|&a| dtype_of(func, a)).collect::<Option<_>>()?;
    let types = f.types(&dtypes).ok()?;
    let floats = float_ranges::ranges(f, &types);
    let mut known: Vec<Option<Bounds>> = Vec::with_capacity(types.len());
    for (step, ty) in f.steps().iter().zip(&types) {
        let bounds = match step {
            Step::Arg(n) if ty.is_int() => bounds(func, args[*n as usize], depth),
            Step::Lit(lit) if ty.is_int() => i64::try_from(lit.as_int()).ok().map(|x| (x, x)),
            Step::Call(c) if ty.is_int() => {
                let of = |n: usize| known[c.args[n] as usize];
                match c.f {
                    ScalarFn::Select => of(1).zip(of(2)).map(|(a, b)| (a.0.min(b.0), a.1.max(b.1))),
                    ScalarFn::Min => of(0).zip(of(1)).map(|(a, b)| (a.0.min(b.0), a.1.min(b.1))),
                    ScalarFn::Max => of(0).zip(of(1)).map(|(a, b)| (a.0.max(b.0), a.1.max(b.1))),
                    ScalarFn::Add => of(0).zip(of(1)).and_then(add),
                    ScalarFn::Sub => {
                        of(0).zip(of(1)).and_then(|(a, b)| add((a, (b.1.checked_neg()?, b.0.checked_neg()?))))
                    }
                    ScalarFn::Mul => of(0).zip(of(1)).and_then(mul),
                    ScalarFn::Cast => of(0).or_else(|| float_ranges::truncated(floats[c.args[0] as usize])),
                    _ => None,
                }
            }
            _ => None,
        };
        // A value that might wrap around can be anything.
        known.push(bounds.filter(|b| contains(*ty, *b)).or_else(|| of_type(*ty)));
    }
    known.pop()?
}

fn add((a, b): (Bounds, Bounds)) -> Option<Bounds> {
    Some((a.0.checked_add(b.0)?, a.1.checked_add(b.1)?))
}

fn mul((a, b): (Bounds, Bounds)) -> Option<Bounds> {
    let corners = [(a.0, b.0), (a.0, b.1), (a.1, b.0), (a.1, b.1)];
    let all: Vec<i64> = corners.into_iter().map(|(x, y)| x.checked_mul(y)).collect::<Option<_>>()?;
    Some((*all.iter().min()?, *all.iter().max()?))
}
