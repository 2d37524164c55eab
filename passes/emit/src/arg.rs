//! Parameters of kernels.
use numrsc_ir::{Dim, Value, kernel::V};

/// What the entry passes for a parameter of a kernel.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Arg {
    /// The address of a buffer.
    Pointer(Value),
    /// The value of an expression over sizes.
    Size(Dim),
    /// A value of the entry function.
    Entry(V),
    /// The address of the buffer that the kernel writes.
    Output,
    /// The address of a further buffer that it writes, by its number from 1 on.
    Further(usize),
    /// The address of memory that a kernel uses while it runs.
    Scratch,
}
