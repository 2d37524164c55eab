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
    let script = root().join("tests/corpus/fetch.py");
    let status = Command::new("python3").arg(&script).arg(part).status().expect("python3 can be started");
    assert!(status.success(), "{} {part} failed", script.display());
    std::env::var_os("NUMRSC_CORPUS").map_or_else(|| root().join("target/corpus"), PathBuf::from)
}
