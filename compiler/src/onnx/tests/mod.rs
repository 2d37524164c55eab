//! Tests of loading: models are built as messages, encoded, and read back.
mod details;
mod external;
mod importing;
mod load;
mod shapes;
mod structure;
mod tensors;

use super::proto::*;
use super::{Model, load_bytes};
use crate::error::{Error, Result};
use prost::Message;

pub(super) fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        op_type: op.into(),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: outputs.iter().map(ToString::to_string).collect(),
        ..Default::default()
    }
}

/// A value of type `f32[dims]`.
pub(super) fn value(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dim = dims.iter().map(|&n| Dimension::from(DimensionValue::Value(n))).collect();
    let tensor = TensorType { elem_type: 1, shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto::new(name, Some(TypeProto::from(TypeValue::Tensor(tensor))))
}

pub(super) fn float(name: &str) -> TensorProto {
    TensorProto { name: name.into(), data_type: 1, float_data: vec![1.0], ..Default::default() }
}

pub(super) fn graph(inputs: &[&str], nodes: Vec<NodeProto>, outputs: &[&str]) -> GraphProto {
    GraphProto {
        node: nodes,
        input: inputs.iter().map(|name| value(name, &[2])).collect(),
        output: outputs.iter().map(|name| value(name, &[2])).collect(),
        ..Default::default()
    }
}

pub(super) fn subgraph(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        r#type: Some(AttributeType::Graph as i32),
        g: Some(Box::new(graph)),
        ..Default::default()
    }
}

pub(super) fn model(graph: GraphProto) -> ModelProto {
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 18 }],
        graph: Some(graph),
        ..Default::default()
    }
}

pub(super) fn read(model: &ModelProto) -> Result<Model> {
    load_bytes(model.encode_to_vec().into(), None)
}

/// The problems of a model, as text.
pub(super) fn problems(model: &ModelProto) -> Vec<String> {
    match read(model) {
        Ok(_) => vec![],
        Err(Error::Model { problems, .. }) => problems.iter().map(ToString::to_string).collect(),
        Err(other) => panic!("{other}"),
    }
}
