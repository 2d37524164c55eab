//! The part of ONNX Runtime's C interface that running a model needs, loaded from the shared library of its wheel.
//!
//! The wheel has no headers. The order of the members of `OrtApi` is documented to never change (`onnxruntime_c_api.h`: new ones are
//! added at the end), so it is written down here with the members in between left out.
#![allow(unsafe_code)]
use crate::{protocol::Output, raw::RawTensor};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr,
};

/// Any version from 1 to that of the library gives the same table, as far as it goes.
const API_VERSION: u32 = 17;
const LOG_ERRORS: c_int = 3;
const DEVICE_ALLOCATOR: c_int = 0;
const DEFAULT_MEMORY: c_int = 0;

/// `OrtEnv`, `OrtSession`, `OrtValue` …: opaque.
type Handle = *mut c_void;
/// `OrtStatus`: null means success.
type Status = *mut c_void;
type Release = unsafe extern "C" fn(Handle);
type LeftOut<const COUNT: usize> = [*const c_void; COUNT];

#[repr(C)]
struct ApiBase {
    get_api: unsafe extern "C" fn(u32) -> *const Api,
    get_version: unsafe extern "C" fn() -> *const c_char,
}

#[repr(C)]
struct Api {
    _0: LeftOut<2>,
    get_error_message: unsafe extern "C" fn(Status) -> *const c_char,
    create_env: unsafe extern "C" fn(c_int, *const c_char, *mut Handle) -> Status,
    _4: LeftOut<3>,
    create_session: unsafe extern "C" fn(Handle, *const c_char, Handle, *mut Handle) -> Status,
    _8: LeftOut<1>,
    run: unsafe extern "C" fn(
        Handle,
        Handle,
        *const *const c_char,
        *const Handle,
        usize,
        *const *const c_char,
        usize,
        *mut Handle,
    ) -> Status,
    create_session_options: unsafe extern "C" fn(*mut Handle) -> Status,
    _11: LeftOut<13>,
    set_intra_op_num_threads: unsafe extern "C" fn(Handle, c_int) -> Status,
    _25: LeftOut<5>,
    session_get_input_count: unsafe extern "C" fn(Handle, *mut usize) -> Status,
    session_get_output_count: unsafe extern "C" fn(Handle, *mut usize) -> Status,
    _32: LeftOut<4>,
    session_get_input_name: unsafe extern "C" fn(Handle, usize, Handle, *mut *mut c_char) -> Status,
    session_get_output_name: unsafe extern "C" fn(Handle, usize, Handle, *mut *mut c_char) -> Status,
    _38: LeftOut<11>,
    create_tensor_with_data:
        unsafe extern "C" fn(Handle, *mut c_void, usize, *const i64, usize, c_int, *mut Handle) -> Status,
    is_tensor: unsafe extern "C" fn(Handle, *mut c_int) -> Status,
    get_tensor_mutable_data: unsafe extern "C" fn(Handle, *mut *mut c_void) -> Status,
    _52: LeftOut<8>,
    get_tensor_element_type: unsafe extern "C" fn(Handle, *mut c_int) -> Status,
    get_dimensions_count: unsafe extern "C" fn(Handle, *mut usize) -> Status,
    get_dimensions: unsafe extern "C" fn(Handle, *mut i64, usize) -> Status,
    _63: LeftOut<2>,
    get_tensor_type_and_shape: unsafe extern "C" fn(Handle, *mut Handle) -> Status,
    _66: LeftOut<3>,
    create_cpu_memory_info: unsafe extern "C" fn(c_int, c_int, *mut Handle) -> Status,
    _70: LeftOut<8>,
    get_allocator_with_default_options: unsafe extern "C" fn(*mut Handle) -> Status,
    _79: LeftOut<13>,
    release_env: Release,
    release_status: Release,
    release_memory_info: Release,
    release_session: Release,
    release_value: Release,
    _97: LeftOut<2>,
    release_tensor_type_and_shape_info: Release,
    release_session_options: Release,
}

impl Api {
    fn check(&self, status: Status) -> Result<(), String> {
        if status.is_null() {
            return Ok(());
        }
        // SAFETY: a status that is not null has a message, and is ours to release.
        unsafe {
            let message = CStr::from_ptr((self.get_error_message)(status)).to_string_lossy().into_owned();
            (self.release_status)(status);
            Err(message)
        }
    }

    /// The result of a function that creates an object.
    fn made(&self, make: impl FnOnce(*mut Handle) -> Status) -> Result<Handle, String> {
        let mut made = ptr::null_mut();
        self.check(make(&raw mut made))?;
        Ok(made)
    }
}

/// ONNX Runtime itself.
#[derive(Debug)]
pub struct Library {
    library: libloading::Library,
}

impl Library {
    pub fn open(path: &Path) -> Result<Library, String> {
        // SAFETY: this is ONNX Runtime, whose initialisers have no preconditions.
        let library = unsafe { libloading::Library::new(path) }.map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Library { library })
    }

    pub fn version(&self) -> Result<String, String> {
        // SAFETY: the version is a static text.
        Ok(unsafe { CStr::from_ptr((self.base()?.get_version)()) }.to_string_lossy().into_owned())
    }

    fn base(&self) -> Result<&ApiBase, String> {
        // SAFETY: this is the type of that function, and what it gives is static.
        unsafe {
            let get = self.library.get::<unsafe extern "C" fn() -> *const ApiBase>(b"OrtGetApiBase\0");
            get.map_err(|e| e.to_string())?().as_ref().ok_or_else(|| "ONNX Runtime gives no interface".into())
        }
    }

    fn api(&self) -> Result<&Api, String> {
        // SAFETY: the table is static, and at least as long as that of this version.
        unsafe { (self.base()?.get_api)(API_VERSION).as_ref() }
            .ok_or_else(|| format!("ONNX Runtime has no API version {API_VERSION}"))
    }
}

/// A loaded model with its inputs, and the outputs of the last run.
pub struct Session<'a> {
    api: &'a Api,
    env: Handle,
    options: Handle,
    session: Handle,
    memory: Handle,
    input_names: Vec<*const c_char>,
    output_names: Vec<*const c_char>,
    inputs: Vec<Handle>,
    outputs: Vec<Handle>,
}

impl std::fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("inputs", &self.inputs.len()).finish_non_exhaustive()
    }
}

impl<'a> Session<'a> {
    pub fn new(
        library: &'a Library,
        model: &Path,
        threads: usize,
        inputs: &'a [RawTensor],
    ) -> Result<Session<'a>, String> {
        let api = library.api()?;
        let path = CString::new(model.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        let mut this = Session {
            api,
            env: ptr::null_mut(),
            options: ptr::null_mut(),
            session: ptr::null_mut(),
            memory: ptr::null_mut(),
            input_names: vec![],
            output_names: vec![],
            inputs: vec![],
            outputs: vec![],
        };
        // SAFETY: all handles come from the functions that make them, texts end with 0, and the input's data outlives the session.
        unsafe {
            this.env = api.made(|out| (api.create_env)(LOG_ERRORS, c"bench".as_ptr(), out))?;
            this.options = api.made(|out| (api.create_session_options)(out))?;
            api.check((api.set_intra_op_num_threads)(this.options, threads as c_int))?;
            this.session = api.made(|out| (api.create_session)(this.env, path.as_ptr(), this.options, out))?;
            this.memory = api.made(|out| (api.create_cpu_memory_info)(DEVICE_ALLOCATOR, DEFAULT_MEMORY, out))?;
            let allocator = api.made(|out| (api.get_allocator_with_default_options)(out))?;
            this.input_names = this.names(allocator, api.session_get_input_count, api.session_get_input_name)?;
            this.output_names = this.names(allocator, api.session_get_output_count, api.session_get_output_name)?;
            for tensor in inputs {
                let shape: Vec<i64> = tensor.shape.iter().map(|&d| d as i64).collect();
                let (data, size) = (tensor.bytes().as_ptr(), tensor.bytes().len());
                let value = api.made(|out| {
                    let (data, shape, rank) = (data.cast_mut().cast(), shape.as_ptr(), shape.len());
                    (api.create_tensor_with_data)(this.memory, data, size, shape, rank, tensor.onnx_type, out)
                })?;
                this.inputs.push(value);
            }
        }
        if this.inputs.len() != this.input_names.len() {
            return Err(format!("{} inputs given, the model has {}", this.inputs.len(), this.input_names.len()));
        }
        this.outputs = vec![ptr::null_mut(); this.output_names.len()];
        Ok(this)
    }

    /// # Safety
    /// The functions are those of this session's API. The names live as long as the process.
    unsafe fn names(
        &self,
        allocator: Handle,
        count: unsafe extern "C" fn(Handle, *mut usize) -> Status,
        name: unsafe extern "C" fn(Handle, usize, Handle, *mut *mut c_char) -> Status,
    ) -> Result<Vec<*const c_char>, String> {
        let mut number = 0;
        // SAFETY: as the caller says.
        self.api.check(unsafe { count(self.session, &raw mut number) })?;
        let get = |i| {
            let mut text: *mut c_char = ptr::null_mut();
            // SAFETY: as the caller says.
            self.api.check(unsafe { name(self.session, i, allocator, &raw mut text) })?;
            Ok(text.cast_const())
        };
        (0..number).map(get).collect()
    }

    pub fn run(&mut self) -> Result<(), String> {
        self.release_outputs();
        // SAFETY: there are as many names as values, and outputs that are null are made by the call.
        self.api.check(unsafe {
            (self.api.run)(
                self.session,
                ptr::null_mut(),
                self.input_names.as_ptr(),
                self.inputs.as_ptr(),
                self.inputs.len(),
                self.output_names.as_ptr(),
                self.outputs.len(),
                self.outputs.as_mut_ptr(),
            )
        })
    }

    pub fn outputs(&self) -> Result<Vec<Output<'_>>, String> {
        self.outputs.iter().map(|&value| self.output(value)).collect()
    }

    fn output(&self, value: Handle) -> Result<Output<'_>, String> {
        let api = self.api;
        let (mut is_tensor, mut onnx_type, mut rank) = (0, 0, 0);
        // SAFETY: the value was made by the last run; all pointers are to places of the right type. Its data is as long as its shape
        // says and lives until the next run, which needs `&mut self`.
        unsafe {
            api.check((api.is_tensor)(value, &raw mut is_tensor))?;
            if is_tensor == 0 {
                return Err("an output is no tensor".into());
            }
            let info = api.made(|out| (api.get_tensor_type_and_shape)(value, out))?;
            api.check((api.get_tensor_element_type)(info, &raw mut onnx_type))?;
            api.check((api.get_dimensions_count)(info, &raw mut rank))?;
            let mut sizes = vec![0i64; rank];
            api.check((api.get_dimensions)(info, sizes.as_mut_ptr(), rank))?;
            (api.release_tensor_type_and_shape_info)(info);
            let mut data = ptr::null_mut();
            api.check((api.get_tensor_mutable_data)(value, &raw mut data))?;
            let shape: Vec<usize> = sizes.iter().map(|&d| d as usize).collect();
            let plain = numrsc_runtime::DType::from_onnx(onnx_type).filter(|&d| d != numrsc_runtime::DType::Str);
            let size = plain.ok_or("an output has no plain elements")?.size();
            let length = size * shape.iter().product::<usize>();
            let bytes = if length == 0 { &[] } else { std::slice::from_raw_parts(data.cast(), length) };
            Ok((onnx_type, shape, bytes))
        }
    }

    fn release_outputs(&mut self) {
        for value in &mut self.outputs {
            if !value.is_null() {
                // SAFETY: made by the last run, and forgotten here.
                unsafe { (self.api.release_value)(*value) };
                *value = ptr::null_mut();
            }
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.release_outputs();
        let api = self.api;
        let release = |release: Release, handle: Handle| {
            if !handle.is_null() {
                // SAFETY: each handle is released once, by its own function, after what depends on it.
                unsafe { release(handle) };
            }
        };
        self.inputs.iter().for_each(|&value| release(api.release_value, value));
        release(api.release_memory_info, self.memory);
        release(api.release_session, self.session);
        release(api.release_session_options, self.options);
        release(api.release_env, self.env);
    }
}

#[cfg(test)]
mod tests {
    use super::Api;
    use std::mem::offset_of;

    #[test]
    fn members_are_where_the_header_has_them() {
        macro_rules! positions {
            ($($member:ident $position:literal)*) => { $(
                assert_eq!(offset_of!(Api, $member), $position * size_of::<usize>(), stringify!($member));
            )* };
        }
        positions! {
            get_error_message 2 create_env 3 create_session 7 run 9 create_session_options 10
            set_intra_op_num_threads 24 session_get_input_count 30 session_get_output_count 31
            session_get_input_name 36 session_get_output_name 37 create_tensor_with_data 49 is_tensor 50
            get_tensor_mutable_data 51 get_tensor_element_type 60 get_dimensions_count 61 get_dimensions 62
            get_tensor_type_and_shape 65 create_cpu_memory_info 69 get_allocator_with_default_options 78
            release_env 92 release_status 93 release_memory_info 94 release_session 95 release_value 96
            release_tensor_type_and_shape_info 99 release_session_options 100
        }
    }
}
