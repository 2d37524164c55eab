//! The program: it opens LLVM, then answers requests until nobody asks any more.
mod find;
mod library;
mod machine;

use crate::protocol::{Answer, Request, SERVE, VERSION, greeting};
use machine::Machines;
use std::{
    env,
    io::{self, BufWriter, Write},
    process::{self, ExitCode},
    sync::mpsc,
    thread,
};

/// What is left to a command line: nobody but the compiler starts this to get an answer.
pub fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    match &arguments[..] {
        [one] if one == SERVE => match serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        _ => {
            let llvm = find::open().map_or_else(|e| e, |llvm| llvm.about());
            let text = format!(
                "numrsc-llvm {VERSION}: {llvm}\nThis is a part of numrsc, which starts it; it has no options.\n"
            );
            let wanted = arguments.is_empty() || arguments.iter().any(|a| a == "--version" || a == "--help");
            let told =
                if wanted { io::stdout().write_all(text.as_bytes()) } else { io::stderr().write_all(text.as_bytes()) };
            if wanted && told.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(2) }
        }
    }
}

/// The greeting says which program this is, the first answer which LLVM it has, or why none.
fn serve() -> io::Result<()> {
    let mut to = BufWriter::new(io::stdout().lock());
    writeln!(to, "{}", greeting())?;
    let llvm = match find::open() {
        Ok(llvm) => llvm,
        Err(message) => return Answer::Failed(message).write(&mut to),
    };
    Answer::Parts(vec![llvm.version().into_bytes(), llvm.path().as_os_str().as_encoded_bytes().to_vec()])
        .write(&mut to)?;
    let mut machines = Machines::new(&llvm);
    for request in requests() {
        machines.answer(&request).write(&mut to)?;
    }
    Ok(())
}

/// What comes in. A thread reads it, so that a compiler that was killed does not leave this behind with hours of work: nothing more comes in then.
fn requests() -> mpsc::IntoIter<Request> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut from = io::stdin().lock();
        loop {
            match Request::read(&mut from) {
                Ok(Some(request)) => {
                    if sender.send(request).is_err() {
                        return;
                    }
                }
                Ok(None) => process::exit(0),
                Err(e) => {
                    eprintln!("{e}");
                    process::exit(1);
                }
            }
        }
    });
    receiver.into_iter()
}
