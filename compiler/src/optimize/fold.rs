//! Nodes whose operands are constants become constants, as the evaluator computes them.
use super::graph::{Work, int, proto_of};
use crate::onnx::{
    Format, Model, domain,
    import::{self, Options},
    ops,
    proto::{AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto},
};
use numrsc_ir::{DType, Data, Elems, Tensor, eval};
use numrsc_passes::put_aside;
use std::path::Path;

/// A constant may be this much larger than what it was made of.
const GROWTH: usize = 2;
/// Constants up to this many bytes are made of anything.
const SMALL: usize = 1 << 20;

/// Operators that move elements or tell sizes.
const MOVE: &[&str] = &[
    "Compress",
    "Concat",
    "ConstantOfShape",
    "DepthToSpace",
    "Expand",
    "EyeLike",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "OneHot",
    "Pad",
    "Reshape",
    "ScatterElements",
    "ScatterND",
    "Shape",
    "Size",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Trilu",
    "Unsqueeze",
    "Where",
];
/// Operators that are exact for integers and booleans, and comparisons of anything.
const COUNT: &[&str] = &[
    "Abs",
    "Add",
    "And",
    "ArgMax",
    "ArgMin",
    "BitShift",
    "CumSum",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Max",
    "Min",
    "Mul",
    "Neg",
    "NonZero",
    "Not",
    "Or",
    "Range",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "Sign",
    "Sub",
    "Sum",
    "Xor",
];
/// Operators of floats whose one rounding, if there is any, IEEE 754 prescribes.
const ROUND: &[&str] =
    &["Abs", "Add", "Ceil", "Div", "Floor", "Max", "Min", "Mul", "Neg", "Relu", "Sign", "Sqrt", "Sub"];
/// Operators that depend on more than their operands, or stand for how something is computed.
const NEVER: &[&str] = &[
    "Bernoulli",
    "DequantizeLinear",
    "Dropout",
    "DynamicQuantizeLinear",
    "Multinomial",
    "QuantizeLinear",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
];

/// Operators whose results are no larger than their operands.
const SMALLER: &[&str] = &[
    "Concat",
    "Flatten",
    "Identity",
    "Reshape",
    "Shape",
    "Size",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
];

/// Operators that runtimes compute in another order where an operand is a constant, as they pack it in advance.
const PACKED: &[&str] = &["Attention", "Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN"];

/// Constants from what every runtime computes with the same bits.
pub(super) fn exact(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let op = node.op_type.as_str();
    let dtypes: Vec<DType> = node.input.iter().filter(|i| !i.is_empty()).map(|i| w.dtype(i)).collect::<Option<_>>()?;
    let whole = |d: &DType| d.is_int() || *d == DType::Bool;
    let single = |d: &DType| matches!(d, DType::F32 | DType::F64);
    let plain = domain(&node.domain).is_empty()
        && (MOVE.contains(&op) && node.attribute.iter().all(|a| a.name != "reduction")
            || COUNT.contains(&op) && dtypes.iter().all(whole)
            || matches!(op, "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual")
            || ROUND.contains(&op) && dtypes.iter().all(single)
            || op == "Div" && dtypes.iter().all(whole) && !w.ints(node.input.get(1)?)?.contains(&0)
            || op == "Cast" && is_exact_cast(w, node)?);
    let is_packed = |u: &usize| w.node(*u).is_some_and(|n| PACKED.contains(&n.op_type.as_str()));
    let float = |o: &String| w.dtype(o).is_none_or(|d| !whole(&d));
    if !plain || node.output.iter().any(|o| float(o) && w.users(o).iter().any(is_packed)) {
        return None;
    }
    fold(w, at)
}

/// Numbers that the new type has, or that IEEE 754 rounds to it.
fn is_exact_cast(w: &Work<'_>, node: &NodeProto) -> Option<bool> {
    let to = DType::from_onnx(i32::try_from(int(node, "to")?).ok()?)?;
    let from = w.constant(&node.input[0])?;
    let plain =
        |d: DType| matches!(d, DType::F16 | DType::F32 | DType::F64 | DType::Bool) || d.is_int() && d.bits() >= 8;
    if !plain(to) || !plain(from.dtype()) {
        return Some(false);
    }
    Some(match from.elems() {
        Elems::Float(v) if to.is_int() => {
            let (low, high) = to.int_range();
            v.iter().all(|x| x.is_finite() && x.trunc() >= low as f64 && x.trunc() < high as f64)
        }
        Elems::Float(v) => v.iter().all(|x| x.is_finite()),
        Elems::Int(_) => true,
        Elems::Str(_) => false,
    })
}

/// Constants from anything that depends on its operands alone.
pub(super) fn any(w: &mut Work<'_>, at: usize) -> Option<()> {
    fold(w, at)
}

fn fold(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let here = domain(&node.domain);
    if NEVER.contains(&node.op_type.as_str())
        || ops::find(here, &node.op_type, *w.shared.opsets.get(here)?).is_none()
        || node.attribute.iter().any(|a| a.subgraphs().next().is_some())
        || node.output.iter().any(|o| w.is_output(o))
        || node.input.is_empty()
        || !node.input.iter().all(|i| i.is_empty() || w.is_constant(i))
    {
        return None;
    }
    let made_of: Vec<Tensor> =
        node.input.iter().filter(|i| !i.is_empty()).map(|i| w.constant(i)).collect::<Option<_>>()?;
    let bytes: usize = made_of.iter().map(|t| t.bytes().len()).sum();
    let most = SMALL.max(GROWTH.saturating_mul(bytes));
    let wanted = node.output.iter().filter(|o| !o.is_empty());
    for output in wanted.clone() {
        // What the shapes say, before there is anything of that size.
        let Some(ty) = w.ty(output) else {
            // Nothing is known in branches that the importer knows are not taken.
            if SMALLER.contains(&node.op_type.as_str()) {
                continue;
            }
            return None;
        };
        let elements = ty.static_shape().and_then(|s| numrsc_ir::tensor::count(&s))?;
        if elements.saturating_mul(ty.dtype.size()) > most || ty.dtype.bits() < 8 && ty.dtype != DType::Bool {
            return None;
        }
    }
    let names: Vec<String> = wanted.cloned().collect();
    let values = evaluate(w, node)?;
    if values
        .iter()
        .any(|t| t.bytes().len() > most || matches!(t.elems(), Elems::Float(v) if v.iter().any(|x| x.is_nan())))
    {
        return None;
    }
    let origins: Vec<_> = made_of.iter().map(Tensor::bytes).collect();
    let stored: Vec<_> =
        names.iter().zip(values).map(|(name, t)| proto_of(name, &put_aside(t, &origins))).collect::<Option<_>>()?;
    w.set(at, None);
    stored.into_iter().for_each(|t| w.store_proto(t));
    Some(())
}

/// The values of a node's outputs, by a model of this node alone.
fn evaluate(w: &Work<'_>, node: &NodeProto) -> Option<Vec<Tensor>> {
    let mut operands: Vec<&String> = node.input.iter().filter(|i| !i.is_empty()).collect();
    operands.sort();
    operands.dedup();
    let graph = GraphProto {
        initializer: operands.into_iter().map(|i| w.stored(i).cloned()).collect::<Option<_>>()?,
        output: node.output.iter().filter(|o| !o.is_empty()).map(|o| ValueInfoProto::new(o, None)).collect(),
        node: vec![NodeProto { attribute: node.attribute.iter().map(AttributeProto::clone).collect(), ..node.clone() }],
        ..GraphProto::default()
    };
    let imports = w.shared.opsets.iter();
    let proto = ModelProto {
        ir_version: Some(10),
        graph: Some(graph),
        opset_import: imports.map(|(d, v)| OperatorSetIdProto { domain: d.clone(), version: *v }).collect(),
        ..ModelProto::default()
    };
    let model = Model::new(Path::new("<node>"), None, Format::Protobuf, proto).ok()?;
    let func = import::import(&model, &Options::default()).ok()?;
    let tensor = |d: Data| match d {
        Data::Tensor(t) => Some(t),
        _ => None,
    };
    eval(&func, &[]).ok()?.into_iter().map(tensor).collect()
}

/// A value that follows from sizes alone.
pub(super) fn known(w: &mut Work<'_>, at: usize) -> Option<()> {
    let node = w.node(at)?;
    let [name] = &node.output[..] else { return None };
    let ty = w.ty(name).filter(|ty| ty.dtype.is_int() && !w.is_output(name))?;
    let shape = ty.static_shape()?;
    let elements: Vec<i128> =
        w.known(name)?.into_iter().map(|d| d?.as_const().map(i128::from)).collect::<Option<_>>()?;
    if elements.len() != numrsc_ir::tensor::count(&shape)? {
        return None;
    }
    let (value, name) = (Tensor::from_elems(ty.dtype, shape, &Elems::Int(elements)), name.clone());
    let proto = proto_of(&name, &value)?;
    w.set(at, None);
    w.store_proto(proto);
    Some(())
}
