//! Detects the CPU features that code may need, by the names that LLVM and Rust use.
use crate::error::{Error, Result, Text};

/// An error that names the first feature that this CPU lacks. A feature that is not known here counts as lacking.
pub(crate) fn check_features<'a>(mut names: impl Iterator<Item = &'a str>) -> Result<()> {
    match names.find(|name| detect(name) != Some(true)) {
        Some(name) => Err(Error::CpuFeature { name: Text::new(name) }),
        None => Ok(()),
    }
}

#[allow(unused_macros, reason = "each architecture has its own detection")]
macro_rules! table {
    ($detected:ident, $name:expr, $( $feature:tt $( = $alias:literal )* ),* $(,)?) => {
        match $name {
            $( $feature $( | $alias )* => Some(std::arch::$detected!($feature)), )*
            _ => None,
        }
    };
}

#[cfg(target_arch = "x86_64")]
fn detect(name: &str) -> Option<bool> {
    table!(
        is_x86_feature_detected,
        name,
        "sse",
        "sse2",
        "sse3",
        "ssse3",
        "sse4.1",
        "sse4.2",
        "sse4a",
        "popcnt",
        "avx",
        "avx2",
        "fma",
        "f16c",
        "bmi1" = "bmi",
        "bmi2",
        "lzcnt",
        "tbm",
        "adx",
        "aes",
        "pclmulqdq" = "pclmul",
        "rdrand",
        "rdseed",
        "sha",
        "movbe",
        "fxsr",
        "xsave",
        "xsavec",
        "xsaveopt",
        "xsaves",
        "cmpxchg16b" = "cx16",
        "gfni",
        "vaes",
        "vpclmulqdq",
        "avxvnni",
        "avxifma",
        "avxneconvert",
        "avxvnniint8",
        "avxvnniint16",
        "avx512f",
        "avx512cd",
        "avx512bw",
        "avx512dq",
        "avx512vl",
        "avx512ifma",
        "avx512vbmi",
        "avx512vbmi2",
        "avx512vnni",
        "avx512bitalg",
        "avx512vpopcntdq",
        "avx512bf16",
        "avx512fp16",
        "avx512vp2intersect",
    )
}

#[cfg(target_arch = "aarch64")]
fn detect(name: &str) -> Option<bool> {
    table!(
        is_aarch64_feature_detected,
        name,
        "neon" = "fp-armv8" = "asimd",
        "fp16" = "fullfp16",
        "dotprod",
        "i8mm",
        "bf16",
        "fhm" = "fp16fml",
        "fcma" = "complxnum",
        "rdm",
        "lse",
        "crc",
        "aes",
        "sha2",
        "sha3",
        "jsconv",
        "rcpc",
        "dpb" = "ccpp",
        "frintts" = "fptoint",
        "flagm",
        "sve",
        "sve2",
    )
}

/// On other architectures stable Rust detects nothing, and code is compiled for the baseline.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect(_: &str) -> Option<bool> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_missing_feature_is_named() {
        assert!(check_features([].into_iter()).is_ok());
        let baseline = if cfg!(target_arch = "x86_64") { "sse2" } else { "neon" };
        assert!(check_features([baseline].into_iter()).is_ok());
        let error = check_features([baseline, "telepathy", "magic"].into_iter()).unwrap_err();
        assert!(error.to_string().contains("telepathy"), "{error}");
    }
}
