//! Loads, stores and stack memory.
use super::emitter::{Emitter, Refused, Slot, Sum, flags};
use super::parts::{Form, Parts, lane_type, part_type};
use cranelift::codegen::ir::{StackSlotData, StackSlotKind};
use cranelift::prelude::{InstBuilder, Value, types};
use numrsc_ir::kernel::{Elem, Ty, V};

/// The alignment of buffers.
const BUFFER_ALIGN: i64 = 64;
const MAX_BUFFER_BYTES: i64 = 1 << 28;

impl Emitter<'_> {
    pub(super) fn load(&mut self, ty: Ty, ptr: V, index: V, mask: Option<V>) -> Refused<Parts> {
        let (base, offset) = self.address(ptr, index, ty.elem)?;
        let size = ty.elem.size() as i32;
        if let Some(mask) = mask {
            let mask = self.get(mask)?;
            let slot = self.slot(Slot::Nowhere, 16);
            let zero = self.ins().iconst(types::I64, 0);
            let nowhere = self.ins().stack_addr(types::I64, slot, 0);
            self.ins().store(flags(), zero, nowhere, 0);
            let set = self.lanes(&mask);
            let lanes = (0..).zip(set).map(|(i, set)| {
                let place = self.ins().iadd_imm_s(base, i64::from(offset + i * size));
                let place = self.ins().select(set, place, nowhere);
                self.ins().load(lane_type(ty.elem), flags(), place, 0)
            });
            return Ok(Parts::lanes(ty, lanes.collect()));
        }
        let Some(count) = self.packs(ty) else {
            let lane = lane_type(ty.elem);
            let lanes = (0..ty.lanes as i32).map(|i| self.ins().load(lane, flags(), base, offset + i * size));
            return Ok(Parts::lanes(ty, lanes.collect()));
        };
        let part = part_type(ty.elem);
        let parts = match ty.lanes as i32 * size {
            2 => {
                let bits = self.ins().uload16(types::I32, flags(), base, offset);
                vec![self.ins().scalar_to_vector(types::I32X4, bits)]
            }
            4 => {
                let bits = self.ins().load(types::I32, flags(), base, offset);
                vec![self.ins().scalar_to_vector(types::I32X4, bits)]
            }
            8 => {
                let bits = self.ins().load(types::I64, flags(), base, offset);
                vec![self.ins().scalar_to_vector(types::I64X2, bits)]
            }
            _ => (0..count as i32).map(|i| self.ins().load(part, flags(), base, offset + 16 * i)).collect(),
        };
        let parts = parts.into_iter().map(|p| self.cast(part, p)).collect();
        Ok(Parts::packed(ty, parts))
    }

    pub(super) fn store(&mut self, ptr: V, index: V, value: V, mask: Option<V>) -> Refused<()> {
        let value = self.get(value)?;
        let (base, offset) = self.address(ptr, index, value.ty.elem)?;
        let size = value.ty.elem.size() as i32;
        if let Some(mask) = mask {
            let mask = self.get(mask)?;
            let slot = self.slot(Slot::Nowhere, 16);
            let nowhere = self.ins().stack_addr(types::I64, slot, 0);
            let (set, lanes) = (self.lanes(&mask), self.lanes(&value));
            for (i, (set, lane)) in (0..).zip(set.into_iter().zip(lanes)) {
                let place = self.ins().iadd_imm_s(base, i64::from(offset + i * size));
                let place = self.ins().select(set, place, nowhere);
                self.ins().store(flags(), lane, place, 0);
            }
            return Ok(());
        }
        match &value.form {
            Form::Lanes(lanes) => {
                for (i, &lane) in (0..).zip(lanes) {
                    self.ins().store(flags(), lane, base, offset + i * size);
                }
            }
            Form::Packed(parts) => {
                let whole = match value.ty.lanes as i32 * size {
                    2 => types::I16X8,
                    4 => types::I32X4,
                    8 => types::I64X2,
                    _ => types::INVALID,
                };
                for (i, &part) in (0..).zip(parts) {
                    let part = if whole == types::INVALID {
                        part
                    } else {
                        let bits = self.cast(whole, part);
                        self.ins().extractlane(bits, 0)
                    };
                    self.ins().store(flags(), part, base, offset + 16 * i);
                }
            }
        }
        Ok(())
    }

    /// The location of `ptr[index]`: an address and an offset that fits an instruction.
    fn address(&mut self, ptr: V, index: V, elem: Elem) -> Refused<(Value, i32)> {
        let (ptr, index, size) = (self.sum(ptr)?, self.sum(index)?, elem.size());
        let mut offset = ptr.offset.wrapping_add(index.offset.wrapping_mul(size));
        let mut base = ptr.base;
        if let Some(index) = index.base {
            let shift = i64::from(size.trailing_zeros());
            let bytes = if shift == 0 { index } else { self.ins().ishl_imm_u(index, shift) };
            base = Some(match base {
                Some(base) => self.ins().iadd(base, bytes),
                None => bytes,
            });
        }
        // Space for the lanes of the longest vector.
        if offset.unsigned_abs() >= 1 << 30 || base.is_none() {
            base = Some(self.sum_value(Sum { base, offset }));
            offset = 0;
        }
        let base = base.ok_or("an address without a base")?;
        Ok((base, offset as i32))
    }

    /// The address of stack memory of this call.
    pub(super) fn buffer(&mut self, elem: Elem, count: u32) -> Refused<Value> {
        let bytes = i64::from(count) * elem.size();
        if bytes > MAX_BUFFER_BYTES {
            return Err(format!("a buffer of {bytes} bytes is too large for the stack"));
        }
        // Frames are aligned to 16 bytes only.
        let room = bytes + BUFFER_ALIGN - 16;
        let slot = self.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, room as u32, 4));
        let start = self.ins().stack_addr(types::I64, slot, 0);
        let up = self.ins().iadd_imm_s(start, BUFFER_ALIGN - 1);
        Ok(self.ins().band_imm_s(up, -BUFFER_ALIGN))
    }
}
