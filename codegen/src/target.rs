//! What code is generated for: data, so that no other crate has to test a target's name.
use crate::cpu::Architecture;
use crate::llvm::Service;
use crate::{Error, Result};
use numrsc_ir::Machine;

/// A machine to generate code for, in LLVM's vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// For example `x86_64-unknown-linux-gnu` or `nvptx64-nvidia-cuda`.
    pub triple: String,
    /// For example `x86-64-v3` or `sm_80`; empty for the plainest CPU of the triple. Must be a name LLVM
    /// knows: it only warns on others, and on x86-64 then ends the process.
    pub cpu: String,
    /// Additions to and removals from the CPU's features, for example `+avx2,-fma`; empty for none.
    pub features: String,
}

/// What can be compiled for, for people to choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetInfo {
    pub triple: &'static str,
    pub cpus: Vec<CpuInfo>,
}

/// Processors with the same features.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuInfo {
    pub names: &'static [&'static str],
    /// Under the names of Rust's run-time detection.
    pub features: Vec<&'static str>,
}

/// All targets for which there are artifacts, objects or modules of WebAssembly. Other operating systems of the same processors do as well.
pub fn targets() -> Vec<TargetInfo> {
    let triples = [
        "x86_64-unknown-linux-gnu",
        "aarch64-unknown-linux-gnu",
        "riscv64gc-unknown-linux-gnu",
        "thumbv7em-none-eabihf",
        "riscv32imac-unknown-none-elf",
        Target::WEB,
    ];
    let info = |triple| {
        let groups = Architecture::of(triple).into_iter().flat_map(Architecture::groups);
        TargetInfo { triple, cpus: groups.map(|(names, features)| CpuInfo { names, features }).collect() }
    };
    triples.map(info).into()
}

impl Target {
    /// WebAssembly as browsers run it.
    pub const WEB: &str = "wasm32-unknown-unknown";

    /// The machine that this process runs on, with all it can do, in LLVM's words; nobody else knows them.
    pub fn native() -> Result<Target> {
        let machine = Service::find()?.host()?;
        Ok(Target { triple: machine.triple, cpu: machine.cpu, features: machine.features })
    }

    /// The plainest machine of the kind this process runs on: what it was compiled for.
    pub fn host() -> Target {
        let triple = plain_triple(env!("NUMRSC_TARGET"));
        let cpu = Architecture::of(&triple).map_or("", |a| baseline(a, &triple)).to_owned();
        let features = implied_features(&triple, &cpu);
        Target { triple, cpu, features }
    }

    /// A machine by its triple, which may spell RISC-V as Rust does, and the name of its CPU: empty for the plainest, `native` for
    /// the one this process runs on, with all it can do.
    pub fn new(triple: &str, cpu: &str) -> Result<Target> {
        let error = |message: String| Error::Target { triple: triple.to_owned(), cpu: cpu.to_owned(), message };
        let architecture = Architecture::of(triple).ok_or_else(|| error("unknown architecture".to_owned()))?;
        if cpu == "native" {
            if Architecture::of(&Target::host().triple) != Some(architecture) {
                return Err(error("`native` is another architecture".to_owned()));
            }
            return Ok(Target { triple: triple.to_owned(), ..Target::native()? });
        }
        let cpu = if cpu.is_empty() { baseline(architecture, triple) } else { cpu };
        if !architecture.cpus().any(|known| known == cpu) {
            let known: Vec<&str> = architecture.cpus().collect();
            return Err(error(format!("unknown CPU; known are native, {}", known.join(", "))));
        }
        let (triple, features) = (plain_triple(triple), implied_features(triple, cpu));
        Ok(Target { triple, cpu: cpu.to_owned(), features })
    }

    /// What the optimiser has to know.
    pub fn machine(&self) -> Machine {
        let has = |feature: &str| self.has(feature);
        let wide = ["avx512vl", "avx512bw", "avx512dq"].into_iter().all(has);
        let plain = Machine::SCALAR;
        match Architecture::of(&self.triple) {
            Some(Architecture::X86_64) => Machine {
                vector_bytes: if wide {
                    64
                } else if has("avx2") {
                    32
                } else {
                    16
                },
                registers: if has("avx512vl") { 32 } else { 16 },
                fused: has("fma"),
                halves: has("f16c"),
                masks: wide,
                dot2: true,
                dot4: if has("avx512vl") { has("avx512vnni") } else { has("avxvnni") },
            },
            Some(Architecture::AArch64) => Machine::NEON,
            Some(Architecture::RiscV32 | Architecture::RiscV64) => {
                Machine { vector_bytes: if has("v") { 16 } else { 0 }, registers: 32, fused: has("f"), ..plain }
            }
            // NEON of 32 bits flushes denormal numbers to zero, so its vectors are of no use to us.
            Some(Architecture::Arm) => Machine { fused: has("vfp"), ..plain },
            Some(Architecture::Nvptx) => Machine { registers: 64, fused: true, ..plain },
            // As many registers as the processors that most browsers run on. Fused arithmetic and halves are not part of the standard.
            Some(Architecture::Wasm) => Machine { vector_bytes: if has("simd128") { 16 } else { 0 }, ..plain },
            None => plain,
        }
    }

    /// The features that a machine must have to run the code, under the names of Rust's run-time detection.
    pub fn required_features(&self) -> Vec<String> {
        match Architecture::of(&self.triple) {
            // Nothing to ask at run time: what is not there is known when the device is built.
            None | Some(Architecture::Arm | Architecture::RiscV32 | Architecture::Wasm | Architecture::Nvptx) => vec![],
            // Every Linux on RISC-V has these.
            Some(Architecture::RiscV64) => {
                let mut features = self.features();
                features.retain(|f| !["a", "c", "d", "f", "m"].contains(f));
                features.into_iter().map(str::to_owned).collect()
            }
            Some(Architecture::X86_64 | Architecture::AArch64) => {
                self.features().into_iter().map(str::to_owned).collect()
            }
        }
    }

    /// Whether there are modules of WebAssembly for it, and nothing else to link.
    pub fn is_web(&self) -> bool {
        Architecture::of(&self.triple) == Some(Architecture::Wasm)
    }

    /// Whether functions are linked here, so that there are artifacts. For other targets there are objects, which the user links.
    pub fn has_artifacts(&self) -> bool {
        use Architecture::{AArch64, RiscV64, X86_64};
        matches!(Architecture::of(&self.triple), Some(X86_64 | AArch64 | RiscV64))
    }

    /// A device with little memory and one thread, rather than a computer?
    pub fn is_device(&self) -> bool {
        matches!(Architecture::of(&self.triple), Some(Architecture::Arm | Architecture::RiscV32))
    }

    /// The name of the architecture in artifacts.
    pub fn architecture(&self) -> &'static str {
        match Architecture::of(&self.triple) {
            Some(Architecture::X86_64) => "x86_64",
            Some(Architecture::AArch64) => "aarch64",
            Some(Architecture::RiscV64) => "riscv64",
            Some(Architecture::RiscV32) => "riscv32",
            Some(Architecture::Arm) => "arm",
            Some(Architecture::Wasm) => "wasm32",
            Some(Architecture::Nvptx) | None => "",
        }
    }

    /// Rust's names of Linux on this processor, if the code is for Linux and programs need nothing else.
    pub fn linux_triples(&self) -> &'static [&'static str] {
        match Architecture::of(&self.triple) {
            _ if !self.triple.contains("-linux") => &[],
            Some(Architecture::X86_64) => &["x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl"],
            Some(Architecture::AArch64) => &["aarch64-unknown-linux-gnu", "aarch64-unknown-linux-musl"],
            Some(Architecture::RiscV64) => &["riscv64gc-unknown-linux-gnu", "riscv64gc-unknown-linux-musl"],
            _ => &[],
        }
    }

    /// Can the machine do this? By the name of run-time detection.
    pub(crate) fn has(&self, feature: &str) -> bool {
        self.features().contains(&feature)
    }

    /// Does the machine round floats to integers by one instruction?
    pub(crate) fn rounds_floats(&self) -> bool {
        match Architecture::of(&self.triple) {
            Some(Architecture::X86_64) => self.has("sse4.1"),
            Some(Architecture::AArch64 | Architecture::Nvptx | Architecture::Wasm) => true,
            Some(Architecture::Arm | Architecture::RiscV32 | Architecture::RiscV64) | None => false,
        }
    }

    pub(crate) fn pointer_bits(&self) -> u32 {
        match Architecture::of(&self.triple) {
            Some(Architecture::Arm | Architecture::RiscV32 | Architecture::Wasm) => 32,
            _ => 64,
        }
    }

    /// What the CPU can do and what was added and removed, sorted.
    fn features(&self) -> Vec<&'static str> {
        let Some(architecture) = Architecture::of(&self.triple) else { return vec![] };
        let mut known = architecture.features_of(if self.cpu.is_empty() {
            baseline(architecture, &self.triple)
        } else {
            &self.cpu
        });
        for change in self.features.split(',') {
            let Some(name) = change.get(1..).and_then(|name| architecture.relevant(name)) else { continue };
            known.retain(|f| *f != name);
            if change.starts_with('+') {
                known.push(name);
            }
        }
        known.sort_unstable();
        known
    }
}

/// The plainest CPU that a triple stands for.
fn baseline(architecture: Architecture, triple: &str) -> &'static str {
    match architecture {
        Architecture::X86_64 => "x86-64",
        Architecture::RiscV64 => "generic-rv64",
        Architecture::RiscV32 => "generic-rv32",
        Architecture::Nvptx => "sm_70",
        Architecture::AArch64 | Architecture::Wasm => "generic",
        Architecture::Arm => match triple.split('-').next().unwrap_or_default() {
            "thumbv6m" => "cortex-m0",
            "thumbv7m" => "cortex-m3",
            "thumbv7em" => "cortex-m4",
            "thumbv8m.base" => "cortex-m23",
            "thumbv8m.main" => "cortex-m33",
            _ => "generic",
        },
    }
}

/// LLVM's spelling of a triple: it has no extensions in the name of RISC-V.
fn plain_triple(triple: &str) -> String {
    let (name, rest) = triple.split_once('-').map_or((triple, ""), |(name, rest)| (name, rest));
    match riscv_extensions(name) {
        Some(_) if rest.is_empty() => name[.."riscv64".len()].to_owned(),
        Some(_) => format!("{}-{rest}", &name[.."riscv64".len()]),
        None => triple.to_owned(),
    }
}

/// The letters after `riscv64`.
fn riscv_extensions(name: &str) -> Option<&str> {
    name.strip_prefix("riscv64").or_else(|| name.strip_prefix("riscv32"))
}

/// The generic RISC-V CPUs have no extensions: add those in the name, or what every Linux needs. Nor does LLVM's generic WebAssembly have
/// vectors, which browsers have had since 2023.
fn implied_features(triple: &str, cpu: &str) -> String {
    let name = triple.split('-').next().unwrap_or_default();
    if Architecture::of(triple) == Some(Architecture::Wasm) && cpu == "generic" {
        return "+simd128".to_owned();
    }
    let Some(extensions) = riscv_extensions(name) else { return String::new() };
    let extensions = match extensions {
        "" if cpu == "generic-rv64" => "gc",
        "" if cpu == "generic-rv32" => "imac",
        letters => letters,
    };
    let letters = extensions.replace('g', "mafd").replace('i', "");
    letters.chars().map(|c| format!("+{c}")).collect::<Vec<_>>().join(",")
}
