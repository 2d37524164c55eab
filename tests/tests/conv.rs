//! Convolutions in blocks of channels against the evaluator, at sizes that random functions do not reach: tiles that end within rows, borders wider
//! than tiles, strides, dilations, groups, one to three spatial axes, and sizes that only the run knows. Inputs are small multiples of 1/4, so that every
//! order of summation gives the same bits.
use numrsc::{
    compile::{self, Codegen, Generator},
    native,
};
use numrsc_ir::{
    DType, Data, Dim, Func, Lit, Machine, Op, Scalar, ScalarFn, Tensor, Type,
    eval::eval,
    scalar::{Call, Step},
    verify,
};
use numrsc_passes::{Context, layout};
use numrsc_tests::{
    generate,
    native::{GENERATORS, options},
    rng::Rng,
};

/// A convolution; pads are those before and behind each axis.
#[derive(Clone, Debug)]
struct Case {
    images: usize,
    inputs: usize,
    outputs: usize,
    groups: usize,
    input: Vec<usize>,
    window: Vec<usize>,
    stride: i64,
    dilation: i64,
    spread: i64,
    pads: (i64, i64),
    /// Inputs of every group from this one on have no weights, like those that were rounded up.
    weighted: usize,
}

impl Case {
    fn new(channels: [usize; 3], input: &[usize], window: &[usize], stride: i64, pads: (i64, i64)) -> Case {
        let [inputs, outputs, groups] = channels;
        let (input, window) = (input.to_vec(), window.to_vec());
        Case {
            images: 1,
            inputs,
            outputs,
            groups,
            input,
            window,
            stride,
            dilation: 1,
            spread: 1,
            pads,
            weighted: inputs,
        }
    }

    fn op(&self, in_block: i64, out_block: i64) -> Op {
        let space = self.input.len();
        Op::Conv {
            strides: vec![self.stride; space],
            dilations: vec![self.dilation; space],
            spread: vec![self.spread; space],
            low: vec![Dim::Const(self.pads.0); space],
            high: vec![Dim::Const(self.pads.1); space],
            groups: self.groups as i64,
            in_block,
            out_block,
        }
    }

    fn weights(&self) -> Tensor {
        let shape = [&[self.outputs, self.inputs / self.groups], &self.window[..]].concat();
        let mut weights = generate::tensor(&mut Rng::new(7), DType::F32, shape.clone(), false).to_f64s();
        let taps: usize = self.window.iter().product();
        for (n, taps) in weights.chunks_exact_mut(taps).enumerate() {
            if n % shape[1] >= self.weighted {
                taps.fill(0.0);
            }
        }
        Tensor::from_f32(&shape, &weights.iter().map(|&w| w as f32).collect::<Vec<_>>())
    }

    /// The convolution alone over blocks and its operand, numbers for which every order of summation gives the same bits.
    fn blocks(&self, block: usize, open: bool) -> (Func, Tensor) {
        let (f, shape) = self.function(self.weights(), block, open);
        (f, generate::tensor(&mut Rng::new(9), DType::F32, shape, false))
    }

    /// The convolution alone over blocks, those of the result only if it divides into them, and the shape of its operand; with `open`, all sizes but the
    /// channels are symbols.
    fn function(&self, weights: Tensor, block: usize, open: bool) -> (Func, Vec<usize>) {
        let fitting = |n: usize| [block, block.min(8)].into_iter().find(|b| n.is_multiple_of(*b)).unwrap_or(1);
        let alone = self.groups > 1 && self.groups == self.outputs;
        let out_block = fitting(if alone { self.outputs } else { self.outputs / self.groups });
        let in_block = fitting(self.inputs);
        let mut shape = vec![self.images, self.inputs / in_block];
        shape.extend(&self.input);
        shape.extend((in_block > 1).then_some(in_block));
        let mut dims: Vec<Dim> = shape.iter().map(|&n| Dim::Const(n as i64)).collect();
        if open {
            dims[0] = Dim::sym("n");
            (0..self.input.len()).for_each(|d| dims[2 + d] = Dim::sym(format!("s{d}")));
        }
        let mut f = Func::new();
        let x = f.param(Type::tensor(DType::F32, dims)).expect("a parameter");
        let w = f.push(Op::Const { value: weights }, &[]).expect("a constant");
        let y = f.push(self.op(in_block as i64, out_block as i64), &[x, w]).expect("a convolution");
        f.set_results(vec![y]);
        (f, shape)
    }
}

fn cases() -> Vec<Case> {
    let mut all = vec![
        Case::new([16, 32, 1], &[9, 13], &[3, 3], 1, (1, 1)),
        Case::new([16, 24, 1], &[7, 7], &[3, 3], 1, (1, 1)),
        Case::new([8, 8, 1], &[20, 31], &[3, 3], 2, (1, 1)),
        Case::new([8, 40, 1], &[5, 4], &[5, 5], 1, (2, 2)),
        Case::new([24, 16, 1], &[6, 50], &[1, 1], 1, (0, 0)),
        Case::new([16, 16, 1], &[1, 1], &[1, 1], 1, (0, 0)),
        Case::new([16, 16, 1], &[11, 9], &[1, 1], 2, (0, 0)),
        Case::new([16, 16, 1], &[8, 8], &[2, 2], 2, (0, 0)),
        Case::new([16, 16, 1], &[8, 8], &[1, 1], 1, (-1, -2)),
        Case::new([16, 16, 1], &[4, 5], &[1, 1], 1, (2, 1)),
        Case::new([3, 16, 1], &[21, 30], &[7, 7], 2, (3, 3)),
        Case::new([3, 8, 1], &[33, 33], &[3, 3], 2, (0, 1)),
        Case::new([32, 64, 2], &[6, 7], &[3, 3], 1, (1, 1)),
        Case::new([16, 16, 1], &[67], &[5], 1, (2, 2)),
        Case::new([8, 16, 1], &[3, 4, 5], &[3, 1, 3], 1, (1, 1)),
        Case::new([16, 16, 16], &[7, 7], &[3, 3], 1, (1, 1)),
        Case::new([32, 32, 32], &[15, 29], &[3, 3], 2, (1, 1)),
        Case::new([8, 8, 8], &[9, 40], &[5, 5], 1, (2, 2)),
        Case::new([8, 8, 8], &[30], &[9], 1, (8, 0)),
        Case::new([8, 8, 8], &[5, 3], &[7, 7], 1, (3, 3)),
        Case::new([8, 8, 8], &[5, 13], &[3, 3], 1, (0, 0)),
        // Weights that do not fit the first-level cache.
        Case::new([128, 40, 1], &[9, 10], &[3, 3], 2, (1, 1)),
        Case::new([512, 16, 1], &[5, 6], &[1, 1], 1, (0, 0)),
        Case::new([64, 64, 1], &[13, 17], &[3, 3], 1, (1, 1)),
        Case::new([64, 64, 1], &[13, 16], &[3, 3], 1, (0, 2)),
        Case::new([32, 16, 1], &[9, 12], &[3, 3], 1, (1, 1)),
        Case::new([32, 24, 1], &[9, 12], &[3, 3], 1, (1, 1)),
        Case::new([32, 40, 1], &[7, 8], &[3, 3], 1, (1, 1)),
        Case::new([128, 128, 2], &[6, 7], &[3, 3], 1, (1, 1)),
    ];
    all.extend([(2, 1), (1, 2), (3, 2)].map(|(images, dilation)| {
        let case = Case::new([16, 16, 1], &[12, 10], &[3, 3], 1, (dilation, 1));
        Case { images, dilation, ..case }
    }));
    // Inputs without weights: of one block, of the last part of several, and of a whole block.
    let weighted = |weighted: usize, case: Case| Case { weighted, ..case };
    all.extend([
        weighted(12, Case::new([16, 16, 1], &[9, 13], &[7, 3], 1, (3, 1))),
        weighted(24, Case::new([32, 32, 1], &[9, 13], &[1, 3], 1, (1, 1))),
        weighted(40, Case::new([48, 32, 1], &[9, 13], &[5, 5], 2, (2, 2))),
        weighted(13, Case::new([32, 5, 1], &[9, 13], &[3, 3], 2, (1, 1))),
        weighted(3, Case::new([32, 32, 2], &[6, 7], &[3, 3], 2, (1, 1))),
        weighted(0, Case::new([16, 16, 1], &[6, 7], &[1, 1], 1, (0, 0))),
    ]);
    // Results without blocks.
    all.extend([
        Case::new([16, 5, 1], &[9, 13], &[3, 3], 1, (1, 1)),
        Case::new([32, 255, 1], &[5, 6], &[1, 1], 1, (0, 0)),
        Case::new([512, 18, 1], &[3, 40], &[1, 1], 1, (0, 0)),
        Case { images: 2, ..Case::new([16, 6, 2], &[10, 9], &[3, 3], 2, (1, 0)) },
        Case::new([8, 1, 1], &[50], &[3], 1, (1, 1)),
    ]);
    // Transposed convolutions: all phases alike, some taps missing, pixels cut off.
    let transposed = |channels: [usize; 3], input: &[usize], window: &[usize], spread: i64, pads: (i64, i64)| Case {
        spread,
        ..Case::new(channels, input, window, 1, pads)
    };
    all.extend([
        transposed([16, 16, 1], &[7, 9], &[2, 2], 2, (1, 1)),
        transposed([16, 24, 1], &[7, 9], &[3, 3], 2, (1, 2)),
        transposed([16, 16, 1], &[7, 9], &[3, 3], 2, (1, 1)),
        transposed([16, 16, 1], &[6, 5], &[4, 4], 2, (2, 2)),
        transposed([32, 16, 2], &[6, 5], &[5, 5], 3, (3, 2)),
        transposed([8, 8, 1], &[20], &[2], 4, (1, 1)),
        transposed([16, 1, 1], &[7, 9], &[2, 2], 2, (1, 1)),
        transposed([16, 3, 1], &[7, 9], &[3, 3], 2, (1, 2)),
        transposed([8, 2, 1], &[21], &[3], 3, (2, 2)),
        transposed([3, 8, 1], &[5, 6], &[2, 2], 2, (1, 1)),
    ]);
    all.push(Case { dilation: 2, images: 2, ..Case::new([16, 16, 16], &[12, 10], &[3, 3], 1, (2, 2)) });
    all
}

#[test]
fn blocks_of_channels() {
    for case in cases() {
        for (block, open) in [4, 8, 16].into_iter().flat_map(|block| [(block, false), (block, true)]) {
            if case.inputs % block != 0 && case.outputs % block != 0 {
                continue;
            }
            let (f, x) = case.blocks(block, open);
            agree(&f, x, &format!("blocks of {block}, open {open}: {case:?}"));
        }
    }
}

/// Both generators give what the evaluator gives, with and without checks, on any number of threads.
fn agree(f: &Func, x: Tensor, what: &str) {
    let inputs = [Data::Tensor(x)];
    let expected = eval(f, &inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
    for generator in GENERATORS {
        for sanitize in [false, true] {
            let options = options(generator).with(|o| o.sanitize = sanitize);
            let model = native::load(f, &options).unwrap_or_else(|e| panic!("{what}: {e}"));
            for threads in if sanitize { &[2][..] } else { &[1, 2, 8] } {
                let got = native::run(&model, &inputs, *threads);
                let got = got.unwrap_or_else(|e| panic!("{generator:?}, {what}: {e}"));
                assert!(same(&expected[0], &got[0]), "{generator:?}, sanitize {sanitize}, {what}");
            }
        }
    }
}

/// `||y| - 1/4| - 2/4| …`: as much to do for every element, without an error of rounding.
fn folded(mut f: Func, times: u32) -> Func {
    let (mut steps, mut last) = (vec![Step::Arg(0)], 0);
    let call = |f, args: &[u32]| Step::Call(Call { f, args: args.to_vec(), to: None });
    for k in 1..=times {
        let end = steps.len() as u32;
        steps.push(call(ScalarFn::Abs, &[last]));
        steps.push(Step::Lit(Lit::float(DType::F32, f64::from(k) / 4.0)));
        steps.push(call(ScalarFn::Sub, &[end, end + 1]));
        last = end + 2;
    }
    let y = f.push(Op::Map { f: Scalar::new(&steps, last as usize) }, &[f.results()[0]]).expect("a map");
    f.set_results(vec![y]);
    f
}

/// Long epilogues are loops over the pixels of a tile.
#[test]
fn long_epilogues() {
    let transposed = |window: usize, pads| Case { spread: 2, ..Case::new([16, 24, 1], &[7, 9], &[window; 2], 1, pads) };
    let cases = [
        Case::new([16, 32, 1], &[9, 13], &[3, 3], 2, (1, 1)),
        Case::new([24, 16, 1], &[6, 50], &[1, 1], 1, (0, 0)),
        Case::new([512, 16, 1], &[5, 6], &[1, 1], 1, (0, 0)),
        Case { images: 2, ..Case::new([16, 48, 2], &[11, 9], &[5, 5], 1, (2, 2)) },
        Case::new([16, 24, 1], &[67], &[5], 1, (2, 2)),
        transposed(2, (1, 1)),
        transposed(3, (1, 2)),
    ];
    for case in cases {
        for (block, open) in [(8, false), (8, true), (16, false), (16, true)] {
            let (f, x) = case.blocks(block, open);
            agree(&folded(f, 40), x, &format!("blocks of {block}, open {open}: {case:?}"));
        }
    }
}

/// A kernel does not grow with the pixels of its tiles times the length of its epilogue.
#[test]
fn long_epilogues_are_not_unrolled() {
    let lines = |times: u32| {
        let (f, _) = Case::new([16, 32, 1], &[40, 40], &[1, 1], 1, (0, 0)).blocks(8, false);
        let options = options(Generator::Llvm);
        let codegen = Codegen::new(&options).expect("a generator");
        let lowered = compile::lower(&folded(f, times), &codegen, &options, &mut vec![]).expect("a module");
        lowered.module.to_string().lines().count()
    };
    let (some, more) = (lines(100), lines(200));
    assert!(more - some < 100 * 2 * 16, "{some} lines, {more} with 200 instructions more for every element");
}

/// F(4x4, 3x3) rounds otherwise than the sum of products, by as much as the documentation says.
#[test]
fn large_tiles_stay_within_their_bound() {
    const BOUND: f64 = 1.5e-5;
    let three = |channels: [usize; 2], input: [usize; 2], pads: (i64, i64)| {
        Case::new([channels[0], channels[1], 1], &input, &[3, 3], 1, pads)
    };
    // Those that are too small for large tiles have them if only the run knows.
    let cases = [
        (three([32, 16], [4, 4], (1, 1)), true),
        (three([32, 24], [9, 13], (1, 1)), true),
        (three([160, 40], [19, 6], (0, 2)), true),
        (three([64, 64], [21, 34], (1, 1)), false),
        (three([32, 40], [31, 27], (2, 0)), false),
        (Case { images: 2, ..three([256, 16], [23, 23], (0, 0)) }, false),
    ];
    let mut worst = 0f64;
    for (seed, (case, open)) in cases.iter().enumerate() {
        let mut rng = Rng::new(seed as u64);
        // Of any sign and of very different sizes.
        let mut any = |shape: &[usize]| {
            let number = |rng: &mut Rng| {
                let fraction = (rng.draw() >> 40) as f32 / (1 << 23) as f32 - 1.0;
                if rng.one_in(50) { fraction * 100.0 } else { fraction }
            };
            let numbers: Vec<f32> = (0..shape.iter().product()).map(|_| number(&mut rng)).collect();
            Tensor::from_f32(shape, &numbers)
        };
        let magnitudes = |t: &Tensor| {
            let numbers: Vec<f32> = t.to_f64s().iter().map(|x| x.abs() as f32).collect();
            Tensor::from_f32(t.shape(), &numbers)
        };
        let weights = any(case.weights().shape());
        for (generator, block) in GENERATORS.into_iter().flat_map(|g| [16, 8, 4].map(|block| (g, block))) {
            let options = options(generator).with(|o| o.tolerance = BOUND);
            let codegen = Codegen::new(&options).expect("a generator");
            if !codegen.machine.blocks().any(|b| b == block as i64) || case.outputs % block != 0 {
                continue;
            }
            let (f, shape) = case.function(weights.clone(), block, *open);
            let x = any(&shape);
            let (sums, _) = case.function(magnitudes(&weights), block, *open);
            let scale = eval(&sums, &[Data::Tensor(magnitudes(&x))]).unwrap_or_else(|e| panic!("{case:?}: {e}"));
            let scale = numbers(&scale[0]).into_iter().fold(0.0, f64::max);
            let inputs = [Data::Tensor(x)];
            let expected = eval(&f, &inputs).unwrap_or_else(|e| panic!("{case:?}: {e}"));

            let lowered =
                compile::lower(&f, &codegen, &options, &mut vec![]).unwrap_or_else(|e| panic!("{case:?}: {e}"));
            let names: Vec<&str> = lowered.module.functions.iter().map(|f| &*f.name).collect();
            assert!(names.iter().any(|n| n.starts_with("conv_winograd_4x4")), "{case:?}: {names:?}");
            let model = native::load(&f, &options).unwrap_or_else(|e| panic!("{case:?}: {e}"));
            let got = [1, 2, 8]
                .map(|threads| native::run(&model, &inputs, threads).unwrap_or_else(|e| panic!("{case:?}: {e}")));
            assert!(got.iter().all(|other| same(&other[0], &got[0][0])), "{generator:?}: threads change {case:?}");
            let errors = numbers(&got[0][0]).into_iter().zip(numbers(&expected[0])).map(|(a, b)| (a - b).abs() / scale);
            let error = errors.fold(0.0, f64::max);
            assert!(error <= BOUND, "{generator:?}: {case:?} is off by {error:e}");
            worst = worst.max(error);
        }
    }
    println!("the largest error was {worst:e}");
}

fn numbers(data: &Data) -> Vec<f64> {
    let Data::Tensor(t) = data else { panic!("a tensor") };
    t.to_f64s()
}

/// Equal numbers; zeros may differ in sign.
fn same(a: &Data, b: &Data) -> bool {
    let (Data::Tensor(a), Data::Tensor(b)) = (a, b) else { return false };
    a.shape() == b.shape() && a.to_f64s() == b.to_f64s()
}

#[test]
fn layout_changes_no_results() {
    let machine = |bytes| Machine { vector_bytes: bytes, ..Machine::AVX2 };
    for case in cases().into_iter().filter(|c| c.input.len() == 2 && c.groups == 1) {
        let f = network(&case);
        let shape: Vec<usize> = [&[case.images, case.inputs], &case.input[..]].concat();
        let inputs = [Data::Tensor(generate::tensor(&mut Rng::new(3), DType::F32, shape, false))];
        let expected = eval(&f, &inputs).unwrap_or_else(|e| panic!("{case:?}: {e}"));
        for bytes in [16, 32, 64] {
            let blocked = layout(&f, &Context::new(machine(bytes))).unwrap_or_else(|e| panic!("{case:?}: {e}"));
            verify(&blocked).unwrap_or_else(|e| panic!("{case:?}: {e}\n{blocked}"));
            let got = eval(&blocked, &inputs).unwrap_or_else(|e| panic!("{case:?}: {e}\n{blocked}"));
            assert!(expected.iter().zip(&got).all(|(a, b)| same(a, b)), "{case:?}\n{blocked}");
        }
        for generator in GENERATORS {
            let model = native::load(&f, &options(generator)).unwrap_or_else(|e| panic!("{case:?}: {e}"));
            let got = native::run(&model, &inputs, 2).unwrap_or_else(|e| panic!("{generator:?} {case:?}: {e}"));
            assert!(expected.iter().zip(&got).all(|(a, b)| same(a, b)), "{generator:?} {case:?}");
        }
    }
}

/// A convolution with bias and residual, pooled, joined, cut and padded before another one.
fn network(case: &Case) -> Func {
    let g = numrsc_ir::build::Graph::new();
    let shape: Vec<Dim> = [&[case.images, case.inputs], &case.input[..]].concat().iter().map(|&n| n.into()).collect();
    let x = g.param(Type::tensor(DType::F32, shape)).expect("a parameter");
    let mut rng = Rng::new(1);
    let mut constant =
        |shape: Vec<usize>| g.constant(generate::tensor(&mut rng, DType::F32, shape, false)).expect("a constant");
    let c = case.outputs;
    let w = constant([&[c, case.inputs], &case.window[..]].concat());
    let (bias, scale, second) = (constant(vec![c, 1, 1]), constant(vec![1, c, 1, 1]), constant(vec![c, 2 * c, 1, 1]));
    let y = g.push(case.op(1, 1), &[x, w]).expect("a convolution");
    let y = g.map([y, bias], |[y, b]| (y + b).max(0.0)).expect("bias");
    let windows = [1, 1].map(|stride| numrsc_ir::build::Window { stride, dilation: 1, low: Dim::ONE, high: Dim::ONE });
    let pooled = y.window(numrsc_ir::ReduceFn::Max, &[3, 3], &windows).expect("a pool");
    let joined = g.concat(&[pooled, y], 1).expect("joined");
    let one = [1, 1].map(|stride| numrsc_ir::build::Window { stride, dilation: 1, low: Dim::ZERO, high: Dim::ZERO });
    let z = joined.conv(second, &one, &[1, 1], 1).expect("a convolution");
    let z = g.map([z, y, scale], |[z, y, s]| z + y * s).expect("a residual");
    let mean = z.reduce(numrsc_ir::ReduceFn::Max, &[2, 3], false).expect("the largest of each channel");
    let results = [z.value(), mean.value(), joined.value()];
    g.finish(&results)
}

/// Numbers of channels that are rounded up, with everything that carries channels between convolutions: what they hold beyond the last one must not be seen.
#[test]
fn rounded_channels_change_no_results() {
    let machine = |bytes| Machine { vector_bytes: bytes, registers: 32, ..Machine::AVX2 };
    for [inputs, middle, outputs] in [[3, 61, 24], [16, 14, 15], [32, 24, 30], [7, 12, 40]] {
        let f = excited(inputs, middle, outputs);
        let inputs = [Data::Tensor(generate::tensor(&mut Rng::new(3), DType::F32, vec![2, inputs, 9, 8], false))];
        let expected = eval(&f, &inputs).expect("a result");
        let close = |got: &[Data]| {
            expected.iter().zip(got).all(|(a, b)| {
                let (a, b) = (numbers(a), numbers(b));
                let scale = a.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-5 * scale)
            })
        };
        for bytes in [16, 32, 64] {
            let blocked = layout(&f, &Context::new(machine(bytes))).expect("a layout");
            verify(&blocked).unwrap_or_else(|e| panic!("{e}\n{blocked}"));
            let got = eval(&blocked, &inputs).unwrap_or_else(|e| panic!("{e}\n{blocked}"));
            assert!(close(&got), "{middle} channels, {bytes} bytes\n{blocked}");
        }
        for generator in GENERATORS {
            let model = native::load(&f, &options(generator)).expect("a model");
            assert!(close(&native::run(&model, &inputs, 2).expect("a result")), "{generator:?} {middle} channels");
        }
    }
}

/// Texts along an axis that channels could have are compared with those of an input: there is nothing to round them up with.
#[test]
fn texts_are_not_rounded_up() {
    for channels in [3, 7, 15] {
        let keys: Vec<String> = (0..channels).map(|n| n.to_string()).collect();
        let keys = Tensor::from_strings(vec![channels], keys).expect("as many as the shape says");
        let mut f = Func::new();
        let shape = vec![Dim::Const(2), Dim::Const(channels as i64)];
        let x = f.param(Type::tensor(DType::Str, shape.clone())).expect("a parameter");
        let keys = f.push(Op::Const { value: keys }, &[]).expect("a constant");
        let keys = f.push(Op::Broadcast { shape, axes: vec![1] }, &[keys]).expect("a broadcast");
        let steps = [Step::Arg(0), Step::Arg(1), Step::Call(Call { f: ScalarFn::Eq, args: vec![0, 1], to: None })];
        let y = f.push(Op::Map { f: Scalar::new(&steps, 2) }, &[x, keys]).expect("a map");
        f.set_results(vec![y]);
        let texts = (0..2 * channels).map(|n| (n % 4).to_string()).collect();
        let inputs = [Tensor::from_strings(vec![2, channels], texts).expect("as many as the shape says").into()];
        let expected = eval(&f, &inputs).expect("a result");
        for generator in GENERATORS {
            let model = native::load(&f, &options(generator)).expect("a model");
            let got = native::run(&model, &inputs, 1).expect("a result");
            assert!(same(&expected[0], &got[0]), "{generator:?}, {channels} texts");
        }
    }
}

/// Convolutions of all and of single channels with a pool, a residual and a factor per channel that depends on the mean of all pixels.
fn excited(inputs: usize, middle: usize, outputs: usize) -> Func {
    let g = numrsc_ir::build::Graph::new();
    let x = g.param(Type::tensor(DType::F32, [2, inputs, 9, 8].map(Dim::from).to_vec())).expect("a parameter");
    let mut rng = Rng::new(1);
    let mut constant = |shape: &[usize]| {
        g.constant(generate::tensor(&mut rng, DType::F32, shape.to_vec(), false)).expect("a constant")
    };
    let window = |pad: i64| {
        [1, 1].map(|stride| numrsc_ir::build::Window { stride, dilation: 1, low: pad.into(), high: pad.into() })
    };
    let first = x.conv(constant(&[middle, inputs, 3, 3]), &window(1), &[1, 1], 1).expect("a convolution");
    let first = g.map([first, constant(&[middle, 1, 1])], |[y, b]| (y + b).max(0.0)).expect("bias");
    let alone = first.conv(constant(&[middle, 1, 3, 3]), &window(1), &[1, 1], middle as i64).expect("a convolution");
    let pooled = alone.window(numrsc_ir::ReduceFn::Max, &[3, 3], &window(1)).expect("a pool");
    let sum = pooled.reduce(numrsc_ir::ReduceFn::Sum, &[2, 3], false).expect("a sum");
    let mean = sum.map(|x| x / 72.0).expect("a mean").reshape(&[2, middle, 1, 1].map(Dim::from)).expect("a mean");
    let few = mean.conv(constant(&[6, middle, 1, 1]), &window(0), &[1, 1], 1).expect("a convolution");
    let factor = few.conv(constant(&[middle, 6, 1, 1]), &window(0), &[1, 1], 1).expect("a convolution");
    let factor = factor.map(|x| (x / 6.0 + 0.5).max(0.0).min(1.0)).expect("a factor");
    let scaled = g.map([pooled, factor, first], |[x, f, y]| x * f + y).expect("a residual");
    let last = scaled.conv(constant(&[outputs, middle, 3, 3]), &window(1), &[1, 1], 1).expect("a convolution");
    let results = [last.value(), scaled.value(), mean.value()];
    g.finish(&results)
}

/// A convolution of dequantised integers. Scales are powers of two, so that floats and integers give the same bits.
fn quantised(case: &Case, types: [(&str, i64); 2], per_output: bool) -> (Func, Vec<Data>) {
    let [(x_type, x_zero), (w_type, w_zero)] = types;
    let dtype = |name: &str| if name == "i8" { DType::I8 } else { DType::U8 };
    let shape = [&[case.images, case.inputs], &case.input[..]].concat();
    let w_shape = [&[case.outputs, case.inputs], &case.window[..]].concat();
    let mut rng = Rng::new(11);
    let mut tensor = |name: &str, shape: &[usize]| {
        let count = shape.iter().product();
        let bytes: Vec<u8> = (0..count).map(|_| rng.draw() as u8).collect();
        Tensor::new(dtype(name), shape.to_vec(), bytes.into()).unwrap()
    };
    let (x, w) = (tensor(x_type, &shape), tensor(w_type, &w_shape));
    let list = |w: &Tensor| w.to_i64s().unwrap().iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let function =
        |name: &str, zero: i64, scale: &str| format!("mul(sub(cast(a0, f32), cast({zero}:{name}, f32)), {scale})");
    let outputs = case.outputs;
    let scales: Vec<&str> = (0..outputs).map(|n| ["0.5", "0.25", "2.0"][n % 3]).collect();
    let scaled = match per_output {
        true => format!("map %1, %3 {{f={}}}", function(w_type, w_zero, "a1")),
        false => format!("map %1 {{f={}}}", function(w_type, w_zero, "0.125:f32")),
    };
    let text = format!(
        "func(%0: {x_type}{shape:?}) {{\n\
         %1 = const {{value={w_type}{w_shape:?}({})}} : {w_type}{w_shape:?}\n\
         %2 = const {{value=f32[{outputs}]({})}} : f32[{outputs}]\n\
         %3 = broadcast %2 {{shape={w_shape:?}, axes=[0]}} : f32{w_shape:?}\n\
         %4 = {scaled} : f32{w_shape:?}\n\
         %5 = map %0 {{f={}}} : f32{shape:?}\nreturn %4, %5\n}}",
        list(&w),
        scales.join(", "),
        function(x_type, x_zero, "0.5:f32")
    );
    let mut f = numrsc_ir::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let [w, x_wide] = [f.results()[0], f.results()[1]];
    let y = f.push(case.op(1, 1), &[x_wide, w]).unwrap();
    f.set_results(vec![y]);
    (f.without_dead_nodes(), vec![Data::Tensor(x)])
}

#[test]
fn quantised_convolutions_are_exact() {
    let case = |channels: [usize; 2], input: &[usize], window: &[usize], stride, pads| {
        Case::new([channels[0], channels[1], 1], input, window, stride, pads)
    };
    let cases = [
        case([32, 48], &[9, 7], &[1, 1], 1, (0, 0)),
        case([16, 32], &[9, 7], &[3, 3], 1, (1, 1)),
        case([61, 30], &[11, 5], &[3, 3], 2, (1, 1)),
        case([64, 16], &[19], &[5], 1, (2, 2)),
        case([24, 61], &[5, 4], &[3, 3], 1, (0, 1)),
    ];
    let types = [[("i8", -128), ("i8", 0)], [("u8", 3), ("i8", 5)], [("i8", 23), ("u8", 128)]];
    for (n, case) in cases.iter().enumerate() {
        let (f, inputs) = quantised(case, types[n % 3], n % 2 == 1);
        verify(&f).unwrap();
        let want = eval(&f, &inputs).unwrap();
        for generator in GENERATORS {
            let options = options(generator);
            let model = native::load(&f, &options).unwrap_or_else(|e| panic!("{case:?}: {e}"));
            for threads in [1, 3] {
                let got = native::run(&model, &inputs, threads).unwrap();
                assert!(same(&got[0], &want[0]), "{generator:?}, {case:?}");
            }
        }
    }
}
