//! What the `numrs` crate exports is valid ONNX, and ONNX Runtime computes from it what was traced, at the batch of the trace and at others.
use numrs::{
    Array, AvgPool2d, BatchNorm2d, Conv2d, Dropout, Flatten, Linear, MaxPool2d, Module, ReLU, Sequential, Softmax,
    Tensor, ops::export::export_to_onnx,
};
use numrsc_tests::corpus;
use std::{fs, path::Path, process::Command};

fn numbers(shape: &[usize]) -> Array {
    let count: usize = shape.iter().product();
    Array::new(shape.to_vec(), (0..count).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect())
}

fn network() -> anyhow::Result<Sequential> {
    let mut network = Sequential::new(vec![
        Box::new(Conv2d::new(2, 8, 3, 1, 1)?),
        Box::new(BatchNorm2d::new(8)?),
        Box::new(ReLU),
        Box::new(MaxPool2d::new(2, 2, 0)),
        Box::new(Conv2d::new(8, 4, 3, 2, 1)?),
        Box::new(AvgPool2d::new(2, 2, 0)),
        Box::new(Dropout::new(0.3)),
        Box::new(Flatten::new(1, -1)),
        Box::new(Linear::new(36, 10)?),
        Box::new(Softmax),
    ]);
    network.eval();
    Ok(network)
}

/// Of `x` and a weight, everything that layers do not use.
fn expression(x: &Tensor) -> anyhow::Result<Tensor> {
    let weight = Tensor::new(numbers(&[2, 1, 24]), true);
    let two = Tensor::new(Array::new(vec![], vec![2.0]), true);
    let y = x.abs()?.sqrt()?.sub(&x.neg()?.exp()?)?.tanh()?;
    let y = y.mul(&x.sigmoid()?)?.div(&two)?.pow(&two)?.add(&two)?.log()?;
    let y = y.reshape([x.shape()[0], 2, 24, 24])?.permute(vec![0, 1, 3, 2])?.flatten(2, 3)?;
    y.reshape([x.shape()[0], 2, 24, 24])?.mul(&weight)?.matmul(&Tensor::new(numbers(&[24, 5]), true))
}

const CHECK: &str = r#"
import sys, numpy, onnx, onnxruntime
for name in sys.argv[1:]:
    onnx.checker.check_model(name + ".onnx", full_check=True)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(name + ".onnx", options, providers=["CPUExecutionProvider"])
    x = session.get_inputs()[0]
    given = numpy.fromfile(name + ".x", numpy.float32).reshape(x.shape)
    wanted = numpy.fromfile(name + ".y", numpy.float32)
    (got,) = session.run(None, {x.name: given})
    numpy.testing.assert_allclose(got.ravel(), wanted, rtol=1e-4, atol=1e-5)
    print(name, got.shape)
"#;

fn write(file: &Path, array: &Array) {
    fs::write(file, array.data.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
}

#[test]
fn onnx_runtime_computes_what_was_traced() -> anyhow::Result<()> {
    corpus::fetch("suite");
    let folder = tempfile::tempdir()?;
    let network = network()?;
    let mut names = vec![];
    for batch in [1, 3] {
        let x = Tensor::new(numbers(&[batch, 2, 24, 24]), false);
        for (name, y) in [("network", network.forward(&x)?), ("expression", expression(&x)?)] {
            let name = format!("{name}{batch}");
            let file = |suffix: &str| folder.path().join(format!("{name}.{suffix}"));
            export_to_onnx(&y, file("onnx"))?;
            export_to_onnx(&y, file("onnx.json"))?;
            write(&file("x"), &x.data);
            write(&file("y"), &y.data);
            names.push(name);
        }
    }
    let mut python = Command::new(corpus::folder().join("venv/bin/python"));
    let output = python.args(["-c", CHECK]).args(&names).current_dir(folder.path()).output()?;
    let (said, wrong) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    assert!(output.status.success(), "{said}{wrong}");
    assert_eq!(said.lines().count(), names.len(), "{said}");
    Ok(())
}
