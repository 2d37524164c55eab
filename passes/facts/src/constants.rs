//! What there is to know of constants.
use numrsc_ir::{DType, Lit, Tensor};

/// The one number that all elements are.
#[allow(clippy::wildcard_enum_match_arm, reason = "all types have bits")]
pub fn one_number(value: &Tensor) -> Option<Lit> {
    if value.dtype() == DType::Str || value.is_empty() {
        return None;
    }
    let size = value.dtype().size();
    let first = &value.bytes()[..size];
    if value.bytes().chunks_exact(size).any(|x| x != first) {
        return None;
    }
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(first);
    let bits = u64::from_le_bytes(bytes);
    let bits = match value.dtype() {
        DType::Bool => u64::from(bits != 0),
        d if d.bits() == 64 => bits,
        d => bits & ((1 << d.bits()) - 1),
    };
    Lit::from_bits(value.dtype(), bits)
}

/// A constant of one element, which needs no memory.
pub fn scalar_literal(value: &Tensor) -> Option<Lit> {
    if value.len() != 1 || value.dtype() == DType::Str {
        return None;
    }
    let mut bytes = [0; 8];
    bytes[..value.bytes().len()].copy_from_slice(value.bytes());
    let bits = u64::from_le_bytes(bytes);
    let bits = if value.dtype() == DType::Bool { u64::from(bits != 0) } else { bits };
    let mask = if value.dtype().bits() == 64 { u64::MAX } else { (1 << value.dtype().bits()) - 1 };
    Lit::from_bits(value.dtype(), bits & mask)
}

/// Has a tensor neither infinities nor NaN?
#[allow(clippy::wildcard_enum_match_arm, reason = "integers are finite")]
pub fn is_finite(t: &Tensor) -> bool {
    match t.dtype() {
        // Weights: without decoding each into something wider.
        DType::F32 => t.bytes().chunks_exact(4).all(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).is_finite()),
        d if d.is_float() => t.to_f64s().iter().all(|x| x.is_finite()),
        d => d != DType::Str,
    }
}
