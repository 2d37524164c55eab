//! Running a whole entry on tensors, as the runtime would.
use super::{Machine, Pointer, Trap};
use crate::{
    Error,
    kernel::{FuncId, Kind, Module, context},
};

/// An output to make room for; its sizes are the program's to tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Output {
    pub rank: usize,
    /// Bytes of one element.
    pub element: usize,
    /// Bytes that the data may take; without any, the data pointer is null.
    pub room: usize,
}

/// The sizes and bytes of a tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filled {
    pub sizes: Vec<i64>,
    pub bytes: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Invalid(#[from] Error),
    #[error(transparent)]
    Trap(#[from] Trap),
    /// The program ended itself by this code.
    #[error("the run failed with code {0}")]
    Code(i32),
    /// The module has no entry, or what it left behind cannot be read.
    #[error("{0}")]
    Other(String),
}

impl Output {
    pub fn new(rank: usize, element: usize) -> Output {
        Output { rank, element, room: 1 << 20 }
    }
}

/// Run the first entry of a module on inputs of bytes and sizes. Launches are split into more parts than there are threads.
pub fn run(
    module: &Module,
    weights: &[u8],
    inputs: &[(&[u8], &[i64])],
    outputs: &[Output],
    threads: u32,
) -> Result<Vec<Filled>, Failure> {
    let entry = module.functions.iter().position(|f| f.kind == Kind::Entry);
    let entry = FuncId(entry.ok_or_else(|| Failure::Other("there is no entry".into()))? as u32);
    let mut machine = Machine::new(module)?;
    machine.threads = threads;
    machine.parts = threads.saturating_mul(2);
    let weights = machine.alloc_fixed(weights)?;
    let mut input_slots = vec![];
    for (bytes, sizes) in inputs {
        let sizes: Vec<u8> = sizes.iter().flat_map(|n| n.to_le_bytes()).collect();
        let (data, sizes) = (machine.alloc_fixed(bytes)?, machine.alloc_fixed(&sizes)?);
        input_slots.extend(tensor(data, sizes, 0));
    }
    let mut output_slots = vec![];
    for output in outputs {
        let data = if output.room == 0 { Pointer::NULL } else { machine.alloc(output.room)? };
        let sizes = machine.alloc(output.rank * 8)?;
        output_slots.extend(tensor(data, sizes, output.room));
    }
    let inputs = machine.alloc_fixed(&slots(&input_slots))?;
    let tensors = machine.alloc(output_slots.len() * 8)?;
    machine.write(tensors, &slots(&output_slots))?;

    let mut ctx = vec![0; context::SLOTS as usize];
    ctx[context::WEIGHTS as usize] = weights.0;
    ctx[context::INPUTS as usize] = inputs.0;
    ctx[context::OUTPUTS as usize] = tensors.0;
    ctx[context::THREADS as usize] = u64::from(threads);
    let at = machine.alloc(ctx.len() * 8)?;
    machine.write(at, &slots(&ctx))?;
    match machine.run_entry(entry, at)? {
        0 => outputs.iter().enumerate().map(|(i, output)| filled(&machine, tensors, i as i64, output)).collect(),
        code => Err(Failure::Code(code)),
    }
}

fn tensor(data: Pointer, sizes: Pointer, room: usize) -> [u64; context::TENSOR_SLOTS as usize] {
    let mut slots = [0; context::TENSOR_SLOTS as usize];
    slots[context::TENSOR_DATA as usize] = data.0;
    slots[context::TENSOR_SIZES as usize] = sizes.0;
    slots[context::TENSOR_ROOM as usize] = room as u64;
    slots
}

fn slots(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// What the program left behind; it may have replaced the pointers.
fn filled(machine: &Machine<'_>, tensors: Pointer, i: i64, output: &Output) -> Result<Filled, Failure> {
    let slot = |k: i64| machine.slot(tensors, i * context::TENSOR_SLOTS + k).map(Pointer);
    let at = slot(context::TENSOR_SIZES)?;
    let sizes = (0..output.rank).map(|axis| machine.slot(at, axis as i64).map(|n| n as i64));
    let sizes = sizes.collect::<Result<Vec<i64>, Trap>>()?;
    let bytes = sizes.iter().try_fold(output.element, |bytes, &n| bytes.checked_mul(usize::try_from(n).ok()?));
    let Some(bytes) = bytes else {
        return Err(Failure::Other(format!("output {i} has sizes {sizes:?}")));
    };
    let bytes = if bytes == 0 { vec![] } else { machine.read(slot(context::TENSOR_DATA)?, bytes)? };
    Ok(Filled { sizes, bytes })
}
