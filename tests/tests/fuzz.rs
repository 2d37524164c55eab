//! A bounded run of every fuzz target.
use numrsc_tests::{
    alloc::Counting,
    fuzz::{Limits, TARGETS, run},
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
        assert!(report.outcomes > 20, "{}: only {} outcomes", target.name, report.outcomes);
    }
}
