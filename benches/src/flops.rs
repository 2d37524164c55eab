//! The arithmetic of a model and the peak of the processor.
#![allow(unsafe_code)]
use numrsc_ir::{
    Dim, Func, Op, Type, Value,
    dim::Sym,
    known::{self, Known},
};
use std::{collections::HashMap, thread, time::Instant};

type Sizes = HashMap<Sym, i64>;

/// 10⁹ operations (a multiplication and an addition are two) of the products and convolutions of floats, for inputs of these shapes.
///
/// Counted in the model as it is written: work that the optimiser saves counts as done. Of two branches the longer counts; sizes that depend on data, and
/// rounds of loops that a condition may end, count as 1.
pub fn gflop(func: &Func, inputs: &[Vec<usize>]) -> f64 {
    let mut sizes = Sizes::new();
    for (param, shape) in func.params().into_iter().zip(inputs) {
        let Ok(ty) = func.ty(param).as_tensor() else { continue };
        let named = ty.shape.iter().zip(shape).filter_map(|(dim, &size)| Some((dim.as_sym()?.clone(), size as i64)));
        sizes.extend(named);
    }
    operations(func, &sizes) / 1e9
}

fn operations(func: &Func, sizes: &Sizes) -> f64 {
    // Sizes computed from unknown sizes may be invalid.
    let size = |dim: &Dim| dim.eval(&|sym| Some(sizes.get(sym).copied().unwrap_or(1))).unwrap_or(1);
    let of = |dim: &Dim| size(dim).max(0) as f64;
    let shape = |ty: &Type| ty.as_tensor().map_or(vec![], |t| t.shape.iter().map(of).collect());
    let products = |v: Value, depth: f64| match func.ty(v).as_tensor() {
        Ok(ty) if ty.dtype.is_float() => 2.0 * depth * shape(func.ty(v)).iter().product::<f64>(),
        _ => 0.0,
    };
    let node = |v: Value| {
        let node = func.node(v);
        match &node.op {
            Op::Contract { a_sum, .. } => {
                let a = shape(func.ty(node.args[0]));
                products(v, a_sum.iter().map(|&axis| a[axis as usize]).product())
            }
            // Zeros inserted between elements are not multiplied.
            Op::Conv { spread, .. } => {
                let depth: f64 = shape(func.ty(node.args[1])).iter().skip(1).product();
                products(v, depth / spread.iter().product::<i64>() as f64)
            }
            Op::If { then, or, .. } => operations(then, sizes).max(operations(or, sizes)),
            Op::Loop { body, .. } => {
                let goes_on = matches!(body.node(body.results()[0]).op, Op::Const { .. } | Op::Param { .. });
                let rounds = known(func, node.args[0]).and_then(|k| k.first().cloned().flatten());
                rounds.filter(|_| goes_on).map_or(1.0, |dim| of(&dim)) * operations(body, sizes)
            }
            _ => 0.0,
        }
    };
    func.values().map(|(v, _)| node(v)).sum()
}

fn known(func: &Func, v: Value) -> Option<Known> {
    known::of_op(func, v, &|operand| known(func, operand))
}

/// The best GFLOP/s of [`peak`] on that many threads at once, measured for long enough that other work disturbs only
/// some attempts.
pub fn best_peak(threads: usize, seconds: f64) -> f64 {
    let best = || {
        let start = Instant::now();
        let times = std::iter::from_fn(|| (start.elapsed().as_secs_f64() < seconds).then(peak));
        times.fold(f64::NAN, f64::max)
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(best)).collect();
        all.into_iter().map(|handle| handle.join().unwrap_or(f64::NAN)).sum()
    })
}

/// GFLOP/s of a short loop of multiply-adds in enough independent chains to hide the latency; NaN where no such loop is
/// known.
pub fn peak() -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        const ROUNDS: usize = 20_000;
        let rate = |flops: &dyn Fn(usize) -> usize| {
            let start = Instant::now();
            flops(ROUNDS) as f64 / 1e9 / start.elapsed().as_secs_f64()
        };
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has what the function needs.
            return rate(&|rounds| unsafe { fused_512(rounds) });
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: as above.
            return rate(&|rounds| unsafe { fused(rounds) });
        }
    }
    f64::NAN
}

/// GB/s, read and written, of copying this many bytes repeatedly.
pub fn copying(bytes: usize) -> f64 {
    let (from, mut to) = (vec![1u8; bytes], vec![0u8; bytes]);
    let once = |_| {
        let start = Instant::now();
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
        2.0 * bytes as f64 / 1e9 / start.elapsed().as_secs_f64()
    };
    (0..50).map(once).fold(0.0, f64::max)
}

/// Chains of fused multiply-adds; returns the number of operations.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fused(rounds: usize) -> usize {
    use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_set1_ps};
    let (factor, term) = (_mm256_set1_ps(0.5), _mm256_set1_ps(1.0));
    let mut chains = [_mm256_set1_ps(0.0); 12];
    for _ in 0..rounds {
        for chain in &mut chains {
            *chain = _mm256_fmadd_ps(*chain, factor, term);
        }
    }
    std::hint::black_box(chains);
    rounds * chains.len() * 16
}

/// The same with the longest vectors: some processors do twice as much with them.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn fused_512(rounds: usize) -> usize {
    use std::arch::x86_64::{_mm512_fmadd_ps, _mm512_set1_ps};
    let (factor, term) = (_mm512_set1_ps(0.5), _mm512_set1_ps(1.0));
    let mut chains = [_mm512_set1_ps(0.0); 12];
    for _ in 0..rounds {
        for chain in &mut chains {
            *chain = _mm512_fmadd_ps(*chain, factor, term);
        }
    }
    std::hint::black_box(chains);
    rounds * chains.len() * 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_convolutions_count() {
        let text = "func(%0: f32[n, 4, 8], %1: f32[6, 2, 3]) {
  %2 = conv %0, %1 {strides=[1], dilations=[1], spread=[1], low=[1], high=[1], groups=2, in_block=1, out_block=1} : f32[n, 6, 8]
  %3 = contract %0, %0 {a_batch=[0], b_batch=[0], a_sum=[2], b_sum=[2]} : f32[n, 4, 4]
  return %2, %3
}";
        let func = numrsc_ir::parse(text).unwrap();
        let expected = 2.0 * (5.0 * 6.0 * 8.0) * (2.0 * 3.0) + 2.0 * (5.0 * 4.0 * 4.0) * 8.0;
        assert_eq!(gflop(&func, &[vec![5, 4, 8], vec![6, 2, 3]]) * 1e9, expected);
    }
}
