//! Convolutions of floats that were integers of 8 bits multiply the integers: `(q - z) * s` on both sides is one scale of a sum of integers. That sum is exact where floats are
//! rounded, weights stay narrow, and machines multiply pairs of 16-bit integers as fast as one float. Only where blocks of channels can follow: their kernels are the ones that pay.
use crate::{
    Machine, Result,
    layout::has_blocks,
    rebuild::{Rebuild, rebuild},
};
use numrsc_ir::{
    DType, Data, Elems, Env, Func, Lit, Node, Op, Scalar, ScalarFn, Tensor, Value, eval_op,
    scalar::{Call, Step},
};

/// The function with integers in place of such floats.
pub fn integers(func: &Func, machine: Machine) -> Result<Func> {
    if !machine.pairs {
        return Ok(func.clone());
    }
    rebuild(func, "integers", &|new, node, op, args| match operands(new.func, node, machine) {
        Some(operands) => operands.convolved(new, op, node),
        None => new.push(op, &args),
    })
}

/// What `(q - zero) * scale` is of a tensor `q` of integers of 8 bits; there is one scale, or one per output channel.
struct Quantised {
    q: Value,
    zero: i64,
    scales: Vec<f32>,
}

struct Operands {
    x: Quantised,
    w: Quantised,
}

/// The operands of a convolution that can be one of integers.
fn operands(func: &Func, node: &Node, machine: Machine) -> Option<Operands> {
    let Op::Conv { groups: 1, in_block: 1, out_block: 1, .. } = &node.op else { return None };
    let (x, w) = (quantised(func, node.args[0])?, quantised(func, node.args[1])?);
    let Op::Const { value } = &func.node(w.q).op else { return None };
    let (outputs, inputs) = (*value.shape().first()? as i64, *value.shape().get(1)? as i64);
    let suits = x.scales.len() == 1 && [outputs, inputs].into_iter().all(|n| has_blocks(n, machine));
    // Every sum is an `i32`.
    let depth = value.shape()[1..].iter().product::<usize>() as i64;
    let largest = depth.checked_mul(x.largest(func)?.checked_mul(w.largest(func)?)?)?;
    (suits && i32::try_from(largest).is_ok()).then_some(Operands { x, w })
}

/// A function of integers of 8 bits, if it is of that form for all 256 of them.
fn quantised(func: &Func, v: Value) -> Option<Quantised> {
    let (Op::Map { .. }, [q, scales @ ..]) = (&func.node(v).op, &func.node(v).args[..]) else { return None };
    let dtype = func.ty(*q).as_tensor().ok()?.dtype;
    if !matches!(dtype, DType::I8 | DType::U8) || func.ty(v).as_tensor().ok()?.dtype != DType::F32 {
        return None;
    }
    let tables = match scales {
        [] => vec![table(func, v, dtype, None)?],
        [scales] => {
            per_output(func, *scales)?.into_iter().map(|s| table(func, v, dtype, Some(s))).collect::<Option<_>>()?
        }
        _ => return None,
    };
    let low = dtype.int_range().0 as i64;
    let zero = tables.first()?.iter().position(|&x| x == 0.0)?;
    let scale = |table: &Vec<f32>| {
        let s = if zero + 1 < table.len() { table[zero + 1] } else { -table[zero - 1] };
        let is = |(i, x): (usize, &f32)| (i as f32 - zero as f32) * s == *x;
        (s != 0.0 && table.iter().enumerate().all(is)).then_some(s)
    };
    let scales = tables.iter().map(scale).collect::<Option<Vec<f32>>>()?;
    Some(Quantised { q: *q, zero: low + zero as i64, scales })
}

/// The elements of a constant that is repeated along all axes but the first.
fn per_output(func: &Func, v: Value) -> Option<Vec<f32>> {
    let (Op::Broadcast { axes, .. }, [k]) = (&func.node(v).op, &func.node(v).args[..]) else { return None };
    match &func.node(*k).op {
        Op::Const { value } if axes[..] == [0] && value.dtype() == DType::F32 => {
            Some(value.to_f64s().into_iter().map(|x| x as f32).collect())
        }
        _ => None,
    }
}

/// What a map makes of all integers of 8 bits, and of a number.
fn table(func: &Func, v: Value, dtype: DType, number: Option<f32>) -> Option<Vec<f32>> {
    let (low, high) = dtype.int_range();
    let all = Elems::Int((low..=high).collect());
    let count = (high - low + 1) as usize;
    let args = [
        Some(Tensor::from_elems(dtype, vec![count], &all)),
        number.map(|x| Tensor::from_f32(&[count], &vec![x; count])),
    ];
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
    /// The convolution of the integers, times the scales.
    fn convolved(&self, new: &mut Rebuild<'_>, op: Op, node: &Node) -> Result<Value> {
        let args = [self.x.shifted(new)?, self.w.shifted(new)?];
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
        let k = new.push(Op::Broadcast { shape, axes: vec![1] }, &[k])?;
        new.push(scaled(Step::Arg(1)), &[sums, k])
    }
}
