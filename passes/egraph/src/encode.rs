//! Conversion between functions and terms of the e-graph.
use crate::{
    extract::{Extraction, Problem},
    sources::Log,
    term::{Facts, Graph, Known, Term, attribute_count},
};
use egg::{EGraph, Id};
use numrsc_facts::{Error, Result};
use numrsc_ir::{
    DType, Func, Leaf, Op, Scalar, ScalarFn, Type, Value,
    scalar::{Call, Sig, Step},
};
use std::collections::{BTreeMap, BTreeSet};

/// Larger expressions are split, so that no kernel needs more values than there are registers by far.
const MAX_STEPS: usize = 64;

/// Can an e-graph hold this node?
#[allow(clippy::wildcard_enum_match_arm, reason = "an op is a term if its attributes are leaves")]
pub(super) fn is_encodable(func: &Func, v: Value) -> bool {
    let node = func.node(v);
    let tensor = |t: &Type| matches!(t, Type::Tensor(_));
    match &node.op {
        Op::Param { .. } | Op::Const { .. } => false,
        // One that reads no operand would be a number, which is no tensor.
        Op::Map { f } => f.steps().iter().any(|s| matches!(s, Step::Arg(_))),
        op => op.leaves().is_some() && tensor(&node.ty) && node.args.iter().all(|a| tensor(func.ty(*a))),
    }
}

/// The terms of a function, and the class of each of its nodes. What is known of parameters is given.
#[allow(clippy::wildcard_enum_match_arm, reason = "an op is encoded by its row of the table")]
pub(super) fn encode(func: &Func, inputs: Vec<Known>, explain: bool) -> (Graph, Vec<Id>) {
    let graph = EGraph::new(Facts { inputs, log: Log::default() });
    let mut graph = if explain { graph.with_explanations_enabled() } else { graph };
    let mut classes: Vec<Id> = Vec::with_capacity(func.nodes().len());
    for (v, node) in func.values() {
        let args: Vec<Id> = node.args.iter().map(|a| classes[a.0 as usize]).collect();
        let id = match &node.op {
            Op::Param { index, .. } => graph.add(Term::Input(*index as u32)),
            Op::Map { f } => encode_map(&mut graph, v, f, &args),
            op => {
                let leaves = op.leaves().expect("regions hold nothing else");
                let attributes = leaves.into_iter().map(|l| graph.add(Term::Leaf(l))).collect::<Vec<_>>();
                let term = Term::Op(op.name(), [args, attributes].concat().into());
                let id = graph.add(term.clone());
                Log::node(&mut graph, id, term, v);
                id
            }
        };
        classes.push(id);
    }
    graph.rebuild();
    (graph, classes)
}

fn encode_map(graph: &mut Graph, v: Value, f: &Scalar, args: &[Id]) -> Id {
    let mut steps: Vec<Id> = Vec::new();
    for step in f.steps() {
        let id = match step {
            Step::Arg(n) => args[*n as usize],
            Step::Lit(l) => graph.add(Term::Lit(*l)),
            Step::Call(c) => {
                let mut children = vec![graph.add(Term::Leaf(Leaf::Word(c.f.name())))];
                children.extend(c.args.iter().map(|&a| steps[a as usize]));
                children.extend(c.to.map(|to| graph.add(Term::Leaf(Leaf::DType(to)))));
                let kids: Vec<_> = children.iter().map(|c| &graph[*c].data).collect();
                // A function of numbers is a number.
                match super::term::fact(&Term::Call([].into()), &[], &kids) {
                    Some(super::term::Fact::Lit(l)) => graph.add(Term::Lit(l)),
                    _ => {
                        let term = Term::Call(children.into());
                        let id = graph.add(term.clone());
                        Log::node(graph, id, term, v);
                        id
                    }
                }
            }
        };
        steps.push(id);
    }
    *steps.last().expect("an expression has steps")
}

/// The function that a choice stands for, and which node each class is a part of. It has the parameters of `like`, and
/// one result per root.
pub(super) fn decode(like: &Func, problem: &Problem, choice: &Extraction) -> Result<(Func, BTreeMap<usize, Value>)> {
    let mut decoder =
        Decoder { problem, choice, order: vec![], users: BTreeMap::new(), values: BTreeMap::new(), out: Func::new() };
    for p in like.params() {
        decoder.out.param(like.ty(p).clone()).map_err(|e| invalid(&e))?;
    }
    decoder.visit();
    let groups = decoder.groups();
    for class in decoder.order.clone() {
        decoder.emit(class, &groups)?;
    }
    let results = problem.roots().iter().map(|r| decoder.values[r]).collect();
    decoder.out.set_results(results);
    // A call is part of the map that it is grouped into.
    let place = |class: &usize| decoder.values.get(groups.get(class).unwrap_or(class)).copied();
    let places = decoder.order.iter().filter_map(|class| Some((*class, place(class)?))).collect();
    Ok((decoder.out, places))
}

struct Decoder<'p> {
    problem: &'p Problem,
    choice: &'p Extraction,
    /// The needed classes, operands first.
    order: Vec<usize>,
    /// Who uses a class.
    users: BTreeMap<usize, BTreeSet<usize>>,
    values: BTreeMap<usize, Value>,
    out: Func,
}

impl Decoder<'_> {
    fn term(&self, class: usize) -> (&Term, &[usize]) {
        self.problem.term(class, self.choice)
    }

    fn visit(&mut self) {
        let mut seen = BTreeSet::new();
        for &root in self.problem.roots() {
            let mut stack = vec![(root, 0)];
            while let Some((class, next)) = stack.pop() {
                if next == 0 && !seen.insert(class) {
                    continue;
                }
                let children = self.term(class).1.to_vec();
                match children.get(next) {
                    Some(&child) => {
                        stack.push((class, next + 1));
                        stack.push((child, 0));
                    }
                    None => {
                        for c in children {
                            self.users.entry(c).or_default().insert(class);
                        }
                        self.order.push(class);
                    }
                }
            }
        }
    }

    fn is_call(&self, class: usize) -> bool {
        matches!(self.term(class).0, Term::Call(_))
    }

    /// The map that each call becomes part of: that of its users, if these are all in one.
    fn groups(&self) -> BTreeMap<usize, usize> {
        let roots: BTreeSet<usize> = self.problem.roots().iter().copied().collect();
        let mut groups: BTreeMap<usize, usize> = BTreeMap::new();
        let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
        for &class in self.order.iter().rev().filter(|c| self.is_call(**c)) {
            let around: BTreeSet<Option<usize>> =
                self.users.get(&class).into_iter().flatten().map(|u| groups.get(u).copied()).collect();
            let group = match around.first() {
                Some(Some(g)) if around.len() == 1 && !roots.contains(&class) && sizes[g] < MAX_STEPS => *g,
                _ => class,
            };
            *sizes.entry(group).or_insert(0) += 1;
            groups.insert(class, group);
        }
        groups
    }

    fn emit(&mut self, class: usize, groups: &BTreeMap<usize, usize>) -> Result<()> {
        let (term, children) = self.term(class);
        let value = match term {
            Term::Input(n) => Value(*n),
            Term::Lit(_) | Term::Leaf(_) => return Ok(()),
            Term::Call(_) if groups[&class] != class => return Ok(()),
            Term::Call(_) => {
                let (f, args) = self.expression(class, groups);
                self.out.push(Op::Map { f }, &args).map_err(|e| invalid(&e))?
            }
            Term::Op(name, _) => {
                let operands = children.len() - attribute_count(name);
                let leaves: Vec<Leaf> = children[operands..].iter().map(|c| self.leaf(*c)).collect();
                let op = Op::from_leaves(name, &leaves).expect("terms are well-typed");
                let args: Vec<Value> = children[..operands].iter().map(|c| self.values[c]).collect();
                self.out.push(op, &args).map_err(|e| invalid(&e))?
            }
        };
        self.values.insert(class, value);
        Ok(())
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "what has another place in a term is a fault of a rule")]
    fn leaf(&self, class: usize) -> Leaf {
        match self.term(class).0 {
            Term::Leaf(l) => l.clone(),
            other => unreachable!("`{other}` in the place of an attribute"),
        }
    }

    /// All calls of a group as one expression over the tensors they read.
    #[allow(clippy::wildcard_enum_match_arm, reason = "what is no number or call of an expression is an operand of it")]
    fn expression(&self, root: usize, groups: &BTreeMap<usize, usize>) -> (Scalar, Vec<Value>) {
        let mut steps: Vec<Step> = Vec::new();
        let mut args: Vec<Value> = Vec::new();
        let mut place: BTreeMap<usize, u32> = BTreeMap::new();
        let mut stack = vec![(root, false)];
        while let Some((class, ready)) = stack.pop() {
            if place.contains_key(&class) {
                continue;
            }
            let (term, children) = self.term(class);
            let step = match term {
                Term::Lit(l) => Step::Lit(*l),
                Term::Call(_) if groups[&class] == groups[&root] => {
                    let f = self.scalar_fn(children[0]);
                    let operands = &children[1..=f.arity()];
                    if !ready {
                        stack.push((class, true));
                        stack.extend(operands.iter().rev().map(|&o| (o, false)));
                        continue;
                    }
                    let to: Option<DType> = (f.sig() == Sig::Convert).then(|| match self.leaf(children[2]) {
                        Leaf::DType(d) => d,
                        other => unreachable!("{other} is no type"),
                    });
                    Step::Call(Call { f, args: operands.iter().map(|o| place[o]).collect(), to })
                }
                _ => {
                    let value = self.values[&class];
                    let at = args.iter().position(|a| *a == value).unwrap_or_else(|| {
                        args.push(value);
                        args.len() - 1
                    });
                    Step::Arg(at as u32)
                }
            };
            steps.push(step);
            place.insert(class, steps.len() as u32 - 1);
        }
        (Scalar::new(&steps, place[&root] as usize), args)
    }

    fn scalar_fn(&self, class: usize) -> ScalarFn {
        let Leaf::Word(name) = self.leaf(class) else { unreachable!("a call names its function") };
        *ScalarFn::ALL.iter().find(|f| f.name() == name).expect("terms are well-typed")
    }
}

pub(super) fn invalid(e: &numrsc_ir::Error) -> Error {
    Error::Invalid { pass: "optimise", message: e.to_string() }
}
