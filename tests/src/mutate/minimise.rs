//! Minimises models that fail in the same way.
use super::{
    Case,
    supervise::{Bounds, Worker, outcome},
};
use bytes::Bytes;
use numrsc::onnx::proto::{GraphProto, ModelProto, TensorProto};
use numrsc_ir::Data;
use prost::Message;
use std::path::Path;

/// The number of models that are tried.
const MAX_TRIES: usize = 60;

/// A reduction; `None` if there is no such part.
type Reduction = fn(&mut GraphProto, usize) -> Option<()>;

const REDUCTIONS: &[Reduction] = &[without_output, without_node, without_input_of_node, without_attribute];

/// Minimises the model of a case while it fails in the same way, and writes it as a test folder.
pub(super) fn minimise(worker: &Worker, case: &Case, same: &dyn Fn(&str) -> bool, folder: &Path, bounds: Bounds) {
    let fails = |model: &ModelProto| {
        write(folder, case, model).expect("the folder can be written");
        let args = ["--replay".into(), folder.display().to_string(), case.seed.to_string()];
        same(&outcome(worker, &args, bounds))
    };
    let (mut best, mut tries) = (case.model.clone(), 0);
    // What needs its own place among cases is not made smaller.
    if fails(&best) {
        for reduction in REDUCTIONS {
            let mut at = 0;
            while tries < MAX_TRIES {
                let mut smaller = best.clone();
                if smaller.graph.as_mut().and_then(|g| reduction(g, at)).is_none() {
                    break;
                }
                tries += 1;
                if fails(&smaller) { best = smaller } else { at += 1 }
            }
        }
    }
    write(folder, case, &best).expect("the folder can be written");
}

fn write(folder: &Path, case: &Case, model: &ModelProto) -> std::io::Result<()> {
    let set = folder.join("test_data_set_0");
    std::fs::create_dir_all(&set)?;
    std::fs::write(folder.join("model.onnx"), model.encode_to_vec())?;
    let kept = model.graph.as_ref().map_or(&[][..], |g| &g.initializer);
    let inputs = model.graph.as_ref().map_or(&[][..], |g| &g.input).iter().zip(&case.data);
    for (i, (input, data)) in inputs.filter(|(input, _)| kept.iter().all(|t| t.name != input.name)).enumerate() {
        if let Some(Data::Tensor(t)) = data {
            std::fs::write(set.join(format!("input_{i}.pb")), stored(&input.name, t).encode_to_vec())?;
        }
    }
    Ok(())
}

/// A tensor as files have it.
pub(super) fn stored(name: &str, t: &numrsc_ir::Tensor) -> TensorProto {
    let dims = t.shape().iter().map(|n| *n as i64).collect();
    let mut proto = TensorProto { dims, data_type: t.dtype().onnx(), name: name.into(), ..TensorProto::default() };
    match t.strings() {
        Some(strings) => proto.string_data = strings.iter().map(|s| Bytes::copy_from_slice(s.as_bytes())).collect(),
        None => proto.raw_data = t.bytes().clone(),
    }
    proto
}

fn without_output(graph: &mut GraphProto, at: usize) -> Option<()> {
    if graph.output.len() < 2 || at >= graph.output.len() {
        return None;
    }
    graph.output.remove(at);
    Some(())
}

/// Its first output is its first input then.
fn without_node(graph: &mut GraphProto, at: usize) -> Option<()> {
    if at >= graph.node.len() {
        return None;
    }
    let node = graph.node.remove(at);
    let to = node.input.first().cloned().unwrap_or_default();
    if let Some(from) = node.output.first() {
        let readers = graph.node.iter_mut().flat_map(|n| &mut n.input).filter(|n| *n == from);
        readers.for_each(|n| n.clone_from(&to));
        graph.output.iter_mut().filter(|o| o.name == *from).for_each(|o| o.name.clone_from(&to));
    }
    Some(())
}

fn without_input_of_node(graph: &mut GraphProto, at: usize) -> Option<()> {
    let mut left = at;
    for node in &mut graph.node {
        if left < node.input.len() {
            node.input.remove(left);
            return Some(());
        }
        left -= node.input.len();
    }
    None
}

fn without_attribute(graph: &mut GraphProto, at: usize) -> Option<()> {
    let mut left = at;
    for node in &mut graph.node {
        if left < node.attribute.len() {
            node.attribute.remove(left);
            return Some(());
        }
        left -= node.attribute.len();
    }
    None
}
