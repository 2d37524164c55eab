//! Winograd's transforms F(m x m, 3x3) along one axis. Filter and operand are polynomials, evaluated at 0, at pairs of
//! points ±p and at infinity; the product of what they are there is transformed back. Everything follows from the
//! pairs.

/// By the positive point of each pair.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Transform(&'static [f64]);

/// All transforms, by size.
pub const ALL: [Transform; 2] = [
    // F(2x2, 3x3).
    Transform(&[1.0]),
    // F(4x4, 3x3). The usual points 1 and 2 amplify errors 3.6 times as much as these, whose coefficients are exact as
    // well.
    Transform(&[0.75, 1.5]),
];

/// How the values of a transform are made: the sum of some values with a factor each.
type Combine<'c, T> = dyn FnMut(&[(f64, T)]) -> T + 'c;

impl Transform {
    /// Outputs of a tile along an axis.
    pub fn outputs(self) -> i64 {
        2 * self.0.len() as i64
    }

    /// Elements that a tile sees along an axis, and places of a transformed tile.
    pub fn inputs(self) -> i64 {
        self.outputs() + 2
    }

    /// Places of a transformed tile of two axes.
    pub fn places(self) -> i64 {
        self.inputs() * self.inputs()
    }

    /// The amplification of rounding errors by the transforms, relative to a sum of magnitudes: as if every product
    /// were rounded once, and all errors added up. Long sums do better, as errors of either sign cancel there.
    pub fn error(self) -> f64 {
        let unit = |n: i64, k: i64| (0..n).map(|i| f64::from(u8::from(i == k))).collect::<Vec<_>>();
        let mut sum = |terms: &[(f64, f64)]| terms.iter().map(|(factor, x)| factor * x).sum();
        let columns = (0..self.inputs()).map(|k| unit(self.inputs(), k));
        let (inputs, outputs): (Vec<_>, Vec<_>) =
            columns.map(|column| (self.input(&column, &mut sum), self.output(&column, &mut sum))).unzip();
        let largest = |row: &[f64; 3]| row.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        let products: Vec<f64> = self
            .filter()
            .iter()
            .enumerate()
            .map(|(place, row)| largest(row) * inputs.iter().map(|column| column[place].abs()).sum::<f64>())
            .collect();
        let amplified =
            |output: usize| outputs.iter().zip(&products).map(|(column, x)| column[output].abs() * x).sum::<f64>();
        let most = (0..self.outputs() as usize).map(amplified).fold(0.0, f64::max);
        most * most * f64::from(f32::EPSILON) / 2.0
    }

    /// What the elements of a filter are multiplied with, by place: the filter's value there, over what the other two
    /// transforms leave out.
    pub fn filter(self) -> Vec<[f64; 3]> {
        let squares: f64 = self.0.iter().map(|p| p * p).product();
        let mut rows = vec![[1.0 / squares, 0.0, 0.0]];
        for &p in self.0 {
            let scale = self.others(p).fold(2.0 * p * p, |product, o| product * (p * p - o * o));
            rows.extend([p, -p].map(|p| [1.0 / scale, p / scale, p * p / scale]));
        }
        rows.push([0.0, 0.0, 1.0]);
        rows
    }

    fn others(self, p: f64) -> impl Iterator<Item = f64> {
        self.0.iter().copied().filter(move |&o| o != p)
    }

    /// The transformed elements of a tile.
    pub fn input<T: Copy>(self, seen: &[T], combine: &mut Combine<'_, T>) -> Vec<T> {
        let every_second = |first: usize, factors: &[f64], combine: &mut Combine<'_, T>| {
            let terms: Vec<_> = factors.iter().enumerate().map(|(k, &c)| (c, seen[first + 2 * k])).collect();
            combine(&terms)
        };
        let all = differences(self.0.iter().copied());
        let mut values = vec![every_second(0, &all, combine)];
        for &p in self.0 {
            let mut factors = differences(self.others(p));
            // They are those of `x² - o²` here.
            if self.0.len().is_multiple_of(2) {
                factors.iter_mut().for_each(|c| *c = -*c);
            }
            let (odd, even) = (every_second(1, &factors, combine), every_second(2, &factors, combine));
            values.extend([combine(&[(p, odd), (1.0, even)]), combine(&[(1.0, even), (-p, odd)])]);
        }
        values.push(every_second(1, &all, combine));
        values
    }

    /// The outputs of a tile, transformed back.
    pub fn output<T: Copy>(self, places: &[T], combine: &mut Combine<'_, T>) -> Vec<T> {
        let (first, last) = (places[0], places[places.len() - 1]);
        let pairs: Vec<[T; 2]> = places[1..places.len() - 1]
            .chunks(2)
            .map(|pair| [combine(&[(1.0, pair[0]), (1.0, pair[1])]), combine(&[(1.0, pair[0]), (-1.0, pair[1])])])
            .collect();
        let count = self.outputs() as usize;
        let mut output = |i: usize| {
            let mut terms = if i == 0 { vec![(1.0, first)] } else { vec![] };
            terms.extend(self.0.iter().zip(&pairs).map(|(p, pair)| (p.powi(i as i32), pair[i % 2])));
            if i == count - 1 {
                terms.push((if self.0.len().is_multiple_of(2) { 1.0 } else { -1.0 }, last));
            }
            combine(&terms)
        };
        (0..count).map(&mut output).collect()
    }
}

/// The factors of 1, x², x⁴ and so on in the product of all `p² - x²`.
fn differences(points: impl Iterator<Item = f64>) -> Vec<f64> {
    points.fold(vec![1.0], |product, p| {
        let at = |k: usize| product.get(k).copied().unwrap_or(0.0);
        (0..=product.len()).map(|k| p * p * at(k) - if k == 0 { 0.0 } else { at(k - 1) }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms_are_convolutions() {
        for transform in ALL {
            let mut sum = |terms: &[(f64, f64)]| terms.iter().map(|(factor, x)| factor * x).sum();
            let seen: Vec<f64> = (0..transform.inputs()).map(|i| ((i * 7 + 3) % 5) as f64 - 1.5).collect();
            let filter = [2.0, -3.0, 0.5];
            let products: Vec<f64> = transform
                .input(&seen, &mut sum)
                .iter()
                .zip(transform.filter())
                .map(|(x, row)| x * row.iter().zip(filter).map(|(a, b)| a * b).sum::<f64>())
                .collect();
            let expected = seen.windows(3).map(|seen| seen.iter().zip(filter).map(|(a, b)| a * b).sum::<f64>());
            for (got, expected) in transform.output(&products, &mut sum).into_iter().zip(expected) {
                assert!((got - expected).abs() < 1e-12, "{transform:?}: {got} instead of {expected}");
            }
        }
    }

    /// The documentation gives these numbers.
    #[test]
    fn errors_are_as_documented() {
        let errors = ALL.map(Transform::error);
        assert!((9e-7..1e-6).contains(&errors[0]) && (1.4e-5..1.5e-5).contains(&errors[1]), "{errors:?}");
    }
}
