//! The manifest, read in place: checked once from end to end, then walked by iterators that allocate nothing.
//!
//! Encoded as `read.rs` says. In order:
//!
//! ```text
//! format version u32 · model text · producer text · target triple text · CPU features [text] · entry u64
//! inputs [port] · outputs [port] · symbols [text] · arena size · peak size · weights u64 · flags u8
//! failure messages [text] · kernels [name text, offset u64, length u64]
//! and, if a flag says that there are any, labels [output u32, kind u8 (0: integers, 1: texts), [i64] or [text]]
//!
//! port = name text, depth u8 (0 for a tensor), element type i32, rank known u8, dims [dim], type text
//! dim  = 0 u8, u64 | 1 u8, formula text | 2 u8 (any)
//! size = 0 u8, u64 | 1 u8, formula text
//! ```
use super::{
    FORMAT_VERSION,
    read::{Item, List, Offset, Reader},
};
use crate::{
    DType,
    error::{Error, Result},
};
use core::fmt;

/// What a compiled model is: its inputs and outputs, its needs, its parts.
#[derive(Clone, Copy)]
pub struct Manifest<'a> {
    bytes: &'a [u8],
    index: Index,
}

/// An input or output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port<'a> {
    pub name: &'a str,
    pub kind: PortKind,
    /// The element type of the tensor, or of the tensors within the sequence.
    pub dtype: DType,
    /// The sizes of the tensor, or what all tensors within the sequence have in common; `None` if not even the rank is
    /// known.
    pub dims: Option<Dims<'a>>,
    /// The whole type as text, for people.
    pub type_text: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    Tensor,
    /// Depth 1 is a sequence of tensors, 2 a sequence of such sequences.
    Sequence {
        depth: u8,
    },
}

/// What is known about the size of an axis before running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dim<'a> {
    Fixed(u64),
    /// In terms of the model's symbols, such as `batch*12`.
    Formula(&'a str),
    /// Within sequences: differs between elements.
    Any,
}

/// The meaning of the entries along the last axis of an output, such as the classes of a table of probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels<'a> {
    Integers(List<'a, i64>),
    Texts(Names<'a>),
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size<'a> {
    Fixed(u64),
    Formula(&'a str),
}

/// A kernel's place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel<'a> {
    pub name: &'a str,
    pub offset: u64,
    pub length: u64,
}

pub type Names<'a> = List<'a, &'a str>;
pub type Ports<'a> = List<'a, Port<'a>>;
pub type Dims<'a> = List<'a, Dim<'a>>;
pub type Kernels<'a> = List<'a, Kernel<'a>>;

impl<'a> Manifest<'a> {
    /// Check a manifest from end to end.
    pub fn parse(bytes: &'a [u8]) -> Result<Manifest<'a>> {
        let mut reader = Reader::new(bytes);
        let index = Index::read(&mut reader).ok_or(Error::Malformed { what: "manifest" })?;
        if index.version != FORMAT_VERSION {
            return Err(Error::Version { found: index.version, supported: FORMAT_VERSION });
        }
        if !reader.is_at_end() {
            return Err(Error::Malformed { what: "bytes after the manifest" });
        }
        Ok(Manifest { bytes, index })
    }

    /// Reads bytes that were parsed before.
    pub(crate) fn from_index(bytes: &'a [u8], index: Index) -> Manifest<'a> {
        Manifest { bytes, index }
    }

    #[cfg(feature = "std")]
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn index(&self) -> Index {
        self.index
    }

    pub fn model(&self) -> &'a str {
        self.text(self.index.model)
    }

    /// The compiler that wrote the model, with its version.
    pub fn producer(&self) -> &'a str {
        self.text(self.index.producer)
    }

    pub fn target_triple(&self) -> &'a str {
        self.text(self.index.triple)
    }

    pub fn cpu_features(&self) -> Names<'a> {
        self.list(self.index.features)
    }

    /// Offset of the entry function in the code.
    pub fn entry(&self) -> u64 {
        self.index.entry
    }

    pub fn inputs(&self) -> Ports<'a> {
        self.list(self.index.inputs)
    }

    pub fn outputs(&self) -> Ports<'a> {
        self.list(self.index.outputs)
    }

    /// The labels of the output at a position, if it has any.
    pub fn labels(&self, output: usize) -> Option<Labels<'a>> {
        let mut all: List<'a, Labelled<'a>> = self.list(self.index.labels?);
        all.find(|one| one.output as usize == output).map(|one| one.labels)
    }

    /// The symbols in which sizes are expressed.
    pub fn symbols(&self) -> Names<'a> {
        self.list(self.index.symbols)
    }

    /// Size of the arena: memory for everything between inputs and outputs.
    pub fn arena(&self) -> Size<'a> {
        self.size(self.index.arena)
    }

    /// The most memory that a run takes besides inputs and weights.
    pub fn peak(&self) -> Size<'a> {
        self.size(self.index.peak)
    }

    pub fn weights_bytes(&self) -> u64 {
        self.index.weights
    }

    /// Whether a run allocates memory whose size depends on data.
    pub fn needs_heap(&self) -> bool {
        self.index.flags & NEEDS_HEAP != 0
    }

    /// Whether the code never uses other threads.
    pub fn single_threaded(&self) -> bool {
        self.index.flags & SINGLE_THREADED != 0
    }

    /// Code `c` of compiled code means message `c - 1`.
    pub fn failures(&self) -> Names<'a> {
        self.list(self.index.failures)
    }

    pub fn kernels(&self) -> Kernels<'a> {
        self.list(self.index.kernels)
    }

    fn text(&self, at: Offset) -> &'a str {
        self.reader(at).text().unwrap_or_default()
    }

    fn size(&self, at: Offset) -> Size<'a> {
        Size::read(&mut self.reader(at)).unwrap_or(Size::Fixed(0))
    }

    fn list<T>(&self, at: Offset) -> List<'a, T> {
        self.reader(at).start()
    }

    fn reader(&self, at: Offset) -> Reader<'a> {
        Reader::at(self.bytes, at)
    }
}

impl fmt::Debug for Manifest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manifest")
            .field("model", &self.model())
            .field("producer", &self.producer())
            .field("target_triple", &self.target_triple())
            .field("inputs", &self.inputs())
            .field("outputs", &self.outputs())
            .finish_non_exhaustive()
    }
}

pub(super) const NEEDS_HEAP: u8 = 1;
pub(super) const SINGLE_THREADED: u8 = 2;
pub(super) const HAS_LABELS: u8 = 4;

/// Where the parts of a checked manifest start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Index {
    version: u32,
    model: Offset,
    producer: Offset,
    triple: Offset,
    features: Offset,
    entry: u64,
    inputs: Offset,
    outputs: Offset,
    symbols: Offset,
    arena: Offset,
    peak: Offset,
    weights: u64,
    flags: u8,
    failures: Offset,
    kernels: Offset,
    labels: Option<Offset>,
}

impl Index {
    fn read(reader: &mut Reader<'_>) -> Option<Index> {
        // Offsets have 32 bits, and no manifest is that long.
        u32::try_from(reader.length()).ok()?;
        let mut index = Index {
            version: reader.u32()?,
            model: reader.skip(Reader::text)?,
            producer: reader.skip(Reader::text)?,
            triple: reader.skip(Reader::text)?,
            features: reader.skip_list::<&str>()?,
            entry: reader.u64()?,
            inputs: reader.skip_list::<Port<'_>>()?,
            outputs: reader.skip_list::<Port<'_>>()?,
            symbols: reader.skip_list::<&str>()?,
            arena: reader.skip(Size::read)?,
            peak: reader.skip(Size::read)?,
            weights: reader.u64()?,
            flags: reader.u8()?,
            failures: reader.skip_list::<&str>()?,
            kernels: reader.skip_list::<Kernel<'_>>()?,
            labels: None,
        };
        if index.flags & HAS_LABELS != 0 {
            index.labels = Some(reader.skip_list::<Labelled<'_>>()?);
        }
        (index.flags & !(NEEDS_HEAP | SINGLE_THREADED | HAS_LABELS) == 0).then_some(index)
    }
}

impl<'a> Item<'a> for Size<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<Size<'a>> {
        match reader.u8()? {
            0 => Some(Size::Fixed(reader.u64()?)),
            1 => Some(Size::Formula(reader.text()?)),
            _ => None,
        }
    }
}

/// An output with labels.
struct Labelled<'a> {
    output: u32,
    labels: Labels<'a>,
}

impl<'a> Item<'a> for Labelled<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<Labelled<'a>> {
        let output = reader.u32()?;
        let labels = match reader.u8()? {
            0 => Labels::Integers(reader.list()?),
            1 => Labels::Texts(reader.list()?),
            _ => return None,
        };
        Some(Labelled { output, labels })
    }
}

impl<'a> Item<'a> for Dim<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<Dim<'a>> {
        match reader.u8()? {
            0 => Some(Dim::Fixed(reader.u64()?)),
            1 => Some(Dim::Formula(reader.text()?)),
            2 => Some(Dim::Any),
            _ => None,
        }
    }
}

impl<'a> Item<'a> for Port<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<Port<'a>> {
        let name = reader.text()?;
        let kind = match reader.u8()? {
            0 => PortKind::Tensor,
            depth => PortKind::Sequence { depth },
        };
        let dtype = DType::from_onnx(reader.u32()?.cast_signed())?;
        let rank_known = match reader.u8()? {
            0 if kind != PortKind::Tensor => false,
            1 => true,
            _ => return None,
        };
        let dims = reader.list()?;
        let dims = rank_known.then_some(dims);
        Some(Port { name, kind, dtype, dims, type_text: reader.text()? })
    }
}

impl<'a> Item<'a> for Kernel<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<Kernel<'a>> {
        Some(Kernel { name: reader.text()?, offset: reader.u64()?, length: reader.u64()? })
    }
}
