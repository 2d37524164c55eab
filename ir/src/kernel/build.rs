//! Building functions of the kernel IR.
//!
//! The builder places every pure instruction in the outermost open block where its operands are visible, and gives the same instruction
//! the same value: what does not depend on a loop leaves it, and nothing is computed twice. Whoever builds an inner loop writes plain code.
//!
//! Pure instructions may therefore run where the program would not have asked for them, so they must not trap: division by what may be 0
//! goes through [`Builder::udiv`] and its kin, which guard it.
mod control;

use super::{
    Binary, Block, Compare, Convert, Elem, FuncId, Function, Host, Inst, Kind, Stmt, Ty, Unary, V, renumber::renumber,
};
use crate::Origins;
pub use control::{OpenFor, OpenWhile};
use std::collections::{HashMap, HashSet};

#[derive(Debug)]
pub struct Builder {
    /// May code use [`Convert::Half`]?
    pub halves: bool,
    /// Does `muladd` round once?
    pub fused: bool,
    /// The nodes of the user's model that kernels are launched for.
    pub source: Origins,
    kind: Kind,
    params: Vec<V>,
    types: Vec<Ty>,
    /// The depth of the block that defines each value, and which block of that depth it is.
    levels: Vec<usize>,
    blocks: Vec<u32>,
    next_block: u32,
    consts: HashMap<V, u64>,
    /// The blocks under construction, outermost first.
    scopes: Vec<Scope>,
}

#[derive(Debug, Default)]
struct Scope {
    number: u32,
    stmts: Vec<Stmt>,
    known: HashMap<(Inst, Ty), V>,
    /// Conditions that hold from here on.
    checked: HashSet<V>,
    /// The block runs under a condition that may protect its loads.
    guarded: bool,
}

/// The blocks inside of an outer one that something is built in.
#[derive(Debug)]
pub struct Inner {
    level: usize,
    scopes: Vec<Scope>,
}

/// What comes after an earlier place.
#[derive(Debug)]
pub struct Later {
    stmts: Vec<Stmt>,
    known: HashMap<(Inst, Ty), V>,
    checked: HashSet<V>,
}

impl Builder {
    /// A function of the given kind; a kernel's `begin`, `end` and `worker` are not among `params`.
    pub fn new(kind: Kind, params: &[Ty]) -> Builder {
        let mut b = Builder {
            halves: false,
            fused: false,
            source: Origins::NONE,
            kind,
            params: vec![],
            types: vec![],
            levels: vec![],
            blocks: vec![],
            next_block: 1,
            consts: HashMap::new(),
            scopes: vec![Scope::default()],
        };
        if kind == Kind::Kernel {
            b.params = vec![b.fresh(Ty::I64), b.fresh(Ty::I64), b.fresh(Ty::I64)];
        }
        for &ty in params {
            b.add_param(ty);
        }
        b
    }

    /// One more parameter.
    pub fn add_param(&mut self, ty: Ty) -> V {
        let v = self.fresh(ty);
        self.set_level(v, 0);
        self.params.push(v);
        v
    }

    pub fn params(&self) -> &[V] {
        &self.params
    }

    pub fn ty(&self, v: V) -> Ty {
        self.types[v.0 as usize]
    }

    /// The value of a constant, by its bits.
    pub fn as_const(&self, v: V) -> Option<u64> {
        self.consts.get(&v).copied()
    }

    /// How many blocks are open around the current one.
    pub fn depth(&self) -> usize {
        self.scopes.len() - 1
    }

    /// The depth of the block that defines a value.
    pub fn level(&self, v: V) -> usize {
        self.levels[v.0 as usize]
    }

    /// The finished function; a helper yields `results`.
    pub fn finish(mut self, name: impl Into<String>, results: Vec<V>) -> Function {
        assert!(self.scopes.len() == 1, "every block is closed");
        let scope = self.scopes.pop().expect("the body");
        let mut body = Block { stmts: scope.stmts, results };
        let mut used = HashSet::new();
        drop_unused(&mut body, &mut used);
        let mut f = Function { name: name.into(), kind: self.kind, params: self.params, types: self.types, body };
        renumber(&mut f);
        f
    }

    /// Is the block that defines the value still open?
    pub fn is_visible(&self, v: V) -> bool {
        self.scopes.get(self.level(v)).is_some_and(|s| s.number == self.blocks[v.0 as usize])
    }

    fn fresh(&mut self, ty: Ty) -> V {
        let v = V(self.types.len() as u32);
        self.types.push(ty);
        self.levels.push(self.scopes.len() - 1);
        self.blocks.push(self.scopes[self.scopes.len() - 1].number);
        v
    }

    fn set_level(&mut self, v: V, level: usize) {
        self.levels[v.0 as usize] = level;
        self.blocks[v.0 as usize] = self.scopes[level].number;
    }

    fn top(&mut self) -> &mut Scope {
        self.scopes.last_mut().expect("the body is open")
    }

    /// Build at an outer depth, before what is under construction further in.
    pub fn at_level<R>(&mut self, level: usize, f: impl FnOnce(&mut Builder) -> R) -> R {
        let inner = self.step_out(level);
        let r = f(self);
        self.step_in(inner);
        r
    }

    /// Go to an outer depth; [`Builder::step_in`] returns.
    pub fn step_out(&mut self, level: usize) -> Inner {
        Inner { level, scopes: self.scopes.split_off(level + 1) }
    }

    pub fn step_in(&mut self, inner: Inner) {
        assert!(self.scopes.len() == inner.level + 1, "blocks are closed where they were opened");
        self.scopes.extend(inner.scopes);
    }

    /// Where the next statement of the function's own block will be.
    pub fn place_here(&self) -> usize {
        self.scopes[0].stmts.len()
    }

    /// Go back to an earlier place of the function's own block; [`Builder::step_forward`] returns. Values from after it must not be used.
    pub fn step_back(&mut self, place: usize) -> Later {
        assert!(self.scopes.len() == 1, "every block is closed");
        let stmts = self.scopes[0].stmts.split_off(place);
        let scope = &mut self.scopes[0];
        Later { stmts, known: std::mem::take(&mut scope.known), checked: std::mem::take(&mut scope.checked) }
    }

    pub fn step_forward(&mut self, later: Later) {
        self.scopes[0].stmts.extend(later.stmts);
        self.scopes[0].known = later.known;
        self.scopes[0].checked.extend(later.checked);
    }

    /// How many values there are so far.
    pub fn count(&self) -> u32 {
        self.types.len() as u32
    }

    /// A value of the function's own block that [`Builder::define`] will define.
    pub fn declare(&mut self, ty: Ty) -> V {
        let v = self.fresh(ty);
        self.set_level(v, 0);
        v
    }

    /// Define a declared value as that many bytes behind a pointer.
    pub fn define(&mut self, out: V, ptr: V, bytes: V) {
        self.top().stmts.push(Stmt::Let { out, inst: Inst::Offset(ptr, bytes) });
    }

    /// The outermost depth where code that reads memory under the current conditions may go.
    pub fn guard_level(&self) -> usize {
        self.scopes.iter().rposition(|s| s.guarded).unwrap_or(0)
    }

    /// An instruction without effects, at the outermost place that sees its operands.
    pub fn pure(&mut self, ty: Ty, inst: Inst) -> V {
        let mut level = 0;
        operands(&inst, &mut |v| level = level.max(self.levels[v.0 as usize]));
        self.place(level, ty, inst)
    }

    fn place(&mut self, level: usize, ty: Ty, inst: Inst) -> V {
        let key = (inst, ty);
        if let Some(&v) = self.scopes[level].known.get(&key) {
            return v;
        }
        let out = self.fresh(ty);
        self.set_level(out, level);
        if let Inst::Const(bits) = key.0 {
            self.consts.insert(out, bits);
        }
        self.scopes[level].stmts.push(Stmt::Let { out, inst: key.0.clone() });
        self.scopes[level].known.insert(key, out);
        out
    }

    /// An instruction that stays where it is and is not shared.
    fn here(&mut self, ty: Ty, inst: Inst) -> V {
        let out = self.fresh(ty);
        self.top().stmts.push(Stmt::Let { out, inst });
        out
    }

    // Constants.

    pub fn bits(&mut self, ty: Ty, bits: u64) -> V {
        self.pure(ty, Inst::Const(bits))
    }

    pub fn i64(&mut self, x: i64) -> V {
        self.bits(Ty::I64, x as u64)
    }

    /// A whole number in every lane of an integer type.
    pub fn int(&mut self, ty: Ty, x: i64) -> V {
        assert!(ty.elem.is_int(), "{ty} is an integer");
        let mask = if ty.elem.bits() == 64 { u64::MAX } else { (1 << ty.elem.bits()) - 1 };
        self.bits(ty, x as u64 & mask)
    }

    /// A number in every lane of a float type, rounded to it.
    pub fn float(&mut self, ty: Ty, x: f64) -> V {
        let bits = if ty.elem == Elem::F32 { u64::from((x as f32).to_bits()) } else { x.to_bits() };
        assert!(ty.elem.is_float(), "{ty} is a float");
        self.bits(ty, bits)
    }

    fn const_i64(&self, v: V) -> Option<i64> {
        (self.ty(v) == Ty::I64).then(|| self.as_const(v).map(|b| b as i64)).flatten()
    }

    // Arithmetic.

    pub fn unary(&mut self, op: Unary, a: V) -> V {
        self.pure(self.ty(a), Inst::Unary(op, a))
    }

    /// Not to be used for integer division by what may be 0: see [`Builder::udiv`].
    pub fn binary(&mut self, op: Binary, a: V, b: V) -> V {
        debug_assert_eq!(self.ty(a), self.ty(b), "{op:?}");
        if let Some(v) = self.fold(op, a, b) {
            return v;
        }
        self.pure(self.ty(a), Inst::Binary(op, a, b))
    }

    fn fold(&mut self, op: Binary, a: V, b: V) -> Option<V> {
        if self.ty(a) == Ty::I1 {
            return match (op, self.as_const(a), self.as_const(b)) {
                (Binary::And, Some(0), _) | (Binary::Or, Some(1), _) => Some(a),
                (Binary::And, _, Some(0)) | (Binary::Or, _, Some(1)) => Some(b),
                (Binary::And, Some(1), _) | (Binary::Or, Some(0), _) => Some(b),
                (Binary::And, _, Some(1)) | (Binary::Or, _, Some(0)) => Some(a),
                _ => None,
            };
        }
        let (x, y) = (self.const_i64(a), self.const_i64(b));
        if let (Some(x), Some(y)) = (x, y) {
            let r = match op {
                Binary::Add => x.wrapping_add(y),
                Binary::Sub => x.wrapping_sub(y),
                Binary::Mul => x.wrapping_mul(y),
                Binary::UDiv if y != 0 => (x as u64 / y as u64) as i64,
                Binary::URem if y != 0 => (x as u64 % y as u64) as i64,
                Binary::SMin => x.min(y),
                Binary::SMax => x.max(y),
                _ => return None,
            };
            return Some(self.i64(r));
        }
        match (op, x, y) {
            (Binary::Add, Some(0), _) | (Binary::Mul, Some(1), _) => Some(b),
            (Binary::Add | Binary::Sub, _, Some(0)) | (Binary::Mul | Binary::UDiv, _, Some(1)) => Some(a),
            (Binary::Mul, Some(0), _) | (Binary::Mul, _, Some(0)) | (Binary::URem, _, Some(1)) => Some(self.i64(0)),
            _ => None,
        }
    }

    pub fn add(&mut self, a: V, b: V) -> V {
        self.binary(Binary::Add, a, b)
    }

    pub fn sub(&mut self, a: V, b: V) -> V {
        self.binary(Binary::Sub, a, b)
    }

    pub fn mul(&mut self, a: V, b: V) -> V {
        self.binary(Binary::Mul, a, b)
    }

    pub fn and(&mut self, a: V, b: V) -> V {
        self.binary(Binary::And, a, b)
    }

    pub fn or(&mut self, a: V, b: V) -> V {
        self.binary(Binary::Or, a, b)
    }

    pub fn muladd(&mut self, a: V, b: V, c: V) -> V {
        self.pure(self.ty(a), Inst::MulAdd(a, b, c))
    }

    pub fn dot4(&mut self, a: V, b: V, c: V) -> V {
        self.pure(self.ty(c), Inst::Dot4(a, b, c))
    }

    /// The divisor, or 1 where it is 0.
    fn nonzero(&mut self, b: V) -> V {
        if self.as_const(b).is_some_and(|bits| bits != 0) {
            return b;
        }
        let ty = self.ty(b);
        let (zero, one) = (self.int(ty, 0), self.int(ty, 1));
        let is_zero = self.compare(Compare::Eq, b, zero);
        self.select(is_zero, one, b)
    }

    /// Unsigned division; something if `b` is 0.
    pub fn udiv(&mut self, a: V, b: V) -> V {
        let b = self.nonzero(b);
        self.binary(Binary::UDiv, a, b)
    }

    /// Unsigned remainder; something if `b` is 0.
    pub fn urem(&mut self, a: V, b: V) -> V {
        let b = self.nonzero(b);
        self.binary(Binary::URem, a, b)
    }

    /// Signed division and remainder toward zero; by 0 something, the least number by -1 wraps.
    pub fn sdivrem(&mut self, a: V, b: V) -> (V, V) {
        let ty = self.ty(a);
        let b = self.nonzero(b);
        let (minus_one, one, zero) = (self.int(ty, -1), self.int(ty, 1), self.int(ty, 0));
        let negate = self.compare(Compare::Eq, b, minus_one);
        let safe = self.select(negate, one, b);
        let (q, r) = (self.binary(Binary::SDiv, a, safe), self.binary(Binary::SRem, a, safe));
        let negated = self.unary(Unary::Neg, a);
        (self.select(negate, negated, q), self.select(negate, zero, r))
    }

    /// Both operands of one type, result `i1` per lane.
    pub fn compare(&mut self, op: Compare, a: V, b: V) -> V {
        debug_assert_eq!(self.ty(a), self.ty(b), "{op:?}");
        if let (Some(x), Some(y)) = (self.const_i64(a), self.const_i64(b)) {
            let r = match op {
                Compare::Eq => x == y,
                Compare::Ne => x != y,
                Compare::Lt => x < y,
                Compare::Le => x <= y,
                Compare::ULt => (x as u64) < y as u64,
                Compare::ULe => x as u64 <= y as u64,
            };
            return self.bits(Ty::I1, u64::from(r));
        }
        self.pure(self.ty(a).with(Elem::I1), Inst::Compare(op, a, b))
    }

    pub fn select(&mut self, cond: V, a: V, b: V) -> V {
        debug_assert_eq!(self.ty(a), self.ty(b), "select");
        debug_assert_eq!(self.ty(cond), self.ty(a).with(Elem::I1), "select");
        match self.as_const(cond) {
            _ if a == b => a,
            Some(0) => b,
            Some(_) => a,
            None => self.pure(self.ty(a), Inst::Select(cond, a, b)),
        }
    }

    /// To another element type with the same lanes; nothing if it is that already.
    pub fn convert(&mut self, op: Convert, a: V, to: Elem) -> V {
        let ty = self.ty(a).with(to);
        if self.ty(a) == ty { a } else { self.pure(ty, Inst::Convert(op, a)) }
    }

    // Vectors.

    pub fn splat(&mut self, a: V, lanes: u32) -> V {
        if lanes == 1 {
            return a;
        }
        let ty = Ty::vector(self.ty(a).elem, lanes);
        match self.as_const(a) {
            Some(bits) => self.bits(ty, bits),
            None => self.pure(ty, Inst::Splat(a)),
        }
    }

    pub fn extract(&mut self, a: V, lane: u32) -> V {
        let ty = self.ty(a);
        match self.as_const(a) {
            _ if ty.lanes == 1 => a,
            Some(bits) => self.bits(Ty::scalar(ty.elem), bits),
            None => self.pure(Ty::scalar(ty.elem), Inst::Extract(a, lane)),
        }
    }

    /// A vector of these scalars.
    pub fn vector(&mut self, lanes: &[V]) -> V {
        if let [only] = lanes {
            return *only;
        }
        let mut v = self.splat(lanes[0], lanes.len() as u32);
        for (i, &x) in lanes.iter().enumerate().skip(1).filter(|(_, x)| **x != lanes[0]) {
            v = self.pure(self.ty(v), Inst::Insert(v, x, i as u32));
        }
        v
    }

    pub fn shuffle(&mut self, a: V, b: V, lanes: Vec<u32>) -> V {
        let ty = Ty::vector(self.ty(a).elem, lanes.len() as u32);
        self.pure(ty, Inst::Shuffle(a, b, lanes))
    }

    /// All lanes combined into a scalar.
    pub fn reduce(&mut self, op: Binary, a: V) -> V {
        let ty = self.ty(a);
        if ty.lanes == 1 { a } else { self.pure(Ty::scalar(ty.elem), Inst::Reduce(op, a)) }
    }

    pub fn iota(&mut self, ty: Ty) -> V {
        self.pure(ty, Inst::Iota)
    }

    // Memory.

    /// Read memory that this function may also write.
    pub fn load(&mut self, ty: Ty, ptr: V, index: V) -> V {
        self.here(ty, Inst::Load { ptr, index, mask: None })
    }

    /// Read memory that does not change while this function runs.
    pub fn load_fixed(&mut self, ty: Ty, ptr: V, index: V) -> V {
        let level = self.level(ptr).max(self.level(index)).max(self.guard_level());
        self.place(level, ty, Inst::Load { ptr, index, mask: None })
    }

    /// Like [`Builder::load_fixed`], for the lanes of a mask; the others are 0.
    pub fn load_fixed_masked(&mut self, ty: Ty, ptr: V, index: V, mask: V) -> V {
        let level = self.level(ptr).max(self.level(index)).max(self.level(mask)).max(self.guard_level());
        self.place(level, ty, Inst::Load { ptr, index, mask: Some(mask) })
    }

    /// Like [`Builder::load`], for the lanes of a mask; the others are 0.
    pub fn load_masked(&mut self, ty: Ty, ptr: V, index: V, mask: V) -> V {
        self.here(ty, Inst::Load { ptr, index, mask: Some(mask) })
    }

    pub fn store(&mut self, ptr: V, index: V, value: V) {
        self.top().stmts.push(Stmt::Store { ptr, index, value, mask: None });
    }

    pub fn store_masked(&mut self, ptr: V, index: V, value: V, mask: V) {
        self.top().stmts.push(Stmt::Store { ptr, index, value, mask: Some(mask) });
    }

    /// Memory that many bytes behind a pointer, wherever that is, will be read soon.
    pub fn prefetch(&mut self, ptr: V, bytes: V) {
        self.top().stmts.push(Stmt::Prefetch { ptr, bytes });
    }

    /// The pointer that many bytes further.
    pub fn offset(&mut self, ptr: V, bytes: V) -> V {
        if self.const_i64(bytes) == Some(0) { ptr } else { self.pure(Ty::PTR, Inst::Offset(ptr, bytes)) }
    }

    /// A few elements of memory that belong to this call.
    pub fn buffer(&mut self, elem: Elem, count: u32) -> V {
        let out = self.fresh(Ty::PTR);
        self.set_level(out, 0);
        self.scopes[0].stmts.push(Stmt::Let { out, inst: Inst::Buffer { elem, count, shared: false } });
        out
    }

    // Calls.

    pub fn call(&mut self, helper: FuncId, args: Vec<V>, result: Ty) -> V {
        self.here(result, Inst::Call(helper, args))
    }

    pub fn host(&mut self, f: Host, args: Vec<V>) -> V {
        self.here(Ty::PTR, Inst::Host(f, args))
    }

    pub fn launch(&mut self, kernel: FuncId, args: Vec<V>, extent: V, grain: V) {
        let origins = self.source.clone();
        self.top().stmts.push(Stmt::Launch { kernel, args, extent, grain, origins });
    }
}

/// Call `f` for every operand of an instruction.
pub fn operands(inst: &Inst, f: &mut dyn FnMut(V)) {
    match inst {
        Inst::Const(_) | Inst::Iota | Inst::Buffer { .. } => {}
        Inst::Unary(_, a) | Inst::Convert(_, a) | Inst::Splat(a) | Inst::Extract(a, _) | Inst::Reduce(_, a) => f(*a),
        Inst::Binary(_, a, b)
        | Inst::Compare(_, a, b)
        | Inst::Insert(a, b, _)
        | Inst::Shuffle(a, b, _)
        | Inst::Offset(a, b) => [*a, *b].into_iter().for_each(f),
        Inst::MulAdd(a, b, c) | Inst::Dot4(a, b, c) | Inst::Select(a, b, c) => [*a, *b, *c].into_iter().for_each(f),
        Inst::Load { ptr, index, mask } => [Some(*ptr), Some(*index), *mask].into_iter().flatten().for_each(f),
        Inst::Call(_, args) | Inst::Host(_, args) => args.iter().copied().for_each(f),
    }
}

/// Remove the instructions without effect whose results nobody uses, from the last to the first.
fn drop_unused(block: &mut Block, used: &mut HashSet<V>) {
    used.extend(&block.results);
    let mut kept = Vec::with_capacity(block.stmts.len());
    for mut stmt in std::mem::take(&mut block.stmts).into_iter().rev() {
        match &mut stmt {
            Stmt::Let { out, inst } => {
                if !used.contains(out) && !matches!(inst, Inst::Call(..) | Inst::Host(..)) {
                    continue;
                }
                operands(inst, &mut |v| {
                    used.insert(v);
                });
            }
            Stmt::Store { ptr, index, value, mask } => {
                used.extend([Some(*ptr), Some(*index), Some(*value), *mask].into_iter().flatten());
            }
            Stmt::For { low, high, carried, body, .. } => {
                drop_unused(body, used);
                used.extend([*low, *high]);
                used.extend(carried.iter().map(|c| c.1));
            }
            Stmt::While { carried, cond, body, .. } => {
                drop_unused(body, used);
                drop_unused(cond, used);
                used.extend(carried.iter().map(|c| c.1));
            }
            Stmt::If { cond, then, or, .. } => {
                drop_unused(then, used);
                drop_unused(or, used);
                used.insert(*cond);
            }
            Stmt::Launch { args, extent, grain, .. } => {
                used.extend(args.iter().copied());
                used.extend([*extent, *grain]);
            }
            Stmt::Prefetch { ptr, bytes } => used.extend([*ptr, *bytes]),
            Stmt::Fail { .. } | Stmt::Barrier => {}
        }
        kept.push(stmt);
    }
    kept.reverse();
    block.stmts = kept;
}
