//! Lays out pieces of code in one image and resolves references between them.
use crate::{Code, Error, LinkKind, Result};

/// Position-independent machine code that must be loaded at a multiple of [`Image::ALIGN`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub bytes: Vec<u8>,
    /// Where each function starts.
    pub offsets: Vec<u64>,
}

impl Image {
    /// AArch64 addresses pages.
    pub const ALIGN: u64 = 4096;
}

/// Links the functions of a module, given in order of their positions.
pub fn link(codes: &[Code]) -> Result<Image> {
    let mut image = Image { bytes: vec![], offsets: vec![] };
    for code in codes {
        if !code.align.is_power_of_two() || code.align > Image::ALIGN {
            return Err(Error::Link(format!("a function aligned to {} bytes", code.align)));
        }
        let start = (image.bytes.len() as u64).next_multiple_of(code.align);
        image.bytes.resize(start as usize, 0);
        image.bytes.extend_from_slice(&code.bytes);
        image.offsets.push(start);
    }
    for (code, start) in codes.iter().zip(image.offsets.clone()) {
        for link in &code.links {
            let missing = || Error::Link(format!("there is no function {}", link.to.0));
            let to = *image.offsets.get(link.to.0 as usize).ok_or_else(missing)? as i64 + link.addend;
            let at = start + link.offset;
            let distance = to - at as i64;
            let bytes = &mut image.bytes;
            match link.kind {
                LinkKind::Pc32 => patch(bytes, at, Field::Word32, distance)?,
                LinkKind::Branch26 => patch(bytes, at, Field::Branch26, distance)?,
                LinkKind::Page21 => patch(bytes, at, Field::Adr21, (to >> 12) - (at as i64 >> 12))?,
                LinkKind::Low12 => patch(bytes, at, Field::Low12, to & 0xfff)?,
                LinkKind::PcHigh20Low12 => {
                    patch(bytes, at, Field::Upper20, distance)?;
                    patch(bytes, at + 4, Field::Lower12, distance)?;
                }
                LinkKind::PcHigh20 => patch(bytes, at, Field::Upper20, distance)?,
                LinkKind::PcLow12 => patch(bytes, at, Field::Lower12, distance)?,
            }
        }
    }
    Ok(image)
}

/// A field of an instruction or word that holds a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Word32,
    /// AArch64 `b` and `bl`: in words.
    Branch26,
    /// AArch64 `adr` and `adrp`: in their own unit.
    Adr21,
    /// AArch64 literal loads and conditional branches: in words.
    Literal19,
    /// AArch64 `add`.
    Low12,
    /// RISC-V `auipc`: rounded, because the lower half is signed.
    Upper20,
    /// RISC-V, the lower half in an instruction that loads or adds, or in one that stores.
    Lower12,
    Lower12Store,
    /// RISC-V conditional and unconditional jumps.
    RiscvBranch,
    RiscvJump,
}

/// Writes a number into a field, if it fits.
pub(crate) fn patch(bytes: &mut [u8], at: u64, field: Field, value: i64) -> Result<()> {
    let word = usize::try_from(at).ok().and_then(|at| bytes.get_mut(at..at.checked_add(4)?));
    let Some(word) = word else { return Err(Error::Link(format!("a reference at {at} is outside of the code"))) };
    let fits = |bits: u32, unit: i64| {
        let limit = 1i64 << (bits - 1);
        if value % unit != 0 || !(-limit..limit).contains(&(value / unit)) {
            return Err(Error::Link(format!("a distance of {value} bytes is too far for {field:?}")));
        }
        Ok(value / unit)
    };
    // The bits of the instruction, and their new value.
    let v = value as u32;
    let (mask, new) = match field {
        Field::Word32 => (u32::MAX, fits(32, 1)? as u32),
        Field::Branch26 => (0x03ff_ffff, fits(26, 4)? as u32 & 0x03ff_ffff),
        Field::Adr21 => {
            let v = fits(21, 1)? as u32;
            (0x60ff_ffe0, (v & 3) << 29 | (v >> 2 & 0x7_ffff) << 5)
        }
        Field::Literal19 => (0x00ff_ffe0, (fits(19, 4)? as u32 & 0x7_ffff) << 5),
        Field::Low12 => (0x003f_fc00, (v & 0xfff) << 10),
        Field::Upper20 => {
            // The lower half is signed, so the range is shifted by half its size.
            let rounded = value + 0x800;
            if !(-(1i64 << 31)..1i64 << 31).contains(&rounded) {
                return Err(Error::Link(format!("a distance of {value} bytes is too far for {field:?}")));
            }
            (0xffff_f000, rounded as u32 & 0xffff_f000)
        }
        Field::Lower12 => (0xfff0_0000, (v & 0xfff) << 20),
        Field::Lower12Store => (0xfe00_0f80, (v >> 5 & 0x7f) << 25 | (v & 0x1f) << 7),
        Field::RiscvBranch => {
            let v = (fits(12, 2)? * 2) as u32;
            (0xfe00_0f80, (v >> 12 & 1) << 31 | (v >> 5 & 0x3f) << 25 | (v >> 1 & 0xf) << 8 | (v >> 11 & 1) << 7)
        }
        Field::RiscvJump => {
            let v = (fits(20, 2)? * 2) as u32;
            let low = (v >> 12 & 0xff) << 12 | (v >> 11 & 1) << 20;
            (0xffff_f000, (v >> 20 & 1) << 31 | (v >> 1 & 0x3ff) << 21 | low)
        }
    };
    let old = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
    word.copy_from_slice(&(old & !mask | new).to_le_bytes());
    Ok(())
}
