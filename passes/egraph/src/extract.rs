//! Extraction: chooses one term per class so that the total cost is least, where shared work is paid once.
//!
//! Greedy: every class knows the set of classes its best term needs, and takes the term whose set costs least. Work
//! that only pays when several share it is found by a second look: if a costly class that was not chosen were free,
//! would the rest get cheaper by more than its price? An exact search (branch and bound) for small graphs shows how far
//! that is from the best.
use crate::{
    cost::CostModel,
    needs::{Forest, Needs},
    term::{Fact, Graph, Term},
};
use egg::{Id, Language};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// A class as extraction sees it: its terms with their costs, children as indices of classes.
#[derive(Debug)]
struct Class {
    terms: Vec<(Term, u64, Vec<usize>)>,
}

/// An e-graph as extraction sees it.
#[derive(Debug)]
pub struct Problem {
    ids: Vec<Id>,
    classes: Vec<Class>,
    parents: Vec<BTreeSet<usize>>,
    roots: Vec<usize>,
    forest: Forest,
}

/// The chosen term of each class that is needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extraction {
    pub cost: u64,
    chosen: BTreeMap<usize, usize>,
}

/// The classes that the best term of a class needs, with what each costs.
#[derive(Clone, Debug)]
struct Best {
    term: usize,
    needs: Needs,
}

impl Extraction {
    /// The classes that are needed.
    pub fn classes(&self) -> impl Iterator<Item = usize> {
        self.chosen.keys().copied()
    }
}

impl Problem {
    pub fn new(graph: &Graph, roots: &[Id], model: &CostModel) -> Problem {
        // Only what the roots can reach, in the order of the first visit: nothing depends on how the e-graph numbers
        // its classes.
        let mut place: HashMap<Id, usize> = HashMap::new();
        let mut ids = Vec::new();
        let mut queue: VecDeque<Id> = roots.iter().map(|r| graph.find(*r)).collect();
        while let Some(id) = queue.pop_front() {
            if place.contains_key(&id) {
                continue;
            }
            place.insert(id, ids.len());
            ids.push(id);
            for term in &graph[id].nodes {
                queue.extend(term.children().iter().map(|c| graph.find(*c)));
            }
        }
        let mut parents = vec![BTreeSet::new(); ids.len()];
        let mut classes = Vec::with_capacity(ids.len());
        for (at, id) in ids.iter().enumerate() {
            let mut terms = Vec::new();
            for term in &graph[*id].nodes {
                let children: Vec<usize> = term.children().iter().map(|c| place[&graph.find(*c)]).collect();
                if children.contains(&at) {
                    continue;
                }
                let kids: Vec<&Fact> = term.children().iter().map(|c| &graph[*c].data).collect();
                let name = if let Term::Op(name, _) = term { Some(*name) } else { None };
                let cost = match term {
                    Term::Op(..) | Term::Call(_) => model.of(name, &kids, &graph[*id].data),
                    Term::Input(_) | Term::Lit(_) | Term::Leaf(_) => 0,
                };
                children.iter().for_each(|&c| {
                    parents[c].insert(at);
                });
                terms.push((term.clone(), cost, children));
            }
            classes.push(Class { terms });
        }
        let roots = roots.iter().map(|r| place[&graph.find(*r)]).collect();
        let forest = Forest::new(classes.len());
        Problem { ids, classes, parents, roots, forest }
    }

    /// The greedy choice with a second look at shared work.
    pub fn greedy(&self) -> Extraction {
        let mut free = BTreeSet::new();
        let mut best = self.choose(&free);
        for candidate in self.costly(&best) {
            free.insert(candidate);
            let other = self.choose(&free);
            if other.cost < best.cost {
                best = other;
            } else {
                free.remove(&candidate);
            }
        }
        best
    }

    /// Classes that cost much, that more than one other class could use, and that fewer do.
    fn costly(&self, choice: &Extraction) -> Vec<usize> {
        const MUCH: u64 = 100_000;
        let cheapest = |c: &Class| c.terms.iter().map(|t| t.1).min().unwrap_or(0);
        let does_without =
            |p: &usize, c: usize| choice.chosen.get(p).is_some_and(|t| !self.classes[*p].terms[*t].2.contains(&c));
        (0..self.classes.len())
            .filter(|c| self.parents[*c].len() > 1 && cheapest(&self.classes[*c]) > MUCH)
            .filter(|&c| !choice.chosen.contains_key(&c) || self.parents[c].iter().any(|p| does_without(p, c)))
            .collect()
    }

    /// The greedy choice if some classes were paid for already.
    fn choose(&self, free: &BTreeSet<usize>) -> Extraction {
        let mut best: Vec<Option<Best>> = vec![None; self.classes.len()];
        let mut queue: VecDeque<usize> = (0..self.classes.len()).collect();
        let mut queued = vec![true; self.classes.len()];
        // When a class was looked at, and when it was improved.
        let (mut looked, mut improved) = (vec![0usize; self.classes.len()], vec![0usize; self.classes.len()]);
        for now in 1.. {
            let Some(at) = queue.pop_front() else { break };
            queued[at] = false;
            let before = std::mem::replace(&mut looked[at], now);
            for (number, (_, cost, children)) in self.classes[at].terms.iter().enumerate() {
                // What did not win with the same children does not win now.
                if before > 0 && children.iter().all(|&c| improved[c] < before) {
                    continue;
                }
                let cost = if free.contains(&at) { (*cost).min(1) } else { *cost };
                let Some(needs) = self.needs(at, cost, children, &best) else { continue };
                if best[at].as_ref().is_none_or(|b| needs.total() < b.needs.total()) {
                    best[at] = Some(Best { term: number, needs });
                    improved[at] = now;
                }
            }
            if improved[at] == now {
                for &p in &self.parents[at] {
                    if !std::mem::replace(&mut queued[p], true) {
                        queue.push_back(p);
                    }
                }
            }
        }
        let choice = self.walk(&|c| best[c].as_ref().map(|b| b.term));
        choice.unwrap_or_else(|| self.tree())
    }

    /// The set that a term of a class needs, if all its children are known and none needs that class.
    fn needs(&self, at: usize, cost: u64, children: &[usize], best: &[Option<Best>]) -> Option<Needs> {
        let mut needs: Option<Needs> = None;
        for &c in children {
            let of_child = &best[c].as_ref()?.needs;
            needs = Some(match needs {
                Some(needs) => self.forest.union(&needs, of_child),
                None => of_child.clone(),
            });
        }
        if needs.as_ref().is_some_and(|needs| self.forest.contains(needs, at)) {
            return None;
        }
        // One more than the cost, so that of two equal choices the one with fewer terms wins.
        Some(self.forest.with(needs.as_ref(), at, cost.saturating_add(1)))
    }

    /// Work of extraction so far, in steps of about equal duration.
    pub fn work(&self) -> u64 {
        self.forest.work()
    }

    /// Follow the choice from the roots; `None` if it runs in a circle.
    fn walk(&self, term_of: &dyn Fn(usize) -> Option<usize>) -> Option<Extraction> {
        let mut chosen = BTreeMap::new();
        let mut open = BTreeSet::new();
        let mut cost = 0u64;
        // (class, next child)
        let mut stack: Vec<(usize, usize)> = Vec::new();
        for &root in &self.roots {
            if !chosen.contains_key(&root) {
                stack.push((root, 0));
                open.insert(root);
            }
            while let Some((class, next)) = stack.last_mut() {
                let (class, term) = (*class, term_of(*class)?);
                let (_, own, children) = &self.classes[class].terms[term];
                if let Some(&child) = children.get(*next) {
                    *next += 1;
                    if open.contains(&child) {
                        return None;
                    }
                    if !chosen.contains_key(&child) {
                        open.insert(child);
                        stack.push((child, 0));
                    }
                } else {
                    cost = cost.saturating_add(*own);
                    chosen.insert(class, term);
                    open.remove(&class);
                    stack.pop();
                }
            }
        }
        Some(Extraction { cost, chosen })
    }

    /// The choice that costs least as a tree: never a circle.
    fn tree(&self) -> Extraction {
        let mut best: Vec<Option<(u64, usize)>> = vec![None; self.classes.len()];
        loop {
            let mut changed = false;
            for (at, class) in self.classes.iter().enumerate() {
                for (number, (_, cost, children)) in class.terms.iter().enumerate() {
                    let total = children.iter().try_fold(*cost + 1, |sum, c| Some(best[*c]?.0.saturating_add(sum)));
                    if let Some(total) = total
                        && best[at].is_none_or(|(b, _)| total < b)
                    {
                        best[at] = Some((total, number));
                        changed = true;
                    }
                }
            }
            if !changed {
                break;
            }
        }
        self.walk(&|c| best[c].map(|b| b.1)).expect("every term costs more than its children")
    }

    /// The best choice of all, unless the search takes more than `steps`.
    pub fn exact(&self, steps: usize) -> Option<Extraction> {
        let mut search = Search {
            problem: self,
            least: self.classes.iter().map(|c| c.terms.iter().map(|t| t.1).min().unwrap_or(0)).collect(),
            best: self.greedy(),
            steps,
        };
        let mut open: Vec<usize> = self.roots.clone();
        open.dedup();
        search.run(&mut BTreeMap::new(), &open, 0).then_some(search.best)
    }

    /// The class of the e-graph.
    pub fn id(&self, class: usize) -> Id {
        self.ids[class]
    }

    pub fn term(&self, class: usize, choice: &Extraction) -> (&Term, &[usize]) {
        let (term, _, children) = &self.classes[class].terms[choice.chosen[&class]];
        (term, children)
    }

    /// The chosen term of a class with all below it.
    pub fn expression(&self, class: usize, choice: &Extraction) -> egg::RecExpr<Term> {
        let node = |c: usize| {
            let (term, children) = self.term(c, choice);
            let mut children = children.iter();
            term.clone().map_children(|_| Id::from(*children.next().expect("as many as before")))
        };
        node(class).build_recexpr(|id| node(id.into()))
    }

    pub fn roots(&self) -> &[usize] {
        &self.roots
    }

    pub fn len(&self) -> usize {
        self.classes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }
}

struct Search<'p> {
    problem: &'p Problem,
    least: Vec<u64>,
    best: Extraction,
    steps: usize,
}

impl Search<'_> {
    /// Try every term of the first open class; `false` if there was no time to try all.
    fn run(&mut self, chosen: &mut BTreeMap<usize, usize>, open: &[usize], cost: u64) -> bool {
        let Some((&class, rest)) = open.split_first() else {
            if let Some(choice) = self.problem.walk(&|c| chosen.get(&c).copied())
                && choice.cost < self.best.cost
            {
                self.best = choice;
            }
            return true;
        };
        if chosen.contains_key(&class) {
            return self.run(chosen, rest, cost);
        }
        let waiting: BTreeSet<usize> = open.iter().copied().filter(|c| !chosen.contains_key(c)).collect();
        let at_least: u64 = waiting.iter().map(|c| self.least[*c]).sum();
        if cost.saturating_add(at_least) >= self.best.cost {
            return true;
        }
        let mut complete = true;
        for (number, (_, own, children)) in self.problem.classes[class].terms.iter().enumerate() {
            let Some(left) = self.steps.checked_sub(1) else { return false };
            self.steps = left;
            chosen.insert(class, number);
            let next: Vec<usize> = rest.iter().chain(children).copied().collect();
            complete &= self.run(chosen, &next, cost.saturating_add(*own));
            chosen.remove(&class);
        }
        complete
    }
}
