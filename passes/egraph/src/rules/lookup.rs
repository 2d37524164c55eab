//! Look-ups in constant tables: a function of each looked-up row is applied to the table at compile time. Only for
//! small tables: a large one may have other users, and would be stored twice.
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(super) const RULES: &[Rule] = &[
    // Tables of indices stay as narrow as they are.
    rule("call-gather",          "(call ?f (gather ?t ?i ?a ?n))",                                "(gather (call ?f ?t) ?i ?a ?n)").when(&["(constant ?t)", "(few ?t)", "(no_wider (call ?f ?t) ?t)"]),
    rule("call-gather-number",   "(call ?f (gather ?t ?i ?a ?n) ?c)",                             "(gather (call ?f ?t ?c) ?i ?a ?n)").when(&["(constant ?t)", "(few ?t)", "(plain ?c)"]),
    rule("call-number-gather",   "(call ?f ?c (gather ?t ?i ?a ?n))",                             "(gather (call ?f ?c ?t) ?i ?a ?n)").when(&["(constant ?t)", "(few ?t)", "(plain ?c)"]),
    rule("call-gathers",         "(call ?f (gather ?t ?i ?a ?n) (gather ?u ?i ?a ?n))",           "(gather (call ?f ?t ?u) ?i ?a ?n)").when(&["(constant ?t)", "(constant ?u)", "(few ?t)"]),
    rule("call-gather-row",      "(call ?f (gather ?t ?i 0 0) (broadcast ?c ?s ?a))",             "(gather (call ?f ?t (broadcast (reshape ?c (squeezed ?c)) (shape ?t) (row_axes ?c ?a ?i))) ?i 0 0)").when(&["(constant ?t)", "(constant ?c)", "(few ?t)"]),
    rule("call-row-gather",      "(call ?f (broadcast ?c ?s ?a) (gather ?t ?i 0 0))",             "(gather (call ?f (broadcast (reshape ?c (squeezed ?c)) (shape ?t) (row_axes ?c ?a ?i)) ?t) ?i 0 0)").when(&["(constant ?t)", "(constant ?c)", "(few ?t)"]),
    // An embedding and a product: the product of the whole table.
    rule("contract-gather",      "(contract (gather ?t ?i 0 0) ?w [] [] ?k ?l)",                  "(gather (contract ?t ?w [] [] (table_axes ?k ?i) ?l) ?i 0 0)").when(&["(constant ?t)", "(constant ?w)", "(few (contract ?t ?w [] [] (table_axes ?k ?i) ?l))"]),
    // A row with a single one, times a matrix, is a row of the matrix; without any, it is zero, for which the table has
    // a row more. A sum is never -0.
    rule("contract-one-hot",     "(contract (cast (eq (broadcast ?i ?s ?a) (broadcast ?n ?s ?b)) ?t) ?w [] [] ?k [0])",
         "(gather (add (concat ?w (mul (slice ?w [0,0] (first_row ?w) [1,1]) 0) 0) 0) (select (and (le 0 (cast (reshape ?i (without ?s ?k)) i64)) (lt (cast (reshape ?i (without ?s ?k)) i64) (rows ?w))) (cast (reshape ?i (without ?s ?k)) i64) (rows ?w)) 0 0)")
        .when(&["(counts_along ?n ?s ?b)", "(repeats_last ?i ?s ?a)", "(same_count ?i (without ?s ?k))", "(last_axis ?k ?s)", "(widens ?i i64)", "(constant ?w)", "(finite ?w)", "(float ?w)", "(few ?w)"]),
];
