//! Outputs in the memory of the context.
#![allow(unsafe_code)]
use crate::{
    DType, Element,
    context::{ElementSlots, pointer},
    error::{Error, Result, Text},
};
use core::{fmt, marker::PhantomData, slice};

/// An output, or an element of an output that is a sequence. Lives until its context runs again.
#[derive(Clone, Copy)]
pub struct TensorView<'c> {
    pub(crate) name: &'c str,
    pub(crate) dtype: DType,
    /// 0 for a tensor.
    pub(crate) depth: u8,
    pub(crate) shape: &'c [usize],
    /// The elements, or a length and [`ElementSlots`]. Checked when the run ended.
    pub(crate) data: *const u8,
    pub(crate) memory: PhantomData<&'c [u8]>,
}

// SAFETY: a view is a shared borrow of plain memory.
unsafe impl Send for TensorView<'_> {}
// SAFETY: as above.
unsafe impl Sync for TensorView<'_> {}

impl<'c> TensorView<'c> {
    /// The name of the output.
    pub fn name(&self) -> &'c str {
        self.name
    }

    pub fn is_sequence(&self) -> bool {
        self.depth > 0
    }

    /// Of the tensor, or of the tensors within the sequence.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The size of each axis; empty for sequences.
    pub fn shape(&self) -> &'c [usize] {
        self.shape
    }

    /// How many elements the tensor or sequence has.
    #[allow(clippy::len_without_is_empty, reason = "a tensor of no elements is nothing special")]
    pub fn len(&self) -> usize {
        if self.depth == 0 { self.shape.iter().product() } else { self.header().0 }
    }

    pub fn as_slice<T: Element>(&self) -> Result<&'c [T]> {
        self.expect_tensor()?;
        if self.dtype != T::DTYPE {
            return Err(Error::ElementType { name: Text::new(self.name), expected: self.dtype, found: T::DTYPE });
        }
        if T::DTYPE == DType::Bool && self.bytes()?.iter().any(|&byte| byte > 1) {
            return Err(Error::Internal { what: "a bool is neither 0 nor 1" });
        }
        if self.len() == 0 {
            return Ok(&[]);
        }
        if !self.data.cast::<T>().is_aligned() {
            return Err(Error::Internal { what: "an output is not aligned" });
        }
        // SAFETY: the memory holds that many elements of this type, is aligned and lives for 'c.
        Ok(unsafe { slice::from_raw_parts(self.data.cast(), self.len()) })
    }

    /// The elements as they are in memory, of any type but strings.
    pub fn bytes(&self) -> Result<&'c [u8]> {
        self.expect_tensor()?;
        if self.dtype == DType::Str {
            return Err(self.kind("a tensor of strings", "a view of bytes"));
        }
        if self.len() == 0 {
            return Ok(&[]);
        }
        // SAFETY: as for `as_slice`; any memory can be read as bytes.
        Ok(unsafe { slice::from_raw_parts(self.data, self.len() * self.dtype.size()) })
    }

    /// The strings of a tensor of strings.
    pub fn texts(&self) -> Result<impl ExactSizeIterator<Item = &'c str> + use<'c>> {
        if self.byte_texts()?.any(|text| core::str::from_utf8(text).is_err()) {
            return Err(Error::NotUtf8 { name: Text::new(self.name) });
        }
        Ok(self.byte_texts()?.map(|text| core::str::from_utf8(text).unwrap_or_default()))
    }

    pub fn byte_texts(&self) -> Result<impl ExactSizeIterator<Item = &'c [u8]> + use<'c>> {
        self.expect_tensor()?;
        if self.dtype != DType::Str {
            return Err(Error::ElementType { name: Text::new(self.name), expected: self.dtype, found: DType::Str });
        }
        let (data, count) = (self.data.cast::<u64>(), self.len());
        Ok((0..count).map(move |at| {
            // SAFETY: the memory holds that many addresses, each of a length and that many bytes.
            unsafe {
                let text = pointer::<u8>(data.add(at).read());
                let length = text.cast::<i64>().read_unaligned().max(0) as usize;
                slice::from_raw_parts(text.add(8), length)
            }
        }))
    }

    /// The elements of a sequence.
    pub fn elements(&self) -> Result<impl ExactSizeIterator<Item = TensorView<'c>> + use<'c>> {
        if self.depth == 0 {
            return Err(self.kind("a tensor", "a view of a sequence"));
        }
        let view = *self;
        let (count, first) = self.header();
        Ok((0..count).map(move |at| {
            // SAFETY: the memory holds that many elements, which were checked when the run ended.
            let (slots, shape) = unsafe {
                let slots = first.add(at);
                let rank = (*slots).rank.max(0) as usize;
                (&*slots, slice::from_raw_parts((&raw const (*slots).sizes).cast(), rank))
            };
            TensorView { depth: view.depth - 1, shape, data: pointer::<u8>(slots.data), ..view }
        }))
    }

    /// The length of the sequence and its first element.
    fn header(&self) -> (usize, *const ElementSlots) {
        // SAFETY: a sequence starts with its length.
        let length = unsafe { self.data.cast::<i64>().read() };
        (length.max(0) as usize, self.data.wrapping_add(8).cast())
    }

    fn expect_tensor(&self) -> Result<()> {
        if self.depth == 0 { Ok(()) } else { Err(self.kind("a sequence", "a view of a tensor")) }
    }

    fn kind(&self, expected: &'static str, found: &'static str) -> Error {
        Error::Kind { name: Text::new(self.name), expected, found }
    }
}

/// Elements and sizes of a tensor of fixed rank: inputs and outputs of open sizes of models inside a program
/// ([`crate::include_model`]).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Array<'a, T, const RANK: usize> {
    /// In row-major order.
    pub data: &'a [T],
    pub shape: [usize; RANK],
}

impl<'a, T: Element, const RANK: usize> Array<'a, T, RANK> {
    pub fn new(data: &'a [T], shape: [usize; RANK]) -> Self {
        Array { data, shape }
    }

    /// An output as an array.
    pub fn of(view: TensorView<'a>) -> Result<Self> {
        let shape = view.shape.try_into().map_err(|_| Error::Internal { what: "an output has another rank" })?;
        Ok(Array { data: view.as_slice()?, shape })
    }
}

impl fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.depth == 0 { "" } else { "sequence of " };
        write!(f, "TensorView({}: {kind}{} {:?})", self.name, self.dtype, self.shape)
    }
}
