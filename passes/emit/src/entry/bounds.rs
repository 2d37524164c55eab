//! Upper bounds of run-time sizes, so that only those are checked that may be too large: every tensor in memory has
//! less than 2^47 bytes.
use numrsc_ir::{
    Dim, TensorType,
    dim::{Atom, Range, Sym},
};
use std::collections::HashSet;

/// The logarithm of the bytes that are in memory at most. The runtime refuses larger inputs, and axes of empty ones
/// that are longer.
const MEMORY: u32 = 47;
/// The logarithm of the numbers with which the entry computes, with room for sums of a few.
const NUMBERS: u32 = 60;

/// Products of sizes that are in memory together.
#[derive(Default)]
pub(super) struct Bounds {
    /// The symbols that are sizes of an input.
    sizes: HashSet<Sym>,
    /// For each input, the symbols of its axes.
    together: Vec<Vec<Sym>>,
}

impl Bounds {
    /// A tensor is in memory when the run begins.
    pub(super) fn note(&mut self, t: &TensorType) {
        let symbols: Vec<Sym> = t.shape.iter().filter_map(|d| d.as_sym().cloned()).collect();
        if !symbols.is_empty() {
            self.sizes.extend(symbols.iter().cloned());
            self.together.push(symbols);
        }
    }

    /// Is the product certainly small enough to compute with?
    pub(super) fn fits(&self, product: &Dim) -> bool {
        let terms = product.terms();
        let room = NUMBERS - (terms.len() as u64).next_power_of_two().ilog2();
        terms.iter().all(|t| {
            let bits = 64 - t.coef.unsigned_abs().leading_zeros();
            self.bits(&t.factors).is_some_and(|factors| bits + factors <= room)
        })
    }

    /// The logarithm of what a product is at most.
    fn bits(&self, factors: &[Atom]) -> Option<u32> {
        if let [one] = factors {
            let range = Dim::from_atom(one.clone()).range(&|s| self.range(s));
            return Some(64 - range.low.unsigned_abs().max(range.high.unsigned_abs()).leading_zeros());
        }
        let symbols: Option<Vec<&Sym>> =
            factors.iter().map(|a| if let Atom::Sym(s) = a { Some(s) } else { None }).collect();
        let symbols = symbols?;
        let within = |all: &Vec<Sym>| {
            let count = |s: &Sym| (symbols.iter().filter(|x| **x == s).count(), all.iter().filter(|x| *x == s).count());
            symbols.iter().all(|s| {
                let (wanted, there) = count(s);
                wanted <= there
            })
        };
        match symbols.is_empty() {
            true => Some(0),
            false => self.together.iter().any(within).then_some(MEMORY),
        }
    }

    fn range(&self, s: &Sym) -> Range {
        if self.sizes.contains(s) { Range { low: 0, high: 1 << MEMORY } } else { Range::of_sym(s) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numrsc_ir::DType;

    #[test]
    fn what_is_in_memory_together_fits() {
        let mut bounds = Bounds::default();
        let [batch, seq, image] = ["batch", "seq", "image"].map(Dim::sym);
        bounds.note(&TensorType { dtype: DType::I64, shape: vec![batch.clone(), seq.clone()] });
        bounds.note(&TensorType { dtype: DType::F32, shape: vec![image.clone(), Dim::Const(3)] });
        let fits = |dims: &[&Dim]| bounds.fits(&Dim::product(dims.iter().copied()));
        assert!(fits(&[&batch, &seq, &Dim::Const(3072)]));
        assert!(fits(&[&(&batch + &Dim::ONE), &seq, &Dim::Const(768)]));
        assert!(fits(&[&seq.floor_div(&Dim::Const(3)), &Dim::Const(768)]));
        assert!(!fits(&[&batch, &seq, &seq]), "a matrix of attention");
        assert!(!fits(&[&batch, &image]), "axes of two inputs");
        assert!(!fits(&[&batch, &seq, &Dim::Const(1 << 14)]));
        assert!(!fits(&[&Dim::sym("found")]), "a number of the run");
    }
}
