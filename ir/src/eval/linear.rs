//! Sums of products.
use super::{check_size, decode, movement};
use crate::{Elems, Tensor, tensor::count};

/// Numbers to multiply and add: `f64`, or integers modulo 2^64, which is exact modulo every narrower power of two.
pub(super) trait Product: Copy {
    const ZERO: Self;
    fn plus(self, a: Self, b: Self) -> Self;
    fn encode(v: Vec<Self>) -> Elems;
}

impl Product for f64 {
    const ZERO: f64 = 0.0;
    fn plus(self, a: f64, b: f64) -> f64 {
        self + a * b
    }
    fn encode(v: Vec<f64>) -> Elems {
        Elems::Float(v)
    }
}

impl Product for i64 {
    const ZERO: i64 = 0;
    fn plus(self, a: i64, b: i64) -> i64 {
        self.wrapping_add(a.wrapping_mul(b))
    }
    fn encode(v: Vec<i64>) -> Elems {
        Elems::Int(v.into_iter().map(i128::from).collect())
    }
}

/// Two tensors as numbers of the same kind.
pub(super) enum Pair {
    Float(Vec<f64>, Vec<f64>),
    Int(Vec<i64>, Vec<i64>),
}

pub(super) fn pair(a: &Tensor, b: &Tensor) -> Result<Pair, String> {
    let low_bits = |v: Vec<i128>| v.into_iter().map(|x| x as i64).collect();
    match (decode(a)?, decode(b)?) {
        (Elems::Float(a), Elems::Float(b)) => Ok(Pair::Float(a, b)),
        (Elems::Int(a), Elems::Int(b)) => Ok(Pair::Int(low_bits(a), low_bits(b))),
        _ => Err(format!("cannot multiply {} by {}", a.dtype(), b.dtype())),
    }
}

/// `[batch axes, axes that are summed]` of each side.
pub(super) fn contract(
    a: &Tensor,
    b: &Tensor,
    [a_batch, a_sum]: [&Vec<i64>; 2],
    [b_batch, b_sum]: [&Vec<i64>; 2],
    out: Vec<usize>,
) -> Result<Tensor, String> {
    fn run<T: Product>(a: &[T], b: &[T], [batches, m, k, n]: [usize; 4]) -> Vec<T> {
        let mut c = vec![T::ZERO; batches * m * n];
        if k > 0 {
            for (i, c) in c.chunks_exact_mut(m * n).enumerate() {
                multiply(&a[i * m * k..][..m * k], &b[i * k * n..][..k * n], c, [m, k, n], n);
            }
        }
        c
    }
    let total = check_size(&out, 16)?;
    if total == 0 {
        return Ok(Tensor::from_elems(a.dtype(), out, &empty(a)));
    }
    let free = |x: &Tensor, used: [&Vec<i64>; 2]| -> Vec<i64> {
        (0..x.rank() as i64).filter(|i| !used.iter().any(|u| u.contains(i))).collect()
    };
    let size = |x: &Tensor, axes: &[i64]| -> usize {
        let sizes: Vec<usize> = axes.iter().map(|&i| x.shape()[i as usize]).collect();
        count(&sizes).unwrap_or(0)
    };
    let (a_free, b_free) = (free(a, [a_batch, a_sum]), free(b, [b_batch, b_sum]));
    let sizes = [size(a, a_batch), size(a, &a_free), size(a, a_sum), size(b, &b_free)];
    let a = ordered(a, &[&a_batch[..], &a_free, a_sum].concat())?;
    let b = ordered(b, &[&b_batch[..], b_sum, &b_free].concat())?;
    let product = match pair(&a, &b)? {
        Pair::Float(a, b) => Product::encode(run(&a, &b, sizes)),
        Pair::Int(a, b) => Product::encode(run(&a, &b, sizes)),
    };
    Ok(Tensor::from_elems(a.dtype(), out, &product))
}

pub(super) fn empty(like: &Tensor) -> Elems {
    if like.dtype().is_float() { Elems::Float(vec![]) } else { Elems::Int(vec![]) }
}

fn ordered(x: &Tensor, perm: &[i64]) -> Result<Tensor, String> {
    if perm.is_sorted() {
        return Ok(x.clone());
    }
    movement::transpose(x, perm, perm.iter().map(|&p| x.shape()[p as usize]).collect())
}

/// `c += a * b` for row-major `a` (m × k) and `b` (k × n); rows of `c` lie `c_row` apart.
pub(super) fn multiply<T: Product>(a: &[T], b: &[T], c: &mut [T], [m, k, n]: [usize; 3], c_row: usize) {
    // Blocks of `b` that stay in the cache while all rows of `a` pass by.
    const K: usize = 128;
    const N: usize = 512;
    for j in (0..n).step_by(N) {
        let width = N.min(n - j);
        for p in (0..k).step_by(K) {
            let depth = K.min(k - p);
            for i in 0..m {
                let c = &mut c[i * c_row + j..][..width];
                let (quads, singles) = a[i * k + p..][..depth].as_chunks::<4>();
                let (b, b_rest) = b[p * n..(p + depth) * n].split_at(quads.len() * 4 * n);
                for (q, b) in quads.iter().zip(b.chunks_exact(4 * n)) {
                    let row = |r: usize| &b[r * n + j..][..width];
                    for ((((c, &b0), &b1), &b2), &b3) in c.iter_mut().zip(row(0)).zip(row(1)).zip(row(2)).zip(row(3)) {
                        *c = c.plus(q[0], b0).plus(q[1], b1).plus(q[2], b2).plus(q[3], b3);
                    }
                }
                for (&single, b) in singles.iter().zip(b_rest.chunks_exact(n)) {
                    c.iter_mut().zip(&b[j..j + width]).for_each(|(c, &b)| *c = c.plus(single, b));
                }
            }
        }
    }
}
