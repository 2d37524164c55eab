//! The classes that a term needs, with a cost each, as a persistent set that shares nearly all of its memory with the
//! sets it was made of.
//!
//! Operands mostly need the same as each other, so a union that looks at every class takes time in proportion to the
//! square of a region. Here it goes only where both sets differ: they are trees of one shape, and what they have in
//! common is one node in memory.
use std::{cell::Cell, rc::Rc};

/// Children of a node, as a power of two.
const BITS: u32 = 4;
const WIDTH: usize = 1 << BITS;

/// Makes sets of classes below a number.
#[derive(Debug)]
pub(super) struct Forest {
    /// Levels of nodes above the lowest.
    height: u32,
    /// Nodes looked at.
    work: Cell<u64>,
}

/// Classes and what each costs, which is never 0.
#[derive(Clone, Debug)]
pub(super) struct Needs(Rc<Node>);

#[derive(Debug)]
struct Node {
    total: u64,
    below: Below,
}

#[derive(Clone, Debug)]
enum Below {
    /// Of neighbouring classes; 0 for those that are not there.
    Costs([u64; WIDTH]),
    Nodes([Option<Rc<Node>>; WIDTH]),
}

impl Needs {
    /// The sum of all costs.
    pub(super) fn total(&self) -> u64 {
        self.0.total
    }
}

impl Node {
    fn new(below: Below) -> Rc<Node> {
        let add = |sum: u64, cost: u64| sum.saturating_add(cost);
        let total = match &below {
            Below::Costs(costs) => costs.iter().copied().fold(0, add),
            Below::Nodes(nodes) => nodes.iter().flatten().map(|n| n.total).fold(0, add),
        };
        Rc::new(Node { total, below })
    }
}

impl Forest {
    pub(super) fn new(classes: usize) -> Forest {
        let mut height = 0;
        while classes > WIDTH << (height * BITS) {
            height += 1;
        }
        Forest { height, work: Cell::new(0) }
    }

    /// Nodes looked at in making sets: what extraction takes time in proportion to.
    pub(super) fn work(&self) -> u64 {
        self.work.get()
    }

    fn place(class: usize, height: u32) -> usize {
        (class >> (height * BITS)) % WIDTH
    }

    pub(super) fn contains(&self, needs: &Needs, class: usize) -> bool {
        let (mut node, mut height) = (&needs.0, self.height);
        loop {
            match &node.below {
                Below::Costs(costs) => return costs[Self::place(class, 0)] != 0,
                Below::Nodes(nodes) => match &nodes[Self::place(class, height)] {
                    Some(next) => (node, height) = (next, height - 1),
                    None => return false,
                },
            }
        }
    }

    /// The set with one more class.
    pub(super) fn with(&self, needs: Option<&Needs>, class: usize, cost: u64) -> Needs {
        Needs(self.inserted(needs.map(|n| &n.0), self.height, class, cost))
    }

    fn inserted(&self, node: Option<&Rc<Node>>, height: u32, class: usize, cost: u64) -> Rc<Node> {
        self.work.set(self.work.get() + 1);
        let at = Self::place(class, height);
        let mut below = match node {
            Some(node) => node.below.clone(),
            None if height == 0 => Below::Costs([0; WIDTH]),
            None => Below::Nodes(Default::default()),
        };
        match &mut below {
            Below::Costs(costs) => costs[at] = cost,
            Below::Nodes(nodes) => nodes[at] = Some(self.inserted(nodes[at].as_ref(), height - 1, class, cost)),
        }
        Node::new(below)
    }

    /// The classes of both sets; of those in both, the second one's costs hold.
    pub(super) fn union(&self, a: &Needs, b: &Needs) -> Needs {
        Needs(self.united(&a.0, &b.0))
    }

    fn united(&self, a: &Rc<Node>, b: &Rc<Node>) -> Rc<Node> {
        self.work.set(self.work.get() + 1);
        if Rc::ptr_eq(a, b) {
            return a.clone();
        }
        // What comes out is one of the two if it can be: later unions find more in common.
        let (mut is_a, mut is_b) = (true, true);
        let below = match (&a.below, &b.below) {
            (Below::Costs(a), Below::Costs(b)) => Below::Costs(std::array::from_fn(|i| {
                let cost = if b[i] == 0 { a[i] } else { b[i] };
                (is_a, is_b) = (is_a && cost == a[i], is_b && cost == b[i]);
                cost
            })),
            (Below::Nodes(a), Below::Nodes(b)) => Below::Nodes(std::array::from_fn(|i| {
                let node = match (&a[i], &b[i]) {
                    (Some(a), Some(b)) => Some(self.united(a, b)),
                    (one, None) | (None, one) => one.clone(),
                };
                let is = |other: &Option<Rc<Node>>| node.as_ref().map(Rc::as_ptr) == other.as_ref().map(Rc::as_ptr);
                (is_a, is_b) = (is_a && is(&a[i]), is_b && is(&b[i]));
                node
            })),
            _ => unreachable!("all sets have the same height"),
        };
        match (is_a, is_b) {
            (true, _) => a.clone(),
            (_, true) => b.clone(),
            _ => Node::new(below),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn set(forest: &Forest, of: &BTreeMap<usize, u64>) -> Option<Needs> {
        of.iter().fold(None, |needs, (class, cost)| Some(forest.with(needs.as_ref(), *class, *cost)))
    }

    #[test]
    fn unions_are_those_of_maps() {
        for classes in [1, 16, 17, 300, 5000] {
            let forest = Forest::new(classes);
            for seed in 0..200usize {
                let map = |salt: usize| -> BTreeMap<usize, u64> {
                    let class = |i: usize| (i * 7919 + seed * salt * 31 + i * i * salt) % classes;
                    (0..=(seed * salt) % 40).map(|i| (class(i), 1 + (i * salt) as u64)).collect()
                };
                let (mut a, b) = (map(3), map(5));
                let (x, y) = (set(&forest, &a).expect("some"), set(&forest, &b).expect("some"));
                let both = forest.union(&x, &y);
                a.extend(&b);
                assert_eq!(both.total(), a.values().sum::<u64>());
                assert!((0..classes).all(|c| forest.contains(&both, c) == a.contains_key(&c)));
                let subset = forest.union(&both, &y);
                assert!(Rc::ptr_eq(&subset.0, &both.0), "what adds nothing is not made again");
            }
        }
    }

    #[test]
    fn sums_do_not_wrap() {
        let forest = Forest::new(40);
        let needs = forest.with(Some(&forest.with(None, 0, u64::MAX)), 39, u64::MAX);
        assert_eq!(needs.total(), u64::MAX);
    }

    #[test]
    fn what_differs_little_is_united_in_little_time() {
        let forest = Forest::new(4096);
        let all = set(&forest, &(0..4000).map(|c| (c, 1)).collect()).expect("some");
        let (left, right) = (forest.with(Some(&all), 4001, 1), forest.with(Some(&all), 4002, 2));
        let before = forest.work();
        assert_eq!(forest.union(&left, &right).total(), 4003);
        assert!(forest.work() - before < 50, "{}", forest.work() - before);
    }
}
