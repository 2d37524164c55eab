//! What exporters write besides what the standard asks for, and what is said where a model lacks something.
use super::{graph, model, node, read, value};
use crate::{
    error::{Error, Problem},
    onnx::{import, proto::*},
    sizes,
};
use numrsc_ir::{Data, Func, Tensor, eval};

fn import_with(m: &ModelProto, options: &import::Options) -> Result<Func, Vec<Problem>> {
    import::import(&read(m).expect("a well-formed model"), options).map_err(|e| match e {
        Error::Model { problems, .. } => problems,
        other => panic!("{other}"),
    })
}

fn with_opset(m: ModelProto, version: i64) -> ModelProto {
    ModelProto { opset_import: vec![OperatorSetIdProto { domain: String::new(), version }], ..m }
}

fn named(name: &str, dims: &[&str]) -> ValueInfoProto {
    let dim = dims.iter().map(|d| Dimension::from(DimensionValue::Param((*d).into()))).collect();
    let tensor = TensorType { elem_type: 1, shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto::new(name, Some(TypeProto::from(TypeValue::Tensor(tensor))))
}

fn unranked(name: &str) -> ValueInfoProto {
    let tensor = TensorType { elem_type: 1, shape: None };
    ValueInfoProto::new(name, Some(TypeProto::from(TypeValue::Tensor(tensor))))
}

/// One node on one input of shape `[2, 2, 2, 2]`, with one attribute more.
fn with_attribute(
    op: &str,
    opset: i64,
    others: Vec<AttributeProto>,
    more: AttributeProto,
) -> Result<Func, Vec<Problem>> {
    let mut n = node(op, &["x"], &["y"]);
    n.attribute = others;
    n.attribute.push(more);
    let mut g = graph(&["x"], vec![n], &["y"]);
    g.input = vec![value("x", &[2, 2, 2, 2])];
    import_with(&with_opset(model(g), opset), &import::Options::default())
}

fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { name: name.into(), ints: ints.to_vec(), ..Default::default() }
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.into(), i: Some(i), ..Default::default() }
}

#[test]
fn attributes_of_other_versions_may_have_their_defaults() {
    let kernel = || vec![ints("kernel_shape", &[2, 2])];
    let string =
        |name: &str, s: &str| AttributeProto { name: name.into(), s: Some(s.to_owned().into()), ..Default::default() };
    let float = |name: &str, f: f32| AttributeProto { name: name.into(), f: Some(f), ..Default::default() };
    // The operator's other versions have these attributes, this one does not.
    type Row = (&'static str, i64, Vec<AttributeProto>, AttributeProto, AttributeProto);
    let table: Vec<Row> = vec![
        ("LpPool", 1, kernel(), ints("dilations", &[1, 1]), ints("dilations", &[2, 1])),
        ("LpPool", 1, kernel(), int("ceil_mode", 0), int("ceil_mode", 1)),
        ("DepthToSpace", 1, vec![int("blocksize", 1)], string("mode", "DCR"), string("mode", "CRD")),
        ("Pad", 2, vec![ints("pads", &[0; 8])], float("value", 0.0), float("valeu", 0.0)),
    ];
    for (op, opset, others, default, another) in table {
        let found = with_attribute(op, opset, others.clone(), default);
        assert!(found.is_ok(), "{op}: {found:?}");
        let name = another.name.clone();
        let problems = with_attribute(op, opset, others, another).expect_err(op);
        assert!(problems[0].message.contains(&format!("`{name}`")), "{op}: {problems:?}");
    }
    // In old versions the default is to train, so it does not mean the same as none in new ones.
    assert!(with_attribute("Dropout", 10, vec![], int("is_test", 0)).is_err());
}

#[test]
fn inputs_without_a_rank_take_the_shape_that_is_given() {
    let mut g = graph(&["x"], vec![node("Softmax", &["x"], &["y"])], &["y"]);
    g.input = vec![unranked("x")];
    let m = model(g);
    let options = |shape: &str| import::Options {
        shapes: [("x".to_owned(), import::parse_shape(shape).unwrap())].into(),
        ..Default::default()
    };
    let problems = import_with(&m, &import::Options::default()).unwrap_err();
    assert_eq!(problems[0].message, "input `x`: its rank is not declared");
    assert!(problems[0].hint.as_ref().unwrap().contains("--shape x="), "{problems:?}");
    let func = import_with(&m, &options("2, batch,?")).unwrap();
    let shape = &func.ty(func.params()[0]).as_tensor().unwrap().shape;
    assert_eq!((shape.len(), shape[0].as_const()), (3, Some(2)));
    assert_eq!(import::dims(&func).into_iter().filter(|d| !d.starts_with('_')).collect::<Vec<_>>(), ["batch"]);
    let x = Data::from(Tensor::from_f32(&[2, 1, 1], &[3.0, -1.0]));
    assert_eq!(eval(&func, &[x]).unwrap()[0].as_tensor().unwrap().to_f64s(), [1.0, 1.0]);
    let fixed = import::Options { dims: [("batch".to_owned(), 4)].into(), ..options("2,batch") };
    assert_eq!(import_with(&m, &fixed).unwrap().ty(func.params()[0]).to_string(), "f32[2, 4]");
}

#[test]
fn shapes_that_fit_no_input_are_refused() {
    let m = model(graph(&["x"], vec![node("Relu", &["x"], &["y"])], &["y"]));
    let problem = |name: &str, shape: &str| {
        let shapes = [(name.to_owned(), import::parse_shape(shape).unwrap())].into();
        import_with(&m, &import::Options { shapes, ..Default::default() }).unwrap_err().remove(0)
    };
    assert_eq!(problem("z", "2").to_string(), "main: no input is called `z`, for which a shape was given");
    for shape in ["3", "n", "2,1", ""] {
        let found = problem("x", shape);
        assert!(found.message.contains("the model declares the shape 2"), "{shape}: {found}");
    }
    let shapes = [("x".to_owned(), import::parse_shape("2").unwrap())].into();
    assert!(import_with(&m, &import::Options { shapes, ..Default::default() }).is_ok());
    for text in ["-1", "2,,3", "2.5", "2;3", ","] {
        assert!(import::parse_shape(text).is_err(), "{text}");
    }
}

#[test]
fn squeezing_a_batch_names_the_size_to_give() {
    let mut g = graph(&["x"], vec![node("Squeeze", &["x"], &["y"])], &["y"]);
    g.input = vec![named("x", &["my batch", "features"])];
    let m = model(g);
    let problems = import_with(&m, &import::Options { dims: [("features".into(), 3)].into(), ..Default::default() });
    let problems = problems.unwrap_err();
    assert!(problems[0].message.contains("whether my_batch in f32[my_batch, 3] is 1"), "{problems:?}");
    assert_eq!(problems[0].hint.as_deref(), Some("give `my_batch` a size, as in --dim my_batch=4"));
    let dims = [("features".into(), 3), ("my_batch".into(), 1)].into();
    let func = import_with(&m, &import::Options { dims, ..Default::default() }).unwrap();
    assert_eq!(func.ty(func.results()[0]).to_string(), "f32[3]");
}

#[test]
fn inputs_that_disagree_about_a_size_are_told_of_distinct_dims() {
    let mut g = graph(&["x", "w"], vec![node("Relu", &["x"], &["y"]), node("Relu", &["w"], &["z"])], &["y", "z"]);
    g.input = vec![named("x", &["n"]), named("w", &["n"])];
    let m = model(g);
    let inputs = [Tensor::from_f32(&[2], &[1.0; 2]), Tensor::from_f32(&[3], &[1.0; 3])].map(Data::from);
    let said = |func: &Func| {
        let types: Vec<_> = func.params().into_iter().map(|p| func.ty(p).clone()).collect();
        let all = func.param_names.iter().zip(&types).zip(&inputs).map(|((name, ty), data)| (&name[..], ty, data));
        sizes::disagreement(all)
    };
    let func = import_with(&m, &import::Options::default()).unwrap();
    let message = said(&func).unwrap();
    assert!(message.starts_with("the size `n` is 2 in axis 0 of `x`, and 3 in axis 0 of `w`"), "{message}");
    assert!(message.contains("--distinct-dims") && eval(&func, &inputs).is_err(), "{message}");
    let apart = import_with(&m, &import::Options { distinct_dims: true, ..Default::default() }).unwrap();
    assert_eq!(said(&apart), None);
    assert!(eval(&apart, &inputs).is_ok());
}
