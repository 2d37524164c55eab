//! The constants of a module and their offsets in the weights section. Packed constants are generated when they are
//! written, part by part: gigabytes of weights are never in memory twice.
use numrsc_ir::{DType, Tensor};
use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    fmt,
    hash::Hasher,
    ops::ControlFlow,
    sync::{Arc, OnceLock},
};

/// Every constant starts at a multiple of this.
const ALIGN: u64 = 64;

/// Receives bytes part by part, and may stop early.
pub type Sink<'s> = dyn FnMut(&[u8]) -> ControlFlow<()> + 's;

/// Generates the bytes of a constant in order, the same each time.
type Make = dyn Fn(&mut Sink<'_>) -> ControlFlow<()> + Send + Sync;

/// A constant as it lies in the weights section.
#[derive(Clone)]
pub struct Stored {
    dtype: DType,
    shape: Vec<usize>,
    content: Content,
}

#[derive(Clone)]
enum Content {
    Plain(Tensor),
    Made(Arc<Make>),
}

impl Stored {
    /// A constant in the order of the model.
    pub(crate) fn plain(value: &Tensor) -> Stored {
        Stored { dtype: value.dtype(), shape: value.shape().to_vec(), content: Content::Plain(value.clone()) }
    }

    /// Elements in a packed order.
    pub(crate) fn made(
        dtype: DType,
        shape: Vec<usize>,
        make: impl Fn(&mut Sink<'_>) -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Stored {
        Stored { dtype, shape, content: Content::Made(Arc::new(make)) }
    }

    /// How many bytes there are.
    pub fn length(&self) -> u64 {
        self.shape.iter().product::<usize>() as u64 * self.dtype.size() as u64
    }

    /// Passes all bytes to `to`, in order.
    pub fn write(&self, to: &mut Sink<'_>) -> ControlFlow<()> {
        match &self.content {
            Content::Plain(value) => to(value.bytes()),
            Content::Made(make) => make(to),
        }
    }

    /// All bytes at once.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::new();
        let _ = self.write(&mut |bytes| {
            all.extend_from_slice(bytes);
            ControlFlow::Continue(())
        });
        all
    }

    /// The first bytes.
    fn head(&self) -> Vec<u8> {
        const BYTES: usize = 512;
        let mut head = Vec::with_capacity(BYTES);
        let _ = self.write(&mut |bytes| {
            head.extend_from_slice(&bytes[..bytes.len().min(BYTES - head.len())]);
            if head.len() == BYTES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        head
    }

    /// A hash of all bytes, wide enough to tell constants apart.
    fn fingerprint(&self) -> [u64; 2] {
        // The hash must not depend on how the bytes are divided into parts.
        let mut hashes = [DefaultHasher::new(), DefaultHasher::new()];
        hashes[1].write_u8(1);
        let _ = self.write(&mut |bytes| {
            hashes.iter_mut().for_each(|hash| hash.write(bytes));
            ControlFlow::Continue(())
        });
        hashes.map(|hash| hash.finish())
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if matches!(self.content, Content::Plain(_)) { "plain" } else { "in an order of its own" };
        write!(f, "{}{:?}, {order}", self.dtype, self.shape)
    }
}

/// A constant at its place.
#[derive(Debug)]
pub struct Piece {
    pub offset: u64,
    pub stored: Stored,
    fingerprint: OnceLock<[u64; 2]>,
}

impl Piece {
    fn is(&self, stored: &Stored, fingerprint: &OnceLock<[u64; 2]>) -> bool {
        if let (Content::Plain(a), Content::Plain(b)) = (&self.stored.content, &stored.content) {
            let (a, b) = (a.bytes(), b.bytes());
            return (a.as_ptr(), a.len()) == (b.as_ptr(), b.len()) || a == b;
        }
        self.fingerprint.get_or_init(|| self.stored.fingerprint()) == fingerprint.get_or_init(|| stored.fingerprint())
    }
}

/// Constants with equal type, shape and first bytes.
type Kind = (DType, Vec<usize>, Vec<u8>);

/// Constants and their offsets. Equal ones are stored once.
#[derive(Default, Debug)]
pub struct Weights {
    pieces: Vec<Piece>,
    places: HashMap<Kind, Vec<usize>>,
    texts: HashMap<Tensor, u64>,
    size: u64,
}

impl Weights {
    /// The place of a constant.
    pub(crate) fn place(&mut self, value: &Stored) -> u64 {
        if let Content::Plain(value) = &value.content
            && let Some(strings) = value.strings()
        {
            return self.place_texts(value, strings);
        }
        let kind = (value.dtype, value.shape.clone(), value.head());
        let (fingerprint, alike) = (OnceLock::new(), self.places.entry(kind).or_default());
        if let Some(&same) = alike.iter().find(|&&at| self.pieces[at].is(value, &fingerprint)) {
            return self.pieces[same].offset;
        }
        alike.push(self.pieces.len());
        self.append(value.clone(), fingerprint)
    }

    /// A string is an offset in the section, of its length and bytes; the table of offsets is what is placed.
    fn place_texts(&mut self, value: &Tensor, strings: &[String]) -> u64 {
        if let Some(&at) = self.texts.get(value) {
            return at;
        }
        let mut offsets = Vec::new();
        for s in strings {
            let mut bytes = (s.len() as i64).to_le_bytes().to_vec();
            bytes.extend_from_slice(s.as_bytes());
            let n = bytes.len();
            let piece = Tensor::new(DType::U8, vec![n], bytes.into()).expect("as many bytes as said");
            offsets.push(self.append(Stored::plain(&piece), OnceLock::new()) as i64);
        }
        let table = Tensor::from_i64(&[offsets.len()], &offsets);
        let at = self.append(Stored::plain(&table), OnceLock::new());
        self.texts.insert(value.clone(), at);
        at
    }

    fn append(&mut self, stored: Stored, fingerprint: OnceLock<[u64; 2]>) -> u64 {
        let offset = self.size.div_ceil(ALIGN) * ALIGN;
        self.size = offset + stored.length().max(8);
        self.pieces.push(Piece { offset, stored, fingerprint });
        offset
    }

    /// Bytes of the section.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The constants in the order of their offsets.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reversed(values: &[u8], part: usize) -> Stored {
        let values: Vec<u8> = values.iter().rev().copied().collect();
        Stored::made(DType::U8, vec![values.len()], move |to| values.chunks(part).try_for_each(&mut *to))
    }

    #[test]
    fn equal_constants_are_kept_once_however_they_are_made() {
        let mut weights = Weights::default();
        let forth: Vec<u8> = (0..2000).map(|i| (i % 251) as u8).collect();
        let back: Vec<u8> = forth.iter().rev().copied().collect();
        let plain = Tensor::new(DType::U8, vec![2000], forth.clone().into()).unwrap();
        let at = weights.place(&Stored::plain(&plain));
        assert_eq!(weights.place(&reversed(&back, 7)), at);
        assert_eq!(weights.place(&reversed(&back, 1000)), at);
        // Another shape, or other last bytes.
        let square = plain.reshaped(vec![40, 50]).unwrap();
        assert_ne!(weights.place(&Stored::plain(&square)), at);
        let mut other = back;
        other[0] ^= 1;
        let another = weights.place(&reversed(&other, 7));
        assert_ne!(another, at);
        assert_eq!(weights.place(&reversed(&other, 2000)), another);
        assert_eq!(weights.pieces().len(), 3);
        assert_eq!(weights.pieces()[0].stored.to_vec(), forth);
    }
}
