//! The cache of compiled functions on disk, keyed by a hash of everything their code depends on.
//!
//! A file that is not what was written there is as good as none: it is ignored and written again. When all files together take more than
//! [`LIMIT`] bytes, the oldest make way.
use crate::{Backend, Code, Error, Link, LinkKind, Result};
use numrsc_ir::kernel::FuncId;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Size limit of a cache after a compilation, in bytes.
pub(crate) const LIMIT: u64 = 1 << 30;

const MAGIC: &[u8; 8] = b"nrscode1";

/// All kinds of links, by their number in files.
const KINDS: [LinkKind; 7] = [
    LinkKind::Pc32,
    LinkKind::Branch26,
    LinkKind::Page21,
    LinkKind::Low12,
    LinkKind::PcHigh20Low12,
    LinkKind::PcHigh20,
    LinkKind::PcLow12,
];

#[derive(Debug)]
pub(crate) struct Cache {
    directory: PathBuf,
}

impl Cache {
    pub(crate) fn open(directory: &Path) -> Result<Cache> {
        let cache = Cache { directory: directory.to_owned() };
        std::fs::create_dir_all(directory).map_err(|e| cache.error(e))?;
        Ok(cache)
    }

    /// The code of a key, if it exists and refers to at most this many callees.
    pub(crate) fn read(&self, key: &str, callees: usize) -> Option<Code> {
        decode(&std::fs::read(self.directory.join(key)).ok()?, key, callees)
    }

    /// Other processes see the whole file or none.
    pub(crate) fn write(&self, key: &str, code: &Code) -> Result<()> {
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
            file.write_all(&encode(key, code))?;
            file.persist(self.directory.join(key)).map_err(|e| e.error)?;
            Ok(())
        };
        write().map_err(|e| self.error(e))
    }

    /// Removes the oldest files until the rest takes at most this many bytes. Files that another process removed first
    /// are fine.
    pub(crate) fn trim(&self, limit: u64) -> Result<()> {
        let mut files = vec![];
        for entry in std::fs::read_dir(&self.directory).map_err(|e| self.error(e))? {
            let Ok((entry, about)) = entry.and_then(|e| e.metadata().map(|m| (e, m))) else { continue };
            if about.is_file() {
                files.push((about.modified().ok(), entry.file_name(), about.len()));
            }
        }
        let mut bytes: u64 = files.iter().map(|f| f.2).sum();
        if bytes <= limit {
            return Ok(());
        }
        files.sort();
        for (_, name, size) in files {
            if bytes <= limit {
                break;
            }
            if std::fs::remove_file(self.directory.join(name)).is_ok() {
                bytes -= size;
            }
        }
        Ok(())
    }

    fn error(&self, source: std::io::Error) -> Error {
        Error::Cache { path: self.directory.clone(), source }
    }
}

/// The hash of everything that a function's code depends on.
pub(crate) struct Key(Fnv);

impl Key {
    pub(crate) fn new(backend: &dyn Backend) -> Key {
        let mut key = Key(Fnv::new());
        key.add(&(backend.name(), backend.version(), backend.target()));
        key.add(&(env!("CARGO_PKG_VERSION"), env!("NUMRSC_CODEGEN_SOURCES")));
        key
    }

    /// Different inputs must print differently, as derived `Debug` does.
    pub(crate) fn add(&mut self, part: &dyn fmt::Debug) {
        writeln!(self.0, "{part:?}").expect("a hash takes any text");
    }

    pub(crate) fn finish(self) -> String {
        format!("{:032x}", self.0.0)
    }
}

/// 128-bit FNV-1a: the same on every machine and in every version of Rust.
struct Fnv(u128);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn update(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
    }
}

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.update(text.as_bytes());
        Ok(())
    }
}

fn encode(key: &str, code: &Code) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(key.as_bytes());
    for number in [code.align, code.bytes.len() as u64, code.links.len() as u64] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for link in &code.links {
        let kind = KINDS.iter().position(|k| *k == link.kind).expect("every kind is listed") as u64;
        for number in [link.offset, kind, u64::from(link.to.0), link.addend as u64] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    out.extend_from_slice(&code.bytes);
    let mut sum = Fnv::new();
    sum.update(&out);
    out.extend_from_slice(&sum.0.to_le_bytes());
    out
}

fn decode(file: &[u8], key: &str, callees: usize) -> Option<Code> {
    let (content, sum) = file.split_last_chunk::<16>()?;
    let mut actual = Fnv::new();
    actual.update(content);
    if actual.0.to_le_bytes() != *sum {
        return None;
    }
    let mut rest = content.strip_prefix(MAGIC)?.strip_prefix(key.as_bytes())?;
    let mut number = || {
        let (first, after) = rest.split_first_chunk::<8>()?;
        rest = after;
        Some(u64::from_le_bytes(*first))
    };
    let (align, length, count) = (number()?, number()?, number()?);
    let mut links = vec![];
    for _ in 0..count {
        let (offset, kind, to, addend) = (number()?, number()?, number()?, number()? as i64);
        let to = u32::try_from(to).ok().filter(|to| (*to as usize) < callees)?;
        links.push(Link { offset, kind: *KINDS.get(usize::try_from(kind).ok()?)?, to: FuncId(to), addend });
    }
    (rest.len() as u64 == length).then(|| Code { bytes: rest.to_vec(), align, links })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn the_oldest_files_make_way() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path()).unwrap();
        let code = Code { bytes: vec![0; 1000], align: 16, links: vec![] };
        // Ages in another order than names.
        let keys: Vec<String> = (0..8).map(|i| format!("{:032x}", (i * 5) % 8)).collect();
        for (age, key) in keys.iter().enumerate() {
            cache.write(key, &code).unwrap();
            let file = std::fs::File::options().write(true).open(folder.path().join(key)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + age as u64)).unwrap();
        }
        let there = || keys.iter().filter(|key| cache.read(key, 0).is_some()).cloned().collect::<Vec<_>>();
        cache.trim(LIMIT).unwrap();
        assert_eq!(there(), keys);
        let one = encode(&keys[0], &code).len() as u64;
        cache.trim(3 * one).unwrap();
        assert_eq!(there(), keys[5..]);
        cache.trim(0).unwrap();
        assert!(there().is_empty());
    }
}
