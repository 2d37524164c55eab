//! The mutations of a model, one row each.
use super::{Case, minimise::stored};
use crate::rng::Rng;
use bytes::Bytes;
use numrsc::onnx::{
    external::ExternalData,
    ops,
    proto::{
        AttributeProto, AttributeType, Dimension, DimensionValue, GraphProto, NodeProto, TensorProto, TensorShapeProto,
        TensorType, TypeProto, TypeValue, ValueInfoProto,
    },
    tensor_data,
};
use numrsc_ir::{DType, Data, Tensor};

/// A mutation; `None` where it does not apply.
#[derive(Debug)]
pub struct Change {
    pub name: &'static str,
    /// Its relative frequency.
    weight: usize,
    pub(super) apply: fn(&mut Rng, &mut Case) -> Option<()>,
}

#[rustfmt::skip]
pub const CHANGES: &[Change] = &[
    Change { name: "open-size",        weight: 8, apply: open_size },
    Change { name: "open-all",         weight: 6, apply: open_all },
    Change { name: "open-equal",       weight: 4, apply: open_equal },
    Change { name: "size",             weight: 5, apply: size },
    Change { name: "rank",             weight: 2, apply: rank },
    Change { name: "type",             weight: 2, apply: element_type },
    Change { name: "type-of-all",      weight: 4, apply: element_type_of_all },
    Change { name: "attribute",        weight: 8, apply: attribute },
    Change { name: "drop-attribute",   weight: 3, apply: drop_attribute },
    Change { name: "add-attribute",    weight: 4, apply: add_attribute },
    Change { name: "rewire",           weight: 4, apply: rewire },
    Change { name: "drop-input",       weight: 3, apply: drop_input },
    Change { name: "elements",         weight: 5, apply: elements },
    Change { name: "store-input",      weight: 5, apply: store_input },
    Change { name: "feed-initialiser", weight: 3, apply: feed_initialiser },
    Change { name: "opset",            weight: 3, apply: opset },
    Change { name: "delete",           weight: 3, apply: delete },
    Change { name: "operator",         weight: 3, apply: operator },
    Change { name: "append",           weight: 6, apply: append },
    Change { name: "prepend",          weight: 4, apply: prepend },
    Change { name: "show",             weight: 2, apply: show },
];

pub(super) fn pick(rng: &mut Rng) -> &'static Change {
    let mut at = rng.below(CHANGES.iter().map(|c| c.weight).sum());
    CHANGES.iter().find(|c| at.checked_sub(c.weight).map(|left| at = left).is_none()).expect("the weights add up")
}

fn graph(case: &mut Case) -> Option<&mut GraphProto> {
    case.model.graph.as_mut()
}

fn one<'t, T>(rng: &mut Rng, items: &'t mut [T]) -> Option<&'t mut T> {
    if items.is_empty() { None } else { Some(&mut items[rng.below(items.len())]) }
}

fn tensor_type(input: &mut ValueInfoProto) -> Option<&mut TensorType> {
    match input.r#type.as_mut()?.value.as_mut()? {
        TypeValue::Tensor(t) => Some(t),
        _ => None,
    }
}

/// What is declared of outputs is part of what a change may make wrong.
fn forget_outputs(graph: &mut GraphProto) {
    graph.value_info.clear();
    graph.output.iter_mut().for_each(|o| o.r#type = None);
}

fn inputs(case: &mut Case) -> Option<Vec<&mut TensorType>> {
    let graph = graph(case)?;
    forget_outputs(graph);
    let types: Vec<_> = graph.input.iter_mut().filter_map(tensor_type).collect();
    if types.is_empty() { None } else { Some(types) }
}

fn input_shape<'c>(rng: &mut Rng, case: &'c mut Case) -> Option<&'c mut TensorShapeProto> {
    let types = inputs(case)?;
    let at = rng.below(types.len());
    types.into_iter().nth(at)?.shape.as_mut()
}

fn open_size(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let name = format!("n{}", rng.below(3));
    let shape = input_shape(rng, case)?;
    let dim = one(rng, &mut shape.dim)?;
    dim.value = if rng.one_in(6) { None } else { Some(DimensionValue::Param(name)) };
    Some(())
}

fn open_all(_: &mut Rng, case: &mut Case) -> Option<()> {
    let shapes = inputs(case)?.into_iter().filter_map(|t| t.shape.as_mut());
    let dims: Vec<&mut Dimension> = shapes.flat_map(|s| &mut s.dim).collect();
    if dims.is_empty() {
        return None;
    }
    for (i, dim) in dims.into_iter().enumerate() {
        dim.value = Some(DimensionValue::Param(format!("s{i}")));
    }
    Some(())
}

/// Equal sizes get one name.
fn open_equal(_: &mut Rng, case: &mut Case) -> Option<()> {
    let mut changed = None;
    for dim in inputs(case)?.into_iter().filter_map(|t| t.shape.as_mut()).flat_map(|s| &mut s.dim) {
        if let Some(DimensionValue::Value(n)) = dim.value {
            dim.value = Some(DimensionValue::Param(format!("e{n}")));
            changed = Some(());
        }
    }
    changed
}

fn a_size(rng: &mut Rng) -> i64 {
    match rng.below(12) {
        0 => 0,
        1 => 1,
        2 => 17,
        3 => 64,
        4 => *rng.pick(&[-1, 1 << 20, 1 << 31, 1 << 40, i64::MAX]),
        _ => rng.between(1, 8),
    }
}

fn size(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let n = a_size(rng);
    let shape = input_shape(rng, case)?;
    one(rng, &mut shape.dim)?.value = Some(DimensionValue::Value(n));
    Some(())
}

fn rank(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let n = rng.between(1, 3);
    let shape = input_shape(rng, case)?;
    let at = rng.below(shape.dim.len() + 1);
    if rng.one_in(2) && at < shape.dim.len() {
        shape.dim.remove(at);
    } else {
        shape.dim.insert(at, Dimension::from(DimensionValue::Value(n)));
    }
    Some(())
}

fn a_type(rng: &mut Rng) -> i32 {
    let common = [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I8, DType::U8];
    if rng.one_in(3) { rng.pick(DType::ALL).onnx() } else { rng.pick(&common).onnx() }
}

fn element_type(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let to = a_type(rng);
    let types = inputs(case)?;
    let at = rng.below(types.len());
    types.into_iter().nth(at)?.elem_type = to;
    Some(())
}

/// All inputs of one type, so that operators still agree about them.
fn element_type_of_all(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let (of, to) = (rng.below(4), a_type(rng));
    let mut types = inputs(case)?;
    let from = types[of % types.len()].elem_type;
    types.iter_mut().filter(|t| t.elem_type == from).for_each(|t| t.elem_type = to);
    for t in &mut graph(case)?.initializer {
        if t.data_type == from
            && let Ok(tensor) = tensor_data::tensor(t, &ExternalData::new(None))
            && let Some(to) = DType::from_onnx(to)
        {
            *t = stored(&t.name, &converted(rng, &tensor, to));
        }
    }
    Some(())
}

/// The numbers of a tensor in another type; others where there are none.
fn converted(rng: &mut Rng, t: &Tensor, to: DType) -> Tensor {
    let elems = numrsc_ir::Elems::Float(t.to_f64s());
    match (t.dtype(), to) {
        (DType::Str, _) | (_, DType::Str) => super::inputs::random(rng, to, t.shape().to_vec()),
        _ if to.is_float() => Tensor::from_elems(to, t.shape().to_vec(), &elems),
        _ => {
            let (low, high) = to.int_range();
            let ints = t.to_f64s().iter().map(|x| (*x as i128).clamp(low, high)).collect();
            Tensor::from_elems(to, t.shape().to_vec(), &numrsc_ir::Elems::Int(ints))
        }
    }
}

/// A node of the graph or of one inside it.
fn node<'g>(rng: &mut Rng, graph: &'g mut GraphProto) -> Option<&'g mut NodeProto> {
    let node = one(rng, &mut graph.node)?;
    if rng.one_in(2) && node.attribute.iter().any(|a| a.g.as_ref().is_some_and(|g| !g.node.is_empty())) {
        let inner = node.attribute.iter_mut().filter_map(|a| a.g.as_mut()).find(|g| !g.node.is_empty())?;
        return one(rng, &mut inner.node);
    }
    Some(node)
}

fn an_int(rng: &mut Rng, old: i64) -> i64 {
    match rng.below(10) {
        0..=2 => old.wrapping_add(1),
        3 | 4 => old.wrapping_sub(1),
        5 => old.wrapping_neg(),
        6 => 0,
        7 => rng.between(-3, 9),
        8 => old.wrapping_mul(2),
        _ => *rng.pick(&[1 << 15, 1 << 31, 1 << 32, 1 << 40, i64::MAX, i64::MIN, -(1 << 31), 1 << 62]),
    }
}

fn a_float(rng: &mut Rng, old: f32) -> f32 {
    match rng.below(6) {
        0 => -old,
        1 => 0.0,
        2 => old * 2.0 + 0.5,
        _ => *rng.pick(&[1.0, -1.0, 0.5, 1e-30, 1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 3.5]),
    }
}

const WORDS: &[&str] = &[
    "",
    "NOTSET",
    "SAME_UPPER",
    "SAME_LOWER",
    "VALID",
    "constant",
    "reflect",
    "edge",
    "wrap",
    "linear",
    "nearest",
    "cubic",
    "bilinear",
    "bicubic",
    "zeros",
    "border",
    "reflection",
    "half_pixel",
    "asymmetric",
    "align_corners",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "tf_crop_and_resize",
    "floor",
    "ceil",
    "round_prefer_floor",
    "round_prefer_ceil",
    "add",
    "mul",
    "max",
    "min",
    "none",
    "sum",
    "mean",
    "forward",
    "reverse",
    "bidirectional",
    "DCR",
    "CRD",
    "RIGHT",
    "LEFT",
    "tanh",
    "Tanh",
    "Relu",
    "Sigmoid",
    "Affine",
    "stretch",
    "not_larger",
    "not_smaller",
    "avg",
    "lp",
];

/// Equations of `Einsum` are texts that no other operator has.
const EQUATIONS: &[&str] =
    &["ij->ji", "ij,jk->ik", "ii->i", "...ij->...ji", "i,i", "bij,bjk->bik", "ij->", "i->ii", "...ii->...i"];

fn attribute(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let graph = graph(case)?;
    forget_outputs(graph);
    let node = node(rng, graph)?;
    let attribute = one(rng, &mut node.attribute)?;
    change_attribute(rng, attribute)
}

fn change_attribute(rng: &mut Rng, a: &mut AttributeProto) -> Option<()> {
    if let Some(i) = a.i.as_mut() {
        *i = an_int(rng, *i);
    } else if let Some(f) = a.f.as_mut() {
        *f = a_float(rng, *f);
    } else if let Some(s) = a.s.as_mut() {
        let words = if a.name == "equation" { EQUATIONS } else { WORDS };
        *s = Bytes::from_static(rng.pick(words).as_bytes());
    } else if let Some(t) = a.t.as_mut() {
        change_elements(rng, t)?;
    } else if !a.ints.is_empty() {
        change_list(rng, &mut a.ints, an_int);
    } else if !a.floats.is_empty() {
        change_list(rng, &mut a.floats, a_float);
    } else if !a.strings.is_empty() {
        let word = Bytes::from_static(rng.pick(WORDS).as_bytes());
        *one(rng, &mut a.strings)? = word;
    } else {
        return None;
    }
    Some(())
}

fn change_list<T: Copy>(rng: &mut Rng, list: &mut Vec<T>, change: fn(&mut Rng, T) -> T) {
    let at = rng.below(list.len());
    match rng.below(8) {
        0 => list.push(list[at]),
        1 => {
            list.remove(at);
        }
        2 => {
            let other = rng.below(list.len());
            list.swap(at, other);
        }
        _ => list[at] = change(rng, list[at]),
    }
}

fn drop_attribute(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let graph = graph(case)?;
    forget_outputs(graph);
    let node = node(rng, graph)?;
    if node.attribute.is_empty() {
        return None;
    }
    let at = rng.below(node.attribute.len());
    node.attribute.remove(at);
    Some(())
}

/// An attribute that the operator has and the node does not.
fn add_attribute(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let graph = graph(case)?;
    forget_outputs(graph);
    let node = node(rng, graph)?;
    let row = ops::find(&node.domain, &node.op_type, i64::MAX)?;
    let missing: Vec<_> = row.attrs.iter().filter(|a| node.attribute.iter().all(|b| b.name != a.name)).collect();
    if missing.is_empty() {
        return None;
    }
    let info = *rng.pick(&missing);
    let mut a = AttributeProto { name: info.name.into(), ..AttributeProto::default() };
    let mut set = |ty: AttributeType| a.r#type = Some(ty as i32);
    match info.ty.trim_start_matches("Option<").trim_end_matches('>') {
        "i64" => {
            set(AttributeType::Int);
            a.i = Some(rng.between(-2, 4));
        }
        "bool" => {
            set(AttributeType::Int);
            a.i = Some(rng.between(0, 1));
        }
        "DType" => {
            set(AttributeType::Int);
            a.i = Some(i64::from(a_type(rng)));
        }
        "f64" => {
            set(AttributeType::Float);
            a.f = Some(a_float(rng, 1.0));
        }
        "String" => {
            set(AttributeType::String);
            a.s = Some(Bytes::from_static(rng.pick(WORDS).as_bytes()));
        }
        "Vec<i64" => {
            set(AttributeType::Ints);
            let most = rng.between(0, 3);
            a.ints = (0..rng.between(1, 4)).map(|_| rng.between(-1, most)).collect();
        }
        "Vec<f64" => {
            set(AttributeType::Floats);
            a.floats = (0..rng.between(1, 4)).map(|_| a_float(rng, 1.0)).collect();
        }
        _ => return None,
    }
    node.attribute.push(a);
    Some(())
}

/// What a node may read: names that are defined before it.
fn names_before(graph: &GraphProto, at: usize) -> Vec<String> {
    let inputs = graph.input.iter().map(|i| &i.name).chain(graph.initializer.iter().map(|t| &t.name));
    inputs.chain(graph.node[..at].iter().flat_map(|n| &n.output)).filter(|n| !n.is_empty()).cloned().collect()
}

fn rewire(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let graph = graph(case)?;
    forget_outputs(graph);
    if graph.node.is_empty() {
        return None;
    }
    let at = rng.below(graph.node.len());
    let names = names_before(graph, at);
    let node = &mut graph.node[at];
    if names.is_empty() {
        return None;
    }
    let name = rng.pick(&names).clone();
    if rng.one_in(5) {
        node.input.push(name);
    } else {
        *one(rng, &mut node.input)? = name;
    }
    Some(())
}

fn drop_input(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let graph = graph(case)?;
    forget_outputs(graph);
    let node = one(rng, &mut graph.node)?;
    if rng.one_in(2) {
        node.input.pop()?;
    } else {
        one(rng, &mut node.input)?.clear();
    }
    Some(())
}

/// Other numbers in a constant, or another shape.
fn elements(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let graph = graph(case)?;
    forget_outputs(graph);
    let tensor = one(rng, &mut graph.initializer)?;
    change_elements(rng, tensor)
}

fn change_elements(rng: &mut Rng, proto: &mut TensorProto) -> Option<()> {
    let t = tensor_data::tensor(proto, &ExternalData::new(None)).ok()?;
    let mut shape = t.shape().to_vec();
    if rng.one_in(4) {
        // The same numbers over again, as many as there is room for.
        match rng.below(3) {
            0 => shape.insert(rng.below(shape.len() + 1), 1),
            1 if shape.contains(&1) => shape.retain(|n| *n != 1),
            _ => *one(rng, &mut shape)? = rng.below(6),
        }
        *proto = stored(&proto.name, &super::inputs::repeated(rng, &t, shape));
        return Some(());
    }
    let elems = match t.elems() {
        numrsc_ir::Elems::Int(mut v) => {
            let (low, high) = t.dtype().int_range();
            let x = one(rng, &mut v)?;
            *x = i128::from(an_int(rng, *x as i64)).clamp(low, high);
            numrsc_ir::Elems::Int(v)
        }
        numrsc_ir::Elems::Float(mut v) => {
            let x = one(rng, &mut v)?;
            *x = f64::from(a_float(rng, *x as f32));
            numrsc_ir::Elems::Float(v)
        }
        numrsc_ir::Elems::Str(_) => return None,
    };
    *proto = stored(&proto.name, &Tensor::from_elems(t.dtype(), shape, &elems));
    Some(())
}

/// What was an input is stored in the model: weights, axes, shapes.
fn store_input(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let graph = case.model.graph.as_mut()?;
    if graph.input.is_empty() {
        return None;
    }
    forget_outputs(graph);
    let at = rng.below(graph.input.len());
    let Some(Some(Data::Tensor(t))) = case.data.get(at) else { return None };
    graph.initializer.push(stored(&graph.input[at].name, t));
    graph.input.remove(at);
    case.data.remove(at);
    Some(())
}

/// What was stored is an input: weights, axes, shapes that only a run tells.
fn feed_initialiser(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let graph = case.model.graph.as_mut()?;
    if graph.initializer.is_empty() {
        return None;
    }
    forget_outputs(graph);
    let at = rng.below(graph.initializer.len());
    let proto = graph.initializer.remove(at);
    let tensor = tensor_data::tensor(&proto, &ExternalData::new(None)).ok()?;
    let dim = |n: &i64| Dimension::from(DimensionValue::Value(*n));
    let shape = Some(TensorShapeProto { dim: proto.dims.iter().map(dim).collect() });
    let ty = TypeProto::from(TypeValue::Tensor(TensorType { elem_type: proto.data_type, shape }));
    if let Some(i) = graph.input.iter().position(|i| i.name == proto.name) {
        graph.input.remove(i);
        case.data.remove(i);
    }
    graph.input.push(ValueInfoProto::new(proto.name, Some(ty)));
    case.data.push(Some(Data::Tensor(tensor)));
    Some(())
}

fn opset(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let imports: &mut [_] = &mut case.model.opset_import;
    let import = one(rng, imports)?;
    let newest = ops::newest_opset(numrsc::onnx::domain(&import.domain)).unwrap_or(1);
    import.version = if rng.one_in(4) { newest } else { rng.between(1, newest) };
    Some(())
}

/// Without the node, its first output is its first input.
fn delete(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let graph = graph(case)?;
    if graph.node.len() < 2 {
        return None;
    }
    forget_outputs(graph);
    let at = rng.below(graph.node.len());
    let node = graph.node.remove(at);
    let (from, to) = (node.output.first()?, node.input.first()?);
    for n in graph.node.iter_mut().flat_map(|n| &mut n.input).filter(|n| *n == from) {
        n.clone_from(to);
    }
    graph.output.iter_mut().filter(|o| o.name == *from).for_each(|o| o.name.clone_from(to));
    Some(())
}

/// Another operator that takes as many inputs.
fn operator(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let graph = graph(case)?;
    forget_outputs(graph);
    let node = node(rng, graph)?;
    let rows: Vec<_> = ops::all().filter(|o| o.inputs.len() == node.input.len() && o.domain.is_empty()).collect();
    if rows.is_empty() {
        return None;
    }
    node.domain.clear();
    node.op_type = rng.pick(&rows).name.into();
    Some(())
}

/// Operators of one input that say something about any tensor.
const UNARY: &[&str] = &[
    "Abs",
    "Neg",
    "Relu",
    "Identity",
    "Shape",
    "Size",
    "Transpose",
    "Flatten",
    "Softmax",
    "LogSoftmax",
    "Squeeze",
    "NonZero",
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceL2",
    "ReduceProd",
    "Sigmoid",
    "Exp",
    "Sqrt",
    "Floor",
    "Sign",
    "Not",
    "IsNaN",
    "Det",
    "GlobalAveragePool",
    "ArgMax",
    "Hardmax",
    "Softplus",
    "Erf",
    "Clip",
    "Round",
    "SequenceConstruct",
];

/// Operators of two inputs that take one tensor twice.
const BINARY: &[&str] = &[
    "Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "MatMul", "Equal", "Less", "Concat", "Gather", "Mod", "And",
    "Where", "Expand", "Reshape", "Tile", "PRelu",
];

/// A node that reads up to two names, with what attributes it needs.
fn a_node(rng: &mut Rng, names: &[String], output: &str) -> NodeProto {
    let first = rng.pick(names).clone();
    let mut node = NodeProto { output: vec![output.into()], input: vec![first], ..NodeProto::default() };
    if rng.one_in(2) {
        node.op_type = (*rng.pick(UNARY)).into();
    } else {
        node.op_type = (*rng.pick(BINARY)).into();
        node.input.push(rng.pick(names).clone());
        if node.op_type == "Where" {
            node.input.push(rng.pick(names).clone());
        }
    }
    if matches!(&node.op_type[..], "Concat" | "Softmax" | "Gather") || rng.one_in(6) {
        let axis = rng.between(-1, 2);
        let ty = Some(AttributeType::Int as i32);
        node.attribute.push(AttributeProto {
            name: "axis".into(),
            i: Some(axis),
            r#type: ty,
            ..AttributeProto::default()
        });
    }
    node
}

/// A node behind the others; it gives an output of the graph.
fn append(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let graph = graph(case)?;
    forget_outputs(graph);
    let count = graph.node.len();
    let names = names_before(graph, count);
    if names.is_empty() {
        return None;
    }
    let name = format!("appended_{count}");
    let mut node = a_node(rng, &names, &name);
    if let Some(o) = graph.output.first().filter(|_| !rng.one_in(4)) {
        node.input[0].clone_from(&o.name);
    }
    graph.node.push(node);
    let output = ValueInfoProto::new(name, None);
    if rng.one_in(2) || graph.output.is_empty() {
        graph.output.push(output);
    } else {
        graph.output[0] = output;
    }
    Some(())
}

/// A node between an input of the graph and one that reads it.
fn prepend(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let graph = graph(case)?;
    forget_outputs(graph);
    let inputs: Vec<String> = names_before(graph, 0);
    if inputs.is_empty() || graph.node.is_empty() {
        return None;
    }
    let name = format!("prepended_{}", graph.node.len());
    let new = a_node(rng, &inputs, &name);
    let at = rng.below(graph.node.len());
    let slot = graph.node[at].input.iter_mut().find(|i| **i == new.input[0])?;
    *slot = name;
    graph.node.insert(0, new);
    Some(())
}

/// A value inside becomes an output, or an input one that is passed on.
fn show(rng: &mut Rng, case: &mut Case) -> Option<()> {
    let graph = graph(case)?;
    let count = graph.node.len();
    let mut names = names_before(graph, count);
    names.retain(|n| graph.output.iter().all(|o| o.name != *n));
    if names.is_empty() {
        return None;
    }
    graph.output.push(ValueInfoProto::new(rng.pick(&names).clone(), None));
    Some(())
}
