//! Models as parts of a program: a crate outside of the workspace whose build script compiles some, of fixed and of open sizes, and of floats of 16 bits.
use numrsc::{
    conformance,
    onnx::proto::{
        AttributeProto, AttributeType, Dimension, DimensionValue, GraphProto, ModelProto, NodeProto,
        OperatorSetIdProto, TensorShapeProto, TensorType, TypeProto, TypeValue, ValueInfoProto,
    },
};
use numrsc_ir::{Data, Tensor};
use numrsc_tests::{corpus, outside::Outside};
use prost::Message;
use std::{fs, path::Path, process::Command};

const MANIFEST: &str = r#"
[package]
name = "embedded"
version = "0.1.0"
edition = "2024"

[workspace]

[dependencies]
numrsc-runtime = { path = "ROOT/runtime-min" }

[build-dependencies]
numrsc = { path = "ROOT/compiler", default-features = false }
"#;

const BUILD: &str = r#"
use std::{fs::OpenOptions, io::Write};

fn main() {
    let mut log = OpenOptions::new().create(true).append(true).open("runs.log").unwrap();
    log.write_all(b"run\n").unwrap();
    numrsc::Build::new("digits.onnx").compile();
    numrsc::Build::new("models/tags.onnx").name("tagger").compile();
    numrsc::Build::new("halves.onnx").compile();
    numrsc::Build::new("classes.onnx").compile();
}
"#;

const PROGRAM: &str = r#"
use numrsc_runtime::{Array, F16, Result};
use std::{env, fs, mem::MaybeUninit};

numrsc_runtime::include_model!("digits");
numrsc_runtime::include_model!("tagger");
numrsc_runtime::include_model!("halves");
numrsc_runtime::include_model!("classes");

fn main() -> Result<()> {
    let [image, words, batch, length]: [String; 4] = env::args().skip(1).collect::<Vec<_>>().try_into().unwrap();
    let image: Vec<f32> = fs::read(image).unwrap().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let image: &[[[[f32; 28]; 28]; 1]; 1] =
        image.as_chunks::<28>().0.as_chunks::<28>().0.as_chunks::<1>().0.try_into().unwrap();
    let words: Vec<i64> = fs::read(words).unwrap().as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect();

    let mut digits = Digits::new()?;
    let digits: &[[f32; 10]; 1] = digits.run(image)?.plus214_output_0;
    // The same without an allocator.
    let mut memory = vec![MaybeUninit::uninit(); Digits::MEMORY_BYTES];
    assert_eq!(Digits::in_memory(&mut memory)?.run(image)?.plus214_output_0, digits);

    let mut tagger = Tagger::with_threads(1)?;
    let shape = [batch.parse().unwrap(), length.parse().unwrap()];
    let tags: Array<'_, f32, 3> = tagger.run(Array::new(&words, shape))?.logits;
    assert_eq!(tags.shape[..2], shape);

    let mut halves = Halves::new()?;
    let larger: &[F16; 3] = halves.run(&[1.0, 2.5, -3.0].map(F16::from_f32), &[0.5, 4.0, -0.25].map(F16::from_f32))?.result;
    assert_eq!(larger.map(f32::from), [1.0, 4.0, -0.25]);

    // A list of maps is a table with labels.
    let mut classes = Classes::new()?;
    let table: Array<'_, f32, 2> = classes.run(Array::new(&[0.5, 0.25], [1, 2]))?.y;
    assert_eq!((table.shape, table.data), ([1, 2], &[0.5, 0.25][..]));
    assert_eq!(ClassesOutputs::Y_LABELS, [-3i64, 7]);

    for x in digits.as_flattened().iter().chain(tags.data) {
        println!("{x}");
    }
    Ok(())
}
"#;

fn embedded(models: &Path, suite: &Path) -> Outside {
    let this = Outside::new();
    let root = corpus::root();
    let manifest = MANIFEST.replace("ROOT", &root.display().to_string());
    for folder in ["src", "models"] {
        fs::create_dir(this.path(folder)).unwrap();
    }
    for (file, text) in [("Cargo.toml", &manifest[..]), ("build.rs", BUILD), ("src/main.rs", PROGRAM)] {
        fs::write(this.path(file), text).unwrap();
    }
    // The same versions of what the compiler needs.
    fs::copy(root.join("Cargo.lock"), this.path("Cargo.lock")).unwrap();
    fs::write(this.path("classes.onnx"), labelled()).unwrap();
    fs::copy(models.join("mnist_cntk/model.onnx"), this.path("digits.onnx")).unwrap();
    fs::copy(models.join("lstm_tagger_ts/model.onnx"), this.path("models/tags.onnx")).unwrap();
    fs::copy(suite.join("node/test_max_float16/model.onnx"), this.path("halves.onnx")).unwrap();
    this
}

/// `y = ZipMap(x)` for `x: f32[rows, 2]`.
fn labelled() -> Vec<u8> {
    let labels = AttributeProto {
        name: "classlabels_int64s".into(),
        r#type: Some(AttributeType::Ints as i32),
        ints: vec![-3, 7],
        ..AttributeProto::default()
    };
    let zip = NodeProto {
        op_type: "ZipMap".into(),
        domain: "ai.onnx.ml".into(),
        input: vec!["x".into()],
        output: vec!["y".into()],
        attribute: vec![labels],
        ..NodeProto::default()
    };
    let sizes = [DimensionValue::Param("rows".into()), DimensionValue::Value(2)];
    let dim = sizes.into_iter().map(Dimension::from).collect();
    let table = TypeValue::Tensor(TensorType { elem_type: 1, shape: Some(TensorShapeProto { dim }) });
    let value = |name: &str| ValueInfoProto::new(name, Some(TypeProto::from(table.clone())));
    let graph = GraphProto {
        name: "main".into(),
        node: vec![zip],
        input: vec![value("x")],
        output: vec![value("y")],
        ..GraphProto::default()
    };
    let opset = |domain: &str, version| OperatorSetIdProto { domain: domain.into(), version };
    let opset_import = vec![opset("", 18), opset("ai.onnx.ml", 1)];
    ModelProto { ir_version: Some(8), graph: Some(graph), opset_import, ..ModelProto::default() }.encode_to_vec()
}

fn builds(of: &Outside) -> usize {
    fs::read_to_string(of.path("runs.log")).map_or(0, |log| log.lines().count())
}

fn data(models: &Path, model: &str, file: &str) -> Tensor {
    let folder = models.join(model);
    let loaded = numrsc::onnx::load(&folder.join("model.onnx")).unwrap();
    let graph = loaded.graph();
    let stored = |name: &str| graph.initializer.iter().any(|t| t.name == name);
    let port = match file {
        "input_0" => graph.input.iter().find(|i| !stored(&i.name)),
        _ => graph.output.first(),
    };
    let ty = port.unwrap().r#type.clone().unwrap();
    let data = conformance::load_data(&folder.join(format!("test_data_set_0/{file}.pb")), &ty).unwrap();
    let Data::Tensor(tensor) = data else { panic!("a tensor") };
    tensor
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.bytes().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

#[test]
fn a_crate_with_two_models() {
    let models = corpus::fetch("models").join("models");
    let this = embedded(&models, &corpus::fetch("suite").join("onnx-suite"));
    let (image, words) = (data(&models, "mnist_cntk", "input_0"), data(&models, "lstm_tagger_ts", "input_0"));
    fs::write(this.path("image"), image.bytes()).unwrap();
    fs::write(this.path("words"), words.bytes()).unwrap();
    let sizes: Vec<String> = words.shape().iter().map(ToString::to_string).collect();
    let expected =
        [floats(&data(&models, "mnist_cntk", "output_0")), floats(&data(&models, "lstm_tagger_ts", "output_0"))]
            .concat();
    let run = |profile: &[&str]| {
        let args = [&["run", "--quiet"], profile, &["--", "image", "words", &sizes[0], &sizes[1]]].concat();
        let output = this.cargo(&args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found: Vec<f32> = String::from_utf8(output.stdout).unwrap().lines().map(|l| l.parse().unwrap()).collect();
        assert_eq!(found.len(), expected.len());
        for (x, y) in found.iter().zip(&expected) {
            assert!((x - y).abs() <= 1e-4 * y.abs().max(1.0), "{x} is not {y}");
        }
    };
    run(&[]);
    assert_eq!(builds(&this), 1);
    run(&[]);
    assert_eq!(builds(&this), 1, "nothing has changed");

    // The same model with a comment: it is compiled again, once.
    let model = this.path("digits.onnx");
    let mut bytes = fs::read(&model).unwrap();
    bytes.extend([0x32, 3, b'n', b'e', b'w']); // doc_string
    fs::write(&model, bytes).unwrap();
    run(&[]);
    run(&[]);
    assert_eq!(builds(&this), 2);

    // By cargo's defaults: the compiler is not optimised then.
    run(&["--release"]);
    assert_eq!(builds(&this), 3);
    run(&["--target", &triple()]);
    assert_eq!(builds(&this), 4);

    // What is wrong with a model is an error of cargo, and says what.
    fs::write(&model, b"no model").unwrap();
    let output = this.cargo(&["build"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("digits.onnx"), "{message}");
    assert!(message.lines().any(|l| l.starts_with("error: embedded@0.1.0: ")), "{message}");
}

/// That of this machine: given by name, programs are compiled apart from build scripts, as for any other.
fn triple() -> String {
    let output = Command::new("rustc").arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|l| l.strip_prefix("host: ")).unwrap().to_owned()
}
