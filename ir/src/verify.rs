//! The rules every function keeps, checked. All violations are listed, each with its place.
use crate::{DType, Dim, Error, Func, Node, Op, Result, Type, Value, dim::Sym, func::node_syms, parse::MAX_DEPTH};
use std::{
    collections::{BTreeSet, HashSet},
    fmt::Display,
};

/// Does the function keep the rules of the IR?
///
/// - Operands exist and precede their users; results exist.
/// - Parameters come first and are numbered from 0.
/// - The type of every node is the one its op gives.
/// - Every symbol is introduced before it is used: by a parameter, `bind`, `compress`, a type that an op states, or an
///   enclosing function. `bind` and `compress` introduce new symbols only.
/// - There is a distinct name for every parameter and result, or for none.
pub fn verify(func: &Func) -> Result<()> {
    let mut found = Vec::new();
    check(func, &Scope { syms: HashSet::new(), outer: None }, "", 0, &mut found);
    if found.is_empty() { Ok(()) } else { Err(Error::Invalid(found)) }
}

/// The symbols known at a place.
struct Scope<'s> {
    syms: HashSet<Sym>,
    outer: Option<&'s Scope<'s>>,
}

impl Scope<'_> {
    fn knows(&self, s: &Sym) -> bool {
        self.syms.contains(s) || self.outer.is_some_and(|o| o.knows(s))
    }
}

fn check(func: &Func, outer: &Scope<'_>, prefix: &str, depth: usize, found: &mut Vec<String>) {
    if depth == MAX_DEPTH {
        found.push(format!("{prefix}functions are nested too deeply"));
        return;
    }
    let mut scope = Scope { syms: HashSet::new(), outer: Some(outer) };
    let params = func.params().len();
    for (v, node) in func.values() {
        let mut report = |message: &dyn Display| found.push(format!("{prefix}{v} ({}): {message}", node.op));
        check_param(v, node, params, &mut report);
        let sound = check_operands(v, node, &mut report);
        // The symbols that a node states for its results are not yet known inside of it.
        let before = found.len();
        check_bodies(v, node, &scope, prefix, depth, found);
        let sound = sound && found.len() == before;
        let mut report = |message: &dyn Display| found.push(format!("{prefix}{v} ({}): {message}", node.op));
        check_syms(node, &mut scope, &mut report);
        // A type follows from types that exist and functions that are sound.
        if sound {
            let types: Vec<&Type> = node.args.iter().map(|a| func.ty(*a)).collect();
            match node.op.infer(&types) {
                Err(e) => found.push(format!("{prefix}{v} ({}): {e}", node.op)),
                Ok(ty) if ty != node.ty => {
                    found.push(format!("{prefix}{v} ({}): the type is {}, the op gives {ty}", node.op, node.ty));
                }
                Ok(_) => {}
            }
        }
    }
    for (i, r) in func.results().iter().enumerate() {
        if r.0 as usize >= func.nodes().len() {
            found.push(format!("{prefix}result {i}: {r} does not exist"));
        }
    }
    check_names(&func.param_names, params, "parameter", prefix, found);
    check_names(&func.result_names, func.results().len(), "result", prefix, found);
    check_labels(func, prefix, found);
}

/// Labels are a vector of integers or strings, one for each entry along the last axis of a tensor.
fn check_labels(func: &Func, prefix: &str, found: &mut Vec<String>) {
    for (&i, labels) in &func.result_labels {
        let ty = func.results().get(i).and_then(|r| func.nodes().get(r.0 as usize)).map(|n| &n.ty);
        let width = match ty {
            Some(Type::Tensor(t)) => t.shape.last().and_then(Dim::as_usize),
            _ => None,
        };
        let sound = matches!(labels.dtype(), DType::I64 | DType::Str) && labels.shape().len() == 1;
        if !sound || width != Some(labels.len()) {
            found.push(format!(
                "{prefix}result {i} is {}, which its labels do not fit",
                match ty {
                    Some(ty) => ty.to_string(),
                    None => "missing".into(),
                }
            ));
        }
    }
}

fn check_param(v: Value, node: &Node, params: usize, report: &mut dyn FnMut(&dyn Display)) {
    if let Op::Param { index, .. } = node.op {
        if v.0 as usize >= params {
            report(&"parameters come before all other nodes");
        } else if index != i64::from(v.0) {
            report(&format!("parameter {v} has index {index}"));
        }
    }
}

fn check_operands(v: Value, node: &Node, report: &mut dyn FnMut(&dyn Display)) -> bool {
    let mut sound = true;
    for a in &node.args {
        if *a >= v {
            report(&format!("operand {a} does not come before"));
            sound = false;
        }
    }
    sound
}

fn check_syms(node: &Node, scope: &mut Scope<'_>, report: &mut dyn FnMut(&dyn Display)) {
    let defined = Func::defined_syms(node);
    if matches!(node.op, Op::Bind { .. } | Op::Compress { .. }) {
        for s in defined.iter().filter(|s| scope.knows(s)) {
            report(&format!("symbol {s} is introduced again"));
        }
    }
    scope.syms.extend(defined);
    // What nested functions mention is checked inside of them.
    let mut mentioned = BTreeSet::new();
    if node.op.bodies().is_empty() {
        node_syms(node, &mut mentioned);
    } else {
        node.ty.for_each_sym(&mut |s| {
            mentioned.insert(s.clone());
        });
    }
    for s in mentioned.iter().filter(|s| !scope.knows(s)) {
        report(&format!("symbol {s} is not introduced before"));
    }
}

fn check_bodies(v: Value, node: &Node, scope: &Scope<'_>, prefix: &str, depth: usize, found: &mut Vec<String>) {
    for (name, attr) in node.op.attrs() {
        if let Some(body) = attr.as_func() {
            check(body, scope, &format!("{prefix}{v}.{name} "), depth + 1, found);
        }
    }
}

fn check_names(names: &[String], count: usize, what: &str, prefix: &str, found: &mut Vec<String>) {
    if !names.is_empty() && names.len() != count {
        found.push(format!("{prefix}there are {count} {what}s and {} {what} names", names.len()));
    }
    let mut seen = HashSet::new();
    for name in names.iter().filter(|n| !seen.insert(*n)) {
        found.push(format!("{prefix}two {what}s are named {name:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Dim, ReduceFn, Scalar, ScalarFn};
    use std::sync::Arc;

    fn node(op: Op, args: &[u32], ty: &Type) -> Node {
        Node { op, args: args.iter().copied().map(Value).collect(), ty: ty.clone() }
    }

    fn param(index: i64, ty: &Type) -> Node {
        node(Op::Param { index, ty: ty.clone() }, &[], ty)
    }

    fn violations(f: &Func) -> Vec<String> {
        match verify(f) {
            Err(Error::Invalid(list)) => list,
            Err(e) => panic!("{e}"),
            Ok(()) => vec![],
        }
    }

    #[test]
    fn every_violation_is_listed_with_its_place() {
        let vector = Type::tensor(DType::F32, [Dim::Const(3)]);
        let scalar = Type::scalar(DType::F32);
        let exp = Op::Map { f: Scalar::call(ScalarFn::Exp) };
        let sum = Op::Reduce { f: ReduceFn::Sum, axes: vec![0] };
        let mut f = Func::from_raw(
            vec![
                param(1, &vector),
                node(exp.clone(), &[2], &vector),
                node(exp, &[9], &vector),
                node(sum, &[0], &vector),
                param(1, &scalar),
                node(Op::Get { index: 0 }, &[0], &scalar),
            ],
            vec![Value(3), Value(7)],
        );
        f.param_names = vec!["x".into(), "x".into()];
        assert_eq!(
            violations(&f),
            [
                "%0 (param): parameter %0 has index 1",
                "%1 (map): operand %2 does not come before",
                "%2 (map): operand %9 does not come before",
                "%3 (reduce): the type is f32[3], the op gives f32[]",
                "%4 (param): parameters come before all other nodes",
                "%5 (get): `get` takes a tuple, got f32[3]",
                "result 1: %7 does not exist",
                "there are 1 parameters and 2 parameter names",
                "two parameters are named \"x\"",
            ]
        );
    }

    #[test]
    fn nested_functions_are_checked_in_their_scope() {
        let flag = Type::scalar(DType::Bool);
        let sized = Type::tensor(DType::I64, [Dim::sym("n")]);
        let iota = |s: &str| Op::Iota { dtype: DType::I64, shape: vec![Dim::sym(s)], axis: 0 };
        let body = |s: &str| {
            let ty = Type::tensor(DType::I64, [Dim::sym(s)]);
            Arc::new(Func::from_raw(vec![node(iota(s), &[], &ty)], vec![Value(0)]))
        };
        let choose = Op::If { then: body("n"), or: body("m"), types: vec![sized.clone()] };
        let f = Func::from_raw(
            vec![param(0, &flag), param(1, &sized), node(choose, &[0], &Type::Tuple(vec![sized]))],
            vec![Value(2)],
        );
        assert_eq!(violations(&f), ["%2.or %0 (iota): symbol m is not introduced before"]);
    }

    #[test]
    fn symbols_are_introduced_once_and_before_use() {
        let count = Type::scalar(DType::I64);
        let size = |s: &str| Op::Size { dim: Dim::sym(s) };
        let bind = || Op::Bind { dim: "k".into() };
        let f = Func::from_raw(
            vec![
                param(0, &count),
                node(size("k"), &[], &count),
                node(bind(), &[0], &count),
                node(bind(), &[1], &count),
                node(size("k"), &[], &count),
            ],
            vec![],
        );
        assert_eq!(
            violations(&f),
            ["%1 (size): symbol k is not introduced before", "%3 (bind): symbol k is introduced again"]
        );
    }
}
