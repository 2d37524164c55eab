//! Runs compiled code in this process, and checks instructions lane by lane against what Rust computes.
#![allow(dead_code, reason = "every test file uses its part")]

use memmap2::{Mmap, MmapMut};
use numrsc_codegen::llvm::Llvm;
use numrsc_codegen::{Backend, CodegenOptions, Compiled, Target, compile};
use numrsc_ir::kernel::build::Builder;
use numrsc_ir::kernel::{Elem, Function, Kind, Module, Ty, V};

type KernelFn = extern "C" fn(*const u64, i64, i64, i64) -> i32;
type EntryFn = extern "C" fn(*mut u64) -> i32;

/// A compiled module in executable memory.
pub(crate) struct Loaded {
    map: Mmap,
    pub(crate) compiled: Compiled,
}

impl Loaded {
    pub(crate) fn new(backend: &dyn Backend, functions: Vec<Function>) -> Loaded {
        let compiled = compile(backend, &Module { functions }, &CodegenOptions::default()).expect("it compiles");
        let mut map = MmapMut::map_anon(compiled.image.bytes.len()).expect("there is memory");
        map.copy_from_slice(&compiled.image.bytes);
        Loaded { map: map.make_exec().expect("it may be run"), compiled }
    }

    pub(crate) fn address(&self, function: usize) -> *const u8 {
        self.map[self.compiled.image.offsets[function] as usize..].as_ptr()
    }

    /// Run a kernel over a range.
    #[allow(unsafe_code)]
    pub(crate) fn kernel(&self, function: usize, args: &[u64], begin: i64, end: i64, worker: i64) -> i32 {
        // SAFETY: the function is a kernel of the compiled module, and the tests give it arguments of its types.
        let f: KernelFn = unsafe { std::mem::transmute(self.address(function)) };
        f(args.as_ptr(), begin, end, worker)
    }

    /// Run the entry on a run context.
    #[allow(unsafe_code)]
    pub(crate) fn entry(&self, context: &mut [u64]) -> i32 {
        let at = self.compiled.entry.expect("there is an entry") as usize;
        // SAFETY: that is where the entry starts, and the tests give it a context.
        let f: EntryFn = unsafe { std::mem::transmute(self.map[at..].as_ptr()) };
        f(context.as_mut_ptr())
    }
}

/// Backends for what this machine can run, from the plainest to all of it.
pub(crate) fn backends() -> Vec<Llvm> {
    let host = Target::host().triple;
    let named = ["", "x86-64-v2", "x86-64-v3", "x86-64-v4", "native"];
    let targets = named.iter().filter_map(|cpu| Target::new(&host, cpu).ok());
    targets.filter(runs_here).map(|t| Llvm::new(t).expect("a known target")).collect()
}

pub(crate) fn native() -> Llvm {
    Llvm::new(Target::new(&Target::host().triple, "native").expect("this machine")).expect("a known target")
}

#[cfg(target_arch = "x86_64")]
fn runs_here(target: &Target) -> bool {
    target.required_features().iter().all(|f| match &f[..] {
        "sse3" => is_x86_feature_detected!("sse3"),
        "avx" => is_x86_feature_detected!("avx"),
        "avx2" => is_x86_feature_detected!("avx2"),
        "fma" => is_x86_feature_detected!("fma"),
        "avx512f" => is_x86_feature_detected!("avx512f"),
        "avx512vl" => is_x86_feature_detected!("avx512vl"),
        // They come together with those above on every machine there is.
        _ => true,
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn runs_here(_: &Target) -> bool {
    true
}

/// Numbers where something may go wrong, as bit patterns of an element.
pub(crate) fn interesting(elem: Elem) -> Vec<u64> {
    let floats: &[f64] = &[
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        -1.5,
        2.5,
        -2.5,
        0.3,
        -0.7,
        0.999_999,
        3.0e-5,
        7.0,
        -11.25,
        100.5,
        127.4,
        128.0,
        255.0,
        256.0,
        -128.9,
        32767.0,
        -40000.0,
        8_388_607.5,
        -8_388_608.0,
        8_388_609.0,
        2_147_483_520.0,
        2_147_483_648.0,
        -2_147_483_648.0,
        4_294_967_040.0,
        5.0e9,
        4_503_599_627_370_495.5,
        -4_503_599_627_370_497.0,
        9.2e18,
        9_223_372_036_854_775_808.0,
        1.9e19,
        1.0e30,
        -1.0e30,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    match elem {
        Elem::F32 => {
            let mut all: Vec<u64> = floats.iter().map(|x| u64::from((*x as f32).to_bits())).collect();
            all.extend([1, 0x8000_0001, 0x007f_ffff]);
            all
        }
        Elem::F64 => floats.iter().map(|x| x.to_bits()).chain([1, 0x000f_ffff_ffff_ffff]).collect(),
        _ => {
            let bits = elem.bits();
            let (mask, least) = (mask(elem), 1u64 << (bits - 1));
            let all = [0, 1, 2, 3, 5, 7, 11, 100, mask, mask - 1, least, least - 1, least + 1, 0x5a5a_1234_dead_beef];
            all.iter().map(|x| x & mask).collect()
        }
    }
}

pub(crate) fn mask(elem: Elem) -> u64 {
    if elem.bits() == 64 { u64::MAX } else { (1 << elem.bits()) - 1 }
}

/// The number with its sign.
pub(crate) fn signed(elem: Elem, x: u64) -> i64 {
    let shift = 64 - elem.bits();
    ((x << shift) as i64) >> shift
}

pub(crate) fn f32_of(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

pub(crate) fn f32_bits(x: f32) -> u64 {
    u64::from(x.to_bits())
}

/// A check of one instruction: its operands' element, its result's and what it should give.
pub(crate) struct Check<'a> {
    pub what: String,
    pub operands: &'a [Elem],
    pub result: Elem,
    pub build: &'a dyn Fn(&mut Builder, &[V]) -> V,
    pub expect: &'a dyn Fn(&[u64]) -> u64,
}

impl Check<'_> {
    /// On every combination of interesting numbers, with several lanes, on every machine that can be run here.
    pub(crate) fn run(&self) {
        let mut rows: Vec<Vec<u64>> = vec![vec![]];
        for elem in self.operands {
            let values = interesting(*elem);
            let longer = |row: &Vec<u64>, x: &u64| row.iter().copied().chain([*x]).collect();
            rows = rows.iter().flat_map(|row| values.iter().map(move |x| longer(row, x))).collect();
        }
        self.run_on(rows);
    }

    pub(crate) fn run_on(&self, mut rows: Vec<Vec<u64>>) {
        while !rows.len().is_multiple_of(16) {
            rows.push(rows[0].clone());
        }
        let inputs: Vec<Vec<u8>> = (0..self.operands.len())
            .map(|i| {
                rows.iter().flat_map(|r| r[i].to_le_bytes()[..self.operands[i].size() as usize].to_vec()).collect()
            })
            .collect();
        let lanes = [1u32, 4, 8, 16];
        for backend in backends() {
            let kernels = lanes.iter().map(|lanes| self.kernel(*lanes)).collect();
            let loaded = Loaded::new(&backend, kernels);
            for (f, lanes) in lanes.iter().enumerate() {
                let size = self.result.size() as usize;
                let mut output = vec![0u8; rows.len() * size];
                let mut args: Vec<u64> = inputs.iter().map(|i| i.as_ptr() as u64).collect();
                args.push(output.as_mut_ptr() as u64);
                assert_eq!(loaded.kernel(f, &args, 0, rows.len() as i64 / i64::from(*lanes), 0), 0);
                for (row, bytes) in rows.iter().zip(output.chunks(size)) {
                    let mut word = [0; 8];
                    word[..size].copy_from_slice(bytes);
                    let (got, want) = (u64::from_le_bytes(word), (self.expect)(row));
                    let what = &self.what;
                    let (cpu, x) = (&backend.target().cpu, row.iter().map(|x| format!("{x:#x} ")).collect::<String>());
                    assert!(same(self.result, got, want), "{what} x{lanes} on {cpu} of {x}: {got:#x}, not {want:#x}");
                }
            }
        }
    }

    fn kernel(&self, lanes: u32) -> Function {
        let mut b = Builder::new(Kind::Kernel, &vec![Ty::PTR; self.operands.len() + 1]);
        let params = b.params().to_vec();
        b.for_(params[0], params[1], 1, |b, i| {
            let lanes_value = b.i64(i64::from(lanes));
            let at = b.mul(i, lanes_value);
            let loads = self.operands.iter().zip(&params[3..]);
            let operands: Vec<V> = loads.map(|(e, p)| b.load(Ty::vector(*e, lanes), *p, at)).collect();
            let result = (self.build)(b, &operands);
            b.store(params[3 + self.operands.len()], at, result);
        });
        b.finish(format!("check{lanes}"), vec![])
    }
}

/// All NaN are the same.
fn same(elem: Elem, a: u64, b: u64) -> bool {
    let nan = |x: u64| match elem {
        Elem::F32 => f32_of(x).is_nan(),
        Elem::F64 => f64::from_bits(x).is_nan(),
        _ => false,
    };
    a == b || nan(a) && nan(b)
}
