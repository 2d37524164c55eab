//! The `numrsc` command.
use std::path::{Path, PathBuf};

fn folders(dir: &Path, out: &mut Vec<PathBuf>) {
    if dir.join("model.onnx").exists() {
        out.push(dir.to_path_buf());
        return;
    }
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).filter(|p| p.is_dir()).collect();
    paths.sort();
    paths.iter().for_each(|p| folders(p, out));
}

fn main() {
    let (mut passed, mut failed) = (0, 0);
    for dir in std::env::args().skip(2) {
        let mut all = Vec::new();
        folders(Path::new(&dir), &mut all);
        for f in all {
            match numrsc::conformance::run_folder(&f, &numrsc::conformance::Reference, Default::default()) {
                Ok(()) => passed += 1,
                Err(e) => {
                    failed += 1;
                    println!("FAIL {}: {e}", f.file_name().unwrap_or_default().to_string_lossy());
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed, 0 skipped");
}
