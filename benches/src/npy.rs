//! NumPy's `.npy` files, as far as needed to read the outputs of other programs.
use numrsc_runtime::DType;

/// How NumPy names our element types, little-endian.
const NAMES: [(&str, DType); 12] = [
    ("|b1", DType::Bool),
    ("<f2", DType::F16),
    ("<f4", DType::F32),
    ("<f8", DType::F64),
    ("|i1", DType::I8),
    ("<i2", DType::I16),
    ("<i4", DType::I32),
    ("<i8", DType::I64),
    ("|u1", DType::U8),
    ("<u2", DType::U16),
    ("<u4", DType::U32),
    ("<u8", DType::U64),
];

/// Element type, shape and elements of a file.
pub fn parse(file: &[u8]) -> Result<(DType, Vec<usize>, &[u8]), String> {
    parts(file).ok_or_else(|| "not a tensor of plain elements as NumPy writes it".into())
}

fn parts(file: &[u8]) -> Option<(DType, Vec<usize>, &[u8])> {
    let rest = file.strip_prefix(b"\x93NUMPY")?;
    let (version, rest) = rest.split_first_chunk::<2>()?;
    let (length, rest) = match version[0] {
        1 => rest.split_first_chunk().map(|(n, rest)| (usize::from(u16::from_le_bytes(*n)), rest))?,
        _ => rest.split_first_chunk().map(|(n, rest)| (u32::from_le_bytes(*n) as usize, rest))?,
    };
    let (head, elements) = rest.split_at_checked(length)?;
    let head = str::from_utf8(head).ok()?;
    // A Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (5, 10), }
    let after = |key: &str| head.split_once(key).map(|(_, rest)| rest.trim_start_matches([':', ' ']));
    let name = after("'descr'")?.split('\'').nth(1)?;
    let (_, dtype) = NAMES.into_iter().find(|(n, _)| *n == name)?;
    let sizes = after("'shape'")?.strip_prefix('(')?.split(')').next()?.split(',').map(str::trim);
    let shape = sizes.filter(|s| !s.is_empty()).map(|s| s.parse().ok()).collect::<Option<Vec<usize>>>()?;
    let plain = after("'fortran_order'")?.starts_with("False");
    (plain && elements.len() == dtype.size() * shape.iter().product::<usize>()).then_some((dtype, shape, elements))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(head: &str, elements: &[u8]) -> Vec<u8> {
        [b"\x93NUMPY\x01\x00", &(head.len() as u16).to_le_bytes()[..], head.as_bytes(), elements].concat()
    }

    #[test]
    fn tensors() {
        let head = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }  \n";
        assert_eq!(parse(&file(head, &[0; 8])), Ok((DType::F32, vec![1, 2], &[0; 8][..])));
        let scalar = "{'descr': '|b1', 'fortran_order': False, 'shape': (), }\n";
        assert_eq!(parse(&file(scalar, &[1])), Ok((DType::Bool, vec![], &[1][..])));
        assert!(parse(&file(head, &[0; 7])).is_err());
        assert!(parse(&file(&head.replace("False", "True"), &[0; 8])).is_err());
        assert!(parse(b"something else").is_err());
    }
}
