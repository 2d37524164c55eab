//! `cast`, `castround`, `castsat` and `bitcast` between all element types.
use crate::{code::X, decode_x, encode_x, format, number, round_x, wrap_small};
use numrsc_ir::{
    DType, ScalarFn,
    dtype::Class,
    kernel::{Convert, Elem},
};

/// `f` is one of the conversions.
pub(super) fn convert<'c>(f: ScalarFn, of: DType, to: DType, x: X<'c>) -> X<'c> {
    let saturate = f == ScalarFn::CastSat;
    if f == ScalarFn::Bitcast {
        let raw = encode_x(of, x);
        let raw = if to == DType::F32 || to == DType::F64 { raw.bits().as_float() } else { raw.bits() };
        return decode_x(to, raw);
    }
    match (of.class(), to.class()) {
        (_, Class::Str) | (Class::Str, _) => unreachable!("strings are not converted"),
        (Class::Bool, Class::Bool) => x,
        (Class::Float, Class::Bool) => x.ne(0.0),
        (_, Class::Bool) => x.ne(0),
        (Class::Float, Class::Float) => float_to_float(of, to, x, saturate),
        (Class::Float, _) if saturate => float_to_int_saturating(to, x),
        (Class::Float, _) => float_to_int_wrapping(to, x),
        (_, Class::Float) => int_to_float(of, to, x, saturate),
        _ => int_to_int(of, to, x, saturate),
    }
}

/// The nearest value of `to`; with `saturate`, infinity becomes the largest finite value.
fn float_to_float<'c>(of: DType, to: DType, x: X<'c>, saturate: bool) -> X<'c> {
    match to {
        _ if of == to && !saturate => x,
        DType::F64 | DType::F32 => {
            let y = round_x(to, x);
            if !saturate {
                return y;
            }
            let largest = to.max_finite();
            y.at_most(largest).at_least(-largest)
        }
        _ => format::round(to, x, saturate),
    }
}

/// Toward zero, modulo 2^bits; NaN and infinity give 0.
fn float_to_int_wrapping<'c>(to: DType, x: X<'c>) -> X<'c> {
    let target = number(to);
    let x = if target == Elem::I64 { x.to_f64() } else { x };
    let (wide, mantissa, bias) = if x.ty().elem == Elem::F64 { (Elem::I64, 52, 1023) } else { (Elem::I32, 23, 127) };
    let width = i64::from(wide.bits());
    let near = x.convert(Convert::FToS, wide);
    // From 2^(width-1) on, the number is its mantissa shifted left, until nothing of it is left in the low bits.
    let bits = x.bits();
    let places = (bits.lshr(mantissa) & ((1 << (width - 1 - mantissa)) - 1)) - (bias + mantissa);
    let significand = (bits & ((1 << mantissa) - 1)) | (1 << mantissa);
    let shifted = significand.shl(places & (width - 1));
    let negated = bits.lt(0).pick(-shifted, shifted);
    let far = places.ult(width).pick(negated, 0);
    let wrapped = x.abs().lt(2f64.powi(width as i32 - 1)).pick(near, far);
    wrap_small(to, wrapped.convert(Convert::Narrow, target))
}

/// Toward zero, to the nearest value of the type; NaN gives 0.
fn float_to_int_saturating<'c>(to: DType, x: X<'c>) -> X<'c> {
    let target = number(to);
    let x = if target == Elem::I64 { x.to_f64() } else { x };
    let wide = x.ty().elem.as_int();
    if to.bits() == wide.bits() {
        return x.convert(if to.is_signed() { Convert::FToS } else { Convert::FToU }, wide);
    }
    let (low, high) = to.int_range();
    x.convert(Convert::FToS, wide).smax(low as i64).smin(high as i64).convert(Convert::Narrow, target)
}

/// To nearest even, with one rounding.
fn int_to_float<'c>(of: DType, to: DType, x: X<'c>, saturate: bool) -> X<'c> {
    let signed = of.is_signed();
    let op = if signed { Convert::SToF } else { Convert::UToF };
    let extend = if signed { Convert::SExt } else { Convert::ZExt };
    if of.bits() < 32 {
        // Every value is exact in f32, and not negative once extended with zeros.
        let exact = x.convert(extend, Elem::I32).convert(Convert::SToF, Elem::F32);
        return float_to_float(DType::F32, to, exact, saturate);
    }
    match to {
        DType::F64 | DType::F32 => x.convert(op, number(to)),
        _ if of.bits() == 32 => format::round(to, x.convert(op, Elem::F64), saturate),
        _ => {
            // What does not fit into 48 bits is cut, with a last bit that tells if anything was lost: then the f64 is
            // exact and never a tie of the narrower format that is not one.
            const CUT: i64 = 16;
            let lost = (x & ((1 << CUT) - 1)).ne(0).convert(Convert::ZExt, Elem::I64);
            let shifted = if signed { x.ashr(CUT) } else { x.lshr(CUT) };
            let cut = (shifted | lost).shl(CUT);
            let fits = if signed { (x + (1 << 47)).ult(1 << 48) } else { x.ult(1 << 48) };
            format::round(to, fits.pick(x, cut).convert(op, Elem::F64), saturate)
        }
    }
}

fn int_to_int<'c>(of: DType, to: DType, x: X<'c>, saturate: bool) -> X<'c> {
    let (from, target) = (number(of), number(to));
    let extend = if of.is_signed() { Convert::SExt } else { Convert::ZExt };
    let mut x = x;
    if saturate {
        let ((of_low, of_high), (low, high)) = (of.int_range(), to.int_range());
        if from == Elem::I1 {
            x = x.convert(extend, Elem::I8);
        }
        // The limits that matter lie within the range of the operand, so they are constants of its type.
        if of.is_signed() {
            x = if low > of_low { x.smax(low as i64) } else { x };
            x = if high < of_high { x.smin(high as i64) } else { x };
        } else if high < of_high {
            x = x.umin(high as i64);
        }
    }
    let narrower = target.bits() < x.ty().elem.bits();
    let y = x.convert(if narrower { Convert::Narrow } else { extend }, target);
    wrap_small(to, y)
}
