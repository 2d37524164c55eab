//! Sizes at run time: dimension expressions as checked arithmetic, and symbols that get their values from actual sizes.
use crate::{entry::Entry, index::floor_div};
use numrsc_facts::{Error, Result};
use numrsc_ir::{
    Dim,
    dim::{Atom, Range, Sym},
    kernel::{Binary, Compare, Convert, Elem, Ty, V},
};
use std::collections::HashMap;

/// Expressions that are longer than this are not shown.
const LONGEST: usize = 120;

/// The values of symbols and of expressions over them, as far as they were computed.
#[derive(Clone, Default)]
pub(crate) struct Sizes {
    pub symbols: HashMap<Sym, V>,
    known: HashMap<Dim, V>,
}

impl Sizes {
    pub(super) fn new(symbols: HashMap<Sym, V>) -> Sizes {
        Sizes { symbols, known: HashMap::new() }
    }
}

impl Entry {
    /// The value of a dimension expression; overflow and division by zero end the run.
    pub(super) fn size(&mut self, sizes: &mut Sizes, d: &Dim) -> Result<V> {
        if let Some(c) = d.as_const() {
            return Ok(self.b.i64(c));
        }
        if let Some(&v) = sizes.known.get(d)
            && self.b.is_visible(v)
        {
            return Ok(v);
        }
        let mut open = false;
        d.for_each_sym(&mut |_| open = true);
        if !open {
            // A number that is none of 64 bits: what needs it can never run.
            self.state.refuse(&format!("the size {d} is beyond 64 bits"));
            return Ok(self.b.i64(0));
        }
        let outer = self.sizing.clone();
        self.sizing.get_or_insert_with(|| d.clone());
        let v = self.sum(sizes, d);
        self.sizing = outer;
        let v = v?;
        sizes.known.insert(d.clone(), v);
        Ok(v)
    }

    fn sum(&mut self, sizes: &mut Sizes, d: &Dim) -> Result<V> {
        let mut sum = None;
        for t in d.terms() {
            let mut product = self.b.i64(t.coef);
            for a in &t.factors {
                let factor = self.atom(sizes, a)?;
                product = self.checked_mul(product, factor);
            }
            sum = Some(match sum {
                None => product,
                Some(s) => self.checked_add(s, product),
            });
        }
        Ok(sum.expect("not a constant"))
    }

    fn atom(&mut self, sizes: &mut Sizes, a: &Atom) -> Result<V> {
        let mut pair = |x: &Dim, y: &Dim| Ok((self.size(sizes, x)?, self.size(sizes, y)?));
        Ok(match a {
            Atom::Sym(s) => return self.symbol(sizes, s),
            Atom::FloorDiv(x, y) => {
                let (x, y) = pair(x, y)?;
                let zero = self.b.i64(0);
                let nonzero = self.b.compare(Compare::Ne, y, zero);
                let code = self.state.message("a size is divided by zero");
                self.b.check(nonzero, code);
                floor_div(&mut self.b, x, y)
            }
            Atom::Min(x, y) => {
                let (x, y) = pair(x, y)?;
                self.b.binary(Binary::SMin, x, y)
            }
            Atom::Max(x, y) => {
                let (x, y) = pair(x, y)?;
                self.b.binary(Binary::SMax, x, y)
            }
            Atom::Broadcast(x, y) => {
                let (x, y) = pair(x, y)?;
                let one = self.b.i64(1);
                let (same, x_one, y_one) = (
                    self.b.compare(Compare::Eq, x, y),
                    self.b.compare(Compare::Eq, x, one),
                    self.b.compare(Compare::Eq, y, one),
                );
                let either = self.b.or(x_one, y_one);
                let fits = self.b.or(same, either);
                let code = self.state.message("two sizes do not broadcast");
                self.b.check(fits, code);
                self.b.select(x_one, y, x)
            }
            Atom::Mul(x, y) => {
                let (x, y) = pair(x, y)?;
                self.checked_mul(x, y)
            }
            Atom::Add(x, y) => {
                let (x, y) = pair(x, y)?;
                self.checked_add(x, y)
            }
            Atom::TooLarge => return Err(Error::Unsupported("a size is too large an expression".into())),
        })
    }

    pub(super) fn symbol(&mut self, sizes: &mut Sizes, s: &Sym) -> Result<V> {
        if let Some(&v) = sizes.symbols.get(s) {
            return Ok(v);
        }
        let Some(meaning) = self.state.meaning(s) else {
            return Err(Error::Unsupported(format!("nothing has defined the size `{s}`")));
        };
        let v = self.size(sizes, &meaning)?;
        if !s.starts_with('$') {
            let (zero, code) = (self.b.i64(0), self.state.message(&format!("the size {meaning} is negative")));
            let fits = self.b.compare(Compare::Le, zero, v);
            self.b.check(fits, code);
        }
        Ok(v)
    }

    pub(super) fn checked_mul(&mut self, x: V, y: V) -> V {
        let product = self.b.mul(x, y);
        if let Some([x, y]) = self.numbers([x, y]) {
            self.number_fits(x.checked_mul(y));
            return product;
        }
        let trivial = |v: Option<u64>| matches!(v, Some(0 | 1));
        if trivial(self.b.as_const(x)) || trivial(self.b.as_const(y)) {
            return product;
        }
        // Floats tell the magnitude of the product well enough.
        let to_float = |e: &mut Entry, v: V| {
            let f = e.b.convert(Convert::SToF, v, Elem::F64);
            e.b.unary(numrsc_ir::kernel::Unary::Abs, f)
        };
        let (fx, fy) = (to_float(self, x), to_float(self, y));
        let (magnitude, limit) = (self.b.mul(fx, fy), self.b.float(Ty::F64, 9.2e18));
        self.overflow_unless(Compare::Lt, magnitude, limit);
        product
    }

    pub(super) fn checked_add(&mut self, x: V, y: V) -> V {
        let sum = self.b.add(x, y);
        if let Some([x, y]) = self.numbers([x, y]) {
            self.number_fits(x.checked_add(y));
            return sum;
        }
        if sum == x || sum == y {
            return sum;
        }
        // It overflowed if both operands have the sign that the sum has not.
        let (a, b) = (self.b.binary(Binary::Xor, x, sum), self.b.binary(Binary::Xor, y, sum));
        let (both, zero) = (self.b.and(a, b), self.b.i64(0));
        self.overflow_unless(Compare::Le, zero, both);
        sum
    }

    /// The values, if both are known.
    fn numbers(&self, values: [V; 2]) -> Option<[i64; 2]> {
        let [x, y] = values.map(|v| self.b.as_const(v));
        Some([x?.cast_signed(), y?.cast_signed()])
    }

    /// What is known to be too large fails where it is computed, which may be never.
    fn number_fits(&mut self, number: Option<i64>) {
        if number.is_none() {
            let (zero, one) = (self.b.i64(0), self.b.i64(1));
            self.overflow_unless(Compare::Eq, zero, one);
        }
    }

    fn overflow_unless(&mut self, op: Compare, x: V, y: V) {
        let fits = self.b.compare(op, x, y);
        let place = std::mem::take(&mut self.state.place);
        let text = self.sizing.as_ref().map(|d| self.named(d).to_string()).filter(|text| text.len() <= LONGEST);
        let code =
            self.state.message(&text.map_or("a size is too large".into(), |d| format!("the size {d} is too large")));
        self.state.place = place;
        self.b.check(fits, code);
    }

    /// End the run unless two sizes are the same.
    pub(super) fn require_equal(&mut self, sizes: &mut Sizes, x: &Dim, y: &Dim, what: &str) -> Result<()> {
        if x == y {
            return Ok(());
        }
        let (x, y) = (self.size(sizes, x)?, self.size(sizes, y)?);
        let same = self.b.compare(Compare::Eq, x, y);
        let code = self.state.message(what);
        self.b.check(same, code);
        Ok(())
    }

    /// End the run if a size is negative.
    pub(super) fn require_size(&mut self, sizes: &mut Sizes, d: &Dim) -> Result<()> {
        if d.range(&Range::of_sym).low >= 0 {
            return Ok(());
        }
        let (v, zero) = (self.size(sizes, d)?, self.b.i64(0));
        let fits = self.b.compare(Compare::Le, zero, v);
        let code = self.state.message(&format!("the size {d} is negative"));
        self.b.check(fits, code);
        Ok(())
    }

    /// Give values to the symbols in stated dimensions, from actual sizes; check those that are known.
    pub(super) fn unify(&mut self, sizes: &mut Sizes, pairs: Vec<(Dim, V, String)>) -> Result<()> {
        // A size may be named by one dimension and used in an expression before it.
        for (dim, size, _) in &pairs {
            if let Some(s) = dim.as_sym() {
                sizes.symbols.entry(s.clone()).or_insert(*size);
            }
        }
        let mut left = pairs;
        while !left.is_empty() {
            let before = left.len();
            let mut next = Vec::new();
            for (dim, size, what) in left {
                let mut unknown: Vec<Sym> = Vec::new();
                dim.for_each_sym(&mut |s| {
                    if !sizes.symbols.contains_key(s) && self.state.meaning(s).is_none() && !unknown.contains(s) {
                        unknown.push(s.clone());
                    }
                });
                match &unknown[..] {
                    [] => {
                        let value = self.size(sizes, &dim)?;
                        if value != size {
                            let same = self.b.compare(Compare::Eq, value, size);
                            let code = self.state.message(&what);
                            self.b.check(same, code);
                        }
                    }
                    [s] if self.solve(sizes, &dim, s, size, &what)? => {}
                    _ => next.push((dim, size, what)),
                }
            }
            if next.len() == before {
                let (dim, ..) = &next[0];
                return Err(Error::Unsupported(format!("cannot tell the sizes in `{dim}` from the inputs")));
            }
            left = next;
        }
        Ok(())
    }

    /// Bind the one unknown symbol of `c * symbol + d = size`; `false` if it is not of that form.
    fn solve(&mut self, sizes: &mut Sizes, dim: &Dim, s: &Sym, size: V, what: &str) -> Result<bool> {
        let (mut coef, mut rest) = (Vec::new(), Vec::new());
        for mut t in dim.terms() {
            match t.factors.iter().position(|f| matches!(f, Atom::Sym(x) if x == s)) {
                Some(at) => {
                    t.factors.remove(at);
                    coef.push(t);
                }
                None => rest.push(t),
            }
        }
        let (coef, rest) = (Dim::from_terms(coef), Dim::from_terms(rest));
        let mut again = false;
        coef.for_each_sym(&mut |x| again |= x == s);
        rest.for_each_sym(&mut |x| again |= x == s);
        if again || coef == Dim::ZERO {
            return Ok(false);
        }
        let (c, d) = (self.size(sizes, &coef)?, self.size(sizes, &rest)?);
        let left = self.b.sub(size, d);
        let zero = self.b.i64(0);
        let nonzero = self.b.compare(Compare::Ne, c, zero);
        let (quotient, remainder) = self.b.sdivrem(left, c);
        let exact = self.b.compare(Compare::Eq, remainder, zero);
        let mut fits = self.b.and(nonzero, exact);
        if !s.starts_with('$') {
            let size = self.b.compare(Compare::Le, zero, quotient);
            fits = self.b.and(fits, size);
        }
        let code = self.state.message(what);
        self.b.check(fits, code);
        sizes.symbols.insert(s.clone(), quotient);
        Ok(true)
    }
}
