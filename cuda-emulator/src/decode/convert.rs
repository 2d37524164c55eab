//! `cvt`: between all types of integers and floats.
use super::{
    Class, Decoded, Decoder, Kind, Mods, Slot,
    float::{NAN, Small},
    integer::Int,
    rounding::Rounding,
};
use crate::{
    exec::registers::{LANES, LaneOp, Read, write},
    ptx::{Operand, type_bits},
};

/// A number on its way from one type to another.
#[derive(Clone, Copy)]
enum Number {
    Int(i128),
    Float(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Int(Int),
    Small(Small),
    F32,
    F64,
}

impl Type {
    fn named(ty: &str) -> Option<Type> {
        Some(match ty {
            "f64" => Type::F64,
            "f32" => Type::F32,
            "f16" => Type::Small(Small::F16),
            "bf16" => Type::Small(Small::Bf16),
            "f16x2" | "bf16x2" | "pred" => return None,
            _ => Type::Int(Int::named(ty)?),
        })
    }

    fn read(self, bits: u64) -> Number {
        match self {
            Type::Int(int) => Number::Int(int.number(bits)),
            Type::Small(small) => Number::Float(small.number(bits as u16).into()),
            Type::F32 => Number::Float(f32::from_bits(bits as u32).into()),
            Type::F64 => Number::Float(f64::from_bits(bits)),
        }
    }
}

/// A conversion of one lane.
#[derive(Clone, Copy)]
struct Conversion {
    from: Type,
    to: Type,
    rounding: Rounding,
    /// Of a float to a float of the same width: to a whole number.
    to_whole: bool,
    flushes: bool,
    saturates: bool,
}

impl Conversion {
    fn of(self, bits: u64) -> u64 {
        match (self.from.read(bits), self.to) {
            (Number::Int(n), Type::Int(to)) => to.wrap(if self.saturates { to.clamp(n) } else { n }),
            (Number::Float(x), Type::Int(to)) => {
                // NaN is 0; what is too large becomes the nearest number there is.
                let x = if self.flushes && self.from == Type::F32 && (x as f32).is_subnormal() { 0.0 } else { x };
                to.wrap(to.clamp(self.rounding.whole(x) as i128))
            }
            (Number::Int(n), to) => self.round_int(n, to),
            (Number::Float(x), to) => self.round_float(x, to),
        }
    }

    fn round_int(self, n: i128, to: Type) -> u64 {
        match to {
            Type::F64 => (n as f64).to_bits(),
            Type::F32 => u64::from((n as f32).to_bits()),
            // Of 64 bits, `f64` rounds before: to odd, so that rounding again is right.
            Type::Small(small) => {
                let near = n as f64;
                let odd = if near as i128 == n || near.to_bits() & 1 == 1 {
                    near
                } else {
                    let away = (near as i128).abs() < n.abs();
                    f64::from_bits(if away { near.to_bits() + 1 } else { near.to_bits() - 1 })
                };
                u64::from(small.bits(odd))
            }
            Type::Int(_) => unreachable!("integers are not rounded"),
        }
    }

    fn round_float(self, x: f64, to: Type) -> u64 {
        let subnormal = (x as f32).is_subnormal();
        let x = if self.flushes && self.from == Type::F32 && subnormal { 0f64.copysign(x) } else { x };
        let x = if self.to_whole { self.rounding.whole(x) } else { x };
        let x = if self.saturates { if x > 0.0 { x.min(1.0) } else { 0.0 } } else { x };
        match to {
            Type::F64 => x.to_bits(),
            Type::F32 if x.is_nan() => u64::from(NAN),
            Type::F32 => {
                let y = if self.to_whole { x as f32 } else { self.rounding.to_f32(x) };
                let y = if self.flushes && y.is_subnormal() { 0f32.copysign(y) } else { y };
                u64::from(y.to_bits())
            }
            Type::Small(small) => u64::from(small.bits(x)),
            Type::Int(_) => unreachable!("a float"),
        }
    }
}

impl Decoder<'_> {
    pub(super) fn convert(&mut self, mods: &mut Mods<'_>, operands: &[Operand]) -> Decoded<(Kind, Class)> {
        let (Some(from), Some(to)) = (mods.last_type(), mods.last_type()) else {
            return Err(self.refuse(format!("`{}`", mods.op)));
        };
        let rounding = mods.one_of(&["rni", "rzi", "rmi", "rpi", "rn", "rz", "rm", "rp"]);
        let (flushes, saturates) = (mods.take("ftz"), mods.take("sat"));
        let way = rounding.map_or(Rounding::Nearest, Rounding::named);
        if matches!(to, "f16x2" | "bf16x2") && from == "f32" && way == Rounding::Nearest {
            return self.pack_halves(to, operands);
        }
        let (Some(source), Some(target)) = (Type::named(from), Type::named(to)) else {
            return Err(self.refuse(format!("`{}`", mods.op)));
        };
        let is_small = matches!(target, Type::Small(_));
        if way != Rounding::Nearest && (is_small || matches!(source, Type::Int(_))) {
            return Err(self.refuse(format!("`{}`: this rounding", mods.op)));
        }
        let to_whole = rounding.is_some_and(|r| r.ends_with('i')) && !matches!(target, Type::Int(_));
        let conversion = Conversion { from: source, to: target, rounding: way, to_whole, flushes, saturates };
        let class = if from == "f64" || to == "f64" { Class::Double } else { Class::Move };
        // Results are extended to registers that are wider than them.
        let signed = matches!(target, Type::Int(int) if int.signed);
        Ok((Kind::Lanes(self.lane_conversion(operands, from, to, signed, move |x| conversion.of(x))?), class))
    }

    /// A function of the bits of each lane, whose operand and result lie in registers of at least their types' widths.
    fn lane_conversion(
        &mut self,
        operands: &[Operand],
        from: &str,
        to: &str,
        signed: bool,
        f: impl Fn(u64) -> u64 + Send + Sync + 'static,
    ) -> Decoded<LaneOp> {
        let bits = |ty: &str| type_bits(ty).expect("a type");
        let [d, a] = self.operands(operands)?;
        let wide_source = matches!(a, Operand::Name(name, _) if matches!(self.names.get(name), Some(Slot::Double(_))));
        let (from_bits, to_bits) = (bits(from), bits(to));
        let mask = u64::MAX >> (64 - from_bits);
        let read: Read = if wide_source || from_bits == 64 {
            let a = self.double(a)?;
            Box::new(move |r, lane| r.doubles[a][lane] & mask)
        } else {
            let a = self.word(a)?;
            Box::new(move |r, lane| u64::from(r.words[a][lane]) & mask)
        };
        let slot = self.destination(d, to_bits)?;
        let extended = move |x: u64, width: u32| {
            if signed && width > to_bits {
                ((x << (64 - to_bits)).cast_signed() >> (64 - to_bits)).cast_unsigned() & (u64::MAX >> (64 - width))
            } else {
                x
            }
        };
        Ok(match slot {
            Slot::Double(d) => Box::new(move |r, mask| {
                let mut out = [0; LANES];
                (0..LANES).for_each(|lane| out[lane] = extended(f(read(r, lane)), 64));
                write(r, d, mask, &out);
            }),
            Slot::Word(d, width) => Box::new(move |r, mask| {
                let mut out = [0; LANES];
                (0..LANES).for_each(|lane| out[lane] = extended(f(read(r, lane)), width) as u32);
                write(r, d, mask, &out);
            }),
            Slot::Predicate(_) => return Err(self.fail("the result is a predicate")),
        })
    }

    /// `cvt.rn.f16x2.f32 d, high, low`
    fn pack_halves(&mut self, to: &str, operands: &[Operand]) -> Decoded<(Kind, Class)> {
        let small = if to.starts_with('b') { Small::Bf16 } else { Small::F16 };
        let [d, high, low] = self.operands(operands)?;
        let (d, ab) = (self.word_destination(d)?, self.words([high, low])?);
        let part = move |x: u32| u32::from(small.bits(f32::from_bits(x).into()));
        let op = crate::exec::registers::map2(d, ab, move |high: u32, low: u32| part(high) << 16 | part(low));
        Ok((Kind::Lanes(op), Class::Move))
    }
}
