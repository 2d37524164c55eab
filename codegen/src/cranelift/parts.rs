//! How a value of the kernel IR is represented: as single lanes, or as packed parts of 128 bits.
//!
//! A packed part may be padded: a vector shorter than 128 bits lies in the low lanes and what is above is anything. Masks are packed as
//! integers of the width that they were made with, all bits of a lane set or none; a single `i1` is 0 or 1 in an `i8`.
use super::emitter::Emitter;
use cranelift::codegen::ir::{ConstantData, Endianness, MemFlagsData};
use cranelift::prelude::{InstBuilder, Type, Value, types};
use numrsc_ir::kernel::{Elem, Ty};

#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) ty: Ty,
    pub(super) form: Form,
}

#[derive(Clone, Debug)]
pub(super) enum Form {
    Lanes(Vec<Value>),
    Packed(Vec<Value>),
}

/// The type of a single lane.
pub(super) fn lane_type(elem: Elem) -> Type {
    match elem {
        Elem::I1 | Elem::I8 => types::I8,
        Elem::I16 => types::I16,
        Elem::I32 => types::I32,
        Elem::I64 | Elem::Ptr => types::I64,
        Elem::F32 => types::F32,
        Elem::F64 => types::F64,
    }
}

/// The type of a part of 128 bits.
pub(super) fn part_type(elem: Elem) -> Type {
    match elem {
        Elem::F32 => types::F32X4,
        Elem::F64 => types::F64X2,
        other => int_part(other.size() as u32 * 8),
    }
}

/// Integers of this width in a part.
pub(super) fn int_part(bits: u32) -> Type {
    match bits {
        8 => types::I8X16,
        16 => types::I16X8,
        32 => types::I32X4,
        _ => types::I64X2,
    }
}

/// The number of parts in which lanes of this width are packed, if they can be.
pub(super) fn part_count(lanes: u32, bits: u32) -> Option<usize> {
    let total = lanes * bits;
    match total {
        16 | 32 | 64 if lanes > 1 => Some(1),
        _ if lanes > 1 && total.is_multiple_of(128) => Some((total / 128) as usize),
        _ => None,
    }
}

impl Parts {
    pub(super) fn scalar(elem: Elem, value: Value) -> Parts {
        Parts { ty: Ty::scalar(elem), form: Form::Lanes(vec![value]) }
    }

    pub(super) fn lanes(ty: Ty, lanes: Vec<Value>) -> Parts {
        Parts { ty, form: Form::Lanes(lanes) }
    }

    pub(super) fn packed(ty: Ty, parts: Vec<Value>) -> Parts {
        Parts { ty, form: Form::Packed(parts) }
    }
}

impl Emitter<'_> {
    /// The number of parts in which values of a type are packed; outside of the block that made them, masks are lanes.
    pub(super) fn packs(&self, ty: Ty) -> Option<usize> {
        match ty.elem {
            Elem::I1 | Elem::Ptr => None,
            _ if !self.abilities.packed => None,
            elem => part_count(ty.lanes, elem.bits()),
        }
    }

    /// The Cranelift types of a value whose representation must be known: in parameters and results.
    pub(super) fn fixed_types(&self, ty: Ty) -> Vec<Type> {
        match self.packs(ty) {
            Some(count) => vec![part_type(ty.elem); count],
            None => vec![lane_type(ty.elem); ty.lanes as usize],
        }
    }

    pub(super) fn fixed(&mut self, parts: &Parts) -> Vec<Value> {
        self.packed(parts).unwrap_or_else(|| self.lanes(parts))
    }

    pub(super) fn parts_of_fixed(&self, ty: Ty, values: Vec<Value>) -> Parts {
        if self.packs(ty).is_some() { Parts::packed(ty, values) } else { Parts::lanes(ty, values) }
    }

    /// The single lanes.
    pub(super) fn lanes(&mut self, parts: &Parts) -> Vec<Value> {
        match &parts.form {
            Form::Lanes(lanes) => lanes.clone(),
            Form::Packed(_) => (0..parts.ty.lanes).map(|i| self.lane(parts, i)).collect(),
        }
    }

    pub(super) fn lane(&mut self, parts: &Parts, lane: u32) -> Value {
        let packed = match &parts.form {
            Form::Lanes(lanes) => return lanes[lane as usize],
            Form::Packed(packed) => packed,
        };
        let ty = self.type_of(packed[0]);
        let value = self.ins().extractlane(packed[(lane / ty.lane_count()) as usize], (lane % ty.lane_count()) as u8);
        if parts.ty.elem != Elem::I1 {
            return value;
        }
        let byte = if ty.lane_bits() == 8 { value } else { self.ins().ireduce(types::I8, value) };
        self.ins().band_imm_u(byte, 1)
    }

    /// The packed parts of a value that is not a mask, if its type has a packed form.
    pub(super) fn packed(&mut self, parts: &Parts) -> Option<Vec<Value>> {
        let count = self.packs(parts.ty)?;
        match &parts.form {
            Form::Packed(packed) => Some(packed.clone()),
            Form::Lanes(lanes) => Some(self.pack(part_type(parts.ty.elem), count, &lanes.clone())),
        }
    }

    /// A mask in lanes of the given width, if that many lanes of the width can be packed.
    pub(super) fn mask(&mut self, mask: &Parts, bits: u32) -> Option<Vec<Value>> {
        let count = part_count(mask.ty.lanes, bits).filter(|_| self.abilities.packed)?;
        match &mask.form {
            Form::Packed(packed) => {
                let from = self.type_of(packed[0]).lane_bits();
                Some(self.resize(packed.clone(), mask.ty.lanes, from, bits, true))
            }
            Form::Lanes(lanes) => {
                let part = int_part(bits);
                let mut wide: Vec<Value> = vec![];
                for (i, &lane) in lanes.iter().enumerate() {
                    let value = match (i, lanes[0] == lane) {
                        (1.., true) => wide[0],
                        _ => self.ins().bmask(part.lane_type(), lane),
                    };
                    wide.push(value);
                }
                Some(self.pack(part, count, &wide))
            }
        }
    }

    fn pack(&mut self, part: Type, count: usize, lanes: &[Value]) -> Vec<Value> {
        if lanes.iter().all(|&v| v == lanes[0]) {
            let splat = self.ins().splat(part, lanes[0]);
            return vec![splat; count];
        }
        let per_part = part.lane_count() as usize;
        lanes
            .chunks(per_part)
            .map(|chunk| {
                // Only 32-bit and 64-bit numbers move into a vector register directly.
                let mut v = if part.lane_bits() < 32 {
                    self.ins().splat(part, chunk[0])
                } else {
                    self.ins().scalar_to_vector(part, chunk[0])
                };
                for (i, &lane) in chunk.iter().enumerate().skip(1) {
                    v = self.ins().insertlane(v, lane, i as u8);
                }
                v
            })
            .collect()
    }

    /// Reinterprets 128 bits as another type.
    pub(super) fn cast(&mut self, ty: Type, value: Value) -> Value {
        if self.type_of(value) == ty {
            return value;
        }
        let flags = MemFlagsData::new().with_endianness(Endianness::Little);
        self.ins().bitcast(ty, flags, value)
    }

    /// The bytes at these positions of `a` followed by `b`, as the type of `a`.
    pub(super) fn shuffle_bytes(&mut self, a: Value, b: Value, bytes: [u8; 16]) -> Value {
        let ty = self.type_of(a);
        let (a, b) = (self.cast(types::I8X16, a), self.cast(types::I8X16, b));
        let positions = self.b.func.dfg.immediates.push(ConstantData::from(bytes.as_slice()));
        let shuffled = self.ins().shuffle(a, b, positions);
        self.cast(ty, shuffled)
    }

    /// Constants, one bit pattern per lane.
    pub(super) fn constants(&mut self, ty: Ty, lane: impl Fn(u32) -> u64) -> Parts {
        let Some(count) = self.packs(ty) else {
            let lanes = (0..ty.lanes).map(|i| self.constant(ty.elem, lane(i))).collect();
            return Parts::lanes(ty, lanes);
        };
        let size = ty.elem.size() as usize;
        let mut bytes = vec![0; count * 16];
        for (i, place) in bytes.chunks_mut(size).take(ty.lanes as usize).enumerate() {
            place.copy_from_slice(&lane(i as u32).to_le_bytes()[..size]);
        }
        let mut parts: Vec<Value> = vec![];
        for (i, part) in bytes.chunks(16).enumerate() {
            if i > 0 && part == &bytes[..16] {
                parts.push(parts[0]);
                continue;
            }
            let data = self.b.func.dfg.constants.insert(ConstantData::from(part));
            parts.push(self.ins().vconst(part_type(ty.elem), data));
        }
        Parts::packed(ty, parts)
    }
}
