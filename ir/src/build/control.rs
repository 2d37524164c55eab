//! Branches, and what is common to all nested functions: what they capture and which types they give.
use super::{Graph, X};
use crate::{DType, Dim, Error, Func, Op, Result, TensorType, Type, Value, dim::Sym, refuse};
use std::{collections::BTreeSet, sync::Arc};

type Branch<'f, E> = &'f dyn for<'b> Fn(&'b Graph, &[X<'b>]) -> Result<Vec<X<'b>>, E>;

/// A branch under construction, and its results with whether they are optionals.
struct Built {
    graph: Graph,
    results: Vec<(Value, bool)>,
}

/// A nested function and what is known of its results besides their types.
struct Finished {
    func: Func,
    optional: Vec<bool>,
    empty: Vec<bool>,
}

impl Built {
    fn x(&self, i: usize) -> X<'_> {
        let (v, optional) = self.results[i];
        X { g: &self.graph, v, optional }
    }

    /// Bring result `i` of two branches to the same rank if it is one element; otherwise says whether the first branch
    /// gives the lower rank.
    fn agree(a: &mut Built, b: &mut Built, i: usize, open: &mut BTreeSet<usize>) -> Result<Option<bool>> {
        if a.x(i).has_open_rank() || b.x(i).has_open_rank() {
            open.insert(i);
        }
        let (Type::Tensor(x), Type::Tensor(y)) = (a.x(i).ty(), b.x(i).ty()) else { return Ok(None) };
        if x.rank() == y.rank() || x.dtype != y.dtype {
            return Ok(None);
        }
        if !one_element_of_other_rank(&x, &y) {
            return Ok(Some(x.rank() < y.rank()));
        }
        open.insert(i);
        let (lower, shape) = if x.rank() < y.rank() { (a, y.shape) } else { (b, x.shape) };
        lower.results[i].0 = lower.x(i).reshape(&shape)?.v;
        Ok(None)
    }

    fn finish(self) -> Finished {
        let empty = (0..self.results.len()).map(|i| self.x(i).is_empty_seq()).collect();
        let (values, optional) = self.results.into_iter().unzip();
        Finished { func: self.graph.into_body(values), optional, empty }
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
        let (a, b) = (self.branch(captures, then), self.branch(captures, or));
        let (mut a, mut b) = (a?, b?);
        let count = a.results.len();
        if count != b.results.len() {
            refuse!("the branches give {count} and {} results", b.results.len());
        }
        let (mut lower, mut open) = (BTreeSet::new(), BTreeSet::new());
        for i in 0..count {
            lower.extend(Built::agree(&mut a, &mut b, i, &mut open)?);
        }
        match lower.into_iter().collect::<Vec<bool>>()[..] {
            [] => {}
            [a_is_lower] => return self.only_if(cond, a_is_lower, captures, if a_is_lower { then } else { or }),
            _ => refuse!("each branch gives a result of lower rank than the other"),
        }
        let (then, or) = (a.finish(), b.finish());
        if then.optional != or.optional {
            refuse!("a result of one branch is an optional, of the other it is not");
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
            if open.contains(&i) {
                self.open_rank.borrow_mut().insert(x.v);
            }
            results.push(x);
        }
        Ok(results)
    }

    fn branch<E: From<Error>>(&self, captures: &[X<'_>], build: Branch<'_, E>) -> Result<Built, E> {
        let inner = self.nested();
        let args = inner.capture(captures)?;
        let results = build(&inner, &args)?.iter().map(|x| (x.v, x.optional)).collect();
        self.fresh.set(inner.fresh.get());
        Ok(Built { graph: inner, results })
    }

    /// One branch of an `if` whose other branch gives results of higher rank (exporters write so for "drop this axis if
    /// its size is 1"). What follows can only be typed for one of them: that one is run, and its condition demanded.
    fn only_if<'g, E: From<Error>>(
        &'g self,
        cond: X<'g>,
        wanted: bool,
        captures: &[X<'g>],
        branch: Branch<'_, E>,
    ) -> Result<Vec<X<'g>>, E> {
        let zero = cond.demanded(wanted)?;
        let mut results = branch(self, captures)?;
        for x in &mut results {
            let shape = x.tensor()?.shape;
            // Reading from element 0 on, where the 0 is the one that was demanded.
            let row = if shape.is_empty() { x.reshape(&[Dim::ONE])? } else { *x };
            *x = row.slice_axis(0, &zero, &row.dim(0)?, 1)?.reshape(&shape)?;
        }
        Ok(results)
    }

    /// A graph for a nested function; its symbols are distinct from this one's.
    pub(super) fn nested(&self) -> Graph {
        let mut func = Func::new();
        func.set_source(self.func.borrow().source().clone());
        Graph { func: func.into(), fresh: self.fresh.clone(), ..Graph::default() }
    }

    /// Parameters that stand for outer values. Constants are repeated inside, what is known outside stays known, and
    /// sequences of known structure are taken apart ([`parts`]) and put together again.
    pub(super) fn capture<'b>(&'b self, outer: &[X<'_>]) -> Result<Vec<X<'b>>> {
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

    pub(super) fn into_body(self, results: Vec<Value>) -> Func {
        let mut f = self.func.into_inner();
        f.set_results(results);
        f.without_dead_nodes()
    }

    /// Every symbol that values of this graph mention.
    pub(super) fn visible_syms(&self) -> BTreeSet<Sym> {
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
    pub(super) fn outside(&self, ty: &Type, outer: &BTreeSet<Sym>) -> Type {
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
}

impl<'g> X<'g> {
    /// Zero, as a size that exists only where this bool scalar is the one that is wanted: what uses it stops the run
    /// otherwise.
    pub(super) fn demanded(self, wanted: bool) -> Result<Dim> {
        // A size is never negative.
        let zero = self.map(|c| {
            let (yes, no) = (c.cast(DType::I64).int(0), c.cast(DType::I64).int(-1));
            if wanted { c.select(yes, no) } else { c.select(no, yes) }
        })?;
        zero.bind(false)
    }

    /// Result number `index` of an op with several.
    pub fn get(self, index: usize) -> Result<X<'g>> {
        self.g.raw(Op::Get { index: index as i64 }, &[self])
    }
}

/// Do the types differ only in how many axes of size 1 they put around one element? Such a value counts as being of the
/// higher rank, which nothing that broadcasts can tell.
pub(super) fn one_element_of_other_rank(a: &TensorType, b: &TensorType) -> bool {
    let one = |t: &TensorType| t.shape.iter().all(|d| *d == Dim::ONE);
    a.dtype == b.dtype && a.rank() != b.rank() && one(a) && one(b)
}

/// The values to pass into a nested function: sequences of known structure as their elements.
pub(super) fn parts<'g>(captures: &[X<'g>]) -> Vec<X<'g>> {
    captures.iter().flat_map(|x| x.as_seq().map_or_else(|| vec![*x], |items| parts(&items))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Tensor, eval::eval};

    #[test]
    fn branches_of_different_rank_leave_the_lower_and_its_condition() -> Result<()> {
        let g = Graph::new();
        let x = g.param(Type::tensor(DType::I64, [Dim::sym("n"), Dim::sym("m")]))?;
        let last = g.size(&x.dim(1)?)?.map(|m| m.eq(1.0))?;
        let squeezed =
            g.if_(last, &[x], &|_, xs| Ok::<_, Error>(vec![xs[0].squeeze(&[1])?]), &|_, xs| Ok(vec![xs[0]]))?[0];
        assert_eq!(squeezed.rank(), 1);
        let result = squeezed.v;
        let f = g.finish(&[result]);
        let run = |shape: &[usize]| eval(&f, &[Tensor::from_i64(shape, &[5, 6]).into()]);
        assert_eq!(run(&[2, 1]), Ok(vec![Tensor::from_i64(&[2], &[5, 6]).into()]));
        assert!(run(&[1, 2]).is_err());
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
        let number = |n: i64| Tensor::from_i64(&[], &[n]).into();
        let no = Tensor::from_elems(DType::Bool, vec![], &crate::Elems::Int(vec![0]));
        let args = [no.into(), number(7), Tensor::from_i64(&[2], &[1, 2]).into()];
        let result = out.v;
        assert_eq!(eval(&g.finish(&[result]), &args), Ok(vec![number(3)]));
        Ok(())
    }
}
