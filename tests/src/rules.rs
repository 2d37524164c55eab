//! The checker of rewrite rules: both sides of a rule are evaluated on all small well-typed instances of its left side.
//!
//! Instances are enumerated from the leaves up, so that what is ill-typed is dropped at once: tensors from a pool of small types, attributes from what an
//! op could have for its operands. Exact rules must agree in every bit on inputs with NaN, infinities and signed zeros, others within rounding.
use crate::rng::Rng;
use numrsc_ir::{
    DType, Data, Dim, Elems, Func, Leaf, Lit, Op, OpInfo, Scalar, ScalarFn, Tensor, TensorType, Type, Value, eval,
    op::OPS,
    scalar::{Call, Sig, Step},
};
use numrsc_passes::egraph::{
    rule::{Ast, ENodeOrVar, Pat, Rule, Scope, Var},
    term::{Fact, Known, Term, fact},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// The largest number of instances of one rule: beyond it, every n-th is tried.
const MAX_INSTANCES: usize = 1500;

/// The bindings of variables in an instance.
type Bindings = Vec<(Var, Fact)>;

/// Checks a rule; returns the number of instances on which it fires.
pub fn check(rule: &Rule) -> Result<usize, String> {
    let read = |text: &str| Pat::read(text).map_err(|e| format!("{}: {e}", rule.name));
    let (left, right) = (read(rule.left)?, read(rule.right)?);
    let when: Vec<Pat> = rule.when.iter().map(|c| read(c)).collect::<Result<_, _>>()?;
    let mut found: Vec<Bindings> = Vec::new();
    for world in Pool::worlds() {
        let mut bindings = Vec::new();
        let keep = &mut |bindings: &Bindings, _: &Fact| {
            if fires(bindings, &when) {
                found.push(bindings.clone());
            }
        };
        world.enumerate(&left, &mut bindings, None, keep);
    }
    let stride = found.len().div_ceil(MAX_INSTANCES).max(1);
    let mut fired = 0;
    for (number, bindings) in found.iter().step_by(stride).enumerate() {
        fired += usize::from(compare(rule, &left, &right, bindings, number as u64)?);
    }
    Ok(fired)
}

struct Env<'b> {
    bindings: &'b Bindings,
    inputs: Vec<Known>,
}

impl Scope for Env<'_> {
    fn fact(&self, v: Var) -> Option<Fact> {
        self.bindings.iter().find(|(w, _)| *w == v).map(|(_, f)| f.clone())
    }

    fn inputs(&self) -> &[Known] {
        &self.inputs
    }
}

fn fires(bindings: &Bindings, when: &[Pat]) -> bool {
    let env = Env { bindings, inputs: vec![] };
    when.iter().all(|c| {
        let holds = c.instantiate(&env, None, &mut Ast::default());
        matches!(holds, Some((_, Fact::Leaf(Leaf::Bool(true)))))
    })
}

/// Evaluates both sides; `false` if the right side has another type, so that the rule does not fire.
fn compare(rule: &Rule, left: &Pat, right: &Pat, bindings: &Bindings, seed: u64) -> Result<bool, String> {
    let env = Env { bindings, inputs: vec![] };
    let (mut l, mut r) = (Ast::default(), Ast::default());
    let Some((_, left_fact)) = left.instantiate(&env, None, &mut l) else { return Ok(false) };
    let hint = left_fact.tensor().map(|t| t.dtype);
    // Numbers without a neighbour take the type of the whole.
    let Some((_, right_fact)) = right.instantiate(&env, hint, &mut r) else { return Ok(false) };
    let (Some(a), Some(b)) = (left_fact.tensor(), right_fact.tensor()) else { return Ok(false) };
    if a != b {
        return Ok(false);
    }
    let (before, after) = (function(&l, bindings), function(&r, bindings));
    for special in [false, true] {
        if special && !rule.exact {
            continue;
        }
        let data: Vec<Data> = inputs(rule, bindings, seed, special);
        let (x, y) = (eval(&before, &data), eval(&after, &data));
        let failed = |why: &str| Err(format!("rule `{}` {why}\n{before}\n{after}\n{data:?}\n{x:?}\n{y:?}", rule.name));
        match (&x, &y) {
            (Ok(x), Ok(y)) => match agree(&x[0], &y[0], rule.exact) {
                true => {}
                false => return failed("gives something else"),
            },
            (Err(_), _) => {}
            (Ok(_), Err(_)) => return failed("fails where it did not"),
        }
    }
    Ok(true)
}

fn agree(x: &Data, y: &Data, exact: bool) -> bool {
    let (Ok(x), Ok(y)) = (x.as_tensor(), y.as_tensor()) else { return false };
    if x.shape() != y.shape() || x.dtype() != y.dtype() {
        return false;
    }
    match (x.elems(), y.elems()) {
        (Elems::Float(a), Elems::Float(b)) => {
            let scale = a.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            let epsilon = if x.dtype() == DType::F32 { 1e-5 } else { 1e-2 };
            let same = |a: f64, b: f64| (a.is_nan() && b.is_nan()) || a.to_bits() == b.to_bits();
            let near = |a: f64, b: f64| (a - b).abs() <= epsilon * scale.max(1e-30);
            a.iter().zip(&b).all(|(&a, &b)| same(a, b) || (!exact && near(a, b)))
        }
        (a, b) => a == b,
    }
}

/// A side of a rule as a function of the variables that are tensors.
fn function(ast: &Ast, bindings: &Bindings) -> Func {
    let mut func = Func::new();
    let mut place: HashMap<Var, Value> = HashMap::new();
    for (v, f) in bindings {
        if let Fact::Tensor(k) = f {
            place.insert(*v, func.param((*k.ty).clone()).expect("parameters come first"));
        }
    }
    enum Made {
        Value(Value),
        Lit(Lit),
        Leaf(Leaf),
    }
    let mut made: Vec<Made> = Vec::new();
    for node in ast.as_ref() {
        let next = match node {
            ENodeOrVar::Var(v) => match bindings.iter().find(|(w, _)| w == v).map(|(_, f)| f) {
                Some(Fact::Tensor(_)) => Made::Value(place[v]),
                Some(Fact::Lit(l)) => Made::Lit(*l),
                Some(Fact::Leaf(l)) => Made::Leaf(l.clone()),
                None => unreachable!("variables are bound"),
            },
            ENodeOrVar::ENode(Term::Lit(l)) => Made::Lit(*l),
            ENodeOrVar::ENode(Term::Leaf(l)) => Made::Leaf(l.clone()),
            ENodeOrVar::ENode(Term::Input(_)) => unreachable!("rules have no inputs"),
            ENodeOrVar::ENode(Term::Op(name, children)) => {
                let (mut args, mut leaves) = (vec![], vec![]);
                for c in children {
                    match &made[usize::from(*c)] {
                        Made::Value(v) => args.push(*v),
                        Made::Leaf(l) => leaves.push(l.clone()),
                        Made::Lit(_) => unreachable!("operands of ops are tensors"),
                    }
                }
                let op = Op::from_leaves(name, &leaves).expect("instances are well-typed");
                Made::Value(func.push(op, &args).expect("instances are well-typed"))
            }
            ENodeOrVar::ENode(Term::Call(children)) => {
                let Made::Leaf(Leaf::Word(name)) = &made[usize::from(children[0])] else { unreachable!("a function") };
                let f = *ScalarFn::ALL.iter().find(|f| f.name() == *name).expect("a function");
                let (mut steps, mut args, mut to) = (vec![], vec![], None);
                for c in &children[1..] {
                    match &made[usize::from(*c)] {
                        Made::Value(v) => {
                            args.push(*v);
                            steps.push(Step::Arg(args.len() as u32 - 1));
                        }
                        Made::Lit(l) => steps.push(Step::Lit(*l)),
                        Made::Leaf(Leaf::DType(d)) => to = Some(*d),
                        Made::Leaf(l) => unreachable!("{l} is no operand"),
                    }
                }
                let call = Call { f, args: (0..steps.len() as u32).collect(), to };
                steps.push(Step::Call(call));
                let f = Scalar::new(&steps, steps.len() - 1);
                Made::Value(func.push(Op::Map { f }, &args).expect("instances are well-typed"))
            }
        };
        made.push(next);
    }
    let Some(Made::Value(result)) = made.last() else { unreachable!("a side of a rule is a tensor") };
    func.set_results(vec![*result]);
    func
}

fn inputs(rule: &Rule, bindings: &Bindings, seed: u64, special: bool) -> Vec<Data> {
    let mut rng = Rng::new(seed * 2 + u64::from(special));
    let mut drawn = Vec::new();
    for (v, f) in bindings {
        if let Fact::Tensor(known) = f {
            let finite = rule.when.contains(&&*format!("(finite {v})"));
            drawn.push(Data::Tensor(tensor(known, &mut rng, special, finite)));
        }
    }
    drawn
}

fn tensor(known: &Known, rng: &mut Rng, special: bool, finite: bool) -> Tensor {
    let t = known.ty.as_tensor().expect("a tensor");
    let shape = t.static_shape().expect("small types are static");
    let n: usize = shape.iter().product();
    let elems = if t.dtype.is_float() {
        const SPECIAL: [f64; 9] = [0.0, -0.0, 1e-40, 3e38, 1.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        let choices = if finite { 6 } else { 9 };
        let mut draw = || match known.number {
            Some(l) => l.as_f64(),
            None if special && rng.below(2) == 0 => SPECIAL[rng.below(choices)],
            None => (rng.below(2001) as f64 - 1000.0) / 128.0,
        };
        Elems::Float((0..n).map(|_| draw()).collect())
    } else {
        let (low, high) = t.dtype.int_range();
        let mut draw = |at: usize| match rng.below(4) {
            _ if known.counts => at as i128,
            _ if known.number.is_some() => known.number.map_or(0, Lit::as_int),
            0 if special => low,
            1 if special => high,
            // Also what could be the index of something small.
            2 => (rng.below(3) as i128).clamp(low, high),
            _ => (rng.below(13) as i128 - 6).clamp(low, high),
        };
        Elems::Int((0..n).map(&mut draw).collect())
    };
    Tensor::from_elems(t.dtype, shape, &elems)
}

/// The candidates for variables.
struct Pool {
    tensors: Vec<Known>,
    lits: Vec<Lit>,
}

type Keep<'k> = &'k mut dyn FnMut(&Bindings, &Fact);

impl Pool {
    /// Small worlds, one after the other: elementwise types, movement, and images.
    fn worlds() -> Vec<Pool> {
        let known = |dtype: DType, shape: &[i64], number: Option<f64>| Known {
            ty: Arc::new(Type::tensor(dtype, shape.iter().map(|&d| Dim::Const(d)).collect::<Vec<_>>())),
            constant: true,
            finite: number.is_none_or(f64::is_finite),
            number: number.map(|n| Lit::number(dtype, n)),
            counts: false,
        };
        let numbers = |dtype: DType| -> Vec<Lit> {
            [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, f64::NEG_INFINITY]
                .into_iter()
                .filter(|n| dtype.is_float() || (n.fract() == 0.0 && n.is_finite()))
                .map(|n| Lit::number(dtype, n))
                .filter(|l| dtype != DType::Bool || l.as_int() < 2)
                .collect()
        };
        let mut worlds = Vec::new();
        // Elements: many types, one or two shapes.
        for d in [DType::F32, DType::F16, DType::F64, DType::I32, DType::U8, DType::Bool] {
            let mut lits = numbers(d);
            lits.extend(numbers(DType::Bool));
            let mut tensors = vec![known(d, &[5], None), known(d, &[2, 3], None)];
            if d != DType::Bool {
                tensors.push(known(DType::Bool, &[5], None));
            }
            worlds.push(Pool { tensors, lits });
        }
        // Movement: many shapes.
        let shapes: &[&[i64]] =
            &[&[], &[2], &[3], &[1], &[2, 3], &[3, 2], &[1, 2], &[2, 1], &[2, 2], &[1, 2, 3], &[2, 3, 2], &[2, 1, 3]];
        let mut tensors: Vec<Known> = shapes.iter().map(|s| known(DType::F32, s, None)).collect();
        tensors.push(known(DType::F32, &[], Some(0.0)));
        worlds.push(Pool { tensors, lits: vec![Lit::float(DType::F32, 1.5)] });
        // Products of integers.
        let shapes: &[&[i64]] = &[&[2, 3], &[2, 2, 3], &[3], &[3, 1], &[1, 3]];
        let tensors = shapes.iter().map(|s| known(DType::I32, s, None)).collect();
        worlds.push(Pool { tensors, lits: vec![] });
        // Images, weights and what pads them.
        let shapes: &[&[i64]] = &[
            &[1, 2, 5],
            &[2, 2, 4],
            &[1, 2, 4, 3],
            &[2, 2, 3],
            &[2, 1, 2],
            &[2, 2, 1],
            &[2, 2, 2, 2],
            &[2, 2, 1, 1],
            &[2],
        ];
        let mut tensors: Vec<Known> = shapes.iter().map(|s| known(DType::F32, s, None)).collect();
        tensors.push(known(DType::F32, &[], Some(0.0)));
        tensors.push(known(DType::F32, &[], Some(f64::NEG_INFINITY)));
        worlds.push(Pool { tensors, lits: vec![Lit::float(DType::F32, 1.5)] });
        // Tables, what is done to their rows, and what looks them up.
        let shapes: &[&[i64]] = &[&[3, 2], &[3], &[2], &[1, 2], &[2, 2]];
        let mut tensors: Vec<Known> = shapes.iter().map(|s| known(DType::F32, s, None)).collect();
        let indices: &[&[i64]] = &[&[], &[2], &[2, 1]];
        tensors.extend(indices.iter().map(|s| known(DType::I64, s, None)));
        tensors.push(known(DType::I32, &[2], None));
        tensors.extend([3, 2].map(|n| Known { counts: true, ..known(DType::I32, &[1, n], None) }));
        tensors.push(Known { counts: true, ..known(DType::I64, &[3], None) });
        worlds.push(Pool { tensors, lits: vec![Lit::float(DType::F32, 1.5)] });
        worlds
    }

    /// Calls `keep` with every binding of the variables of a pattern that is well-typed.
    fn enumerate(&self, pat: &Pat, bound: &mut Bindings, want: Option<DType>, keep: Keep<'_>) {
        match pat {
            Pat::Var(v) => match bound.iter().find(|(w, _)| w == v).map(|(_, f)| f.clone()) {
                Some(f) => keep(bound, &f),
                None => {
                    let tensors = self.tensors.iter().cloned().map(Fact::Tensor);
                    self.bind(*v, tensors, bound, keep);
                }
            },
            Pat::Number(n) => {
                let Some(d) = want else { return };
                let lit = Lit::number(d, *n);
                if lit.as_f64() == *n {
                    keep(bound, &Fact::Lit(lit));
                }
            }
            Pat::Leaf(l) => keep(bound, &Fact::Leaf(l.clone())),
            Pat::Op(name, children) => {
                let info = OPS.iter().find(|o| o.name == *name).expect("an op");
                self.children(name, info, children, &[], bound, keep);
            }
            Pat::Call(children) => self.call(children, &mut vec![None; children.len()], bound, keep),
            Pat::Compute(name, _) => unreachable!("`{name}` on a left side"),
        }
    }

    fn bind(&self, v: Var, facts: impl Iterator<Item = Fact>, bound: &mut Bindings, keep: Keep<'_>) {
        for f in facts {
            bound.push((v, f.clone()));
            keep(bound, &f);
            bound.pop();
        }
    }

    /// Operands and attributes of an op, from the first to the last.
    fn children(
        &self,
        name: &'static str,
        info: &OpInfo,
        children: &[Pat],
        facts: &[Fact],
        bound: &mut Bindings,
        keep: Keep<'_>,
    ) {
        if facts.len() == children.len() {
            let kids: Vec<&Fact> = facts.iter().collect();
            if let Some(f) = fact(&Term::Op(name, [].into()), &[], &kids) {
                keep(bound, &f);
            }
            return;
        }
        let operands = children.len() - info.attrs.len();
        let at = facts.len();
        let next = &mut |bound: &Bindings, f: &Fact| {
            let mut facts = facts.to_vec();
            facts.push(f.clone());
            self.children(name, info, children, &facts, &mut bound.clone(), keep);
        };
        match &children[at] {
            Pat::Var(v) if at >= operands && !bound.iter().any(|(w, _)| w == v) => {
                let (attribute, ty) = info.attrs[at - operands];
                let leaves = candidates(name, attribute, ty, facts);
                self.bind(*v, leaves.into_iter().map(Fact::Leaf), bound, next);
            }
            other => self.enumerate(other, bound, None, next),
        }
    }

    /// The function and operands of a call; numbers come last, when types are known.
    fn call(&self, children: &[Pat], facts: &mut [Option<Fact>], bound: &mut Bindings, keep: Keep<'_>) {
        let open = |number: bool| {
            (0..children.len()).find(|&i| facts[i].is_none() && matches!(children[i], Pat::Number(_)) == number)
        };
        let Some(at) = open(false).or_else(|| open(true)) else {
            let facts: Vec<Fact> = facts.iter().flatten().cloned().collect();
            let kids: Vec<&Fact> = facts.iter().collect();
            if let Some(f @ Fact::Tensor(_)) = fact(&Term::Call([].into()), &[], &kids) {
                keep(bound, &f);
            }
            return;
        };
        let dtype = facts[1..].iter().flatten().rev().find_map(|f| match f {
            Fact::Lit(l) => Some(l.dtype),
            other => other.tensor().map(|t| t.dtype),
        });
        let next = &mut |bound: &Bindings, f: &Fact| {
            let mut facts = facts.to_vec();
            facts[at] = Some(f.clone());
            self.call(children, &mut facts, &mut bound.clone(), keep);
        };
        match &children[at] {
            Pat::Var(v) if !bound.iter().any(|(w, _)| w == v) => {
                let all: Vec<Fact> = if at == 0 {
                    functions(children.len() - 1)
                } else {
                    let tensors = self.tensors.iter().cloned().map(Fact::Tensor);
                    let types = [DType::F32, DType::F64, DType::I32, DType::U8].map(|d| Fact::Leaf(Leaf::DType(d)));
                    tensors.chain(self.lits.iter().map(|l| Fact::Lit(*l))).chain(types).collect()
                };
                self.bind(*v, all.into_iter(), bound, next);
            }
            other => self.enumerate(other, bound, dtype, next),
        }
    }
}

/// Functions of this many operands, conversions counting two.
fn functions(operands: usize) -> Vec<Fact> {
    const SOME: [ScalarFn; 11] = [
        ScalarFn::Neg,
        ScalarFn::Exp,
        ScalarFn::Floor,
        ScalarFn::Not,
        ScalarFn::Sub,
        ScalarFn::Mul,
        ScalarFn::Max,
        ScalarFn::Lt,
        ScalarFn::And,
        ScalarFn::Select,
        ScalarFn::Cast,
    ];
    let takes = |f: &ScalarFn| f.arity() + usize::from(f.sig() == Sig::Convert) == operands;
    SOME.into_iter().filter(takes).map(|f| Fact::Leaf(Leaf::Word(f.name()))).collect()
}

/// Possible values of an attribute of an op, given the operands and the attributes before it.
fn candidates(op: &str, attribute: &str, ty: &str, before: &[Fact]) -> Vec<Leaf> {
    let none = TensorType { dtype: DType::F32, shape: vec![] };
    let x = before.first().and_then(Fact::tensor).unwrap_or(&none);
    let rank = x.rank();
    let ints = |l: Vec<Vec<i64>>| -> Vec<Leaf> {
        l.into_iter().map(|v| Leaf::List(v.into_iter().map(Leaf::int).collect())).collect()
    };
    match (op, attribute) {
        (_, "perm") => ints(permutations(rank)),
        ("reshape", "shape") => ints(shapes_of(x)),
        ("broadcast", "shape") => ints(vec![
            vec![2],
            vec![2, 3],
            vec![3, 2],
            vec![2, 2],
            vec![2, 3, 2],
            vec![1, 2, 3],
            vec![2, 2, 3],
            vec![1, 2, 4],
        ]),
        ("broadcast", "axes") => ints(subsets(4).into_iter().filter(|s| s.len() == rank).collect()),
        ("reduce", "axes") => ints(subsets(rank)),
        ("reduce" | "window" | "scan" | "arg", "f") => ["sum", "max", "min", "prod"].map(Leaf::Word).to_vec(),
        ("slice", "starts") => ints(tuples(rank, &[0, 1])),
        ("slice", "sizes") => {
            // The whole, one, or two of every axis.
            let sizes = tuples(rank, &[1, 2]).into_iter().chain([x.shape.iter().filter_map(Dim::as_const).collect()]);
            ints(sizes.collect())
        }
        ("slice", "steps") => ints(vec![vec![1; rank], vec![-1; rank], vec![2; rank]]),
        ("pad", _) => ints(tuples(rank, &[0, 1]).into_iter().chain([vec![-1; rank]]).collect()),
        ("gather", "batch") => vec![Leaf::int(0)],
        ("contract", "a_batch" | "b_batch") => ints(vec![vec![], vec![0], vec![1]]),
        ("contract", _) => ints(vec![vec![], vec![0], vec![1], vec![2], vec![0, 1], vec![1, 0], vec![1, 2]]),
        ("conv" | "window", name) => {
            let space = if op == "conv" { rank.saturating_sub(2) } else { before.get(2).map_or(1, list_length) };
            match name {
                "groups" => vec![Leaf::int(1), Leaf::int(2)],
                "size" => ints(vec![vec![2], vec![3], vec![2, 2], vec![1, 2]]),
                "strides" | "dilations" | "spread" => ints(vec![vec![1; space], vec![2; space]]),
                "low" => ints(vec![vec![0; space], vec![1; space]]),
                _ => ints(vec![vec![0; space], vec![2; space]]),
            }
        }
        (_, "axis") => (0..rank as i64).map(Leaf::int).collect(),
        _ if ty == "i64" => vec![Leaf::int(0), Leaf::int(1)],
        _ if ty == "bool" => vec![Leaf::Bool(false), Leaf::Bool(true)],
        _ => vec![],
    }
}

fn list_length(f: &Fact) -> usize {
    match f.leaf() {
        Some(Leaf::List(l)) => l.len(),
        _ => 1,
    }
}

/// All shapes of up to three axes with as many elements.
fn shapes_of(x: &TensorType) -> Vec<Vec<i64>> {
    let n: i64 = x.shape.iter().filter_map(Dim::as_const).product();
    let all = (0..=3).flat_map(|r| tuples(r, &[1, 2, 3, 4, 6, 12]));
    all.filter(|s| s.iter().product::<i64>() == n).collect()
}

fn tuples(n: usize, of: &[i64]) -> Vec<Vec<i64>> {
    (0..n).fold(vec![vec![]], |all, _| all.iter().flat_map(|t| of.iter().map(|x| [&t[..], &[*x]].concat())).collect())
}

fn permutations(n: usize) -> Vec<Vec<i64>> {
    let all: Vec<i64> = (0..n as i64).collect();
    tuples(n, &all).into_iter().filter(|t| all.iter().all(|x| t.contains(x))).collect()
}

fn subsets(n: usize) -> Vec<Vec<i64>> {
    (0..1u32 << n).map(|bits| (0..n as i64).filter(|i| bits >> i & 1 == 1).collect()).collect()
}

/// The number of instances on which each rule fired, by name; or all rules that are wrong.
pub fn check_all(rules: &[Rule]) -> Result<BTreeMap<&'static str, usize>, String> {
    let (mut counts, mut wrong) = (BTreeMap::new(), String::new());
    for r in rules {
        match check(r) {
            Ok(n) => drop(counts.insert(r.name, n)),
            Err(e) => wrong += &format!("\n{e}"),
        }
    }
    if wrong.is_empty() { Ok(counts) } else { Err(wrong) }
}
