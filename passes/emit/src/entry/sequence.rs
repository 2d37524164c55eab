//! Sequences: a block with a length and a description of every element. They are never changed, only made anew; what
//! they hold stays until the end of the run, so elements are shared freely.
use crate::entry::{Entry, Frame, Slot, memory::Memory};
use numrsc_facts::{Error, Result};
use numrsc_ir::{
    Op, Type, Value,
    kernel::{Binary, Compare, Ty, V, context},
};
use numrsc_scalar as scalar;
use numrsc_schedule::fuse::Buffer;

const ELEMENT_BYTES: i64 = context::ELEMENT_SLOTS * 8;

impl Entry {
    #[allow(clippy::wildcard_enum_match_arm, reason = "`emit` lists the ops on sequences")]
    pub(super) fn sequence(&mut self, frame: &mut Frame<'_>, v: Value) -> Result<()> {
        let node = frame.scope.func.node(v);
        let args = &node.args;
        match &node.op {
            Op::SeqMake { .. } => {
                let count = self.b.i64(args.len() as i64);
                let block = self.new_sequence(count);
                for (i, &x) in args.iter().enumerate() {
                    let at = self.b.i64(i as i64);
                    self.put(frame, block, at, x)?;
                }
                frame.others.insert(v, Slot::Seq(block));
            }
            Op::SeqLen {} => {
                let length = self.length(frame, args[0]);
                self.store_scalar(frame, v, length)?;
            }
            Op::SeqAt { ty, .. } => {
                let length = self.length(frame, args[0]);
                let at = self.position(frame, args[1], length, length);
                let block = self.sequence_block(frame, args[0]);
                let element = self.element(block, at);
                let slot = |e: &mut Entry, ty: Ty, n: i64| {
                    let n = e.b.i64(n);
                    e.b.load(ty, element, n)
                };
                let data = slot(self, Ty::PTR, 0);
                if let Type::Tensor(t) = ty {
                    let (rank, want) = (slot(self, Ty::I64, 1), self.b.i64(t.rank() as i64));
                    let fits = self.b.compare(Compare::Eq, rank, want);
                    self.demand(fits, &format!("an element of the sequence is not {ty}"));
                    let sizes = (0..t.rank() as i64).map(|a| slot(self, Ty::I64, 2 + a)).collect::<Vec<V>>();
                    let what = |a: usize| format!("the size of axis {a} of an element is not as stated");
                    let pairs = t.shape.iter().zip(sizes).enumerate().map(|(a, (d, s))| (d.clone(), s, what(a)));
                    let pairs = pairs.collect();
                    self.unify(&mut frame.sizes, pairs)?;
                    frame.scope.buffers.insert(v, Buffer { pointer: data });
                    frame.memory.insert(v, Memory::Outside);
                } else {
                    frame.others.insert(v, Slot::Seq(data));
                }
            }
            Op::SeqInsert { .. } => {
                let (length, one) = (self.length(frame, args[0]), self.b.i64(1));
                let more = self.b.add(length, one);
                let at = self.position(frame, args[1], length, more);
                let (old, new) = (self.sequence_block(frame, args[0]), self.new_sequence(more));
                self.copy_elements(old, new, length, |b, i| {
                    let behind = b.compare(Compare::Le, at, i);
                    let next = b.add(i, one);
                    b.select(behind, next, i)
                });
                self.put(frame, new, at, args[2])?;
                frame.others.insert(v, Slot::Seq(new));
            }
            Op::SeqErase { .. } => {
                let (length, one) = (self.length(frame, args[0]), self.b.i64(1));
                let at = self.position(frame, args[1], length, length);
                let less = self.b.sub(length, one);
                // All are copied one after the other; each one behind the erased element overwrites the place before
                // it.
                let (old, new) = (self.sequence_block(frame, args[0]), self.new_sequence(length));
                self.copy_elements(old, new, length, |b, i| {
                    let behind = b.compare(Compare::Lt, at, i);
                    let before = b.sub(i, one);
                    b.select(behind, before, i)
                });
                let zero = self.b.i64(0);
                self.b.store(new, zero, less);
                frame.others.insert(v, Slot::Seq(new));
            }
            op => unreachable!("`{op}` is no sequence"),
        }
        Ok(())
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "the verifier knows sequences from tensors")]
    fn sequence_block(&self, frame: &Frame<'_>, v: Value) -> V {
        match &frame.others[&v] {
            Slot::Seq(block) => *block,
            other => unreachable!("{other:?} is no sequence"),
        }
    }

    fn length(&mut self, frame: &Frame<'_>, v: Value) -> V {
        let (block, zero) = (self.sequence_block(frame, v), self.b.i64(0));
        self.b.load(Ty::I64, block, zero)
    }

    fn new_sequence(&mut self, count: V) -> V {
        let (size, header) = (self.b.i64(ELEMENT_BYTES), self.b.i64(8));
        let bytes = self.checked_mul(count, size);
        let bytes = self.checked_add(bytes, header);
        let block = self.block_of(bytes);
        let zero = self.b.i64(0);
        self.b.store(block, zero, count);
        block
    }

    fn element(&mut self, block: V, at: V) -> V {
        let (size, header) = (self.b.i64(ELEMENT_BYTES), self.b.i64(8));
        let offset = self.b.mul(at, size);
        let offset = self.b.add(offset, header);
        self.b.offset(block, offset)
    }

    /// A position below `end`, counted from the end of `length` elements if negative.
    fn position(&mut self, frame: &Frame<'_>, index: Value, length: V, end: V) -> V {
        let i = self.scalar(frame, index);
        let zero = self.b.i64(0);
        let negative = self.b.compare(Compare::Lt, i, zero);
        let from_end = self.b.add(i, length);
        let at = self.b.select(negative, from_end, i);
        let inside = self.b.compare(Compare::ULt, at, end);
        self.demand(inside, "an index lies outside of a sequence");
        at
    }

    /// Write an element: a copy of a tensor, or a sequence.
    fn put(&mut self, frame: &mut Frame<'_>, block: V, at: V, x: Value) -> Result<()> {
        let slot = self.slot(frame, x)?;
        let element = self.element(block, at);
        let write = |e: &mut Entry, n: i64, value: V| {
            let n = e.b.i64(n);
            e.b.store(element, n, value);
        };
        match slot {
            Slot::Tensor { pointer, sizes } => {
                if sizes.len() > context::MAX_SEQ_RANK {
                    return Err(Error::Unsupported(format!("a sequence of tensors of rank {}", sizes.len())));
                }
                let size = scalar::memory(frame.scope.dtype(x)).size();
                let size = self.b.i64(size);
                let bytes = sizes.iter().fold(size, |n, &s| self.checked_mul(n, s));
                let copy = self.block_of(bytes);
                self.copy_bytes(copy, pointer, bytes);
                write(self, 0, copy);
                let rank = self.b.i64(sizes.len() as i64);
                write(self, 1, rank);
                for (a, &s) in sizes.iter().enumerate() {
                    write(self, 2 + a as i64, s);
                }
            }
            Slot::Seq(inner) => {
                write(self, 0, inner);
                let no_rank = self.b.i64(-1);
                write(self, 1, no_rank);
            }
            Slot::Tuple(_) => unreachable!("tuples are no elements"),
        }
        Ok(())
    }

    /// Copy the descriptions of all elements, each to the place that `to` gives for its number.
    fn copy_elements(
        &mut self,
        old: V,
        new: V,
        count: V,
        to: impl FnOnce(&mut numrsc_ir::kernel::build::Builder, V) -> V,
    ) {
        let zero = self.b.i64(0);
        let open = self.b.open_for(&[]);
        let place = to(&mut self.b, open.var);
        let least = self.b.binary(Binary::SMax, place, zero);
        let (from, to) = (self.element(old, open.var), self.element(new, least));
        for n in 0..context::ELEMENT_SLOTS {
            let n = self.b.i64(n);
            let x = self.b.load(Ty::I64, from, n);
            self.b.store(to, n, x);
        }
        self.b.close_for(open, zero, count, 1, vec![]);
    }
}
