//! Files that shrink while they are mapped: Linux sends `SIGBUS`, and the command names the file before it ends.
//!
//! Only the command does this. The library and the runtime are guests in their processes and install no handlers.
#![allow(unsafe_code)]
use numrsc_runtime::Visible;
use std::{
    ffi::{CStr, c_int, c_void},
    fmt::{self, Write},
    mem::zeroed,
    ptr::null_mut,
    sync::atomic::{AtomicBool, Ordering},
};

/// From here on.
pub(crate) fn watch() {
    // SAFETY: an action of zeros is one without flags; the handler has the type that the flag asks for, and does nothing that is forbidden in handlers: it takes no
    // locks and no memory.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &raw const action, null_mut());
    }
}

/// Another thread is here and about to end the process.
static ENDING: AtomicBool = AtomicBool::new(false);

extern "C" fn on_fault(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    if ENDING.swap(true, Ordering::Relaxed) {
        loop {
            // SAFETY: waits for the end.
            unsafe { libc::pause() };
        }
    }
    // SAFETY: the system passes what it knows of the signal, and of this one it knows the address.
    let address = unsafe { (*info).si_addr() }.addr();
    let found = with_mapped_file(address, |file| {
        let _ =
            writeln!(Stderr, "error: {}: it was cut, or cannot be read any more, while it was in use", Visible(file));
    });
    // SAFETY: ending at once is what handlers may do, and so is asking for what happens without a handler: the signal comes again on return.
    unsafe {
        if found {
            libc::_exit(c_int::from(super::UNREADABLE));
        }
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
    }
}

/// Without a buffer and a lock.
struct Stderr;

impl fmt::Write for Stderr {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: these are bytes to be read.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
        Ok(())
    }
}

/// From the system's list of mappings: lines `start-end rights offset device number path`.
const MAPPINGS: &CStr = c"/proc/self/maps";

/// Passes the path of the file that is mapped at an address to `f`; whether there is one.
fn with_mapped_file(address: usize, f: impl FnOnce(&str)) -> bool {
    // SAFETY: a path that ends with 0.
    let maps = unsafe { libc::open(MAPPINGS.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    let mut buffer = [0; 8192];
    let mut filled = 0;
    loop {
        let room = &mut buffer[filled..];
        // SAFETY: the room is ours.
        let count = unsafe { libc::read(maps, room.as_mut_ptr().cast(), room.len()) };
        let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0) else { return false };
        filled += count;
        let mut start = 0;
        while let Some(length) = buffer[start..filled].iter().position(|byte| *byte == b'\n') {
            if let Some(path) = path_at(&buffer[start..start + length], address) {
                f(path);
                return true;
            }
            start += length + 1;
        }
        buffer.copy_within(start..filled, 0);
        filled -= start;
    }
}

/// The path of a mapping, if it is one of a file and has this address.
fn path_at(line: &[u8], address: usize) -> Option<&str> {
    let number = |bytes: &[u8]| usize::from_str_radix(str::from_utf8(bytes).ok()?, 16).ok();
    let dash = line.iter().position(|byte| *byte == b'-')?;
    let space = line.iter().position(|byte| *byte == b' ')?;
    let range = number(&line[..dash])?..number(line.get(dash + 1..space)?)?;
    let slash = line.iter().position(|byte| *byte == b'/').filter(|_| range.contains(&address))?;
    let path = str::from_utf8(&line[slash..]).unwrap_or("a file whose name is no text");
    Some(path.strip_suffix(" (deleted)").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_at_an_address_is_found() {
        let line = b"7f10000-7f20000 r--p 00000000 fe:00 1234                       /tmp/with space-and-dash (deleted)";
        assert_eq!(path_at(line, 0x7f1_ffff), Some("/tmp/with space-and-dash"));
        assert_eq!((path_at(line, 0x7f2_0000), path_at(b"10-20 rw-p 0 00:00 0 [heap]", 0x10)), (None, None));

        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [1; 10]).unwrap();
        // SAFETY: nobody else knows the file.
        let map = unsafe { memmap2::Mmap::map(file.as_file()) }.unwrap();
        let mut found = String::new();
        assert!(with_mapped_file(map.as_ptr().addr(), |path| found = path.to_owned()));
        assert_eq!(std::path::Path::new(&found), file.path().canonicalize().unwrap());
        assert!(!with_mapped_file((&raw const found).addr(), |_| {}), "the stack is no file");
    }
}
