//! The C interface, called as C would.
#![allow(unsafe_code, reason = "this is the other side of a C interface")]
mod common;
use common::*;
use numrsc_runtime::{DType, artifact::Builder, capi::*};
use std::{
    ffi::{CStr, CString, c_char, c_void},
    path::Path,
    ptr::{null, null_mut},
    slice,
};

/// The text of an error, which is freed; empty if there is none.
fn text(error: *mut numrsc_error) -> String {
    unsafe {
        let text = CStr::from_ptr(numrsc_error_text(error)).to_str().unwrap().to_string();
        numrsc_error_free(error);
        text
    }
}

/// Its code passes the address of input 0 on as output 0, if it is a sequence or strings; x86-64 only, as it has to be in a file.
/// `mov rax, [rdi+24]; mov rax, [rax]; mov rdx, [rdi+32]; mov [rdx], rax; xor eax, eax; ret`, and before the end for tensors
/// of one axis `mov rax, [rdi+24]; mov rax, [rax+8]; mov rax, [rax]; mov rdx, [rdx+8]; mov [rdx], rax`.
#[cfg(target_arch = "x86_64")]
fn passing_code(tensor: bool) -> Vec<u8> {
    let mut code = vec![0x48, 0x8b, 0x47, 24, 0x48, 0x8b, 0x00, 0x48, 0x8b, 0x57, 32, 0x48, 0x89, 0x02];
    if tensor {
        code.extend([0x48, 0x8b, 0x47, 24, 0x48, 0x8b, 0x40, 8, 0x48, 0x8b, 0x00]);
        code.extend([0x48, 0x8b, 0x52, 8, 0x48, 0x89, 0x02]);
    }
    code.extend([0x31, 0xc0, 0xc3]);
    code
}

struct Loaded {
    model: *mut numrsc_model,
    context: *mut numrsc_context,
    _folder: tempfile::TempDir,
}

#[cfg(target_arch = "x86_64")]
impl Loaded {
    fn new(port: impl Fn(&str) -> numrsc_runtime::artifact::PortSpec, tensor: bool) -> Loaded {
        let mut manifest = manifest();
        manifest.inputs = vec![port("x")];
        manifest.outputs = vec![port("y")];
        let code = passing_code(tensor);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.nrsc");
        let builder =
            Builder::<&[u8]> { architecture: host(), manifest: &manifest, code: &code, additions: &[], weights: &[] };
        std::fs::write(&path, builder.to_bytes().unwrap()).unwrap();
        let (mut model, mut context) = (null_mut(), null_mut());
        unsafe {
            assert_eq!(text(numrsc_load_verified(c_path(&path).as_ptr(), &raw mut model)), "");
            assert_eq!(text(numrsc_context_new(model, 0, &raw mut context)), "");
        }
        Loaded { model, context, _folder: folder }
    }

    fn run(&self, input: &numrsc_tensor) -> String {
        text(unsafe { numrsc_run(self.context, null(), input, 1) })
    }

    fn result(&self) -> numrsc_tensor {
        let mut tensor = numrsc_tensor { data: null(), dtype: -1, rank: 99, dims: null() };
        assert_eq!(text(unsafe { numrsc_result(self.context, 0, &raw mut tensor) }), "");
        tensor
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        unsafe {
            // The context outlives the model.
            numrsc_model_free(self.model);
            numrsc_context_free(self.context);
        }
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.to_str().unwrap()).unwrap()
}

fn values<'a, T>(tensor: &numrsc_tensor) -> (&'a [usize], &'a [T]) {
    unsafe {
        let dims = slice::from_raw_parts(tensor.dims, tensor.rank);
        (dims, slice::from_raw_parts(tensor.data.cast(), dims.iter().product()))
    }
}

fn numbers<T>(data: &[T], dtype: DType, dims: &[usize]) -> numrsc_tensor {
    numrsc_tensor { data: data.as_ptr().cast(), dtype: dtype.onnx(), rank: dims.len(), dims: dims.as_ptr() }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_tensor_goes_through() {
    let loaded = Loaded::new(|name| tensor(name, DType::F32, &[-1]), true);
    let data = [1.0f32, 2.0, 3.0];
    unsafe {
        assert_eq!((numrsc_input_count(loaded.model), numrsc_output_count(loaded.model)), (1, 1));
        let mut port = std::mem::zeroed::<numrsc_port>();
        assert_eq!(text(numrsc_input(loaded.model, 0, &raw mut port)), "");
        assert_eq!(CStr::from_ptr(port.name), c"x");
        assert_eq!((port.dtype, port.depth, port.rank, *port.dims), (1, 0, 1, -1));
        assert_eq!(text(numrsc_output(loaded.model, 0, &raw mut port)), "");
        assert_eq!(CStr::from_ptr(port.name), c"y");
        assert!(!text(numrsc_output(loaded.model, 1, &raw mut port)).is_empty());
    }
    assert_eq!(loaded.run(&numbers(&data, DType::F32, &[3])), "");
    assert_eq!(values::<f32>(&loaded.result()), (&[3][..], &data[..]));

    let names = [c"x".as_ptr()];
    let input = numbers(&data[..2], DType::F32, &[2]);
    let mut result = input;
    unsafe {
        assert_eq!(text(numrsc_run(loaded.context, names.as_ptr(), &raw const input, 1)), "");
        assert_eq!(text(numrsc_result_named(loaded.context, c"y".as_ptr(), &raw mut result)), "");
        assert_eq!(values::<f32>(&result), (&[2][..], &data[..2]));
        assert!(text(numrsc_result_named(loaded.context, c"z".as_ptr(), &raw mut result)).contains("`y`"));
        let names = [c"nonsense".as_ptr()];
        assert!(text(numrsc_run(loaded.context, names.as_ptr(), &raw const input, 1)).contains("nonsense"));
    }

    let mut out = [0.0f32; 2];
    let buffer = numrsc_buffer { output: 0, data: out.as_mut_ptr().cast(), bytes: 8 };
    let (mut rank, mut dims) = (0, null());
    unsafe {
        assert_eq!(text(numrsc_run_into(loaded.context, null(), &raw const input, 1, &raw const buffer, 1)), "");
        assert_eq!(text(numrsc_result_shape(loaded.context, 0, &raw mut rank, &raw mut dims)), "");
        assert_eq!(slice::from_raw_parts(dims, rank), [2]);
        let small = numrsc_buffer { bytes: 4, ..buffer };
        let error = text(numrsc_run_into(loaded.context, null(), &raw const input, 1, &raw const small, 1));
        assert!(error.contains("needs 8 bytes"), "{error}");
        let elsewhere = numrsc_buffer { output: 7, ..buffer };
        let error = text(numrsc_run_into(loaded.context, null(), &raw const input, 1, &raw const elsewhere, 1));
        assert!(error.contains("position 7"), "{error}");
    }
    assert_eq!(out, [1.0, 2.0]);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn strings_go_through() {
    let loaded = Loaded::new(|name| tensor(name, DType::Str, &[-1]), true);
    let strings =
        [b"one\0" as &[u8], b"", b"three"].map(|text| numrsc_string { data: text.as_ptr().cast(), length: text.len() });
    assert_eq!(loaded.run(&numbers(&strings, DType::Str, &[3])), "");
    let (dims, result) = values::<numrsc_string>(&loaded.result());
    assert_eq!(dims, [3]);
    let read = |string: &numrsc_string| unsafe { slice::from_raw_parts(string.data.cast::<u8>(), string.length) };
    assert_eq!(result.iter().map(read).collect::<Vec<_>>(), [b"one\0" as &[u8], b"", b"three"]);
    assert_eq!(loaded.result().data, loaded.result().data, "converted once");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn sequences_go_through() {
    let loaded = Loaded::new(|name| sequence(name, DType::I64, 2, None), false);
    let data = [1i64, 2, 3, 4];
    let inner = [numbers(&data, DType::I64, &[2, 2]), numbers(&data[..1], DType::I64, &[])];
    let list = |tensors: &[numrsc_tensor], length: &usize| numrsc_tensor {
        data: tensors.as_ptr().cast(),
        dtype: numrsc_dtype::NUMRSC_SEQUENCE as i32,
        rank: 1,
        dims: length,
    };
    let outer = [list(&inner, &2), list(&[], &0)];
    assert_eq!(loaded.run(&list(&outer, &2)), "");
    let (length, outer) = values::<numrsc_tensor>(&loaded.result());
    assert_eq!(length, [2]);
    let (length, inner) = values::<numrsc_tensor>(&outer[0]);
    assert_eq!(length, [2]);
    assert_eq!(values::<i64>(&inner[0]), (&[2, 2][..], &data[..]));
    assert_eq!(values::<i64>(&inner[1]), (&[][..], &data[..1]));
    assert_eq!(values::<numrsc_tensor>(&outer[1]).0, [0]);

    // A sequence that contains itself.
    let mut cycle = [list(&[], &1)];
    cycle[0].data = (&raw const cycle).cast();
    assert!(loaded.run(&cycle[0]).contains("too deep"));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn wrong_calls_are_told() {
    let loaded = Loaded::new(|name| tensor(name, DType::F32, &[-1]), true);
    let good = numbers(&[1.0f32], DType::F32, &[1]);
    let null_data = numrsc_tensor { data: null(), ..good };
    let odd_data = numrsc_tensor { data: std::ptr::dangling::<c_void>(), ..numbers(&[0.0f32], DType::F32, &[0]) };
    assert!(loaded.run(&null_data).contains("null"));
    assert_eq!(loaded.run(&odd_data), "", "nothing is read of an empty tensor");
    assert!(loaded.run(&numrsc_tensor { dims: null(), ..good }).contains("null"));
    assert!(loaded.run(&numrsc_tensor { dtype: 999, ..good }).contains("element type"));
    assert!(loaded.run(&numrsc_tensor { dtype: 0, rank: 0, ..good }).contains("one axis"));
    assert!(loaded.run(&numbers(&[1.0f32], DType::F32, &[usize::MAX, 2])).contains("too large"));
    let mut result = good;
    unsafe {
        assert!(text(numrsc_result(loaded.context, 0, &raw mut result)).contains("no outputs"));
        assert!(text(numrsc_run(loaded.context, null(), null(), 1)).contains("null"));
        assert!(text(numrsc_run(null_mut(), null(), &raw const good, 1)).contains("null"));
        let names = [null::<c_char>()];
        assert!(text(numrsc_run(loaded.context, names.as_ptr(), &raw const good, 1)).contains("null"));
        assert!(text(numrsc_run(loaded.context, null(), null(), 0)).contains("1 input "));
        assert!(text(numrsc_result(loaded.context, 0, null_mut())).contains("null"));
        assert!(text(numrsc_context_new(null(), 1, null_mut())).contains("null"));
    }
    assert_eq!(loaded.run(&good), "");
}

#[test]
fn loading_what_is_not_there() {
    let mut model = null_mut();
    unsafe {
        assert!(text(numrsc_load(c"/nowhere/model.nrsc".as_ptr(), &raw mut model)).contains("/nowhere/model.nrsc"));
        assert!(model.is_null());
        assert!(text(numrsc_load(null(), &raw mut model)).contains("null"));
        assert!(text(numrsc_load(c"x".as_ptr(), null_mut())).contains("null"));
        assert_eq!((numrsc_input_count(null()), numrsc_output_count(null())), (0, 0));
        numrsc_model_free(null_mut());
        numrsc_context_free(null_mut());
        numrsc_error_free(null_mut());
        assert_eq!(CStr::from_ptr(numrsc_error_text(null())), c"");
        assert_eq!(numrsc_format_version(), numrsc_runtime::artifact::FORMAT_VERSION);
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn runs_can_be_ended() {
    let loaded = Loaded::new(|name| tensor(name, DType::F32, &[-1]), true);
    let input = numbers(&[1.0f32, 2.0], DType::F32, &[2]);
    let mut canceller = null_mut();
    unsafe {
        assert_eq!(text(numrsc_canceller_new(loaded.context, &raw mut canceller)), "");
        assert_eq!(loaded.run(&input), "");
        numrsc_cancel(canceller);
        assert_eq!(loaded.run(&input), "the run was stopped");
        numrsc_reset(canceller);
        assert_eq!(loaded.run(&input), "");
        numrsc_canceller_free(canceller);
        numrsc_cancel(null());
        numrsc_canceller_free(null_mut());
    }
    assert_eq!(loaded.run(&input), "");
}
