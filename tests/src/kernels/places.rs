//! Memory that a random kernel reaches: pointers of which it is known how far either way they may be followed.
use super::{BUFFERS, Maker};
use numrsc_ir::kernel::{Axis, Binary, Block, Compare, Convert, Elem, Inst, Stmt, Ty, V};

#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) ptr: V,
    pub(super) elem: Elem,
    /// Bytes before the pointer, and from it on.
    pub(super) before: i64,
    pub(super) after: i64,
}

/// Elements of a kernel's own buffers: enough for the widest vector at every place of one half.
const OWN: u32 = 32;

impl Maker<'_> {
    pub(super) fn has_place(&self, elem: Elem) -> bool {
        self.open.iter().any(|o| o.places.iter().any(|p| p.elem == elem))
    }

    fn place(&mut self, elem: Elem) -> Place {
        let all: Vec<Place> = self.open.iter().flat_map(|o| &o.places).copied().filter(|p| p.elem == elem).collect();
        *self.rng.pick(&all)
    }

    /// A pointer, an index and perhaps a mask to reach memory of this type.
    fn access(&mut self, ty: Ty) -> (V, V, Option<V>) {
        let place = self.place(ty.elem);
        let (size, lanes) = (ty.elem.size(), i64::from(ty.lanes));
        if lanes > 1 && self.rng.one_in(6) {
            // The last few elements: the mask leaves out what is beyond.
            let inside = self.rng.between(1, lanes - 1);
            let index = self.int(Ty::I64, place.after / size - inside);
            let counters = Ty::vector(Elem::I32, ty.lanes);
            let (numbers, bound) = (self.inst(counters, Inst::Iota), self.int(counters, inside));
            let mask = self.inst(counters.with(Elem::I1), Inst::Compare(Compare::ULt, numbers, bound));
            return (place.ptr, index, Some(mask));
        }
        let (low, high) = (-place.before / size, place.after / size - lanes);
        let range = 1 << (high - low + 1).ilog2();
        let index = self.value(Ty::I64);
        let mut index = self.masked(index, range - 1);
        if low != 0 {
            let low = self.int(Ty::I64, low);
            index = self.binary(Binary::Add, index, low);
        }
        let mask = if self.rng.one_in(4) { Some(self.value(ty.with(Elem::I1))) } else { None };
        (place.ptr, index, mask)
    }

    pub(super) fn load(&mut self, ty: Ty) -> V {
        let (ptr, index, mask) = self.access(ty);
        self.inst(ty, Inst::Load { ptr, index, mask })
    }

    /// Write a value to memory, in a form that does not depend on payloads of NaNs.
    pub(super) fn observe(&mut self, v: V) {
        let ty = self.type_of(v);
        let value = if ty.elem == Elem::I1 {
            self.inst(ty.with(Elem::I8), Inst::Convert(Convert::ZExt, v))
        } else {
            self.canonical(v)
        };
        let (ptr, index, mask) = self.access(self.type_of(value));
        self.stmt(Stmt::Store { ptr, index, value, mask });
    }

    /// The value with one and the same NaN in place of all.
    pub(super) fn canonical(&mut self, v: V) -> V {
        let ty = self.type_of(v);
        let nan = match ty.elem {
            Elem::F32 => u64::from(f32::NAN.to_bits()),
            Elem::F64 => f64::NAN.to_bits(),
            _ => return v,
        };
        let nan = self.inst(ty, Inst::Const(nan));
        let number = self.inst(ty.with(Elem::I1), Inst::Compare(Compare::Eq, v, v));
        self.inst(ty, Inst::Select(number, v, nan))
    }

    /// Another way to some memory. Addresses never become numbers that are kept, since they differ from run to run.
    pub(super) fn move_place(&mut self) {
        let elem = *self.rng.pick(&BUFFERS);
        let from = self.place(elem);
        let tables: Vec<(V, Place)> = self.open.iter().flat_map(|o| &o.tables).copied().collect();
        let place = match self.rng.below(5) {
            0 if from.after > 2048 => {
                let bytes = self.rng.between(0, 31) * 8;
                let distance = self.int(Ty::I64, bytes);
                let ptr = self.inst(Ty::PTR, Inst::Offset(from.ptr, distance));
                Place { ptr, before: from.before + bytes, after: from.after - bytes, ..from }
            }
            1 if from.after > 2048 => {
                let distance = self.value(Ty::I64);
                let distance = self.masked(distance, 0xf8);
                let ptr = self.inst(Ty::PTR, Inst::Offset(from.ptr, distance));
                Place { ptr, after: from.after - 0xf8, ..from }
            }
            2 => {
                let address = self.inst(Ty::I64, Inst::Convert(Convert::Pointer, from.ptr));
                let distance = self.int(Ty::I64, -from.before);
                let start = self.binary(Binary::Add, address, distance);
                let ptr = self.inst(Ty::PTR, Inst::Convert(Convert::Pointer, start));
                Place { ptr, before: 0, after: from.after + from.before, ..from }
            }
            3 if !tables.is_empty() => {
                let (table, place) = *self.rng.pick(&tables);
                let index = self.value(Ty::I64);
                let index = self.masked(index, i64::from(OWN) - 1);
                let ptr = self.inst(Ty::PTR, Inst::Load { ptr: table, index, mask: None });
                Place { ptr, ..place }
            }
            _ => {
                let (other, cond) = (self.place(elem), self.value(Ty::I1));
                let op = *self.rng.pick(&[Compare::Eq, Compare::Ne]);
                let same = self.inst(Ty::I1, Inst::Compare(op, from.ptr, other.ptr));
                self.keep(same);
                let ptr = self.inst(Ty::PTR, Inst::Select(cond, from.ptr, other.ptr));
                Place { ptr, before: from.before.min(other.before), after: from.after.min(other.after), elem }
            }
        };
        self.top().places.push(place);
    }

    /// A buffer of the function, filled with a value.
    pub(super) fn own_buffer(&mut self) {
        let elem = *self.rng.pick(&BUFFERS);
        let value = self.value(Ty::scalar(elem));
        let value = self.canonical(value);
        let ptr = self.filled(elem, value);
        self.top().places.push(Place { ptr, elem, before: 0, after: i64::from(OWN) * elem.size() });
    }

    /// A buffer of pointers to one place.
    pub(super) fn own_table(&mut self) {
        let elem = *self.rng.pick(&BUFFERS);
        let place = self.place(elem);
        let table = self.filled(Elem::Ptr, place.ptr);
        self.top().tables.push((table, place));
    }

    fn filled(&mut self, elem: Elem, value: V) -> V {
        let ptr = self.inst(Ty::PTR, Inst::Buffer { elem, count: OWN, shared: false });
        let (low, high) = (self.int(Ty::I64, 0), self.int(Ty::I64, i64::from(OWN)));
        let var = self.fresh(Ty::I64);
        let body = Block { stmts: vec![Stmt::Store { ptr, index: var, value, mask: None }], results: vec![] };
        self.stmt(Stmt::For { axis: Axis::Serial, var, low, high, step: 1, carried: vec![], body, outs: vec![] });
        ptr
    }
}
