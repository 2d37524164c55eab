//! Sums of a signal times cosines and sines of whole frequencies (Fourier transforms are nothing else) in two short products instead of a long one.
use super::X;
use crate::{DType, Dim, Result, Tensor, refuse, tensor::Elems};
use std::f64::consts::TAU;

/// What a signal of `N` elements is multiplied with: `c * cos(2π * f * n / N) + s * sin(2π * f * n / N)`. For each of the sums that are wanted of a frequency, `[c, s]` is
/// given for each part of an element.
#[derive(Clone, Debug)]
pub struct Wave {
    pub frequency: usize,
    pub sums: Vec<Vec<[f64; 2]>>,
}

/// How sums over a signal are done in two steps. With `N = n1 * n2` and `n = i1 * n2 + i2`, the turn of `f * n / N` is one of `f * i1 / n1` and one of
/// `f * i2 / N`. All frequencies that are the same modulo `n1`, or mirror each other, have the sums over `i1` in common.
#[derive(Clone, Debug)]
pub struct TwoSteps<'w> {
    waves: &'w [Wave],
    parts: usize,
    /// Sums per wave.
    results: usize,
    n1: usize,
    n2: usize,
    /// For each wave, the sums over `i1` that it needs, and its number among those which need them.
    places: Vec<(usize, usize)>,
    /// The most waves that need the same sums.
    most: usize,
}

/// By how much two steps must be less work than one.
const WORTH: usize = 2;
/// Tables of more elements are not made.
const LARGEST: usize = 1 << 23;

impl<'w> TwoSteps<'w> {
    /// The best way for signals of this length, if it is much less work than one step.
    pub fn new(length: usize, waves: &'w [Wave]) -> Option<TwoSteps<'w>> {
        let divisors = (2..length).filter(|n1| length.is_multiple_of(*n1));
        let best = divisors.map(|n1| TwoSteps::with_first(n1, length / n1, waves)).min_by_key(TwoSteps::work)?;
        let table = best.sums() * best.n2 * best.parts * 2 * best.most * best.results;
        (best.work() * WORTH <= length * best.parts * waves.len() * best.results && table <= LARGEST).then_some(best)
    }

    fn with_first(n1: usize, n2: usize, waves: &'w [Wave]) -> TwoSteps<'w> {
        let mut members = vec![0; n1 / 2 + 1];
        let place = |wave: &Wave| {
            let turn = wave.frequency % n1;
            let sums = turn.min(n1 - turn);
            members[sums] += 1;
            (sums, members[sums] - 1)
        };
        let places = waves.iter().map(place).collect();
        let (results, parts) = waves.first().map_or((0, 0), |w| (w.sums.len(), w.sums[0].len()));
        TwoSteps { waves, parts, results, n1, n2, places, most: members.into_iter().max().unwrap_or(0) }
    }

    /// How many sums over `i1` there are, each with cosines and with sines.
    fn sums(&self) -> usize {
        self.n1 / 2 + 1
    }

    fn work(&self) -> usize {
        2 * self.sums() * self.parts * self.n2 * (self.n1 + self.most * self.results)
    }

    /// Cosines and sines for the sums over `i1`: `[n1, sums, 2]`.
    fn first_table(&self, dtype: DType) -> Tensor {
        let mut table = Vec::with_capacity(self.n1 * self.sums() * 2);
        for i1 in 0..self.n1 {
            for k in 0..self.sums() {
                table.extend(turned(k * i1, self.n1));
            }
        }
        Tensor::from_elems(dtype, vec![self.n1, self.sums(), 2], &Elems::Float(table))
    }

    /// What sums over `i1` are multiplied with for each wave: `[sums, n2, parts, 2, most, results]`, zeros where fewer waves need them.
    fn second_table(&self, dtype: DType) -> Tensor {
        let shape = [self.sums(), self.n2, self.parts, 2, self.most, self.results];
        let (mut table, row) = (vec![0.0; shape.iter().product()], self.most * self.results);
        for (wave, &(sums, place)) in self.waves.iter().zip(&self.places) {
            // The sines of a mirrored turn have the other sign.
            let sign = if wave.frequency % self.n1 == sums { 1.0 } else { -1.0 };
            for i2 in 0..self.n2 {
                let [cos, sin] = turned(wave.frequency * i2, self.n1 * self.n2);
                for (result, parts) in wave.sums.iter().enumerate() {
                    for (p, [c, s]) in parts.iter().enumerate() {
                        let at = ((sums * self.n2 + i2) * self.parts + p) * 2 * row + place * self.results + result;
                        table[at] = c * cos + s * sin;
                        table[at + row] = sign * (s * cos - c * sin);
                    }
                }
            }
        }
        Tensor::from_elems(dtype, shape.to_vec(), &Elems::Float(table))
    }
}

/// Cosine and sine of `m / n` of a turn.
fn turned(m: usize, n: usize) -> [f64; 2] {
    let angle = (m % n) as f64 * TAU / n as f64;
    [angle.cos(), angle.sin()]
}

impl<'g> X<'g> {
    /// The sums of a batch of signals `[outer, N, inner, parts]` with all waves: `[outer, inner, waves, results]`.
    pub fn in_two_steps(self, steps: &TwoSteps<'_>) -> Result<X<'g>> {
        let (g, shape, dtype) = (self.graph(), self.shape(), self.dtype());
        let [outer, _, inner, parts] = &shape[..] else { refuse!("{} is not a batch of signals", self.ty()) };
        let [n1, n2, all, results] = [steps.n1, steps.n2, steps.sums() * steps.most, steps.results].map(Dim::from);
        let x = self.reshape(&[outer.clone(), n1, n2, inner.clone(), parts.clone()])?;
        let sums = g.constant(steps.first_table(dtype))?.contract(x, &[], &[(0, 1)])?;
        let second = g.constant(steps.second_table(dtype))?;
        let y = sums.contract(second, &[(0, 0)], &[(1, 3), (3, 1), (5, 2)])?;
        let at: Vec<i64> = steps.places.iter().map(|(sums, place)| (sums * steps.most + place) as i64).collect();
        let y = y.transpose(&[1, 2, 0, 3, 4])?.reshape(&[outer.clone(), inner.clone(), all, results])?;
        y.gather(g.ints(&at)?, 2, 0)
    }
}
