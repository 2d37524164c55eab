//! The LLVM backend: from an LLVM module to object code or assembly of any target.
//!
//! LLVM ends the process on what it cannot select (for example `llvm.exp` on NVPTX): modules must be legal for
//! their target before they come here.

use std::sync::Once;

use inkwell::OptimizationLevel;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::support::LLVMString;
use inkwell::targets::{
    FileType, InitializationConfig, RelocMode, Target as LlvmTarget, TargetMachine, TargetMachineOptions, TargetTriple,
};

use crate::{Error, Result, Target};

/// What [`emit`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// An object file in the format of the target. NVPTX has none: its output is assembly.
    Object,
    /// Assembly text (PTX on NVPTX).
    Assembly,
}

/// Optimises `module` for `target` and writes it. The module keeps the target's triple and data layout.
pub fn emit(module: &Module<'_>, target: &Target, output: Output) -> Result<Vec<u8>> {
    let machine = target_machine(target)?;
    let name = || module.get_name().to_string_lossy().into_owned();
    let llvm_error = |message: LLVMString| Error::Llvm { module: name(), message: message.to_string() };

    module.set_triple(&machine.get_triple());
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    // LLVM does not check its input while optimising: an invalid module is undefined behaviour there.
    module.verify().map_err(|message| Error::InvalidModule { module: name(), message: message.to_string() })?;
    module.run_passes("default<O3>", &machine, PassBuilderOptions::create()).map_err(llvm_error)?;

    let file_type = match output {
        Output::Object => FileType::Object,
        Output::Assembly => FileType::Assembly,
    };
    let buffer = machine.write_to_memory_buffer(module, file_type).map_err(llvm_error)?;
    Ok(buffer.as_slice().to_vec())
}

fn target_machine(target: &Target) -> Result<TargetMachine> {
    initialize_targets();
    let error = |message: String| Error::Target { triple: target.triple.clone(), cpu: target.cpu.clone(), message };

    let triple = TargetTriple::create(&target.triple);
    let options = TargetMachineOptions::new()
        .set_cpu(&target.cpu)
        .set_features(&target.features)
        .set_level(OptimizationLevel::Aggressive)
        .set_reloc_mode(RelocMode::PIC);
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
