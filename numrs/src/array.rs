//! Arrays: numbers with a shape.

/// Numbers in row-major order, with the size of every axis.
///
/// ```
/// use numrs::Array;
/// let a = Array::new(vec![2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// assert_eq!((a.shape(), a.data[5]), (&[2, 3][..], 6.0));
/// assert_eq!(Array::<f32>::ones(vec![2]), Array::new(vec![2], vec![1.0, 1.0]));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Array<T = f32> {
    /// The size of every axis; empty for a scalar.
    pub shape: Vec<usize>,
    /// The elements, those along the last axis next to each other.
    pub data: Vec<T>,
}

/// Types of which there are arrays.
pub trait Number: Copy {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
}

macro_rules! numbers {
    ($($ty:ty = $zero:literal, $one:literal;)*) => { $(
        impl Number for $ty {
            const ZERO: $ty = $zero;
            const ONE: $ty = $one;
        }
    )* };
}

numbers! {
    f32 = 0.0, 1.0;
    f64 = 0.0, 1.0;
    i8 = 0, 1;
    i16 = 0, 1;
    i32 = 0, 1;
    i64 = 0, 1;
    u8 = 0, 1;
    u16 = 0, 1;
    u32 = 0, 1;
    u64 = 0, 1;
}

impl<T> Array<T> {
    /// An array of these elements.
    ///
    /// # Panics
    /// If the shape has another number of elements than there are.
    pub fn new(shape: Vec<usize>, data: Vec<T>) -> Array<T> {
        assert_eq!(
            shape.iter().product::<usize>(),
            data.len(),
            "an array of shape {shape:?} of {} elements",
            data.len()
        );
        Array { shape, data }
    }

    /// The size of every axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// How many axes there are.
    pub fn ndim(&self) -> usize {
        self.shape.len()
    }
}

impl<T: Number> Array<T> {
    /// An array of zeros.
    pub fn zeros(shape: Vec<usize>) -> Array<T> {
        Array::full(shape, T::ZERO)
    }

    /// An array of ones.
    pub fn ones(shape: Vec<usize>) -> Array<T> {
        Array::full(shape, T::ONE)
    }

    /// An array of one number.
    pub fn full(shape: Vec<usize>, number: T) -> Array<T> {
        let data = vec![number; shape.iter().product()];
        Array { shape, data }
    }

    /// The only element.
    ///
    /// # Panics
    /// If there is not exactly one.
    pub fn item(&self) -> T {
        let [only] = self.data[..] else { panic!("an array of shape {:?} is no single number", self.shape) };
        only
    }
}
