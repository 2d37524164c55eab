//! Functions that a model defines itself: who calls whom, and how large the model is without them.
use super::{check::function_path, order::Dependencies, proto::FunctionProto, short};
use crate::error::{Place, Problem};

/// What one function or the main graph holds, inner graphs included.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) nodes: usize,
    /// One entry per call.
    pub(super) functions: Vec<usize>,
}

/// Functions that call functions can stand for exponentially many nodes; this is how many are accepted, plus
/// 64 for each node in the file.
const MOST_EXPANDED: usize = 200_000;

/// Functions may call each other, but not in a circle, and not so often that the model explodes when expanded.
pub(super) fn check(functions: &[FunctionProto], bodies: &[Calls], main: &Calls) -> Option<Problem> {
    let mut dependencies = Dependencies::default();
    for body in bodies {
        body.functions.iter().for_each(|&callee| dependencies.push(callee));
        dependencies.end_node();
    }
    let order = match dependencies.sort() {
        Ok(order) => order,
        Err(cycle) => {
            let names: Vec<String> =
                cycle.iter().take(8).map(|&i| format!("`{}`", short(&functions[i].name))).collect();
            let place = Place::graph(function_path(&functions[cycle[0]]));
            return Some(Problem::new(place, format!("the function calls itself: {}", names.join(" calls "))));
        }
    };
    let mut sizes = vec![0usize; bodies.len()];
    let size = |body: &Calls, sizes: &[usize]| {
        body.functions.iter().fold(body.nodes, |sum, &callee| sum.saturating_add(sizes[callee]))
    };
    for i in order {
        sizes[i] = size(&bodies[i], &sizes);
    }
    let total = size(main, &sizes);
    let stored = bodies.iter().fold(main.nodes, |sum, body| sum + body.nodes);
    (total > MOST_EXPANDED + 64 * stored).then(|| {
        let message = format!("{stored} nodes become {total} when functions are expanded, which is too many");
        Problem::new(Place::model(), message)
    })
}
