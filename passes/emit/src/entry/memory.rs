//! The memory of a run: one arena whose layout is planned over all launches, and blocks for sizes that only the run
//! knows.
use crate::{
    arg::Arg,
    entry::{
        Entry, Frame, ResultTarget, Slot,
        packing::{self, Lifetime, supports},
        sizes::Sizes,
    },
    pointwise::Pointwise,
};
use numrsc_facts::Result;
use numrsc_ir::{
    Dim, Type, Value,
    dim::Sym,
    kernel::{Binary, Compare, Convert, Elem, Host, Ty, V, build::Builder, context},
};
use numrsc_scalar as scalar;
use numrsc_schedule::fuse::Buffer;
use std::collections::HashMap;

/// Every buffer starts at a multiple of this.
const ALIGN: i64 = 64;
/// The assumed value of an unknown size, for the order of buffers.
const TYPICAL: i64 = 64;

/// Who owns the memory of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Memory {
    /// The caller, for the whole run.
    Outside,
    Arena(usize),
    /// A block that is given back after the last use.
    Heap,
    Output(usize),
    /// A place that the caller of the function gave for a result.
    Given(V),
}

impl Memory {
    pub(super) fn is_for(self, target: ResultTarget) -> bool {
        match target {
            ResultTarget::At(pointer) => self == Memory::Given(pointer),
            ResultTarget::Output(i) => self == Memory::Output(i),
            ResultTarget::Heap => self == Memory::Heap,
            ResultTarget::Scalar => false,
        }
    }
}

/// The memory of a run, as far as it is known before: the arena as a formula over input sizes and the number of
/// threads.
#[derive(Clone, Debug)]
pub struct MemoryPlan {
    /// Bytes and time of use of the buffers whose size varies, from the lowest place to the highest. They are above
    /// `base`.
    buffers: Vec<(Dim, Lifetime)>,
    fixed_buffers: Vec<(Dim, Lifetime)>,
    base: i64,
    /// Bytes of the arena if they depend on nothing.
    pub fixed: Option<u64>,
    /// Does a run need further memory, of sizes that depend on the data?
    pub heap: bool,
}

/// The name of the number of threads in the formula.
pub const THREADS: &str = "threads";

impl MemoryPlan {
    /// Bytes of the arena for these sizes; `None` if one is missing.
    pub fn arena_bytes(&self, of: &dyn Fn(&Sym) -> Option<i64>) -> Option<u64> {
        let sizes = sizes(&self.buffers, of)?;
        let lifetimes: Vec<Lifetime> = self.buffers.iter().map(|b| b.1).collect();
        let mut ends: Vec<i64> = Vec::new();
        for (below, size) in supports(&lifetimes).into_iter().zip(sizes) {
            let offset = below.into_iter().map(|j| ends[j]).max().unwrap_or(self.base);
            ends.push(offset + size);
        }
        Some((ends.into_iter().max().unwrap_or(self.base) + ALIGN) as u64)
    }

    /// The peak of bytes in use, a lower bound for any layout.
    pub fn lower_bound(&self, of: &dyn Fn(&Sym) -> Option<i64>) -> Option<u64> {
        let mut changes: Vec<(usize, i64)> = Vec::new();
        let all = [&self.buffers[..], &self.fixed_buffers].concat();
        for ((_, lifetime), size) in all.iter().zip(sizes(&all, of)?) {
            changes.push((lifetime.start, size));
            changes.push((lifetime.end + 1, -size));
        }
        changes.sort_unstable();
        let (mut now, mut most) = (0, 0);
        for (_, change) in changes {
            now += change;
            most = most.max(now);
        }
        Some(most as u64)
    }
}

/// The bytes of buffers, rounded up to where the next may begin.
fn sizes(buffers: &[(Dim, Lifetime)], of: &dyn Fn(&Sym) -> Option<i64>) -> Option<Vec<i64>> {
    buffers.iter().map(|(bytes, _)| bytes.eval(of).map(round_up)).collect()
}

#[derive(Default)]
pub(super) struct Plan {
    /// Where in the entry the layout is computed, and how many values there are before it.
    pub mark: Option<(usize, u32)>,
    weights: Option<V>,
    outputs: Option<V>,
    threads: Option<V>,
    buffers: Vec<Planned>,
    position: usize,
    heap: bool,
    /// The names of the values that sizes are made of.
    names: HashMap<Sym, Sym>,
}

struct Planned {
    pointer: V,
    /// Over symbols that name values of the entry.
    bytes: Dim,
    lifetime: Lifetime,
}

impl Plan {
    pub(super) fn start(&mut self, weights: V, outputs: V, threads: V) {
        (self.weights, self.outputs, self.threads) = (Some(weights), Some(outputs), Some(threads));
    }

    pub(super) fn mark_here(&mut self, b: &Builder, symbols: &HashMap<Sym, V>) {
        self.mark = Some((b.place_here(), b.count()));
        self.names = symbols.iter().map(|(s, v)| (value_name(*v), s.clone())).collect();
        self.names.insert(value_name(self.threads.expect("set at the start")), THREADS.into());
    }

    pub(super) fn step(&mut self) {
        self.position += 1;
    }

    pub(super) fn weights(&self) -> V {
        self.weights.expect("set at the start")
    }

    pub(super) fn outputs(&self) -> V {
        self.outputs.expect("set at the start")
    }
}

impl Entry {
    /// Memory for a tensor of that many elements.
    pub(super) fn allocate(&mut self, frame: &mut Frame<'_>, v: Value, elements: &Dim) -> Result<V> {
        let size = scalar::memory(frame.scope.dtype(v)).size();
        let bytes = elements * &Dim::Const(size);
        let (pointer, memory) = match frame.targets.get(&v).copied() {
            Some(ResultTarget::Output(i)) => (self.output(frame, i, &bytes)?, Memory::Output(i)),
            Some(ResultTarget::Heap) => (self.block(frame, &bytes)?, Memory::Heap),
            Some(ResultTarget::At(pointer)) => (pointer, Memory::Given(pointer)),
            Some(ResultTarget::Scalar) | None => match self.in_arena(&frame.sizes, &bytes) {
                Some((pointer, id)) => (pointer, Memory::Arena(id)),
                None => (self.block(frame, &bytes)?, Memory::Heap),
            },
        };
        frame.scope.buffers.insert(v, Buffer { pointer });
        frame.memory.insert(v, memory);
        Ok(pointer)
    }

    /// Memory for that many bytes, until it is given back.
    pub(crate) fn temporary(&mut self, frame: &mut Frame<'_>, bytes: &Dim) -> Result<(V, Memory)> {
        Ok(match self.in_arena(&frame.sizes, bytes) {
            Some((pointer, id)) => (pointer, Memory::Arena(id)),
            None => (self.block(frame, bytes)?, Memory::Heap),
        })
    }

    /// Memory for the time of one kernel; `per_worker` bytes for each thread.
    pub(crate) fn scratch(&mut self, frame: &mut Frame<'_>, per_worker: &Dim) -> Result<(V, Memory)> {
        let threads = self.plan.threads.expect("set at the start");
        let workers = self.b.as_const(threads).map_or_else(|| Dim::sym(value_name(threads)), |n| Dim::Const(n as i64));
        let padded = &per_worker.ceil_div(&Dim::Const(ALIGN)) * &Dim::Const(ALIGN);
        if let Some(early) = self.early(&frame.sizes, &padded) {
            let (pointer, id) = self.planned(&early * &workers);
            return Ok((pointer, Memory::Arena(id)));
        }
        let one = self.size(&mut frame.sizes, &padded)?;
        let all = self.checked_mul(one, threads);
        Ok((self.block_of(all), Memory::Heap))
    }

    /// Give memory back.
    pub(crate) fn give_back(&mut self, pointer: V, memory: Memory) {
        match memory {
            Memory::Arena(id) => {
                self.plan.buffers[id].lifetime.end = self.plan.position;
                self.plan.position += 1;
            }
            Memory::Heap => {
                let context = self.context();
                self.b.host(Host::Free, vec![context, pointer]);
            }
            Memory::Outside | Memory::Output(_) | Memory::Given(_) => {}
        }
    }

    pub(super) fn release(&mut self, frame: &mut Frame<'_>, v: Value) {
        if let Some(memory) = frame.memory.insert(v, Memory::Outside) {
            self.give_back(frame.scope.buffers[&v].pointer, memory);
        }
    }

    /// Let a tensor take over the memory of one that is read for the last time, if it may.
    pub(super) fn take_over(&mut self, frame: &mut Frame<'_>, v: Value, candidates: &[Value]) -> Option<V> {
        if frame.targets.contains_key(&v) {
            return None;
        }
        let elements = Dim::product(frame.scope.shape(v));
        let at = frame.fusion.leader(v).0 as usize;
        let size = |v: Value| scalar::memory(frame.scope.dtype(v)).size();
        let fits = |old: &&Value| {
            frame.last_use[old.0 as usize] == at
                && matches!(frame.memory.get(old), Some(Memory::Arena(_) | Memory::Heap))
                && Dim::product(frame.scope.shape(**old)) == elements
                && size(**old) == size(v)
        };
        let old = *candidates.iter().find(fits)?;
        let memory = frame.memory.insert(old, Memory::Outside)?;
        let pointer = frame.scope.buffers[&old].pointer;
        frame.scope.buffers.insert(v, Buffer { pointer });
        frame.memory.insert(v, memory);
        Some(pointer)
    }

    fn in_arena(&mut self, sizes: &Sizes, bytes: &Dim) -> Option<(V, usize)> {
        let early = self.early(sizes, bytes)?;
        Some(self.planned(early))
    }

    fn planned(&mut self, bytes: Dim) -> (V, usize) {
        let pointer = self.b.declare(Ty::PTR);
        let lifetime = Lifetime { start: self.plan.position, end: usize::MAX };
        self.plan.buffers.push(Planned { pointer, bytes, lifetime });
        (pointer, self.plan.buffers.len() - 1)
    }

    /// The expression over values that are known when the layout is computed; `None` if it needs later ones.
    fn early(&self, sizes: &Sizes, d: &Dim) -> Option<Dim> {
        let (_, count) = self.plan.mark?;
        let mut known: HashMap<Sym, Dim> = HashMap::new();
        let mut late = false;
        d.for_each_sym(&mut |s| {
            let value = match sizes.symbols.get(s) {
                Some(&v) => {
                    let constant = self.b.as_const(v).map(|c| Dim::Const(c as i64));
                    let early = v.0 < count && self.b.level(v) == 0;
                    constant.or_else(|| early.then(|| Dim::sym(value_name(v))))
                }
                None => self.state.meaning(s).and_then(|m| self.early(sizes, &m)),
            };
            match value {
                Some(d) => drop(known.insert(s.clone(), d)),
                None => late = true,
            }
        });
        (!late).then(|| d.subst(&|s| known.get(s).cloned()))
    }

    /// A new block for that many bytes.
    pub(super) fn block(&mut self, frame: &mut Frame<'_>, bytes: &Dim) -> Result<V> {
        let bytes = self.size(&mut frame.sizes, bytes)?;
        Ok(self.block_of(bytes))
    }

    pub(super) fn block_of(&mut self, bytes: V) -> V {
        self.plan.heap = true;
        let least = self.b.i64(ALIGN);
        let bytes = self.b.binary(Binary::SMax, bytes, least);
        let context = self.context();
        let pointer = self.b.host(Host::Alloc, vec![context, bytes]);
        self.check_memory(pointer);
        pointer
    }

    fn check_memory(&mut self, pointer: V) {
        let place = std::mem::take(&mut self.state.place);
        let code = self.state.message("out of memory");
        self.state.place = place;
        let address = self.b.convert(Convert::Pointer, pointer, Elem::I64);
        let null = self.b.i64(0);
        let found = self.b.compare(Compare::Ne, address, null);
        self.b.check(found, code);
    }

    /// Where an output goes: to the caller's memory if there is room, else to a new block.
    fn output(&mut self, frame: &mut Frame<'_>, number: usize, bytes: &Dim) -> Result<V> {
        let bytes = self.size(&mut frame.sizes, bytes)?;
        let outputs = self.plan.outputs();
        let base = number as i64 * context::TENSOR_SLOTS;
        let (data, room) = (self.b.i64(base + context::TENSOR_DATA), self.b.i64(base + context::TENSOR_ROOM));
        let (data, room) = (self.b.load(Ty::PTR, outputs, data), self.b.load(Ty::I64, outputs, room));
        let enough = self.b.compare(Compare::Le, bytes, room);
        self.b.open_branch();
        let there = self.b.close_branch(vec![data]);
        self.b.open_branch();
        let heap = self.plan.heap;
        let new = self.block_of(bytes);
        self.plan.heap = heap;
        let new = self.b.close_branch(vec![new]);
        Ok(self.b.close_if(enough, there, new)[0])
    }

    /// A copy of a result in its own target.
    pub(super) fn copy_result(&mut self, frame: &mut Frame<'_>, r: Value, target: ResultTarget) -> Result<V> {
        let shape: Vec<Dim> = frame.scope.shape(r).iter().map(|d| self.state.size(d)).collect();
        let elements = Dim::product(&shape);
        let bytes = &elements * &Dim::Const(scalar::memory(frame.scope.dtype(r)).size());
        let pointer = match target {
            ResultTarget::Output(i) => self.output(frame, i, &bytes)?,
            ResultTarget::At(pointer) => pointer,
            ResultTarget::Heap | ResultTarget::Scalar => self.block(frame, &bytes)?,
        };
        let copy = Pointwise::whole(shape, vec![(r, Arg::Output)]);
        let kernel = copy.kernel("copy", &mut self.state, &frame.scope);
        self.launch(frame, kernel, pointer, None)?;
        Ok(pointer)
    }

    /// A tensor of the frame as a value for others.
    #[allow(clippy::wildcard_enum_match_arm, reason = "what is no tensor is a sequence or a tuple")]
    pub(super) fn slot(&mut self, frame: &mut Frame<'_>, v: Value) -> Result<Slot> {
        match frame.scope.func.ty(v) {
            Type::Tensor(t) => {
                let shape = t.shape.clone();
                let sizes = shape.iter().map(|d| self.size(&mut frame.sizes, d)).collect::<Result<Vec<V>>>()?;
                Ok(Slot::Tensor { pointer: frame.scope.buffers[&v].pointer, sizes })
            }
            _ => Ok(frame.others[&v].clone()),
        }
    }

    /// Lay out the arena, in front of everything that uses it: first the buffers of known size, above them the others.
    pub(super) fn lay_out(&mut self) -> MemoryPlan {
        let (place, _) = self.plan.mark.expect("the main function was lowered");
        let mut buffers = std::mem::take(&mut self.plan.buffers);
        let end = self.plan.position;
        buffers.iter_mut().for_each(|b| b.lifetime.end = b.lifetime.end.min(end));
        let (fixed, varying): (Vec<Planned>, Vec<Planned>) =
            buffers.into_iter().partition(|b| b.bytes.as_const().is_some());
        let (fixed, offsets, base) = pack(fixed);
        let (varying, _, _) = pack(varying);

        let later = self.b.step_back(place);
        let (total, varying_offsets) = self.lay_out_at_run_time(&varying, base);
        let arena = self.arena(total, fixed.is_empty() && varying.is_empty());
        for (b, offset) in fixed.iter().zip(offsets) {
            let offset = self.b.i64(offset);
            self.b.define(b.pointer, arena, offset);
        }
        for (b, offset) in varying.iter().zip(varying_offsets) {
            self.b.define(b.pointer, arena, offset);
        }
        self.b.step_forward(later);
        let times = |b: &Planned| (self.named(&b.bytes), b.lifetime);
        MemoryPlan {
            fixed: varying.is_empty().then_some((base + ALIGN) as u64),
            fixed_buffers: fixed.iter().map(times).collect(),
            base,
            buffers: varying.iter().map(times).collect(),
            heap: self.plan.heap,
        }
    }

    /// An expression over values of the entry by the names of sizes.
    pub(super) fn named(&self, d: &Dim) -> Dim {
        d.subst(&|s| self.plan.names.get(s).map(|n| Dim::sym(n.clone())))
    }

    /// The bytes of the arena and the offsets of buffers above `base`. Their order is that of the typical case; each
    /// lies above all that live at the same time and are below it there.
    fn lay_out_at_run_time(&mut self, buffers: &[Planned], base: i64) -> (V, Vec<V>) {
        let mut sizes = Sizes::default();
        for b in buffers {
            b.bytes.for_each_sym(&mut |s| {
                let number = s[1..].parse().expect("the name of a value");
                sizes.symbols.insert(s.clone(), V(number));
            });
        }
        let mut offsets: Vec<V> = Vec::new();
        let mut ends: Vec<V> = Vec::new();
        let (more, mask, zero) = (self.b.i64(ALIGN - 1), self.b.i64(-ALIGN), self.b.i64(0));
        let base = self.b.i64(base);
        let mut total = base;
        let lifetimes: Vec<Lifetime> = buffers.iter().map(|b| b.lifetime).collect();
        for (buffer, below) in buffers.iter().zip(supports(&lifetimes)) {
            let bytes = self.size(&mut sizes, &buffer.bytes).expect("all symbols are values");
            let bytes = self.b.binary(Binary::SMax, bytes, zero);
            let bytes = self.checked_add(bytes, more);
            let bytes = self.b.and(bytes, mask);
            let mut offset = base;
            for j in below {
                offset = self.b.binary(Binary::SMax, offset, ends[j]);
            }
            let end = self.checked_add(offset, bytes);
            total = self.b.binary(Binary::SMax, total, end);
            offsets.push(offset);
            ends.push(end);
        }
        let slack = self.b.i64(ALIGN);
        (self.checked_add(total, slack), offsets)
    }

    /// The arena, which the runtime makes larger if it is too small.
    fn arena(&mut self, bytes: V, unused: bool) -> V {
        let arena = self.context_slot(Ty::PTR, context::ARENA);
        if unused {
            return arena;
        }
        let there = self.context_slot(Ty::I64, context::ARENA_BYTES);
        let enough = self.b.compare(Compare::Le, bytes, there);
        self.b.open_branch();
        let same = self.b.close_branch(vec![arena]);
        self.b.open_branch();
        let context = self.context();
        let new = self.b.host(Host::Arena, vec![context, bytes]);
        self.check_memory(new);
        let new = self.b.close_branch(vec![new]);
        self.b.close_if(enough, same, new)[0]
    }
}

fn round_up(bytes: i64) -> i64 {
    (bytes.max(0) + ALIGN - 1) / ALIGN * ALIGN
}

fn typical(d: &Dim) -> i64 {
    d.eval(&|_| Some(TYPICAL)).unwrap_or(TYPICAL).clamp(0, 1 << 40)
}

/// Buffers from the lowest to the highest, their offsets, and the end of the last.
fn pack(buffers: Vec<Planned>) -> (Vec<Planned>, Vec<i64>, i64) {
    let sizes: Vec<(i64, Lifetime)> = buffers.iter().map(|b| (round_up(typical(&b.bytes)), b.lifetime)).collect();
    let (offsets, end) = packing::pack(&sizes);
    let mut placed: Vec<(i64, Planned)> = offsets.into_iter().zip(buffers).collect();
    placed.sort_by_key(|(offset, b)| (*offset, b.lifetime.start));
    let (offsets, buffers) = placed.into_iter().unzip();
    (buffers, offsets, end)
}

/// A value of the entry as a symbol.
fn value_name(v: V) -> Sym {
    format!("%{}", v.0).into()
}
