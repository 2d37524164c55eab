//! Branches and loops: nested functions become blocks of the entry. Their results have memory of their own.
use crate::{
    arg::Arg,
    entry::{Entry, Frame, ResultTarget, Slot, memory::Memory, sizes::Sizes},
    pointwise::{self, Pointwise},
};
use numrsc_facts::{
    Result,
    loops::{fixed_sizes, goes_on, is_taken, only_reads_first},
};
use numrsc_ir::{
    Dim, Func, Op, Type, Value,
    dim::Sym,
    kernel::{Binary, Block, Compare, Elem, Host, Kind, Ty, V, build::Builder, context},
};
use numrsc_scalar as scalar;
use std::collections::HashMap;

/// Bytes per unit of the extent of a copy.
const COPY_BLOCK: i64 = 1 << 14;
/// Rows that a loop makes room for at first, unless it is known to have fewer.
const FIRST_ROWS: i64 = 64;

impl Entry {
    pub(super) fn branch(&mut self, frame: &mut Frame<'_>, v: Value) -> Result<()> {
        let node = frame.scope.func.node(v);
        let Op::If { then, or, types } = &node.op else { unreachable!("a branch") };
        let cond = self.scalar(frame, node.args[0]);
        let captures = self.slots(frame, &node.args[1..])?;
        let symbols = frame.sizes.symbols.clone();
        let then = self.branch_block(then, &captures, symbols.clone())?;
        let or = self.branch_block(or, &captures, symbols)?;
        let outs = self.b.close_if(cond, then, or);
        self.stand_at(frame, v);
        self.give_tuple(frame, v, types, &outs)
    }

    fn branch_block(&mut self, func: &Func, captures: &[Slot], symbols: HashMap<Sym, V>) -> Result<Block> {
        self.b.open_branch();
        let targets = vec![ResultTarget::Heap; func.results().len()];
        let slots = self.run(func, captures, symbols, &targets)?;
        Ok(self.b.close_branch(slots.iter().flat_map(flat).collect()))
    }

    fn slots(&mut self, frame: &mut Frame<'_>, values: &[Value]) -> Result<Vec<Slot>> {
        values.iter().map(|&a| self.slot(frame, a)).collect()
    }

    /// The results of control flow as a tuple whose stated types may name sizes.
    #[allow(clippy::wildcard_enum_match_arm, reason = "what is no tensor is a sequence or a tuple")]
    fn give_tuple(&mut self, frame: &mut Frame<'_>, v: Value, types: &[Type], flat: &[V]) -> Result<()> {
        let mut flat = flat.iter().copied();
        let mut pairs = Vec::new();
        let mut slots = Vec::new();
        for (i, ty) in types.iter().enumerate() {
            let pointer = flat.next().expect("one pointer per result");
            slots.push(match ty {
                Type::Tensor(t) => {
                    let sizes: Vec<V> = t.shape.iter().map(|_| flat.next().expect("one size per axis")).collect();
                    for (a, (d, &size)) in t.shape.iter().zip(&sizes).enumerate() {
                        pairs.push((d.clone(), size, format!("result {i}: the size of axis {a} is not {d}")));
                    }
                    Slot::Tensor { pointer, sizes }
                }
                _ => Slot::Seq(pointer),
            });
        }
        self.unify(&mut frame.sizes, pairs)?;
        frame.others.insert(v, Slot::Tuple(slots));
        Ok(())
    }

    pub(super) fn repeat(&mut self, frame: &mut Frame<'_>, v: Value) -> Result<()> {
        let node = frame.scope.func.node(v);
        let Op::Loop { states, body, types } = &node.op else { unreachable!("a loop") };
        let count = *states as usize;
        let (trips, go) = (self.scalar(frame, node.args[0]), self.scalar(frame, node.args[1]));
        let captures = self.slots(frame, &node.args[2 + count..])?;
        let zero = self.b.i64(0);

        // If the number of rounds and the size of rows are known, the rows of a loop get all their memory at once.
        let counted = self.b.as_const(go) == Some(1) && goes_on(body);
        let mut rows = Vec::new();
        for (ty, &result) in types[count..].iter().zip(&body.results()[1 + count..]) {
            let row = body.ty(result).as_tensor().map_or(&[][..], |t| &t.shape);
            let stated = ty.as_tensor().map_or(&[][..], |t| &t.shape[1..]);
            let known = counted && row == stated && row.iter().all(|d| self.is_known(&frame.sizes, d));
            rows.push(if known { self.all_rows(frame, ty, trips)? } else { self.no_rows(ty) });
        }
        let in_row = |state: usize| {
            let same = |j: &usize| body.results()[1 + count + j] == body.results()[1 + state];
            (0..rows.len()).filter(|&j| rows[j].stride.is_some()).find(same)
        };
        let mut all = Vec::new();
        for number in 0..count {
            let row = in_row(number);
            all.push(self.first_state(frame, v, number, row)?);
        }
        self.fill_states(frame, node.args[2..2 + count].iter().copied().zip(&all))?;

        let mut init = vec![zero, go];
        init.extend(all.iter().flat_map(State::carried));
        init.extend(rows.iter().flat_map(|r| r.carried.clone()));
        let open = self.b.open_while(&init, |b, carried| {
            let more = b.compare(Compare::Lt, carried[0], trips);
            b.and(more, carried[1])
        });
        let inside = open.inside.clone();
        self.poll();
        let mut now = inside[2..].iter().copied();
        let states_now: Vec<State> = all.iter().map(|s| s.with_carried(&mut now)).collect();
        let rows_now: Vec<Vec<V>> = rows.iter().map(|r| now.by_ref().take(r.carried.len()).collect()).collect();
        let mut args = vec![self.scalar_slot(Elem::I64, inside[0])];
        let truth = self.b.int(Ty::scalar(Elem::I8), 1);
        args.push(self.scalar_slot(Elem::I8, truth));
        args.extend(states_now.iter().map(|s| s.slot.clone()));
        args.extend(captures);

        let mut targets = vec![ResultTarget::Scalar];
        let mut row_targets = Vec::new();
        for row in &rows {
            row_targets.push(match row.stride {
                Some(stride) => {
                    let offset = self.b.mul(inside[0], stride);
                    ResultTarget::At(self.b.offset(row.block, offset))
                }
                None => ResultTarget::Heap,
            });
        }
        targets.extend(states_now.iter().map(|s| match s.keep {
            Keep::Blocks => ResultTarget::Heap,
            Keep::Turns([next, _]) => ResultTarget::At(next),
            Keep::Row(row) => row_targets[row],
        }));
        targets.extend(row_targets);
        let outer = self.state.round.replace(inside[0]);
        let mut results = self.run(body, &args, frame.sizes.symbols.clone(), &targets)?.into_iter();
        self.state.round = outer;
        self.stand_at(frame, v);
        let Some(Slot::Tensor { pointer: go, .. }) = results.next() else { unreachable!("the condition") };
        let one = self.b.i64(1);
        let mut next = vec![self.b.add(inside[0], one), go];
        for (old, new) in states_now.into_iter().zip(results.by_ref().take(count)) {
            self.demand_fixed(&old, &new);
            let keep = match (&old.slot, old.keep) {
                (Slot::Tensor { pointer, .. }, Keep::Blocks) => {
                    self.give_back(*pointer, Memory::Heap);
                    Keep::Blocks
                }
                (_, Keep::Turns([next, after])) => Keep::Turns([after, next]),
                (_, keep) => keep,
            };
            next.extend(State { slot: new, keep, ..old }.carried());
        }
        for ((result, ty), (row, now)) in results.zip(&types[count..]).zip(rows.iter().zip(&rows_now)) {
            if row.stride.is_none() {
                next.extend(self.append_row(ty, &result, inside[0], trips, now));
            }
        }
        let outs = self.b.close_while(open, next);

        let rounds = outs[0];
        let mut now = outs[2..].iter().copied();
        let mut results = Vec::new();
        for (number, first) in all.iter().enumerate() {
            let last = first.with_carried(&mut now);
            results.extend(flat(&self.last_state(first, last, rounds, is_taken(frame.scope.func, v, number))));
        }
        for (ty, row) in types[count..].iter().zip(&rows) {
            let dims = &ty.as_tensor().map_or(&[][..], |t| &t.shape)[1..];
            let carried: Vec<V> = now.by_ref().take(row.carried.len()).collect();
            if row.stride.is_some() {
                results.extend([row.block, rounds]);
                for d in dims {
                    results.push(self.size(&mut frame.sizes, d)?);
                }
                continue;
            }
            results.extend([carried[0], rounds]);
            // Where there was no round, the stated sizes hold; those that nothing has defined are 0.
            let none = self.b.compare(Compare::Eq, rounds, zero);
            for (d, &size) in dims.iter().zip(&carried[2..]) {
                let stated = if self.is_known(&frame.sizes, d) { self.size(&mut frame.sizes, d)? } else { zero };
                results.push(self.b.select(none, stated, size));
            }
        }
        self.give_tuple(frame, v, types, &results)
    }

    /// Ends the run if it was cancelled. On a device nothing can cancel it.
    fn poll(&mut self) {
        if self.state.context.device {
            return;
        }
        let (wanted, zero) = (self.context_slot(Ty::I64, context::CANCEL), self.b.i64(0));
        let go_on = self.b.compare(Compare::Eq, wanted, zero);
        let place = std::mem::take(&mut self.state.place);
        self.demand(go_on, "the run was stopped");
        self.state.place = place;
    }

    /// Memory for the rows of all rounds.
    fn all_rows(&mut self, frame: &mut Frame<'_>, ty: &Type, trips: V) -> Result<LoopRows> {
        let (dtype, dims) = ty.as_tensor().map_or((numrsc_ir::DType::U8, &[][..]), |t| (t.dtype, &t.shape[1..]));
        let bytes = &Dim::product(dims) * &Dim::Const(scalar::memory(dtype).size());
        let stride = self.size(&mut frame.sizes, &bytes)?;
        let zero = self.b.i64(0);
        let trips = self.b.binary(Binary::SMax, trips, zero);
        let total = self.checked_mul(trips, stride);
        Ok(LoopRows { block: self.block_of(total), stride: Some(stride), carried: vec![] })
    }

    /// Rows that will be put one behind the other.
    fn no_rows(&mut self, ty: &Type) -> LoopRows {
        let (room, zero) = (self.b.i64(64), self.b.i64(0));
        let block = self.block_of(room);
        let sizes = ty.as_tensor().map_or(&[][..], |t| &t.shape[1..]).iter().map(|_| zero);
        LoopRows { block, stride: None, carried: [block, zero].into_iter().chain(sizes).collect() }
    }

    /// The memory of a state before the first round, and how it is kept.
    fn first_state(&mut self, frame: &mut Frame<'_>, v: Value, number: usize, row: Option<usize>) -> Result<State> {
        let node = frame.scope.func.node(v);
        let Op::Loop { body, .. } = &node.op else { unreachable!("a loop") };
        let initial = node.args[2 + number];
        let Type::Tensor(t) = frame.scope.func.ty(initial) else {
            return Ok(State { slot: frame.others[&initial].clone(), element: 1, fixed: vec![], keep: Keep::Blocks });
        };
        let (dtype, shape) = (t.dtype, t.shape.clone());
        let sizes = shape.iter().map(|d| self.size(&mut frame.sizes, d)).collect::<Result<Vec<V>>>()?;
        let element = scalar::memory(dtype).size();
        let bytes = self.bytes_of(&sizes, element);
        let fixed = fixed_sizes(body, number);
        // A stored value that is only read needs no copy.
        let there = frame.scope.buffers.get(&initial).filter(|_| only_reads_first(frame.scope.func, v, number));
        let there = there.map(|b| b.pointer);
        let pointer = there.unwrap_or_else(|| self.block_of(bytes));
        let keep = match row {
            _ if fixed.contains(&false) => Keep::Blocks,
            Some(row) => {
                frame.taken.extend(there.map(|_| (v, number)));
                Keep::Row(row)
            }
            None => {
                let after = if there.is_some() { self.block_of(bytes) } else { pointer };
                Keep::Turns([self.block_of(bytes), after])
            }
        };
        Ok(State { slot: Slot::Tensor { pointer, sizes }, element, fixed, keep })
    }

    /// Copies initial states into their memory, unless they are there.
    fn fill_states<'s>(
        &mut self,
        frame: &mut Frame<'_>,
        states: impl Iterator<Item = (Value, &'s State)>,
    ) -> Result<()> {
        let mut parts = Vec::new();
        for (initial, state) in states {
            let there = frame.scope.buffers.get(&initial).map(|b| b.pointer);
            if let Slot::Tensor { pointer, .. } = state.slot
                && there != Some(pointer)
            {
                let shape = self.shape_of(frame, initial);
                parts.push(Pointwise::whole(shape, vec![(initial, Arg::Entry(pointer))]));
            }
        }
        if parts.is_empty() {
            return Ok(());
        }
        let kernel = pointwise::kernel("states", &parts, &mut self.state, &frame.scope);
        self.launch_with(frame, kernel, &[], None)
    }

    /// A state after the last round, in a block of its own.
    fn last_state(&mut self, first: &State, last: State, rounds: V, is_taken: bool) -> Slot {
        match (&first.slot, &last.slot, last.keep) {
            // Unless it is still where it began, which nobody asks for, it is in the block of the round before the
            // next.
            (_, Slot::Tensor { sizes, .. }, Keep::Turns([next, pointer])) => {
                self.give_back(next, Memory::Heap);
                Slot::Tensor { pointer, sizes: sizes.clone() }
            }
            (Slot::Tensor { pointer: own, sizes }, Slot::Tensor { pointer: row, .. }, Keep::Row(_)) if is_taken => {
                let (own, row, sizes, zero) = (*own, *row, sizes.clone(), self.b.i64(0));
                let bytes = self.bytes_of(&sizes, first.element);
                let any = self.b.compare(Compare::Lt, zero, rounds);
                self.b.open_branch();
                self.copy_bytes(own, row, bytes);
                let then = self.b.close_branch(vec![]);
                self.b.close_if(any, then, Block::default());
                first.slot.clone()
            }
            (_, _, Keep::Row(_)) => first.slot.clone(),
            _ => last.slot,
        }
    }

    /// Sizes that do not change by their types are demanded not to.
    fn demand_fixed(&mut self, old: &State, new: &Slot) {
        if let (Slot::Tensor { sizes, .. }, Slot::Tensor { sizes: new, .. }) = (&old.slot, new) {
            for ((&x, &y), _) in sizes.iter().zip(new).zip(&old.fixed).filter(|((x, y), fixed)| **fixed && x != y) {
                let same = self.b.compare(Compare::Eq, x, y);
                self.demand(same, "a state changes its size");
            }
        }
    }

    fn is_known(&self, sizes: &Sizes, d: &Dim) -> bool {
        let mut known = true;
        d.for_each_sym(&mut |s| known &= sizes.symbols.contains_key(s) || self.state.meaning(s).is_some());
        known
    }

    /// A number in memory of its own, as a scalar tensor.
    fn scalar_slot(&mut self, elem: Elem, x: V) -> Slot {
        let pointer = self.b.buffer(elem, 1);
        let zero = self.b.i64(0);
        self.b.store(pointer, zero, x);
        Slot::Tensor { pointer, sizes: vec![] }
    }

    fn bytes_of(&mut self, sizes: &[V], element: i64) -> V {
        let element = self.b.i64(element);
        sizes.iter().fold(element, |n, &s| self.checked_mul(n, s))
    }

    /// Put a row behind the others, in a larger block if need be. `now` is the block, the rows it has room for, and the
    /// sizes of a row.
    fn append_row(&mut self, ty: &Type, row: &Slot, round: V, trips: V, now: &[V]) -> Vec<V> {
        let Slot::Tensor { pointer: row, sizes } = row else { unreachable!("rows are tensors") };
        let dtype = ty.as_tensor().map_or(numrsc_ir::DType::U8, |t| t.dtype);
        let (block, room) = (now[0], now[1]);
        let zero = self.b.i64(0);
        let first = self.b.compare(Compare::Eq, round, zero);
        for (&size, &before) in sizes.iter().zip(&now[2..]) {
            let same = self.b.compare(Compare::Eq, size, before);
            let fits = self.b.or(first, same);
            self.demand(fits, "the rows of a loop have different sizes");
        }
        let bytes = self.bytes_of(sizes, scalar::memory(dtype).size());
        let full = self.b.compare(Compare::Le, room, round);
        self.b.open_branch();
        let (some, two) = (self.b.i64(FIRST_ROWS), self.b.i64(2));
        let doubled = self.checked_mul(room, two);
        let wanted = self.b.binary(Binary::SMax, doubled, some);
        let wanted = self.b.binary(Binary::SMin, wanted, trips);
        let total = self.checked_mul(wanted, bytes);
        let larger = self.block_of(total);
        let used = self.checked_mul(round, bytes);
        self.copy_bytes(larger, block, used);
        self.give_back(block, Memory::Heap);
        let then = self.b.close_branch(vec![larger, wanted]);
        self.b.open_branch();
        let or = self.b.close_branch(vec![block, room]);
        let outs = self.b.close_if(full, then, or);
        let offset = self.b.mul(round, bytes);
        let place = self.b.offset(outs[0], offset);
        self.copy_bytes(place, *row, bytes);
        self.give_back(*row, Memory::Heap);
        [&outs[..], &sizes[..]].concat()
    }

    /// Copy memory that does not overlap.
    pub(super) fn copy_bytes(&mut self, to: V, from: V, bytes: V) {
        let id = match self.copy {
            Some(id) => id,
            None => {
                let lanes = self.state.context.machine.vector_bytes.max(1);
                let id = self.function(copy_kernel(lanes));
                self.copy = Some(id);
                id
            }
        };
        let (block, more, grain) = (self.b.i64(COPY_BLOCK), self.b.i64(COPY_BLOCK - 1), self.b.i64(4));
        let rounded = self.b.add(bytes, more);
        let extent = self.b.udiv(rounded, block);
        self.b.launch(id, vec![to, from, bytes], extent, grain);
        self.origins.launch(id, &self.b.source);
    }

    /// Blocks of a tuple that nobody takes are given back at once.
    pub(super) fn drop_unused_results(&mut self, frame: &mut Frame<'_>, v: Value) {
        let Some(Slot::Tuple(slots)) = frame.others.get(&v).cloned() else { return };
        for (i, slot) in slots.iter().enumerate() {
            if let Slot::Tensor { pointer, .. } = slot
                && !is_taken(frame.scope.func, v, i)
                && !frame.taken.contains(&(v, i))
            {
                let context = self.context();
                self.b.host(Host::Free, vec![context, *pointer]);
            }
        }
    }
}

fn flat(slot: &Slot) -> Vec<V> {
    match slot {
        Slot::Tensor { pointer, sizes } => [&[*pointer], &sizes[..]].concat(),
        Slot::Seq(pointer) => vec![*pointer],
        Slot::Tuple(_) => unreachable!("tuples are taken apart"),
    }
}

/// A state of a loop.
#[derive(Clone)]
struct State {
    slot: Slot,
    /// Bytes of an element.
    element: i64,
    /// Which of its sizes stay the same in every round.
    fixed: Vec<bool>,
    keep: Keep,
}

/// Where the next value of a state goes.
#[derive(Clone, Copy)]
enum Keep {
    /// To a new block in every round; the one before is given back.
    Blocks,
    /// To the first of these blocks, and to the second one in the round after that.
    Turns([V; 2]),
    /// It is also a row of this result, and stays there.
    Row(usize),
}

/// The rows that the rounds of a loop give.
struct LoopRows {
    block: V,
    /// Bytes of a row, if there is room for all.
    stride: Option<V>,
    /// Otherwise the block, the rows it has room for, and the sizes of a row.
    carried: Vec<V>,
}

impl State {
    /// What is carried from round to round: the address, the sizes that may change, the blocks that take turns.
    #[allow(clippy::wildcard_enum_match_arm, reason = "tensors are all that is not flat")]
    fn carried(&self) -> Vec<V> {
        let mut all = match &self.slot {
            Slot::Tensor { pointer, sizes } => {
                let changing = sizes.iter().zip(&self.fixed).filter(|(_, fixed)| !**fixed).map(|(s, _)| *s);
                [*pointer].into_iter().chain(changing).collect()
            }
            other => flat(other),
        };
        if let Keep::Turns(blocks) = self.keep {
            all.extend(blocks);
        }
        all
    }

    /// The state in another round, from what is carried.
    #[allow(clippy::wildcard_enum_match_arm, reason = "tensors are all that is not flat")]
    fn with_carried(&self, carried: &mut impl Iterator<Item = V>) -> State {
        let mut next = || carried.next().expect("as many as were given");
        let slot = match &self.slot {
            Slot::Tensor { sizes, .. } => {
                let pointer = next();
                let sizes = sizes.iter().zip(&self.fixed).map(|(&s, &fixed)| if fixed { s } else { next() }).collect();
                Slot::Tensor { pointer, sizes }
            }
            _ => Slot::Seq(next()),
        };
        let keep = match self.keep {
            Keep::Turns(_) => Keep::Turns([next(), next()]),
            keep => keep,
        };
        State { slot, keep, fixed: self.fixed.clone(), ..*self }
    }
}

fn copy_kernel(lanes: u32) -> numrsc_ir::kernel::Function {
    let mut b = Builder::new(Kind::Kernel, &[Ty::PTR, Ty::PTR, Ty::I64]);
    let &[begin, end, _, to, from, bytes] = b.params() else { unreachable!("three and three parameters") };
    let block = b.i64(COPY_BLOCK);
    let (low, high) = (b.mul(begin, block), b.mul(end, block));
    let high = b.binary(Binary::SMin, high, bytes);
    let count = b.sub(high, low);
    let step = b.i64(i64::from(lanes));
    let left = b.urem(count, step);
    let middle = b.sub(high, left);
    let wide = Ty::vector(Elem::I8, lanes);
    b.for_(low, middle, i64::from(lanes), |b, i| {
        let x = b.load(wide, from, i);
        b.store(to, i, x);
    });
    b.for_(middle, high, 1, |b, i| {
        let x = b.load(Ty::scalar(Elem::I8), from, i);
        b.store(to, i, x);
    });
    b.finish("copy_bytes", vec![])
}
