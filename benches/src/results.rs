//! The results of `compare` and their tables.
use crate::{
    driver::Result,
    peers::Peer,
    rounds::{Side, one_line, or_nan},
    table::{Format, Table, short},
};
use serde::{Deserialize, Serialize};

/// A model at a number of threads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Date, machine and load.
    pub measured: String,
    pub model: String,
    pub threads: usize,
    pub quantised: bool,
    /// Floating-point operations of its matrix products and convolutions.
    #[serde(deserialize_with = "or_nan")]
    pub gflop: f64,
    /// Peak of the processor at this number of threads.
    #[serde(deserialize_with = "or_nan")]
    pub peak_gflops: f64,
    pub ours: Result<Side>,
    pub peers: Vec<(Peer, Result<Side>)>,
}

type Metric = fn(&Side) -> f64;

/// Metrics besides the time of a run.
const METRICS: [(&str, &str, Metric); 5] = [
    ("cold start", "ms", |side| side.first_output_ms),
    ("cold start (ours as a program)", "ms", |side| side.alone_ms.unwrap_or(side.first_output_ms)),
    ("load", "ms", |side| side.load_ms),
    ("peak memory", "MB", |side| side.peak_mb),
    ("size", "MB", |side| side.size_mb),
];
const RUN: Metric = |side| side.run_ms;

impl Row {
    fn of(&self, peer: Peer) -> Option<&Result<Side>> {
        self.peers.iter().find(|(p, _)| *p == peer).map(|(_, side)| side)
    }

    /// Theirs ÷ ours: above 1 is better for us.
    pub fn ratio(&self, peer: Peer, metric: Metric) -> Option<f64> {
        let (ours, theirs) = (self.ours.as_ref().ok()?, self.of(peer)?.as_ref().ok()?);
        Some(metric(theirs) / metric(ours)).filter(|r| r.is_finite())
    }

    /// Their time per run ÷ ours.
    pub fn speed(&self, peer: Peer) -> Option<f64> {
        self.ratio(peer, RUN)
    }

    /// A word for the table where there is no number.
    pub fn failure(&self, peer: Peer) -> &'static str {
        match (&self.ours, self.of(peer)) {
            (_, Some(Err(message))) if message.starts_with("outputs differ") => "wrong",
            (_, Some(Err(message))) if message.starts_with("took longer") => "too slow",
            (_, Some(Err(_))) => "fails",
            (Err(_), Some(Ok(_))) => "ours fails",
            _ => "",
        }
    }

    fn percent_of_peak(&self, side: &Side) -> f64 {
        let percent = 100.0 * self.gflop / (side.run_ms / 1e3) / self.peak_gflops;
        if self.quantised || self.gflop == 0.0 { f64::NAN } else { percent }
    }
}

/// The peers of all rows, in order of first appearance.
pub fn peers(rows: &[Row]) -> Vec<Peer> {
    let mut peers = vec![];
    for (peer, _) in rows.iter().flat_map(|row| &row.peers) {
        if !peers.contains(peer) {
            peers.push(*peer);
        }
    }
    peers
}

/// The numbers of threads of all rows.
pub fn thread_counts(rows: &[Row]) -> Vec<usize> {
    let mut counts: Vec<usize> = rows.iter().map(|row| row.threads).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// NaN if there are no ratios.
pub fn geometric_mean(ratios: impl IntoIterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = ratios.into_iter().map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

/// All tables, for each number of threads.
pub fn tables(rows: &[Row], format: Format) -> String {
    let mut text = String::new();
    let peers = peers(rows);
    for (title, rows) in by_threads(rows) {
        text += &format.note(&format!("{title}:\n"));
        text += &(summary(&rows, &peers).render(format) + "\n");
        text += &(speeds(&rows, &peers).render(format) + "\n");
        for (name, unit, metric) in METRICS {
            text += &format.note(&format!("{name}, {unit}, {title}:\n"));
            text += &(values(&rows, &peers, metric).render(format) + "\n");
        }
        text += &format.note(&remarks(&rows));
    }
    text.trim_end().to_owned() + "\n"
}

/// The summaries in Markdown, for the documentation.
pub fn summaries(rows: &[Row]) -> String {
    let peers = peers(rows);
    let one =
        |(title, rows): (String, Vec<&Row>)| format!("{title}:\n\n{}", summary(&rows, &peers).render(Format::Markdown));
    by_threads(rows).into_iter().map(one).collect::<Vec<_>>().join("\n")
}

/// The rows of each number of threads, under a title.
fn by_threads(rows: &[Row]) -> Vec<(String, Vec<&Row>)> {
    let group = |threads| {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.threads == threads).collect();
        let plural = if threads == 1 { "" } else { "s" };
        (format!("{threads} thread{plural}, peak {} GFLOP/s", short(rows[0].peak_gflops)), rows)
    };
    thread_counts(rows).into_iter().map(group).collect()
}

/// One line per peer, and one for the best peer of each model. Losses are counted, and the worst is named.
fn summary(rows: &[&Row], peers: &[Peer]) -> Table {
    let metrics: Vec<String> = METRICS.iter().map(|(name, ..)| format!("{name}, times less")).collect();
    let mut head = vec!["peer", "models it runs", "times as fast", "faster on", "worst", "quantised: times as fast"];
    head.extend(metrics.iter().map(String::as_str));
    let mut table = Table::new(&head);
    let took_part = |peer: &&Peer| rows.iter().any(|row| row.of(**peer).is_some());
    let peers: Vec<Peer> = peers.iter().filter(took_part).copied().collect();
    let each = peers.chunks(1).map(|peer| (peer[0].title(), peer));
    for (title, peers) in each.chain((peers.len() > 1).then_some(("the best of them", &peers[..]))) {
        let ratio = |row: &Row, metric| peers.iter().filter_map(|&p| row.ratio(p, metric)).min_by(f64::total_cmp);
        let speeds = |quantised: bool| {
            let rows = rows.iter().filter(move |row| row.quantised == quantised);
            rows.filter_map(|row| Some((ratio(row, RUN)?, &row.model))).collect::<Vec<_>>()
        };
        let floats = speeds(false);
        let all: Vec<_> = floats.iter().copied().chain(speeds(true)).collect();
        let runs = |row: &&&Row| peers.iter().any(|&peer| row.of(peer).is_some_and(Result::is_ok));
        let asked = rows.iter().filter(|row| peers.iter().any(|&peer| row.of(peer).is_some()));
        let worst = all.iter().min_by(|a, b| a.0.total_cmp(&b.0));
        let mean = |metric| short(geometric_mean(rows.iter().filter_map(|row| ratio(row, metric))));
        let mut cells = vec![
            title.to_owned(),
            format!("{} of {}", rows.iter().filter(runs).count(), asked.count()),
            short(geometric_mean(floats.iter().map(|(ratio, _)| *ratio))),
            format!("{} of {}", all.iter().filter(|(ratio, _)| *ratio > 1.0).count(), all.len()),
            worst.map_or_else(String::new, |(ratio, model)| format!("{} ({model})", short(*ratio))),
            short(geometric_mean(speeds(true).iter().map(|(ratio, _)| *ratio))),
        ];
        cells.extend(METRICS.iter().map(|(_, _, metric)| mean(*metric)));
        table.row(cells);
    }
    table
}

/// One line per model: our numbers, and our speed relative to each peer.
fn speeds(rows: &[&Row], peers: &[Peer]) -> Table {
    let times: Vec<String> = peers.iter().map(|peer| format!("× {}", peer.title())).collect();
    let mut head = vec!["model", "run ms", "% of FMA peak"];
    head.extend(times.iter().map(String::as_str));
    head.extend(["cold start ms", "as a program", "load ms", "compile s", "artifact MB", "peak MB"]);
    let mut table = Table::new(&head);
    for row in rows {
        let mut cells = vec![format!("{}{}", row.model, if row.quantised { " (quantised)" } else { "" })];
        let ours = row.ours.as_ref().ok();
        let cell = |value: &dyn Fn(&Side) -> f64| ours.map_or("fails".into(), |side| short(value(side)));
        cells.extend([cell(&RUN), cell(&|side| row.percent_of_peak(side))]);
        cells.extend(peers.iter().map(|&peer| row.speed(peer).map_or(row.failure(peer).into(), short)));
        cells.extend([cell(&|s| s.first_output_ms), cell(&|s| s.alone_ms.unwrap_or(f64::NAN)), cell(&|s| s.load_ms)]);
        cells.push(cell(&|s| s.compile_ms.unwrap_or(f64::NAN) / 1e3));
        cells.extend([cell(&|s| s.size_mb), cell(&|s| s.peak_mb)]);
        table.row(cells);
    }
    table
}

/// A metric of all engines, one line per model.
fn values(rows: &[&Row], peers: &[Peer], metric: Metric) -> Table {
    let mut head = vec!["model", "numrsc"];
    head.extend(peers.iter().map(|peer| peer.title()));
    let mut table = Table::new(&head);
    for row in rows {
        let cell = |side: Option<&Result<Side>>| side.and_then(|s| s.as_ref().ok()).map_or(f64::NAN, metric);
        let mut cells = vec![row.model.clone(), short(cell(Some(&row.ours)))];
        cells.extend(peers.iter().map(|&peer| short(cell(row.of(peer)))));
        table.row(cells);
    }
    table
}

/// The messages behind the words that take the place of numbers.
fn remarks(rows: &[&Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let sides = std::iter::once(("numrsc", &row.ours)).chain(row.peers.iter().map(|(p, s)| (p.title(), s)));
        for (name, message) in sides.filter_map(|(name, side)| Some((name, side.as_ref().err()?))) {
            text += &format!("- {}, {name}: {}\n", row.model, one_line(message));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(model: &str, ours: f64, theirs: Result<f64>) -> Row {
        let side = |ms: f64| Side {
            first_output_ms: 4.0 * ms,
            load_ms: ms,
            peak_mb: ms,
            run_ms: ms,
            size_mb: ms,
            compile_ms: None,
            alone_ms: None,
        };
        let peers = vec![(Peer::Ort, theirs.map(side))];
        let model = model.to_owned();
        Row {
            measured: String::new(),
            model,
            threads: 1,
            quantised: false,
            gflop: 1.0,
            peak_gflops: 100.0,
            ours: Ok(side(ours)),
            peers,
        }
    }

    #[test]
    fn losses_and_failures_are_shown() {
        let rows = [
            row("won", 20.0, Ok(80.0)),
            row("lost", 20.0, Ok(10.0)),
            row("odd", 20.0, Err("outputs differ: output 0".into())),
        ];
        let text = tables(&rows, Format::Markdown);
        assert!(text.contains("| ONNX Runtime | 2 of 3 | 1.41 | 1 of 2 | 0.50 (lost) | - |"), "{text}");
        assert!(text.contains("| won | 20.0 | 50.0 | 4.00 |"), "{text}");
        assert!(text.contains("| odd | 20.0 | 50.0 | wrong |"), "{text}");
        assert!(text.contains("- odd, ONNX Runtime: outputs differ: output 0"), "{text}");
        let beaten = |mut row: Row| {
            row.peers.push((Peer::OpenVino, Ok(Side { run_ms: 5.0, ..row.ours.clone().unwrap() })));
            row
        };
        let text = tables(&rows.clone().map(beaten), Format::Markdown);
        assert!(text.contains("| the best of them | 3 of 3 | 0.25 | 0 of 3 | 0.25 ("), "{text}");
        let line = serde_json::to_string(&rows[2]).unwrap();
        assert_eq!(serde_json::from_str::<Row>(&line).unwrap().failure(Peer::Ort), "wrong");
    }
}
