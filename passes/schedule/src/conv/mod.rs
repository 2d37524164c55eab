//! Convolutions in blocked layout: every load of a register tile is a whole vector of outputs or one element of a
//! pixel, and weights are packed in the order in which they are read. The pass `layout` chooses these convolutions.
pub mod choose;
pub mod direct;
pub mod numbers;
pub mod phases;
pub mod transform;
pub mod winograd;

use crate::{fuse::Scope, index::unravel, operands::product_operands, state::LowerState};
use numbers::{MAX_STEPS, Numbers};
use numrsc_facts::{constants::is_finite, sizes::ceil_div};
use numrsc_ir::{DType, Dim, Func, Machine, Node, Op, Tensor, Value, kernel::Elem};
use phases::Phases;

/// Vectors of a panel at most.
pub const MAX_VECTORS: i64 = 3;

/// The multiply-adds that take as long as reading a vector of weights. It hardly matters from which level of memory, as
/// weights are prefetched.
pub const READING: i64 = 1;

/// Is there a kernel for this blocked convolution? All others lose their blocks.
pub fn suits(func: &Func, node: &Node, machine: Machine) -> bool {
    let Op::Conv { groups, in_block, out_block, .. } = &node.op else { return false };
    let [x, w] = product_operands(func, node);
    let is_narrow = w != node.args[1];
    let unsigned = has_no_sign(func, x);
    let Op::Const { value: w } = &func.node(w).op else { return false };
    let is_vector = |b: i64| b == 1 || machine.blocks().any(|block| block == b);
    if !is_vector(*in_block)
        || !is_vector(*out_block)
        || *in_block + *out_block == 2
        || (if is_narrow { !machine.dot2 || *in_block == 1 } else { w.dtype() != DType::F32 })
        || (is_narrow && unsigned && !(machine.dot4 && fits_byte(w)))
        || w.is_empty()
        || w.rank() < 3
    {
        return false;
    }
    let (outputs, inputs) = (w.shape()[0] as i64, w.shape()[1] as i64);
    let Some(phases) = Phases::of(func, node) else { return false };
    let lanes = lanes(*in_block, *out_block);
    if is_depthwise(w, *groups) && *in_block > 1 {
        // Padding is left out, which changes nothing as long as no weight times zero is NaN.
        return in_block == out_block && phases.is_one() && outputs % lanes == 0 && w.rank() <= 4 && is_finite(w);
    }
    let result_fits = if *out_block == 1 {
        // Rows of the result are put together in memory of the worker, a panel at a time: it has all phases of them, or
        // there are none.
        phases.is_one() || (phases.exact && phases.count() * (outputs / groups) <= MAX_VECTORS * lanes)
    } else {
        (outputs / groups) % out_block == 0
    };
    inputs % in_block == 0 && result_fits
}

/// Lanes of vectors of outputs: as many as the result has in a block, if it has blocks.
pub fn lanes(in_block: i64, out_block: i64) -> i64 {
    if out_block > 1 { out_block } else { in_block }
}

pub fn is_depthwise(w: &Tensor, groups: i64) -> bool {
    groups > 1 && w.shape()[1] == 1 && w.shape()[0] as i64 == groups
}

/// Does a convolution keep its operand `v`, a constant, in an order of its own?
pub fn packs(func: &Func, node: &Node, v: Value, machine: Machine) -> bool {
    node.args.len() == 2 && product_operands(func, node)[1] == v && node.args[0] != v && suits(func, node, machine)
}

/// Sizes and attributes of a convolution.
#[derive(Debug)]
pub struct BlockedConv {
    pub x: Value,
    pub w: Value,
    pub numbers: Numbers,
    pub images: Dim,
    /// Every channel by itself: a group is a vector of them then.
    pub depthwise: bool,
    pub groups: i64,
    /// Blocks of input channels of a group, and channels of a block.
    pub in_blocks: i64,
    pub channels: i64,
    /// Channels of a slice of a block, whose products are written out, and the slices up to the last one that has
    /// weights: those of channels that were rounded up may have none.
    pub slice: i64,
    pub slices: i64,
    /// Output channels of a group, and vectors of them in all phases.
    pub outputs: i64,
    pub out_vectors: i64,
    pub lanes: i64,
    /// Has the result no blocks?
    pub plain: bool,
    /// Pixels of the result that see the same elements; `window`, `output` and `low` are about these together.
    pub phases: Phases,
    pub input: Vec<Dim>,
    pub window: Vec<i64>,
    pub output: Vec<Dim>,
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    pub low: Vec<Dim>,
    /// May windows reach beyond the operand?
    pub padded: bool,
}

/// Neighbouring vectors of output channels that are computed together: `count` panels of `vectors` each, from vector
/// number `first`.
#[derive(Debug)]
pub struct Panels {
    pub first: i64,
    pub vectors: i64,
    pub count: i64,
}

impl BlockedConv {
    pub fn new(state: &mut LowerState, scope: &Scope<'_>, v: Value) -> BlockedConv {
        let node = scope.func.node(v);
        let Op::Conv { strides, dilations, groups, in_block, out_block, .. } = &node.op else {
            unreachable!("a convolution")
        };
        let [x, w] = product_operands(scope.func, node);
        let numbers = match w == node.args[1] {
            true => Numbers::Float,
            false if has_no_sign(scope.func, x) => Numbers::Dot4,
            false if fits_byte(weights(scope, w)) => Numbers::Dot2(Elem::I8),
            false => Numbers::Dot2(Elem::I16),
        };
        let w_shape: Vec<i64> = weights(scope, w).shape().iter().map(|&n| n as i64).collect();
        let space = w_shape.len() - 2;
        let x_shape: Vec<Dim> = scope.shape(x).iter().map(|d| state.size(d)).collect();
        let depthwise = *in_block > 1 && is_depthwise(weights(scope, w), *groups);
        let lanes = lanes(*in_block, *out_block);
        let mut phases = Phases::of(scope.func, node).expect("a convolution that suits");
        phases.steps.iter_mut().chain(&mut phases.sizes).for_each(|d| *d = state.size(d));
        let low = phases.low.iter().map(|d| state.attribute(d)).collect();
        let outputs = w_shape[0] / groups;
        let inputs = if depthwise { *in_block } else { inputs_with_weights(weights(scope, w)) };
        let slice = slice_for(inputs, *in_block, numbers.at_once());
        BlockedConv {
            x,
            w,
            numbers,
            images: x_shape[0].clone(),
            depthwise,
            groups: if depthwise { groups / out_block } else { *groups },
            in_blocks: if depthwise { 1 } else { w_shape[1] / in_block },
            channels: *in_block,
            slice,
            slices: ceil_div(inputs, slice),
            outputs,
            out_vectors: if depthwise { 1 } else { (phases.count() * outputs + lanes - 1) / lanes },
            lanes,
            plain: *out_block == 1,
            input: x_shape[2..2 + space].to_vec(),
            window: phases.window.clone(),
            output: phases.steps.clone(),
            strides: strides.clone(),
            dilations: dilations.clone(),
            low,
            padded: phases.padded,
            phases,
        }
    }

    /// The reach of a window beyond its first element.
    pub fn reach(&self, axis: usize) -> i64 {
        (self.window[axis] - 1) * self.dilations[axis]
    }

    pub fn taps(&self) -> i64 {
        self.window.iter().product()
    }

    /// Products per output.
    pub fn depth(&self) -> i64 {
        self.slices * self.slice * self.taps()
    }

    /// The number of parts of the output channels, at most `most`, for enough units of work. Where only the run knows
    /// how many images or blocks there are, these may be one.
    pub fn chunks(&self, blocks: &Dim, units: i64, most: i64) -> i64 {
        let [images, blocks] = [&self.images, blocks].map(|n| n.as_const().unwrap_or(1).max(1));
        ceil_div(units, images * self.groups * blocks).clamp(1, most)
    }

    /// The cost of reading a vector of weights for every block, in vector multiply-adds, which take the same time for
    /// any vector length.
    pub fn reading(&self, blocks: i64) -> i64 {
        self.lanes * READING * blocks
    }

    /// Pairs of vectors, and what is left of them.
    pub fn panels(&self) -> Vec<Panels> {
        let n = self.out_vectors;
        let odd = if n % 2 == 0 { 0 } else { n.min(MAX_VECTORS) };
        let pairs = Panels { first: 0, vectors: 2, count: (n - odd) / 2 };
        let rest = Panels { first: n - odd, vectors: odd, count: 1 };
        [pairs, rest].into_iter().filter(|p| p.count * p.vectors > 0).collect()
    }
}

/// Has a tensor integers of 8 bits without signs?
pub fn has_no_sign(func: &Func, v: Value) -> bool {
    func.ty(v).as_tensor().is_ok_and(|t| t.dtype == DType::U8)
}

/// Do all weights fit integers of 8 bits?
#[allow(clippy::wildcard_enum_match_arm, reason = "all types have numbers")]
pub fn fits_byte(w: &Tensor) -> bool {
    match w.dtype() {
        DType::I8 => true,
        DType::U8 => w.bytes().iter().all(|&x| x <= 0x7f),
        DType::I16 => w.bytes().as_chunks().0.iter().all(|x| i8::try_from(i16::from_le_bytes(*x)).is_ok()),
        _ => w.to_i64s().is_some_and(|all| all.into_iter().all(|x| i8::try_from(x).is_ok())),
    }
}

/// Input channels of a group up to the last one that has weights, but one at least.
pub fn inputs_with_weights(w: &Tensor) -> i64 {
    let (inputs, taps) = (w.shape()[1], w.shape()[2..].iter().product::<usize>());
    // Zeros of either sign.
    let sign = if w.dtype() == DType::F32 { 0x7f } else { 0xff };
    let is_zero = |x: &[u8]| x[..x.len() - 1].iter().all(|b| *b == 0) && x[x.len() - 1] & sign == 0;
    let size = w.dtype().size();
    let has_weights = |&c: &usize| {
        let of_channel = w.bytes().chunks_exact(size * taps).skip(c).step_by(inputs);
        of_channel.into_iter().any(|taps| !taps.chunks_exact(size).all(is_zero))
    };
    (0..inputs).rev().find(has_weights).map_or(1, |last| last as i64 + 1)
}

/// Channels of a slice: as many as are written out at most, or half of them where that leaves out enough channels
/// without weights.
pub fn slice_for(inputs: i64, block: i64, at_once: i64) -> i64 {
    let steps = MAX_STEPS * at_once;
    let most = block.min(steps);
    let rounded = |slice: i64| ceil_div(inputs, slice) * slice;
    if most == steps && 8 * rounded(most / 2) <= 7 * rounded(most) { most / 2 } else { most }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "convolutions in blocks have constant weights")]
pub fn weights<'f>(scope: &Scope<'f>, w: Value) -> &'f Tensor {
    match &scope.func.node(w).op {
        Op::Const { value } => value,
        op => unreachable!("`{op}` is no constant"),
    }
}
