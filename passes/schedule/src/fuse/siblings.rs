//! Siblings: stored maps and reductions over the same indices that one kernel computes (multi-output fusion). A result
//! of one is in a register for the next. The kernel runs where the last one would. A value per row, such as the range
//! of its elements, is computed in the kernel of the rows that read it.
use crate::fuse::{Fuser, MAX_ROW};
use numrsc_facts::{
    ops::is_statement,
    sizes::{TYPICAL, size},
};
use numrsc_ir::{Dim, Op, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The largest number of results of one kernel.
const MAX_RESULTS: usize = 4;

/// For each stored node that is computed by the kernel of another one: that node.
pub(super) type Leaders = BTreeMap<Value, Value>;

struct Group {
    members: Vec<Value>,
    /// No other node has read a member yet, so all may still be computed later.
    open: bool,
}

impl Fuser<'_> {
    /// Finds siblings. Nodes that only their kernel reads are not stored any more.
    pub(super) fn siblings(&mut self, results: &[Value]) -> Leaders {
        let reads = self.reads();
        let mut groups: Vec<Group> = vec![];
        for (v, node) in self.func.values() {
            let (at, op) = (v.0 as usize, &node.op);
            if !self.stored[at] && !is_statement(op) {
                continue;
            }
            let own = &reads[at];
            let joined = if self.is_pointwise(v) { self.group_for(v, &groups, &reads) } else { None };
            for (i, group) in groups.iter_mut().enumerate() {
                group.open &= joined == Some(i) || group.members.iter().all(|m| !own.contains(m));
            }
            match joined {
                Some(i) => {
                    // Where rows are complete, nothing that there is once per row can follow.
                    groups[i].open = self.shape(groups[i].members[0]) == self.shape(v);
                    groups[i].members.push(v);
                }
                None if self.is_pointwise(v) => groups.push(Group { members: vec![v], open: true }),
                None => {}
            }
        }
        let mut leaders = Leaders::new();
        for Group { members, .. } in groups {
            let Some((last, others)) = members.split_last() else { continue };
            for m in others {
                let read_outside = |u: &Value| !members.contains(u) && reads[u.0 as usize].contains(m);
                if results.contains(m) || self.func.values().any(|(u, n)| self.is_done(u, &n.op) && read_outside(&u)) {
                    leaders.insert(*m, *last);
                } else {
                    self.stored[m.0 as usize] = false;
                }
            }
        }
        leaders
    }

    fn is_done(&self, v: Value, op: &Op) -> bool {
        self.stored[v.0 as usize] || is_statement(op)
    }

    fn is_pointwise(&self, v: Value) -> bool {
        matches!(self.func.node(v).op, Op::Map { .. } | Op::Reduce { .. })
            && self.stored[v.0 as usize]
            && !self.epilogues.contains_key(&v)
    }

    /// The latest group whose kernel could compute a node and would save reads.
    fn group_for(&mut self, v: Value, groups: &[Group], reads: &[BTreeSet<Value>]) -> Option<usize> {
        let shape = self.shape(v);
        let own = &reads[v.0 as usize];
        let fits = |fuser: &mut Self, group: &Group| {
            let of_members = |x: &Value| group.members.iter().any(|m| m == x || reads[m.0 as usize].contains(x));
            let is_varying = |x: &Value| !matches!(fuser.func.node(*x).op, Op::Const { .. });
            if !group.open || group.members.len() >= MAX_RESULTS {
                return false;
            }
            let shares = own.iter().any(|x| of_members(x) && is_varying(x));
            let of_group = fuser.shape(group.members[0]);
            let domain = fuser.domain(v, &shape);
            if of_group == shape {
                return shares && fuser.reads_in_place(v, &domain, &domain, &group.members, reads);
            }
            let is_map = matches!(fuser.func.node(v).op, Op::Map { .. });
            let reads_one = group.members.iter().any(|m| own.contains(m));
            let head = if is_map && reads_one { head_of_rows(&of_group, &shape, &domain) } else { None };
            head.is_some_and(|head| fuser.reads_in_place(v, &domain, &head, &group.members, reads))
        };
        (0..groups.len()).rev().find(|&i| fits(self, &groups[i]))
    }

    /// Does an element of a node depend on members of a group at no other index than `domain`?
    fn reads_in_place(
        &mut self,
        v: Value,
        index: &[Dim],
        domain: &[Dim],
        members: &[Value],
        reads: &[BTreeSet<Value>],
    ) -> bool {
        self.func.node(v).args.iter().enumerate().all(|(k, &a)| {
            let inline = !self.stored[a.0 as usize];
            let concerned = members.contains(&a) || inline && members.iter().any(|m| reads[a.0 as usize].contains(m));
            if !concerned {
                return true;
            }
            let at = self.operand_index(v, k, index);
            if inline { self.reads_in_place(a, &at, domain, members, reads) } else { at == domain }
        })
    }
}

/// The index of a row in values per row, if the rows of a shape are short, or numerous.
fn head_of_rows(of: &[Dim], shape: &[Dim], domain: &[Dim]) -> Option<Vec<Dim>> {
    let axes = of.iter().rposition(|d| *d != Dim::ONE)? + 1;
    let (rows, row) = shape.split_at_checked(axes)?;
    let worthwhile = size(&Dim::product(row)) <= MAX_ROW as u64 || size(&Dim::product(rows)) >= TYPICAL as u64;
    let fits = rows == &of[..axes] && of.len() <= shape.len() && row.iter().any(|d| *d != Dim::ONE);
    (fits && worthwhile).then(|| (0..of.len()).map(|a| if a < axes { domain[a].clone() } else { Dim::ZERO }).collect())
}
