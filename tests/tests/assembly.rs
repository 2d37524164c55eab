//! The inner loops of products keep everything in registers: a tile that does not fit would halve its speed, and nothing but the assembly shows it.
use numrsc::compile::{Codegen, Generator, Options, lower};
use numrsc_ir::{
    DType, Dim, Func, Op, Type,
    kernel::{Kind, Module},
    parse,
};
use numrsc_tests::{generate, native::options, rng::Rng};

/// Processors with 16 and with 32 vector registers. Convolutions are left out of the last: their tiles are still too large for it.
const TARGETS: [(&str, &str); 5] = [
    ("x86_64-unknown-linux-gnu", "haswell"),
    ("x86_64-unknown-linux-gnu", "znver3"),
    ("x86_64-unknown-linux-gnu", "znver4"),
    ("x86_64-unknown-linux-gnu", "skylake-avx512"),
    ("aarch64-unknown-linux-gnu", "neoverse-n1"),
];
/// A loop with fewer multiply-adds than this is not that of a tile.
const TILE: usize = 16;

/// A product with weights, by any number of rows or a given one.
fn product(rows: &Dim, depth: i64, columns: i64) -> Func {
    let mut f = Func::new();
    let x = f.param(Type::tensor(DType::F32, vec![rows.clone(), Dim::Const(depth)])).expect("a parameter");
    let shape = vec![depth as usize, columns as usize];
    let value = generate::tensor(&mut Rng::new(1), DType::F32, shape, false);
    let w = f.push(Op::Const { value }, &[]).expect("a constant");
    let op = Op::Contract { a_batch: vec![], b_batch: vec![], a_sum: vec![1], b_sum: vec![0] };
    let y = f.push(op, &[x, w]).expect("a product");
    f.set_results(vec![y]);
    f
}

fn convolution(channels: [i64; 2], size: i64, window: i64, stride: i64) -> Func {
    let [inputs, outputs] = channels;
    let mut f = Func::new();
    let shape = [1, inputs, size, size].map(Dim::Const).to_vec();
    let x = f.param(Type::tensor(DType::F32, shape)).expect("a parameter");
    let shape = [outputs, inputs, window, window].map(|n| n as usize).to_vec();
    let value = generate::tensor(&mut Rng::new(2), DType::F32, shape, false);
    let w = f.push(Op::Const { value }, &[]).expect("a constant");
    let pad = vec![Dim::Const(window / 2); 2];
    let op = Op::Conv {
        strides: vec![stride; 2],
        dilations: vec![1; 2],
        spread: vec![1; 2],
        low: pad.clone(),
        high: pad,
        groups: 1,
        in_block: 1,
        out_block: 1,
    };
    let y = f.push(op, &[x, w]).expect("a convolution");
    f.set_results(vec![y]);
    f
}

fn attention() -> Func {
    let text = "func(%0: f32[b, n, 64], %1: f32[b, m, 64], %2: f32[b, m, 64]) {
        %3 = contract %0, %1 {a_batch=[0], b_batch=[0], a_sum=[2], b_sum=[2]} : f32[b, n, m]
        %4 = reduce %3 {f=max, axes=[2]} : f32[b, n]
        %5 = broadcast %4 {shape=[b, n, m], axes=[0, 1]} : f32[b, n, m]
        %6 = map %3, %5 {f=exp(sub(a0, a1))} : f32[b, n, m]
        %7 = reduce %6 {f=sum, axes=[2]} : f32[b, n]
        %8 = broadcast %7 {shape=[b, n, m], axes=[0, 1]} : f32[b, n, m]
        %9 = map %6, %8 {f=div(a0, a1)} : f32[b, n, m]
        %10 = contract %9, %2 {a_batch=[0], b_batch=[0], a_sum=[2], b_sum=[1]} : f32[b, n, 64]
        return %10
    }";
    parse(text).expect("attention")
}

/// The loops of a text of assembly that have no loop inside.
fn innermost_loops(assembly: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = assembly.lines().map(str::trim).collect();
    let mut loops: Vec<Vec<&str>> = Vec::new();
    for (end, line) in lines.iter().enumerate() {
        let Some(target) = line.split_whitespace().nth_back(0).filter(|t| t.contains(".LBB")) else { continue };
        let label = format!("{target}:");
        let Some(start) = lines[..end].iter().rposition(|l| l.starts_with(&label)) else { continue };
        let body = &lines[start..end];
        let jumps_back = |l: &&str| {
            let target = l.split_whitespace().nth_back(0).filter(|t| t.contains(".LBB"));
            target.is_some_and(|t| body.iter().any(|b| b.starts_with(&format!("{t}:"))))
        };
        if !body.iter().any(jumps_back) {
            loops.push(body.to_vec());
        }
    }
    loops
}

/// Does a line keep a vector on the stack? To load an address from there is no harm: it is known long before.
fn is_spill(line: &str) -> bool {
    let registers = |operand: &str| ["%xmm", "%ymm", "%zmm"].iter().any(|r| operand.contains(r));
    let x86 = line.contains("(%rsp") && registers(line);
    let arm = line.contains("[sp") && line.split([' ', '\t', ',']).any(|w| w.starts_with(['q', 'v']) && w.len() <= 3);
    x86 || arm
}

#[test]
fn tiles_stay_in_registers() {
    let functions = [
        ("a product by any number of rows", product(&Dim::sym("n"), 768, 768)),
        ("a product by 197 rows", product(&Dim::Const(197), 768, 3072)),
        ("a product by one row", product(&Dim::ONE, 384, 1536)),
        ("attention", attention()),
        ("a 3x3 convolution", convolution([64, 64], 56, 3, 1)),
        ("a 3x3 convolution with stride 2", convolution([128, 128], 28, 3, 2)),
        ("a 1x1 convolution", convolution([256, 64], 56, 1, 1)),
        ("a first convolution", convolution([3, 64], 224, 7, 2)),
    ];
    let mut failures = String::new();
    for (triple, cpu) in TARGETS {
        let options = Options { triple: triple.into(), cpu: cpu.into(), ..options(Generator::Llvm) };
        let codegen = Codegen::new(&options).unwrap_or_else(|e| panic!("{cpu}: {e}"));
        let convolutions_fit = !triple.starts_with("aarch64");
        for (name, f) in functions.iter().filter(|(name, _)| convolutions_fit || !name.contains("convolution")) {
            let lowered = lower(f, &codegen, &options, &mut vec![]).unwrap_or_else(|e| panic!("{cpu}, {name}: {e}"));
            let llvm = codegen.llvm.as_ref().expect("this is LLVM");
            let assembly = llvm.assembly(&lowered.module).unwrap_or_else(|e| panic!("{cpu}, {name}: {e}"));
            let multiplies = |l: &&&str| l.starts_with("vfmadd") || l.starts_with("fmla");
            let loops = innermost_loops(&assembly);
            let tiles: Vec<_> = loops.iter().filter(|l| l.iter().filter(multiplies).count() >= TILE).collect();
            assert!(!tiles.is_empty(), "{cpu}, {name}: no inner loop found");
            for tile in tiles {
                if let Some(line) = tile.iter().find(|line| is_spill(line)) {
                    failures += &format!("{cpu}, {name}: {line}\n");
                }
            }
        }
    }
    assert!(failures.is_empty(), "inner loops use the stack:\n{failures}");
}

/// The assembly of a function's kernels.
fn kernels(f: &Func, triple: &str, cpu: &str) -> String {
    let options = Options { triple: triple.into(), cpu: cpu.into(), ..options(Generator::Llvm) };
    let codegen = Codegen::new(&options).unwrap_or_else(|e| panic!("{cpu}: {e}"));
    let lowered = lower(f, &codegen, &options, &mut vec![]).unwrap_or_else(|e| panic!("{cpu}: {e}"));
    let llvm = codegen.llvm.as_ref().expect("this is LLVM");
    let kernels: Vec<_> = lowered.module.functions.iter().filter(|f| f.kind == Kind::Kernel).cloned().collect();
    llvm.assembly(&Module { functions: kernels }).unwrap_or_else(|e| panic!("{cpu}: {e}"))
}

/// A limit is one instruction, also that of a factor to 1. Comparisons of vectors would take the units that multiply.
#[test]
fn limits_are_instructions() {
    let text = "func(%0: f32[64]) {
        %1 = map %0 {f=mul(a0, min(max(add(mul(a0, 0.25:f32), 0.5:f32), 0.0:f32), 1.0:f32))} : f32[64]
        return %1
    }";
    let f = parse(text).expect("a ramp");
    for cpu in ["haswell", "znver4", "skylake-avx512"] {
        let assembly = kernels(&f, "x86_64-unknown-linux-gnu", cpu);
        assert!(assembly.contains("vminps") && assembly.contains("vmaxps"), "{cpu}: no limits in\n{assembly}");
        assert!(!assembly.contains("vcmp"), "{cpu}: comparisons in\n{assembly}");
    }
}

/// Processors that convert between `f32` and half floats do so by their instructions, others by arithmetic: nowhere is anything called. Vectors of floats become
/// integers as vectors.
#[test]
fn conversions_are_instructions() {
    let text = "func(%0: f16[n], %1: f32[n]) {
        %2 = map %0, %1 {f=add(mul(a0, a0), cast(a1, f16))} : f16[n]
        %3 = map %1 {f=castsat(a0, u8)} : u8[n]
        return %2, %3
    }";
    let f = parse(text).expect("conversions");
    let x86 = "x86_64-unknown-linux-gnu";
    let expected: [(&str, &str, &[&str]); 3] = [
        (x86, "haswell", &["vcvtph2ps", "vcvtps2ph", "vcvttps2dq"]),
        (x86, "x86-64-v2", &["cvttps2dq"]),
        ("aarch64-unknown-linux-gnu", "neoverse-n1", &["fcvtl", "fcvtn"]),
    ];
    for (triple, cpu, instructions) in expected {
        let assembly = kernels(&f, triple, cpu);
        for instruction in instructions {
            assert!(assembly.contains(instruction), "{cpu}: no {instruction} in\n{assembly}");
        }
        assert!(!assembly.contains("hfsf2") && !assembly.contains("sfhf2"), "{cpu}: calls in\n{assembly}");
    }
}
