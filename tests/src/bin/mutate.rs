//! `cargo run --release -p numrsc-tests --bin mutate -- --seed 1 --count 20000`: judge so many changed models, in `--jobs` processes at
//! a time. What goes wrong is kept under `target/mutate`, a test folder each, as small as it could be made.
//! `-- --show NUMBER` prints the model of a case, `-- --replay FOLDER NUMBER` judges one that was kept; `--plant NAME` plants a bug.
use numrsc_tests::mutate::{
    self, Case, Seeds,
    plant::Plant,
    supervise::{self, BOUNDS, Worker},
};
use std::{path::Path, process::ExitCode};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let after = |name: &str, n: usize| args.iter().position(|a| a == name).and_then(|i| args.get(i + n));
    let number = |text: Option<&String>, default: u64| text.and_then(|v| v.parse().ok()).unwrap_or(default);
    let plant = after("--plant", 1).map(|name| Plant::named(name).expect("a planted bug"));
    let planted = |case: Case| Case { plant, ..case };
    if let Some(folder) = after("--replay", 1) {
        let seed = number(after("--replay", 2), 0);
        let case = mutate::load(Path::new(folder)).map(|case| planted(Case { seed, ..case }));
        supervise::work(std::iter::once(case));
        return ExitCode::SUCCESS;
    }
    let seeds = Seeds::all();
    if let Some(first) = after("--cases", 1) {
        let (first, count) = (number(Some(first), 0), number(after("--cases", 2), 1));
        supervise::work((first..first + count).map(|seed| seeds.case(seed).map(planted)));
        return ExitCode::SUCCESS;
    }
    if let Some(seed) = after("--show", 1) {
        let case = seeds.case(number(Some(seed), 0)).expect("a model that can be read");
        println!("{}\n{:#?}", case.name, case.model);
        return ExitCode::SUCCESS;
    }
    let worker = Worker {
        program: std::env::current_exe().expect("this program has a place"),
        args: plant.iter().flat_map(|p| ["--plant".into(), p.name.into()]).collect(),
    };
    let first = number(after("--seed", 1), 1) << 32;
    let cases = first..first + number(after("--count", 1), 1000);
    let report = supervise::run_jobs(&worker, &cases, number(after("--jobs", 1), 2), &|r| {
        eprintln!("{} cases, {} kinds of findings", r.cases, r.findings.len());
        true
    });
    print!("{report}");
    let folder = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".into());
    supervise::keep(&worker, &seeds, &report, &Path::new(&folder).join("mutate"), BOUNDS);
    if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
