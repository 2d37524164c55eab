//! Quantised tensors: conversion to and from floats, and products of integers with zero points, which are exact.
use super::{
    conv::{Placement, conv},
    math::single,
    qlinear::requantised,
};
use crate::onnx::import::{operand::Operand, table::onnx_ops};
use numrsc_ir::{DType, Dim, Result, build::X, expr::S, refuse};

onnx_ops! { pub(super) QUANT in "", |g, cx|
    "QuantizeLinear"        10 (x: Num, scale: AnyNum; zero: AnyNum)
        { axis: i64 = 1, saturate: bool = true, block_size: i64 = 0, output_dtype: i64 = 0, precision: i64 = 0 }
        => {
            let (to, precision) = (stated_type(output_dtype)?, stated_type(precision)?);
            quantize(x, scale, zero, &Grain { axis, block_size }, saturate, to, precision)
        };
    "DequantizeLinear"      10 (x: AnyNum, scale: AnyFloat; zero: AnyNum)
        { axis: i64 = 1, block_size: i64 = 0, output_dtype: i64 = 0 }
        => dequantize(x, scale, zero, &Grain { axis, block_size }, stated_type(output_dtype)?);
    "DynamicQuantizeLinear" 11 (x: Float) {}
        => dynamic_quantize(x);
    "MatMulInteger"         10 (a: Int, b: Int; a_zero: Int, b_zero: Int) {}
        => centred_rows(a, a_zero)?.matmul(centred(b, b_zero)?);
    "QLinearMatMul"         10 (a: AnyNum, a_scale: Float, a_zero: AnyNum, b: AnyNum, b_scale: Float, b_zero: AnyNum,
                                y_scale: Float, y_zero: AnyNum) {}
        => {
            let y = centred_rows(a, Some(a_zero))?.matmul(centred(b, Some(b_zero))?)?;
            rescaled(y, by_rows(a, a_scale)?, scalar_or_same(b_scale)?, y_scale, y_zero)
        };
    "ConvInteger"           10 (x: Int, w: Int; x_zero: Int, w_zero: Int)
        { auto_pad: String = "NOTSET".into(), kernel_shape: Vec<i64> = vec![], strides: Vec<i64> = vec![],
          dilations: Vec<i64> = vec![], pads: Vec<i64> = vec![], group: i64 = 1 }
        => {
            let place = Placement::new(&auto_pad, &strides, &dilations, &pads);
            conv(centred(x, x_zero)?, centred_filters(w, w_zero)?, None, &kernel_shape, group, &place)
        };
    "QLinearConv"           10 (x: Int, x_scale: Float, x_zero: Int, w: Int, w_scale: Float, w_zero: Int,
                                y_scale: Float, y_zero: Int; bias: Int)
        { auto_pad: String = "NOTSET".into(), kernel_shape: Vec<i64> = vec![], strides: Vec<i64> = vec![],
          dilations: Vec<i64> = vec![], pads: Vec<i64> = vec![], group: i64 = 1 }
        where bias[w.dim(0)?]
        => {
            let place = Placement::new(&auto_pad, &strides, &dilations, &pads);
            let (x, filters) = (centred(x, Some(single(x_zero)?))?, centred_filters(w, Some(w_zero))?);
            let y = conv(x, filters, bias, &kernel_shape, group, &place)?;
            let [x_scale, y_scale, y_zero] = [single(x_scale)?, single(y_scale)?, single(y_zero)?];
            rescaled(y, x_scale, along(w_scale, 1, &y.shape())?, y_scale, y_zero)
        };
}

/// Along which elements scale and zero point change.
struct Grain {
    axis: i64,
    /// Elements of `axis` that share a scale, where the scale has as many axes as the tensor.
    block_size: i64,
}

impl Grain {
    /// A scale or zero point made ready to broadcast to `x`: one number, one per element of an axis, or one per block.
    fn spread<'g>(&self, value: X<'g>, x: X<'g>) -> Result<X<'g>> {
        if value.rank() <= 1 && value.len() == Dim::ONE {
            return single(value);
        }
        if self.block_size < 0 {
            refuse!("attribute `block_size` is {}, which is negative", self.block_size);
        }
        if value.rank() == 0 {
            return Ok(value);
        }
        if value.rank() == 1 && x.rank() < 2 && x.axis(self.axis).is_err() {
            // There is no axis along which scales could differ.
            return single(value.of_length(1)?);
        }
        let axis = x.axis(self.axis)?;
        if self.block_size == 0 {
            if value.rank() != 1 {
                refuse!("{} without `block_size` must be a scalar or a vector", value.ty());
            }
            return along(value, axis, &x.shape());
        }
        // Repeat every element block_size times; the last block may be cut off.
        let mut shape = x.shape();
        let block = Dim::Const(self.block_size);
        let blocks = shape[axis].ceil_div(&block);
        shape[axis] = blocks.clone();
        let value = value.shaped("scale or zero point", &shape)?;
        let apart = value.unsqueeze(&[axis + 1])?;
        shape.insert(axis + 1, block.clone());
        let repeated = apart.broadcast_to(&shape)?;
        shape.remove(axis + 1);
        shape[axis] = &blocks * &block;
        repeated.reshape(&shape)?.slice_axis(axis, &Dim::ZERO, &x.dim(self.axis)?, 1)
    }
}

/// A zero point, of which there are as many as scales.
fn like<'g>(zero: X<'g>, scale: X<'g>) -> Result<X<'g>> {
    let one = |v: X<'_>| v.rank() <= 1 && v.len() == Dim::ONE;
    if one(zero) && one(scale) {
        return Ok(zero);
    }
    // Where one of them is a number, the other has to be a vector of one.
    let vector = |v: X<'g>| if v.rank() == 0 { v.unsqueeze(&[0]) } else { Ok(v) };
    vector(zero)?.shaped("zero point", &vector(scale)?.shape())
}

/// An element type by its number in ONNX, where 0 stands for none.
fn stated_type(code: i64) -> Result<Option<DType>> {
    if code == 0 {
        return Ok(None);
    }
    match i32::try_from(code).ok().and_then(DType::from_onnx) {
        Some(d) => Ok(Some(d)),
        None => refuse!("{code} is not a supported element type"),
    }
}

/// A vector with one number for each element of an axis, to broadcast to this shape; what has one element stays a scalar.
pub(super) fn along<'g>(v: X<'g>, axis: usize, shape: &[Dim]) -> Result<X<'g>> {
    if v.rank() == 0 || v.len() == Dim::ONE {
        return single(v);
    }
    if v.rank() != 1 || axis >= shape.len() || v.len().equals(&shape[axis]) == Some(false) {
        let sizes: Vec<String> = shape.iter().map(ToString::to_string).collect();
        refuse!("{} must be a scalar or a vector along axis {axis} of [{}]", v.ty(), sizes.join(", "));
    }
    let mut line = vec![Dim::ONE; shape.len()];
    line[axis] = shape[axis].clone();
    v.reshape(&line)
}

/// `saturate(round(x / scale) + zero)`: floats are not rounded to integers first.
fn quantize<'g>(
    x: X<'g>,
    scale: X<'g>,
    zero: Option<X<'g>>,
    grain: &Grain,
    saturate: bool,
    stated: Option<DType>,
    precision: Option<DType>,
) -> Result<X<'g>> {
    let to = match (zero.map(X::dtype), stated) {
        (Some(z), Some(s)) if z != s => refuse!("`output_dtype` is {s}, but the zero point is {z}"),
        (Some(d), _) | (None, Some(d)) => d,
        (None, None) => DType::U8,
    };
    if to.bits() > 16 || (to.is_float() && (to.bits() > 8 || to == DType::F8E8M0)) || !(to.is_float() || to.is_int()) {
        refuse!("quantisation to {to} is not defined");
    }
    // The type of the scale is the type of the division, where it can hold quotients.
    let of_scale = Some(scale.dtype()).filter(|d| d.is_float() && d.bits() >= 16);
    let division = precision.or(of_scale).unwrap_or(DType::F32);
    if !division.is_float() {
        refuse!("attribute `precision` is {division}, which is not a float");
    }
    let mut xs = vec![x, grain.spread(scale, x)?];
    xs.extend(zero.map(|z| grain.spread(like(z, scale)?, x)).transpose()?);
    let y = x.graph().map_all(&xs, |s| {
        let quotient = s[0].cast(division) / s[1].cast(division);
        let zero = s.get(2).copied();
        if to.is_float() { small_float(quotient, zero, to, saturate) } else { small_int(quotient, zero, to) }
    })?;
    y.broadcast_to(&x.shape())
}

/// `saturate(round(quotient) + zero)`. The sum is exact in f32 as far as it is inside the range of a 16-bit integer.
fn small_int<'e>(quotient: S<'e>, zero: Option<S<'e>>, to: DType) -> S<'e> {
    let steps = quotient.round().cast(DType::F32);
    zero.map_or(steps, |z| steps + z.cast(DType::F32)).cast_sat(to)
}

fn small_float<'e>(quotient: S<'e>, zero: Option<S<'e>>, to: DType, saturate: bool) -> S<'e> {
    let sum = zero.map_or(quotient, |z| quotient + z.cast(quotient.dtype()));
    if saturate { sum.cast_sat(to) } else { sum.cast(to) }
}

/// `(x - zero) * scale`
fn dequantize<'g>(x: X<'g>, scale: X<'g>, zero: Option<X<'g>>, grain: &Grain, stated: Option<DType>) -> Result<X<'g>> {
    let to = stated.unwrap_or(scale.dtype());
    if !to.is_float() || to.bits() < 16 {
        refuse!("the result would be {to}; attribute `output_dtype` must name a float of 16 bits or more");
    }
    if let Some(z) = zero.filter(|z| z.dtype() != x.dtype()) {
        refuse!("the zero point is {}, but the tensor is {}", z.dtype(), x.dtype());
    }
    let mut xs = vec![x, grain.spread(scale, x)?];
    xs.extend(zero.map(|z| grain.spread(like(z, scale)?, x)).transpose()?);
    let within = if to == DType::F64 { DType::F64 } else { DType::F32 };
    x.graph().map_all(&xs, |s| {
        let x = s[0].cast(within);
        let centred = s.get(2).map_or(x, |z| x - z.cast(within));
        (centred * s[1].cast(within)).cast(to)
    })
}

/// Quantise to u8 with the scale and zero point that the smallest and largest element (and 0) need.
fn dynamic_quantize(x: X<'_>) -> Result<[X<'_>; 3]> {
    let (g, x) = (x.graph(), x.cast(DType::F32)?);
    let axes: Vec<usize> = (0..x.rank()).collect();
    let (low, high) = (x.min(&axes, false)?, x.max(&axes, false)?);
    let scale = g.map([low, high], |[low, high]| {
        let (low, high) = (low.min(0.0), high.max(0.0));
        low.eq(high).select(low.lit(1.0), high - low) / 255.0
    })?;
    let zero = g.map([low, scale], |[low, scale]| (0.0 - low.min(0.0) / scale).clamp(0.0, 255.0).round())?;
    let y = g.map([x, scale, zero], |[x, scale, zero]| ((x / scale).round() + zero).cast_sat(DType::U8))?;
    Ok([y, scale, zero.cast(DType::U8)?])
}

/// `x - zero` in a type that holds all differences and their products: i32, or f32 for floats.
fn centred<'g>(x: X<'g>, zero: Option<X<'g>>) -> Result<X<'g>> {
    if x.dtype().bits() > 8 || zero.is_some_and(|z| z.dtype() != x.dtype()) {
        let of = zero.map_or(String::new(), |z| format!(" with zero point {}", z.ty()));
        refuse!("{}{of} is not supported: both must be of one type of at most 8 bits", x.ty());
    }
    let within = if x.dtype().is_float() { DType::F32 } else { DType::I32 };
    match zero {
        Some(z) => {
            let z = scalar_or_same(z)?.onto(&x.shape())?;
            x.graph().map([x, z], |[x, z]| x.cast(within) - z.cast(within))
        }
        None => x.cast(within),
    }
}

/// [`centred`] for the left side of a product, where a vector holds one zero point per row.
fn centred_rows<'g>(a: X<'g>, zero: Option<X<'g>>) -> Result<X<'g>> {
    centred(a, zero.map(|z| by_rows(a, z)).transpose()?)
}

/// [`centred`] for filters, where a vector holds one zero point per output channel.
fn centred_filters<'g>(w: X<'g>, zero: Option<X<'g>>) -> Result<X<'g>> {
    centred(w, zero.map(|z| along(z, 0, &w.shape())).transpose()?)
}

fn scalar_or_same(v: X<'_>) -> Result<X<'_>> {
    if v.len() == Dim::ONE { single(v) } else { Ok(v) }
}

/// A vector with one element per row of `a` as a column; anything else as it is.
fn by_rows<'g>(a: X<'g>, v: X<'g>) -> Result<X<'g>> {
    if v.rank() == 1 && v.len() != Dim::ONE && a.rank() >= 2 { v.unsqueeze(&[1]) } else { scalar_or_same(v) }
}

/// A sum of products with the scales of its factors, quantised anew.
fn rescaled<'g>(sum: X<'g>, a_scale: X<'g>, b_scale: X<'g>, y_scale: X<'g>, zero: X<'g>) -> Result<X<'g>> {
    let (a_scale, y_scale, zero) = (scalar_or_same(a_scale)?, scalar_or_same(y_scale)?, scalar_or_same(zero)?);
    let scale = sum
        .graph()
        .map([a_scale, b_scale, y_scale], |[a, b, y]| a.cast(DType::F32) * b.cast(DType::F32) / y.cast(DType::F32))?;
    requantised(sum, scale, zero)
}
