//! The files of a command: none of those that it writes is another one of them, or one that it reads.
use super::Failure;
use numrsc::output::files::{check, is_special, place_of};
use std::{collections::BTreeMap, path::Path};

/// What a file is for, and where it is.
pub(crate) type File<'a> = (&'a str, &'a Path);

/// Refuse files that are the same. Devices and pipes can be several things at once.
pub(crate) fn distinct(read: &[File<'_>], written: &[File<'_>]) -> Result<(), Failure> {
    let mut places = BTreeMap::new();
    for (what, path) in read.iter().filter(|(_, path)| !is_special(path)) {
        places.entry(place_of(path)).or_insert(*what);
    }
    for (what, path) in written.iter().filter(|(_, path)| !is_special(path)) {
        if let Some(other) = places.insert(place_of(path), what) {
            let path = path.display();
            return Err(Failure::Usage(format!("{path} would be both {other} and {what}: choose another name")));
        }
    }
    Ok(())
}

/// Refuse files that cannot be written, before there is something to be written.
pub(crate) fn writable(files: &[File<'_>]) -> Result<(), Failure> {
    Ok(files.iter().try_for_each(|(_, path)| check(path))?)
}
