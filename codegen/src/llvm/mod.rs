//! The LLVM backend: from kernel IR to machine code or assembly of any target.
//!
//! Hardly any of LLVM's passes run, except for small devices: kernels come scheduled, in SSA form and with nothing to hoist, so that instruction
//! selection and register allocation are what is left to do. LLVM ends the process on what it cannot select (for example `llvm.exp` on
//! NVPTX): what a target lacks is written out in the text that LLVM gets.
//! LLVM itself is in another program, `numrsc-llvm`; see [`Service`].
mod inst;
mod object;
mod service;
mod text;
mod web;

use numrsc_ir::kernel::{FuncId, Kind, Module};
use numrsc_llvm::protocol::{self, Answer, Level, Machine, Request};
pub use service::{Service, VARIABLE};
use text::Names;

use crate::cpu::Architecture;
use crate::{Backend, Code, Error, Result, Target};

/// Compiles with LLVM.
#[derive(Debug, Clone)]
pub struct Llvm {
    target: Target,
    /// The triple that LLVM gets, as it spells it.
    triple: String,
    service: &'static Service,
}

impl Llvm {
    /// Fails if there is no LLVM, or if it cannot generate code for the target.
    pub fn new(target: Target) -> Result<Llvm> {
        let service = Service::find()?;
        if let Some(architecture) = Architecture::of(&target.triple) {
            let known = target.cpu.is_empty() || architecture.cpus().any(|cpu| cpu == target.cpu);
            // A name that LLVM itself found out is one it knows, whatever our table says.
            if !known
                && Target::new(&target.triple, "native").map(|native| native.cpu).ok().as_ref() != Some(&target.cpu)
            {
                Target::new(&target.triple, &target.cpu)?;
            }
        }
        let failed =
            |message: String| Error::Target { triple: target.triple.clone(), cpu: target.cpu.clone(), message };
        match service.ask(&Request::Check(machine(&target, object_triple(&target))), &target.triple)? {
            Answer::Parts(parts) => {
                let triple = parts.first().map(|triple| String::from_utf8_lossy(triple).into_owned());
                let triple = triple.ok_or_else(|| failed("numrsc-llvm does not say what LLVM calls it".to_owned()))?;
                Ok(Llvm { target, triple, service })
            }
            Answer::Invalid(message) | Answer::Failed(message) => Err(failed(message)),
        }
    }

    /// All functions in one module of LLVM, as text.
    pub fn llvm_ir(&self, module: &Module) -> Result<String> {
        let all: Vec<FuncId> = (0..module.functions.len() as u32).map(FuncId).collect();
        self.text(module, &all, Names::Hidden)
    }

    /// All functions as assembly of the target.
    pub fn assembly(&self, module: &Module) -> Result<String> {
        let bytes = self.generate("module", self.llvm_ir(module)?, Level::Default, protocol::Kind::Assembly)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// All functions as an object in which the entry has this name and nothing else has one. It may ask the linker for functions of the
    /// compiler's library (libgcc or such) where the target lacks instructions, as for doubles.
    pub fn object(&self, module: &Module, entry: &str) -> Result<Vec<u8>> {
        let (module, kept, inside) = without_copies(module)?;
        let names = inside.map_or(Names::Internal, |inside| Names::Entry(inside, entry));
        self.whole(self.text(&module, &kept, names)?)
    }

    /// All functions as an object for WebAssembly, which exports `run(context)`, imports `arena`, `alloc` and `free` of the run context
    /// from `numrsc`, and asks the linker for [`Llvm::WEIGHTS`].
    pub fn web_object(&self, module: &Module) -> Result<Vec<u8>> {
        let (module, kept, inside) = without_copies(module)?;
        let entry = inside.map(|inside| text::symbol(&module, inside)).unwrap_or_default();
        self.whole(self.text(&module, &kept, Names::Internal)? + &web::run_function(&entry))
    }

    /// The name of the weights in an object for WebAssembly.
    pub const WEIGHTS: &str = web::WEIGHTS;

    fn text(&self, module: &Module, functions: &[FuncId], names: Names<'_>) -> Result<String> {
        text::module_text(module, functions, names, &self.target, &self.triple)
    }

    /// The object of a module that needs no other.
    fn whole(&self, text: String) -> Result<Vec<u8>> {
        // With all functions at hand, LLVM's own passes pay where code should be small: kernels become part of the entry, which knows their arguments, and numbers
        // of 64 bits become narrower ones.
        let level = if self.target.is_device() { Level::Size } else { Level::Default };
        self.generate("module", text, level, protocol::Kind::Object)
    }

    fn generate(&self, name: &str, text: String, level: Level, kind: protocol::Kind) -> Result<Vec<u8>> {
        let module = name.to_owned();
        let machine = machine(&self.target, self.triple.clone());
        let request = Request::Compile { module: module.clone(), text, machine, level, kind };
        match self.service.ask(&request, name)? {
            Answer::Parts(parts) => Ok(parts.into_iter().next().unwrap_or_default()),
            Answer::Invalid(message) => Err(Error::InvalidModule { module, message }),
            Answer::Failed(message) => Err(Error::Llvm { module, message }),
        }
    }
}

/// The module with one of each function, their positions, and that of the entry.
fn without_copies(module: &Module) -> Result<(Module, Vec<FuncId>, Option<FuncId>)> {
    let (module, kept) = crate::compile::without_copies(module)?;
    let entry = module.functions.iter().position(|f| f.kind == Kind::Entry).map(|at| FuncId(at as u32));
    Ok((module, kept, entry))
}

impl Backend for Llvm {
    fn name(&self) -> &'static str {
        "llvm"
    }

    fn version(&self) -> String {
        let library = self.service.library().file_name().unwrap_or_default();
        format!("{} {} {}", protocol::VERSION, self.service.version(), library.display())
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn compile(&self, module: &Module, function: FuncId) -> Result<Code> {
        let text = self.text(module, &[function], Names::Hidden)?;
        let f = &module.functions[function.0 as usize];
        // The entry is long and runs once: it is worth little.
        let level = if f.kind == Kind::Entry { Level::Less } else { Level::Default };
        let bytes = self.generate(&f.name, text, level, protocol::Kind::Object)?;
        object::code(&f.name, &bytes)
    }
}

/// The triple that LLVM gets: whatever the system, objects are ELF, because only the code in them is used. LLVM writes all its parts, or it
/// would take the last one of `thumbv7em-none-eabihf` for a system and pass floats in other registers.
fn object_triple(target: &Target) -> String {
    let foreign = ["-darwin", "-macos", "-ios", "-windows"].iter().any(|system| target.triple.contains(system));
    if foreign { format!("{}-elf", target.triple) } else { target.triple.clone() }
}

fn machine(target: &Target, triple: String) -> Machine {
    Machine { triple, cpu: target.cpu.clone(), features: target.features.clone() }
}
