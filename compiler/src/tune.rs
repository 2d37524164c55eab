//! Measured schedules, and the file that keeps them: with the file, nothing is measured, and the same model gives the
//! same bytes.
use crate::{
    Error, Result,
    compile::{self, Codegen, Options},
    native,
    output::files::write_file,
};
use numrsc_ir::{Data, Dim, Func, Tensor};
use numrsc_passes::{Candidates, Level, Tuning};
use numrsc_runtime::{Context, Model};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

/// How long the schedules of a shape are measured, and how often at least.
const SECONDS: f64 = 0.2;
const ROUNDS: usize = 7;
/// Another schedule must take at most this share of the time of the cheapest by cost.
const WORTH: f64 = 0.97;

/// The contents of a tuning file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// The target and the options that schedules depend on.
    machine: String,
    /// Schedules by shape.
    schedules: Tuning,
}

/// The tuning for a model, and how many shapes had to be measured.
#[derive(Debug)]
pub struct Tuned {
    pub tuning: Arc<Tuning>,
    pub file: PathBuf,
    pub measured: usize,
}

/// Reads the schedules of a model's shapes from a file. Missing ones are measured now and added to it.
pub fn tune(func: &Func, codegen: &Codegen, options: &Options, file: &Path) -> Result<Tuned> {
    let machine = machine(codegen, options);
    let kept = read(file, &machine)?;
    let is_new = kept.is_none();
    let mut tuning = kept.unwrap_or_default();
    let known = options.clone().with(|o| o.tuning = Some(Arc::new(tuning.clone())));
    let mut measured = 0;
    for choice in compile::lower(func, codegen, &known, &mut vec![])?.choices {
        match tuning.get(&choice.shape) {
            Some(schedule) if choice.schedules.contains(schedule) => continue,
            Some(schedule) => {
                let there_are = choice.schedules.join(", ");
                let message = format!("`{schedule}` is no schedule of {}; there are {there_are}", choice.shape);
                return Err(decode(file, message));
            }
            None => {}
        }
        let schedule =
            fastest(&choice, options).map_err(|e| Error::Codegen(format!("measuring {}: {e}", choice.shape)))?;
        tuning.insert(choice.shape, schedule);
        measured += 1;
    }
    if measured > 0 || is_new {
        let content = File { machine, schedules: tuning.clone() };
        let text = serde_json::to_string_pretty(&content).map_err(|e| Error::Codegen(e.to_string()))? + "\n";
        write_file(file, |to| io::Write::write_all(to, text.as_bytes()))?;
    }
    Ok(Tuned { tuning: Arc::new(tuning), file: file.to_owned(), measured })
}

/// Everything that schedules depend on, besides shapes.
fn machine(codegen: &Codegen, options: &Options) -> String {
    let target = codegen.backend.target();
    let (name, tolerance, sanitize) = (codegen.backend.name(), options.passes.tolerance, options.passes.sanitize);
    format!("{name}, {}, {}, tolerance {tolerance:e}, sanitize {sanitize}", target.triple, target.cpu)
}

fn decode(file: &Path, message: String) -> Error {
    Error::Decode { file: file.to_owned(), message, hint: None }
}

/// What a file has, if there is one.
fn read(file: &Path, machine: &str) -> Result<Option<Tuning>> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Io { file: file.to_owned(), source }),
    };
    let content: File =
        serde_json::from_str(&text).map_err(|e| decode(file, format!("no schedules by `--tune`: {e}")))?;
    match content.machine == machine {
        true => Ok(Some(content.schedules)),
        false => Err(decode(file, format!("has schedules for `{}`, but this is `{machine}`", content.machine))),
    }
}

/// The schedule with the best time; schedules run alternately, on one thread.
fn fastest(choice: &Candidates, options: &Options) -> std::result::Result<String, String> {
    let load = |schedule: &String| {
        let tuning = Tuning::from([(choice.shape.clone(), schedule.clone())]);
        // The function is what lowering saw: no other pass may change it.
        let options = options.clone().with(|o| (o.level, o.tuning) = (Level::O0, Some(Arc::new(tuning))));
        let model = native::load(&choice.func, &options)?;
        let context = Context::with_threads(&model, 1).map_err(|e| e.to_string())?;
        Ok((model, context, Duration::MAX))
    };
    let mut all: Vec<(Model, Context, Duration)> =
        choice.schedules.iter().map(load).collect::<std::result::Result<_, String>>()?;
    let inputs = inputs(&choice.func)?;
    native::with_inputs(&inputs, |tensors| {
        let start = Instant::now();
        let rounds = (0..).take_while(|round| *round < ROUNDS || start.elapsed().as_secs_f64() < SECONDS);
        for _ in rounds {
            for (model, context, best) in &mut all {
                let start = Instant::now();
                model.run_in_order(context, tensors).map_err(|e| e.to_string())?;
                *best = (*best).min(start.elapsed());
            }
        }
        Ok::<(), String>(())
    })??;
    let times: Vec<f64> = all.iter().map(|(.., best)| best.as_secs_f64()).collect();
    let best = (0..times.len()).min_by(|a, b| times[*a].total_cmp(&times[*b])).unwrap_or(0);
    let best = if times[best] < WORTH * times[0] { best } else { 0 };
    Ok(choice.schedules[best].clone())
}

/// Values that are neither zero nor tiny, for every parameter; open sizes are typical ones.
fn inputs(func: &Func) -> std::result::Result<Vec<Data>, String> {
    let sizes = native::example_sizes(func.params().into_iter().map(|p| func.ty(p)));
    let input = |param| {
        let ty = func.ty(param).as_tensor().map_err(|e| e.to_string())?;
        let size = |d: &Dim| usize::try_from(d.eval(&|s| sizes.get(&**s).copied())?).ok();
        let shape: Option<Vec<usize>> = ty.shape.iter().map(size).collect();
        let shape = shape.ok_or("its sizes are known at run time only")?;
        let numbers: Vec<f32> = (0..shape.iter().product()).map(|i: usize| (i % 37) as f32 / 37.0 - 0.5).collect();
        Ok(Data::Tensor(Tensor::from_f32(&shape, &numbers)))
    };
    func.params().into_iter().map(input).collect()
}
