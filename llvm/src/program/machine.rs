//! Answers: what is asked becomes calls of LLVM.
use super::library::{Effort, File, Llvm, Relocations, TargetMachine};
use crate::protocol::{Answer, Kind, Level, Machine, Request};

/// LLVM's passes that make code small.
const SMALLER: &str = "default<Oz>";

/// Code generators take longer to make than many a kernel to compile, so those that were used last are kept.
pub(super) struct Machines<'l> {
    llvm: &'l Llvm,
    kept: Vec<(Machine, Effort, TargetMachine<'l>)>,
}

impl<'l> Machines<'l> {
    pub(super) fn new(llvm: &'l Llvm) -> Machines<'l> {
        Machines { llvm, kept: vec![] }
    }

    pub(super) fn answer(&mut self, request: &Request) -> Answer {
        match request {
            Request::Host => Answer::Parts(self.llvm.host().map(String::into_bytes).into()),
            Request::Check(machine) => match self.machine(machine, Effort::Default) {
                Ok(_) => Answer::Parts(vec![self.llvm.normalized(&machine.triple).into_bytes()]),
                Err(message) => Answer::Failed(message),
            },
            Request::Compile { module, text, machine, level, kind } => {
                let effort = if *level == Level::Less { Effort::Less } else { Effort::Default };
                let machine = match self.machine(machine, effort) {
                    Ok(machine) => machine,
                    Err(message) => return Answer::Failed(message),
                };
                compile(machine, module, text, *level, *kind)
            }
        }
    }

    fn machine(&mut self, machine: &Machine, effort: Effort) -> Result<&TargetMachine<'l>, String> {
        let at = match self.kept.iter().position(|kept| kept.0 == *machine && kept.1 == effort) {
            Some(at) => at,
            None => {
                let Machine { triple, cpu, features } = machine;
                // Modules of WebAssembly are whole, and code that can be moved would ask a loader for addresses.
                let relocations = if triple.starts_with("wasm") { Relocations::Static } else { Relocations::Pic };
                let new = self.llvm.machine(&self.llvm.normalized(triple), cpu, features, effort, relocations)?;
                self.kept.truncate(3);
                self.kept.insert(0, (machine.clone(), effort, new));
                0
            }
        };
        Ok(&self.kept[at].2)
    }
}

fn compile(machine: &TargetMachine<'_>, name: &str, text: &str, level: Level, kind: Kind) -> Answer {
    let module = match machine.parse(name, text).and_then(|module| module.verify().map(|()| module)) {
        Ok(module) => module,
        Err(message) => return Answer::Invalid(message),
    };
    let smaller = if level == Level::Size { module.run(SMALLER) } else { Ok(()) };
    let file = match kind {
        Kind::Object => File::Object,
        Kind::Assembly => File::Assembly,
    };
    match smaller.and_then(|()| module.emit(file)) {
        Ok(bytes) => Answer::Parts(vec![bytes]),
        Err(message) => Answer::Failed(message),
    }
}
