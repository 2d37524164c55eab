//! Models as parts of a program: a crate outside of the workspace whose build script compiles two of them, one of fixed and one of open sizes.
//!
//! `NUMRSC_RELEASE=1` also builds it with optimisations, which compiles the compiler once more.
use numrsc::conformance;
use numrsc_ir::{Data, Tensor};
use numrsc_tests::corpus;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The compiler as a build dependency, as far as possible with the settings of the workspace, so that it need not be compiled again.
const MANIFEST: &str = r#"
[package]
name = "embedded"
version = "0.1.0"
edition = "2024"

[workspace]

[dependencies]
numrsc-runtime = { path = "ROOT/runtime-min" }

[build-dependencies]
numrsc = { path = "ROOT/compiler" }

[profile.dev.package."*"]
opt-level = 3
debug = false

[profile.dev.package.numrsc-ir]
debug = "line-tables-only"
"#;

/// As above, for each of our crates.
const PROFILE: &str = r#"
[profile.dev.package.NAME]
opt-level = 1
debug = "line-tables-only"
"#;

const BUILD: &str = r#"
use std::{fs::OpenOptions, io::Write};

fn main() {
    let mut log = OpenOptions::new().create(true).append(true).open("runs.log").unwrap();
    log.write_all(b"run\n").unwrap();
    numrsc::Build::new("digits.onnx").compile();
    numrsc::Build::new("models/tags.onnx").name("tagger").compile();
}
"#;

const PROGRAM: &str = r#"
use numrsc_runtime::{Array, Result};
use std::{env, fs, mem::MaybeUninit};

numrsc_runtime::include_model!("digits");
numrsc_runtime::include_model!("tagger");

fn main() -> Result<()> {
    let [image, words, batch, length]: [String; 4] = env::args().skip(1).collect::<Vec<_>>().try_into().unwrap();
    let image: Vec<f32> = fs::read(image).unwrap().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let image: &[[[[f32; 28]; 28]; 1]; 1] =
        image.as_chunks::<28>().0.as_chunks::<28>().0.as_chunks::<1>().0.try_into().unwrap();
    let words: Vec<i64> = fs::read(words).unwrap().as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect();

    let mut digits = Digits::new()?;
    let digits: &[[f32; 10]; 1] = digits.run(image)?.plus214_output_0;
    // The same without an allocator.
    let mut memory = vec![MaybeUninit::uninit(); Digits::MEMORY_BYTES];
    assert_eq!(Digits::in_memory(&mut memory)?.run(image)?.plus214_output_0, digits);

    let mut tagger = Tagger::with_threads(1)?;
    let shape = [batch.parse().unwrap(), length.parse().unwrap()];
    let tags: Array<'_, f32, 3> = tagger.run(Array::new(&words, shape))?.logits;
    assert_eq!(tags.shape[..2], shape);
    for x in digits.as_flattened().iter().chain(tags.data) {
        println!("{x}");
    }
    Ok(())
}
"#;

struct Crate {
    folder: tempfile::TempDir,
}

impl Crate {
    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn cargo(&self, args: &[&str]) -> Output {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(args).current_dir(self.folder.path());
        // The target directory of these tests: what the crate depends on is there already.
        cargo.env("CARGO_TARGET_DIR", target());
        cargo.output().unwrap()
    }

    fn builds(&self) -> usize {
        fs::read_to_string(self.path("runs.log")).map_or(0, |log| log.lines().count())
    }
}

fn target() -> PathBuf {
    env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

fn embedded(models: &Path) -> Crate {
    let this = Crate { folder: tempfile::tempdir().unwrap() };
    let root = corpus::root();
    let profiles =
        ["numrsc", "numrsc-codegen", "numrsc-passes", "numrsc-runtime"].map(|name| PROFILE.replace("NAME", name));
    let manifest = MANIFEST.replace("ROOT", &root.display().to_string()) + &profiles.concat();
    fs::create_dir_all(this.path("src")).unwrap();
    fs::create_dir_all(this.path("models")).unwrap();
    for (file, text) in [("Cargo.toml", &manifest[..]), ("build.rs", BUILD), ("src/main.rs", PROGRAM)] {
        fs::write(this.path(file), text).unwrap();
    }
    // The same versions, and the toolchain whose LLVM the compiler links.
    for file in ["Cargo.lock", "rust-toolchain.toml"] {
        fs::copy(root.join(file), this.path(file)).unwrap();
    }
    fs::copy(models.join("mnist_cntk/model.onnx"), this.path("digits.onnx")).unwrap();
    fs::copy(models.join("lstm_tagger_ts/model.onnx"), this.path("models/tags.onnx")).unwrap();
    this
}

fn data(models: &Path, model: &str, file: &str) -> Tensor {
    let folder = models.join(model);
    let loaded = numrsc::onnx::load(&folder.join("model.onnx")).unwrap();
    let graph = loaded.graph();
    let stored = |name: &str| graph.initializer.iter().any(|t| t.name == name);
    let port = match file {
        "input_0" => graph.input.iter().find(|i| !stored(&i.name)),
        _ => graph.output.first(),
    };
    let ty = port.unwrap().r#type.clone().unwrap();
    let data = conformance::load_data(&folder.join(format!("test_data_set_0/{file}.pb")), &ty).unwrap();
    let Data::Tensor(tensor) = data else { panic!("a tensor") };
    tensor
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.bytes().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

#[test]
fn a_crate_with_two_models() {
    let models = corpus::fetch("models").join("models");
    let this = embedded(&models);
    let (image, words) = (data(&models, "mnist_cntk", "input_0"), data(&models, "lstm_tagger_ts", "input_0"));
    fs::write(this.path("image"), image.bytes()).unwrap();
    fs::write(this.path("words"), words.bytes()).unwrap();
    let sizes: Vec<String> = words.shape().iter().map(ToString::to_string).collect();
    let expected =
        [floats(&data(&models, "mnist_cntk", "output_0")), floats(&data(&models, "lstm_tagger_ts", "output_0"))]
            .concat();
    let run = |profile: &[&str]| {
        let args = [&["run", "--quiet"], profile, &["--", "image", "words", &sizes[0], &sizes[1]]].concat();
        let output = this.cargo(&args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found: Vec<f32> = String::from_utf8(output.stdout).unwrap().lines().map(|l| l.parse().unwrap()).collect();
        assert_eq!(found.len(), expected.len());
        for (x, y) in found.iter().zip(&expected) {
            assert!((x - y).abs() <= 1e-4 * y.abs().max(1.0), "{x} is not {y}");
        }
    };
    run(&[]);
    assert_eq!(this.builds(), 1);
    run(&[]);
    assert_eq!(this.builds(), 1, "nothing has changed");

    // The same model with a comment: it is compiled again, once.
    let model = this.path("digits.onnx");
    let mut bytes = fs::read(&model).unwrap();
    bytes.extend([0x32, 3, b'n', b'e', b'w']); // doc_string
    fs::write(&model, bytes).unwrap();
    run(&[]);
    run(&[]);
    assert_eq!(this.builds(), 2);

    if env::var_os("NUMRSC_RELEASE").is_some() {
        run(&["--release"]);
    }

    // What is wrong with a model is an error of cargo, and says what.
    fs::write(&model, b"no model").unwrap();
    let output = this.cargo(&["build"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("digits.onnx"), "{message}");
    assert!(message.lines().any(|l| l.starts_with("error: embedded@0.1.0: ")), "{message}");
}
