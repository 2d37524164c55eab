//! Support vector machines: a kernel between every row and every support vector, then linear combinations.
use super::{Labels, both_classes, features, floats, transformed};
use crate::onnx::import::Fail;
use numrsc_ir::{
    DType, Dim, ReduceFn,
    build::{Graph, LoopOut, X},
};

pub(super) struct Kernel {
    name: String,
    gamma: f64,
    coef0: f64,
    degree: f64,
}

impl Kernel {
    pub(super) fn new(name: &str, params: &[f64]) -> Result<Kernel, Fail> {
        if !["LINEAR", "POLY", "RBF", "SIGMOID"].contains(&name) {
            return Err(format!("`kernel_type` is `{name}`, not LINEAR, POLY, RBF or SIGMOID").into());
        }
        match params {
            [] => Ok(Kernel { name: name.into(), gamma: 0.0, coef0: 0.0, degree: 0.0 }),
            [gamma, coef0, degree] => Ok(Kernel { name: name.into(), gamma: *gamma, coef0: *coef0, degree: *degree }),
            _ => Err(format!("`kernel_params` has {} entries, not 3", params.len()).into()),
        }
    }

    /// `k(x[n], v[m])` for rows `x` and constant vectors `v`.
    fn between<'g>(&self, x: X<'g>, v: X<'g>) -> Result<X<'g>, Fail> {
        let (gamma, coef0, degree) = (self.gamma, self.coef0, self.degree);
        if self.name == "RBF" {
            // exp(-gamma |x - v|^2)
            let squares = x.graph().map([x.unsqueeze(&[1])?, v], |[x, v]| (x - v).square())?;
            return Ok(squares.sum(&[2], false)?.map(|s| (s * -gamma).exp())?);
        }
        let dot = x.contract(v, &[], &[(1, 1)])?;
        Ok(match self.name.as_str() {
            "POLY" => dot.map(|d| (d * gamma + coef0).pow(degree))?,
            "SIGMOID" => dot.map(|d| (d * gamma + coef0).tanh())?,
            _ => dot,
        })
    }
}

/// A constant matrix of f32 with the given number of rows.
fn matrix<'g>(g: &'g Graph, rows: usize, values: &[f64]) -> Result<X<'g>, Fail> {
    if rows == 0 || values.is_empty() || !values.len().is_multiple_of(rows) {
        return Err(format!("{} numbers do not make {rows} rows", values.len()).into());
    }
    floats(g, DType::F32, &[rows, values.len() / rows], values.to_vec())
}

pub(super) struct Regressor {
    pub coefficients: Vec<f64>,
    pub support_vectors: Vec<f64>,
    pub n_supports: i64,
    pub rho: Vec<f64>,
    pub one_class: bool,
    pub kernel: Kernel,
}

impl Regressor {
    /// `sum_v coefficient[v] * k(x, v) + rho`, or the same of the features themselves. There is nothing to transform in
    /// a single score, and ONNX Runtime does not.
    pub(super) fn run<'g>(&self, x: X<'g>) -> Result<X<'g>, Fail> {
        let (g, x) = (x.graph(), features(x)?.cast(DType::F32)?);
        let supports = usize::try_from(self.n_supports).map_err(|_| "`n_supports` is negative")?;
        let &[offset, ..] = &self.rho[..] else { return Err("`rho` is empty".into()) };
        let weights = matrix(g, 1, &self.coefficients)?;
        let inner = match supports {
            0 => x,
            n => self.kernel.between(x, matrix(g, n, &self.support_vectors)?)?,
        };
        let y = inner.contract(weights, &[], &[(1, 1)])?.map(|s| s + offset)?;
        if self.one_class {
            return Ok(y.map(|s| s.gt(0.0).select(s.lit(1.0), -1.0))?);
        }
        Ok(y)
    }
}

pub(super) struct Classifier {
    pub coefficients: Vec<f64>,
    pub support_vectors: Vec<f64>,
    pub vectors_per_class: Vec<i64>,
    pub rho: Vec<f64>,
    pub prob_a: Vec<f64>,
    pub prob_b: Vec<f64>,
    pub post_transform: String,
    pub labels: Labels,
    pub kernel: Kernel,
}

impl Classifier {
    pub(super) fn run<'g>(&self, x: X<'g>) -> Result<Vec<X<'g>>, Fail> {
        let (g, x) = (x.graph(), features(x)?.cast(DType::F32)?);
        let counts = self.vectors_per_class.iter().map(|&c| usize::try_from(c)).collect::<Result<Vec<_>, _>>();
        let counts = counts.map_err(|_| "`vectors_per_class` has a negative entry")?;
        let classes = self.labels.len();
        if counts.iter().all(|&c| c == 0) {
            // One linear function per class.
            let &[offset, ..] = &self.rho[..] else { return Err("`rho` is empty".into()) };
            let scores = x.contract(matrix(g, classes, &self.coefficients)?, &[], &[(1, 1)])?.map(|s| s + offset)?;
            let mut class = scores.arg(ReduceFn::Max, 1, false)?;
            if classes == 2 && self.prob_a.is_empty() {
                // As if there were one score: ONNX Runtime says the second class wherever the larger one is positive.
                let probability = self.coefficients.iter().all(|c| *c >= 0.0);
                let best = scores.max(&[1], false)?;
                class = g.map([best, class], |[s, class]| {
                    let second = if probability { s.ge(0.5) } else { s.gt(0.0) };
                    second.select(class.int(1), class)
                })?;
            }
            return Ok(vec![self.labels.of(class)?, transformed(scores, &self.post_transform)?]);
        }
        if counts.len() != classes || classes < 2 {
            return Err(format!("{} counts of vectors are given for {classes} labels", counts.len()).into());
        }
        let scores = self.pair_scores(x, &counts)?;
        let pairs = pairs(classes);
        // Every pair gives one of its classes a vote.
        let table = |pick: fn(&(usize, usize)) -> usize| {
            let ones = pairs.iter().flat_map(|p| (0..classes).map(move |c| f64::from(u8::from(pick(p) == c))));
            floats(g, DType::F32, &[pairs.len(), classes], ones.collect())
        };
        let won = scores.map(|s| s.gt(0.0).cast(DType::F32))?.contract(table(|p| p.0)?, &[], &[(1, 0)])?;
        let lost = scores.map(|s| s.gt(0.0).not().cast(DType::F32))?.contract(table(|p| p.1)?, &[], &[(1, 0)])?;
        let class = g.map([won, lost], |[a, b]| a + b)?.arg(ReduceFn::Max, 1, false)?;
        let transform = &self.post_transform;
        let scores = if !self.prob_a.is_empty() {
            transformed(self.probabilities(scores, classes)?, transform)?
        } else if classes == 2 {
            both_classes(scores, transform == "NONE", transform)?
        } else {
            transformed(scores, transform)?
        };
        Ok(vec![self.labels.of(class)?, scores])
    }

    /// The decision between each pair of classes `i < j`: a combination of the kernels of the vectors of both, where
    /// row `j - 1` of the coefficients is for those of `i`, and row `i` for those of `j`.
    fn pair_scores<'g>(&self, x: X<'g>, counts: &[usize]) -> Result<X<'g>, Fail> {
        let g = x.graph();
        let total: usize = counts.iter().sum();
        let classes = counts.len();
        if self.coefficients.len() < total * (classes - 1) {
            return Err(format!("{} coefficients are too few for {total} vectors", self.coefficients.len()).into());
        }
        let pairs = pairs(classes);
        if self.rho.len() < pairs.len() {
            return Err(format!("`rho` has {} entries for {} pairs of classes", self.rho.len(), pairs.len()).into());
        }
        let mut weights = vec![0.0; total * pairs.len()];
        let start: Vec<usize> = (0..classes).map(|i| counts[..i].iter().sum()).collect();
        for (p, &(i, j)) in pairs.iter().enumerate() {
            for (class, row) in [(i, j - 1), (j, i)] {
                for v in start[class]..start[class] + counts[class] {
                    weights[v * pairs.len() + p] = self.coefficients[row * total + v];
                }
            }
        }
        let kernels = self.kernel.between(x, matrix(g, total, &self.support_vectors)?)?;
        let weights = floats(g, DType::F32, &[total, pairs.len()], weights)?;
        let rho = floats(g, DType::F32, &[pairs.len()], self.rho[..pairs.len()].to_vec())?;
        Ok(g.map([kernels.contract(weights, &[], &[(1, 0)])?, rho], |[s, r]| s + r)?)
    }

    /// Class probabilities from pairwise ones (Wu, Lin and Weng 2004, as in libsvm): minimise `p^T Q p` by rounds of
    /// coordinate steps, for each row until its error is small.
    fn probabilities<'g>(&self, scores: X<'g>, classes: usize) -> Result<X<'g>, Fail> {
        let g = scores.graph();
        let pairs = pairs(classes);
        if self.prob_a.len() < pairs.len() || self.prob_b.len() < pairs.len() {
            return Err(format!("`prob_a` and `prob_b` need {} entries", pairs.len()).into());
        }
        let a = floats(g, DType::F32, &[pairs.len()], self.prob_a[..pairs.len()].to_vec())?;
        let b = floats(g, DType::F32, &[pairs.len()], self.prob_b[..pairs.len()].to_vec())?;
        // r[i, j]: the probability of i against j.
        let r = g.map([scores, a, b], |[s, a, b]| (1.0 - (s * a + b).sigmoid()).clamp(1e-7, 1.0 - 1e-7))?;
        let (mut from, mut flip) = (vec![0; classes * classes], vec![0.0; classes * classes]);
        for (p, &(i, j)) in pairs.iter().enumerate() {
            (from[i * classes + j], from[j * classes + i]) = (p as i64, p as i64);
            flip[j * classes + i] = 1.0;
        }
        let square = [Dim::from(classes), Dim::from(classes)];
        let both = r.gather(g.ints(&from)?.reshape(&square)?, 1, 0)?;
        let flip = floats(g, DType::F32, &[classes, classes], flip)?;
        let (row, column) = (g.iota(DType::I64, &square, 0)?, g.iota(DType::I64, &square, 1)?);
        let r = g.map([both, flip, row, column], |[r, flip, i, j]| {
            let r = flip.gt(0.0).select(1.0 - r, r);
            i.eq(j).select(r.lit(0.0), r)
        })?;
        // Q[t, t] = sum_j r[j, t]^2, Q[t, j] = -r[j, t] r[t, j]
        let diagonal = r.map(|r| r.square())?.sum(&[1], false)?.unsqueeze(&[2])?;
        let q = g.map([r, r.transpose(&[0, 2, 1])?, diagonal, row, column], |[r, rt, d, i, j]| {
            i.eq(j).select(d, -(r * rt))
        })?;
        let start = g.full(DType::F32, 1.0 / classes as f64, &[r.dim(0)?, Dim::from(classes)])?;
        let rounds = g.scalar(DType::I64, classes.max(100) as f64)?;
        let (last, _) = g.loop_(rounds, g.scalar(DType::Bool, 1.0)?, &[start], &[q], &|body| {
            let (g, p, q) = (body.graph, body.states[0], body.captures[0]);
            let (next, active) = coupling_round(p, q, classes)?;
            let next = g.map([active, next, p], |[go, a, b]| go.select(a, b))?;
            let cond = active.reduce(ReduceFn::Max, &[0, 1], false)?;
            Ok::<_, Fail>(LoopOut { cond, states: vec![next], rows: vec![] })
        })?;
        Ok(last[0])
    }
}

/// One coordinate step for each class, and for which rows it is needed.
fn coupling_round<'b>(p: X<'b>, q: X<'b>, classes: usize) -> Result<(X<'b>, X<'b>), Fail> {
    let g = p.graph();
    let mut p = p;
    let mut qp = q.contract(p, &[(0, 0)], &[(2, 1)])?;
    let mut pqp = g.map([p, qp], |[p, q]| p * q)?.sum(&[1], true)?;
    let error = g.map([qp, pqp], |[a, b]| (a - b).abs())?.max(&[1], true)?;
    let active = error.map(|e| e.ge(0.005 / classes as f64))?;
    for t in 0..classes {
        let row = q.at(1, &Dim::from(t))?;
        let (qt, qpt) =
            (row.slice_axis(1, &Dim::from(t), &Dim::ONE, 1)?, qp.slice_axis(1, &Dim::from(t), &Dim::ONE, 1)?);
        let diff = g.map([qpt, pqp, qt], |[qp, pqp, q]| (pqp - qp) / q)?;
        let here = g.range(DType::I64, &Dim::from(classes))?;
        p = g.map([p, diff, here], |[p, d, i]| i.eq(t as f64).select(p + d, p) / (d + 1.0))?;
        pqp = g.map([pqp, diff, qt, qpt], |[pqp, d, q, qp]| (pqp + d * (d * q + qp * 2.0)) / (d + 1.0).square())?;
        qp = g.map([qp, diff, row], |[qp, d, q]| (qp + d * q) / (d + 1.0))?;
    }
    Ok((p, active))
}

/// `(0, 1), (0, 2) … (1, 2) …`
fn pairs(classes: usize) -> Vec<(usize, usize)> {
    (0..classes).flat_map(|i| (i + 1..classes).map(move |j| (i, j))).collect()
}
