//! `--check`: the optimised model computes what the model computes, on random inputs.
use super::Options;
use crate::{
    compile::{self, Generator},
    conformance::{Settings, compare},
    error::{Error, Place, Problem, Result},
    native,
    onnx::{Model, import},
};
use numrsc_ir::{Data, Dim, Func, Tensor, Type};

/// Compile both by Cranelift and run them once. Sizes that are open are those of an example.
pub fn same_results(before: &Model, after: &Model, options: &Options) -> Result<()> {
    let func = import::import(before, &options.import)?;
    let other = import::import(after, &import::Options::default())?;
    let inputs = inputs(&func);
    let native = compile::Options { generator: Generator::Cranelift, ..compile::Options::default() };
    let failed = |message: String| Error::Model {
        file: after.file().to_owned(),
        problems: vec![Problem::new(Place::model(), format!("--check: {message}"))],
    };
    let run = |func: &Func| native::run(&native::load(func, &native)?, &inputs, 1);
    let (want, got) = (run(&func).map_err(failed)?, run(&other).map_err(failed)?);
    let settings = Settings { atol: 1e-4, ..Settings::default() };
    for ((name, want), got) in func.result_names.iter().zip(&want).zip(&got) {
        compare(got, want, &settings, false).map_err(|e| failed(format!("output `{name}`: {e}")))?;
    }
    Ok(())
}

/// Floats from 0 to 1, integers that are 0 or 1, and nothing in sequences.
fn inputs(func: &Func) -> Vec<Data> {
    let types: Vec<Type> = func.params().iter().map(|&p| func.ty(p).clone()).collect();
    let sizes = native::example_sizes(types.iter());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f64 / f64::from(1 << 24)
    };
    let input = |ty: Type| {
        let ty = ty.map_dims(&|d| d.subst(&|s| sizes.get(&s.to_string()).map(|&n| Dim::Const(n))));
        let Ok(tensor) = ty.as_tensor() else { return Data::Seq(vec![]) };
        let shape = tensor.static_shape().unwrap_or_default();
        let count = numrsc_ir::tensor::count(&shape).unwrap_or(0);
        if tensor.dtype == numrsc_ir::DType::Str {
            return Data::Tensor(
                Tensor::from_strings(shape, vec![String::new(); count]).expect("as many as the shape says"),
            );
        }
        let elems = match tensor.dtype.is_float() {
            true => numrsc_ir::Elems::Float((0..count).map(|_| random()).collect()),
            false => numrsc_ir::Elems::Int((0..count).map(|_| i128::from(random() > 0.5)).collect()),
        };
        Data::Tensor(Tensor::from_elems(tensor.dtype, shape, &elems))
    };
    types.into_iter().map(input).collect()
}
