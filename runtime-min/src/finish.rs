//! Checks outputs after a run: that compiled code describes them consistently, and that they do not lie in the inputs,
//! which belong to the caller.
#![allow(unsafe_code)]
use crate::{
    DType,
    artifact::{Port, PortKind},
    bind::Inputs,
    context::{ElementSlots, MAX_SEQUENCE_RANK, TensorSlots, address, pointer},
    error::{Error, Result, Text},
    memory::Memory,
    run::rank_of,
    tensor::TensorMut,
};

/// # Safety
/// The slots are those that compiled code filled in for this output.
pub(crate) unsafe fn output<M: Memory>(
    memory: &mut M,
    port: &Port<'_>,
    slots: &mut TensorSlots,
    inputs: Inputs<'_>,
) -> Result<()> {
    let mut finish = Finish { memory, size: port.dtype.size(), inputs };
    // SAFETY: as the caller says.
    unsafe {
        match port.kind {
            PortKind::Tensor => finish.tensor(&mut slots.data, pointer(slots.sizes), rank_of(port)),
            PortKind::Sequence { depth } => finish.sequence(slots.data, depth),
        }
    }
}

/// Makes sure that the output is in the caller's buffer.
///
/// # Safety
/// The slots are those of this output, after `output`.
pub(crate) unsafe fn buffer(port: &Port<'_>, slots: &TensorSlots, buffer: &mut TensorMut<'_>) -> Result<()> {
    // SAFETY: `output` checked the sizes.
    let shape = unsafe { core::slice::from_raw_parts(pointer::<usize>(slots.sizes), rank_of(port)) };
    let needed = shape.iter().product::<usize>() * port.dtype.size();
    if needed > buffer.bytes {
        let (needed, room) = (needed as u64, buffer.bytes as u64);
        return Err(Error::OutputRoom { name: Text::new(port.name), needed, room });
    }
    if needed > 0 && slots.data != address(buffer.start) {
        // SAFETY: the output has that many bytes, and the buffer room for them.
        unsafe { buffer.start.copy_from(pointer::<u8>(slots.data), needed) };
    }
    if port.dtype == DType::Bool {
        for at in 0..needed {
            // SAFETY: within the buffer. Whatever the code wrote, the caller may look at it as `bool`.
            unsafe {
                let byte = buffer.start.add(at);
                byte.write(u8::from(byte.read() != 0));
            }
        }
    }
    Ok(())
}

struct Finish<'a, M> {
    memory: &'a mut M,
    /// Bytes of an element.
    size: usize,
    inputs: Inputs<'a>,
}

impl<M: Memory> Finish<'_, M> {
    /// # Safety
    /// There are `rank` sizes, and they match the data.
    unsafe fn tensor(&mut self, data: &mut u64, sizes: *mut i64, rank: usize) -> Result<()> {
        let wrong_size = Error::Internal { what: "the size of an output" };
        let mut bytes = Some(self.size);
        let mut empty = false;
        for axis in 0..rank {
            // SAFETY: there are `rank` sizes.
            let Ok(size) = usize::try_from(unsafe { sizes.add(axis).read() }) else { return Err(wrong_size) };
            if size_of::<usize>() < 8 {
                // SAFETY: views read sizes as `usize`; written to the same place, they never overtake what is read here.
                unsafe { sizes.cast::<usize>().add(axis).write(size) };
            }
            empty |= size == 0;
            bytes = bytes.and_then(|bytes| bytes.checked_mul(size));
        }
        let bytes = if empty { Some(0) } else { bytes.filter(|&bytes| isize::try_from(bytes).is_ok()) };
        let Some(bytes) = bytes else { return Err(wrong_size) };
        if bytes > 0 && *data == 0 {
            return Err(Error::Internal { what: "an output has no data" });
        }
        if bytes > 0 && self.inputs.contain(*data) {
            let copy = self.memory.alloc(bytes);
            if copy.is_null() {
                return Err(Error::OutOfMemory { bytes: bytes as u64 });
            }
            // SAFETY: the output has that many bytes, and the copy is new.
            unsafe { copy.copy_from_nonoverlapping(pointer::<u8>(*data), bytes) };
            *data = address(copy);
        }
        Ok(())
    }

    /// # Safety
    /// The data is a sequence or null.
    unsafe fn sequence(&mut self, data: u64, depth: u8) -> Result<()> {
        if data == 0 {
            return Err(Error::Internal { what: "an output has no data" });
        }
        // SAFETY: a sequence is a length and that many elements.
        let length = unsafe { pointer::<i64>(data).read() };
        let Ok(length) = usize::try_from(length) else {
            return Err(Error::Internal { what: "the length of an output" });
        };
        for at in 0..length {
            let element = pointer::<ElementSlots>(data + 8).wrapping_add(at);
            // SAFETY: as above. Elements are written to only if they change: they may be in memory that is read only.
            unsafe {
                let ElementSlots { data, rank, .. } = element.read();
                let sizes = (&raw mut (*element).sizes).cast::<i64>();
                match (depth, usize::try_from(rank)) {
                    (2.., Err(_)) => self.sequence(data, depth - 1)?,
                    (1, Ok(rank @ 0..=MAX_SEQUENCE_RANK)) => {
                        let mut detached = data;
                        self.tensor(&mut detached, sizes, rank)?;
                        if detached != data {
                            (*element).data = detached;
                        }
                    }
                    _ => return Err(Error::Internal { what: "the rank of an element of an output" }),
                }
            }
        }
        Ok(())
    }
}
