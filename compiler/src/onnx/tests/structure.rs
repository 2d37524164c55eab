use super::super::proto::*;
use super::{float, graph, model, node, problems, read, subgraph, value};
use std::time::{Duration, Instant};

fn named(name: &str, n: NodeProto) -> NodeProto {
    NodeProto { name: name.into(), ..n }
}

fn warnings(m: &ModelProto) -> Vec<String> {
    read(m).unwrap().warnings().iter().map(ToString::to_string).collect()
}

#[test]
fn a_sound_model_passes_with_optional_inputs_and_outputs() {
    let nodes = vec![node("A", &["x", "", "w"], &["", "a"]), node("B", &["a"], &["y", ""])];
    let mut g = graph(&["x", "w"], nodes, &["y"]);
    // An initializer may be the default of an input.
    g.initializer.push(float("w"));
    let m = read(&model(g)).unwrap();
    assert!(m.warnings().is_empty());
    assert_eq!(m.opsets().get(""), Some(&18));
    assert_eq!(m.tensor(&m.graph().initializer[0]).unwrap().to_f64s(), [1.0]);
}

#[test]
fn all_problems_are_reported_at_once_with_their_places() {
    let nodes = vec![
        named("first", node("A", &["x", "gone"], &["a"])),
        node("B", &["a"], &["a"]),
        node("", &["a"], &["x"]),
        node("C", &["w"], &["w"]),
    ];
    let mut g = graph(&["x", "x", ""], nodes, &["missing", "a", "a"]);
    g.initializer = vec![float("w"), float("w"), TensorProto { dims: vec![-1], ..float("n") }];
    g.value_info = vec![value("a", &[2, -3])];
    assert_eq!(
        problems(&model(g)),
        [
            "main: value `a` has the negative dimension -3",
            "main: tensor `n`: negative dimension in [-1]",
            "main: output `a` is listed more than once",
            "main: input `x` is defined more than once",
            "main: an input has no name",
            "main: initializer `w` is defined more than once",
            "main, node #1 (B): value `a` is defined more than once: also by node #0 `first` (A)",
            "main, node #2: value `x` is defined more than once",
            "main, node #3 (C): value `w` is defined more than once",
            "main, node #2: the node has no operator",
            "main, node #1 (B): cycle: each of these nodes needs the next: node #1 (B)",
            "main, node #0 `first` (A): value `gone` is used but nothing defines it",
            "main: output `missing` is not produced by any node",
        ]
    );
}

#[test]
fn unsorted_nodes_are_sorted_with_a_warning() {
    let nodes = vec![node("C", &["b"], &["y"]), node("A", &["x"], &["a"]), node("B", &["a"], &["b"])];
    let m = model(graph(&["x"], nodes, &["y"]));
    let ops: Vec<String> = read(&m).unwrap().graph().node.iter().map(|n| n.op_type.clone()).collect();
    assert_eq!(ops, ["A", "B", "C"]);
    assert_eq!(warnings(&m), ["main, node #0 (C): the node comes before one it depends on; nodes were sorted"]);
}

#[test]
fn inner_graphs_are_sorted_too_and_count_as_uses() {
    // The inner graph is unsorted and needs `late`, which a later node of the outer graph makes.
    let inner = graph(&[], vec![node("Q", &["p"], &["q"]), node("P", &["late"], &["p"])], &["q"]);
    let mut branch = node("If", &["x"], &["y"]);
    branch.attribute.push(subgraph("then_branch", inner));
    let m = read(&model(graph(&["x"], vec![branch, node("L", &["x"], &["late"])], &["y"]))).unwrap();
    assert_eq!(m.graph().node[0].op_type, "L");
    let inner = m.graph().node[1].attribute[0].g.as_ref().unwrap();
    assert_eq!(inner.node[0].op_type, "P");
}

#[test]
fn a_cycle_names_its_nodes() {
    let nodes = vec![
        named("one", node("A", &["x", "c"], &["a"])),
        named("two", node("B", &["a"], &["b"])),
        named("three", node("C", &["b"], &["c"])),
        named("after", node("D", &["c"], &["y"])),
    ];
    let found = problems(&model(graph(&["x"], nodes, &["y"])));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("node #0 `one` (A), node #2 `three` (C), node #1 `two` (B)"), "{found:?}");
    assert!(!found[0].contains("after"));
}

#[test]
fn inner_graphs_see_outer_values_but_not_the_other_way_round() {
    let inner = graph(&["i"], vec![node("A", &["i", "x", "nowhere"], &["inner"])], &["inner"]);
    let mut outer = named("loop", node("Loop", &["x"], &["y"]));
    outer.attribute.push(subgraph("body", inner));
    let found = problems(&model(graph(&["x"], vec![outer, node("B", &["inner"], &["z"])], &["y", "z"])));
    assert_eq!(
        found,
        [
            "main/#0 loop.body, node #0 (A): value `nowhere` is used but nothing defines it",
            "main, node #1 (B): value `inner` is used but nothing defines it",
        ]
    );
}

#[test]
fn hiding_an_outer_value_is_suspicious_only() {
    let inner = graph(&["x"], vec![node("A", &["x"], &["r"])], &["r"]);
    let mut outer = node("Loop", &["x"], &["y"]);
    outer.attribute.push(subgraph("body", inner));
    let found = warnings(&model(graph(&["x"], vec![outer], &["y"])));
    assert_eq!(found, ["main/#0 Loop.body: input `x` hides the one of a graph around it"]);
}

#[test]
fn versions_and_domains() {
    let good = model(graph(&["x"], vec![node("A", &["x"], &["y"])], &["y"]));
    for (ir_version, expected) in [(None, "no IR version"), (Some(0), "no IR version"), (Some(2), "IR version 2")] {
        let found = problems(&ModelProto { ir_version, ..good.clone() });
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    }
    assert!(warnings(&ModelProto { ir_version: Some(99), ..good.clone() })[0].contains("newer"));
    let import = |domain: &str, version| OperatorSetIdProto { domain: domain.into(), version };
    let twice = ModelProto { opset_import: vec![import("", 18), import("ai.onnx", 17)], ..good.clone() };
    assert_eq!(problems(&twice), ["domain `` is imported in versions 18 and 17"]);
    let same = ModelProto { opset_import: vec![import("", 18), import("ai.onnx", 18)], ..good.clone() };
    assert_eq!(read(&same).unwrap().opsets().len(), 1);
    let none = ModelProto { opset_import: vec![], ..good.clone() };
    assert_eq!(problems(&none), ["main, node #0 (A): no opset is imported for domain `ai.onnx`"]);
    assert_eq!(problems(&ModelProto { graph: None, ..good }), ["the model has no graph"]);
}

fn function(name: &str, calls: &[&str]) -> FunctionProto {
    let mut last = "x".to_string();
    let mut nodes = vec![];
    for (i, op) in calls.iter().enumerate() {
        let next = format!("v{i}");
        nodes.push(NodeProto { domain: "my".into(), ..node(op, &[&last], &[&next]) });
        last = next;
    }
    FunctionProto {
        name: name.into(),
        domain: "my".into(),
        input: vec!["x".into()],
        output: vec![last],
        node: nodes,
        ..Default::default()
    }
}

fn calling(functions: Vec<FunctionProto>) -> ModelProto {
    let call = NodeProto { domain: "my".into(), ..node("f", &["x"], &["y"]) };
    ModelProto { functions, ..model(graph(&["x"], vec![call], &["y"])) }
}

#[test]
fn functions_are_found_and_checked() {
    let m = read(&calling(vec![function("f", &["g"]), function("g", &[])])).unwrap();
    assert_eq!(m.function("my", "g", "").unwrap().name, "g");
    assert!(m.function("my", "g", "other").is_none() && m.function("", "g", "").is_none());
    let twice = problems(&calling(vec![function("f", &[]), function("f", &[])]));
    assert_eq!(twice, ["function my::f: the function is defined more than once"]);
    let circle = problems(&calling(vec![function("f", &["g"]), function("g", &["f"])]));
    assert_eq!(circle, ["function my::f: the function calls itself: `f` calls `g`"]);
    let mut lost = function("f", &[]);
    lost.output.push("z".into());
    lost.node.push(NodeProto {
        attribute: vec![AttributeProto { name: "a".into(), ref_attr_name: "b".into(), ..Default::default() }],
        ..node("Relu", &["x"], &["r"])
    });
    assert_eq!(
        problems(&calling(vec![lost])),
        [
            "function my::f, node #0 (Relu): no opset is imported for domain `ai.onnx`",
            "function my::f, node #0 (Relu): attribute `a` refers to `b`, which the function lacks",
            "function my::f: output `z` is not produced by any node",
        ]
    );
}

#[test]
fn functions_that_explode_are_refused() {
    let names: Vec<String> = (0..40).map(|i| if i == 0 { "f".into() } else { format!("f{i}") }).collect();
    let mut functions: Vec<_> = names.windows(2).map(|w| function(&w[0], &[&w[1], &w[1]])).collect();
    functions.push(function(&names[39], &[]));
    let found = problems(&calling(functions));
    assert!(found.len() == 1 && found[0].contains("too many"), "{found:?}");
}

#[test]
fn attributes_are_checked() {
    let attribute = |name: &str| AttributeProto { name: name.into(), i: Some(1), ..Default::default() };
    let mut n = node("A", &["x"], &["y"]);
    let reference = AttributeProto { ref_attr_name: "r".into(), ..attribute("c") };
    let empty = AttributeProto { i: None, ..attribute("d") };
    let other = AttributeProto { i: Some(2), ..attribute("a") };
    n.attribute = vec![attribute("a"), other, attribute("b"), attribute("b"), attribute(""), reference, empty];
    assert_eq!(
        problems(&model(graph(&["x"], vec![n], &["y"]))),
        [
            "main, node #0 (A): attribute `a` is given more than once, with different values",
            "main, node #0 (A): an attribute has no name",
            "main, node #0 (A): attribute `c` refers to a function, but is in none",
            "main, node #0 (A): attribute `d`: neither a type nor a value",
        ]
    );
}

#[test]
fn an_attribute_given_twice_with_one_value_is_suspicious_only() {
    let attribute = AttributeProto { name: "a".into(), i: Some(1), ..Default::default() };
    let n = NodeProto { attribute: vec![attribute.clone(), attribute], ..node("A", &["x"], &["y"]) };
    let found = warnings(&model(graph(&["x"], vec![n], &["y"])));
    assert_eq!(found, ["main, node #0 (A): attribute `a` is given more than once, with the same value"]);
}

#[test]
fn sparse_tensors_may_not_add_up_to_gigabytes() {
    let sparse = |i: usize| SparseTensorProto {
        values: Some(TensorProto { dims: vec![0], float_data: vec![], ..float(&format!("s{i}")) }),
        indices: None,
        dims: vec![8 << 20],
    };
    let mut g = graph(&["x"], vec![node("A", &["x"], &["y"])], &["y"]);
    g.sparse_initializer = vec![sparse(0)];
    assert!(problems(&model(g.clone())).is_empty());
    g.sparse_initializer = (0..100).map(sparse).collect();
    let found = problems(&model(g));
    assert!(found.len() == 1 && found[0].contains("when dense"), "{found:?}");
}

#[test]
fn large_graphs_are_checked_quickly_in_any_order() {
    let n = 10_000;
    let mut nodes: Vec<_> =
        (0..n).map(|i| node("A", &[&format!("v{i}"), &format!("v{}", i / 2)], &[&format!("v{}", i + 1)])).collect();
    nodes.reverse();
    let m = model(graph(&["v0"], nodes, &[&format!("v{n}")]));
    let start = Instant::now();
    assert_eq!(warnings(&m).len(), 1);
    // About 10 ms; the bound only has to tell linear from quadratic on a busy machine.
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[test]
fn the_list_of_problems_is_bounded() {
    let nodes = (0..5000).map(|i| node("A", &[&format!("none{i}")], &[])).collect();
    let found = problems(&model(graph(&["x"], nodes, &["x"])));
    assert_eq!(found.len(), 1001);
    assert_eq!(found[1000], "there are more, which are not listed");
}
