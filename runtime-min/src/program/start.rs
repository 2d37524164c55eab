//! Where the program starts, what it takes over from the standard library and libc, and the parts of the model, which the linker adds.
#![allow(unsafe_code)]
use super::{Failure, Result, cpu, heap::Heap, linux, main};
use crate::{
    Model,
    artifact::Manifest,
    context::RunContext,
    error::{Error, Text},
};
use alloc::{format, vec::Vec};
use core::{arch::global_asm, ffi::CStr, panic::PanicInfo, slice};

#[global_allocator]
static HEAP: Heap = Heap::new();

unsafe extern "C" {
    fn numrsc_model_entry(context: *mut RunContext) -> i32;
    static numrsc_model_manifest: u8;
    static numrsc_model_manifest_size: u64;
    static numrsc_model_weights: u8;
    static numrsc_model_weights_size: u64;
}

// Linux leaves the number of arguments and what follows it at the top of the stack.
#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "xor ebp, ebp", "mov rdi, rsp", "and rsp, -16", "call {}", "ud2", sym start);
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x29, 0", "mov x30, 0", "mov x0, sp", "b {}", sym start);
#[cfg(target_arch = "riscv64")]
global_asm!(".globl _start", "_start:", "mv a0, sp", "tail {}", sym start);

/// What Linux tells programs of the machine.
#[derive(Default)]
pub(super) struct Auxiliary {
    pub(super) hardware: u64,
    pub(super) hardware2: u64,
}

/// # Safety
/// The stack of a new program: the number of arguments, their addresses, 0, the addresses of variables, 0, pairs of auxiliary numbers.
unsafe extern "C" fn start(stack: *const usize) -> ! {
    // SAFETY: as the caller says.
    let (arguments, auxiliary) = unsafe { (arguments(stack), auxiliary(stack)) };
    let outcome = arguments.and_then(|arguments| main(&model(&auxiliary)?, &arguments));
    let (code, why) = match outcome {
        Ok(()) => linux::exit(0),
        Err(Failure::Run(why)) => (1, why),
        Err(Failure::Usage(why)) => (2, why),
    };
    linux::complain(&format!("error: {why}\n"));
    linux::exit(code)
}

fn model(auxiliary: &Auxiliary) -> Result<Model> {
    // SAFETY: the linker put the parts of one compiled model there, for this kind of processor; which features it needs is checked.
    unsafe {
        let part = |start: *const u8, size: u64| slice::from_raw_parts(start, size as usize);
        let manifest = part(&raw const numrsc_model_manifest, numrsc_model_manifest_size);
        let processor = cpu::Processor::new(auxiliary);
        if let Some(name) = Manifest::parse(manifest)?.cpu_features().find(|name| !processor.has(name)) {
            return Err(Error::CpuFeature { name: Text::new(name) }.into());
        }
        let weights = part(&raw const numrsc_model_weights, numrsc_model_weights_size);
        Ok(Model::from_parts(manifest, numrsc_model_entry, weights)?)
    }
}

/// # Safety
/// As for [`start`].
unsafe fn arguments(stack: *const usize) -> Result<Vec<&'static str>> {
    // SAFETY: as the caller says; the stack stays where it is.
    unsafe {
        let arguments = slice::from_raw_parts(stack.add(1).cast(), *stack);
        let text = |&argument: &_| CStr::from_ptr(argument).to_str();
        let texts: core::result::Result<_, _> = arguments.iter().map(text).collect();
        texts.map_err(|_| Failure::Usage("an argument is not UTF-8".into()))
    }
}

/// # Safety
/// As for [`start`].
unsafe fn auxiliary(stack: *const usize) -> Auxiliary {
    const HARDWARE: usize = 16;
    const HARDWARE2: usize = 26;
    let mut found = Auxiliary::default();
    // SAFETY: as the caller says.
    unsafe {
        let mut at = stack.add(1 + *stack + 1);
        while *at != 0 {
            at = at.add(1);
        }
        let mut pair = at.add(1).cast::<[usize; 2]>();
        while (*pair)[0] != 0 {
            match *pair {
                [HARDWARE, bits] => found.hardware = bits as u64,
                [HARDWARE2, bits] => found.hardware2 = bits as u64,
                _ => {}
            }
            pair = pair.add(1);
        }
    }
    found
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    linux::complain(&format!("error: a bug of numrsc: {info}\n"));
    linux::exit(1)
}

/// The library `alloc` was compiled for programs that unwind and asks for these, which this one never gets to.
mod unwinding {
    #[unsafe(no_mangle)]
    extern "C" fn rust_eh_personality() {}

    #[unsafe(no_mangle)]
    extern "C" fn _Unwind_Resume() {}
}

/// Atomic operations would ask by this which instructions there are; 0 means the plain ones.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
extern "C" fn getauxval(_: u64) -> u64 {
    0
}

/// What `rustc` expects of libc. Little is copied here, so being simple counts for more than speed.
///
/// Volatile, or the loops would be recognised and become calls of themselves.
mod memory {
    /// # Safety
    /// As in C; as for all functions here.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
        // By words where that is possible on every machine.
        let words =
            if (to.addr() | from.addr()).is_multiple_of(size_of::<u64>()) { bytes / size_of::<u64>() } else { 0 };
        for at in 0..words {
            // SAFETY: as the caller says, and both are aligned.
            unsafe { to.cast::<u64>().add(at).write_volatile(from.cast::<u64>().add(at).read()) };
        }
        for at in words * size_of::<u64>()..bytes {
            // SAFETY: as the caller says.
            unsafe { to.add(at).write_volatile(from.add(at).read()) };
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
        if to.addr().wrapping_sub(from.addr()) >= bytes {
            // SAFETY: as the caller says. What is written is behind what is read.
            return unsafe { memcpy(to, from, bytes) };
        }
        for at in (0..bytes).rev() {
            // SAFETY: as the caller says.
            unsafe { to.add(at).write_volatile(from.add(at).read()) };
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memset(to: *mut u8, byte: i32, bytes: usize) -> *mut u8 {
        for at in 0..bytes {
            // SAFETY: as the caller says.
            unsafe { to.add(at).write_volatile(byte as u8) };
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, bytes: usize) -> i32 {
        for at in 0..bytes {
            // SAFETY: as the caller says.
            let (a, b) = unsafe { (a.add(at).read_volatile(), b.add(at).read_volatile()) };
            if a != b {
                return i32::from(a) - i32::from(b);
            }
        }
        0
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn strlen(text: *const u8) -> usize {
        let mut length = 0;
        // SAFETY: as the caller says.
        while unsafe { text.add(length).read_volatile() } != 0 {
            length += 1;
        }
        length
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, bytes: usize) -> i32 {
        // SAFETY: as the caller says.
        unsafe { memcmp(a, b, bytes) }
    }
}
