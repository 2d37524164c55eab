//! Random well-typed functions keep the rules and read back from their text.
use numrsc_ir::{
    Op, Type,
    eval::{Data, eval},
    op::OPS,
    parse, print, verify,
};
use numrsc_tests::generate::{Config, func, inputs};
use std::collections::BTreeSet;

#[test]
fn random_functions_are_valid_and_read_back() {
    let mut used = BTreeSet::new();
    for seed in 0..3000 {
        let f = func(seed, Config { special: seed % 2 == 1, steps: 4 + seed as usize % 30, ..Config::default() });
        let text = f.to_string();
        if let Err(e) = verify(&f) {
            panic!("seed {seed}: {e}\n{text}");
        }
        match parse(&text) {
            Ok(g) if g == f => {}
            Ok(g) => panic!("seed {seed} reads back differently:\n{text}\n{g}"),
            Err(e) => panic!("seed {seed}: {e}\n{text}"),
        }
        for (tensor, param) in inputs(&f, seed, false).iter().zip(f.params()) {
            assert!(matches!(f.ty(param), Type::Tensor(t) if t.dtype == tensor.dtype() && t.rank() == tensor.rank()));
        }
        used.extend(f.nodes().iter().map(|n| n.op.name()));
    }
    let missing: Vec<_> = OPS.iter().map(|o| o.name).filter(|n| !used.contains(n)).collect();
    assert!(missing.is_empty(), "never generated: {missing:?}");
}

#[test]
fn random_functions_evaluate() {
    for seed in 0..1500 {
        let f = func(seed, Config { steps: 4 + seed as usize % 30, ..Config::default() });
        for inputs_seed in 0..2 {
            let args: Vec<Data> = inputs(&f, inputs_seed, false).into_iter().map(Data::Tensor).collect();
            match eval(&f, &args) {
                Ok(results) => assert_eq!(results.len(), f.results().len()),
                Err(e) => panic!("seed {seed}: {e}\n{f}"),
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_function() {
    for seed in 0..20 {
        assert_eq!(func(seed, Config::default()).to_string(), func(seed, Config::default()).to_string());
    }
}

#[test]
fn brief_text_shortens_large_constants_everywhere() {
    let mut shortened = 0;
    for seed in 0..500 {
        let f = func(seed, Config { steps: 40, ..Config::default() });
        let brief = print::func(&f, print::Detail::Brief);
        assert!(!brief.contains(")#") && !brief.contains("]#"), "{brief}");
        let nested = |op: &Op| op.bodies().iter().any(|b| b.to_string().contains("]#"));
        shortened += usize::from(f.nodes().iter().any(|n| nested(&n.op)));
    }
    assert!(shortened > 0, "no nested function had a large constant");
}
