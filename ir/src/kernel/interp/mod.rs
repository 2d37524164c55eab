//! A slow and safe interpreter of the kernel IR, to test what makes kernels and what compiles them.
//!
//! It follows the IR to the letter: what the IR forbids or leaves open (memory out of bounds, division by zero, a shift by the
//! width) is a [`Trap`], never a number. Parts of a launch run one after the other; so do the rounds of the axes `block`
//! and `thread`, where those of `thread` go together from barrier to barrier.
mod lane;
mod lockstep;
mod memory;
pub mod run;
#[cfg(test)]
mod tests;

use super::{Axis, Block, Elem, FuncId, Function, Host, Inst, Kind, Module, Stmt, Ty, V, print::symbol, verify};
use crate::Result;
pub use memory::Pointer;
use memory::{Memory, Use};
use std::{fmt, rc::Rc};

/// What went wrong, and in which statement of which function.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}{message}")]
pub struct Trap {
    /// `@relu %7 (load): `, or nothing for what the program did not do.
    pub place: String,
    pub message: String,
}

impl From<String> for Trap {
    fn from(message: String) -> Trap {
        Trap { place: String::new(), message }
    }
}

/// A module with memory to run in.
#[derive(Debug)]
pub struct Machine<'m> {
    /// How many statements and rounds of loops may still run.
    pub fuel: u64,
    /// Worker numbers are below this.
    pub threads: u32,
    /// Into how many parts a launch is split, unless the grain makes them fewer.
    pub parts: u32,
    module: &'m Module,
    layouts: Vec<Rc<Layout>>,
    memory: Memory,
    arena: Option<Pointer>,
    depth: usize,
    /// For copying carried values all at once.
    scratch: Vec<u64>,
}

const FUEL: u64 = 1 << 30;
/// Blocks and calls inside each other.
const MAX_DEPTH: usize = 600;

/// Where in the slots of a frame each value has its lanes.
#[derive(Debug)]
struct Layout {
    starts: Vec<usize>,
    size: usize,
}

/// A function that runs.
#[derive(Debug)]
struct Call<'m> {
    function: &'m Function,
    layout: Rc<Layout>,
    /// Buffers that all threads see, and all buffers that end with the call.
    shared: Vec<(V, Pointer)>,
    buffers: Vec<Pointer>,
}

/// The values of a call, or of one of its threads.
#[derive(Clone, Debug)]
struct Frame {
    slots: Vec<u64>,
    private: Vec<(V, Pointer)>,
}

/// Why a block does not go on.
enum Stop {
    Fail(u32),
    Trap(Trap),
}

type Step<T = ()> = Result<T, Stop>;

impl<'m> Machine<'m> {
    /// Refuses a module that breaks the rules.
    pub fn new(module: &'m Module) -> Result<Machine<'m>> {
        verify(module)?;
        Ok(Machine {
            fuel: FUEL,
            threads: 1,
            parts: 1,
            module,
            layouts: module.functions.iter().map(|f| Rc::new(Layout::new(f))).collect(),
            memory: Memory::new(),
            arena: None,
            depth: 0,
            scratch: vec![],
        })
    }

    /// New memory, all 0 and aligned to whatever is needed.
    pub fn alloc(&mut self, bytes: usize) -> Result<Pointer, Trap> {
        Ok(self.memory.alloc(bytes, Use::Write)?)
    }

    /// New memory that the program may only read.
    pub fn alloc_fixed(&mut self, bytes: &[u8]) -> Result<Pointer, Trap> {
        Ok(self.memory.alloc_with(bytes, Use::Read)?)
    }

    pub fn write(&mut self, at: Pointer, bytes: &[u8]) -> Result<(), Trap> {
        Ok(self.memory.write(at, bytes)?)
    }

    pub fn read(&self, at: Pointer, bytes: usize) -> Result<Vec<u8>, Trap> {
        Ok(self.memory.read(at, bytes)?.to_vec())
    }

    /// The slot of 8 bytes that many slots further.
    pub fn slot(&self, at: Pointer, slot: i64) -> Result<u64, Trap> {
        Ok(self.memory.load(at.offset(slot * 8), 8)?)
    }

    /// Run an entry; gives the code it failed with, or 0.
    pub fn run_entry(&mut self, entry: FuncId, ctx: Pointer) -> Result<i32, Trap> {
        self.run(entry, Kind::Entry, &[&[ctx.0]]).map(|(code, _)| code)
    }

    /// Run part of a kernel; gives the code it failed with, or 0. `args` are the bits of its own parameters.
    pub fn run_kernel(&mut self, kernel: FuncId, begin: i64, end: i64, worker: i64, args: &[u64]) -> Result<i32, Trap> {
        let range = [begin as u64, end as u64, worker as u64];
        let values: Vec<&[u64]> = range.iter().chain(args).map(std::slice::from_ref).collect();
        self.run(kernel, Kind::Kernel, &values).map(|(code, _)| code)
    }

    /// The lanes of a helper's result, from the lanes of its arguments.
    pub fn run_helper(&mut self, helper: FuncId, args: &[&[u64]]) -> Result<Vec<u64>, Trap> {
        self.run(helper, Kind::Helper, args).map(|(_, result)| result)
    }

    fn run(&mut self, id: FuncId, kind: Kind, args: &[&[u64]]) -> Result<(i32, Vec<u64>), Trap> {
        let function = self.module.functions.get(id.0 as usize).filter(|f| f.kind == kind);
        let Some(function) = function else {
            return Err(format!("function #{} is not a {kind:?}", id.0).into());
        };
        let fits = |(v, lanes): (&V, &&[u64])| {
            let ty = function.ty(*v);
            lanes.len() == ty.lanes as usize && lanes.iter().all(|x| ty.elem.bits() == 64 || x >> ty.elem.bits() == 0)
        };
        if args.len() != function.params.len() || !function.params.iter().zip(args).all(fits) {
            return Err(format!("the arguments do not fit the parameters of {}", symbol(&function.name)).into());
        }
        self.depth = 0;
        match self.call(id, args) {
            Ok(result) => Ok((0, result)),
            Err(Stop::Fail(code)) => Ok((code as i32, vec![])),
            Err(Stop::Trap(trap)) => Err(trap),
        }
    }

    /// Gives the lanes of what the function yields.
    fn call(&mut self, id: FuncId, args: &[&[u64]]) -> Step<Vec<u64>> {
        let function = &self.module.functions[id.0 as usize];
        let layout = self.layouts[id.0 as usize].clone();
        let mut frame = Frame { slots: vec![0; layout.size], private: vec![] };
        for (v, lanes) in function.params.iter().zip(args) {
            let start = layout.starts[v.0 as usize];
            frame.slots[start..start + lanes.len()].copy_from_slice(lanes);
        }
        let mut call = Call { function, layout, shared: vec![], buffers: vec![] };
        let ended = self.block(&mut call, &mut frame, &function.body);
        for &buffer in &call.buffers {
            self.memory.free(buffer, Use::Write).map_err(|m| call.trap("buffer", m))?;
        }
        ended?;
        Ok(function.body.results.first().map_or(vec![], |v| call.lanes(&frame, *v).to_vec()))
    }

    fn block(&mut self, call: &mut Call<'m>, frame: &mut Frame, block: &'m Block) -> Step {
        self.enter(call)?;
        for stmt in &block.stmts {
            self.stmt(call, frame, stmt)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn enter(&mut self, call: &Call<'_>) -> Step {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            Err(call.trap("block", "too many blocks and calls inside each other"))
        } else {
            Ok(())
        }
    }

    fn burn(&mut self, call: &Call<'_>) -> Step {
        match self.fuel.checked_sub(1) {
            Some(left) => {
                self.fuel = left;
                Ok(())
            }
            None => Err(call.trap("statement", "out of fuel: this may never end")),
        }
    }

    fn stmt(&mut self, call: &mut Call<'m>, frame: &mut Frame, stmt: &'m Stmt) -> Step {
        self.burn(call)?;
        match stmt {
            Stmt::Let { out, inst: Inst::Call(helper, args) } => {
                let lanes: Vec<&[u64]> = args.iter().map(|v| call.lanes(frame, *v)).collect();
                self.enter(call)?;
                let result = self.call(*helper, &lanes)?;
                self.depth -= 1;
                let start = call.start(*out);
                frame.slots[start..start + result.len()].copy_from_slice(&result);
                Ok(())
            }
            Stmt::Let { out, inst } => {
                self.inst(call, frame, *out, inst).map_err(|m| call.trap(format_args!("{out} ({})", inst.word()), m))
            }
            Stmt::Store { ptr, index, value, mask } => self
                .store(call, frame, (*ptr, *index), *value, *mask)
                .map_err(|m| call.trap(format_args!("store {ptr}[{index}], {value}"), m)),
            Stmt::For { axis: Axis::Thread, body, .. } if lockstep::has_barrier(body) => {
                self.together(call, std::slice::from_mut(frame), stmt)
            }
            Stmt::For { var, low, high, step, carried, body, outs, .. } => {
                let high = call.scalar(frame, *high) as i64;
                let mut i = call.scalar(frame, *low) as i64;
                self.copy(call, frame, carried.iter().map(|c| (c.1, c.0)));
                while i < high {
                    self.burn(call)?;
                    frame.slots[call.start(*var)] = i as u64;
                    self.block(call, frame, body)?;
                    self.copy(call, frame, body.results.iter().zip(carried).map(|(next, c)| (*next, c.0)));
                    i = call.next_round(*var, i, *step)?;
                }
                self.copy(call, frame, carried.iter().zip(outs).map(|(c, out)| (c.0, *out)));
                Ok(())
            }
            Stmt::While { carried, cond, body, outs } => {
                self.copy(call, frame, carried.iter().map(|c| (c.1, c.0)));
                loop {
                    self.burn(call)?;
                    self.block(call, frame, cond)?;
                    if call.scalar(frame, cond.results[0]) == 0 {
                        break;
                    }
                    self.block(call, frame, body)?;
                    self.copy(call, frame, body.results.iter().zip(carried).map(|(next, c)| (*next, c.0)));
                }
                self.copy(call, frame, carried.iter().zip(outs).map(|(c, out)| (c.0, *out)));
                Ok(())
            }
            Stmt::If { cond, then, or, outs } => {
                let taken = if call.scalar(frame, *cond) == 0 { or } else { then };
                self.block(call, frame, taken)?;
                self.copy(call, frame, taken.results.iter().copied().zip(outs.iter().copied()));
                Ok(())
            }
            Stmt::Fail { code } => Err(Stop::Fail(*code)),
            Stmt::Launch { kernel, args, extent, grain, .. } => {
                let args: Vec<u64> = args.iter().map(|v| call.scalar(frame, *v)).collect();
                let (extent, grain) = (call.scalar(frame, *extent) as i64, call.scalar(frame, *grain) as i64);
                if extent < 0 || grain < 1 {
                    return Err(call.trap("launch", format!("over 0..{extent} in parts of at least {grain}")));
                }
                self.launch(*kernel, &args, extent as u64, grain as u64)
            }
            // Rounds of a thread axis that meet barriers run together; elsewhere there is one thread only.
            Stmt::Barrier | Stmt::Prefetch { .. } => Ok(()),
        }
    }

    fn launch(&mut self, kernel: FuncId, args: &[u64], extent: u64, grain: u64) -> Step {
        let part = extent.div_ceil(u64::from(self.parts.max(1))).max(grain);
        let (mut begin, mut worker) = (0, 0);
        while begin < extent {
            let end = begin.saturating_add(part).min(extent);
            let range = [begin, end, worker];
            let values: Vec<&[u64]> = range.iter().chain(args).map(std::slice::from_ref).collect();
            self.call(kernel, &values)?;
            begin = end;
            worker = (worker + 1) % u64::from(self.threads.max(1));
        }
        Ok(())
    }

    /// Copy values to others, reading all before writing any.
    fn copy(&mut self, call: &Call<'_>, frame: &mut Frame, pairs: impl Iterator<Item = (V, V)> + Clone) {
        self.scratch.clear();
        for (from, _) in pairs.clone() {
            self.scratch.extend_from_slice(call.lanes(frame, from));
        }
        let mut rest = &self.scratch[..];
        for (_, to) in pairs {
            let start = call.start(to);
            let (lanes, others) = rest.split_at(call.function.ty(to).lanes as usize);
            frame.slots[start..start + lanes.len()].copy_from_slice(lanes);
            rest = others;
        }
    }

    fn store(
        &mut self,
        call: &Call<'_>,
        frame: &Frame,
        (ptr, index): (V, V),
        value: V,
        mask: Option<V>,
    ) -> Result<(), String> {
        let elem = call.function.ty(value).elem;
        let place = place(call, frame, ptr, index, elem);
        let mask = mask.map(|m| call.lanes(frame, m));
        for (i, &bits) in call.lanes(frame, value).iter().enumerate() {
            if mask.is_none_or(|m| m[i] != 0) {
                self.memory.store(place.offset(i as i64 * elem.size()), elem.size() as usize, bits)?;
            }
        }
        Ok(())
    }

    fn inst(&mut self, call: &mut Call<'m>, frame: &mut Frame, out: V, inst: &Inst) -> Result<(), String> {
        let ty @ Ty { elem, lanes } = call.function.ty(out);
        let (to, lanes) = (call.start(out), lanes as usize);
        let at = |v: &V| call.layout.starts[v.0 as usize];
        let from = |v: &V| call.function.ty(*v).elem;
        let slots = &mut frame.slots;
        match inst {
            Inst::Const(bits) => slots[to..to + lanes].fill(*bits),
            Inst::Unary(op, a) => {
                let a = at(a);
                (0..lanes).for_each(|i| slots[to + i] = lane::unary(*op, elem, slots[a + i]));
            }
            Inst::Binary(op, a, b) => {
                let (a, b) = (at(a), at(b));
                for i in 0..lanes {
                    slots[to + i] = lane::binary(*op, elem, slots[a + i], slots[b + i])?;
                }
            }
            Inst::MulAdd(a, b, c) => {
                let (a, b, c) = (at(a), at(b), at(c));
                (0..lanes).for_each(|i| slots[to + i] = lane::muladd(elem, slots[a + i], slots[b + i], slots[c + i]));
            }
            Inst::Dot4(a, b, c) => {
                let (a, b, c) = (at(a), at(b), at(c));
                for i in 0..lanes {
                    let products =
                        (4 * i..4 * i + 4).map(|n| i32::from(slots[a + n] as u8) * i32::from(slots[b + n] as i8));
                    slots[to + i] = u64::from((slots[c + i] as u32).wrapping_add(products.sum::<i32>() as u32));
                }
            }
            Inst::Compare(op, a, b) => {
                let (elem, a, b) = (from(a), at(a), at(b));
                (0..lanes)
                    .for_each(|i| slots[to + i] = u64::from(lane::compare(*op, elem, slots[a + i], slots[b + i])));
            }
            Inst::Select(cond, a, b) => {
                let (cond, a, b) = (at(cond), at(a), at(b));
                (0..lanes).for_each(|i| slots[to + i] = slots[i + if slots[cond + i] == 0 { b } else { a }]);
            }
            Inst::Convert(op, a) => {
                let (source, a) = (from(a), at(a));
                (0..lanes).for_each(|i| slots[to + i] = lane::convert(*op, source, elem, slots[a + i]));
            }
            Inst::Splat(a) => {
                let bits = slots[at(a)];
                slots[to..to + lanes].fill(bits);
            }
            Inst::Extract(a, lane) => slots[to] = slots[at(a) + *lane as usize],
            Inst::Insert(a, b, lane) => {
                slots.copy_within(at(a)..at(a) + lanes, to);
                slots[to + *lane as usize] = slots[at(b)];
            }
            Inst::Shuffle(a, b, order) => {
                let (count, a, b) = (call.function.ty(*a).lanes as usize, at(a), at(b));
                for (i, &lane) in order.iter().enumerate() {
                    let lane = lane as usize;
                    slots[to + i] = slots[if lane < count { a + lane } else { b + lane - count }];
                }
            }
            Inst::Reduce(op, a) => {
                let mut left = call.lanes(frame, *a).to_vec();
                while left.len() > 1 {
                    let (low, high) = left.split_at(left.len() / 2);
                    left =
                        low.iter().zip(high).map(|(x, y)| lane::binary(*op, elem, *x, *y)).collect::<Result<_, _>>()?;
                }
                frame.slots[to] = left[0];
            }
            Inst::Iota => (0..lanes).for_each(|i| slots[to + i] = lane::number(elem, i as u32)),
            Inst::Load { ptr, index, mask } => {
                let place = place(call, frame, *ptr, *index, elem);
                for i in 0..lanes {
                    let set = mask.is_none_or(|m| call.lanes(frame, m)[i] != 0);
                    let address = place.offset(i as i64 * elem.size());
                    frame.slots[to + i] = if set { self.memory.load(address, elem.size() as usize)? } else { 0 };
                }
            }
            Inst::Offset(ptr, bytes) => slots[to] = slots[at(ptr)].wrapping_add(slots[at(bytes)]),
            Inst::Buffer { elem, count, shared } => {
                let bytes = elem.size() as usize * *count as usize;
                frame.slots[to] = self.buffer(call, frame, out, bytes, *shared)?.0;
            }
            Inst::Host(host, args) => {
                let arg = slots[at(&args[1])];
                slots[to] = self.host(*host, arg)?.0;
            }
            Inst::Call(..) => return Err(format!("{ty} from a call within a statement")),
        }
        Ok(())
    }

    /// The same buffer whenever the call, or its thread, comes here.
    fn buffer(
        &mut self,
        call: &mut Call<'m>,
        frame: &mut Frame,
        v: V,
        bytes: usize,
        shared: bool,
    ) -> Result<Pointer, String> {
        let known = if shared { &mut call.shared } else { &mut frame.private };
        if let Some((_, pointer)) = known.iter().find(|b| b.0 == v) {
            return Ok(*pointer);
        }
        let pointer = self.memory.alloc(bytes, Use::Write)?;
        known.push((v, pointer));
        call.buffers.push(pointer);
        Ok(pointer)
    }

    /// A function of the run context, with its second argument.
    fn host(&mut self, host: Host, arg: u64) -> Result<Pointer, String> {
        if host == Host::Free {
            return self.memory.free(Pointer(arg), Use::Own).map(|()| Pointer::NULL);
        }
        // A runtime takes a size for unsigned, and has no memory for one that large.
        let bytes = usize::try_from(arg).unwrap_or(usize::MAX);
        Ok(match (host, self.arena) {
            (Host::Arena, Some(arena)) => self.memory.grow(arena, bytes).map_or(Pointer::NULL, |()| arena),
            (Host::Arena, None) => {
                self.arena = self.memory.alloc(bytes, Use::Write).ok();
                self.arena.unwrap_or(Pointer::NULL)
            }
            _ => self.memory.alloc(bytes, Use::Own).unwrap_or(Pointer::NULL),
        })
    }
}

/// Where `ptr[index]` is.
fn place(call: &Call<'_>, frame: &Frame, ptr: V, index: V, elem: Elem) -> Pointer {
    let index = call.scalar(frame, index) as i64;
    Pointer(call.scalar(frame, ptr)).offset(index.wrapping_mul(elem.size()))
}

impl Layout {
    fn new(function: &Function) -> Layout {
        let mut size = 0;
        let mut starts = Vec::with_capacity(function.types.len());
        for ty in &function.types {
            starts.push(size);
            size += ty.lanes as usize;
        }
        Layout { starts, size }
    }
}

impl Call<'_> {
    fn start(&self, v: V) -> usize {
        self.layout.starts[v.0 as usize]
    }

    fn lanes<'f>(&self, frame: &'f Frame, v: V) -> &'f [u64] {
        let start = self.start(v);
        &frame.slots[start..start + self.function.ty(v).lanes as usize]
    }

    fn scalar(&self, frame: &Frame, v: V) -> u64 {
        frame.slots[self.start(v)]
    }

    fn next_round(&self, var: V, i: i64, step: i64) -> Step<i64> {
        i.checked_add(step).ok_or_else(|| self.trap(format_args!("for {var}"), "the variable overflows"))
    }

    fn trap(&self, what: impl fmt::Display, message: impl Into<String>) -> Stop {
        Stop::Trap(Trap { place: format!("{} {what}: ", symbol(&self.function.name)), message: message.into() })
    }
}
