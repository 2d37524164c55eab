//! Reading and writing elements by index.
use super::slice::{static_len, zero};
use super::sort::{top_k, unique};
use crate::onnx::import::table::onnx_ops;
use numrsc_ir::{DType, Dim, ReduceFn, Result, ScatterFn, build::X, refuse};

onnx_ops! { pub(super) INDEX in "", |g, cx|
    "Gather"           1 (x: Any, indices: Index) { axis: i64 = 0 }       => x.take(indices, x.axis(axis)?);
    "GatherElements"  11 (x: Any, indices: Index) { axis: i64 = 0 }       => x.gather_elements(indices, x.axis(axis)?);
    "GatherND"        11 (x: Any, indices: Index) {}                      => x.gather_nd(indices, 0);
    "GatherND"        12 (x: Any, indices: Index) { batch_dims: i64 = 0 } => gather_nd(x, indices, batch_dims);
    "Scatter"          9 (x: Any, indices: Index, updates: Any) { axis: i64 = 0 }
        => scatter_elements(x, indices, updates, axis, "none");
    "ScatterElements" 11 (x: Any, indices: Index, updates: Any) { axis: i64 = 0 }
        => scatter_elements(x, indices, updates, axis, "none");
    "ScatterElements" 16 (x: Any, indices: Index, updates: Any) { axis: i64 = 0, reduction: String = "none".into() }
        => scatter_elements(x, indices, updates, axis, &reduction);
    "ScatterND"       11 (x: Any, indices: Index, updates: Any) {}        => scatter_nd(x, indices, updates, "none");
    "ScatterND"       16 (x: Any, indices: Index, updates: Any) { reduction: String = "none".into() }
        => scatter_nd(x, indices, updates, &reduction);
    "TensorScatter"   24 (past: Any, update: Any; write_indices: Index)
        { axis: i64 = -2, mode: String = "linear".into() }
        => tensor_scatter(past, update, write_indices, axis, &mode);
    "OneHot"           9 (indices: Num, depth: Num, values: Any) { axis: i64 = -1 }
        => one_hot(indices, depth, values, axis);
    "Compress"         9 (x: Any, condition: Bool) { axis: Option<i64> }  => compress(x, condition, axis);
    "NonZero"          9 (x: Any)             {}                          => non_zero(x);
    "TopK"             1 (x: Num)             { axis: i64 = -1, k: i64 }  => top_k(x, g.ints(&[k])?, axis, true);
    "TopK"            10 (x: Num, k: Index)   { axis: i64 = -1 }          => top_k(x, k, axis, true);
    "TopK"            11 (x: Num, k: Index)   { axis: i64 = -1, largest: bool = true, sorted: bool = true }
        => top_k(x, k, axis, largest);
    "Unique"          11 (x: Any)             { axis: Option<i64>, sorted: bool = true } => unique(x, axis, sorted);
    "ArgMax"           1 (x: Num)             { axis: i64 = 0, keepdims: bool = true }
        => arg(x, ReduceFn::Max, axis, keepdims, false);
    "ArgMax"          12 (x: Num)             { axis: i64 = 0, keepdims: bool = true, select_last_index: bool = false }
        => arg(x, ReduceFn::Max, axis, keepdims, select_last_index);
    "ArgMin"           1 (x: Num)             { axis: i64 = 0, keepdims: bool = true }
        => arg(x, ReduceFn::Min, axis, keepdims, false);
    "ArgMin"          12 (x: Num)             { axis: i64 = 0, keepdims: bool = true, select_last_index: bool = false }
        => arg(x, ReduceFn::Min, axis, keepdims, select_last_index);
    "ReverseSequence" 10 (x: Any, lens: Index) { batch_axis: i64 = 1, time_axis: i64 = 0 }
        => reverse_sequence(x, lens, batch_axis, time_axis);
}

fn gather_nd<'g>(x: X<'g>, indices: X<'g>, batch: i64) -> Result<X<'g>> {
    match usize::try_from(batch) {
        Ok(batch) => x.gather_nd(indices, batch),
        Err(_) => refuse!("`batch_dims` is {batch}"),
    }
}

fn scatter_fn(reduction: &str) -> Result<ScatterFn> {
    Ok(match reduction {
        "none" => ScatterFn::Set,
        "add" => ScatterFn::Add,
        "mul" => ScatterFn::Mul,
        "max" => ScatterFn::Max,
        "min" => ScatterFn::Min,
        _ => refuse!("reduction `{reduction}` is not known"),
    })
}

fn scatter_elements<'g>(x: X<'g>, indices: X<'g>, updates: X<'g>, axis: i64, reduction: &str) -> Result<X<'g>> {
    x.scatter_elements(scatter_fn(reduction)?, indices, updates, x.axis(axis)?)
}

fn scatter_nd<'g>(x: X<'g>, indices: X<'g>, updates: X<'g>, reduction: &str) -> Result<X<'g>> {
    x.scatter_nd(scatter_fn(reduction)?, indices, updates)
}

/// `past[prefix, write_indices[prefix[0]] + s] = update[prefix, s]`, where the prefix are the axes before `axis`.
fn tensor_scatter<'g>(past: X<'g>, update: X<'g>, write: Option<X<'g>>, axis: i64, mode: &str) -> Result<X<'g>> {
    let (g, axis) = (past.graph(), past.axis(axis)?);
    let (shape, new) = (past.shape(), update.shape());
    if axis == 0 || new.len() != shape.len() {
        refuse!("cannot write {} into {} along axis {axis}", update.ty(), past.ty());
    }
    let circular = match mode {
        "linear" => false,
        "circular" => true,
        _ => refuse!("mode `{mode}` is not known"),
    };
    let per_sample = Dim::product(&shape[1..axis]);
    let prefixes = &shape[0] * &per_sample;
    let steps = [prefixes.clone(), new[axis].clone()];
    let write = match write {
        Some(w) => w.indices()?.reshape(&[shape[0].clone(), Dim::ONE])?,
        None => g.full(DType::I64, 0.0, &[shape[0].clone(), Dim::ONE])?,
    };
    let write = write.broadcast_to(&[shape[0].clone(), per_sample])?.reshape(&[prefixes.clone(), Dim::ONE])?;
    let (prefix, step) = (g.iota(DType::I64, &steps, 0)?, g.iota(DType::I64, &steps, 1)?);
    let at = g.map([prefix, write, step, g.size(&shape[axis])?], |[prefix, write, step, size]| {
        let place = if circular { (write + step).modulo(size) } else { write + step };
        // What leaves its sample must not land in the next one.
        let inside = place.ge(0.0).and(place.lt(size));
        inside.select(prefix * size + place, -1.0)
    })?;
    let rest = &shape[axis + 1..];
    let rows = past.reshape(&[&[&prefixes * &shape[axis]], rest].concat())?;
    let new_rows = update.reshape(&[&[&prefixes * &new[axis]], rest].concat())?;
    rows.scatter(ScatterFn::Set, at.flatten()?, new_rows)?.reshape(&shape)
}

/// `values[1]` where the index along the new axis is the given one (which may count from the end), else `values[0]`.
fn one_hot<'g>(indices: X<'g>, depth: X<'g>, values: X<'g>, axis: i64) -> Result<X<'g>> {
    let g = indices.graph();
    let rank = indices.rank() as i64 + 1;
    if axis < -rank || axis >= rank {
        refuse!("axis {axis} does not exist in rank {rank}");
    }
    let axis = axis.rem_euclid(rank) as usize;
    let [depth] = &depth.reshape(&[])?.to_sizes()?[..] else { unreachable!("a scalar has one element") };
    let mut shape = indices.shape();
    shape.insert(axis, depth.clone());
    let indices = indices.cast(DType::I64)?.unsqueeze(&[axis])?;
    let place = g.iota(DType::I64, &shape, axis)?;
    let (off, on) = (values.at(0, &Dim::ZERO)?, values.at(0, &Dim::ONE)?);
    g.map([place, indices, g.size(depth)?, on, off], |[place, index, depth, on, off]| {
        let index = index.lt(0.0).select(index + depth, index);
        place.eq(index).select(on, off)
    })
}

/// The slices along an axis (elements, if there is none) where the condition holds; it may be shorter than the axis.
fn compress<'g>(x: X<'g>, condition: X<'g>, axis: Option<i64>) -> Result<X<'g>> {
    let (x, axis) = match axis {
        Some(axis) => (x, x.axis(axis)?),
        None => (x.flatten()?, 0),
    };
    // What the condition says beyond the end of the axis means nothing.
    let (said, there_are) = (condition.dim(0)?, x.dim(axis as i64)?);
    let condition = match said.at_most(&there_are) {
        Some(true) => condition,
        _ => condition.slice_axis(0, &Dim::ZERO, &said.lesser(&there_are), 1)?,
    };
    x.gather(condition.compress()?, axis, 0)
}

/// The coordinates of the elements that are not 0, one row per axis.
fn non_zero(x: X<'_>) -> Result<X<'_>> {
    let (g, shape) = (x.graph(), x.shape());
    // Exporters count with the indices of a tensor of ones.
    let all = x.as_fill().is_some_and(|fill| fill.dtype() != DType::Str && fill.to_f64s() != [0.0]);
    let found = match all {
        true => g.range(DType::I64, &x.len())?,
        false => g.map([x.flatten()?, zero(x)?], |[x, zero]| x.ne(zero))?.compress()?,
    };
    if shape.is_empty() {
        return g.full(DType::I64, 0.0, &[Dim::ZERO, found.len()]);
    }
    let mut rows = Vec::new();
    for (i, n) in shape.iter().enumerate() {
        let (stride, n) = (g.size(&Dim::product(&shape[i + 1..]))?, g.size(n)?);
        // The first axis needs no remainder.
        let row = if i == 0 {
            g.map([found, stride], |[at, stride]| at / stride)?
        } else {
            g.map([found, stride, n], |[at, stride, n]| (at / stride) % n)?
        };
        rows.push(row.unsqueeze(&[0])?);
    }
    g.concat(&rows, 0)
}

fn arg(x: X<'_>, f: ReduceFn, axis: i64, keep: bool, last: bool) -> Result<X<'_>> {
    let axis = x.axis(axis)?;
    let found = x.arg(f, axis, last)?;
    if keep { found.unsqueeze(&[axis]) } else { Ok(found) }
}

/// Reverse the first `lens[b]` time steps of every batch entry.
fn reverse_sequence<'g>(x: X<'g>, lens: X<'g>, batch_axis: i64, time_axis: i64) -> Result<X<'g>> {
    let g = x.graph();
    if x.rank() < 2 || !matches!((batch_axis, time_axis), (0, 1) | (1, 0)) {
        refuse!("batch axis {batch_axis} and time axis {time_axis} of {}: they must be the first two", x.ty());
    }
    let mut perm: Vec<usize> = (0..x.rank()).collect();
    perm.swap(0, batch_axis as usize);
    let x = x.transpose(&perm)?;
    let shape = &x.shape()[..2];
    if static_len(lens).is_ok_and(|n| Dim::from(n).equals(&shape[0]) == Some(false)) {
        refuse!("{} lengths for a batch of {}", lens.ty(), shape[0]);
    }
    let step = g.iota(DType::I64, shape, 1)?;
    let lens = lens.indices()?.reshape(&[shape[0].clone(), Dim::ONE])?;
    let at = g.map([step, lens], |[t, len]| t.lt(len).select(len - 1.0 - t, t))?;
    x.gather(at, 1, 1)?.transpose(&perm)
}
