//! `numrsc compile`: from a model to a file that can be run, linked or read.
use super::{BuildArgs, CodeBackend, Failure, ImportArgs, Outcome, outputs, report, terminal};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use numrsc::{
    Program,
    compile::{self, Codegen, Generator, Options, Phases, model_name},
    onnx::{Model, import},
    output::{
        artifact::{Artifact, read_artifact},
        files::write_file,
        object, wasm,
    },
    space::{check_disk, check_memory},
    tune::{self, Tuned},
};
use numrsc_codegen::Target;
use numrsc_ir::Func;
use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Instant,
};

/// Compile a model
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An ONNX or NumRs file
    pub(crate) model: PathBuf,
    /// Where to write [default: the model's name with a suffix for its kind, in the current folder]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What to write
    #[arg(long, value_enum, default_value_t)]
    emit: Emit,
    #[arg(long, value_enum, default_value_t)]
    pub(crate) backend: CodeBackend,
    /// The machine to compile for, for example aarch64-unknown-linux-gnu [default: this one; for --emit wasm, WebAssembly]
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    #[command(flatten)]
    pub(crate) import: ImportArgs,
    #[command(flatten)]
    build: BuildArgs,
    /// Measure schedules of convolutions on this machine and keep the fastest in a file; with the file, nothing is measured
    /// [default: the model's name with .tune.json, next to it]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    tune: Option<Option<PathBuf>>,
    /// Say more of the result
    #[arg(long, short)]
    verbose: bool,
    /// Leave out the names of the model's nodes, which the artifact and messages of failed runs have otherwise
    #[arg(long)]
    strip_names: bool,
    /// Write all there is to know about the result as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Emit {
    /// An artifact: what `numrsc run` and the runtime load
    #[default]
    Nrsc,
    /// A shared object, with a C header
    So,
    /// An ELF object, with a C header
    Obj,
    /// A static library with that object, and a C header
    Staticlib,
    /// A program for Linux that needs no libraries
    Exe,
    /// A module of WebAssembly, with a loader in JavaScript
    Wasm,
    /// LLVM's IR as text
    LlvmIr,
    /// Assembly
    Asm,
    /// The kernel IR as text
    Nir,
}

impl Emit {
    /// The kind of file, which is also the suffix of its name, except for programs.
    fn suffix(self) -> &'static str {
        match self {
            Emit::Nrsc => "nrsc",
            Emit::So => "so",
            Emit::Obj => "o",
            Emit::Staticlib => "a",
            Emit::Exe => "exe",
            Emit::Wasm => "wasm",
            Emit::LlvmIr => "ll",
            Emit::Asm => "s",
            Emit::Nir => "nir",
        }
    }
}

/// The result of compiling, as far as it got.
pub(crate) struct Written<'a> {
    pub(crate) args: &'a Args,
    /// For which the file has versions as well.
    pub(crate) other_cpus: &'a [String],
    pub(crate) options: &'a Options,
    pub(crate) codegen: &'a Codegen,
    pub(crate) func: &'a Func,
    pub(crate) emit: &'static str,
    pub(crate) output: &'a Path,
    /// The file that is written next to it, and its suffix.
    pub(crate) companion: Option<(&'static str, &'a Path)>,
    /// Of an object.
    pub(crate) footprint: Option<&'a object::Footprint>,
    pub(crate) result: Compiled<'a>,
    pub(crate) phases: &'a Phases,
    pub(crate) tuned: Option<&'a Tuned>,
}

/// Text needs no code.
pub(crate) enum Compiled<'a> {
    Code(&'a Artifact),
    Text(&'a numrsc_passes::emit::Lowered),
}

pub(crate) fn run(args: &Args, quiet: bool) -> Result<Outcome, Failure> {
    if args.emit == Emit::Wasm && args.backend == CodeBackend::Cranelift {
        return Err(Failure::Usage("only --backend llvm makes WebAssembly".into()));
    }
    let target = args.target.as_deref().or((args.emit == Emit::Wasm).then_some(Target::WEB));
    let generator = match (args.backend, args.emit) {
        // Nothing else has them.
        (CodeBackend::Auto, Emit::Wasm | Emit::LlvmIr | Emit::Asm) => Generator::Llvm,
        (backend, _) => backend.generator(),
    };
    let mut options = args.build.options(generator, target, quiet);
    options.strip_names = args.strip_names;
    // All but the last: what is reported is the version for the best of them.
    let mut other_cpus: Vec<String> = options.cpu.split(',').map(str::to_owned).collect();
    options.cpu = other_cpus.pop().unwrap_or_default();
    if !other_cpus.is_empty() && args.emit != Emit::Nrsc {
        return Err(Failure::Usage("versions for several CPUs are for artifacts only: --emit nrsc".into()));
    }
    for cpu in &other_cpus {
        Codegen::new(&Options { cpu: cpu.clone(), ..options.clone() }).map_err(|e| Failure::Usage(e.to_string()))?;
    }
    if args.backend == CodeBackend::Cranelift && matches!(args.emit, Emit::LlvmIr | Emit::Asm) {
        return Err(Failure::Usage("only --backend llvm has LLVM's IR and assembly".into()));
    }
    let codegen = Codegen::new(&options).map_err(|e| Failure::Usage(e.to_string()))?;
    let target = codegen.backend.target();
    let has_modules = target.is_web();
    let links = matches!(args.emit, Emit::Nrsc | Emit::So | Emit::Obj | Emit::Staticlib | Emit::Exe);
    if has_modules && links {
        return Err(Failure::Usage(format!("for {} there are modules only: --emit wasm", target.triple)));
    }
    if args.emit == Emit::Wasm && !has_modules {
        return Err(Failure::Usage(format!("--emit wasm is for --target {}, not for {}", Target::WEB, target.triple)));
    }
    if !target.has_artifacts() && matches!(args.emit, Emit::Nrsc | Emit::So) {
        let triple = &target.triple;
        return Err(Failure::Usage(format!("for {triple} there are objects only: --emit obj or staticlib")));
    }
    if args.tune.is_some() && !target.has_artifacts() {
        return Err(Failure::Usage(format!(
            "--tune measures on this machine, which cannot run code for {}",
            target.triple
        )));
    }
    let name = model_name(&args.model);
    let output = match &args.output {
        Some(path) => path.clone(),
        None if args.emit == Emit::Exe => PathBuf::from(&name),
        None => PathBuf::from(format!("{name}.{}", args.emit.suffix())),
    };
    let companion = companion(args.emit, &output);
    let tuning = args.tune.as_ref().map(|file| {
        let beside = || args.model.with_file_name(format!("{name}.tune.json"));
        file.clone().unwrap_or_else(beside)
    });
    let mut written = vec![("the result", &*output)];
    written.extend(companion.as_ref().map(|(kind, file)| (*kind, &**file)));
    written.extend(args.report.as_deref().map(|file| ("the report", file)));
    written.extend(tuning.as_deref().map(|file| ("the schedules", file)));
    outputs::distinct(&[("the model", &args.model)], &written)?;
    outputs::writable(&written)?;
    let (model, func, mut phases) = load(&args.model, &args.import.options(), quiet)?;
    let data = model.external_files();
    let data: Vec<outputs::File<'_>> = data.iter().map(|file| ("the model's data", &**file)).collect();
    outputs::distinct(&data, &written)?;
    drop(model);
    let tuned = tuning.as_ref().map(|file| {
        let start = Instant::now();
        let tuned = tune::tune(&func, &codegen, &options, file);
        phases.push(("tune", start.elapsed()));
        tuned
    });
    let tuned = tuned.transpose()?;
    options.passes.tuning = tuned.as_ref().map(|t| t.tuning.clone());
    check_memory(&args.model, compile::memory_estimate(&func))?;
    let lowered = compile::lower(&func, &codegen, &options, &mut phases)?;
    check_size(args.emit, &output, lowered.weights.size(), 1 + other_cpus.len() as u64)?;
    let kind = args.emit.suffix();
    let common = |companion, result, phases| Written {
        args,
        other_cpus: &other_cpus,
        options: &options,
        codegen: &codegen,
        func: &func,
        emit: kind,
        output: &output,
        companion,
        footprint: None,
        result,
        phases,
        tuned: tuned.as_ref(),
    };

    if let Emit::Nir | Emit::LlvmIr | Emit::Asm = args.emit {
        let start = Instant::now();
        let text = text(args.emit, &codegen, &lowered.module)?;
        phases.push(("generate", start.elapsed()));
        let start = Instant::now();
        write_file(&output, |to| to.write_all(text.as_bytes()))?;
        phases.push(("write", start.elapsed()));
        return finish(&common(None, Compiled::Text(&lowered), &phases), quiet);
    }

    // Early, so that missing tools are not discovered after minutes.
    let program = match args.emit {
        Emit::Exe => Some(Program::build(codegen.backend.target(), options.cache.as_deref())?),
        _ => None,
    };
    let progress = Progress::new(quiet);
    let artifact =
        compile::generate(&func, &name, &codegen, lowered, &options, Some(&|done, all| progress.at(done, all)), phases);
    progress.end();
    let artifact = artifact?;
    // The tuning file is about the last of them.
    let other = |cpu: &String| Options { cpu: cpu.clone(), ..options.clone() }.with(|o| o.tuning = None);
    let version = |cpu: &String| build(&func, &args.model, &other(cpu), quiet);
    let others = other_cpus.iter().map(version).collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    let symbol = object::symbol_name(&plain_name(&output, args.emit));
    let mut footprint = None;
    match (args.emit, &program) {
        (_, Some(program)) => program.write(&artifact, &output)?,
        (Emit::So, _) => object::write_shared_object(&artifact, &symbol, &output)?,
        (Emit::Obj, _) => footprint = Some(object::write_object(&artifact, &symbol, &output)?),
        (Emit::Staticlib, _) => footprint = Some(object::write_static_library(&artifact, &symbol, &output)?),
        (Emit::Wasm, _) => wasm::write_module(&artifact, &output)?,
        (Emit::Nrsc | Emit::Exe | Emit::LlvmIr | Emit::Asm | Emit::Nir, None) => {
            let versions: Vec<&Artifact> = others.iter().chain([&artifact]).collect();
            Artifact::write_versions(&versions, &output)?;
        }
    }
    if let Some((_, file)) = &companion {
        let needs = footprint.as_ref().map_or(&[][..], |f| &f.needs);
        let text = match args.emit {
            Emit::Wasm => wasm::loader(&output.file_name().unwrap_or_default().to_string_lossy()),
            _ => numrsc::c_header(&artifact, &symbol, needs),
        };
        write_file(file, |to| to.write_all(text.as_bytes()))?;
    }
    let mut phases = artifact.phases.clone();
    phases.push(("write", start.elapsed()));
    let companion = companion.as_ref().map(|(kind, file)| (*kind, &**file));
    let written = common(companion, Compiled::Code(&artifact), &phases);
    finish(&Written { footprint: footprint.as_ref(), ..written }, quiet)
}

/// Refuses early what cannot be written: too many weights for this kind of file, or for the disk.
fn check_size(emit: Emit, output: &Path, weights: u64, versions: u64) -> Result<(), Failure> {
    let most = match emit {
        Emit::Wasm => wasm::WEIGHTS,
        Emit::Obj | Emit::Staticlib => object::OBJECT_WEIGHTS,
        _ => u64::MAX,
    };
    if weights > most {
        return Err(Failure::Model(numrsc::Error::Codegen(format!(
            "the weights take {weights} bytes, and files of --emit {} hold {most} at most: emit nrsc, so or exe",
            emit.suffix()
        ))));
    }
    let copies = match emit {
        Emit::LlvmIr | Emit::Asm | Emit::Nir => 0,
        Emit::Nrsc => versions,
        Emit::Obj => 1,
        // On the way there is an object.
        Emit::So | Emit::Staticlib | Emit::Exe | Emit::Wasm => 2,
    };
    Ok(check_disk(output, copies * weights)?)
}

/// Loads and imports a model, and times both.
pub(crate) fn load(path: &Path, import: &import::Options, quiet: bool) -> Result<(Model, Func, Phases), Failure> {
    if read_artifact(path)?.is_some() {
        return Err(Failure::Usage(format!("{} is an artifact: it is compiled already", path.display())));
    }
    let mut phases = Phases::new();
    let start = Instant::now();
    let model = super::load_model(path, quiet)?;
    phases.push(("load", start.elapsed()));
    let start = Instant::now();
    let func = import::import(&model, import)?;
    phases.push(("import", start.elapsed()));
    Ok((model, func, phases))
}

/// Compile a function to run it here, showing progress.
pub(crate) fn build(func: &Func, path: &Path, options: &Options, quiet: bool) -> Result<Artifact, Failure> {
    check_memory(path, compile::memory_estimate(func))?;
    let progress = Progress::new(quiet);
    let at = |done, all| progress.at(done, all);
    let artifact = compile::compile(func, &model_name(path), options, Some(&at));
    progress.end();
    Ok(artifact?)
}

/// The file that is written next to the output, and its suffix.
fn companion(emit: Emit, output: &Path) -> Option<(&'static str, PathBuf)> {
    match emit {
        Emit::So | Emit::Obj | Emit::Staticlib => {
            Some(("header", output.with_file_name(format!("{}.h", plain_name(output, emit)))))
        }
        Emit::Wasm => Some(("loader", output.with_extension("js"))),
        Emit::Nrsc | Emit::Exe | Emit::LlvmIr | Emit::Asm | Emit::Nir => None,
    }
}

/// The output's name without its suffix; headers and symbols of objects are named after it.
fn plain_name(output: &Path, emit: Emit) -> String {
    let stem = output.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let library = matches!(emit, Emit::So | Emit::Staticlib);
    stem.strip_prefix("lib").filter(|rest| library && !rest.is_empty()).unwrap_or(&stem).to_owned()
}

fn text(emit: Emit, codegen: &Codegen, module: &numrsc_ir::kernel::Module) -> Result<String, Failure> {
    let failed = |e: numrsc_codegen::Error| Failure::Model(numrsc::Error::Codegen(e.to_string()));
    match (emit, &codegen.llvm) {
        (Emit::LlvmIr, Some(llvm)) => llvm.llvm_ir(module).map_err(failed),
        (Emit::Asm, Some(llvm)) => llvm.assembly(module).map_err(failed),
        _ => Ok(module.to_string()),
    }
}

fn finish(written: &Written<'_>, quiet: bool) -> Result<Outcome, Failure> {
    if let Some(file) = &written.args.report {
        let report = terminal::json(&report::json(written));
        write_file(file, |to| to.write_all(report.as_bytes()))?;
    }
    if !quiet {
        report::people(written, written.args.verbose);
    }
    Ok(Outcome::Success)
}

/// A progress bar on a terminal, nothing elsewhere.
struct Progress(ProgressBar);

impl Progress {
    fn new(quiet: bool) -> Progress {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("compiling [{bar:30}] {pos} of {len} kernels, {elapsed}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Progress(bar)
    }

    fn at(&self, done: usize, all: usize) {
        self.0.set_length(all as u64);
        // Threads may report out of order.
        self.0.set_position(self.0.position().max(done as u64));
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}
