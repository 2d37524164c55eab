//! Order of nodes: who depends on whom, a stable topological order, and a witness when there is none.
use super::proto::ModelProto;
use std::{cmp::Reverse, collections::BinaryHeap};

/// Dependencies of nodes on earlier nodes, stored flat: `of(i)` are the nodes that must run before node `i`.
#[derive(Debug, Default)]
pub(super) struct Dependencies {
    ends: Vec<usize>,
    nodes: Vec<usize>,
}

impl Dependencies {
    /// Add a dependency of the node that comes next.
    pub(super) fn push(&mut self, on: usize) {
        self.nodes.push(on);
    }

    pub(super) fn end_node(&mut self) {
        self.ends.push(self.nodes.len());
    }

    pub(super) fn of(&self, node: usize) -> &[usize] {
        let start = if node == 0 { 0 } else { self.ends[node - 1] };
        &self.nodes[start..self.ends[node]]
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The first node that comes before something it depends on.
    pub(super) fn first_unsorted(&self) -> Option<usize> {
        (0..self.len()).find(|&i| self.of(i).iter().any(|&j| j >= i))
    }

    /// A topological order that takes the first ready node of the file each time; else the nodes of one cycle,
    /// each depending on the next.
    pub(super) fn sort(&self) -> Result<Vec<usize>, Vec<usize>> {
        let mut users: Vec<Vec<usize>> = vec![vec![]; self.len()];
        let mut waiting = vec![0usize; self.len()];
        for (i, waiting) in waiting.iter_mut().enumerate() {
            *waiting = self.of(i).len();
            self.of(i).iter().for_each(|&j| users[j].push(i));
        }
        let mut ready: BinaryHeap<_> = (0..self.len()).filter(|&i| waiting[i] == 0).map(Reverse).collect();
        let mut order = Vec::with_capacity(self.len());
        while let Some(Reverse(i)) = ready.pop() {
            order.push(i);
            for &user in &users[i] {
                waiting[user] -= 1;
                if waiting[user] == 0 {
                    ready.push(Reverse(user));
                }
            }
        }
        if order.len() == self.len() { Ok(order) } else { Err(self.cycle(&waiting)) }
    }

    /// Every node still waiting depends on another one still waiting, so following them must close a circle.
    fn cycle(&self, waiting: &[usize]) -> Vec<usize> {
        let mut seen_at = vec![None; self.len()];
        let mut path = vec![];
        let mut next = waiting.iter().position(|&n| n > 0);
        while let Some(i) = next {
            if let Some(start) = seen_at[i] {
                return path.split_off(start);
            }
            seen_at[i] = Some(path.len());
            path.push(i);
            next = self.of(i).iter().copied().find(|&j| waiting[j] > 0);
        }
        path
    }
}

/// Nodes of one graph that have to be put in another order.
#[derive(Debug)]
pub(super) struct Order {
    /// Which body: a function or, without one, the main graph.
    pub(super) function: Option<usize>,
    /// The way from there: node, attribute, graph within the attribute.
    pub(super) steps: Vec<(usize, usize, usize)>,
    pub(super) order: Vec<usize>,
}

/// Put nodes in the orders that the check found. Inner graphs come first in `orders`, so the steps to them still hold.
pub(super) fn reorder(model: &mut ModelProto, orders: Vec<Order>) {
    for Order { function, steps, order } in orders {
        let nodes = match function {
            Some(i) => model.functions.get_mut(i).map(|f| &mut f.node),
            None => model.graph.as_mut().map(|g| &mut g.node),
        };
        let nodes = steps.iter().fold(nodes, |nodes, &(node, attribute, graph)| {
            let attribute = nodes?.get_mut(node)?.attribute.get_mut(attribute)?;
            Some(&mut attribute.subgraphs_mut().nth(graph)?.node)
        });
        if let Some(nodes) = nodes {
            *nodes = order.iter().map(|&i| std::mem::take(&mut nodes[i])).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependencies(nodes: &[&[usize]]) -> Dependencies {
        let mut all = Dependencies::default();
        for node in nodes {
            node.iter().for_each(|&j| all.push(j));
            all.end_node();
        }
        all
    }

    #[test]
    fn sorting_is_stable() {
        let d = dependencies(&[&[2], &[], &[], &[0, 1]]);
        assert_eq!(d.first_unsorted(), Some(0));
        assert_eq!(d.sort(), Ok(vec![1, 2, 0, 3]));
        assert_eq!(dependencies(&[&[], &[0]]).first_unsorted(), None);
    }

    #[test]
    fn a_cycle_is_found_without_what_hangs_on_it() {
        assert_eq!(dependencies(&[&[1], &[2], &[3], &[1]]).sort(), Err(vec![1, 2, 3]));
        assert_eq!(dependencies(&[&[0]]).sort(), Err(vec![0]));
    }
}
