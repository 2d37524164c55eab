//! What is recorded: nodes of ONNX and where their operands come from. Values are computed on the way by the reference evaluator, from the same nodes that are exported, so that
//! a model cannot mean anything else than what was traced.
use crate::{Array, Error};
use numrsc::onnx::{
    Format, Model, import,
    proto::{
        AttributeProto, AttributeType, Dimension, DimensionValue, GraphProto, ModelProto, NodeProto,
        OperatorSetIdProto, TensorProto, TensorShapeProto, TensorType, TypeProto, TypeValue, ValueInfoProto,
    },
};
use numrsc_ir::{Data, Tensor as Value, eval};
use std::{path::Path, rc::Rc};

/// That of NumRs.
pub(crate) const OPSET: i64 = 18;
/// The version of ONNX that came with it.
pub(crate) const IR_VERSION: i64 = 8;

/// An operator applied to operands.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) op: &'static str,
    pub(crate) attributes: Vec<(&'static str, Attribute)>,
    pub(crate) operands: Vec<Source>,
}

#[derive(Clone, Debug)]
pub(crate) enum Attribute {
    Int(i64),
    Ints(Vec<i64>),
    Float(f32),
}

/// Where an operand comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A tensor that was made, not computed. The same number stands for the same tensor.
    Leaf { number: u64, is_weight: bool, value: Rc<Array> },
    /// Sizes, which some operators take as an operand.
    Sizes(Vec<i64>),
    /// A result.
    Result(Rc<Node>),
}

/// A long chain of nodes is let go one by one, not each within the one before.
impl Drop for Node {
    fn drop(&mut self) {
        let mut pending = std::mem::take(&mut self.operands);
        while let Some(operand) = pending.pop() {
            if let Source::Result(node) = operand
                && let Ok(mut node) = Rc::try_unwrap(node)
            {
                pending.append(&mut node.operands);
            }
        }
    }
}

/// What an operator gives for these values; the sizes are the last operand, if the operator takes any.
pub(crate) fn compute(
    op: &'static str,
    attributes: &[(&'static str, Attribute)],
    operands: &[&Array],
    sizes: Option<&[i64]>,
) -> Result<Array, Error> {
    let failed = |message: String| Error::Operation { op, message };
    let mut names: Vec<String> = (0..operands.len()).map(|i| format!("operand {i}")).collect();
    let input = operands.iter().zip(&names).map(|(array, name)| declared(name, &array.shape)).collect();
    let initializer: Vec<TensorProto> = sizes.map(|sizes| sizes_tensor("sizes", sizes)).into_iter().collect();
    names.extend(sizes.map(|_| "sizes".to_owned()));
    let graph = GraphProto {
        name: op.to_owned(),
        node: vec![node(op, "", attributes, names, "result".into())],
        input,
        initializer,
        output: vec![ValueInfoProto { name: "result".into(), ..ValueInfoProto::default() }],
        ..GraphProto::default()
    };
    let what = |e: numrsc::Error| match e {
        numrsc::Error::Model { problems, .. } => {
            failed(problems.iter().map(|p| p.message.clone()).collect::<Vec<_>>().join("; "))
        }
        other => Error::Model(other),
    };
    let model = Model::new(Path::new(op), None, Format::Protobuf, model(graph)).map_err(what)?;
    let func = import::import(&model, &import::Options::default()).map_err(what)?;
    let values: Vec<Data> =
        operands.iter().map(|array| Data::Tensor(Value::from_f32(&array.shape, &array.data))).collect();
    let results = eval(&func, &values).map_err(|e| failed(e.to_string()))?;
    let result =
        results.first().and_then(|data| data.as_tensor().ok()).ok_or_else(|| failed("it gives nothing".into()))?;
    let data = result.to_f64s().into_iter().map(|x| x as f32).collect();
    Ok(Array { shape: result.shape().to_vec(), data })
}

pub(crate) fn model(graph: GraphProto) -> ModelProto {
    ModelProto {
        ir_version: Some(IR_VERSION),
        producer_name: "NumRs".into(),
        producer_version: env!("CARGO_PKG_VERSION").into(),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: OPSET }],
        graph: Some(graph),
        ..ModelProto::default()
    }
}

pub(crate) fn node(
    op: &str,
    name: &str,
    attributes: &[(&'static str, Attribute)],
    inputs: Vec<String>,
    output: String,
) -> NodeProto {
    let attribute = |(name, value): &(&'static str, Attribute)| {
        let of = |kind: AttributeType| AttributeProto {
            name: (*name).to_owned(),
            r#type: Some(kind as i32),
            ..AttributeProto::default()
        };
        match value {
            Attribute::Int(i) => AttributeProto { i: Some(*i), ..of(AttributeType::Int) },
            Attribute::Ints(ints) => AttributeProto { ints: ints.clone(), ..of(AttributeType::Ints) },
            Attribute::Float(f) => AttributeProto { f: Some(*f), ..of(AttributeType::Float) },
        }
    };
    NodeProto {
        name: name.to_owned(),
        op_type: op.to_owned(),
        input: inputs,
        output: vec![output],
        attribute: attributes.iter().map(attribute).collect(),
        ..NodeProto::default()
    }
}

const F32: i32 = 1;
const I64: i32 = 7;

/// An input or output of floats.
pub(crate) fn declared(name: &str, shape: &[usize]) -> ValueInfoProto {
    let size = |n: &usize| Dimension { value: Some(DimensionValue::Value(*n as i64)), ..Dimension::default() };
    let shape = TensorShapeProto { dim: shape.iter().map(size).collect() };
    let tensor = TensorType { elem_type: F32, shape: Some(shape) };
    let r#type = TypeProto { value: Some(TypeValue::Tensor(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: name.to_owned(), r#type: Some(r#type), ..ValueInfoProto::default() }
}

pub(crate) fn array_tensor(name: &str, array: &Array) -> TensorProto {
    let bytes: Vec<u8> = array.data.iter().flat_map(|x| x.to_le_bytes()).collect();
    raw_tensor(name, F32, array.shape.iter().map(|n| *n as i64).collect(), bytes)
}

pub(crate) fn sizes_tensor(name: &str, sizes: &[i64]) -> TensorProto {
    raw_tensor(name, I64, vec![sizes.len() as i64], sizes.iter().flat_map(|n| n.to_le_bytes()).collect())
}

fn raw_tensor(name: &str, data_type: i32, dims: Vec<i64>, bytes: Vec<u8>) -> TensorProto {
    TensorProto { name: name.to_owned(), data_type, dims, raw_data: bytes.into(), ..TensorProto::default() }
}
