//! The JSON that NumRs writes instead of ONNX, read as it stands into the messages of ONNX, and written.
//!
//! NumRs loses things on the way (see the samples in `tests/data/numrs/quirks`). What it lost cannot be known here:
//! the structure check warns about graphs that look wrong, and the importer refuses what is impossible.
use super::{
    AttributeValue, domain,
    proto::{
        AttributeProto, AttributeType, Dimension, DimensionValue, GraphProto, ModelProto, NodeProto,
        OperatorSetIdProto, StringStringEntryProto, TensorProto, TensorShapeProto, TensorType, TypeProto, TypeValue,
        ValueInfoProto,
    },
    short, tensor_data,
};
use crate::error::{Place, Problem};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The format has no version of its own; opset 18 came with this one of ONNX.
const IR_VERSION: i64 = 8;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JsonModel {
    metadata: Metadata,
    graph: Graph,
}

/// Descriptions are free to grow, so unknown ones are accepted here and nowhere else.
#[derive(Deserialize, Serialize)]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    author: String,
    opset_version: i64,
    #[serde(default)]
    version: i64,
    #[serde(default)]
    description: String,
    #[serde(default)]
    domain: String,
    #[serde(default)]
    producer_name: String,
    #[serde(default)]
    producer_version: String,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

/// The author of a model among the metadata of ONNX.
const AUTHOR: &str = "author";

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Graph {
    #[serde(default)]
    name: String,
    nodes: Vec<Node>,
    inputs: Vec<Tensor>,
    outputs: Vec<String>,
    initializers: Vec<Tensor>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Node {
    #[serde(default)]
    name: String,
    op_type: String,
    inputs: Vec<String>,
    outputs: Vec<String>,
    #[serde(default)]
    attributes: BTreeMap<String, Attribute>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Tensor {
    name: String,
    /// The numbers of ONNX's `TensorProto.DataType`.
    dtype: i32,
    shape: Vec<i64>,
    /// Little-endian elements, byte by byte.
    #[serde(default)]
    data: Vec<u8>,
}

#[derive(Deserialize, Serialize)]
enum Attribute {
    Int(i64),
    Ints(Vec<i64>),
    Float(f32),
    Floats(Vec<f32>),
    String(String),
    Strings(Vec<String>),
    Tensor(Tensor),
}

/// The model in the terms of ONNX, and what is suspicious about it.
pub(super) fn decode(text: &[u8]) -> Result<(ModelProto, Vec<Problem>), String> {
    let JsonModel { metadata, mut graph } = serde_json::from_slice(text).map_err(|e| format!("NumRs JSON: {e}"))?;
    let mut warnings = vec![];
    for node in graph.nodes.iter_mut().filter(|n| n.op_type == "Dropout" && metadata.opset_version >= 12) {
        if node.attributes.remove("ratio").is_some() {
            let message =
                format!("Dropout `{}` gives its ratio as opsets before 12 do; it is not needed", short(&node.name));
            warnings.push(Problem::new(Place::graph("main"), message));
        }
    }
    for input in graph.inputs.iter().filter(|input| !input.data.is_empty()) {
        let message = format!("input `{}` holds data, which is ignored", short(&input.name));
        warnings.push(Problem::new(Place::graph("main"), message));
    }
    let mut properties = metadata.metadata;
    if !metadata.author.is_empty() {
        properties.insert(AUTHOR.into(), metadata.author);
    }
    let property = |(key, value): (String, String)| StringStringEntryProto { key, value: value.into() };
    let graph = GraphProto {
        name: if graph.name.is_empty() { metadata.name } else { graph.name },
        node: graph.nodes.into_iter().map(node).collect(),
        input: graph.inputs.into_iter().map(input).collect(),
        // NumRs does not say what its outputs are: they get their types by inference.
        output: graph.outputs.into_iter().map(|name| ValueInfoProto::new(name, None)).collect(),
        initializer: graph.initializers.into_iter().map(tensor).collect(),
        ..Default::default()
    };
    let model = ModelProto {
        ir_version: Some(IR_VERSION),
        producer_name: metadata.producer_name.into(),
        producer_version: metadata.producer_version.into(),
        domain: metadata.domain.into(),
        model_version: metadata.version,
        doc_string: metadata.description.into(),
        graph: Some(graph),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: metadata.opset_version }],
        metadata_props: properties.into_iter().map(property).collect(),
        ..Default::default()
    };
    Ok((model, warnings))
}

fn node(n: Node) -> NodeProto {
    let attribute = n.attributes.into_iter().map(|(name, value)| attribute(name, value)).collect();
    NodeProto { name: n.name, op_type: n.op_type, input: n.inputs, output: n.outputs, attribute, ..Default::default() }
}

fn attribute(name: String, value: Attribute) -> AttributeProto {
    use AttributeType as Kind;
    let of = |kind: Kind| AttributeProto { name, r#type: Some(kind as i32), ..Default::default() };
    match value {
        Attribute::Int(i) => AttributeProto { i: Some(i), ..of(Kind::Int) },
        Attribute::Ints(ints) => AttributeProto { ints, ..of(Kind::Ints) },
        Attribute::Float(f) => AttributeProto { f: Some(f), ..of(Kind::Float) },
        Attribute::Floats(floats) => AttributeProto { floats, ..of(Kind::Floats) },
        Attribute::String(s) => AttributeProto { s: Some(s.into()), ..of(Kind::String) },
        Attribute::Strings(s) => {
            AttributeProto { strings: s.into_iter().map(Bytes::from).collect(), ..of(Kind::Strings) }
        }
        Attribute::Tensor(t) => AttributeProto { t: Some(Box::new(tensor(t))), ..of(Kind::Tensor) },
    }
}

fn tensor(t: Tensor) -> TensorProto {
    TensorProto { name: t.name, data_type: t.dtype, dims: t.shape, raw_data: t.data.into(), ..Default::default() }
}

fn input(t: Tensor) -> ValueInfoProto {
    let dim = t.shape.into_iter().map(|n| Dimension::from(DimensionValue::Value(n))).collect();
    let shape = Some(TensorShapeProto { dim });
    let tensor = TensorType { elem_type: t.dtype, shape };
    ValueInfoProto::new(t.name, Some(TypeProto::from(TypeValue::Tensor(tensor))))
}

/// The model in the terms of NumRs, or everything about it that these terms cannot say. The values of its tensors are in the messages.
pub(super) fn encode(model: &ModelProto) -> Result<JsonModel, Vec<Problem>> {
    let mut problems = vec![];
    let mut problem = |message: String| problems.push(Problem::new(Place::graph("main"), message));
    let default = GraphProto::default();
    let graph = model.graph.as_ref().unwrap_or(&default);
    let opset_version = model.opset_import.iter().find(|o| domain(&o.domain).is_empty()).map_or(1, |o| o.version);
    if !model.functions.is_empty() {
        problem("NumRs's JSON has no functions".into());
    }
    if !graph.sparse_initializer.is_empty() {
        problem("NumRs's JSON has no sparse tensors".into());
    }
    let nodes = graph.node.iter().map(|node| {
        let mut of_node = |message: &str| problem(format!("node `{}` ({}) {message}", short(&node.name), node.op_type));
        if !domain(&node.domain).is_empty() {
            of_node("is not an operator of ai.onnx, and NumRs's JSON has no others");
        }
        let attributes = node.attribute.iter().filter_map(|a| match json_attribute(a) {
            Ok(value) => Some((a.name.clone(), value)),
            Err(e) => {
                of_node(&format!("has an attribute `{}` that NumRs's JSON cannot hold: {e}", a.name));
                None
            }
        });
        let attributes = attributes.collect();
        let (inputs, outputs) = (node.input.clone(), node.output.clone());
        Node { name: node.name.clone(), op_type: node.op_type.clone(), inputs, outputs, attributes }
    });
    let nodes = nodes.collect();
    let stored: BTreeSet<&str> = graph.initializer.iter().map(|t| t.name.as_str()).collect();
    let free = graph.input.iter().filter(|input| !stored.contains(input.name.as_str()));
    let inputs = free.filter_map(|input| json_input(input).map_err(&mut problem).ok()).collect();
    let initializers = graph.initializer.iter().filter_map(|t| json_tensor(t).map_err(&mut problem).ok()).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let mut properties: BTreeMap<String, String> =
        model.metadata_props.iter().map(|p| (p.key.clone(), text(&p.value))).collect();
    let metadata = Metadata {
        name: graph.name.clone(),
        author: properties.remove(AUTHOR).unwrap_or_default(),
        opset_version,
        version: model.model_version,
        description: text(&model.doc_string),
        domain: text(&model.domain),
        producer_name: text(&model.producer_name),
        producer_version: text(&model.producer_version),
        metadata: properties,
    };
    let outputs = graph.output.iter().map(|o| o.name.clone()).collect();
    Ok(JsonModel { metadata, graph: Graph { name: graph.name.clone(), nodes, inputs, outputs, initializers } })
}

fn json_attribute(a: &AttributeProto) -> Result<Attribute, String> {
    let text = |s: &[u8]| String::from_utf8(s.to_vec()).map_err(|_| "it is not UTF-8".to_string());
    Ok(match a.value()? {
        AttributeValue::Int(i) => Attribute::Int(i),
        AttributeValue::Ints(v) => Attribute::Ints(v.to_vec()),
        AttributeValue::Float(x) => Attribute::Float(x),
        AttributeValue::Floats(v) => Attribute::Floats(v.to_vec()),
        AttributeValue::String(s) => Attribute::String(text(s)?),
        AttributeValue::Strings(v) => Attribute::Strings(v.iter().map(|s| text(s)).collect::<Result<_, _>>()?),
        AttributeValue::Tensor(t) => Attribute::Tensor(json_tensor(t)?),
        _ => return Err("there are numbers, text and tensors only".into()),
    })
}

fn json_tensor(t: &TensorProto) -> Result<Tensor, String> {
    let data = tensor_data::stored(t)?.ok_or_else(|| format!("tensor `{}` is text", short(&t.name)))?;
    Ok(Tensor { name: t.name.clone(), dtype: t.data_type, shape: t.dims.clone(), data: data.to_vec() })
}

fn json_input(input: &ValueInfoProto) -> Result<Tensor, String> {
    let name = short(&input.name);
    let Some(TypeValue::Tensor(ty)) = input.r#type.as_ref().and_then(|t| t.value.as_ref()) else {
        return Err(format!("input `{name}` is not a tensor, and NumRs's JSON has no other inputs"));
    };
    let shape = ty.shape.as_ref().ok_or_else(|| format!("input `{name}` has no shape"))?;
    let size = |d: &Dimension| match &d.value {
        Some(DimensionValue::Value(n)) => Ok(*n),
        Some(DimensionValue::Param(size)) => {
            Err(format!("the size `{}` of input `{name}` is open, and sizes are numbers in NumRs's JSON", short(size)))
        }
        None => Err(format!("input `{name}` has an open size, and sizes are numbers in NumRs's JSON")),
    };
    let shape = shape.dim.iter().map(size).collect::<Result<_, _>>()?;
    Ok(Tensor { name: input.name.clone(), dtype: ty.elem_type, shape, data: vec![] })
}
