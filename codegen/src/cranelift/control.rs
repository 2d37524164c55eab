//! Statements: control flow, launches and the ends of functions.
use super::emitter::{Emitter, Refused, Slot, Sum, flags, scalar_argument};
use super::parts::Parts;
use cranelift::codegen::ir::{Block as ClifBlock, BlockArg};
use cranelift::prelude::{InstBuilder, IntCC, Value, types};
use numrsc_ir::kernel::{Axis, Block, Elem, FuncId, Kind, Stmt, Ty, V, context};

/// Whether control reaches the end.
type Reached = bool;

impl Emitter<'_> {
    pub(super) fn body(&mut self) -> Refused<()> {
        let function = self.function;
        if self.statements(&function.body)? {
            match function.kind {
                Kind::Entry | Kind::Kernel => {
                    let code = self.ins().iconst(types::I32, 0);
                    self.ins().return_(&[code]);
                }
                Kind::Helper => self.return_result(&function.body.results)?,
            }
        }
        Ok(())
    }

    fn return_result(&mut self, results: &[V]) -> Refused<()> {
        let parts = self.get(*results.first().ok_or("a helper without a result")?)?;
        let values = self.fixed(&parts);
        let Some(pointer) = self.result_pointer else {
            self.ins().return_(&values);
            return Ok(());
        };
        for (i, value) in (0..).zip(values) {
            self.ins().store(flags(), value, pointer, 16 * i);
        }
        self.ins().return_(&[]);
        Ok(())
    }

    /// Call a helper.
    pub(super) fn call(&mut self, helper: FuncId, args: &[V], ty: Ty) -> Refused<Parts> {
        let callee = self.function_ref(helper)?;
        let result = self.fixed_types(ty);
        let mut given = vec![];
        for &arg in args {
            let parts = self.get(arg)?;
            given.extend(self.fixed(&parts));
        }
        if result.len() == 1 {
            let call = self.ins().call(callee, &given);
            let value = self.first_result(call);
            return Ok(self.parts_of_fixed(ty, vec![value]));
        }
        let slot = self.slot(Slot::Result, 16 * result.len() as u32);
        let pointer = self.ins().stack_addr(types::I64, slot, 0);
        given.insert(0, pointer);
        self.ins().call(callee, &given);
        let values = (0..).zip(result).map(|(i, part)| self.ins().load(part, flags(), pointer, 16 * i)).collect();
        Ok(self.parts_of_fixed(ty, values))
    }

    fn statements(&mut self, block: &Block) -> Refused<Reached> {
        for stmt in &block.stmts {
            if !self.statement(stmt)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn statement(&mut self, stmt: &Stmt) -> Refused<Reached> {
        match stmt {
            Stmt::Let { out, inst } => self.define(*out, inst)?,
            Stmt::Store { ptr, index, value, mask } => self.store(*ptr, *index, *value, *mask)?,
            // There is no such instruction.
            Stmt::Prefetch { .. } => {}
            Stmt::For { axis: Axis::Block | Axis::Thread, .. } | Stmt::Barrier => return Err("it needs a GPU".into()),
            Stmt::For { axis, var, low, high, step, carried, body, outs } => {
                if *step <= 0 {
                    return Err(format!("a loop with the step {step}"));
                }
                match (axis, self.constant_of(*low), self.constant_of(*high)) {
                    (Axis::Unrolled, Some(low), Some(high)) => {
                        return self.unrolled(*var, (low, high, *step), carried, body, outs);
                    }
                    _ => self.counted(*var, (*low, *high, *step), carried, body, outs)?,
                }
            }
            Stmt::While { carried, cond, body, outs } => return self.repeated(carried, cond, body, outs),
            Stmt::If { cond, then, or, outs } => return self.branches(*cond, then, or, outs),
            Stmt::Fail { code } => {
                let code = self.ins().iconst(types::I32, i64::from(*code));
                self.ins().return_(&[code]);
                return Ok(false);
            }
            Stmt::Launch { kernel, args, extent, grain, .. } => self.launch(*kernel, args, *extent, *grain)?,
        }
        Ok(true)
    }

    /// The block arguments for these values.
    fn block_args(&mut self, values: impl IntoIterator<Item = V>) -> Refused<Vec<BlockArg>> {
        let mut args = vec![];
        for v in values {
            let parts = self.get(v)?;
            args.extend(self.fixed(&parts).into_iter().map(BlockArg::from));
        }
        Ok(args)
    }

    /// Adds block parameters for values of these types.
    fn block_params(&mut self, block: ClifBlock, names: &[V]) -> Vec<(V, Parts)> {
        let mut params = vec![];
        for &v in names {
            let ty = self.function.ty(v);
            let values = self.fixed_types(ty).into_iter().map(|t| self.b.append_block_param(block, t)).collect();
            params.push((v, self.parts_of_fixed(ty, values)));
        }
        params
    }

    fn set_all(&mut self, params: Vec<(V, Parts)>) {
        for (v, parts) in params {
            self.set(v, parts);
        }
    }

    /// Tests before the first round and at the end of each: one branch per round.
    fn counted(
        &mut self,
        var: V,
        (low, high, step): (V, V, i64),
        carried: &[(V, V)],
        body: &Block,
        outs: &[V],
    ) -> Refused<()> {
        let (round, done) = (self.b.create_block(), self.b.create_block());
        let (low, high) = (self.scalar(low)?, self.scalar(high)?);
        let i = self.b.append_block_param(round, types::I64);
        let inside: Vec<V> = carried.iter().map(|c| c.0).collect();
        let inside = self.block_params(round, &inside);
        let after = self.block_params(done, outs);

        let first = self.block_args(carried.iter().map(|c| c.1))?;
        let any = self.ins().icmp(IntCC::SignedLessThan, low, high);
        let entering: Vec<BlockArg> = std::iter::once(low.into()).chain(first.iter().copied()).collect();
        self.ins().brif(any, round, &entering, done, &first);

        self.b.switch_to_block(round);
        self.set(var, Parts::scalar(Elem::I64, i));
        self.set_all(inside);
        if self.statements(body)? {
            let last = self.block_args(body.results.iter().copied())?;
            let next = self.ins().iadd_imm_s(i, step);
            let more = self.ins().icmp(IntCC::SignedLessThan, next, high);
            let again: Vec<BlockArg> = std::iter::once(next.into()).chain(last.iter().copied()).collect();
            self.ins().brif(more, round, &again, done, &last);
        }

        self.b.switch_to_block(done);
        self.set_all(after);
        Ok(())
    }

    fn unrolled(
        &mut self,
        var: V,
        (low, high, step): (i64, i64, i64),
        carried: &[(V, V)],
        body: &Block,
        outs: &[V],
    ) -> Refused<Reached> {
        let mut state = carried.iter().map(|c| self.get(c.1)).collect::<Refused<Vec<_>>>()?;
        let mut i = low;
        while i < high {
            let value = self.ins().iconst(types::I64, i);
            self.set(var, Parts::scalar(Elem::I64, value));
            self.set_sum(var, Sum { base: None, offset: i });
            for ((inside, _), parts) in carried.iter().zip(state) {
                self.set(*inside, parts);
            }
            if !self.statements(body)? {
                return Ok(false);
            }
            state = body.results.iter().map(|&v| self.get(v)).collect::<Refused<Vec<_>>>()?;
            i = i.saturating_add(step);
        }
        for (out, parts) in outs.iter().zip(state) {
            self.set(*out, parts);
        }
        Ok(true)
    }

    fn repeated(&mut self, carried: &[(V, V)], cond: &Block, body: &Block, outs: &[V]) -> Refused<Reached> {
        let (test, round, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let inside: Vec<V> = carried.iter().map(|c| c.0).collect();
        let params = self.block_params(test, &inside);
        let first = self.block_args(carried.iter().map(|c| c.1))?;
        self.ins().jump(test, &first);

        self.b.switch_to_block(test);
        self.set_all(params);
        if !self.statements(cond)? {
            return Ok(false);
        }
        let go = self.scalar(*cond.results.first().ok_or("a loop without a condition")?)?;
        self.ins().brif(go, round, &[], done, &[]);

        self.b.switch_to_block(round);
        if self.statements(body)? {
            let next = self.block_args(body.results.iter().copied())?;
            self.ins().jump(test, &next);
        }

        // The test dominates what follows, so its parameters are the last values.
        self.b.switch_to_block(done);
        for (out, v) in outs.iter().zip(inside) {
            let parts = self.get(v)?;
            self.set(*out, parts);
        }
        Ok(true)
    }

    fn branches(&mut self, cond: V, then: &Block, or: &Block, outs: &[V]) -> Refused<Reached> {
        let cond = self.scalar(cond)?;
        let done = self.b.create_block();
        let after = self.block_params(done, outs);
        let arms = [then, or].map(|arm| {
            // An empty arm needs no block.
            if arm.stmts.is_empty() && outs.is_empty() { done } else { self.b.create_block() }
        });
        self.ins().brif(cond, arms[0], &[], arms[1], &[]);
        let mut reached = arms.contains(&done);
        for (block, arm) in arms.into_iter().zip([then, or]).filter(|(block, _)| *block != done) {
            if matches!(arm.stmts.last(), Some(Stmt::Fail { .. })) {
                self.b.set_cold_block(block);
            }
            self.b.switch_to_block(block);
            if self.statements(arm)? {
                let results = self.block_args(arm.results.iter().copied())?;
                self.ins().jump(done, &results);
                reached = true;
            }
        }
        if reached {
            self.b.switch_to_block(done);
            self.set_all(after);
        }
        Ok(reached)
    }

    /// Runs a kernel over a range: directly if it is short or there is one thread, else through the run context.
    fn launch(&mut self, kernel: FuncId, args: &[V], extent: V, grain: V) -> Refused<()> {
        let ctx = self.context.ok_or("only the entry launches kernels")?;
        let (known_extent, known_grain) = (self.constant_of(extent), self.constant_of(grain));
        if known_extent.is_some_and(|n| n <= 0) {
            return Ok(());
        }
        let next = self.b.create_block();
        let (extent, grain) = (self.sum(extent)?, self.sum(grain)?);
        let (extent, grain) = (self.sum_value(extent), self.sum_value(grain));
        if known_extent.is_none() {
            let run = self.b.create_block();
            let any = self.ins().icmp_imm_s(IntCC::SignedGreaterThan, extent, 0);
            self.ins().brif(any, run, &[], next, &[]);
            self.b.switch_to_block(run);
        }

        let slot = self.slot(Slot::Arguments, 8 * args.len().max(1) as u32);
        for (i, &arg) in (0..).zip(args) {
            let ty = scalar_argument(self.function, arg)?;
            let value = if matches!(ty.elem, Elem::I64 | Elem::Ptr) {
                let sum = self.sum(arg)?;
                self.sum_value(sum)
            } else {
                self.scalar(arg)?
            };
            self.ins().stack_store(types::I64, value, slot, 8 * i);
        }
        let slots = self.ins().stack_addr(types::I64, slot, 0);
        let callee = self.function_ref(kernel)?;

        let long = match (known_extent, known_grain) {
            (Some(extent), Some(grain)) => Some(extent > grain),
            _ => None,
        };
        if long != Some(false) {
            let (together, alone) = (self.b.create_block(), self.b.create_block());
            let threads = self.ins().load(types::I64, flags(), ctx, 8 * context::THREADS as i32);
            let mut split = self.ins().icmp_imm_s(IntCC::SignedGreaterThan, threads, 1);
            if long.is_none() {
                let long = self.ins().icmp(IntCC::SignedGreaterThan, extent, grain);
                split = self.ins().band(split, long);
            }
            self.ins().brif(split, together, &[], alone, &[]);

            self.b.switch_to_block(together);
            let address = self.ins().func_addr(types::I64, callee);
            let parallel = self.ins().load(types::I64, flags(), ctx, 8 * context::FN_PARALLEL as i32);
            let code = self.call_pointer(parallel, &[ctx, address, slots, extent, grain], types::I32);
            self.continue_unless_failed(code, next);
            self.b.switch_to_block(alone);
        }
        let zero = self.ins().iconst(types::I64, 0);
        let call = self.ins().call(callee, &[slots, zero, extent, zero]);
        let code = self.first_result(call);
        self.continue_unless_failed(code, next);
        self.b.switch_to_block(next);
        Ok(())
    }

    /// Each launch returns by itself: a shared exit block would have thousands of predecessors, and finding its
    /// dominator would take quadratic time.
    fn continue_unless_failed(&mut self, code: Value, next: ClifBlock) {
        let failing = self.b.create_block();
        self.b.set_cold_block(failing);
        self.ins().brif(code, failing, &[], next, &[]);
        self.b.switch_to_block(failing);
        self.ins().return_(&[code]);
    }
}
