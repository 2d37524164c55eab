//! Branches and loops: nested functions become blocks of the entry. What they give lies in blocks of memory of its own.
use super::{Entry, Frame, ResultHome, Slot, memory::Memory, sizes::Sizes};
use crate::{Result, scalar};
use numrsc_ir::{
    Dim, Func, Op, Type, Value,
    dim::Sym,
    kernel::{Binary, Block, Compare, Elem, Host, Kind, Ty, V, build::Builder},
};
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
        self.shared.place = super::place(frame.scope.func, v);
        self.give_tuple(frame, v, types, &outs)
    }

    fn branch_block(&mut self, func: &Func, captures: &[Slot], symbols: HashMap<Sym, V>) -> Result<Block> {
        self.b.open_branch();
        let homes = vec![ResultHome::Heap; func.results().len()];
        let slots = self.run(func, captures, symbols, &homes)?;
        Ok(self.b.close_branch(slots.iter().flat_map(flat).collect()))
    }

    fn slots(&mut self, frame: &mut Frame<'_>, values: &[Value]) -> Result<Vec<Slot>> {
        values.iter().map(|&a| self.slot(frame, a)).collect()
    }

    /// The results of control flow as a tuple whose stated types may name sizes.
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
        let values = self.slots(frame, &node.args[2..])?;
        let (initial, captures) = values.split_at(count);

        // States are copied to begin with, so that every round may give back the ones before.
        let zero = self.b.i64(0);
        let mut init = vec![zero, go];
        let mut layout = Vec::new();
        for (slot, ty) in initial.iter().zip(types) {
            let (slot, fixed) = self.first_state(slot, ty, body, layout.len());
            init.extend(carried(&slot, &fixed));
            layout.push((slot, fixed));
        }
        let rows_at = init.len();
        for ty in &types[count..] {
            let room = self.b.i64(64);
            init.push(self.block_of(room));
            init.push(zero);
            init.extend(ty.as_tensor().map_or(&[][..], |t| &t.shape[1..]).iter().map(|_| zero));
        }

        let open = self.b.open_while(&init, |b, carried| {
            let more = b.compare(Compare::Lt, carried[0], trips);
            b.and(more, carried[1])
        });
        let inside = open.inside.clone();
        let mut args = vec![self.scalar_slot(Elem::I64, inside[0])];
        let truth = self.b.int(Ty::scalar(Elem::I8), 1);
        args.push(self.scalar_slot(Elem::I8, truth));
        let mut at = 2;
        let mut states_now = Vec::new();
        for (slot, fixed) in &layout {
            let now = restored(slot, fixed, &inside, &mut at);
            args.push(now.clone());
            states_now.push(now);
        }
        args.extend(captures.iter().cloned());
        let mut homes = vec![ResultHome::Heap; body.results().len()];
        homes[0] = ResultHome::Scalar;
        let mut results = self.run(body, &args, frame.sizes.symbols.clone(), &homes)?.into_iter();
        self.shared.place = super::place(frame.scope.func, v);
        let Some(Slot::Tensor { pointer: go, .. }) = results.next() else { unreachable!("the condition") };
        let one = self.b.i64(1);
        let mut next = vec![self.b.add(inside[0], one), go];
        for ((old, (_, fixed)), new) in states_now.iter().zip(&layout).zip(results.by_ref().take(count)) {
            if let Slot::Tensor { pointer, .. } = old {
                self.give_back(*pointer, Memory::Heap);
            }
            self.demand_fixed(old, &new, fixed);
            next.extend(carried(&new, fixed));
        }
        let mut at = rows_at;
        for (row, ty) in results.zip(&types[count..]) {
            next.extend(self.append_row(ty, &row, inside[0], trips, &inside[at..]));
            at = next.len();
        }
        let outs = self.b.close_while(open, next);

        let mut at = 2;
        let mut all = Vec::new();
        for (slot, fixed) in &layout {
            all.extend(flat(&restored(slot, fixed, &outs, &mut at)));
        }
        for ty in &types[count..] {
            let dims = &ty.as_tensor().map_or(&[][..], |t| &t.shape)[1..];
            let pointer = outs[at];
            let sizes = outs[at + 2..at + 2 + dims.len()].to_vec();
            at += 2 + dims.len();
            all.extend([pointer, outs[0]]);
            // Where there was no round, the stated sizes hold; those that nothing has defined are 0.
            let none = self.b.compare(Compare::Eq, outs[0], zero);
            for (d, size) in dims.iter().zip(sizes) {
                let stated = if self.is_known(&frame.sizes, d) { self.size(&mut frame.sizes, d)? } else { zero };
                all.push(self.b.select(none, stated, size));
            }
        }
        self.give_tuple(frame, v, types, &all)
    }

    /// A state before the first round, and which of its sizes stay the same in every round.
    fn first_state(&mut self, slot: &Slot, ty: &Type, body: &Func, number: usize) -> (Slot, Vec<bool>) {
        let Slot::Tensor { pointer, sizes } = slot else { return (slot.clone(), vec![]) };
        let dtype = ty.as_tensor().map_or(numrsc_ir::DType::U8, |t| t.dtype);
        let bytes = self.bytes_of(sizes, scalar::memory(dtype).size());
        let copy = self.block_of(bytes);
        self.copy_bytes(copy, *pointer, bytes);
        let (before, after) = (body.ty(body.params()[2 + number]), body.ty(body.results()[1 + number]));
        let fixed = match (before, after) {
            (Type::Tensor(x), Type::Tensor(y)) => x.shape.iter().zip(&y.shape).map(|(x, y)| x == y).collect(),
            _ => vec![],
        };
        (Slot::Tensor { pointer: copy, sizes: sizes.clone() }, fixed)
    }

    /// Sizes that do not change by their types are demanded not to.
    fn demand_fixed(&mut self, old: &Slot, new: &Slot, fixed: &[bool]) {
        if let (Slot::Tensor { sizes: old, .. }, Slot::Tensor { sizes: new, .. }) = (old, new) {
            for ((&x, &y), _) in old.iter().zip(new).zip(fixed).filter(|((x, y), fixed)| **fixed && x != y) {
                let same = self.b.compare(Compare::Eq, x, y);
                self.demand(same, "a state changes its size");
            }
        }
    }

    fn is_known(&self, sizes: &Sizes, d: &Dim) -> bool {
        let mut known = true;
        d.for_each_sym(&mut |s| known &= sizes.symbols.contains_key(s) || self.shared.meaning(s).is_some());
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

    /// Put a row behind the others, in a larger block if need be. `now` is the block, the rows it has room for, and the sizes of a row.
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
                let lanes = self.shared.machine.vector_bytes.max(1);
                let id = self.function(copy_kernel(lanes));
                self.copy = Some(id);
                id
            }
        };
        let (block, more, grain) = (self.b.i64(COPY_BLOCK), self.b.i64(COPY_BLOCK - 1), self.b.i64(4));
        let rounded = self.b.add(bytes, more);
        let extent = self.b.udiv(rounded, block);
        self.b.launch(id, vec![to, from, bytes], extent, grain);
    }

    /// Blocks of a tuple that nobody takes are given back at once.
    pub(super) fn drop_unused_results(&mut self, frame: &mut Frame<'_>, v: Value) {
        let Some(Slot::Tuple(slots)) = frame.others.get(&v).cloned() else { return };
        let func = frame.scope.func;
        let taken: Vec<i64> = func
            .nodes()
            .iter()
            .filter(|n| n.args == [v])
            .filter_map(|n| if let Op::Get { index } = n.op { Some(index) } else { None })
            .collect();
        for (i, slot) in slots.iter().enumerate() {
            if let Slot::Tensor { pointer, .. } = slot
                && !taken.contains(&(i as i64))
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

/// What of a state is carried from round to round: its address and the sizes that may change.
fn carried(slot: &Slot, fixed: &[bool]) -> Vec<V> {
    match slot {
        Slot::Tensor { pointer, sizes } => {
            let changing = sizes.iter().zip(fixed).filter(|(_, fixed)| !**fixed).map(|(s, _)| *s);
            [*pointer].into_iter().chain(changing).collect()
        }
        other => flat(other),
    }
}

/// A state from what is carried.
fn restored(first: &Slot, fixed: &[bool], carried: &[V], at: &mut usize) -> Slot {
    let mut next = || {
        *at += 1;
        carried[*at - 1]
    };
    match first {
        Slot::Tensor { sizes, .. } => {
            let pointer = next();
            let sizes = sizes.iter().zip(fixed).map(|(&s, &fixed)| if fixed { s } else { next() }).collect();
            Slot::Tensor { pointer, sizes }
        }
        _ => Slot::Seq(next()),
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
