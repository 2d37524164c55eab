//! What a convolution multiplies.
use numrsc_ir::kernel::Elem;

/// The kind of multiplication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbers {
    Float,
    /// 16-bit integers, two neighbouring channels per step (dot2), with weights of 8 or 16 bits.
    Dot2(Elem),
    /// Unsigned 8-bit integers, four neighbouring channels per step (dot4), with signed 8-bit weights.
    Dot4,
}

impl Numbers {
    pub fn sum(self) -> Elem {
        if self == Numbers::Float { Elem::F32 } else { Elem::I32 }
    }

    pub fn operand(self) -> Elem {
        match self {
            Numbers::Float => Elem::F32,
            Numbers::Dot2(_) => Elem::I16,
            Numbers::Dot4 => Elem::I8,
        }
    }

    pub fn weight(self) -> Elem {
        match self {
            Numbers::Float => Elem::F32,
            Numbers::Dot2(elem) => elem,
            Numbers::Dot4 => Elem::I8,
        }
    }

    /// Channels per step.
    pub fn at_once(self) -> i64 {
        match self {
            Numbers::Float => 1,
            Numbers::Dot2(_) => 2,
            Numbers::Dot4 => 4,
        }
    }

    pub fn operand_bytes(self) -> i64 {
        self.operand().size()
    }

    pub fn weight_bytes(self) -> i64 {
        self.weight().size()
    }
}

/// The largest unroll factor over channels of a block: with more, LLVM hoists loads until registers run out.
pub const MAX_STEPS: i64 = 8;
