//! Random kernels are good test cases (they verify, read back, run to the end, and use every instruction), and every backend does
//! with them what the interpreter does, to the bit. `NUMRSC_RANDOM_COUNT` is how many kernels each backend compiles.
#![allow(unsafe_code, reason = "compiled code is called")]
use memmap2::{Mmap, MmapMut};
use numrsc_codegen::{Backend, CodegenOptions, Target, compile, cranelift::Cranelift, llvm::Llvm};
use numrsc_ir::kernel::{self, Axis, Binary, Block, Compare, Convert, Inst, Stmt, Unary, words::Words};
use numrsc_tests::kernels::{BUFFER_BYTES, Case, Config, Outcome, random};
use std::collections::BTreeSet;

const SEEDS: u64 = 300;

fn cases(config: Config) -> impl Iterator<Item = (u64, Case)> {
    (0..SEEDS).map(move |seed| (seed, random(seed, &config)))
}

#[test]
fn random_kernels_verify_and_read_back() {
    for (seed, case) in cases(Config { muladd: true, halves: true, dot4: true, ..Config::default() }) {
        kernel::verify(&case.module).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", case.module));
        let text = case.module.to_string();
        let again = kernel::parse(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
        assert!(again == case.module, "seed {seed} reads back otherwise:\n{text}\n{again}");
    }
}

#[test]
fn random_kernels_run() {
    let (mut failed, mut changed) = (0, 0);
    for (seed, case) in cases(Config::default()) {
        let outcome = case.interpret().unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", case.module));
        failed += u64::from(outcome.code != 0);
        changed += u64::from(outcome.buffers != case.buffers);
        assert_eq!(outcome, case.interpret().unwrap(), "seed {seed}");
    }
    assert!(changed * 10 > SEEDS * 9, "only {changed} of {SEEDS} kernels write");
    assert!(failed * 10 < SEEDS, "{failed} of {SEEDS} kernels fail");
}

#[test]
fn random_kernels_use_everything() {
    let mut used = BTreeSet::new();
    for (_, case) in cases(Config { muladd: true, halves: true, dot4: true, ..Config::default() }) {
        case.module.functions.iter().for_each(|f| collect(&f.body, &mut used));
    }
    fn words<T: Words>() -> impl Iterator<Item = &'static str> {
        T::ALL.iter().map(|x| x.word())
    }
    let wanted = words::<Unary>().chain(words::<Binary>()).chain(words::<Compare>()).chain(words::<Convert>());
    let forms = "const muladd dot4 select splat extract insert shuffle reduce iota load offset buffer call";
    let stmts = "store masked-store masked-load serial unrolled while if fail";
    for word in wanted.chain(forms.split(' ')).chain(stmts.split(' ')) {
        assert!(used.contains(word), "{word} does not occur");
    }
}

#[test]
fn flags_leave_out_what_they_say() {
    let mut used = BTreeSet::new();
    for (_, case) in cases(Config { lanes: 1, calls: false, ..Config::default() }) {
        case.module.functions.iter().for_each(|f| {
            collect(&f.body, &mut used);
            assert!(f.types.iter().all(|ty| ty.lanes == 1));
        });
    }
    assert!(!used.contains("muladd") && !used.contains("call"));
}

#[test]
fn llvm_does_what_the_interpreter_does() {
    compare(&Llvm::new(Target::new(&Target::host().triple, "native").unwrap()).unwrap());
}

#[test]
fn llvm_for_the_plainest_cpu_does_what_the_interpreter_does() {
    compare(&Llvm::new(Target::new(&Target::host().triple, "").unwrap()).unwrap());
}

#[test]
fn cranelift_does_what_the_interpreter_does() {
    compare(&Cranelift::new().unwrap());
}

#[test]
fn cranelift_for_the_plainest_cpu_does_what_the_interpreter_does() {
    compare(&Cranelift::portable().unwrap());
}

fn compare(backend: &dyn Backend) {
    let count = std::env::var("NUMRSC_RANDOM_COUNT").map_or(SEEDS, |n| n.parse().unwrap());
    let machine = backend.target().machine();
    let [halves, dot4] = [machine.halves, machine.dot4].map(|has| backend.name() == "llvm" && has);
    for seed in 0..count {
        let case = random(seed, &Config { steps: 10 + seed as usize % 60, halves, dot4, ..Config::default() });
        let expected = case.interpret().unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", case.module));
        let got = run(backend, &case).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", case.module));
        if got == expected {
            continue;
        }
        let mut differences = format!("code {}, not {}", got.code, expected.code);
        for (b, (got, expected)) in got.buffers.iter().zip(&expected.buffers).enumerate() {
            if let Some(at) = got.iter().zip(expected).position(|(x, y)| x != y) {
                let (x, y) = (&got[at & !7..][..8], &expected[at & !7..][..8]);
                differences += &format!("\nbuffer {b} at byte {at}: {x:02x?}, not {y:02x?}");
            }
        }
        panic!("seed {seed} by {}: {differences}\n{}", backend.name(), case.module);
    }
}

/// Run a case in this process.
fn run(backend: &dyn Backend, case: &Case) -> Result<Outcome, String> {
    // Vectors whose lanes are masked off may be read and written back up to this far behind a buffer.
    const SLACK: usize = 256;
    let compiled = compile(backend, &case.module, &CodegenOptions { jobs: 1, ..CodegenOptions::default() })
        .map_err(|e| e.to_string())?;
    let mut map = MmapMut::map_anon(compiled.image.bytes.len()).map_err(|e| e.to_string())?;
    map.copy_from_slice(&compiled.image.bytes);
    let map: Mmap = map.make_exec().map_err(|e| e.to_string())?;
    let mut buffers: Vec<Vec<u64>> = case
        .buffers
        .iter()
        .map(|bytes| {
            let words = bytes.chunks_exact(8).map(|b| u64::from_ne_bytes(b.try_into().expect("8 bytes")));
            words.chain([0; SLACK / 8]).collect()
        })
        .collect();
    let mut args: Vec<u64> = buffers.iter_mut().map(|b| b.as_mut_ptr() as u64).collect();
    args.extend(case.numbers.iter().map(|n| *n as u64));
    let at = map[compiled.image.offsets[case.kernel.0 as usize] as usize..].as_ptr();
    // SAFETY: this is where the kernel starts, its arguments are of its types, and cases stay within their buffers.
    let code = unsafe {
        let kernel: extern "C" fn(*const u64, i64, i64, i64) -> i32 = std::mem::transmute(at);
        kernel(args.as_ptr(), case.range[0], case.range[1], case.range[2])
    };
    let bytes = |words: &Vec<u64>| words[..BUFFER_BYTES as usize / 8].iter().flat_map(|w| w.to_ne_bytes()).collect();
    Ok(Outcome { code, buffers: buffers.iter().map(bytes).collect() })
}

fn collect(block: &Block, used: &mut BTreeSet<&'static str>) {
    for stmt in &block.stmts {
        match stmt {
            Stmt::Let { inst, .. } => {
                used.insert(inst.word());
                if let Inst::Load { mask: Some(_), .. } = inst {
                    used.insert("masked-load");
                }
            }
            Stmt::Store { mask, .. } => {
                used.insert(if mask.is_some() { "masked-store" } else { "store" });
            }
            Stmt::For { axis, body, .. } => {
                used.insert(Axis::word(*axis));
                collect(body, used);
            }
            Stmt::While { cond, body, .. } => {
                used.insert("while");
                collect(cond, used);
                collect(body, used);
            }
            Stmt::If { then, or, .. } => {
                used.insert("if");
                collect(then, used);
                collect(or, used);
            }
            Stmt::Fail { .. } => {
                used.insert("fail");
            }
            Stmt::Launch { .. } | Stmt::Prefetch { .. } | Stmt::Barrier => {}
        }
    }
}
