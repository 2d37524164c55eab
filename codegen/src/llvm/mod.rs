//! The LLVM backend: from kernel IR to machine code or assembly of any target.
//!
//! Hardly any of LLVM's passes run, except for small devices: kernels come scheduled, in SSA form and with nothing to hoist, so that instruction
//! selection and register allocation are what is left to do. LLVM ends the process on what it cannot select (for example `llvm.exp` on
//! NVPTX): what a target lacks is written out in the text that LLVM gets.
mod inst;
mod object;
mod text;
mod web;

use std::cell::RefCell;
use std::sync::Once;

use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::{Linkage, Module as LlvmModule};
use inkwell::targets::{
    FileType, InitializationConfig, RelocMode, Target as LlvmTarget, TargetMachine, TargetMachineOptions, TargetTriple,
};
use inkwell::{GlobalVisibility, OptimizationLevel, passes::PassBuilderOptions, support::LLVMString};
use numrsc_ir::kernel::{FuncId, Kind, Module};

use crate::cpu::Architecture;
use crate::{Backend, Code, Error, Result, Target};

/// Compiles with LLVM.
#[derive(Debug, Clone)]
pub struct Llvm {
    target: Target,
}

impl Llvm {
    /// Fails if LLVM cannot generate code for the target.
    pub fn new(target: Target) -> Result<Llvm> {
        if let Some(architecture) = Architecture::of(&target.triple) {
            let known = target.cpu.is_empty() || architecture.cpus().any(|cpu| cpu == target.cpu);
            // A name that LLVM itself found out is one it knows, whatever our table says.
            if !known
                && Target::new(&target.triple, "native").map(|native| native.cpu).ok().as_ref() != Some(&target.cpu)
            {
                Target::new(&target.triple, &target.cpu)?;
            }
        }
        target_machine(&target, OptimizationLevel::Default)?;
        Ok(Llvm { target })
    }

    /// All functions in one module of LLVM, as text.
    pub fn llvm_ir(&self, module: &Module) -> Result<String> {
        let all: Vec<FuncId> = (0..module.functions.len() as u32).map(FuncId).collect();
        text::module_text(module, &all, &self.target)
    }

    /// All functions as assembly of the target.
    pub fn assembly(&self, module: &Module) -> Result<String> {
        let bytes = self.generate("module", &self.llvm_ir(module)?, OptimizationLevel::Default, FileType::Assembly)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// All functions as an object in which the entry has this name and nothing else has one. It may ask the linker for functions of the
    /// compiler's library (libgcc or such) where the target lacks instructions, as for doubles.
    pub fn object(&self, module: &Module, entry: &str) -> Result<Vec<u8>> {
        let (text, inside) = self.without_copies(module)?;
        self.whole(&text, &inside, entry)
    }

    /// All functions as an object for WebAssembly, which exports `run(context)`, imports `arena`, `alloc` and `free` of the run context
    /// from `numrsc`, and asks the linker for [`Llvm::WEIGHTS`].
    pub fn web_object(&self, module: &Module) -> Result<Vec<u8>> {
        let (text, entry) = self.without_copies(module)?;
        self.whole(&(text + &web::run_function(&entry)), web::RUN, web::RUN)
    }

    /// The name of the weights in an object for WebAssembly.
    pub const WEIGHTS: &str = web::WEIGHTS;

    /// One of each function as text, and the name of the entry.
    fn without_copies(&self, module: &Module) -> Result<(String, String)> {
        let (module, kept) = crate::compile::without_copies(module)?;
        let at = module.functions.iter().position(|f| f.kind == Kind::Entry);
        let entry = at.map(|at| text::symbol(&module, FuncId(at as u32))).unwrap_or_default();
        Ok((text::module_text(&module, &kept, &self.target)?, entry))
    }

    /// An object in which one function has a name, a new one.
    fn whole(&self, text: &str, inside: &str, outside: &str) -> Result<Vec<u8>> {
        self.generate_after("module", text, OptimizationLevel::Default, FileType::Object, |llvm, machine| {
            for function in llvm.get_functions().filter(|f| f.count_basic_blocks() > 0) {
                let global = function.as_global_value();
                global.set_visibility(GlobalVisibility::Default);
                if function.get_name().to_bytes() == inside.as_bytes() {
                    global.set_name(outside);
                } else {
                    function.set_linkage(Linkage::Internal);
                }
            }
            if !self.target.is_device() {
                return Ok(());
            }
            // With all functions at hand, LLVM's own passes pay: kernels become part of the entry, which knows their arguments, and numbers of 64 bits become
            // narrower ones.
            llvm.run_passes("default<Oz>", machine, PassBuilderOptions::create())
        })
    }

    fn generate(&self, name: &str, text: &str, level: OptimizationLevel, output: FileType) -> Result<Vec<u8>> {
        self.generate_after(name, text, level, output, |_, _| Ok(()))
    }

    fn generate_after(
        &self,
        name: &str,
        text: &str,
        level: OptimizationLevel,
        output: FileType,
        change: impl FnOnce(&LlvmModule<'_>, &TargetMachine) -> std::result::Result<(), LLVMString>,
    ) -> Result<Vec<u8>> {
        let invalid = |message: String| Error::InvalidModule { module: name.to_owned(), message };
        let context = Context::create();
        let buffer = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), name);
        let module = context.create_module_from_ir(buffer).map_err(|message| invalid(message.to_string()))?;
        with_machine(&self.target, level, |machine| {
            module.set_data_layout(&machine.get_target_data().get_data_layout());
            // LLVM does not check its input while generating code: an invalid module is undefined behaviour there.
            module.verify().map_err(|message| invalid(message.to_string()))?;
            let failed = |message: String| Error::Llvm { module: name.to_owned(), message };
            change(&module, machine).map_err(|m| failed(m.to_string()))?;
            let buffer = machine.write_to_memory_buffer(&module, output).map_err(|m| failed(m.to_string()))?;
            Ok(buffer.as_slice().to_vec())
        })
    }
}

impl Backend for Llvm {
    fn name(&self) -> &'static str {
        "llvm"
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn compile(&self, module: &Module, function: FuncId) -> Result<Code> {
        let text = text::module_text(module, &[function], &self.target)?;
        let f = &module.functions[function.0 as usize];
        // The entry is long and runs once: it is worth little.
        let level = if f.kind == Kind::Entry { OptimizationLevel::Less } else { OptimizationLevel::Default };
        let bytes = self.generate(&f.name, &text, level, FileType::Object)?;
        object::code(&f.name, &bytes)
    }
}

/// The triple that LLVM gets: whatever the system, objects are ELF, because only the code in them is used. With all its parts, or LLVM
/// would take the last one of `thumbv7em-none-eabihf` for a system and pass floats in other registers.
pub(crate) fn object_triple(target: &Target) -> String {
    let foreign = ["-darwin", "-macos", "-ios", "-windows"].iter().any(|system| target.triple.contains(system));
    let triple = if foreign { format!("{}-elf", target.triple) } else { target.triple.clone() };
    TargetMachine::normalize_triple(&TargetTriple::create(&triple)).as_str().to_string_lossy().into_owned()
}

/// Machines take longer to make than many a kernel to compile, so each thread keeps those it used last.
fn with_machine<R>(
    target: &Target,
    level: OptimizationLevel,
    f: impl FnOnce(&TargetMachine) -> Result<R>,
) -> Result<R> {
    thread_local! {
        static KEPT: RefCell<Vec<(Target, OptimizationLevel, TargetMachine)>> = const { RefCell::new(vec![]) };
    }
    KEPT.with_borrow_mut(|kept| {
        if !kept.iter().any(|k| k.0 == *target && k.1 == level) {
            kept.truncate(3);
            kept.insert(0, (target.clone(), level, target_machine(target, level)?));
        }
        let found = kept.iter().find(|k| k.0 == *target && k.1 == level);
        f(&found.expect("it was just put there").2)
    })
}

fn target_machine(target: &Target, level: OptimizationLevel) -> Result<TargetMachine> {
    initialize_targets();
    let error = |message: String| Error::Target { triple: target.triple.clone(), cpu: target.cpu.clone(), message };

    let triple = TargetTriple::create(&object_triple(target));
    let options = TargetMachineOptions::new()
        .set_cpu(&target.cpu)
        .set_features(&target.features)
        .set_level(level)
        // Modules of WebAssembly are whole, and code that can be moved would ask a loader for addresses.
        .set_reloc_mode(if target.is_web() { RelocMode::Static } else { RelocMode::PIC });
    LlvmTarget::from_triple(&triple)
        .map_err(|message| error(message.to_string()))?
        .create_target_machine_from_options(&triple, options)
        .ok_or_else(|| error("LLVM has no code generator for it".to_owned()))
}

/// Registers each target by itself: registering all at once needs C shims that the toolchain's LLVM lacks.
fn initialize_targets() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let config = InitializationConfig::default();
        LlvmTarget::initialize_x86(&config);
        LlvmTarget::initialize_aarch64(&config);
        LlvmTarget::initialize_arm(&config);
        LlvmTarget::initialize_riscv(&config);
        LlvmTarget::initialize_webassembly(&config);
        LlvmTarget::initialize_nvptx(&config);
    });
}
