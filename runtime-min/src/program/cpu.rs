//! Which CPU features there are, by the names of Rust's run-time detection, which itself needs `std`. These are all that the compiler uses.
#![allow(unsafe_code)]
use super::start::Auxiliary;
#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};

/// What the processor says of itself. Asking it is slow on virtual machines, so it is asked once.
#[cfg(target_arch = "x86_64")]
pub(super) struct Processor {
    leaf1: CpuidResult,
    leaf7: CpuidResult,
    leaf7_1: CpuidResult,
    extended: CpuidResult,
    /// Registers that Linux saves.
    saved: u64,
}

#[cfg(target_arch = "x86_64")]
impl Processor {
    pub(super) fn new(_: &Auxiliary) -> Processor {
        // A processor answers for leaves that it does not have as well, but not with their content.
        let all = __cpuid(0).eax;
        let leaf = |leaf, part| {
            let none = CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
            if leaf <= all { __cpuid_count(leaf, part) } else { none }
        };
        let leaf1 = leaf(1, 0);
        let saved = if leaf1.ecx >> 27 & 1 == 1 { saved_registers() } else { 0 };
        Processor { leaf1, leaf7: leaf(7, 0), leaf7_1: leaf(7, 1), extended: __cpuid(0x8000_0001), saved }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        /// The registers of AVX, and those of AVX-512 as well.
        const AVX: u64 = 0b110;
        const AVX512: u64 = 0b1110_0110;
        let Processor { leaf1, leaf7, leaf7_1, extended, saved } = self;
        let (register, bit, needed) = match name {
            "sse3" => (leaf1.ecx, 0, 0),
            "ssse3" => (leaf1.ecx, 9, 0),
            "sse4.1" => (leaf1.ecx, 19, 0),
            "sse4.2" => (leaf1.ecx, 20, 0),
            "movbe" => (leaf1.ecx, 22, 0),
            "popcnt" => (leaf1.ecx, 23, 0),
            "lzcnt" => (extended.ecx, 5, 0),
            "sse4a" => (extended.ecx, 6, 0),
            "bmi1" => (leaf7.ebx, 3, 0),
            "bmi2" => (leaf7.ebx, 8, 0),
            "gfni" => (leaf7.ecx, 8, 0),
            "fma" => (leaf1.ecx, 12, AVX),
            "avx" => (leaf1.ecx, 28, AVX),
            "f16c" => (leaf1.ecx, 29, AVX),
            "avx2" => (leaf7.ebx, 5, AVX),
            "avxvnni" => (leaf7_1.eax, 4, AVX),
            "avx512f" => (leaf7.ebx, 16, AVX512),
            "avx512dq" => (leaf7.ebx, 17, AVX512),
            "avx512ifma" => (leaf7.ebx, 21, AVX512),
            "avx512cd" => (leaf7.ebx, 28, AVX512),
            "avx512bw" => (leaf7.ebx, 30, AVX512),
            "avx512vl" => (leaf7.ebx, 31, AVX512),
            "avx512vbmi" => (leaf7.ecx, 1, AVX512),
            "avx512vbmi2" => (leaf7.ecx, 6, AVX512),
            "avx512vnni" => (leaf7.ecx, 11, AVX512),
            "avx512bitalg" => (leaf7.ecx, 12, AVX512),
            "avx512vpopcntdq" => (leaf7.ecx, 14, AVX512),
            "avx512fp16" => (leaf7.edx, 23, AVX512),
            "avx512bf16" => (leaf7_1.eax, 5, AVX512),
            _ => return false,
        };
        register >> bit & 1 == 1 && saved & needed == needed
    }
}

#[cfg(target_arch = "x86_64")]
fn saved_registers() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller saw that there is this instruction; it reads a register.
    unsafe {
        core::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack));
    }
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(target_arch = "aarch64")]
pub(super) struct Processor {
    hardware: [u64; 2],
}

#[cfg(target_arch = "aarch64")]
impl Processor {
    pub(super) fn new(auxiliary: &Auxiliary) -> Processor {
        Processor { hardware: [auxiliary.hardware, auxiliary.hardware2] }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        let [first, second] = self.hardware;
        match name {
            "neon" => first >> 1 & 1 == 1,
            "fp16" => first >> 9 & 0b11 == 0b11,
            "rdm" => first >> 12 & 1 == 1,
            "fcma" => first >> 14 & 1 == 1,
            "dotprod" => first >> 20 & 1 == 1,
            "sve" => first >> 22 & 1 == 1,
            "flagm" => first >> 27 & 1 == 1,
            "sve2" => second >> 1 & 1 == 1,
            "i8mm" => second >> 13 & 1 == 1,
            "bf16" => second >> 14 & 1 == 1,
            _ => false,
        }
    }
}

#[cfg(target_arch = "riscv64")]
pub(super) struct Processor {
    extensions: u64,
}

#[cfg(target_arch = "riscv64")]
impl Processor {
    pub(super) fn new(_: &Auxiliary) -> Processor {
        const EXTENSIONS: u64 = 4;
        let mut pairs = [[EXTENSIONS, 0]];
        // Linux before 6.4 cannot say, and then none may be used.
        let says = super::linux::probe_hardware(&mut pairs) && pairs[0][0] == EXTENSIONS;
        Processor { extensions: if says { pairs[0][1] } else { 0 } }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        let bit = match name {
            "v" => 2,
            "zba" => 3,
            "zbb" => 4,
            "zbs" => 5,
            _ => return false,
        };
        self.extensions >> bit & 1 == 1
    }
}
