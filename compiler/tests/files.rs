//! Files and terminals: what strangers write does not control a terminal, and files are right or absent, whatever happens to disk, cache and process.
mod common;

use common::{Place, f32s, sample, stderr, stdout, symbolic_model};
use numrsc::onnx::proto::{ModelProto, StringStringEntryProto, TensorProto};
use numrsc_runtime::Visible;
use prost::Message;
use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

/// Clears the screen, names the window, turns what follows around, and looks like a message of ours.
const HOSTILE: &str = "x\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}\u{9b}31m\nerror: nothing";

fn changed(change: impl FnOnce(&mut ModelProto)) -> Vec<u8> {
    let mut model = ModelProto::decode(&symbolic_model()[..]).unwrap();
    change(&mut model);
    model.encode_to_vec()
}

/// The model with another name of its input, and of everything else that is not looked up.
fn hostile_model() -> Vec<u8> {
    changed(|model| {
        let graph = model.graph.as_mut().unwrap();
        graph.input[0].name = HOSTILE.into();
        graph.node[0].input[0] = HOSTILE.into();
        graph.node[0].name = HOSTILE.into();
        graph.output[0].name = format!("y{HOSTILE}");
        graph.node[1].output[0] = format!("y{HOSTILE}");
        model.producer_name = HOSTILE.into();
    })
}

/// A tensor of this size whose values are in another file.
fn external(name: &str, location: &str, rows: usize) -> TensorProto {
    let entry = |(key, value): (&str, String)| StringStringEntryProto { key: key.into(), value: value.into() };
    let data = [("location", location.to_owned()), ("length", (12 * rows).to_string())];
    TensorProto {
        name: name.into(),
        dims: vec![rows as i64, 3],
        data_type: 1,
        data_location: 1,
        external_data: data.map(entry).into(),
        ..TensorProto::default()
    }
}

const ROWS: usize = 100_000;

/// The model with weights of 1.2 MB in `weights`.
fn write_large_model(place: &Place) {
    use numrsc::onnx::proto::{DimensionValue, TypeValue};
    let model = changed(|model| {
        let graph = model.graph.as_mut().unwrap();
        graph.initializer = vec![external("scale", "weights", ROWS)];
        let Some(TypeValue::Tensor(ty)) = &mut graph.input[0].r#type.as_mut().unwrap().value else { unreachable!() };
        ty.shape.as_mut().unwrap().dim[0].value = Some(DimensionValue::Value(ROWS as i64));
    });
    fs::write(place.path("model.onnx"), model).unwrap();
    let values: Vec<u8> = (0..3 * ROWS).flat_map(|i| ((i % 251) as f32).to_le_bytes()).collect();
    fs::write(place.path("weights"), values).unwrap();
}

fn assert_visible(what: &str, output: &Output) {
    for (stream, text) in [("stdout", stdout(output)), ("stderr", stderr(output))] {
        assert!(!text.chars().any(Visible::hides), "{what}: {stream}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("error: nothing")), "{what}: {stream}: {text:?}");
    }
}

#[test]
fn what_is_in_a_file_does_not_control_the_terminal() {
    let place = Place::new();
    fs::write(place.path("m.onnx"), hostile_model()).unwrap();
    fs::write(place.path("bad.onnx"), changed(|m| m.graph.as_mut().unwrap().node[0].op_type = HOSTILE.into())).unwrap();
    let hidden = "\u{1b}[2J.onnx";
    fs::write(place.path(hidden), b"nothing").unwrap();
    for (args, code) in [
        (&["compile", "m.onnx"][..], 0),
        (&["compile", "m.onnx", "--emit", "obj"], 0),
        (&["check", "m.onnx", "m.nrsc"], 0),
        (&["check", "bad.onnx"], 1),
        (&["inspect", "m.onnx"], 0),
        (&["inspect", "m.onnx", "--ir"], 0),
        (&["inspect", "m.onnx", "--dot"], 0),
        (&["inspect", "m.nrsc"], 0),
        (&["run", "m.onnx"], 3),
        (&["run", "m.nrsc", "--input", "z=file"], 3),
        (&["run", "m.nrsc", "--random", "1", "--output-dir", "out"], 0),
        (&["run", "m.nrsc", "--random", "1", "--json"], 0),
        (&["run", "m.onnx", "--backend", "reference", "--random", "1", "--dim", "batch=2"], 0),
        (&["bench", "m.nrsc", "--runs", "1"], 0),
        (&["check", hidden], 1),
        (&[hidden], 2),
    ] {
        let output = place.numrsc(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
        assert_visible(&format!("{args:?}"), &output);
    }
    for args in
        [&["inspect", "--json", "m.onnx"][..], &["inspect", "--json", "m.nrsc"], &["check", "--json", "bad.onnx"]]
    {
        let output = place.numrsc(args);
        assert_visible(&format!("{args:?}"), &output);
        let read: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = [&read["inputs"][0]["name"], &read[0]["problems"][0]["operator"]];
        assert!(found.iter().any(|name| name.as_str().is_some_and(|name| name.starts_with(HOSTILE))), "{read}");
    }
    for file in fs::read_dir(place.path("out")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(name.starts_with("yx") && !name.chars().any(char::is_control), "{name:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn results_that_nobody_takes() {
    let place = Place::new();
    let model = sample("mlp_trained/model.onnx.json");
    for args in
        [&["inspect", &model, "--ir"][..], &["inspect", &model], &["targets"], &["--help"], &["completions", "zsh"]]
    {
        // A reader that left: no panic, no word, and what was asked for was done.
        let mut child = place.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), &stderr(&output)[..]), (Some(0), ""), "{args:?}");
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = place.command(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{args:?}");
        assert!(stderr(&output).starts_with("error: standard output: "), "{args:?}: {}", stderr(&output));
    }
}

/// As of `<(...)` in a shell: it can be read once.
#[test]
#[cfg(unix)]
fn models_come_through_pipes() {
    use std::io::Write;
    let place = relu_with_artifact();
    let through_pipe = |args: &[&str], file: &str| {
        let content = fs::read(place.path(file)).unwrap();
        let streams = |command: &mut Command| {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut child = streams(&mut place.command(args));
        child.stdin.take().unwrap().write_all(&content).unwrap();
        child.wait_with_output().unwrap()
    };
    for args in [&["check", "/dev/stdin"][..], &["inspect", "/dev/stdin"], &["compile", "/dev/stdin", "-o", "piped"]] {
        let output = through_pipe(args, "relu.onnx");
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    }
    let output = through_pipe(&["run", "/dev/stdin", "--random", "1"], "relu.nrsc");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("an artifact, which has to be a file"), "{}", stderr(&output));
}

/// A place with `relu.onnx` and `relu.nrsc`.
fn relu_with_artifact() -> Place {
    let place = Place::new();
    fs::write(place.path("relu.onnx"), symbolic_model()).unwrap();
    place.succeed(&["compile", "relu.onnx", "-q"]);
    place
}

#[test]
fn every_output_has_a_file_of_its_own() {
    let place = Place::new();
    let model = changed(|model| {
        let graph = model.graph.as_mut().unwrap();
        graph.output[0].name = "a/b".into();
        graph.node[1].output[0] = "a/b".into();
        let mut other = graph.output[0].clone();
        other.name = "a_b".into();
        graph.output.push(other);
        graph.node[0].output[0] = "a_b".into();
        graph.node[1].input[0] = "a_b".into();
    });
    fs::write(place.path("m.onnx"), model).unwrap();
    let args = ["run", "m.onnx", "--backend", "reference", "--random", "1", "--output-dir", "out"];
    let output = place.numrsc(&args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("`a/b` is in") && stderr(&output).contains("a_b-2.npy"), "{}", stderr(&output));
    let [first, second] = ["out/a_b.npy", "out/a_b-2.npy"].map(|file| fs::read(place.path(file)).unwrap());
    assert!(first != second);
}

#[test]
#[cfg(unix)]
fn no_two_files_are_one() {
    let place = Place::new();
    write_large_model(&place);
    for (link, to) in [("link.onnx", "model.onnx"), ("here", "."), ("other.nrsc", "new.nrsc"), ("data", "weights")] {
        std::os::unix::fs::symlink(to, place.path(link)).unwrap();
    }
    fs::write(place.path("new.nrsc"), b"old").unwrap();
    let before = place.files();
    let content = |name: &str| fs::read(place.path(name)).unwrap();
    let kept = ["model.onnx", "weights", "new.nrsc"].map(content);
    for args in [
        &["model.onnx", "-o", "model.onnx"][..],
        &["model.onnx", "-o", "link.onnx"],
        &["link.onnx", "-o", "here/model.onnx"],
        &["model.onnx", "-o", "weights"],
        &["model.onnx", "-o", "data"],
        &["model.onnx", "--report", "./model.onnx"],
        &["model.onnx", "--report", "model.nrsc"],
        &["model.onnx", "-o", "new.nrsc", "--report", "other.nrsc"],
        &["model.onnx", "-o", "a", "--tune=here/a"],
        &["model.onnx", "-o", "m.h", "--emit", "obj"],
        &["model.onnx", "-o", "m.js", "--emit", "wasm"],
        &["model.onnx", "-o", "m.o", "--emit", "obj", "--report", "m.h"],
    ] {
        let output = place.numrsc(&[&["compile"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("would be both"), "{args:?}: {}", stderr(&output));
    }
    assert!(["model.onnx", "weights", "new.nrsc"].map(content) == kept && place.files() == before);
    place.succeed(&["compile", "model.onnx", "-o", "/dev/null", "--report", "/dev/null"]);
}

#[test]
fn places_are_checked_before_compiling() {
    let place = Place::new();
    // Not a model: whoever looks at it first says so.
    fs::write(place.path("bad.onnx"), b"nothing").unwrap();
    for args in [
        &["compile", "bad.onnx", "-o", "missing/out"][..],
        &["compile", "bad.onnx", "-o", "."],
        &["compile", "bad.onnx", "-o", "bad.onnx/out"],
        &["compile", "bad.onnx", "--report", "missing/report"],
        &["run", "bad.onnx", "--output-dir", "bad.onnx"],
    ] {
        let output = place.numrsc(args);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("Protobuf"), "{args:?}: {}", stderr(&output));
    }
    assert_eq!(place.files(), ["bad.onnx"]);
}

#[test]
fn a_missing_file_of_weights_is_one_line() {
    let place = Place::new();
    let of = |location: fn(usize) -> String| {
        changed(|model| {
            let names = (0..152).map(|i| external(&format!("w{i}"), &location(i), 1));
            model.graph.as_mut().unwrap().initializer.extend(names);
        })
    };
    fs::write(place.path("one.onnx"), of(|_| "weights.bin".into())).unwrap();
    fs::write(place.path("many.onnx"), of(|i| format!("w{i}.bin"))).unwrap();
    fs::write(place.path("outside.onnx"), of(|_| "../weights.bin".into())).unwrap();
    fs::write(place.path("control.onnx"), of(|_| "a\nb".into())).unwrap();
    for (model, code, lines, text) in [
        ("one.onnx", 3, 1, "152 tensors: external data in `weights.bin`"),
        ("many.onnx", 3, 7, "152 files"),
        ("outside.onnx", 1, 1, "152 tensors: external data in `../weights.bin` is refused"),
        ("control.onnx", 1, 1, "control characters"),
    ] {
        for command in ["check", "compile"] {
            let output = place.numrsc(&[command, model]);
            let text_of = stderr(&output);
            assert_eq!((output.status.code(), text_of.lines().count()), (Some(code), lines), "{model}: {text_of}");
            assert!(text_of.contains(text), "{model}: {text_of}");
        }
    }
}

#[test]
fn a_damaged_cache_is_as_good_as_none() {
    let place = Place::new();
    let model = sample("mlp_trained/model.onnx.json");
    place.succeed(&["compile", &model, "-o", "good"]);
    let good = fs::read(place.path("good")).unwrap();
    let files: Vec<_> = fs::read_dir(place.path("cache/numrsc")).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(files.len() > 1);
    let damages: [fn(&Path, Vec<u8>); 5] = [
        |file, content| fs::write(file, &content[..content.len() / 2]).unwrap(),
        |file, _| fs::write(file, b"").unwrap(),
        |file, content| fs::write(file, vec![0; content.len()]).unwrap(),
        |file, mut content| {
            let middle = content.len() / 2;
            content[middle] ^= 1;
            fs::write(file, content).unwrap();
        },
        |file, _| {
            fs::remove_file(file).unwrap();
            fs::create_dir(file).unwrap();
        },
    ];
    for damage in damages {
        files.iter().for_each(|file| damage(file, fs::read(file).unwrap()));
        place.succeed(&["compile", &model, "-o", "again"]);
        assert!(fs::read(place.path("again")).unwrap() == good);
    }
}

#[test]
fn compiles_at_once_leave_a_right_file() {
    let place = Place::new();
    let model = sample("mlp_trained/model.onnx.json");
    place.succeed(&["compile", &model, "-o", "good", "--no-cache"]);
    let all: Vec<Child> = (0..3)
        .map(|_| place.command(&["compile", &model, "-o", "out", "-q"]).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    for child in all {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    assert!(fs::read(place.path("out")).unwrap() == fs::read(place.path("good")).unwrap());
    assert_eq!(place.files(), ["good", "out"]);
    place.succeed(&["compile", &model, "-o", "out"]);
    assert!(fs::read(place.path("out")).unwrap() == fs::read(place.path("good")).unwrap(), "from the same cache");
}

#[test]
#[cfg(target_os = "linux")]
fn a_killed_compile_leaves_nothing_or_all() {
    use std::os::unix::fs::OpenOptionsExt;
    let place = Place::new();
    let unnamed = fs::File::options().write(true).custom_flags(libc::O_TMPFILE).open(place.path(""));
    if let Err(e) = unnamed {
        println!("skipped: this file system has no files without names: {e}");
        return;
    }
    write_large_model(&place);
    place.succeed(&["compile", "model.onnx", "-o", "good"]);
    let good = fs::read(place.path("good")).unwrap();
    let mut finished = false;
    for wait in (0..).map(|i| Duration::from_millis(25 * i)) {
        let mut child = place.command(&["compile", "model.onnx", "-o", "out", "-q"]).spawn().unwrap();
        std::thread::sleep(wait);
        finished |= child.try_wait().unwrap().is_some();
        child.kill().unwrap();
        child.wait().unwrap();
        let mut there = place.files();
        assert!(there.iter().all(|name| ["good", "model.onnx", "out", "weights"].contains(&&name[..])), "{there:?}");
        there.retain(|name| name == "out");
        if !there.is_empty() {
            assert!(fs::read(place.path("out")).unwrap() == good);
            fs::remove_file(place.path("out")).unwrap();
        }
        if finished || wait > Duration::from_secs(1) {
            break;
        }
    }
}

/// Run a script in a folder that is a disk of its own of this size, in a process that may mount one. `$0` is the command, `$1` the folder of the place.
#[cfg(target_os = "linux")]
fn on_small_disk(place: &Place, size: &str, script: &str) -> Option<Output> {
    fs::create_dir_all(place.path("disk")).unwrap();
    let mount = format!("mount -t tmpfs -o size={size} none disk");
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_numrsc")]);
        command.arg(place.path("")).current_dir(place.path("")).env("XDG_CACHE_HOME", place.path("cache")).output()
    };
    match unshare(&mount) {
        Ok(output) if output.status.success() => Some(unshare(&format!("{mount} && {script}")).unwrap()),
        Ok(output) => {
            println!("skipped: no small disk can be mounted: {}", stderr(&output));
            None
        }
        Err(e) => {
            println!("skipped: no small disk can be mounted: unshare: {e}");
            None
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn nothing_is_left_on_a_full_disk() {
    let place = Place::new();
    write_large_model(&place);
    let weights = 3 * ROWS * size_of::<f32>();
    let [before, writing, linking] = ["left on the disk", "No space left", "left on the disk"];
    for (emit, copies, full) in
        [("nrsc", 1, writing), ("obj", 1, writing), ("so", 2, linking), ("staticlib", 2, writing)]
    {
        // Too little for the weights, and enough for nothing else.
        for (size, message) in [(weights / 2, before), (copies * weights, full)] {
            let script = format!("\"$0\" compile model.onnx --emit {emit} -o disk/out; echo $? $(ls -A disk)");
            let Some(output) = on_small_disk(&place, &size.to_string(), &script) else { return };
            assert_eq!(stdout(&output).trim(), "3", "{emit}: {}", stderr(&output));
            assert!(stderr(&output).contains(message), "{emit}: {}", stderr(&output));
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_cache_is_as_good_as_none() {
    let place = Place::new();
    let model = sample("mlp_trained/model.onnx.json");
    place.succeed(&["compile", &model, "-o", "good", "--no-cache"]);
    let script = format!("XDG_CACHE_HOME=\"$1/disk\" \"$0\" compile -q {model} -o out");
    let Some(output) = on_small_disk(&place, "8k", &script) else { return };
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(fs::read(place.path("out")).unwrap() == fs::read(place.path("good")).unwrap());
}

const SHORTLY: Duration = Duration::from_millis(5);

/// Wait until something is there while a process runs.
fn wait_for<T>(child: &mut Child, mut find: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(SHORTLY);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn files_that_are_cut_while_in_use_are_named() {
    use std::{io::Read, os::unix::fs::OpenOptionsExt};
    let place = Place::new();
    write_large_model(&place);
    assert!(Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success());
    let spawn = |args: &[&str]| place.command(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let cut = |file: &str| fs::File::options().write(true).open(place.path(file)).unwrap().set_len(8192).unwrap();
    let named = |child: Child, file: &str| {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        let text = stderr(&output);
        assert!(text.starts_with("error: ") && text.contains(&format!("/{file}: it was cut")), "{text}");
    };
    place.succeed(&["compile", "model.onnx"]);

    // Inputs are read when the artifact is loaded: a pipe can be opened to be written to once somebody reads it.
    let mut child = spawn(&["run", "model.nrsc", "--input", "x=pipe"]);
    let until_read = || fs::File::options().write(true).custom_flags(libc::O_NONBLOCK).open(place.path("pipe"));
    let opened = wait_for(&mut child, || until_read().ok());
    cut("model.nrsc");
    let x = f32s(&[ROWS as i64, 3], &vec![1.0; 3 * ROWS]);
    fs::write(place.path("pipe"), x.encode_to_vec()).unwrap();
    drop(opened);
    named(child, "model.nrsc");

    // Weights are written when all is compiled: to a pipe that nobody reads before they are cut.
    let mut child = spawn(&["compile", "model.onnx", "-o", "pipe"]);
    let maps = format!("/proc/{}/maps", child.id());
    let is_mapped = |maps: &String| maps.lines().any(|line| line.ends_with("/weights"));
    wait_for(&mut child, || fs::read_to_string(&maps).ok().filter(is_mapped));
    cut("weights");
    let mut pipe = fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(place.path("pipe")).unwrap();
    while child.try_wait().unwrap().is_none() {
        if !pipe.read(&mut [0; 1 << 16]).is_ok_and(|count| count > 0) {
            std::thread::sleep(SHORTLY);
        }
    }
    named(child, "weights");
    assert_eq!(place.files(), ["model.nrsc", "model.onnx", "pipe", "weights"]);
}
