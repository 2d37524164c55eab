//! Texts in, texts out: every `tests/filetests/<directory>/*.nir`. A file holds cases: an input, a line `// ----`, the
//! expected output; a line `// ====` starts the next case. `NUMRSC_BLESS=1 cargo test` writes what came out.
use numrsc_ir::{op::OPS, parse, verify};
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
