//! The examples, by the commands of their READMEs.
mod common;

use common::{browser::Browser, corpus, models, root};
use numrsc::{conformance::load_data, onnx};
use numrsc_ir::eval::Data;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

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

/// The folder of the model that examples use.
fn digits() -> PathBuf {
    models(&["mnist_cntk"]).join("mnist_cntk")
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

/// Draws into the page of the example as people do, and tells what it answers.
const PEOPLE: &str = r#"<!doctype html><body></body><script type="module">
const digits = {
  7: [[80, 80], [220, 80], [130, 240]],
  1: [[160, 60], [160, 250]],
  0: Array.from({ length: 33 }, (_, i) => [154 + 60 * Math.sin((i * Math.PI) / 16), 154 - 90 * Math.cos((i * Math.PI) / 16)]),
  4: [[110, 60], [90, 160], [210, 160], [200, 160], [200, 90], [195, 250]],
};
const frame = Object.assign(document.createElement("iframe"), { src: "index.html", width: 880, height: 680 });
await new Promise((loaded) => {
  frame.onload = loaded;
  document.body.append(frame);
});
const { contentDocument: page, contentWindow: window } = frame;
const until = async (holds) => {
  for (const end = performance.now() + 30e3; !holds() && performance.now() < end; ) await new Promise((again) => setTimeout(again, 20));
};
const status = page.getElementById("status");
await until(() => !status.textContent.startsWith("Loading"));
const answers = [status.textContent];
const paper = page.getElementById("paper"), box = paper.getBoundingClientRect();
for (const points of Object.values(digits)) {
  const answer = page.getElementById("digit");
  page.getElementById("clear").click();
  await until(() => answer.textContent === "");
  points.forEach(([x, y], i) => {
    const place = { clientX: box.left + x, clientY: box.top + y, bubbles: true };
    paper.dispatchEvent(new window.PointerEvent(i ? "pointermove" : "pointerdown", place));
  });
  paper.dispatchEvent(new window.PointerEvent("pointerup", { bubbles: true }));
  await until(() => answer.textContent !== "");
  answers.push(answer.textContent);
}
answers.push(page.querySelector(".best output").textContent);
await fetch("report", { method: "POST", body: answers.join() });
</script>"#;

#[test]
fn web() {
    digits();
    let example = Example::new("web");
    let text = example.run(&example.commands()[0]);
    assert!(text.contains("digits.wasm") && text.contains("digits.js"), "{text}");
    fs::write(example.folder.join("people.html"), PEOPLE).unwrap();
    let report = Browser::open(&example.folder, "people.html").report().unwrap();
    let report = String::from_utf8(report).unwrap();
    // In the order of JavaScript's objects.
    assert!(report.starts_with("Ready.,0,1,4,7,") && report.ends_with(" %"), "{report}");
}
