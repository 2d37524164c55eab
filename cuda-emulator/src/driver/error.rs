//! Error codes of the driver that the emulator gives, with their names.

macro_rules! codes {
    ($($name:ident $number:literal $text:literal;)*) => {
        /// A `CUresult` other than success.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Code(pub u32);

        #[allow(dead_code, reason = "those that only injection gives have names, too")]
        impl Code {
            $(pub const $name: Code = Code($number);)*

            /// The name of a number, with a NUL at its end, and what it means.
            pub(super) fn texts(number: u32) -> Option<(&'static str, &'static str)> {
                match number {
                    0 => Some(("CUDA_SUCCESS\0", "no error\0")),
                    $($number => Some((concat!("CUDA_ERROR_", stringify!($name), "\0"), concat!($text, "\0"))),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    INVALID_VALUE 1 "invalid argument";
    OUT_OF_MEMORY 2 "out of memory";
    NOT_INITIALIZED 3 "initialization error";
    DEINITIALIZED 4 "driver shutting down";
    STUB_LIBRARY 34 "CUDA driver is a stub library";
    DEVICE_UNAVAILABLE 46 "CUDA-capable device(s) is/are busy or unavailable";
    NO_DEVICE 100 "no CUDA-capable device is detected";
    INVALID_DEVICE 101 "invalid device ordinal";
    INVALID_IMAGE 200 "device kernel image is invalid";
    INVALID_CONTEXT 201 "invalid device context";
    NO_BINARY_FOR_GPU 209 "no kernel image is available for execution on the device";
    INVALID_PTX 218 "a PTX JIT compilation failed";
    UNSUPPORTED_PTX_VERSION 222 "the provided PTX was compiled with an unsupported toolchain.";
    INVALID_HANDLE 400 "invalid resource handle";
    NOT_FOUND 500 "named symbol not found";
    NOT_READY 600 "device not ready";
    ILLEGAL_ADDRESS 700 "an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES 701 "too many resources requested for launch";
    LAUNCH_TIMEOUT 702 "the launch timed out and was terminated";
    ILLEGAL_INSTRUCTION 715 "an illegal instruction was encountered";
    MISALIGNED_ADDRESS 716 "misaligned address";
    LAUNCH_FAILED 719 "unspecified launch failure";
    NOT_SUPPORTED 801 "operation not supported";
    SYSTEM_DRIVER_MISMATCH 803 "system has unsupported display driver / cuda driver combination";
    COMPAT_NOT_SUPPORTED_ON_DEVICE 804 "forward compatibility was attempted on non supported HW";
    UNKNOWN 999 "unknown error";
}
