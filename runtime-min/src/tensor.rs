//! Tensors of callers: borrowed and typed, never copied (except strings, which have a layout of their own).
use crate::{DType, Element};
use core::marker::PhantomData;

/// An input: a tensor or a sequence of inputs. Type and shape are checked against the model before running.
#[derive(Debug, Clone, Copy)]
pub struct TensorRef<'a> {
    pub(crate) shape: &'a [usize],
    pub(crate) data: Data<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Data<'a> {
    Plain { dtype: DType, bytes: &'a [u8] },
    Texts(Texts<'a>),
    Sequence(&'a [TensorRef<'a>]),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Texts<'a> {
    Borrowed(&'a [&'a str]),
    Bytes(&'a [&'a [u8]]),
    #[cfg(feature = "alloc")]
    Owned(&'a [alloc::string::String]),
}

impl<'a> TensorRef<'a> {
    /// Elements in row-major order. A scalar has the shape `[]`.
    pub fn new<T: Element>(elements: &'a [T], shape: &'a [usize]) -> TensorRef<'a> {
        TensorRef { shape, data: Data::Plain { dtype: T::DTYPE, bytes: bytes_of(elements) } }
    }

    /// Elements of any type but strings, such as `f8e4m3`. Those narrower than a byte take one byte each.
    pub fn raw(dtype: DType, bytes: &'a [u8], shape: &'a [usize]) -> TensorRef<'a> {
        TensorRef { shape, data: Data::Plain { dtype, bytes } }
    }

    pub fn texts(elements: &'a [&'a str], shape: &'a [usize]) -> TensorRef<'a> {
        TensorRef { shape, data: Data::Texts(Texts::Borrowed(elements)) }
    }

    /// Strings, not necessarily UTF-8.
    pub fn byte_texts(elements: &'a [&'a [u8]], shape: &'a [usize]) -> TensorRef<'a> {
        TensorRef { shape, data: Data::Texts(Texts::Bytes(elements)) }
    }

    #[cfg(feature = "alloc")]
    pub fn strings(elements: &'a [alloc::string::String], shape: &'a [usize]) -> TensorRef<'a> {
        TensorRef { shape, data: Data::Texts(Texts::Owned(elements)) }
    }

    /// An optional is a sequence of at most one element.
    pub fn sequence(elements: &'a [TensorRef<'a>]) -> TensorRef<'a> {
        TensorRef { shape: &[], data: Data::Sequence(elements) }
    }

    /// Whether the address is within the data.
    pub(crate) fn contains(&self, address: usize) -> bool {
        match self.data {
            Data::Plain { bytes, .. } => bytes.as_ptr_range().contains(&core::ptr::without_provenance(address)),
            Data::Texts(_) => false,
            Data::Sequence(elements) => elements.iter().any(|element| element.contains(address)),
        }
    }
}

impl<'a> Texts<'a> {
    pub(crate) fn len(self) -> usize {
        match self {
            Texts::Borrowed(texts) => texts.len(),
            Texts::Bytes(texts) => texts.len(),
            #[cfg(feature = "alloc")]
            Texts::Owned(texts) => texts.len(),
        }
    }

    pub(crate) fn bytes(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.len()).map(move |at| match self {
            Texts::Borrowed(texts) => texts[at].as_bytes(),
            Texts::Bytes(texts) => texts[at],
            #[cfg(feature = "alloc")]
            Texts::Owned(texts) => texts[at].as_bytes(),
        })
    }
}

/// A buffer for an output.
#[derive(Debug)]
pub struct TensorMut<'a> {
    pub(crate) dtype: DType,
    pub(crate) start: *mut u8,
    pub(crate) bytes: usize,
    buffer: PhantomData<&'a mut [u8]>,
}

impl<'a> TensorMut<'a> {
    /// May be longer than the output; after the run the context knows its shape.
    pub fn new<T: Element>(elements: &'a mut [T]) -> TensorMut<'a> {
        TensorMut {
            dtype: T::DTYPE,
            start: elements.as_mut_ptr().cast(),
            bytes: size_of_val(elements),
            buffer: PhantomData,
        }
    }

    /// For elements of any type but strings. Those narrower than a byte take one byte each.
    pub fn raw(dtype: DType, bytes: &'a mut [u8]) -> TensorMut<'a> {
        TensorMut { dtype, start: bytes.as_mut_ptr(), bytes: bytes.len(), buffer: PhantomData }
    }
}

#[allow(unsafe_code)]
fn bytes_of<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: elements are plain numbers without padding.
    unsafe { core::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}
