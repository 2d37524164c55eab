//! Quantised operators have ONNX Runtime's bits: random cases of `tests/corpus/quantised.py`, with `NUMRSC_LONG=1` 2,000 of each operator.
use numrsc::{
    compile::Generator,
    conformance::{self, Executor, FolderOptions, Reference},
};
use numrsc_tests::{corpus, native};
use std::path::PathBuf;

/// Operators that cases are made of.
const OPERATORS: usize = 8;
/// Cases of a model.
const PER_MODEL: usize = 40;

fn folders() -> Vec<PathBuf> {
    let count = if std::env::var_os("NUMRSC_LONG").is_some() { 2000 } else { PER_MODEL };
    let mut folders = Vec::new();
    conformance::find_folders(&corpus::quantised(count), &mut folders);
    // There may be more from a longer run.
    folders.retain(|f| conformance::name(f).parse::<usize>().is_ok_and(|number| number < count / PER_MODEL));
    assert_eq!(folders.len(), OPERATORS * count / PER_MODEL);
    folders
}

fn equal(executor: &(dyn Executor + Sync)) {
    let folders = folders();
    let results =
        conformance::run_all(&folders, None, |dir| conformance::run_folder(dir, executor, FolderOptions::default()));
    let named = folders.iter().zip(results).filter_map(|(folder, result)| {
        let operator = folder.parent()?.file_name()?.to_string_lossy().into_owned();
        Some(format!("{operator}/{}: {}", conformance::name(folder), result.err()?))
    });
    let failures: Vec<String> = named.collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_evaluator_has_their_bits() {
    equal(&Reference);
}

#[test]
fn llvm_has_their_bits() {
    equal(&native::executor(Generator::Llvm));
}

#[test]
fn cranelift_has_their_bits() {
    equal(&native::executor(Generator::Cranelift));
}
