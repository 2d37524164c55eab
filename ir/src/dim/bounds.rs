//! What holds for all values of the symbols: intervals, and case analysis of `min` and `max` where intervals are too
//! coarse.
use super::{Atom, Dim, Sym};

/// How many atoms of a sum a proof takes apart, and of how many terms.
const MAX_CASES: u32 = 4;
const MAX_CASE_TERMS: usize = 8;

/// A closed interval; the ends stand for infinity at the limits of `i64`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    pub low: i64,
    pub high: i64,
}

impl Range {
    pub const ANY: Range = Range { low: i64::MIN, high: i64::MAX };
    pub const SIZE: Range = Range { low: 0, high: i64::MAX };

    fn wide(self) -> Wide {
        Wide {
            low: if self.low == i64::MIN { -INF } else { i128::from(self.low) },
            high: if self.high == i64::MAX { INF } else { i128::from(self.high) },
        }
    }

    /// The interval of a symbol by its name's convention.
    pub fn of_sym(s: &Sym) -> Range {
        if s.starts_with('$') { Range::ANY } else { Range::SIZE }
    }
}

/// Larger than every number that evaluates; products of two such numbers are still exact in `i128`.
const INF: i128 = 1 << 100;

/// An interval of exact numbers. A `low` of `-INF` and a `high` of `INF` mean unbounded; the other two are bounds like
/// any other, so rounding toward them is sound.
#[derive(Clone, Copy)]
struct Wide {
    low: i128,
    high: i128,
}

impl Wide {
    fn of(values: [i128; 4]) -> Wide {
        Wide { low: values.into_iter().fold(INF, i128::min), high: values.into_iter().fold(-INF, i128::max) }
    }

    fn narrow(self) -> Range {
        let clamp = |x: i128| x.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        Range { low: clamp(self.low), high: clamp(self.high) }
    }

    fn add(self, o: Wide) -> Wide {
        let low = if self.low == -INF || o.low == -INF { -INF } else { self.low + o.low };
        let high = if self.high == INF || o.high == INF { INF } else { self.high + o.high };
        Wide { low: low.clamp(-INF, INF), high: high.clamp(-INF, INF) }
    }

    fn mul(self, o: Wide) -> Wide {
        let m = |a: i128, b: i128| a.saturating_mul(b).clamp(-INF, INF);
        Wide::of([m(self.low, o.low), m(self.low, o.high), m(self.high, o.low), m(self.high, o.high)])
    }

    /// For positive divisors.
    fn floor_div(self, o: Wide) -> Wide {
        let div = |x: i128, y: i128| match (x.abs() == INF, y == INF) {
            (true, _) => x,
            (false, true) => -i128::from(x < 0),
            _ => x.div_euclid(y),
        };
        Wide::of([div(self.low, o.low), div(self.low, o.high), div(self.high, o.low), div(self.high, o.high)])
    }
}

impl Dim {
    /// `Some(true)` if equal for all symbols, `Some(false)` if never equal, `None` if it depends.
    pub fn equals(&self, b: &Dim) -> Option<bool> {
        if self == b && !self.is_too_large() {
            return Some(true);
        }
        match (self.at_most(b), b.at_most(self)) {
            (Some(true), Some(true)) => Some(true),
            (Some(false), _) | (_, Some(false)) => Some(false),
            _ => None,
        }
    }

    /// `Some(true)` if `self <= b` for all symbols, `Some(false)` if never, `None` if it depends.
    pub fn at_most(&self, b: &Dim) -> Option<bool> {
        let room = b - self;
        if room.never_negative(MAX_CASES) {
            Some(true)
        } else if (&-&room - &Dim::ONE).never_negative(MAX_CASES) {
            Some(false)
        } else {
            None
        }
    }

    /// Is this 0 or more for all symbols? Where intervals do not tell, one `min`, `max`, broadcast or floor division
    /// after the other is replaced by its cases or by its bound, so that what they share with other terms cancels.
    fn never_negative(&self, cases: u32) -> bool {
        if self.wide_range(&Range::of_sym).low >= 0 {
            return true;
        }
        let Dim::Sum(sum) = self else { return false };
        if cases == 0 || sum.terms.len() > MAX_CASE_TERMS {
            return false;
        }
        sum.terms.iter().any(|t| {
            let [atom] = &t.factors[..] else { return false };
            let rest = || self - &Dim::from_terms(vec![t.clone()]);
            let coef = Dim::Const(t.coef);
            let holds_with = |d: &Dim| (&rest() + &(&coef * d)).never_negative(cases - 1);
            match atom {
                // The smaller of two sums is either of them, and the larger one is at least both.
                Atom::Min(a, b) if t.coef < 0 => holds_with(a) || holds_with(b),
                Atom::Max(a, b) if t.coef > 0 => holds_with(a) || holds_with(b),
                Atom::Min(a, b) | Atom::Max(a, b) | Atom::Broadcast(a, b) => holds_with(a) && holds_with(b),
                // a - c + 1 <= c * floor(a / c) <= a; and floor(a / (c*d)) = floor(floor(a / d) / c)
                Atom::FloorDiv(a, Dim::Const(c)) if *c > 0 => {
                    let holds_between = |a: &Dim, c: i64| {
                        let bound = if t.coef > 0 { a - &Dim::Const(c - 1) } else { a.clone() };
                        (&(&rest() * &Dim::Const(c)) + &(&coef * &bound)).never_negative(cases - 1)
                    };
                    let finer = |f: &Atom| match f {
                        Atom::FloorDiv(b, Dim::Const(d)) if a == b && *d > 0 && d < c && c % d == 0 => {
                            holds_between(&Dim::from_atom(f.clone()), c / d)
                        }
                        _ => false,
                    };
                    holds_between(a, *c) || sum.terms.iter().any(|t| t.factors.len() == 1 && finer(&t.factors[0]))
                }
                _ => false,
            }
        })
    }

    /// An interval that holds every value the expression can take, given the intervals of its symbols.
    pub fn range(&self, of: &dyn Fn(&Sym) -> Range) -> Range {
        self.wide_range(of).narrow()
    }

    fn wide_range(&self, of: &dyn Fn(&Sym) -> Range) -> Wide {
        self.terms().iter().fold(Wide { low: 0, high: 0 }, |sum, t| {
            let coef = Wide { low: t.coef.into(), high: t.coef.into() };
            sum.add(t.factors.iter().fold(coef, |product, a| product.mul(a.range(of))))
        })
    }
}

impl Atom {
    fn range(&self, of: &dyn Fn(&Sym) -> Range) -> Wide {
        match self {
            Atom::Sym(s) => of(s).wide(),
            Atom::TooLarge => Range::ANY.wide(),
            Atom::FloorDiv(a, b) => {
                let (a, b) = (a.wide_range(of), b.wide_range(of));
                if b.low <= 0 {
                    // Division by what may be zero or negative: only the sign of a size over a size is known.
                    return if b.low == 0 && a.low >= 0 { Range::SIZE.wide() } else { Range::ANY.wide() };
                }
                a.floor_div(b)
            }
            Atom::Min(a, b) => {
                let (a, b) = (a.wide_range(of), b.wide_range(of));
                Wide { low: a.low.min(b.low), high: a.high.min(b.high) }
            }
            Atom::Max(a, b) => {
                let (a, b) = (a.wide_range(of), b.wide_range(of));
                Wide { low: a.low.max(b.low), high: a.high.max(b.high) }
            }
            Atom::Broadcast(a, b) => {
                let (a, b) = (a.wide_range(of), b.wide_range(of));
                Wide { low: a.low.min(b.low), high: a.high.max(b.high) }
            }
            Atom::Mul(a, b) => a.wide_range(of).mul(b.wide_range(of)),
            Atom::Add(a, b) => a.wide_range(of).add(b.wide_range(of)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(name: &str) -> Dim {
        Dim::sym(name)
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
    fn cases_decide_what_intervals_cannot() {
        // How torch slices a causal mask: [past : past + seq] of 1024 rows, at most seq of them.
        let (past, seq) = (s("past"), s("seq"));
        let rows = (&(&past + &seq).lesser(&Dim::Const(1024)) - &past).greater(&Dim::ZERO);
        assert_eq!(rows.at_most(&seq), Some(true));
        assert_eq!(seq.at_most(&rows), None);
    }
}
