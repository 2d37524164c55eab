//! The whole ONNX backend suite on the reference evaluator and on native code, judged against one list of expected failures.
use numrsc::{
    compile::Generator,
    conformance::{self, Executor, FolderOptions, Reference},
    onnx::{self, import},
};
use numrsc_tests::{corpus, native};
use std::path::PathBuf;

/// What fails, on the evaluator and on native code alike.
const EXPECTED: &str = "expected-failures.txt";
const AS_GIVEN: FolderOptions = FolderOptions { ignore_declared_shapes: false, open_sizes: None };
const CLEARED: FolderOptions = FolderOptions { ignore_declared_shapes: true, open_sizes: None };

fn suite() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    conformance::find_folders(&corpus::fetch("suite").join("onnx-suite"), &mut folders);
    assert_eq!(folders.len(), 2036, "the suite is complete");
    folders
}

/// Run tests and compare with a list of expected failures.
fn run(folders: &[PathBuf], list: &str, executor: &(dyn Executor + Sync), options: FolderOptions) {
    let list = std::fs::read_to_string(corpus::root().join("tests/conformance").join(list)).unwrap();
    let expected = conformance::parse_expected_failures(&list).unwrap();
    let known: Vec<&str> = folders.iter().map(|f| conformance::name(f)).collect();
    for name in expected.keys() {
        assert!(known.contains(&name.as_str()), "`{name}` is listed but not in the suite");
    }
    let results = conformance::run_all(folders, None, |dir| conformance::run_folder(dir, executor, options));
    let score = conformance::score(folders, results, &expected);
    println!("{} passed, {} failed, {} skipped", score.passed, score.failures.len(), score.skipped);
    assert!(score.failures.is_empty(), "{}", score.failures.join("\n"));
}

#[test]
fn evaluator_as_given() {
    run(&suite(), EXPECTED, &Reference, AS_GIVEN);
}

#[test]
fn evaluator_with_declared_output_shapes_cleared() {
    run(&suite(), EXPECTED, &Reference, CLEARED);
}

#[test]
fn llvm_as_given() {
    run(&suite(), EXPECTED, &native::executor(Generator::Llvm), AS_GIVEN);
}

#[test]
fn llvm_with_declared_output_shapes_cleared() {
    run(&suite(), EXPECTED, &native::executor(Generator::Llvm), CLEARED);
}

#[test]
fn llvm_stays_within_its_buffers() {
    run(&suite(), EXPECTED, &native::sanitized(Generator::Llvm), AS_GIVEN);
}

#[test]
fn cranelift_as_given() {
    run(&suite(), EXPECTED, &native::executor(Generator::Cranelift), AS_GIVEN);
}

#[test]
fn cranelift_with_declared_output_shapes_cleared() {
    run(&suite(), EXPECTED, &native::executor(Generator::Cranelift), CLEARED);
}

#[test]
fn imported_functions_are_valid_and_their_text_reads_back() {
    let results = conformance::run_all(&suite(), None, |dir| {
        let model = onnx::load(&dir.join("model.onnx")).map_err(|e| e.to_string())?;
        // What is not supported is for the other tests to judge.
        let Ok(func) = import::import(&model, &import::Options::default()) else { return Ok(()) };
        let fail = |e: String| format!("{}: {e}", dir.display());
        numrsc_ir::verify(&func).map_err(|e| fail(e.to_string()))?;
        let again = numrsc_ir::parse(&func.to_string()).map_err(|e| fail(e.to_string()))?;
        if again == func { Ok(()) } else { Err(fail("the text reads back as another function".into())) }
    });
    let failures: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn older_suites_with_older_meanings() {
    let corpus = corpus::fetch("older");
    for (version, count) in [("1.7.0", 748), ("1.9.0", 809), ("1.12.0", 932), ("1.15.0", 1252)] {
        let mut folders = Vec::new();
        conformance::find_folders(&corpus.join(format!("onnx-{version}")), &mut folders);
        assert_eq!(folders.len(), count, "the suite of {version} is complete");
        run(&folders, &format!("expected-failures-{version}.txt"), &Reference, AS_GIVEN);
    }
}
