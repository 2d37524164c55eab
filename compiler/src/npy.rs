//! NumPy's `.npy` files. Types NumPy does not have (bf16, f8 …) are stored as the raw integers of their width.
use crate::emit::write_file;
use bytes::Bytes;
use numrsc_ir::{DType, Tensor};
use std::{fs, io::Write, path::Path};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Type codes of NumPy; a type without one is written as the unsigned integer of its width.
fn code(d: DType) -> &'static str {
    match d {
        DType::F64 => "<f8",
        DType::F32 => "<f4",
        DType::F16 => "<f2",
        DType::I64 => "<i8",
        DType::I32 => "<i4",
        DType::I16 => "<i2",
        DType::I8 | DType::I4 | DType::I2 => "|i1",
        DType::U64 => "<u8",
        DType::U32 => "<u4",
        DType::U16 | DType::BF16 => "<u2",
        DType::Bool => "|b1",
        _ => "|u1",
    }
}

/// Read a tensor that should have the given element type.
pub fn read(path: &Path, want: DType) -> Result<Tensor, String> {
    let data = Bytes::from(fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?);
    parse(&data, want).map_err(|e| format!("{}: {e}", path.display()))
}

/// Decode a tensor that should have the given element type.
pub fn parse(data: &Bytes, want: DType) -> Result<Tensor, String> {
    if want == DType::Str {
        return Err("text cannot be given as .npy, use .pb".into());
    }
    let cut = || "the file is cut short".to_string();
    if !data.starts_with(MAGIC) {
        return Err("this is not a .npy file".into());
    }
    let (start, len) = match data.get(6).ok_or_else(cut)? {
        1 => (10, data.get(8..10).map(|b| u16::from_le_bytes([b[0], b[1]]) as usize)),
        _ => (12, data.get(8..12).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)),
    };
    let end = start + len.ok_or_else(cut)?;
    let head = std::str::from_utf8(data.get(start..end).ok_or_else(cut)?).map_err(|_| "the header is not text")?;
    let descr = quoted(field(head, "descr")?).ok_or("structured types are not supported")?;
    if descr.replace('=', "<") != code(want) && !(descr.len() == 3 && descr[1..] == code(want)[1..] && want.size() == 1)
    {
        return Err(format!("the elements are `{descr}`, but {want} is stored as `{}`", code(want)));
    }
    if field(head, "fortran_order")?.starts_with("True") {
        return Err("Fortran order is not supported; save a C-ordered array".into());
    }
    let shape = field(head, "shape")?;
    let inside = shape.strip_prefix('(').and_then(|s| s.split_once(')')).ok_or("the shape is malformed")?.0;
    let dims: Result<Vec<usize>, _> =
        inside.split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::parse).collect();
    Tensor::new(want, dims.map_err(|_| "the shape is malformed")?, data.slice(end..))
}

/// What follows `'name':` in the header, a Python dictionary.
fn field<'a>(head: &'a str, name: &str) -> Result<&'a str, String> {
    let (_, after) = head.split_once(&format!("'{name}'")).ok_or_else(|| format!("the header has no `{name}`"))?;
    Ok(after.trim_start().trim_start_matches(':').trim_start())
}

fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('\'')?.split_once('\'').map(|(inside, _)| inside)
}

/// Write a tensor. The file appears complete or not at all.
pub fn write(path: &Path, t: &Tensor) -> Result<(), String> {
    if t.dtype() == DType::Str {
        return Err(format!("{}: text cannot be stored as .npy", path.display()));
    }
    let dims: Vec<String> = t.shape().iter().map(|d| format!("{d},")).collect();
    let mut head =
        format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", code(t.dtype()), dims.join(" "));
    // The data starts at a multiple of 64 bytes.
    let pad = 64 - (MAGIC.len() + 4 + head.len() + 1) % 64;
    head += &" ".repeat(pad % 64);
    head.push('\n');
    let content = |file: &mut dyn Write| {
        file.write_all(MAGIC)?;
        file.write_all(&[1, 0])?;
        file.write_all(&(head.len() as u16).to_le_bytes())?;
        file.write_all(head.as_bytes())?;
        file.write_all(t.bytes())
    };
    write_file(path, |file| content(file)).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        for d in DType::ALL.iter().copied().filter(|d| *d != DType::Str) {
            for shape in [vec![], vec![3], vec![2, 0, 4], vec![2, 3]] {
                let n: usize = shape.iter().product::<usize>() * d.size();
                let t = Tensor::new(d, shape, vec![1u8; n].into()).unwrap();
                write(&path, &t).unwrap();
                assert_eq!(read(&path, d).unwrap(), t);
            }
        }
    }

    #[test]
    #[cfg(unix)]
    fn files_get_the_permissions_of_any_new_file() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("x.npy"), dir.path().join("other"));
        write(&path, &Tensor::from_f32(&[1], &[1.0])).unwrap();
        fs::write(&other, "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&other));
    }

    #[test]
    fn bad_files_are_refused() {
        let good = {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("x.npy");
            write(&path, &Tensor::from_f32(&[2], &[1.0, 2.0])).unwrap();
            Bytes::from(fs::read(&path).unwrap())
        };
        assert!(parse(&good, DType::F32).is_ok());
        assert!(parse(&good, DType::I32).unwrap_err().contains("<f4"));
        for len in 0..good.len() {
            assert!(parse(&good.slice(..len), DType::F32).is_err(), "{len} bytes");
        }
    }
}
