//! The command finds the toolchain's LLVM by an rpath, since programs started without cargo need one, and its linker by a path.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(directory) = std::env::var_os("DEP_NUMRSC_LLVM_LIBDIR") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{}", directory.display());
        let host = std::env::var("HOST").unwrap_or_default();
        println!("cargo::rustc-env=NUMRSC_LLD={}/rustlib/{host}/bin/rust-lld", directory.display());
    }
}
