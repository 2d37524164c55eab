//! Emits node after node: memory for its result, and the kernels that compute it.
use crate::{
    arg::Arg,
    attention, blocked, contract,
    entry::{Entry, Frame, memory::Memory},
    im2col,
    pointwise::{self, Pointwise},
    scan, scatter, sort,
    weights::Stored,
    window,
};
use numrsc_facts::{Result, ops::is_product};
use numrsc_ir::{
    DType, Dim, Op, Tensor, Type, Value,
    kernel::{Compare, Convert, Elem, Kind, Ty, V, build::Builder},
};
use numrsc_scalar as scalar;
use numrsc_schedule::{epilogue::Epilogue, fuse::Buffer, index::linear, operands::widened_weight, product};

impl Entry {
    pub(super) fn emit(&mut self, frame: &mut Frame<'_>, v: Value) -> Result<()> {
        if let Some(epilogue) = frame.fusion.epilogues.get(&v).cloned() {
            return self.product(frame, &epilogue);
        }
        let node = frame.scope.func.node(v);
        match &node.op {
            Op::Param { .. } => Ok(()),
            Op::Const { value } => self.constant(frame, v, value),
            Op::Bind { dim } => {
                let x = self.scalar(frame, node.args[0]);
                if !dim.starts_with('$') {
                    let zero = self.b.i64(0);
                    let fits = self.b.compare(Compare::Le, zero, x);
                    self.demand(fits, &format!("the size `{dim}` is negative"));
                }
                frame.sizes.symbols.insert(dim.clone(), x);
                if frame.fusion.stored[v.0 as usize] { self.store_scalar(frame, v, x) } else { Ok(()) }
            }
            Op::Concat { axis } => self.concat(frame, v, *axis as usize),
            Op::Pad { low, high } => self.pad(frame, v, low, high),
            Op::Scan { .. } => {
                let kernel = scan::kernel(&mut self.state, &frame.scope, v);
                let output = self.allocate_for(frame, v)?;
                self.launch(frame, kernel, output, None)
            }
            Op::ArgSort { axis, .. } => {
                let kernel = sort::kernel(&mut self.state, &frame.scope, v);
                let output = self.allocate_for(frame, v)?;
                let n = frame.scope.shape(node.args[0])[*axis as usize].clone();
                let (scratch, memory) = self.scratch(frame, &(&n * &Dim::Const(16)))?;
                self.launch(frame, kernel, output, Some(scratch))?;
                self.give_back(scratch, memory);
                Ok(())
            }
            Op::Compress { count } => self.compress(frame, v, count),
            Op::Scatter { .. } => self.scatter(frame, v),
            op if is_product(op) => {
                let rank = frame.scope.shape(v).len();
                self.product(frame, &Epilogue::none(v, rank))
            }
            Op::If { .. } | Op::Loop { .. } => {
                if matches!(node.op, Op::If { .. }) {
                    self.branch(frame, v)?;
                } else {
                    self.repeat(frame, v)?;
                }
                self.drop_unused_results(frame, v);
                Ok(())
            }
            Op::Get { index } => self.get(frame, v, *index as usize),
            Op::SeqMake { .. } | Op::SeqLen {} | Op::SeqAt { .. } | Op::SeqInsert { .. } | Op::SeqErase { .. } => {
                self.sequence(frame, v)
            }
            Op::Map { .. }
            | Op::Gather { .. }
            | Op::Reduce { .. }
            | Op::Arg { .. }
            | Op::Window { .. }
            | Op::Contract { .. }
            | Op::Conv { .. }
            | Op::Iota { .. }
            | Op::Size { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Broadcast { .. }
            | Op::Slice { .. } => self.pointwise(frame, v),
        }
    }

    /// Memory for all elements of a node.
    pub(crate) fn allocate_for(&mut self, frame: &mut Frame<'_>, v: Value) -> Result<V> {
        let elements = Dim::product(&self.shape_of(frame, v));
        self.allocate(frame, v, &elements)
    }

    /// Memory for all elements of a node: that of an operand which its kernel reads only where it writes, if it can be
    /// had.
    pub(crate) fn take_over_or_allocate(&mut self, frame: &mut Frame<'_>, v: Value, in_place: &[Value]) -> Result<V> {
        match self.take_over(frame, v, in_place) {
            Some(pointer) => Ok(pointer),
            None => self.allocate_for(frame, v),
        }
    }

    /// A product, and what is computed as it is stored.
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "what is no contraction or convolution with a kernel of its own is a window"
    )]
    fn product(&mut self, frame: &mut Frame<'_>, epilogue: &Epilogue) -> Result<()> {
        if let Some(attention) = frame.fusion.attentions.get(&epilogue.product).cloned() {
            return attention::emit(self, frame, &attention, epilogue);
        }
        match &frame.scope.func.node(epilogue.product).op {
            Op::Contract { .. } => contract::emit(self, frame, epilogue),
            Op::Conv { in_block, out_block, .. } if *in_block.max(out_block) > 1 => {
                blocked::emit(self, frame, epilogue)
            }
            Op::Conv { .. } if !window::suits(&frame.scope, epilogue.product) => im2col::emit(self, frame, epilogue),
            _ => {
                let kernel = window::kernel(&mut self.state, &frame.scope, epilogue);
                let output = self.take_over_or_allocate(frame, epilogue.root, &kernel.in_place)?;
                self.launch(frame, kernel, output, None)
            }
        }
    }

    fn pointwise(&mut self, frame: &mut Frame<'_>, v: Value) -> Result<()> {
        let shape = self.shape_of(frame, v);
        let others = frame.fusion.siblings(v);
        let further = others.iter().enumerate().map(|(i, w)| (*w, Arg::Further(i + 1)));
        let all = std::iter::once((v, Arg::Output)).chain(further);
        let (writes, heads) = all.partition(|(w, _)| self.shape_of(frame, *w) == shape);
        let name = frame.scope.func.node(v).op.name();
        let part = Pointwise { heads, ..Pointwise::whole(shape, writes) };
        let kernel = part.kernel(name, &mut self.state, &frame.scope);
        let mut outputs = Vec::with_capacity(1 + others.len());
        for w in std::iter::once(&v).chain(&others) {
            let is_head = part.heads.iter().any(|(head, _)| head == w);
            let in_place = if is_head { &[] } else { &kernel.in_place[..] };
            outputs.push(self.take_over_or_allocate(frame, *w, in_place)?);
        }
        let node = frame.scope.func.node(v);
        // A result that shares its operand's memory unchanged needs no kernel.
        if matches!(node.op, Op::Reshape { .. })
            && frame.scope.buffers.get(&node.args[0]).is_some_and(|b| b.pointer == outputs[0])
        {
            return Ok(());
        }
        self.launch_with(frame, kernel, &outputs, None)
    }

    fn constant(&mut self, frame: &mut Frame<'_>, v: Value, value: &Tensor) -> Result<()> {
        if self.is_packed_only(frame, v) {
            return Ok(());
        }
        let (weights, pointer) = (self.plan.weights(), self.place_weights(&Stored::plain(value)));
        if value.dtype() != DType::Str {
            frame.scope.buffers.insert(v, Buffer { pointer });
            frame.memory.insert(v, Memory::Outside);
            return Ok(());
        }
        // Strings are addresses at run time, and offsets in the file.
        let kernel = string_addresses(value.len() as i64, pointer, weights);
        let output = self.allocate_for(frame, v)?;
        self.launch(frame, kernel, output, None)
    }

    /// Do all users of a constant pack it?
    fn is_packed_only(&self, frame: &Frame<'_>, v: Value) -> bool {
        let func = frame.scope.func;
        let users = |v: Value| &frame.users[v.0 as usize];
        let packs = |u: &Value, v: Value| {
            product::packs(func, func.node(*u), v)
                || numrsc_schedule::conv::packs(func, func.node(*u), v, self.state.context.machine)
        };
        let packed = |v: Value| !users(v).is_empty() && users(v).iter().all(|u| packs(u, v));
        let machine = self.state.context.machine;
        let narrow = |w: Value| users(w).iter().all(|u| numrsc_schedule::conv::packs(func, func.node(*u), v, machine));
        let packed_after = |&w: &Value| widened_weight(func, w).is_some() && (packed(w) || narrow(w));
        let all_widened = !users(v).is_empty() && users(v).iter().all(packed_after);
        !func.results().contains(&v) && (packed(v) || all_widened)
    }

    pub(super) fn store_scalar(&mut self, frame: &mut Frame<'_>, v: Value, x: V) -> Result<()> {
        let dtype = frame.scope.dtype(v);
        let raw = scalar::encode(&mut self.b, dtype, x);
        let output = self.allocate_for(frame, v)?;
        let zero = self.b.i64(0);
        self.b.store(output, zero, raw);
        Ok(())
    }

    fn concat(&mut self, frame: &mut Frame<'_>, v: Value, axis: usize) -> Result<()> {
        let output = self.allocate_for(frame, v)?;
        let shape = self.shape_of(frame, v);
        let length = Dim::product(&shape);
        let mut parts = Vec::new();
        let mut offset = Dim::ZERO;
        for &part in &frame.scope.func.node(v).args {
            let domain = self.shape_of(frame, part);
            let (start, shape) = (offset.clone(), &shape);
            offset = &offset + &domain[axis];
            let to = move |index: &[Dim]| {
                let mut at = index.to_vec();
                at[axis] = &at[axis] + &start;
                linear(&at, shape)
            };
            parts.push(Pointwise {
                domain,
                writes: vec![(part, Arg::Output)],
                heads: vec![],
                from: Box::new(<[Dim]>::to_vec),
                to: Box::new(to),
                length: length.clone(),
            });
        }
        let kernel = pointwise::kernel("concat", &parts, &mut self.state, &frame.scope);
        self.launch(frame, kernel, output, None)
    }

    fn pad(&mut self, frame: &mut Frame<'_>, v: Value, low: &[Dim], high: &[Dim]) -> Result<()> {
        let output = self.allocate_for(frame, v)?;
        let shape = self.shape_of(frame, v);
        let length = Dim::product(&shape);
        let args = &frame.scope.func.node(v).args;
        let padded = low.iter().chain(high).any(|d| Dim::ZERO.at_most(d) != Some(true) || *d != Dim::ZERO);
        if padded {
            let value = args[1];
            let fill = Pointwise {
                domain: shape.clone(),
                writes: vec![(value, Arg::Output)],
                heads: vec![],
                from: Box::new(|_| vec![]),
                to: Box::new(|index| linear(index, &shape)),
                length: length.clone(),
            }
            .kernel("fill", &mut self.state, &frame.scope);
            self.launch(frame, fill, output, None)?;
        }
        // What is left of the operand after cropping.
        let source = self.shape_of(frame, args[0]);
        let (mut first, mut kept) = (Vec::new(), Vec::new());
        for ((n, low), high) in source.iter().zip(low).zip(high) {
            let (low, high) = (self.state.attribute(low), self.state.attribute(high));
            let start = (-&low).greater(&Dim::ZERO);
            let end = (n + &high).lesser(n);
            let size = (&end - &start).greater(&Dim::ZERO);
            first.push((self.state.attribute(&start), low));
            kept.push(self.state.size(&size));
        }
        let kernel = Pointwise {
            domain: kept,
            writes: vec![(args[0], Arg::Output)],
            heads: vec![],
            from: Box::new(|index| index.iter().zip(&first).map(|(i, (start, _))| i + start).collect()),
            to: Box::new(|index| {
                let at: Vec<Dim> = index.iter().zip(&first).map(|(i, (start, low))| &(i + start) + low).collect();
                linear(&at, &shape)
            }),
            length,
        }
        .kernel("pad", &mut self.state, &frame.scope);
        self.launch(frame, kernel, output, None)
    }

    fn compress(&mut self, frame: &mut Frame<'_>, v: Value, count: &numrsc_ir::dim::Sym) -> Result<()> {
        let mask = frame.scope.func.node(v).args[0];
        let most = self.shape_of(frame, mask)[0].clone();
        let found = self.b.buffer(Elem::I64, 1);
        let kernel = scatter::compress(&mut self.state, &frame.scope, mask, found);
        let output = self.allocate(frame, v, &most)?;
        self.launch(frame, kernel, output, None)?;
        let zero = self.b.i64(0);
        let n = self.b.load(Ty::I64, found, zero);
        frame.sizes.symbols.insert(count.clone(), n);
        Ok(())
    }

    fn scatter(&mut self, frame: &mut Frame<'_>, v: Value) -> Result<()> {
        // First all of the operand, then the updates in order.
        let x = frame.scope.func.node(v).args[0];
        let shape = self.shape_of(frame, v);
        let copy =
            Pointwise::whole(shape, vec![(x, Arg::Output)]).kernel("scatter_copy", &mut self.state, &frame.scope);
        // If the operand itself is taken over, there is nothing to copy.
        let reads_only_itself = frame.scope.has_buffer(x) && copy.in_place == [x];
        let others = &frame.scope.func.node(v).args[1..];
        let read_elsewhere = others.iter().any(|a| *a == x || frame.fusion.reads[a.0 as usize].contains(&x));
        let kernel = scatter::kernel(&mut self.state, &frame.scope, v);
        let taken = if reads_only_itself && !read_elsewhere { self.take_over(frame, v, &[x]) } else { None };
        let output = match taken {
            Some(pointer) => pointer,
            None => {
                let output = self.allocate_for(frame, v)?;
                self.launch(frame, copy, output, None)?;
                output
            }
        };
        self.launch(frame, kernel, output, None)
    }

    fn get(&mut self, frame: &mut Frame<'_>, v: Value, index: usize) -> Result<()> {
        let tuple = frame.scope.func.node(v).args[0];
        let super::Slot::Tuple(slots) = &frame.others[&tuple] else { unreachable!("a tuple") };
        let slot = slots[index].clone();
        match (frame.scope.func.ty(v), slot) {
            (Type::Tensor(_), super::Slot::Tensor { pointer, .. }) => {
                frame.scope.buffers.insert(v, Buffer { pointer });
                // The first owner of a block frees it.
                let first = frame.taken.insert((tuple, index));
                frame.memory.insert(v, if first { Memory::Heap } else { Memory::Outside });
            }
            (_, other) => {
                frame.others.insert(v, other);
            }
        }
        Ok(())
    }
}

/// A kernel that turns offsets of strings into their addresses.
fn string_addresses(count: i64, table: V, weights: V) -> crate::pointwise::Kernel {
    let mut b = Builder::new(Kind::Kernel, &[Ty::PTR, Ty::PTR, Ty::PTR]);
    let &[begin, end, _, output, table_param, base] = b.params() else { unreachable!("three and three parameters") };
    let base = b.convert(Convert::Pointer, base, Elem::I64);
    b.for_(begin, end, 1, |b, i| {
        let offset = b.load_fixed(Ty::I64, table_param, i);
        let address = b.add(base, offset);
        b.store(output, i, address);
    });
    crate::pointwise::Kernel {
        function: b.finish("strings", vec![]),
        args: vec![Arg::Output, Arg::Entry(table), Arg::Entry(weights)],
        extent: Dim::Const(count),
        work: Dim::ONE,
        in_place: vec![],
    }
}
