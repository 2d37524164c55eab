//! `numrsc compile` and what is done with its results: run, bench, check, inspect.
mod common;

use common::{
    Place, convolution_model, f32s, open_convolution_model, sample, stderr, stdout, symbolic_model, write_test_folder,
};
use numrsc::{npy, onnx::proto::ModelProto};
use numrsc_ir::{DType, Tensor};
use object::Object;
use prost::Message;
use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

fn assert_close(a: &Path, b: &Path) {
    let (a, b) = (npy::read(a, DType::F32).unwrap(), npy::read(b, DType::F32).unwrap());
    assert_eq!(a.shape(), b.shape());
    for (x, y) in a.to_f64s().into_iter().zip(b.to_f64s()) {
        assert!((x - y).abs() <= 1e-6 + 1e-5 * y.abs(), "{x} {y}");
    }
}

#[test]
fn artifacts_give_what_the_reference_gives() {
    for name in ["arith_broadcast", "cnn_stride", "mlp_trained"] {
        for backend in ["llvm", "cranelift"] {
            let place = Place::new();
            let model = sample(&format!("{name}/model.onnx.json"));
            // The suffix means nothing.
            place.succeed(&["compile", &model, "-o", "anything.onnx", "--backend", backend]);
            place.succeed(&["run", "anything.onnx", "--random", "7", "--output-dir", "compiled", "--threads", "2"]);
            place.succeed(&["run", &model, "--random", "7", "--output-dir", "here", "--backend", backend]);
            place.succeed(&["run", &model, "--random", "7", "--output-dir", "reference", "--backend", "reference"]);
            for folder in ["compiled", "here"] {
                assert_close(&place.path(folder).join("tensor_0.npy"), &place.path("reference/tensor_0.npy"));
            }
        }
    }
}

#[test]
fn symbolic_sizes_are_chosen_when_running() {
    let place = Place::new();
    std::fs::write(place.path("relu.onnx"), symbolic_model()).unwrap();
    let summary = place.succeed(&["compile", "relu.onnx"]);
    assert!(
        summary.contains("relu.nrsc: ") && summary.contains("kernels") && summary.contains("1 launch"),
        "{summary}"
    );
    assert_eq!(place.files(), ["relu.nrsc", "relu.onnx"]);

    npy::write(&place.path("x.npy"), &Tensor::from_f32(&[1, 3], &[-1.0, 2.0, 3.0])).unwrap();
    let shown = place.succeed(&["run", "relu.nrsc", "--input", "x=x.npy"]);
    assert!(shown.contains("f32[1, 3]") && shown.contains("20.000000, 300.000000"), "{shown}");
    std::fs::write(place.path("x.pb"), f32s(&[2, 3], &[1.0; 6]).encode_to_vec()).unwrap();
    assert!(place.succeed(&["run", "relu.nrsc", "--input", "x=x.pb"]).contains("f32[2, 3]"));
    let shown = place.succeed(&["run", "relu.nrsc", "--random", "1", "--dim", "batch=5"]);
    assert!(shown.contains("f32[5, 3]"), "{shown}");
    // As bench chooses them.
    let output = place.numrsc(&["run", "relu.nrsc", "--random", "1"]);
    assert!(stdout(&output).contains("f32[1, 3]") && stderr(&output).contains("batch=1"), "{}", stderr(&output));

    for (args, code, text) in [
        (&["run", "relu.nrsc"][..], 3, "x: f32[batch, 3]"),
        (&["run", "relu.nrsc", "--input", "z=x.npy"], 3, "no input `z`; its inputs are `x`"),
        (&["run", "relu.nrsc", "--input", "x=x.npy", "--input", "x=x.pb"], 2, "given twice"),
        (&["run", "relu.nrsc", "--input", "x=x.npy", "--backend", "llvm"], 2, "compiled already"),
        (&["run", "relu.nrsc", "--input", "x=x.npy", "--threads", "0"], 2, "threads"),
        (&["compile", "relu.nrsc"], 2, "compiled already"),
        (&["inspect", "relu.nrsc", "--ir"], 2, "no IR any more"),
    ] {
        let output = place.numrsc(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(text), "{args:?}: {}", stderr(&output));
    }
    npy::write(&place.path("wrong.npy"), &Tensor::from_f32(&[1, 4], &[0.0; 4])).unwrap();
    let output = place.numrsc(&["run", "relu.nrsc", "--input", "x=wrong.npy"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains('4') && stderr(&output).contains('3'), "{}", stderr(&output));
}

#[test]
fn the_same_model_gives_the_same_bytes() {
    let place = Place::new();
    let model = sample("cnn_stride/model.onnx.json");
    for (emit, backend) in [
        ("nrsc", "llvm"),
        ("nrsc", "cranelift"),
        ("obj", "llvm"),
        ("staticlib", "llvm"),
        ("so", "llvm"),
        ("asm", "llvm"),
    ] {
        let compile = |folder: &str, more: &[&str]| {
            std::fs::create_dir_all(place.path(folder)).unwrap();
            let out = format!("{folder}/model.bin");
            let mut args = vec!["compile", &model, "--quiet", "-o", &out, "--emit", emit, "--backend", backend];
            args.extend(more);
            assert_eq!(place.succeed(&args), "", "--quiet prints nothing");
            std::fs::read(place.path(&out)).unwrap()
        };
        let first = compile("a", &["--jobs", "1"]);
        assert_eq!(first, compile("b", &["--jobs", "2"]), "{emit}: from the cache");
        assert_eq!(first, compile("c", &["--jobs", "2", "--no-cache"]), "{emit}: without a cache");
    }
}

#[test]
fn the_second_time_everything_is_in_the_cache() {
    let place = Place::new();
    let model = sample("mlp_b1/model.onnx.json");
    let cached = |args: &[&str]| -> Vec<bool> {
        let mut all = vec!["compile", &model, "--report", "report.json"];
        all.extend(args);
        place.succeed(&all);
        let report = json(&std::fs::read_to_string(place.path("report.json")).unwrap());
        report["kernels"].as_array().unwrap().iter().map(|k| k["cached"].as_bool().unwrap()).collect()
    };
    assert!(cached(&[]).iter().all(|c| !c));
    assert!(cached(&[]).iter().all(|c| *c));
    assert!(cached(&["--no-cache"]).iter().all(|c| !c));

    // Without a place for a cache it works, and says so.
    std::fs::write(place.path("file"), "").unwrap();
    let mut command = place.command(&["compile", &model]);
    let output = command.env("XDG_CACHE_HOME", place.path("file")).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("without a cache"), "{}", stderr(&output));
}

#[test]
fn the_tolerance_chooses_among_convolutions() {
    let place = Place::new();
    std::fs::write(place.path("conv.onnx"), convolution_model()).unwrap();
    let compile = |args: &[&str], kernel: &str| {
        place.succeed(&[&["compile", "conv.onnx", "-o", "conv.nrsc", "--report", "report.json"], args].concat());
        let report = json(&std::fs::read_to_string(place.path("report.json")).unwrap());
        let names: Vec<&str> =
            report["kernels"].as_array().unwrap().iter().filter_map(|k| k["name"].as_str()).collect();
        assert!(names.iter().any(|n| n.starts_with(kernel)), "{args:?}: {names:?}");
        std::fs::read(place.path("conv.nrsc")).unwrap()
    };
    let default = compile(&[], "conv_winograd_2x2");
    compile(&["--tolerance", "0"], "conv_blocks");
    compile(&["--tolerance", "2e-5"], "conv_winograd_4x4");
    place.succeed(&["run", "conv.nrsc", "--random", "3", "--output-dir", "loose"]);
    place.succeed(&["run", "conv.onnx", "--random", "3", "--output-dir", "reference", "--backend", "reference"]);
    // 288 products of numbers up to 1/2 and 1: magnitudes add up to less than 144.
    let [got, expected] =
        ["loose", "reference"].map(|folder| npy::read(&place.path(folder).join("y.npy"), DType::F32).unwrap());
    let errors = got.to_f64s().into_iter().zip(expected.to_f64s()).map(|(a, b)| (a - b).abs());
    assert!(errors.fold(0.0, f64::max) < 2e-5 * 144.0);
    // The cache of kernels does not mix them up.
    assert_eq!(compile(&["--tolerance", "1e-6"], "conv_winograd_2x2"), default);
    for wrong in ["-1", "much", "NaN"] {
        let output = place.numrsc(&["compile", "conv.onnx", &format!("--tolerance={wrong}")]);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(stderr(&output).contains("not negative"), "{}", stderr(&output));
    }
}

#[test]
fn schedules_are_measured_once_and_kept_in_a_file() {
    let place = Place::new();
    std::fs::write(place.path("conv.onnx"), convolution_model()).unwrap();
    let compile = |args: &[&str]| {
        place.succeed(&[&["compile", "conv.onnx", "--report", "report.json"], args].concat());
        let report = json(&std::fs::read_to_string(place.path("report.json")).unwrap());
        (std::fs::read(place.path("conv.nrsc")).unwrap(), report)
    };
    let measured = |report: &serde_json::Value| report["options"]["tuned"]["measured_shapes"].clone();
    let (first, report) = compile(&["--tune"]);
    assert_eq!((measured(&report), place.path("conv.tune.json").exists()), (1.into(), true));
    let kept = std::fs::read_to_string(place.path("conv.tune.json")).unwrap();
    let (second, report) = compile(&["--tune", "--no-cache"]);
    assert_eq!((measured(&report), second == first), (0.into(), true), "nothing is measured again");
    assert_eq!(compile(&[]).1["options"]["tuned"], serde_json::Value::Null);

    // The file decides, wherever it is.
    let mut content = json(&kept);
    let shape = content["schedules"].as_object().unwrap().keys().next().unwrap().clone();
    assert!(shape.starts_with("conv of f32[1, ") && shape.contains("strides=[1, 1]"), "{shape}");
    content["schedules"][&shape] = "direct by 64 kB".into();
    std::fs::write(place.path("other.json"), content.to_string()).unwrap();
    let (_, report) = compile(&["--tune=other.json"]);
    assert_eq!(measured(&report), 0);
    let names: Vec<&str> = report["kernels"].as_array().unwrap().iter().filter_map(|k| k["name"].as_str()).collect();
    assert!(names.iter().any(|n| n.starts_with("conv_blocks")), "{names:?}");

    content["schedules"][&shape] = "by magic".into();
    let stale = content.to_string();
    content["machine"] = "a slide rule".into();
    let (elsewhere, unknown) = (content.to_string(), kept.replace("machine", "machinery"));
    for (text, message) in [
        (&kept[..kept.len() / 2], "EOF"),
        (&stale, "`by magic` is no schedule"),
        (&elsewhere, "`a slide rule`, but this is"),
        (&unknown, "machinery"),
    ] {
        std::fs::write(place.path("other.json"), text).unwrap();
        let output = place.numrsc(&["compile", "conv.onnx", "--tune=other.json"]);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(stderr(&output).contains("other.json") && stderr(&output).contains(message), "{}", stderr(&output));
    }
    // Another tolerance admits other schedules.
    let output = place.numrsc(&["compile", "conv.onnx", "--tune", "--tolerance", "0"]);
    assert!(stderr(&output).contains("tolerance 0e0"), "{}", stderr(&output));
}

#[test]
fn schedules_of_open_sizes_are_measured_by_typical_ones() {
    let place = Place::new();
    std::fs::write(place.path("conv.onnx"), open_convolution_model()).unwrap();
    place.succeed(&["compile", "conv.onnx", "--tune"]);
    let kept = json(&std::fs::read_to_string(place.path("conv.tune.json")).unwrap());
    let shapes: Vec<&String> = kept["schedules"].as_object().unwrap().keys().collect();
    assert!(matches!(&shapes[..], [shape] if shape.starts_with("conv of f32[_axis0, ")), "{shapes:?}");

    // Where there is nothing to choose, the file says so.
    std::fs::write(place.path("relu.onnx"), symbolic_model()).unwrap();
    place.succeed(&["compile", "relu.onnx", "--tune"]);
    let kept = json(&std::fs::read_to_string(place.path("relu.tune.json")).unwrap());
    assert_eq!(kept["schedules"], serde_json::json!({}));
}

#[test]
fn sizes_are_given_by_the_names_of_the_model_or_by_ours() {
    let place = Place::new();
    std::fs::write(place.path("conv.onnx"), open_convolution_model()).unwrap();
    for name in ["images.0", "images_0"] {
        let dim = format!("{name}=2");
        place.succeed(&["compile", "conv.onnx", "--dim", &dim, "--emit", "nir", "--report", "report.json"]);
        let report = json(&std::fs::read_to_string(place.path("report.json")).unwrap());
        assert_eq!(report["inputs"][0]["type"], "f32[2, 32, 24, 24]", "{name}");
    }
    let output = place.numrsc(&["compile", "conv.onnx", "--dim", "batch=2"]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.contains("no input has a dimension `batch`") && message.contains("images_0"), "{message}");

    place.succeed(&["compile", "conv.onnx"]);
    for command in [&["run", "conv.nrsc", "--random", "1"][..], &["bench", "conv.nrsc", "--runs", "1"]] {
        place.succeed(&[command, &["--dim", "images_0=2"]].concat());
        let output = place.numrsc(&[command, &["--dim", "batch=2"]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("--dim batch") && stderr(&output).contains("images_0"), "{}", stderr(&output));
    }
}

#[test]
fn the_report_has_it_all() {
    let place = Place::new();
    std::fs::write(place.path("relu.onnx"), symbolic_model()).unwrap();
    place.succeed(&[
        "compile",
        "relu.onnx",
        "--report",
        "a.json",
        "--sanitize",
        "--cpu",
        "x86-64-v3",
        "--target",
        "x86_64-unknown-linux-gnu",
    ]);
    let report = json(&std::fs::read_to_string(place.path("a.json")).unwrap());
    assert_eq!(report["inputs"][0], serde_json::json!({ "name": "x", "type": "f32[batch, 3]" }));
    assert_eq!(report["outputs"][0]["name"], "y");
    assert_eq!(report["options"]["cpu"], "x86-64-v3");
    assert_eq!(report["options"]["sanitize"], true);
    assert_eq!(report["output_bytes"], std::fs::metadata(place.path("relu.nrsc")).unwrap().len());
    assert!(report["kernels"].as_array().unwrap().iter().all(|k| k["name"].is_string() && k["bytes"].is_u64()));
    assert!(report["launches"].as_u64().unwrap() >= 1 && report["weight_bytes"].as_u64().unwrap() >= 12);
    assert!(report["memory"]["heap"].is_boolean() && report["memory"]["depends_on"].is_array());
    let phases: Vec<&str> = report["phases"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    let passes = numrsc_passes::PIPELINE.iter().map(|pass| pass.name);
    let expected: Vec<&str> = ["load"].into_iter().chain(passes).chain(["generate", "write"]).collect();
    assert_eq!(phases, expected);

    place.succeed(&["compile", "relu.onnx", "--report", "b.json", "--dim", "batch=4", "--emit", "nir"]);
    let report = json(&std::fs::read_to_string(place.path("b.json")).unwrap());
    assert_eq!(report["inputs"][0]["type"], "f32[4, 3]");
    assert_eq!(report["options"]["dims"]["batch"], 4);
    assert_eq!(report["code_bytes"], serde_json::Value::Null);
}

#[test]
fn texts_are_written_and_only_where_they_exist() {
    let place = Place::new();
    let model = sample("mlp_b1/model.onnx.json");
    for (emit, file, part) in
        [("nir", "model.nir", "entry"), ("llvm-ir", "model.ll", "define "), ("asm", "model.s", ".text")]
    {
        place.succeed(&["compile", &model, "--emit", emit]);
        let text = std::fs::read_to_string(place.path(file)).unwrap();
        assert!(text.contains(part), "{emit}: {text}");
    }
    let module = std::fs::read_to_string(place.path("model.nir")).unwrap();
    assert_eq!(numrsc_ir::kernel::parse(&module).unwrap().to_string(), module);
    for emit in ["llvm-ir", "asm"] {
        let output = place.numrsc(&["compile", &model, "--emit", emit, "--backend", "cranelift", "-o", "none"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("only --backend llvm"), "{}", stderr(&output));
    }
    for target in [&["--cpu", "pentium-9000"][..], &["--target", "pdp11-dec-unix"], &["--emit", "dll"]] {
        let output = place.numrsc(&[&["compile", &model, "-o", "none"], target].concat());
        assert_eq!(output.status.code(), Some(2), "{target:?}: {}", stderr(&output));
    }
    assert_eq!(place.files(), ["model.ll", "model.nir", "model.s"]);
}

#[test]
fn nothing_is_left_of_what_cannot_be_written() {
    let place = Place::new();
    let model = sample("mlp_b1/model.onnx.json");
    std::fs::create_dir_all(place.path("taken/inside")).unwrap();
    for emit in ["nrsc", "so", "obj", "staticlib", "nir"] {
        for out in ["missing/folder/out", "taken"] {
            let output = place.numrsc(&["compile", &model, "--emit", emit, "-o", out]);
            assert_eq!(output.status.code(), Some(3), "{emit} {out}: {}", stderr(&output));
            assert!(stderr(&output).contains(out), "{}", stderr(&output));
        }
    }
    assert_eq!(place.files(), ["taken"]);
    assert_eq!(std::fs::read_dir(place.path("taken")).unwrap().count(), 1);
}

/// As `-o /dev/null`, which would be a file for everybody afterwards.
#[test]
#[cfg(unix)]
fn devices_and_pipes_are_written_to_and_not_replaced() {
    use std::os::unix::fs::FileTypeExt;
    let place = Place::new();
    let model = sample("mlp_b1/model.onnx.json");
    std::fs::create_dir(place.path("expected")).unwrap();
    assert!(Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success());
    for emit in ["nrsc", "so", "nir"] {
        place.succeed(&["compile", &model, "--emit", emit, "-o", "expected/pipe"]);
        let pipe = place.path("pipe");
        let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
        place.succeed(&["compile", &model, "--emit", emit, "-o", "pipe"]);
        assert!(std::fs::metadata(place.path("pipe")).unwrap().file_type().is_fifo(), "{emit}");
        assert!(reader.join().unwrap() == std::fs::read(place.path("expected/pipe")).unwrap(), "{emit}");
    }
}

#[test]
fn code_for_other_machines_is_written_and_not_run() {
    let place = Place::new();
    let model = sample("mlp_b1/model.onnx.json");
    for (target, architecture) in [
        ("aarch64-unknown-linux-gnu", object::Architecture::Aarch64),
        ("riscv64gc-unknown-linux-gnu", object::Architecture::Riscv64),
        ("x86_64-unknown-linux-gnu", object::Architecture::X86_64),
    ] {
        place.succeed(&["compile", &model, "--target", target, "--emit", "so", "-o", "libmodel.so"]);
        let bytes = std::fs::read(place.path("libmodel.so")).unwrap();
        assert_eq!(object::File::parse(&*bytes).unwrap().architecture(), architecture);
    }
    place.succeed(&["compile", &model, "--target", "riscv64gc-unknown-linux-gnu"]);
    let shown = place.succeed(&["check", "model.nrsc"]);
    assert!(shown.contains(": ok, ") && shown.contains("cannot run here"), "{shown}");
    let output = place.numrsc(&["run", "model.nrsc", "--random", "1"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("riscv64"), "{}", stderr(&output));
}

#[test]
fn damaged_artifacts_are_noticed() {
    let place = Place::new();
    place.succeed(&["compile", &sample("mlp_trained/model.onnx.json")]);
    let shown = place.succeed(&["check", "model.nrsc"]);
    assert!(shown.contains("ok, an artifact of `model`") && !shown.contains("cannot run"), "{shown}");
    let good = std::fs::read(place.path("model.nrsc")).unwrap();
    let damage = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        std::fs::write(place.path("bad.nrsc"), bytes).unwrap();
    };

    damage(good.len() - 1);
    let output = place.numrsc(&["check", "model.nrsc", "bad.nrsc"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("bad.nrsc") && stderr(&output).contains("weights"), "{}", stderr(&output));
    let report = json(&stdout(&place.numrsc(&["check", "--json", "model.nrsc", "bad.nrsc"])));
    assert_eq!((&report[0]["ok"], &report[1]["ok"]), (&true.into(), &false.into()));
    assert_eq!(report[0]["artifact"]["inputs"][0]["name"], "tensor_5");

    damage(200);
    for (command, code) in [(&["check", "bad.nrsc"][..], 1), (&["inspect", "bad.nrsc"], 1), (&["bench", "bad.nrsc"], 3)]
    {
        let output = place.numrsc(command);
        assert_eq!(output.status.code(), Some(code), "{command:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("manifest"), "{}", stderr(&output));
    }
    std::fs::write(place.path("bad.nrsc"), &good[..good.len() / 2]).unwrap();
    assert_eq!(place.numrsc(&["run", "bad.nrsc", "--random", "1"]).status.code(), Some(3));
}

#[test]
fn artifacts_can_be_inspected() {
    let place = Place::new();
    std::fs::write(place.path("relu.onnx"), symbolic_model()).unwrap();
    place.succeed(&["compile", "relu.onnx"]);
    let people = place.succeed(&["inspect", "relu.nrsc"]);
    for part in ["target", "CPU features", "batch", "f32[batch, 3]", "functions (", "arena"] {
        assert!(people.contains(part), "{part}: {people}");
    }
    let report = json(&place.succeed(&["inspect", "--json", "relu.nrsc"]));
    assert_eq!(report["model"], "relu");
    assert_eq!(report["dims"], serde_json::json!(["batch"]));
    assert!(!report["functions"].as_array().unwrap().is_empty());
}

#[test]
fn the_ir_after_every_pass_can_be_seen() {
    let place = Place::new();
    let model = sample("mlp_b1/model.onnx.json");
    for pass in numrsc_passes::PIPELINE {
        assert!(!pass.why.is_empty());
        let text = place.succeed(&["inspect", &model, "--after", pass.name]);
        assert!(text.contains(if pass.name == "lower" { "entry" } else { "contract" }), "{}: {text}", pass.name);
    }
    let one = place.succeed(&["inspect", &model, "--after", "lower"]);
    let other = place.succeed(&["inspect", &model, "--after", "lower", "--sanitize"]);
    assert!(numrsc_ir::kernel::parse(&one).is_ok() && one != other);
    let unknown = place.numrsc(&["inspect", &model, "--after", "nonsense"]);
    assert_eq!(unknown.status.code(), Some(2));
    for pass in numrsc_passes::PIPELINE {
        assert!(stderr(&unknown).contains(pass.name), "{}", stderr(&unknown));
    }
}

#[test]
fn bench_measures_models_and_artifacts() {
    let place = Place::new();
    std::fs::write(place.path("relu.onnx"), symbolic_model()).unwrap();
    place.succeed(&["compile", "relu.onnx"]);
    for (file, compiled) in [("relu.onnx", true), ("relu.nrsc", false)] {
        let report = json(&place.succeed(&["bench", file, "--runs", "5", "--threads", "1", "--json"]));
        assert_eq!((&report["runs"], &report["threads"]), (&5.into(), &1.into()));
        assert_eq!(report["dims"]["batch"], 1);
        assert_eq!(report["compile_seconds"].is_f64(), compiled);
        let time = |name: &str| report[name].as_f64().unwrap();
        assert!(time("best_seconds") <= time("p50_seconds") && time("p50_seconds") <= time("p99_seconds"));
        assert!(report["artifact_bytes"].as_u64().unwrap() > 4096);
        if cfg!(target_os = "linux") {
            assert!(report["peak_memory_bytes"].as_u64().unwrap() > 0);
        }
    }
    let people = place.succeed(&["bench", "relu.nrsc", "--runs", "2", "--dim", "batch=7"]);
    assert!(people.contains("batch=7") && people.contains("p99") && people.contains("runs/s"), "{people}");
    assert_eq!(place.numrsc(&["bench", "missing.onnx"]).status.code(), Some(3));
    // The sizes that it ran, wherever they came from.
    npy::write(&place.path("x.npy"), &Tensor::from_f32(&[9, 3], &[1.0; 27])).unwrap();
    let bench = |args: &[&str]| place.succeed(&[&["bench", "--runs", "2"], args].concat());
    let people = bench(&["relu.nrsc", "--input", "x=x.npy"]);
    assert!(people.contains("batch=9") && people.contains("x f32[9, 3]"), "{people}");
    assert!(bench(&["relu.onnx", "--dim", "batch=7"]).contains("x f32[7, 3]"));
    let report = json(&bench(&["relu.nrsc", "--input", "x=x.npy", "--json"]));
    assert_eq!((&report["dims"]["batch"], &report["inputs"][0]["type"]), (&9.into(), &"f32[9, 3]".into()));
    npy::write(&place.path("wrong.npy"), &Tensor::from_f32(&[1, 4], &[0.0; 4])).unwrap();
    let output = place.numrsc(&["bench", "relu.nrsc", "--input", "x=wrong.npy"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("hint: it ran with batch=1"), "{}", stderr(&output));
}

#[test]
fn test_folders_run_on_every_backend() {
    let place = Place::new();
    write_test_folder(&place.path("good"), &[1.0, 0.0, 300.0, 0.0, 50.0, 600.0]);
    write_test_folder(&place.path("bad"), &[1.0, 0.0, 300.0, 0.0, 50.0, 601.0]);
    for backend in ["reference", "llvm", "cranelift"] {
        let compiled = if backend == "reference" { &[][..] } else { &["--threads", "2", "--sanitize"] };
        let shown = place.succeed(&[&["test", "good", "--backend", backend], compiled].concat());
        assert!(shown.contains("1 passed, 0 failed, 0 skipped"), "{shown}");
        let output = place.numrsc(&["test", "good", "bad", "--backend", backend, "--jobs", "1"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stdout(&output).contains("FAIL bad: test_data_set_0: output 0 `y`"), "{}", stdout(&output));
    }
}

#[test]
fn every_command_has_help() {
    let place = Place::new();
    let all = place.succeed(&["--help"]);
    for command in ["compile", "run", "bench", "check", "inspect", "test", "completions"] {
        assert!(all.contains(&format!("\n  {command} ")), "{command}: {all}");
        let help = place.succeed(&[command, "--help"]);
        assert!(help.contains("Usage: numrsc") && help.contains("--quiet"), "{help}");
    }
    let compile = place.succeed(&["compile", "--help"]);
    for part in [
        "--emit",
        "staticlib",
        "--backend",
        "--target",
        "--cpu",
        "--dim",
        "--no-cache",
        "--report",
        "--jobs",
        "--sanitize",
    ] {
        assert!(compile.contains(part), "{part}: {compile}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn an_executable_runs_by_itself() {
    let place = Place::new();
    std::fs::write(place.path("relu.onnx"), symbolic_model()).unwrap();
    let summary = place.succeed(&["compile", "relu.onnx", "--emit", "exe"]);
    assert!(summary.starts_with("relu: "), "{summary}");
    assert_eq!(place.files(), ["relu", "relu.onnx"], "and no header");
    let x = Tensor::from_f32(&[2, 3], &[1.0, -2.0, 3.0, -4.0, 5.0, 6.0]);
    std::fs::write(place.path("x"), x.bytes()).unwrap();
    let output = Command::new(place.path("relu")).args(["--input", "x"]).current_dir(place.path("")).output().unwrap();
    std::fs::write(place.path("y.npy"), &output.stdout).unwrap();
    let y = npy::read(&place.path("y.npy"), DType::F32).unwrap();
    assert_eq!(y, Tensor::from_f32(&[2, 3], &[1.0, 0.0, 300.0, 0.0, 50.0, 600.0]));

    // A pipe does not tell how much is to come: memory grows, and what is given back is used again.
    let rows = 300_000;
    let x: Vec<f32> = (0..3 * rows).map(|i| (i % 1009) as f32 - 500.0).collect();
    let expected: Vec<f32> =
        x.iter().zip([1.0, 10.0, 100.0].iter().cycle()).map(|(x, scale)| x.max(0.0) * scale).collect();
    let mut child = Command::new(place.path("relu")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(Tensor::from_f32(&[3 * rows], &x).bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    std::fs::write(place.path("y.npy"), &output.stdout).unwrap();
    let y = npy::read(&place.path("y.npy"), DType::F32).unwrap();
    assert!(y == Tensor::from_f32(&[rows, 3], &expected));

    // Names are the model's, and are shown so that they do not control a terminal.
    let mut hostile = ModelProto::decode(&symbolic_model()[..]).unwrap();
    let graph = hostile.graph.as_mut().unwrap();
    graph.input[0].name = "x\u{1b}[2J".into();
    graph.node[0].input[0] = "x\u{1b}[2J".into();
    std::fs::write(place.path("hostile.onnx"), hostile.encode_to_vec()).unwrap();
    place.succeed(&["compile", "hostile.onnx", "--emit", "exe"]);
    for argument in ["--help", "--input"] {
        let output = Command::new(place.path("hostile")).args([argument, "z=z"]).output().unwrap();
        let text = stdout(&output) + &stderr(&output);
        assert!(text.contains("x\\u{1b}[2J") && !text.contains('\u{1b}'), "{text:?}");
    }

    let refused = place.numrsc(&["compile", "relu.onnx", "--emit", "exe", "--target", "thumbv7em-none-eabihf"]);
    assert!(stderr(&refused).contains("executables are for Linux"), "{}", stderr(&refused));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn versions_for_several_cpus() {
    let place = Place::new();
    std::fs::write(place.path("relu.onnx"), symbolic_model()).unwrap();
    npy::write(&place.path("x.npy"), &Tensor::from_f32(&[1, 3], &[-1.0, 2.0, 3.0])).unwrap();
    let run = |place: &Place| place.succeed(&["run", "relu.nrsc", "--input", "x=x.npy"]);
    place.succeed(&["compile", "relu.onnx", "--cpu", "x86-64"]);
    let expected = run(&place);

    let summary = place.succeed(&["compile", "relu.onnx", "--cpu", "x86-64,native,sapphirerapids"]);
    assert!(summary.contains("also for x86-64, native"), "{summary}");
    assert_eq!(run(&place), expected);
    let report = json(&place.succeed(&["inspect", "relu.nrsc", "--json"]));
    assert!(report["cpu_features"].to_string().contains("avx512fp16"), "{report}");
    assert_eq!(report["other_versions"].as_array().unwrap().len(), 2);
    assert_eq!(report["other_versions"][0]["cpu_features"], json("[]"));
    assert_eq!(place.succeed(&["check", "relu.nrsc"]).matches(": ok, ").count(), 3);

    let refused = place.numrsc(&["compile", "relu.onnx", "--cpu", "x86-64,pentium"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    let refused = place.numrsc(&["compile", "relu.onnx", "--cpu", "x86-64,native", "--emit", "obj"]);
    assert!(stderr(&refused).contains("artifacts only"), "{}", stderr(&refused));
}

#[test]
fn targets_are_listed_as_they_can_be_given() {
    let place = Place::new();
    std::fs::write(place.path("relu.onnx"), symbolic_model()).unwrap();
    let people = place.succeed(&["targets"]);
    assert!(people.contains("This machine is ") && people.contains("x86-64-v3, haswell"), "{people}");
    let report = json(&place.succeed(&["targets", "--json"]));
    let targets = report["targets"].as_array().unwrap();
    assert!(targets.len() >= 3);
    for target in targets {
        // The last of them has most of the features, or none.
        let cpu = target["cpus"].as_array().unwrap().last().unwrap()["names"][0].as_str().unwrap();
        let triple = target["triple"].as_str().unwrap();
        let kind = if triple.starts_with("wasm") { "wasm" } else { "obj" };
        place.succeed(&["compile", "relu.onnx", "--target", triple, "--cpu", cpu, "--emit", kind]);
    }
    let refused = place.numrsc(&["compile", "relu.onnx", "--target", "thumbv7em-none-eabihf"]);
    assert!(stderr(&refused).contains("there are objects only: --emit obj or staticlib"), "{}", stderr(&refused));
}
