//! The dim solver against plain arithmetic: random expressions under random values of their symbols.
use numrsc_ir::{
    Dim,
    dim::{Range, Sym},
    parse::parse_dim,
};
use proptest::{prelude::*, sample::select, test_runner::RngSeed};
use std::time::Instant;

const NAMES: [&str; 4] = ["a", "b", "$x", "$y"];

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Add,
    Sub,
    Mul,
    FloorDiv,
    CeilDiv,
    Modulo,
    Lesser,
    Greater,
    Broadcast,
}

const KINDS: [Kind; 9] = [
    Kind::Add,
    Kind::Sub,
    Kind::Mul,
    Kind::FloorDiv,
    Kind::CeilDiv,
    Kind::Modulo,
    Kind::Lesser,
    Kind::Greater,
    Kind::Broadcast,
];

#[derive(Clone, Debug)]
enum Expr {
    Const(i64),
    Sym(usize),
    Call(Kind, Box<(Expr, Expr)>),
}

impl Expr {
    fn dim(&self) -> Dim {
        match self {
            Expr::Const(c) => Dim::Const(*c),
            Expr::Sym(i) => Dim::sym(NAMES[*i]),
            Expr::Call(kind, operands) => {
                let (a, b) = (operands.0.dim(), operands.1.dim());
                match kind {
                    Kind::Add => &a + &b,
                    Kind::Sub => &a - &b,
                    Kind::Mul => &a * &b,
                    Kind::FloorDiv => a.floor_div(&b),
                    Kind::CeilDiv => a.ceil_div(&b),
                    Kind::Modulo => a.modulo(&b),
                    Kind::Lesser => a.lesser(&b),
                    Kind::Greater => a.greater(&b),
                    Kind::Broadcast => a.broadcast_at_run_time(&b),
                }
            }
        }
    }

    /// The meaning; `None` where there is none (or not in `i128`).
    fn eval(&self, values: &[i64; 4]) -> Option<i128> {
        match self {
            Expr::Const(c) => Some((*c).into()),
            Expr::Sym(i) => Some(values[*i].into()),
            Expr::Call(kind, operands) => {
                let (a, b) = (operands.0.eval(values)?, operands.1.eval(values)?);
                let floor = |a: i128, b: i128| {
                    let q = a.checked_div(b)?;
                    Some(if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q })
                };
                match kind {
                    Kind::Add => a.checked_add(b),
                    Kind::Sub => a.checked_sub(b),
                    Kind::Mul => a.checked_mul(b),
                    Kind::FloorDiv => floor(a, b),
                    Kind::CeilDiv => floor(a.checked_neg()?, b)?.checked_neg(),
                    Kind::Modulo => a.checked_sub(b.checked_mul(floor(a, b)?)?),
                    Kind::Lesser => Some(a.min(b)),
                    Kind::Greater => Some(a.max(b)),
                    Kind::Broadcast if a == 1 => Some(b),
                    Kind::Broadcast => (a == b || b == 1).then_some(a),
                }
            }
        }
    }
}

fn exprs(constant: impl Strategy<Value = i64> + 'static) -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![constant.prop_map(Expr::Const), (0..NAMES.len()).prop_map(Expr::Sym)];
    leaf.prop_recursive(5, 40, 2, |inner| {
        (select(&KINDS[..]), inner.clone(), inner).prop_map(|(k, a, b)| Expr::Call(k, Box::new((a, b))))
    })
}

fn small() -> impl Strategy<Value = Expr> {
    exprs(-7..8i64)
}

fn huge() -> impl Strategy<Value = Expr> {
    const ENDS: [i64; 8] = [i64::MIN, i64::MIN + 1, -1, 0, 1, 1 << 62, i64::MAX - 1, i64::MAX];
    exprs(select(&ENDS[..]))
}

fn assignments() -> impl Strategy<Value = Vec<[i64; 4]>> {
    let one = (0..7i64, 0..7i64, -6..7i64, -6..7i64).prop_map(|(a, b, x, y)| [a, b, x, y]);
    proptest::collection::vec(one, 8)
}

fn huge_assignments() -> impl Strategy<Value = Vec<[i64; 4]>> {
    let size = || select(&[0, 1, 2, 1 << 31, 1 << 62, i64::MAX][..]);
    let any = || select(&[i64::MIN, -1, 0, 1, 3, i64::MAX][..]);
    proptest::collection::vec((size(), size(), any(), any()).prop_map(|(a, b, x, y)| [a, b, x, y]), 8)
}

fn index(s: &Sym) -> usize {
    NAMES.iter().position(|n| **n == **s).unwrap()
}

fn value(d: &Dim, values: &[i64; 4]) -> Option<i64> {
    d.eval(&|s| Some(values[index(s)]))
}

/// Nothing the solver says of two expressions may be contradicted by values.
fn check_claims(a: &Expr, b: &Expr, values: &[i64; 4]) -> Result<(), TestCaseError> {
    let (da, db) = (a.dim(), b.dim());
    let (Some(x), Some(y)) = (a.eval(values), b.eval(values)) else { return Ok(()) };
    if let Some(equal) = da.equals(&db) {
        prop_assert_eq!(equal, x == y, "{} == {} with {:?}: {} and {}", da, db, values, x, y);
    }
    if let Some(at_most) = da.at_most(&db) {
        prop_assert_eq!(at_most, x <= y, "{} <= {} with {:?}: {} and {}", da, db, values, x, y);
    }
    Ok(())
}

fn check_range(d: &Dim, values: &[i64; 4]) -> Result<(), TestCaseError> {
    let Some(x) = value(d, values) else { return Ok(()) };
    let known = |s: &Sym| Range { low: values[index(s)], high: values[index(s)] };
    for of in [&Range::of_sym as &dyn Fn(&Sym) -> Range, &known] {
        let range = d.range(of);
        prop_assert!(range.low <= x && x <= range.high, "{} = {} with {:?} is not in {:?}", d, x, values, range);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn normal_form_keeps_the_value(e in small(), assignments in assignments()) {
        let d = e.dim();
        prop_assert!(!d.is_too_large());
        for values in &assignments {
            if let Some(want) = e.eval(values) {
                prop_assert_eq!(value(&d, values).map(i128::from), Some(want), "{} with {:?}", d, values);
            }
            check_range(&d, values)?;
        }
    }

    #[test]
    fn near_overflow_the_value_is_right_or_absent(e in huge(), assignments in huge_assignments()) {
        let d = e.dim();
        for values in &assignments {
            if let (Some(want), Some(got)) = (e.eval(values), value(&d, values)) {
                prop_assert_eq!(i128::from(got), want, "{} with {:?}", d, values);
            }
            check_range(&d, values)?;
        }
    }

    #[test]
    fn claims_hold(a in small(), b in small(), assignments in assignments()) {
        assignments.iter().try_for_each(|values| check_claims(&a, &b, values))?;
    }

    #[test]
    fn claims_hold_near_overflow(a in huge(), b in huge(), assignments in huge_assignments()) {
        assignments.iter().try_for_each(|values| check_claims(&a, &b, values))?;
    }

    #[test]
    fn products_divide_exactly(q in small(), b in small(), assignments in assignments()) {
        let (q, b) = (q.dim(), b.dim());
        let product = &q * &b;
        if b == Dim::ZERO {
            prop_assert_eq!(product.exact_div(&b), None);
        } else if let Some(got) = product.exact_div(&b) {
            for values in &assignments {
                let (Some(p), Some(d), Some(x)) = (value(&product, values), value(&b, values), value(&got, values)) else { continue };
                prop_assert_eq!(p, d * x, "{} / {} = {} with {:?}", product, b, got, values);
            }
        } else {
            // Only what is too large to expand, or to expand on the way, may stay undivided.
            let text = product.to_string();
            let large = text.contains("mul(") || text.contains("add(") || text.matches([' ']).count() > 40;
            prop_assert!(large, "({}) * ({})", q, b);
        }
    }

    #[test]
    fn texts_read_back(small in small(), huge in huge()) {
        for d in [small.dim(), huge.dim()] {
            prop_assert_eq!(&parse_dim(&d.to_string()).unwrap(), &d);
        }
    }

    #[test]
    fn substitution_is_evaluation(e in small(), assignments in assignments()) {
        let d = e.dim();
        for values in &assignments {
            if let Some(want) = value(&d, values) {
                prop_assert_eq!(d.subst(&|s| Some(Dim::Const(values[index(s)]))), Dim::Const(want), "{}", d);
            }
        }
    }
}

#[test]
fn odd_symbols_are_quoted() {
    for name in ["batch size", "0", "", "$", "$a b", "a\"b\\", "é", "x.y", "\n", "min", "$1"] {
        let d = &Dim::sym(name) + &Dim::ONE;
        assert_eq!(parse_dim(&d.to_string()), Ok(d));
    }
    assert_eq!(Dim::sym("batch size").to_string(), "\"batch size\"");
}

#[test]
fn expressions_do_not_explode() {
    let start = Instant::now();
    let (a, b, x) = (Dim::sym("a"), Dim::sym("b"), Dim::sym("$x"));
    let steps: [&dyn Fn(&Dim) -> Dim; 6] = [
        &|d| (d + &x).lesser(&d.floor_div(&b)),
        &|d| &(d + &a) * &(d - &b),
        &|d| d.floor_div(&(d + &Dim::ONE)),
        &|d| (d * &x).greater(&(d + &b)),
        &|d| d.modulo(&(&x + d)),
        &|d| (d + &a).broadcast_at_run_time(&(d + &b)),
    ];
    for step in steps {
        let mut d = &x + &a;
        for _ in 0..200 {
            d = step(&d);
        }
        assert!(d.is_too_large() || d.to_string().len() < 100_000);
    }
    let sum = (0..10_000).fold(Dim::ZERO, |s, i| &s + &Dim::sym(format!("s{i}")));
    assert!(sum.is_too_large());
    assert!(start.elapsed().as_secs() < 5, "took {:?}", start.elapsed());
}

#[test]
fn too_large_absorbs_and_is_never_equal() {
    let huge = (0..10_000).fold(Dim::ZERO, |s, i| &s + &Dim::sym(format!("s{i}")));
    for d in [&huge - &huge, &huge * &Dim::ZERO, huge.floor_div(&huge), huge.lesser(&Dim::ONE)] {
        assert!(d.is_too_large());
    }
    assert_eq!(huge.equals(&huge), None);
    assert_eq!(huge.eval(&|_| Some(0)), None);
    assert_eq!(parse_dim(&huge.to_string()), Ok(huge));
}
