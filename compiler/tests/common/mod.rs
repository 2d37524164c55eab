//! What tests of the command share: calling it, and small models.
#![allow(dead_code, reason = "every test program uses a part of it")]
pub(crate) mod browser;

use bytes::Bytes;
use numrsc::onnx::proto::{
    AttributeProto, AttributeType, Dimension, DimensionValue, ElementType, GraphProto, MapType, ModelProto, NodeProto,
    OperatorSetIdProto, TensorProto, TensorShapeProto, TensorType, TypeProto, TypeValue, ValueInfoProto,
};
use prost::Message;
use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A folder to work in, which also holds the cache, so that tests neither see nor fill the user's.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_numrsc"));
        command.args(args).current_dir(self.0.path()).env("XDG_CACHE_HOME", self.path("cache"));
        command
    }

    pub(crate) fn numrsc(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// As [`Place::numrsc`], for what has to succeed.
    pub(crate) fn succeed(&self, args: &[&str]) -> String {
        let output = self.numrsc(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// The names of all files but the cache.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "cache");
        names.sort();
        names
    }
}

pub(crate) fn stdout(o: &Output) -> String {
    String::from_utf8(o.stdout.clone()).unwrap()
}

pub(crate) fn stderr(o: &Output) -> String {
    String::from_utf8(o.stderr.clone()).unwrap()
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Where real models are.
pub(crate) fn corpus() -> PathBuf {
    std::env::var_os("NUMRSC_CORPUS").map_or_else(|| root().join("target/corpus"), PathBuf::from)
}

/// A part of the corpus, or of it what these names stand for.
fn fetch(part: &str, names: &[&str]) {
    let script = root().join("tests/corpus/fetch.py");
    assert!(Command::new("python3").arg(script).arg(part).args(names).status().unwrap().success());
}

/// The folder of real models, which has these.
pub(crate) fn models(names: &[&str]) -> PathBuf {
    fetch("models", names);
    corpus().join("models")
}

/// The folder of ONNX's tests of operators.
pub(crate) fn operators() -> PathBuf {
    fetch("suite", &[]);
    corpus().join("onnx-suite/node")
}

pub(crate) fn sample(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/numrs").join(name);
    path.to_str().unwrap().to_string()
}

const F32: i32 = 1;
const STRING: i32 = 8;

/// `y = relu(x) * scale` for `x: f32[batch, 3]`.
pub(crate) fn symbolic_model() -> Vec<u8> {
    let nodes = vec![node("Relu", &["x"], "r"), node("Mul", &["r", "scale"], "y")];
    model(
        &[DimensionValue::Param("batch".into()), DimensionValue::Value(3)],
        nodes,
        "scale",
        f32s(&[3], &[1.0, 10.0, 100.0]),
    )
}

/// Takes as long as `x: f32[]` times itself is at least itself, which is for ever where it is 0.
pub(crate) fn endless_model() -> Vec<u8> {
    let output = |name: &str| ValueInfoProto::new(name, None);
    let scalar = |name: &str, elem_type| {
        let tensor = TensorType { elem_type, shape: Some(TensorShapeProto::default()) };
        ValueInfoProto::new(name, Some(TypeProto::from(TypeValue::Tensor(tensor))))
    };
    let body = GraphProto {
        name: "body".into(),
        node: vec![node("Mul", &["state", "state"], "next"), node("GreaterOrEqual", &["next", "state"], "more")],
        input: vec![scalar("round", 7), scalar("go", 9), scalar("state", F32)],
        output: vec![output("more"), output("next")],
        ..GraphProto::default()
    };
    let mut repeat = node("Loop", &["", "true", "x"], "y");
    repeat.attribute = vec![AttributeProto {
        name: "body".into(),
        r#type: Some(AttributeType::Graph as i32),
        g: Some(Box::new(body)),
        ..AttributeProto::default()
    }];
    let truth = TensorProto { data_type: 9, int32_data: vec![1], ..TensorProto::default() };
    model(&[], vec![repeat], "true", truth)
}

/// `y = reshape(relu(x), [2, 6])` for `x: f32[batch, 3]`, with names for the nodes.
pub(crate) fn reshape_model() -> Vec<u8> {
    let relu = NodeProto { name: "first".into(), ..node("Relu", &["x"], "r") };
    let reshape = NodeProto { name: "to/pairs".into(), ..node("Reshape", &["r", "shape"], "y") };
    let shape = TensorProto { dims: vec![2], data_type: 7, int64_data: vec![2, 6], ..TensorProto::default() };
    model(&[DimensionValue::Param("batch".into()), DimensionValue::Value(3)], vec![relu, reshape], "shape", shape)
}

/// A 3x3 convolution of `x: f32[1, 32, 24, 24]` to as many channels.
pub(crate) fn convolution_model() -> Vec<u8> {
    convolution_of(DimensionValue::Value(1))
}

/// The same of any number of images, a dimension whose name has to be shown by another.
pub(crate) fn open_convolution_model() -> Vec<u8> {
    convolution_of(DimensionValue::Param("images.0".into()))
}

/// Scores of two classes as exporters of classifiers give them: `y = ZipMap(x * scale)` for `x: f32[batch, 2]`.
pub(crate) fn labelled_model() -> Vec<u8> {
    let labels = AttributeProto {
        name: "classlabels_strings".into(),
        r#type: Some(AttributeType::Strings as i32),
        strings: vec![Bytes::from("cat"), Bytes::from("dog")],
        ..AttributeProto::default()
    };
    let zip = NodeProto { domain: "ai.onnx.ml".into(), attribute: vec![labels], ..node("ZipMap", &["s"], "y") };
    let sizes = [DimensionValue::Param("batch".into()), DimensionValue::Value(2)];
    let scale = f32s(&[2], &[1.0, 0.5]);
    let bytes = model(&sizes, vec![node("Mul", &["x", "scale"], "s"), zip], "scale", scale);
    let mut model = ModelProto::decode(&bytes[..]).unwrap();
    model.opset_import.push(OperatorSetIdProto { domain: "ai.onnx.ml".into(), version: 1 });
    let of = |value: TypeValue| Some(Box::new(TypeProto::from(value)));
    let score = of(TypeValue::Tensor(TensorType { elem_type: F32, shape: Some(TensorShapeProto::default()) }));
    let map = of(TypeValue::Map(MapType { key_type: STRING, value_type: score }));
    model.graph.as_mut().unwrap().output[0].r#type =
        Some(TypeProto::from(TypeValue::Sequence(ElementType { elem_type: map })));
    model.encode_to_vec()
}

fn convolution_of(images: DimensionValue) -> Vec<u8> {
    let weights: Vec<f32> = (0..32 * 32 * 9).map(|i| (i * 37 % 101) as f32 / 101.0 - 0.5).collect();
    let [channels, height, width] = [32, 24, 24].map(DimensionValue::Value);
    let sizes = [images, channels, height, width];
    model(&sizes, vec![node("Conv", &["x", "w"], "y")], "w", f32s(&[32, 32, 3, 3], &weights))
}

fn node(op: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: op.into(),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: vec![output.into()],
        ..NodeProto::default()
    }
}

/// From `x` of these sizes to `y`, with one constant.
fn model(sizes: &[DimensionValue], node: Vec<NodeProto>, name: &str, constant: TensorProto) -> Vec<u8> {
    let value = |name: &str, sizes: Option<&[DimensionValue]>| {
        let dims = |sizes: &[DimensionValue]| sizes.iter().map(|size| Dimension::from(size.clone())).collect();
        let ty = TensorType { elem_type: F32, shape: sizes.map(|sizes| TensorShapeProto { dim: dims(sizes) }) };
        ValueInfoProto::new(name, Some(TypeProto::from(TypeValue::Tensor(ty))))
    };
    let graph = GraphProto {
        name: "main".into(),
        node,
        initializer: vec![TensorProto { name: name.into(), ..constant }],
        input: vec![value("x", Some(sizes))],
        output: vec![value("y", None)],
        ..GraphProto::default()
    };
    let model = ModelProto {
        ir_version: Some(8),
        graph: Some(graph),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 18 }],
        ..ModelProto::default()
    };
    model.encode_to_vec()
}

pub(crate) fn f32s(dims: &[i64], values: &[f32]) -> TensorProto {
    let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    TensorProto { dims: dims.to_vec(), data_type: F32, raw_data: Bytes::from(raw), ..TensorProto::default() }
}

/// A standard test folder with that model.
pub(crate) fn write_test_folder(folder: &Path, expected: &[f32]) {
    let set = folder.join("test_data_set_0");
    std::fs::create_dir_all(&set).unwrap();
    std::fs::write(folder.join("model.onnx"), symbolic_model()).unwrap();
    std::fs::write(set.join("input_0.pb"), f32s(&[2, 3], &[1.0, -2.0, 3.0, -4.0, 5.0, 6.0]).encode_to_vec()).unwrap();
    std::fs::write(set.join("output_0.pb"), f32s(&[2, 3], expected).encode_to_vec()).unwrap();
}
