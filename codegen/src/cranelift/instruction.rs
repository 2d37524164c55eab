//! Instructions: what defines a value.
use super::emitter::{Emitter, Refused, Sum, flags};
use super::parts::{Form, Parts, part_type};
use cranelift::prelude::{InstBuilder, Value, types};
use numrsc_ir::kernel::{Binary, Elem, Host, Inst, Ty, V};

impl Emitter<'_> {
    pub(super) fn define(&mut self, out: V, inst: &Inst) -> Refused<()> {
        let parts = self.instruction(out, inst)?;
        self.set(out, parts);
        if let Some(sum) = self.as_sum(inst, self.function.ty(out))? {
            self.set_sum(out, sum);
        }
        if let Some(scalar) = self.as_splat(inst, self.function.ty(out))? {
            self.set_splat(out, scalar);
        }
        Ok(())
    }

    fn instruction(&mut self, out: V, inst: &Inst) -> Refused<Parts> {
        let ty = self.function.ty(out);
        Ok(match inst {
            Inst::Const(bits) => self.constants(ty, |_| *bits),
            Inst::Iota => self.constants(ty, |i| match ty.elem {
                Elem::F32 => u64::from((i as f32).to_bits()),
                Elem::F64 => f64::from(i).to_bits(),
                _ => u64::from(i),
            }),
            Inst::Unary(op, a) => {
                let a = self.get(*a)?;
                self.unary(*op, &a)
            }
            Inst::Binary(Binary::UDiv, a, b) if self.divisor(*b).is_some() => {
                let (x, divisor) = (self.scalar(*a)?, self.divisor(*b).unwrap_or(1));
                Parts::scalar(ty.elem, self.divide_by(x, divisor))
            }
            Inst::Binary(Binary::URem, a, b) if self.divisor(*b).is_some() => {
                let (x, divisor) = (self.scalar(*a)?, self.divisor(*b).unwrap_or(1));
                Parts::scalar(ty.elem, self.remainder_by(x, divisor))
            }
            Inst::Binary(op, a, b) => {
                let amount = self.splat_of(*b);
                let (a, b) = (self.get(*a)?, self.get(*b)?);
                self.binary(*op, &a, &b, amount)
            }
            Inst::MulAdd(a, b, c) => {
                let (a, b, c) = (self.get(*a)?, self.get(*b)?, self.get(*c)?);
                self.muladd(&a, &b, &c)
            }
            Inst::Dot4(..) => return Err("it multiplies by fours".into()),
            Inst::Compare(op, a, b) => {
                let (a, b) = (self.get(*a)?, self.get(*b)?);
                self.compare(*op, &a, &b)
            }
            Inst::Select(cond, a, b) => {
                let (cond, a, b) = (self.get(*cond)?, self.get(*a)?, self.get(*b)?);
                self.select(&cond, &a, &b)
            }
            Inst::Convert(op, a) => {
                let a = self.get(*a)?;
                self.convert(*op, &a, ty.elem)?
            }
            Inst::Splat(a) => {
                let scalar = self.scalar(*a)?;
                match self.packs(ty) {
                    Some(count) => {
                        let part = self.ins().splat(part_type(ty.elem), scalar);
                        Parts::packed(ty, vec![part; count])
                    }
                    None => Parts::lanes(ty, vec![scalar; ty.lanes as usize]),
                }
            }
            Inst::Extract(a, lane) => {
                let a = self.get(*a)?;
                Parts::scalar(ty.elem, self.lane(&a, *lane))
            }
            Inst::Insert(a, x, lane) => {
                let (a, x) = (self.get(*a)?, self.scalar(*x)?);
                self.insert(&a, x, *lane)
            }
            Inst::Shuffle(a, b, lanes) => {
                let (a, b) = (self.get(*a)?, self.get(*b)?);
                self.shuffle(ty, &a, &b, lanes)
            }
            Inst::Reduce(op, a) => {
                let a = self.get(*a)?;
                self.reduce(*op, &a)
            }
            Inst::Load { ptr, index, mask } => self.load(ty, *ptr, *index, *mask)?,
            Inst::Offset(ptr, bytes) => {
                let (ptr, bytes) = (self.scalar(*ptr)?, self.scalar(*bytes)?);
                Parts::scalar(Elem::Ptr, self.ins().iadd(ptr, bytes))
            }
            Inst::Buffer { shared: true, .. } => return Err("it needs a GPU".into()),
            Inst::Buffer { elem, count, .. } => Parts::scalar(Elem::Ptr, self.buffer(*elem, *count)?),
            Inst::Call(helper, args) => self.call(*helper, args, ty)?,
            Inst::Host(function, args) => self.host(*function, args)?,
        })
    }

    /// Integers and pointers that are another value plus a constant.
    fn as_sum(&self, inst: &Inst, ty: Ty) -> Refused<Option<Sum>> {
        if ty != Ty::I64 && ty != Ty::PTR {
            return Ok(None);
        }
        let plus = |a: V, c: Option<i64>| -> Refused<Option<Sum>> {
            let Some(c) = c else { return Ok(None) };
            let sum = self.sum(a)?;
            Ok(Some(Sum { base: sum.base, offset: sum.offset.wrapping_add(c) }))
        };
        match inst {
            Inst::Const(bits) => Ok(Some(Sum { base: None, offset: *bits as i64 })),
            Inst::Offset(a, b) => plus(*a, self.constant_of(*b)),
            Inst::Binary(Binary::Sub, a, b) => plus(*a, self.constant_of(*b).map(i64::wrapping_neg)),
            Inst::Binary(Binary::Add, a, b) => match plus(*a, self.constant_of(*b))? {
                Some(sum) => Ok(Some(sum)),
                None => plus(*b, self.constant_of(*a)),
            },
            Inst::Binary(Binary::Mul, a, b) => match (self.constant_of(*a), self.constant_of(*b)) {
                (Some(a), Some(b)) => Ok(Some(Sum { base: None, offset: a.wrapping_mul(b) })),
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    fn as_splat(&mut self, inst: &Inst, ty: Ty) -> Refused<Option<Value>> {
        match inst {
            Inst::Splat(a) => Ok(Some(self.scalar(*a)?)),
            Inst::Const(bits) if ty.lanes > 1 => Ok(Some(self.constant(ty.elem, *bits))),
            _ => Ok(None),
        }
    }

    /// A constant divisor of `i64`.
    fn divisor(&self, v: V) -> Option<u64> {
        self.constant_of(v).filter(|&d| d != 0).map(|d| d as u64)
    }

    fn insert(&mut self, a: &Parts, x: Value, lane: u32) -> Parts {
        if let (Form::Packed(_), Some(mut parts)) = (&a.form, self.packed(a)) {
            let per_part = part_type(a.ty.elem).lane_count();
            let part = &mut parts[(lane / per_part) as usize];
            *part = self.ins().insertlane(*part, x, (lane % per_part) as u8);
            return Parts::packed(a.ty, parts);
        }
        let mut lanes = self.lanes(a);
        lanes[lane as usize] = x;
        Parts::lanes(a.ty, lanes)
    }

    fn shuffle(&mut self, ty: Ty, a: &Parts, b: &Parts, lanes: &[u32]) -> Parts {
        if let Some(parts) = self.shuffle_packed(ty, a, b, lanes) {
            return Parts::packed(ty, parts);
        }
        let lanes = lanes
            .iter()
            .map(|&i| if i < a.ty.lanes { self.lane(a, i) } else { self.lane(b, i - a.ty.lanes) })
            .collect();
        Parts::lanes(ty, lanes)
    }

    /// If every part of the result takes lanes from at most two parts.
    fn shuffle_packed(&mut self, ty: Ty, a: &Parts, b: &Parts, lanes: &[u32]) -> Option<Vec<Value>> {
        self.packs(ty)?;
        let (x, y) = (self.packed(a)?, self.packed(b)?);
        let (per_part, size) = (part_type(ty.elem).lane_count(), ty.elem.size() as u32);
        let mut parts = vec![];
        for chunk in lanes.chunks(per_part as usize) {
            let mut from = vec![];
            let mut bytes = [0; 16];
            for (i, &lane) in chunk.iter().enumerate() {
                let (source, lane) = if lane < a.ty.lanes { (&x, lane) } else { (&y, lane - a.ty.lanes) };
                let part = source[(lane / per_part) as usize];
                let which = from.iter().position(|&p| p == part).unwrap_or_else(|| {
                    from.push(part);
                    from.len() - 1
                });
                if which > 1 {
                    return None;
                }
                for byte in 0..size {
                    bytes[i * size as usize + byte as usize] =
                        (which as u32 * 16 + lane % per_part * size + byte) as u8;
                }
            }
            let (first, second) = (from[0], *from.last().unwrap_or(&from[0]));
            parts.push(self.shuffle_bytes(first, second, bytes));
        }
        Some(parts)
    }

    /// A function of the run context, which is its first argument.
    fn host(&mut self, function: Host, args: &[V]) -> Refused<Parts> {
        let args = args.iter().map(|&a| self.scalar(a)).collect::<Refused<Vec<_>>>()?;
        let ctx = *args.first().ok_or("a call of the host without the run context")?;
        let pointer = self.ins().load(types::I64, flags(), ctx, 8 * function.slot() as i32);
        Ok(Parts::scalar(Elem::Ptr, self.call_pointer(pointer, &args, types::I64)))
    }
}
