//! The Cranelift backend: compiles for machines like the one it runs on, in pure Rust and faster than LLVM.
//!
//! Cranelift has vectors of 128 bits and not every operation on every element: `parts` holds how vectors of any width are
//! made of these or of single lanes. What the CPU lacks is written out in simpler instructions, so that no code calls a library.
mod arithmetic;
mod control;
mod convert;
mod emitter;
mod instruction;
mod memory;
mod parts;

use crate::{Backend, Code, Error, Link, LinkKind, Result, Target};
use cranelift::codegen::binemit::Reloc;
use cranelift::codegen::control::ControlPlane;
use cranelift::codegen::ir::{ExternalName, Function};
use cranelift::codegen::isa::{self, OwnedTargetIsa};
use cranelift::codegen::settings::{self, Configurable, SetResult};
use cranelift::codegen::{Context, FinalizedMachReloc, FinalizedRelocTarget};
use cranelift::native;
use emitter::Abilities;
use numrsc_ir::Machine;
use numrsc_ir::kernel::{FuncId, Module};
use std::fmt;

/// Compiles for the machine this process runs on.
pub struct Cranelift {
    isa: OwnedTargetIsa,
    target: Target,
    features: Vec<String>,
    abilities: Abilities,
}

impl Cranelift {
    /// For the CPU this process runs on, with its features.
    pub fn new() -> Result<Cranelift> {
        Cranelift::with("native", native::infer_native_flags)
    }

    /// For every CPU of this machine's architecture.
    pub fn portable() -> Result<Cranelift> {
        Cranelift::with("", |_| Ok(()))
    }

    /// For what a CPU of this machine's architecture has, of what Cranelift knows.
    pub fn named(target: &Target) -> Result<Cranelift> {
        let features = target.required_features();
        Cranelift::with(&target.cpu, |flags| {
            for feature in &features {
                // Of others it has no instructions.
                let _ = flags.enable(&format!("has_{}", feature.replace('.', "")));
            }
            Ok(())
        })
    }

    fn with(
        cpu: &str,
        choose: impl FnOnce(&mut dyn Configurable) -> std::result::Result<(), &'static str>,
    ) -> Result<Cranelift> {
        let failed = |message: String| Error::Target {
            triple: isa_triple().unwrap_or_else(|| "of this machine".into()),
            cpu: cpu.into(),
            message,
        };
        let mut builder = native::builder_with_options(false).map_err(|m| failed(m.into()))?;
        choose(&mut Wanted(&mut builder)).map_err(|m| failed(m.into()))?;
        let isa = flags().and_then(|f| builder.finish(f).map_err(|e| e.to_string())).map_err(failed)?;

        let features: Vec<String> = isa
            .isa_flags()
            .iter()
            .filter(|f| f.as_bool() == Some(true))
            .filter_map(|f| f.name.strip_prefix("has_"))
            .map(feature_name)
            .collect();
        let has = |name: &str| features.iter().any(|f| f == name);
        let abilities = match isa.triple().architecture.to_string().as_str() {
            "x86_64" => Abilities { packed: has("sse4.1"), fused: has("fma"), rounds: has("sse4.1"), registers: 16 },
            "aarch64" => Abilities { packed: true, fused: true, rounds: true, registers: 32 },
            _ => Abilities { packed: false, fused: true, rounds: true, registers: 32 },
        };
        let target = Target {
            triple: isa.triple().to_string(),
            cpu: cpu.into(),
            features: features.iter().map(|f| format!("+{f}")).collect::<Vec<_>>().join(","),
        };
        Ok(Cranelift { isa, target, features, abilities })
    }

    /// What lowering may count on.
    pub fn machine(&self) -> Machine {
        Machine {
            vector_bytes: if self.abilities.packed { 16 } else { 0 },
            registers: self.abilities.registers,
            fused: self.abilities.fused,
            ..Machine::SCALAR
        }
    }

    /// What the CPU that runs the code must have, by the names of Rust's feature detection.
    pub fn required_features(&self) -> Vec<String> {
        self.features.clone()
    }
}

impl fmt::Debug for Cranelift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cranelift").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Backend for Cranelift {
    fn name(&self) -> &'static str {
        "cranelift"
    }

    fn version(&self) -> String {
        cranelift::VERSION.to_owned()
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn compile(&self, module: &Module, function: FuncId) -> Result<Code> {
        let name = module.functions.get(function.0 as usize).map_or("?", |f| &f.name);
        let failed = |message: String| Error::Cranelift { function: name.into(), message };
        let mut context = Context::new();
        context.func = emitter::emit(&*self.isa, self.abilities, module, function).map_err(failed)?;
        context
            .compile(&*self.isa, &mut ControlPlane::default())
            .map_err(|e| failed(cranelift::codegen::print_errors::pretty_error(e.func, e.inner)))?;
        let Some(code) = context.compiled_code() else {
            return Err(failed("no code was made".into()));
        };
        let links = code.buffer.relocs().iter().map(|r| link(&context.func, r)).collect::<std::result::Result<_, _>>();
        Ok(Code {
            bytes: code.buffer.data().to_vec(),
            align: u64::from(code.buffer.alignment.max(16)),
            links: links.map_err(failed)?,
        })
    }
}

/// The features that the code of kernels gains from; the rest would only narrow the choice of machines.
const X86_FEATURES: [&str; 11] = [
    "has_sse3",
    "has_ssse3",
    "has_sse41",
    "has_sse42",
    "has_popcnt",
    "has_avx",
    "has_avx2",
    "has_fma",
    "has_bmi1",
    "has_bmi2",
    "has_lzcnt",
];

/// Takes over the detected features that are wanted.
struct Wanted<'a>(&'a mut isa::Builder);

impl Configurable for Wanted<'_> {
    fn set(&mut self, name: &str, value: &str) -> SetResult<()> {
        self.0.set(name, value)
    }

    fn enable(&mut self, name: &str) -> SetResult<()> {
        let wanted = match self.0.triple().architecture.to_string().as_str() {
            "x86_64" => X86_FEATURES.contains(&name),
            "aarch64" => false,
            _ => true,
        };
        if wanted { self.0.enable(name) } else { Ok(()) }
    }
}

fn isa_triple() -> Option<String> {
    native::builder_with_options(false).ok().map(|b| b.triple().to_string())
}

/// The name of a feature as Rust's detection spells it.
fn feature_name(name: &str) -> String {
    match name {
        "sse41" => "sse4.1".into(),
        "sse42" => "sse4.2".into(),
        other => other.into(),
    }
}

/// Kernels are optimised before they get here; Cranelift's own optimiser would hoist loads out of register tiles and spill.
fn flags() -> std::result::Result<settings::Flags, String> {
    let mut flags = settings::builder();
    let verify = if cfg!(debug_assertions) { "true" } else { "false" };
    for (name, value) in [
        ("opt_level", "none"),
        ("enable_verifier", verify),
        ("unwind_info", "false"),
        // Buffers may be larger than the guard page.
        ("enable_probestack", "true"),
        ("probestack_strategy", "inline"),
    ] {
        flags.set(name, value).map_err(|e| e.to_string())?;
    }
    Ok(settings::Flags::new(flags))
}

fn link(function: &Function, reloc: &FinalizedMachReloc) -> std::result::Result<Link, String> {
    let to = match &reloc.target {
        FinalizedRelocTarget::ExternalName(ExternalName::User(name)) => {
            FuncId(function.params.user_named_funcs()[*name].index)
        }
        other => return Err(format!("the code refers to {}", other.display(Some(&function.params)))),
    };
    let kind = match reloc.kind {
        Reloc::X86CallPCRel4 | Reloc::X86PCRel4 => LinkKind::Pc32,
        Reloc::Arm64Call => LinkKind::Branch26,
        Reloc::Aarch64AdrPrelPgHi21 => LinkKind::Page21,
        Reloc::Aarch64AddAbsLo12Nc => LinkKind::Low12,
        Reloc::RiscvCallPlt => LinkKind::PcHigh20Low12,
        other => return Err(format!("a reference of the kind {other} cannot be linked")),
    };
    Ok(Link { offset: u64::from(reloc.offset), kind, to, addend: reloc.addend })
}
