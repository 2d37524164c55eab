//! The part of OpenVINO's C interface that running a model needs, loaded from the shared library of its wheel.
#![allow(unsafe_code)]
use crate::{protocol::Output, raw::RawTensor};
use numrsc_runtime::DType;
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    fmt,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr,
};

/// `ov_core_t`, `ov_model_t`, `ov_tensor_t` …: opaque.
type Handle = *mut c_void;
/// `ov_status_e`: 0 means success.
type Status = c_int;

#[repr(C)]
struct Shape {
    rank: i64,
    sizes: *mut i64,
}

/// Our element types and OpenVINO's `ov_element_type_e`.
const ELEMENTS: [(DType, c_int); 12] = [
    (DType::Bool, 1),
    (DType::F16, 3),
    (DType::F32, 4),
    (DType::F64, 5),
    (DType::I8, 7),
    (DType::I16, 8),
    (DType::I32, 9),
    (DType::I64, 10),
    (DType::U8, 16),
    (DType::U16, 17),
    (DType::U32, 18),
    (DType::U64, 19),
];

/// Declares the functions of the library that are used.
macro_rules! api {
    ($($name:ident($($arg:ty),*) -> $result:ty;)*) => {
        struct Api {
            $($name: unsafe extern "C" fn($($arg),*) -> $result,)*
            /// Ends with pairs of texts.
            ov_core_compile_model:
                unsafe extern "C" fn(Handle, Handle, *const c_char, usize, *mut Handle, ...) -> Status,
            _library: libloading::Library,
        }

        impl Api {
            fn open(path: &Path) -> Result<Api, String> {
                let problem = |e: libloading::Error| format!("{}: {e}", path.display());
                // SAFETY: this is OpenVINO, whose initialisers have no preconditions, and these are the types of its functions, which live as long as the
                // library, which is kept.
                unsafe {
                    let library = libloading::Library::new(path).map_err(problem)?;
                    Ok(Api {
                        $($name: *library.get(concat!(stringify!($name), "\0").as_bytes()).map_err(problem)?,)*
                        ov_core_compile_model: *library.get(b"ov_core_compile_model\0").map_err(problem)?,
                        _library: library,
                    })
                }
            }
        }
    };
}

api! {
    ov_get_last_err_msg() -> *const c_char;
    ov_core_create(*mut Handle) -> Status;
    ov_core_free(Handle) -> ();
    ov_core_read_model(Handle, *const c_char, *const c_char, *mut Handle) -> Status;
    ov_model_free(Handle) -> ();
    ov_compiled_model_inputs_size(Handle, *mut usize) -> Status;
    ov_compiled_model_outputs_size(Handle, *mut usize) -> Status;
    ov_compiled_model_create_infer_request(Handle, *mut Handle) -> Status;
    ov_compiled_model_free(Handle) -> ();
    ov_infer_request_set_input_tensor_by_index(Handle, usize, Handle) -> Status;
    ov_infer_request_get_output_tensor_by_index(Handle, usize, *mut Handle) -> Status;
    ov_infer_request_infer(Handle) -> Status;
    ov_infer_request_free(Handle) -> ();
    ov_tensor_create_from_host_ptr(c_int, Shape, *mut c_void, *mut Handle) -> Status;
    ov_tensor_get_element_type(Handle, *mut c_int) -> Status;
    ov_tensor_get_shape(Handle, *mut Shape) -> Status;
    ov_tensor_get_byte_size(Handle, *mut usize) -> Status;
    ov_tensor_data(Handle, *mut *mut c_void) -> Status;
    ov_tensor_free(Handle) -> ();
    ov_shape_free(*mut Shape) -> Status;
}

impl Api {
    fn check(&self, status: Status) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the message, if there is one, is a text. Whose it is to free is not documented: it is kept.
        let text = unsafe {
            let message = (self.ov_get_last_err_msg)();
            if message.is_null() { c"" } else { CStr::from_ptr(message) }
        };
        Err(format!("OpenVINO gives status {status}: {}", what_failed(&text.to_string_lossy())))
    }

    /// The result of a function that creates an object.
    fn made(&self, make: impl FnOnce(*mut Handle) -> Status) -> Result<Handle, String> {
        let mut made = ptr::null_mut();
        self.check(make(&raw mut made))?;
        Ok(made)
    }
}

/// Messages begin with source locations and failed conditions.
fn what_failed(message: &str) -> String {
    let place = |line: &&str| line.starts_with("Exception from ") || line.starts_with("Check '") || line.is_empty();
    let said: Vec<&str> = message.lines().map(str::trim).filter(|line| !place(line)).collect();
    if said.is_empty() { message.to_owned() } else { said.join("; ") }
}

/// A compiled model with its inputs, and the outputs of the last run.
pub struct Request<'a> {
    api: Api,
    core: Handle,
    model: Handle,
    compiled: Handle,
    request: Handle,
    inputs: Vec<Handle>,
    outputs: Vec<Handle>,
    /// What the inputs point to.
    _data: &'a [RawTensor],
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("inputs", &self.inputs.len()).finish_non_exhaustive()
    }
}

impl<'a> Request<'a> {
    /// For the CPU, with the least time for one request and without a lower precision than that of the model.
    pub fn new(library: &Path, model: &Path, threads: usize, inputs: &'a [RawTensor]) -> Result<Request<'a>, String> {
        let api = Api::open(library)?;
        let path = CString::new(model.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        let threads = CString::new(threads.to_string()).map_err(|e| e.to_string())?;
        let none = ptr::null_mut();
        let mut this = Request {
            api,
            core: none,
            model: none,
            compiled: none,
            request: none,
            inputs: vec![],
            outputs: vec![],
            _data: inputs,
        };
        let api = &this.api;
        let properties = [
            c"PERFORMANCE_HINT".as_ptr(),
            c"LATENCY".as_ptr(),
            c"INFERENCE_PRECISION_HINT".as_ptr(),
            c"f32".as_ptr(),
            c"INFERENCE_NUM_THREADS".as_ptr(),
            threads.as_ptr(),
        ];
        // SAFETY: all handles come from the functions that make them, texts end with 0, and the inputs' data outlives the request.
        unsafe {
            this.core = api.made(|out| (api.ov_core_create)(out))?;
            this.model = api.made(|out| (api.ov_core_read_model)(this.core, path.as_ptr(), ptr::null(), out))?;
            let [a, b, c, d, e, f] = properties;
            this.compiled = api.made(|out| {
                let (core, model, count) = (this.core, this.model, properties.len());
                (api.ov_core_compile_model)(core, model, c"CPU".as_ptr(), count, out, a, b, c, d, e, f)
            })?;
            this.request = api.made(|out| (api.ov_compiled_model_create_infer_request)(this.compiled, out))?;
            let mut count = 0;
            api.check((api.ov_compiled_model_inputs_size)(this.compiled, &raw mut count))?;
            if count != inputs.len() {
                return Err(format!("{} inputs given, the model has {count}", inputs.len()));
            }
            for (i, tensor) in inputs.iter().enumerate() {
                let dtype = DType::from_onnx(tensor.onnx_type);
                let (_, element) = ELEMENTS.iter().find(|(d, _)| Some(*d) == dtype).ok_or("an unknown element type")?;
                let mut sizes: Vec<i64> = tensor.shape.iter().map(|&d| d as i64).collect();
                let data = tensor.bytes().as_ptr().cast_mut().cast();
                let input = api.made(|out| {
                    let shape = Shape { rank: sizes.len() as i64, sizes: sizes.as_mut_ptr() };
                    (api.ov_tensor_create_from_host_ptr)(*element, shape, data, out)
                })?;
                this.inputs.push(input);
                api.check((api.ov_infer_request_set_input_tensor_by_index)(this.request, i, input))?;
            }
            api.check((api.ov_compiled_model_outputs_size)(this.compiled, &raw mut count))?;
            this.outputs = vec![ptr::null_mut(); count];
        }
        Ok(this)
    }

    pub fn run(&mut self) -> Result<(), String> {
        // SAFETY: the request and its inputs are alive.
        self.api.check(unsafe { (self.api.ov_infer_request_infer)(self.request) })
    }

    pub fn outputs(&mut self) -> Result<Vec<Output<'_>>, String> {
        self.release_outputs();
        let api = &self.api;
        for (i, value) in self.outputs.iter_mut().enumerate() {
            // SAFETY: the request is alive; what is made is released with the request.
            *value =
                api.made(|out| unsafe { (api.ov_infer_request_get_output_tensor_by_index)(self.request, i, out) })?;
        }
        self.outputs.iter().map(|&value| self.output(value)).collect()
    }

    fn output(&self, value: Handle) -> Result<Output<'_>, String> {
        let api = &self.api;
        let (mut element, mut length, mut data) = (0, 0, ptr::null_mut());
        let mut shape = Shape { rank: 0, sizes: ptr::null_mut() };
        // SAFETY: the value was made by the last run; all pointers are to places of the right type. Its data lives until the next run, which
        // needs `&mut self`. The sizes are copied before they are freed.
        unsafe {
            api.check((api.ov_tensor_get_element_type)(value, &raw mut element))?;
            let (dtype, _) = ELEMENTS.iter().find(|(_, e)| *e == element).ok_or("an output has no plain elements")?;
            api.check((api.ov_tensor_get_shape)(value, &raw mut shape))?;
            let sizes =
                if shape.rank == 0 { &[] } else { std::slice::from_raw_parts(shape.sizes, shape.rank as usize) };
            let sizes = sizes.iter().map(|&d| d as usize).collect();
            api.check((api.ov_shape_free)(&raw mut shape))?;
            api.check((api.ov_tensor_get_byte_size)(value, &raw mut length))?;
            if length == 0 {
                return Ok((dtype.onnx(), sizes, &[]));
            }
            api.check((api.ov_tensor_data)(value, &raw mut data))?;
            Ok((dtype.onnx(), sizes, std::slice::from_raw_parts(data.cast(), length)))
        }
    }

    fn release_outputs(&mut self) {
        for value in &mut self.outputs {
            release(self.api.ov_tensor_free, std::mem::replace(value, ptr::null_mut()));
        }
    }
}

fn release(release: unsafe extern "C" fn(Handle), handle: Handle) {
    if !handle.is_null() {
        // SAFETY: each handle is released once, by its own function, after what depends on it.
        unsafe { release(handle) };
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.release_outputs();
        let api = &self.api;
        self.inputs.iter().for_each(|&value| release(api.ov_tensor_free, value));
        release(api.ov_infer_request_free, self.request);
        release(api.ov_compiled_model_free, self.compiled);
        release(api.ov_model_free, self.model);
        release(api.ov_core_free, self.core);
    }
}
