//! What code is generated for: data, so that no other crate has to test a target's name.

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
