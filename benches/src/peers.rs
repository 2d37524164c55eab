//! The engines that we compare with, and their installation below the target directory.
use crate::{
    driver::{self, Prepared, Result},
    rounds::Contestant,
};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
pub enum Peer {
    Ort,
    OpenVino,
    Tract,
    Rten,
    Iree,
}

impl Peer {
    pub fn title(self) -> &'static str {
        match self {
            Peer::Ort => "ONNX Runtime",
            Peer::OpenVino => "OpenVINO",
            Peer::Tract => "tract",
            Peer::Rten => "rten",
            Peer::Iree => "IREE",
        }
    }
}

/// A complete list, so that pip resolves nothing: the same packages today and next year.
const PACKAGES: [&str; 11] = [
    "openvino==2026.4.1",
    "openvino-telemetry==2025.2.0",
    "iree-base-compiler==3.13.0",
    "iree-base-runtime==3.13.0",
    // What the last three need to import a model.
    "onnx==1.23.2",
    "numpy==2.4.6",
    "ml_dtypes==0.6.0",
    "protobuf==7.36.2",
    "typing_extensions==4.16.0",
    "sympy==1.14.0",
    "mpmath==1.3.0",
];

/// The libraries that OpenVINO loads to run an ONNX model on the CPU.
const OPENVINO_LIBRARIES: [&str; 7] = [
    "libopenvino.so",
    "libopenvino_c.so",
    "libopenvino_intel_cpu_plugin.so",
    "libopenvino_onnx_frontend.so",
    "libtbb.so",
    "libhwloc.so",
    "libtbbmalloc.so",
];

/// A peer that is installed.
#[derive(Debug)]
pub struct Installed {
    pub peer: Peer,
    program: PathBuf,
    /// What the program loads, and how large that is.
    library: Option<PathBuf>,
    bytes: u64,
}

/// Installs a peer, unless that is done, and builds the program that runs it.
pub fn install(peer: Peer) -> Result<Installed> {
    match peer {
        Peer::Ort => {
            let library = driver::ort_library()?;
            Ok(Installed { peer, program: own("ort_run")?, bytes: driver::file_size(&library), library: Some(library) })
        }
        Peer::OpenVino => {
            let venv = venv()?;
            let find = |name: &str| {
                let missing = || format!("{name} is not in OpenVINO's package");
                driver::in_package(&venv, "openvino/libs", name).ok_or_else(missing)
            };
            let all = OPENVINO_LIBRARIES.iter().map(|name| find(name)).collect::<Result<Vec<_>>>()?;
            let bytes = all.iter().map(|path| driver::file_size(path)).sum();
            Ok(Installed { peer, program: own("openvino_run")?, library: Some(find("libopenvino_c.so")?), bytes })
        }
        // They are linked into the program.
        Peer::Tract | Peer::Rten => {
            let program = rust_peer(if peer == Peer::Tract { "tract_run" } else { "rten_run" })?;
            Ok(Installed { peer, bytes: driver::file_size(&program), program, library: None })
        }
        Peer::Iree => {
            let run = driver::in_package(&venv()?, "iree/_runtime_libs", "iree-run-module");
            let run = run.ok_or("iree-run-module is not in IREE's package")?;
            let (bytes, library) = (driver::file_size(&run), run.parent().map(Path::to_path_buf));
            Ok(Installed { peer, program: own("iree_run")?, library, bytes })
        }
    }
}

/// A program of the package `benches/peers`, which has dependencies of its own.
fn rust_peer(name: &str) -> Result<PathBuf> {
    let target = driver::work_folder("peers-target")?;
    let manifest = numrsc_tests::corpus::root().join("benches/peers/Cargo.toml");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "--quiet", "--release", "--locked", "--bin", name, "--manifest-path"]).arg(manifest);
    run(cargo.arg("--target-dir").arg(&target))?;
    Ok(target.join("release").join(name))
}

/// A program of this package.
pub fn own(name: &str) -> Result<PathBuf> {
    driver::build_programs(&[name]).map(|mut programs| programs.remove(0))
}

/// A Python environment with the peers that come as wheels. Models are not run by its Python.
fn venv() -> Result<PathBuf> {
    install_wheels("peers-venv", &PACKAGES)
}

/// emx-onnx-cgen, which makes C of a model, is a program in Python.
const EMX_PACKAGES: [&str; 11] = [
    "emx-onnx-cgen==1.4.0",
    "emx-regex-cgen==0.2.0",
    "jinja2==3.1.6",
    "markupsafe==3.0.4",
    "onnx==1.23.2",
    "numpy==2.4.6",
    "ml_dtypes==0.6.0",
    "protobuf==7.36.2",
    "typing_extensions==4.16.0",
    "sympy==1.14.0",
    "mpmath==1.3.0",
];

/// The program emx-onnx-cgen.
pub fn emx_onnx_cgen() -> Result<PathBuf> {
    install_wheels("devices-venv", &EMX_PACKAGES).map(|venv| venv.join("bin/emx-onnx-cgen"))
}

fn install_wheels(folder: &str, packages: &[&str]) -> Result<PathBuf> {
    let venv = driver::work_folder(folder)?;
    let (stamp, pins) = (venv.join(".stamp"), packages.join("\n"));
    if fs::read_to_string(&stamp).is_ok_and(|found| found == pins) {
        return Ok(venv);
    }
    eprintln!("installing {}", packages.join(", "));
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    run(Command::new(venv.join("bin/python")).args(["-m", "pip", "install", "--quiet", "--no-deps"]).args(packages))?;
    fs::write(&stamp, pins).map_err(|e| format!("{}: {e}", stamp.display()))?;
    Ok(venv)
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    let status = command.status().map_err(|e| format!("{program}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{program}: {status}")) }
}

impl Installed {
    /// This peer with a model of the corpus.
    pub fn contestant(&self, model: &Path, prepared: &Prepared) -> Result<Contestant> {
        let (model, compile_ms) = match self.peer {
            Peer::Iree => iree(model, &prepared.folder).map(|(module, time)| (module, Some(time)))?,
            _ => (model.to_path_buf(), None),
        };
        Ok(Contestant {
            name: self.peer.title(),
            program: self.program.clone(),
            library: self.library.clone(),
            bytes: self.bytes + driver::file_size(&model),
            model,
            compile_ms,
            alone: None,
        })
    }
}

/// The oldest opset that IREE's importer supports.
const IREE_OPSET: &str = "17";
/// Seconds after which IREE's compiler is given up.
const IREE_LIMIT: u64 = 300;

/// Compile a model with IREE for this processor, unless that is done or is known to fail: the module, and how many milliseconds it took.
fn iree(model: &Path, folder: &Path) -> Result<(PathBuf, f64)> {
    let [source, module, report] = ["iree.mlir", "iree.vmfb", "iree.json"].map(|name| folder.join(name));
    if !driver::is_newer(&report, &[model]) {
        let outcome = iree_compile(model, &source, &module);
        let _ = fs::remove_file(&source);
        let text = serde_json::to_string(&outcome).map_err(|e| e.to_string())?;
        fs::write(&report, text).map_err(|e| format!("{}: {e}", report.display()))?;
    }
    let text = fs::read_to_string(&report).map_err(|e| format!("{}: {e}", report.display()))?;
    let outcome: Result<f64> = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", report.display()))?;
    outcome.map(|time| (module, time))
}

fn iree_compile(model: &Path, source: &Path, module: &Path) -> Result<f64> {
    let programs = venv()?.join("bin");
    // Messages must name files without their folders.
    let here = source.parent().map_or(String::new(), |folder| format!("{}/", folder.display()));
    let start = Instant::now();
    let mut import = Command::new(programs.join("iree-import-onnx"));
    import.arg(model).args(["--opset-version", IREE_OPSET, "-o"]).arg(source);
    let mut compile = Command::new(programs.join("iree-compile"));
    compile.args(["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu"]);
    compile.arg("--iree-llvmcpu-target-cpu=host").arg(source).arg("-o").arg(module);
    for (what, command) in [("import", &mut import), ("compile", &mut compile)] {
        let left = Duration::from_secs(IREE_LIMIT).saturating_sub(start.elapsed());
        let said = |e: String| format!("does not {what}: {}", e.replace(&here, ""));
        driver::run_silent(command, left).map_err(said)?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// Our program with a model of the corpus.
pub fn ourselves(program: &Path, prepared: &Prepared) -> Contestant {
    Contestant {
        name: "numrsc",
        program: program.to_path_buf(),
        library: None,
        model: prepared.artifact.clone(),
        bytes: driver::file_size(&prepared.artifact),
        compile_ms: Some(driver::total_ms(&prepared.report)),
        alone: Some(prepared.program()),
    }
}
