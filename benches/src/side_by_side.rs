//! One model compiled in several ways, next to ONNX Runtime in the same process, to measure kernels rather than models.
//! Times are the best of many alternating runs; on one thread they are CPU times, so that other programs on the same
//! core do not count.
#![allow(unsafe_code)]
use crate::{
    driver::{self, Result},
    flops,
    ort::{Library, Session},
    raw::{self, RawTensor},
    table::Format,
};
use numrsc::{
    compile::Options,
    onnx::{import, proto::ModelProto},
};
use numrsc_runtime::{Context, DType, Model, TensorRef};
use prost::Message;
use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

const FLOAT: i32 = 1;

/// How to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// How long each row of the table is measured.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// The shared library of ONNX Runtime.
    #[arg(long)]
    pub library: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

impl Args {
    pub fn library(&self) -> Result<Library> {
        Library::open(&self.library.clone().map_or_else(driver::ort_library, Ok)?)
    }
}

/// The best times, ours in the order of the options, and the best GFLOP/s of a loop that only multiplies and adds.
#[derive(Debug)]
pub struct Best {
    pub ours: Vec<Duration>,
    pub ort: Duration,
    pub peak: f64,
}

/// Measures a model with one float input.
pub fn measure(args: &Args, library: &Library, model: &ModelProto, shape: &[i64], ways: &[Options]) -> Result<Best> {
    let folder = driver::work_folder("side-by-side")?;
    let [file, input] = ["model.onnx", "input.raw"].map(|name| folder.join(name));
    fs::write(&file, model.encode_to_vec()).map_err(|e| e.to_string())?;
    let data: Vec<u8> =
        (0..shape.iter().product::<i64>()).flat_map(|i| ((i % 37) as f32 / 37.0 - 0.5).to_le_bytes()).collect();
    let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
    raw::write(&input, FLOAT, &shape, &data)?;
    let inputs = [RawTensor::read(&input)?];
    let tensors = [TensorRef::raw(DType::F32, inputs[0].bytes(), &inputs[0].shape)];

    let load = |(number, options): (usize, &Options)| {
        let artifact = folder.join(format!("{number}.nrsc"));
        driver::compile_file(&file, &import::Options::default(), options, &artifact)?;
        let model = Model::load(&artifact).map_err(|e| e.to_string())?;
        let context = Context::with_threads(&model, args.threads).map_err(|e| e.to_string())?;
        Ok((model, context))
    };
    let mut ours: Vec<(Model, Context)> = ways.iter().enumerate().map(load).collect::<Result<_>>()?;
    let mut ort = Session::new(library, &file, args.threads, &inputs)?;
    let mut best = Best { ours: vec![Duration::MAX; ways.len()], ort: Duration::MAX, peak: 0.0 };
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < args.seconds {
        let now = || if args.threads == 1 { processor_time() } else { start.elapsed() };
        for ((model, context), best) in ours.iter_mut().zip(&mut best.ours) {
            let begin = now();
            model.run_in_order(context, &tensors).map_err(|e| e.to_string())?;
            *best = (*best).min(now() - begin);
        }
        let begin = now();
        ort.run()?;
        best.ort = best.ort.min(now() - begin);
        best.peak = best.peak.max(flops::peak());
    }
    Ok(best)
}

/// The CPU time of this process. On virtual machines it may be off by a fraction of a millisecond.
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
