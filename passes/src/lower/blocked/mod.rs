//! Convolutions whose channels lie in blocks of one vector: every load of a register tile is a whole vector of outputs or one element of a pixel, and
//! weights are packed in the order in which they are read. The pass `layout` decides which convolutions these are.
mod depthwise;
mod direct;
mod halo;
mod products;
mod winograd;

use super::{
    contract::transposed,
    cx::{Cx, Lane},
    entry::{Entry, Frame},
    epilogue::{Epilogue, Sink},
    shared::Shared,
};
use crate::{Machine, Result};
use depthwise::Depthwise;
use direct::Direct;
use numrsc_ir::{DType, Dim, Func, Node, Op, Tensor, Value, dim::Sym, kernel::V};
use winograd::Winograd;

/// Can a convolution with blocks be done as it is? All others are done without blocks.
pub(crate) fn suits(func: &Func, node: &Node, machine: Machine) -> bool {
    let Op::Conv { spread, groups, in_block, out_block, .. } = &node.op else { return false };
    let Op::Const { value: w } = &func.node(node.args[1]).op else { return false };
    let lanes = i64::from(machine.lanes(4));
    let is_vector = lanes > 1 && *out_block == lanes && (*in_block == lanes || *in_block == 1);
    if !is_vector || w.dtype() != DType::F32 || w.is_empty() || w.rank() < 3 || spread.iter().any(|&s| s != 1) {
        return false;
    }
    let (outputs, inputs) = (w.shape()[0] as i64, w.shape()[1] as i64);
    if is_depthwise(w, *groups) && *in_block == lanes {
        // Padding is left out, which changes nothing as long as no weight times zero is NaN.
        return outputs % lanes == 0 && w.rank() <= 4 && w.to_f64s().iter().all(|w| w.is_finite());
    }
    inputs % in_block == 0 && (outputs / groups) % out_block == 0
}

fn is_depthwise(w: &Tensor, groups: i64) -> bool {
    groups > 1 && w.shape()[1] == 1 && w.shape()[0] as i64 == groups
}

/// Does a convolution keep its operand `v`, a constant, in an order of its own?
pub(crate) fn packs(func: &Func, node: &Node, v: Value, machine: Machine) -> bool {
    node.args.len() == 2 && node.args[1] == v && node.args[0] != v && suits(func, node, machine)
}

pub(crate) fn emit(entry: &mut Entry, frame: &mut Frame<'_>, epilogue: &Epilogue) -> Result<()> {
    let conv = Conv::new(&mut entry.shared, frame, epilogue.product);
    // Transformed weights that are not finite would spoil their neighbours.
    let (kernel, scratch) = if winograd::suits(&conv) && weights(frame, conv.w).to_f64s().iter().all(|w| w.is_finite())
    {
        let winograd = Winograd::new(&conv, &mut entry.shared);
        let packed = entry.place_weights(&winograd.weights(weights(frame, conv.w)));
        (winograd.kernel(&mut entry.shared, frame, epilogue, packed), Some(winograd.scratch()))
    } else if conv.depthwise {
        let packed = entry.place_weights(&conv.packed_weights(frame));
        let depthwise = Depthwise::new(&conv, entry.shared.machine.registers);
        (depthwise.kernel(&mut entry.shared, frame, epilogue, packed), None)
    } else {
        let packed = entry.place_weights(&conv.packed_weights(frame));
        let direct = Direct::new(&conv, &mut entry.shared);
        (direct.kernel(&mut entry.shared, frame, epilogue, packed), direct.scratch())
    };
    let output = entry.take_over_or_allocate(frame, epilogue.root, &kernel.in_place)?;
    let Some(bytes) = scratch else { return entry.launch(frame, kernel, output, None) };
    let (pointer, memory) = entry.scratch(frame, &bytes)?;
    entry.launch(frame, kernel, output, Some(pointer))?;
    entry.give_back(pointer, memory);
    Ok(())
}

/// Where vectors of channels of the result go, by way of what follows the convolution.
struct Output {
    sink: Sink,
    /// The names that axes of the result have there.
    axes: Vec<Sym>,
    lanes: i64,
    /// What the result may take the memory of.
    in_place: Vec<Value>,
}

impl Output {
    fn new(cx: &mut Cx<'_>, epilogue: &Epilogue, pointer: V, lanes: i64) -> Output {
        let shape = cx.shape(epilogue.product);
        let axes: Vec<Sym> = shape.iter().map(|n| cx.variable(n)).collect();
        let any: Vec<Dim> = axes.iter().cloned().map(Dim::sym).collect();
        Output { sink: epilogue.sink(cx, pointer, &any), in_place: epilogue.in_place(cx, &any), axes, lanes }
    }

    /// Finish and store a vector at its index (without the place in the vector).
    fn put(&self, cx: &mut Cx<'_>, mut index: Vec<Dim>, x: V) {
        let zero = cx.b.i64(0);
        let lane = cx.variable(&Dim::Const(self.lanes));
        cx.symbols.insert(lane.clone(), zero);
        index.push(Dim::sym(lane.clone()));
        let names = |s: &Sym| self.axes.iter().position(|a| a == s).map(|a| index[a].clone());
        let outer = (cx.lane.replace(Lane { sym: lane, base: zero }), cx.lanes);
        cx.lanes = self.lanes as u32;
        if self.sink.scalars_only {
            (0..cx.lanes).for_each(|l| cx.in_lane(l, |cx| self.sink.put(cx, &names, x)));
        } else {
            self.sink.put(cx, &names, x);
        }
        (cx.lane, cx.lanes) = outer;
    }
}

/// Sizes and attributes of a convolution.
struct Conv {
    x: Value,
    w: Value,
    images: Dim,
    /// Every channel by itself: a group is a vector of them then.
    depthwise: bool,
    groups: i64,
    /// Blocks of input channels of a group, and channels of a block.
    in_blocks: i64,
    channels: i64,
    /// Vectors of output channels of a group.
    out_vectors: i64,
    lanes: i64,
    input: Vec<Dim>,
    window: Vec<i64>,
    output: Vec<Dim>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    low: Vec<Dim>,
    /// May windows see more than the operand?
    padded: bool,
}

/// Neighbouring vectors of output channels that are computed together: `count` panels of `vectors` each, from vector number `first`.
struct Panels {
    first: i64,
    vectors: i64,
    count: i64,
}

impl Conv {
    fn new(shared: &mut Shared, frame: &Frame<'_>, v: Value) -> Conv {
        let node = frame.scope.func.node(v);
        let Op::Conv { strides, dilations, low, high, groups, in_block, out_block, .. } = &node.op else {
            unreachable!("a convolution")
        };
        let (x, w) = (node.args[0], node.args[1]);
        let w_shape: Vec<i64> = weights(frame, w).shape().iter().map(|&n| n as i64).collect();
        let space = w_shape.len() - 2;
        let mut shape = |v: Value| frame.scope.shape(v).iter().map(|d| shared.size(d)).collect::<Vec<Dim>>();
        let (x_shape, out_shape) = (shape(x), shape(v));
        let depthwise = *in_block > 1 && is_depthwise(weights(frame, w), *groups);
        let crops = |d: &Dim| d.as_const().is_some_and(|c| c <= 0);
        Conv {
            x,
            w,
            images: x_shape[0].clone(),
            depthwise,
            groups: if depthwise { groups / out_block } else { *groups },
            in_blocks: if depthwise { 1 } else { w_shape[1] / in_block },
            channels: *in_block,
            out_vectors: if depthwise { 1 } else { w_shape[0] / groups / out_block },
            lanes: *out_block,
            input: x_shape[2..2 + space].to_vec(),
            window: w_shape[2..].to_vec(),
            output: out_shape[2..2 + space].to_vec(),
            strides: strides.clone(),
            dilations: dilations.clone(),
            low: low.iter().map(|d| shared.attribute(d)).collect(),
            padded: !(low.iter().all(|d| *d == Dim::ZERO) && high.iter().all(crops)),
        }
    }

    /// How far a window reaches behind its first element.
    fn reach(&self, axis: usize) -> i64 {
        (self.window[axis] - 1) * self.dilations[axis]
    }

    fn taps(&self) -> i64 {
        self.window.iter().product()
    }

    /// Products per output.
    fn depth(&self) -> i64 {
        self.in_blocks * self.channels * self.taps()
    }

    /// Pairs of vectors, and what is left of them.
    fn panels(&self) -> Vec<Panels> {
        let n = self.out_vectors;
        let odd = if n % 2 == 0 { 0 } else { n.min(3) };
        let pairs = Panels { first: 0, vectors: 2, count: (n - odd) / 2 };
        let rest = Panels { first: n - odd, vectors: odd, count: 1 };
        [pairs, rest].into_iter().filter(|p| p.count * p.vectors > 0).collect()
    }

    /// Weights in the order of use: group, panel, block, tap, channel of the block, output of the panel.
    fn packed_weights(&self, frame: &Frame<'_>) -> Tensor {
        let w = weights(frame, self.w);
        if self.depthwise {
            let taps = self.taps() as usize;
            let rows = w.reshaped(vec![self.groups as usize, self.lanes as usize, taps]).expect("vectors of channels");
            return transposed(&rows, &[0, 2, 1]);
        }
        let w = w.to_f64s();
        let (taps, per_output) = (self.taps(), self.depth());
        let mut out = Vec::with_capacity(w.len());
        for group in 0..self.groups {
            let first = group * self.out_vectors * self.lanes;
            for panels in self.panels() {
                for panel in 0..panels.count {
                    let first = first + (panels.first + panel * panels.vectors) * self.lanes;
                    for (block, tap) in (0..self.in_blocks).flat_map(|b| (0..taps).map(move |t| (b, t))) {
                        for channel in block * self.channels..(block + 1) * self.channels {
                            let outputs = first..first + panels.vectors * self.lanes;
                            out.extend(outputs.map(|o| w[(o * per_output + channel * taps + tap) as usize] as f32));
                        }
                    }
                }
            }
        }
        Tensor::from_f32(&[out.len()], &out)
    }
}

fn weights<'f>(frame: &Frame<'f>, w: Value) -> &'f Tensor {
    match &frame.scope.func.node(w).op {
        Op::Const { value } => value,
        op => unreachable!("`{op}` is no constant"),
    }
}
