//! CUDA's own functions, by their names in `libcuda.so.1`: they check pointers, and the state does the rest.
#![allow(unsafe_code, reason = "these functions take the pointers of the C interface of CUDA")]
#![allow(non_snake_case, clippy::missing_safety_doc, reason = "names and contracts are NVIDIA's")]
use super::{
    config::Config,
    device,
    error::Code,
    state::{CONTEXT, Driver, Outcome, say},
    work::{Host, Kernel, Work},
};
use std::{
    cell::Cell,
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

type Handle = u64;

thread_local! {
    /// The context of this thread.
    static CURRENT: Cell<Handle> = const { Cell::new(0) };
}

fn driver() -> Result<MutexGuard<'static, Driver>, Code> {
    static DRIVER: OnceLock<Result<Mutex<Driver>, String>> = OnceLock::new();
    let made = DRIVER.get_or_init(|| Ok(Mutex::new(Driver::new(Config::from_environment()?))));
    match made {
        Ok(driver) => Ok(driver.lock().unwrap_or_else(PoisonError::into_inner)),
        Err(message) => {
            say(message);
            Err(Code::UNKNOWN)
        }
    }
}

/// One call. A panic is a bug of ours, and must not cross into C.
fn call(name: &str, f: impl FnOnce(&mut Driver) -> Outcome) -> u32 {
    let run = || {
        let mut driver = driver()?;
        driver.enter(name)?;
        f(&mut driver)
    };
    let outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(Code::UNKNOWN));
    outcome.err().map_or(0, |code| code.0)
}

/// A call that needs a context that works.
fn in_context(name: &str, f: impl FnOnce(&mut Driver) -> Outcome) -> u32 {
    call(name, |driver| {
        driver.context(CURRENT.get())?;
        f(driver)
    })
}

/// Give a value to the caller.
///
/// # Safety
/// The pointer is null or may be written.
unsafe fn give<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller says that it may be written.
    unsafe { to.write(value) };
    Ok(())
}

/// # Safety
/// The pointer is null or a text that ends with a NUL.
unsafe fn text<'t>(from: *const c_char) -> Outcome<&'t str> {
    if from.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller says that it ends.
    unsafe { CStr::from_ptr(from) }.to_str().map_err(|_| Code::INVALID_VALUE)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: c_uint) -> u32 {
    call("cuInit", |d| if flags == 0 { d.initialise() } else { Err(Code::INVALID_VALUE) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> u32 {
    // SAFETY: as the caller says of the pointer.
    call("cuDriverGetVersion", |d| unsafe { give(version, d.config.driver) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: u32, name: *mut *const c_char) -> u32 {
    let found = Code::texts(error).map_or(std::ptr::null(), |t| t.0.as_ptr().cast());
    // SAFETY: as the caller says of the pointer.
    let given = unsafe { give(name, found) };
    if given.is_err() || found.is_null() { Code::INVALID_VALUE.0 } else { 0 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(error: u32, string: *mut *const c_char) -> u32 {
    let found = Code::texts(error).map_or(std::ptr::null(), |t| t.1.as_ptr().cast());
    // SAFETY: as the caller says of the pointer.
    let given = unsafe { give(string, found) };
    if given.is_err() || found.is_null() { Code::INVALID_VALUE.0 } else { 0 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> u32 {
    call("cuDeviceGetCount", |d| {
        d.initialised()?;
        // SAFETY: as the caller says of the pointer.
        unsafe { give(count, d.config.devices) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> u32 {
    call("cuDeviceGet", |d| {
        d.device(ordinal)?;
        // SAFETY: as the caller says of the pointer.
        unsafe { give(device, ordinal) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> u32 {
    call("cuDeviceGetName", |d| {
        d.device(device)?;
        let all = device::NAME.bytes().chain([0]);
        let length = usize::try_from(length).map_err(|_| Code::INVALID_VALUE)?;
        if name.is_null() || length == 0 {
            return Err(Code::INVALID_VALUE);
        }
        for (i, byte) in all.take(length).enumerate() {
            // SAFETY: the caller says that so many characters may be written.
            unsafe { name.add(i).write(byte.cast_signed()) };
        }
        // SAFETY: as above.
        unsafe { name.add(length.min(device::NAME.len() + 1) - 1).write(0) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> u32 {
    call("cuDeviceTotalMem_v2", |d| {
        d.device(device)?;
        // SAFETY: as the caller says of the pointer.
        unsafe { give(bytes, d.config.memory as usize) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> u32 {
    call("cuDeviceGetAttribute", |d| {
        d.device(device)?;
        let found = device::attribute(&d.config, attribute).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: as the caller says of the pointer.
        unsafe { give(value, found) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) -> u32 {
    call("cuDevicePrimaryCtxRetain", |d| {
        d.device(device)?;
        // SAFETY: as the caller says of the pointer.
        unsafe { give(context, d.retain()) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> u32 {
    call("cuDevicePrimaryCtxRelease_v2", |d| {
        d.device(device)?;
        d.release()
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut Handle) -> u32 {
    call("cuCtxGetCurrent", |d| {
        d.initialised()?;
        // SAFETY: as the caller says of the pointer.
        unsafe { give(context, CURRENT.get()) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: Handle) -> u32 {
    call("cuCtxSetCurrent", |d| {
        d.initialised()?;
        if !matches!(context, 0 | CONTEXT) {
            return Err(Code::INVALID_CONTEXT);
        }
        CURRENT.set(context);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> u32 {
    in_context("cuCtxSynchronize", Driver::finish_all)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> u32 {
    in_context("cuMemGetInfo_v2", |d| {
        // SAFETY: as the caller says of the pointers.
        unsafe {
            give(free, d.free_bytes() as usize)?;
            give(total, d.config.memory as usize)
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32 {
    in_context("cuMemAlloc_v2", |d| {
        let base = d.allocate(bytes as u64)?;
        // SAFETY: as the caller says of the pointer.
        unsafe { give(address, base) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> u32 {
    in_context("cuMemFree_v2", |d| d.free(address))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, _flags: c_uint) -> u32 {
    in_context("cuMemHostAlloc", |d| {
        let at = d.lock_host(bytes)?;
        // SAFETY: as the caller says of the pointer.
        unsafe { give(address, at as *mut c_void) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(address: *mut c_void) -> u32 {
    in_context("cuMemFreeHost", |d| d.unlock_host(address as usize))
}

/// Bytes that go to the device: page-locked ones stay where they are until they are copied.
///
/// # Safety
/// So many bytes may be read at the pointer.
unsafe fn source(d: &Driver, from: *const c_void, bytes: usize) -> Host {
    if d.is_locked(from as usize, bytes) {
        return Host::Locked { address: from as usize, bytes };
    }
    // SAFETY: as the caller says.
    Host::Copied(unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) }.to_vec())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Handle) -> u32 {
    in_context("cuMemcpyHtoDAsync_v2", |d| {
        if bytes == 0 {
            return Ok(());
        }
        d.check_range(to, bytes as u64)?;
        // SAFETY: the caller says that so many bytes may be read.
        let from = unsafe { source(d, from, bytes) };
        d.enqueue(stream, Work::ToDevice { to, from })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> u32 {
    // SAFETY: as the caller says; the default stream is done with it at once.
    unsafe { cuMemcpyHtoDAsync_v2(to, from, bytes, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Handle) -> u32 {
    in_context("cuMemcpyDtoHAsync_v2", |d| {
        if bytes == 0 {
            return Ok(());
        }
        d.check_range(from, bytes as u64)?;
        if d.is_locked(to as usize, bytes) {
            return d.enqueue(stream, Work::ToHost { to: to as usize, from, bytes });
        }
        d.finish(stream)?;
        // SAFETY: the caller says that so many bytes may be written, and nobody else does so during the call.
        d.copy_out(from, unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), bytes) })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> u32 {
    // SAFETY: as the caller says; the default stream is done with it at once.
    unsafe { cuMemcpyDtoHAsync_v2(to, from, bytes, 0) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) -> u32 {
    in_context("cuMemcpyDtoDAsync_v2", |d| {
        let bytes = bytes as u64;
        d.check_range(to, bytes)?;
        d.check_range(from, bytes)?;
        if bytes == 0 { Ok(()) } else { d.enqueue(stream, Work::Copy { to, from, bytes }) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(to: u64, value: u8, bytes: usize, stream: Handle) -> u32 {
    in_context("cuMemsetD8Async", |d| {
        let bytes = bytes as u64;
        d.check_range(to, bytes)?;
        if bytes == 0 { Ok(()) } else { d.enqueue(stream, Work::Fill { to, value, bytes }) }
    })
}

/// Logs of `cuModuleLoadDataEx`, by the numbers of its options.
const ERROR_LOG: c_uint = 5;
const ERROR_LOG_BYTES: c_uint = 6;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut Handle,
    image: *const c_void,
    count: c_uint,
    options: *mut c_uint,
    values: *mut *mut c_void,
) -> u32 {
    in_context("cuModuleLoadDataEx", |d| {
        let image: *const u8 = image.cast();
        // SAFETY: an image is at least a text that ends with a NUL.
        if image.is_null() || unsafe { *image } == 0x7f {
            return Err(Code::INVALID_IMAGE);
        }
        // SAFETY: no ELF file, so it is a text.
        let source = unsafe { text(image.cast()) }.map_err(|_| Code::INVALID_IMAGE)?;
        match d.load(source) {
            // SAFETY: as the caller says of the pointer.
            Ok(handle) => unsafe { give(module, handle) },
            Err((code, message)) => {
                let (mut log, mut length) = (std::ptr::null_mut(), 0);
                for i in 0..count as usize {
                    // SAFETY: the caller says that there are so many options and values.
                    let (option, value) = unsafe { (*options.add(i), *values.add(i)) };
                    match option {
                        ERROR_LOG => log = value.cast::<u8>(),
                        ERROR_LOG_BYTES => length = value as usize,
                        _ => {}
                    }
                }
                if !log.is_null() && length > 0 {
                    let written = message.len().min(length - 1);
                    // SAFETY: the caller gave a buffer of `length` bytes.
                    unsafe {
                        log.copy_from_nonoverlapping(message.as_ptr(), written);
                        log.add(written).write(0);
                    }
                }
                say(&message);
                Err(code)
            }
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut Handle, image: *const c_void) -> u32 {
    // SAFETY: as the caller says; there are no options.
    unsafe { cuModuleLoadDataEx(module, image, 0, std::ptr::null_mut(), std::ptr::null_mut()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(module: Handle) -> u32 {
    in_context("cuModuleUnload", |d| d.unload(module))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) -> u32 {
    in_context("cuModuleGetFunction", |d| {
        // SAFETY: as the caller says of the pointers.
        unsafe { give(function, d.function(module, text(name)?)?) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetGlobal_v2(
    address: *mut u64,
    bytes: *mut usize,
    module: Handle,
    name: *const c_char,
) -> u32 {
    in_context("cuModuleGetGlobal_v2", |d| {
        // SAFETY: as the caller says of the pointers.
        let (at, size) = d.variable(module, unsafe { text(name)? })?;
        if !address.is_null() {
            // SAFETY: as above.
            unsafe { give(address, at)? };
        }
        // SAFETY: as above.
        if bytes.is_null() { Ok(()) } else { unsafe { give(bytes, size as usize) } }
    })
}

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`
const MAX_DYNAMIC_SHARED: c_int = 8;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: Handle) -> u32 {
    in_context("cuFuncGetAttribute", |d| {
        let (function, asked) = d.of_handle(function)?;
        let program = &function.program;
        let most = program.max_threads.or(program.required_threads).map(|n| n.iter().product());
        let found = match attribute {
            0 => most.unwrap_or(device::THREADS),
            1 => program.shared_bytes as u32,
            // Constants, local memory, registers: what only an assembler knows.
            2..=4 => 0,
            5 | 6 => d.config.capability,
            MAX_DYNAMIC_SHARED => asked.max(device::SHARED_BYTES),
            _ => return Err(Code::INVALID_VALUE),
        };
        // SAFETY: as the caller says of the pointer.
        unsafe { give(value, found.cast_signed()) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetAttribute(function: Handle, attribute: c_int, value: c_int) -> u32 {
    in_context("cuFuncSetAttribute", |d| {
        let value = u32::try_from(value).map_err(|_| Code::INVALID_VALUE)?;
        match attribute {
            MAX_DYNAMIC_SHARED if value <= device::SHARED_BYTES_ASKED => d.ask_shared(function, value),
            9 => d.of_handle(function).map(|_| ()), // a preference
            _ => Err(Code::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "they are CUDA's")]
pub unsafe extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: Handle,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> u32 {
    in_context("cuLaunchKernel", |d| {
        let (function, asked) = d.of_handle(function)?;
        let program = &function.program;
        if !extra.is_null() || (params.is_null() && !program.params.is_empty()) {
            return Err(Code::INVALID_VALUE);
        }
        let mut block = vec![0; program.param_bytes as usize];
        for (i, param) in program.params.iter().enumerate() {
            let place = param.offset as usize..(param.offset + param.bytes) as usize;
            // SAFETY: the caller says that there is a pointer to every parameter, of the kernel's own sizes.
            let from = unsafe { (*params.add(i)).cast::<u8>().cast_const() };
            // SAFETY: as above.
            block[place].copy_from_slice(unsafe { std::slice::from_raw_parts(from, param.bytes as usize) });
        }
        let (grid, threads) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let kernel = Kernel { function, grid, threads, shared, params: block };
        kernel.check(asked)?;
        d.enqueue(stream, Work::Launch(Box::new(kernel)))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut Handle, _flags: c_uint) -> u32 {
    in_context("cuStreamCreate", |d| {
        // SAFETY: as the caller says of the pointer.
        unsafe { give(stream, d.new_stream()) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: Handle) -> u32 {
    in_context("cuStreamDestroy_v2", |d| d.drop_stream(stream))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: Handle) -> u32 {
    in_context("cuStreamSynchronize", |d| d.finish(stream))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamQuery(stream: Handle) -> u32 {
    in_context("cuStreamQuery", |d| d.query_stream(stream))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) -> u32 {
    in_context("cuStreamWaitEvent", |d| d.wait(stream, event))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut Handle, _flags: c_uint) -> u32 {
    in_context("cuEventCreate", |d| {
        // SAFETY: as the caller says of the pointer.
        unsafe { give(event, d.new_event()) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> u32 {
    in_context("cuEventRecord", |d| d.record(event, stream))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(event: Handle) -> u32 {
    in_context("cuEventQuery", |d| d.query_event(event))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(event: Handle) -> u32 {
    in_context("cuEventSynchronize", |d| d.finish_event(event))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(event: Handle) -> u32 {
    in_context("cuEventDestroy_v2", |d| d.drop_event(event))
}

/// Everything runs on one device and at no particular speed.
#[unsafe(no_mangle)]
pub extern "C" fn cuEventElapsedTime(_milliseconds: *mut f32, _start: Handle, _end: Handle) -> u32 {
    in_context("cuEventElapsedTime", |_| Err(Code::NOT_SUPPORTED))
}
