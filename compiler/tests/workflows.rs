//! docs/workflows.md: every command and program that it shows is run, in the order of the page.
mod common;

#[path = "../../numrs/examples/forecast.rs"]
mod forecast;
#[path = "../examples/threads.rs"]
mod threads;

use common::{Place, root};
use std::{fs, path::Path};

/// What is to be run, and the text that shows it.
fn blocks(page: &str) -> Vec<(String, String)> {
    let marked =
        page.split("<!-- run: ").skip(1).map(|part| part.split_once(" -->\n```").expect("a marker before a block"));
    let block = |(what, rest): (&str, &str)| {
        let text = rest.split_once('\n').and_then(|(_, text)| text.split_once("\n```")).expect("an end of the block").0;
        (what.to_owned(), text.to_owned())
    };
    marked.map(block).collect()
}

/// An example without its head, as a program that nobody else calls.
fn source(example: &str) -> String {
    let text = fs::read_to_string(root().join(example)).unwrap().replace("pub(crate) fn main", "fn main");
    text.lines().skip_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_the_page_shows_works() {
    let place = Place::new();
    fs::copy(root().join("compiler/examples/scores.onnx"), place.path("scores.onnx")).unwrap();
    // The examples read and write here. This is the only test of the program.
    std::env::set_current_dir(place.path("")).unwrap();
    let page = fs::read_to_string(root().join("docs/workflows.md")).unwrap();
    let blocks = blocks(&page);
    assert_eq!(blocks.len(), page.matches("\n```").count() / 2, "every block is marked");
    for (what, text) in blocks {
        match &what[..] {
            "shell" => shell(&place, &text),
            "compiler/examples/threads.rs" => {
                assert_eq!(text, source(&what));
                threads::main().unwrap();
            }
            "numrs/examples/forecast.rs" => {
                let name = Path::new(&what).file_stem().unwrap().to_str().unwrap();
                assert!(text.ends_with(&format!("--example {name}")), "{text}");
                forecast::main().unwrap();
            }
            other => panic!("no way to run {other}"),
        }
    }
    let report: serde_json::Value = serde_json::from_slice(&fs::read(place.path("bench.json")).unwrap()).unwrap();
    assert_eq!(report["models"].as_array().unwrap().len(), 2);
}

fn shell(place: &Place, commands: &str) {
    let program = Path::new(env!("CARGO_BIN_EXE_numrsc")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut shell = std::process::Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", commands]).current_dir(place.path(""));
    let output = shell.env("PATH", path).env("XDG_CACHE_HOME", place.path("cache")).output().unwrap();
    assert!(output.status.success(), "{commands}\n{}", common::stderr(&output));
}
