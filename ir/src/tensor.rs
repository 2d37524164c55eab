//! Tensors as plain data: what models store, evaluators compute and files hold.
use crate::DType;
use bytes::Bytes;
use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

/// A dense row-major tensor. Bytes are little-endian and may be a view of a mapped file, so cloning is cheap and
/// weights are never copied on their way through the compiler. Alignment is not guaranteed.
#[derive(Clone, PartialEq, Eq)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    data: Data,
}

#[derive(Clone, PartialEq, Eq)]
enum Data {
    Plain(Bytes),
    Strings(Arc<[String]>),
}

/// Elements as numbers wide enough to be exact: floats as `f64`, integers and bools as `i128`.
#[derive(Clone, PartialEq, Debug)]
pub enum Elems {
    Float(Vec<f64>),
    Int(Vec<i128>),
    Str(Vec<String>),
}

/// The number of elements of a shape, if it fits in memory's address range.
pub fn count(shape: &[usize]) -> Option<usize> {
    // A dimension is never larger than addresses, even of a tensor without elements.
    if shape.iter().any(|&d| isize::try_from(d).is_err()) {
        return None;
    }
    // A zero dimension makes the tensor empty whatever the other dimensions are.
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|&n| n <= isize::MAX as usize / 16)
}

/// Is there memory for that many bytes? What takes it by and by asks in one piece first: an allocation that fails later would end the process.
pub fn room_for(bytes: usize) -> Result<(), String> {
    /// Less than this is there.
    const SMALL: usize = 1 << 20;
    let mut room: Vec<u8> = Vec::new();
    if bytes > SMALL && room.try_reserve_exact(bytes).is_err() {
        return Err(format!("out of memory: there is no room for {bytes} bytes"));
    }
    // A block that nobody looks at need not be asked for.
    std::hint::black_box(&mut room);
    Ok(())
}

impl Tensor {
    /// A tensor over raw little-endian bytes (one byte per element for types narrower than a byte).
    pub fn new(dtype: DType, shape: Vec<usize>, data: Bytes) -> Result<Tensor, String> {
        let n = count(&shape).ok_or_else(|| format!("shape {shape:?} has too many elements"))?;
        if dtype == DType::Str || data.len() != n * dtype.size() {
            return Err(format!("{dtype}{shape:?} needs {} bytes, got {}", n * dtype.size(), data.len()));
        }
        Ok(Tensor { dtype, shape, data: Data::Plain(data) })
    }

    pub fn from_strings(shape: Vec<usize>, strings: Vec<String>) -> Result<Tensor, String> {
        if count(&shape) != Some(strings.len()) {
            return Err(format!("str{shape:?} does not hold {} strings", strings.len()));
        }
        Ok(Tensor { dtype: DType::Str, shape, data: Data::Strings(strings.into()) })
    }

    /// Encode numbers; floats round to nearest even, integers wrap.
    ///
    /// # Panics
    /// If the number of elements does not fit the shape, or their kind does not fit the type.
    pub fn from_elems(dtype: DType, shape: Vec<usize>, elems: &Elems) -> Tensor {
        let mut out = Vec::new();
        match elems {
            Elems::Float(v) => {
                out.reserve(v.len() * dtype.size());
                match dtype {
                    DType::F32 => v.iter().for_each(|&x| out.extend_from_slice(&(x as f32).to_le_bytes())),
                    DType::F64 => v.iter().for_each(|&x| out.extend_from_slice(&x.to_le_bytes())),
                    _ => {
                        let n = dtype.size();
                        v.iter().for_each(|&x| {
                            out.extend_from_slice(&dtype.float_to_bits(x, false).to_le_bytes()[..n]);
                        });
                    }
                }
            }
            Elems::Int(v) => {
                assert!(!dtype.is_float(), "integers given for {dtype}");
                let n = dtype.size();
                out.reserve(v.len() * n);
                v.iter().for_each(|&x| out.extend_from_slice(&dtype.wrap(x).to_le_bytes()[..n]));
            }
            Elems::Str(v) => return Tensor::from_strings(shape, v.clone()).expect("count matches"),
        }
        Tensor::new(dtype, shape, out.into()).expect("count matches")
    }

    pub fn from_f32(shape: &[usize], v: &[f32]) -> Tensor {
        Tensor::from_elems(DType::F32, shape.to_vec(), &Elems::Float(v.iter().map(|&x| f64::from(x)).collect()))
    }

    pub fn from_i64(shape: &[usize], v: &[i64]) -> Tensor {
        Tensor::from_elems(DType::I64, shape.to_vec(), &Elems::Int(v.iter().map(|&x| i128::from(x)).collect()))
    }

    /// A rank-0 tensor holding `x` converted to `dtype`.
    pub fn scalar(dtype: DType, x: f64) -> Tensor {
        let elems = if dtype.is_float() { Elems::Float(vec![x]) } else { Elems::Int(vec![x as i128]) };
        Tensor::from_elems(dtype, vec![], &elems)
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        count(&self.shape).expect("checked when made")
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The raw bytes (empty for strings).
    pub fn bytes(&self) -> &Bytes {
        static NONE: Bytes = Bytes::new();
        match &self.data {
            Data::Plain(b) => b,
            Data::Strings(_) => &NONE,
        }
    }

    pub fn strings(&self) -> Option<&[String]> {
        match &self.data {
            Data::Plain(_) => None,
            Data::Strings(s) => Some(s),
        }
    }

    /// The same elements under another shape of the same size.
    pub fn reshaped(&self, shape: Vec<usize>) -> Result<Tensor, String> {
        if count(&shape) != Some(self.len()) {
            return Err(format!("cannot view {:?} as {shape:?}", self.shape));
        }
        Ok(Tensor { shape, ..self.clone() })
    }

    /// Decode all elements.
    pub fn elems(&self) -> Elems {
        let bytes = match &self.data {
            Data::Strings(s) => return Elems::Str(s.to_vec()),
            Data::Plain(b) => &b[..],
        };
        let d = self.dtype;
        if d.is_float() { Elems::Float(decode_floats(d, bytes)) } else { Elems::Int(decode_ints(d, bytes)) }
    }

    /// Elements of any numeric type as `f64` (rounding integers beyond 2^53).
    pub fn to_f64s(&self) -> Vec<f64> {
        match self.elems() {
            Elems::Float(v) => v,
            Elems::Int(v) => v.into_iter().map(|x| x as f64).collect(),
            Elems::Str(_) => vec![],
        }
    }

    /// Elements of an integer or bool tensor as `i64`; `None` for other types or values beyond `i64`.
    pub fn to_i64s(&self) -> Option<Vec<i64>> {
        match self.elems() {
            Elems::Int(v) => v.into_iter().map(|x| i64::try_from(x).ok()).collect(),
            Elems::Float(_) | Elems::Str(_) => None,
        }
    }
}

fn decode_floats(d: DType, bytes: &[u8]) -> Vec<f64> {
    match d {
        DType::F32 => bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect(),
        _ => bytes.chunks_exact(d.size()).map(|b| d.float_from_bits(unsigned(b))).collect(),
    }
}

fn decode_ints(d: DType, bytes: &[u8]) -> Vec<i128> {
    if d == DType::Bool {
        return bytes.iter().map(|&b| i128::from(b != 0)).collect();
    }
    bytes.chunks_exact(d.size()).map(|b| d.wrap(i128::from(unsigned(b)))).collect()
}

fn unsigned(b: &[u8]) -> u64 {
    b.iter().rev().fold(0, |x, &b| (x << 8) | u64::from(b))
}

impl Elems {
    pub fn len(&self) -> usize {
        match self {
            Elems::Float(v) => v.len(),
            Elems::Int(v) => v.len(),
            Elems::Str(v) => v.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Hash for Tensor {
    /// Looks at no more than the ends of the data: weights of hundreds of megabytes are hashed when a node is pushed.
    fn hash<H: Hasher>(&self, state: &mut H) {
        const ENDS: usize = 256;
        (self.dtype, &self.shape).hash(state);
        match &self.data {
            Data::Plain(b) => {
                b[..b.len().min(ENDS)].hash(state);
                b[b.len().saturating_sub(ENDS)..].hash(state);
            }
            Data::Strings(s) => s.hash(state),
        }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)?;
        if self.len() <= 16 { write!(f, " {:?}", self.elems()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_through_bytes() {
        for d in DType::ALL.iter().copied().filter(|&d| d != DType::Str) {
            let t = if d.is_float() {
                Tensor::from_elems(d, vec![2], &Elems::Float(vec![1.0, 2.0]))
            } else {
                let (low, high) = d.int_range();
                Tensor::from_elems(d, vec![2], &Elems::Int(vec![low, high]))
            };
            assert_eq!(Tensor::from_elems(d, vec![2], &t.elems()), t);
        }
    }

    #[test]
    fn sizes_are_checked() {
        assert!(Tensor::new(DType::F32, vec![2], Bytes::from_static(&[0; 7])).is_err());
        assert!(Tensor::new(DType::F32, vec![usize::MAX, 2], Bytes::new()).is_err());
        assert!(Tensor::new(DType::F32, vec![usize::MAX, 0], Bytes::new()).is_err());
        assert!(Tensor::new(DType::F32, vec![isize::MAX as usize, 0], Bytes::new()).is_ok());
    }
}
