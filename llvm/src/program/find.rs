//! Where LLVM is: next to the program, or in the Rust toolchain that built it. Every toolchain has LLVM's C interface as a shared library.
use super::library::Llvm;
use crate::place::running_program;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The major version whose IR and code the compiler is made for.
const MAJOR: u32 = 22;

/// The folder with the LLVM of the toolchain that built this program.
const TOOLCHAIN: Option<&str> = option_env!("NUMRSC_TOOLCHAIN_LIBRARIES");

/// LLVM, or one line that says where it was looked for.
pub(super) fn open() -> Result<Llvm, String> {
    let own = running_program().and_then(|program| program.parent().map(Path::to_owned));
    let beside = own.iter().flat_map(|folder| [folder.clone(), folder.join("../lib")]);
    let folders: Vec<PathBuf> = beside.chain(TOOLCHAIN.map(PathBuf::from)).collect();
    let mut refused = vec![];
    for library in folders.iter().flat_map(|folder| libraries(folder)) {
        match Llvm::open(&library) {
            Ok(llvm) if llvm.major() == MAJOR => return Ok(llvm),
            Ok(llvm) => refused.push(format!("{} is {}", library.display(), llvm.version())),
            Err(message) => refused.push(message),
        }
    }
    let places: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let refused = if refused.is_empty() { String::new() } else { format!(" ({})", refused.join("; ")) };
    Err(format!("there is no LLVM {MAJOR} in {}{refused}", places.join(", ")))
}

/// What may be LLVM in a folder, those first whose name has the version. `libLLVM-22-rust-….so` of a toolchain is a few bytes for linkers.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    let is_llvm = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let large = path.metadata().is_ok_and(|about| about.len() > 1 << 16);
        name.starts_with("libLLVM") && (name.contains(".so") || name.ends_with(".dylib")) && large
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_llvm).collect();
    let has_version = |path: &PathBuf| path.to_string_lossy().contains(&MAJOR.to_string());
    found.sort_by_key(|path| (!has_version(path), path.clone()));
    found
}
