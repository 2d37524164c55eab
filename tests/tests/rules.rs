//! Every rewrite rule holds on all small instances, wrong ones are caught, and optimised functions give what they gave before.
use numrsc_ir::{Data, Elems, Machine, eval, verify};
use numrsc_passes::{
    Context, Level,
    egraph::{
        optimality,
        rule::{Rule, rule},
        rules,
    },
    optimise,
};
use numrsc_tests::{
    generate::{Config, func, inputs},
    judge,
    rules::{check, check_all},
};
use std::collections::BTreeSet;

/// This machine, and one level.
fn context(level: Level) -> Context {
    Context::new(Machine::AVX2).with(|o| o.level = level)
}

#[test]
fn every_rule_is_sound() {
    let all = rules::all();
    let names: BTreeSet<&str> = all.iter().map(|r| r.name).collect();
    assert_eq!(names.len(), all.len(), "two rules have the same name");
    let counts = check_all(&all).unwrap_or_else(|e| panic!("{e}"));
    let never: Vec<_> = counts.iter().filter(|(_, n)| **n == 0).map(|(name, _)| *name).collect();
    assert!(never.is_empty(), "never fired: {never:?}");
}

#[rustfmt::skip]
const WRONG: &[Rule] = &[
    rule("composed the wrong way round",     "(transpose (transpose ?x ?p) ?q)",       "(transpose ?x (compose ?q ?p))"),
    rule("any permutation is the identity",  "(transpose ?x ?p)",                      "?x"),
    rule("a reshape is a transpose",         "(reshape (transpose ?x ?p) ?s)",         "(reshape ?x ?s)"),
    rule("loses the sign of -0",             "(add ?x 0)",                             "?x"),
    rule("infinity minus itself",            "(sub ?x ?x)",                            "(mul ?x 0)"),
    rule("zero times anything",              "(mul ?x 0)",                             "(sub ?x ?x)"),
    rule("regroups floats as if exact",      "(add (add ?x ?y) ?z)",                   "(add ?x (add ?y ?z))"),
    rule("not of less is not less or equal", "(not (lt ?x ?y))",                       "(le ?y ?x)"), // NaN
    rule("a narrow cast keeps everything",   "(cast (cast ?x ?w) ?t)",                 "?x").when(&["(has_type ?x ?t)"]),
    rule("a slice starts anew",              "(slice (slice ?x ?s ?n ?k) ?t ?m ?l)",   "(slice ?x ?t ?m ?l)"),
    rule("a pad with any value is a zero",   "(conv (pad ?x ?v ?l ?h) ?w ?s ?d ?sp ?lo ?hi ?g 1 1)", "(conv ?x ?w ?s ?d ?sp (plus ?lo (space ?l)) (plus ?hi (space ?h)) ?g 1 1)").when(&["(space_only ?l)", "(space_only ?h)", "(all_one ?sp)", "(not_negative ?l)", "(not_negative ?h)"]),
    rule("sums over other axes",             "(reduce (transpose ?x ?p) ?f ?a)",       "(transpose (reduce ?x ?f ?a) (kept ?p ?a))"),
    rule("operands exchanged",               "(transpose (contract ?a ?b ?ab ?bb ?as ?bs) ?p)", "(contract ?b ?a ?bb ?ab ?bs ?as)"),
    rule("max is min",                       "(reduce (reduce ?x max ?a) min ?b)",     "(reduce ?x max (union ?a ?b))"),
    rule("looks up other rows",              "(call ?f (gather ?t ?i 0 0) (gather ?u ?j 0 0))", "(gather (call ?f ?t ?u) ?i 0 0)"),
    rule("a row of nothing is the last row", "(contract (cast (eq (broadcast ?i ?s ?a) (broadcast ?n ?s ?b)) ?t) ?w [] [] ?k [0])", "(gather ?w (min (max (cast (reshape ?i (without ?s ?k)) i64) 0) (sub (rows ?w) 1)) 0 0)").when(&["(counts_along ?n ?s ?b)", "(repeats_last ?i ?s ?a)", "(same_count ?i (without ?s ?k))", "(last_axis ?k ?s)", "(finite ?w)"]),
    rule("a product is a sum, roughly",      "(mul ?x ?y)",                            "(add ?x ?y)").rounding(),
];

#[test]
fn planted_wrong_rules_are_caught() {
    for wrong in WRONG {
        assert!(check(wrong).is_err(), "`{}` was not caught", wrong.name);
    }
}

fn count() -> u64 {
    std::env::var("NUMRSC_RANDOM_COUNT").ok().and_then(|n| n.parse().ok()).unwrap_or(1500)
}

#[test]
fn optimised_random_functions_give_the_same_bits() {
    let mut changed = 0;
    for seed in 0..count() {
        let f = func(seed, Config { special: seed % 3 == 1, steps: 4 + seed as usize % 30, ..Config::default() });
        let g = optimise(&f, &context(Level::O2)).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{f}"));
        verify(&g).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{f}\n{g}"));
        changed += usize::from(g != f.without_dead_nodes());
        let args: Vec<Data> = inputs(&f, seed, seed % 3 == 1).into_iter().map(Data::Tensor).collect();
        match (eval(&f, &args), eval(&g, &args)) {
            (Ok(x), Ok(y)) => assert!(
                x.len() == y.len() && x.iter().zip(&y).all(|(x, y)| same(x, y)),
                "seed {seed}: {x:?}\n{y:?}\n{f}\n{g}"
            ),
            (Ok(_), Err(e)) => panic!("seed {seed} fails: {e}\n{f}\n{g}"),
            (Err(_), _) => {}
        }
    }
    assert!(changed > count() as usize / 20, "only {changed} functions changed");
}

#[test]
fn rounding_rules_change_results_by_rounding() {
    for seed in 0..count() / 3 {
        let f = func(seed, Config { steps: 4 + seed as usize % 20, ..Config::default() });
        let g = optimise(&f, &context(Level::O3)).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{f}"));
        verify(&g).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{f}\n{g}"));
        let args: Vec<Data> = inputs(&f, seed, false).into_iter().map(Data::Tensor).collect();
        if let Err(e) = judge::fused(&f, &args, eval(&g, &args).map_err(|e| e.to_string()), seed) {
            panic!("seed {seed}: {e}\n{f}\n{g}");
        }
    }
}

#[test]
fn the_same_function_is_optimised_the_same_way() {
    for seed in 0..40 {
        let f = func(seed, Config { steps: 30, ..Config::default() });
        let once = || optimise(&f, &context(Level::O3)).map(|g| g.to_string()).ok();
        assert_eq!(once(), once(), "seed {seed}");
    }
}

/// Where an exact search finishes, the greedy choice costs hardly more than the best.
#[test]
fn extraction_is_near_the_optimum() {
    let (mut greedy, mut best, mut finished, mut equal) = (0, 0, 0, 0);
    for seed in 0..200 {
        let f = func(seed, Config { steps: 6, depth: 0, ..Config::default() });
        for (found, exact) in
            optimality(&f, &context(Level::O2), 20_000).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{f}"))
        {
            let Some(exact) = exact else { continue };
            assert!(exact <= found, "seed {seed}: {found} is less than the best, {exact}\n{f}");
            (greedy, best) = (greedy + found, best + exact);
            finished += 1;
            equal += usize::from(found == exact);
        }
    }
    println!("{equal} of {finished} regions have the best choice; all together cost {greedy}, the best {best}");
    assert!(finished > 50 && greedy <= best + best / 50, "{greedy} is far from {best} ({finished} regions)");
}

/// The same bits, where one NaN is like another.
fn same(x: &Data, y: &Data) -> bool {
    match (x, y) {
        (Data::Tensor(x), Data::Tensor(y)) if x.dtype().is_float() => {
            let (Elems::Float(a), Elems::Float(b)) = (x.elems(), y.elems()) else { return false };
            let equal = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            x.shape() == y.shape() && x.dtype() == y.dtype() && a.iter().zip(&b).all(equal)
        }
        (Data::Seq(x), Data::Seq(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        (x, y) => x == y,
    }
}
