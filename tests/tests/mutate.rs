//! Models with random changes: see `tests/src/mutate`. `cargo run --release -p numrsc-tests --bin mutate` runs many more.
use numrsc_tests::mutate::{
    plant::PLANTS,
    supervise::{Bounds, Report, Worker, run, run_jobs},
};

fn worker(args: &[&str]) -> Worker {
    let args = args.iter().map(|a| (*a).to_owned()).collect();
    Worker { program: env!("CARGO_BIN_EXE_mutate").into(), args }
}

#[test]
fn changed_models_agree_or_are_refused() {
    let first = 1 << 32;
    let report = run_jobs(&worker(&[]), &(first..first + 400), 2, &|_| true);
    println!("{report}");
    assert!(report.findings.is_empty(), "{report}");
    assert_eq!(report.cases, 400);
    assert!(report.agreed > 120 && report.failing > 50, "most models are refused: {report}");
}

#[test]
fn planted_bugs_are_found() {
    for plant in PLANTS {
        let differs = |r: &Report| r.findings.values().any(|(.., what)| what.contains("at "));
        let report = run_jobs(&worker(&["--plant", plant.name]), &(0..4000), 2, &|r| !differs(r));
        println!("{}: {report}", plant.name);
        assert!(differs(&report), "{} is not found: {report}", plant.name);
    }
}

/// Stands for a worker that begins a case and then does something else.
fn misbehaving(what: &str) -> Report {
    let program =
        format!("if [ $1 = 7 ]; then echo 'begin 7 name'; {what}; fi; echo 'begin 8 name'; echo 'end refused it'");
    let worker = Worker { program: "sh".into(), args: vec!["-c".into(), program] };
    run(&worker, 7..9, Bounds { seconds: 1, kibibytes: 1 << 20 }, &|_| true)
}

#[test]
fn whatever_a_worker_does_is_attributed_to_its_case() {
    for (what, found) in [
        ("kill -SEGV $$", "name: dies of signal: 11"),
        ("echo \"thread 'x' panicked at y\" >&2; exit 101", "panicked at y"),
        ("while :; do :; done", "name: takes longer than 1 s"),
        ("echo 'end finding Llvm differs'", "name: Llvm differs"),
        ("echo \"end finding has $(ulimit -v) KiB\"", "name: has 1048576 KiB"),
    ] {
        let report = misbehaving(what);
        let (count, seed, text) = report.findings.values().next().unwrap_or_else(|| panic!("{what}: {report}"));
        assert_eq!((*count, *seed), (1, 7), "{what}: {report}");
        assert!(text.contains(found), "{what}: {text}");
    }
}
