//! What a convolution multiplies.
use numrsc_ir::kernel::Elem;

/// What is multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbers {
    Float,
    /// Integers of 16 bits, two neighbouring channels at once, with weights of 8 or 16 bits.
    Dot2(Elem),
    /// Integers of 8 bits without signs, four neighbouring channels at once, with weights of 8 bits.
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

    /// Channels that are multiplied at once.
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

/// Channels of a block that are written out at most: with more of them, LLVM loads elements so early that registers run out.
pub const MAX_STEPS: i64 = 8;
