//! Building functions: a [`Graph`] under construction and handles [`X`] to its values, so that meanings read as code.
//!
//! Pushing a node simplifies what is plainly an identity, folds small constants, and follows sizes symbolically
//! ([`crate::known`]), so imported shape arithmetic disappears as it arrives.
mod control;
mod fourier;
mod index;
mod linear;
mod loops;
mod sequence;
mod shape;

use crate::{
    DType, Dim, Error, Func, Lit, Node, Op, Origin, Origins, Result, Scalar, ScalarFn, Tensor, TensorType, Type, Value,
    dim::Sym,
    eval::{Data, Env, eval_op},
    expr::{Arena, S},
    func::node_syms,
    known::{self, Known},
    refuse,
};
use std::{
    cell::{Cell, Ref, RefCell},
    collections::{BTreeMap, BTreeSet, HashMap},
};

pub use fourier::{TwoSteps, Wave};
pub use linear::Window;
pub use loops::{LoopBody, LoopOut};

/// Constants with more elements are not folded while building; a pass does that where it pays.
const MAX_FOLDED: usize = 4096;
/// Repeated elements, as of a bias for every pixel, are cheaper than their copies, unless these are a few.
const MAX_REPEATED: usize = 64;

/// A function under construction.
#[derive(Debug, Default)]
pub struct Graph {
    func: RefCell<Func>,
    known: RefCell<HashMap<Value, Known>>,
    fresh: Cell<u32>,
    /// Sequences of a loop body under construction that stand for an empty one, so their elements have any type.
    empty: RefCell<BTreeSet<Value>>,
    /// Single elements to which the model gives different ranks at run time. Nothing that broadcasts can tell, but a
    /// caller of the function could.
    open_rank: RefCell<BTreeSet<Value>>,
    /// Symbols that an op found to be these numbers, in every run that gets that far.
    demanded: RefCell<BTreeMap<Sym, i64>>,
}

/// A value of a graph under construction.
#[derive(Clone, Copy, Debug)]
pub struct X<'g> {
    g: &'g Graph,
    v: Value,
    /// Is this sequence meant as an optional? The IR has one type for both.
    optional: bool,
}

impl Graph {
    pub fn new() -> Graph {
        Graph::default()
    }

    /// Add a parameter; all parameters come before anything else.
    pub fn param(&self, ty: Type) -> Result<X<'_>> {
        let v = self.func.borrow_mut().param(ty)?;
        Ok(X { g: self, v, optional: false })
    }

    /// The symbols in the types of the parameters.
    pub fn open_sizes(&self) -> BTreeSet<Sym> {
        let func = self.func.borrow();
        let mut open = BTreeSet::new();
        for p in func.params() {
            func.ty(p).for_each_sym(&mut |s| {
                open.insert(s.clone());
            });
        }
        open
    }

    /// The symbols in the types of the parameters that a size depends on.
    pub fn causes(&self, size: &Dim) -> BTreeSet<Sym> {
        let (open, func) = (self.open_sizes(), self.func.borrow());
        let definitions = func.sym_definitions();
        let mut syms = BTreeSet::new();
        size.for_each_sym(&mut |s| {
            syms.insert(s.clone());
        });
        let mut work: Vec<Value> = syms.iter().filter_map(|s| definitions.get(s).copied()).collect();
        let mut seen: BTreeSet<Value> = work.iter().copied().collect();
        while let Some(v) = work.pop() {
            let mut more = BTreeSet::new();
            node_syms(func.node(v), &mut more);
            let behind = more.iter().filter_map(|s| definitions.get(s).copied());
            work.extend(behind.chain(func.node(v).args.iter().copied()).filter(|v| seen.insert(*v)));
            syms.append(&mut more);
        }
        syms.intersection(&open).cloned().collect()
    }

    /// The symbols that operands of the function's own ops demand to be these numbers.
    pub fn demanded(&self) -> BTreeMap<Sym, i64> {
        self.demanded.borrow().clone()
    }

    /// The finished function, without the nodes that nothing needs.
    pub fn finish(self, results: &[Value]) -> Func {
        let mut f = self.func.into_inner();
        f.set_results(results.to_vec());
        f.without_dead_nodes()
    }

    /// Build what a node of the user's model gives. All of it comes from this node, also a value that was there before
    /// if it is a result: then the node had nothing to do.
    pub fn from_node<'g, R, E>(
        &'g self,
        node: Origin,
        build: impl FnOnce() -> Result<R, E>,
        results: impl FnOnce(&R) -> Vec<X<'g>>,
    ) -> Result<R, E> {
        let origins = Origins::from(node);
        let (outer, before) = {
            let mut func = self.func.borrow_mut();
            let outer = func.source().clone();
            func.set_source(origins.clone());
            (outer, func.nodes().len())
        };
        let built = build();
        let mut func = self.func.borrow_mut();
        func.set_source(outer);
        let results = built.as_ref().map_or(vec![], results);
        for x in results.into_iter().filter(|x| std::ptr::eq(x.g, self)) {
            if (x.v.0 as usize) < before || matches!(func.node(x.v).op, Op::Const { .. }) {
                func.add_origins(x.v, &origins);
            }
        }
        drop(func);
        built
    }

    /// A symbol no one else uses: a size, or any integer.
    pub fn fresh(&self, signed: bool) -> Sym {
        let n = self.fresh.get();
        self.fresh.set(n + 1);
        format!("{}{n}", if signed { "$" } else { "_" }).into()
    }

    pub fn fresh_size(&self) -> Dim {
        Dim::sym(self.fresh(false))
    }

    pub fn constant(&self, value: Tensor) -> Result<X<'_>> {
        self.raw(Op::Const { value }, &[])
    }

    /// A scalar constant.
    pub fn scalar(&self, dtype: DType, x: f64) -> Result<X<'_>> {
        self.constant(Tensor::scalar(dtype, x))
    }

    /// A constant vector of integers.
    pub fn ints(&self, v: &[i64]) -> Result<X<'_>> {
        self.constant(Tensor::from_i64(&[v.len()], v))
    }

    /// The value of a dimension expression as an i64 scalar.
    pub fn size(&self, dim: &Dim) -> Result<X<'_>> {
        match dim.as_const() {
            Some(c) => self.constant(Tensor::from_i64(&[], &[c])),
            None => self.raw(Op::Size { dim: dim.clone() }, &[]),
        }
    }

    /// The values of dimension expressions as an i64 vector.
    pub fn dims(&self, dims: &[Dim]) -> Result<X<'_>> {
        if let Some(all) = dims.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>() {
            return self.ints(&all);
        }
        let parts: Vec<X<'_>> = dims.iter().map(|d| self.size(d)?.reshape(&[Dim::ONE])).collect::<Result<_>>()?;
        self.concat(&parts, 0)
    }

    /// The index along `axis`, as a tensor of the given shape.
    pub fn iota(&self, dtype: DType, shape: &[Dim], axis: usize) -> Result<X<'_>> {
        self.push(Op::Iota { dtype, shape: shape.to_vec(), axis: axis as i64 }, &[])
    }

    /// `0, 1, … n - 1`
    pub fn range(&self, dtype: DType, n: &Dim) -> Result<X<'_>> {
        self.iota(dtype, std::slice::from_ref(n), 0)
    }

    /// A tensor filled with one number.
    pub fn full(&self, dtype: DType, x: f64, shape: &[Dim]) -> Result<X<'_>> {
        self.scalar(dtype, x)?.broadcast_to(shape)
    }

    /// Apply an expression to the elements of tensors, broadcast to their common shape.
    pub fn map<'g, const N: usize>(
        &'g self,
        xs: [X<'g>; N],
        f: impl for<'e> FnOnce([S<'e>; N]) -> S<'e>,
    ) -> Result<X<'g>> {
        self.map_all(&xs, |s| f(<[S<'_>; N]>::try_from(s).expect("as many as operands")))
    }

    /// [`Graph::map`] over any number of tensors.
    pub fn map_all<'g>(&'g self, xs: &[X<'g>], f: impl for<'e> FnOnce(&[S<'e>]) -> S<'e>) -> Result<X<'g>> {
        let shape = self.common_shape(xs)?;
        // Constant scalars become part of the expression, unless nothing else is left to map over.
        let mut lits: Vec<Option<Lit>> = xs.iter().map(|x| x.literal()).collect();
        if lits.iter().all(Option::is_some) {
            lits.fill(None);
        }
        let arena = Arena::default();
        let (mut operands, mut scalars) = (Vec::new(), Vec::new());
        for (x, lit) in xs.iter().zip(lits) {
            scalars.push(match lit {
                Some(l) => arena.lit(l),
                None => {
                    operands.push(x.broadcast_to(&shape)?);
                    arena.arg(operands.len() as u32 - 1, x.tensor()?.dtype)
                }
            });
        }
        let root = f(&scalars);
        let f = arena.finish(root)?;
        self.push(Op::Map { f }, &operands)
    }

    /// The shape to which all tensors broadcast (NumPy's rule).
    pub fn common_shape(&self, xs: &[X<'_>]) -> Result<Vec<Dim>> {
        let mut shape: Vec<Dim> = Vec::new();
        for x in xs {
            shape = broadcast_shapes(&shape, &x.tensor()?.shape)?;
        }
        Ok(shape)
    }

    /// Push a node, simplified and folded.
    pub fn push<'g>(&'g self, op: Op, args: &[X<'g>]) -> Result<X<'g>> {
        if let Some(x) = self.identity(&op, args) {
            // The op must still accept its operands.
            op.infer(&args.iter().map(|a| a.ty()).collect::<Vec<_>>().iter().collect::<Vec<_>>())?;
            return Ok(x);
        }
        let x = self.raw(op, args)?;
        if let Some(t) = self.folded(x) {
            return self.constant(t);
        }
        // A size that took a detour.
        match x.known().as_deref() {
            Some([Some(d)]) if x.ty() == Type::scalar(DType::I64) => self.size(d),
            _ => Ok(x),
        }
    }

    /// Push a node as it is, recording what is known of its value.
    fn raw<'g>(&'g self, op: Op, args: &[X<'g>]) -> Result<X<'g>> {
        let args: Vec<Value> = args.iter().map(|x| x.v).collect();
        let v = self.func.borrow_mut().push(op, &args)?;
        if !self.known.borrow().contains_key(&v) {
            let found = known::of_op(&self.func.borrow(), v, &|a| self.known.borrow().get(&a).cloned());
            if let Some(k) = found {
                self.known.borrow_mut().insert(v, k);
            }
        }
        Ok(X { g: self, v, optional: false })
    }

    /// The operand that an op gives back unchanged, if it does.
    fn identity<'g>(&self, op: &Op, args: &[X<'g>]) -> Option<X<'g>> {
        let x = *args.first()?;
        let shape = || x.tensor().map(|t| t.shape).unwrap_or_default();
        let zero = |d: &Dim| *d == Dim::ZERO;
        let same = match op {
            Op::Reshape { shape: s } => *s == shape(),
            Op::Broadcast { shape: s, .. } => *s == shape(),
            Op::Transpose { perm } => perm.iter().copied().eq(0..perm.len() as i64),
            Op::Slice { starts, sizes, steps } => {
                starts.iter().all(zero) && *sizes == shape() && steps.iter().all(|&s| s == 1)
            }
            Op::Pad { low, high } => low.iter().chain(high).all(zero),
            Op::Concat { .. } => args.len() == 1,
            Op::Reduce { axes, .. } => axes.is_empty(),
            Op::Map { f } => matches!(f.steps(), [crate::scalar::Step::Arg(0)]) && args.len() == 1,
            _ => false,
        };
        same.then_some(x)
    }

    /// The constant that a pushed node is, if everything in it is known.
    fn folded(&self, x: X<'_>) -> Option<Tensor> {
        let func = self.func.borrow();
        let node = func.node(x.v);
        let ty = node.ty.as_tensor().ok()?;
        let shape = ty.static_shape()?;
        if matches!(node.op, Op::Const { .. } | Op::Bind { .. } | Op::Param { .. } | Op::Compress { .. }) {
            return None;
        }
        if (ty.dtype.is_int() || ty.dtype == DType::Bool)
            && let Some(known) = self.known.borrow().get(&x.v)
            && let Some(all) = known.iter().map(|d| d.as_ref()?.as_const()).collect::<Option<Vec<i64>>>()
        {
            let elems = crate::Elems::Int(all.into_iter().map(i128::from).collect());
            return Some(Tensor::from_elems(ty.dtype, shape, &elems));
        }
        let small = |v: &Value| match &func.node(*v).op {
            Op::Const { value } if value.len() <= MAX_FOLDED => Some(Data::Tensor(value.clone())),
            _ => None,
        };
        let args: Vec<Data> = node.args.iter().map(small).collect::<Option<_>>()?;
        let most = if matches!(node.op, Op::Broadcast { .. }) { MAX_REPEATED } else { MAX_FOLDED };
        if crate::tensor::count(&shape)? > most || (args.is_empty() && !matches!(node.op, Op::Iota { .. })) {
            return None;
        }
        match eval_op(&node.op, &args.iter().collect::<Vec<_>>(), &mut Env::default()).ok()? {
            Data::Tensor(t) => Some(t),
            _ => None,
        }
    }

    pub(crate) fn node(&self, v: Value) -> Ref<'_, Node> {
        Ref::map(self.func.borrow(), |f| f.node(v))
    }
}

/// NumPy's broadcasting of two shapes.
pub fn broadcast_shapes(a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>> {
    let rank = a.len().max(b.len());
    let at = |s: &[Dim], i: usize| if i + s.len() >= rank { s[i + s.len() - rank].clone() } else { Dim::ONE };
    let mut shape = Vec::with_capacity(rank);
    for i in 0..rank {
        match common_size(&at(a, i), &at(b, i)) {
            Some(d) => shape.push(d),
            None => refuse!("shapes {a:?} and {b:?} do not broadcast"),
        }
    }
    Ok(shape)
}

/// The size two sizes broadcast to. Where one is never larger than the other, the other is taken: this is wrong only
/// where 0 meets 1, which is then refused at run time.
fn common_size(a: &Dim, b: &Dim) -> Option<Dim> {
    if a.as_const().is_none() && b.as_const().is_none() {
        if b.at_most(a) == Some(true) {
            return Some(a.clone());
        }
        if a.at_most(b) == Some(true) {
            return Some(b.clone());
        }
    }
    a.broadcast(b)
}

impl<'g> X<'g> {
    pub fn graph(self) -> &'g Graph {
        self.g
    }

    pub fn value(self) -> Value {
        self.v
    }

    pub fn ty(self) -> Type {
        self.g.node(self.v).ty.clone()
    }

    /// Is this one element whose rank differs from run to run in the model, while its type here has one rank?
    pub fn has_open_rank(self) -> bool {
        self.g.open_rank.borrow().contains(&self.v)
    }

    pub fn tensor(self) -> Result<TensorType> {
        self.ty().as_tensor().cloned()
    }

    /// Element type; `f32` for what is not a tensor, which every use as a tensor then refuses.
    pub fn dtype(self) -> DType {
        self.g.node(self.v).ty.as_tensor().map_or(DType::F32, |t| t.dtype)
    }

    /// The shape; empty for what is not a tensor.
    pub fn shape(self) -> Vec<Dim> {
        self.g.node(self.v).ty.as_tensor().map(|t| t.shape.clone()).unwrap_or_default()
    }

    pub fn rank(self) -> usize {
        self.shape().len()
    }

    /// The size of an axis that may count from the end.
    pub fn dim(self, axis: i64) -> Result<Dim> {
        Ok(self.shape()[self.axis(axis)?].clone())
    }

    /// Number of elements.
    pub fn len(self) -> Dim {
        Dim::product(&self.shape())
    }

    /// An axis that may count from the end, as its number.
    pub fn axis(self, axis: i64) -> Result<usize> {
        let rank = self.rank() as i64;
        if axis < -rank || axis >= rank {
            refuse!("axis {axis} does not exist in {}", self.ty());
        }
        Ok(axis.rem_euclid(rank) as usize)
    }

    pub fn axes(self, axes: &[i64]) -> Result<Vec<usize>> {
        axes.iter().map(|&a| self.axis(a)).collect()
    }

    /// The constant this value is.
    pub fn as_const(self) -> Option<Tensor> {
        match &self.g.node(self.v).op {
            Op::Const { value } => Some(value.clone()),
            _ => None,
        }
    }

    /// The scalar that every element of this tensor is, if that is a constant.
    pub fn as_fill(self) -> Option<Tensor> {
        let node = self.g.node(self.v);
        let filled = match &node.op {
            Op::Broadcast { .. } => X { v: node.args[0], ..self },
            _ => self,
        };
        filled.as_const().filter(|t| t.len() == 1)?.reshaped(vec![]).ok()
    }

    /// The integers this constant holds.
    pub fn as_ints(self) -> Option<Vec<i64>> {
        self.as_const()?.to_i64s()
    }

    /// The one number this constant holds.
    pub fn as_number(self) -> Option<f64> {
        let t = self.as_const().filter(|t| t.len() == 1)?;
        t.to_f64s().first().copied()
    }

    /// What is known of the elements.
    pub fn known(self) -> Option<Known> {
        self.g.known.borrow().get(&self.v).cloned()
    }

    /// A one-element constant as a literal.
    fn literal(self) -> Option<Lit> {
        let t = self.as_const().filter(|t| t.rank() == 0 && t.dtype() != DType::Str)?;
        Some(match t.elems() {
            crate::Elems::Float(v) => Lit::float(t.dtype(), v[0]),
            crate::Elems::Int(v) => Lit::int(t.dtype(), v[0]),
            crate::Elems::Str(_) => return None,
        })
    }

    pub fn cast(self, to: DType) -> Result<X<'g>> {
        if self.dtype() == to {
            return Ok(self);
        }
        self.g.push(Op::Map { f: Scalar::convert(ScalarFn::Cast, to) }, &[self])
    }

    /// Apply an expression to every element.
    pub fn map(self, f: impl for<'e> FnOnce(S<'e>) -> S<'e>) -> Result<X<'g>> {
        self.g.map([self], |[x]| f(x))
    }

    /// The elements of an integer scalar or vector as dimension expressions (any integers). What is not known at
    /// compile time gets a symbol bound to its run-time value.
    pub fn to_dims(self) -> Result<Vec<Dim>> {
        self.bound(true)
    }

    /// Like [`X::to_dims`], for values that must be sizes: 0 or more.
    pub fn to_sizes(self) -> Result<Vec<Dim>> {
        self.bound(false)
    }

    /// The one element of an integer tensor as a dimension expression.
    pub fn to_dim(self) -> Result<Dim> {
        match &self.to_dims()?[..] {
            [d] => Ok(d.clone()),
            all => refuse!("expected one number, got {} ({})", all.len(), self.ty()),
        }
    }

    fn bound(self, signed: bool) -> Result<Vec<Dim>> {
        let x = self.cast(DType::I64)?;
        let t = x.tensor()?;
        let Some(len) = t.static_shape().filter(|s| s.len() <= 1).and_then(|s| crate::tensor::count(&s)) else {
            return Err(Error::Open { message: format!("the number of elements of {t}"), size: self.len() });
        };
        let flat = x.reshape(&[Dim::from(len)])?;
        let known = flat.known().unwrap_or_else(|| vec![None; len]);
        (0..len)
            .map(|i| match &known[i] {
                Some(d) => Ok(d.clone()),
                None => flat.slice_axis(0, &Dim::from(i), &Dim::ONE, 1)?.reshape(&[])?.bind(signed),
            })
            .collect()
    }

    /// Name the value of an i64 scalar.
    fn bind(self, signed: bool) -> Result<Dim> {
        if let Some([Some(d)]) = self.known().as_deref() {
            return Ok(d.clone());
        }
        let dim = self.g.fresh(signed);
        self.g.raw(Op::Bind { dim: dim.clone() }, &[self])?;
        let d = Dim::sym(dim);
        self.g.known.borrow_mut().insert(self.v, vec![Some(d.clone())]);
        Ok(d)
    }
}
