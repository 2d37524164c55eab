//! Resizing along one axis after the other: each output position has a coordinate in the input, and the elements around
//! it are picked or weighted. Coordinates and weights are computed in `f64`, from scales that may be run-time values.
use super::pool::wide;
use numrsc_ir::{
    DType, Dim, Result, ScatterFn,
    build::{Graph, X},
    expr::S,
    refuse,
};

/// The attributes of a resize.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resize<'a> {
    pub mode: &'a str,
    pub transformation: &'a str,
    pub nearest: &'a str,
    pub cubic_a: f64,
    pub exclude_outside: bool,
    pub extrapolation: f64,
    pub antialias: bool,
    pub policy: &'a str,
    pub axes: Option<&'a [i64]>,
}

impl<'a> Resize<'a> {
    /// What resizing meant before opset 11: scales only, and coordinates that are simply divided by them.
    pub(super) fn before_11(mode: &'a str) -> Resize<'a> {
        Resize {
            mode: if mode == "bilinear" { "linear" } else { mode },
            transformation: "asymmetric",
            nearest: "toward_scale",
            cubic_a: -0.75,
            exclude_outside: false,
            extrapolation: 0.0,
            antialias: false,
            policy: "stretch",
            axes: None,
        }
    }
}

/// One axis to resize.
struct Axis<'g> {
    axis: usize,
    n: Dim,
    out: Dim,
    /// `f64` scalar.
    scale: X<'g>,
    /// The output size before rounding, an `f64` scalar.
    width: X<'g>,
    /// The type in which coordinates are computed. Where they decide about an element or a step of an integer, this is
    /// that of ONNX Runtime, as many lie on halves and wholes but for its rounding.
    coordinates: DType,
    /// Where the region of interest starts and ends, as `f64` scalars.
    roi: Option<[X<'g>; 2]>,
}

pub(super) fn resize<'g>(
    x: X<'g>,
    roi: Option<X<'g>>,
    scales: Option<X<'g>>,
    sizes: Option<X<'g>>,
    how: &Resize<'_>,
) -> Result<X<'g>> {
    if !matches!(how.mode, "nearest" | "linear" | "cubic") {
        refuse!("`mode` {:?} is not nearest, linear or cubic", how.mode);
    }
    if how.mode == "nearest" && (how.antialias || how.exclude_outside) {
        refuse!("`antialias` and `exclude_outside` have no meaning for the mode nearest");
    }
    let numbers = x.dtype().is_float() || x.dtype().is_int();
    if !numbers && (how.mode != "nearest" || how.transformation == "tf_crop_and_resize") {
        refuse!("elements of type {} can only be repeated, not computed", x.dtype());
    }
    let axes = axes(x, roi, scales, sizes, how)?;
    if how.mode == "nearest" {
        return axes.iter().try_fold(x, |y, a| extrapolated(a, nearest(y, a, how)?, how));
    }
    let inner = if x.dtype().is_int() { x.cast(DType::F64)? } else { wide(x)? };
    let step = |y: X<'g>, a: &Axis<'g>| {
        let y = if how.antialias { antialiased(y, a, how)? } else { interpolated(y, a, how)? };
        extrapolated(a, y, how)
    };
    match Rounding::of(x.dtype(), how) {
        None => axes.iter().try_fold(inner, step)?.cast(x.dtype()),
        Some(Rounding::TowardsZero) => {
            axes.iter().try_fold(inner, step)?.map(|y| y.cast(DType::F32).trunc().cast_sat(x.dtype()))
        }
        Some(Rounding::Nearest) => axes.iter().try_fold(inner, step)?.map(|y| y.round().cast_sat(x.dtype())),
        Some(Rounding::Passes) => {
            let rounded = |y: X<'g>| y.map(|y| (y.sign() * (y.abs() + 0.5).floor()).cast_sat(x.dtype()));
            axes.iter().rev().try_fold(x, |y, a| rounded(step(y.cast(DType::F64)?, a)?))
        }
    }
}

/// How integers are rounded, as ONNX Runtime does it.
enum Rounding {
    TowardsZero,
    Nearest,
    /// After every axis, the innermost first: halves go away from zero.
    Passes,
}

impl Rounding {
    fn of(dtype: DType, how: &Resize<'_>) -> Option<Rounding> {
        match () {
            () if !dtype.is_int() => None,
            () if how.antialias => Some(Rounding::Passes),
            () if how.mode == "linear" => Some(Rounding::TowardsZero),
            () => Some(Rounding::Nearest),
        }
    }
}

/// An optional vector that is empty counts as absent.
fn given(v: Option<X<'_>>) -> Option<X<'_>> {
    v.filter(|v| v.shape() != [Dim::ZERO])
}

fn axes<'g>(
    x: X<'g>,
    roi: Option<X<'g>>,
    scales: Option<X<'g>>,
    sizes: Option<X<'g>>,
    how: &Resize<'_>,
) -> Result<Vec<Axis<'g>>> {
    let (g, shape) = (x.graph(), x.shape());
    let axes = match how.axes {
        Some(axes) => x.axes(axes)?,
        None => (0..shape.len()).collect(),
    };
    if axes.iter().enumerate().any(|(i, a)| axes[..i].contains(a)) {
        refuse!("`axes` {:?} repeat", how.axes.unwrap_or_default());
    }
    let count = axes.len();
    let of_length = |what: &str, v: X<'g>, want: usize| -> Result<X<'g>> {
        if v.rank() != 1 || v.shape()[0].equals(&Dim::from(want)) != Some(true) {
            refuse!("`{what}` must have {want} elements, known at compile time, got {}", v.ty());
        }
        Ok(v)
    };
    let crop = how.transformation == "tf_crop_and_resize";
    let roi = match given(roi) {
        Some(roi) if crop => Some(of_length("roi", roi, 2 * count)?.cast(DType::F64)?),
        None if crop => refuse!("tf_crop_and_resize needs a `roi`"),
        _ => None,
    };
    let item = |v: X<'g>, i: usize| v.at(0, &Dim::from(i));
    let float = |d: &Dim| g.size(d)?.cast(DType::F64);
    // Scale, output size and width of each axis.
    let mut found: Vec<(X<'g>, Dim, X<'g>)> = Vec::new();
    match (given(scales), given(sizes)) {
        (Some(scales), None) => {
            let scales = of_length("scales", scales, count)?;
            for (i, &a) in axes.iter().enumerate() {
                let scale = item(scales, i)?;
                let (scale, out) = (scale.cast(DType::F64)?, scaled(&shape[a], scale)?);
                let width = g.map([scale, float(&shape[a])?], |[s, n]| s * n)?;
                found.push((scale, out, width));
            }
        }
        (None, Some(sizes)) => {
            let sizes = of_length("sizes", sizes, count)?.to_sizes()?;
            let mut ratios = Vec::new();
            for (out, &a) in sizes.iter().zip(&axes) {
                ratios.push(match out.equals(&shape[a]) {
                    Some(true) => g.scalar(DType::F64, 1.0)?,
                    _ => g.map([float(out)?, float(&shape[a])?], |[o, n]| o / n)?,
                });
            }
            let largest = match how.policy {
                "stretch" => None,
                "not_larger" => Some(false),
                "not_smaller" => Some(true),
                other => refuse!("`keep_aspect_ratio_policy` {other:?} is not stretch, not_larger or not_smaller"),
            };
            let common = largest.map(|largest| {
                g.map_all(&ratios, |r| r[1..].iter().fold(r[0], |a, &b| if largest { a.max(b) } else { a.min(b) }))
            });
            match common.filter(|_| count > 0).transpose()? {
                None => {
                    for (scale, out) in ratios.into_iter().zip(sizes) {
                        found.push((scale, out.clone(), float(&out)?));
                    }
                }
                Some(scale) => {
                    for &a in &axes {
                        let width = g.map([scale, float(&shape[a])?], |[s, n]| s * n)?;
                        let out = width.map(|w| (w + 0.5).floor().cast(DType::I64))?.to_sizes()?;
                        found.push((scale, out[0].clone(), width));
                    }
                }
            }
        }
        _ => refuse!("exactly one of `scales` and `sizes` must be given"),
    }
    let coordinates = if how.mode == "nearest" || x.dtype().is_int() { DType::F32 } else { DType::F64 };
    let mut list = Vec::new();
    for (i, ((scale, out, width), &axis)) in found.into_iter().zip(&axes).enumerate() {
        let roi = roi.map(|r| Ok::<_, numrsc_ir::Error>([item(r, i)?, item(r, count + i)?])).transpose()?;
        let whole = roi.is_none_or(|[s, e]| s.as_number() == Some(0.0) && e.as_number() == Some(1.0));
        let same = out.equals(&shape[axis]) == Some(true) && scale.as_number() == Some(1.0);
        if !(whole && same) {
            list.push(Axis { axis, n: shape[axis].clone(), out, scale, width, coordinates, roi });
        }
    }
    Ok(list)
}

/// `floor(n * scale)`, rounded in `f32` as exporters and ONNX's shape inference do. For simple fractions this is exact
/// and stays symbolic.
fn scaled(n: &Dim, scale: X<'_>) -> Result<Dim> {
    let g = scale.graph();
    if let Some(s) = scale.as_number()
        && let Some(k) = (0..=8).find(|&k| (s * f64::from(1 << k)).fract() == 0.0)
        && (0.0..256.0).contains(&s)
    {
        let numerator = (s * f64::from(1 << k)) as i64;
        return Ok((n * &Dim::Const(numerator)).floor_div(&Dim::Const(1 << k)));
    }
    let size = g.size(n)?.cast(DType::F32)?;
    let out = g.map([size, scale.cast(DType::F32)?], |[n, s]| (n * s).floor().cast(DType::I64))?;
    Ok(out.to_sizes()?.swap_remove(0))
}

/// Where in the input each output position lies: an `f64` vector.
fn coordinates<'g>(g: &'g Graph, a: &Axis<'g>, how: &Resize<'_>) -> Result<X<'g>> {
    let of = a.coordinates;
    let y = g.range(of, &a.out)?;
    let (n, out) = (g.size(&a.n)?.cast(of)?, g.size(&a.out)?.cast(of)?);
    let (scale, width) = (a.scale.cast(of)?, a.width.cast(of)?);
    let at = match how.transformation {
        "half_pixel" => g.map([y, scale], |[y, s]| (y + 0.5) / s - 0.5),
        "half_pixel_symmetric" => {
            g.map([y, scale, n, out, width], |[y, s, n, out, w]| n / 2.0 * (1.0 - out / w) + (y + 0.5) / s - 0.5)
        }
        "pytorch_half_pixel" => g.map([y, scale, out], |[y, s, out]| out.gt(1.0).select((y + 0.5) / s - 0.5, 0.0)),
        "asymmetric" => g.map([y, scale], |[y, s]| y / s),
        "tf_half_pixel_for_nn" => g.map([y, scale], |[y, s]| (y + 0.5) / s),
        "align_corners" => {
            g.map([y, n, out, width], |[y, n, out, w]| out.gt(1.0).select(y * (n - 1.0) / (w - 1.0), 0.0))
        }
        "tf_crop_and_resize" => {
            let Some([start, end]) = a.roi else { refuse!("tf_crop_and_resize needs a `roi`") };
            g.map([y, n, out, width, start.cast(of)?, end.cast(of)?], |[y, n, out, w, s, e]| {
                let many = y * (e - s) * (n - 1.0) / (w - 1.0);
                out.gt(1.0).select(many, (e - s) * (n - 1.0) / 2.0) + s * (n - 1.0)
            })
        }
        other => refuse!("`coordinate_transformation_mode` {other:?} is not supported"),
    };
    at?.cast(DType::F64)
}

fn nearest<'g>(x: X<'g>, a: &Axis<'g>, how: &Resize<'_>) -> Result<X<'g>> {
    let g = x.graph();
    if !matches!(how.nearest, "round_prefer_floor" | "round_prefer_ceil" | "floor" | "ceil" | "toward_scale") {
        refuse!("`nearest_mode` {:?} is not supported", how.nearest);
    }
    let n = g.size(&a.n)?.cast(DType::F64)?;
    let at = g.map([coordinates(g, a, how)?, n, a.scale], |[c, n, scale]| {
        let (low, part) = (c.floor(), c - c.floor());
        let pick = match how.nearest {
            "round_prefer_floor" => part.le(0.5).select(low, low + 1.0),
            "round_prefer_ceil" => part.lt(0.5).select(low, low + 1.0),
            "floor" => low,
            "ceil" => c.ceil(),
            // Before opset 11: down for growing, up for shrinking.
            _ => scale.lt(1.0).select(c.ceil(), low),
        };
        pick.max(0.0).min(n - 1.0).cast(DType::I64)
    })?;
    x.gather(at, a.axis, 0)
}

/// Replace what lies outside of the input by the extrapolation value, if the coordinates may leave it.
fn extrapolated<'g>(a: &Axis<'g>, y: X<'g>, how: &Resize<'_>) -> Result<X<'g>> {
    if how.transformation != "tf_crop_and_resize" {
        return Ok(y);
    }
    let g = y.graph();
    let n = g.size(&a.n)?.cast(DType::F64)?;
    let outside = g.map([coordinates(g, a, how)?, n], |[c, n]| c.lt(0.0).or(c.gt(n - 1.0)))?;
    let outside = line(outside, a.axis, y.rank())?;
    g.map([y, outside], |[y, out]| out.select(y.lit(how.extrapolation), y))
}

/// A vector laid along one axis of a tensor of the given rank, to broadcast.
fn line(v: X<'_>, axis: usize, rank: usize) -> Result<X<'_>> {
    let mut shape = v.shape();
    shape.resize(rank - axis, Dim::ONE);
    v.reshape(&shape)
}

/// The weight of an element at `distance` from the coordinate: `max(0, 1 - d)`, or Keys' cubic kernel
/// `(a+2)d³ - (a+3)d² + 1` up to 1 and `ad³ - 5ad² + 8ad - 4a` up to 2.
pub(super) fn kernel<'e>(mode: &str, a: f64, distance: S<'e>) -> S<'e> {
    let d = distance;
    if mode == "linear" {
        return (1.0 - d).max(0.0);
    }
    let near = ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
    let far = ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
    d.le(1.0).select(near, d.lt(2.0).select(far, 0.0))
}

/// Weighted sum of the 2 or 4 elements around each coordinate.
fn interpolated<'g>(x: X<'g>, a: &Axis<'g>, how: &Resize<'_>) -> Result<X<'g>> {
    let g = x.graph();
    let (at, n) = (coordinates(g, a, how)?, g.size(&a.n)?.cast(DType::F64)?);
    let taps = if how.mode == "linear" { 0..2 } else { -1..3 };
    let (mut weights, mut elements) = (Vec::new(), Vec::new());
    for t in taps {
        let place = at.map(|c| c.floor() + f64::from(t))?;
        weights.push(g.map([at, place, n], |[c, j, n]| {
            let w = kernel(how.mode, how.cubic_a, (c - j).abs());
            if how.exclude_outside { j.lt(0.0).or(j.ge(n)).select(w.lit(0.0), w) } else { w }
        })?);
        let index = g.map([place, n], |[j, n]| j.max(0.0).min(n - 1.0).cast(DType::I64))?;
        elements.push(x.gather(index, a.axis, 0)?);
    }
    if how.exclude_outside {
        let total = g.map_all(&weights, sum)?;
        for w in &mut weights {
            *w = g.map([*w, total], |[w, t]| t.eq(0.0).select(w, w / t))?;
        }
    }
    for w in weights {
        elements.push(line(w.cast(x.dtype())?, a.axis, x.rank())?);
    }
    g.map_all(&elements, |all| {
        let (values, weights) = all.split_at(all.len() / 2);
        let products: Vec<S<'_>> = values.iter().zip(weights).map(|(&v, &w)| v * w).collect();
        sum(&products)
    })
}

fn sum<'e>(all: &[S<'e>]) -> S<'e> {
    all[1..].iter().fold(all[0], |a, &b| a + b)
}

/// Where the output is smaller, the kernel is stretched over all elements that an output position stands for: a product
/// with a matrix of weights (out × n). Places outside of the input count for the element at the border.
fn antialiased<'g>(x: X<'g>, a: &Axis<'g>, how: &Resize<'_>) -> Result<X<'g>> {
    let g = x.graph();
    let support = if how.mode == "linear" { 1.0 } else { 2.0 };
    let stretch = a.scale.map(|s| s.min(1.0))?;
    let radius = stretch.map(|s| (support / s).ceil().cast(DType::I64))?.to_sizes()?.swap_remove(0);
    let taps = [a.out.clone(), &radius * &Dim::Const(2)];
    let first = &Dim::ONE - &radius;
    let at = coordinates(g, a, how)?.reshape(&[a.out.clone(), Dim::ONE])?;
    let n = g.size(&a.n)?.cast(DType::F64)?;
    let place = g.map([at, g.iota(DType::F64, &taps, 1)?, g.size(&first)?.cast(DType::F64)?], |[c, t, first]| {
        c.floor() + (t + first)
    })?;
    let weight = g.map([at, place, stretch, n], |[c, j, s, n]| {
        let w = kernel(how.mode, how.cubic_a, ((j - c) * s).abs());
        if how.exclude_outside { j.lt(0.0).or(j.ge(n)).select(w.lit(0.0), w) } else { w }
    })?;
    let weight = g.map([weight, weight.sum(&[1], true)?], |[w, t]| t.eq(0.0).select(w, w / t))?;
    let row = g.iota(DType::F64, &taps, 0)?;
    let cell = g.map([place, row, n], |[j, o, n]| (o * n + j.max(0.0).min(n - 1.0)).cast(DType::I64))?;
    let cells = g.full(DType::F64, 0.0, &[&a.out * &a.n])?;
    let matrix = cells.scatter(ScatterFn::Add, cell.flatten()?, weight.flatten()?)?;
    let matrix = matrix.reshape(&[a.out.clone(), a.n.clone()])?.cast(x.dtype())?;
    let y = x.contract(matrix, &[], &[(a.axis, 1)])?;
    y.move_axis(x.rank() - 1, a.axis)
}
