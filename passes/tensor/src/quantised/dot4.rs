//! Products of integers of 32 bits as ones of 8 bits, of which machines do four at once (`Machine::dot4`): constant
//! weights with a sign, and rows without one. A row is `(u + low) - taken`, where `u` has 8 bits and what is taken
//! away, a zero point as a rule, is the same along the depth. Then `Σ row * w = Σ u * w + (low - taken) * Σ w`: the
//! sums of the weights are constants, all of it is exact, and it wraps around as before.
use crate::{
    layout::has_blocks,
    quantised::narrow::{cast, constant, narrow_constant},
    rebuild::Rebuild,
};
use numrsc_facts::{Result, ops::is_view, ranges::limits};
use numrsc_ir::{
    DType, Dim, Elems, Func, Lit, Machine, Node, Op, Scalar, ScalarFn, Tensor, Type, Value,
    scalar::{Call, Step},
};
use numrsc_schedule::product::packs;

/// A product that can be done by fours.
pub(crate) struct Dot4 {
    /// Which operand the weights are.
    at: usize,
    weights: Tensor,
    /// Their sums over the depth, and the axes of the result that these have.
    sums: (Tensor, Vec<i64>),
    rows: LeftOperand,
}

/// What rows are, behind ops that move elements, of which the last one comes first.
struct LeftOperand {
    views: Vec<Op>,
    /// `u`, of 8 bits.
    narrow: Expression,
    /// `low`, less what is taken away that is a literal.
    low: i64,
    taken: Option<Taken>,
}

/// A function of elements and what it reads.
struct Expression {
    f: Scalar,
    args: Vec<Value>,
}

/// What is taken away, as a function of these operands.
struct Taken {
    f: Scalar,
    sources: Vec<Source>,
}

/// A tensor without the axes that the result does not have, and those that it has.
struct Source {
    value: Value,
    shape: Vec<Dim>,
    axes: Vec<i64>,
}

impl Dot4 {
    #[allow(clippy::wildcard_enum_match_arm, reason = "recognises some ops; any other is left as it is")]
    pub(crate) fn of(func: &Func, node: &Node, machine: Machine) -> Option<Dot4> {
        let at = match &node.op {
            Op::Contract { .. } => node.args.iter().position(|a| packs(func, node, *a))?,
            Op::Conv { groups: 1, in_block: 1, out_block: 1, .. } => 1,
            _ => return None,
        };
        if !matches!(&node.ty, Type::Tensor(t) if t.dtype == DType::I32) {
            return None;
        }
        let weights = narrow_constant(&constant(func, node.args[at])?, &[DType::I8])?;
        let place = |operand: usize, axis: usize| result_axis(func, node, operand, axis as i64);
        let own: Vec<usize> = (0..weights.rank()).filter(|axis| place(at, *axis).is_some()).collect();
        let sums = sums(&weights, &own);
        let axes: Vec<i64> = own.iter().filter_map(|&axis| place(at, axis)).collect();
        let rows = LeftOperand::of(func, node.args[1 - at], &|axis| place(1 - at, axis))?;
        let suits = match &node.op {
            Op::Conv { low, high, spread, .. } => {
                let in_blocks = weights.shape()[..2].iter().all(|&n| has_blocks(n as i64, machine));
                // What is around the operand is 0, and so has to be what stands for it.
                let alone = low.iter().chain(high).all(|d| *d == Dim::ZERO) && spread.iter().all(|n| *n == 1);
                in_blocks && (alone || rows.is_plain())
            }
            _ => axes.is_sorted(),
        };
        suits.then_some(Dot4 { at, weights, sums: (sums, axes), rows })
    }

    /// The same product, by way of 8 bits.
    pub(crate) fn product(&self, new: &mut Rebuild<'_>, op: Op, node: &Node) -> Result<Value> {
        let rows = self.rows.narrow(new)?;
        let weights = new.push(Op::Const { value: self.weights.clone() }, &[])?;
        let mut args = [new.push(cast(DType::I32), &[rows])?; 2];
        args[self.at] = new.push(cast(DType::I32), &[weights])?;
        let product = new.push(op, &args)?;
        let shape = node.ty.as_tensor().map_or(vec![], |t| t.shape.clone());
        let spread = |axes: &[i64]| Op::Broadcast { shape: shape.clone(), axes: axes.to_vec() };
        let (sums, axes) = &self.sums;
        let Some(taken) = &self.rows.taken else {
            if self.rows.is_plain() {
                return Ok(product);
            }
            let Elems::Int(all) = sums.elems() else { unreachable!("sums of integers") };
            let all = all.into_iter().map(|s| i128::from((s as i64).wrapping_mul(self.rows.low) as i32)).collect();
            let value = Tensor::from_elems(DType::I32, sums.shape().to_vec(), &Elems::Int(all));
            let k = new.push(Op::Const { value }, &[])?;
            let k = new.push(spread(axes), &[k])?;
            return new.push(Op::Map { f: Scalar::call(ScalarFn::Add) }, &[product, k]);
        };
        let k = new.push(Op::Const { value: sums.clone() }, &[])?;
        let mut args = vec![product, new.push(spread(axes), &[k])?];
        for source in &taken.sources {
            let x = new.push(Op::Reshape { shape: source.shape.clone() }, &[new.placed(source.value)])?;
            args.push(new.push(spread(&source.axes), &[x])?);
        }
        new.push(Op::Map { f: self.rows.correction(taken) }, &args)
    }
}

impl LeftOperand {
    /// `place` tells which axis of the result an axis of the rows is, if it is not summed over.
    #[allow(clippy::wildcard_enum_match_arm, reason = "an operand that is no map has no zero point")]
    fn of(func: &Func, v: Value, place: &dyn Fn(usize) -> Option<i64>) -> Option<LeftOperand> {
        let (mut v, mut views) = (v, vec![]);
        while is_view(&func.node(v).op) {
            views.push(func.node(v).op.clone());
            v = func.node(v).args[0];
        }
        let node = func.node(v);
        let (f, args) = match &node.op {
            Op::Map { f } => (f.clone(), node.args.clone()),
            _ => (Scalar::new(&[Step::Arg(0)], 0), vec![v]),
        };
        // Views move axes: what is taken away has to be the same everywhere then.
        let place = |axis: usize| if views.is_empty() { place(axis) } else { None };
        // The least number, or 0 if all of them have 8 bits anyway.
        let least = |f: &Scalar, args: &[Value]| {
            let (low, high) = limits(func, f, args).filter(|(low, high)| high - low <= 255)?;
            Some(if low >= 0 && high <= 255 { 0 } else { low })
        };
        let low = least(&f, &args);
        if low != Some(0)
            && let Some(Step::Call(Call { f: ScalarFn::Sub, args: of, .. })) = f.steps().last()
            && let Some(taken) = Taken::of(func, &part(&f, of[1], &args), &place)
        {
            let rest = part(&f, of[0], &args);
            if let Some(low) = least(&rest.f, &rest.args) {
                return Some(LeftOperand::new(func, views, rest, low, Some(taken)));
            }
        }
        Some(LeftOperand::new(func, views, Expression { f, args }, low?, None))
    }

    fn new(func: &Func, views: Vec<Op>, wide: Expression, low: i64, taken: Option<Taken>) -> LeftOperand {
        let types: Vec<DType> =
            wide.args.iter().map(|a| func.ty(*a).as_tensor().map_or(DType::I32, |t| t.dtype)).collect();
        let narrow = wide.narrowed(&types, low);
        match taken {
            Some(Taken { f, sources }) if sources.is_empty() => {
                let [Step::Lit(lit)] = f.steps() else { unreachable!("a literal") };
                LeftOperand { views, narrow, low: low - lit.as_int() as i64, taken: None }
            }
            taken => LeftOperand { views, narrow, low, taken },
        }
    }

    /// Are rows nothing but the integers of 8 bits?
    fn is_plain(&self) -> bool {
        self.low == 0 && self.taken.is_none()
    }

    /// The rows as integers of 8 bits.
    fn narrow(&self, new: &mut Rebuild<'_>) -> Result<Value> {
        let args: Vec<Value> = self.narrow.args.iter().map(|a| new.placed(*a)).collect();
        let mut x = match self.narrow.f.steps() {
            [Step::Arg(0)] => args[0],
            _ => new.push(Op::Map { f: self.narrow.f.clone() }, &args)?,
        };
        for view in self.views.iter().rev() {
            x = new.push(view.clone(), &[x])?;
        }
        Ok(x)
    }

    /// `a0 + (low - taken) * a1`, where what is taken away is a function of the operands that follow.
    fn correction(&self, taken: &Taken) -> Scalar {
        let moved = |step: &Step| match step {
            Step::Arg(n) => Step::Arg(n + 2),
            Step::Lit(lit) => Step::Lit(*lit),
            Step::Call(c) => Step::Call(c.clone()),
        };
        let mut steps: Vec<Step> = taken.f.steps().iter().map(moved).collect();
        let last = steps.len() as u32;
        let call = |f: ScalarFn, a: u32, b: u32| Step::Call(Call { f, args: vec![a, b], to: None });
        steps.extend([
            Step::Lit(Lit::int(DType::I32, self.low.into())),
            call(ScalarFn::Sub, last, last - 1),
            Step::Arg(1),
            call(ScalarFn::Mul, last + 1, last + 2),
            Step::Arg(0),
            call(ScalarFn::Add, last + 4, last + 3),
        ]);
        Scalar::new(&steps, steps.len() - 1)
    }
}

impl Taken {
    /// An expression of what is the same along the depth: literals, and tensors that are repeated.
    fn of(func: &Func, x: &Expression, place: &dyn Fn(usize) -> Option<i64>) -> Option<Taken> {
        let source = |&v: &Value| {
            let (Op::Broadcast { axes, .. }, [value]) = (&func.node(v).op, &func.node(v).args[..]) else { return None };
            let sizes = &func.ty(*value).as_tensor().ok()?.shape;
            let mut source = Source { value: *value, shape: vec![], axes: vec![] };
            for (axis, size) in axes.iter().zip(sizes) {
                match place(*axis as usize) {
                    Some(axis) => {
                        source.axes.push(axis);
                        source.shape.push(size.clone());
                    }
                    None if *size == Dim::ONE => {}
                    None => return None,
                }
            }
            source.axes.is_sorted().then_some(source)
        };
        let sources: Vec<Source> = x.args.iter().map(source).collect::<Option<_>>()?;
        // Expressions of nothing but literals are folded elsewhere.
        let is_known = !sources.is_empty() || matches!(x.f.steps(), [Step::Lit(_)]);
        is_known.then_some(Taken { f: x.f.clone(), sources })
    }
}

impl Expression {
    /// What is left after taking away the least number, as 8 bits without a sign.
    fn narrowed(self, types: &[DType], low: i64) -> Expression {
        let mut steps = self.f.steps().to_vec();
        let last = steps.len() - 1;
        if let (0, Step::Call(Call { f: ScalarFn::Cast, args, .. }), Ok(types)) =
            (low, &steps[last], self.f.types(types))
            && types[args[0] as usize] == DType::U8
        {
            return part(&self.f, args[0], &self.args);
        }
        if low != 0 {
            steps.push(Step::Lit(Lit::int(DType::I32, low.into())));
            let args = vec![last as u32, last as u32 + 1];
            steps.push(Step::Call(Call { f: ScalarFn::Sub, args, to: None }));
        }
        let args = vec![steps.len() as u32 - 1];
        steps.push(Step::Call(Call { f: ScalarFn::Cast, args, to: Some(DType::U8) }));
        Expression { f: Scalar::new(&steps, steps.len() - 1), args: self.args }
    }
}

/// A step of an expression, as one over the operands that it needs.
#[allow(clippy::wildcard_enum_match_arm, reason = "changes some steps of an expression; any other is copied")]
fn part(f: &Scalar, step: u32, args: &[Value]) -> Expression {
    let f = Scalar::new(f.steps(), step as usize);
    let mut used: Vec<u32> =
        f.steps().iter().filter_map(|s| if let Step::Arg(n) = s { Some(*n) } else { None }).collect();
    used.sort_unstable();
    let renumbered = |s: &Step| match s {
        Step::Arg(n) => Step::Arg(used.binary_search(n).expect("it is used") as u32),
        other => other.clone(),
    };
    let steps: Vec<Step> = f.steps().iter().map(renumbered).collect();
    Expression { f: Scalar::new(&steps, steps.len() - 1), args: used.iter().map(|&n| args[n as usize]).collect() }
}

/// The sums of integers of 8 bits over all axes but these.
fn sums(weights: &Tensor, own: &[usize]) -> Tensor {
    // Neighbouring axes of one kind are one axis, so that inner loops are long; the last one is at the end.
    let mut axes: Vec<(usize, bool)> = vec![];
    for (axis, &size) in weights.shape().iter().enumerate() {
        match axes.last_mut() {
            Some((all, is_own)) if *is_own == own.contains(&axis) => *all *= size,
            _ => axes.push((size, own.contains(&axis))),
        }
    }
    let (last, last_is_own) = axes.pop().unwrap_or((1, true));
    let shape: Vec<usize> = own.iter().map(|&axis| weights.shape()[axis]).collect();
    let mut sums = vec![0i128; shape.iter().product()];
    for (line, elements) in weights.bytes().chunks_exact(last.max(1)).enumerate() {
        let (mut left, mut at, mut pitch) = (line, 0, if last_is_own { last } else { 1 });
        for &(size, is_own) in axes.iter().rev() {
            if is_own {
                at += left % size * pitch;
                pitch *= size;
            }
            left /= size;
        }
        let numbers = elements.iter().map(|&x| i128::from(x as i8));
        if last_is_own {
            sums[at..].iter_mut().zip(numbers).for_each(|(sum, x)| *sum += x);
        } else {
            sums[at] += numbers.sum::<i128>();
        }
    }
    let wrapped = sums.into_iter().map(|x| i128::from(x as i32)).collect();
    Tensor::from_elems(DType::I32, shape, &Elems::Int(wrapped))
}

/// The axis of a product's result that an axis of an operand is, if it is neither summed over nor one that windows move
/// along.
pub(crate) fn result_axis(func: &Func, node: &Node, operand: usize, axis: i64) -> Option<i64> {
    if matches!(node.op, Op::Conv { .. }) {
        return (axis == 0).then_some(operand as i64);
    }
    let Op::Contract { a_batch, b_batch, a_sum, b_sum } = &node.op else { return None };
    let roles = [(a_batch, a_sum), (b_batch, b_sum)];
    let (batch, sum) = roles[operand];
    if let Some(at) = batch.iter().position(|b| *b == axis) {
        return Some(at as i64);
    }
    let own = |n: usize, below: i64| (0..below).filter(|a| !roles[n].0.contains(a) && !roles[n].1.contains(a)).count();
    let rank = func.ty(node.args[0]).as_tensor().map_or(0, |t| t.rank() as i64);
    let before = if operand == 1 { own(0, rank) } else { 0 };
    (!sum.contains(&axis)).then(|| (batch.len() + before + own(operand, axis)) as i64)
}
