//! The two code generators as tests use them: by name, and on one thread each where tests themselves run in parallel.
use numrsc::{
    compile::{Generator, Options},
    native::Native,
};

pub const GENERATORS: [Generator; 2] = [Generator::Llvm, Generator::Cranelift];

/// For this machine, compiling on the thread that asks.
pub fn options(generator: Generator) -> Options {
    Options { generator, jobs: 1, ..Options::default() }
}

/// Compiles by this generator and runs on two threads.
pub fn executor(generator: Generator) -> Native {
    Native { options: options(generator), threads: 2 }
}

/// With a check of every access, which fails the run where one leaves its buffer.
pub fn sanitized(generator: Generator) -> Native {
    Native { options: Options { sanitize: true, ..options(generator) }, threads: 2 }
}
