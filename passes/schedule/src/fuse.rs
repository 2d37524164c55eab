//! Decides which nodes get a buffer; all others are computed inside their consumers.
//!
//! A view gets a buffer only if a consumer needs the elements in order, or if a long chain of views would make
//! addresses too complex. A map, gather or reduction is computed inside its consumer if that is the only kernel that
//! reads it and no significant work is repeated. Nodes are visited last to first, so all consumers are decided before
//! their operands. A product whose elements a single stored map reads once each is computed inside that map's kernel
//! (`epilogue.rs`).
mod order;
mod siblings;
mod traffic;

use crate::{
    attention::Attention,
    epilogue::{Epilogue, Order},
    index::{mentions, view_index},
    operands::{narrow_operands, widened_weight},
    state::LowerState,
};
use numrsc_facts::{
    ATTENTION,
    constants::scalar_literal,
    costs::work_of,
    loops::only_reads_first,
    ops::{is_product, is_statement, is_view},
    sizes::bytes,
};
use numrsc_ir::{DType, Dim, Func, Op, Origin, Origins, Scalar, TensorType, Type, Value, dim::Sym, kernel::V};
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub use traffic::Traffic;

/// How a consumer reads an operand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Need {
    /// Each element about once, so it may be computed inside the consumer.
    Elements,
    /// In the consumer's own order, some elements perhaps many times: from a buffer, or from where another gather finds
    /// them.
    Some,
    /// Many times or in the consumer's own order: from a buffer, possibly through views.
    View,
    /// All elements in row-major order.
    Buffer,
}

/// Work per element from which recomputing does not pay.
const MAX_REPEATED: i64 = 5;
/// Dependent gathers from which recomputing does not pay.
pub const MAX_LOOKUPS: usize = 4;
/// A function is *light* up to this much work per element: several kernels recompute it instead of reading a stored
/// result, if none of them reads more for it.
const MAX_RECOMPUTED: i64 = 8;
/// At most this many maps go into one kernel.
const MAX_MEMBERS: usize = 48;
/// Scalars computed by at most this many maps are recomputed wherever they are needed.
const MAX_SCALAR_MEMBERS: usize = 12;

/// Elements of a single row that one thread normalises.
const MAX_ROW: i64 = 4096;

/// A chain of views whose addresses take more than this many steps, or nest more deeply, is stored in between.
const MAX_ADDRESS: (usize, usize) = (256, 12);

/// A tensor in memory, row-major.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub pointer: V,
}

/// A function being lowered, as far as kernels need to know it.
#[derive(Debug)]
pub struct Scope<'f> {
    pub func: &'f Func,
    /// Tensors that are in memory by now.
    pub buffers: HashMap<Value, Buffer>,
}

impl Scope<'_> {
    #[allow(clippy::wildcard_enum_match_arm, reason = "asked of tensors only")]
    pub fn dtype(&self, v: Value) -> DType {
        match self.func.ty(v) {
            Type::Tensor(t) => t.dtype,
            other => unreachable!("{other} is no tensor"),
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "asked of tensors only")]
    pub fn shape(&self, v: Value) -> &[Dim] {
        match self.func.ty(v) {
            Type::Tensor(t) => &t.shape,
            other => unreachable!("{other} is no tensor"),
        }
    }

    pub fn has_buffer(&self, v: Value) -> bool {
        self.buffers.contains_key(&v)
    }
}

/// The decision for every node of a function.
#[derive(Debug)]
pub struct Fusion {
    /// Does the node have a buffer (of its own, or from outside)?
    pub stored: Vec<bool>,
    /// The stored tensors that each stored node (or statement) reads, directly or through nodes without a buffer.
    pub reads: Vec<BTreeSet<Value>>,
    /// The products that are computed for another node, by that node.
    pub epilogues: HashMap<Value, Epilogue>,
    /// The epilogues of products, by product.
    pub attentions: HashMap<Value, Attention>,
    /// For each stored node that another one's kernel computes as well: that other one.
    pub leaders: BTreeMap<Value, Value>,
}

impl Fusion {
    /// The node whose kernel computes a stored node.
    pub fn leader(&self, v: Value) -> Value {
        self.leaders.get(&v).copied().unwrap_or(v)
    }

    /// The stored nodes that a node's kernel computes besides it, in order.
    pub fn siblings(&self, v: Value) -> Vec<Value> {
        let mut all: Vec<Value> = self.leaders.iter().filter(|(_, leader)| **leader == v).map(|(m, _)| *m).collect();
        all.sort_unstable();
        all
    }
}

impl Fusion {
    /// The nodes of the user's model that the kernels of a node compute: what it comes from, what is computed on the
    /// spot, and the siblings. What needs no data (constants, sizes) is named only if there is nothing else.
    pub fn origins(&self, func: &Func, v: Value, users: &[Vec<Value>], without_data: &[bool]) -> Origins {
        // With what those who use it here come from; users come before their operands.
        let mut left: BTreeMap<Value, Origins> = BTreeMap::new();
        let roots: BTreeSet<Value> = self.siblings(v).into_iter().chain([v]).collect();
        roots.iter().for_each(|root| drop(left.insert(*root, Origins::NONE)));
        let mut inside: BTreeMap<Value, Origins> = BTreeMap::new();
        while let Some((x, here)) = left.pop_last() {
            // A part that several nodes share is computed here for some of them only.
            let of_others =
                |o: &Origin| !here.contains(o) && users[x.0 as usize].iter().any(|u| func.origins(*u).contains(o));
            let is_root = roots.contains(&x);
            let own: Origins = func.origins(x).iter().filter(|o| is_root || !of_others(o)).cloned().collect();
            let parts = func.node(x).args.iter();
            for a in parts.filter(|a| !self.stored[a.0 as usize] && !is_statement(&func.node(**a).op)) {
                let here = left.entry(*a).or_default();
                *here = here.union(&own);
            }
            inside.insert(x, own);
        }
        let of = |wanted: bool| -> Origins {
            let parts = inside.iter().filter(|(x, _)| without_data[x.0 as usize] == wanted);
            parts.flat_map(|(_, own)| own).cloned().collect()
        };
        let origins = of(false);
        if origins.is_empty() { of(true) } else { origins }
    }
}

/// Decide for a function of which `results` have to be in memory.
pub fn fuse(func: &Func, results: &[Value], state: &mut LowerState) -> Fusion {
    Fuser::new(func, state).run(results)
}

pub(super) struct Fuser<'f> {
    pub func: &'f Func,
    state: &'f mut LowerState,
    pub uses: Vec<Vec<(Value, usize)>>,
    stored: Vec<bool>,
    needs: Vec<Need>,
    roots: Vec<BTreeSet<Value>>,
    /// The indices at which a node is read, as functions of the variables of its root.
    wanted: Vec<Vec<Vec<Dim>>>,
    /// The variables of a root in the order of its loops.
    domains: HashMap<Value, Vec<Dim>>,
    members: HashMap<Value, usize>,
    epilogues: HashMap<Value, Epilogue>,
    attentions: HashMap<Value, Attention>,
    /// The nodes that are computed inside of an attention.
    inner: BTreeSet<Value>,
    /// Stored nodes that compute reductions.
    reducing: BTreeSet<Value>,
    /// The number of maps below a scalar that is recomputed.
    scalar_members: Vec<usize>,
    /// The longest chain of gathers that ends in a node.
    lookups: Vec<usize>,
    extents: HashMap<Sym, Dim>,
    next: u32,
}

impl<'f> Fuser<'f> {
    fn new(func: &'f Func, state: &'f mut LowerState) -> Fuser<'f> {
        let n = func.nodes().len();
        let mut uses = vec![Vec::new(); n];
        for (v, node) in func.values() {
            node.args.iter().enumerate().for_each(|(k, a)| uses[a.0 as usize].push((v, k)));
        }
        let mut scalar_members = vec![0usize; n];
        for (v, node) in func.values() {
            let below: usize = node.args.iter().map(|a| scalar_members[a.0 as usize]).sum();
            let own = usize::from(matches!(node.op, Op::Map { .. } | Op::Gather { .. }));
            let blocked = !matches!(
                node.op,
                Op::Map { .. }
                    | Op::Gather { .. }
                    | Op::Reshape { .. }
                    | Op::Transpose { .. }
                    | Op::Broadcast { .. }
                    | Op::Slice { .. }
                    | Op::Size { .. }
                    | Op::Iota { .. }
            );
            scalar_members[v.0 as usize] = if blocked { 0 } else { below + own };
        }
        let mut lookups = vec![0; n];
        for (v, node) in func.values() {
            let own = usize::from(matches!(node.op, Op::Gather { .. }));
            let is_part = own > 0 || is_view(&node.op) || matches!(node.op, Op::Map { .. });
            let below = node.args.iter().map(|a| lookups[a.0 as usize]).max().unwrap_or(0);
            lookups[v.0 as usize] = if is_part { own + below } else { 0 };
        }
        Fuser {
            func,
            state,
            uses,
            stored: vec![false; n],
            needs: vec![Need::Elements; n],
            roots: vec![BTreeSet::new(); n],
            wanted: vec![vec![]; n],
            domains: HashMap::new(),
            members: HashMap::new(),
            epilogues: HashMap::new(),
            attentions: HashMap::new(),
            inner: BTreeSet::new(),
            reducing: BTreeSet::new(),
            scalar_members,
            lookups,
            extents: HashMap::new(),
            next: 0,
        }
    }

    fn run(mut self, results: &[Value]) -> Fusion {
        for at in (0..self.func.nodes().len()).rev() {
            let v = Value(at as u32);
            self.collect_uses(v);
            self.look_for_attention(v);
            self.stored[at] = self.decide(v, results.contains(&v));
            if self.stored[at] {
                self.wanted[at].clear();
                self.roots[at].clear();
            }
        }
        let leaders = self.siblings(results);
        let mut reads = self.reads();
        for (member, leader) in &leaders {
            let own = std::mem::take(&mut reads[member.0 as usize]);
            reads[leader.0 as usize].extend(own);
        }
        for (member, leader) in &leaders {
            reads[leader.0 as usize].remove(member);
        }
        Fusion { stored: self.stored, reads, epilogues: self.epilogues, attentions: self.attentions, leaders }
    }

    /// Fuses the operand of a product into its kernel, if it is a function of rows of another product (attention). The
    /// first product is the root of everything in between.
    fn look_for_attention(&mut self, v: Value) {
        if self.state.context.leaves_out(ATTENTION) || self.inner.contains(&v) {
            return;
        }
        let Some(attention) = Attention::find(self, v) else { return };
        let (top, root) = (self.func.node(v).args[0], attention.scores.value);
        self.roots[top.0 as usize].insert(root);
        self.wanted[top.0 as usize].push(attention.variables.clone());
        self.domains.insert(root, attention.variables.clone());
        self.inner.extend(&attention.members);
        self.attentions.insert(v, attention);
    }

    fn variable(&mut self, extent: &Dim) -> Dim {
        self.next += 1;
        let s: Sym = format!("#f{}", self.next).into();
        self.extents.insert(s.clone(), extent.clone());
        Dim::sym(s)
    }

    pub(super) fn variables(&mut self, shape: &[Dim]) -> Vec<Dim> {
        shape.iter().map(|d| if *d == Dim::ONE { Dim::ZERO } else { self.variable(d) }).collect()
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "only tensors have a shape")]
    pub(super) fn shape(&mut self, v: Value) -> Vec<Dim> {
        match self.func.ty(v) {
            Type::Tensor(t) => t.shape.iter().map(|d| self.state.size(d)).collect(),
            _ => vec![],
        }
    }

    fn rank(&self, v: Value) -> usize {
        self.func.ty(v).as_tensor().map_or(0, TensorType::rank)
    }

    /// Collects which kernels read a node, how, and at which indices.
    fn collect_uses(&mut self, v: Value) {
        // Where an attention begins, this is known already.
        if !self.wanted[v.0 as usize].is_empty() {
            return;
        }
        for (user, operand) in self.uses[v.0 as usize].clone() {
            let (at, u) = (v.0 as usize, user.0 as usize);
            let op = &self.func.node(user).op;
            let inline = !self.stored[u] && !is_statement(op);
            // Products read operands that they widen in their narrow form.
            let is_read = self.uses[u].iter().any(|u| self.widens(u.0));
            let own = if is_read { self.needs[u] } else { need(op, operand) };
            let (roots, need, indices) = if inline && is_product(op) {
                let shape = self.shape(v);
                (self.roots[u].clone(), own, vec![self.variables(&shape)])
            } else if inline {
                // Reading a view is reading its operand.
                let need = if is_view(op) { self.needs[u] } else { own };
                let through = self.wanted[u].clone();
                let indices = through.iter().map(|i| self.operand_index(user, operand, i)).collect();
                (self.roots[u].clone(), need, indices)
            } else {
                let index = self.domain_index(user, operand, v);
                (BTreeSet::from([user]), own, vec![index])
            };
            self.roots[at].extend(roots);
            self.needs[at] = self.needs[at].max(need);
            for i in indices {
                if !self.wanted[at].contains(&i) {
                    self.wanted[at].push(i);
                }
            }
        }
    }

    /// The index at which a kernel wants an operand of its root.
    #[allow(clippy::wildcard_enum_match_arm, reason = "a kernel runs over its result unless its op says otherwise")]
    fn domain_index(&mut self, root: Value, operand: usize, v: Value) -> Vec<Dim> {
        let shape = self.shape(root);
        match &self.func.node(root).op {
            Op::Map { .. } => self.domain(root, &shape),
            Op::Reduce { axes, .. } => {
                let kept = self.domain(root, &shape);
                self.reduce_index(v, axes, &kept)
            }
            op if is_view(op) || matches!(op, Op::Gather { .. }) => {
                let index = self.domain(root, &shape);
                self.operand_index(root, operand, &index)
            }
            _ => {
                let shape = self.shape(v);
                self.variables(&shape)
            }
        }
    }

    fn domain(&mut self, root: Value, shape: &[Dim]) -> Vec<Dim> {
        if let Some(d) = self.domains.get(&root) {
            return d.clone();
        }
        let d = self.variables(shape);
        self.domains.insert(root, d.clone());
        d
    }

    fn reduce_index(&mut self, x: Value, axes: &[i64], kept: &[Dim]) -> Vec<Dim> {
        let shape = self.shape(x);
        let mut kept = kept.iter();
        let mut index = Vec::new();
        for (a, size) in shape.iter().enumerate() {
            let gone = axes.contains(&(a as i64));
            index.push(if gone { self.variable(size) } else { kept.next().cloned().unwrap_or(Dim::ZERO) });
        }
        index
    }

    /// The index at which a node that is computed on the spot wants its operand.
    #[allow(clippy::wildcard_enum_match_arm, reason = "only views and what is listed have no buffers")]
    pub(super) fn operand_index(&mut self, user: Value, operand: usize, index: &[Dim]) -> Vec<Dim> {
        let node = self.func.node(user);
        let v = node.args[operand];
        match &node.op {
            Op::Map { .. } => index.to_vec(),
            Op::Reduce { axes, .. } => self.reduce_index(v, axes, index),
            Op::Gather { axis, batch } => {
                let (axis, batch) = (*axis as usize, *batch as usize);
                let count = self.shape(node.args[1]).len() - batch;
                if operand == 1 {
                    return [&index[..batch], &index[axis..axis + count]].concat();
                }
                let loaded = self.variable(&Dim::ONE);
                [&index[..axis], &[loaded], &index[axis + count..]].concat()
            }
            op => {
                let of = self.shape(v);
                view_index(op, &of, index, &self.extents, self.state).expect("a view")
            }
        }
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "the second match lists all ops, the others ask about those that are left"
    )]
    fn decide(&mut self, v: Value, is_result: bool) -> bool {
        let node = self.func.node(v);
        let at = v.0 as usize;
        if self.inner.contains(&v) {
            return false;
        }
        match &node.op {
            Op::Param { .. } => return true,
            Op::Const { value } => {
                return scalar_literal(value).is_none() || is_result || self.needs[at] != Need::Elements;
            }
            _ if !matches!(node.ty, Type::Tensor(_)) => return true,
            Op::Bind { .. } => return is_result || self.needs[at] != Need::Elements,
            _ => {}
        }
        // Products widen narrow constants as they load them, and narrow integers.
        if widened_weight(self.func, v).is_some() || (self.is_only_widened(v) && !is_result) {
            return false;
        }
        if is_result || self.needs[at] == Need::Buffer {
            return true;
        }
        match &node.op {
            Op::Size { .. } | Op::Iota { .. } => return self.needs[at] != Need::Elements,
            Op::Reshape { .. } | Op::Transpose { .. } | Op::Broadcast { .. } | Op::Slice { .. } => {
                return self.wanted[at].iter().flatten().any(is_involved)
                    || self.is_stored_in_order(v)
                    || self.starts_loops(v);
            }
            Op::Map { .. } | Op::Gather { .. } | Op::Reduce { .. } => {}
            Op::Contract { .. } | Op::Conv { .. } => return !self.becomes_part(v),
            Op::Window { size, .. } => return size.is_empty() || !self.becomes_part(v),
            Op::Param { .. }
            | Op::Const { .. }
            | Op::Bind { .. }
            | Op::Pad { .. }
            | Op::Concat { .. }
            | Op::Scatter { .. }
            | Op::Scan { .. }
            | Op::Arg { .. }
            | Op::ArgSort { .. }
            | Op::Compress { .. }
            | Op::If { .. }
            | Op::Loop { .. }
            | Op::Get { .. }
            | Op::SeqMake { .. }
            | Op::SeqLen {}
            | Op::SeqAt { .. }
            | Op::SeqInsert { .. }
            | Op::SeqErase {} => return true,
        }
        let found = self.needs[at] == Need::Some && matches!(node.op, Op::Gather { .. });
        if self.needs[at] != Need::Elements && !found {
            return true;
        }
        let scalar = node.ty.as_tensor().is_ok_and(|t| t.rank() == 0);
        let light = !matches!(node.op, Op::Reduce { .. });
        if scalar && light && self.scalar_members[at] <= MAX_SCALAR_MEMBERS {
            return false;
        }
        if self.roots[at].len() != 1 {
            return !self.is_as_good_as_stored(v);
        }
        let root = *self.roots[at].first().expect("one root");
        if *self.members.get(&root).unwrap_or(&0) >= MAX_MEMBERS || self.wanted[at].len() > 4 {
            return true;
        }
        let inline = match &node.op {
            Op::Reduce { .. } => self.reduction_fits(v, root),
            _ if self.lookups[at] >= MAX_LOOKUPS && !self.looked_up_once(v, root) => false,
            Op::Map { f } if self.repeats_work(v, f, root) => false,
            // Better an epilogue of a product than part of a kernel that cannot have one.
            Op::Map { .. } => self.order_in(v, root).is_some() || !self.ends_product(v),
            _ => true,
        };
        if inline {
            if matches!(node.op, Op::Reduce { .. }) {
                self.reducing.insert(root);
            }
            *self.members.entry(root).or_insert(0) += 1;
        }
        !inline
    }

    /// Does a product widen its operands as it loads them?
    fn widens(&self, v: Value) -> bool {
        narrow_operands(self.func, self.func.node(v)).is_some()
    }

    /// Is a node nothing but the operand of products that widen what it was?
    fn is_only_widened(&self, v: Value) -> bool {
        let uses = &self.uses[v.0 as usize];
        !uses.is_empty() && uses.iter().all(|u| self.widens(u.0))
    }

    /// Would several kernels read no more if each of them computed a node from what is in memory anyway, and with little work?
    #[allow(clippy::wildcard_enum_match_arm, reason = "recognises some ops; any other is left as it is")]
    fn is_as_good_as_stored(&self, v: Value) -> bool {
        let node = self.func.node(v);
        let bytes = |v: &Value| self.func.ty(*v).as_tensor().map_or(0, bytes);
        let read = match &node.op {
            Op::Map { .. } => node.args.iter().map(bytes).sum(),
            // Of a table, only the rows that are looked up.
            Op::Gather { axis, .. } if self.rank(node.args[0]) > *axis as usize + 1 => bytes(&node.args[1]),
            _ => return false,
        };
        let in_inner_loop = |root: Value| {
            let last = self.domains.get(&root).and_then(|d| d.iter().rev().find_map(Dim::as_sym));
            last.is_some_and(|s| self.wanted[v.0 as usize].iter().flatten().any(|d| mentions(d, s)))
        };
        read <= bytes(&v)
            && self.work_from_inputs(v).is_some_and(|work| work <= MAX_RECOMPUTED)
            && self.roots[v.0 as usize].iter().all(|&root| !in_inner_loop(root) || self.repeats_nothing(v, root))
    }

    /// The work to compute an element of a node, if all it takes are lookups and light functions of inputs and constants.
    #[allow(clippy::wildcard_enum_match_arm, reason = "recognises some ops; any other is left as it is")]
    fn work_from_inputs(&self, v: Value) -> Option<i64> {
        let node = self.func.node(v);
        let own = match &node.op {
            Op::Param { .. } | Op::Const { .. } => return Some(0),
            Op::Map { f } => work_of(f),
            op if is_view(op) || matches!(op, Op::Gather { .. }) => 0,
            _ => return None,
        };
        let mut all = own;
        for a in &node.args {
            all += (all <= MAX_RECOMPUTED).then(|| self.work_from_inputs(*a))??;
        }
        Some(all)
    }

    /// Fuses a product with its only consumer, as an epilogue, if possible.
    fn becomes_part(&mut self, v: Value) -> bool {
        let root = match (self.needs[v.0 as usize], self.roots[v.0 as usize].first()) {
            (Need::Elements, Some(root)) if self.roots[v.0 as usize].len() == 1 => *root,
            _ => return false,
        };
        let Some(order) = self.order_in(v, root) else { return false };
        self.epilogues.insert(root, Epilogue { product: v, root, order });
        true
    }

    /// The order of an epilogue in `root` over the product `v`, if there can be one.
    fn order_in(&mut self, v: Value, root: Value) -> Option<Order> {
        let op = &self.func.node(root).op;
        let taken = self.epilogues.contains_key(&root) || self.reducing.contains(&root);
        if taken || !(is_view(op) || matches!(op, Op::Map { .. })) {
            return None;
        }
        let [index] = &self.wanted[v.0 as usize][..] else { return None };
        let (index, domain) = (index.clone(), self.domains.get(&root)?.clone());
        let (shape, root_shape) = (self.shape(v), self.shape(root));
        Order::of(&index, &shape, &domain, &root_shape)
    }

    /// Is a node what all states of several loops begin with? Then they read the same memory, and have nothing to fill.
    #[allow(clippy::wildcard_enum_match_arm, reason = "recognises some ops; any other is left as it is")]
    fn starts_loops(&self, v: Value) -> bool {
        let uses = &self.uses[v.0 as usize];
        let starts = |&(user, _): &(Value, usize)| match &self.func.node(user).op {
            Op::Loop { states, .. } => (0..*states as usize)
                .all(|number| self.func.node(user).args[2 + number] == v && only_reads_first(self.func, user, number)),
            _ => false,
        };
        uses.iter().all(starts) && uses.iter().any(|u| u.0 != uses[0].0)
    }

    /// Does a map follow a product that nothing else reads?
    fn ends_product(&self, v: Value) -> bool {
        let follows = |op: &Op| matches!(op, Op::Map { .. } | Op::Reshape { .. } | Op::Transpose { .. });
        let (mut before, mut products) = (BTreeSet::from([v]), BTreeSet::new());
        let mut left = vec![v];
        while let Some(v) = left.pop() {
            for &a in &self.func.node(v).args {
                let op = &self.func.node(a).op;
                if is_product(op) {
                    products.insert(a);
                } else if follows(op) && before.len() < MAX_MEMBERS && before.insert(a) {
                    left.push(a);
                }
            }
        }
        // Do all paths from a product lead to the map?
        let only_here = |product: &Value| {
            let (mut seen, mut left) = (BTreeSet::new(), vec![*product]);
            while let Some(x) = left.pop() {
                for (user, _) in &self.uses[x.0 as usize] {
                    if !before.contains(user) {
                        return false;
                    }
                    if *user != v && seen.insert(*user) {
                        left.push(*user);
                    }
                }
            }
            true
        };
        products.iter().any(only_here)
    }

    /// Is a reduction read once per round of the outer loops of its root, and at the same index everywhere?
    fn reduction_fits(&self, v: Value, root: Value) -> bool {
        let Some(domain) = self.domains.get(&root) else { return false };
        if self.epilogues.contains_key(&root) {
            return false;
        }
        if !matches!(self.func.node(root).op, Op::Map { .. } | Op::Reduce { .. }) {
            return false;
        }
        let Some(prefix) = self.prefix(v, domain) else { return false };
        // A reduction of a whole tensor would be repeated in every chunk, unless there is only one.
        let x = self.func.node(v).args[0];
        let small = self.func.ty(x).as_tensor().ok().and_then(|t| Dim::product(&t.shape).as_const());
        prefix > 0 || small.is_some_and(|n| n <= MAX_ROW)
    }

    /// How many of the outer loops an index uses, if it is exactly the variables of these.
    fn prefix(&self, v: Value, domain: &[Dim]) -> Option<usize> {
        let loops: Vec<&Dim> = domain.iter().filter(|d| **d != Dim::ZERO).collect();
        let mut length = None;
        for index in &self.wanted[v.0 as usize] {
            let used: Vec<&Dim> = index.iter().filter(|d| **d != Dim::ZERO).collect();
            if used.len() > loops.len() || used[..] != loops[..used.len()] {
                return None;
            }
            if length.replace(used.len()).is_some_and(|l| l != used.len()) {
                return None;
            }
        }
        length
    }

    /// Does the index of a node depend on every loop of its root (the innermost one may be the lanes of one vector)?
    fn looked_up_once(&self, v: Value, root: Value) -> bool {
        let Some(domain) = self.domains.get(&root) else { return true };
        let mentioned = |s: &Sym| self.wanted[v.0 as usize].iter().all(|index| index.iter().any(|d| mentions(d, s)));
        let reduces = matches!(self.func.node(root).op, Op::Reduce { .. });
        let is_vector = |s: &Sym| {
            let lanes = self.extents[s].as_const().and_then(|n| u32::try_from(n).ok());
            reduces && lanes.is_some_and(|n| n.is_power_of_two() && n <= self.state.context.machine.lanes(8))
        };
        let mut variables = domain.iter().filter_map(Dim::as_sym).rev();
        variables.next().is_none_or(|last| mentioned(last) || is_vector(last)) && variables.all(mentioned)
    }

    /// Would recomputing a map repeat significant work? Indices are better stored, since they are loaded lane by lane,
    /// unless all lanes read the same one.
    fn repeats_work(&self, v: Value, f: &Scalar, root: Value) -> bool {
        let is_index =
            |(user, operand): &(Value, usize)| matches!(self.func.node(*user).op, Op::Gather { .. }) && *operand == 1;
        let innermost = self.domains.get(&root).and_then(|domain| domain.iter().filter_map(Dim::as_sym).next_back());
        let differs = |s: &Sym| self.wanted[v.0 as usize].iter().flatten().any(|d| mentions(d, s));
        let index_again = || self.uses[v.0 as usize].iter().any(is_index) && innermost.is_some_and(differs);
        !self.repeats_nothing(v, root) && (work_of(f) >= MAX_REPEATED || index_again())
    }

    /// Is every element of an expensive map computed about once: in every round of the root's loops, or of the outer
    /// ones? Loops of reductions are inside of these.
    fn repeats_nothing(&self, v: Value, root: Value) -> bool {
        let Some(domain) = self.domains.get(&root) else { return true };
        let loops: Vec<&Dim> = domain.iter().filter(|d| d.as_sym().is_some()).collect();
        let follows = |d: &Dim, of: &Dim| of.as_sym().is_some_and(|s| mentions(d, s));
        self.wanted[v.0 as usize].iter().all(|index| {
            let used: Vec<&Dim> = index.iter().filter(|d| loops.iter().any(|of| follows(d, of))).collect();
            loops.starts_with(&used) || loops.iter().all(|of| used.iter().any(|d| follows(d, of)))
        })
    }

    /// The stored tensors each stored node reads.
    fn reads(&self) -> Vec<BTreeSet<Value>> {
        let mut reads: Vec<BTreeSet<Value>> = vec![BTreeSet::new(); self.func.nodes().len()];
        for (v, node) in self.func.values() {
            let mut set = BTreeSet::new();
            for a in narrow_operands(self.func, node).as_ref().map_or(&node.args[..], |narrow| narrow) {
                if self.stored[a.0 as usize] {
                    set.insert(*a);
                } else {
                    set.extend(reads[a.0 as usize].iter().copied());
                }
            }
            reads[v.0 as usize] = set;
        }
        reads
    }
}

/// Is an index so complex that further views might exceed the limits of `Dim`?
fn is_involved(index: &Dim) -> bool {
    let (size, depth) = index.measure();
    index.is_too_large() || size > MAX_ADDRESS.0 || depth > MAX_ADDRESS.1
}

fn need(op: &Op, operand: usize) -> Need {
    match op {
        Op::Contract { .. } | Op::Window { .. } | Op::ArgSort { .. } => Need::View,
        Op::Conv { .. } | Op::SeqMake { .. } => Need::Buffer,
        Op::Gather { .. } => {
            if operand == 0 {
                Need::Some
            } else {
                Need::Elements
            }
        }
        // How often, whether at all, and the states before the first round.
        Op::Loop { states, .. } => {
            if operand < 2 + *states as usize {
                Need::Elements
            } else {
                Need::Buffer
            }
        }
        Op::If { .. } => {
            if operand == 0 {
                Need::Elements
            } else {
                Need::Buffer
            }
        }
        Op::SeqInsert { .. } => {
            if operand == 2 {
                Need::Buffer
            } else {
                Need::Elements
            }
        }
        Op::Param { .. }
        | Op::Const { .. }
        | Op::Iota { .. }
        | Op::Size { .. }
        | Op::Bind { .. }
        | Op::Map { .. }
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Broadcast { .. }
        | Op::Slice { .. }
        | Op::Pad { .. }
        | Op::Concat { .. }
        | Op::Scatter { .. }
        | Op::Reduce { .. }
        | Op::Scan { .. }
        | Op::Arg { .. }
        | Op::Compress { .. }
        | Op::Get { .. }
        | Op::SeqLen {}
        | Op::SeqAt { .. }
        | Op::SeqErase {} => Need::Elements,
    }
}
