//! Optimised models compute what the models compute. ONNX's checker and ONNX Runtime, with its own optimisations off, judge them.
//!
//! In CI a part of the corpus, with `NUMRSC_LONG=1` all of it.
use numrsc::{
    conformance::{self, Settings},
    onnx::{self, import, write},
    optimize::{For, Options, optimize},
};
use numrsc_passes::Level;
use numrsc_tests::corpus;
use std::{
    fmt::Write as _,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// One or two of each kind.
#[rustfmt::skip]
const SOME: [&str; 16] = [
    "asrpre_kaldi", "credsweeper", "dnsmos_sig_bak_ovr", "gpt2_mini_kv_ts", "khmercut_int8", "llama_tiny_kv_ts",
    "lstm_tagger_ts", "mnist_cntk", "mobilenet_v3_small_ts", "mtcnn_onet", "oww_hey_jarvis", "reachy_fk_int8", "silero_vad_v6",
    "stn_gridsample_ts", "swift_f0", "thai2rom_encoder",
];

/// Name, level, for whom, and whether every bit has to stay.
const WAYS: [(&str, Level, For, &str); 3] = [
    ("O1", Level::O1, For::Onnx, "exact"),
    ("O2", Level::O2, For::Onnx, "close"),
    ("ort", Level::O2, For::Ort, "close"),
];

fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    conformance::find_folders(&corpus::fetch("models").join("models"), &mut folders);
    match (std::env::var("NUMRSC_MODELS"), std::env::var_os("NUMRSC_LONG")) {
        (Ok(only), _) => folders.retain(|f| only.split(',').any(|name| name == conformance::name(f))),
        (_, Some(_)) => {}
        (_, None) => folders.retain(|f| SOME.contains(&conformance::name(f))),
    }
    folders
}

/// Optimise a model, and what came of it again: that changes no byte.
fn make(folder: &Path, file: &Path, level: Level, target: For) -> Result<(), String> {
    let text = |e: numrsc::Error| e.to_string();
    let model = onnx::load(&folder.join("model.onnx")).map_err(text)?;
    let import = import::Options { dims: Settings::of(folder)?.dims, ..import::Options::default() };
    let options = Options { level, target, opset: None, import };
    let done = optimize(&model, &options).map_err(text)?;
    write::write(&done.model, file, &write::Options::default()).map_err(text)?;
    let again = optimize(&onnx::load(file).map_err(text)?, &Options { import: import::Options::default(), ..options });
    let again = again.map_err(text)?;
    let (first, second) =
        (std::fs::read(file).map_err(|e| e.to_string())?, write::to_bytes(&again.model).map_err(text)?);
    if first != second {
        return Err(format!("a second pass changes it: {:?}", again.applied));
    }
    Ok(())
}

#[test]
fn optimised_models_compute_the_same() {
    let folders = folders();
    let made = tempfile::tempdir().expect("a folder");
    let file = |folder: &Path, way: &str| made.path().join(format!("{}.{way}.onnx", conformance::name(folder)));
    let script = corpus::root().join("tests/corpus/optimized.py");
    let judge = Command::new("python3").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut judge = judge.expect("python3 can be started");
    let mut questions = judge.stdin.take().expect("piped");
    let mut answers = BufReader::new(judge.stdout.take().expect("piped")).lines();
    let (mut failed, mut table) = (String::new(), String::new());
    for folder in &folders {
        let name = conformance::name(folder);
        write!(table, "{name}").expect("text");
        for (way, level, target, how) in WAYS {
            let file = file(folder, way);
            let result = make(folder, &file, level, target).and_then(|()| {
                writeln!(questions, "{} {} {how}", folder.display(), file.display()).map_err(|e| e.to_string())?;
                let answer = answers.next().ok_or("the judge is gone")?.map_err(|e| e.to_string())?;
                answer.strip_prefix("ok ").map(str::to_owned).ok_or(answer)
            });
            // Large ones do not fit next to each other.
            let _ = std::fs::remove_file(&file);
            match result {
                Ok(nodes) => write!(table, " {nodes}").expect("text"),
                Err(e) => writeln!(failed, "{name}, {way}: {e}").expect("text"),
            }
        }
        table.push('\n');
    }
    drop(questions);
    judge.wait().expect("ends");
    println!("nodes at {:?}\n{table}", WAYS.map(|w| w.0));
    assert!(failed.is_empty(), "{failed}");
}
