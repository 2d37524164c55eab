//! Products of quantised tensors against the evaluator, bit by bit: integers of 8 bits with and without signs, zero points that are constants, one number of the run or one per
//! row, depths and numbers of rows and columns that no tile divides, and convolutions with and without a border.
use numrsc::native;
use numrsc_ir::{DType, Data, Elems, Func, Tensor, eval::eval, parse, verify};
use numrsc_tests::{
    native::{GENERATORS, options, sanitized},
    rng::Rng,
};

const ROWS: [usize; 7] = [1, 2, 3, 4, 8, 9, 41];
const DEPTHS: [usize; 10] = [1, 2, 3, 4, 5, 7, 16, 33, 130, 1602];
const COLUMNS: [usize; 6] = [1, 5, 16, 33, 64, 100];

/// What is taken away from the rows.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Zero {
    None,
    Literal(i64),
    One,
    PerRow,
}

const ZEROS: [Zero; 5] = [Zero::None, Zero::Literal(128), Zero::Literal(-128), Zero::One, Zero::PerRow];

/// Integers of a type of 8 bits, the largest and the least of them often.
fn bytes(rng: &mut Rng, dtype: DType, count: usize) -> Vec<i128> {
    let (low, high) = dtype.int_range();
    let one = |_| match rng.below(8) {
        0 => low,
        1 => high,
        _ => low + rng.below(256) as i128,
    };
    (0..count).map(one).collect()
}

fn weights(rng: &mut Rng, count: usize) -> String {
    bytes(rng, DType::I8, count).iter().map(i128::to_string).collect::<Vec<_>>().join(", ")
}

/// `(x - zero) * w` in `i32`, with sizes that the run knows where `open` says so.
fn product([rows, depth, columns]: [usize; 3], dtype: &str, zero: Zero, open: bool, rng: &mut Rng) -> Func {
    let n = if open { "n".to_owned() } else { rows.to_string() };
    let (w, x) = (weights(rng, depth * columns), format!("[{n}, {depth}]"));
    let (parameter, spread, f, args) = match zero {
        Zero::None => (String::new(), String::new(), "cast(a0, i32)".to_owned(), "%0"),
        Zero::Literal(z) => (String::new(), String::new(), format!("sub(cast(a0, i32), {z}:i32)"), "%0"),
        Zero::One | Zero::PerRow => {
            let (shape, axes) = if zero == Zero::One { ("[]".to_owned(), "[]") } else { (format!("[{n}]"), "[0]") };
            let spread = format!("  %2 = broadcast %1 {{shape={x}, axes={axes}}} : {dtype}{x}\n");
            let f = "sub(cast(a0, i32), cast(a1, i32))".to_owned();
            (format!(", %1: {dtype}{shape}"), spread, f, "%0, %2")
        }
    };
    let first = if spread.is_empty() { 1 } else { 3 };
    let [left, narrow, wide, result] = [first, first + 1, first + 2, first + 3];
    let text = format!(
        "func(%0: {dtype}{x}{parameter}) {{\n{spread}  %{left} = map {args} {{f={f}}} : i32{x}
  %{narrow} = const {{value=i8[{depth}, {columns}]({w})}} : i8[{depth}, {columns}]
  %{wide} = map %{narrow} {{f=cast(a0, i32)}} : i32[{depth}, {columns}]
  %{result} = contract %{left}, %{wide} {{a_batch=[], b_batch=[], a_sum=[1], b_sum=[0]}} : i32[{n}, {columns}]
  return %{result}\n}}\n"
    );
    function(&text)
}

/// A convolution of `x - zero`, which needs no correction if that is never negative.
fn convolution([inputs, outputs]: [usize; 2], (window, pad): (usize, usize), zero: i64, rng: &mut Rng) -> Func {
    let w = weights(rng, outputs * inputs * window * window);
    let shape = format!("[{outputs}, {inputs}, {window}, {window}]");
    let size = 9 + 2 * pad - window + 1;
    function(&format!(
        "func(%0: i8[1, {inputs}, 9, 9]) {{
  %1 = map %0 {{f=sub(cast(a0, i32), {zero}:i32)}} : i32[1, {inputs}, 9, 9]
  %2 = const {{value=i8{shape}({w})}} : i8{shape}
  %3 = map %2 {{f=cast(a0, i32)}} : i32{shape}
  %4 = conv %1, %3 {{strides=[1, 1], dilations=[1, 1], spread=[1, 1], low=[{pad}, {pad}], high=[{pad}, {pad}], groups=1, in_block=1, out_block=1}} : i32[1, {outputs}, {size}, {size}]
  return %4\n}}\n"
    ))
}

fn function(text: &str) -> Func {
    let f = parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    verify(&f).unwrap_or_else(|e| panic!("{e}\n{text}"));
    f
}

/// Both generators give the evaluator's bits, also with a check of every access.
fn check(f: &Func, sizes: &[Vec<usize>], what: &str, rng: &mut Rng) {
    let inputs: Vec<Data> = f
        .params()
        .iter()
        .zip(sizes)
        .map(|(p, shape)| {
            let dtype = f.ty(*p).as_tensor().expect("a tensor").dtype;
            let all = Elems::Int(bytes(rng, dtype, shape.iter().product()));
            Data::Tensor(Tensor::from_elems(dtype, shape.clone(), &all))
        })
        .collect();
    let expected = eval(f, &inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
    for generator in GENERATORS {
        for options in [options(generator), sanitized(generator).options] {
            let model = native::load(f, &options).unwrap_or_else(|e| panic!("{what}: {e}"));
            let got = native::run(&model, &inputs, 2).unwrap_or_else(|e| panic!("{generator:?} {what}: {e}"));
            assert_eq!(got, expected, "{generator:?} {what}");
        }
    }
}

#[test]
fn products_are_exact() {
    let mut rng = Rng::new(11);
    for number in 0..120 {
        let sizes = [*rng.pick(&ROWS), DEPTHS[number % DEPTHS.len()], *rng.pick(&COLUMNS)];
        let (dtype, zero, open) = (*rng.pick(&["u8", "i8"]), ZEROS[number % ZEROS.len()], rng.one_in(3));
        let f = product(sizes, dtype, zero, open, &mut rng);
        let zeros = if zero == Zero::PerRow { vec![sizes[0]] } else { vec![] };
        check(&f, &[vec![sizes[0], sizes[1]], zeros], &format!("{sizes:?} {dtype} {zero:?} {open}"), &mut rng);
    }
}

#[test]
fn convolutions_are_exact() {
    let mut rng = Rng::new(12);
    for channels in [[16, 16], [32, 48], [64, 16], [61, 24], [8, 8]] {
        for (window, zero) in [((1, 0), -128), ((1, 0), 5), ((3, 1), -128), ((3, 1), 0), ((3, 0), 17)] {
            let f = convolution(channels, window, zero, &mut rng);
            check(&f, &[vec![1, channels[0], 9, 9]], &format!("{channels:?} {window:?} {zero}"), &mut rng);
        }
    }
}
