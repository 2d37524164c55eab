//! What is written is what was read: of all models of the ONNX suite and the corpus, and of one with all fields that there are.
use bytes::Bytes;
use numrsc::{
    conformance,
    onnx::{
        self, Format, Model,
        proto::*,
        write::{self, Options},
    },
};
use numrsc_tests::corpus;
use prost::Message;
use std::{fs, path::Path, process::Command};

/// Larger models are written with `NUMRSC_LONG=1`.
const SMALL: u64 = 4 << 20;

fn is_small(file: &Path) -> bool {
    std::env::var_os("NUMRSC_LONG").is_some() || file.metadata().is_ok_and(|about| about.len() <= SMALL)
}

/// Both ways of writing, and reading what was written.
fn round_trip(file: &Path) -> Result<(), String> {
    let Ok(model) = onnx::load(file) else { return Ok(()) };
    let text = |e: numrsc::Error| e.to_string();
    let bytes = Bytes::from(write::to_bytes(&model).map_err(text)?);
    let again = onnx::load_bytes(bytes.clone(), None).map_err(text)?;
    if model.format() == Format::Protobuf && model.missing_data().is_empty() && model.external_files().is_empty() {
        // As prost alone writes it, and nothing is lost.
        assert!(bytes == model.proto().encode_to_vec(), "{}: the bytes differ", file.display());
        assert!(bytes == again.proto().encode_to_vec(), "{}: the messages differ", file.display());
    }
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let moved = folder.path().join("model.onnx");
    write::write(&model, &moved, &Options { external_data: true }).map_err(text)?;
    let back = write::to_bytes(&onnx::load(&moved).map_err(text)?).map_err(text)?;
    let raw = onnx::load_bytes(back.into(), None).map_err(text)?;
    let values = |m: &Model| m.graph().initializer.iter().map(|t| m.tensor(t)).collect::<Result<Vec<_>, _>>();
    if values(&model)? != values(&raw)? || model.graph().node.len() != raw.graph().node.len() {
        return Err("external data: the models differ".into());
    }
    Ok(())
}

#[test]
fn all_models_are_written_as_they_were_read() {
    let mut folders = Vec::new();
    conformance::find_folders(&corpus::fetch("suite").join("onnx-suite"), &mut folders);
    conformance::find_folders(&corpus::fetch("models").join("models"), &mut folders);
    let files: Vec<_> = folders.iter().map(|f| f.join("model.onnx")).filter(|file| is_small(file)).collect();
    assert!(files.len() > 2000, "{} models", files.len());
    let results = conformance::run_all(&files, None, round_trip);
    let failed: Vec<_> = files.iter().zip(results).filter_map(|(file, r)| Some((file, r.err()?))).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

fn entry(key: &str) -> Vec<StringStringEntryProto> {
    vec![StringStringEntryProto { key: key.into(), value: "value".into() }]
}

fn kind(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: Some(kind as i32), ..AttributeProto::default() }
}

/// A model in which every message has every field.
fn full() -> ModelProto {
    let doc = || Bytes::from_static(b"documentation");
    let dim = Dimension { value: Some(DimensionValue::Param("n".into())), denotation: "DATA_BATCH".into() };
    let shape = Some(TensorShapeProto { dim: vec![dim] });
    let ty =
        TypeProto { value: Some(TypeValue::Tensor(TensorType { elem_type: 1, shape })), denotation: "IMAGE".into() };
    let port = |name: &str| ValueInfoProto {
        doc_string: doc(),
        metadata_props: entry("port"),
        ..ValueInfoProto::new(name, Some(ty.clone()))
    };
    let attribute = AttributeProto {
        name: "colour".into(),
        i: Some(0),
        r#type: Some(AttributeType::Int as i32),
        doc_string: doc(),
        ..AttributeProto::default()
    };
    let placed = NodeDeviceConfigurationProto {
        configuration_id: "two".into(),
        sharding_spec: vec![ShardingSpecProto {
            tensor_name: "x".into(),
            device: vec![0, 1],
            index_to_device_group_map: vec![IntIntListEntryProto { key: 1, value: vec![2, 3] }],
            sharded_dim: vec![ShardedDimProto {
                axis: 1,
                simple_sharding: [DimensionValue::Value(4), DimensionValue::Param("n".into())]
                    .map(|dim| SimpleShardedDimProto { dim: Some(dim), num_shards: 2 })
                    .into(),
            }],
        }],
        pipeline_stage: Some(0),
    };
    let node = |inputs: &[&str], output: &str| NodeProto {
        input: inputs.iter().map(ToString::to_string).collect(),
        output: vec![output.into()],
        name: format!("make {output}"),
        op_type: "Paint".into(),
        domain: "com.example".into(),
        attribute: vec![attribute.clone()],
        doc_string: doc(),
        metadata_props: entry("node"),
        device_configurations: vec![placed.clone()],
        ..NodeProto::default()
    };
    let tensor = TensorProto {
        name: "w".into(),
        data_type: 1,
        dims: vec![1],
        raw_data: vec![1, 2, 3, 4].into(),
        doc_string: doc(),
        metadata_props: entry("tensor"),
        ..TensorProto::default()
    };
    let values = TensorProto { data_type: 1, dims: vec![1], float_data: vec![1.0], ..TensorProto::default() };
    let typed = vec![
        TensorProto { string_data: vec!["s".into()], data_type: 8, ..values.clone() },
        TensorProto { int32_data: vec![1], data_type: 6, ..values.clone() },
        TensorProto { int64_data: vec![1], data_type: 7, ..values.clone() },
        TensorProto { double_data: vec![1.0], data_type: 11, ..values.clone() },
        TensorProto { uint64_data: vec![1], data_type: 13, ..values.clone() },
        TensorProto { segment: Some(Segment { begin: 1, end: 2 }), ..values.clone() },
    ];
    let indices = TensorProto { data_type: 7, dims: vec![1], int64_data: vec![0], ..TensorProto::default() };
    let sparse = SparseTensorProto { values: Some(values.clone()), indices: Some(indices), dims: vec![3] };
    let number =
        TensorType { elem_type: 1, shape: Some(TensorShapeProto { dim: vec![DimensionValue::Value(1).into()] }) };
    let of = || ElementType { elem_type: Some(Box::new(ty.clone())) };
    let types: Vec<TypeProto> = [
        TypeValue::Tensor(number.clone()),
        TypeValue::Sequence(of()),
        TypeValue::Optional(of()),
        TypeValue::Map(MapType { key_type: 7, value_type: of().elem_type }),
        TypeValue::Opaque(OpaqueType { domain: "d".into(), name: "n".into() }),
        TypeValue::SparseTensor(number),
    ]
    .map(TypeProto::from)
    .into();
    let inner = GraphProto { name: "inner".into(), ..GraphProto::default() };
    let kinds = [
        AttributeProto { f: Some(0.0), ..kind("f", AttributeType::Float) },
        AttributeProto { s: Some("s".into()), ..kind("s", AttributeType::String) },
        AttributeProto { t: Some(Box::new(values)), ..kind("t", AttributeType::Tensor) },
        AttributeProto { g: Some(Box::new(inner.clone())), ..kind("g", AttributeType::Graph) },
        AttributeProto { floats: vec![1.0], ..kind("floats", AttributeType::Floats) },
        AttributeProto { ints: vec![1], ..kind("ints", AttributeType::Ints) },
        AttributeProto { strings: vec!["s".into()], ..kind("strings", AttributeType::Strings) },
        AttributeProto { tensors: typed, ..kind("tensors", AttributeType::Tensors) },
        AttributeProto { graphs: vec![inner], ..kind("graphs", AttributeType::Graphs) },
        AttributeProto { sparse_tensor: Some(Box::new(sparse.clone())), ..kind("sparse", AttributeType::SparseTensor) },
        AttributeProto { sparse_tensors: vec![sparse.clone()], ..kind("sparses", AttributeType::SparseTensors) },
        AttributeProto { tp: Some(Box::new(ty.clone())), ..kind("tp", AttributeType::TypeProto) },
        AttributeProto { type_protos: types, ..kind("types", AttributeType::TypeProtos) },
    ];
    let named = SparseTensorProto { values: sparse.values.map(|v| TensorProto { name: "s".into(), ..v }), ..sparse };
    let rich = NodeProto { attribute: kinds.into(), overload: "wide".into(), ..node(&["s"], "z") };
    let graph = GraphProto {
        sparse_initializer: vec![named],
        node: vec![node(&["x", "w"], "y"), rich],
        name: "graph".into(),
        initializer: vec![tensor],
        doc_string: doc(),
        input: vec![port("x")],
        output: vec![port("y")],
        value_info: vec![port("z")],
        quantization_annotation: vec![TensorAnnotation {
            tensor_name: "x".into(),
            quant_parameter_tensor_names: entry("SCALE_TENSOR"),
        }],
        metadata_props: entry("graph"),
    };
    let opset_import = vec![
        OperatorSetIdProto { domain: String::new(), version: 18 },
        OperatorSetIdProto { domain: "com.example".into(), version: 7 },
    ];
    let referring = AttributeProto { ref_attr_name: "alpha".into(), ..kind("colour", AttributeType::Int) };
    let function = FunctionProto {
        name: "Half".into(),
        input: vec!["a".into()],
        output: vec!["b".into()],
        attribute: vec!["alpha".into()],
        node: vec![NodeProto { attribute: vec![referring], ..node(&["a"], "b") }],
        doc_string: doc(),
        opset_import: opset_import.clone(),
        domain: "com.example".into(),
        attribute_proto: vec![attribute],
        value_info: vec![port("c")],
        overload: "wide".into(),
        metadata_props: entry("function"),
    };
    let training = TrainingInfoProto {
        initialization: Some(GraphProto { name: "start".into(), ..GraphProto::default() }),
        algorithm: Some(GraphProto { name: "step".into(), ..GraphProto::default() }),
        initialization_binding: entry("from"),
        update_binding: entry("to"),
    };
    ModelProto {
        ir_version: Some(14),
        producer_name: "maker".into(),
        producer_version: "1".into(),
        domain: "com.example".into(),
        model_version: 3,
        doc_string: Bytes::from_static(b"not UTF-8: \xf6"),
        graph: Some(graph),
        opset_import,
        metadata_props: entry("model"),
        training_info: vec![training],
        functions: vec![function],
        configuration: vec![DeviceConfigurationProto {
            name: "two".into(),
            num_devices: 2,
            device: vec!["a".into(), "b".into()],
        }],
    }
}

#[test]
fn every_field_and_every_unknown_operator_stays() {
    let model = onnx::load_bytes(full().encode_to_vec().into(), None).expect("sound");
    let again = onnx::load_bytes(write::to_bytes(&model).expect("written").into(), None).expect("sound");
    assert_eq!(again.proto(), &full());
}

/// Python's protobuf has the fields of ONNX from ONNX itself: all of them are in the model, apart from what names a file.
#[test]
fn onnx_sees_every_field() {
    const SCRIPT: &str = r#"
import sys, onnx
seen, known = set(), set()
def walk(m):
    known.update(f.full_name for f in m.DESCRIPTOR.fields)
    for f, value in m.ListFields():
        seen.add(f.full_name)
        if f.message_type:
            for x in [value] if hasattr(value, "ListFields") else value: walk(x)
walk(onnx.load(sys.argv[1]))
print(*sorted(known - seen))
"#;
    corpus::fetch("suite");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("full.onnx");
    let model = onnx::load_bytes(full().encode_to_vec().into(), None).expect("sound");
    write::write(&model, &file, &Options::default()).expect("written");
    let python = corpus::folder().join("venv/bin/python");
    let out = Command::new(python).args(["-c", SCRIPT]).arg(file).output().expect("python starts");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let missing = String::from_utf8_lossy(&out.stdout);
    assert_eq!(missing.trim(), "onnx.TensorProto.data_location onnx.TensorProto.external_data");
}

#[test]
fn what_is_newer_or_missing_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("model.onnx");
    let error = |proto: ModelProto| {
        let model = Model::new(&file, Some(folder.path()), Format::Protobuf, proto).expect("sound");
        write::write(&model, &file, &Options::default()).expect_err("refused").to_string()
    };
    let newer = ModelProto { ir_version: Some(15), ..full() };
    assert!(error(newer).contains("IR version 15 is newer than 14"));
    let mut gone = full();
    let tensor = &mut gone.graph.as_mut().expect("there").initializer[0];
    let location = StringStringEntryProto { key: "location".into(), value: "w.bin".into() };
    *tensor = TensorProto { raw_data: Bytes::new(), external_data: vec![location], data_location: 1, ..tensor.clone() };
    let message = error(gone);
    assert!(message.contains("tensor `w`: external data in `w.bin`"), "{message}");
    assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 0);
}

#[test]
fn numrs_json_is_written_as_it_was_read() {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in fs::read_dir(corpus::root().join("tests/data/numrs")).expect("there") {
        let file = entry.expect("there").path().join("model.onnx.json");
        let Ok(model) = onnx::load(&file) else { continue };
        let copy = folder.path().join("model.onnx.json");
        write::write(&model, &copy, &Options::default()).expect("written");
        assert_eq!(onnx::load(&copy).expect("read").proto(), model.proto(), "{}", file.display());
        let protobuf = folder.path().join("model.onnx");
        write::write(&model, &protobuf, &Options::default()).expect("written");
        assert_eq!(onnx::load(&protobuf).expect("read").proto(), model.proto(), "{}", file.display());
    }
    let json = folder.path().join("full.onnx.json");
    let model = Model::new(&json, None, Format::Protobuf, full()).expect("sound");
    let message = write::write(&model, &json, &Options::default()).expect_err("refused").to_string();
    for part in ["has no functions", "node `make y` (Paint)", "the size `n` of input `x` is open"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!json.exists());
}
