//! The section table: what a version of a model consists of, and where. A reader finds what it knows by its kind and
//! goes past what it does not know, if the table allows that.
use super::{PAGE, checksum, read_u64};
use crate::error::{Error, Result};

/// The kinds of sections.
pub mod kind {
    /// What the model is; the first section.
    pub const MANIFEST: u32 = 1;
    pub const CODE: u32 = 2;
    /// The last section.
    pub const WEIGHTS: u32 = 3;
    /// Which nodes of the user's model became which launches of kernels.
    pub const NAMES: u32 = 4;
}

/// Where the table starts, and the bytes of a row.
pub(super) const TABLE: usize = 32;
pub(super) const ROW: usize = 32;
/// No version has more sections.
pub(super) const MOST: usize = 64;

/// Who does not know the section can use the model without it.
pub(super) const OPTIONAL: u32 = 1;
/// Loading does not compare the section with its checksum.
pub(super) const ON_REQUEST: u32 = 2;
/// The bits from this one on: the logarithm of what the offset is a multiple of.
const ALIGN: u32 = 8;

/// How a section is kept: flags and alignment as they stand in the table.
#[cfg(feature = "write")]
pub(super) const fn keeping(flags: u32, align: u64) -> u32 {
    flags | align.trailing_zeros() << ALIGN
}

/// The bytes in front of the first of so many sections.
pub(super) const fn header_bytes(sections: usize) -> usize {
    TABLE + sections * ROW + 8
}

/// A part of a version.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    pub kind: u32,
    /// Where it starts in the version.
    pub offset: u64,
    pub bytes: &'a [u8],
    flags: u32,
    checksum: u64,
}

impl Section<'_> {
    /// Compare the bytes with their checksum; reads all of them.
    pub fn verify(&self) -> Result<()> {
        let part = match self.kind {
            kind::MANIFEST => "manifest",
            kind::CODE => "code",
            kind::WEIGHTS => "weights",
            kind::NAMES => "names",
            _ => "additions",
        };
        if checksum(self.bytes) == self.checksum { Ok(()) } else { Err(Error::Damaged { part }) }
    }
}

/// All sections of a version, in their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sections<'a> {
    /// The version, with a table that was checked.
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Sections<'a> {
    /// Check a table, and the sections that are to be checked before anything is used. There is exactly one valid place
    /// for each section, and what lies between is 0, so that every changed byte is noticed.
    pub(super) fn parse(version: &'a [u8], count: usize) -> Result<Sections<'a>> {
        let wrong = |what| Err(Error::Malformed { what });
        let sections = Sections { bytes: version, count };
        let mut end = header_bytes(count) as u64;
        for number in 0..count {
            let Some((section, align)) = sections.row(number) else { return wrong("section table") };
            let stop = section.offset + section.bytes.len() as u64;
            if end.checked_next_multiple_of(align) != Some(section.offset) {
                return wrong("section table");
            }
            if version[end as usize..section.offset as usize].iter().any(|&byte| byte != 0) {
                return Err(Error::Damaged { part: "padding" });
            }
            end = stop;
            let place = match section.kind {
                kind::MANIFEST => number == 0,
                kind::WEIGHTS => number + 1 == count,
                _ => true,
            };
            if !place || sections.iter().take(number).any(|other| other.kind == section.kind) {
                return wrong("order of sections");
            }
            let is_known = (kind::MANIFEST..=kind::NAMES).contains(&section.kind);
            if !is_known && section.flags & OPTIONAL == 0 {
                return Err(Error::UnknownSection { kind: section.kind });
            }
            if section.flags & !(OPTIONAL | ON_REQUEST) != 0 {
                return wrong("flags of a section");
            }
        }
        if end != version.len() as u64 {
            return wrong("section table");
        }
        for section in sections.iter().filter(|s| s.flags & ON_REQUEST == 0) {
            section.verify()?;
        }
        Ok(sections)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Section<'a>> {
        (0..self.count).map_while(move |number| self.row(number).map(|(section, _)| section))
    }

    pub(super) fn find(self, kind: u32) -> Option<Section<'a>> {
        self.iter().find(|section| section.kind == kind)
    }

    /// A section and its alignment, if they make sense.
    fn row(self, number: usize) -> Option<(Section<'a>, u64)> {
        let at = TABLE + number * ROW;
        let (head, offset) = (read_u64(self.bytes, at)?, read_u64(self.bytes, at + 8)?);
        let (length, checksum) = (read_u64(self.bytes, at + 16)?, read_u64(self.bytes, at + 24)?);
        let (kind, keeping) = (head as u32, (head >> 32) as u32);
        let align = 1u64.checked_shl(keeping >> ALIGN).filter(|align| *align <= PAGE)?;
        let bytes = self.bytes.get(usize::try_from(offset).ok()?..)?.get(..usize::try_from(length).ok()?)?;
        Some((Section { kind, offset, bytes, flags: keeping & ((1 << ALIGN) - 1), checksum }, align))
    }
}
