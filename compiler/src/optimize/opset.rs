//! Newer operator sets, where every node keeps its meaning.
use super::graph::{Shared, attribute, int, proto_of, set_int};
use crate::{
    error::{NodePlace, Place, Problem},
    onnx::{
        AttributeValue, domain, ops,
        proto::{AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto},
    },
};
use numrsc_ir::{DType, Tensor};

/// What a node of an older version becomes.
enum Change {
    /// What is written means the same.
    Nothing,
    /// Attributes are inputs, the first one this; where one is missing the input is.
    Inputs(usize, &'static [&'static str]),
    /// The axis was the first of several that are taken together, 1 by default; it is the only one, the last by default.
    Axis,
    /// Without sizes the number of parts has to be written.
    Parts,
}

use Change::{Axis, Inputs, Nothing, Parts};

const AXES: Change = Inputs(1, &["axes"]);

/// Operators, the version from which they mean something else, and what keeps the meaning of before. What is not listed cannot be raised beyond that version.
#[rustfmt::skip]
const CHANGES: &[(&str, i64, Change)] = &[
    ("BatchNormalization", 9, Nothing), ("BatchNormalization", 14, Nothing), ("BatchNormalization", 15, Nothing),
    ("Clip", 11, Inputs(1, &["min", "max"])), ("Concat", 4, Nothing),
    ("Dropout", 10, Nothing), ("Dropout", 12, Inputs(1, &["ratio"])),
    ("GRU", 14, Nothing), ("LSTM", 14, Nothing), ("RNN", 14, Nothing),
    ("Hardmax", 13, Axis), ("LogSoftmax", 13, Axis), ("Softmax", 13, Axis),
    ("Pad", 11, Inputs(1, &["pads", "value"])), ("Pad", 18, Nothing),
    ("ReduceL1", 18, AXES), ("ReduceL2", 18, AXES), ("ReduceLogSum", 18, AXES), ("ReduceLogSumExp", 18, AXES),
    ("ReduceMax", 18, AXES), ("ReduceMean", 18, AXES), ("ReduceMin", 18, AXES), ("ReduceProd", 18, AXES),
    ("ReduceSum", 13, AXES), ("ReduceSumSquare", 18, AXES),
    ("Reshape", 14, Nothing), ("Shape", 15, Nothing),
    ("Slice", 10, Inputs(1, &["starts", "ends", "axes"])),
    ("Split", 13, Inputs(1, &["split"])), ("Split", 18, Parts),
    ("Squeeze", 13, AXES), ("Unsqueeze", 13, AXES),
    ("TopK", 10, Inputs(1, &["k"])), ("TopK", 11, Nothing),
];

/// Raise the default operator set of a model, or say which nodes stand in the way.
pub(super) fn raise(model: &mut ModelProto, to: i64, shared: &Shared) -> Result<(), Vec<Problem>> {
    let from = shared.opsets.get("").copied().unwrap_or(to);
    let refused = |message: String| Err(vec![Problem::new(Place::model(), message)]);
    match ops::newest_opset("") {
        Some(newest) if to > newest => return refused(format!("--opset {to}: the newest supported is {newest}")),
        _ if to < from => {
            return refused(format!("--opset {to}: the model has {from}, and operator sets are only raised"));
        }
        _ => {}
    }
    let mut problems = vec![];
    if let Some(graph) = &mut model.graph {
        raise_graph(graph, "main", (from, to), shared, &mut problems);
    }
    for import in model.opset_import.iter_mut().filter(|o| domain(&o.domain).is_empty()) {
        *import = OperatorSetIdProto { version: to, ..import.clone() };
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn raise_graph(graph: &mut GraphProto, path: &str, span: (i64, i64), shared: &Shared, problems: &mut Vec<Problem>) {
    let mut stored = vec![];
    for (index, node) in graph.node.iter_mut().enumerate() {
        let here = format!("{path}/#{index} {}", node.name);
        for a in &mut node.attribute {
            let inner = format!("{here}.{}", a.name);
            a.subgraphs_mut().for_each(|g| raise_graph(g, &inner, span, shared, problems));
        }
        if !domain(&node.domain).is_empty() {
            continue;
        }
        if let Err(message) = raise_node(node, path, span, shared, &mut stored) {
            let node = Some(NodePlace { index, name: node.name.clone(), op_type: node.op_type.clone() });
            problems.push(Problem::new(Place { graph: path.to_owned(), node }, message));
        }
    }
    graph.initializer.extend(stored);
}

fn raise_node(
    node: &mut NodeProto,
    path: &str,
    (from, to): (i64, i64),
    shared: &Shared,
    stored: &mut Vec<TensorProto>,
) -> Result<(), String> {
    if ops::find("", &node.op_type, from).is_none() {
        return Err(format!("it is not understood, so it cannot be raised to opset {to}"));
    }
    let mut versions: Vec<i64> =
        ops::all().filter(|o| o.domain.is_empty() && o.name == node.op_type).map(|o| o.since).collect();
    versions.sort_unstable();
    for version in versions.into_iter().filter(|v| (from + 1..=to).contains(v)) {
        let change = CHANGES.iter().find(|(op, v, _)| (*op, *v) == (node.op_type.as_str(), version));
        let (.., change) = change.ok_or_else(|| format!("it means something else from opset {version} on"))?;
        match change {
            Nothing => {}
            Inputs(first, names) => attributes_to_inputs(node, *first, names, shared, stored)?,
            Axis => {
                let fact = shared.facts.get(path).and_then(|f| f.get(node.input.first()?));
                let rank = fact.and_then(|f| Some(f.ty.as_tensor().ok()?.shape.len() as i64));
                let axis = int(node, "axis").unwrap_or(1);
                if axis != -1 && rank.is_none_or(|rank| axis != rank - 1) {
                    return Err(format!("before opset {version} it takes all axes from {axis} on together"));
                }
                set_int(node, "axis", -1);
            }
            Parts if node.input.get(1).is_none_or(String::is_empty) => {
                let parts = node.output.len() as i64;
                set_int(node, "num_outputs", parts);
            }
            Parts => {}
        }
    }
    Ok(())
}

fn attributes_to_inputs(
    node: &mut NodeProto,
    first: usize,
    names: &[&str],
    shared: &Shared,
    stored: &mut Vec<TensorProto>,
) -> Result<(), String> {
    for (i, name) in names.iter().enumerate() {
        let Some(a) = attribute(node, name) else { continue };
        let value = match AttributeProto::value(a)? {
            AttributeValue::Ints(v) => Tensor::from_i64(&[v.len()], v),
            AttributeValue::Int(k) => Tensor::from_i64(&[1], &[k]),
            // Such operators have operands of f32 in the versions that have attributes, or of another float.
            AttributeValue::Float(x) => {
                let operand = node.input.first().and_then(|x| shared.facts.values().find_map(|f| f.get(x)));
                let dtype = operand.and_then(|f| Some(f.ty.as_tensor().ok()?.dtype)).ok_or("its type is not known")?;
                let dtype = if node.op_type == "Dropout" { DType::F32 } else { dtype };
                Tensor::scalar(dtype, f64::from(x))
            }
            _ => return Err(format!("attribute `{name}` is not a number")),
        };
        let base = format!("{}_{name}", node.output.first().map_or("", String::as_str));
        let mut taken = shared.taken.borrow_mut();
        let constant =
            (0..).map(|i| if i == 0 { base.clone() } else { format!("{base}_{i}") }).find(|n| !taken.contains(n));
        let constant = constant.unwrap_or_default();
        taken.insert(constant.clone());
        stored.extend(proto_of(&constant, &value));
        let place = first + i;
        node.input.resize(node.input.len().max(place + 1), String::new());
        node.input[place] = constant;
        node.attribute.retain(|a| a.name != *name);
    }
    Ok(())
}
