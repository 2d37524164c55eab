//! Crates outside of the workspace that have the compiler as a build dependency. They are built in the workspace's
//! target directory with its debug profile, where the compiler's dependencies are compiled already. Our own crates are
//! compiled once more, since cargo identifies them by their path from a workspace, for all of these crates together.
use crate::corpus;
use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The settings of the workspace for crates of others, and for ours.
const OTHERS: &str = r#"
[profile.dev.package."*"]
opt-level = 3
debug = false
"#;
const OURS: &str = r#"
[profile.dev.package.NAME]
opt-level = LEVEL
debug = "line-tables-only"
"#;

/// A folder with a crate, and cargo's settings around it.
#[derive(Debug)]
pub struct Outside {
    place: tempfile::TempDir,
    pub folder: PathBuf,
}

impl Outside {
    /// A crate without files, built by cargo's own settings.
    pub fn plain() -> Outside {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("examples/crate");
        fs::create_dir_all(&folder).expect("a folder");
        let this = Outside { place, folder };
        // The toolchain whose LLVM compiles.
        fs::copy(corpus::root().join("rust-toolchain.toml"), this.beside("rust-toolchain.toml")).expect("a copy");
        this
    }

    /// A crate without files, built by the settings of the workspace.
    pub fn new() -> Outside {
        let this = Outside::plain();
        let ours = [
            ("numrsc", 1),
            ("numrsc-codegen", 1),
            ("numrsc-llvm", 1),
            ("numrsc-passes", 1),
            ("numrsc-runtime", 1),
            ("numrsc-ir", 3),
        ];
        let ours = ours.map(|(name, level)| OURS.replace("NAME", name).replace("LEVEL", &level.to_string()));
        fs::create_dir(this.beside(".cargo")).expect("a folder");
        fs::write(this.beside(".cargo/config.toml"), OTHERS.to_owned() + &ours.concat()).expect("settings");
        this
    }

    /// A copy of an example. It finds the corpus where the original does, and us.
    pub fn example(name: &str) -> Outside {
        let this = Outside::new();
        copy(&corpus::root().join("examples").join(name), &this.folder);
        let manifest = this.folder.join("Cargo.toml");
        let text = fs::read_to_string(&manifest).expect("a manifest");
        let root = format!("path = \"{}/", corpus::root().display());
        fs::write(&manifest, text.replace("path = \"../../", &root)).expect("a manifest");
        fs::create_dir(this.beside("target")).expect("a folder");
        symlink(corpus::folder(), this.beside("target/corpus")).expect("a link");
        symlink(corpus::root().join("tests"), this.beside("tests")).expect("a link");
        this
    }

    /// A file next to what the crate would call `../..`.
    fn beside(&self, file: &str) -> PathBuf {
        self.place.path().join(file)
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// A program that runs in the folder of the crate; cargo finds the settings there.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let target = env::current_exe().expect("a path").ancestors().nth(3).expect("a folder").to_owned();
        command.current_dir(&self.folder).env("CARGO_TARGET_DIR", target).env("NUMRSC_CORPUS", corpus::folder());
        command
    }

    pub fn cargo(&self, args: &[&str]) -> Output {
        self.command("cargo").args(args).output().expect("cargo can be started")
    }
}

impl Default for Outside {
    fn default() -> Self {
        Self::new()
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let (path, name) = entry.map(|e| (e.path(), e.file_name())).expect("an entry");
        match path.is_dir() {
            true if name == "target" => {}
            true => copy(&path, &to.join(name)),
            false => drop(fs::copy(&path, to.join(name)).expect("a copy")),
        }
    }
}
