//! The language of the e-graph, and what is known of its terms.
//!
//! An op is its operands followed by its attributes as leaves. A `map` is taken apart into one `call` per scalar function, so that rules see single
//! functions however exporters grouped them; numbers inside expressions have no shape of their own. Constants are inputs of which it is known that they
//! are constant: what is computed from them costs nothing, and the optimiser never looks at weights.
#![allow(clippy::wildcard_enum_match_arm, reason = "no match is over ops, but over terms and what is known of them")]
use crate::sources::Log;
use egg::{Analysis, DidMerge, EGraph, Id, Language};
use numrsc_facts::ops::is_view;
use numrsc_ir::{
    Data, Env, Leaf, Lit, Op, Scalar, ScalarFn, Tensor, TensorType, Type, eval_op,
    op::OPS,
    scalar::{Call, Sig, Step},
};
use std::{fmt, sync::Arc};

/// A term over classes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Term {
    /// A value from outside.
    Input(u32),
    /// Operands, then attributes.
    Op(&'static str, Box<[Id]>),
    /// The name of a scalar function, its operands, and the target of a conversion.
    Call(Box<[Id]>),
    /// A number in an expression.
    Lit(Lit),
    Leaf(Leaf),
}

/// What makes two terms the same but for their children.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    Op(&'static str, usize),
    Call(usize),
    Leaf(Term),
}

impl Language for Term {
    type Discriminant = Kind;

    fn discriminant(&self) -> Kind {
        match self {
            Term::Op(name, c) => Kind::Op(name, c.len()),
            Term::Call(c) => Kind::Call(c.len()),
            leaf => Kind::Leaf(leaf.clone()),
        }
    }

    fn matches(&self, o: &Term) -> bool {
        match (self, o) {
            (Term::Op(a, x), Term::Op(b, y)) => a == b && x.len() == y.len(),
            (Term::Call(x), Term::Call(y)) => x.len() == y.len(),
            (a, b) => a == b,
        }
    }

    fn children(&self) -> &[Id] {
        match self {
            Term::Op(_, c) | Term::Call(c) => c,
            _ => &[],
        }
    }

    fn children_mut(&mut self) -> &mut [Id] {
        match self {
            Term::Op(_, c) | Term::Call(c) => c,
            _ => &mut [],
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Term::Input(n) => write!(f, "%{n}"),
            Term::Op(name, _) => f.write_str(name),
            Term::Call(_) => f.write_str("call"),
            Term::Lit(l) => write!(f, "{l}"),
            Term::Leaf(l) => write!(f, "{l}"),
        }
    }
}

/// egg asks for this to print proofs. Terms are never read back: rules have a reader of their own.
impl egg::FromOp for Term {
    type Error = String;

    fn from_op(op: &str, _: Vec<Id>) -> Result<Term, String> {
        Err(format!("`{op}` is not read"))
    }
}

/// What is known of a class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fact {
    Tensor(Known),
    Lit(Lit),
    Leaf(Leaf),
}

/// What is known of a tensor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Known {
    pub ty: Arc<Type>,
    /// Can it be computed when compiling?
    pub constant: bool,
    /// Is it constant, without infinities and NaN?
    pub finite: bool,
    /// The number that all elements are.
    pub number: Option<Lit>,
    /// Is it 0, 1, 2, … along its last axis, and of size 1 along all others?
    pub counts: bool,
}

impl Fact {
    pub fn tensor(&self) -> Option<&TensorType> {
        match self {
            Fact::Tensor(k) => k.ty.as_tensor().ok(),
            _ => None,
        }
    }

    pub fn leaf(&self) -> Option<&Leaf> {
        match self {
            Fact::Leaf(l) => Some(l),
            _ => None,
        }
    }

    pub(crate) fn finite(&self) -> bool {
        match self {
            Fact::Tensor(k) => k.finite,
            Fact::Lit(l) => l.as_f64().is_finite(),
            Fact::Leaf(_) => true,
        }
    }

    pub(crate) fn constant(&self) -> bool {
        match self {
            Fact::Tensor(k) => k.constant,
            Fact::Lit(_) | Fact::Leaf(_) => true,
        }
    }
}

/// Facts about classes; holds those about inputs.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub inputs: Vec<Known>,
    /// What came of what.
    pub log: Log,
}

/// An e-graph of terms.
pub type Graph = EGraph<Term, Facts>;

/// The fact about a term, given those about its children; `None` if it is ill-typed.
pub fn fact(term: &Term, inputs: &[Known], kids: &[&Fact]) -> Option<Fact> {
    match term {
        Term::Input(n) => inputs.get(*n as usize).cloned().map(Fact::Tensor),
        Term::Lit(l) => Some(Fact::Lit(*l)),
        Term::Leaf(l) => Some(Fact::Leaf(l.clone())),
        Term::Op(name, _) => op_fact(name, kids),
        Term::Call(_) => call_fact(kids),
    }
}

/// The number of attributes of an op.
pub(crate) fn attribute_count(name: &str) -> usize {
    OPS.iter().find(|i| i.name == name).map_or(0, |i| i.attrs.len())
}

fn op_fact(name: &'static str, kids: &[&Fact]) -> Option<Fact> {
    let operands = kids.len().checked_sub(attribute_count(name))?;
    let leaves: Vec<Leaf> = kids[operands..].iter().map(|k| k.leaf().cloned()).collect::<Option<_>>()?;
    let op = Op::from_leaves(name, &leaves)?;
    let known: Vec<&Known> =
        kids[..operands].iter().map(|k| if let Fact::Tensor(k) = k { Some(k) } else { None }).collect::<Option<_>>()?;
    let types: Vec<&Type> = known.iter().map(|k| &*k.ty).collect();
    let ty = Arc::new(op.infer(&types).ok()?);
    let number = if is_view(&op) { known[0].number } else { None };
    let moves = matches!(op.name(), "reshape" | "transpose" | "broadcast" | "slice" | "concat" | "pad");
    let all = |f: fn(&Known) -> bool| known.iter().all(|k| f(k));
    Some(Fact::Tensor(Known {
        ty,
        constant: all(|k| k.constant),
        finite: moves && all(|k| k.finite),
        number,
        counts: false,
    }))
}

/// The function and the target of a conversion that a call names.
pub(crate) fn function(kids: &[&Fact]) -> Option<(ScalarFn, Option<numrsc_ir::DType>)> {
    let Some(Fact::Leaf(Leaf::Word(name))) = kids.first() else { return None };
    let f = *ScalarFn::ALL.iter().find(|f| f.name() == *name)?;
    if f.sig() != Sig::Convert {
        return (kids.len() == 1 + f.arity()).then_some((f, None));
    }
    match kids {
        [_, _, Fact::Leaf(Leaf::DType(to))] => Some((f, Some(*to))),
        _ => None,
    }
}

fn call_fact(kids: &[&Fact]) -> Option<Fact> {
    let (f, to) = function(kids)?;
    let operands = &kids[1..=f.arity()];
    let mut tensors = operands.iter().filter_map(|k| k.tensor());
    let shape = tensors.next().map(|t| &t.shape);
    if tensors.any(|t| Some(&t.shape) != shape) {
        return None;
    }
    let dtypes: Vec<numrsc_ir::DType> = operands
        .iter()
        .map(|k| match k {
            Fact::Lit(l) => Some(l.dtype),
            other => other.tensor().map(|t| t.dtype),
        })
        .collect::<Option<_>>()?;
    let (scalar, dtype) = single(f, to, &dtypes)?;
    match shape {
        Some(shape) => Some(Fact::Tensor(Known {
            ty: Arc::new(Type::tensor(dtype, shape.clone())),
            constant: operands.iter().all(|k| k.constant()),
            finite: keeps_finite(f) && operands.iter().all(|k| k.finite()),
            number: None,
            counts: false,
        })),
        None => {
            let lits: Vec<Lit> =
                operands.iter().filter_map(|k| if let Fact::Lit(l) = k { Some(*l) } else { None }).collect();
            evaluate(&scalar, &lits).map(Fact::Lit)
        }
    }
}

/// Functions of finite numbers that are finite, unless they overflow.
fn keeps_finite(f: ScalarFn) -> bool {
    matches!(
        f,
        ScalarFn::Add | ScalarFn::Sub | ScalarFn::Mul | ScalarFn::Neg | ScalarFn::Abs | ScalarFn::Min | ScalarFn::Max
    )
}

/// One function as an expression, and its type.
fn single(f: ScalarFn, to: Option<numrsc_ir::DType>, of: &[numrsc_ir::DType]) -> Option<(Scalar, numrsc_ir::DType)> {
    let mut steps: Vec<Step> = (0..of.len() as u32).map(Step::Arg).collect();
    steps.push(Step::Call(Call { f, args: (0..of.len() as u32).collect(), to }));
    let scalar = Scalar::new(&steps, steps.len() - 1);
    let ty = *scalar.types(of).ok()?.last()?;
    Some((scalar, ty))
}

fn evaluate(f: &Scalar, args: &[Lit]) -> Option<Lit> {
    let data: Vec<Data> = args.iter().map(|l| tensor_of(*l).map(Data::Tensor)).collect::<Option<_>>()?;
    match eval_op(&Op::Map { f: f.clone() }, &data.iter().collect::<Vec<_>>(), &mut Env::new()) {
        Ok(Data::Tensor(t)) => lit_of(&t),
        _ => None,
    }
}

/// A number as a tensor without axes.
fn tensor_of(lit: Lit) -> Option<Tensor> {
    let bytes = lit.bits().to_le_bytes()[..lit.dtype.size()].to_vec();
    Tensor::new(lit.dtype, vec![], bytes.into()).ok()
}

/// The number that a tensor of one element holds.
fn lit_of(t: &Tensor) -> Option<Lit> {
    numrsc_facts::constants::one_number(t)
}

impl Analysis<Term> for Facts {
    type Data = Fact;

    fn make(graph: &mut Graph, term: &Term, _: Id) -> Fact {
        let kids: Vec<&Fact> = term.children().iter().map(|c| &graph[*c].data).collect();
        let known = fact(term, &graph.analysis.inputs, &kids);
        known.unwrap_or_else(|| unreachable!("terms are checked before they are added: {term} of {kids:?}"))
    }

    fn merge(&mut self, a: &mut Fact, b: Fact) -> DidMerge {
        let (Fact::Tensor(a), Fact::Tensor(b)) = (a, b) else { return DidMerge(false, false) };
        let joined = (a.constant || b.constant, a.finite || b.finite, a.number.or(b.number), a.counts || b.counts);
        let changed = |k: &Known| (k.constant, k.finite, k.number, k.counts) != joined;
        let changed = DidMerge(changed(a), changed(&b));
        (a.constant, a.finite, a.number, a.counts) = joined;
        changed
    }
}
