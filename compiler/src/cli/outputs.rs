//! Checks that the files of a command are distinct: no output is another output or an input.
use super::Failure;
use numrsc::output::files::{check, is_special, place_of};
use std::{collections::BTreeMap, path::Path};

/// What a file is for, and where it is.
pub(crate) type File<'a> = (&'a str, &'a Path);

/// Refuses identical files. Devices and pipes may be used several times.
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

/// Refuses files that cannot be written, before there is anything to write.
pub(crate) fn writable(files: &[File<'_>]) -> Result<(), Failure> {
    Ok(files.iter().try_for_each(|(_, path)| check(path))?)
}
