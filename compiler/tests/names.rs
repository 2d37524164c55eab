//! Names of the model's nodes: in messages of failed runs, in artifacts and reports, and as outputs that are kept.
mod common;
use common::*;
use numrsc::npy;
use numrsc_ir::{DType, Tensor};
use numrsc_runtime::Artifact;
use std::fs;

/// A folder with a model that reshapes `x: f32[batch, 3]` to `[2, 6]`, and an input that does not fit.
fn place() -> Place {
    let place = Place::new();
    fs::write(place.path("model.onnx"), reshape_model()).unwrap();
    npy::write(&place.path("x.npy"), &Tensor::from_f32(&[1, 3], &[-1.0, 2.0, 3.0])).unwrap();
    npy::write(&place.path("fits.npy"), &Tensor::from_f32(&[4, 3], &[-1.5; 12])).unwrap();
    place
}

#[test]
fn failed_runs_name_the_node() {
    let place = place();
    for backend in ["llvm", "cranelift"] {
        let message = |more: &[&str]| {
            place.succeed(&[&["compile", "model.onnx", "--backend", backend], more].concat());
            place.succeed(&["run", "model.nrsc", "--input", "x=fits.npy"]);
            let output = place.numrsc(&["run", "model.nrsc", "--input", "x=x.npy"]);
            assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
            stderr(&output)
        };
        let named = message(&[]);
        let expected = "node `to/pairs` (Reshape): the number of elements differs: f32[batch, 3] -> f32[2, 6]";
        assert!(named.contains(expected), "{named}");
        let stripped = message(&["--strip-names"]);
        assert!(!stripped.contains("to/pairs") && stripped.contains("the number of elements differs"), "{stripped}");
    }
}

#[test]
fn names_change_neither_code_nor_weights() {
    let place = place();
    let cnn = sample("cnn_stride/model.onnx.json");
    for model in ["model.onnx", &cnn] {
        for backend in ["llvm", "cranelift"] {
            let compile = |more: &[&str]| {
                let args = ["compile", model, "--backend", backend, "-o", "out.nrsc", "--no-cache"];
                place.succeed(&[&args[..], more].concat());
                fs::read(place.path("out.nrsc")).unwrap()
            };
            let (with, without) = (compile(&[]), compile(&["--strip-names"]));
            let [with, without] = [&with, &without].map(|bytes| Artifact::parse(bytes).unwrap());
            assert!(with.names().unwrap().is_some_and(|names| names.launches().len() > 0), "{model}");
            assert!(without.names().unwrap().is_none(), "{model}");
            assert!(with.code == without.code && with.weights == without.weights, "{model} by {backend}");
        }
    }
}

#[test]
fn launches_are_named() {
    let place = place();
    place.succeed(&["compile", "model.onnx", "--report", "report.json"]);
    let shown = place.succeed(&["inspect", "model.nrsc"]);
    assert!(shown.contains("launches (1)") && shown.contains("first (Relu), to/pairs (Reshape)"), "{shown}");
    let report = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let json = report(&place.succeed(&["inspect", "model.nrsc", "--json"]));
    assert_eq!(json["names"]["launches"][0]["nodes"], serde_json::json!(["first", "to/pairs"]));
    let json = report(&fs::read_to_string(place.path("report.json")).unwrap());
    assert_eq!(
        json["launched"][0]["nodes"][0],
        serde_json::json!({ "node": "first", "operator": "Relu", "moved_by": null })
    );
    // The IR shows them as well, at every stage.
    for pass in ["import", "optimise", "lower"] {
        let text = place.succeed(&["inspect", "model.onnx", "--after", pass]);
        assert!(text.contains("Relu \"first\"") && text.contains("Reshape \"to/pairs\""), "{text}");
    }
}

#[test]
fn values_are_kept_by_their_names_or_those_of_nodes() {
    let place = place();
    let npy = |name: &str| npy::read(&place.path(&format!("out/{name}")), DType::F32).unwrap().to_f64s();
    place.succeed(&["compile", "model.onnx", "--keep", "first", "--keep", "x"]);
    let shown = place.succeed(&["inspect", "model.nrsc"]);
    assert!(shown.contains("first") && shown.contains("f32[batch, 3]"), "{shown}");
    place.succeed(&["run", "model.nrsc", "--input", "x=fits.npy", "--output-dir", "out"]);
    assert_eq!(npy("y.npy"), [0.0; 12]);
    assert_eq!(npy("first.npy"), [0.0; 12]);
    assert_eq!(npy("x.npy"), [-1.5; 12]);
    // A value of the model goes before a node, and an output is one already.
    place.succeed(&["run", "model.onnx", "--keep", "r", "--keep", "y", "--input", "x=fits.npy", "--output-dir", "out"]);
    assert_eq!(npy("r.npy"), [0.0; 12]);

    for (args, code, text) in [
        (&["compile", "model.onnx", "--keep", "firs"][..], 1, "is `first` meant?"),
        (&["compile", "model.onnx", "--keep", "something"], 1, "no value and no node is called `something`"),
        (&["run", "model.nrsc", "--keep", "r", "--input", "x=fits.npy"], 2, "an artifact has its outputs"),
    ] {
        let output = place.numrsc(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(text), "{args:?}: {}", stderr(&output));
    }
}
