//! From a traced tensor to a file.
use crate::{
    Error, Tensor,
    autograd::{Node, Source, record},
};
use anyhow::Result;
use numrsc::onnx::{
    Format, Model,
    proto::{GraphProto, ModelProto},
    write,
};
use std::{collections::HashMap, path::Path, rc::Rc};

/// Write the model that computes a tensor: as the JSON of NumRs if the name ends in `.json`, otherwise as ONNX.
///
/// Tensors that require no gradient are its inputs, weights and statistics of layers are in the file. It need not be a module that computed the tensor:
///
/// ```
/// use numrs::{Array, autograd::Tensor, ops::{export::export_to_onnx, model::load_onnx}};
/// # fn main() -> anyhow::Result<()> {
/// # let folder = tempfile::tempdir()?;
/// # let file = folder.path().join("sum.onnx");
/// let [x, y] = [1.0, 2.0].map(|n| Tensor::new(Array::new(vec![1], vec![n]), false));
/// export_to_onnx(&x.add(&y)?, &file)?;
/// assert_eq!(load_onnx(&file)?.graph.inputs.len(), 2);
/// # Ok(())
/// # }
/// ```
pub fn export_to_onnx(tensor: &Tensor, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let model = Model::new(path, None, Format::Protobuf, traced(tensor)).map_err(Error::Model)?;
    write::write(&model, path, &write::Options::default()).map_err(Error::Model)?;
    Ok(())
}

/// What is being put together.
#[derive(Default)]
struct Trace {
    graph: GraphProto,
    /// The names of tensors that were made, by their numbers, and of results, by their addresses.
    leaves: HashMap<u64, String>,
    results: HashMap<*const Node, String>,
    named: usize,
}

/// The model of a tensor, with the nodes in the order in which they were computed.
fn traced(tensor: &Tensor) -> ModelProto {
    let mut trace = Trace::default();
    let origin = tensor.origin();
    // A node is seen twice: before its operands, and when they have names.
    let mut work: Vec<(Source, bool)> = vec![(origin.clone(), false)];
    while let Some((source, ready)) = work.pop() {
        match source {
            Source::Result(node) if !trace.results.contains_key(&Rc::as_ptr(&node)) => {
                if ready {
                    trace.node(&node);
                } else {
                    let operands: Vec<_> = node.operands.iter().rev().map(|operand| (operand.clone(), false)).collect();
                    work.push((Source::Result(node), true));
                    work.extend(operands);
                }
            }
            Source::Leaf { .. } => {
                trace.operand(&source);
            }
            Source::Result(_) | Source::Sizes(_) => {}
        }
    }
    let output = trace.operand(&origin);
    let mut graph = trace.graph;
    graph.name = "exported_model".into();
    graph.output = vec![record::declared(&output, tensor.shape())];
    record::model(graph)
}

impl Trace {
    fn name(&mut self) -> String {
        self.named += 1;
        format!("tensor_{}", self.named - 1)
    }

    /// The name of an operand whose node, if it is a result, has one.
    fn operand(&mut self, source: &Source) -> String {
        match source {
            Source::Result(node) => self.results[&Rc::as_ptr(node)].clone(),
            Source::Leaf { number, .. } if self.leaves.contains_key(number) => self.leaves[number].clone(),
            Source::Leaf { number, is_weight, value } => {
                let name = self.name();
                match is_weight {
                    true => self.graph.initializer.push(record::array_tensor(&name, value)),
                    false => self.graph.input.push(record::declared(&name, &value.shape)),
                }
                self.leaves.insert(*number, name.clone());
                name
            }
            Source::Sizes(sizes) => {
                let name = self.name();
                self.graph.initializer.push(record::sizes_tensor(&name, sizes));
                name
            }
        }
    }

    fn node(&mut self, node: &Rc<Node>) {
        let operands: Vec<String> = node.operands.iter().map(|operand| self.operand(operand)).collect();
        let output = self.name();
        let name = format!("{}_{}", node.op.to_lowercase(), self.graph.node.len());
        self.graph.node.push(record::node(node.op, &name, &node.attributes, operands, output.clone()));
        self.results.insert(Rc::as_ptr(node), output);
    }
}
