//! With and without `numrsc-llvm`: what compiles, and what is said.
mod common;

use common::{Place, sample, stderr, stdout, symbolic_model};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const NUMRSC: &str = env!("CARGO_BIN_EXE_numrsc");
const PROGRAM: &str = env!("CARGO_BIN_EXE_numrsc-llvm");

/// With another program in place of `numrsc-llvm`.
fn with(place: &Place, program: &Path, args: &[&str]) -> Output {
    place.command(args).env("NUMRSC_LLVM", program).output().unwrap()
}

/// A script that says what the program says at first.
fn script(place: &Place, name: &str, text: &str) -> PathBuf {
    let path = place.path(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn without_llvm_cranelift_compiles_and_says_so_once() {
    let place = Place::new();
    fs::write(place.path("model.onnx"), symbolic_model()).unwrap();
    let missing = place.path("missing");
    for args in [
        &["compile", "model.onnx"][..],
        &["compile", "model.onnx", "--cpu", "x86-64-v2,x86-64-v3", "-o", "versions.nrsc"],
        &["compile", "model.onnx", "--emit", "obj", "--target", "x86_64-unknown-linux-gnu"],
        &["run", "model.onnx", "--input", "x=zeros", "--dim", "batch=2"],
    ] {
        let output = with(&place, &missing, args);
        let text = stderr(&output);
        assert!(output.status.success(), "{args:?}: {text}");
        let notes: Vec<&str> = text.lines().filter(|line| line.starts_with("note: compiling by Cranelift")).collect();
        assert_eq!(notes.len(), 1, "{args:?}: {text}");
        assert!(
            notes[0].contains(&missing.display().to_string()) && notes[0].contains("cargo install numrsc"),
            "{text}"
        );
        let quiet = with(&place, &missing, &[args, &["--quiet"]].concat());
        assert_eq!((quiet.status.code(), stderr(&quiet)), (Some(0), String::new()));
    }
    // What was asked for by name needs no note.
    let asked = with(&place, &missing, &["compile", "model.onnx", "--backend", "cranelift", "-o", "same.nrsc"]);
    assert_eq!((asked.status.code(), stderr(&asked)), (Some(0), String::new()));
    assert_eq!(fs::read(place.path("model.nrsc")).unwrap(), fs::read(place.path("same.nrsc")).unwrap());
}

#[test]
fn what_only_llvm_has_is_an_error_that_says_where_it_was_looked_for() {
    let place = Place::new();
    let model = sample("mlp_b1/model.onnx.json");
    let missing = place.path("missing");
    for asked in [
        &["--backend", "llvm"][..],
        &["--target", "aarch64-unknown-linux-gnu"],
        &["--target", "thumbv7em-none-eabihf", "--emit", "obj"],
        &["--emit", "wasm"],
        &["--emit", "llvm-ir"],
        &["--emit", "asm"],
    ] {
        let output = with(&place, &missing, &[&["compile", &model, "-o", "none"], asked].concat());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{asked:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{asked:?}: {text}");
        assert!(text.contains("NUMRSC_LLVM") && text.contains(&missing.display().to_string()), "{asked:?}: {text}");
        assert!(text.contains("cargo install numrsc"), "{asked:?}: {text}");
    }
    let output = with(&place, &missing, &["run", &model, "--backend", "llvm", "--random", "1"]);
    assert!(!output.status.success() && stderr(&output).contains("NUMRSC_LLVM"), "{}", stderr(&output));
    assert!(place.files().is_empty());
}

#[test]
fn other_programs_and_versions_are_refused_in_one_line() {
    let place = Place::new();
    let model = sample("mlp_b1/model.onnx.json");
    let version = env!("CARGO_PKG_VERSION");
    let scripts = [
        ("old", "echo 'numrsc-llvm 0.0.1 protocol 1'".to_owned(), "this is version 0.0.1 protocol 1, and"),
        ("other", "echo hello; cat".to_owned(), "this is not numrsc-llvm"),
        ("silent", "exit 3".to_owned(), "numrsc-llvm ended (exit status: 3)"),
        ("broken", "echo 'no memory' >&2; kill -9 $$".to_owned(), "numrsc-llvm ended (signal: 9 (SIGKILL)): no memory"),
        ("mute", format!("echo 'numrsc-llvm {version} protocol 1'"), "numrsc-llvm ended (exit status: 0)"),
    ];
    for (name, text, expected) in scripts {
        let program = script(&place, name, &text);
        let output = with(&place, &program, &["compile", &model, "-o", "none", "--backend", "llvm"]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{name}: {text}");
        assert!(text.lines().count() == 1 && text.contains(expected), "{name}: {text}");
        assert!(text.contains(&program.display().to_string()), "{name}: {text}");
    }
    let folder = with(&place, &place.path(""), &["compile", &model, "-o", "none", "--backend", "llvm"]);
    assert!(stderr(&folder).contains("NUMRSC_LLVM"), "{}", stderr(&folder));
}

#[test]
fn it_is_found_by_its_variable() {
    let place = Place::new();
    let found = |command: &mut Command| {
        let output = command.output().unwrap();
        let info: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        info["llvm"]["program"].as_str().map(PathBuf::from)
    };
    let named = place.path("another-name");
    fs::copy(PROGRAM, &named).unwrap();
    assert_eq!(found(place.command(&["info", "--json"]).env("NUMRSC_LLVM", &named)), Some(named));
    // Empty is not set.
    assert!(found(place.command(&["info", "--json"]).env("NUMRSC_LLVM", "")).is_some());
}

#[test]
fn info_says_what_is_there() {
    let place = Place::new();
    let model = sample("mlp_b1/model.onnx.json");
    place.succeed(&["compile", &model]);
    let text = place.succeed(&["info"]);
    for part in [
        "numrsc ",
        "LLVM",
        "22.",
        "numrsc-llvm",
        "Cranelift",
        "this machine",
        "rust-lld",
        "cache",
        "wasm, llvm-ir, asm",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let info: serde_json::Value = serde_json::from_str(&place.succeed(&["info", "--json"])).unwrap();
    assert_eq!(info["default_backend"], "llvm");
    assert!(info["cache"]["kernels"].as_u64().unwrap() > 0 && info["cache"]["bytes"].as_u64().unwrap() > 0, "{info}");
    assert_eq!(info["cache"]["place"].as_str(), place.path("cache/numrsc").to_str());
    assert!(info["cpu"].is_string() && info["llvm"]["library"].as_str().unwrap().contains("libLLVM"), "{info}");

    let without = with(&place, &place.path("missing"), &["info", "--json"]);
    let info: serde_json::Value = serde_json::from_str(&stdout(&without)).unwrap();
    assert_eq!(info["default_backend"], "cranelift");
    assert!(info["llvm"]["missing"].as_str().unwrap().contains("NUMRSC_LLVM"), "{info}");
    let emits: Vec<&str> = info["emits"].as_array().unwrap().iter().map(|e| e.as_str().unwrap()).collect();
    assert!(emits.contains(&"nrsc") && !emits.contains(&"asm") && !emits.contains(&"wasm"), "{emits:?}");
    let text = stdout(&with(&place, &place.path("missing"), &["info"]));
    assert!(text.contains("cargo install numrsc"), "{text}");
}

#[test]
fn the_program_says_what_it_is() {
    let output = Command::new(PROGRAM).arg("--version").output().unwrap();
    let text = stdout(&output);
    let start = format!("numrsc-llvm {} protocol 1: LLVM 22.", env!("CARGO_PKG_VERSION"));
    assert!(output.status.success() && text.starts_with(&start), "{text}");
    let output = Command::new(PROGRAM).arg("model.onnx").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("numrsc, which starts it"));
}

/// What `readelf -d` says.
fn dynamic(program: &str) -> String {
    stdout(&Command::new("readelf").args(["-d", program]).output().unwrap())
}

#[test]
fn neither_program_links_llvm() {
    for program in [NUMRSC, PROGRAM] {
        let text = dynamic(program);
        assert!(text.contains("NEEDED") && text.contains("libc.so"), "{text}");
        assert!(!text.contains("LLVM") && !text.contains("RUNPATH") && !text.contains("RPATH"), "{text}");
    }
}

/// The libraries that a program needs, by what the system's loader says.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = stdout(&Command::new("ldd").arg(program).output().unwrap());
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    output.lines().filter_map(path).collect()
}

/// An empty root folder with a command in it. What it needs of the system lies where the system has it.
struct Chroot<'p>(&'p Place);

impl Chroot<'_> {
    fn add(&self, file: &Path, name: &str) {
        let to = self.0.path("root").join(name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        // LLVM has 200 MB.
        if fs::hard_link(file.canonicalize().unwrap(), &to).is_err() {
            fs::copy(file, &to).unwrap();
        }
    }

    fn add_libraries(&self, of: &Path) {
        for library in libraries(of) {
            let name = library.strip_prefix("/").unwrap().to_str().unwrap().to_owned();
            if !self.0.path("root").join(&name).exists() {
                self.add(&library, &name);
            }
        }
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "chroot", "root", "/numrsc"]).args(args);
        command
            .current_dir(self.0.path(""))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .output()
            .unwrap()
    }
}

#[test]
#[cfg(target_os = "linux")]
fn alone_in_an_empty_root_it_compiles_by_cranelift_and_beside_llvm_by_that() {
    let place = Place::new();
    fs::write(place.path("model.onnx"), symbolic_model()).unwrap();
    let root_folder = Chroot(&place);
    root_folder.add(Path::new(NUMRSC), "numrsc");
    root_folder.add(&place.path("model.onnx"), "model.onnx");
    let needed = libraries(Path::new(NUMRSC));
    let names: Vec<String> = needed.iter().map(|l| l.file_name().unwrap().to_string_lossy().into_owned()).collect();
    let known = ["libc.so", "libgcc_s.so", "ld-linux", "libm.so", "libdl.so", "libpthread.so", "librt.so"];
    assert!(names.iter().all(|name| known.iter().any(|known| name.starts_with(known))), "{names:?}");
    root_folder.add_libraries(Path::new(NUMRSC));
    let compile = ["compile", "/model.onnx", "-o", "/model.nrsc", "--cpu", "x86-64-v3", "--no-cache"];
    let alone = root_folder.run(&compile);
    if stderr(&alone).starts_with("unshare: ") {
        println!("skipped: {}", stderr(&alone));
        return;
    }
    assert!(alone.status.success(), "{}", stderr(&alone));
    assert!(stderr(&alone).starts_with("note: compiling by Cranelift"), "{}", stderr(&alone));
    let by_cranelift = fs::read(place.path("root/model.nrsc")).unwrap();

    // Without the library, the program says what it lacks.
    root_folder.add(Path::new(PROGRAM), "numrsc-llvm");
    let without = root_folder.run(&[&compile[..], &["--backend", "llvm"]].concat());
    assert!(stderr(&without).contains("/numrsc-llvm: there is no LLVM 22 in /"), "{}", stderr(&without));

    let info: serde_json::Value = serde_json::from_str(&place.succeed(&["info", "--json"])).unwrap();
    let library = Path::new(info["llvm"]["library"].as_str().unwrap());
    root_folder.add(library, library.file_name().unwrap().to_str().unwrap());
    root_folder.add_libraries(library);
    let beside = root_folder.run(&compile);
    assert_eq!((beside.status.code(), stderr(&beside)), (Some(0), String::new()));
    let by_llvm = fs::read(place.path("root/model.nrsc")).unwrap();
    place.succeed(&["compile", "model.onnx", "--cpu", "x86-64-v3", "--backend", "llvm"]);
    assert!(by_llvm == fs::read(place.path("model.nrsc")).unwrap());
    assert!(by_llvm != by_cranelift);

    // Elsewhere, on the path, with the library as installations have it.
    let name = library.file_name().unwrap();
    for (from, to) in
        [(Path::new("numrsc-llvm"), Path::new("bin/numrsc-llvm")), (name.as_ref(), &Path::new("lib").join(name))]
    {
        let (from, to) = (place.path("root").join(from), place.path("root").join(to));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(from, to).unwrap();
    }
    let on_path = root_folder.run(&compile);
    assert_eq!((on_path.status.code(), stderr(&on_path)), (Some(0), String::new()));
    assert!(by_llvm == fs::read(place.path("root/model.nrsc")).unwrap());
}
