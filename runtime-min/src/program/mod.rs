//! A model as a program of its own: what `numrsc compile --emit exe` links with it. It has no libraries, not even libc, and asks only Linux.
//!
//! The compiler carries the sources of this crate ([`crate::SOURCES`]) and has `rustc` make a static library of them for the target, with
//! `--cfg numrsc_program`. No other build has what is here. The linker adds the parts of the model under the names that `start.rs` declares.
mod arguments;
mod cpu;
mod heap;
mod inputs;
mod linux;
mod start;

use crate::{Context, Model, Visible, npy};
use alloc::{format, string::String, vec};
use arguments::{Arguments, Command};
use inputs::Inputs;
use linux::File;

/// How a program ends that does not do what it was asked for.
enum Failure {
    /// The model cannot run here, a file cannot be read or written, or running failed: exit code 1.
    Run(String),
    /// What was asked for makes no sense: exit code 2.
    Usage(String),
}

type Result<T = ()> = core::result::Result<T, Failure>;

impl From<crate::Error> for Failure {
    fn from(error: crate::Error) -> Failure {
        Failure::Run(format!("{error}"))
    }
}

/// All that the program does.
fn main(model: &Model, arguments: &[&'static str]) -> Result {
    match arguments::parse(model.manifest(), arguments)? {
        Command::Help(text) => write(File::Standard, &[format!("{}", Visible(&text)).as_bytes()]),
        Command::Run(arguments) => run(model, &arguments),
        Command::Bench(arguments) => bench(model, &arguments),
    }
}

fn run(model: &Model, arguments: &Arguments) -> Result {
    let inputs = Inputs::read(model, &arguments.inputs)?;
    let mut context = Context::new(model)?;
    model.run_in_order(&mut context, &inputs.tensors())?;
    for (position, file) in arguments.outputs.iter().enumerate() {
        let Some(file) = *file else { continue };
        let output = context.output(position)?;
        let elements = output.bytes()?;
        match file {
            File::Path(path) if !path.ends_with(".npy") => write(file, &[elements])?,
            _ => write(file, &[&npy::header(output.dtype(), output.shape()), elements])?,
        }
    }
    Ok(())
}

/// Run for about a second, and at least three times after the first run, which gets memory from the system.
fn bench(model: &Model, arguments: &Arguments) -> Result {
    const SECOND: u64 = 1_000_000_000;
    let given = arguments.inputs.iter().any(Option::is_some);
    let (inputs, sizes) = match given {
        true => (Inputs::read(model, &arguments.inputs)?, String::new()),
        false => Inputs::zeros(model)?,
    };
    let inputs = inputs.tensors();
    let mut context = Context::new(model)?;
    model.run_in_order(&mut context, &inputs)?;
    let mut times = vec![];
    let begin = linux::nanoseconds();
    while times.len() < 3 || linux::nanoseconds() - begin < SECOND {
        let start = linux::nanoseconds();
        model.run_in_order(&mut context, &inputs)?;
        times.push(linux::nanoseconds() - start);
    }
    times.sort_unstable();
    let milliseconds = |time: u64| format!("{}.{:03} ms", time / 1_000_000, time / 1000 % 1000);
    let (count, fastest, median) = (times.len(), milliseconds(times[0]), milliseconds(times[times.len() / 2]));
    let text = format!("{count} runs{sizes} on one thread: fastest {fastest}, median {median}\n");
    write(File::Standard, &[text.as_bytes()])
}

fn write(file: File, parts: &[&[u8]]) -> Result {
    linux::write(file, parts).map_err(|error| Failure::Run(format!("{}: {error}", file.name("output"))))
}
