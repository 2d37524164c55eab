//! Rules: one line each, written as text over the names of ops, scalar functions and attribute functions.
//!
//! `(transpose (transpose ?x ?p) ?q)`: ops with operands, then attributes. `(add ?x 1)`: scalar functions, numbers take the type of their neighbours.
//! `(call ?f ?x ?y)`: any function of two operands. On the right side and in conditions, what is no op is an attribute function of `attrs.rs`.
//! One applier serves all: a rule fires only where its conditions hold and its right side has the type of its left side.
#![allow(clippy::wildcard_enum_match_arm, reason = "no match is over ops, but over patterns and terms")]
use crate::{
    attrs, sources,
    term::{Fact, Facts, Graph, Term, fact},
};
use egg::{Applier, Id, Pattern, PatternAst, RecExpr, Rewrite, Searcher as _, Subst, Symbol};
pub use egg::{ENodeOrVar, Var};
use numrsc_ir::{DType, Dim, Leaf, Lit, ScalarFn, op::OPS, scalar::Sig};
use std::collections::BTreeSet;

/// The terms of one side of a rule, operands first.
pub type Ast = PatternAst<Term>;

/// One equation between terms, used from left to right.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub name: &'static str,
    pub left: &'static str,
    pub right: &'static str,
    /// What must hold, as attribute functions that give `true`.
    pub when: &'static [&'static str],
    /// Does it keep every bit of floating-point results, or change them by rounding?
    pub exact: bool,
}

pub const fn rule(name: &'static str, left: &'static str, right: &'static str) -> Rule {
    Rule { name, left, right, when: &[], exact: true }
}

impl Rule {
    #[must_use]
    pub const fn when(self, when: &'static [&'static str]) -> Rule {
        Rule { when, ..self }
    }

    #[must_use]
    pub const fn rounding(self) -> Rule {
        Rule { exact: false, ..self }
    }

    /// Does it move a transpose past a function of elements? Which side is better depends on what is fused there.
    pub(super) fn moves_transposes(&self) -> bool {
        self.left.starts_with("(call") && self.left.contains("(transpose")
    }

    /// What egg runs: one rewrite for every order of the operands of commutative functions.
    ///
    /// # Panics
    /// If the text cannot be read: all rules are compiled by tests.
    pub fn compile(&self) -> Vec<Rewrite<Term, Facts>> {
        let read = |text: &str| Pat::read(text).unwrap_or_else(|e| panic!("rule `{}`: {e} in `{text}`", self.name));
        let (left, right) = (read(self.left), read(self.right));
        let when: Vec<Pat> = self.when.iter().map(|c| read(c)).collect();
        left.orders()
            .into_iter()
            .enumerate()
            .map(|(order, left)| {
                let mut numbers = Vec::new();
                let mut ast = RecExpr::default();
                left.search_pattern(&mut ast, &mut numbers);
                let pattern = Pattern::new(ast.clone());
                let apply = Apply { left: ast, right: right.clone(), when: when.clone(), numbers };
                Rewrite::new(format!("{}#{order}", self.name), pattern, apply)
                    .unwrap_or_else(|e| panic!("rule `{}`: {e}", self.name))
            })
            .collect()
    }
}

/// A side of a rule.
#[derive(Clone, PartialEq, Debug)]
pub enum Pat {
    Var(Var),
    /// A number in an expression.
    Number(f64),
    Leaf(Leaf),
    Op(&'static str, Vec<Pat>),
    /// Function name or variable, operands, target type.
    Call(Vec<Pat>),
    /// An attribute function.
    Compute(&'static str, Vec<Pat>),
}

const COMMUTATIVE: &[&str] = &["add", "mul", "min", "max", "and", "or", "xor", "eq"];

impl Pat {
    pub fn read(text: &str) -> Result<Pat, String> {
        let spaced = text.replace('(', " ( ").replace(')', " ) ");
        let tokens: Vec<&str> = spaced.split_whitespace().collect();
        let mut at = 0;
        let pat = Pat::node(&tokens, &mut at)?;
        if at == tokens.len() { Ok(pat) } else { Err(format!("`{}` is left over", tokens[at])) }
    }

    fn node(tokens: &[&str], at: &mut usize) -> Result<Pat, String> {
        let token = *tokens.get(*at).ok_or("it ends early")?;
        *at += 1;
        if token != "(" {
            return Pat::atom(token);
        }
        let name = *tokens.get(*at).ok_or("it ends early")?;
        *at += 1;
        let mut children = Vec::new();
        while tokens.get(*at) != Some(&")") {
            children.push(Pat::node(tokens, at)?);
        }
        *at += 1;
        if name == "call" {
            return Ok(Pat::Call(children));
        }
        // `min` and `max` are scalar functions where they have operands; as attributes they are words.
        if let Some(f) = ScalarFn::ALL.iter().find(|f| f.name() == name) {
            if children.len() != f.arity() + usize::from(f.sig() == Sig::Convert) {
                return Err(format!("`{name}` takes {} operands", f.arity()));
            }
            children.insert(0, Pat::Leaf(Leaf::Word(f.name())));
            return Ok(Pat::Call(children));
        }
        if let Some(op) = OPS.iter().find(|o| o.name == name) {
            if !op.operands.iter().any(|o| o.ends_with("..")) && children.len() != op.operands.len() + op.attrs.len() {
                return Err(format!("`{name}` takes {} operands and attributes", op.operands.len() + op.attrs.len()));
            }
            // Numbers in the place of attributes are attributes.
            let operands = children.len() - op.attrs.len();
            for c in &mut children[operands..] {
                if let Pat::Number(n) = c {
                    *c = Pat::Leaf(Leaf::int(*n as i64));
                }
            }
            return Ok(Pat::Op(op.name, children));
        }
        let name = attrs::FUNCTIONS.iter().find(|(n, _)| *n == name).map(|(n, _)| *n);
        let name = name.ok_or_else(|| format!("`{}` is no op and no function", tokens[*at - 1]))?;
        for c in &mut children {
            if let Pat::Number(n) = c {
                *c = Pat::Leaf(Leaf::int(*n as i64));
            }
        }
        Ok(Pat::Compute(name, children))
    }

    fn atom(token: &str) -> Result<Pat, String> {
        if token.starts_with('?') {
            return token.parse().map(Pat::Var).map_err(|_| format!("`{token}` is no variable"));
        }
        if let Some(list) = token.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            let items: Result<Vec<Leaf>, _> =
                list.split(',').filter(|t| !t.is_empty()).map(|t| t.parse().map(Leaf::int)).collect();
            return items.map(|l| Pat::Leaf(Leaf::List(l))).map_err(|e| format!("{e} in `{token}`"));
        }
        if let Ok(n) = token.parse::<f64>() {
            return Ok(Pat::Number(n));
        }
        if let Some(d) = DType::ALL.iter().find(|d| d.name() == token) {
            return Ok(Pat::Leaf(Leaf::DType(*d)));
        }
        const WORDS: &[&str] = &["sum", "prod", "max", "min", "set", "add", "mul"];
        match (token, WORDS.iter().find(|w| **w == token)) {
            ("true" | "false", _) => Ok(Pat::Leaf(Leaf::Bool(token == "true"))),
            (_, Some(w)) => Ok(Pat::Leaf(Leaf::Word(w))),
            _ => Err(format!("`{token}` is no word of rules")),
        }
    }

    fn children(&self) -> &[Pat] {
        match self {
            Pat::Op(_, c) | Pat::Call(c) | Pat::Compute(_, c) => c,
            _ => &[],
        }
    }

    /// The variables in the order in which they occur.
    pub fn variables(&self) -> Vec<Var> {
        let mut found = Vec::new();
        self.collect(&mut found);
        found
    }

    fn collect(&self, found: &mut Vec<Var>) {
        if let Pat::Var(v) = self
            && !found.contains(v)
        {
            found.push(*v);
        }
        self.children().iter().for_each(|c| c.collect(found));
    }

    /// The pattern with the operands of commutative functions in every order; what is written twice is ordered the same
    /// way twice.
    fn orders(&self) -> Vec<Pat> {
        let mut found: Vec<&Pat> = Vec::new();
        self.commutative(&mut found);
        (0..1u32 << found.len())
            .map(|mask| self.ordered(&|p| found.iter().position(|f| *f == p).is_some_and(|i| mask >> i & 1 == 1)))
            .collect()
    }

    /// The different calls of commutative functions with different operands.
    fn commutative<'p>(&'p self, found: &mut Vec<&'p Pat>) {
        self.children().iter().for_each(|c| c.commutative(found));
        if let Pat::Call(children) = self
            && let [Pat::Leaf(Leaf::Word(f)), a, b] = &children[..]
            && COMMUTATIVE.contains(f)
            && a != b
            && !found.contains(&self)
        {
            found.push(self);
        }
    }

    fn ordered(&self, swapped: &dyn Fn(&Pat) -> bool) -> Pat {
        let mut children: Vec<Pat> = self.children().iter().map(|c| c.ordered(swapped)).collect();
        if swapped(self) {
            children.swap(1, 2);
        }
        match self {
            Pat::Op(name, _) => Pat::Op(name, children),
            Pat::Call(_) => Pat::Call(children),
            Pat::Compute(name, _) => Pat::Compute(name, children),
            leaf => leaf.clone(),
        }
    }

    /// The pattern as egg searches it. A number is any class that is this number, whatever its type.
    fn search_pattern(&self, ast: &mut Ast, numbers: &mut Vec<(Var, f64)>) -> Id {
        let mut kids =
            |children: &[Pat]| -> Box<[Id]> { children.iter().map(|c| c.search_pattern(ast, numbers)).collect() };
        let node = match self {
            Pat::Op(name, children) => Term::Op(name, kids(children)),
            Pat::Call(children) => Term::Call(kids(children)),
            Pat::Leaf(l) => Term::Leaf(l.clone()),
            Pat::Var(v) => return ast.add(ENodeOrVar::Var(*v)),
            Pat::Number(n) => {
                let var = Var::from_u32(1000 + numbers.len() as u32);
                numbers.push((var, *n));
                return ast.add(ENodeOrVar::Var(var));
            }
            Pat::Compute(name, _) => panic!("`{name}` on the left side"),
        };
        ast.add(ENodeOrVar::ENode(node))
    }
}

/// Where variables get their meaning.
pub trait Scope {
    fn fact(&self, v: Var) -> Option<Fact>;
    fn inputs(&self) -> &[super::term::Known];
}

impl Scope for (&Graph, &Subst) {
    fn fact(&self, v: Var) -> Option<Fact> {
        self.1.get(v).map(|id| self.0[*id].data.clone())
    }

    fn inputs(&self) -> &[super::term::Known] {
        &self.0.analysis.inputs
    }
}

impl Pat {
    /// Type-check the pattern where variables mean what the scope says, and write down the terms it stands for. `hint`
    /// is the type of numbers that have no neighbour.
    pub fn instantiate(&self, scope: &dyn Scope, hint: Option<DType>, out: &mut Ast) -> Option<(Id, Fact)> {
        match self {
            Pat::Var(v) => Some((out.add(ENodeOrVar::Var(*v)), scope.fact(*v)?)),
            Pat::Leaf(l) => Some((out.add(ENodeOrVar::ENode(Term::Leaf(l.clone()))), Fact::Leaf(l.clone()))),
            Pat::Number(n) => {
                let lit = Lit::number(hint?, *n);
                // Not every type has every number.
                let same = lit.as_f64() == *n || (n.is_nan() && lit.as_f64().is_nan());
                same.then(|| (out.add(ENodeOrVar::ENode(Term::Lit(lit))), Fact::Lit(lit)))
            }
            Pat::Compute(name, children) => {
                let mut facts = Vec::new();
                for c in children {
                    facts.push(c.instantiate(scope, hint, &mut RecExpr::default())?.1);
                }
                let (_, f) = attrs::FUNCTIONS.iter().find(|(n, _)| n == name)?;
                let leaf = match f(&facts)? {
                    Fact::Leaf(l) => l,
                    Fact::Lit(l) => return Some((out.add(ENodeOrVar::ENode(Term::Lit(l))), Fact::Lit(l))),
                    Fact::Tensor(_) => return None,
                };
                Some((out.add(ENodeOrVar::ENode(Term::Leaf(leaf.clone()))), Fact::Leaf(leaf)))
            }
            Pat::Op(name, children) => {
                let made: Vec<(Id, Fact)> =
                    children.iter().map(|c| c.instantiate(scope, hint, out)).collect::<Option<_>>()?;
                let term = Term::Op(name, made.iter().map(|m| m.0).collect());
                add(term, &made, scope, out)
            }
            Pat::Call(children) => {
                // Numbers last: they take the type of the others.
                let mut made: Vec<Option<(Id, Fact)>> = vec![None; children.len()];
                for (slot, c) in made.iter_mut().zip(children).filter(|(_, c)| !matches!(c, Pat::Number(_))) {
                    *slot = Some(c.instantiate(scope, hint, out)?);
                }
                let neighbour = made.iter().flatten().rev().find_map(|(_, f)| match f {
                    Fact::Lit(l) => Some(l.dtype),
                    other => other.tensor().map(|t| t.dtype),
                });
                for (slot, c) in made.iter_mut().zip(children).filter(|(_, c)| matches!(c, Pat::Number(_))) {
                    *slot = Some(c.instantiate(scope, neighbour.or(hint), out)?);
                }
                let made: Vec<(Id, Fact)> = made.into_iter().collect::<Option<_>>()?;
                let term = Term::Call(made.iter().map(|m| m.0).collect());
                add(term, &made, scope, out)
            }
        }
    }
}

fn add(term: Term, children: &[(Id, Fact)], scope: &dyn Scope, out: &mut Ast) -> Option<(Id, Fact)> {
    let kids: Vec<&Fact> = children.iter().map(|m| &m.1).collect();
    let known = fact(&term, scope.inputs(), &kids)?;
    // A function of numbers is a number.
    let term = match known {
        Fact::Lit(l) => Term::Lit(l),
        _ => term,
    };
    Some((out.add(ENodeOrVar::ENode(term)), known))
}

/// Finds the classes that a pattern describes.
#[derive(Debug)]
pub struct Finder(Vec<(Pattern<Term>, Numbers)>);

/// Variables that must be a certain number.
type Numbers = Vec<(Var, f64)>;

impl Finder {
    /// # Panics
    /// If the text cannot be read: all patterns are compiled by tests.
    pub fn new(text: &str) -> Finder {
        let pat = Pat::read(text).unwrap_or_else(|e| panic!("{e} in `{text}`"));
        let search = |pat: &Pat| {
            let (mut ast, mut numbers) = (RecExpr::default(), Vec::new());
            pat.search_pattern(&mut ast, &mut numbers);
            (Pattern::new(ast), numbers)
        };
        Finder(pat.orders().iter().map(search).collect())
    }

    pub fn find(&self, graph: &Graph) -> BTreeSet<Id> {
        let mut found = BTreeSet::new();
        for (pattern, numbers) in &self.0 {
            for matches in pattern.search(graph) {
                if matches.substs.iter().any(|s| numbers_hold(numbers, &(graph, s))) {
                    found.insert(matches.eclass);
                }
            }
        }
        found
    }
}

fn numbers_hold(numbers: &Numbers, scope: &dyn Scope) -> bool {
    numbers.iter().all(|(v, n)| match scope.fact(*v) {
        // Zero is the zero without a sign.
        Some(Fact::Lit(l)) => l.as_f64() == *n && l.as_f64().is_sign_negative() == n.is_sign_negative(),
        _ => false,
    })
}

struct Apply {
    left: Ast,
    right: Pat,
    when: Vec<Pat>,
    numbers: Numbers,
}

impl Apply {
    fn fires(&self, scope: &dyn Scope) -> bool {
        let holds = |c: &Pat| {
            matches!(c.instantiate(scope, None, &mut RecExpr::default()), Some((_, Fact::Leaf(Leaf::Bool(true)))))
        };
        numbers_hold(&self.numbers, scope) && self.when.iter().all(holds)
    }
}

impl Applier<Term, Facts> for Apply {
    fn apply_one(&self, graph: &mut Graph, class: Id, subst: &Subst, left: Option<&Ast>, name: Symbol) -> Vec<Id> {
        let mut right = RecExpr::default();
        {
            let scope = (&*graph, subst);
            if !self.fires(&scope) {
                return vec![];
            }
            let class = &graph[class].data;
            let hint = class.tensor().map(|t| t.dtype);
            match (self.right.instantiate(&scope, hint, &mut right), class) {
                (Some((_, Fact::Tensor(made))), Fact::Tensor(old)) if made.ty == old.ty => {}
                _ => return vec![],
            }
        }
        let changed = match left {
            Some(left) => graph.union_instantiations(left, &right, subst, name).1,
            None => sources::rewrite(graph, class, &self.left, &right, subst, name),
        };
        if changed { vec![graph.find(class)] } else { vec![] }
    }
}

/// A list of dimensions.
pub(crate) fn dims(leaf: &Leaf) -> Option<Vec<Dim>> {
    numrsc_ir::attr::Attr::from_leaf(leaf)
}
