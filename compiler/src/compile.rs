//! From a function of the tensor IR to an artifact: the pipeline, read from top to bottom.
use crate::{
    Error, Result,
    output::artifact::{Artifact, manifest},
};
use numrsc_codegen::{Backend, Compiled, Target, cranelift::Cranelift, llvm::Llvm};
use numrsc_ir::{Func, Op};
use numrsc_passes::{
    Level, Machine,
    lower::{self, Lowered, Tuning},
};
use numrsc_runtime::artifact::Architecture;
use std::{
    borrow::Cow,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// All passes in their order. What `numrsc inspect --after` knows and what compiling does derive from this list.
pub const PIPELINE: &[Pass] = &[
    Pass {
        name: "import",
        from: Level::O0,
        why: "first: everything behind it knows the core ops only",
        step: Step::Import,
    },
    Pass {
        name: "prune",
        from: Level::O0,
        why: "import leaves nodes that no result needs, and nothing behind it should spend time on them",
        step: Step::Tensor(|func, _| Ok(func.without_dead_nodes())),
    },
    Pass {
        name: "widen",
        from: Level::O2,
        why: "before everything that looks at types: nothing behind it need know of floats of 16 bits, and folding converts what weights it should",
        step: Step::Tensor(|func, cx| numrsc_passes::widen(func, cx.tolerance)),
    },
    Pass {
        name: "unroll",
        from: Level::O2,
        why: "before everything that looks at single nodes: the rounds of short loops are ordinary nodes then",
        step: Step::Tensor(|func, _| numrsc_passes::unroll(func)),
    },
    Pass {
        name: "literals",
        from: Level::O1,
        why: "before folding: a weight and its zero point are then a function of the weight alone, which may stay narrow",
        step: Step::Tensor(|func, _| numrsc_passes::literals(func)),
    },
    Pass {
        name: "integers",
        from: Level::O2,
        why: "before folding makes floats of weights, and where a scale and a zero point are part of one function",
        step: Step::Tensor(|func, cx| numrsc_passes::integers(func, cx.machine)),
    },
    Pass {
        name: "fold",
        from: Level::O1,
        why: "before optimising: what is constant is one node then, however it was written",
        step: Step::Tensor(|func, _| numrsc_passes::fold(func)),
    },
    Pass {
        name: "fourier",
        from: Level::O2,
        why: "after folding: waves are constants then, and before rules join them with others",
        step: Step::Tensor(|func, cx| numrsc_passes::fourier(func, cx.tolerance)),
    },
    Pass {
        name: "optimise",
        from: Level::O2,
        why: "on the smallest graph, and before anything is decided about loops and memory",
        step: Step::Tensor(|func, cx| {
            numrsc_passes::optimise_by_threads(func, cx.level, cx.machine, cx.without, cx.jobs)
        }),
    },
    Pass {
        name: "scales",
        from: Level::O2,
        why: "after rules have put functions of elements together, wherever their regions ended",
        step: Step::Tensor(|func, cx| numrsc_passes::scales(func, cx.tolerance)),
    },
    Pass {
        name: "fold-again",
        from: Level::O2,
        why: "rules move work to constants and leave it to folding",
        step: Step::Tensor(|func, _| numrsc_passes::fold(func)),
    },
    Pass {
        name: "narrow",
        from: Level::O2,
        why: "after rules, which know products of one type, and after folding, as weights are looked at",
        step: Step::Tensor(|func, cx| numrsc_passes::narrow(func, cx.machine)),
    },
    Pass {
        name: "layout",
        from: Level::O2,
        why: "after everything that knows convolutions by their plain layout, before loops are made of them",
        step: Step::Tensor(|func, cx| numrsc_passes::layout(func, cx.machine)),
    },
    Pass {
        name: "lower",
        from: Level::O0,
        why: "last: loops and memory are planned for exactly the ops that are left",
        step: Step::Lower,
    },
];

/// What passes may choose by.
#[derive(Clone, Copy, Debug)]
pub struct PassContext<'o> {
    pub level: Level,
    pub machine: Machine,
    /// See [`Options::tolerance`].
    pub tolerance: f64,
    /// What is left out: rules of the optimiser, passes, and attention in one kernel.
    pub without: &'o [String],
    /// Threads that compile; 0 for as many as there are cores. What comes out does not depend on it.
    pub jobs: usize,
}

impl PassContext<'_> {
    fn leaves_out(&self, name: &str) -> bool {
        self.without.iter().any(|w| w == name)
    }
}

/// The name of what lowering does to attention: one kernel, in which no scores are written to memory.
const ATTENTION: &str = "attention";

/// The names of everything that can be left out, to see what it is worth.
pub fn optional_names() -> Vec<&'static str> {
    let passes = PIPELINE.iter().filter(|p| p.is_optional()).map(|p| p.name);
    numrsc_passes::egraph::rule_names().into_iter().chain(passes).chain([ATTENTION]).collect()
}

/// A row of [`PIPELINE`].
#[derive(Debug)]
pub struct Pass {
    pub name: &'static str,
    /// The lowest level that runs it.
    pub from: Level,
    /// Why it is at this place.
    pub why: &'static str,
    step: Step,
}

impl Pass {
    /// Is the result right without it?
    fn is_optional(&self) -> bool {
        self.from > Level::O0
    }
}

#[derive(Debug)]
enum Step {
    /// Done by the front end before.
    Import,
    /// From tensor IR to tensor IR.
    Tensor(fn(&Func, PassContext<'_>) -> numrsc_passes::Result<Func>),
    /// From tensor IR to kernel IR.
    Lower,
}

/// What a model is after a pass.
#[derive(Debug)]
pub enum Stage<'f> {
    Tensor(Cow<'f, Func>),
    Kernel(Box<Lowered>),
}

/// What took how long.
pub type Phases = Vec<(&'static str, Duration)>;

/// Which code generator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Generator {
    #[default]
    Llvm,
    Cranelift,
}

/// How to compile.
#[derive(Clone, Debug)]
pub struct Options {
    pub generator: Generator,
    /// Empty for the machine this runs on.
    pub triple: String,
    /// A name, `native`, or empty for the plainest CPU of the triple.
    pub cpu: String,
    pub level: Level,
    /// Rules of the optimiser that are not used, by name.
    pub without_rules: Vec<String>,
    /// Check every access of memory at run time.
    pub sanitize: bool,
    /// What a convolution or product may be off by where it could be exact, relative to the largest sum of magnitudes `∑|x||w|` of an element of its result. With 0,
    /// floats of 16 bits are rounded after every operation, too.
    pub tolerance: f64,
    /// Schedules that were measured; see [`crate::tune`].
    pub tuning: Option<Arc<Tuning>>,
    /// Threads that compile; 0 for as many as there are cores.
    pub jobs: usize,
    /// A directory that keeps compiled kernels.
    pub cache: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            generator: Generator::Llvm,
            triple: String::new(),
            cpu: "native".into(),
            level: Level::default(),
            without_rules: vec![],
            sanitize: false,
            tolerance: lower::TOLERANCE,
            tuning: None,
            jobs: 0,
            cache: None,
        }
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
        let failed = |e: numrsc_codegen::Error| Error::Codegen(e.to_string());
        match options.generator {
            Generator::Llvm => {
                let triple = if options.triple.is_empty() { Target::host().triple } else { options.triple.clone() };
                let target = Target::new(&triple, &options.cpu).map_err(failed)?;
                let (machine, features) = (target.machine(), target.required_features());
                let llvm = Llvm::new(target).map_err(failed)?;
                Ok(Codegen { backend: Box::new(llvm.clone()), llvm: Some(llvm), machine, features })
            }
            Generator::Cranelift => {
                let native = matches!(&options.cpu[..], "" | "native") && options.triple.is_empty();
                if !native {
                    return Err(Error::Codegen("Cranelift compiles for this machine only".into()));
                }
                let cranelift =
                    if options.cpu.is_empty() { Cranelift::portable() } else { Cranelift::new() }.map_err(failed)?;
                let (machine, features) = (cranelift.machine(), cranelift.required_features());
                Ok(Codegen { backend: Box::new(cranelift), llvm: None, machine, features })
            }
        }
    }
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
        Stage::Kernel(lowered) => Ok(*lowered),
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
    let mut stage = Stage::Tensor(Cow::Borrowed(func));
    let Options { level, tolerance, jobs, .. } = *options;
    let cx = PassContext { level, machine: codegen.machine, tolerance, without: &options.without_rules, jobs };
    for pass in PIPELINE.iter().filter(|p| p.from <= options.level && !(p.is_optional() && cx.leaves_out(p.name))) {
        let start = Instant::now();
        stage = match (&pass.step, stage) {
            (Step::Import, stage) => stage,
            (Step::Tensor(run), Stage::Tensor(func)) => {
                Stage::Tensor(Cow::Owned(run(&func, cx).map_err(|e| Error::Codegen(e.to_string()))?))
            }
            (Step::Lower, Stage::Tensor(func)) => {
                let Options { sanitize, tolerance, .. } = *options;
                let (attention, tuning) = (!cx.leaves_out(ATTENTION), options.tuning.clone());
                let device = codegen.backend.target().is_device();
                let options =
                    lower::Options { machine: codegen.machine, device, sanitize, attention, tolerance, tuning };
                let lowered = lower::lower(&func, &options).map_err(|e| Error::Codegen(e.to_string()))?;
                Stage::Kernel(Box::new(lowered))
            }
            (_, Stage::Kernel(_)) => unreachable!("lowering is the last pass"),
        };
        if !matches!(pass.step, Step::Import) {
            phases.push((pass.name, start.elapsed()));
        }
        if cfg!(debug_assertions) {
            let valid = match &stage {
                Stage::Tensor(func) => numrsc_ir::verify(func).map_err(|e| e.to_string()),
                Stage::Kernel(lowered) => numrsc_ir::kernel::verify(&lowered.module).map_err(|e| e.to_string()),
            };
            valid.map_err(|e| Error::Codegen(format!("the pass `{}` made something invalid: {e}", pass.name)))?;
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
    let target = codegen.backend.target();
    let architecture = Architecture::ALL
        .into_iter()
        .find(|a| a.name() == target.architecture())
        .ok_or_else(|| Error::Codegen(format!("there are no artifacts for `{}`", target.triple)))?;
    if !target.has_artifacts() {
        let compiled = Compiled::without_code(&lowered.module).map_err(|e| Error::Codegen(e.to_string()))?;
        let manifest = manifest(func, name, codegen, &lowered, &compiled);
        return Ok(Artifact { manifest, architecture, lowered, compiled, whole: codegen.llvm.clone(), phases });
    }
    let mut options = numrsc_codegen::Options { jobs: options.jobs, cache: options.cache.as_deref(), progress };
    let mut compiled = numrsc_codegen::compile(&*codegen.backend, &lowered.module, &options);
    // A cache saves time. That it cannot be written (a full disk) is no reason to fail.
    if let Err(numrsc_codegen::Error::Cache { .. }) = &compiled {
        options.cache = None;
        compiled = numrsc_codegen::compile(&*codegen.backend, &lowered.module, &options);
    }
    let compiled = compiled.map_err(|e| Error::Codegen(e.to_string()))?;
    phases.push(("generate", start.elapsed()));
    let manifest = manifest(func, name, codegen, &lowered, &compiled);
    Ok(Artifact { manifest, architecture, lowered, compiled, whole: None, phases })
}
