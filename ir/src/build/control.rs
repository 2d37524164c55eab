//! Branches, loops and sequences.
use super::{Graph, X};
use crate::{DType, Dim, Elem, Error, Func, Op, Result, Type, Value, dim::Sym, refuse};
use std::{collections::BTreeSet, sync::Arc};

/// What a loop body sees in each round.
#[derive(Debug)]
pub struct LoopBody<'b> {
    pub graph: &'b Graph,
    /// Number of the round, from 0.
    pub round: X<'b>,
    pub cond: X<'b>,
    pub states: Vec<X<'b>>,
    pub captures: Vec<X<'b>>,
}

/// What a loop body gives back: whether to go on, the next states, and a row for each stacked result.
#[derive(Debug)]
pub struct LoopOut<'b> {
    pub cond: X<'b>,
    pub states: Vec<X<'b>>,
    pub rows: Vec<X<'b>>,
}

/// How often the dimensions of states may need to be generalised before a loop's types settle, besides once per state.
const MAX_ROUNDS: usize = 8;

type Branch<'f, E> = &'f dyn for<'b> Fn(&'b Graph, &[X<'b>]) -> Result<Vec<X<'b>>, E>;

/// A nested function and what is known of its results besides their types.
struct Built {
    func: Func,
    optional: Vec<bool>,
    empty: Vec<bool>,
}

impl Built {
    /// Bring result `i` to the smaller rank that the other branch gives, by dropping axes that may have size 1.
    ///
    /// torch exports `squeeze` as a branch on a size, so the rank of the result depends on a value. The rank of the
    /// branch that squeezes is taken; where the other one runs and the size is not 1, its reshape fails at run time.
    fn squeeze_like(&mut self, i: usize, o: &Built) -> Result<()> {
        let result = self.func.results()[i];
        let (Type::Tensor(from), Type::Tensor(to)) = (self.func.ty(result), o.func.ty(o.func.results()[i])) else {
            return Ok(());
        };
        if from.rank() <= to.rank() || from.dtype != to.dtype {
            return Ok(());
        }
        let Some(shape) = subsequence(&from.shape, &to.shape) else { return Ok(()) };
        let squeezed = self.func.push(Op::Reshape { shape }, &[result])?;
        let mut results = self.func.results().to_vec();
        results[i] = squeezed;
        self.func.set_results(results);
        Ok(())
    }
}

/// `shape` without some axes that are not known to differ from 1, such that the rest may be `like`.
fn subsequence(shape: &[Dim], like: &[Dim]) -> Option<Vec<Dim>> {
    match (shape.split_first(), like.split_first()) {
        (None, None) => Some(vec![]),
        (None, Some(_)) => None,
        (Some((d, rest)), wanted) => {
            let keep = wanted.filter(|(w, _)| d.equals(w) != Some(false)).and_then(|(_, like)| subsequence(rest, like));
            match keep {
                Some(tail) => Some([&[d.clone()], &tail[..]].concat()),
                None if d.equals(&Dim::ONE) != Some(false) => subsequence(rest, like),
                None => None,
            }
        }
    }
}

impl Graph {
    /// Run one of two functions of the captured values. A condition known at compile time leaves only one of them.
    pub fn if_<'g, E: From<Error>>(
        &'g self,
        cond: X<'g>,
        captures: &[X<'g>],
        then: Branch<'_, E>,
        or: Branch<'_, E>,
    ) -> Result<Vec<X<'g>>, E> {
        let cond = cond.reshape(&[])?;
        if let Some(Some(known)) = cond.known().and_then(|k| k.into_iter().next())
            && let Some(c) = known.as_const()
        {
            return if c != 0 { then(self, captures) } else { or(self, captures) };
        }
        // Both are built before the first error is returned, so that both can report.
        let (then, or) = (self.branch(captures, then), self.branch(captures, or));
        let (mut then, mut or) = (then?, or?);
        let count = then.func.results().len();
        if count != or.func.results().len() {
            refuse!("the branches give {count} and {} results", or.func.results().len());
        }
        if then.optional != or.optional {
            refuse!("a result of one branch is an optional, of the other it is not");
        }
        for i in 0..count {
            then.squeeze_like(i, &or)?;
            or.squeeze_like(i, &then)?;
        }
        let outer = self.visible_syms();
        let mut types = Vec::new();
        for (i, (a, b)) in then.func.results().iter().zip(or.func.results()).enumerate() {
            let (a, b) = (then.func.ty(*a), or.func.ty(*b));
            // An empty sequence fits every type of elements.
            types.push(match (then.empty[i], or.empty[i]) {
                (true, false) if crate::infer::may_hold(a, b) => self.outside(b, &outer),
                (false, true) if crate::infer::may_hold(a, b) => self.outside(a, &outer),
                _ => self.joined(a, b, &outer)?,
            });
        }
        let op = Op::If { then: Arc::new(then.func), or: Arc::new(or.func), types };
        let tuple = self.raw(op, &[&[cond], &parts(captures)[..]].concat())?;
        let mut results = Vec::new();
        for i in 0..count {
            let x = X { optional: then.optional[i], ..tuple.get(i)? };
            if then.empty[i] && or.empty[i] {
                self.empty.borrow_mut().insert(x.v);
            }
            results.push(x);
        }
        Ok(results)
    }

    fn branch<E: From<Error>>(&self, captures: &[X<'_>], build: Branch<'_, E>) -> Result<Built, E> {
        let inner = self.nested();
        let args = inner.capture(captures)?;
        let results = build(&inner, &args)?;
        self.fresh.set(inner.fresh.get());
        let optional = results.iter().map(|x| x.optional).collect();
        let empty = results.iter().map(|x| x.is_empty_seq()).collect();
        let results = results.iter().map(|x| x.v).collect();
        Ok(Built { func: inner.into_body(results), optional, empty })
    }

    /// Repeat a body; see [`Op::Loop`]. States keep their element type and rank; their sizes may change from round
    /// to round, in which case the body is built again with symbols for those sizes.
    pub fn loop_<'g, E: From<Error>>(
        &'g self,
        trips: X<'g>,
        cond: X<'g>,
        states: &[X<'g>],
        captures: &[X<'g>],
        body: &dyn for<'b> Fn(LoopBody<'b>) -> Result<LoopOut<'b>, E>,
    ) -> Result<(Vec<X<'g>>, Vec<X<'g>>), E> {
        let (trips, cond) = (trips.cast(DType::I64)?.reshape(&[])?, cond.reshape(&[])?);
        let mut states = states.to_vec();
        let mut types: Vec<Type> = states.iter().map(|s| s.ty()).collect();
        let outer = self.visible_syms();
        // Symbols of this loop's own, for sizes that change from round to round.
        let mut own = BTreeSet::new();
        // The elements of a sequence that starts empty are what the body puts in.
        let mut empty: Vec<bool> = states.iter().map(|s| s.is_empty_seq()).collect();
        for _ in 0..MAX_ROUNDS + states.len() {
            let inner = self.nested();
            let round = inner.param(Type::scalar(DType::I64))?;
            let keep = inner.param(Type::scalar(DType::Bool))?;
            let mut params = Vec::new();
            for (i, t) in types.iter().enumerate() {
                let x = X { optional: states[i].optional, ..inner.param(t.clone())? };
                if empty[i] {
                    inner.empty.borrow_mut().insert(x.v);
                }
                params.push(x);
            }
            let args = inner.capture(captures)?;
            let mut out = body(LoopBody { graph: &inner, round, cond: keep, states: params.clone(), captures: args })?;
            if out.states.len() != states.len() {
                refuse!("the loop body gives {} states, not {}", out.states.len(), states.len());
            }
            for (i, (x, t)) in out.states.iter_mut().zip(&types).enumerate() {
                // A start that is never read says nothing about the rank, unless it is one element in any case.
                let one = x.shape().iter().all(|d| *d == Dim::ONE);
                if one || !inner.is_placeholder(params[i], x, t) {
                    *x = x.squeeze_like(t)?;
                }
            }
            let mut settled = true;
            for (i, (t, next)) in types.iter_mut().zip(&out.states).enumerate() {
                if states[i].optional != next.optional {
                    refuse!("state {i} of a loop is an optional only before or only after a round");
                }
                if inner.is_placeholder(params[i], next, t) {
                    *t = self.outside(&next.ty(), &outer);
                    states[i] = self.unread_start(trips, cond, t)?;
                    settled = false;
                    continue;
                }
                let still_empty = next.is_empty_seq();
                // Elements that come from different rounds share only what does not depend on the round.
                let general = match (&*t, next.ty()) {
                    _ if still_empty => t.clone(),
                    (Type::Seq(a), Type::Seq(b)) => {
                        let (joined, lasting) = (a.join(&b)?, lasting(&b, &outer));
                        Type::Seq(Box::new(if empty[i] { lasting } else { joined.join(&lasting)? }))
                    }
                    (_, ty) => inner.generalised(t, &ty, &mut own)?,
                };
                settled &= general == *t && (still_empty || !empty[i]);
                empty[i] &= still_empty;
                *t = general;
            }
            let out_cond = out.cond.reshape(&[])?;
            let endless = out_cond.v == keep.v || out_cond.as_number() == Some(1.0);
            let results: Vec<Value> =
                [out_cond.v].into_iter().chain(out.states.iter().chain(&out.rows).map(|x| x.v)).collect();
            let rows: Vec<Type> = out.rows.iter().map(|r| r.ty()).collect();
            self.fresh.set(inner.fresh.get());
            if !settled {
                continue;
            }
            let mut result_types: Vec<Type> = Vec::new();
            for t in &types {
                result_types.push(self.outside(t, &outer));
            }
            // The number of rounds is known if only the trip count ends the loop.
            let limit =
                trips.known().and_then(|k| k.into_iter().next().flatten()).filter(|d| *d != Dim::Const(i64::MAX));
            let rounds = match limit {
                Some(n) if endless && cond.as_number() == Some(1.0) => n.greater(&Dim::ZERO),
                _ => self.fresh_size(),
            };
            for t in &rows {
                let t = self.outside(t, &outer);
                let t = t.as_tensor()?;
                result_types.push(Type::tensor(t.dtype, [std::slice::from_ref(&rounds), &t.shape[..]].concat()));
            }
            let func = inner.into_body(results);
            let op = Op::Loop { states: states.len() as i64, body: Arc::new(func), types: result_types };
            let tuple = self.raw(op, &[&[trips, cond], &states[..], &parts(captures)[..]].concat())?;
            let mut last = (0..states.len() + rows.len()).map(|i| tuple.get(i)).collect::<Result<Vec<_>>>()?;
            let stacked = last.split_off(states.len());
            for (i, x) in last.iter_mut().enumerate() {
                x.optional = states[i].optional;
                if empty[i] {
                    self.empty.borrow_mut().insert(x.v);
                }
            }
            return Ok((last, stacked));
        }
        refuse!("the sizes of the loop's states do not settle")
    }

    /// Does a loop's body replace a state of another rank without reading it?
    fn is_placeholder(&self, param: X<'_>, next: &X<'_>, ty: &Type) -> bool {
        let (Type::Tensor(from), Type::Tensor(to)) = (ty, next.ty()) else { return false };
        let read = self.func.borrow().nodes().iter().any(|n| n.args.contains(&param.v));
        from.dtype == to.dtype && from.rank() < to.rank() && next.v != param.v && !read
    }

    /// Something of type `ty` for a state that the first round replaces (Paddle starts such states as scalars). If
    /// there is no first round, its first size is bound to a negative number, which is refused at run time.
    fn unread_start<'g>(&'g self, trips: X<'g>, cond: X<'g>, ty: &Type) -> Result<X<'g>> {
        let t = ty.as_tensor()?;
        // Sizes that only the body knows do not matter here.
        let defined = self.visible_syms();
        let known = |d: &Dim| {
            let mut all = true;
            d.for_each_sym(&mut |s| all &= defined.contains(s));
            if all { d.clone() } else { Dim::ZERO }
        };
        let mut shape: Vec<Dim> = t.shape.iter().map(known).collect();
        let first =
            self.map([cond, trips, self.size(&shape[0])?], |[go, n, d]| go.and(n.gt(0.0)).select(d, d.lit(-1.0)))?;
        shape[0] = first.to_sizes()?.remove(0);
        let any = match t.dtype {
            DType::Str => self.constant(crate::Tensor::from_strings(vec![], vec![String::new()])?)?,
            dtype => self.scalar(dtype, 0.0)?,
        };
        any.broadcast_to(&shape)
    }

    /// A graph for a nested function; its symbols are distinct from this one's.
    fn nested(&self) -> Graph {
        Graph { fresh: self.fresh.clone(), ..Graph::default() }
    }

    /// Parameters that stand for outer values. Constants are repeated inside, what is known outside stays known, and
    /// sequences of known structure are taken apart ([`parts`]) and put together again.
    fn capture<'b>(&'b self, outer: &[X<'_>]) -> Result<Vec<X<'b>>> {
        let mut params = Vec::new();
        for x in parts(outer) {
            let p = self.param(x.ty())?;
            if let Some(k) = x.known() {
                self.known.borrow_mut().insert(p.v, k);
            }
            if x.is_empty_seq() {
                self.empty.borrow_mut().insert(p.v);
            }
            params.push(p);
        }
        // Everything else comes after all parameters.
        let mut params = params.into_iter();
        outer.iter().map(|x| self.rebuild(*x, &mut params)).collect()
    }

    fn rebuild<'b>(&'b self, outer: X<'_>, params: &mut impl Iterator<Item = X<'b>>) -> Result<X<'b>> {
        let x = if let Some(items) = outer.as_seq() {
            let items = items.into_iter().map(|x| self.rebuild(x, params)).collect::<Result<Vec<_>>>()?;
            self.raw(Op::SeqMake { elem: outer.ty().as_seq()?.clone() }, &items)?
        } else {
            let Some(p) = params.next() else { refuse!("a captured value has no parameter") };
            outer.as_const().map_or(Ok(p), |t| self.constant(t))?
        };
        Ok(X { optional: outer.optional, ..x })
    }

    fn into_body(self, results: Vec<Value>) -> Func {
        let mut f = self.func.into_inner();
        f.set_results(results);
        f.without_dead_nodes()
    }

    /// Every symbol that values of this graph mention.
    fn visible_syms(&self) -> BTreeSet<Sym> {
        let mut syms = BTreeSet::new();
        self.func.borrow().nodes().iter().for_each(|n| {
            n.ty.for_each_sym(&mut |s| {
                syms.insert(s.clone());
            });
            if let Op::Bind { dim } = &n.op {
                syms.insert(dim.clone());
            }
        });
        syms
    }

    /// A nested result's type with the symbols that exist only inside replaced by new ones.
    fn outside(&self, ty: &Type, outer: &BTreeSet<Sym>) -> Type {
        ty.map_dims(&|d| {
            let mut local = false;
            d.for_each_sym(&mut |s| local |= !outer.contains(s));
            if local { self.fresh_size() } else { d.clone() }
        })
    }

    /// A type that both branch results have, with new symbols for sizes that differ.
    fn joined(&self, a: &Type, b: &Type, outer: &BTreeSet<Sym>) -> Result<Type> {
        match (a, b) {
            (Type::Tensor(x), Type::Tensor(y)) if x.dtype == y.dtype && x.rank() == y.rank() => {
                let shape: Vec<Dim> = x
                    .shape
                    .iter()
                    .zip(&y.shape)
                    .map(|(d, e)| if d == e { d.clone() } else { self.fresh_size() })
                    .collect();
                Ok(self.outside(&Type::tensor(x.dtype, shape), outer))
            }
            (Type::Seq(x), Type::Seq(y)) => Ok(self.outside(&Type::Seq(Box::new(x.join(y)?)), outer)),
            _ => refuse!("the branches give {a} and {b}"),
        }
    }

    /// The type of a loop state that starts as `t` and continues as `next`.
    fn generalised(&self, t: &Type, next: &Type, own: &mut BTreeSet<Sym>) -> Result<Type> {
        match (t, next) {
            (Type::Tensor(a), Type::Tensor(b)) if a.dtype == b.dtype && a.rank() == b.rank() => {
                let mut shape = a.shape.clone();
                for (d, e) in shape.iter_mut().zip(&b.shape) {
                    if d != e && !d.as_sym().is_some_and(|s| own.contains(s)) {
                        let sym = self.fresh(false);
                        own.insert(sym.clone());
                        *d = Dim::sym(sym);
                    }
                }
                Ok(Type::tensor(a.dtype, shape))
            }
            _ => refuse!("a loop state changes from {t} to {next}"),
        }
    }

    /// A sequence of the given elements.
    pub fn seq<'g>(&'g self, xs: &[X<'g>], elem: Option<Elem>) -> Result<X<'g>> {
        let mut all = elem;
        for x in xs {
            let e = Elem::of(&x.ty())?;
            all = Some(all.map_or(Ok(e.clone()), |a| a.join(&e))?);
        }
        match all {
            Some(elem) => self.raw(Op::SeqMake { elem }, xs),
            None => refuse!("an empty sequence needs an element type"),
        }
    }
}

impl<'g> X<'g> {
    /// This tensor with the smaller rank of a type, if dropping axes that may have size 1 gives it.
    fn squeeze_like(self, like: &Type) -> Result<X<'g>> {
        match (self.ty(), like) {
            (Type::Tensor(from), Type::Tensor(to)) if from.rank() > to.rank() => {
                subsequence(&from.shape, &to.shape).map_or(Ok(self), |shape| self.reshape(&shape))
            }
            _ => Ok(self),
        }
    }

    /// Result number `index` of an op with several.
    pub fn get(self, index: usize) -> Result<X<'g>> {
        self.g.raw(Op::Get { index: index as i64 }, &[self])
    }

    /// The elements of a sequence whose structure is known.
    pub fn as_seq(self) -> Option<Vec<X<'g>>> {
        let node = self.g.node(self.v);
        let x = |i: usize| X { v: node.args[i], optional: false, ..self };
        match &node.op {
            Op::SeqMake { .. } => Some((0..node.args.len()).map(x).collect()),
            Op::SeqInsert { .. } => {
                let mut items = x(0).as_seq()?;
                let at = place(x(1), items.len(), items.len() + 1)?;
                items.insert(at, x(2));
                Some(items)
            }
            Op::SeqErase { .. } => {
                let mut items = x(0).as_seq()?;
                let at = place(x(1), items.len(), items.len())?;
                items.remove(at);
                Some(items)
            }
            _ => None,
        }
    }

    /// Is this sequence known to be empty, or typed as if it were while the types of a loop settle?
    pub fn is_empty_seq(self) -> bool {
        self.g.empty.borrow().contains(&self.v) || self.as_seq().is_some_and(|items| items.is_empty())
    }

    /// This sequence of at most one element, as an ONNX optional.
    #[must_use]
    pub fn as_optional(self) -> X<'g> {
        X { optional: true, ..self }
    }

    pub fn is_optional(self) -> bool {
        self.optional
    }

    pub fn seq_len(self) -> Result<X<'g>> {
        match self.as_seq() {
            Some(items) => self.g.constant(crate::Tensor::from_i64(&[], &[items.len() as i64])),
            None => self.g.raw(Op::SeqLen {}, &[self]),
        }
    }

    /// Element at an index that may count from the end.
    pub fn seq_at(self, index: X<'g>) -> Result<X<'g>> {
        let index = index.cast(DType::I64)?.reshape(&[])?;
        if let Some(items) = self.as_seq()
            && let Some(i) = place(index, items.len(), items.len())
        {
            return Ok(items[i]);
        }
        let ty = match self.ty().as_seq()? {
            Elem::Seq(e) => Type::Seq(e.clone()),
            Elem::Tensor { shape: None, .. } => refuse!("the rank of the elements of {} is not known", self.ty()),
            Elem::Tensor { dtype, shape: Some(s) } => {
                let dims: Vec<Dim> = s.iter().map(|d| d.clone().unwrap_or_else(|| self.g.fresh_size())).collect();
                Type::tensor(*dtype, dims)
            }
        };
        self.g.raw(Op::SeqAt { ty }, &[self, index])
    }

    /// With `x` inserted before an index that may count from the end; at the end if there is none.
    pub fn seq_insert(self, index: Option<X<'g>>, x: X<'g>) -> Result<X<'g>> {
        let index = index.map_or_else(|| self.seq_len(), |i| i.cast(DType::I64)?.reshape(&[]))?;
        let (held, new) = (self.ty().as_seq()?.clone(), Elem::of(&x.ty())?);
        let joined = held.join(&new)?;
        let elem = if self.is_empty_seq() { new } else { joined };
        self.g.raw(Op::SeqInsert { elem }, &[self, index, x])
    }

    /// Without the element at an index that may count from the end; without the last if there is none.
    pub fn seq_erase(self, index: Option<X<'g>>) -> Result<X<'g>> {
        let index = match index {
            Some(i) => i.cast(DType::I64)?.reshape(&[])?,
            None => self.g.scalar(DType::I64, -1.0)?,
        };
        self.g.raw(Op::SeqErase {}, &[self, index])
    }
}

/// What is known of elements without the sizes that mention symbols other than the given ones.
fn lasting(elem: &Elem, syms: &BTreeSet<Sym>) -> Elem {
    let keep = |d: &Dim| {
        let mut all = true;
        d.for_each_sym(&mut |s| all &= syms.contains(s));
        all.then(|| d.clone())
    };
    match elem {
        Elem::Tensor { dtype, shape } => Elem::Tensor {
            dtype: *dtype,
            shape: shape.as_ref().map(|s| s.iter().map(|d| d.as_ref().and_then(keep)).collect()),
        },
        Elem::Seq(e) => Elem::Seq(Box::new(lasting(e, syms))),
    }
}

/// The values to pass into a nested function: sequences of known structure as their elements.
fn parts<'g>(captures: &[X<'g>]) -> Vec<X<'g>> {
    captures.iter().flat_map(|x| x.as_seq().map_or_else(|| vec![*x], |items| parts(&items))).collect()
}

/// A constant index that may count from the end of `len` elements, if it is below `limit`.
fn place(index: X<'_>, len: usize, limit: usize) -> Option<usize> {
    let i = *index.as_ints()?.first()?;
    let i = if i < 0 { i + len as i64 } else { i };
    usize::try_from(i).ok().filter(|&i| i < limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Tensor,
        eval::{Data, eval},
    };

    fn run(g: Graph, results: &[Value], args: &[Data]) -> Vec<Data> {
        eval(&g.finish(results), args).expect("evaluates")
    }

    fn number(n: i64) -> Data {
        Tensor::from_i64(&[], &[n]).into()
    }

    /// Append `element` to an empty sequence, round after round.
    fn appended<'g>(
        g: &'g Graph,
        trips: X<'g>,
        captures: &[X<'g>],
        element: &dyn for<'b> Fn(X<'b>, &[X<'b>]) -> Result<X<'b>>,
    ) -> Result<X<'g>> {
        let empty = g.seq(&[], Some(Elem::Tensor { dtype: DType::I64, shape: None }))?;
        let go = g.scalar(DType::Bool, 1.0)?;
        let (last, _) = g.loop_(trips, go, &[empty], captures, &|b| {
            let next = b.states[0].seq_insert(None, element(b.round, &b.captures)?)?;
            Ok::<_, Error>(LoopOut { cond: b.cond, states: vec![next], rows: vec![] })
        })?;
        Ok(last[0])
    }

    #[test]
    fn a_sequence_that_starts_empty_holds_what_the_loop_puts_in() -> Result<()> {
        let g = Graph::new();
        let trips = g.param(Type::scalar(DType::I64))?;
        let seq = appended(&g, trips, &[], &|round, _| round.reshape(&[Dim::ONE]))?;
        assert_eq!(seq.ty().to_string(), "seq<i64[1]>");
        let second = seq.seq_at(g.scalar(DType::I64, 1.0)?)?.v;
        assert_eq!(run(g, &[second], &[number(3)]), [Tensor::from_i64(&[1], &[1]).into()]);
        Ok(())
    }

    #[test]
    fn sizes_that_change_from_round_to_round_are_not_taken_for_all_elements() -> Result<()> {
        let g = Graph::new();
        let trips = g.param(Type::scalar(DType::I64))?;
        let seq = appended(&g, trips, &[], &|round, _| round.graph().range(DType::I64, &round.to_sizes()?[0]))?;
        assert_eq!(seq.ty().to_string(), "seq<i64[?]>");
        let last = seq.seq_at(g.scalar(DType::I64, -1.0)?)?.v;
        assert_eq!(run(g, &[last], &[number(3)]), [Tensor::from_i64(&[2], &[0, 1]).into()]);
        Ok(())
    }

    #[test]
    fn a_captured_sequence_of_known_structure_stays_known() -> Result<()> {
        let g = Graph::new();
        let (scalar, vector) = (Type::scalar(DType::I64), Type::tensor(DType::I64, [Dim::sym("n")]));
        let (cond, a, b) = (g.param(Type::scalar(DType::Bool))?, g.param(scalar)?, g.param(vector)?);
        // The elements differ in rank, so only their places tell their types.
        let seq = g.seq(&[a, b], None)?;
        let out =
            g.if_(cond, &[seq], &|g, xs| Ok::<_, Error>(vec![xs[0].seq_at(g.scalar(DType::I64, 0.0)?)?]), &|g, xs| {
                Ok(vec![xs[0].seq_at(g.scalar(DType::I64, 1.0)?)?.sum(&[0], false)?])
            })?[0];
        assert_eq!(out.ty(), Type::scalar(DType::I64));
        let no = Tensor::from_elems(DType::Bool, vec![], &crate::Elems::Int(vec![0]));
        let args = [no.into(), number(7), Tensor::from_i64(&[2], &[1, 2]).into()];
        let result = out.v;
        assert_eq!(run(g, &[result], &args), [number(3)]);
        Ok(())
    }
}
