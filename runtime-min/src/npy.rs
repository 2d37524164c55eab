//! The header of NumPy's `.npy` files. Types that NumPy lacks (bf16, f8 …) are stored as integers of their width.
use crate::DType;
use alloc::{format, string::String, vec::Vec};

/// The magic and version of such a file.
pub const MAGIC: &[u8] = b"\x93NUMPY";

/// Type codes of NumPy; a type without one is stored as the integer of its width.
fn code(dtype: DType) -> &'static str {
    match dtype {
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

/// The offset of the elements, and the sizes, in a file that should hold elements of this type.
pub fn parse(bytes: &[u8], dtype: DType) -> Result<(usize, Vec<usize>), String> {
    if !bytes.starts_with(MAGIC) {
        return Err("this is not a .npy file".into());
    }
    let (start, end) = header_place(bytes).ok_or("the file is cut short")?;
    let header = core::str::from_utf8(&bytes[start..end]).map_err(|_| "the header is not text")?;
    let field = |name: &str| {
        let after = header.split_once(name).map(|(_, after)| after.trim_start_matches([':', ' ']));
        after.ok_or_else(|| format!("the header has no {name}"))
    };
    let found = field("'descr'")?.strip_prefix('\'').and_then(|text| text.split_once('\''));
    let found = found.ok_or("structured types are not supported")?.0;
    let expected = code(dtype);
    // One byte has no byte order, whatever the header says.
    let same = found.get(1..) == expected.get(1..) && (found.starts_with(['<', '=']) || dtype.size() == 1);
    if !same {
        let known = DType::ALL.iter().find(|known| code(**known) == found);
        return Err(match known {
            Some(known) => format!("its elements are {known}, but {dtype} is wanted"),
            None => {
                format!("its elements are of NumPy's type {found}, but {dtype} is wanted, which is {expected} there")
            }
        });
    }
    if field("'fortran_order'")?.starts_with("True") {
        return Err("Fortran order is not supported; save a C-ordered array".into());
    }
    let shape = field("'shape'")?.strip_prefix('(').and_then(|text| text.split_once(')'));
    let sizes = shape.ok_or("the shape is malformed")?.0.split(',').map(str::trim).filter(|size| !size.is_empty());
    let sizes = sizes.map(str::parse).collect::<Result<_, _>>().map_err(|_| "the shape is malformed")?;
    Ok((end, sizes))
}

fn header_place(bytes: &[u8]) -> Option<(usize, usize)> {
    let (start, length) = match bytes.get(6)? {
        1 => (10, usize::from(u16::from_le_bytes(bytes.get(8..10)?.try_into().ok()?))),
        _ => (12, u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?) as usize),
    };
    let end = start + length;
    (end <= bytes.len()).then_some((start, end))
}

/// The header.
pub fn header(dtype: DType, shape: &[usize]) -> Vec<u8> {
    let sizes: String = shape.iter().map(|size| format!("{size}, ")).collect();
    let mut text = format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({sizes}), }}", code(dtype));
    // The elements start at a multiple of 64 bytes.
    while !(MAGIC.len() + 4 + text.len() + 1).is_multiple_of(64) {
        text.push(' ');
    }
    text.push('\n');
    [MAGIC, &[1, 0], &(text.len() as u16).to_le_bytes(), text.as_bytes()].concat()
}
