//! Models optimised as models: `numrsc optimize`.
//!
//! This works on nodes and initialisers of ONNX. The tensor IR is of no use as a way back: its core ops are far below ONNX's operators, so a `Softmax` or an `LSTM` that was
//! taken apart would have to be found again. What the importer knows is used all the same: types, symbolic sizes and the elements of shape computations
//! ([`import::facts`]), and the evaluator, for one node at a time.
//!
//! `rules.rs` is the table of rewrites. They are tried until none applies; then the model is imported again, as what is new is known by then, until nothing changes.
mod check;
mod compose;
mod dedupe;
mod fold;
mod graph;
mod linear;
mod opset;
mod ort;
mod rules;
mod shape;

use crate::{
    error::{Error, Problem, Result},
    onnx::{
        AttributeValue, Model,
        import::{self, Facts},
        proto::{
            AttributeProto, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
            TypeProto, TypeValue,
        },
        write,
    },
};
pub use check::same_results;
use graph::{Shared, Work, is, proto_of};
use numrsc_ir::{DType, Tensor};
use numrsc_passes::Level;
use rules::{Licence, RULES};
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, HashSet},
    rc::Rc,
};

/// What is to run the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum For {
    /// Anything that knows the operators of the model's operator sets.
    #[default]
    Onnx,
    /// ONNX Runtime: operators of `com.microsoft` are admitted.
    Ort,
}

/// How to optimise a model.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `-O1` keeps every bit; from `-O2` on results may round differently.
    pub level: Level,
    /// What is to run the model.
    pub target: For,
    /// The version of the default operator set that the result has; the model's own without.
    pub opset: Option<i64>,
    /// Sizes and shapes that are fixed.
    pub import: import::Options,
}

/// A model, and what was done to it.
#[derive(Debug)]
pub struct Optimized {
    /// What came of it.
    pub model: Model,
    /// What is kept as it is because it is not understood.
    pub notes: Vec<Problem>,
    /// How often each rule was applied.
    pub applied: BTreeMap<&'static str, usize>,
}

/// From this version of the format on initialisers need not be inputs. Before, all of them are, and mean constants all the same.
const FREE_CONSTANTS: i64 = 4;

/// A model settles in a few rounds; this is for one that does not.
const MOST_ROUNDS: usize = 50;

/// Optimise a model. The values of large tensors stay where they are until the result is written.
pub fn optimize(model: &Model, options: &Options) -> Result<Optimized> {
    let mut proto = write::whole(model)?;
    let mut applied = BTreeMap::new();
    if !options.import.open.is_empty() {
        // The error names the node that fixes a size.
        import::import(model, &options.import)?;
    }
    let (_, notes) = import::facts(model, &options.import);
    let sizes_given = !options.import.dims.is_empty() || !options.import.shapes.is_empty();
    let wrong: Vec<Problem> = notes.iter().filter(|p| sizes_given && p.place.node.is_none()).cloned().collect();
    if !wrong.is_empty() {
        return Err(Error::Model { file: model.file().to_owned(), problems: wrong });
    }
    fix_sizes(&mut proto, &options.import);
    let known = import::Options { distinct_dims: options.import.distinct_dims, ..import::Options::default() };
    let old = proto.ir_version.is_none_or(|version| version < FREE_CONSTANTS);
    proto.ir_version = proto.ir_version.max(Some(FREE_CONSTANTS));
    if let Some(graph) = &mut proto.graph {
        if old {
            let stored: HashSet<&str> = graph.initializer.iter().map(|t| t.name.as_str()).collect();
            graph.input.retain(|i| !stored.contains(i.name.as_str()));
        }
        constants(graph);
        if graph.name.is_empty() {
            graph.name = "main".into();
        }
    }
    if let Some(to) = options.opset {
        let current = Model::new(model.file(), None, model.format(), proto)?;
        let shared = Shared {
            opsets: current.opsets().clone(),
            facts: import::facts(&current, &known).0,
            taken: RefCell::new(names(current.proto())),
        };
        proto = current.into_proto();
        let raised = opset::raise(&mut proto, to, &shared);
        raised.map_err(|problems| Error::Model { file: model.file().to_owned(), problems })?;
    }
    let make = |proto| Model::new(model.file(), None, model.format(), proto);
    for _ in 0..MOST_ROUNDS {
        let current = make(proto)?;
        let (facts, _) = import::facts(&current, &known);
        let opsets = current.opsets().clone();
        proto = current.into_proto();
        let taken = RefCell::new(names(&proto));
        let shared = Shared { opsets, facts, taken };
        let mut pass = Pass { options, applied: &mut applied, shared: &shared, changed: false };
        if let Some(graph) = proto.graph.take() {
            proto.graph = Some(pass.graph(graph, "main", Rc::default()));
        }
        let changed = pass.changed;
        declare(&mut proto, &shared.facts);
        import_domains(&mut proto);
        if !changed {
            break;
        }
    }
    Ok(Optimized { model: make(proto)?, notes, applied })
}

struct Pass<'p> {
    options: &'p Options,
    applied: &'p mut BTreeMap<&'static str, usize>,
    shared: &'p Shared,
    changed: bool,
}

impl Pass<'_> {
    fn count(&mut self, rule: &'static str, times: usize) -> bool {
        if times > 0 {
            *self.applied.entry(rule).or_default() += times;
        }
        times > 0
    }

    /// Rewrite a graph and those inside, from the inside out.
    fn graph(&mut self, mut graph: GraphProto, path: &str, outer: Rc<HashMap<String, TensorProto>>) -> GraphProto {
        let has_inner = graph.node.iter().any(|n| n.attribute.iter().any(|a| a.subgraphs().next().is_some()));
        if has_inner {
            let visible = Work::new(graph.clone(), path, self.shared, outer.clone()).visible();
            for (i, node) in graph.node.iter_mut().enumerate() {
                let here = format!("{path}/#{i} {}", node.name);
                for a in &mut node.attribute {
                    let inner = format!("{here}.{}", a.name);
                    for g in a.subgraphs_mut() {
                        *g = self.graph(std::mem::take(g), &inner, visible.clone());
                    }
                }
            }
        }
        let mut work = Work::new(graph, path, self.shared, outer);
        while self.sweep(&mut work) {
            self.changed = true;
        }
        work.finish()
    }

    fn sweep(&mut self, work: &mut Work<'_>) -> bool {
        let level = self.options.level;
        let mut changed = work.remove_dead();
        let merged = dedupe::constants(work);
        changed |= self.count("equal-constants", merged);
        let merged = dedupe::nodes(work);
        changed |= self.count("equal-nodes", merged);
        let admitted = RULES.iter().filter(|r| {
            (level >= Level::O2 || level == Level::O1 && r.licence == Licence::Exact)
                && r.only.is_none_or(|only| only == self.options.target)
        });
        let rules: Vec<_> = admitted.collect();
        for at in 0..work.nodes.len() {
            while let Some(rule) = work.node(at).cloned().and_then(|node| {
                let ops = |r: &&&rules::Rule| {
                    r.ops.is_empty()
                        || is(&node, r.ops)
                        || node.domain == "com.microsoft"
                            && r.only == Some(For::Ort)
                            && r.ops.contains(&node.op_type.as_str())
                };
                rules.iter().filter(ops).find(|r| (r.apply)(work, at).is_some())
            }) {
                changed |= self.count(rule.name, 1);
            }
        }
        changed |= work.remove_dead();
        changed
    }
}

/// Sizes that were given stand in the model.
fn fix_sizes(proto: &mut ModelProto, given: &import::Options) {
    let Some(graph) = &mut proto.graph else { return };
    for input in &mut graph.input {
        let Some(TypeValue::Tensor(t)) = input.r#type.as_mut().and_then(|t| t.value.as_mut()) else { continue };
        if let Some(shape) = given.shapes.get(&input.name) {
            let dim = shape.iter().map(|d| d.clone().into()).collect();
            t.shape = Some(crate::onnx::proto::TensorShapeProto { dim });
        }
        for (axis, dim) in t.shape.iter_mut().flat_map(|s| s.dim.iter_mut().enumerate()) {
            if let Some(name) = given.open.get(&(input.name.clone(), axis)) {
                dim.value = Some(DimensionValue::Param(name.clone()));
            }
        }
    }
    if !given.shapes.is_empty() || !given.open.is_empty() {
        // What was inferred from other sizes is not true any more.
        graph.value_info.clear();
        let clear = |t: &mut TypeProto| {
            if let Some(TypeValue::Tensor(t)) = &mut t.value {
                t.shape = None;
            }
        };
        graph.output.iter_mut().filter_map(|o| o.r#type.as_mut()).for_each(clear);
    }
    let all = graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info);
    for t in all.filter_map(|v| v.r#type.as_mut()) {
        let Some(TypeValue::Tensor(t)) = &mut t.value else { continue };
        for d in t.shape.iter_mut().flat_map(|s| &mut s.dim) {
            let size = match &d.value {
                Some(DimensionValue::Param(name)) => given.dims.get(name),
                _ => None,
            };
            if let Some(&n) = size {
                d.value = Some(DimensionValue::Value(n));
            }
        }
    }
}

/// `Constant` nodes as initialisers.
fn constants(graph: &mut GraphProto) {
    for node in &mut graph.node {
        node.attribute.iter_mut().flat_map(AttributeProto::subgraphs_mut).for_each(constants);
    }
    let outputs: HashSet<String> = graph.output.iter().map(|o| o.name.clone()).collect();
    let mut stored = vec![];
    graph.node.retain(|node| {
        let value = Some(node).filter(|n| is(n, &["Constant"]) && !outputs.contains(&n.output[0])).and_then(constant);
        stored.extend(value.clone());
        value.is_none()
    });
    graph.initializer.extend(stored);
}

fn constant(node: &NodeProto) -> Option<TensorProto> {
    let [attribute] = &node.attribute[..] else { return None };
    let name = node.output.first()?;
    let text = |s: &[bytes::Bytes]| s.iter().map(|s| String::from_utf8(s.to_vec()).ok()).collect::<Option<Vec<_>>>();
    match (attribute.name.as_str(), attribute.value().ok()?) {
        ("value", AttributeValue::Tensor(t)) => Some(TensorProto { name: name.clone(), ..t.clone() }),
        ("value_int", AttributeValue::Int(i)) => proto_of(name, &Tensor::from_i64(&[], &[i])),
        ("value_ints", AttributeValue::Ints(v)) => proto_of(name, &Tensor::from_i64(&[v.len()], v)),
        ("value_float", AttributeValue::Float(x)) => proto_of(name, &Tensor::from_f32(&[], &[x])),
        ("value_floats", AttributeValue::Floats(v)) => proto_of(name, &Tensor::from_f32(&[v.len()], v)),
        ("value_string", AttributeValue::String(s)) => {
            proto_of(name, &Tensor::from_strings(vec![], vec![String::from_utf8(s.to_vec()).ok()?]).ok()?)
        }
        ("value_strings", AttributeValue::Strings(s)) => {
            proto_of(name, &Tensor::from_strings(vec![s.len()], text(s)?).ok()?)
        }
        _ => None,
    }
}

/// Types of outputs that the model does not tell.
fn declare(proto: &mut ModelProto, facts: &Facts) {
    let Some(graph) = &mut proto.graph else { return };
    for output in graph.output.iter_mut().filter(|o| {
        o.r#type
            .as_ref()
            .is_none_or(|t| t.value.is_none() || matches!(&t.value, Some(TypeValue::Tensor(t)) if t.shape.is_none()))
    }) {
        let fact = facts.get("main").and_then(|f| f.get(&output.name));
        let Some(ty) = fact.and_then(|f| f.ty.as_tensor().ok()) else { continue };
        let dim = |d: &numrsc_ir::Dim| match (d.as_const(), d.as_sym()) {
            (Some(n), _) => DimensionValue::Value(n).into(),
            (_, Some(s)) if !s.to_string().starts_with('_') => DimensionValue::Param(s.to_string()).into(),
            _ => crate::onnx::proto::Dimension::default(),
        };
        let shape = crate::onnx::proto::TensorShapeProto { dim: ty.shape.iter().map(dim).collect() };
        let tensor = crate::onnx::proto::TensorType { elem_type: DType::onnx(ty.dtype), shape: Some(shape) };
        output.r#type = Some(TypeValue::Tensor(tensor).into());
    }
}

/// What rules brought in is imported, in version 1, the only one that there is.
fn import_domains(proto: &mut ModelProto) {
    fn uses(graph: &GraphProto) -> bool {
        graph
            .node
            .iter()
            .any(|n| n.domain == "com.microsoft" || n.attribute.iter().flat_map(AttributeProto::subgraphs).any(uses))
    }
    let imported = proto.opset_import.iter().any(|o| o.domain == "com.microsoft");
    if !imported && proto.graph.as_ref().is_some_and(uses) {
        proto.opset_import.push(OperatorSetIdProto { domain: "com.microsoft".into(), version: 1 });
    }
}

/// Every name of a value.
fn names(proto: &ModelProto) -> HashSet<String> {
    fn of(graph: &GraphProto, names: &mut HashSet<String>) {
        names.extend(graph.input.iter().map(|i| i.name.clone()));
        names.extend(graph.initializer.iter().map(|t| t.name.clone()));
        names.extend(graph.sparse_initializer.iter().filter_map(|t| Some(t.values.as_ref()?.name.clone())));
        for node in &graph.node {
            names.extend(node.output.iter().cloned());
            node.attribute.iter().flat_map(AttributeProto::subgraphs).for_each(|g| of(g, names));
        }
    }
    let mut all = HashSet::new();
    proto.graph.iter().for_each(|g| of(g, &mut all));
    all
}
