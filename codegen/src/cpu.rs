//! CPUs by name, with their features.
//!
//! LLVM knows more, but cannot be asked: it warns about an unknown name and, on x86-64, ends the process. Features have the names of
//! Rust's run-time detection; only those that a code generator may use for numeric code are listed.

/// The architecture, as told by the start of a triple.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Architecture {
    X86_64,
    AArch64,
    Arm,
    RiscV32,
    RiscV64,
    Wasm,
    Nvptx,
}

/// One row of the table: processors with the same features.
type Row = (&'static [&'static str], &'static [&'static [&'static str]]);

const X86_V2: &[&str] = &["popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"];
const X86_V3: &[&str] = &["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "lzcnt", "movbe"];
const X86_V4: &[&str] = &["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"];
const X86_ICE: &[&str] =
    &["avx512bitalg", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512vpopcntdq", "gfni"];

const X86: &[Row] = &[
    (&["x86-64"], &[]),
    (&["x86-64-v2", "nehalem", "westmere"], &[X86_V2]),
    (&["silvermont", "goldmont"], &[X86_V2, &["movbe"]]),
    (&["tremont"], &[X86_V2, &["movbe", "gfni"]]),
    (&["sandybridge"], &[X86_V2, &["avx"]]),
    (&["ivybridge"], &[X86_V2, &["avx", "f16c"]]),
    (&["x86-64-v3", "haswell", "broadwell", "skylake"], &[X86_V2, X86_V3]),
    (&["znver1", "znver2", "znver3"], &[X86_V2, X86_V3, &["sse4a"]]),
    (&["alderlake", "raptorlake", "meteorlake", "gracemont"], &[X86_V2, X86_V3, &["avxvnni", "gfni"]]),
    (&["x86-64-v4", "skylake-avx512"], &[X86_V2, X86_V3, X86_V4]),
    (&["cascadelake"], &[X86_V2, X86_V3, X86_V4, &["avx512vnni"]]),
    (&["cooperlake"], &[X86_V2, X86_V3, X86_V4, &["avx512vnni", "avx512bf16"]]),
    (&["icelake-client", "icelake-server", "tigerlake", "rocketlake"], &[X86_V2, X86_V3, X86_V4, X86_ICE]),
    (
        &["sapphirerapids", "emeraldrapids", "graniterapids"],
        &[X86_V2, X86_V3, X86_V4, X86_ICE, &["avx512bf16", "avx512fp16", "avxvnni"]],
    ),
    (&["znver4"], &[X86_V2, X86_V3, X86_V4, X86_ICE, &["avx512bf16", "sse4a"]]),
    (&["znver5"], &[X86_V2, X86_V3, X86_V4, X86_ICE, &["avx512bf16", "avxvnni", "sse4a"]]),
];

const ARM_V82: &[&str] = &["dotprod", "fp16", "rdm"];

const AARCH64: &[Row] = &[
    (&["generic", "cortex-a35", "cortex-a53", "cortex-a57", "cortex-a72", "cortex-a73"], &[&["neon"]]),
    (
        &["cortex-a55", "cortex-a75", "cortex-a76", "cortex-a77", "cortex-a78", "cortex-x1", "neoverse-n1"],
        &[&["neon"], ARM_V82],
    ),
    (&["neoverse-v1"], &[&["neon"], ARM_V82, &["bf16", "fcma", "flagm", "i8mm", "sve"]]),
    (
        &["cortex-a510", "cortex-a710", "cortex-x2", "neoverse-n2", "neoverse-v2"],
        &[&["neon"], ARM_V82, &["bf16", "fcma", "flagm", "i8mm", "sve", "sve2"]],
    ),
    (&["apple-m1"], &[&["neon"], ARM_V82, &["fcma", "flagm"]]),
    (&["apple-m2", "apple-m3", "apple-m4", "ampere1"], &[&["neon"], ARM_V82, &["bf16", "fcma", "flagm", "i8mm"]]),
];

/// `vfp` stands for a unit with fused single-precision arithmetic; there is nothing to detect at run time on these.
const ARM: &[Row] = &[
    (&["generic", "cortex-a8", "cortex-a9", "cortex-m0", "cortex-m0plus", "cortex-m3", "cortex-m23"], &[]),
    (&["cortex-m4", "cortex-m7", "cortex-m33", "cortex-a7", "cortex-a15", "cortex-a53", "cortex-a72"], &[&["vfp"]]),
];

const RISCV64: &[Row] = &[
    (&["generic-rv64"], &[]),
    (&["rocket-rv64"], &[&["a", "m"]]),
    (&["sifive-u54", "sifive-u74"], &[&["a", "c", "d", "f", "m"]]),
    (&["sifive-p550"], &[&["a", "c", "d", "f", "m", "zba", "zbb"]]),
    (&["sifive-x280"], &[&["a", "c", "d", "f", "m", "v", "zba", "zbb"]]),
    (&["spacemit-x60"], &[&["a", "c", "d", "f", "m", "v", "zba", "zbb", "zbs"]]),
];

const RISCV32: &[Row] = &[
    (&["generic-rv32"], &[]),
    (&["rocket-rv32"], &[&["a", "m"]]),
    (&["sifive-e21", "sifive-e31"], &[&["a", "c", "m"]]),
    (&["sifive-e34"], &[&["a", "c", "f", "m"]]),
];

/// `mvp` is the first version of the standard.
const WASM: &[Row] = &[(&["generic"], &[&["simd128"]]), (&["mvp"], &[])];

const NVPTX: &[Row] = &[
    (&["sm_60", "sm_61", "sm_70", "sm_72", "sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a"], &[]),
    (&["sm_100", "sm_100a", "sm_103", "sm_120", "sm_120a", "sm_121"], &[]),
];

impl Architecture {
    pub(crate) fn of(triple: &str) -> Option<Architecture> {
        let name = triple.split('-').next().unwrap_or_default();
        Some(match name {
            "x86_64" | "x86_64h" => Architecture::X86_64,
            "aarch64" | "arm64" => Architecture::AArch64,
            "wasm32" => Architecture::Wasm,
            "nvptx64" => Architecture::Nvptx,
            _ if name.starts_with("riscv64") => Architecture::RiscV64,
            _ if name.starts_with("riscv32") => Architecture::RiscV32,
            _ if ["armv6", "armv7", "armv8", "thumbv6", "thumbv7", "thumbv8"].iter().any(|p| name.starts_with(p)) => {
                Architecture::Arm
            }
            _ => return None,
        })
    }

    fn rows(self) -> &'static [Row] {
        match self {
            Architecture::X86_64 => X86,
            Architecture::AArch64 => AARCH64,
            Architecture::Arm => ARM,
            Architecture::RiscV32 => RISCV32,
            Architecture::RiscV64 => RISCV64,
            Architecture::Wasm => WASM,
            Architecture::Nvptx => NVPTX,
        }
    }

    /// All names that `--cpu` takes.
    pub(crate) fn cpus(self) -> impl Iterator<Item = &'static str> {
        self.rows().iter().flat_map(|row| row.0.iter().copied())
    }

    /// Names of processors and the features they share.
    pub(crate) fn groups(self) -> impl Iterator<Item = (&'static [&'static str], Vec<&'static str>)> {
        self.rows().iter().map(|(names, parts)| (*names, parts.concat()))
    }

    /// The features of a processor; none for names that are not in the table.
    pub(crate) fn features_of(self, cpu: &str) -> Vec<&'static str> {
        self.groups().find(|(names, _)| names.contains(&cpu)).map(|(_, features)| features).unwrap_or_default()
    }

    /// The run-time detection name of a feature in LLVM's spelling, if generated code may use it.
    pub(crate) fn relevant(self, llvm_name: &str) -> Option<&'static str> {
        let renamed = match llvm_name {
            "bmi" => "bmi1",
            "fullfp16" => "fp16",
            "complxnum" => "fcma",
            name => name,
        };
        let parts = self.rows().iter().flat_map(|row| row.1.iter());
        parts.flat_map(|part| part.iter().copied()).find(|name| *name == renamed)
    }
}
