//! The JSON that NumRs writes instead of ONNX, read as it stands into the messages of ONNX.
//!
//! NumRs loses things on the way (see the samples in `tests/data/numrs/quirks`). What it lost cannot be known here:
//! the structure check warns about graphs that look wrong, and the importer refuses what is impossible.
use super::{
    proto::{
        AttributeProto, AttributeType, Dimension, DimensionValue, GraphProto, ModelProto, NodeProto,
        OperatorSetIdProto, TensorProto, TensorShapeProto, TensorType, TypeProto, TypeValue, ValueInfoProto,
    },
    short,
};
use crate::error::{Place, Problem};
use bytes::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The format has no version of its own; opset 18 came with this one of ONNX.
const IR_VERSION: i64 = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonModel {
    metadata: Metadata,
    graph: Graph,
}

/// Descriptions are free to grow, so unknown ones are accepted here and nowhere else.
#[derive(Deserialize)]
struct Metadata {
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
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Graph {
    #[serde(default)]
    name: String,
    nodes: Vec<Node>,
    inputs: Vec<Tensor>,
    outputs: Vec<String>,
    initializers: Vec<Tensor>,
}

#[derive(Deserialize)]
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

#[derive(Deserialize)]
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

#[derive(Deserialize)]
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
    let graph = GraphProto {
        name: graph.name,
        node: graph.nodes.into_iter().map(node).collect(),
        input: graph.inputs.into_iter().map(input).collect(),
        // NumRs does not say what its outputs are: they get their types by inference.
        output: graph.outputs.into_iter().map(|name| ValueInfoProto { name, r#type: None }).collect(),
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
    let dim = t.shape.into_iter().map(|n| Dimension { value: Some(DimensionValue::Value(n)) }).collect();
    let shape = Some(TensorShapeProto { dim });
    let tensor = TensorType { elem_type: t.dtype, shape };
    ValueInfoProto { name: t.name, r#type: Some(TypeProto { value: Some(TypeValue::Tensor(tensor)) }) }
}
