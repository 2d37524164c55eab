//! The textual form at its limits: every bit pattern, deep nesting, long functions.
use numrsc_ir::{
    DType, Func, Lit, Op, Origin, Origins, Scalar, ScalarFn, Tensor, Type, Value, parse,
    print::{self, Detail},
    scalar::{Call, Step},
    verify,
};
use std::{sync::Arc, time::Instant};

fn constant(value: Tensor) -> Func {
    let mut f = Func::new();
    let v = f.push(Op::Const { value }, &[]).unwrap();
    f.set_results(vec![v]);
    f
}

#[track_caller]
fn reads_back(f: &Func) {
    let text = f.to_string();
    match parse(&text) {
        Ok(g) => assert!(g == *f, "reads back differently:\n{text}"),
        Err(e) => panic!("{e}\n{text}"),
    }
}

#[test]
fn every_byte_of_every_type_reads_back() {
    let bytes: Vec<u8> = (0..=255u8).chain((0..=255u8).rev()).collect();
    for &d in DType::ALL.iter().filter(|d| **d != DType::Str) {
        for chunk in bytes.chunks_exact(d.size()) {
            reads_back(&constant(Tensor::new(d, vec![], chunk.to_vec().into()).unwrap()));
        }
        // All in one tensor: as hexadecimal.
        reads_back(&constant(Tensor::new(d, vec![bytes.len() / d.size()], bytes.clone().into()).unwrap()));
    }
}

#[test]
fn every_half_and_many_floats_read_back() {
    for d in [DType::F16, DType::BF16] {
        for bits in 0..=u16::MAX {
            let lit = Lit::from_bits(d, bits.into()).unwrap();
            let steps =
                [Step::Arg(0), Step::Lit(lit), Step::Call(Call { f: ScalarFn::Add, args: vec![0, 1], to: None })];
            if bits % 64 == 0 || lit.as_f64().is_nan() {
                let mut f = Func::new();
                let x = f.param(Type::scalar(d)).unwrap();
                f.push(Op::Map { f: Scalar::new(&steps, 2) }, &[x]).unwrap();
                reads_back(&f);
            }
        }
    }
    let patterns = (0..20_000u32).map(|i| i.wrapping_mul(0x9e37_79b1)).flat_map(u32::to_le_bytes);
    let tensor = Tensor::new(DType::F32, vec![20_000], patterns.collect::<Vec<u8>>().into()).unwrap();
    for chunk in tensor.bytes().chunks_exact(4 * 50) {
        reads_back(&constant(Tensor::new(DType::F32, vec![50], chunk.to_vec().into()).unwrap()));
    }
}

#[test]
fn strings_and_names_read_back() {
    let odd = [
        "",
        "\"",
        "\\",
        "\n\r\t\0",
        "é 漢 \u{1f600} \u{2028}",
        "}\n  %1 = ",
        "\\u{41}",
        "// no comment",
        "\u{7f}\u{9f}",
    ];
    let strings: Vec<String> = odd.iter().map(ToString::to_string).collect();
    let mut f = constant(Tensor::from_strings(vec![3, 3], strings.clone()).unwrap());
    f.set_results(vec![f.results()[0]; odd.len()]);
    f.result_names = strings;
    f.result_labels.insert(1, Tensor::from_strings(vec![3], f.result_names[..3].to_vec()).unwrap());
    f.result_labels.insert(2, Tensor::from_i64(&[3], &[-1, 0, i64::MAX]));
    reads_back(&f);
    verify(&f).unwrap();
    f.result_labels.insert(3, Tensor::from_i64(&[2], &[0, 1]));
    assert!(verify(&f).unwrap_err().to_string().contains("labels"));
}

/// `if(c) { if(c) { … } }`, with `depth` functions inside each other, the outermost included.
fn nested(depth: usize) -> Func {
    let mut f = Func::new();
    let cond = f.param(Type::scalar(DType::Bool)).unwrap();
    if depth > 1 {
        let (then, mut or) = (Arc::new(nested(depth - 1)), Func::new());
        or.param(Type::scalar(DType::Bool)).unwrap();
        let v = f.push(Op::If { then, or: Arc::new(or), types: vec![] }, &[cond, cond]).unwrap();
        assert_eq!(v.0, 1);
    } else {
        let value = Tensor::new(DType::U8, vec![100], vec![7; 100].into()).unwrap();
        f.push(Op::Const { value }, &[]).unwrap();
    }
    f
}

#[test]
fn nesting_is_bounded() {
    reads_back(&nested(64));
    verify(&nested(64)).unwrap();
    assert!(parse(&nested(65).to_string()).unwrap_err().to_string().contains("nested too deeply"));
    assert!(verify(&nested(65)).unwrap_err().to_string().contains("nested too deeply"));
    assert!(!print::func(&nested(5), Detail::Brief).contains("0707"), "constants are shortened at every depth");
    for open in ["(", "seq<", "func(%0: (", "-(", "floordiv("] {
        let _ = parse(&format!("func(%0: f32[{}", open.repeat(100_000))).unwrap_err();
        let _ = parse(&format!("func(%0: {}", open.repeat(100_000))).unwrap_err();
    }
    let text = "%0 = if %0 {then=func() {".repeat(100_000);
    let _ = parse(&format!("func() {{ {text}")).unwrap_err();
}

#[test]
fn long_chains_of_scalars_read_back() {
    let mut steps = vec![Step::Arg(0), Step::Arg(1)];
    for i in 0..5000u32 {
        let f = if i % 2 == 0 { ScalarFn::Add } else { ScalarFn::Mul };
        steps.push(Step::Call(Call { f, args: vec![i + 1, u32::from(i % 3 == 0)], to: None }));
    }
    let mut f = Func::new();
    let (x, y) = (f.param(Type::scalar(DType::F32)).unwrap(), f.param(Type::scalar(DType::F32)).unwrap());
    f.push(Op::Map { f: Scalar::new(&steps, steps.len() - 1) }, &[x, y]).unwrap();
    assert!(f.to_string().len() < 100_000);
    reads_back(&f);
}

#[test]
fn long_functions_are_read_in_linear_time() {
    let mut f = Func::new();
    let mut v = f.param(Type::tensor(DType::F32, [numrsc_ir::Dim::sym("n"), numrsc_ir::Dim::Const(768)])).unwrap();
    let all = [ScalarFn::Exp, ScalarFn::Neg, ScalarFn::Tanh];
    for i in 0..30_000 {
        v = f.push(Op::Map { f: Scalar::call(all[i % 3]) }, &[v]).unwrap();
    }
    f.set_results(vec![v]);
    let start = Instant::now();
    reads_back(&f);
    verify(&f).unwrap();
    assert!(start.elapsed().as_secs_f64() < 3.0, "took {:?}", start.elapsed());
}

/// Equality does not see where values come from; the text does.
#[test]
fn origins_read_back() {
    let odd = ["", "\"\\", "a b", "}\n  %1 = ", "漢"].map(|name| Origin::new(name, name));
    let moved = Origin { moved_by: Some("a rule".into()), ..Origin::new("moved", "com.microsoft.Gelu") };
    let all: Origins = odd.into_iter().chain([moved]).collect();
    let mut f = nested(3);
    f.set_results(vec![f.params()[0]; 2]);
    for v in 0..f.nodes().len() as u32 {
        let own = Origins::from(Origin::new(&format!("node {v}"), "Relu"));
        f.add_origins(Value(v), &all.union(&own));
    }
    f.add_folded(&all);
    reads_back(&f);
    let text = f.to_string();
    assert_eq!(parse(&text).unwrap().to_string(), text);
    assert_eq!(text.matches("from [").count(), f.nodes().len());
    let refused = parse("func(%0: f32[] from [Relu \"r\", Relu \"r\"]) {\n  return %0\n}").unwrap_err();
    assert!(refused.to_string().contains("twice"), "{refused}");
}

#[test]
fn equal_nodes_have_the_origins_of_both() {
    let names = |o: &Origins| o.iter().map(|o| o.node.to_string()).collect::<Vec<_>>();
    let mut f = Func::new();
    let x = f.param(Type::scalar(DType::F32)).unwrap();
    let exp = |f: &mut Func, name: &str| {
        f.set_source(Origin::new(name, "Exp").into());
        f.push(Op::Map { f: Scalar::call(ScalarFn::Exp) }, &[x]).unwrap()
    };
    let (a, b, plain) = (exp(&mut f, "a"), exp(&mut f, "b"), exp(&mut f, "a"));
    assert!(a == b && b == plain);
    assert_eq!(names(f.origins(a)), ["a", "b"]);
    // So have those inside of nested functions.
    let cond = f.push(Op::Const { value: Tensor::scalar(DType::Bool, 1.0) }, &[]).unwrap();
    f.set_source(Origins::NONE);
    let ifs: Vec<Value> = ["a", "b"]
        .map(|name| {
            let mut body = Func::new();
            let p = body.param(Type::scalar(DType::F32)).unwrap();
            body.set_source(Origin::new(name, "Exp").into());
            let e = body.push(Op::Map { f: Scalar::call(ScalarFn::Exp) }, &[p]).unwrap();
            body.set_results(vec![e]);
            let body = Arc::new(body);
            let op = Op::If { then: body.clone(), or: body, types: vec![Type::scalar(DType::F32)] };
            f.push(op, &[cond, a]).unwrap()
        })
        .to_vec();
    assert_eq!(ifs[0], ifs[1]);
    let Op::If { or, .. } = &f.node(ifs[0]).op else { panic!("an if") };
    assert_eq!(names(or.origins(Value(1))), ["a", "b"]);
}

/// What was known is folded; what nobody wanted is gone.
#[test]
fn dead_nodes_without_data_are_folded() {
    let mut f = Func::new();
    let x = f.param(Type::tensor(DType::F32, [numrsc_ir::Dim::sym("n")])).unwrap();
    for (name, op, args) in [
        ("size", Op::Size { dim: numrsc_ir::Dim::sym("n") }, vec![]),
        ("unused", Op::Map { f: Scalar::call(ScalarFn::Exp) }, vec![x]),
        ("used", Op::Map { f: Scalar::call(ScalarFn::Neg) }, vec![x]),
    ] {
        f.set_source(Origin::new(name, "Op").into());
        let v = f.push(op, &args).unwrap();
        f.set_results(vec![v]);
    }
    let text = "func(%0: f32[n]) {\n  %1 = map %0 {f=neg(a0)} : f32[n] from [Op \"used\"]\n  return %1\n  folded [Op \"size\"]\n}\n";
    assert_eq!(f.without_dead_nodes().to_string(), text);
}
