//! Tensors as plain files, which all sides of a comparison read with this one reader.
//!
//! Little-endian words of 8 bytes (the element type as ONNX numbers it, the rank, the sizes), padded to 64 bytes, then the elements.
use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
};

const ALIGN: usize = 64;

/// A tensor whose elements lie at a multiple of 64 bytes.
#[derive(Debug)]
pub struct RawTensor {
    pub onnx_type: i32,
    pub shape: Vec<usize>,
    buffer: Vec<u8>,
    start: usize,
}

impl RawTensor {
    pub fn read(path: &Path) -> Result<RawTensor, String> {
        read(path).map_err(|e| format!("{}: {e}", path.display()))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }
}

fn read(path: &Path) -> io::Result<RawTensor> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len() as usize;
    let mut word = || -> io::Result<i64> {
        let mut bytes = [0; 8];
        file.read_exact(&mut bytes)?;
        Ok(i64::from_le_bytes(bytes))
    };
    let onnx_type = word()? as i32;
    let rank = word()?;
    let shape = (0..rank).map(|_| word().map(|d| d as usize)).collect::<io::Result<Vec<usize>>>()?;
    let head = (16 + 8 * shape.len()).next_multiple_of(ALIGN);
    let mut padding = vec![0; head - 16 - 8 * shape.len()];
    file.read_exact(&mut padding)?;
    let size = length - head;
    let mut buffer = vec![0; size + ALIGN];
    let start = buffer.as_ptr().align_offset(ALIGN);
    buffer.truncate(start + size);
    file.read_exact(&mut buffer[start..])?;
    Ok(RawTensor { onnx_type, shape, buffer, start })
}

pub fn write(path: &Path, onnx_type: i32, shape: &[usize], bytes: &[u8]) -> Result<(), String> {
    let mut data: Vec<u8> = Vec::new();
    let words = [i64::from(onnx_type), shape.len() as i64].into_iter().chain(shape.iter().map(|&d| d as i64));
    words.for_each(|word| data.extend(word.to_le_bytes()));
    data.resize(data.len().next_multiple_of(ALIGN), 0);
    let write = || -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(&data)?;
        file.write_all(bytes)
    };
    write().map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.raw");
        for shape in [vec![], vec![5], vec![2, 0, 3], vec![1, 2, 3, 4, 5, 6, 7]] {
            let bytes: Vec<u8> = (0..4 * shape.iter().product::<usize>()).map(|i| i as u8).collect();
            write(&path, 1, &shape, &bytes).unwrap();
            let tensor = RawTensor::read(&path).unwrap();
            assert_eq!((tensor.onnx_type, &tensor.shape, tensor.bytes()), (1, &shape, &bytes[..]));
            assert!(tensor.bytes().as_ptr().addr().is_multiple_of(ALIGN));
        }
    }
}
