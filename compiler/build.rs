//! The command finds the toolchain's LLVM by an rpath: programs started without cargo need one.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(directory) = std::env::var_os("DEP_NUMRSC_LLVM_LIBDIR") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{}", directory.display());
    }
}
