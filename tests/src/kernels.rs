//! Random kernels over all instructions of the kernel IR, with memory to run them on, for comparing backends bit by bit.
//!
//! What the IR leaves open does not occur: accesses are in bounds, divisions and shifts guarded, and no NaN's payload reaches
//! memory or an integer. Every buffer holds elements of one type. Everything follows from a seed.
mod instructions;
mod places;

use crate::rng::Rng;
use numrsc_ir::kernel::{
    Axis, Binary, Block, Compare, Elem, FuncId, Function, Inst, Kind, Module, Stmt, Ty, V,
    interp::{Machine, Pointer, Trap},
};
use places::Place;

/// What kind of kernels to make.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many steps the kernel takes, and nested blocks about half; a step adds one instruction or statement and what it needs.
    pub steps: usize,
    /// How deeply loops and branches nest.
    pub depth: usize,
    /// With `muladd`, whose result depends on whether the target fuses.
    pub muladd: bool,
    /// With conversions of half floats, which few machines have.
    pub halves: bool,
    /// With products by fours, which few machines have.
    pub dot4: bool,
    /// With helpers that the kernel calls.
    pub calls: bool,
    /// Vectors have at most this many lanes; 1 for none.
    pub lanes: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config { steps: 40, depth: 3, muladd: false, halves: false, dot4: false, calls: true, lanes: 16 }
    }
}

/// A kernel and what to run it on. Its own parameters are pointers to the buffers, then the numbers.
#[derive(Clone, Debug)]
pub struct Case {
    pub module: Module,
    pub kernel: FuncId,
    /// `begin`, `end` and `worker`
    pub range: [i64; 3],
    /// Of [`BUFFERS`], each of [`BUFFER_BYTES`].
    pub buffers: Vec<Vec<u8>>,
    pub numbers: Vec<i64>,
}

/// The results of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    pub code: i32,
    pub buffers: Vec<Vec<u8>>,
}

/// The elements of the buffers that the kernel gets, in order.
pub const BUFFERS: [Elem; 6] = [Elem::I8, Elem::I16, Elem::I32, Elem::I64, Elem::F32, Elem::F64];
pub const BUFFER_BYTES: i64 = 4096;
const NUMBERS: usize = 3;

pub fn random(seed: u64, config: &Config) -> Case {
    let mut rng = Rng::new(seed);
    let mut functions = Vec::new();
    let helpers = if config.calls { rng.below(3) } else { 0 };
    for i in 0..helpers {
        let helper = Maker::new(&mut rng, config, &functions).helper(format!("helper{i}"));
        functions.push(helper);
    }
    let kernel = Maker::new(&mut rng, config, &functions).kernel();
    functions.push(kernel);
    let begin = rng.between(-2, 5);
    let contents = |elem: &Elem| {
        let bytes = elem.size() as usize;
        (0..BUFFER_BYTES as usize / bytes)
            .flat_map(|_| bits(&mut rng, *elem).to_le_bytes().into_iter().take(bytes))
            .collect()
    };
    let buffers = BUFFERS.iter().map(contents).collect();
    Case {
        kernel: FuncId(functions.len() as u32 - 1),
        module: Module { functions },
        range: [begin, begin + rng.between(0, 9), rng.between(0, 3)],
        buffers,
        numbers: (0..NUMBERS).map(|_| bits(&mut rng, Elem::I64) as i64).collect(),
    }
}

impl Case {
    /// What the kernel should contain.
    pub fn interpret(&self) -> Result<Outcome, Trap> {
        let mut machine = Machine::new(&self.module).map_err(|e| Trap::from(e.to_string()))?;
        let mut args = Vec::new();
        for bytes in &self.buffers {
            let at = machine.alloc(bytes.len())?;
            machine.write(at, bytes)?;
            args.push(at.0);
        }
        args.extend(self.numbers.iter().map(|n| *n as u64));
        let [begin, end, worker] = self.range;
        let code = machine.run_kernel(self.kernel, begin, end, worker, &args)?;
        let buffers = self.buffers.iter().zip(&args).map(|(b, at)| machine.read(Pointer(*at), b.len()));
        Ok(Outcome { code, buffers: buffers.collect::<Result<_, _>>()? })
    }
}

/// A number of any size, often small or special.
fn bits(rng: &mut Rng, elem: Elem) -> u64 {
    let small = rng.between(-8, 8);
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e-310, 1e300, 1e-42, 3e9, -128.5, 1e19];
    match (elem, rng.below(8)) {
        (Elem::F32, 0..=4) => u64::from((small as f32 * 0.375).to_bits()),
        (Elem::F32, 5) => u64::from((*rng.pick(&special) as f32).to_bits()),
        (Elem::F64, 0..=4) => (small as f64 * 0.375).to_bits(),
        (Elem::F64, 5) => rng.pick(&special).to_bits(),
        (Elem::F32 | Elem::F64, _) => rng.draw() >> (64 - elem.bits()),
        (_, 0..=4) => small as u64 & (u64::MAX >> (64 - elem.bits())),
        (_, 5) => (1 << (elem.bits() - 1)) - u64::from(rng.one_in(2)),
        _ => rng.draw() >> (64 - elem.bits()),
    }
}

/// A function under construction.
struct Maker<'r> {
    rng: &'r mut Rng,
    config: &'r Config,
    helpers: &'r [Function],
    kind: Kind,
    types: Vec<Ty>,
    /// The open blocks, outermost first.
    open: Vec<Open>,
}

/// A block under construction, and what is visible from it on.
#[derive(Default)]
struct Open {
    stmts: Vec<Stmt>,
    values: Vec<V>,
    places: Vec<Place>,
    /// Memory that holds pointers, all to the same place.
    tables: Vec<(V, Place)>,
}

impl<'r> Maker<'r> {
    fn new(rng: &'r mut Rng, config: &'r Config, helpers: &'r [Function]) -> Maker<'r> {
        Maker { rng, config, helpers, kind: Kind::Helper, types: vec![], open: vec![Open::default()] }
    }

    fn helper(mut self, name: String) -> Function {
        let mut params = Vec::new();
        for _ in 0..=self.rng.below(4) {
            let ty = self.passed();
            params.push(self.fresh(ty));
        }
        self.top().values = params.clone();
        for _ in 0..self.config.steps / 4 {
            self.step(self.config.depth.min(1));
        }
        let ty = self.passed();
        let result = self.value(ty);
        self.finish(name, params, vec![result])
    }

    /// A type to take or give.
    fn passed(&mut self) -> Ty {
        let ty = self.ty();
        if ty.elem == Elem::I1 { Ty::I1 } else { ty }
    }

    fn kernel(mut self) -> Function {
        self.kind = Kind::Kernel;
        let mut params: Vec<V> = (0..3).map(|_| self.fresh(Ty::I64)).collect();
        for elem in BUFFERS {
            let ptr = self.fresh(Ty::PTR);
            params.push(ptr);
            self.top().places.push(Place { ptr, elem, before: 0, after: BUFFER_BYTES });
        }
        params.extend((0..NUMBERS).map(|_| self.fresh(Ty::I64)));
        self.top().values = params.iter().copied().filter(|v| self.types[v.0 as usize] == Ty::I64).collect();
        for _ in 0..self.rng.below(3) {
            self.own_buffer();
        }
        if self.rng.one_in(2) {
            self.own_table();
        }
        for _ in 0..self.config.steps {
            self.step(self.config.depth);
        }
        // The last value of each type is seen, and by it what it was computed from.
        let mut seen = Vec::new();
        for v in self.top().values.clone().into_iter().rev() {
            if !seen.contains(&self.type_of(v)) {
                seen.push(self.type_of(v));
                self.observe(v);
            }
        }
        self.finish("kernel".into(), params, vec![])
    }

    fn finish(mut self, name: String, params: Vec<V>, results: Vec<V>) -> Function {
        let body = self.close(results);
        Function { name, kind: self.kind, params, types: self.types, body }
    }

    fn fresh(&mut self, ty: Ty) -> V {
        self.types.push(ty);
        V(self.types.len() as u32 - 1)
    }

    fn type_of(&self, v: V) -> Ty {
        self.types[v.0 as usize]
    }

    fn top(&mut self) -> &mut Open {
        self.open.last_mut().expect("the body is open")
    }

    fn close(&mut self, results: Vec<V>) -> Block {
        let block = self.open.pop().expect("a block is open");
        Block { stmts: block.stmts, results }
    }

    fn stmt(&mut self, stmt: Stmt) {
        self.top().stmts.push(stmt);
    }

    /// An instruction whose result is for internal use.
    fn inst(&mut self, ty: Ty, inst: Inst) -> V {
        let out = self.fresh(ty);
        self.stmt(Stmt::Let { out, inst });
        out
    }

    /// Makes a value available to what follows.
    fn keep(&mut self, v: V) -> V {
        self.top().values.push(v);
        v
    }

    fn int(&mut self, ty: Ty, x: i64) -> V {
        self.inst(ty, Inst::Const(x as u64 & (u64::MAX >> (64 - ty.elem.bits()))))
    }

    fn binary(&mut self, op: Binary, a: V, b: V) -> V {
        self.inst(self.type_of(a), Inst::Binary(op, a, b))
    }

    /// A bitwise `and` with a number.
    fn masked(&mut self, a: V, mask: i64) -> V {
        let mask = self.int(self.type_of(a), mask);
        self.binary(Binary::And, a, mask)
    }

    fn lanes(&mut self) -> u32 {
        let fitting: Vec<u32> = [1, 1, 1, 2, 4, 4, 8, 8, 16].into_iter().filter(|&n| n <= self.config.lanes).collect();
        *self.rng.pick(&fitting)
    }

    fn ty_of(&mut self, elems: &[Elem]) -> Ty {
        Ty::vector(*self.rng.pick(elems), self.lanes())
    }

    fn ty(&mut self) -> Ty {
        self.ty_of(&[Elem::I1, Elem::I8, Elem::I16, Elem::I32, Elem::I64, Elem::I64, Elem::F32, Elem::F32, Elem::F64])
    }

    /// A visible value of the type, or a new one.
    fn value(&mut self, ty: Ty) -> V {
        let visible = self.open.iter().flat_map(|o| &o.values).copied();
        let fitting: Vec<V> = visible.filter(|v| self.type_of(*v) == ty).collect();
        if !fitting.is_empty() && !self.rng.one_in(6) {
            // Prefers recent values, so that values depend on many others.
            let recent = &fitting[fitting.len().saturating_sub(3)..];
            return if self.rng.one_in(2) { *self.rng.pick(recent) } else { *self.rng.pick(&fitting) };
        }
        let new = match self.rng.below(4) {
            0 if ty.lanes > 1 => {
                let scalar = self.value(Ty::scalar(ty.elem));
                self.inst(ty, Inst::Splat(scalar))
            }
            1 | 2 if ty.elem == Elem::I1 => {
                let a = self.value(ty.with(Elem::I32));
                let b = self.value(ty.with(Elem::I32));
                self.inst(ty, Inst::Compare(Compare::Lt, a, b))
            }
            1 | 2 if self.has_place(ty.elem) => self.load(ty),
            _ => {
                let bits = bits(self.rng, ty.elem);
                self.inst(ty, Inst::Const(bits))
            }
        };
        self.keep(new)
    }

    /// A visible value of any type.
    fn any(&mut self) -> V {
        let visible: Vec<V> = self.open.iter().flat_map(|o| &o.values).copied().collect();
        *self.rng.pick(&visible)
    }

    fn step(&mut self, depth: usize) {
        match self.rng.below(14) {
            0 if self.kind == Kind::Kernel => self.move_place(),
            1 | 2 if self.kind == Kind::Kernel => {
                let v = self.any();
                self.observe(v);
            }
            3 if depth > 0 => self.for_(depth - 1),
            4 if depth > 0 && self.rng.one_in(2) => self.while_(depth - 1),
            5 if depth > 0 => self.if_(depth - 1),
            6 if self.kind == Kind::Kernel && self.rng.one_in(4) => self.check(),
            _ => self.instruction(),
        }
    }

    /// A block that sees some more values and yields values of the given types.
    fn block(&mut self, depth: usize, values: Vec<V>, results: &[Ty]) -> Block {
        self.open.push(Open { values, ..Open::default() });
        for _ in 0..self.rng.below(self.config.steps / 4 + 2) {
            self.step(depth);
        }
        let results = results.iter().map(|ty| self.value(*ty)).collect();
        self.close(results)
    }

    /// Up to three types, the first values of each, and names for them inside and after.
    fn carry(&mut self) -> (Vec<Ty>, Vec<(V, V)>, Vec<V>) {
        let types: Vec<Ty> = (0..self.rng.below(4)).map(|_| self.ty()).collect();
        let first: Vec<V> = types.iter().map(|ty| self.value(*ty)).collect();
        let carried = types.iter().zip(first).map(|(ty, v)| (self.fresh(*ty), v)).collect();
        let outs = types.iter().map(|ty| self.fresh(*ty)).collect();
        (types, carried, outs)
    }

    fn for_(&mut self, depth: usize) {
        let axis = *self.rng.pick(&[Axis::Serial, Axis::Serial, Axis::Unrolled]);
        let (low, rounds) = (self.rng.between(-3, 3), self.rng.between(0, 6));
        let (low, high) = if axis == Axis::Unrolled || self.rng.one_in(2) {
            (self.int(Ty::I64, low), self.int(Ty::I64, low + rounds))
        } else {
            let (low, more) = (self.value(Ty::I64), self.value(Ty::I64));
            let (low, more) = (self.masked(low, 63), self.masked(more, 7));
            (low, self.binary(Binary::Add, low, more))
        };
        let (types, carried, outs) = self.carry();
        let var = self.fresh(Ty::I64);
        let inside = carried.iter().map(|c| c.0).chain([var]).collect();
        let body = self.block(depth, inside, &types);
        let step = self.rng.between(1, 3);
        self.stmt(Stmt::For { axis, var, low, high, step, carried, body, outs: outs.clone() });
        self.top().values.extend(outs);
    }

    /// Counts to a limit; another condition may end it earlier.
    fn while_(&mut self, depth: usize) {
        let limit = self.value(Ty::I64);
        let limit = self.masked(limit, 7);
        let zero = self.int(Ty::I64, 0);
        let (types, mut carried, mut outs) = self.carry();
        let counter = self.fresh(Ty::I64);
        let inside: Vec<V> = carried.iter().map(|c| c.0).chain([counter]).collect();

        self.open.push(Open { values: inside.clone(), ..Open::default() });
        for _ in 0..self.rng.below(3) {
            self.instruction();
        }
        let mut go = self.inst(Ty::I1, Inst::Compare(Compare::Lt, counter, limit));
        if self.rng.one_in(3) {
            let also = self.value(Ty::I1);
            go = self.binary(Binary::And, go, also);
        }
        let cond = self.close(vec![go]);

        let mut body = self.block(depth, inside, &types);
        let (one, next) = (self.fresh(Ty::I64), self.fresh(Ty::I64));
        body.stmts.push(Stmt::Let { out: one, inst: Inst::Const(1) });
        body.stmts.push(Stmt::Let { out: next, inst: Inst::Binary(Binary::Add, counter, one) });
        body.results.push(next);
        carried.push((counter, zero));
        outs.push(self.fresh(Ty::I64));
        self.stmt(Stmt::While { carried, cond, body, outs: outs.clone() });
        self.top().values.extend(outs);
    }

    fn if_(&mut self, depth: usize) {
        let cond = self.value(Ty::I1);
        let types: Vec<Ty> = (0..self.rng.below(3)).map(|_| self.ty()).collect();
        let then = self.block(depth, vec![], &types);
        let or =
            if types.is_empty() && self.rng.one_in(2) { Block::default() } else { self.block(depth, vec![], &types) };
        let outs: Vec<V> = types.iter().map(|ty| self.fresh(*ty)).collect();
        self.stmt(Stmt::If { cond, then, or, outs: outs.clone() });
        self.top().values.extend(outs);
    }

    /// Fail in a case that is rare.
    fn check(&mut self) {
        let a = self.value(Ty::scalar(Elem::I16));
        let rare = self.int(Ty::scalar(Elem::I16), 1234);
        let cond = self.inst(Ty::I1, Inst::Compare(Compare::Eq, a, rare));
        let code = self.rng.between(1, 9) as u32;
        let then = Block { stmts: vec![Stmt::Fail { code }], results: vec![] };
        self.stmt(Stmt::If { cond, then, or: Block::default(), outs: vec![] });
    }
}
