//! Emits checks of what type rules could not prove about sizes, before a node runs, so that no kernel leaves its
//! buffers.
use crate::entry::{Entry, Frame};
use numrsc_facts::Result;
use numrsc_ir::{
    Dim, Op, TensorType, Type, Value,
    kernel::{Compare, V},
};
use numrsc_scalar as scalar;

impl Entry {
    #[allow(clippy::wildcard_enum_match_arm, reason = "what is no tensor is a sequence or a tuple")]
    pub(super) fn check(&mut self, frame: &mut Frame<'_>, v: Value) -> Result<()> {
        let func = frame.scope.func;
        let node = func.node(v);
        let shape = |i: usize| match func.ty(node.args[i]) {
            Type::Tensor(t) => t.shape.clone(),
            _ => vec![],
        };
        match &node.op {
            Op::Param { .. } | Op::If { .. } | Op::Loop { .. } | Op::Get { .. } => return Ok(()),
            // Where it is used, it is computed without checks.
            Op::Size { dim } if !self.bounds.fits(dim) => drop(self.size(&mut frame.sizes, dim)?),
            Op::Map { .. } => {
                let first = shape(0);
                for i in 1..node.args.len() {
                    for (x, y) in first.iter().zip(shape(i)) {
                        self.equal(frame, x, &y, "the sizes of the operands differ")?;
                    }
                }
            }
            Op::Reshape { shape: to } => {
                let (from, to) = (Dim::product(&shape(0)), Dim::product(to));
                self.equal(frame, &from, &to, "the number of elements differs")?;
            }
            Op::Broadcast { shape: to, axes } => {
                for (x, &a) in shape(0).iter().zip(axes) {
                    let y = &to[a as usize];
                    if *x != Dim::ONE && x != y {
                        let (x, y) = (self.size(&mut frame.sizes, x)?, self.size(&mut frame.sizes, y)?);
                        let one = self.b.i64(1);
                        let (is_one, same) = (self.b.compare(Compare::Eq, x, one), self.b.compare(Compare::Eq, x, y));
                        let fits = self.b.or(is_one, same);
                        self.demand(fits, "a size does not broadcast");
                    }
                }
            }
            Op::Slice { starts, sizes, steps } => {
                for (((n, start), size), &step) in shape(0).iter().zip(starts).zip(sizes).zip(steps) {
                    self.slice_inside(frame, n, start, size, step)?;
                }
            }
            Op::Concat { axis } => {
                let first = shape(0);
                for i in 1..node.args.len() {
                    for (a, (x, y)) in first.iter().zip(shape(i)).enumerate() {
                        if a as i64 != *axis {
                            self.equal(frame, x, &y, "the sizes of the parts differ")?;
                        }
                    }
                }
            }
            Op::Gather { batch, .. } => {
                for (x, y) in shape(0).iter().zip(shape(1)).take(*batch as usize) {
                    self.equal(frame, x, &y, "the shared sizes differ")?;
                }
            }
            Op::Scatter { .. } => {
                let (x, indices, updates) = (shape(0), shape(1), shape(2));
                self.equal(frame, &indices[0], &updates[0], "there are not as many updates as indices")?;
                for (x, y) in x[1..].iter().zip(&updates[1..]) {
                    self.equal(frame, x, y, "the sizes of rows and updates differ")?;
                }
            }
            Op::Arg { axis, .. } => {
                let (n, out) = (
                    shape(0)[*axis as usize].clone(),
                    Dim::product(func.ty(v).as_tensor().map_or(&[][..], |t| &t.shape)),
                );
                let (n, out) = (self.size(&mut frame.sizes, &n)?, self.size(&mut frame.sizes, &out)?);
                let zero = self.b.i64(0);
                let (some, none) = (self.b.compare(Compare::Ne, n, zero), self.b.compare(Compare::Eq, out, zero));
                let fits = self.b.or(some, none);
                self.demand(fits, "an axis has no elements to choose from");
            }
            Op::Contract { a_batch, b_batch, a_sum, b_sum } => {
                let (a, b) = (shape(0), shape(1));
                for (&x, &y) in a_batch.iter().chain(a_sum).zip(b_batch.iter().chain(b_sum)) {
                    self.equal(frame, &a[x as usize], &b[y as usize], "the sizes of paired axes differ")?;
                }
            }
            Op::Conv { groups, in_block, .. } => {
                let (x, w) = (shape(0), shape(1));
                let channels = &w[1] * &Dim::Const(*groups);
                self.equal(
                    frame,
                    &(&x[1] * &Dim::Const(*in_block)),
                    &channels,
                    "the channels of operand and weights differ",
                )?;
                let rest = w[0].modulo(&Dim::Const(*groups));
                self.equal(frame, &rest, &Dim::ZERO, "the output channels do not divide into the groups")?;
            }
            Op::Const { .. }
            | Op::Iota { .. }
            | Op::Size { .. }
            | Op::Bind { .. }
            | Op::Transpose { .. }
            | Op::Pad { .. }
            | Op::Reduce { .. }
            | Op::Scan { .. }
            | Op::ArgSort { .. }
            | Op::Compress { .. }
            | Op::Window { .. }
            | Op::SeqMake { .. }
            | Op::SeqLen {}
            | Op::SeqAt { .. }
            | Op::SeqInsert { .. }
            | Op::SeqErase {} => {}
        }
        if let Type::Tensor(t) = func.ty(v) {
            for d in &t.shape {
                self.require_size(&mut frame.sizes, d)?;
            }
            // These give what is in memory, in sizes that they define.
            if !matches!(node.op, Op::Compress { .. } | Op::SeqAt { .. }) {
                self.require_count(frame, t)?;
            }
        }
        Ok(())
    }

    /// The bytes of a tensor are a number, also where nothing stores it: kernels compute places in it.
    fn require_count(&mut self, frame: &mut Frame<'_>, t: &TensorType) -> Result<()> {
        if t.shape.iter().all(|d| d.as_const().is_some()) {
            return Ok(());
        }
        let bytes = &Dim::product(&t.shape) * &Dim::Const(scalar::memory(t.dtype).size());
        if !self.bounds.fits(&bytes) {
            self.size(&mut frame.sizes, &bytes)?;
        }
        Ok(())
    }

    fn equal(&mut self, frame: &mut Frame<'_>, x: &Dim, y: &Dim, what: &str) -> Result<()> {
        self.require_equal(&mut frame.sizes, x, y, what)
    }

    pub(super) fn demand(&mut self, cond: V, what: &str) {
        let code = self.state.message(what);
        self.b.check(cond, code);
    }

    /// The first and the last element of a slice lie inside, if there are any.
    fn slice_inside(&mut self, frame: &mut Frame<'_>, n: &Dim, start: &Dim, size: &Dim, step: i64) -> Result<()> {
        if *start == Dim::ZERO && size == n && step == 1 {
            return Ok(());
        }
        let last = &(start + &(size * &Dim::Const(step))) - &Dim::Const(step);
        let (n, size) = (self.size(&mut frame.sizes, n)?, self.size(&mut frame.sizes, size)?);
        let (start, last) = (self.size(&mut frame.sizes, start)?, self.size(&mut frame.sizes, &last)?);
        let (first_inside, last_inside) =
            (self.b.compare(Compare::ULt, start, n), self.b.compare(Compare::ULt, last, n));
        let inside = self.b.and(first_inside, last_inside);
        let zero = self.b.i64(0);
        let none = self.b.compare(Compare::Le, size, zero);
        let fits = self.b.or(inside, none);
        self.demand(fits, "a slice leaves its axis");
        Ok(())
    }
}
