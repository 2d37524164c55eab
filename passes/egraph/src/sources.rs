//! Where the terms that extraction chose come from: nodes of the region, by their numbers. Equal regions are optimised
//! once, and their nodes have other names each time.
//!
//! What computes the value of a node comes from it. A term that a rule added comes from the terms of the rule's left side
//! with the same function, or from all of them if there is none. A node whose value nobody computes any more is a part of
//! what its users became.
use crate::{
    extract::{Extraction, Problem},
    rule::Ast,
    term::{Graph, Term},
};
use egg::{ENodeOrVar, Id, Language, Subst, Symbol};
use numrsc_ir::{Func, Leaf, Value};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

/// The name of an op or of a scalar function.
type Head = &'static str;

/// A node of the region, and the rule that moved it here unless its value is computed here.
pub(crate) type Source = (Value, Option<&'static str>);

/// What happened in an e-graph, as far as it matters for where terms come from.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// The terms of the nodes of the region.
    nodes: Vec<(Id, Term, Value)>,
    made: Vec<Made>,
}

/// A term that a rule added, or found to be equal to others if it has no head.
#[derive(Clone, Debug)]
struct Made {
    class: Id,
    head: Head,
    rule: Symbol,
    /// The terms of the left side.
    from: Arc<[(Head, Id)]>,
}

impl Log {
    /// A node of the region has this term.
    pub(crate) fn node(graph: &mut Graph, class: Id, term: Term, v: Value) {
        graph.analysis.log.nodes.push((class, term, v));
    }

    /// A rule added a term for these classes.
    pub(crate) fn made(graph: &mut Graph, class: Id, head: Head, rule: &'static str, from: &[Id]) {
        let from = from.iter().map(|&id| ("", id)).collect();
        graph.analysis.log.made.push(Made { class, head, rule: rule.into(), from });
    }
}

fn head(graph: &Graph, term: &Term) -> Option<Head> {
    match term {
        Term::Op(name, _) => Some(name),
        Term::Call(children) => match graph[children[0]].data.leaf() {
            Some(Leaf::Word(name)) => Some(name),
            _ => None,
        },
        Term::Input(_) | Term::Lit(_) | Term::Leaf(_) => None,
    }
}

/// Add the right side of a rule, make it equal to what the left side matched, and write down what came of what. Did
/// that change anything?
pub(crate) fn rewrite(graph: &mut Graph, class: Id, left: &Ast, right: &Ast, subst: &Subst, rule: Symbol) -> bool {
    let mut ids: Vec<Id> = Vec::with_capacity(right.len());
    let mut added: Vec<(Id, Head)> = Vec::new();
    for node in right {
        ids.push(match node {
            ENodeOrVar::Var(v) => graph.find(subst[*v]),
            ENodeOrVar::ENode(term) => {
                let term = term.clone().map_children(|child| ids[usize::from(child)]);
                let head = head(graph, &term);
                let before = graph.total_size();
                let id = graph.add(term);
                added.extend(head.filter(|_| graph.total_size() > before).map(|head| (id, head)));
                id
            }
        });
    }
    let root = *ids.last().expect("rules have a right side");
    let is_new = graph.find(class) != graph.find(root);
    if !is_new && added.is_empty() {
        return false;
    }
    let from = matched(graph, class, left, subst);
    if added.is_empty() {
        added.push((root, ""));
    }
    for (class, head) in added {
        graph.analysis.log.made.push(Made { class, head, rule, from: from.clone() });
    }
    graph.union(class, root)
}

/// The terms that the left side of a rule matched.
fn matched(graph: &Graph, class: Id, left: &Ast, subst: &Subst) -> Arc<[(Head, Id)]> {
    let mut ids: Vec<Option<Id>> = Vec::with_capacity(left.len());
    let mut found = Vec::new();
    for (at, node) in left.iter().enumerate() {
        let id = match node {
            ENodeOrVar::Var(v) => subst.get(*v).copied(),
            ENodeOrVar::ENode(term) => {
                let known = term.children().iter().all(|child| ids[usize::from(*child)].is_some());
                let term = known.then(|| term.clone().map_children(|c| ids[usize::from(c)].unwrap_or(class)));
                // Unions of this round may hide what was there when it began.
                let id = term.as_ref().and_then(|term| graph.lookup(term.clone()));
                let id = if at + 1 == left.len() { Some(class) } else { id };
                let head = term.as_ref().and_then(|term| head(graph, term));
                found.extend(head.zip(id));
                id
            }
        };
        ids.push(id);
    }
    found.into()
}

/// Where the chosen terms come from, by their classes, and which nodes needed no data and are gone.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub classes: BTreeMap<usize, Vec<Source>>,
    pub folded: Vec<Value>,
}

impl Sources {
    pub(crate) fn of(graph: &Graph, region: &Func, problem: &Problem, choice: &Extraction) -> Sources {
        let index = Index::new(graph);
        let mut sources = Sources::default();
        // Where each node of the region is found again.
        let mut places: Vec<Option<usize>> = vec![None; region.nodes().len()];
        for class in choice.classes() {
            let (id, term) = (problem.id(class), problem.term(class, choice).0);
            let mut here: Vec<Source> = index.values.get(&id).into_iter().flatten().map(|&v| (v, None)).collect();
            here.iter().for_each(|(v, _)| places[v.0 as usize] = Some(class));
            if let Some(head) = head(graph, term)
                && !index.terms.contains(&(id, canonical(graph, term)))
                && let Some(made) = index.made(id, head)
            {
                for v in index.behind(made, head, &mut HashSet::from([(id, head)])) {
                    places[v.0 as usize].get_or_insert(class);
                    if here.iter().all(|(w, _)| *w != v) {
                        here.push((v, Some(rule_name(made.rule))));
                    }
                }
            }
            if !here.is_empty() {
                sources.classes.insert(class, here);
            }
        }
        sources.hand_on(graph, region, &index, &places);
        sources
    }

    /// Nodes that are found nowhere go to where their users are.
    #[allow(clippy::wildcard_enum_match_arm, reason = "all that is computed has data if an operand has")]
    fn hand_on(&mut self, graph: &Graph, region: &Func, index: &Index<'_>, places: &[Option<usize>]) {
        let n = region.nodes().len();
        let mut gone: Vec<Vec<Source>> = vec![vec![]; n];
        let mut users = vec![Vec::new(); n];
        let mut without_data: Vec<bool> = Vec::with_capacity(n);
        for (v, node) in region.values() {
            node.args.iter().for_each(|a| users[a.0 as usize].push(v));
            without_data.push(match &node.op {
                numrsc_ir::Op::Param { index, .. } => graph.analysis.inputs[*index as usize].constant,
                _ => node.args.iter().all(|a| without_data[a.0 as usize]),
            });
        }
        for (v, _) in region.values().skip(region.params().len()) {
            let at = v.0 as usize;
            let mut all = std::mem::take(&mut gone[at]);
            if let Some(class) = places[at] {
                let here = self.classes.entry(class).or_default();
                for source in all {
                    if here.iter().all(|(w, _)| *w != source.0) {
                        here.push(source);
                    }
                }
                continue;
            }
            if without_data[at] {
                self.folded.extend(all.iter().map(|s| s.0).chain([v]));
                continue;
            }
            all.push((v, Some(index.consumers.get(&v).map_or("optimise", |rule| rule_name(*rule)))));
            for user in &users[at] {
                let there = &mut gone[user.0 as usize];
                for source in &all {
                    if there.iter().all(|(w, _)| *w != source.0) {
                        there.push(*source);
                    }
                }
            }
        }
    }
}

/// The name of a rule without the order of its operands.
fn rule_name(rule: Symbol) -> &'static str {
    rule.as_str().split('#').next().unwrap_or_default()
}

fn canonical(graph: &Graph, term: &Term) -> Term {
    term.clone().map_children(|child| graph.find(child))
}

/// A log by the classes of the finished e-graph.
struct Index<'g> {
    graph: &'g Graph,
    terms: HashSet<(Id, Term)>,
    values: HashMap<Id, Vec<Value>>,
    values_of: HashMap<(Id, Head), Vec<Value>>,
    /// The first term of each class and function that a rule added, and of each class.
    made: HashMap<(Id, Head), &'g Made>,
    first: HashMap<Id, &'g Made>,
    /// The first rule that took each node apart.
    consumers: HashMap<Value, Symbol>,
}

impl<'g> Index<'g> {
    fn new(graph: &'g Graph) -> Index<'g> {
        let log = &graph.analysis.log;
        let mut index = Index {
            graph,
            terms: HashSet::new(),
            values: HashMap::new(),
            values_of: HashMap::new(),
            made: HashMap::new(),
            first: HashMap::new(),
            consumers: HashMap::new(),
        };
        let add = |all: &mut Vec<Value>, v: Value| {
            if !all.contains(&v) {
                all.push(v);
            }
        };
        for (id, term, v) in &log.nodes {
            let (id, head) = (graph.find(*id), head(graph, term));
            add(index.values.entry(id).or_default(), *v);
            if let Some(head) = head {
                add(index.values_of.entry((id, head)).or_default(), *v);
            }
            index.terms.insert((id, canonical(graph, term)));
        }
        for made in &log.made {
            let class = graph.find(made.class);
            index.made.entry((class, made.head)).or_insert(made);
            index.first.entry(class).or_insert(made);
            for (_, id) in made.from.iter() {
                for v in index.values.get(&graph.find(*id)).into_iter().flatten() {
                    index.consumers.entry(*v).or_insert(made.rule);
                }
            }
        }
        index
    }

    fn made(&self, class: Id, head: Head) -> Option<&'g Made> {
        self.made.get(&(class, head)).copied()
    }

    /// The nodes behind the terms of a rule's left side that have this function, or behind all of them.
    fn behind(&self, made: &Made, function: Head, seen: &mut HashSet<(Id, Head)>) -> Vec<Value> {
        let same = made.from.iter().any(|(head, _)| *head == function);
        let mut found = Vec::new();
        for (head, id) in made.from.iter().filter(|(head, _)| !same || *head == function) {
            for v in self.nodes_of(self.graph.find(*id), head, seen) {
                if !found.contains(&v) {
                    found.push(v);
                }
            }
        }
        found
    }

    fn nodes_of(&self, class: Id, head: Head, seen: &mut HashSet<(Id, Head)>) -> Vec<Value> {
        if let Some(values) = self.values_of.get(&(class, head)) {
            return values.clone();
        }
        // Of what has no function of its own, the class is known.
        if head.is_empty()
            && let Some(values) = self.values.get(&class)
        {
            return values.clone();
        }
        match self.made(class, head).or_else(|| self.first.get(&class).copied()) {
            Some(made) if seen.insert((class, head)) => self.behind(made, head, seen),
            _ => self.values.get(&class).cloned().unwrap_or_default(),
        }
    }
}
