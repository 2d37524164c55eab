//! Moves between registers: `mov` with packing and unpacking, `selp`, and addresses of one space as those of another.
use super::{Class, Decoded, Decoder, Kind, Mods, Slot};
use crate::{
    exec::{
        memory::SHARED_WINDOW,
        registers::{LANES, LaneOp, Read, Registers, map1, write},
    },
    ptx::Operand,
};

impl Decoder<'_> {
    pub(super) fn movement(&mut self, name: &str, mods: &mut Mods<'_>, operands: &[Operand]) -> Decoded<(Kind, Class)> {
        let op = match name {
            "cvta" => self.address_conversion(mods, operands)?,
            "isspacep" => return Err(self.refuse("`isspacep`")),
            _ => {
                let Some(ty) = mods.last_type() else { return Err(self.refuse(format!("`{}`", mods.op))) };
                match (name, ty) {
                    ("mov", "pred") => {
                        return self.integer("mov", "pred", mods, operands).map(|(kind, _)| (kind, Class::Move));
                    }
                    ("mov", _) => self.mov(operands)?,
                    _ => self.select(operands)?,
                }
            }
        };
        Ok((Kind::Lanes(op), Class::Move))
    }

    fn mov(&mut self, operands: &[Operand]) -> Decoded<LaneOp> {
        match self.operands(operands)? {
            [d, Operand::Vector(parts)] => self.pack(d, parts),
            [Operand::Vector(parts), a] => self.unpack(parts, a),
            [d, a] => match self.destination(d, 32)? {
                Slot::Word(d, _) => Ok(map1(d, self.word(a)?, |x: u32| x)),
                Slot::Double(d) => Ok(map1(d, self.double(a)?, |x: u64| x)),
                Slot::Predicate(_) => Err(self.fail("the result is a predicate")),
            },
        }
    }

    fn reader(&mut self, operand: &Operand) -> Decoded<(Read, u32)> {
        if let Operand::Name(name, _) = operand {
            match self.names.get(name) {
                Some(&Slot::Word(at, bits)) => return Ok((Box::new(move |r, lane| r.words[at][lane].into()), bits)),
                Some(&Slot::Double(at)) => return Ok((Box::new(move |r, lane| r.doubles[at][lane]), 64)),
                _ => {}
            }
        }
        let at = self.word(operand)?;
        Ok((Box::new(move |r, lane| r.words[at][lane].into()), 32))
    }

    /// `mov.b64 %rd, {%r1, %r2}`: the first part is the lowest.
    fn pack(&mut self, d: &Operand, parts: &[Operand]) -> Decoded<LaneOp> {
        let slot = self.destination(d, 32)?;
        let width = match slot {
            Slot::Word(_, bits) => bits,
            _ => 64,
        } / parts.len() as u32;
        let readers = parts.iter().map(|p| Ok(self.reader(p)?.0)).collect::<Decoded<Vec<_>>>()?;
        let mask = u64::MAX >> (64 - width);
        let value = move |r: &Registers, lane: usize| {
            readers.iter().enumerate().fold(0, |out, (i, read)| out | (read(r, lane) & mask) << (i as u32 * width))
        };
        Ok(match slot {
            Slot::Double(d) => Box::new(move |r, mask| {
                let out: [u64; LANES] = std::array::from_fn(|lane| value(r, lane));
                write(r, d, mask, &out);
            }),
            Slot::Word(d, _) => Box::new(move |r, mask| {
                let out: [u32; LANES] = std::array::from_fn(|lane| value(r, lane) as u32);
                write(r, d, mask, &out);
            }),
            Slot::Predicate(_) => return Err(self.fail("the result is a predicate")),
        })
    }

    fn unpack(&mut self, parts: &[Operand], a: &Operand) -> Decoded<LaneOp> {
        let (read, bits) = self.reader(a)?;
        let width = bits / parts.len() as u32;
        let slots = parts.iter().map(|p| self.destination(p, width)).collect::<Decoded<Vec<Slot>>>()?;
        let mask_bits = u64::MAX >> (64 - width);
        Ok(Box::new(move |r, mask| {
            let all: [u64; LANES] = std::array::from_fn(|lane| read(r, lane));
            for (i, slot) in slots.iter().enumerate() {
                let part = all.map(|x| x >> (i as u32 * width) & mask_bits);
                match *slot {
                    Slot::Word(d, _) => write(r, d, mask, &part.map(|x| x as u32)),
                    Slot::Double(d) => write(r, d, mask, &part),
                    Slot::Predicate(_) => {}
                }
            }
        }))
    }

    fn select(&mut self, operands: &[Operand]) -> Decoded<LaneOp> {
        let [d, a, b, p] = self.operands(operands)?;
        let (p, negated) = self.predicate(p)?;
        let chosen = move |r: &Registers| if negated { !r.predicates[p] } else { r.predicates[p] };
        Ok(match self.destination(d, 32)? {
            Slot::Word(d, _) => {
                let [a, b] = self.words([a, b])?;
                Box::new(move |r, mask| {
                    let bits = chosen(r);
                    let (x, y) = (r.words[a], r.words[b]);
                    let out: [u32; LANES] = std::array::from_fn(|l| if bits >> l & 1 == 1 { x[l] } else { y[l] });
                    write(r, d, mask, &out);
                })
            }
            Slot::Double(d) => {
                let [a, b] = self.doubles([a, b])?;
                Box::new(move |r, mask| {
                    let bits = chosen(r);
                    let (x, y) = (r.doubles[a], r.doubles[b]);
                    let out: [u64; LANES] = std::array::from_fn(|l| if bits >> l & 1 == 1 { x[l] } else { y[l] });
                    write(r, d, mask, &out);
                })
            }
            Slot::Predicate(_) => return Err(self.fail("the result is a predicate")),
        })
    }

    /// Generic addresses are those of global memory; shared memory lies in a window of them.
    fn address_conversion(&mut self, mods: &mut Mods<'_>, operands: &[Operand]) -> Decoded<LaneOp> {
        if mods.last_type() != Some("u64") {
            return Err(self.refuse(format!("`{}`", mods.op)));
        }
        let to = mods.take("to");
        let space = mods.one_of(&["global", "shared", "shared::cta", "const", "param"]);
        let [d, a] = self.operands(operands)?;
        let (d, a) = (self.double_destination(d)?, self.double(a)?);
        match (space, to) {
            (Some("global" | "const"), _) => Ok(map1(d, a, |x: u64| x)),
            (Some("shared" | "shared::cta"), true) => Ok(map1(d, a, |x: u64| x.wrapping_sub(SHARED_WINDOW))),
            (Some("shared" | "shared::cta"), false) => Ok(map1(d, a, |x: u64| x + SHARED_WINDOW)),
            _ => Err(self.refuse(format!("`{}`", mods.op))),
        }
    }
}
