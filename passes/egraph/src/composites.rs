//! Composites in the spellings that exporters use, found among the terms that rules made equal.
use crate::{rule::Finder, term::Graph};
use egg::Id;
use std::collections::{BTreeMap, BTreeSet};

/// All composites with their spellings.
fn composites() -> Vec<(&'static str, String)> {
    let mut all: Vec<(&'static str, String)> = Vec::new();
    let mut add = |name, spellings: &[String]| all.extend(spellings.iter().map(|s| (name, s.clone())));
    let text = |s: &str| s.to_owned();
    // x · (1 + erf(x / √2)) / 2
    for inner in ["(erf (div ?x ?c))", "(erf (mul ?x ?c))"] {
        add("gelu", &halves(inner));
    }
    add("gelu_tanh", &halves("(tanh (mul (add ?x (mul (pow ?x 3) ?k)) ?c))"));
    add("gelu_tanh", &halves("(tanh (mul (add ?x (mul (mul (mul ?x ?x) ?x) ?k)) ?c))"));
    add("silu", &[format!("(mul ?x {})", sigmoid("?x")), text("(div ?x (add (exp (neg ?x)) 1))")]);
    let ramp = |x: &str| format!("(min (max (add {x} 3) 0) 6)");
    add(
        "hard_swish",
        &[
            format!("(div (mul ?x {}) 6)", ramp("?x")),
            format!("(mul ?x (div {} 6))", ramp("?x")),
            format!("(mul (mul ?x {}) ?c)", ramp("?x")),
            text("(mul ?x (min (max (add (div ?x 6) 0.5) 0) 1))"),
            text("(mul ?x (min (max (add (mul ?x ?c) 0.5) 0) 1))"),
            text("(mul ?x (max (min (add (mul ?x ?c) 0.5) 1) 0))"),
        ],
    );
    add("softmax", &[softmax("?x")]);
    add("log_softmax", &[text("(sub ?z (broadcast (log (reduce (exp ?z) sum ?a)) ?s ?b))")]);
    for (mean, square) in means("?x").into_iter().flat_map(|m| ["(mul ?d ?d)", "(pow ?d 2)"].map(|s| (m.clone(), s))) {
        let d = format!("(sub ?x (broadcast {mean} ?s ?b))");
        for variance in means(&square.replace("?d", &d)) {
            let scale = format!("(sqrt (add {variance} ?e))");
            add(
                "layer_norm",
                &[
                    format!("(div {d} (broadcast {scale} ?s ?b))"),
                    format!("(mul {d} (broadcast (div 1 {scale}) ?s ?b))"),
                ],
            );
        }
    }
    for square in ["(mul ?x ?x)", "(pow ?x 2)"] {
        for mean in means(square) {
            let scale = format!("(sqrt (add {mean} ?e))");
            add(
                "rms_norm",
                &[format!("(div ?x (broadcast {scale} ?s ?b))"), format!("(mul ?x (broadcast (div 1 {scale}) ?s ?b))")],
            );
        }
    }
    for square in ["(mul ?x ?x)", "(pow ?x 2)"] {
        let length = format!("(sqrt (reduce {square} sum ?a))");
        let lengths = [format!("(max {length} ?e)"), format!("(add {length} ?e)"), length];
        lengths.iter().for_each(|n| add("l2_norm", &[format!("(div ?x (broadcast {n} ?s ?b))")]));
    }
    // x · cos + (the halves of x exchanged, one negated) · sin
    let turned = "(concat (neg (slice ?x ?s1 ?n ?k)) (slice ?x ?s0 ?n ?k) ?a)";
    add("rotary_embedding", &[format!("(add (mul ?x ?c) (mul {turned} ?d))")]);
    // softmax(q·k · scale + mask) · v
    let product = "(contract ?q ?k ?c0 ?c1 ?c2 ?c3)";
    let scaled = [text(product), format!("(mul {product} ?w)"), format!("(div {product} ?w)")];
    for scores in scaled.iter().flat_map(|s| [s.clone(), format!("(add {s} ?m)")]) {
        add("attention", &[format!("(contract {} ?v ?d0 ?d1 ?d2 ?d3)", softmax(&scores))]);
    }
    let cell = format!("(add (mul {} ?c) (mul {} (tanh ?g)))", sigmoid("?f"), sigmoid("?i"));
    add("lstm_cell", &[format!("(mul {} (tanh {cell}))", sigmoid("?o"))]);
    add("gru_cell", &[text("(add (mul (sub 1 ?z) ?n) (mul ?z ?h))"), text("(add (mul ?n (sub 1 ?z)) (mul ?z ?h))")]);
    all
}

fn sigmoid(x: &str) -> String {
    format!("(div 1 (add (exp (neg {x})) 1))")
}

fn softmax(x: &str) -> String {
    let e = format!("(exp (sub {x} (broadcast (reduce {x} max ?a) ?s ?b)))");
    format!("(div {e} (broadcast (reduce {e} sum ?a) ?s ?b))")
}

/// The mean along axes: a sum over a number.
fn means(x: &str) -> [String; 2] {
    [format!("(div (reduce {x} sum ?a) ?n)"), format!("(mul (reduce {x} sum ?a) ?n)")]
}

/// x · (1 + f) / 2 in any order.
fn halves(f: &str) -> [String; 4] {
    let one = format!("(add {f} 1)");
    [
        format!("(mul (mul ?x {one}) 0.5)"),
        format!("(mul (mul ?x 0.5) {one})"),
        format!("(mul ?x (mul {one} 0.5))"),
        format!("(div (mul ?x {one}) 2)"),
    ]
}

/// Finds all composites.
pub(super) struct Composites(Vec<(&'static str, Finder)>);

impl Composites {
    pub(super) fn new() -> Composites {
        Composites(composites().into_iter().map(|(name, text)| (name, Finder::new(&text))).collect())
    }

    /// How many of the given classes are each composite.
    pub(super) fn count(&self, graph: &Graph, classes: &BTreeSet<Id>) -> BTreeMap<&'static str, usize> {
        let mut found: BTreeMap<&'static str, BTreeSet<Id>> = BTreeMap::new();
        for (name, finder) in &self.0 {
            found.entry(name).or_default().extend(finder.find(graph).into_iter().filter(|c| classes.contains(c)));
        }
        found.into_iter().map(|(name, ids)| (name, ids.len())).filter(|(_, n)| *n > 0).collect()
    }
}
