//! The interpreter's memory: regions that know their bounds. A pointer is a number, so that it can be stored and
//! computed with: the region in its upper bits and the offset, from the middle of what the lower bits can say, in the
//! others. A pointer may so leave its region either way and come back, but never reaches another one.
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Pointer(pub u64);

impl Pointer {
    pub const NULL: Pointer = Pointer(0);

    #[must_use]
    pub fn offset(self, bytes: i64) -> Pointer {
        Pointer(self.0.wrapping_add_signed(bytes))
    }

    fn new(region: usize) -> Pointer {
        Pointer((region as u64) << OFFSET_BITS | START)
    }

    fn region(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize
    }

    fn position(self) -> i64 {
        (self.0 & ((1 << OFFSET_BITS) - 1)).wrapping_sub(START) as i64
    }
}

impl fmt::Debug for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => write!(f, "null"),
            _ => write!(f, "byte {} of region {}", self.position(), self.region()),
        }
    }
}

const OFFSET_BITS: u32 = 40;
/// Where in the lower bits a region starts; a multiple of every alignment.
const START: u64 = 1 << (OFFSET_BITS - 1);
/// All regions together hold no more than this.
const MAX_BYTES: usize = 1 << 31;

/// What may be done with a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    Read,
    Write,
    /// Write, and give back by the program.
    Own,
    /// Nothing any more.
    Gone,
}

#[derive(Debug)]
struct Region {
    bytes: Vec<u8>,
    allows: Use,
}

#[derive(Debug)]
pub(super) struct Memory {
    /// The first is not used, so that null is in no region.
    regions: Vec<Region>,
    used: usize,
}

impl Memory {
    pub(super) fn new() -> Memory {
        Memory { regions: vec![Region { bytes: vec![], allows: Use::Gone }], used: 0 }
    }

    pub(super) fn alloc(&mut self, bytes: usize, allows: Use) -> Result<Pointer, String> {
        let used = self.used.checked_add(bytes).filter(|&used| used <= MAX_BYTES);
        let region = self.regions.len();
        if used.is_none() || region >> (64 - OFFSET_BITS) != 0 {
            return Err(format!("no memory for {bytes} bytes more"));
        }
        self.used += bytes;
        self.regions.push(Region { bytes: vec![0; bytes], allows });
        Ok(Pointer::new(region))
    }

    /// Make a region at least this large; what it holds stays.
    pub(super) fn grow(&mut self, pointer: Pointer, bytes: usize) -> Result<(), String> {
        let region = self.regions.get_mut(pointer.region()).ok_or("no such region")?;
        let more = bytes.saturating_sub(region.bytes.len());
        if more > MAX_BYTES - self.used {
            return Err(format!("no memory for {more} bytes more"));
        }
        self.used += more;
        region.bytes.resize(region.bytes.len() + more, 0);
        Ok(())
    }

    pub(super) fn free(&mut self, pointer: Pointer, allowed: Use) -> Result<(), String> {
        match self.regions.get_mut(pointer.region()) {
            Some(region) if region.allows == allowed && pointer.position() == 0 => {
                self.used -= region.bytes.len();
                *region = Region { bytes: vec![], allows: Use::Gone };
                Ok(())
            }
            Some(Region { allows: Use::Gone, .. }) if pointer != Pointer::NULL => {
                Err(format!("{pointer:?} is given back twice"))
            }
            _ => Err(format!("{pointer:?} cannot be given back")),
        }
    }

    /// The region and the position of so many bytes.
    fn span(&self, pointer: Pointer, size: usize) -> Result<(usize, usize), String> {
        let out = || format!("{size} bytes at {pointer:?}");
        let Some(region) = self.regions.get(pointer.region()).filter(|_| pointer.region() != 0) else {
            return Err(format!("{}, which is not memory", out()));
        };
        if region.allows == Use::Gone {
            return Err(format!("{}, which was given back", out()));
        }
        let held = region.bytes.len();
        match usize::try_from(pointer.position()) {
            Ok(position) if position <= held && size <= held - position => Ok((pointer.region(), position)),
            _ => Err(format!("{}, which has {held} bytes", out())),
        }
    }

    pub(super) fn read(&self, pointer: Pointer, size: usize) -> Result<&[u8], String> {
        let (region, position) = self.span(pointer, size)?;
        Ok(&self.regions[region].bytes[position..position + size])
    }

    pub(super) fn write(&mut self, pointer: Pointer, bytes: &[u8]) -> Result<(), String> {
        let (region, position) = self.span(pointer, bytes.len())?;
        let region = &mut self.regions[region];
        if region.allows == Use::Read {
            return Err(format!("{} bytes at {pointer:?}, which may only be read", bytes.len()));
        }
        region.bytes[position..position + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Set up what the program may only read.
    pub(super) fn alloc_with(&mut self, bytes: &[u8], allows: Use) -> Result<Pointer, String> {
        let pointer = self.alloc(bytes.len(), allows)?;
        self.regions[pointer.region()].bytes.copy_from_slice(bytes);
        Ok(pointer)
    }

    /// One number of a power of two of bytes, aligned to them.
    pub(super) fn load(&self, pointer: Pointer, size: usize) -> Result<u64, String> {
        aligned(pointer, size)?;
        let mut bits = [0; 8];
        bits[..size].copy_from_slice(self.read(pointer, size)?);
        Ok(u64::from_le_bytes(bits))
    }

    pub(super) fn store(&mut self, pointer: Pointer, size: usize, bits: u64) -> Result<(), String> {
        aligned(pointer, size)?;
        self.write(pointer, &bits.to_le_bytes()[..size])
    }
}

fn aligned(pointer: Pointer, size: usize) -> Result<(), String> {
    if pointer.0.is_multiple_of(size as u64) {
        Ok(())
    } else {
        Err(format!("{size} bytes at {pointer:?}, which is misaligned"))
    }
}
