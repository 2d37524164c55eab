//! Which nodes of the user's model each launch of a kernel computes, and which ones no launch is needed for. Read in
//! place. Encoded as `read.rs` says, in order:
//!
//! ```text
//! nodes [name text, operator text]
//! launches [kernel u32, nodes [u32]], in the order in which the entry has them
//! entry [u32]: nodes that the entry function computes by itself
//! folded [u32]: nodes of which nothing is left: known when compiling, made of nothing but sizes, or needed by nobody
//! ```
use super::read::{Item, List, Offset, Reader};
use crate::error::{Error, Result};

/// A node of the user's model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedNode<'a> {
    /// No other node of the model has this name.
    pub name: &'a str,
    pub operator: &'a str,
}

/// A place where the entry function runs a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedLaunch<'a> {
    /// Which of the manifest's kernels.
    pub kernel: u32,
    /// The nodes that it computes, or helps to compute.
    pub nodes: List<'a, u32>,
}

/// Where the parts of a compiled model come from.
#[derive(Clone, Copy, Debug)]
pub struct NodeNames<'a> {
    bytes: &'a [u8],
    nodes: Offset,
    launches: Offset,
    entry: Offset,
    folded: Offset,
}

impl<'a> NodeNames<'a> {
    /// Check a section of names from end to end.
    pub fn parse(bytes: &'a [u8]) -> Result<NodeNames<'a>> {
        NodeNames::read(bytes).ok_or(Error::Malformed { what: "names" })
    }

    fn read(bytes: &'a [u8]) -> Option<NodeNames<'a>> {
        // Places are 32 bits.
        u32::try_from(bytes.len()).ok()?;
        let mut reader = Reader::new(bytes);
        let names = NodeNames {
            bytes,
            nodes: reader.skip_list::<NamedNode<'_>>()?,
            launches: reader.skip_list::<NamedLaunch<'_>>()?,
            entry: reader.skip_list::<u32>()?,
            folded: reader.skip_list::<u32>()?,
        };
        let count = names.nodes().len();
        let inside = |all: List<'_, u32>| all.into_iter().all(|node| (node as usize) < count);
        let valid = inside(names.entry()) && inside(names.folded()) && names.launches().all(|l| inside(l.nodes));
        (valid && reader.is_at_end()).then_some(names)
    }

    /// All nodes that are mentioned; the lists have positions in this one.
    pub fn nodes(&self) -> List<'a, NamedNode<'a>> {
        self.list(self.nodes)
    }

    pub fn launches(&self) -> List<'a, NamedLaunch<'a>> {
        self.list(self.launches)
    }

    /// What the entry function computes by itself: control flow, sizes that depend on data, sequences.
    pub fn entry(&self) -> List<'a, u32> {
        self.list(self.entry)
    }

    /// What is not computed when the model runs.
    pub fn folded(&self) -> List<'a, u32> {
        self.list(self.folded)
    }

    fn list<T>(&self, at: Offset) -> List<'a, T> {
        Reader::at(self.bytes, at).start()
    }
}

impl<'a> Item<'a> for NamedNode<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<NamedNode<'a>> {
        Some(NamedNode { name: reader.text()?, operator: reader.text()? })
    }
}

impl<'a> Item<'a> for NamedLaunch<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<NamedLaunch<'a>> {
        Some(NamedLaunch { kernel: reader.u32()?, nodes: reader.list()? })
    }
}
