//! Targets by name, and code for machines that this one is not: it is decoded instead of run.

mod support;

use numrsc_codegen::llvm::Llvm;
use numrsc_codegen::{Backend, CodegenOptions, Compiled, Error, Target, compile, link};
use numrsc_ir::kernel::build::Builder;
use numrsc_ir::kernel::{Binary, Convert, Elem, FuncId, Function, Kind, Module, Ty, Unary, V};
use std::collections::BTreeSet;
use std::process::Command;

fn llvm(triple: &str, cpu: &str) -> Llvm {
    Llvm::new(Target::new(triple, cpu).expect("a known CPU")).expect("a known target")
}

/// A helper, a kernel with constants that calls it, and an entry that launches that.
fn module() -> Module {
    let mut b = Builder::new(Kind::Helper, &[Ty::F64]);
    let p = b.params()[0];
    let scale = b.float(Ty::F64, 1.234_567_89);
    let result = b.mul(p, scale);
    let helper = b.finish("scale", vec![result]);

    let mut b = Builder::new(Kind::Kernel, &[Ty::PTR]);
    let p = b.params().to_vec();
    b.for_(p[0], p[1], 1, |b, i| {
        let four = Ty::vector(Elem::F64, 4);
        let v = b.load(four, p[3], i);
        let iota = b.iota(four);
        let sum = b.add(v, iota);
        let rounded = b.unary(Unary::Floor, sum);
        let one = b.reduce(Binary::Add, rounded);
        let scaled = b.call(FuncId(0), vec![one], Ty::F64);
        let whole = b.convert(Convert::FToS, scaled, Elem::I64);
        b.store(p[3], i, whole);
    });
    let kernel = b.finish("kernel", vec![]);

    let mut b = Builder::new(Kind::Entry, &[Ty::PTR]);
    let ctx = b.params()[0];
    let (extent, grain) = (b.i64(100), b.i64(10));
    b.launch(FuncId(1), vec![ctx], extent, grain);
    Module { functions: vec![helper, kernel, b.finish("entry", vec![])] }
}

fn compiled(backend: &Llvm) -> Compiled {
    compile(backend, &module(), &CodegenOptions::default()).expect("it compiles and links")
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect()
}

fn sign_extend(value: u32, bits: u32) -> i64 {
    i64::from((value << (32 - bits)) as i32 >> (32 - bits))
}

fn f64_at(bytes: &[u8], at: i64) -> Option<f64> {
    let at = usize::try_from(at).ok()?;
    Some(f64::from_bits(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?)))
}

#[test]
fn aarch64_refers_to_the_right_places() {
    for cpu in ["", "cortex-a72", "neoverse-n1"] {
        let compiled = compiled(&llvm("aarch64-unknown-linux-gnu", cpu));
        let (bytes, offsets) = (&compiled.image.bytes, &compiled.image.offsets);
        let (mut called, mut taken, mut constants) = (BTreeSet::new(), BTreeSet::new(), vec![]);
        let words = words(bytes);
        for (i, w) in words.iter().enumerate() {
            let at = i as i64 * 4;
            let immediate = sign_extend((w >> 5 & 0x7_ffff) << 2 | w >> 29 & 3, 21);
            match w {
                _ if w & 0xfc00_0000 == 0x9400_0000 => _ = called.insert(at + sign_extend(w & 0x03ff_ffff, 26) * 4),
                _ if w & 0x9f00_0000 == 0x1000_0000 => constants.extend(f64_at(bytes, at + immediate)),
                // `adrp` is followed by the `add` to the same register.
                _ if w & 0x9f00_0000 == 0x9000_0000 => {
                    let same = |x: u32| x & 0xffc0_0000 == 0x9100_0000 && x >> 5 & 31 == w & 31;
                    let add = words[i..].iter().find(|x| same(**x)).expect("an address has lower bits");
                    taken.insert((at & !0xfff) + immediate * 4096 + i64::from(add >> 10 & 0xfff));
                }
                _ => {}
            }
        }
        assert!(called.contains(&(offsets[0] as i64)), "{cpu}: the kernel calls the helper: {called:?}");
        assert_eq!(taken, BTreeSet::from([offsets[1] as i64]), "{cpu}: the entry launches the kernel");
        assert!(constants.contains(&1.234_567_89) || constants.contains(&2.0), "{cpu}: {constants:?}");
    }
}

#[test]
fn riscv_refers_to_the_right_places() {
    for (triple, cpu) in [("riscv64gc-unknown-linux-gnu", ""), ("riscv64-unknown-linux-gnu", "sifive-u74")] {
        let compiled = compiled(&llvm(triple, cpu));
        let (bytes, offsets) = (&compiled.image.bytes, &compiled.image.offsets);
        let (mut reached, mut constants) = (BTreeSet::new(), vec![]);
        // Instructions have 2 or 4 bytes, so look at every even place; `auipc` is rare enough among what is none.
        let word = |at: usize| bytes.get(at..at + 4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
        for at in (0..bytes.len()).step_by(2) {
            let Some(upper) = word(at).filter(|w| w & 0x7f == 0x17) else { continue };
            let users = (at + 4..at + 24).step_by(2).filter_map(word);
            let uses = |w: &u32| w >> 15 & 31 == upper >> 7 & 31 && [0x13, 0x67, 0x07].contains(&(w & 0x7f));
            let Some(lower) = users.into_iter().find(uses) else { continue };
            let to = at as i64 + i64::from((upper & 0xffff_f000) as i32) + sign_extend(lower >> 20, 12);
            reached.insert(to);
            constants.extend(f64_at(bytes, to));
        }
        assert!(reached.contains(&(offsets[0] as i64)), "{cpu}: the kernel calls the helper: {reached:?}");
        assert!(reached.contains(&(offsets[1] as i64)), "{cpu}: the entry launches the kernel: {reached:?}");
        assert!(constants.contains(&1.234_567_89), "{cpu}: {constants:?}");
    }
}

#[test]
fn other_systems_get_the_same_kind_of_image() {
    for triple in ["aarch64-apple-darwin", "x86_64-pc-windows-msvc", "x86_64-apple-darwin", "aarch64-linux-android"] {
        assert!(!compiled(&llvm(triple, "")).image.bytes.is_empty(), "{triple}");
    }
}

#[test]
fn small_devices_compile_what_they_can() {
    let mut b = Builder::new(Kind::Kernel, &[Ty::PTR]);
    let p = b.params().to_vec();
    b.for_(p[0], p[1], 1, |b, i| {
        let x = b.load(Ty::F32, p[3], i);
        let y = b.muladd(x, x, x);
        let floor = b.unary(Unary::Floor, y);
        b.store(p[3], i, floor);
        let pointer = b.load(Ty::PTR, p[3], i);
        b.store(pointer, i, pointer);
    });
    let module = Module { functions: vec![b.finish("small", vec![])] };
    for (triple, cpu) in [
        ("thumbv7em-none-eabihf", ""),
        ("thumbv8m.main-none-eabihf", "cortex-m33"),
        ("thumbv7em-none-eabihf", "cortex-m7"),
        ("riscv32imac-unknown-none-elf", "sifive-e34"),
    ] {
        let compiled = compile(&llvm(triple, cpu), &module, &CodegenOptions::default());
        assert!(compiled.is_ok(), "{triple} {cpu}: {:?}", compiled.err());
    }
    // Pointers take 8 bytes in memory where they have 4.
    let text = llvm("thumbv7em-none-eabihf", "").llvm_ir(&module).expect("text");
    assert!(text.contains("ptrtoint") && text.contains("getelementptr i64"), "{text}");
    // No floating point unit, hence calls of a library that is not there.
    let error = compile(&llvm("thumbv7m-none-eabi", ""), &module, &CodegenOptions::default()).unwrap_err();
    assert!(matches!(&error, Error::Unsupported { message, .. } if message.contains("`__aeabi_fmul`")), "{error}");
}

#[test]
fn assembly_is_readable() {
    let text = llvm("x86_64-unknown-linux-gnu", "x86-64-v3").assembly(&module()).expect("assembly");
    for part in ["f1.kernel:", "f2.entry:", "ymm", "vroundpd", "callq\tf0.scale"] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    let scalar = Module { functions: vec![module().functions.remove(0)] };
    let text = llvm("nvptx64-nvidia-cuda", "sm_80").assembly(&scalar).expect("assembly");
    assert!(text.contains(".target sm_80") && text.contains("mul.rn.f64"), "{text}");
    let text = llvm("wasm32-unknown-unknown", "").assembly(&scalar).expect("assembly");
    assert!(text.contains("f64.mul"), "{text}");
}

#[test]
fn objects_have_equal_functions_once() {
    let (once, mut twice) = (module(), module());
    twice.functions.push(Function { name: "copy".to_owned(), ..once.functions[0].clone() });
    let web = llvm(Target::WEB, "");
    let object = web.web_object(&once).expect("an object");
    assert!(object.starts_with(b"\0asm"));
    assert_eq!(web.web_object(&twice).expect("an object"), object);
    let arm = llvm("thumbv7em-none-eabihf", "");
    assert_eq!(arm.object(&twice, "run").expect("an object"), arm.object(&once, "run").expect("an object"));
}

#[test]
fn unknown_names_are_errors() {
    let error = Target::new("x86_64-unknown-linux-gnu", "cortex-a72").unwrap_err().to_string();
    assert!(error.contains("unknown CPU") && error.contains("x86-64-v3") && error.contains("znver4"), "{error}");
    let error = Target::new("abacus-unknown-none", "").unwrap_err().to_string();
    assert!(error.contains("unknown architecture"), "{error}");
    let foreign = if cfg!(target_arch = "x86_64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };
    assert!(Target::new(foreign, "native").unwrap_err().to_string().contains("`native`"));
    // A target that was put together by hand does not get around the check.
    let mut target = Target::new("x86_64-unknown-linux-gnu", "").expect("the plainest");
    target.cpu = "pentium-9000".to_owned();
    assert!(matches!(Llvm::new(target), Err(Error::Target { .. })));
}

/// What the compiler of the pinned toolchain says, which has the same LLVM.
fn rustc(args: &[&str]) -> String {
    let output = Command::new("rustc").args(args).output().expect("there is a compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// All CPUs of our table, from the error that lists them.
fn listed(triple: &str) -> Vec<String> {
    let error = Target::new(triple, "?").unwrap_err().to_string();
    let (_, names) = error.split_once("known are native, ").expect("a list");
    names.split(", ").map(str::to_owned).collect()
}

#[test]
fn llvm_knows_every_cpu_of_ours() {
    for triple in [
        "x86_64-unknown-linux-gnu",
        "aarch64-unknown-linux-gnu",
        "riscv64gc-unknown-linux-gnu",
        "riscv32imac-unknown-none-elf",
        "thumbv7em-none-eabihf",
        "wasm32-unknown-unknown",
        "nvptx64-nvidia-cuda",
    ] {
        let known = rustc(&["--print", "target-cpus", "--target", triple]);
        let known: BTreeSet<&str> = known.split_whitespace().collect();
        for cpu in listed(triple) {
            // Aliases are not printed.
            let alias = ["apple-m1", "apple-m2", "apple-m3"].contains(&&cpu[..]);
            assert!(alias || known.contains(&cpu[..]), "{triple} has no {cpu}");
        }
    }
}

#[test]
fn features_of_cpus_are_those_of_llvm() {
    // All that any CPU of the table has: what of it a CPU does not list, it must not have.
    for (triple, all) in
        [("x86_64-unknown-linux-gnu", "znver5 sapphirerapids"), ("aarch64-unknown-linux-gnu", "neoverse-v2")]
    {
        let features = |cpu: &str| Target::new(triple, cpu).expect("it is listed").required_features();
        let relevant: BTreeSet<String> = all.split(' ').flat_map(features).collect();
        for cpu in listed(triple) {
            let printed = rustc(&["--print", "cfg", "--target", triple, "-C", &format!("target-cpu={cpu}")]);
            let has = |f: &&String| printed.contains(&format!("target_feature=\"{f}\""));
            let want: BTreeSet<&String> = relevant.iter().filter(has).collect();
            let ours = features(&cpu);
            assert_eq!(ours.iter().collect::<BTreeSet<_>>(), want, "{cpu}");
        }
    }
}

#[test]
fn machines_are_described() {
    let machine = |triple: &str, cpu: &str| {
        let m = Target::new(triple, cpu).expect("a known CPU").machine();
        (m.vector_bytes, m.registers, m.fused)
    };
    let x86 = "x86_64-unknown-linux-gnu";
    assert_eq!(machine(x86, ""), (16, 16, false));
    assert_eq!(machine(x86, "x86-64-v3"), (32, 16, true));
    assert_eq!(machine(x86, "x86-64-v4"), (64, 32, true));
    assert_eq!(machine(x86, "znver4"), (64, 32, true));
    assert_eq!(machine("aarch64-unknown-linux-gnu", ""), (16, 32, true));
    assert_eq!(machine("riscv64gc-unknown-linux-gnu", ""), (0, 32, true));
    assert_eq!(machine("riscv32imac-unknown-none-elf", ""), (0, 32, false));
    assert_eq!(machine("thumbv7em-none-eabihf", "").0, 0);
    assert_eq!(machine(Target::WEB, ""), (16, 16, false));
    assert_eq!(machine(Target::WEB, "mvp").0, 0);
    let changed = Target { features: "-fma,+avx512f".to_owned(), ..Target::new(x86, "haswell").expect("known") };
    assert!(!changed.machine().fused);
    assert!(changed.required_features().contains(&"avx512f".to_owned()));
    assert!(!changed.required_features().contains(&"fma".to_owned()));
}

#[test]
fn this_machine_has_what_native_requires() {
    let native = support::native();
    assert!(native.target().machine().vector_bytes >= Target::host().machine().vector_bytes);
    assert!(Target::host().required_features().iter().all(|f| f == "neon"));
    let cfg = rustc(&["--print", "cfg", "-C", "target-cpu=native"]);
    for feature in native.target().required_features() {
        assert!(cfg.contains(&format!("\"{feature}\"")), "{feature} is not detected");
    }
}

#[test]
fn plain_machines_round_without_calls() {
    // No instruction of the plainest machines does it.
    for triple in ["x86_64-unknown-linux-gnu", "riscv64gc-unknown-linux-gnu"] {
        for elem in [Elem::F32, Elem::F64] {
            for op in [Unary::Floor, Unary::Ceil, Unary::Trunc, Unary::Round, Unary::Sqrt, Unary::Abs] {
                let mut b = Builder::new(Kind::Helper, &[Ty::vector(elem, 4)]);
                let x = b.params()[0];
                let y = b.unary(op, x);
                let module = Module { functions: vec![b.finish("f", vec![y])] };
                llvm(triple, "").compile(&module, FuncId(0)).expect("no library is needed");
            }
        }
    }
}

#[test]
fn links_are_checked() {
    let backend = llvm("x86_64-unknown-linux-gnu", "");
    let code = backend.compile(&module(), FuncId(1)).expect("it compiles");
    assert_eq!(code.links.len(), 1);
    let mut far = code.clone();
    far.links[0].addend = 1 << 40;
    assert!(link(&[far]).unwrap_err().to_string().contains("too far"));
    let mut outside = code.clone();
    outside.links[0].offset = code.bytes.len() as u64 - 2;
    assert!(link(&[outside]).unwrap_err().to_string().contains("outside"));
    let mut nobody = code;
    nobody.links[0].to = FuncId(5);
    assert!(link(&[nobody]).unwrap_err().to_string().contains("no function 5"));
}

/// A kernel that stores a number.
fn storing(name: &str, number: i64) -> Function {
    let mut b = Builder::new(Kind::Kernel, &[Ty::PTR]);
    let p: Vec<V> = b.params().to_vec();
    let value = b.i64(number);
    b.store(p[3], p[0], value);
    b.finish(name, vec![])
}

fn calling(name: &str, helper: u32) -> Function {
    let mut b = Builder::new(Kind::Kernel, &[Ty::PTR]);
    let p: Vec<V> = b.params().to_vec();
    let x = b.load(Ty::F64, p[3], p[0]);
    let y = b.call(FuncId(helper), vec![x], Ty::F64);
    b.store(p[3], p[0], y);
    b.finish(name, vec![])
}

#[test]
fn equal_functions_are_compiled_once() {
    let helper = |name: &str| Function { name: name.to_owned(), ..module().functions.remove(0) };
    let functions = vec![
        storing("a", 1),
        storing("b", 2),
        storing("c", 1),
        helper("d"),
        helper("e"),
        calling("f", 3),
        // The same, as it calls a function that is the same.
        calling("g", 4),
    ];
    let compiled =
        compile(&llvm("x86_64-unknown-linux-gnu", ""), &Module { functions }, &CodegenOptions::default()).unwrap();
    let same: Vec<Option<u32>> = compiled.stats.iter().map(|s| s.same_as.map(|f| f.0)).collect();
    assert_eq!(same, [None, None, Some(0), None, Some(3), None, Some(5)]);
    let offsets = &compiled.image.offsets;
    assert_eq!((offsets[2], offsets[4], offsets[6]), (offsets[0], offsets[3], offsets[5]));
    assert_eq!(offsets.iter().collect::<BTreeSet<_>>().len(), 4);
    assert_eq!(compiled.entry, None);
}

#[test]
fn threads_do_not_change_the_image() {
    let mut all = module();
    all.functions.extend((0..20).map(|i| storing("s", i)));
    let backend = llvm("x86_64-unknown-linux-gnu", "x86-64-v3");
    let image = |jobs| {
        compile(&backend, &all, &CodegenOptions { jobs, ..CodegenOptions::default() }).expect("it compiles").image
    };
    let one = image(1);
    assert_eq!(image(2), one);
    assert_eq!(image(7), one);
}

#[test]
fn progress_is_reported() {
    let seen = std::sync::Mutex::new(vec![]);
    let progress = |done, total| seen.lock().unwrap().push((done, total));
    let options = CodegenOptions { jobs: 1, progress: Some(&progress), ..CodegenOptions::default() };
    compile(&llvm("x86_64-unknown-linux-gnu", ""), &module(), &options).expect("it compiles");
    assert_eq!(seen.into_inner().unwrap(), [(1, 3), (2, 3), (3, 3)]);
}

#[test]
fn the_cache_gives_the_same_code() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("made/if/missing");
    let options = CodegenOptions { cache: Some(&path), ..CodegenOptions::default() };
    let backend = llvm("x86_64-unknown-linux-gnu", "x86-64-v3");
    let cached = |c: &Compiled| c.stats.iter().map(|s| s.cached).collect::<Vec<_>>();
    let first = compile(&backend, &module(), &options).expect("it compiles");
    assert_eq!(cached(&first), [false; 3]);
    let again = compile(&backend, &module(), &options).expect("it compiles");
    assert_eq!((cached(&again), &again.image), (vec![true; 3], &first.image));

    // Functions keep their code where they have other names and positions.
    let mut moved = module();
    moved.functions.insert(0, storing("new", 1));
    moved.functions[1].name = "renamed".to_owned();
    moved.functions[2] = calling("other", 1);
    let code = |module: &Module| compile(&backend, module, &options).expect("it compiles");
    moved.functions.pop();
    assert_eq!(cached(&code(&moved)), [false, true, false]);
    let plain = compile(&backend, &moved, &CodegenOptions::default()).expect("it compiles");
    let from_cache = code(&moved);
    assert_eq!((cached(&from_cache), &from_cache.image), (vec![true; 3], &plain.image));

    // Another machine is another key.
    assert_eq!(cached(&compile(&llvm("x86_64-unknown-linux-gnu", ""), &module(), &options).unwrap()), [false; 3]);

    // Files that are damaged or cut off are ignored and written again.
    let files: Vec<_> = path.read_dir().expect("it is there").map(|f| f.expect("a file").path()).collect();
    for (i, file) in files.iter().enumerate() {
        let mut bytes = std::fs::read(file).expect("a file");
        if i % 2 == 0 {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        } else {
            bytes.truncate(bytes.len() / 2);
        }
        std::fs::write(file, bytes).expect("it can be written");
    }
    let repaired = compile(&backend, &module(), &options).expect("it compiles");
    assert_eq!((cached(&repaired), &repaired.image), (vec![false; 3], &first.image));
    assert_eq!(cached(&compile(&backend, &module(), &options).unwrap()), [true; 3]);
}

#[test]
fn a_cache_that_cannot_be_written_is_an_error() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let options = CodegenOptions { cache: Some(file.path()), ..CodegenOptions::default() };
    let error = compile(&llvm("x86_64-unknown-linux-gnu", ""), &module(), &options).unwrap_err();
    assert!(matches!(error, Error::Cache { .. }), "{error}");
}
