//! The C interface. `include/numrsc.h` is generated from this file by a test (`NUMRSC_BLESS=1` writes it).
//!
//! The crate is an ordinary Rust library; a C library is built on request:
//! `cargo rustc -p numrsc-runtime --release --crate-type staticlib` (or `cdylib`). Functions that can fail give an error, which the
//! caller frees, or null. There is no global state; panics end here.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]
use crate::{
    Canceller, Context, DType, Error, Model, Result, TensorMut, TensorRef, TensorView, Text,
    artifact::{Dim, Port, PortKind},
    context::{EntryFn, RunContext},
};
use std::{
    cell::RefCell,
    ffi::{CStr, CString, c_char, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::null,
    slice,
};

/// A loaded model. It may be used by several threads at once, and freed before its contexts.
#[derive(Debug)]
pub struct numrsc_model {
    model: Model,
    inputs: Vec<PortData>,
    outputs: Vec<PortData>,
}

/// What a thread needs to run a model. Used by one thread at a time.
#[derive(Debug)]
pub struct numrsc_context {
    context: Context,
    /// Outputs that have another form here, by position.
    converted: Vec<Option<Converted>>,
}

/// Ends runs of a context. Used by any number of threads at once.
#[derive(Debug)]
pub struct numrsc_canceller {
    canceller: Canceller,
}

/// What a running model sees of its surroundings; only the runtime makes one.
#[derive(Debug)]
pub struct numrsc_run_context {
    _context: RunContext,
}

/// What went wrong.
#[derive(Debug)]
pub struct numrsc_error {
    text: CString,
}

/// Element types: the numbers of ONNX's `TensorProto.DataType`. Types narrower than a byte take one byte per element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum numrsc_dtype {
    /// The elements are `numrsc_tensor`.
    NUMRSC_SEQUENCE = 0,
    NUMRSC_F32 = 1,
    NUMRSC_U8 = 2,
    NUMRSC_I8 = 3,
    NUMRSC_U16 = 4,
    NUMRSC_I16 = 5,
    NUMRSC_I32 = 6,
    NUMRSC_I64 = 7,
    /// The elements are `numrsc_string`.
    NUMRSC_STR = 8,
    NUMRSC_BOOL = 9,
    NUMRSC_F16 = 10,
    NUMRSC_F64 = 11,
    NUMRSC_U32 = 12,
    NUMRSC_U64 = 13,
    NUMRSC_BF16 = 16,
    NUMRSC_F8E4M3 = 17,
    NUMRSC_F8E4M3FNUZ = 18,
    NUMRSC_F8E5M2 = 19,
    NUMRSC_F8E5M2FNUZ = 20,
    NUMRSC_U4 = 21,
    NUMRSC_I4 = 22,
    NUMRSC_F4E2M1 = 23,
    NUMRSC_F8E8M0 = 24,
    NUMRSC_U2 = 25,
    NUMRSC_I2 = 26,
}

/// A tensor: elements in order of the last axis first. A sequence has one axis, its length.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct numrsc_tensor {
    pub data: *const c_void,
    /// A `numrsc_dtype`.
    pub dtype: i32,
    pub rank: usize,
    pub dims: *const usize,
}

/// A string of any bytes; it does not end with 0.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct numrsc_string {
    pub data: *const c_char,
    pub length: usize,
}

/// A buffer for the output at a position.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct numrsc_buffer {
    pub output: usize,
    pub data: *mut c_void,
    pub bytes: usize,
}

/// An input or output of a model. Lives as long as the model.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct numrsc_port {
    pub name: *const c_char,
    /// A `numrsc_dtype`: of the tensor, or of the tensors within the sequence.
    pub dtype: i32,
    /// 0 for a tensor, 1 for a sequence of tensors, 2 for a sequence of such sequences.
    pub depth: i32,
    /// The number of axes, or -1 if it is open (within sequences).
    pub rank: i64,
    /// The size of each axis, or -1 if it is known only when running.
    pub dims: *const i64,
    /// The whole type as text.
    pub type_text: *const c_char,
}

/// The version of artifacts that this library reads.
#[unsafe(no_mangle)]
pub extern "C" fn numrsc_format_version() -> u32 {
    crate::artifact::FORMAT_VERSION
}

/// Load an artifact. Weights are mapped, not read. The file must not be written to while the model lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_load(path: *const c_char, model: *mut *mut numrsc_model) -> *mut numrsc_error {
    // SAFETY: the caller's pointers are as documented; as for all functions here.
    guard(|| unsafe { load(path, model, false) })
}

/// As `numrsc_load`, and compare the weights with their checksum.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_load_verified(path: *const c_char, model: *mut *mut numrsc_model) -> *mut numrsc_error {
    // SAFETY: as above.
    guard(|| unsafe { load(path, model, true) })
}

/// Make a model of what is linked into the program, under the names in the header that `numrsc compile --emit obj` (or `staticlib`,
/// `so`) writes: for a model `m` these are `m_manifest`, `m_manifest_size`, `m_entry`, `m_weights` and `m_weights_size`. Nothing is copied, so all of it
/// must stay where it is while the model and its contexts live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_from_parts(
    manifest: *const u8,
    manifest_size: u64,
    entry: Option<unsafe extern "C" fn(context: *mut numrsc_run_context) -> i32>,
    weights: *const u8,
    weights_size: u64,
    model: *mut *mut numrsc_model,
) -> *mut numrsc_error {
    // SAFETY: as above.
    guard(|| unsafe {
        let out = some_mut(model)?;
        *out = std::ptr::null_mut();
        let length = |size: u64| usize::try_from(size).map_err(|_| misuse("a size is too large"));
        let manifest = array(manifest, length(manifest_size)?)?;
        let weights = array(weights, length(weights_size)?)?;
        let entry = entry.ok_or(misuse("a pointer is null"))?;
        // What C sees of the context differs only by its name.
        let entry = std::mem::transmute::<unsafe extern "C" fn(*mut numrsc_run_context) -> i32, EntryFn>(entry);
        give(Model::from_parts(manifest, entry, weights)?, out);
        Ok(())
    })
}

/// Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_model_free(model: *mut numrsc_model) {
    // SAFETY: it came from `numrsc_load` or `numrsc_from_parts`.
    unsafe { free(model) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_input_count(model: *const numrsc_model) -> usize {
    // SAFETY: null, or from `numrsc_load`.
    unsafe { model.as_ref() }.map_or(0, |model| model.inputs.len())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_output_count(model: *const numrsc_model) -> usize {
    // SAFETY: as above.
    unsafe { model.as_ref() }.map_or(0, |model| model.outputs.len())
}

/// Describe an input.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_input(
    model: *const numrsc_model,
    position: usize,
    port: *mut numrsc_port,
) -> *mut numrsc_error {
    // SAFETY: as above.
    guard(|| unsafe { describe(&some(model)?.inputs, position, port) })
}

/// Describe an output.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_output(
    model: *const numrsc_model,
    position: usize,
    port: *mut numrsc_port,
) -> *mut numrsc_error {
    // SAFETY: as above.
    guard(|| unsafe { describe(&some(model)?.outputs, position, port) })
}

/// Make a context that runs on that many threads, the calling one included; 0 is as many as the process may use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_context_new(
    model: *const numrsc_model,
    threads: usize,
    context: *mut *mut numrsc_context,
) -> *mut numrsc_error {
    // SAFETY: as above.
    guard(|| unsafe {
        let (model, out) = (&some(model)?.model, some_mut(context)?);
        *out = std::ptr::null_mut();
        let made = if threads == 0 { Context::new(model) } else { Context::with_threads(model, threads) }?;
        let converted = (0..made.output_count()).map(|_| None).collect();
        *out = Box::into_raw(Box::new(numrsc_context { context: made, converted }));
        Ok(())
    })
}

/// Compute with subnormal numbers, those below 1.2e-38 (`keep` is 1), or take them for 0 as by default (0): the former is exact, but takes many processors a
/// hundred times as long for each of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_keep_subnormals(context: *mut numrsc_context, keep: i32) -> *mut numrsc_error {
    // SAFETY: as above.
    guard(|| unsafe {
        some_mut(context)?.context.keep_subnormals(keep != 0);
        Ok(())
    })
}

/// Make what ends runs of a context from other threads. It may be freed before or after the context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_canceller_new(
    context: *mut numrsc_context,
    canceller: *mut *mut numrsc_canceller,
) -> *mut numrsc_error {
    // SAFETY: as above.
    guard(|| unsafe {
        let (context, out) = (some_mut(context)?, some_mut(canceller)?);
        *out = Box::into_raw(Box::new(numrsc_canceller { canceller: context.context.canceller() }));
        Ok(())
    })
}

/// End the run under way, if there is one, and all that follow until `numrsc_reset`. Loops look for it once a round.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_cancel(canceller: *const numrsc_canceller) {
    // SAFETY: null, or from `numrsc_canceller_new`.
    if let Some(c) = unsafe { canceller.as_ref() } {
        c.canceller.cancel();
    }
}

/// Let runs begin again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_reset(canceller: *const numrsc_canceller) {
    // SAFETY: as above.
    if let Some(c) = unsafe { canceller.as_ref() } {
        c.canceller.reset();
    }
}

/// Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_canceller_free(canceller: *mut numrsc_canceller) {
    // SAFETY: as above.
    unsafe { free(canceller) }
}

/// Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_context_free(context: *mut numrsc_context) {
    // SAFETY: it came from `numrsc_context_new`.
    unsafe { free(context) }
}

/// Run with inputs in the order of the model. `names` is null, or as many names, and then the order is free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_run(
    context: *mut numrsc_context,
    names: *const *const c_char,
    inputs: *const numrsc_tensor,
    input_count: usize,
) -> *mut numrsc_error {
    // SAFETY: as above.
    guard(|| unsafe { run(context, names, (inputs, input_count), (null(), 0)) })
}

/// As `numrsc_run`, and write some outputs to buffers of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_run_into(
    context: *mut numrsc_context,
    names: *const *const c_char,
    inputs: *const numrsc_tensor,
    input_count: usize,
    buffers: *const numrsc_buffer,
    buffer_count: usize,
) -> *mut numrsc_error {
    // SAFETY: as above.
    guard(|| unsafe { run(context, names, (inputs, input_count), (buffers, buffer_count)) })
}

/// An output of the last run. What `tensor` points to lives until the context runs again or is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_result(
    context: *mut numrsc_context,
    position: usize,
    tensor: *mut numrsc_tensor,
) -> *mut numrsc_error {
    // SAFETY: as above.
    guard(|| unsafe {
        let (tensor, context) = (some_mut(tensor)?, some_mut(context)?);
        *tensor = context.result(position)?;
        Ok(())
    })
}

/// An output by its name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_result_named(
    context: *mut numrsc_context,
    name: *const c_char,
    tensor: *mut numrsc_tensor,
) -> *mut numrsc_error {
    // SAFETY: as above.
    guard(|| unsafe {
        let (tensor, context, name) = (some_mut(tensor)?, some_mut(context)?, text(name)?);
        *tensor = context.result(context.context.position_of_output(name)?)?;
        Ok(())
    })
}

/// The shape of an output of the last run, also of one in a buffer of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_result_shape(
    context: *const numrsc_context,
    position: usize,
    rank: *mut usize,
    dims: *mut *const usize,
) -> *mut numrsc_error {
    // SAFETY: as above.
    guard(|| unsafe {
        let (rank, dims) = (some_mut(rank)?, some_mut(dims)?);
        let shape = some(context)?.context.output_shape(position)?;
        (*rank, *dims) = (shape.len(), shape.as_ptr());
        Ok(())
    })
}

/// Lives as long as the error. Of null it is empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_error_text(error: *const numrsc_error) -> *const c_char {
    // SAFETY: null, or from a function here.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| error.text.as_ptr())
}

/// Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numrsc_error_free(error: *mut numrsc_error) {
    // SAFETY: it came from a function here.
    unsafe { free(error) }
}

/// A port as C has it: texts that end with 0.
#[derive(Debug)]
struct PortData {
    name: CString,
    dtype: DType,
    depth: u8,
    dims: Option<Vec<i64>>,
    type_text: CString,
}

/// What the tensors of an output point to, if it is not the context's memory itself.
#[derive(Debug, Default)]
struct Converted {
    top: Option<numrsc_tensor>,
    strings: Vec<Vec<numrsc_string>>,
    tensors: Vec<Vec<numrsc_tensor>>,
    #[allow(clippy::vec_box, reason = "tensors point to them")]
    lengths: Vec<Box<usize>>,
}

/// Inputs that C has in another form, while a run borrows them. What is in a box stays where it is.
#[derive(Default)]
struct Borrowed<'a> {
    tensors: RefCell<Vec<Box<[TensorRef<'a>]>>>,
    texts: RefCell<Vec<Box<[&'a [u8]]>>>,
}

fn guard(body: impl FnOnce() -> Result<()>) -> *mut numrsc_error {
    let text = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return std::ptr::null_mut(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "bug in the runtime: it panicked".to_string(),
    };
    Box::into_raw(Box::new(numrsc_error { text: c_text(&text) }))
}

fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

fn misuse(what: &'static str) -> Error {
    Error::Misuse { what }
}

unsafe fn some<'a, T>(pointer: *const T) -> Result<&'a T> {
    // SAFETY: as the caller says.
    unsafe { pointer.as_ref() }.ok_or(misuse("a pointer is null"))
}

unsafe fn some_mut<'a, T>(pointer: *mut T) -> Result<&'a mut T> {
    // SAFETY: as the caller says.
    unsafe { pointer.as_mut() }.ok_or(misuse("a pointer is null"))
}

unsafe fn array<'a, T>(start: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(misuse("an array is null or too long"));
    }
    if !start.is_aligned() {
        return Err(misuse("an array is not aligned"));
    }
    // SAFETY: as the caller says.
    Ok(unsafe { slice::from_raw_parts(start, count) })
}

unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(some(text)?) }.to_str().map_err(|_| misuse("a text is not UTF-8"))
}

unsafe fn free<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: as the caller says. What is freed here does not panic.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

unsafe fn load(path: *const c_char, model: *mut *mut numrsc_model, verify: bool) -> Result<()> {
    // SAFETY: as the caller says.
    let (path, out) = unsafe { (CStr::from_ptr(some(path)?), some_mut(model)?) };
    *out = std::ptr::null_mut();
    #[cfg(unix)]
    let path = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path.to_bytes());
    #[cfg(not(unix))]
    let path = path.to_str().map_err(|_| misuse("a text is not UTF-8"))?;
    give(if verify { Model::load_verified(path) } else { Model::load(path) }?, out);
    Ok(())
}

/// Hand a model over to C.
fn give(model: Model, out: &mut *mut numrsc_model) {
    let inputs = model.manifest().inputs().map(|port| PortData::new(&port)).collect();
    let outputs = model.manifest().outputs().map(|port| PortData::new(&port)).collect();
    *out = Box::into_raw(Box::new(numrsc_model { model, inputs, outputs }));
}

impl PortData {
    fn new(port: &Port<'_>) -> PortData {
        let size = |dim: Dim<'_>| match dim {
            Dim::Fixed(size) => i64::try_from(size).unwrap_or(-1),
            Dim::Formula(_) | Dim::Any => -1,
        };
        PortData {
            name: c_text(port.name),
            dtype: port.dtype,
            depth: match port.kind {
                PortKind::Tensor => 0,
                PortKind::Sequence { depth } => depth,
            },
            dims: port.dims.map(|dims| dims.map(size).collect()),
            type_text: c_text(port.type_text),
        }
    }
}

unsafe fn describe(ports: &[PortData], position: usize, out: *mut numrsc_port) -> Result<()> {
    let port = ports.get(position).ok_or(misuse("there is no input or output at this position"))?;
    // SAFETY: as the caller says.
    *unsafe { some_mut(out) }? = numrsc_port {
        name: port.name.as_ptr(),
        dtype: port.dtype.onnx(),
        depth: i32::from(port.depth),
        rank: port.dims.as_ref().map_or(-1, |dims| dims.len() as i64),
        dims: port.dims.as_ref().map_or(null(), Vec::as_ptr),
        type_text: port.type_text.as_ptr(),
    };
    Ok(())
}

unsafe fn run(
    context: *mut numrsc_context,
    names: *const *const c_char,
    inputs: (*const numrsc_tensor, usize),
    buffers: (*const numrsc_buffer, usize),
) -> Result<()> {
    // SAFETY: as the caller says.
    let context = unsafe { some_mut(context) }?;
    context.converted.fill_with(|| None);
    // Also where a wrong call does not get as far as running.
    context.context.forget_outputs();
    // SAFETY: as the caller says.
    let (inputs, buffers) = unsafe { (array(inputs.0, inputs.1)?, array(buffers.0, buffers.1)?) };
    let model = context.context.model().clone();
    let ports = model.manifest().outputs();
    let mut given = Vec::with_capacity(buffers.len());
    for buffer in buffers {
        let port = ports.clone().nth(buffer.output);
        let port = port.ok_or(Error::OutputPosition { position: buffer.output, count: ports.len() })?;
        // SAFETY: as the caller says.
        unsafe { array(buffer.data.cast::<u8>(), buffer.bytes)? };
        let start =
            if buffer.bytes == 0 { std::ptr::NonNull::<u64>::dangling().as_ptr().cast() } else { buffer.data.cast() };
        // SAFETY: checked above, apart from what the caller says.
        let bytes = unsafe { slice::from_raw_parts_mut(start, buffer.bytes) };
        given.push((port.name, TensorMut::raw(port.dtype, bytes)));
    }
    let borrowed = Borrowed::default();
    let mut tensors = Vec::with_capacity(inputs.len());
    for tensor in inputs {
        // SAFETY: as the caller says; `borrowed` lives until the run is over.
        tensors.push(unsafe { borrow(tensor, &borrowed, 0)? });
    }
    if names.is_null() {
        return model.run_in_order_into(&mut context.context, &tensors, &mut given);
    }
    let mut named = Vec::with_capacity(inputs.len());
    // SAFETY: as the caller says.
    for (name, tensor) in unsafe { array(names, inputs.len())? }.iter().zip(tensors) {
        // SAFETY: as above.
        named.push((unsafe { text(*name)? }, tensor));
    }
    model.run_into(&mut context.context, &named, &mut given)
}

/// More than any type is nested: a sequence that contains itself ends here.
const DEEPEST: usize = 256;

/// # Safety
/// What the tensor points to and `borrowed` live and stay as they are while the result is used.
unsafe fn borrow<'a>(tensor: &numrsc_tensor, borrowed: &Borrowed<'a>, depth: usize) -> Result<TensorRef<'a>> {
    // SAFETY: as the caller says, for the whole body.
    unsafe {
        let shape: &'a [usize] = array(tensor.dims, tensor.rank)?;
        let too_large = || Error::TooLarge { name: Text::new("a tensor") };
        let count =
            if shape.contains(&0) { Some(0) } else { shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size)) };
        let count = count.ok_or_else(too_large)?;
        if tensor.dtype == numrsc_dtype::NUMRSC_SEQUENCE as i32 {
            if shape.len() != 1 {
                return Err(misuse("a sequence has one axis"));
            }
            if depth == DEEPEST {
                return Err(misuse("sequences are nested too deep"));
            }
            let mut elements = Vec::with_capacity(count.min(1 << 16));
            for element in array(tensor.data.cast::<numrsc_tensor>(), count)? {
                elements.push(borrow(element, borrowed, depth + 1)?);
            }
            let elements = elements.into_boxed_slice();
            let stays = slice::from_raw_parts(elements.as_ptr(), elements.len());
            borrowed.tensors.borrow_mut().push(elements);
            return Ok(TensorRef::sequence(stays));
        }
        let dtype = DType::from_onnx(tensor.dtype).ok_or(misuse("unknown element type"))?;
        if dtype == DType::Str {
            let mut texts = Vec::with_capacity(count.min(1 << 16));
            for string in array(tensor.data.cast::<numrsc_string>(), count)? {
                texts.push(array(string.data.cast::<u8>(), string.length)?);
            }
            let texts = texts.into_boxed_slice();
            let stays = slice::from_raw_parts(texts.as_ptr(), texts.len());
            borrowed.texts.borrow_mut().push(texts);
            return Ok(TensorRef::byte_texts(stays, shape));
        }
        let bytes = count.checked_mul(dtype.size()).ok_or_else(too_large)?;
        Ok(TensorRef::raw(dtype, array(tensor.data.cast::<u8>(), bytes)?, shape))
    }
}

impl numrsc_context {
    fn result(&mut self, position: usize) -> Result<numrsc_tensor> {
        let view = self.context.output(position)?;
        if !view.is_sequence() && view.dtype() != DType::Str {
            return Ok(plain(&view));
        }
        // There is one for each output.
        let converted = &mut self.converted[position];
        if let Some(Converted { top: Some(tensor), .. }) = converted {
            return Ok(*tensor);
        }
        let mut storage = Converted::default();
        let tensor = storage.convert(&view)?;
        storage.top = Some(tensor);
        *converted = Some(storage);
        Ok(tensor)
    }
}

fn plain(view: &TensorView<'_>) -> numrsc_tensor {
    let shape = view.shape();
    numrsc_tensor { data: view.data.cast(), dtype: view.dtype().onnx(), rank: shape.len(), dims: shape.as_ptr() }
}

impl Converted {
    /// Vectors are not touched any more once they are stored, so pointers into them stay valid.
    fn convert(&mut self, view: &TensorView<'_>) -> Result<numrsc_tensor> {
        if view.is_sequence() {
            let tensors = view.elements()?.map(|element| self.convert(&element)).collect::<Result<Vec<_>>>()?;
            let length = Box::new(tensors.len());
            let dtype = numrsc_dtype::NUMRSC_SEQUENCE as i32;
            let tensor = numrsc_tensor { data: tensors.as_ptr().cast(), dtype, rank: 1, dims: &raw const *length };
            self.tensors.push(tensors);
            self.lengths.push(length);
            return Ok(tensor);
        }
        if view.dtype() != DType::Str {
            return Ok(plain(view));
        }
        let string = |text: &[u8]| numrsc_string { data: text.as_ptr().cast(), length: text.len() };
        let strings: Vec<_> = view.byte_texts()?.map(string).collect();
        let tensor = numrsc_tensor { data: strings.as_ptr().cast(), ..plain(view) };
        self.strings.push(strings);
        Ok(tensor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_types_are_those_of_onnx() {
        let header = include_str!("capi.rs");
        for dtype in DType::ALL {
            let row = format!("    NUMRSC_{} = {},", dtype.name().to_uppercase(), dtype.onnx());
            assert!(header.lines().any(|line| line == row), "{row}");
        }
    }
}
