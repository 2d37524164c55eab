//! Where the linker of the toolchain is, which makes shared objects and executables.
use std::{env, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "sysroot"]).output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else { return };
    let (sysroot, host) = (String::from_utf8_lossy(&output.stdout), env::var("HOST").unwrap_or_default());
    println!("cargo::rustc-env=NUMRSC_LLD={}/lib/rustlib/{host}/bin/rust-lld", sysroot.trim());
}
