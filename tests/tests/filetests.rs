//! Texts in, texts out: every `tests/filetests/<directory>/*.nir`. A file holds cases: an input, a line `// ----`, the
//! expected output; a line `// ====` starts the next case. `NUMRSC_BLESS=1 cargo test` writes what came out.
use numrsc_ir::{
    Func, Machine, Op,
    kernel::{self, Stmt, Ty},
    op::OPS,
    parse, verify,
};
use numrsc_passes::{
    Context, Level, egraph,
    lower::{Lowered, TOLERANCE, lower},
};
use std::{
    collections::BTreeSet,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

const NEXT: &str = "// ====\n";
const EXPECT: &str = "// ----\n";

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests").join(name)
}

fn files(name: &str) -> Vec<(PathBuf, String)> {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory(name)).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "nir"));
    paths.sort();
    assert!(!paths.is_empty(), "no files in {name}");
    paths.into_iter().map(|p| (p.clone(), fs::read_to_string(p).unwrap())).collect()
}

fn inputs(text: &str) -> impl Iterator<Item = &str> {
    text.split(NEXT).map(|case| case.split(EXPECT).next().unwrap_or(case))
}

fn run(name: &str, test: impl Fn(&str) -> String) {
    let mut differences = String::new();
    for (path, text) in files(name) {
        let cases: Vec<String> = inputs(&text)
            .map(|input| {
                let output = test(input);
                format!("{}\n{EXPECT}{}\n", input.trim_end(), output.trim_end())
            })
            .collect();
        let got = cases.join(NEXT);
        if got == text {
            continue;
        }
        if std::env::var_os("NUMRSC_BLESS").is_some() {
            fs::write(path, got).unwrap();
        } else {
            let line = got.lines().zip(text.lines()).position(|(a, b)| a != b).unwrap_or(text.lines().count());
            let at = |t: &str| t.lines().nth(line).unwrap_or("(the end)").to_string();
            let _ = writeln!(differences, "{}:{}", path.display(), line + 1);
            let _ = writeln!(differences, "  expected: {}\n  got:      {}", at(&text), at(&got));
        }
    }
    assert!(differences.is_empty(), "{differences}NUMRSC_BLESS=1 accepts what came out");
}

#[test]
fn roundtrip() {
    run("roundtrip", |input| {
        let f = parse(input).unwrap_or_else(|e| panic!("{e}\n{input}"));
        verify(&f).unwrap_or_else(|e| panic!("{e}\n{input}"));
        let text = f.to_string();
        assert!(parse(&text).as_ref() == Ok(&f), "reads back differently:\n{text}");
        text
    });
}

#[test]
fn roundtrip_covers_every_op() {
    let all: String = files("roundtrip").into_iter().map(|(_, text)| text).collect();
    let words: BTreeSet<&str> = all.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect();
    let missing: Vec<_> = OPS.iter().map(|o| o.name).filter(|n| *n != "param" && !words.contains(n)).collect();
    assert!(missing.is_empty(), "no round trip of {missing:?}");
}

#[test]
fn verifier() {
    run("verify", |input| {
        let f = parse(input).unwrap_or_else(|e| panic!("{e}\n{input}"));
        verify(&f).map_or_else(|e| e.to_string(), |()| "valid".into())
    });
}

#[test]
fn parse_errors() {
    run("parse-errors", |input| match parse(input) {
        Ok(f) => panic!("should be refused:\n{f}"),
        Err(e) => e.to_string(),
    });
}

fn function(input: &str) -> Func {
    let f = parse(input).unwrap_or_else(|e| panic!("{e}\n{input}"));
    verify(&f).unwrap_or_else(|e| panic!("{e}\n{input}"));
    f
}

fn lowered(input: &str) -> Lowered {
    let machine = Machine { vector_bytes: 16, ..Machine::AVX2 };
    let lowered = lower(&function(input), &Context::new(machine));
    let lowered = lowered.unwrap_or_else(|e| panic!("{e}\n{input}"));
    kernel::verify(&lowered.module).unwrap_or_else(|e| panic!("{e}\n{input}"));
    lowered
}

#[test]
fn fold() {
    run("fold", |input| {
        let folded =
            numrsc_passes::fold(&function(input), &Context::new(AVX2)).unwrap_or_else(|e| panic!("{e}\n{input}"));
        verify(&folded).unwrap_or_else(|e| panic!("{e}\n{input}"));
        folded.to_string()
    });
}

#[test]
fn unroll() {
    run("unroll", |input| {
        let unrolled =
            numrsc_passes::unroll(&function(input), &Context::new(AVX2)).unwrap_or_else(|e| panic!("{e}\n{input}"));
        verify(&unrolled).unwrap_or_else(|e| panic!("{e}\n{input}"));
        unrolled.to_string()
    });
}

#[test]
fn widen() {
    for (name, tolerance) in [("widen", TOLERANCE), ("widen-products", 0.0)] {
        run(name, |input| {
            let widened =
                numrsc_passes::half_to_f32(&function(input), &Context::new(AVX2).with(|o| o.tolerance = tolerance))
                    .unwrap_or_else(|e| panic!("{e}\n{input}"));
            verify(&widened).unwrap_or_else(|e| panic!("{e}\n{input}"));
            widened.to_string()
        });
    }
}

/// With the tolerance that is the default.
#[test]
fn scales() {
    run("scales", |input| {
        let scaled = numrsc_passes::fold_channel_scale(&function(input), &Context::new(AVX2))
            .unwrap_or_else(|e| panic!("{e}\n{input}"));
        verify(&scaled).unwrap_or_else(|e| panic!("{e}\n{input}"));
        scaled.to_string()
    });
}

#[test]
fn integers() {
    run("integers", |input| {
        let integers = numrsc_passes::dequantised_products(&function(input), &Context::new(AVX2))
            .unwrap_or_else(|e| panic!("{e}\n{input}"));
        verify(&integers).unwrap_or_else(|e| panic!("{e}\n{input}"));
        integers.to_string()
    });
}

#[test]
fn narrow() {
    run("narrow", |input| {
        let machine = Machine { dot4: input.contains("// By fours"), ..AVX2 };
        let narrowed =
            numrsc_passes::narrow(&function(input), &Context::new(machine)).unwrap_or_else(|e| panic!("{e}\n{input}"));
        verify(&narrowed).unwrap_or_else(|e| panic!("{e}\n{input}"));
        narrowed.to_string()
    });
}

const AVX2: Machine = Machine::AVX2;

/// Which composites are found.
#[test]
fn recognise() {
    run("recognise", |input| {
        let (_, report) = egraph::optimise_and_report(&function(input), &Context::new(AVX2))
            .unwrap_or_else(|e| panic!("{e}\n{input}"));
        report.recognised.iter().map(|(name, n)| format!("{name} {n}\n")).collect()
    });
}

/// At the highest level, without folding.
#[test]
fn optimise() {
    run("optimise", |input| {
        let level = if input.contains("// -O2") { Level::O2 } else { Level::O3 };
        let (better, _) = egraph::optimise_and_report(&function(input), &Context::new(AVX2).with(|o| o.level = level))
            .unwrap_or_else(|e| panic!("{e}\n{input}"));
        verify(&better).unwrap_or_else(|e| panic!("{e}\n{input}"));
        better.to_string()
    });
}

/// The ops after blocks of channels were chosen, with their types; constants are computed first and not shown.
#[test]
fn layout() {
    run("layout", |input| {
        let cx = Context::new(Machine { vector_bytes: 16, ..AVX2 });
        let func = numrsc_passes::fold(&function(input), &cx).unwrap_or_else(|e| panic!("{e}\n{input}"));
        let func = numrsc_passes::layout(&func, &cx).unwrap_or_else(|e| panic!("{e}\n{input}"));
        verify(&func).unwrap_or_else(|e| panic!("{e}\n{input}"));
        let shown = func.values().filter(|(_, n)| !matches!(n.op, Op::Const { .. }));
        shown.map(|(v, n)| format!("{v} = {} {:?} : {}\n", n.op, n.args, n.ty)).collect()
    });
}

/// What is launched in which order, how many buffers a kernel gets, and what the arena takes for sizes of 64.
#[test]
fn lowering() {
    run("lower", |input| {
        let lowered = lowered(input);
        let (entry, kernels) = lowered.module.functions.split_last().expect("an entry");
        let mut text = String::new();
        for stmt in &entry.body.stmts {
            if let Stmt::Launch { kernel, .. } = stmt {
                let k = &kernels[kernel.0 as usize];
                let pointers = k.params.iter().filter(|p| k.ty(**p) == Ty::PTR).count();
                let _ = writeln!(text, "launch {} with {pointers} buffers", k.name);
            }
        }
        let bytes = lowered.memory.arena_bytes(&|_| Some(64)).expect("all sizes are given");
        text + &format!("arena: {bytes} bytes")
    });
}

#[test]
fn kernels() {
    run("kernels", |input| {
        let lowered = lowered(input);
        let (_, kernels) = lowered.module.functions.split_last().expect("an entry");
        kernels.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    });
}
