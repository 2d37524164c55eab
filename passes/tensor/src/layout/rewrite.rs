//! Nodes with and without blocks: what each op is over blocks of channels, and the conversions between the two forms.
use crate::{
    layout::{blockable, is_same_in_blocks},
    provenance,
};
use numrsc_facts::{Error, Result};
use numrsc_ir::{Data, Dim, Env, Func, Machine, Node, Op, Type, Value, eval_op};
use numrsc_schedule::conv;

/// Is an op the same in blocks, given operands in blocks of the same size?
pub(super) fn carries(func: &Func, v: Value, machine: Machine) -> bool {
    let node = func.node(v);
    let Some((_, block)) = blockable(&node.ty, machine) else { return false };
    let operand = |i: usize| func.ty(node.args[i]);
    let fits = |ty: &Type| blockable(ty, machine).is_some_and(|(_, b)| b == block);
    let operands_fit = || node.args.iter().all(|a| fits(func.ty(*a)));
    let first_fits = || fits(operand(0));
    let whole = |d: &Dim| d.as_const().is_some_and(|c| c % block == 0);
    match &node.op {
        // What is made of constants belongs to weights, which have an order of their own.
        Op::Map { .. } | Op::Concat { .. } => {
            operands_fit() && !node.args.iter().all(|a| matches!(func.node(*a).op, Op::Const { .. }))
        }
        Op::Window { size, .. } => operand(0).as_tensor().is_ok_and(|t| size.len() + 2 <= t.rank()),
        Op::Pad { low, high } => low[1] == Dim::ZERO && high[1] == Dim::ZERO,
        Op::Slice { starts, sizes, steps } => first_fits() && whole(&starts[1]) && whole(&sizes[1]) && steps[1] == 1,
        Op::Reduce { axes, .. } => axes.iter().all(|&a| a >= 2),
        Op::Gather { axis, batch } => *axis >= 2 && *batch == 0,
        Op::Broadcast { axes, .. } => {
            let Ok(x) = operand(0).as_tensor() else { return false };
            let channel = axes.iter().position(|&a| a == 1).map(|i| &x.shape[i]);
            channel.is_none_or(|d| *d == Dim::ONE || whole(d))
        }
        Op::Param { .. }
        | Op::Const { .. }
        | Op::Iota { .. }
        | Op::Size { .. }
        | Op::Bind { .. }
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Scatter { .. }
        | Op::Scan { .. }
        | Op::Arg { .. }
        | Op::ArgSort { .. }
        | Op::Compress { .. }
        | Op::Contract { .. }
        | Op::Conv { .. }
        | Op::If { .. }
        | Op::Loop { .. }
        | Op::Get { .. }
        | Op::SeqMake { .. }
        | Op::SeqLen {}
        | Op::SeqAt { .. }
        | Op::SeqInsert { .. }
        | Op::SeqErase {} => false,
    }
}

/// Does an op in blocks want this operand in blocks?
pub(super) fn takes_blocks(op: &Op, operand: Option<usize>) -> bool {
    match op {
        Op::Map { .. } | Op::Concat { .. } => true,
        Op::Broadcast { .. } => false,
        Op::Conv { .. }
        | Op::Window { .. }
        | Op::Pad { .. }
        | Op::Slice { .. }
        | Op::Reduce { .. }
        | Op::Gather { .. } => operand == Some(0),
        Op::Param { .. }
        | Op::Const { .. }
        | Op::Iota { .. }
        | Op::Size { .. }
        | Op::Bind { .. }
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Scatter { .. }
        | Op::Scan { .. }
        | Op::Arg { .. }
        | Op::ArgSort { .. }
        | Op::Compress { .. }
        | Op::Contract { .. }
        | Op::If { .. }
        | Op::Loop { .. }
        | Op::Get { .. }
        | Op::SeqMake { .. }
        | Op::SeqLen {}
        | Op::SeqAt { .. }
        | Op::SeqInsert { .. }
        | Op::SeqErase {} => unreachable!("`{op}` has no blocks"),
    }
}

/// A plain convolution in blocks, if there is a kernel for it. Channels of the operand that do not divide into blocks
/// stay as they are.
pub(super) fn in_blocks(func: &Func, v: Value, machine: Machine) -> Option<Op> {
    let operand = blockable(func.ty(func.node(v).args[0]), machine);
    let (_, block) = blockable(&func.node(v).ty, machine)?;
    with_blocks(func, v, [operand.map_or(1, |(_, b)| b), block], machine)
}

/// A plain convolution whose operand is in blocks, but not its result.
pub(super) fn takes_only(func: &Func, v: Value, machine: Machine) -> Option<Op> {
    let (_, block) = blockable(func.ty(func.node(v).args[0]), machine)?;
    with_blocks(func, v, [block, 1], machine)
}

fn with_blocks(func: &Func, v: Value, blocks: [i64; 2], machine: Machine) -> Option<Op> {
    let node = func.node(v);
    let mut op = node.op.clone();
    let Op::Conv { in_block, out_block, .. } = &mut op else { return None };
    if *in_block != 1 || *out_block != 1 {
        return None;
    }
    [*in_block, *out_block] = blocks;
    let fitting = Node { op, ..node.clone() };
    conv::suits(func, &fitting, machine).then_some(fitting.op)
}

/// A function in the course of being rewritten.
pub(super) struct Rewrite<'f> {
    func: &'f Func,
    machine: Machine,
    /// Which nodes are computed in blocks.
    blocked: &'f [bool],
    /// Convolutions that lose their blocks.
    pub odd: Vec<bool>,
    out: Func,
    /// The two forms of each node, as far as they are there.
    plain: Vec<Option<Value>>,
    in_blocks: Vec<Option<Value>>,
}

impl<'f> Rewrite<'f> {
    pub(super) fn new(func: &'f Func, machine: Machine, blocked: &'f [bool]) -> Rewrite<'f> {
        let n = func.nodes().len();
        let out = func.named_alike();
        Rewrite { func, machine, blocked, odd: vec![false; n], out, plain: vec![None; n], in_blocks: vec![None; n] }
    }

    /// The new function; `nested` does the same to nested ones.
    pub(super) fn run(mut self, nested: &dyn Fn(&Func) -> Result<Func>) -> Result<Func> {
        for (v, node) in self.func.values() {
            let at = v.0 as usize;
            self.out.set_source(self.func.origins(v).clone());
            if self.blocked[at] {
                self.in_blocks[at] = Some(self.node_in_blocks(v)?);
                continue;
            }
            if let Some(op) = self.takes_blocks_of_operand(v) {
                let args = [self.blocks(node.args[0])?, self.plain(node.args[1])?];
                self.plain[at] = Some(self.push(op, &args)?);
                continue;
            }
            let args = node.args.iter().map(|&a| self.plain(a)).collect::<Result<Vec<Value>>>()?;
            let op = node.op.map_bodies(nested)?;
            self.plain[at] = Some(if self.odd[at] { self.without_blocks(op, &args)? } else { self.push(op, &args)? });
        }
        let results = self.func.results().iter().map(|&r| self.plain(r)).collect::<Result<Vec<Value>>>()?;
        self.out.set_results(results);
        let Rewrite { func, blocked, mut out, plain, in_blocks, .. } = self;
        let placed = |v: Value| if blocked[v.0 as usize] { in_blocks[v.0 as usize] } else { plain[v.0 as usize] };
        provenance::carry(func, "layout", &mut out, &placed);
        Ok(out.without_dead_nodes())
    }

    /// A convolution without blocks of an operand that has them.
    fn takes_blocks_of_operand(&self, v: Value) -> Option<Op> {
        let operand = *self.func.node(v).args.first()?;
        let blocked = self.blocked[operand.0 as usize] && self.plain[operand.0 as usize].is_none();
        blocked.then(|| takes_only(self.func, v, self.machine)).flatten()
    }

    /// Add a node; views of constants are constants.
    fn push(&mut self, op: Op, args: &[Value]) -> Result<Value> {
        if let (Op::Reshape { .. } | Op::Transpose { .. }, [x]) = (&op, args)
            && let Op::Const { value } = &self.out.node(*x).op
            && let Ok(Data::Tensor(value)) = eval_op(&op, &[&Data::Tensor(value.clone())], &mut Env::new())
        {
            return self.push(Op::Const { value }, &[]);
        }
        self.out.push(op, args).map_err(|e| Error::Invalid { pass: "layout", message: e.to_string() })
    }

    fn shape(&self, v: Value) -> Vec<Dim> {
        self.func.ty(v).as_tensor().map_or(vec![], |t| t.shape.clone())
    }

    /// The size of the blocks of a node that can have them.
    fn block(&self, v: Value) -> i64 {
        blockable(self.func.ty(v), self.machine).expect("channels that divide into blocks").1
    }

    fn blocked_shape(&self, shape: &[Dim], block: i64) -> Vec<Dim> {
        let block = Dim::Const(block);
        [&[shape[0].clone(), shape[1].floor_div(&block)], &shape[2..], &[block]].concat()
    }

    /// A node without blocks.
    fn plain(&mut self, v: Value) -> Result<Value> {
        let at = v.0 as usize;
        if let Some(x) = self.plain[at] {
            return Ok(x);
        }
        let x = self.in_blocks[at].expect("nodes come before their users");
        let shape = self.shape(v);
        let x = self.joined(x, &shape)?;
        self.plain[at] = Some(x);
        Ok(x)
    }

    /// A node in blocks.
    fn blocks(&mut self, v: Value) -> Result<Value> {
        let at = v.0 as usize;
        if let Some(x) = self.in_blocks[at] {
            return Ok(x);
        }
        let x = self.plain[at].expect("nodes come before their users");
        let shape = self.shape(v);
        let x = self.split(x, &shape, 1, self.block(v))?;
        self.in_blocks[at] = Some(x);
        Ok(x)
    }

    /// A tensor in blocks as one of this shape without them.
    fn joined(&mut self, x: Value, shape: &[Dim]) -> Result<Value> {
        let mut x = x;
        if !is_same_in_blocks(shape) {
            let last = shape.len() as i64;
            let perm = [0, 1, last].into_iter().chain(2..last).collect();
            x = self.push(Op::Transpose { perm }, &[x])?;
        }
        self.push(Op::Reshape { shape: shape.to_vec() }, &[x])
    }

    /// A tensor of this shape with an axis split into blocks, which go to the end.
    fn split(&mut self, x: Value, shape: &[Dim], axis: usize, block: i64) -> Result<Value> {
        let blocks = shape[axis].floor_div(&Dim::Const(block));
        let (before, after) = (&shape[..axis], &shape[axis + 1..]);
        if after.iter().all(|d| *d == Dim::ONE) {
            return self.push(Op::Reshape { shape: [before, &[blocks], after, &[Dim::Const(block)]].concat() }, &[x]);
        }
        let apart = [before, &[blocks, Dim::Const(block)], after].concat();
        let x = self.push(Op::Reshape { shape: apart }, &[x])?;
        let axis = axis as i64;
        let perm = (0..=axis).chain(axis + 2..=shape.len() as i64).chain([axis + 1]).collect();
        self.push(Op::Transpose { perm }, &[x])
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "`carries` lists the ops that can have blocks; the others of them keep their attributes"
    )]
    fn node_in_blocks(&mut self, v: Value) -> Result<Value> {
        let node = self.func.node(v);
        let zero = [Dim::ZERO];
        let op = match &node.op {
            Op::Conv { .. } => {
                let op = in_blocks(self.func, v, self.machine).expect("chosen for blocks");
                let divides = matches!(op, Op::Conv { in_block, .. } if in_block > 1);
                let x = if divides { self.blocks(node.args[0])? } else { self.plain(node.args[0])? };
                let w = self.plain(node.args[1])?;
                return self.push(op, &[x, w]);
            }
            Op::Broadcast { shape, axes } => return self.broadcast(node.args[0], shape, axes, self.block(v)),
            Op::Map { .. } | Op::Concat { .. } => {
                let args = node.args.iter().map(|&a| self.blocks(a)).collect::<Result<Vec<Value>>>()?;
                return self.push(node.op.clone(), &args);
            }
            Op::Window { f, size, strides, dilations, low, high } => {
                let one = |list: &[i64]| [list, &[1]].concat();
                Op::Window {
                    f: *f,
                    size: one(size),
                    strides: one(strides),
                    dilations: one(dilations),
                    low: [low, &zero[..]].concat(),
                    high: [high, &zero[..]].concat(),
                }
            }
            Op::Pad { low, high } => Op::Pad { low: [low, &zero[..]].concat(), high: [high, &zero[..]].concat() },
            Op::Slice { starts, sizes, steps } => {
                let block = self.block(v);
                let mut starts = [starts, &zero[..]].concat();
                starts[1] = starts[1].floor_div(&Dim::Const(block));
                Op::Slice { starts, sizes: self.blocked_shape(sizes, block), steps: [&steps[..], &[1]].concat() }
            }
            op => op.clone(),
        };
        let mut args = vec![self.blocks(node.args[0])?];
        for &a in &node.args[1..] {
            args.push(self.plain(a)?);
        }
        self.push(op, &args)
    }

    /// Something repeated, in blocks. What it is repeated from stays as it is unless it has channels.
    fn broadcast(&mut self, x: Value, shape: &[Dim], axes: &[i64], block: i64) -> Result<Value> {
        let of = self.shape(x);
        let mut axes = axes.to_vec();
        let split = axes.iter().position(|&a| a == 1).filter(|&i| of[i] != Dim::ONE);
        let x = match split {
            None => self.plain(x)?,
            Some(axis) => {
                axes.push(shape.len() as i64);
                match self.in_blocks[x.0 as usize] {
                    Some(blocks) if axis == 1 => blocks,
                    _ => {
                        let plain = self.plain(x)?;
                        self.split(plain, &of, axis, block)?
                    }
                }
            }
        };
        self.push(Op::Broadcast { shape: self.blocked_shape(shape, block), axes }, &[x])
    }

    /// A convolution with blocks, as one without.
    fn without_blocks(&mut self, mut op: Op, args: &[Value]) -> Result<Value> {
        let Op::Conv { in_block, out_block, .. } = &mut op else { unreachable!("a convolution") };
        let (inner, outer) = (std::mem::replace(in_block, 1), std::mem::replace(out_block, 1));
        let mut x = args[0];
        if inner > 1 {
            let shape = self.out.ty(x).as_tensor().map_or(vec![], |t| t.shape.clone());
            let last = shape.len() - 1;
            let channels = &shape[1] * &shape[last];
            x = self.joined(x, &[&[shape[0].clone(), channels], &shape[2..last]].concat())?;
        }
        let y = self.push(op, &[x, args[1]])?;
        if outer == 1 {
            return Ok(y);
        }
        let shape = self.out.ty(y).as_tensor().map_or(vec![], |t| t.shape.clone());
        self.split(y, &shape, 1, outer)
    }
}
