//! The chart of a comparison: a row per model, a panel per peer, bars from 1 to the relative speed on a logarithmic
//! axis.
use crate::{
    peers::Peer,
    results::{self, Row},
    table::short,
};
use std::fmt::Write;

const WIDTH: f64 = 1000.0;
const ROW: f64 = 14.0;
const HEAD: f64 = 92.0;
const FOOT: f64 = 30.0;
const LABELS: f64 = 178.0;
const GAP: f64 = 22.0;
/// The axis: powers of two. What lies outside ends with an arrow and its number.
const LOW: f64 = -2.0;
const HIGH: f64 = 3.0;

const INK: &str = "#24292f";
const PALE: &str = "#6e7781";
const LINE: &str = "#d8dee4";
const FASTER: &str = "#2f7ebc";
const SLOWER: &str = "#dd8452";

/// The bars are of the first number of threads, dots of the second, if there is one.
pub fn svg(rows: &[Row]) -> String {
    let (peers, counts) = (results::peers(rows), results::thread_counts(rows));
    let at = |threads: usize| rows.iter().filter(move |row| row.threads == threads);
    let mut bars: Vec<&Row> = counts.first().map_or(vec![], |&threads| at(threads).collect());
    // Sorted by the speed relative to the first peer, best first; quantised models apart.
    let key = |row: &Row| (row.quantised, -peers.first().and_then(|&p| row.speed(p)).unwrap_or(0.0));
    bars.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
    let floats = bars.iter().filter(|row| !row.quantised).count();
    let group = if floats < bars.len() && floats > 0 { ROW } else { 0.0 };
    let y = |i: usize| HEAD + ROW * i as f64 + if i >= floats { group } else { 0.0 };
    let bottom = y(bars.len());
    let mut picture = Picture::new(bottom + FOOT);
    let threads = |n: usize| format!("{n} thread{}", if n == 1 { "" } else { "s" });
    let dots = counts.get(1).map_or(String::new(), |&n| format!(", dots {}", threads(n)));
    let bars_of = counts.first().map_or(String::new(), |&n| threads(n));
    picture.text(0.0, 18.0, "start", INK, 15.0, "600", "Speed of numrsc relative to other engines");
    picture.text(0.0, 35.0, "start", PALE, 11.0, "400", &format!("bars {bars_of}{dots}; right of 1× we are faster"));
    for (i, row) in bars.iter().enumerate() {
        picture.text(LABELS - 8.0, y(i) + 10.5, "end", INK, 10.5, "400", &row.model);
    }
    if group > 0.0 {
        picture.text(LABELS - 8.0, y(floats) - 3.0, "end", PALE, 10.0, "600", "quantised");
    }
    let width = (WIDTH - LABELS) / peers.len().max(1) as f64;
    for (p, &peer) in peers.iter().enumerate() {
        let panel = Panel { left: LABELS + width * p as f64, width: width - GAP };
        panel.frame(&mut picture, peer, &bars, bottom);
        for (i, row) in bars.iter().enumerate() {
            panel.bar(&mut picture, row, peer, y(i));
            let second = counts.get(1).and_then(|&n| at(n).find(|other| other.model == row.model));
            if let Some(ratio) = second.and_then(|row| row.speed(peer)) {
                picture.circle(panel.x(ratio), y(i) + ROW / 2.0);
            }
        }
    }
    picture.text += "</svg>\n";
    picture.text
}

/// The panel of a peer.
struct Panel {
    left: f64,
    width: f64,
}

impl Panel {
    fn x(&self, ratio: f64) -> f64 {
        self.left + self.width * ((ratio.log2() - LOW) / (HIGH - LOW)).clamp(0.0, 1.0)
    }

    /// Name, mean, and axis.
    fn frame(&self, picture: &mut Picture, peer: Peer, rows: &[&Row], bottom: f64) {
        let all: Vec<f64> = rows.iter().filter(|row| !row.quantised).filter_map(|row| row.speed(peer)).collect();
        picture.text(self.left, 58.0, "start", INK, 12.0, "600", peer.title());
        let mean = results::geometric_mean(all.iter().copied());
        let won = all.iter().filter(|ratio| **ratio > 1.0).count();
        let colour = if mean < 1.0 { SLOWER } else { FASTER };
        picture.text(self.left, 76.0, "start", colour, 15.0, "600", &format!("{}×", short(mean)));
        let count = format!("faster on {won} of {}", all.len());
        picture.text(self.left + 58.0, 76.0, "start", PALE, 10.0, "400", &count);
        for power in LOW as i32..=HIGH as i32 {
            let (x, colour) = (self.x(2f64.powi(power)), if power == 0 { INK } else { LINE });
            picture.line(x, HEAD - 4.0, bottom, colour);
            let label = if power < 0 { format!("1/{}", 1 << -power) } else { format!("{}×", 1 << power) };
            let anchor = if power == LOW as i32 {
                "start"
            } else if power == HIGH as i32 {
                "end"
            } else {
                "middle"
            };
            picture.text(x, bottom + 14.0, anchor, PALE, 9.5, "400", &label);
        }
    }

    fn bar(&self, picture: &mut Picture, row: &Row, peer: Peer, y: f64) {
        let Some(ratio) = row.speed(peer) else {
            return picture.text(self.x(1.0) + 5.0, y + 10.5, "start", PALE, 9.0, "400", row.failure(peer));
        };
        let (one, end) = (self.x(1.0), self.x(ratio));
        let colour = if ratio < 1.0 { SLOWER } else { FASTER };
        picture.rect(one.min(end), y + 2.5, (end - one).abs().max(1.0), ROW - 5.0, colour);
        let outside = ratio.log2() > HIGH || ratio.log2() < LOW;
        if outside {
            let (x, anchor) = if ratio > 1.0 { (end - 4.0, "end") } else { (end + 4.0, "start") };
            picture.text(x, y + 10.0, anchor, "#ffffff", 8.5, "600", &format!("{}×", short(ratio)));
        }
    }
}

struct Picture {
    text: String,
}

impl Picture {
    fn new(height: f64) -> Picture {
        let fonts = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif";
        let (w, h) = (WIDTH + 24.0, height + 20.0);
        Picture {
            text: format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-12 -6 {w} {h}\" width=\"{w}\" height=\"{h}\" font-family=\"{fonts}\">\n\
                 <rect x=\"-12\" y=\"-6\" width=\"{w}\" height=\"{h}\" fill=\"#ffffff\"/>\n"
            ),
        }
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{element}").expect("a text takes everything");
    }

    #[expect(clippy::too_many_arguments, reason = "what a text is in SVG")]
    fn text(&mut self, x: f64, y: f64, anchor: &str, colour: &str, size: f64, weight: &str, text: &str) {
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\" font-size=\"{size}\" font-weight=\"{weight}\">{text}</text>"
        ));
    }

    fn line(&mut self, x: f64, top: f64, bottom: f64, colour: &str) {
        self.put(format_args!(
            "<line x1=\"{x:.1}\" y1=\"{top:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"{colour}\" stroke-width=\"0.8\"/>"
        ));
    }

    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, colour: &str) {
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        ));
    }

    fn circle(&mut self, x: f64, y: f64) {
        self.put(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.2\" fill=\"{INK}\" stroke=\"#ffffff\" stroke-width=\"0.7\"/>"
        ));
    }
}
