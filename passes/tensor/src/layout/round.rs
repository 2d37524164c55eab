//! Channels that do not divide into blocks are rounded up, so that convolutions of a few channels more or less have whole vectors too: weights of the
//! additional outputs are zeros, and so are those of the additional inputs. What lies between convolutions carries the additional channels along; they hold the
//! same number everywhere, and nobody looks at it. As with Winograd's algorithm, operands are expected to be finite: a zero times infinity is not nothing.
use crate::{aside::put_aside, layout::rewrite, provenance};
use numrsc_facts::{Error, Result};
use numrsc_ir::{
    DType, Data, Dim, Env, Func, Machine, Node, Op, ReduceFn, Scalar, ScalarFn, Tensor, Type, Value, eval_op,
};
use numrsc_schedule::operands::product_operands;

/// Products per output from which a convolution pays for converting its result.
const MIN_DEPTH: usize = 64;

/// The function with padded channels where convolutions want them.
pub(super) fn rounded(func: &Func, machine: Machine) -> Result<Func> {
    let mut round = Round::new(func, machine);
    if !round.wanted.contains(&true) {
        return Ok(func.clone());
    }
    for (v, node) in func.values() {
        let at = v.0 as usize;
        round.out.set_source(func.origins(v).clone());
        if round.wanted[at] {
            round.wide[at] = Some(round.node_with_more(v, node)?);
        } else {
            round.plain[at] = Some(round.node(node)?);
        }
    }
    let results = func.results().iter().map(|&r| round.plain(r)).collect::<Result<Vec<Value>>>()?;
    round.out.set_results(results);
    let Round { wanted, mut out, plain, wide, .. } = round;
    let placed = |v: Value| if wanted[v.0 as usize] { wide[v.0 as usize] } else { plain[v.0 as usize] };
    provenance::carry(func, "layout", &mut out, &placed);
    Ok(out.without_dead_nodes())
}

/// The padded number of channels, if padding is better: fewer vectors, and not many more channels.
pub(super) fn more(channels: i64, machine: Machine) -> Option<i64> {
    let vectors = |block: i64| (channels + block - 1) / block;
    let is_close = |block: i64| 3 * vectors(block) * block <= 4 * channels;
    let block = machine.blocks().find(|&block| is_close(block))?;
    let exact = machine.block(channels);
    let better = exact.is_none_or(|exact| 4 * vectors(block) <= 3 * vectors(exact));
    (better && channels % block != 0).then(|| vectors(block) * block)
}

struct Round<'f> {
    func: &'f Func,
    machine: Machine,
    /// The value in the padded channels of a node, if it can have any.
    filler: Vec<Option<Tensor>>,
    /// Which nodes have them.
    wanted: Vec<bool>,
    out: Func,
    /// The two forms of each node, as far as they are there.
    plain: Vec<Option<Value>>,
    wide: Vec<Option<Value>>,
}

impl<'f> Round<'f> {
    fn new(func: &'f Func, machine: Machine) -> Round<'f> {
        let n = func.nodes().len();
        let out = func.named_alike();
        let (filler, wanted) = (vec![None; n], vec![false; n]);
        let mut round = Round { func, machine, filler, wanted, out, plain: vec![None; n], wide: vec![None; n] };
        for (v, node) in func.values() {
            round.filler[v.0 as usize] = round.filler_of(v, node);
        }
        for (v, node) in func.values().collect::<Vec<_>>().into_iter().rev() {
            if round.starts_here(v, node) {
                round.wanted[v.0 as usize] = true;
            }
            for (number, arg) in node.args.iter().enumerate() {
                if round.wants(v, node, number) && round.filler[arg.0 as usize].is_some() {
                    round.wanted[arg.0 as usize] = true;
                }
            }
        }
        round
    }

    fn shape(&self, v: Value) -> &'f [Dim] {
        self.func.ty(v).as_tensor().map_or(&[], |t| &t.shape)
    }

    /// The number of channels a node has instead.
    fn more(&self, v: Value) -> Option<i64> {
        more(self.shape(v).get(1)?.as_const()?, self.machine)
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "only constants are known")]
    fn constant(&self, v: Value) -> Option<&'f Tensor> {
        match &self.func.node(v).op {
            Op::Const { value } => Some(value),
            _ => None,
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "recognises some ops; any other is left as it is")]
    fn filler_of(&self, v: Value, node: &Node) -> Option<Tensor> {
        let of = |number: usize| self.filler[node.args[number].0 as usize].clone();
        self.more(v)?;
        // No text counts as zero.
        let number = |ty: &Type| Some(ty.as_tensor().ok()?.dtype).filter(|&d| d != DType::Str);
        let zero = |ty: &Type| number(ty).map(|dtype| Tensor::scalar(dtype, 0.0));
        let one = |x: &Tensor| x.to_f64s().first().copied();
        // Equal values stay equal, however many there are, unless they are added up.
        let combined =
            |f: ReduceFn| of(0).filter(|x| matches!(f, ReduceFn::Max | ReduceFn::Min) || one(x) == Some(0.0));
        match &node.op {
            Op::Const { value } if !value.is_empty() => zero(&node.ty),
            Op::Conv { .. } => {
                let w = self.weights(node)?;
                let alone = is_alone(node, w);
                (alone && of(0).is_some() || !alone && groups(node) == 1).then(|| zero(&node.ty)).flatten()
            }
            Op::Map { .. } => {
                let args = (0..node.args.len()).map(|n| of(n).map(Data::Tensor)).collect::<Option<Vec<Data>>>()?;
                match eval_op(&node.op, &args.iter().collect::<Vec<_>>(), &mut Env::new()) {
                    Ok(Data::Tensor(x)) => one(&x).is_some_and(f64::is_finite).then_some(x),
                    _ => None,
                }
            }
            Op::Broadcast { axes, .. } => match self.channel_axis(node.args[0], axes) {
                Some(1) if of(0).is_some() => of(0),
                Some(_) => zero(&node.ty),
                None => self.constant(node.args[0]).filter(|x| x.len() == 1).and_then(|x| x.reshaped(vec![]).ok()),
            },
            Op::Window { f, size, .. } if size.len() + 2 <= self.shape(v).len() => combined(*f),
            Op::Reduce { f, axes } if axes.iter().all(|&a| a >= 2) => combined(*f),
            Op::Reshape { shape } => {
                let from = self.shape(node.args[0]);
                let same = from.len() >= 2 && from[..2] == shape[..2];
                of(0).filter(|_| same && from[2..].iter().chain(&shape[2..]).all(|d| *d == Dim::ONE))
            }
            _ => None,
        }
    }

    /// The axis of an operand that becomes the channels of what repeats it.
    fn channel_axis(&self, operand: Value, axes: &[i64]) -> Option<usize> {
        axes.iter().position(|&a| a == 1).filter(|&i| self.shape(operand)[i] != Dim::ONE)
    }

    /// The weights of a convolution without blocks.
    fn weights(&self, node: &Node) -> Option<&'f Tensor> {
        let Op::Conv { in_block: 1, out_block: 1, .. } = &node.op else { return None };
        let [_, w] = product_operands(self.func, node);
        let is_narrow = w != node.args[1];
        self.constant(w).filter(|w| w.rank() >= 3 && !w.is_empty() && (w.dtype() == DType::F32 || is_narrow))
    }

    /// Should a node have additional channels even if nobody wants them? Where nothing is left but channels, they cost nothing; and a convolution of
    /// something that has no blocks gets none otherwise.
    #[allow(clippy::wildcard_enum_match_arm, reason = "recognises some ops; any other is left as it is")]
    fn starts_here(&self, v: Value, node: &Node) -> bool {
        if self.filler[v.0 as usize].is_none() {
            return false;
        }
        match &node.op {
            Op::Reduce { .. } => self.shape(v).len() == 2,
            Op::Conv { .. } => {
                let has_blocks = |x: Value| {
                    matches!(self.func.node(x).op, Op::Conv { .. }) || rewrite::carries(self.func, x, self.machine)
                };
                let depth = |w: &Tensor| w.shape()[1..].iter().product::<usize>();
                !has_blocks(node.args[0]) && self.weights(node).is_some_and(|w| depth(w) >= MIN_DEPTH)
            }
            _ => false,
        }
    }

    /// Should an operand of a node have additional channels?
    #[allow(clippy::wildcard_enum_match_arm, reason = "recognises some ops; any other is left as it is")]
    fn wants(&self, v: Value, node: &Node, number: usize) -> bool {
        let carried = self.filler[v.0 as usize].is_some() && self.wanted[v.0 as usize];
        match &node.op {
            Op::Conv { .. } => {
                number == 0
                    && self.weights(node).is_some_and(|w| if is_alone(node, w) { carried } else { groups(node) == 1 })
            }
            Op::Map { .. } | Op::Reduce { .. } | Op::Reshape { .. } => carried,
            Op::Broadcast { axes, .. } => carried && self.channel_axis(node.args[0], axes) == Some(1),
            Op::Window { .. } => carried && number == 0,
            _ => false,
        }
    }

    fn push(&mut self, op: Op, args: &[Value]) -> Result<Value> {
        self.out.push(op, args).map_err(|e| Error::Invalid { pass: "layout", message: e.to_string() })
    }

    /// A node without additional channels.
    fn plain(&mut self, v: Value) -> Result<Value> {
        let at = v.0 as usize;
        if let Some(x) = self.plain[at] {
            return Ok(x);
        }
        let x = self.wide[at].expect("nodes come before their users");
        let sizes = self.shape(v).to_vec();
        let (starts, steps) = (vec![Dim::ZERO; sizes.len()], vec![1; sizes.len()]);
        let x = self.push(Op::Slice { starts, sizes, steps }, &[x])?;
        self.plain[at] = Some(x);
        Ok(x)
    }

    /// A node with additional channels if it has them.
    fn either(&mut self, v: Value) -> Result<Value> {
        self.wide[v.0 as usize].map_or_else(|| self.plain(v), Ok)
    }

    fn node(&mut self, node: &Node) -> Result<Value> {
        if let (Op::Conv { .. }, Some(w)) = (&node.op, self.weights(node))
            && groups(node) == 1
            && self.wanted[node.args[0].0 as usize]
        {
            return self.conv(node, w, w.shape()[0] as i64);
        }
        let args = node.args.iter().map(|&a| self.plain(a)).collect::<Result<Vec<Value>>>()?;
        self.push(node.op.clone(), &args)
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "`filler_of` lists the ops with more channels; the others of them keep their attributes"
    )]
    fn node_with_more(&mut self, v: Value, node: &Node) -> Result<Value> {
        let channels = self.more(v).expect("channels to round up");
        match &node.op {
            Op::Conv { .. } => {
                let w = self.weights(node).expect("constant weights");
                self.conv(node, w, channels)
            }
            Op::Const { value } => self.padded_constant(value, 1, channels),
            Op::Broadcast { shape, axes } => {
                let mut shape = shape.clone();
                shape[1] = Dim::Const(channels);
                let x = match self.channel_axis(node.args[0], axes) {
                    Some(1) if self.wanted[node.args[0].0 as usize] => self.either(node.args[0])?,
                    Some(axis) => self.padded(node.args[0], axis, channels)?,
                    None => self.plain(node.args[0])?,
                };
                self.push(Op::Broadcast { shape, axes: axes.clone() }, &[x])
            }
            Op::Reshape { shape } => {
                let x = self.either(node.args[0])?;
                let mut shape = shape.clone();
                shape[1] = Dim::Const(channels);
                self.push(Op::Reshape { shape }, &[x])
            }
            op => {
                let args = node.args.iter().map(|&a| self.either(a)).collect::<Result<Vec<Value>>>()?;
                self.push(op.clone(), &args)
            }
        }
    }

    /// A convolution with so many outputs, and as many inputs as its operand has channels.
    fn conv(&mut self, node: &Node, w: &Tensor, outputs: i64) -> Result<Value> {
        let mut op = node.op.clone();
        let Op::Conv { groups, .. } = &mut op else { unreachable!("a convolution") };
        let x = self.either(node.args[0])?;
        let inputs = if is_alone(node, w) {
            *groups = outputs;
            1
        } else {
            let channels = self.out.ty(x).as_tensor().ok().and_then(|t| t.shape[1].as_const());
            channels.unwrap_or(w.shape()[1] as i64)
        };
        let w = pad(&pad(w, 0, outputs as usize), 1, inputs as usize);
        let narrow = w.dtype() != DType::F32;
        let mut w = self.push(Op::Const { value: w }, &[])?;
        if narrow {
            w = self.push(Op::Map { f: Scalar::convert(ScalarFn::Cast, DType::I32) }, &[w])?;
        }
        self.push(op, &[x, w])
    }

    fn padded_constant(&mut self, value: &Tensor, axis: usize, channels: i64) -> Result<Value> {
        self.push(Op::Const { value: pad(value, axis, channels as usize) }, &[])
    }

    /// An operand with zeros behind its channels.
    fn padded(&mut self, v: Value, axis: usize, channels: i64) -> Result<Value> {
        if let Some(value) = self.constant(v) {
            return self.padded_constant(value, axis, channels);
        }
        let (x, shape) = (self.plain(v)?, self.shape(v));
        let dtype = self.func.ty(v).as_tensor().map_or(DType::F32, |t| t.dtype);
        let zero = self.push(Op::Const { value: Tensor::scalar(dtype, 0.0) }, &[])?;
        let low = vec![Dim::ZERO; shape.len()];
        let mut high = low.clone();
        high[axis] = &Dim::Const(channels) - &shape[axis];
        self.push(Op::Pad { low, high }, &[x, zero])
    }
}

fn groups(node: &Node) -> i64 {
    if let Op::Conv { groups, .. } = &node.op { *groups } else { 0 }
}

/// Is every channel convolved by itself?
fn is_alone(node: &Node, w: &Tensor) -> bool {
    groups(node) > 1 && w.shape()[1] == 1 && w.shape()[0] as i64 == groups(node)
}

/// A tensor with zeros behind an axis.
fn pad(x: &Tensor, axis: usize, size: usize) -> Tensor {
    let mut shape = x.shape().to_vec();
    let inner = shape[axis + 1..].iter().product::<usize>() * x.dtype().size();
    let (before, after) = (shape[axis] * inner, size * inner);
    shape[axis] = size;
    let mut out = Vec::with_capacity(shape.iter().product::<usize>() * x.dtype().size());
    for row in x.bytes().chunks(before.max(1)) {
        out.extend_from_slice(row);
        out.resize(out.len() + after - before, 0);
    }
    put_aside(Tensor::new(x.dtype(), shape, out.into()).expect("as many bytes as elements"), &[])
}
