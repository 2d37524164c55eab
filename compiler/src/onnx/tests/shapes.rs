//! Shape arithmetic: named dimensions survive from inputs to outputs, and bounds mean the same whether they are
//! constants, symbolic, or values of run time.
use super::{model, node, read};
use crate::onnx::{import, proto::*};
use numrsc_ir::{Data, Func, Tensor, eval};

const F32: i32 = 1;
const I64: i32 = 7;

/// An input; a dimension is a number or a name.
fn input(name: &str, elem_type: i32, dims: &[&str]) -> ValueInfoProto {
    let dim = |d: &&str| match d.parse() {
        Ok(n) => DimensionValue::Value(n),
        Err(_) => DimensionValue::Param((*d).into()),
    };
    let dim = dims.iter().map(|d| Dimension::from(dim(d))).collect();
    let tensor = TensorType { elem_type, shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto::new(name, Some(TypeProto::from(TypeValue::Tensor(tensor))))
}

fn with(mut node: NodeProto, attributes: Vec<AttributeProto>) -> NodeProto {
    node.attribute.extend(attributes);
    node
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: Some(AttributeType::Int as i32), i: Some(i), ..Default::default() }
}

fn ints(name: &str, v: &[i64]) -> AttributeProto {
    let v = v.to_vec();
    AttributeProto { name: name.into(), r#type: Some(AttributeType::Ints as i32), ints: v, ..Default::default() }
}

fn text(name: &str, s: &str) -> AttributeProto {
    let s = Some(s.as_bytes().to_vec().into());
    AttributeProto { name: name.into(), r#type: Some(AttributeType::String as i32), s, ..Default::default() }
}

/// A constant vector.
fn vector(name: &str, v: &[i64]) -> NodeProto {
    with(node("Constant", &[], &[name]), vec![ints("value_ints", v)])
}

/// A constant scalar.
fn scalar(name: &str, i: i64) -> NodeProto {
    with(node("Constant", &[], &[name]), vec![int("value_int", i)])
}

fn build(inputs: Vec<ValueInfoProto>, nodes: Vec<NodeProto>, outputs: &[&str]) -> Func {
    let output = |name: &&str| ValueInfoProto::new(*name, None);
    let graph =
        GraphProto { input: inputs, node: nodes, output: outputs.iter().map(output).collect(), ..Default::default() };
    let model = read(&model(graph)).expect("a well-formed model");
    import::import(&model, &import::Options::default()).expect("a model that can be imported")
}

/// The type of the only output.
fn ty(inputs: Vec<ValueInfoProto>, nodes: Vec<NodeProto>) -> String {
    let func = build(inputs, nodes, &["y"]);
    func.ty(func.results()[0]).to_string()
}

fn run(func: &Func, args: &[Tensor]) -> Result<Tensor, String> {
    let args: Vec<Data> = args.iter().cloned().map(Data::from).collect();
    let results = eval(func, &args).map_err(|e| e.to_string())?;
    results[0].as_tensor().cloned()
}

fn hidden() -> ValueInfoProto {
    input("x", F32, &["batch", "seq", "768"])
}

/// `n{axis}`: one size of `x`, as exporters take it.
fn sizes(axes: &[i64]) -> Vec<NodeProto> {
    let mut nodes = vec![node("Shape", &["x"], &["shape"]), vector("zero", &[0])];
    for a in axes {
        nodes.push(scalar(&format!("i{a}"), *a));
        nodes.push(node("Gather", &["shape", &format!("i{a}")], &[&format!("s{a}")]));
        nodes.push(node("Unsqueeze", &[&format!("s{a}"), "zero"], &[&format!("n{a}")]));
    }
    nodes
}

#[test]
fn reshape_copies_and_infers() {
    let reshape = |v: &[i64]| ty(vec![hidden()], vec![vector("s", v), node("Reshape", &["x", "s"], &["y"])]);
    assert_eq!(reshape(&[0, 0, 12, 64]), "f32[batch, seq, 12, 64]");
    assert_eq!(reshape(&[0, -1, 12, 64]), "f32[batch, seq, 12, 64]");
    assert_eq!(reshape(&[0, -1]), "f32[batch, 768*seq]");
    assert_eq!(reshape(&[-1, 64]), "f32[12*batch*seq, 64]");
    assert_eq!(reshape(&[-1]), "f32[768*batch*seq]");
}

#[test]
fn reshape_by_gathered_sizes() {
    let concat = |parts: &[&str]| with(node("Concat", parts, &["s"]), vec![int("axis", 0)]);
    let reshape = |parts: &[&str]| {
        let mut nodes = sizes(&[0, 1, 2]);
        nodes.extend([vector("minus", &[-1]), vector("heads", &[12]), vector("width", &[64])]);
        nodes.extend([concat(parts), node("Reshape", &["x", "s"], &["y"])]);
        ty(vec![hidden()], nodes)
    };
    assert_eq!(reshape(&["n0", "n1", "heads", "width"]), "f32[batch, seq, 12, 64]");
    assert_eq!(reshape(&["n0", "n1", "heads", "minus"]), "f32[batch, seq, 12, 64]");
    assert_eq!(reshape(&["n0", "minus", "n2"]), "f32[batch, seq, 768]");
    assert_eq!(reshape(&["minus", "n2"]), "f32[batch*seq, 768]");
}

#[test]
fn sizes_computed_by_arithmetic() {
    // [batch, seq * 768 / 64, 64], with the middle computed in scalars.
    let mut nodes = sizes(&[0]);
    nodes.extend([scalar("one", 1), node("Gather", &["shape", "one"], &["seq"]), scalar("width", 64)]);
    nodes.extend([scalar("two", 2), node("Gather", &["shape", "two"], &["last"])]);
    nodes.extend([node("Mul", &["seq", "last"], &["m"]), node("Div", &["m", "width"], &["d"])]);
    nodes.extend([node("Unsqueeze", &["d", "zero"], &["n"]), node("Unsqueeze", &["width", "zero"], &["w"])]);
    nodes.push(with(node("Concat", &["n0", "n", "w"], &["s"]), vec![int("axis", 0)]));
    nodes.push(node("Reshape", &["x", "s"], &["y"]));
    assert_eq!(ty(vec![hidden()], nodes), "f32[batch, 12*seq, 64]");
}

#[test]
fn expand_in_the_way_of_torch() {
    // expand(batch, -1, seq): Where(s == -1, 1, s) over ConstantOfShape(Shape(s)).
    let mut nodes = sizes(&[0, 1]);
    nodes.extend([vector("one", &[1]), vector("minus", &[-1])]);
    nodes.push(with(node("Concat", &["n0", "minus", "n1"], &["s"]), vec![int("axis", 0)]));
    nodes.push(node("Shape", &["s"], &["len"]));
    let one = TensorProto { dims: vec![1], data_type: I64, int64_data: vec![1], ..Default::default() };
    let value = AttributeProto {
        name: "value".into(),
        r#type: Some(AttributeType::Tensor as i32),
        t: Some(Box::new(one)),
        ..Default::default()
    };
    nodes.push(with(node("ConstantOfShape", &["len"], &["ones"]), vec![value]));
    nodes.push(node("Mul", &["ones", "minus"], &["minuses"]));
    nodes.push(node("Equal", &["s", "minuses"], &["keep"]));
    nodes.push(node("Where", &["keep", "ones", "s"], &["t"]));
    nodes.push(node("Expand", &["m", "t"], &["y"]));
    assert_eq!(ty(vec![hidden(), input("m", F32, &["1", "5", "1"])], nodes), "f32[batch, 5, seq]");
}

#[test]
fn filled_and_counted() {
    let mut nodes = sizes(&[0, 1]);
    nodes.push(with(node("Concat", &["n1", "n1"], &["s"]), vec![int("axis", 0)]));
    nodes.push(node("ConstantOfShape", &["s"], &["ones"]));
    nodes.push(node("Trilu", &["ones"], &["y"]));
    assert_eq!(ty(vec![hidden()], nodes), "f32[seq, seq]");

    let mut nodes = sizes(&[1]);
    nodes.extend([scalar("from", 0), scalar("by", 1), node("Range", &["from", "s1", "by"], &["y"])]);
    assert_eq!(ty(vec![hidden()], nodes), "i64[seq]");

    let mut nodes = sizes(&[]);
    nodes.push(with(node("Shape", &["x"], &["s"]), vec![int("start", 0), int("end", -1)]));
    nodes.push(node("ConstantOfShape", &["s"], &["y"]));
    assert_eq!(ty(vec![hidden()], nodes), "f32[batch, seq]");

    // Old exporters count with NonZero over ones.
    let mut nodes = sizes(&[1]);
    let one = TensorProto { dims: vec![1], data_type: I64, int64_data: vec![1], ..Default::default() };
    let value = AttributeProto {
        name: "value".into(),
        r#type: Some(AttributeType::Tensor as i32),
        t: Some(Box::new(one)),
        ..Default::default()
    };
    nodes.push(with(node("ConstantOfShape", &["n1"], &["ones"]), vec![value]));
    nodes.extend([node("NonZero", &["ones"], &["i"]), node("Transpose", &["i"], &["t"]), vector("one", &[1])]);
    nodes.push(node("Squeeze", &["t", "one"], &["y"]));
    assert_eq!(ty(vec![hidden()], nodes), "i64[seq]");
}

#[test]
fn slices_keep_names() {
    let slice = |start: i64, end: i64, step: i64| {
        let nodes = vec![
            vector("starts", &[start]),
            vector("ends", &[end]),
            vector("axes", &[1]),
            vector("steps", &[step]),
            node("Slice", &["x", "starts", "ends", "axes", "steps"], &["y"]),
        ];
        ty(vec![input("x", F32, &["batch", "seq"])], nodes)
    };
    assert_eq!(slice(0, i64::MAX, 1), "f32[batch, seq]");
    assert_eq!(slice(1, i64::MAX, 1), "f32[batch, max(0, seq - 1)]");
    assert_eq!(slice(0, -1, 1), "f32[batch, max(0, seq - 1)]");
    assert_eq!(slice(-1, i64::MAX, 1), "f32[batch, min(1, seq)]");
    assert_eq!(slice(0, 10, 1), "f32[batch, min(10, seq)]");
    assert_eq!(slice(-1, i64::MIN, -1), "f32[batch, seq]");
    assert_eq!(slice(0, i64::MAX, 2), "f32[batch, -floordiv(-seq, 2)]");
}

#[test]
fn slices_by_other_sizes() {
    // The mask of decoders with a cache, mask[:, past : past + seq, : past + seq], added to the scores.
    let mut nodes = sizes(&[1]);
    nodes.extend([node("Shape", &["past"], &["ps"]), vector("one", &[1]), node("Gather", &["ps", "one"], &["p"])]);
    nodes.extend([node("Add", &["p", "n1"], &["total"]), node("Sub", &["total", "n1"], &["from"])]);
    nodes.push(node("Slice", &["mask", "from", "total", "one"], &["rows"]));
    nodes.extend([vector("two", &[2]), node("Slice", &["rows", "zero", "total", "two"], &["z"])]);
    nodes.push(with(node("Concat", &["k", "past"], &["keys"]), vec![int("axis", 1)]));
    nodes.extend([node("Unsqueeze", &["k", "two"], &["q"]), node("Unsqueeze", &["keys", "one"], &["kt"])]);
    nodes.extend([node("Mul", &["q", "kt"], &["scores"]), node("Add", &["scores", "z"], &["y"])]);
    let inputs = || {
        let mask = input("mask", F32, &["1", "1024", "1024"]);
        vec![hidden(), input("k", F32, &["batch", "seq"]), input("past", F32, &["batch", "past"]), mask]
    };
    let func = build(inputs(), nodes, &["z", "y"]);
    let types: Vec<String> = func.results().iter().map(|r| func.ty(*r).to_string()).collect();
    assert_eq!(types[0], "f32[1, max(0, min(1024, seq + past) - past), min(1024, seq + past)]");
    assert_eq!(types[1], "f32[batch, seq, seq + past]");
}

#[test]
fn splits_of_named_dimensions() {
    let x = || input("x", F32, &["batch", "seq"]);
    let split = |n: i64| with(node("Split", &["x"], &["y", "z"]), vec![int("axis", 1), int("num_outputs", n)]);
    let func = build(vec![x()], vec![split(2)], &["y", "z"]);
    let types: Vec<String> = func.results().iter().map(|r| func.ty(*r).to_string()).collect();
    assert_eq!(types, ["f32[batch, -floordiv(-seq, 2)]", "f32[batch, floordiv(-seq, 2) + seq]"]);
}

/// `x[start : end : step]` of 0, 1, … n - 1, following the specification to the letter.
fn sliced(n: i64, start: i64, end: i64, step: i64) -> Vec<f32> {
    let wrap = |i: i64| if i < 0 { i.saturating_add(n) } else { i };
    let (start, end) = match step > 0 {
        true => (wrap(start).clamp(0, n), wrap(end).clamp(0, n)),
        false if n == 0 => return vec![],
        false => (wrap(start).clamp(0, n - 1), wrap(end).clamp(-1, n - 1)),
    };
    let (mut at, mut found) = (i128::from(start), vec![]);
    while if step > 0 { at < end.into() } else { at > end.into() } {
        found.push(at as f32);
        at += i128::from(step);
    }
    found
}

#[test]
fn slices_are_right_for_all_bounds() {
    let bounds: Vec<i64> = (-5..=5).chain([i64::MIN, i64::MAX, -(1 << 31), (1 << 31) - 1]).collect();
    let steps = [-3, -2, -1, 1, 2, 3, i64::MIN, i64::MAX];
    let slice = || node("Slice", &["x", "starts", "ends", "axes", "steps"], &["y"]);
    let bound = |name: &str| input(name, I64, &["1"]);
    let all = ["starts", "ends", "axes", "steps"].map(bound).to_vec();
    let run_time = build([vec![input("x", F32, &["n"])], all].concat(), vec![slice()], &["y"]);
    for &step in &steps {
        let run_time_bounds = build(
            vec![input("x", F32, &["n"]), bound("starts"), bound("ends")],
            vec![vector("axes", &[0]), vector("steps", &[step]), slice()],
            &["y"],
        );
        for (&start, &end) in bounds.iter().flat_map(|s| bounds.iter().map(move |e| (s, e))) {
            let constants = || {
                vec![
                    vector("starts", &[start]),
                    vector("ends", &[end]),
                    vector("axes", &[-1]),
                    vector("steps", &[step]),
                ]
            };
            let symbolic = build(vec![input("x", F32, &["n"])], [constants(), vec![slice()]].concat(), &["y"]);
            for n in 0..=4 {
                let want = sliced(n, start, end, step);
                let want = Tensor::from_f32(&[want.len()], &want);
                let x = Tensor::from_f32(&[n as usize], &(0..n).map(|i| i as f32).collect::<Vec<_>>());
                let one = |i: i64| Tensor::from_i64(&[1], &[i]);
                let (s, e) = (one(start), one(end));
                let case = format!("0..{n} [{start}:{end}:{step}]");
                assert_eq!(run(&symbolic, std::slice::from_ref(&x)), Ok(want.clone()), "symbolic {case}");
                assert_eq!(
                    run(&run_time_bounds, &[x.clone(), s.clone(), e.clone()]),
                    Ok(want.clone()),
                    "bounds {case}"
                );
                assert_eq!(run(&run_time, &[x, s, e, one(-1), one(step)]), Ok(want), "run time {case}");
            }
        }
    }
}

#[test]
fn pads_are_right_for_all_modes() {
    // Element i of a padded 0..n, or -1 for what is new.
    fn padded(mode: &str, i: i64, n: i64) -> f32 {
        let inside = (0..n).contains(&i);
        (match mode {
            "constant" => {
                if inside {
                    i
                } else {
                    -1
                }
            }
            "edge" => i.clamp(0, n - 1),
            "wrap" => i.rem_euclid(n),
            _ if n == 1 => 0,
            _ => {
                let at = i.rem_euclid(2 * (n - 1));
                at.min(2 * (n - 1) - at)
            }
        }) as f32
    }
    for mode in ["constant", "edge", "wrap", "reflect"] {
        let pad = |inputs: &[&str]| with(node("Pad", inputs, &["y"]), vec![text("mode", mode)]);
        let fixed_axes = build(
            vec![input("x", F32, &["2", "n"]), input("pads", I64, &["4"]), input("v", F32, &[])],
            vec![pad(&["x", "pads", "v"])],
            &["y"],
        );
        let free_axes = build(
            vec![
                input("x", F32, &["2", "n"]),
                input("pads", I64, &["2"]),
                input("v", F32, &[]),
                input("axes", I64, &["1"]),
            ],
            vec![pad(&["x", "pads", "v", "axes"])],
            &["y"],
        );
        for (n, low, high) in (1..=4).flat_map(|n| (-1..=6).flat_map(move |l| (-1..=6).map(move |h| (n, l, h)))) {
            let (crop, kept) = (low.min(0), n + low.min(0) + high.min(0));
            if kept < 1 {
                continue;
            }
            let x: Vec<f32> = (0..2 * n).map(|i| (i % n + 100 * (i / n)) as f32).collect();
            let x = Tensor::from_f32(&[2, n as usize], &x);
            let row: Vec<f32> = (0..n + low + high)
                .map(|i| padded(mode, i - low.max(0), kept))
                .map(|at| if at < 0.0 { at } else { at - crop as f32 })
                .collect();
            let both: Vec<f32> =
                row.iter().copied().chain(row.iter().map(|&at| if at < 0.0 { at } else { at + 100.0 })).collect();
            let want = Tensor::from_f32(&[2, row.len()], &both);
            let value = Tensor::from_f32(&[], &[-1.0]);
            let case = format!("{mode} {n} by {low} and {high}");
            let pads = Tensor::from_i64(&[4], &[0, low, 0, high]);
            assert_eq!(run(&fixed_axes, &[x.clone(), pads, value.clone()]), Ok(want.clone()), "{case}");
            let (pads, axes) = (Tensor::from_i64(&[2], &[low, high]), Tensor::from_i64(&[1], &[-1]));
            assert_eq!(run(&free_axes, &[x, pads, value, axes]), Ok(want), "run-time axes, {case}");
        }
    }
}

#[test]
fn axes_of_run_time() {
    let x = || Tensor::from_f32(&[1, 3, 1, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let inputs = || vec![input("x", F32, &["a", "b", "c", "d"]), input("axes", I64, &["2"])];
    let axes = |v: [i64; 2]| Tensor::from_i64(&[2], &v);
    let squeeze = build(inputs(), vec![node("Squeeze", &["x", "axes"], &["y"])], &["y"]);
    for order in [[0, 2], [2, 0], [-2, -4]] {
        assert_eq!(run(&squeeze, &[x(), axes(order)]).map(|t| t.shape().to_vec()), Ok(vec![3, 2]));
    }
    assert!(run(&squeeze, &[x(), axes([0, 1])]).is_err());
    let unsqueeze = build(inputs(), vec![node("Unsqueeze", &["x", "axes"], &["y"])], &["y"]);
    for (order, shape) in [([0, 3], [1, 1, 3, 1, 1, 2]), ([-1, 0], [1, 1, 3, 1, 2, 1]), ([1, 2], [1, 1, 1, 3, 1, 2])] {
        assert_eq!(run(&unsqueeze, &[x(), axes(order)]).map(|t| t.shape().to_vec()), Ok(shape.to_vec()));
    }
}

#[test]
fn reshapes_of_run_time() {
    let func = build(
        vec![input("x", F32, &["a", "b"]), input("s", I64, &["3"])],
        vec![node("Reshape", &["x", "s"], &["y"])],
        &["y"],
    );
    let x = Tensor::from_f32(&[2, 6], &[0.0; 12]);
    for (v, shape) in [([0, 3, 2], [2, 3, 2]), ([3, -1, 2], [3, 2, 2]), ([-1, 0, 1], [2, 6, 1]), ([4, 3, 1], [4, 3, 1])]
    {
        let got = run(&func, &[x.clone(), Tensor::from_i64(&[3], &v)]);
        assert_eq!(got.map(|t| t.shape().to_vec()), Ok(shape.to_vec()), "{v:?}");
    }
    for v in [[5, 2, 1], [-1, -1, 2], [-2, 6, -1]] {
        assert!(run(&func, &[x.clone(), Tensor::from_i64(&[3], &v)]).is_err(), "{v:?}");
    }
}
