//! Errors of code generation.

/// A failed code generation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The code generator does not know the target.
    #[error("cannot generate code for target `{triple}` (cpu `{cpu}`): {message}")]
    Target { triple: String, cpu: String, message: String },
    /// There is no `numrsc-llvm` that fits; it says where it was looked for.
    #[error("{0}")]
    NoLlvm(String),
    /// LLVM's verifier rejected a module that we built: a bug of numrsc.
    #[error("module `{module}` is not valid LLVM IR: {message}")]
    InvalidModule { module: String, message: String },
    /// LLVM failed to optimise or to write a valid module.
    #[error("LLVM failed on `{module}`: {message}")]
    Llvm { module: String, message: String },
    /// The function needs something that the target or the backend lacks.
    #[error("`{function}` cannot be compiled for this target: {message}")]
    Unsupported { function: String, message: String },
    /// Functions cannot be linked: a bug of numrsc, or code too large for relative addresses.
    #[error("cannot link: {0}")]
    Link(String),
    /// The directory of compiled functions cannot be written.
    #[error("cannot write the cache of compiled code `{}`", path.display())]
    Cache { path: std::path::PathBuf, source: std::io::Error },
    /// Cranelift does not know the machine or refused a function.
    #[error("Cranelift failed on `{function}`: {message}")]
    Cranelift { function: String, message: String },
}

/// The result of generating code.
pub type Result<T> = std::result::Result<T, Error>;
