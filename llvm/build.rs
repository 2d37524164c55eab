//! Builds the program next to the library, by one call of the same compiler, and tells it where this toolchain has its LLVM.
use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC");
    let rustc = PathBuf::from(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let libraries = sysroot(&rustc).map(|sysroot| sysroot.join("lib"));
    if let Some(libraries) = &libraries {
        println!("cargo::rustc-env=NUMRSC_TOOLCHAIN_LIBRARIES={}", libraries.display());
    }
    // Without it there is Cranelift, and what is installed: no reason to fail.
    match program(&rustc, libraries.as_deref()) {
        Ok(file) => println!("cargo::rustc-env=NUMRSC_LLVM_BUILT={}", file.display()),
        Err(message) => println!("cargo::warning=numrsc-llvm could not be built: {message}"),
    }
}

fn sysroot(rustc: &Path) -> Option<PathBuf> {
    let output = Command::new(rustc).args(["--print", "sysroot"]).output().ok().filter(|o| o.status.success())?;
    Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
}

fn program(rustc: &Path, libraries: Option<&Path>) -> Result<PathBuf, String> {
    let variable = |name: &str| env::var_os(name).ok_or_else(|| format!("{name} is not set"));
    let file = Path::new(&variable("OUT_DIR")?).join("numrsc-llvm");
    let mut command = Command::new(rustc);
    command.arg("src/main.rs").args(["--crate-name", "numrsc_llvm", "--edition", "2024", "--cap-lints", "allow"]);
    command.args(["-Copt-level=1", "-Cpanic=abort", "-Cstrip=symbols"]).arg("-o").arg(&file);
    if variable("TARGET")? != variable("HOST")? {
        command.arg("--target").arg(variable("TARGET")?);
    }
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut argument = std::ffi::OsString::from("-Clinker=");
        argument.push(linker);
        command.arg(argument);
    }
    if let Some(libraries) = libraries {
        command.env("NUMRSC_TOOLCHAIN_LIBRARIES", libraries);
    }
    let output = command.output().map_err(|e| format!("{}: {e}", rustc.display()))?;
    match output.status.success() {
        true => Ok(file),
        false => Err(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("rustc failed").to_owned()),
    }
}
