//! Large constants that passes make are stored in unnamed files and mapped, as the model's weights are. Besides mapped
//! files, only one such constant is in memory at a time, however many a model has.
use bytes::Bytes;
use numrsc_ir::Tensor;
use std::io::{self, Write};

/// The size from which constants are stored in a file.
const LARGE: usize = 16 << 20;

/// The same tensor, in a mapped file if it is large and not a view of one of `of`. If the file cannot be written, the
/// tensor stays in memory.
pub fn put_aside(value: Tensor, made_of: &[&Bytes]) -> Tensor {
    let start = value.bytes().as_ptr();
    if value.bytes().len() < LARGE || made_of.iter().any(|bytes| bytes.as_ptr_range().contains(&start)) {
        return value;
    }
    let aside = in_file(value.bytes()).ok();
    let aside = aside.and_then(|bytes| Tensor::new(value.dtype(), value.shape().to_vec(), bytes).ok());
    aside.unwrap_or(value)
}

fn in_file(bytes: &[u8]) -> io::Result<Bytes> {
    let mut file = tempfile::tempfile()?;
    file.write_all(bytes)?;
    // SAFETY: the map is private and read-only, the owner inside `Bytes` keeps it alive, and a file without a name is
    // changed by nobody else.
    #[allow(unsafe_code)]
    let map = unsafe { memmap2::MmapOptions::new().map_copy_read_only(&file)? };
    Ok(Bytes::from_owner(map))
}

#[cfg(test)]
mod tests {
    use super::*;
    use numrsc_ir::DType;

    #[test]
    fn what_is_put_aside_is_the_same() {
        for length in [0, 7, LARGE - 1, LARGE, LARGE + 1] {
            let bytes: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            let value = Tensor::new(DType::U8, vec![length], bytes.into()).unwrap();
            let aside = put_aside(value.clone(), &[]);
            assert!(aside == value, "{length} bytes");
            assert_eq!(aside.bytes().as_ptr() != value.bytes().as_ptr(), length >= LARGE);
            let view = put_aside(value.clone(), &[value.bytes()]);
            assert_eq!(view.bytes().as_ptr(), value.bytes().as_ptr());
        }
    }
}
