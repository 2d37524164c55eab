//! The command as a user calls it: what it prints, what it writes, and how it ends.
mod common;

use common::{Place, labelled_model, sample, stderr, stdout};
use numrsc::onnx::proto::{ModelProto, NodeProto};
use numrsc_ir::Tensor;
use prost::Message;
use std::process::Output;

fn numrsc(args: &[&str]) -> Output {
    Place::new().numrsc(args)
}

#[test]
fn check_says_yes_or_lists_the_problems() {
    let good = numrsc(&["check", &sample("mlp_trained/model.onnx.json")]);
    assert_eq!(good.status.code(), Some(0));
    assert!(stdout(&good).contains(": ok, "), "{}", stdout(&good));

    let bad = numrsc(&["check", &sample("quirks/transpose_3d_bad_perm.onnx.json")]);
    assert_eq!(bad.status.code(), Some(1));
    let text = stderr(&bad);
    assert!(
        text.contains("node #0") && text.contains("(Transpose, opset 18)") && text.contains("perm [1, 0]"),
        "{text}"
    );

    let json = numrsc(&["check", "--json", &sample("quirks/transpose_3d_bad_perm.onnx.json")]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report[0]["ok"], false);
    assert_eq!(report[0]["problems"][0]["index"], 0);
}

#[test]
fn inspect_has_a_form_for_people_and_two_for_programs() {
    let model = sample("mlp_trained/model.onnx.json");
    let people = stdout(&numrsc(&["inspect", &model]));
    assert!(people.contains("inputs") && people.contains("tensor_5") && people.contains("operators"), "{people}");
    let json: serde_json::Value = serde_json::from_slice(&numrsc(&["inspect", "--json", &model]).stdout).unwrap();
    assert_eq!(json["inputs"][0]["name"], "tensor_5");
    assert!(stdout(&numrsc(&["inspect", "--dot", &model])).starts_with("digraph"));
    assert_eq!(numrsc(&["inspect", "--dot", "--json", &model]).status.code(), Some(2), "one form at a time");
}

#[test]
fn run_writes_one_file_per_output() {
    let dir = tempfile::tempdir().unwrap();
    let (model, out) = (sample("mlp_trained/model.onnx.json"), dir.path().to_str().unwrap());
    let ran = numrsc(&["run", &model, "--random", "1", "--output-dir", out]);
    assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
    assert!(stdout(&ran).contains("tensor_0"));
    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(files, ["tensor_0.npy"], "and nothing half-written");

    let missing = numrsc(&["run", &model]);
    assert_eq!(missing.status.code(), Some(3));
    assert!(stderr(&missing).contains("tensor_5: f32["), "{}", stderr(&missing));
    let unknown = numrsc(&["run", &model, "--input", "nonsense=x.npy"]);
    assert!(stderr(&unknown).contains("no input `nonsense`; its inputs are `tensor_5`"), "{}", stderr(&unknown));
}

/// What ONNX calls a list of maps is a table with labels, and shown as a list of maps again.
#[test]
fn tables_have_labels() {
    let place = Place::new();
    std::fs::write(place.path("pets.onnx"), labelled_model()).unwrap();
    let x = Tensor::from_f32(&[2, 2], &[0.25, 1.5, 1.0, 0.0]);
    numrsc::npy::write(&place.path("x.npy"), &x).unwrap();
    place.succeed(&["compile", "pets.onnx", "-o", "pets.nrsc"]);
    for how in [&["pets.nrsc"][..], &["pets.onnx"], &["pets.onnx", "--backend", "reference"]] {
        let shown = place.succeed(&[&["run", "--input", "x=x.npy"], how].concat());
        let maps = r#"[{"cat": 0.250000, "dog": 0.750000}, {"cat": 1.000000, "dog": 0.000000}]"#;
        assert!(shown.contains("list of 2 maps") && shown.contains(maps), "{shown}");
    }
    assert!(place.succeed(&["inspect", "pets.nrsc"]).contains(r#"for ["cat","dog"]"#));
    let json: serde_json::Value = serde_json::from_str(&place.succeed(&["inspect", "--json", "pets.nrsc"])).unwrap();
    assert_eq!(json["outputs"][0]["labels"], serde_json::json!(["cat", "dog"]));
    place.succeed(&["compile", "pets.onnx", "--emit", "obj", "-o", "pets.o"]);
    let header = std::fs::read_to_string(place.path("pets.h")).unwrap();
    assert!(header.contains(r#"y: f32[batch, 2] for ["cat", "dog"]"#), "{header}");
    // A map that the model goes on with is refused, with what to do.
    let mut model = ModelProto::decode(&labelled_model()[..]).unwrap();
    let graph = model.graph.as_mut().unwrap();
    let after = NodeProto {
        input: vec!["y".into()],
        output: vec!["z".into()],
        op_type: "Identity".into(),
        ..NodeProto::default()
    };
    graph.node.push(after);
    graph.output[0].name = "z".into();
    std::fs::write(place.path("between.onnx"), model.encode_to_vec()).unwrap();
    let refused = stderr(&place.numrsc(&["check", "between.onnx"]));
    assert!(refused.contains("outputs of the model only") && refused.contains("zipmap=False"), "{refused}");
}

#[test]
fn other_ends() {
    assert_eq!(numrsc(&["check"]).status.code(), Some(2));
    for command in ["check", "inspect", "run", "compile", "bench"] {
        assert_eq!(numrsc(&[command, "does-not-exist.onnx"]).status.code(), Some(3), "{command}");
    }
    let none = numrsc(&["test", &sample("")]);
    assert!(stderr(&none).contains("no folder with a model.onnx"), "{}", stderr(&none));
    assert!(stdout(&numrsc(&["completions", "bash"])).contains("_numrsc"));
}
