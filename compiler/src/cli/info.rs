//! `numrsc info`: what there is to compile with, and where.
use super::{
    CodeBackend, Outcome, bytes, cache_place,
    compile::Emit,
    plural, table,
    terminal::{self, say},
};
use clap::ValueEnum;
use numrsc::output::toolchain;
use numrsc_codegen::{Backend, Target, cranelift::Cranelift, llvm::Service};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Tell which compilers were found where, for which processor they compile, what can be written, and what is in the cache
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// What is found at a place, or why it is not.
type Found<T> = Result<T, String>;

struct Info {
    llvm: Found<&'static Service>,
    cranelift: Found<Cranelift>,
    /// Linker and compiler of the Rust toolchain.
    toolchain: Found<(PathBuf, PathBuf)>,
    /// The processor, by LLVM's name.
    cpu: Option<String>,
    cache: Option<Cache>,
    emits: Vec<String>,
}

/// Compiled kernels, how many and how large.
struct Cache {
    place: PathBuf,
    files: usize,
    bytes: u64,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let info = Info::gather();
    if args.json {
        terminal::print_json(&info.json());
    } else {
        info.print();
    }
    Outcome::Success
}

impl Info {
    fn gather() -> Info {
        let llvm = Service::find().map_err(|e| e.to_string());
        let linker = toolchain::linker().map_err(|e| e.to_string());
        let toolchain = linker.map(|linker| (linker.clone(), toolchain::rustc(&linker)));
        let can = |emit: &Emit| match emit {
            Emit::LlvmIr | Emit::Asm => llvm.is_ok(),
            Emit::Wasm => llvm.is_ok() && toolchain.is_ok(),
            Emit::So | Emit::Exe => toolchain.is_ok(),
            Emit::Nrsc | Emit::Obj | Emit::Staticlib | Emit::Nir => true,
        };
        let emits = Emit::value_variants().iter().filter(|emit| can(emit));
        Info {
            cpu: Target::native().ok().map(|target| target.cpu),
            cranelift: Cranelift::new().map_err(|e| e.to_string()),
            cache: Cache::look(),
            emits: emits.filter_map(|emit| Some(emit.to_possible_value()?.get_name().to_owned())).collect(),
            llvm,
            toolchain,
        }
    }

    /// What `--backend auto` is.
    fn default_backend(&self) -> CodeBackend {
        if self.llvm.is_ok() { CodeBackend::Llvm } else { CodeBackend::Cranelift }
    }

    fn print(&self) {
        let llvm = self.llvm.as_ref().map_or_else(Clone::clone, |service| {
            let (program, library) = (service.path().display(), service.library().display());
            format!("{}, by {program} with {library}", service.version())
        });
        let cranelift = self.cranelift.as_ref().map_or_else(Clone::clone, Backend::version);
        let toolchain = self
            .toolchain
            .as_ref()
            .map_or_else(Clone::clone, |(linker, rustc)| format!("{}, {}", linker.display(), rustc.display()));
        let cache = self.cache.as_ref().map_or("none".to_owned(), |cache| {
            let files = plural(cache.files, "kernel", "kernels");
            format!("{}: {files}, {}", cache.place.display(), bytes(cache.bytes as usize))
        });
        let cpu = self.cpu.as_ref().map_or(String::new(), |cpu| format!("{cpu}, "));
        say!("numrsc {}", env!("CARGO_PKG_VERSION"));
        let rows = [
            ("LLVM", llvm),
            ("Cranelift", cranelift),
            ("default", format!("{:?}", self.default_backend())),
            ("this machine", format!("{cpu}{}", Target::host().triple)),
            ("linker", toolchain),
            ("cache", cache),
            ("emits", self.emits.join(", ")),
        ];
        table::print(&rows.map(|(name, value)| vec![name.to_owned(), value]), "  ");
    }

    fn json(&self) -> Value {
        let missing = |why: &String| json!({ "missing": why });
        let llvm = self.llvm.as_ref().map_or_else(
            missing,
            |service| json!({ "version": service.version(), "program": service.path(), "library": service.library() }),
        );
        let cranelift = self.cranelift.as_ref().map_or_else(missing, |c| json!({ "version": c.version() }));
        let toolchain =
            self.toolchain.as_ref().map_or_else(missing, |(linker, rustc)| json!({ "linker": linker, "rustc": rustc }));
        let cache = self
            .cache
            .as_ref()
            .map(|cache| json!({ "place": cache.place, "kernels": cache.files, "bytes": cache.bytes }));
        json!({
            "version": env!("CARGO_PKG_VERSION"), "llvm": llvm, "cranelift": cranelift, "toolchain": toolchain,
            "default_backend": format!("{:?}", self.default_backend()).to_lowercase(),
            "triple": Target::host().triple, "cpu": self.cpu, "cache": cache, "emits": self.emits,
        })
    }
}

impl Cache {
    /// What is not there has nothing in it.
    fn look() -> Option<Cache> {
        let place = cache_place()?;
        let entries = std::fs::read_dir(&place).into_iter().flatten().flatten();
        let sizes: Vec<u64> =
            entries.filter_map(|e| e.metadata().ok()).filter(std::fs::Metadata::is_file).map(|m| m.len()).collect();
        Some(Cache { place, files: sizes.len(), bytes: sizes.iter().sum() })
    }
}
