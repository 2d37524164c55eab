//! The sources of this crate without `std`, of which the compiler makes executables.

macro_rules! sources {
    ($($path:literal)*) => { &[$(($path, include_str!($path))),*] };
}

/// Paths below `src` and texts of what executables need.
pub const SOURCES: &[(&str, &str)] = sources![
    "arena.rs"
    "artifact/checksum.rs"
    "artifact/manifest.rs"
    "artifact/mod.rs"
    "artifact/names.rs"
    "artifact/read.rs"
    "artifact/sections.rs"
    "bind.rs"
    "context.rs"
    "dtype.rs"
    "error.rs"
    "finish.rs"
    "float_mode.rs"
    "half.rs"
    "host.rs"
    "lib.rs"
    "memory.rs"
    "model.rs"
    "npy.rs"
    "program/arguments.rs"
    "program/cpu.rs"
    "program/heap.rs"
    "program/inputs.rs"
    "program/linux.rs"
    "program/mod.rs"
    "program/start.rs"
    "run.rs"
    "tensor.rs"
    "view.rs"
    "visible.rs"
];
