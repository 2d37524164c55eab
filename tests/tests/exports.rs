//! Classical machine learning as exporters write it, judged by ONNX Runtime: every estimator of scikit-learn that converts, LightGBM, and
//! with `NUMRSC_LONG=1` XGBoost and CatBoost; and the operators of `ai.onnx.ml` with random attributes.
use numrsc::{
    compile::Generator,
    conformance::{self, Executor, FolderOptions, Reference},
};
use numrsc_tests::{corpus, native};
use std::path::PathBuf;

/// What differs, and why; nothing else may.
const EXPECTED: &str = "expected-failures-exports.txt";

fn folders(part: &str, folder: &str, least: usize) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    conformance::find_folders(&corpus::exports(part).join(folder), &mut folders);
    assert!(folders.len() >= least, "{part} is complete: {} of {least} models", folders.len());
    folders
}

/// Estimators, whose exports hold several hundred models in all.
fn exports() -> Vec<PathBuf> {
    let mut all = folders("sklearn", "exports-sklearn", 270);
    if std::env::var_os("NUMRSC_LONG").is_some() {
        all.extend(folders("boosted", "exports-boosted", 22));
    }
    all
}

fn agree(folders: &[PathBuf], executor: &(dyn Executor + Sync)) {
    let list = std::fs::read_to_string(corpus::root().join("tests/conformance").join(EXPECTED)).unwrap();
    let expected = conformance::parse_expected_failures(&list).unwrap();
    let results =
        conformance::run_all(folders, None, |dir| conformance::run_folder(dir, executor, FolderOptions::default()));
    let score = conformance::score(folders, results, &expected);
    println!("{} passed, {} failed, {} skipped", score.passed, score.failures.len(), score.skipped);
    assert!(score.failures.is_empty(), "{}", score.failures.join("\n"));
    assert!(score.skipped * 50 <= folders.len(), "more than 2 % differ from ONNX Runtime");
}

#[test]
fn exports_on_llvm() {
    agree(&exports(), &native::executor(Generator::Llvm));
}

#[test]
fn exports_on_the_evaluator() {
    agree(&exports(), &Reference);
}

#[test]
fn operators_on_llvm() {
    agree(&folders("sklearn", "ml-ops", 180), &native::sanitized(Generator::Llvm));
}

#[test]
fn operators_on_the_evaluator() {
    agree(&folders("sklearn", "ml-ops", 180), &Reference);
}
