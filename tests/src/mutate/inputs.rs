//! Inputs for a changed model: the test's own numbers in the shapes that the model declares now, at sizes that fit, at others, and at
//! some that do not fit.
use super::Case;
use crate::{generate, rng::Rng};
use numrsc_ir::{DType, Data, Dim, Elem, Elems, Func, Tensor, Type, dim::Sym, eval::Env};

/// How sizes are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    /// Those of the test, where the model leaves them open.
    Given,
    /// Any, the same one wherever a symbol has the same name.
    Other,
    /// As `Given`, but one size of one input is another.
    Wrong,
}

pub(super) const SIZES: [Sizes; 3] = [Sizes::Given, Sizes::Other, Sizes::Wrong];

/// More elements than this are not made.
const MAX_ELEMENTS: usize = 1 << 15;

/// Inputs for the parameters of a function; nothing where they would be too many.
pub(super) fn inputs(case: &Case, func: &Func, sizes: Sizes) -> Option<Vec<Data>> {
    let graph = case.model.graph.as_ref()?;
    let mut rng = Rng::new(case.seed.wrapping_mul(31) + sizes as u64);
    let mut env = Env::new();
    let mut all = vec![];
    let wrong = rng.below(func.params().len().max(1));
    for (i, p) in func.params().into_iter().enumerate() {
        let at = graph.input.iter().position(|input| Some(&input.name) == func.param_names.get(i));
        let given = at.and_then(|at| case.data.get(at)).and_then(Option::as_ref);
        let mut input = of_type(&mut rng, func.ty(p), given, sizes, &mut env)?;
        if sizes == Sizes::Wrong
            && i == wrong
            && let Data::Tensor(t) = &input
            && t.rank() > 0
        {
            let mut shape = t.shape().to_vec();
            let axis = rng.below(shape.len());
            shape[axis] = if rng.one_in(2) { shape[axis] + 1 } else { rng.below(5) };
            input = repeated(&mut rng, t, shape).into();
        }
        all.push(input);
    }
    Some(all)
}

fn of_type(rng: &mut Rng, ty: &Type, given: Option<&Data>, sizes: Sizes, env: &mut Env) -> Option<Data> {
    match (ty, given) {
        (Type::Tensor(t), given) => {
            let given = given.and_then(|d| d.as_tensor().ok());
            let mut shape = vec![];
            for (axis, dim) in t.shape.iter().enumerate() {
                let own = given.filter(|g| g.rank() == t.rank()).map(|g| g.shape()[axis]);
                if let Some(sym) = dim.as_sym() {
                    let size = size(rng, sym, own, sizes, env);
                    env.insert(sym.clone(), size);
                }
                shape.push(usize::try_from(dim.eval(&|s| env.get(s).copied())?).ok()?);
            }
            let count = shape.iter().try_fold(1usize, |n, size| n.checked_mul(*size))?;
            if count > MAX_ELEMENTS {
                return None;
            }
            Some(Data::Tensor(match given {
                Some(g) if g.dtype() == t.dtype => repeated(rng, g, shape),
                _ => random(rng, t.dtype, shape),
            }))
        }
        (Type::Seq(_), Some(d @ Data::Seq(_))) => Some(d.clone()),
        (Type::Seq(e), _) => {
            let count = rng.below(3);
            (0..count).map(|_| element(rng, e)).collect::<Option<_>>().map(Data::Seq)
        }
        (Type::Tuple(_), _) => None,
    }
}

fn size(rng: &mut Rng, sym: &Sym, given: Option<usize>, sizes: Sizes, env: &Env) -> i64 {
    match (env.get(sym), given, sizes) {
        (Some(n), ..) => *n,
        (None, Some(n), Sizes::Given | Sizes::Wrong) => n as i64,
        (None, Some(n), Sizes::Other) if rng.one_in(3) => n as i64,
        (None, ..) => *rng.pick(&[0, 1, 1, 2, 3, 4, 5, 6, 7, 9, 17]),
    }
}

fn element(rng: &mut Rng, e: &Elem) -> Option<Data> {
    match e {
        Elem::Tensor { dtype, shape } => {
            let shape =
                shape.as_ref().map(|s| s.iter().map(|d| d.as_ref().and_then(Dim::as_usize).unwrap_or(2)).collect());
            let shape: Vec<usize> = shape.unwrap_or_else(|| vec![2]);
            (shape.iter().product::<usize>() < MAX_ELEMENTS).then(|| random(rng, *dtype, shape).into())
        }
        Elem::Seq(_) => Some(Data::Seq(vec![])),
    }
}

/// A tensor of any type.
pub(super) fn random(rng: &mut Rng, dtype: DType, shape: Vec<usize>) -> Tensor {
    if dtype == DType::Str {
        let words = ["", "a", "b", "cat", "Zebra", "12", "-3.5e2", "nan", "ß", "a b"];
        let strings = (0..shape.iter().product()).map(|_| (*rng.pick(&words)).to_owned()).collect();
        return Tensor::from_strings(shape, strings).expect("as many as the shape has");
    }
    let special = rng.one_in(4);
    generate::tensor(rng, dtype, shape, special)
}

/// The elements of a tensor over again, in another shape.
pub(super) fn repeated(rng: &mut Rng, t: &Tensor, shape: Vec<usize>) -> Tensor {
    let count: usize = shape.iter().product();
    if t.shape() == shape {
        return t.clone();
    }
    if t.is_empty() {
        return random(rng, t.dtype(), shape);
    }
    if let Some(strings) = t.strings() {
        let strings = strings.iter().cycle().take(count).cloned().collect();
        return Tensor::from_strings(shape, strings).expect("as many as the shape has");
    }
    let elems = match t.elems() {
        Elems::Float(v) => Elems::Float(v.into_iter().cycle().take(count).collect()),
        Elems::Int(v) => Elems::Int(v.into_iter().cycle().take(count).collect()),
        other @ Elems::Str(_) => other,
    };
    Tensor::from_elems(t.dtype(), shape, &elems)
}
