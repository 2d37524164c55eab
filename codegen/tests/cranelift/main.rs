//! What Cranelift compiles computes what the kernel IR says, with the features of this CPU and without any.
#![expect(unsafe_code, reason = "runs code that was compiled at run time")]
mod lanes;
mod programs;
mod vectors;

use memmap2::{Mmap, MmapMut};
use numrsc_codegen::cranelift::Cranelift;
use numrsc_codegen::{Backend, LinkKind};
use numrsc_ir::kernel::{FuncId, Function, Module};

/// The functions of a module in executable memory.
struct Loaded {
    memory: Mmap,
    starts: Vec<usize>,
}

fn load(backend: &Cranelift, functions: Vec<Function>) -> Loaded {
    let module = Module { functions };
    let (mut bytes, mut starts, mut links) = (vec![], vec![], vec![]);
    for id in 0..module.functions.len() {
        let code = backend.compile(&module, FuncId(id as u32)).unwrap_or_else(|e| panic!("{e}"));
        bytes.resize(bytes.len().next_multiple_of(code.align as usize), 0);
        links.extend(code.links.into_iter().map(|l| (bytes.len(), l)));
        starts.push(bytes.len());
        bytes.extend(code.bytes);
    }
    let mut memory = MmapMut::map_anon(bytes.len()).expect("memory");
    for (start, link) in links {
        let place = start + link.offset as usize;
        let distance = starts[link.to.0 as usize] as i64 + link.addend - place as i64;
        match link.kind {
            LinkKind::Pc32 => bytes[place..place + 4].copy_from_slice(&(distance as i32).to_le_bytes()),
            LinkKind::Branch26 => {
                let old = u32::from_le_bytes(bytes[place..place + 4].try_into().expect("four bytes"));
                let new = old | (distance / 4) as u32 & 0x03ff_ffff;
                bytes[place..place + 4].copy_from_slice(&new.to_le_bytes());
            }
            other => panic!("{other:?} is not supported by the test"),
        }
    }
    memory.copy_from_slice(&bytes);
    Loaded { memory: memory.make_exec().expect("executable"), starts }
}

type KernelFn = unsafe extern "C" fn(*const u64, i64, i64, i64) -> i32;
type EntryFn = unsafe extern "C" fn(*mut u64) -> i32;

impl Loaded {
    fn address(&self, id: u32) -> *const u8 {
        self.memory[self.starts[id as usize]..].as_ptr()
    }

    fn kernel(&self, id: u32, args: &[u64], begin: i64, end: i64) -> i32 {
        // SAFETY: the function was compiled as a kernel, and every test gives the memory that its kernel uses.
        unsafe { std::mem::transmute::<*const u8, KernelFn>(self.address(id))(args.as_ptr(), begin, end, 0) }
    }

    fn entry(&self, id: u32, ctx: &mut [u64]) -> i32 {
        // SAFETY: the function was compiled as an entry, and `ctx` holds what it reads.
        unsafe { std::mem::transmute::<*const u8, EntryFn>(self.address(id))(ctx.as_mut_ptr()) }
    }
}

fn backends() -> [Cranelift; 2] {
    [Cranelift::new().expect("this machine"), Cranelift::portable().expect("this architecture")]
}
