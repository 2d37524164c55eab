//! Matrix products relative to the peak of the processor, and to ONNX Runtime in the same process.
//!
//! `cargo run --release -p numrsc-benches --bin gemm [--threads N] [MxNxK…]`. Each product is a model of a few `MatMul` of one input with weights of their
//! own, so that large weights come from memory as they do in a model.
use clap::Parser;
use numrsc::compile::Options;
use numrsc_benches::{
    driver::Result,
    exit_code, graphs, side_by_side,
    table::{Table, short},
};
use std::{process::ExitCode, time::Duration};

/// Rows, columns and depth of the layers of transformers, with few rows and many.
const SIZES: [[i64; 3]; 15] = [
    [128, 1536, 384],
    [128, 768, 768],
    [128, 3072, 768],
    [128, 768, 3072],
    [197, 768, 768],
    [197, 3072, 768],
    [197, 768, 3072],
    [8, 1536, 384],
    [16, 1536, 384],
    [32, 1536, 384],
    [8, 3072, 768],
    [32, 3072, 768],
    [1, 1536, 384],
    [2, 1536, 384],
    [4, 1536, 384],
];
/// Bytes of weights of a model, if one product has less.
const WEIGHTS: i64 = 16_000_000;

#[derive(Parser)]
struct Args {
    /// Rows x columns x depth.
    sizes: Vec<String>,
    #[command(flatten)]
    measure: side_by_side::Args,
}

fn main() -> ExitCode {
    exit_code(report(&Args::parse()))
}

fn report(args: &Args) -> Result<()> {
    let library = args.measure.library()?;
    let sizes = match &args.sizes[..] {
        [] => SIZES.to_vec(),
        given => given.iter().map(|text| parse(text)).collect::<Result<_>>()?,
    };
    let mut table =
        Table::new(&["rows x columns x depth", "µs", "GFLOP/s", "% of peak", "GB/s", "ORT % of peak", "ratio"]);
    for [m, n, k] in sizes {
        let count = (WEIGHTS / (n * k * 4)).clamp(1, 4);
        let model = graphs::products(m, n, k, count);
        let best = side_by_side::measure(&args.measure, &library, &model, &[m, k], &[Options::default()])?;
        let per_product = |t: Duration| t.as_secs_f64() / count as f64;
        let (ours, theirs) = (per_product(best.ours[0]), per_product(best.ort));
        let work = (2 * m * n * k) as f64 / 1e9;
        let percent = |time: f64| short(100.0 * work / time / (best.peak * args.measure.threads as f64));
        table.row([
            format!("{m} x {n} x {k}"),
            short(ours * 1e6),
            short(work / ours),
            percent(ours),
            short((n * k * 4) as f64 / 1e9 / ours),
            percent(theirs),
            short(theirs / ours),
        ]);
    }
    table.print(args.measure.format);
    Ok(())
}

fn parse(text: &str) -> Result<[i64; 3]> {
    let numbers: Vec<i64> = text.split('x').filter_map(|n| n.parse().ok()).filter(|n| *n > 0).collect();
    numbers.try_into().map_err(|_| format!("`{text}` is not rows x columns x depth, such as 128x768x768"))
}
