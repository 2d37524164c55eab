//! Arrays in NumPy's `.npz` files: zip archives of `.npy` files, stored as they are or deflated.
use miniz_oxide::inflate::decompress_to_vec_with_limit;
use numrsc::near;
use numrsc_ir::tensor::room_for;
use std::path::{Path, PathBuf};

/// `FILE.npz:KEY`, if it is that.
pub(crate) fn split(file: &Path) -> Option<(PathBuf, &str)> {
    let (file, key) = file.to_str()?.rsplit_once(".npz:")?;
    Some((format!("{file}.npz").into(), key))
}

/// The `.npy` file of that name in the archive.
pub(crate) fn read(file: &Path, key: &str) -> Result<Vec<u8>, String> {
    let archive = std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let entries = entries(&archive).ok_or_else(|| format!("{}: it is no .npz file, or damaged", file.display()))?;
    // NumPy adds the suffix, and `unzip -l` shows it.
    let name = |entry: &Entry<'_>| entry.name.strip_suffix(".npy").unwrap_or(entry.name).to_owned();
    let Some(entry) = entries.iter().find(|entry| name(entry) == key || entry.name == key) else {
        let names: Vec<String> = entries.iter().map(name).collect();
        let near = near::hint(key, names.iter().map(String::as_str));
        return Err(format!("{} has no array `{key}`; it has `{}`{near}", file.display(), names.join("`, `")));
    };
    entry.content(&archive).map_err(|e| format!("{}: array `{key}`: {e}", file.display()))
}

/// A file of the archive, as its directory has it.
struct Entry<'a> {
    name: &'a str,
    method: u16,
    checksum: u32,
    stored: u64,
    length: u64,
    /// Where its own header is, in front of the content.
    header: u64,
}

/// Marks sizes that are in an extra field, as they have 64 bits.
const WIDE: u32 = u32::MAX;

fn entries(archive: &[u8]) -> Option<Vec<Entry<'_>>> {
    // The end of the directory is at the end of the file, but for a comment.
    let end = archive.windows(4).rposition(|bytes| bytes == b"PK\x05\x06")?;
    let comment = usize::from(half(archive, end + 20)?);
    if end + 22 + comment != archive.len() {
        return None;
    }
    let (mut count, mut at) = (u64::from(half(archive, end + 10)?), u64::from(word(archive, end + 16)?));
    if count == u64::from(u16::MAX) || at == u64::from(WIDE) {
        let wide_end = usize::try_from(long(archive, end.checked_sub(20)? + 8)?).ok()?;
        (count, at) = (long(archive, wide_end + 32)?, long(archive, wide_end + 48)?);
    }
    let mut at = usize::try_from(at).ok()?;
    let mut entries = vec![];
    for _ in 0..count {
        if archive.get(at..at.checked_add(4)?)? != b"PK\x01\x02" {
            return None;
        }
        let lengths = [28, 30, 32].map(|field| half(archive, at + field).map(usize::from));
        let [name, extra, comment] = [lengths[0]?, lengths[1]?, lengths[2]?];
        let fields = archive.get(at + 46 + name..at + 46 + name + extra)?;
        let mut wide = wide_field(fields).unwrap_or_default().chunks_exact(8);
        let mut size = |field: usize| match word(archive, at + field)? {
            WIDE => long(wide.next()?, 0),
            size => Some(u64::from(size)),
        };
        // In this order.
        let (length, stored, header) = (size(24)?, size(20)?, size(42)?);
        entries.push(Entry {
            name: std::str::from_utf8(archive.get(at + 46..at + 46 + name)?).ok()?,
            method: half(archive, at + 10)?,
            checksum: word(archive, at + 16)?,
            stored,
            length,
            header,
        });
        at += 46 + name + extra + comment;
    }
    Some(entries)
}

/// The extra field with sizes of 64 bits.
fn wide_field(mut fields: &[u8]) -> Option<&[u8]> {
    loop {
        let (kind, length) = (half(fields, 0)?, usize::from(half(fields, 2)?));
        let content = fields.get(4..4 + length)?;
        if kind == 1 {
            return Some(content);
        }
        fields = &fields[4 + length..];
    }
}

impl Entry<'_> {
    fn content(&self, archive: &[u8]) -> Result<Vec<u8>, String> {
        let stored = self.stored_bytes(archive).ok_or("the archive is cut short")?;
        let length = usize::try_from(self.length).map_err(|_| "it is too large")?;
        let content = match self.method {
            0 => stored.to_vec(),
            8 => {
                room_for(length)?;
                decompress_to_vec_with_limit(stored, length).map_err(|_| "it cannot be decompressed")?
            }
            method => return Err(format!("it is compressed by method {method}; NumPy uses 0 and 8")),
        };
        match content.len() == length && crc32(&content) == self.checksum {
            true => Ok(content),
            false => Err("its checksum is wrong: the archive is damaged".into()),
        }
    }

    fn stored_bytes<'a>(&self, archive: &'a [u8]) -> Option<&'a [u8]> {
        let header = usize::try_from(self.header).ok()?;
        let (name, extra) = (half(archive, header.checked_add(26)?)?, half(archive, header + 28)?);
        let start = header + 30 + usize::from(name) + usize::from(extra);
        archive.get(start..start.checked_add(usize::try_from(self.stored).ok()?)?)
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    };
    !bytes.iter().fold(!0, step)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_le_bytes(*b))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_zip() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn what_is_cut_or_damaged_is_refused() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/numrs/mlp_b1/inputs.npz");
        let archive = std::fs::read(file).unwrap();
        let all = |bytes: &[u8]| entries(bytes).map(|all| all.iter().map(|e| e.content(bytes)).collect::<Vec<_>>());
        assert!(all(&archive).unwrap().iter().all(Result::is_ok));
        for length in 0..archive.len() {
            assert!(all(&archive[..length]).is_none_or(|all| all.iter().any(Result::is_err)), "{length}");
        }
        let mut changed = archive.clone();
        for at in 0..archive.len() {
            // Whatever becomes of it, it ends.
            changed[at] ^= 0x55;
            let _ = all(&changed);
            changed[at] ^= 0x55;
        }
    }
}
