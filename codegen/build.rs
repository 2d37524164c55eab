//! Hashes the sources of this crate: what an earlier version compiled must not be taken from a cache. And tells which machine it is built for.
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    let mut hash = 0xcbf2_9ce4_8422_2325;
    if let Err(error) = hash_sources(Path::new("src"), &mut hash) {
        println!("cargo::error=cannot read the sources of numrsc-codegen: {error}");
    }
    println!("cargo::rustc-env=NUMRSC_CODEGEN_SOURCES={hash:016x}");
    println!("cargo::rustc-env=NUMRSC_TARGET={}", std::env::var("TARGET").unwrap_or_default());
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
