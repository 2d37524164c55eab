//! The page with the results, `docs/benchmarks.md`, in which comments mark what programs write.
use std::{fs, path::PathBuf, process::Command};

/// A file of the documentation.
pub fn path(name: &str) -> PathBuf {
    numrsc_tests::corpus::root().join("docs").join(name)
}

/// Put a text in the place of a block.
pub fn replace(block: &str, text: &str) -> Result<(), String> {
    let path = path("benchmarks.md");
    let document = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let (begin, end) = (format!("<!-- begin: {block} -->\n"), format!("<!-- end: {block} -->"));
    let missing = || format!("{} has no block `{block}`", path.display());
    let (before, rest) = document.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    fs::write(&path, format!("{before}{begin}{text}{end}{after}")).map_err(|e| format!("{}: {e}", path.display()))
}

/// When and on what something is measured, and how busy that is.
pub fn circumstances() -> Result<String, String> {
    let out = Command::new("date").arg("+%Y-%m-%d").output().map_err(|e| e.to_string())?;
    Ok(format!("{}, {}", String::from_utf8_lossy(&out.stdout).trim(), machine()))
}

/// The processor, how many threads it runs, and how busy it was.
fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(':'));
    let threads = std::thread::available_parallelism().map_or(0, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().nth(2).unwrap_or("unknown");
    let name = name.map_or("an unknown processor", |(_, name)| name.trim());
    format!("{name} with {threads} threads, load average of the last 15 minutes {load}")
}
