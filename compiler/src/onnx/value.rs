//! Files with single values, as the test data of ONNX stores them: tensors, sequences, optionals and maps.
use super::{
    external::ExternalData,
    load,
    proto::{
        ElementKind, MapProto, OptionalProto, SequenceProto, SparseTensorProto, TensorProto, TypeProto, TypeValue,
    },
    tensor_data,
};
use crate::error::{Error, Result};
use bytes::Bytes;
use numrsc_ir::{DType, Elems, Tensor};
use std::path::Path;

/// A value that a graph takes or gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Tensor(Tensor),
    Sequence(Vec<Value>),
    Optional(Option<Box<Value>>),
    /// Keys are a vector of integers or strings.
    Map {
        keys: Tensor,
        values: Vec<Value>,
    },
}

impl Value {
    /// A list of maps as one row per map, with the values of these labels in this order.
    pub fn rows(&self, labels: &Tensor) -> Result<Tensor, String> {
        let Value::Sequence(maps) = self else { return Err("expected a list of maps".into()) };
        let (mut values, n) = (Vec::new(), labels.len());
        for map in maps {
            let Value::Map { keys, values: found } = map else { return Err("expected a list of maps".into()) };
            if (keys.len(), keys.dtype()) != (n, labels.dtype()) {
                return Err(format!("a map of {} {}, expected {n} {}", keys.len(), keys.dtype(), labels.dtype()));
            }
            let (keys, labels) = (keys.elems(), labels.elems());
            for j in 0..n {
                let same = |i: &usize| match (&keys, &labels) {
                    (Elems::Str(a), Elems::Str(b)) => a[*i] == b[j],
                    (Elems::Int(a), Elems::Int(b)) => a[*i] == b[j],
                    _ => false,
                };
                let at = (0..n).find(same).ok_or_else(|| format!("a map without label {j}"))?;
                let Value::Tensor(value) = &found[at] else { return Err("expected maps of numbers".into()) };
                values.extend(value.to_f64s());
            }
        }
        if values.len() != maps.len() * n {
            return Err("expected one number for each key".into());
        }
        Ok(Tensor::from_elems(DType::F32, vec![maps.len(), n], &Elems::Float(values)))
    }
}

/// Load a `.pb` file that holds a value of the declared type `ty` (the file itself does not say which kind it is).
pub fn load_value(path: &Path, ty: &TypeProto) -> Result<Value> {
    let bytes = load::map(path).map_err(|source| Error::Io { file: path.to_path_buf(), source })?;
    decode_value(path, bytes, ty, path.parent())
}

/// As [`load_value`], from memory; `file` is used in messages.
pub fn decode_value(file: &Path, bytes: Bytes, ty: &TypeProto, folder: Option<&Path>) -> Result<Value> {
    let external = ExternalData::new(folder);
    let value = match &ty.value {
        None | Some(TypeValue::Tensor(_)) => tensor(&load::message(file, bytes)?, &external),
        Some(TypeValue::SparseTensor(_)) => sparse(&load::message(file, bytes)?, &external),
        Some(TypeValue::Sequence(_)) => sequence(&load::message(file, bytes)?, &external).map(Value::Sequence),
        Some(TypeValue::Optional(_)) => optional(&load::message(file, bytes)?, &external),
        Some(TypeValue::Map(_)) => map(&load::message(file, bytes)?, &external),
        Some(TypeValue::Opaque(_)) => Err("opaque values are not supported".into()),
    };
    value.map_err(|message| Error::Decode { file: file.to_path_buf(), message, hint: None })
}

fn tensor(t: &TensorProto, external: &ExternalData) -> Result<Value, String> {
    tensor_data::tensor(t, external).map(Value::Tensor)
}

fn sparse(t: &SparseTensorProto, external: &ExternalData) -> Result<Value, String> {
    tensor_data::sparse_tensor(t, external).map(Value::Tensor)
}

fn sequence(s: &SequenceProto, external: &ExternalData) -> Result<Vec<Value>, String> {
    match ElementKind::try_from(s.elem_type) {
        Ok(ElementKind::Undefined) => Ok(vec![]),
        Ok(ElementKind::Tensor) => s.tensor_values.iter().map(|t| tensor(t, external)).collect(),
        Ok(ElementKind::SparseTensor) => s.sparse_tensor_values.iter().map(|t| sparse(t, external)).collect(),
        Ok(ElementKind::Sequence) => {
            s.sequence_values.iter().map(|s| sequence(s, external).map(Value::Sequence)).collect()
        }
        Ok(ElementKind::Map) => s.map_values.iter().map(|m| map(m, external)).collect(),
        Ok(ElementKind::Optional) => s.optional_values.iter().map(|o| optional(o, external)).collect(),
        Err(_) => Err(format!("unknown kind of elements {}", s.elem_type)),
    }
}

fn optional(o: &OptionalProto, external: &ExternalData) -> Result<Value, String> {
    let inside = match ElementKind::try_from(o.elem_type) {
        Ok(ElementKind::Undefined) => None,
        Ok(ElementKind::Tensor) => o.tensor_value.as_ref().map(|t| tensor(t, external)),
        Ok(ElementKind::SparseTensor) => o.sparse_tensor_value.as_ref().map(|t| sparse(t, external)),
        Ok(ElementKind::Sequence) => o.sequence_value.as_ref().map(|s| sequence(s, external).map(Value::Sequence)),
        Ok(ElementKind::Map) => o.map_value.as_ref().map(|m| map(m, external)),
        Ok(ElementKind::Optional) => o.optional_value.as_ref().map(|o| optional(o, external)),
        Err(_) => return Err(format!("unknown kind of element {}", o.elem_type)),
    };
    Ok(Value::Optional(inside.transpose()?.map(Box::new)))
}

fn map(m: &MapProto, external: &ExternalData) -> Result<Value, String> {
    let keys = TensorProto {
        dims: vec![i64::try_from(m.keys.len().max(m.string_keys.len())).unwrap_or(i64::MAX)],
        data_type: if m.string_keys.is_empty() { DType::I64 } else { DType::Str }.onnx(),
        int64_data: m.keys.clone(),
        string_data: m.string_keys.clone(),
        name: m.name.clone(),
        ..Default::default()
    };
    let keys = tensor_data::tensor(&keys, external)?;
    let values = m.values.as_ref().map_or(Ok(vec![]), |s| sequence(s, external))?;
    if keys.len() != values.len() {
        return Err(format!("a map with {} keys has {} values", keys.len(), values.len()));
    }
    Ok(Value::Map { keys, values })
}
