//! Matrix products, Einstein sums and determinants.
use super::reduce::wide;
use crate::onnx::import::table::onnx_ops;
use numrsc_ir::{
    DType, Dim, Error, ReduceFn, Result,
    build::{LoopBody, LoopOut, X},
    expr::S,
    refuse,
};
use std::collections::BTreeMap;

onnx_ops! { pub(super) LINALG in "", |g, cx|
    "MatMul"  1 (a: Num, b: Num)           {}
        => a.matmul(b);
    "Gemm"    1 (a: Num, b: Num, c: Num)
        { alpha: f64 = 1.0, beta: f64 = 1.0, transA: bool = false, transB: bool = false, broadcast: bool = false }
        => gemm([a, b], Some(c), [alpha, beta], [transA, transB], broadcast);
    "Gemm"    7 (a: Num, b: Num; c: Num)
        { alpha: f64 = 1.0, beta: f64 = 1.0, transA: bool = false, transB: bool = false }
        => gemm([a, b], c, [alpha, beta], [transA, transB], true);
    "Einsum" 12 (..xs: Num)                { equation: String }
        => einsum(&xs, &equation);
    "Det"    11 (x: Float)                 {}
        => determinant(x);
}

/// `alpha * a * b + beta * c`, where `a` and `b` may be transposed first and `c` repeats to the result's shape.
fn gemm<'g>(
    [a, b]: [X<'g>; 2],
    c: Option<X<'g>>,
    [alpha, beta]: [f64; 2],
    [a_turned, b_turned]: [bool; 2],
    broadcast: bool,
) -> Result<X<'g>> {
    if a.rank() != 2 || b.rank() != 2 {
        refuse!("Gemm multiplies two matrices, not {} and {}", a.ty(), b.ty());
    }
    let (g, dtype) = (a.graph(), a.dtype());
    let product = a.contract(b, &[], &[(usize::from(!a_turned), usize::from(b_turned))])?;
    let shape = product.shape();
    // Like BLAS, a term with factor 0 does not count, even where it is infinite.
    match c.filter(|_| beta != 0.0) {
        None => product.map(|p| times(p, alpha)),
        Some(c) => {
            let differs = |(a, b): (&Dim, &Dim)| a.equals(b) == Some(false);
            if !broadcast && (c.rank() != 2 || c.shape().iter().zip(&shape).any(differs)) {
                refuse!("without `broadcast`, C must be a {} matrix of shape {shape:?}, not {}", dtype, c.ty());
            }
            g.map([product, c.broadcast_to(&shape)?], |[p, c]| times(p, alpha) + times(c, beta))
        }
    }
}

/// `x * factor`, rounded towards zero for integers.
fn times(x: S<'_>, factor: f64) -> S<'_> {
    match x.dtype() {
        _ if factor == 1.0 => x,
        d if d.is_float() => x * factor,
        d => (x.cast(DType::F64) * factor).cast(d),
    }
}

/// The name of an index of an Einstein sum: a letter, or `ELLIPSIS + n` for axis `n` from the right of an ellipsis.
type Label = u32;
const ELLIPSIS: Label = 0x11_0000;

/// A tensor with a name for each of its axes.
#[derive(Clone)]
struct Named<'g> {
    x: X<'g>,
    labels: Vec<Label>,
}

/// Sum of products of the operands over all indices that are not in the output.
fn einsum<'g>(xs: &[X<'g>], equation: &str) -> Result<X<'g>> {
    let text = equation.replace(' ', "");
    let (inputs, output) = text.split_once("->").map_or((text.as_str(), None), |(i, o)| (i, Some(o)));
    let terms: Vec<&str> = inputs.split(',').collect();
    let Some(first) = xs.first().filter(|_| terms.len() == xs.len()) else {
        refuse!("equation `{equation}` has {} terms for {} operands", terms.len(), xs.len());
    };
    let mut operands = Vec::new();
    for (x, term) in xs.iter().zip(&terms) {
        operands.push(Named { x: *x, labels: labels(term, Some(x.rank()), 0)? });
    }
    let all: Vec<Label> = operands.iter().flat_map(|o| o.labels.iter().copied()).collect();
    let dotted = all.iter().filter(|&&l| l >= ELLIPSIS).map(|l| l - ELLIPSIS + 1).max().unwrap_or(0);
    let output = match output {
        Some(term) => labels(term, None, dotted)?,
        None => implicit_output(&all, dotted),
    };
    if let Some(l) = (0..output.len()).find(|&i| !all.contains(&output[i]) || output[..i].contains(&output[i])) {
        refuse!("index {l} of the output of `{equation}` is not in any input or repeats");
    }
    // Intermediate results of 16-bit floats would lose digits.
    let dtype = first.dtype();
    let direct = operands.len() == 1
        || (operands.len() == 2
            && all.iter().all(|l| output.contains(l) || operands.iter().all(|o| o.labels.contains(l))));
    if !direct {
        for o in &mut operands {
            o.x = o.x.cast(wide(o.x.dtype()))?;
        }
    }
    for o in &mut operands {
        while let Some(next) = o.with_diagonal()? {
            *o = next;
        }
    }
    align(&mut operands)?;
    let mut rest = operands.into_iter();
    let Some(mut product) = rest.next() else { refuse!("no operands") };
    while let Some(next) = rest.next() {
        let later: Vec<Label> = rest.clone().flat_map(|o| o.labels).chain(output.iter().copied()).collect();
        product = product.times(next, &later)?;
    }
    product.sum_except(&output)?.ordered(&output)?.cast(dtype)
}

/// The labels of a term. An ellipsis stands for as many axes as the rank leaves over, or for `dotted`.
fn labels(term: &str, rank: Option<usize>, dotted: u32) -> Result<Vec<Label>> {
    let (before, after) = term.split_once("...").map_or((term, None), |(b, a)| (b, Some(a)));
    let letters = before.chars().chain(after.unwrap_or("").chars());
    if let Some(c) = letters.clone().find(|c| !c.is_ascii_alphabetic()) {
        refuse!("`{c}` in term `{term}` is not a letter");
    }
    let named = letters.count();
    let dotted = match (rank, after) {
        (Some(rank), Some(_)) if rank >= named => (rank - named) as u32,
        (Some(rank), _) if rank != named => refuse!("term `{term}` does not fit a tensor of rank {rank}"),
        _ => dotted,
    };
    let mut found: Vec<Label> = before.chars().map(u32::from).collect();
    if let Some(after) = after {
        found.extend((0..dotted).rev().map(|n| ELLIPSIS + n));
        found.extend(after.chars().map(u32::from));
    }
    Ok(found)
}

/// Without a stated output: the axes of the ellipsis, then the letters that occur once, sorted.
fn implicit_output(all: &[Label], dotted: u32) -> Vec<Label> {
    let mut once: Vec<Label> =
        all.iter().copied().filter(|l| *l < ELLIPSIS && all.iter().filter(|k| *k == l).count() == 1).collect();
    once.sort_unstable();
    (0..dotted).rev().map(|n| ELLIPSIS + n).chain(once).collect()
}

/// Bring the axes of equal name to equal sizes: an axis of size 1 repeats, so it is dropped where others have more.
fn align(operands: &mut [Named<'_>]) -> Result<()> {
    let mut sizes: BTreeMap<Label, Dim> = BTreeMap::new();
    for (l, d) in operands.iter().flat_map(|o| o.labels.iter().copied().zip(o.x.shape())) {
        let size = sizes.get(&l).unwrap_or(&d);
        match size.broadcast(&d) {
            Some(common) => sizes.insert(l, common),
            None => refuse!("an index of the equation has both size {size} and {d}"),
        };
    }
    for o in operands {
        let shape = o.x.shape();
        let single: Vec<usize> =
            (0..shape.len()).filter(|&i| shape[i] == Dim::ONE && sizes[&o.labels[i]] != Dim::ONE).collect();
        o.x = o.x.squeeze(&single)?;
        o.labels = (0..shape.len()).filter(|i| !single.contains(i)).map(|i| o.labels[i]).collect();
        // Only the axes of an ellipsis may turn out to be 1 at run time.
        let shape = o.x.shape().into_iter().zip(&o.labels);
        let full: Vec<Dim> = shape.map(|(d, l)| if *l < ELLIPSIS { d } else { sizes[l].clone() }).collect();
        o.x = o.x.broadcast_to(&full)?;
    }
    Ok(())
}

impl<'g> Named<'g> {
    /// With the first repeated index taken along the diagonal; `None` if no index repeats.
    fn with_diagonal(&self) -> Result<Option<Named<'g>>> {
        let repeats = |j: usize| self.labels[..j].iter().position(|l| *l == self.labels[j]).map(|i| (i, j));
        let Some((i, j)) = (0..self.labels.len()).find_map(repeats) else { return Ok(None) };
        let (g, shape) = (self.x.graph(), self.x.shape());
        let n = &shape[i];
        if n.equals(&shape[j]) == Some(false) {
            refuse!("axes {i} and {j} of {} share an index but differ in size", self.x.ty());
        }
        let others: Vec<usize> = (0..shape.len()).filter(|a| ![i, j].contains(a)).collect();
        let mut flat: Vec<Dim> = others.iter().map(|&a| shape[a].clone()).collect();
        flat.push(n * n);
        let x = self.x.transpose(&[&others[..], &[i, j]].concat())?.reshape(&flat)?;
        let at = g.map([g.range(DType::I64, n)?, g.size(n)?], |[i, n]| i * (n + 1.0))?;
        let labels = others.iter().chain([&i]).map(|&a| self.labels[a]).collect();
        Ok(Some(Named { x: x.gather(at, others.len(), 0)?, labels }))
    }

    /// Summed over the indices that are not to stay.
    fn sum_except(self, stay: &[Label]) -> Result<Named<'g>> {
        let drop: Vec<usize> = (0..self.labels.len()).filter(|&i| !stay.contains(&self.labels[i])).collect();
        let labels = self.labels.into_iter().filter(|l| stay.contains(l)).collect();
        Ok(Named { x: self.x.reduce(ReduceFn::Sum, &drop, false)?, labels })
    }

    /// The product, summed over the indices that nothing needs later.
    fn times(self, o: Named<'g>, later: &[Label]) -> Result<Named<'g>> {
        let (mine, yours) = ([later, &o.labels[..]].concat(), [later, &self.labels[..]].concat());
        let (a, b) = (self.sum_except(&mine)?, o.sum_except(&yours)?);
        let pairs = a.labels.iter().enumerate().filter_map(|(i, l)| Some((i, b.labels.iter().position(|k| k == l)?)));
        let (batch, sum): (Vec<_>, Vec<_>) = pairs.partition(|(i, _)| later.contains(&a.labels[*i]));
        let batched = batch.iter().map(|(i, _)| a.labels[*i]);
        let free_a = a.labels.iter().copied().filter(|l| !b.labels.contains(l));
        let free_b = b.labels.iter().copied().filter(|l| !a.labels.contains(l));
        let labels = batched.chain(free_a).chain(free_b).collect();
        Ok(Named { x: a.x.contract(b.x, &batch, &sum)?, labels })
    }

    /// The axes in the given order.
    fn ordered(&self, order: &[Label]) -> Result<X<'g>> {
        let perm: Option<Vec<usize>> = order.iter().map(|l| self.labels.iter().position(|k| k == l)).collect();
        match perm {
            Some(perm) => self.x.transpose(&perm),
            None => refuse!("an index of the output is lost"),
        }
    }
}

/// Determinants of the matrices in the last two axes.
fn determinant(x: X<'_>) -> Result<X<'_>> {
    let (g, shape, dtype) = (x.graph(), x.shape(), x.dtype());
    let Some(lead) = shape.len().checked_sub(2).filter(|&l| shape[l].equals(&shape[l + 1]) != Some(false)) else {
        refuse!("{} does not hold square matrices", x.ty());
    };
    let (batch, n) = (Dim::product(&shape[..lead]), &shape[lead]);
    let matrices = x.cast(wide(dtype))?.reshape(&[batch.clone(), n.clone(), n.clone()])?;
    let one = g.full(matrices.dtype(), 1.0, &[batch])?;
    let always = g.scalar(DType::Bool, 1.0)?;
    let (states, _) = g.loop_::<Error>(g.size(n)?, always, &[matrices, one], &[], &|body| eliminate(&body))?;
    match &states[..] {
        [_, det] => det.reshape(&shape[..lead])?.cast(dtype),
        _ => refuse!("the elimination has two states"),
    }
}

/// One step of Gaussian elimination: find the largest element of column `k` from row `k` down, swap its row to the top,
/// and clear the column below it. The determinant is the product of these elements, negative for each swap.
fn eliminate<'b>(body: &LoopBody<'b>) -> Result<LoopOut<'b>> {
    let (g, k) = (body.graph, body.round);
    let [a, det] = body.states[..] else { refuse!("the elimination has two states") };
    let shape = a.shape();
    let rows = g.iota(DType::I64, &shape[..2], 1)?;
    let column = g.map([a.gather(k, 2, 0)?, rows, k], |[x, i, k]| i.lt(k).select(x.lit(-1.0), x.abs()))?;
    let best = column.arg(ReduceFn::Max, 1, false)?;
    let (top, chosen) = (a.gather(k, 1, 0)?, a.gather(best, 1, 1)?);
    let pivot = chosen.gather(k, 1, 0)?;
    let along = |x: X<'b>, axes: &[usize]| x.unsqueeze(axes);
    let swapped = g.map([a, along(rows, &[2])?, along(best, &[1, 2])?, along(top, &[1])?], |[x, i, best, top]| {
        i.eq(best).select(top, x)
    })?;
    // A pivot of 0 means that the rest of the column is 0 as well: nothing to clear, and the determinant is 0.
    let factor = g.map([swapped.gather(k, 2, 0)?, along(pivot, &[1])?], |[x, p]| p.eq(0.0).select(p, x / p))?;
    let cleared = g.map([swapped, along(factor, &[2])?, along(chosen, &[1])?], |[x, f, c]| x - f * c)?;
    let det = g.map([det, pivot, best, k], |[d, p, best, k]| d * best.eq(k).select(p, -p))?;
    Ok(LoopOut { cond: body.cond, states: vec![cleared, det], rows: vec![] })
}
