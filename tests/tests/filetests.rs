//! Every file of `tests/filetests`: what comes out is what it says, and the evaluator agrees; see [`numrsc_tests::filetests`].
//! `NUMRSC_BLESS=1 cargo test -p numrsc-tests --test filetests` writes what came out, unless it is wrong.
use numrsc_ir::op::OPS;
use numrsc_passes::{PIPELINE, pipeline::Step};
use numrsc_tests::{
    corpus,
    filetests::{self, File, Head, Test, cases},
};
use std::{
    collections::BTreeSet,
    fmt::Write,
    fs,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

fn files() -> Vec<File> {
    let files = filetests::files(&corpus::root().join("tests/filetests")).unwrap();
    assert!(!files.is_empty(), "there are files");
    files
}

#[test]
fn files_say_what_comes_out() {
    let files = files();
    let (next, reports) = (AtomicUsize::new(0), Mutex::new(vec![String::new(); files.len()]));
    let work = || {
        while let Some(i) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < files.len()) {
            let report = check(&files[i]);
            reports.lock().unwrap()[i] = report;
        }
    };
    thread::scope(|scope| {
        (0..thread::available_parallelism().map_or(1, usize::from)).for_each(|_| drop(scope.spawn(work)));
    });
    let report = reports.into_inner().unwrap().concat();
    assert!(report.is_empty(), "\n{report}");
}

/// What is wrong with a file; nothing if what came out is accepted.
fn check(File { path, text }: &File) -> String {
    let got = match filetests::run(text, PIPELINE) {
        Ok(got) if got == *text => return String::new(),
        Ok(got) => got,
        Err(wrong) => return wrong.iter().fold(String::new(), |all, e| all + &format!("{}: {e}\n", path.display())),
    };
    if std::env::var_os("NUMRSC_BLESS").is_some() {
        return fs::write(path, got).map_or_else(|e| format!("{}: {e}\n", path.display()), |()| String::new());
    }
    let line = got.lines().zip(text.lines()).position(|(a, b)| a != b);
    let line = line.unwrap_or(got.lines().count().min(text.lines().count()));
    let at = |t: &str| t.lines().nth(line).unwrap_or("(the end)").to_string();
    let mut report = format!("{}:{}\n", path.display(), line + 1);
    let _ = writeln!(report, "  expected: {}\n  got:      {}", at(text), at(&got));
    let _ = writeln!(report, "  NUMRSC_BLESS=1 accepts what came out");
    report
}

/// What the heads of all files name, with the files.
fn heads(files: &[File]) -> impl Iterator<Item = (&File, Head<'static>)> {
    files.iter().map(|file| (file, Head::of(&file.text, PIPELINE).unwrap()))
}

#[test]
fn every_pass_has_a_file() {
    let files = files();
    let tested: BTreeSet<&str> = heads(&files)
        .flat_map(|(_, head)| match head.test {
            Test::Passes(passes, _) => passes.into_iter().map(|pass| pass.name).collect(),
            Test::Parse | Test::Verify | Test::Run => vec![],
        })
        .collect();
    let passes = PIPELINE.iter().filter(|pass| !matches!(pass.step, Step::Import));
    let missing: Vec<&str> = passes.map(|pass| pass.name).filter(|name| !tested.contains(name)).collect();
    assert!(missing.is_empty(), "no file tests {missing:?}");
}

#[test]
fn every_op_is_read_and_printed() {
    let files = files();
    let read = heads(&files).filter(|(_, head)| matches!(head.test, Test::Parse));
    let all: String = read.flat_map(|(file, _)| cases(&file.text)).collect();
    let words: BTreeSet<&str> = all.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect();
    let missing: Vec<_> = OPS.iter().map(|o| o.name).filter(|n| *n != "param" && !words.contains(n)).collect();
    assert!(missing.is_empty(), "no file reads {missing:?}");
}
