//! Convolutions relative to the peak of the processor, and to ONNX Runtime in the same process.
//!
//! `cargo run --release -p numrsc-benches --bin conv [--threads N] [PART OF A NAME…]`. Each row is a model of a few equal layers (convolution, bias, ReLU), one after
//! the other, so that conversions at its ends do not count much and layers find their operand where the one before left it. Winograd's algorithm does less
//! than it is counted for and may be above 100 %.
use clap::Parser;
use numrsc::compile::Options;
use numrsc_benches::{
    driver::Result,
    exit_code, flops,
    graphs::{self, Layer},
    side_by_side,
    table::{Table, short},
};
use std::{process::ExitCode, time::Duration};

#[derive(Parser)]
struct Args {
    /// Only rows whose name has one of these in it.
    names: Vec<String>,
    #[command(flatten)]
    measure: side_by_side::Args,
}

/// Tolerances that admit no Winograd, F(2x2, 3x3), and also F(4x4, 3x3), which is used where it should be faster.
const TOLERANCES: [f64; 3] = [0.0, 1e-6, 2e-5];

struct Row {
    name: &'static str,
    size: i64,
    layers: Vec<Layer>,
}

/// The layers of ResNet-50 and of MobileNet.
fn rows() -> Vec<Row> {
    let layer = |window: i64, from: i64, to: i64| Layer { channels: [from, to], groups: 1, window, stride: 1 };
    let same = |name, window, channels, size| Row { name, size, layers: vec![layer(window, channels, channels); 8] };
    let there_and_back = |name, narrow: i64, wide: i64, size| Row {
        name,
        size,
        layers: [layer(1, narrow, wide), layer(1, wide, narrow)].repeat(4),
    };
    let depthwise = |name, channels: i64, size| {
        let layer = Layer { groups: channels, ..layer(3, channels, channels) };
        Row { name, size, layers: vec![layer; 16] }
    };
    vec![
        same("3x3 64@56²", 3, 64, 56),
        same("3x3 128@28²", 3, 128, 28),
        same("3x3 256@14²", 3, 256, 14),
        same("3x3 512@7²", 3, 512, 7),
        there_and_back("1x1 64, 256@56²", 64, 256, 56),
        there_and_back("1x1 128, 512@28²", 128, 512, 28),
        there_and_back("1x1 256, 1024@14²", 256, 1024, 14),
        there_and_back("1x1 512, 2048@7²", 512, 2048, 7),
        // Few output channels at the end: converting many would distort the result.
        Row {
            name: "7x7 stride 2 stem",
            size: 224,
            layers: vec![Layer { stride: 2, ..layer(7, 3, 64) }, layer(1, 64, 8)],
        },
        depthwise("depthwise 3x3 32@112²", 32, 112),
        depthwise("depthwise 3x3 144@56²", 144, 56),
        depthwise("depthwise 3x3 384@14²", 384, 14),
        depthwise("depthwise 3x3 960@7²", 960, 7),
    ]
}

fn main() -> ExitCode {
    exit_code(report(&Args::parse()))
}

fn report(args: &Args) -> Result<()> {
    let library = args.measure.library()?;
    let mut table = Table::new(&[
        "layer",
        "µs per layer",
        "direct, % of peak",
        "by default",
        "tolerance 2e-5",
        "% of copying",
        "ORT, % of peak",
        "ratio",
        "ratio at 2e-5",
    ]);
    let wanted = |row: &Row| args.names.is_empty() || args.names.iter().any(|n| row.name.contains(n.as_str()));
    for row in rows().into_iter().filter(wanted) {
        let has_winograd = row.layers.iter().all(|l| l.window == 3 && l.groups == 1);
        let is_depthwise = row.layers.iter().all(|l| l.groups > 1);
        let tolerances = if has_winograd { &TOLERANCES[..] } else { &TOLERANCES[..1] };
        let ways: Vec<Options> =
            tolerances.iter().map(|&tolerance| Options::default().with(|o| o.tolerance = tolerance)).collect();
        let shape = [1, row.layers[0].channels[0], row.size, row.size];
        let model = graphs::layers(&row.layers, row.size);
        let best = side_by_side::measure(&args.measure, &library, &model, &shape, &ways)?;

        let (work, bytes) = work(&row);
        let times: Vec<f64> = best.ours.iter().map(Duration::as_secs_f64).collect();
        let percent = |time: f64| short(100.0 * work / time / (best.peak * args.measure.threads as f64));
        let way = |i: usize| times.get(i).map_or(String::new(), |&time| percent(time));
        let default = times.get(1).unwrap_or(&times[0]);
        let theirs = best.ort.as_secs_f64();
        let copying = || {
            let plane = shape.iter().product::<i64>() as usize * 4;
            short(100.0 * bytes / default / flops::copying(plane))
        };
        table.row([
            row.name.to_owned(),
            short(default * 1e6 / row.layers.len() as f64),
            way(0),
            way(1),
            way(2),
            if is_depthwise { copying() } else { String::new() },
            percent(theirs),
            short(theirs / default),
            times.get(2).map_or(String::new(), |time| short(theirs / time)),
        ]);
    }
    table.print(args.measure.format);
    Ok(())
}

/// 10⁹ operations, and 10⁹ bytes of operands and results.
fn work(row: &Row) -> (f64, f64) {
    let (mut size, mut work, mut bytes) = (row.size, 0, 0);
    for layer in &row.layers {
        let [from, to] = layer.channels;
        let operand = from * size * size;
        size /= layer.stride;
        work += 2 * to * size * size * from / layer.groups * layer.window * layer.window;
        bytes += 4 * (operand + to * size * size);
    }
    (work as f64 / 1e9, bytes as f64 / 1e9)
}
