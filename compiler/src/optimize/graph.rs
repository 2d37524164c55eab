//! A graph that is being rewritten: its nodes, who makes and who uses which value, and what is known of values.
use crate::onnx::{
    domain,
    external::ExternalData,
    import::{Fact, Facts, free_names},
    proto::{AttributeProto, AttributeType, GraphProto, NodeProto, TensorProto},
    tensor_data,
};
use numrsc_ir::{DType, Dim, Tensor, TensorType};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    rc::Rc,
};

/// What all graphs of a model share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) opsets: BTreeMap<String, i64>,
    pub(super) facts: Facts,
    /// Every name of a value in the model.
    pub(super) taken: RefCell<HashSet<String>>,
}

/// One graph. Places of nodes stay what they are; what is removed leaves an empty one.
#[derive(Debug)]
pub(super) struct Work<'a> {
    pub(super) shared: &'a Shared,
    pub(super) nodes: Vec<Option<NodeProto>>,
    outputs: Vec<String>,
    /// An initialiser that is an input as well may have another value when the model runs.
    inputs: HashSet<String>,
    /// In the order of the model.
    stored: Vec<String>,
    constants: HashMap<String, TensorProto>,
    /// Constants of the graphs around this one.
    outer: Rc<HashMap<String, TensorProto>>,
    maker: HashMap<String, usize>,
    /// Nodes that use a value, themselves or in a graph inside; once for each use of theirs.
    users: HashMap<String, Vec<usize>>,
    path: String,
    /// All of the graph but nodes and initialisers.
    rest: GraphProto,
}

impl<'a> Work<'a> {
    pub(super) fn new(
        mut graph: GraphProto,
        path: &str,
        shared: &'a Shared,
        outer: Rc<HashMap<String, TensorProto>>,
    ) -> Work<'a> {
        let inputs: HashSet<String> = graph.input.iter().map(|i| i.name.clone()).collect();
        let mut work = Work {
            shared,
            nodes: vec![],
            outputs: graph.output.iter().map(|o| o.name.clone()).collect(),
            stored: graph.initializer.iter().map(|t| t.name.clone()).collect(),
            constants: std::mem::take(&mut graph.initializer).into_iter().map(|t| (t.name.clone(), t)).collect(),
            inputs,
            outer,
            maker: HashMap::new(),
            users: HashMap::new(),
            path: path.to_owned(),
            rest: GraphProto::default(),
        };
        for node in std::mem::take(&mut graph.node) {
            work.push(node);
        }
        work.rest = graph;
        work
    }

    /// The graph as it is now. Descriptions of values that are no more go.
    pub(super) fn finish(mut self) -> GraphProto {
        let mut graph = self.rest;
        graph.node = self.nodes.into_iter().flatten().collect();
        let order = std::mem::take(&mut self.stored);
        graph.initializer = order.iter().filter_map(|name| self.constants.remove(name)).collect();
        let made = self.maker;
        graph.value_info.retain(|v| made.contains_key(&v.name));
        graph.quantization_annotation.retain(|a| made.contains_key(&a.tensor_name));
        graph
    }

    /// The constants that graphs inside see.
    pub(super) fn visible(&self) -> Rc<HashMap<String, TensorProto>> {
        let mut all = (*self.outer).clone();
        let own = self.constants.iter().filter(|(name, _)| !self.inputs.contains(*name));
        all.extend(own.map(|(name, t)| (name.clone(), t.clone())));
        Rc::new(all)
    }

    pub(super) fn opset(&self) -> i64 {
        self.shared.opsets.get("").copied().unwrap_or(0)
    }

    pub(super) fn node(&self, at: usize) -> Option<&NodeProto> {
        self.nodes.get(at)?.as_ref()
    }

    /// The node that makes a value, as its first output, if it is this operator of ai.onnx.
    pub(super) fn made_by(&self, name: &str, op: &str) -> Option<(usize, &NodeProto)> {
        self.made_by_any(name, &[op])
    }

    pub(super) fn made_by_any(&self, name: &str, ops: &[&str]) -> Option<(usize, &NodeProto)> {
        let at = *self.maker.get(name)?;
        let node = self.node(at)?;
        (is(node, ops) && node.output[0] == name).then_some((at, node))
    }

    pub(super) fn maker(&self, name: &str) -> Option<usize> {
        self.maker.get(name).copied()
    }

    pub(super) fn users(&self, name: &str) -> &[usize] {
        self.users.get(name).map_or(&[], Vec::as_slice)
    }

    pub(super) fn is_output(&self, name: &str) -> bool {
        self.outputs.iter().any(|o| o == name)
    }

    /// Does one node use the value, once, and nobody else?
    pub(super) fn only_user(&self, name: &str) -> Option<usize> {
        match self.users(name) {
            [one] if !self.is_output(name) => Some(*one),
            _ => None,
        }
    }

    /// The value of a constant, as it is stored.
    pub(super) fn stored(&self, name: &str) -> Option<&TensorProto> {
        if self.inputs.contains(name) || self.maker.contains_key(name) {
            return None;
        }
        self.constants.get(name).or_else(|| self.outer.get(name))
    }

    pub(super) fn is_constant(&self, name: &str) -> bool {
        self.stored(name).is_some()
    }

    pub(super) fn constant(&self, name: &str) -> Option<Tensor> {
        value_of(self.stored(name)?)
    }

    /// The elements of a constant of integers.
    pub(super) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        let t = self.stored(name)?;
        (DType::from_onnx(t.data_type)?.is_int()).then(|| value_of(t)?.to_i64s())?
    }

    /// The one number that a constant holds, of any shape with one element.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        let t = self.stored(name)?;
        (t.dims.iter().product::<i64>() == 1 && t.data_type != DType::Str.onnx())
            .then(|| value_of(t)?.to_f64s().pop())?
    }

    fn fact(&self, name: &str) -> Option<&Fact> {
        self.shared.facts.get(&self.path)?.get(name)
    }

    pub(super) fn ty(&self, name: &str) -> Option<TensorType> {
        if let Some(t) = self.stored(name) {
            let shape = t.dims.iter().map(|&d| Dim::Const(d)).collect();
            return Some(TensorType { dtype: DType::from_onnx(t.data_type)?, shape });
        }
        self.fact(name)?.ty.as_tensor().ok().cloned()
    }

    pub(super) fn dtype(&self, name: &str) -> Option<DType> {
        Some(self.ty(name)?.dtype)
    }

    pub(super) fn shape(&self, name: &str) -> Option<Vec<Dim>> {
        Some(self.ty(name)?.shape.clone())
    }

    pub(super) fn rank(&self, name: &str) -> Option<usize> {
        Some(self.ty(name)?.shape.len())
    }

    /// What is known of the elements of a tensor of integers.
    pub(super) fn known(&self, name: &str) -> Option<Vec<Option<Dim>>> {
        if let Some(v) = self.ints(name) {
            return Some(v.into_iter().map(|n| Some(Dim::Const(n))).collect());
        }
        self.fact(name)?.known.clone()
    }

    pub(super) fn same_type(&self, a: &str, b: &str) -> bool {
        let (Some(a), Some(b)) = (self.ty(a), self.ty(b)) else { return false };
        a.dtype == b.dtype && same_shape(&a.shape, &b.shape)
    }

    pub(super) fn same_shape(&self, a: &str, b: &str) -> bool {
        let (Some(a), Some(b)) = (self.shape(a), self.shape(b)) else { return false };
        same_shape(&a, &b)
    }

    /// Put another node in a place, or none.
    pub(super) fn set(&mut self, at: usize, node: Option<NodeProto>) {
        if let Some(old) = self.nodes[at].take() {
            for name in uses(&old) {
                if let Some(users) = self.users.get_mut(&name)
                    && let Some(i) = users.iter().position(|&u| u == at)
                {
                    users.remove(i);
                }
            }
            for name in &old.output {
                if self.maker.get(name) == Some(&at) {
                    self.maker.remove(name);
                }
            }
        }
        if let Some(new) = node {
            for name in uses(&new) {
                self.users.entry(name).or_default().push(at);
            }
            for name in new.output.iter().filter(|name| !name.is_empty()) {
                self.maker.insert(name.clone(), at);
            }
            self.nodes[at] = Some(new);
        }
    }

    pub(super) fn push(&mut self, node: NodeProto) -> usize {
        self.nodes.push(None);
        let at = self.nodes.len() - 1;
        self.set(at, Some(node));
        at
    }

    /// Change a node.
    pub(super) fn change(&mut self, at: usize, f: impl FnOnce(&mut NodeProto)) {
        if let Some(mut node) = self.node(at).cloned() {
            f(&mut node);
            self.set(at, Some(node));
        }
    }

    /// Can all uses of one value become uses of another?
    pub(super) fn can_replace(&self, old: &str, new: &str) -> bool {
        if !self.is_output(old) {
            return true;
        }
        // The output keeps its name, so what makes `new` has to be able to take it.
        self.maker.contains_key(new) && !self.is_output(new) && !self.stored_here(old)
    }

    fn stored_here(&self, name: &str) -> bool {
        self.constants.contains_key(name) || self.inputs.contains(name)
    }

    /// Let all uses of one value, which nothing makes any more, be uses of another; to be asked [before](Work::can_replace).
    pub(super) fn replace(&mut self, old: &str, new: &str) {
        let keeps = self.is_output(old);
        let (from, to) = if keeps { (new, old) } else { (old, new) };
        let (from, to) = (from.to_owned(), to.to_owned());
        if let Some(at) = self.maker.get(&from).copied().filter(|_| keeps) {
            self.change(at, |n| n.output.iter_mut().filter(|o| **o == from).for_each(|o| o.clone_from(&to)));
        }
        let mut users = self.users(&from).to_vec();
        users.dedup();
        for at in users {
            self.change(at, |n| rename(n, &from, &to));
        }
    }

    /// A name that no value has.
    pub(super) fn fresh(&self, base: &str) -> String {
        let mut taken = self.shared.taken.borrow_mut();
        let name = (0..)
            .map(|i| if i == 0 { base.to_owned() } else { format!("{base}_{i}") })
            .find(|name| !taken.contains(name))
            .unwrap_or_default();
        taken.insert(name.clone());
        name
    }

    /// Another constant, by a name like this one.
    pub(super) fn store(&mut self, base: &str, value: &Tensor) -> Option<String> {
        let name = self.fresh(base);
        self.store_as(&name, value)?;
        Some(name)
    }

    pub(super) fn store_ints(&mut self, base: &str, v: &[i64]) -> Option<String> {
        self.store(base, &Tensor::from_i64(&[v.len()], v))
    }

    /// A constant of this very name; nothing that is narrower than a byte.
    pub(super) fn store_as(&mut self, name: &str, value: &Tensor) -> Option<()> {
        let proto = proto_of(name, value)?;
        self.store_proto(proto);
        Some(())
    }

    pub(super) fn store_proto(&mut self, proto: TensorProto) {
        self.stored.push(proto.name.clone());
        self.constants.insert(proto.name.clone(), proto);
    }

    /// The constants of this graph, in order.
    pub(super) fn own_constants(&self) -> impl Iterator<Item = &TensorProto> {
        self.stored.iter().filter(|n| !self.inputs.contains(*n)).filter_map(|name| self.constants.get(name))
    }

    /// Remove nodes and constants whose values nobody uses.
    pub(super) fn remove_dead(&mut self) -> bool {
        let mut changed = false;
        // From the end, so that one round is mostly enough.
        loop {
            let dead: Vec<usize> = (0..self.nodes.len()).rev().filter(|&i| self.is_dead(i)).collect();
            if dead.is_empty() {
                break;
            }
            changed = true;
            dead.into_iter().for_each(|i| self.set(i, None));
        }
        let unused: BTreeSet<String> = self.own_constants().map(|t| t.name.clone()).collect();
        for name in unused.into_iter().filter(|n| self.users(n).is_empty() && !self.is_output(n)).collect::<Vec<_>>() {
            self.constants.remove(&name);
            self.stored.retain(|n| *n != name);
            changed = true;
        }
        changed
    }

    fn is_dead(&self, at: usize) -> bool {
        let Some(node) = self.node(at) else { return false };
        node.output.iter().all(|o| o.is_empty() || self.users(o).is_empty() && !self.is_output(o))
    }
}

/// Is it one of these operators of ai.onnx?
pub(super) fn is(node: &NodeProto, ops: &[&str]) -> bool {
    domain(&node.domain).is_empty() && ops.contains(&node.op_type.as_str())
}

pub(super) fn input(node: &NodeProto, i: usize) -> Option<&str> {
    node.input.get(i).map(String::as_str).filter(|name| !name.is_empty())
}

/// Does the node have outputs behind this many that somebody may want?
pub(super) fn extra_outputs(node: &NodeProto, from: usize) -> bool {
    node.output.iter().skip(from).any(|o| !o.is_empty())
}

pub(super) fn same_shape(a: &[Dim], b: &[Dim]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.equals(b) == Some(true))
}

fn value_of(t: &TensorProto) -> Option<Tensor> {
    tensor_data::tensor(t, &ExternalData::default()).ok()
}

pub(super) fn proto_of(name: &str, value: &Tensor) -> Option<TensorProto> {
    let dtype = value.dtype();
    let text = value.strings().map(|s| s.iter().map(|s| s.clone().into_bytes().into()).collect());
    (dtype == DType::Str || dtype.bits() >= 8 || dtype == DType::Bool).then(|| TensorProto {
        name: name.to_owned(),
        data_type: dtype.onnx(),
        dims: value.shape().iter().map(|&d| d as i64).collect(),
        raw_data: if text.is_some() { bytes::Bytes::new() } else { value.bytes().clone() },
        string_data: text.unwrap_or_default(),
        ..TensorProto::default()
    })
}

/// The values that a node uses, those of graphs inside included, once for each input and once for each graph's.
fn uses(node: &NodeProto) -> Vec<String> {
    let mut names: Vec<String> = node.input.iter().filter(|name| !name.is_empty()).cloned().collect();
    let mut inner = BTreeSet::new();
    node.attribute.iter().flat_map(AttributeProto::subgraphs).for_each(|g| free_names(g, &mut inner));
    names.extend(inner.into_iter().map(str::to_owned));
    names
}

fn rename(node: &mut NodeProto, from: &str, to: &str) {
    node.input.iter_mut().filter(|i| *i == from).for_each(|i| to.clone_into(i));
    for graph in node.attribute.iter_mut().flat_map(AttributeProto::subgraphs_mut) {
        rename_in(graph, from, to);
    }
}

fn rename_in(graph: &mut GraphProto, from: &str, to: &str) {
    // A graph may hide a name with one of its own.
    let mut free = BTreeSet::new();
    free_names(graph, &mut free);
    if !free.contains(from) {
        return;
    }
    graph.output.iter_mut().filter(|o| o.name == from).for_each(|o| to.clone_into(&mut o.name));
    graph.node.iter_mut().for_each(|n| rename(n, from, to));
}

pub(super) fn attribute<'n>(node: &'n NodeProto, name: &str) -> Option<&'n AttributeProto> {
    node.attribute.iter().find(|a| a.name == name)
}

pub(super) fn int(node: &NodeProto, name: &str) -> Option<i64> {
    attribute(node, name)?.i
}

pub(super) fn float(node: &NodeProto, name: &str) -> Option<f32> {
    attribute(node, name)?.f
}

pub(super) fn text<'n>(node: &'n NodeProto, name: &str) -> Option<&'n str> {
    std::str::from_utf8(attribute(node, name)?.s.as_ref()?).ok()
}

pub(super) fn ints<'n>(node: &'n NodeProto, name: &str) -> Option<&'n [i64]> {
    attribute(node, name).map(|a| &a.ints[..])
}

pub(super) fn set_int(node: &mut NodeProto, name: &str, i: i64) {
    put(node, AttributeProto { i: Some(i), ..of(name, AttributeType::Int) });
}

pub(super) fn set_float(node: &mut NodeProto, name: &str, f: f32) {
    put(node, AttributeProto { f: Some(f), ..of(name, AttributeType::Float) });
}

pub(super) fn set_floats(node: &mut NodeProto, name: &str, floats: Vec<f32>) {
    put(node, AttributeProto { floats, ..of(name, AttributeType::Floats) });
}

pub(super) fn set_text(node: &mut NodeProto, name: &str, s: &str) {
    put(node, AttributeProto { s: Some(s.to_owned().into()), ..of(name, AttributeType::String) });
}

pub(super) fn set_ints(node: &mut NodeProto, name: &str, ints: Vec<i64>) {
    put(node, AttributeProto { ints, ..of(name, AttributeType::Ints) });
}

fn of(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: Some(kind as i32), ..AttributeProto::default() }
}

fn put(node: &mut NodeProto, attribute: AttributeProto) {
    node.attribute.retain(|a| a.name != attribute.name);
    node.attribute.push(attribute);
}

/// A node named after its first output.
pub(super) fn new_node(domain: &str, op: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        domain: domain.into(),
        op_type: op.into(),
        name: output.into(),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: vec![output.into()],
        ..NodeProto::default()
    }
}
