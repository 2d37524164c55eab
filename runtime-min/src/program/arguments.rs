//! The command line.
use super::{Failure, Result, linux::File};
use crate::{
    DType,
    artifact::{Manifest, Port, PortKind, Ports},
};
use alloc::{format, string::String, vec, vec::Vec};
use core::fmt::Write;

pub(super) enum Command {
    /// What to say.
    Help(String),
    Run(Arguments),
    Bench(Arguments),
}

/// Files of inputs and outputs, in the order of the model.
pub(super) struct Arguments {
    pub(super) inputs: Vec<Option<File>>,
    pub(super) outputs: Vec<Option<File>>,
}

/// Of the arguments, the first is the program itself.
pub(super) fn parse(manifest: Manifest<'_>, arguments: &[&'static str]) -> Result<Command> {
    let mut files =
        Arguments { inputs: vec![None; manifest.inputs().len()], outputs: vec![None; manifest.outputs().len()] };
    let mut bench = false;
    let mut rest = arguments.iter().skip(1);
    while let Some(&argument) = rest.next() {
        let mut value =
            || rest.next().copied().ok_or_else(|| Failure::Usage(format!("{argument} needs a value: NAME=FILE")));
        match argument {
            "-h" | "--help" => return Ok(Command::Help(help(manifest, arguments[0]))),
            "--bench" => bench = true,
            "--input" => assign(&mut files.inputs, manifest.inputs(), value()?, "input")?,
            "--output" => assign(&mut files.outputs, manifest.outputs(), value()?, "output")?,
            other => return Err(Failure::Usage(format!("unknown argument {other}; --help tells what there is"))),
        }
    }
    if bench {
        return Ok(Command::Bench(files));
    }
    // A model of one input and one output is a filter.
    if let [input @ None] = &mut files.inputs[..] {
        *input = Some(File::Standard);
    }
    match &mut files.outputs[..] {
        [output @ None] => *output = Some(File::Standard),
        outputs if outputs.iter().all(Option::is_none) => {
            let names = names(manifest.outputs());
            return Err(Failure::Usage(format!("which output? --output NAME=FILE, where NAME is one of {names}")));
        }
        _ => {}
    }
    Ok(Command::Run(files))
}

/// `NAME=FILE`, or `FILE` if there is only one name.
fn assign(files: &mut [Option<File>], ports: Ports<'_>, value: &'static str, what: &str) -> Result {
    // Names are the model's and may contain anything, so they are not what precedes the first `=`.
    let file_of = |port: &Port<'_>| value.strip_prefix(port.name)?.strip_prefix('=');
    let named = ports.enumerate().filter_map(|(at, port)| Some((at, port, file_of(&port)?)));
    let found = named.min_by_key(|(_, _, file)| file.len()).or_else(|| match ports.len() {
        1 if !value.contains('=') => ports.enumerate().map(|(at, port)| (at, port, value)).next(),
        _ => None,
    });
    let Some((at, port, file)) = found else {
        let names = names(ports);
        return Err(Failure::Usage(format!("--{what} {value}: not NAME=FILE, where NAME is one of {names}")));
    };
    if port.kind != PortKind::Tensor || port.dtype == DType::Str {
        return Err(Failure::Usage(format!("{what} {} is {}, which files cannot hold", port.name, port.type_text)));
    }
    if files[at].is_some() {
        return Err(Failure::Usage(format!("two files for {what} {}", port.name)));
    }
    files[at] = Some(if file == "-" { File::Standard } else { File::Path(file) });
    Ok(())
}

fn names(ports: Ports<'_>) -> String {
    ports.map(|port| port.name).collect::<Vec<_>>().join(", ")
}

fn help(manifest: Manifest<'_>, program: &str) -> String {
    let mut text =
        format!("The model {}, compiled by {} for {}", manifest.model(), manifest.producer(), manifest.target_triple());
    let features: Vec<&str> = manifest.cpu_features().collect();
    if !features.is_empty() {
        let _ = write!(text, "; the CPU has to have {}", features.join(", "));
    }
    let _ = write!(text, ".\n\nUsage: {program} [--input NAME=FILE]... [--output NAME=FILE]... [--bench]\n");
    for (title, ports) in [("Inputs", manifest.inputs()), ("Outputs", manifest.outputs())] {
        let _ = write!(text, "\n{title}:\n");
        for port in ports {
            let _ = writeln!(text, "  {}: {}", port.name, port.type_text);
        }
    }
    text + "
Options:
  --input NAME=FILE   Read an input: a .npy file, or the elements alone if at most one of the sizes is open
  --output NAME=FILE  Write an output: as .npy if the file is called so, otherwise the elements alone
  --bench             Measure runs for about a second, with zeros if no inputs are given
  -h, --help          Say this

The FILE - is the standard input or output, as .npy. NAME= can be left out where there is one input or output, and so can the
whole option: the standard input or output is meant then. Exit codes: 0 success, 1 failure, 2 wrong usage.
"
}
