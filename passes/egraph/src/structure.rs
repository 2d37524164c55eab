//! Rules for any number of operands, which no pattern of fixed size can say: slices of concatenations, concatenations
//! of concatenations and of slices, and products that share an operand.
use crate::{
    rule::dims,
    sources::Log,
    term::{Fact, Graph, Term, fact},
};
use egg::Id;
use numrsc_ir::{Dim, Leaf, TensorType, attr::Attr};
use std::collections::BTreeMap;

/// A rule by name: it adds what it finds and says how often.
pub(super) type Structural = (&'static str, fn(&mut Graph) -> usize);

pub(super) const RULES: &[Structural] = &[
    ("slice-concat", slice_concat),
    ("concat-concat", concat_concat),
    ("concat-slices", concat_slices),
    ("share-operand", share_operand),
];

/// Apply each once; how often each found something new.
pub(super) fn apply(rules: &[Structural], graph: &mut Graph) -> BTreeMap<&'static str, usize> {
    let mut found = BTreeMap::new();
    for (name, rule) in rules {
        let n = rule(graph);
        graph.rebuild();
        if n > 0 {
            found.insert(*name, n);
        }
    }
    found
}

/// All ops of a name: class, operands, attributes. In a fixed order.
fn all(graph: &Graph, name: &str, attributes: usize) -> Vec<(Id, Vec<Id>, Vec<Leaf>)> {
    let mut found = Vec::new();
    for class in graph.classes() {
        for term in &class.nodes {
            if let Term::Op(n, children) = term
                && *n == name
            {
                let (operands, rest) = children.split_at(children.len() - attributes);
                let leaves = rest.iter().filter_map(|c| graph[*c].data.leaf().cloned()).collect();
                found.push((class.id, operands.iter().map(|o| graph.find(*o)).collect(), leaves));
            }
        }
    }
    found
}

/// Add an op for the sake of some classes, if it is well-typed.
fn add(
    graph: &mut Graph,
    by: (&'static str, &[Id]),
    name: &'static str,
    operands: &[Id],
    leaves: &[Leaf],
) -> Option<Id> {
    let mut children = operands.to_vec();
    for l in leaves {
        children.push(graph.add(Term::Leaf(l.clone())));
    }
    let kids: Vec<&Fact> = children.iter().map(|c| &graph[*c].data).collect();
    let term = Term::Op(name, children.clone().into());
    fact(&term, &graph.analysis.inputs, &kids)?;
    let before = graph.total_size();
    let id = graph.add(term);
    if graph.total_size() > before {
        Log::made(graph, id, name, by.0, by.1);
    }
    Some(id)
}

/// Union if the types agree; did anything change?
fn equate(graph: &mut Graph, a: Id, b: Id, rule: &'static str) -> bool {
    graph[a].data.tensor() == graph[b].data.tensor() && graph.union_trusted(a, b, rule)
}

fn tensor(graph: &Graph, id: Id) -> Option<TensorType> {
    graph[id].data.tensor().cloned()
}

fn list(dims: &[Dim]) -> Leaf {
    Leaf::List(dims.iter().cloned().map(Leaf::Dim).collect())
}

/// A slice of a concatenation that lies in one operand is a slice of that.
fn slice_concat(graph: &mut Graph) -> usize {
    let mut changed = 0;
    let mut concats: BTreeMap<Id, Vec<(Vec<Id>, usize)>> = BTreeMap::new();
    for (class, operands, leaves) in all(graph, "concat", 1) {
        if let Some(axis) = leaves.first().and_then(Leaf::as_int) {
            concats.entry(class).or_default().push((operands, axis as usize));
        }
    }
    for (class, operands, leaves) in all(graph, "slice", 3) {
        let [starts, sizes, steps] = &leaves[..] else { continue };
        let (Some(starts), Some(sizes), Some(ks)) = (dims(starts), dims(sizes), Vec::<i64>::from_leaf(steps)) else {
            continue;
        };
        for (parts, axis) in concats.get(&operands[0]).cloned().unwrap_or_default() {
            if ks[axis] != 1 {
                continue;
            }
            let end = &starts[axis] + &sizes[axis];
            let mut offset = Dim::ZERO;
            for part in parts {
                let Some(t) = tensor(graph, part) else { break };
                let next = &offset + &t.shape[axis];
                if offset.at_most(&starts[axis]) == Some(true) && end.at_most(&next) == Some(true) {
                    let mut at = starts.clone();
                    at[axis] = &starts[axis] - &offset;
                    if let Some(new) = add(
                        graph,
                        ("slice-concat", &[class]),
                        "slice",
                        &[part],
                        &[list(&at), list(&sizes), steps.clone()],
                    ) && equate(graph, class, new, "slice-concat")
                    {
                        changed += 1;
                    }
                    break;
                }
                offset = next;
            }
        }
    }
    changed
}

/// A concatenation inside another along the same axis is part of it.
fn concat_concat(graph: &mut Graph) -> usize {
    let mut changed = 0;
    let concats = all(graph, "concat", 1);
    for (class, operands, leaves) in &concats {
        let inner =
            |o: &Id| concats.iter().find(|(c, parts, l)| c == o && l == leaves && !parts.contains(o) && c != class);
        if !operands.iter().any(|o| inner(o).is_some()) {
            continue;
        }
        let flat: Vec<Id> =
            operands.iter().flat_map(|o| inner(o).map_or(vec![*o], |(_, parts, _)| parts.clone())).collect();
        if let Some(new) = add(graph, ("concat-concat", &[*class]), "concat", &flat, leaves)
            && equate(graph, *class, new, "concat-concat")
        {
            changed += 1;
        }
    }
    changed
}

/// Neighbouring slices of one tensor, joined again, are one slice.
fn concat_slices(graph: &mut Graph) -> usize {
    let mut changed = 0;
    let mut slices: BTreeMap<Id, Vec<(Id, Vec<Leaf>)>> = BTreeMap::new();
    for (class, operands, leaves) in all(graph, "slice", 3) {
        slices.entry(class).or_default().push((operands[0], leaves));
    }
    for (class, operands, leaves) in all(graph, "concat", 1) {
        let Some(axis) = leaves.first().and_then(Leaf::as_int).map(|a| a as usize) else { continue };
        let Some(first) = slices.get(&operands[0]).and_then(|s| s.first()).cloned() else { continue };
        let Some(joined) = join(&operands, axis, first.0, &slices) else { continue };
        if let Some(new) = add(graph, ("concat-slices", &[class]), "slice", &[first.0], &joined)
            && equate(graph, class, new, "concat-slices")
        {
            changed += 1;
        }
    }
    changed
}

/// Starts, sizes and steps of the slice of `of` that neighbouring slices make.
fn join(operands: &[Id], axis: usize, of: Id, slices: &BTreeMap<Id, Vec<(Id, Vec<Leaf>)>>) -> Option<[Leaf; 3]> {
    let mut whole: Option<(Vec<Dim>, Vec<Dim>, Vec<i64>)> = None;
    for o in operands {
        let (_, leaves) = slices.get(o)?.iter().find(|(x, _)| *x == of)?;
        let (starts, sizes, steps) = (dims(&leaves[0])?, dims(&leaves[1])?, Vec::<i64>::from_leaf(&leaves[2])?);
        if steps.get(axis) != Some(&1) {
            return None;
        }
        match &mut whole {
            None => whole = Some((starts, sizes, steps)),
            Some((s, n, k)) => {
                let follows = &s[axis] + &n[axis] == starts[axis];
                let beside = (0..s.len()).all(|i| i == axis || (s[i] == starts[i] && n[i] == sizes[i]));
                if !follows || !beside || *k != steps {
                    return None;
                }
                n[axis] = &n[axis] + &sizes[axis];
            }
        }
    }
    let (s, n, k) = whole?;
    Some([list(&s), list(&n), Leaf::List(k.into_iter().map(Leaf::int).collect())])
}

/// The operand and attributes that products share, and the shape of their weights but for the axis that joins.
type Shared = (Id, Vec<Leaf>, Vec<Dim>);

/// A·B and A·C with constant B and C are slices of A·[B C]: what they share is read once. Convolutions likewise, along
/// the output channels.
fn share_operand(graph: &mut Graph) -> usize {
    let mut changed = 0;
    for (name, attributes) in [("contract", 4), ("conv", super::term::attribute_count("conv"))] {
        // Which products of a class could go together: same other operand, same attributes, weights that join.
        let mut together: BTreeMap<Shared, Vec<(Id, Id)>> = BTreeMap::new();
        for (class, operands, leaves) in all(graph, name, attributes) {
            let (x, w) = (operands[0], operands[1]);
            // Weights that were joined are not joined again.
            let joined = graph[w].nodes.iter().any(|t| matches!(t, Term::Op("concat", _)));
            if joined || !graph[w].data.constant() || graph[class].data.constant() {
                continue;
            }
            let Some(axis) = own_axis(graph, name, w, &leaves) else { continue };
            let Some(mut shape) = tensor(graph, w).map(|t| t.shape) else { continue };
            shape[axis] = Dim::ZERO;
            let list = together.entry((x, leaves, shape)).or_default();
            if !list.iter().any(|(c, _)| *c == class) {
                list.push((class, w));
            }
        }
        for ((x, leaves, _), products) in together {
            if products.len() < 2 || products.len() > 8 {
                continue;
            }
            changed += usize::from(share(graph, name, x, &leaves, &products).unwrap_or(false));
        }
    }
    changed
}

/// The one axis of the weights that is an axis of the result, if it is the last one of it (or the channels of a
/// convolution).
fn own_axis(graph: &Graph, name: &str, w: Id, leaves: &[Leaf]) -> Option<usize> {
    let rank = tensor(graph, w)?.rank();
    if name == "conv" {
        // The outputs of several groups or blocks would be interleaved.
        let plain = leaves[5..].iter().all(|l| l.as_int() == Some(1));
        return plain.then_some(0);
    }
    let used = [Vec::<i64>::from_leaf(&leaves[1])?, Vec::<i64>::from_leaf(&leaves[3])?].concat();
    let mut own = (0..rank).filter(|a| !used.contains(&(*a as i64)));
    let axis = own.next()?;
    own.next().is_none().then_some(axis)
}

fn share(graph: &mut Graph, name: &'static str, x: Id, leaves: &[Leaf], products: &[(Id, Id)]) -> Option<bool> {
    let axis = own_axis(graph, name, products[0].1, leaves)?;
    let weights: Vec<Id> = products.iter().map(|p| p.1).collect();
    let classes: Vec<Id> = products.iter().map(|p| p.0).collect();
    let by = ("share-operand", &classes[..]);
    let joined = add(graph, by, "concat", &weights, &[Leaf::int(axis as i64)])?;
    let product = add(graph, by, name, &[x, joined], leaves)?;
    let rank = tensor(graph, product)?.rank();
    let out_axis = if name == "conv" { 1 } else { rank - 1 };
    let mut offset = Dim::ZERO;
    let mut changed = false;
    for (class, w) in products {
        let shape = tensor(graph, *class)?.shape;
        let mut starts = vec![Dim::ZERO; rank];
        starts[out_axis] = offset.clone();
        let steps = Leaf::List(vec![Leaf::int(1); rank]);
        let part =
            add(graph, ("share-operand", &[*class]), "slice", &[product], &[list(&starts), list(&shape), steps])?;
        changed |= equate(graph, *class, part, "share-operand");
        offset = &offset + &tensor(graph, *w)?.shape[axis];
    }
    Some(changed)
}
