//! Symbolic dimensions: integer expressions over named symbols, kept in a normal form so that equal means `==`.
//!
//! A [`Dim`] is a sum of terms `coefficient * atom * atom …`. Sums, products and exact quotients are expanded;
//! what does not expand (floor division, min, max, broadcast) is an opaque atom over normalised operands. The rest of
//! the solver asks intervals, case by case: "cannot prove" is an answer, and callers must then not act.
mod bounds;

pub use bounds::Range;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt, ops,
    sync::Arc,
};

/// The name of a symbol. Names beginning with `$` stand for any integer, all others for sizes (0 or more).
pub type Sym = Arc<str>;

/// An integer expression over symbols, in normal form.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    Const(i64),
    /// Not a constant.
    Sum(Arc<Sum>),
}

/// Terms in canonical order, none with coefficient 0.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Sum {
    terms: Vec<Term>,
    /// Number of terms and atoms, nested ones included.
    size: usize,
    /// How deeply atoms nest.
    depth: usize,
}

/// `coef * factors[0] * factors[1] …`; the constant term has no factors.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Term {
    pub factors: Vec<Atom>,
    pub coef: i64,
}

/// What a product is made of.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Atom {
    Sym(Sym),
    /// `floor(a / b)`
    FloorDiv(Dim, Dim),
    Min(Dim, Dim),
    Max(Dim, Dim),
    /// The size two broadcast sizes give: `a == 1 ? b : a`, where one is 1 or both are equal.
    Broadcast(Dim, Dim),
    /// A product too large to expand, or a coefficient too large to represent.
    Mul(Dim, Dim),
    Add(Dim, Dim),
    /// An expression beyond the limits of size or depth. It cannot be evaluated, whatever it is combined with is too
    /// large as well, and types refuse it.
    TooLarge,
}

/// Products with more terms than this stay opaque, so that no input makes expressions explode.
const MAX_TERMS: usize = 64;
/// Expressions with more terms and atoms, or nested more deeply, are not kept. Operands are shared, so without the
/// first limit `n` operations could build an expression that takes 2^n steps to walk.
const MAX_SIZE: usize = 4096;
const MAX_DEPTH: usize = 40;

impl Dim {
    pub const ZERO: Dim = Dim::Const(0);
    pub const ONE: Dim = Dim::Const(1);

    pub fn sym(name: impl Into<Sym>) -> Dim {
        Dim::from_atom(Atom::Sym(name.into()))
    }

    pub fn as_const(&self) -> Option<i64> {
        match self {
            Dim::Const(c) => Some(*c),
            Dim::Sum(_) => None,
        }
    }

    /// The constant as a size, if it is one.
    pub fn as_usize(&self) -> Option<usize> {
        self.as_const().and_then(|c| usize::try_from(c).ok())
    }

    /// The symbol's name if the expression is just a symbol.
    pub fn as_sym(&self) -> Option<&Sym> {
        match self {
            Dim::Sum(t) => match &t.terms[..] {
                [Term { factors, coef: 1 }] => match &factors[..] {
                    [Atom::Sym(s)] => Some(s),
                    _ => None,
                },
                _ => None,
            },
            Dim::Const(_) => None,
        }
    }

    /// `floor(self / b)`. A constant zero divisor stays unevaluated and fails when evaluated.
    pub fn floor_div(&self, b: &Dim) -> Dim {
        if self.is_too_large() || b.is_too_large() {
            return Dim::too_large();
        }
        match (self, b) {
            (_, Dim::Const(1)) => return self.clone(),
            (Dim::Const(x), Dim::Const(y)) if *y != 0 && *y != -1 => return Dim::Const(floor_div(*x, *y)),
            (_, Dim::Const(-1)) => return -self,
            (Dim::Const(0), _) => return Dim::ZERO,
            _ => {}
        }
        if let Some(q) = self.exact_div(b) {
            return q;
        }
        // floor((q*b + r) / b) = q + floor(r / b)
        let (mut whole, mut rest) = (Dim::ZERO, Dim::ZERO);
        if let [d] = &b.terms()[..] {
            for t in self.terms() {
                match t.exact_div(d) {
                    Some(q) => whole = &whole + &Dim::from_terms(vec![q]),
                    None => rest = &rest + &Dim::from_terms(vec![t]),
                }
            }
        }
        if whole != Dim::ZERO {
            return &whole + &rest.floor_div(b);
        }
        // floor((floor(x / a) + r) / b) = floor((x + a*r) / (a*b)) for positive constants
        if let Dim::Const(c) = b
            && let Some((x, a, rest)) = self.only_quotient()
            && let Some(product) = a.checked_mul(*c).filter(|_| *c > 0)
        {
            return (x + &(&rest * &Dim::Const(a))).floor_div(&Dim::Const(product));
        }
        if let Some((dividend, divisor)) = self.reduced_by(b) {
            return dividend.floor_div(&divisor);
        }
        let range = self.range(&Range::of_sym);
        if b.as_const().is_some_and(|c| c > 0 && range.low >= 0 && range.high < c) {
            return Dim::ZERO;
        }
        Dim::from_atom(Atom::FloorDiv(self.clone(), b.clone()))
    }

    /// Dividend and divisor without a common factor: `floor((g*x + k) / (g*b)) = floor((x + floor(k / g)) / b)`. What is left of `k` is that `0 <= k - g*floor(k / g) < g`
    /// never reaches the next multiple.
    fn reduced_by(&self, b: &Dim) -> Option<(Dim, Dim)> {
        let c = b.as_const().filter(|&c| c > 0)?;
        let terms = self.terms();
        let g = terms.iter().filter(|t| !t.factors.is_empty()).fold(c, |g, t| gcd(g, t.coef));
        let reduced = |t: &Term| Term { coef: floor_div(t.coef, g), factors: t.factors.clone() };
        (g > 1).then(|| (Dim::from_terms(terms.iter().map(reduced).collect()), Dim::Const(c / g)))
    }

    /// `(x, a, rest)` if this is `floor(x / a) + rest` for a positive constant, without other quotients.
    fn only_quotient(&self) -> Option<(&Dim, i64, Dim)> {
        let Dim::Sum(sum) = self else { return None };
        let quotient = |t: &&Term| t.factors.iter().any(|f| matches!(f, Atom::FloorDiv(..)));
        let mut quotients = sum.terms.iter().filter(quotient);
        let (found, None) = (quotients.next()?, quotients.next()) else { return None };
        match (&found.factors[..], found.coef) {
            ([Atom::FloorDiv(x, Dim::Const(a))], 1) if *a > 0 => {
                Some((x, *a, self - &Dim::from_terms(vec![found.clone()])))
            }
            _ => None,
        }
    }

    /// `ceil(self / b)`
    pub fn ceil_div(&self, b: &Dim) -> Dim {
        -&(-self).floor_div(b)
    }

    /// `self - b * floor(self / b)`: the remainder with the sign of `b`.
    pub fn modulo(&self, b: &Dim) -> Dim {
        self - &(b * &self.floor_div(b))
    }

    pub fn lesser(&self, b: &Dim) -> Dim {
        if self.is_too_large() || b.is_too_large() {
            return Dim::too_large();
        }
        match (self.at_most(b), b.at_most(self)) {
            (Some(true), _) => self.clone(),
            (_, Some(true)) => b.clone(),
            _ => Dim::from_atom(ordered(self, b, Atom::Min)),
        }
    }

    pub fn greater(&self, b: &Dim) -> Dim {
        if self.is_too_large() || b.is_too_large() {
            return Dim::too_large();
        }
        match (self.at_most(b), b.at_most(self)) {
            (Some(true), _) => b.clone(),
            (_, Some(true)) => self.clone(),
            _ => Dim::from_atom(ordered(self, b, Atom::Max)),
        }
    }

    /// The common size of two broadcast sizes; `None` if they can never fit.
    pub fn broadcast(&self, b: &Dim) -> Option<Dim> {
        match (self, b) {
            _ if self.is_too_large() || b.is_too_large() => Some(Dim::too_large()),
            _ if self == b => Some(self.clone()),
            (Dim::Const(1), _) => Some(b.clone()),
            (_, Dim::Const(1)) => Some(self.clone()),
            (Dim::Const(_), Dim::Const(_)) => None,
            // The other one is 1 or the same at run time, or an error.
            _ if self.equals(&Dim::ONE) == Some(false) => Some(self.clone()),
            _ if b.equals(&Dim::ONE) == Some(false) => Some(b.clone()),
            _ => {
                // Order and repetition do not matter: all sizes that are not 1 are the same.
                let mut sizes = BTreeSet::new();
                self.broadcast_operands(&mut sizes);
                b.broadcast_operands(&mut sizes);
                sizes.into_iter().reduce(|all, d| Dim::from_atom(ordered(&all, &d, Atom::Broadcast)))
            }
        }
    }

    fn broadcast_operands(&self, sizes: &mut BTreeSet<Dim>) {
        if let Some(Atom::Broadcast(a, b)) = self.as_atom() {
            a.broadcast_operands(sizes);
            b.broadcast_operands(sizes);
        } else {
            sizes.insert(self.clone());
        }
    }

    /// Like [`Dim::broadcast`], but what can never fit is an expression that fails when evaluated.
    pub fn broadcast_at_run_time(&self, b: &Dim) -> Dim {
        self.broadcast(b).unwrap_or_else(|| Dim::from_atom(ordered(self, b, Atom::Broadcast)))
    }

    /// `self / b` where the division provably leaves no remainder for every value of the symbols with `b != 0`.
    pub fn exact_div(&self, b: &Dim) -> Option<Dim> {
        if let (Dim::Const(x), Dim::Const(y)) = (self, b) {
            return (*y != 0 && x.checked_rem(*y)? == 0).then(|| Dim::Const(x / y));
        }
        if self.is_too_large() || b.is_too_large() {
            return None;
        }
        if self == b {
            return Some(Dim::ONE);
        }
        let divisor = b.terms();
        if let [d] = &divisor[..] {
            return self.terms().iter().map(|t| t.exact_div(d)).collect::<Option<Vec<_>>>().map(Dim::from_terms);
        }
        if self.terms().len() == 1 {
            return None; // a sum times anything has more than one term
        }
        // Long division by a sum: cancel leading terms until nothing is left.
        let (mut rest, mut quotient) = (self.clone(), Dim::ZERO);
        for _ in 0..MAX_TERMS {
            if rest == Dim::ZERO {
                return Some(quotient);
            }
            let lead = leading(&rest.terms())?.exact_div(leading(&divisor)?)?;
            let lead = Dim::from_terms(vec![lead]);
            quotient = &quotient + &lead;
            rest = &rest - &(&lead * b);
        }
        None
    }

    /// Is this a multiple of `n` whatever the symbols are? `false` means "not provable".
    pub fn divisible_by(&self, n: i64) -> bool {
        n != 0 && self.terms().iter().all(|t| t.coef.checked_rem(n) == Some(0))
    }

    /// The value under an assignment of the symbols; `None` if a symbol is missing, a divisor is 0, or it overflows.
    pub fn eval(&self, of: &dyn Fn(&Sym) -> Option<i64>) -> Option<i64> {
        if let Dim::Const(c) = self {
            return Some(*c);
        }
        let mut sum = 0i128;
        for t in self.terms() {
            let mut product = i128::from(t.coef);
            for a in &t.factors {
                product = product.checked_mul(i128::from(a.eval(of)?))?;
            }
            sum = sum.checked_add(product)?;
        }
        i64::try_from(sum).ok()
    }

    /// Replace symbols; those mapped to `None` stay.
    pub fn subst(&self, of: &dyn Fn(&Sym) -> Option<Dim>) -> Dim {
        if let Dim::Const(_) = self {
            return self.clone();
        }
        self.terms().iter().fold(Dim::ZERO, |sum, t| {
            let product = t.factors.iter().fold(Dim::Const(t.coef), |p, a| &p * &a.subst(of));
            &sum + &product
        })
    }

    /// Call `f` for every symbol in the expression, in a fixed order.
    pub fn for_each_sym<'d>(&'d self, f: &mut dyn FnMut(&'d Sym)) {
        if let Dim::Sum(terms) = self {
            for a in terms.terms.iter().flat_map(|t| &t.factors) {
                if let Atom::Sym(s) = a {
                    f(s);
                } else if let Some((a, b)) = a.operands() {
                    a.for_each_sym(f);
                    b.for_each_sym(f);
                }
            }
        }
    }

    pub fn product<'d>(dims: impl IntoIterator<Item = &'d Dim>) -> Dim {
        dims.into_iter().fold(Dim::ONE, |p, d| &p * d)
    }

    /// The terms whose sum this is.
    pub fn terms(&self) -> Vec<Term> {
        match self {
            Dim::Const(0) => vec![],
            Dim::Const(c) => vec![Term { coef: *c, factors: vec![] }],
            Dim::Sum(t) => t.terms.clone(),
        }
    }

    fn as_atom(&self) -> Option<&Atom> {
        match self {
            Dim::Sum(t) => match &t.terms[..] {
                [Term { factors, coef: 1 }] if factors.len() == 1 => Some(&factors[0]),
                _ => None,
            },
            Dim::Const(_) => None,
        }
    }

    pub fn from_atom(a: Atom) -> Dim {
        Dim::limited(vec![Term { coef: 1, factors: vec![a] }])
    }

    fn limited(terms: Vec<Term>) -> Dim {
        let (mut size, mut depth) = (0, 0);
        for t in &terms {
            size += 1;
            for a in &t.factors {
                let (a_size, a_depth) = a.measure();
                (size, depth) = (size + a_size, depth.max(a_depth));
            }
        }
        if size > MAX_SIZE || depth > MAX_DEPTH {
            return Dim::too_large();
        }
        Dim::Sum(Arc::new(Sum { terms, size, depth }))
    }

    pub(crate) fn too_large() -> Dim {
        Dim::from_atom(Atom::TooLarge)
    }

    /// Did the expression exceed the limits on its way here?
    pub fn is_too_large(&self) -> bool {
        self.as_atom() == Some(&Atom::TooLarge)
    }

    /// How many terms and atoms there are, nested ones included, and how deeply atoms nest.
    pub fn measure(&self) -> (usize, usize) {
        match self {
            Dim::Const(_) => (1, 0),
            Dim::Sum(s) => (s.size, s.depth),
        }
    }

    /// The sum of terms whose coefficients are known to add up without overflow.
    pub fn from_terms(terms: Vec<Term>) -> Dim {
        Dim::collect(terms).expect("coefficients do not grow")
    }

    /// Merge equal products; `None` if a coefficient overflows.
    fn collect(terms: Vec<Term>) -> Option<Dim> {
        let mut sum: BTreeMap<Vec<Atom>, i64> = BTreeMap::new();
        for t in terms {
            let coef = sum.entry(t.factors).or_insert(0);
            *coef = coef.checked_add(t.coef)?;
        }
        let terms: Vec<Term> =
            sum.into_iter().filter(|(_, coef)| *coef != 0).map(|(factors, coef)| Term { factors, coef }).collect();
        Some(match &terms[..] {
            [] => Dim::ZERO,
            [Term { factors, coef }] if factors.is_empty() => Dim::Const(*coef),
            _ => Dim::limited(terms),
        })
    }
}

/// The largest term in an order that multiplication keeps: by degree, then by factors.
fn leading(terms: &[Term]) -> Option<&Term> {
    terms.iter().max_by_key(|t| (t.factors.len(), &t.factors))
}

impl Term {
    /// The quotient by another term if it leaves no remainder.
    pub fn exact_div(&self, d: &Term) -> Option<Term> {
        if d.coef == 0 || self.coef.checked_rem(d.coef)? != 0 {
            return None;
        }
        let mut factors = self.factors.clone();
        for a in &d.factors {
            factors.remove(factors.iter().position(|f| f == a)?);
        }
        Some(Term { coef: self.coef.checked_div(d.coef)?, factors })
    }
}

impl Atom {
    fn operands(&self) -> Option<(&Dim, &Dim)> {
        match self {
            Atom::Sym(_) | Atom::TooLarge => None,
            Atom::FloorDiv(a, b)
            | Atom::Min(a, b)
            | Atom::Max(a, b)
            | Atom::Broadcast(a, b)
            | Atom::Mul(a, b)
            | Atom::Add(a, b) => Some((a, b)),
        }
    }

    /// Size and depth.
    fn measure(&self) -> (usize, usize) {
        self.operands().map_or((1, 1), |(a, b)| {
            let ((a_size, a_depth), (b_size, b_depth)) = (a.measure(), b.measure());
            (1 + a_size + b_size, 1 + a_depth.max(b_depth))
        })
    }

    fn eval(&self, of: &dyn Fn(&Sym) -> Option<i64>) -> Option<i64> {
        Some(match self {
            Atom::Sym(s) => of(s)?,
            Atom::FloorDiv(a, b) => {
                let (a, b) = (a.eval(of)?, b.eval(of)?);
                if b == 0 || (a == i64::MIN && b == -1) {
                    return None;
                }
                floor_div(a, b)
            }
            Atom::Min(a, b) => a.eval(of)?.min(b.eval(of)?),
            Atom::Max(a, b) => a.eval(of)?.max(b.eval(of)?),
            Atom::Broadcast(a, b) => match (a.eval(of)?, b.eval(of)?) {
                (1, b) => b,
                (a, b) if a == b || b == 1 => a,
                _ => return None,
            },
            Atom::TooLarge => return None,
            Atom::Mul(a, b) => a.eval(of)?.checked_mul(b.eval(of)?)?,
            Atom::Add(a, b) => a.eval(of)?.checked_add(b.eval(of)?)?,
        })
    }

    fn subst(&self, of: &dyn Fn(&Sym) -> Option<Dim>) -> Dim {
        match self {
            Atom::Sym(s) => of(s).unwrap_or_else(|| Dim::from_atom(self.clone())),
            Atom::FloorDiv(a, b) => a.subst(of).floor_div(&b.subst(of)),
            Atom::Min(a, b) => a.subst(of).lesser(&b.subst(of)),
            Atom::Max(a, b) => a.subst(of).greater(&b.subst(of)),
            Atom::Broadcast(a, b) => a.subst(of).broadcast_at_run_time(&b.subst(of)),
            Atom::TooLarge => Dim::too_large(),
            Atom::Mul(a, b) => &a.subst(of) * &b.subst(of),
            Atom::Add(a, b) => &a.subst(of) + &b.subst(of),
        }
    }
}

fn ordered(a: &Dim, b: &Dim, atom: fn(Dim, Dim) -> Atom) -> Atom {
    if a <= b { atom(a.clone(), b.clone()) } else { atom(b.clone(), a.clone()) }
}

/// A symbol as it stands in texts: quoted unless it is made of letters, digits and underscores.
pub(crate) fn sym_text(s: &Sym) -> Cow<'_, str> {
    let name = s.strip_prefix('$').unwrap_or(s);
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain && !s.starts_with(|c: char| c.is_ascii_digit()) {
        Cow::Borrowed(s)
    } else {
        Cow::Owned(crate::print::quoted(s))
    }
}

/// Floor division for a non-zero divisor (not `i64::MIN / -1`).
fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }.abs()
}

fn floor_div(a: i64, b: i64) -> i64 {
    let q = a / b;
    if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

impl ops::Add for &Dim {
    type Output = Dim;
    fn add(self, o: &Dim) -> Dim {
        if let (Dim::Const(a), Dim::Const(b)) = (self, o)
            && let Some(c) = a.checked_add(*b)
        {
            return Dim::Const(c);
        }
        if self.is_too_large() || o.is_too_large() {
            return Dim::too_large();
        }
        let mut terms = self.terms();
        terms.extend(o.terms());
        let opaque = || Dim::from_atom(ordered(self, o, Atom::Add));
        Dim::collect(terms).filter(|d| d.terms().len() <= MAX_TERMS).unwrap_or_else(opaque)
    }
}

impl ops::Neg for &Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        self * &Dim::Const(-1)
    }
}

impl ops::Sub for &Dim {
    type Output = Dim;
    fn sub(self, o: &Dim) -> Dim {
        self + &-o
    }
}

impl ops::Mul for &Dim {
    type Output = Dim;
    fn mul(self, o: &Dim) -> Dim {
        let opaque = || Dim::from_atom(ordered(self, o, Atom::Mul));
        match (self, o) {
            _ if self.is_too_large() || o.is_too_large() => return Dim::too_large(),
            (Dim::Const(0), _) | (_, Dim::Const(0)) => return Dim::ZERO,
            (Dim::Const(1), d) | (d, Dim::Const(1)) => return d.clone(),
            (Dim::Const(a), Dim::Const(b)) => {
                return a.checked_mul(*b).map_or_else(opaque, Dim::Const);
            }
            _ => {}
        }
        let (a, b) = (self.terms(), o.terms());
        if a.len() * b.len() > MAX_TERMS {
            return opaque();
        }
        let mut terms = Vec::with_capacity(a.len() * b.len());
        for x in &a {
            for y in &b {
                let Some(coef) = x.coef.checked_mul(y.coef) else { return opaque() };
                let mut factors = [&x.factors[..], &y.factors[..]].concat();
                if factors.len() > MAX_TERMS {
                    return opaque();
                }
                factors.sort();
                terms.push(Term { coef, factors });
            }
        }
        Dim::collect(terms).unwrap_or_else(opaque)
    }
}

impl From<i64> for Dim {
    fn from(c: i64) -> Dim {
        Dim::Const(c)
    }
}

impl From<usize> for Dim {
    fn from(c: usize) -> Dim {
        Dim::Const(i64::try_from(c).expect("sizes fit in i64"))
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dim::Sum(terms) = self else { return write!(f, "{}", self.as_const().expect("a constant")) };
        for (i, t) in terms.terms.iter().rev().enumerate() {
            let (sign, coef) = if t.coef < 0 { ("-", t.coef.unsigned_abs()) } else { ("+", t.coef.unsigned_abs()) };
            match (i, sign) {
                (0, "+") => {}
                (0, _) => f.write_str("-")?,
                _ => write!(f, " {sign} ")?,
            }
            let mut parts: Vec<String> = t.factors.iter().map(ToString::to_string).collect();
            if coef != 1 || parts.is_empty() {
                parts.insert(0, coef.to_string());
            }
            f.write_str(&parts.join("*"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Sym(s) => f.write_str(&sym_text(s)),
            Atom::TooLarge => f.write_str("toolarge()"),
            Atom::FloorDiv(a, b) => write!(f, "floordiv({a}, {b})"),
            Atom::Min(a, b) => write!(f, "min({a}, {b})"),
            Atom::Max(a, b) => write!(f, "max({a}, {b})"),
            Atom::Broadcast(a, b) => write!(f, "bcast({a}, {b})"),
            Atom::Mul(a, b) => write!(f, "mul({a}, {b})"),
            Atom::Add(a, b) => write!(f, "add({a}, {b})"),
        }
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(name: &str) -> Dim {
        Dim::sym(name)
    }

    #[test]
    fn sums_and_products_are_canonical() {
        let (a, b) = (s("a"), s("b"));
        assert_eq!(&(&a + &b) * &(&a - &b), &(&a * &a) - &(&b * &b));
        assert_eq!((&(&a * &Dim::Const(12)) + &Dim::Const(3)).to_string(), "12*a + 3");
        assert_eq!(&a - &a, Dim::ZERO);
    }

    #[test]
    fn division_cancels() {
        let (b, q) = (s("batch"), s("seq"));
        let total = &(&b * &q) * &Dim::Const(768);
        assert_eq!(total.floor_div(&(&b * &q)), Dim::Const(768));
        assert_eq!(total.floor_div(&(&b * &Dim::Const(12))), &q * &Dim::Const(64));
        assert_eq!((&total + &Dim::Const(1)).floor_div(&Dim::Const(768)), &b * &q);
        let half = q.floor_div(&Dim::Const(2));
        assert_eq!(half.floor_div(&Dim::Const(2)), q.floor_div(&Dim::Const(4)));
        let sum = &(&b + &q) * &(&b - &Dim::ONE);
        assert_eq!(sum.exact_div(&(&b + &q)), Some(&b - &Dim::ONE));
    }

    #[test]
    fn division_loses_common_factors() {
        for (factor, constant, divisor, expected) in [(8, 3, 112, 0), (8, 15, 112, 1), (8, -1, 16, -1), (-6, 4, 9, 1)] {
            let dividend = &(&s("t") * &Dim::Const(factor)) + &Dim::Const(constant);
            let quotient = dividend.floor_div(&Dim::Const(divisor));
            let g = super::gcd(factor, divisor);
            let reduced = &(&s("t") * &Dim::Const(factor / g)) + &Dim::Const(expected);
            assert_eq!(quotient, reduced.floor_div(&Dim::Const(divisor / g)));
            for t in 0..50 {
                let exact = super::floor_div(factor * t + constant, divisor);
                assert_eq!(quotient.eval(&|_| Some(t)), Some(exact), "({factor} * {t} + {constant}) / {divisor}");
            }
        }
    }

    #[test]
    fn overflow_is_opaque_not_wrong() {
        let big = Dim::Const(i64::MAX);
        let square = &big * &big;
        assert_eq!(square.as_const(), None);
        assert_eq!(square.eval(&|_| None), None);
        assert_eq!((&big + &Dim::ONE).eval(&|_| None), None);
    }
}
