//! Sizes of 0 in every kernel: tests of the ONNX suite with a size of an input made 0 wherever it occurs among the inputs, on the
//! evaluator and on native code, which must agree: equal results, or refused by both.
use numrsc::{
    compile::Generator,
    conformance::{self, Executor, Reference, Settings, compare},
    onnx::{
        self, Model, import,
        proto::{DimensionValue, TypeValue},
    },
};
use numrsc_ir::{Data, Elems, Tensor};
use numrsc_tests::{corpus, native};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// The sizes of the inputs, other than 0: each is tried.
fn sizes(inputs: &[Data]) -> BTreeSet<usize> {
    let shapes = inputs.iter().filter_map(|d| match d {
        Data::Tensor(t) => Some(t.shape()),
        _ => None,
    });
    shapes.flatten().copied().filter(|&n| n != 0).collect()
}

/// A model whose inputs have size 0 where they had this one, and such inputs.
fn without(path: &Path, inputs: &[Data], size: usize) -> Option<(Model, Vec<Data>)> {
    let mut model = onnx::load(path).ok()?;
    let stored: BTreeSet<String> = model.graph().initializer.iter().map(|t| t.name.clone()).collect();
    for output in &mut model.graph_mut().output {
        if let Some(TypeValue::Tensor(t)) = output.r#type.as_mut().and_then(|t| t.value.as_mut()) {
            t.shape = None;
        }
    }
    for input in model.graph_mut().input.iter_mut().filter(|i| !stored.contains(&i.name)) {
        let Some(TypeValue::Tensor(t)) = input.r#type.as_mut().and_then(|t| t.value.as_mut()) else { continue };
        for dim in t.shape.iter_mut().flat_map(|s| &mut s.dim) {
            if dim.value == Some(DimensionValue::Value(size as i64)) {
                dim.value = Some(DimensionValue::Value(0));
            }
        }
    }
    let empty = |d: &Data| match d {
        Data::Tensor(t) if t.shape().contains(&size) => {
            let none = if t.dtype().is_float() { Elems::Float(vec![]) } else { Elems::Int(vec![]) };
            let shape = t.shape().iter().map(|&n| if n == size { 0 } else { n }).collect();
            match t.strings() {
                Some(_) => Tensor::from_strings(shape, vec![]).ok().map(Data::Tensor),
                None => Some(Data::Tensor(Tensor::from_elems(t.dtype(), shape, &none))),
            }
        }
        other => Some(other.clone()),
    };
    Some((model, inputs.iter().map(empty).collect::<Option<_>>()?))
}

/// What differs between the evaluator and native code, and how many sizes there were for which there are results.
fn judge(folder: &Path) -> Result<usize, String> {
    let path = folder.join("model.onnx");
    let Ok(whole) = onnx::load(&path) else { return Ok(0) };
    let Ok(inputs) = conformance::load_inputs(&folder.join("test_data_set_0"), &whole) else { return Ok(0) };
    let settings = Settings::of(folder)?;
    let random = whole
        .graph()
        .node
        .iter()
        .any(|n| ["Random", "Multinomial", "Bernoulli", "Dropout"].iter().any(|part| n.op_type.starts_with(part)));
    let mut ran = 0;
    for size in sizes(&inputs) {
        let Some((model, inputs)) = without(&path, &inputs, size) else { continue };
        // What does not fit such a size is refused.
        let Ok(func) = import::import(&model, &import::Options::default()) else { continue };
        let at = |e: String| format!("without {size}: {e}");
        match (Reference.run(&func, &inputs), native::executor(Generator::Llvm).run(&func, &inputs)) {
            (Ok(want), Ok(got)) => {
                ran += 1;
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    compare(got, want, &settings, random).map_err(|e| at(format!("output {i}: {e}")))?;
                }
            }
            (Err(_), Err(_)) => {}
            (Ok(_), Err(e)) => return Err(at(format!("the evaluator has results, native code: {e}"))),
            (Err(e), Ok(_)) => return Err(at(format!("native code has results, the evaluator: {e}"))),
        }
    }
    Ok(ran)
}

/// One test for each operator, attributes and kinds of inputs aside: tests are named after them.
fn chosen(folders: Vec<PathBuf>) -> Vec<PathBuf> {
    if std::env::var_os("NUMRSC_LONG").is_some() {
        return folders;
    }
    let mut seen = BTreeSet::new();
    let kind = |folder: &Path| {
        let model = onnx::load(&folder.join("model.onnx")).ok()?;
        let ops: Vec<String> = model.graph().node.iter().map(|n| n.op_type.clone()).collect();
        (ops.len() == 1).then_some(ops)
    };
    folders.into_iter().filter(|f| kind(f).is_some_and(|ops| seen.insert(ops))).collect()
}

#[test]
fn sizes_of_zero_are_the_same_everywhere() {
    let mut folders = Vec::new();
    conformance::find_folders(&corpus::fetch("suite").join("onnx-suite/node"), &mut folders);
    let folders = chosen(folders);
    let ran = std::sync::atomic::AtomicUsize::new(0);
    let results = conformance::run_all(&folders, None, |folder| {
        ran.fetch_add(judge(folder)?, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    });
    let failures: Vec<String> = (folders.iter().zip(results))
        .filter_map(|(f, r)| r.err().map(|e| format!("{}: {e}", conformance::name(f))))
        .collect();
    let ran = ran.into_inner();
    println!("{} tests, {ran} runs with results, {} failures", folders.len(), failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(ran > folders.len() / 2, "{ran} runs of {} tests", folders.len());
}
