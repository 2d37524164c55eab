//! What the importer does with functions of the model, and with what it does not understand.
use super::{graph, model, node, read, subgraph};
use crate::{
    error::Error,
    onnx::{import, proto::*},
};
use numrsc_ir::{DType, Func, Tensor, eval};

fn import_model(m: &ModelProto) -> Result<Func, Vec<String>> {
    let model = read(m).expect("a well-formed model");
    import::import(&model, &import::Options::default()).map_err(|e| match e {
        Error::Model { problems, .. } => problems.iter().map(ToString::to_string).collect(),
        other => panic!("{other}"),
    })
}

fn attribute(name: &str, reference: &str) -> AttributeProto {
    let r#type = Some(AttributeType::Float as i32);
    AttributeProto { name: name.into(), ref_attr_name: reference.into(), r#type, ..Default::default() }
}

/// `Bounded(x, low) = LeakyRelu<alpha = slope>(Clip(x, low))` in the domain `mine`.
fn with_function(mut m: ModelProto) -> ModelProto {
    let opset = |domain: &str, version| OperatorSetIdProto { domain: domain.into(), version };
    let mut relu = node("LeakyRelu", &["c"], &["y"]);
    relu.attribute.push(attribute("alpha", "slope"));
    m.opset_import.push(opset("mine", 1));
    m.functions.push(FunctionProto {
        name: "Bounded".into(),
        domain: "mine".into(),
        input: vec!["x".into(), "low".into()],
        output: vec!["y".into()],
        attribute: vec!["slope".into()],
        node: vec![node("Clip", &["x", "low"], &["c"]), relu],
        opset_import: vec![opset("", 18)],
        ..Default::default()
    });
    m
}

fn call(inputs: &[&str], slope: Option<f32>) -> NodeProto {
    let mut call = node("Bounded", inputs, &["y"]);
    call.domain = "mine".into();
    call.attribute.extend(slope.map(|f| AttributeProto { f: Some(f), ..attribute("slope", "") }));
    call
}

#[test]
fn a_function_takes_attributes_of_the_call_and_inputs_that_may_be_absent() {
    let run = |inputs: &[&str], slope: Option<f32>| {
        let m = with_function(model(graph(&["x"], vec![call(inputs, slope)], &["y"])));
        let func = import_model(&m).unwrap();
        let x = Tensor::from_f32(&[2], &[-4.0, 4.0]);
        eval(&func, &[x.into()]).unwrap()[0].as_tensor().unwrap().to_f64s()
    };
    assert_eq!(run(&["x"], Some(0.5)), [-2.0, 4.0]);
    assert_eq!(run(&["x", ""], Some(0.25)), [-1.0, 4.0]);
    let default = run(&["x"], None);
    assert!((default[0] + 0.04).abs() < 1e-6, "LeakyRelu's own default: {default:?}");
}

/// Not the division that it also could be.
#[test]
fn hard_swish_is_what_onnx_expands_it_to() {
    let run = |nodes: Vec<NodeProto>| {
        let func = import_model(&model(graph(&["x"], nodes, &["y"]))).unwrap();
        let x: Vec<f32> = (0..4096).map(|i| i as f32 / 512.0 - 4.0).collect();
        x.chunks(2)
            .flat_map(|x| {
                let results = eval(&func, &[Tensor::from_f32(&[2], x).into()]).unwrap();
                results[0].as_tensor().unwrap().to_f64s()
            })
            .collect::<Vec<f64>>()
    };
    let mut ramp = node("HardSigmoid", &["x"], &["r"]);
    ramp.attribute.push(AttributeProto { f: Some(1.0 / 6.0), ..attribute("alpha", "") });
    let expanded = run(vec![ramp, node("Mul", &["x", "r"], &["y"])]);
    assert_eq!(run(vec![node("HardSwish", &["x"], &["y"])]), expanded);
}

#[test]
fn all_problems_are_reported_at_once() {
    let mut strange = node("Relu", &["x"], &["a"]);
    strange.attribute.push(AttributeProto { f: Some(1.0), ..attribute("colour", "") });
    let nodes = vec![
        strange,
        node("NoSuchOperator", &["a"], &["b"]),
        node("Mish", &["b"], &["c"]),
        node("Gelu", &["x"], &["d"]),
        node("Add", &["x"], &["e"]),
        node("Add", &["x", "x", "x"], &["f"]),
        node("relu", &["x"], &["y"]),
    ];
    let problems = import_model(&model(graph(&["x"], nodes, &["y"]))).unwrap_err();
    let expected = [
        "main, node #0 (Relu, opset 18): attribute `colour` is not supported",
        "main, node #1 (NoSuchOperator, opset 18): the operator is not supported",
        "main, node #3 (Gelu, opset 18): the operator exists from opset 20 on, the model imports 18",
        "main, node #4 (Add, opset 18): input `b` is missing",
        "main, node #5 (Add, opset 18): 3 inputs are given, 2 are supported",
        "main, node #6 (relu, opset 18): the operator is not supported",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn problems_inside_branches_say_where() {
    let branch = |op: &str| graph(&[], vec![node(op, &["x"], &["r"])], &["r"]);
    let mut choose = node("If", &["c"], &["y"]);
    choose.name = "choose".into();
    choose.attribute = vec![subgraph("then_branch", branch("Nope")), subgraph("else_branch", branch("Neither"))];
    let mut g = graph(&["x"], vec![node("ReduceMax", &["x"], &["m"]), node("IsNaN", &["m"], &["c"]), choose], &["y"]);
    g.output[0].r#type = None;
    let problems = import_model(&model(g)).unwrap_err();
    let expected = [
        "main/#2 choose.then_branch, node #0 (Nope, opset 18): the operator is not supported",
        "main/#2 choose.else_branch, node #0 (Neither, opset 18): the operator is not supported",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn an_opset_newer_than_known_is_refused() {
    let mut m = model(graph(&["x"], vec![node("Relu", &["x"], &["y"])], &["y"]));
    m.opset_import[0].version = 99;
    let problems = import_model(&m).unwrap_err();
    assert_eq!(problems, ["opset 99 of ai.onnx is newer than 28, the newest supported"]);
}

/// `Cast` rounds to 16 bits, but a product of such numbers is rounded to its type only if every rounding is wanted.
#[test]
fn conversions_of_the_model_round() {
    let cast = |from: &str, to: &str, dtype: DType| {
        let i = Some(i64::from(dtype.onnx()));
        let attribute = AttributeProto { i, r#type: Some(AttributeType::Int as i32), ..attribute("to", "") };
        NodeProto { attribute: vec![attribute], ..node("Cast", &[from], &[to]) }
    };
    for (half, third) in [(DType::F16, 0.333_251_953_125), (DType::BF16, 0.333_984_375)] {
        let nodes = vec![cast("x", "h", half), node("Mul", &["h", "h"], &["p"]), cast("p", "y", DType::F32)];
        let func = import_model(&model(graph(&["x"], nodes, &["y"]))).unwrap();
        let square = |tolerance: f64| {
            let cx = numrsc_passes::Context::new(numrsc_ir::Machine::AVX2).with(|o| o.tolerance = tolerance);
            let func = numrsc_passes::half_to_f32(&func, &cx).unwrap();
            let x = Tensor::from_f32(&[2], &[1.0 / 3.0, 1e9]);
            eval(&func, &[x.into()]).unwrap()[0].as_tensor().unwrap().to_f64s()
        };
        assert_eq!(square(1e-6)[0], third * third);
        assert_eq!(square(0.0)[0], half.round(third * third));
        assert_eq!(square(1e-6)[1].is_infinite(), half == DType::F16);
    }
}
