//! The Cranelift backend: compiles for the machine it runs on, in pure Rust and faster than LLVM.

use std::fmt;

use cranelift::jit::{JITBuilder, JITModule};
use cranelift::module::{Linkage, Module, ModuleError, default_libcall_names};
use cranelift::prelude::{FunctionBuilder, FunctionBuilderContext, Signature, Value};

use crate::{Error, Result};

/// Compiles functions into the memory of this process. Their code stays mapped until the process ends.
pub struct Jit {
    module: JITModule,
}

impl fmt::Debug for Jit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jit").field("isa", &self.module.isa().triple().to_string()).finish()
    }
}

impl Jit {
    /// A compiler for this machine and the features of its CPU.
    pub fn new() -> Result<Self> {
        let flags = [("opt_level", "speed")];
        let builder = JITBuilder::with_flags(&flags, default_libcall_names()).map_err(|e| error("the host", e))?;
        Ok(Self { module: JITModule::new(builder) })
    }

    /// An empty signature with the C calling convention of this machine.
    pub fn signature(&self) -> Signature {
        self.module.make_signature()
    }

    /// Compiles one function and returns where it starts. `body` gets the parameters, in the entry block, and has
    /// to leave every block filled and sealed.
    pub fn compile(
        &mut self,
        name: &str,
        signature: Signature,
        body: impl FnOnce(&mut FunctionBuilder<'_>, &[Value]),
    ) -> Result<*const u8> {
        let id = self.module.declare_function(name, Linkage::Export, &signature).map_err(|e| error(name, e))?;
        let mut context = self.module.make_context();
        context.func.signature = signature;

        let mut builder_context = FunctionBuilderContext::new();
        let mut builder = FunctionBuilder::new(&mut context.func, &mut builder_context);
        let entry = builder.create_block();
        builder.append_block_params_for_function_params(entry);
        builder.switch_to_block(entry);
        builder.seal_block(entry);
        let params = builder.block_params(entry).to_vec();
        body(&mut builder, &params);
        builder.finalize(self.module.isa().frontend_config());

        self.module.define_function(id, &mut context).map_err(|e| error(name, e))?;
        self.module.finalize_definitions().map_err(|e| error(name, e))?;
        Ok(self.module.get_finalized_function(id))
    }
}

fn error(function: &str, source: ModuleError) -> Error {
    Error::Cranelift { function: function.to_owned(), source: Box::new(source) }
}
