//! Algebra of elements. What is exact holds for every bit of every input: NaN, infinities and the sign of zero
//! included.
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(super) const RULES: &[Rule] = &[
    // Neutral elements and idempotence.
    rule("mul-one",        "(mul ?x 1)",                         "?x"),
    rule("div-one",        "(div ?x 1)",                         "?x"),
    rule("sub-zero",       "(sub ?x 0)",                         "?x"),
    rule("add-zero",       "(add ?x 0)",                         "?x").when(&["(integer ?x)"]),
    rule("add-minus-zero", "(add ?x -0)",                        "?x").when(&["(float ?x)"]), // x + 0 would lose the sign of -0
    rule("pow-one",        "(pow ?x 1)",                         "?x"),
    rule("pow-two",        "(pow ?x 2)",                         "(mul ?x ?x)").when(&["(has_type ?x f32)"]),
    rule("and-true",       "(and ?x 1)",                         "?x").when(&["(has_type ?x bool)"]),
    rule("or-false",       "(or ?x 0)",                          "?x"),
    rule("xor-zero",       "(xor ?x 0)",                         "?x"),
    rule("min-same",       "(min ?x ?x)",                        "?x"),
    rule("max-same",       "(max ?x ?x)",                        "?x"),
    rule("and-same",       "(and ?x ?x)",                        "?x"),
    rule("or-same",        "(or ?x ?x)",                         "?x"),
    rule("select-same",    "(select ?c ?x ?x)",                  "?x"),
    rule("select-true",    "(select 1 ?x ?y)",                   "?x"),
    rule("select-false",   "(select 0 ?x ?y)",                   "?y"),

    // Signs.
    rule("neg-neg",        "(neg (neg ?x))",                     "?x"),
    rule("not-not",        "(not (not ?x))",                     "?x"),
    rule("abs-abs",        "(abs (abs ?x))",                     "(abs ?x)"),
    rule("abs-neg",        "(abs (neg ?x))",                     "(abs ?x)").when(&["(float ?x)"]),
    rule("mul-minus-one",  "(mul ?x -1)",                        "(neg ?x)"),
    rule("div-minus-one",  "(div ?x -1)",                        "(neg ?x)").when(&["(float ?x)"]),
    rule("zero-minus",     "(sub 0 ?x)",                         "(neg ?x)").when(&["(integer ?x)"]),
    rule("add-neg",        "(add ?x (neg ?y))",                  "(sub ?x ?y)"),
    rule("sub-neg",        "(sub ?x (neg ?y))",                  "(add ?x ?y)"),
    rule("mul-negs",       "(mul (neg ?x) (neg ?y))",            "(mul ?x ?y)"),
    rule("div-negs",       "(div (neg ?x) (neg ?y))",            "(div ?x ?y)").when(&["(float ?x)"]),
    rule("square-abs",     "(mul (abs ?x) (abs ?x))",            "(mul ?x ?x)"),

    // Cheaper ways to the same bits.
    rule("div-power-of-2", "(div ?x ?c)",                        "(mul ?x (reciprocal ?c))").when(&["(power_of_two ?c)"]),
    rule("relu-relu",      "(max (max ?x ?c) ?d)",               "(max ?x (max ?c ?d))").when(&["(number ?c)", "(number ?d)"]),
    rule("clip-clip",      "(min (min ?x ?c) ?d)",               "(min ?x (min ?c ?d))").when(&["(number ?c)", "(number ?d)"]),
    rule("select-not",     "(select (not ?c) ?x ?y)",            "(select ?c ?y ?x)").when(&["(has_type ?c bool)"]),
    rule("cast-same",      "(cast ?x ?t)",                       "?x").when(&["(has_type ?x ?t)"]),
    rule("cast-back",      "(cast (cast ?x ?w) ?t)",             "?x").when(&["(has_type ?x ?t)", "(widens ?x ?w)"]),
    rule("cast-cast",      "(cast (cast ?x ?w) ?t)",             "(cast ?x ?t)").when(&["(widens ?x ?w)"]),
    rule("round-round",    "(round (round ?x))",                 "(round ?x)"),
    rule("floor-floor",    "(floor (floor ?x))",                 "(floor ?x)"),
    rule("not-less",       "(not (lt ?x ?y))",                   "(le ?y ?x)").when(&["(integer ?x)"]),
    rule("not-less-equal", "(not (le ?x ?y))",                   "(lt ?y ?x)").when(&["(integer ?x)"]),

    // Integers wrap, so they may be regrouped.
    rule("int-add-add",    "(add (add ?x ?c) ?d)",               "(add ?x (add ?c ?d))").when(&["(integer ?x)", "(constant ?c)", "(constant ?d)"]),
    rule("int-mul-mul",    "(mul (mul ?x ?c) ?d)",               "(mul ?x (mul ?c ?d))").when(&["(integer ?x)", "(constant ?c)", "(constant ?d)"]),
    rule("int-sub-add",    "(sub (add ?x ?y) ?y)",               "?x").when(&["(integer ?x)"]),
    rule("int-add-sub",    "(add (sub ?x ?y) ?y)",               "?x").when(&["(integer ?x)"]),
    rule("int-factor",     "(add (mul ?x ?y) (mul ?x ?z))",      "(mul ?x (add ?y ?z))").when(&["(integer ?x)"]),

    // Constants meet: floats are regrouped, which rounds elsewhere.
    rule("add-add",        "(add (add ?x ?c) ?d)",               "(add ?x (add ?c ?d))").when(&["(float ?x)", "(finite ?c)", "(finite ?d)"]).rounding(),
    rule("sub-add",        "(add (sub ?x ?c) ?d)",               "(add ?x (sub ?d ?c))").when(&["(float ?x)", "(finite ?c)", "(finite ?d)"]).rounding(),
    rule("add-sub",        "(sub (add ?x ?c) ?d)",               "(add ?x (sub ?c ?d))").when(&["(float ?x)", "(finite ?c)", "(finite ?d)"]).rounding(),
    rule("mul-mul",        "(mul (mul ?x ?c) ?d)",               "(mul ?x (mul ?c ?d))").when(&["(float ?x)", "(finite ?c)", "(finite ?d)"]).rounding(),
    rule("div-mul",        "(mul (div ?x ?c) ?d)",               "(mul ?x (div ?d ?c))").when(&["(float ?x)", "(finite ?c)", "(finite ?d)"]).rounding(),
    rule("mul-add",        "(mul (add ?x ?c) ?d)",               "(add (mul ?x ?d) (mul ?c ?d))").when(&["(float ?x)", "(finite ?c)", "(finite ?d)"]).rounding(),
    rule("mul-sub",        "(mul (sub ?x ?c) ?d)",               "(sub (mul ?x ?d) (mul ?c ?d))").when(&["(float ?x)", "(finite ?c)", "(finite ?d)"]).rounding(),
    rule("div-const",      "(div ?x ?c)",                        "(mul ?x (reciprocal ?c))").when(&["(number ?c)", "(finite ?c)"]).rounding(),
    rule("div-div",        "(div (div ?x ?y) ?z)",               "(div ?x (mul ?y ?z))").when(&["(float ?x)"]).rounding(),
    rule("mul-recip",      "(mul ?x (div 1 ?y))",                "(div ?x ?y)").when(&["(float ?x)"]).rounding(),
];
