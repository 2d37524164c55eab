//! `numrsc test`: run standard ONNX test folders.
use super::{Backend, Failure, Given, LevelArgs, Outcome, TimeArgs, terminal::say};
use clap::ValueEnum;
use numrsc::{
    compile,
    conformance::{self, Executor, Reference, ReferenceWithin},
    native::Native,
};
use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

/// Run ONNX test folders (model.onnx, test_data_set_*/input_*.pb, output_*.pb)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Test folders, or folders of them
    #[arg(required = true)]
    dirs: Vec<PathBuf>,
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
    /// Threads that run each compiled model
    #[arg(long, value_name = "N", default_value = "1")]
    threads: NonZeroUsize,
    #[command(flatten)]
    level: LevelArgs,
    /// Check every access of memory of compiled models
    #[arg(long)]
    sanitize: bool,
    #[command(flatten)]
    time: TimeArgs,
    /// Forget the declared shapes of graph outputs before compiling
    #[arg(long)]
    ignore_declared_shapes: bool,
    /// Make every size of every input a symbol of its own before compiling, or, with `alike`, one symbol of equal sizes
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "each")]
    open_sizes: Option<OpenSizes>,
    /// With --open-sizes, a file with one test name, the size that has to be known, and the reason per line: these must be refused when compiling
    #[arg(long, value_name = "FILE", requires = "open_sizes")]
    expected_refusals: Option<PathBuf>,
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

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OpenSizes {
    Each,
    Alike,
}

impl From<OpenSizes> for conformance::OpenSizes {
    fn from(how: OpenSizes) -> conformance::OpenSizes {
        match how {
            OpenSizes::Each => conformance::OpenSizes::Each,
            OpenSizes::Alike => conformance::OpenSizes::Alike,
        }
    }
}

impl Args {
    fn executor(&self) -> Box<dyn Executor + Sync> {
        let timeout = self.time.timeout;
        let Some(generator) = self.backend.generator() else {
            return match timeout {
                Some(time) => Box::new(ReferenceWithin(time)),
                None => Box::new(Reference),
            };
        };
        // Tests run side by side already.
        let passes = numrsc_passes::PassOptions {
            level: self.level.level,
            without: self.level.without_rule.clone(),
            sanitize: self.sanitize,
            jobs: 1,
            ..Default::default()
        };
        let options = compile::Options { generator, passes, ..Default::default() };
        Box::new(Native { options, threads: self.threads.get(), timeout })
    }
}

pub(crate) fn run(args: &Args, given: &Given, quiet: bool) -> Result<Outcome, Failure> {
    if args.backend == Backend::Reference {
        // Tests run in parallel by any backend.
        given.fit_reference(&["--jobs"])?;
    }
    let mut folders = Vec::new();
    for dir in &args.dirs {
        let before = folders.len();
        conformance::find_folders(dir, &mut folders);
        if folders.len() == before {
            return Err(Failure::Other(format!("{}: no folder with a model.onnx", dir.display())));
        }
    }
    folders.retain(|f| args.filter.as_ref().is_none_or(|part| conformance::name(f).contains(part)));
    let expected = args.expected_failures.as_deref().map_or(Ok(BTreeMap::new()), list)?;
    let refusals = args.expected_refusals.as_deref().map_or(Ok(BTreeMap::new()), list)?;
    let executor = args.executor();
    let options = conformance::FolderOptions {
        ignore_declared_shapes: args.ignore_declared_shapes,
        open_sizes: args.open_sizes.map(Into::into),
    };
    let results = conformance::run_all(&folders, args.jobs, |dir| match refusals.get(conformance::name(dir)) {
        Some(reason) => conformance::expect_refusal(dir, conformance::named_size(reason), options),
        None => conformance::run_folder(dir, &*executor, options),
    });
    let score = conformance::score(&folders, results, &expected);
    score.failures.iter().for_each(|f| say!("FAIL {f}"));
    let (passed, failed, skipped) = (score.passed, score.failures.len(), score.skipped);
    if skipped > 0 && !quiet {
        say!("skipped are tests that fail as expected");
    }
    let by = match args.backend {
        Backend::Reference => "the reference evaluator",
        Backend::Llvm => "compiled by LLVM",
        Backend::Cranelift => "compiled by Cranelift",
    };
    say!("{passed} passed, {failed} failed, {skipped} skipped ({by})");
    Ok(if failed == 0 { Outcome::Success } else { Outcome::Negative })
}

fn list(file: &Path) -> Result<BTreeMap<String, String>, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    conformance::parse_expected_failures(&text).map_err(|e| format!("{}: {e}", file.display()))
}
