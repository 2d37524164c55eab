//! Random instructions over values of the right types.
use super::Maker;
use numrsc_ir::kernel::{Binary, Compare, Convert, Elem, FuncId, Inst, Ty, Unary, V, words::Words};

const INTS: [Elem; 4] = [Elem::I8, Elem::I16, Elem::I32, Elem::I64];
const FLOATS: [Elem; 2] = [Elem::F32, Elem::F64];
const NUMBERS: [Elem; 6] = [Elem::I8, Elem::I16, Elem::I32, Elem::I64, Elem::F32, Elem::F64];
const BITS: [Elem; 5] = [Elem::I1, Elem::I8, Elem::I16, Elem::I32, Elem::I64];

impl Maker<'_> {
    pub(super) fn instruction(&mut self) {
        let made = match self.rng.below(20) {
            0 | 1 => self.unary(),
            2..=5 => {
                let op = *self.rng.pick(Binary::ALL);
                let ty = self.ty_of(operands(op));
                let (a, b) = (self.value(ty), self.value(ty));
                self.guarded(op, a, b)
            }
            6 | 7 => self.compare(),
            8 => {
                let ty = self.ty();
                let (cond, a, b) = (self.value(ty.with(Elem::I1)), self.value(ty), self.value(ty));
                self.inst(ty, Inst::Select(cond, a, b))
            }
            9..=11 => self.convert(),
            12 => self.call(),
            13 if self.config.muladd => {
                let ty = self.ty_of(&FLOATS);
                let (a, b, c) = (self.value(ty), self.value(ty), self.value(ty));
                self.inst(ty, Inst::MulAdd(a, b, c))
            }
            14 => {
                let ty = self.ty_of(&NUMBERS);
                self.inst(ty, Inst::Iota)
            }
            15 if self.config.dot4 => {
                let [narrow, wide] = [(Elem::I8, 16), (Elem::I32, 4)].map(|(elem, lanes)| Ty::vector(elem, lanes));
                let (a, b, c) = (self.value(narrow), self.value(narrow), self.value(wide));
                self.inst(wide, Inst::Dot4(a, b, c))
            }
            _ => self.lanes_moved(),
        };
        self.keep(made);
    }

    fn unary(&mut self) -> V {
        let op = *self.rng.pick(Unary::ALL);
        let ty = match op {
            Unary::Neg => self.ty_of(&NUMBERS),
            Unary::Not => self.ty_of(&BITS),
            _ => self.ty_of(&FLOATS),
        };
        let a = self.value(ty);
        self.inst(ty, Inst::Unary(op, a))
    }

    /// With operands changed where the result would be left open.
    fn guarded(&mut self, op: Binary, a: V, b: V) -> V {
        let ty = self.type_of(a);
        let b = match op {
            Binary::UDiv | Binary::URem => {
                let one = self.int(ty, 1);
                self.binary(Binary::Or, b, one)
            }
            // 1 to 63, or -2 to -62: never the least number by -1.
            Binary::SDiv | Binary::SRem => {
                let negative = self.rng.one_in(2);
                let small = self.masked(b, if negative { 0x3c } else { 0x3f });
                let least = self.int(ty, if negative { 2 } else { 1 });
                let positive = self.binary(Binary::Or, small, least);
                if negative { self.inst(ty, Inst::Unary(Unary::Neg, positive)) } else { positive }
            }
            Binary::Shl | Binary::LShr | Binary::AShr => self.masked(b, i64::from(ty.elem.bits()) - 1),
            _ => b,
        };
        self.binary(op, a, b)
    }

    fn compare(&mut self) -> V {
        let op = *self.rng.pick(Compare::ALL);
        let ty = match op {
            Compare::Eq | Compare::Ne => self.ty(),
            Compare::Lt | Compare::Le => self.ty_of(&NUMBERS),
            Compare::ULt | Compare::ULe => self.ty_of(&INTS),
        };
        let (a, b) = (self.value(ty), self.value(ty));
        self.inst(ty.with(Elem::I1), Inst::Compare(op, a, b))
    }

    fn convert(&mut self) -> V {
        let op = *self.rng.pick(Convert::ALL);
        let pairs: Vec<(Elem, Elem)> = NUMBERS
            .iter()
            .chain([&Elem::I1])
            .flat_map(|from| NUMBERS.iter().chain([&Elem::I1]).map(|to| (*from, *to)))
            .filter(|(from, to)| match op {
                Convert::Narrow => from.is_int() && to.is_int() && to.bits() < from.bits(),
                Convert::SExt | Convert::ZExt => from.is_int() && to.is_int() && to.bits() > from.bits(),
                Convert::Float => from.is_float() && to.is_float() && from != to,
                Convert::SToF | Convert::UToF => from.is_int() && to.is_float(),
                Convert::FToS | Convert::FToU => from.is_float() && to.is_int() && *to != Elem::I1,
                Convert::Bits => from != to && from.bits() == to.bits(),
                Convert::Half => {
                    self.config.halves && matches!((from, to), (Elem::F32, Elem::I16) | (Elem::I16, Elem::F32))
                }
                // An address is not a number to compute with; see the places.
                Convert::Pointer => false,
            })
            .collect();
        if pairs.is_empty() {
            return self.unary();
        }
        let (from, to) = *self.rng.pick(&pairs);
        let from = Ty::vector(from, self.lanes());
        let a = self.value(from);
        let a = if matches!(op, Convert::Bits | Convert::Half) { self.canonical(a) } else { a };
        self.inst(from.with(to), Inst::Convert(op, a))
    }

    fn call(&mut self) -> V {
        if self.helpers.is_empty() {
            return self.compare();
        }
        let number = self.rng.below(self.helpers.len());
        let helper = &self.helpers[number];
        let args = helper.params.iter().map(|v| self.value(helper.ty(*v))).collect();
        self.inst(helper.ty(helper.body.results[0]), Inst::Call(FuncId(number as u32), args))
    }

    /// What makes vectors and takes them apart.
    fn lanes_moved(&mut self) -> V {
        let ty = self.ty();
        if ty.lanes == 1 {
            return self.unary();
        }
        let scalar = Ty::scalar(ty.elem);
        let lane = self.rng.below(ty.lanes as usize) as u32;
        match self.rng.below(5) {
            0 => {
                let a = self.value(scalar);
                self.inst(ty, Inst::Splat(a))
            }
            1 => {
                let a = self.value(ty);
                self.inst(scalar, Inst::Extract(a, lane))
            }
            2 => {
                let (a, b) = (self.value(ty), self.value(scalar));
                self.inst(ty, Inst::Insert(a, b, lane))
            }
            3 => {
                let (a, b) = (self.value(ty), self.value(ty));
                let sizes: Vec<u32> = [2, 4, 8, 16].into_iter().filter(|&n| n <= self.config.lanes).collect();
                let count = *self.rng.pick(&sizes);
                let order = (0..count).map(|_| self.rng.below(2 * ty.lanes as usize) as u32).collect();
                self.inst(Ty::vector(ty.elem, count), Inst::Shuffle(a, b, order))
            }
            _ => {
                let combining: Vec<Binary> = Binary::ALL
                    .iter()
                    .copied()
                    .filter(|op| combines(*op) && operands(*op).contains(&ty.elem))
                    .collect();
                let op = *self.rng.pick(&combining);
                let a = self.value(ty);
                self.inst(scalar, Inst::Reduce(op, a))
            }
        }
    }
}

fn operands(op: Binary) -> &'static [Elem] {
    match op {
        Binary::Add | Binary::Sub | Binary::Mul => &NUMBERS,
        Binary::FDiv | Binary::FMin | Binary::FMax => &FLOATS,
        Binary::And | Binary::Or | Binary::Xor => &BITS,
        _ => &INTS,
    }
}

fn combines(op: Binary) -> bool {
    matches!(
        op,
        Binary::Add
            | Binary::Mul
            | Binary::FMin
            | Binary::FMax
            | Binary::SMin
            | Binary::SMax
            | Binary::UMin
            | Binary::UMax
            | Binary::And
            | Binary::Or
            | Binary::Xor
    )
}
