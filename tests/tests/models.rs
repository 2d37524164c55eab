//! Real models: all of them import, and the evaluator agrees with ONNX Runtime on those it can run in reasonable time.
use numrsc::{
    conformance::{self, Options, Reference},
    onnx::{self, import},
};
use numrsc_tests::corpus;
use std::path::PathBuf;

fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    conformance::find_folders(&corpus::fetch("models").join("models"), &mut folders);
    assert_eq!(folders.len(), 79, "all models are there");
    folders
}

#[test]
fn every_model_imports() {
    let results = conformance::run_all(&folders(), None, |dir| {
        let model = onnx::load(&dir.join("model.onnx")).map_err(|e| e.to_string())?;
        let options = conformance::Settings::of(dir)?.import();
        let func = import::import(&model, &options).map_err(|e| e.to_string())?;
        numrsc_ir::verify(&func).map_err(|e| e.to_string())
    });
    let failures: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_evaluator_agrees_with_onnx_runtime() {
    let folders = folders();
    let results =
        conformance::run_all(&folders, None, |dir| conformance::run_folder(dir, &Reference, Options::default()));
    let score = conformance::score(&folders, results, &Default::default());
    println!("{} passed, {} failed", score.passed, score.failures.len());
    assert!(score.failures.is_empty(), "{}", score.failures.join("\n"));
}
