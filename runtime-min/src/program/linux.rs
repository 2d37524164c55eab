//! What the program asks of Linux.
#![allow(unsafe_code)]
use crate::Visible;
use alloc::{borrow::Cow, format, vec::Vec};
use core::{arch::asm, fmt, ptr::null_mut};

/// Numbers of system calls; x86-64 has its own, all newer machines the same ones.
#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const READ: usize = 0;
    pub(super) const WRITE: usize = 1;
    pub(super) const CLOSE: usize = 3;
    pub(super) const LSEEK: usize = 8;
    pub(super) const MMAP: usize = 9;
    pub(super) const MADVISE: usize = 28;
    pub(super) const FTRUNCATE: usize = 77;
    pub(super) const CLOCK_GETTIME: usize = 228;
    pub(super) const EXIT_GROUP: usize = 231;
    pub(super) const OPENAT: usize = 257;
}

#[cfg(not(target_arch = "x86_64"))]
mod number {
    pub(super) const FTRUNCATE: usize = 46;
    pub(super) const OPENAT: usize = 56;
    pub(super) const CLOSE: usize = 57;
    pub(super) const LSEEK: usize = 62;
    pub(super) const READ: usize = 63;
    pub(super) const WRITE: usize = 64;
    pub(super) const EXIT_GROUP: usize = 94;
    pub(super) const CLOCK_GETTIME: usize = 113;
    pub(super) const MMAP: usize = 222;
    pub(super) const MADVISE: usize = 233;
    #[cfg(target_arch = "riscv64")]
    pub(super) const RISCV_HWPROBE: usize = 258;
}

/// Where inputs come from and outputs go to.
#[derive(Clone, Copy)]
pub(super) enum File {
    Standard,
    Path(&'static str),
}

impl File {
    /// For messages.
    pub(super) fn name(self, what: &str) -> Cow<'static, str> {
        match self {
            File::Path(path) => Cow::Borrowed(path),
            File::Standard => Cow::Owned(format!("the standard {what}")),
        }
    }
}

/// A number of `errno`.
pub(super) struct Error(i32);

const INTERRUPTED: i32 = 4;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            2 => "there is no such file or folder",
            5 => "input/output error",
            12 => "out of memory",
            13 => "permission denied",
            20 => "a part of the path is not a folder",
            21 => "this is a folder",
            27 => "the file gets too large",
            28 => "no space left on the device",
            30 => "the file system is read only",
            32 => "nobody reads it",
            36 => "the name is too long",
            number => return write!(f, "error {number} of the system"),
        })
    }
}

type Result<T> = core::result::Result<T, Error>;

/// A file that closes itself.
struct Open(usize);

impl Drop for Open {
    fn drop(&mut self) {
        if self.0 > STANDARD_ERROR {
            // SAFETY: nobody uses the file any more.
            let _ = unsafe { call(number::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
        }
    }
}

const STANDARD_INPUT: usize = 0;
const STANDARD_OUTPUT: usize = 1;
const STANDARD_ERROR: usize = 2;

/// Where a file is read or written next.
enum SeekFrom {
    Start = 0,
    End = 2,
}

/// All of a file.
pub(super) fn read(file: File) -> Result<Vec<u8>> {
    const READ_ONLY: usize = 0;
    const STEP: usize = 1 << 16;
    let named = matches!(file, File::Path(_));
    let file = open(file, STANDARD_INPUT, READ_ONLY)?;
    let mut bytes = Vec::new();
    // Memory for the whole length at once, and a byte to see the end; what has none, such as a pipe, gets more as it comes.
    if named
        && let Ok(length) = seek(&file, SeekFrom::End).and_then(|length| seek(&file, SeekFrom::Start).map(|_| length))
    {
        let _ = bytes.try_reserve_exact(length.saturating_add(1));
    }
    loop {
        if bytes.len() == bytes.capacity() {
            bytes.reserve(STEP);
        }
        let room = bytes.spare_capacity_mut();
        // SAFETY: the room is ours.
        let count = unsafe { call(number::READ, [file.0, room.as_mut_ptr().addr(), room.len(), 0, 0, 0]) };
        match count {
            Ok(0) => return Ok(bytes),
            // SAFETY: that many bytes were written to the room.
            Ok(count) => unsafe { bytes.set_len(bytes.len() + count) },
            Err(Error(INTERRUPTED)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A file with these contents, one after the other.
///
/// What the file held is written over, and what is left of it cut off: of a file that was made empty first, ext4 would begin to write all to disk when it is closed, which
/// takes longer than a small model.
pub(super) fn write(file: File, parts: &[&[u8]]) -> Result<()> {
    const WRITE_ONLY: usize = 0o1;
    const CREATE: usize = 0o100;
    let named = matches!(file, File::Path(_));
    let file = open(file, STANDARD_OUTPUT, WRITE_ONLY | CREATE)?;
    parts.iter().try_for_each(|part| write_all(&file, part))?;
    let length = parts.iter().map(|part| part.len()).sum();
    // What has no end, such as a pipe, has nothing left.
    if named && seek(&file, SeekFrom::End).is_ok_and(|end| end > length) {
        // SAFETY: there are no addresses.
        unsafe { call(number::FTRUNCATE, [file.0, length, 0, 0, 0, 0]) }?;
    }
    Ok(())
}

/// The place as a number of bytes from the start.
fn seek(file: &Open, place: SeekFrom) -> Result<usize> {
    // SAFETY: there are no addresses.
    unsafe { call(number::LSEEK, [file.0, 0, place as usize, 0, 0, 0]) }
}

/// What cannot be said stays unsaid.
pub(super) fn complain(text: &str) {
    let text = format!("{}", Visible(text));
    let _ = write_all(&Open(STANDARD_ERROR), text.as_bytes());
}

fn open(file: File, standard: usize, flags: usize) -> Result<Open> {
    const CURRENT_FOLDER: usize = -100_isize as usize;
    const MODE: usize = 0o666;
    let File::Path(path) = file else { return Ok(Open(standard)) };
    let path = [path.as_bytes(), &[0]].concat();
    // SAFETY: the path ends with 0.
    unsafe { call(number::OPENAT, [CURRENT_FOLDER, path.as_ptr().addr(), flags, MODE, 0, 0]) }.map(Open)
}

fn write_all(file: &Open, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        // SAFETY: these are bytes to be read.
        match unsafe { call(number::WRITE, [file.0, bytes.as_ptr().addr(), bytes.len(), 0, 0, 0]) } {
            Ok(count) => bytes = &bytes[count..],
            Err(Error(INTERRUPTED)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(super) const HUGE_PAGE: usize = 2 << 20;

/// Memory of its own, all zero; null if there is none.
pub(super) fn map(bytes: usize) -> *mut u8 {
    const READ_AND_WRITE: usize = 1 | 2;
    const PRIVATE_AND_NO_FILE: usize = 0x2 | 0x20;
    const NO_FILE: usize = -1_isize as usize;
    // SAFETY: a new mapping at a place that Linux chooses touches nothing.
    let mapped = unsafe { call(number::MMAP, [0, bytes, READ_AND_WRITE, PRIVATE_AND_NO_FILE, NO_FILE, 0]) };
    mapped.map_or(null_mut(), core::ptr::with_exposed_provenance_mut)
}

/// As [`map`], for a multiple of [`HUGE_PAGE`], and in huge pages, which begin where addresses are multiples of their size.
pub(super) fn map_huge(bytes: usize) -> *mut u8 {
    const AS_HUGE_PAGES: usize = 14;
    let first = bytes.checked_add(HUGE_PAGE).map_or(null_mut(), map);
    if first.is_null() {
        return first;
    }
    let before = first.addr().next_multiple_of(HUGE_PAGE) - first.addr();
    let block = first.wrapping_add(before);
    // What lies before and behind the block is never used, and costs nothing but addresses.
    // SAFETY: how the block is made of pages does not change its content; where there are no huge ones, others do.
    let _ = unsafe { call(number::MADVISE, [block.addr(), bytes, AS_HUGE_PAGES, 0, 0, 0]) };
    block
}

/// Since some moment in the past.
pub(super) fn nanoseconds() -> u64 {
    const MONOTONIC: usize = 1;
    let mut time = [0_u64; 2];
    // SAFETY: the time is ours to be written to.
    let _ = unsafe { call(number::CLOCK_GETTIME, [MONOTONIC, time.as_mut_ptr().addr(), 0, 0, 0, 0]) };
    time[0] * 1_000_000_000 + time[1]
}

pub(super) fn exit(code: u8) -> ! {
    loop {
        // SAFETY: nothing is left to do.
        let _ = unsafe { call(number::EXIT_GROUP, [usize::from(code), 0, 0, 0, 0, 0]) };
    }
}

/// Fills in what is known of the processors under the key of each pair; whether it could.
#[cfg(target_arch = "riscv64")]
pub(super) fn probe_hardware(pairs: &mut [[u64; 2]]) -> bool {
    // SAFETY: the pairs are ours to be written to.
    unsafe { call(number::RISCV_HWPROBE, [pairs.as_mut_ptr().addr(), pairs.len(), 0, 0, 0, 0]) }.is_ok()
}

/// # Safety
/// Arguments that are addresses lead to what the system call expects.
unsafe fn call(number: usize, arguments: [usize; 6]) -> Result<usize> {
    let [a, b, c, d, e, f] = arguments;
    let result: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as the caller says.
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as the caller says.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a => result, in("x1") b, in("x2") c, in("x3") d, in("x4") e,
            in("x5") f, options(nostack));
    }
    #[cfg(target_arch = "riscv64")]
    // SAFETY: as the caller says.
    unsafe {
        asm!("ecall", in("a7") number, inlateout("a0") a => result, in("a1") b, in("a2") c, in("a3") d, in("a4") e,
            in("a5") f, options(nostack));
    }
    // The last page of addresses stands for errors.
    match result.cast_signed() {
        -4095..0 => Err(Error(-(result.cast_signed() as i32))),
        _ => Ok(result),
    }
}
