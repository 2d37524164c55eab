//! Cranelift compiles a loop for this machine, and what it compiled runs.

use cranelift::prelude::{AbiParam, InstBuilder, IntCC, MemFlagsData, types};
use numrsc_codegen::Error;
use numrsc_codegen::cranelift::Jit;

/// `for i in 0..n { y[i] = a * x[i] + y[i] }` with `0 < n`.
type Saxpy = extern "C" fn(n: i64, a: f32, x: *const f32, y: *mut f32);

fn compile_saxpy(jit: &mut Jit) -> Result<*const u8, Error> {
    let mut signature = jit.signature();
    signature.params.extend([types::I64, types::F32, types::I64, types::I64].map(AbiParam::new));
    jit.compile("saxpy", signature, |b, params| {
        let &[n, a, x, y] = params else { unreachable!("four parameters") };
        let flags = MemFlagsData::trusted();
        let (body, exit) = (b.create_block(), b.create_block());
        let i = b.append_block_param(body, types::I64);
        let zero = b.ins().iconst(types::I64, 0);
        b.ins().jump(body, &[zero.into()]);

        b.switch_to_block(body);
        let offset = b.ins().ishl_imm_u(i, 2);
        let (xi, yi) = (b.ins().iadd(x, offset), b.ins().iadd(y, offset));
        let (xv, yv) = (b.ins().load(types::F32, flags, xi, 0), b.ins().load(types::F32, flags, yi, 0));
        let product = b.ins().fmul(a, xv);
        let sum = b.ins().fadd(product, yv);
        b.ins().store(flags, sum, yi, 0);
        let next = b.ins().iadd_imm_u(i, 1);
        let more = b.ins().icmp(IntCC::UnsignedLessThan, next, n);
        b.ins().brif(more, body, &[next.into()], exit, &[]);

        b.switch_to_block(exit);
        b.seal_all_blocks();
        b.ins().return_(&[]);
    })
}

#[test]
#[expect(unsafe_code, reason = "calls code that was compiled at run time")]
fn compiled_saxpy_runs() {
    let mut jit = Jit::new().expect("this machine is supported");
    let code = compile_saxpy(&mut jit).expect("saxpy compiles");
    // SAFETY: `code` was compiled with the signature of `Saxpy` and stays mapped.
    let saxpy: Saxpy = unsafe { std::mem::transmute(code) };

    let x: Vec<f32> = (0..5u8).map(f32::from).collect();
    let mut y = vec![1.0; x.len()];
    saxpy(5, 2.0, x.as_ptr(), y.as_mut_ptr());
    assert_eq!(y, [1.0, 3.0, 5.0, 7.0, 9.0]);
}

#[test]
fn redefinition_is_an_error() {
    let mut jit = Jit::new().expect("this machine is supported");
    compile_saxpy(&mut jit).expect("saxpy compiles");
    let error = compile_saxpy(&mut jit).unwrap_err();
    assert!(matches!(&error, Error::Cranelift { function, .. } if function == "saxpy"), "{error}");
}
