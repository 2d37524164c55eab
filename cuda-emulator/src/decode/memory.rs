//! Loads, stores and atomic updates.
use super::{Class, Decoded, Decoder, Kind, Mods, Slot};
use crate::ptx::{Operand, Space, type_bits};

/// An access to memory by every lane.
#[derive(Clone, Debug)]
pub struct Access {
    pub space: Space,
    pub action: Action,
    pub base: Base,
    pub offset: i64,
    /// Bytes of one element, and the registers of all: `.v4` has four.
    pub bytes: u64,
    pub slots: Vec<Held>,
    /// Elements are extended by their sign.
    pub signed: bool,
    /// By a cache that does not see what the launch writes (`.nc`).
    pub cached: bool,
}

/// A register that an element is loaded into or stored from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// With its width.
    Word(usize, u32),
    Double(usize),
}

#[derive(Clone, Copy, Debug)]
pub enum Action {
    Load,
    Store,
    /// With the register of the operand in `slots`, and where what was there goes.
    Atomic {
        op: AtomicOp,
        result: Option<Held>,
        compared: Option<Held>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    Add,
    Min { signed: bool },
    Max { signed: bool },
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
}

impl AtomicOp {
    /// Of values of so many bytes.
    pub fn apply(self, old: u64, new: u64, compared: u64, bytes: u64) -> u64 {
        let signed = |x: u64| if bytes == 4 { i64::from(x as u32 as i32) } else { x.cast_signed() };
        match self {
            AtomicOp::Add if bytes == 4 => u64::from((old as u32).wrapping_add(new as u32)),
            AtomicOp::Add => old.wrapping_add(new),
            AtomicOp::Min { signed: true } => {
                if signed(new) < signed(old) {
                    new
                } else {
                    old
                }
            }
            AtomicOp::Max { signed: true } => {
                if signed(new) > signed(old) {
                    new
                } else {
                    old
                }
            }
            AtomicOp::Min { signed: false } => old.min(new),
            AtomicOp::Max { signed: false } => old.max(new),
            AtomicOp::And => old & new,
            AtomicOp::Or => old | new,
            AtomicOp::Xor => old ^ new,
            AtomicOp::Exchange => new,
            AtomicOp::CompareAndSwap => {
                if old == compared {
                    new
                } else {
                    old
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    Word(usize),
    Double(usize),
    /// The same for all lanes: a parameter.
    Fixed(u64),
}

impl Decoder<'_> {
    pub(super) fn access(&mut self, name: &str, mods: &mut Mods<'_>, operands: &[Operand]) -> Decoded<(Kind, Class)> {
        let Some(ty) = mods.last_type() else { return Err(self.refuse(format!("`{}`", mods.op))) };
        mods.skip_hints();
        let space = match mods.one_of(&["param", "global", "shared", "shared::cta", "const"]) {
            Some("param") => Space::Param,
            Some("global") => Space::Global,
            Some("const") => Space::Const,
            Some(_) => Space::Shared,
            None => Space::Generic,
        };
        let cached = mods.take("nc") || name == "ldu";
        let class = match space {
            Space::Param | Space::Const => Class::Constant,
            Space::Shared => Class::Shared,
            Space::Global | Space::Generic => Class::Global,
        };
        if matches!(name, "atom" | "red") {
            return Ok((Kind::Access(self.atomic(name, ty, space, mods, operands)?), Class::Atomic));
        }
        let count = match mods.one_of(&["v2", "v4"]) {
            Some("v2") => 2,
            Some(_) => 4,
            None => 1,
        };
        let loads = name != "st";
        let [first, second] = self.operands(operands)?;
        let (value, address) = if loads { (first, second) } else { (second, first) };
        let values = match value {
            Operand::Vector(parts) => &parts[..],
            one => std::slice::from_ref(one),
        };
        if values.len() != count {
            return Err(self.fail(format!("`{}` takes {count} registers", mods.op)));
        }
        let bits = type_bits(ty).expect("a type");
        let mut slots = vec![];
        for value in values {
            slots.push(if loads { self.held(value, bits)? } else { self.stored(value, bits)? });
        }
        let (base, offset) = self.address(address, space)?;
        let action = if loads { Action::Load } else { Action::Store };
        let bytes = u64::from(bits / 8);
        Ok((
            Kind::Access(Access { space, action, base, offset, bytes, slots, signed: ty.starts_with('s'), cached }),
            class,
        ))
    }

    fn held(&mut self, operand: &Operand, bits: u32) -> Decoded<Held> {
        match self.destination(operand, bits)? {
            Slot::Word(at, width) => Ok(Held::Word(at, width)),
            Slot::Double(at) => Ok(Held::Double(at)),
            Slot::Predicate(_) => Err(self.fail("predicates are not stored")),
        }
    }

    /// A register or a constant that is stored.
    fn stored(&mut self, operand: &Operand, bits: u32) -> Decoded<Held> {
        match operand {
            Operand::Name(name, _) if self.names.contains_key(name) => self.held(operand, bits),
            _ if bits == 64 => Ok(Held::Double(self.double(operand)?)),
            _ => Ok(Held::Word(self.word(operand)?, 32)),
        }
    }

    fn address(&mut self, operand: &Operand, space: Space) -> Decoded<(Base, i64)> {
        let Operand::Address(base, offset) = operand else { return Err(self.fail("expected an address")) };
        if space == Space::Param {
            return match &**base {
                Operand::Name(name, false) => match self.params.get(name) {
                    Some(&at) => Ok((Base::Fixed(at), *offset)),
                    None => Err(self.fail(format!("there is no parameter `{name}`"))),
                },
                _ => Err(self.refuse("an address of parameters that is computed")),
            };
        }
        let is_word = match &**base {
            Operand::Name(name, _) => match self.names.get(name) {
                Some(Slot::Word(..)) => true,
                Some(_) => false,
                None => space == Space::Shared,
            },
            _ => space == Space::Shared,
        };
        let base = if is_word { Base::Word(self.word(base)?) } else { Base::Double(self.double(base)?) };
        Ok((base, *offset))
    }

    fn atomic(
        &mut self,
        name: &str,
        ty: &str,
        space: Space,
        mods: &mut Mods<'_>,
        operands: &[Operand],
    ) -> Decoded<Access> {
        let bits = type_bits(ty).expect("a type");
        let signed = ty.starts_with('s');
        mods.one_of(&["acquire", "release", "acq_rel"]);
        if ty.starts_with('f')
            || !matches!(bits, 32 | 64)
            || !matches!(space, Space::Global | Space::Shared | Space::Generic)
        {
            return Err(self.refuse(format!("`{}`: atomic updates are of integers", mods.op)));
        }
        let op = match mods.one_of(&["add", "min", "max", "and", "or", "xor", "exch", "cas"]) {
            Some("add") => AtomicOp::Add,
            Some("min") => AtomicOp::Min { signed },
            Some("max") => AtomicOp::Max { signed },
            Some("and") => AtomicOp::And,
            Some("or") => AtomicOp::Or,
            Some("xor") => AtomicOp::Xor,
            Some("exch") => AtomicOp::Exchange,
            Some("cas") => AtomicOp::CompareAndSwap,
            _ => return Err(self.refuse(format!("`{}`", mods.op))),
        };
        let (result, rest) = if name == "atom" {
            let (d, rest) = operands.split_first().ok_or_else(|| self.fail("`atom` has a result"))?;
            (Some(self.held(d, bits)?), rest)
        } else {
            (None, operands)
        };
        let (address, values) = rest.split_first().ok_or_else(|| self.fail("an address is missing"))?;
        let (compared, value) = match (op, values) {
            (AtomicOp::CompareAndSwap, [compared, value]) => (Some(self.stored(compared, bits)?), value),
            (AtomicOp::CompareAndSwap, _) => return Err(self.fail("`cas` takes two values")),
            (_, [value]) => (None, value),
            _ => return Err(self.fail("an atomic update takes one value")),
        };
        let slots = vec![self.stored(value, bits)?];
        let (base, offset) = self.address(address, space)?;
        let action = Action::Atomic { op, result, compared };
        Ok(Access { space, action, base, offset, bytes: u64::from(bits / 8), slots, signed: false, cached: false })
    }
}
