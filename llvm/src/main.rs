//! What the build script compiles; in the package `numrsc`, `src/bin/numrsc-llvm.rs` is the same.
mod place;
mod program;
#[allow(dead_code, reason = "the program does not ask, it answers")]
mod protocol;

fn main() -> std::process::ExitCode {
    program::main()
}
