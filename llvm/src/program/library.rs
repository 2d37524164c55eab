//! LLVM's C interface, as far as it is needed, of a library that is opened when the program starts: every function is declared once, and called here only.
#![allow(unsafe_code)]
use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    fmt,
    path::{Path, PathBuf},
    ptr,
};

type Pointer = *mut c_void;
type Text = *const c_char;
/// A text that LLVM allocated.
type Message = *mut c_char;

// The numbers of llvm-c/TargetMachine.h and llvm-c/Analysis.h.
const RETURN_STATUS: c_int = 2;
const CODE_MODEL_DEFAULT: c_int = 0;

/// llvm-c's `LLVMCodeGenFileType`.
#[derive(Clone, Copy)]
pub(super) enum File {
    Assembly = 0,
    Object = 1,
}

/// llvm-c's `LLVMCodeGenOptLevel`, as far as it is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    Less = 1,
    Default = 2,
}

/// llvm-c's `LLVMRelocMode`, as far as it is used.
#[derive(Clone, Copy)]
pub(super) enum Relocations {
    Static = 1,
    Pic = 2,
}

unsafe extern "C" {
    fn dlopen(file: Text, flags: c_int) -> Pointer;
    fn dlsym(library: Pointer, name: Text) -> Pointer;
    fn dlerror() -> Text;
}
const RTLD_LAZY: c_int = 1;

/// One declaration per function: a field of its type, and its address by its name.
macro_rules! functions {
    ($($field:ident = $name:ident($($parameter:ty),*) $(-> $result:ty)?;)*) => {
        struct Functions {
            $($field: unsafe extern "C" fn($($parameter),*) $(-> $result)?,)*
        }

        impl Functions {
            fn of(library: &Library) -> Result<Functions, String> {
                Ok(Functions {
                    $($field: {
                        let address = library.address(stringify!($name))?;
                        // SAFETY: this is the type that llvm-c declares for the function of that name.
                        unsafe { std::mem::transmute::<Pointer, unsafe extern "C" fn($($parameter),*) $(-> $result)?>(address) }
                    },)*
                })
            }
        }
    };
}

functions! {
    get_version = LLVMGetVersion(*mut c_uint, *mut c_uint, *mut c_uint);
    dispose_message = LLVMDisposeMessage(Message);
    default_triple = LLVMGetDefaultTargetTriple() -> Message;
    host_cpu = LLVMGetHostCPUName() -> Message;
    host_features = LLVMGetHostCPUFeatures() -> Message;
    normalize_triple = LLVMNormalizeTargetTriple(Text) -> Message;
    target_from_triple = LLVMGetTargetFromTriple(Text, *mut Pointer, *mut Message) -> c_int;
    create_machine = LLVMCreateTargetMachine(Pointer, Text, Text, Text, c_int, c_int, c_int) -> Pointer;
    dispose_machine = LLVMDisposeTargetMachine(Pointer);
    create_layout = LLVMCreateTargetDataLayout(Pointer) -> Pointer;
    layout_text = LLVMCopyStringRepOfTargetData(Pointer) -> Message;
    dispose_layout = LLVMDisposeTargetData(Pointer);
    create_context = LLVMContextCreate() -> Pointer;
    dispose_context = LLVMContextDispose(Pointer);
    create_buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(Text, usize, Text) -> Pointer;
    buffer_start = LLVMGetBufferStart(Pointer) -> Text;
    buffer_size = LLVMGetBufferSize(Pointer) -> usize;
    dispose_buffer = LLVMDisposeMemoryBuffer(Pointer);
    parse = LLVMParseIRInContext(Pointer, Pointer, *mut Pointer, *mut Message) -> c_int;
    dispose_module = LLVMDisposeModule(Pointer);
    set_layout = LLVMSetDataLayout(Pointer, Text);
    verify = LLVMVerifyModule(Pointer, c_int, *mut Message) -> c_int;
    create_options = LLVMCreatePassBuilderOptions() -> Pointer;
    dispose_options = LLVMDisposePassBuilderOptions(Pointer);
    run_passes = LLVMRunPasses(Pointer, Text, Pointer, Pointer) -> Pointer;
    error_message = LLVMGetErrorMessage(Pointer) -> Message;
    dispose_error = LLVMDisposeErrorMessage(Message);
    emit = LLVMTargetMachineEmitToMemoryBuffer(Pointer, Pointer, c_int, *mut Message, *mut Pointer) -> c_int;
}

/// The code generators that are used. All at once would need parts of LLVM that are not in a toolchain's library.
const TARGETS: [&str; 6] = ["X86", "AArch64", "ARM", "RISCV", "WebAssembly", "NVPTX"];
/// What each of them has to register, as far as it has it: NVPTX reads no assembly.
const PARTS: [&str; 5] = ["TargetInfo", "Target", "TargetMC", "AsmPrinter", "AsmParser"];

/// A shared library, open until the process ends.
struct Library {
    handle: Pointer,
    path: PathBuf,
}

impl Library {
    fn open(path: &Path) -> Result<Library, String> {
        let file = c_text(&path.to_string_lossy());
        // SAFETY: the name is a C string. What the library does when it is opened is LLVM's business, which is what this program is for.
        let handle = unsafe { dlopen(file.as_ptr(), RTLD_LAZY) };
        if handle.is_null() {
            // SAFETY: dlopen has failed just now, on the only thread that opens anything: its message is there, and stays.
            let message = unsafe { dlerror().as_ref().map(|text| CStr::from_ptr(text)) };
            let message = message.map_or("it cannot be opened".into(), CStr::to_string_lossy);
            return Err(format!("{}: {message}", path.display()));
        }
        Ok(Library { handle, path: path.to_owned() })
    }

    fn address(&self, name: &str) -> Result<Pointer, String> {
        let name_text = c_text(name);
        // SAFETY: the library is open and the name a C string.
        let address = unsafe { dlsym(self.handle, name_text.as_ptr()) };
        if address.is_null() { Err(format!("{} has no {name}", self.path.display())) } else { Ok(address) }
    }
}

/// LLVM, with its code generators registered.
pub(super) struct Llvm {
    library: Library,
    call: Functions,
    version: [c_uint; 3],
}

impl fmt::Debug for Llvm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.about())
    }
}

impl Llvm {
    pub(super) fn open(path: &Path) -> Result<Llvm, String> {
        let library = Library::open(path)?;
        let call = Functions::of(&library)?;
        let [mut major, mut minor, mut patch] = [0; 3];
        // SAFETY: three numbers to write to.
        unsafe { (call.get_version)(&raw mut major, &raw mut minor, &raw mut patch) };
        for (target, part) in TARGETS.iter().flat_map(|target| PARTS.iter().map(move |part| (target, part))) {
            match library.address(&format!("LLVMInitialize{target}{part}")) {
                // SAFETY: llvm-c declares all of them without parameters and results.
                Ok(address) => unsafe { std::mem::transmute::<Pointer, unsafe extern "C" fn()>(address)() },
                Err(_) if *part == "AsmParser" => {}
                Err(message) => return Err(message),
            }
        }
        Ok(Llvm { library, call, version: [major, minor, patch] })
    }

    pub(super) fn major(&self) -> u32 {
        self.version[0]
    }

    pub(super) fn version(&self) -> String {
        self.version.map(|number| number.to_string()).join(".")
    }

    pub(super) fn path(&self) -> &Path {
        &self.library.path
    }

    /// For people.
    pub(super) fn about(&self) -> String {
        format!("LLVM {} ({})", self.version(), self.path().display())
    }

    /// Triple, CPU and features of the machine this runs on.
    pub(super) fn host(&self) -> [String; 3] {
        // SAFETY: functions without parameters, whose results are owned by the caller.
        [self.call.default_triple, self.call.host_cpu, self.call.host_features].map(|ask| self.owned(unsafe { ask() }))
    }

    pub(super) fn normalized(&self, triple: &str) -> String {
        let triple = c_text(triple);
        // SAFETY: a C string; the result is owned by the caller.
        self.owned(unsafe { (self.call.normalize_triple)(triple.as_ptr()) })
    }

    pub(super) fn machine(
        &self,
        triple: &str,
        cpu: &str,
        features: &str,
        effort: Effort,
        relocations: Relocations,
    ) -> Result<TargetMachine<'_>, String> {
        let [triple, cpu, features] = [triple, cpu, features].map(c_text);
        let (mut target, mut message) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: C strings, and places for two results.
        unsafe {
            if (self.call.target_from_triple)(triple.as_ptr(), &raw mut target, &raw mut message) != 0 {
                return Err(self.owned(message));
            }
        }
        let (effort, relocations) = (effort as c_int, relocations as c_int);
        // SAFETY: a target of LLVM, and C strings.
        let machine = unsafe {
            let create = self.call.create_machine;
            create(target, triple.as_ptr(), cpu.as_ptr(), features.as_ptr(), effort, relocations, CODE_MODEL_DEFAULT)
        };
        if machine.is_null() {
            return Err("LLVM has no code generator for it".to_owned());
        }
        Ok(TargetMachine { llvm: self, machine })
    }

    /// Take over a message of LLVM.
    fn owned(&self, message: Message) -> String {
        if message.is_null() {
            return String::new();
        }
        // SAFETY: LLVM's messages are C strings that the caller disposes of.
        unsafe {
            let text = CStr::from_ptr(message).to_string_lossy().into_owned();
            (self.call.dispose_message)(message);
            text
        }
    }
}

/// A code generator for one machine.
pub(super) struct TargetMachine<'l> {
    llvm: &'l Llvm,
    machine: Pointer,
}

impl fmt::Debug for TargetMachine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetMachine").finish_non_exhaustive()
    }
}

impl TargetMachine<'_> {
    /// LLVM's IR by its text, laid out for this machine.
    pub(super) fn parse(&self, name: &str, text: &str) -> Result<Module<'_>, String> {
        let call = &self.llvm.call;
        let name = c_text(name);
        // SAFETY: a new context is owned by the module below, which disposes of both. The buffer is a copy of the text, and taken over by `parse`.
        unsafe {
            let context = (call.create_context)();
            let buffer = (call.create_buffer)(text.as_ptr().cast(), text.len(), name.as_ptr());
            let (mut module, mut message) = (ptr::null_mut(), ptr::null_mut());
            if (call.parse)(context, buffer, &raw mut module, &raw mut message) != 0 {
                let message = self.llvm.owned(message);
                (call.dispose_context)(context);
                return Err(message);
            }
            let layout = (call.create_layout)(self.machine);
            let layout_text = (call.layout_text)(layout);
            (call.set_layout)(module, layout_text);
            (call.dispose_message)(layout_text);
            (call.dispose_layout)(layout);
            Ok(Module { machine: self, context, module })
        }
    }
}

impl Drop for TargetMachine<'_> {
    fn drop(&mut self) {
        // SAFETY: it is this one's own, and modules of it borrow it.
        unsafe { (self.llvm.call.dispose_machine)(self.machine) }
    }
}

/// LLVM's IR of one text.
pub(super) struct Module<'m> {
    machine: &'m TargetMachine<'m>,
    context: Pointer,
    module: Pointer,
}

impl Module<'_> {
    /// LLVM does not check its input while generating code: an invalid module is undefined behaviour there.
    pub(super) fn verify(&self) -> Result<(), String> {
        let mut message = ptr::null_mut();
        // SAFETY: the module is valid as an object, and there is a place for the result.
        let broken = unsafe { (self.machine.llvm.call.verify)(self.module, RETURN_STATUS, &raw mut message) } != 0;
        let message = self.machine.llvm.owned(message);
        if broken { Err(message) } else { Ok(()) }
    }

    /// Run passes by their names.
    pub(super) fn run(&self, passes: &str) -> Result<(), String> {
        let call = &self.machine.llvm.call;
        let passes = c_text(passes);
        // SAFETY: module and machine are this one's own; an error is taken over by asking for its message.
        unsafe {
            let options = (call.create_options)();
            let error = (call.run_passes)(self.module, passes.as_ptr(), self.machine.machine, options);
            (call.dispose_options)(options);
            if error.is_null() {
                return Ok(());
            }
            let message = (call.error_message)(error);
            let text = CStr::from_ptr(message).to_string_lossy().into_owned();
            (call.dispose_error)(message);
            Err(text)
        }
    }

    pub(super) fn emit(&self, file: File) -> Result<Vec<u8>, String> {
        let call = &self.machine.llvm.call;
        let (mut message, mut buffer) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: module and machine are this one's own; the buffer is the caller's, and copied before it goes.
        unsafe {
            let (machine, module) = (self.machine.machine, self.module);
            if (call.emit)(machine, module, file as c_int, &raw mut message, &raw mut buffer) != 0 {
                return Err(self.machine.llvm.owned(message));
            }
            let bytes =
                std::slice::from_raw_parts((call.buffer_start)(buffer).cast(), (call.buffer_size)(buffer)).to_vec();
            (call.dispose_buffer)(buffer);
            Ok(bytes)
        }
    }
}

impl Drop for Module<'_> {
    fn drop(&mut self) {
        let call = &self.machine.llvm.call;
        // SAFETY: both are this one's own, and the module goes before what it lies in.
        unsafe {
            (call.dispose_module)(self.module);
            (call.dispose_context)(self.context);
        }
    }
}

/// Names of targets and modules have no zeros; what is behind one is left out.
fn c_text(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).unwrap_or_default()
}
