//! The linked LLVM works: one small function becomes sensible code of three very different targets.

use inkwell::builder::BuilderError;
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::values::{BasicValue, FastMathFlags, FunctionValue};
use inkwell::{AddressSpace, IntPredicate};
use numrsc_codegen::llvm::{Output, emit};
use numrsc_codegen::{Error, Target};

/// `ptx_kernel` of LLVM's calling conventions: a function that a host can launch.
const PTX_KERNEL: u32 = 71;

fn target(triple: &str, cpu: &str) -> Target {
    Target { triple: triple.to_owned(), cpu: cpu.to_owned(), features: String::new() }
}

/// `for i in 0..n { y[i] = a * x[i] + y[i] }` with `0 < n`, contraction to fma allowed.
#[expect(unsafe_code, reason = "inkwell marks address arithmetic unsafe: LLVM does not check indices")]
fn saxpy(context: &Context) -> Result<(Module<'_>, FunctionValue<'_>), BuilderError> {
    let module = context.create_module("saxpy");
    let builder = context.create_builder();
    let (f32, i64, ptr) = (context.f32_type(), context.i64_type(), context.ptr_type(AddressSpace::default()));
    let signature = context.void_type().fn_type(&[i64.into(), f32.into(), ptr.into(), ptr.into()], false);
    let function = module.add_function("saxpy", signature, None);
    let params = function.get_params();
    let (n, a) = (params[0].into_int_value(), params[1].into_float_value());
    let (x, y) = (params[2].into_pointer_value(), params[3].into_pointer_value());

    let entry = context.append_basic_block(function, "entry");
    let body = context.append_basic_block(function, "body");
    let exit = context.append_basic_block(function, "exit");
    builder.position_at_end(entry);
    builder.build_unconditional_branch(body)?;

    builder.position_at_end(body);
    let i = builder.build_phi(i64, "i")?;
    let index = i.as_basic_value().into_int_value();
    // SAFETY: only instructions are built here, nothing is accessed.
    let (xi, yi) = unsafe { (builder.build_gep(f32, x, &[index], "xi")?, builder.build_gep(f32, y, &[index], "yi")?) };
    let product = builder.build_float_mul(a, builder.build_load(f32, xi, "")?.into_float_value(), "product")?;
    let sum = builder.build_float_add(product, builder.build_load(f32, yi, "")?.into_float_value(), "sum")?;
    for value in [product, sum] {
        let instruction = value.as_instruction_value().expect("computed at run time");
        instruction.set_fast_math_flags(FastMathFlags::AllowContract).expect("floating point");
    }
    builder.build_store(yi, sum)?;
    let next = builder.build_int_add(index, i64.const_int(1, false), "next")?;
    i.add_incoming(&[(&i64.const_zero(), entry), (&next, body)]);
    let more = builder.build_int_compare(IntPredicate::ULT, next, n, "more")?;
    builder.build_conditional_branch(more, body, exit)?;

    builder.position_at_end(exit);
    builder.build_return(None)?;
    Ok((module, function))
}

fn assembly(target: &Target, calling_convention: u32) -> String {
    let context = Context::create();
    let (module, function) = saxpy(&context).expect("the builder is positioned");
    function.set_call_conventions(calling_convention);
    let bytes = emit(&module, target, Output::Assembly).expect("saxpy compiles");
    String::from_utf8(bytes).expect("assembly is text")
}

fn assert_contains(assembly: &str, expected: &[&str]) {
    for text in expected {
        assert!(assembly.contains(text), "no `{text}` in:\n{assembly}");
    }
}

#[test]
fn x86_64_vectorises_with_fma() {
    let text = assembly(&target("x86_64-unknown-linux-gnu", "x86-64-v3"), 0);
    assert_contains(&text, &["saxpy:", "vfmadd", "ymm", "ret"]);
}

#[test]
fn aarch64_vectorises_with_fma() {
    let text = assembly(&target("aarch64-unknown-linux-gnu", ""), 0);
    assert_contains(&text, &["saxpy:", "fmla", "ldp\tq", "ret"]);
}

#[test]
fn nvptx_is_a_launchable_kernel() {
    let text = assembly(&target("nvptx64-nvidia-cuda", "sm_80"), PTX_KERNEL);
    assert_contains(&text, &[".target sm_80", ".visible .entry saxpy(", "fma.rn.f32", "ret;"]);
}

#[test]
fn every_object_target_writes_its_format() {
    let targets = [
        ("x86_64-unknown-linux-gnu", &b"\x7fELF"[..]),
        ("aarch64-unknown-linux-gnu", b"\x7fELF"),
        ("armv7-unknown-linux-gnueabihf", b"\x7fELF"),
        ("riscv64-unknown-linux-gnu", b"\x7fELF"),
        ("wasm32-unknown-unknown", b"\0asm"),
    ];
    for (triple, magic) in targets {
        let context = Context::create();
        let (module, _) = saxpy(&context).expect("the builder is positioned");
        let object = emit(&module, &target(triple, ""), Output::Object).expect("saxpy compiles");
        assert!(object.starts_with(magic), "{triple}: starts with {:?}", &object[..4]);
    }
}

#[test]
fn unknown_target_is_an_error() {
    let context = Context::create();
    let module = context.create_module("empty");
    let error = emit(&module, &target("abacus-unknown-none", ""), Output::Object).unwrap_err();
    assert!(matches!(&error, Error::Target { triple, .. } if triple == "abacus-unknown-none"), "{error}");
}

#[test]
fn invalid_module_is_an_error() {
    let context = Context::create();
    let module = context.create_module("broken");
    let function = module.add_function("no_return", context.void_type().fn_type(&[], false), None);
    context.append_basic_block(function, "entry");
    let error = emit(&module, &target("x86_64-unknown-linux-gnu", ""), Output::Object).unwrap_err();
    assert!(matches!(&error, Error::InvalidModule { module, .. } if module == "broken"), "{error}");
}

#[test]
fn nvptx_object_is_an_error() {
    let context = Context::create();
    let (module, _) = saxpy(&context).expect("the builder is positioned");
    let error = emit(&module, &target("nvptx64-nvidia-cuda", "sm_80"), Output::Object).unwrap_err();
    assert!(matches!(error, Error::Llvm { .. }), "{error}");
}
