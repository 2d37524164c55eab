//! Contexts: the memory and threads of one run at a time, and the steps of a run: check inputs, fill the tables, call
//! the entry, check outputs.
#![allow(unsafe_code)]
use crate::{
    Model,
    artifact::{Manifest, Port, PortKind, Size},
    bind::{self, Inputs},
    context::{RunContext, TensorSlots, address, pointer},
    error::{Error, Result, Text},
    finish,
    float_mode::FloatMode,
    host::{self, State},
    memory::{Fixed, Memory},
    tensor::{TensorMut, TensorRef},
    view::TensorView,
};
use core::{fmt, marker::PhantomData, mem::MaybeUninit, slice, sync::atomic::AtomicU32};

/// What a thread needs to run a model: memory, which is kept from run to run, and the outputs of the last one.
#[cfg(feature = "alloc")]
pub type Context = ContextIn<crate::memory::Heap>;

/// A context within a buffer of the caller, for where there is no allocator. It runs on one thread.
pub type FixedContext<'m> = ContextIn<Fixed<'m>>;

/// See [`Context`] and [`FixedContext`].
pub struct ContextIn<M: Memory> {
    model: Model,
    state: State<M>,
    /// The slots of inputs, those of outputs, the sizes of inputs, those of outputs.
    table: *mut u64,
    counts: Counts,
    keeps_subnormals: bool,
    #[cfg(feature = "std")]
    canceller: Option<crate::Canceller>,
    /// Whether the table holds the outputs of a run.
    has_outputs: bool,
}

// SAFETY: the table belongs to the memory within `state`.
unsafe impl<M: Memory + Send> Send for ContextIn<M> {}

#[derive(Clone, Copy)]
struct Counts {
    inputs: usize,
    outputs: usize,
    input_sizes: usize,
    output_sizes: usize,
}

#[cfg(feature = "alloc")]
impl Context {
    /// Uses as many threads as the process may.
    pub fn new(model: &Model) -> Result<Context> {
        #[cfg(feature = "std")]
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        #[cfg(not(feature = "std"))]
        let threads = 1;
        Context::with_threads(model, threads)
    }

    /// The calling thread counts as one. Others are started when they are first needed, and wait without using the CPU.
    /// Without the feature `std`, and for models compiled for one thread, there is only one.
    pub fn with_threads(model: &Model, threads: usize) -> Result<Context> {
        let usable = if model.manifest().single_threaded() || !cfg!(feature = "std") { 1 } else { threads.max(1) };
        ContextIn::create(model, crate::memory::Heap::new(), usable)
    }

    /// Frees memory that is kept for further runs. Outputs must not be in use.
    pub fn trim(&mut self) {
        self.has_outputs = false;
        self.state.memory.recycle();
        self.state.memory.trim();
    }

    /// Bytes in use or kept for further runs, without inputs and weights.
    pub fn memory_bytes(&self) -> usize {
        self.state.memory.held_bytes()
    }
}

impl<'m> FixedContext<'m> {
    /// The manifest states how much memory suffices: `peak`, and some for tables.
    pub fn in_memory(model: &Model, memory: &'m mut [MaybeUninit<u8>]) -> Result<FixedContext<'m>> {
        ContextIn::create(model, Fixed::new(memory), 1)
    }
}

impl<M: Memory> ContextIn<M> {
    fn create(model: &Model, mut memory: M, threads: usize) -> Result<ContextIn<M>> {
        let manifest = model.manifest();
        let counts = Counts {
            inputs: manifest.inputs().len(),
            outputs: manifest.outputs().len(),
            input_sizes: manifest.inputs().map(|port| rank_of(&port)).sum(),
            output_sizes: manifest.outputs().map(|port| rank_of(&port)).sum(),
        };
        let slots = (counts.inputs + counts.outputs) * TENSOR_SLOTS + counts.input_sizes + counts.output_sizes;
        let table = memory.table(slots);
        if table.is_null() {
            return Err(Error::OutOfMemory { bytes: slots as u64 * 8 });
        }
        if let Size::Fixed(bytes @ 1..) = manifest.arena() {
            let arena = usize::try_from(bytes).map_or(core::ptr::null_mut(), |bytes| memory.grow_arena(bytes));
            if arena.is_null() {
                return Err(Error::OutOfMemory { bytes });
            }
        }
        memory.seal();
        let state = State::new(memory, threads);
        Ok(ContextIn {
            model: model.clone(),
            state,
            table,
            counts,
            keeps_subnormals: false,
            #[cfg(feature = "std")]
            canceller: None,
            has_outputs: false,
        })
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    pub fn threads(&self) -> usize {
        self.state.threads
    }

    /// Whether to compute with subnormal numbers, those below 1.2e-38, rather than to take them for 0. That is exact, but takes many processors a hundred times as
    /// long for each of them. By default they are taken for 0.
    pub fn keep_subnormals(&mut self, keep: bool) {
        self.keeps_subnormals = keep;
    }

    /// A canceller that ends runs of this context from other threads.
    #[cfg(feature = "std")]
    pub fn canceller(&mut self) -> crate::Canceller {
        self.canceller.get_or_insert_default().clone()
    }

    /// How many outputs the model has.
    pub fn output_count(&self) -> usize {
        self.counts.outputs
    }

    /// An output of the last run.
    pub fn output(&self, position: usize) -> Result<TensorView<'_>> {
        let (port, slots, shape) = self.output_slots(position)?;
        if slots.given != 0 {
            return Err(Error::OutputElsewhere { name: Text::new(port.name) });
        }
        let depth = match port.kind {
            PortKind::Tensor => 0,
            PortKind::Sequence { depth } => depth,
        };
        let data = pointer::<u8>(slots.data);
        Ok(TensorView { name: port.name, dtype: port.dtype, depth, shape, data, memory: PhantomData })
    }

    pub fn output_by_name(&self, name: &str) -> Result<TensorView<'_>> {
        self.output(self.position_of_output(name)?)
    }

    pub fn position_of_output(&self, name: &str) -> Result<usize> {
        find_output(self.model.manifest(), name).map(|(position, _)| position)
    }

    /// Also of an output that was written to a buffer of the caller.
    pub fn output_shape(&self, position: usize) -> Result<&[usize]> {
        self.output_slots(position).map(|(_, _, shape)| shape)
    }

    #[cfg(feature = "std")]
    pub(crate) fn forget_outputs(&mut self) {
        self.has_outputs = false;
    }

    fn output_slots(&self, position: usize) -> Result<(Port<'_>, TensorSlots, &[usize])> {
        let Some(port) = self.model.manifest().outputs().nth(position) else {
            return Err(Error::OutputPosition { position, count: self.counts.outputs });
        };
        if !self.has_outputs {
            return Err(Error::NoOutputs);
        }
        // SAFETY: the table has slots and sizes for every output, and a run that succeeded filled them.
        unsafe {
            let slots = self.output_table().add(position).read();
            let shape = slice::from_raw_parts(pointer::<usize>(slots.sizes), rank_of(&port));
            Ok((port, slots, shape))
        }
    }

    fn run(&mut self, model: &Model, inputs: Inputs<'_>, given: &mut [(&str, TensorMut<'_>)]) -> Result<()> {
        self.has_outputs = false;
        if !model.is_same(&self.model) {
            return Err(Error::OtherModel);
        }
        self.state.memory.recycle();
        let result = self.attempt(model, inputs, given);
        match result {
            Ok(()) => self.has_outputs = true,
            Err(_) => self.state.memory.recycle(),
        }
        result
    }

    fn attempt(&mut self, model: &Model, inputs: Inputs<'_>, given: &mut [(&str, TensorMut<'_>)]) -> Result<()> {
        let manifest = model.manifest();
        inputs.check_count(manifest)?;
        let (input_table, output_table) = (self.table.cast::<TensorSlots>(), self.output_table());
        let mut sizes = self.table.wrapping_add((self.counts.inputs + self.counts.outputs) * TENSOR_SLOTS);
        for (position, port) in manifest.inputs().enumerate() {
            let Some(tensor) = inputs.get(position, port.name) else { return Err(inputs.mismatch(manifest)) };
            // SAFETY: `create` counted the slots and sizes of all inputs and outputs.
            unsafe {
                let data = bind::input(&mut self.state.memory, &port, tensor, sizes.cast())?;
                input_table.add(position).write(TensorSlots { data, sizes: address(sizes), room: 0, given: 0 });
                sizes = sizes.add(rank_of(&port));
            }
        }
        for (position, port) in manifest.outputs().enumerate() {
            // SAFETY: as above.
            unsafe {
                output_table.add(position).write(TensorSlots { data: 0, sizes: address(sizes), room: 0, given: 0 });
                sizes.write_bytes(0, rank_of(&port));
                sizes = sizes.add(rank_of(&port));
            }
        }
        for (name, buffer) in given.iter() {
            let (position, port) = find_output(manifest, name)?;
            bind::check_buffer(&port, buffer)?;
            // SAFETY: it is the position of an output.
            let slots = unsafe { &mut *output_table.add(position) };
            if slots.given != 0 {
                return Err(Error::DuplicateName { what: "output", name: Text::new(name) });
            }
            (slots.data, slots.room, slots.given) = (address(buffer.start), buffer.bytes as u64, 1);
        }

        self.enter(model)?;

        for (position, port) in manifest.outputs().enumerate() {
            // SAFETY: as above; the run is over, so nobody else uses the table.
            unsafe { finish::output(&mut self.state.memory, &port, &mut *output_table.add(position), inputs)? };
        }
        for (name, buffer) in given {
            let (position, port) = find_output(manifest, name)?;
            // SAFETY: as above.
            unsafe { finish::buffer(&port, &*output_table.add(position), buffer)? };
        }
        Ok(())
    }

    /// Calls compiled code.
    fn enter(&mut self, model: &Model) -> Result<()> {
        let (arena, arena_bytes) = self.state.memory.arena();
        self.state.refused = None;
        let mut context = RunContext {
            weights: address(model.weights()),
            arena: address(arena),
            arena_bytes: arena_bytes as u64,
            inputs: address(self.table),
            outputs: address(self.output_table()),
            threads: self.state.threads as u64,
            fn_arena: address(host::arena::<M> as *const ()),
            fn_alloc: address(host::alloc::<M> as *const ()),
            fn_free: address(host::free::<M> as *const ()),
            fn_parallel: address(host::parallel::<M> as *const ()),
            state: address(&raw mut self.state),
            busy: AtomicU32::new(0),
            cancel: AtomicU32::new(0),
        };
        let context = &raw mut context;
        #[cfg(feature = "std")]
        let running = self.canceller.as_ref().map(|c| c.begin(context).ok_or(Error::Cancelled)).transpose()?;
        let callers = FloatMode::current();
        let mode = if self.keeps_subnormals { callers } else { callers.flushing_subnormals() };
        // SAFETY: this is the entry that belongs to the manifest by which the tables were filled and checked.
        let code = mode.within(|| unsafe { (model.entry())(context) });
        #[cfg(feature = "std")]
        drop(running);
        if code == 0 {
            return Ok(());
        }
        #[cfg(feature = "std")]
        if self.canceller.as_ref().is_some_and(crate::Canceller::is_cancelled) {
            return Err(Error::Cancelled);
        }
        if code == host::NESTED {
            return Err(Error::Internal { what: "a kernel launched a kernel" });
        }
        if let Some(bytes) = self.state.refused {
            return Err(Error::OutOfMemory { bytes });
        }
        let code = code.cast_unsigned();
        let message = model.manifest().failures().nth(code as usize - 1).unwrap_or_default();
        Err(Error::Failed { code, message: Text::new(message) })
    }

    fn output_table(&self) -> *mut TensorSlots {
        self.table.wrapping_add(self.counts.inputs * TENSOR_SLOTS).cast()
    }
}

impl Model {
    /// Runs with inputs by name, in any order. Outputs stay in the context.
    pub fn run<M: Memory>(&self, context: &mut ContextIn<M>, inputs: &[(&str, TensorRef<'_>)]) -> Result<()> {
        context.run(self, Inputs::Named(inputs), &mut [])
    }

    /// Run with inputs in the order of the manifest.
    pub fn run_in_order<M: Memory>(&self, context: &mut ContextIn<M>, inputs: &[TensorRef<'_>]) -> Result<()> {
        context.run(self, Inputs::InOrder(inputs), &mut [])
    }

    /// Run and write some outputs to buffers of the caller; the others are in the context as usual.
    pub fn run_into<M: Memory>(
        &self,
        context: &mut ContextIn<M>,
        inputs: &[(&str, TensorRef<'_>)],
        outputs: &mut [(&str, TensorMut<'_>)],
    ) -> Result<()> {
        context.run(self, Inputs::Named(inputs), outputs)
    }

    pub fn run_in_order_into<M: Memory>(
        &self,
        context: &mut ContextIn<M>,
        inputs: &[TensorRef<'_>],
        outputs: &mut [(&str, TensorMut<'_>)],
    ) -> Result<()> {
        context.run(self, Inputs::InOrder(inputs), outputs)
    }
}

impl<M: Memory> fmt::Debug for ContextIn<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("model", &self.model).field("threads", &self.threads()).finish_non_exhaustive()
    }
}

const TENSOR_SLOTS: usize = size_of::<TensorSlots>() / 8;

/// The number of sizes that the table has for a port.
pub(crate) fn rank_of(port: &Port<'_>) -> usize {
    match port.kind {
        PortKind::Tensor => port.dims.map_or(0, |dims| dims.len()),
        PortKind::Sequence { .. } => 0,
    }
}

fn find_output<'a>(manifest: Manifest<'a>, name: &str) -> Result<(usize, Port<'a>)> {
    manifest.outputs().enumerate().find(|(_, port)| port.name == name).ok_or_else(|| Error::UnknownName {
        what: "output",
        name: Text::new(name),
        known: Text::list(manifest.outputs().map(|port| port.name)),
    })
}
