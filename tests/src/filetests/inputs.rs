//! Inputs of a case: all kinds of numbers, and sizes for the symbols of its parameters.
use crate::{generate, rng::Rng};
use numrsc_ir::{DType, Data, Dim, Elems, Func, Tensor, Type, dim::Sym};
use std::collections::BTreeMap;

/// How many inputs a case is judged by: every other one is special, in each of the four ways.
pub(super) const COUNT: u64 = 8;
const SPECIAL: [f64; 4] = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0];
/// The largest size that a symbol stands for.
const LARGEST: i64 = 7;

/// What inputs are made of.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Numbers {
    /// Every other input has infinities, NaN and numbers near zero.
    #[default]
    All,
    /// For what expects finite numbers.
    Finite,
}

impl Numbers {
    pub fn named(name: &str) -> Option<Numbers> {
        match name {
            "all" => Some(Numbers::All),
            "finite" => Some(Numbers::Finite),
            _ => None,
        }
    }
}

/// The inputs of a number, or which parameter none can be made for.
pub(super) fn inputs(func: &Func, seed: u64, numbers: Numbers) -> Result<Vec<Data>, String> {
    let mut rng = Rng::new(seed);
    let mut sizes: BTreeMap<Sym, i64> = BTreeMap::new();
    for param in func.params() {
        func.ty(param).for_each_sym(&mut |s| {
            sizes.insert(s.clone(), 0);
        });
    }
    sizes.values_mut().for_each(|size| *size = rng.between(1, LARGEST));
    let special = (numbers == Numbers::All && seed % 2 == 1).then(|| SPECIAL[(seed / 2) as usize % SPECIAL.len()]);
    let input = |param| {
        let Type::Tensor(ty) = func.ty(param) else { return Err(format!("{param} is no tensor")) };
        let size = |d: &Dim| usize::try_from(d.eval(&|s| sizes.get(s).copied())?).ok();
        let shape: Option<Vec<usize>> = ty.shape.iter().map(size).collect();
        let shape = shape.ok_or_else(|| format!("{param} has sizes that do not follow from its symbols"))?;
        Ok(Data::Tensor(tensor(&mut rng, ty.dtype, shape, special, seed % 3 == 2)))
    };
    func.params().into_iter().map(input).collect()
}

/// Small numbers, among them the special one if there is any; or integers of 8 bits up to their limits.
fn tensor(rng: &mut Rng, dtype: DType, shape: Vec<usize>, special: Option<f64>, wide: bool) -> Tensor {
    if !(wide && dtype.is_int() && dtype.bits() == 8) {
        let tensor = generate::tensor(rng, dtype, shape, special.is_some());
        return match (special, tensor.elems()) {
            (Some(special), Elems::Float(mut all)) if !all.is_empty() => {
                let at = rng.below(all.len());
                all[at] = special;
                Tensor::from_elems(dtype, tensor.shape().to_vec(), &Elems::Float(all))
            }
            _ => tensor,
        };
    }
    let (low, high) = dtype.int_range();
    let count = shape.iter().product();
    let all = (0..count).map(|_| i128::from(rng.between(low as i64, high as i64))).collect();
    Tensor::from_elems(dtype, shape, &Elems::Int(all))
}
