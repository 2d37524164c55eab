//! Equal nodes and equal constants are one.
use super::graph::Work;
use crate::onnx::{domain, ops, proto::TensorProto, tensor_data::values_of};
use prost::Message;
use std::collections::HashMap;

/// Operators whose results differ from run to run, or from node to node.
const RANDOM: &[&str] =
    &["Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"];

/// Let the users of a node take the results of an equal one.
pub(super) fn nodes(w: &mut Work<'_>) -> usize {
    let mut merged = 0;
    let mut seen: HashMap<Vec<u8>, usize> = HashMap::new();
    for at in order(w) {
        let Some(node) = w.node(at) else { continue };
        let here = domain(&node.domain);
        let version = w.shared.opsets.get(here).copied().unwrap_or(0);
        if RANDOM.contains(&node.op_type.as_str())
            || ops::find(here, &node.op_type, version).is_none()
            || node.attribute.iter().any(|a| a.subgraphs().next().is_some())
        {
            continue;
        }
        let mut key = node.clone();
        key.name.clear();
        key.doc_string.clear();
        key.metadata_props.clear();
        key.attribute.sort_by(|a, b| a.name.cmp(&b.name));
        // Which of its outputs are wanted may change what an operator does.
        key.output.iter_mut().filter(|o| !o.is_empty()).for_each(|o| "wanted".clone_into(o));
        let Some(&first) = seen.get(&key.encode_to_vec()) else {
            seen.insert(key.encode_to_vec(), at);
            continue;
        };
        let Some(other) = w.node(first) else { continue };
        let pairs: Vec<(String, String)> = node.output.iter().cloned().zip(other.output.iter().cloned()).collect();
        // Outputs of the graph keep their nodes.
        if pairs.iter().any(|(old, _)| w.is_output(old)) {
            continue;
        }
        w.set(at, None);
        for (old, new) in pairs.iter().filter(|(old, _)| !old.is_empty()) {
            w.replace(old, new);
        }
        merged += 1;
    }
    merged
}

/// The places of nodes, those that others depend on first.
fn order(w: &Work<'_>) -> Vec<usize> {
    let mut done = vec![false; w.nodes.len()];
    let mut order = Vec::with_capacity(w.nodes.len());
    for start in 0..w.nodes.len() {
        let mut stack = vec![(start, false)];
        while let Some((at, ready)) = stack.pop() {
            if ready {
                order.push(at);
            } else if !std::mem::replace(&mut done[at], true) {
                stack.push((at, true));
                let inputs = w.node(at).map_or(&[][..], |n| &n.input);
                stack.extend(inputs.iter().filter_map(|i| w.maker(i)).filter(|&i| !done[i]).map(|i| (i, false)));
            }
        }
    }
    order
}

/// Let users of a constant take an equal one. Only those with the same length and ends are compared as a whole.
pub(super) fn constants(w: &mut Work<'_>) -> usize {
    let mut seen: HashMap<(i32, Vec<i64>, Vec<u8>), Vec<TensorProto>> = HashMap::new();
    let mut merged = 0;
    for t in w.own_constants().cloned().collect::<Vec<_>>() {
        let ends = t.raw_data.iter().take(32).chain(t.raw_data.iter().rev().take(32)).copied().collect();
        let same = seen.entry((t.data_type, t.dims.clone(), ends)).or_default();
        match same.iter().find(|s| values_of(s) == values_of(&t)) {
            Some(first) if !w.is_output(&t.name) => {
                let (old, new) = (t.name.clone(), first.name.clone());
                if !w.users(&old).is_empty() {
                    w.replace(&old, &new);
                    merged += 1;
                }
            }
            Some(_) => {}
            None => same.push(t),
        }
    }
    merged
}
