//! Passes that look at one node at a time: a function is made anew, node by node, and so are the functions nested in it.
use crate::provenance;
use numrsc_facts::{Error, Result};
use numrsc_ir::{Func, Node, Op, Value};

/// A function in the course of being made anew.
pub(crate) struct Rebuild<'f> {
    pass: &'static str,
    /// The function as it was.
    pub func: &'f Func,
    /// What there is of the new one.
    pub out: Func,
    placed: Vec<Value>,
}

/// What a pass makes of a node, whose operands are there already. The op is the node's, with its nested functions made
/// anew.
pub(crate) type NodeFn<'a> = dyn Fn(&mut Rebuild<'_>, &Node, Op, Vec<Value>) -> Result<Value> + 'a;

/// The function with every node as the pass makes it, without the nodes that nothing needs any more.
pub(crate) fn rebuild(func: &Func, pass: &'static str, node_fn: &NodeFn<'_>) -> Result<Func> {
    let new = Rebuild::of(func, pass, |new, node, args| {
        let op = node.op.map_bodies(|body| rebuild(body, pass, node_fn))?;
        node_fn(new, node, op, args)
    })?;
    let results = func.results().iter().map(|&r| new.placed(r)).collect();
    Ok(new.with_results(results))
}

impl<'f> Rebuild<'f> {
    /// All nodes of a function as the pass makes them, for passes that see to nested functions and results themselves.
    pub(crate) fn of(
        func: &'f Func,
        pass: &'static str,
        node_fn: impl Fn(&mut Rebuild<'f>, &Node, Vec<Value>) -> Result<Value>,
    ) -> Result<Rebuild<'f>> {
        let mut new = Rebuild { pass, func, out: func.named_alike(), placed: Vec::with_capacity(func.nodes().len()) };
        for (v, node) in func.values() {
            new.out.set_source(func.origins(v).clone());
            let args = node.args.iter().map(|&a| new.placed(a)).collect();
            let value = node_fn(&mut new, node, args)?;
            new.placed.push(value);
        }
        Ok(new)
    }

    /// The new function, without the nodes that nothing needs any more.
    pub(crate) fn with_results(mut self, results: Vec<Value>) -> Func {
        self.out.set_results(results);
        let placed = self.placed;
        provenance::carry(self.func, self.pass, &mut self.out, &|v| placed.get(v.0 as usize).copied());
        self.out.without_dead_nodes()
    }

    /// What became of a node that came before.
    pub(crate) fn placed(&self, v: Value) -> Value {
        self.placed[v.0 as usize]
    }

    pub(crate) fn push(&mut self, op: Op, args: &[Value]) -> Result<Value> {
        self.out.push(op, args).map_err(|e| self.invalid(&e))
    }

    /// What the pass made is not valid: a bug of the pass.
    pub(crate) fn invalid(&self, e: &numrsc_ir::Error) -> Error {
        Error::Invalid { pass: self.pass, message: e.to_string() }
    }
}
