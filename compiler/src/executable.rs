//! A compiled model as a program for Linux that needs no libraries: the model's object and `runtime-min/src/program`, linked.
use crate::{
    Error, Result,
    compile::Artifact,
    emit,
    toolchain::{self, Format},
};
use numrsc_codegen::Target;
use numrsc_runtime::{SOURCES, artifact::Checksum};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// What the program calls the parts of its model.
const SYMBOL: &str = "numrsc_model";

/// Nothing unwinds in these programs, so tables for that would be ballast.
const LAYOUT: &str = "SECTIONS { /DISCARD/ : { *(.eh_frame) *(.gcc_except_table*) *(.comment) } } INSERT AFTER .text;";

/// Large weights can lie in huge pages if addresses are those of the file modulo their size, and if the file was written in one go: see [`emit::Blocks`].
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
        let layout = folder.path().join("layout.ld");
        fs::write(&layout, LAYOUT).map_err(failed)?;
        let key = key(&toolchain::ask(&rustc, &["--version", "--verbose"])?);
        let kept = cache.map(|cache| cache.join(format!("program-{triple}-{key:016x}.a")));
        let library = kept.clone().unwrap_or_else(|| folder.path().join("program.a"));
        if !kept.is_some_and(|kept| kept.is_file()) {
            compile(&rustc, triple, folder.path(), &library)?;
        }
        Ok(Program { linker, library, layout, _folder: folder })
    }

    /// An executable file with this model, which has to be for the same processor.
    pub fn write(&self, artifact: &Artifact, path: &Path) -> Result<()> {
        let scratch = emit::scratch_folder(path)?;
        let object = scratch.path().join("model.o");
        emit::write_object(artifact, SYMBOL, &object)?;
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
    let compiled = folder.join("compiled.a");
    let mut command = Command::new(rustc);
    command.args(["--crate-name=numrsc_program", "--crate-type=staticlib", "--edition=2024", "--target", triple]);
    command.args(["--cfg=numrsc_program", "--cfg=feature=\"alloc\"", "--cap-lints=allow"]);
    command.args(["-Copt-level=z", "-Clto=fat", "-Ccodegen-units=1", "-Cpanic=abort", "-Crelocation-model=static"]);
    command.arg(sources.join("lib.rs")).arg("-o").arg(&compiled);
    toolchain::run(&mut command)?;
    emit::write_file(library, |to| std::io::copy(&mut fs::File::open(&compiled)?, to).map(|_| ()))
}
