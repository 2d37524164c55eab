//! From a function of the tensor IR to an artifact: the walk along the pipeline, then code generation.
use crate::{
    Error, Result, near,
    output::{
        artifact::{Artifact, manifest},
        names,
    },
};
use numrsc_codegen::{
    Backend, Compiled, Target,
    cranelift::Cranelift,
    llvm::{Llvm, Service},
};
use numrsc_ir::{Func, Machine, Op};
use numrsc_passes::{
    Context,
    emit::Lowered,
    pipeline::{PIPELINE, Pass, Stage, Step},
};
use numrsc_runtime::artifact::Architecture;
use std::{
    borrow::Cow,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// What took how long.
pub type Phases = Vec<(&'static str, Duration)>;

/// Which code generator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Generator {
    /// LLVM, unless there is none and Cranelift can do it as well.
    #[default]
    Auto,
    /// The best code, for every target.
    Llvm,
    /// Compiles in a fraction of the time, for this machine only.
    Cranelift,
}

/// How to compile.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which code generator.
    pub generator: Generator,
    /// Empty for the machine this runs on.
    pub triple: String,
    /// A name, `native`, or empty for the plainest CPU of the triple.
    pub cpu: String,
    /// What passes may do.
    pub passes: numrsc_passes::PassOptions,
    /// Leave out the names of the model's nodes, from messages as well. Code and weights are the same.
    pub strip_names: bool,
    /// A directory that keeps compiled kernels.
    pub cache: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            generator: Generator::default(),
            triple: String::new(),
            cpu: "native".into(),
            passes: numrsc_passes::PassOptions::default(),
            strip_names: false,
            cache: None,
        }
    }
}

impl Options {
    /// The same with passes that do something else.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut numrsc_passes::PassOptions)) -> Options {
        change(&mut self.passes);
        self
    }

    /// What [`Generator::Auto`] stands for here and now, and why it is not LLVM.
    pub fn settled(&self) -> (Options, Option<String>) {
        let (generator, why) = match self.generator {
            Generator::Auto if self.is_here() => match Service::find() {
                Ok(_) => (Generator::Llvm, None),
                Err(e) => (Generator::Cranelift, Some(e.to_string())),
            },
            // Where there is no LLVM, that fails and says so.
            Generator::Auto => (Generator::Llvm, None),
            chosen => (chosen, None),
        };
        (Options { generator, ..self.clone() }, why)
    }

    /// Is the target a machine like this one?
    fn is_here(&self) -> bool {
        let host = Target::host();
        self.triple.is_empty() || self.triple == host.triple || host.linux_triples().contains(&&self.triple[..])
    }
}

/// How much memory the constants of a model take while it is compiled, about: those that passes make are in memory one at a time, in some wider form.
pub fn memory_estimate(func: &Func) -> u64 {
    let largest = func.nodes().iter().map(|node| match &node.op {
        Op::Const { value } => value.bytes().len() as u64,
        _ => 0,
    });
    3 * largest.max().unwrap_or(0)
}

/// A code generator with what it knows of its machine.
pub struct Codegen {
    pub backend: Box<dyn Backend + Send>,
    /// The backend, if it is this one: others have no assembly to show.
    pub llvm: Option<Llvm>,
    pub machine: Machine,
    pub features: Vec<String>,
}

impl std::fmt::Debug for Codegen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Codegen").field("backend", &self.backend.name()).field("machine", &self.machine).finish()
    }
}

impl Codegen {
    pub fn new(options: &Options) -> Result<Codegen> {
        let failed = |e: numrsc_codegen::Error| Error::Codegen(format!("{e}{}", near_target(&e)));
        if options.settled().0.generator == Generator::Cranelift {
            if !options.is_here() {
                return Err(Error::Codegen("Cranelift compiles for this machine only".into()));
            }
            let cranelift = match &options.cpu[..] {
                "native" => Cranelift::new(),
                "" => Cranelift::portable(),
                name => Target::new(&Target::host().triple, name).and_then(|target| Cranelift::named(&target)),
            };
            let cranelift = cranelift.map_err(failed)?;
            let (machine, features) = (cranelift.machine(), cranelift.required_features());
            return Ok(Codegen { backend: Box::new(cranelift), llvm: None, machine, features });
        }
        let triple = if options.triple.is_empty() { Target::host().triple } else { options.triple.clone() };
        if let Some(meant) = misspelt(&triple) {
            return Err(Error::Codegen(format!(
                "the target `{triple}` is not known; is `{meant}` meant? (`numrsc targets` lists them)"
            )));
        }
        let target = Target::new(&triple, &options.cpu).map_err(failed)?;
        let (machine, features) = (target.machine(), target.required_features());
        let llvm = Llvm::new(target).map_err(failed)?;
        Ok(Codegen { backend: Box::new(llvm.clone()), llvm: Some(llvm), machine, features })
    }
}

/// The known triple that is one character away behind the architecture. LLVM accepts any system name, so a typo would otherwise go unnoticed.
fn misspelt(triple: &str) -> Option<&'static str> {
    let (architecture, system) = triple.split_once('-')?;
    let is_near =
        |known: &&str| known.split_once('-').is_some_and(|(a, s)| a == architecture && near::distance(system, s) == 1);
    numrsc_codegen::targets().iter().map(|target| target.triple).find(is_near)
}

/// Which target or CPU may be meant, and where they are listed.
fn near_target(error: &numrsc_codegen::Error) -> String {
    let numrsc_codegen::Error::Target { triple, cpu, .. } = error else { return String::new() };
    let targets = numrsc_codegen::targets();
    let triples = targets.iter().map(|target| target.triple);
    let near = match targets.iter().find(|target| target.triple == triple) {
        Some(target) => near::hint(cpu, target.cpus.iter().flat_map(|cpu| cpu.names).copied()),
        None => near::hint(triple, triples),
    };
    format!("{near} (`numrsc targets` lists them)")
}

/// Compile a verified function. `progress` is told how many kernels are done, and of how many.
pub fn compile(
    func: &Func,
    name: &str,
    options: &Options,
    progress: Option<&(dyn Fn(usize, usize) + Sync)>,
) -> Result<Artifact> {
    let codegen = Codegen::new(options)?;
    let mut phases = Phases::new();
    let lowered = lower(func, &codegen, options, &mut phases)?;
    generate(func, name, &codegen, lowered, options, progress, phases)
}

/// Run the pipeline to its end.
pub fn lower(func: &Func, codegen: &Codegen, options: &Options, phases: &mut Phases) -> Result<Lowered> {
    match run_until(func, None, codegen, options, phases)? {
        Stage::Kernel(lowered) => Ok(lowered),
        Stage::Tensor(_) => unreachable!("the pipeline ends with lowering"),
    }
}

/// Run the pipeline up to a pass and including it, or to its end.
pub fn run_until<'f>(
    func: &'f Func,
    last: Option<&Pass>,
    codegen: &Codegen,
    options: &Options,
    phases: &mut Phases,
) -> Result<Stage<'f>> {
    let failed = |e: numrsc_passes::Error| Error::Codegen(e.to_string());
    let device = codegen.backend.target().is_device();
    let cx = Context { machine: codegen.machine, device, options: options.passes.clone() };
    let mut stage = Stage::Tensor(Cow::Borrowed(func));
    for pass in PIPELINE.iter().filter(|pass| pass.is_wanted(&cx)) {
        let start = Instant::now();
        let Stage::Tensor(func) = stage else { unreachable!("lowering is the last pass") };
        stage = pass.run(func, &cx).map_err(failed)?;
        if !matches!(pass.step, Step::Import) {
            phases.push((pass.name, start.elapsed()));
        }
        if last.is_some_and(|last| last.name == pass.name) {
            break;
        }
    }
    Ok(stage)
}

/// Generate code for what [`lower()`] made of a function.
pub fn generate(
    func: &Func,
    name: &str,
    codegen: &Codegen,
    lowered: Lowered,
    options: &Options,
    progress: Option<&(dyn Fn(usize, usize) + Sync)>,
    mut phases: Phases,
) -> Result<Artifact> {
    let start = Instant::now();
    let with_names = !options.strip_names;
    let target = codegen.backend.target();
    let architecture = Architecture::ALL
        .into_iter()
        .find(|a| a.name() == target.architecture())
        .ok_or_else(|| Error::Codegen(format!("there are no artifacts for `{}`", target.triple)))?;
    if !target.has_artifacts() {
        let compiled = Compiled::without_code(&lowered.module).map_err(|e| Error::Codegen(e.to_string()))?;
        let manifest = manifest(func, name, codegen, &lowered, &compiled, with_names);
        return Ok(Artifact {
            manifest,
            architecture,
            lowered,
            compiled,
            additions: vec![],
            whole: codegen.llvm.clone(),
            phases,
        });
    }
    let mut options =
        numrsc_codegen::CodegenOptions { jobs: options.passes.jobs, cache: options.cache.as_deref(), progress };
    let mut compiled = numrsc_codegen::compile(&*codegen.backend, &lowered.module, &options);
    // A cache saves time. That it cannot be written (a full disk) is no reason to fail.
    if let Err(numrsc_codegen::Error::Cache { .. }) = &compiled {
        options.cache = None;
        compiled = numrsc_codegen::compile(&*codegen.backend, &lowered.module, &options);
    }
    let compiled = compiled.map_err(|e| Error::Codegen(e.to_string()))?;
    phases.push(("generate", start.elapsed()));
    let manifest = manifest(func, name, codegen, &lowered, &compiled, with_names);
    let names = if with_names { names::section(&lowered) } else { Ok(None) };
    let additions = names.map_err(|e| Error::Codegen(e.to_string()))?.into_iter().collect();
    Ok(Artifact { manifest, architecture, lowered, compiled, additions, whole: None, phases })
}

/// The file's name without what says that it is a model.
pub fn model_name(path: &Path) -> String {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = [".onnx.json", ".onnx", ".json"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(&name);
    if stem.is_empty() { "model".to_owned() } else { stem.to_owned() }
}
