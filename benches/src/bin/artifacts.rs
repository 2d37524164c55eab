//! Compares the artifacts of two revisions byte by byte: moves and renames must not change code and weights.
//!
//! `cargo run -p numrsc-benches --bin artifacts -- record FILE [NAME…]` at each of them, then `… -- compare BEFORE AFTER`. A record has a
//! line for every model of the corpus and every way to compile it: sizes and checksums of code and weights.
use clap::{Parser, Subcommand};
use memmap2::Mmap;
use numrsc::{
    compile::{Generator, Options},
    conformance::Settings,
};
use numrsc_benches::{
    driver::{self, Result},
    exit_code,
};
use numrsc_runtime::artifact::{Artifact, checksum};
use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

/// Compare code and weights of all models of the corpus between two revisions.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Compiles every model in every way and records sizes and checksums.
    Record {
        file: PathBuf,
        /// Only models that have one of these in their name.
        names: Vec<String>,
        /// Only these ways to compile.
        #[arg(long, value_delimiter = ',', default_values_t = WAYS.map(|way| way.name.to_owned()))]
        ways: Vec<String>,
        #[arg(long, default_value_t = 1)]
        jobs: usize,
    },
    /// Lists the differences between two records.
    Compare { before: PathBuf, after: PathBuf },
    /// Compile one model in one way and print its line.
    #[command(hide = true)]
    One { folder: PathBuf, way: String, artifact: PathBuf },
}

/// A way to compile: fixed processors, so that the machine does not matter.
struct Way {
    name: &'static str,
    generator: Generator,
    triple: &'static str,
    cpu: &'static str,
}

const WAYS: [Way; 3] = [
    Way { name: "x86-64", generator: Generator::Llvm, triple: "x86_64-unknown-linux-gnu", cpu: "x86-64-v4" },
    Way { name: "cranelift", generator: Generator::Cranelift, triple: "", cpu: "" },
    Way { name: "aarch64", generator: Generator::Llvm, triple: "aarch64-unknown-linux-gnu", cpu: "neoverse-n1" },
];

fn main() -> ExitCode {
    exit_code(match Args::parse().task {
        Task::Record { file, names, ways, jobs } => record(&file, &names, &ways, jobs),
        Task::Compare { before, after } => compare(&before, &after),
        Task::One { folder, way, artifact } => driver::with_large_stack(|| one(&folder, &way, &artifact)).flatten(),
    })
}

fn one(folder: &Path, way: &str, path: &Path) -> Result<()> {
    let way = WAYS.iter().find(|w| w.name == way).ok_or_else(|| format!("there is no way called `{way}`"))?;
    let options = Options {
        generator: way.generator,
        triple: way.triple.to_owned(),
        cpu: way.cpu.to_owned(),
        ..Options::default()
    };
    driver::compile_file(&folder.join("model.onnx"), &Settings::of(folder)?.import(), &options, path)?;
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let file = fs::File::open(path).map_err(|e| failed(&e))?;
    // SAFETY: the file is this process's own until it ends.
    #[allow(unsafe_code)]
    let bytes = unsafe { Mmap::map(&file) }.map_err(|e| failed(&e))?;
    let artifact = Artifact::parse(&bytes).map_err(|e| failed(&e))?;
    let sums = [artifact.code, artifact.weights].map(|part| format!("{} {:016x}", part.len(), checksum(part)));
    println!("{}", serde_json::json!(sums));
    Ok(())
}

fn record(file: &Path, names: &[String], ways: &[String], jobs: usize) -> Result<()> {
    let this = env::current_exe().map_err(|e| e.to_string())?;
    let folder = driver::work_folder("artifacts")?;
    let models = driver::corpus_models()?;
    let wanted = |name: &str| names.is_empty() || names.iter().any(|n| name.contains(&n[..]));
    let subjects: Vec<(&PathBuf, &Way)> = models
        .iter()
        .filter(|model| wanted(&driver::name_of(model)))
        .flat_map(|model| WAYS.iter().filter(|way| ways.iter().any(|w| w == way.name)).map(move |way| (model, way)))
        .collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let lines = std::sync::Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for job in 0..jobs.max(1) {
            let (this, folder, subjects, next, lines) = (&this, &folder, &subjects, &next, &lines);
            scope.spawn(move || {
                let path = folder.join(format!("{job}.nrsc"));
                while let Some((model, way)) = subjects.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    let mut command = Command::new(this);
                    command.arg("one").args([model.as_path(), Path::new(way.name), &path]);
                    let line = match driver::run_compiler(&mut command, Duration::from_secs(1800)) {
                        Ok(outcome) => format!("{}\t{}", text(&outcome.report[0]), text(&outcome.report[1])),
                        Err(message) => message.lines().next().unwrap_or("failed").to_owned(),
                    };
                    lines.lock().expect("no panics").insert((driver::name_of(model), way.name), line);
                }
                let _ = fs::remove_file(&path);
            });
        }
    });
    let mut text = String::new();
    for ((model, way), line) in lines.into_inner().expect("no panics") {
        writeln!(text, "{model}\t{way}\t{line}").expect("strings take everything");
    }
    fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or("?").to_owned()
}

fn compare(before: &Path, after: &Path) -> Result<()> {
    let read = |path: &Path| fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    let (before, after) = (read(before)?, read(after)?);
    let rows = |text: &str| -> BTreeMap<(String, String), Vec<String>> {
        let cells = |line: &str| line.split('\t').map(str::to_owned).collect::<Vec<_>>();
        text.lines()
            .map(cells)
            .filter(|c| c.len() > 2)
            .map(|c| ((c[0].clone(), c[1].clone()), c[2..].to_vec()))
            .collect()
    };
    let (before, after) = (rows(&before), rows(&after));
    let (mut same, mut different) = (0, vec![]);
    for (key, new) in &after {
        match before.get(key) {
            Some(old) if old == new => same += 1,
            Some(old) => different.push(format!("{} {}: {} -> {}", key.0, key.1, old.join(", "), new.join(", "))),
            None => different.push(format!("{} {}: not there before", key.0, key.1)),
        }
    }
    different
        .extend(before.keys().filter(|key| !after.contains_key(key)).map(|key| format!("{} {}: gone", key.0, key.1)));
    for line in &different {
        println!("{line}");
    }
    println!("{same} of {} artifacts are the same to the byte", same + different.len());
    if different.is_empty() { Ok(()) } else { Err(format!("{} differ", different.len())) }
}
