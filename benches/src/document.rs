//! Where results are published: data files in `benches/results`, headlines between marks in the pages of `docs`.
use crate::table::Format;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A page or picture of the documentation.
pub fn page(name: &str) -> PathBuf {
    numrsc_tests::corpus::root().join("docs").join(name)
}

/// Writes the data file of a benchmark: what was measured where, then tables of tab-separated values.
pub fn write_data(benchmark: &str, measured: &str, tables: &str) -> Result<(), String> {
    let path = numrsc_tests::corpus::root().join("benches/results").join(format!("{benchmark}.tsv"));
    let text = Format::Tsv.note(&format!("Measured on {measured}.")) + tables;
    fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Writes the headlines of a benchmark into a page, between the comments that mark its block.
pub fn write_headlines(page: &Path, benchmark: &str, measured: &str, headlines: &str) -> Result<(), String> {
    let data = format!("Measured on {measured}:\n[{benchmark}.tsv](../benches/results/{benchmark}.tsv).\n");
    let text = format!("{data}\n{}\n", headlines.trim_end());
    let document = fs::read_to_string(page).map_err(|e| format!("{}: {e}", page.display()))?;
    let document = replace_block(&document, benchmark, &text)
        .ok_or_else(|| format!("{} has no block `{benchmark}`", page.display()))?;
    fs::write(page, document).map_err(|e| format!("{}: {e}", page.display()))
}

/// None if the document has no such block.
fn replace_block(document: &str, block: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- begin: {block} -->\n"), format!("<!-- end: {block} -->"));
    let (before, rest) = document.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{text}{end}{after}"))
}

/// Date, machine and load of a measurement.
pub fn circumstances() -> Result<String, String> {
    let out = Command::new("date").arg("+%Y-%m-%d").output().map_err(|e| e.to_string())?;
    Ok(format!("{}, {}", String::from_utf8_lossy(&out.stdout).trim(), machine()))
}

/// The processor, its number of threads, and the load average.
fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(':'));
    let threads = std::thread::available_parallelism().map_or(0, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().nth(2).unwrap_or("unknown");
    let name = name.map_or("an unknown processor", |(_, name)| name.trim());
    format!("{name} with {threads} threads, load average of the last 15 minutes {load}")
}

#[cfg(test)]
mod tests {
    use super::replace_block;

    #[test]
    fn only_the_marked_block_changes() {
        let page = "head\n<!-- begin: a -->\nold\n<!-- end: a -->\n<!-- begin: b -->\nkept\n<!-- end: b -->\n";
        let want = page.replace("old", "new");
        assert_eq!(replace_block(page, "a", "new\n"), Some(want));
        assert_eq!(replace_block(page, "c", "new\n"), None);
    }
}
