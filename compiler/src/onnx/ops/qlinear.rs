//! The arithmetic of quantised operators as ONNX Runtime does it on processors with FMA: the same functions of `f32`, rounded at the same
//! places, so that results have the same bits.
use super::{
    conv::{Placement, spatial},
    math::single,
    pool::windows,
};
use crate::onnx::import::operand::Operand;
use numrsc_ir::{
    DType, Dim, ReduceFn, Result,
    build::{Window, X},
    refuse,
};

/// A window of more elements is a sum that is rounded once rather than after every element, which may differ by one step at ties.
const MAX_TAPS: i64 = 64;

/// Integers with the scale and the zero point of the whole tensor.
#[derive(Clone, Copy)]
pub(super) struct Quantised<'g> {
    pub x: X<'g>,
    scale: X<'g>,
    zero: Option<X<'g>>,
}

/// Everything quantised in one operator has one type.
pub(super) fn same_type(dtype: DType, other: Option<X<'_>>) -> Result<()> {
    match other {
        Some(x) if x.dtype() != dtype => refuse!("{} next to {dtype}: all must be of one type", x.ty()),
        _ => Ok(()),
    }
}

impl<'g> Quantised<'g> {
    pub(super) fn new(x: X<'g>, scale: X<'g>, zero: Option<X<'g>>) -> Result<Quantised<'g>> {
        same_type(x.dtype(), zero)?;
        Ok(Quantised { x, scale: single(scale)?.cast(DType::F32)?, zero: zero.map(single).transpose()? })
    }

    /// Other integers of the same scale.
    pub(super) fn with(self, x: X<'g>) -> Quantised<'g> {
        Quantised { x, ..self }
    }

    /// `x - zero` in `i32`.
    fn steps(self) -> Result<X<'g>> {
        match self.zero {
            Some(zero) => self.x.graph().map([self.x, zero], |[x, z]| x.cast(DType::I32) - z.cast(DType::I32)),
            None => self.x.cast(DType::I32),
        }
    }

    /// `x - zero`, as an `f32`, which is exact.
    fn centred(self) -> Result<X<'g>> {
        self.steps()?.cast(DType::F32)
    }

    /// `(x - zero) scale`
    pub(super) fn real(self) -> Result<X<'g>> {
        self.x.graph().map([self.centred()?, self.scale], |[x, s]| x * s)
    }
}

/// How results are quantised: scale and zero point in `f32`, and their type.
#[derive(Clone, Copy)]
pub(super) struct Quantiser<'g> {
    scale: X<'g>,
    zero: X<'g>,
    dtype: DType,
}

impl<'g> Quantiser<'g> {
    /// To the type of the zero point, or `otherwise` without one.
    pub(super) fn new(scale: X<'g>, zero: Option<X<'g>>, otherwise: DType) -> Result<Quantiser<'g>> {
        let g = scale.graph();
        let dtype = zero.map_or(otherwise, X::dtype);
        let zero = zero.map_or_else(|| g.scalar(DType::F32, 0.0), |z| single(z)?.cast(DType::F32))?;
        Ok(Quantiser { scale: single(scale)?.cast(DType::F32)?, zero, dtype })
    }

    /// `saturate(round(x / scale + zero))`: the zero point takes part in the rounding.
    fn of_sum(self, x: X<'g>) -> Result<X<'g>> {
        let g = x.graph();
        g.map([x, self.scale, self.zero], |[x, s, z]| (x / s + z).round().cast_sat(self.dtype))
    }
}

/// `saturate(round(sum * scale) + zero)` in the type of the zero point, where `sum` is an exact sum of products.
pub(super) fn requantised<'g>(sum: X<'g>, scale: X<'g>, zero: X<'g>) -> Result<X<'g>> {
    let (shape, to) = (sum.shape(), zero.dtype());
    sum.graph().map([sum, scale.onto(&shape)?, zero.onto(&shape)?], |[sum, scale, zero]| {
        let real = sum.cast(DType::F32) * scale;
        let steps = if to.is_float() { real } else { real.round() };
        (steps + zero.cast(DType::F32)).cast_sat(to)
    })
}

/// `saturate(round(a * ra + b * rb + (zero - a_zero * ra - b_zero * rb)))` with the ratios of the scales `ra` and `rb`, in fused steps.
///
/// The operand that is one number along the rows of the result is added first.
pub(super) fn add<'g>(a: Quantised<'g>, b: Quantised<'g>, to: Quantiser<'g>) -> Result<X<'g>> {
    same_type(a.x.dtype(), Some(b.x))?;
    let (first, second) = if is_constant_along_rows(a.x, b.x) { (a, b) } else { (b, a) };
    let g = a.x.graph();
    let zero = |q: Quantised<'g>| q.zero.map_or_else(|| g.scalar(DType::F32, 0.0), |z| z.cast(DType::F32));
    let ratio = |q: Quantised<'g>| g.map([q.scale, to.scale], |[s, to]| s / to);
    let (rf, rs) = (ratio(first)?, ratio(second)?);
    let offset =
        g.map([to.zero, rf, zero(first)?, rs, zero(second)?], |[zero, rf, zf, rs, zs]| zero - rs.fma(zs, rf * zf))?;
    g.map([second.x, rs, first.x, rf, offset], |[second, rs, first, rf, offset]| {
        let sum = first.cast(DType::F32).fma(rf, offset);
        second.cast(DType::F32).fma(rs, sum).round().cast_sat(to.dtype)
    })
}

/// Is `a` the same for all elements of a row of the result, and `b` not, or are both?
fn is_constant_along_rows(a: X<'_>, b: X<'_>) -> bool {
    let (a, b) = (a.shape(), b.shape());
    let size = |shape: &[Dim], back: usize| shape.len().checked_sub(back).map_or(Dim::ONE, |i| shape[i].clone());
    let last = (1..=a.len().max(b.len())).find(|&back| size(&a, back) != Dim::ONE || size(&b, back) != Dim::ONE);
    last.is_none_or(|back| size(&a, back) == Dim::ONE)
}

/// `saturate(round((a - a_zero) (b - b_zero) * scale + zero))`, where `scale` is that of the product relative to the result's.
pub(super) fn multiply<'g>(a: Quantised<'g>, b: Quantised<'g>, to: Quantiser<'g>) -> Result<X<'g>> {
    same_type(a.x.dtype(), Some(b.x))?;
    let g = a.x.graph();
    let scale = g.map([a.scale, b.scale, to.scale], |[a, b, to]| a * b / to)?;
    g.map([a.centred()?, b.centred()?, scale, to.zero], |[a, b, scale, zero]| {
        (a * b * scale + zero).round().cast_sat(to.dtype)
    })
}

/// `saturate(round(x / scale) + zero)`: the zero point is added to whole steps.
pub(super) fn rounded<'g>(x: X<'g>, to: Quantiser<'g>) -> Result<X<'g>> {
    x.graph().map([x, to.scale, to.zero], |[x, s, z]| ((x / s).round() + z).cast_sat(to.dtype))
}

/// The mean over axes, which stay: an exact sum times one factor.
pub(super) fn mean<'g>(q: Quantised<'g>, axes: &[usize], to: Quantiser<'g>) -> Result<X<'g>> {
    let g = q.x.graph();
    let shape = q.x.shape();
    let count = g.size(&Dim::product(axes.iter().map(|&a| &shape[a])))?.cast(DType::F32)?;
    let factor = g.map([q.scale, to.scale, count], |[x, y, n]| x / (y * n))?;
    let sum = q.steps()?.sum(axes, true)?;
    g.map([sum, factor, to.zero], |[sum, factor, zero]| {
        ((sum.cast(DType::F32) * factor).round() + zero).cast_sat(to.dtype)
    })
}

/// The mean over windows of space. Sums are taken row by row, as ONNX Runtime takes them.
pub(super) fn average_pool<'g>(
    q: Quantised<'g>,
    kernel: &[i64],
    include_padding: bool,
    place: &Placement<'_>,
    to: Quantiser<'g>,
) -> Result<X<'g>> {
    let g = q.x.graph();
    let x = q.real()?;
    let windows = windows(x, kernel, place)?;
    let all: i64 = kernel.iter().product();
    let sum =
        if all <= MAX_TAPS { sum_of_taps(x, kernel, &windows)? } else { x.window(ReduceFn::Sum, kernel, &windows)? };
    let count = if include_padding {
        g.scalar(DType::F32, all as f64)?
    } else {
        let ones = g.full(DType::F32, 1.0, &spatial(x)?)?;
        ones.window(ReduceFn::Sum, kernel, &windows)?
    };
    to.of_sum(g.map([sum, count], |[sum, count]| sum / count)?)
}

/// The sum of every window, element after element.
fn sum_of_taps<'g>(x: X<'g>, kernel: &[i64], windows: &[Window]) -> Result<X<'g>> {
    let g = x.graph();
    let skipped = x.rank() - kernel.len();
    let padding = |side: fn(&Window) -> &Dim| -> Vec<Dim> {
        std::iter::repeat_n(Dim::ZERO, skipped).chain(windows.iter().map(|w| side(w).clone())).collect()
    };
    let padded = x.pad(&padding(|w| &w.low), &padding(|w| &w.high), g.scalar(DType::F32, 0.0)?)?;
    let space = spatial(padded)?;
    let mut taps = vec![padded];
    for (axis, (&size, window)) in kernel.iter().zip(windows).enumerate() {
        let count = &(&space[axis] - &Dim::Const(size)).floor_div(&Dim::Const(window.stride)) + &Dim::ONE;
        let tap = |x: X<'g>, k: i64| x.slice_axis(skipped + axis, &Dim::Const(k), &count, window.stride);
        let along = taps.iter().flat_map(|&x| (0..size).map(move |k| (x, k)));
        taps = along.map(|(x, k)| tap(x, k)).collect::<Result<_>>()?;
    }
    g.map_all(&taps, |taps| {
        let (first, rest) = taps.split_first().expect("a window has elements");
        rest.iter().fold(*first, |sum, &tap| sum + tap)
    })
}
