//! Values between the elements of a tensor: points given by coordinates, from the elements around them.
use super::{conv::spatial, pool::wide, resize::kernel};
use numrsc_ir::{
    DType, Dim, Result,
    build::{Graph, X},
    expr::S,
    refuse,
};

/// What counts beyond the borders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outside {
    Zeros,
    Border,
    /// Mirrored at the centres of the outermost elements (`true`) or at their outer edges.
    Reflection(bool),
}

/// Coordinates have to be smaller to count.
const FARTHEST: f64 = 1e18;

/// For each point, the elements of one axis that it is made of, along an axis before the last: their indices and weights. Neighbouring points are neighbours
/// in memory then.
pub(super) struct Taps<'g> {
    index: X<'g>,
    weight: X<'g>,
}

/// Taps of an axis of size `n` around float coordinates.
pub(super) fn taps<'g>(at: X<'g>, n: &Dim, mode: &str, outside: Outside) -> Result<Taps<'g>> {
    let g = at.graph();
    let (count, first) = if mode == "linear" { (2, 0.0) } else { (4, -1.0) };
    let at = at.unsqueeze(&[at.rank() - 1])?;
    let steps = g.range(at.dtype(), &Dim::Const(count))?.unsqueeze(&[1])?;
    let n = g.size(n)?.cast(at.dtype())?;
    let place = g.map([at, steps, n], |[c, t, n]| far(c, n).floor() + t + first)?;
    let weight = g.map([at, place, n], |[c, j, n]| {
        let w = kernel(mode, -0.75, (far(c, n) - j).abs());
        if outside == Outside::Zeros { j.lt(0.0).or(j.ge(n)).select(w.lit(0.0), w) } else { w }
    })?;
    let index = g.map([place, n], |[j, n]| inside(j, n, outside).max(0.0).min(n - 1.0).cast(DType::I64))?;
    Ok(Taps { index, weight })
}

/// Coordinates so far outside that no tap is inside need not go further, which keeps them in the range of integers.
fn far<'e>(c: S<'e>, n: S<'e>) -> S<'e> {
    c.max(-4.0).min(n + 4.0)
}

/// The place that a place beyond the borders stands for.
fn inside<'e>(c: S<'e>, n: S<'e>, outside: Outside) -> S<'e> {
    let Outside::Reflection(centres) = outside else { return c };
    // Mirror at `low` and `high` until inside: every second repetition runs backwards.
    let (low, high) = if centres { (n.lit(0.0), n - 1.0) } else { (n.lit(-0.5), n - 0.5) };
    let length = high - low;
    let beyond = c.lt(low).select(low - c, c - high);
    let turns = (beyond / length).trunc();
    let rest = beyond - turns * length;
    let backwards = turns.modulo(2.0).eq(1.0);
    let from_low = c.lt(low).xor(backwards);
    let mirrored = from_low.select(low + rest, high - rest);
    let mirrored = length.gt(0.0).select(mirrored, low);
    c.lt(low).or(c.gt(high)).select(mirrored, c)
}

/// Values of `x` (shared axes.., channels, space..) at points (shared axes.., points) that `taps` describe for each
/// spatial axis, as (shared axes.., channels, points).
pub(super) fn sample<'g>(x: X<'g>, shared: usize, taps: &[Taps<'g>]) -> Result<X<'g>> {
    let (g, rank, shape) = (x.graph(), taps.len(), x.shape());
    if shape.len() != shared + 1 + rank {
        refuse!("{} does not have {rank} spatial axes after {}", x.ty(), shared + 1);
    }
    // Axis i of the taps, with size 1 for the others.
    let spread = |v: X<'g>, i: usize| {
        let others: Vec<usize> = (0..rank).filter(|j| *j != i).map(|j| shared + j).collect();
        v.unsqueeze(&others)
    };
    let mut at = g.scalar(DType::I64, 0.0)?;
    let mut weight = g.scalar(x.dtype(), 1.0)?;
    for (i, t) in taps.iter().enumerate() {
        let n = g.size(&shape[shared + 1 + i])?;
        at = g.map([at, spread(t.index, i)?, n], |[at, j, n]| at * n + j)?;
        weight = g.map([weight, spread(t.weight.cast(x.dtype())?, i)?], |[a, b]| a * b)?;
    }
    let flat = [&shape[..=shared], &[Dim::product(&shape[shared + 1..])]].concat();
    let values = x.reshape(&flat)?.gather(at, shared + 1, shared)?;
    let weight = weight.unsqueeze(&[shared])?;
    let parts = g.map([values, weight], |[v, w]| w.eq(0.0).select(v.lit(0.0), v * w))?;
    let summed: Vec<usize> = (shared + 1..shared + 1 + rank).collect();
    parts.sum(&summed, false)
}

pub(super) fn grid_sample<'g>(x: X<'g>, grid: X<'g>, mode: &str, padding: &str, align_corners: bool) -> Result<X<'g>> {
    let g = x.graph();
    let (shape, space, rank) = (x.shape(), spatial(x)?, x.rank().saturating_sub(2));
    let to = grid.shape();
    if to.len() < 2 || to[to.len() - 1].equals(&Dim::from(rank)) == Some(false) || to.len() != rank + 2 {
        refuse!("the grid {} does not name points of {}", grid.ty(), x.ty());
    }
    let outside = match padding {
        "zeros" => Outside::Zeros,
        "border" => Outside::Border,
        "reflection" => Outside::Reflection(align_corners),
        other => refuse!("`padding_mode` {other:?} is not zeros, border or reflection"),
    };
    let numbers = x.dtype().is_float() || x.dtype().is_int();
    if (mode != "nearest" && !numbers) || x.dtype() == DType::Str {
        refuse!("elements of type {} cannot be computed", x.dtype());
    }
    let points = [shape[0].clone(), Dim::product(&to[1..to.len() - 1])];
    let mut places = Vec::new();
    for (i, n) in space.iter().enumerate() {
        // The last axis of the grid counts spatial axes from the innermost.
        let at = wide(grid.at(rank + 1, &Dim::from(rank - 1 - i))?)?.reshape(&points)?;
        let size = g.size(n)?.cast(at.dtype())?;
        places.push(g.map([at, size], |[c, n]| {
            // What is no number, or too large to be a place, is the first one.
            let c = c.abs().lt(FARTHEST).select(c, -1.0);
            let c = if align_corners { (c + 1.0) / 2.0 * (n - 1.0) } else { ((c + 1.0) * n - 1.0) / 2.0 };
            let c = if mode == "nearest" { c.round() } else { c };
            // At the border, elements are repeated, and coordinates may lie beyond.
            match outside {
                Outside::Zeros | Outside::Border => c,
                Outside::Reflection(_) => inside(c, n, outside),
            }
        })?);
    }
    let y = match mode {
        "nearest" => pick(g, x, &places, outside)?,
        "linear" | "cubic" => {
            let inner = if x.dtype().is_int() { x.cast(DType::F64)? } else { wide(x)? };
            let all: Vec<Taps<'g>> =
                places.iter().zip(&space).map(|(at, n)| taps(*at, n, mode, outside)).collect::<Result<_>>()?;
            sample(inner, 1, &all)?.map(|y| y.cast_sat(x.dtype()))?
        }
        other => refuse!("`mode` {other:?} is not supported"),
    };
    y.reshape(&[&shape[..2], &to[1..to.len() - 1]].concat())
}

/// Elements at whole coordinates; `x` is (batch, channels, space..), coordinates are (batch, points).
fn pick<'g>(g: &'g Graph, x: X<'g>, places: &[X<'g>], outside: Outside) -> Result<X<'g>> {
    let shape = x.shape();
    let (mut at, mut hit) = (g.scalar(DType::I64, 0.0)?, g.scalar(DType::Bool, 1.0)?);
    for (place, n) in places.iter().zip(&shape[2..]) {
        let size = g.size(n)?.cast(place.dtype())?;
        hit = g.map([hit, *place, size], |[hit, c, n]| hit.and(c.ge(0.0)).and(c.lt(n)))?;
        let index = g.map([*place, size], |[c, n]| c.max(0.0).min(n - 1.0).cast(DType::I64))?;
        at = g.map([at, index, g.size(n)?], |[at, j, n]| at * n + j)?;
    }
    let flat = [&shape[..2], &[Dim::product(&shape[2..])]].concat();
    let y = x.reshape(&flat)?.gather(at, 2, 1)?;
    if outside != Outside::Zeros {
        return Ok(y);
    }
    g.map([y, hit.unsqueeze(&[1])?], |[y, hit]| hit.select(y, y.lit(0.0)))
}

/// Positions evenly spaced from -1 to 1 in each spatial axis, moved by the matrices `theta` (batch, r, r + 1).
pub(super) fn affine_grid<'g>(theta: X<'g>, size: X<'g>, align_corners: bool) -> Result<X<'g>> {
    let g = theta.graph();
    let size = size.to_sizes()?;
    let Some(space) = size.get(2..).filter(|s| !s.is_empty()) else {
        refuse!("`size` must hold batch, channels and spatial sizes, got {} numbers", size.len());
    };
    let rank = space.len();
    let want = [size[0].clone(), Dim::from(rank), Dim::from(rank + 1)];
    if theta.rank() != 3 || theta.shape().iter().zip(&want).any(|(a, b)| a.equals(b) == Some(false)) {
        refuse!("`theta` {} must have shape {want:?}", theta.ty());
    }
    let matrix = wide(theta)?.reshape(&want)?;
    // Homogeneous positions, the innermost axis first.
    let points = [space, &[Dim::ONE]].concat();
    let mut parts = Vec::new();
    for i in (0..rank).rev() {
        let n = g.size(&space[i])?.cast(DType::F64)?;
        let position = g.map([g.iota(DType::F64, &points, i)?, n], |[k, n]| {
            if align_corners { 2.0 * k / (n - 1.0).max(1.0) - 1.0 } else { (2.0 * k + 1.0) / n - 1.0 }
        })?;
        parts.push(position.cast(matrix.dtype())?);
    }
    parts.push(g.full(matrix.dtype(), 1.0, &points)?);
    let positions = g.concat(&parts, rank)?;
    matrix.contract(positions, &[], &[(2, rank)])?.move_axis(1, rank + 1)?.cast(theta.dtype())
}
