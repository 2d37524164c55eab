//! The entry function: compiled code that checks inputs, computes sizes, and launches the kernels in order. Nested
//! functions become part of it.
mod bounds;
mod checks;
mod control;
mod memory;
mod ops;
mod packing;
mod provenance;
mod sequence;
mod sizes;

use crate::{
    Lowered,
    arg::Arg,
    element::{ElementEmitter, Site},
    pointwise::Kernel,
    weights::{Stored, Weights},
};
pub(super) use memory::Memory;
use memory::Plan;
pub use memory::{MemoryPlan, THREADS};
use numrsc_facts::{Context, Error, Result, ops::is_statement};
use numrsc_ir::{
    Dim, Func, Type, Value,
    dim::Sym,
    kernel::{FuncId, Function, Kind, Module, Ty, V, build::Builder, context, localise},
};
use numrsc_schedule::{
    fuse::{Buffer, Fusion, Scope, fuse},
    messages::Place,
    state::LowerState,
};
use provenance::Provenance;
use sizes::Sizes;
use std::collections::{HashMap, HashSet};

/// Lower a verified function to a module whose last function is the entry.
pub(crate) fn lower(func: &Func, cx: &Context) -> Result<Lowered> {
    let mut entry = Entry::new(cx);
    entry.run_main(func)?;
    match entry.state.refused.take() {
        Some(message) => Err(Error::Unsupported(message)),
        None => Ok(entry.finish()),
    }
}

/// A value of a function being lowered, at run time.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    Tensor { pointer: V, sizes: Vec<V> },
    Seq(V),
    Tuple(Vec<Slot>),
}

/// Where the results of a function go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ResultTarget {
    /// Output of this number.
    Output(usize),
    /// A new block that the caller owns.
    Heap,
    /// A place that the caller gives, large enough.
    At(V),
    /// A scalar that the caller reads at once.
    Scalar,
}

pub(crate) struct Entry {
    pub b: Builder,
    pub state: LowerState,
    pub context: V,
    functions: Vec<Function>,
    known: HashMap<Function, FuncId>,
    weights: Weights,
    plan: Plan,
    /// A kernel that copies bytes, once there is one.
    copy: Option<FuncId>,
    /// Bytes that kernels read and write.
    moved: u64,
    bounds: bounds::Bounds,
    /// The size that is being computed, for messages.
    sizing: Option<Dim>,
    origins: Provenance,
}

/// A function in the course of being lowered.
pub(crate) struct Frame<'f> {
    /// Different for each function, and each time that it is lowered.
    pub number: usize,
    pub scope: Scope<'f>,
    pub fusion: Fusion,
    pub sizes: Sizes,
    pub memory: HashMap<Value, Memory>,
    /// Sequences and tuples.
    pub others: HashMap<Value, Slot>,
    pub targets: HashMap<Value, ResultTarget>,
    /// Results of tuples that somebody owns.
    pub taken: HashSet<(Value, usize)>,
    /// The nodes that have each value as an operand.
    pub users: Vec<Vec<Value>>,
    /// After which node each stored value is not needed any more.
    pub last_use: Vec<usize>,
    pub without_data: Vec<bool>,
}

impl Entry {
    fn new(cx: &Context) -> Entry {
        let b = Builder::new(Kind::Entry, &[Ty::PTR]);
        let context = b.params()[0];
        Entry {
            b,
            state: LowerState::new(cx),
            context,
            functions: vec![],
            known: HashMap::new(),
            weights: Weights::default(),
            plan: Plan::default(),
            copy: None,
            moved: 0,
            bounds: bounds::Bounds::default(),
            sizing: None,
            origins: Provenance::default(),
        }
    }

    fn finish(mut self) -> Lowered {
        let memory = self.lay_out();
        let mut entry = self.b.finish("entry", vec![]);
        localise(&mut entry);
        self.functions.push(entry);
        let module = Module { functions: self.functions };
        let LowerState { messages, choices, .. } = self.state;
        let (launches, by_entry, folded) = self.origins.finish();
        let (weights, moved) = (self.weights, self.moved);
        Lowered { module, weights, messages, launches, by_entry, folded, memory, moved, choices }
    }

    /// A slot of the run context.
    fn context_slot(&mut self, ty: Ty, slot: i64) -> V {
        let (context, slot) = (self.context, self.b.i64(slot));
        self.b.load(ty, context, slot)
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "what is no tensor is a sequence or a tuple")]
    fn run_main(&mut self, func: &Func) -> Result<()> {
        let inputs = self.context_slot(Ty::PTR, context::INPUTS);
        let outputs = self.context_slot(Ty::PTR, context::OUTPUTS);
        let weights = self.context_slot(Ty::PTR, context::WEIGHTS);
        let threads =
            if self.state.context.device { self.b.i64(1) } else { self.context_slot(Ty::I64, context::THREADS) };
        let mut args = Vec::new();
        for (i, p) in func.params().into_iter().enumerate() {
            let base = i as i64 * context::TENSOR_SLOTS;
            let (data, sizes) = (self.b.i64(base + context::TENSOR_DATA), self.b.i64(base + context::TENSOR_SIZES));
            let data = self.b.load(Ty::PTR, inputs, data);
            args.push(match func.ty(p) {
                Type::Tensor(t) => {
                    self.bounds.note(t);
                    let sizes = self.b.load(Ty::PTR, inputs, sizes);
                    let sizes = (0..t.rank() as i64).map(|a| {
                        let a = self.b.i64(a);
                        self.b.load(Ty::I64, sizes, a)
                    });
                    Slot::Tensor { pointer: data, sizes: sizes.collect() }
                }
                _ => Slot::Seq(data),
            });
        }
        self.plan.start(weights, outputs, threads);
        let targets: Vec<ResultTarget> = (0..func.results().len()).map(ResultTarget::Output).collect();
        self.run(func, &args, HashMap::new(), &targets)?;
        Ok(())
    }

    /// Run a function on arguments; the results are where `targets` says.
    pub(super) fn run(
        &mut self,
        func: &Func,
        args: &[Slot],
        symbols: HashMap<Sym, V>,
        targets: &[ResultTarget],
    ) -> Result<Vec<Slot>> {
        let stored: Vec<Value> =
            func.results().iter().zip(targets).filter(|(_, h)| **h != ResultTarget::Scalar).map(|(r, _)| *r).collect();
        let fusion = fuse(func, &stored, &mut self.state);
        self.moved += fusion.traffic(func, &|_| false).moved;
        let mut frame = Frame {
            number: self.origins.begin(func),
            without_data: func.without_data(),
            scope: Scope { func, buffers: HashMap::new() },
            fusion,
            sizes: Sizes::new(symbols),
            memory: HashMap::new(),
            others: HashMap::new(),
            targets: HashMap::new(),
            taken: HashSet::new(),
            users: users(func),
            last_use: vec![],
        };
        for (r, target) in func.results().iter().zip(targets) {
            frame.targets.entry(*r).or_insert(*target);
        }
        self.bind_params(&mut frame, args)?;
        if self.plan.mark.is_none() {
            self.plan.mark_here(&self.b, &frame.sizes.symbols);
        }
        frame.last_use = last_uses(func, &frame.fusion);
        let mut ending: HashMap<usize, Vec<Value>> = HashMap::new();
        for (v, &end) in (0..).map(Value).zip(&frame.last_use) {
            ending.entry(end).or_default().push(v);
        }
        for (v, node) in func.values() {
            self.state.place = Place::of(func, v);
            self.check(&mut frame, v)?;
            let is_computed = frame.fusion.stored[v.0 as usize] && !frame.fusion.leaders.contains_key(&v);
            if is_computed || is_statement(&node.op) {
                self.stand_at(&frame, v);
                self.emit(&mut frame, v)?;
            }
            for old in ending.remove(&(v.0 as usize)).unwrap_or_default() {
                self.release(&mut frame, old);
            }
        }
        self.results(&mut frame, targets)
    }

    fn bind_params(&mut self, frame: &mut Frame<'_>, args: &[Slot]) -> Result<()> {
        let func = frame.scope.func;
        let mut pairs = Vec::new();
        for (i, (p, arg)) in func.params().into_iter().zip(args).enumerate() {
            match (func.ty(p), arg) {
                (Type::Tensor(t), Slot::Tensor { pointer, sizes }) => {
                    let name = func.param_names.get(i).map_or(format!("parameter {i}"), |n| format!("input `{n}`"));
                    for (a, (dim, &size)) in t.shape.iter().zip(sizes).enumerate() {
                        let what = format!("{name}: the size of axis {a} is not {dim}");
                        pairs.push((dim.clone(), size, what));
                    }
                    frame.scope.buffers.insert(p, Buffer { pointer: *pointer });
                    frame.memory.insert(p, Memory::Outside);
                }
                (_, other) => {
                    frame.others.insert(p, other.clone());
                }
            }
        }
        self.state.place = Place::default();
        self.unify(&mut frame.sizes, pairs)
    }

    /// Hand over the results.
    #[allow(clippy::wildcard_enum_match_arm, reason = "what is no tensor is a sequence or a tuple")]
    fn results(&mut self, frame: &mut Frame<'_>, targets: &[ResultTarget]) -> Result<Vec<Slot>> {
        let func = frame.scope.func;
        let mut slots = Vec::new();
        let mut given: Vec<Value> = Vec::new();
        for (&r, &target) in func.results().iter().zip(targets) {
            self.stand_at(frame, r);
            let slot = match func.ty(r) {
                Type::Tensor(_) if target == ResultTarget::Scalar => {
                    let x = self.scalar(frame, r);
                    Slot::Tensor { pointer: x, sizes: vec![] }
                }
                Type::Tensor(t) => {
                    // The same place may be the target of two results, a block not.
                    let free = matches!(target, ResultTarget::At(_)) || !given.contains(&r);
                    let own = free && frame.memory.get(&r).is_some_and(|m| m.is_for(target));
                    let pointer = if own {
                        given.push(r);
                        frame.scope.buffers[&r].pointer
                    } else {
                        self.copy_result(frame, r, target)?
                    };
                    let shape = t.shape.clone();
                    let sizes = shape.iter().map(|d| self.size(&mut frame.sizes, d)).collect::<Result<Vec<V>>>()?;
                    Slot::Tensor { pointer, sizes }
                }
                _ => frame.others[&r].clone(),
            };
            if let ResultTarget::Output(i) = target {
                self.give_output(i, &slot);
            }
            slots.push(slot);
        }
        Ok(slots)
    }

    /// Tell the runtime where an output is.
    fn give_output(&mut self, number: usize, slot: &Slot) {
        let outputs = self.plan.outputs();
        let base = number as i64 * context::TENSOR_SLOTS;
        let data_slot = self.b.i64(base + context::TENSOR_DATA);
        match slot {
            Slot::Tensor { pointer, sizes } => {
                self.b.store(outputs, data_slot, *pointer);
                let sizes_slot = self.b.i64(base + context::TENSOR_SIZES);
                let array = self.b.load(Ty::PTR, outputs, sizes_slot);
                for (a, &size) in sizes.iter().enumerate() {
                    let a = self.b.i64(a as i64);
                    self.b.store(array, a, size);
                }
            }
            Slot::Seq(pointer) => self.b.store(outputs, data_slot, *pointer),
            Slot::Tuple(_) => unreachable!("tuples are no outputs"),
        }
    }

    /// What is emitted now, and what it says when it fails, is for the sake of this node.
    pub(super) fn stand_at(&mut self, frame: &Frame<'_>, v: Value) {
        let func = frame.scope.func;
        let origins = frame.fusion.origins(func, v, &frame.users, &frame.without_data);
        self.state.place = Place::of(func, v).with_origins(&origins);
        self.b.source = origins;
        self.origins.stand_at(frame, v);
    }

    /// The value of a scalar tensor, as a number.
    pub(super) fn scalar(&mut self, frame: &Frame<'_>, v: Value) -> V {
        let site = Site::Entry { symbols: &frame.sizes.symbols };
        ElementEmitter::new(&mut self.b, &mut self.state, &frame.scope, site).value(v, &[])
    }

    /// Add a function unless there is the same already.
    pub(super) fn function(&mut self, mut f: Function) -> FuncId {
        let name = std::mem::take(&mut f.name);
        if let Some(&id) = self.known.get(&f) {
            return id;
        }
        let id = FuncId(self.functions.len() as u32);
        self.known.insert(f.clone(), id);
        f.name = format!("{name}_{}", id.0);
        self.functions.push(f);
        id
    }

    /// Launch a kernel that writes to `output`.
    pub(crate) fn launch(
        &mut self,
        frame: &mut Frame<'_>,
        kernel: Kernel,
        output: V,
        scratch: Option<V>,
    ) -> Result<()> {
        self.launch_with(frame, kernel, &[output], scratch)
    }

    /// Launch a kernel that writes to several outputs.
    pub(super) fn launch_with(
        &mut self,
        frame: &mut Frame<'_>,
        kernel: Kernel,
        outputs: &[V],
        scratch: Option<V>,
    ) -> Result<()> {
        let Kernel { function, args, extent, work, .. } = kernel;
        if extent == Dim::ZERO {
            return Ok(());
        }
        let id = self.function(function);
        let mut values = Vec::with_capacity(args.len());
        for arg in args {
            values.push(match arg {
                Arg::Pointer(v) => frame.scope.buffers[&v].pointer,
                Arg::Size(d) => self.size(&mut frame.sizes, &d)?,
                Arg::Entry(v) => v,
                Arg::Output => outputs[0],
                Arg::Further(number) => outputs[number],
                Arg::Scratch => scratch.expect("a kernel with scratch memory gets some"),
            });
        }
        let extent = self.size(&mut frame.sizes, &extent)?;
        let grain = self.grain(frame, &work)?;
        self.b.launch(id, values, extent, grain);
        self.origins.launch(id, &self.b.source);
        self.plan.step();
        Ok(())
    }

    /// How many units of a kernel's extent are worth a thread.
    fn grain(&mut self, frame: &mut Frame<'_>, work: &Dim) -> Result<V> {
        const WORTHWHILE: i64 = 1 << 14;
        if let Some(w) = work.as_const() {
            return Ok(self.b.i64(1 + WORTHWHILE / w.max(1)));
        }
        let w = self.size(&mut frame.sizes, work)?;
        let (enough, one) = (self.b.i64(WORTHWHILE), self.b.i64(1));
        let count = self.b.udiv(enough, w);
        Ok(self.b.add(count, one))
    }

    /// The shape of a node, with sizes as polynomials of plain symbols.
    pub(crate) fn shape_of(&mut self, frame: &Frame<'_>, v: Value) -> Vec<Dim> {
        frame.scope.shape(v).iter().map(|d| self.state.size(d)).collect()
    }

    /// The address of a constant.
    pub(crate) fn place_weights(&mut self, value: &Stored) -> V {
        let offset = self.weights.place(value) as i64;
        let (weights, offset) = (self.plan.weights(), self.b.i64(offset));
        self.b.offset(weights, offset)
    }

    pub(super) fn context(&self) -> V {
        self.context
    }
}

fn users(func: &Func) -> Vec<Vec<Value>> {
    let mut users = vec![Vec::new(); func.nodes().len()];
    for (v, node) in func.values() {
        node.args.iter().for_each(|a| users[a.0 as usize].push(v));
    }
    users
}

/// After which node each stored value is not needed any more.
fn last_uses(func: &Func, fusion: &Fusion) -> Vec<usize> {
    let mut last: Vec<usize> = (0..).map(Value).take(func.nodes().len()).map(|v| fusion.leader(v).0 as usize).collect();
    for (v, node) in func.values() {
        if fusion.stored[v.0 as usize] || is_statement(&node.op) {
            for r in &fusion.reads[v.0 as usize] {
                last[r.0 as usize] = v.0 as usize;
            }
        }
    }
    for r in func.results() {
        last[r.0 as usize] = usize::MAX;
        for read in &fusion.reads[r.0 as usize] {
            if !fusion.stored[r.0 as usize] {
                last[read.0 as usize] = usize::MAX;
            }
        }
    }
    last
}
