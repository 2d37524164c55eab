//! The test material that `tests/corpus/fetch.py` makes from pinned packages.
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The root of the checkout.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the checkout")
}

/// Fetch a part of the corpus (at once if it is there) and give the folder it lies in.
///
/// # Panics
/// If it cannot be fetched: tests that need it then fail.
pub fn fetch(part: &str) -> PathBuf {
    run("fetch.py", &[part])
}

/// Make ONNX Runtime's outputs of these models at other sizes (at once if they are there) and give the folder they lie in.
///
/// # Panics
/// As [`fetch`].
pub fn sizes(models: &[&str]) -> PathBuf {
    run("sizes.py", models).join("sizes")
}

/// Make small models of details, with ONNX Runtime's outputs (at once if they are there), and give the folder they lie in.
///
/// # Panics
/// As [`fetch`].
pub fn details() -> PathBuf {
    // It brings the packages.
    fetch("suite");
    run("details.py", &[]).join("details")
}

/// Make the exports of a part of `exports.py` (at once if they are there) and give the folder they lie in.
///
/// # Panics
/// As [`fetch`].
pub fn exports(part: &str) -> PathBuf {
    run("exports.py", &[part])
}

/// Make random cases of quantised operators, `count` of each (at once if they are there), and give the folder they lie in.
///
/// # Panics
/// As [`fetch`].
pub fn quantised(count: usize) -> PathBuf {
    // It brings the packages.
    fetch("suite");
    run("quantised.py", &[&count.to_string()]).join("quantised")
}

fn run(script: &str, args: &[&str]) -> PathBuf {
    let script = root().join("tests/corpus").join(script);
    let status = Command::new("python3").arg(&script).args(args).status().expect("python3 can be started");
    assert!(status.success(), "{} {args:?} failed", script.display());
    folder()
}

/// Where it lies.
pub fn folder() -> PathBuf {
    std::env::var_os("NUMRSC_CORPUS").map_or_else(|| root().join("target/corpus"), PathBuf::from)
}
