//! Texts in, texts out: every `tests/filetests/**/*.nir`.
//!
//! A file has a head and cases. The head says what to run: `test` with one or more passes of the pipeline, or `parse`,
//! `verify` or `run`; `machine` with one of [`numrsc_ir::Machine::NAMED`]; `set` with options. A case is an input, a
//! line `// ----` and the expected output; a line `// ====` starts the next case. What a pass makes of a case is also
//! judged: the evaluator has to get the same of both.
mod head;
mod inputs;
mod judged;
#[cfg(test)]
mod tests;

pub use head::{Head, HeadError, Shown, Test};
use numrsc_ir::{
    Func,
    kernel::{Stmt, Ty},
    parse, print, verify,
};
use numrsc_passes::{
    Context, egraph,
    emit::Lowered,
    pipeline::{Pass, Stage},
};
use std::{
    borrow::Cow,
    fmt::Write,
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

const NEXT: &str = "// ====\n";
const EXPECT: &str = "// ----\n";

/// A file of cases.
#[derive(Debug)]
pub struct File {
    pub path: PathBuf,
    pub text: String,
}

/// All files below a folder, in a fixed order.
pub fn files(folder: &Path) -> io::Result<Vec<File>> {
    let mut all = vec![];
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            all.extend(files(&path)?);
        } else if path.extension().is_some_and(|e| e == "nir") {
            all.push(File { text: fs::read_to_string(&path)?, path });
        }
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(all)
}

/// The inputs of the cases of a file.
pub fn cases(text: &str) -> impl Iterator<Item = &str> {
    head::split(text).1.split(NEXT).map(|case| case.split(EXPECT).next().unwrap_or(case))
}

/// What a file should say, or what is wrong and cannot be accepted as it is.
pub fn run(text: &str, known: &[Pass]) -> Result<String, Vec<String>> {
    let lines = head::split(text).0;
    let head = Head::parse(lines, known).map_err(|e| vec![e.to_string()])?;
    let mut wrong = vec![];
    let mut done: Vec<String> = vec![];
    for (i, input) in cases(text).enumerate() {
        let case = catch_unwind(AssertUnwindSafe(|| case(&head, input, i as u64))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Err(format!("panicked: {}", text.unwrap_or_default()))
        });
        match case {
            Ok(Some(output)) => done.push(format!("{}\n{EXPECT}{}\n", input.trim_end(), output.trim_end())),
            Ok(None) => done.push(format!("{}\n", input.trim_end())),
            Err(e) => wrong.push(format!("case {}: {e}\n{}", i + 1, input.trim_end())),
        }
    }
    if wrong.is_empty() { Ok(format!("{}\n\n{}", lines.trim(), done.join(NEXT))) } else { Err(wrong) }
}

/// What comes of a case, if anything is shown.
fn case(head: &Head<'_>, input: &str, seed: u64) -> Result<Option<String>, String> {
    let read = |input: &str| parse(input).map_err(|e| e.to_string());
    match &head.test {
        Test::Parse => match parse(input) {
            Err(e) => Ok(Some(e.to_string())),
            Ok(func) => {
                verify(&func).map_err(|e| e.to_string())?;
                let text = func.to_string();
                match read(&text)? == func {
                    true => Ok(Some(text)),
                    false => Err(format!("reads back differently:\n{text}")),
                }
            }
        },
        Test::Verify => Ok(Some(verify(&read(input)?).map_or_else(|e| e.to_string(), |()| "valid".into()))),
        Test::Run => judged::natively(&valid(input)?, &head.context, head.numbers, seed).map(|()| None),
        Test::Passes(passes, shown) => {
            let func = valid(input)?;
            let mut stage = Stage::Tensor(Cow::Borrowed(&func));
            for pass in passes {
                let Stage::Tensor(before) = stage else { return Err(format!("`{}` follows kernels", pass.name)) };
                stage = pass.run(before.clone(), &head.context).map_err(|e| e.to_string())?;
                stage.verify().map_err(|e| format!("after `{}`: {e}", pass.name))?;
                judged::stage(pass, &head.context, &before, &stage, head.numbers, seed)
                    .map_err(|e| format!("`{}` is judged wrong: {e}", pass.name))?;
            }
            show(&stage, *shown, &head.context).map(Some)
        }
    }
}

fn valid(input: &str) -> Result<Func, String> {
    let func = parse(input).map_err(|e| e.to_string())?;
    verify(&func).map_err(|e| e.to_string())?;
    Ok(func)
}

fn show(stage: &Stage<'_>, shown: Shown, cx: &Context) -> Result<String, String> {
    Ok(match (stage, shown) {
        (Stage::Tensor(func), Shown::Composites) => {
            let (_, report) = egraph::optimise_and_report(func, cx).map_err(|e| e.to_string())?;
            report.recognised.iter().map(|(name, n)| format!("{name} {n}\n")).collect()
        }
        (Stage::Tensor(func), _) => print::func(func, print::Detail::Brief),
        (Stage::Kernel(lowered), Shown::Kernels) => {
            let kernels = lowered.module.functions.split_last().map_or(&[][..], |(_, kernels)| kernels);
            kernels.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        }
        (Stage::Kernel(lowered), _) => launches(lowered)?,
    })
}

/// What is launched in which order and for which nodes of the model, how many buffers a kernel gets, and what the arena takes for sizes of 64.
fn launches(lowered: &Lowered) -> Result<String, String> {
    let (entry, kernels) = lowered.module.functions.split_last().ok_or("there is no entry")?;
    let mut text = String::new();
    for stmt in &entry.body.stmts {
        if let Stmt::Launch { kernel, origins, .. } = stmt {
            let k = &kernels[kernel.0 as usize];
            let pointers = k.params.iter().filter(|p| k.ty(**p) == Ty::PTR).count();
            let from = if origins.is_empty() { String::new() } else { format!(" from {origins}") };
            let _ = writeln!(text, "launch {} with {pointers} buffers{from}", k.name);
        }
    }
    let bytes = lowered.memory.arena_bytes(&|_| Some(64)).ok_or("the arena has no size")?;
    Ok(text + &format!("arena: {bytes} bytes"))
}
