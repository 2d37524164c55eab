//! Files that appear complete or not at all.
//!
//! Where the system can (Linux, on most file systems), a file has no name before it is complete, so nothing is left of it when the process is killed. Elsewhere,
//! and where a linker writes, there are files and folders with hidden names. They are locked as long as their owner lives: whoever makes the next one next to
//! them removes what was left behind.
use crate::{Error, Result};
use std::{
    fs::{self, File},
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::{NamedTempFile, TempDir};

/// The number of an error (`EFAULT`).
const BAD_ADDRESS: i32 = 14;

const HIDDEN: &str = ".numrsc-";

/// What is younger may not be locked yet.
const LEFT_BEHIND: Duration = Duration::from_secs(60);

/// Write a file that appears complete or not at all. Devices and pipes are written to, not replaced.
pub fn write_file(path: &Path, content: impl FnOnce(&mut Blocks<'_>) -> io::Result<()>) -> Result<()> {
    let write = || {
        let mut file = NewFile::create(path)?;
        let can_go_back = !matches!(file, NewFile::Special(_));
        let mut writer = Blocks::new(file.as_file_mut(), can_go_back);
        content(&mut writer)?;
        writer.flush()?;
        file.publish(path)
    };
    write().map_err(|source| Error::Io { file: path.to_owned(), source })
}

/// Write a file that is open and empty.
pub(crate) fn write_into(file: &mut File, content: impl FnOnce(&mut Blocks<'_>) -> io::Result<()>) -> io::Result<()> {
    let mut writer = Blocks::new(file, true);
    content(&mut writer)?;
    writer.flush()
}

/// Can there be a file? To be asked before it takes minutes to make its content.
pub fn check(path: &Path) -> Result<()> {
    let failed = |source| Error::Io { file: path.to_owned(), source };
    match path.metadata() {
        Ok(about) if about.is_dir() => return Err(failed(io::ErrorKind::IsADirectory.into())),
        // To open a pipe is to wait for its reader.
        Ok(about) if !about.is_file() => return Ok(()),
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
        Ok(_) | Err(_) => {}
    }
    if path.file_name().is_none() {
        return Err(failed(io::ErrorKind::InvalidFilename.into()));
    }
    NewFile::create(path).map(drop).map_err(failed)
}

/// Where a file will be, links on the way to it resolved: two paths are of one file if they are equal by this.
pub fn place_of(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| {
        let folder = folder_of(path).canonicalize().unwrap_or_else(|_| folder_of(path).to_owned());
        folder.join(path.file_name().unwrap_or_default())
    })
}

/// Is there something that is neither a file nor a folder?
pub fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|is| !is.is_file() && !is.is_dir())
}

/// A file in the making.
enum NewFile {
    /// A device or pipe.
    Special(File),
    Unnamed(File),
    Hidden(NamedTempFile),
}

impl NewFile {
    fn create(path: &Path) -> io::Result<NewFile> {
        if is_special(path) {
            return File::options().write(true).open(path).map(NewFile::Special);
        }
        if let Some(file) = unnamed::create(folder_of(path))? {
            return Ok(NewFile::Unnamed(file));
        }
        NewFile::hidden(path)
    }

    fn hidden(path: &Path) -> io::Result<NewFile> {
        remove_left_behind(folder_of(path));
        let mut builder = tempfile::Builder::new();
        // As for any new file: what the user's mask leaves of it.
        #[cfg(unix)]
        builder.permissions(<fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666));
        let file = builder.prefix(HIDDEN).tempfile_in(folder_of(path))?;
        // Where there are no locks, nobody takes one to remove it.
        let _ = file.as_file().try_lock();
        Ok(NewFile::Hidden(file))
    }

    fn as_file_mut(&mut self) -> &mut File {
        match self {
            NewFile::Special(file) | NewFile::Unnamed(file) => file,
            NewFile::Hidden(file) => file.as_file_mut(),
        }
    }

    /// What has its whole content gets its name, in place of what has it now.
    fn publish(self, path: &Path) -> io::Result<()> {
        let hidden = match self {
            NewFile::Special(_) => return Ok(()),
            NewFile::Hidden(file) => return file.persist(path).map(drop).map_err(|e| e.error),
            NewFile::Unnamed(file) => match unnamed::link(&file, path) {
                // A link replaces nothing, but can be renamed to what does.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => tempfile::Builder::new()
                    .prefix(HIDDEN)
                    .make_in(folder_of(path), |hidden| unnamed::link(&file, hidden))?,
                done => return done,
            },
        };
        hidden.persist(path).map(drop).map_err(|e| e.error)
    }
}

/// Files without a name, which Linux has.
#[cfg(target_os = "linux")]
mod unnamed {
    use rustix::{
        fs::{AtFlags, CWD, Mode, OFlags, linkat, open},
        io::Errno,
    };
    use std::{fs::File, io, os::fd::AsRawFd, path::Path};

    /// Where the system shows open files, which is how they get a name.
    const OPEN_FILES: &str = "/proc/self/fd";

    /// `None` where this file system has no such files.
    pub(super) fn create(folder: &Path) -> io::Result<Option<File>> {
        if !Path::new(OPEN_FILES).exists() {
            return Ok(None);
        }
        let file = open(folder, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from_raw_mode(0o666));
        match file {
            Ok(file) => Ok(Some(file.into())),
            // What systems and file systems say that do not know what is asked for.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    pub(super) fn link(file: &File, path: &Path) -> io::Result<()> {
        let open = Path::new(OPEN_FILES).join(file.as_raw_fd().to_string());
        Ok(linkat(CWD, open, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }
}

#[cfg(not(target_os = "linux"))]
mod unnamed {
    use std::{fs::File, io, path::Path};

    pub(super) fn create(_: &Path) -> io::Result<Option<File>> {
        Ok(None)
    }

    pub(super) fn link(_: &File, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A buffer for what is written from the start of a file to its end, when it is flushed. It goes to the file in blocks that begin at multiples of their size: the
/// memory in which Linux keeps such a file is made of huge pages, so whoever maps it waits for fewer of them.
#[derive(Debug)]
pub struct Blocks<'a> {
    file: &'a mut File,
    block: Vec<u8>,
    /// Where the block begins in the file.
    start: u64,
    can_go_back: bool,
}

impl Blocks<'_> {
    const BYTES: usize = 4 << 20;

    fn new(file: &mut File, can_go_back: bool) -> Blocks<'_> {
        Blocks { file, block: Vec::new(), start: 0, can_go_back }
    }

    /// Pipes cannot [seek](Seek).
    pub fn can_go_back(&self) -> bool {
        self.can_go_back
    }
}

impl Seek for Blocks<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.flush()?;
        self.start = self.file.seek(to)?;
        Ok(self.start)
    }

    fn stream_position(&mut self) -> io::Result<u64> {
        Ok(self.start + self.block.len() as u64)
    }
}

impl Write for Blocks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let full = Self::BYTES - (self.start % Self::BYTES as u64) as usize;
        let taken = bytes.len().min(full - self.block.len());
        if taken == Self::BYTES {
            let written = self.file.write_all(&bytes[..taken]);
            if written.as_ref().is_err_and(|e| e.raw_os_error() == Some(BAD_ADDRESS)) {
                // What the system cannot read is part of a file that was cut. Reading it here ends as reading it anywhere else.
                std::hint::black_box(bytes[..taken].iter().fold(0, |sum, byte| sum ^ byte));
            }
            self.start += taken as u64;
            return written.map(|()| taken);
        }
        self.block.extend(&bytes[..taken]);
        if self.block.len() == full {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.block)?;
        self.start += self.block.len() as u64;
        self.block.clear();
        Ok(())
    }
}

/// A place for files on the way to another, from where they can be renamed to it. It goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: TempDir,
    /// Held as long as there is something to be done here.
    _lock: Option<File>,
}

impl Scratch {
    /// Next to what is made in it.
    pub(crate) fn new(path: &Path) -> Result<Scratch> {
        remove_left_behind(folder_of(path));
        let folder = tempfile::Builder::new().prefix(HIDDEN).tempdir_in(folder_of(path));
        let folder = folder.map_err(|source| Error::Io { file: path.to_owned(), source })?;
        let lock = File::open(folder.path()).ok().filter(|lock| lock.try_lock().is_ok());
        Ok(Scratch { folder, _lock: lock })
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Let a finished file of a [`Scratch`] be another one.
pub(crate) fn move_file(from: &Path, to: &Path) -> Result<()> {
    if is_special(to) {
        return write_file(to, |writer| io::copy(&mut File::open(from)?, writer).map(drop));
    }
    fs::rename(from, to).map_err(|source| Error::Io { file: to.to_owned(), source })
}

/// Remove the hidden files and folders of processes that were killed. What cannot be removed stays.
fn remove_left_behind(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|e| e.file_name().as_encoded_bytes().starts_with(HIDDEN.as_bytes())) {
        // Of the entry itself: links are nothing of ours.
        let Ok(about) = entry.metadata() else { continue };
        let age = about.modified().ok().and_then(|time| time.elapsed().ok());
        if !(about.is_file() || about.is_dir()) || age.is_none_or(|age| age < LEFT_BEHIND) {
            continue;
        }
        let path = entry.path();
        if File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = if about.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_complete_or_absent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let broken = write_file(&path, |to| {
            to.write_all(b"half")?;
            Err(io::Error::other("the disk is gone"))
        });
        assert!(broken.unwrap_err().to_string().contains("the disk is gone"));
        assert!(names(folder.path()).is_empty());
        for text in [b"whole", b"other"] {
            write_file(&path, |to| to.write_all(text)).unwrap();
            assert_eq!(fs::read(&path).unwrap(), text);
            assert_eq!(names(folder.path()), ["out"]);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_has_no_name_before_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        if unnamed::create(folder.path()).unwrap().is_none() {
            println!("skipped: the file system of {} has no files without names", folder.path().display());
            return;
        }
        write_file(&folder.path().join("out"), |to| {
            to.write_all(b"half")?;
            to.flush()?;
            assert!(names(folder.path()).is_empty());
            to.write_all(b", and the rest")
        })
        .unwrap();
        assert_eq!(fs::read(folder.path().join("out")).unwrap(), b"half, and the rest");
    }

    #[test]
    fn without_such_files_there_are_hidden_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        for text in [b"whole", b"other"] {
            let mut file = NewFile::hidden(&path).unwrap();
            file.as_file_mut().write_all(text).unwrap();
            assert!(names(folder.path()).iter().any(|name| name.starts_with(HIDDEN)));
            file.publish(&path).unwrap();
            assert_eq!((fs::read(&path).unwrap(), names(folder.path())), (text.to_vec(), vec!["out".to_owned()]));
        }
    }

    #[test]
    fn what_was_left_behind_goes_and_what_is_in_use_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let old = |name: &Path| File::open(name).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        // As a killed process leaves them: without a lock.
        let dead = folder.path().join(".numrsc-dead01");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("code.o"), b"half").unwrap();
        fs::write(folder.path().join(".numrsc-dead02"), b"half").unwrap();
        fs::write(folder.path().join(".numrsc-young1"), b"").unwrap();
        fs::write(folder.path().join("numrsc-other"), b"").unwrap();
        let (alive, file) = (Scratch::new(&path).unwrap(), NewFile::hidden(&path).unwrap());
        let NewFile::Hidden(named) = &file else { unreachable!("as asked for") };
        let in_use = [alive.folder.path(), named.path()];
        in_use.into_iter().for_each(old);
        [".numrsc-dead01", ".numrsc-dead02", "numrsc-other"].iter().for_each(|name| old(&folder.path().join(name)));
        drop(Scratch::new(&path).unwrap());
        let mut expected: Vec<String> =
            in_use.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        expected.extend([".numrsc-young1".into(), "numrsc-other".into()]);
        expected.sort();
        assert_eq!(names(folder.path()), expected);
    }

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let folder = tempfile::tempdir().unwrap();
        let long = "x".repeat(300);
        for bad in ["", "missing/out", "..", &long] {
            assert!(check(&folder.path().join(bad)).is_err(), "{bad}");
        }
        fs::write(folder.path().join("there"), b"old").unwrap();
        check(&folder.path().join("there")).unwrap();
        check(&folder.path().join("new")).unwrap();
        assert_eq!((fs::read(folder.path().join("there")).unwrap(), names(folder.path()).len()), (b"old".to_vec(), 1));
    }

    #[test]
    #[cfg(unix)]
    fn links_lead_to_one_place() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("model"), b"").unwrap();
        std::os::unix::fs::symlink("model", at("link")).unwrap();
        std::os::unix::fs::symlink(".", at("here")).unwrap();
        assert_eq!(place_of(&at("link")), place_of(&at("here/model")));
        assert_eq!(place_of(&at("here/new")), place_of(&at("new")));
        assert_ne!(place_of(&at("new")), place_of(&at("model")));
    }

    #[test]
    fn blocks_are_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let content: Vec<u8> = (0..2 * Blocks::BYTES + 12_345).map(|i| (i % 251) as u8).collect();
        for step in [1000, Blocks::BYTES - 1, Blocks::BYTES, Blocks::BYTES + 1, content.len()] {
            write_file(&path, |to| content.chunks(step).try_for_each(|part| to.write_all(part))).unwrap();
            assert!(fs::read(&path).unwrap() == content, "in parts of {step} bytes");
        }
    }
}
