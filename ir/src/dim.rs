//! Symbolic dimensions: integer expressions over named symbols, kept in a normal form so that equal means `==`.
//!
//! A [`Dim`] is a sum of terms `coefficient * atom * atom …`. Sums, products and exact quotients are expanded;
//! what does not expand (floor division, min, max, broadcast) is an opaque atom over normalised operands. The rest of
//! the solver asks intervals: "cannot prove" is an answer, and callers must then not act.
use std::{collections::BTreeMap, fmt, ops, sync::Arc};

/// The name of a symbol. Names beginning with `$` stand for any integer, all others for sizes (0 or more).
pub type Sym = Arc<str>;

/// An integer expression over symbols, in normal form.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    Const(i64),
    /// Not a constant: terms in canonical order, none with coefficient 0.
    Sum(Arc<[Term]>),
}

/// `coef * factors[0] * factors[1] …`; the constant term has no factors.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Term {
    factors: Vec<Atom>,
    coef: i64,
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
}

/// Products with more terms than this stay opaque, so that no input makes expressions explode.
const MAX_TERMS: usize = 64;

/// A closed interval; the ends stand for infinity at the limits of `i64`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    pub low: i64,
    pub high: i64,
}

impl Range {
    pub const ANY: Range = Range { low: i64::MIN, high: i64::MAX };
    pub const SIZE: Range = Range { low: 0, high: i64::MAX };

    fn of(values: impl IntoIterator<Item = i64>) -> Range {
        let mut range = Range { low: i64::MAX, high: i64::MIN };
        for v in values {
            range = Range { low: range.low.min(v), high: range.high.max(v) };
        }
        range
    }

    fn add(self, o: Range) -> Range {
        Range { low: inf_add(self.low, o.low, i64::MIN), high: inf_add(self.high, o.high, i64::MAX) }
    }

    fn mul(self, o: Range) -> Range {
        Range::of([
            inf_mul(self.low, o.low),
            inf_mul(self.low, o.high),
            inf_mul(self.high, o.low),
            inf_mul(self.high, o.high),
        ])
    }
}

fn is_inf(x: i64) -> bool {
    x == i64::MIN || x == i64::MAX
}

fn inf_add(a: i64, b: i64, inf: i64) -> i64 {
    if a == inf || b == inf { inf } else { a.saturating_add(b) }
}

fn inf_mul(a: i64, b: i64) -> i64 {
    if a == 0 || b == 0 { 0 } else { a.saturating_mul(b) }
}

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
            Dim::Sum(t) => match &t[..] {
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
        for t in self.terms() {
            match Dim::from_terms(vec![t.clone()]).exact_div(b) {
                Some(q) => whole = &whole + &q,
                None => rest = &rest + &Dim::from_terms(vec![t]),
            }
        }
        if whole != Dim::ZERO {
            return &whole + &rest.floor_div(b);
        }
        // floor(floor(x / a) / b) = floor(x / (a*b)) for positive constants
        if let (Some(Atom::FloorDiv(x, Dim::Const(a))), Dim::Const(c)) = (self.as_atom(), b) {
            if let Some(product) = a.checked_mul(*c).filter(|_| *a > 0 && *c > 0) {
                return x.floor_div(&Dim::Const(product));
            }
        }
        let range = self.range(&Range::of_sym);
        if let Dim::Const(c) = b {
            if *c > 0 && range.low >= 0 && range.high < *c {
                return Dim::ZERO;
            }
        }
        Dim::from_atom(Atom::FloorDiv(self.clone(), b.clone()))
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
        match (self.at_most(b), b.at_most(self)) {
            (Some(true), _) => self.clone(),
            (_, Some(true)) => b.clone(),
            _ => Dim::from_atom(ordered(self, b, Atom::Min)),
        }
    }

    pub fn greater(&self, b: &Dim) -> Dim {
        match (self.at_most(b), b.at_most(self)) {
            (Some(true), _) => b.clone(),
            (_, Some(true)) => self.clone(),
            _ => Dim::from_atom(ordered(self, b, Atom::Max)),
        }
    }

    /// The common size of two broadcast sizes; `None` if they can never fit.
    pub fn broadcast(&self, b: &Dim) -> Option<Dim> {
        match (self, b) {
            _ if self == b => Some(self.clone()),
            (Dim::Const(1), _) => Some(b.clone()),
            (_, Dim::Const(1)) => Some(self.clone()),
            (Dim::Const(_), Dim::Const(_)) => None,
            // The other one is 1 or the same at run time, or an error.
            (Dim::Const(_), _) => Some(self.clone()),
            (_, Dim::Const(_)) => Some(b.clone()),
            _ => Some(Dim::from_atom(ordered(self, b, Atom::Broadcast))),
        }
    }

    /// `self / b` where the division provably leaves no remainder for every value of the symbols with `b != 0`.
    pub fn exact_div(&self, b: &Dim) -> Option<Dim> {
        if let (Dim::Const(x), Dim::Const(y)) = (self, b) {
            return (*y != 0 && x.checked_rem(*y)? == 0).then(|| Dim::Const(x / y));
        }
        if self == b {
            return Some(Dim::ONE);
        }
        let divisor = b.terms();
        if let [d] = &divisor[..] {
            return self.terms().iter().map(|t| t.exact_div(d)).collect::<Option<Vec<_>>>().map(Dim::from_terms);
        }
        // Long division by a sum: cancel leading terms until nothing is left.
        let (mut rest, mut quotient) = (self.clone(), Dim::ZERO);
        for _ in 0..MAX_TERMS {
            if rest == Dim::ZERO {
                return Some(quotient);
            }
            let lead = rest.terms().last()?.exact_div(divisor.last()?)?;
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

    /// `Some(true)` if equal for all symbols, `Some(false)` if never equal, `None` if it depends.
    pub fn equals(&self, b: &Dim) -> Option<bool> {
        let range = (self - b).range(&Range::of_sym);
        if self == b || (range.low == 0 && range.high == 0) {
            Some(true)
        } else if range.low > 0 || range.high < 0 {
            Some(false)
        } else {
            None
        }
    }

    /// `Some(true)` if `self <= b` for all symbols, `Some(false)` if never, `None` if it depends.
    pub fn at_most(&self, b: &Dim) -> Option<bool> {
        let range = (b - self).range(&Range::of_sym);
        if range.low >= 0 {
            Some(true)
        } else if range.high < 0 {
            Some(false)
        } else {
            None
        }
    }

    /// An interval that holds every value the expression can take, given the intervals of its symbols.
    pub fn range(&self, of: &dyn Fn(&Sym) -> Range) -> Range {
        let zero = Range { low: 0, high: 0 };
        self.terms().iter().fold(zero, |sum, t| {
            let coef = Range { low: t.coef, high: t.coef };
            sum.add(t.factors.iter().fold(coef, |product, a| product.mul(a.range(of))))
        })
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
            for a in terms.iter().flat_map(|t| &t.factors) {
                match a {
                    Atom::Sym(s) => f(s),
                    Atom::FloorDiv(a, b)
                    | Atom::Min(a, b)
                    | Atom::Max(a, b)
                    | Atom::Broadcast(a, b)
                    | Atom::Mul(a, b)
                    | Atom::Add(a, b) => {
                        a.for_each_sym(f);
                        b.for_each_sym(f);
                    }
                }
            }
        }
    }

    pub fn product<'d>(dims: impl IntoIterator<Item = &'d Dim>) -> Dim {
        dims.into_iter().fold(Dim::ONE, |p, d| &p * d)
    }

    fn terms(&self) -> Vec<Term> {
        match self {
            Dim::Const(0) => vec![],
            Dim::Const(c) => vec![Term { coef: *c, factors: vec![] }],
            Dim::Sum(t) => t.to_vec(),
        }
    }

    fn as_atom(&self) -> Option<&Atom> {
        match self {
            Dim::Sum(t) => match &t[..] {
                [Term { factors, coef: 1 }] if factors.len() == 1 => Some(&factors[0]),
                _ => None,
            },
            Dim::Const(_) => None,
        }
    }

    fn from_atom(a: Atom) -> Dim {
        Dim::Sum(Arc::new([Term { coef: 1, factors: vec![a] }]))
    }

    /// Normalise terms whose coefficients are known to add up without overflow.
    fn from_terms(terms: Vec<Term>) -> Dim {
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
            _ => Dim::Sum(terms.into()),
        })
    }
}

impl Term {
    fn exact_div(&self, d: &Term) -> Option<Term> {
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

impl Range {
    /// The interval of a symbol by its name's convention.
    pub fn of_sym(s: &Sym) -> Range {
        if s.starts_with('$') { Range::ANY } else { Range::SIZE }
    }
}

impl Atom {
    fn range(&self, of: &dyn Fn(&Sym) -> Range) -> Range {
        match self {
            Atom::Sym(s) => of(s),
            Atom::FloorDiv(a, b) => {
                let (a, b) = (a.range(of), b.range(of));
                if b.low <= 0 {
                    // Division by what may be zero or negative: only the sign of a size over a size is known.
                    return if b.low == 0 && a.low >= 0 { Range::SIZE } else { Range::ANY };
                }
                let div = |x: i64, y: i64| match (is_inf(x), is_inf(y)) {
                    (true, _) => x,
                    (false, true) => {
                        if x < 0 {
                            -1
                        } else {
                            0
                        }
                    }
                    _ => floor_div(x, y),
                };
                Range::of([div(a.low, b.low), div(a.low, b.high), div(a.high, b.low), div(a.high, b.high)])
            }
            Atom::Min(a, b) => {
                let (a, b) = (a.range(of), b.range(of));
                Range { low: a.low.min(b.low), high: a.high.min(b.high) }
            }
            Atom::Max(a, b) => {
                let (a, b) = (a.range(of), b.range(of));
                Range { low: a.low.max(b.low), high: a.high.max(b.high) }
            }
            Atom::Broadcast(a, b) => {
                let (a, b) = (a.range(of), b.range(of));
                Range { low: a.low.min(b.low), high: a.high.max(b.high) }
            }
            Atom::Mul(a, b) => a.range(of).mul(b.range(of)),
            Atom::Add(a, b) => a.range(of).add(b.range(of)),
        }
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
                (a, _) => a,
            },
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
            Atom::Broadcast(a, b) => {
                let (a, b) = (a.subst(of), b.subst(of));
                a.broadcast(&b).unwrap_or_else(|| Dim::from_atom(ordered(&a, &b, Atom::Broadcast)))
            }
            Atom::Mul(a, b) => &a.subst(of) * &b.subst(of),
            Atom::Add(a, b) => &a.subst(of) + &b.subst(of),
        }
    }
}

fn ordered(a: &Dim, b: &Dim, atom: fn(Dim, Dim) -> Atom) -> Atom {
    if a <= b { atom(a.clone(), b.clone()) } else { atom(b.clone(), a.clone()) }
}

/// Floor division for a non-zero divisor (not `i64::MIN / -1`).
fn floor_div(a: i64, b: i64) -> i64 {
    let q = a / b;
    if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

impl ops::Add for &Dim {
    type Output = Dim;
    fn add(self, o: &Dim) -> Dim {
        if let (Dim::Const(a), Dim::Const(b)) = (self, o) {
            if let Some(c) = a.checked_add(*b) {
                return Dim::Const(c);
            }
        }
        let mut terms = self.terms();
        terms.extend(o.terms());
        if terms.len() > MAX_TERMS {
            return Dim::from_atom(ordered(self, o, Atom::Add));
        }
        Dim::collect(terms).unwrap_or_else(|| Dim::from_atom(ordered(self, o, Atom::Add)))
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
        for (i, t) in terms.iter().rev().enumerate() {
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
            Atom::Sym(s) => f.write_str(s),
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
    fn bounds_decide_what_they_can() {
        let (a, x) = (s("a"), s("$x"));
        assert_eq!(a.at_most(&(&a + &Dim::ONE)), Some(true));
        assert_eq!(Dim::equals(&(&a + &Dim::ONE), &Dim::ZERO), Some(false));
        assert_eq!(Dim::equals(&x, &Dim::ZERO), None);
        assert_eq!(a.greater(&Dim::ZERO), a);
        assert_eq!(a.lesser(&(&a + &Dim::ONE)), a);
        assert_eq!(x.greater(&Dim::ZERO).at_most(&Dim::Const(-1)), Some(false));
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
