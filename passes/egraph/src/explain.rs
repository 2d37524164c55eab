//! The proof by egg that the result for a node equals the node, step by step.
use crate::{
    Optimiser,
    encode::encode,
    known,
    regions::{self, Piece},
};
use egg::Id;
use numrsc_facts::{Context, Error, Result};
use numrsc_ir::{Func, Value};
use std::collections::BTreeMap;

/// The steps from a node of a function to what the optimiser chose for it, one term per line.
pub fn explain(func: &Func, value: Value, cx: &Context) -> Result<String> {
    let missing = || Error::Unsupported(format!("{value} is not a node that rules look at"));
    let found = regions::cut(func)?.into_iter().find_map(|p| match p {
        Piece::Region(r) => r.nodes.iter().find(|(v, _)| *v == value).map(|(_, at)| *at).map(|at| (r, at)),
        Piece::Node(_) => None,
    });
    let (region, at) = found.ok_or_else(missing)?;
    let optimiser = Optimiser::new(cx);
    let inputs = region.inputs.iter().map(|i| known(func, *i)).collect();
    let (graph, classes) = encode(&region.func, inputs, true);
    let class = classes[at.0 as usize];
    let original = graph.id_to_expr(class);
    let mut graph = optimiser.saturate(&optimiser.rewrites, graph, &mut BTreeMap::new());
    let roots: Vec<Id> = region.func.results().iter().map(|r| classes[r.0 as usize]).chain([class]).collect();
    let problem = super::extract::Problem::new(&graph, &roots, &optimiser.model);
    let choice = problem.greedy();
    let chosen = problem.expression(*problem.roots().last().ok_or_else(missing)?, &choice);
    let mut proof = graph.explain_equivalence(&original, &chosen);
    let steps = proof.get_flat_strings();
    Ok(format!("{value}: {} steps\n{}\n", steps.len() - 1, steps.join("\n")))
}
