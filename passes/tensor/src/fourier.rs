//! Products with constant waves (cosines and sines of whole frequencies, under a window that all of them share) are
//! Fourier transforms, which exporters write as a convolution or a product of matrices. They are done in two short
//! steps instead of a long one ([`numrsc_ir::build::TwoSteps`]).
//!
//! This changes results by rounding, as Winograd's algorithm does, and `--tolerance` decides about both.
use crate::rebuild::rebuild;
use numrsc_facts::{Context, Result};
use numrsc_ir::{
    DType, Dim, Func, Node, Op, Tensor, Type,
    build::{Graph, TwoSteps, Wave, X},
};
use std::f64::consts::TAU;

/// The stated error of a sum, relative to the largest sum of magnitudes `∑|x||w|`. A wave `w` is at least `2/π` of its
/// window on average, the factors of both steps and of the window have at most twice the magnitude of their product,
/// and each of three products is rounded: `π/2 * (1 + 2) * 2⁻²⁴`. In addition, weights may differ from waves.
pub const ERROR: f64 = (3.0 * UNIT + DEVIATION) * TAU / 4.0;
const UNIT: f64 = 1.0 / (1 << 24) as f64;
/// The largest difference of a weight from its wave, relative to the window there: that of a value that was rounded
/// twice.
const DEVIATION: f64 = 4.0 * UNIT;
/// The part of a window's largest element below which it counts as zero.
const NOTHING: f64 = 1e-6;
/// Shorter transforms, and fewer waves, are not worth a look.
const SHORTEST: usize = 32;
const FEWEST: usize = 16;
/// Of what a row could be at most if it were a wave of a frequency, in energy: any common window leaves more, and other
/// weights have much less.
const LEAST: f64 = 0.1;

/// The function with products of constant waves computed in two steps, if the tolerance admits it.
pub fn fourier(func: &Func, cx: &Context) -> Result<Func> {
    if cx.options.tolerance < ERROR {
        return Ok(func.clone());
    }
    rebuild(func, "fourier", &|new, node, op, args| {
        let Some(product) = product(new.func, node) else { return new.push(op, &args) };
        match product.in_two_steps(new.func, node).map_err(|e| new.invalid(&e))? {
            Some(part) => Ok(new.out.inline(&part, &[args[product.signal]]).map_err(|e| new.invalid(&e))?[0]),
            None => new.push(op, &args),
        }
    })
}

/// A product of a signal and constant rows.
struct Product<'f> {
    /// Which operand is the signal.
    signal: usize,
    /// The axis of the signal that is summed over.
    axis: usize,
    rows: WeightRows<'f>,
}

/// The rows of a constant, along one of its axes.
struct WeightRows<'f> {
    weights: &'f Tensor,
    length: usize,
    /// Elements that lie behind one step along the row.
    step: usize,
}

#[allow(clippy::wildcard_enum_match_arm, reason = "recognises some ops; any other is left as it is")]
fn product<'f>(func: &'f Func, node: &Node) -> Option<Product<'f>> {
    let rows = |operand: usize, axis: usize| match &func.node(node.args[operand]).op {
        Op::Const { value } if value.dtype() == DType::F32 => {
            let (length, step) = (value.shape()[axis], value.shape()[axis + 1..].iter().product());
            let rows = WeightRows { weights: value, length, step };
            (length >= SHORTEST && rows.count() >= FEWEST).then_some(rows)
        }
        _ => None,
    };
    match &node.op {
        Op::Contract { a_batch, a_sum, b_sum, .. } if a_batch.is_empty() => {
            let ([a], [b]) = (&a_sum[..], &b_sum[..]) else { return None };
            let (a, b) = (*a as usize, *b as usize);
            let of = |signal, axis, rows| Product { signal, axis, rows };
            rows(1, b).map(|r| of(0, a, r)).or_else(|| rows(0, a).map(|r| of(1, b, r)))
        }
        Op::Conv { spread, low, high, groups: 1, in_block: 1, out_block: 1, .. } => {
            let weights = func.ty(node.args[1]).as_tensor().ok()?;
            let one_axis = weights.rank() == 3 && weights.shape[1] == Dim::ONE;
            let plain = spread[..] == [1] && low[..] == [Dim::ZERO] && high[..] == [Dim::ZERO];
            Some(Product { signal: 0, axis: 2, rows: rows(1, 2).filter(|_| one_axis && plain)? })
        }
        _ => None,
    }
}

impl Product<'_> {
    /// The product as a function of the signal, if the rows are waves and two steps are less work.
    fn in_two_steps(&self, func: &Func, node: &Node) -> numrsc_ir::Result<Option<Func>> {
        let Some(basis) = self.rows.as_waves() else { return Ok(None) };
        let Some(steps) = TwoSteps::new(self.rows.length, &basis.waves) else { return Ok(None) };
        let g = Graph::new();
        let x = g.param(func.ty(node.args[self.signal]).clone())?;
        let (signals, outer) = self.signals(x, node)?;
        let window: Vec<f32> = basis.window.iter().map(|&w| w as f32).collect();
        let window = g.constant(Tensor::from_f32(&[window.len()], &window))?;
        let signals = g.map([signals, window], |[x, w]| x * w)?;
        let batch = [Dim::product(&outer), Dim::from(self.rows.length), Dim::ONE, Dim::ONE];
        let sums = signals.reshape(&batch)?.in_two_steps(&steps)?;
        let y = self.arranged(sums, node, &outer)?.value();
        Ok(Some(g.finish(&[y])))
    }

    /// Signals as rows, and the axes in front of them.
    #[allow(clippy::wildcard_enum_match_arm, reason = "`product` gives convolutions and contractions")]
    fn signals<'g>(&self, x: X<'g>, node: &Node) -> numrsc_ir::Result<(X<'g>, Vec<Dim>)> {
        let x = match &node.op {
            Op::Conv { strides, dilations, .. } => {
                let (g, shape, out) = (x.graph(), x.shape(), &node.ty.as_tensor()?.shape);
                let grid = [out[2].clone(), Dim::from(self.rows.length)];
                let [window, i] = [0, 1].map(|axis| g.iota(DType::I64, &grid, axis));
                let [stride, dilation] = [strides, dilations].map(|d| g.constant(Tensor::from_i64(&[], d)));
                let at = g.map([window?, i?, stride?, dilation?], |[w, i, s, d]| w * s + i * d)?;
                x.reshape(&[shape[0].clone(), shape[2].clone()])?.gather(at, 1, 0)?
            }
            _ => x.move_axis(self.axis, x.rank() - 1)?,
        };
        let mut outer = x.shape();
        outer.pop();
        Ok((x, outer))
    }

    /// Sums `[outer, 1, rows, 1]` as the product has them.
    #[allow(clippy::wildcard_enum_match_arm, reason = "`product` gives convolutions and contractions")]
    fn arranged<'g>(&self, sums: X<'g>, node: &Node, outer: &[Dim]) -> numrsc_ir::Result<X<'g>> {
        let own = match (&node.op, &node.ty) {
            (Op::Contract { .. }, Type::Tensor(t)) if self.signal == 0 => t.shape[outer.len()..].to_vec(),
            (Op::Contract { .. }, Type::Tensor(t)) => t.shape[..t.rank() - outer.len()].to_vec(),
            _ => vec![Dim::from(self.rows.count())],
        };
        let y = sums.reshape(&[outer, &own].concat())?;
        let rank = y.rank();
        match &node.op {
            Op::Conv { .. } => y.transpose(&[0, 2, 1]),
            _ if self.signal == 0 => Ok(y),
            _ => y.transpose(&(outer.len()..rank).chain(0..outer.len()).collect::<Vec<_>>()),
        }
    }
}

/// Rows as waves under a window.
struct Basis {
    window: Vec<f64>,
    waves: Vec<Wave>,
}

impl WeightRows<'_> {
    fn count(&self) -> usize {
        self.weights.len() / self.length
    }

    fn row(&self, k: usize) -> impl Iterator<Item = f64> {
        let start = k / self.step * self.step * self.length + k % self.step;
        let at = move |i: usize| (start + i * self.step) * size_of::<f32>();
        let bytes = self.weights.bytes();
        (0..self.length).map(move |i| {
            let b = &bytes[at(i)..];
            f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        })
    }

    /// The window and the waves, if that is what all rows are. Their frequencies begin with 0 or 1 and change by at
    /// most 1 from row to row, or begin again.
    fn as_waves(&self) -> Option<Basis> {
        let n = self.length;
        let turns: Vec<(f64, f64)> = (0..n).map(|i| (i as f64 * TAU / n as f64).sin_cos()).collect();
        let (mut last, mut loudest) = (0, 0.0);
        let (mut sums, mut weights) = (vec![0.0; n], vec![0.0; n]);
        let mut waves = Vec::with_capacity(self.count());
        for k in 0..self.count() {
            let energy: f64 = self.row(k).map(|w| w * w).sum();
            loudest = f64::max(energy, loudest);
            // Sines of frequency 0, or of half the length.
            let silent = energy <= loudest * NOTHING * NOTHING;
            let candidates = [0, 1, last.max(1) - 1, last, last + 1].into_iter().filter(|f| *f <= n / 2);
            let found = candidates.map(|f| (f, self.correlation(k, f, &turns)));
            // A cosine that is always 1, or 1 and -1 in turns, has twice the energy of all others.
            let power =
                |f: usize, [cos, sin]: [f64; 2]| (cos * cos + sin * sin) / if f == 0 || 2 * f == n { 2.0 } else { 1.0 };
            let (frequency, [cos, sin]) = found.max_by(|(f, a), (g, b)| power(*f, *a).total_cmp(&power(*g, *b)))?;
            let is_wave = power(frequency, [cos, sin]) >= LEAST * n as f64 * energy;
            let wave = match (silent, cos.abs() >= sin.abs()) {
                (true, _) => Wave { frequency: 0, sums: vec![vec![[0.0, 0.0]]] },
                // Anything with a NaN in it is none either.
                _ if !is_wave => return None,
                (_, true) => Wave { frequency, sums: vec![vec![[cos.signum(), 0.0]]] },
                (_, false) => Wave { frequency, sums: vec![vec![[0.0, sin.signum()]]] },
            };
            for (i, w) in self.row(k).enumerate() {
                let t = at(&wave, i, &turns);
                (sums[i], weights[i]) = (sums[i] + w * t, weights[i] + t * t);
            }
            last = wave.frequency;
            waves.push(wave);
        }
        // What the window has to be for the least squares.
        let window: Vec<f64> = sums.iter().zip(&weights).map(|(s, w)| if *w > NOTHING { s / w } else { 0.0 }).collect();
        let highest = window.iter().fold(0.0, |a: f64, w| a.max(w.abs()));
        let close = |(k, wave): (usize, &Wave)| {
            self.row(k).zip(&window).enumerate().all(|(i, (w, at_i))| {
                (w - at_i * at(wave, i, &turns)).abs() <= DEVIATION * (at_i.abs() + NOTHING * highest)
            })
        };
        waves.iter().enumerate().all(close).then_some(Basis { window, waves })
    }

    /// The sums of a row with the cosine and the sine of a frequency.
    fn correlation(&self, k: usize, frequency: usize, turns: &[(f64, f64)]) -> [f64; 2] {
        self.row(k).enumerate().fold([0.0; 2], |[c, s], (i, w)| {
            let (sin, cos) = turns[frequency * i % self.length];
            [c + w * cos, s + w * sin]
        })
    }
}

/// A wave of one sum over one part, at a place.
fn at(wave: &Wave, i: usize, turns: &[(f64, f64)]) -> f64 {
    let (sin, cos) = turns[wave.frequency * i % turns.len()];
    wave.sums[0][0][0] * cos + wave.sums[0][0][1] * sin
}

#[cfg(test)]
mod tests {
    use super::*;
    use numrsc_ir::Machine;
    use numrsc_ir::{Data, Op, eval::eval, parse};

    const N: usize = 64;

    /// Cosines and negative sines of all frequencies under a Hann window, as rows or as columns.
    fn weights(rows: bool) -> Vec<f32> {
        let (bins, mut all) = (N / 2 + 1, vec![0.0; N * (N + 2)]);
        for k in 0..2 * bins {
            for i in 0..N {
                let turn = |m: usize| (m % N) as f64 * TAU / N as f64;
                let wave = if k < bins { turn(k * i).cos() } else { -turn((k - bins) * i).sin() };
                let at = if rows { k * N + i } else { i * 2 * bins + k };
                all[at] = (wave * (0.5 - 0.5 * turn(i).cos())) as f32;
            }
        }
        all
    }

    fn function(text: &str, shape: &[usize], weights: &[f32]) -> Func {
        let g = parse(text).unwrap();
        let mut out = Func::new();
        let x = out.param(g.ty(g.params()[0]).clone()).unwrap();
        let w = out.push(Op::Const { value: Tensor::from_f32(shape, weights) }, &[]).unwrap();
        let results = out.inline(&g, &[x, w]).unwrap();
        out.set_results(results);
        out
    }

    fn products(f: &Func) -> usize {
        f.nodes().iter().filter(|n| matches!(n.op, Op::Contract { .. } | Op::Conv { .. })).count()
    }

    /// A convolution, and products with the waves on either side: functions of a signal and weights, how the weights
    /// lie, and their shape.
    fn cases() -> [(String, bool, Vec<usize>); 4] {
        let contract = |a: &str, b: &str, a_sum: usize, b_sum: usize, ty: &str| {
            format!("contract {a}, {b} {{a_batch=[], b_batch=[], a_sum=[{a_sum}], b_sum=[{b_sum}]}} : {ty}")
        };
        let func = |x: &str, w: &str, op: &str| format!("func(%0: {x}, %1: {w}) {{\n  %2 = {op}\n  return %2\n}}\n");
        let conv = "conv %0, %1 {strides=[24], dilations=[1], spread=[1], low=[0], high=[0], groups=1, in_block=1, out_block=1} : f32[2, 66, 7]";
        [
            (func("f32[2, 1, 208]", "f32[66, 1, 64]", conv), true, vec![66, 1, N]),
            (func("f32[3, 64]", "f32[64, 66]", &contract("%0", "%1", 1, 0, "f32[3, 66]")), false, vec![N, 66]),
            (func("f32[3, 64, 2]", "f32[66, 64]", &contract("%0", "%1", 1, 1, "f32[3, 2, 66]")), true, vec![66, N]),
            (func("f32[64, 3]", "f32[2, 33, 64]", &contract("%1", "%0", 2, 0, "f32[2, 33, 3]")), true, vec![2, 33, N]),
        ]
    }

    fn context(tolerance: f64) -> Context {
        Context::new(Machine::AVX2).with(|o| o.tolerance = tolerance)
    }

    #[test]
    fn two_steps_give_the_same_sums() {
        for (text, rows, shape) in cases() {
            let before = function(&text, &shape, &weights(rows));
            let after = fourier(&before, &context(1e-6)).unwrap();
            assert_eq!((products(&before), products(&after)), (1, 2), "{text}");
            let sizes = before.ty(before.params()[0]).as_tensor().unwrap().static_shape().unwrap();
            let x: Vec<f32> =
                (0..sizes.iter().product()).map(|i| ((i * i * 7 + 3 * i) % 31) as f32 / 31.0 - 0.4).collect();
            let x = Data::Tensor(Tensor::from_f32(&sizes, &x));
            let [is, should] =
                [&after, &before].map(|f| eval(f, std::slice::from_ref(&x)).unwrap()[0].as_tensor().unwrap().clone());
            assert_eq!((is.dtype(), is.shape()), (should.dtype(), should.shape()));
            let largest = 0.6 * N as f64 / 2.0;
            for (is, should) in is.to_f64s().iter().zip(should.to_f64s()) {
                assert!((is - should).abs() <= ERROR * largest, "{is}, not {should}");
            }
        }
    }

    /// Weights that are almost waves, fewer digits, and tolerances that do not admit it.
    #[test]
    fn other_products_stay() {
        let (text, rows, shape) = &cases()[0];
        let (mut almost, exact) = (weights(*rows), weights(*rows));
        almost[5 * N + 9] += 1e-6;
        let coarse: Vec<f32> = exact.iter().map(|w| (w * 1e4).round() / 1e4).collect();
        let noise: Vec<f32> = (0..exact.len()).map(|i| ((i * 7919) % 1013) as f32 / 1013.0 - 0.5).collect();
        let strange: Vec<f32> = exact.iter().map(|w| if *w == 0.0 { f32::NAN } else { *w }).collect();
        for (weights, tolerance) in [(almost, 1e-6), (coarse, 1e-6), (noise, 1e-6), (strange, 1e-6), (exact, 1e-7)] {
            let before = function(text, shape, &weights);
            assert!(fourier(&before, &context(tolerance)).unwrap() == before);
        }
    }
}
