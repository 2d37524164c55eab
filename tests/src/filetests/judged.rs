//! Does a pass change what comes out? The evaluator says.
use super::inputs::{COUNT, Numbers, inputs};
use crate::{
    judge::{self, Count},
    native::{GENERATORS, Run, compiled, interpreted},
};
use numrsc::compile::Options;
use numrsc_ir::{DType, Data, Elems, Func, Op, Tensor, Value, eval::eval};
use numrsc_passes::{
    Context,
    pipeline::{Changes, Pass, Stage},
};

/// Roundings that may come together in one result.
const ROUNDINGS: f64 = 4.0;

/// A pass made this of a function: the values are the same, or differ by no more than the pass may change them.
pub(super) fn stage(
    pass: &Pass,
    cx: &Context,
    before: &Func,
    after: &Stage<'_>,
    numbers: Numbers,
    seed: u64,
) -> Result<(), String> {
    let exact = pass.keeps_bits(cx);
    let run: Box<Run<'_>> = match after {
        Stage::Tensor(after) => {
            let types = |f: &Func| f.results().iter().map(|r| f.ty(*r).to_string()).collect::<Vec<_>>();
            if types(before).len() != types(after).len() {
                return Err(format!("{} results, not {}", types(after).len(), types(before).len()));
            }
            Box::new(|inputs: &[Data]| eval(after, inputs).map_err(|e| e.to_string()))
        }
        Stage::Kernel(lowered) => interpreted(before, lowered)?,
    };
    let roundings = ROUNDINGS * unit(before)
        + match pass.changes {
            Changes::Within(error) => error,
            Changes::Nothing | Changes::Rounding(_) => 0.0,
        };
    all(before, numbers, seed, &|inputs, seed| match (exact, run(inputs)) {
        (true, Ok(got)) => match eval(before, inputs) {
            Ok(expected) => same_bits(&expected, &got),
            // What fails may also not fail any more, where nobody needs it.
            Err(_) => Ok(Count { compared: 1, skipped: 0 }),
        },
        (_, got) => judge::fused_within(before, inputs, got, roundings * magnitude(before, inputs), seed),
    })
}

/// Half a unit in the last place of the shortest floats of a function, relative to a number.
fn unit(func: &Func) -> f64 {
    let of = |dtype| match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => 1.0 / 1024.0,
        _ => 1.0 / 128.0,
    };
    let floats = func.nodes().iter().filter_map(|n| n.ty.as_tensor().ok()).map(|t| t.dtype).filter(|d| d.is_float());
    floats.map(of).fold(0.0, f64::max) / 2.0
}

/// The largest number that a function gives for these inputs, or for their magnitudes and those of its constants: what errors
/// of its results are relative to.
fn magnitude(func: &Func, inputs: &[Data]) -> f64 {
    let positive: Vec<Data> = inputs
        .iter()
        .map(|data| match data {
            Data::Tensor(t) => Data::Tensor(magnitudes(t)),
            Data::Seq(_) | Data::Tuple(_) => data.clone(),
        })
        .collect();
    let runs = [eval(func, inputs).ok(), of_magnitudes(func).and_then(|f| eval(&f, &positive).ok())];
    let numbers = runs.into_iter().flatten().flatten().flat_map(|data| match data {
        Data::Tensor(t) if t.dtype().is_float() => t.to_f64s(),
        Data::Tensor(_) | Data::Seq(_) | Data::Tuple(_) => vec![],
    });
    numbers.filter(|x| x.is_finite()).map(f64::abs).fold(0.0, f64::max)
}

/// The function with the magnitudes of its constants.
fn of_magnitudes(func: &Func) -> Option<Func> {
    let mut out = func.named_alike();
    let mut placed: Vec<Value> = vec![];
    for node in func.nodes() {
        let args: Vec<Value> = node.args.iter().map(|a| placed[a.0 as usize]).collect();
        let made = match &node.op {
            Op::Param { .. } => out.param(node.ty.clone()),
            Op::Const { value } => out.push(Op::Const { value: magnitudes(value) }, &[]),
            op => out.push(op.clone(), &args),
        };
        placed.push(made.ok()?);
    }
    out.set_results(func.results().iter().map(|r| placed[r.0 as usize]).collect());
    Some(out)
}

fn magnitudes(t: &Tensor) -> Tensor {
    if !t.dtype().is_float() {
        return t.clone();
    }
    let all = t.to_f64s().into_iter().map(f64::abs).collect();
    Tensor::from_elems(t.dtype(), t.shape().to_vec(), &Elems::Float(all))
}

/// Native code of all generators, by the values of its results and of every node by itself.
pub(super) fn natively(func: &Func, cx: &Context, numbers: Numbers, seed: u64) -> Result<(), String> {
    let nodes = judge::with_all_results(func, true);
    for generator in GENERATORS {
        let options = Options { generator, passes: cx.options.clone(), ..Options::default() }.with(|o| o.jobs = 1);
        let failed = |e: String| format!("{generator:?}: {e}");
        let run = compiled(func, &options).map_err(failed)?;
        let slack = ROUNDINGS * unit(func);
        all(func, numbers, seed, &|inputs, seed| {
            judge::fused_within(func, inputs, run(inputs), slack * magnitude(func, inputs), seed)
        })
        .map_err(failed)?;
        let run = compiled(&nodes, &options).map_err(failed)?;
        all(&nodes, numbers, seed, &|inputs, seed| judge::local(&nodes, inputs, run(inputs), seed)).map_err(failed)?;
    }
    Ok(())
}

/// Judges a run with these inputs, which were made of a seed.
type JudgeInputs<'j> = dyn Fn(&[Data], u64) -> Result<Count, String> + 'j;

/// Judge all inputs of a case. If nothing could be compared, nothing is proven.
fn all(func: &Func, numbers: Numbers, seed: u64, judge: &JudgeInputs<'_>) -> Result<(), String> {
    let mut count = Count::default();
    for i in 0..COUNT {
        let seed = seed * COUNT + i;
        let inputs = inputs(func, seed, numbers)?;
        count.add(judge(&inputs, seed).map_err(|e| format!("inputs of seed {seed}: {e}"))?);
    }
    if count.compared == 0 {
        return Err("nothing could be compared".into());
    }
    Ok(())
}

/// The same types, sizes and bits, where one NaN is like another.
fn same_bits(expected: &[Data], got: &[Data]) -> Result<Count, String> {
    if expected.len() != got.len() {
        return Err(format!("{} results, not {}", got.len(), expected.len()));
    }
    for (i, (expected, got)) in expected.iter().zip(got).enumerate() {
        difference(expected, got).map_err(|e| format!("result {i}: {e}"))?;
    }
    Ok(Count { compared: expected.len().max(1), skipped: 0 })
}

fn difference(expected: &Data, got: &Data) -> Result<(), String> {
    match (expected, got) {
        (Data::Tensor(x), Data::Tensor(y)) => {
            if (x.dtype(), x.shape()) != (y.dtype(), y.shape()) {
                return Err(format!("{}{:?}, not {}{:?}", y.dtype(), y.shape(), x.dtype(), x.shape()));
            }
            let at = match (x.elems(), y.elems()) {
                (Elems::Float(x), Elems::Float(y)) => {
                    let same = |x: f64, y: f64| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
                    (0..x.len()).find(|&i| !same(x[i], y[i])).map(|i| format!("{:?} at {i}, not {:?}", y[i], x[i]))
                }
                (Elems::Int(x), Elems::Int(y)) => {
                    (0..x.len()).find(|&i| x[i] != y[i]).map(|i| format!("{} at {i}, not {}", y[i], x[i]))
                }
                _ => (x.strings() != y.strings()).then(|| format!("{:?}, not {:?}", y.strings(), x.strings())),
            };
            at.map_or(Ok(()), Err)
        }
        (Data::Seq(x), Data::Seq(y)) if x.len() == y.len() => x.iter().zip(y).try_for_each(|(x, y)| difference(x, y)),
        _ => Err("another kind of value".into()),
    }
}
