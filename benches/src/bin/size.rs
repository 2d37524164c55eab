//! Size of a program that carries the runtime, and the runtime with a small model inside.
//!
//! `cargo run --release -p numrsc-benches --bin size [NAME]` (a model of the corpus, `mnist_cntk` unless named). The programs are built
//! for size, stripped, and compared with an empty one.
use clap::Parser;
use numrsc::{compile::Options, conformance::Settings};
use numrsc_benches::{
    driver::{self, Result},
    exit_code,
    table::{Format, Table, short},
};
use std::{
    env, fs,
    path::Path,
    process::{Command, ExitCode},
};

/// Size of programs that carry the runtime and a model.
#[derive(Parser)]
struct Args {
    #[arg(default_value = "mnist_cntk")]
    model: String,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

const MANIFEST: &str = r#"[package]
name = "size"
version = "0.0.0"
edition = "2024"

[workspace]

[dependencies]
numrsc-runtime = { path = "RUNTIME" }

[profile.release]
opt-level = "z"
lto = true
codegen-units = 1
panic = "abort"
strip = true
"#;

/// The exit code of a program that ran the model.
const RAN: i32 = 42;

/// Runs a model on zeros.
const RUN: &str = r#"
fn run(model: Model) -> numrsc_runtime::Result<()> {
    let mut context = Context::new(&model)?;
    let shapes: Vec<Vec<usize>> = model.manifest().inputs().map(|p| sizes(p.dims)).collect();
    let zeros: Vec<Vec<u64>> = shapes.iter().map(|s| vec![0; s.iter().product::<usize>()]).collect();
    let inputs: Vec<TensorRef<'_>> = model
        .manifest()
        .inputs()
        .enumerate()
        .map(|(i, p)| {
            let count = shapes[i].iter().product::<usize>() * p.dtype.size();
            let bytes = unsafe { std::slice::from_raw_parts(zeros[i].as_ptr().cast::<u8>(), count) };
            TensorRef::raw(p.dtype, bytes, &shapes[i])
        })
        .collect();
    model.run_in_order(&mut context, &inputs)?;
    std::process::exit(if context.output(0)?.bytes()?.is_empty() { 1 } else { RAN })
}

fn sizes(dims: Option<numrsc_runtime::artifact::Dims<'_>>) -> Vec<usize> {
    use numrsc_runtime::artifact::Dim;
    dims.into_iter().flatten().map(|d| if let Dim::Fixed(n) = d { n as usize } else { 1 }).collect()
}
"#;

fn main() -> ExitCode {
    exit_code(report(&Args::parse()))
}

fn report(args: &Args) -> Result<()> {
    let folder = driver::work_folder("size")?;
    let models = driver::corpus_models()?;
    let model = models.iter().find(|path| driver::name_of(path) == args.model).ok_or("no such model in the corpus")?;
    let artifact = folder.join("model.nrsc");
    let import = Settings::of(model)?.import();
    let compiled = driver::compile_file(&model.join("model.onnx"), &import, &Options::default(), &artifact)?;
    let sizes = build(&folder)?;
    let kb = |bytes: u64| short(bytes as f64 / 1e3);
    let mut table = Table::new(&["", "kB", "more than the empty program"]);
    let names = ["an empty program".to_owned(), "with the runtime".into(), format!("with `{}` inside", args.model)];
    for (name, &size) in names.into_iter().zip(&sizes) {
        table.row([name, kb(size), kb(size - sizes[0])]);
    }
    table.row(["the artifact alone".into(), kb(driver::file_size(&artifact))]);
    table.row(["of which code".into(), kb(compiled["code_bytes"].as_u64().unwrap_or(0))]);
    table.row([
        "runtime and generated code".into(),
        kb(sizes[1] - sizes[0] + compiled["code_bytes"].as_u64().unwrap_or(0)),
    ]);
    if let Ok(library) = driver::ort_library() {
        table.row(["ONNX Runtime's library".into(), kb(driver::file_size(&library))]);
    }
    table.print(args.format);
    Ok(())
}

/// Sizes of an empty program, of one that loads a model from a file, and of one that has it inside.
fn build(folder: &Path) -> Result<Vec<u64>> {
    let failed = |e: std::io::Error| e.to_string();
    let root = numrsc_tests::corpus::root();
    let runtime = root.join("runtime-min").display().to_string();
    fs::create_dir_all(folder.join("src/bin")).map_err(failed)?;
    fs::write(folder.join("Cargo.toml"), MANIFEST.replace("RUNTIME", &runtime)).map_err(failed)?;
    // The same versions of the runtime's dependencies.
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).map_err(failed)?;
    let head = "use numrsc_runtime::{Context, Model, TensorRef};\n";
    let from_file = "std::env::args_os().nth(1).map(Model::load)";
    let inside = r#"Some(Model::from_static(numrsc_runtime::include_artifact!("../../model.nrsc")))"#;
    let with = |model: &str| {
        format!(
            "{head}fn main() {{ if let Some(Ok(model)) = {model} {{ let _ = run(model); }} }}\n{}",
            RUN.replace("RAN", &RAN.to_string())
        )
    };
    let programs = [("empty", "fn main() {}\n".into()), ("runtime", with(from_file)), ("embedded", with(inside))];
    for (name, text) in &programs {
        fs::write(folder.join(format!("src/bin/{name}.rs")), text).map_err(failed)?;
    }
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "--quiet", "--release", "--target-dir"]).arg(folder.join("target")).current_dir(folder);
    if !cargo.status().map_err(failed)?.success() {
        return Err("the programs cannot be built".into());
    }
    let release = folder.join("target/release");
    // The measured program must work.
    let status = Command::new(release.join("embedded")).status().map_err(failed)?;
    if status.code() != Some(RAN) {
        return Err(format!("the program with the model inside does not run: {status}"));
    }
    Ok(programs.iter().map(|(name, _)| driver::file_size(&release.join(name))).collect())
}
