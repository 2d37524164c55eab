//! Arithmetic and comparisons of floats. NaN becomes the canonical one, as on hardware; approximations are exact here.
use super::{
    Class, Decoded, Decoder, Kind, Mods,
    integer::{Test, order},
    rounding::Rounding,
};
use crate::{
    exec::registers::{LaneOp, lanes_where, map1, map2, map3},
    ptx::Operand,
};
use half::{bf16, f16};
use std::cmp::Ordering;

/// The NaN that arithmetic on `f32` gives.
pub(super) const NAN: u32 = 0x7fff_ffff;

/// An `f32` as bits, with the one NaN that hardware gives.
pub(super) fn bits(x: f32) -> u32 {
    if x.is_nan() { NAN } else { x.to_bits() }
}

/// Numbers of up to 16 bits, in pairs or alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Small {
    F16,
    Bf16,
}

impl Small {
    pub(super) fn number(self, bits: u16) -> f32 {
        match self {
            Small::F16 => f16::from_bits(bits).to_f32(),
            Small::Bf16 => bf16::from_bits(bits).to_f32(),
        }
    }

    /// Rounded to nearest even.
    pub(super) fn bits(self, x: f64) -> u16 {
        match self {
            _ if x.is_nan() => 0x7fff,
            Small::F16 => f16::from_f64(x).to_bits(),
            Small::Bf16 => bf16::from_f64(x).to_bits(),
        }
    }
}

/// A subnormal number as the zero of its sign.
fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

/// What happens to operands and results of `f32`.
#[derive(Clone, Copy)]
struct Mode {
    flushes: bool,
    saturates: bool,
}

impl Mode {
    fn operand(self, bits: u32) -> f32 {
        let x = f32::from_bits(bits);
        if self.flushes { flush(x) } else { x }
    }

    fn result(self, x: f32) -> u32 {
        let x = if self.flushes { flush(x) } else { x };
        // NaN saturates to 0.
        if self.saturates { if x > 0.0 { x.min(1.0).to_bits() } else { 0 } } else { bits(x) }
    }
}

impl Decoder<'_> {
    pub(super) fn float(
        &mut self,
        name: &str,
        ty: &str,
        mods: &mut Mods<'_>,
        operands: &[Operand],
    ) -> Decoded<(Kind, Class)> {
        let class = match (name, ty) {
            ("fma" | "mad", "f64") => Class::Double,
            ("fma" | "mad", _) => Class::Fma,
            (_, "f64") => Class::Double,
            _ => Class::Float,
        };
        if name == "setp" {
            return Ok((self.set_predicate(ty, mods, operands)?, class));
        }
        if name == "testp" {
            return Ok((self.test_property(ty, mods, operands)?, class));
        }
        let rounding = mods.one_of(&["rn", "rz", "rm", "rp"]).map_or(Rounding::Nearest, Rounding::named);
        if rounding != Rounding::Nearest && (ty != "f32" || !matches!(name, "add" | "sub" | "mul" | "fma" | "mad")) {
            return Err(self.refuse(format!("`{}`: rounding other than to nearest", mods.op)));
        }
        let op = match ty {
            "f32" => self.float32(name, rounding, mods, operands)?,
            "f64" => self.float64(name, mods, operands)?,
            "f16" | "bf16" | "f16x2" | "bf16x2" => self.float16(name, ty, mods, operands)?,
            _ => return Err(self.refuse(format!("`{}`", mods.op))),
        };
        Ok((Kind::Lanes(op), class))
    }

    fn float32(
        &mut self,
        name: &str,
        rounding: Rounding,
        mods: &mut Mods<'_>,
        operands: &[Operand],
    ) -> Decoded<LaneOp> {
        let mode = Mode { flushes: mods.take("ftz"), saturates: mods.take("sat") };
        // Without flushing and saturating, loops over lanes become vector code.
        let plain = !mode.flushes && !mode.saturates && rounding == Rounding::Nearest;
        if matches!(name, "fma" | "mad") {
            let [d, a, b, c] = self.operands(operands)?;
            let (d, abc) = (self.word_destination(d)?, self.words([a, b, c])?);
            return Ok(if plain {
                map3(d, abc, |a: u32, b: u32, c: u32| {
                    bits(f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(c)))
                })
            } else {
                map3(d, abc, move |a: u32, b: u32, c: u32| {
                    mode.result(rounding.fma(mode.operand(a), mode.operand(b), mode.operand(c)))
                })
            });
        }
        if rounding != Rounding::Nearest {
            let [d, a, b] = self.operands(operands)?;
            let (d, ab) = (self.word_destination(d)?, self.words([a, b])?);
            let f: fn(Rounding, f32, f32) -> f32 = match name {
                "add" => |r, x, y| r.fma(x, 1.0, y),
                "sub" => |r, x, y| r.fma(x, 1.0, -y),
                // The sign of a product that is 0 is that of its factors.
                _ => |r, x, y| r.fma(x, y, 0f32.copysign(x * y)),
            };
            return Ok(map2(d, ab, move |a: u32, b: u32| mode.result(f(rounding, mode.operand(a), mode.operand(b)))));
        }
        let propagates = mods.take("NaN");
        let binary: Option<fn(f32, f32) -> f32> = match name {
            "add" => Some(|x, y| x + y),
            "sub" => Some(|x, y| x - y),
            "mul" => Some(|x, y| x * y),
            "div" => {
                mods.one_of(&["full", "approx"]);
                Some(|x, y| x / y)
            }
            "min" if propagates => Some(|x, y| if x.is_nan() || y.is_nan() { f32::NAN } else { lesser(x, y) }),
            "max" if propagates => Some(|x, y| if x.is_nan() || y.is_nan() { f32::NAN } else { -lesser(-x, -y) }),
            "min" => Some(lesser),
            "max" => Some(|x, y| -lesser(-x, -y)),
            _ => None,
        };
        if let Some(f) = binary {
            let [d, a, b] = self.operands(operands)?;
            let (d, ab) = (self.word_destination(d)?, self.words([a, b])?);
            return Ok(match (name, plain) {
                ("add", true) => map2(d, ab, |a: u32, b: u32| bits(f32::from_bits(a) + f32::from_bits(b))),
                ("sub", true) => map2(d, ab, |a: u32, b: u32| bits(f32::from_bits(a) - f32::from_bits(b))),
                ("mul", true) => map2(d, ab, |a: u32, b: u32| bits(f32::from_bits(a) * f32::from_bits(b))),
                _ => map2(d, ab, move |a: u32, b: u32| mode.result(f(mode.operand(a), mode.operand(b)))),
            });
        }
        if name == "copysign" {
            let [d, a, b] = self.operands(operands)?;
            let (d, ab) = (self.word_destination(d)?, self.words([a, b])?);
            return Ok(map2(d, ab, |sign: u32, of: u32| of & 0x7fff_ffff | sign & 0x8000_0000));
        }
        mods.take("approx");
        let unary: fn(f32) -> f32 = match name {
            "abs" => f32::abs,
            "neg" => |x| -x,
            "sqrt" => f32::sqrt,
            "rsqrt" => |x| (1.0 / f64::from(x).sqrt()) as f32,
            "rcp" => |x| 1.0 / x,
            "ex2" => |x| f64::from(x).exp2() as f32,
            "lg2" => |x| f64::from(x).log2() as f32,
            "sin" => |x| f64::from(x).sin() as f32,
            "cos" => |x| f64::from(x).cos() as f32,
            "tanh" => |x| f64::from(x).tanh() as f32,
            _ => return Err(self.refuse(format!("`{}`", mods.op))),
        };
        let [d, a] = self.operands(operands)?;
        Ok(map1(self.word_destination(d)?, self.word(a)?, move |a: u32| mode.result(unary(mode.operand(a)))))
    }

    fn float64(&mut self, name: &str, mods: &mut Mods<'_>, operands: &[Operand]) -> Decoded<LaneOp> {
        if matches!(name, "fma" | "mad") {
            let [d, a, b, c] = self.operands(operands)?;
            return Ok(map3(self.double_destination(d)?, self.doubles([a, b, c])?, |a: u64, b: u64, c: u64| {
                f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)).to_bits()
            }));
        }
        let binary: Option<fn(f64, f64) -> f64> = match name {
            "add" => Some(|x, y| x + y),
            "sub" => Some(|x, y| x - y),
            "mul" => Some(|x, y| x * y),
            "div" => Some(|x, y| x / y),
            "min" => Some(lesser64),
            "max" => Some(|x, y| -lesser64(-x, -y)),
            "copysign" => Some(|sign, of| of.copysign(sign)),
            _ => None,
        };
        if let Some(f) = binary {
            let [d, a, b] = self.operands(operands)?;
            return Ok(map2(self.double_destination(d)?, self.doubles([a, b])?, move |a: u64, b: u64| {
                f(f64::from_bits(a), f64::from_bits(b)).to_bits()
            }));
        }
        mods.take("approx");
        let unary: fn(f64) -> f64 = match name {
            "abs" => f64::abs,
            "neg" => |x| -x,
            "sqrt" => f64::sqrt,
            "rcp" => |x| 1.0 / x,
            _ => return Err(self.refuse(format!("`{}`", mods.op))),
        };
        let [d, a] = self.operands(operands)?;
        Ok(map1(self.double_destination(d)?, self.double(a)?, move |a: u64| unary(f64::from_bits(a)).to_bits()))
    }

    /// One or two numbers of 16 bits in a register, each rounded once: `f64` holds sums and products of two of them exactly.
    fn float16(&mut self, name: &str, ty: &str, mods: &mut Mods<'_>, operands: &[Operand]) -> Decoded<LaneOp> {
        let small = if ty.starts_with('b') { Small::Bf16 } else { Small::F16 };
        let parts = if ty.ends_with("x2") { 2 } else { 1 };
        let propagates = mods.take("NaN");
        if mods.take("ftz") || mods.take("sat") || mods.take("relu") {
            return Err(self.refuse(format!("`{}`", mods.op)));
        }
        let f: fn(f64, f64, f64) -> f64 = match name {
            "add" => |x, y, _| x + y,
            "sub" => |x, y, _| x - y,
            "mul" => |x, y, _| x * y,
            "fma" => |x, y, z| x * y + z,
            "min" if propagates => |x, y, _| if x.is_nan() || y.is_nan() { f64::NAN } else { x.min(y) },
            "max" if propagates => |x, y, _| if x.is_nan() || y.is_nan() { f64::NAN } else { x.max(y) },
            "min" => |x, y, _| x.min(y),
            "max" => |x, y, _| x.max(y),
            "neg" => |x, _, _| -x,
            "abs" => |x, _, _| x.abs(),
            _ => return Err(self.refuse(format!("`{}`", mods.op))),
        };
        let count = match name {
            "fma" => 3,
            "neg" | "abs" => 1,
            _ => 2,
        };
        if operands.len() != count + 1 {
            return Err(self.fail(format!("`{}` takes {count} operands", mods.op)));
        }
        let d = self.word_destination(&operands[0])?;
        let mut of = [0; 3];
        for i in 0..3 {
            of[i] = self.word(&operands[1 + i.min(count - 1)])?;
        }
        Ok(map3(d, of, move |a: u32, b: u32, c: u32| {
            (0..parts).fold(0, |out, part| {
                let number = |x: u32| f64::from(small.number((x >> (16 * part)) as u16));
                out | u32::from(small.bits(f(number(a), number(b), number(c)))) << (16 * part)
            })
        }))
    }

    pub(super) fn float_test(
        &mut self,
        name: &'static str,
        ty: &str,
        mods: &mut Mods<'_>,
        of: [&Operand; 2],
    ) -> Decoded<Test> {
        let flushes = mods.take("ftz");
        // What the comparison gives where a number is NaN.
        let (name, if_nan) = match name {
            "num" => return self.both_numbers(ty, of, true),
            "nan" => return self.both_numbers(ty, of, false),
            "equ" => ("eq", true),
            "neu" => ("ne", true),
            "ltu" => ("lt", true),
            "leu" => ("le", true),
            "gtu" => ("gt", true),
            "geu" => ("ge", true),
            other => (other, false),
        };
        let Some(f) = order(name) else { return Err(self.refuse(format!("`.{name}` of floats"))) };
        let judge = move |o: Option<Ordering>| o.map_or(if_nan, f);
        match ty {
            "f64" => {
                let ab = self.doubles(of)?;
                Ok(Box::new(move |r| {
                    lanes_where(r, ab, |x: u64, y: u64| judge(f64::from_bits(x).partial_cmp(&f64::from_bits(y))))
                }))
            }
            "f32" => {
                let ab = self.words(of)?;
                let number = move |x: u32| if flushes { flush(f32::from_bits(x)) } else { f32::from_bits(x) };
                Ok(Box::new(move |r| lanes_where(r, ab, |x: u32, y: u32| judge(number(x).partial_cmp(&number(y))))))
            }
            "f16" | "bf16" => {
                let small = if ty == "bf16" { Small::Bf16 } else { Small::F16 };
                let ab = self.words(of)?;
                Ok(Box::new(move |r| {
                    lanes_where(r, ab, |x: u32, y: u32| {
                        judge(small.number(x as u16).partial_cmp(&small.number(y as u16)))
                    })
                }))
            }
            _ => Err(self.refuse(format!("comparing `{ty}`"))),
        }
    }

    fn both_numbers(&mut self, ty: &str, of: [&Operand; 2], want: bool) -> Decoded<Test> {
        match ty {
            "f64" => {
                let ab = self.doubles(of)?;
                let nan = |x: u64| f64::from_bits(x).is_nan();
                Ok(Box::new(move |r| lanes_where(r, ab, |x: u64, y: u64| (nan(x) || nan(y)) != want)))
            }
            "f32" => {
                let ab = self.words(of)?;
                let nan = |x: u32| f32::from_bits(x).is_nan();
                Ok(Box::new(move |r| lanes_where(r, ab, |x: u32, y: u32| (nan(x) || nan(y)) != want)))
            }
            _ => Err(self.refuse(format!("comparing `{ty}`"))),
        }
    }

    fn test_property(&mut self, ty: &str, mods: &mut Mods<'_>, operands: &[Operand]) -> Decoded<Kind> {
        let Some(property) = mods.one_of(&["finite", "infinite", "number", "notanumber", "normal", "subnormal"]) else {
            return Err(self.refuse(format!("`{}`", mods.op)));
        };
        let f: fn(f64, bool) -> bool = match property {
            "finite" => |x, _| x.is_finite(),
            "infinite" => |x, _| x.is_infinite(),
            "number" => |x, _| !x.is_nan(),
            "notanumber" => |x, _| x.is_nan(),
            "normal" => |x, subnormal| x.is_finite() && x != 0.0 && !subnormal,
            _ => |_, subnormal| subnormal,
        };
        let [d, a] = self.operands(operands)?;
        let super::Slot::Predicate(p) = self.destination(d, 1)? else {
            return Err(self.fail("`testp` writes a predicate"));
        };
        let test: Test = match ty {
            "f32" => {
                let a = self.word(a)?;
                Box::new(move |r| {
                    lanes_where(r, [a, a], |x: u32, _| f(f32::from_bits(x).into(), f32::from_bits(x).is_subnormal()))
                })
            }
            "f64" => {
                let a = self.double(a)?;
                Box::new(move |r| {
                    lanes_where(r, [a, a], |x: u64, _| f(f64::from_bits(x), f64::from_bits(x).is_subnormal()))
                })
            }
            _ => return Err(self.refuse(format!("`testp` of `{ty}`"))),
        };
        Ok(Kind::Lanes(Box::new(move |r, mask| {
            let bits = test(r);
            r.predicates[p] = r.predicates[p] & !mask | bits & mask;
        })))
    }
}

/// The smaller number, where -0 is less than +0 and NaN is nothing.
fn lesser(x: f32, y: f32) -> f32 {
    match x == y {
        true if x.is_sign_negative() => x,
        true => y,
        false => x.min(y),
    }
}

fn lesser64(x: f64, y: f64) -> f64 {
    match x == y {
        true if x.is_sign_negative() => x,
        true => y,
        false => x.min(y),
    }
}
