//! The command as a user calls it: what it prints, what it writes, and how it ends.
mod common;

use common::{Place, labelled_model, sample, stderr, stdout, symbolic_model, write_test_folder};
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

/// A place with `relu.onnx`, `y = relu(x) * scale` for `x: f32[batch, 3]`, and its artifact.
fn relu() -> Place {
    let place = Place::new();
    std::fs::write(place.path("relu.onnx"), symbolic_model()).unwrap();
    place.succeed(&["compile", "relu.onnx", "-q"]);
    place
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let place = relu();
    for option in [&["-O", "3"][..], &["--cpu", "native"], &["--sanitize"], &["--tolerance", "0"], &["--jobs", "1"]] {
        for command in [&["run", "relu.nrsc", "--random", "1"][..], &["bench", "relu.nrsc", "--runs", "1"]] {
            let output = place.numrsc(&[command, option].concat());
            assert_eq!(output.status.code(), Some(2), "{command:?} {option:?}");
            let text = stderr(&output);
            assert!(text.contains("compiled already") && text.contains(option[0]), "{text}");
        }
    }
    let output = place.numrsc(&["run", "relu.onnx", "--random", "1", "--verify"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn weights_are_verified_on_request() {
    let place = relu();
    place.succeed(&["run", "relu.nrsc", "--random", "1", "--verify"]);
    let mut bytes = std::fs::read(place.path("relu.nrsc")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(place.path("relu.nrsc"), &bytes).unwrap();
    place.succeed(&["run", "relu.nrsc", "--random", "1"]);
    let output = place.numrsc(&["run", "relu.nrsc", "--random", "1", "--verify"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("damaged") && stderr(&output).contains("weights"), "{}", stderr(&output));
    // Where it does not even begin like an artifact.
    bytes[0] ^= 1;
    std::fs::write(place.path("relu.nrsc"), bytes).unwrap();
    let output = place.numrsc(&["run", "relu.nrsc", "--random", "1"]);
    assert!(
        stderr(&output).contains("an artifact by its name") && stderr(&output).contains("damaged"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn inputs_can_be_made_and_outputs_can_be_json() {
    let place = relu();
    let run = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&place.succeed(&[&["run", "--json"], args].concat())).unwrap()
    };
    let zeros = run(&["relu.nrsc", "--input", "x=zeros", "--dim", "batch=2"]);
    let value = &zeros["outputs"][0]["value"];
    assert_eq!((&zeros["outputs"][0]["name"], &value["type"]), (&"y".into(), &"f32".into()));
    assert_eq!((&value["shape"], &value["elements"]), (&[2, 3].into(), &vec![0.0; 6].into()));
    let random = run(&["relu.onnx", "--backend", "reference", "--input", "x=random"]);
    assert_eq!(random["outputs"][0]["value"]["shape"], serde_json::json!([1, 3]));
    assert_eq!(random, run(&["relu.nrsc", "--random", "0"]), "from the same seed");
}

#[test]
fn names_that_are_nearly_right_are_named() {
    let place = relu();
    let text = |args: &[&str]| {
        let output = place.numrsc(args);
        assert_ne!(output.status.code(), Some(0), "{args:?}");
        stderr(&output)
    };
    assert!(text(&["compile", "relu.onnx", "--dim", "batc=1"]).contains("is `batch` meant?"));
    assert!(text(&["run", "relu.nrsc", "--random", "1", "--dim", "bach=1"]).contains("is `batch` meant?"));
    assert!(text(&["compile", "relu.onnx", "--without-rule", "unrol"]).contains("is `unroll` meant?"));
    let broken = symbolic_model().windows(4).position(|part| part == b"Relu").unwrap();
    let mut model = symbolic_model();
    model[broken..broken + 4].copy_from_slice(b"Rely");
    std::fs::write(place.path("rely.onnx"), model).unwrap();
    assert!(text(&["check", "rely.onnx"]).contains("did you mean `Relu`?"));
}

#[test]
fn messages_name_inputs_and_types_as_we_call_them() {
    let place = relu();
    // A file of NumPy with three doubles.
    let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 3), }";
    let mut npy = b"\x93NUMPY\x01\0".to_vec();
    npy.extend((header.len() as u16).to_le_bytes());
    npy.extend(header.bytes());
    npy.extend([0; 24]);
    std::fs::write(place.path("x.npy"), npy).unwrap();
    let output = place.numrsc(&["run", "relu.nrsc", "--input", "x=x.npy"]);
    let text = stderr(&output);
    assert!(text.contains("input `x`: x.npy: its elements are f64, but f32 is wanted"), "{text}");
}

#[test]
fn colours_are_as_asked_for() {
    let place = Place::new();
    let colour = |args: &[&str]| stderr(&place.numrsc(args)).starts_with("\u{1b}[1;31merror\u{1b}[0m: ");
    assert!(colour(&["check", "missing.onnx", "--color", "always"]));
    assert!(!colour(&["check", "missing.onnx", "--color", "never"]) && !colour(&["check", "missing.onnx"]));
}

#[test]
fn tests_say_what_executed_them() {
    let place = Place::new();
    write_test_folder(&place.path("t"), &[1.0, 0.0, 300.0, 0.0, 50.0, 600.0]);
    assert!(place.succeed(&["test", "t"]).contains("1 passed, 0 failed, 0 skipped (the reference evaluator)"));
    assert!(place.succeed(&["test", "t", "--backend", "cranelift"]).contains("(compiled by Cranelift)"));
}
