//! Shapes and the operators that move elements without computing with them. Sizes that arrive as values stay symbolic
//! where they are known, and are bound to new symbols where only run time tells.
use super::slice::{self, elements, known, static_len, zero};
use crate::onnx::import::{Ctx, table::onnx_ops};
use numrsc_ir::{
    DType, Dim, Elems, ReduceFn, Result, ScatterFn, Tensor,
    build::{Graph, X, broadcast_shapes},
    refuse,
};

onnx_ops! { pub(super) SHAPE in "", |g, cx|
    "Constant"         1 () { value: Tensor } => g.constant(value);
    "Constant"        11 () { value: Option<Tensor>, sparse_value: Option<Tensor> }
        => constant(g, [value, sparse_value]);
    "Constant"        12 () {
        value: Option<Tensor>, sparse_value: Option<Tensor>, value_int: Option<i64>, value_ints: Option<Vec<i64>>,
        value_float: Option<f64>, value_floats: Option<Vec<f64>>,
        value_string: Option<String>, value_strings: Option<Vec<String>>,
    } => constant(g, [
        value,
        sparse_value,
        value_int.map(|i| Tensor::from_i64(&[], &[i])),
        value_ints.map(|v| Tensor::from_i64(&[v.len()], &v)),
        value_float.map(|x| Tensor::scalar(DType::F32, x)),
        value_floats.map(|v| Tensor::from_elems(DType::F32, vec![v.len()], &Elems::Float(v))),
        value_string.map(|s| Tensor::from_strings(vec![], vec![s])).transpose()?,
        value_strings.map(|v| Tensor::from_strings(vec![v.len()], v)).transpose()?,
    ]);
    "ConstantOfShape"  9 (shape: Index) { value: Option<Tensor> }            => constant_of_shape(g, shape, value);
    "Identity"         1 (x: Value)     {}                                   => same(x);

    "Shape"            1 (x: Any)       {}                                   => x.shape_of();
    "Shape"           15 (x: Any)       { start: i64 = 0, end: i64 = i64::MAX } => shape_between(x, start, end);
    "Size"             1 (x: Any)       {}                                   => g.size(&x.len());
    "Reshape"          1 (x: Any)       { shape: Vec<i64>, consumed_inputs: Option<Vec<i64>> }
        => reshape(x, g.ints(&shape)?, false);
    "Reshape"          5 (x: Any, shape: Index) {}                           => reshape(x, shape, false);
    "Reshape"         14 (x: Any, shape: Index) { allowzero: bool = false }  => reshape(x, shape, allowzero);
    "Flatten"          1 (x: Any)       { axis: i64 = 1 }                    => flatten(x, axis);
    "Transpose"        1 (x: Any)       { perm: Option<Vec<i64>> }           => transpose(x, perm);
    "Squeeze"          1 (x: Any)       { axes: Option<Vec<i64>> }           => squeeze(x, list(g, axes)?);
    "Squeeze"         13 (x: Any; axes: Index)  {}                           => squeeze(x, axes);
    "Unsqueeze"        1 (x: Any)       { axes: Vec<i64> }                   => unsqueeze(x, g.ints(&axes)?);
    "Unsqueeze"       13 (x: Any, axes: Index)  {}                           => unsqueeze(x, axes);
    "Expand"           8 (x: Any, shape: Index) {}                           => expand(x, shape);
    "Tile"             1 (x: Any, tiles: Num, axis: Num) {}                  => tile(x, tiles, Some(axis));
    "Tile"             6 (x: Any, repeats: Index) {}                         => tile(x, repeats, None);

    "Concat"           1 (..xs: Any)    { axis: i64 = 1 }                    => concat(g, &xs, axis);
    "Concat"           4 (..xs: Any)    { axis: i64 }                        => concat(g, &xs, axis);
    "Split"            1 (x: Any; sizes: Num) { axis: i64 = 0, split: Option<Vec<i64>> }
        => split_parts(cx, x, sizes, split, axis);
    "Split"           13 (x: Any; sizes: Index) { axis: i64 = 0 }            => split_parts(cx, x, sizes, None, axis);
    "Split"           18 (x: Any; sizes: Index) { axis: i64 = 0, num_outputs: Option<i64> }
        => split_into(cx, x, sizes, num_outputs, axis);
    "Slice"            1 (x: Any)       { starts: Vec<i64>, ends: Vec<i64>, axes: Option<Vec<i64>> }
        => slice::slice(x, g.ints(&starts)?, g.ints(&ends)?, list(g, axes)?, None);
    "Slice"           10 (x: Any, starts: Index, ends: Index; axes: Index, steps: Index) {}
        => slice::slice(x, starts, ends, axes, steps);
    "Pad"              1 (x: Float)     { paddings: Vec<i64>, mode: String = "constant".into(), value: f64 = 0.0 }
        => slice::pad(x, g.ints(&paddings)?, Some(g.scalar(x.dtype(), value)?), None, &mode);
    "Pad"              2 (x: Float)     { pads: Vec<i64>, mode: String = "constant".into(), value: f64 = 0.0 }
        => slice::pad(x, g.ints(&pads)?, Some(g.scalar(x.dtype(), value)?), None, &mode);
    "Pad"             11 (x: Any, pads: Index; value: Any) { mode: String = "constant".into() }
        => slice::pad(x, pads, value, None, &mode);
    "Pad"             18 (x: Any, pads: Index; value: Any, axes: Index) { mode: String = "constant".into() }
        => slice::pad(x, pads, value, axes, &mode);
    "CenterCropPad"   18 (x: Any, shape: Index) { axes: Option<Vec<i64>> }   => slice::center_crop_pad(x, shape, axes);

    "Range"           11 (start: Num, limit: Num, delta: Num) {}             => range(start, limit, delta);
    "Range"           27 (start: Num, limit: Num, delta: Num) { stash_type: DType = DType::F32 }
        => range_stashed(start, limit, delta, stash_type);
    "EyeLike"          9 (x: Any)       { dtype: Option<DType>, k: i64 = 0 } => eye_like(x, dtype, k);
    "Trilu"           14 (x: Any; k: Index) { upper: bool = true }           => trilu(x, k, upper);
    "DepthToSpace"     1 (x: Any)       { blocksize: i64 }                   => depth_to_space(x, blocksize, "DCR");
    "DepthToSpace"    11 (x: Any)       { blocksize: i64, mode: String = "DCR".into() }
        => depth_to_space(x, blocksize, &mode);
    "SpaceToDepth"     1 (x: Any)       { blocksize: i64 }                   => space_to_depth(x, blocksize, "DCR");
    "SpaceToDepth"    28 (x: Any)       { blocksize: i64, mode: String = "DCR".into() }
        => space_to_depth(x, blocksize, &mode);
}

fn same(x: X<'_>) -> Result<X<'_>> {
    Ok(x)
}

/// An optional list of integers as a value.
fn list(g: &Graph, v: Option<Vec<i64>>) -> Result<Option<X<'_>>> {
    v.map(|v| g.ints(&v)).transpose()
}

/// The one value that a `Constant` has among its attributes.
fn constant<const N: usize>(g: &Graph, values: [Option<Tensor>; N]) -> Result<X<'_>> {
    let mut given: Vec<Tensor> = values.into_iter().flatten().collect();
    match (given.pop(), given.is_empty()) {
        (Some(value), true) => g.constant(value),
        _ => refuse!("exactly one of the value attributes must be given"),
    }
}

fn constant_of_shape<'g>(g: &'g Graph, shape: X<'g>, value: Option<Tensor>) -> Result<X<'g>> {
    let value = value.unwrap_or_else(|| Tensor::scalar(DType::F32, 0.0));
    if value.len() != 1 {
        refuse!("attribute `value` has {} elements, not one", value.len());
    }
    g.constant(value)?.reshape(&[])?.broadcast_to(&shape.to_sizes()?)
}

fn shape_between(x: X<'_>, start: i64, end: i64) -> Result<X<'_>> {
    let dims = x.shape();
    let rank = dims.len() as i64;
    let place = |i: i64| (if i < 0 { i.saturating_add(rank) } else { i }).clamp(0, rank) as usize;
    x.graph().dims(dims.get(place(start)..place(end)).unwrap_or_default())
}

/// 0 copies the size of the same axis (unless `allow_zero`), -1 is what is left.
fn reshape<'g>(x: X<'g>, shape: X<'g>, allow_zero: bool) -> Result<X<'g>> {
    let (g, from) = (x.graph(), x.shape());
    let parts = elements(shape)?;
    let mut dims: Vec<Option<Dim>> = Vec::new();
    let mut inferred = 0;
    for (i, part) in parts.iter().enumerate() {
        dims.push(match known(*part) {
            Some(Dim::Const(0)) if !allow_zero => match from.get(i) {
                Some(d) => Some(d.clone()),
                None => refuse!("shape copies axis {i}, which {} does not have", x.ty()),
            },
            Some(Dim::Const(-1)) => {
                inferred += 1;
                None
            }
            Some(Dim::Const(c)) if c < 0 => refuse!("shape has the size {c}"),
            // A value of any sign may turn out to be -1 at run time.
            Some(d) if !mentions_signed(&d) => Some(d),
            _ => None,
        });
    }
    if inferred > 1 {
        refuse!("shape has more than one -1");
    }
    let rest = Dim::product(dims.iter().flatten());
    let open = dims.iter().filter(|d| d.is_none()).count();
    // Whether a single open size is -1, 0 or a number, it is what the number of elements leaves.
    let left = match open {
        0 => Some(Dim::ZERO),
        1 if rest == Dim::ZERO && inferred > 0 => refuse!("the size for -1 cannot be told, {} may be empty", x.ty()),
        1 => x.len().exact_div(&rest).or_else(|| (inferred > 0).then(|| x.len().floor_div(&rest))),
        _ => None,
    };
    if let Some(left) = left {
        let dims: Vec<Dim> = dims.into_iter().map(|d| d.unwrap_or_else(|| left.clone())).collect();
        return x.reshape(&dims);
    }
    let mut values = Vec::new();
    for (i, (part, dim)) in parts.iter().zip(&dims).enumerate() {
        let value = match (dim, from.get(i)) {
            (Some(d), _) => g.size(d)?,
            (None, Some(d)) if !allow_zero => g.map([*part, g.size(d)?], |[p, d]| p.eq(0.0).select(d, p))?,
            (None, _) => *part,
        };
        values.push(value.reshape(&[Dim::ONE])?);
    }
    let values = g.concat(&values, 0)?;
    let rest = values.map(|v| v.eq(-1.0).select(v.lit(1.0), v))?.reduce(ReduceFn::Prod, &[0], false)?;
    let sizes = g.map([values, rest, g.size(&x.len())?], |[v, rest, n]| v.eq(-1.0).select(n / rest.max(1.0), v))?;
    x.reshape(&sizes.to_sizes()?)
}

/// Does the expression use a value that may be negative by its name?
fn mentions_signed(d: &Dim) -> bool {
    let mut found = false;
    d.for_each_sym(&mut |s| found |= s.starts_with('$'));
    found
}

/// Is the expression made of names that the model has?
fn is_named(d: &Dim) -> bool {
    let mut named = true;
    d.for_each_sym(&mut |s| named &= !s.starts_with(['$', '_']));
    named
}

fn flatten(x: X<'_>, axis: i64) -> Result<X<'_>> {
    let rank = x.rank() as i64;
    if axis < -rank || axis > rank {
        refuse!("axis {axis} does not exist in {}", x.ty());
    }
    x.flatten_to_2d(if axis < 0 { axis + rank } else { axis } as usize)
}

fn transpose(x: X<'_>, perm: Option<Vec<i64>>) -> Result<X<'_>> {
    match perm {
        Some(perm) => x.transpose(&x.axes(&perm)?),
        None => x.transpose(&(0..x.rank()).rev().collect::<Vec<_>>()),
    }
}

fn squeeze<'g>(x: X<'g>, axes: Option<X<'g>>) -> Result<X<'g>> {
    let (g, shape) = (x.graph(), x.shape());
    let Some(axes) = axes.filter(|a| a.len() != Dim::ZERO) else { return squeeze_ones(x) };
    if let Some(axes) = axes.as_ints() {
        return x.squeeze(&x.axes(&axes)?);
    }
    let count = static_len(axes)?;
    let Some(rank) = shape.len().checked_sub(count) else { refuse!("{count} axes of {} to squeeze", x.ty()) };
    // Every axis that stays goes to the place that follows from how many stay before it, all others to the end.
    let (gone, before) = chosen_axes(axes, shape.len())?;
    let places = g.map([gone, before], |[gone, before]| gone.select(before.lit(rank as f64), before))?;
    let sizes = g.ints(&vec![0; rank + 1])?.scatter(ScatterFn::Set, places, g.dims(&shape)?)?;
    x.reshape(&sizes.slice_axis(0, &Dim::ZERO, &Dim::from(rank), 1)?.to_sizes()?)
}

/// Without the axes of size 1. A size that the model names must be given a number if it may be 1, because the rank
/// depends on it; one that only run time tells is taken for another, and refused if it turns out to be 1.
fn squeeze_ones(x: X<'_>) -> Result<X<'_>> {
    let g = x.graph();
    let mut shape = Vec::new();
    for d in x.shape() {
        match d.equals(&Dim::ONE) {
            Some(true) => {}
            Some(false) => shape.push(d),
            None if is_named(&d) => {
                refuse!("without `axes`, whether {d} in {} is 1 must be known", x.ty())
            }
            None => shape.extend(g.size(&d)?.map(|d| d.eq(1.0).select(d.lit(-1.0), d))?.to_sizes()?),
        }
    }
    x.reshape(&shape)
}

fn unsqueeze<'g>(x: X<'g>, axes: X<'g>) -> Result<X<'g>> {
    let (g, shape) = (x.graph(), x.shape());
    let rank = shape.len() + static_len(axes)?;
    if let Some(axes) = axes.as_ints() {
        let mut places = Vec::new();
        for a in axes {
            if a < -(rank as i64) || a >= rank as i64 {
                refuse!("axis {a} does not exist in rank {rank}");
            }
            places.push(a.rem_euclid(rank as i64) as usize);
        }
        return x.unsqueeze(&places);
    }
    let ones = vec![Dim::ONE; rank];
    if shape.is_empty() {
        return x.reshape(&ones);
    }
    let (new, before) = chosen_axes(axes, rank)?;
    let last = (shape.len() - 1) as f64;
    let old = g.dims(&shape)?.gather(before.map(|b| b.min(last))?, 0, 0)?;
    x.reshape(&g.map([new, old], |[new, old]| new.select(old.lit(1.0), old))?.to_sizes()?)
}

/// Which of the axes of a rank a run-time list names (which may count from the end), and for every axis how many
/// before it are not named.
fn chosen_axes<'g>(axes: X<'g>, rank: usize) -> Result<(X<'g>, X<'g>)> {
    let g = axes.graph();
    let axes = axes.flatten()?.wrap_indices(&Dim::from(rank))?;
    let ones = g.full(DType::I64, 1.0, &axes.shape())?;
    let named = g.ints(&vec![0; rank])?.scatter(ScatterFn::Set, axes, ones)?;
    let before = named.map(|c| 1.0 - c)?.scan(ReduceFn::Sum, 0, true, false)?;
    Ok((named.cast(DType::Bool)?, before))
}

fn expand<'g>(x: X<'g>, shape: X<'g>) -> Result<X<'g>> {
    x.broadcast_to(&broadcast_shapes(&x.shape(), &shape.to_sizes()?)?)
}

/// Repeat axis `i` as often as `repeats[i]` says, or axis `axis` only.
fn tile<'g>(x: X<'g>, repeats: X<'g>, axis: Option<X<'g>>) -> Result<X<'g>> {
    if axis.is_none() && static_len(repeats)? != x.rank() {
        refuse!("{} repeats for {}", static_len(repeats)?, x.ty());
    }
    let mut y = x;
    for (i, times) in slice::per_axis(x, repeats, axis, 1)?.into_iter().enumerate() {
        let [times] = &times.to_sizes()?[..] else { unreachable!("a scalar has one element") };
        if *times == Dim::ONE {
            continue;
        }
        let mut shape = y.shape();
        let tiled = &shape[i] * times;
        shape.insert(i, times.clone());
        let others: Vec<usize> = (0..shape.len()).filter(|&a| a != i).collect();
        y = y.broadcast_in(&shape, &others)?;
        shape.remove(i);
        shape[i] = tiled;
        y = y.reshape(&shape)?;
    }
    Ok(y)
}

fn concat<'g>(g: &'g Graph, xs: &[X<'g>], axis: i64) -> Result<X<'g>> {
    match xs.first() {
        Some(first) => g.concat(xs, first.axis(axis)?),
        None => refuse!("there is nothing to concatenate"),
    }
}

/// Parts of given sizes, or as many equal parts as there are outputs.
fn split_parts<'g>(
    cx: &Ctx<'_, 'g>,
    x: X<'g>,
    sizes: Option<X<'g>>,
    split: Option<Vec<i64>>,
    axis: i64,
) -> Result<Vec<X<'g>>> {
    let axis = x.axis(axis)?;
    let sizes = match (sizes, split.filter(|s| !s.is_empty())) {
        (Some(_), Some(_)) => refuse!("the sizes are given as an input and as an attribute"),
        (Some(sizes), None) => sizes.to_sizes()?,
        (None, Some(sizes)) => sizes.into_iter().map(Dim::Const).collect(),
        (None, None) => {
            let count = cx.outputs().max(1);
            vec![x.shape()[axis].floor_div(&Dim::from(count)); count]
        }
    };
    split_exactly(x, axis, &sizes)
}

/// Parts of given sizes, or `count` parts of which the last may be smaller.
fn split_into<'g>(
    cx: &Ctx<'_, 'g>,
    x: X<'g>,
    sizes: Option<X<'g>>,
    count: Option<i64>,
    axis: i64,
) -> Result<Vec<X<'g>>> {
    let Some(count) = count else { return split_parts(cx, x, sizes, None, axis) };
    if sizes.is_some() {
        refuse!("both `split` and `num_outputs` are given");
    }
    let outputs = cx.outputs();
    if count < 1 || usize::try_from(count) != Ok(outputs) {
        refuse!("`num_outputs` is {count}, the node has {outputs}");
    }
    let axis = x.axis(axis)?;
    let n = &x.shape()[axis];
    let part = n.ceil_div(&Dim::Const(count));
    let mut sizes = vec![part.clone(); outputs];
    let mut left = n.clone();
    for (i, size) in sizes.iter_mut().enumerate() {
        // Equal parts take the whole axis; otherwise the last ones get what is left.
        if left.as_const().is_some() {
            *size = part.lesser(&left);
        } else if i + 1 == outputs {
            *size = left.clone();
        }
        left = &left - size;
    }
    split_exactly(x, axis, &sizes)
}

/// Parts that must take the whole axis, which is checked at run time if it is not certain.
fn split_exactly<'g>(x: X<'g>, axis: usize, sizes: &[Dim]) -> Result<Vec<X<'g>>> {
    let total = sizes.iter().fold(Dim::ZERO, |sum, s| &sum + s);
    let mut shape = x.shape();
    if shape[axis].equals(&total) == Some(false) {
        refuse!("parts of {total} elements in all do not split axis {axis} of {}", x.ty());
    }
    shape[axis] = total;
    x.reshape(&shape)?.split(axis, sizes)
}

/// `start + i * delta` for `0 <= i < ceil((limit - start) / delta)`
fn range<'g>(start: X<'g>, limit: X<'g>, delta: X<'g>) -> Result<X<'g>> {
    let (g, dtype) = (start.graph(), start.dtype());
    let [start, limit, delta] = [start.reshape(&[])?, limit.reshape(&[])?, delta.reshape(&[])?];
    if delta.as_number() == Some(0.0) {
        refuse!("`delta` is 0");
    }
    let count = match (known(start), known(limit), known(delta)) {
        (Some(from), Some(to), Some(Dim::Const(by))) => (&to - &from).ceil_div(&Dim::Const(by)).greater(&Dim::ZERO),
        _ => {
            let count = if dtype.is_float() {
                g.map([start, limit, delta], |[from, to, by]| {
                    let steps = (to - from).cast(DType::F64) / by.cast(DType::F64);
                    steps.ceil().max(0.0).cast(DType::I64)
                })?
            } else {
                let [start, limit, delta] = [start.cast(DType::I64)?, limit.cast(DType::I64)?, delta.cast(DType::I64)?];
                g.map([start, limit, delta], |[from, to, by]| {
                    let way = by.lt(0.0).select(from - to, to - from);
                    way.gt(0.0).select((way - 1.0) / by.abs() + 1.0, 0.0)
                })?
            };
            count.reshape(&[Dim::ONE])?.to_sizes()?.remove(0)
        }
    };
    let places = g.range(dtype, &count)?;
    match (start.as_number(), delta.as_number()) {
        (Some(0.0), Some(1.0)) => Ok(places),
        _ => g.map([places, start, delta], |[i, start, delta]| start + i * delta),
    }
}

/// Ranges of 16-bit floats are computed in another type, so that large counts stay exact.
fn range_stashed<'g>(start: X<'g>, limit: X<'g>, delta: X<'g>, stash: DType) -> Result<X<'g>> {
    let dtype = start.dtype();
    if !dtype.is_float() || dtype.bits() > 16 {
        return range(start, limit, delta);
    }
    range(start.cast(stash)?, limit.cast(stash)?, delta.cast(stash)?)?.cast(dtype)
}

fn eye_like(x: X<'_>, dtype: Option<DType>, k: i64) -> Result<X<'_>> {
    let (g, shape, dtype) = (x.graph(), x.shape(), dtype.unwrap_or(x.dtype()));
    if shape.len() != 2 {
        refuse!("the input must have rank 2, got {}", x.ty());
    }
    let [row, column] = [g.iota(DType::I64, &shape, 0)?, g.iota(DType::I64, &shape, 1)?];
    g.map([row, column], |[i, j]| (j - i).eq(i.int(k.into())).cast(dtype))
}

/// Zero below (above) diagonal `k`.
fn trilu<'g>(x: X<'g>, k: Option<X<'g>>, upper: bool) -> Result<X<'g>> {
    let (g, shape) = (x.graph(), x.shape());
    let Some(rows) = shape.len().checked_sub(2) else { refuse!("the input must have rank 2 or more, got {}", x.ty()) };
    let k = k.map_or_else(|| g.scalar(DType::I64, 0.0), |k| k.cast(DType::I64)?.reshape(&[]))?;
    let [row, column] = [g.iota(DType::I64, &shape[rows..], 0)?, g.iota(DType::I64, &shape[rows..], 1)?];
    g.map([x, row, column, k, zero(x)?], |[x, i, j, k, zero]| {
        let keep = if upper { (j - i).ge(k) } else { (j - i).le(k) };
        keep.select(x, zero)
    })
}

/// Channels `[b, b, c]` (`[c, b, b]` if `CRD`) to blocks in space: `[n, c*b*b, h, w] -> [n, c, h*b, w*b]`
fn depth_to_space<'g>(x: X<'g>, blocksize: i64, mode: &str) -> Result<X<'g>> {
    let [n, c, h, w] = image(x, blocksize)?;
    let b = Dim::Const(blocksize);
    let depth = c.floor_div(&(&b * &b));
    let (split, perm) = match mode {
        "DCR" => ([n.clone(), b.clone(), b.clone(), depth.clone(), h.clone(), w.clone()], [0, 3, 4, 1, 5, 2]),
        "CRD" => ([n.clone(), depth.clone(), b.clone(), b.clone(), h.clone(), w.clone()], [0, 1, 4, 2, 5, 3]),
        _ => refuse!("mode `{mode}` is not known"),
    };
    x.reshape(&split)?.transpose(&perm)?.reshape(&[n, depth, &h * &b, &w * &b])
}

/// Blocks in space to channels `[b, b, c]` (`[c, b, b]` if `CRD`): `[n, c, h*b, w*b] -> [n, c*b*b, h, w]`
fn space_to_depth<'g>(x: X<'g>, blocksize: i64, mode: &str) -> Result<X<'g>> {
    let [n, c, h, w] = image(x, blocksize)?;
    let b = Dim::Const(blocksize);
    let perm = match mode {
        "DCR" => [0, 3, 5, 1, 2, 4],
        "CRD" => [0, 1, 3, 5, 2, 4],
        _ => refuse!("mode `{mode}` is not known"),
    };
    let (h, w) = (h.floor_div(&b), w.floor_div(&b));
    let split = [n.clone(), c.clone(), h.clone(), b.clone(), w.clone(), b.clone()];
    x.reshape(&split)?.transpose(&perm)?.reshape(&[n, &c * &(&b * &b), h, w])
}

fn image(x: X<'_>, blocksize: i64) -> Result<[Dim; 4]> {
    if !(1..=1 << 20).contains(&blocksize) {
        refuse!("`blocksize` is {blocksize}");
    }
    match <[Dim; 4]>::try_from(x.shape()) {
        Ok(shape) => Ok(shape),
        Err(_) => refuse!("the input must have rank 4, got {}", x.ty()),
    }
}
