//! Tensors in NumPy's `.npy` files.
use crate::{native::runtime_type, output::files::write_file};
use bytes::Bytes;
use numrsc_ir::{DType, Tensor};
use numrsc_runtime::npy;
use std::{fs, io::Write, path::Path};

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
    let (start, shape) = npy::parse(data, runtime_type(want))?;
    Tensor::new(want, shape, data.slice(start..))
}

/// Write a tensor. The file appears complete or not at all.
pub fn write(path: &Path, t: &Tensor) -> Result<(), String> {
    if t.dtype() == DType::Str {
        return Err(format!("{}: text cannot be stored as .npy", path.display()));
    }
    let header = npy::header(runtime_type(t.dtype()), t.shape());
    write_file(path, |file| {
        file.write_all(&header)?;
        file.write_all(t.bytes())
    })
    .map_err(|e| e.to_string())
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
        assert!(parse(&good, DType::I32).unwrap_err().contains("are f32, but i32 is wanted"));
        for len in 0..good.len() {
            assert!(parse(&good.slice(..len), DType::F32).is_err(), "{len} bytes");
        }
    }
}
