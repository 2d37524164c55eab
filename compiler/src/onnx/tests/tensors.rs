use super::super::{
    external::ExternalData,
    proto::{SparseTensorProto, TensorProto},
    tensor_data::{sparse_tensor, tensor},
};
use bytes::Bytes;
use numrsc_ir::{DType, Elems, Tensor};

fn decode(t: &TensorProto) -> Result<Tensor, String> {
    tensor(t, &ExternalData::default())
}

fn typed(dtype: DType, n: i64) -> TensorProto {
    TensorProto { name: "w".into(), data_type: dtype.onnx(), dims: vec![n], ..Default::default() }
}

fn raw(dtype: DType, n: i64, bytes: &'static [u8]) -> TensorProto {
    TensorProto { raw_data: Bytes::from_static(bytes), ..typed(dtype, n) }
}

#[test]
fn every_type_reads_the_same_from_raw_and_typed_fields() {
    for d in DType::ALL.iter().copied().filter(|&d| d != DType::Str) {
        let elems = match d {
            DType::Bool => Elems::Int(vec![1, 0, 1]),
            _ if d.is_float() => Elems::Float(vec![1.0, 2.0, 4.0]),
            _ => Elems::Int(vec![d.int_range().0, d.int_range().1, 1]),
        };
        let expected = Tensor::from_elems(d, vec![3], &elems);
        // The file form of narrow types is packed, low bits first.
        let bits = d.bits() as usize;
        let bytes: Vec<u8> = if matches!(bits, 2 | 4) {
            let mask = (1u8 << bits) - 1;
            let fold = |c: &[u8]| c.iter().rev().fold(0u8, |byte, x| (byte << bits) | (x & mask));
            expected.bytes().chunks(8 / bits).map(fold).collect()
        } else {
            expected.bytes().to_vec()
        };
        let stored = TensorProto { raw_data: bytes.clone().into(), ..typed(d, 3) };
        assert_eq!(decode(&stored), Ok(expected.clone()), "raw {d}");

        let mut t = typed(d, 3);
        match d {
            DType::F32 => t.float_data = vec![1.0, 2.0, 4.0],
            DType::F64 => t.double_data = vec![1.0, 2.0, 4.0],
            DType::I64 => t.int64_data = expected.to_i64s().unwrap(),
            DType::U64 => t.uint64_data = vec![0, u64::MAX, 1],
            DType::U32 => t.uint64_data = vec![0, u64::from(u32::MAX), 1],
            DType::I32 => t.int32_data = vec![i32::MIN, i32::MAX, 1],
            _ if d.size() == 1 => t.int32_data = bytes.iter().map(|&b| i32::from(b)).collect(),
            _ => {
                t.int32_data = bytes.chunks(2).map(|b| i32::from(u16::from_le_bytes([b[0], b[1]]))).collect();
            }
        }
        assert_eq!(decode(&t), Ok(expected), "typed {d}");
    }
}

#[test]
fn packed_numbers_come_low_bits_first_and_keep_their_sign() {
    let bytes = |t: TensorProto| decode(&t).unwrap().bytes().to_vec();
    assert_eq!(bytes(raw(DType::U4, 3, &[0x21, 0x0f])), [1, 2, 15]);
    assert_eq!(bytes(raw(DType::I4, 3, &[0x8f, 0x07])), [0xff, 0xf8, 7]);
    assert_eq!(bytes(raw(DType::U2, 5, &[0b11_10_01_00, 0b01])), [0, 1, 2, 3, 1]);
    assert_eq!(bytes(raw(DType::I2, 4, &[0b11_10_01_00])), [0, 1, 0xfe, 0xff]);
    // The sign of a float is part of its code, not of a number.
    assert_eq!(bytes(raw(DType::F4E2M1, 2, &[0xf1])), [0x1, 0xf]);
    let negative = TensorProto { int32_data: vec![-1], ..typed(DType::I4, 2) };
    assert_eq!(bytes(negative), [0xff, 0xff]);
}

#[test]
fn raw_data_is_shared_not_copied() {
    let t = TensorProto { raw_data: vec![7; 8].into(), ..typed(DType::F32, 2) };
    assert_eq!(decode(&t).unwrap().bytes().as_ptr(), t.raw_data.as_ptr());
}

#[test]
fn strings_bools_and_empty_tensors() {
    let s = TensorProto { string_data: vec!["a".into(), "ö".into()], ..typed(DType::Str, 2) };
    assert_eq!(decode(&s).unwrap().strings().unwrap(), ["a", "ö"]);
    let latin = TensorProto { string_data: vec![Bytes::from_static(b"\xf6")], ..typed(DType::Str, 1) };
    assert!(decode(&latin).unwrap_err().contains("UTF-8"));
    assert_eq!(decode(&raw(DType::Bool, 2, &[0, 9])).unwrap().bytes()[..], [0, 1]);
    assert!(decode(&typed(DType::F32, 0)).unwrap().is_empty());
    assert!(decode(&typed(DType::Str, 0)).unwrap().is_empty());
    let huge = TensorProto { dims: vec![i64::MAX, 0, i64::MAX], ..typed(DType::F32, 0) };
    assert!(decode(&huge).unwrap().is_empty());
}

#[test]
fn what_does_not_add_up_is_refused() {
    let code = |data_type| TensorProto { data_type, ..raw(DType::F32, 1, &[0; 8]) };
    let dims = |dims: &[i64]| TensorProto { dims: dims.to_vec(), ..raw(DType::F32, 1, &[0; 4]) };
    let cases = [
        (code(0), "undefined"),
        (code(14), "complex"),
        (code(15), "complex"),
        (code(27), "6-bit"),
        (code(99), "unknown element type 99"),
        (dims(&[-1]), "negative dimension"),
        (dims(&[i64::MAX, i64::MAX]), "overflows"),
        (dims(&[1 << 62]), "overflows"),
        (dims(&[2]), "take 8 bytes, but 4"),
        (raw(DType::I4, 3, &[0; 3]), "take 2 bytes, but 3"),
        (raw(DType::Str, 1, &[0; 1]), "strings cannot"),
        (typed(DType::F32, 1), "take 4 bytes, but 0"),
        (typed(DType::Str, 1), "does not hold 0 strings"),
        (TensorProto { int64_data: vec![1], ..typed(DType::F32, 1) }, "belong in float_data, not in int64_data"),
        (TensorProto { float_data: vec![1.0], ..raw(DType::F32, 1, &[0; 4]) }, "more than once"),
        (TensorProto { int32_data: vec![300], ..typed(DType::U8, 1) }, "300 in int32_data does not fit u8"),
        (TensorProto { uint64_data: vec![1 << 32], ..typed(DType::U32, 1) }, "does not fit u32"),
        (TensorProto { segment: Some(Default::default()), ..raw(DType::F32, 1, &[0; 4]) }, "segments"),
        (TensorProto { data_location: 7, ..raw(DType::F32, 1, &[0; 4]) }, "unknown data location"),
    ];
    for (t, expected) in cases {
        let error = decode(&t).unwrap_err();
        assert!(error.starts_with("tensor `w`: ") && error.contains(expected), "{error} / {expected}");
    }
}

fn sparse(dims: &[i64], index_dims: &[i64], indices: &[i64], values: &[f32]) -> Result<Tensor, String> {
    let n = i64::try_from(values.len()).unwrap();
    let values = TensorProto { float_data: values.to_vec(), ..typed(DType::F32, n) };
    let indices = TensorProto { dims: index_dims.to_vec(), int64_data: indices.to_vec(), ..typed(DType::I64, 0) };
    let proto = SparseTensorProto { values: Some(values), indices: Some(indices), dims: dims.to_vec() };
    sparse_tensor(&proto, &ExternalData::default())
}

#[test]
fn sparse_tensors_become_dense_from_both_index_forms() {
    let expected = Tensor::from_f32(&[2, 3], &[0.0, 5.0, 0.0, 0.0, 0.0, 7.0]);
    assert_eq!(sparse(&[2, 3], &[2], &[1, 5], &[5.0, 7.0]), Ok(expected.clone()));
    assert_eq!(sparse(&[2, 3], &[2, 2], &[0, 1, 1, 2], &[5.0, 7.0]), Ok(expected));
    assert_eq!(sparse(&[2], &[0], &[], &[]), Ok(Tensor::from_f32(&[2], &[0.0, 0.0])));
    assert_eq!(sparse(&[], &[1, 0], &[], &[3.0]), Ok(Tensor::from_f32(&[], &[3.0])));
}

#[test]
fn sparse_indices_and_sizes_are_checked() {
    let error = |r: Result<Tensor, String>| r.unwrap_err();
    assert!(error(sparse(&[2, 3], &[1], &[6], &[1.0])).contains("beyond"));
    assert!(error(sparse(&[2, 3], &[1], &[-1], &[1.0])).contains("outside"));
    assert!(error(sparse(&[2, 3], &[1, 2], &[0, 3], &[1.0])).contains("outside"));
    assert!(error(sparse(&[2, 3], &[2], &[3, 3], &[1.0, 2.0])).contains("ascending"));
    assert!(error(sparse(&[2, 3], &[1, 3], &[0, 0, 0], &[1.0])).contains("do not fit"));
    assert!(error(sparse(&[2, 3], &[2], &[0, 1], &[1.0])).contains("do not fit"));
    assert!(error(sparse(&[1 << 40], &[1], &[0], &[1.0])).contains("limit"));
    assert!(error(sparse(&[-1], &[1], &[0], &[1.0])).contains("negative"));
    let nothing = SparseTensorProto::default();
    assert!(error(sparse_tensor(&nothing, &ExternalData::default())).contains("no values"));
}
