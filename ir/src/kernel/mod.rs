//! The kernel IR: structured SSA close to the machine, the only thing backends see.
//!
//! **Values** are scalars or vectors of machine numbers ([`Ty`]); every value has one definition and is visible in the
//! rest of its block and in the blocks nested there. Loops carry values, never memory (I7).
//!
//! **Integers** wrap. Division and remainder by 0, and of the least number by -1, do not occur: whoever builds a kernel guards
//! them. Shift amounts are below the width. **Floats** are IEEE: one rounding per instruction, nothing reassociated, NaN
//! payloads unspecified. `muladd` has one rounding where the target fuses and two elsewhere. `ftos` and `ftou` saturate, NaN gives 0.
//!
//! **Memory** is reached by pointers. `load ty p[i]` reads at `p + i * size` bytes, where `size` is that of `ty`'s
//! element; a vector is contiguous and needs only its element's alignment. Pointers and `i64` take 8 bytes in
//! memory on every target; `i1` is never stored.
//!
//! **Functions** are of three kinds. The `entry` takes the run context. A `kernel` takes `begin`, `end` and `worker`
//! before its own parameters and does that part of its range: `launch` runs it over `0..extent`, in parts that may run at the same
//! time, each with a worker number below the number of threads. A `helper` is an ordinary function with one result. In entry and kernels
//! `fail` ends the run with a code; a failing kernel fails the entry.
//!
//! For GPUs, `for` has the axes `block` and `thread`, buffers may be shared by a block, and `barrier` separates its phases.
pub mod build;
pub mod interp;
mod localise;
mod parse;
mod print;
mod renumber;
#[cfg(test)]
mod tests;
mod verify;
pub mod words;

use crate::Origins;
pub use localise::localise;
pub use parse::parse;
use std::fmt;
pub use verify::{MAX_DEPTH, MAX_LANES, verify};
use words::Words;

/// What one lane of a value is. Floats narrower than `f32` are `i16` or `i8` bit patterns in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Elem {
    I1,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
    /// Never a vector.
    Ptr,
}

/// A scalar (one lane) or a vector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ty {
    pub elem: Elem,
    pub lanes: u32,
}

/// The name of a value within its function; [`Function::types`] tells its type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct V(pub u32);

/// A function within its module, by position.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FuncId(pub u32);

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Module {
    pub functions: Vec<Function>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// `entry(ctx: ptr)`, fails by returning a code.
    Entry,
    /// `kernel(begin: i64, end: i64, worker: i64, ..)`, fails by returning a code.
    Kernel,
    /// Gives the one value that its body yields and cannot fail.
    Helper,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Function {
    pub name: String,
    pub kind: Kind,
    pub params: Vec<V>,
    /// The type of every value, by number.
    pub types: Vec<Ty>,
    pub body: Block,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Block {
    pub stmts: Vec<Stmt>,
    /// What the block yields to the statement it belongs to.
    pub results: Vec<V>,
}

/// How the rounds of a `for` are run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Axis {
    /// One after the other.
    Serial,
    /// One after the other, written out; the bounds are constants.
    Unrolled,
    /// One block of a GPU's grid each.
    Block,
    /// One thread of a block each.
    Thread,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Stmt {
    Let {
        out: V,
        inst: Inst,
    },
    /// Write `value` at `ptr + index * size`; with a mask, only the lanes that are set.
    Store {
        ptr: V,
        index: V,
        value: V,
        mask: Option<V>,
    },
    /// The memory that many bytes behind `ptr` will be read soon. Has no effect, wherever that is.
    Prefetch {
        ptr: V,
        bytes: V,
    },
    /// `var` runs from `low` in steps of `step` (positive) while below `high`. `carried` are pairs of the name inside and
    /// the first value; the body yields the next ones and `outs` are the last.
    For {
        axis: Axis,
        var: V,
        low: V,
        high: V,
        step: i64,
        carried: Vec<(V, V)>,
        body: Block,
        outs: Vec<V>,
    },
    /// While `cond` yields true, the body yields the next carried values. Both see the carried values.
    While {
        carried: Vec<(V, V)>,
        cond: Block,
        body: Block,
        outs: Vec<V>,
    },
    If {
        cond: V,
        then: Block,
        or: Block,
        outs: Vec<V>,
    },
    /// End the run with a code other than 0. What follows in the block is not reached.
    Fail {
        code: u32,
    },
    /// Run a kernel over `0..extent` with these arguments for its own parameters, in parts of at least `grain`.
    Launch {
        kernel: FuncId,
        args: Vec<V>,
        extent: V,
        grain: V,
        /// The nodes of the user's model that this launch computes.
        origins: Origins,
    },
    /// Wait until all threads of the block are here.
    Barrier,
}

/// What a run context's function does; the number of its slot is in [`Host::slot`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Host {
    /// `(ctx, bytes) -> ptr`: the arena, made large enough; null if there is no memory.
    Arena,
    /// `(ctx, bytes) -> ptr`: a new block aligned to 64; null if there is no memory.
    Alloc,
    /// `(ctx, ptr) -> ptr`: give a block back; null.
    Free,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Inst {
    /// Every lane is this bit pattern.
    Const(u64),
    Unary(Unary, V),
    Binary(Binary, V, V),
    /// `a * b + c`
    MulAdd(V, V, V),
    /// The lanes of `c` (`i32`), to each of which four products of lanes of `a` and `b` (`i8`) are added: those at four times its number and behind. `a` has no
    /// sign, `b` has one. Only for machines that say so.
    Dot4(V, V, V),
    Compare(Compare, V, V),
    /// Lane by lane: `a` where the condition holds, else `b`.
    Select(V, V, V),
    /// To the type of the result.
    Convert(Convert, V),
    /// A scalar in every lane.
    Splat(V),
    /// One lane of a vector.
    Extract(V, u32),
    /// The vector with one lane replaced by a scalar.
    Insert(V, V, u32),
    /// The lanes at these positions of `a` followed by `b`.
    Shuffle(V, V, Vec<u32>),
    /// All lanes combined: the lower half with the upper half, until one is left.
    Reduce(Binary, V),
    /// 0, 1, 2 ..
    Iota,
    /// Lanes that a mask leaves out are 0.
    Load {
        ptr: V,
        index: V,
        mask: Option<V>,
    },
    /// The pointer that many bytes further.
    Offset(V, V),
    /// Memory of this function (or of the block of threads): `count` elements.
    Buffer {
        elem: Elem,
        count: u32,
        shared: bool,
    },
    /// A helper of the module.
    Call(FuncId, Vec<V>),
    /// A function of the run context; the first argument is the context.
    Host(Host, Vec<V>),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unary {
    /// Of an integer or float.
    Neg,
    /// All bits flipped.
    Not,
    // Floats only from here.
    Abs,
    Sqrt,
    Floor,
    Ceil,
    Trunc,
    /// To the nearest integer, ties to even.
    Round,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Binary {
    // Integers and floats.
    Add,
    Sub,
    Mul,
    // Floats.
    FDiv,
    /// `a < b ? a : b`, so `b` if either is NaN.
    FMin,
    /// `a > b ? a : b`, so `b` if either is NaN.
    FMax,
    // Integers.
    SDiv,
    UDiv,
    SRem,
    URem,
    SMin,
    SMax,
    UMin,
    UMax,
    And,
    Or,
    Xor,
    Shl,
    LShr,
    AShr,
}

/// Comparisons of floats are false on NaN, except `Ne`, which is true.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Compare {
    Eq,
    Ne,
    /// Signed integers and floats.
    Lt,
    Le,
    /// Unsigned integers.
    ULt,
    ULe,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Convert {
    /// An integer to a narrower one: the low bits.
    Narrow,
    /// To a wider integer, with the sign or with zeros (`i1` true is -1 or 1).
    SExt,
    ZExt,
    /// Between `f32` and `f64`, to nearest even.
    Float,
    /// Between `f32` and the bits of an IEEE number of 16 bits as `i16`, to nearest even. Only for machines that say so.
    Half,
    /// Integers to floats, signed and unsigned, to nearest even.
    SToF,
    UToF,
    /// Floats to integers, signed and unsigned: toward zero, saturating, NaN gives 0.
    FToS,
    FToU,
    /// The same bits as another type of the same width, lane by lane.
    Bits,
    /// Between `i64` and `ptr`.
    Pointer,
}

/// The run context: what the runtime and compiled code share, as slots of 8 bytes.
pub mod context {
    pub const WEIGHTS: i64 = 0;
    pub const ARENA: i64 = 1;
    pub const ARENA_BYTES: i64 = 2;
    /// Pointers to arrays of [`TENSOR_SLOTS`] slots per input and output.
    pub const INPUTS: i64 = 3;
    pub const OUTPUTS: i64 = 4;
    pub const THREADS: i64 = 5;
    /// Functions: see [`super::Host`] and `parallel(ctx, kernel, args, extent, grain) -> i32`.
    pub const FN_ARENA: i64 = 6;
    pub const FN_ALLOC: i64 = 7;
    pub const FN_FREE: i64 = 8;
    pub const FN_PARALLEL: i64 = 9;
    /// 0, unless the run is to end (or kernels run, which entries do not see).
    pub const CANCEL: i64 = 11;
    pub const SLOTS: i64 = 12;

    pub const TENSOR_SLOTS: i64 = 4;
    /// Within a tensor: its elements, a pointer to its sizes (`i64` each), and for outputs how many bytes there is room for.
    pub const TENSOR_DATA: i64 = 0;
    pub const TENSOR_SIZES: i64 = 1;
    pub const TENSOR_ROOM: i64 = 2;

    /// A sequence is a length followed by elements of this many slots: data, rank (-1 for a sequence) and sizes.
    pub const ELEMENT_SLOTS: i64 = 10;
    pub const MAX_SEQ_RANK: usize = 8;
}

impl Host {
    /// Where the run context holds the function.
    pub fn slot(self) -> i64 {
        match self {
            Host::Arena => context::FN_ARENA,
            Host::Alloc => context::FN_ALLOC,
            Host::Free => context::FN_FREE,
        }
    }
}

impl Elem {
    /// Bytes in memory.
    pub fn size(self) -> i64 {
        match self {
            Elem::I1 | Elem::I8 => 1,
            Elem::I16 => 2,
            Elem::I32 | Elem::F32 => 4,
            Elem::I64 | Elem::F64 | Elem::Ptr => 8,
        }
    }

    /// Bits of the number.
    pub fn bits(self) -> u32 {
        if self == Elem::I1 { 1 } else { self.size() as u32 * 8 }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Elem::F32 | Elem::F64)
    }

    pub fn is_int(self) -> bool {
        !self.is_float() && self != Elem::Ptr
    }

    /// The integer of the same width.
    #[must_use]
    pub fn as_int(self) -> Elem {
        match self {
            Elem::F32 => Elem::I32,
            Elem::F64 | Elem::Ptr => Elem::I64,
            int => int,
        }
    }
}

impl Ty {
    pub const I1: Ty = Ty::scalar(Elem::I1);
    pub const I64: Ty = Ty::scalar(Elem::I64);
    pub const F32: Ty = Ty::scalar(Elem::F32);
    pub const F64: Ty = Ty::scalar(Elem::F64);
    pub const PTR: Ty = Ty::scalar(Elem::Ptr);

    pub const fn scalar(elem: Elem) -> Ty {
        Ty { elem, lanes: 1 }
    }

    pub const fn vector(elem: Elem, lanes: u32) -> Ty {
        Ty { elem, lanes }
    }

    /// The same number of lanes of another element.
    #[must_use]
    pub const fn with(self, elem: Elem) -> Ty {
        Ty { elem, lanes: self.lanes }
    }
}

impl Function {
    pub fn ty(&self, v: V) -> Ty {
        self.types[v.0 as usize]
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.elem.word();
        if self.lanes == 1 { f.write_str(name) } else { write!(f, "{name}x{}", self.lanes) }
    }
}

impl fmt::Debug for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for V {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl fmt::Debug for V {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
