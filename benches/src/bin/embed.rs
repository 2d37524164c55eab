//! Build time and peak memory that a model adds to the program that contains it.
//!
//! `cargo run --release -p numrsc-benches --bin embed [NAME…]` (models of the corpus; `mnist_cntk` and `resnet50_ts`, which has 102 MB, unless named).
//! Each program is built once with all that it depends on, then its build script is changed and it is built again: that compiles and runs the script,
//! compiles the program, and links it.
use clap::Parser;
use numrsc_benches::{
    driver::{self, Result},
    exit_code,
    memory::children_peak_kb,
    table::{Format, Table, short},
};
use serde_json::{Value, json};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

/// The cost of models in the builds of programs.
#[derive(Parser)]
struct Args {
    #[arg(default_values_t = ["mnist_cntk".to_owned(), "resnet50_ts".to_owned()])]
    names: Vec<String>,
    /// How often each is built; the fastest counts, other work on the machine only adds.
    #[arg(long, default_value_t = 3)]
    times: usize,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Act as the build script of a program.
    #[arg(long, hide = true)]
    script: Option<PathBuf>,
    /// Build a folder and print JSON.
    #[arg(long, hide = true)]
    measure: Option<PathBuf>,
}

const MANIFEST: &str = r#"[package]
name = "NAME"
version = "0.0.0"
edition = "2024"

[workspace]

[dependencies]
numrsc-runtime = { path = "RUNTIME" }
"#;

/// Calls this program, which contains the compiler as a build script would, so that it need not be compiled again.
const SCRIPT: &str = r#"
use std::process::{Command, exit};

fn main() {
    let script = Command::new("PROGRAM").args(["--script", "MODEL"]).status();
    exit(script.ok().and_then(|status| status.code()).unwrap_or(1));
}
"#;

const PROGRAM: &str = r#"
numrsc_runtime::include_model!("model");

fn main() {
    Model::new().unwrap();
}
"#;

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code(match (&args.script, &args.measure) {
        (Some(model), _) => driver::with_large_stack(|| numrsc::Build::new(model).name("model").compile()),
        (_, Some(folder)) => measure(folder).map(|report| println!("{report}")),
        _ => report(&args),
    })
}

fn report(args: &Args) -> Result<()> {
    let models = driver::corpus_models()?;
    let mut subjects = vec![("empty".to_owned(), None)];
    for name in &args.names {
        let path = models.iter().find(|path| driver::name_of(path) == *name);
        let path = path.ok_or_else(|| format!("no model {name} in the corpus"))?.join("model.onnx");
        subjects.push((name.clone(), Some(path)));
    }
    let mut builds = vec![];
    for (name, model) in &subjects {
        eprint!("{name}                    \r");
        builds.push(build(args.times, name, model.as_deref())?);
    }
    let mut table = Table::new(&[
        "program with",
        "model MB",
        "build s",
        "more than without",
        "peak MB",
        "program MB",
        "starts in ms",
    ]);
    for ((name, model), [seconds, peak, size, start]) in subjects.iter().zip(&builds) {
        let name = if model.is_some() { name } else { "no model" };
        let megabytes = model.as_ref().map_or(0.0, |path| driver::file_size(path) as f64 / 1e6);
        let numbers = [megabytes, *seconds, seconds - builds[0][0], *peak, *size, *start];
        table.row([name.to_owned()].into_iter().chain(numbers.map(short)));
    }
    table.print(args.format);
    Ok(())
}

/// Seconds of a build and the MB of its largest process; MB of the program and the milliseconds of its run.
fn build(times: usize, name: &str, model: Option<&Path>) -> Result<[f64; 4]> {
    let folder = driver::work_folder(&format!("embed/{name}"))?;
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let root = numrsc_tests::corpus::root();
    let this = env::current_exe().map_err(failed)?;
    let manifest = MANIFEST.replace("NAME", name).replace("RUNTIME", &root.join("runtime-min").display().to_string());
    let (script, program) = match model {
        Some(model) => (
            SCRIPT.replace("PROGRAM", &this.display().to_string()).replace("MODEL", &model.display().to_string()),
            PROGRAM,
        ),
        None => ("fn main() {}\n".to_owned(), "fn main() {}\n"),
    };
    fs::create_dir_all(folder.join("src")).map_err(failed)?;
    fs::write(folder.join("Cargo.toml"), manifest).map_err(failed)?;
    fs::write(folder.join("src/main.rs"), program).map_err(failed)?;
    for file in ["Cargo.lock", "rust-toolchain.toml"] {
        fs::copy(root.join(file), folder.join(file)).map_err(failed)?;
    }
    let (mut best, mut peak) = (f64::INFINITY, 0.0f64);
    for time in 0..=times.max(1) {
        fs::write(folder.join("build.rs"), format!("{script}// {time}\n")).map_err(failed)?;
        let mut command = Command::new(&this);
        command.arg("--measure").arg(&folder);
        let Value::Object(report) = driver::run_compiler(&mut command, Duration::from_secs(900))?.report else {
            return Err("no report".into());
        };
        // The first build also compiles dependencies.
        if time > 0 {
            best = best.min(report["seconds"].as_f64().unwrap_or(f64::NAN));
            peak = peak.max(report["peak_kb"].as_f64().unwrap_or(f64::NAN) / 1e3);
        }
    }
    let program = folder.join("target/release").join(name);
    let start = Instant::now();
    let status = Command::new(&program).env_remove("LD_LIBRARY_PATH").status().map_err(failed)?;
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    if !status.success() {
        return Err(format!("the program with {name} does not run: {status}"));
    }
    Ok([best, peak, driver::file_size(&program) as f64 / 1e6, milliseconds])
}

fn measure(folder: &Path) -> Result<Value> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "--quiet", "--release"]).current_dir(folder).env("CARGO_TARGET_DIR", folder.join("target"));
    let start = Instant::now();
    let status = cargo.status().map_err(|e| format!("cargo: {e}"))?;
    let seconds = start.elapsed().as_secs_f64();
    if !status.success() {
        return Err("the program cannot be built".into());
    }
    Ok(json!({ "seconds": seconds, "peak_kb": children_peak_kb() }))
}
