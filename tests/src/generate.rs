//! Random well-typed functions over all core ops, with inputs on which they evaluate without error.
//!
//! Data-dependent demands hold by construction: indices are taken modulo the axis, sizes that a value names are at
//! least 1, padding covers windows. Everything follows from a seed.
mod ops;

use crate::rng::Rng;
use numrsc_ir::{
    DType, Dim, Elem, Elems, Func, Lit, Op, ReduceFn, Scalar, ScalarFn, ScatterFn, Tensor, TensorType, Type, Value,
    dim::{Range, Sym},
    scalar::{Call, Sig, Step},
};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// What kind of functions to make.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many steps to take; a step adds one op and what it needs.
    pub steps: usize,
    /// How deeply functions nest.
    pub depth: usize,
    /// Infinities, NaNs, negative zeros and subnormal numbers among the constants.
    pub special: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config { steps: 12, depth: 2, special: false }
    }
}

/// Tensors grow to no more elements than this.
const MAX_ELEMENTS: i64 = 1500;
/// The largest value of a symbol.
const MAX_SYM: i64 = 4;
/// Symbols of parameters.
pub const SIZES: [&str; 2] = ["n", "m"];

const DTYPES: [DType; 16] = [
    DType::F32,
    DType::F32,
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::I64,
    DType::I64,
    DType::I32,
    DType::I8,
    DType::U8,
    DType::U32,
    DType::Bool,
    DType::F8E4M3,
    DType::I4,
    DType::U2,
];

/// The function of a seed.
pub fn func(seed: u64, config: Config) -> Func {
    let mut g = Generator::new(Rng::new(seed), config, 0);
    g.sizes = SIZES.iter().map(|s| (*s).into()).collect();
    for i in 0..1 + g.rng.below(3) {
        let ty = if i == 0 { Type::tensor(DType::F32, g.shape(2)) } else { g.tensor_type() };
        let v = g.f.param(ty).expect("a parameter");
        g.pool.push(v);
        g.f.param_names.push(format!("x{i}"));
    }
    // From here on, only symbols that a parameter introduced are used.
    let mut known = BTreeSet::new();
    for p in g.f.params() {
        g.f.ty(p).for_each_sym(&mut |s| {
            known.insert(s.clone());
        });
    }
    g.sizes = known.into_iter().collect();
    g.steps(config.steps);
    let results: Vec<Value> = (0..1 + g.rng.below(3)).map(|_| g.recent()).collect();
    g.f.result_names = (0..results.len()).map(|i| format!("y{i}")).collect();
    g.f.set_results(results);
    g.f
}

/// Values for the parameters of a function made by [`func`]; `special` as in [`Config`].
pub fn inputs(f: &Func, seed: u64, special: bool) -> Vec<Tensor> {
    let mut rng = Rng::new(seed);
    let sizes: HashMap<&str, i64> = SIZES.iter().map(|s| (*s, rng.between(1, MAX_SYM))).collect();
    f.params()
        .into_iter()
        .map(|p| {
            let ty = f.ty(p).as_tensor().expect("parameters are tensors");
            let shape = ty.shape.iter().map(|d| d.eval(&|s| sizes.get(&**s).copied()).expect("known sizes") as usize);
            tensor(&mut rng, ty.dtype, shape.collect(), special)
        })
        .collect()
}

/// A tensor of small numbers.
pub fn tensor(rng: &mut Rng, dtype: DType, shape: Vec<usize>, special: bool) -> Tensor {
    let n: usize = shape.iter().product();
    if dtype.is_float() {
        let mut number = || match rng.below(if special { 17 } else { 12 }) {
            12 => f64::INFINITY,
            13 => f64::NEG_INFINITY,
            14 => f64::NAN,
            15 => -0.0,
            16 => *rng.pick(&[1e-40, -3e-42, 1e-310, 6e-8, 1.5e-5]),
            _ => rng.between(-12, 12) as f64 / 4.0,
        };
        let v = (0..n).map(|_| number()).collect();
        return Tensor::from_elems(dtype, shape, &Elems::Float(v));
    }
    let (low, high) = dtype.int_range();
    let clamp = |x: i64| i128::from(x).clamp(low, high);
    let v = (0..n).map(|_| clamp(rng.between(-9, 9))).collect();
    Tensor::from_elems(dtype, shape, &Elems::Int(v))
}

struct Generator {
    rng: Rng,
    config: Config,
    f: Func,
    /// Tensors and sequences that later ops may use.
    pool: Vec<Value>,
    /// The types of the elements of each sequence.
    elements: HashMap<Value, Vec<Type>>,
    /// Symbols for new shapes.
    sizes: Vec<Sym>,
    /// How many symbols have been made, in all functions.
    syms: usize,
    depth: usize,
}

/// Symbols made by `compress` and `loop` may be 0, all others are at least 1.
fn range_of(s: &Sym) -> Range {
    Range { low: i64::from(!s.starts_with('z')), high: if s.starts_with('z') { 64 } else { MAX_SYM } }
}

fn dim(c: usize) -> Dim {
    Dim::from(c)
}

impl Generator {
    fn new(rng: Rng, config: Config, depth: usize) -> Generator {
        Generator { rng, config, f: Func::new(), pool: vec![], elements: HashMap::new(), sizes: vec![], syms: 0, depth }
    }

    fn steps(&mut self, n: usize) {
        for _ in 0..n {
            self.step();
        }
    }

    /// Add a node unless its op refuses the operands or gives something large.
    fn push(&mut self, op: Op, args: &[Value]) -> Option<Value> {
        let types: Vec<&Type> = args.iter().map(|a| self.f.ty(*a)).collect();
        let ty = op.infer(&types).ok()?;
        let mut fits = true;
        let mut check = |t: &Type| {
            if let Type::Tensor(t) = t {
                let range = Dim::product(&t.shape).range(&range_of);
                fits &= range.low >= 0 && range.high <= MAX_ELEMENTS && t.rank() <= 5;
                fits &= t.shape.iter().all(|d| d.range(&range_of).low >= 0);
            }
        };
        match &ty {
            Type::Tuple(ts) => ts.iter().for_each(&mut check),
            t => check(t),
        }
        if !fits {
            return None;
        }
        let v = self.f.push(op, args).expect("inferred above");
        if !matches!(ty, Type::Tuple(_)) {
            self.pool.push(v);
        }
        Some(v)
    }

    fn fresh(&mut self, prefix: &str) -> Sym {
        self.syms += 1;
        format!("{prefix}{}", self.syms).into()
    }

    fn size(&mut self) -> Dim {
        match self.rng.below(6) {
            0 => Dim::ONE,
            1 | 2 if !self.sizes.is_empty() => Dim::sym(self.rng.pick(&self.sizes).clone()),
            _ => Dim::Const(self.rng.between(2, 4)),
        }
    }

    fn static_shape(&mut self, max_rank: usize) -> Vec<usize> {
        (0..self.rng.below(max_rank + 1)).map(|_| 1 + self.rng.below(4)).collect()
    }

    fn shape(&mut self, rank: usize) -> Vec<Dim> {
        (0..rank).map(|_| self.size()).collect()
    }

    fn tensor_type(&mut self) -> Type {
        let rank = self.rng.below(4);
        Type::tensor(*self.rng.pick(&DTYPES), self.shape(rank))
    }

    fn constant(&mut self, dtype: DType, shape: Vec<usize>) -> Value {
        let value = tensor(&mut self.rng, dtype, shape, self.config.special);
        self.f.push(Op::Const { value }, &[]).expect("a constant")
    }

    fn int(&mut self, x: i64) -> Value {
        self.f.push(Op::Const { value: Tensor::scalar(DType::I64, x as f64) }, &[]).expect("a constant")
    }

    fn ty(&self, v: Value) -> TensorType {
        self.f.ty(v).as_tensor().expect("a tensor").clone()
    }

    /// A value that is likely to be new.
    fn recent(&mut self) -> Value {
        let n = self.pool.len();
        let at = n - 1 - self.rng.below(n.min(6));
        self.pool[at]
    }

    /// A tensor of the pool that satisfies `want`.
    fn find(&mut self, want: impl Fn(&TensorType) -> bool) -> Option<Value> {
        let fit = |v: &&Value| self.f.ty(**v).as_tensor().is_ok_and(&want);
        let found: Vec<Value> = self.pool.iter().filter(fit).copied().collect();
        if found.is_empty() { None } else { Some(*self.rng.pick(&found)) }
    }

    fn number(&mut self) -> Option<Value> {
        self.find(|t| t.dtype.is_float() || t.dtype.is_int())
    }

    fn any(&mut self) -> Option<Value> {
        self.find(|_| true)
    }

    /// A value of exactly this type.
    fn of_type(&mut self, ty: &TensorType) -> Value {
        match self.find(|t| t == ty) {
            Some(v) if !self.rng.one_in(3) => v,
            _ => {
                let x = self.constant(ty.dtype, vec![]);
                self.broadcast_scalar(x, &ty.shape)
            }
        }
    }

    fn broadcast_scalar(&mut self, x: Value, shape: &[Dim]) -> Value {
        if shape.is_empty() {
            return x;
        }
        self.f.push(Op::Broadcast { shape: shape.to_vec(), axes: vec![] }, &[x]).expect("a scalar broadcasts")
    }

    fn step(&mut self) -> Option<Value> {
        match self.rng.below(26) {
            0 => {
                let (dtype, shape) = (*self.rng.pick(&DTYPES), self.static_shape(3));
                let v = self.constant(dtype, shape);
                self.pool.push(v);
                Some(v)
            }
            1 => self.iota(),
            2 => self.bind(),
            3..7 => self.map(),
            7 => self.reshape(),
            8 => self.transpose(),
            9 => self.broadcast(),
            10 => self.slice(),
            11 => self.pad(),
            12 => self.concat(),
            13 => self.gather(),
            14 => self.scatter(),
            15 | 16 => self.reduce(),
            17 => self.order(),
            18 => self.compress(),
            19 => self.contract(),
            20 => self.conv(),
            21 => self.window(),
            22 => self.branch(),
            23 => self.repeat(),
            24 => self.sequence(),
            _ => self.sequence_use(),
        }
    }
}

/// A random expression over operands of these types.
pub fn scalar(rng: &mut Rng, args: &[DType], special: bool) -> Scalar {
    let mut steps: Vec<Step> = (0..args.len() as u32).map(Step::Arg).collect();
    let mut types = args.to_vec();
    for _ in 0..1 + rng.below(4) {
        let f = *rng.pick(ScalarFn::ALL);
        let first = rng.below(steps.len());
        let d = types[first];
        let fits = match f.sig() {
            Sig::Float | Sig::FloatTest => d.is_float(),
            Sig::Single => d == DType::F32,
            Sig::Number => d.is_float() || d.is_int(),
            Sig::Bits => d.is_int() || d == DType::Bool,
            Sig::Compare | Sig::Convert => true,
            Sig::Select => d == DType::Bool,
        };
        if !fits {
            continue;
        }
        let to = (f.sig() == Sig::Convert).then(|| match f {
            ScalarFn::Bitcast => {
                let same: Vec<DType> =
                    DType::ALL.iter().copied().filter(|t| t.bits() == d.bits() && *t != DType::Str).collect();
                *rng.pick(&same)
            }
            _ => *rng.pick(&DTYPES),
        });
        let mut call = vec![first as u32];
        let second = if f.sig() == Sig::Select { types[rng.below(types.len())] } else { d };
        while call.len() < f.arity() {
            call.push(step_of(rng, second, &mut steps, &mut types, special));
        }
        let ty = match f.sig() {
            Sig::Float | Sig::Number | Sig::Bits | Sig::Single => d,
            Sig::Compare | Sig::FloatTest => DType::Bool,
            Sig::Select => second,
            Sig::Convert => to.expect("chosen above"),
        };
        steps.push(Step::Call(Call { f, args: call, to }));
        types.push(ty);
    }
    Scalar::new(&steps, steps.len() - 1)
}

/// An earlier step of this type, or a constant.
fn step_of(rng: &mut Rng, d: DType, steps: &mut Vec<Step>, types: &mut Vec<DType>, special: bool) -> u32 {
    let found: Vec<usize> = (0..steps.len()).filter(|&i| types[i] == d).collect();
    if !found.is_empty() && !rng.one_in(3) {
        return *rng.pick(&found) as u32;
    }
    let x = rng.between(-8, 8);
    steps.push(Step::Lit(match d.is_float() {
        true if special && rng.one_in(4) => {
            Lit::float(d, *rng.pick(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0, 1e-40, 0.1]))
        }
        true => Lit::float(d, x as f64 / 4.0),
        false => Lit::int(d, i128::from(x)),
    }));
    types.push(d);
    steps.len() as u32 - 1
}
