//! [`Tensor`]: an array, and what it was computed from.
use super::{
    Attribute::{self, Float, Int, Ints},
    Node, Source, compute,
};
use crate::{Array, Error};
use anyhow::Result;
use std::{
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
};

/// An array that knows what it was computed from.
///
/// ```
/// use numrs::{Array, autograd::Tensor};
/// # fn main() -> anyhow::Result<()> {
/// let x = Tensor::new(Array::new(vec![1], vec![3.0]), true);
/// let two = Tensor::new(Array::new(vec![1], vec![2.0]), false);
/// let y = x.mul(&x)?.add(&two)?;
/// assert_eq!(y.data.item(), 11.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The value.
    pub data: Array,
    /// Whether it is a weight, rather than an input of the model, or computed from weights.
    pub requires_grad: bool,
    origin: Origin,
}

#[derive(Clone, Debug)]
enum Origin {
    /// It was made, not computed.
    Made(u64),
    Computed(Rc<Node>),
}

static MADE: AtomicU64 = AtomicU64::new(0);

impl Tensor {
    /// A tensor of that value: with `requires_grad` a weight, which exported models hold, otherwise an input of theirs.
    pub fn new(data: Array, requires_grad: bool) -> Tensor {
        let origin = Origin::Made(MADE.fetch_add(1, Ordering::Relaxed));
        Tensor { data, requires_grad, origin }
    }

    /// The size of every axis.
    pub fn shape(&self) -> &[usize] {
        &self.data.shape
    }

    /// As an operand. What is made by a layer is a weight, whether it is trained or not.
    fn source(&self, is_weight: bool) -> Source {
        match &self.origin {
            Origin::Made(number) => Source::Leaf { number: *number, is_weight, value: Rc::new(self.data.clone()) },
            Origin::Computed(node) => Source::Result(Rc::clone(node)),
        }
    }

    /// Where the value comes from.
    pub(crate) fn origin(&self) -> Source {
        self.source(self.requires_grad)
    }

    /// Record an operation. The first operand is this tensor; statistics and the like are weights although they are not trained.
    fn record(
        &self,
        op: &'static str,
        attributes: Vec<(&'static str, Attribute)>,
        operands: &[&Tensor],
        constants: &[&Tensor],
        sizes: Option<Vec<i64>>,
    ) -> Result<Tensor> {
        let all: Vec<&Tensor> = [self].into_iter().chain(operands.iter().chain(constants).copied()).collect();
        let values: Vec<&Array> = all.iter().map(|tensor| &tensor.data).collect();
        let data = compute(op, &attributes, &values, sizes.as_deref())?;
        let computed = [self].into_iter().chain(operands.iter().copied()).map(Tensor::origin);
        let weights = constants.iter().map(|tensor| tensor.source(true));
        let operands = computed.chain(weights).chain(sizes.map(Source::Sizes)).collect();
        let node = Node { op, attributes, operands };
        let requires_grad = all.iter().any(|tensor| tensor.requires_grad);
        Ok(Tensor { data, requires_grad, origin: Origin::Computed(Rc::new(node)) })
    }

    fn unary(&self, op: &'static str) -> Result<Tensor> {
        self.record(op, vec![], &[], &[], None)
    }

    fn binary(&self, op: &'static str, other: &Tensor) -> Result<Tensor> {
        self.record(op, vec![], &[other], &[], None)
    }

    /// `self + other`, element by element; axes of size 1 are repeated.
    pub fn add(&self, other: &Tensor) -> Result<Tensor> {
        self.binary("Add", other)
    }

    /// `self - other`, as [`Tensor::add`].
    pub fn sub(&self, other: &Tensor) -> Result<Tensor> {
        self.binary("Sub", other)
    }

    /// `self * other`, as [`Tensor::add`].
    pub fn mul(&self, other: &Tensor) -> Result<Tensor> {
        self.binary("Mul", other)
    }

    /// `self / other`, as [`Tensor::add`].
    pub fn div(&self, other: &Tensor) -> Result<Tensor> {
        self.binary("Div", other)
    }

    /// `self` to the power of `other`, as [`Tensor::add`].
    pub fn pow(&self, other: &Tensor) -> Result<Tensor> {
        self.binary("Pow", other)
    }

    /// The product of matrices, or of batches of them.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        self.binary("MatMul", other)
    }

    /// The larger of each element and 0.
    pub fn relu(&self) -> Result<Tensor> {
        self.unary("Relu")
    }

    /// `1 / (1 + exp(-x))`.
    pub fn sigmoid(&self) -> Result<Tensor> {
        self.unary("Sigmoid")
    }

    /// The hyperbolic tangent.
    pub fn tanh(&self) -> Result<Tensor> {
        self.unary("Tanh")
    }

    /// The exponential.
    pub fn exp(&self) -> Result<Tensor> {
        self.unary("Exp")
    }

    /// The natural logarithm.
    pub fn log(&self) -> Result<Tensor> {
        self.unary("Log")
    }

    /// The square root.
    pub fn sqrt(&self) -> Result<Tensor> {
        self.unary("Sqrt")
    }

    /// The absolute value.
    pub fn abs(&self) -> Result<Tensor> {
        self.unary("Abs")
    }

    /// The negative.
    pub fn neg(&self) -> Result<Tensor> {
        self.unary("Neg")
    }

    /// Probabilities along an axis; by default the last.
    pub fn softmax(&self, axis: impl Into<Option<usize>>) -> Result<Tensor> {
        let axis = axis.into().map_or(-1, |axis| axis as i64);
        self.record("Softmax", vec![("axis", Int(axis))], &[], &[], None)
    }

    /// The axes in the opposite order.
    pub fn transpose(&self) -> Result<Tensor> {
        self.permute((0..self.data.ndim()).rev().collect::<Vec<usize>>())
    }

    /// The axes in that order.
    pub fn permute(&self, axes: impl AsRef<[usize]>) -> Result<Tensor> {
        let axes = axes.as_ref().iter().map(|axis| *axis as i64).collect();
        self.record("Transpose", vec![("perm", Ints(axes))], &[], &[], None)
    }

    /// The same elements in another shape. If the first size stays what it is, so it does in the exported model, whatever it is there.
    pub fn reshape(&self, shape: impl AsRef<[usize]>) -> Result<Tensor> {
        let shape = shape.as_ref();
        let mut sizes: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
        if let (Some(first), Some(same)) = (sizes.first_mut(), self.shape().first())
            && *first == *same as i64
        {
            // The size of the operand. (If it is 0, so is this.)
            *first = 0;
        }
        self.record("Reshape", vec![], &[], &[], Some(sizes))
    }

    /// One axis in the place of those from `start` to `end`, which count from the back if they are negative.
    pub fn flatten(&self, start: isize, end: isize) -> Result<Tensor> {
        let rank = self.data.ndim();
        let axis = |axis: isize| if axis < 0 { axis + rank as isize } else { axis };
        let (first, last) = (axis(start), axis(end));
        if first < 0 || last < first || last >= rank as isize {
            let message = format!("a tensor of {rank} axes has none from {start} to {end}");
            return Err(Error::Operation { op: "Flatten", message }.into());
        }
        let (first, last) = (first as usize, last as usize);
        if first == 1 && last + 1 == rank {
            return self.record("Flatten", vec![("axis", Int(1))], &[], &[], None);
        }
        // Sizes in front stay what they are, and the new one is what is left.
        let behind = self.shape()[last + 1..].iter().map(|size| *size as i64);
        let sizes = std::iter::repeat_n(0, first).chain([-1]).chain(behind).collect();
        self.record("Reshape", vec![], &[], &[], Some(sizes))
    }

    /// A convolution along one axis: `[batch, channels, length]` by `[outputs, channels, kernel]`, with zeros around.
    pub fn conv1d(&self, weight: &Tensor, bias: Option<&Tensor>, stride: usize, padding: usize) -> Result<Tensor> {
        self.conv(1, weight, bias, stride, padding)
    }

    /// A convolution along two axes: `[batch, channels, height, width]` by `[outputs, channels, height, width]`, with zeros around.
    pub fn conv2d(&self, weight: &Tensor, bias: Option<&Tensor>, stride: usize, padding: usize) -> Result<Tensor> {
        self.conv(2, weight, bias, stride, padding)
    }

    fn conv(
        &self,
        axes: usize,
        weight: &Tensor,
        bias: Option<&Tensor>,
        stride: usize,
        padding: usize,
    ) -> Result<Tensor> {
        if weight.data.ndim() != axes + 2 {
            let message = format!("the weights of a convolution along {axes} axes have {} axes", weight.data.ndim());
            return Err(Error::Operation { op: "Conv", message }.into());
        }
        let kernel = weight.shape()[2..].iter().map(|size| *size as i64).collect();
        let mut attributes = window(axes, stride, padding);
        attributes.push(("kernel_shape", Ints(kernel)));
        let operands: Vec<&Tensor> = [weight].into_iter().chain(bias).collect();
        self.record("Conv", attributes, &operands, &[], None)
    }

    /// Channels with the mean and variance of training, scaled and shifted.
    pub fn batch_norm(
        &self,
        scale: &Tensor,
        shift: &Tensor,
        running_mean: &Tensor,
        running_var: &Tensor,
        epsilon: f32,
    ) -> Result<Tensor> {
        let attributes = vec![("epsilon", Float(epsilon))];
        self.record("BatchNormalization", attributes, &[scale, shift], &[running_mean, running_var], None)
    }

    /// The largest elements of windows along the last axis.
    pub fn max_pool1d(&self, kernel: usize, stride: usize, padding: usize) -> Result<Tensor> {
        self.pool("MaxPool", 1, kernel, stride, padding)
    }

    /// The largest elements of windows along the last two axes.
    pub fn max_pool2d(&self, kernel: usize, stride: usize, padding: usize) -> Result<Tensor> {
        self.pool("MaxPool", 2, kernel, stride, padding)
    }

    /// The means of windows along the last axis.
    pub fn avg_pool1d(&self, kernel: usize, stride: usize, padding: usize) -> Result<Tensor> {
        self.pool("AveragePool", 1, kernel, stride, padding)
    }

    /// The means of windows along the last two axes.
    pub fn avg_pool2d(&self, kernel: usize, stride: usize, padding: usize) -> Result<Tensor> {
        self.pool("AveragePool", 2, kernel, stride, padding)
    }

    fn pool(&self, op: &'static str, axes: usize, kernel: usize, stride: usize, padding: usize) -> Result<Tensor> {
        let mut attributes = window(axes, stride, padding);
        attributes.push(("kernel_shape", Ints(vec![kernel as i64; axes])));
        self.record(op, attributes, &[], &[], None)
    }

    /// What dropout is in inference: nothing. It is a node of the exported model all the same, with its ratio.
    pub fn dropout(&self, ratio: f32) -> Result<Tensor> {
        let ratio = Tensor::new(Array::new(vec![], vec![ratio]), false);
        self.record("Dropout", vec![], &[], &[&ratio], None)
    }
}

fn window(axes: usize, stride: usize, padding: usize) -> Vec<(&'static str, Attribute)> {
    vec![("strides", Ints(vec![stride as i64; axes])), ("pads", Ints(vec![padding as i64; 2 * axes]))]
}
