//! Does the cost model of the optimiser order kernels as the machine does?
//!
//! `cargo run --release -p numrsc-benches --bin cost` predicts and measures kernels of all kinds, and counts the pairs in the right order.
use numrsc::{
    compile::{Codegen, Options},
    native,
};
use numrsc_benches::table::{Format, Table};
use numrsc_ir::{Data, Elems, Func, Tensor, parse};
use numrsc_passes::egraph::predict;
use numrsc_runtime::Context;
use std::time::Instant;

/// Kernels of all kinds and sizes.
fn variants() -> Vec<(String, Func)> {
    let mut all = Vec::new();
    let mut add = |name: String, text: String| {
        let func = parse(&text).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
        all.push((name, func));
    };
    for (m, n, k) in [
        (1, 256, 256),
        (1, 2048, 1024),
        (8, 512, 512),
        (64, 64, 64),
        (128, 384, 384),
        (128, 1536, 384),
        (512, 512, 512),
    ] {
        add(
            format!("contract {m}x{n}x{k}"),
            format!(
                "func(%0: f32[{m}, {k}], %1: f32[{k}, {n}]) {{\n  %2 = contract %0, %1 {{a_batch=[], b_batch=[], a_sum=[1], b_sum=[0]}} : f32[{m}, {n}]\n  return %2\n}}"
            ),
        );
    }
    for (c, o, s, w) in [(16, 16, 28, 3), (64, 64, 28, 3), (64, 128, 28, 1), (128, 128, 28, 3)] {
        let pad = w / 2;
        add(
            format!("conv {c}->{o} {s}x{s} {w}x{w}"),
            format!(
                "func(%0: f32[1, {c}, {s}, {s}], %1: f32[{o}, {c}, {w}, {w}]) {{\n  %2 = conv %0, %1 {{strides=[1, 1], dilations=[1, 1], spread=[1, 1], low=[{pad}, {pad}], high=[{pad}, {pad}], groups=1, in_block=1, out_block=1}} : f32[1, {o}, {s}, {s}]\n  return %2\n}}"
            ),
        );
    }
    for n in [1 << 10, 1 << 14, 1 << 18] {
        for f in ["add(a0, a0)", "exp(a0)"] {
            add(
                format!("{f} of {n}"),
                format!("func(%0: f32[{n}]) {{\n  %1 = map %0 {{f={f}}} : f32[{n}]\n  return %1\n}}"),
            );
        }
        add(
            format!("sum of 64 x {}", n / 64),
            format!(
                "func(%0: f32[64, {}]) {{\n  %1 = reduce %0 {{f=sum, axes=[1]}} : f32[64]\n  return %1\n}}",
                n / 64
            ),
        );
        add(
            format!("concat of two {n}"),
            format!(
                "func(%0: f32[{n}], %1: f32[{n}]) {{\n  %2 = concat %0, %1 {{axis=0}} : f32[{}]\n  return %2\n}}",
                2 * n
            ),
        );
    }
    for s in [14, 56] {
        add(
            format!("max pool 32 x {s}x{s}"),
            format!(
                "func(%0: f32[1, 32, {s}, {s}]) {{\n  %1 = window %0 {{f=max, size=[2, 2], strides=[2, 2], dilations=[1, 1], low=[0, 0], high=[0, 0]}} : f32[1, 32, {h}, {h}]\n  return %1\n}}",
                h = s / 2
            ),
        );
    }
    for n in [1 << 10, 1 << 16] {
        add(
            format!("sort of {n}"),
            format!(
                "func(%0: f32[{n}]) {{\n  %1 = argsort %0 {{axis=0, descending=false}} : i64[{n}]\n  return %1\n}}"
            ),
        );
    }
    all
}

/// The shortest of some runs, in nanoseconds.
fn measured(func: &Func, options: &Options) -> u128 {
    let inputs: Vec<Data> = func
        .params()
        .iter()
        .map(|p| {
            let t = func.ty(*p).as_tensor().expect("tensors");
            let shape = t.static_shape().expect("static sizes");
            let n: usize = shape.iter().product();
            let elems = Elems::Float((0..n).map(|i| ((i * 7919) % 1000) as f64 / 500.0 - 1.0).collect());
            Data::Tensor(Tensor::from_elems(t.dtype, shape, &elems))
        })
        .collect();
    let model = native::load(func, options).expect("it compiles");
    let mut context = Context::with_threads(&model, 1).expect("there is memory");
    let times = native::with_inputs(&inputs, |args| {
        (0..15)
            .map(|_| {
                let start = Instant::now();
                model.run_in_order(&mut context, args).expect("it runs");
                start.elapsed().as_nanos()
            })
            .min()
    });
    times.expect("inputs fit").expect("it ran")
}

fn main() -> Result<(), String> {
    let options = Options::default();
    let machine = Codegen::new(&options).map_err(|e| e.to_string())?.machine;
    let all = variants();
    let times: Vec<(u64, u128)> = all.iter().map(|(_, f)| (predict(f, machine), measured(f, &options))).collect();
    let mut table = Table::new(&["kernel", "predicted ns", "measured ns"]);
    for ((name, _), (predicted, measured)) in all.iter().zip(&times) {
        table.row([name.clone(), (predicted / 1000).to_string(), measured.to_string()]);
    }
    table.print(Format::Text);
    let (mut agree, mut pairs) = (0, 0);
    for i in 0..all.len() {
        for j in 0..i {
            let ((p, m), (q, n)) = (times[i], times[j]);
            // What takes about as long has no order.
            if m.max(n) < m.min(n) * 5 / 4 {
                continue;
            }
            pairs += 1;
            if (p < q) == (m < n) {
                agree += 1;
            } else {
                println!("another order: {} and {}", all[i].0, all[j].0);
            }
        }
    }
    println!("{agree} of {pairs} pairs whose times differ by a quarter are predicted in this order");
    Ok(())
}
