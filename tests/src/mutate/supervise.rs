//! Judges cases in separate processes, which may crash, hang or exhaust memory.
//!
//! A worker says which seed it begins and what became of it, a line each. One that ends or falls silent has its finding
//! attributed to the seed it began last, and another one goes on behind it.
use super::{Case, Outcome, Seeds, judge, judge::keep_panics, minimise::minimise, skeleton};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

/// Limits of a case.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// CPU time: on a busy machine, a case takes longer by the clock.
    pub seconds: u64,
    /// Address space of the whole process.
    pub kibibytes: u64,
}

pub const BOUNDS: Bounds = Bounds { seconds: 20, kibibytes: 4 << 20 };

/// The result of a run.
#[derive(Debug, Default)]
pub struct Report {
    pub cases: u64,
    pub refused: u64,
    pub not_compiled: u64,
    pub agreed: u64,
    pub runs: u64,
    pub failing: u64,
    /// How often each reason was one.
    pub allowed: BTreeMap<String, u64>,
    /// Why models were not compiled, with an example each.
    pub refusals: BTreeMap<String, (u64, u64)>,
    /// Of each kind of finding: how many there were, and the first one.
    pub findings: BTreeMap<String, (u64, u64, String)>,
}

impl Report {
    fn finding(&mut self, seed: u64, name: &str, what: &str) {
        let entry = self.findings.entry(skeleton(what));
        entry.or_insert_with(|| (0, seed, format!("{name}: {what}"))).0 += 1;
    }

    /// What a worker says of a seed.
    fn line(&mut self, seed: u64, name: &str, line: &str) {
        let (kind, text) = line.split_once(' ').unwrap_or((line, ""));
        match kind {
            "refused" => self.refused += 1,
            "not-compiled" => {
                self.not_compiled += 1;
                self.refusals.entry(skeleton(text)).or_insert((0, seed)).0 += 1;
            }
            "agreed" => {
                self.agreed += 1;
                let mut numbers = text.split(' ').map(|n| n.parse::<u64>().unwrap_or(0));
                self.runs += numbers.next().unwrap_or(0);
                self.failing += numbers.next().unwrap_or(0);
            }
            "allowed" => *self.allowed.entry(text.into()).or_default() += 1,
            _ => self.finding(seed, name, text),
        }
    }

    pub fn add(&mut self, other: Report) {
        self.cases += other.cases;
        self.refused += other.refused;
        self.not_compiled += other.not_compiled;
        self.agreed += other.agreed;
        self.runs += other.runs;
        self.failing += other.failing;
        for (reason, n) in other.allowed {
            *self.allowed.entry(reason).or_default() += n;
        }
        for (reason, (n, seed)) in other.refusals {
            let all = self.refusals.entry(reason).or_insert((0, seed));
            *all = (all.0 + n, all.1.min(seed));
        }
        for (kind, (n, seed, text)) in other.findings {
            let all = self.findings.entry(kind).or_insert((0, seed, text.clone()));
            all.0 += n;
            if seed < all.1 {
                (all.1, all.2) = (seed, text);
            }
        }
    }
}

/// A program that calls [`work`] when it is started with these arguments.
#[derive(Clone, Debug)]
pub struct Worker {
    pub program: PathBuf,
    pub args: Vec<String>,
}

/// Judge the cases of some seeds, in one process after the other,
/// for as long as `go_on` says so.
pub fn run(
    worker: &Worker,
    seeds: std::ops::Range<u64>,
    bounds: Bounds,
    go_on: &(dyn Fn(&Report) -> bool + Sync),
) -> Report {
    let mut report = Report::default();
    let mut next = seeds.start;
    while next < seeds.end && go_on(&report) {
        // Processes do not live long, so that what they leak does not add up.
        let end = (next + 200).min(seeds.end);
        next = batch(worker, next..end, bounds, &mut report);
    }
    report
}

/// As [`run`], a share of the seeds in each of so many processes at a time.
pub fn run_jobs(
    worker: &Worker,
    seeds: &std::ops::Range<u64>,
    jobs: u64,
    go_on: &(dyn Fn(&Report) -> bool + Sync),
) -> Report {
    let share = (seeds.end - seeds.start).div_ceil(jobs.max(1));
    let from = |i: u64| (seeds.start + i * share).min(seeds.end);
    let mut report = Report::default();
    std::thread::scope(|scope| {
        let jobs = (0..jobs.max(1)).map(|i| scope.spawn(move || run(worker, from(i)..from(i + 1), BOUNDS, go_on)));
        for job in jobs.collect::<Vec<_>>() {
            report.add(job.join().expect("no panic while supervising"));
        }
    });
    report
}

/// Gives the seed to go on with.
fn batch(worker: &Worker, seeds: std::ops::Range<u64>, bounds: Bounds, report: &mut Report) -> u64 {
    let mut child =
        start(worker, &["--cases".into(), seeds.start.to_string(), (seeds.end - seeds.start).to_string()], bounds);
    let lines = lines(&mut child);
    let (mut seed, mut name) = (seeds.start, String::new());
    loop {
        match next_line(&lines, &child, bounds) {
            Next::Line(line) => match line.split_once(' ') {
                Some(("begin", rest)) => {
                    let (number, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                    (seed, name) = (number.parse().expect("a seed"), rest.into());
                }
                Some(("end", rest)) => {
                    report.cases += 1;
                    report.line(seed, &name, rest);
                    seed += 1;
                    name.clear();
                }
                _ => {}
            },
            Next::Hangs => {
                let _ = child.kill();
                let _ = child.wait();
                report.cases += 1;
                report.finding(seed, &name, &format!("takes longer than {} s", bounds.seconds));
                return seed + 1;
            }
            Next::Ended => {
                let death = death(child);
                if seed >= seeds.end {
                    return seed;
                }
                report.cases += 1;
                report.finding(seed, &name, &death);
                return seed + 1;
            }
        }
    }
}

/// The outcome of a case, from what the worker prints or how it ends.
pub(super) fn outcome(worker: &Worker, args: &[String], bounds: Bounds) -> String {
    let mut child = start(worker, args, bounds);
    let lines = lines(&mut child);
    loop {
        match next_line(&lines, &child, bounds) {
            Next::Line(line) => {
                if let Some(rest) = line.strip_prefix("end ") {
                    let _ = child.kill();
                    let _ = child.wait();
                    return rest.strip_prefix("finding ").unwrap_or("").into();
                }
            }
            Next::Hangs => {
                let _ = child.kill();
                let _ = child.wait();
                return format!("takes longer than {} s", bounds.seconds);
            }
            Next::Ended => return death(child),
        }
    }
}

fn start(worker: &Worker, args: &[String], bounds: Bounds) -> Child {
    // Each by itself: some shells take one option only.
    let limited = format!("ulimit -c 0 && ulimit -v {} && exec \"$0\" \"$@\"", bounds.kibibytes);
    Command::new("sh")
        .args(["-c", &limited])
        .arg(&worker.program)
        .args(&worker.args)
        .args(args)
        // Every arena of the allocator reserves address space.
        .env("MALLOC_ARENA_MAX", "2")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sh can be started")
}

fn lines(child: &mut Child) -> Receiver<String> {
    let (to, from) = channel();
    let out = child.stdout.take().expect("it is piped");
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                break;
            }
        }
    });
    from
}

enum Next {
    Line(String),
    Hangs,
    Ended,
}

fn next_line(lines: &Receiver<String>, child: &Child, bounds: Bounds) -> Next {
    let (since, before) = (Instant::now(), processor_time(child));
    loop {
        match lines.recv_timeout(Duration::from_millis(500)) {
            Ok(line) => return Next::Line(line),
            Err(RecvTimeoutError::Disconnected) => return Next::Ended,
            Err(RecvTimeoutError::Timeout) => {
                // A process that waits for ever uses no CPU time.
                let waits = since.elapsed() > Duration::from_secs(bounds.seconds * 30);
                if waits || processor_time(child) - before > bounds.seconds as f64 {
                    return Next::Hangs;
                }
            }
        }
    }
}

/// Seconds that a process has been running, by all its threads.
fn processor_time(child: &Child) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0);
    // Linux counts in hundredths, whatever the processor.
    (ticks(11) + ticks(12)) / 100.0
}

/// How a process ended, with its last line.
fn death(mut child: Child) -> String {
    let mut said = String::new();
    if let Some(err) = &mut child.stderr {
        let _ = err.read_to_string(&mut said);
    }
    let status = child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
    let said: Vec<&str> = said.lines().filter(|l| !l.trim().is_empty()).collect();
    let said = said.iter().find(|l| l.contains("panicked") || l.contains("memory allocation")).or(said.first());
    format!("dies of {status}: {}", said.unwrap_or(&"it said nothing"))
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} models: {} refused, {} not compiled, {} agree in {} runs; {} sets of inputs fail as they should",
            self.cases, self.refused, self.not_compiled, self.agreed, self.runs, self.failing
        )?;
        for (reason, n) in &self.allowed {
            writeln!(f, "allowed {n}: {reason}")?;
        }
        for (why, (n, seed)) in &self.refusals {
            writeln!(f, "not compiled {n}, first {seed}: {why}")?;
        }
        for (n, seed, text) in self.findings.values() {
            writeln!(f, "finding {n}, first {seed}: {text}")?;
        }
        Ok(())
    }
}

/// Keeps the first failure of each kind under a folder, minimised.
pub fn keep(worker: &Worker, seeds: &Seeds, report: &Report, folder: &Path, bounds: Bounds) {
    for (kind, (_, seed, _)) in &report.findings {
        if let Some(case) = seeds.case(*seed) {
            minimise(worker, &case, &|what| skeleton(what) == *kind, &folder.join(seed.to_string()), bounds);
        }
    }
}

/// What a worker does: judges cases and reports.
pub fn work(cases: impl Iterator<Item = Option<Case>> + Send) {
    keep_panics();
    let work = || {
        for case in cases.flatten() {
            tell(&format!("begin {} {}", case.seed, case.name));
            tell(&format!("end {}", told(&judge(&case))));
        }
    };
    // Nested graphs recurse, and debug builds have large frames.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(64 << 20).spawn_scoped(scope, work);
        let _ = thread.expect("a thread").join();
    });
}

/// An outcome as a line.
fn told(outcome: &Outcome) -> String {
    let line = match outcome {
        Outcome::Refused(e) => format!("refused {e}"),
        Outcome::NotCompiled(e) => format!("not-compiled {e}"),
        Outcome::Agreed { runs, failing } => format!("agreed {runs} {failing}"),
        Outcome::Allowed(reason) => format!("allowed {reason}"),
        Outcome::Finding(e) => format!("finding {e}"),
    };
    let end = line.char_indices().nth(1000).map_or(line.len(), |(i, _)| i);
    line[..end].replace('\n', " | ")
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
