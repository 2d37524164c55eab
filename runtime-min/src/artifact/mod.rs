//! The artifact: one file with manifest, code and weights, made to be mapped into memory.
//!
//! ```text
//!    0  magic                          8 bytes
//!    8  format version (2)             u32
//!   12  architecture                   u32
//!   16  length                         u64
//!   24  number of sections             u32
//!   28  how many versions follow       u32
//!   32  section table, for each: kind u32, how it is kept u32, offset u64, length u64, checksum u64
//!       checksum of the bytes before   u64
//!       manifest
//!       code, at the next multiple of 4096
//!       names, if there are any, and what else there may be: who does not know a kind can skip it if its flags say so
//!       weights, at the next multiple of 4096, to the end
//! ```
//! A file may hold several versions, the same model for several CPUs: the next one starts like this at the next multiple of 4096.
//!
//! How a section is kept: bit 0, a reader that does not know it may go on without it; bit 1, it is compared with its
//! checksum on request only; bits 8 to 15, the logarithm of what its offset is a multiple of.
//!
//! All numbers are little-endian. Bytes between sections are 0, and there is exactly one valid place for each section, so
//! every changed byte is noticed. Weights come last in a version and are checked on request only: loading takes the same time for any size.
mod checksum;
mod manifest;
mod names;
mod read;
mod sections;
#[cfg(feature = "write")]
mod write;

pub use checksum::{Checksum, checksum};
pub use manifest::{Dim, Dims, Kernel, Kernels, Labels, Manifest, Names, Port, PortKind, Ports, Size};
pub use names::{NamedLaunch, NamedNode, NodeNames};
pub use read::List;
pub use sections::{Section, kind};
#[cfg(feature = "write")]
pub use write::{
    Addition, Builder, Content, DimSpec, KernelSpec, LabelsSpec, LaunchSpec, ManifestSpec, NamesSpec, NodeSpec, Piece,
    PortSpec, PortTypeSpec, SizeSpec,
};

use crate::error::{Error, Result};
pub(crate) use manifest::Index;
use sections::{MOST, Sections, header_bytes};

pub const MAGIC: [u8; 8] = *b"NUMRSC\0\x01";
/// Changes with every change of the layout, the manifest or the run context.
pub const FORMAT_VERSION: u32 = 2;
/// Sections that are mapped start at multiples of this.
pub const PAGE: u64 = 4096;
/// Compiled code relies on weights and memory starting at multiples of this.
pub const DATA_ALIGN: usize = 64;

/// What machine code is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Architecture {
    X86_64 = 1,
    Aarch64 = 2,
    Riscv64 = 3,
    Arm = 4,
    Wasm32 = 5,
    Riscv32 = 6,
}

impl Architecture {
    pub const ALL: [Architecture; 6] = [
        Architecture::X86_64,
        Architecture::Aarch64,
        Architecture::Riscv64,
        Architecture::Arm,
        Architecture::Wasm32,
        Architecture::Riscv32,
    ];

    /// The architecture as the first part of a target triple.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64",
            Architecture::Aarch64 => "aarch64",
            Architecture::Riscv64 => "riscv64",
            Architecture::Arm => "arm",
            Architecture::Wasm32 => "wasm32",
            Architecture::Riscv32 => "riscv32",
        }
    }

    pub fn from_number(number: u32) -> Option<Architecture> {
        Architecture::ALL.into_iter().find(|architecture| *architecture as u32 == number)
    }

    /// The architecture of this program, if code can be compiled for it.
    pub fn host() -> Option<Architecture> {
        match () {
            () if cfg!(target_arch = "x86_64") => Some(Architecture::X86_64),
            () if cfg!(target_arch = "aarch64") => Some(Architecture::Aarch64),
            () if cfg!(target_arch = "riscv64") => Some(Architecture::Riscv64),
            () if cfg!(target_arch = "arm") => Some(Architecture::Arm),
            () if cfg!(target_arch = "wasm32") => Some(Architecture::Wasm32),
            () if cfg!(target_arch = "riscv32") => Some(Architecture::Riscv32),
            () => None,
        }
    }
}

/// An artifact in memory, checked except for its weights. It may be for any machine.
#[derive(Debug, Clone, Copy)]
pub struct Artifact<'a> {
    pub architecture: Architecture,
    pub manifest: Manifest<'a>,
    pub code: &'a [u8],
    /// Where the code starts in the file.
    pub code_offset: u64,
    pub weights: &'a [u8],
    sections: Sections<'a>,
}

impl<'a> Artifact<'a> {
    /// Checks and splits the bytes of a file; of several versions, the first. Weights are not read.
    pub fn parse(bytes: &'a [u8]) -> Result<Artifact<'a>> {
        Artifact::parse_first(bytes).map(|(artifact, _)| artifact)
    }

    /// All versions that a file holds, up to the first error.
    pub fn versions(file: &'a [u8]) -> impl Iterator<Item = Result<Artifact<'a>>> {
        let mut next = Some(Rest { bytes: file, versions: 0 });
        core::iter::from_fn(move || {
            let here = next.take()?;
            let start = (file.len() - here.bytes.len()) as u64;
            Some(Artifact::parse_first(here.bytes).and_then(|(artifact, rest)| {
                if start > 0 && rest.versions + 1 != here.versions {
                    return Err(Error::Malformed { what: "number of versions" });
                }
                next = (rest.versions > 0).then_some(rest);
                Ok(Artifact { code_offset: start + artifact.code_offset, ..artifact })
            }))
        })
    }

    fn parse_first(bytes: &'a [u8]) -> Result<(Artifact<'a>, Rest<'a>)> {
        let number = |at: usize| read_u64(bytes, at);
        let half = |at: usize| number(at).map(|pair| pair as u32);
        if bytes.get(..MAGIC.len()) != Some(&MAGIC[..]) {
            return Err(Error::NotAnArtifact);
        }
        let cut = |expected: usize| Error::Length { expected: expected as u64, found: bytes.len() as u64 };
        let version = half(8).unwrap_or(FORMAT_VERSION);
        if version != FORMAT_VERSION {
            return Err(Error::Version { found: version, supported: FORMAT_VERSION });
        }
        let count = half(24).ok_or(cut(header_bytes(3)))? as usize;
        if count > MOST {
            return Err(Error::Damaged { part: "header" });
        }
        let header = header_bytes(count);
        let sum = number(header - 8).ok_or(cut(header))?;
        if sum != checksum(&bytes[..header - 8]) {
            return Err(Error::Damaged { part: "header" });
        }
        // From here on a mismatch means a malformed file rather than damaged storage, except for the length.
        let (length, following) = (number(16).unwrap_or(0), half(28).unwrap_or(0));
        let (bytes, rest) = split_version(bytes, length, following)?;
        let architecture =
            half(12).and_then(Architecture::from_number).ok_or(Error::Malformed { what: "unknown architecture" })?;
        let sections = Sections::parse(bytes, count)?;
        let part = |kind| sections.find(kind).ok_or(Error::Malformed { what: "a section is missing" });
        let (manifest, code, weights) = (part(kind::MANIFEST)?, part(kind::CODE)?, part(kind::WEIGHTS)?);

        let manifest = Manifest::parse(manifest.bytes)?;
        let (code_offset, code, weights) = (code.offset, code.bytes, weights.bytes);
        let within = |offset: u64, length: u64| offset.checked_add(length).is_some_and(|end| end <= code.len() as u64);
        if manifest.entry() >= code.len() as u64 {
            return Err(Error::Malformed { what: "the entry is outside of the code" });
        }
        if manifest.kernels().any(|kernel| !within(kernel.offset, kernel.length)) {
            return Err(Error::Malformed { what: "a kernel is outside of the code" });
        }
        if manifest.weights_bytes() != weights.len() as u64 {
            return Err(Error::Malformed { what: "size of the weights" });
        }
        let rest = Rest { bytes: rest, versions: following };
        Ok((Artifact { architecture, manifest, code, code_offset, weights, sections }, rest))
    }

    /// Compares the weights with their checksum, which reads all of them.
    pub fn verify_weights(&self) -> Result<()> {
        self.sections.find(kind::WEIGHTS).map_or(Ok(()), |weights| weights.verify())
    }

    /// Which nodes of the user's model it was made of, unless that was left out.
    pub fn names(&self) -> Result<Option<NodeNames<'a>>> {
        self.section(kind::NAMES).map(|section| NodeNames::parse(section.bytes)).transpose()
    }

    /// All sections, also those of kinds that are not known here.
    pub fn sections(&self) -> impl Iterator<Item = Section<'a>> {
        self.sections.iter()
    }

    pub fn section(&self, kind: u32) -> Option<Section<'a>> {
        self.sections.find(kind)
    }
}

/// The bytes after a version.
struct Rest<'a> {
    bytes: &'a [u8],
    versions: u32,
}

/// The bytes of the first version and those of the others.
fn split_version(bytes: &[u8], length: u64, following: u32) -> Result<(&[u8], &[u8])> {
    let end = if following == 0 { Some(length) } else { length.checked_next_multiple_of(PAGE) };
    let found = bytes.len() as u64;
    match end {
        Some(end) if end < found && following > 0 || end == found && following == 0 => {
            let ((version, padding), rest) = (bytes[..end as usize].split_at(length as usize), &bytes[end as usize..]);
            if padding.iter().any(|&byte| byte != 0) {
                return Err(Error::Damaged { part: "padding" });
            }
            Ok((version, rest))
        }
        _ => Err(Error::Length { expected: length, found }),
    }
}

fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk::<8>().map(|word| u64::from_le_bytes(*word))
}
