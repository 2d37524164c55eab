//! What compiling does grows in proportion to a model: quantised blocks of which no two are equal, and more of them.
//! Counts of work, not times.
use numrsc_ir::{Func, Machine, parse, verify};
use numrsc_passes::{
    Context, dequantised_products, egraph::optimise_and_report, fold, fold_channel_scale, layout, literals, lower,
    narrow, optimise,
};
use std::fmt::Write;

const IMAGE: &str = "[1, 16, 14, 14]";
const WEIGHTS: &str = "[16, 16, 1, 1]";

/// Convolutions between dequantised weights and a quantised sum, each with a scale and weights of its own.
fn blocks(count: usize) -> Func {
    let mut text = format!("func(%0: u8{IMAGE}) {{\n");
    for i in 0..count {
        let x = 5 * i;
        let [real, narrow, wide, product, y] = [1, 2, 3, 4, 5].map(|n| x + n);
        let w: Vec<String> =
            (0..256).map(|k| (((k * 37 + i * 101 + k * k * i) % 255) as i64 - 127).to_string()).collect();
        let (of_x, of_w, of_y) = (0.01 + i as f32 * 0.001, 0.002 + i as f32 * 0.0001, 0.011 + i as f32 * 0.001);
        write!(
            text,
            "  %{real} = map %{x} {{f=mul(cast(sub(cast(a0, i32), 3:i32), f32), {of_x:?}:f32)}} : f32{IMAGE}
  %{narrow} = const {{value=i8{WEIGHTS}({})}} : i8{WEIGHTS}
  %{wide} = map %{narrow} {{f=mul(cast(a0, f32), {of_w:?}:f32)}} : f32{WEIGHTS}
  %{product} = conv %{real}, %{wide} {{strides=[1, 1], dilations=[1, 1], spread=[1, 1], low=[0, 0], high=[0, 0], groups=1, in_block=1, out_block=1}} : f32{IMAGE}
  %{y} = map %{product}, %{real} {{f=castsat(add(round(div(max(add(a0, a1), 0.0:f32), {of_y:?}:f32)), 3.0:f32), u8)}} : u8{IMAGE}\n",
            w.join(", ")
        )
        .expect("text can be written");
    }
    writeln!(text, "  return %{}\n}}", 5 * count).expect("text can be written");
    let func = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    verify(&func).unwrap_or_else(|e| panic!("{e}\n{text}"));
    func
}

/// What there is to count, by name.
fn work(count: usize) -> Vec<(&'static str, u64)> {
    let of = |result: numrsc_passes::Result<Func>| result.unwrap_or_else(|e| panic!("{count} blocks: {e}"));
    let cx = &Context::new(Machine::AVX512_VNNI);
    let func = of(literals(&blocks(count), cx).and_then(|f| dequantised_products(&f, cx)).and_then(|f| fold(&f, cx)));
    let folded = func.nodes().len();
    let (func, report) = optimise_and_report(&func, cx).unwrap_or_else(|e| panic!("{count} blocks: {e}"));
    let func = of(fold_channel_scale(&func, cx).and_then(|f| fold(&f, cx)).and_then(|f| narrow(&f, cx)));
    let func = of(layout(&func, cx));
    let lowered = lower(&func, cx).unwrap_or_else(|e| panic!("{count} blocks: {e}"));
    let lines = lowered.module.functions.iter().map(|f| f.to_string().lines().count() as u64);
    vec![
        ("nodes after folding", folded as u64),
        ("terms and steps of the optimiser", report.work),
        ("nodes before lowering", func.nodes().len() as u64),
        ("launches", lowered.launches.len() as u64),
        ("lines of kernels", lines.sum()),
    ]
}

/// Where regions are cut and which rules fire in them varies with numbers; a quadratic part would make it sixteen times
/// the work.
#[test]
fn four_times_as_many_blocks_are_about_four_times_the_work() {
    let (few, many) = (work(20), work(80));
    for ((what, n), (_, m)) in few.iter().zip(&many) {
        println!("{what}: {n}, {m}");
        assert!(*m <= 7 * n, "{what}: {n} with 20 blocks, {m} with 80");
    }
}

#[test]
fn threads_change_nothing() {
    let func = blocks(80);
    let by = |jobs| {
        let cx = Context::new(Machine::AVX512_VNNI).with(|o| o.jobs = jobs);
        optimise(&func, &cx).map_or_else(|e| panic!("{e}"), |f| f.to_string())
    };
    assert_eq!(by(1), by(3));
}
