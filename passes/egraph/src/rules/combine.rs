//! Reductions, contractions and convolutions: what they absorb at no cost.
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(super) const REDUCTIONS: &[Rule] = &[
    rule("reduce-transpose",  "(reduce (transpose ?x ?p) ?f ?a)",      "(transpose (reduce ?x ?f (compose ?p ?a)) (kept ?p ?a))").when(&["(ascending (compose ?p ?a))"]), // in the same order
    rule("reduce-max-max",    "(reduce (reduce ?x max ?a) max ?b)",    "(reduce ?x max (union ?a ?b))"),
    rule("reduce-min-min",    "(reduce (reduce ?x min ?a) min ?b)",    "(reduce ?x min (union ?a ?b))"),
    rule("reduce-sum-sum",    "(reduce (reduce ?x sum ?a) sum ?b)",    "(reduce ?x sum (union ?a ?b))").rounding(),
    rule("reduce-max-nothing", "(reduce ?x max [])",                  "?x"), // a sum would turn -0 into 0
    rule("reduce-max-one",    "(reduce ?x max ?a)",                    "(reshape ?x (without (shape ?x) ?a))").when(&["(ones_at ?x ?a)"]),
    rule("reduce-min-one",    "(reduce ?x min ?a)",                    "(reshape ?x (without (shape ?x) ?a))").when(&["(ones_at ?x ?a)"]),
    rule("reduce-prod-one",   "(reduce ?x prod ?a)",                   "(reshape ?x (without (shape ?x) ?a))").when(&["(ones_at ?x ?a)"]),
    // Σ x·c = c·Σ x
    rule("sum-scaled",        "(reduce (mul ?x ?c) sum ?a)",           "(mul (reduce ?x sum ?a) ?c)").when(&["(number ?c)", "(finite ?c)", "(float ?x)"]).rounding(),
    rule("window-max-pad",    "(window (pad ?x ?v ?l ?h) max ?n ?s ?d ?lo ?hi)", "(window ?x max ?n ?s ?d (plus ?lo (tail ?l ?n)) (plus ?hi (tail ?h ?n)))").when(&["(lowest ?v)", "(head_zero ?l ?n)", "(head_zero ?h ?n)", "(not_negative ?l)", "(not_negative ?h)", "(not_negative ?lo)", "(not_negative ?hi)"]),
    rule("window-sum-pad",    "(window (pad ?x ?v ?l ?h) sum ?n ?s ?d ?lo ?hi)", "(window ?x sum ?n ?s ?d (plus ?lo (tail ?l ?n)) (plus ?hi (tail ?h ?n)))").when(&["(zero ?v)", "(head_zero ?l ?n)", "(head_zero ?h ?n)", "(not_negative ?l)", "(not_negative ?h)", "(not_negative ?lo)", "(not_negative ?hi)"]),
];

#[rustfmt::skip]
pub(super) const CONTRACTIONS: &[Rule] = &[
    // A transposed operand is the same operand with other axes.
    rule("contract-transpose-a", "(contract (transpose ?a ?p) ?b ?ab ?bb ?as ?bs)", "(contract ?a ?b (compose ?p ?ab) ?bb (compose ?p ?as) ?bs)").when(&["(keeps_free ?p ?ab ?as)"]),
    rule("contract-transpose-b", "(contract ?a (transpose ?b ?p) ?ab ?bb ?as ?bs)", "(contract ?a ?b ?ab (compose ?p ?bb) ?as (compose ?p ?bs))").when(&["(keeps_free ?p ?bb ?bs)"]),
    // (A·B)ᵀ = Bᵀ·Aᵀ
    rule("contract-swap",        "(transpose (contract ?a ?b ?ab ?bb ?as ?bs) ?p)", "(contract ?b ?a ?bb ?ab ?bs ?as)").when(&["(equal ?p (swap_order ?a ?b ?ab ?as))"]),
    // A·v is a sum along the rows of A, which needs no columns side by side. Integers have the same sum in any order.
    rule("contract-vector",      "(contract ?a ?b [] [] ?as ?bs)", "(reshape (reduce (mul ?a (broadcast (reshape ?b (picked (shape ?b) ?bs)) (shape ?a) ?as)) sum ?as) (joined (without (shape ?a) ?as) (without (shape ?b) ?bs)))").when(&["(integer ?a)", "(vector ?b ?bs)"]),
    // (A·B)·C = A·(B·C): by cost
    rule("contract-assoc",       "(contract (contract ?a ?b [] [] [1] [0]) ?c [] [] [1] [0])", "(contract ?a (contract ?b ?c [] [] [1] [0]) [] [] [1] [0])").when(&["(rank_is ?a 2)", "(rank_is ?b 2)", "(rank_is ?c 2)"]).rounding(),
];

#[rustfmt::skip]
pub(super) const CONVOLUTIONS: &[Rule] = &[
    rule("conv-pad",       "(conv (pad ?x ?v ?l ?h) ?w ?s ?d ?sp ?lo ?hi ?g 1 1)", "(conv ?x ?w ?s ?d ?sp (plus ?lo (space ?l)) (plus ?hi (space ?h)) ?g 1 1)").when(&["(zero ?v)", "(space_only ?l)", "(space_only ?h)", "(all_one ?sp)", "(not_negative ?l)", "(not_negative ?h)", "(not_negative ?lo)", "(not_negative ?hi)"]),
    // A window of one element is a product of matrices, and its transposes may cancel.
    rule("conv-pointwise", "(conv ?x ?w ?s ?d ?sp ?lo ?hi 1 1 1)",                 "(transpose (contract ?x (reshape ?w (matrix ?w)) [] [] [1] [1]) (channels_last ?x))").when(&["(is_pointwise ?w)", "(all_one ?s)", "(all_one ?sp)", "(all_zero ?lo)", "(all_zero ?hi)"]),
];

/// Constants go into weights, where they cost nothing.
#[rustfmt::skip]
pub(super) const SCALES: &[Rule] = &[
    rule("conv-scale",       "(mul (conv ?x ?w ?s ?d ?sp ?lo ?hi ?g 1 1) (broadcast ?k ?t [1]))",  "(conv ?x (mul ?w (broadcast ?k (shape ?w) [0])) ?s ?d ?sp ?lo ?hi ?g 1 1)").when(&["(finite ?w)", "(finite ?k)"]).rounding(),
    rule("conv-number",      "(mul (conv ?x ?w ?s ?d ?sp ?lo ?hi ?g 1 1) ?k)",                     "(conv ?x (mul ?w ?k) ?s ?d ?sp ?lo ?hi ?g 1 1)").when(&["(finite ?w)", "(finite ?k)", "(number ?k)", "(float ?w)"]).rounding(),
    rule("contract-scale",   "(mul (contract ?x ?w [] [] ?a [0]) (broadcast ?k ?t ?l))",       "(contract ?x (mul ?w (broadcast ?k (shape ?w) [1])) [] [] ?a [0])").when(&["(finite ?w)", "(finite ?k)", "(rank_is ?w 2)", "(rank_is ?k 1)", "(last_axis ?l ?t)"]).rounding(),
    rule("contract-scale-t", "(mul (contract ?x ?w [] [] ?a [1]) (broadcast ?k ?t ?l))",       "(contract ?x (mul ?w (broadcast ?k (shape ?w) [0])) [] [] ?a [1])").when(&["(finite ?w)", "(finite ?k)", "(rank_is ?w 2)", "(rank_is ?k 1)", "(last_axis ?l ?t)"]).rounding(),
    rule("contract-number",  "(mul (contract ?x ?w ?ab ?bb ?as ?bs) ?k)",                      "(contract ?x (mul ?w ?k) ?ab ?bb ?as ?bs)").when(&["(finite ?w)", "(finite ?k)", "(number ?k)", "(float ?w)"]).rounding(),
    rule("scaled-contract",  "(contract (mul ?x ?k) ?w ?ab ?bb ?as ?bs)",                      "(contract ?x (mul ?w ?k) ?ab ?bb ?as ?bs)").when(&["(finite ?w)", "(finite ?k)", "(number ?k)", "(float ?w)"]).rounding(),
];
