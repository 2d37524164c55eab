//! Is a native result what it should be? Judged by samples of the evaluator, see [`crate::perturbed`].
use crate::perturbed::{Perturbation, is_approximate, is_exact, perturbations};
use numrsc_ir::{
    DType, Data, Elems, Func, Op, ScalarFn, Tensor, Type, Value,
    eval::{Env, eval, eval_op, unify},
    scalar::Step,
};

/// How much was compared. Values that rounding errors turn into something else prove nothing and are skipped.
#[derive(Clone, Copy, Default, Debug)]
pub struct Count {
    pub compared: usize,
    pub skipped: usize,
}

impl Count {
    pub fn add(&mut self, other: Count) {
        self.compared += other.compared;
        self.skipped += other.skipped;
    }
}

/// Judges the results of a function for inputs, with the seed of its samples.
pub type Judge = fn(&Func, &[Data], Result<Vec<Data>, String>, u64) -> Result<Count, String>;

/// Judges the results of a run, or the error it ended with.
pub fn fused(func: &Func, inputs: &[Data], got: Result<Vec<Data>, String>, seed: u64) -> Result<Count, String> {
    fused_within(func, inputs, got, 0.0, seed)
}

/// The same where numbers may also be off by so much.
pub fn fused_within(
    func: &Func,
    inputs: &[Data],
    got: Result<Vec<Data>, String>,
    slack: f64,
    seed: u64,
) -> Result<Count, String> {
    let live = func.without_dead_nodes();
    let expected = eval(&live, inputs);
    let got = match (expected, got) {
        (Ok(_), Ok(got)) => got,
        (Err(_), Err(_)) => return Ok(Count { compared: 1, skipped: 0 }),
        (Ok(_), Err(e)) => return Err(format!("native code fails: {e}")),
        (Err(e), Ok(_)) => return Err(format!("native code runs, but the evaluator fails: {e}")),
    };
    if got.len() != func.results().len() {
        return Err(format!("{} results, not {}", got.len(), func.results().len()));
    }
    let samples =
        perturbations(seed).into_iter().map(|mut perturbation| perturbation.run(&live, inputs, &mut Env::new()).ok());
    let samples: Vec<Option<Vec<Data>>> = samples.collect();
    let mut count = Count::default();
    for (i, got) in got.iter().enumerate() {
        let samples: Option<Vec<&Data>> = samples.iter().map(|s| s.as_ref().map(|s| &s[i])).collect();
        // A run that rounding errors can make fail proves nothing.
        let Some(samples) = samples else { return Ok(Count { compared: 0, skipped: 1 }) };
        count.add(compare(got, &samples, false, slack).map_err(|e| format!("result {i}: {e}"))?);
    }
    Ok(count)
}

/// A copy of the function in which all tensors are results; optionally sequences too.
pub fn with_all_results(func: &Func, sequences: bool) -> Func {
    let mut all = func.clone();
    let wanted = |ty: &Type| matches!(ty, Type::Tensor(_)) || (sequences && matches!(ty, Type::Seq(_)));
    all.set_results(func.values().filter(|(_, n)| wanted(&n.ty)).map(|(v, _)| v).collect());
    all.result_names = vec![];
    all
}

/// Judges every node of a function made by [`with_all_results`] separately: by its native operands.
pub fn local(func: &Func, inputs: &[Data], got: Result<Vec<Data>, String>, seed: u64) -> Result<Count, String> {
    let got = match (eval(func, inputs), got) {
        (_, Ok(got)) => got,
        (Err(_), Err(_)) => return Ok(Count { compared: 1, skipped: 0 }),
        (Ok(_), Err(e)) => return Err(format!("native code fails: {e}")),
    };
    let mut env = Env::new();
    // A size may be named by one parameter and used in an expression by an earlier one.
    for (p, input) in func.params().into_iter().zip(inputs) {
        let _ = unify(func.ty(p), input, &mut env);
    }
    let mut count = Count::default();
    // The native value of every node, or the samples where there is none.
    let mut values: Vec<Vec<Data>> = vec![];
    for (v, node) in func.values() {
        let at = |e: String| format!("{v} = {}: {e}", node.op);
        let operands: Vec<&[Data]> = node.args.iter().map(|a| &values[a.0 as usize][..]).collect();
        let native = func.results().iter().position(|r| *r == v).and_then(|i| got.get(i));
        let samples = match &node.op {
            Op::Param { index, .. } => Some(vec![inputs[*index as usize].clone()]),
            op => samples(op, &operands, &mut env, seed ^ u64::from(v.0))
                .map_err(|e| at(format!("native code runs, but the evaluator fails: {e}")))?,
        };
        let samples = match (samples, native) {
            (Some(samples), _) => samples,
            (None, Some(native)) => {
                count.skipped += 1;
                unify(&node.ty, native, &mut env).map_err(at)?;
                values.push(vec![native.clone()]);
                continue;
            }
            // What follows depends on values that are not determined.
            (None, None) => return Ok(Count { skipped: count.skipped + 1, ..count }),
        };
        let shape = |d: &Data| d.as_tensor().ok().map(|t| t.shape().to_vec());
        if samples.iter().any(|s| shape(s) != shape(&samples[0])) {
            return Ok(Count { skipped: count.skipped + 1, ..count });
        }
        unify(&node.ty, &samples[0], &mut env).map_err(at)?;
        values.push(match native {
            Some(native) => {
                let strict = keeps_zero_signs(func, v);
                count.add(compare(native, &samples.iter().collect::<Vec<_>>(), strict, 0.0).map_err(at)?);
                vec![native.clone()]
            }
            None => samples,
        });
    }
    Ok(count)
}

/// The possible results of an op whose operands are samples; the evaluator's result comes first. `None` if another
/// sample fails.
fn samples(op: &Op, operands: &[&[Data]], env: &mut Env, seed: u64) -> Result<Option<Vec<Data>>, String> {
    let dtypes: Vec<DType> = operands.iter().filter_map(|x| x[0].as_tensor().ok().map(Tensor::dtype)).collect();
    let single = operands.iter().all(|x| x.len() == 1);
    if single && is_exact(op, &dtypes) {
        let args: Vec<&Data> = operands.iter().map(|x| &x[0]).collect();
        return eval_op(op, &args, env).map(|d| Some(vec![d]));
    }
    let mut all = vec![];
    let before = env.clone();
    for (i, mut perturbation) in perturbations(seed).into_iter().enumerate() {
        let args: Vec<&Data> = operands.iter().map(|x| x.get(i).unwrap_or(&x[0])).collect();
        let mut own = before.clone();
        match perturbation.op(op, &args, &mut own) {
            Ok(data) => all.push(data),
            Err(e) if i == 0 => return Err(e),
            Err(_) => return Ok(None),
        }
        if matches!(perturbation, Perturbation::None) {
            *env = own;
        }
    }
    Ok(Some(all))
}

/// The sign of a zero is determined except by ops that combine elements in any order, and by functions that are not exact.
fn keeps_zero_signs(func: &Func, v: Value) -> bool {
    match &func.node(v).op {
        Op::Map { f } => f.steps().iter().all(|s| match s {
            Step::Call(c) => !is_approximate(c.f) && !matches!(c.f, ScalarFn::Min | ScalarFn::Max),
            Step::Arg(_) | Step::Lit(_) => true,
        }),
        Op::Reduce { .. } | Op::Scan { .. } | Op::Window { .. } | Op::Contract { .. } | Op::Conv { .. } => false,
        Op::Scatter { .. } | Op::Get { .. } => false,
        _ => true,
    }
}

/// Compare with samples of which the first is the evaluator's own.
fn compare(got: &Data, samples: &[&Data], zero_signs: bool, slack: f64) -> Result<Count, String> {
    match (got, samples[0]) {
        (Data::Tensor(got), Data::Tensor(_)) => {
            let samples: Option<Vec<&Tensor>> = samples.iter().map(|s| s.as_tensor().ok()).collect();
            compare_tensors(got, &samples.ok_or("samples of different kinds")?, zero_signs, slack)
        }
        (Data::Seq(got), Data::Seq(_)) => {
            let samples: Option<Vec<&[Data]>> = samples.iter().map(|s| s.as_seq().ok()).collect();
            let samples = samples.ok_or("samples of different kinds")?;
            if samples.iter().any(|s| s.len() != samples[0].len()) {
                return Ok(Count { compared: 0, skipped: 1 });
            }
            if got.len() != samples[0].len() {
                return Err(format!("{} elements, not {}", got.len(), samples[0].len()));
            }
            let mut count = Count { compared: 1, skipped: 0 };
            for (i, got) in got.iter().enumerate() {
                let element: Vec<&Data> = samples.iter().map(|s| &s[i]).collect();
                count.add(compare(got, &element, zero_signs, slack).map_err(|e| format!("element {i}: {e}"))?);
            }
            Ok(count)
        }
        _ => Err("another kind of value".into()),
    }
}

fn compare_tensors(got: &Tensor, samples: &[&Tensor], zero_signs: bool, slack: f64) -> Result<Count, String> {
    let first = samples[0];
    let same = |t: &Tensor| (t.dtype(), t.shape()) == (first.dtype(), first.shape());
    if !samples.iter().all(|s| same(s)) {
        return Ok(Count { compared: 0, skipped: got.len().max(1) });
    }
    if !same(got) {
        return Err(format!("{}{:?}, not {}{:?}", got.dtype(), got.shape(), first.dtype(), first.shape()));
    }
    let mut count = Count { compared: 1, skipped: 0 };
    match got.elems() {
        Elems::Float(got) => {
            let samples: Vec<Vec<f64>> = samples.iter().map(|s| s.to_f64s()).collect();
            for (i, &x) in got.iter().enumerate() {
                let here: Vec<f64> = samples.iter().map(|s| s[i]).collect();
                match fits(x, &here, zero_signs, slack) {
                    Fit::Yes => count.compared += 1,
                    Fit::Unknown => count.skipped += 1,
                    Fit::No(low, high) => {
                        let between =
                            if low == high { String::new() } else { format!(" (between {low:?} and {high:?})") };
                        return Err(format!("{x:?} at {i}, not {:?}{between}", here[0]));
                    }
                }
            }
        }
        Elems::Int(got) => {
            let samples: Vec<Vec<i128>> = samples
                .iter()
                .map(|s| match s.elems() {
                    Elems::Int(v) => v,
                    _ => unreachable!("the same element type"),
                })
                .collect();
            for (i, &x) in got.iter().enumerate() {
                if samples.iter().any(|s| s[i] != samples[0][i]) {
                    count.skipped += 1;
                } else if x == samples[0][i] {
                    count.compared += 1;
                } else {
                    return Err(format!("{x} at {i}, not {}", samples[0][i]));
                }
            }
        }
        Elems::Str(got) => {
            if first.strings() != Some(&got[..]) {
                return Err(format!("{got:?}, not {:?}", first.strings()));
            }
            count.compared += got.len();
        }
    }
    Ok(count)
}

enum Fit {
    Yes,
    /// The samples say nothing.
    Unknown,
    No(f64, f64),
}

/// Is a number within the range of the samples, or beyond it by at most half of its width? Or within `slack` of the evaluator's?
fn fits(x: f64, samples: &[f64], zero_signs: bool, slack: f64) -> Fit {
    let first = samples[0];
    if samples.iter().any(|s| s.is_nan() != first.is_nan()) {
        return Fit::Unknown;
    }
    if first.is_nan() {
        return if x.is_nan() { Fit::Yes } else { Fit::No(first, first) };
    }
    if slack > 0.0 && (x - first).abs() <= slack {
        return Fit::Yes;
    }
    let low = samples.iter().copied().fold(first, f64::min);
    let high = samples.iter().copied().fold(first, f64::max);
    if low == high {
        let sign = first != 0.0 || !zero_signs || x.is_sign_negative() == first.is_sign_negative();
        return if x == first && sign { Fit::Yes } else { Fit::No(first, first) };
    }
    if !low.is_finite() || !high.is_finite() {
        return Fit::Unknown;
    }
    let more = (high - low) / 2.0;
    let inside = low - more <= x && x <= high + more;
    // A range that is wide relative to the number proves little.
    match inside {
        false => Fit::No(low - more, high + more),
        true if high - low > first.abs() / 8.0 + 1e-30 => Fit::Unknown,
        true => Fit::Yes,
    }
}
