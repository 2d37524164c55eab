use super::super::{Format, Value, load, load_bytes, load_value, proto::*, value::decode_value};
use super::{float, graph, model, node, subgraph};
use crate::error::Error;
use bytes::Bytes;
use prost::Message;
use std::{fs, path::Path};

fn numrs(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/numrs").join(name)
}

fn error(bytes: impl Into<Bytes>) -> String {
    load_bytes(bytes.into(), None).unwrap_err().to_string()
}

#[test]
fn a_mapped_model_shares_its_weights_with_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.onnx");
    let mut g = graph(&["x"], vec![node("A", &["x", "w"], &["y"])], &["y"]);
    g.initializer.push(TensorProto { raw_data: vec![5; 4].into(), float_data: vec![], ..float("w") });
    fs::write(&path, model(g).encode_to_vec()).unwrap();
    let m = load(&path).unwrap();
    let t = &m.graph().initializer[0];
    assert_eq!(m.tensor(t).unwrap().bytes().as_ptr(), t.raw_data.as_ptr());
    assert_eq!((m.format(), m.file()), (Format::Protobuf, path.as_path()));
    let missing = load(&dir.path().join("none.onnx")).unwrap_err();
    assert!(matches!(missing, Error::Io { .. }) && missing.to_string().contains("none.onnx"));
}

#[test]
fn decoding_borrows_from_the_input() {
    let mut g = graph(&["x"], vec![node("A", &["x", "w"], &["y"])], &["y"]);
    g.initializer.push(TensorProto { raw_data: vec![5; 4].into(), float_data: vec![], ..float("w") });
    let bytes = Bytes::from(model(g).encode_to_vec());
    let m = load_bytes(bytes.clone(), None).unwrap();
    assert!(bytes.as_ptr_range().contains(&m.graph().initializer[0].raw_data.as_ptr()));
}

#[test]
fn what_is_not_a_model_gets_a_hint() {
    assert!(error("").contains("no IR version"));
    assert!(error("version https://git-lfs.github.com/spec/v1\n").contains("git lfs pull"));
    assert!(error("PK\x03\x04....").contains("zip archive"));
    assert!(error("ir_version: 8").contains("this is text"));
    assert!(error(vec![0xff; 40]).contains("damaged"));
    assert!(error("{").contains("NumRs JSON: EOF"));
    assert!(error(" {}").contains("missing field"));
    let name = node("A\u{1}\u{1}", &["x"], &["y"]);
    let mut bytes = model(graph(&["x"], vec![name], &["y"])).encode_to_vec();
    let at = bytes.windows(3).position(|w| w == b"A\x01\x01").unwrap();
    bytes[at + 1] = 0xff;
    let message = error(bytes);
    assert!(message.contains("UTF-8") && message.contains("op_type"), "{message}");
}

#[test]
fn no_truncation_and_no_flipped_bit_panics() {
    let mut inner = node("If", &["x"], &["y"]);
    let mut g = graph(&[], vec![node("A", &["x", "w"], &["z"])], &["z"]);
    g.initializer.push(float("w"));
    g.sparse_initializer.push(SparseTensorProto { values: Some(float("s")), indices: None, dims: vec![3] });
    inner.attribute.push(subgraph("then_branch", g));
    let bytes = model(graph(&["x"], vec![inner], &["y"])).encode_to_vec();
    assert!(load_bytes(bytes.clone().into(), None).is_ok());
    for n in 0..bytes.len() {
        assert!(load_bytes(bytes[..n].to_vec().into(), None).is_err());
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let _ = load_bytes(flipped.into(), None).map(|m| {
            for t in &m.graph().initializer {
                let _ = m.tensor(t);
            }
        });
    }
}

/// `content` as length-delimited field `tag`.
fn field(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag << 3 | 2];
    prost::encode_length_delimiter(content.len(), &mut out).unwrap();
    out.extend_from_slice(content);
    out
}

#[test]
fn deep_nesting_is_a_clear_error_and_shallow_nesting_works() {
    let nested = |depth: usize| {
        let mut bytes = vec![];
        for _ in 0..depth {
            // graph { node { op_type: "I" attribute { name: "g" g { … } } } }
            let attribute = [field(1, b"g"), field(6, &bytes)].concat();
            bytes = field(1, &[field(4, b"I"), field(5, &attribute)].concat());
        }
        let output = field(12, &field(1, b"y"));
        let bytes = [bytes, field(1, &[field(4, b"I"), field(2, b"y")].concat()), output].concat();
        [vec![0x08, 8], field(8, &[0x10, 18]), field(7, &bytes)].concat()
    };
    let message = error(nested(10_000));
    assert!(message.contains("recursion limit") && message.contains("100 deep"), "{}", &message[..200]);
    assert!(load_bytes(nested(32).into(), None).is_ok());
}

#[test]
fn every_numrs_sample_loads_by_content() {
    let mut n = 0;
    for entry in fs::read_dir(numrs("")).unwrap() {
        let path = entry.unwrap().path().join("model.onnx.json");
        if path.exists() {
            let m = load(&path).unwrap();
            assert_eq!(m.format(), Format::NumRsJson);
            assert_eq!(m.opsets().get(""), Some(&18));
            // NumRs writes the ratio of Dropout as old opsets did; nothing else is suspicious about the samples.
            assert!(m.warnings().iter().all(|w| w.message.starts_with("Dropout")), "{:?}", m.warnings());
            for t in &m.graph().initializer {
                m.tensor(t).unwrap();
            }
            n += 1;
        }
    }
    assert_eq!(n, 11);
    let m = load(&numrs("cnn_stride/model.onnx.json")).unwrap();
    let conv = &m.graph().node[0];
    assert_eq!((conv.op_type.as_str(), conv.attribute[0].ints.as_slice()), ("Conv", &[5i64][..]));
    assert_eq!(m.graph().node[1].attribute[0].f, Some(1e-5));
    assert_eq!(m.graph().output[0].r#type, None);
}

#[test]
fn numrs_quirks_are_warned_about() {
    let warnings = |name: &str| -> Vec<String> {
        let m = load(&numrs("quirks").join(format!("{name}.onnx.json"))).unwrap();
        m.warnings().iter().map(|w| w.message.clone()).collect()
    };
    let lost = ["the graph has no nodes: it computes nothing", "output `tensor_0` is an input, returned as it is"];
    assert_eq!(warnings("tanh_lost"), lost);
    assert_eq!(warnings("add_no_requires_grad"), lost);
    assert_eq!(warnings("add_all_requires_grad"), ["the graph has no inputs: its outputs are always the same"]);
}

#[test]
fn numrs_json_is_read_strictly() {
    let text = |graph: &str| format!(r#"{{"metadata": {{"opset_version": 18}}, "graph": {{{graph}}}}}"#);
    let with = |extra: &str, data: &str, attribute: &str| {
        text(&format!(
            r#"{extra} "nodes": [{{"op_type": "A", "inputs": ["x", "w"], "outputs": ["y"], "attributes": {{{attribute}}}}}],
            "inputs": [{{"name": "x", "dtype": 1, "shape": [1]}}], "outputs": ["y"],
            "initializers": [{{"name": "w", "dtype": 1, "shape": [1], "data": [{data}]}}]"#
        ))
    };
    let all = r#""i": {"Int": 1}, "f": {"Float": 0.5}, "s": {"String": "t"}, "ss": {"Strings": ["u"]}, "fs": {"Floats": [1]}"#;
    let m = load_bytes(with("", "0, 0, 128, 63", all).into(), None).unwrap();
    assert_eq!(m.tensor(&m.graph().initializer[0]).unwrap().to_f64s(), [1.0]);
    assert_eq!(m.graph().node[0].attribute.len(), 5);
    assert!(error(with("", "0, 0, 128, 256", "")).contains("256"));
    assert!(error(with(r#""more": 1,"#, "0", "")).contains("unknown field `more`"));
    assert!(error(with("", "0", r#""a": {"Complex": 1}"#)).contains("unknown variant `Complex`"));
    assert!(error("{\"a\":".repeat(100_000)).contains("NumRs JSON"));
    let short = load_bytes(with("", "0", "").into(), None).unwrap();
    assert!(short.tensor(&short.graph().initializer[0]).unwrap_err().contains("take 4 bytes, but 1"));
}

#[test]
fn values_of_every_kind_load() {
    let of = |value| TypeProto::from(value);
    let tensor = of(TypeValue::Tensor(TensorType::default()));
    let sequence = of(TypeValue::Sequence(ElementType::default()));
    let optional = of(TypeValue::Optional(ElementType::default()));
    let map = of(TypeValue::Map(MapType::default()));
    let decode = |bytes: Vec<u8>, ty: &TypeProto| decode_value(Path::new("v.pb"), bytes.into(), ty, None);
    let one = decode(float("a").encode_to_vec(), &tensor).unwrap();
    assert!(matches!(&one, Value::Tensor(t) if t.to_f64s() == [1.0]));
    let list = SequenceProto { elem_type: 1, tensor_values: vec![float("a"); 2], ..Default::default() };
    let two = Value::Sequence(vec![one.clone(); 2]);
    assert_eq!(decode(list.encode_to_vec(), &sequence).unwrap(), two);
    let some = OptionalProto { elem_type: 3, sequence_value: Some(Box::new(list.clone())), ..Default::default() };
    assert_eq!(decode(some.encode_to_vec(), &optional).unwrap(), Value::Optional(Some(Box::new(two))));
    assert_eq!(decode(vec![], &optional).unwrap(), Value::Optional(None));
    let pairs = MapProto { keys: vec![7, 8], values: Some(Box::new(list)), ..Default::default() };
    assert!(matches!(decode(pairs.encode_to_vec(), &map).unwrap(), Value::Map { values, .. } if values.len() == 2));
    let odd = MapProto { keys: vec![7], ..pairs };
    assert!(decode(odd.encode_to_vec(), &map).unwrap_err().to_string().contains("1 keys has 2 values"));
    assert!(load_value(Path::new("/nonexistent.pb"), &tensor).is_err());
}

#[test]
fn models_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<super::super::Model>();
    shared::<Error>();
}
