//! Where the running program is.
use std::{env, path::PathBuf};

/// Its file: as the system tells, or as it was called where the system does not, as without `/proc`.
pub fn running_program() -> Option<PathBuf> {
    env::current_exe().ok().or_else(|| {
        let called = PathBuf::from(env::args_os().next()?);
        // A name alone was found on the path, which is looked at anyway.
        let has_folder = called.parent().is_some_and(|folder| !folder.as_os_str().is_empty());
        if has_folder { called.canonicalize().ok() } else { None }
    })
}
