//! Comparison of strings. A string is the address of its length followed by its bytes.
use crate::code::Code;
use numrsc_ir::{
    ScalarFn,
    kernel::{Convert, Elem, Ty, V, build::Builder},
};

/// Where the bytes begin.
const HEADER: i64 = 8;

/// `eq`, `lt` or `le` of two addresses: the first differing byte decides, then the length.
pub(super) fn compare(b: &mut Builder, f: ScalarFn, x: V, y: V) -> V {
    let zero = b.i64(0);
    let (x, y) = (b.convert(Convert::Pointer, x, Elem::Ptr), b.convert(Convert::Pointer, y, Elem::Ptr));
    let (x_length, y_length) = (b.load(Ty::I64, x, zero), b.load(Ty::I64, y, zero));
    let header = b.i64(HEADER);
    let (x, y) = (b.offset(x, header), b.offset(y, header));
    let common = b.binary(numrsc_ir::kernel::Binary::SMin, x_length, y_length);
    // Carried: the position and the difference of the bytes before it.
    let outs = b.while_(
        &[zero, zero],
        |b, carried| {
            let code = Code::new(b);
            (code.x(carried[0]).lt(code.x(common)) & code.x(carried[1]).eq(0)).v
        },
        |b, carried| {
            let byte = Ty::scalar(Elem::I8);
            let (p, q) = (b.load(byte, x, carried[0]), b.load(byte, y, carried[0]));
            let code = Code::new(b);
            let wide = |v| code.x(v).convert(Convert::ZExt, Elem::I64);
            vec![(code.x(carried[0]) + 1).v, (wide(p) - wide(q)).v]
        },
    );
    let code = Code::new(b);
    let (difference, x_length, y_length) = (code.x(outs[1]), code.x(x_length), code.x(y_length));
    let same = difference.eq(0);
    let result = match f {
        ScalarFn::Eq => same & x_length.eq(y_length),
        ScalarFn::Lt => difference.lt(0) | (same & x_length.lt(y_length)),
        ScalarFn::Le => difference.lt(0) | (same & x_length.le(y_length)),
        _ => unreachable!("`{}` does not take strings", f.name()),
    };
    result.v
}
