//! Planted bugs that the mutator has to find, between the evaluator and native code.
//!
//! A plant changes what is compiled and not what is evaluated, in a way of which compilers go wrong. Where it changes nothing, there is nothing to find.
use super::import;
use numrsc::onnx::proto::{AttributeProto, AttributeType, ModelProto};
use numrsc_ir::{
    DType, Func, Lit, Op, Scalar, ScalarFn, Type, Value,
    scalar::{Call, Step},
};

/// A bug: what is compiled in place of the right function, where it differs.
#[derive(Clone, Copy, Debug)]
pub struct Plant {
    pub name: &'static str,
    how: How,
}

#[derive(Clone, Copy, Debug)]
enum How {
    /// The front end reads another model.
    Model(fn(&mut ModelProto) -> bool),
    /// A node becomes something else of the same type.
    Node(fn(&mut Func, &Op, &[Value], &Type) -> Option<Value>),
}

#[rustfmt::skip]
pub const PLANTS: &[Plant] = &[
    Plant { name: "dropped-bound-check", how: How::Node(dropped_bound_check) },
    Plant { name: "wrong-broadcast",     how: How::Node(wrong_broadcast) },
    Plant { name: "overflow",            how: How::Node(overflow) },
    Plant { name: "wrong-default",       how: How::Model(wrong_default) },
    Plant { name: "swapped-axis",        how: How::Node(swapped_axis) },
];

impl Plant {
    pub fn named(name: &str) -> Option<Plant> {
        PLANTS.iter().find(|p| p.name == name).copied()
    }

    /// The function that is compiled instead; `None` if the bug does not show in it.
    pub(super) fn apply(&self, model: &ModelProto, func: &Func) -> Option<Func> {
        match self.how {
            How::Model(change) => {
                let mut model = model.clone();
                if change(&mut model) { import(&model).ok() } else { None }
            }
            How::Node(change) => rebuilt(func, change),
        }
    }
}

type Change = fn(&mut Func, &Op, &[Value], &Type) -> Option<Value>;

fn rebuilt(func: &Func, change: Change) -> Option<Func> {
    let (mut out, mut place, mut changed) = (func.named_alike(), vec![], false);
    for (_, node) in func.values() {
        let args: Vec<Value> = node.args.iter().map(|a| place[a.0 as usize]).collect();
        let other = change(&mut out, &node.op, &args, &node.ty).filter(|v| *out.ty(*v) == node.ty);
        changed |= other.is_some();
        place.push(match other {
            Some(v) => v,
            None => out.push(node.op.clone(), &args).ok()?,
        });
    }
    out.set_results(func.results().iter().map(|r| place[r.0 as usize]).collect());
    changed.then_some(out)
}

/// An index that is outside counts as the last one, and nobody says so.
fn dropped_bound_check(out: &mut Func, op: &Op, args: &[Value], _: &Type) -> Option<Value> {
    let Op::Gather { axis, .. } = op else { return None };
    let size = out.ty(args[0]).as_tensor().ok()?.shape[*axis as usize].as_const()?;
    let dtype = out.ty(args[1]).as_tensor().ok()?.dtype;
    let literal = |x: i64| Step::Lit(Lit::int(dtype, i128::from(x)));
    let call = |f, a, b| Step::Call(Call { f, args: vec![a, b], to: None });
    let steps =
        [Step::Arg(0), literal(0), literal((size - 1).max(0)), call(ScalarFn::Max, 0, 1), call(ScalarFn::Min, 3, 2)];
    let inside = out.push(Op::Map { f: Scalar::new(&steps, 4) }, &args[1..2]).ok()?;
    out.push(op.clone(), &[args[0], inside]).ok()
}

/// Operands of lower rank are put at the first axes that take them, not at the last ones.
fn wrong_broadcast(out: &mut Func, op: &Op, args: &[Value], _: &Type) -> Option<Value> {
    let Op::Broadcast { shape, axes } = op else { return None };
    let left: Vec<i64> = (0..axes.len() as i64).collect();
    if left == *axes {
        return None;
    }
    out.push(Op::Broadcast { shape: shape.clone(), axes: left }, args).ok()
}

/// Sums and products of 64 bits keep 32.
fn overflow(out: &mut Func, op: &Op, args: &[Value], ty: &Type) -> Option<Value> {
    let Op::Map { f } = op else { return None };
    let sums = |s: &Step| matches!(s, Step::Call(c) if matches!(c.f, ScalarFn::Add | ScalarFn::Mul | ScalarFn::Sub));
    if ty.as_tensor().ok()?.dtype != DType::I64 || !f.steps().iter().any(sums) {
        return None;
    }
    let whole = out.push(op.clone(), args).ok()?;
    let cast = |from, to| Step::Call(Call { f: ScalarFn::Cast, args: vec![from], to: Some(to) });
    let steps = [Step::Arg(0), cast(0, DType::I32), cast(1, DType::I64)];
    out.push(Op::Map { f: Scalar::new(&steps, 2) }, &[whole]).ok()
}

/// An attribute that is not there means something else than it should.
fn wrong_default(model: &mut ModelProto) -> bool {
    const DEFAULTS: &[(&str, &str, f32)] =
        &[("LeakyRelu", "alpha", 0.02), ("Elu", "alpha", 0.9), ("HardSigmoid", "beta", 0.4), ("Gemm", "alpha", 1.1)];
    let mut changed = false;
    for node in model.graph.iter_mut().flat_map(|g| &mut g.node) {
        for (op, name, wrong) in DEFAULTS {
            if node.op_type == *op && node.attribute.iter().all(|a| a.name != *name) {
                let r#type = Some(AttributeType::Float as i32);
                let attribute = AttributeProto { name: (*name).into(), f: Some(*wrong), r#type, ..Default::default() };
                node.attribute.push(attribute);
                changed = true;
            }
        }
    }
    changed
}

/// What goes along one axis goes along its neighbour.
fn swapped_axis(out: &mut Func, op: &Op, args: &[Value], ty: &Type) -> Option<Value> {
    let mut op = op.clone();
    match &mut op {
        Op::Transpose { perm } if perm.len() > 1 => perm.swap(0, 1),
        Op::Scan { axis, .. } | Op::ArgSort { axis, .. } if ty.as_tensor().ok()?.rank() > 1 => *axis ^= 1,
        Op::Reduce { axes, .. } if axes.len() == 1 => axes[0] ^= 1,
        _ => return None,
    }
    out.push(op, args).ok()
}
