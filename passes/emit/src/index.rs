//! The values of symbolic indices: the same in every lane, or one for each.
use crate::element::{ComputedLanes, ElementEmitter};
use numrsc_ir::{
    Dim,
    dim::{Atom, Range, Sym},
    kernel::{Binary, Compare, V},
};
use numrsc_schedule::index::{linear_in, mentions};

/// An index for all lanes of a vector.
pub(crate) enum Index {
    /// The same in every lane.
    Uniform(V),
    /// `base + lane * step`
    Steps(V, i64),
    Lanes(Vec<V>),
}

impl ElementEmitter<'_> {
    /// The value of an expression that is the same in every lane.
    pub(crate) fn uniform(&mut self, x: &Dim) -> V {
        if let Some(c) = x.as_const() {
            return self.b.i64(c);
        }
        // Adds the terms that are known outermost first, so that only the last addition remains in the inner loop.
        let mut parts: Vec<(usize, V)> = Vec::new();
        for t in x.terms() {
            let mut factors: Vec<V> = t.factors.iter().map(|f| self.atom(f)).collect();
            factors.sort_by_key(|&v| (self.b.level(v), v));
            let coef = self.b.i64(t.coef);
            let product = factors.into_iter().fold(coef, |p, v| self.b.mul(p, v));
            parts.push((self.b.level(product), product));
        }
        parts.sort();
        let (_, first) = parts[0];
        parts[1..].iter().fold(first, |sum, &(_, v)| self.b.add(sum, v))
    }

    pub(crate) fn atom(&mut self, a: &Atom) -> V {
        match a {
            Atom::Sym(s) => self.symbol(s),
            Atom::FloorDiv(x, y) => {
                let positive = |d: &Dim| d.range(&Range::of_sym).low >= 0;
                let unsigned = positive(x) && positive(y);
                let (x, y) = (self.uniform(x), self.uniform(y));
                if unsigned { self.b.udiv(x, y) } else { floor_div(self.b, x, y) }
            }
            Atom::Min(x, y) => self.combine(Binary::SMin, x, y),
            Atom::Max(x, y) => self.combine(Binary::SMax, x, y),
            Atom::Mul(x, y) => self.combine(Binary::Mul, x, y),
            Atom::Add(x, y) => self.combine(Binary::Add, x, y),
            Atom::Broadcast(x, y) => {
                let (x, y, one) = (self.uniform(x), self.uniform(y), self.b.i64(1));
                let is_one = self.b.compare(Compare::Eq, x, one);
                self.b.select(is_one, y, x)
            }
            Atom::TooLarge => {
                self.state.refuse("an index is too large an expression");
                self.b.i64(0)
            }
        }
    }

    pub(crate) fn combine(&mut self, op: Binary, x: &Dim, y: &Dim) -> V {
        let (x, y) = (self.uniform(x), self.uniform(y));
        self.b.binary(op, x, y)
    }

    /// The value of an index in all lanes.
    pub(crate) fn index(&mut self, x: &Dim) -> Index {
        let Some(lane) = self.lane.clone() else { return Index::Uniform(self.uniform(x)) };
        let varies = mentions(x, &lane.sym) || self.varying.keys().any(|s| mentions(x, s));
        if !varies {
            return Index::Uniform(self.uniform(x));
        }
        if let Some((Dim::Const(step), rest)) = linear_in(x, &lane.sym)
            && !self.varying.keys().any(|s| mentions(&rest, s))
        {
            let first = &rest + &(&Dim::sym(lane.sym.clone()) * &Dim::Const(step));
            return Index::Steps(self.uniform(&first), step);
        }
        Index::Lanes((0..self.lanes).map(|l| self.in_lane(l, |em| em.uniform(x))).collect())
    }

    /// Emits code for one lane alone: the loop variable has its value for that lane.
    pub(crate) fn in_lane<R>(&mut self, number: u32, f: impl FnOnce(&mut Self) -> R) -> R {
        let lane = self.lane.take().expect("there are lanes");
        let (lanes, before) = (self.lanes, self.computing);
        let mut replaced: Vec<(Sym, Option<V>)> = Vec::new();
        let step = self.b.i64(i64::from(number));
        let at = self.b.add(lane.base, step);
        replaced.push((lane.sym.clone(), self.symbols.insert(lane.sym.clone(), at)));
        // Indices loaded for fewer lanes belong to loops that have ended.
        let varying: Vec<(Sym, V)> =
            self.varying.iter().filter_map(|(s, vs)| Some((s.clone(), *vs.get(number as usize)?))).collect();
        for (s, v) in varying {
            let old = self.symbols.insert(s.clone(), v);
            replaced.push((s, old));
        }
        self.lanes = 1;
        self.computing = ComputedLanes::One(number);
        let r = f(self);
        for (s, old) in replaced {
            match old {
                Some(v) => self.symbols.insert(s, v),
                None => self.symbols.remove(&s),
            };
        }
        (self.lane, self.lanes, self.computing) = (Some(lane), lanes, before);
        r
    }

    /// Emits code once whose value is the same in all lanes.
    pub(crate) fn in_all_lanes<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        if self.lane.is_none() {
            // One lane alone, or none: its computed elements are kept apart from those of other lanes.
            return f(self);
        }
        let (lane, lanes) = (self.lane.take(), self.lanes);
        let before = self.computing;
        self.lanes = 1;
        self.computing = ComputedLanes::Uniform;
        let r = f(self);
        (self.lane, self.lanes, self.computing) = (lane, lanes, before);
        r
    }
}

/// Division that rounds down; any value if the divisor is 0.
pub(crate) fn floor_div(b: &mut numrsc_ir::kernel::build::Builder, x: V, y: V) -> V {
    let (q, r) = b.sdivrem(x, y);
    let (zero, one) = (b.i64(0), b.i64(1));
    let inexact = b.compare(Compare::Ne, r, zero);
    let signs = b.binary(Binary::Xor, r, y);
    let differ = b.compare(Compare::Lt, signs, zero);
    let down = b.and(inexact, differ);
    let lower = b.sub(q, one);
    b.select(down, lower, q)
}
