//! Functions: a topologically ordered list of nodes. Pushing a node infers its type and shares identical nodes, so
//! common subexpressions never exist twice.
use crate::{Dim, Op, Result, Tensor, Type, dim::Sym};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    hash::{Hash, Hasher},
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

    /// An empty function whose parameters and results will have the names and labels that they have here.
    #[must_use]
    pub fn named_alike(&self) -> Func {
        Func {
            param_names: self.param_names.clone(),
            result_names: self.result_names.clone(),
            result_labels: self.result_labels.clone(),
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
        match self.shared.get(&key) {
            Some(v) => Ok(*v),
            None => self.push_again(key.0, args),
        }
    }

    /// Append a node even if the same one is there (what a text says is what it means).
    pub(crate) fn push_again(&mut self, op: Op, args: &[Value]) -> Result<Value> {
        let types: Vec<&Type> = args.iter().map(|a| self.ty(*a)).collect();
        let ty = op.infer(&types)?;
        let v = Value(u32::try_from(self.nodes.len()).map_err(|_| "too many nodes")?);
        self.append(Node { op, args: args.to_vec(), ty });
        Ok(v)
    }

    /// Append the nodes of another function, with these values for its parameters; gives its results.
    pub fn inline(&mut self, part: &Func, inputs: &[Value]) -> Result<Vec<Value>> {
        let mut placed: Vec<Value> = Vec::with_capacity(part.nodes.len());
        for node in &part.nodes {
            let value = match &node.op {
                Op::Param { index, .. } => inputs[*index as usize],
                op => {
                    let args: Vec<Value> = node.args.iter().map(|a| placed[a.0 as usize]).collect();
                    self.push(op.clone(), &args)?
                }
            };
            placed.push(value);
        }
        Ok(part.results.iter().map(|r| placed[r.0 as usize]).collect())
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

    /// The function without the nodes that no result needs. Parameters stay.
    #[must_use]
    pub fn without_dead_nodes(&self) -> Func {
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
        let keep = |v: Value| live.contains(&v);
        self.filtered(&keep)
    }

    fn filtered(&self, keep: &dyn Fn(Value) -> bool) -> Func {
        let mut out = self.named_alike();
        let mut place: HashMap<Value, Value> = HashMap::new();
        for (v, node) in self.values().filter(|(v, _)| keep(*v)) {
            let args: Vec<Value> = node.args.iter().map(|a| place[a]).collect();
            place.insert(v, Value(out.nodes.len() as u32));
            out.append(Node { args, ..node.clone() });
        }
        out.results = self.results.iter().map(|r| place[r]).collect();
        out
    }

    /// The same function with every dimension replaced by `f` of it.
    #[must_use]
    pub fn map_dims(&self, f: &dyn Fn(&Dim) -> Dim) -> Func {
        let mut out = Func { results: self.results.clone(), ..self.named_alike() };
        for n in &self.nodes {
            out.append(Node { op: n.op.map_dims(f), args: n.args.clone(), ty: n.ty.map_dims(f) });
        }
        out
    }

    /// A function of nodes that nobody checked.
    #[cfg(test)]
    pub(crate) fn from_raw(nodes: Vec<Node>, results: Vec<Value>) -> Func {
        Func { nodes, results, ..Func::default() }
    }

    /// Append a node whose type is already known to be right.
    fn append(&mut self, node: Node) {
        let v = Value(self.nodes.len() as u32);
        self.shared.entry((node.op.clone(), node.args.clone())).or_insert(v);
        self.nodes.push(node);
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
