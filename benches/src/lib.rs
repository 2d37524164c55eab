//! Benchmarks of numrsc. Each is a program that measures whole processes, so that memory and start-up count.
pub mod chart;
pub mod document;
pub mod double;
pub mod driver;
pub mod flops;
pub mod graphs;
pub mod memory;
pub mod npy;
pub mod openvino;
pub mod ort;
pub mod peers;
pub mod results;
pub mod rounds;
pub mod side_by_side;
pub mod table;

pub use numrsc_bench_protocol::{self as protocol, exit_code, raw, status_kb};
use numrsc_runtime::{DType, TensorRef};

/// A file's tensor as an input of our runtime.
pub fn input(raw: &raw::RawTensor) -> Result<TensorRef<'_>, String> {
    let dtype = DType::from_onnx(raw.onnx_type).ok_or("an unknown element type")?;
    Ok(TensorRef::raw(dtype, raw.bytes(), &raw.shape))
}
