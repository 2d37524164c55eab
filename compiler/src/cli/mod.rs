//! The command line: what the user may ask for, and how answers and errors are shown.
mod check;
mod inspect;
mod run;
mod table;
mod test;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use numrsc::{
    Error,
    compile::{self, Generator},
    conformance::{Executor, Reference},
    native::Native,
    onnx::{Model, import},
};
use numrsc_ir::Func;
use std::{fmt, io::IsTerminal, path::Path, process::ExitCode};

/// Ahead-of-time compiler for ONNX models
///
/// Exit codes: 0 success; 1 the model cannot be compiled, or a test failed; 2 wrong usage; 3 a file cannot be read or
/// written, or running a model failed.
#[derive(Debug, Parser)]
#[command(name = "numrsc", version, max_term_width = 120, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print results only, no progress or notes
    #[arg(long, short, global = true)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::Args),
    Inspect(inspect::Args),
    Run(run::Args),
    Test(test::Args),
    /// Print a completion script for a shell
    Completions {
        shell: clap_complete::Shell,
    },
}

/// What executes a model
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Backend {
    /// The slow evaluator that is always right
    #[default]
    Reference,
    /// Compiled by LLVM
    Llvm,
    /// Compiled by Cranelift
    Cranelift,
}

impl Backend {
    fn executor(self) -> Box<dyn Executor + Sync> {
        let generator = match self {
            Backend::Reference => return Box::new(Reference),
            Backend::Llvm => Generator::Llvm,
            Backend::Cranelift => Generator::Cranelift,
        };
        Box::new(Native { options: compile::Options { generator, jobs: 1, ..Default::default() }, threads: 1 })
    }
}

/// Options of commands that import a model.
#[derive(Debug, clap::Args)]
struct ImportArgs {
    /// Fix the size of a named dimension; may be given more than once
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = parse_dim)]
    dims: Vec<(String, i64)>,
    /// Take a name of a dimension that several inputs use as a different size in each
    #[arg(long)]
    distinct_dims: bool,
}

impl ImportArgs {
    fn options(&self) -> import::Options {
        import::Options { dims: self.dims.iter().cloned().collect(), distinct_dims: self.distinct_dims }
    }
}

fn parse_dim(text: &str) -> Result<(String, i64), String> {
    let (name, size) = text.split_once('=').ok_or("expected NAME=SIZE")?;
    match size.parse::<i64>() {
        Ok(n) if n >= 0 => Ok((name.to_string(), n)),
        _ => Err(format!("`{size}` is not a size")),
    }
}

/// The exit code where a file cannot be read or written, or running a model failed.
const UNREADABLE: u8 = 3;

/// How a command ended.
enum Outcome {
    Success,
    /// The answer is "no": exit code 1, everything has been printed.
    Negative,
    /// There is no answer for a file that cannot be read; everything has been printed.
    Unreadable,
}

/// Why a command could not answer.
#[derive(Debug)]
enum Failure {
    Model(Error),
    Other(String),
}

impl From<Error> for Failure {
    fn from(e: Error) -> Failure {
        Failure::Model(e)
    }
}

impl From<String> for Failure {
    fn from(e: String) -> Failure {
        Failure::Other(e)
    }
}

pub(crate) fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.command {
        Command::Check(a) => check::run(a, args.quiet),
        Command::Inspect(a) => inspect::run(a),
        Command::Run(a) => run::run(a, args.quiet),
        Command::Test(a) => test::run(a, args.quiet),
        Command::Completions { shell } => {
            clap_complete::generate(*shell, &mut Args::command(), "numrsc", &mut std::io::stdout());
            Ok(Outcome::Success)
        }
    };
    match result {
        Ok(Outcome::Success) => ExitCode::SUCCESS,
        Ok(Outcome::Negative) => ExitCode::from(1),
        Ok(Outcome::Unreadable) => ExitCode::from(UNREADABLE),
        Err(Failure::Model(e)) => {
            show(&e);
            ExitCode::from(if matches!(e, Error::Io { .. }) { UNREADABLE } else { 1 })
        }
        Err(Failure::Other(e)) => {
            show(&e);
            ExitCode::from(UNREADABLE)
        }
    }
}

/// Load and import a model, showing what is suspicious about it.
fn load(path: &Path, options: &import::Options, quiet: bool) -> Result<(Model, Func), Error> {
    let model = numrsc::onnx::load(path)?;
    if !quiet {
        for w in model.warnings() {
            eprintln!("warning: {}: {w}", path.display());
        }
    }
    let func = import::import(&model, options)?;
    Ok((model, func))
}

/// Errors go to stderr; on a terminal the word stands out.
fn show(e: &dyn fmt::Display) {
    let error = if std::io::stderr().is_terminal() { "\x1b[1;31merror\x1b[0m" } else { "error" };
    eprintln!("{error}: {e}");
}

/// A number of bytes for people.
fn bytes(n: usize) -> String {
    match n {
        0..1_000 => format!("{n} B"),
        1_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        _ => format!("{:.1} MB", n as f64 / 1e6),
    }
}
