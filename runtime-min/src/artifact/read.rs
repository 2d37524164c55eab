//! What manifest and names are encoded in, read in place: checked once from end to end, then walked by iterators that
//! allocate nothing.
//!
//! Numbers are little-endian, texts are a `u32` length and UTF-8, lists a `u32` count and their items.
use core::{fmt, marker::PhantomData};

/// Where something starts that was checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offset(u32);

/// Consecutive items; also an iterator over those that are left.
#[derive(Clone, Copy)]
pub struct List<'a, T> {
    reader: Reader<'a>,
    count: u32,
    item: PhantomData<T>,
}

#[allow(private_bounds, reason = "what lists can hold is closed")]
impl<'a, T: Item<'a>> Iterator for List<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.count = self.count.checked_sub(1)?;
        T::read(&mut self.reader)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count as usize, Some(self.count as usize))
    }
}

#[allow(private_bounds, reason = "what lists can hold is closed")]
impl<'a, T: Item<'a>> ExactSizeIterator for List<'a, T> {}

impl<'a, T: Item<'a> + PartialEq + Copy> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        (*self).eq(*other)
    }
}

impl<'a, T: Item<'a> + Eq + Copy> Eq for List<'a, T> {}

impl<'a, T: Item<'a> + fmt::Debug + Copy> fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

/// How an item of a list is read; `None` if the bytes are not one.
pub(super) trait Item<'a>: Sized {
    fn read(reader: &mut Reader<'a>) -> Option<Self>;
}

impl<'a> Item<'a> for &'a str {
    fn read(reader: &mut Reader<'a>) -> Option<&'a str> {
        reader.text()
    }
}

impl<'a> Item<'a> for i64 {
    fn read(reader: &mut Reader<'a>) -> Option<i64> {
        reader.u64().map(u64::cast_signed)
    }
}

impl<'a> Item<'a> for u32 {
    fn read(reader: &mut Reader<'a>) -> Option<u32> {
        reader.u32()
    }
}

#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    pub(super) fn at(bytes: &'a [u8], place: Offset) -> Reader<'a> {
        Reader { bytes, at: place.0 as usize }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(super) fn length(&self) -> usize {
        self.bytes.len()
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..)?.get(..length)?;
        self.at += length;
        Some(taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let length = self.u32()? as usize;
        core::str::from_utf8(self.take(length)?).ok()
    }

    /// Checks a part and returns its offset.
    pub(super) fn skip<T>(&mut self, read: impl FnOnce(&mut Reader<'a>) -> Option<T>) -> Option<Offset> {
        let place = Offset(self.at as u32);
        read(self)?;
        Some(place)
    }

    /// A list that is checked here and walked later.
    pub(super) fn list<T: Item<'a>>(&mut self) -> Option<List<'a, T>> {
        let list = self.start();
        self.skip_list::<T>()?;
        Some(list)
    }

    /// A list that was checked before.
    pub(super) fn start<T>(mut self) -> List<'a, T> {
        let count = self.u32().unwrap_or(0);
        List { reader: self, count, item: PhantomData }
    }

    pub(super) fn skip_list<T: Item<'a>>(&mut self) -> Option<Offset> {
        self.skip(|reader| {
            // Every item takes at least a byte, so a wrong count fails soon.
            for _ in 0..reader.u32()? {
                T::read(reader)?;
            }
            Some(())
        })
    }
}
