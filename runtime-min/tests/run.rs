//! Running: inputs are checked and reach the code as they are, outputs come back, failures are told.
#![allow(unsafe_code, reason = "tests stand in for compiled code")]
mod common;
use common::*;
use numrsc_runtime::{
    Context, DType, Error, FixedContext, Model, Result, TensorMut, TensorRef,
    artifact::SizeSpec,
    context::{ElementSlots, RunContext},
};
use std::{mem::MaybeUninit, slice};

/// `y[n] = 2 * x[n]`; fails with 2 if n is 13.
unsafe extern "C" fn double(context: *mut RunContext) -> i32 {
    let run = Run(context);
    let n = sizes(run.input(0), 1)[0];
    if n == 13 {
        return 2;
    }
    let x = unsafe { slice::from_raw_parts(run.input(0).data as *const f32, n as usize) };
    let y = run.room(0, n * 4).cast::<f32>();
    if y.is_null() {
        return 1;
    }
    for (at, value) in x.iter().enumerate() {
        unsafe { y.add(at).write(2.0 * value) };
    }
    sizes(*run.output(0), 1)[0] = n;
    0
}

fn doubling() -> Model {
    let mut manifest = manifest();
    manifest.inputs = vec![tensor("x", DType::F32, &[-1])];
    manifest.outputs = vec![tensor("y", DType::F32, &[-1])];
    model(&manifest, double)
}

unsafe extern "C" fn succeed(_: *mut RunContext) -> i32 {
    0
}

/// What running a model of these inputs says of them; the code does nothing.
fn check(inputs: Vec<numrsc_runtime::artifact::PortSpec>, given: &[(&str, TensorRef<'_>)]) -> Result<()> {
    let mut manifest = manifest();
    manifest.inputs = inputs;
    let model = model(&manifest, succeed);
    model.run(&mut Context::new(&model)?, given)
}

#[track_caller]
fn refused(inputs: Vec<numrsc_runtime::artifact::PortSpec>, given: &[(&str, TensorRef<'_>)], message: &str) {
    assert_eq!(check(inputs, given).unwrap_err().to_string(), message);
}

#[test]
fn a_run_by_name_and_in_order() {
    let model = doubling();
    let mut context = Context::new(&model).unwrap();
    assert!(matches!(context.output(0), Err(Error::NoOutputs)));
    model.run(&mut context, &[("x", TensorRef::new(&[1.0f32, 2.0, 3.0], &[3]))]).unwrap();
    let y = context.output_by_name("y").unwrap();
    assert_eq!((y.name(), y.dtype(), y.shape(), y.len()), ("y", DType::F32, &[3][..], 3));
    assert_eq!(y.as_slice::<f32>().unwrap(), [2.0, 4.0, 6.0]);
    assert_eq!(y.bytes().unwrap().len(), 12);
    assert!(matches!(y.as_slice::<f64>(), Err(Error::ElementType { .. })));
    assert!(matches!(y.texts().map(|_| ()), Err(Error::ElementType { .. })));
    assert!(matches!(y.elements().map(|_| ()), Err(Error::Kind { .. })));
    model.run_in_order(&mut context, &[TensorRef::new(&[5.0f32], &[1])]).unwrap();
    assert_eq!(context.output(0).unwrap().as_slice::<f32>().unwrap(), [10.0]);
    assert!(matches!(context.output(1), Err(Error::OutputPosition { position: 1, count: 1 })));
    let error = context.output_by_name("z").unwrap_err();
    assert_eq!(error.to_string(), "the model has no output `z`; it has `y`");
}

#[test]
fn empty_tensors_have_an_address() {
    unsafe extern "C" fn read(context: *mut RunContext) -> i32 {
        // Compiled code may look at one element even where there is none.
        unsafe { (Run(context).input(0).data as *const u64).read() as i32 }
    }
    let mut manifest = manifest();
    manifest.inputs = vec![tensor("x", DType::F64, &[-1, -1])];
    let model = model(&manifest, read);
    let mut context = Context::new(&model).unwrap();
    model.run_in_order(&mut context, &[TensorRef::new::<f64>(&[], &[0, 5])]).unwrap();
    model.run_in_order(&mut context, &[TensorRef::new::<f64>(&[], &[1 << 40, 0])]).unwrap();
    // Absurd sizes next to a zero are refused, not multiplied.
    for absurd in [1 << 62, usize::MAX] {
        let error = model.run_in_order(&mut context, &[TensorRef::new::<f64>(&[], &[absurd, 0])]).unwrap_err();
        assert!(matches!(error, Error::TooLarge { .. }), "{absurd}: {error}");
    }
}

#[test]
fn wrong_names() {
    let ports = || vec![tensor("a", DType::F32, &[1]), tensor("b", DType::F32, &[1])];
    let x = TensorRef::new(&[0.0f32], &[1]);
    check(ports(), &[("a", x), ("b", x)]).unwrap();
    check(ports(), &[("b", x), ("a", x)]).unwrap();
    refused(ports(), &[("a", x), ("c", x)], "the model has no input `c`; it has `a`, `b`");
    refused(ports(), &[("a", x), ("b", x), ("c", x)], "the model has no input `c`; it has `a`, `b`");
    refused(ports(), &[("a", x)], "input `b` is missing");
    refused(ports(), &[], "input `a` is missing");
    refused(ports(), &[("b", x), ("b", x)], "input `b` is given twice");
    refused(ports(), &[("a", x), ("b", x), ("a", x)], "input `a` is given twice");
    let mut manifest = manifest();
    manifest.inputs = ports();
    let model = model(&manifest, succeed);
    let error = model.run_in_order(&mut Context::new(&model).unwrap(), &[x]).unwrap_err();
    assert_eq!(error.to_string(), "the model has 2 inputs (`a`, `b`), but 1 was given");
}

#[test]
fn wrong_tensors() {
    let port = || vec![tensor("x", DType::F32, &[-1, 3])];
    let data = [0.0f32; 6];
    check(port(), &[("x", TensorRef::new(&data, &[2, 3]))]).unwrap();
    check(port(), &[("x", TensorRef::raw(DType::F32, &[], &[0, 3]))]).unwrap();
    refused(port(), &[("x", TensorRef::new(&[0.0f64; 6], &[2, 3]))], "`x` has elements of type f32, but f64 was given");
    refused(port(), &[("x", TensorRef::new(&data, &[6]))], "`x` has 2 axes, but 1 was given");
    refused(port(), &[("x", TensorRef::new(&data, &[3, 2]))], "axis 1 of `x` has size 3, but 2 was given");
    refused(port(), &[("x", TensorRef::new(&data, &[1, 3]))], "the shape given for `x` has 3 elements, its data has 6");
    refused(
        port(),
        &[("x", TensorRef::raw(DType::F32, &[0; 23], &[2, 3]))],
        "the shape given for `x` has 24 bytes, its data has 23",
    );
    for huge in [usize::MAX, usize::MAX / 3, usize::MAX / 12, isize::MAX as usize / 12 + 1] {
        refused(port(), &[("x", TensorRef::new(&data, &[huge, 3]))], "the shape given for `x` is too large for memory");
    }
    refused(port(), &[("x", TensorRef::sequence(&[]))], "`x` is a tensor, but a sequence was given");
    refused(port(), &[("x", TensorRef::texts(&[], &[0, 3]))], "`x` has elements of type f32, but str was given");
    let bytes = [0u64; 4];
    let shifted = unsafe { slice::from_raw_parts(bytes.as_ptr().cast::<u8>().add(2), 24) };
    refused(
        port(),
        &[("x", TensorRef::raw(DType::F32, shifted, &[2, 3]))],
        "the data of `x` must start at a multiple of 4 bytes",
    );
    refused(
        vec![tensor("x", DType::Str, &[1])],
        &[("x", TensorRef::raw(DType::Str, &[0; 8], &[1]))],
        "`x` is a tensor of strings, but raw bytes was given",
    );
    // Scalars, and types that Rust does not have.
    check(vec![tensor("x", DType::I64, &[])], &[("x", TensorRef::new(&[7i64], &[]))]).unwrap();
    check(vec![tensor("x", DType::I4, &[3])], &[("x", TensorRef::raw(DType::I4, &[1, 2, 3], &[3]))]).unwrap();
    check(vec![tensor("x", DType::Bool, &[2])], &[("x", TensorRef::new(&[true, false], &[2]))]).unwrap();
}

#[test]
fn wrong_sequences() {
    let port = || vec![sequence("s", DType::I64, 1, Some(&[2]))];
    let pair = TensorRef::new(&[1i64, 2], &[2]);
    check(port(), &[("s", TensorRef::sequence(&[]))]).unwrap();
    check(port(), &[("s", TensorRef::sequence(&[pair, pair]))]).unwrap();
    refused(port(), &[("s", pair)], "`s` is a sequence, but a tensor was given");
    let single = TensorRef::new(&[1i64], &[1]);
    refused(port(), &[("s", TensorRef::sequence(&[pair, single]))], "axis 0 of `s[1]` has size 2, but 1 was given");
    let nested = TensorRef::sequence(&[]);
    refused(port(), &[("s", TensorRef::sequence(&[nested]))], "`s[0]` is a tensor, but a sequence was given");
    let deep = || vec![sequence("s", DType::I64, 2, None)];
    let (first, second) = ([pair], [single, TensorRef::new(&[0u8], &[1])]);
    let lists = [TensorRef::sequence(&first), TensorRef::sequence(&second)];
    refused(deep(), &[("s", TensorRef::sequence(&lists))], "`s[1][1]` has elements of type i64, but u8 was given");
    let many_axes = [TensorRef::new(&[0i64], &[1; 9])];
    refused(
        deep(),
        &[("s", TensorRef::sequence(&[TensorRef::sequence(&many_axes)]))],
        "`s[0][0]` has 8 axes, but 9 were given",
    );
}

#[test]
fn failures_have_their_message() {
    let model = doubling();
    let mut context = Context::new(&model).unwrap();
    let error = model.run(&mut context, &[("x", TensorRef::new(&[0.0f32; 13], &[13]))]).unwrap_err();
    assert!(matches!(error, Error::Failed { code: 2, .. }));
    assert_eq!(error.to_string(), "the second failure");
    assert!(matches!(context.output(0), Err(Error::NoOutputs)));
    model.run(&mut context, &[("x", TensorRef::new(&[1.0f32], &[1]))]).unwrap();

    unsafe extern "C" fn unknown(_: *mut RunContext) -> i32 {
        77
    }
    let model = common::model(&manifest(), unknown);
    let error = model.run(&mut Context::new(&model).unwrap(), &[]).unwrap_err();
    assert_eq!(error.to_string(), "the compiled model failed with code 77");
}

#[test]
fn a_context_is_for_one_model() {
    let (model, other) = (doubling(), doubling());
    let mut context = Context::new(&model).unwrap();
    let error = other.run(&mut context, &[("x", TensorRef::new(&[1.0f32], &[1]))]).unwrap_err();
    assert!(matches!(error, Error::OtherModel));
    model.clone().run(&mut context, &[("x", TensorRef::new(&[1.0f32], &[1]))]).unwrap();
}

#[test]
fn outputs_go_to_buffers() {
    let model = doubling();
    let mut context = Context::new(&model).unwrap();
    let x = [("x", TensorRef::new(&[1.0f32, 2.0], &[2]))];
    let mut buffer = [0.0f32; 4];
    model.run_into(&mut context, &x, &mut [("y", TensorMut::new(&mut buffer))]).unwrap();
    assert_eq!(buffer, [2.0, 4.0, 0.0, 0.0]);
    assert_eq!(context.output_shape(0).unwrap(), [2]);
    assert!(matches!(context.output(0), Err(Error::OutputElsewhere { .. })));

    let error = model.run_into(&mut context, &x, &mut [("y", TensorMut::new(&mut buffer[..1]))]).unwrap_err();
    assert_eq!(error.to_string(), "output `y` needs 8 bytes, the buffer given for it has 4");
    assert_eq!(buffer[0], 2.0);
    let error = model.run_into(&mut context, &x, &mut [("y", TensorMut::new(&mut [0i32; 4]))]).unwrap_err();
    assert!(matches!(error, Error::ElementType { .. }), "{error}");
    let error = model.run_into(&mut context, &x, &mut [("z", TensorMut::new(&mut buffer))]).unwrap_err();
    assert!(matches!(error, Error::UnknownName { what: "output", .. }), "{error}");
    let (a, b) = buffer.split_at_mut(2);
    let error =
        model.run_into(&mut context, &x, &mut [("y", TensorMut::new(a)), ("y", TensorMut::new(b))]).unwrap_err();
    assert!(matches!(error, Error::DuplicateName { what: "output", .. }), "{error}");
    let mut bytes = [0u64; 4];
    let shifted = unsafe { slice::from_raw_parts_mut(bytes.as_mut_ptr().cast::<u8>().add(1), 16) };
    let error = model.run_into(&mut context, &x, &mut [("y", TensorMut::raw(DType::F32, shifted))]).unwrap_err();
    assert!(matches!(error, Error::Alignment { .. }), "{error}");
    // Without a buffer again.
    model.run(&mut context, &x).unwrap();
    assert_eq!(context.output(0).unwrap().as_slice::<f32>().unwrap(), [2.0, 4.0]);
}

/// The output is the input itself, which compiled code should not, but may say.
unsafe extern "C" fn identity(context: *mut RunContext) -> i32 {
    let run = Run(context);
    run.output(0).data = run.input(0).data;
    sizes(*run.output(0), 1)[0] = sizes(run.input(0), 1)[0];
    0
}

#[test]
fn outputs_do_not_lie_in_inputs() {
    let mut manifest = manifest();
    manifest.inputs = vec![tensor("x", DType::U8, &[-1])];
    manifest.outputs = vec![tensor("y", DType::U8, &[-1])];
    let model = model(&manifest, identity);
    let mut context = Context::new(&model).unwrap();
    let mut data = vec![1u8, 2, 3];
    model.run_in_order(&mut context, &[TensorRef::new(&data, &[3])]).unwrap();
    data.fill(9);
    assert_eq!(context.output(0).unwrap().as_slice::<u8>().unwrap(), [1, 2, 3]);
    let mut buffer = [0u8; 3];
    let x = [("x", TensorRef::new(&data, &[3]))];
    model.run_into(&mut context, &x, &mut [("y", TensorMut::new(&mut buffer))]).unwrap();
    assert_eq!(buffer, [9, 9, 9]);
}

#[test]
fn what_code_says_of_outputs_is_checked() {
    unsafe extern "C" fn negative(context: *mut RunContext) -> i32 {
        sizes(*Run(context).output(0), 2)[1] = -1;
        0
    }
    unsafe extern "C" fn huge(context: *mut RunContext) -> i32 {
        sizes(*Run(context).output(0), 2).fill(1 << 40);
        0
    }
    unsafe extern "C" fn nothing(context: *mut RunContext) -> i32 {
        sizes(*Run(context).output(0), 2).fill(1);
        0
    }
    unsafe extern "C" fn two(context: *mut RunContext) -> i32 {
        let run = Run(context);
        unsafe { run.room(0, 1).write(2) };
        sizes(*run.output(0), 2).fill(1);
        0
    }
    let mut manifest = manifest();
    manifest.outputs = vec![tensor("y", DType::Bool, &[-1, -1])];
    for entry in [negative, huge, nothing] {
        let model = model(&manifest, entry);
        let error = model.run(&mut Context::new(&model).unwrap(), &[]).unwrap_err();
        assert!(matches!(error, Error::Internal { .. }), "{error}");
    }
    let model = model(&manifest, two);
    let mut context = Context::new(&model).unwrap();
    model.run(&mut context, &[]).unwrap();
    assert!(matches!(context.output(0).unwrap().as_slice::<bool>(), Err(Error::Internal { .. })));
    assert_eq!(context.output(0).unwrap().bytes().unwrap(), [2]);
    let mut buffer = [false];
    model.run_into(&mut context, &[], &mut [("y", TensorMut::new(&mut buffer))]).unwrap();
    assert_eq!(buffer, [true]);
}

/// Strings in reverse order.
unsafe extern "C" fn reverse(context: *mut RunContext) -> i32 {
    let run = Run(context);
    let n = sizes(run.input(0), 1)[0] as usize;
    let texts = run.input(0).data as *const u64;
    let out = run.room(0, n as i64 * 8).cast::<u64>();
    for at in 0..n {
        unsafe { out.add(at).write(texts.add(n - 1 - at).read()) };
    }
    sizes(*run.output(0), 1)[0] = n as i64;
    0
}

#[test]
fn strings_go_through() {
    let mut manifest = manifest();
    manifest.inputs = vec![tensor("x", DType::Str, &[-1])];
    manifest.outputs = vec![tensor("y", DType::Str, &[-1])];
    let model = model(&manifest, reverse);
    let mut context = Context::new(&model).unwrap();
    {
        let texts = ["".to_string(), "zwölf Boxkämpfer".to_string(), "c".to_string()];
        model.run_in_order(&mut context, &[TensorRef::strings(&texts, &[3])]).unwrap();
    }
    let y = context.output(0).unwrap();
    assert_eq!(y.texts().unwrap().collect::<Vec<_>>(), ["c", "zwölf Boxkämpfer", ""]);
    assert!(matches!(y.bytes(), Err(Error::Kind { .. })));
    model.run_in_order(&mut context, &[TensorRef::texts(&["a", "b"], &[2])]).unwrap();
    assert_eq!(context.output(0).unwrap().texts().unwrap().collect::<Vec<_>>(), ["b", "a"]);
    model.run_in_order(&mut context, &[TensorRef::byte_texts(&[b"\xff"], &[1])]).unwrap();
    assert!(matches!(context.output(0).unwrap().texts().map(|_| ()), Err(Error::NotUtf8 { .. })));
    assert_eq!(context.output(0).unwrap().byte_texts().unwrap().next().unwrap(), b"\xff");
    model.run_in_order(&mut context, &[TensorRef::texts(&[], &[0])]).unwrap();
    assert_eq!(context.output(0).unwrap().texts().unwrap().len(), 0);
    let mut buffer = [0u64; 1];
    let x = [("x", TensorRef::texts(&["a"], &[1]))];
    let error = model.run_into(&mut context, &x, &mut [("y", TensorMut::new(&mut buffer))]).unwrap_err();
    assert!(matches!(error, Error::Kind { .. }), "{error}");
}

/// A sequence comes out as it went in; its elements are still those of the caller.
unsafe extern "C" fn pass(context: *mut RunContext) -> i32 {
    let run = Run(context);
    run.output(0).data = run.input(0).data;
    0
}

#[test]
fn sequences_go_through() {
    let mut manifest = manifest();
    manifest.inputs = vec![sequence("x", DType::I32, 1, None)];
    manifest.outputs = vec![sequence("y", DType::I32, 1, None)];
    let model = model(&manifest, pass);
    let mut context = Context::new(&model).unwrap();
    {
        let (a, b) = (vec![1i32, 2, 3, 4, 5, 6], vec![7i32]);
        let elements = [TensorRef::new(&a, &[2, 3]), TensorRef::new(&b, &[]), TensorRef::new::<i32>(&[], &[4, 0])];
        model.run_in_order(&mut context, &[TensorRef::sequence(&elements)]).unwrap();
    }
    let y = context.output(0).unwrap();
    assert!(y.is_sequence());
    assert_eq!(y.len(), 3);
    assert!(matches!(y.as_slice::<i32>(), Err(Error::Kind { .. })));
    let elements: Vec<_> = y.elements().unwrap().collect();
    assert_eq!((elements[0].shape(), elements[0].as_slice::<i32>().unwrap()), (&[2, 3][..], &[1, 2, 3, 4, 5, 6][..]));
    assert_eq!((elements[1].shape(), elements[1].as_slice::<i32>().unwrap()), (&[][..], &[7][..]));
    assert_eq!((elements[2].shape(), elements[2].as_slice::<i32>().unwrap()), (&[4, 0][..], &[][..]));
    model.run_in_order(&mut context, &[TensorRef::sequence(&[])]).unwrap();
    assert_eq!(context.output(0).unwrap().elements().unwrap().len(), 0);
}

#[test]
fn nested_sequences_go_through() {
    let mut manifest = manifest();
    manifest.inputs = vec![sequence("x", DType::Str, 2, None)];
    manifest.outputs = vec![sequence("y", DType::Str, 2, None)];
    let model = model(&manifest, pass);
    let mut context = Context::new(&model).unwrap();
    let inner = [TensorRef::texts(&["a", "b"], &[2]), TensorRef::texts(&["c"], &[1, 1])];
    let outer = [TensorRef::sequence(&inner), TensorRef::sequence(&[])];
    model.run_in_order(&mut context, &[TensorRef::sequence(&outer)]).unwrap();
    let y: Vec<_> = context.output(0).unwrap().elements().unwrap().collect();
    assert_eq!(y.len(), 2);
    let first: Vec<_> = y[0].elements().unwrap().collect();
    assert_eq!(first[0].texts().unwrap().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(first[1].texts().unwrap().collect::<Vec<_>>(), ["c"]);
    assert_eq!(y[1].len(), 0);
}

#[test]
fn wrong_sequences_of_code_are_told() {
    unsafe extern "C" fn wrong_rank(context: *mut RunContext) -> i32 {
        let run = Run(context);
        let block = run.alloc(8 + size_of::<ElementSlots>() as i64);
        unsafe {
            block.write_bytes(0, 8 + size_of::<ElementSlots>());
            block.cast::<i64>().write(1);
            block.cast::<i64>().add(2).write(9);
        }
        run.output(0).data = block as u64;
        0
    }
    let mut manifest = manifest();
    manifest.outputs = vec![sequence("y", DType::F32, 1, None)];
    for entry in [wrong_rank, succeed] {
        let model = model(&manifest, entry);
        let error = model.run(&mut Context::new(&model).unwrap(), &[]).unwrap_err();
        assert!(matches!(error, Error::Internal { .. }), "{error}");
    }
}

/// Asks for as many bytes of arena and then of heap as its input says.
unsafe extern "C" fn ask(context: *mut RunContext) -> i32 {
    let run = Run(context);
    let bytes = unsafe { slice::from_raw_parts(run.input(0).data as *const i64, 2) };
    let arena = run.arena(bytes[0]);
    if arena.is_null() {
        return 1;
    }
    let told = unsafe { ((*context).arena, (*context).arena_bytes) };
    if told.0 != arena as u64 || told.1 < bytes[0] as u64 || !arena.addr().is_multiple_of(64) {
        return 2;
    }
    unsafe { arena.write_bytes(0xff, bytes[0] as usize) };
    let block = run.alloc(bytes[1]);
    if block.is_null() {
        return 1;
    }
    unsafe { block.write_bytes(0xff, bytes[1] as usize) };
    if !block.addr().is_multiple_of(64) {
        return 2;
    }
    run.free(block);
    run.free(std::ptr::null_mut());
    0
}

#[test]
fn memory_is_given_or_refused() {
    let mut manifest = manifest();
    manifest.inputs = vec![tensor("bytes", DType::I64, &[2])];
    manifest.arena = SizeSpec::Formula("n".into());
    let model = model(&manifest, ask);
    let mut context = Context::new(&model).unwrap();
    let mut run = |bytes: [i64; 2]| model.run_in_order(&mut context, &[TensorRef::new(&bytes, &[2])]);
    for bytes in [[0, 0], [1, 1], [100_000, 5], [10, 1 << 20], [100_001, 0]] {
        run(bytes).unwrap();
    }
    for bytes in [[i64::MAX, 1], [1, i64::MAX], [-1, 1], [1, -1], [1 << 62, 1], [1, 1 << 61]] {
        let error = run(bytes).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{bytes:?}: {error}");
    }
    run([4096, 4096]).unwrap();
    assert!(context.memory_bytes() > 4096);
    context.trim();
    assert!(context.memory_bytes() < 200_000);

    manifest.arena = SizeSpec::Fixed(1 << 62);
    let model = common::model(&manifest, ask);
    assert!(matches!(Context::new(&model), Err(Error::OutOfMemory { bytes }) if bytes == 1 << 62));
}

#[test]
fn a_context_within_a_buffer() {
    let model = doubling();
    let mut memory = [MaybeUninit::uninit(); 1024];
    let mut context = FixedContext::in_memory(&model, &mut memory).unwrap();
    let x = [1.0f32; 300];
    for _ in 0..100 {
        model.run_in_order(&mut context, &[TensorRef::new(&x[..100], &[100])]).unwrap();
        assert_eq!(context.output(0).unwrap().as_slice::<f32>().unwrap(), [2.0; 100]);
    }
    let error = model.run_in_order(&mut context, &[TensorRef::new(&x, &[300])]).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { bytes: 1200 }), "{error}");
    let mut buffer = [0.0f32; 300];
    let outputs = &mut [("y", TensorMut::new(&mut buffer))];
    model.run_in_order_into(&mut context, &[TensorRef::new(&x, &[300])], outputs).unwrap();
    assert_eq!(buffer, [2.0; 300]);
    assert!(matches!(
        FixedContext::in_memory(&model, &mut [MaybeUninit::uninit(); 70]),
        Err(Error::OutOfMemory { .. })
    ));
}

#[test]
fn models_and_contexts_may_go_to_other_threads() {
    fn both<T: Send + Sync>(value: T) -> T {
        value
    }
    fn sent<T: Send>(value: T) -> T {
        value
    }
    let model = both(doubling());
    let context = sent(Context::new(&model).unwrap());
    std::thread::scope(|scope| {
        for (n, mut context) in [context, Context::new(&model).unwrap()].into_iter().enumerate() {
            let model = &model;
            scope.spawn(move || {
                for _ in 0..1000 {
                    model.run_in_order(&mut context, &[TensorRef::new(&[n as f32], &[1])]).unwrap();
                    assert_eq!(context.output(0).unwrap().as_slice::<f32>().unwrap(), [2.0 * n as f32]);
                }
            });
        }
    });
}
