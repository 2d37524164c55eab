//! What can go wrong while generating code.

/// A failed code generation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The code generator does not know the target.
    #[error("cannot generate code for target `{triple}` (cpu `{cpu}`): {message}")]
    Target { triple: String, cpu: String, message: String },
    /// We built a module that LLVM's verifier rejects: a bug of numrsc.
    #[error("module `{module}` is not valid LLVM IR: {message}")]
    InvalidModule { module: String, message: String },
    /// LLVM failed to optimise or to write a valid module.
    #[error("LLVM failed on module `{module}`: {message}")]
    Llvm { module: String, message: String },
    /// Cranelift does not know the machine or refused a function.
    #[error("Cranelift failed on `{function}`: {message}")]
    Cranelift { function: String, message: String },
}

/// The result of generating code.
pub type Result<T> = std::result::Result<T, Error>;
