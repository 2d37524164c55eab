//! A mutational fuzzer for everything that reads files. No panic, no hang, no memory beyond a multiple of the input.
//!
//! An input whose outcome (the error without its numbers and names) is new joins the corpus, which leads deeper into
//! the readers without instrumentation. With it ([`crate::coverage`]), an input that takes a branch for the first time does so as well;
//! every run starts from what is under `tests/data/fuzz`, where `--keep` may put such inputs. A target is one row of [`TARGETS`].
mod runtime;

use crate::{
    alloc::peak_of,
    corpus,
    coverage::Coverage,
    filetests,
    generate::{Config, func},
    rng::Rng,
};
use bytes::Bytes;
use numrsc::{
    conformance::find_folders,
    onnx::{
        import::{Options, import},
        load_bytes,
        proto::{GraphProto, ModelProto},
    },
};
use numrsc_ir::{op::OPS, parse, scalar::ScalarFn, verify, view};
use prost::Message;
use std::{
    collections::HashSet,
    io::{Seek, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// A reader that is fuzzed.
#[derive(Debug)]
pub struct Target {
    pub name: &'static str,
    /// Inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// What is worth inserting.
    pub dictionary: fn() -> Vec<Vec<u8>>,
    /// Reads the input and returns the outcome, which is text such as an error message. Panics are findings.
    pub run: fn(&[u8]) -> String,
    /// Protobuf: also change the lengths of fields.
    pub lengths: bool,
    /// Memory may be `base + factor * input length`.
    pub base: usize,
    pub factor: usize,
}

#[rustfmt::skip]
pub const TARGETS: &[Target] = &[
    Target { name: "text", seeds: text_seeds, dictionary: text_words, run: read_text,  lengths: false, base: 1 << 20, factor: 2000 },
    Target { name: "onnx", seeds: onnx_seeds, dictionary: onnx_words, run: read_model, lengths: true,  base: 1 << 20, factor: 1000 },
    Target { name: "import", seeds: suite_seeds, dictionary: onnx_words, run: import_model, lengths: true, base: 64 << 20, factor: 1000 },
    Target { name: "json", seeds: json_seeds, dictionary: json_words, run: read_model, lengths: false, base: 1 << 20, factor: 1000 },
    Target { name: "artifact", seeds: runtime::artifact_seeds, dictionary: runtime::artifact_words, run: runtime::read_artifact, lengths: true, base: 1 << 20, factor: 100 },
    Target { name: "npy", seeds: runtime::npy_seeds, dictionary: runtime::npy_words, run: runtime::read_npy, lengths: false, base: 1 << 20, factor: 100 },
];

/// When to stop, and where to keep findings.
#[derive(Clone, Debug)]
pub struct Limits {
    pub iterations: u64,
    pub time: Duration,
    /// One input may take this long.
    pub input_time: Duration,
    /// Keeps the current input, so that it is known even if the process dies.
    pub directory: Option<PathBuf>,
}

/// An input that caused a failure.
#[derive(Clone, Debug)]
pub struct Finding {
    pub what: String,
    pub input: Vec<u8>,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Report {
    pub iterations: u64,
    pub outcomes: usize,
    /// Number of branches taken, in instrumented code.
    pub branches: usize,
    pub findings: Vec<Finding>,
    /// Inputs besides the seeds that did something new.
    pub kept: Vec<Vec<u8>>,
}

const MAX_INPUT: usize = 1 << 16;
const MAX_FINDINGS: usize = 10;
const MAX_CORPUS: usize = 4000;

/// A small set of inputs that takes every branch that all of them take, up to this many bytes.
pub fn distil(target: &Target, mut inputs: Vec<Vec<u8>>, most: usize) -> Vec<Vec<u8>> {
    inputs.sort_by_key(|i| (i.len(), i.clone()));
    inputs.dedup();
    let (mut coverage, mut outcomes, mut left) = (Coverage::default(), HashSet::new(), most);
    let learns = |coverage: &mut Coverage, outcomes: &mut HashSet<String>, input: &[u8]| {
        coverage.clear();
        let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input))).unwrap_or_default();
        let is_new = outcomes.insert(skeleton(&outcome)) && !coverage.is_on();
        coverage.learn() || is_new
    };
    for seed in (target.seeds)() {
        learns(&mut coverage, &mut outcomes, &seed);
    }
    inputs.retain(|input| {
        let keep = input.len() <= left && learns(&mut coverage, &mut outcomes, input);
        left -= if keep { input.len() } else { 0 };
        keep
    });
    inputs
}

/// Fuzz a target from a seed. The same seed makes the same inputs.
pub fn run(target: &'static Target, seed: u64, limits: &Limits) -> Report {
    let under_way: Arc<Mutex<(Instant, Vec<u8>)>> = Arc::new(Mutex::new((Instant::now(), vec![])));
    let shared = under_way.clone();
    let (worker_limits, started) = (limits.clone(), Instant::now());
    // The stack of a test thread: what overflows here would overflow there.
    let worker = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(move || work(target, seed, &worker_limits, started, &shared))
        .expect("a thread");
    while !worker.is_finished() {
        std::thread::sleep(Duration::from_millis(20));
        let (since, input) = &*under_way.lock().expect("no panic while held");
        if since.elapsed() > limits.input_time {
            // The worker is lost; it ends with the process.
            let finding = Finding { what: format!("took longer than {:?}", limits.input_time), input: input.clone() };
            return Report { findings: vec![finding], ..Report::default() };
        }
    }
    worker.join().expect("panics are caught inside")
}

fn work(
    target: &Target,
    seed: u64,
    limits: &Limits,
    started: Instant,
    under_way: &Mutex<(Instant, Vec<u8>)>,
) -> Report {
    let mut rng = Rng::new(seed);
    let mut corpus = (target.seeds)();
    let seeds = corpus.len();
    corpus.extend(data(&format!("fuzz/{}", target.name), ""));
    let mut coverage = Coverage::default();
    let dictionary = (target.dictionary)();
    let (mut report, mut outcomes) = (Report::default(), HashSet::new());
    let mut current = limits.directory.as_deref().map(|d| open(d, "current"));
    let mut untouched = 0..corpus.len();
    while report.iterations < limits.iterations
        && started.elapsed() < limits.time
        && report.findings.len() < MAX_FINDINGS
    {
        report.iterations += 1;
        let input = match untouched.next() {
            Some(i) => corpus[i].clone(),
            None => mutate(&mut rng, &corpus, &dictionary, target.lengths),
        };
        *under_way.lock().expect("no panic while held") = (Instant::now(), input.clone());
        if let Some(file) = &mut current {
            let _ = file.rewind().and_then(|()| file.set_len(0)).and_then(|()| file.write_all(&input));
        }
        coverage.clear();
        let (outcome, peak) = peak_of(|| catch_unwind(AssertUnwindSafe(|| (target.run)(&input))));
        let allowed = target.base + target.factor * input.len();
        match outcome {
            Err(panic) => report.findings.push(Finding { what: format!("panicked: {}", message(&*panic)), input }),
            Ok(_) if peak > allowed => {
                report.findings.push(Finding { what: format!("took {peak} bytes, not {allowed}"), input });
            }
            Ok(outcome) => {
                let is_new = outcomes.insert(skeleton(&outcome)) && !coverage.is_on();
                if coverage.learn() || is_new {
                    if report.iterations > seeds as u64 {
                        report.kept.push(input.clone());
                    }
                    if corpus.len() < MAX_CORPUS {
                        corpus.push(input);
                    } else {
                        let at = rng.below(MAX_CORPUS);
                        corpus[at] = input;
                    }
                }
            }
        }
    }
    *under_way.lock().expect("no panic while held") = (Instant::now(), vec![]);
    if let Some(directory) = &limits.directory {
        for (i, f) in report.findings.iter().enumerate() {
            let _ = open(directory, &format!("finding-{i}")).write_all(&f.input);
        }
    }
    (report.outcomes, report.branches) = (outcomes.len(), coverage.branches());
    report
}

fn open(directory: &Path, name: &str) -> std::fs::File {
    std::fs::create_dir_all(directory).expect("a directory for findings");
    std::fs::File::create(directory.join(name)).expect("a file for findings")
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("(no message)").into()
}

/// An error message without what differs between inputs: numbers, quoted names, shapes, symbols.
fn skeleton(outcome: &str) -> String {
    let (mut quoted, mut brackets) = (false, 0usize);
    let keep = |c: &char| {
        match c {
            '`' | '"' => quoted = !quoted,
            '[' | '(' => brackets += 1,
            ']' | ')' => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        !quoted && brackets == 0 && (c.is_ascii_lowercase() || *c == ' ')
    };
    let text: String = outcome.lines().take(3).flat_map(str::chars).filter(keep).collect();
    text.split_whitespace().filter(|w| (2..12).contains(&w.len())).take(12).collect::<Vec<_>>().join(" ")
}

fn mutate(rng: &mut Rng, corpus: &[Vec<u8>], dictionary: &[Vec<u8>], lengths: bool) -> Vec<u8> {
    let mut input = rng.pick(corpus).clone();
    for _ in 0..1 + rng.below(4) {
        let at = rng.below(input.len() + 1);
        let end = (at + 1 + rng.below(16)).min(input.len());
        match rng.below(if lengths { 11 } else { 10 }) {
            0 if at < input.len() => input[at] ^= 1 << rng.below(8),
            1 if at < input.len() => input[at] = *rng.pick(&[0, 1, 0x7f, 0x80, 0xff, b' ', b'"', b'-', b'9']),
            2 => {
                input.drain(at.min(end)..end);
            }
            3 => input.truncate(at),
            4 => {
                let part = input[at.min(end)..end].to_vec();
                let most = if rng.one_in(8) { 500 } else { 4 };
                let times = 1 + rng.below(most);
                input.splice(at..at, part.repeat(times));
            }
            5 => {
                let other = rng.pick(corpus);
                let from = rng.below(other.len() + 1);
                let to = from + rng.below(other.len() - from + 1).min(200);
                input.splice(at.min(end)..end, other[from..to].iter().copied());
            }
            6 | 7 if !dictionary.is_empty() => {
                let word = rng.pick(dictionary).clone();
                input.splice(at..if rng.one_in(2) { end.max(at) } else { at }, word);
            }
            8 => change_number(rng, &mut input, at),
            9 => {
                // Lines are what texts are made of.
                let lines: Vec<Vec<u8>> = input.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
                if lines.len() > 1 {
                    let line = rng.pick(&lines).clone();
                    let before: usize = lines[..rng.below(lines.len())].iter().map(Vec::len).sum();
                    input.splice(before..before, line);
                }
            }
            10 if at < input.len() => {
                // A length or tag grows or shrinks by little, or becomes a long varint.
                match rng.below(3) {
                    0 => input[at] = input[at].wrapping_add(1),
                    1 => input[at] = input[at].wrapping_sub(1),
                    _ => {
                        input.splice(at..=at, [0xff, 0xff, 0xff, 0xff, 0x0f]);
                    }
                }
            }
            _ => {}
        }
        input.truncate(MAX_INPUT);
    }
    input
}

/// Replace the decimal number at or after a place.
fn change_number(rng: &mut Rng, input: &mut Vec<u8>, at: usize) {
    let Some(start) = (at..input.len()).find(|i| input[*i].is_ascii_digit()) else { return };
    let end = (start..input.len()).find(|i| !input[*i].is_ascii_digit()).unwrap_or(input.len());
    let old: i128 = std::str::from_utf8(&input[start..end]).ok().and_then(|t| t.parse().ok()).unwrap_or(0);
    let ends =
        [0, 1, 255, 65_536, 1 << 31, 1 << 32, 1 << 62, i128::from(i64::MAX), 1 << 63, i128::from(u64::MAX), 1 << 64];
    let new = match rng.below(3) {
        0 => old.saturating_add(1),
        1 => old.saturating_sub(1),
        _ => *rng.pick(&ends),
    };
    input.splice(start..end, new.to_string().into_bytes());
}

fn text_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = (0..60)
        .map(|seed| func(seed, Config { special: true, steps: 6, ..Config::default() }).to_string().into_bytes())
        .collect();
    let files = [
        include_str!("../filetests/parse/combine.nir"),
        include_str!("../filetests/parse/control.nir"),
        include_str!("../filetests/parse/dims.nir"),
        include_str!("../filetests/parse/elements.nir"),
        include_str!("../filetests/parse/numbers.nir"),
        include_str!("../filetests/parse/sequences.nir"),
        include_str!("../filetests/parse/errors.nir"),
    ];
    seeds.extend(files.into_iter().flat_map(filetests::cases).map(|case| case.as_bytes().to_vec()));
    seeds
}

fn text_words() -> Vec<Vec<u8>> {
    let mut words: Vec<String> = OPS.iter().map(|o| format!("{} ", o.name)).collect();
    words.extend(ScalarFn::ALL.iter().map(|f| format!("{}(", f.name())));
    words.extend(OPS.iter().flat_map(|o| o.attrs).map(|(name, _)| format!("{name}=")));
    for w in [
        "func(",
        "return ",
        "%0",
        "%1",
        " : ",
        "floordiv(",
        "min(",
        "max(",
        "bcast(",
        "mul(",
        "add(",
        "toolarge()",
        "seq<",
        "[..]",
        "?",
        "nan#",
        "inf:f32",
        "-9223372036854775808",
        "9223372036854775807",
        "\"",
        "\\u{",
        "//",
        "$",
        "f32[",
        "f4e2m1[",
        "i2[",
        "str[",
        "bool[",
        "#",
        "t0 = ",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        ",",
        "=",
        "*",
        "-",
        "+",
    ] {
        words.push(w.into());
    }
    words.into_iter().map(String::into_bytes).collect()
}

fn read_text(input: &[u8]) -> String {
    let text = String::from_utf8_lossy(input);
    let f = match parse(&text) {
        Ok(f) => f,
        Err(e) => return e.to_string(),
    };
    let printed = f.to_string();
    match parse(&printed) {
        Ok(again) => assert!(again == f, "reads back differently:\n{printed}\n{again}"),
        Err(e) => panic!("does not read back: {e}\n{printed}"),
    }
    let _ = view::dot(&f);
    let _ = f.without_dead_nodes();
    match verify(&f) {
        Ok(()) => {
            format!("valid with {}", f.nodes().iter().rev().map(|n| n.op.name()).take(3).collect::<Vec<_>>().join(" "))
        }
        Err(e) => e.to_string(),
    }
}

/// Files of `tests/data` with this ending, small ones only.
fn data(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(folder)];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let small = entry.metadata().is_ok_and(|m| m.len() < MAX_INPUT as u64 / 4);
            if path.is_dir() {
                folders.push(path);
            } else if small && path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found.iter().map(|p| std::fs::read(p).expect("the file is there")).collect()
}

fn json_seeds() -> Vec<Vec<u8>> {
    let seeds = data("numrs", ".onnx.json");
    assert!(!seeds.is_empty(), "there are models in JSON");
    seeds
}

fn json_words() -> Vec<Vec<u8>> {
    let words = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "null",
        "true",
        "-1",
        "1e999",
        "\"\"",
        "\"\\u0000\"",
        "\"nodes\"",
        "\"inputs\"",
        "\"outputs\"",
        "\"initializers\"",
        "\"name\"",
        "\"op_type\"",
        "\"attributes\"",
        "\"dims\"",
        "\"data_type\"",
        "\"shape\"",
        "9223372036854775807",
        "18446744073709551616",
        "[[[[[[[[[[[[[[[[",
        "{\"a\":{\"a\":{\"a\":",
    ];
    words.iter().map(|w| w.as_bytes().to_vec()).collect()
}

/// Models without weights, and every one again without the parts that only take room.
fn onnx_seeds() -> Vec<Vec<u8>> {
    let mut seeds = data("graphs", ".onnx");
    for i in 0..seeds.len() {
        let Ok(mut model) = ModelProto::decode(&seeds[i][..]) else { continue };
        let graph: &mut GraphProto = model.graph.get_or_insert_default();
        graph.value_info.clear();
        graph.node.truncate(12);
        seeds.push(model.encode_to_vec());
    }
    seeds
}

fn onnx_words() -> Vec<Vec<u8>> {
    let words: [&[u8]; 16] = [
        &[0x08],
        &[0x0a, 0x00],
        &[0x12, 0x02],
        &[0x3a, 0x04],
        &[0x42, 0x00],
        &[0x4a, 0x08],
        &[0x2a],
        &[0x32],
        &[0x70, 0x01],
        b"If",
        b"Loop",
        b"then_branch",
        b"location",
        b"../x",
        &[0xff; 9],
        &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01],
    ];
    words.iter().map(|w| w.to_vec()).collect()
}

/// Every operator in every version: the models of the ONNX suite that are not large.
fn suite_seeds() -> Vec<Vec<u8>> {
    let mut folders = Vec::new();
    find_folders(&corpus::fetch("suite").join("onnx-suite"), &mut folders);
    let models = folders.iter().filter_map(|f| std::fs::read(f.join("model.onnx")).ok());
    models.filter(|m| m.len() < 1 << 12).collect()
}

/// Load a model, import it, and verify what comes out.
fn import_model(input: &[u8]) -> String {
    let imported = load_bytes(Bytes::copy_from_slice(input), None).and_then(|m| import(&m, &Options::default()));
    match imported {
        Ok(func) => verify(&func).map_or_else(|e| panic!("invalid: {e}"), |()| "imported".to_string()),
        Err(e) => e.to_string(),
    }
}

/// Load a model and read all its tensors.
fn read_model(input: &[u8]) -> String {
    let model = match load_bytes(Bytes::copy_from_slice(input), None) {
        Ok(model) => model,
        Err(e) => return e.to_string(),
    };
    let graph = model.graph();
    let dense = graph.initializer.iter().map(|t| model.tensor(t));
    let sparse = graph.sparse_initializer.iter().map(|t| model.sparse_tensor(t));
    let refused: Vec<String> = dense.chain(sparse).filter_map(Result::err).collect();
    format!("{} warnings; {}", model.warnings().len(), refused.first().map_or("sound", |r| r))
}
