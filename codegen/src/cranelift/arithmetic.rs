//! Arithmetic, comparisons and selection, packed where Cranelift can and lane by lane elsewhere.
use super::emitter::Emitter;
use super::parts::{Form, Parts, lane_type, part_type};
use cranelift::prelude::{FloatCC, InstBuilder, IntCC, Type, Value, types};
use numrsc_ir::kernel::{Binary, Compare, Elem, Unary};

impl Emitter<'_> {
    pub(super) fn unary(&mut self, op: Unary, a: &Parts) -> Parts {
        let elem = a.ty.elem;
        if let (Elem::I1, Form::Packed(parts), Unary::Not) = (elem, &a.form, op) {
            let parts = parts.clone().into_iter().map(|x| self.ins().bnot(x)).collect();
            return Parts::packed(a.ty, parts);
        }
        if let Some(parts) = self.packed(a) {
            let parts = parts.into_iter().map(|x| self.unary_value(op, x, elem)).collect();
            return Parts::packed(a.ty, parts);
        }
        let lanes = self.lanes(a).into_iter().map(|x| self.unary_value(op, x, elem)).collect();
        Parts::lanes(a.ty, lanes)
    }

    /// For a single lane or a part.
    fn unary_value(&mut self, op: Unary, x: Value, elem: Elem) -> Value {
        match op {
            // Both one-bit numbers are their own negation.
            Unary::Neg if elem == Elem::I1 => x,
            Unary::Not if elem == Elem::I1 => self.ins().bxor_imm_u(x, 1),
            Unary::Neg if elem.is_float() => self.ins().fneg(x),
            Unary::Neg => self.ins().ineg(x),
            Unary::Not => self.ins().bnot(x),
            Unary::Abs => self.ins().fabs(x),
            Unary::Sqrt => self.ins().sqrt(x),
            Unary::Floor | Unary::Ceil | Unary::Trunc | Unary::Round if !self.abilities.rounds => {
                self.round_in_steps(op, x)
            }
            Unary::Floor => self.ins().floor(x),
            Unary::Ceil => self.ins().ceil(x),
            Unary::Trunc => self.ins().trunc(x),
            Unary::Round => self.ins().nearest(x),
        }
    }

    /// Rounds a single lane to an integer by arithmetic alone.
    fn round_in_steps(&mut self, op: Unary, x: Value) -> Value {
        let ty = self.type_of(x);
        let number = |e: &mut Self, n: f64| match ty {
            types::F32 => e.ins().f32const(n as f32),
            _ => e.ins().f64const(n),
        };
        // From here on every number is an integer.
        let whole = number(self, if ty == types::F32 { f64::from(1 << 23) } else { (1i64 << 52) as f64 });
        let size = self.ins().fabs(x);
        let raised = self.ins().fadd(size, whole);
        let nearest = self.ins().fsub(raised, whole);
        let one = number(self, 1.0);
        let rounded = match op {
            Unary::Floor | Unary::Ceil => {
                let near = self.ins().fcopysign(nearest, x);
                let (wrong, other) = if op == Unary::Floor {
                    (self.ins().fcmp(FloatCC::GreaterThan, near, x), self.ins().fsub(near, one))
                } else {
                    (self.ins().fcmp(FloatCC::LessThan, near, x), self.ins().fadd(near, one))
                };
                self.ins().select(wrong, other, near)
            }
            Unary::Trunc => {
                let above = self.ins().fcmp(FloatCC::GreaterThan, nearest, size);
                let below = self.ins().fsub(nearest, one);
                self.ins().select(above, below, nearest)
            }
            _ => nearest,
        };
        let signed = self.ins().fcopysign(rounded, x);
        let small = self.ins().fcmp(FloatCC::LessThan, size, whole);
        self.ins().select(small, signed, x)
    }

    /// `amount` is the second operand if it is this scalar in all lanes.
    pub(super) fn binary(&mut self, op: Binary, a: &Parts, b: &Parts, amount: Option<Value>) -> Parts {
        let (ty, elem) = (a.ty, a.ty.elem);
        if elem == Elem::I1 {
            return self.binary_of_masks(op, a, b);
        }
        if self.is_packed(op, elem, amount)
            && let (Some(x), Some(y)) = (self.packed(a), self.packed(b))
        {
            let parts = x.into_iter().zip(y).map(|(x, y)| match (op, amount) {
                (Binary::Shl | Binary::LShr | Binary::AShr, Some(amount)) => self.binary_value(op, x, amount, elem),
                _ => self.binary_value(op, x, y, elem),
            });
            return Parts::packed(ty, parts.collect());
        }
        let (x, y) = (self.lanes(a), self.lanes(b));
        let lanes = x.into_iter().zip(y).map(|(x, y)| self.binary_value(op, x, y, elem)).collect();
        Parts::lanes(ty, lanes)
    }

    /// Whether a packed form exists.
    fn is_packed(&self, op: Binary, elem: Elem, amount: Option<Value>) -> bool {
        match op {
            Binary::Mul => elem != Elem::I8,
            Binary::SDiv | Binary::UDiv | Binary::SRem | Binary::URem => false,
            Binary::Shl | Binary::LShr | Binary::AShr => amount.is_some(),
            _ => true,
        }
    }

    /// For single lanes or parts.
    fn binary_value(&mut self, op: Binary, x: Value, y: Value, elem: Elem) -> Value {
        let float = elem.is_float();
        match op {
            Binary::Add if float => self.ins().fadd(x, y),
            Binary::Sub if float => self.ins().fsub(x, y),
            Binary::Mul if float => self.ins().fmul(x, y),
            Binary::Add => self.ins().iadd(x, y),
            Binary::Sub => self.ins().isub(x, y),
            Binary::Mul => self.ins().imul(x, y),
            Binary::FDiv => self.ins().fdiv(x, y),
            // Written so that Cranelift finds the instructions of x86.
            Binary::FMin => {
                let less = self.ins().fcmp(FloatCC::LessThan, x, y);
                self.choose(less, x, y)
            }
            Binary::FMax => {
                let greater = self.ins().fcmp(FloatCC::LessThan, y, x);
                self.choose(greater, x, y)
            }
            Binary::SDiv => self.ins().sdiv(x, y),
            Binary::UDiv => self.ins().udiv(x, y),
            Binary::SRem => self.ins().srem(x, y),
            Binary::URem => self.ins().urem(x, y),
            Binary::SMin | Binary::SMax | Binary::UMin | Binary::UMax if elem == Elem::I64 => {
                // Not every machine has these for packed `i64`.
                let (cc, x, y) = match op {
                    Binary::SMin => (IntCC::SignedLessThan, x, y),
                    Binary::SMax => (IntCC::SignedGreaterThan, x, y),
                    Binary::UMin => (IntCC::UnsignedLessThan, x, y),
                    _ => (IntCC::UnsignedGreaterThan, x, y),
                };
                let first = self.ins().icmp(cc, x, y);
                self.choose(first, x, y)
            }
            Binary::SMin => self.ins().smin(x, y),
            Binary::SMax => self.ins().smax(x, y),
            Binary::UMin => self.ins().umin(x, y),
            Binary::UMax => self.ins().umax(x, y),
            Binary::And => self.ins().band(x, y),
            Binary::Or => self.ins().bor(x, y),
            Binary::Xor => self.ins().bxor(x, y),
            Binary::Shl => self.ins().ishl(x, y),
            Binary::LShr => self.ins().ushr(x, y),
            Binary::AShr => self.ins().sshr(x, y),
        }
    }

    /// `x` where a mask of the same representation is set, else `y`.
    fn choose(&mut self, cond: Value, x: Value, y: Value) -> Value {
        let ty = self.type_of(x);
        if ty.is_vector() {
            let cond = self.cast(ty, cond);
            self.ins().bitselect(cond, x, y)
        } else {
            self.ins().select(cond, x, y)
        }
    }

    /// One-bit numbers: every operation is a logical one.
    fn binary_of_masks(&mut self, op: Binary, a: &Parts, b: &Parts) -> Parts {
        let logic = match op {
            Binary::And | Binary::Mul | Binary::UMin | Binary::SMax => Binary::And,
            Binary::Or | Binary::UMax | Binary::SMin => Binary::Or,
            Binary::Xor | Binary::Add | Binary::Sub => Binary::Xor,
            // Division is by 1 and shifts are by 0.
            Binary::SDiv | Binary::UDiv | Binary::Shl | Binary::LShr | Binary::AShr => return a.clone(),
            Binary::SRem | Binary::URem | Binary::FDiv | Binary::FMin | Binary::FMax => {
                return self.constants(a.ty, |_| 0);
            }
        };
        let width = [a, b].into_iter().find_map(|p| match &p.form {
            Form::Packed(parts) => Some(self.type_of(parts[0]).lane_bits()),
            Form::Lanes(_) => None,
        });
        if let Some(bits) = width
            && let (Some(x), Some(y)) = (self.mask(a, bits), self.mask(b, bits))
        {
            let parts = x.into_iter().zip(y).map(|(x, y)| self.binary_value(logic, x, y, Elem::I8)).collect();
            return Parts::packed(a.ty, parts);
        }
        let (x, y) = (self.lanes(a), self.lanes(b));
        let lanes = x.into_iter().zip(y).map(|(x, y)| self.binary_value(logic, x, y, Elem::I8)).collect();
        Parts::lanes(a.ty, lanes)
    }

    /// Unsigned division of an `i64` by a constant other than 0, without dividing.
    pub(super) fn divide_by(&mut self, x: Value, divisor: u64) -> Value {
        if divisor.is_power_of_two() {
            return self.ins().ushr_imm_u(x, i64::from(divisor.trailing_zeros()));
        }
        // Multiplies by the rounded-up quotient of a power of two above 2^64 and the divisor; the sum below adds the
        // 65th bit of that factor.
        let log = 64 - (divisor - 1).leading_zeros();
        let factor = (((1u128 << log) - u128::from(divisor)) << 64) / u128::from(divisor) + 1;
        let factor = self.ins().iconst(types::I64, factor as u64 as i64);
        let high = self.ins().umulhi(x, factor);
        let rest = self.ins().isub(x, high);
        let half = self.ins().ushr_imm_u(rest, 1);
        let sum = self.ins().iadd(half, high);
        self.ins().ushr_imm_u(sum, i64::from(log) - 1)
    }

    /// Unsigned remainder of an `i64` by a constant other than 0.
    pub(super) fn remainder_by(&mut self, x: Value, divisor: u64) -> Value {
        if divisor.is_power_of_two() {
            return self.ins().band_imm_u(x, (divisor - 1) as i64);
        }
        let quotient = self.divide_by(x, divisor);
        let multiple = self.ins().imul_imm_s(quotient, divisor as i64);
        self.ins().isub(x, multiple)
    }

    pub(super) fn muladd(&mut self, a: &Parts, b: &Parts, c: &Parts) -> Parts {
        let elem = a.ty.elem;
        if !elem.is_float() || !self.abilities.fused {
            let product = self.binary(Binary::Mul, a, b, None);
            return self.binary(Binary::Add, &product, c, None);
        }
        let fma = |e: &mut Self, (x, y, z): (Vec<Value>, Vec<Value>, Vec<Value>)| {
            x.into_iter().zip(y).zip(z).map(|((x, y), z)| e.ins().fma(x, y, z)).collect()
        };
        if let (Some(x), Some(y), Some(z)) = (self.packed(a), self.packed(b), self.packed(c)) {
            let parts = fma(self, (x, y, z));
            return Parts::packed(a.ty, parts);
        }
        let operands = (self.lanes(a), self.lanes(b), self.lanes(c));
        let lanes = fma(self, operands);
        Parts::lanes(a.ty, lanes)
    }

    pub(super) fn compare(&mut self, op: Compare, a: &Parts, b: &Parts) -> Parts {
        let (ty, elem) = (a.ty.with(Elem::I1), a.ty.elem);
        if let (Some(x), Some(y)) = (self.packed(a), self.packed(b)) {
            let parts = x.into_iter().zip(y).map(|(x, y)| self.compare_value(op, x, y, elem)).collect();
            return Parts::packed(ty, parts);
        }
        let (mut x, mut y) = (self.lanes(a), self.lanes(b));
        if elem == Elem::I1 && matches!(op, Compare::Lt | Compare::Le) {
            // As a signed number, true is -1.
            std::mem::swap(&mut x, &mut y);
        }
        let lanes = x.into_iter().zip(y).map(|(x, y)| self.compare_value(op, x, y, elem)).collect();
        Parts::lanes(ty, lanes)
    }

    fn compare_value(&mut self, op: Compare, x: Value, y: Value, elem: Elem) -> Value {
        if elem.is_float() {
            let cc = match op {
                Compare::Eq => FloatCC::Equal,
                Compare::Ne => FloatCC::NotEqual,
                Compare::Lt | Compare::ULt => FloatCC::LessThan,
                Compare::Le | Compare::ULe => FloatCC::LessThanOrEqual,
            };
            return self.ins().fcmp(cc, x, y);
        }
        let cc = match op {
            Compare::Eq => IntCC::Equal,
            Compare::Ne => IntCC::NotEqual,
            Compare::Lt => IntCC::SignedLessThan,
            Compare::Le => IntCC::SignedLessThanOrEqual,
            Compare::ULt => IntCC::UnsignedLessThan,
            Compare::ULe => IntCC::UnsignedLessThanOrEqual,
        };
        self.ins().icmp(cc, x, y)
    }

    pub(super) fn select(&mut self, cond: &Parts, a: &Parts, b: &Parts) -> Parts {
        let (ty, elem) = (a.ty, a.ty.elem);
        if elem == Elem::I1 {
            // (a and cond) or (b and not cond)
            let left = self.binary_of_masks(Binary::And, a, cond);
            let not = self.unary(Unary::Not, cond);
            let right = self.binary_of_masks(Binary::And, b, &not);
            return self.binary_of_masks(Binary::Or, &left, &right);
        }
        if self.packs(ty).is_some()
            && let (Some(mask), Some(x), Some(y)) = (self.mask(cond, elem.bits()), self.packed(a), self.packed(b))
        {
            let parts = mask.into_iter().zip(x.into_iter().zip(y)).map(|(mask, (x, y))| self.choose(mask, x, y));
            return Parts::packed(ty, parts.collect());
        }
        let (cond, x, y) = (self.lanes(cond), self.lanes(a), self.lanes(b));
        let lanes = cond.into_iter().zip(x.into_iter().zip(y)).map(|(c, (x, y))| self.ins().select(c, x, y)).collect();
        Parts::lanes(ty, lanes)
    }

    /// Combines the lower half of the lanes with the upper half until one lane is left.
    pub(super) fn reduce(&mut self, op: Binary, a: &Parts) -> Parts {
        let elem = a.ty.elem;
        if self.is_packed(op, elem, None)
            && a.ty.lanes.is_power_of_two()
            && let Some(mut parts) = self.packed(a)
        {
            while parts.len() > 1 {
                let upper = parts.split_off(parts.len() / 2);
                parts = parts.into_iter().zip(upper).map(|(x, y)| self.binary_value(op, x, y, elem)).collect();
            }
            let part: Type = part_type(elem);
            let mut bytes = a.ty.lanes.min(part.lane_count()) * lane_type(elem).bytes();
            let mut v = parts[0];
            while bytes > lane_type(elem).bytes() {
                bytes /= 2;
                let upper = self.shuffle_bytes(v, v, std::array::from_fn(|i| (i as u8 + bytes as u8) % 16));
                v = self.binary_value(op, v, upper, elem);
            }
            let lane = self.ins().extractlane(v, 0);
            return Parts::scalar(elem, lane);
        }
        let mut lanes: Vec<Parts> = self.lanes(a).into_iter().map(|x| Parts::scalar(elem, x)).collect();
        while lanes.len() > 1 {
            let upper = lanes.split_off(lanes.len().div_ceil(2));
            for (low, high) in lanes.iter_mut().zip(&upper) {
                *low = self.binary(op, low, high, None);
            }
        }
        lanes.swap_remove(0)
    }
}
