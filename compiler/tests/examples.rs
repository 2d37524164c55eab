//! The examples, by the commands of their READMEs.
use numrsc::{conformance::load_data, onnx};
use numrsc_ir::eval::Data;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A copy of an example at the same depth, from where it finds what it is given by relative paths.
struct Example {
    place: tempfile::TempDir,
    folder: PathBuf,
}

impl Example {
    fn new(name: &str) -> Example {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("examples").join(name);
        fs::create_dir_all(&folder).unwrap();
        for entry in fs::read_dir(root().join("examples").join(name)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
        }
        fs::create_dir(place.path().join("target")).unwrap();
        std::os::unix::fs::symlink(corpus(), place.path().join("target/corpus")).unwrap();
        Example { place, folder }
    }

    /// The blocks of commands in the README.
    fn commands(&self) -> Vec<String> {
        let readme = fs::read_to_string(self.folder.join("README.md")).unwrap();
        let blocks = readme.split("```sh\n").skip(1);
        blocks.map(|block| block.split_once("```").expect("an end").0.to_owned()).collect()
    }

    /// What commands print; QEMU prints what a board says as errors.
    fn run(&self, commands: &str) -> String {
        let program = Path::new(env!("CARGO_BIN_EXE_numrsc")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", commands]).env("PATH", path).current_dir(&self.folder);
        let output = shell.env("XDG_CACHE_HOME", self.place.path().join("cache")).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{text}");
        text
    }
}

fn corpus() -> PathBuf {
    std::env::var_os("NUMRSC_CORPUS").map_or_else(|| root().join("target/corpus"), PathBuf::from)
}

/// The folder of the model that examples use.
fn digits() -> PathBuf {
    let script = root().join("tests/corpus/fetch.py");
    assert!(Command::new("python3").arg(script).args(["models", "mnist_cntk"]).status().unwrap().success());
    corpus().join("models/mnist_cntk")
}

#[test]
fn c() {
    digits();
    let example = Example::new("c");
    let [commands] = &example.commands()[..] else { panic!("one block of commands") };
    assert!(example.run(commands).ends_with("This is a 7\n"));
}

#[test]
fn bare_metal() {
    let digits = digits();
    let example = Example::new("bare-metal");
    let boards = example.commands();
    assert_eq!(boards.len(), 2);
    for board in &boards {
        let text = example.run(board);
        assert!(text.contains("kB of flash, ") && text.ends_with("This is a 7\n"), "{text}");
    }

    // The same with an image of which ONNX Runtime's scores are known.
    let model = onnx::load(&digits.join("model.onnx")).unwrap();
    let data = |file: &str, ty: &onnx::proto::ValueInfoProto| {
        let path = digits.join("test_data_set_0").join(file);
        match load_data(&path, &ty.r#type.clone().unwrap()).unwrap() {
            Data::Tensor(tensor) => tensor.to_f64s(),
            _ => panic!("a tensor"),
        }
    };
    let (image, scores) = (data("input_0.pb", &model.graph().input[0]), data("output_0.pb", &model.graph().output[0]));
    let numbers: Vec<String> = image.iter().map(ToString::to_string).collect();
    let header = format!("static const float image[28 * 28] = {{{}}};\n", numbers.join(", "));
    fs::write(example.folder.join("image.h"), header).unwrap();
    for board in &boards {
        let text = example.run(board);
        let lines: Vec<&str> = text.lines().rev().skip(1).take(10).collect();
        assert_eq!((lines.len(), scores.len()), (10, 10), "{text}");
        for (line, expected) in lines.iter().rev().zip(&scores) {
            let thousandths: f64 = line.parse().unwrap_or_else(|e| panic!("{e}: {text}"));
            assert!((thousandths - 1000.0 * expected).abs() < 1.5, "{thousandths} is not {expected}: {text}");
        }
    }
}
