//! Threads that meet barriers. All rounds of the axis go through the statements together: one that holds no barrier is
//! run by each thread in turn, and of one that does, every thread has to take the same way.
use super::{Call, Frame, Machine, Step};
use crate::kernel::{Axis, Block, Stmt, V};

/// More threads than any block has.
const MAX_THREADS: usize = 4096;

pub(super) fn has_barrier(block: &Block) -> bool {
    block.stmts.iter().any(|stmt| match stmt {
        Stmt::Barrier => true,
        Stmt::For { body, .. } => has_barrier(body),
        Stmt::While { cond: a, body: b, .. } | Stmt::If { then: a, or: b, .. } => has_barrier(a) || has_barrier(b),
        Stmt::Let { .. } | Stmt::Store { .. } | Stmt::Prefetch { .. } | Stmt::Fail { .. } | Stmt::Launch { .. } => {
            false
        }
    })
}

impl<'m> Machine<'m> {
    /// Run one statement for several threads, of which each has a frame.
    pub(super) fn together(&mut self, call: &mut Call<'m>, frames: &mut [Frame], stmt: &'m Stmt) -> Step {
        match stmt {
            Stmt::For { axis: Axis::Thread, var, low, high, step, body, .. } if has_barrier(body) => {
                let mut threads = Vec::new();
                for frame in &*frames {
                    let mut i = call.scalar(frame, *low) as i64;
                    while i < call.scalar(frame, *high) as i64 {
                        if threads.len() == MAX_THREADS {
                            return Err(call.trap(format_args!("for {var}"), "too many threads"));
                        }
                        let mut thread = frame.clone();
                        thread.slots[call.start(*var)] = i as u64;
                        threads.push(thread);
                        i = call.next_round(*var, i, *step)?;
                    }
                }
                self.block_together(call, &mut threads, body)
            }
            Stmt::For { var, low, high, step, carried, body, outs, .. } if has_barrier(body) => {
                let mut i = same(call, frames, *low)? as i64;
                let high = same(call, frames, *high)? as i64;
                self.copy_each(call, frames, &carried.iter().map(|c| (c.1, c.0)));
                while i < high {
                    self.burn(call)?;
                    frames.iter_mut().for_each(|f| f.slots[call.start(*var)] = i as u64);
                    self.block_together(call, frames, body)?;
                    self.copy_each(call, frames, &body.results.iter().zip(carried).map(|(next, c)| (*next, c.0)));
                    i = call.next_round(*var, i, *step)?;
                }
                self.copy_each(call, frames, &carried.iter().zip(outs).map(|(c, out)| (c.0, *out)));
                Ok(())
            }
            Stmt::While { carried, cond, body, outs } if has_barrier(cond) || has_barrier(body) => {
                self.copy_each(call, frames, &carried.iter().map(|c| (c.1, c.0)));
                loop {
                    self.burn(call)?;
                    self.block_together(call, frames, cond)?;
                    if same(call, frames, cond.results[0])? == 0 {
                        break;
                    }
                    self.block_together(call, frames, body)?;
                    self.copy_each(call, frames, &body.results.iter().zip(carried).map(|(next, c)| (*next, c.0)));
                }
                self.copy_each(call, frames, &carried.iter().zip(outs).map(|(c, out)| (c.0, *out)));
                Ok(())
            }
            Stmt::If { cond, then, or, outs } if has_barrier(then) || has_barrier(or) => {
                let taken = if same(call, frames, *cond)? == 0 { or } else { then };
                self.block_together(call, frames, taken)?;
                self.copy_each(call, frames, &taken.results.iter().copied().zip(outs.iter().copied()));
                Ok(())
            }
            _ => frames.iter_mut().try_for_each(|frame| self.stmt(call, frame, stmt)),
        }
    }

    fn block_together(&mut self, call: &mut Call<'m>, frames: &mut [Frame], block: &'m Block) -> Step {
        self.enter(call)?;
        for stmt in &block.stmts {
            self.together(call, frames, stmt)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn copy_each(&mut self, call: &Call<'_>, frames: &mut [Frame], pairs: &(impl Iterator<Item = (V, V)> + Clone)) {
        frames.iter_mut().for_each(|frame| self.copy(call, frame, pairs.clone()));
    }
}

/// The value that a scalar has in every thread.
fn same(call: &Call<'_>, frames: &[Frame], v: V) -> Step<u64> {
    let mut values = frames.iter().map(|frame| call.scalar(frame, v));
    let first = values.next().unwrap_or(0);
    if values.all(|x| x == first) {
        Ok(first)
    } else {
        Err(call.trap("barrier", format!("threads part at {v}, which decides whether they come here")))
    }
}
