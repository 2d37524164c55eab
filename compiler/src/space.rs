//! Space on disks and in memory, checked before minutes are spent on a result that cannot be stored.
use crate::{Error, Result};
use std::{fs, io, path::Path};

/// Refuses to write a file larger than the free space, if that is known.
pub fn check_disk(path: &Path, bytes: u64) -> Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Devices and pipes store nothing.
    if path.metadata().is_ok_and(|is| !is.is_file()) {
        return Ok(());
    }
    match free_disk(folder) {
        Some(free) if free < bytes => {
            let message = format!("this takes {}, and {} are left on the disk", human_bytes(bytes), human_bytes(free));
            Err(Error::Io { file: path.to_owned(), source: io::Error::new(io::ErrorKind::StorageFull, message) })
        }
        _ => Ok(()),
    }
}

/// Refuses work that needs more memory than is left.
pub fn check_memory(what: &Path, bytes: u64) -> Result<()> {
    let Some((free, limit)) = free_memory().filter(|(free, _)| *free < bytes) else { return Ok(()) };
    let message = format!("this takes {} of memory, and {} are left ({limit})", human_bytes(bytes), human_bytes(free));
    Err(Error::Io { file: what.to_owned(), source: io::Error::new(io::ErrorKind::OutOfMemory, message) })
}

#[cfg(target_os = "linux")]
fn free_disk(folder: &Path) -> Option<u64> {
    let about = rustix::fs::statvfs(folder).ok()?;
    about.f_bavail.checked_mul(about.f_frsize)
}

#[cfg(not(target_os = "linux"))]
fn free_disk(_: &Path) -> Option<u64> {
    None
}

/// The smaller of the machine's memory and the limit of this process, and which of them it is. `None` if the system
/// does not tell.
fn free_memory() -> Option<(u64, &'static str)> {
    let [limits, status, machine] =
        ["self/limits", "self/status", "meminfo"].map(|name| fs::read_to_string(Path::new("/proc").join(name)).ok());
    let (limits, status, machine) = (limits?, status?, machine?);
    free_of(&limits, &status, &machine)
}

fn human_bytes(bytes: u64) -> String {
    if bytes < 10_000_000_000 {
        format!("{:.1} MB", bytes as f64 / 1e6)
    } else {
        format!("{:.1} GB", bytes as f64 / 1e9)
    }
}

/// By the text of the three files.
fn free_of(limits: &str, status: &str, machine: &str) -> Option<(u64, &'static str)> {
    let number = |text: &str| text.split_whitespace().next()?.parse::<u64>().ok();
    let after = |text: &str, name: &str| number(text.lines().find_map(|line| line.strip_prefix(name))?);
    let left = |limit: &str, used: &str| {
        Some(after(limits, limit)?.saturating_sub(after(status, used).unwrap_or(0).saturating_mul(1024)))
    };
    let all = [
        (left("Max data size", "VmData:"), "the limit of data"),
        (left("Max address space", "VmSize:"), "the limit of addresses"),
        (after(machine, "MemAvailable:").map(|kilobytes| kilobytes.saturating_mul(1024)), "of the machine"),
    ];
    all.into_iter().filter_map(|(free, limit)| Some((free?, limit))).min_by_key(|(free, _)| *free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_all_limits_counts() {
        let limits = |data: &str, addresses: &str| {
            format!(
                "Limit  Soft Limit  Hard Limit  Units\nMax data size  {data}  unlimited  bytes\nMax address space  {addresses}  unlimited  bytes\n"
            )
        };
        let status = "VmSize:\t 1000 kB\nVmData:\t 500 kB\n";
        let machine = "MemTotal: 9000 kB\nMemAvailable:  4000 kB\n";
        let free = |data, addresses| free_of(&limits(data, addresses), status, machine).unwrap();
        assert_eq!(free("unlimited", "unlimited"), (4000 * 1024, "of the machine"));
        assert_eq!(free("2048000", "unlimited"), (2_048_000 - 500 * 1024, "the limit of data"));
        assert_eq!(free("unlimited", "1024000"), (0, "the limit of addresses"));
        assert_eq!(free_of("", "", ""), None);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        check_disk(&path, 1).unwrap();
        check_memory(&path, 1).unwrap();
        if cfg!(target_os = "linux") {
            let error = check_disk(&path, 1 << 62).unwrap_err().to_string();
            assert!(error.contains("out: this takes 4") && error.contains("left on the disk"), "{error}");
            let error = check_memory(&path, 1 << 62).unwrap_err().to_string();
            assert!(error.contains("of memory, and "), "{error}");
        }
    }
}
