//! Kernels that NVIDIA's NVRTC compiles, with `NUMRSC_LONG=1`: its wheel is large. Nothing of it is ours but the emulator.
use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// Complete, so that pip resolves nothing.
const PINS: [&str; 2] = ["nvidia-cuda-nvrtc==13.5.37", "numpy==2.4.6"];

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// A Python with the packages, made once.
fn python() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nvrtc");
    let python = folder.join("bin/python");
    let stamp = folder.join("stamp");
    if std::fs::read_to_string(&stamp).is_ok_and(|s| s == PINS.join(" ")) {
        return python;
    }
    succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
    succeed(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--no-deps"]).args(PINS));
    std::fs::write(stamp, PINS.join(" ")).unwrap();
    python
}

#[test]
fn kernels_of_nvidias_compiler_are_right_in_every_order() {
    if env::var_os("NUMRSC_LONG").is_none() {
        return;
    }
    let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle/nvrtc.py");
    for order in ["forward", "backward", "3"] {
        let text = succeed(
            Command::new(python())
                .arg(&script)
                .arg(folder.join("libnumrsc_cuda_emulator.so"))
                .env("NUMRSC_CUDA_EMULATOR", format!("order={order}")),
        );
        println!("{order}\n{text}");
        assert_eq!(text.lines().count(), 8);
    }
}
