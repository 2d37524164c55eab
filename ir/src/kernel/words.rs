//! The words of the textual form: one table for each enum, which the printer and the parser both use.
use super::{Axis, Binary, Compare, Convert, Elem, Host, Inst, Kind, Unary};

/// An enum whose variants have words.
pub trait Words: Copy + PartialEq + 'static {
    /// Every variant.
    const ALL: &'static [Self];
    fn word(self) -> &'static str;
    fn from_word(word: &str) -> Option<Self>;
}

macro_rules! words {
    ($($name:ident { $($variant:ident = $word:literal),* $(,)? })*) => { $(
        impl Words for $name {
            const ALL: &'static [$name] = &[$($name::$variant),*];
            fn word(self) -> &'static str {
                match self { $($name::$variant => $word),* }
            }
            fn from_word(word: &str) -> Option<$name> {
                match word { $($word => Some($name::$variant),)* _ => None }
            }
        }
    )* };
}

/// The instructions that are not named by the enum they hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Const,
    MulAdd,
    Dot4,
    Select,
    Splat,
    Extract,
    Insert,
    Shuffle,
    Reduce,
    Iota,
    Load,
    Offset,
    Buffer,
    Shared,
    Call,
    Host,
}

words! {
    Form {
        Const = "const", MulAdd = "muladd", Dot4 = "dot4", Select = "select", Splat = "splat", Extract = "extract", Insert = "insert",
        Shuffle = "shuffle", Reduce = "reduce", Iota = "iota", Load = "load", Offset = "offset", Buffer = "buffer",
        Shared = "shared", Call = "call", Host = "host",
    }
    Unary {
        Neg = "neg", Not = "not", Abs = "abs", Sqrt = "sqrt", Floor = "floor", Ceil = "ceil", Trunc = "trunc",
        Round = "round",
    }
    Binary {
        Add = "add", Sub = "sub", Mul = "mul", FDiv = "fdiv", FMin = "fmin", FMax = "fmax", SDiv = "sdiv",
        UDiv = "udiv", SRem = "srem", URem = "urem", SMin = "smin", SMax = "smax", UMin = "umin", UMax = "umax",
        And = "and", Or = "or", Xor = "xor", Shl = "shl", LShr = "lshr", AShr = "ashr",
    }
    Compare { Eq = "eq", Ne = "ne", Lt = "lt", Le = "le", ULt = "ult", ULe = "ule" }
    Convert {
        Narrow = "narrow", SExt = "sext", ZExt = "zext", Float = "float", SToF = "stof", UToF = "utof", FToS = "ftos",
        FToU = "ftou", Half = "half", Bits = "bits", Pointer = "pointer",
    }
    Host { Arena = "arena", Alloc = "alloc", Free = "free" }
    Axis { Serial = "serial", Unrolled = "unrolled", Block = "block", Thread = "thread" }
    Kind { Entry = "entry", Kernel = "kernel", Helper = "helper" }
    Elem { I1 = "i1", I8 = "i8", I16 = "i16", I32 = "i32", I64 = "i64", F32 = "f32", F64 = "f64", Ptr = "ptr" }
}

impl Inst {
    /// The word that the instruction starts with.
    pub fn word(&self) -> &'static str {
        let form = match self {
            Inst::Unary(op, _) => return op.word(),
            Inst::Binary(op, ..) => return op.word(),
            Inst::Compare(op, ..) => return op.word(),
            Inst::Convert(op, _) => return op.word(),
            Inst::Const(_) => Form::Const,
            Inst::MulAdd(..) => Form::MulAdd,
            Inst::Dot4(..) => Form::Dot4,
            Inst::Select(..) => Form::Select,
            Inst::Splat(_) => Form::Splat,
            Inst::Extract(..) => Form::Extract,
            Inst::Insert(..) => Form::Insert,
            Inst::Shuffle(..) => Form::Shuffle,
            Inst::Reduce(..) => Form::Reduce,
            Inst::Iota => Form::Iota,
            Inst::Load { .. } => Form::Load,
            Inst::Offset(..) => Form::Offset,
            Inst::Buffer { shared: false, .. } => Form::Buffer,
            Inst::Buffer { shared: true, .. } => Form::Shared,
            Inst::Call(..) => Form::Call,
            Inst::Host(..) => Form::Host,
        };
        form.word()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// An instruction is recognised by its first word, so no two tables of instructions may share one.
    #[test]
    fn words_of_instructions_are_distinct() {
        fn all<T: Words>() -> impl Iterator<Item = &'static str> {
            T::ALL.iter().map(|x| x.word())
        }
        let words: Vec<_> = all::<Form>()
            .chain(all::<Unary>())
            .chain(all::<Binary>())
            .chain(all::<Compare>())
            .chain(all::<Convert>())
            .chain(["for", "while", "if", "store", "prefetch", "launch", "fail", "barrier", "yield"])
            .collect();
        assert_eq!(words.iter().collect::<HashSet<_>>().len(), words.len());
    }
}
