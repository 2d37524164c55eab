//! Stored tensors as plain data, from every form ONNX can store them in.
//!
//! Raw and external bytes are shared, not copied. Only numbers narrower than a byte and typed fields are converted.
use super::{
    external::ExternalData,
    proto::{SparseTensorProto, TensorProto},
};
use bytes::Bytes;
use numrsc_ir::{DType, Tensor, dtype::Class, tensor::count};

/// The value of a stored tensor. The error names the tensor.
pub fn tensor(proto: &TensorProto, external: &ExternalData) -> Result<Tensor, String> {
    dense(proto, external).map_err(|e| format!("tensor `{}`: {e}", super::short(&proto.name)))
}

/// The dense value of a sparse tensor: zero where nothing is stored. The error names the tensor.
///
/// # Limits
/// A few bytes can declare a huge tensor, so the dense form is limited to [`sparse_limit`] of what is stored.
pub fn sparse_tensor(proto: &SparseTensorProto, external: &ExternalData) -> Result<Tensor, String> {
    let name = proto.values.as_ref().map_or("", |v| &v.name);
    densified(proto, external).map_err(|e| format!("sparse tensor `{}`: {e}", super::short(name)))
}

/// How many bytes sparse tensors may take when dense: 64 MiB whatever their size, or 1024 times what is stored.
/// (One element in a thousand is far below the density at which sparse storage pays.)
pub fn sparse_limit(stored: usize) -> usize {
    (64 << 20) + stored.saturating_mul(1024)
}

/// The element type for a code of `TensorProto.DataType`.
pub fn element_type(code: i32) -> Result<DType, String> {
    DType::from_onnx(code).ok_or_else(|| match code {
        0 => "its element type is undefined".into(),
        14 | 15 => "complex numbers are not supported".into(),
        27 | 28 => "6-bit floats are not supported".into(),
        _ => format!("unknown element type {code}"),
    })
}

/// Checked dimensions.
pub fn shape(dims: &[i64]) -> Result<Vec<usize>, String> {
    let shape: Option<Vec<usize>> = dims.iter().map(|&d| usize::try_from(d).ok()).collect();
    let shape = shape.ok_or_else(|| format!("negative dimension in {}", list(dims)))?;
    count(&shape).ok_or_else(|| format!("the size of {} overflows", list(dims)))?;
    Ok(shape)
}

/// The bytes of a sparse tensor in dense form, as far as its header is sound.
pub(super) fn dense_size(proto: &SparseTensorProto) -> Result<usize, String> {
    let values = proto.values.as_ref().ok_or("it has no values")?;
    let elements = count(&shape(&proto.dims)?).unwrap_or(usize::MAX);
    Ok(elements.saturating_mul(element_type(values.data_type)?.size()))
}

fn list(dims: &[i64]) -> String {
    // Ranks beyond a handful only occur in damaged files; do not print millions of them.
    if dims.len() <= 16 { format!("{dims:?}") } else { format!("a shape of rank {}", dims.len()) }
}

fn dense(proto: &TensorProto, external: &ExternalData) -> Result<Tensor, String> {
    let dtype = element_type(proto.data_type)?;
    let shape = shape(&proto.dims)?;
    let n = count(&shape).ok_or("it has too many elements")?;
    if proto.segment.is_some() {
        return Err("it is stored in segments, which is not supported".into());
    }
    let fields = Fields::of(proto);
    match proto.data_location {
        0 => {}
        1 if dtype == DType::Str => return Err("strings cannot be stored as external data".into()),
        1 if !proto.raw_data.is_empty() || fields.used() > 0 => {
            return Err("it is stored both in the model and as external data".into());
        }
        1 => return Tensor::new(dtype, shape, unpack(dtype, n, external.bytes(proto, packed_size(dtype, n))?)?),
        other => return Err(format!("unknown data location {other}")),
    }
    if fields.used() > usize::from(proto.raw_data.is_empty()) {
        return Err("its data is stored more than once".into());
    }
    if dtype == DType::Str {
        if !proto.raw_data.is_empty() {
            return Err("strings cannot be stored as raw data".into());
        }
        fields.only("string_data", dtype)?;
        return strings(shape, &proto.string_data);
    }
    let data = if fields.used() == 0 { proto.raw_data.clone() } else { typed(proto, dtype)? };
    Tensor::new(dtype, shape, unpack(dtype, n, data)?)
}

/// The bytes of a tensor whose values lie in the model, as a file holds them; strings have none.
pub(super) fn stored(proto: &TensorProto) -> Result<Option<Bytes>, String> {
    let bytes = || match element_type(proto.data_type)? {
        DType::Str => Ok(None),
        _ if Fields::of(proto).used() == 0 => Ok(Some(proto.raw_data.clone())),
        dtype => typed(proto, dtype).map(Some),
    };
    bytes().map_err(|e: String| format!("tensor `{}`: {e}", super::short(&proto.name)))
}

/// The type and values of a tensor alone.
pub(crate) fn values_of(proto: &TensorProto) -> TensorProto {
    TensorProto { name: String::new(), doc_string: Bytes::new(), metadata_props: vec![], ..proto.clone() }
}

/// All of a tensor but its values.
pub(super) fn without_values(proto: &TensorProto) -> TensorProto {
    TensorProto {
        dims: proto.dims.clone(),
        data_type: proto.data_type,
        name: proto.name.clone(),
        doc_string: proto.doc_string.clone(),
        metadata_props: proto.metadata_props.clone(),
        ..TensorProto::default()
    }
}

/// The bytes of a tensor that lie in another file.
pub(super) fn stored_elsewhere(proto: &TensorProto, external: &ExternalData) -> Result<Bytes, String> {
    let bytes = || {
        let dtype = element_type(proto.data_type)?;
        let n = count(&shape(&proto.dims)?).ok_or("it has too many elements")?;
        external.bytes(proto, packed_size(dtype, n))
    };
    bytes().map_err(|e| format!("tensor `{}`: {e}", super::short(&proto.name)))
}

/// The typed fields of a tensor: name and number of entries.
struct Fields([(&'static str, usize); 6]);

impl Fields {
    fn of(t: &TensorProto) -> Fields {
        Fields([
            ("float_data", t.float_data.len()),
            ("int32_data", t.int32_data.len()),
            ("string_data", t.string_data.len()),
            ("int64_data", t.int64_data.len()),
            ("double_data", t.double_data.len()),
            ("uint64_data", t.uint64_data.len()),
        ])
    }

    fn used(&self) -> usize {
        self.0.iter().filter(|(_, n)| *n > 0).count()
    }

    /// Refuse data in any field but `name`.
    fn only(&self, name: &str, dtype: DType) -> Result<(), String> {
        match self.0.iter().find(|(field, n)| *n > 0 && *field != name) {
            Some((field, _)) => Err(format!("{dtype} elements belong in {name}, not in {field}")),
            None => Ok(()),
        }
    }
}

/// The elements in the typed field that belongs to `dtype`, as bytes of a file.
fn typed(t: &TensorProto, dtype: DType) -> Result<Bytes, String> {
    let field = match dtype {
        DType::F32 => "float_data",
        DType::F64 => "double_data",
        DType::I64 => "int64_data",
        DType::U32 | DType::U64 => "uint64_data",
        _ => "int32_data",
    };
    Fields::of(t).only(field, dtype)?;
    let out_of_range = |x: &dyn std::fmt::Display| format!("{x} in {field} does not fit {dtype}");
    let mut out = Vec::new();
    match dtype {
        DType::F32 => t.float_data.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes())),
        DType::F64 => t.double_data.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes())),
        DType::I64 => t.int64_data.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes())),
        DType::I32 => t.int32_data.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes())),
        DType::U64 => t.uint64_data.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes())),
        DType::U32 => {
            for x in &t.uint64_data {
                out.extend_from_slice(&u32::try_from(*x).map_err(|_| out_of_range(x))?.to_le_bytes());
            }
        }
        // Everything else is the low bits of an `int32`; writers differ in whether they extend the sign.
        _ => {
            let size = dtype.size();
            let (low, high) = if size == 1 { (-0x80, 0xff) } else { (-0x8000, 0xffff) };
            for x in &t.int32_data {
                if !(low..=high).contains(x) {
                    return Err(out_of_range(x));
                }
                out.extend_from_slice(&x.to_le_bytes()[..size]);
            }
        }
    }
    Ok(out.into())
}

/// Bytes that `n` elements take in a file.
fn packed_size(dtype: DType, n: usize) -> usize {
    match dtype.bits() {
        // Two or four elements share a byte; a bool has one for itself.
        bits @ (2 | 4) => n.div_ceil(8 / bits as usize),
        _ => n * dtype.size(),
    }
}

/// File form to memory form: one byte per element for the 2- and 4-bit types, 0 or 1 for bools.
fn unpack(dtype: DType, n: usize, data: Bytes) -> Result<Bytes, String> {
    let size = packed_size(dtype, n);
    if data.len() != size {
        return Err(format!("{n} elements of {dtype} take {size} bytes, but {} are stored", data.len()));
    }
    match dtype.bits() {
        bits @ (2 | 4) => {
            let per_byte = 8 / bits as usize;
            let mask = (1u8 << bits) - 1;
            let sign = if dtype.class() == Class::Signed { 1u8 << (bits - 1) } else { 0 };
            // (x ^ sign) - sign extends the sign bit; without a sign it does nothing.
            let element = |i: usize| {
                let low: u8 = (data[i / per_byte] >> (i % per_byte * bits as usize)) & mask;
                (low ^ sign).wrapping_sub(sign)
            };
            Ok((0..n).map(element).collect::<Vec<u8>>().into())
        }
        _ if dtype == DType::Bool && data.iter().any(|&b| b > 1) => {
            Ok(data.iter().map(|&b| u8::from(b != 0)).collect::<Vec<u8>>().into())
        }
        _ => Ok(data),
    }
}

fn strings(shape: Vec<usize>, data: &[Bytes]) -> Result<Tensor, String> {
    let strings: Result<Vec<String>, _> = data.iter().map(|s| std::str::from_utf8(s).map(str::to_string)).collect();
    Tensor::from_strings(shape, strings.map_err(|_| "it holds a string that is not UTF-8")?)
}

fn densified(proto: &SparseTensorProto, external: &ExternalData) -> Result<Tensor, String> {
    let values = proto.values.as_ref().ok_or("it has no values")?;
    if element_type(values.data_type)? == DType::Str {
        return Err("sparse strings are not supported".into());
    }
    let values = dense(values, external).map_err(|e| format!("values: {e}"))?;
    // Writers leave the indices out when there are none.
    let indices = match &proto.indices {
        Some(indices) => dense(indices, external).map_err(|e| format!("indices: {e}"))?,
        None => Tensor::from_i64(&[0], &[]),
    };
    let size = values.dtype().size();
    let shape = shape(&proto.dims)?;
    let n = count(&shape).ok_or("it has too many elements")?;
    let stored = values.bytes().len() + indices.bytes().len();
    if n.saturating_mul(size) > sparse_limit(stored) {
        return Err(format!("{n} elements from {stored} stored bytes are beyond the limit for sparse tensors"));
    }
    let places = places(&indices, &shape, values.len())?;
    let mut data = Vec::new();
    data.try_reserve_exact(n * size).map_err(|_| format!("no memory for {n} elements"))?;
    data.resize(n * size, 0);
    let mut last = None;
    for (place, value) in places.into_iter().zip(values.bytes().chunks_exact(size)) {
        if place >= n {
            return Err(format!("index {place} is beyond its {n} elements"));
        }
        if last.is_some_and(|last| last >= place) {
            return Err("its indices are not in ascending order".into());
        }
        last = Some(place);
        data[place * size..][..size].copy_from_slice(value);
    }
    Tensor::new(values.dtype(), shape, data.into())
}

/// Row-major positions of the stored elements, from linear indices `[n]` or one row of coordinates each `[n, rank]`.
fn places(indices: &Tensor, shape: &[usize], stored: usize) -> Result<Vec<usize>, String> {
    let rows = match *indices.shape() {
        [n] if n == stored => 1,
        [n, rank] if n == stored && rank == shape.len() => rank,
        _ => return Err(format!("indices of shape {:?} do not fit {stored} values", indices.shape())),
    };
    let numbers = match indices.dtype() {
        DType::I64 => indices.to_i64s().unwrap_or_default(),
        other => return Err(format!("its indices are {other}, not i64")),
    };
    let linear = indices.rank() == 1;
    let place = |row: &[i64]| {
        if linear {
            return usize::try_from(row[0]).ok();
        }
        row.iter().zip(shape).try_fold(0usize, |place, (&i, &dim)| {
            let i = usize::try_from(i).ok().filter(|&i| i < dim)?;
            place.checked_mul(dim)?.checked_add(i)
        })
    };
    if rows == 0 {
        // Rank 0: every coordinate row is empty and means the one element.
        return Ok(vec![0; stored]);
    }
    numbers
        .chunks_exact(rows)
        .map(|row| place(row).ok_or_else(|| format!("index {} lies outside the shape {shape:?}", list(row))))
        .collect()
}
