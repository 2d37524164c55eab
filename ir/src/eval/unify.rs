//! Declared types against actual data: checks what is known, and learns the values of symbols.
use super::{Data, Env, bind, dim_value};
use crate::{DType, Dim, Tensor, Type, dim::Sym, types::Elem};

/// Check data against a type. Symbols without a value get the one that makes the sizes agree; it must follow from a
/// dimension that is the symbol alone or linear in it.
pub fn unify(ty: &Type, data: &Data, env: &mut Env) -> Result<(), String> {
    let mut pairs = Vec::new();
    if !collect(ty, data, &mut pairs) {
        return Err(mismatch(ty, data));
    }
    // Each round settles at least one pair, or gives up.
    while !pairs.is_empty() {
        let before = pairs.len();
        let mut error = None;
        pairs.retain(|&(dim, size)| match settle(dim, size, env) {
            Ok(done) => !done,
            Err(e) => {
                error.get_or_insert(e);
                false
            }
        });
        if let Some(e) = error {
            return Err(format!("{}{e}", mismatch(ty, data)));
        }
        if pairs.len() == before {
            let (dim, size) = pairs[0];
            let reason = dim_value(dim, env).err().unwrap_or_default();
            return Err(format!("cannot tell the symbols in {ty} from `{dim}` = {size}: {reason}"));
        }
    }
    Ok(())
}

/// Give values to the symbols that stand alone as a dimension, as far as the data allows.
pub(super) fn bind_plain(ty: &Type, data: &Data, env: &mut Env) {
    let mut pairs = Vec::new();
    collect(ty, data, &mut pairs);
    for (dim, size) in pairs {
        if let Some(s) = dim.as_sym() {
            env.entry(s.clone()).or_insert(size);
        }
    }
}

/// Check or learn from one dimension; `false` if there is nothing to learn yet.
fn settle(dim: &Dim, size: i64, env: &mut Env) -> Result<bool, String> {
    if let Some(value) = dim.eval(&|s| env.get(s).copied()) {
        return match dim.as_const() {
            _ if value == size => Ok(true),
            Some(_) => Err(String::new()),
            None => Err(format!(": {dim} is {value}, not {size}")),
        };
    }
    match solve(dim, size, env) {
        Some((sym, Some(value))) => bind(&sym, value, env).map(|()| true).map_err(|e| format!(": {e}")),
        Some((sym, None)) => Err(format!(": no {sym} makes {dim} equal to {size}")),
        None => Ok(false),
    }
}

/// The one unknown symbol of a dimension that is `c * symbol + d`, and the value that makes it equal to `size`.
fn solve(dim: &Dim, size: i64, env: &Env) -> Option<(Sym, Option<i64>)> {
    if let Some(s) = dim.as_sym() {
        return Some((s.clone(), Some(size)));
    }
    let rest = dim.subst(&|s| env.get(s).map(|&n| Dim::Const(n)));
    let mut unknown: Option<&Sym> = None;
    let mut several = false;
    rest.for_each_sym(&mut |s| several |= unknown.replace(s).is_some_and(|old| old != s));
    let sym = unknown.filter(|_| !several)?.clone();
    let at = |x: i64| rest.eval(&|_| Some(x));
    let d = at(0)?;
    let c = at(1)?.checked_sub(d)?;
    // The normal form proves that it is linear.
    if c == 0 || rest != &(&Dim::sym(sym.clone()) * &Dim::Const(c)) + &Dim::Const(d) {
        return None;
    }
    let (value, remainder) = (size.checked_sub(d)?.checked_div(c)?, (size - d).checked_rem(c)?);
    Some((sym, (remainder == 0).then_some(value)))
}

/// The dimensions of a type beside the actual sizes; `false` if kind, element type or rank differ.
fn collect<'t>(ty: &'t Type, data: &Data, out: &mut Vec<(&'t Dim, i64)>) -> bool {
    match (ty, data) {
        (Type::Tensor(t), Data::Tensor(x)) => tensor(t.dtype, t.shape.iter().map(Some), x, out),
        (Type::Seq(elem), Data::Seq(xs)) => xs.iter().all(|x| element(elem, x, out)),
        (Type::Tuple(ts), Data::Tuple(xs)) => {
            ts.len() == xs.len() && ts.iter().zip(xs).all(|(t, x)| collect(t, x, out))
        }
        _ => false,
    }
}

fn element<'t>(elem: &'t Elem, data: &Data, out: &mut Vec<(&'t Dim, i64)>) -> bool {
    match (elem, data) {
        (Elem::Tensor { dtype, shape: None }, Data::Tensor(x)) => *dtype == x.dtype(),
        (Elem::Tensor { dtype, shape: Some(s) }, Data::Tensor(x)) => {
            tensor(*dtype, s.iter().map(Option::as_ref), x, out)
        }
        (Elem::Seq(elem), Data::Seq(xs)) => xs.iter().all(|x| element(elem, x, out)),
        _ => false,
    }
}

fn tensor<'t>(
    dtype: DType,
    shape: impl ExactSizeIterator<Item = Option<&'t Dim>>,
    x: &Tensor,
    out: &mut Vec<(&'t Dim, i64)>,
) -> bool {
    let fits = dtype == x.dtype() && shape.len() == x.rank();
    if fits {
        // No dimension expression reaches a size beyond i64, so clamping cannot make one fit.
        let sizes = x.shape().iter().map(|&n| i64::try_from(n).unwrap_or(i64::MAX));
        out.extend(shape.zip(sizes).filter_map(|(d, n)| Some((d?, n))));
    }
    fits
}

fn mismatch(ty: &Type, data: &Data) -> String {
    format!("expected {ty}, got {}", describe(data))
}

/// The type of data, with numbers for dimensions.
pub(super) fn describe(data: &Data) -> String {
    let list = |xs: &[Data]| {
        let shown: Vec<String> = xs.iter().take(8).map(describe).collect();
        format!("{}{}", shown.join(", "), if xs.len() > 8 { ", .." } else { "" })
    };
    match data {
        Data::Tensor(t) => format!("{}{:?}", t.dtype(), t.shape()),
        Data::Seq(xs) => format!("a sequence of ({})", list(xs)),
        Data::Tuple(xs) => format!("({})", list(xs)),
    }
}
