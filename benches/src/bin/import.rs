//! How long importing takes beyond reading the file, and how much memory: one process per model.
//!
//! `cargo run --release -p numrsc-benches --bin import [MODEL.onnx …]`; without arguments, the ten largest models of
//! the corpus, which is fetched if need be.
use numrsc::onnx::{self, import};
use std::{
    env, fs,
    io::Read,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    match &args[..] {
        [flag, model] if flag == "--measure" => measure(Path::new(model)),
        models => report(models),
    }
}

fn report(models: &[String]) {
    let models = if models.is_empty() { largest() } else { models.iter().map(PathBuf::from).collect() };
    println!(
        "{:28} {:>9} {:>8} {:>9} {:>9} {:>12} {:>9}",
        "model", "file MB", "nodes", "read ms", "import ms", "anonymous MB", "peak MB"
    );
    for model in models {
        let this = env::current_exe().expect("this program has a path");
        let out = Command::new(this).arg("--measure").arg(&model).output().expect("this program can be started");
        let name = model.parent().and_then(Path::file_name).unwrap_or(model.as_os_str());
        print!("{:28} {}", name.to_string_lossy(), String::from_utf8_lossy(&out.stdout));
        eprint!("{}", String::from_utf8_lossy(&out.stderr));
    }
}

fn largest() -> Vec<PathBuf> {
    let folder = numrsc_tests::corpus::fetch("models").join("models");
    let mut models: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the corpus was fetched")
        .filter_map(|e| e.ok().map(|e| e.path().join("model.onnx")))
        .filter(|p| p.exists())
        .collect();
    models.sort_by_key(|p| std::cmp::Reverse(fs::metadata(p).map_or(0, |m| m.len())));
    models.truncate(10);
    models
}

/// Read the file once through a small buffer (so that both times see a warm file), then import it.
fn measure(model: &Path) {
    let start = Instant::now();
    let mut file = fs::File::open(model).expect("the model can be opened");
    let (mut buffer, mut size) = (vec![0u8; 1 << 20], 0);
    while let Ok(n @ 1..) = file.read(&mut buffer) {
        size += n;
    }
    let read = start.elapsed();
    let start = Instant::now();
    let loaded = onnx::load(model).expect("the model loads");
    let func = import::import(&loaded, &import::Options::default()).expect("the model imports");
    let import = start.elapsed();
    let mb = |kb: Option<u64>| kb.map_or(f64::NAN, |kb| kb as f64 / 1e3);
    println!(
        "{:9.1} {:8} {:9.1} {:9.1} {:12.1} {:9.1}",
        size as f64 / 1e6,
        func.nodes().len(),
        read.as_secs_f64() * 1e3,
        import.as_secs_f64() * 1e3,
        mb(numrsc_benches::status_kb("RssAnon")),
        mb(numrsc_benches::status_kb("VmHWM")),
    );
}
