//! Functions: a topologically ordered list of nodes. Pushing a node infers its type and shares identical nodes, so
//! common subexpressions never exist twice.
use crate::{Dim, Op, Origin, Origins, Result, Tensor, Type, dim::Sym};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

/// A value is the result of the node with its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    pub op: Op,
    pub args: Vec<Value>,
    pub ty: Type,
}

/// A function over values. Operands precede their users; parameters come first.
#[derive(Clone, Default, Debug)]
pub struct Func {
    nodes: Vec<Node>,
    /// The nodes of the user's model that each node was made of. No part of equality.
    origins: Vec<Origins>,
    /// Where the nodes that are pushed now come from.
    source: Origins,
    /// Nodes of the user's model that are not computed any more: what they give was known, needed nothing but sizes, or
    /// nobody needs it.
    folded: Origins,
    results: Vec<Value>,
    /// Names of parameters and results, for people and for calling by name; empty in nested functions.
    pub param_names: Vec<String>,
    pub result_names: Vec<String>,
    /// What the entries along the last axis of a result stand for, by its position: the classes of a table of
    /// probabilities, say, as a vector of i64 or of strings. Results without an entry have no labels.
    pub result_labels: BTreeMap<usize, Tensor>,
    shared: HashMap<(Op, Vec<Value>), Value>,
}

impl Func {
    pub fn new() -> Func {
        Func::default()
    }

    /// An empty function whose parameters and results will have the names and labels that they have here. What is folded
    /// here is folded there.
    #[must_use]
    pub fn named_alike(&self) -> Func {
        Func {
            param_names: self.param_names.clone(),
            result_names: self.result_names.clone(),
            result_labels: self.result_labels.clone(),
            folded: self.folded.clone(),
            ..Func::default()
        }
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All values with their nodes, operands before users.
    pub fn values(&self) -> impl Iterator<Item = (Value, &Node)> {
        self.nodes.iter().enumerate().map(|(i, n)| (Value(i as u32), n))
    }

    /// # Panics
    /// If the value is not of this function.
    pub fn node(&self, v: Value) -> &Node {
        &self.nodes[v.0 as usize]
    }

    pub fn ty(&self, v: Value) -> &Type {
        &self.node(v).ty
    }

    pub fn params(&self) -> Vec<Value> {
        self.values().take_while(|(_, n)| matches!(n.op, Op::Param { .. })).map(|(v, _)| v).collect()
    }

    /// The nodes of the user's model that a value was made of.
    ///
    /// # Panics
    /// If the value is not of this function.
    pub fn origins(&self, v: Value) -> &Origins {
        &self.origins[v.0 as usize]
    }

    /// A value comes from these nodes, too.
    ///
    /// # Panics
    /// If the value is not of this function.
    pub fn add_origins(&mut self, v: Value, origins: &Origins) {
        let own = &mut self.origins[v.0 as usize];
        *own = own.union(origins);
    }

    /// What is pushed from now on comes from these nodes, but for constants: only what computes them knows whether they
    /// come from anywhere.
    pub fn set_source(&mut self, origins: Origins) {
        self.source = origins;
    }

    pub fn source(&self) -> &Origins {
        &self.source
    }

    /// Nodes of the user's model of which nothing is left: what they give was known when compiling, needs nothing but
    /// sizes, or nobody needs it.
    pub fn folded(&self) -> &Origins {
        &self.folded
    }

    pub fn add_folded(&mut self, origins: &Origins) {
        self.folded = self.folded.union(origins);
    }

    /// Every node of the user's model that anything here comes from, nested functions included.
    pub fn for_each_origin<'f>(&'f self, f: &mut dyn FnMut(&'f Origin)) {
        self.folded.iter().for_each(&mut *f);
        for (node, origins) in self.nodes.iter().zip(&self.origins) {
            origins.iter().for_each(&mut *f);
            node.op.bodies().iter().for_each(|body| body.for_each_origin(f));
        }
    }

    /// Does anything here come from anywhere?
    pub fn has_origins(&self) -> bool {
        let inside = |n: &Node| n.op.bodies().iter().any(|f| f.has_origins());
        !self.folded.is_empty() || self.origins.iter().any(|o| !o.is_empty()) || self.nodes.iter().any(inside)
    }

    /// For each node, whether it can be computed without the data of a parameter: from constants and sizes.
    pub fn without_data(&self) -> Vec<bool> {
        let mut free: Vec<bool> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let is_param = matches!(node.op, Op::Param { .. });
            free.push(!is_param && node.args.iter().all(|a| free[a.0 as usize]));
        }
        free
    }

    pub fn results(&self) -> &[Value] {
        &self.results
    }

    pub fn set_results(&mut self, results: Vec<Value>) {
        self.results = results;
    }

    /// Add a parameter. Parameters come before every other node.
    pub fn param(&mut self, ty: Type) -> Result<Value> {
        self.push(Op::Param { index: self.nodes.len() as i64, ty }, &[])
    }

    /// Append a node unless the same one is there already.
    pub fn push(&mut self, op: Op, args: &[Value]) -> Result<Value> {
        let key = (op, args.to_vec());
        let v = match self.shared.get(&key).copied() {
            Some(v) => {
                self.absorb_bodies(v, &key.0);
                v
            }
            None => self.push_again(key.0, args)?,
        };
        if !self.source.is_empty() && !matches!(self.node(v).op, Op::Const { .. } | Op::Param { .. }) {
            let source = self.source.clone();
            self.add_origins(v, &source);
        }
        Ok(v)
    }

    /// An equal node is not added; what its nested functions come from is.
    fn absorb_bodies(&mut self, v: Value, other: &Op) {
        if !other.bodies().iter().any(|body| body.has_origins()) {
            return;
        }
        let op = &mut self.nodes[v.0 as usize].op;
        for (own, other) in op.bodies_mut().into_iter().zip(other.bodies()) {
            Arc::make_mut(own).absorb_origins(other);
        }
    }

    /// What an equal function comes from, this one comes from, too.
    pub fn absorb_origins(&mut self, other: &Func) {
        self.add_folded(&other.folded);
        for (v, node) in other.values() {
            self.add_origins(v, other.origins(v));
            self.absorb_bodies(v, &node.op);
        }
    }

    /// Append a node even if the same one is there (what a text says is what it means).
    pub(crate) fn push_again(&mut self, op: Op, args: &[Value]) -> Result<Value> {
        let types: Vec<&Type> = args.iter().map(|a| self.ty(*a)).collect();
        let ty = op.infer(&types)?;
        let v = Value(u32::try_from(self.nodes.len()).map_err(|_| "too many nodes")?);
        self.append(Node { op, args: args.to_vec(), ty }, Origins::NONE);
        Ok(v)
    }

    /// Append the nodes of another function, with these values for its parameters; gives its results.
    pub fn inline(&mut self, part: &Func, inputs: &[Value]) -> Result<Vec<Value>> {
        let placed = self.inline_nodes(part, inputs)?;
        Ok(part.results.iter().map(|r| placed[r.0 as usize]).collect())
    }

    /// The same; gives the values that all nodes of the other function became.
    pub fn inline_nodes(&mut self, part: &Func, inputs: &[Value]) -> Result<Vec<Value>> {
        let mut placed: Vec<Value> = Vec::with_capacity(part.nodes.len());
        for (v, node) in part.values() {
            let value = match &node.op {
                Op::Param { index, .. } => inputs[*index as usize],
                op => {
                    let args: Vec<Value> = node.args.iter().map(|a| placed[a.0 as usize]).collect();
                    self.push(op.clone(), &args)?
                }
            };
            self.add_origins(value, part.origins(v));
            placed.push(value);
        }
        self.add_folded(&part.folded);
        Ok(placed)
    }

    /// The symbols that a node introduces: those in its type or attributes that nothing before it mentions.
    pub fn defined_syms(node: &Node) -> Vec<Sym> {
        match &node.op {
            Op::Bind { dim, .. } => vec![dim.clone()],
            Op::Compress { count } => vec![count.clone()],
            op => {
                let mut syms = Vec::new();
                op.stated_types().iter().for_each(|t| t.for_each_sym(&mut |s| syms.push(s.clone())));
                syms
            }
        }
    }

    /// The node that introduces each symbol, by name. Symbols of an enclosing function are not listed.
    pub fn sym_definitions(&self) -> HashMap<Sym, Value> {
        let mut found = HashMap::new();
        for (v, node) in self.values() {
            for s in Func::defined_syms(node) {
                found.entry(s).or_insert(v);
            }
        }
        found
    }

    /// The nodes that a result needs, and the parameters.
    pub fn live_nodes(&self) -> BTreeSet<Value> {
        let definitions = self.sym_definitions();
        let mut live: BTreeSet<Value> = self.params().into_iter().collect();
        let mut work: Vec<Value> = self.results.clone();
        work.extend(&live);
        while let Some(v) = work.pop() {
            if !live.insert(v) && !matches!(self.node(v).op, Op::Param { .. }) {
                continue;
            }
            work.extend(&self.node(v).args);
            let mut syms = BTreeSet::new();
            node_syms(self.node(v), &mut syms);
            work.extend(syms.iter().filter_map(|s| definitions.get(s)).filter(|d| !live.contains(d)));
        }
        live
    }

    /// The function without the nodes that no result needs. Parameters stay.
    #[must_use]
    pub fn without_dead_nodes(&self) -> Func {
        let live = self.live_nodes();
        let mut out = self.named_alike();
        let mut place: HashMap<Value, Value> = HashMap::new();
        for (v, node) in self.values().filter(|(v, _)| live.contains(v)) {
            let args: Vec<Value> = node.args.iter().map(|a| place[a]).collect();
            place.insert(v, Value(out.nodes.len() as u32));
            out.append(Node { args, ..node.clone() }, self.origins(v).clone());
        }
        if live.len() < self.nodes.len() && self.origins.iter().any(|o| !o.is_empty()) {
            let dead = self.without_data().into_iter().zip(&self.origins).zip((0..).map(Value));
            let known = dead.filter(|((free, _), v)| *free && !live.contains(v)).flat_map(|((_, o), _)| o);
            let known: Origins = known.cloned().collect();
            out.add_folded(&known);
        }
        out.results = self.results.iter().map(|r| place[r]).collect();
        out
    }

    /// The same function with every dimension replaced by `f` of it.
    #[must_use]
    pub fn map_dims(&self, f: &dyn Fn(&Dim) -> Dim) -> Func {
        let mut out = Func { results: self.results.clone(), ..self.named_alike() };
        for (n, origins) in self.nodes.iter().zip(&self.origins) {
            out.append(Node { op: n.op.map_dims(f), args: n.args.clone(), ty: n.ty.map_dims(f) }, origins.clone());
        }
        out
    }

    /// A function of nodes that nobody checked.
    #[cfg(test)]
    pub(crate) fn from_raw(nodes: Vec<Node>, results: Vec<Value>) -> Func {
        let origins = vec![Origins::NONE; nodes.len()];
        Func { nodes, origins, results, ..Func::default() }
    }

    /// Append a node whose type is already known to be right.
    fn append(&mut self, node: Node, origins: Origins) {
        let v = Value(self.nodes.len() as u32);
        self.shared.entry((node.op.clone(), node.args.clone())).or_insert(v);
        self.nodes.push(node);
        self.origins.push(origins);
    }
}

/// Every symbol that a node mentions, nested functions included.
pub(crate) fn node_syms(node: &Node, out: &mut BTreeSet<Sym>) {
    node.ty.for_each_sym(&mut |s| {
        out.insert(s.clone());
    });
    // The attributes are visited by rewriting them to themselves.
    let found = std::cell::RefCell::new(BTreeSet::new());
    let _ = node.op.map_dims(&|d| {
        d.for_each_sym(&mut |s| {
            found.borrow_mut().insert(s.clone());
        });
        d.clone()
    });
    out.append(&mut found.into_inner());
}

impl PartialEq for Func {
    fn eq(&self, o: &Func) -> bool {
        self.nodes == o.nodes
            && self.results == o.results
            && self.param_names == o.param_names
            && self.result_names == o.result_names
            && self.result_labels == o.result_labels
    }
}

impl Eq for Func {}

impl Hash for Func {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nodes.hash(state);
        self.results.hash(state);
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
