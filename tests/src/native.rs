//! The two code generators as tests use them: by name, and on one thread each where tests themselves run in parallel.
use numrsc::{
    compile::{Generator, Options},
    native::Native,
};
use numrsc_passes::Level;

pub const GENERATORS: [Generator; 2] = [Generator::Llvm, Generator::Cranelift];

/// For this machine, compiling on the thread that asks, at the level that `NUMRSC_LEVEL` names.
pub fn options(generator: Generator) -> Options {
    let level = match std::env::var("NUMRSC_LEVEL").as_deref() {
        Ok("0") => Level::O0,
        Ok("1") => Level::O1,
        Ok("3") => Level::O3,
        _ => Level::O2,
    };
    Options { generator, ..Options::default() }.with(|o| (o.level, o.jobs) = (level, 1))
}

/// Compiles by this generator and runs on two threads.
pub fn executor(generator: Generator) -> Native {
    Native { options: options(generator), threads: 2, timeout: None }
}

/// With a check of every access, which fails the run where one leaves its buffer.
pub fn sanitized(generator: Generator) -> Native {
    Native { options: options(generator).with(|o| o.sanitize = true), threads: 2, timeout: None }
}
