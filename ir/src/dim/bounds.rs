//! What holds for all values of the symbols: intervals, and case analysis of `min` and `max` where intervals are too
//! coarse.
use super::{Atom, Dim, Sym, Term};

/// How many `min`, `max` and broadcasts of an expression are taken apart in a proof.
const MAX_CASES: usize = 6;

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
        let range = (self - b).range(&Range::of_sym);
        if range.low == 0 && range.high == 0 {
            Some(true)
        } else if range.low > 0 || range.high < 0 {
            Some(false)
        } else {
            None
        }
    }

    /// `Some(true)` if `self <= b` for all symbols, `Some(false)` if never, `None` if it depends.
    pub fn at_most(&self, b: &Dim) -> Option<bool> {
        let room = b - self;
        if room.never_negative(MAX_CASES) {
            Some(true)
        } else if room.range(&Range::of_sym).high < 0 {
            Some(false)
        } else {
            None
        }
    }

    /// Is this 0 or more for all symbols? `false` means "not provable".
    fn never_negative(&self, cases: usize) -> bool {
        if self.range(&Range::of_sym).low >= 0 {
            return true;
        }
        let Some((rest, coef, atom)) = self.choice().filter(|_| cases > 0) else { return false };
        let with = |x: &Dim| &rest + &(&Dim::Const(coef) * x);
        let holds = |x: &Dim| with(x).never_negative(cases - 1);
        match atom {
            // A maximum counted positively, or a minimum counted negatively, makes the sum at least what either
            // operand would make it. Otherwise the value is one of the two, and the claim must hold for both.
            Atom::Max(x, y) if coef > 0 => holds(&x) || holds(&y),
            Atom::Min(x, y) if coef < 0 => holds(&x) || holds(&y),
            Atom::Max(x, y) | Atom::Min(x, y) | Atom::Broadcast(x, y) => holds(&x) && holds(&y),
            _ => false,
        }
    }

    /// The first term that is a multiple of a `min`, `max` or broadcast, and the sum of the others.
    fn choice(&self) -> Option<(Dim, i64, Atom)> {
        let mut terms = self.terms();
        let is_choice = |t: &Term| matches!(&t.factors[..], [Atom::Max(..) | Atom::Min(..) | Atom::Broadcast(..)]);
        let at = terms.iter().position(is_choice)?;
        let mut term = terms.remove(at);
        Some((Dim::from_terms(terms), term.coef, term.factors.remove(0)))
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
        assert_eq!(rows.broadcast(&seq), Some(seq));
    }
}
