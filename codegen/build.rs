//! Links the LLVM that ships inside the Rust toolchain, so that nothing has to be installed.
//!
//! The sysroot of every toolchain holds `libLLVM-<major>-rust-<version>.so` with the complete C API. Its major
//! version must be the one inkwell's bindings were written for, which is why `rust-toolchain.toml` pins rustc.
//!
//! It also hashes the sources of this crate: what an earlier version compiled must not be taken from a cache.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Must match the `llvm22-1…` feature of inkwell in the workspace manifest.
const LLVM_MAJOR: &str = "22";
/// Must match `rust-toolchain.toml`.
const PINNED_TOOLCHAIN: &str = "1.95.0";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC");
    println!("cargo::rerun-if-changed=src");
    let mut hash = 0xcbf2_9ce4_8422_2325;
    if let Err(error) = hash_sources(Path::new("src"), &mut hash) {
        println!("cargo::error=cannot read the sources of numrsc-codegen: {error}");
    }
    println!("cargo::rustc-env=NUMRSC_CODEGEN_SOURCES={hash:016x}");
    match find_llvm() {
        Ok((directory, library)) => {
            println!("cargo::rustc-link-search=native={}", directory.display());
            println!("cargo::rustc-link-lib=dylib={library}");
            // rustup's cargo tells programs where the library is, a bare cargo or shell does not. The rpath serves this
            // crate's tests; what links this crate emits its own, from DEP_NUMRSC_LLVM_LIBDIR in its build script.
            println!("cargo::rustc-link-arg=-Wl,-rpath,{}", directory.display());
            println!("cargo::metadata=libdir={}", directory.display());
        }
        Err(error) => println!(
            "cargo::error=numrsc-codegen links the LLVM {LLVM_MAJOR} inside the Rust toolchain {PINNED_TOOLCHAIN}: \
             {error}. Build with the pinned toolchain: rustup toolchain install {PINNED_TOOLCHAIN}"
        ),
    }
}

/// The directory of the toolchain's LLVM and the name to link it by.
fn find_llvm() -> Result<(PathBuf, String), Box<dyn Error>> {
    let rustc = std::env::var_os("RUSTC").ok_or("cargo did not set RUSTC")?;
    let output = Command::new(&rustc).args(["--print", "sysroot"]).output()?;
    if !output.status.success() {
        return Err(format!("{} --print sysroot failed", rustc.display()).into());
    }
    let directory = Path::new(String::from_utf8(output.stdout)?.trim()).join("lib");

    let mut found = Vec::new();
    let entries = directory.read_dir().map_err(|e| format!("cannot list {}: {e}", directory.display()))?;
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(stem) = name.strip_prefix("lib").and_then(|n| n.strip_suffix(".so"))
            && stem.starts_with("LLVM-")
        {
            found.push(stem.to_owned());
        }
    }
    found.sort();
    match found.iter().find(|stem| stem.starts_with(&format!("LLVM-{LLVM_MAJOR}-rust-"))) {
        Some(stem) => Ok((directory, stem.clone())),
        None => Err(format!(
            "no libLLVM-{LLVM_MAJOR}-rust-*.so in {} (found: {})",
            directory.display(),
            if found.is_empty() { "none".to_owned() } else { found.join(", ") }
        )
        .into()),
    }
}

/// FNV-1a over all files, in the order of their names.
fn hash_sources(directory: &Path, hash: &mut u64) -> std::io::Result<()> {
    let mut paths = directory.read_dir()?.map(|entry| entry.map(|e| e.path())).collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            hash_sources(&path, hash)?;
            continue;
        }
        for byte in path.to_string_lossy().bytes().chain(std::fs::read(&path)?) {
            *hash = (*hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(())
}
