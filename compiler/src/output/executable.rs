//! A compiled model as a program for Linux that needs no libraries: the model's object and `runtime-min/src/program`, linked.
use super::{
    artifact::Artifact,
    files::{Scratch, write_file},
    object,
    toolchain::{self, Format},
};
use crate::{Error, Result};
use numrsc_codegen::Target;
use numrsc_runtime::{
    SOURCES,
    artifact::{Checksum, checksum},
};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// What the program calls the parts of its model.
const SYMBOL: &str = "numrsc_model";

/// Nothing unwinds in these programs, so tables for that would be ballast.
///
/// Many weights come behind everything else: code reaches no further than 2 GB, and it is their beginning that it refers to.
const LAYOUT: &str = "SECTIONS { /DISCARD/ : { *(.eh_frame) *(.gcc_except_table*) *(.comment) } } INSERT AFTER .text;\n\
    SECTIONS { .large_weights : { *(.large_weights) } } INSERT AFTER .bss;";

/// Large weights can lie in huge pages if addresses are those of the file modulo their size, and if the file was written in one go: see [`output::Blocks`].
const HUGE_PAGE: u64 = 2 << 20;
const HUGE_PAGES: &str = "max-page-size=2097152";

/// What all programs for a processor have in common, compiled by the Rust toolchain.
#[derive(Debug)]
pub struct Program {
    linker: PathBuf,
    library: PathBuf,
    layout: PathBuf,
    /// Where the files are that nobody keeps.
    _folder: TempDir,
}

impl Program {
    /// Takes a few seconds, or none if the cache has it.
    pub fn build(target: &Target, cache: Option<&Path>) -> Result<Program> {
        let linker = toolchain::linker()?;
        let rustc = toolchain::rustc(&linker);
        let triple = rust_triple(target, &rustc)?;
        let failed = |source| Error::Io { file: std::env::temp_dir(), source };
        let folder = tempfile::Builder::new().prefix("numrsc-").tempdir().map_err(failed)?;
        let [layout, library] = ["layout.ld", "program.a"].map(|name| folder.path().join(name));
        fs::write(&layout, LAYOUT).map_err(failed)?;
        let key = key(&toolchain::ask(&rustc, &["--version", "--verbose"])?);
        let kept = cache.map(|cache| cache.join(format!("program-{triple}-{key:016x}.a")));
        match kept.as_deref().and_then(read_kept) {
            Some(content) => fs::write(&library, content).map_err(failed)?,
            None => {
                compile(&rustc, triple, folder.path(), &library)?;
                let content = fs::read(&library).map_err(failed)?;
                // A cache saves time. That it cannot be written is no reason to fail.
                let _ = kept.map(|kept| keep(&kept, &content));
            }
        }
        Ok(Program { linker, library, layout, _folder: folder })
    }

    /// An executable file with this model, which has to be for the same processor.
    pub fn write(&self, artifact: &Artifact, path: &Path) -> Result<()> {
        let scratch = Scratch::new(path)?;
        let object = scratch.file("model.o");
        object::write_object_of_any_size(artifact, SYMBOL, &object)?;
        let mut options = vec!["-static", "--gc-sections", "--strip-all"];
        if artifact.lowered.weights.size() >= HUGE_PAGE {
            options.extend(["-z", HUGE_PAGES, "--no-mmap-output-file"]);
        }
        options.push("-T");
        toolchain::link(&self.linker, Format::Elf, &options, &[&self.layout, &object, &self.library], path)
    }
}

/// Rust's name of the target, with a core library in this toolchain.
fn rust_triple(target: &Target, rustc: &Path) -> Result<&'static str> {
    let triples = target.linux_triples();
    let [first, ..] = triples else {
        let triple = &target.triple;
        return Err(Error::Codegen(format!(
            "executables are for Linux on x86-64, AArch64 and 64-bit RISC-V, not for {triple}"
        )));
    };
    for &triple in triples {
        let libraries = toolchain::ask(rustc, &["--print", "target-libdir", "--target", triple])?;
        if Path::new(&libraries).is_dir() {
            return Ok(triple);
        }
    }
    // Where rustup keeps them, toolchains are folders by their name.
    let name = rustc.ancestors().nth(2).and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let toolchain = name.map(|name| format!(" --toolchain {name}")).unwrap_or_default();
    Err(Error::Codegen(format!(
        "the Rust toolchain has no core library for {first}, which executables need: rustup target add{toolchain} {first}"
    )))
}

/// What the library depends on but the target.
fn key(version: &str) -> u64 {
    let mut key = Checksum::new();
    key.update(version.as_bytes());
    for (path, text) in SOURCES {
        key.update(path.as_bytes());
        key.update(text.as_bytes());
    }
    key.finish()
}

fn compile(rustc: &Path, triple: &str, folder: &Path, library: &Path) -> Result<()> {
    let sources = folder.join("src");
    for (path, text) in SOURCES {
        let path = sources.join(path);
        let written = fs::create_dir_all(path.parent().unwrap_or(&sources)).and_then(|()| fs::write(&path, text));
        written.map_err(|source| Error::Io { file: path, source })?;
    }
    let mut command = Command::new(rustc);
    command.args(["--crate-name=numrsc_program", "--crate-type=staticlib", "--edition=2024", "--target", triple]);
    command.args(["--cfg=numrsc_program", "--cfg=feature=\"alloc\"", "--cap-lints=allow"]);
    command.args(["-Copt-level=z", "-Clto=fat", "-Ccodegen-units=1", "-Cpanic=abort", "-Crelocation-model=static"]);
    command.arg(sources.join("lib.rs")).arg("-o").arg(library);
    toolchain::run(&mut command).map(drop)
}

/// What the cache has, if it is what was written there.
fn read_kept(file: &Path) -> Option<Vec<u8>> {
    let mut content = fs::read(file).ok()?;
    let sum = content.split_off(content.len().checked_sub(size_of::<u64>())?);
    (sum == checksum(&content).to_le_bytes()).then_some(content)
}

/// With a checksum at the end.
fn keep(file: &Path, content: &[u8]) -> Result<()> {
    write_file(file, |to| {
        to.write_all(content)?;
        to.write_all(&checksum(content).to_le_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_library_is_as_good_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("program.a");
        assert_eq!(read_kept(&file), None);
        keep(&file, b"a library").unwrap();
        assert_eq!(read_kept(&file).as_deref(), Some(&b"a library"[..]));
        let good = fs::read(&file).unwrap();
        for length in 0..good.len() {
            fs::write(&file, &good[..length]).unwrap();
            assert_eq!(read_kept(&file), None, "{length} bytes");
            let mut bytes = good.clone();
            bytes[length] ^= 1;
            fs::write(&file, bytes).unwrap();
            assert_eq!(read_kept(&file), None, "byte {length}");
        }
    }
}
