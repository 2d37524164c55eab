//! The Rust toolchain as something to call: its linker, and for executables its compiler.
use super::files::{Scratch, move_file};
use crate::{Error, Result, space::check_disk};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The toolchain that built this program has the linker; if it is gone, the one in use may have it.
pub fn linker() -> Result<PathBuf> {
    let built = option_env!("NUMRSC_LLD").map(PathBuf::from);
    if let Some(built) = built.as_ref().filter(|path| path.is_file()) {
        return Ok(built.clone());
    }
    let asked = ask(Path::new("rustc"), &["--print", "target-libdir"]).ok();
    let found = asked.and_then(|libdir| Some(Path::new(&libdir).parent()?.join("bin/rust-lld")));
    found.filter(|path| path.is_file()).ok_or_else(|| {
        let place = built.map(|path| format!(" (not at {}, nor where `rustc` is)", path.display())).unwrap_or_default();
        Error::Codegen(format!(
            "this needs rust-lld, the linker of the Rust toolchain, which is not there{place}: \
             install the toolchain with rustup, or emit `obj` and link it yourself"
        ))
    })
}

/// What the linker makes.
#[derive(Clone, Copy)]
pub(crate) enum Format {
    Elf,
    Wasm,
}

/// Link by `linker`, and let the result appear at once or not at all.
pub(crate) fn link(linker: &Path, format: Format, args: &[&str], inputs: &[&Path], output: &Path) -> Result<()> {
    let mut command = Command::new(linker);
    match format {
        Format::Elf => command.args(["-flavor", "gnu", "-z", "noexecstack"]),
        Format::Wasm => command.args(["-flavor", "wasm"]),
    };
    command.arg("--build-id=none").args(args).args(inputs);
    let scratch = Scratch::new(output)?;
    let file = scratch.file("linked");
    // It writes through a mapping: where the disk is full, a signal ends it.
    let bytes = inputs.iter().filter_map(|path| path.metadata().ok()).map(|about| about.len()).sum();
    run(command.arg("-o").arg(&file)).map_err(|e| check_disk(output, bytes).err().unwrap_or(e))?;
    move_file(&file, output)
}

/// The compiler next to the linker.
pub fn rustc(linker: &Path) -> PathBuf {
    let near = linker.ancestors().nth(5).map(|sysroot| sysroot.join("bin/rustc"));
    near.filter(|path| path.is_file()).unwrap_or("rustc".into())
}

/// What a program says when called like this.
pub(crate) fn ask(program: &Path, args: &[&str]) -> Result<String> {
    run(Command::new(program).args(args))
}

pub(crate) fn run(command: &mut Command) -> Result<String> {
    let program = Path::new(command.get_program()).to_owned();
    let output = command.output().map_err(|source| Error::Io { file: program.clone(), source })?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Codegen(format!("{} failed: {}", program.display(), text.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
