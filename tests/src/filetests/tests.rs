//! The runner itself: wrong passes are found by what the evaluator says, and heads that make no sense are refused.
use super::{Head, run};
use numrsc_ir::{Func, parse};
use numrsc_passes::{
    Context, Level, PIPELINE, Result,
    pipeline::{Changes, Pass, Step},
};

const CASE: &str = "func(%0: f32[n, 3]) {
  %1 = map %0 {f=add(a0, 1.5:f32)} : f32[n, 3]
  return %1
}
";

/// What comes of a case, with a pass `planted` that makes this of every function.
fn planted(made: fn(&Func, &Context) -> Result<Func>, changes: Changes) -> std::result::Result<String, Vec<String>> {
    let pass = Pass { name: "planted", from: Level::O0, why: "a test", changes, step: Step::Tensor(made) };
    run(&format!("test planted\n\n{CASE}// ----\n"), &[pass])
}

fn function(text: &str) -> Func {
    parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn with(f: &str) -> Func {
    function(&CASE.replace("add(a0, 1.5:f32)", f))
}

#[test]
fn wrong_passes_are_caught() {
    type Made = fn(&Func, &Context) -> Result<Func>;
    let wrong: [(&str, Made, Changes); 8] = [
        ("another function", |_, _| Ok(with("sub(a0, 1.5:f32)")), Changes::Nothing),
        ("another function, if it may round", |_, _| Ok(with("sub(a0, 1.5:f32)")), Changes::Rounding(Level::O0)),
        ("the last bit", |_, _| Ok(with("mul(add(a0, 1.5:f32), 1.0000001:f32)")), Changes::Nothing),
        (
            "a NaN for a number",
            |_, _| Ok(with("select(lt(2.5:f32, a0), div(0.0:f32, 0.0:f32), add(a0, 1.5:f32))")),
            Changes::Nothing,
        ),
        ("a number for an infinity", |_, _| Ok(with("max(add(a0, 1.5:f32), -1000.0:f32)")), Changes::Nothing),
        ("the sign of zero", |_, _| Ok(with("neg(sub(-1.5:f32, a0))")), Changes::Nothing),
        (
            "another type",
            |_, _| {
                Ok(function(
                    "func(%0: f32[n, 3]) {\n  %1 = map %0 {f=cast(add(a0, 1.5:f32), f64)} : f64[n, 3]\n  return %1\n}\n",
                ))
            },
            Changes::Nothing,
        ),
        (
            "another shape",
            |_, _| {
                Ok(function(
                    "func(%0: f32[n, 3]) {\n  %1 = map %0 {f=add(a0, 1.5:f32)} : f32[n, 3]\n  %2 = reshape %1 {shape=[3*n]} : f32[3*n]\n  return %2\n}\n",
                ))
            },
            Changes::Nothing,
        ),
    ];
    for (what, made, changes) in wrong {
        let e = planted(made, changes).expect_err(what);
        assert!(e[0].contains("`planted` is judged wrong"), "{what}: {e:?}");
    }
}

#[test]
fn right_passes_are_not() {
    planted(|f, _| Ok(f.clone()), Changes::Nothing).expect("nothing is changed");
    planted(|_, _| Ok(with("sub(a0, -1.5:f32)")), Changes::Nothing).expect("the same bits");
    planted(|_, _| Ok(with("mul(add(a0, 1.5:f32), 1.0000001:f32)")), Changes::Within(1e-6)).expect("within rounding");
}

#[test]
fn heads_are_read() {
    let read = |text: &str| Head::parse(text, PIPELINE).map(|h| format!("{:?}", h.context));
    assert_eq!(
        read("test fold layout\nmachine avx512-vnni\nset tolerance=0 level=3 without=fold,layout\nset sanitize device"),
        read("test narrow\n\nmachine avx512-vnni\nset sanitize device level=3 without=fold,layout tolerance=0"),
    );
}

#[test]
fn heads_that_make_no_sense_are_refused() {
    for (head, message) in [
        ("", "line 1: the head has no line `test`, which says what to run"),
        ("machine avx2", "line 1: the head has no line `test`, which says what to run"),
        ("test", "line 1: `test` names nothing to run"),
        ("test fold\ntest layout", "line 2: a second line `test`"),
        ("test nonsense", "line 1: no pass is called `nonsense`; there are import, "),
        ("test fold parse", "line 1: `parse` is alone on its line"),
        ("test kernels lower", "line 1: `kernels` is the last of a line"),
        ("test fold kernels", "line 1: there are kernels after `lower`"),
        ("test lower fold", "line 1: nothing can follow `lower`"),
        ("test fold\nmachine z80", "line 2: no machine is called `z80`; there are scalar, sse2, "),
        ("test fold\nmachine", "line 2: `machine` has one name"),
        ("test parse\nmachine avx2", "line 2: only passes have a machine"),
        ("test fold\n\nset speed=1", "line 3: no option is called `speed`; there are level, "),
        ("test fold\nset level=9", "line 2: `level` is 0 to 3, not `9`"),
        ("test fold\nset tolerance", "line 2: `tolerance` is a number that is not negative, not `(nothing)`"),
        ("test fold\nset sanitize=1", "line 2: `sanitize` has no value"),
        ("test fold\nset inputs=odd", "line 2: `inputs` is `finite` or `all`, not `odd`"),
    ] {
        let e = Head::parse(head, PIPELINE).expect_err(head).to_string();
        assert!(e.starts_with(message), "{head}: {e}");
    }
}

#[test]
fn what_a_file_says_is_run() {
    let got = run(&format!("test fold\n\n{CASE}"), PIPELINE).expect("a valid case");
    assert_eq!(got, format!("test fold\n\n{CASE}// ----\n{CASE}"));
    let e = run("test fold\n\nfunc(%0: f32[n]) {\n  return %7\n}\n", PIPELINE).expect_err("an invalid case");
    assert!(e[0].starts_with("case 1: "), "{e:?}");
}
