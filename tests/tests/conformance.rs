//! The whole ONNX backend suite on the reference evaluator, judged against one list of expected failures.
use numrsc::conformance::{self, Options, Reference};
use numrsc_tests::corpus;

fn run(options: Options) {
    let suite = corpus::fetch("suite").join("onnx-suite");
    let mut folders = Vec::new();
    conformance::find_folders(&suite, &mut folders);
    assert_eq!(folders.len(), 2036, "the suite is complete");
    let list = std::fs::read_to_string(corpus::root().join("tests/conformance/expected-failures.txt")).unwrap();
    let expected = conformance::parse_expected_failures(&list).unwrap();
    let known: Vec<&str> = folders.iter().map(|f| conformance::name(f)).collect();
    for name in expected.keys() {
        assert!(known.contains(&name.as_str()), "`{name}` is listed but not in the suite");
    }
    let results = conformance::run_all(&folders, None, |dir| conformance::run_folder(dir, &Reference, options));
    let score = conformance::score(&folders, results, &expected);
    println!("{} passed, {} failed, {} skipped", score.passed, score.failures.len(), score.skipped);
    assert!(score.failures.is_empty(), "{}", score.failures.join("\n"));
}

#[test]
fn suite_as_given() {
    run(Options::default());
}

#[test]
fn suite_with_declared_output_shapes_cleared() {
    run(Options { ignore_declared_shapes: true });
}
