//! The head of a file: what to run on its cases, for which machine, with which options.
use super::inputs::Numbers;
use numrsc_ir::Machine;
use numrsc_passes::{Context, Level, pipeline::Pass};
use std::fmt;

/// What a file wants.
#[derive(Debug)]
pub struct Head<'p> {
    pub test: Test<'p>,
    pub context: Context,
    /// What inputs are made of.
    pub numbers: Numbers,
}

/// What is done with a case.
#[derive(Debug)]
pub enum Test<'p> {
    /// Reading: the text of what was read, or the error.
    Parse,
    /// The verifier: `valid`, or what is wrong.
    Verify,
    /// Native code of all generators gives what the evaluator gives; nothing is printed.
    Run,
    /// These passes one after the other, each judged by the evaluator.
    Passes(Vec<&'p Pass>, Shown),
}

/// What is shown of what passes made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// The function; of kernels, what is launched.
    Result,
    /// The text of all kernels.
    Kernels,
    /// The composites that the optimiser recognises.
    Composites,
}

/// What is wrong with a head, and where.
#[derive(PartialEq, Eq, Debug)]
pub struct HeadError {
    pub line: usize,
    pub message: String,
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for HeadError {}

const TESTS: [&str; 5] = ["parse", "verify", "run", "kernels", "composites"];
const OPTIONS: [&str; 6] = ["level", "tolerance", "without", "sanitize", "device", "inputs"];

/// The head of a file and the rest. A head ends where a line begins with neither `test`, `machine` nor `set`.
pub(super) fn split(text: &str) -> (&str, &str) {
    let is_head = |line: &str| ["test", "machine", "set"].contains(&line.split_whitespace().next().unwrap_or(""));
    let length = text.split_inclusive('\n').take_while(|line| is_head(line) || line.trim().is_empty()).map(str::len);
    text.split_at(length.sum())
}

impl<'p> Head<'p> {
    /// The head of a file.
    pub fn of(text: &str, known: &'p [Pass]) -> Result<Head<'p>, HeadError> {
        Head::parse(split(text).0, known)
    }

    /// Read the lines of a head, where these passes are known.
    pub fn parse(text: &str, known: &'p [Pass]) -> Result<Head<'p>, HeadError> {
        let mut test = None;
        let mut context = Context::new(Machine::AVX2);
        let mut numbers = Numbers::default();
        let mut machine = None;
        for (i, line) in text.lines().enumerate() {
            let at = |message: String| HeadError { line: i + 1, message };
            let mut words = line.split_whitespace();
            match words.next() {
                None => {}
                Some("test") if test.is_some() => return Err(at("a second line `test`".into())),
                Some("test") => test = Some(parse_test(&words.collect::<Vec<_>>(), known).map_err(at)?),
                Some("machine") => {
                    let (Some(name), None) = (words.next(), words.next()) else {
                        return Err(at("`machine` has one name".into()));
                    };
                    context.machine = Machine::named(name).ok_or_else(|| {
                        let names: Vec<&str> = Machine::NAMED.iter().map(|(name, _)| *name).collect();
                        at(format!("no machine is called `{name}`; there are {}", names.join(", ")))
                    })?;
                    machine = Some(i + 1);
                }
                Some("set") => {
                    for word in words {
                        set(word, &mut context, &mut numbers).map_err(at)?;
                    }
                }
                Some(other) => return Err(at(format!("`{other}` is neither `test`, `machine` nor `set`"))),
            }
        }
        let missing = || HeadError { line: 1, message: "the head has no line `test`, which says what to run".into() };
        let test = test.ok_or_else(missing)?;
        match (machine, &test) {
            (Some(line), Test::Parse | Test::Verify | Test::Run) => {
                Err(HeadError { line, message: "only passes have a machine".into() })
            }
            _ => Ok(Head { test, context, numbers }),
        }
    }
}

fn parse_test<'p>(words: &[&str], known: &'p [Pass]) -> Result<Test<'p>, String> {
    match words {
        [] => return Err("`test` names nothing to run".into()),
        ["parse"] => return Ok(Test::Parse),
        ["verify"] => return Ok(Test::Verify),
        ["run"] => return Ok(Test::Run),
        _ => {}
    }
    let (shown, names) = match words {
        [names @ .., "kernels"] => (Shown::Kernels, names),
        [names @ .., "composites"] => (Shown::Composites, names),
        names => (Shown::Result, names),
    };
    let find = |name: &str| {
        known.iter().find(|pass| pass.name == name).ok_or_else(|| {
            if TESTS.contains(&name) {
                return match name {
                    "kernels" | "composites" => format!("`{name}` is the last of a line"),
                    _ => format!("`{name}` is alone on its line"),
                };
            }
            let names: Vec<&str> = known.iter().map(|pass| pass.name).collect();
            format!("no pass is called `{name}`; there are {}, and {}", names.join(", "), TESTS.join(", "))
        })
    };
    let passes = names.iter().map(|name| find(name)).collect::<Result<Vec<&Pass>, String>>()?;
    if let Some(pass) = passes.iter().rev().skip(1).find(|pass| pass.is_last()) {
        return Err(format!("nothing can follow `{}`", pass.name));
    }
    if shown == Shown::Kernels && !passes.last().is_some_and(|pass| pass.is_last()) {
        return Err("there are kernels after `lower`".into());
    }
    Ok(Test::Passes(passes, shown))
}

/// An option, as `name=value` or, where there is nothing to choose, as its name.
fn set(word: &str, context: &mut Context, numbers: &mut Numbers) -> Result<(), String> {
    let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
    let wrong = |what: &str| format!("`{name}` is {what}, not `{}`", value.unwrap_or("(nothing)"));
    let options = &mut context.options;
    match (name, value) {
        ("level", _) => {
            let levels = [("0", Level::O0), ("1", Level::O1), ("2", Level::O2), ("3", Level::O3)];
            let level = levels.into_iter().find(|(text, _)| Some(*text) == value);
            options.level = level.ok_or_else(|| wrong("0 to 3"))?.1;
        }
        ("tolerance", _) => {
            let tolerance = value.and_then(|v| v.parse::<f64>().ok()).filter(|t| *t >= 0.0);
            options.tolerance = tolerance.ok_or_else(|| wrong("a number that is not negative"))?;
        }
        ("without", Some(names)) => options.without = names.split(',').map(str::to_owned).collect(),
        ("without", None) => return Err(wrong("a list of names")),
        ("sanitize", None) => options.sanitize = true,
        ("device", None) => context.device = true,
        ("sanitize" | "device", Some(_)) => return Err(format!("`{name}` has no value")),
        ("inputs", _) => *numbers = value.and_then(Numbers::named).ok_or_else(|| wrong("`finite` or `all`"))?,
        _ => return Err(format!("no option is called `{name}`; there are {}", OPTIONS.join(", "))),
    }
    Ok(())
}
