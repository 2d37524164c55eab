//! The manners of the command: what it refuses, what it says, and how it takes its inputs.
mod common;

use common::{Place, sample, stderr, stdout, symbolic_model, write_test_folder};

/// A place with `relu.onnx`, `y = relu(x) * scale` for `x: f32[batch, 3]`, and its artifact.
fn relu() -> Place {
    let place = Place::new();
    std::fs::write(place.path("relu.onnx"), symbolic_model()).unwrap();
    place.succeed(&["compile", "relu.onnx", "--backend", "cranelift", "-q"]);
    place
}

#[test]
fn a_summary_has_five_lines_and_more_on_request() {
    let place = relu();
    let short = place.succeed(&["compile", "relu.onnx"]);
    assert!(short.lines().count() <= 5 && short.contains("-v says more"), "{short}");
    assert!(short.contains("1 launch") && short.contains("memory") && !short.contains("optimise "), "{short}");
    let long = place.succeed(&["compile", "relu.onnx", "-v"]);
    assert!(long.contains("cached") && long.contains("import ") && long.contains("lower "), "{long}");
    let object = place.succeed(&["compile", "relu.onnx", "--emit", "obj"]);
    assert!(object.contains("with its header relu.h") && object.lines().count() <= 5, "{object}");
}

#[test]
fn sizes_are_opened_and_what_fixes_them_is_named() {
    let place = Place::new();
    let (fits, fixed) = (sample("mlp_b1/model.onnx.json"), sample("reshape/model.onnx.json"));
    let run = ["run", &fits, "-q", "--json", "--random", "1", "--backend", "cranelift"];
    let shape = |more: &[&str]| {
        let shown: serde_json::Value = serde_json::from_str(&place.succeed(&[&run, more].concat())).unwrap();
        shown["outputs"][0]["value"]["shape"][0].clone()
    };
    assert_eq!(shape(&[]), 1);
    assert_eq!(shape(&["--open", "tensor_5:0=batch", "--dim", "batch=5"]), 5);
    place.succeed(&["compile", &fits, "-q", "--open", "tensor_5:0=batch", "-o", "open.nrsc"]);
    assert!(place.succeed(&["inspect", "open.nrsc"]).contains("f32[batch, 10]"));

    let refused = place.numrsc(&["compile", &fixed, "--open", "tensor_2:0=batch"]);
    assert_eq!(refused.status.code(), Some(1));
    let text = stderr(&refused);
    assert!(text.contains("node #1 `node_4_tensor_0` (Reshape, opset 18): with batch=8 instead of 4: "), "{text}");
    for wrong in ["tensor_5=batch", "tensor_5:x=batch", "tensor_5:0=5"] {
        assert_eq!(place.numrsc(&["check", &fits, "--open", wrong]).status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn what_has_no_meaning_is_refused() {
    let place = relu();
    let refused = |args: &[&str]| {
        let output = place.numrsc(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}{}", stdout(&output), stderr(&output));
        stderr(&output)
    };
    for option in [&["-O", "3"][..], &["--threads", "2"], &["--sanitize"], &["--no-cache"]] {
        let run = ["run", "relu.onnx", "--backend", "reference", "--random", "1"];
        let text = refused(&[&run, option].concat());
        assert!(text.contains("the reference evaluator") && text.contains(option[0]), "{text}");
    }
    write_test_folder(&place.path("t"), &[1.0, 0.0, 300.0, 0.0, 50.0, 600.0]);
    assert!(refused(&["test", "t", "-O", "3"]).contains("compiles nothing"));
    for command in ["check", "inspect"] {
        assert!(refused(&[command, "relu.nrsc", "--dim", "batch=1"]).contains("its sizes are its own"));
    }
    assert!(refused(&["inspect", "relu.nrsc", "-O", "3"]).contains("compiled already"));
    assert!(refused(&["run", "relu.nrsc", "--random", "1", "--open", "x:0=n"]).contains("--open x:0"));
    // Where one of several is a model, an option is for that one.
    place.succeed(&["bench", "relu.nrsc", "relu.onnx", "-O", "1", "--runs", "1", "--backend", "cranelift"]);
    assert!(refused(&["bench", "relu.nrsc", "relu.nrsc", "-O", "1"]).contains("compiled already"));
}

#[test]
fn targets_and_passes_that_are_nearly_right_are_named() {
    let place = relu();
    let text = |args: &[&str]| stderr(&place.numrsc(args));
    for (target, meant) in [
        ("x86-64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"),
        ("aarch64-unknown-linux-gnuu", "aarch64-unknown-linux-gnu"),
        ("riscv64gc-unknown-linx-gnu", "riscv64gc-unknown-linux-gnu"),
    ] {
        let text = text(&["compile", "relu.onnx", "--target", target]);
        assert!(text.contains(&format!("is `{meant}` meant?")) && text.contains("`numrsc targets` lists"), "{text}");
    }
    let cpu = text(&["compile", "relu.onnx", "--target", "x86_64-unknown-linux-gnu", "--cpu", "x86-64v3"]);
    assert!(cpu.contains("is `x86-64-v3` meant?") && cpu.contains("`numrsc targets` lists"), "{cpu}");
    let pass = text(&["inspect", "relu.onnx", "--after", "optimize"]);
    assert!(pass.contains("is `optimise` meant?") && pass.contains("fold-again"), "{pass}");
    let rule = text(&["compile", "relu.onnx", "--without-rule", "unrol"]);
    assert!(rule.contains("is `unroll` meant?") && rule.contains("--explain"), "{rule}");
    // Other systems of the same processors are no mistakes.
    place.succeed(&["compile", "relu.onnx", "-q", "--target", "aarch64-unknown-linux-musl", "--emit", "obj"]);
}

#[test]
fn arrays_come_from_archives_of_numpy() {
    let place = Place::new();
    let model = sample("mlp_b1/model.onnx.json");
    let run = |input: &str| place.numrsc(&["run", &model, "--backend", "reference", "--input", input]);
    let archive = sample("mlp_b1/inputs.npz");
    let good = run(&format!("tensor_5={archive}:tensor_5"));
    assert_eq!(good.status.code(), Some(0), "{}", stderr(&good));
    let near = stderr(&run(&format!("tensor_5={archive}:tensor_4")));
    assert!(near.contains("has no array `tensor_4`; it has `tensor_5`; is `tensor_5` meant?"), "{near}");
    assert!(stderr(&run(&format!("tensor_5={archive}"))).contains("inputs.npz:KEY"));
    // What `numpy.savez_compressed` writes, by Python's own library.
    let script = format!(
        "import zipfile; a = zipfile.ZipFile({archive:?}); b = zipfile.ZipFile('small.npz', 'w', zipfile.ZIP_DEFLATED)\n\
         b.writestr('other.npy', b'no array'); b.writestr('tensor_5.npy', a.read('tensor_5.npy')); b.close()"
    );
    let python = std::process::Command::new("python3").args(["-c", &script]).current_dir(place.path("")).status();
    assert!(python.unwrap().success());
    let small = run("tensor_5=small.npz:tensor_5");
    assert_eq!((small.status.code(), stdout(&small)), (Some(0), stdout(&good)), "{}", stderr(&small));
    assert!(stderr(&run("tensor_5=small.npz:other")).contains("not a .npy file"));
}

#[test]
fn models_and_artifacts_are_measured_in_turns() {
    let place = relu();
    let bench = ["bench", "relu.onnx", "relu.nrsc", "--backend", "cranelift", "--threads", "1", "--warm-up", "0.01"];
    let people = place.succeed(&[&bench[..], &["--runs", "3"]].concat());
    let lines: Vec<&str> = people.lines().collect();
    assert!(lines[0].starts_with("model ") && lines[0].contains("p50") && lines[0].contains("speed"), "{people}");
    let last: Vec<&str> = lines[1].split_whitespace().rev().take(2).collect();
    assert!(lines[1].starts_with("relu.onnx ") && last == ["1.00", "3"], "{people}");
    assert!(lines[2].starts_with("relu.nrsc ") && people.contains("in turns, on 1 thread;"), "{people}");

    let json = place.succeed(&[&bench[..], &["--duration", "0.05", "--json", "--input", "x=zeros"]].concat());
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    for (at, model) in report["models"].as_array().unwrap().iter().enumerate() {
        let number = |name: &str| model[name].as_f64().unwrap();
        assert!(number("runs") >= 10.0 && number("artifact_bytes") > 4096.0, "{model}");
        assert!(number("best_seconds") <= number("p50_seconds") && number("p50_seconds") <= number("max_seconds"));
        assert!(number("mean_seconds") > 0.0 && number("deviation_seconds") >= 0.0 && number("ratio") > 0.0);
        // Not a number of runs, but a time.
        assert!(number("runs") * number("mean_seconds") >= 0.05, "{model}");
        assert_eq!(model["compile_seconds"].is_f64(), at == 0, "{model}");
        assert!(at > 0 || model["ratio"] == 1.0, "{model}");
    }
    // An input that only one of them has is for that one; one that none has is a mistake.
    let other = sample("mlp_b1/model.onnx.json");
    place.succeed(&[
        "bench",
        "relu.nrsc",
        &other,
        "--backend",
        "cranelift",
        "--input",
        "tensor_5=zeros",
        "--runs",
        "1",
    ]);
    let wrong = place.numrsc(&["bench", "relu.nrsc", "relu.nrsc", "--input", "z=zeros", "--runs", "1"]);
    assert!(stderr(&wrong).contains("no input `z`; its inputs are `x`"), "{}", stderr(&wrong));
}

#[test]
#[cfg(target_os = "linux")]
fn programs_choose_open_sizes_as_run_and_bench_do() {
    let place = relu();
    place.succeed(&["compile", "relu.onnx", "-q", "--emit", "exe"]);
    let program = std::process::Command::new(place.path("relu")).arg("--bench").output().unwrap();
    assert!(
        stdout(&program).contains(" runs with batch=1 on one thread: "),
        "{}{}",
        stdout(&program),
        stderr(&program)
    );
    let bench = place.succeed(&["bench", "relu.nrsc", "--runs", "1"]);
    assert!(bench.contains("batch=1"), "{bench}");
    let run = place.numrsc(&["run", "relu.nrsc", "--random", "1"]);
    assert!(stderr(&run).contains("batch=1"), "{}", stderr(&run));
}
