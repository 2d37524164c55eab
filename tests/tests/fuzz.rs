//! A bounded run of every fuzz target.
use numrsc_tests::{
    alloc::Counting,
    fuzz::{Limits, TARGETS, Target, run},
};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_few_seconds_of_every_target_find_nothing() {
    for target in TARGETS {
        let limits = Limits {
            iterations: 30_000,
            time: Duration::from_secs(20),
            input_time: Duration::from_secs(10),
            directory: None,
        };
        let report = run(target, 1, &limits);
        if let Some(f) = report.findings.first() {
            panic!("{}: {}\n{}", target.name, f.what, String::from_utf8_lossy(&f.input));
        }
        assert!(report.outcomes > 10, "{}: only {} outcomes", target.name, report.outcomes);
    }
}

static PANICS: Target =
    Target { run: |input| input.get(1000).map_or("short", |_| panic!("planted")).into(), ..PLANTED };
static EATS: Target = Target { run: |input| vec![1u8; input.len() * 5000].len().to_string(), ..PLANTED };
static HANGS: Target = Target {
    run: |_| {
        std::thread::sleep(PATIENCE);
        String::new()
    },
    ..PLANTED
};
/// Enough to print a backtrace on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const PLANTED: Target = Target {
    name: "planted",
    seeds: || vec![vec![b'x'; 900]],
    dictionary: Vec::new,
    run: |_| String::new(),
    lengths: false,
    base: 1 << 20,
    factor: 1000,
};

#[test]
fn planted_faults_are_found() {
    let short = Duration::from_millis(500);
    for (target, input_time, what) in
        [(&PANICS, PATIENCE, "panicked: planted"), (&EATS, PATIENCE, "took 4500"), (&HANGS, short, "took longer than")]
    {
        let limits = Limits { iterations: 30_000, time: PATIENCE, input_time, directory: None };
        let report = run(target, 1, &limits);
        let found = report.findings.first().map_or("nothing", |f| &f.what);
        assert!(found.starts_with(what), "expected `{what}`, found `{found}`");
    }
}
