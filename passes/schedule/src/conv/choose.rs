//! The schedules of a convolution, and the choice among them.
use super::{
    BlockedConv, direct,
    numbers::Numbers,
    transform::{self, Transform},
    weights, winograd,
};
use crate::{fuse::Scope, state::LowerState, tuning::Candidates};
use numrsc_facts::constants::is_finite;
use numrsc_ir::{Dim, Func, Node, Op, Tensor, Type, Value};
use std::{fmt, iter};

#[derive(Clone, Copy, Debug)]
pub enum Schedule {
    /// With so many tiles of a block at most.
    Winograd {
        transform: Transform,
        tiles: i64,
    },
    /// With so many bytes of the operand in a block.
    Direct {
        bytes: i64,
    },
    Depthwise,
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Winograd { transform, tiles } => {
                write!(f, "winograd {0}x{0} by {tiles} tiles", transform.outputs())
            }
            Schedule::Direct { bytes } => write!(f, "direct by {} kB", bytes >> 10),
            Schedule::Depthwise => write!(f, "depthwise"),
        }
    }
}

impl Schedule {
    /// The schedules of a convolution that the tolerance admits: the cheapest first, then the same kernels with larger
    /// and smaller blocks.
    fn all(conv: &BlockedConv, w: &Tensor, tolerance: f64) -> Vec<Schedule> {
        if conv.depthwise {
            return vec![Schedule::Depthwise];
        }
        let mut ways = vec![];
        // Transformed weights that are not finite would affect their neighbours.
        if winograd::suits(conv) && is_finite(w) {
            ways.extend(transform::ALL.into_iter().filter(|t| t.error() <= tolerance).map(|transform| {
                let tiles = winograd::most_tiles(conv, transform);
                (winograd::cost(conv, transform), Schedule::Winograd { transform, tiles })
            }));
        }
        // With many weights for few pixels, transformed weights would cost too much to read.
        ways.push((direct::cost(conv), Schedule::Direct { bytes: direct::BLOCK_BYTES }));
        ways.sort_by_key(|(cost, _)| *cost);
        let mut all: Vec<Schedule> = ways.into_iter().map(|(_, way)| way).collect();
        let others: Vec<Schedule> = all.iter().flat_map(|schedule| schedule.other_blocks(conv)).collect();
        all.extend(others);
        all
    }

    fn other_blocks(self, conv: &BlockedConv) -> Vec<Schedule> {
        match self {
            Schedule::Winograd { transform, tiles } => {
                let blocks = |tiles: i64| winograd::block_count(conv, transform, tiles);
                let others = [tiles / 2, 2 * tiles].into_iter().filter(|&n| n > 0 && blocks(n) != blocks(tiles));
                others.map(|tiles| Schedule::Winograd { transform, tiles }).collect()
            }
            Schedule::Direct { bytes } => [bytes / 2, 2 * bytes].map(|bytes| Schedule::Direct { bytes }).to_vec(),
            Schedule::Depthwise => vec![],
        }
    }

    /// The schedule of the tuning table, if it has the convolution; else the cheapest one.
    pub fn choose(state: &mut LowerState, scope: &Scope<'_>, conv: &BlockedConv, product: Value) -> Schedule {
        let all = Schedule::all(conv, weights(scope, conv.w), state.context.options.tolerance);
        let Some(tuning) = state.context.options.tuning.as_ref().filter(|_| conv.numbers == Numbers::Float) else {
            return all[0];
        };
        let Some(func) = alone(scope.func, scope.func.node(product)).filter(|_| all.len() > 1) else {
            return all[0];
        };
        let choice = Candidates { shape: shape(&func), schedules: all.iter().map(ToString::to_string).collect(), func };
        let named = tuning.get(&choice.shape).and_then(|name| choice.schedules.iter().position(|s| s == name));
        if state.choices.iter().all(|c| c.shape != choice.shape) {
            state.choices.push(choice);
        }
        all[named.unwrap_or(0)]
    }
}

/// A function of this convolution alone, unless its padding depends on an open size. Open sizes are named by their
/// axes, with names that no model has.
fn alone(func: &Func, node: &Node) -> Option<Func> {
    let Op::Const { value } = &func.node(node.args[1]).op else { return None };
    let ty = func.ty(node.args[0]).as_tensor().ok()?;
    let named = |(axis, d): (usize, &Dim)| d.as_const().map_or_else(|| Dim::sym(format!("_axis{axis}")), Dim::Const);
    let shape: Vec<Dim> = ty.shape.iter().enumerate().map(named).collect();
    let mut alone = Func::new();
    let x = alone.param(Type::tensor(ty.dtype, shape)).ok()?;
    let w = alone.push(Op::Const { value: value.clone() }, &[]).ok()?;
    let y = alone.push(node.op.clone(), &[x, w]).ok()?;
    alone.set_results(vec![y]);
    Some(alone)
}

/// The op of a function's result, its attributes and the types of its operands.
fn shape(func: &Func) -> String {
    let node = func.node(func.results()[0]);
    let operands: Vec<String> = node.args.iter().map(|a| func.ty(*a).to_string()).collect();
    let attributes = node.op.attrs().into_iter().map(|(name, attribute)| {
        let mut text = format!("{name}=");
        attribute.print(&mut text);
        text
    });
    let head = format!("{} of {}", node.op, operands.join(" and "));
    iter::once(head).chain(attributes).collect::<Vec<_>>().join(", ")
}
