//! Movement: transposes, reshapes, broadcasts, slices, pads and concatenations meet, cancel, and move past what is done
//! to each element. Movement goes towards the results (where it meets other movement), slices and what drops elements
//! go towards the inputs (where they save work).
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(super) const RULES: &[Rule] = &[
    // Movement after movement.
    rule("transpose-transpose",   "(transpose (transpose ?x ?p) ?q)",                        "(transpose ?x (compose ?p ?q))"),
    rule("transpose-identity",    "(transpose ?x ?p)",                                       "?x").when(&["(identity ?p)"]),
    rule("transpose-of-ones",     "(transpose ?x ?p)",                                       "(reshape ?x (permuted (shape ?x) ?p))").when(&["(moves_ones ?x ?p)"]),
    rule("reshape-reshape",       "(reshape (reshape ?x ?s) ?t)",                            "(reshape ?x ?t)").when(&["(same_count ?x ?s)"]),
    rule("reshape-identity",      "(reshape ?x ?s)",                                         "?x"),
    rule("broadcast-broadcast",   "(broadcast (broadcast ?x ?s ?a) ?t ?b)",                  "(broadcast ?x ?t (compose ?b ?a))"),
    rule("broadcast-identity",    "(broadcast ?x ?s ?a)",                                    "?x").when(&["(identity ?a)"]),
    rule("broadcast-of-nothing",  "(broadcast ?x ?s ?a)",                                    "(reshape ?x ?s)").when(&["(same_count ?x ?s)"]),
    rule("broadcast-of-ones",     "(broadcast (reshape ?x ?s) ?t ?a)",                       "(broadcast ?x ?t (unit_axes ?x ?s ?a))"),
    rule("broadcast-transpose",   "(transpose (broadcast ?x ?s ?a) ?p)",                     "(broadcast ?x (permuted ?s ?p) (places ?p ?a))"),
    rule("slice-slice",           "(slice (slice ?x ?s ?n ?k) ?t ?m ?l)",                    "(slice ?x (starts ?s ?k ?t) ?m (product ?k ?l))"),
    rule("slice-identity",        "(slice ?x ?s ?n ?k)",                                     "?x").when(&["(all_zero ?s)", "(all_one ?k)"]),
    rule("slice-transpose",       "(slice (transpose ?x ?p) ?s ?n ?k)",                      "(transpose (slice ?x (permuted ?s (inverse ?p)) (permuted ?n (inverse ?p)) (permuted ?k (inverse ?p))) ?p)"),
    rule("slice-broadcast",       "(slice (broadcast ?x ?s ?a) ?t ?n ?k)",                   "(broadcast (slice ?x (picked ?t ?a) (picked ?n ?a) (permuted ?k ?a)) ?n ?a)").when(&["(full_axes ?x ?s ?a)"]),
    rule("pad-nothing",           "(pad ?x ?v ?l ?h)",                                       "?x").when(&["(all_zero ?l)", "(all_zero ?h)"]),
    rule("pad-pad",               "(pad (pad ?x ?v ?l ?h) ?v ?m ?i)",                        "(pad ?x ?v (plus ?l ?m) (plus ?h ?i))").when(&["(not_negative ?l)", "(not_negative ?h)", "(not_negative ?m)", "(not_negative ?i)"]),
    rule("pad-transpose",         "(pad (transpose ?x ?p) ?v ?l ?h)",                        "(transpose (pad ?x ?v (permuted ?l (inverse ?p)) (permuted ?h (inverse ?p))) ?p)"),
    rule("concat-one",            "(concat ?x ?a)",                                          "?x"),
    rule("concat-casts",          "(concat (cast ?x ?t) (cast ?y ?t) ?a)",                   "(cast (concat ?x ?y ?a) ?t)").when(&["(constant ?x)", "(constant ?y)"]), // joined weights stay narrow
    rule("concat-transposes",     "(concat (transpose ?x ?p) (transpose ?y ?p) ?a)",         "(transpose (concat ?x ?y (at ?p ?a)) ?p)"),

    // Movement before functions of elements: the function first.
    rule("call-transpose",        "(call ?f (transpose ?x ?p))",                             "(transpose (call ?f ?x) ?p)"),
    rule("call-transpose-number", "(call ?f (transpose ?x ?p) ?c)",                          "(transpose (call ?f ?x ?c) ?p)").when(&["(plain ?c)"]),
    rule("call-number-transpose", "(call ?f ?c (transpose ?x ?p))",                          "(transpose (call ?f ?c ?x) ?p)").when(&["(plain ?c)"]),
    rule("call-transposes",       "(call ?f (transpose ?x ?p) (transpose ?y ?p))",           "(transpose (call ?f ?x ?y) ?p)"),
    rule("call-3-transposes",     "(call ?f (transpose ?x ?p) (transpose ?y ?p) (transpose ?z ?p))", "(transpose (call ?f ?x ?y ?z) ?p)"),
    rule("call-transpose-const",  "(call ?f (transpose ?x ?p) ?c)",                          "(transpose (call ?f ?x (transpose ?c (inverse ?p))) ?p)").when(&["(constant ?c)"]),
    rule("call-const-transpose",  "(call ?f ?c (transpose ?x ?p))",                          "(transpose (call ?f (transpose ?c (inverse ?p)) ?x) ?p)").when(&["(constant ?c)"]),
    rule("call-transpose-repeat", "(call ?f (transpose ?x ?p) (broadcast ?y ?s ?a))",        "(transpose (call ?f ?x (transpose (broadcast ?y ?s ?a) (inverse ?p))) ?p)"),
    rule("call-repeat-transpose", "(call ?f (broadcast ?y ?s ?a) (transpose ?x ?p))",        "(transpose (call ?f (transpose (broadcast ?y ?s ?a) (inverse ?p)) ?x) ?p)"),
    rule("call-reshape",          "(call ?f (reshape ?x ?s))",                               "(reshape (call ?f ?x) ?s)"),
    rule("call-reshape-number",   "(call ?f (reshape ?x ?s) ?c)",                            "(reshape (call ?f ?x ?c) ?s)").when(&["(plain ?c)"]),
    rule("call-number-reshape",   "(call ?f ?c (reshape ?x ?s))",                            "(reshape (call ?f ?c ?x) ?s)").when(&["(plain ?c)"]),
    rule("call-reshapes",         "(call ?f (reshape ?x ?s) (reshape ?y ?s))",               "(reshape (call ?f ?x ?y) ?s)"),
    rule("call-reshape-const",    "(call ?f (reshape ?x ?s) ?c)",                            "(reshape (call ?f ?x (reshape ?c (shape ?x))) ?s)").when(&["(constant ?c)", "(same_count ?x ?s)"]),
    rule("call-const-reshape",    "(call ?f ?c (reshape ?x ?s))",                            "(reshape (call ?f (reshape ?c (shape ?x)) ?x) ?s)").when(&["(constant ?c)", "(same_count ?x ?s)"]),
    // Repeated elements need not be computed repeatedly.
    rule("call-broadcast",        "(call ?f (broadcast ?x ?s ?a))",                          "(broadcast (call ?f ?x) ?s ?a)"),
    rule("call-broadcast-number", "(call ?f (broadcast ?x ?s ?a) ?c)",                       "(broadcast (call ?f ?x ?c) ?s ?a)").when(&["(plain ?c)"]),
    rule("call-number-broadcast", "(call ?f ?c (broadcast ?x ?s ?a))",                       "(broadcast (call ?f ?c ?x) ?s ?a)").when(&["(plain ?c)"]),
    rule("call-broadcasts",       "(call ?f (broadcast ?x ?s ?a) (broadcast ?y ?s ?a))",     "(broadcast (call ?f ?x ?y) ?s ?a)"),
    // What a slice drops need not be computed.
    rule("slice-call",            "(slice (call ?f ?x) ?s ?n ?k)",                           "(call ?f (slice ?x ?s ?n ?k))"),
    rule("slice-call-number",     "(slice (call ?f ?x ?c) ?s ?n ?k)",                        "(call ?f (slice ?x ?s ?n ?k) ?c)").when(&["(plain ?c)"]),
    rule("slice-number-call",     "(slice (call ?f ?c ?x) ?s ?n ?k)",                        "(call ?f ?c (slice ?x ?s ?n ?k))").when(&["(plain ?c)"]),
    rule("slice-calls",           "(slice (call ?f ?x ?y) ?s ?n ?k)",                        "(call ?f (slice ?x ?s ?n ?k) (slice ?y ?s ?n ?k))"),
];
