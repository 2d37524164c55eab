//! Between which numbers the elements of an integer tensor lie, as far as constants and clamps tell: indices that are known to fit are not checked.
use super::fuse::{Scope, is_view};
use crate::scalar::range;
use numrsc_ir::{DType, Op, Scalar, ScalarFn, Value, scalar::Step};

/// The least and the largest number there may be.
type Bounds = (i64, i64);

/// How many nodes are gone through at most.
const MAX_DEPTH: usize = 8;
/// Larger constants are not looked at.
const MAX_ELEMENTS: usize = 1 << 16;

impl Scope<'_> {
    /// Do all elements of a tensor of indices lie in an axis of this size?
    pub(crate) fn fits_axis(&self, indices: Value, size: i64) -> bool {
        self.bounds(indices, MAX_DEPTH).is_some_and(|(low, high)| low >= 0 && high < size)
    }

    fn bounds(&self, v: Value, depth: usize) -> Option<Bounds> {
        let node = self.func.node(v);
        let depth = depth.checked_sub(1)?;
        match &node.op {
            Op::Const { value } if value.len() <= MAX_ELEMENTS => {
                let all = value.to_i64s()?;
                Some((*all.iter().min()?, *all.iter().max()?))
            }
            Op::Map { f } => self.bounds_of_map(f, &node.args, depth),
            // An element of the operand, whichever it is.
            Op::Gather { .. } => self.bounds(node.args[0], depth),
            op if is_view(op) => self.bounds(node.args[0], depth),
            _ => None,
        }
    }

    fn bounds_of_map(&self, f: &Scalar, args: &[Value], depth: usize) -> Option<Bounds> {
        let dtypes: Vec<DType> = args.iter().map(|&a| self.dtype(a)).collect();
        let types = f.types(&dtypes).ok()?;
        let floats = range::ranges(f, &types);
        let mut known: Vec<Option<Bounds>> = Vec::with_capacity(types.len());
        for (step, ty) in f.steps().iter().zip(&types) {
            let bounds = match step {
                Step::Arg(n) if ty.is_int() => self.bounds(args[*n as usize], depth),
                Step::Lit(lit) if ty.is_int() => i64::try_from(lit.as_int()).ok().map(|x| (x, x)),
                Step::Call(c) if ty.is_int() => {
                    let of = |n: usize| known[c.args[n] as usize];
                    match c.f {
                        ScalarFn::Select => of(1).zip(of(2)).map(|(a, b)| (a.0.min(b.0), a.1.max(b.1))),
                        ScalarFn::Min => of(0).zip(of(1)).map(|(a, b)| (a.0.min(b.0), a.1.min(b.1))),
                        ScalarFn::Max => of(0).zip(of(1)).map(|(a, b)| (a.0.max(b.0), a.1.max(b.1))),
                        ScalarFn::Add => of(0).zip(of(1)).and_then(add),
                        ScalarFn::Mul => of(0).zip(of(1)).and_then(mul),
                        ScalarFn::Cast => of(0).or_else(|| range::truncated(floats[c.args[0] as usize])),
                        _ => None,
                    }
                }
                _ => None,
            };
            // What might wrap around is not known.
            known.push(bounds.filter(|b| {
                let (low, high) = ty.int_range();
                low <= i128::from(b.0) && i128::from(b.1) <= high
            }));
        }
        known.pop()?
    }
}

fn add((a, b): (Bounds, Bounds)) -> Option<Bounds> {
    Some((a.0.checked_add(b.0)?, a.1.checked_add(b.1)?))
}

fn mul((a, b): (Bounds, Bounds)) -> Option<Bounds> {
    let corners = [(a.0, b.0), (a.0, b.1), (a.1, b.0), (a.1, b.1)];
    let all: Vec<i64> = corners.into_iter().map(|(x, y)| x.checked_mul(y)).collect::<Option<_>>()?;
    Some((*all.iter().min()?, *all.iter().max()?))
}
