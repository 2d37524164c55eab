//! The program that compiles by LLVM, which numrsc starts.
fn main() -> std::process::ExitCode {
    numrsc_llvm::program::main()
}
