//! The two code generators as tests use them: by name, and on one thread each where tests themselves run in parallel.
use numrsc::{
    compile::{Generator, Options},
    native::{self, Native},
};
use numrsc_ir::{
    Data, Func, Tensor, TensorType,
    kernel::interp::run::{Filled, Output, run},
};
use numrsc_passes::{Level, emit::Lowered};
use numrsc_runtime::Context;

pub const GENERATORS: [Generator; 2] = [Generator::Llvm, Generator::Cranelift];

/// For this machine, compiling on the thread that asks, at the level that `NUMRSC_LEVEL` names.
pub fn options(generator: Generator) -> Options {
    let level = match std::env::var("NUMRSC_LEVEL").as_deref() {
        Ok("0") => Level::O0,
        Ok("1") => Level::O1,
        Ok("3") => Level::O3,
        _ => Level::O2,
    };
    Options { generator, ..Options::default() }.with(|o| (o.level, o.jobs) = (level, 1))
}

/// Compiles by this generator and runs on two threads.
pub fn executor(generator: Generator) -> Native {
    Native { options: options(generator), threads: 2, timeout: None }
}

/// With a check of every access, which fails the run where one leaves its buffer.
pub fn sanitized(generator: Generator) -> Native {
    Native { options: options(generator).with(|o| o.sanitize = true), threads: 2, timeout: None }
}

/// Something that can be run many times.
pub type Run<'f> = dyn Fn(&[Data]) -> Result<Vec<Data>, String> + 'f;

/// Native code that keeps subnormal numbers, on two threads.
pub fn compiled(func: &Func, options: &Options) -> Result<Box<Run<'static>>, String> {
    let model = native::load(func, options)?;
    Ok(Box::new(move |inputs| {
        let mut context = Context::with_threads(&model, 2).map_err(|e| e.to_string())?;
        context.keep_subnormals(true);
        native::run_in(&model, &mut context, inputs)
    }))
}

/// Kernels of a function whose results are tensors, in the interpreter.
pub fn interpreted<'l>(func: &Func, lowered: &'l Lowered) -> Result<Box<Run<'l>>, String> {
    let tensor = |r| func.ty(r).as_tensor().cloned().map_err(|e| e.to_string());
    let types = func.results().iter().map(|r| tensor(*r)).collect::<Result<Vec<TensorType>, String>>()?;
    let mut weights = vec![0; lowered.weights.size() as usize];
    for piece in lowered.weights.pieces() {
        let bytes = piece.stored.to_vec();
        weights[piece.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    Ok(Box::new(move |inputs| {
        let tensors: Vec<&Tensor> = inputs.iter().map(|x| x.as_tensor()).collect::<Result<_, _>>()?;
        let shapes: Vec<Vec<i64>> = tensors.iter().map(|t| t.shape().iter().map(|n| *n as i64).collect()).collect();
        let inputs: Vec<(&[u8], &[i64])> = tensors.iter().zip(&shapes).map(|(t, s)| (&t.bytes()[..], &s[..])).collect();
        let outputs: Vec<Output> =
            types.iter().map(|t| Output { room: 0, ..Output::new(t.rank(), t.dtype.size()) }).collect();
        let filled = run(&lowered.module, &weights, &inputs, &outputs, 2).map_err(|e| e.to_string())?;
        let tensor = |(t, filled): (&TensorType, Filled)| {
            let shape = filled.sizes.iter().map(|n| *n as usize).collect();
            Tensor::new(t.dtype, shape, filled.bytes.into()).map(Data::Tensor)
        };
        types.iter().zip(filled).map(tensor).collect()
    }))
}
