//! The unmodified crate `cudarc` on the emulator: in a process of its own, whose library path begins with a private folder in which the
//! emulator is called `libcuda.so.1`.
#![allow(unsafe_code, reason = "launches and page-locked memory are unsafe in cudarc")]
use cudarc::driver::{CudaContext, DriverError, LaunchConfig, PushKernelArg, result, sys};
use std::{env, error::Error, os::unix::fs::symlink, path::PathBuf, process::Command};

const PTX: &str = r"
.version 6.5
.target sm_75
.address_size 64
.const .align 4 .f32 factors[2] = {0f3F800000, 0f40000000};
.visible .entry scale(.param .u64 .ptr .global .align 4 x, .param .u64 y, .param .u32 n)
{
    .reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra $end;
    mul.wide.u32 %rd3, %r5, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    mov.u64 %rd6, factors;
    ld.const.f32 %f1, [%rd6+4]; ld.global.f32 %f2, [%rd4]; mul.rn.f32 %f3, %f1, %f2;
    st.global.f32 [%rd5], %f3;
$end:
    ret;
}";

type Outcome = Result<(), Box<dyn Error>>;
type Scene = fn() -> Outcome;

/// What runs in the process with the emulator, by name.
const SCENES: [(&str, Scene); 7] = [
    ("works", works),
    ("overrun", overrun),
    ("freed", freed_staging),
    ("limits", limits),
    ("modules", modules),
    ("absent", absent),
    ("injected", injected),
];

fn scale(n: u32, threads_beyond: u32) -> Result<Vec<f32>, DriverError> {
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let function = context.load_module(PTX.into())?.load_function("scale")?;
    let x = stream.clone_htod(&(0..n).map(|i| i as f32).collect::<Vec<_>>())?;
    let mut y = stream.alloc_zeros::<f32>(n as usize)?;
    let config = LaunchConfig { grid_dim: (n.div_ceil(64), 1, 1), block_dim: (64, 1, 1), shared_mem_bytes: 0 };
    let count = n + threads_beyond;
    let mut launch = stream.launch_builder(&function);
    launch.arg(&x).arg(&mut y).arg(&count);
    // SAFETY: the emulator checks every access.
    unsafe { launch.launch(config) }?;
    stream.clone_dtoh(&y)
}

fn works() -> Outcome {
    // SAFETY: looks whether there is a library.
    assert!(unsafe { sys::is_culib_present() });
    let context = CudaContext::new(0)?;
    assert_eq!(context.name()?, "emulator, not a GPU");
    assert_eq!(context.compute_capability()?, (7, 5));
    assert_eq!(scale(1000, 0)?, (0..1000).map(|i| 2.0 * i as f32).collect::<Vec<_>>());
    Ok(())
}

/// The error comes from what waits for the kernel, and stays.
fn overrun() -> Outcome {
    let context = CudaContext::new(0)?;
    let error = scale(1000, 24).unwrap_err();
    assert_eq!(error.0, sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(context.new_stream().unwrap_err().0, sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    Ok(())
}

/// Page-locked memory that is freed while a copy from it is under way is not what arrives.
fn freed_staging() -> Outcome {
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let mut device = stream.alloc_zeros::<u8>(16)?;
    // SAFETY: plain calls of the driver; the memory is the test's own.
    unsafe {
        let staging = result::malloc_host(16, 0)?.cast::<u8>();
        staging.write_bytes(7, 16);
        use cudarc::driver::DevicePtrMut;
        let (to, _guard) = device.device_ptr_mut(&stream);
        result::memcpy_htod_async(to, std::slice::from_raw_parts(staging, 16), stream.cu_stream())?;
        result::free_host(staging.cast())?;
    }
    assert_eq!(stream.clone_dtoh(&device)?, [0xa5; 16]);
    Ok(())
}

/// Sizes that hardware refuses.
fn limits() -> Outcome {
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let function = context.load_module(PTX.into())?.load_function("scale")?;
    let x = stream.alloc_zeros::<f32>(64)?;
    for (grid, block, shared) in [
        ((0, 1, 1), (64, 1, 1), 0),
        ((1, 65536, 1), (64, 1, 1), 0),
        ((1, 1, 1), (1025, 1, 1), 0),
        ((1, 1, 1), (64, 1, 1), 49 << 10),
    ] {
        let config = LaunchConfig { grid_dim: grid, block_dim: block, shared_mem_bytes: shared };
        let mut launch = stream.launch_builder(&function);
        launch.arg(&x).arg(&x).arg(&64u32);
        // SAFETY: refused.
        let error = unsafe { launch.launch(config) }.unwrap_err();
        assert_eq!(error.0, sys::CUresult::CUDA_ERROR_INVALID_VALUE, "{grid:?} {block:?}");
    }
    let too_much = stream.alloc_zeros::<u8>(8 << 30).map(drop).unwrap_err();
    assert_eq!(too_much.0, sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    // SAFETY: refused.
    let nothing = unsafe { result::malloc_sync(0) }.unwrap_err();
    assert_eq!(nothing.0, sys::CUresult::CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn modules() -> Outcome {
    use sys::CUresult::{
        CUDA_ERROR_INVALID_PTX, CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_NOT_FOUND, CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
    };
    let context = CudaContext::new(0)?;
    for (from, to, code) in [
        ("mul.rn.f32", "mul.wrong.f32", CUDA_ERROR_INVALID_PTX),
        ("6.5", "9.0", CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
        ("sm_75", "sm_90", CUDA_ERROR_NO_BINARY_FOR_GPU),
    ] {
        let error = context.load_module(PTX.replace(from, to).into()).map(drop).unwrap_err();
        assert_eq!(error.0, code, "{to}");
    }
    let missing = context.load_module(PTX.into())?.load_function("scales").map(drop).unwrap_err();
    assert_eq!(missing.0, CUDA_ERROR_NOT_FOUND);
    Ok(())
}

/// With `devices=0`.
fn absent() -> Outcome {
    assert_eq!(CudaContext::new(0).map(drop).unwrap_err().0, sys::CUresult::CUDA_ERROR_NO_DEVICE);
    Ok(())
}

/// With `fail=cuLaunchKernel:1:719`.
fn injected() -> Outcome {
    assert_eq!(scale(64, 0).unwrap_err().0, sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    Ok(())
}

/// The emulator lies where cargo puts libraries.
fn emulator() -> PathBuf {
    let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
    let found = [folder.clone(), folder.parent().unwrap().to_owned()].map(|f| f.join("libnumrsc_cuda_emulator.so"));
    found.iter().find(|f| f.exists()).unwrap_or_else(|| panic!("no {found:?}")).clone()
}

/// Run a scene in a process of its own; its errors are on standard error.
fn play(name: &str, config: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    symlink(emulator(), folder.path().join("libcuda.so.1")).unwrap();
    let output = Command::new(env::current_exe().unwrap())
        .args(["the_process_with_the_emulator", "--exact", "--nocapture"])
        .env("NUMRSC_SCENE", name)
        .env("NUMRSC_CUDA_EMULATOR", config)
        .env("LD_LIBRARY_PATH", folder.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{name}: {errors}");
    errors
}

#[test]
fn the_process_with_the_emulator() {
    let Ok(name) = env::var("NUMRSC_SCENE") else { return };
    let (_, scene) = SCENES.iter().find(|s| s.0 == name).expect("a scene");
    scene().unwrap();
}

#[test]
fn kernels_run_and_their_counts_are_reported() {
    let report = tempfile::NamedTempFile::new().unwrap();
    for order in ["forward", "backward", "5"] {
        play("works", &format!("order={order},report={}", report.path().display()));
    }
    let lines = std::fs::read_to_string(report.path()).unwrap();
    assert_eq!(lines.lines().count(), 3);
    assert!(lines.lines().all(|l| l.contains("emulator, not a GPU") && l.contains("\"kernel\":\"scale\"")), "{lines}");
    assert!(lines.contains("\"findings\":0") && lines.contains("\"distinct_sectors\":250"), "{lines}");
}

#[test]
fn wild_accesses_are_errors_that_stay() {
    let errors = play("overrun", "");
    assert!(errors.contains("`scale`, line 16") && errors.contains("outside of all global memory"), "{errors}");
}

#[test]
fn freed_staging_shows() {
    assert!(play("freed", "").contains("was freed before it was copied"));
}

#[test]
fn limits_are_those_of_a_device() {
    play("limits", "");
}

#[test]
fn modules_are_refused_as_the_driver_does() {
    assert!(play("modules", "").contains("`.wrong` of `mul.wrong.f32` is not supported"));
}

#[test]
fn machines_without_devices_and_injected_failures() {
    play("absent", "devices=0");
    play("injected", "fail=cuLaunchKernel:1:719");
}
