//! Inputs: finds each by name, checks it against the model, and describes it to compiled code.
#![allow(unsafe_code)]
use crate::{
    DType,
    artifact::{Dim, Dims, Manifest, Port, PortKind},
    context::{ElementSlots, MAX_SEQUENCE_RANK, address},
    error::{Error, Result, Text},
    memory::Memory,
    model::nothing,
    tensor::{Data, TensorMut, TensorRef, Texts},
};
use core::fmt;

/// The caller's inputs.
#[derive(Clone, Copy)]
pub(crate) enum Inputs<'a> {
    Named(&'a [(&'a str, TensorRef<'a>)]),
    InOrder(&'a [TensorRef<'a>]),
}

impl<'a> Inputs<'a> {
    pub(crate) fn check_count(&self, manifest: Manifest<'_>) -> Result<()> {
        let expected = manifest.inputs().len();
        match self {
            Inputs::Named(named) if named.len() != expected => Err(self.mismatch(manifest)),
            Inputs::InOrder(tensors) if tensors.len() != expected => Err(Error::InputCount {
                expected,
                found: tensors.len(),
                known: Text::list(manifest.inputs().map(|port| port.name)),
            }),
            _ => Ok(()),
        }
    }

    /// The input at this position of the manifest. Looks at the same position first, so that finding all inputs is
    /// linear if they are in order.
    pub(crate) fn get(&self, position: usize, name: &str) -> Option<&'a TensorRef<'a>> {
        match self {
            Inputs::Named(named) => match named.get(position) {
                Some((here, tensor)) if *here == name => Some(tensor),
                _ => named.iter().find(|(there, _)| *there == name).map(|(_, tensor)| tensor),
            },
            Inputs::InOrder(tensors) => tensors.get(position),
        }
    }

    /// The error for names that do not match the model.
    pub(crate) fn mismatch(&self, manifest: Manifest<'_>) -> Error {
        let names = || manifest.inputs().map(|port| port.name);
        let Inputs::Named(named) = self else { return Error::Internal { what: "inputs in order have no names" } };
        for (at, (name, _)) in named.iter().enumerate() {
            if !names().any(|known| known == *name) {
                return Error::UnknownName { what: "input", name: Text::new(name), known: Text::list(names()) };
            }
            if named[..at].iter().any(|(before, _)| before == name) {
                return Error::DuplicateName { what: "input", name: Text::new(name) };
            }
        }
        let missing = names().find(|known| !named.iter().any(|(name, _)| name == known));
        Error::MissingInput { name: Text::new(missing.unwrap_or_default()) }
    }

    /// Whether the address is within the data of an input.
    pub(crate) fn contain(&self, address: u64) -> bool {
        let Ok(address) = usize::try_from(address) else { return false };
        match self {
            Inputs::Named(named) => named.iter().any(|(_, tensor)| tensor.contains(address)),
            Inputs::InOrder(tensors) => tensors.iter().any(|tensor| tensor.contains(address)),
        }
    }
}

/// Checks an input, writes its sizes, and returns the address of its data.
///
/// # Safety
/// `sizes` has room for as many sizes as the port has axes.
pub(crate) unsafe fn input<M: Memory>(
    memory: &mut M,
    port: &Port<'_>,
    tensor: &TensorRef<'_>,
    sizes: *mut i64,
) -> Result<u64> {
    let place = Where::Port(port.name);
    let expected = Expected { dtype: port.dtype, dims: port.dims };
    match port.kind {
        // SAFETY: the rank of the tensor is checked before its sizes are written.
        PortKind::Tensor => unsafe { bind_tensor(memory, &place, expected, tensor, sizes) },
        PortKind::Sequence { depth } => bind_sequence(memory, &place, expected, depth, tensor),
    }
}

/// Whether the buffer has the type of this output; whether it is large enough is known only after running.
pub(crate) fn check_buffer(port: &Port<'_>, buffer: &TensorMut<'_>) -> Result<()> {
    let name = || Text::new(port.name);
    if port.kind != PortKind::Tensor || port.dtype == DType::Str {
        let expected = if port.kind == PortKind::Tensor { "a tensor of strings" } else { "a sequence" };
        return Err(Error::Kind { name: name(), expected, found: "a buffer for numbers" });
    }
    if port.dtype != buffer.dtype {
        return Err(Error::ElementType { name: name(), expected: port.dtype, found: buffer.dtype });
    }
    if !buffer.start.addr().is_multiple_of(port.dtype.size()) {
        return Err(Error::Alignment { name: name(), needed: port.dtype.size() });
    }
    Ok(())
}

/// The input that an error is about.
enum Where<'a> {
    Port(&'a str),
    Element(&'a Where<'a>, usize),
}

impl fmt::Display for Where<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Where::Port(name) => f.write_str(name),
            Where::Element(parent, position) => write!(f, "{parent}[{position}]"),
        }
    }
}

/// The expected tensor type. `dims` is `None` within sequences of open rank.
#[derive(Clone, Copy)]
struct Expected<'a> {
    dtype: DType,
    dims: Option<Dims<'a>>,
}

/// # Safety
/// `sizes` has room for the expected rank, or for [`MAX_SEQUENCE_RANK`] if that is open.
unsafe fn bind_tensor<M: Memory>(
    memory: &mut M,
    place: &Where<'_>,
    expected: Expected<'_>,
    tensor: &TensorRef<'_>,
    sizes: *mut i64,
) -> Result<u64> {
    let name = || Text::new(place);
    let found = match tensor.data {
        Data::Plain { dtype, .. } => dtype,
        Data::Texts(_) => DType::Str,
        Data::Sequence(_) => return Err(Error::Kind { name: name(), expected: "a tensor", found: "a sequence" }),
    };
    if found != expected.dtype {
        return Err(Error::ElementType { name: name(), expected: expected.dtype, found });
    }
    let shape = tensor.shape;
    let rank = expected.dims.map_or(shape.len().min(MAX_SEQUENCE_RANK), |dims| dims.len());
    if rank != shape.len() {
        return Err(Error::Rank { name: name(), expected: rank, found: shape.len() });
    }
    for (axis, (dim, &size)) in expected.dims.into_iter().flatten().zip(shape).enumerate() {
        match dim {
            Dim::Fixed(expected) if expected != size as u64 => {
                return Err(Error::Size { name: name(), axis, expected, found: size as u64 });
            }
            _ => {}
        }
    }
    let Some(count) = element_count(shape, found.size()) else { return Err(Error::TooLarge { name: name() }) };
    for (axis, &size) in shape.iter().enumerate() {
        let size = size as i64;
        // SAFETY: the shape has the expected number of axes.
        unsafe { sizes.add(axis).write(size) };
    }
    let wrong_count = |unit: &'static str, expected: usize, found: usize| Error::Count {
        name: name(),
        unit,
        expected: expected as u64,
        found: found as u64,
    };
    match tensor.data {
        Data::Plain { dtype: DType::Str, .. } => {
            Err(Error::Kind { name: name(), expected: "a tensor of strings", found: "raw bytes" })
        }
        Data::Plain { dtype, bytes } => {
            let size = dtype.size();
            if bytes.len() != count * size {
                let whole = bytes.len().is_multiple_of(size);
                return Err(if whole {
                    wrong_count("elements", count, bytes.len() / size)
                } else {
                    wrong_count("bytes", count * size, bytes.len())
                });
            }
            if bytes.is_empty() {
                return Ok(address(nothing()));
            }
            if !bytes.as_ptr().addr().is_multiple_of(size) {
                return Err(Error::Alignment { name: name(), needed: size });
            }
            Ok(address(bytes.as_ptr()))
        }
        Data::Texts(texts) if texts.len() != count => Err(wrong_count("elements", count, texts.len())),
        Data::Texts(texts) => bind_texts(memory, texts),
        Data::Sequence(_) => Err(Error::Kind { name: name(), expected: "a tensor", found: "a sequence" }),
    }
}

/// Addresses, followed by what they point to: the length and the bytes of each text.
fn bind_texts<M: Memory>(memory: &mut M, texts: Texts<'_>) -> Result<u64> {
    let text_bytes = |text: &[u8]| 8 + text.len().next_multiple_of(8);
    let content: usize = texts.bytes().map(text_bytes).sum();
    let addresses = texts.len().max(1) * 8;
    let block = allocate(memory, addresses + content)?;
    // SAFETY: the block has room for all addresses and texts.
    unsafe {
        // One entry more: code may read the first text of an empty tensor.
        block.cast::<u64>().write(address(nothing()));
        let mut at = block.add(addresses);
        for (position, text) in texts.bytes().enumerate() {
            block.cast::<u64>().add(position).write(address(at));
            at.cast::<i64>().write(text.len() as i64);
            at.add(8).copy_from_nonoverlapping(text.as_ptr(), text.len());
            at = at.add(text_bytes(text));
        }
    }
    Ok(address(block))
}

/// The length, followed by the elements.
fn bind_sequence<M: Memory>(
    memory: &mut M,
    place: &Where<'_>,
    expected: Expected<'_>,
    depth: u8,
    tensor: &TensorRef<'_>,
) -> Result<u64> {
    let Data::Sequence(elements) = tensor.data else {
        return Err(Error::Kind { name: Text::new(place), expected: "a sequence", found: "a tensor" });
    };
    // One element more: code may read the first element of an empty sequence.
    let block = allocate(memory, 8 + (elements.len() + 1) * size_of::<ElementSlots>())?;
    // SAFETY: the block has room for the length and all elements.
    unsafe {
        block.cast::<i64>().write(elements.len() as i64);
        let first = block.add(8).cast::<ElementSlots>();
        first.add(elements.len()).write(ElementSlots {
            data: address(nothing()),
            rank: 0,
            sizes: [0; MAX_SEQUENCE_RANK],
        });
        for (position, element) in elements.iter().enumerate() {
            let place = Where::Element(place, position);
            let mut slots = ElementSlots { data: 0, rank: -1, sizes: [0; MAX_SEQUENCE_RANK] };
            if depth > 1 {
                slots.data = bind_sequence(memory, &place, expected, depth - 1, element)?;
            } else {
                if element.shape.len() > MAX_SEQUENCE_RANK {
                    let found = element.shape.len();
                    return Err(Error::Rank { name: Text::new(place), expected: MAX_SEQUENCE_RANK, found });
                }
                slots.data = bind_tensor(memory, &place, expected, element, slots.sizes.as_mut_ptr())?;
                slots.rank = element.shape.len() as i64;
            }
            first.add(position).write(slots);
        }
    }
    Ok(address(block))
}

fn allocate<M: Memory>(memory: &mut M, bytes: usize) -> Result<*mut u8> {
    let block = memory.alloc(bytes);
    if block.is_null() { Err(Error::OutOfMemory { bytes: bytes as u64 }) } else { Ok(block) }
}

/// Nothing in memory is larger, and compiled code relies on that when it computes with sizes.
const MAX_BYTES: u64 = 1 << 47;

/// The number of elements of a tensor that fits in memory. For a tensor without elements, the other axes are bounded as
/// if it had some.
fn element_count(shape: &[usize], element: usize) -> Option<usize> {
    let bytes = shape.iter().try_fold(element as u64, |bytes, &size| bytes.checked_mul(size.max(1) as u64));
    bytes.filter(|&bytes| bytes <= MAX_BYTES && usize::try_from(bytes).is_ok())?;
    Some(shape.iter().product())
}
