//! `numrsc test`: run standard ONNX test folders.
use super::{Backend, Failure, Outcome};
use numrsc::conformance::{self, Reference};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Run ONNX test folders (model.onnx, test_data_set_*/input_*.pb, output_*.pb)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Test folders, or folders of them
    #[arg(required = true)]
    dirs: Vec<PathBuf>,
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
    /// Forget the declared shapes of graph outputs before compiling
    #[arg(long)]
    ignore_declared_shapes: bool,
    /// A file with one test name and the reason per line: these must fail, all others must pass
    #[arg(long, value_name = "FILE")]
    expected_failures: Option<PathBuf>,
    /// Run only tests whose name contains this
    #[arg(long)]
    filter: Option<String>,
    /// Tests to run at a time [default: all cores]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

pub(crate) fn run(args: &Args, quiet: bool) -> Result<Outcome, Failure> {
    let mut folders = Vec::new();
    for dir in &args.dirs {
        let before = folders.len();
        conformance::find_folders(dir, &mut folders);
        if folders.len() == before {
            return Err(Failure::Other(format!("{}: no folder with a model.onnx", dir.display())));
        }
    }
    folders.retain(|f| args.filter.as_ref().is_none_or(|part| name(f).contains(part)));
    let expected = match &args.expected_failures {
        Some(file) => expected_failures(file)?,
        None => BTreeMap::new(),
    };
    let executor = match args.backend {
        Backend::Reference => &Reference,
    };
    let options = conformance::Options { ignore_declared_shapes: args.ignore_declared_shapes };
    let results = run_all(&folders, args.jobs, |dir| conformance::run_folder(dir, executor, options));
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (folder, result) in folders.iter().zip(results) {
        match (result, expected.get(name(folder))) {
            (Ok(()), None) => passed += 1,
            (Err(_), Some(_)) => skipped += 1,
            (Ok(()), Some(reason)) => {
                failed += 1;
                println!("FAIL {}: passes, but is expected to fail ({reason}): take it off the list", name(folder));
            }
            (Err(e), None) => {
                failed += 1;
                println!("FAIL {}: {e}", name(folder));
            }
        }
    }
    if skipped > 0 && !quiet {
        println!("skipped are tests that fail as expected");
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(if failed == 0 { Outcome::Success } else { Outcome::Negative })
}

fn name(folder: &Path) -> &str {
    folder.file_name().and_then(|n| n.to_str()).unwrap_or("")
}

fn expected_failures(file: &Path) -> Result<BTreeMap<String, String>, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    conformance::parse_expected_failures(&text).map_err(|e| format!("{}: {e}", file.display()))
}

/// Run tests on several threads; results in the order of the folders.
fn run_all(
    folders: &[PathBuf],
    jobs: Option<usize>,
    test: impl Fn(&Path) -> Result<(), String> + Sync,
) -> Vec<Result<(), String>> {
    let jobs = jobs.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1).max(1);
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Result<(), String>>> =
        folders.iter().map(|_| Mutex::new(Err("did not run".into()))).collect();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            // Nested graphs recurse, and debug builds have large frames.
            let work = || {
                while let Some((i, folder)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, folders.get(i)?)))
                {
                    // A panic is a bug of ours: it fails its test and no other.
                    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(folder)));
                    let result = result.unwrap_or_else(|_| Err("panicked".into()));
                    *results[i].lock().expect("no thread panics while holding it") = result;
                }
            };
            std::thread::Builder::new().stack_size(64 << 20).spawn_scoped(scope, work).expect("threads can be started");
        }
    });
    results.into_iter().map(|r| r.into_inner().expect("no thread panics while holding it")).collect()
}
