//! Models of gigabytes are compiled in little memory: weights are views of files, and put in order while they are written.
//!
//! With `NUMRSC_LONG=1`, one of 4.4 GB; it takes 9 GB of disk. Otherwise a small one, to which the same limits apply in proportion.
#![cfg(target_os = "linux")]
mod common;

use common::{Place, stderr, stdout};
use numrsc::onnx::proto::{
    AttributeProto, Dimension, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TensorType, TypeProto, TypeValue, ValueInfoProto,
};
use prost::Message;
use std::{
    fs::File,
    io::{BufWriter, Read, Write},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// The rows and columns of all matrices, how many there are, and what compiling them may have in memory besides views of files.
struct Size {
    width: usize,
    matrices: usize,
    most: u64,
}

fn size() -> Size {
    match std::env::var_os("NUMRSC_LONG") {
        Some(_) => Size { width: 4096, matrices: 66, most: 1 << 30 },
        None => Size { width: 2048, matrices: 12, most: 100 << 20 },
    }
}

impl Size {
    fn matrix_bytes(&self) -> usize {
        self.width * self.width * 4
    }
}

/// Numbers from 1 to 2 that do not repeat for longer than any model is.
fn write_weights(path: &Path, size: &Size) {
    let mut file = BufWriter::with_capacity(1 << 22, File::create(path).unwrap());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..size.width * size.width * size.matrices {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let number = f32::from_bits((state >> 41) as u32 | 0x3f80_0000);
        file.write_all(&number.to_le_bytes()).unwrap();
    }
    file.flush().unwrap();
}

fn node(op: &str, inputs: &[&str], output: &str, attribute: Vec<AttributeProto>) -> NodeProto {
    NodeProto {
        op_type: op.into(),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: vec![output.into()],
        attribute,
        ..Default::default()
    }
}

/// Products one after the other, in all the ways in which exporters write their matrices.
fn write_model(path: &Path, size: &Size) {
    let (mut nodes, mut weights) = (vec![], vec![]);
    let mut last = "x".to_owned();
    for i in 0..size.matrices {
        let (name, next) = (format!("w{i}"), format!("y{i}"));
        let transposed = AttributeProto { name: "transB".into(), r#type: Some(2), i: Some(1), ..Default::default() };
        match i % 3 {
            0 => nodes.push(node("MatMul", &[&last, &name], &next, vec![])),
            1 => nodes.push(node("Gemm", &[&last, &name], &next, vec![transposed])),
            // Folded: another constant of the same size.
            _ => {
                let turned = format!("{name}_turned");
                nodes.push(node("Transpose", &[&name], &turned, vec![]));
                nodes.push(node("MatMul", &[&last, &turned], &next, vec![]));
            }
        }
        let entry = |key: &str, value: String| StringStringEntryProto { key: key.into(), value: value.into() };
        let offset = (i * size.matrix_bytes()).to_string();
        weights.push(TensorProto {
            name,
            data_type: 1,
            dims: vec![size.width as i64; 2],
            data_location: 1,
            external_data: vec![entry("location", "weights".into()), entry("offset", offset)],
            ..Default::default()
        });
        last = next;
    }
    let dim = |n: usize| Dimension::from(DimensionValue::Value(n as i64));
    let shape = TensorShapeProto { dim: vec![dim(4), dim(size.width)] };
    let tensor = TensorType { elem_type: 1, shape: Some(shape) };
    let ty = TypeProto::from(TypeValue::Tensor(tensor));
    let port = |name: &str| ValueInfoProto::new(name, Some(ty.clone()));
    let graph = GraphProto {
        name: "large".into(),
        node: nodes,
        initializer: weights,
        input: vec![port("x")],
        output: vec![port(&last)],
        ..Default::default()
    };
    let opset = OperatorSetIdProto { domain: String::new(), version: 18 };
    let model = ModelProto { ir_version: Some(9), opset_import: vec![opset], graph: Some(graph), ..Default::default() };
    std::fs::write(path, model.encode_to_vec()).unwrap();
}

/// The most anonymous memory that a command has, looked at often, and how long it takes.
fn watched(mut command: Command) -> (u64, Duration) {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let mut most = 0;
    let status = loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        most = most.max(kilobytes.unwrap_or(0) * 1024);
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    assert!(status.success(), "{status}");
    (most, start.elapsed())
}

/// Read a file and write another one of the same content: what compiling cannot do without.
fn copy(from: &Path, to: &Path) -> Duration {
    let start = Instant::now();
    let (mut from, mut to) = (File::open(from).unwrap(), File::create(to).unwrap());
    let mut block = vec![0; 4 << 20];
    loop {
        let count = from.read(&mut block).unwrap();
        if count == 0 {
            return start.elapsed();
        }
        to.write_all(&block[..count]).unwrap();
    }
}

#[test]
fn a_large_model_is_compiled_in_little_memory() {
    let (place, size) = (Place::new(), size());
    write_weights(&place.path("weights"), &size);
    write_model(&place.path("model.onnx"), &size);
    let compile = ["compile", "model.onnx", "-o", "model.nrsc", "-O2", "--quiet"];

    let (most, first) = watched(place.command(&compile));
    assert!(most <= size.most, "{} MB of anonymous memory", most >> 20);
    let (_, second) = watched(place.command(&compile));
    std::fs::remove_file(place.path("model.nrsc")).unwrap();
    let copied = copy(&place.path("weights"), &place.path("copy"));
    std::fs::remove_file(place.path("copy")).unwrap();
    println!(
        "{} MB of weights: {} MB of anonymous memory, {first:.1?}, with the cache {second:.1?}, copied in {copied:.1?}",
        (size.matrix_bytes() * size.matrices) >> 20,
        most >> 20
    );

    // With little address space for data, it is done or refused.
    for kilobytes in [size.most >> 10, 60 << 10, 20 << 10] {
        let mut limited = Command::new("sh");
        let command = place.command(&compile);
        let script = format!("ulimit -d {} && exec \"$@\"", 2 * kilobytes);
        limited.args(["-c", &script, "sh"]).arg(command.get_program()).args(compile);
        let output = limited.current_dir(place.path("")).env("XDG_CACHE_HOME", place.path("cache")).output().unwrap();
        match output.status.code() {
            Some(0) => assert!(stdout(&place.numrsc(&["check", "model.nrsc"])).contains(": ok, ")),
            Some(3) => assert!(stderr(&output).contains("memory"), "{}", stderr(&output)),
            code => panic!("{code:?} with {kilobytes} kB: {}", stderr(&output)),
        }
        println!("with {} MB for data: {:?} {}", kilobytes >> 9, output.status.code(), stderr(&output).trim());
    }
}
