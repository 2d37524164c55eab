//! Conversions between element types.
use super::emitter::{Emitter, Refused};
use super::parts::{Form, Parts, int_part, lane_type, part_count, part_type};
use cranelift::prelude::{InstBuilder, Value, types};
use numrsc_ir::kernel::{Convert, Elem, Ty};

impl Emitter<'_> {
    pub(super) fn convert(&mut self, op: Convert, a: &Parts, to: Elem) -> Refused<Parts> {
        let ty = a.ty.with(to);
        if op == Convert::Half {
            return Err("numbers of 16 bits are converted by other instructions here".into());
        }
        if let Some(packed) = self.convert_packed(op, a, ty) {
            return Ok(Parts::packed(ty, packed));
        }
        let from = a.ty.elem;
        let lanes = self.lanes(a).into_iter().map(|x| self.convert_lane(op, x, from, to)).collect();
        Ok(Parts::lanes(ty, lanes))
    }

    /// Converts lanes of integers to another width, doubling or halving step by step.
    pub(super) fn resize(
        &mut self,
        mut parts: Vec<Value>,
        lanes: u32,
        mut from: u32,
        to: u32,
        signed: bool,
    ) -> Vec<Value> {
        while from < to {
            from *= 2;
            let count = part_count(lanes, from).unwrap_or(parts.len() * 2);
            parts = (0..count)
                .map(|i| match (signed, i % 2) {
                    (true, 0) => self.ins().swiden_low(parts[i / 2]),
                    (true, _) => self.ins().swiden_high(parts[i / 2]),
                    (false, 0) => self.ins().uwiden_low(parts[i / 2]),
                    (false, _) => self.ins().uwiden_high(parts[i / 2]),
                })
                .collect();
        }
        while from > to {
            from /= 2;
            let (narrow, size) = (int_part(from), (from / 8) as usize);
            // The lower half of every lane.
            let bytes: [u8; 16] = std::array::from_fn(|i| (i / size * 2 * size + i % size) as u8);
            parts = parts
                .chunks(2)
                .map(|pair| {
                    let half = self.shuffle_bytes(pair[0], *pair.last().unwrap_or(&pair[0]), bytes);
                    self.cast(narrow, half)
                })
                .collect();
        }
        parts
    }

    fn convert_packed(&mut self, op: Convert, a: &Parts, ty: Ty) -> Option<Vec<Value>> {
        let (from, to, lanes) = (a.ty.elem, ty.elem, ty.lanes);
        self.packs(ty)?;
        if from == Elem::I1 {
            return self.mask_to_numbers(op, a, ty);
        }
        self.packs(a.ty)?;
        let part = part_type(to);
        match op {
            Convert::Narrow | Convert::SExt | Convert::ZExt => {
                let parts = self.packed(a)?;
                Some(self.resize(parts, lanes, from.bits(), to.bits(), op == Convert::SExt))
            }
            Convert::Float if to == Elem::F64 => {
                let parts = self.packed(a)?;
                let count = part_count(lanes, 64)?;
                Some((0..count).map(|i| self.promote_half(parts[i / 2], i % 2 == 1)).collect())
            }
            Convert::Float => {
                let parts = self.packed(a)?;
                let halves: Vec<Value> = parts.into_iter().map(|p| self.ins().fvdemote(p)).collect();
                let bytes = std::array::from_fn(|i| if i < 8 { i as u8 } else { i as u8 + 8 });
                Some(
                    halves
                        .chunks(2)
                        .map(|pair| match *pair {
                            [a, b] => self.shuffle_bytes(a, b, bytes),
                            _ => pair[0],
                        })
                        .collect(),
                )
            }
            Convert::SToF | Convert::UToF if from.bits() > to.bits() => None,
            Convert::SToF | Convert::UToF => {
                let parts = self.packed(a)?;
                let mut signed = op == Convert::SToF;
                let wide = self.resize(parts, lanes, from.bits(), to.bits(), signed);
                // A widened number fits the signed type.
                signed |= from.bits() < to.bits();
                Some(
                    wide.into_iter()
                        .map(|v| match signed {
                            true => self.ins().fcvt_from_sint(part, v),
                            false => self.ins().fcvt_from_uint(part, v),
                        })
                        .collect(),
                )
            }
            Convert::FToS | Convert::FToU if from == Elem::F32 && to.bits() <= 32 => {
                let (parts, signed) = (self.packed(a)?, op == Convert::FToS);
                let whole = parts
                    .into_iter()
                    .map(|v| {
                        let v = match signed {
                            true => self.ins().fcvt_to_sint_sat(types::I32X4, v),
                            false => self.ins().fcvt_to_uint_sat(types::I32X4, v),
                        };
                        self.clamp(v, to.bits(), signed)
                    })
                    .collect();
                Some(self.resize(whole, lanes, 32, to.bits(), false))
            }
            Convert::Bits => Some(self.packed(a)?.into_iter().map(|v| self.cast(part, v)).collect()),
            Convert::FToS | Convert::FToU | Convert::Half | Convert::Pointer => None,
        }
    }

    fn mask_to_numbers(&mut self, op: Convert, mask: &Parts, ty: Ty) -> Option<Vec<Value>> {
        // If the result is built lane by lane, converting single lanes is cheaper.
        if matches!(mask.form, Form::Lanes(_)) {
            return None;
        }
        let parts = self.mask(mask, ty.elem.bits())?;
        let part = part_type(ty.elem);
        match op {
            Convert::SExt => Some(parts),
            Convert::ZExt | Convert::UToF => {
                let one = if op == Convert::ZExt { 1 } else { float_one(ty.elem) };
                let ones = self.constants(ty.with(ty.elem.as_int()), |_| one);
                let ones = self.packed(&ones)?;
                Some(
                    parts
                        .into_iter()
                        .zip(ones)
                        .map(|(v, one)| {
                            let bits = self.ins().band(v, one);
                            self.cast(part, bits)
                        })
                        .collect(),
                )
            }
            Convert::SToF => Some(parts.into_iter().map(|v| self.ins().fcvt_from_sint(part, v)).collect()),
            _ => None,
        }
    }

    /// The lower or upper two of four `f32`.
    fn promote_half(&mut self, v: Value, upper: bool) -> Value {
        let v = if upper { self.shuffle_bytes(v, v, std::array::from_fn(|i| 8 + i as u8 % 8)) } else { v };
        self.ins().fvpromote_low(v)
    }

    /// Saturates 32-bit integers, single or packed, to a narrower width.
    fn clamp(&mut self, v: Value, bits: u32, signed: bool) -> Value {
        if bits >= 32 {
            return v;
        }
        let ty = self.type_of(v);
        let limit = |e: &mut Self, x: i64| {
            let x = e.ins().iconst(types::I32, x & 0xffff_ffff);
            if ty.is_vector() { e.ins().splat(ty, x) } else { x }
        };
        if !signed {
            let most = limit(self, (1 << bits) - 1);
            return self.ins().umin(v, most);
        }
        let (least, most) = (limit(self, -(1 << (bits - 1))), limit(self, (1 << (bits - 1)) - 1));
        let v = self.ins().smin(v, most);
        self.ins().smax(v, least)
    }

    fn convert_lane(&mut self, op: Convert, x: Value, from: Elem, to: Elem) -> Value {
        let ty = lane_type(to);
        match op {
            Convert::Narrow => self.narrow_lane(x, to),
            Convert::SExt | Convert::ZExt => self.extend_lane(x, from, to, op == Convert::SExt),
            Convert::Float if to == Elem::F64 => self.ins().fpromote(ty, x),
            Convert::Float => self.ins().fdemote(ty, x),
            Convert::SToF | Convert::UToF => {
                let signed = op == Convert::SToF;
                let x = if from.bits() < 32 { self.extend_lane(x, from, Elem::I32, signed) } else { x };
                match signed {
                    true => self.ins().fcvt_from_sint(ty, x),
                    false => self.ins().fcvt_from_uint(ty, x),
                }
            }
            Convert::FToS | Convert::FToU => {
                let signed = op == Convert::FToS;
                let whole = if to.bits() < 32 { types::I32 } else { ty };
                let x = match signed {
                    true => self.ins().fcvt_to_sint_sat(whole, x),
                    false => self.ins().fcvt_to_uint_sat(whole, x),
                };
                if whole == ty {
                    return x;
                }
                let x = self.clamp(x, to.bits(), signed);
                self.narrow_lane(x, to)
            }
            Convert::Bits if lane_type(from) != ty => self.cast(ty, x),
            Convert::Bits | Convert::Pointer => x,
            Convert::Half => unreachable!("refused before"),
        }
    }

    fn narrow_lane(&mut self, x: Value, to: Elem) -> Value {
        let ty = lane_type(to);
        let x = if self.type_of(x) == ty { x } else { self.ins().ireduce(ty, x) };
        if to == Elem::I1 { self.ins().band_imm_u(x, 1) } else { x }
    }

    fn extend_lane(&mut self, x: Value, from: Elem, to: Elem, signed: bool) -> Value {
        let x = if from == Elem::I1 && signed { self.ins().ineg(x) } else { x };
        let ty = lane_type(to);
        match (self.type_of(x) == ty, signed) {
            (true, _) => x,
            (_, true) => self.ins().sextend(ty, x),
            (_, false) => self.ins().uextend(ty, x),
        }
    }
}

fn float_one(elem: Elem) -> u64 {
    if elem == Elem::F32 { u64::from(1f32.to_bits()) } else { 1f64.to_bits() }
}
