//! Loops: the types of what a loop carries from round to round are found by building its body until they settle.
use super::{
    Graph, X,
    control::{one_element_of_other_rank, parts},
};
use crate::{DType, Dim, Elem, Error, Op, Result, Type, Value, dim::Sym, refuse};
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

/// The states of a loop while their types settle.
struct States<'g> {
    init: Vec<X<'g>>,
    types: Vec<Type>,
    /// Sequences that start empty and to which nothing has been added: their elements are what the body puts in.
    empty: Vec<bool>,
    /// States whose start is of another type and never read: the first round decides their type.
    unread: BTreeSet<usize>,
    /// Single elements whose rank a round changes.
    open: BTreeSet<usize>,
    /// Symbols that exist outside of the loop.
    outer: BTreeSet<Sym>,
    /// Symbols of this loop's own, for sizes that change from round to round.
    own: BTreeSet<Sym>,
}

impl Graph {
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
        let mut settling = States::new(self, states);
        for _ in 0..MAX_ROUNDS + states.len() {
            let inner = self.nested();
            let round = inner.param(Type::scalar(DType::I64))?;
            let keep = inner.param(Type::scalar(DType::Bool))?;
            let params = settling.params(&inner)?;
            let args = inner.capture(captures)?;
            let mut out = body(LoopBody { graph: &inner, round, cond: keep, states: params.clone(), captures: args })?;
            if out.states.len() != states.len() {
                refuse!("the loop body gives {} states, not {}", out.states.len(), states.len());
            }
            let out_cond = out.cond.reshape(&[])?;
            let mut settled = true;
            let given: Vec<Value> = out.states.iter().chain(&out.rows).chain([&out_cond]).map(|x| x.v).collect();
            for (i, (param, next)) in params.iter().zip(&mut out.states).enumerate() {
                settled &= settling.settle(&inner, i, *param, next, &given)?;
            }
            self.fresh.set(inner.fresh.get());
            if !settled {
                continue;
            }
            let endless = out_cond.v == keep.v || out_cond.as_number() == Some(1.0);
            let results: Vec<Value> =
                [out_cond.v].into_iter().chain(out.states.iter().chain(&out.rows).map(|x| x.v)).collect();
            let rows: Vec<Type> = out.rows.iter().map(|r| r.ty()).collect();
            let mut types: Vec<Type> = settling.types.iter().map(|t| self.outside(t, &settling.outer)).collect();
            // The number of rounds is known if only the trip count ends the loop.
            let limit =
                trips.known().and_then(|k| k.into_iter().next().flatten()).filter(|d| *d != Dim::Const(i64::MAX));
            let rounds = match limit {
                Some(n) if endless && cond.as_number() == Some(1.0) => n.greater(&Dim::ZERO),
                _ => self.fresh_size(),
            };
            for t in &rows {
                let t = self.outside(t, &settling.outer);
                let t = t.as_tensor()?;
                types.push(Type::tensor(t.dtype, [std::slice::from_ref(&rounds), &t.shape[..]].concat()));
            }
            let func = inner.into_body(results);
            let op = Op::Loop { states: states.len() as i64, body: Arc::new(func), types };
            let init = settling.start(trips, cond)?;
            let tuple = self.raw(op, &[&[trips, cond], &init[..], &parts(captures)[..]].concat())?;
            let mut last = (0..states.len() + rows.len()).map(|i| tuple.get(i)).collect::<Result<Vec<_>>>()?;
            let stacked = last.split_off(states.len());
            for (i, x) in last.iter_mut().enumerate() {
                x.optional = states[i].optional;
                if settling.empty[i] {
                    self.empty.borrow_mut().insert(x.v);
                }
                if settling.open.contains(&i) {
                    self.open_rank.borrow_mut().insert(x.v);
                }
            }
            return Ok((last, stacked));
        }
        refuse!("the sizes of the loop's states do not settle")
    }
}

impl<'g> States<'g> {
    fn new(g: &'g Graph, init: &[X<'g>]) -> States<'g> {
        States {
            init: init.to_vec(),
            types: init.iter().map(|s| s.ty()).collect(),
            empty: init.iter().map(|s| s.is_empty_seq()).collect(),
            unread: BTreeSet::new(),
            open: BTreeSet::new(),
            outer: g.visible_syms(),
            own: BTreeSet::new(),
        }
    }

    /// Parameters of a body for the states as they are typed now.
    fn params<'b>(&self, inner: &'b Graph) -> Result<Vec<X<'b>>> {
        let mut params = Vec::new();
        for (i, t) in self.types.iter().enumerate() {
            let x = X { optional: self.init[i].optional, ..inner.param(t.clone())? };
            if self.empty[i] {
                inner.empty.borrow_mut().insert(x.v);
            }
            params.push(x);
        }
        Ok(params)
    }

    /// Widen the type of state `i` to what it is after a round; says whether it was wide enough already. `results` are
    /// all that the body gives back.
    fn settle(&mut self, inner: &Graph, i: usize, param: X<'_>, next: &mut X<'_>, results: &[Value]) -> Result<bool> {
        if self.init[i].optional != next.optional {
            refuse!("state {i} of a loop is an optional only before or only after a round");
        }
        if next.has_open_rank() {
            self.open.insert(i);
        }
        let still_empty = next.is_empty_seq();
        let (before, after) = (self.types[i].clone(), next.ty());
        let general = match (&before, &after) {
            _ if still_empty => before.clone(),
            (Type::Seq(a), Type::Seq(b)) => {
                // Elements that come from different rounds share only what does not depend on the round.
                let (joined, lasting) = (a.join(b)?, lasting(b, &self.outer));
                Type::Seq(Box::new(if self.empty[i] { lasting } else { joined.join(&lasting)? }))
            }
            (Type::Tensor(a), Type::Tensor(b)) if one_element_of_other_rank(a, b) => {
                self.open.insert(i);
                if a.rank() < b.rank() {
                    after
                } else {
                    *next = next.reshape(&a.shape)?;
                    before.clone()
                }
            }
            (Type::Tensor(a), Type::Tensor(b)) if a.dtype == b.dtype && a.rank() == b.rank() => {
                let mut shape = a.shape.clone();
                for (d, e) in shape.iter_mut().zip(&b.shape) {
                    if d != e && !d.as_sym().is_some_and(|s| self.own.contains(s)) {
                        *d = self.own_size(inner);
                    }
                }
                Type::tensor(a.dtype, shape)
            }
            (_, Type::Tensor(b)) if !self.unread.contains(&i) && !inner.reads(param.v, results) => {
                self.unread.insert(i);
                let mut shape = b.shape.clone();
                for d in &mut shape {
                    if mentions_other(d, &self.outer) {
                        *d = self.own_size(inner);
                    }
                }
                Type::tensor(b.dtype, shape)
            }
            _ => refuse!("a loop state changes from {before} to {after}"),
        };
        let settled = general == before && (still_empty || !self.empty[i]);
        self.empty[i] &= still_empty;
        self.types[i] = general;
        Ok(settled)
    }

    fn own_size(&mut self, inner: &Graph) -> Dim {
        let sym = inner.fresh(false);
        self.own.insert(sym.clone());
        Dim::sym(sym)
    }

    /// What the states start with, as the body takes it.
    fn start(&self, trips: X<'g>, cond: X<'g>) -> Result<Vec<X<'g>>> {
        let mut init = self.init.clone();
        for (i, (x, t)) in init.iter_mut().zip(&self.types).enumerate() {
            let Type::Tensor(to) = t else { continue };
            if self.unread.contains(&i) {
                // Any value of the right type will do, as long as there is a round that replaces it.
                let first = x.g.map([trips, cond], |[n, go]| n.gt(0.0).and(go))?;
                let zero = first.demanded(true)?;
                let size = |d: &Dim| if mentions_other(d, &self.outer) { zero.clone() } else { d + &zero };
                *x = x.g.filler(to.dtype)?.broadcast_to(&to.shape.iter().map(size).collect::<Vec<_>>())?;
            } else if one_element_of_other_rank(x.ty().as_tensor()?, to) {
                *x = x.reshape(&to.shape)?;
            }
        }
        Ok(init)
    }
}

impl Graph {
    /// Does anything on the way to the results read the value?
    fn reads(&self, v: Value, results: &[Value]) -> bool {
        let mut f = self.func.borrow().clone();
        f.set_results(results.to_vec());
        // Parameters stay, so the value keeps its number.
        let f = f.without_dead_nodes();
        f.results().contains(&v) || f.nodes().iter().any(|n| n.args.contains(&v))
    }

    /// Some scalar of a type.
    fn filler(&self, dtype: DType) -> Result<X<'_>> {
        match dtype {
            DType::Str => self.constant(crate::Tensor::from_strings(vec![], vec![String::new()])?),
            _ => self.scalar(dtype, 0.0),
        }
    }
}

fn mentions_other(d: &Dim, syms: &BTreeSet<Sym>) -> bool {
    let mut other = false;
    d.for_each_sym(&mut |s| other |= !syms.contains(s));
    other
}

/// What is known of elements without the sizes that mention symbols other than the given ones.
fn lasting(elem: &Elem, syms: &BTreeSet<Sym>) -> Elem {
    let keep = |d: &Dim| (!mentions_other(d, syms)).then(|| d.clone());
    match elem {
        Elem::Tensor { dtype, shape } => Elem::Tensor {
            dtype: *dtype,
            shape: shape.as_ref().map(|s| s.iter().map(|d| d.as_ref().and_then(keep)).collect()),
        },
        Elem::Seq(e) => Elem::Seq(Box::new(lasting(e, syms))),
    }
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
    fn a_state_that_is_written_before_it_is_read_may_start_as_anything() -> Result<()> {
        let g = Graph::new();
        let (trips, x) = (g.param(Type::scalar(DType::I64))?, g.param(Type::tensor(DType::I64, [Dim::sym("n")]))?);
        let dummy = g.scalar(DType::F32, 0.0)?;
        let (last, _) = g.loop_(trips, g.scalar(DType::Bool, 1.0)?, &[dummy], &[x], &|b| {
            let next = b.graph.map([b.captures[0], b.round], |[x, i]| x + i)?;
            Ok::<_, Error>(LoopOut { cond: b.cond, states: vec![next], rows: vec![] })
        })?;
        let result = last[0].v;
        let f = g.finish(&[result]);
        let run = |n: i64| eval(&f, &[number(n), Tensor::from_i64(&[2], &[5, 6]).into()]);
        assert_eq!(run(3), Ok(vec![Tensor::from_i64(&[2], &[7, 8]).into()]));
        assert!(run(0).is_err());
        Ok(())
    }
}
