//! Runs a module compiled by IREE with the programs of its wheel and reports times; see `numrsc_benches::protocol`.
//!
//! IREE's wheel has no shared library with a C interface. So the first output comes from `iree-run-module`, counted until that process ends, and the time of
//! a run is that of `iree-benchmark-module`. How long a module loads is not known.
use numrsc_benches::{
    exit_code,
    memory::children_peak_kb,
    npy,
    protocol::{Job, disk_read_kb, say_first, say_report},
    raw,
};
use numrsc_runtime::DType;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

fn main() -> ExitCode {
    exit_code(run(Instant::now()))
}

fn run(start: Instant) -> Result<(), String> {
    let job = Job::from_args()?;
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let inputs = inputs(&job, folder.path())?;
    let text = printed(program(&job, "iree-run-module", &inputs).arg("--output_max_element_count=1"))?;
    let first_output = start.elapsed();
    say_first()?;
    let (first_peak, disk_read) = (children_peak_kb(), disk_read_kb().unwrap_or(0));
    let results = text.lines().filter(|line| line.starts_with("result[")).count();
    let function = text.lines().find_map(|line| line.strip_prefix("EXEC @")).ok_or("the module has no function")?;
    if let Some(to) = &job.outputs {
        write_outputs(&job, &inputs, results, folder.path(), to)?;
    }
    let mut benchmark = program(&job, "iree-benchmark-module", &inputs);
    benchmark.arg(format!("--function={function}"));
    // Several means instead of one, of which the driver takes the median: other work on the machine affects few of
    // them.
    let means = (job.seconds / first_output.as_secs_f64()).clamp(1.0, job.runs.max(1) as f64).floor();
    benchmark.arg(format!("--benchmark_repetitions={means}"));
    benchmark.arg(format!("--benchmark_min_time={}s", job.seconds / means)).arg("--benchmark_format=json");
    let text = printed(&mut benchmark)?;
    let report: Value = serde_json::from_str(&text).map_err(|e| format!("iree-benchmark-module: {e}"))?;
    let single = |entry: &&Value| entry["run_type"] == "iteration";
    let times = report["benchmarks"].as_array().into_iter().flatten().filter(single);
    let runs: Vec<Duration> = times
        .filter_map(|entry| entry["real_time"].as_f64())
        .map(|milliseconds| Duration::from_secs_f64(milliseconds / 1e3))
        .collect();
    let sizes = [("first_peak_kb", first_peak), ("peak_kb", children_peak_kb()), ("disk_read_kb", disk_read)];
    say_report(&[("first_output", first_output)], &sizes, &runs)
}

/// A program of IREE with the module, its inputs, and the number of threads.
fn program(job: &Job, name: &str, inputs: &[String]) -> Command {
    let mut command = Command::new(job.library.join(name));
    command.arg(format!("--module={}", job.model.display())).args(inputs);
    match job.threads {
        1 => command.arg("--device=local-sync"),
        n => command.arg("--device=local-task").arg(format!("--task_topology_max_group_count={n}")),
    };
    command
}

/// The inputs as arguments: shape, element type, and a file with the elements alone.
fn inputs(job: &Job, folder: &Path) -> Result<Vec<String>, String> {
    let argument = |(i, tensor): (usize, raw::RawTensor)| -> Result<String, String> {
        let path = folder.join(format!("{i}.bin"));
        fs::write(&path, tensor.bytes()).map_err(|e| format!("{}: {e}", path.display()))?;
        let element = match DType::from_onnx(tensor.onnx_type) {
            Some(DType::Bool) => "i1",
            Some(DType::F16) => "f16",
            Some(DType::F32) => "f32",
            Some(DType::F64) => "f64",
            Some(DType::I8 | DType::U8) => "i8",
            Some(DType::I16 | DType::U16) => "i16",
            Some(DType::I32 | DType::U32) => "i32",
            Some(DType::I64 | DType::U64) => "i64",
            _ => return Err(format!("input {i} has an unknown element type")),
        };
        let shape: String = tensor.shape.iter().map(|size| format!("{size}x")).collect();
        Ok(format!("--input={shape}{element}=@{}", path.display()))
    };
    job.read_inputs()?.into_iter().enumerate().map(argument).collect()
}

/// Runs once more, because only a run tells how many results there are.
fn write_outputs(job: &Job, inputs: &[String], results: usize, folder: &Path, to: &Path) -> Result<(), String> {
    let files: Vec<PathBuf> = (0..results).map(|i| folder.join(format!("{i}.npy"))).collect();
    let arguments = files.iter().map(|path| format!("--output=@{}", path.display()));
    printed(program(job, "iree-run-module", inputs).args(arguments))?;
    for (i, path) in files.iter().enumerate() {
        let file = fs::read(path).map_err(|e| format!("output {i}: {e}"))?;
        let (dtype, shape, bytes) = npy::parse(&file).map_err(|e| format!("output {i}: {e}"))?;
        raw::write(&to.join(format!("output_{i}.raw")), dtype.onnx(), &shape, bytes)?;
    }
    Ok(())
}

fn printed(command: &mut Command) -> Result<String, String> {
    let out = command.output().map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    if !out.status.success() {
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        return Err(if errors.trim().is_empty() { out.status.to_string() } else { errors });
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
