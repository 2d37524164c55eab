//! All rules, by theme. The equation is the rule; comments say when it matters.
mod algebra;
mod combine;
mod lookup;
mod movement;

use crate::rule::Rule;

/// Every rule, in a fixed order.
pub fn all() -> Vec<Rule> {
    [
        algebra::RULES,
        movement::RULES,
        lookup::RULES,
        combine::REDUCTIONS,
        combine::CONTRACTIONS,
        combine::CONVOLUTIONS,
        combine::SCALES,
    ]
    .concat()
}
