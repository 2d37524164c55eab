//! Layers, and the trait of what is made of them.
use crate::{Array, Error, Tensor};
use anyhow::Result;
use std::{
    cell::RefCell,
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
};

/// A weight, which a module shares with whoever asks for its [`parameters`](Module::parameters).
pub type Parameter = Rc<RefCell<Tensor>>;

/// A layer, or what is made of layers.
pub trait Module {
    /// The output for an input.
    fn forward(&self, input: &Tensor) -> Result<Tensor>;

    /// The weights. Their values are in `data`, which can be replaced by an array of the same shape.
    fn parameters(&self) -> Vec<Parameter> {
        vec![]
    }

    /// Go over to training mode, which layers that differ in training cannot run in here.
    fn train(&mut self) {}

    /// Go over to inference.
    fn eval(&mut self) {}

    /// A copy in a box, with the same weights.
    fn box_clone(&self) -> Box<dyn Module>;
}

impl Clone for Box<dyn Module> {
    fn clone(&self) -> Self {
        self.box_clone()
    }
}

/// Numbers evenly from `-limit` to `limit`, the same ones in every run of a program that makes the same weights in the same order.
fn random(shape: Vec<usize>, limit: f32) -> Parameter {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let seed = MADE.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = |i: u64| {
        let mut z = seed.wrapping_add(i.wrapping_add(1).wrapping_mul(0xd1b5_4a32_d192_ed03));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u32 << 24) as f32
    };
    let count: usize = shape.iter().product();
    let data = (0..count as u64).map(|i| limit * (2.0 * number(i) - 1.0)).collect();
    Rc::new(RefCell::new(Tensor::new(Array::new(shape, data), true)))
}

fn constant(shape: Vec<usize>, number: f32) -> Parameter {
    Rc::new(RefCell::new(Tensor::new(Array::full(shape, number), true)))
}

/// The limit of weights where that many numbers go into one.
fn limit(inputs: usize) -> f32 {
    1.0 / (inputs.max(1) as f32).sqrt()
}

/// `x · weightᵀ + bias`.
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Parameter,
    bias: Parameter,
}

impl Linear {
    /// With random weights.
    pub fn new(inputs: usize, outputs: usize) -> Result<Linear> {
        let limit = limit(inputs);
        Ok(Linear { weight: random(vec![outputs, inputs], limit), bias: random(vec![outputs], limit) })
    }
}

impl Module for Linear {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.matmul(&self.weight.borrow().transpose()?)?.add(&self.bias.borrow())
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![Rc::clone(&self.weight), Rc::clone(&self.bias)]
    }

    fn box_clone(&self) -> Box<dyn Module> {
        Box::new(self.clone())
    }
}

/// What convolutions along any number of axes have.
#[derive(Clone, Debug)]
struct Conv {
    weight: Parameter,
    bias: Parameter,
    stride: usize,
    padding: usize,
}

impl Conv {
    fn new(inputs: usize, outputs: usize, kernel: &[usize], stride: usize, padding: usize) -> Result<Conv> {
        if stride == 0 || kernel.contains(&0) {
            let message = format!("a kernel of {kernel:?} with stride {stride} is none");
            return Err(Error::Operation { op: "Conv", message }.into());
        }
        let limit = limit(inputs * kernel.iter().product::<usize>());
        let shape = [&[outputs, inputs], kernel].concat();
        Ok(Conv { weight: random(shape, limit), bias: random(vec![outputs], limit), stride, padding })
    }
}

/// A layer of which the parameters are known by name, and whether it is in training mode.
macro_rules! convolution {
    ($layer:ident, $axes:literal, $conv:ident, $what:literal) => {
        #[doc = $what]
        #[derive(Clone, Debug)]
        pub struct $layer(Conv);

        impl $layer {
            /// With random weights, and kernels that are as long along every axis.
            pub fn new(inputs: usize, outputs: usize, kernel: usize, stride: usize, padding: usize) -> Result<$layer> {
                Conv::new(inputs, outputs, &[kernel; $axes], stride, padding).map($layer)
            }
        }

        impl Module for $layer {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                let Conv { weight, bias, stride, padding } = &self.0;
                input.$conv(&weight.borrow(), Some(&bias.borrow()), *stride, *padding)
            }

            fn parameters(&self) -> Vec<Parameter> {
                vec![Rc::clone(&self.0.weight), Rc::clone(&self.0.bias)]
            }

            fn box_clone(&self) -> Box<dyn Module> {
                Box::new(self.clone())
            }
        }
    };
}

convolution!(Conv1d, 1, conv1d, "A convolution of `[batch, channels, length]`.");
convolution!(Conv2d, 2, conv2d, "A convolution of `[batch, channels, height, width]`.");

/// What batch norms of any number of axes have.
#[derive(Clone, Debug)]
struct BatchNorm {
    scale: Parameter,
    shift: Parameter,
    running_mean: Parameter,
    running_var: Parameter,
    training: bool,
}

impl BatchNorm {
    fn new(channels: usize) -> BatchNorm {
        let channels = || vec![channels];
        let [scale, running_var] = [1.0, 1.0].map(|number| constant(channels(), number));
        let [shift, running_mean] = [0.0, 0.0].map(|number| constant(channels(), number));
        running_mean.borrow_mut().requires_grad = false;
        running_var.borrow_mut().requires_grad = false;
        BatchNorm { scale, shift, running_mean, running_var, training: true }
    }

    fn forward(&self, layer: &'static str, input: &Tensor) -> Result<Tensor> {
        const EPSILON: f32 = 1e-5;
        if self.training {
            return Err(Error::Training { layer }.into());
        }
        let [scale, shift] = [self.scale.borrow(), self.shift.borrow()];
        let [mean, variance] = [self.running_mean.borrow(), self.running_var.borrow()];
        input.batch_norm(&scale, &shift, &mean, &variance, EPSILON)
    }
}

macro_rules! batch_norm {
    ($layer:ident, $what:literal) => {
        #[doc = $what]
        #[derive(Clone, Debug)]
        pub struct $layer(BatchNorm);

        impl $layer {
            /// With a mean of 0 and a variance of 1.
            pub fn new(channels: usize) -> Result<$layer> {
                Ok($layer(BatchNorm::new(channels)))
            }

            /// The mean and variance of training, which an exported model holds.
            pub fn running_stats(&self) -> [Parameter; 2] {
                [Rc::clone(&self.0.running_mean), Rc::clone(&self.0.running_var)]
            }
        }

        impl Module for $layer {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                self.0.forward(stringify!($layer), input)
            }

            fn parameters(&self) -> Vec<Parameter> {
                vec![Rc::clone(&self.0.scale), Rc::clone(&self.0.shift)]
            }

            fn train(&mut self) {
                self.0.training = true;
            }

            fn eval(&mut self) {
                self.0.training = false;
            }

            fn box_clone(&self) -> Box<dyn Module> {
                Box::new(self.clone())
            }
        }
    };
}

batch_norm!(BatchNorm1d, "The channels of `[batch, channels, length]`, with the mean and variance of training.");
batch_norm!(BatchNorm2d, "The channels of `[batch, channels, height, width]`, with the mean and variance of training.");

/// Sets numbers to 0 in training, and does nothing in inference.
#[derive(Clone, Debug)]
pub struct Dropout {
    ratio: f32,
    training: bool,
}

impl Dropout {
    /// Of that part of the numbers.
    pub fn new(ratio: f32) -> Dropout {
        Dropout { ratio, training: true }
    }
}

impl Module for Dropout {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        match self.training {
            true => Err(Error::Training { layer: "Dropout" }.into()),
            false => input.dropout(self.ratio),
        }
    }

    fn train(&mut self) {
        self.training = true;
    }

    fn eval(&mut self) {
        self.training = false;
    }

    fn box_clone(&self) -> Box<dyn Module> {
        Box::new(self.clone())
    }
}

/// One axis in the place of several.
#[derive(Clone, Debug)]
pub struct Flatten {
    start: isize,
    end: isize,
}

impl Flatten {
    /// Of the axes from `start` to `end`, which count from the back if they are negative.
    pub fn new(start: isize, end: isize) -> Flatten {
        Flatten { start, end }
    }
}

impl Module for Flatten {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.flatten(self.start, self.end)
    }

    fn box_clone(&self) -> Box<dyn Module> {
        Box::new(self.clone())
    }
}

/// Layers that are nothing but a function of their input.
macro_rules! functions {
    ($( $layer:ident $what:literal = $function:expr; )*) => { $(
        #[doc = $what]
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $layer;

        impl $layer {
            /// There is one of them only.
            pub fn new() -> $layer {
                $layer
            }
        }

        impl Module for $layer {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                let function: fn(&Tensor) -> Result<Tensor> = $function;
                function(input)
            }

            fn box_clone(&self) -> Box<dyn Module> {
                Box::new(*self)
            }
        }
    )* };
}

functions! {
    ReLU "The larger of each element and 0." = Tensor::relu;
    Sigmoid "`1 / (1 + exp(-x))`." = Tensor::sigmoid;
    Tanh "The hyperbolic tangent." = Tensor::tanh;
    Softmax "Probabilities along the last axis." = |input| input.softmax(None);
}

macro_rules! pools {
    ($( $layer:ident $pool:ident $what:literal; )*) => { $(
        #[doc = $what]
        #[derive(Clone, Debug)]
        pub struct $layer {
            kernel: usize,
            stride: usize,
            padding: usize,
        }

        impl $layer {
            /// Of windows that are as long along every axis.
            pub fn new(kernel: usize, stride: usize, padding: usize) -> $layer {
                $layer { kernel, stride, padding }
            }
        }

        impl Module for $layer {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                input.$pool(self.kernel, self.stride, self.padding)
            }

            fn box_clone(&self) -> Box<dyn Module> {
                Box::new(self.clone())
            }
        }
    )* };
}

pools! {
    MaxPool1d max_pool1d "The largest elements of windows of `[batch, channels, length]`.";
    MaxPool2d max_pool2d "The largest elements of windows of `[batch, channels, height, width]`.";
    AvgPool1d avg_pool1d "The means of windows of `[batch, channels, length]`.";
    AvgPool2d avg_pool2d "The means of windows of `[batch, channels, height, width]`.";
}

/// Layers one after the other.
#[derive(Clone, Default)]
pub struct Sequential {
    layers: Vec<Box<dyn Module>>,
}

impl Sequential {
    /// Of these layers.
    pub fn new(layers: Vec<Box<dyn Module>>) -> Sequential {
        Sequential { layers }
    }

    /// One more at the end.
    pub fn add(&mut self, layer: Box<dyn Module>) {
        self.layers.push(layer);
    }
}

impl Module for Sequential {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.layers.iter().try_fold(input.clone(), |input, layer| layer.forward(&input))
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.layers.iter().flat_map(|layer| layer.parameters()).collect()
    }

    fn train(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.train());
    }

    fn eval(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.eval());
    }

    fn box_clone(&self) -> Box<dyn Module> {
        Box::new(self.clone())
    }
}

impl std::fmt::Debug for Sequential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sequential of {}", self.layers.len())
    }
}
