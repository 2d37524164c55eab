//! How close matrix products come to what the processor can do, and how they compare with ONNX Runtime in the same process.
//!
//! `cargo run --release -p numrsc-benches --bin gemm [--threads N] [MxNxK…]`. Each product is a model of a few `MatMul` of one input with weights of their
//! own, so that large weights come from memory as they do in a model. The times are the best of many runs that alternate; on one thread they are times of
//! the processor, so that other programs on the same core do not count.
#![allow(unsafe_code)]
use clap::Parser;
use numrsc::{compile::Options, onnx::import};
use numrsc_benches::{
    driver::{self, Result},
    graphs,
    ort::{Library, Session},
    raw::{self, RawTensor},
    table::{Table, short},
};
use numrsc_runtime::{Context, DType, Model, TensorRef};
use prost::Message;
use std::{
    fs,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

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
const FLOAT: i32 = 1;

#[derive(Parser)]
struct Args {
    /// Rows x columns x depth.
    sizes: Vec<String>,
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// How long each product is measured.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// The shared library of ONNX Runtime.
    #[arg(long)]
    library: Option<PathBuf>,
    #[arg(long)]
    markdown: bool,
}

fn main() -> ExitCode {
    report(&Args::parse()).map_or_else(
        |message| {
            eprintln!("{message}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn report(args: &Args) -> Result<()> {
    let library = Library::open(&args.library.clone().map_or_else(driver::ort_library, Ok)?)?;
    let sizes = match &args.sizes[..] {
        [] => SIZES.to_vec(),
        given => given.iter().map(|text| parse(text)).collect::<Result<_>>()?,
    };
    let mut table =
        Table::new(&["rows x columns x depth", "µs", "GFLOP/s", "% of peak", "GB/s", "ORT % of peak", "ratio"]);
    for [m, n, k] in sizes {
        let count = (WEIGHTS / (n * k * 4)).clamp(1, 4);
        let best = measure(args, &library, [m, n, k], count)?;
        let per_product = |t: Duration| t.as_secs_f64() / count as f64;
        let (ours, theirs) = (per_product(best.ours), per_product(best.ort));
        let work = (2 * m * n * k) as f64 / 1e9;
        let percent = |time: f64| short(100.0 * work / time / (best.peak * args.threads as f64));
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
    table.print(args.markdown);
    Ok(())
}

fn parse(text: &str) -> Result<[i64; 3]> {
    let numbers: Vec<i64> = text.split('x').filter_map(|n| n.parse().ok()).filter(|n| *n > 0).collect();
    numbers.try_into().map_err(|_| format!("`{text}` is not rows x columns x depth, such as 128x768x768"))
}

/// The best times, and the best GFLOP/s of a loop that only multiplies and adds.
struct Best {
    ours: Duration,
    ort: Duration,
    peak: f64,
}

fn measure(args: &Args, library: &Library, [m, n, k]: [i64; 3], count: i64) -> Result<Best> {
    let folder = driver::work_folder("gemm")?;
    let [model, artifact, input] = ["model.onnx", "model.nrsc", "input.raw"].map(|name| folder.join(name));
    fs::write(&model, graphs::products(m, n, k, count).encode_to_vec()).map_err(|e| e.to_string())?;
    driver::compile_file(&model, &import::Options::default(), &Options::default(), &artifact)?;
    let rows: Vec<u8> = (0..m * k).flat_map(|i| ((i % 37) as f32 / 37.0 - 0.5).to_le_bytes()).collect();
    raw::write(&input, FLOAT, &[m as usize, k as usize], &rows)?;
    let inputs = [RawTensor::read(&input)?];

    let ours = Model::load(&artifact).map_err(|e| e.to_string())?;
    let mut context = Context::with_threads(&ours, args.threads).map_err(|e| e.to_string())?;
    let tensors = [TensorRef::raw(DType::F32, inputs[0].bytes(), &inputs[0].shape)];
    let mut ort = Session::new(library, &model, args.threads, &inputs)?;
    let mut best = Best { ours: Duration::MAX, ort: Duration::MAX, peak: 0.0 };
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < args.seconds {
        let now = || if args.threads == 1 { processor_time() } else { start.elapsed() };
        let begin = now();
        ours.run_in_order(&mut context, &tensors).map_err(|e| e.to_string())?;
        best.ours = best.ours.min(now() - begin);
        let begin = now();
        ort.run()?;
        best.ort = best.ort.min(now() - begin);
        best.peak = best.peak.max(peak());
    }
    Ok(best)
}

/// The time for which the processor ran this process. Of virtual machines it may be off by a fraction of a millisecond.
fn processor_time() -> Duration {
    #[repr(C)]
    struct Time {
        seconds: i64,
        nanoseconds: i64,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Time) -> i32;
    }
    const PROCESS: i32 = 2;
    let mut time = Time { seconds: 0, nanoseconds: 0 };
    // SAFETY: this is the C library's structure on all 64-bit Linux, which the corpus's ONNX Runtime is for.
    unsafe { clock_gettime(PROCESS, &raw mut time) };
    Duration::new(time.seconds as u64, time.nanoseconds as u32)
}

/// GFLOP/s of a short loop that only multiplies and adds, in as many independent chains as hide the latency; NaN where it is not known how.
fn peak() -> f64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        const ROUNDS: usize = 20_000;
        let start = Instant::now();
        // SAFETY: the processor has what the function needs.
        let flops = unsafe { fused(ROUNDS) };
        return flops as f64 / 1e9 / start.elapsed().as_secs_f64();
    }
    f64::NAN
}

/// Chains of fused multiply-adds; how many operations that was.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fused(rounds: usize) -> usize {
    use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_set1_ps};
    let (factor, term) = (_mm256_set1_ps(0.5), _mm256_set1_ps(1.0));
    let mut chains = [_mm256_set1_ps(0.0); 12];
    for _ in 0..rounds {
        for chain in &mut chains {
            *chain = _mm256_fmadd_ps(*chain, factor, term);
        }
    }
    std::hint::black_box(chains);
    rounds * chains.len() * 16
}
