//! The command line: what the user may ask for, and how answers and errors are shown.
#![deny(clippy::print_stdout, clippy::print_stderr)]
mod artifact;
mod bench;
mod check;
mod compile;
#[cfg(target_os = "linux")]
mod cut;
mod info;
mod inspect;
mod npz;
mod optimize;
mod outputs;
mod report;
mod run;
mod table;
mod targets;
mod terminal;
mod test;
mod values;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use numrsc::{
    Error,
    compile::{Generator, Options},
    deadline::Deadline,
    near,
    onnx::{Model, import, proto::DimensionValue},
    output::artifact::read_artifact,
};
use numrsc_ir::Func;
use numrsc_passes::{Level, TOLERANCE};
use numrsc_runtime::Manifest;
use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};
use terminal::tell;

/// Ahead-of-time compiler for ONNX models
///
/// Exit codes: 0 success; 1 the model cannot be compiled, an artifact is damaged, or a test failed; 2 wrong usage; 3 a file
/// cannot be read or written, or running a model failed.
#[derive(Debug, Parser)]
#[command(name = "numrsc", version, max_term_width = 120, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print results only, no progress or notes
    #[arg(long, short, global = true)]
    quiet: bool,
    /// When to highlight words in colour
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    color: terminal::Color,
}

/// The options on the command line, as written.
#[derive(Debug, Default)]
struct Given(Vec<String>);

impl Given {
    fn of(matches: &clap::ArgMatches) -> Given {
        let Some((_, command)) = matches.subcommand() else { return Given::default() };
        let is_given = |id: &&str| command.value_source(id) == Some(clap::parser::ValueSource::CommandLine);
        let written = |id: &str| if id == "level" { "-O".to_owned() } else { format!("--{}", id.replace('_', "-")) };
        Given(command.ids().map(clap::Id::as_str).filter(is_given).map(written).collect())
    }

    /// Refuses options that concern compiling: an artifact is compiled already.
    fn fit_artifact(&self, file: &Path) -> Result<(), Failure> {
        let without = [&OF_COMPILING[..], &["--distinct-dims", "--backend"]].concat();
        self.refuse(&without, &format!("{} is an artifact: it is compiled already", file.display()))
    }

    /// As [`Given::fit_artifact`], of several files, where an option has a meaning if it has one for any of them.
    fn fit_artifacts(&self, files: &[PathBuf]) -> Result<(), Failure> {
        for file in files {
            if read_artifact(file)?.is_none() {
                return Ok(());
            }
        }
        files.first().map_or(Ok(()), |first| self.fit_artifact(first))
    }

    /// Refuse, of what nothing is run of, also what says at which sizes.
    fn fit_artifact_at_rest(&self, file: &Path) -> Result<(), Failure> {
        self.fit_artifact(file)?;
        self.refuse(
            &["--dim", "--shape", "--open"],
            &format!("{} is an artifact: its sizes are its own", file.display()),
        )
    }

    /// Refuse what says how to compile, and how compiled code runs. What the command needs for itself is left out.
    fn fit_reference(&self, own: &[&str]) -> Result<(), Failure> {
        let mut without = [&OF_COMPILING[..], &["--threads"]].concat();
        without.retain(|option| !own.contains(option));
        self.refuse(&without, "the reference evaluator compiles nothing, and has one thread")
    }

    fn refuse(&self, options: &[&str], why: &str) -> Result<(), Failure> {
        match self.0.iter().find(|option| options.contains(&&option[..])) {
            None => Ok(()),
            Some(option) => Err(Failure::Usage(format!("{why}, {option} has no meaning"))),
        }
    }
}

/// Options that say how to compile.
const OF_COMPILING: [&str; 7] = ["-O", "--without-rule", "--cpu", "--sanitize", "--tolerance", "--jobs", "--no-cache"];

#[derive(Debug, Subcommand)]
enum Command {
    Compile(compile::Args),
    Run(run::Args),
    Bench(bench::Args),
    Check(check::Args),
    Inspect(inspect::Args),
    Optimize(optimize::Args),
    Test(test::Args),
    Targets(targets::Args),
    Info(info::Args),
    /// Print a completion script for a shell
    Completions {
        shell: clap_complete::Shell,
    },
}

/// What executes a model
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Backend {
    /// The slow and exact reference evaluator
    #[default]
    Reference,
    /// Compiled by LLVM
    Llvm,
    /// Compiled by Cranelift
    Cranelift,
}

impl Backend {
    fn generator(self) -> Option<Generator> {
        match self {
            Backend::Reference => None,
            Backend::Llvm => Some(Generator::Llvm),
            Backend::Cranelift => Some(Generator::Cranelift),
        }
    }
}

/// What generates code
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum CodeBackend {
    /// LLVM; Cranelift where there is no numrsc-llvm
    #[default]
    Auto,
    /// The best code, for every target
    Llvm,
    /// Compiles fastest, for this machine only
    Cranelift,
}

impl CodeBackend {
    fn generator(self) -> Generator {
        match self {
            CodeBackend::Auto => Generator::Auto,
            CodeBackend::Llvm => Generator::Llvm,
            CodeBackend::Cranelift => Generator::Cranelift,
        }
    }
}

/// How much to optimise.
#[derive(Debug, clap::Args)]
struct LevelArgs {
    /// 0: nothing; 1: constants and cleanups; 2: all rules that keep every bit; 3: also rules that change floats by rounding, and a wider search
    #[arg(short = 'O', value_name = "LEVEL", default_value = "2", value_parser = parse_level)]
    level: Level,
    /// Disable a rule of the optimiser (see `numrsc inspect --explain`), a pass such as `unroll` or `layout`, or
    /// `attention` in one kernel; may be given more than once
    #[arg(long, value_name = "RULE", value_parser = known_rule)]
    without_rule: Vec<String>,
}

fn known_rule(name: &str) -> Result<String, String> {
    let known = numrsc_passes::pipeline::optional_names();
    match known.contains(&name) {
        true => Ok(name.to_owned()),
        false => {
            let near = near::hint(name, known);
            Err(format!("there is no such rule{near} (`numrsc inspect MODEL --explain` lists those that fire)"))
        }
    }
}

fn parse_level(text: &str) -> Result<Level, String> {
    match text {
        "0" => Ok(Level::O0),
        "1" => Ok(Level::O1),
        "2" => Ok(Level::O2),
        "3" => Ok(Level::O3),
        _ => Err("levels are 0 to 3".into()),
    }
}

fn parse_tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(tolerance) if tolerance >= 0.0 => Ok(tolerance),
        _ => Err("a tolerance is a number that is not negative, such as 2e-5".into()),
    }
}

/// Options of commands that generate code.
#[derive(Debug, clap::Args)]
struct BuildArgs {
    #[command(flatten)]
    level: LevelArgs,
    /// The processor to compile for: a name that `numrsc targets` lists, or `native`. Several names, as in
    /// x86-64-v3,x86-64-v4, make one artifact with code for each, of which the last one that can run is taken [default:
    /// native; the plainest one of another --target]
    #[arg(long, value_name = "NAME")]
    cpu: Option<String>,
    /// Check every memory access at run time
    #[arg(long)]
    sanitize: bool,
    /// Rounding error that a convolution or product may add, relative to its largest sum of magnitudes. 0: plain sums
    /// only (no Winograd, no Fourier transform, no channel scales in weights), and every operation on 16-bit floats
    /// rounds; 2e-5: also Winograd F(4x4, 3x3)
    #[arg(long, value_name = "REL", default_value_t = TOLERANCE, value_parser = parse_tolerance)]
    tolerance: f64,
    /// Threads that compile [default: all cores]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Neither use nor fill the cache of compiled kernels, $XDG_CACHE_HOME/numrsc or ~/.cache/numrsc
    #[arg(long)]
    no_cache: bool,
}

impl BuildArgs {
    fn options(&self, generator: Generator, target: Option<&str>, quiet: bool) -> Options {
        let plain = if target.is_some() { "" } else { "native" };
        let options = Options {
            generator,
            triple: target.unwrap_or_default().to_owned(),
            cpu: self.cpu.clone().unwrap_or_else(|| plain.to_owned()),
            passes: numrsc_passes::PassOptions {
                level: self.level.level,
                without: self.level.without_rule.clone(),
                sanitize: self.sanitize,
                tolerance: self.tolerance,
                tuning: None,
                jobs: self.jobs.map_or(0, NonZeroUsize::get),
            },
            strip_names: false,
            cache: if self.no_cache { None } else { cache_directory(quiet) },
        };
        let (options, why) = options.settled();
        if let Some(why) = why.filter(|_| !quiet) {
            tell!("note: compiling by Cranelift, whose code is slower: {why}");
        }
        options
    }
}

/// Where compiled kernels are cached.
fn cache_place() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("numrsc"))
}

/// The same, created if missing. Everything works without, but slower.
fn cache_directory(quiet: bool) -> Option<PathBuf> {
    let directory = cache_place()?;
    let usable = std::fs::create_dir_all(&directory).and_then(|()| tempfile::tempfile_in(&directory));
    match usable {
        Ok(_) => Some(directory),
        Err(e) => {
            if !quiet {
                tell!("note: compiling without a cache: {}: {e}", directory.display());
            }
            None
        }
    }
}

/// As many threads as asked for, or as the process may use.
fn thread_count(asked: Option<NonZeroUsize>) -> usize {
    asked.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}

/// How long running a model may take.
#[derive(Debug, clap::Args)]
struct TimeArgs {
    /// Stop a run that takes longer
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<Duration>,
}

/// How long a run has to notice that it is cancelled; loops notice at once.
const GRACE: Duration = Duration::from_secs(5);

impl TimeArgs {
    /// Calls `stop` after the time, and ends the process if that does not help. Dropping the result calls it off.
    fn begin(&self, stop: impl FnOnce() + Send + 'static) -> Option<[Deadline; 2]> {
        let time = self.timeout?;
        let end = move || {
            terminal::error(&format!("the run took longer than {} and does not end", seconds(time)));
            std::process::exit(UNREADABLE.into());
        };
        Some([Deadline::after(time, stop), Deadline::after(time.saturating_add(GRACE), end)])
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|s| *s > 0.0);
    let time = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
    time.ok_or_else(|| "a time is a number of seconds above 0, such as 2.5".into())
}

/// Options of commands that import a model.
#[derive(Debug, clap::Args)]
struct ImportArgs {
    /// Fix the size of a named dimension; may be given more than once
    #[arg(id = "dim", long = "dim", value_name = "NAME=SIZE", value_parser = parse_dim)]
    dims: Vec<(String, i64)>,
    /// The shape of an input that the model leaves open: sizes, names of sizes, `?` for others; may be given more than
    /// once
    #[arg(id = "shape", long = "shape", value_name = "NAME=2,3,batch", value_parser = parse_shape)]
    shapes: Vec<(String, Vec<DimensionValue>)>,
    /// Make a size of an input that the model fixes a named dimension: --open x:0=batch for the first axis of x; may be given more than once
    #[arg(long, value_name = "NAME:AXIS=DIM", value_parser = parse_open)]
    open: Vec<Open>,
    /// Treat a dimension name that several inputs share as a different size in each
    #[arg(long)]
    distinct_dims: bool,
    /// Make a value of the model an output as well, a tensor or what a node gives, by its name; may be given more than
    /// once
    #[arg(long, value_name = "NODE")]
    keep: Vec<String>,
}

/// An input, an axis of it, and the name that its size gets.
type Open = ((String, usize), String);

impl ImportArgs {
    fn options(&self) -> import::Options {
        import::Options {
            shapes: self.shapes.iter().cloned().collect(),
            dims: self.dims.iter().cloned().collect(),
            open: self.open.iter().cloned().collect(),
            distinct_dims: self.distinct_dims,
            keep: self.keep.clone(),
        }
    }

    /// Sizes can be given for what an artifact leaves open, and for nothing else.
    fn fit(&self, artifact: &Manifest<'_>) -> Result<(), Failure> {
        if let Some((name, _)) = self.shapes.first() {
            return Err(Failure::Usage(format!("--shape {name}: the inputs of an artifact have their shapes")));
        }
        if let Some(((name, axis), _)) = self.open.first() {
            return Err(Failure::Usage(format!("--open {name}:{axis}: the inputs of an artifact have their shapes")));
        }
        if let Some(name) = self.keep.first() {
            return Err(Failure::Usage(format!(
                "--keep {name}: an artifact has its outputs; give the option to numrsc compile"
            )));
        }
        let open: Vec<&str> = artifact.symbols().collect();
        match self.dims.iter().find(|(name, _)| !open.contains(&&name[..])) {
            None => Ok(()),
            Some((name, _)) if open.is_empty() => Err(Failure::Usage(format!("--dim {name}: all sizes are known"))),
            Some((name, _)) => {
                let (there_are, near) = (open.join(", "), near::hint(name, open.iter().copied()));
                Err(Failure::Usage(format!("--dim {name}: there are {there_are}{near}")))
            }
        }
    }
}

fn parse_shape(text: &str) -> Result<(String, Vec<DimensionValue>), String> {
    // Names of inputs may hold anything.
    let (name, shape) = text.rsplit_once('=').ok_or("expected NAME=2,3,batch")?;
    Ok((name.to_string(), import::parse_shape(shape)?))
}

fn parse_open(text: &str) -> Result<Open, String> {
    let (place, dim) = text.rsplit_once('=').ok_or("expected NAME:AXIS=DIM")?;
    let (name, axis) = place.rsplit_once(':').ok_or("expected NAME:AXIS=DIM")?;
    let axis = axis.parse::<usize>().map_err(|_| format!("`{axis}` is not an axis"))?;
    match dim.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => Ok(((name.to_owned(), axis), dim.to_owned())),
        false => Err(format!("`{dim}` is not a name for a size: names begin with a letter")),
    }
}

fn parse_dim(text: &str) -> Result<(String, i64), String> {
    let (name, size) = text.split_once('=').ok_or("expected NAME=SIZE")?;
    match size.parse::<i64>() {
        Ok(n) if n >= 0 => Ok((name.to_string(), n)),
        _ => Err(format!("`{size}` is not a size")),
    }
}

/// The exit code for a negative answer.
const NEGATIVE: u8 = 1;
/// The exit code for wrong usage.
const WRONG_USAGE: u8 = 2;
/// The exit code where a file cannot be read or written, or running a model failed.
const UNREADABLE: u8 = 3;

/// How a command ended.
enum Outcome {
    Success,
    /// A negative answer: exit code 1, everything has been printed.
    Negative,
    /// There is no answer for a file that cannot be read; everything has been printed.
    Unreadable,
}

/// Why a command failed.
#[derive(Debug)]
enum Failure {
    Model(Error),
    /// Wrong usage: exit code 2.
    Usage(String),
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
    #[cfg(target_os = "linux")]
    cut::watch();
    let parsed = Args::command()
        .try_get_matches()
        .and_then(|matches| Ok((Args::from_arg_matches(&matches)?, Given::of(&matches))));
    let outcome = match parsed {
        Ok((args, given)) => {
            args.color.choose();
            answer(&args, &given)
        }
        Err(e) if e.use_stderr() => {
            let text = e.render().to_string();
            terminal::error(&text.trim_end().trim_start_matches("error: "));
            WRONG_USAGE
        }
        Err(e) => {
            terminal::print(&e.render().to_string());
            0
        }
    };
    match terminal::failure() {
        Some(e) => {
            terminal::error(&format!("standard output: {e}"));
            UNREADABLE.into()
        }
        None => outcome.into(),
    }
}

/// Runs the command and returns its exit code.
fn answer(args: &Args, given: &Given) -> u8 {
    let result = match &args.command {
        Command::Compile(a) => compile::run(a, args.quiet),
        Command::Run(a) => run::run(a, given, args.quiet),
        Command::Bench(a) => bench::run(a, given, args.quiet),
        Command::Check(a) => check::run(a, given, args.quiet),
        Command::Inspect(a) => inspect::run(a, given),
        Command::Optimize(a) => optimize::run(a, args.quiet),
        Command::Test(a) => test::run(a, given, args.quiet),
        Command::Targets(a) => Ok(targets::run(a, args.quiet)),
        Command::Info(a) => Ok(info::run(a)),
        Command::Completions { shell } => {
            let mut script = vec![];
            clap_complete::generate(*shell, &mut Args::command(), "numrsc", &mut script);
            terminal::print(&String::from_utf8_lossy(&script));
            Ok(Outcome::Success)
        }
    };
    match result {
        Ok(Outcome::Success) => 0,
        Ok(Outcome::Negative) => NEGATIVE,
        Ok(Outcome::Unreadable) => UNREADABLE,
        Err(Failure::Model(e)) => {
            terminal::error(&e);
            if e.is_unreadable() { UNREADABLE } else { NEGATIVE }
        }
        Err(Failure::Usage(e)) => {
            terminal::error(&e);
            WRONG_USAGE
        }
        Err(Failure::Other(e)) => {
            terminal::error(&e);
            UNREADABLE
        }
    }
}

/// Loads a model and prints warnings about it.
fn load_model(path: &Path, quiet: bool) -> Result<Model, Error> {
    let model = numrsc::onnx::load(path)?;
    if !quiet {
        for w in model.warnings() {
            tell!("warning: {}: {w}", path.display());
        }
    }
    Ok(model)
}

/// Load and import a model.
fn load(path: &Path, options: &import::Options, quiet: bool) -> Result<(Model, Func), Error> {
    let model = load_model(path, quiet)?;
    let func = import::import(&model, options)?;
    Ok((model, func))
}

/// `1 launch`, `2 launches`.
fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A number of bytes for people.
fn bytes(n: usize) -> String {
    match n {
        0..1_000 => format!("{n} B"),
        1_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        _ => format!("{:.1} MB", n as f64 / 1e6),
    }
}

/// A time for people.
fn seconds(t: Duration) -> String {
    match t.as_secs_f64() {
        s if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.1} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
