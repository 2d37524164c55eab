//! Float products of dequantised 8-bit integers become integer products: `(q - zero_point) * scale` on both sides is
//! one scale of an integer sum. That sum is exact, weights stay narrow, and machines do 2 or 4 integer products per
//! lane (dot2, dot4) in the time of one float product. Only convolutions whose channels can be blocked, and
//! contractions with packed weights: their kernels profit.
use crate::{
    layout::has_blocks,
    quantised::dot4::result_axis,
    rebuild::{Rebuild, rebuild},
};
use numrsc_facts::{Context, Result};
use numrsc_ir::{
    DType, Data, Elems, Env, Func, Lit, Machine, Node, Op, Scalar, ScalarFn, Tensor, Value, eval_op,
    scalar::{Call, Step},
};
use numrsc_schedule::product::packs;

/// The function with such products computed on integers.
pub fn dequantised_products(func: &Func, cx: &Context) -> Result<Func> {
    let machine = cx.machine;
    if !machine.dot2 {
        return Ok(func.clone());
    }
    rebuild(func, "dequantised-products", &|new, node, op, args| match operands(new.func, node, machine) {
        Some(operands) => operands.multiplied(new, op, node),
        None => new.push(op, &args),
    })
}

/// `(q - zero) * scale` for a tensor `q` of 8-bit integers, with one scale, or one per index along an axis.
struct Quantised {
    q: Value,
    zero: i64,
    scales: Vec<f32>,
    axis: Option<i64>,
}

struct Operands {
    /// Which operand is the weights.
    at: usize,
    w: Quantised,
    x: Quantised,
    /// The axis of the result that has a scale for every index.
    axis: Option<i64>,
}

/// The operands of a product that can be one of integers.
#[allow(clippy::wildcard_enum_match_arm, reason = "recognises some ops; any other is left as it is")]
fn operands(func: &Func, node: &Node, machine: Machine) -> Option<Operands> {
    let at = match &node.op {
        Op::Conv { groups: 1, in_block: 1, out_block: 1, .. } => 1,
        Op::Contract { .. } => node.args.iter().position(|a| packs(func, node, *a))?,
        _ => return None,
    };
    let (x, w) = (quantised(func, node.args[1 - at])?, quantised(func, node.args[at])?);
    let Op::Const { value } = &func.node(w.q).op else { return None };
    let sizes: Vec<i64> = value.shape().iter().map(|&n| n as i64).collect();
    let result_axis = |axis: i64| result_axis(func, node, at, axis);
    let suits = match &node.op {
        Op::Conv { .. } => sizes.get(..2)?.iter().all(|&n| has_blocks(n, machine)),
        _ => true,
    };
    let axis = match w.axis {
        Some(axis) => Some(result_axis(axis)?),
        None => None,
    };
    // Every sum is an `i32`.
    let summed = (0..sizes.len()).filter(|&axis| result_axis(axis as i64).is_none());
    let depth = summed.map(|axis| sizes[axis]).product::<i64>();
    let largest = depth.checked_mul(x.largest(func)?.checked_mul(w.largest(func)?)?)?;
    (suits && x.axis.is_none() && i32::try_from(largest).is_ok()).then_some(Operands { at, w, x, axis })
}

/// Recognises a function of 8-bit integers that has this form for all 256 of them.
fn quantised(func: &Func, v: Value) -> Option<Quantised> {
    let (Op::Map { f }, [q, scales @ ..]) = (&func.node(v).op, &func.node(v).args[..]) else { return None };
    let dtype = func.ty(*q).as_tensor().ok()?.dtype;
    if !matches!(dtype, DType::I8 | DType::U8) || func.ty(v).as_tensor().ok()?.dtype != DType::F32 {
        return None;
    }
    let (numbers, axis) = match scales {
        [] => (None, None),
        [scales] if is_scaled(f) => along_one_axis(func, *scales).map(|(numbers, axis)| (Some(numbers), axis))?,
        _ => return None,
    };
    let table = table(func, v, dtype, numbers.is_some())?;
    let zero = table.iter().position(|&x| x == 0.0)?;
    let scale = if zero + 1 < table.len() { table[zero + 1] } else { -table[zero - 1] };
    let is_linear = table.iter().enumerate().all(|(i, x)| (i as f32 - zero as f32) * scale == *x);
    // The scale applies to the integers themselves: nothing was rounded before.
    let suits = if numbers.is_some() { scale == 1.0 } else { scale != 0.0 };
    let (scales, zero) = (numbers.unwrap_or(vec![scale]), dtype.int_range().0 as i64 + zero as i64);
    (is_linear && suits).then_some(Quantised { q: *q, zero, scales, axis })
}

/// Is the second operand only a factor of the result?
fn is_scaled(f: &Scalar) -> bool {
    let steps = f.steps();
    let Some(Step::Call(Call { f: ScalarFn::Mul, args, .. })) = steps.last() else { return false };
    let is_factor = |n: &u32| steps[*n as usize] == Step::Arg(1);
    let reads = |s: &&Step| matches!(s, Step::Call(c) if c.args.iter().any(is_factor));
    args.iter().filter(|n| is_factor(n)).count() == 1 && steps.iter().filter(reads).count() == 1
}

/// The elements of a constant that is repeated along all axes but one, or along all.
fn along_one_axis(func: &Func, v: Value) -> Option<(Vec<f32>, Option<i64>)> {
    let (Op::Broadcast { axes, .. }, [k]) = (&func.node(v).op, &func.node(v).args[..]) else { return None };
    let Op::Const { value } = &func.node(*k).op else { return None };
    let mut long = axes.iter().zip(value.shape()).filter(|(_, n)| **n != 1).map(|(axis, _)| *axis);
    let (axis, other) = (long.next(), long.next());
    let numbers = value.to_f64s().into_iter().map(|x| x as f32).collect();
    let is_finite = value.dtype() == DType::F32 && value.to_f64s().iter().all(|x| x.is_finite());
    (is_finite && other.is_none()).then_some((numbers, axis))
}

/// The values of a map for all 8-bit integers, with 1 for a second operand.
fn table(func: &Func, v: Value, dtype: DType, is_scaled: bool) -> Option<Vec<f32>> {
    let (low, high) = dtype.int_range();
    let all = Elems::Int((low..=high).collect());
    let count = (high - low + 1) as usize;
    let ones = is_scaled.then(|| Tensor::from_f32(&[count], &vec![1.0; count]));
    let args = [Some(Tensor::from_elems(dtype, vec![count], &all)), ones];
    let args: Vec<Data> = args.into_iter().flatten().map(Data::Tensor).collect();
    match eval_op(&func.node(v).op, &args.iter().collect::<Vec<_>>(), &mut Env::new()) {
        Ok(Data::Tensor(t)) => Some(t.to_f64s().into_iter().map(|x| x as f32).collect()),
        _ => None,
    }
}

impl Quantised {
    /// The largest magnitude of `q - zero`.
    fn largest(&self, func: &Func) -> Option<i64> {
        let (low, high) = func.ty(self.q).as_tensor().ok()?.dtype.int_range();
        [low, high].into_iter().map(|q| (q as i64 - self.zero).abs()).max()
    }

    /// `q - zero`.
    fn shifted(&self, new: &mut Rebuild<'_>) -> Result<Value> {
        let steps = [
            Step::Arg(0),
            Step::Call(Call { f: ScalarFn::Cast, args: vec![0], to: Some(DType::I32) }),
            Step::Lit(Lit::int(DType::I32, self.zero.into())),
            Step::Call(Call { f: ScalarFn::Sub, args: vec![1, 2], to: None }),
        ];
        let root = if self.zero == 0 { 1 } else { 3 };
        new.push(Op::Map { f: Scalar::new(&steps[..=root], root) }, &[new.placed(self.q)])
    }
}

impl Operands {
    /// The integer product, times the scales.
    fn multiplied(&self, new: &mut Rebuild<'_>, op: Op, node: &Node) -> Result<Value> {
        let mut args = [self.x.shifted(new)?; 2];
        args[self.at] = self.w.shifted(new)?;
        let sums = new.push(op, &args)?;
        let scales: Vec<f32> = self.w.scales.iter().map(|s| s * self.x.scales[0]).collect();
        let cast = Step::Call(Call { f: ScalarFn::Cast, args: vec![0], to: Some(DType::F32) });
        let mul = Step::Call(Call { f: ScalarFn::Mul, args: vec![1, 2], to: None });
        let scaled = |by: Step| Op::Map { f: Scalar::new(&[Step::Arg(0), cast.clone(), by, mul.clone()], 3) };
        if let [scale] = scales[..] {
            return new.push(scaled(Step::Lit(Lit::float(DType::F32, scale.into()))), &[sums]);
        }
        let k = new.push(Op::Const { value: Tensor::from_f32(&[scales.len()], &scales) }, &[])?;
        let shape = node.ty.as_tensor().map_or(vec![], |t| t.shape.clone());
        let k = new.push(Op::Broadcast { shape, axes: self.axis.into_iter().collect() }, &[k])?;
        new.push(scaled(Step::Arg(1)), &[sums, k])
    }
}
