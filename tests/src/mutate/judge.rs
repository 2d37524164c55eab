//! Compiles and runs a case in every way, and compares with the evaluator.
use super::{
    Case, allowed, import,
    inputs::{SIZES, inputs},
};
use crate::{judge, native::options};
use numrsc::{
    compile::{Generator, Options},
    native,
};
use numrsc_ir::{Data, Func, eval::eval};
use numrsc_runtime::{Context, Model};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
};

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The front end refuses the model.
    Refused(String),
    /// The compiler refuses it, in every way alike.
    NotCompiled(String),
    /// This many runs gave the evaluator's result, or failed like it.
    Agreed {
        runs: usize,
        failing: usize,
    },
    /// A difference that has a reason.
    Allowed(&'static str),
    Finding(String),
}

/// All ways to make native code. The sanitized one goes first, since it reports what would crash the others.
const WAYS: [(Generator, bool); 4] =
    [(Generator::Llvm, true), (Generator::Cranelift, true), (Generator::Llvm, false), (Generator::Cranelift, false)];

/// Errors that must not be the reason for a refusal.
const BUGS: &[&str] = &["made something invalid", "bug in", "internal error", "this is a bug", "Verifier", "verifier"];

/// Sixteen units in the last place of `f32`, relative to the largest number.
const NEAR: f64 = 2e-6;

static PANIC: Mutex<String> = Mutex::new(String::new());

/// Remember where panics happen, and print nothing about them.
pub(super) fn keep_panics() {
    std::panic::set_hook(Box::new(|info| {
        let text = info.payload().downcast_ref::<String>().map(String::as_str);
        let text = text.or(info.payload().downcast_ref::<&str>().copied()).unwrap_or("no message");
        let place = info.location().map_or(String::new(), |l| format!("{}:{}: ", l.file(), l.line()));
        if let Ok(mut kept) = PANIC.lock() {
            *kept = format!("{place}{text}");
        }
    }));
}

/// A panic as an error.
fn caught<T>(what: &str, f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|_| {
        let text = PANIC.lock().map(|t| t.clone()).unwrap_or_default();
        format!("{what} panicked: {text}")
    })
}

pub fn judge(case: &Case) -> Outcome {
    match judged(case) {
        Ok(outcome) => outcome,
        Err(finding) => match allowed::reason(&finding) {
            Some(reason) => Outcome::Allowed(reason),
            None => Outcome::Finding(finding),
        },
    }
}

fn judged(case: &Case) -> Result<Outcome, String> {
    let func = match caught("the import", || import(&case.model))? {
        Ok(func) => func,
        Err(e) if is_bug(&e) => return Err(format!("the import fails: {e}")),
        Err(e) => return Ok(Outcome::Refused(e)),
    };
    caught("the verifier", || numrsc_ir::verify(&func))?.map_err(|e| format!("imported as something invalid: {e}"))?;
    let wrong = match case.plant.map(|p| p.apply(&case.model, &func)) {
        Some(None) => return Ok(Outcome::Refused("nothing was planted".into())),
        Some(wrong) => wrong,
        None => None,
    };
    let compiled = wrong.as_ref().unwrap_or(&func);
    let mut models = vec![];
    let mut refusals = vec![];
    for (generator, sanitize) in WAYS {
        let name = name(generator, sanitize);
        let options = way(generator, sanitize);
        match caught(&format!("{name}: compiling"), || native::load(compiled, &options))? {
            Ok(model) => models.push((generator, name, model)),
            Err(e) if is_bug(&e) => return Err(format!("{name}: compiling fails: {e}")),
            Err(e) => refusals.push(format!("{name}: compiling fails: {e}")),
        }
    }
    if models.is_empty() {
        return Ok(Outcome::NotCompiled(refusals.swap_remove(0)));
    }
    if let Some(refusal) = refusals.pop() {
        return Err(format!("{refusal}, but not otherwise"));
    }
    let live = func.without_dead_nodes();
    // Floats of 16 bits are kept wide where `Options::tolerance` lets them.
    let wide = caught("widening", || {
        numrsc_passes::half_to_f32(&live, &numrsc_passes::Context::new(numrsc_ir::Machine::AVX2))
    })?
    .map_err(|e| format!("widening fails: {e}"))?;
    let (mut runs, mut failing) = (0, 0);
    for sizes in SIZES {
        let Some(inputs) = inputs(case, &func, sizes) else { continue };
        let expected = caught("the evaluator", || eval(&live, &inputs).map_err(|e| e.to_string()))?;
        failing += usize::from(expected.is_err());
        for (generator, name, model) in &models {
            let got = caught(&format!("{name}: running"), || run(model, &inputs))?;
            let judged = if *generator == Generator::Llvm { &wide } else { &live };
            caught("the judge", || agree(judged, &inputs, &expected, got, case.seed))?
                .map_err(|e| format!("{name}: at {sizes:?} sizes: {e}"))?;
            runs += 1;
        }
    }
    Ok(Outcome::Agreed { runs, failing })
}

fn name(generator: Generator, sanitize: bool) -> String {
    format!("{generator:?}{}", if sanitize { " --sanitize" } else { "" })
}

/// LLVM as it compiles by default, Cranelift with all roundings that the types ask for.
fn way(generator: Generator, sanitize: bool) -> Options {
    let options = options(generator).with(|o| o.sanitize = sanitize);
    if generator == Generator::Llvm { options } else { options.with(|o| o.tolerance = 0.0) }
}

fn run(model: &Model, inputs: &[Data]) -> Result<Vec<Data>, String> {
    let mut context = Context::with_threads(model, 2).map_err(|e| e.to_string())?;
    context.keep_subnormals(true);
    native::run_in(model, &mut context, inputs)
}

fn agree(
    func: &Func,
    inputs: &[Data],
    expected: &Result<Vec<Data>, String>,
    got: Result<Vec<Data>, String>,
    seed: u64,
) -> Result<(), String> {
    match (expected, got) {
        (Err(_), Err(e)) if is_bug(&e) => Err(format!("native code fails: {e}")),
        (Err(_), Err(_)) => Ok(()),
        (Err(e), Ok(_)) => Err(format!("native code runs, but the evaluator fails: {e}")),
        (Ok(_), Err(e)) => Err(format!("native code fails: {e}")),
        (Ok(expected), Ok(got)) if *expected == got => Ok(()),
        (Ok(expected), Ok(got)) => {
            let far = || !got.iter().zip(expected).all(|(got, expected)| is_near(got, expected));
            match judge::fused(func, inputs, Ok(got.clone()), seed) {
                Err(e) if far() => Err(e),
                _ => Ok(()),
            }
        }
    }
}

/// Floats that differ by a few units in the last place of the largest number of a tensor. The judge's samples are extremes of single
/// operations; a long chain may be off by a little more than any of them.
fn is_near(got: &Data, expected: &Data) -> bool {
    match (got, expected) {
        (Data::Tensor(a), Data::Tensor(b))
            if a.dtype() == b.dtype() && a.shape() == b.shape() && a.dtype().is_float() =>
        {
            let (a, b) = (a.to_f64s(), b.to_f64s());
            let largest = b.iter().filter(|x| x.is_finite()).fold(0.0, |m: f64, x| m.max(x.abs()));
            a.iter().zip(&b).all(|(a, b)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= largest * NEAR)
        }
        (Data::Seq(a), Data::Seq(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_near(a, b)),
        (a, b) => a == b,
    }
}

fn is_bug(message: &str) -> bool {
    BUGS.iter().any(|b| message.contains(b))
}

/// A finding without what differs between cases: numbers, values, symbols.
pub fn skeleton(finding: &str) -> String {
    let mut text = String::new();
    let mut last = ' ';
    for c in finding.lines().next().unwrap_or("").chars().take(300) {
        let c = if c.is_ascii_digit() { '#' } else { c };
        if !(c == '#' && matches!(last, '#')) {
            text.push(c);
        }
        last = c;
    }
    text.replace("-#", "#").replace("#.#", "#").replace("#e#", "#")
}
