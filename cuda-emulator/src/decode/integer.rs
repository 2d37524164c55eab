//! Arithmetic, comparisons and bits of integers.
use super::{Class, Decoded, Decoder, Kind, Mods, Slot};
use crate::{
    exec::registers::{LaneOp, Registers, lanes_where, map1, map2, map3},
    ptx::{Operand, type_bits},
};

/// An integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Int {
    pub bits: u32,
    pub signed: bool,
}

impl Int {
    pub(super) fn named(ty: &str) -> Option<Int> {
        let bits = type_bits(ty).filter(|_| matches!(ty.as_bytes()[0], b'b' | b's' | b'u'))?;
        Some(Int { bits, signed: ty.starts_with('s') })
    }

    /// The number that the bits stand for.
    pub(super) fn number(self, bits: u64) -> i128 {
        let unused = 64 - self.bits;
        if self.signed {
            i128::from((bits << unused).cast_signed() >> unused)
        } else {
            i128::from(bits << unused >> unused)
        }
    }

    /// The bits of a number, modulo 2^bits.
    pub(super) fn wrap(self, number: i128) -> u64 {
        number as u64 & (u64::MAX >> (64 - self.bits))
    }

    fn range(self) -> (i128, i128) {
        if self.signed { (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1) } else { (0, (1 << self.bits) - 1) }
    }

    pub(super) fn clamp(self, number: i128) -> i128 {
        let (low, high) = self.range();
        number.clamp(low, high)
    }
}

impl Decoder<'_> {
    pub(super) fn integer(
        &mut self,
        name: &str,
        ty: &str,
        mods: &mut Mods<'_>,
        operands: &[Operand],
    ) -> Decoded<(Kind, Class)> {
        if ty == "pred" {
            return self.predicates(name, operands);
        }
        let Some(int) = Int::named(ty) else { return Err(self.refuse(format!("`{}`", mods.op))) };
        let op = match name {
            "setp" => return Ok((self.set_predicate(ty, mods, operands)?, Class::Integer)),
            "set" => return Err(self.refuse("`set`: use `setp` and `selp`")),
            "mul" | "mad" => self.product(name == "mad", int, mods, operands)?,
            "add" | "sub" | "min" | "max" | "div" | "rem" | "and" | "or" | "xor" | "shl" | "shr" => {
                self.binary(name, int, mods, operands)?
            }
            "neg" => self.int1(int, operands, move |x| int.wrap(-int.number(x)))?,
            "abs" => self.int1(int, operands, move |x| int.wrap(int.number(x).abs()))?,
            "not" => self.int1(int, operands, move |x| int.wrap(!int.number(x)))?,
            "cnot" => self.int1(int, operands, |x| u64::from(x == 0))?,
            "clz" => self.count(int, operands, move |x| x.leading_zeros() - (64 - int.bits))?,
            "popc" => self.count(int, operands, u64::count_ones)?,
            "brev" => self.int1(int, operands, move |x| x.reverse_bits() >> (64 - int.bits))?,
            "bfind" => {
                let shift = mods.take("shiftamt");
                self.count(int, operands, move |x| leading_bit(int, x, shift))?
            }
            "bfe" => self.extract(int, operands)?,
            "bfi" => self.insert(int, operands)?,
            "shf" => self.funnel(mods, operands)?,
            "prmt" => {
                let [d, a, b, c] = self.operands(operands)?;
                let (d, abc) = (self.word_destination(d)?, self.words([a, b, c])?);
                map3(d, abc, permute)
            }
            "lop3" => {
                let [d, a, b, c, table] = self.operands(operands)?;
                let Operand::Int(table) = table else { return Err(self.fail("`lop3` takes a constant table")) };
                let (d, abc, table) = (self.word_destination(d)?, self.words([a, b, c])?, *table as u32);
                map3(d, abc, move |a: u32, b: u32, c: u32| lop3(a, b, c, table))
            }
            "dp4a" => {
                let signed = mods.rest.pop().and_then(Int::named);
                let Some(first) = signed else { return Err(self.fail("`dp4a` states two types")) };
                let [d, a, b, c] = self.operands(operands)?;
                let (d, abc) = (self.word_destination(d)?, self.words([a, b, c])?);
                let (x, y) = (Int { bits: 8, ..first }, Int { bits: 8, ..int });
                let op = map3(d, abc, move |a: u32, b: u32, c: u32| dot4(x, y, a, b, c));
                return Ok((Kind::Lanes(op), Class::Fma));
            }
            "sad" => {
                let [d, a, b, c] = self.operands(operands)?;
                let (d, abc) = (self.word_destination(d)?, self.words([a, b, c])?);
                map3(d, abc, move |a: u32, b: u32, c: u32| {
                    let apart = int.number(a.into()).abs_diff(int.number(b.into()));
                    c.wrapping_add(apart as u32)
                })
            }
            _ => return Err(self.refuse(format!("`{}`", mods.op))),
        };
        Ok((Kind::Lanes(op), Class::Integer))
    }

    /// `and`, `or`, `xor` and `not` of predicates.
    fn predicates(&mut self, name: &str, operands: &[Operand]) -> Decoded<(Kind, Class)> {
        let Some((result, rest)) = operands.split_first() else { return Err(self.fail("a result is missing")) };
        let Slot::Predicate(d) = self.destination(result, 1)? else {
            return Err(self.fail("the result is not a predicate"));
        };
        let of = rest.iter().map(|o| self.predicate(o)).collect::<Decoded<Vec<_>>>()?;
        let read = |r: &Registers, (p, negated): (usize, bool)| {
            if negated { !r.predicates[p] } else { r.predicates[p] }
        };
        let f: fn(u32, u32) -> u32 = match (name, of.len()) {
            ("not", 1) => |x, _| !x,
            ("mov", 1) => |x, _| x,
            ("and", 2) => |x, y| x & y,
            ("or", 2) => |x, y| x | y,
            ("xor", 2) => |x, y| x ^ y,
            _ => return Err(self.refuse(format!("`{name}.pred`"))),
        };
        let (a, b) = (of[0], *of.last().expect("one or two"));
        let op: LaneOp = Box::new(move |r, mask| {
            let bits = f(read(r, a), read(r, b));
            r.predicates[d] = r.predicates[d] & !mask | bits & mask;
        });
        Ok((Kind::Lanes(op), Class::Integer))
    }

    pub(super) fn word_destination(&mut self, operand: &Operand) -> Decoded<usize> {
        match self.destination(operand, 32)? {
            Slot::Word(at, _) => Ok(at),
            _ => Err(self.fail("the result does not lie in a register of at most 32 bits")),
        }
    }

    pub(super) fn double_destination(&mut self, operand: &Operand) -> Decoded<usize> {
        match self.destination(operand, 64)? {
            Slot::Double(at) => Ok(at),
            _ => Err(self.fail("the result does not lie in a register of 64 bits")),
        }
    }

    fn int1(
        &mut self,
        int: Int,
        operands: &[Operand],
        f: impl Fn(u64) -> u64 + Send + Sync + 'static,
    ) -> Decoded<LaneOp> {
        let [d, a] = self.operands(operands)?;
        if int.bits == 64 {
            return Ok(map1(self.double_destination(d)?, self.double(a)?, f));
        }
        Ok(map1(self.word_destination(d)?, self.word(a)?, move |x: u32| f(x.into()) as u32))
    }

    /// Functions whose result has 32 bits, whatever the operand has.
    fn count(
        &mut self,
        int: Int,
        operands: &[Operand],
        f: impl Fn(u64) -> u32 + Send + Sync + 'static,
    ) -> Decoded<LaneOp> {
        let [d, a] = self.operands(operands)?;
        let d = self.word_destination(d)?;
        if int.bits == 64 {
            return Ok(map1(d, self.double(a)?, f));
        }
        Ok(map1(d, self.word(a)?, move |x: u32| f(x.into())))
    }

    fn int2(
        &mut self,
        int: Int,
        operands: &[Operand],
        f: impl Fn(u64, u64) -> u64 + Send + Sync + 'static,
    ) -> Decoded<LaneOp> {
        let [d, a, b] = self.operands(operands)?;
        if int.bits == 64 {
            return Ok(map2(self.double_destination(d)?, self.doubles([a, b])?, f));
        }
        Ok(map2(self.word_destination(d)?, self.words([a, b])?, move |x: u32, y: u32| f(x.into(), y.into()) as u32))
    }

    fn binary(&mut self, name: &str, int: Int, mods: &mut Mods<'_>, operands: &[Operand]) -> Decoded<LaneOp> {
        if matches!(name, "shl" | "shr") {
            return self.shift(name, int, operands);
        }
        if mods.take("sat") {
            let sign = if name == "sub" { -1 } else { 1 };
            return self.int2(int, operands, move |x, y| int.wrap(int.clamp(int.number(x) + sign * int.number(y))));
        }
        // Modulo 2^bits, signs do not matter; these are what addresses are made of.
        match (name, int.bits) {
            ("add", 32 | 64) => return self.int2(int, operands, u64::wrapping_add),
            ("sub", 32 | 64) => return self.int2(int, operands, u64::wrapping_sub),
            ("and", _) => return self.int2(int, operands, |x, y| x & y),
            ("or", _) => return self.int2(int, operands, |x, y| x | y),
            ("xor", _) => return self.int2(int, operands, |x, y| x ^ y),
            _ => {}
        }
        let f: fn(i128, i128) -> i128 = match name {
            "add" => |x, y| x + y,
            "sub" => |x, y| x - y,
            "min" => i128::min,
            "max" => i128::max,
            // Unspecified in PTX; hardware gives all ones, and the dividend.
            "div" => |x, y| if y == 0 { -1 } else { x / y },
            _ => |x, y| if y == 0 { x } else { x % y },
        };
        self.int2(int, operands, move |x, y| int.wrap(f(int.number(x), int.number(y))))
    }

    /// Amounts of the width or more give 0, or the sign.
    fn shift(&mut self, name: &str, int: Int, operands: &[Operand]) -> Decoded<LaneOp> {
        let [d, a, b] = self.operands(operands)?;
        let left = name == "shl";
        let f = move |x: u64, by: u32| {
            let by = by.min(int.bits);
            int.wrap(if left { int.number(x) << by } else { int.number(x) >> by })
        };
        let by = self.word(b)?;
        if int.bits == 64 {
            return Ok(map2(self.double_destination(d)?, [self.double(a)?, by], f));
        }
        Ok(map2(self.word_destination(d)?, [self.word(a)?, by], move |x: u32, by: u32| f(x.into(), by) as u32))
    }

    /// `mul` and `mad`, of which the low half, the high half or all is kept.
    fn product(&mut self, adds: bool, int: Int, mods: &mut Mods<'_>, operands: &[Operand]) -> Decoded<LaneOp> {
        let part = mods.one_of(&["lo", "hi", "wide"]).unwrap_or("lo");
        let mut operands: Vec<Operand> = operands.to_vec();
        if !adds {
            operands.push(Operand::Int(0));
        }
        let [d, a, b, c] = self.operands(&operands)?;
        let bits = int.bits;
        match (part, bits) {
            ("wide", 32) => {
                let (d, [a, b], c) = (self.double_destination(d)?, self.words([a, b])?, self.double(c)?);
                if int.signed {
                    return Ok(map3(d, [a, b, c], |x: u32, y: u32, z: u64| {
                        (i64::from(x.cast_signed()) * i64::from(y.cast_signed())).cast_unsigned().wrapping_add(z)
                    }));
                }
                Ok(map3(d, [a, b, c], |x: u32, y: u32, z: u64| (u64::from(x) * u64::from(y)).wrapping_add(z)))
            }
            ("wide", 16) => {
                let (d, abc) = (self.word_destination(d)?, self.words([a, b, c])?);
                Ok(map3(d, abc, move |x: u32, y: u32, z: u32| {
                    ((int.number(x.into()) * int.number(y.into())) as u32).wrapping_add(z)
                }))
            }
            ("lo", 64) => Ok(map3(self.double_destination(d)?, self.doubles([a, b, c])?, |x: u64, y: u64, z: u64| {
                x.wrapping_mul(y).wrapping_add(z)
            })),
            ("hi", 64) => {
                Ok(map3(self.double_destination(d)?, self.doubles([a, b, c])?, move |x: u64, y: u64, z: u64| {
                    let high = if int.signed {
                        (int.number(x) * int.number(y)) >> 64
                    } else {
                        ((u128::from(x) * u128::from(y)) >> 64).cast_signed()
                    };
                    int.wrap(high + int.number(z))
                }))
            }
            ("lo", 32) => Ok(map3(self.word_destination(d)?, self.words([a, b, c])?, |x: u32, y: u32, z: u32| {
                x.wrapping_mul(y).wrapping_add(z)
            })),
            ("lo" | "hi", 16 | 32) => {
                let shift = if part == "hi" { bits } else { 0 };
                let (d, abc) = (self.word_destination(d)?, self.words([a, b, c])?);
                Ok(map3(d, abc, move |x: u32, y: u32, z: u32| {
                    let product = int.number(x.into()) * int.number(y.into());
                    int.wrap((product >> shift) + int.number(z.into())) as u32
                }))
            }
            _ => Err(self.refuse(format!("`{}`", mods.op))),
        }
    }

    fn extract(&mut self, int: Int, operands: &[Operand]) -> Decoded<LaneOp> {
        let [d, a, b, c] = self.operands(operands)?;
        let (at, length) = (self.word(b)?, self.word(c)?);
        let f = move |x: u64, at: u32, length: u32| bit_field(int, x, at & 255, length & 255);
        if int.bits == 64 {
            return Ok(map3(self.double_destination(d)?, [self.double(a)?, at, length], f));
        }
        Ok(map3(self.word_destination(d)?, [self.word(a)?, at, length], move |x: u32, at: u32, n: u32| {
            f(x.into(), at, n) as u32
        }))
    }

    fn insert(&mut self, int: Int, operands: &[Operand]) -> Decoded<LaneOp> {
        let [d, a, b, at, length] = self.operands(operands)?;
        let (Operand::Int(at), Operand::Int(length)) = (at, length) else {
            return Err(self.refuse("`bfi` with a place that is not constant"));
        };
        let (at, length) = ((*at).min(64) as u32, (*length).min(64) as u32);
        let ones = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
        let mask = int.wrap(i128::from(ones.checked_shl(at).unwrap_or(0)));
        let f = move |x: u64, y: u64| y & !mask | x.checked_shl(at).unwrap_or(0) & mask;
        if int.bits == 64 {
            return Ok(map2(self.double_destination(d)?, self.doubles([a, b])?, f));
        }
        Ok(map2(self.word_destination(d)?, self.words([a, b])?, move |x: u32, y: u32| f(x.into(), y.into()) as u32))
    }

    fn funnel(&mut self, mods: &mut Mods<'_>, operands: &[Operand]) -> Decoded<LaneOp> {
        let left = mods.one_of(&["l", "r"]) == Some("l");
        let wraps = mods.one_of(&["wrap", "clamp"]) == Some("wrap");
        let [d, a, b, c] = self.operands(operands)?;
        let (d, abc) = (self.word_destination(d)?, self.words([a, b, c])?);
        Ok(map3(d, abc, move |low: u32, high: u32, by: u32| {
            let by = if wraps { by & 31 } else { by.min(32) };
            let both = u64::from(high) << 32 | u64::from(low);
            if left { ((u128::from(both) << by) >> 32) as u32 } else { (both >> by) as u32 }
        }))
    }

    /// `setp`, with one or two results, perhaps joined with another predicate.
    pub(super) fn set_predicate(&mut self, ty: &str, mods: &mut Mods<'_>, operands: &[Operand]) -> Decoded<Kind> {
        const NAMES: [&str; 18] = [
            "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu",
            "num", "nan",
        ];
        let Some(name) = mods.one_of(&NAMES) else { return Err(self.refuse(format!("`{}`", mods.op))) };
        let join = mods.one_of(&["and", "or", "xor"]);
        let (results, rest) = operands.split_first().ok_or_else(|| self.fail("`setp` takes operands"))?;
        let (first, second) = match results {
            Operand::Pair(p, q) => (&**p, Some(&**q)),
            other => (other, None),
        };
        let mut predicate = |o: &Operand| match self.destination(o, 1)? {
            Slot::Predicate(p) => Ok(p),
            _ => Err(self.fail("`setp` writes predicates")),
        };
        let p = predicate(first)?;
        let q = second.map(&mut predicate).transpose()?;
        let other = match (join, rest) {
            (Some(_), [_, _, c]) => Some(self.predicate(c)?),
            (None, [_, _]) => None,
            _ => return Err(self.fail("`setp` has a wrong number of operands")),
        };
        let test = self.test(name, ty, mods, [&rest[0], &rest[1]])?;
        let f: fn(u32, u32) -> u32 = match join {
            Some("and") => |x, y| x & y,
            Some("or") => |x, y| x | y,
            Some(_) => |x, y| x ^ y,
            None => |x, _| x,
        };
        Ok(Kind::Lanes(Box::new(move |r, mask| {
            let bits = test(r);
            let joined = other.map_or(0, |(c, negated)| if negated { !r.predicates[c] } else { r.predicates[c] });
            r.predicates[p] = r.predicates[p] & !mask | f(bits, joined) & mask;
            if let Some(q) = q {
                r.predicates[q] = r.predicates[q] & !mask | f(!bits, joined) & mask;
            }
        })))
    }

    /// A comparison of all lanes.
    fn test(&mut self, name: &'static str, ty: &str, mods: &mut Mods<'_>, of: [&Operand; 2]) -> Decoded<Test> {
        if let Some(int) = Int::named(ty) {
            let int = if matches!(name, "lo" | "ls" | "hi" | "hs") { Int { signed: false, ..int } } else { int };
            let Some(f) = order(name) else { return Err(self.refuse(format!("`.{name}` of integers"))) };
            if int.bits == 64 {
                let ab = self.doubles(of)?;
                return Ok(Box::new(move |r| {
                    lanes_where(r, ab, |x: u64, y: u64| f(int.number(x).cmp(&int.number(y))))
                }));
            }
            let ab = self.words(of)?;
            return Ok(Box::new(move |r| {
                lanes_where(r, ab, |x: u32, y: u32| f(int.number(x.into()).cmp(&int.number(y.into()))))
            }));
        }
        self.float_test(name, ty, mods, of)
    }
}

/// A test of two registers, a bit per lane.
pub(super) type Test = Box<dyn Fn(&Registers) -> u32 + Send + Sync>;

/// The orders in which a comparison holds.
pub(super) fn order(name: &str) -> Option<fn(std::cmp::Ordering) -> bool> {
    Some(match name {
        "eq" => |o| o.is_eq(),
        "ne" => |o| o.is_ne(),
        "lt" | "lo" => |o| o.is_lt(),
        "le" | "ls" => |o| o.is_le(),
        "gt" | "hi" => |o| o.is_gt(),
        "ge" | "hs" => |o| o.is_ge(),
        _ => return None,
    })
}

/// The place of the first bit that differs from the sign, or how far to shift it to the front; all ones if there is none.
fn leading_bit(int: Int, x: u64, shift: bool) -> u32 {
    let number = int.number(x);
    let magnitude = if number < 0 { !number } else { number };
    if magnitude == 0 {
        return u32::MAX;
    }
    let place = 127 - magnitude.leading_zeros();
    if shift { int.bits - 1 - place } else { place }
}

fn bit_field(int: Int, x: u64, at: u32, length: u32) -> u64 {
    let number = int.number(x);
    if length == 0 {
        return 0;
    }
    // Behind the end, there are copies of the sign, or zeros.
    let shifted = number >> at.min(127);
    if length >= 64 {
        return int.wrap(shifted);
    }
    let field = (shifted as u64) & ((1 << length) - 1);
    let sign = if int.signed { (number >> (at + length - 1).min(int.bits - 1)) & 1 } else { 0 };
    int.wrap(i128::from(field) - (sign << length))
}

/// Any four of eight bytes.
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    (0..4).fold(0, |out, i| {
        let select = selector >> (4 * i);
        let byte = bytes[(select & 7) as usize];
        let byte = if select & 8 == 0 {
            byte
        } else if byte & 0x80 == 0 {
            0
        } else {
            0xff
        };
        out | u32::from(byte) << (8 * i)
    })
}

/// Any function of three bits.
fn lop3(a: u32, b: u32, c: u32, table: u32) -> u32 {
    (0..8).filter(|case| table >> case & 1 == 1).fold(0, |out, case| {
        let pick = |x: u32, bit: u32| if case >> bit & 1 == 1 { x } else { !x };
        out | pick(a, 2) & pick(b, 1) & pick(c, 0)
    })
}

fn dot4(x: Int, y: Int, a: u32, b: u32, c: u32) -> u32 {
    let products = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
    products.fold(c, |sum, (a, b)| sum.wrapping_add((x.number(a.into()) * y.number(b.into())) as u32))
}
