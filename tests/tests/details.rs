//! Details on which exporters rely, and operands that have to be checked: small models of `tests/corpus/details.py`, judged by
//! ONNX Runtime.
use numrsc::{
    compile::Generator,
    conformance::{self, Executor, FolderOptions, Reference},
    error::Error,
    onnx::{self, import},
};
use numrsc_tests::{corpus, native};
use std::path::{Path, PathBuf};

fn folders(kind: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    conformance::find_folders(&corpus::details().join(kind), &mut folders);
    assert!(folders.len() > 150, "{} of `{kind}`", folders.len());
    folders
}

fn report(folders: &[PathBuf], results: Vec<Result<(), String>>) {
    let failed =
        folders.iter().zip(results).filter_map(|(f, r)| Some(format!("{}: {}", conformance::name(f), r.err()?)));
    let failed: Vec<String> = failed.collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn same_as_onnx_runtime(executor: &(dyn Executor + Sync)) {
    let folders = folders("valid");
    report(
        &folders,
        conformance::run_all(&folders, None, |f| conformance::run_folder(f, executor, FolderOptions::default())),
    );
}

#[test]
fn evaluator_is_as_onnx_runtime() {
    same_as_onnx_runtime(&Reference);
}

#[test]
fn llvm_is_as_onnx_runtime() {
    same_as_onnx_runtime(&native::executor(Generator::Llvm));
}

#[test]
fn cranelift_is_as_onnx_runtime() {
    same_as_onnx_runtime(&native::executor(Generator::Cranelift));
}

/// Refused when compiling, or when running on the evaluator and by native code.
fn refused(folder: &Path) -> Result<(), String> {
    let model = onnx::load(&folder.join("model.onnx")).map_err(|_| "");
    let Ok(model) = model else { return Ok(()) };
    let Ok(func) = import::import(&model, &import::Options::default()) else { return Ok(()) };
    let inputs = conformance::load_inputs(&folder.join("test_data_set_0"), &model)?;
    let native = native::executor(Generator::Llvm);
    for (name, executor) in [("the evaluator", &Reference as &dyn Executor), ("native code", &native)] {
        if executor.run(&func, &inputs).is_ok() {
            return Err(format!("{name} has results"));
        }
    }
    Ok(())
}

#[test]
fn what_onnx_runtime_refuses_is_refused() {
    let folders = folders("refused");
    report(&folders, conformance::run_all(&folders, None, refused));
}

/// Valid models that are refused, here, in the ONNX suites and among exports: what is said helps. (Those that are refused for their open sizes:
/// `conformance::expect_refusal`.)
#[test]
fn every_refusal_has_a_hint() {
    let mut folders = folders("valid");
    let suite = [corpus::fetch("suite").join("onnx-suite")];
    let older = ["1.7.0", "1.9.0", "1.12.0", "1.15.0"].map(|v| corpus::fetch("older").join(format!("onnx-{v}")));
    let exports = ["exports-sklearn", "ml-ops"].map(|part| corpus::exports("sklearn").join(part));
    for part in suite.iter().chain(&older).chain(&exports) {
        conformance::find_folders(part, &mut folders);
    }
    assert!(folders.len() > 6000, "{} models", folders.len());
    let mut refused = 0;
    for folder in &folders {
        let imported =
            onnx::load(&folder.join("model.onnx")).and_then(|m| import::import(&m, &import::Options::default()));
        let Err(Error::Model { problems, .. }) = imported else { continue };
        refused += 1;
        for problem in problems {
            assert!(problem.hint.is_some(), "{}: {problem}", conformance::name(folder));
        }
    }
    assert!(refused > 20, "{refused} models are refused");
}
