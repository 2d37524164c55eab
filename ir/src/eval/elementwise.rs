//! `map`: a scalar expression, step by step over blocks of elements.
use crate::{
    DType, Elems, Scalar, ScalarFn, Tensor,
    dtype::Class,
    scalar::{Call, Lit, Sig, Step},
};

/// Elements computed at a time, so that the steps of an expression stay in the cache.
const BLOCK: usize = 4096;

pub(super) fn map(f: &Scalar, xs: &[&Tensor], out: Vec<usize>) -> Result<Tensor, String> {
    let dtypes: Vec<DType> = xs.iter().map(|x| x.dtype()).collect();
    let types = f.types(&dtypes)?;
    let dtype = *types.last().ok_or("empty expression")?;
    let n = xs[0].len();
    // On its own, this keeps even the payload of a NaN.
    if let [Step::Arg(a), Step::Call(Call { f: ScalarFn::Bitcast, .. })] = f.steps()
        && dtype.bits() % 8 == 0
    {
        return Tensor::new(dtype, out, xs[*a as usize].bytes().clone());
    }
    let (mut bytes, mut strings) = (Vec::with_capacity(n * dtype.size()), Vec::new());
    for at in (0..n).step_by(BLOCK) {
        let len = BLOCK.min(n - at);
        let mut steps: Vec<Elems> = Vec::with_capacity(types.len());
        for (step, ty) in f.steps().iter().zip(&types) {
            steps.push(match step {
                Step::Arg(a) => block(xs[*a as usize], at, len)?,
                Step::Lit(l) => literal(*l, len),
                Step::Call(c) => {
                    let args: Vec<&Elems> = c.args.iter().map(|&a| &steps[a as usize]).collect();
                    call(c.f, &args, types[c.args[0] as usize], *ty)
                }
            });
        }
        match steps.pop() {
            Some(Elems::Str(s)) => strings.extend(s),
            Some(numbers) => bytes.extend_from_slice(Tensor::from_elems(dtype, vec![len], &numbers).bytes()),
            None => return Err("empty expression".into()),
        }
    }
    if dtype == DType::Str { Tensor::from_strings(out, strings) } else { Tensor::new(dtype, out, bytes.into()) }
}

fn block(x: &Tensor, at: usize, len: usize) -> Result<Elems, String> {
    if let Some(s) = x.strings() {
        return Ok(Elems::Str(s[at..at + len].to_vec()));
    }
    let size = x.dtype().size();
    Ok(Tensor::new(x.dtype(), vec![len], x.bytes().slice(at * size..(at + len) * size))?.elems())
}

fn literal(l: Lit, len: usize) -> Elems {
    if l.dtype.is_float() { Elems::Float(vec![l.as_f64(); len]) } else { Elems::Int(vec![l.as_int(); len]) }
}

/// One function over whole blocks; the type rule has checked the operands, which are of type `of`.
fn call(f: ScalarFn, args: &[&Elems], of: DType, to: DType) -> Elems {
    let flags = |v: Vec<bool>| Elems::Int(v.into_iter().map(i128::from).collect());
    match (f.sig(), args) {
        (Sig::Select, [Elems::Int(c), a, b]) => match (a, b) {
            (Elems::Float(a), Elems::Float(b)) => Elems::Float(choose(c, a, b)),
            (Elems::Int(a), Elems::Int(b)) => Elems::Int(choose(c, a, b)),
            (Elems::Str(a), Elems::Str(b)) => Elems::Str(choose(c, a, b)),
            _ => unreachable!("both sides have one type"),
        },
        (Sig::Single, [Elems::Float(a), Elems::Float(b), Elems::Float(c)]) => Elems::Float(fused(a, b, c)),
        (Sig::Convert, [x]) => convert(f, x, of, to),
        (Sig::Compare, [Elems::Str(a), Elems::Str(b)]) => flags(
            a.iter()
                .zip(b)
                .map(|(a, b)| match f {
                    ScalarFn::Lt => a < b,
                    ScalarFn::Le => a <= b,
                    _ => a == b,
                })
                .collect(),
        ),
        (sig, [Elems::Float(x), rest @ ..]) => {
            let f = f.float();
            let values: Vec<f64> = match rest {
                [Elems::Float(y)] => x.iter().zip(y).map(|(&x, &y)| f(x, y)).collect(),
                _ => x.iter().map(|&x| f(x, 0.0)).collect(),
            };
            match sig {
                Sig::Compare | Sig::FloatTest => flags(values.into_iter().map(|v| v != 0.0).collect()),
                _ => Elems::Float(values.into_iter().map(|v| to.round(v)).collect()),
            }
        }
        (_, [Elems::Int(x), rest @ ..]) => {
            let f = f.int();
            Elems::Int(match rest {
                [Elems::Int(y)] => x.iter().zip(y).map(|(&x, &y)| to.wrap(f(x, y, of))).collect(),
                _ => x.iter().map(|&x| to.wrap(f(x, 0, of))).collect(),
            })
        }
        _ => unreachable!("the type rule admits no other operands"),
    }
}

/// `a b + c` of numbers of `f32`, rounded once.
fn fused(a: &[f64], b: &[f64], c: &[f64]) -> Vec<f64> {
    let one = |((&a, &b), &c)| f64::from((a as f32).mul_add(b as f32, c as f32));
    a.iter().zip(b).zip(c).map(one).collect()
}

fn choose<T: Clone>(c: &[i128], a: &[T], b: &[T]) -> Vec<T> {
    c.iter().zip(a.iter().zip(b)).map(|(&c, (a, b))| if c != 0 { a.clone() } else { b.clone() }).collect()
}

fn convert(f: ScalarFn, x: &Elems, of: DType, to: DType) -> Elems {
    let saturate = f == ScalarFn::CastSat;
    match x {
        _ if f == ScalarFn::Bitcast => bitcast(x, of, to),
        Elems::Float(v) if to.is_float() => Elems::Float(v.iter().map(|&x| to_float(x, to, saturate)).collect()),
        Elems::Float(v) => Elems::Int(v.iter().map(|&x| to_int(x, to, saturate)).collect()),
        Elems::Int(v) if to == DType::F64 => Elems::Float(v.iter().map(|&x| x as f64).collect()),
        Elems::Int(v) if to.is_float() => {
            Elems::Float(v.iter().map(|&x| to_float(round_to_odd(x), to, saturate)).collect())
        }
        Elems::Int(v) => {
            let (low, high) = to.int_range();
            let limit = |x: i128| if saturate { x.clamp(low, high) } else { to.wrap(x) };
            let bool = |x: i128| i128::from(x != 0);
            Elems::Int(v.iter().map(|&x| if to.class() == Class::Bool { bool(x) } else { limit(x) }).collect())
        }
        Elems::Str(_) => unreachable!("strings are not converted"),
    }
}

fn to_float(x: f64, to: DType, saturate: bool) -> f64 {
    if !saturate {
        return to.round(x);
    }
    let y = to.float_from_bits(to.float_to_bits(x, true));
    if y.is_infinite() { to.max_finite().copysign(x) } else { y }
}

fn to_int(x: f64, to: DType, saturate: bool) -> i128 {
    if to.class() == Class::Bool {
        return i128::from(x != 0.0);
    }
    if saturate {
        // A conversion by `as` truncates, clamps to the range of i128, and gives 0 for NaN.
        let (low, high) = to.int_range();
        return (x as i128).clamp(low, high);
    }
    // Beyond i128 the low bits of a float are all 0.
    if x.abs() < 2f64.powi(127) { to.wrap(x as i128) } else { 0 }
}

/// A float from which rounding to any narrower format gives the same as rounding the integer: an inexact result ends
/// in a one bit, so it is never a tie.
fn round_to_odd(x: i128) -> f64 {
    let nearest = x as f64;
    let back = nearest as i128;
    if back == x {
        return nearest;
    }
    let toward_zero = nearest.to_bits() - u64::from(back.unsigned_abs() > x.unsigned_abs());
    f64::from_bits(toward_zero | 1)
}

fn bitcast(x: &Elems, of: DType, to: DType) -> Elems {
    let bits: Vec<u64> = match x {
        Elems::Float(v) => v.iter().map(|&x| of.float_to_bits(x, false)).collect(),
        Elems::Int(v) => v.iter().map(|&x| (x & ((1 << of.bits()) - 1)) as u64).collect(),
        Elems::Str(_) => unreachable!("strings are not converted"),
    };
    if to.is_float() {
        Elems::Float(bits.into_iter().map(|b| to.float_from_bits(b)).collect())
    } else {
        Elems::Int(bits.into_iter().map(|b| to.wrap(i128::from(b))).collect())
    }
}
